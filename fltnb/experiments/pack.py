"""How the ledger packs arrays: arrays of one type are concatenated.

In an archive each file costs as much space as a hundred labels, and a ledger has
thousands of small arrays.
"""

import json
import math
from collections import defaultdict

import numpy as np

from .finished import Arrays

_INT32 = 2**31
_WHOLE = 2**53
"""A float represents all whole numbers up to this one."""


def pack(arrays: Arrays) -> Arrays:
    """Concatenate arrays of one type.

    Returns
    -------
    dict
        Type, such as ``<f4`` -> all values of this type, (n,); and ``layout``: a JSON
        list of name, type and shape of each array, in their order.
    """
    layout = []
    flat = defaultdict(list)
    for name, value in arrays.items():
        kind = value.dtype.str
        layout.append((name, kind, value.shape))
        flat[kind].append(value.ravel())

    packed = {"layout": np.array(json.dumps(layout))}
    for kind, parts in flat.items():
        packed[kind] = np.concatenate(parts)
    return packed


def unpack(packed: Arrays) -> Arrays:
    """Undo :func:`pack`; ledgers of format 1 are not packed.

    Raises what NumPy and JSON raise where the layout does not fit the values.
    """
    if "layout" not in packed:
        return dict(packed)
    layout = json.loads(str(packed["layout"]))
    arrays = {}
    starts = dict.fromkeys(packed, 0)
    for name, kind, shape in layout:
        start = starts[kind]
        end = start + math.prod(shape)
        values = packed[kind][start:end]
        arrays[name] = values.reshape(shape)
        starts[kind] = end
    return arrays


def compact(values: np.ndarray) -> np.ndarray:
    """Shorten a column of curves or clients.

    They need at most seven digits, so fractions become float32. Whole numbers, also
    those in floats, stay whole, as int32 if they fit.

    Examples
    --------
    >>> compact(np.array([1.0, 2.0])).dtype
    dtype('int32')
    >>> compact(np.array([0.5, np.nan])).dtype
    dtype('float32')
    """
    if values.dtype.kind == "f":
        finite = values[np.isfinite(values)]
        fractions = np.mod(finite, 1)
        if fractions.any():
            with np.errstate(over="ignore"):
                return values.astype(np.float32)
        complete = len(finite) == len(values)
        if complete and _largest(values) < _WHOLE:
            values = values.astype(np.int64)
    if values.dtype.kind == "i" and _largest(values) < _INT32:
        return values.astype(np.int32)
    return values


def _largest(values: np.ndarray) -> float:
    """Return the largest absolute value, 0 if there are none."""
    return np.abs(values).max(initial=0)
