"""An explorer for JupyterLab: a clustering with different thresholds, k and rules.

See ``docs/explorer.md``. Pictures are drawn here and sent as PNGs; the browser
(``picture.js``) shows them and reports which client was clicked.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from IPython import get_ipython

from ...errors import FltnbError
from ...settings import NonNegative, check
from .arena import ArenaExplorer
from .clients import ClientsExplorer
from .explorer import Explorer
from .grouping import EQUAL, GIVEN
from .runs import RunsExplorer

if TYPE_CHECKING:
    from ...clustering import ClientClusterer

__all__ = ["EQUAL", "GIVEN", "Explorer", "explore"]


def explore(
    source: "ClientClusterer | Mapping[str, np.ndarray] | Any",
    X: Sequence[np.ndarray] | None = None,
    *,
    samples: Sequence[np.ndarray] | None = None,
    truth: np.ndarray | None = None,
    accuracy: np.ndarray | None = None,
    live: bool | None = None,
    **start: Any,
) -> Explorer:
    """Explore a clustering of clients, stored results, or the arena's table.

    In JupyterLab the picture has controls, elsewhere it is a still picture.

    Parameters
    ----------
    source : fitted clusterer, mapping, Results or the arena's Table
        A mapping: ``distance`` (M, M) and, if known, ``linkage``, ``labels`` and true
        ``clusters``, as stored by experiments.
    X : sequence of M arrays, optional
        The data of the fit; they give a slider for the size of a sketch (k).
    samples : sequence of M arrays, optional
        The clients' images, (n_i, H, W) or (n_i, H, W, 3).
    truth, accuracy : array (M,), optional
        True clusters; test accuracy of every client in percent.
    live : bool, optional
        Controls or a still picture; None: controls if a front end started this
        kernel.
    **start
        Initial controls: ``threshold``, ``k``, ``rule`` (for C), ``n_clusters``,
        ``client``; for results the columns to select (``dataset="mnist"``, ...),
        ``methods`` and ``y``, the measure; for the arena's table ``federation``,
        ``y``, ``methods`` and ``against``.

    Returns
    -------
    Explorer
        An object that Jupyter displays.

    Raises
    ------
    FltnbError
        The arguments do not fit together, or there is nothing to show.

    Examples
    --------
    >>> near = np.array([[0.0, 0.1, 0.9], [0.1, 0.0, 0.8], [0.9, 0.8, 0.0]])
    >>> seen = explore(
    ...     {"distance": near}, threshold=0.5, rule="equal neighbours", live=False
    ... )
    >>> seen.labels.tolist(), seen.move(threshold=0.05).labels.tolist()
    ([0, 0, 1], [0, 1, 2])
    """
    is_mapping = isinstance(source, Mapping) and "distance" in source
    if hasattr(source, "runs") and hasattr(source, "curves"):
        explorer: Explorer = RunsExplorer(source)
    elif hasattr(source, "runs") and hasattr(source, "ranks"):  # the arena's table
        explorer = ArenaExplorer(source)
    elif is_mapping or hasattr(source, "linkage_"):
        threshold = check("threshold", start.get("threshold", 0.0), NonNegative)
        explorer = ClientsExplorer(source, X, samples, truth, accuracy, threshold)
    else:
        raise FltnbError(
            "Give explore a clusterer after fit, arrays with the clients' distance, "
            "Results, or the arena's table."
        )

    explorer.move()
    for name, value in start.items():
        explorer.move(**{name: value})
    if _in_front_end() if live is None else live:
        explorer.animate()
    return explorer


def _in_front_end() -> bool:
    """Whether JupyterLab, Notebook or VS Code started this kernel."""
    names = getattr(get_ipython(), "user_ns", {})
    return "JPY_SESSION_NAME" in os.environ or "__vsc_ipynb_file__" in names
