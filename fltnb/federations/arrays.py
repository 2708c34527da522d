"""A federation of a user's own arrays."""

from __future__ import annotations

import numbers
from collections.abc import Sequence

import numpy as np

from ..data import array_digest
from ..errors import FltnbError
from ..randomness import stream
from .base import Federation, as_samples, pixel_scaling
from .shares import apportion, integer


def from_arrays(
    x: np.ndarray,
    y: np.ndarray,
    client_ids: Sequence,
    test_fraction: float = 0.2,
    clusters: Sequence | None = None,
    seed: int = 0,
    val_fraction: float = 0.0,
    class_names: Sequence[str] | None = None,
    name: str = "own data",
) -> Federation:
    """Make a federation of your own samples.

    Every client's samples are divided at random into test, validation and training part, each class in proportion
    as far as whole numbers allow. A client keeps at least one training and one test sample.

    Parameters
    ----------
    x : ndarray, shape (N, d), (N, H, W) or (N, H, W, C)
        uint8 pixels (scaled by the federation) or finite floats (taken as they are).
    y : array of int, shape (N,)
        Classes 0 to K-1.
    client_ids : sequence of length N
        Who holds each sample; numbers or strings. Client i of the federation is ``np.unique(client_ids)[i]``.
    test_fraction : float
        Part of a client's samples kept for testing, between 0 and 1 exclusive.
    clusters : sequence of length M, optional
        True cluster of each client, in the order of ``np.unique(client_ids)``; any values, numbered 0, 1, ... by
        sorted value.
    seed : int
        Seed of the division.
    val_fraction : float
        Part kept for validation; 0 leaves validation empty.
    class_names : sequence of str, optional
        Names of the classes. Needed when some class number below the highest has no sample.
    name : str
        Name stored with results.

    Raises
    ------
    FltnbError
        Arrays that do not fit together, labels that are not 0 to K-1, NaN, a client with a single sample, or
        fractions out of range.

    Examples
    --------
    >>> fed = from_arrays(np.eye(4), [0, 1, 0, 1], ["ann", "bob", "ann", "bob"], test_fraction=0.5)
    >>> fed.n_clients, fed.sizes.tolist()
    (2, [1, 1])
    """
    x, y, ids = as_samples(x), np.asarray(y), np.asarray(client_ids)
    integer(seed, "seed", 0)
    for name, value in (("test_fraction", test_fraction), ("val_fraction", val_fraction)):
        if not isinstance(value, numbers.Real):
            raise FltnbError(f"{name} must be a number, not {value!r}.")
    if not (0 < test_fraction < 1 and 0 <= val_fraction < 1 and test_fraction + val_fraction < 1):
        raise FltnbError(
            f"test_fraction {test_fraction} and val_fraction {val_fraction} must lie between 0 and 1, leave something"
            " to train on, and test_fraction must be above 0."
        )
    if y.shape != (len(x),) or ids.shape != (len(x),):
        raise FltnbError(
            f"x, y and client_ids must hold one entry per sample, but their shapes are {x.shape}, {y.shape} and"
            f" {ids.shape}."
        )
    n_classes = _count_classes(y, class_names)
    try:
        names, owner = np.unique(ids, return_inverse=True)
    except TypeError as error:
        raise FltnbError(
            "client_ids mix values that cannot be sorted: make all of them text or all integers."
        ) from error
    if clusters is not None:
        given = np.asarray(clusters)
        if given.shape != (len(names),):
            raise FltnbError(
                f"clusters has shape {given.shape} but there are {len(names)} clients: give one per client, in the"
                " order of np.unique(client_ids)."
            )
        clusters = np.unique(given, return_inverse=True)[1]
    parts: dict[str, list[np.ndarray]] = {"train": [], "val": [], "test": []}
    for i, client in enumerate(names):
        held = np.flatnonzero(owner == i)
        if len(held) < 2:
            raise FltnbError(f"Client {client} has a single sample: it needs one to train on and one to be tested on.")
        n_test = min(max(round(test_fraction * len(held)), 1), len(held) - 1)
        n_val = min(round(val_fraction * len(held)), len(held) - n_test - 1)
        held = stream(seed, "split", 1 + i).permutation(held)
        test, held = _draw(held, y, n_test)
        val, held = _draw(held, y, n_val)
        for part, index in zip(("train", "val", "test"), (held, val, test), strict=True):
            parts[part].append(np.sort(index))
    content = array_digest(x, y, owner, np.asarray(clusters if clusters is not None else []))
    return Federation(
        images=x,
        labels=y,
        n_classes=n_classes,
        class_names=class_names,
        name=name,
        origin=f"own arrays (sha256 {content})",
        settings={
            "kind": "from_arrays",
            "content": content,
            "test_fraction": float(test_fraction),
            "val_fraction": float(val_fraction),
            "n_classes": n_classes,
            "seed": int(seed),
        },
        clusters=clusters,
        **parts,
        **pixel_scaling(x),
    )


def _count_classes(y: np.ndarray, class_names: Sequence[str] | None) -> int:
    """Return K, refusing labels that would make a model of the wrong size."""
    if not np.issubdtype(y.dtype, np.integer):
        raise FltnbError(
            f"Labels must be integers 0, 1, ..., not {y.dtype}: np.unique(y, return_inverse=True)[1] turns any labels"
            " into such numbers."
        )
    if class_names is not None:
        return len(class_names)  # the Federation checks the labels against it
    found = np.unique(y)
    if found[0] != 0 or found[-1] != len(found) - 1:
        raise FltnbError(
            f"Labels run from {found[0]} to {found[-1]} with only {len(found)} different values: number them 0 to"
            f" {len(found) - 1} with np.unique(y, return_inverse=True)[1], or name all classes by class_names."
        )
    return len(found)


def _draw(held: np.ndarray, y: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Take ``n`` of the shuffled positions ``held``, classes in proportion; return (taken, the rest)."""
    if n == 0:
        return held[:0], held
    classes, code, counts = np.unique(y[held], return_inverse=True, return_counts=True)
    share = apportion(n, counts)
    taken = np.concatenate([np.flatnonzero(code == k)[: share[k]] for k in range(len(classes))])
    return held[taken], np.delete(held, taken)
