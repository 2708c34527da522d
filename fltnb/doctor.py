"""A report of what is installed and missing here: ``python -m fltnb doctor``."""

import platform
import shutil
import sys
from importlib import metadata

from . import __version__, paths

LITTLE_DISK = 5
"""Free GB that real data sets and results need."""
OLDEST_PYTHON = (3, 11)


def show() -> int:
    """Print a line per topic, and what to fix.

    Returns
    -------
    int
        The exit status: 1 if something needed is missing.
    """
    system = f"{platform.system()} {platform.machine()}"
    rows = {
        "python": f"{platform.python_version()}, {system}",
        "fltnb": f"{__version__}, works in {paths.ROOT}",
    }
    faults = []
    if sys.version_info < OLDEST_PYTHON:
        faults.append("Python must be 3.11 or newer: install one, then fltnb in it.")

    packages, fault = _packages()
    rows.update(packages)
    if fault:
        faults.append(fault)
    else:  # otherwise neither could be imported
        rows.update(_devices())
        rows.update(_data())

    free = shutil.disk_usage(paths.ROOT).free / 1e9
    rows["disk"] = f"{free:.0f} GB free"
    if free < LITTLE_DISK:
        faults.append(
            f"Little disk is free in {paths.ROOT}: "
            f"real data sets and results need {LITTLE_DISK} GB."
        )

    width = max(len(name) for name in rows)
    for name, text in rows.items():
        print(f"{name:<{width}}  {text}")
    print()
    print("\n".join(faults) or "Nothing that is needed is missing.")
    return 1 if faults else 0


def _devices() -> dict[str, str]:
    """Name the processor and GPU, and whether they support bfloat16.

    Rows ``processor`` and ``gpu``.
    """
    import torch

    from .provenance import environment
    from .training import has_bfloat16

    def bfloat16(device: str) -> str:
        """Say whether a device computes in bfloat16 without emulation."""
        if has_bfloat16(device):
            return "bfloat16"
        return "no bfloat16: leave precision at float32"

    processor = environment()["hardware"].split(", ")[0]
    gpu = f"none that torch {torch.__version__} can use"
    if torch.cuda.is_available():
        memory = torch.cuda.get_device_properties(0).total_memory / 1e9
        name = torch.cuda.get_device_name(0)
        gpu = f"{name}, {memory:.0f} GB, {bfloat16('cuda')}"
    return {"processor": f"{processor}, {bfloat16('cpu')}", "gpu": gpu}


def _data() -> dict[str, str]:
    """List the data sets.

    Those that can be read now, those that can be downloaded, those that are computed
    from others here, and those that must be requested from their authors.
    """
    from .data.prepared import FEATURES, NAMES, SOURCES

    folders = paths.data()
    there = ["digits"]
    downloads = []
    computed = []
    lacking = []
    for name in NAMES:
        if any((folder / f"{name}.npz").is_file() for folder in folders):
            there.append(name)
        elif name in SOURCES:
            downloads.append(f"{name} ({SOURCES[name][2]} MB)")
        elif name in FEATURES and "pacs" in there:
            computed.append(f"{name} (from pacs, with the extra pretrained)")
        elif name != "digits":
            lacking.append(name)

    not_there = "nothing"
    if lacking:
        not_there = f"{', '.join(lacking)} (fl.load tells how to get them)"
    return {
        "data": ", ".join(there),
        "looked in": ", ".join(map(str, folders)),
        "by download": ", ".join(downloads) or "nothing",
        "by computing": ", ".join(computed) or "nothing",
        "not there": not_there,
    }


def _packages() -> tuple[dict[str, str], str]:
    """Compare the installed packages with the required ones.

    Returns
    -------
    (dict, str)
        Rows, and a sentence if something needed is missing. Packages that only an extra
        requires may be missing.
    """
    try:
        # packaging is a dependency; if it is missing, fltnb was not installed
        from packaging.requirements import Requirement

        asked = [Requirement(text) for text in metadata.requires("fltnb") or ()]
    except (ImportError, metadata.PackageNotFoundError):
        why = (
            f"This Python ({sys.executable}) has no fltnb installed: in a clone use "
            ".venv/bin/python (any `make` command sets it up), else install the wheel."
        )
        return {"packages": "unknown"}, why

    lacking: dict[str, list[str]] = {"": []}
    for one in asked:
        # this project's only markers are extras
        extra = str(one.marker).split('"')[1] if one.marker else ""
        lacking.setdefault(extra, [])
        fault = _fault(one)
        if fault:
            lacking[extra].append(fault)

    needed = lacking.pop("")
    extras = []
    for name, lack in lacking.items():
        state = "there"
        if lack:
            state = f"without {', '.join(lack)}"
        extras.append(f"{name} ({state})")
    count = sum(one.marker is None for one in asked)
    rows = {
        "packages": f"{count - len(needed)} of {count} that are needed",
        "extras": ", ".join(extras),
    }
    if not needed:
        return rows, ""
    return rows, (
        f"Missing or of another version: {', '.join(needed)}. To fix this install the "
        "wheel again, or in a clone remove .venv and run `make lint`."
    )


def _fault(requirement) -> str:
    """Name a requirement that is missing or has another version, or return nothing.

    ``requirement`` is that of the package ``packaging``.
    """
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return requirement.name
    if requirement.specifier.contains(version, prereleases=True):
        return ""
    return f"{requirement.name} {version} (wanted {requirement.specifier})"
