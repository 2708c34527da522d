"""Run notebooks with papermill and remember how it went: the machinery behind ``make reproduce`` and ``make status``.

Files of one notebook under ``results/<profile>/``: ``notebooks/<name>.ipynb`` (the executed copy, kept when it failed),
``notebooks/<name>.log`` (what its cells printed), ``stamps/<name>.json`` (how the last run went) and
``stamps/<name>.done``, an empty file that exists only after a success with the notebook's own parameters: a failed
notebook leaves an executed copy too, which make would take for an up-to-date target.
"""

import ast
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from . import paths, provenance
from .errors import FltnbError, choose

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
    parameters: Mapping[str, Any] | None = None,
    fresh: bool = False,
    announce: Callable[[Path], None] | None = None,
) -> dict[str, Any]:
    """Run one notebook from top to bottom in a kernel of its own.

    Returns a dict: ``status`` ("done" or "failed"), ``wall_s`` (seconds), ``error`` (a failure's last sentence),
    ``output`` (path of the executed copy), ``log`` (of what its cells printed). A failing cell is reported, not raised;
    the cells before it keep their outputs. FltnbError: unknown notebook, profile or parameter, or a value of the wrong
    type; found before anything runs.

    Parameters
    ----------
    name : str, name of the notebook, without its ending
    profile : {"demo", "small", "paper"}, handed to the notebook's parameter ``profile``
    parameters : mapping, optional, more of them; text is read as the type that the notebook declares
    fresh : bool, compute again what the store already has
    announce : callable, optional, called with the log's path when the kernel is about to start
    """
    source = paths.ROOT / "notebooks" / f"{choose(name, names(), 'notebook')}.ipynb"
    choose(profile, PROFILES, "profile")
    if "profile" in (parameters or {}):
        raise FltnbError("The profile is no parameter like the others: choose it with --profile (or profile=).")
    checked = check_parameters(source, {**(parameters or {}), "profile": profile})

    output = paths.results(profile) / "notebooks" / f"{name}.ipynb"
    done = _stamp(name, profile).with_suffix(".done")
    stamp = {"notebook": sources_hash(source), "code": provenance.code_digest(), "parameters": dict(parameters or {})}
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
        error = _execute(source, output, checked, text)
    how = {"status": "failed" if error else "done", "wall_s": round(time.monotonic() - start, 1), "error": error}
    _write(name, profile, {**how, "finished": datetime.now(UTC).isoformat(timespec="seconds"), **stamp})
    if not error and not parameters:
        done.touch()
    return how | {"output": output, "log": log}


def _execute(source: Path, output: Path, parameters: dict[str, Any], log) -> str:
    """Run the notebook; return the last sentence of its error, or nothing."""
    import nbformat
    import papermill

    error = ""
    try:
        papermill.execute_notebook(
            source,
            output,
            parameters=parameters,
            kernel_name="python3",  # the Python that runs this, whatever the notebook names
            cwd=source.parent,
            progress_bar=False,
            stdout_file=log,
            stderr_file=log,
            start_timeout=180,  # a kernel takes 2 s on an idle machine, and far longer on a loaded one
            extra_arguments=["--log-level=ERROR"],  # no warnings about a connection that stays on this machine
        )
    except papermill.PapermillExecutionError as failure:
        log.write("\n".join(failure.traceback) + "\n")
        lines = [line.strip() for line in failure.evalue.splitlines() if line.strip()]
        sentence = lines[-1] if lines else "no message"
        error = sentence if failure.ename == "FltnbError" else f"{failure.ename}: {sentence}"
    except OSError as failure:
        why = failure.strerror or failure
        raise FltnbError(f"Cannot write {output} ({why}): free some space; what was computed is kept.") from failure
    except RuntimeError as failure:  # nbclient's DeadKernelError is one
        log.write(f"{failure}\n")
        error = f"The notebook's kernel stopped ({failure}): memory may have run out; run fewer at a time with JOBS=1."
    finally:
        with suppress(OSError, ValueError):  # missing, or cut short by a full disk
            notebook = nbformat.read(output, as_version=4)
            for part in (notebook, *notebook.cells):  # without paths of this machine and times
                for key in ("papermill", "execution"):
                    part.metadata.pop(key, None)
            paths.write_atomically(output, lambda file: file.write((nbformat.writes(notebook) + "\n").encode()))
    return error


def check_parameters(source: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters, or the text of some, of the types that their defaults have in the notebook ``source``.

    Papermill itself only warns about a parameter that the notebook does not know, and guesses types (``1e2`` becomes a
    float whatever the notebook expects). FltnbError: unknown name, or a value of another type.
    """
    import papermill

    declared = papermill.inspect_notebook(source)
    checked = {}
    for name, given in parameters.items():
        kind = type(ast.literal_eval(declared[choose(name, declared, f"parameter of {source.stem}")]["default"]))
        value = given
        if isinstance(value, str) and kind is not str:
            with suppress(ValueError, SyntaxError):  # then it stays text, which is refused below
                value = ast.literal_eval({"true": "True", "false": "False"}.get(value, value))
        value = float(value) if kind is float and type(value) is int else value
        if type(value) is not kind:  # True is an int to Python, never to a reader
            raise FltnbError(f"The parameter {name!r} must be of type {kind.__name__}, not {given!r}.")
        checked[name] = value
    return checked


def sources_hash(source: Path) -> str:
    """Return the SHA-256 of a notebook's cells as written: outputs, counts and metadata do not enter."""
    cells = json.loads(source.read_text(encoding="utf-8"))["cells"]
    text = [[cell["cell_type"], "".join(cell["source"])] for cell in cells]
    return hashlib.sha256(json.dumps(text).encode()).hexdigest()


def _stamp(name: str, profile: str) -> Path:
    return paths.results(profile) / "stamps" / f"{name}.json"


def _write(name: str, profile: str, stamp: dict[str, Any]) -> None:
    text = json.dumps(stamp, indent=1, default=repr) + "\n"
    paths.write_atomically(_stamp(name, profile), lambda file: file.write(text.encode()))


def status(profile: str = "demo") -> list[dict[str, Any]]:
    """Tell how every notebook stands in a profile, in order; FltnbError: unknown profile.

    Each dict has ``notebook``, ``state``, ``wall_s`` (float or None), ``finished`` (UTC, ISO 8601, or None) and
    ``note`` (error or own parameters). States: ``done``; ``stale`` (done, but the notebook or the code has changed
    since); ``failed``; ``running``; ``stopped`` (was running and is no more); ``not run``.
    """
    choose(profile, PROFILES, "profile")
    code, rows = provenance.code_digest(), []
    for name in names():
        row = {"notebook": name, "state": "not run", "wall_s": None, "finished": None, "note": ""}
        rows.append(row)
        with suppress(OSError, ValueError, KeyError, TypeError):  # no stamp, or a damaged one: running again mends it
            stamp = json.loads(_stamp(name, profile).read_text(encoding="utf-8"))
            state, note = stamp["status"], stamp.get("error", "")
            cells = sources_hash(paths.ROOT / "notebooks" / f"{name}.ipynb")
            if (stamp["notebook"], stamp["code"]) != (cells, code) and state == "done":
                state = "stale"
            if state == "running" and not paths.lives(stamp["pid"]):
                state = "stopped"
            if not note and stamp["parameters"]:
                note = "with " + ", ".join(f"{key}={value}" for key, value in stamp["parameters"].items())
            row |= {"state": state, "note": note} | {key: stamp.get(key) for key in ("wall_s", "finished")}
    return rows
