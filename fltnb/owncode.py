"""A hash of a user's own code, the same in every process that has this code.

Results are found again by what produced them. Parts of the package have versions
(:mod:`fltnb.experiments.key`); a user's own class or function has this hash.
"""

import dis
import hashlib
import re
import sys
from collections.abc import Iterator
from functools import cache, cached_property, partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from .arrays import as_array

# Packages with known code: results name the code, or record the package's version.
KNOWN = {
    "abc",
    "builtins",
    "dataclasses",
    "fltnb",
    "numpy",
    "scipy",
    "sklearn",
    "torch",
}
PLAIN = (int, float, complex, str, bytes, bool, type(None))


def is_own(kind: type) -> bool:
    """Return whether a class is a user's own, not from a package of ``KNOWN``."""
    return _root(kind) not in KNOWN


def printed(thing: Any) -> str:
    """Return how an object prints itself, without addresses in memory.

    These are others in every process.
    """
    return re.sub(r" at 0x\w+", "", str(thing))


def code_of(*things: Any) -> str:
    """Return 16 hexadecimal digits for own functions, and classes with their bases.

    The digits are a hash of their bytecode, with constants, defaults, and the values
    (:func:`counts`) and own functions to which they refer, also in modules of the
    user's own, as ``helpers.blend``. Of objects that are called, attributes count. Of
    what is Python's or another installed package's only the name counts, and the
    package's version. Another version of Python may give another hash.
    """
    seen: set[int] = set()
    total = hashlib.sha256()
    for thing in things:
        for text in _texts(thing, seen):
            total.update(text.encode(errors="backslashreplace"))
    return total.hexdigest()[:16]


def is_plain(value: Any) -> bool:
    """Return whether a value is a number, text, bool, None, or a list of these."""
    if isinstance(value, (tuple, list)):
        return all(map(is_plain, value))
    return isinstance(value, PLAIN)


def counts(value: Any) -> bool:
    """Return whether a value counts in :func:`code_of`.

    It is plain, several values, an array, or it is called.
    """
    several = (tuple, list, dict, set, frozenset)
    known = isinstance(value, PLAIN + several) or callable(value)
    return known or hasattr(value, "__array__")


def _root(thing: Any) -> str:
    """Return the package that something comes from."""
    return str(getattr(thing, "__module__", "")).partition(".")[0]


def _is_installed(root: str) -> bool:
    """Return whether a package is Python's, or is installed as others' packages are.

    The main module is the user's, also where an installed program began it.
    """
    if root in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(root), "__file__", None)
    return root != "__main__" and "-packages" in str(file)


def _is_near(thing: Any, user: Any) -> bool:
    """Return whether the code of something counts for a class or function that uses it.

    It is the user's own, or of the same package.
    """
    root = _root(thing)
    return root not in KNOWN and (root == _root(user) or not _is_installed(root))


def _name_of(thing: Any) -> str:
    """Return the name of something installed, and its package's version if known."""
    root = _root(thing)
    version = getattr(sys.modules.get(root), "__version__", "")
    return f"{root} {version} {thing.__name__}"


def _texts(thing: Any, seen: set[int]) -> Iterator[str]:
    """Yield what a thing is made of; nothing if that was yielded before."""
    if isinstance(thing, MethodType):
        yield from _of_object(thing.__self__, seen)
    thing = _unwrapped(thing)
    parts = _parts(thing, seen)
    if is_plain(thing):
        yield repr(thing)
    elif parts is not None:
        for one in parts:
            yield from _texts(one, seen)
    elif id(thing) in seen:
        return
    elif isinstance(thing, FunctionType):
        seen.add(id(thing))
        yield from _of_function(thing, seen)
    elif isinstance(thing, type):
        seen.add(id(thing))
        yield from _of_class(thing, seen)
    elif callable(thing):
        yield from _of_object(thing, seen)
    elif hasattr(thing, "__array__"):
        yield from _of_array(thing)


def _parts(thing: Any, seen: set[int]) -> list | None:
    """Return what a collection or a partial function consists of; None for others."""
    if isinstance(thing, partial):
        return [thing.func, [*thing.args, *sorted(thing.keywords.items())]]
    if isinstance(thing, (set, frozenset)):
        return sorted(map(repr, filter(is_plain, thing)))
    if isinstance(thing, dict):
        known = id(thing) in seen  # it may hold itself
        seen.add(id(thing))
        return [] if known else list(thing.items())
    return list(thing) if isinstance(thing, (tuple, list)) else None


def _unwrapped(thing: Any) -> Any:
    """Return the function inside a method, or all functions of a property."""
    if isinstance(thing, property):
        return [one for one in (thing.fget, thing.fset, thing.fdel) if one]
    if isinstance(thing, cached_property):
        return thing.func
    if isinstance(thing, FunctionType):
        return thing
    return getattr(thing, "__func__", getattr(thing, "__wrapped__", thing))


def _of_class(kind: type, seen: set[int]) -> Iterator[str]:
    """Yield functions and plain values of a class and of its own bases."""
    for one in kind.__mro__:
        yield one.__qualname__
        if not _is_near(one, kind):
            if is_own(one):
                yield _name_of(one)
            continue
        for name, value in sorted(vars(one).items()):
            if name.startswith("__") and not isinstance(value, FunctionType):
                continue
            yield name
            yield from _texts(value, seen)


def _of_object(thing: Any, seen: set[int]) -> Iterator[str]:
    """Yield the name of a built-in function; class and attributes of an object."""
    name = getattr(thing, "__qualname__", getattr(thing, "__name__", None))
    if name is not None:
        yield name
    elif id(thing) not in seen:
        seen.add(id(thing))
        yield from _of_class(type(thing), seen)
        for attribute, value in sorted(getattr(thing, "__dict__", {}).items()):
            yield attribute
            yield from _texts(value, seen)


def _of_array(thing: Any) -> Iterator[str]:
    """Yield type, shape and hash of an array or a tensor, if it has plain numbers."""
    try:
        array = as_array(thing, "Values")
    except Exception:  # such as a sparse tensor, or a symbol without a number
        return
    if array.dtype != object:
        content = hashlib.sha256(array.tobytes()).hexdigest()
        yield f"{array.dtype} {array.shape} {content}"


def _of_function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    """Yield a function's code, defaults, and what it refers to."""
    code = function.__code__
    yield from _of_code(code)
    yield from _texts(function.__defaults__ or (), seen)
    yield from _texts(sorted((function.__kwdefaults__ or {}).items()), seen)

    used = {}
    for cell, name in zip(function.__closure__ or (), code.co_freevars, strict=True):
        try:
            used[name] = cell.cell_contents
        except ValueError:  # not set yet, such as that of a class being defined
            continue
    for name in _names_in(code, "LOAD_GLOBAL", "LOAD_NAME"):
        if name in function.__globals__:
            used[name] = function.__globals__[name]
    used |= _in_own_modules(used, _names_in(code, "LOAD_ATTR", "LOAD_METHOD"))
    for name, value in sorted(used.items()):
        named = callable(value) and hasattr(value, "__name__")
        if not counts(value) or (named and _root(value) in KNOWN):
            continue
        yield name
        if named and not _is_near(value, function):
            yield _name_of(value)
        else:
            yield from _texts(value, seen)


def _in_own_modules(used: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """Return what ``names`` are in a user's own modules among the values ``used``.

    With ``used`` {"helpers": a module} these are {"helpers.blend": its function}.
    """
    found: dict[str, Any] = {}
    left = sorted(used.items(), key=lambda item: item[0])  # names alone compare
    walked = []
    while left:
        place, module = left.pop()
        if not _is_own_module(module) or module in walked:
            continue
        walked.append(module)
        for name in sorted(names & vars(module).keys()):
            inner = (f"{place}.{name}", vars(module)[name])
            found.update([inner])
            left.append(inner)
    return found


def _is_own_module(thing: Any) -> bool:
    """Whether something is a module that is neither Python's nor installed."""
    if not isinstance(thing, ModuleType):
        return False
    root = thing.__name__.partition(".")[0]
    return root not in KNOWN and not _is_installed(root)


@cache
def _names_in(code: CodeType, *how: str) -> set[str]:
    """Return the names that a code object and its inner ones look up in one way.

    ``how``: names of instructions. In ``state.labels`` the name "labels" is an
    attribute, and a global one of this name has nothing to do with it.
    """
    names = {one.argval for one in dis.get_instructions(code) if one.opname in how}
    for value in code.co_consts:
        if isinstance(value, CodeType):
            names |= _names_in(value, *how)
    return names


def _of_code(code: CodeType) -> Iterator[str]:
    """Yield texts that identify what a code object does."""
    yield code.co_code.hex()
    yield repr(code.co_names)
    for value in code.co_consts:
        yield from _of_constant(value)


def _of_constant(value: Any) -> Iterator[str]:
    """Yield texts that identify a constant of a code object, perhaps itself code."""
    if isinstance(value, CodeType):
        yield from _of_code(value)
    elif isinstance(value, frozenset):  # without an order
        yield repr(sorted(map(repr, value)))
    else:
        yield repr(value)
