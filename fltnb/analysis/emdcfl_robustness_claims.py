"""The paper's claims on what EMD-CFL's clusters depend on: Figures 8 to 17, Tables 4, 5 and 9."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..experiments.emdcfl import TOLERANCE
from .emdcfl import SEEDS_WANTED
from .emdcfl_robustness import matrices_from, one_epsilon, seeds_right, structure, table9

if TYPE_CHECKING:
    import pandas as pd

    from ..notebook import Claims

BLOCKS = 0.9  # ARI from which we say that a matrix shows the clusters


def robustness_claims(
    profile: str,
    table: pd.DataFrame,
    matrices: pd.DataFrame,
    under: pd.DataFrame,
    times: pd.DataFrame,
    dimensions: pd.DataFrame,
) -> Claims:
    """Check the paper's claims on Figures 8 to 17 and Tables 4, 5 and 9.

    Parameters
    ----------
    profile : str
        Whose tables these are.
    table, matrices, under, times, dimensions : DataFrame
        Of ``summary``, ``matrices_table`` (of kinds of distances, and under networks), ``wall_time`` and ``widths`` of
        :mod:`fltnb.analysis.emdcfl_robustness`.
    """
    from ..notebook import Claims

    claims = Claims()
    rotated = [name for name in table["dataset"].unique() if name.startswith("rotated")]
    backdoor = [name for name in table["dataset"].unique() if name.startswith("backdoor")]
    main = table[table["part"] == "plateau"]
    claims.check(
        "A wide plateau of epsilon gives ARI 1 on the rotated data (factor 2 or more).",
        *_plateaus(main[main["dataset"].isin(rotated) & main["note"].isin(["all", "90%"])], 2.0),
        claim="emdcfl-fig8-1",
    )
    claims.check(
        "There is such an epsilon with 90 % of the dimensions removed.",
        *_plateaus(main[main["dataset"].isin(rotated) & (main["note"] == "10%")]),
        claim="emdcfl-fig8-2",
    )
    entropic = table[(table["part"] == "sinkhorn") & (table["note"] == "90%")]
    claims.check(
        "With Sinkhorn there is such an epsilon on the rotated data.",
        *_plateaus(entropic[entropic["dataset"].isin(rotated)]),
        claim="emdcfl-fig9",
    )
    networks = table[table["part"].str.startswith("network")]
    claims.check(
        "Every network has an epsilon with ARI 1.", *_plateaus(networks, label="model"), claim="emdcfl-fig10-1"
    )
    exact = networks[networks["part"] == "network, exact"]
    common = exact["low"].max() < exact["high"].min()
    claims.check(
        "The networks' epsilons lie at different places: none suits all.",
        not common,
        ", ".join(f"{row.model} {_range(row)}" for row in exact.itertuples()),
        claim="emdcfl-fig10-2",
    )
    claims.check(
        "The distances under every network show four blocks.",
        bool((exact["across"] > 2 * exact["inside"]).all()),
        ", ".join(f"{row.model}: across / inside {row.across / row.inside:.1f}" for row in exact.itertuples()),
        claim="emdcfl-fig11-1",
    )
    _upright(claims, profile, under)
    natural = main[(main["dataset"] == "pacs") & main["note"].isin(["all", "90%", "50%"])]
    _or_untested(claims, natural, "On PACS an epsilon gives ARI 1 down to half of the dimensions.", "emdcfl-fig12")
    both = main[main["dataset"].isin(backdoor) & (main["note"] == "90%")]
    both = _joined(both, entropic[entropic["dataset"].isin(backdoor)])
    claims.check(
        "On the backdoor data an epsilon gives ARI 1, exact and with Sinkhorn.", *_plateaus(both), claim="emdcfl-fig13"
    )
    _shown(claims, structure(matrices))
    ratio = times.loc[times["unit"] == "seconds", "ratio"].mean()
    claims.check(
        "EMD-CFL takes about a tenth more wall time than the Oracle (less than 15 %).",
        bool(ratio < 1.15),
        f"{100 * (ratio - 1):.0f} % more, mean over seeds",
        claim="emdcfl-t4",
    )
    claims.check(
        "The networks embed into as many dimensions as Table 5 says.",
        bool((dimensions["difference"] == 0).all()),
        f"{len(dimensions)} of 6 networks: "
        + ", ".join(f"{row.network} {row.ours}" for row in dimensions.itertuples()),
        claim="emdcfl-t5",
    )
    ninth = table9(matrices)
    smaller = int((ninth["ratio"] < 1).sum())
    claims.check(
        "Parameters are nearer to each other inside the clusters found than overall, last layer and whole model.",
        smaller == len(ninth),
        f"{smaller} of {len(ninth)} comparisons",
        claim="emdcfl-t9-1",
    )
    whole = ninth[(ninth["dataset"] == "rotated_cifar10") & (ninth["parameters"] == "whole model")]
    sentence = "On Rotated CIFAR-10 the whole models are hardly nearer inside the clusters (ratio above 0.95)."
    if len(whole):
        value = float(whole["ratio"].iloc[0])
        claims.check(sentence, value > 0.95, f"ratio {value:.2f}; {_SMALL[profile]}", claim="emdcfl-t9-2")
    else:
        claims.untestable(sentence, "no CIFAR-10 at toy scale", claim="emdcfl-t9-2")
    for_all(claims, table)
    return claims


def for_all(claims: Claims, table: pd.DataFrame) -> None:
    """Whether one epsilon does for the data sets of the part "one epsilon"; the paper's is 0.025 everywhere."""
    right = seeds_right(table)
    if not len(right):
        return
    names = ", ".join(right["dataset"].unique())
    common = one_epsilon(right, SEEDS_WANTED)
    evidence = f"{common[0]:.4f} to {common[1]:.4f}" if common else "none"
    claims.check(
        f"One epsilon finds the clusters in at least 9 of 10 seeds of each of {names}.", common is not None, evidence
    )
    at = right[right["tolerance"] == TOLERANCE]
    words = ", ".join(f"{row.dataset} {row.right} of {row.seeds}" for row in at.itertuples())
    claims.check("0.025 is such an epsilon.", bool((at["right"] >= SEEDS_WANTED * at["seeds"]).all()), words)


def _upright(claims: Claims, profile: str, under: pd.DataFrame) -> None:
    """Figure 11: whose rows are darkest."""
    words, first = [], []
    for clusters, held in matrices_from(under).values():
        other = clusters[:, None] != clusters
        for name, matrix in held.items():
            mean = [matrix[(clusters == k)[:, None] & other].mean() for k in np.unique(clusters)]
            first.append(int(np.argmax(mean)) == 0)
            words.append(f"{name} {mean[0] / np.mean(mean[1:]):.2f}")
    start = "ImageNet weights" if profile == "paper" else "networks that start at random"
    claims.check(
        "Clients with upright images find the others farther than anybody else does, under every network.",
        all(first),
        f"mean distance over that of the others' rows: {', '.join(words)}; {start}",
        claim="emdcfl-fig11-2",
    )


_SMALL = {"demo": "toy scale", "small": "LeNet in place of ResNet-18", "paper": "ResNet-18"}


def _joined(*tables: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    return pd.concat(tables)


def _range(row) -> str:
    return f"{row.low:.3f} to {row.high:.3f}" if row.low < row.high else "none"


def _plateaus(rows: pd.DataFrame, factor: float = 1.0, label: str = "dataset") -> tuple[bool, str]:
    """Whether some tolerance separates the clusters in every row, by a factor, and in which rows one does."""
    there = (rows["high"] > rows["low"]) & (rows["high"] >= factor * rows["low"])
    words = [f"{name} {int(part.sum())} of {len(part)}" for name, part in there.groupby(rows[label], sort=False)]
    return bool(there.all()), ", ".join(words)


def _or_untested(claims: Claims, rows: pd.DataFrame, sentence: str, claim: str) -> None:
    if len(rows):
        claims.check(sentence, *_plateaus(rows, label="note"), claim=claim)
    else:
        claims.untestable(sentence, "no PACS at toy scale", claim=claim)


def _shown(claims: Claims, table: pd.DataFrame) -> None:
    """Figures 14 to 17: which distances show the clusters of the challenging data."""
    hard = [name for name in ("rotated_cifar10", "backdoor_mnist", "backdoor_cifar10") if name in set(table["dataset"])]
    hard = hard or ["backdoor_digits"]
    words = {
        "parameters": ("Distances of parameters do not show the clusters of the challenging data.", "emdcfl-fig14"),
        "updates": ("Cosines of updates do not show them.", "emdcfl-fig15"),
        "angles": ("Principal angles of the inputs do not show them.", "emdcfl-fig16"),
        "emd": ("Earth mover's distances of the embeddings show them.", "emdcfl-fig17"),
    }
    for name, (sentence, claim) in words.items():
        rows = table[(table["measure"] == name) & table["dataset"].isin(hard)]
        shown = rows["ari"] >= BLOCKS
        evidence = "told K, ARI " + ", ".join(f"{row.dataset} {row.ari:.2f}" for row in rows.itertuples())
        claims.check(sentence, bool(shown.all() if name == "emd" else not shown.any()), evidence, claim=claim)
