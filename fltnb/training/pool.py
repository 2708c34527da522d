"""One lean trainer per core, in worker processes that stay: the default on a CPU.

Samples are inherited (fork) or shared (spawn), models are in slots of shared memory,
and pipes carry only short messages. The parent hands out one client at a time, longest
first, and keeps one more waiting at each worker, so no worker is idle while the parent
copies results. Shared memory has no name, so nothing remains when the process ends in
any way. A single worker needs no process and works in this one.

A training of client 7 by worker 0 goes like this::

    parent                                       worker 0
    writes its model into slot 3
    sends (job 12, slot 3, output 1), ...   ->   reads the model in slot 3, trains,
                                                 writes the result into output 1
    copies output 1 of worker 0             <-   sends (job 12, ...), loss
    slot 3 and output 1 are free again
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
from typing import Any, NamedTuple

import numpy as np
import torch

from ..errors import FltnbError
from ..models import Model
from ..models.base import threads
from .contract import (
    Engine,
    Trained,
    TrainSpec,
    UnavailableError,
    Variation,
    Work,
    by_kernels,
)
from .evaluation import score
from .module import ModuleTrainer
from .samples import Samples, tensor
from .steps import LeanTrainer

DEPTH = 2  # jobs a worker holds: the one it computes and the next
HEARTBEAT = 1.0  # seconds between an idle worker's checks of its parent
PATIENCE = 120.0  # seconds to start: spawn imports torch, slow from a cold disk


class Job(NamedTuple):
    """What a worker is to do with a model.

    Attributes
    ----------
    row : int
        The model, a row of theta.
    kind : {"train", "score"}
    arguments : tuple
        All others of :meth:`_Worker.train` or :meth:`_Worker.score`, in their order.
    """

    row: int
    kind: str
    arguments: tuple


# Messages are plain tuples, which pickle to the fewest bytes.
Place = tuple[int, int, int]
"""Where a job finds its model and leaves what it trained.

The job's number, the slot of shared memory that holds the model, and which of its
worker's DEPTH rows takes the trained one.
"""

Answer = tuple[Place, bool, Any]
"""What comes back: where, whether it went well, and a result or an error.

The result is a loss, or what :func:`~fltnb.training.evaluation.score` gives; an error
is the FltnbError itself, or the traceback of any other as text.
"""


class PoolUnavailableError(UnavailableError):
    """Processes or shared memory are not available here."""


class ForkedAutogradError(RuntimeError):
    """Autograd does not work in processes that are forked from this one."""


class WorkerError(RuntimeError):
    """A worker process died or failed."""


def _failure(error: FltnbError | str) -> Exception:
    """Return what to raise for a job's error, as an :data:`Answer` has it."""
    if isinstance(error, FltnbError):
        return error
    return WorkerError(f"Training failed:\n{error}")


class Shared:
    """An array that worker processes see.

    Its memory is anonymous if workers are forked (not limited by /dev/shm, touched
    only when used), else a ``RawArray``.
    """

    def __init__(self, shape: tuple[int, ...], dtype, context) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        numbers = int(np.prod(shape))
        size = max(1, numbers * self.dtype.itemsize)  # no memory of 0 bytes exists
        if _forks(context):
            self._memory = mmap.mmap(-1, size)
        else:
            self._memory = context.RawArray("b", size)

    def array(self) -> np.ndarray:
        """Return the array on the shared memory."""
        return np.ndarray(self.shape, self.dtype, self._memory)


def _forks(context) -> bool:
    """Whether workers of a multiprocessing context see the memory of their parent."""
    return context.get_start_method() == "fork"


class _Setup(NamedTuple):
    """All that a worker needs; pickled once where workers are spawned.

    Attributes
    ----------
    samples : dict
        The arguments of :class:`Samples`; arrays are :class:`Shared` if workers are
        spawned.
    work : (Model, TrainSpec)
        Cloudpickled if workers are spawned.
    thetas : Shared, shape (n_workers * DEPTH, P)
        Models for the jobs, in slots that jobs share.
    outputs : Shared, shape (n_workers, DEPTH, P)
        Trained models.
    parent : int
        Number of the process that hands out jobs.
    """

    samples: dict
    work: tuple[Model, TrainSpec] | bytes
    thetas: Shared
    outputs: Shared
    parent: int


def _work(
    number: int, connection: Connection, others: list[Connection], setup: _Setup
) -> None:
    """Serve jobs until told to stop or the parent is gone."""
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    # If they stayed open after fork, they would hide the end of the parent.
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
            place, kind, arguments = message
            connection.send(worker.answer(place, kind, arguments))


class _Worker:
    """Trains and tests models, in a process of its own or in this one.

    Attributes
    ----------
    thetas : ndarray, shape (n_workers * DEPTH, P)
        Models, a slot each; shared by all.
    outputs : ndarray, shape (DEPTH, P)
        The trained models.
    theta : tensor, shape (P,)
        Memory for a model that is tested.
    """

    def __init__(self, setup: _Setup, number: int) -> None:
        samples = dict(setup.samples)
        for name, value in samples.items():
            if isinstance(value, Shared):
                samples[name] = value.array()
        self.samples = Samples(**samples)

        work: Any = setup.work
        if isinstance(work, bytes):
            import cloudpickle

            work = cloudpickle.loads(work)
        self.model, spec = work
        self.kernels = spec.kernels
        self.loss = spec.loss
        self.trainer: LeanTrainer | ModuleTrainer
        if by_kernels(self.model, spec):
            self.trainer = LeanTrainer(self.model, spec, self.samples)
        else:
            self.trainer = ModuleTrainer(self.model, spec, self.samples)

        self.thetas = setup.thetas.array()
        self.outputs = setup.outputs.array()[number]
        dtype = getattr(torch, spec.dtype)
        self.theta = torch.empty(self.model.n_parameters, dtype=dtype)

    def has_autograd(self) -> bool:
        """Whether autograd works here, if it is needed.

        It does not in a process that was forked after autograd had started threads,
        which ``torch.export`` does.
        """
        if not isinstance(self.trainer, ModuleTrainer):
            return True
        try:
            torch.ones(1, requires_grad=True).sum().backward()
        except RuntimeError:
            return False
        return True

    def answer(self, place: Place, kind: str, arguments: tuple) -> Answer:
        """Do a job; ``kind`` and ``arguments`` as in :class:`Job`."""
        _, slot, output = place
        theta = self.thetas[slot]
        try:
            if kind == "train":
                result = self.train(theta, self.outputs[output], *arguments)
            else:
                result = self.score(theta, *arguments)
        except FltnbError as error:
            return place, False, error
        except Exception:
            return place, False, traceback.format_exc()
        return place, True, result

    def train(
        self,
        theta: np.ndarray,
        out: np.ndarray,
        client: int,
        round: int,
        sample_weights: np.ndarray | None,
        how: Variation,
    ) -> float:
        """Train a client from ``theta`` (P,) into ``out`` (P,); return its loss."""
        return self.trainer.train(theta, client, round, sample_weights, out, how)

    @torch.inference_mode()
    def score(
        self, theta: np.ndarray, split: str, client: int, start: int, stop: int
    ) -> tuple[float, float]:
        """Test a model (P,) on a client's samples ``start`` to ``stop`` - 1."""
        index = self.samples.splits[split][client][start:stop]
        if isinstance(self.trainer, ModuleTrainer):
            served = self.trainer.served(theta)
            x, y = self.trainer.batch(index)
            return score(self.loss, served, x, y)

        # Sums may vary with the alignment of their operands, so the model is copied to
        # memory that torch aligned.
        self.theta.copy_(tensor(theta))
        params = self.model.unflatten(self.theta)
        x = self.samples.inputs(index, self.theta.dtype)
        y = self.samples.targets(index)

        def outputs(x: torch.Tensor) -> torch.Tensor:
            return self.model.predict(params, x, self.kernels)

        return score(self.loss, outputs, x, y)


class _Crew:
    """The running workers.

    It holds no reference to the engine, which may thus be garbage-collected.

    Attributes
    ----------
    owner : int
        Number of the process that started them.
    thetas : ndarray, shape (n_workers * DEPTH, P)
    outputs : ndarray, shape (n_workers, DEPTH, P)
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
        """Start a worker and the pipe to it."""
        ours, theirs = context.Pipe()
        self.connections.append(ours)
        inherited = []
        if _forks(context):
            inherited = list(self.connections)
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
    """Wait until a worker has started.

    Raises
    ------
    OSError
        It did not.
    ForkedAutogradError
        It cannot train own networks: it was forked too late.
    """
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
        By default fork on Linux and spawn elsewhere, because fork is not safe with
        macOS's system libraries; and spawn for autograd if there is a GPU. Spawn also
        replaces fork if autograd does not work after it.

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
            import joblib  # respects affinity masks and container limits

            n_workers = joblib.cpu_count()
        if start_method is None:
            # autograd refuses to work in a process that was forked beside a GPU
            may_fork = by_kernels(model, spec) or not torch.cuda.is_available()
            if sys.platform == "linux" and may_fork:
                start_method = "fork"
            else:
                start_method = "spawn"
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
                f"worker processes are not available here ({error})."
            ) from error

    def _share(self) -> _Setup:
        """Put what workers need where they see it."""
        context = self._context
        samples = Samples.of(self.fed)
        values = {}
        for field in fields(Samples):
            values[field.name] = getattr(samples, field.name)
        work = (self.model, self.spec)
        if not _forks(context):
            import cloudpickle  # it also sends classes and functions of a notebook

            work = cloudpickle.dumps(work)
            for name in ("images", "labels"):
                array = values[name]
                shared = Shared(array.shape, array.dtype, context)
                shared.array()[...] = array
                values[name] = shared

        width = self.model.n_parameters
        dtype = self.spec.dtype
        n_slots = self.n_workers * DEPTH
        return _Setup(
            samples=values,
            work=work,
            thetas=Shared((n_slots, width), dtype, context),
            outputs=Shared((self.n_workers, DEPTH, width), dtype, context),
            parent=os.getpid(),
        )

    @cached_property
    def _worker(self) -> _Worker:
        """The single worker, which needs no process."""
        return _Worker(self._setup, 0)

    def _start(self) -> _Crew:
        """Return the workers, which run from the first call on until :meth:`close`."""
        if self._crew is not None:
            return self._crew
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

    def _train(self, work: Work, done: Trained) -> None:
        longest = self.longest_first(work.clients)
        jobs = []
        for j in longest:
            of_job = (work.clients[j], work.round, work.weights[j], work.how.of(j))
            jobs.append(Job(work.rows[j], "train", of_job))

        def receive(job: int, loss: float, trained: np.ndarray) -> None:
            j = longest[job]
            done.theta[j] = trained
            done.loss[j] = loss

        self._run(work.theta, jobs, receive)

    def _scores(
        self, theta: np.ndarray, tasks: list, split: str
    ) -> list[tuple[float, float]]:
        scores: list = [None] * len(tasks)
        jobs = []
        for task in tasks:
            of_job = (split, task.client, task.start, task.stop)
            jobs.append(Job(task.row, "score", of_job))

        def receive(job: int, result: tuple[float, float], _: np.ndarray) -> None:
            scores[job] = result

        self._run(theta, jobs, receive)
        return scores

    def _run(self, theta: np.ndarray, jobs: list[Job], receive: Callable) -> None:
        """Compute jobs with models ``theta`` (K, P).

        ``receive(job, result, trained)`` takes each result as it comes: the number of
        its job, a loss or score, and the trained model (P,).
        """
        if self.n_workers == 1:
            self._run_here(theta, jobs, receive)
            return
        crew = self._start()
        try:
            _Dispatch(crew, theta, jobs, receive).run()
        except BaseException:
            # Also after Ctrl-C: workers in the middle of a job cannot be used again.
            self.close(kill=True)
            raise

    def _run_here(self, theta: np.ndarray, jobs: list[Job], receive: Callable) -> None:
        """Do the same in this process."""
        worker = self._worker
        # The papers' products are too small to split, and with one thread sums never
        # vary.
        with threads(1):
            for number, job in enumerate(jobs):
                worker.thetas[0] = theta[job.row]
                place = (number, 0, 0)
                _, done, result = worker.answer(place, job.kind, job.arguments)
                if not done:
                    raise _failure(result)
                receive(number, result, worker.outputs[0])


class _Dispatch:
    """Hands jobs out, in the given order, to whichever worker is free.

    Attributes
    ----------
    queue : deque of int
        Jobs that no worker has yet.
    free : list of lists
        For each worker, which of its DEPTH rows for results no job holds.
    slots : dict
        The slot of shared memory that holds a row of theta.
    users : list of int
        How many jobs that are out use each slot.
    """

    def __init__(
        self, crew: _Crew, theta: np.ndarray, jobs: list[Job], receive: Callable
    ) -> None:
        self.crew = crew
        self.theta = theta
        self.jobs = jobs
        self.receive = receive
        self.queue = deque(range(len(jobs)))
        self.free = [list(range(DEPTH)) for _ in crew.processes]
        self.slots: dict[int, int] = {}
        self.users = [0] * len(crew.thetas)

    def run(self) -> None:
        """Have all jobs done.

        Raises
        ------
        WorkerError
            A job failed, or a worker is gone.
        """
        connections = self.crew.connections
        sentinels = [process.sentinel for process in self.crew.processes]
        try:
            while self.queue or self._out(self.free):
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

    def _out(self, frees: list[list[int]]) -> int:
        """Return how many jobs workers with so many free rows have."""
        return sum(DEPTH - len(free) for free in frees)

    def _keep_busy(self) -> None:
        """Give every worker a job, then everyone a next one."""
        n_workers = len(self.free)
        for depth in range(1, DEPTH + 1):
            # The last few jobs wait here for the first free worker: as second jobs they
            # might wait behind a long one while another worker is idle.
            kept = 0 if depth == 1 else n_workers
            for worker, free in enumerate(self.free):
                if self._out([free]) < depth and len(self.queue) > kept:
                    self._give(worker)

    def _give(self, worker: int) -> None:
        """Send the next job to a worker."""
        number = self.queue.popleft()
        job = self.jobs[number]
        slot = self._slot(job.row)
        self.users[slot] += 1
        place = (number, slot, self.free[worker].pop())
        self.crew.connections[worker].send((place, job.kind, job.arguments))

    def _slot(self, row: int) -> int:
        """Return the slot that holds a model, after copying it there if needed.

        Clients that start from one model, as those of a cluster do, share its slot: it
        is copied once.
        """
        if row in self.slots:
            return self.slots[row]
        if len(self.slots) == len(self.users):
            self._forget_one()
        held = set(self.slots.values())
        slot = min(set(range(len(self.users))) - held)
        self.slots[row] = slot
        self.crew.thetas[slot] = self.theta[row]
        return slot

    def _forget_one(self) -> None:
        """Empty a slot that no job uses.

        There are DEPTH slots per worker, so one is free whenever a job is handed out.
        """
        for row, slot in self.slots.items():
            if not self.users[slot]:
                del self.slots[row]
                return

    def _take(self, worker: int) -> None:
        """Take an answer of a worker's."""
        place, done, result = self.crew.connections[worker].recv()
        if not done:
            raise _failure(result)
        number, slot, output = place
        trained = self.crew.outputs[worker, output]
        self.receive(number, result, trained)
        self.free[worker].append(output)
        self.users[slot] -= 1

    def _lost(self) -> str:
        """Return what to say when a worker is gone."""
        codes = []
        for process in self.crew.processes:
            if not process.is_alive():
                codes.append(process.exitcode)
        return (
            f"A training worker ended unexpectedly (exit code {codes}; -9 usually "
            "means that memory ran out): run the call again, with a smaller n_workers "
            "if it was memory."
        )
