"""Distances between clients that have trained alone once: embeddings, parameters, updates, inputs.

Everybody trains from a common start (EMD-CFL, Algorithm 1, the first round). A matrix of distances is kept in the
store; clients are trained again only where one is missing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..methods.ownmodels import local_models, measure
from ..rounds import plain

if TYPE_CHECKING:
    from ..experiments.emdcfl_robustness import Study


@dataclass(frozen=True)
class Found:
    """What a study gave.

    Attributes
    ----------
    study : Study
    distance : ndarray (M, M)
        As measured; of EMD-CFL row i under the network of client i, so not symmetric.
    reference : ndarray (M,)
        What EMD-CFL subtracted; NaN for other distances.
    clusters : ndarray (M,)
        True clusters.
    training, seconds : float
        Wall seconds of everybody's local training, and of this matrix with its embeddings.
    """

    study: Study
    distance: np.ndarray
    reference: np.ndarray
    clusters: np.ndarray
    training: float
    seconds: float

    @property
    def far(self) -> np.ndarray:
        """The larger of both directions, at least 0, (M, M): what is compared with the tolerance."""
        from ..relatedness.emd import farther

        return farther(self.distance)


def compute(studies: Sequence[Study], n_jobs: int = 1, progress: bool = True) -> list[Found]:
    """Return what the studies give, in their order: from the store, or computed and stored.

    Studies of the same models train them once. ``n_jobs`` processes measure distances; no influence on the result.
    """
    from ..progress import bar

    groups: dict[str, list[int]] = {}
    for place, study in enumerate(studies):
        groups.setdefault(json.dumps(plain(study.models()), sort_keys=True), []).append(place)
    found: dict[int, Found] = {}
    for places in bar(groups.values(), progress, total=len(groups), desc="local models"):
        found |= zip(places, _group([studies[place] for place in places], n_jobs), strict=True)
    return [found[place] for place in range(len(studies))]


def _group(studies: list[Study], n_jobs: int) -> Iterator[Found]:
    """Everything that is measured on the same models, which are trained only if something is missing."""
    from .. import federations, store

    first = studies[0]
    fed = federations.build(first.federation)
    trained: list[Any] = []

    def ready():
        if not trained:
            begun = time.perf_counter()
            made = local_models(fed, first.model, first.training, first.seed)
            trained.extend((*made, time.perf_counter() - begun))
        return trained

    for study in studies:
        named = study.measure["name"] == "EMDClustering"
        key = {"study": study.models(), "measure": study.measure, "federation": fed.fingerprint()}
        key |= {"clusterer": study.measure} if named else {}

        def work(study=study) -> dict[str, np.ndarray]:
            net, start, theta, training = ready()
            begun = time.perf_counter()
            distance, reference = measure(fed, net, start, theta, study.measure, study.seed, n_jobs)
            seconds = time.perf_counter() - begun
            return {"distance": distance, "reference": reference, "seconds": np.array([training, seconds])}

        held = store.cached_arrays(key, work)
        yield Found(study, held["distance"], held["reference"], fed.clusters, *map(float, held["seconds"]))
