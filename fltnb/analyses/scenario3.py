"""Images of the clients in FLT's scenario 3 (arXiv 2103.15947, Section 4.5)."""

import numpy as np

from .. import federations
from .studies import Settings, Study


def handwriting(federation: Settings, writers: int = 5, each: int = 10) -> Study:
    """Return the first training images of a few clients.

    Parameters
    ----------
    federation : settings
    writers, each : int
        Clients, and images of each.

    Returns
    -------
    dict
        Array ``images`` (writers, each, height, width) uint8.
    """
    fed = federations.build(federation)
    first = [fed.images[own[:each]] for own in fed.train[:writers]]
    return {"arrays": {"images": np.stack(first)}}
