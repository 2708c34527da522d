"""Outcomes of tiny runs, clusterings and partitions: no number may move unnoticed.

They are stored in ``golden/runs.json``; ``golden_cases.py`` has their settings.
``python -m tests.golden`` stores new outcomes.
"""

import hashlib
import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from golden_cases import (
    CLUSTERERS,
    CORE,
    ENCODERS,
    FEDERATIONS,
    HELD,
    METHODS,
    TRAINING,
)

import fltnb as fl
from fltnb import clustering, encoders, federations, methods
from fltnb.clustering import ours as _ours  # noqa: F401
from fltnb.clustering.noise import noisy
from fltnb.data import ImageSet
from fltnb.methods.ownmodels import OwnModels

STORED = Path(__file__).parent / "golden" / "runs.json"

SHOWN = (
    (0, "train"),
    (0, "test"),
    (2, "train"),
    (2, "test"),
)  # clients and parts whose inputs are stored
CASES = {
    **{f"federations.{name}": (FEDERATIONS, name) for name in FEDERATIONS},
    "federations.from_arrays": (None, ""),
    **{f"clustering.{name}": (CLUSTERERS, name) for name in CLUSTERERS},
    **{f"encoders.{name}": (ENCODERS, name) for name in ENCODERS},
    **{f"methods.{name}": (METHODS, name) for name in METHODS},
    **{f"core.{name}": (CORE, name) for name in CORE},
}


def people():
    """Small colour images with writers and domains, as FEMNIST and PACS have them."""
    rng, n = np.random.default_rng(0), 360
    labels = np.arange(n) % 4
    images = rng.integers(0, 120, (n, 8, 8, 3)) + 40 * (
        np.arange(8)[:, None, None] // 2 == labels[:, None, None, None]
    )
    return ImageSet(
        name="people",
        images=images.astype(np.uint8),
        labels=labels,
        split=(rng.random(n) < 0.25).astype(np.uint8),
        class_names=tuple("abcd"),
        origin="random",
        writers=rng.integers(0, 9, n).astype(np.int32),
        domains=(np.arange(n) // 4 % 3).astype(np.uint8),
    )


def federation(settings):
    settings = {"dataset": "digits"} | settings
    return (
        federations.made(people(), settings)
        if settings["dataset"] == "people"
        else federations.build(settings)
    )


def rounded(values):
    return [float(f"{value:.7g}") for value in np.asarray(values, dtype=float).ravel()]


def summary(values):
    """Mean, mean size and five entries of numbers."""
    flat = np.concatenate([np.ravel(part) for part in values]).astype(np.float64)
    return rounded(
        [
            flat.mean(),
            np.abs(flat).mean(),
            *flat[np.linspace(0, len(flat) - 1, 7).astype(int)[1:-1]],
        ]
    )


def digest(*arrays):
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(np.asarray(array, dtype=np.int64)).tobytes())
    return found.hexdigest()[:16]


def divided(fed):
    out = {
        "samples": [
            [len(part) for part in getattr(fed, split)] for split in federations.SPLITS
        ],
        "indices": [digest(*getattr(fed, split)) for split in federations.SPLITS],
        "inputs": [digest(np.round(fed.client(i, part)[0] * 1e6)) for i, part in SHOWN],
        "classes": fed.label_counts().sum(axis=0).tolist(),
        "clusters": None if fed.clusters is None else fed.clusters.tolist(),
    }
    phases = [
        [p.round, p.fed.n_clients, p.changed.tolist()]
        for p in getattr(fed, "phases", ())
    ]
    return out | ({"phases": phases} if phases else {})


def clustered(name):
    """Outcome of a clusterer for nine clients of three kinds."""
    rng, kinds = np.random.default_rng(0), np.arange(9) % 3
    shift, scale = (
        15 * np.eye(6)[kinds],
        np.array([[9, 3, 1, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 1, 3, 9], [1] * 6])[kinds],
    )
    clients, held = (
        [rng.normal(size=(n, 6)) * scale[i] + shift[i] for i in range(9)]
        for n in (40, 10)
    )
    if "PCAKMeans" in name:  # is meant for pixels
        clients = [(own + 40) / 90 for own in clients]
    noise, words = name.startswith("noise "), name.removeprefix("noise ").split()
    clusterer = clustering.CLUSTERERS[words[0]](**CLUSTERERS[name])
    halves = [np.arange(40) % 2] * 9
    second = {"EMDClustering": [held] * 9, "PACFL": halves, "FedCollab": halves}.get(
        words[0]
    )
    if words[0] == "MergeGain":
        second = [
            (own[:, kind] > own[:, kind].mean()).astype(int)
            for own, kind in zip(clients, kinds, strict=True)
        ]
    found = (noisy(clusterer, 0.2, 1) if noise else clusterer).fit(clients, second)
    out = {"labels": found.labels_.tolist(), "clusters": int(found.n_clusters_)}
    out["links"] = digest(found.adjacency_)
    # UMAP's layout depends on the machine
    return out if words[0] == "FCR" else out | {"distances": summary(found.distance_)}


def embedded(name):
    fed = federation(HELD)
    if name == "own":
        own, held = OwnModels("mlp32", 1, 10).embed(fed)
        return {"embeddings": summary(own), "validation": summary(held(1))}
    return {
        "embeddings": summary(
            encoders.embed_clients(
                fed, encoders.EncoderSpec(**ENCODERS[name]), n_jobs=1
            )
        )
    }


def trained(settings, change):
    options = TRAINING | change
    run = fl.run(
        methods.build(settings), federation(options.pop("fed", HELD)), **options
    )
    test, last = run.history[run.history["split"] == "test"], run.history.iloc[-1]
    out = {
        "test accuracy by round": rounded(test["accuracy"]),
        "test loss by round": rounded(test["loss"]),
        "models": summary(run.theta),
        "served": run.rows.tolist(),
        "labels": None if run.labels is None else run.labels.tolist(),
        "bytes up and down": [int(last["bytes_up"]), int(last["bytes_down"])],
    }
    probe = run.history[run.history["split"] == "probe"]
    return out | ({"probe accuracy": rounded(probe["accuracy"])} if len(probe) else {})


def outcome(case):
    table, name = CASES[case]
    if table is FEDERATIONS:
        return divided(federation(table[name]))
    if case == "federations.from_arrays":
        x, y = np.random.default_rng(0).random((60, 5)), np.arange(60) % 3
        return divided(
            federations.from_arrays(
                x, y, np.arange(60) // 10, test_fraction=0.3, val_fraction=0.2, seed=1
            )
        )
    if table is CLUSTERERS:
        return clustered(name)
    if table is ENCODERS:
        return embedded(name)
    if table is CORE:
        return trained({"name": "fedavg"}, CORE[name])
    return trained({"name": name.split()[0]} | METHODS[name][0], METHODS[name][1])


def difference(stored, now, where=""):
    """Say in words where two outcomes first differ, else return an empty string."""
    if (
        isinstance(stored, dict)
        and isinstance(now, dict)
        and stored.keys() == now.keys()
    ):
        return next(
            (
                found
                for key in stored
                if (found := difference(stored[key], now[key], key))
            ),
            "",
        )
    if isinstance(stored, list) and isinstance(now, list) and len(stored) == len(now):
        pairs = enumerate(
            zip(stored, now, strict=True)
        )  # the first round that is stored is 0
        return next(
            (
                found
                for i, pair in pairs
                if (found := difference(*pair, f"{where} {i}"))
            ),
            "",
        )
    if isinstance(stored, float) and isinstance(now, float):
        same = math.isclose(
            stored, now, rel_tol=1e-4, abs_tol=2e-6
        )  # rounding differs between machines
    else:
        same = stored == now
    return "" if same else f"{where.strip()}: stored {stored}, now {now}"


def write():
    """Store the outcomes of all cases."""
    text = ",\n".join(
        f" {json.dumps(case)}: {json.dumps(computed(case))}" for case in CASES
    )
    STORED.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")


def computed(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return json.loads(json.dumps(outcome(case)))


@pytest.mark.parametrize("case", CASES)
def test_numbers_are_those_stored(case, tmp_path, monkeypatch):
    monkeypatch.setenv("FLTNB_STORE", str(tmp_path))
    part = case.split(".")[0]
    component = part if part in ("core", "encoders") else case.split()[0]
    moved = difference(
        json.loads(STORED.read_text(encoding="utf-8")).get(case), computed(case)
    )
    version = f"NUMERICS[{component.split('.')[-1]!r}]"
    assert not moved, (
        f"The numbers of {component} moved (case {case}, {moved}): raise {version} in "
        "fltnb/experiments/key.py and run `python -m tests.golden` to store the new "
        "outcome, or restore its numbers."
    )


def test_every_component_has_a_case():
    """Else its numbers could move unnoticed."""
    assert {cls.name for cls in methods.METHODS.values()} == {
        name.split()[0] for name in METHODS
    }
    assert set(federations.KINDS) - {"seen"} <= set(FEDERATIONS)  # needs that network
    assert set(clustering.CLUSTERERS) <= set(CLUSTERERS)
    assert set(encoders.KINDS) - {"resnet18", "efficientnet"} <= set(
        ENCODERS
    )  # too large to embed with here
    assert json.loads(STORED.read_text(encoding="utf-8")).keys() == CASES.keys()
