"""The clients' data in FLT's scenario 2 (arXiv 2103.15947, Section 4.4)."""

import numpy as np

from .. import federations
from .studies import Settings, Study


def holdings(federation: Settings) -> Study:
    """Count the samples that the clients of a federation hold.

    Returns
    -------
    dict
        Numbers: ``images`` (different training images) and ``held_twice`` (those that
        several clients hold). Arrays: ``label_counts`` (M, classes) of the training
        images, and the true ``clusters`` (M,).
    """
    fed = federations.build(federation)
    held = np.concatenate([np.unique(own) for own in fed.train])
    images, holders = np.unique(held, return_counts=True)
    numbers = {"images": len(images), "held_twice": int((holders > 1).sum())}
    counts = np.asarray(fed.label_counts("train"), dtype=np.int32)
    arrays = {"label_counts": counts, "clusters": fed.clusters}
    return {"numbers": numbers, "arrays": arrays}
