"""Products of dense layers for the few rows of a batch, in blocks whose sums stay in registers.

Libraries are tuned for large matrices and take two to three times as long for ten rows. Weights are (inputs + 1,
outputs), the bias in the row that meets a constant 1 in the inputs. Rows of every matrix are filled up to whole blocks.
"""

import numba
import numpy as np

from . import vectors
from .vectors import HOW, LANES, SAMPLES, VECTORS

CHUNK = 2**14  # weights walked together: they stay in the caches until every sample has met them
WIDTH = VECTORS * LANES
_add_products, _add_product = vectors.block(vectors.product, SAMPLES), vectors.block(vectors.product, 1)
_updates, _update = vectors.block(vectors.update, SAMPLES), vectors.block(vectors.update, 1)


def _types(text: str) -> list[str]:
    """Return both signatures, M for a matrix, N for a number: compiled at import, so that worker processes share it."""
    return [text.replace("M", f"{t}[:, :]").replace("N", t) for t in ("float32", "float64")]


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


@numba.njit(_types("void(M, M, M, float64, float64)"), **HOW)
def update(w, x, d, keep, scale):
    """Set ``w = keep * w + scale * x.T @ d``, for ``d`` (b, outputs)."""
    one, (n, outputs), b = w.dtype.type(1), w.shape, len(x)
    keep, scale = w.dtype.type(keep), w.dtype.type(scale)
    rows = max(1, CHUNK // outputs)
    for begin in range(0, n, rows):
        end = min(begin + rows, n)
        for o in range(0, outputs, WIDTH):
            for s in range(0, b - SAMPLES + 1, SAMPLES):
                _updates(w, x, d, s, o, begin, end, keep if s == 0 else one, scale)
            for s in range(b // SAMPLES * SAMPLES, b):
                _update(w, x, d, s, o, begin, end, keep if s == 0 else one, scale)


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
