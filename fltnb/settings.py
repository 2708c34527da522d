"""Options of methods, clusterers, encoders and federations: checked, listed and shown from their signatures.

A parameter's annotation says what it may be: :data:`Count`, :data:`Natural`, :data:`Share` (:data:`Part` is below 1,
:data:`Rate` also above 0), :data:`NonNegative`, :data:`Positive`, :data:`Real`, a ``Literal`` of names, a plain
``bool``, each with ``| None`` where it may be left out, or ``Annotated`` with a rule of one's own. Other annotations
are not checked here, and positional-only parameters are no options. Settings hold what differs from the default only,
so a new option leaves the keys of old results alone.
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
    """A finite, or ``whole``, number from ``low`` (left out itself where ``above``) to ``high`` (where ``below``)."""

    low: float = 0.0
    high: float = math.inf
    above: bool = False
    below: bool = False
    whole: bool = False

    def __call__(self, name: str, value: Any) -> float:
        """Return the value as Python's number, or refuse it."""
        kind = numbers.Integral if self.whole else numbers.Real
        real = (
            isinstance(value, kind)
            and not isinstance(value, bool)
            and (self.whole or math.isfinite(value))
        )
        ends = (self.above and value == self.low) or (self.below and value == self.high)
        if not real or not self.low <= value <= self.high or ends:
            low = f" above {self.low:g}" if self.above else f" of at least {self.low:g}"
            high = (
                ""
                if self.high == math.inf
                else f" and {'below' if self.below else 'at most'} {self.high:g}"
            )
            bounds = "" if self.low == -math.inf else low + high
            raise FltnbError(
                f"{name} must be a {'whole ' * self.whole}number{bounds}, not {value!r}."
            )
        return value.item() if hasattr(value, "item") else value


Whole = functools.partial(Within, whole=True)
Natural = Annotated[int, Whole(0)]
Count = Annotated[int, Whole(1)]
NonNegative = Annotated[float, Within()]
Positive = Annotated[float, Within(above=True)]
Share = Annotated[float, Within(high=1.0)]
Rate = Annotated[float, Within(high=1.0, above=True, below=True)]
Real = Annotated[float, Within(-math.inf)]
Part = Annotated[float, Within(high=1.0, below=True)]
Variant = Literal["as_written", "as_run"]


def check(name: str, value: Any, kind: Any) -> Any:
    """Return an option's value as its annotation wants it, or raise FltnbError."""
    if get_origin(kind) in (Union, types.UnionType):
        inner = [one for one in get_args(kind) if one is not type(None)]
        left_out = value is None and len(inner) < len(get_args(kind))
        return value if left_out or len(inner) > 1 else check(name, value, inner[0])
    if get_origin(kind) is Annotated:
        for rule in kind.__metadata__:
            value = rule(name, value)
        return value
    if get_origin(kind) is Literal:
        return choose(value, get_args(kind), name)
    if kind is bool and not isinstance(value, bool):
        raise FltnbError(f"{name} must be True or False, not {value!r}.")
    return value


@functools.cache
def _signature(made: Callable) -> dict[str, inspect.Parameter]:
    """Parameters of a class or function by name, with their annotations, but for those that are positional only."""
    known = inspect.signature(made, eval_str=True).parameters
    return {
        name: one
        for name, one in known.items()
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    }


def checked(made: Callable, options: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return all options of a class or function, defaults filled in, in the order of its signature.

    FltnbError, calling it ``what``: an option is unknown, missing, or not what its annotation says.
    """
    known = _signature(made)
    for name in options:
        choose(name, known, f"option of {what}")
    full = {}
    for name, one in known.items():
        if name not in options and one.default is one.empty:
            meaning = " (K, the number of clusters)" if name == "n_clusters" else ""
            raise FltnbError(
                f"{what[0].upper()}{what[1:]} needs {name}{meaning}: add it, {name}=..."
            )
        full[name] = (
            check(name, options[name], one.annotation)
            if name in options
            else one.default
        )
    return full


def brief(made: Callable, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that differ from their defaults, in the order of the signature; 1.0 is 1, True is not."""
    return {
        name: options[name]
        for name, one in _signature(made).items()
        if name in options
        and repr(plain(options[name], whole=True))
        != repr(plain(one.default, whole=True))
    }


def plain(value: Any, whole: bool = False) -> Any:
    """Return settings with mappings, tuples and NumPy's numbers and arrays as JSON has them; ``whole``: 1.0 as 1."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        return {key: plain(one, whole) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one, whole) for one in value]
    return (
        int(value)
        if whole and isinstance(value, float) and value.is_integer()
        else value
    )
