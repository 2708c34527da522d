"""Equal tuning: five trials for each method, from a space that the class declares.

For each option ``space`` has either a list of values or ``(low, high, "log")`` or
``(low, high, "linear")``; if both ends are whole numbers, values are whole. Trials are
the points of Halton's sequence, the same for all and without a random part. They are
compared on validation samples, with a seed that the table does not use.
"""

import inspect
from collections.abc import Sequence
from typing import Any

from ..errors import FltnbError

TRIALS = 5
SEED = 1000
"""Seed of the runs that compare trials."""
SCALES = ("log", "linear")


def trials(space: dict[str, Any], n: int = TRIALS) -> list[dict[str, Any]]:
    """Return ``n`` choices of options.

    Parameters
    ----------
    space : dict
        Option -> (low, high, "log" or "linear"), or a list of values.
    n : int

    Examples
    --------
    >>> [one["mu"] for one in trials({"mu": (0.0, 1.0, "linear")}, 3)]
    [0.5, 0.25, 0.75]
    """
    from scipy.stats import qmc

    if not space:
        return []
    sequence = qmc.Halton(len(space), scramble=False)
    sequence.fast_forward(1)  # the first point is the lowest corner
    chosen = []
    for point in sequence.random(n):
        values = {}
        shares = point.tolist()
        for option, share in zip(space, shares, strict=True):
            values[option] = _value(space[option], share)
        chosen.append(values)
    return chosen


def best(space: dict[str, Any], accuracies: Sequence[float]) -> dict[str, Any]:
    """Return the trial with the best validation accuracy; of equal ones, the first.

    Parameters
    ----------
    space : dict
        As for :func:`trials`.
    accuracies : sequence of float
        Of its trials, in their order.

    Examples
    --------
    >>> best({"mu": [0, 1]}, [70.0, 80.0, 70.0, 80.0, 60.0])
    {'mu': 0}
    """
    place = max(range(len(accuracies)), key=lambda trial: accuracies[trial])
    return trials(space, len(accuracies))[place]


def _value(range_: Any, share: float) -> Any:
    """Return the value of an option at ``share``, in [0, 1), of its range.

    A list is divided into equal parts. On the scale "log" equal shares are equal
    factors, as rates and weights are usually tried.
    """
    if isinstance(range_, list):
        place = int(share * len(range_))
        return range_[place]
    low, high, scale = range_
    if scale == "log":
        value = low * (high / low) ** share
    else:
        value = low + share * (high - low)
    if isinstance(low, int) and isinstance(high, int):
        return round(value)
    return value


def check_space(space: Any, kind: type, name: str) -> None:
    """Refuse a wrong space, or one with names that are not options of the class."""
    if not isinstance(space, dict):
        raise FltnbError(
            f"space of {name} must be a dict of options and what they may be, not "
            f"{space!r}."
        )
    options = inspect.signature(kind).parameters
    for option, range_ in space.items():
        if option not in options or option == "n_clusters":
            raise FltnbError(
                f"space of {name} names {option}, which is no option that can be "
                "tuned: leave it out."
            )
        if not _is_range(range_):
            raise FltnbError(
                f"space of {name} must have a list of values or (low, high, "
                f'"log" or "linear") for {option}, not {range_!r}.'
            )


def _is_range(range_: Any) -> bool:
    """Return whether it is a list of values, or two ends and a scale.

    The ends must be in order, and above 0 on the scale "log".
    """
    if isinstance(range_, list):
        return len(range_) > 0
    if not isinstance(range_, tuple) or len(range_) != 3:
        return False
    low, high, scale = range_
    numeric = isinstance(low, int | float) and isinstance(high, int | float)
    if scale not in SCALES or not numeric:
        return False
    positive = low > 0 or scale == "linear"
    return positive and low < high
