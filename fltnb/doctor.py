"""What this machine has and lacks, on one screen: ``python -m fltnb doctor``."""

import platform
import shutil
import sys
from importlib import metadata

from . import __version__, paths

LITTLE_DISK = 5  # GB


def show() -> int:
    """Print a line per topic and what to mend; return the exit status: 1 where something is missing that is needed."""
    rows = {
        "python": f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    }
    rows |= {"fltnb": f"{__version__}, works in {paths.ROOT}"}
    wrong = (
        []
        if sys.version_info >= (3, 11)
        else ["Python must be 3.11 or newer: install one, then fltnb in it."]
    )
    packages, fault = _packages()
    rows |= packages
    wrong += [fault] * bool(fault)
    if not fault:  # else nothing below could be imported
        import torch

        from .data.prepared import NAMES, SOURCES
        from .provenance import environment
        from .training import has_bfloat16

        def said(device: str) -> str:
            return (
                "bfloat16"
                if has_bfloat16(device)
                else "no bfloat16: leave precision at float32"
            )

        rows["processor"] = f"{environment()['hardware'].split(', ')[0]}, {said('cpu')}"
        rows["gpu"] = f"none that torch {torch.__version__} can use"
        if torch.cuda.is_available():
            memory = torch.cuda.get_device_properties(0).total_memory / 1e9
            rows["gpu"] = (
                f"{torch.cuda.get_device_name(0)}, {memory:.0f} GB, {said('cuda')}"
            )
        # sets that can be read at once, that come by download, and that a person has to get
        there = [
            name
            for name in NAMES
            if any((folder / f"{name}.npz").is_file() for folder in paths.data())
        ]
        rest = [name for name in NAMES if name not in (*there, "digits")]
        ours = [name for name in rest if name not in SOURCES]
        rows |= {
            "data": ", ".join(["digits", *there]),
            "looked in": ", ".join(map(str, paths.data())),
        }
        downloads = (
            f"{name} ({SOURCES[name][2]} MB)" for name in rest if name in SOURCES
        )
        rows["by download"] = ", ".join(downloads) or "nothing"
        rows["not there"] = (
            f"{', '.join(ours)} (fl.load tells how to get them)" if ours else "nothing"
        )
    free = shutil.disk_usage(paths.ROOT).free / 1e9
    rows["disk"] = f"{free:.0f} GB free"
    if free < LITTLE_DISK:
        wrong.append(
            f"Little disk is free in {paths.ROOT}: real data sets and results want {LITTLE_DISK} GB."
        )
    for name, text in rows.items():
        print(f"{name:<{max(map(len, rows))}}  {text}")
    print("\n" + ("\n".join(wrong) or "Nothing that is needed is missing."))
    return int(bool(wrong))


def _packages() -> tuple[dict[str, str], str]:
    """Compare what is installed with what the package asks for; return rows, and a sentence where something lacks."""
    try:
        from packaging.requirements import Requirement

        asked = [Requirement(text) for text in metadata.requires("fltnb") or ()]
    except (
        ImportError,
        metadata.PackageNotFoundError,
    ):  # packaging comes with what is needed; the latter: no set-up
        mend = "in a clone use .venv/bin/python (any `make` command sets it up), else install the wheel."
        return {
            "packages": "unknown"
        }, f"This Python ({sys.executable}) has no fltnb installed: {mend}"
    lacking: dict[str, list[str]] = {"": []}
    for one in asked:
        extra = (
            str(one.marker).split('"')[1] if one.marker else ""
        )  # this project's only markers are extras
        lacking.setdefault(extra, [])
        try:
            found = metadata.version(one.name)
            if not one.specifier.contains(found, prereleases=True):
                lacking[extra].append(f"{one.name} {found} (wanted {one.specifier})")
        except metadata.PackageNotFoundError:
            lacking[extra].append(one.name)
    needed = lacking.pop("")
    extras = [
        f"{name} ({'without ' + ', '.join(lack) if lack else 'there'})"
        for name, lack in lacking.items()
    ]
    count = sum(one.marker is None for one in asked)
    how = "install the wheel again, or in a clone remove .venv and run `make lint`"
    fault = (
        f"Missing or of another version: {', '.join(needed)}. To mend it {how}."
        * bool(needed)
    )
    return {
        "packages": f"{count - len(needed)} of {count} that are needed",
        "extras": ", ".join(extras),
    }, fault
