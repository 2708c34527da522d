"""Notebook 08: what FeSEM's paper says of its Tables 1 to 3, Figures 3 to 5 and the choice of K, checked."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from .. import published
from ..experiments import fesem as experiment
from . import emdcfl
from .fesem import PAPER, PRINTED, Part

if TYPE_CHECKING:
    import pandas as pd

    from ..notebook import Claims

WRITERS = ("femnist", "pseudo-writers", "digits writers")
"""Federations on which claims about FEMNIST are looked at; every sentence names its own."""
FACES = "fedceleba"
BASELINES = experiment.METHODS[: experiment.METHODS.index(experiment.FESEM[0])]
LEVEL = 0.5  # points: more than this counts as a difference between two methods
STEADY = 1.0  # points: more than this over the last fifth of the rounds is no convergence
FEW = 10  # rounds below which nothing is said of convergence
SETTLED = 0.05  # share of clients that may still move in a round after the tenth
STRUCTURE = 0.25  # silhouette from which one speaks of clusters at all (Kaufman and Rousseeuw)
RANKED = 0.7  # Kendall's tau from which two rankings count as the same
ACCURACIES = ("micro accuracy", "macro accuracy")


def fesem_claims(
    parts: Mapping[str, Part],
    curves: pd.DataFrame,
    moved: pd.DataFrame,
    separated: pd.DataFrame,
    hands: pd.DataFrame,
    ranks: pd.DataFrame,
    tested: pd.DataFrame,
    sets: Mapping[str, tuple[int, int, int]],
) -> Claims:
    """Check the paper's claims, and what must be seen of the shipped code.

    Parameters
    ----------
    parts : mapping
        Of :func:`fltnb.analysis.fesem.parts`.
    curves : DataFrame
        Of :func:`fltnb.store.curves`, or committed ones.
    moved, separated, hands, ranks : DataFrame
        Of ``moves``, ``separation_table`` and ``hands`` of :mod:`fltnb.analysis.fesem_clusters`, ``ranking`` of
        :mod:`fltnb.analysis.fesem_choice`.
    tested : DataFrame
        Of :func:`fltnb.analysis.fesem.centres`.
    sets : mapping
        Of :func:`fltnb.analysis.fesem.whole_sets`.
    """
    from ..notebook import Claims

    claims = Claims()
    _statistics(claims, sets)
    for name, part in parts.items():
        of = "t2" if name in WRITERS else "t3" if name == FACES else ""
        text = bool(of)  # sentences of the paper's text are about both data sets
        _tables(claims, name, part, of)
        _text(claims, name, part, text)
        _rounds(claims, name, curves, text)
    _faces(claims, parts)
    _groups(claims, moved, separated)
    _hands(claims, hands)
    _choice(claims, ranks)
    _printed(claims)
    for name, part in parts.items():
        _shipped(claims, name, part, tested[tested["dataset"] == name])
    return claims


def _statistics(claims: Claims, sets: Mapping[str, tuple[int, int, int]]) -> None:
    for name in PAPER:
        sentence = f"{name}: samples, devices and classes of Table 1"
        if name not in sets:
            claims.untestable(sentence, "LEAF's files are not at hand", claim="fesem-t1")
            continue
        lines = published.numbers("fesem", "T1", dataset=name).set_index("metric")["number"]
        wanted = tuple(int(lines[metric]) for metric in ("num_samples", "num_clients", "num_classes"))
        claims.check(sentence, sets[name] == wanted, f"{sets[name]}, printed {wanted}", claim="fesem-t1")


def _tables(claims: Claims, name: str, part: Part, of: str) -> None:
    """Tables 2 and 3; ``of`` is "" for a federation beside no table, whose checks are our own."""

    def claim(number: int) -> str:
        return f"fesem-{of}-{number}" if of else ""

    rows = part.rows
    best = {measure: _means(rows, BASELINES, measure) for measure in ACCURACIES}
    ours = {measure: emdcfl.mean(rows, "fesem_4", measure) for measure in ACCURACIES}
    wins = all(ours[measure] > max(best[measure].values()) for measure in ACCURACIES)
    evidence = "; ".join(
        f"{measure} {ours[measure]:.1f}, {emdcfl.label(top)} {best[measure][top]:.1f}"
        for measure in ACCURACIES
        for top in [max(best[measure], key=best[measure].get)]
    )
    claims.check(f"{name}: FeSEM(4) beats every baseline in micro and macro accuracy", wins, evidence, claim=claim(1))
    if of != "t3":
        growing = {m: list(_means(rows, experiment.FESEM, m).values()) for m in (*ACCURACIES, "micro F1")}
        holds = all(_grows(values) for values in growing.values())
        evidence = "; ".join(f"{m} " + ", ".join(f"{v:.1f}" for v in values) for m, values in growing.items())
        claims.check(f"{name}: accuracy and micro F1 grow with K = 2, 3, 4", holds, evidence, claim=claim(2))
    gains = _matched(rows)
    evidence = ", ".join(f"{measure} {emdcfl.signed(gain)}" for measure, gain in gains.items())
    if of == "t3":
        holds = gains["macro F1"] > 0 and all(gain <= 0 for m, gain in gains.items() if m != "macro F1")
        claims.check(
            f"{name}: neuron matching at K = 3 raises macro F1 and nothing else", holds, evidence, claim=claim(2)
        )
    else:
        up, seeds = _all_raised(rows)
        claims.check(
            f"{name}: neuron matching at K = 3 raises all four metrics, in most seeds",
            up > seeds / 2,
            f"{evidence}; all four in {up} of {seeds} seed{'s' if seeds > 1 else ''}",
            claim=claim(3),
        )


def _text(claims: Claims, name: str, part: Part, counts: bool) -> None:
    """Section 6.2."""

    def claim(word: str) -> str:
        return f"fesem-text-{word}" if counts else ""

    rows = part.rows
    best = {m: max(found := _means(rows, experiment.METHODS, m), key=found.get) for m in PRINTED}
    won = sum(method.startswith("fesem") for method in best.values())
    evidence = ", ".join(f"{measure}: {emdcfl.label(method)}" for measure, method in best.items())
    sentence = f"{name}: a row of FeSEM is the best in most of the four metrics"
    claims.check(sentence, won > len(PRINTED) / 2, evidence, claim=claim("best"))
    found = _means(rows, experiment.FESEM, "micro accuracy")
    evidence = ", ".join(f"{emdcfl.label(method)} {value:.1f}" for method, value in found.items())
    holds = _grows(list(found.values()))
    claims.check(f"{name}: micro accuracy grows with the number of centres", holds, evidence, claim=claim("clusters"))
    one = rows[rows["seed"] == rows["seed"].min()]
    plain, weighed = (emdcfl.mean(one, "fesem_3", "micro F1", note=note) for note in ("", "weights by samples"))
    sentence = f"{name}: weights by samples give a higher micro F1 than equal weights"
    claims.check(sentence, weighed > plain, f"{weighed:.1f} and {plain:.1f}, one seed", claim=claim("weights"))
    gains = _matched(rows)
    evidence = ", ".join(f"{measure} {emdcfl.signed(gains[measure])}" for measure in ACCURACIES)
    holds = all(gains[measure] <= LEVEL for measure in ACCURACIES)
    claims.check(f"{name}: FeSEM-MA(3) is level with FeSEM(3) or below it", holds, evidence, claim=claim("matching"))
    accuracy = _means(rows, ("nofed", "fedavg", "robust_tkm", "fedcluster", "hypocluster_3"), "micro accuracy")
    least = min(list(accuracy.values())[2:])
    evidence = ", ".join(f"{emdcfl.label(method)} {value:.1f}" for method, value in accuracy.items())
    sentence = f"{name}: FedAvg and NoFed are better than some clustered baseline"
    claims.check(sentence, min(accuracy["nofed"], accuracy["fedavg"]) > least, evidence, claim=claim("baselines"))


def _rounds(claims: Claims, name: str, curves: pd.DataFrame, counts: bool) -> None:
    """Figure 3."""
    own = curves[(curves["dataset"] == name) & (curves["variant"] == "as_written") & (curves["note"] == "")]
    own = own[(own["split"] == "test") & own["method"].isin(experiment.FESEM)]
    mean = own.pivot_table(index="round", columns="method", values="micro")
    end = mean.index.max()
    before = mean.index[mean.index <= 0.8 * end].max()
    gains = mean.loc[end] - mean.loc[before]
    evidence = ", ".join(f"{emdcfl.label(method)} {emdcfl.signed(gain)}" for method, gain in gains.items())
    sentence = f"{name}: micro accuracy moves by at most {STEADY:g} point in the last fifth of {end} rounds"
    claim = "fesem-fig3-1" if counts else ""
    if end < FEW:
        claims.untestable(sentence, f"{end} rounds only", claim=claim)
    else:
        claims.check(sentence, bool((gains.abs() <= STEADY).all()), evidence, claim=claim)
    last = mean.loc[end].sort_values(ascending=False)
    evidence = ", ".join(f"{emdcfl.label(method)} {value:.1f}" for method, value in last.items())
    claim = "fesem-fig3-2" if counts else ""
    claims.check(
        f"{name}: K = 4 ends with the highest micro accuracy", last.index[0] == "fesem_4", evidence, claim=claim
    )


def _faces(claims: Claims, parts: Mapping[str, Part]) -> None:
    if FACES not in parts:
        reason = "CelebA's pictures are not at hand; see the claims on writers"
        claims.untestable("FedCelebA: FeSEM(4) beats every baseline", reason, claim="fesem-t3-1")
        claims.untestable("FedCelebA: neuron matching raises macro F1 alone", reason, claim="fesem-t3-2")
    reason = "a judgement of the eye on pictures that may not be handed on"
    claims.untestable("FedCelebA: younger and older faces are apart", reason, claim="fesem-fig5-2")


def _groups(claims: Claims, moved: pd.DataFrame, separated: pd.DataFrame) -> None:
    """Figure 4, which is about FEMNIST alone in the text."""
    for name, own in separated.groupby("dataset", sort=False):
        last, first = own.iloc[own["round"].argmax()], own.iloc[own["round"].argmin()]
        four = len(last["sizes"].split(", ")) == 4
        holds = four and last["in the plane"] >= STRUCTURE and last["silhouette"] > last["highest"]
        evidence = (
            f"round {last['round']}: silhouette {last['in the plane']:.2f} in the plane,"
            f" {last['silhouette']:.2f} in full ({last['chance']:.2f} by chance), sizes"
            f" {last['sizes']}; round {first['round']}: {first['in the plane']:.2f} and {first['silhouette']:.2f}"
        )
        sentence = f"{name}: FeSEM(4)'s local models form four groups that can be told apart"
        claims.check(sentence, bool(holds), evidence, claim="fesem-fig4-1" if name in WRITERS else "")
        sentence = f"{name}: these groups are there in round {first['round']} already, after training from one model"
        claims.check(sentence, bool(first["in the plane"] >= STRUCTURE), f"{first['in the plane']:.2f} in the plane")
    for name, own in moved.groupby("dataset", sort=False):
        late, claim = own[own["round"] > 10], "fesem-fig4-2" if name in WRITERS else ""
        sentence = f"{name}: after round 10 at most {SETTLED:.0%} of the clients change cluster in any round"
        if late.empty:
            claims.untestable(sentence, f"{own['round'].max()} rounds only", claim=claim)
            continue
        share = late.assign(share=late["moved"] / late["clients"]).groupby("method")["share"].max()
        evidence = "at most " + ", ".join(f"{emdcfl.label(method)} {value:.0%}" for method, value in share.items())
        claims.check(sentence, bool((share <= SETTLED).all()), evidence, claim=claim)


def _hands(claims: Claims, hands: pd.DataFrame) -> None:
    """Figure 5, upper half."""
    if hands.empty:
        reason = "hands are known of pseudo-writers alone"
        claims.untestable("FEMNIST: thin and small hands against bold ones", reason, claim="fesem-fig5-1")
    for name, own in hands.groupby("dataset", sort=False):
        p = own.pivot(index="seed", columns="attribute", values="p")
        told = (p[["width", "size"]].min(axis=1) < 0.05 / 2).sum()  # two attributes are looked at
        wide = own.set_index(["attribute", "seed"])
        words = [
            f"{attribute}: "
            + ", ".join(f"{row.effect:+.1f} (p {row.p:.3f})" for row in wide.loc[attribute].itertuples())
            for attribute in ("width", "size", "training samples")
        ]
        claims.check(
            f"{name}: FeSEM(2)'s clusters differ in stroke width or size beyond chance, in most seeds",
            bool(told > len(p) / 2),
            "; ".join(words),
            claim="fesem-fig5-1",
        )


def _choice(claims: Claims, ranks: pd.DataFrame) -> None:
    for name, own in ranks.groupby("dataset", sort=False):
        for column in ("tau, accuracy", "tau, distance"):
            values = own[column].to_numpy()
            evidence = "tau " + ", ".join(f"{value:.2f}" for value in values)
            evidence += f"; K taken {', '.join(map(str, own['K by ' + column.split()[1]]))}"
            evidence += f", best in the long runs {own['K of the long runs'].iloc[0]}"
            sentence = (
                f"{name}: a small run ranks K by {column.split()[1]} as the long runs do (mean tau {RANKED} or more)"
            )
            claim = "fesem-text-choosing" if name in (*WRITERS, FACES) else ""
            claims.check(sentence, bool(np.mean(values) >= RANKED), evidence, claim=claim)


def _printed(claims: Claims) -> None:
    """Hold sentences of the text against the printed tables themselves."""
    for number, dataset in (("T2", "FEMNIST"), ("T3", "FedCelebA")):
        lines = published.numbers("fesem", number)
        wide = lines.pivot(index="method", columns="metric", values="number")
        best = {metric: wide[metric].idxmax() for metric in PRINTED.values()}
        evidence = ", ".join(f"{metric}: {emdcfl.label(method)}" for metric, method in best.items())
        sentence = f"Table {number[1]} as printed: a row of FeSEM is the best in all four metrics"
        claims.check(sentence, all(method.startswith("fesem") for method in best.values()), evidence)
        values = wide.loc[list(experiment.FESEM), "micro_accuracy"].tolist()
        sentence = f"Table {number[1]} as printed: micro accuracy on {dataset} grows with K"
        claims.check(sentence, _grows(values), ", ".join(f"{value:.1f}" for value in values))


def _shipped(claims: Claims, name: str, part: Part, tested: pd.DataFrame) -> None:
    own = part.rows[(part.rows["variant"] == "as_run") & (part.rows["note"] == "")]
    for run in tested.itertuples():
        reported = own[(own["method"] == run.method) & (own["seed"] == run.seed)]["micro accuracy"].mean()
        claims.check(
            f"{name}: what shipped {emdcfl.label(run.method)} reports is its best centre on all clients",
            bool(abs(reported - run.highest) < 1e-3),
            f"{reported:.2f}; centres {run.lowest:.2f} to {run.highest:.2f}, own centres {run.own:.2f}",
        )


def _grows(values: list[float]) -> bool:
    return all(a < b for a, b in pairwise(values))


def _means(rows: pd.DataFrame, methods: tuple[str, ...], measure: str) -> dict[str, float]:
    """Mean over seeds of the rows of the table; methods that have no such number are left out."""
    found = {method: emdcfl.mean(rows, method, measure) for method in methods}
    return {method: value for method, value in found.items() if not np.isnan(value)}


def _matched(rows: pd.DataFrame) -> dict[str, float]:
    """Return what neuron matching adds to FeSEM(3), measure by measure."""
    return {m: emdcfl.mean(rows, "fesem_ma_3", m) - emdcfl.mean(rows, "fesem_3", m) for m in PRINTED}


def _all_raised(rows: pd.DataFrame) -> tuple[int, int]:
    """Count the seeds in which neuron matching raises every metric of FeSEM(3), and those that have both runs."""
    own = rows[(rows["variant"] == "as_written") & (rows["note"] == "")].set_index("seed")
    matched, plain = (own.loc[own["method"] == name, list(PRINTED)] for name in ("fesem_ma_3", "fesem_3"))
    gains = (matched - plain).dropna()
    return int((gains > 0).all(axis=1).sum()), len(gains)
