"""FedCollab: FedAvg inside coalitions that balance distances and sample sizes.

Bao et al., ICML 2023 (arXiv 2306.06508).
"""

from dataclasses import dataclass, field

from ... import clustering
from ..flt import OneShot


@dataclass(eq=False, repr=False)
class FedCollab(OneShot):
    """One clustering of the clients' samples and classes, then FedAvg in the clusters.

    Bao et al., ICML 2023 (arXiv 2306.06508). :class:`fltnb.clustering.FedCollab`
    explains the comparison. Its traffic before round 1 is counted, and is large.
    Newcomers stand alone.

    Parameters
    ----------
    clusterer : fltnb.clustering.FedCollab, optional
        ``fltnb.clustering.FedCollab()`` by default; its ``c`` determines the number of
        clusters.
    encoder : EncoderSpec, optional
        The encoder whose outputs the networks get; raw pixels by default. (For colour
        images the authors' runs used the outputs of a network with ImageNet weights.)
    rule, name
        See :class:`fltnb.methods.FLT`.
    joining : {"alone", "placed"}
        Clients that join later stand alone; "placed" raises FltnbError when one joins,
        as this clusterer cannot place it.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> method = fl.methods.FedCollab(
    ...     fl.FedCollab(c=1.0, rounds=20, hidden=8, n_orders=5)
    ... )
    >>> run = fl.run(method, fed, "mlp32", rounds=2, participation=1.0, progress=False)
    >>> run.labels.shape, run.accuracy > 0
    ((6,), True)
    """

    name: str = field(default="fedcollab", kw_only=True)
    default = clustering.FedCollab
    kind = clustering.FedCollab
