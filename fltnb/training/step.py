"""One step of local SGD of many clients, as a function of its arguments.

:class:`Step` holds what never changes; calling it takes a step. It reads samples by
their positions, and changes the given weights and velocities in place, and nothing
else. So the same function can run plain, compiled, or as a CUDA graph
(:mod:`fltnb.training.runner`).

Clients lie along the first dimension of weights. Convolutions take *parts*: groups of
clients whose channels lie side by side. All clients are one part (a convolution with a
group per client), or where a client fills the device alone each is a part of its own,
with channels last in memory. Two clients with images of 3 channels, as one part: its
inputs have 6 channels, 0 to 2 the first client's and 3 to 5 the second's.

Parameters are in the order of the network's stages, weight before bias: those of stage
k stand at the positions 2 k and 2 k + 1.

In shapes, ``a`` is the number of clients, B of samples of each, and a part has
``clients`` of the a clients. Features, C, H and W are those of one client's sample.

All arithmetic that depends on a client's learning rate takes it from a tensor (a,), so
clients with different rates share a step.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from ..models import POOL, Conv, Model, Stage
from .contract import TrainSpec
from .devices import check_room, free_memory
from .gradients import before_activation, convolution_gradients, pool_backward
from .samples import Samples

# Bytes of inputs that are kept as floats; more are kept as the images' bytes.
HELD = {"cpu": 2**28, "cuda": 2**32}
HELD_SHARE = 0.25  # largest share of a GPU's free memory


class Batch(NamedTuple):
    """Samples of one step of ``a`` clients, B each.

    Attributes
    ----------
    index : int64 (a, B), positions in the pool of samples
    factor : (a, B), a sample's weight times its client's learning rate, divided by the
        true size of its batch; 0 where a batch is filled up
    masks : bool (a, B, ...), what every dropout keeps
    """

    index: torch.Tensor  # type: ignore[assignment]  # hides the tuple's index()
    factor: torch.Tensor
    masks: Sequence[torch.Tensor]


class State(NamedTuple):
    """What local training changes, a tensor (n, ...) per parameter of the network.

    ``velocities``: momentum buffers times the learning rate; ``starts``: the weights
    before local training, for FedProx. Both are empty if they are not needed.
    ``rates``: learning rates (n,), which stay as they are.
    """

    values: list[torch.Tensor]
    velocities: list[torch.Tensor]
    starts: list[torch.Tensor]
    rates: torch.Tensor

    def first(self, a: int) -> "State":
        """Return the first ``a`` clients' part, as views."""
        return State(
            values=_first(self.values, a),
            velocities=_first(self.velocities, a),
            starts=_first(self.starts, a),
            rates=self.rates[:a],
        )

    def tensors(self) -> list[torch.Tensor]:
        """Return all tensors that a step changes."""
        return [*self.values, *self.velocities]


def _first(tensors: Sequence[torch.Tensor], a: int) -> list[torch.Tensor]:
    """Return views (a, ...) of tensors (n, ...)."""
    return [tensor[:a] for tensor in tensors]


class Pool:
    """Samples on the device, of one federation or of several.

    Inputs are kept as floats where they are few; else pixels are, and what each of the
    256 values stands for.

    Attributes
    ----------
    labels : int64 (n,)
    inputs : (n, C, H, W) in the type that the network takes, or None
    pixels : (n, H * W * C) as the federation has them, or None
    meaning : (256 * C,), where pixels are bytes
        The input that a value of a channel stands for, as :func:`_meaning` says.
    channel : int64 (C, 1, 1), where pixels are bytes
        The number of each channel.

    Raises
    ------
    FltnbError
        A GPU has not enough memory for them.
    """

    def __init__(
        self, samples: Samples, dtype: torch.dtype, device: torch.device
    ) -> None:
        n = len(samples.flat)
        self.shape = tuple(samples.input_shape)
        self.labels = samples.classes.to(device)
        self.inputs: torch.Tensor | None = None
        self.pixels: Any = None
        self.dtype = dtype

        numbers_of_one = samples.flat[0].numel()
        as_floats = n * numbers_of_one * dtype.itemsize  # bytes
        room = min(HELD[device.type], HELD_SHARE * free_memory(device))
        if as_floats <= room:
            every = samples.inputs(np.arange(n), dtype).contiguous()
            self.inputs = every.to(device)
            return

        what = "The federation's samples take"
        check_room(samples.flat.nbytes, device, what, "device 'cpu'")
        self.pixels = samples.flat.to(device)
        if samples.flat.dtype == torch.uint8:
            channels = self.shape[0]
            self.meaning = _meaning(samples).to(device, dtype)
            self.channel = torch.arange(channels, device=device).view(channels, 1, 1)

    def take(self, index: torch.Tensor) -> torch.Tensor:
        """Return the inputs (*index.shape, C, H, W) of some positions."""
        if self.inputs is not None:
            return self.inputs[index]

        c, h, w = self.shape
        raw = self.pixels[index].view(*index.shape, h, w, c)
        raw = raw.movedim(-1, -3)  # channels before lines
        if raw.dtype != torch.uint8:
            return raw.to(self.dtype)
        place = raw.int() * c + self.channel  # as bytes, 255 * 3 would overflow
        return self.meaning[place]


def _meaning(samples: Samples) -> torch.Tensor:
    """Return the inputs (256 * C,) that the 256 pixel values stand for.

    Value v of channel k has the position v * C + k, since every channel has a mean and
    a deviation of its own. With three channels pixel value 2 of channel 1 is at 7.

    They are computed here, by what makes inputs of all samples, as a GPU might round
    otherwise.
    """
    c = samples.input_shape[0]
    values = np.arange(256, dtype=np.uint8)
    images = np.repeat(values[:, None], c, axis=1)  # of one pixel: (256, C)
    labels = np.zeros(256, np.int64)
    pixels = Samples(images, labels, {}, (c, 1, 1), samples.mean, samples.std)
    inputs = torch.empty(256, c, 1, 1)
    pixels.fill(np.arange(256), inputs)
    return inputs.flatten()


class _Seen(NamedTuple):
    """What the backward pass needs of a dense stage.

    ``x``: inputs (a, B, inputs); ``weight``: (a, outputs, inputs), itself and no copy;
    ``out``: activations (a, B, outputs); ``mask``: dropout's, of the same shape.
    """

    x: torch.Tensor
    weight: torch.Tensor
    out: torch.Tensor
    mask: torch.Tensor | None


class _SeenParts(NamedTuple):
    """What the backward pass needs of a convolution: a tensor for every part.

    ``x``: inputs (B, clients * C, H, W); ``weight``: (clients * outputs, C, k, k) in
    the kernels' type; ``raw``: outputs before pooling and ``winners``: the maxima's
    positions, both empty without pooling; ``out``: activations (B, clients * outputs,
    h, w); ``mask``: dropout's, of the same shape.
    """

    x: list[torch.Tensor]
    weight: list[torch.Tensor]
    raw: list[torch.Tensor]
    winners: list[torch.Tensor]
    out: list[torch.Tensor]
    mask: list[torch.Tensor] | None


class _Descent(NamedTuple):
    """Where gradients go: ``target <- keep * target + step * gradient``.

    Without momentum the targets are the weights, else the velocities.

    Attributes
    ----------
    targets : sequence of tensors (a, ...)
        One for each parameter of the network.
    keep, step : float
    waiting, gradients : lists of tensors, of equal length and shapes
        Targets that are changed together in the end, and the gradient of each. A GPU
        takes longer to start an operation on a small tensor than to compute it.
    """

    targets: Sequence[torch.Tensor]
    keep: float
    step: float
    waiting: list[torch.Tensor]
    gradients: list[torch.Tensor]


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
    frozen : {"head", "body"} or None
        Parameters that stay as they are.
    """

    def __init__(
        self,
        model: Model,
        spec: TrainSpec,
        pool: Pool,
        apart: bool,
        frozen: str | None,
    ) -> None:
        self.stages = model.stages
        self.n_convolutions = 0  # they come before all dense stages
        for stage in model.stages:
            if isinstance(stage.linear, Conv):
                self.n_convolutions += 1
        # Inverted dropout: what is kept grows by 1 / (1 - p).
        self.scales = [1 / (1 - p) for _, p in model.dropout]
        self.frozen = _frozen(len(model.stages), frozen)

        self.spec = spec
        self.dtype = getattr(torch, spec.dtype)
        self.pool = pool
        self.apart = apart
        self.format = torch.contiguous_format
        if apart:
            self.format = torch.channels_last
        device = pool.labels.device
        self.minus_one = torch.full((1, 1, 1), -1.0, dtype=self.dtype, device=device)

    def __call__(self, state: State, batch: Batch) -> torch.Tensor:
        """Take a step of the first ``a`` clients of a state.

        Returns
        -------
        (a, B), the log-probability of every sample's class before the step
        """
        a = len(batch.index)
        state = state.first(a)
        y = self.pool.labels[batch.index].unsqueeze(2)  # (a, B, 1)
        logits, tape = self.forward(state.values, batch)
        log = torch.log_softmax(logits, 2)

        # The gradient of cross entropy by the logits is the probabilities, less 1 for
        # the true class. The factor makes it that of the mean loss times the learning
        # rate.
        d = log.exp()
        d.scatter_add_(2, y, self.minus_one.expand(y.shape))
        d.mul_(batch.factor.unsqueeze(2))

        # Frozen parameters take the step as all others do and are put back.
        kept = [state.values[k].clone() for k in self.frozen]
        self._descend(state, tape, d)
        for k, value in zip(self.frozen, kept, strict=True):
            state.values[k].copy_(value)
        return log.gather(2, y).squeeze(2)

    def forward(
        self, values: Sequence[torch.Tensor], batch: Batch
    ) -> tuple[torch.Tensor, list[_Seen | _SeenParts]]:
        """Apply the network of each client to its batch.

        Parameters
        ----------
        values : sequence of tensors (a, ...)
            Weight and bias of every stage.

        Returns
        -------
        logits : tensor, shape (a, B, K)
        tape : list
            What the backward pass needs of each stage.
        """
        weights = values[0::2]
        biases = values[1::2]
        tape: list[Any] = []

        # Convolutions, in parts.
        parts = self._parts(batch.index)
        for k in range(self.n_convolutions):
            stage = self.stages[k]
            mask = self._mask(stage, batch)
            if mask is not None:
                mask = self._split(mask)
            seen = self._convolve(stage, parts, weights[k], biases[k], mask)
            tape.append(seen)
            parts = seen.out

        # Dense stages, where x is (a, B, features): a matrix product per client.
        x = self._joined(parts, len(batch.index))
        for k in range(self.n_convolutions, len(self.stages)):
            stage = self.stages[k]
            mask = self._mask(stage, batch)
            out = torch.bmm(x, weights[k].transpose(1, 2))
            out.add_(biases[k].unsqueeze(1))
            if mask is not None:
                out.mul_(mask)
            if stage.relu:
                out.relu_()
            tape.append(_Seen(x, weights[k], out, mask))
            x = out
        return x, tape

    def _parts(self, index: torch.Tensor) -> list[torch.Tensor]:
        """Return the inputs of a batch in parts, (B, clients * C, H, W) each.

        A network without convolutions has one part, (a, B, C, H, W).
        """
        if not self.n_convolutions:
            return [self.pool.take(index)]

        if not self.apart:
            # Gathered in the order (B, a, C, H, W), where clients and channels are
            # neighbours: making them one dimension needs no copy.
            index = index.t().contiguous()
            return [self.pool.take(index).flatten(1, 2)]

        batch_size = index.shape[1]
        x = self.pool.take(index).flatten(0, 1)  # (a * B, C, H, W)
        x = x.contiguous(memory_format=self.format)
        return list(x.split(batch_size))

    def _split(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return (a, B, C, ...) in parts, (B, clients * C, ...) each.

        Of 3 clients with 6 channels of 12 x 12 and B of 10, one part is
        (10, 18, 12, 12), and three parts are (10, 6, 12, 12) each.
        """
        if self.apart:
            return list(x.unbind(0))
        return [x.transpose(0, 1).flatten(1, 2)]

    def _joined(self, parts: list[torch.Tensor], a: int) -> torch.Tensor:
        """Return parts as what dense layers take, (a, B, features)."""
        if not self.n_convolutions:
            return parts[0].flatten(2)

        if self.apart:
            features = [part.flatten(1) for part in parts]  # (B, features) each
            return torch.stack(features).to(self.dtype)

        x = parts[0].unflatten(1, (a, -1))  # (B, a, C, h, w)
        return x.transpose(0, 1).flatten(2).to(self.dtype)

    def _mask(self, stage: Stage, batch: Batch) -> torch.Tensor | None:
        """Return a stage's dropout mask (a, B, ...), scaled, if it has one."""
        if stage.dropout is None:
            return None
        keep = batch.masks[stage.dropout]
        scale = self.scales[stage.dropout]
        return keep.to(self.dtype).mul_(scale)

    def _convolve(
        self,
        stage: Stage,
        parts: list[torch.Tensor],
        weight: torch.Tensor,
        bias: torch.Tensor,
        mask: list[torch.Tensor] | None,
    ) -> _SeenParts:
        """Convolve, pool, add the bias, drop and cut off below zero.

        The bias comes after the pooling, where a quarter of the numbers are left.

        Parameters
        ----------
        parts : list of tensors, shapes (B, clients * C, H, W)
        weight : tensor, shape (a, outputs, C, k, k)
        bias : tensor, shape (a, outputs)
        mask : list of tensors, shapes (B, clients * outputs, h, w), optional
            Dropout's, after the pooling.
        """
        a, outputs = bias.shape
        clients = a // len(parts)
        # The weights of all clients take on the type and order of the kernels at once.
        weight = weight.flatten(0, 1)  # (a * outputs, C, k, k)
        weight = weight.to(self.spec.kernels, memory_format=self.format)
        weights = list(weight.split(clients * outputs))
        biases = bias.view(len(parts), clients * outputs, 1, 1).unbind(0)

        raws = []
        winners = []
        outs = []
        padding = stage.linear.padding
        for p, x in enumerate(parts):
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
        return _SeenParts(parts, weights, raws, winners, outs, mask)

    def _descend(self, state: State, tape: list[Any], d: torch.Tensor) -> None:
        """Go back through all stages, and take the step of SGD.

        Gradients are those of the logits' ``d`` (a, B, K), which has the learning
        rates in it: the weights step by 1, and velocities are gradients times the
        learning rate. With rate r, momentum m, gradient g, weight decay d, FedProx's mu
        and the weights s before local training, torch.optim.SGD's rule

            v <- m v + g + d w + mu (w - s),    w <- w - r v

        is, for the stored velocity u = r v (r is constant within a round),

            u <- m u + r g + r (d + mu) w - r mu s,    w <- w - u

        and without momentum

            w <- (1 - r (d + mu)) w - r g + r mu s
        """
        if self.spec.momentum:
            keep = self.spec.momentum
            descent = _Descent(state.velocities, keep, 1.0, [], [])
        else:
            descent = _Descent(state.values, 1.0, -1.0, [], [])

        d = self._dense_back(state, tape, d, descent)
        if self.n_convolutions:
            self._convolutions_back(tape, d, descent)

        # All that waited: two calls for all layers together.
        self._decay(state, descent.waiting)
        if descent.keep != 1:
            torch._foreach_mul_(descent.waiting, descent.keep)
        torch._foreach_add_(descent.waiting, descent.gradients, alpha=descent.step)
        self._pull(state)

    def _dense_back(
        self,
        state: State,
        tape: list[Any],
        d: torch.Tensor,
        descent: _Descent,
    ) -> Any:
        """Go back through the dense stages, from the gradient (a, B, K) of the logits.

        The gradient of a dense layer's weights is no tensor of its own: the product
        that makes it adds it to where it belongs. Biases wait.

        Returns
        -------
        tensor, shape (a, B, features), or None
            The gradient of what the first dense layer took, which only a convolution
            before it needs.
        """
        for k in reversed(range(self.n_convolutions, len(self.stages))):
            seen = tape[k]
            of_weight = descent.targets[2 * k]  # (a, outputs, inputs)
            of_bias = descent.targets[2 * k + 1]  # (a, outputs)
            d = before_activation(self.stages[k], d, seen.out, seen.mask)
            # Now, as `seen.weight` is what the next lines change: no copy was kept.
            below: Any = torch.bmm(d, seen.weight) if k else None
            self._decay(state, [of_weight])
            of_weight.baddbmm_(
                d.transpose(1, 2), seen.x, beta=descent.keep, alpha=descent.step
            )
            descent.waiting.append(of_bias)
            descent.gradients.append(d.sum(1))
            d = below
        return d

    def _convolutions_back(
        self, tape: list[Any], d: torch.Tensor, descent: _Descent
    ) -> None:
        """Go back through the convolutions, whose gradients wait.

        ``d``: gradient of what the first dense layer took, (a, B, features).
        """
        last = self.n_convolutions - 1
        parts: Any = self._split_features(d, tape[last])
        for k in reversed(range(self.n_convolutions)):
            parts, weight, bias = self._convolve_back(k, parts, tape[k])
            of_weight = descent.targets[2 * k]  # (a, outputs, inputs, k, k)
            of_bias = descent.targets[2 * k + 1]  # (a, outputs)
            descent.waiting.append(of_weight)
            descent.waiting.append(of_bias)
            descent.gradients.append(weight.view_as(of_weight))
            descent.gradients.append(bias.view_as(of_bias))

    def _decay(self, state: State, values: Sequence[torch.Tensor]) -> None:
        """Take weight decay and FedProx's pull off weights that step by themselves.

        With momentum, :meth:`_pull` does it.
        """
        pull = self.spec.weight_decay + self.spec.proximal
        if not pull or self.spec.momentum:
            return
        for value in values:
            value.mul_(_along(1 - pull * state.rates, value))

    def _pull(self, state: State) -> None:
        """Add what is left of weight decay, of FedProx's pull and of momentum.

        FedProx's gradient is ``proximal * (value - start)``, so its first half goes
        with weight decay and its second half is the start's.
        """
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

    def _split_features(self, d: torch.Tensor, seen: _SeenParts) -> list[torch.Tensor]:
        """Return a gradient (a, B, features) in the form of a convolution's outputs.

        That is in parts, (B, clients * outputs, h, w) each.
        """
        shape = seen.out[0].shape
        d = d.to(self.spec.kernels)
        if not self.apart:
            return [d.transpose(0, 1).reshape(shape)]

        parts = []
        for one in d.unbind(0):
            part = one.view(shape)
            parts.append(part.contiguous(memory_format=self.format))
        return parts

    def _convolve_back(
        self, k: int, parts: list[torch.Tensor], seen: _SeenParts
    ) -> tuple[list[torch.Tensor | None], torch.Tensor, torch.Tensor]:
        """Go back through the convolution of stage ``k``.

        Parameters
        ----------
        parts : list of tensors, shapes (B, clients * outputs, h, w)
            Gradients of its activations.

        Returns
        -------
        below : list of tensors, shapes (B, clients * C, H, W)
            Gradients of its inputs; None in their place for the first stage.
        weight : tensor, shape (a * outputs, C, k, k)
        bias : tensor, shape (a * outputs,)
        """
        stage = self.stages[k]
        conv = stage.linear
        below = []
        weights = []
        biases = []
        for p, d in enumerate(parts):
            mask = None if seen.mask is None else seen.mask[p]
            d = before_activation(stage, d, seen.out[p], mask)
            # The bias was added after the pooling: its gradient is that from there. In
            # bfloat16 the sum over B, h and w is taken in float32.
            bias = d.sum((0, 2, 3), dtype=self.dtype)
            biases.append(bias)
            if stage.pool:
                d = pool_backward(d, seen.raw[p], seen.winners[p])
            d_x, d_weight, _ = convolution_gradients(
                conv,
                d,
                seen.x[p],
                seen.weight[p],
                groups=len(bias) // conv.outputs,
                inputs=k > 0,
                biases=False,
            )
            below.append(d_x)
            weights.append(d_weight)
        return below, _cat(weights).to(self.dtype), _cat(biases)


def _frozen(n_stages: int, which: str | None) -> range:
    """Return the positions of parameters that stay: the last stage's, or all others.

    Of three stages there are positions 0 to 5; the head has 4 and 5.
    """
    n = 2 * n_stages
    head = n - 2
    if which == "head":
        return range(head, n)
    if which == "body":
        return range(head)
    return range(0)


def _along(numbers: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return a number a client (a,) as (a, 1, ...), to multiply its weights with.

    ``like``: weights (a, ...).
    """
    ones = [1] * (like.ndim - 1)
    return numbers.view(-1, *ones)


def _add(
    targets: Sequence[torch.Tensor],
    others: Sequence[torch.Tensor],
    rates: torch.Tensor,
    factor: float,
) -> None:
    """Add ``factor * rate * other`` to each target (a, ...), by each client's rate."""
    for target, other in zip(targets, others, strict=True):
        target.addcmul_(other, _along(rates, other), value=factor)


def _cat(parts: list[torch.Tensor]) -> torch.Tensor:
    """Return parts one after the other; a single one as it is, without a copy."""
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts)
