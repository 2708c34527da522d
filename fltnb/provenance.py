"""What goes with every number: the version of the code behind it, package versions, commit, hardware."""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from . import paths

_PACKAGE = Path(__file__).resolve().parent
# What every run goes through. Changing a plot, a table or a comment must not throw results away.
_CORE = (
    *("data.py", "randomness.py", "models", "training", "metrics.py", "rounds.py"),
    *("federations/base.py", "methods/base.py"),
)
# Collections: a run uses some of their modules and does not depend on the others, nor on the lists in __init__.py.
_COLLECTIONS = ("federations", "methods", "relatedness")
_TOGETHER = "encoders"  # networks, pretraining and embedding: who uses one uses all
_STUDIES = ("oneshot.py", "theory")  # not part of any run
_PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "umap-learn", "pandas")


def code_version(*objects: Any) -> str:
    """Hash of the code that decides numbers, blind to comments, docstrings and layout.

    Parameters
    ----------
    *objects
        Functions, classes, modules or instances of the package that a computation uses. The version then covers the
        core (data, randomness, models, training, metrics, rounds and the bases of federations and methods), the modules
        of the objects and of their classes' bases, and what all these import by relative import from federations,
        methods, relatedness and encoders. Imports through a package's ``__init__`` are not followed: it lists all
        methods, so each would depend on every other. What lies outside the package does not enter. With nothing given:
        all code that decides numbers.

    Returns
    -------
    str
        12 hexadecimal digits. They differ between minor versions of Python, whose syntax trees differ.
    """
    if not objects:
        return _digest(frozenset(_files((*_CORE, *_COLLECTIONS, _TOGETHER, *_STUDIES))))
    used: set[Path] = set()
    todo = {*_files(_CORE), *(file for one in objects for file in _sources(one))}
    if any(file.parent == _PACKAGE / _TOGETHER for file in todo):
        todo |= set(_files((_TOGETHER,)))
    while todo:
        used |= todo
        todo = {file for one in todo for file in _module(one)[1]} - used
    return _digest(frozenset(used))


def _files(names: Iterable[str]) -> Iterator[Path]:
    for name in names:
        part = _PACKAGE / name
        yield from part.rglob("*.py") if part.is_dir() else [part]


def _sources(one: Any) -> Iterator[Path]:
    """Files of this package that define an object: for classes and instances also those of all bases."""
    if isinstance(one, ModuleType):
        names = [one.__name__]
    elif isinstance(one, type):
        names = [cls.__module__ for cls in one.__mro__]
    elif callable(one) and hasattr(one, "__qualname__"):
        names = [one.__module__]
    else:
        names = [cls.__module__ for cls in type(one).__mro__]
    for name in names:
        package, *inside = name.split(".")
        if package == __package__ and inside:
            part = _PACKAGE.joinpath(*inside)
            yield part / "__init__.py" if part.is_dir() else part.with_name(part.name + ".py")


@functools.cache  # read once: a file that changes while the process runs is not what the process runs
def _module(file: Path) -> tuple[bytes, frozenset[Path]]:
    """Digest of a module's syntax tree, and the modules of the collections that it imports by relative import."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and file.name != "__init__.py":
            there = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            imported.add(there.with_name(there.name + ".py"))
            imported |= {there / f"{alias.name}.py" for alias in node.names}
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [line for line in body if not _is_text(line)]
    followed = {_PACKAGE / name for name in (*_COLLECTIONS, _TOGETHER)}
    return (
        hashlib.sha256(ast.dump(tree).encode()).digest(),
        frozenset(path for path in imported if path.parent in followed and path.exists()),
    )


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@functools.cache
def _digest(files: frozenset[Path]) -> str:
    digest = hashlib.sha256()
    for name, file in sorted((file.relative_to(_PACKAGE).as_posix(), file) for file in files):
        digest.update(name.encode() + _module(file)[0])
    return digest.hexdigest()[:12]


@functools.cache
def environment() -> dict[str, Any]:
    """Package versions, commit and hardware: what goes with every number."""
    from importlib.metadata import distributions

    # A GPU machine may lack what its runs do not need (umap-learn): what is absent is left out.
    there = {found.metadata["Name"].lower(): found.version for found in distributions() if found.metadata["Name"]}
    return {
        "python": platform.python_version(),
        "packages": {name: there[name] for name in _PACKAGES if name in there},
        "commit": _commit(),
        "code": code_version(),
        "hardware": _hardware(),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def _commit() -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=paths.ROOT, capture_output=True, text=True, timeout=10, check=True
        )
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "fltnb")
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _hardware() -> str:
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    text = f"{cores} x {name}"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        text += f", {torch.cuda.get_device_name(0)}"
    return text
