"""A printed table beside the reproduced one: paper, as written, as run, and how far they are apart.

``results`` is what :func:`fltnb.results` returns, or anything with ``runs``, ``curves``, ``clients``, ``axes``,
``record(key)``, ``table(key, name)`` and ``missing()`` of the same form; None stands for no results at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import FltnbError
from ..metrics import binomial_error, seed_spread
from .names import PAPERS, label
from .numbers import KEY, inconsistencies, numbers
from .settings import RULES, SAME, STAND_INS, TOY, VARIANTS, WITHOUT_CODE, departures, stand_in

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = {
    ("accuracy", "test"): "accuracy",
    ("accuracy", "train"): "train_accuracy",
    ("accuracy_variance", "test"): "variance",
    ("accuracy_variance", "train"): "train_variance",
    ("micro_accuracy", "test"): "micro",
    ("micro_f1", "test"): "micro_f1",
    ("macro_accuracy", "test"): "accuracy",
    ("macro_f1", "test"): "macro_f1",
    ("avg_accuracy", "test"): "accuracy",
    ("worst_accuracy", "test"): "worst",
    ("ari", ""): "ari",
}
"""Printed metric and split -> column of ``runs``."""
TARGETS = {"clean_accuracy": "test", "backdoor_accuracy": "probe"}
"""Printed metric -> column of ``clients``: EMD-CFL's Tables 3 and 8 print means over the clients of true cluster 0."""
AXES = {
    ("flt", "T5"): {"clients": "M", "participation": "rho", "local_epochs": "E", "round": "T"},
    ("emdcfl", "T6"): {"participation": "participants"},
}
"""Table that prints one method under several settings -> axis of the runs -> printed parameter; ``round`` is read off
the curves, and a participation of clients is a share of all."""
PROFILES = ("paper", "small", "demo")
"""Most trusted first; where several have a number, the one nearest to the printed setting is shown."""
NOT_RUN = {"mean": float("nan"), "spread": float("nan"), "seeds": 0, "n": float("nan"), "departs": (), "keys": ()}
NOT_RUN |= {"stand_in": False, "status": "not run", "minutes": float("nan")}
_LEVEL = {"": "paper", "as_written": "as written", "as_run": "as run"}
_ERRORS = {
    "flt": "± behind a printed number is what FLT calls standard error: the binomial one of the pooled samples; ours"
    " stands in [ ].",
    "emdcfl": "± behind a printed number is the paper's spread over three runs.",
}


def measured(
    results: Any,
    paper: str,
    table: str,
    dataset: str | None = None,
    *,
    beside: Sequence[str] = (),
    rules: Mapping[str, str] = RULES,
    **axes: Any,
) -> pd.DataFrame:
    """Find what was measured for every number of a printed table.

    Of the jobs with the same data, method, variant and model those count that have no switch set: an axis of this
    notebook that others lack. Where profiles differ, the job nearest to the printed setting counts.

    Parameters
    ----------
    results : Results or None
    paper, table : str
        Such as ``"flt", "T1"``.
    dataset : str, optional
        One data set. One that the table does not print (digits) gets the same rows without printed numbers. By default
        the table's own sets, or those of the results if they have none of them.
    beside : sequence of str
        Methods that the paper does not have and that get rows, too.
    rules : mapping
        Variant -> rule for clients that sit a round out.
    **axes
        Value of an axis that the runs shall have, such as ``k=2``.

    Returns
    -------
    DataFrame
        One row per printed number and variant: the columns of :func:`fltnb.papers.numbers` (``number`` NaN where the
        paper has none), ``variant``, ``mean, spread`` (sample standard deviation over ``seeds``), ``n`` (distinct
        samples behind an accuracy), ``departs`` (phrases of :func:`~fltnb.papers.settings.departures`), ``stand_in``,
        ``keys`` of the jobs, ``status`` ("reproduced", "otherwise", "not run"), ``minutes`` (cost of a gap, NaN if
        unknown).

    Raises
    ------
    FltnbError
        Several jobs of one seed fit a number, as where two models were run and the paper names none.
    """
    import pandas as pd

    found = _Found(results, paper, table, rules, axes)
    rows = [
        line | {"variant": variant} | found.cell(line, variant)
        for line in _lines(found, paper, table, dataset, beside)
        for variant in VARIANTS
    ]
    return pd.DataFrame(rows, columns=[*numbers().columns, "variant", *NOT_RUN])


class _Found:
    """The jobs of one notebook that may stand beside one table, indexed by data set, method and variant."""

    def __init__(self, results: Any, paper: str, table: str, rules: Mapping[str, str], axes: Mapping[str, Any]):
        import pandas as pd

        self.results, self.paper, self.rules = results, paper, rules
        self.level = AXES.get((paper, table), {})
        runs = pd.DataFrame({name: [] for name in ("kind", "dataset", "method", "variant")})
        missing = runs
        if results is not None:
            runs = results.runs
            missing = results.missing() if hasattr(results, "missing") else missing
            for name in axes:
                if name not in runs.columns:
                    raise FltnbError(f"These results have no axis {name!r}: choose one of {', '.join(results.axes)}.")
        trainings = runs[runs["kind"] == "training"]
        self.toys = list(dict.fromkeys(name for name in runs["dataset"] if TOY.search(name)))
        self.real = len(self.toys) < runs["dataset"].nunique()
        self.main = self._index(trainings, trainings, axes)
        self.gaps = self._index(missing, trainings, axes) if "minutes" in missing else {}
        self.studies = []
        if "table" in runs:
            for run in runs[(runs["kind"] == "study") & (runs["table"] == table)].to_dict("records"):
                printed = results.table(run["key"], "printed")
                own = {name: run[name] for name in ("dataset", "variant", "seed", "key", "profile")}
                self.studies.append(printed.assign(**{k: v for k, v in own.items() if k not in printed}))

    def _index(self, frame: pd.DataFrame, trainings: pd.DataFrame, axes: Mapping[str, Any]) -> dict[tuple, Any]:
        """Keep the rows without a switch, or with the axes asked for, by (data set, method, variant)."""
        for name in self.results.axes if self.results is not None else ():
            if name not in frame or name == "table":
                continue
            values = frame[name]
            if name in axes:
                frame = frame[values == axes[name]]
            elif name == "rule":
                usual = values == frame["variant"].map(self.rules)
                frame = frame[_absent(values) | usual | (self.paper != "flt") & (values == "participants")]
            elif name not in self.level and trainings[name].nunique(dropna=False) > 1:
                frame = frame[_absent(values)]
        return {key: own for key, own in frame.groupby(["dataset", "method", "variant"], sort=False)}

    def _candidates(self, index: Mapping[tuple, Any], line: Mapping[str, Any], variant: str) -> pd.DataFrame | None:
        """Rows with the data, the method, the kind of network and the level of one printed number."""
        import pandas as pd

        kinds = (variant, "") if variant == "as_written" else (variant,)
        frames = [index.get((name, line["method"], kind)) for name in _names(line) for kind in kinds]
        frames = [frame for frame in frames if frame is not None]
        if not frames:
            return None
        own = pd.concat(frames)
        if self.paper == "flt" and line["model"]:  # the only tables with two networks on one data set
            own = own[own["model"].str.startswith("mlp") == (line["model"] == "mlp")]
        params = json.loads(line["params"] or "{}")
        for name, short in self.level.items():
            if name in own and short in params:
                wanted = params[short] / (params["clients"] if short == "participants" else 1)
                own = own[(own[name].astype(float) - wanted).abs() < 1e-9]
        return own

    def cell(self, line: Mapping[str, Any], variant: str) -> dict[str, Any]:
        """Return the row's numbers, or :data:`NOT_RUN` with the cost of the gap."""
        best = None
        for phrases, profile, own in self._groups(line, variant):
            if own["seed"].duplicated().any():
                models = ", ".join(dict.fromkeys(own["model"].map(label)))
                raise FltnbError(
                    f"Several jobs of one seed fit {label(line['method'])} on {label(line['dataset'])}"
                    f" {_LEVEL[variant]} ({models}): select one with results.where() before comparing."
                )
            standing = any(phrase.startswith("stand-in") for phrase in phrases)
            rank = (bool(phrases), standing, PROFILES.index(profile) if profile in PROFILES else 9, len(phrases))
            if best is None or (rank, -len(own)) < best[0]:
                best = ((rank, -len(own)), phrases, standing, own)
        if best is None:
            gaps = self._candidates(self.gaps, line, variant)
            return NOT_RUN | ({"minutes": gaps["minutes"].sum()} if gaps is not None and len(gaps) else {})
        _, phrases, standing, own = best
        values = own["_value"].astype(float)
        return {
            "mean": float(values.mean()),
            "spread": seed_spread(values),
            "seeds": len(own),
            "n": float(own["_n"].iloc[0]),
            "departs": phrases,
            "keys": tuple(own["key"]),
            "stand_in": standing,
            "status": "otherwise" if phrases else "reproduced",
            "minutes": float("nan"),
        }

    def _groups(self, line: Mapping[str, Any], variant: str) -> Iterator[tuple[tuple[str, ...], str, pd.DataFrame]]:
        """Yield (departures, profile, runs with ``_value`` and ``_n``) of all jobs that fit a number."""
        at_round = None
        if self.studies:
            own = self._studied(line, variant)
        else:
            own = self._candidates(self.main, line, variant)
            if own is None or own.empty:
                return
            if "round" in self.level:
                at_round = json.loads(line["params"])[self.level["round"]]
            own = self._values(own, line, at_round)
        own = own[own["_value"].notna()]
        if own.empty:
            return
        said = own["otherwise"] if "otherwise" in own else [""] * len(own)
        phrases = [
            (*departures(self.results.record(key), line, data, variant, at_round), *([text] if text else []))
            for key, data, text in zip(own["key"], own["dataset"], said, strict=True)
        ]
        own = own.assign(_departs=phrases, profile=own.get("profile", ""))
        for (departs, profile), group in own.groupby(["_departs", "profile"], sort=False):
            yield departs, profile, group

    def _values(self, own: pd.DataFrame, line: Mapping[str, Any], at_round: int | None) -> pd.DataFrame:
        """Add the number of each run: at its end, at a round of its curve, or over the backdoor's targets."""
        metric, split = line["metric"], line["split"]
        column = COLUMNS.get((metric, split))
        if metric in TARGETS:
            clients = self.results.clients
            targets = clients[clients["true_cluster"] == 0].groupby("key")[TARGETS[metric]].mean()
            return own.assign(_value=own["key"].map(targets), _n=float("nan"))
        if at_round is not None:
            curves = self.results.curves
            there = curves[(curves["round"] == at_round) & (curves["split"] == split)]
            values = own["key"].map(there.set_index("key")[(column or "").removeprefix("train_")])
        else:
            values = own[column].astype(float) if column in own else float("nan")
        n = own["n_train" if split == "train" else "n_test"] if "n_test" in own else float("nan")
        return own.assign(_value=values, _n=n)

    def _studied(self, line: Mapping[str, Any], variant: str) -> pd.DataFrame:
        """Rows that studies measured for a number: their table "printed" names what each of its values stands for."""
        import pandas as pd

        own = pd.concat(self.studies, ignore_index=True)
        own = own[own["variant"].isin((variant, "") if variant == "as_written" else (variant,))]
        about = {name: line[name] for name in KEY if line[name]} | json.loads(line["params"] or "{}")
        for name, value in about.items():
            if name in own:
                wanted = set(_names(line)) if name == "dataset" else {str(value)}
                own = own[own[name].astype(str).isin(wanted)]
        return own.assign(_value=own["value"], _n=float("nan"))


def _absent(values: pd.Series) -> pd.Series:
    return values.isna() | (values.astype(str) == "")


def _names(line: Mapping[str, Any]) -> list[str]:
    """Name the data sets of runs that may stand beside a printed line: its own and those that stand in for it."""
    version = line["setting"].removeprefix("rotated") if line["setting"].startswith("rotated_") else ""
    own = line["dataset"] + version
    return [own, *(name for name, printed in (STAND_INS | SAME).items() if printed == own)]


def _lines(
    found: _Found, paper: str, table: str, dataset: str | None, beside: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the printed lines by data set, then lines without numbers for methods that the table does not have."""
    printed = numbers(paper, table).to_dict("records")
    sets = list(dict.fromkeys(line["dataset"] for line in printed))
    if dataset is not None:
        sets = [dataset]
    elif found.toys and not found.real:
        sets = list(dict.fromkeys(re.sub("_(min|two|base)$", "", name) for name in found.toys))
    empty = {"value": "", "error": "", "note": "", "number": float("nan"), "number_error": float("nan")}
    for name in sets:
        own = [line for line in printed if line["dataset"] == name]
        if not own:  # a set that the paper does not use: the rows of the first one, without numbers
            own = [line | empty | {"dataset": name} for line in printed if line["dataset"] == printed[0]["dataset"]]
            own = [line for line in own if line["model"] == own[0]["model"]]
        yield from own
        first = own[0]["method"]
        for method in beside:
            yield from (line | empty | {"method": method} for line in own if line["method"] == first)


def compare(
    results: Any,
    paper: str,
    table: str,
    dataset: str | None = None,
    comments: Mapping[str, str] | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Put a printed table beside the reproduced numbers, in the paper's order and in words for people.

    Parameters
    ----------
    results, paper, table, dataset
        As for :func:`measured`, whose other ``options`` are taken as well.
    comments : mapping, optional
        Method -> text for the last column.

    Returns
    -------
    DataFrame of text
        ``data, [model,] method, [what tells a method's settings apart,] measure``; ``paper`` (as printed with the
        printed error), ``as written`` and ``as run``: "mean ± spread (seeds) [binomial error, FLT only]", or "not run"
        with its cost where that is known; "as written − paper", "as run − paper" (where the data are the paper's);
        ``otherwise``: how a run departs from the printed setting and data; ``note``. Columns without entries are left
        out. A symmetric matrix is shown once, without its diagonal. ``.attrs["caption"]`` explains the notation.

    Raises
    ------
    FltnbError
        As :func:`measured`.
    """
    import pandas as pd

    found = measured(results, paper, table, dataset, **options)
    shown = _shown(found)
    pairs = [shown[shown["variant"] == variant].to_dict("records") for variant in VARIANTS]
    told, everywhere = _told_apart(found), _everywhere(found)
    repeated = _repeated(paper, table)
    rows = []
    for written, ran in zip(*pairs, strict=True):
        params = json.loads(written["params"] or "{}")
        row = {"data": label(written["dataset"]), "model": label(written["model"]), "method": label(written["method"])}
        row |= {title: show(written, params) for title, show in told.items()}
        row["measure"] = " ".join([written["split"]] * (written["split"] == "train") + [label(written["metric"])])
        row["paper"] = f"{written['value']} ± {written['error']}" if written["error"] else _plain(written["value"])
        row |= {_LEVEL[cell["variant"]]: _text(cell, paper) for cell in (written, ran)}
        row |= {f"{_LEVEL[cell['variant']]} − paper": _difference(cell) for cell in (written, ran)}
        row["otherwise"] = _otherwise(written, ran)
        row["note"] = _note(written, everywhere, comments or {}, repeated)
        rows.append(row)
    out = pd.DataFrame(rows)
    always = ("as written",) if paper in WITHOUT_CODE else ("as written", "as run")
    none = ("as run",) if paper in WITHOUT_CODE else ()
    out = out[[name for name in out.columns if name in always or (name not in none and (out[name] != "").any())]]
    out.attrs["caption"] = _caption(results, found, paper, table)
    return out


def plane(results: Any, paper: str, table: str, dataset: str, split: str = "test", **options: Any) -> pd.DataFrame:
    """Accuracy and variance of each method, printed and reproduced, for ``plots.accuracy_variance_plane``.

    Returns
    -------
    DataFrame
        ``method, source, accuracy, variance``; ``source`` is "paper", "as written" or "as run"; means over seeds.
    """
    import pandas as pd

    found = measured(results, paper, table, dataset, **options)
    found = found[(found["split"] == split) & found["metric"].isin(["accuracy", "accuracy_variance"])]
    printed = found[found["variant"] == "as_written"].assign(mean=lambda rows: rows["number"], variant="")
    long = pd.concat([printed, found])
    long = long[long["mean"].notna()].assign(source=lambda rows: rows["variant"].map(_LEVEL))
    wide = long.pivot(index=["method", "source"], columns="metric", values="mean").reset_index()
    wide = wide.rename(columns={"accuracy_variance": "variance"}).rename_axis(columns=None)
    order = list(dict.fromkeys(long["method"]))
    return wide.sort_values("method", key=lambda names: names.map(order.index), kind="stable", ignore_index=True)


# ---------------------------------------------------------------- words


def _shown(found: pd.DataFrame) -> pd.DataFrame:
    """Of a symmetric matrix what lies above its diagonal, of other tables everything."""
    pairs = [json.loads(params or "{}") for params in found["params"]]
    return found[[pair.get("user_i", 0) < pair.get("user_j", 1) for pair in pairs]]


def _told_apart(found: pd.DataFrame) -> dict[str, Any]:
    """Column title -> text of a line, for what tells the settings apart under which the table prints one method."""
    lines = found.drop_duplicates([*KEY, "setting", "params"])
    if not lines.duplicated(list(KEY)).any():
        return {}
    if lines["setting"].nunique() > 1:
        return {"version": lambda line, params: label(line["setting"])}
    varied: dict[str, None] = {}
    for _, group in lines.groupby(list(KEY), sort=False):
        each = [json.loads(params) for params in group["params"]]
        varied |= {name: None for name in each[0] if len({str(one.get(name)) for one in each}) > 1}
    if "user_j" in varied:
        return {"users": _users}
    return {
        label(name): lambda line, params, name=name: label(params[name]) if isinstance(params[name], str)
        else f"{params[name]:g}"
        for name in varied
    }  # fmt: skip


def _users(line: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    if "labels_i" in params:
        return f"{label(params['labels_i'])} and {label(params['labels_j'])}"
    themes = {1: "vehicles", 2: "animals"}
    return " and ".join(f"user {params[f'user_{x}']} ({themes[params[f'task_{x}']]})" for x in "ij")


def _plain(value: str) -> str:
    """Thousands with commas, other values as printed."""
    return f"{int(value):,}" if value.isdigit() and len(value) > 3 else value


def _text(cell: Mapping[str, Any], paper: str) -> str:
    if cell["status"] == "not run":
        minutes = cell["minutes"]
        return "not run" if minutes != minutes else f"not run (about {_duration(minutes)})"
    digits = max(2, len(cell["value"].partition(".")[2])) if "." in cell["value"] or not cell["value"] else 0
    spread = f" ± {cell['spread']:.{digits}f}" if cell["seeds"] > 1 else ""
    seeds = f" ({cell['seeds']} seed{'s' * (cell['seeds'] != 1)})"
    pooled = paper == "flt" and cell["metric"] == "accuracy" and cell["n"] == cell["n"]
    binomial = f" [{binomial_error(cell['mean'], cell['n']):.2f}]" if pooled else ""
    return f"{cell['mean']:{',' * (digits == 0)}.{digits}f}{spread}{seeds}{binomial}"


def _duration(minutes: float) -> str:
    return f"{max(1, round(minutes))} min" if minutes < 90 else f"{minutes / 60:.0f} h"


def _difference(cell: Mapping[str, Any]) -> str:
    apart = cell["mean"] - cell["number"]
    return "" if cell["stand_in"] or apart != apart else f"{apart:+.2f}"


def _otherwise(*cells: Mapping[str, Any]) -> str:
    """How the two variants depart, said once if they do so alike."""
    said = {_LEVEL[cell["variant"]]: "; ".join(cell["departs"]) for cell in cells if cell["status"] != "not run"}
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return "; ".join(f"{name}: {text}" for name, text in said.items() if text)


def _repeated(paper: str, table: str) -> dict[tuple, str]:
    """Key and value of a number -> what the paper prints for it elsewhere."""
    found = {}
    for row in inconsistencies(paper).to_dict("records"):
        elsewhere = [f"{value} in {name}" for name, value in row["printed"].items() if name != table]
        if table in row["printed"] and elsewhere:
            found[(*(row[name] for name in KEY), row["printed"][table])] = (
                f"the paper also prints {', '.join(elsewhere)}"
            )
    return found


def _everywhere(found: pd.DataFrame) -> list[str]:
    """Remarks on every number of a table: the caption says them."""
    each = [note.split("; ") for note in found["note"]]
    return [note for note in each[0] if note and all(note in notes for notes in each)]


def _note(
    line: Mapping[str, Any], everywhere: Sequence[str], comments: Mapping[str, str], repeated: Mapping[tuple, str]
) -> str:
    notes = [note for note in line["note"].split("; ") if note not in everywhere]
    # "printed a in T2 but b in T8" is said by the computed remark
    parts = [note for note in notes if not (note.startswith("printed ") and " in T" in note)]
    parts += [repeated.get((*(line[name] for name in KEY), line["value"]), ""), comments.get(line["method"], "")]
    return "; ".join(part for part in parts if part)


def _caption(results: Any, found: pd.DataFrame, paper: str, table: str) -> str:
    name = f"Table {table[1:]} of {PAPERS[paper]}"
    if found["number"].isna().all():
        return f"Toy scale ({', '.join(map(label, dict.fromkeys(found['dataset'])))}); not comparable with {name}."
    parts = [f"{name}, printed and reproduced.", _ERRORS.get(paper, "± behind a printed number is the paper's.")]
    parts.append("± behind a reproduced number is the sample standard deviation over seeds.")
    parts += [f"Of every number: {note}." for note in _everywhere(found)]
    if paper in WITHOUT_CODE:
        parts.append("The paper has no public code: there is nothing to be run as run.")
    if len(_shown(found)) < len(found):
        parts.append("The printed matrix is symmetric with ones on its diagonal; each pair of users is shown once.")
    parts += [f"Data: {origin}." for origin in _origins(results, found["keys"])]
    return " ".join(parts)


def _origins(results: Any, keys: Iterable[Sequence[str]]) -> list[str]:
    """Where data come from that are neither an official release nor said to stand in."""
    used = dict.fromkeys(key for some in keys for key in some)
    origins = dict.fromkeys(results.record(key)["provenance"].get("data_origin", "") for key in used)
    return [origin for origin in origins if origin and not origin.startswith("official") and not stand_in("", origin)]
