"""What the benchmarks share: processes of their own, time and memory used, tables that name what they come from."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def load() -> float:
    """Return the machine's load average."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")


def peak(who: int = resource.RUSAGE_SELF) -> float:
    """Return the peak memory in GiB; Linux counts KiB, macOS bytes."""
    return resource.getrusage(who).ru_maxrss / (
        2**30 if sys.platform == "darwin" else 2**20
    )


def processor(*who: int) -> float:
    """Return the processor time used so far in seconds, of this process by default."""
    usage = [resource.getrusage(one) for one in who or (resource.RUSAGE_SELF,)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


class Stopwatch:
    """Wall and processor time from its making on, children that have ended included."""

    def __init__(self) -> None:
        self.begun, self.cpu = time.perf_counter(), self._processor()

    @staticmethod
    def _processor() -> float:
        return processor(resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)

    def report(self) -> None:
        """Print times and peak memory."""
        seconds, used = time.perf_counter() - self.begun, self._processor() - self.cpu
        own, worker = peak(), peak(resource.RUSAGE_CHILDREN)
        print(
            f"  {seconds:.1f} s, {used:.1f} s of processor time; peak {own:.2f} GiB, largest worker {worker:.2f} GiB"
        )


def alone(module: str, *arguments: str) -> None:
    """Run a benchmark in a process of its own, so that its peak memory is its own."""
    subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments], check=True
    )


def measured(module: str, *arguments: str) -> dict[str, Any]:
    """Run a benchmark in a process of its own with one thread; return what its last line says in JSON."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    environment = os.environ | dict.fromkeys(THREADS, "1")
    done = subprocess.run(
        command, check=True, env=environment, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def save(rows: list[dict[str, Any]], name: str, settings: dict[str, Any]) -> None:
    """Write results/small/<name>: the table, and in every row what it was measured on."""
    import pandas as pd

    from fltnb import paths
    from fltnb.provenance import environment

    about = environment()
    record = {
        "settings": json.dumps(settings),
        "commit": about["commit"],
        "hardware": about["hardware"],
    }
    record |= {"python": about["python"], "torch": about["packages"]["torch"]}
    record |= {"finished": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    text = pd.DataFrame(rows).assign(**record).to_csv(index=False, float_format="%.5g")
    path = paths.write_atomically(
        paths.results("small") / name, lambda file: file.write(text.encode())
    )
    print(f"\nSaved {path.relative_to(paths.ROOT)}")
