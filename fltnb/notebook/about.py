"""Where the numbers of a page come from."""

from importlib import metadata
from typing import Any

from IPython import display

from .. import __version__
from ..papers import label
from ..provenance import environment
from .html import html


def provenance(found: Any) -> display.HTML:
    """Show for each data set how many runs there are, and what they took."""
    columns = {"dataset": "data", "jobs": "runs", "minutes": "minutes of computing"}
    table = found.provenance()
    table = table.assign(
        dataset=table["dataset"].map(label),
        minutes=table["minutes"].round().astype(int),
    )
    shown = ["dataset", "jobs", "seeds", "minutes", "data", "last day"]
    table = table[shown].rename(columns={"data": "source"}).rename(columns=columns)
    return html(table)


def versions() -> None:
    """Print what the numbers were computed with: Python, packages, commit, machine."""
    about = environment()
    rows = {"python": about["python"], **about["packages"]}
    rows["pot"] = metadata.version("pot")
    rows["fltnb"] = f"{__version__}, commit {about['commit']}"
    rows["platform"] = about["platform"]
    rows["hardware"] = about["hardware"]
    width = max(map(len, rows))
    for name, version in rows.items():
        print(f"{name:<{width}}  {version}")
