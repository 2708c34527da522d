"""Run notebooks with papermill and remember how it went: the machinery behind ``make reproduce`` and ``make status``.

Files of one notebook under ``results/<profile>/``: ``notebooks/<name>.ipynb`` (the executed copy, kept when it failed),
``notebooks/<name>.log`` (what its cells printed), ``stamps/<name>.json`` (how the last run went) and
``stamps/<name>.done``, an empty file that exists only after a success: a failed notebook leaves an executed copy too,
which make would take for an up-to-date target.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from . import paths, provenance
from .errors import FltnbError, choose
from .notebook import grids

# jsonschema, which papermill imports, builds the grammar of international web addresses where it finds this package: a
# second in every notebook's process, to check a format that notebooks do not have. It does without where it is missing.
sys.modules.setdefault("rfc3987_syntax", None)
PROFILES = paths.PROFILES[1:]  # what is stored needs no run


def names() -> list[str]:
    """Return the names of all notebooks, in order."""
    return sorted(file.stem for file in (paths.ROOT / "notebooks").glob("[0-9]*.ipynb"))


def run_notebook(
    name: str,
    profile: str = "demo",
    fresh: bool = False,
    announce: Callable[[Path], None] | None = None,
) -> dict[str, Any]:
    """Run one notebook from top to bottom in a kernel of its own.

    Returns a dict: ``status`` ("done" or "failed"), ``wall_s`` (seconds), ``error`` (a failure's last sentence),
    ``output`` (path of the executed copy), ``log`` (of what its cells printed). A failing cell is reported, not raised;
    the cells before it keep their outputs. FltnbError: unknown notebook or profile; found before anything runs.

    Parameters
    ----------
    name : str, name of the notebook, without its ending
    profile : {"demo", "small", "paper"}, handed to the notebook's parameter ``profile``
    fresh : bool, compute again what the store already has
    announce : callable, optional, called with the log's path when the kernel is about to start
    """
    source = paths.ROOT / "notebooks" / f"{choose(name, names(), 'notebook')}.ipynb"
    choose(profile, PROFILES, "profile")

    output = paths.results(profile) / "notebooks" / f"{name}.ipynb"
    done = _stamp(name, profile).with_suffix(".done")
    stamp = {"notebook": sources_hash(source), "code": provenance.code_digest()}
    log = output.with_suffix(".log")
    output.parent.mkdir(parents=True, exist_ok=True)
    done.unlink(missing_ok=True)
    _write(name, profile, {"status": "running", "pid": os.getpid(), **stamp})

    if announce:
        announce(log)
    start = time.monotonic()
    # the kernel inherits these: a profile that is set in the shell would take the place of "demo"
    wish = {"FLTNB_PROFILE": profile} | ({"FLTNB_FRESH": "1"} if fresh else {})
    with log.open("w", encoding="utf-8") as text, patch.dict(os.environ, wish):
        error = _execute(source, output, profile, text)
    how = {
        "status": "failed" if error else "done",
        "wall_s": round(time.monotonic() - start, 1),
        "error": error,
    }
    _write(
        name,
        profile,
        {**how, "finished": datetime.now(UTC).isoformat(timespec="seconds"), **stamp},
    )
    if not error:
        done.touch()
    return how | {"output": output, "log": log}


def _execute(source: Path, output: Path, profile: str, log) -> str:
    """Run the notebook; return the last sentence of its error, or nothing."""
    import nbformat
    import papermill

    error = ""
    try:
        papermill.execute_notebook(
            source,
            output,
            parameters=grids.papermill_parameters(source.stem, profile),
            kernel_name="python3",  # the Python that runs this, whatever the notebook names
            cwd=source.parent,
            progress_bar=False,
            stdout_file=log,
            stderr_file=log,
            start_timeout=180,  # a kernel takes 2 s on an idle machine, and far longer on a loaded one
            extra_arguments=[
                "--log-level=ERROR"
            ],  # no warnings about a connection that stays on this machine
        )
    except papermill.PapermillExecutionError as failure:
        log.write("\n".join(failure.traceback) + "\n")
        lines = [line.strip() for line in failure.evalue.splitlines() if line.strip()]
        sentence = lines[-1] if lines else "no message"
        error = (
            sentence
            if failure.ename == "FltnbError"
            else f"{failure.ename}: {sentence}"
        )
    except OSError as failure:
        why = failure.strerror or failure
        raise FltnbError(
            f"Cannot write {output} ({why}): free some space; what was computed is kept."
        ) from failure
    except RuntimeError as failure:  # nbclient's DeadKernelError is one
        log.write(f"{failure}\n")
        error = f"The notebook's kernel stopped ({failure}): memory may have run out; run fewer at a time with JOBS=1."
    finally:
        with suppress(OSError, ValueError):  # missing, or cut short by a full disk
            notebook = nbformat.read(output, as_version=4)
            for part in (
                notebook,
                *notebook.cells,
            ):  # without paths of this machine and times
                for key in ("papermill", "execution"):
                    part.metadata.pop(key, None)
            paths.write_atomically(
                output,
                lambda file: file.write((nbformat.writes(notebook) + "\n").encode()),
            )
    return error


def sources_hash(source: Path) -> str:
    """Return the SHA-256 of a notebook's cells as written: outputs, counts and metadata do not enter."""
    cells = json.loads(source.read_text(encoding="utf-8"))["cells"]
    text = [[cell["cell_type"], "".join(cell["source"])] for cell in cells]
    return hashlib.sha256(json.dumps(text).encode()).hexdigest()


def _stamp(name: str, profile: str) -> Path:
    return paths.results(profile) / "stamps" / f"{name}.json"


def _write(name: str, profile: str, stamp: dict[str, Any]) -> None:
    text = json.dumps(stamp, indent=1, default=repr) + "\n"
    paths.write_atomically(
        _stamp(name, profile), lambda file: file.write(text.encode())
    )


def status(profile: str = "demo") -> list[dict[str, Any]]:
    """Tell how every notebook stands in a profile, in order; FltnbError: unknown profile.

    Each dict has ``notebook``, ``state``, ``wall_s`` (float or None), ``finished`` (UTC, ISO 8601, or None) and
    ``note`` (the error). States: ``done``; ``stale`` (done, but the notebook or the code has changed
    since); ``failed``; ``running``; ``stopped`` (was running and is no more); ``not run``.
    """
    choose(profile, PROFILES, "profile")
    code, rows = provenance.code_digest(), []
    for name in names():
        row = {
            "notebook": name,
            "state": "not run",
            "wall_s": None,
            "finished": None,
            "note": "",
        }
        rows.append(row)
        with suppress(
            OSError, ValueError, KeyError, TypeError
        ):  # no stamp, or a damaged one: running again mends it
            stamp = json.loads(_stamp(name, profile).read_text(encoding="utf-8"))
            state, note = stamp["status"], stamp.get("error", "")
            cells = sources_hash(paths.ROOT / "notebooks" / f"{name}.ipynb")
            if (stamp["notebook"], stamp["code"]) != (cells, code) and state == "done":
                state = "stale"
            if state == "running" and not paths.lives(stamp["pid"]):
                state = "stopped"
            row |= {"state": state, "note": note} | {
                key: stamp.get(key) for key in ("wall_s", "finished")
            }
    return rows
