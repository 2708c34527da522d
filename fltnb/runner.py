"""Run notebooks with papermill and record the outcome, for ``make reproduce``.

Files of one notebook under ``results/<profile>/``: ``notebooks/<name>.ipynb`` is the
executed copy, also kept after a failure; ``notebooks/<name>.log`` has the output of its
cells; ``stamps/<name>.json`` has the outcome of the last run. ``stamps/<name>.done``
exists only after a success, because make would treat the copy of a failure as an
up-to-date target.
"""

import hashlib
import json
import os
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
from .startup import be_quick

be_quick()
PROFILES = paths.PROFILES[1:]  # what is stored needs no run


def names() -> list[str]:
    """Return the names of all notebooks, in order."""
    return grids.all_notebooks()


def run_notebook(
    name: str,
    profile: str = "demo",
    fresh: bool = False,
    announce: Callable[[Path], None] | None = None,
) -> dict[str, Any]:
    """Run one notebook from top to bottom in its own kernel.

    A failing cell is reported, not raised; earlier cells keep their outputs.

    Parameters
    ----------
    name : str
        Name of the notebook, without its ending.
    profile : {"demo", "paper"}
    fresh : bool
        Compute again what the store already has.
    announce : callable, optional
        Called with the log's path before the kernel starts.

    Returns
    -------
    dict
        ``status`` ("done" or "failed"), ``wall_s`` (seconds), ``error`` (a failure's
        last sentence), ``output`` (path of the executed copy), ``log`` (of what its
        cells printed).

    Raises
    ------
    FltnbError
        Unknown notebook or profile, before anything runs; or the copy or the log cannot
        be written.
    """
    choose(name, names(), "notebook")
    choose(profile, PROFILES, "profile")

    source = paths.ROOT / "notebooks" / f"{name}.ipynb"
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
    wish = {"FLTNB_FRESH": "1"} if fresh else {}  # the kernel inherits it
    with log.open("w", encoding="utf-8") as text, patch.dict(os.environ, wish):
        error = _execute(source, output, profile, text)
    how = {
        "status": "failed" if error else "done",
        "wall_s": round(time.monotonic() - start, 1),
        "error": error,
    }
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    _write(name, profile, how | {"finished": finished} | stamp)
    if not error:
        done.touch()
    return how | {"output": output, "log": log}


def _execute(source: Path, output: Path, profile: str, log) -> str:
    """Run the notebook; return the last sentence of its error, or nothing.

    ``log``: a text file, open for writing, that gets what cells print.
    """
    import papermill

    error = ""
    try:
        papermill.execute_notebook(
            source,
            output,
            parameters=grids.papermill_parameters(source.stem, profile),
            kernel_name="python3",  # the Python that runs this
            cwd=source.parent,
            progress_bar=False,
            stdout_file=log,
            stderr_file=log,
            # a kernel starts in 2 s on an idle machine, but much slower on a busy one
            start_timeout=180,
            # Cells' errors are in the copy. The kernel's own log would warn of a
            # connection that stays on this machine, and tell of the interrupt by which
            # every kernel is ended ("KeyboardInterrupt caught in kernel").
            extra_arguments=["--log-level=CRITICAL"],
        )
    except papermill.PapermillExecutionError as failure:
        log.write("\n".join(failure.traceback) + "\n")
        lines = [line.strip() for line in failure.evalue.splitlines() if line.strip()]
        sentence = lines[-1] if lines else "no message"
        error = f"{failure.ename}: {sentence}"
        if failure.ename == "FltnbError":
            error = sentence
    except OSError as failure:
        why = failure.strerror or failure
        raise FltnbError(
            f"Cannot write {output} ({why}): free some space; what was computed is "
            "kept."
        ) from failure
    except RuntimeError as failure:  # including nbclient's DeadKernelError
        log.write(f"{failure}\n")
        error = (
            f"The notebook's kernel stopped ({failure}): memory may have run out; run "
            "fewer at a time with JOBS=1."
        )
    finally:
        with suppress(OSError, ValueError):  # missing, or cut short by a full disk
            _without_times(output)
    return error


def _without_times(output: Path) -> None:
    """Take paths of this machine and times out of an executed copy."""
    import nbformat

    notebook = nbformat.read(output, as_version=4)
    for part in (notebook, *notebook.cells):
        part.metadata.pop("papermill", None)
        part.metadata.pop("execution", None)

    text = nbformat.writes(notebook) + "\n"
    paths.write_text(output, text)


def sources_hash(source: Path) -> str:
    """Return the SHA-256 of a notebook's cells as written, without their outputs."""
    cells = json.loads(source.read_text(encoding="utf-8"))["cells"]
    written = [[cell["cell_type"], "".join(cell["source"])] for cell in cells]
    text = json.dumps(written)
    return hashlib.sha256(text.encode()).hexdigest()


def _stamp(name: str, profile: str) -> Path:
    """Return the file that says how the last run of a notebook went."""
    return paths.results(profile) / "stamps" / f"{name}.json"


def _write(name: str, profile: str, stamp: dict[str, Any]) -> None:
    """Write how a run goes, or went."""
    text = json.dumps(stamp, indent=1, default=repr) + "\n"
    paths.write_text(_stamp(name, profile), text)


def status(profile: str = "demo") -> list[dict[str, Any]]:
    """Tell how every notebook stands in a profile, in order.

    Parameters
    ----------
    profile : {"demo", "paper"}

    Returns
    -------
    list of dict
        ``notebook``, ``state``, ``wall_s`` (or None), ``finished`` (UTC, ISO 8601, or
        None) and ``note`` (the error). States: ``done``; ``stale`` (done, but the
        notebook or the code has changed since); ``failed``; ``running``; ``stopped``
        (was running and is no more); ``not run``.

    Raises
    ------
    FltnbError
        Unknown profile.
    """
    choose(profile, PROFILES, "profile")
    code = provenance.code_digest()
    rows = []
    for name in names():
        row = {
            "notebook": name,
            "state": "not run",
            "wall_s": None,
            "finished": None,
            "note": "",
        }
        # no stamp, or a damaged one: another run repairs it
        with suppress(OSError, ValueError, KeyError, TypeError):
            stamp = json.loads(_stamp(name, profile).read_text(encoding="utf-8"))
            row["state"] = _state(name, stamp, code)
            row["note"] = stamp.get("error", "")
            row["wall_s"] = stamp.get("wall_s")
            row["finished"] = stamp.get("finished")
        rows.append(row)
    return rows


def _state(name: str, stamp: dict[str, Any], code: str) -> str:
    """Return the state of a notebook whose last run left this stamp."""
    state = stamp["status"]
    cells = sources_hash(paths.ROOT / "notebooks" / f"{name}.ipynb")
    changed = stamp["notebook"] != cells or stamp["code"] != code
    if state == "done" and changed:
        return "stale"
    if state == "running" and not paths.lives(stamp["pid"]):
        return "stopped"
    return state
