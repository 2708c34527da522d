"""One lean trainer per core in persistent worker processes: the default on a CPU. A single one works in this process.

Samples are inherited (fork) or shared (spawn), models travel through shared slots, and pipes carry only short
messages. The parent hands out one client at a time, longest first, and keeps one more waiting at each worker, so no
worker is idle while the parent copies results. Shared memory has no name: nothing is left, whatever ends the process.
"""

import contextlib
import mmap
import multiprocessing as mp
import os
import signal
import sys
import traceback
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import fields
from functools import cached_property
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

import numpy as np
import torch

from ..models import Model
from ..models.base import threads
from .contract import Engine, Trained, TrainSpec
from .evaluation import score
from .samples import Samples, tensor
from .steps import LeanTrainer

DEPTH = 2  # jobs a worker holds: the one it computes and the next
HEARTBEAT = 1.0  # seconds between an idle worker's looks at its parent
PATIENCE = (
    120.0  # seconds for a worker to start: spawn imports torch, slow from a cold disk
)


class PoolUnavailableError(RuntimeError):
    """Processes or shared memory cannot be had here."""


class WorkerError(RuntimeError):
    """A worker process died or failed."""


class Shared:
    """An array that worker processes see.

    Anonymous memory where workers are forked (not limited by /dev/shm, touched only when used), else a ``RawArray``.
    """

    def __init__(self, shape: tuple[int, ...], dtype, context) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        size = max(1, int(np.prod(shape)) * self.dtype.itemsize)
        self._memory = (
            mmap.mmap(-1, size)
            if context.get_start_method() == "fork"
            else context.RawArray("b", size)
        )

    def array(self) -> np.ndarray:
        """Return the array on the shared memory."""
        return np.ndarray(self.shape, self.dtype, self._memory)


class _Setup(NamedTuple):
    """All a worker needs; pickled once where workers are spawned."""

    samples: dict
    model: Model
    spec: TrainSpec
    thetas: Shared  # (n_workers * DEPTH, P)
    outputs: Shared  # (n_workers, DEPTH, P)
    parent: int


def _work(
    number: int, connection: Connection, others: list[Connection], setup: _Setup
) -> None:
    """Serve jobs until told to stop or the parent is gone."""
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    for other in others:  # inherited by fork: kept open, they would hide the parent's end from its workers
        other.close()
    torch.set_num_threads(1)
    worker = _Worker(setup, number)
    with contextlib.suppress(EOFError, OSError):  # the parent is gone
        connection.send(None)
        while True:
            while not connection.poll(HEARTBEAT):
                if os.getppid() != setup.parent:
                    return
            message = connection.recv()
            if message is None:
                return
            connection.send(worker.answer(*message))


class _Worker:
    def __init__(self, setup: _Setup, number: int) -> None:
        values = {
            name: v.array() if isinstance(v, Shared) else v
            for name, v in setup.samples.items()
        }
        self.model, self.samples = setup.model, Samples(**values)
        self.thetas, self.outputs = setup.thetas.array(), setup.outputs.array()[number]
        self.trainer, self.kernels = (
            LeanTrainer(setup.model, setup.spec, self.samples),
            setup.spec.kernels,
        )
        self.own = torch.empty(
            setup.model.n_parameters, dtype=getattr(torch, setup.spec.dtype)
        )

    def answer(
        self, job: int, slot: int, place: int, kind: str, arguments: tuple
    ) -> tuple:
        try:
            if kind == "train":
                result = self.trainer.train(
                    self.thetas[slot], *arguments, self.outputs[place]
                )
            else:
                result = self.score(slot, *arguments)
        except Exception:
            return job, place, False, traceback.format_exc()
        return job, place, True, result

    @torch.inference_mode()
    def score(
        self, slot: int, split: str, client: int, start: int, stop: int
    ) -> tuple[int, float]:
        # sums may vary with the alignment of their operands, so work on memory that torch aligned
        params = self.model.unflatten(self.own.copy_(tensor(self.thetas[slot])))
        index = self.samples.splits[split][client][start:stop]
        x, y = self.samples.inputs(index, self.own.dtype), self.samples.targets(index)
        return score(lambda x: self.model.predict(params, x, self.kernels), x, y)


class _Crew:
    """The running workers; holds no reference to the engine, which may thus be garbage-collected."""

    def __init__(self, context, n_workers: int, setup: _Setup) -> None:
        self.owner = os.getpid()
        self.thetas, self.outputs = setup.thetas.array(), setup.outputs.array()
        self.connections: list[Connection] = []
        self.processes: list[mp.Process] = []
        try:
            for number in range(n_workers):
                ours, theirs = context.Pipe()
                self.connections.append(ours)
                others = (
                    list(self.connections)
                    if context.get_start_method() == "fork"
                    else []
                )
                process = context.Process(
                    target=_work, args=(number, theirs, others, setup), daemon=True
                )
                with warnings.catch_warnings():
                    # Python 3.12 warns of fork with threads around, as in a notebook kernel. The workers run one
                    # thread and touch none of the parent's locks.
                    warnings.filterwarnings(
                        "ignore", message=".*fork.*", category=DeprecationWarning
                    )
                    process.start()
                theirs.close()
                self.processes.append(process)
            for connection in self.connections:
                if not connection.poll(PATIENCE):
                    raise OSError(
                        f"a worker process did not start within {PATIENCE:.0f} s"
                    )
                try:
                    connection.recv()
                except EOFError:
                    why = (
                        "does the script call fltnb under `if __name__ == '__main__':`?"
                    )
                    raise OSError(
                        f"a worker process ended while starting: {why}"
                    ) from None
        except BaseException:
            self.stop(kill=True)
            raise

    def stop(self, kill: bool = False) -> None:
        """End the workers: at once, or when idle."""
        if os.getpid() != self.owner:  # a forked child must not end its siblings
            return
        for connection in self.connections:
            with contextlib.suppress(OSError):
                if not kill:
                    connection.send(None)
            connection.close()
        for process in self.processes:
            process.join(0 if kill else 2)
            process.kill()  # nothing to one that has ended
            process.join()
            process.close()
        self.connections, self.processes = [], []


class PoolEngine(Engine):
    """Lean training in ``n_workers`` processes, default one per available core, at most one per client.

    Their ``start_method`` is fork on Linux and spawn elsewhere (fork is not safe with macOS's system libraries), if not
    given. PoolUnavailableError: no processes or no shared memory here.
    """

    backend = "pool"

    def __init__(
        self,
        fed,
        model: Model,
        spec: TrainSpec,
        n_workers: int | None = None,
        start_method: str | None = None,
    ) -> None:
        super().__init__(fed, model, spec)
        if n_workers is None:
            import joblib  # knows about affinity masks and container limits

            n_workers = joblib.cpu_count()
        self.n_workers = min(n_workers, fed.n_clients)
        self._context = mp.get_context(
            start_method or ("fork" if sys.platform == "linux" else "spawn")
        )
        self._crew: _Crew | None = None
        try:
            self._setup = self._share()
            if self.n_workers > 1:
                self._start()
        except (OSError, ImportError, AssertionError) as error:
            # AssertionError: multiprocessing's own "daemonic processes are not allowed to have children"
            raise PoolUnavailableError(
                f"worker processes cannot be had here ({error})."
            ) from error

    def _share(self) -> _Setup:
        context, samples = self._context, Samples.of(self.fed)
        values = {field.name: getattr(samples, field.name) for field in fields(Samples)}
        if context.get_start_method() != "fork":
            for name in ("images", "labels"):
                array, values[name] = (
                    values[name],
                    Shared(values[name].shape, values[name].dtype, context),
                )
                values[name].array()[...] = array
        width, dtype = self.model.n_parameters, self.spec.dtype
        thetas = Shared((self.n_workers * DEPTH, width), dtype, context)
        outputs = Shared((self.n_workers, DEPTH, width), dtype, context)
        return _Setup(values, self.model, self.spec, thetas, outputs, os.getpid())

    @cached_property
    def _worker(self) -> _Worker:
        """The single worker, which needs no process."""
        return _Worker(self._setup, 0)

    def _start(self) -> _Crew:
        if self._crew is None:
            self._crew = _Crew(self._context, self.n_workers, self._setup)
            self._finalizer = weakref.finalize(self, self._crew.stop)
        return self._crew

    def close(self, kill: bool = False) -> None:
        """End the workers, at once if asked to; a later call starts new ones."""
        if self._crew is not None:
            self._finalizer.detach()
            self._crew.stop(kill)
            self._crew = None

    def _train(self, theta, rows, clients, round, weights, done: Trained) -> None:
        longest = sorted(
            range(len(rows)), key=lambda j: -len(self.fed.train[clients[j]])
        )

        def receive(position: int, result: float, trained: np.ndarray) -> None:
            done.theta[longest[position]], done.loss[longest[position]] = (
                trained,
                result,
            )

        self._run(
            theta,
            [(rows[j], "train", (clients[j], round, weights[j])) for j in longest],
            receive,
        )

    def _scores(
        self, theta: np.ndarray, tasks: list, split: str
    ) -> list[tuple[int, float]]:
        scores: list = [None] * len(tasks)

        def receive(
            position: int, result: tuple[int, float], trained: np.ndarray
        ) -> None:
            scores[position] = result

        self._run(
            theta, [(task.row, "score", (split, *task[1:])) for task in tasks], receive
        )
        return scores

    def _run(
        self, theta: np.ndarray, jobs: list[tuple[int, str, tuple]], receive: Callable
    ) -> None:
        if self.n_workers == 1:
            worker = self._worker
            with threads(
                1
            ):  # the papers' products are too small to split, and sums then never vary
                for job, (row, kind, arguments) in enumerate(jobs):
                    worker.thetas[0] = theta[row]
                    _, _, done, result = worker.answer(job, 0, 0, kind, arguments)
                    if not done:
                        raise WorkerError(f"Training failed:\n{result}")
                    receive(job, result, worker.outputs[0])
            return
        crew = self._start()
        try:
            _hand_out(crew, theta, jobs, receive)
        except (
            BaseException
        ):  # also Ctrl-C: workers in the middle of something are no use any more
            self.close(kill=True)
            raise


def _hand_out(
    crew: _Crew,
    theta: np.ndarray,
    jobs: list[tuple[int, str, tuple]],
    receive: Callable,
) -> None:
    """Run jobs (row, kind, arguments) in the given order on whichever worker is free."""
    n = len(crew.processes)
    sentinels = [process.sentinel for process in crew.processes]
    queue = deque(range(len(jobs)))
    places = [
        list(range(DEPTH)) for _ in range(n)
    ]  # of each worker's results, those that no job holds
    slots: dict[int, int] = {}  # row -> slot that holds it
    users = [0] * len(crew.thetas)  # jobs out on each slot

    def give(worker: int) -> None:
        job = queue.popleft()
        row, kind, arguments = jobs[job]
        if row not in slots:
            if len(slots) == len(
                users
            ):  # DEPTH slots a worker: at least one is unused when a job is handed out
                slots.pop(
                    next(known for known, slot in slots.items() if not users[slot])
                )
            slots[row] = min(set(range(len(users))) - set(slots.values()))
            crew.thetas[slots[row]] = theta[row]
        users[slots[row]] += 1
        crew.connections[worker].send(
            (job, slots[row], places[worker].pop(), kind, arguments)
        )

    try:
        while queue or any(len(free) < DEPTH for free in places):
            for depth in range(1, DEPTH + 1):
                for worker in range(n):
                    # the last few jobs wait here, for whoever is free first
                    if DEPTH - len(places[worker]) < depth and len(queue) > (
                        0 if depth == 1 else n
                    ):
                        give(worker)
            ready = wait([*crew.connections, *sentinels])
            for worker, connection in enumerate(crew.connections):
                if connection in ready:
                    job, place, done, result = connection.recv()
                    if not done:
                        raise WorkerError(f"A training worker failed:\n{result}")
                    receive(job, result, crew.outputs[worker, place])
                    places[worker].append(place)
                    users[slots[jobs[job][0]]] -= 1
            if not set(ready).isdisjoint(sentinels):
                raise EOFError  # a worker is gone
    except (EOFError, ConnectionError) as error:
        wait(sentinels, timeout=1)  # its pipe closes a little before it ends
        codes = [
            process.exitcode for process in crew.processes if not process.is_alive()
        ]
        why = f"exit code {codes}; -9 usually means that memory ran out"
        mend = "run the call again, with a smaller n_workers if it was memory."
        raise WorkerError(
            f"A training worker ended unexpectedly ({why}): {mend}"
        ) from error
