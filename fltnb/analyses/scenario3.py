"""What the clients of FLT's scenario 3 write (arXiv 2103.15947, Section 4.5)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import federations


def handwriting(
    federation: Mapping[str, Any], writers: int = 5, each: int = 10
) -> dict[str, Any]:
    """Return the first training images of a few clients.

    Returns a dict: ``arrays``: ``images`` (writers, each, height, width) uint8.
    """
    fed = federations.build(federation)
    first = [fed.images[own[:each]] for own in fed.train[:writers]]
    return {"arrays": {"images": np.stack(first)}}
