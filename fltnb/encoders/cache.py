"""Weights of trained encoders on disk."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np

from .. import paths
from ..data import array_digest

Weights = dict[str, np.ndarray]


def write(path: Path, weights: Weights, settings: dict) -> None:
    """Write weights, with the settings that they belong to, in one step."""
    from safetensors.numpy import save

    # One digest over everything: safetensors itself notices a cut file but not a flipped bit.
    notes = {"settings": json.dumps(settings), "digest": _digest(weights)}
    contiguous = {name: np.ascontiguousarray(value) for name, value in weights.items()}
    paths.write_atomically(path, lambda file: file.write(save(contiguous, metadata=notes)))


def read(path: Path) -> Weights | None:
    """Read weights; None if there are none, or (with a warning that names the file) if they are damaged."""
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            intact = (file.metadata() or {}).get("digest") == _digest(weights)
    except (SafetensorError, OSError, ValueError):
        intact = False
    if intact:
        return weights
    warnings.warn(f"The trained encoder {path} is damaged: it is trained anew, everything else is kept.", stacklevel=3)
    return None


def _digest(weights: Weights) -> str:
    return array_digest(*(weights[name] for name in sorted(weights)))
