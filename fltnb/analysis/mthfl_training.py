"""Notebook 10: MT-HFL's training task by task, proposed grouping against random grouping (Figures 2 and 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import paths
from ..experiments import mthfl_training as experiment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from ..notebook import Claims
    from ..store import Result, Spec, Stored

NAME = "10_mthfl_training"
PROPOSED, RANDOM = experiment.FIGURE
FIGURES = {"cifar10": "Figure 2", "fashion_mnist": "Figure 3"}
CLAIMS = {
    "cifar10": {"above": "mthfl-fig2-1", "calm": "mthfl-fig2-2"},
    "fashion_mnist": {"above": "mthfl-fig3-1", "last": "mthfl-fig3-2", "calm": "mthfl-fig3-3"},
}
"""Ids of the paper's claims; digits stand in for nothing and have none."""


def task_table(results: Sequence[Result]) -> pd.DataFrame:
    """Return the accuracy of every task in every run.

    Returns
    -------
    DataFrame
        Columns ``dataset, method, note, seed, round, local_rounds, task, accuracy``; ``round`` is the last one of the
        run, the accuracy is the mean over the users of the task (under the view "task" they all see the same server).
    """
    clients = {result.key: result.clients for result in results}
    record = {result.key: [] for result in results}
    for result in results:
        record[result.key].append({"settings": result.spec.settings(), "labels": result.spec.labels()})
    return _tasks(clients, record)


def stored_task_table(stored: Stored) -> pd.DataFrame:
    """Return the same from the committed results of a profile."""
    import pandas as pd

    table = pd.read_csv(paths.results(stored.profile) / f"{NAME}_clients.csv")
    return _tasks(dict(iter(table.groupby("key"))), {key: [entry] for key, entry in stored.record.items()})


def _tasks(clients: Mapping[str, pd.DataFrame], record: Mapping[str, list[dict]]) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for key, entries in record.items():
        mean = clients[key].groupby("true_cluster")["test"].mean()
        for entry in entries:
            settings, labels = entry["settings"], entry["labels"]
            about = {"dataset": labels["dataset"], "method": labels["method_id"], "note": labels["note"]}
            about |= {"seed": settings["seed"], "round": settings["rounds"]}
            about["local_rounds"] = settings["method"].get("local_rounds", 1)
            names = list(experiment.TASKS[labels["dataset"]])
            rows += [{**about, "task": names[task], "accuracy": value} for task, value in mean.items()]
    return pd.DataFrame(rows)


def figure_curves(tasks: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Return the rows of Figure 2 or 3: both groupings, at every round where a run stops."""
    own = tasks[(tasks["dataset"] == dataset) & tasks["method"].isin(experiment.FIGURE)]
    return own[own["local_rounds"] == experiment.LOCAL_ROUNDS]


def last_rows(tasks: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Return the rows of all methods after the last round, in the usual settings."""
    return tasks[(tasks["dataset"] == dataset) & (tasks["note"] == "")]


def accuracy_table(tasks: pd.DataFrame, tidy: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """One row per method: mean and spread over the runs of each task's accuracy after the last round.

    ``ari`` is the agreement of the groups with the true tasks, mean and lowest over the runs (empty: no groups).
    """
    rows = last_rows(tasks, dataset)
    seen = rows.pivot_table(index="method", columns="task", values="accuracy", aggfunc=["mean", "std"], sort=False)
    names = list(dict.fromkeys(rows["task"]))
    per_run = rows.groupby(["method", "seed"], sort=False)["accuracy"].mean()
    ari = tidy[(tidy["dataset"] == dataset) & (tidy["metric"] == "ari") & (tidy["note"] == "")]
    ari = ari.groupby("method")["value"].agg(["mean", "min"])
    table = seen["mean"][names].copy()
    for at, name in enumerate(names):
        table.insert(2 * at + 1, f"± {name}", seen["std"][name])
    table["all tasks"] = per_run.groupby(level=0, sort=False).mean()
    table["ARI, mean"], table["ARI, lowest"] = ari["mean"], ari["min"]
    table.columns.name = None
    return table.reset_index()


def spread_table(tasks: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Spread over the runs, proposed beside random, by task and round, with a test of equal variances.

    Returns
    -------
    DataFrame
        Columns ``task, round, proposed, random`` (standard deviations over the runs, points) and ``p``: Brown and
        Forsythe's test, Levene's with medians. With six runs it sees large differences only.
    """
    import warnings

    import pandas as pd
    from scipy.stats import levene

    rows = []
    for task, every in figure_curves(tasks, dataset).groupby("task", sort=False):
        for round, own in every.groupby("round"):
            both = [own[own["method"] == name]["accuracy"].to_numpy() for name in experiment.FIGURE]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # no spread at all on both sides
                p = levene(*both, center="median").pvalue
            spread = {"proposed": both[0].std(ddof=1), "random": both[1].std(ddof=1)}
            rows.append({"task": task, "round": round, **spread, "p": p})
    return pd.DataFrame(rows)


def local_rounds_table(tasks: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Accuracy of each task against the rounds between two actions of the global server, over the same seeds."""
    rows = tasks[(tasks["dataset"] == dataset) & (tasks["method"] == PROPOSED)]
    rows = rows[~rows["note"].str.startswith("stopped")]
    seeds = rows[rows["note"] != ""]["seed"].unique()
    rows = rows[rows["seed"].isin(seeds)]
    table = rows.pivot_table(index="local_rounds", columns="task", values="accuracy", sort=False).sort_index()
    table = table[list(dict.fromkeys(rows["task"]))]
    table.columns.name = None
    return table.rename_axis("local rounds").reset_index()


def traffic_table(specs: Sequence[Spec]) -> pd.DataFrame:
    """Bytes of the proposed method, by data set: users with their servers, servers with the global one, clustering."""
    import pandas as pd

    from .. import methods, models, store

    rows = []
    for dataset in dict.fromkeys(spec.dataset for spec in specs):
        spec = next(s for s in specs if s.dataset == dataset and s.method_id == PROPOSED and s.note == "")
        fed, method = spec.federation_built(), methods.build(spec.method)
        net = models.make(spec.model, fed.input_shape, fed.n_classes)
        state = method.start(fed, net, methods.Context(spec.seed, store.cached_arrays))
        sent = sum(method.traffic(state, net.n_parameters)) * 4 * fed.n_clients * spec.rounds
        rows.append(
            {
                "dataset": dataset,
                "parameters": net.n_parameters,
                "shared, %": 100 * state["shared"].mean(),
                "users and task servers, MB": sent / 1e6,
                "task servers and global, MB": sum(method.bytes_between_servers(state, spec.rounds)) / 1e6,
                "clustering, MB": sum(method.setup_bytes(state)) / 1e6,
            }
        )
    return pd.DataFrame(rows)


def training_claims(tasks: pd.DataFrame, tidy: pd.DataFrame) -> Claims:
    """Check what Figures 2 and 3 are said to show, and what must hold of the runs themselves."""
    from ..notebook import Claims

    claims = Claims()
    for dataset in dict.fromkeys(tasks["dataset"]):
        rows = last_rows(tasks, dataset)
        wide = rows.pivot_table(index=["seed", "task"], columns="method", values="accuracy", sort=False)
        names = list(dict.fromkeys(rows["task"]))
        ids = CLAIMS.get(dataset, {})
        _grouping_claims(claims, tidy, wide, dataset)
        mean = wide.groupby(level="task", sort=False).mean().loc[names]
        gap = mean[PROPOSED] - mean[RANDOM]
        wins = (wide[PROPOSED] > wide[RANDOM]).groupby(level="task", sort=False).sum().loc[names]
        runs = rows["seed"].nunique()
        claims.check(
            f"{dataset}: similarity grouping is above random grouping on every task",
            bool((gap > 0).all()),
            ", ".join(f"{name} {gap[name]:+.1f} ({wins[name]} of {runs} runs)" for name in names),
            claim=ids.get("above", ""),
        )
        spread = wide.groupby(level="task", sort=False).std().loc[names]
        claims.check(
            f"{dataset}: runs with similarity grouping vary less, on every task",
            bool((spread[PROPOSED] < spread[RANDOM]).all()),
            ", ".join(f"{name} {spread[PROPOSED][name]:.1f} against {spread[RANDOM][name]:.1f}" for name in names),
            claim=ids.get("calm", ""),
        )
        if len(names) == 3:
            worst, lost = mean[RANDOM].idxmin(), gap.idxmax()
            sentence = f"{dataset}: random grouping has its lowest accuracy on the third task"
            evidence = ", ".join(f"{name} {mean[RANDOM][name]:.1f}" for name in names)
            claims.check(sentence, worst == names[-1], evidence, claim=ids.get("last", ""))
            sentence = f"{dataset}: random grouping loses most on the third task"
            claims.check(sentence, lost == names[-1], f"most on {lost}", claim=ids.get("last", ""))
        _sharing_claims(claims, mean, dataset)
    for dataset, figure in FIGURES.items():
        if dataset not in set(tasks["dataset"]):
            for claim in CLAIMS[dataset].values():
                claims.untestable(
                    f"{dataset}: what {figure} shows", "no finished runs on this data set here", claim=claim
                )
    return claims


def _grouping_claims(claims: Claims, tidy: pd.DataFrame, wide: pd.DataFrame, dataset: str) -> None:
    """Check that the groups are the tasks, and that the runs are then those of the true tasks."""
    ari = tidy[(tidy["dataset"] == dataset) & (tidy["metric"] == "ari") & (tidy["method"] == PROPOSED)]["value"]
    claims.check(f"{dataset}: the groups are the tasks in every run", bool((ari == 1).all()), f"lowest {ari.min():.2f}")
    if (ari == 1).all() and "mthfl_oracle" in wide:
        apart = (wide[PROPOSED] - wide["mthfl_oracle"]).abs().max()
        sentence = f"{dataset}: the right groups give the very run of the true tasks"
        claims.check(sentence, bool(apart < 1e-3), f"{apart:.3f} apart", must=True)


def _sharing_claims(claims: Claims, mean: pd.DataFrame, dataset: str) -> None:
    """Check, for ourselves, what sharing the first layers does, and whether one model for all would do."""
    if "mthfl_separate" in mean:
        gain = mean[PROPOSED] - mean["mthfl_separate"]
        evidence = ", ".join(f"{name} {value:+.1f}" for name, value in gain.items())
        claims.check(f"{dataset}: sharing layers across tasks helps every task", bool((gain > 0).all()), evidence)
    if "fedavg" in mean:
        lead = mean[PROPOSED] - mean["fedavg"]
        evidence = ", ".join(f"{name} {value:+.1f}" for name, value in lead.items())
        claims.check(f"{dataset}: similarity grouping is above FedAvg on every task", bool((lead > 0).all()), evidence)
