"""What the notebooks of EMD-CFL's tables (11 to 13) share: 17 methods printed beside reproduced, verdicts, time.

Everything starts from a frame with one row per run: ``method, variant, note, seed, key`` and a column for every measure
(:func:`runs`, or made by a notebook whose measures are others, such as the accuracy of some clients only).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from .. import published
from ..experiments.emdcfl import METHODS
from ..metrics import seed_spread

if TYPE_CHECKING:
    import pandas as pd

    from ..notebook import Claims
    from ..store import Result, Stored

ABOUT = ("method", "variant", "note", "seed", "key")
MEASURES = {"accuracy": ("test", "accuracy"), "worst": ("test", "worst"), "ARI": ("", "ari")}
"""Measure -> split and metric of tidy results."""
PRINTED = {"accuracy": "avg_accuracy", "worst": "worst_accuracy", "ARI": "ari"}
"""Measure -> metric of the published tables."""
RECOVERED = 0.995  # a mean ARI that prints as 1.00
SEEDS_WANTED = 0.9  # of the seeds must give ARI 1

COMMENTS = {
    "pacfl": "cut into the true number of clusters: the paper tuned the threshold to the truth",
    "fedclust": "cut into the true number of clusters; published: models never averaged again after the clustering",
    "flexcfl": "published: mixing weights that do not sum to 1",
    "cflgp": "published: clusters anew in every round, own gradients",
    "cfl": "thresholds 0.4 and 1.6 as published, for another network",
    "fesem": "the published start, k-means on equal models, is not part of ours",
    "fedem": "published: judged on the client's copy of the last component",
    "fedrc": "published: judged on the client's copy of the last component",
    "fedsoft": "published: counts validation batches, no proximal term",
    "fedce": "published: counts every improvement, not only the best model",
    "fedprox": "published runs had another penalty, the norm not squared",
}
"""What to know of a row: where a published number comes from code that is not the method (baselines' own papers)."""


def runs(tidy: pd.DataFrame, dataset: str, measures: Mapping[str, tuple[str, str]] = MEASURES) -> pd.DataFrame:
    """Return one row per run on a data set.

    Parameters
    ----------
    tidy : DataFrame
        From :func:`fltnb.store.tidy`, or the ``tidy`` of committed results.
    dataset : str
    measures : mapping
        Name of the column -> (split, metric).

    Returns
    -------
    DataFrame
        ``method, variant, note, seed, key`` and the measures, NaN where a run has none (ARI of FedAvg).
    """
    import pandas as pd

    own = tidy[tidy["dataset"] == dataset]
    wide = own[list(ABOUT)].drop_duplicates().reset_index(drop=True)
    for name, (split, metric) in measures.items():
        values = own[(own["split"] == split) & (own["metric"] == metric)][[*ABOUT, "value"]]
        wide = pd.merge(wide, values.rename(columns={"value": name}), on=list(ABOUT), how="left")
    return wide


def printed(
    table: str, dataset: str, setting: str | None = None, metrics: Mapping[str, str] = PRINTED
) -> dict[tuple[str, str], tuple[str, float]]:
    """Return a printed table: (method, measure) -> (text such as "98.86 ± 0.05", number).

    Parameters
    ----------
    table, dataset, setting
        As in :func:`fltnb.published.numbers`, for example "T10", "rotated_mnist", "rotated_min".
    metrics : mapping
        Measure -> published metric.
    """
    lines = published.numbers("emdcfl", table, dataset=dataset, setting=setting)
    names = {metric: measure for measure, metric in metrics.items()}
    return {
        (line.method, names[line.metric]): (f"{line.value} ± {line.error}" if line.error else line.value, line.number)
        for line in lines.itertuples()
        if line.metric in names
    }


def method_table(
    rows: pd.DataFrame,
    expected: Mapping[tuple[str, str], tuple[str, float]] | None = None,
    comments: Mapping[str, str] = COMMENTS,
    measures: Sequence[str] = tuple(MEASURES),
) -> pd.DataFrame:
    """Put the 17 methods' printed numbers beside the reproduced ones.

    Parameters
    ----------
    rows : DataFrame
        One row per run, see :func:`runs`. Each variant and note of a method gets a line of its own.
    expected : mapping, optional
        From :func:`printed`; None at toy scale, where there is nothing to compare with.
    comments : mapping
        Method -> text, shown once, on the method's first line.
    measures : sequence of str
        Columns of ``rows``.

    Returns
    -------
    DataFrame of text
        ``method, run`` ("as_written", "as_run" or the note), ``seeds``, then for each measure what is printed, what
        came out (mean ± sample standard deviation over seeds) and the difference, ``comment``. Methods that are printed
        and were not run read "not run".
    """
    import pandas as pd

    lines = []
    for method in _ordered({*rows["method"], *(name for name, _ in expected or {})}):
        own = rows[rows["method"] == method]
        kinds = set(zip(own["variant"], own["note"], strict=True)) or {("as_written", "")}
        kinds = sorted(kinds, key=lambda kind: (kind[1] != "", kind))
        for kind in kinds:
            found = own[(own["variant"] == kind[0]) & (own["note"] == kind[1])]
            shown = [kind[0]] * (kind[0] != "as_written") + [kind[1]] * (kind[1] != "")
            line = {"method": label(method), "run": ", ".join(shown) or "as_written"}
            line["seeds"] = str(found["seed"].nunique())
            for measure in measures:
                text, number = (expected or {}).get((method, measure), ("–", math.nan))
                if expected is not None:
                    line[f"{measure}, printed"] = text
                line[measure] = _mean_text(found[measure]) if len(found) else "not run"
                if expected is not None:
                    apart = found[measure].mean() - number if len(found) else math.nan
                    line[f"Δ {measure}"] = "–" if math.isnan(apart) else signed(apart)
            line["comment"] = comments.get(method, "") if kind == kinds[0] else ""
            lines.append(line)
    return pd.DataFrame(lines)


def mean(rows: pd.DataFrame, method: str, measure: str, variant: str = "as_written", note: str = "") -> float:
    """Mean of a measure over the seeds of one row; NaN where it was not run."""
    own = rows[(rows["method"] == method) & (rows["variant"] == variant) & (rows["note"] == note)]
    return float(own[measure].mean())


def order_agreement(rows: pd.DataFrame, expected: Mapping, measure: str = "accuracy") -> tuple[float, int]:
    """Spearman's rank correlation of printed and reproduced means over the methods that have both, and their number."""
    from scipy.stats import spearmanr

    pairs = [(number, mean(rows, method, name)) for (method, name), (_, number) in expected.items() if name == measure]
    pairs = [pair for pair in pairs if not math.isnan(sum(pair))]
    if len(pairs) < 3:
        return math.nan, len(pairs)
    return float(spearmanr(*zip(*pairs, strict=True)).statistic), len(pairs)


def check_recovered(
    claims: Claims, sentence: str, rows: pd.DataFrame, methods: Iterable[str], claim: str = "", wanted: bool = True
) -> None:
    """Check that methods find the true clusters in every run (mean ARI 1), or that none of them does."""
    found = {method: mean(rows, method, "ARI") for method in methods}
    if _absent(claims, sentence, found, claim):
        return
    right = {method: value >= RECOVERED for method, value in found.items()}
    holds = all(right.values()) if wanted else not any(right.values())
    claims.check(sentence, holds, "ARI: " + _listed(found, 2), claim=claim)


def check_near(
    claims: Claims,
    sentence: str,
    rows: pd.DataFrame,
    method: str,
    other: str = "oracle",
    within: float = 0.1,
    measures: Sequence[str] = ("accuracy",),
    claim: str = "",
    note: str = "",
) -> None:
    """Check that a method's mean is within so many points of another's, in every measure."""
    found = {(name, m): mean(rows, name, m, note=note) for name in (method, other) for m in measures}
    if _absent(claims, sentence, {f"{label(name)} {m}": value for (name, m), value in found.items()}, claim):
        return
    gaps = {measure: found[method, measure] - found[other, measure] for measure in measures}
    # a difference of printed decimals such as 98.86 - 98.76 is 0.0999... or 0.1000...
    holds = all(abs(gap) <= within + 1e-9 for gap in gaps.values())
    evidence = ", ".join(f"{measure} {found[method, measure]:.2f} ({signed(gap)})" for measure, gap in gaps.items())
    claims.check(sentence, holds, evidence, claim=claim)


def check_above(
    claims: Claims,
    sentence: str,
    rows: pd.DataFrame,
    above: Iterable[str],
    below: Iterable[str],
    measure: str = "accuracy",
    claim: str = "",
) -> None:
    """Check that each of some methods has a higher mean than each of some others."""
    high = {method: mean(rows, method, measure) for method in above}
    low = {method: mean(rows, method, measure) for method in below}
    if _absent(claims, sentence, high | low, claim):
        return
    evidence = f"{_listed(high, 2)} against {_listed(low, 2)}"
    claims.check(sentence, min(high.values()) > max(low.values()), evidence, claim=claim)


def time_table(tidy: pd.DataFrame, rounds: Mapping[str, int], dataset: str) -> pd.DataFrame:
    """Seconds and megabytes per round of each method, as described and in the table's settings.

    Parameters
    ----------
    tidy : DataFrame
    rounds : mapping
        Key of a run -> its rounds, see :func:`rounds_of`.
    dataset : str

    Returns
    -------
    DataFrame
        ``method, runs, seconds per round`` (mean over runs; the one-off clustering counts among the rounds), ``against
        FedAvg`` (factor), ``MB per round`` (both directions, all clients).
    """
    import pandas as pd

    found = runs(tidy, dataset, {"seconds": ("", "seconds"), "bytes": ("", "bytes")})
    found = found[(found["variant"] == "as_written") & (found["note"] == "")]
    each = found["key"].map(rounds)
    found = found.assign(seconds=found["seconds"] / each, bytes=found["bytes"] / each / 1e6)
    lines = []
    for method in _ordered(set(found["method"])):
        own = found[found["method"] == method]
        base = found[found["method"] == "fedavg"]["seconds"].mean()
        factor = own["seconds"].mean() / base
        lines.append((label(method), len(own), own["seconds"].mean(), factor, own["bytes"].mean()))
    return pd.DataFrame(lines, columns=["method", "runs", "seconds per round", "against FedAvg", "MB per round"])


def rounds_of(source: Sequence[Result] | Stored) -> dict[str, int]:
    """Return the rounds of every run, by key, of computed results or of committed ones."""
    if hasattr(source, "record"):
        return {key: entry["settings"]["rounds"] for key, entry in source.record.items()}
    return {result.key: result.spec.rounds for result in source}


def _absent(claims: Claims, sentence: str, found: Mapping[str, float], claim: str) -> bool:
    missing = [label(name) for name, value in found.items() if math.isnan(value)]
    if missing:
        claims.untestable(sentence, f"not run here: {', '.join(missing)}", claim=claim)
    return bool(missing)


def _listed(found: Mapping[str, float], digits: int) -> str:
    return ", ".join(f"{label(name)} {value:.{digits}f}" for name, value in found.items())


def _mean_text(values: pd.Series) -> str:
    if values.isna().all():
        return "–"
    spread = seed_spread(values)
    return f"{values.mean():.2f}" + ("" if math.isnan(spread) else f" ± {spread:.2f}")


def _ordered(methods: Iterable[str]) -> list[str]:
    """Sort into the table's order, then others by name."""
    return [*(name for name in METHODS if name in methods), *sorted(set(methods) - set(METHODS))]


def signed(value: float) -> str:
    """Write a difference with its sign and two decimals, never "-0.00"."""
    return f"{round(value, 2) + 0.0:+.2f}"


def label(method: str) -> str:
    """Name of a method in tables."""
    from ..plots.style import style

    return style(method).label
