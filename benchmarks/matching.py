"""What neuron matching costs in FeSEM-MA's M-step.

``python -m benchmarks.matching [--widths W ...]``. One cluster of 20 members, 784
inputs, 62 classes, one hidden layer of each width, and two of the papers' CNNs. The
M-step of FeSEM, plain averaging, against that of FeSEM-MA, on two kinds of members.
``trained``: one local epoch from a common model, as in a run; neurons are still in one
order then, no two choose the same, and distances are all that matching costs.
``independent``: every member drawn afresh, so that the Hungarian method has work to do;
no run of FeSEM-MA starts like this. Pixels and labels are random.

Seconds are processor time with one thread, the median over rounds; every network runs
in a process of its own. One local epoch of one client, with FEMNIST's 227 samples in
batches of 10, stands beside them for scale. ``--save`` writes
results/benchmarks/matching_cost.csv.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import scipy.optimize

from .common import load, measured, refuse_unknown, save

WIDTHS = (50, 100, 200, 400, 800, 1600)
NETWORKS = ("cnn_small", "leaf_cnn")
SHAPE = (1, 28, 28)
CLASSES = 62
MEMBERS = 20
SAMPLES = 227  # 805,263 samples of 3,550 clients (FeSEM, Table 1)
BATCH = 10
LR = 0.01
# A measurement ends after so many processor seconds, or rounds; one round at least.
ENOUGH = 1.5
MOST = 50
SAVED = "matching_cost.csv"
SHOWN = (
    "plain",
    "matched_trained",
    "times_trained",
    "matched_independent",
    "times_independent",
    "epoch",
)


def network(name: str, shape: tuple[int, int, int] = SHAPE, n_classes: int = CLASSES):
    """Return the model called so, or for a number one hidden layer of that width."""
    from fltnb import models

    if not name.isdigit():
        return models.make(name, shape, n_classes)
    layers = (
        models.Flatten(),
        models.Dense(int(np.prod(shape)), int(name)),
        models.ReLU(),
        models.Dense(int(name), n_classes),
    )
    return models.Model("mlp_plain", shape, n_classes, layers)


def trained(
    net, members: int = MEMBERS, samples: int = SAMPLES, seed: int = 0
) -> tuple[np.ndarray, float]:
    """Train every member for one local epoch from a common model, on random images.

    Returns
    -------
    theta : ndarray of float32, shape (members, P)
    seconds : float
        Processor time of one local epoch of one member.
    """
    import fltnb as fl
    from fltnb import training

    rng = np.random.default_rng(seed)
    channels, height, width = net.input_shape
    n = members * samples
    pixels = rng.integers(0, 256, (n, height, width, channels), dtype=np.uint8)
    parts = list(np.arange(n).reshape(members, samples))
    fed = fl.Federation(
        images=pixels,
        labels=rng.integers(0, net.n_classes, n),
        train=parts,
        test=[part[:1] for part in parts],
        n_classes=net.n_classes,
    )

    spec = training.TrainSpec(batch_size=BATCH, lr=LR, seed=seed)
    start = net.init(seed)[None]
    with training.make_engine(fed, net, spec, "serial", device="cpu") as engine:
        engine.train(start, [0], [0], round=0)  # what is set up on first use
        begun = time.process_time()
        done = engine.train(start, [0] * members, range(members), round=1)
        return done.theta, (time.process_time() - begun) / members


def averaged(method, net, theta: np.ndarray) -> np.ndarray:
    """Return the centre (P,) that a method's M-step makes of models (members, P)."""
    weights = [shape for _, shape in net.shapes if len(shape) > 1]
    matrices = [(shape[0], np.prod(shape[1:])) for shape in weights]
    state = SimpleNamespace(shapes=np.array(matrices, dtype=np.int64))
    share = np.ones((1, len(theta)))
    sizes = np.full(len(theta), float(SAMPLES))
    return method.averaged(state, share, sizes, theta, theta[:1])[0]


def timed(method, net, theta: np.ndarray) -> tuple[np.ndarray, float, int]:
    """Return an M-step's centre, its median processor time, and of how many rounds."""
    used: list[float] = []
    while not used or (sum(used) < ENOUGH and len(used) < MOST):
        begun = time.process_time()
        center = averaged(method, net, theta)
        used.append(time.process_time() - begun)
    return center, statistics.median(used), len(used)


@contextmanager
def searches() -> Iterator[list[tuple[int, ...]]]:
    """Count runs of the Hungarian method.

    Yields a list that grows by the shape of each one's costs.
    """
    hungarian = scipy.optimize.linear_sum_assignment
    shapes = []

    def counted(cost: np.ndarray):
        shapes.append(cost.shape)
        return hungarian(cost)

    with mock.patch("fltnb.methods.matching.linear_sum_assignment", counted):
        yield shapes


def measure(
    name: str, members: int = MEMBERS, samples: int = SAMPLES, **shape
) -> dict[str, Any]:
    """Measure one network in this process.

    Parameters
    ----------
    name : str
        A width or a network's name; ``shape`` and ``n_classes`` as for :func:`network`.
    members, samples : int
        Members of the cluster, at least 2, and training samples of each.

    Returns
    -------
    dict
        ``network``; ``width`` of its widest hidden layer; ``parameters``; ``members``;
        seconds of an M-step: ``plain`` and, for both kinds of members, ``matched_*``,
        how many ``times_*`` plain that is, the share ``searched_*`` of assignments that
        first choices did not settle, and the largest difference ``apart_*`` of any
        weight between both means; ``epoch``, seconds of one local epoch of one client;
        the fewest ``rounds`` behind a figure.
    """
    import torch

    from fltnb.methods import FeSEM, FeSEMMA

    torch.set_num_threads(1)
    net = network(name, **shape)
    after, epoch = trained(net, members, samples)
    drawn = np.stack([net.init(0, index) for index in range(members)])
    hidden = [size[0] for _, size in net.shapes if len(size) > 1][:-1]

    plain = FeSEM(1)
    matching = FeSEMMA(1)
    for method in (plain, matching):  # before the clock starts: imports and first use
        averaged(method, net, after[:2])
    _, base, least = timed(plain, net, after)
    row = {
        "network": "mlp" if name.isdigit() else name,
        "width": max(hidden),
        "parameters": net.n_parameters,
        "members": members,
        "plain": base,
    }
    for case, theta in (("trained", after), ("independent", drawn)):
        with searches() as found:
            center, seconds, rounds = timed(matching, net, theta)
        assignments = rounds * (members - 1) * len(hidden)
        gap = np.abs(center - averaged(plain, net, theta)).max()
        row[f"matched_{case}"] = seconds
        row[f"times_{case}"] = seconds / base
        row[f"searched_{case}"] = len(found) / assignments
        row[f"apart_{case}"] = float(gap)
        least = min(least, rounds)
    row["epoch"] = epoch
    row["rounds"] = least
    return row


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    from fltnb.models import NAMES

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.matching", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument(
        "--widths", nargs="*", type=int, default=WIDTHS, help="of the hidden layer"
    )
    parser.add_argument(
        "--networks", nargs="*", default=NETWORKS, help=f"of {', '.join(NAMES)}"
    )
    parser.add_argument(
        "--save", action="store_true", help=f"write results/benchmarks/{SAVED}"
    )
    parser.add_argument(
        "--one",
        metavar="NAME",
        help="a width or a network, in this process, printed as JSON",
    )
    options = parser.parse_args(arguments)
    refuse_unknown(parser, "network", options.networks, NAMES)
    if min(options.widths, default=1) < 1:
        parser.error(f"--widths must be 1 or more, not {min(options.widths)}")
    if options.one:
        print(json.dumps(measure(options.one)))
        return

    print(
        f"Processor seconds of an M-step, {MEMBERS} members, one thread, one process a "
        "network; one client's epoch."
    )
    rows = []
    for name in [*map(str, options.widths), *options.networks]:
        before = load()
        row = measured("matching", "--one", name)
        row["load_average"] = before
        rows.append(row)
        shown = [f"{key} {row[key]:.3g}" for key in SHOWN]
        print(f"{name:<10}", *shown, sep="  ", flush=True)
    if options.save:
        settings = {
            "input_shape": SHAPE,
            "n_classes": CLASSES,
            "samples": SAMPLES,
            "pixels and labels": "random",
            "batch_size": BATCH,
            "lr": LR,
            "clusters": 1,
            "backend": "serial, one thread",
        }
        save(rows, SAVED, settings)


if __name__ == "__main__":
    main()
