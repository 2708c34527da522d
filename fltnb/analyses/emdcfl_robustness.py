"""EMD-CFL's Tables 4, 5 and 9 (arXiv 2506.07769, Appendix D)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from .. import federations, models
from ..clustering import EMDClustering
from ..methods import EMDCFL, Oracle
from ..methods.ownmodels import labels_at, local_models, measure
from ..metrics import adjusted_rand_index
from ..rounds import run

Settings = Mapping[str, Any]

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


def table4(
    federation: Settings, model: str, seed: int = 0, **training: Any
) -> dict[str, Any]:
    """Table 4: hours of the oracle and of EMD-CFL, and how they compare.

    Both are tested at the end alone, so that their seconds are those of training.
    ``training``: options of :func:`fltnb.run`, ``rounds`` among them. Returns a dict:
    ``numbers`` with the ``ratio``, ``tables`` with ``printed``.
    """
    fed = federations.build(federation)
    how = {**training, "eval_every": training["rounds"], "seed": seed}
    oracle = run(Oracle(), fed, model, **how, progress=False).seconds
    method = EMDCFL(EMDClustering(0.025))
    emdcfl = run(method, fed, model, **how, progress=False).seconds
    hours = {"method": ["oracle", "emdcfl"], "value": [oracle / 3600, emdcfl / 3600]}
    departs = "small networks and few images, on another machine"
    printed = pd.DataFrame(hours).assign(otherwise=departs)
    return {"numbers": {"ratio": emdcfl / oracle}, "tables": {"printed": printed}}


def table5(networks: Mapping[str, str]) -> dict[str, Any]:
    """Table 5: embedding dimensions of networks, with random weights.

    ``networks``: name in print -> ours. Returns a dict of ``tables``: ``printed``.
    """
    rows = []
    for name, ours in networks.items():
        weights = "" if ours == "emdcfl_cnn" else ":random"
        # neither inputs nor classes change the width
        net = models.make(ours + weights, (3, 64, 64), 10)
        for dataset in TABLE5_DATA.get(name, ["cifar10"]):
            rows.append((dataset, name, "embedding_dim", net.n_features))
    columns = ["dataset", "model", "metric", "value"]
    return {"tables": {"printed": pd.DataFrame(rows, columns=columns)}}


def table9(
    federation: Settings, model: str, seed: int = 0, **training: Any
) -> dict[str, Any]:
    """Table 9: mean distances of last layers and of whole models, inside and overall.

    Returns a dict: ``numbers`` are the ``n_clusters`` that EMD-CFL finds at 0.025 and
    their ``ari``; ``tables`` has ``printed``, with the scopes "clusters" (those found)
    and "overall" of the paper, and "true", inside the true clusters.

    Parameters
    ----------
    federation : settings
    model : network
    **training : options of the local training
    """
    fed = federations.build(federation)
    trained = local_models(fed, model, training, seed)
    distances = {}
    for name in ("EMDClustering", "last layer", "parameters"):
        distance, _ = measure(fed, *trained, {"name": name}, seed)
        distances[name] = distance.astype(np.float32)

    clusters = np.asarray(fed.clusters)
    references = np.zeros(len(clusters))
    labels, _ = labels_at(distances["EMDClustering"], references, 0.025)
    scopes = {"clusters": labels, "overall": np.zeros_like(labels), "true": clusters}
    rows = []
    for name, of in {"hypothesis": "last layer", "full_model": "parameters"}.items():
        for scope, groups in scopes.items():
            rows.append((name, scope, _mean_inside(distances[of], groups)))

    numbers = {
        "n_clusters": int(labels.max()) + 1,
        "ari": float(adjusted_rand_index(clusters, labels)),
    }
    printed = pd.DataFrame(rows, columns=["parameters", "scope", "value"])
    return {"numbers": numbers, "tables": {"printed": printed}}


def _mean_inside(distance: np.ndarray, groups: np.ndarray) -> float:
    """Return the mean distance of two clients of one group; NaN if all are alone."""
    same = np.equal.outer(groups, groups)
    np.fill_diagonal(same, False)
    return float(distance[same].mean()) if same.any() else float("nan")
