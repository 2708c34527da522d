"""Options of methods, clusterers, encoders and federations.

They are checked, listed and shown from the signatures. A parameter's annotation says
what it may be: :data:`Count`, :data:`Natural`, :data:`Share` (:data:`Part` is below 1,
:data:`Fraction` above 0, :data:`Rate` both), :data:`NonNegative`, :data:`Positive`,
:data:`Real`, a ``Literal`` of names, a plain ``bool``, each with ``| None`` where it
may be left out, or ``Annotated`` with your own rule. Other annotations are not
checked here, and positional-only parameters are no options. Settings hold what differs
from the default only, so a new option leaves the keys of old results alone.
"""

import functools
import inspect
import math
import numbers
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from .errors import FltnbError, choose


@dataclass(frozen=True)
class Within:
    """A rule for an option: a finite number from ``low`` to ``high``.

    Called with an option's name and value, it returns the value or raises FltnbError.
    With ``above``, ``low`` itself is not allowed; with ``below``, ``high`` is not;
    ``whole`` asks for a whole number.

    Examples
    --------
    >>> from fltnb.settings import Within
    >>> percent = Within(high=100.0)
    >>> percent("share", 12.5)
    12.5
    """

    low: float = 0.0
    high: float = math.inf
    above: bool = False
    below: bool = False
    whole: bool = False

    def __call__(self, name: str, value: Any) -> float:
        """Return the value as Python's number, or refuse it."""
        if not self._is_number(value) or not self._is_inside(value):
            raise FltnbError(f"{name} must be a {self._wanted()}, not {value!r}.")
        return value.item() if hasattr(value, "item") else value

    def __repr__(self) -> str:
        # what help() shows of an option
        return f"a {self._wanted()}"

    def _is_number(self, value: Any) -> bool:
        """Whether a value is a finite number, and whole if required."""
        if isinstance(value, bool):
            return False
        if self.whole:
            return isinstance(value, numbers.Integral)
        return isinstance(value, numbers.Real) and math.isfinite(value)

    def _is_inside(self, value: float) -> bool:
        """Whether a number is between the limits, which may be left out."""
        if self.above and value == self.low:
            return False
        if self.below and value == self.high:
            return False
        return self.low <= value <= self.high

    def _wanted(self) -> str:
        """Return the requirement as text, such as "whole number of at least 1"."""
        kind = "whole number" if self.whole else "number"
        if self.low == -math.inf:
            return kind
        low = "above" if self.above else "of at least"
        text = f"{kind} {low} {self.low:g}"
        if self.high == math.inf:
            return text
        high = "below" if self.below else "at most"
        return f"{text} and {high} {self.high:g}"


Whole = functools.partial(Within, whole=True)
Natural = Annotated[int, Whole(0)]
Count = Annotated[int, Whole(1)]
NonNegative = Annotated[float, Within()]
Positive = Annotated[float, Within(above=True)]
Share = Annotated[float, Within(high=1.0)]
Fraction = Annotated[float, Within(high=1.0, above=True)]
Rate = Annotated[float, Within(high=1.0, above=True, below=True)]
Real = Annotated[float, Within(-math.inf)]
Part = Annotated[float, Within(high=1.0, below=True)]
Variant = Literal["as_written", "as_run"]


def check(name: str, value: Any, kind: Any) -> Any:
    """Return an option's value, or raise FltnbError if its annotation forbids it.

    ``name``: the option's name, for the message; ``kind``: its annotation.

    Examples
    --------
    >>> from fltnb.settings import Count, check
    >>> check("k", 3, Count)
    3
    """
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        kinds = [one for one in get_args(kind) if one is not type(None)]
        may_be_none = len(kinds) < len(get_args(kind))
        if len(kinds) > 1 or (value is None and may_be_none):
            return value
        return check(name, value, kinds[0])

    if origin is Annotated:
        for rule in kind.__metadata__:
            value = rule(name, value)
        return value
    if origin is Literal:
        return choose(value, get_args(kind), name)
    if kind is bool and not isinstance(value, bool):
        raise FltnbError(f"{name} must be True or False, not {value!r}.")
    return value


@functools.cache
def _signature(made: Callable) -> dict[str, inspect.Parameter]:
    """Parameters of a class or function by name, without the positional-only ones."""
    parameters = inspect.signature(made, eval_str=True).parameters
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: one for name, one in parameters.items() if one.kind in kinds}


def checked(made: Callable, options: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return all options of a class or function, defaults filled in.

    They are in the order of its signature. FltnbError is raised if an option is
    unknown, missing, or not what its annotation says; ``what`` names the owner of the
    options in its message.

    Examples
    --------
    >>> from fltnb.settings import Count, checked
    >>> def method(k: Count = 3, rule: str = "mean"): ...
    >>> checked(method, {"k": 5}, "my method")
    {'k': 5, 'rule': 'mean'}
    """
    known = _signature(made)
    for name in options:
        choose(name, known, f"option of {what}")

    full = {}
    for name, one in known.items():
        if name in options:
            full[name] = check(name, options[name], one.annotation)
        elif one.default is not one.empty:
            full[name] = one.default
        else:
            meaning = " (K, the number of clusters)" if name == "n_clusters" else ""
            start = what[0].upper() + what[1:]
            raise FltnbError(f"{start} needs {name}{meaning}: add it, {name}=...")
    return full


def brief(made: Callable, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that differ from their defaults, in the signature's order.

    ``made``: the class or function that has the options. 1.0 is the same as 1; True is
    not.

    Examples
    --------
    >>> from fltnb.settings import Count, brief
    >>> def method(k: Count = 3, rule: str = "mean"): ...
    >>> brief(method, {"k": 5, "rule": "mean"})
    {'k': 5}
    """
    differing = {}
    for name, one in _signature(made).items():
        if name not in options:
            continue
        value = plain(options[name], whole=True)
        default = plain(one.default, whole=True)
        if repr(value) != repr(default):
            differing[name] = options[name]
    return differing


def plain(value: Any, whole: bool = False) -> Any:
    """Return a value with JSON's types only: lists for tuples and NumPy's arrays.

    ``value``: a setting, or a dict or list of settings. ``whole``: write whole floats
    as integers, 1.0 as 1.

    Examples
    --------
    >>> from fltnb.settings import plain
    >>> plain({"k": (1, 2)})
    {'k': [1, 2]}
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(one, whole) for key, one in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [plain(one, whole) for one in value]
    if whole and isinstance(value, float) and value.is_integer():
        return int(value)
    return value
