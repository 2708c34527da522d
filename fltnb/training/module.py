"""Local training of one ``nn.Module`` by plain autograd.

Only the draws of orders and masks are shared with the fast steps. The rest is an
``nn.Module``, ``backward()`` and torch.optim.SGD's rule. The serial engine trains in
this way, client after client, and so do the pool's workers for own networks.

A model is a row of P numbers: the parameters one after the other, then the statistics.
A batch normalisation of 2 channels after a layer from 3 inputs to 2 outputs without a
bias has 14: six weights, two scales, two shifts, two means and two variances. SGD moves
the first ten, the forward pass the last four.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from ..models import KeyedDropout, Model
from ..models.base import SLICED
from ..randomness import integer
from .contract import USUAL, TrainSpec, Variation, keep_masks, order
from .losses import losses, summed, weighted
from .samples import Samples, tensor

TOGETHER = 2**20  # numbers of the samples that are read together


class _Batch(NamedTuple):
    """Inputs (B, ...), targets (B, ...) and factors (B,) on the losses, if any."""

    x: torch.Tensor
    y: torch.Tensor
    factors: torch.Tensor | None


class SGD:
    """``torch.optim.SGD`` to the bit, in plain steps.

    That class loads torch's compiler at its first use, which takes seconds in every
    process. The order of operations is that class's, because rounding depends on it:
    weight decay goes into the gradient, the gradient into the velocity, and the
    velocity, times the learning rate, into the parameter.

    Attributes
    ----------
    velocities : list
        Momentum's buffer of each parameter, None before its first step.
    """

    def __init__(self, parameters: list[torch.Tensor], spec: TrainSpec) -> None:
        self.parameters = parameters
        self.spec = spec
        self.velocities: list[torch.Tensor | None] = [None] * len(parameters)

    @torch.no_grad()
    def step(self) -> None:
        """Take a step; parameters without a gradient stay."""
        spec = self.spec
        for place, parameter in enumerate(self.parameters):
            gradient = parameter.grad
            if gradient is None:
                continue
            if spec.weight_decay:
                gradient = gradient.add(parameter, alpha=spec.weight_decay)
            if spec.momentum:
                gradient = self._accumulated(place, gradient)
            parameter.add_(gradient, alpha=-spec.lr)

    def _accumulated(self, place: int, gradient: torch.Tensor) -> torch.Tensor:
        """Return a parameter's velocity after this gradient."""
        velocity = self.velocities[place]
        if velocity is None:  # torch starts with the gradient, for any momentum
            velocity = gradient.clone()
            self.velocities[place] = velocity
            return velocity
        velocity.mul_(self.spec.momentum)
        velocity.add_(gradient)
        return velocity


class ModuleTrainer:
    """Trains and applies one model after the other in a module of its own.

    Parameters
    ----------
    model, spec, samples
    device : torch.device

    Attributes
    ----------
    tensors : list of tensors
        The module's parameters, then its statistics: the contents of a row of models,
        in order.
    parameters : list of tensors
        The first of these tensors, which are trained.
    constants : list of (tensor, value)
        Buffers that are not in a row, such as counters of batches, and their initial
        values.
    dropouts : list of KeyedDropout
        The dropout layers of the package's own networks.
    """

    def __init__(
        self, model: Model, spec: TrainSpec, samples: Samples, device="cpu"
    ) -> None:
        self.model = model
        self.spec = spec
        self.samples = samples
        self.device = torch.device(device)
        self.dtype = getattr(torch, spec.dtype)
        self.module = model.build().to(self.device, self.dtype)
        self.dropouts = []
        if model.layers:
            for layer in self.module.modules():
                if isinstance(layer, KeyedDropout):
                    self.dropouts.append(layer)

        self.tensors = model.tensors(self.module)
        n_parameters = len(self.tensors) - model.n_statistics
        self.parameters = self.tensors[:n_parameters]
        held = {id(one) for one in self.tensors}
        self.constants = []
        for one in self.module.buffers():
            if id(one) not in held:
                self.constants.append((one, one.clone()))

    def load(self, theta: np.ndarray) -> None:
        """Take a model (P,), and set all else that training changes to its start.

        Counters of batches, for example, would otherwise go on from client to client,
        and results depend on which client came before.
        """
        values = self.model.unflatten(tensor(theta))
        with torch.no_grad():
            for target, value in zip(self.tensors, values, strict=True):
                target.copy_(value)
            for target, value in self.constants:
                target.copy_(value)

    def stored(self) -> np.ndarray:
        """Return the model (P,) as it is now."""
        flat = [value.detach().flatten() for value in self.tensors]
        return torch.cat(flat).cpu().numpy()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the module's outputs for a batch.

        In bfloat16 only the convolutions of the package's networks are reduced; in
        other networks torch's autocast decides.
        """
        if not self.model.layers:
            return self._applied(self._whole, x, reduced=True)
        layers: Any = self.module  # one after the other
        for layer in layers:
            is_convolution = isinstance(layer, torch.nn.Conv2d)
            x = self._applied(layer, x, reduced=is_convolution)
        return x

    def _whole(self, x: torch.Tensor) -> torch.Tensor:
        """Apply an own network to samples in the form that it wants."""
        return self.model.applied(self.module, x)

    def _applied(self, layer: Callable, x: torch.Tensor, reduced: bool) -> torch.Tensor:
        """Apply a layer, in bfloat16 where it is ``reduced`` and the precision so."""
        if not reduced or self.spec.precision != "bfloat16":
            return layer(x)
        with torch.autocast(self.device.type, torch.bfloat16):
            return layer(x).to(self.dtype)

    def batch(self, index: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and targets of some samples, on the device."""
        x, y = self.samples.batch(index, self.dtype)
        return x.to(self.device), y.to(self.device)

    def served(self, theta: np.ndarray) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return one model (P,) as a function from inputs to outputs.

        It is valid until the next call of this method or of :meth:`train`, as all use
        one module.
        """
        self.load(theta)
        self.module.eval()
        return self._outputs

    def _outputs(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs (n, K) of n samples in evaluation.

        A CPU takes them in slices: the activations of a thousand samples are so large
        that the system hands out their memory anew each time, which takes as long as
        half of the computation. The numbers are the same.
        """
        if self.device.type == "cuda":
            return self.forward(x)
        return torch.cat([self.forward(part) for part in x.split(SLICED)])

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

        Random layers of own networks and torchvision's draw their numbers
        from torch's generator, seeded for the client and round.

        Parameters
        ----------
        theta : ndarray, shape (P,)
            The model that it starts from.
        sample_weights : ndarray, shape (n,), optional
            Factors on the losses of its samples.
        out : ndarray, shape (P,)
            Filled with the trained model.
        how : Variation
            Its anchors are those of this client, (P,).

        Returns
        -------
        float
            Mean loss of the last local epoch.
        """
        self.load(theta)
        # The package's own dropout takes masks that are drawn by key; other random
        # layers draw from torch's generators, which are as before after the training.
        draws = not self.model.layers
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices, enabled=draws):
            if draws:
                self._seed(integer(self.spec.seed, "dropout", round, client))
            loss = self._client(client, round, sample_weights, how)
        out[:] = self.stored()
        return loss

    def _seed(self, seed: int) -> None:
        """Seed torch's generators that draws may come from.

        ``torch.manual_seed`` also stores the seed for all unused devices, with a stack
        trace, which takes a millisecond.
        """
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed_all(seed)
        if self.device.type == "mps":
            torch.mps.manual_seed(seed)

    def _client(
        self, client: int, round: int, weights: np.ndarray | None, how: Variation
    ) -> float:
        """Train the model that was loaded; return the mean loss of the last epoch.

        ``weights``: factors (n,) on the losses of its samples, or None. Each loss is
        that of a sample under the model at its step, before the step is taken.
        """
        spec = how.applied(self.spec)
        # Copies, since the parameters move; a call may give other models to pull to.
        pulled_to = [value.detach().clone() for value in self.parameters]
        if how.anchors is not None:
            anchors = self.model.unflatten(tensor(how.anchors))
            pulled_to = [value.to(self.device) for value in anchors]
        sgd = SGD(self._moving(how.frozen), spec)

        self.module.train()
        n = len(self.samples.splits["train"][client])
        for epoch in range(spec.local_epochs):
            total = 0.0
            masks = keep_masks(spec, self.model, round, client, epoch, n)
            begin = 0
            for x, y, factors in self._batches(client, round, epoch, weights):
                end = begin + len(x)
                self._keep([mask[begin:end] for mask in masks])
                begin = end

                found = self._losses(x, y, factors)
                total += summed(found, len(x))

                self.module.zero_grad()
                self._objective(found, pulled_to, spec.proximal).backward()
                sgd.step()
        return total / n

    def _keep(self, masks: list[np.ndarray]) -> None:
        """Tell each dropout layer what it keeps of the next batch, bool (B, ...)."""
        for dropout, mask in zip(self.dropouts, masks, strict=True):
            dropout.keep = torch.from_numpy(mask).to(self.device)

    def _batches(
        self, client: int, round: int, epoch: int, weights: np.ndarray | None
    ) -> Iterator[_Batch]:
        """Give an epoch's batches.

        Several are read at a time: as many as have TOGETHER numbers, but at least one.
        With images of 3 x 32 x 32 in batches of 10 these are 34 batches, as 340 images
        have 1.04 million numbers. ``weights``: factors (n,) on the losses of the
        client's samples, or None.
        """
        mine = self.samples.splits["train"][client]
        size = self.spec.batch_size
        sequence = order(self.spec, round, client, epoch, len(mine))
        numbers_of_one = math.prod(self.samples.images.shape[1:])
        batches_together = max(1, TOGETHER // (size * numbers_of_one))
        together = size * batches_together  # samples
        for begin in range(0, len(mine), together):
            part = sequence[begin : begin + together]
            inputs, targets = self.batch(mine[part])
            xs = inputs.split(size)
            ys = targets.split(size)
            factors = [None] * len(xs)
            if weights is not None:
                own = torch.from_numpy(weights[part]).to(self.device)
                factors = own.split(size)
            for x, y, of_batch in zip(xs, ys, factors, strict=True):
                yield _Batch(x, y, of_batch)

    def _moving(self, frozen: str | None) -> list[torch.Tensor]:
        """Return the parameters that are not frozen.

        The head is a slice of a row's columns: a parameter belongs to it if its first
        number does. With parameters of 6, 2, 8 and 4 numbers, which begin at columns 0,
        6, 8 and 16, and the head 8 to 20, it has the last two.
        """
        if frozen is None:
            return self.parameters
        head = self.model.head
        moving = []
        begin = 0  # its first number's column in a row
        for value in self.parameters:
            of_head = head.start <= begin < head.stop
            stays = of_head if frozen == "head" else not of_head
            if not stays:
                moving.append(value)
            begin += value.numel()
        return moving

    def _losses(
        self, x: torch.Tensor, y: torch.Tensor, factors: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the (weighted) losses (B,) of a batch, or an own loss's mean ()."""
        return weighted(losses(self.spec.loss, self.forward(x), y), factors)

    def _objective(
        self, found: torch.Tensor, pulled_to: list[torch.Tensor], proximal: float
    ) -> torch.Tensor:
        """Return the mean loss of a batch, with FedProx's term if there is one.

        This is ``proximal / 2`` times the squared distance of all parameters from
        ``pulled_to``, which may have statistics after the parameters. Its gradient is
        ``proximal * (now - before)``; the fast steps add that by hand.
        """
        loss = found.mean()
        if not proximal:
            return loss
        distance = 0
        for now, before in zip(self.parameters, pulled_to, strict=False):
            distance = distance + ((now - before) ** 2).sum()
        return loss + proximal / 2 * distance
