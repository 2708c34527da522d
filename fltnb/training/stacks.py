"""Local training of many clients as one batch, whoever's clients they are.

The weights of all clients lie along a leading dimension. Clients are sorted by number
of steps, most first, so the clients still at work are always the first ``a`` of the
stack: finished ones are left out by slicing. A short last batch is filled up with
samples of weight zero and divided by its true size. The stack is cut into chunks that
fit in memory.

Clients of several runs may train in one stack (:func:`alike` says of which): each
brings its samples, its learning rate and the seed of its draws.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from ..federations import Federation
from ..models import Conv, Model
from .contract import Trained, TrainSpec, Variation, keep_masks, order
from .devices import check_room, free_memory
from .runner import Runner, Stack, Way, chosen
from .samples import Samples
from .serial import exact
from .step import Pool, Step

CPU_BYTES = 2**30  # room for one chunk on a CPU
GPU_SHARE = 0.5  # of the free memory
POOL_SHARE = 0.25  # of the free memory, for samples of runs that train together
# Products in a client's batch from which on its convolution fills a device alone: see
# docs/engine.md.
APART = 1e9


def clients_at_a_time(numbers: int, spec: TrainSpec, device: torch.device) -> int:
    """Return how many clients of so many numbers each fit into memory.

    Raises
    ------
    FltnbError
        A GPU has not enough for one.
    """
    one = numbers * np.dtype(spec.dtype).itemsize
    if device.type != "cuda":
        return max(1, int(CPU_BYTES // one))
    mend = "a smaller batch_size, or device 'cpu'"
    check_room(one, device, "One client takes", mend)
    return max(1, int(GPU_SHARE * free_memory(device) // one))


def alike(fed: Federation, model: Model, spec: TrainSpec) -> Hashable:
    """Return what must be equal of runs whose clients train in one stack.

    That is the network and local training but for seed and learning rate, and how
    samples are stored and scaled.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> net = fl.models.shaped("mlp32", fed)
    >>> slow, fast = fl.training.TrainSpec(lr=0.01), fl.training.TrainSpec(lr=0.1)
    >>> fl.training.alike(fed, net, slow) == fl.training.alike(fed, net, fast)
    True
    """
    network = model.name, tuple(model.input_shape), model.n_classes
    samples = fed.images.dtype.str, fed.images.shape[1:]
    scaling = tuple(np.ravel(fed.mean)), tuple(np.ravel(fed.std))
    return network, replace(spec, seed=0, lr=0.0), samples, scaling


def fitting(feds: Sequence[Federation], device: torch.device) -> int:
    """Return of how many federations, from the first on, the samples fit together.

    One at least.
    """
    room: float = CPU_BYTES
    if device.type == "cuda":
        room = POOL_SHARE * free_memory(device)
    held = {}
    for n, fed in enumerate(feds):
        held[id(fed.images)] = fed.images.nbytes
        if sum(held.values()) > room:
            return max(1, n)
    return len(feds)


class Job(NamedTuple):
    """Local training of one client.

    Attributes
    ----------
    start : ndarray (P,), its model before; only read
    samples : int64 (n,), positions in the pool
    spec : TrainSpec, of its run: seed and learning rate
    client, round : int, keys of its draws
    weights : ndarray (n,) or None, factors on the losses of its samples
    anchor : ndarray (P,), what FedProx's term pulls to
    """

    start: np.ndarray
    samples: np.ndarray
    spec: TrainSpec
    client: int
    round: int
    weights: np.ndarray | None
    anchor: np.ndarray


class Stacks:
    """What trains the clients of one or several federations on one device.

    Parameters
    ----------
    feds : sequence of Federation
        Of runs that are :func:`alike`.
    model : Model
    spec : TrainSpec
        Seed and learning rate do not matter.
    device : torch.device
    way : one of :data:`fltnb.training.runner.WAYS`
    """

    def __init__(
        self,
        feds: Sequence[Federation],
        model: Model,
        spec: TrainSpec,
        device: torch.device,
        way: Way,
    ) -> None:
        self.model = model
        self.spec = spec
        self.device = device
        self.way = chosen(way, device)
        samples, self.first = joined(feds)
        dtype = spec.kernels if model.convolutional else getattr(torch, spec.dtype)
        self.pool = Pool(samples, dtype, device)
        self.largest = max(len(index) for fed in feds for index in fed.train)
        self.trainings: dict[Hashable, Training] = {}

    def training(self, how: Variation) -> "Training":
        """Return the training of calls that do something otherwise; it is kept."""
        spec = how.applied(self.spec)
        key = spec.local_epochs, spec.proximal, how.frozen
        if key not in self.trainings:
            self.trainings[key] = Training(self, spec, how.frozen)
        return self.trainings[key]


class Training:
    """Local training in stacks, each client by its own samples, rate and draws.

    Parameters
    ----------
    stacks : Stacks
    spec : TrainSpec
        Seed and learning rate do not matter.
    frozen : {"head", "body"}, optional
        Parameters that stay as they are.
    """

    def __init__(self, stacks: Stacks, spec: TrainSpec, frozen: str | None) -> None:
        self.model = model = stacks.model
        self.spec = spec
        self.device = stacks.device
        self.dtype = getattr(torch, spec.dtype)
        self.way = stacks.way
        self.largest = stacks.largest
        self.batch_size = min(spec.batch_size, stacks.largest)

        products = [0]
        for layer, shape in zip(model.layers, model.activations, strict=True):
            if isinstance(layer, Conv):
                products.append(layer.inputs * layer.kernel**2 * math.prod(shape))
        apart = spec.batch_size * max(products) >= APART
        self.step = Step(model, spec, stacks.pool, apart, frozen)
        self.runner: Runner | None = None

    def chunk(self) -> int:
        """Clients trained at a time, by a model of the memory they take."""
        spec = self.spec
        copies = 2 + bool(spec.momentum) + bool(spec.proximal)
        if self.way != "eager":
            copies += 4  # of the first step's comparison
        activations = sum(math.prod(shape) for shape in self.model.activations)
        masks = sum(math.prod(shape) for shape, _ in self.model.dropout)
        # of every sample that is met: position, factor, weight, loss and masks
        met = self._steps(self.largest) * self.batch_size * (8 + masks // 4)
        numbers = copies * self.model.n_parameters + 4 * spec.batch_size * activations
        numbers += met
        return clients_at_a_time(numbers, spec, self.device)

    @cached_property
    def most(self) -> int:
        """Clients trained at a time, as it was before any memory was taken."""
        return self.chunk()

    def train(self, jobs: Sequence[Job], done: Trained) -> None:
        """Train clients and fill ``done``, in the order of the jobs."""
        longest = sorted(range(len(jobs)), key=lambda j: -len(jobs[j].samples))
        with torch.inference_mode(), exact(self.device, 1):
            for begin in range(0, len(jobs), self.most):
                chosen = longest[begin : begin + self.most]
                found = self._chunk([jobs[j] for j in chosen])
                done.theta[chosen], done.loss[chosen] = found

    def _chunk(self, jobs: list[Job]) -> tuple[np.ndarray, np.ndarray]:
        """Train clients, longest first; return their models and losses."""
        n = len(jobs)
        runner = self._runner(n)
        stack = runner.stack
        start = np.stack([job.start for job in jobs])
        anchors = None
        if self.spec.proximal:
            anchors = np.stack([job.anchor for job in jobs])
        rates = np.array([job.spec.lr for job in jobs])
        stack.load(start, rates, self._schedule(jobs), anchors)

        trained = torch.empty(start.shape, dtype=self.dtype, device=self.device)
        sizes = np.array([len(job.samples) for job in jobs])
        steps = self._steps(sizes)
        begin = 0
        for end in np.unique(steps).tolist():
            a = int((steps >= end).sum())
            runner.run(begin, end, a)
            # Who has finished is taken out: the rows may be used to fill up.
            left = int((steps > end).sum())
            trained[left:a] = stack.rows(left, a)
            begin = end
        return trained.cpu().numpy(), stack.losses(n).cpu().numpy() / sizes

    def _runner(self, n: int) -> Runner:
        """Return what runs the steps of n clients; its memory is kept for the next."""
        if self.runner is None or self.runner.stack.n < n:
            self.runner = None  # frees the memory
            stack = Stack(
                self.step,
                [shape for _, shape in self.model.shapes],
                [shape for shape, _ in self.model.dropout],
                *(n, self._steps(self.largest), self.batch_size),
            )
            self.runner = Runner(stack, self.way)
        return self.runner

    def _steps(self, sizes):
        """Return how many steps clients with so many samples take."""
        return -(-sizes // self.batch_size) * self.spec.local_epochs

    def _schedule(self, jobs: list[Job]) -> list[np.ndarray]:
        """Return all batches of clients, those with most samples first.

        These are the arrays of :meth:`Stack.load`.
        """
        epochs = self.spec.local_epochs
        size = self.batch_size
        sizes = np.array([len(job.samples) for job in jobs])
        steps = self._steps(sizes)
        per_epoch = steps // epochs

        shape = (int(steps[0]), len(jobs), size)
        index = np.zeros(shape, dtype=np.int64)
        weight = np.zeros(shape, dtype=self.spec.dtype)
        counted = np.zeros(shape, dtype=self.spec.dtype)
        keep = [np.zeros((*shape, *mask), bool) for mask, _ in self.model.dropout]
        for j, job in enumerate(jobs):
            for epoch in range(epochs):
                part = slice(epoch * per_epoch[j], (epoch + 1) * per_epoch[j])
                samples, own, *masks = self._epoch(job, epoch)
                # Filling up with a sample of the client's keeps every number finite.
                index[part, j] = _filled(samples, size, samples[0])
                weight[part, j] = _filled(own, size, 0)
                for array, mask in zip(keep, masks, strict=True):
                    array[part, j] = _filled(mask, size, False)
            last = slice(steps[j] - per_epoch[j], steps[j])
            counted[last, j] = weight[last, j]

        ends = np.arange(1, len(index) + 1)[:, None]
        short = sizes - (per_epoch - 1) * size
        true_size = np.where(ends % per_epoch == 0, short, size)
        rates = np.array([job.spec.lr for job in jobs])
        factor = weight * (rates / true_size)[..., None].astype(self.spec.dtype)
        return [index, factor, counted, *keep]

    def _epoch(self, job: Job, epoch: int) -> list[np.ndarray]:
        """Return samples, weights and masks of a client's epoch, in its order."""
        n = len(job.samples)
        keys = job.round, job.client, epoch, n
        sequence = order(job.spec, *keys)
        own = np.ones(n) if job.weights is None else job.weights[sequence]
        masks = keep_masks(job.spec, self.model, *keys)
        return [job.samples[sequence], own, *masks]


def joined(feds: Sequence[Federation]) -> tuple[Samples, list[int]]:
    """Return the samples of federations in one pool, and where each one's begin.

    Samples that federations share, such as those of one image set, are there once.
    """
    first: list[int] = []
    begin: dict[tuple[int, int], int] = {}
    parts: list[Samples] = []
    end = 0
    for fed in feds:
        held = id(fed.images), id(fed.labels)
        if held not in begin:
            begin[held] = end
            end += len(fed.images)
            parts.append(Samples.of(fed))
        first.append(begin[held])
    if len(parts) == 1:
        return parts[0], first
    images = np.concatenate([part.images for part in parts])
    labels = np.concatenate([part.labels for part in parts])
    return replace(parts[0], images=images, labels=labels, splits={}), first


def _filled(values: np.ndarray, size: int, filler) -> np.ndarray:
    """Return an epoch as batches (steps, size, ...), the last one filled up."""
    n = -(-len(values) // size)
    out = np.full((n * size, *values.shape[1:]), filler, dtype=values.dtype)
    out[: len(values)] = values
    return out.reshape(n, size, *values.shape[1:])
