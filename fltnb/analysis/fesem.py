"""Notebook 08: FeSEM's Tables 1 to 3, one-shot methods beside it, both variants, single switches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import paths, published, store
from ..experiments import fesem as experiment
from ..metrics import seed_spread
from . import emdcfl

if TYPE_CHECKING:
    import pandas as pd

    from ..store import Result, Spec, Stored

NAME = experiment.NOTEBOOK
MEASURES = {
    "micro accuracy": ("test", "micro_accuracy"),
    "micro F1": ("test", "micro_f1"),
    "macro accuracy": ("test", "accuracy"),
    "macro F1": ("test", "macro_f1"),
    "pooled F1": ("test", "pooled_f1"),
}
"""Measure -> split and metric of tidy results. The last is no column there: :func:`fltnb.metrics.f1_summary`."""
PRINTED = {name: name.lower().replace(" ", "_") for name in list(MEASURES)[:4]}
"""Measure -> metric of the published tables."""
TABLES = {
    "femnist": ("T2", "femnist"),
    "pseudo-writers": ("T2", "femnist"),
    "fedceleba": ("T3", "fedceleba"),
}
"""Federation -> printed table and its data set. Mixtures of classes and digits stand beside no printed number."""
IN_PLACE_OF = {
    "femnist": "FEMNIST itself",
    "pseudo-writers": "FEMNIST, divided by writers",
    "digits writers": "FEMNIST, at toy scale",
    "fedceleba": "FedCelebA itself",
    "dirichlet": "the Dirichlet(0.5) partition, without a printed table",
    "digits mixtures": "the Dirichlet(0.5) partition, at toy scale",
}
PAPER = {"femnist": ("leaf_cnn", 3550, 5, 0.003), "fedceleba": ("leaf_cnn", 9343, 10, 0.03)}
"""Data set -> the paper's network, clients, local epochs and rate; it tells neither rounds nor batch of its tables."""


class Part(NamedTuple):
    """Runs on one federation: one row each, and what is printed for them (None: no table is)."""

    model: str
    rows: pd.DataFrame
    printed: dict[tuple[str, str], tuple[str, float]] | None


def parts(tidy: pd.DataFrame) -> dict[str, Part]:
    """Split the runs by federation.

    Parameters
    ----------
    tidy : DataFrame
        Of :func:`fltnb.store.tidy` or of committed results.

    Returns
    -------
    dict of str to Part
        The rows have the columns :data:`fltnb.analysis.emdcfl.ABOUT` and :data:`MEASURES` (percent; F1 is NaN where a
        client is not tested with the one model that it is served).
    """
    found = {}
    for name, model in tidy.groupby("dataset", sort=False)["model"].first().items():
        found[name] = Part(model, emdcfl.runs(tidy, name, MEASURES), printed(name))
    return found


def printed(name: str) -> dict[tuple[str, str], tuple[str, float]] | None:
    """Return (method, measure) -> (text, number) of the table that a federation stands beside, or None."""
    if name not in TABLES:
        return None
    table, dataset = TABLES[name]
    lines = published.numbers("fesem", table, dataset=dataset)
    measures = {metric: measure for measure, metric in PRINTED.items()}
    return {
        (line.method, measures[line.metric]): (f"{line.value} ± {line.error}", line.number)
        for line in lines.itertuples()
    }


def table(part: Part) -> pd.DataFrame:
    """Return the fourteen rows, printed beside reproduced.

    Differences are not shown: nothing here is the paper's data at the paper's size.

    Returns
    -------
    DataFrame of text
        ``method``, ``seeds``, and for every measure what is printed (where there is a table) and mean ± sample standard
        deviation over seeds.
    """
    import pandas as pd

    lines = []
    for method in experiment.METHODS:
        own = _described(part.rows, method)
        line = {"method": emdcfl.label(method), "seeds": str(own["seed"].nunique())}
        for measure in MEASURES:
            if part.printed is not None and measure in PRINTED:
                line[f"{measure}, printed"] = part.printed[method, measure][0]
            line[measure] = _mean_text(own[measure])
        lines.append(line)
    return pd.DataFrame(lines)


def in_order(part: Part) -> pd.DataFrame:
    """Return the rows of the table alone, in its order, for :func:`fltnb.plots.method_dots`."""
    rows = part.rows[(part.rows["note"] == "") & part.rows["method"].isin(experiment.METHODS)]
    return rows.sort_values("method", key=lambda names: names.map(experiment.METHODS.index), kind="stable")


def statistics(specs: Iterable[Spec]) -> pd.DataFrame:
    """Table 1 beside what is at hand.

    Parameters
    ----------
    specs : iterable of Spec
        The first of every federation is looked at.

    Returns
    -------
    DataFrame of text
        ``data, samples, clients, classes, network, samples of a client, in place of``: two printed lines, one for every
        image set whose writers are known (as a whole), one for every federation.
    """
    import pandas as pd

    lines = []
    for name, rows in published.numbers("fesem", "T1").groupby("dataset", sort=False):
        value = rows.set_index("metric")["number"]
        sizes = [f"{value[metric]:,.0f}" for metric in ("num_samples", "num_clients", "num_classes")]
        each = f"{value['num_samples'] / value['num_clients']:.0f}"
        lines.append((f"{name}, printed", *sizes, rows["model"].iloc[0], each, ""))
    for name, spec in {spec.dataset: spec for spec in reversed(list(specs))}.items():
        fed = spec.federation_built()
        own = [len(train) + len(test) for train, test in zip(fed.train, fed.test, strict=True)]
        count = (f"{sum(own):,}", f"{fed.n_clients:,}", str(fed.n_classes), spec.model, f"{np.mean(own):.0f}")
        lines.append((name, *count, IN_PLACE_OF[name]))
    names = ["data", "samples", "clients", "classes", "network", "samples of a client", "in place of"]
    return pd.DataFrame(lines, columns=names)


def whole_sets(specs: Iterable[Spec]) -> dict[str, tuple[int, int, int]]:
    """Return samples, devices and classes of every image set whose people are known; {} where LEAF's are not at hand.

    Parameters
    ----------
    specs : iterable of Spec
    """
    from ..data import load

    found = {}
    for name in {spec.dataset for spec in specs} & set(PAPER):
        images = load(experiment.DATASETS[name])
        found[name] = (len(images.labels), len(np.unique(images.writers)), images.n_classes)
    return found


def clients_of(source: Sequence[Result] | Stored) -> dict[str, pd.DataFrame]:
    """Return the last round's clients of every run by key, of computed results or of committed ones."""
    if not hasattr(source, "record"):
        return {result.key: result.clients for result in source}
    import pandas as pd

    return dict(iter(pd.read_csv(paths.results(source.profile) / f"{NAME}_clients.csv").groupby("key")))


def labels_and_settings(source: Sequence[Result] | Stored) -> dict[str, tuple[dict[str, str], dict[str, Any]]]:
    """Return key -> (labels, settings) of every run, of computed results or of committed ones."""
    if hasattr(source, "record"):
        return {key: (entry["labels"], entry["settings"]) for key, entry in source.record.items()}
    return {result.key: (result.spec.labels(), result.spec.settings()) for result in source}


# ---------------------------------------------------------------- other sections' tables


def one_shot_table(tidy: pd.DataFrame, clients: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Put the one-shot clusterings beside FeSEM(3) and FedAvg: accuracy, clusters, traffic.

    Parameters
    ----------
    tidy : DataFrame
    clients : mapping
        From :func:`clients_of`.

    Returns
    -------
    DataFrame
        ``federation, method, micro accuracy, macro accuracy`` (mean ± spread over seeds), ``clusters`` (of every seed)
        and ``MB per client`` (up and down, the whole run, what clustering sends included).
    """
    import pandas as pd

    measures = MEASURES | {"clusters": ("", "n_clusters"), "bytes": ("", "bytes")}
    lines = []
    for name in dict.fromkeys(tidy["dataset"]):
        rows = emdcfl.runs(tidy, name, measures)
        for method in ("fedavg", "fesem_3", *experiment.ONE_SHOT):
            own = _described(rows, method)
            if own.empty:
                continue
            found = [f"{value:.0f}" for value in own["clusters"].dropna()]
            each = own["bytes"] / [len(clients[key]) for key in own["key"]] / 1e6
            lines.append(
                {
                    "federation": name,
                    "method": emdcfl.label(method),
                    "micro accuracy": _mean_text(own["micro accuracy"]),
                }
                | {"macro accuracy": _mean_text(own["macro accuracy"]), "clusters": ", ".join(found) or "–"}
                | {"MB per client": each.mean()}
            )
    return pd.DataFrame(lines)


def switches(part: Part) -> pd.DataFrame:
    """Single switches of FeSEM(3), first seed: one row per switch, all measures."""
    rows = part.rows[(part.rows["method"] == "fesem_3") & (part.rows["variant"] == "as_written")]
    rows = rows[(rows["seed"] == rows["seed"].min()) & rows["note"].isin(["", *experiment.SWITCHES])]
    return rows.assign(run=rows["note"].replace("", "as described"))[["run", *MEASURES]].reset_index(drop=True)


def shuffled(part: Part) -> pd.DataFrame:
    """Micro accuracy by clients as they are and after the IID shuffle, first seed: ``method, original, shuffled``."""
    import pandas as pd

    dealt = part.rows[part.rows["note"] == experiment.SHUFFLED]
    lines = []
    for run in dealt.itertuples():
        own = _described(part.rows, run.method)
        original = own.loc[own["seed"] == run.seed, "micro accuracy"].mean()
        after = dealt.loc[run.Index, "micro accuracy"]
        lines.append((emdcfl.label(run.method), original, after, after - original))
    return pd.DataFrame(lines, columns=["method", "original", "shuffled", "difference"])


def centres(specs: Iterable[Spec]) -> pd.DataFrame:
    """Train the shipped variant once more and test every centre on everybody, which its report is the best of.

    Parameters
    ----------
    specs : iterable of Spec
        Runs of FeSEM; those of variant "as_run" are used.

    Returns
    -------
    DataFrame
        ``dataset, method, seed, own`` (every client under its own centre), ``lowest, highest`` (centre on everybody),
        micro accuracies in percent.
    """
    import pandas as pd

    lines = []
    for spec in specs:
        if spec.variant != "as_run":
            continue
        held = store.cached_arrays({"centres of": spec.settings(), "run": spec.key()}, lambda spec=spec: _tested(spec))
        lines.append(
            {"dataset": spec.dataset, "method": spec.method_id, "seed": spec.seed, "own": float(held["own"])}
            | {"lowest": float(held["everybody"].min()), "highest": float(held["everybody"].max())}
        )
    return pd.DataFrame(lines)


def _tested(spec: Spec) -> dict[str, np.ndarray]:
    """Micro accuracy of clients under their own centre, and of every centre on all clients."""
    from .. import methods, metrics, models, rounds

    fed = spec.federation_built()
    # the report changes what is tested, not what is trained
    method = methods.build(spec.method | {"report": "own"})
    done = rounds.run(method, fed, **store._arguments(spec), progress=False)
    net = models.make(spec.model, fed.input_shape, fed.n_classes)
    rows = [done.rows, *(np.full(fed.n_clients, k) for k in range(len(done.theta)))]
    counts = (rounds.confusion(net, done.theta, row, fed) for row in rows)
    own, *everybody = (metrics.micro_accuracy(np.trace(one, axis1=1, axis2=2), one.sum(axis=(1, 2))) for one in counts)
    return {"own": np.array(own), "everybody": np.array(everybody)}


def both_ways(part: Part, tested: pd.DataFrame) -> pd.DataFrame:
    """FeSEM as described and as shipped, first seed, micro accuracy.

    Parameters
    ----------
    part : Part
    tested : DataFrame
        From :func:`centres`, of the same federation.

    Returns
    -------
    DataFrame
        ``method, described`` (own centre), ``shipped, reported`` (best centre on everybody), and of the shipped run
        ``own centre`` and ``worst centre``; ``the choice adds``: reported minus own centre.
    """
    import pandas as pd

    lines = []
    for run in tested.itertuples():
        own = part.rows[(part.rows["method"] == run.method) & (part.rows["seed"] == run.seed)]
        own = own[own["note"] == ""].set_index("variant")["micro accuracy"]
        lines.append(
            {"method": emdcfl.label(run.method), "as_written": own["as_written"], "shipped, reported": own["as_run"]}
            | {"own centre": run.own, "worst centre": run.lowest, "the choice adds": own["as_run"] - run.own}
        )
    return pd.DataFrame(lines)


def matching_cost() -> pd.DataFrame | None:
    """Return the committed cost of neuron matching in short, or None where nobody has saved it.

    Returns
    -------
    DataFrame
        ``network`` (with its width), ``parameters``, seconds of an M-step of 20 members: ``plain``, ``matched``, the
        factor between them, and of one local epoch of one member; ``apart``: largest difference of the two centres.
    """
    import pandas as pd

    path = paths.results("small") / "matching_cost.csv"
    if not path.exists():
        return None
    found = pd.read_csv(path)
    network = [
        f"{row.network}, {row.width} hidden" if row.network == "mlp" else row.network for row in found.itertuples()
    ]
    columns = {"parameters": "parameters", "plain": "plain mean (s)", "matched_trained": "matched (s)"}
    columns |= {"times_trained": "times", "epoch": "a local epoch (s)", "apart_trained": "centres apart"}
    short = found[list(columns)].rename(columns=columns)
    short["centres apart"] = [f"{value:.0e}" for value in short["centres apart"]]
    short.insert(0, "network", network)
    return short


def _described(rows: pd.DataFrame, method: str) -> pd.DataFrame:
    return rows[(rows["method"] == method) & (rows["variant"] == "as_written") & (rows["note"] == "")]


def _mean_text(values: pd.Series) -> str:
    if values.isna().all():
        return "not run" if not len(values) else "–"
    spread = seed_spread(values)
    return f"{values.mean():.1f}" + (f" ± {spread:.1f}" if len(values) > 1 else "")
