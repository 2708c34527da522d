"""What neuron matching costs in FeSEM-MA's M-step: ``python -m benchmarks.matching [--widths W ...]``.

One cluster of 20 members, 784 inputs, 62 classes, one hidden layer of each width, and two of the papers' CNNs. The
M-step of FeSEM, plain averaging, against that of FeSEM-MA, on two kinds of members. ``trained``: one local epoch from a
common model, as in a run; neurons are still in one order then, no two choose the same, and distances are all that
matching costs. ``independent``: every member drawn afresh, so that the Hungarian method has work to do; no run of
FeSEM-MA starts like this. Pixels and labels are random.

Seconds are processor time with one thread, the median over rounds; every network runs in a process of its own. One
local epoch of one client, with FEMNIST's 227 samples in batches of 10, stands beside them for scale. ``--save`` writes
results/small/matching_cost.csv.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import scipy.optimize

from .common import load, measured, save

WIDTHS, NETWORKS = (50, 100, 200, 400, 800, 1600), ("cnn_small", "leaf_cnn")
SHAPE, CLASSES = (1, 28, 28), 62
MEMBERS, SAMPLES, BATCH, LR = (
    20,
    227,
    10,
    0.01,
)  # 805,263 samples of 3,550 clients (FeSEM, Table 1)
ENOUGH, MOST = (
    1.5,
    50,
)  # processor seconds and rounds after which a measurement ends; at least one round
SAVED = "matching_cost.csv"


def network(name: str, shape: tuple[int, int, int] = SHAPE, n_classes: int = CLASSES):
    """Return the model called so, or for a number the one hidden layer of that width."""
    from fltnb import models

    if not name.isdigit():
        return models.make(name, shape, n_classes)
    layers = (
        models.Flatten(),
        models.Dense(int(np.prod(shape)), int(name)),
        models.ReLU(),
    )
    return models.Model(
        "mlp_plain", shape, n_classes, (*layers, models.Dense(int(name), n_classes))
    )


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
    parts = list(np.arange(members * samples).reshape(members, samples))
    fed = fl.Federation(
        images=rng.integers(
            0, 256, (members * samples, height, width, channels), dtype=np.uint8
        ),
        labels=rng.integers(0, net.n_classes, members * samples),
        train=parts,
        test=[part[:1] for part in parts],
        n_classes=net.n_classes,
    )
    spec = training.TrainSpec(local_epochs=1, batch_size=BATCH, lr=LR, seed=seed)
    everybody, start = np.arange(members), net.init(seed)[None]
    with training.make_engine(fed, net, spec, "serial", device="cpu") as engine:
        engine.train(
            start, np.zeros(1, dtype=np.int64), everybody[:1], round=0
        )  # what is set up on first use
        begun = time.process_time()
        theta = engine.train(
            start, np.zeros(members, dtype=np.int64), everybody, round=1
        ).theta
        return theta, (time.process_time() - begun) / members


def averaged(method, net, theta: np.ndarray) -> np.ndarray:
    """Return the centre (P,) that the M-step of FeSEM or FeSEM-MA makes of the members' models (members, P)."""
    weights = [shape for _, shape in net.shapes if len(shape) > 1]
    state = {
        "shapes": np.array(
            [(shape[0], np.prod(shape[1:])) for shape in weights], dtype=np.int64
        )
    }
    share, sizes = np.ones((1, len(theta))), np.full(len(theta), float(SAMPLES))
    return method.averaged(state, share, sizes, theta, theta[:1])[0]


def timed(method, net, theta: np.ndarray) -> tuple[np.ndarray, float, int]:
    """Return the centre of an M-step, its median processor time in seconds, and of how many rounds."""
    used: list[float] = []
    while not used or (sum(used) < ENOUGH and len(used) < MOST):
        begun = time.process_time()
        center = averaged(method, net, theta)
        used.append(time.process_time() - begun)
    return center, statistics.median(used), len(used)


@contextmanager
def searches() -> Iterator[list[tuple[int, ...]]]:
    """Count runs of the Hungarian method: yields a list that grows by the shape of each one's costs."""
    hungarian, shapes = scipy.optimize.linear_sum_assignment, []

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
        ``network``; ``width`` of its widest hidden layer; ``parameters``; ``members``; seconds of an M-step: ``plain``
        and, for both kinds of members, ``matched_*``, how many ``times_*`` plain that is, the share ``searched_*`` of
        assignments that first choices did not settle, and the largest difference ``apart_*`` of any weight between
        both means; ``epoch``, seconds of one local epoch of one client; the fewest ``rounds`` behind a figure.
    """
    import torch

    from fltnb.methods import FeSEM, FeSEMMA

    torch.set_num_threads(1)
    net = network(name, **shape)
    after, epoch = trained(net, members, samples)
    cases = {
        "trained": after,
        "independent": np.stack([net.init(0, index) for index in range(members)]),
    }
    plain, matching = FeSEM(1), FeSEMMA(1)
    hidden = [size[0] for _, size in net.shapes if len(size) > 1][:-1]
    for method in (plain, matching):  # before the clock starts: imports and first use
        averaged(method, net, after[:2])
    _, base, least = timed(plain, net, after)
    row = {
        "network": "mlp" if name.isdigit() else name,
        "width": max(hidden),
        "parameters": net.n_parameters,
    }
    row |= {"members": members, "plain": base}
    for case, theta in cases.items():
        with searches() as found:
            center, row[f"matched_{case}"], rounds = timed(matching, net, theta)
        row[f"times_{case}"] = row[f"matched_{case}"] / base
        row[f"searched_{case}"] = len(found) / rounds / (members - 1) / len(hidden)
        row[f"apart_{case}"] = float(np.abs(center - averaged(plain, net, theta)).max())
        least = min(least, rounds)
    return row | {"epoch": epoch, "rounds": least}


def one(name: str) -> dict[str, Any]:
    """Measure one network in a process of its own."""
    return measured("matching", "--one", name)


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
        "--save", action="store_true", help=f"write results/small/{SAVED}"
    )
    parser.add_argument(
        "--one",
        metavar="NAME",
        help="a width or a network, in this process, printed as JSON",
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.networks) - set(NAMES):
        parser.error(
            f"unknown network {', '.join(sorted(unknown))}: choose of {', '.join(NAMES)}"
        )
    if min(options.widths, default=1) < 1:
        parser.error(f"--widths must be 1 or more, not {min(options.widths)}")
    if options.one:
        print(json.dumps(measure(options.one)))
        return
    print(
        f"Processor seconds of an M-step, {MEMBERS} members, one thread, one process a network; one client's epoch."
    )
    rows = []
    for name in [*map(str, options.widths), *options.networks]:
        before = load()
        rows.append(one(name) | {"load_average": before})
        shown = (
            "plain",
            "matched_trained",
            "times_trained",
            "matched_independent",
            "times_independent",
            "epoch",
        )
        print(
            f"{name:<10}",
            *(f"{key} {rows[-1][key]:.3g}" for key in shown),
            sep="  ",
            flush=True,
        )
    if options.save:
        data = {
            "input_shape": SHAPE,
            "n_classes": CLASSES,
            "samples": SAMPLES,
            "pixels and labels": "random",
        }
        save(
            rows,
            SAVED,
            data
            | {
                "batch_size": BATCH,
                "lr": LR,
                "clusters": 1,
                "backend": "serial, one thread",
            },
        )


if __name__ == "__main__":
    main()
