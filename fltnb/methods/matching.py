"""Neuron matching: the order of a layer's neurons means nothing, so bring models into one order before averaging.

A network computes the same with its hidden neurons in any order, if the next layer's inputs move along. FedMA (Wang et
al., arXiv 2002.06440), to which FeSEM (arXiv 2108.08647, Section 5.1) points, lets layers grow under a nonparametric
prior, and sends and trains the layers above again after each. Here layers keep their width and whole models are sent:
neurons are matched one to one by the squared distance of the weights and bias into them, FedMA's for equal variances.

Models are lists of layers, each a pair of arrays: weights (outputs, inputs, ...) and biases (outputs,). A convolution's
channels are its neurons; a dense layer after one sees ``inputs / channels`` numbers of each channel, in that order.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

Layers = list[tuple[np.ndarray, np.ndarray]]


def split(theta: np.ndarray, shapes: Sequence[tuple[int, int]]) -> Layers:
    """Return the layers of a flat model (P,) as views; ``shapes`` has each layer's (outputs, inputs per output)."""
    ends = np.cumsum(
        [size for outputs, inputs in shapes for size in (outputs * inputs, outputs)]
    )
    parts = np.split(theta, ends[:-1])
    return [
        (weight.reshape(shape), bias)
        for weight, bias, shape in zip(parts[::2], parts[1::2], shapes, strict=True)
    ]


def joined(layers: Layers) -> np.ndarray:
    """Return layers as one flat model: the inverse of :func:`split`."""
    return np.concatenate([part.ravel() for layer in layers for part in layer])


def assignment(cost: np.ndarray) -> np.ndarray:
    """Return for every row (n,) the column that it gets in the one-to-one assignment of least total cost (n, n)."""
    best = cost.argmin(axis=1)
    if len(np.unique(best)) == len(
        cost
    ):  # everybody's first choice, and no two the same: nothing can be better
        return best
    return linear_sum_assignment(cost)[1]


def permuted(layers: Layers, orders: Sequence[np.ndarray]) -> Layers:
    """Reorder the neurons of all layers but the last: new neuron g of layer l is the old ``orders[l][g]``."""
    out, before = [], None
    for position, (weight, bias) in enumerate(layers):
        weight = _inputs_reordered(weight, before)
        before = orders[position] if position < len(layers) - 1 else None
        out.append((weight, bias) if before is None else (weight[before], bias[before]))
    return out


def match(layers: Layers, reference: Layers) -> list[np.ndarray]:
    """Find the orders of a model's hidden neurons, for :func:`permuted`, in which they fit another model best.

    The Hungarian method assigns neurons, layer by layer from the input, by what leads into each.
    """
    orders, before = [], None
    for (weight, bias), (target, shift) in zip(
        layers[:-1], reference[:-1], strict=True
    ):
        pairs = (_inputs_reordered(weight, before), bias), (target, shift)
        incoming, wanted = (
            np.hstack([w.reshape(len(w), -1), b[:, None]]) for w, b in pairs
        )
        # squared distances, less a number per row, on which no assignment depends
        before = assignment(
            (incoming.astype(np.float64) ** 2).sum(axis=1) - 2.0 * (wanted @ incoming.T)
        )
        orders.append(before)
    return orders


def matched_mean(
    models: Sequence[Layers], weights: Sequence[float], reference: int | None = None
) -> Layers:
    """Average n models of equal layers, neuron by matched neuron, with n weights of at least 0, made to sum to 1.

    All are brought into the order of the model at ``reference``, by default the one with the largest weight.
    """
    weights = np.asarray(weights, dtype=np.float64)
    first = models[int(weights.argmax()) if reference is None else reference]
    sums = [tuple(np.zeros(part.shape) for part in layer) for layer in first]
    for layers, share in zip(models, weights / weights.sum(), strict=True):
        same = layers if layers is first else permuted(layers, match(layers, first))
        for layer, total in zip(same, sums, strict=True):
            for part, summed in zip(layer, total, strict=True):
                summed += share * part.astype(np.float64)
    return [tuple(part.astype(first[0][0].dtype) for part in total) for total in sums]


def _inputs_reordered(weight: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    """Reorder a layer's inputs along with the neurons they come from; each gives an equal run of numbers."""
    if order is None:
        return weight
    return weight.reshape(len(weight), len(order), -1)[:, order].reshape(weight.shape)
