"""HypoCluster(K) of FeSEM's tables (Mansour et al., arXiv 2002.10619)."""

from dataclasses import dataclass
from typing import ClassVar

from .ifca import IFCA


@dataclass(eq=False, repr=False)
class HypoCluster(IFCA):
    """IFCA without warm-up and shared layers, as in FeSEM's tables.

    Mansour et al., arXiv 2002.10619.

    Parameters
    ----------
    n_clusters, split
        See :class:`fltnb.methods.IFCA`.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.HypoCluster(n_clusters=3)
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    name = "hypocluster"

    warmup: ClassVar = 0  # type: ignore[misc]  # no option here
    shared: ClassVar = "none"  # type: ignore[misc]  # no option here
    starts: ClassVar = 1  # type: ignore[misc]  # no option here
