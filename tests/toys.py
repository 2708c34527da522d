"""What tests share: refusals, small made-up image sets, digits in two clusters, methods
fed with a few numbers.
"""

import json
import multiprocessing
import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import fltnb as fl
from fltnb import paths
from fltnb.data import ImageSet
from fltnb.experiments import Row
from fltnb.federations.recipe import Recipe
from fltnb.methods import Context
from fltnb.papers.verdicts import Numbers
from fltnb.training import Trained

QUICK = {
    "model": "mlp_plain",
    "rounds": 2,
    "local_epochs": 2,
    "participation": 1.0,
    "lr": 0.1,
    "batch_size": 1000,
}
QUICK |= {"backend": "serial", "progress": False, "dtype": "float64"}


def label_clusters(seed=0, **changes):
    """Settings of FLT's scenario 1 on the digits: 25 clients, two labels each."""
    held = {"n_clients": 25, "n_clusters": 5, "seed": seed, "variant": "as_written"}
    held |= {"classes_per_cluster": 2, "shared_classes": 0}
    return fl.recipe("label_clusters", "digits", **(held | changes)).settings


def refused(says, call, *arguments, **options):
    """Return what the user reads when a call cannot work: one line that says this, and
    is a sentence.
    """
    with pytest.raises(fl.FltnbError, match=says) as caught:
        call(*arguments, **options)
    text = str(caught.value)
    assert "\n" not in text and text.endswith("."), text
    return text


def prepared(name):
    """Mark a test of a real data set, for machines where its file is."""
    file = paths.ROOT / "data" / f"{name}.npz"
    return pytest.mark.skipif(
        not file.is_file(), reason=f"data/{name}.npz is not prepared"
    )


def logits_of(net, theta, x):
    """Outputs of the plain module with these parameters, in float64."""
    module = net.build().double().eval()
    nn.utils.vector_to_parameters(
        torch.from_numpy(theta.astype(np.float64)), module.parameters()
    )
    with torch.inference_mode():
        return module(x.double()).numpy()


def rebuilt(fed, *folder):
    """The federation made again from what a result keeps of its settings, after
    checking that it is the same.
    """
    again = fl.federations.build(json.loads(json.dumps(fed.settings)), *folder)
    assert (again.fingerprint(), again.settings) == (fed.fingerprint(), fed.settings)
    return again


def leaf_file(user_data):
    """Content of one file as LEAF writes them, from the pictures x and the labels y of
    every person.
    """
    sizes = [len(own["y"]) for own in user_data.values()]
    return {"users": list(user_data), "num_samples": sizes, "user_data": user_data}


def write_leaf(folder, name, *parts):
    """Write the training and the test part of a pair of LEAF's files; ``{}`` in their
    name is the part.
    """
    for part, content in zip(("train", "test"), parts, strict=True):
        (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / part / name.format(part)).write_text(json.dumps(content))


def two_clusters(n_clients, samples=20, **options):
    """Clients of two clusters with two digits each."""
    options = {"n_clusters": 2, "classes_per_cluster": 2, "seed": 0} | options
    return fl.federations.label_clusters(
        fl.load("digits"), n_clients, samples_per_client=samples, **options
    )


def steps(method, rounds, theta0=(0.0, 0.0), sizes=None, n_clients=None, head=1, **fed):
    """Feed a method with ``rounds``, a list of (clients, what they trained, again);
    yield the state after each.

    The last ``head`` numbers of a model are its last layer, which has one output and no
    bias. ``fed``: more of the federation's attributes.
    """
    n_clients = n_clients or 1 + max(max(clients) for clients, *_ in rounds)
    theta0, sizes = (
        np.array(theta0),
        np.ones(n_clients, dtype=np.int64) if sizes is None else np.array(sizes),
    )
    P = len(theta0)
    counts = {"n_parameters": P, "n_trainable": P, "n_statistics": 0, "n_classes": 0}
    last = slice(P - head, P)
    model = SimpleNamespace(
        **counts, head=last, head_weight=last, init=lambda seed, index=0: theta0 + index
    )
    state = method.start(
        SimpleNamespace(n_clients=n_clients, sizes=sizes, val=[], **fed),
        model,
        Context(0),
    )
    for round, (clients, *answers) in enumerate(rounds, start=1):
        clients, answers = (
            np.array(clients),
            [np.array(answer, dtype=np.float64) for answer in answers],
        )
        left = iter(answers)
        engine = SimpleNamespace(
            train=lambda *_, left=left: Trained(came := next(left), np.zeros(len(came)))
        )
        state, trained = method.train(state, clients, round, engine)
        state = method.collect(state, clients, trained.theta, round)
        yield state.mapped(np.array)


def served(method, state):
    """Models that the clients are served, as lists."""
    theta, rows = method.serve(state)
    return theta[rows].tolist()


def held_out(fed, val):
    """The federation with the first ``val`` training samples of each client for
    validation.
    """
    return replace(
        fed,
        train=[own[val:] for own in fed.train],
        val=[own[:val] for own in fed.train],
    )


def toy_set(images, labels, split, n_classes=None, name="toy", **more):
    """An image set of these arrays, cast to their types; classes are named by their
    numbers.
    """
    classes = range(max(labels) + 1 if n_classes is None else n_classes)
    return ImageSet(
        name=name,
        images=np.asarray(images, dtype=np.uint8),
        labels=np.asarray(labels, dtype=np.int64),
        split=np.asarray(split, dtype=np.uint8),
        class_names=tuple(map(str, classes)),
        origin="made up",
        **more,
    )


def counted(train_counts, test_counts=None):
    """1x1 grey images, as many of each class as asked for, in a random order, training
    part first.
    """
    test_counts = [2] * len(train_counts) if test_counts is None else test_counts
    rng = np.random.default_rng(0)
    labels = np.concatenate(
        [
            rng.permutation(np.repeat(np.arange(len(c)), c))
            for c in (train_counts, test_counts)
        ]
    )
    images = (np.arange(len(labels)) % 256).reshape(-1, 1, 1)
    return toy_set(
        images,
        labels,
        np.repeat([0, 1], [sum(train_counts), sum(test_counts)]),
        len(train_counts),
    )


def final(run):
    """Models (M, P) that the clients have at the end of a run."""
    return run.theta[run.rows]


def forked(function, *given):
    """A child process that did this, after its end."""
    child = multiprocessing.get_context("fork").Process(target=function, args=given)
    child.start()
    child.join()
    return child


def half(file):
    """Content of which a writer manages half before it is killed."""
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)


class Made:
    """Results made by hand, for tests of claims: what :class:`Numbers` looks at."""

    def __init__(self, runs, curves=None, clients=None, tables=None, arrays=None):
        self.runs = pd.DataFrame(runs)
        for name in ("kind", "dataset", "model", "method", "variant", "stopped", "key"):
            if name not in self.runs:
                self.runs[name] = ""
        if "seed" not in self.runs:
            self.runs["seed"] = 0
        self.curves = pd.DataFrame() if curves is None else pd.DataFrame(curves)
        self.clients = pd.DataFrame() if clients is None else pd.DataFrame(clients)
        self.tables = tables or {}  # (key, name) -> table
        self.kept = arrays or {}  # key -> arrays
        self.axes = tuple(self.runs.attrs.get("axes", ()))

    def table(self, key, name):
        return pd.DataFrame(self.tables.get((key, name), {}))

    def arrays(self, key):
        return self.kept.get(key, {})

    def record(self, key):
        return {"settings": {}, "provenance": {}}


def measured(
    dataset="", model="", variant="as_written", table="", beside=None, **measures
):
    """Numbers by hand: a measure is method -> number, or a list of them by seed.

    ``measured("mnist", table="T1", accuracy={"flt_enc1": [98, 99], "fedavg": 90})``.
    ``curves={"flt": [50, 60, 70]}`` (test accuracy by round from round 1),
    ``train={...}``. ``clusterings``, ``studies``: rows of ``runs`` (dicts); a study's
    ``tables`` (name -> rows), and ``arrays`` of either, stand in its row. Other names
    of a row are axes.
    """
    splits = {"test": measures.pop("curves", {}), "train": measures.pop("train", {})}
    jobs = {"clustering": measures.pop("clusterings", [])}
    jobs["study"] = measures.pop("studies", [])
    about = {"dataset": dataset, "model": model, "variant": variant}

    runs = {}
    for measure, by_method in measures.items():
        for method, values in by_method.items():
            for seed, value in enumerate(np.atleast_1d(values)):
                row = {"kind": "training", "method": method, "seed": seed} | about
                row = runs.setdefault((method, seed), row)
                row |= {"key": f"{method}-{seed}", measure: value}

    curves = []
    for split, by_method in splits.items():
        for method, values in by_method.items():
            row = {"kind": "training", "method": method, "seed": 0} | about
            runs.setdefault((method, 0), row | {"key": f"{method}-0"})
            for round, value in enumerate(values, start=1):
                point = {"key": f"{method}-0", "method": method, "seed": 0}
                point |= {"round": round, "split": split, "accuracy": value}
                curves.append(point)

    rows, tables, arrays, axes = list(runs.values()), {}, {}, {}
    for kind, each in jobs.items():
        for number, job in enumerate(each):
            key = f"{kind}-{number}"
            for name, table_ in job.pop("tables", {}).items():
                tables[key, name] = table_
            arrays[key] = job.pop("arrays", {})
            known = {"ari", "n_clusters", "true_clusters", "method", "seed"}
            axes |= dict.fromkeys(job.keys() - known)
            rows.append({"kind": kind, "key": key, "model": ""} | about | job)
    made = Made(rows, curves, None, tables, arrays)
    made.axes = tuple(axes)
    return Numbers(made, dataset, model, variant, table, beside)


def training(federation, method, model, rounds, axes=None, **options) -> Row:
    """A row of a grid with a training, of settings and under these axes."""
    made = fl.methods.build(method) if isinstance(method, dict) else method
    held = Recipe(federation)
    experiment = fl.Training(held, made, model, rounds, **options)
    return Row(experiment.shown | (axes or {}), experiment)


def clustering(federation, clusterer, encoder, axes=None, **options) -> Row:
    """A row of a grid with a clustering, of settings and under these axes."""
    made = fl.clustering.build(clusterer)
    spec = fl.encoders.build(encoder)
    experiment = fl.Clustering(Recipe(federation), made, spec, **options)
    return Row(experiment.shown | (axes or {}), experiment)


def distances(federation, model, how, measure, seed=0) -> Row:
    """A row of a grid with distances between clients."""
    experiment = fl.Distances(Recipe(federation), model, how, measure, seed)
    return Row(experiment.shown, experiment)
