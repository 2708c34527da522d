"""One lean trainer per core, in worker processes that stay: the default on a CPU.

Samples are inherited (fork) or shared (spawn), models travel through slots of shared
memory, and pipes carry only short messages. The parent hands out one client at a time,
longest first, and keeps one more waiting at each worker, so no worker is idle while the
parent copies results. Shared memory has no name: nothing is left, whatever ends the
process. A single worker needs no process and works in this one.
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
from .contract import (
    Engine,
    Trained,
    TrainSpec,
    UnavailableError,
    Variation,
    by_kernels,
)
from .evaluation import score
from .module import ModuleTrainer
from .samples import Samples, tensor
from .steps import LeanTrainer

DEPTH = 2  # jobs a worker holds: the one it computes and the next
HEARTBEAT = 1.0  # seconds between an idle worker's looks at its parent
PATIENCE = 120.0  # seconds to start: spawn imports torch, slow from a cold disk

Job = tuple[int, str, tuple]  # row of theta, "train" or "score", further arguments


class PoolUnavailableError(UnavailableError):
    """Processes or shared memory cannot be had here."""


class ForkedAutogradError(RuntimeError):
    """Autograd does not work in processes that are forked from this one."""


class WorkerError(RuntimeError):
    """A worker process died or failed."""


class Shared:
    """An array that worker processes see.

    Its memory is anonymous where workers are forked (not limited by /dev/shm, touched
    only when used), else a ``RawArray``.
    """

    def __init__(self, shape: tuple[int, ...], dtype, context) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        size = max(1, int(np.prod(shape)) * self.dtype.itemsize)
        if _forks(context):
            self._memory = mmap.mmap(-1, size)
        else:
            self._memory = context.RawArray("b", size)

    def array(self) -> np.ndarray:
        """Return the array on the shared memory."""
        return np.ndarray(self.shape, self.dtype, self._memory)


def _forks(context) -> bool:
    return context.get_start_method() == "fork"


class _Setup(NamedTuple):
    """All that a worker needs; pickled once where workers are spawned."""

    samples: dict
    work: tuple[Model, TrainSpec] | bytes  # cloudpickled where workers are spawned
    thetas: Shared  # (n_workers * DEPTH, P)
    outputs: Shared  # (n_workers, DEPTH, P)
    parent: int


def _work(
    number: int, connection: Connection, others: list[Connection], setup: _Setup
) -> None:
    """Serve jobs until told to stop or the parent is gone."""
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    # Inherited by fork and kept open, they would hide the end of the parent.
    for other in others:
        other.close()
    torch.set_num_threads(1)

    worker = _Worker(setup, number)
    with contextlib.suppress(EOFError, OSError):  # the parent is gone
        connection.send(worker.has_autograd())
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
        samples = dict(setup.samples)
        for name, value in samples.items():
            if isinstance(value, Shared):
                samples[name] = value.array()
        self.samples = Samples(**samples)
        work = setup.work
        if isinstance(work, bytes):
            import cloudpickle

            work = cloudpickle.loads(work)
        self.model, spec = work
        self.kernels = spec.kernels
        self.loss = spec.loss
        kind = LeanTrainer if by_kernels(self.model, spec) else ModuleTrainer
        self.trainer = kind(self.model, spec, self.samples)
        self.thetas = setup.thetas.array()
        self.outputs = setup.outputs.array()[number]
        dtype = getattr(torch, spec.dtype)
        self.theta = torch.empty(self.model.n_parameters, dtype=dtype)

    def has_autograd(self) -> bool:
        """Whether autograd works here, if it is needed.

        It does not in a process that was forked after autograd had begun threads, as
        ``torch.export`` makes it do.
        """
        if not isinstance(self.trainer, ModuleTrainer):
            return True
        try:
            torch.ones(1, requires_grad=True).sum().backward()
        except RuntimeError:
            return False
        return True

    def answer(
        self, job: int, slot: int, place: int, kind: str, arguments: tuple
    ) -> tuple:
        """Return the job, its place, whether it is done, and its result or error."""
        try:
            if kind == "train":
                trained = self.outputs[place]
                *work, how = arguments
                result = self.trainer.train(self.thetas[slot], *work, trained, how)
            else:
                result = self.score(slot, *arguments)
        except Exception:
            return job, place, False, traceback.format_exc()
        return job, place, True, result

    @torch.inference_mode()
    def score(
        self, slot: int, split: str, client: int, start: int, stop: int
    ) -> tuple[int, float]:
        index = self.samples.splits[split][client][start:stop]
        if isinstance(self.trainer, ModuleTrainer):
            outputs = self.trainer.served(self.thetas[slot])
            return score(self.loss, outputs, *self.trainer.batch(index))

        # Sums may vary with the alignment of their operands, so the model is copied to
        # memory that torch aligned.
        self.theta.copy_(tensor(self.thetas[slot]))
        params = self.model.unflatten(self.theta)
        x = self.samples.inputs(index, self.theta.dtype)
        y = self.samples.targets(index)

        def outputs(x: torch.Tensor) -> torch.Tensor:
            return self.model.predict(params, x, self.kernels)

        return score(self.loss, outputs, x, y)


class _Crew:
    """The running workers.

    It holds no reference to the engine, which may thus be garbage-collected.
    """

    def __init__(self, context, n_workers: int, setup: _Setup) -> None:
        self.owner = os.getpid()
        self.thetas = setup.thetas.array()
        self.outputs = setup.outputs.array()
        self.connections: list[Connection] = []
        self.processes: list[mp.Process] = []
        try:
            for number in range(n_workers):
                self._start(context, number, setup)
            for connection in self.connections:
                _await_start(connection)
        except BaseException:
            self.stop(kill=True)
            raise

    def _start(self, context, number: int, setup: _Setup) -> None:
        ours, theirs = context.Pipe()
        self.connections.append(ours)
        inherited = list(self.connections) if _forks(context) else []
        process = context.Process(
            target=_work, args=(number, theirs, inherited, setup), daemon=True
        )
        with warnings.catch_warnings():
            # Python 3.12 warns of fork with threads around, as in a notebook kernel.
            # The workers run one thread and touch none of the parent's locks.
            warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
            process.start()
        theirs.close()
        self.processes.append(process)

    def stop(self, kill: bool = False) -> None:
        """End the workers: at once, or when idle."""
        if os.getpid() != self.owner:  # a forked child must not end its siblings
            return
        for connection in self.connections:
            if not kill:
                with contextlib.suppress(OSError):
                    connection.send(None)
            connection.close()
        for process in self.processes:
            process.join(0 if kill else 2)
            process.kill()  # nothing to one that has ended
            process.join()
            process.close()
        self.connections = []
        self.processes = []


def _await_start(connection: Connection) -> None:
    if not connection.poll(PATIENCE):
        raise OSError(f"a worker process did not start within {PATIENCE:.0f} s")
    try:
        has_autograd = connection.recv()
    except EOFError:
        raise OSError(
            "a worker process ended while starting: does the script call fltnb under "
            "`if __name__ == '__main__':`?"
        ) from None
    if not has_autograd:
        raise ForkedAutogradError


class PoolEngine(Engine):
    """Lean training in worker processes.

    Parameters
    ----------
    n_workers : int, optional
        By default one per available core; at most one per client.
    start_method : str, optional
        By default fork on Linux and spawn elsewhere, since fork is not safe with
        macOS's system libraries; and spawn for autograd where there is a GPU. Spawn
        also takes the place of fork where autograd does not work after it.

    Raises
    ------
    PoolUnavailableError
        There are no processes or no shared memory here.
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
        if start_method is None:
            # autograd refuses to work in a process that was forked beside a GPU
            forks = by_kernels(model, spec) or not torch.cuda.is_available()
            start_method = "fork" if sys.platform == "linux" and forks else "spawn"
        self.n_workers = min(n_workers, fed.n_clients)
        self._context = mp.get_context(start_method)
        self._crew: _Crew | None = None
        try:
            self._setup = self._share()
            if self.n_workers > 1:
                self._start()
        except (OSError, ImportError, AssertionError) as error:
            # AssertionError is multiprocessing's own: "daemonic processes are not
            # allowed to have children".
            raise PoolUnavailableError(
                f"worker processes cannot be had here ({error})."
            ) from error

    def _share(self) -> _Setup:
        """Put what workers need where they see it."""
        context = self._context
        samples = Samples.of(self.fed)
        values = {field.name: getattr(samples, field.name) for field in fields(Samples)}
        if not _forks(context):
            for name in ("images", "labels"):
                array = values[name]
                values[name] = Shared(array.shape, array.dtype, context)
                values[name].array()[...] = array

        width = self.model.n_parameters
        dtype = self.spec.dtype
        thetas = Shared((self.n_workers * DEPTH, width), dtype, context)
        outputs = Shared((self.n_workers, DEPTH, width), dtype, context)
        work = (self.model, self.spec)
        if not _forks(context):
            import cloudpickle  # which takes classes and functions of a notebook along

            work = cloudpickle.dumps(work)
        return _Setup(values, work, thetas, outputs, os.getpid())

    @cached_property
    def _worker(self) -> _Worker:
        """The single worker, which needs no process."""
        return _Worker(self._setup, 0)

    def _start(self) -> _Crew:
        if self._crew is None:
            try:
                self._crew = _Crew(self._context, self.n_workers, self._setup)
            except ForkedAutogradError:
                self._context = mp.get_context("spawn")
                self._setup = self._share()
                self._crew = _Crew(self._context, self.n_workers, self._setup)
            self._finalizer = weakref.finalize(self, self._crew.stop)
        return self._crew

    def close(self, kill: bool = False) -> None:
        """End the workers, at once if asked to; a later call starts new ones."""
        if self._crew is not None:
            self._finalizer.detach()
            self._crew.stop(kill)
            self._crew = None

    def _train(
        self, theta, rows, clients, round, weights, how: Variation, done: Trained
    ) -> None:
        longest = self.longest_first(clients)
        jobs = []
        for j in longest:
            work = (clients[j], round, weights[j], how.of(j))
            jobs.append((rows[j], "train", work))

        def receive(job: int, loss: float, trained: np.ndarray) -> None:
            done.theta[longest[job]] = trained
            done.loss[longest[job]] = loss

        self._run(theta, jobs, receive)

    def _scores(
        self, theta: np.ndarray, tasks: list, split: str
    ) -> list[tuple[int, float]]:
        scores: list = [None] * len(tasks)
        jobs = [(row, "score", (split, *samples)) for row, *samples in tasks]

        def receive(job: int, result: tuple[int, float], _: np.ndarray) -> None:
            scores[job] = result

        self._run(theta, jobs, receive)
        return scores

    def _run(self, theta: np.ndarray, jobs: list[Job], receive: Callable) -> None:
        """Compute jobs; ``receive(job, result, trained model)`` takes each result."""
        if self.n_workers == 1:
            self._run_here(theta, jobs, receive)
            return
        crew = self._start()
        try:
            _Dispatch(crew, theta, jobs, receive).run()
        except BaseException:
            # Also after Ctrl-C: workers in the middle of something are of no more use.
            self.close(kill=True)
            raise

    def _run_here(self, theta: np.ndarray, jobs: list[Job], receive: Callable) -> None:
        worker = self._worker
        # The papers' products are too small to split, and with one thread sums never
        # vary.
        with threads(1):
            for job, (row, kind, arguments) in enumerate(jobs):
                worker.thetas[0] = theta[row]
                _, _, done, result = worker.answer(job, 0, 0, kind, arguments)
                if not done:
                    raise WorkerError(f"Training failed:\n{result}")
                receive(job, result, worker.outputs[0])


class _Dispatch:
    """Hands jobs out, in the given order, to whichever worker is free."""

    def __init__(
        self, crew: _Crew, theta: np.ndarray, jobs: list[Job], receive: Callable
    ) -> None:
        self.crew = crew
        self.theta = theta
        self.jobs = jobs
        self.receive = receive
        self.queue = deque(range(len(jobs)))
        # for each worker, the places of results that no job holds
        self.free = [list(range(DEPTH)) for _ in crew.processes]
        self.slots: dict[int, int] = {}  # row of theta -> slot that holds it
        self.users = [0] * len(crew.thetas)  # jobs out on each slot

    def run(self) -> None:
        connections = self.crew.connections
        sentinels = [process.sentinel for process in self.crew.processes]
        try:
            while self.queue or any(len(free) < DEPTH for free in self.free):
                self._keep_busy()
                ready = wait([*connections, *sentinels])
                for worker, connection in enumerate(connections):
                    if connection in ready:
                        self._take(worker)
                if not set(ready).isdisjoint(sentinels):
                    raise EOFError  # a worker is gone
        except (EOFError, ConnectionError) as error:
            wait(sentinels, timeout=1)  # its pipe closes a little before it ends
            raise WorkerError(self._lost()) from error

    def _keep_busy(self) -> None:
        """Give every worker a job, then everyone a next one."""
        n_workers = len(self.free)
        for depth in range(1, DEPTH + 1):
            # The last few jobs wait here, for whoever is free first.
            kept = 0 if depth == 1 else n_workers
            for worker, free in enumerate(self.free):
                if DEPTH - len(free) < depth and len(self.queue) > kept:
                    self._give(worker)

    def _give(self, worker: int) -> None:
        job = self.queue.popleft()
        row, kind, arguments = self.jobs[job]
        slot = self._slot(row)
        self.users[slot] += 1
        place = self.free[worker].pop()
        self.crew.connections[worker].send((job, slot, place, kind, arguments))

    def _slot(self, row: int) -> int:
        """Return the slot that holds a model, after copying it there if needed."""
        if row not in self.slots:
            if len(self.slots) == len(self.users):
                # There are DEPTH slots a worker: one at least is unused when a job is
                # handed out.
                known = self.slots.items()
                del self.slots[next(row for row, slot in known if not self.users[slot])]
            unused = set(range(len(self.users))) - set(self.slots.values())
            self.slots[row] = min(unused)
            self.crew.thetas[self.slots[row]] = self.theta[row]
        return self.slots[row]

    def _take(self, worker: int) -> None:
        job, place, done, result = self.crew.connections[worker].recv()
        if not done:
            raise WorkerError(f"A training worker failed:\n{result}")
        self.receive(job, result, self.crew.outputs[worker, place])
        self.free[worker].append(place)
        row = self.jobs[job][0]
        self.users[self.slots[row]] -= 1

    def _lost(self) -> str:
        codes = [
            process.exitcode
            for process in self.crew.processes
            if not process.is_alive()
        ]
        return (
            f"A training worker ended unexpectedly (exit code {codes}; -9 usually "
            "means that memory ran out): run the call again, with a smaller n_workers "
            "if it was memory."
        )
