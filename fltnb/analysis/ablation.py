"""Table 5, the ablation: settings run once, read at both numbers of rounds, and the sentences about them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import numpy as np

from .. import published
from ..experiments.ablation import METHODS, ROUNDS

if TYPE_CHECKING:
    import pandas as pd

    from ..notebook import Claims

LINE = ["M", "rho", "E", "T"]


def ablation_runs(curves: pd.DataFrame, profile: str) -> pd.DataFrame:
    """Test accuracy of every line of Table 5 that was run.

    Parameters
    ----------
    curves : DataFrame
        Curves of notebook 05 (:func:`fltnb.store.curves`); the setting is read from the note.
    profile : str
        Gives the two numbers of rounds.

    Returns
    -------
    DataFrame
        ``dataset, method, M, rho, E, T, accuracy, spread, seeds``: mean and sample standard deviation over seeds.
    """
    import pandas as pd

    test = curves[(curves["split"] == "test") & curves["round"].isin(ROUNDS[profile])]
    settings = test["note"].str.extract(r"M = (?P<M>\d+), rho = (?P<rho>[\d.]+), E = (?P<E>\d+)").astype(float)
    table = pd.concat([test[["dataset", "method", "seed", "accuracy"]], settings], axis=1).assign(T=test["round"])
    table = table.astype({"M": int, "E": int, "T": int})
    out = table.groupby(["dataset", "method", *LINE], sort=False)["accuracy"].agg(["mean", "std", "count"])
    return out.rename(columns={"mean": "accuracy", "std": "spread", "count": "seeds"}).reset_index()


def printed_lines() -> pd.DataFrame:
    """Return Table 5 as printed: ``method, M, rho, E, T, printed`` (percent)."""
    import pandas as pd

    rows = published.numbers("flt", "T5")
    params = pd.DataFrame([json.loads(text) for text in rows["params"]])[LINE]
    return pd.concat([rows[["method"]], params], axis=1).assign(printed=rows["number"])


def table5(runs: pd.DataFrame) -> pd.DataFrame:
    """Table 5, printed and reproduced side by side; lines that were not run say so.

    On a data set that the paper does not use (the digits) the printed columns are left out.
    """
    import pandas as pd

    toy = "cifar10" not in set(runs["dataset"])
    printed = printed_lines().set_index([*LINE, "method"])["printed"]
    ours = runs.set_index([*LINE, "method"])
    lines = list(dict.fromkeys((ours if toy else printed).index.droplevel("method")))
    rows = []
    for line in lines:
        row = dict(zip(LINE, line, strict=True))
        for method in METHODS:
            key = (*line, method)
            cell = "not run"
            if key in ours.index:
                cell = f"{ours.loc[key, 'accuracy']:.2f}"
                if ours.loc[key, "seeds"] > 1:
                    cell += f" ± {ours.loc[key, 'spread']:.2f}"
            if not toy:
                row[f"{method} printed"] = f"{printed[key]:.2f}"
            row[method] = cell
        rows.append(row)
    return pd.DataFrame(rows)


def pairs(table: pd.DataFrame, value: str, factor: str) -> pd.DataFrame:
    """Differences of ``value`` between the higher and the lower level of one factor, all else being equal."""
    others = ["method", *[name for name in LINE if name != factor]]
    wide = table.pivot_table(index=others, columns=factor, values=value)
    low, high = wide.columns.min(), wide.columns.max()
    if low == high:  # only one level was run: there is nothing to compare
        wide = wide.iloc[:0]
    return (wide[high] - wide[low]).dropna().rename("difference").reset_index()


def ablation_claims(runs: pd.DataFrame) -> Claims:
    """Check the paper's sentences about Table 5 on our runs, and beside it on the printed numbers themselves."""
    from ..notebook import Claims

    claims = Claims()
    toy = "cifar10" not in set(runs["dataset"])
    sources = [("ours", runs, "accuracy")] + ([] if toy else [("as printed", printed_lines(), "printed")])
    for name, table, value in sources:
        own = name == "ours" and not toy
        gaps = _gaps_to_fedsem(table, value)
        claims.check(
            f"{name}: FLT above FedSEM in every line",
            bool((gaps > 0).all()),
            f"{(gaps > 0).sum()} of {len(gaps)} pairs, {gaps.min():+.2f} to {gaps.max():+.2f} points",
            claim="flt-t5-1" if own else "",
        )
        claims.check(
            f"{name}: FLT 2 to 8 points above FedSEM without exception",
            bool(((gaps >= 2) & (gaps <= 8)).all()),
            f"{((gaps >= 2) & (gaps <= 8)).sum()} of {len(gaps)} pairs",
            claim="flt-text-2to8" if own else "",
        )
        for factor, sentence, claim in (
            ("E", "more local epochs help FLT", "flt-t5-3"),
            ("T", "more rounds help", "flt-t5-4"),
            ("rho", "more participation helps", "flt-t5-4"),
        ):
            moved = pairs(table, value, factor)
            if factor == "E":
                moved = moved[moved["method"] != "fedsem"]
            moved = moved["difference"]
            if len(moved):
                helps = f"{(moved > 0).sum()} of {len(moved)} pairs, {moved.mean():+.2f} points on average"
                claims.check(f"{name}: {sentence} in every pair", bool((moved > 0).all()), helps, claim=claim * own)
            else:
                claims.untestable(f"{name}: {sentence} in every pair", "only one level was run", claim * own)
        moved = pairs(table, value, "M")["difference"]
        if len(moved):
            claims.check(
                f"{name}: the number of clients hardly matters (2 points at most)",
                bool((np.abs(moved) <= 2).all()),
                f"{moved.min():+.2f} to {moved.max():+.2f} points",
                claim="flt-t5-2" * own,
            )
    return claims


def _gaps_to_fedsem(table: pd.DataFrame, value: str) -> pd.Series:
    """FLT's lead over FedSEM, line by line and encoder by encoder."""
    wide = table.pivot_table(index=LINE, columns="method", values=value)
    flt = [name for name in wide.columns if re.match("flt", name)]
    return (wide[flt].sub(wide["fedsem"], axis=0)).stack()
