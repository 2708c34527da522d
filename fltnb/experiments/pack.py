"""How the ledger packs arrays: those of one type stand end to end.

In an archive each file costs as much as a hundred labels.
"""

import json
import math
from collections import defaultdict
from collections.abc import Mapping

import numpy as np


def pack(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Put arrays of one type end to end; ``layout`` says what stood where."""
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


def unpack(packed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Undo :func:`pack`; ledgers of format 1 are not packed."""
    if "layout" not in packed:
        return dict(packed)
    arrays = {}
    starts = dict.fromkeys(packed, 0)
    for name, kind, shape in json.loads(str(packed["layout"])):
        start = starts[kind]
        end = start + math.prod(shape)
        arrays[name] = packed[kind][start:end].reshape(shape)
        starts[kind] = end
    return arrays


def compact(values: np.ndarray) -> np.ndarray:
    """Shorten a column of curves or clients.

    These need no more than seven digits; whole numbers stay whole.
    """
    if values.dtype.kind == "f":
        finite = values[np.isfinite(values)]
        if np.mod(finite, 1).any():
            with np.errstate(over="ignore"):
                return values.astype(np.float32)
        complete = len(finite) == len(values)
        # Up to 2^53 a float holds every whole number.
        if complete and np.abs(values).max(initial=0) < 2**53:
            values = values.astype(np.int64)
    if values.dtype.kind == "i" and np.abs(values).max(initial=0) < 2**31:
        return values.astype(np.int32)
    return values
