"""Notebooks of the older form: a profile in place of parameters. Goes with the last."""

import os
import warnings
from dataclasses import dataclass
from typing import Any

import pandas as pd
from IPython import display
from matplotlib.figure import Figure
from tabulate import tabulate

from .. import studies
from ..errors import choose
from ..paths import PROFILES
from ..plots import save
from ..results import Results


@dataclass(frozen=True)
class Settings:
    """What a notebook was asked to do: its name, profile, and jobs at a time (0 takes the profile's own number)."""

    name: str
    profile: str
    n_jobs: int = 0

    def results(self) -> Results:
        """Return the notebook's results: read (``stored``), or looked up, resumed and computed."""
        return studies.results(self.name, self.profile, n_jobs=self.n_jobs or None)

    def show(self, fig: Figure, name: str) -> None:
        """Save a figure under the notebook's number (:func:`fltnb.plots.save`), and display that picture."""
        import matplotlib.pyplot as plt

        png = save(fig, f"{self.name.split('_')[0]}_{name}", self.profile)
        # the file, not the figure: drawing it a second time would double what a notebook's pictures take
        display.display(
            display.Image(png.read_bytes(), width=round(100 * fig.get_figwidth()))
        )
        plt.close(
            fig
        )  # else Jupyter shows every open figure again at the end of the cell


def setup(name: str, profile: str = "stored", n_jobs: int = 0) -> Settings:
    """Check the parameters of a notebook ``name`` (without its ending) and set up how it warns.

    ``$FLTNB_PROFILE`` takes the place of the default profile, ``"stored"``, so that a notebook opened by hand follows
    it, and never of a profile that was chosen. FltnbError: the profile is unknown.
    """
    if profile == "stored":
        profile = os.environ.get("FLTNB_PROFILE") or profile
    os.environ.setdefault(
        "POT_BACKEND_DISABLE_PYTORCH", "1"
    )  # POT would import torch, for what no notebook uses
    warnings.filterwarnings(
        "ignore", message="IProgress not found"
    )  # some libraries ask tqdm for a notebook's bar
    # a kept notebook must not show where its author's files lie, which Python's own format does
    warnings.formatwarning = lambda message, category, *_: (
        f"{category.__name__}: {message}\n"
    )
    return Settings(name, choose(profile, PROFILES, "profile"), n_jobs)


def to_markdown(table: pd.DataFrame, digits: int = 2) -> str:
    """Return a table as Markdown text that is the same, byte for byte, wherever the numbers are.

    Its index is shown unless it is the plain 0, 1, 2 and so on; floats have ``digits`` decimals, missing values none.
    """
    if not isinstance(table.index, pd.RangeIndex):
        table = table.reset_index(names=[name or "" for name in table.index.names])

    def text(value: Any) -> str:
        if pd.api.types.is_scalar(value) and pd.isna(value):
            return ""
        if pd.api.types.is_float(value):
            value = f"{value:.{digits}f}"
            return (
                value[1:] if float(value) == 0 and value.startswith("-") else value
            )  # no "-0.00"
        return str(value).replace("|", "\\|").replace("\n", " ")

    right = [
        "right" if pd.api.types.is_numeric_dtype(kind) else "left"
        for kind in table.dtypes
    ]
    rows = [
        [text(value) for value in row]
        for row in table.itertuples(index=False, name=None)
    ]
    heads = [
        " ".join(map(str, name)).strip() if isinstance(name, tuple) else str(name)
        for name in table.columns
    ]
    return tabulate(rows, heads, "pipe", colalign=right, disable_numparse=True)


def show_table(table: pd.DataFrame, digits: int = 2) -> None:
    """Display a table so that nbval can compare it; see :func:`to_markdown`."""
    display.display(display.Markdown(to_markdown(table, digits)))
