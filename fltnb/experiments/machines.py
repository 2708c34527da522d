"""Runs on more than one machine with dask.distributed: see docs/cluster.md.

Tasks go directly to the scheduler: joblib's Dask backend sends large arguments to
single workers, and they are lost with a worker. Data that a task needs are tasks here,
so Dask makes them again.
"""

from __future__ import annotations

import os
import re
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import FltnbError
from ..provenance import code_digest, environment

if TYPE_CHECKING:
    from distributed import Client

PATIENCE = 10  # seconds for the scheduler's answer
KEPT = "then run again; what was computed is kept."
_ADDRESS = re.compile(
    r"(?:tcp|tls)://(?:[^\s/:@\[\]]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})/?"
)
_CLIENTS: dict[str, Client] = {}


def active() -> Client | None:
    """Return the Dask client to which runs are sent.

    It is that of ``joblib.parallel_config(backend="dask")``, or of ``$FLTNB_DASK``.
    Raises FltnbError if ``FLTNB_DASK`` is not an address, or there is no answer.
    """
    from joblib.parallel import get_active_backend

    client = getattr(get_active_backend()[0], "client", None)
    address = os.environ.get("FLTNB_DASK", "").strip()
    if client is None and address:
        return connect(address)
    return client


@contextmanager
def here() -> Iterator[None]:
    """Let joblib compute on this machine, also where it would send work to Dask."""
    import joblib
    from joblib.parallel import get_active_backend

    if not hasattr(get_active_backend()[0], "client"):
        yield
        return
    with joblib.parallel_config(backend="loky"):
        yield


def connect(address: str) -> Client:
    """Return the client of a scheduler at ``tcp://host:port``; a process connects once.

    ``tls://`` is encrypted. Raises FltnbError if the address is wrong, there is no Dask
    here, or nothing answers within 10 s.
    """
    port = _ADDRESS.fullmatch(address)
    if port is None or not 0 < int(port[1]) < 65536:
        raise FltnbError(
            f"{address!r} is no address of a Dask scheduler: give tcp://host:port, as "
            "it prints."
        )
    known = _CLIENTS.get(address)
    if known is not None and known.status == "running":
        return known
    try:
        from distributed import Client
    except ImportError as error:
        raise FltnbError(
            f"Dask is not installed here ({error}): pip install 'fltnb[cluster]'."
        ) from error
    try:
        _CLIENTS[address] = Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, RuntimeError) as error:  # TimeoutError is an OSError
        raise FltnbError(
            f"No Dask scheduler answers at {address}: run `dask scheduler`, or give no "
            "address to compute on this machine."
        ) from error
    return _CLIENTS[address]


def about() -> dict[str, Any]:
    """Return what determines whether a machine computes the same.

    These are Python, packages, code and hardware.
    """
    return environment() | {"code": code_digest()}


def check(client: Client) -> dict[str, dict[str, Any]]:
    """Refuse workers that would compute something else.

    Returns what :func:`about` says at each worker's address. Raises FltnbError if a
    worker has another Python or other code, or cannot import this package. Warns if a
    worker has another version of a package or is lost, or there is no worker yet.
    """
    scheduler = client.scheduler.address
    workers = _asked(client)
    here = about()
    for worker, there in workers.items():
        _refuse_other(worker, "Python", _minor(there), _minor(here))
        _refuse_other(worker, "fltnb code", there["code"], here["code"])
        _warn_of_packages(worker, there["packages"], here["packages"])
    if not workers:
        warnings.warn(
            f"The Dask scheduler {scheduler} has no workers yet: runs start when one "
            "joins it.",
            stacklevel=2,
        )
    return workers


def _asked(client: Client) -> dict[str, dict[str, Any]]:
    """Return what :func:`about` says at each worker's address.

    A worker that is lost at this moment is left out, with a warning: its runs go to
    others. Raises FltnbError if one cannot import this package, or the scheduler is
    gone.
    """
    scheduler = client.scheduler.address
    try:
        answers = client.run(about, on_error="return")
    except OSError as error:
        raise _lost(scheduler) from error
    workers = {}
    for worker, answer in answers.items():
        if isinstance(answer, OSError):
            warnings.warn(f"The Dask worker {worker} was lost.", stacklevel=3)
        elif isinstance(answer, Exception):  # any error of another environment
            raise FltnbError(
                f"The Dask worker {worker} cannot use fltnb ({type(answer).__name__}: "
                f"{answer}): install the same commit and lock there."
            ) from answer
        else:
            workers[worker] = answer
    return workers


def _lost(scheduler: str) -> FltnbError:
    """Return the error for a scheduler that is gone."""
    return FltnbError(
        f"The connection to the Dask scheduler at {scheduler} was lost; {KEPT}"
    )


def _minor(machine: dict[str, Any]) -> str:
    """Return a machine's Python without the last part of its version.

    ``machine``: the result of :func:`about` there.
    """
    return machine["python"].rpartition(".")[0]


def _refuse_other(worker: str, what: str, theirs: str, ours: str) -> None:
    """Refuse a worker with other code or versions than this process (FltnbError)."""
    if theirs != ours:
        raise FltnbError(
            f"The Dask worker {worker} has {what} {theirs}, this process {ours}: "
            "install the same on both."
        )


def _warn_of_packages(worker: str, theirs: dict[str, str], ours: dict[str, str]):
    """Warn of packages that a worker has in another version."""
    for name in sorted(theirs.keys() & ours.keys()):
        if theirs[name] != ours[name]:
            warnings.warn(
                f"The Dask worker {worker} has {name} {theirs[name]}, this process "
                f"{ours[name]}: numbers may differ in the last digits; install the "
                "same lock.",
                stacklevel=3,
            )


def gather(
    client: Client,
    work: Callable,
    tasks: dict[str, tuple],
    files: dict[str, bytes],
    needs: dict[str, list[str]],
) -> Iterator[tuple[str, Any]]:
    """Run ``work(*arguments, contents)`` for every task on the cluster.

    Yields names and results as they come. Raises FltnbError if a task was lost with
    four workers in a row, or the scheduler is gone. After that, or any error of
    ``work``, tasks that have not started are cancelled.

    Parameters
    ----------
    client : Client
    work : callable, a function of an importable module
        It may run twice for a task whose worker was lost.
    tasks : dict, name to arguments
    files : dict, name to content; each is sent to the cluster once
    needs : dict, task name to the names of the files in its ``contents``
    """
    from distributed import KilledWorker, as_completed

    call = uuid.uuid4().hex[:8]
    with warnings.catch_warnings():
        # Megabytes of clusterings inside the scheduler are the price of surviving any
        # worker.
        warnings.filterwarnings("ignore", message="Sending large graph")
        sent = {}
        for name, content in files.items():
            sent[name] = client.submit(
                bytes, content, key=f"file-{name}-{call}", pure=False
            )
        futures = {}
        for name, arguments in tasks.items():
            contents = {file: sent[file] for file in needs[name]}
            future = client.submit(
                work, *arguments, contents, key=f"run-{name}-{call}", pure=False
            )
            futures[future] = name
    left = set(futures)
    try:
        for future in as_completed(futures, loop=client.loop):
            left.discard(future)
            if future.status not in ("finished", "error"):
                raise _lost(client.scheduler.address)
            try:
                result = future.result()
            except KilledWorker as error:
                raise FltnbError(
                    f"Run {futures[future]} lost four workers in a row: give them more "
                    f"memory, {KEPT}"
                ) from error
            yield futures[future], result
    finally:
        client.cancel([*left, *sent.values()])
