"""One client after the other with plain autograd: the oracle of the other back ends.

Nothing here is shared with the fast steps except the draws of orders and masks: an
``nn.Module``, ``torch.optim.SGD`` and ``backward()``, so that an error in the
hand-written code cannot hide.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch.nn import functional

from ..models import KeyedDropout, Model
from ..models.base import threads
from ..randomness import integer
from .contract import Engine, Trained, TrainSpec, keep_masks, order
from .samples import tensor


@contextmanager
def exact(device: torch.device, n_threads: int | None) -> Iterator[None]:
    """Use full float32 and reproducible kernels on a GPU, and some threads on a CPU."""
    if device.type != "cuda":
        with threads(n_threads):
            yield
        return

    reduced = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    cudnn = torch.backends.cudnn.flags(
        enabled=torch.backends.cudnn.enabled,  # not named, it would be switched off
        deterministic=True,
        benchmark=False,
        allow_tf32=False,
    )
    try:
        with cudnn:
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = reduced


class SerialEngine(Engine):
    """Plain PyTorch training, on CPU or GPU; all that torchvision's networks have.

    These get ``n_threads`` on a CPU, by default all that torch has; small networks
    always get one.
    """

    backend = "serial"

    def __init__(
        self,
        fed,
        model: Model,
        spec: TrainSpec,
        device: str = "cpu",
        n_threads: int | None = None,
    ) -> None:
        super().__init__(fed, model, spec, device)
        self.n_threads = n_threads if model.large else 1
        self.module = model.build().to(self.device, self.dtype)
        self.dropouts = [
            layer for layer in self.module.modules() if isinstance(layer, KeyedDropout)
        ]

        # What a row of theta holds: parameters, then batch-norm statistics.
        self.tensors = list(self.module.parameters())
        for buffer in self.module.buffers():
            if buffer.is_floating_point():
                self.tensors.append(buffer)

    def _load(self, theta: np.ndarray) -> None:
        values = self.model.unflatten(tensor(theta))
        with torch.no_grad():
            for target, value in zip(self.tensors, values, strict=True):
                target.copy_(value)

    def _stored(self) -> np.ndarray:
        flat = [value.detach().flatten() for value in self.tensors]
        return torch.cat(flat).cpu().numpy()

    def _kernels(self):
        return exact(self.device, self.n_threads)

    def _forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.model.large:
            return self._layer(self.module, x, reduced=True)
        for layer in self.module:
            x = self._layer(layer, x, reduced=isinstance(layer, torch.nn.Conv2d))
        return x

    def _layer(self, layer, x: torch.Tensor, reduced: bool) -> torch.Tensor:
        """Apply a layer, in bfloat16 where it is ``reduced`` and the precision so."""
        reduced = reduced and self.spec.precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=reduced):
            return layer(x).to(self.dtype)

    def _batch(self, index: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.from_numpy(self.fed.inputs(index)).to(self.device, self.dtype)
        y = torch.from_numpy(self.fed.labels[index]).to(self.device)
        return x, y

    def _served(self, theta: np.ndarray):
        self._load(theta)
        self.module.eval()
        return self._forward

    def _train(self, theta, rows, clients, round, weights, done: Trained) -> None:
        devices = [self.device] if self.device.type == "cuda" else []
        with self._kernels():
            for j, client in enumerate(clients):
                self._load(theta[rows[j]])
                with torch.random.fork_rng(devices, enabled=self.model.large):
                    if self.model.large:  # layers of torchvision draw for themselves
                        seed = integer(self.spec.seed, "dropout", round, client)
                        torch.manual_seed(seed)
                    done.loss[j] = self._client(client, round, weights[j])
                done.theta[j] = self._stored()

    def _client(self, client: int, round: int, weights: np.ndarray | None) -> float:
        """Train one client; return the mean loss of the last local epoch."""
        spec = self.spec
        parameters = list(self.module.parameters())
        start = [value.detach().clone() for value in parameters]
        sgd = torch.optim.SGD(
            parameters, spec.lr, spec.momentum, weight_decay=spec.weight_decay
        )

        self.module.train()
        n = len(self.fed.train[client])
        for epoch in range(spec.local_epochs):
            total = 0.0
            sequence = order(spec, round, client, epoch, n)
            masks = keep_masks(spec, self.model, round, client, epoch, n)
            for begin in range(0, n, spec.batch_size):
                batch = slice(begin, begin + spec.batch_size)
                for dropout, mask in zip(self.dropouts, masks, strict=True):
                    dropout.keep = torch.from_numpy(mask[batch]).to(self.device)
                losses = self._losses(client, sequence[batch], weights)
                total += float(losses.detach().double().sum())

                sgd.zero_grad()
                self._objective(losses, parameters, start).backward()
                sgd.step()
        return total / n

    def _losses(
        self, client: int, positions: np.ndarray, weights: np.ndarray | None
    ) -> torch.Tensor:
        """Return the (weighted) losses of some of a client's training samples."""
        x, y = self._batch(self.fed.train[client][positions])
        losses = functional.cross_entropy(self._forward(x), y, reduction="none")
        if weights is None:
            return losses
        return losses * torch.from_numpy(weights[positions]).to(self.device)

    def _objective(self, losses: torch.Tensor, parameters, start) -> torch.Tensor:
        """Return the mean loss of a batch, with FedProx's term if there is one."""
        loss = losses.mean()
        if not self.spec.proximal:
            return loss
        gaps = zip(parameters, start, strict=True)
        distance = sum(((now - before) ** 2).sum() for now, before in gaps)
        return loss + self.spec.proximal / 2 * distance
