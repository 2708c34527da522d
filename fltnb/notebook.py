"""The few helpers that every notebook uses: settings, claims, tables, versions."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib import metadata
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from . import __version__
from .errors import FltnbError, choose
from .experiments import PROFILES

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Settings:
    """What a notebook was asked to do.

    Attributes
    ----------
    name : str
        The notebook, for example ``01_scenario1``; names its figures and tables.
    profile : str
        ``demo``, ``small`` or ``paper``.
    parameters : mapping
        The other values of the parameters cell; read-only.
    """

    name: str
    profile: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def show(self, fig: Figure, name: str) -> None:
        """Save a figure as ``figures/<profile>/<NN>_<name>`` (:func:`fltnb.plots.save`), and display that picture."""
        import matplotlib.pyplot as plt
        from IPython.display import Image, display

        from . import plots

        png = plots.save(fig, f"{self.name.split('_')[0]}_{name}", self.profile)
        # the file, not the figure: drawing it a second time would double what a notebook's pictures take
        display(Image(png.read_bytes(), width=round(100 * fig.get_figwidth())))
        plt.close(fig)  # else Jupyter shows every open figure again at the end of the cell


def setup(name: str, profile: str = "demo", **parameters: Any) -> Settings:
    """Check the parameters of a notebook and set up how it warns.

    Parameters
    ----------
    name : str
        Name of the notebook, without its ending.
    profile : str
        The notebook's parameter. ``$FLTNB_PROFILE`` takes the place of the default ``"demo"``, so that a
        notebook opened by hand or checked by nbval follows it, and never of a profile that was chosen.
    **parameters
        The other parameters of the notebook.

    Raises
    ------
    FltnbError
        The profile is unknown.
    """
    if profile == "demo":
        profile = os.environ.get("FLTNB_PROFILE") or profile
    settings = Settings(name, choose(profile, PROFILES, "profile"), MappingProxyType(parameters))

    import warnings

    # a kept notebook must not show where its author's files lie, which Python's own format does
    warnings.formatwarning = lambda message, category, *_: f"{category.__name__}: {message}\n"
    return settings


class Claims:
    """A list of what should be seen, each with the word whether it is.

    Examples
    --------
    >>> claims = Claims()
    >>> claims.check("Two and two are four", 2 + 2 == 4, "2 + 2 = 4", must=True)
    >>> claims.check("All is well", False)
    >>> claims.show()
    holds          Two and two are four  (2 + 2 = 4)
    DOES NOT HOLD  All is well
    """

    def __init__(self):
        self._rows: list[dict[str, Any]] = []

    def check(self, sentence: str, holds: bool, evidence: str = "", must: bool = False, claim: str = "") -> None:
        """Note one claim.

        Parameters
        ----------
        sentence : str
            The claim, in words.
        holds : bool
            Python or NumPy truth value; write the tolerance into the comparison.
        evidence : str
            The numbers behind it, rounded so that they are the same on every machine.
        must : bool
            The notebook is wrong if this does not hold: :meth:`show` then fails after printing. Claims of a
            paper, which may well not reproduce, are only reported.
        claim : str
            Id of the paper's claim (:func:`fltnb.published.claims`) that this bears on; the report counts by it.

        Raises
        ------
        FltnbError
            ``holds`` is no truth value, such as an array or a NaN (which Python would take for true).
        """
        if type(holds).__name__ not in ("bool", "bool_"):
            raise FltnbError(
                f"The claim {sentence!r} got {holds!r} instead of True or False: compare it with something."
            )
        verdict = "holds" if holds else "does not hold"
        self._rows.append(
            {"claim": claim, "sentence": sentence, "verdict": verdict, "evidence": evidence, "must": must}
        )

    def untestable(self, sentence: str, reason: str, claim: str = "") -> None:
        """Note a claim that these runs cannot test, and why."""
        self._rows.append(
            {"claim": claim, "sentence": sentence, "verdict": "not tested", "evidence": reason, "must": False}
        )

    def table(self) -> pd.DataFrame:
        """Return all claims noted: ``claim, sentence, verdict, evidence``."""
        import pandas as pd

        return pd.DataFrame(self._rows, columns=["claim", "sentence", "verdict", "evidence"])

    def write(self, profile: str, name: str) -> None:
        """Write ``results/<profile>/<name>_claims.csv``, which the report reads."""
        from . import paths

        text = self.table().to_csv(index=False).encode()
        paths.write_atomically(paths.results(profile) / f"{name}_claims.csv", lambda file: file.write(text))

    def show(self) -> None:
        """Print the list, then fail if a claim that must hold does not.

        Raises
        ------
        AssertionError
            Names the claims that must hold and do not.
        """
        words = {"holds": "holds", "does not hold": "DOES NOT HOLD", "not tested": "not tested"}
        width = max((len(row["sentence"]) for row in self._rows), default=0)
        for row in self._rows:
            evidence = f"({row['evidence']})" if row["evidence"] else ""
            print(f"{words[row['verdict']]:<13}  {row['sentence']:<{width}}  {evidence}".rstrip())
        broken = [row["sentence"] for row in self._rows if row["must"] and row["verdict"] != "holds"]
        if broken:
            raise AssertionError("Must hold and does not: " + "; ".join(broken))


def to_markdown(table: pd.DataFrame, digits: int = 2) -> str:
    """Return a table as Markdown text that is the same, byte for byte, wherever the numbers are.

    Parameters
    ----------
    table : DataFrame
        Its index is shown unless it is the plain 0, 1, 2, ...
    digits : int
        Decimals of all floating-point numbers. Missing values are left blank.
    """
    import pandas as pd
    from tabulate import tabulate

    if not isinstance(table.index, pd.RangeIndex):
        table = table.reset_index(names=[name or "" for name in table.index.names])

    def text(value: Any) -> str:
        if pd.api.types.is_scalar(value) and pd.isna(value):
            return ""
        if pd.api.types.is_float(value):
            value = f"{value:.{digits}f}"
            return value[1:] if float(value) == 0 and value.startswith("-") else value  # no "-0.00"
        return str(value).replace("|", "\\|").replace("\n", " ")

    return tabulate(
        [[text(value) for value in row] for row in table.itertuples(index=False, name=None)],
        headers=[" ".join(map(str, name)).strip() if isinstance(name, tuple) else str(name) for name in table.columns],
        tablefmt="pipe",
        colalign=["right" if pd.api.types.is_numeric_dtype(kind) else "left" for kind in table.dtypes],
        disable_numparse=True,
    )


def show_table(table: pd.DataFrame, digits: int = 2) -> None:
    """Display a table so that nbval can compare it; see :func:`to_markdown`."""
    from IPython.display import Markdown, display

    display(Markdown(to_markdown(table, digits)))


def show_heading(text: str) -> None:
    """Display a heading from a code cell, for sections that exist only where their results do."""
    from IPython.display import Markdown, display

    display(Markdown(f"#### {text}"))


def versions() -> None:
    """Print what the numbers were computed with: Python, packages, this project and its commit, the machine."""
    from .store import environment

    about = environment()
    rows = {"python": about["python"], **about["packages"], "pot": metadata.version("pot")}
    rows |= {"fltnb": f"{__version__}, commit {about['commit']}", "platform": about["platform"]}
    rows["hardware"] = about["hardware"]
    width = max(map(len, rows))
    print("\n".join(f"{name:<{width}}  {version}" for name, version in rows.items()))
