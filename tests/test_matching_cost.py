"""What the benchmark of neuron matching measures; no speed is asserted."""

import numpy as np
import pytest

from benchmarks import matching as cost
from fltnb.methods import FeSEM, FeSEMMA
from fltnb.methods.matching import joined, permuted, split

SMALL = {"members": 4, "samples": 20, "shape": (1, 8, 8), "n_classes": 10}
KINDS = [
    f"{figure}_{kind}"
    for kind in ("trained", "independent")
    for figure in ("matched", "times", "searched", "apart")
]
COLUMNS = [
    "network",
    "width",
    "parameters",
    "members",
    "plain",
    *KINDS,
    "epoch",
    "rounds",
]


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    monkeypatch.setattr(cost, "ENOUGH", 0.0)  # one round of each


@pytest.mark.parametrize(("name", "width"), [("8", 8), ("cnn_small", 128)])
def test_both_kinds_of_members_are_what_they_are_called(name, width):
    row = cost.measure(name, **SMALL)
    assert list(row) == COLUMNS and row["width"] == width and row["rounds"] == 1
    assert (
        row["searched_trained"] == 0 and row["apart_trained"] < 1e-6
    )  # matching finds everything in place
    assert 0 < row["searched_independent"] <= 1 and row["apart_independent"] > 0.01
    assert row["times_trained"] == row["matched_trained"] / row["plain"]


def test_matching_permuted_copies_gives_the_plain_mean_of_the_unpermuted():
    net, rng = cost.network("6", (1, 8, 8), 10), np.random.default_rng(0)
    theta, _ = cost.trained(net, 4, 20)
    assert np.ptp(theta, axis=0).max() > 0  # they were trained, each on its own
    mixed = [
        permuted(split(row, [(6, 64), (10, 6)]), [rng.permutation(6)])
        for row in theta[1:]
    ]
    shuffled = np.stack(
        [theta[0], *map(joined, mixed)]
    )  # of equal members the first gives the order
    plain = cost.averaged(FeSEM(1), net, theta)
    assert np.allclose(plain, theta.mean(axis=0), atol=1e-6)
    assert np.allclose(cost.averaged(FeSEMMA(1), net, shuffled), plain, atol=1e-6)
    assert np.abs(cost.averaged(FeSEM(1), net, shuffled) - plain).max() > 0.01
