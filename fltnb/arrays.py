"""A user's data as plain arrays; values that would change are refused."""

from typing import Any

import numpy as np

from .errors import FltnbError

EXACT_TO = 2.0**53  # float64 represents all whole numbers up to this one
COARSE = 1e-3  # a step of float32, in standard deviations, that hides differences
MANY = 0.99  # share of different values that must be left where steps are coarse


def as_array(values: Any, what: str) -> np.ndarray:
    """Return an array of anything array-like, a tensor of torch included.

    FltnbError is raised if rows have different lengths, or if values are masked, which
    NumPy would treat as measured; ``what`` names the data in its message.
    """
    if isinstance(values, (list, tuple)) and any(map(_is_special, values)):
        values = [as_array(one, what) for one in values]
    if hasattr(values, "detach"):
        return _of_tensor(values, what)
    if isinstance(values, np.ma.MaskedArray):
        if np.ma.is_masked(values):
            raise FltnbError(
                f"{what} hold masked values: fill them with x.filled(...), or remove "
                "them."
            )
        return values.data
    try:
        return np.asarray(values)
    except ValueError as error:
        raise FltnbError(
            f"{what} must all have the same shape: resize or pad them first."
        ) from error


def _is_special(value: Any) -> bool:
    """Whether a value is a tensor or a masked array, which are written separately."""
    return hasattr(value, "detach") or isinstance(value, np.ma.MaskedArray)


def _of_tensor(tensor: Any, what: str) -> np.ndarray:
    """Return a tensor's values, on any device, with or without a gradient."""
    plain = tensor.detach().cpu()
    if str(plain.dtype) == "torch.bfloat16":  # NumPy does not have this type
        plain = plain.float()
    try:
        return plain.numpy()
    except (TypeError, RuntimeError) as error:
        raise FltnbError(
            f"{what} are a tensor of type {tensor.dtype} ({tensor.layout}), which "
            "cannot become an array: give a dense tensor of numbers."
        ) from error


def as_float32(values: np.ndarray, what: str) -> np.ndarray:
    """Return numbers (n, ...) as float32, which has about seven digits.

    Numbers beyond its range become infinite, and the caller refuses them. FltnbError:
    different values of a column would become equal, so that a difference between
    samples would be lost without notice.
    """
    if values.dtype.kind in "iu":
        values = values.astype(np.float64)
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32, copy=False)
    if narrow is values or values.dtype.itemsize <= 4 or not len(values):
        return narrow
    if not np.isfinite(narrow).all():
        return narrow

    columns = values.reshape(len(values), -1)
    for column in _coarse(columns):
        wide = columns[:, column]
        before = len(np.unique(wide))
        after = len(np.unique(wide.astype(np.float32)))
        if after < MANY * before:
            lowest = wide.min()
            raise FltnbError(
                f"{what}: {before} different values of column {column} become {after} "
                f"as float32, because they lie close together near {lowest:g}: "
                f"subtract {lowest:.17g} from that column."
            )
    return narrow


def _coarse(columns: np.ndarray) -> np.ndarray:
    """Return the columns of numbers (n, d) whose spread is a few steps of float32.

    At 1.7e9, seconds since 1970, a step is 128: measurements of one hour, which spread
    over 1,000 seconds, are among these.
    """
    largest = np.abs(columns).max(axis=0)
    step = np.spacing(largest.astype(np.float32))
    spread = columns.std(axis=0)
    return np.flatnonzero((spread > 0) & (step > COARSE * spread))


def as_float64(values: np.ndarray, what: str) -> np.ndarray:
    """Return numbers as float64.

    Raises FltnbError if it cannot represent some of them.
    """
    if values.dtype.kind in "iu" and values.size:
        largest = max(abs(int(values.min())), abs(int(values.max())))
        if largest > EXACT_TO:
            raise FltnbError(
                f"{what} hold whole numbers up to {largest}, which lose their last "
                "digits as float64: give identifiers as text, or subtract the smallest "
                "number."
            )
    return values.astype(np.float64, copy=False)
