"""Clients' data in other forms: pairs, torch data sets, Flower's partitions.

Each client's data may have one of three forms, which are told apart by what they can
do, so that neither torch nor Flower need be installed:

- a pair ``(x, y)`` of arrays: n samples and n labels;
- a table with ``features``, as a partition of Flower Datasets is: columns by name;
- anything with ``len`` that gives ``(sample, label)`` by number, such as a map-style
  data set of torch or a ``Subset`` of one.

All three become one array of samples and one of labels (:class:`Clients`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arrays import as_array
from ..errors import FltnbError
from ..settings import Count, check
from .preprocessing import some
from .tables import text_of


class Clients(NamedTuple):
    """Samples of all clients, one after the other.

    Attributes
    ----------
    names : list of M str
    sizes : list of M int
        Number of samples of each client.
    x : ndarray, shape (N, ...)
    y : ndarray, shape (N,)
    class_names : list of str, or None
        If the data have them.

    Examples
    --------
    >>> pairs = {"ann": ([[1.0], [2.0]], [0, 1]), "bob": ([[3.0]], [1])}
    >>> clients = read(pairs, names=None, n_clients=None, x=None, y="label")
    >>> clients.names, clients.sizes, clients.x.ravel().tolist()
    (['ann', 'bob'], [2, 1], [1.0, 2.0, 3.0])
    """

    names: list[str]
    sizes: list[int]
    x: np.ndarray
    y: np.ndarray
    class_names: list[str] | None


def read(
    clients: Any,
    names: Sequence[str] | None,
    n_clients: int | None,
    x: str | Sequence[str] | None,
    y: str,
) -> Clients:
    """Read every client's data.

    Parameters
    ----------
    clients : sequence, dict, or an object with ``load_partition``
    names : sequence of M str, optional
        By default the keys of a dict, or the numbers.
    n_clients : int, optional
        Number of partitions to load.
    x, y : str
        Columns of a partition, see ``Federation.from_clients``.

    Raises
    ------
    FltnbError
        There are no clients, or their data do not fit together.
    """
    class_names = None
    if hasattr(clients, "load_partition"):
        n_clients = check("n_clients", n_clients, Count | None)
        if n_clients is None:
            n_clients = _n_partitions(clients)
        parts = [clients.load_partition(i) for i in range(n_clients)]
        class_names = _class_names(parts[0], y)
        # if clients are the values of a column, such as writers
        natural = getattr(clients, "partition_id_to_natural_id", None)
        if names is None and natural:
            names = [natural[i] for i in range(n_clients)]
    else:
        if n_clients is not None:
            raise FltnbError(
                "n_clients is for an object with load_partition: give as many data "
                "sets as there are clients."
            )
        if isinstance(clients, Mapping) and names is None:
            names = list(clients)
        parts = _as_list(clients)
    if not parts:
        raise FltnbError("There are no clients: give one data set for each.")

    samples = []
    labels = []
    for i, part in enumerate(parts):
        own_samples, own_labels = _of_client(part, i, x, y)
        samples.append(own_samples)
        labels.append(own_labels)
    names = _names(names, len(parts))
    _check_alike(names, samples, labels)
    sizes = [len(own) for own in labels]
    whole_x = np.concatenate(samples)
    whole_y = np.concatenate(labels)
    return Clients(names, sizes, whole_x, whole_y, class_names)


def _names(names: Sequence[str] | None, n_clients: int) -> list[str]:
    """Return the clients' names as text, or refuse them."""
    if names is None:
        return [str(i) for i in range(n_clients)]
    names = [text_of(name) for name in names]
    if len(names) != n_clients:
        raise FltnbError(
            f"There are {len(names)} names for {n_clients} clients: give one each."
        )
    return names


def _as_list(clients: Any) -> list:
    """Return the data of each client from a list or a dict, or refuse it."""
    if isinstance(clients, (str, bytes)) or not isinstance(clients, Iterable):
        raise FltnbError(
            "Clients must be a list or dict with one data set each, or have "
            f"load_partition, not {type(clients).__name__}."
        )
    if isinstance(clients, Mapping):
        return list(clients.values())
    return list(clients)


def _n_partitions(clients: Any) -> int:
    """Return the number of partitions that a federated data set gives.

    Flower's ``FederatedDataset`` has a partitioner for each split, and each of these
    knows its number. Other objects may have ``num_partitions`` of their own.
    """
    number = getattr(clients, "num_partitions", None)
    partitioners = getattr(clients, "partitioners", None)
    if number is None and partitioners:
        # for one split, such as "train"
        first = next(iter(partitioners.values()))
        number = getattr(first, "num_partitions", None)
    if number is None:
        raise FltnbError(
            f"{type(clients).__name__} does not say how many partitions it has: give "
            "n_clients."
        )
    return int(number)


def _of_client(
    part: Any, i: int, x: str | Sequence[str] | None, y: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return samples and labels of one client's data.

    Parameters
    ----------
    part : pair (x, y), table with ``features``, or data set of pairs
    i : int
        The client's number, for errors.
    x, y : str
        Columns of a table.

    Returns
    -------
    samples : ndarray, shape (n, ...)
    labels : ndarray, shape (n,)
    """
    if isinstance(part, (str, Mapping)):
        raise FltnbError(
            f"Client {i} has a {type(part).__name__}: give a pair (x, y) of arrays."
        )
    if isinstance(part, (tuple, list)) and len(part) == 2:
        x_of_pair, y_of_pair = part
        samples = as_array(x_of_pair, f"Samples of client {i}")
        if samples.ndim == 0:
            raise FltnbError(
                f"Samples of client {i} are a single value: give a pair (x, y) of "
                "arrays, with one entry per sample."
            )
        return samples, _labels(y_of_pair, i)
    if hasattr(part, "features"):
        return _of_columns(part, i, x, y)
    if hasattr(part, "__getitem__") and hasattr(part, "__len__"):
        return _of_items(part, i)
    raise FltnbError(
        f"Client {i} has a {type(part).__name__}: give a pair (x, y), or a data set "
        "with len that gives pairs (x, y) by number."
    )


def _labels(values: Any, i: int) -> np.ndarray:
    """Return labels as an array; a single column (n, 1) as (n,)."""
    labels = as_array(values, f"Labels of client {i}")
    if labels.ndim == 2 and labels.shape[1] == 1:
        return labels[:, 0]
    return labels


def _of_items(part: Any, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Read a map-style data set, item by item; pictures come as (C, H, W)."""
    samples = []
    labels = []
    for number in range(len(part)):
        item = part[number]
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise FltnbError(
                f"Item {number} of client {i} is not a pair (x, y): give a data set "
                "of pairs."
            )
        sample, label = item
        samples.append(_sample(sample, i))
        label = as_array(label, f"Labels of client {i}")
        if label.size != 1:
            raise FltnbError(
                f"Item {number} of client {i} has a label of shape {label.shape}: give "
                "the number or the name of its class."
            )
        labels.append(label.item())
    if not samples:
        raise FltnbError(f"Client {i} has no samples: leave it out.")
    return as_array(samples, f"Samples of client {i}"), np.array(labels)


def _sample(value: Any, i: int) -> np.ndarray:
    """Return a sample of a data set; a tensor (C, H, W) as (H, W, C).

    torchvision's ``ToTensor`` puts channels first, and a federation has them last.
    Arrays of three axes stay as they are: they are mostly pictures from files.
    """
    sample = as_array(value, f"Samples of client {i}")
    is_tensor = hasattr(value, "detach")
    if is_tensor and sample.ndim == 3:
        return np.moveaxis(sample, 0, -1)
    return sample


def _of_columns(
    part: Any, i: int, x: str | Sequence[str] | None, y: str
) -> tuple[np.ndarray, np.ndarray]:
    """Read a table of columns, as partitions of Flower Datasets are.

    Several columns of single numbers are samples (n, columns), in the order of their
    names; one column of arrays is not changed. Parameters as in :func:`_of_client`.
    """
    known = list(part.features)
    columns = _chosen(known, x, y, i)
    what = f"Column {some(columns)} of partition {i}"
    found = []
    for name in columns:
        values = [_plain(value) for value in part[name]]
        found.append(as_array(values, what))
    labels = _labels(list(part[y]), i)
    if len(found) == 1 and found[0].ndim > 1:
        return found[0], labels
    for values in found:
        if values.ndim != 1:
            raise FltnbError(
                f"Partition {i} has several columns, {some(columns)}, not all of "
                "single numbers: name one with x=."
            )
    return np.column_stack(found), labels


def _chosen(
    known: Sequence[str], x: str | Sequence[str] | None, y: str, i: int
) -> list[str]:
    """Return the columns to learn from, by default all but ``y``, or refuse them."""
    if x is None:
        columns = [name for name in known if name != y]
    elif isinstance(x, str):
        columns = [x]
    else:
        columns = list(x)
    needed = [y, *columns]
    missing = [name for name in needed if name not in known]
    if missing:
        raise FltnbError(
            f"Partition {i} has no column {some(missing)}; it has {some(known)}: name "
            "the right ones with x= and y=."
        )
    return columns


def _plain(value: Any) -> Any:
    """Return a value of a column; a picture as its pixels.

    Flower Datasets returns pictures as objects of Pillow, which NumPy can read.
    """
    if isinstance(value, (int, float, str, list)):
        return value
    return np.asarray(value)


def _class_names(part: Any, y: str) -> list[str] | None:
    """Return the names of classes that a column of Flower Datasets has, if any."""
    column = getattr(part, "features", {}).get(y)
    names = getattr(column, "names", None)
    if names is None:
        return None
    return [str(name) for name in names]


def _check_alike(
    names: Sequence[str], samples: Sequence[np.ndarray], labels: Sequence[np.ndarray]
) -> None:
    """Refuse clients whose samples do not fit into one array.

    Joining labels of numbers and of text would silently make text of all of them, and
    joining pixels of 0 to 255 and floats, which are not scaled, floats of all.

    ``samples``: of each client, (n_i, ...); ``labels``: (n_i,).
    """
    shape = samples[0].shape[1:]
    text = _is_text(labels[0])
    for name, x, y in zip(names, samples, labels, strict=True):
        n = len(x)
        if not n or y.shape != (n,):
            raise FltnbError(
                f"Client {name} has samples {x.shape} and labels {y.shape}: "
                "give one label for each sample, and at least one."
            )
        if x.shape[1:] != shape:
            raise FltnbError(
                f"Client {name} has samples of shape {x.shape[1:]}, client "
                f"{names[0]} of {shape}: give all the same shape."
            )
        if (x.dtype == np.uint8) != (samples[0].dtype == np.uint8):
            raise FltnbError(
                f"Client {name} has samples of type {x.dtype}, client {names[0]} of "
                f"{samples[0].dtype}: give all as uint8 pixels, or none."
            )
        if _is_text(y) != text:
            raise FltnbError(
                f"Client {name} has labels {y.dtype}, client {names[0]} others: "
                "make them all text or all numbers."
            )


def _is_text(labels: np.ndarray) -> bool:
    """Return whether labels are text, or objects (text with gaps)."""
    return labels.dtype.kind in "UO"
