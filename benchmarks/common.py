"""What the benchmarks share: processes of their own, time and memory, saved tables."""

from __future__ import annotations

import csv
import io
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
OWN = resource.RUSAGE_SELF
CHILDREN = resource.RUSAGE_CHILDREN  # that have ended


def load() -> float:
    """Return the machine's load average."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")


def peak(who: int = OWN) -> float:
    """Return the peak memory in GiB."""
    units = 2**30 if sys.platform == "darwin" else 2**20  # bytes, or KiB on Linux
    return resource.getrusage(who).ru_maxrss / units


def processor(who: int = OWN) -> float:
    """Return the processor time used so far in seconds."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


class Stopwatch:
    """Wall and processor time since it was made, children that have ended included."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.used = processor() + processor(CHILDREN)

    def report(self) -> None:
        """Print times and peak memory."""
        seconds = time.perf_counter() - self.begun
        used = processor() + processor(CHILDREN) - self.used
        print(
            f"  {seconds:.1f} s, {used:.1f} s of processor time; peak {peak():.2f} "
            f"GiB, largest worker {peak(CHILDREN):.2f} GiB"
        )


def refuse_unknown(parser, what: str, given: Iterable[str], known: Iterable) -> None:
    """End with a sentence that names what is unknown and what may be chosen."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        parser.error(
            f"unknown {what} {', '.join(unknown)}: choose of {', '.join(known)}"
        )


def alone(module: str, *arguments: str) -> None:
    """Run a benchmark in a process of its own, so that its peak memory is its own."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    subprocess.run(command, check=True)


def measured(module: str, *arguments: str) -> dict[str, Any]:
    """Run a benchmark in a process of its own with one thread.

    Returns what its last line says in JSON.
    """
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    environment = os.environ | dict.fromkeys(THREADS, "1")
    done = subprocess.run(
        command, check=True, env=environment, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def write(table, path) -> None:
    """Write a table as CSV."""
    from fltnb import paths

    text = table.to_csv(index=False, float_format="%.5g")
    path = paths.write_text(path, text)
    print(f"\nSaved {path.relative_to(paths.ROOT)}")


def save(rows: list[dict[str, Any]], name: str, settings: dict[str, Any]) -> None:
    """Write results/benchmarks/<name>: a table, and what each row was measured on.

    Without pandas, which a GPU machine may lack.
    """
    from fltnb import paths
    from fltnb.provenance import environment

    machine = environment()
    about = {
        "settings": json.dumps(settings),
        "commit": machine["commit"],
        "hardware": machine["hardware"],
        "python": machine["python"],
        "torch": machine["packages"]["torch"],
        "finished": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    lines = [row | about for row in rows]
    columns = dict.fromkeys(column for row in rows for column in row)
    text = io.StringIO()
    table = csv.DictWriter(text, [*columns, *about], lineterminator="\n")
    table.writeheader()
    for line in lines:
        shown = {k: f"{v:.5g}" for k, v in line.items() if isinstance(v, float)}
        table.writerow(line | shown)
    path = paths.ROOT / "results" / "benchmarks" / name
    path = paths.write_text(path, text.getvalue())
    print(f"\nSaved {path.relative_to(paths.ROOT)}")
