"""The file of an encoder's weights, or of a state of its pretraining."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .. import paths
from ..data import array_digest
from ..errors import FltnbError

Weights = dict[str, np.ndarray]


def read_weights(path: Path) -> Weights | None:
    """Read weights; None if there are none, or if they are damaged.

    A warning names the file of damaged weights.
    """
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            notes = file.metadata() or {}
        if notes.get("digest") == digest_of(weights):
            return weights
    except OSError as error:  # an error of the disk: the weights may be intact
        raise FltnbError(
            f"The trained encoder {path} cannot be read ({error.strerror or error}): "
            "fix that, or delete it to train it again."
        ) from error
    except (SafetensorError, ValueError):
        pass
    warnings.warn(
        f"The trained encoder {path} is damaged: it is trained again, everything else "
        "is kept.",
        stacklevel=3,
    )
    return None


def write_weights(path: Path, weights: Weights, settings: dict[str, Any]) -> None:
    """Write weights into a file, with their settings and a digest."""
    from safetensors.numpy import save

    # One digest over everything: safetensors itself notices a cut file but not a
    # flipped bit.
    notes = {"settings": json.dumps(settings), "digest": digest_of(weights)}
    content = save(weights, metadata=notes)
    paths.write_atomically(path, lambda file: file.write(content))


def digest_of(weights: Weights) -> str:
    """Return one digest of all weights."""
    return array_digest(*(weights[name] for name in sorted(weights)))
