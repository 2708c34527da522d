"""Local training of one ``nn.Module`` by plain autograd.

Nothing here is shared with the fast steps except the draws of orders and masks: an
``nn.Module``, ``backward()`` and torch.optim.SGD's rule. The serial engine is this,
client after client, and the pool's workers train own networks so.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch

from ..errors import FltnbError
from ..models import KeyedDropout, Model
from ..randomness import integer
from .contract import USUAL, TrainSpec, Variation, keep_masks, order
from .losses import losses
from .samples import Samples, tensor

TOGETHER = 2**20  # numbers of the samples that are read together


class SGD:
    """``torch.optim.SGD`` to the bit, in plain steps.

    That class loads torch's compiler when it is first used, which takes seconds in
    every process.
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
                velocity = self.velocities[place]
                if velocity is None:
                    velocity = gradient.clone()
                else:
                    velocity.mul_(spec.momentum).add_(gradient)
                self.velocities[place] = velocity
                gradient = velocity
            parameter.add_(gradient, alpha=-spec.lr)


class ModuleTrainer:
    """Trains and applies one model after the other in a module of its own.

    Parameters
    ----------
    model, spec, samples
    device : torch.device
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
            layers = self.module.modules()
            self.dropouts = [one for one in layers if isinstance(one, KeyedDropout)]

        # what a row of theta holds
        self.tensors = model.tensors(self.module)
        self.parameters = self.tensors[: len(self.tensors) - model.n_statistics]
        # and what it does not: counters of batches, constants
        held = {id(one) for one in self.tensors}
        self.constants = [
            (one, one.clone()) for one in self.module.buffers() if id(one) not in held
        ]

    def load(self, theta: np.ndarray) -> None:
        """Take a model (P,)."""
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
        """Return the module's outputs for a batch."""
        if not self.model.layers:
            return self._applied(self._whole, x, reduced=True)
        for layer in self.module:
            x = self._applied(layer, x, reduced=isinstance(layer, torch.nn.Conv2d))
        return x

    def _whole(self, x: torch.Tensor) -> torch.Tensor:
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
        """Return one model (P,) as a function from inputs to outputs."""
        self.load(theta)
        self.module.eval()
        return self.forward

    def train(
        self,
        theta: np.ndarray,
        client: int,
        round: int,
        sample_weights: np.ndarray | None,
        out: np.ndarray,
        how: Variation = USUAL,
    ) -> float:
        """Train one client from ``theta`` (P,) into ``out`` (P,).

        ``how``: its anchors are those of this client, (P,).

        Returns the mean loss of the last local epoch. Layers that draw for themselves,
        as own networks and torchvision's may, do so from torch's generator, seeded for
        the client and round.
        """
        self.load(theta)
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

        ``torch.manual_seed`` also notes the seed for all devices that are not in use,
        with a trace of the stack, which takes a millisecond.
        """
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed_all(seed)
        if self.device.type == "mps":
            torch.mps.manual_seed(seed)

    def _client(
        self, client: int, round: int, weights: np.ndarray | None, how: Variation
    ) -> float:
        spec = how.applied(self.spec)
        start = [value.detach().clone() for value in self.parameters]
        if how.anchors is not None:
            anchors = self.model.unflatten(tensor(how.anchors))
            start = [value.to(self.device) for value in anchors]
        moving = self._moving(how.frozen)
        sgd = SGD(moving, spec)

        self.module.train()
        n = len(self.samples.splits["train"][client])
        for epoch in range(spec.local_epochs):
            total = 0.0
            masks = keep_masks(spec, self.model, round, client, epoch, n)
            begin = 0
            for x, y, factors in self._batches(client, round, epoch, weights):
                batch = slice(begin, begin + len(x))
                begin = batch.stop
                for dropout, mask in zip(self.dropouts, masks, strict=True):
                    dropout.keep = torch.from_numpy(mask[batch]).to(self.device)
                found = self._losses(x, y, factors)
                now = found.detach().cpu().double()
                total += float(now.sum() if now.ndim else now * len(x))

                self.module.zero_grad()
                self._objective(found, start, spec.proximal).backward()
                sgd.step()
        return total / n

    def _batches(
        self, client: int, round: int, epoch: int, weights: np.ndarray | None
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]:
        """Give inputs, targets and weights of an epoch's batches.

        Several are read at a time.
        """
        mine = self.samples.splits["train"][client]
        size = self.spec.batch_size
        sequence = order(self.spec, round, client, epoch, len(mine))
        numbers = math.prod(self.samples.images.shape[1:])
        together = size * max(1, TOGETHER // (size * numbers))
        for begin in range(0, len(mine), together):
            part = sequence[begin : begin + together]
            x, y = self.batch(mine[part])
            factors = [None] * -(-len(part) // size)
            if weights is not None:
                own = torch.from_numpy(weights[part]).to(self.device)
                factors = own.split(size)
            yield from zip(x.split(size), y.split(size), factors, strict=True)

    def _moving(self, frozen: str | None) -> list[torch.Tensor]:
        """Return the parameters that are not frozen."""
        if frozen is None:
            return self.parameters
        head = self.model.head
        begins = np.cumsum([0] + [value.numel() for value in self.parameters])[:-1]
        of_head = (begins >= head.start) & (begins < head.stop)
        stays = of_head if frozen == "head" else ~of_head
        pairs = zip(self.parameters, stays, strict=True)
        return [value for value, fixed in pairs if not fixed]

    def _losses(
        self, x: torch.Tensor, y: torch.Tensor, factors: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the (weighted) losses of a batch, or their mean."""
        found = losses(self.spec.loss, self.forward(x), y)
        if factors is None:
            return found
        if not found.ndim:
            raise FltnbError(
                "A loss that returns a mean cannot weigh samples: let it return the "
                "loss of each sample."
            )
        return found * factors

    def _objective(self, found: torch.Tensor, start, proximal: float) -> torch.Tensor:
        """Return the mean loss of a batch, with FedProx's term if there is one."""
        loss = found.mean()
        if not proximal:
            return loss
        gaps = zip(self.parameters, start, strict=False)  # start may have statistics
        distance = sum(((now - before) ** 2).sum() for now, before in gaps)
        return loss + proximal / 2 * distance
