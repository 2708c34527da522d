"""A printed table compared with ours, with names for people."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from .measured import measured
from .names import PAPERS, SHORT, label
from .numbers import KEY, inconsistencies, params_of, read
from .settings import TOY, WITHOUT_CODE, Row, stand_in

_ERRORS = {
    "flt": "± behind a printed number is the binomial error of the pooled samples.",
    "emdcfl": "± behind a printed number is the paper's spread over three runs.",
}
_THEMES = {1: "vehicles", 2: "animals"}
"""MT-HFL's tasks on CIFAR-10."""


def compare(
    results: Any,
    paper: str,
    table: str,
    dataset: str | None = None,
    beside: Sequence[str] = (),
) -> pd.DataFrame:
    """Compare a printed table with our numbers, in the paper's order.

    Parameters
    ----------
    results, paper, table, beside
        As for :func:`fltnb.papers.measured`.
    dataset : str, optional
        One data set; by default the table's own, or the toy data if the results have no
        others.

    Returns
    -------
    DataFrame of text
        ``data, [model,] method, [settings that distinguish a method's rows,] measure``;
        ``printed`` (with the printed error); ``text`` and ``code`` (following the text
        and the authors' code): "mean ± spread (seeds)" or "not run"; ``text − printed``
        and ``code − printed`` if the data are the paper's; ``setting``: how runs differ
        from the printed setting and data; ``note``. Columns without entries are left
        out; a symmetric matrix is shown once. ``.attrs["caption"]`` explains the
        notation.

    Raises
    ------
    FltnbError
        As for :func:`fltnb.papers.measured`.

    Examples
    --------
    >>> import fltnb as fl
    >>> results = fl.results("01")
    >>> fl.papers.compare(results, "flt", "T1").columns[:5].tolist()
    ['data', 'method', 'measure', 'printed', 'text']
    """
    datasets = _toy_sets(results) if dataset is None else [dataset]
    found = measured(results, paper, table, datasets, beside)
    out = for_people(found)

    name = f"Table {table[1:]} of {PAPERS[paper]}"
    first = f"{name}, printed and ours."
    if found["number"].isna().all():
        first = f"Toy data; not comparable with {name}."
    said = [
        first,
        _ERRORS.get(paper, "± behind a printed number is the paper's."),
        "± behind ours is the sample standard deviation over seeds.",
        *remarks(found, results),
    ]
    out.attrs["caption"] = " ".join(said)
    return out


def _toy_sets(results: Any) -> list[str] | None:
    """Return the data sets of results if all of them are toy data, else None."""
    if results is None:
        return None
    sets = list(results.runs["dataset"].unique())
    others = [name for name in sets if not TOY.search(name)]
    if others or not sets:
        return None
    return sets


def for_people(
    found: pd.DataFrame, write: Callable[[Row], str] | None = None
) -> pd.DataFrame:
    """Turn the result of :func:`measured` into the table of :func:`compare`.

    Parameters
    ----------
    found : DataFrame
        The result of :func:`measured`: a row for the text, then one for the code.
    write : function, optional
        Formats one number of ours, by default :func:`cell_text`.
    """
    if write is None:
        write = cell_text
    everywhere = _notes_everywhere(found)
    shown = found[found["params"].map(above_diagonal)]
    levels = _levels(shown)
    records = shown.to_dict("records")
    rows = []
    for text, code in zip(records[0::2], records[1::2], strict=True):
        about = {name: _level(text, name) for name in levels}
        row = {
            "data": label(text["dataset"]),
            "model": label(text["model"]),
            "method": label(text["method"]),
            **about,
            "measure": _measure(text),
            "printed": _printed(text),
            "text": write(text),
            "code": write(code),
            "text − printed": _apart(text),
            "code − printed": _apart(code),
            "setting": _setting(text, code),
            "note": _note(text, everywhere),
        }
        rows.append(row)

    out = pd.DataFrame(rows)
    paper = found["paper"].iloc[0]
    if paper in WITHOUT_CODE:
        out = out.drop(columns="code")
    is_empty = (out == "").all()
    return out.loc[:, ~is_empty]


# ---------------------------------------------------------------- printed lines


def above_diagonal(params: str) -> bool:
    """Whether a number is not a repetition within a symmetric matrix.

    Of the similarities of users i and j, and of j and i, only the first is shown.
    ``params``: JSON, as a line has them; a number that is not of two users counts.
    """
    pair = params_of(params)
    return pair.get("user_i", 0) < pair.get("user_j", 1)


def _levels(found: pd.DataFrame) -> list[str]:
    """Return columns that distinguish the settings of one method in a table.

    Those are titles of columns: "version" (Table 11 of EMD-CFL has three versions of a
    data set), "users" (MT-HFL's matrices), or names of parameters (FLT's ablation). No
    column: a method has one line for each data set, network and measure.

    Examples
    --------
    >>> lines = measured(None, "flt", "T5")
    >>> _levels(lines)
    ['clients', 'participation', 'local epochs', 'rounds']
    >>> _levels(measured(None, "mthfl", "TI")), _levels(measured(None, "flt", "T1"))
    (['users'], [])
    """
    key = list(KEY)
    lines = found.drop_duplicates([*key, "setting", "params"])
    if not lines.duplicated(key).any():
        return []
    if lines["setting"].nunique() > 1:
        return ["version"]

    varied = []  # parameters, in the order in which they are met
    for _, group in lines.groupby(key, sort=False):
        settings = pd.DataFrame([params_of(text) for text in group["params"]])
        several = settings.astype(str).nunique() > 1
        for name in settings.columns[several]:
            if name not in varied:
                varied.append(name)
    if "user_j" in varied:
        return ["users"]
    return [label(name) for name in varied]


def _level(line: Row, title: str) -> str:
    """Return a line's value in a column of :func:`_levels`, as text for people."""
    if title == "version":
        return label(line["setting"])
    params = params_of(line["params"])
    if title == "users":
        return _users(params)
    by_label = {label(name): label(str(value)) for name, value in params.items()}
    return by_label[title]


def _users(params: Row) -> str:
    """Return the names of the two users of a similarity.

    MT-HFL's Table II names users by their labels, Table I by numbers, with the theme of
    their task: "user 1 (vehicles) and user 4 (animals)".

    ``params``: what the printed line is about.
    """
    if "labels_i" in params:
        first = label(params["labels_i"])
        second = label(params["labels_j"])
    else:
        first = f"user {params['user_i']} ({_THEMES[params['task_i']]})"
        second = f"user {params['user_j']} ({_THEMES[params['task_j']]})"
    return f"{first} and {second}"


def _measure(line: Row) -> str:
    """Return the name of a line's measure."""
    measure = label(line["metric"])
    if line["split"] == "train":
        return f"train {measure}"
    return measure


def _printed(line: Row) -> str:
    """Format a printed number, with its error if it has one.

    The digits stay as they are printed: "98.00" says more than "98.0". Only whole
    numbers, such as counts of parameters, get separators: "169,462".
    """
    text = line["value"]
    if text.isdigit():
        text = f"{int(text):,}"
    if line["error"]:
        text += f" ± {line['error']}"
    return text


# ---------------------------------------------------------------- our numbers


def cell_text(cell: Row, seeds: bool = True) -> str:
    """Format one number of ours: mean and spread, or "not run".

    It has as many decimals as the printed number, but at least two; whole numbers have
    none.

    Parameters
    ----------
    cell : row of :func:`measured`
    seeds : bool
        Append the number of seeds.

    Examples
    --------
    >>> cell = {"value": "97.5", "metric": "accuracy", "status": "printed setting"}
    >>> cell_text({**cell, "mean": 97.314, "spread": 0.121, "seeds": 3})
    '97.31 ± 0.12 (3 seeds)'
    """
    if cell["status"] == "not run":
        return "not run"
    if cell["value"].isdigit():
        digits = 0
        text = f"{cell['mean']:,.0f}"
    else:
        _, _, decimals = cell["value"].partition(".")
        digits = max(2, len(decimals))
        if cell["metric"] == "hours":
            digits += 2  # ours are seconds
        text = f"{cell['mean']:.{digits}f}"
    if cell["seeds"] > 1:
        text += f" ± {cell['spread']:.{digits}f}"
    if seeds:
        text += f" ({count(cell['seeds'], 'seed')})"
    return text


def count(number: int, word: str) -> str:
    """Format a number of things.

    Examples
    --------
    >>> count(1, "seed"), count(2400, "client")
    ('1 seed', '2,400 clients')
    """
    if number == 1:
        return f"1 {word}"
    return f"{number:,} {word}s"


def _apart(cell: Row) -> str:
    """Format the difference from the printed number, "" if it has no meaning.

    On other data than the paper's it has none. It keeps two decimals, whatever the
    printed number has, as small differences are what a reader looks for here.
    """
    off = cell["mean"] - cell["number"]
    if pd.isna(off) or cell["status"] == "stand-in data":
        return ""
    return f"{off:+.2f}".replace("-", "−")


def _setting(*cells: Row) -> str:
    """Return how the runs of a line depart, only once if all depart in the same way.

    ``cells``: the line's numbers of the text and of the code. If they depart in
    different ways, each phrase begins with "text" or "code".

    Examples
    --------
    >>> text = {"variant": "as_written", "departs": ["9 clients"], "status": "run"}
    >>> code = {"variant": "as_run", "departs": ["1 round"], "status": "run"}
    >>> _setting(text, code)
    'text: 9 clients; code: 1 round'
    >>> _setting(text, {**code, "departs": ["9 clients"]})
    '9 clients'
    """
    said = {}
    for cell in cells:
        if cell["status"] != "not run":
            variant = SHORT[cell["variant"]]
            said[variant] = "; ".join(cell["departs"])
    different = set(said.values())
    if len(different) == 1:
        return different.pop()
    parts = [f"{name}: {text}" for name, text in said.items() if text]
    return "; ".join(parts)


# ---------------------------------------------------------------- notes


def _notes_everywhere(found: pd.DataFrame) -> list[str]:
    """Return the notes that all printed lines of a table have.

    They stand once below the table, and not in each line.
    """
    notes = found["note"][found["number"].notna()]
    each = [set(note.split("; ")) for note in notes]
    if not each:
        return []
    shared = set.intersection(*each)
    return sorted(shared - {""})


def _note(line: Row, everywhere: Sequence[str]) -> str:
    """Return the notes of one line, and other printed values of the number.

    Parameters
    ----------
    line : printed line
        Its notes are one text, separated by "; ".
    everywhere : sequence of str
        Notes that stand below the table and are not repeated.
    """
    notes = []
    for note in line["note"].split("; "):
        # "printed a in T2 but b in T8" repeats the other printed values
        elsewhere = note.startswith("printed ") and " in T" in note
        if note and note not in everywhere and not elsewhere:
            notes.append(note)

    about = [line[name] for name in KEY]
    repeated = _repeated(line["paper"])
    key = (line["table"], *about, line["value"])
    if key in repeated:
        notes.append(repeated[key])
    return "; ".join(notes)


@functools.cache
def _repeated(paper: str) -> dict[tuple, str]:
    """Return the notes on numbers that a paper prints with several values.

    Table, key and value of a number -> the note, which names the other tables.
    """
    found = {}
    for row in inconsistencies(paper).to_dict("records"):
        about = [row[name] for name in KEY]
        printed = row["printed"]  # table -> value
        for table, value in printed.items():
            others = [
                f"{other} in {name}" for name, other in printed.items() if name != table
            ]
            note = f"the paper also prints {', '.join(others)}"
            found[table, *about, value] = note
    return found


def remarks(found: pd.DataFrame, results: Any) -> list[str]:
    """Return sentences about a whole table.

    Parameters
    ----------
    found : DataFrame
        The result of :func:`measured`, for one table.
    results : Results, or None
        The results that were measured.
    """
    paper = found["paper"].iloc[0]
    table = found["table"].iloc[0]
    said = [f"Of every printed number: {note}." for note in _notes_everywhere(found)]
    if found["number"].notna().any():
        of_tables = read("remarks.csv")
        own = (of_tables["paper"] == paper) & (of_tables["table"] == table)
        said.extend(of_tables["remark"][own])
    if paper in WITHOUT_CODE:
        said.append("The paper has no public code to follow.")
    if not found["params"].map(above_diagonal).all():
        said.append(
            "The printed matrix is symmetric; each pair of users is shown once."
        )
    return said + _origins(found, results)


def _origins(found: pd.DataFrame, results: Any) -> list[str]:
    """Return the origins of data that are not the official ones.

    Such as a mirror, or compressed copies. Stand-ins are left out: each number says so
    itself.
    """
    origins = []
    for key in found["keys"].explode().dropna().unique():
        provenance = results.record(key)["provenance"]
        origin = provenance.get("data_origin", "")
        if not origin or origin.startswith("official") or origin in origins:
            continue
        if not stand_in("", origin):
            origins.append(origin)

    said = []
    for origin in origins:
        # the origin of features also names their pictures
        others = [other for other in origins if other != origin]
        if not any(origin in other for other in others):
            said.append(f"Data: {origin}.")
    return said
