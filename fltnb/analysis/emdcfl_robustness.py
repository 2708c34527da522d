"""What EMD-CFL's clusters depend on: distances after one local training, ARI at every tolerance, Tables 4, 5 and 9."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from .. import metrics
from ..methods.ownmodels import labels_at, plateau
from .client_distances import Found

if TYPE_CHECKING:
    import pandas as pd

    from ..store import Result

TOLERANCES = np.union1d(np.geomspace(0.001, 1.0, 46), [0.025])
EMD_PARTS = ("plateau", "reference", "sinkhorn", "sliced", "network, exact", "network, sinkhorn")
INPUTS, CLASSES = (3, 64, 64), 10  # Table 5's widths do not depend on them


def curves(found: Sequence[Found]) -> pd.DataFrame:
    """ARI at every tolerance: ``part, dataset, note, tolerance, ari`` (mean over seeds), ``seeds``."""
    import pandas as pd

    from ..relatedness import EMDClustering

    rows = []
    for one in found:
        if one.study.part in EMD_PARTS:
            label = {name: getattr(one.study, name) for name in ("part", "dataset", "note")}
            for tolerance in TOLERANCES:
                labels = EMDClustering(tolerance=tolerance).connect(one.distance, one.reference)[1]
                ari = metrics.adjusted_rand_index(one.clusters, labels)
                rows.append({**label, "tolerance": float(tolerance), "ari": float(ari)})
    keys = ["part", "dataset", "note", "tolerance"]
    return (
        pd.DataFrame(rows)
        .groupby(keys, sort=False)["ari"]
        .agg(["mean", "size"])
        .reset_index()
        .set_axis([*keys, "ari", "seeds"], axis=1)
    )


def summary(found: Sequence[Found]) -> pd.DataFrame:
    """One row per study of EMD-CFL's distances.

    Returns
    -------
    DataFrame
        ``part, dataset, note, seed, model, inside, inside_max, across, across_min`` (means and extremes of the larger
        direction; with one true cluster nothing is across, hence NaN and infinite), ``low, high`` (the tolerances
        between which the ARI is 1), ``reference`` (mean), ``ari`` (at 0.025), ``auto`` (the tolerance taken from the
        data), ``ari_auto``, ``training``, ``seconds``.
    """
    import pandas as pd

    from ..experiments.emdcfl import TOLERANCE

    rows = []
    for one in found:
        if one.study.measure["name"] != "EMDClustering" or one.study.part == "matrices":
            continue
        same = one.clusters[:, None] == one.clusters
        pairs = same & ~np.eye(len(same), dtype=bool)
        low, high = plateau(one.far, one.clusters)
        automatic, chosen = labels_at(one.distance, one.reference, "auto")
        rows.append(
            {name: getattr(one.study, name) for name in ("part", "dataset", "note", "seed", "model")}
            | {"inside": one.far[pairs].mean(), "inside_max": one.far[pairs].max()}
            | {"across": one.far[~same].mean() if not same.all() else np.nan}
            | {"across_min": one.far[~same].min(initial=np.inf)}
            | {"low": low, "high": high, "reference": one.reference.mean()}
            | {"ari": metrics.adjusted_rand_index(one.clusters, labels_at(one.distance, one.reference, TOLERANCE)[0])}
            | {"auto": chosen, "ari_auto": metrics.adjusted_rand_index(one.clusters, automatic)}
            | {"training": one.training, "seconds": one.seconds}
        )
    return pd.DataFrame(rows)


def given_k(one: Found) -> float:
    """ARI of average linkage of the distances, told the true number of clusters: whether they *show* the clusters."""
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    from ..relatedness.cuts import cut

    tree = linkage(squareform(one.far, checks=False), "average")
    return float(metrics.adjusted_rand_index(one.clusters, cut(tree, len(np.unique(one.clusters)))))


def matrices_table(found: Sequence[Found], part: str = "matrices") -> pd.DataFrame:
    """Figures 14 to 17, or 11 (``part="network, exact"``), as a table with one row per row of a matrix.

    Returns
    -------
    DataFrame
        ``dataset, measure`` (or network), ``client, cluster``, and columns ``0, 1, ...``: distances to four digits.
    """
    import pandas as pd

    rows = [
        {"dataset": one.study.dataset, "measure": one.study.note, "client": i, "cluster": int(one.clusters[i])}
        | {str(j): float(f"{value:.4g}") for j, value in enumerate(row)}
        for one in found
        if one.study.part == part
        for i, row in enumerate(one.distance)
    ]
    return pd.DataFrame(rows)


def matrices_from(table: pd.DataFrame) -> dict[str, tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Return data set -> (true clusters, measure -> matrix), of :func:`matrices_table`'s table, live or stored."""
    found = {}
    for dataset, part in table.groupby("dataset", sort=False):
        held = {}
        for name, rows in part.groupby("measure", sort=False):
            held[name] = rows[[str(j) for j in range(len(rows))]].to_numpy(dtype=float)
        found[dataset] = (rows["cluster"].to_numpy(), held)
    return found


def structure(table: pd.DataFrame) -> pd.DataFrame:
    """How far each kind of distance shows the clusters: one row per data set and measure.

    Parameters
    ----------
    table : DataFrame
        Of :func:`matrices_table`.

    Returns
    -------
    DataFrame
        ``dataset, measure, inside, across`` (means), ``across / inside``, ``separable`` (one threshold suffices) and
        ``ari`` of average linkage told the number of clusters.
    """
    import pandas as pd

    rows = []
    for dataset, (clusters, held) in matrices_from(table).items():
        same = clusters[:, None] == clusters
        pairs = same & ~np.eye(len(same), dtype=bool)
        for name, matrix in held.items():
            one = Found(None, matrix, np.full(len(matrix), np.nan), clusters, 0.0, 0.0)
            inside, across = one.far[pairs].mean(), one.far[~same].mean()
            rows.append(
                {"dataset": dataset, "measure": name, "inside": inside, "across": across}
                | {
                    "across / inside": across / inside,
                    "separable": one.far[pairs].max() < one.far[~same].min(),
                    "ari": given_k(one),
                }
            )
    return pd.DataFrame(rows)


def table9(table: pd.DataFrame) -> pd.DataFrame:
    """Table 9: mean parameter distance inside the clusters that EMD-CFL finds and of all pairs, beside the printed one.

    Returns
    -------
    DataFrame
        ``dataset, parameters`` (last layer or whole model), printed and reproduced means, ``clusters found`` (at
        0.025), ``inside true clusters``, ``ratio``.
    """
    import pandas as pd

    from ..experiments.emdcfl import TOLERANCE

    printed = _printed9()
    rows = []
    for dataset, (clusters, held) in matrices_from(table).items():
        emd = Found(None, held["emd"], np.zeros(len(clusters)), clusters, 0.0, 0.0)
        labels, _ = labels_at(emd.distance, emd.reference, TOLERANCE)
        for name, scope in (("last layer", "hypothesis"), ("parameters", "full_model")):
            inside, true, overall = (_mean(held[name], which) for which in (labels, clusters, clusters * 0))
            theirs = [printed.get((dataset, scope, which), np.nan) for which in ("clusters", "overall")]
            rows.append(
                {"dataset": dataset, "parameters": name.replace("parameters", "whole model")}
                | {"inside, printed": theirs[0], "overall, printed": theirs[1], "ratio, printed": theirs[0] / theirs[1]}
                | {"inside": inside, "overall": overall, "ratio": inside / overall}
                | {"inside true clusters": true, "clusters found": int(labels.max()) + 1}
            )
    return pd.DataFrame(rows)


def _mean(matrix: np.ndarray, labels: np.ndarray) -> float:
    pairs = (labels[:, None] == labels) & ~np.eye(len(labels), dtype=bool)
    return float(matrix[pairs].mean()) if pairs.any() else float("nan")


def _printed9() -> dict[tuple[str, str, str], float]:
    from .. import published

    found = {}
    for row in published.numbers("emdcfl", "T9").itertuples():
        params = json.loads(row.params)
        found[row.dataset, params["parameters"], params["scope"]] = row.number
    return found


def wall_time(results: Sequence[Result]) -> pd.DataFrame:
    """Table 4: seconds of EMD-CFL beside the Oracle's, seed by seed, and the printed hours.

    Returns
    -------
    DataFrame
        ``setting, oracle, emdcfl, unit, ratio``.
    """
    import pandas as pd

    from .. import published

    printed = published.numbers("emdcfl", "T4").set_index("method")["number"]
    rows = [("printed (data set not named)", printed["oracle"], printed["emdcfl"], "hours")]
    took = {(one.spec.seed, one.spec.method_id): float(one.provenance["seconds"]) for one in results}
    for seed in dict.fromkeys(one.spec.seed for one in results):
        rows.append((f"seed {seed}", took[seed, "oracle"], took[seed, "emdcfl"], "seconds"))
    table = pd.DataFrame(rows, columns=["setting", "oracle", "emdcfl", "unit"])
    return table.assign(ratio=table["emdcfl"] / table["oracle"])


def shares(table: pd.DataFrame, rounds: int = 10) -> pd.DataFrame:
    """Compare what clustering takes with so many rounds of training, network by network.

    Parameters
    ----------
    table : DataFrame
        Of :func:`summary`.
    rounds : int
        The paper has 10.

    Returns
    -------
    DataFrame
        ``model, distance, training`` (seconds of everybody's local training in one round), ``distances`` (seconds),
        ``added`` (share of ``rounds`` rounds of training). Averaging and tests are left out.
    """
    rows = table[table["part"].str.startswith("network")]
    return (
        rows.assign(distance=rows["part"].str.split(", ").str[1], added=rows["seconds"] / (rounds * rows["training"]))
        .rename(columns={"seconds": "distances"})[["model", "distance", "training", "distances", "added"]]
        .reset_index(drop=True)
    )


def widths(profile: str) -> pd.DataFrame:
    """Table 5: embedding dimensions, printed and of our networks (with random weights, which have the same width).

    In ``demo`` that of the first network alone: the others take seconds to build.
    """
    import pandas as pd

    from .. import models, published

    ours = {"simple_cnn": "emdcfl_cnn", "vit_b16": "vit_b_16"}
    rows = []
    printed = published.numbers("emdcfl", "T5", metric="embedding_dim").drop_duplicates("model")
    for row in printed.head(1 if profile == "demo" else None).itertuples():
        name = ours.get(row.model, row.model)
        net = models.make(name if name == "emdcfl_cnn" else f"{name}:random", INPUTS, CLASSES)
        rows.append((name, int(row.number), net.n_features, net.n_features - int(row.number)))
    return pd.DataFrame(rows, columns=["network", "printed", "ours", "difference"])


def stored_cost() -> pd.DataFrame | None:
    """Return the committed table of ``benchmarks/methods.py``, or None where nobody has saved one."""
    import pandas as pd

    from .. import paths

    path = paths.results("small") / "methods_cost.csv"
    return pd.read_csv(path) if path.exists() else None


def ranges(table: pd.DataFrame, *parts: str) -> pd.DataFrame:
    """Where epsilon works: one row per part, data set and variant, the range common to all seeds.

    Parameters
    ----------
    table : DataFrame
        Of :func:`summary`.
    *parts : str
        Of the studies to show; all where none is given.

    Returns
    -------
    DataFrame
        ``part, dataset, variant, works`` (range of tolerances with ARI 1 in all seeds), ``seeds`` with such a range,
        ``ARI at 0.025``, ``auto`` and ``ARI, auto`` (means), ``seconds`` of the distances.
    """
    import pandas as pd

    rows = []
    table = table[table["part"].isin(parts)] if parts else table
    for (part, dataset, note), runs in table.groupby(["part", "dataset", "note"], sort=False):
        low, high = runs["low"].max(), runs["high"].min()
        some = int((runs["low"] < runs["high"]).sum())
        words = f"{low:.4f} to {high:.4f}" if np.isfinite(high) else f"{low:.4f} and more"
        words = words if low < high and some == len(runs) else "none"
        rows.append(
            {"part": part, "dataset": dataset, "variant": note, "works": words, "seeds": f"{some} of {len(runs)}"}
            | {"ARI at 0.025": runs["ari"].mean(), "auto": f"{runs['auto'].mean():.3f}"}
            | {"ARI, auto": runs["ari_auto"].mean(), "seconds": runs["seconds"].mean()}
        )
    return pd.DataFrame(rows)


def seeds_right(table: pd.DataFrame) -> pd.DataFrame:
    """In how many seeds each tolerance finds the clusters: what *one* epsilon for all data sets can do.

    Parameters
    ----------
    table : DataFrame
        Of :func:`summary`; its part "one epsilon" is taken.

    Returns
    -------
    DataFrame
        ``dataset, tolerance, right`` (seeds with ARI 1), ``seeds``; sorted by tolerance. Besides :data:`TOLERANCES`
        the tolerances at which some count changes, up to which it holds.
    """
    import pandas as pd

    table = table[table["part"] == "one epsilon"]
    if not len(table):
        return pd.DataFrame(columns=["dataset", "tolerance", "right", "seeds"])
    ends = np.concatenate([table["low"], table["high"]])
    tolerances = np.union1d(TOLERANCES, ends[np.isfinite(ends)])
    rows = []
    for dataset, runs in table.groupby("dataset", sort=False):
        low, high = (runs[name].to_numpy()[:, None] for name in ("low", "high"))
        right = ((low < tolerances) & (tolerances <= high)).sum(axis=0)
        rows.append(pd.DataFrame({"dataset": dataset, "tolerance": tolerances, "right": right, "seeds": len(runs)}))
    return pd.concat(rows, ignore_index=True)


def one_epsilon(right: pd.DataFrame, share: float = 0.9) -> tuple[float, float] | None:
    """Return the widest range of tolerances that find the clusters in a share of the seeds of every data set.

    Parameters
    ----------
    right : DataFrame
        Of :func:`seeds_right`.
    share : float
        Of the seeds.

    Returns
    -------
    (low, high) or None
        The tolerance must be above the first and at most the second; None where there is no such range.
    """
    good = (right["right"] >= share * right["seeds"]).groupby(right["tolerance"]).all()
    ends = [0.0, *good.index]  # from one end to the next, the latter included, nothing changes
    fitting = [list(places) for fits, places in groupby(range(len(good)), key=list(good).__getitem__) if fits]
    ranges = [(float(ends[places[0]]), float(ends[places[-1] + 1])) for places in fitting]
    return max(ranges, key=lambda each: each[1] / max(each[0], np.finfo(float).tiny), default=None)


def chosen(table: pd.DataFrame, part: str) -> dict[tuple[str, str], tuple[float, float]]:
    """Return (data set, variant) -> the tolerance taken from the data and its ARI, of the first seed."""
    rows = table[(table["part"] == part) & (table["seed"] == 0)]
    return {(row.dataset, row.note): (row.auto, row.ari_auto) for row in rows.itertuples()}
