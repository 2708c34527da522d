"""Local SGD without autograd, optimiser objects or DataLoader: what CPU workers run.

At the sizes of the papers' models most of a step's time is overhead. Therefore the
backward pass is programmed explicitly, and the SGD update is part of the matrix product
that computes the gradient: ``W <- W - lr/B x^T d`` is one call, and no gradient is
stored.

A model is a row of P numbers, ``theta``: layer by layer the weight, as torch has it,
and the bias. A layer from 3 inputs to 2 outputs takes 8 numbers: w11 w12 w13 (what
leads to output 1), w21 w22 w23, b1, b2. Layers keep their own copy, laid out for their
kernels, from the start of a client's training to its end.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from ..models import Conv, Model
from .contract import USUAL, TrainSpec, Variation, keep_masks, order
from .kernels import dense
from .layers import SPARE, Dense, DenseRoom, Rooms, convolution, padded
from .samples import Samples, tensor

SLAB = 1000  # samples gathered at a time: limits the copy if a client holds many


class LeanTrainer:
    """Trains one client after the other in private buffers; one per worker process.

    The model has convolution stages (possibly none) followed by dense stages. A client
    with 2,300 samples and batches of 10 has three slabs in an epoch, of 1,000, 1,000
    and 300 samples: each is gathered at once, and then a step is taken for each batch
    of 10.

    Attributes
    ----------
    body, head, layers : lists
        The convolutions, the dense layers, and both.
    slab : int
        Samples that are gathered at a time, whole batches.
    rooms : Rooms
        Memory of the dense layers for a batch.
    features : tensor, shape (n, inputs + 1)
        Inputs of the first dense layer; it grows with batches and slabs.
    """

    def __init__(self, model: Model, spec: TrainSpec, samples: Samples) -> None:
        self.model = model
        self.spec = spec
        self.samples = samples
        self.dtype = getattr(torch, spec.dtype)

        self.body = self._convolutions()
        dense_stages = model.stages[len(self.body) :]
        self.head = [Dense(stage, spec, self.dtype) for stage in dense_stages]
        self.layers: list[Any] = [*self.body, *self.head]

        n_batches = math.ceil(SLAB / spec.batch_size)
        self.slab = n_batches * spec.batch_size
        self.rooms = Rooms(self._room)
        self.unweighted = torch.empty(0, dtype=self.dtype)
        self.features = padded(0, self.head[0].inputs + 1, self.dtype)

    def _convolutions(self) -> list[Any]:
        """Return the layers of the convolution stages, which come before all others.

        A stage is several layers of the model (convolution, ReLU, pooling), so its
        input shape is the output shape of the layer before its convolution.
        """
        model = self.model
        body: list[Any] = []
        shape = model.input_shape
        for layer, shape_after in zip(model.layers, model.activations, strict=True):
            if isinstance(layer, Conv):
                stage = model.stages[len(body)]
                body.append(convolution(stage, self.spec, self.dtype, shape))
            shape = shape_after
        return body

    @torch.inference_mode()
    def train(
        self,
        theta: np.ndarray,
        client: int,
        round: int,
        sample_weights: np.ndarray | None,
        out: np.ndarray,
        how: Variation = USUAL,
    ) -> float:
        """Train one client.

        Parameters
        ----------
        theta, out : ndarrays, shape (P,)
            The model that it starts from, and where the trained one goes.
        client, round : int
        sample_weights : ndarray, shape (n,), optional
            Factors on the losses of its samples.
        how : Variation
            Its anchors are those of this client, (P,).

        Returns
        -------
        float
            Mean loss of the last local epoch.
        """
        spec = how.applied(self.spec)
        self._load(theta, how, spec.proximal)

        total = 0.0
        last = spec.local_epochs - 1
        for epoch in range(spec.local_epochs):
            draws = (round, client, epoch)
            total = self._epoch(draws, sample_weights, measure=epoch == last)

        for layer, weight, bias in self._parts(out):
            layer.store(weight, bias)
        return total / len(self.samples.splits["train"][client])

    def _load(self, theta: np.ndarray, how: Variation, proximal: float) -> None:
        """Begin local training from ``theta`` (P,), varied as this call wants it."""
        # Varied first: that makes room for the start, which loading then fills.
        last = self.layers[-1]
        for layer in self.layers:
            part = "head" if layer is last else "body"
            layer.vary(proximal, frozen=part == how.frozen)
        for layer, weight, bias in self._parts(theta):
            layer.load(weight, bias)
        if how.anchors is None:
            return
        for layer, weight, bias in self._parts(how.anchors):
            layer.pull_to(weight, bias)

    def _parts(
        self, theta: np.ndarray
    ) -> Iterator[tuple[Any, torch.Tensor, torch.Tensor]]:
        """Give each layer with its weight and bias in ``theta`` (P,), by turns.

        They are views: what is written to them is written to ``theta``. A weight is
        (outputs, inputs), or (outputs, inputs, k, k) of a convolution.
        """
        parts = self.model.unflatten(tensor(theta))
        weights = parts[0::2]
        biases = parts[1::2]
        return zip(self.layers, weights, biases, strict=True)

    def _epoch(
        self,
        draws: tuple[int, int, int],
        sample_weights: np.ndarray | None,
        measure: bool,
    ) -> float:
        """Pass over a client's samples once; return what :meth:`_slab` does of all.

        ``draws``: round, client and epoch, the keys of its random draws;
        ``sample_weights`` (n,): factors on the losses, in the order in which the client
        holds its samples, or None. They follow the samples into the order of the epoch;
        masks are drawn in that order.
        """
        round, client, epoch = draws
        mine = self.samples.splits["train"][client]
        n = len(mine)
        sequence = order(self.spec, round, client, epoch, n)
        masks = self._masks(round, client, epoch, n)
        weights = None
        if sample_weights is not None:
            weights = torch.from_numpy(sample_weights[sequence])

        total = 0.0
        for start in range(0, n, self.slab):
            part = slice(start, start + self.slab)
            index = mine[sequence[part]]
            masks_of_part = [mask[part] for mask in masks]
            weights_of_part = None if weights is None else weights[part]
            total += self._slab(index, masks_of_part, weights_of_part, measure)
        return total

    def _masks(self, round: int, client: int, epoch: int, n: int) -> list[torch.Tensor]:
        """Return dropout's factors, 0 or 1 / (1 - p), (n, ...) of each dropout.

        What is kept grows, so that a sum over activations stays as large on average.
        With p of 0.2 four of five numbers are kept, 1.25 times as large.
        """
        keep = keep_masks(self.spec, self.model, round, client, epoch, n)
        factors = []
        for mask, (_, p) in zip(keep, self.model.dropout, strict=True):
            kept = torch.from_numpy(mask).to(self.dtype)
            factors.append(kept.div_(1 - p))
        return factors

    def _slab(
        self,
        index: np.ndarray,
        masks: list[torch.Tensor],
        weights: torch.Tensor | None,
        measure: bool,
    ) -> float:
        """Take the steps of some consecutive batches, n samples.

        Parameters
        ----------
        index : ndarray of int64, shape (n,)
            Positions of the samples in the pool.
        masks : list of tensors, shapes (n, ...)
            Factors of each dropout.
        weights : tensor, shape (n,), or None
            Factors on the losses.
        measure : bool
            Whether the loss is wanted.

        Returns
        -------
        float
            The summed loss, each sample's under the model which it met; 0 if it is not
            wanted.
        """
        size = self.spec.batch_size
        y = self.samples.targets(index)
        # The logits of all steps, of which losses are computed together in the end.
        logits = padded(len(index), self.model.n_classes, self.dtype)

        # Of each array (n, ...) the views of its batches: of 25 samples and batches of
        # 10 they have 10, 10 and 5 rows. Steps fill `outs`, and so the logits.
        xs = self._inputs(index).split(size)
        ys = y.split(size)
        outs = logits.split(size)
        masks_of_dropout = [mask.split(size) for mask in masks]
        factors = [self.unweighted] * len(xs)
        if weights is not None:
            factors = weights.to(self.dtype).split(size)
        for k, x in enumerate(xs):
            own_masks = [of_batch[k] for of_batch in masks_of_dropout]
            self._step(x, ys[k], outs[k], own_masks, factors[k])

        if not measure:
            return 0.0
        losses = functional.cross_entropy(logits, y, reduction="none")
        if weights is not None:
            losses = losses * weights
        return float(losses.double().sum())

    def _inputs(self, index: np.ndarray) -> torch.Tensor:
        """Return the inputs of a slab.

        Dense layers get rows that end in a 1, convolutions images with channels last.
        ``index`` (n,): positions of the samples in the pool.

        Returns
        -------
        tensor, shape (n, inputs + 1) or (n, C, H, W)
        """
        n = len(index)
        c, h, w = self.model.input_shape
        if not self.body:
            rows = self._features(n)
            without_one = rows[:, :-1]
            self.samples.fill(index, without_one.view(n, c, h, w))
            return rows

        # Memory as the kernels read it, with room behind the last image.
        pixels = n * h * w
        flat = torch.empty((pixels + SPARE) * c, dtype=self.dtype)
        memory = flat[: pixels * c].view(n, h, w, c)
        images = memory.permute(0, 3, 1, 2)
        self.samples.fill(index, images)
        return images

    def _features(self, n: int) -> torch.Tensor:
        """Return room for n inputs of the dense layers, with the constant 1.

        The next call may return the same rows.
        """
        if len(self.features) < n:
            self.features = padded(n, self.features.shape[1], self.dtype)
            self.features[:, -1] = 1
        return self.features[:n]

    def _room(self, b: int) -> tuple[torch.Tensor, list[DenseRoom]]:
        """Return memory for a batch of b samples, used again in every step.

        Returns
        -------
        below : tensor, shape (b, inputs) or (0, inputs)
            For the gradient of what the first dense layer meets. Without convolutions
            it is not needed and has no rows.
        rooms : list of DenseRoom
            Of each dense layer.
        """
        rows = b if self.body else 0
        below = torch.empty(rows, self.head[0].inputs, dtype=self.dtype)
        return below, [layer.room(b) for layer in self.head]

    def _step(self, x, y, logits, masks, weights) -> None:
        """Take a step: forward and backward pass, and in the latter SGD's update.

        Parameters
        ----------
        x : tensor
            Inputs, as :meth:`_inputs` has them.
        y, logits, masks, weights
            As in :meth:`_dense_step`.
        """
        if not self.body:
            self._dense_step(x, y, logits, masks, weights)
            return

        # Forward through the convolutions, both ways through the dense layers, and
        # back. Between them images become rows: the features of the dense layers are
        # the pixels of a channel, line by line, then those of the next channel.
        b = x.shape[0]  # len() of a tensor takes 4 microseconds
        for layer in self.body:
            x = layer.forward(x, _mask(layer, masks))
        features = self._features(b)
        features[:, :-1].view(x.shape).copy_(x)
        d = self._dense_step(features, y, logits, masks, weights)
        d = d.view(x.shape)
        first = self.body[0]
        for layer in reversed(self.body):
            d = layer.backward(d, b, first=layer is first)

    def _dense_step(self, x, y, logits, masks, weights) -> torch.Tensor:
        """Take a step of the dense layers.

        Layer k maps ``inputs[k]`` to ``inputs[k + 1]``, and the last one to the logits.
        In the backward pass ``d`` is the gradient of a layer's outputs. The layer's own
        takes the step and writes the gradient of its inputs, which are the outputs of
        the layer before.

        Parameters
        ----------
        x : tensor, shape (b, inputs + 1)
            Their inputs, the last of them 1.
        y : tensor of int64, shape (b,)
        logits : tensor, shape (b, K)
            Filled.
        masks : list of tensors, shapes (b, ...)
            Factors of each dropout.
        weights : tensor, shape (b,) or (0,)
            Factors on the losses.

        Returns
        -------
        tensor, shape (b, inputs) or (0, inputs)
            Gradient of their inputs.
        """
        below, rooms = self.rooms[x.shape[0]]
        inputs = [x.numpy()]  # what each layer meets
        for layer, room in zip(self.head[:-1], rooms, strict=False):
            layer.forward(inputs[-1], room.whole)
            mask = _mask(layer, masks)
            if mask is not None:  # never negative, so it may come after ReLU
                room.out.mul_(mask)
            inputs.append(room.whole)
        logits = logits.numpy()
        self.head[-1].forward(inputs[-1], logits)

        d = rooms[-1].d_array
        dense.errors(logits, y.numpy(), weights.numpy(), d)
        for k in range(len(self.head) - 1, 0, -1):
            # through layer k, then through ReLU and dropout of the one before
            lower = self.head[k - 1]
            room = rooms[k - 1]
            self.head[k].backward(d, inputs[k], room.d_array)
            lower.before(room, _mask(lower, masks))
            d = room.d_array
        self.head[0].backward(d, inputs[0], below.numpy())
        return below


def _mask(layer, masks: list[torch.Tensor]) -> torch.Tensor | None:
    """Return the dropout mask of a layer, if it has one."""
    dropout = layer.stage.dropout
    if dropout is None:
        return None
    return masks[dropout]
