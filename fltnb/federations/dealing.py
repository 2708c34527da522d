"""Dealing images out to clients evenly in every class, and holding some back for validation: EMD-CFL's federations."""

from __future__ import annotations

import numbers

import numpy as np

from ..errors import FltnbError
from .shares import integer


def deal(
    index: np.ndarray, labels: np.ndarray, n_clients: int, each: int | None, rng: np.random.Generator, what: str
) -> list[np.ndarray]:
    """Divide images at random over clients, so that all have every class in the same numbers (to within one or two).

    Parameters
    ----------
    index : ndarray of int
        Positions of the images to deal.
    labels : ndarray
        Classes of all images, indexed by those positions.
    n_clients : int
    each : int or None
        Images per client; None deals all of them.
    rng : generator
    what : str
        Names the images in messages.

    Returns
    -------
    list of ``n_clients`` ndarrays
        Disjoint, each sorted by class.

    Raises
    ------
    FltnbError
        Too few images, or fewer images per client than there are classes.
    """
    index = rng.permutation(index)
    index = index[np.argsort(labels[index], kind="stable")]
    parts = [index[client::n_clients] for client in range(n_clients)]
    fewest, classes = len(index) // n_clients, len(np.unique(labels[index]))
    wanted = fewest if each is None else each
    if wanted > fewest:
        raise FltnbError(
            f"{n_clients} clients with {each} {what} images each need {n_clients * each} of the {len(index)} there are:"
            " ask for fewer."
        )
    if wanted < classes:
        raise FltnbError(
            f"{wanted} {what} images per client are fewer than the {classes} classes: ask for fewer clients or more"
            " images each."
        )
    return parts if each is None else [part[spread(len(part), each)] for part in parts]


def hold_out(own: np.ndarray, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Divide one client's images, sorted by class, into those to keep and a share of every class held back.

    Raises
    ------
    FltnbError
        The share comes to no image.
    """
    held = round(fraction * len(own))
    if fraction > 0 and held == 0:
        raise FltnbError(
            f"A share of {fraction:g} of {len(own)} images is no image: hold more back or give clients more images."
        )
    place = spread(len(own), held)
    return np.delete(own, place), own[place]


def spread(size: int, n: int) -> np.ndarray:
    """Positions of ``n`` of ``size`` places at equal distances, ascending.

    Examples
    --------
    >>> spread(10, 3).tolist()
    [1, 5, 8]
    """
    return ((np.arange(n) + 0.5) * size / max(n, 1)).astype(np.int64)


def share(value: float, name: str) -> float:
    """Return a fraction of at least 0 and below 1 as float, else raise FltnbError."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not 0 <= value < 1:
        raise FltnbError(f"{name} must be a share of at least 0 and below 1, not {value!r}.")
    return float(value)


def optional_integer(value: int | None, name: str) -> int | None:
    """Return None or a whole number of at least 1."""
    return None if value is None else integer(value, name)
