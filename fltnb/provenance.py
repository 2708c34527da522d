"""What goes with every number: package versions, commit, hardware."""

import functools
import hashlib
import os
import platform
import re
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from . import __version__, paths

_PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "umap-learn", "pandas")


@functools.cache
def code_digest() -> str:
    """Hash of the package's files: tells whether two machines, or a notebook's last run, have the same code."""
    package = Path(__file__).resolve().parent
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(file.relative_to(package).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:12]


@functools.cache
def environment() -> dict[str, Any]:
    """Package versions, commit and hardware: what goes with every number."""
    name = platform.processor() or platform.machine()
    with suppress(OSError):
        found = re.search(
            r"^model name\s*:(.*)",
            Path("/proc/cpuinfo").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
        name = found[1].strip() if found else name
    cores = (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count()
    )
    torch = sys.modules.get("torch")
    gpu = (
        f", {torch.cuda.get_device_name(0)}"
        if torch is not None and torch.cuda.is_available()
        else ""
    )
    # A GPU machine may lack what its runs do not need (umap-learn): what is absent is left out.
    there = {
        found.metadata["Name"].lower(): found.version
        for found in distributions()
        if found.metadata["Name"]
    }
    return {
        "python": platform.python_version(),
        "packages": {name: there[name] for name in _PACKAGES if name in there},
        "commit": _commit(),
        "hardware": f"{cores} x {name}{gpu}",
        "platform": f"{platform.system()} {platform.machine()}",
    }


def _commit() -> str:
    def git(*arguments: str) -> str:
        how = {
            "cwd": paths.ROOT,
            "stderr": subprocess.DEVNULL,
            "text": True,
            "timeout": 10,
        }
        return subprocess.check_output(["git", *arguments], **how).strip()

    if (
        paths.ROOT != paths.HOME
    ):  # an installed wheel: a repository around it is somebody else's
        return f"release {__version__}"
    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "fltnb")
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
