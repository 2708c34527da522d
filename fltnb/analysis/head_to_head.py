"""Notebook 15: tables of difficulty, ranks of methods over federations, and what to use when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..experiments import head_to_head as plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.figure import Figure

    from ..notebook import Claims

FOUND = 0.95  # adjusted Rand index that counts as having found the clusters
NEAR = 1.0  # percentage points of accuracy that count as equal
REFERENCE = ("oracle",)  # not a competitor: it is told the clusters
FREE = tuple(m for m in plan.METHODS if m not in (*plan.NO_CLUSTERS, *plan.TOLD_K, *plan.NEEDS_K, *REFERENCE))
"""Methods that find clusters by themselves."""


def difficulty_table(table: pd.DataFrame, axis: str) -> pd.DataFrame:
    """Mean ARI over seeds: one row per clusterer with and without K, one column per level, harder to the right.

    Parameters
    ----------
    table : DataFrame
        Rows of :func:`fltnb.oneshot.compute` for ``experiments.head_to_head.clusterings``.
    axis : str
        One of ``experiments.head_to_head.AXES``.
    """
    part = table[table["axis"] == axis]
    wide = part.pivot_table(index=["method", "K"], columns="level", values="ari", aggfunc="mean", sort=False)
    wide = wide[sorted(wide.columns, reverse=axis in plan.HARDER_IS_LESS)]
    wide.columns = [f"{level:g}" for level in wide.columns]
    return wide.reset_index()


def endurance(table: pd.DataFrame) -> pd.DataFrame:
    """Hardest level that each clusterer bears on each axis, and its mean ARI over everything.

    A level is borne if the mean ARI over seeds is at least :data:`FOUND` there and at all easier levels; "none" if not
    even the easiest one is. The mean gives every axis the same weight, with all its levels.
    """
    import pandas as pd

    rows = []
    for (method, known), part in table.groupby(["method", "K"], sort=False):
        row = {"method": method, "K": known}
        means = []
        for axis in plan.AXES:
            own = part[part["axis"] == axis].groupby("level")["ari"].mean()
            if not len(own):
                row[axis] = ""  # not studied
                continue
            own = own.sort_index(ascending=axis not in plan.HARDER_IS_LESS)
            borne = own[(own >= FOUND).cummin()]
            row[axis] = f"{borne.index[-1]:g}" if len(borne) else "none"
            means.append(own.mean())
        rows.append(row | {"ARI, mean": float(np.mean(means)), "axes": len(means)})
    return pd.DataFrame(rows).sort_values(["K", "ARI, mean"], ascending=False, ignore_index=True)


def result_table(tidy: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """One federation: clusters, accuracy, fairness and cost of every method, means over seeds, best accuracy first.

    Parameters
    ----------
    tidy : DataFrame
        :func:`fltnb.store.tidy` of the runs.
    dataset : str
        Name of a federation (``experiments.head_to_head.kinds``).

    Returns
    -------
    DataFrame
        ``± seeds`` is the standard deviation of the accuracy over seeds, ``spread over clients`` the standard deviation
        over clients (root of the mean variance); MB are bytes up and down, with what is sent before round 1.
    """
    import pandas as pd

    part = tidy[tidy["dataset"] == dataset]
    tested = part[part["split"] == "test"]

    def over_seeds(rows: pd.DataFrame, metric: str, how: str = "mean") -> pd.Series:
        return rows[rows["metric"] == metric].groupby("method", sort=False)["value"].agg(how)

    notes = part.groupby("method", sort=False)["note"].first()
    out = pd.DataFrame(
        {
            "told": notes.replace("", "-"),
            "ARI": over_seeds(part, "ari"),
            "clusters": over_seeds(part, "n_clusters"),
            "accuracy": over_seeds(tested, "accuracy"),
            "± seeds": over_seeds(tested, "accuracy", "std"),
            "worst client": over_seeds(tested, "worst"),
            "spread over clients": over_seeds(tested, "accuracy_variance") ** 0.5,
            "MB": over_seeds(part, "bytes") / 1e6,
            "seconds": over_seeds(part, "seconds"),
        }
    )
    out = out.sort_values("accuracy", ascending=False, kind="stable")
    return out.rename_axis("method").reset_index()


def grid(tidy: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return one number per method (rows, in the order of the plan) and federation (columns), mean over seeds.

    ``metric``: "ari", "worst", or "accuracy", the latter as percentage points behind the best method of the federation
    (0 for that one; the oracle takes part).
    """
    rows = tidy[(tidy["metric"] == metric) & tidy["split"].isin(["", "test"])]
    wide = rows.pivot_table(index="method", columns="dataset", values="value", aggfunc="mean", sort=False)
    wide = wide.reindex([m for m in plan.METHODS if m in wide.index])
    return wide - wide.max() if metric == "accuracy" else wide


def ranks(tidy: pd.DataFrame) -> pd.DataFrame:
    """Rank the methods by accuracy on every federation, seed by seed; 1 is best, equal accuracies share their mean.

    The oracle, which knows the clusters, has no rank. Only methods that ran on every federation have one.

    Returns
    -------
    DataFrame
        One row per method, best first: ``mean rank``; ``± seeds``, standard deviation over seeds of the mean rank of a
        seed (empty with one seed); ``± federations``, standard deviation over federations of the mean rank on one;
        ``best``, ``worst``: lowest and highest mean rank on a federation; and that rank for each of them.
    """
    import pandas as pd

    rows = tidy[(tidy["metric"] == "accuracy") & (tidy["split"] == "test") & ~tidy["method"].isin(REFERENCE)]
    wide = rows.pivot_table(index=["dataset", "seed"], columns="method", values="value", sort=False).dropna(axis=1)
    placed = wide.round(6).rank(axis=1, ascending=False)
    by_federation = placed.groupby(level="dataset", sort=False).mean()
    by_seed = placed.groupby(level="seed").mean()
    out = pd.DataFrame(
        {
            "mean rank": by_federation.mean(),
            "± seeds": by_seed.std(),
            "± federations": by_federation.std(),
            "best": by_federation.min(),
            "worst": by_federation.max(),
        }
    )
    out = out.join(by_federation.T).sort_values("mean rank", kind="stable")
    return out.rename_axis("method").reset_index()


def costs(tidy: pd.DataFrame) -> pd.DataFrame:
    """Bytes and seconds relative to FedAvg's on the same federation and seed: median over runs, cheapest first."""
    import pandas as pd

    wide = {}
    for metric in ("bytes", "seconds"):
        rows = tidy[tidy["metric"] == metric]
        values = rows.pivot_table(index=["dataset", "seed"], columns="method", values="value", sort=False)
        wide[f"{metric}, times FedAvg's"] = values.div(values["fedavg"], axis=0).median()
    out = pd.DataFrame(wide).sort_values("bytes, times FedAvg's", kind="stable")
    return out.rename_axis("method").reset_index()


def advice(table: pd.DataFrame, tidy: pd.DataFrame) -> str:
    """Say what to use when, in one paragraph whose every statement is read off the two tables (Markdown)."""
    from ..plots import style

    def names(methods: Sequence[str]) -> str:
        return ", ".join(f"**{style(method).label}**" for method in methods)

    placed = ranks(tidy).set_index("method")["mean rank"]
    groups = {
        "no number of clusters is known and clusters are to be found": FREE,
        "the number of clusters is known": (*plan.TOLD_K, *plan.NEEDS_K),
        "no clusters are wanted at all": plan.NO_CLUSTERS,
    }
    said = []
    for when, members in groups.items():
        own = placed[placed.index.isin(members)]
        if len(own):
            near = own[own <= own.min() + 1]
            ranked = ", ".join(f"{value:.1f}" for value in near)
            said.append(
                f"Where {when}: {names(near.index)} (mean rank {ranked} of {len(placed)}, all within one of the best)."
            )
    behind = grid(tidy, "accuracy")
    worst = behind.drop(index=[m for m in REFERENCE if m in behind.index]).min(axis=1)
    safe = worst.nlargest(1)
    said.append(
        f"What loses least where it does worst is {names(safe.index)}, never more than {-safe.iloc[0]:.1f} points"
        " behind the best."
    )
    bytes_ = costs(tidy).set_index("method")["bytes, times FedAvg's"]
    one = [m for m in placed.index if placed[m] <= placed.min() + 2]
    cheap = min(one, key=lambda m: (bytes_[m], placed[m]))
    said.append(
        f"Of those within two ranks of the best, {names([cheap])} sends least, {bytes_[cheap]:.2f} times what FedAvg"
        " does."
    )
    borne = endurance(table)
    for known, words in (("not given", "without being told K"), ("given", "told K")):
        own = borne[borne["K"] == known]
        if len(own):
            best = own.iloc[0]
            said.append(
                f"Of the one-shot clusterers {words}, {names([best['method']])} has the highest mean ARI over all axes"
                f" ({best['ARI, mean']:.2f})."
            )
    return " ".join(said)


def curves_figure(table: pd.DataFrame, title: str = "") -> tuple[Figure, np.ndarray]:
    """Draw all axes of difficulty, see :func:`fltnb.plots.difficulty_curves`."""
    from .. import plots

    return plots.difficulty_curves(table, plan.AXES, plan.HARDER_IS_LESS, title)


def head_to_head_claims(table: pd.DataFrame, tidy: pd.DataFrame | None) -> Claims:
    """Check what we expected; none of it is any paper's claim."""
    from ..notebook import Claims

    claims = Claims()
    _of_clusterers(claims, table)
    if tidy is not None:
        _of_methods(claims, tidy)
    return claims


def _of_clusterers(claims: Claims, table: pd.DataFrame) -> None:
    mean = table.groupby(["axis", "level", "K", "method"])["ari"].mean()
    easy = {
        axis: (max if axis in plan.HARDER_IS_LESS else min)(table.loc[table["axis"] == axis, "level"])
        for axis in dict.fromkeys(table["axis"])
    }
    solved = {axis: int((mean[axis, level, "given"] >= FOUND).sum()) for axis, level in easy.items()}
    claims.check(
        "Easy levels do not separate: with K given, two clusterers or more find the clusters there on every axis",
        min(solved.values()) >= 2,
        ", ".join(f"{axis} {n}" for axis, n in solved.items()),
    )
    blind = table[table["K"] == "not given"]
    best = {a: part.groupby("method")["ari"].mean().round(3) for a, part in blind.groupby("axis", sort=False)}
    leaders = {axis: sorted(own[own == own.max()].index) for axis, own in best.items()}
    common = set.intersection(*map(set, leaders.values()))
    claims.check(
        "No clusterer leads on every axis while K is not given",
        not common,
        "; ".join(f"{axis}: {', '.join(names)}" for axis, names in leaders.items()),
    )
    both = table[table["method"].isin(table.loc[table["K"] == "given", "method"])]
    by_k = both.groupby(["method", "K"])["ari"].mean().unstack()
    claims.check(
        "Every clusterer that can be told K gains from it",
        bool((by_k["given"] >= by_k["not given"]).all()),
        ", ".join(f"{m} {row['not given']:.2f} to {row['given']:.2f}" for m, row in by_k.iterrows()),
    )
    full = table[(table["axis"] == "overlap") & (table["level"] == 100)]
    if len(full):
        blind = full[full["K"] == "not given"]
        single = (blind["n_clusters"] == 1).groupby(blind["method"], sort=False).all()
        claims.check(
            "Where all clients draw from one pool, every clusterer that chooses K says one cluster",
            bool(single.all()),
            f"{int(single.sum())} of {len(single)} always do: {', '.join(single[single].index)}",
        )


def _of_methods(claims: Claims, tidy: pd.DataFrame) -> None:
    last = tidy[tidy["split"].isin(["", "test"])]
    wide = last.pivot_table(index=["dataset", "seed", "method"], columns="metric", values="value", sort=False)
    accuracy = wide["accuracy"].unstack()
    ari = wide["ari"].unstack().reindex(columns=accuracy.columns)
    hard = [m for m in accuracy if m in ("pacfl", "fedclust", "flt", "flt_eigen", "transport", "pca_km_hc", "emdcfl")]
    found = ari[hard] >= 1
    lag = accuracy[hard].rsub(accuracy["oracle"], axis=0)[found].stack().dropna()
    if len(lag):
        claims.check(
            f"Who finds the true clusters before training ends within {NEAR:g} point of the oracle",
            bool((lag <= NEAR).all()),
            f"{int((lag <= NEAR).sum())} of {len(lag)} runs, largest gap {lag.max():.1f} points",
        )
    if "one cluster" in accuracy.index.get_level_values("dataset"):
        same = accuracy.loc["one cluster"]
        lag = (same["fedavg"] - same[[m for m in FREE if m in same]].T).T.mean()
        claims.check(
            f"Where there is one cluster, methods that look for clusters lose at most {NEAR:g} point on FedAvg",
            bool((lag <= NEAR).all()),
            ", ".join(f"{method} {value:+.1f}" for method, value in lag.items()),
        )
    gain = (accuracy["oracle"] - accuracy["fedavg"]).groupby(level="dataset", sort=False).mean().dropna()
    gain = gain.drop("one cluster", errors="ignore")
    claims.check(
        "True clusters are worth more than one model for all, on every federation that has several",
        bool((gain > 0).all()),
        ", ".join(f"{name} {value:+.1f}" for name, value in gain.items()),
    )
