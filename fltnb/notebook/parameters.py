"""Parameters of a notebook, from papermill or a profile, and their checks."""

import ast
import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import FltnbError
from ..papers.names import NAMES

Values = dict[str, Any]
"""Parameters, name -> value."""

INJECTED = "# Parameters"
"""First line of the cell that papermill writes below a notebook's parameters."""

OTHER = "other"
"""The entry of a dict for all data sets without their own entry."""

NAMING = (
    "datasets",
    "methods",
    "variants",
    "models",
    "forced",
    "one_shot",
    "federations",
    "changed",
    "tracks",
    "papers",
    "people",
    "grouped",
    "breaks_on",
)
"""Parameters whose texts name what their notebook knows."""

OF_PACKAGE = ("methods", "variants", "models", "forced", "one_shot")
"""Parameters whose texts the package has names for."""

KINDS = {bool: "True or False", int: "a whole number", float: "a number", str: "text"}


def of(setting: Any, *keys: str) -> Any:
    """Return a setting for a data set, a variant, or other keys of a run.

    Parameters
    ----------
    setting : Any
        One value for all, or a dict by one of the keys; an entry may be a dict by
        another key.
    *keys : str
        The keys of this run.

    Raises
    ------
    FltnbError
        A dict has no entry for any of the keys.

    Examples
    --------
    >>> epochs = {"mnist": 1, "cifar10": {"as_written": 5, "as_run": 3}}
    >>> of(epochs, "cifar10", "as_run"), of(0.01, "mnist", "as_run")
    (3, 0.01)
    """
    while isinstance(setting, dict):
        there = [key for key in keys if key in setting]
        if not there:
            asked = " or ".join(map(repr, keys))
            raise FltnbError(f"There is no entry for {asked} in {setting}: add one.")
        setting = setting[there[0]]
    return setting


class Picked:
    """The parameters of one run, for its data set, variant and other keys.

    Each is looked up by :func:`of`, unless ``switch`` replaces it. ``picked.rounds`` is
    one of them, ``picked("rounds", "lr")`` a dict of several.

    Parameters
    ----------
    parameters : dict
        Name -> setting, such as ``globals()`` of a notebook.
    switch : dict
        Name -> value that replaces a parameter in this run.
    *keys : str
        Data set, variant, or other keys of the settings.

    Examples
    --------
    >>> picked = Picked({"lr": {"a": 1, "b": 2}, "rounds": 5}, {"rounds": 9}, "b")
    >>> picked.lr, picked("lr", "rounds")
    (2, {'lr': 2, 'rounds': 9})
    """

    def __init__(self, parameters: Values, switch: Values, *keys: str):
        self._parameters = parameters
        self._switch = switch
        self._keys = keys

    def __getattr__(self, name: str) -> Any:
        if name in self._switch:
            return self._switch[name]
        if name not in self._parameters:
            raise FltnbError(
                f"The run asks for {name}, which is no parameter of this notebook: add "
                "it to the cell of parameters."
            )
        return of(self._parameters[name], *self._keys)

    def __call__(self, *names: str) -> Values:
        """Return several parameters, name -> value."""
        return {name: getattr(self, name) for name in names}


def assigned(source: str) -> Values:
    """Return what a cell of parameters assigns, name -> value.

    Examples
    --------
    >>> assigned("rounds = 5")
    {'rounds': 5}
    """
    namespace: Values = {}
    exec(source, namespace)
    del namespace["__builtins__"]
    return namespace


def injected(cells: list[str]) -> tuple[str, str]:
    """Return the cells of a notebook's own parameters and of papermill's.

    Papermill writes them into a cell below the notebook's own, which is the last one of
    its kind where a notebook was executed again.

    Parameters
    ----------
    cells : list of str
        Sources of the cells that were executed, in order (IPython's ``In``).

    Returns
    -------
    (str, str)
        Their sources. Both are empty without values of papermill.
    """
    for place in reversed(range(len(cells))):
        if cells[place].startswith(INJECTED):
            return cells[place - 1], cells[place]
    return "", ""


def check_names(given: Values, source: str, others: Iterable[str]) -> None:
    """Refuse names of methods, data sets and so on that a notebook does not know.

    A notebook would compute an unknown method as another one, or leave it out. Its own
    cell of parameters has all names that it knows, in its values or in comments.

    Parameters
    ----------
    given : dict
        Values that replace the notebook's own; only those in :data:`NAMING` count.
    source : str
        The notebook's own cell of parameters.
    others : iterable of str
        Further names that it knows.

    Raises
    ------
    FltnbError
        A name is unknown. A number at its end does not matter: with ``fesem_4`` there
        is ``fesem_5``.
    """
    quoted = re.findall(r'"([^"\n]+)"', source)
    known = list(dict.fromkeys([*quoted, *others]))
    stems = {_stem(name) for name in known}
    for parameter in NAMING:
        for name in _leaves(given.get(parameter, [])):
            if isinstance(name, str) and _stem(name) not in stems:
                near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
                own = assigned(source).get(parameter)
                listed = ", ".join(map(str, near or _leaves(own)))
                raise FltnbError(
                    f"The parameter {parameter} has the unknown {name!r}: choose from "
                    f"{listed}, or others named in the cell of parameters."
                )


def check_lists(values: Mapping[str, Any], profiles: Iterable[Values]) -> None:
    """Refuse a single value for a parameter of which a profile has a list.

    For a cell of parameters that was edited. A dict may have a list for each key.
    """
    for profile in profiles:
        for parameter, listed in profile.items():
            value = values.get(parameter, listed)
            if isinstance(listed, list) and isinstance(value, (str, float, int)):
                raise FltnbError(
                    f"The parameter {parameter} must be a list, not {value!r}: write "
                    f"{parameter} = [{value!r}]."
                )


def check_spelling(values: Mapping[str, Any]) -> None:
    """Refuse names that look like misspelt ones of the package.

    For a cell of parameters that was edited: it may have names of the user's own, but a
    notebook would compute a misspelt method as another one, under this name.

    Raises
    ------
    FltnbError
        A name of a method, variant or network is nearly a known one.
    """
    stems = {_stem(name) for name in NAMES}
    for parameter in OF_PACKAGE:
        for name in _leaves(values.get(parameter, [])):
            if not isinstance(name, str) or _stem(name) in stems:
                continue
            near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.85)
            if near:
                raise FltnbError(
                    f"The parameter {parameter} has the unknown {name!r}: you may mean "
                    f"{near[0]!r}; a name of your own must differ more."
                )


def check_needed(
    values: Mapping[str, Any], needed: Mapping[str, Sequence | float]
) -> None:
    """Refuse lists of names without those that the notebook's pictures are about.

    Parameters
    ----------
    values : mapping
        The parameters, name -> value.
    needed : mapping
        Parameter -> names that must be in it (of a dict also its keys), or the least
        number that it may be.

    Raises
    ------
    FltnbError
        Before anything is computed.
    """
    for parameter, wanted in needed.items():
        if isinstance(wanted, (int, float)):
            _check_least(parameter, values[parameter], wanted)
            continue
        held = values[parameter]
        there = {*_leaves(held), *(held if isinstance(held, dict) else ())}
        missing = [str(name) for name in wanted if name not in there]
        if missing:
            raise FltnbError(
                f"The parameter {parameter} lacks {', '.join(missing)}, which this "
                "notebook's picture, tables or claims compare with the others: add "
                f"{'it' if len(missing) == 1 else 'them'}; fl.run and fl.grid take any."
            )


def _check_least(parameter: str, value: float, least: float) -> None:
    """Refuse a number that is too small for the notebook's tables."""
    if value < least:
        raise FltnbError(
            f"The parameter {parameter} is {value:,}, too small for this notebook's "
            f"tables: give {least:,} or more."
        )


def _stem(name: str) -> str:
    """Return a name without the number at its end."""
    return re.sub(r"\d+$", "", name)


def checked(own: Values, given: Values, where: str = "") -> Values:
    """Return given parameters as values of the notebook's own types.

    Papermill's ``-p`` passes text: ``'["digits"]'`` and ``mnist,cifar10`` become lists,
    ``'{"mnist": 5}'`` a dict, and a single value becomes a list if the notebook has a
    list. A dict may be replaced by one value for all.

    Parameters
    ----------
    own : dict
        The notebook's own parameters, name -> value.
    given : dict
        Values that replace them.
    where : str
        The file with these values, for messages.

    Raises
    ------
    FltnbError
        A name that the notebook does not have, a value of another kind, or a dict
        without an entry for a data set.
    """
    start = f"{where}: " if where else ""
    values = {}
    for name, value in given.items():
        if name not in own:
            raise FltnbError(start + _unknown(name, own))
        value = _read(value, own[name])
        if not _fits(value, own[name]):
            raise FltnbError(start + _misfit(name, value, own[name]))
        values[name] = value

    together = own | values
    known = _datasets(own)
    for dataset in _datasets(together):
        lacking = [name for name in together if _lacks(together[name], dataset, known)]
        if lacking:
            which = "parameter" if len(lacking) == 1 else "parameters"
            verb = "has" if len(lacking) == 1 else "have"
            raise FltnbError(
                f"{start}The {which} {', '.join(lacking)} {verb} no entry for "
                f"{dataset!r}: give one value for all, or all that a demo changes, "
                "papermill -f notebooks/profiles/demo/NN.yaml (NN: the notebook)."
            )
    return values


def _unknown(name: str, own: Values) -> str:
    """Say that there is no such parameter, and which may be meant."""
    near = difflib.get_close_matches(name, own, n=1, cutoff=0.5)
    if near:
        return f"There is no parameter {name}: you may mean {near[0]}."
    return f"There is no parameter {name}: choose from {', '.join(own)}."


def _misfit(name: str, value: Any, own: Any) -> str:
    """Say what a parameter must be, with the notebook's own value as an example."""
    kinds = dict.fromkeys(KINDS.get(type(leaf), "None") for leaf in _leaves(own))
    wanted = " or ".join(kinds)
    if isinstance(own, list):
        wanted = f"a list of {wanted}"
    return f"The parameter {name} cannot be {value!r}: give {wanted}, such as {own!r}."


def _read(value: Any, own: Any) -> Any:
    """Read text where the notebook has something else; put one value into a list.

    ``own``: what the notebook has.
    """
    if isinstance(value, str) and not isinstance(own, str):
        value = _literal(value.strip(), value)
        if isinstance(value, str) and isinstance(own, list):
            value = [word.strip() for word in value.split(",")]
    if isinstance(value, tuple):
        value = list(value)
    if isinstance(own, list) and not isinstance(value, (list, dict)):
        value = [value]
    return value


def _leaves(setting: Any) -> Iterator[Any]:
    """Yield the values inside dicts and lists."""
    if isinstance(setting, dict):
        setting = list(setting.values())
    if not isinstance(setting, list):
        yield setting
        return
    for part in setting:
        yield from _leaves(part)


def _literal(text: str, otherwise: Any) -> Any:
    """Return the value that a text writes, as Python or as JSON (``null``)."""
    for read in (ast.literal_eval, json.loads):
        try:
            return read(text)
        except (ValueError, SyntaxError):
            continue
    return otherwise


def texts_in(setting: Any) -> list[str]:
    """Return all texts inside dicts and lists."""
    return [leaf for leaf in _leaves(setting) if isinstance(leaf, str)]


def _fits(value: Any, own: Any) -> bool:
    """Whether a value has the shape and the kinds of the notebook's own.

    A list must be a list; one value must be one value; a dict may be replaced by one
    value, a dict of lists by one list. Whole numbers may stand for floats.
    """
    if own is None:
        return True
    if isinstance(own, list) and not isinstance(value, list):
        return False
    if not isinstance(own, (list, dict)) and isinstance(value, (list, dict)):
        return False
    of_lists = isinstance(own, dict) and all(isinstance(x, list) for x in own.values())
    if of_lists and not isinstance(value, (dict, list)):
        return False

    wanted = {type(leaf) for leaf in _leaves(own)}
    if float in wanted:
        wanted.add(int)
    return not wanted or all(type(leaf) in wanted for leaf in _leaves(value))


def _datasets(parameters: Values) -> list[str]:
    """Return the data sets that parameters name, as ``dataset`` or ``datasets``."""
    named = parameters.get("datasets", parameters.get("dataset", []))
    return texts_in(named)


def _lacks(setting: Any, dataset: str, known: list[str]) -> bool:
    """Whether a dict by data set has no entry for this one.

    ``known``: the notebook's own data sets, by which a dict is known to be one by data
    set. Entries are looked into.
    """
    if not isinstance(setting, dict):
        return False
    by_dataset = any(name in setting for name in known)
    if by_dataset and dataset not in setting and OTHER not in setting:
        return True
    return any(_lacks(part, dataset, known) for part in setting.values())
