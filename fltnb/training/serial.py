"""One client after the other with plain autograd: the oracle of the other back ends.

Nothing here is shared with the fast steps except the draws of orders and masks: an ``nn.Module``, ``torch.optim.SGD``
and ``backward()``, so that an error in the hand-written code cannot hide.
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
    """Use full float32 and reproducible kernels on a GPU, and so many threads on a CPU."""
    if device.type != "cuda":
        with threads(n_threads):
            yield
        return
    matmul = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        on = torch.backends.cudnn.enabled  # not said, it would be switched off
        with torch.backends.cudnn.flags(
            enabled=on, deterministic=True, benchmark=False, allow_tf32=False
        ):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = matmul


class SerialEngine(Engine):
    """Plain PyTorch training, on CPU or GPU; the only back end for torchvision's networks.

    These get ``n_threads`` on a CPU, by default all that torch has, the small ones always one.
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
        self.module = model.build().to(self.device, self.dtype)
        self.dropouts = [
            layer for layer in self.module.modules() if isinstance(layer, KeyedDropout)
        ]
        statistics = [
            buffer for buffer in self.module.buffers() if buffer.is_floating_point()
        ]
        self.tensors = [
            *self.module.parameters(),
            *statistics,
        ]  # what a row of theta holds
        self.n_threads = n_threads if model.large else 1

    def _load(self, theta: np.ndarray) -> None:
        with torch.no_grad():
            for target, value in zip(
                self.tensors, self.model.unflatten(tensor(theta)), strict=True
            ):
                target.copy_(value)

    def _kernels(self):
        return exact(self.device, self.n_threads)

    def _forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in [self.module] if self.model.large else self.module:
            low = self.spec.precision == "bfloat16" and (
                self.model.large or isinstance(layer, torch.nn.Conv2d)
            )
            with torch.autocast(self.device.type, torch.bfloat16, enabled=low):
                x = layer(x).to(self.dtype)
        return x

    def _batch(self, index: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.from_numpy(self.fed.inputs(index)).to(self.device, self.dtype)
        return x, torch.from_numpy(self.fed.labels[index]).to(self.device)

    def _served(self, theta: np.ndarray):
        self._load(theta)
        self.module.eval()
        return self._forward

    def _train(self, theta, rows, clients, round, weights, done: Trained) -> None:
        devices = [self.device] if self.device.type == "cuda" else []
        with self._kernels():
            for j, (row, client) in enumerate(zip(rows, clients, strict=True)):
                self._load(theta[row])
                with torch.random.fork_rng(devices, enabled=self.model.large):
                    if self.model.large:  # layers of torchvision draw for themselves
                        torch.manual_seed(
                            integer(self.spec.seed, "dropout", round, client)
                        )
                    done.loss[j] = self._client(client, round, weights[j])
                done.theta[j] = (
                    torch.cat([value.detach().flatten() for value in self.tensors])
                    .cpu()
                    .numpy()
                )

    def _client(self, client: int, round: int, weights: np.ndarray | None) -> float:
        spec, mine = self.spec, self.fed.train[client]
        parameters = list(self.module.parameters())
        start = [p.detach().clone() for p in parameters]
        sgd = torch.optim.SGD(
            parameters, spec.lr, spec.momentum, weight_decay=spec.weight_decay
        )
        self.module.train()
        for epoch in range(spec.local_epochs):
            total = 0.0
            sequence = order(spec, round, client, epoch, len(mine))
            masks = keep_masks(spec, self.model, round, client, epoch, len(mine))
            for begin in range(0, len(mine), spec.batch_size):
                part = slice(begin, begin + spec.batch_size)
                x, y = self._batch(mine[sequence[part]])
                for dropout, mask in zip(self.dropouts, masks, strict=True):
                    dropout.keep = torch.from_numpy(mask[part]).to(self.device)
                losses = functional.cross_entropy(self._forward(x), y, reduction="none")
                if weights is not None:
                    losses = losses * torch.from_numpy(weights[sequence[part]]).to(
                        self.device
                    )
                loss = losses.mean()
                total += float(losses.detach().double().sum())
                if spec.proximal:
                    gaps = zip(parameters, start, strict=True)
                    loss = loss + spec.proximal / 2 * sum(
                        ((p - p0) ** 2).sum() for p, p0 in gaps
                    )
                sgd.zero_grad()
                loss.backward()
                sgd.step()
        return total / len(mine)
