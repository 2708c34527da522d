"""Phrases for findings."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ..names import label


def joined(values: Iterable[float], form: str) -> str:
    """Format several numbers in the same way.

    Examples
    --------
    >>> joined([1.25, -3], "{:+.1f}")
    '+1.2, -3.0'
    """
    return ", ".join(form.format(value) for value in values)


def listed(values: Mapping[str, float], form: str = "{:.2f}") -> str:
    """Format several numbers in the same way, each after its name.

    Examples
    --------
    >>> listed({"emdcfl": 1.0, "worst": 0.5})
    'EMD-CFL 1.00, worst client 0.50'
    """
    said = []
    for name, value in values.items():
        number = form.format(value)
        said.append(f"{label(name)} {number}")
    return ", ".join(said)


def so_many(holds: Sequence[bool], what: str) -> str:
    """Format how many of several statements hold.

    Examples
    --------
    >>> so_many([True, False, True], "seeds")
    '2 of 3 seeds'
    """
    return f"{np.sum(holds)} of {len(holds)} {what}"
