"""Tables as HTML: the same text in every process, with styles inside the tags.

JupyterLab removes ``<style>`` from notebooks that it does not trust, such as newly
cloned ones, but keeps ``style="..."``.
"""

import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Any

import pandas as pd
from IPython import display

TABLE = "border-collapse:collapse;font-size:12px;margin:0 0 4px 0"
CAPTION = "font-size:11px;color:#666;margin:0 0 12px 0;max-width:900px"
ROW = "text-align:right"
"""Styles of a table, of its caption, and of a row."""
UNBROKEN = 40
"""By default, cells with at most this number of characters stay on one line."""
LONG = 40
"""Cells of more characters are wide enough to read."""
HEAD = 12
"""The head of a column may break into lines if it has more characters."""


def html(
    table: pd.DataFrame,
    tints: pd.DataFrame | None = None,
    caption: str = "",
    digits: int = 1,
    unbroken: int = UNBROKEN,
) -> display.HTML:
    """Lay out a table.

    Text after "±" is small and grey. An index 0, 1, 2 and so on is not shown.

    Parameters
    ----------
    table : DataFrame
        Text and numbers; columns and index may have several levels.
    tints : DataFrame of text, optional
        A colour for each cell, such as "#dff1df"; "" for none.
    caption : str
        Text below the table; may contain HTML.
    digits : int
        Decimals of floats.
    unbroken : int
        Cells with at most this number of characters stay on one line.

    Examples
    --------
    >>> import fltnb as fl
    >>> import pandas as pd
    >>> table = pd.DataFrame({"accuracy": [82.7]}, index=["FedAvg"])
    >>> "<table" in fl.notebook.html(table).data
    True
    """
    index = pd.DataFrame()
    if not isinstance(table.index, pd.RangeIndex):
        index = table.index.to_frame(index=False)
    columns = []
    sides = []
    for at in range(table.shape[1]):
        texts = [_text(value, digits) for value in table.iloc[:, at]]
        columns.append(texts)
        sides.append("right" if _numeric(texts) else "left")

    lines = [f'<table style="{TABLE}">']
    lines += _heads(table.columns, index.shape[1], sides)
    for row in range(len(table)):
        cells = [_cell("th", str(name), "left") for name in _new_names(index, row)]
        for at, texts in enumerate(columns):
            tint = "" if tints is None else tints.iloc[row, at]
            cell = _cell("td", texts[row], sides[at], tint, unbroken=unbroken)
            cells.append(cell)
        lines.append(_row(cells, ROW))
    lines.append("</table>")
    if caption:
        lines.append(f'<p style="{CAPTION}">{caption}</p>')
    return display.HTML("\n".join(lines))


def _row(cells: Sequence[str], look: str) -> str:
    """Return a line of the table, from its cells and its style."""
    return f'<tr style="{look}">' + "".join(cells) + "</tr>"


def _heads(columns: pd.Index, index_levels: int, sides: Sequence[str]) -> Iterator[str]:
    """Yield a line for each level of the columns.

    Equal names beside each other share a cell, but in the last line: that one has a
    cell, and a side, for each column.

    Parameters
    ----------
    columns : Index
    index_levels : int
        Cells to leave empty on the left.
    sides : sequence of str
        "left" or "right" for each column.
    """
    for level in range(columns.nlevels - 1):
        cells = [_cell("th", "", "left")] * index_levels
        for name, group in groupby(columns.get_level_values(level)):
            width = len(list(group))
            cells.append(_cell("th", str(name), "center", span=width))
        yield _row(cells, ROW)

    cells = [_cell("th", "", "left")] * index_levels
    for name, side in zip(columns.get_level_values(-1), sides, strict=True):
        cells.append(_cell("th", str(name), side, unbroken=HEAD))
    yield _row(cells, f"{ROW};border-bottom:1px solid #444")


def _new_names(index: pd.DataFrame, row: int) -> Iterator[Any]:
    """Yield the names of a row, "" for those that the row above has too.

    The last name is always said.
    """
    if index.empty:
        return
    names = index.iloc[row].tolist()
    above = []
    if row > 0:
        above = index.iloc[row - 1].tolist()
    for level in range(len(names) - 1):
        same = names[: level + 1] == above[: level + 1]
        yield "" if same else names[level]
    yield names[-1]


def _cell(
    tag: str,
    text: str,
    side: str,
    tint: str = "",
    span: int = 1,
    unbroken: int = UNBROKEN,
) -> str:
    """Return one cell.

    Parameters
    ----------
    tag : str
        "th" for a head, else "td".
    text : str
        Short ones are not broken, and get hyphens and spaces that browsers keep.
    side : str
        "left", "right" or "center".
    tint : str
        Its colour, "" for none.
    span : int
        Columns that it stands over.
    unbroken : int
        Characters that are kept on one line.
    """
    look = "padding:2px 5px"
    if side != "right":
        look += f";text-align:{side}"
    if tag == "th":
        look += ";font-weight:500"
    if tint:
        look += f";background-color:{tint};color:#222"
    wide = ""
    if span > 1:
        wide = f' colspan="{span}"'

    text = escape(text, quote=False)
    if len(text) <= unbroken:
        look += ";white-space:nowrap" if tag == "th" else ""
        text = text.replace(" ", "\N{NO-BREAK SPACE}")
        text = re.sub(r"(?<=[a-z])-(?=[a-z])", "\N{NON-BREAKING HYPHEN}", text)
    elif len(text) > LONG:
        look += ";min-width:160px"
    text = re.sub(r"(\s±.*)", r'<small style="color:#777">\1</small>', text)
    return f'<{tag}{wide} style="{look}">{text}</{tag}>'


def _text(value: Any, digits: int) -> str:
    """Write a cell, "" for a missing value; ``digits``: decimals of floats."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return ""
    if pd.api.types.is_float(value):
        return signed(value, digits)
    return str(value)


def signed(value: float, digits: int) -> str:
    """Write a number with a minus sign, and zero without one.

    Examples
    --------
    >>> signed(-1.26, 1), signed(-0.01, 1)
    ('−1.3', '0.0')
    """
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        return text.lstrip("-")
    return text.replace("-", "−")


def pairs_of(table: pd.DataFrame, above: str, head: str) -> list[tuple[Any, Any]]:
    """Return the different pairs of two columns, in the order in which they come.

    They are heads of columns with two levels.
    """
    pairs = table[[above, head]].drop_duplicates()
    return list(pairs.itertuples(index=False, name=None))


def _numeric(column: Sequence[str]) -> bool:
    """Whether the cells of a column that are not empty begin with numbers."""
    number = re.compile(r"[+−-]?\.?\d")
    return all(number.match(text) for text in column if text)
