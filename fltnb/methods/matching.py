"""Neuron matching: bring models into a common order of neurons before averaging.

A network computes the same function with its hidden neurons in any order, if the next
layer's inputs are reordered too. FedMA (Wang et al., arXiv 2002.06440), to which FeSEM
(arXiv 2108.08647, Section 5.1) refers, lets layers grow under a nonparametric prior,
and after each layer sends and trains the layers above again. Here layers keep their
width and whole models are sent. Neurons are matched one to one by the squared distance
of their incoming weights and bias, which is FedMA's distance for equal variances.

Models are lists of layers, each a pair of arrays: weights (outputs, inputs, ...) and
biases (outputs,). A convolution's channels are its neurons; a dense layer after one
gets ``inputs / channels`` numbers of each channel, in that order.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from .modelspace import inner_products

Layers = list[tuple[np.ndarray, np.ndarray]]


def split(theta: np.ndarray, shapes: Sequence[tuple[int, int]] | np.ndarray) -> Layers:
    """Return the layers of a flat model (P,) as views.

    ``shapes`` has each layer's (outputs, inputs per output).

    Examples
    --------
    Two hidden neurons with three inputs each, then one output:

    >>> theta = np.arange(11)
    >>> (weight, bias), (last, _) = split(theta, [(2, 3), (1, 2)])
    >>> weight.tolist(), bias.tolist(), last.tolist()
    ([[0, 1, 2], [3, 4, 5]], [6, 7], [[8, 9]])
    """
    layers = []
    begin = 0
    for outputs, inputs in shapes:
        middle = begin + outputs * inputs
        end = middle + outputs
        weight = theta[begin:middle].reshape(outputs, inputs)
        layers.append((weight, theta[middle:end]))
        begin = end
    return layers


def joined(layers: Layers) -> np.ndarray:
    """Return layers as one flat model: the inverse of :func:`split`."""
    flat = []
    for weight, bias in layers:
        flat.append(weight.ravel())
        flat.append(bias.ravel())
    return np.concatenate(flat)


def assignment(cost: np.ndarray) -> np.ndarray:
    """Return the columns (n,) of the one-to-one assignment of least cost (n, n).

    Solved by the Hungarian method, unless all rows prefer different columns.

    Examples
    --------
    Both rows prefer column 0. The second gives way, which costs 1 more; if the first
    did, it would cost 8 more:

    >>> assignment(np.array([[1.0, 9.0], [2.0, 3.0]])).tolist()
    [0, 1]
    """
    preferred = cost.argmin(axis=1)
    if len(np.unique(preferred)) == len(cost):
        return preferred
    return linear_sum_assignment(cost)[1]


def permuted(layers: Layers, orders: Sequence[np.ndarray]) -> Layers:
    """Reorder the neurons of all layers but the last.

    New neuron g of layer l is the old ``orders[l][g]``.

    Examples
    --------
    Two hidden neurons change places, and with them the inputs of the output layer, so
    that the network computes the same:

    >>> hidden = np.array([[1.0], [2.0]]), np.array([0.1, 0.2])
    >>> output = np.array([[5.0, 6.0]]), np.array([0.0])
    >>> (weight, bias), (last, _) = permuted([hidden, output], [np.array([1, 0])])
    >>> weight.tolist(), bias.tolist(), last.tolist()
    ([[2.0], [1.0]], [0.2, 0.1], [[6.0, 5.0]])
    """
    out = []
    inputs = None
    for (weight, bias), order in zip(layers[:-1], orders, strict=True):
        weight = _inputs_reordered(weight, inputs)
        out.append((weight[order], bias[order]))
        inputs = order
    weight, bias = layers[-1]
    out.append((_inputs_reordered(weight, inputs), bias))
    return out


def match(layers: Layers, reference: Layers) -> list[np.ndarray]:
    """Find the orders of hidden neurons, for :func:`permuted`, that fit a reference.

    Neurons are assigned layer by layer from the input, by their incoming weights.
    """
    orders = []
    inputs = None
    for (weight, bias), wanted in zip(layers[:-1], reference[:-1], strict=True):
        incoming = _incoming(_inputs_reordered(weight, inputs), bias)
        # squared distances, minus a number per row: the assignment is the same
        squares = (incoming.astype(np.float64) ** 2).sum(axis=1)
        products = inner_products(_incoming(*wanted), incoming)
        inputs = assignment(squares - 2.0 * products.astype(np.float64))
        orders.append(inputs)
    return orders


def matched_mean(
    models: Sequence[Layers], weights: Sequence[float], reference: int | None = None
) -> Layers:
    """Average n models of equal layers, neuron by matched neuron.

    The n weights are at least 0 and normalised to sum 1. All models are reordered to
    match the one at ``reference``, by default the one with the largest weight.

    Examples
    --------
    The second model is the first with its hidden neurons in the other order. A plain
    mean would make two equal neurons of them; the matched one is the model itself:

    >>> hidden = np.array([[1.0], [3.0]]), np.zeros(2)
    >>> model = [hidden, (np.array([[5.0, 7.0]]), np.zeros(1))]
    >>> other = permuted(model, [np.array([1, 0])])
    >>> (weight, _), (last, _) = matched_mean([model, other], [1, 1])
    >>> weight.tolist(), last.tolist()
    ([[1.0], [3.0]], [[5.0, 7.0]])
    """
    weights = np.asarray(weights, dtype=np.float64)
    if reference is None:
        reference = int(weights.argmax())
    first = models[reference]

    sums = []
    for weight, bias in first:
        sums.append((np.zeros(weight.shape), np.zeros(bias.shape)))
    shares = weights / weights.sum()
    for layers, share in zip(models, shares, strict=True):
        if layers is not first:
            layers = permuted(layers, match(layers, first))
        for (weight, bias), (weight_sum, bias_sum) in zip(layers, sums, strict=True):
            weight_sum += share * weight.astype(np.float64)
            bias_sum += share * bias.astype(np.float64)
    first_weight, _ = first[0]
    dtype = first_weight.dtype
    return [(weight.astype(dtype), bias.astype(dtype)) for weight, bias in sums]


def _incoming(weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return the incoming weights and bias of each neuron, (neurons, inputs + 1)."""
    flat = weight.reshape(len(weight), -1)
    return np.hstack([flat, bias[:, None]])


def _inputs_reordered(weight: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    """Reorder inputs as their neurons; each neuron gives equally many inputs."""
    if order is None:
        return weight
    runs = weight.reshape(len(weight), len(order), -1)
    return runs[:, order].reshape(weight.shape)
