"""FedCollab: FedAvg inside coalitions that weigh distances against few samples.

Bao et al., ICML 2023 (arXiv 2306.06508).
"""

from dataclasses import dataclass, field

from ... import clustering
from ..flt import OneShot


@dataclass(eq=False, repr=False)
class FedCollab(OneShot):
    """One clustering of the clients' samples and classes, then FedAvg in the clusters.

    :class:`fltnb.clustering.FedCollab` says what is compared; what it moves before
    round 1 is counted, and is much. Newcomers stand alone.

    Parameters
    ----------
    clusterer : fltnb.clustering.FedCollab, optional
        Its ``c`` decides how many clusters there are.
    encoder : EncoderSpec, optional
        What the networks see of an image; raw pixels by default. (Colour images: the
        outputs of a network with ImageNet weights in the authors' runs.)
    rule
        See :class:`fltnb.methods.graph.GraphMethod`.
    """

    name: str = field(default="fedcollab", kw_only=True)
    default = clustering.FedCollab
    kind = clustering.FedCollab
