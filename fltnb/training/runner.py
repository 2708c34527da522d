"""Many steps of a stack of clients: as they stand, compiled, or as CUDA graphs.

A compiled step or a graph is made for a number of clients. Few numbers are used
(:func:`padded`); the rows that fill a stack up hold nobody's results, as a client's
weights are taken out when it has finished. Before a fast step is used for the first
time, it is compared with the plain one from the same weights: if they do not agree, or
it cannot be made, the plain one is used, and a warning says so once.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np
import torch

from ..errors import FltnbError
from .step import Batch, State, Step

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
    power = 1 << (n - 1).bit_length()
    smaller = power * 3 // 4
    return smaller if n <= smaller else power


class Stack:
    """Memory of up to ``n`` clients: weights, all their batches, and what they met.

    Parameters
    ----------
    step : Step
    shapes : sequence of tuples, shapes of the network's parameters
    masks : sequence of tuples, shapes of a sample's dropout masks
    n : int, clients
    steps : int, the most steps that a client takes
    size : int, samples of a batch
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

        def weights(wanted: bool = True) -> list[torch.Tensor]:
            return [zeros(n, *shape) for shape in shapes] if wanted else []

        self.step = step
        self.n = n
        self.state = State(
            weights(),
            weights(spec.momentum > 0),
            weights(spec.proximal > 0),
            zeros(n),
        )
        self.index = zeros(steps, n, size, dtype=torch.int64)
        self.factor = zeros(steps, n, size)
        self.counted = zeros(steps, n, size)
        self.masks = [zeros(steps, n, size, *one, dtype=torch.bool) for one in masks]
        self.log = zeros(steps, n, size)
        self.at = zeros(1, dtype=torch.int64)

    def load(
        self,
        theta: np.ndarray,
        rates: np.ndarray,
        schedule: Sequence[np.ndarray],
        anchors: np.ndarray | None = None,
    ) -> None:
        """Begin local training of clients.

        Parameters
        ----------
        theta : ndarray (n, P), weights to start from
        rates : ndarray (n,), learning rates
        schedule : arrays (steps, n, size, ...): index, factor, counted (a sample's
            weight in a client's last epoch, else 0), and masks
        anchors : ndarray (n, P), optional
            What FedProx's term pulls to, in place of ``theta``.
        """
        n = len(theta)
        self._put(theta, self.state.values)
        self.state.rates[:n].copy_(torch.from_numpy(rates))
        if self.state.starts:
            self._put(theta if anchors is None else anchors, self.state.starts)
        for velocity in self.state.velocities:
            velocity.zero_()

        self.counted.zero_()
        buffers = [self.index, self.factor, self.counted, *self.masks]
        for buffer, array in zip(buffers, schedule, strict=True):
            buffer[: len(array), :n].copy_(torch.from_numpy(array))

    def _put(self, theta: np.ndarray, tensors: Sequence[torch.Tensor]) -> None:
        """Write the models (n, P) of the first clients into a tensor a parameter."""
        rows = torch.from_numpy(theta).to(self.index.device)
        sizes = [one[0].numel() for one in tensors]
        for tensor, part in zip(tensors, rows.split(sizes, dim=1), strict=True):
            value = tensor[: len(rows)]
            value.copy_(part.reshape(value.shape))

    def rows(self, begin: int, end: int) -> torch.Tensor:
        """Return the weights of some clients as rows (end - begin, P)."""
        parts = [value[begin:end].flatten(1) for value in self.state.values]
        return torch.cat(parts, dim=1)

    def losses(self, n: int) -> torch.Tensor:
        """Return the summed losses (n,) of the last epochs of the first clients."""
        counted, log = self.counted[:, :n], self.log[:, :n]
        summed = torch.where(counted != 0, counted * log, 0.0).double().sum((0, 2))
        return -summed

    def plain(self, t: int, a: int) -> None:
        """Take step ``t`` of the first ``a`` clients."""
        masks = [one[t, :a] for one in self.masks]
        batch = Batch(self.index[t, :a], self.factor[t, :a], masks)
        self.log[t, :a] = self.step(self.state, batch)

    def moving(self, a: int) -> None:
        """Take the step that ``at`` says, and go on to the next.

        Everything lies on the device, where to go on as well.
        """
        every = [self.index, self.factor, *self.masks]
        index, factor, *masks = [
            one[:, :a].index_select(0, self.at)[0] for one in every
        ]
        log = self.step(self.state, Batch(index, factor, masks))
        self.log[:, :a].index_copy_(0, self.at, log.unsqueeze(0))
        self.at.add_(1)


class Runner:
    """Runs steps of a stack.

    Parameters
    ----------
    stack : Stack
    way : one of WAYS
        "auto": graphs on a GPU, else as they stand.
    """

    def __init__(self, stack: Stack, way: Way) -> None:
        self.stack = stack
        self.way = chosen(way, stack.at.device)
        self.graphs = Graphs(stack.at.device)
        self.ready: dict[int, Callable[[], object]] = {}

    def run(self, begin: int, end: int, a: int) -> None:
        """Take the steps ``begin`` to ``end`` - 1 of the first ``a`` clients."""
        take = self._fast(begin, a) if self.way != "eager" else None
        if take is None:
            for t in range(begin, end):
                self.stack.plain(t, a)
            return
        self.stack.at.fill_(begin)
        for _ in range(begin, end):
            take()

    def _fast(self, t: int, a: int) -> Callable[[], object] | None:
        """Return the fast step for ``a`` clients; None if there is none."""
        size = padded(a)
        if size not in self.ready:
            before = self._copy(size)
            try:
                take = self._made(t, size, before)
                gap = self._gap(t, a, take, before)
            except Exception as error:  # of a compiler or a driver, in any form
                self._restore(before)
                line = str(error).strip().partition("\n")[0]
                self._give_up(f"it could not be made ({line})")
                return None
            if not gap <= AGREED[self.stack.step.spec.kernels]:
                self._give_up(f"it is {gap:.0%} of a step away from the plain one")
                return None
            self.ready[size] = take
        return self.ready[size]

    def _made(self, t: int, size: int, before: list) -> Callable[[], object]:
        """Compile or capture a step for so many clients."""
        stack = self.stack

        def take() -> None:
            stack.moving(size)

        if self.way != "graph":
            take = compiled(take)
        if self.way == "compiled":
            return take
        take = self.graphs.capture(take, lambda: stack.at.fill_(t))
        self._restore(before)
        return take

    def _gap(self, t: int, a: int, take: Callable[[], object], before: list) -> float:
        """Return how far a fast step is from the plain one, as a share of the step.

        The largest over clients. The stack is as it was before.
        """
        stack = self.stack
        start = self._vector(a)
        stack.plain(t, a)
        expected, met = self._vector(a), stack.log[t, :a].clone()
        self._restore(before)
        stack.at.fill_(t)
        take()
        found, also = self._vector(a), stack.log[t, :a].clone()
        self._restore(before)

        losses = _share(also, met, torch.zeros_like(met))
        return max(_share(found, expected, start), losses)

    def _vector(self, a: int) -> torch.Tensor:
        """Return all that a step changes, for each of ``a`` clients as a row."""
        parts = [one[:a].flatten(1) for one in self.stack.state.tensors()]
        return torch.cat(parts, dim=1)

    def _copy(self, size: int) -> list[torch.Tensor]:
        return [one[:size].clone() for one in self.stack.state.tensors()]

    def _restore(self, before: list[torch.Tensor]) -> None:
        for one, value in zip(self.stack.state.tensors(), before, strict=True):
            one[: len(value)].copy_(value)

    def _give_up(self, why: str) -> None:
        sentence = f"Steps run one operation at a time, not {self.way}: {why}."
        warnings.warn(sentence, RuntimeWarning, stacklevel=2)
        self.way = "eager"
        self.ready.clear()


def chosen(way: Way, device: torch.device) -> Way:
    """Return how steps run on a device.

    Raises
    ------
    FltnbError
        Graphs are asked for without a GPU.
    """
    if way == "auto":
        return "graph" if device.type == "cuda" else "eager"
    if way.endswith("graph") and device.type != "cuda":
        raise FltnbError(
            f"Step {way!r} needs a GPU, and the device is {str(device)!r}: choose "
            "'auto', 'eager' or 'compiled'."
        )
    return way


def compiled(take: Callable[[], object]) -> Callable[[], object]:
    """Return a function compiled by torch, whatever was compiled before."""
    # torch counts and limits versions by code object: this one has its own.
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
        self.memory: tuple[int, int] | None = None

    def capture(
        self, take: Callable[[], object], again: Callable[[], object]
    ) -> Callable[[], object]:
        """Return what replays a function's kernels.

        The function runs twice before, for libraries to make ready, after ``again``
        each.
        """
        with torch.cuda.device(self.device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(2):
                    again()
                    take()
            torch.cuda.current_stream().wait_stream(stream)
            again()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.memory):
                take()
        self.memory = graph.pool()
        return graph.replay


def _share(found: torch.Tensor, wanted: torch.Tensor, start: torch.Tensor) -> float:
    """Return how far rows are from those wanted, as a share of the way from ``start``.

    The largest over rows; what rounding makes is taken off. What is no number must be
    none in both.
    """
    if not torch.equal(found.isnan(), wanted.isnan()):
        return float("inf")
    gap = torch.nan_to_num(found - wanted).norm(dim=1)
    moved = torch.nan_to_num(wanted - start).norm(dim=1)
    rounding = 8 * torch.finfo(wanted.dtype).eps * torch.nan_to_num(wanted).norm(dim=1)
    return float(((gap - rounding).clamp(min=0) / moved.clamp(min=1e-30)).max())
