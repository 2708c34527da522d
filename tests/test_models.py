import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from toys import refused

from fltnb import models


@pytest.mark.parametrize(
    ("name", "shape", "classes", "published"),
    [
        ("mlp", (1, 28, 28), 10, 159_010),
        ("mlp", (1, 28, 28), 47, 166_447),
        ("mlp", (1, 28, 28), 62, 169_462),  # FLT, Table 11
        ("leaf_cnn", (1, 28, 28), 62, 6_603_710),
        ("leaf_cnn", (1, 28, 28), 47, 6_572_975),
        ("lenet", (3, 32, 32), 10, 62_006),
        ("mnist_cnn", (1, 28, 28), 10, 21_840),
        # no paper prints these: 64*9 + 64, 128*64*9 + 128, 128*(128*14*14) + 128 and
        # 10*128 + 10
        ("emdcfl_cnn", (1, 28, 28), 10, 640 + 73_856 + 3_211_392 + 1_290),
        ("emdcfl_cnn", (1, 8, 8), 10, 640 + 73_856 + 128 * (128 * 16 + 1) + 1_290),
        ("cnn_small", (1, 28, 28), 10, 80 + 1_168 + 128 * (16 * 25 + 1) + 1_290),
        ("cnn_small", (3, 32, 32), 10, 224 + 1_168 + 128 * (16 * 36 + 1) + 1_290),
    ],
)
def test_published_sizes(name, shape, classes, published):
    model = models.make(name, shape, classes)
    assert model.n_parameters == published
    assert sum(p.numel() for p in model.build().parameters()) == published


@pytest.mark.parametrize(
    "shape", [(1, 8, 8), (3, 8, 8), (1, 28, 28), (3, 32, 32), (2, 9, 31), (1, 6, 6)]
)
@pytest.mark.parametrize("name", models.NAMES)
def test_module_and_functional_forward_agree(name, shape):
    model = models.make(name, shape, 5)
    theta = model.init(1).astype(np.float64)
    module = model.build().double()
    assert [tuple(p.shape) for p in module.parameters()] == [
        shape for _, shape in model.shapes
    ]
    nn.utils.vector_to_parameters(torch.from_numpy(theta), module.parameters())
    x = torch.from_numpy(np.random.default_rng(0).random((3, *shape)))
    torch.testing.assert_close(
        model.predict(model.unflatten(theta), x), module.eval()(x), rtol=0, atol=1e-12
    )


def test_layers_and_stages_are_published():
    kinds = [
        type(layer).__name__ for layer in models.make("mlp", (1, 28, 28), 10).layers
    ]
    assert kinds == ["Flatten", "Dense", "Dropout", "ReLU", "Dense"]
    kinds = [
        type(layer).__name__
        for layer in models.make("mnist_cnn", (1, 28, 28), 10).layers
    ]
    assert kinds[3:7] == ["Conv", "Dropout", "MaxPool", "ReLU"]
    assert models.make("mnist_cnn", (1, 28, 28), 10).dropout == [
        ((20, 1, 1), 0.5),
        ((50,), 0.5),
    ]
    found = [
        (stage.pool, stage.relu, stage.dropout)
        for stage in models.make("mnist_cnn", (1, 28, 28), 10).stages
    ]
    assert found == [
        (True, True, None),
        (True, True, 0),
        (False, True, 1),
        (False, False, None),
    ]


def test_initial_values_follow_torch():
    model = models.make("lenet", (3, 32, 32), 10)
    parts = [part.numpy() for part in model.unflatten(model.init(0))]
    for layer in model.build():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            bound = 1 / np.sqrt(nn.init._calculate_fan_in_and_fan_out(layer.weight)[0])
            weight, bias = parts.pop(0), parts.pop(0)
            assert np.abs(weight).max() <= bound and np.abs(bias).max() <= bound
            assert np.abs(weight).max() > 0.97 * bound
            assert abs(weight.std() - bound / np.sqrt(3)) < 0.1 * bound
            assert abs(float(layer.weight.detach().std()) - weight.std()) < 0.1 * bound
    assert not parts
    model = models.make("mlp", (1, 8, 8), 10)
    before = torch.get_rng_state()
    a, b = model.init(3), model.init(3, 1)
    model.build()
    assert torch.equal(torch.get_rng_state(), before)
    assert a.dtype == np.float32 and a.shape == (model.n_parameters,)
    assert (
        np.array_equal(a, model.init(3))
        and not np.array_equal(a, b)
        and not np.array_equal(a, model.init(4))
    )


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(6, 40),
    st.integers(6, 40),
    st.integers(1, 12),
    st.sampled_from(models.NAMES),
)
def test_any_image_size_gives_logits(c, h, w, classes, name):
    if name == "leaf_cnn":
        h, w = min(h, 12), min(w, 12)  # a large first dense layer takes long
    model = models.make(name, (c, h, w), classes)
    with torch.inference_mode():
        logits = model.predict(model.unflatten(model.init(0)), torch.ones(2, c, h, w))
    assert logits.shape == (2, classes) and model.activations[-1] == (classes,)


def test_dropout_and_unflatten_by_hand_and_bad_shapes():
    assert (
        models.make("mlp", (1, 1, 20), 3).n_parameters == 20 * 200 + 200 + 3 * 200 + 3
    )
    least = {name: 4 for name in ("leaf_cnn", "lenet", "mnist_cnn", "cnn_small")} | {
        "emdcfl_cnn": 2
    }
    for name, side in least.items():
        assert models.make(name, (1, side, side), 3).activations[-1] == (3,)
        refused(f"at least {side} x {side}", models.make, name, (1, 1, 20), 3)
    refused("at least one class", models.make, "mlp", (1, 28, 28), 0)
    drop = models.KeyedDropout(0.75)
    drop.keep = torch.tensor([[True, False, True]])
    x = torch.tensor([[1.0, 2.0, -3.0]])
    assert drop(x).tolist() == [[4.0, 0.0, -12.0]]
    assert drop.eval()(x).tolist() == x.tolist()
    model = models.make("mlp", (1, 8, 8), 3)
    theta = torch.zeros(model.n_parameters)
    model.unflatten(theta)[0][0, 0] = 7
    assert theta[0] == 7
