"""One step of local SGD of many clients, as a function of its arguments.

:class:`Step` holds what never changes; calling it takes a step. It reads samples by
their positions, changes the weights and velocities that it is given, in place, and
nothing else. So the same function runs as it stands, compiled, and as a CUDA graph
(:mod:`fltnb.training.runner`).

Clients lie along the first dimension of weights. Convolutions take *parts*: groups of
clients whose channels lie side by side. All clients are one part (a convolution with a
group per client), or where a client fills the device alone each is a part of its own,
with channels last in memory.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional

from ..models import POOL, Conv, Model, Stage
from .contract import TrainSpec
from .devices import check_room, free_memory
from .gradients import convolution_gradients, pool_backward, relu_backward
from .samples import Samples

# Bytes of inputs that are kept as floats; more are kept as the images' bytes.
HELD = {"cpu": 2**28, "cuda": 2**32}
HELD_SHARE = 0.25  # of a GPU's free memory, at most


class Batch(NamedTuple):
    """Samples of one step of ``a`` clients, B each.

    Attributes
    ----------
    index : int64 (a, B), positions in the pool of samples
    factor : (a, B), a sample's weight times its client's learning rate, divided by the
        true size of its batch; 0 where a batch is filled up
    masks : bool (a, B, ...), what every dropout keeps
    """

    index: torch.Tensor
    factor: torch.Tensor
    masks: Sequence[torch.Tensor]


class State(NamedTuple):
    """What local training changes, a tensor (n, ...) per parameter of the network.

    ``velocities``: momentum buffers times the learning rate; ``starts``: the weights
    before local training, for FedProx. Both are empty where nobody needs them.
    ``rates``: learning rates (n,), which stay as they are.
    """

    values: Sequence[torch.Tensor]
    velocities: Sequence[torch.Tensor]
    starts: Sequence[torch.Tensor]
    rates: torch.Tensor

    def first(self, a: int) -> "State":
        """Return the first ``a`` clients' part, as views."""
        *every, rates = self
        return State(*[[tensor[:a] for tensor in part] for part in every], rates[:a])

    def tensors(self) -> list[torch.Tensor]:
        """Return all tensors that a step changes."""
        return [*self.values, *self.velocities]


class Pool:
    """Samples on the device, of one federation or of several.

    Inputs are kept as floats where they are few; else pixels are, and what each of the
    256 values stands for. FltnbError: a GPU has not enough memory for them.
    """

    def __init__(
        self, samples: Samples, dtype: torch.dtype, device: torch.device
    ) -> None:
        n = len(samples.flat)
        self.shape = tuple(samples.input_shape)
        self.labels = samples.classes.to(device)
        self.inputs = self.pixels = None
        room = min(HELD[device.type], HELD_SHARE * free_memory(device))
        if n * samples.flat[0].numel() * dtype.itemsize <= room:
            every = samples.inputs(np.arange(n), dtype).contiguous()
            self.inputs = every.to(device)
            return
        what = "The federation's samples take"
        check_room(samples.flat.nbytes, device, what, "device 'cpu'")
        self.pixels = samples.flat.to(device)
        self.dtype = dtype
        if samples.flat.dtype == torch.uint8:
            self.meaning = _meaning(samples).to(device, dtype)
            self.channel = torch.arange(self.shape[0], device=device)[:, None, None]

    def take(self, index: torch.Tensor) -> torch.Tensor:
        """Return the inputs (*index.shape, C, H, W) of some positions."""
        if self.inputs is not None:
            return self.inputs[index]
        c, h, w = self.shape
        raw = self.pixels[index].view(*index.shape, h, w, c).movedim(-1, -3)
        if raw.dtype == torch.uint8:
            return self.meaning[raw.int() * c + self.channel]
        return raw.to(self.dtype)


def _meaning(samples: Samples) -> torch.Tensor:
    """Return the inputs of the 256 pixel values, for each the channels' one by one.

    They are computed here, as a GPU might round otherwise.
    """
    c = samples.input_shape[0]
    grey = np.repeat(np.arange(256, dtype=np.uint8)[:, None], c, axis=1)
    labels = np.zeros(256, np.int64)
    pixels = Samples(grey, labels, {}, (c, 1, 1), samples.mean, samples.std)
    values = torch.empty(256, c, 1, 1)
    pixels.fill(np.arange(256), values)
    return values.flatten()


class _Seen(NamedTuple):
    """What the way back needs of a stage; lists have a tensor for every part."""

    x: torch.Tensor | list[torch.Tensor]
    weight: torch.Tensor | list[torch.Tensor]
    raw: list[torch.Tensor]  # before pooling
    winners: list[torch.Tensor]  # of pooling
    out: torch.Tensor | list[torch.Tensor]
    mask: torch.Tensor | list[torch.Tensor] | None


class Step:
    """A step of local training.

    Parameters
    ----------
    model : Model
        A network of layers that the package knows.
    spec : TrainSpec
        Its seed and its learning rate do not matter: each client has its own.
    pool : Pool
        Inputs in the type that the first layer computes in.
    apart : bool
        Whether every client's convolutions are a part of their own.
    frozen : {"head", "body"}, optional
        Parameters that stay as they are.
    """

    def __init__(
        self,
        model: Model,
        spec: TrainSpec,
        pool: Pool,
        apart: bool,
        frozen: str | None = None,
    ) -> None:
        n = 2 * len(model.stages)
        stays = {None: range(0), "head": range(n - 2, n), "body": range(n - 2)}
        self.frozen = stays[frozen]
        self.stages = model.stages
        self.n_convolutions = sum(isinstance(one.linear, Conv) for one in model.stages)
        self.scales = [1 / (1 - p) for _, p in model.dropout]
        self.spec = spec
        self.dtype = getattr(torch, spec.dtype)
        self.pool = pool
        self.apart = apart
        self.format = torch.channels_last if apart else torch.contiguous_format
        device = pool.labels.device
        self.minus_one = torch.full((1, 1, 1), -1.0, dtype=self.dtype, device=device)

    def __call__(self, state: State, batch: Batch) -> torch.Tensor:
        """Take a step of the first ``a`` clients of a state.

        Returns
        -------
        (a, B), the log-probability of every sample's class before the step
        """
        state = state.first(len(batch.index))
        y = self.pool.labels[batch.index].unsqueeze(2)
        logits, tape = self.forward(state.values, batch)
        log = torch.log_softmax(logits, 2)

        # The gradient of the mean loss times the learning rate: probabilities, less 1
        # for the true class.
        d = log.exp().scatter_add_(2, y, self.minus_one.expand(y.shape))
        d.mul_(batch.factor.unsqueeze(2))
        kept = [state.values[k].clone() for k in self.frozen]
        self._descend(state, tape, d)
        for k, value in zip(self.frozen, kept, strict=True):
            state.values[k].copy_(value)
        return log.gather(2, y).squeeze(2)

    def forward(
        self, values: Sequence[torch.Tensor], batch: Batch
    ) -> tuple[torch.Tensor, list[_Seen]]:
        """Return the logits (a, B, K) of a batch, and what the way back needs."""
        stages = list(zip(self.stages, values[::2], values[1::2], strict=True))
        a = len(batch.index)
        tape = []
        parts = self._parts(batch.index)
        for stage, weight, bias in stages[: self.n_convolutions]:
            mask = self._mask(stage, batch)
            if mask is not None:
                mask = self._split(mask)
            seen = self._convolve(stage, parts, weight, bias, mask)
            tape.append(seen)
            parts = seen.out

        x = self._joined(parts, a)
        for stage, weight, bias in stages[self.n_convolutions :]:
            mask = self._mask(stage, batch)
            out = torch.bmm(x, weight.transpose(1, 2)).add_(bias.unsqueeze(1))
            if mask is not None:
                out.mul_(mask)
            if stage.relu:
                out.relu_()
            tape.append(_Seen(x, weight, [], [], out, mask))
            x = out
        return x, tape

    def _parts(self, index: torch.Tensor) -> list[torch.Tensor]:
        """Return the inputs of a batch in parts, (B, clients * C, H, W) each."""
        if not self.n_convolutions:
            return [self.pool.take(index)]
        if not self.apart:
            return [self.pool.take(index.t().contiguous()).flatten(1, 2)]
        x = self.pool.take(index).flatten(0, 1).contiguous(memory_format=self.format)
        return list(x.split(index.shape[1]))

    def _split(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return (a, B, C, ...) in parts."""
        if self.apart:
            return list(x.unbind(0))
        return [x.transpose(0, 1).flatten(1, 2)]

    def _joined(self, parts: list[torch.Tensor], a: int) -> torch.Tensor:
        """Return parts as what dense layers take, (a, B, features)."""
        if not self.n_convolutions:
            return parts[0].flatten(2)
        if self.apart:
            return torch.stack([part.flatten(1) for part in parts]).to(self.dtype)
        x = parts[0].unflatten(1, (a, -1)).transpose(0, 1)
        return x.flatten(2).to(self.dtype)

    def _mask(self, stage: Stage, batch: Batch) -> torch.Tensor | None:
        """Return a stage's dropout mask, scaled, if it has one."""
        if stage.dropout is None:
            return None
        keep = batch.masks[stage.dropout]
        return keep.to(self.dtype).mul_(self.scales[stage.dropout])

    def _convolve(
        self,
        stage: Stage,
        parts: list[torch.Tensor],
        weight: torch.Tensor,
        bias: torch.Tensor,
        mask: list[torch.Tensor] | None,
    ) -> _Seen:
        """Convolve, pool, add the bias, drop and cut off below zero.

        The bias comes after the pooling, where a quarter of the numbers are left.
        """
        a, outputs = bias.shape
        clients = a // len(parts)
        # The weights of all clients take on the type and order of the kernels at once.
        weight = weight.flatten(0, 1)
        weight = weight.to(self.spec.kernels, memory_format=self.format)
        weights = list(weight.split(clients * outputs))
        biases = bias.view(len(parts), clients * outputs, 1, 1).unbind(0)

        raws, winners, outs = [], [], []
        for p, x in enumerate(parts):
            padding = stage.linear.padding
            z = functional.conv2d(x, weights[p], padding=padding, groups=clients)
            if stage.pool:
                raws.append(z)
                z, places = functional.max_pool2d(z, POOL, return_indices=True)
                winners.append(places)
            z.add_(biases[p])
            if mask is not None:
                z.mul_(mask[p])
            if stage.relu:
                z.relu_()
            outs.append(z)
        return _Seen(parts, weights, raws, winners, outs, mask)

    def _descend(self, state: State, tape: list[_Seen], d: torch.Tensor) -> None:
        """Go back through all stages, and take the step of SGD.

        Gradients are those of ``d``, which has the learning rates in it. The gradient
        of a dense layer's weights is no tensor of its own: the product that makes it
        adds it to where it belongs.
        """
        targets, keep, step = state.values, 1.0, -1.0
        if self.spec.momentum:
            targets, keep, step = state.velocities, self.spec.momentum, 1.0

        changed: list[torch.Tensor] = []
        gradients: list[torch.Tensor] = []
        for k in reversed(range(self.n_convolutions, len(self.stages))):
            seen = tape[k]
            d = _before_activation(self.stages[k], d, seen.out, seen.mask)
            below = torch.bmm(d, seen.weight) if k else None
            self._decay(state, targets[2 * k : 2 * k + 1])
            targets[2 * k].baddbmm_(d.transpose(1, 2), seen.x, beta=keep, alpha=step)
            changed.append(targets[2 * k + 1])
            gradients.append(d.sum(1))
            d = below

        if self.n_convolutions:
            parts = self._split_features(d, tape[self.n_convolutions - 1])
            for k in reversed(range(self.n_convolutions)):
                parts, weight, bias = self._convolve_back(k, parts, tape[k])
                changed += targets[2 * k : 2 * k + 2]
                gradients += [
                    weight.view_as(targets[2 * k]),
                    bias.view_as(targets[2 * k + 1]),
                ]

        self._decay(state, changed)
        if keep != 1:
            torch._foreach_mul_(changed, keep)
        torch._foreach_add_(changed, gradients, alpha=step)
        self._pull(state)

    def _decay(self, state: State, values: Sequence[torch.Tensor]) -> None:
        """Take weight decay and FedProx's pull off weights that step by themselves.

        With momentum, :meth:`_pull` does it.
        """
        pull = self.spec.weight_decay + self.spec.proximal
        if pull and not self.spec.momentum:
            for value in values:
                value.mul_(_along(1 - pull * state.rates, value))

    def _pull(self, state: State) -> None:
        """Add what is left of weight decay, of FedProx's pull and of momentum."""
        spec = self.spec
        rates = state.rates
        if not spec.momentum:
            if spec.proximal:
                _add(state.values, state.starts, rates, spec.proximal)
            return
        pull = spec.weight_decay + spec.proximal
        if pull:
            _add(state.velocities, state.values, rates, pull)
        if spec.proximal:
            _add(state.velocities, state.starts, rates, -spec.proximal)
        torch._foreach_sub_(state.values, state.velocities)

    def _split_features(self, d: torch.Tensor, seen: _Seen) -> list[torch.Tensor]:
        """Return the gradient (a, B, features) in the form of a convolution's parts."""
        shape = seen.out[0].shape
        d = d.to(self.spec.kernels)
        if not self.apart:
            return [d.transpose(0, 1).reshape(shape)]
        return [
            one.view(shape).contiguous(memory_format=self.format) for one in d.unbind(0)
        ]

    def _convolve_back(
        self, k: int, parts: list[torch.Tensor], seen: _Seen
    ) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
        """Return the gradients of a convolution's inputs, weights and biases."""
        stage = self.stages[k]
        conv = stage.linear
        below, weights, biases = [], [], []
        for p, d in enumerate(parts):
            mask = None if seen.mask is None else seen.mask[p]
            d = _before_activation(stage, d, seen.out[p], mask)
            biases.append(d.sum((0, 2, 3), dtype=self.dtype))
            if stage.pool:
                d = pool_backward(d, seen.raw[p], seen.winners[p])
            groups = len(biases[p]) // conv.outputs
            given = d, seen.x[p], seen.weight[p]
            d_x, d_weight, _ = convolution_gradients(
                conv, *given, groups, inputs=k > 0, biases=False
            )
            below.append(d_x)
            weights.append(d_weight)
        return below, _cat(weights).to(self.dtype), _cat(biases)


def _along(rates: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return a number a client (a,) in the form of its weights."""
    return rates.view(-1, *[1] * (like.ndim - 1))


def _add(
    targets: Sequence[torch.Tensor],
    others: Sequence[torch.Tensor],
    rates: torch.Tensor,
    factor: float,
) -> None:
    """Add ``factor`` times each client's rate of others to weights."""
    for target, other in zip(targets, others, strict=True):
        target.addcmul_(other, _along(rates, other), value=factor)


def _before_activation(
    stage: Stage,
    d: torch.Tensor,
    out: torch.Tensor,
    mask: torch.Tensor | None,
) -> torch.Tensor:
    """Take a gradient back through ReLU and mask."""
    if stage.relu:
        d = relu_backward(d, out, 0)
    return d if mask is None else (d * mask).to(d.dtype)


def _cat(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)  # else a copy
