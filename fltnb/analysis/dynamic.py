"""Notebook 07: what a change in the middle of a run costs each method, and soft graphs against hard ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import metrics
from ..experiments import dynamic as experiment

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from ..federations.phases import ChangingFederation
    from ..notebook import Claims
    from ..store import Spec, Stored

GROUPS = ("stayed", "drifted", "joined")
NEAR = 2.0  # points below the oracle at which a group counts as recovered


def event_round(profile: str) -> int:
    """Round before which the federation changes."""
    return experiment.SIZES[profile]["event"]


def drift_table(fed: ChangingFederation) -> pd.DataFrame:
    """List the clients that drifted: the names of the classes they held before and hold since."""
    import pandas as pd

    rows = []
    for before, after in zip(fed.phases, fed.phases[1:], strict=False):
        old, new = before.fed.summary(), after.fed.summary()
        for i in np.flatnonzero(after.changed[: before.fed.n_clients]):
            row = {"client": i, "before round": after.round, "held": old["holds"][i], "holds": new["holds"][i]}
            rows.append(row | {"old cluster": old["cluster"][i], "new cluster": new["cluster"][i]})
    return pd.DataFrame(rows)


def foreseen_table(specs: Sequence[Spec]) -> pd.DataFrame:
    """Tell when each dynamic method of the first seed will cluster again; it follows from who takes part."""
    import pandas as pd

    from .. import methods
    from ..federations.phases import phases
    from ..rounds import participants

    rows = []
    for spec in specs:
        method = methods.build(spec.method)
        if not isinstance(method, methods.DynamicFLT) or spec.seed != specs[0].seed:
            continue
        parts = phases(spec.federation_built())
        drawn = []
        for t in range(1, spec.rounds + 1):
            here = [phase.fed.n_clients for phase in parts if phase.round <= t][-1]
            drawn.append(participants(here, spec.participation, spec.seed, t))
        fired, most = method.schedule(parts, drawn)
        row = {"event": spec.note, "method": spec.method_id, "lambda": method.lam, "tau": method.tau}
        row["most flags at a time"] = most
        row["clusters again after rounds"] = ", ".join(f"{t} ({why})" for t, why in fired.items()) or "none"
        rows.append(row)
    table = pd.DataFrame(rows)
    return table.astype({"lambda": "Int64", "tau": "Int64"})


def event_table(tidy: pd.DataFrame, curves: pd.DataFrame, note: str, event: int) -> pd.DataFrame:
    """One row per method: accuracy of each group at the end, rounds until recovered, clusters, cost.

    Parameters
    ----------
    tidy, curves : DataFrame
        Results of notebook 07 (:func:`fltnb.store.tidy`, :func:`fltnb.store.curves`).
    note : str
        The event, as the runs are labelled.
    event : int
        First round after the change.

    Returns
    -------
    DataFrame
        Means over seeds. "rounds to recover": from the change until the mean over all clients is within two points of
        the oracle's at the same round for good (the slowest seed; empty if it never is). "clustering, KB": what was
        sent besides the rounds' models: centroids, shares, mean embeddings, and encoders.
    """
    import pandas as pd

    test = _test_rows(curves, note)
    oracle = test[test["method"] == "oracle"].set_index(["seed", "round"])["accuracy"]
    last = test[test["round"] == test["round"].max()].set_index(["method", "seed"])
    ari = tidy[(tidy["note"] == note) & (tidy["metric"] == "ari")].groupby("method")["value"].mean()
    # all methods draw the same clients and send one model each way: what differs is what clustering sent
    sent = last["bytes_up"] + last["bytes_down"]
    models = sent.xs("oracle", level="method")
    rows = []
    for method, group in test.groupby("method", sort=False):
        end = last.loc[method]
        took = [_recovered(one, oracle.loc[seed], event) for seed, one in group.groupby("seed")]
        row = {"method": method, "all": end["accuracy"].mean()}
        row |= {name: end[f"accuracy_{name}"].mean() for name in GROUPS if end[f"accuracy_{name}"].notna().any()}
        row["spread over seeds"] = metrics.seed_spread(end["accuracy"])
        row["rounds to recover"] = "never" if None in took else str(max(took))
        row["ARI"] = ari.get(method, np.nan)
        row["clustering, KB"] = float((sent.loc[method] - models).mean() / 1000)
        row["all traffic, MB"] = float(sent.loc[method].mean() / 1e6)
        rows.append(row)
    return pd.DataFrame(rows)


def _recovered(one: pd.DataFrame, oracle: pd.Series, event: int) -> int | None:
    after = one[one["round"] >= event].set_index("round")["accuracy"]
    low = after.index[after < oracle.loc[after.index] - NEAR]
    if not len(low):
        return 0
    return None if low[-1] == after.index[-1] else int(low[-1] - event + 1)


def _test_rows(curves: pd.DataFrame, note: str) -> pd.DataFrame:
    return curves[(curves["note"] == note) & (curves["split"] == "test")]


def soft_table(tidy: pd.DataFrame) -> pd.DataFrame:
    """One row per scenario and graph: last accuracy, variance and worst client, means over seeds."""
    rows = tidy[tidy["note"].isin(experiment.SCENARIOS) & (tidy["split"] == "test")]
    wide = rows.pivot_table(index=["note", "method", "seed"], columns="metric", values="value", sort=False)
    mean = wide.groupby(level=[0, 1], sort=False).mean()
    mean["spread over seeds"] = wide["accuracy"].groupby(level=[0, 1], sort=False).agg(metrics.seed_spread)
    mean = mean.rename(columns={"accuracy_variance": "variance"}).reset_index(names=["scenario", "method"])
    return mean[["scenario", "method", "accuracy", "spread over seeds", "variance", "worst"]]


def stored_event(stored: Stored) -> int:
    """Round before which the stored runs of a profile change, from their own settings."""
    for entry in stored.record.values():
        if events := entry["settings"]["federation"].get("events"):
            return int(events[0]["round"])
    raise KeyError("no stored run changes")


def dynamic_claims(tidy: pd.DataFrame, curves: pd.DataFrame, event: int) -> Claims:
    """Check our own claims about events and soft graphs, and the paper's about clients that clustering left out."""
    from ..notebook import Claims

    claims = Claims()
    table = event_table(tidy, curves, experiment.MIXED, event).set_index("method")
    _event_claims(claims, table)
    kind = event_table(tidy, curves, experiment.NEW_KIND, event).set_index("method")
    _new_kind_claims(claims, kind)
    _soft_claims(claims, soft_table(tidy).set_index(["scenario", "method"]))
    _excluded_claim(claims, table, kind, tidy)
    return claims


def _event_claims(claims: Claims, table: pd.DataFrame) -> None:
    gap = table.loc["flt_lambda", "drifted"] - table.loc["flt", "drifted"]
    claims.check(
        "Without dynamic clustering drifted clients stay behind: re-clustering by flags gains 10 points or more",
        bool(gap >= 10),
        f"{gap:+.0f} points",
        must=True,
    )
    again = ["flt_lambda", "flt_lambda_high", "flt_tau"]
    dynamic = [*again, "flt_nearest"]
    for names, what in ((again, "Flags and tau: all runs"), (["flt_nearest"], "Nearest: the runs")):
        lag = (table.loc["oracle", "all"] - table.loc[names, "all"]).max()
        claims.check(
            f"{what} end within 2 points of the oracle, with the true clusters",
            bool(lag <= 2 and table.loc[names, "ARI"].min() == 1),
            f"at most {lag:.1f} below, lowest ARI {table.loc[names, 'ARI'].min():.2f}",
        )
    took = {name: table.loc[name, "rounds to recover"] for name in dynamic}
    quick = took["flt_lambda"] != "never" and all(
        other == "never" or int(took["flt_lambda"]) <= int(other) for other in took.values()
    )
    evidence = ", ".join(f"{name} {rounds}" for name, rounds in took.items())
    claims.check("A low lambda recovers no later than a high one, tau or nearest", quick, evidence)
    cost = table.loc[dynamic, "clustering, KB"].max() / 1000 / table.loc["flt", "all traffic, MB"]
    claims.check(
        "All that dynamic clustering sends is below 5 % of the models' traffic",
        bool(cost < 0.05),
        f"{100 * cost:.1f} %",
    )
    order = table["clustering, KB"]
    claims.check(
        "Nearest is cheaper than a re-clustering, which is cheaper than one every tau rounds",
        bool(order["flt_nearest"] < order["flt_lambda"] < order["flt_tau"]),
        f"{order['flt_nearest']:.0f} < {order['flt_lambda']:.0f} < {order['flt_tau']:.0f} KB",
    )


def _new_kind_claims(claims: Claims, table: pd.DataFrame) -> None:
    again, nearest = table.loc["flt_lambda"], table.loc["flt_nearest"]
    claims.check(
        "Newcomers of a new kind: re-clustering gives them a cluster of their own",
        bool(again["ARI"] == 1),
        f"ARI {again['ARI']:.2f}",
        must=True,
    )
    claims.check(
        "... the nearest old cluster does not suit them (2 points or more below at the end)",
        bool(again["joined"] - nearest["joined"] >= 2),
        f"{nearest['joined'] - again['joined']:+.0f} points",
    )


def _soft_claims(claims: Claims, table: pd.DataFrame) -> None:
    for scenario in table.index.unique("scenario"):
        hard, clusters = (table.loc[(scenario, name), "accuracy"] for name in ("flt_full", "flt"))
        for name in ("flt_soft", "flt_soft_linear"):
            gain = table.loc[(scenario, name), "accuracy"] - hard
            claims.check(
                f"{scenario}: {'linear' if 'linear' in name else 'Gaussian'} weights do as well as the same graph"
                " with a threshold (within 2 points)",
                bool(gain >= -2),
                f"{gain:+.1f} points; against clusters {table.loc[(scenario, name), 'accuracy'] - clusters:+.1f}",
            )


def _excluded_claim(claims: Claims, mixed: pd.DataFrame, kind: pd.DataFrame, tidy: pd.DataFrame) -> None:
    """Check that clients whom clustering left out, placed afterwards, are served as well as if they had been in."""
    lag = mixed.loc["oracle", "joined"] - mixed.loc["flt_nearest", "joined"]
    claims.check(
        "Clients left out of the clustering and placed afterwards are served as well (within 1 point of the oracle)",
        bool(lag <= 1),
        f"{lag:.1f} points below; if they are of a new kind"
        f" {kind.loc['oracle', 'joined'] - kind.loc['flt_nearest', 'joined']:.0f}",
        claim="flt-text-excluded",
    )
