"""The first screen of a notebook, which its later cells fill."""

import hashlib
import textwrap
import warnings
from collections.abc import MutableMapping, Sequence
from typing import Any

import pandas as pd
import yaml
from IPython import display

from .. import data
from ..papers import label, outcomes
from ..papers.compare import count
from ..paths import ROOT
from ..startup import be_quick
from .grids import check_experiments
from .parameters import (
    Values,
    assigned,
    check_lists,
    check_names,
    check_needed,
    check_spelling,
    checked,
    injected,
    texts_in,
)
from .verdicts import verdict_table

PLACES = ("picture", "table", "verdicts")
LINE = 96
"""Characters of a printed line that a page shows in full."""
SOON = "<i>The results stand here once the cells below have run.</i>"


class Page:
    """A notebook with its results above the code that computes them.

    Parameters
    ----------
    notebook : str
        Its number, such as "01".

    Examples
    --------
    >>> import fltnb as fl
    >>> page = fl.notebook.Page("01")
    >>> page.fill(picture="what stands at the top of the notebook")
    what stands at the top of the notebook
    """

    def __init__(self, notebook: str):
        self.notebook = notebook
        be_quick()
        # some libraries ask tqdm for a notebook's bar
        warnings.filterwarnings("ignore", message="IProgress not found")
        # a stored notebook must not show paths of its author's files
        warnings.formatwarning = _without_paths

    def reserve(self) -> None:
        """Show placeholders for the picture, the table and the verdicts.

        They contain only a sentence until :meth:`fill` is called.
        """
        for place in PLACES:
            text = SOON if place == PLACES[0] else ""
            shown = display.HTML(text)
            display.display(shown, display_id=f"{self.notebook}-{place}")

    def parameters(
        self, namespace: MutableMapping[str, Any], **needed: Sequence | float
    ) -> None:
        """Check and read papermill's parameters, in the cell below the parameters.

        With ``compute``, all experiments of the notebook are checked, too.

        Parameters
        ----------
        namespace : dict
            ``globals()`` of the notebook. Papermill's values replace its own
            parameters.
        **needed
            Parameter -> names that must be in it, such as methods that the notebook's
            picture compares; or the least number that it may be.

        Raises
        ------
        FltnbError
            An unknown name, a value of another kind, a data set without an entry in a
            parameter, a needed name is not there, a number is too small, or an
            experiment cannot run.
        """
        source, papermills = injected(namespace.get("In", []))
        if papermills:
            own = assigned(source)
            values = checked(own, assigned(papermills))
            check_names(values, source, self._known(own))
            namespace.update(values)
        else:
            check_lists(namespace, self._profiles())
            check_spelling(namespace)
        check_needed(namespace, needed)
        if namespace.get("compute"):
            check_experiments(self.notebook, namespace)

    def _known(self, own: Values) -> list[str]:
        """Return names that may not be in the cell of parameters.

        Those of its profiles, and of all data sets, if its own are names of data sets.
        """
        names: list[str] = []
        if set(own.get("datasets", [])) & set(data.NAMES):
            names.extend(data.NAMES)
        for profile in self._profiles():
            names += texts_in(profile)
        return names

    def _profiles(self) -> list[Values]:
        """Return the parameters that each profile of this notebook changes."""
        files = (ROOT / "notebooks" / "profiles").glob(f"*/{self.notebook}.yaml")
        texts = [file.read_text(encoding="utf-8") for file in files]
        return [yaml.safe_load(text) or {} for text in texts]

    def fill(
        self,
        picture: Any = None,
        table: Any = None,
        verdicts: Any = None,
        columns: int = 8,
    ) -> None:
        """Fill placeholders of the first screen; the others are not changed.

        It prints how many claims agree, how runs differ from the printed setting, and a
        digest of each table.

        Parameters
        ----------
        picture, table : what Jupyter can show, optional
        verdicts : DataFrame, optional
            Of :func:`fltnb.papers.judge`.
        columns : int
            Largest number of numeric columns in the table of verdicts; with more
            columns the numbers are described in words.
        """
        if verdicts is not None:
            _tell(verdicts)
            verdicts = verdict_table(verdicts, columns)
        for place, shown in zip(PLACES, (picture, table, verdicts), strict=True):
            if shown is None:
                continue
            display.update_display(shown, display_id=f"{self.notebook}-{place}")
            if isinstance(shown, display.HTML):
                print(f"At the top: {place} {digest(str(shown.data))}.")


def digest(text: str) -> str:
    """Return eight hexadecimal digits that name a text.

    nbval does not compare contents that are filled in later, but it compares these.
    """
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _without_paths(message, category, *_, **__) -> str:
    """Write a warning without the file that gave it."""
    return f"{category.__name__}: {message}\n"


def _tell(tested: pd.DataFrame) -> None:
    """Print the outcomes of claims, and how runs depart from the printed setting.

    nbval compares what is printed: it fails if an outcome changes.
    """
    number = outcomes(tested)["outcome"].value_counts().sort_index()
    told = ", ".join(f"{many} {outcome}" for outcome, many in number.items())
    print(f"{count(number.sum(), 'claim')}: {told}.")
    ours = tested[tested["variant"] != "printed"]
    for dataset, own in ours.groupby("dataset", sort=False):
        phrases = dict.fromkeys(own["departs"].explode().dropna())
        if phrases and dataset:
            name = label(dataset)
            told = ", ".join(phrases).replace(f"stand-in: {name}", "stand-in data")
            said = f"Not the printed setting, {name}: {told}."
            print(textwrap.fill(said, LINE, subsequent_indent="  "))
