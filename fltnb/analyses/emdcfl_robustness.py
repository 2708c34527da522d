"""EMD-CFL's Tables 4, 5 and 9 (arXiv 2506.07769, Appendices D.1, D.2 and E.8)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from .. import federations
from ..clustering import EMDClustering
from ..methods import EMDCFL, Oracle
from ..methods.ownmodels import labels_at, local_models, measure
from ..metrics import adjusted_rand_index
from ..rounds import run
from .studies import Settings, Study

NETWORKS = {
    "simple_cnn": "emdcfl_cnn",
    "vit_b16": "vit_b_16",
    "resnet18": "resnet18",
    "resnet50": "resnet50",
    "efficientnet_b3": "efficientnet_b3",
    "convnext_base": "convnext_base",
}
"""Networks of Table 5: name in print -> ours."""
TABLE5_DATA = {"simple_cnn": ["mnist"], "resnet18": ["cifar10", "pacs"]}
"""Data beside which Table 5 prints a network, where it is not CIFAR-10."""
COMPARED = {"hypothesis": "last layer", "full_model": "parameters"}
"""What Table 9 compares, in print -> name of the distance."""


def table4(federation: Settings, model: str, seed: int = 0, **training: Any) -> Study:
    """Table 4: hours of the oracle and of EMD-CFL, and how they compare.

    Both are tested only at the end, so that their seconds are those of training.

    Parameters
    ----------
    federation : settings
    model : str
    seed : int
    **training
        Options of :func:`fltnb.run`, ``rounds`` among them.

    Returns
    -------
    dict
        Numbers: the ``ratio``. Table ``printed``.
    """
    fed = federations.build(federation)
    at_end = {"eval_every": training["rounds"], "seed": seed, "progress": False}
    how = training | at_end
    oracle = run(Oracle(), fed, model, **how).seconds
    emdcfl = run(EMDCFL(EMDClustering(0.025)), fed, model, **how).seconds
    hours = {
        "method": ["oracle", "emdcfl"],
        "value": [oracle / 3600, emdcfl / 3600],
        "otherwise": "small networks and few images, on another machine",
    }
    printed = pd.DataFrame(hours)
    return {"numbers": {"ratio": emdcfl / oracle}, "tables": {"printed": printed}}


def table5(networks: Mapping[str, str]) -> Study:
    """Table 5: embedding dimensions of networks, with random weights.

    Parameters
    ----------
    networks : dict
        Name in print -> ours.

    Returns
    -------
    dict
        Table ``printed``.
    """
    from .. import models

    rows = []
    for name, ours in networks.items():
        weights = "" if ours == "emdcfl_cnn" else ":random"
        # neither inputs nor classes change the width
        net = models.make(ours + weights, (3, 64, 64), 10)
        for dataset in TABLE5_DATA.get(name, ["cifar10"]):
            row = {
                "dataset": dataset,
                "model": name,
                "metric": "embedding_dim",
                "value": net.n_features,
            }
            rows.append(row)
    return {"tables": {"printed": pd.DataFrame(rows)}}


def table9(federation: Settings, model: str, seed: int = 0, **training: Any) -> Study:
    """Table 9: mean distances of last layers and of whole models, inside and overall.

    Parameters
    ----------
    federation : settings
    model : str
    seed : int
    **training
        Options of the local training.

    Returns
    -------
    dict
        Numbers: ``n_clusters`` that EMD-CFL finds at 0.025 and their ``ari``. Table
        ``printed``, with the scopes "clusters" (those found) and "overall" of the
        paper, and "true", inside the true clusters.
    """
    fed = federations.build(federation)
    trained = local_models(fed, model, training, seed)

    def distances(name: str) -> np.ndarray:
        found, _ = measure(fed, *trained, {"name": name}, seed)
        return found.astype(np.float32)

    clusters = np.asarray(fed.clusters)
    nowhere = np.zeros(len(clusters))
    labels, _ = labels_at(distances("EMDClustering"), nowhere, 0.025)
    scopes = {"clusters": labels, "overall": np.zeros_like(labels), "true": clusters}
    rows = []
    for name, compared in COMPARED.items():
        distance = distances(compared)
        for scope, groups in scopes.items():
            mean = _mean_inside(distance, groups)
            rows.append({"parameters": name, "scope": scope, "value": mean})

    numbers = {
        "n_clusters": int(labels.max()) + 1,
        "ari": float(adjusted_rand_index(clusters, labels)),
    }
    return {"numbers": numbers, "tables": {"printed": pd.DataFrame(rows)}}


def _mean_inside(distance: np.ndarray, groups: np.ndarray) -> float:
    """Return the mean distance of two clients of one group; NaN if all are alone."""
    same = np.equal.outer(groups, groups)
    np.fill_diagonal(same, False)
    if not same.any():
        return float("nan")
    return float(distance[same].mean())
