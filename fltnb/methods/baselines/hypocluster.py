"""HypoCluster(K) of FeSEM's tables (Mansour et al., arXiv 2002.10619)."""

from dataclasses import dataclass
from typing import ClassVar

from .ifca import IFCA


@dataclass(eq=False, repr=False)
class HypoCluster(IFCA):
    """IFCA's alternation alone."""

    name = "hypocluster"

    warmup: ClassVar = 0
    shared: ClassVar = "none"
    starts: ClassVar = 1
