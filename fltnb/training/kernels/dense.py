"""Products of dense layers for the few rows of a batch, in blocks whose sums stay in registers.

Libraries are tuned for large matrices and take two to three times as long for ten rows. Weights are (inputs + 1,
outputs), the bias in the row that meets a constant 1 in the inputs. Rows of every matrix are filled up to whole blocks.
"""

import numba
import numpy as np

from . import vectors
from .vectors import HOW, LANES, SAMPLES, VECTORS

CHUNK = (
    2**14
)  # weights walked together: they stay in the caches until every sample has met them
WIDTH = VECTORS * LANES
ROWS = SAMPLES * VECTORS  # of weights, in a block that gives the gradient of the inputs
_add_products, _add_product = (
    vectors.block(vectors.product, SAMPLES),
    vectors.block(vectors.product, 1),
)
_updates, _update = (
    vectors.block(vectors.update, SAMPLES),
    vectors.block(vectors.update, 1),
)
_add_rows, _add_row = (
    vectors.block(vectors.product, ROWS, 1),
    vectors.block(vectors.product, 1, 1),
)


def _types(text: str) -> list[str]:
    """Return both signatures, M for a matrix, N for a number: compiled at import, so that worker processes share it."""
    return [
        text.replace("M", f"{t}[:, :]").replace("N", t) for t in ("float32", "float64")
    ]


@numba.njit(_types("void(M, M, M, boolean)"), **HOW)
def forward(x, w, out, relu):
    """Write ``x @ w``, at least 0 if ``relu``, into ``out`` (b, outputs), and 1 into further columns of it."""
    one, (n, outputs), b = out.dtype.type(1), w.shape, len(x)
    out[:, :outputs] = 0
    rows = max(1, CHUNK // outputs)
    for begin in range(0, n, rows):
        end = min(begin + rows, n)
        for o in range(0, outputs, WIDTH):
            for s in range(0, b - SAMPLES + 1, SAMPLES):
                _add_products(out, x, w, s, o, begin, end, one, one)
            for s in range(b // SAMPLES * SAMPLES, b):
                _add_product(out, x, w, s, o, begin, end, one, one)
    if relu:
        for s in range(b):
            for o in range(outputs):
                out[s, o] = 0 if out[s, o] < 0 else out[s, o]
    out[:, outputs:] = 1


@numba.njit(_types("void(M, M, M, M, float64, float64, M)"), **HOW)
def backward(w, target, x, d, keep, scale, below):
    """Write ``d @ w.T`` into ``below``, if it has rows, then set ``target = keep * target + scale * x.T @ d``.

    ``d`` (b, outputs) is the gradient of the outputs; ``target`` may be ``w``, which is read once for both.
    """
    one, (n, outputs), b = w.dtype.type(1), w.shape, len(x)
    keep, scale = w.dtype.type(keep), w.dtype.type(scale)
    rows, inputs = (
        -(-CHUNK // (outputs * ROWS)) * ROWS,
        below.shape[1] if len(below) else 0,
    )
    turned = np.zeros((outputs, -(-len(below) // LANES) * LANES), w.dtype)
    turned[:, : len(below)] = d[: len(below)].T
    part = np.empty((rows, turned.shape[1]), w.dtype)
    for begin in range(0, n, rows):
        end, own = min(begin + rows, n), w[begin : min(begin + rows, inputs)]
        part[:] = 0
        for o in range(0, len(below), LANES):
            for i in range(0, len(own) - ROWS + 1, ROWS):
                _add_rows(part, own, turned, i, o, 0, outputs, one, one)
            for i in range(len(own) // ROWS * ROWS, len(own)):
                _add_row(part, own, turned, i, o, 0, outputs, one, one)
        below[:, begin : begin + len(own)] = part[: len(own), : len(below)].T
        for o in range(0, outputs, WIDTH):
            for s in range(0, b - SAMPLES + 1, SAMPLES):
                _updates(target, x, d, s, o, begin, end, keep if s == 0 else one, scale)
            for s in range(b // SAMPLES * SAMPLES, b):
                _update(target, x, d, s, o, begin, end, keep if s == 0 else one, scale)


@numba.njit(_types("void(M, int64[:], N[:], M)"), **HOW)
def errors(logits, y, weights, d):
    """Write the gradient of the cross-entropy into ``d`` (b, K), each sample's times its weight, if any are given."""
    for s in range(len(y)):
        most, total = logits[s].max(), d.dtype.type(0)
        for k in range(logits.shape[1]):
            d[s, k] = np.exp(logits[s, k] - most)
            total += d[s, k]
        for k in range(logits.shape[1]):
            d[s, k] = d[s, k] / total - (k == y[s])
            if len(weights):
                d[s, k] *= weights[s]
