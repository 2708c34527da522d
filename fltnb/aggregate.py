"""Aggregation: means of models, as products of matrices, and client graphs.

All models of a federation are rows of ``theta`` (n, P), and every aggregation is a
product ``W @ theta`` with rows of W that are non-negative and sum to 1.
"""

from hashlib import sha256

import numpy as np
from scipy.sparse import block_array, csr_array
from scipy.sparse.csgraph import connected_components

from .errors import FltnbError

BLOCK = 2048  # parameters per step, which bounds the copy in float64


def mix(W: np.ndarray, *theta: np.ndarray, dtype: np.dtype | None = None) -> np.ndarray:
    """Aggregate models (n, P) in client order: ``W @ theta`` (R, P), summed in float64.

    Several arrays of models count as one array, stacked; they can be gigabytes, so they
    are not copied into one. Rows without a model in common are mixed separately: if
    each client has a tenth of the others as neighbours, this is a tenth of the work.

    Parameters
    ----------
    W : array (R, n)
        Weight of each of the n models in each of the R means; rows are non-negative and
        sum to 1 (within 1e-9).
    theta : arrays (n_1, P), (n_2, P), ...
        Models as rows, with n_1 + n_2 + ... = n.
    dtype : optional
        Type of the result; by default that of the first array of models.

    Returns
    -------
    array (R, P)

    Raises
    ------
    FltnbError
        W does not have n columns, or has a negative weight or a row with another sum.

    Examples
    --------
    >>> import fltnb as fl
    >>> import numpy as np
    >>> models = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> fl.aggregate.mix(np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]), models).tolist()
    [[2.0, 3.0], [5.0, 6.0]]
    """
    W = np.asarray(W, dtype=np.float64)
    given = sum(len(own) for own in theta)
    fits = W.shape[1:] == (given,)
    if not fits or (W < 0).any() or not _sums_to_one(W):
        raise FltnbError(
            f"An aggregation matrix for {given} models needs {given} columns, no "
            "negative weight, and rows that sum to 1: check its shape "
            f"{W.shape}, and divide each row by its sum, in float64."
        )

    size = theta[0].shape[1]
    out = np.empty((len(W), size), dtype=dtype or theta[0].dtype)
    groups = _groups(W)
    for begin in range(0, size, BLOCK):
        columns = slice(begin, begin + BLOCK)
        models = np.concatenate([own[:, columns] for own in theta])
        for rows, members, share in groups:
            out[rows, columns] = share @ models[members].astype(np.float64)
    return out


def _sums_to_one(W: np.ndarray) -> bool:
    """Whether every row of weights (K, n) adds up to 1, up to rounding."""
    return np.allclose(W.sum(axis=1), 1.0, rtol=0, atol=1e-9)


def _groups(W: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Divide W into parts of rows that have no model in common.

    Rows and models are the nodes of a graph, weights above 0 its links.

    Returns
    -------
    list of (array (r,), array (m,), array (r, m))
        For each connected part: its rows, its models, and their weights.
    """
    links = csr_array(W)
    graph = block_array([[None, links], [links.T, None]])
    count, part = connected_components(graph)
    part_of_row = part[: len(W)]
    part_of_model = part[len(W) :]
    groups = []
    for own in range(count):
        rows = np.flatnonzero(part_of_row == own)
        members = np.flatnonzero(part_of_model == own)
        groups.append((rows, members, W[np.ix_(rows, members)]))
    return groups


def mix_groups(share: np.ndarray, theta: np.ndarray, models: np.ndarray) -> np.ndarray:
    """Return the weighted mean of the models of each group.

    Parameters
    ----------
    share : array (K, n)
        Weight of each model in each group, such as its number of samples.
    theta : array (n, P)
    models : array (K, P)
        Models that groups without weights keep.

    Returns
    -------
    array (K, P)
        It has the type of ``models``.

    Examples
    --------
    >>> import fltnb as fl
    >>> import numpy as np
    >>> trained = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> kept = np.array([[0.0, 0.0], [9.0, 9.0]])
    >>> share = np.array([[1.0, 1.0], [0.0, 0.0]])  # nobody trained the second model
    >>> fl.aggregate.mix_groups(share, trained, kept).tolist()
    [[2.0, 3.0], [9.0, 9.0]]
    """
    total = share.sum(axis=1)
    filled = total > 0
    W = share[filled] / total[filled, None]
    out = models.copy()
    out[filled] = mix(W, theta, dtype=models.dtype)
    return out


def distinct_rows(adjacency: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows of a client graph.

    Parameters
    ----------
    adjacency : array (M, M)

    Returns
    -------
    array (R, M)
        The rows; uint8 unless the graph has weights other than 0 and 1.
    array (M,)
        The index of each client's row.

    Examples
    --------
    >>> import fltnb as fl
    >>> import numpy as np
    >>> rows, of = fl.aggregate.distinct_rows(
    ...     np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]])
    ... )
    >>> len(rows), of.tolist()
    (2, [1, 1, 0])
    """
    adjacency = np.asarray(adjacency)
    if np.isin(adjacency, (0, 1)).all():
        adjacency = adjacency.astype(np.uint8)
    relation, row = np.unique(adjacency, axis=0, return_inverse=True)
    return relation, row.reshape(-1).astype(np.int64)


def graph_key(rule: str, relation: np.ndarray, row: np.ndarray) -> str:
    """Return 64 hexadecimal digits that identify a client graph and its averages.

    Parameters
    ----------
    rule : str
        The rule by which models are averaged over the graph.
    relation, row : arrays (R, M), (M,)
        The graph, as :func:`distinct_rows` returns it.

    Examples
    --------
    >>> import fltnb as fl
    >>> import numpy as np
    >>> graph = fl.aggregate.distinct_rows(np.eye(3, dtype=np.uint8))
    >>> key = fl.aggregate.graph_key("participants", *graph)
    >>> len(key), key == fl.aggregate.graph_key("another rule", *graph)
    (64, False)
    """
    what = repr((rule, relation.shape, relation.dtype.str))
    content = what.encode() + relation.tobytes() + row.tobytes()
    return sha256(content).hexdigest()
