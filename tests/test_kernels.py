"""Products of dense layers: blocks of samples of every size give the plain sums."""

import numpy as np
import pytest
from llvmlite import binding

from fltnb.training.kernels import dense
from fltnb.training.kernels.vectors import padded

INPUTS, OUTPUTS = 45, 37  # no whole blocks


def filled(values, columns):
    """Return the values in rows of whole blocks, as views of their first columns."""
    whole = np.zeros((len(values), padded(columns)), values.dtype)
    whole[:, : values.shape[1]] = values
    return whole[:, :columns]


def layer(b, dtype):
    rng = np.random.default_rng(b)
    x = np.ones((b, INPUTS + 1), dtype)
    x[:, :-1] = rng.normal(size=(b, INPUTS))
    w = rng.normal(size=(INPUTS + 1, OUTPUTS)).astype(dtype)
    d = rng.normal(size=(b, OUTPUTS)).astype(dtype)
    return x, filled(w, OUTPUTS), filled(d, OUTPUTS)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("b", [*range(1, 25), 32, 64])
def test_blocks_of_samples_give_the_plain_sums(b, dtype):
    x, w, d = layer(b, dtype)
    near = 1e-5 if dtype is np.float32 else 1e-13
    out = filled(np.zeros((b, OUTPUTS), dtype), OUTPUTS + 1)
    dense.forward(x, w, out, False)
    exact = x.astype(float) @ w
    np.testing.assert_allclose(out[:, :-1], exact, rtol=near, atol=10 * near)
    assert (out[:, -1] == 1).all()

    below = np.zeros((b, INPUTS), dtype)
    target = filled(np.ones_like(w), OUTPUTS)
    dense.backward(w, target, x, d, 0.5, -0.25, below)
    wanted = 0.5 - 0.25 * (x.astype(float).T @ d)
    np.testing.assert_allclose(target, wanted, rtol=near, atol=10 * near)
    np.testing.assert_allclose(below, (d @ w.T)[:, :-1], rtol=near, atol=20 * near)


@pytest.mark.parametrize("b", [2, 3, 5, 9, 10, 17, 34])
def test_an_output_is_the_same_alone_and_among_others(b):
    x, w, _ = layer(b, np.float32)
    together = filled(np.zeros((b, OUTPUTS), np.float32), OUTPUTS + 1)
    dense.forward(x, w, together, True)
    for s in range(b):
        alone = filled(np.zeros((1, OUTPUTS), np.float32), OUTPUTS + 1)
        dense.forward(x[s : s + 1], w, alone, True)
        np.testing.assert_array_equal(alone[0], together[s])


@pytest.mark.skipif(
    not binding.get_host_cpu_features().get("fma", True),
    reason="this processor does not multiply and add in one instruction",
)
def test_a_step_has_the_same_last_digits_on_all_processors():
    """The first of five samples, and those after whole fives, are rounded apart."""
    x, w, d = layer(13, np.float32)
    target = filled(w.copy(), OUTPUTS)
    dense.backward(w, target, x, d, 0.9, -0.05, np.zeros((0, INPUTS), np.float32))
    total = w.astype(float)  # a float32 product is exact in float64
    for s in range(13):
        keep = float(np.float32(0.9)) if s == 0 else 1.0
        row = np.float32(-0.05) * d[s]
        product = np.multiply.outer(x[s].astype(float), row.astype(float))
        if s % 5 == 0 or s >= 10:
            product = product.astype(np.float32)
        total = (keep * total + product).astype(np.float32).astype(float)
    off = np.mean(total != target)
    assert off < 0.01  # float64 holds a sum of the two rarely not exactly
