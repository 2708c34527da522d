"""Tables of the papers beside runs on data that stand in for the papers' own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import published

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

STAND_INS = {
    "emnist_bymerge": "structured_noniid_femnist",  # cut to EMNIST Balanced's sizes, where its release is not at hand
    "emnist_balanced": "structured_noniid_femnist",  # this *is* the paper's set: it is cut from EMNIST Balanced
    "pseudo_writers": "femnist",
    "pseudo-writers": "femnist",  # FeSEM's, with 80 % of a client's images for training
}
"""Data set of a run -> data set of the printed table beside which it may be shown, always named."""
MODELS = {"leaf_cnn": "cnn"}  # the paper calls it so


def comparison(results: pd.DataFrame, table: str, comments: Mapping | None = None) -> pd.DataFrame:
    """Do as :func:`fltnb.published.comparison`, with stand-ins beside the numbers that they stand in for.

    Returns
    -------
    DataFrame
        The column ``dataset`` says which data the run had; ``attrs["caption"]`` says so again.
    """
    import pandas as pd

    results = results.assign(model=results["model"].replace(MODELS))
    used = [name for name in dict.fromkeys(results["dataset"]) if name in STAND_INS]
    if not used:
        out = published.comparison(results, table, comments=comments)
        toy = not set(out["dataset"]) & set(published.numbers("flt", table)["dataset"])
        if toy and "model" in out:  # no number to compare with: a model that did not run would be an empty line
            caption, out = out.attrs["caption"], out[out["model"].isin(results["model"])].reset_index(drop=True)
            out.attrs["caption"] = caption
        return out
    parts = []
    for name in used:
        own = results[results["dataset"] == name].assign(dataset=STAND_INS[name])
        part = published.comparison(own, table, STAND_INS[name], comments)
        caption = part.attrs["caption"]
        parts.append(part.assign(dataset=name))
    out = pd.concat(parts, ignore_index=True)
    named = ", ".join(f"{name} beside the paper's {STAND_INS[name]}" for name in used)
    out.attrs["caption"] = f"{caption} Data: {named}."
    return out
