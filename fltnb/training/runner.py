"""Many steps of a stack of clients: as they stand, compiled, or as CUDA graphs.

A compiled step or a graph is made for a number of clients. Only few numbers are used
(:func:`padded`). The rows that pad a stack belong to no client, because a client's
weights are removed when it has finished. Before a fast step is used for the first time,
it is compared with the plain one from the same weights. If they do not agree, or it
cannot be made, the plain one is used, and one warning says so.

A graph replays the same kernels on the same memory, so nothing that differs between
steps may be a number of Python: which step it is, is a number on the device (``at``),
and the batches of all steps lie there beforehand. With 40 clients the stack has 48
rows. A graph for 48 computes all of them, 8 for nothing; when only 9 clients are left,
the graph for 12 takes over.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch

from ..errors import FltnbError, first_line
from .step import Batch, State, Step

Take = Callable[[], object]
"""Takes the step of a stack that its ``at`` says, and goes on to the next."""

Way = Literal["auto", "eager", "compiled", "graph", "compiled graph"]
WAYS = get_args(Way)
COMPILER = "inductor"  # torch's own
# How far a fast step may be from the plain one, as a share of the step.
AGREED = {torch.float64: 1e-6, torch.float32: 1e-2, torch.bfloat16: 1e-1}


def padded(n: int) -> int:
    """Return the next number of clients that steps are made for: 2^k or 3 * 2^k.

    >>> [padded(n) for n in (1, 5, 9, 17, 40)]
    [1, 6, 12, 24, 48]
    """
    power = 1 << (n - 1).bit_length()  # the smallest 2^k that is not below n
    between = power * 3 // 4  # 3 * 2^(k - 2), halfway from 2^(k - 1)
    if n <= between:
        return between
    return power


class Schedule(NamedTuple):
    """All batches of n clients, B samples each, step by step.

    Attributes
    ----------
    index : int64 (steps, n, B), positions in the pool of samples
    factor : (steps, n, B), as :class:`~fltnb.training.step.Batch` has it
    counted : (steps, n, B), a sample's weight in its client's last epoch, else 0
    masks : list of bool (steps, n, B, ...), what every dropout keeps
    """

    index: np.ndarray  # type: ignore[assignment]  # hides the tuple's index()
    factor: np.ndarray
    counted: np.ndarray
    masks: list[np.ndarray]


class Stack:
    """Memory of up to ``n`` clients: weights, all their batches, and what they met.

    Parameters
    ----------
    step : Step
    shapes : sequence of tuples, shapes of the network's parameters
    masks : sequence of tuples, shapes of a sample's dropout masks
    n : int, clients
    steps : int, the most steps that a client takes
    size : int, samples of a batch (B)

    Attributes
    ----------
    n : int, clients for which there is room, :func:`padded`
    index, factor, counted, masks : tensors
        As in :class:`Schedule`.
    log : (steps, n, B)
        The log-probability of each sample's class before its step.
    at : int64 (1,)
        The step that :meth:`moving` takes next.
    """

    def __init__(
        self,
        step: Step,
        shapes: Sequence[tuple[int, ...]],
        masks: Sequence[tuple[int, ...]],
        n: int,
        steps: int,
        size: int,
    ) -> None:
        spec = step.spec
        device = step.pool.labels.device
        n = padded(n)

        def zeros(*shape: int, dtype: torch.dtype = step.dtype) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        def weights() -> list[torch.Tensor]:
            return [zeros(n, *shape) for shape in shapes]

        self.step = step
        self.n = n
        self.state = State(
            values=weights(),
            velocities=weights() if spec.momentum else [],
            starts=weights() if spec.proximal else [],
            rates=zeros(n),
        )
        self.index = zeros(steps, n, size, dtype=torch.int64)
        self.factor = zeros(steps, n, size)
        self.counted = zeros(steps, n, size)
        self.masks = []
        for shape in masks:
            self.masks.append(zeros(steps, n, size, *shape, dtype=torch.bool))
        self.log = zeros(steps, n, size)
        self.at = zeros(1, dtype=torch.int64)

    def load(
        self,
        theta: np.ndarray,
        rates: np.ndarray,
        schedule: Schedule,
    ) -> None:
        """Begin local training of the first n clients.

        Parameters
        ----------
        theta : ndarray (n, P), weights to start from
        rates : ndarray (n,), learning rates
        schedule : Schedule
            Of steps up to the most that one of these clients takes.
        """
        n = len(theta)
        self._put(theta, self.state.values)
        self.state.rates[:n].copy_(torch.from_numpy(rates))
        for velocity in self.state.velocities:
            velocity.zero_()

        # The memory may have served other clients. Where this schedule has no steps or
        # no clients, other numbers may stay, but none is counted as a loss.
        self.counted.zero_()
        _write(self.index, schedule.index)
        _write(self.factor, schedule.factor)
        _write(self.counted, schedule.counted)
        for mask, array in zip(self.masks, schedule.masks, strict=True):
            _write(mask, array)

    def pull_to(self, theta: np.ndarray) -> None:
        """Let FedProx's term pull the first n clients to models (n, P)."""
        self._put(theta, self.state.starts)

    def _put(self, theta: np.ndarray, tensors: Sequence[torch.Tensor]) -> None:
        """Write the models (n, P) of the first clients into a tensor a parameter.

        Columns 0 to 5 of ``theta`` may be a weight (2, 3), and 6 and 7 its bias (2,).
        """
        rows = torch.from_numpy(theta).to(self.index.device)
        n = len(rows)
        sizes = [tensor[0].numel() for tensor in tensors]
        parts = rows.split(sizes, dim=1)
        for tensor, part in zip(tensors, parts, strict=True):
            value = tensor[:n]
            value.copy_(part.reshape(value.shape))

    def rows(self, begin: int, end: int) -> torch.Tensor:
        """Return the weights of some clients as rows (end - begin, P)."""
        parts = [value[begin:end].flatten(1) for value in self.state.values]
        return torch.cat(parts, dim=1)

    def losses(self, n: int) -> torch.Tensor:
        """Return the summed losses (n,) of the last epochs of the first clients."""
        counted = self.counted[:, :n]
        log = self.log[:, :n]
        # Uncounted losses may be infinite, and zero times infinity is NaN.
        of_samples = torch.where(counted != 0, counted * log, 0.0)
        return -of_samples.double().sum((0, 2))

    def plain(self, t: int, a: int) -> None:
        """Take step ``t`` of the first ``a`` clients."""
        batch = Batch(
            index=self.index[t, :a],
            factor=self.factor[t, :a],
            masks=[mask[t, :a] for mask in self.masks],
        )
        self.log[t, :a] = self.step(self.state, batch)

    def moving(self, a: int) -> None:
        """Take the step that ``at`` says, and go on to the next.

        :meth:`plain` for a graph: it does the same, and needs nothing from Python.
        """
        batch = Batch(
            index=self._now(self.index, a),
            factor=self._now(self.factor, a),
            masks=[self._now(mask, a) for mask in self.masks],
        )
        log = self.step(self.state, batch)
        self.log[:, :a].index_copy_(0, self.at, log.unsqueeze(0))
        self.at.add_(1)

    def _now(self, every: torch.Tensor, a: int) -> torch.Tensor:
        """Return what ``every`` (steps, n, ...) has for this step's clients, (a, ...).

        ``at`` is a number on the device, which no slice can be told by.
        """
        return every[:, :a].index_select(0, self.at)[0]


def _write(buffer: torch.Tensor, array: np.ndarray) -> None:
    """Write (s, m, ...) into the first steps and clients of (steps, n, ...)."""
    steps, n = array.shape[:2]
    buffer[:steps, :n].copy_(torch.from_numpy(array))


class Runner:
    """Runs steps of a stack.

    Parameters
    ----------
    stack : Stack
    way : one of WAYS
        "auto": graphs on a GPU, else as they stand.

    Attributes
    ----------
    ready : dict
        The fast step for each padded number of clients so far.
    """

    def __init__(self, stack: Stack, way: Way) -> None:
        self.stack = stack
        self.way = chosen(way, stack.at.device)
        self.graphs = Graphs(stack.at.device)
        self.ready: dict[int, Take] = {}

    def run(self, begin: int, end: int, a: int) -> None:
        """Take the steps ``begin`` to ``end`` - 1 of the first ``a`` clients."""
        take = None
        if self.way != "eager":
            take = self._fast(begin, a)
        if take is None:
            for t in range(begin, end):
                self.stack.plain(t, a)
            return

        self.stack.at.fill_(begin)
        for _ in range(begin, end):
            take()

    def _fast(self, t: int, a: int) -> Take | None:
        """Return the fast step for ``a`` clients; None if there is none.

        When it is made it is compared in step ``t``, from the weights of now, which
        come back.
        """
        size = padded(a)
        if size in self.ready:
            return self.ready[size]

        before = self._copy(size)
        try:
            take = self._made(t, size, before)
            gap = self._gap(t, a, take, before)
        except Exception as error:  # of a compiler or a driver, in any form
            self._restore(before)
            self._give_up(f"it could not be made ({first_line(error)})")
            return None

        agrees = gap <= AGREED[self.stack.step.spec.kernels]  # false of NaN
        if not agrees:
            self._give_up(f"it is {gap:.0%} of a step away from the plain one")
            return None
        self.ready[size] = take
        return take

    def _made(self, t: int, size: int, before: list[torch.Tensor]) -> Take:
        """Compile or capture a step for so many clients.

        Capturing takes steps: ``before`` are the weights that come back after it.
        """
        stack = self.stack

        def plain() -> None:
            stack.moving(size)

        take: Callable[[], object] = plain
        if self.way != "graph":
            take = compiled(take)
        if self.way == "compiled":
            return take
        take = self.graphs.capture(take, lambda: stack.at.fill_(t))
        self._restore(before)
        return take

    def _gap(self, t: int, a: int, take: Take, before: list[torch.Tensor]) -> float:
        """Return how far a fast step is from the plain one, as a share of the step.

        The largest over clients, of weights and of log-probabilities. The stack is as
        it was before. If the plain step moves a client's weights by a vector of length
        2, and the fast one ends 0.01 away from there, that is a share of 0.005.
        """
        stack = self.stack
        start = self._vector(a)

        stack.plain(t, a)
        plain = self._vector(a)
        plain_log = stack.log[t, :a].clone()
        self._restore(before)

        stack.at.fill_(t)
        take()
        fast = self._vector(a)
        fast_log = stack.log[t, :a].clone()
        self._restore(before)

        of_weights = _share(fast, plain, start)
        of_log = _share(fast_log, plain_log, torch.zeros_like(plain_log))
        return max(of_weights, of_log)

    def _vector(self, a: int) -> torch.Tensor:
        """Return all that a step changes, weights and velocities, as rows (a, ...)."""
        parts = [one[:a].flatten(1) for one in self.stack.state.tensors()]
        return torch.cat(parts, dim=1)

    def _copy(self, size: int) -> list[torch.Tensor]:
        """Return a copy of what a step of the first ``size`` clients changes."""
        return [one[:size].clone() for one in self.stack.state.tensors()]

    def _restore(self, before: list[torch.Tensor]) -> None:
        """Put back what :meth:`_copy` returned."""
        for one, value in zip(self.stack.state.tensors(), before, strict=True):
            one[: len(value)].copy_(value)

    def _give_up(self, why: str) -> None:
        """Take plain steps from now on, and say so."""
        sentence = f"Steps run one operation at a time, not {self.way}: {why}."
        warnings.warn(sentence, RuntimeWarning, stacklevel=2)
        self.way = "eager"
        self.ready.clear()


def chosen(way: Way, device: torch.device) -> Way:
    """Return how steps run on a device.

    Raises
    ------
    FltnbError
        Graphs are requested without a GPU.
    """
    if way == "auto":
        return "graph" if device.type == "cuda" else "eager"
    if way.endswith("graph") and device.type != "cuda":
        raise FltnbError(
            f"Step {way!r} needs a GPU, and the device is {str(device)!r}: choose "
            "'auto', 'eager' or 'compiled'."
        )
    return way


def compiled(take: Any) -> Take:
    """Return a function compiled by torch, whatever was compiled before."""
    # torch limits how many versions it compiles of one function, counted by its code
    # object, and gives up beyond. Each number of clients is a version. So this is a
    # function with the same closure and a copy of the code object, counted on its own.
    own = type(take)(
        take.__code__.replace(),
        take.__globals__,
        take.__name__,
        take.__defaults__,
        take.__closure__,
    )
    return torch.compile(own, backend=COMPILER, fullgraph=True, dynamic=False)


class Graphs:
    """CUDA graphs on one device. They take turns, so they share their memory."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.memory: Any = None  # torch's handle

    def capture(self, take: Take, again: Take) -> Take:
        """Return what replays a function's kernels.

        Before that the function runs twice, so that libraries can prepare themselves.
        ``again`` is called before each run.
        """
        with torch.cuda.device(self.device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(2):
                    again()
                    take()
            torch.cuda.current_stream().wait_stream(stream)

            # Capturing notes the kernels down and runs none of them.
            again()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.memory):
                take()
        self.memory = graph.pool()
        return graph.replay


def _share(found: torch.Tensor, wanted: torch.Tensor, start: torch.Tensor) -> float:
    """Return how far rows are from those wanted, as a share of the way from ``start``.

    All are (a, numbers), a row for each client. The largest over rows; what rounding
    makes is taken off, since a step may be as small as the last digits of the weights.
    What is no number must be none in both.
    """
    if not torch.equal(found.isnan(), wanted.isnan()):
        return float("inf")
    gap = _length(found - wanted)
    way = _length(wanted - start).clamp(min=1e-30)
    rounding = 8 * torch.finfo(wanted.dtype).eps * _length(wanted)
    shares = (gap - rounding).clamp(min=0) / way
    return float(shares.max())


def _length(rows: torch.Tensor) -> torch.Tensor:
    """Return the norm (a,) of each row, over those of its numbers that are some."""
    return torch.nan_to_num(rows).norm(dim=1)
