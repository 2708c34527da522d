"""Convolutions in bfloat16: the back ends agree, and nothing else is rounded.

It is refused where it is slow.
"""

import numpy as np
import pytest
import torch
from test_training import pair, start, train
from toys import refused

from fltnb import models
from fltnb.training import TrainSpec, make_engine


@pytest.fixture
def able(monkeypatch):
    """A processor that says it has bfloat16.

    Where it has not, torch emulates it, slowly and with the same numbers.
    """
    monkeypatch.setattr(
        torch.cpu,
        "get_capabilities",
        lambda: {"architecture": "x86_64", "amx_bf16": True},
    )


@pytest.mark.parametrize("backend", ["serial", "pool", "stacked"])
@pytest.mark.parametrize("name", ["lenet", "emdcfl_cnn", "mnist_cnn"])
def test_back_ends_agree_with_float32_up_to_the_rounding_of_bfloat16(
    able, backend, name
):
    fed, model = pair(name, sizes=(23, 10, 31))
    spec = {"batch_size": 5, "lr": 0.05, "momentum": 0.5}
    given = backend, [0, 1, 0], [0, 1, 2]
    full = train(fed, model, TrainSpec(**spec), *given)
    low = train(fed, model, TrainSpec(**spec, precision="bfloat16"), *given)
    moved = np.abs(full.theta - start(model, dtype="float32")[[0, 1, 0]]).max()
    assert low.theta.dtype == np.float32
    assert 0 < np.abs(low.theta - full.theta).max() < 0.1 * moved
    assert np.allclose(low.loss, full.loss, rtol=0.02)


@pytest.mark.parametrize("backend", ["serial", "pool", "stacked"])
def test_evaluation_in_bfloat16_rounds_convolutions_only(able, backend):
    fed, model = pair("lenet", sizes=(23, 10, 31))
    theta, out = start(model, dtype="float32"), {}
    for precision in ("float32", "bfloat16"):
        with make_engine(fed, model, TrainSpec(precision=precision), backend) as engine:
            out[precision] = engine.evaluate(theta, [0, 1], [0, 1], "train").loss
    params = model.unflatten(theta[0])
    x, y = (torch.from_numpy(part) for part in fed.client(0, "train"))
    for k in (
        0,
        2,
    ):  # by hand: inputs, weights and outputs of convolutions rounded, nothing else
        rounded = [part.bfloat16().float() for part in (x, params[k], params[k + 1])]
        x = (
            torch.nn.functional.conv2d(*rounded, padding=model.stages[0].linear.padding)
            .bfloat16()
            .float()
        )
        x = torch.nn.functional.max_pool2d(x, 2).relu()
    for k in (4, 6, 8):
        x = torch.nn.functional.linear(x.flatten(1), params[k], params[k + 1])
        x = x.relu() if k < 8 else x
    assert np.isclose(
        out["bfloat16"][0], float(torch.nn.functional.cross_entropy(x, y)), rtol=1e-4
    )
    assert (out["bfloat16"] != out["float32"]).all()


def test_it_is_refused_where_it_is_emulated_or_makes_no_sense(monkeypatch, able):
    fed, model = pair("mlp_plain", sizes=(5, 5))
    with pytest.warns(
        RuntimeWarning,
        match="'mlp_plain' has no convolutions: precision 'bfloat16' changes nothing",
    ):
        make_engine(fed, model, TrainSpec(precision="bfloat16"), "serial").close()
    refused(
        "'bfloat16' needs dtype 'float32', not 'float64'",
        TrainSpec,
        precision="bfloat16",
        dtype="float64",
    )
    refused(
        "Unknown precision 'half': choose one of float32, bfloat16",
        TrainSpec,
        precision="half",
    )
    monkeypatch.setattr(
        torch.cpu,
        "get_capabilities",
        lambda: {"architecture": "x86_64", "cpu_name": "Old One"},
    )
    net, spec = (
        models.make("lenet", fed.input_shape, 4),
        TrainSpec(precision="bfloat16"),
    )
    refused(
        r"\(Old One\) has no bfloat16 and would emulate it slowly",
        make_engine,
        fed,
        net,
        spec,
    )
