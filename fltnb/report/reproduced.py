"""Each printed number beside its reproductions."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import paths, published, store
from ..errors import FltnbError

if TYPE_CHECKING:
    import pandas as pd

PROFILES = ("paper", "small")  # most trusted first
NOTEBOOKS = {
    "flt": {
        "01_scenario1": ("T1", "T7"),
        "02_scenario2": ("T2", "T8"),
        "03_scenario3_femnist": ("T3", "T9"),
        "04_scenario4_structured": ("T4", "T10"),
        "05_ablation": ("T5",),
    },
    "fesem": {"08_fesem": ("T2", "T3")},
    "mthfl": {"09_mthfl_similarity": ("TI", "TII")},
    "emdcfl": {
        "11_emdcfl_rotated": ("T1", "T6", "T10", "T11"),
        "12_emdcfl_pacs": ("T2", "T7"),
        "13_emdcfl_backdoor": ("T3", "T8"),
    },
}
"""Paper -> notebook -> tables whose numbers it reproduces. A paper's notebook adds its line here."""

OWN = {
    "09_mthfl_similarity": "mthfl_similarity",
    "11_emdcfl_rotated": "emdcfl_report",
    "12_emdcfl_pacs": "emdcfl_report",
    "13_emdcfl_backdoor": "emdcfl_report",
}
"""Notebook -> module of :mod:`fltnb.analysis` that says itself which numbers were reproduced: its ``reproduced`` has
one DataFrame with :data:`COLUMNS` per stored profile."""

COLUMNS = ("dataset", "model", "method", "split", "metric", "setting", "match", "variant")
COLUMNS += ("data", "origin", "departs", "mean", "spread", "seeds")
"""Of these tables; ``match`` is a dict of the printed params that a number must agree with. A column ``stand_in`` may
say which rows had data in the place of the paper's; without it none did."""

STATUS = ("reproduced", "other setting", "stand-in data", "toy scale", "not run")
"""What became of a printed number, best first."""

_KEY = ["dataset", "model", "method", "split", "metric"]
NUMBER = ["paper", "table", *_KEY, "params"]  # what makes a printed number one of its kind
_LINE = ["M", "rho", "E", "T"]  # what tells the lines of FLT's Table 5 apart
_NEAR = 0.25  # variances within a quarter of the printed one count as near


def numbers(paper: str | None = None) -> pd.DataFrame:
    """Put every printed number beside its reproductions.

    Parameters
    ----------
    paper : str, optional
        One paper; all whose claims are registered if left out.

    Returns
    -------
    DataFrame
        One row per printed number, variant and profile that ran it; numbers that nothing ran have one row with status
        "not run". ``paper, table, setting, dataset, model, method, split, metric, params, number, number_error`` are
        those of :func:`fltnb.published.numbers`, ``printed`` is the text with its error. Of the run: ``profile,
        variant``; ``data`` (what it really had) and ``origin`` (where that came from); ``departs`` (how M, rho, E or T
        differ from the printed ones; for the published variant only M and T are looked at, because its other
        departures are what the variant is); ``mean, spread`` (over ``seeds``), ``difference`` (mean minus printed) and
        ``status``, one of :data:`STATUS`.
    """
    import pandas as pd

    rows = []
    for name in [paper] if paper else _papers():
        runs_of = {
            table: runs for book, tables in NOTEBOOKS.get(name, {}).items() for table in tables if (runs := _runs(book))
        }
        for line in published.numbers(name).to_dict("records"):
            line["printed"] = f"{line['value']} ± {line['error']}" if line["error"] else line["value"]
            found = _reproductions(runs_of.get(line["table"], []), line)
            rows += [line | run for run in found] or [line | _NOT_RUN]
    columns = ["paper", "table", "setting", *_KEY, "params", "printed", "number", "number_error", *_NOT_RUN]
    return pd.DataFrame(rows, columns=columns)


_NOT_RUN = {"profile": "", "variant": "", "data": "", "origin": "", "departs": "", "mean": np.nan, "spread": np.nan}
_NOT_RUN |= {"seeds": 0, "difference": np.nan, "status": "not run"}


def _papers() -> list[str]:
    there = set(published.claims()["paper"]) | set(NOTEBOOKS)
    return [name for name in published.PAPERS if name in there]


def _reproductions(profiles: list[dict[str, Any]], line: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for runs in profiles:
        key = tuple(line[column] for column in _KEY if column != "model" or line["model"])
        params = json.loads(line["params"] or "{}")
        if line["setting"] == "ablation":
            key += tuple(float(params[name]) for name in _LINE)
        for run in runs["index"].get(key, ()):
            if run.get("setting", line["setting"]) != line["setting"]:
                continue
            if any(params.get(name) != value for name, value in run.get("match", {}).items()):
                continue
            departs = run["departs"](params)
            status = "toy scale" if runs["profile"] == "demo" else "reproduced"
            if status == "reproduced" and run["stand_in"]:
                status = "stand-in data"
            elif status == "reproduced" and departs:
                status = "other setting"
            own = {name: run[name] for name in ("variant", "data", "origin", "mean", "spread", "seeds")}
            own |= {"profile": runs["profile"], "departs": departs, "difference": run["mean"] - line["number"]}
            found.append(own | {"status": status})
    return found


def _runs(notebook: str) -> list[dict[str, Any]]:
    """Aggregate the runs of a notebook by profile, indexed by the printed number that they reproduce."""
    found = []
    if notebook in OWN:
        return _own(notebook)
    for stored in stored_results(notebook):
        table = _ablation(stored) if notebook == "05_ablation" else _last_rounds(stored)
        index: dict[tuple, list] = {}
        for run in table:
            for dataset in rows_for(run["data"], notebook, stored.profile):
                of = {**run, "dataset": dataset}
                line = tuple(float(run[name]) for name in _LINE) if notebook == "05_ablation" else ()
                mine = of | {"stand_in": dataset != run["data"] and run["data"] not in _SAME}
                # with the network, and without for tables that do not say which it was
                for key in {tuple(of[c] for c in _KEY), tuple(of[c] for c in _KEY if c != "model")}:
                    index.setdefault(key + line, []).append(mine)
        found.append({"profile": stored.profile, "index": index})
    return found


def _own(notebook: str) -> list[dict[str, Any]]:
    """Do what :func:`_runs` does for a notebook that names the numbers itself."""
    found = []
    for profile, table in import_module(f"fltnb.analysis.{OWN[notebook]}").reproduced(notebook).items():
        index: dict[tuple, list] = {}
        for run in table.to_dict("records"):
            mine = {"stand_in": False} | run | {"departs": lambda params, departs=run["departs"]: departs}
            for key in {tuple(run[c] for c in _KEY), tuple(run[c] for c in _KEY if c != "model")}:
                index.setdefault(key, []).append(mine)
        found.append({"profile": profile, "index": index})
    return found


_SAME = {"emnist_balanced"}  # the set that "Structured Non-IID FEMNIST" is cut from


def rows_for(data: str, notebook: str, profile: str) -> list[str]:
    """Return the published data sets beside which runs on this one are shown: at toy scale all of the tables'."""
    from ..analysis.standins import STAND_INS

    if profile == "demo":
        tables = [(paper, table) for paper, books in NOTEBOOKS.items() for table in books.get(notebook, ())]
        return sorted({name for pair in tables for name in published.numbers(*pair)["dataset"]})
    return [STAND_INS.get(data, data)]


def _last_rounds(stored: store.Stored) -> list[dict[str, Any]]:
    """Rows of a table: what a single switch changed is left out."""
    from ..analysis.standins import MODELS

    main = stored.tidy[stored.tidy["note"] == ""]
    main = main[main["metric"].isin(["accuracy", "accuracy_variance"])]
    key = main.groupby(["dataset", "model", "method", "variant"])["key"].agg(list).to_dict()
    rows = []
    for run in published.aggregate(main).to_dict("records"):
        entries = [stored.record[k] for k in key[run["dataset"], run["model"], run["method"], run["variant"]]]
        rows.append(
            {
                **run,
                "data": run["dataset"],
                "origin": _origin(entries),
                "model": MODELS.get(run["model"], run["model"]),
                "departs": _departures(entries, run["variant"]),
            }
        )
    return rows


def _ablation(stored: store.Stored) -> list[dict[str, Any]]:
    """Lines of FLT's Table 5, each read at two numbers of rounds."""
    from ..analysis.ablation import ablation_runs

    if stored.curves.empty:
        return []
    curves = stored.curves[stored.curves["note"].str.match(r"M = \d+, rho = [\d.]+, E = \d+$")]
    runs = ablation_runs(curves, stored.profile).rename(columns={"accuracy": "mean"})
    fixed = {"split": "test", "metric": "accuracy", "model": "", "variant": "as_written", "departs": lambda params: ""}
    rows = []
    for run in runs.to_dict("records"):
        entries = [entry for entry in stored.record.values() if entry["labels"]["dataset"] == run["dataset"]]
        rows.append(run | fixed | {"data": run["dataset"], "origin": _origin(entries)})
    return rows


def _origin(entries: list[dict[str, Any]]) -> str:
    return "; ".join(sorted({entry["provenance"].get("data_origin", "") for entry in entries}))


def _departures(entries: list[dict[str, Any]], variant: str):
    """Return a function printed parameters -> how these runs depart from them, in words."""
    settings = entries[0]["settings"]
    ours = {"M": settings["federation"].get("n_clients"), "rho": settings["participation"]}
    ours |= {"E": settings["local_epochs"], "T": settings["rounds"]}
    looked_at = ("M", "T") if variant == "as_run" else _LINE
    stopped = any(entry["provenance"].get("stopped") for entry in entries)

    def departures(params: dict[str, Any]) -> str:
        differ = [
            f"{name} = {ours[name]:g} for {params[name]:g}"
            for name in looked_at
            if name in params and ours[name] is not None and float(ours[name]) != float(params[name])
        ]
        return ", ".join(differ + ["a run stopped early"] * stopped)

    return departures


def stored_results(notebook: str) -> list[store.Stored]:
    """Read the results of a notebook from every profile that counts, or of ``demo`` where there are none at all.

    Raises
    ------
    FltnbError
        A file of results is damaged.
    """
    profiles = PROFILES if any(any(paths.results(p).glob("*_provenance.json")) for p in PROFILES) else ("demo",)
    try:
        return store.stored(notebook, profiles)
    except (OSError, ValueError, KeyError) as error:
        raise FltnbError(
            f"The stored results of {notebook} ({' or '.join(profiles)}) cannot be read ({error}): restore"
            " the files under results/, or run this notebook again."
        ) from error


def preferred(table: pd.DataFrame) -> pd.DataFrame:
    """Keep one row per printed number and variant: the best status, then the most trusted profile.

    Parameters
    ----------
    table : DataFrame
        From :func:`numbers`.
    """
    rank = table["status"].map(STATUS.index) * 10 + table["profile"].map([*PROFILES, "demo", ""].index)
    order = table.assign(_rank=rank).sort_values("_rank", kind="stable")
    return order.drop_duplicates([*NUMBER, "variant"]).drop(columns="_rank").sort_index()


def counts(table: pd.DataFrame) -> pd.DataFrame:
    """Count, for each printed table and variant, how much was reproduced and how well.

    Parameters
    ----------
    table : DataFrame
        From :func:`numbers`.

    Returns
    -------
    DataFrame
        ``paper, table, variant``; ``printed`` numbers; of these ``reproduced`` in the printed setting and on the
        printed data; of the ``accuracies`` among them those within the printed (binomial) error, within 1 and within 3
        points; of the ``variances`` those within 25 %; then what was run otherwise (another setting, data that stand in
        for the paper's, toy scale) and what was not run. The table "all" counts once what a paper prints twice.
    """
    import pandas as pd

    rows = []
    for paper, all_of_it in table.groupby("paper", sort=False):
        parts = {name: all_of_it[all_of_it["table"] == name] for name in dict.fromkeys(all_of_it["table"])}
        settings = all_of_it["params"].where(all_of_it["setting"] == "ablation", "")
        same = [*_KEY, "setting", "settings", "number"]
        first = all_of_it.assign(settings=settings).groupby(same)["table"].transform("first")
        parts["all"] = all_of_it[all_of_it["table"] == first]
        rows += [
            {"paper": paper, "table": name, "variant": variant} | _count(part, variant)
            for name, part in parts.items()
            for variant in published.RULES
        ]
    return pd.DataFrame(rows)


def _count(printed: pd.DataFrame, variant: str) -> dict[str, int]:
    total = len(printed.drop_duplicates(NUMBER))
    own = preferred(printed[printed["variant"] == variant])
    good = own[own["status"] == "reproduced"]
    accuracy, variance = (good[good["metric"] == metric] for metric in ("accuracy", "accuracy_variance"))
    off = accuracy["difference"].abs()
    return {
        "printed": total,
        "reproduced": len(good),
        "accuracies": len(accuracy),
        "within printed error": int((off <= accuracy["number_error"]).sum()),
        "within 1 point": int((off <= 1).sum()),
        "within 3 points": int((off <= 3).sum()),
        "variances": len(variance),
        "within 25 %": int((variance["difference"].abs() <= _NEAR * variance["number"]).sum()),
        "run otherwise": len(own) - len(good),
        "not run": total - len(own),
    }


def beside(table: pd.DataFrame, paper: str, name: str) -> pd.DataFrame:
    """One printed table as people read it: both variants beside the printed number, one line per profile.

    Parameters
    ----------
    table : DataFrame
        From :func:`numbers`.
    paper, name : str
        Such as ``"flt", "T1"``.

    Returns
    -------
    DataFrame of text
        ``dataset, [model,] method, [M, rho, E, T,] split, metric, printed, described, published, described - printed,
        published - printed, profile, remarks``. A mean over several seeds has their spread behind it.
    """
    import pandas as pd

    own = table[(table["paper"] == paper) & (table["table"] == name)]
    rows = []
    for key, group in own.groupby([*_KEY, "params", "profile"], sort=False):
        place = dict(zip(_KEY, key, strict=False))
        if (paper, name) == ("flt", "T5"):
            place |= {factor: f"{json.loads(key[5])[factor]:g}" for factor in _LINE}
        row = place | {"printed": group["printed"].iloc[0]}
        cells = {variant: group[group["variant"] == variant] for variant in published.RULES}
        row |= {v: _mean(cell.iloc[0]) if len(cell) else "not run" for v, cell in cells.items()}
        row |= {f"{v} - printed": f"{c['difference'].iloc[0]:+.2f}" if len(c) else "–" for v, c in cells.items()}
        rows.append(row | {"profile": key[-1] or "–", "remarks": _remarks(group)})
    out = pd.DataFrame(rows)
    return out if out.empty or any(out["model"]) else out.drop(columns="model")


def _mean(run: pd.Series) -> str:
    spread = f" ± {run['spread']:.2f}" if run["seeds"] > 1 else ""
    return f"{run['mean']:.2f}{spread} ({run['seeds']:.0f} seed{'' if run['seeds'] == 1 else 's'})"


def _remarks(group: pd.DataFrame) -> str:
    parts = []
    for run in group.to_dict("records"):
        if run["status"] in ("stand-in data", "toy scale"):
            parts.append(f"{run['status']}: {run['data']}")
        elif run["origin"] and not run["origin"].startswith("official"):
            parts.append(f"data: {run['origin']}")
        if run["departs"]:
            parts.append(run["departs"])
    return "; ".join(dict.fromkeys(parts))
