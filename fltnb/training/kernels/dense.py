"""Products of dense layers for the few rows of a batch, in blocks held in registers.

Libraries are tuned for large matrices and take two to three times as long for ten rows.
Weights are (inputs + 1, outputs), with the bias in the row of the constant input 1.
Rows of every matrix are padded to whole blocks.

With 2 inputs and 2 outputs, a sample x = (3, 4) and this matrix w the layer computes::

    w = [[1, 0],    of input 0         (3, 4, 1) @ w = (3 + 8 + 10, 0 + 4 + 20)
         [2, 1],    of input 1                       = (21, 24)
         [10, 20]]  the bias

Blocks and chunks decide which numbers are in registers and caches, not the order of a
sum: an output is summed over the inputs from first to last, a weight's gradient over
the samples and an input's over the outputs in the same way. So a result has the same
bits for any CHUNK and number of registers, and an output for a sample alone or among
others.
"""

import numba
import numpy as np

from . import vectors
from .vectors import HOW, LANES, SAMPLES, UPDATED, VECTORS

# Weights processed together: they stay in the caches for all samples. As float32 they
# take 64 KiB.
CHUNK = 2**14
WIDTH = VECTORS * LANES  # outputs in a block
ROWS = 10  # of weights, beside one vector of samples

# Blocks of SAMPLES samples, and of fewer for what is left of a batch: for outputs, and
# for the weights' gradient.
_add_products = vectors.product(SAMPLES)
_add_products_4 = vectors.product(4)
_add_products_2 = vectors.product(2)
_add_products_1 = vectors.product(1)
_updates = vectors.update(UPDATED)
_updates_4 = vectors.update(4, apart=True)
_updates_2 = vectors.update(2, apart=True)
_updates_1 = vectors.update(1)
# For the inputs' gradient a block's rows are weights, and its columns samples: WIDTH of
# them, as in `_add_products`, or LANES.
_add_rows = vectors.product(ROWS, 1)
_add_row = vectors.product(1, 1)


def _types(text: str) -> list[str]:
    """Return signatures for both types, M for a matrix, N for a number.

    With them a function is compiled at import, and worker processes share it. Of
    "void(M, N)" comes "void(float32[:, :], float32)", and the same with float64.
    """
    signatures = []
    for kind in ("float32", "float64"):
        with_matrices = text.replace("M", f"{kind}[:, :]")
        signatures.append(with_matrices.replace("N", kind))
    return signatures


@numba.njit(**HOW)
def _add_outputs(out, x, w, o):
    """Add ``x @ w`` to ``out``, in the WIDTH columns from ``o`` on.

    Of 17 samples with blocks of ten, first come ten, then 4, then 2, then the last one.
    """
    b = len(x)
    s = 0
    while s + SAMPLES <= b:
        _add_products(out, x, w, s, o)
        s += SAMPLES
    while s + 4 <= b:
        _add_products_4(out, x, w, s, o)
        s += 4
    if s + 2 <= b:
        _add_products_2(out, x, w, s, o)
        s += 2
    if s < b:
        _add_products_1(out, x, w, s, o)


@numba.njit(**HOW)
def _add_inputs(part, w, turned, samples):
    """Add ``w @ turned`` to ``part``, in the first ``samples`` columns.

    These are whole vectors, so there are LANES, 2 LANES, ... of them. With LANES = 16
    and 48 samples, first come 32 columns, then 16.
    """
    rows = len(w)
    o = 0
    while o + WIDTH <= samples:
        for i in range(0, rows - SAMPLES + 1, SAMPLES):
            _add_products(part, w, turned, i, o)
        for i in range(rows // SAMPLES * SAMPLES, rows):
            _add_products_1(part, w, turned, i, o)
        o += WIDTH
    if o < samples:
        for i in range(0, rows - ROWS + 1, ROWS):
            _add_rows(part, w, turned, i, o)
        for i in range(rows // ROWS * ROWS, rows):
            _add_row(part, w, turned, i, o)


@numba.njit(**HOW)
def _update(target, x, d, o, keep, scale):
    """Write ``keep * target + scale * x.T @ d``, in the WIDTH columns from ``o`` on.

    The first block of samples also multiplies what was there by ``keep``; later blocks
    only add. Of 12 samples first come two blocks of 5, then one of 2, whose products
    are rounded apart: all results here were computed with these roundings.
    """
    b = len(x)
    s = 0
    while s + UPDATED <= b:
        _updates(target, x, d, s, o, keep, scale)
        keep = target.dtype.type(1)
        s += UPDATED
    if s + 4 <= b:
        _updates_4(target, x, d, s, o, keep, scale)
        keep = target.dtype.type(1)
        s += 4
    if s + 2 <= b:
        _updates_2(target, x, d, s, o, keep, scale)
        keep = target.dtype.type(1)
        s += 2
    if s < b:
        _updates_1(target, x, d, s, o, keep, scale)


@numba.njit(_types("void(M, M, M, boolean)"), **HOW)
def forward(x, w, out, relu):
    """Write ``x @ w`` into ``out``.

    Parameters
    ----------
    x : array, shape (b, inputs + 1)
        Inputs, the last of them 1.
    w : array, shape (inputs + 1, outputs)
    out : array, shape (b, outputs) or more columns
        Further columns are set to 1: the next layer's constant.
    relu : bool
        Whether outputs below 0 become 0.
    """
    n, outputs = w.shape
    out[:, :outputs] = 0
    rows = max(1, CHUNK // outputs)  # of weights in a chunk
    # All samples meet a chunk of weights before the next chunk is read: of 785 x 200
    # weights 81 rows at a time.
    for begin in range(0, n, rows):
        end = min(begin + rows, n)
        part = x[:, begin:end]
        weights = w[begin:end]
        for o in range(0, outputs, WIDTH):
            _add_outputs(out, part, weights, o)

    # A NaN is not below 0 and passes, so a training that diverged shows it.
    if relu:
        for s in range(len(x)):
            for o in range(outputs):
                out[s, o] = 0 if out[s, o] < 0 else out[s, o]
    out[:, outputs:] = 1


@numba.njit(_types("void(M, M, M, M, float64, float64, M)"), **HOW)
def backward(w, target, x, d, keep, scale, below):
    """Take the gradient back through a layer, and update ``target``.

    This computes ``below = d @ w.T`` and ``target = keep * target + scale * x.T @ d``.
    It is SGD's step without momentum if the target is the weights, ``keep`` is 1, and
    ``scale`` is minus the learning rate over b. The gradient of the weights is never
    stored.

    A chunk of weights is read once for both products.

    Parameters
    ----------
    w, target : arrays, shape (inputs + 1, outputs)
        Weights, and what is updated: the weights or their momentum. They may be one
        array, which is read once for both.
    x : array, shape (b, inputs + 1)
        Inputs of the layer.
    d : array, shape (b, outputs)
        Gradient of the outputs.
    keep, scale : float
    below : array, shape (b, inputs)
        Gradient of the inputs. With no rows, (0, inputs), it is not computed.
    """
    keep = w.dtype.type(keep)
    scale = w.dtype.type(scale)
    n, outputs = w.shape
    inputs = below.shape[1] if len(below) else 0

    # The gradient of the inputs is computed with samples as columns, filled up to whole
    # vectors, so that weights are read row by row: below.T = w @ d.T. Ten samples take
    # 16 columns. Where no gradient is wanted there are no columns, and nothing is done.
    samples = -(-len(below) // LANES) * LANES
    turned = np.zeros((outputs, samples), w.dtype)
    turned[:, : len(below)] = d[: len(below)].T
    # Whole blocks. The target has as many numbers as the weights, in the same caches.
    rows = -(-CHUNK // (2 * outputs * ROWS)) * ROWS
    part = np.empty((rows, samples), w.dtype)  # of below.T, the chunk's rows

    for begin in range(0, n, rows):
        end = min(begin + rows, n)

        # First the inputs' gradient: `target` may be these weights, which the update
        # changes. The bias is left out: its input is the constant 1.
        weights = w[begin : min(end, inputs)]
        part[:] = 0
        _add_inputs(part, weights, turned, samples)
        below[:, begin : begin + len(weights)] = part[: len(weights), : len(below)].T

        # Then the update.
        updated = target[begin:end]
        seen = x[:, begin:end]
        for o in range(0, outputs, WIDTH):
            _update(updated, seen, d, o, keep, scale)


@numba.njit(_types("void(M, int64[:], N[:], M)"), **HOW)
def errors(logits, y, weights, d):
    """Write the gradient of the cross-entropy: softmax, minus 1 for the true class.

    With logits of probabilities 0.2, 0.5 and 0.3 and the true class 1 it is 0.2, -0.5
    and 0.3.

    Parameters
    ----------
    logits : array, shape (b, K)
    y : array of int64, shape (b,)
        True classes.
    weights : array, shape (b,) or (0,)
        Factors on the losses of the samples, if there are any.
    d : array, shape (b, K)
        Gradient, filled; a sum over samples, not their mean.
    """
    for s in range(len(y)):
        most = logits[s].max()  # without it large logits overflow
        total = d.dtype.type(0)
        for k in range(logits.shape[1]):
            d[s, k] = np.exp(logits[s, k] - most)
            total += d[s, k]
        for k in range(logits.shape[1]):
            probability = d[s, k] / total
            d[s, k] = probability - (k == y[s])
            if len(weights):
                d[s, k] *= weights[s]
