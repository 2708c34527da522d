"""Notebook 11: EMD-CFL's Rotated MNIST and CIFAR-10 in four versions (Tables 1, 6, 10, 11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import paths, published
from ..experiments import emdcfl_rotated as experiment
from ..metrics import adjusted_rand_index
from ..randomness import stream
from ..rounds import participants
from . import emdcfl

if TYPE_CHECKING:
    import pandas as pd

    from ..notebook import Claims
    from ..oneshot import ClusterSpec
    from ..store import Result, Stored

NAME = experiment.NOTEBOOK
TABLES = {"rotated": "T1", "min": "T10", "two": "T10", "base": "T10"}
OF_CLUSTERS = ("emdcfl", "pacfl", "fedclust", "flexcfl", "cflgp")  # ARI 1 in Table 1, left
SOFT = ("fedem", "fedsoft", "fedrc", "fedce")
TOLD_TWO = ("flexcfl", "fesem", "cflgp", "ifca")  # hard methods that get K = 2 where there is one cluster
NETWORK = {"mnist": ("mlp_plain", "cnn_small", "emdcfl_cnn"), "cifar10": ("resnet18",)}
"""Networks on which a claim about the data set is looked at."""


class Part(NamedTuple):
    """Runs of one data set and version: one row each, and the printed table they stand beside (None: toy scale)."""

    data: str
    version: str
    model: str
    rows: pd.DataFrame
    printed: dict | None


def parts(tidy: pd.DataFrame) -> dict[str, Part]:
    """Split the runs by data set and version, in the order of the tables: name in ``tidy`` -> :class:`Part`."""
    there, found = dict(tidy.groupby("dataset")["model"].first()), {}
    for data in ("mnist", "cifar10", "digits"):
        for version, table in TABLES.items():
            name = experiment.dataset(data, version)
            if name in there:
                number = "T11" if (data, table) == ("cifar10", "T10") else table
                setting = "rotated" if version == "rotated" else f"rotated_{version}"
                printed = None if data == "digits" else emdcfl.printed(number, f"rotated_{data}", setting)
                found[name] = Part(data, version, there[name], emdcfl.runs(tidy, name), printed)
    return found


def table(part: Part) -> pd.DataFrame:
    """Return the 17 methods of one table; rounds with few participants are :func:`participation_table`'s."""
    rows = part.rows[~part.rows["note"].str.endswith("clients")]
    comments = emdcfl.COMMENTS
    if part.version in ("min", "base"):
        comments = comments | {name: "told K = 2" for name in (*TOLD_TWO, *SOFT)}
    return emdcfl.method_table(rows, part.printed, comments)


def clients_and_settings(source: Sequence[Result] | Stored) -> dict[str, tuple[pd.DataFrame, dict[str, Any]]]:
    """Return, by key, the last round's clients of every run and its settings, of computed or of committed results."""
    if not hasattr(source, "record"):
        return {result.key: (result.clients, result.spec.settings()) for result in source}
    import pandas as pd

    every = pd.read_csv(paths.results(source.profile) / f"{NAME}_clients.csv")
    return {key: (own, source.record[key]["settings"]) for key, own in every.groupby("key")}


def ever_drawn(n_clients: int, settings: Mapping[str, Any]) -> np.ndarray:
    """Clients that took part in at least one round of a run, (M,) bool."""
    drawn = np.zeros(n_clients, dtype=bool)
    for round in range(1, settings["rounds"] + 1):
        drawn[participants(n_clients, settings["participation"], settings["seed"], round)] = True
    return drawn


def alone_unless(drawn: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Labels in which everybody that is not ``drawn`` is a cluster of its own."""
    apart = np.array(labels)
    apart[~drawn] = labels.max() + 1 + np.arange((~drawn).sum())
    return apart


def participation_rows(tidy: pd.DataFrame, runs: Mapping, dataset: str) -> pd.DataFrame:
    """One row per run with rounds of few clients (Table 6).

    Returns
    -------
    DataFrame
        ``level`` (clients in a round), ``method, seed``; ``never`` (clients that no round drew), ``accuracy`` (over
        all clients), ``drawn`` (over those that some round drew), ``ARI``, and ``ARI, singles``: of the true clusters
        with every client that was never drawn alone, which is all that a perfect clustering could reach.
    """
    import pandas as pd

    lines = []
    own = emdcfl.runs(tidy, dataset)
    for row in own[own["note"].str.endswith("clients")].itertuples():
        clients, settings = runs[row.key]
        clients = clients.sort_values("client")
        drawn, truth = ever_drawn(len(clients), settings), clients["true_cluster"].to_numpy()
        lines.append(
            {
                **{"level": int(row.note.split()[0]), "clients": len(clients)},
                **{"method": row.method, "seed": row.seed, "never": int((~drawn).sum()), "accuracy": row.accuracy},
                "drawn": float(clients["test"].to_numpy()[drawn].mean()),
                **{"ARI": row.ARI, "ARI, singles": adjusted_rand_index(truth, alone_unless(drawn, truth))},
            }
        )
    return pd.DataFrame(lines)


def participation_table(rows: pd.DataFrame, data: str = "mnist") -> pd.DataFrame:
    """Put Table 6 beside the runs; accuracies and ARI are means over seeds.

    "with singles" is what the public code's oracle does: clients never drawn are clusters of their own and keep an
    untrained model, which is right for one image in ten.
    """
    import pandas as pd

    lines = published.numbers("emdcfl", "T6", dataset=f"rotated_{data}")
    lines = lines.assign(level=lines["params"].str.extract(r'"participants": (\d+)')[0].astype(int))
    printed = {(line.level, line.method, line.metric): f"{line.value} ± {line.error}" for line in lines.itertuples()}
    found = []
    for (level, method), own in rows.groupby(["level", "method"], sort=False):
        share = own["never"] / own["clients"]
        handicapped = own["drawn"] * (1 - share) + 10 * share
        found.append(
            {
                **{"clients": f"{level} of 40", "method": emdcfl.label(method), "never drawn": own["never"].mean()},
                "accuracy, printed": printed[level, method, "avg_accuracy"],
                **{"accuracy": own["accuracy"].mean(), "drawn clients": own["drawn"].mean()},
                **{"with singles": handicapped.mean(), "ARI, printed": printed[level, method, "ari"]},
                **{"ARI": own["ARI"].mean(), "ARI with singles": own["ARI, singles"].mean()},
            }
        )
    return pd.DataFrame(found)


def sampling_effect(
    drawn: int, n_clients: int = 40, n_clusters: int = 4, rounds: int = 10, repeats: int = 2000, seed: int = 0
) -> tuple[float, float, float]:
    """Simulate what drawing alone does to the ARI of a perfect clustering of equal clusters.

    Returns
    -------
    tuple of float
        Expected number of clients never drawn (exact: M (1 - drawn / M)^rounds), mean and standard deviation of the
        ARI when these are clusters of their own.
    """
    rng = stream(seed, "method", 0)
    order = rng.random((repeats, rounds, n_clients)).argsort(axis=2)
    seen = (order < drawn).any(axis=1)
    inside = seen.reshape(repeats, n_clusters, -1).sum(axis=2)
    together = (inside * (inside - 1) / 2).sum(axis=1)  # pairs that are together in truth and in what is found
    size, pairs = n_clients / n_clusters, n_clients * (n_clients - 1) / 2
    true = n_clusters * size * (size - 1) / 2
    chance = together * true / pairs
    values = (together - chance) / ((together + true) / 2 - chance)
    return n_clients * (1 - drawn / n_clients) ** rounds, float(values.mean()), float(values.std())


def recovery_table(clusterings: pd.DataFrame) -> pd.DataFrame:
    """How often EMD-CFL's clustering is right, by data set, images of a client and tolerance."""
    import pandas as pd

    lines = []
    keys = ["dataset", "images", "tolerance"]
    for (dataset, images, tolerance), own in clusterings.groupby(keys, sort=False):
        lines.append(
            {
                **{"data set": dataset, "images": images, "tolerance": tolerance, "seeds": len(own)},
                **{"true clusters": own["true_clusters"].iloc[0], "ARI 1 in": int((own["ari"] == 1).sum())},
                **{"lowest ARI": own["ari"].min(), "clusters found": _range(own["n_clusters"])},
                **{"links inside": own["links_inside"].mean(), "links across": own["links_across"].mean()},
            }
        )
    return pd.DataFrame(lines)


def rotated_claims(
    tidy: pd.DataFrame, curves: pd.DataFrame, participation: pd.DataFrame, clusterings: pd.DataFrame
) -> Claims:
    """Check what the paper says of Tables 1, 6, 10 and 11; what nothing here can test is listed as such.

    Parameters
    ----------
    tidy, curves : DataFrame
        From :func:`fltnb.store.tidy` and :func:`fltnb.store.curves`, or the committed ones.
    participation : DataFrame
        From :func:`participation_rows`; empty where there are no such runs.
    clusterings : DataFrame
        From :func:`fltnb.oneshot.compute`.
    """
    from ..notebook import Claims

    claims, every = Claims(), parts(tidy)
    for name, part in every.items():
        if part.data == "digits" or part.model in NETWORK[part.data]:
            (_table1 if part.version == "rotated" else _versions)(claims, name, part, curves)
    _sampling(claims, participation)
    for (dataset, images, tolerance), own in clusterings.groupby(["dataset", "images", "tolerance"], sort=False):
        right = int((own["ari"] == 1).sum())
        claims.check(
            f"{dataset}, {images} images, tolerance {tolerance}: ARI 1 in nine tenths of the seeds",
            bool(right >= emdcfl.SEEDS_WANTED * len(own)),
            f"{right} of {len(own)}, lowest {own['ari'].min():.2f}",
            claim="" if tolerance == "auto" else _recovery_id(dataset),
        )
    _not_tested(claims, every)
    return claims


def _table1(claims: Claims, name: str, part: Part, curves: pd.DataFrame) -> None:
    """Check Table 1: the left half's claims on MNIST and, without ids, on digits; the right half's on CIFAR-10."""
    rows = part.rows
    ids = {n: f"emdcfl-t1-{n}" if part.data == "mnist" else "" for n in (1, 2, 3, 4)}
    third = "" if part.data == "digits" else "emdcfl-t1-3"
    sentence = f"{name}: EMD-CFL is within 0.1 points of the oracle, on average and at worst"
    emdcfl.check_near(claims, sentence, rows, "emdcfl", measures=("accuracy", "worst"), claim=third)
    if part.data == "cifar10":
        emdcfl.check_recovered(claims, f"{name}: EMD-CFL finds the clusters", rows, ["emdcfl"], claim="emdcfl-t1-5")
        others = [method for method in (*OF_CLUSTERS, "cfl", "ifca", "fesem") if method != "emdcfl"]
        emdcfl.check_recovered(claims, f"{name}: nobody else does", rows, others, claim="emdcfl-t1-5", wanted=False)
        gap = emdcfl.mean(rows, "pacfl", "worst") - emdcfl.mean(rows, "oracle", "worst")
        if not np.isnan(gap):
            sentence = f"{name}: PACFL's worst client is at least 5 points below the oracle's"
            claims.check(sentence, bool(gap <= -5), emdcfl.signed(gap), claim="emdcfl-t1-6")
        near = {m: emdcfl.mean(rows, m, "ARI") for m in ("cfl", "fedclust", "flexcfl", "cflgp")}
        if not np.isnan(sum(near.values())):
            evidence = ", ".join(f"{emdcfl.label(m)} {v:.2f}" for m, v in near.items())
            sentence = f"{name}: methods that compare parameters or gradients are near ARI 0"
            claims.check(sentence, max(near.values()) < 0.1, evidence, claim="emdcfl-t1-7")
        return
    sentence = f"{name}: EMD-CFL, PACFL, FedClust, FlexCFL and CFLGP find the clusters"
    emdcfl.check_recovered(claims, sentence, rows, OF_CLUSTERS, claim=ids[1])
    _from_the_start(claims, name, rows, curves, ids[2])
    sentence = f"{name}: soft clusters are below EMD-CFL, "
    for measure, words in (("accuracy", "on average"), ("worst", "at the worst client")):
        emdcfl.check_above(claims, sentence + words, rows, ["emdcfl"], SOFT, measure, claim=ids[4])
    if part.printed is not None:
        rho, count = emdcfl.order_agreement(rows, part.printed)
        claims.check(
            f"{name}: the methods' order is the printed one (rank correlation above 0.7)",
            rho > 0.7,
            f"{rho:.2f} over {count}",
        )


def _from_the_start(claims: Claims, name: str, rows: pd.DataFrame, curves: pd.DataFrame, claim: str) -> None:
    """Check that EMD-CFL and PACFL are the oracle from round 1, and that later clusterings end below it."""
    first = curves[(curves["dataset"] == name) & (curves["variant"] == "as_written") & (curves["note"] == "")]
    first = first[(first["split"] == "test") & (first["round"] == 1)].groupby("method")["accuracy"].mean()
    gaps = {method: first.get(method, np.nan) - first.get("oracle", np.nan) for method in ("emdcfl", "pacfl")}
    if not np.isnan(sum(gaps.values())):
        evidence = ", ".join(f"{emdcfl.label(method)} {emdcfl.signed(gap)}" for method, gap in gaps.items())
        sentence = f"{name}: EMD-CFL and PACFL are at the oracle's accuracy after the first round (0.1 points)"
        claims.check(sentence, max(map(abs, gaps.values())) <= 0.1, evidence, claim=claim)
    top = emdcfl.mean(rows, "oracle", "accuracy")
    later = {method: emdcfl.mean(rows, method, "accuracy") - top for method in ("fedclust", "flexcfl", "cflgp")}
    if not np.isnan(sum(later.values())):
        evidence = ", ".join(f"{emdcfl.label(method)} {emdcfl.signed(gap)}" for method, gap in later.items())
        below = sum(gap < -0.1 for gap in later.values())
        sentence = f"{name}: most others with the right clusters stay below the oracle's accuracy"
        claims.check(sentence, below >= 2, evidence, claim=claim)


def _versions(claims: Claims, name: str, part: Part, curves: pd.DataFrame) -> None:
    """Check Table 10 or 11: one version."""
    number = 10 if part.data == "mnist" else 11
    ids = {n: f"emdcfl-t{number}-{n}" for n in (1, 2, 3)}
    emdcfl.check_recovered(claims, f"{name}: EMD-CFL finds the clusters", part.rows, ["emdcfl"], claim=ids[1])
    if part.version == "two":
        if part.data == "cifar10":
            others = ["pacfl", "fedclust", "cfl", *TOLD_TWO]
            emdcfl.check_recovered(claims, f"{name}: nobody else does", part.rows, others, claim=ids[2], wanted=False)
        return
    split = TOLD_TWO if part.data == "mnist" else ("flexcfl", "cflgp")
    aris = {method: emdcfl.mean(part.rows, method, "ARI") for method in split}
    if not np.isnan(sum(aris.values())):
        evidence = ", ".join(f"{emdcfl.label(m)} {v:.2f}" for m, v in aris.items())
        often = sum(value == 0 for value in aris.values())
        sentence = f"{name}: most methods told K = 2 split the one cluster"
        claims.check(sentence, 2 * often > len(aris), evidence, claim=ids[2] if part.data == "mnist" else ids[3])
    if part.data == "cifar10":
        sentence = f"{name}: IFCA and FeSEM do not split the one cluster"
        emdcfl.check_recovered(claims, sentence, part.rows, ("ifca", "fesem"), claim=ids[3])
        return
    lost = {method: emdcfl.mean(part.rows, method, "accuracy") for method in (*TOLD_TWO, "emdcfl")}
    if not np.isnan(sum(lost.values())):
        gaps = {method: value - lost["emdcfl"] for method, value in lost.items() if method != "emdcfl"}
        evidence = ", ".join(f"{emdcfl.label(m)} {emdcfl.signed(gap)}" for m, gap in gaps.items())
        sentence = f"{name}: splitting costs less than 2 points"
        claims.check(sentence, min(gaps.values()) > -2, evidence, claim=ids[3])


def _sampling(claims: Claims, rows: pd.DataFrame) -> None:
    """Check Table 6: EMD-CFL follows the oracle where it can, and is as right as drawing allows."""
    if rows.empty:
        return
    wide = rows.pivot_table(index=["level", "seed"], columns="method", values=["drawn", "ARI", "ARI, singles"])
    for level, own in wide.groupby("level"):
        gap = (own["drawn", "emdcfl"] - own["drawn", "oracle"]).mean()
        sentence = f"{level} of 40 clients: EMD-CFL is within 0.5 points of the oracle on clients that some round drew"
        claims.check(sentence, bool(abs(gap) <= 0.5), emdcfl.signed(gap), claim="emdcfl-t6-1")
        ari, most = own["ARI", "emdcfl"].mean(), own["ARI, singles", "emdcfl"].mean()
        sentence = f"{level} of 40 clients: EMD-CFL's ARI is what a perfect clustering of the clients drawn has"
        claims.check(sentence, bool(abs(ari - most) < 0.005), f"{ari:.2f}, {most:.2f}", claim="emdcfl-t6-1")


def _not_tested(claims: Claims, every: Mapping[str, Part]) -> None:
    """List the claims of this notebook that no check above has taken up."""
    done = set(claims.table()["claim"])
    known = published.claims("emdcfl")
    other = {
        part.data: part.model for part in every.values() if part.model not in NETWORK.get(part.data, (part.model,))
    }
    for claim in known[known["notebook"] == NAME].itertuples():
        if claim.id not in done:
            reason = "no finished runs on this data set here"
            if "CIFAR-10" in claim.claim and "cifar10" in other:
                reason = f"only a few runs of {other['cifar10']} here, too weak to speak for an ImageNet ResNet-18"
            claims.untestable(claim.claim, reason, claim=claim.id)


def _recovery_id(dataset: str) -> str:
    """Id of the claim that EMD-CFL finds the clusters of a data set, or no id."""
    ids = {"rotated_mnist": "t1-1", "rotated_cifar10": "t1-5"}
    ids |= {experiment.dataset("mnist", version): "t10-1" for version in ("min", "two", "base")}
    ids |= {experiment.dataset("cifar10", version): "t11-1" for version in ("min", "two", "base")}
    return f"emdcfl-{ids[dataset]}" if dataset in ids else ""


def _range(values: pd.Series) -> str:
    low, high = values.min(), values.max()
    return f"{low}" if low == high else f"{low} to {high}"


def fitted(specs: Sequence[ClusterSpec]) -> dict[str, tuple[Any, np.ndarray]]:
    """Cluster the first seed of every data set again, for pictures: data set -> (fitted clusterer, true clusters)."""
    found: dict[str, tuple[Any, np.ndarray]] = {}
    for spec in specs:
        if spec.dataset not in found:
            fed = spec.federation_built()
            found[spec.dataset] = (spec.clusterer_built().fit(*spec.encoder_built().embed(fed)), fed.clusters)
    return found


def chosen(clusterer: Any) -> float:
    """Tolerance that the distances of a fitted clusterer suggest, see :func:`fltnb.relatedness.emd.first_gap`."""
    from sklearn.base import clone

    return clone(clusterer).set_params(tolerance="auto").connect(clusterer.distance_, clusterer.reference_)[2]
