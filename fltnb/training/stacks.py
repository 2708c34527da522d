"""Local training of many clients as one batch, for all methods.

The weights of all clients are arranged along a leading dimension. Clients are sorted by
number of steps, most first, so the clients that still train are always the first ``a``
of the stack; finished ones are left out by slicing. A short last batch is padded with
samples of weight zero and divided by its true size. The stack is cut into chunks that
fit into memory.

Clients of several runs may train in one stack (:func:`alike` says which runs): each
has its samples, its learning rate and the seed of its draws.

From the outside in, there are :class:`Stacks` (one pool of samples), :class:`Training`
(one way to train on it), a chunk of clients in a :class:`~fltnb.training.runner.Stack`
(their weights and batches on the device) and its steps. In shapes, n is the number of
clients in a chunk, P that of a model's parameters and B that of samples in a batch.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from ..federations import Federation
from ..models import Conv, Model
from .contract import Trained, TrainSpec, Variation, keep_masks, longest_first, order
from .devices import check_room, free_memory
from .runner import Runner, Schedule, Stack, Way, chosen
from .samples import Samples
from .serial import exact
from .step import Pool, Step

CPU_BYTES = 2**30  # memory for one chunk on a CPU
GPU_SHARE = 0.5  # of the free memory
POOL_SHARE = 0.25  # of the free memory, for samples of runs that train together
# Number of products in a client's batch from which on its convolution runs alone: see
# docs/engine.md.
APART = 1e9


def clients_at_a_time(numbers: int, spec: TrainSpec, device: torch.device) -> int:
    """Return how many clients of so many numbers each fit into memory, one at least.

    Raises
    ------
    FltnbError
        A GPU does not have enough memory for one client.
    """
    bytes_of_one = numbers * np.dtype(spec.dtype).itemsize
    room: float = CPU_BYTES
    if device.type == "cuda":
        mend = "a smaller batch_size, or device 'cpu'"
        check_room(bytes_of_one, device, "One client takes", mend)
        room = GPU_SHARE * free_memory(device)
    return max(1, int(room // bytes_of_one))


def alike(fed: Federation, model: Model, spec: TrainSpec) -> Hashable:
    """Return what must be equal of runs whose clients train in one stack.

    These are the network, local training except for seed and learning rate, and how
    samples are stored and scaled. (Seed and learning rate are arrays of a stack, with a
    value for each client; all else is part of its program.)

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
    network = (model.name, tuple(model.input_shape), model.n_classes)
    local_training = replace(spec, seed=0, lr=0.0)
    samples = (fed.images.dtype.str, fed.images.shape[1:])
    scaling = (tuple(np.ravel(fed.mean)), tuple(np.ravel(fed.std)))
    return network, local_training, samples, scaling


def fitting(feds: Sequence[Federation], device: torch.device) -> int:
    """Return of how many federations, from the first on, the samples fit together.

    It is at least one. Images that federations share are counted once.
    """
    room: float = CPU_BYTES
    if device.type == "cuda":
        room = POOL_SHARE * free_memory(device)
    bytes_of = {}  # of each array of images
    for n_before, fed in enumerate(feds):
        bytes_of[id(fed.images)] = fed.images.nbytes
        if sum(bytes_of.values()) > room:
            return max(1, n_before)
    return len(feds)


class Job(NamedTuple):
    """Local training of one client.

    Attributes
    ----------
    start : ndarray, shape (P,)
        Its model before; only read, as several jobs may share it.
    samples : ndarray of int64, shape (n,)
        Positions in the pool.
    spec : TrainSpec
        Of its run: seed and learning rate.
    client, round : int
        Keys of its draws.
    weights : ndarray, shape (n,), or None
        Factors on the losses of its samples.
    anchor : ndarray, shape (P,)
        The model to which FedProx's term pulls.
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
    way : str
        How steps run, one of :data:`fltnb.training.runner.WAYS`.

    Attributes
    ----------
    pool : Pool
        The samples of all federations.
    first : list of int
        Where among them each federation's begin.
    largest : int
        The largest number of training samples of a client.
    trainings : dict
        The trainings requested so far: :meth:`training`.
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
        # The first layer's type: only convolutions may compute in bfloat16.
        dtype = getattr(torch, spec.dtype)
        if model.convolutional:
            dtype = spec.kernels
        self.pool = Pool(samples, dtype, device)
        self.largest = 0
        for fed in feds:
            for index in fed.train:
                self.largest = max(self.largest, len(index))
        self.trainings: dict[Hashable, Training] = {}

    def training(self, how: Variation) -> "Training":
        """Return the training of calls that do something otherwise; it is kept."""
        # Anchors are no part of the key: they are data of each client.
        spec = how.applied(self.spec)
        key = (spec.local_epochs, spec.proximal, how.frozen)
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
    frozen : {"head", "body"} or None
        Parameters that stay as they are.

    Attributes
    ----------
    batch_size : int
        That of the settings, or the samples of the largest client if it has fewer.
    most : int
        Clients that train at a time.
    runner : Runner or None
        What ran the last chunk. The next one uses its memory and its graphs.
    """

    def __init__(self, stacks: Stacks, spec: TrainSpec, frozen: str | None) -> None:
        self.model = stacks.model
        self.spec = spec
        self.device = stacks.device
        self.dtype = getattr(torch, spec.dtype)
        self.way = stacks.way
        self.largest = stacks.largest
        self.batch_size = min(spec.batch_size, stacks.largest)
        products = spec.batch_size * _products(stacks.model)
        apart = products >= APART
        self.step = Step(stacks.model, spec, stacks.pool, apart, frozen)
        self.most = self._most()  # while the stack's own memory is still free
        self.runner: Runner | None = None

    def _most(self) -> int:
        """Return how many clients train at a time, by a model of their memory."""
        spec = self.spec
        copies = 2  # weights and gradients
        if spec.momentum:
            copies += 1
        if spec.proximal:
            copies += 1
        if self.way != "eager":
            copies += 4  # of the first step's comparison
        numbers = copies * self.model.n_parameters

        # Of one step only: what it keeps for the backward pass, and the gradients.
        activations = sum(math.prod(shape) for shape in self.model.activations)
        numbers += 4 * spec.batch_size * activations

        # Of all steps, as the whole schedule lies on the device: of every sample that
        # is met position, factor, weight and loss, for which 8 numbers are plenty, and
        # masks of a byte each.
        masks = sum(math.prod(shape) for shape, _ in self.model.dropout)
        met = self._steps(self.largest) * self.batch_size
        numbers += met * (8 + masks // 4)
        return clients_at_a_time(numbers, spec, self.device)

    def train(self, jobs: Sequence[Job], done: Trained) -> None:
        """Train clients and fill ``done``, in the order of the jobs."""
        longest = longest_first([len(job.samples) for job in jobs])
        with torch.inference_mode(), exact(self.device, 1):
            for begin in range(0, len(jobs), self.most):
                chosen = longest[begin : begin + self.most]
                models, losses = self._chunk([jobs[j] for j in chosen])
                done.theta[chosen] = models
                done.loss[chosen] = losses

    def _chunk(self, jobs: list[Job]) -> tuple[np.ndarray, np.ndarray]:
        """Train n clients, longest first, in a stack.

        Returns
        -------
        models : ndarray, shape (n, P)
        losses : ndarray, shape (n,)
            Mean losses of the last local epochs.
        """
        n = len(jobs)
        runner = self._runner(n)
        stack = runner.stack
        start = np.stack([job.start for job in jobs])
        rates = np.array([job.spec.lr for job in jobs])
        stack.load(start, rates, self._schedule(jobs))
        if self.spec.proximal:
            stack.pull_to(np.stack([job.anchor for job in jobs]))

        # Three clients with 5, 5 and 2 steps: steps 0 and 1 for all three, then the
        # last one is taken out, then steps 2 to 4 for the first two. Here `end` is 2,
        # then 5; of the 3 at work until 2, 2 go on; of these 2, none goes on after 5.
        trained = torch.empty(start.shape, dtype=self.dtype, device=self.device)
        sizes = np.array([len(job.samples) for job in jobs])
        steps = self._steps(sizes)
        begin = 0
        for end in np.unique(steps).tolist():
            at_work = int((steps >= end).sum())
            runner.run(begin, end, at_work)
            # Finished clients are removed: their rows may be used as padding.
            go_on = int((steps > end).sum())
            trained[go_on:at_work] = stack.rows(go_on, at_work)
            begin = end
        losses = stack.losses(n).cpu().numpy() / sizes
        return trained.cpu().numpy(), losses

    def _runner(self, n: int) -> Runner:
        """Return what runs the steps of n clients; its memory is kept for the next.

        It has room for the most steps that any client takes, so it fits all clients
        and only grows with their number.
        """
        if self.runner is not None and self.runner.stack.n >= n:
            return self.runner

        self.runner = None  # frees the memory
        stack = Stack(
            self.step,
            shapes=[shape for _, shape in self.model.shapes],
            masks=[shape for shape, _ in self.model.dropout],
            n=n,
            steps=self._steps(self.largest),
            size=self.batch_size,
        )
        self.runner = Runner(stack, self.way)
        return self.runner

    def _steps(self, sizes):
        """Return how many steps clients with so many samples take.

        ``sizes``: a number, or an array of them.
        """
        return _batches(sizes, self.batch_size) * self.spec.local_epochs

    def _schedule(self, jobs: list[Job]) -> Schedule:
        """Return all batches of clients, those with most samples first.

        Of two clients with samples a, b, c and d, e, two epochs in batches of 2::

            step        0     1     2     3
            client 0    b c   a .   c a   b .
            client 1    e d   d e

        A point is the place of a sample that fills the batch up. What stands behind the
        end of client 1 is never read, because the client has finished then.
        """
        steps = self._steps(len(jobs[0].samples))
        schedule = self._empty(steps, len(jobs))
        for j, job in enumerate(jobs):
            for epoch in range(self.spec.local_epochs):
                self._fill(schedule, j, job, epoch)
        scales = self._scales(jobs, steps)
        factor = schedule.factor * scales[:, :, None]  # (steps, n, B)
        return schedule._replace(factor=factor)

    def _empty(self, steps: int, n: int) -> Schedule:
        """Return room for so many steps of n clients, all zeros.

        Clients with fewer steps leave zeros behind their end.
        """
        shape = (steps, n, self.batch_size)
        dtype = self.spec.dtype
        masks = []
        for of_sample, _ in self.model.dropout:
            masks.append(np.zeros((*shape, *of_sample), dtype=bool))
        return Schedule(
            index=np.zeros(shape, dtype=np.int64),
            factor=np.zeros(shape, dtype=dtype),
            counted=np.zeros(shape, dtype=dtype),
            masks=masks,
        )

    def _fill(self, schedule: Schedule, j: int, job: Job, epoch: int) -> None:
        """Write the batches of one epoch of client j.

        The factors written are the samples' weights: 0 where a batch is filled up, so
        those samples have no gradient. With 5 steps an epoch, epoch 1 has steps 5 to 9.
        """
        size = self.batch_size
        n_steps = _batches(len(job.samples), size)
        begin = epoch * n_steps
        steps = slice(begin, begin + n_steps)

        samples, weights, masks = self._epoch(job, epoch)
        # Padding with a sample of the client keeps every number finite: a factor of 0
        # would not cancel an infinite one, as 0 times infinity is NaN.
        schedule.index[steps, j] = _filled(samples, size, samples[0])
        schedule.factor[steps, j] = _filled(weights, size, 0)
        for array, mask in zip(schedule.masks, masks, strict=True):
            array[steps, j] = _filled(mask, size, False)
        if epoch == self.spec.local_epochs - 1:
            schedule.counted[steps, j] = schedule.factor[steps, j]

    def _scales(self, jobs: list[Job], steps: int) -> np.ndarray:
        """Return each client's rate over the true size of its batches, (steps, n).

        A step adds gradients up over a batch, so this makes of their sum the mean,
        times the learning rate.

        The last batch of an epoch is the short one. With 23 samples, 10 a batch, sizes
        are 10, 10, 3, 10, 10, 3 in two epochs. Division here and not in the step: the
        quotient is taken in float64 and rounded once.
        """
        size = self.batch_size
        sizes = np.array([len(job.samples) for job in jobs])
        per_epoch = _batches(sizes, size)
        of_last = sizes - (per_epoch - 1) * size
        step = np.arange(1, steps + 1)[:, None]  # counted from 1
        ends_epoch = step % per_epoch == 0  # (steps, n)
        true_size = np.where(ends_epoch, of_last, size)
        rates = np.array([job.spec.lr for job in jobs])
        return (rates / true_size).astype(self.spec.dtype)

    def _epoch(
        self, job: Job, epoch: int
    ) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Draw the order of a client's epoch, and return what it meets in that order.

        Returns
        -------
        samples : ndarray of int64, shape (n,)
            Positions in the pool.
        weights : ndarray, shape (n,)
            Factors on the losses.
        masks : list of bool ndarrays, shapes (n, ...)
            What each dropout keeps.
        """
        n = len(job.samples)
        sequence = order(job.spec, job.round, job.client, epoch, n)
        own = np.ones(n)
        if job.weights is not None:
            own = job.weights[sequence]
        masks = keep_masks(job.spec, self.model, job.round, job.client, epoch, n)
        return job.samples[sequence], own, masks


def _products(model: Model) -> int:
    """Return how many products the largest convolution takes for a sample.

    5 x 5 weights on 1 channel that give 6 x 24 x 24 outputs take 25 products for each
    output, 86,400 in all.
    """
    largest = 0
    for layer, shape in zip(model.layers, model.activations, strict=True):
        if isinstance(layer, Conv):
            of_output = layer.inputs * layer.kernel**2
            n_outputs = math.prod(shape)
            largest = max(largest, of_output * n_outputs)
    return largest


def _batches(sizes, batch_size: int):
    """Return how many batches so many samples make, a short last one included.

    ``sizes``: a number, or an array of them. 23 samples make 3 batches of 10.
    """
    return -(-sizes // batch_size)  # rounded up


def joined(feds: Sequence[Federation]) -> tuple[Samples, list[int]]:
    """Return the samples of federations in one pool, and where each one's begin.

    Samples that federations share, such as those of one image set, are there once. Of
    three federations with 100 samples, 50 others, and the first 100 again, the pool has
    150, and they begin at 0, 100 and 0.
    """
    first: list[int] = []
    begins: dict[tuple[int, int], int] = {}  # of each pair of images and labels
    parts: list[Samples] = []
    end = 0
    for fed in feds:
        pair = (id(fed.images), id(fed.labels))
        if pair not in begins:
            begins[pair] = end
            end += len(fed.images)
            parts.append(Samples.of(fed))
        first.append(begins[pair])
    if len(parts) == 1:
        return parts[0], first
    images = np.concatenate([part.images for part in parts])
    labels = np.concatenate([part.labels for part in parts])
    # Splits index one federation's own samples, so the pool has none.
    return replace(parts[0], images=images, labels=labels, splits={}), first


def _filled(values: np.ndarray, size: int, filler) -> np.ndarray:
    """Return an epoch as batches (steps, size, ...), the last one filled up.

    ``values`` (n, ...): of its samples, in its order. Of [4, 0, 3] in batches of 2,
    filled with 9, come [[4, 0], [3, 9]].
    """
    n = len(values)
    of_sample = values.shape[1:]
    steps = _batches(n, size)
    out = np.full((steps * size, *of_sample), filler, dtype=values.dtype)
    out[:n] = values
    return out.reshape(steps, size, *of_sample)
