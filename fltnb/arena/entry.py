"""Entries: an external class in its own file, or a method of this package.

A class may declare two things besides its options. ``needs`` is a frozenset of what it
uses: "n_clusters" (it is given K), "validation" (the clients' validation samples),
"true clusters". ``space`` gives the values over which its options are tuned
(:mod:`fltnb.arena.tuning`).
"""

import hashlib
import importlib.util
import inspect
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..clustering import FCR, PACFL, EMDClustering, FedCollab, PCAKMeans
from ..clustering.ours import MergeGain, TransportSignatures
from ..encoders import unseen
from ..errors import FltnbError, choose
from ..experiments.key import versions
from ..methods import FLT, METHODS, Method
from .tuning import check_space

WORDS = ("n_clusters", "validation", "true clusters")
"""The words that ``needs`` may contain."""
BESIDE = ("Local", "FedAvg", "FedRep", "Ditto", "Oracle")
"""Methods that are in every table."""
TRUE_CLUSTERS = ("Oracle", "MTHFL")
"""Methods of this package that are given the true clusters."""
TOLD = ("FedClust", "FLHC")
"""Methods of this package that are given K, as they would need a threshold."""
OURS = {"TransportSignatures": TransportSignatures, "MergeGain": MergeGain}
"""Our own clusterers, which run as FLT's."""
CLUSTERERS: dict[str, type] = {
    "FLT": FCR,
    "SoftFLT": FCR,
    "DynamicFLT": FCR,
    "PCAKMHC": PCAKMeans,
    "PACFL": PACFL,
    "EMDCFL": EMDClustering,
    "FedCollab": FedCollab,
    **OURS,
}
"""Clusterers of this package's methods, whose options are tuned like the methods'."""
IDS_OF_OURS = {"TransportSignatures": "transport", "MergeGain": "merge_gain"}
"""Their ids in pictures and tables."""
ENCODED = ("FLT", "SoftFLT", "DynamicFLT", *OURS)
"""Methods of this package that cluster embeddings. Their encoder has seen none of the
clients' images (:func:`fltnb.encoders.unseen`)."""
PLAYERS = (*METHODS, *OURS)
"""Names of all entries of this package."""
PLAYED_WITH = {"DynamicFLT": {"newcomers": "nearest"}}
PLAYED_WITH |= {name: {"joining": "placed"} for name in OURS}
"""Values of options of this package's methods: those that are required, and how our own
clusterers, which are no methods, treat newcomers."""
FCR_SPACE = {"threshold": (0.3, 3.0, "log"), "n_neighbors": (5, 20, "linear")}
SPACES: dict[str, dict[str, Any]] = {
    "FedProx": {"mu": (0.001, 1.0, "log")},
    "Ditto": {"lam": (0.1, 4.0, "log")},
    "FedRep": {"head_epochs": (4, 25, "log")},
    "FedDANE": {"mu": (0.01, 3.0, "log")},
    "FedDist": {"epsilon": (0.3, 1.0, "linear")},
    "FedDistWS": {"epsilon": (0.3, 1.0, "linear")},
    # for the rounds of the arena, which are fewer than in the papers
    "CFL": {
        "eps1": (0.1, 1.6, "log"),
        "eps2": (0.4, 6.4, "log"),
        "warmup": (0, 10, "linear"),
    },
    "CFLGP": {"period": (1, 4, "linear"), "stop": (4, 20, "linear")},
    "CLoVE": {"patience": (1, 5, "linear"), "first": ["losses", "random"]},
    "FLHC": {"after": (1, 10, "linear"), "metric": ["L1", "L2", "cosine"]},
    "FLUX": {"latest": (3, 16, "linear"), "rise": (0.03, 0.12, "log")},
    "FeSEM": {"lam": (0.001, 1.0, "log")},
    "FeSEMMA": {"lam": (0.001, 1.0, "log")},
    "FedCE": {"delta": (0.1, 2.5, "log")},
    "FedCluster": {"gamma": (0.03, 0.5, "log"), "period": (2, 10, "linear")},
    "FedDrift": {"delta": (0.04, 0.2, "log")},
    "FedSaC": {"l1": (0.2, 4.0, "log"), "l2": (0.4, 5.6, "log")},
    "FedSoft": {"lam": (0.001, 0.1, "log"), "period": (1, 4, "linear")},
    "FlexCFL": {"eta": [0.0, 0.1, 1.0, 5.0]},
    "IFCA": {"starts": (1, 8, "linear"), "warmup": (0, 10, "linear")},
    "OCFL": {"clusterer": ["hdbscan", "meanshift", "affinity"]},
    "PFedGraph": {"alpha": (0.2, 3.2, "log")},
    "RobustTKM": {"trim": (0.0, 0.4, "linear")},
    "StoCFL": {"tau": (0.2, 0.9, "linear"), "mu": (0.01, 1.0, "log")},
    "MTHFL": {"local_rounds": (1, 5, "linear")},
    # options of their clusterers
    "FLT": FCR_SPACE,
    "SoftFLT": FCR_SPACE,
    "DynamicFLT": FCR_SPACE,
    "PCAKMHC": {"threshold": (0.4, 3.6, "log")},
    "PACFL": {"threshold": (2.0, 30.0, "log")},
    "EMDCFL": {"tolerance": (0.006, 0.1, "log")},
    "FedCollab": {"c": (1.0, 100.0, "log")},
    "TransportSignatures": {"alpha": (0.001, 0.1, "log"), "k": (5, 20, "log")},
    "MergeGain": {"n_features": (32, 128, "log")},
}
"""Spaces of this package's methods, by class: around what their papers and codes use.

Methods that are not listed have no option with numbers or words, besides K and choices
of how a round is computed; FedClust's threshold has no effect, as it is told K.
"""


@dataclass(frozen=True)
class Entry:
    """A method that takes part.

    Attributes
    ----------
    name : str
        Name of the class.
    kind : type
    needs : frozenset of str
        Some of :data:`WORDS`.
    space : dict
        Empty if nothing is tuned.
    source : str
        Text of the file with the class; "" for a method of this package.
    where : str
        The argument of :func:`entry`: a file and a class, or a name.
    """

    name: str
    kind: type[Method]
    needs: frozenset[str]
    space: dict[str, Any]
    source: str
    where: str

    @property
    def trusted(self) -> bool:
        """Return whether it is a method of this package."""
        return not self.source

    @property
    def digest(self) -> str:
        """Return a hash of the source; for this package's methods, name and version."""
        text = self.source
        if self.trusted:
            parts = versions([self.kind.name, self.name])
            text = f"{self.name} {parts}"
        return hashlib.sha256(text.encode()).hexdigest()

    def plays(self, known: bool) -> bool:
        """Whether it runs on a cell; ``known``: the cell's true clusters are known."""
        return known or "true clusters" not in self.needs

    def options(
        self, told: int, dataset: str, options: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the options of the class.

        Parameters
        ----------
        told : int
            K, for a class that needs it.
        dataset : str
            Name of the clients' data set, which determines the encoder.
        options : dict
            Options of the run; those that the class does not have are options of its
            clusterer.
        """
        given: dict[str, Any] = {}
        if self.trusted:
            given |= PLAYED_WITH.get(self.name, {})
            if self.name in ENCODED:
                given["encoder"] = unseen(dataset)
        if "n_clusters" in self.needs:
            given["n_clusters"] = told
        parameters = inspect.signature(self.kind).parameters
        own = {name: options[name] for name in options if name in parameters}
        of_clusterer = {name: options[name] for name in options if name not in own}
        if of_clusterer or self.name in OURS:
            given["clusterer"] = CLUSTERERS[self.name](**of_clusterer)
        return given | own


def entry(where: str) -> Entry:
    """Return the entry of a class in a file, or of a method of this package.

    ``where`` is ``my_method.py:MyMethod``, or one of :data:`PLAYERS`. Raises FltnbError
    if there is no such file, class or method, or the class is not a method; then the
    message says which part is missing.

    Examples
    --------
    >>> from fltnb import arena
    >>> who = arena.entry("IFCA")
    >>> who.name, sorted(who.needs)
    ('IFCA', ['n_clusters', 'validation'])
    """
    file, _, name = where.rpartition(":")
    if where.endswith(".py"):  # without a class, which is asked for below
        file, name = where, ""
    if not file:
        choose(where, PLAYERS, "method")
        kind = FLT if where in OURS else METHODS[where]
        needs = _needs_of_ours(kind)
        return Entry(where, kind, needs, SPACES.get(where, {}), "", where)

    path = Path(file)
    if not path.is_file():
        raise FltnbError(f"There is no file {file}: give my_method.py:MyMethod.")
    module = _imported(path)
    kind = getattr(module, name, None)
    if kind is None:
        raise _without_class(path, module, name)
    if name in PLAYERS:
        raise FltnbError(
            f"{name} is the name of a method of this package: rename the class."
        )
    check_contract(kind, name)
    needs = frozenset(getattr(kind, "needs", ()))
    space = dict(getattr(kind, "space", {}))
    source = path.read_text(encoding="utf-8")
    return Entry(name, kind, needs, space, source, where)


def _without_class(path: Path, module: Any, name: str) -> FltnbError:
    """Return the error for a class that a file lacks, or that was not named ("")."""
    there = []
    for one in vars(module).values():
        if inspect.isclass(one) and one.__module__ == module.__name__:
            there.append(f"{path}:{one.__name__}")
    wrong = f"{path.name} has no class {name}"
    if not name:
        wrong = f"{path.name} is a file, and the arena plays a class in it"
    mend = f"give {' or '.join(there)}"
    if not there:
        mend = "it has none, so write one, as docs/adding_a_method.md shows"
    return FltnbError(f"{wrong}: {mend}.")


def of_source(source: str, name: str, folder: Path) -> Entry:
    """Return the entry of a card; its source is first written into a folder."""
    path = folder / f"{name.lower()}.py"
    path.write_text(source, encoding="utf-8")
    return entry(f"{path}:{name}")


def _imported(path: Path) -> Any:
    """Import a file by its path, again at each call.

    This is the only place where a name typed by a user decides what is imported,
    because an external file is not in a package.
    """
    spec = importlib.util.spec_from_file_location(f"arena_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise FltnbError(f"{path.name} is not a Python file: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up annotations there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise FltnbError(
            f"{path.name} cannot be imported ({said(error)}): fix that first."
        ) from error
    return module


def said(error: BaseException) -> str:
    """Return an error in one line: our own sentences as they are, others by class."""
    text = re.sub(r"\s+", " ", str(error)).strip()
    if isinstance(error, FltnbError):
        return text
    return f"{type(error).__name__}: {text}".rstrip(": ")


def check_contract(kind: Any, name: str) -> None:
    """Refuse a class that is not a method, and say which part is missing."""
    if not inspect.isclass(kind) or not issubclass(kind, Method):
        raise FltnbError(
            f"{name} is no subclass of fl.methods.Method: make it one, as "
            "docs/adding_a_method.md shows."
        )
    for part in ("start", "collect"):
        if getattr(kind, part) is getattr(Method, part):
            raise FltnbError(
                f"{name} has no {part}: define it, as docs/adding_a_method.md shows."
            )
    if kind.name == Method.name:
        raise FltnbError(f'{name} has no name: give it one, name = "mine".')
    _check_needs(kind, name)
    _check_options(kind, name)
    check_space(getattr(kind, "space", {}), kind, name)


def _check_needs(kind: type[Method], name: str) -> None:
    """Refuse an invalid declaration of a method's inputs (FltnbError)."""
    needs: Any = getattr(kind, "needs", frozenset())
    try:
        valid = not isinstance(needs, str) and set(needs) <= set(WORDS)
    except TypeError:  # no collection of words
        valid = False
    if not valid:
        raise FltnbError(
            f"needs of {name} must be a frozenset of {', '.join(WORDS)}, not {needs!r}."
        )


def _check_options(kind: type[Method], name: str) -> None:
    """Refuse options without a value: the arena gives none but K."""
    needs: Any = getattr(kind, "needs", frozenset())
    parameters = inspect.signature(kind).parameters
    if "n_clusters" in needs and "n_clusters" not in parameters:
        raise FltnbError(
            f"needs of {name} names n_clusters, which is not its option: add the "
            "option, n_clusters: Count."
        )
    for option, one in parameters.items():
        if one.default is not one.empty:
            continue
        if option != "n_clusters":
            raise FltnbError(
                f"The option {option} of {name} has no default: give it one."
            )
        if "n_clusters" not in needs:
            raise FltnbError(
                f"{name} needs n_clusters, which has no default: declare it, "
                'needs = frozenset({"n_clusters"}).'
            )


def _needs_of_ours(kind: type[Method]) -> frozenset[str]:
    """Return what a method of this package uses.

    Validation samples are allowed to all of them, as some choose models or clusters by
    them. K is needed where it is an option without a default.
    """
    needs = {"validation"}
    told = inspect.signature(kind).parameters.get("n_clusters")
    if told is not None and told.default is told.empty:
        needs.add("n_clusters")
    if kind.__name__ in TOLD:
        needs.add("n_clusters")
    if kind.__name__ in TRUE_CLUSTERS:
        needs.add("true clusters")
    return frozenset(needs)


def beside(where: str) -> list[str]:
    """Return the methods that are in every table, without the entry itself."""
    return [name for name in BESIDE if name != where]
