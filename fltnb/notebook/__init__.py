"""The common part of all notebooks: page, parameters, tables and pictures.

A notebook is a result page. Its first screen (:class:`Page`) shows a picture, a table
and verdicts, which the cells below it fill in. Its cells tagged ``parameters`` and
``experiment`` define what is run and need no other cell (:mod:`~fltnb.notebook.grids`).
"""

from ..papers.compare import count
from .about import provenance, versions
from .html import html
from .page import Page
from .parameters import Picked, of
from .pictures import agreement, compared, curves, dots, png
from .scores import order_table, printed, score_table, scores, words
from .tables import axis_table, mean_table, rows_of, switched
from .verdicts import verdict_table

__all__ = [
    "Page",
    "Picked",
    "agreement",
    "axis_table",
    "compared",
    "count",
    "curves",
    "dots",
    "html",
    "mean_table",
]
__all__ += [
    "of",
    "order_table",
    "png",
    "printed",
    "provenance",
    "rows_of",
    "score_table",
    "scores",
]
__all__ += [
    "switched",
    "verdict_table",
    "versions",
    "words",
]
