"""Clients' data as others have them: pairs, torch data sets, Flower's partitions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arrays import as_array
from ..errors import FltnbError
from .preprocessing import some
from .tables import text_of


class Clients(NamedTuple):
    """Samples of all clients, one after the other."""

    names: list[str]  # M
    sizes: list[int]  # M
    x: np.ndarray  # (N, ...)
    y: np.ndarray  # (N,)
    class_names: list[str] | None


def read(
    clients: Any,
    names: Sequence[str] | None,
    n_clients: int | None,
    x: str | Sequence[str] | None,
    y: str,
) -> Clients:
    """Read every client's data; see ``Federation.from_clients`` for the options."""
    class_names = None
    if hasattr(clients, "load_partition"):
        n_clients = n_clients or _n_partitions(clients)
        parts = [clients.load_partition(i) for i in range(n_clients)]
        class_names = _class_names(parts[0], y)
        pairs = [_of_columns(part, i, x, y) for i, part in enumerate(parts)]
    else:
        if isinstance(clients, Mapping):
            names = list(clients) if names is None else names
            clients = clients.values()
        parts = _as_list(clients)
        pairs = [_of_client(part, i, x, y) for i, part in enumerate(parts)]
    if not pairs:
        raise FltnbError("There are no clients: give one data set for each.")
    names = range(len(pairs)) if names is None else names
    names = [text_of(name) for name in names]
    if len(names) != len(pairs):
        raise FltnbError(
            f"There are {len(names)} names for {len(pairs)} clients: give one each."
        )
    _check_alike(names, pairs)
    return Clients(
        names,
        [len(labels) for _, labels in pairs],
        np.concatenate([samples for samples, _ in pairs]),
        np.concatenate([labels for _, labels in pairs]),
        class_names,
    )


def _as_list(clients: Any) -> list:
    if isinstance(clients, (str, bytes)) or not isinstance(clients, Iterable):
        raise FltnbError(
            "Clients must be a list or dict with one data set each, or have "
            f"load_partition, not {type(clients).__name__}."
        )
    return list(clients)


def _n_partitions(clients: Any) -> int:
    """Return how many partitions a federated data set says that it has."""
    number = getattr(clients, "num_partitions", None)
    if number is None:
        partitioners = getattr(clients, "partitioners", None) or {}
        numbers = [
            getattr(one, "num_partitions", None) for one in partitioners.values()
        ]
        number = numbers[0] if len(numbers) == 1 else None
    if number is None:
        raise FltnbError(
            f"{type(clients).__name__} does not say how many partitions it has: give "
            "n_clients."
        )
    return int(number)


def _of_client(
    part: Any, i: int, x: str | Sequence[str] | None, y: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return samples and labels of whatever one client has."""
    if isinstance(part, (tuple, list)) and len(part) == 2:
        return as_array(part[0], f"Samples of client {i}"), _labels(part[1], i)
    if hasattr(part, "features") and hasattr(part, "column_names"):
        return _of_columns(part, i, x, y)
    if hasattr(part, "__getitem__") and hasattr(part, "__len__"):
        return _of_items(part, i)
    raise FltnbError(
        f"Client {i} has a {type(part).__name__}: give a pair (x, y), or a data set "
        "with len that gives pairs (x, y) by number."
    )


def _labels(values: Any, i: int) -> np.ndarray:
    labels = as_array(values, f"Labels of client {i}")
    return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels


def _of_items(part: Any, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Read a map-style data set, item by item; pictures come as (C, H, W)."""
    samples = []
    labels = []
    for number in range(len(part)):
        item = part[number]
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise FltnbError(
                f"Item {number} of client {i} is no pair (x, y): give a data set of "
                "pairs."
            )
        samples.append(_sample(item[0], i))
        labels.append(as_array(item[1], f"Labels of client {i}").item())
    if not samples:
        raise FltnbError(f"Client {i} has no samples: leave it out.")
    return as_array(samples, f"Samples of client {i}"), np.array(labels)


def _sample(value: Any, i: int) -> np.ndarray:
    sample = as_array(value, f"Samples of client {i}")
    channels_first = hasattr(value, "detach") and sample.ndim == 3
    return np.moveaxis(sample, 0, -1) if channels_first else sample


def _of_columns(
    part: Any, i: int, x: str | Sequence[str] | None, y: str
) -> tuple[np.ndarray, np.ndarray]:
    """Read a table of columns, as partitions of Flower Datasets are."""
    known = list(part.features)
    columns = [name for name in known if name != y] if x is None else x
    columns = [columns] if isinstance(columns, str) else list(columns)
    missing = [name for name in [y, *columns] if name not in known]
    if missing:
        raise FltnbError(
            f"Partition {i} has no column {some(missing)}; it has {some(known)}: name "
            "the right ones with x= and y=."
        )
    what = f"Column {some(columns)} of partition {i}"
    found = [as_array([*map(_plain, part[name])], what) for name in columns]
    samples = found[0]
    if len(found) > 1 or samples.ndim == 1:
        flat = [values for values in found if values.ndim != 1]
        if flat:
            raise FltnbError(
                f"Partition {i} has several columns, {some(columns)}, not all of "
                "single numbers: name one with x=."
            )
        samples = np.column_stack(found)
    return samples, _labels([*part[y]], i)


def _plain(value: Any) -> Any:
    """Return a value of a column; a picture as its pixels."""
    return value if isinstance(value, (int, float, str, list)) else np.asarray(value)


def _class_names(part: Any, y: str) -> list[str] | None:
    names = getattr(part.features.get(y), "names", None)
    return None if names is None else list(map(str, names))


def _check_alike(
    names: Sequence[str], pairs: Sequence[tuple[np.ndarray, np.ndarray]]
) -> None:
    """Refuse clients whose samples do not go into one array."""
    usual = pairs[0][0].shape[1:]
    text = pairs[0][1].dtype.kind in "UO"
    for name, (samples, labels) in zip(names, pairs, strict=True):
        if not len(samples) or labels.shape != (len(samples),):
            raise FltnbError(
                f"Client {name} has samples {samples.shape} and labels {labels.shape}: "
                "give one label for each sample, and at least one."
            )
        if samples.shape[1:] != usual:
            raise FltnbError(
                f"Client {name} has samples of shape {samples.shape[1:]}, client "
                f"{names[0]} of {usual}: make them alike."
            )
        if (labels.dtype.kind in "UO") != text:
            raise FltnbError(
                f"Client {name} has labels {labels.dtype}, client {names[0]} others: "
                "make them all text or all numbers."
            )
