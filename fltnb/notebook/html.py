"""Tables as HTML: the same text in every process, with their looks inside the tags.

JupyterLab drops ``<style>`` from notebooks that it does not trust, and one that was
just cloned is not trusted; ``style="..."`` it keeps.
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
UNBROKEN = 40
"""Cells of at most so many characters stay on one line."""


def html(
    table: pd.DataFrame,
    tints: pd.DataFrame | None = None,
    caption: str = "",
    digits: int = 1,
) -> display.HTML:
    """Lay out a table.

    What follows a "±" is small and grey. An index of 0, 1, 2 and so on is not shown.

    Parameters
    ----------
    table : DataFrame, of text and numbers; columns and index may have several levels
    tints : DataFrame of text, optional
        A colour for each cell, such as "#dff1df"; "" for none.
    caption : str, what stands below; may hold HTML
    digits : int, decimals of floats
    """
    plain_index = isinstance(table.index, pd.RangeIndex)
    index = pd.DataFrame() if plain_index else table.index.to_frame(index=False)
    columns = [_texts(table.iloc[:, at], digits) for at in range(table.shape[1])]
    sides = ["right" if _numeric(column) else "left" for column in columns]

    lines = [f'<table style="{TABLE}">']
    lines += _heads(table.columns, index.shape[1], sides)
    for row in range(len(table)):
        cells = [_cell("th", str(name), "left") for name in _new_names(index, row)]
        for at, column in enumerate(columns):
            tint = "" if tints is None else tints.iloc[row, at]
            cells.append(_cell("td", column[row], sides[at], tint))
        lines.append(f'<tr style="{ROW}">' + "".join(cells) + "</tr>")
    lines.append("</table>")
    if caption:
        lines.append(f'<p style="{CAPTION}">{caption}</p>')
    return display.HTML("\n".join(lines))


def _heads(columns: pd.Index, index_levels: int, sides: Sequence[str]) -> Iterator[str]:
    """Yield a line for each level of the columns; equal names share a cell."""
    for level in range(columns.nlevels):
        last = level == columns.nlevels - 1
        cells = [_cell("th", "", "left")] * index_levels
        at = 0
        for name, group in groupby(columns.get_level_values(level)):
            width = len(list(group))
            if last:
                for side in sides[at : at + width]:
                    cells.append(_cell("th", str(name), side))
            else:
                cells.append(_cell("th", str(name), "center", span=width))
            at += width
        look = f"{ROW};border-bottom:1px solid #444" if last else ROW
        yield f'<tr style="{look}">' + "".join(cells) + "</tr>"


def _new_names(index: pd.DataFrame, row: int) -> Iterator[Any]:
    """Yield the names of a row, "" for those that the row above has too."""
    if index.empty:
        return
    names = index.iloc[row].tolist()
    above = index.iloc[row - 1].tolist() if row > 0 else []
    for level in range(len(names) - 1):
        same = names[: level + 1] == above[: level + 1]
        yield "" if same else names[level]
    yield names[-1]


def _cell(tag: str, text: str, side: str, tint: str = "", span: int = 1) -> str:
    """Return one cell."""
    look = "padding:2px 7px"
    if side != "right":
        look += f";text-align:{side}"
    if tag == "th":
        look += ";font-weight:500;white-space:nowrap"
    if tint:
        look += f";background-color:{tint};color:#222"
    wide = f' colspan="{span}"' if span > 1 else ""

    text = escape(text, quote=False)
    if len(text) <= UNBROKEN:
        text = text.replace(" ", "\N{NO-BREAK SPACE}")
        text = re.sub(r"(?<=[a-z])-(?=[a-z])", "\N{NON-BREAKING HYPHEN}", text)
    else:
        look += ";min-width:185px"
    text = re.sub(r"(\s±.*)", r'<small style="color:#777">\1</small>', text)
    return f'<{tag}{wide} style="{look}">{text}</{tag}>'


def _texts(values: pd.Series, digits: int) -> list[str]:
    """Write the cells of a column."""
    return [_text(value, digits) for value in values]


def _text(value: Any, digits: int) -> str:
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return ""
    return signed(value, digits) if pd.api.types.is_float(value) else str(value)


def signed(value: float, digits: int) -> str:
    """Write a number with a minus sign, and zero without one."""
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def _numeric(column: Sequence[str]) -> bool:
    """Whether the cells of a column begin with numbers."""
    written = [text for text in column if text]
    return all(re.match(r"[+−-]?\.?\d", text) for text in written)
