"""Calls of ``train`` that do otherwise than the run: epochs, anchors, frozen layers."""

from dataclasses import replace

import numpy as np
import pytest
from test_own import Still, pictures
from test_training import every_backend, pair, start
from toys import refused

from fltnb import models
from fltnb.training import TrainSpec, Variation, make_engine

CLIENTS, ROWS = [3, 0, 2, 4], [0, 1, 0, 1]
SPEC = TrainSpec(local_epochs=2, lr=0.05, seed=3, dtype="float64", weight_decay=0.01)
SHAPES = {"mlp_plain": (8, 8), "lenet": (8, 8, 3), "cnn_small": (8, 8, 3)}
SHAPES |= {"emdcfl_cnn": (7, 10), "mnist_cnn": (8, 8)}


def federation(name):
    """Five ragged clients, and a network."""
    return pair(name, (23, 10, 31, 7, 40), SHAPES[name])


def anchors(model):
    """A model for each of the clients, none of them a start."""
    return np.stack([model.init(9, j) for j in range(len(CLIENTS))]).astype(float)


def trained(name, backend, *variations, spec=SPEC):
    """Models after each of some calls of one engine."""
    fed, model = federation(name)
    with make_engine(fed, model, spec, backend, n_workers=1) as engine:
        found = [
            engine.train(start(model), ROWS, CLIENTS, 7, how=how) for how in variations
        ]
    return [one.theta for one in found]


def variations(model):
    """One of each kind."""
    return [
        Variation(epochs=3),
        Variation(frozen="head"),
        Variation(epochs=1, frozen="body"),
        Variation(anchors=anchors(model), pull=0.7),
        Variation(anchors=anchors(model), pull=0.7, frozen="head", epochs=1),
    ]


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("name", SHAPES)
def test_back_ends_agree_on_variations(name, momentum):
    _, model = federation(name)
    spec = replace(SPEC, momentum=momentum, proximal=0.1)
    oracle = trained(name, "serial", *variations(model), spec=spec)
    for backend in ("pool", "stacked"):
        found = trained(name, backend, *variations(model), spec=spec)
        for mine, other in zip(found, oracle, strict=True):
            assert np.abs(mine - other).max() < 1e-10


@every_backend
@pytest.mark.parametrize("name", ["mlp_plain", "lenet"])
def test_variations_are_what_other_settings_are_and_leave_no_trace(name, backend):
    _, model = federation(name)
    own = start(model)[ROWS]
    usual, longer, pulled, free, again = trained(
        name,
        backend,
        Variation(),
        Variation(epochs=3),
        Variation(anchors=own, pull=0.2),
        Variation(anchors=own),
        Variation(),
    )
    assert np.array_equal(usual, again) and np.array_equal(usual, free)
    other = replace(SPEC, local_epochs=3)
    assert np.array_equal(longer, trained(name, backend, Variation(), spec=other)[0])
    other = replace(SPEC, proximal=0.2)
    assert np.array_equal(pulled, trained(name, backend, Variation(), spec=other)[0])
    # in a run with a pull of its own, a call without one is that of another run
    free = Variation(anchors=own)
    assert np.array_equal(usual, trained(name, backend, free, spec=other)[0])


@every_backend
@pytest.mark.parametrize("name", ["mlp_plain", "emdcfl_cnn"])
def test_frozen_layers_stay_and_all_others_move(name, backend):
    _, model = federation(name)
    begun = start(model)[ROWS]
    head = np.zeros(model.n_parameters, dtype=bool)
    head[model.head] = True
    spec = replace(SPEC, momentum=0.5, proximal=0.1)
    kinds = Variation(frozen="head"), Variation(frozen="body")
    without_head, without_body = trained(name, backend, *kinds, spec=spec)
    assert np.array_equal(without_head[:, head], begun[:, head])
    assert np.array_equal(without_body[:, ~head], begun[:, ~head])
    assert (without_head[:, ~head] != begun[:, ~head]).mean() > 0.5
    assert (without_body[:, head] != begun[:, head]).mean() > 0.9


def test_own_networks_stacked_or_not_take_variations_too():
    fed = pictures(4, dtype=np.float32)
    net = models.shaped(Still, fed)
    theta = np.stack([net.init(0), net.init(1)]).astype(float)
    done = {}
    for backend in ("serial", "stacked"):
        with make_engine(fed, net, SPEC, backend, "cpu") as engine:
            assert engine.backend == backend
            done[backend] = [
                engine.train(theta, ROWS, [3, 0, 2, 1], 7, how=how).theta
                for how in variations(net)
            ]
    for one, other in zip(done["serial"], done["stacked"], strict=True):
        assert np.abs(one - other).max() < 1e-12
    frozen = done["serial"][1]
    assert np.array_equal(frozen[:, net.head], theta[ROWS][:, net.head])


def test_workers_take_variations_too():
    fed, model = federation("mlp_plain")
    how = Variation(anchors=anchors(model), pull=0.7, epochs=1)
    (one,) = trained("mlp_plain", "pool", how)
    with make_engine(fed, model, SPEC, "pool", n_workers=2) as engine:
        two = engine.train(start(model), ROWS, CLIENTS, 7, how=how).theta
    assert np.array_equal(one, two)


def test_a_step_to_an_anchor_worked_by_hand():
    """v = 0 with gradient g and anchor w: v - lr (g + mu (v - w))."""
    _, model = federation("mlp_plain")
    spec = replace(SPEC, lr=0.1, batch_size=1000, weight_decay=0.0)
    once, far = Variation(epochs=1), anchors(model)
    pulled = replace(once, anchors=far, pull=1.0)
    plain, moved = trained("mlp_plain", "pool", once, pulled, spec=spec)
    begun = start(model)[ROWS]
    assert np.allclose(moved, plain - 0.1 * (begun - far), rtol=0, atol=1e-12)


def test_variations_that_cannot_work_are_refused():
    refused("needs anchors", Variation, pull=0.1)
    refused("epochs", Variation, epochs=0)
    refused("frozen", Variation, frozen="feet")
    fed, model = federation("mlp_plain")
    with make_engine(fed, model, SPEC, "serial") as engine:
        few = Variation(anchors=anchors(model)[:2], pull=1.0)
        refused(
            "a model for each requested client",
            engine.train,
            *(start(model), ROWS, CLIENTS, 7),
            how=few,
        )
