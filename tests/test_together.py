"""Several runs train in one stack, and each gives what it gives alone."""

import numpy as np
import pytest
from test_step import CASES
from test_training import FLAVOURS, RAGGED, make_fed, start

from fltnb import models
from fltnb.training import (
    Asked,
    TrainSpec,
    make_engine,
    make_engines,
    stacks,
    train_together,
)

# Of every run: samples of its clients, seed, learning rate, and who takes part.
RUNS = (
    (RAGGED[:6], 3, 0.05, [3, 0, 2, 4, 1, 5]),
    ((12, 31, 2), 4, 0.02, [2, 1]),
    (RAGGED[3:8], 5, 0.1, [0, 4, 2]),
)


def runs_of(name, shape, flavour, **options):
    """Federations, networks and local training of three runs."""
    feds = [make_fed(sizes, shape, seed=seed) for sizes, seed, *_ in RUNS]
    nets = [models.make(name, fed.input_shape, 4) for fed in feds]
    options = {"dtype": "float64", "local_epochs": 2} | FLAVOURS[flavour] | options
    specs = [TrainSpec(seed=seed, lr=lr, **options) for _, seed, lr, _ in RUNS]
    return feds, nets, specs


def asked_of(k, engine, round=7):
    """What run k asks its engine for; the first one weighs its samples."""
    clients = RUNS[k][3]
    theta = start(engine.model, dtype=engine.spec.dtype)
    rows = [j % 2 for j in range(len(clients))]
    weights = None
    if k == 0:
        weights = [np.linspace(0.5, 1.5, len(engine.fed.train[i])) for i in clients]
    return Asked(engine, (theta, rows, clients, round + k, weights))


def one_by_one(backend, feds, nets, specs):
    found = []
    for k, run in enumerate(zip(feds, nets, specs, strict=True)):
        with make_engine(*run, backend, "cpu") as engine:
            found.append(engine.train(*asked_of(k, engine).given))
    return found


def together(feds, nets, specs):
    engines = make_engines(list(zip(feds, nets, specs, strict=True)), "stacked", "cpu")
    assert len({id(engine.stacks) for engine in engines}) == 1
    return train_together([asked_of(k, one) for k, one in enumerate(engines)])


def gap(found, wanted):
    """The largest difference of models and losses."""
    pairs = list(zip(found, wanted, strict=True))
    models = [np.abs(one.theta - other.theta).max() for one, other in pairs]
    losses = [np.abs(one.loss - other.loss).max() for one, other in pairs]
    return max(models + losses)


@pytest.mark.parametrize(("name", "shape", "flavour"), CASES)
def test_runs_that_train_together_train_as_alone(name, shape, flavour):
    runs = runs_of(name, shape, flavour)
    assert len({stacks.alike(*run) for run in zip(*runs, strict=True)}) == 1
    found = together(*runs)
    assert gap(found, one_by_one("stacked", *runs)) < 1e-13
    assert gap(found, one_by_one("serial", *runs)) < 1e-10


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_learning_rates_of_their_own_whatever_the_rule_of_the_step(flavour):
    runs = runs_of("mlp", (3, 3), flavour)
    assert gap(together(*runs), one_by_one("serial", *runs)) < 1e-10


def test_memory_for_two_clients_makes_no_difference(monkeypatch):
    runs = runs_of("mlp", (4, 4), "everything")
    whole = together(*runs)
    monkeypatch.setattr(stacks.Training, "chunk", lambda training: 2)
    assert gap(together(*runs), whole) < 1e-13
