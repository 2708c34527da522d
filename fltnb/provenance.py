"""Information stored with every number: package versions, commit, hardware."""

import functools
import hashlib
import os
import platform
import re
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from . import __version__, paths

_PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "umap-learn", "pandas")


@functools.cache
def code_digest() -> str:
    """Return a hash of the package's files, to compare the code of two machines."""
    package = Path(__file__).resolve().parent
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(file.relative_to(package).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


@functools.cache
def environment() -> dict[str, Any]:
    """Return package versions, commit and hardware, stored with every number."""
    return {
        "python": platform.python_version(),
        "packages": _packages(),
        "commit": _commit(),
        "hardware": _hardware(),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def processor() -> str:
    """Return the processor's name, as far as it is known."""
    with suppress(OSError):
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        model = re.search(r"^model name\s*:(.*)", about, re.MULTILINE)
        if model:
            return model[1].strip()
    return platform.processor() or platform.machine()


def _packages() -> dict[str, str]:
    """Return the versions of packages that determine numbers.

    Packages that are missing are left out: a GPU machine may lack some that its runs do
    not need (umap-learn).
    """
    versions = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def _hardware() -> str:
    """Return cores, processor and, if torch is loaded and can use one, the GPU."""
    cores = os.cpu_count()
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    text = f"{cores} x {processor()}"

    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        text += f", {torch.cuda.get_device_name(0)}"
    return text


def _commit() -> str:
    """Name the commit, and whether the package has changed since; or the release."""
    # an installed wheel: a repository around it is another project's
    if paths.ROOT != paths.HOME:
        return f"release {__version__}"
    try:
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", "fltnb")
        commit = _git("rev-parse", "--short=12", "HEAD")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{commit}+changes" if changed else commit


def _git(*arguments: str) -> str:
    """Return the output of git in the project's folder."""
    said = subprocess.check_output(
        ["git", *arguments],
        cwd=paths.ROOT,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=10,
    )
    return said.strip()
