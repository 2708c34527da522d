"""HypoCluster: clients choose among K hypotheses by loss (Mansour et al., arXiv 2002.10619)."""

from __future__ import annotations

from typing import Literal

from ..settings import Count
from .ifca import IFCA


class HypoCluster(IFCA):
    """The row HypoCluster(K) of FeSEM's tables: IFCA's alternation under another name.

    Two groups published it at about the same time: send all hypotheses, let every participant choose the one of least
    loss and train it, average inside the groups. IFCA's warm-up and shared layers are not part of this row.

    Parameters
    ----------
    n_clusters : int
        Number of hypotheses K.
    split : {"train", "val"}
        Data on which participants compare them.
    """

    name = "hypocluster"

    def __init__(self, n_clusters: Count, split: Literal["train", "val"] = "train"):
        super().__init__(n_clusters)
