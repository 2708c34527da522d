"""The origin of the numbers on a page."""

from importlib import metadata
from typing import Any

import pandas as pd
from IPython import display

from .. import __version__
from ..papers import label
from ..provenance import environment
from .html import html


def provenance(found: Any) -> display.HTML:
    """Show for each data set the number of runs, and their time.

    ``found``: Results.

    Examples
    --------
    >>> import fltnb as fl
    >>> results = fl.results("01").where(kind="training")
    >>> "MNIST" in fl.notebook.provenance(results).data
    True
    """
    table = found.provenance()
    columns = {
        "data": table["dataset"].map(label),
        "runs": table["experiments"],
        "seeds": table["seeds"],
        "minutes of computing": table["minutes"].round().astype(int),
        "source": table["data"],
        "last day": table["last day"],
    }
    return html(pd.DataFrame(columns))


def versions() -> None:
    """Print the versions of this machine: Python, packages, commit, hardware.

    The provenance of stored numbers is shown by :func:`provenance`.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.notebook.versions()  # doctest: +ELLIPSIS
    python ...
    numpy ...
    """
    about = environment()
    rows = {
        "python": about["python"],
        **about["packages"],
        "pot": metadata.version("pot"),
        "fltnb": f"{__version__}, commit {about['commit']}",
        "platform": about["platform"],
        "hardware": about["hardware"],
    }
    width = max(len(name) for name in rows)
    for name, version in rows.items():
        print(f"{name:<{width}}  {version}")
