"""Products of dense layers for the few rows of a batch, in blocks held in registers.

Libraries are tuned for large matrices and take two to three times as long for ten rows.
Weights are (inputs + 1, outputs), the bias in the row that meets a constant 1 in the
inputs. Rows of every matrix are filled up to whole blocks.
"""

import numba
import numpy as np

from . import vectors
from .vectors import HOW, LANES, SAMPLES, VECTORS

# Weights walked together: they stay in the caches until every sample has met them.
CHUNK = 2**14
WIDTH = VECTORS * LANES
ROWS = SAMPLES * VECTORS  # of weights, in a block that gives the inputs' gradient
_add_products = vectors.product(SAMPLES)
_add_product = vectors.product(1)
_add_rows = vectors.product(ROWS, 1)
_add_row = vectors.product(1, 1)
_updates = vectors.update(SAMPLES)
_update = vectors.update(1)


def _types(text: str) -> list[str]:
    """Return signatures for both types, M for a matrix, N for a number.

    With them a function is compiled at import, and worker processes share it.
    """
    return [
        text.replace("M", f"{kind}[:, :]").replace("N", kind)
        for kind in ("float32", "float64")
    ]


@numba.njit(_types("void(M, M, M, boolean)"), **HOW)
def forward(x, w, out, relu):
    """Write ``x @ w`` into ``out`` (b, outputs), and 1 into further columns of it.

    ``relu``: at least 0.
    """
    n, outputs = w.shape
    b = len(x)
    out[:, :outputs] = 0
    rows = max(1, CHUNK // outputs)
    for begin in range(0, n, rows):
        end = min(begin + rows, n)
        part = x[:, begin:end]
        weights = w[begin:end]
        for o in range(0, outputs, WIDTH):
            for s in range(0, b - SAMPLES + 1, SAMPLES):
                _add_products(out, part, weights, s, o)
            for s in range(b // SAMPLES * SAMPLES, b):
                _add_product(out, part, weights, s, o)
    if relu:
        for s in range(b):
            for o in range(outputs):
                out[s, o] = 0 if out[s, o] < 0 else out[s, o]
    out[:, outputs:] = 1


@numba.njit(_types("void(M, M, M, M, float64, float64, M)"), **HOW)
def backward(w, target, x, d, keep, scale, below):
    """Write ``d @ w.T`` into ``below``, if it has rows, then update ``target``.

    It is set to ``keep * target + scale * x.T @ d``, and may be ``w``, which is read
    once for both. ``d`` (b, outputs) is the gradient of the outputs.
    """
    one = w.dtype.type(1)
    keep = w.dtype.type(keep)
    scale = w.dtype.type(scale)
    n, outputs = w.shape
    b = len(x)
    inputs = below.shape[1] if len(below) else 0
    rows = -(-CHUNK // (outputs * ROWS)) * ROWS
    turned = np.zeros((outputs, -(-len(below) // LANES) * LANES), w.dtype)
    turned[:, : len(below)] = d[: len(below)].T
    part = np.empty((rows, turned.shape[1]), w.dtype)
    for begin in range(0, n, rows):
        end = min(begin + rows, n)

        own = w[begin : min(end, inputs)]
        part[:] = 0
        for o in range(0, len(below), LANES):
            for i in range(0, len(own) - ROWS + 1, ROWS):
                _add_rows(part, own, turned, i, o)
            for i in range(len(own) // ROWS * ROWS, len(own)):
                _add_row(part, own, turned, i, o)
        below[:, begin : begin + len(own)] = part[: len(own), : len(below)].T

        to = target[begin:end]
        seen = x[:, begin:end]
        for o in range(0, outputs, WIDTH):
            for s in range(0, b - SAMPLES + 1, SAMPLES):
                _updates(to, seen, d, s, o, keep if s == 0 else one, scale)
            for s in range(b // SAMPLES * SAMPLES, b):
                _update(to, seen, d, s, o, keep if s == 0 else one, scale)


@numba.njit(_types("void(M, int64[:], N[:], M)"), **HOW)
def errors(logits, y, weights, d):
    """Write the gradient of the cross-entropy into ``d`` (b, K).

    If there are ``weights``, each sample's is multiplied by its own.
    """
    for s in range(len(y)):
        most = logits[s].max()
        total = d.dtype.type(0)
        for k in range(logits.shape[1]):
            d[s, k] = np.exp(logits[s, k] - most)
            total += d[s, k]
        for k in range(logits.shape[1]):
            d[s, k] = d[s, k] / total - (k == y[s])
            if len(weights):
                d[s, k] *= weights[s]
