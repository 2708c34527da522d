"""Gradients and training by plain autograd, for a method whose local step no engine has (FedDANE)."""

import numpy as np
import torch
from torch.nn import functional

from ..training.serial import SerialEngine
from .samples import SLICE


class CorrectedEngine(SerialEngine):
    """The serial engine, which also gives gradients, and adds each client's ``shift`` to those of its steps."""

    shift: dict[int, np.ndarray] | None = None

    def gradient(self, theta: np.ndarray, client: int) -> np.ndarray:
        """Gradient (P,) of a client's mean training loss at ``theta`` (P,), without dropout."""
        mine, parameters = self.fed.train[client], list(self.module.parameters())
        self._load(theta)
        self.module.eval().zero_grad()
        with self._kernels():
            for begin in range(0, len(mine), SLICE):
                x, y = self._batch(mine[begin : begin + SLICE])
                (
                    functional.cross_entropy(self._forward(x), y, reduction="sum")
                    / len(mine)
                ).backward()
        return torch.cat([param.grad.flatten() for param in parameters]).cpu().numpy()

    def _client(self, client: int, round: int, weights: np.ndarray | None) -> float:
        """Train one client, with its ``shift`` (P,) added to each gradient."""
        extras = (
            self.model.unflatten(torch.from_numpy(self.shift[client]).to(self.device))
            if self.shift
            else ()
        )
        pairs = zip(self.module.parameters(), extras, strict=False)
        hooks = [
            param.register_hook(lambda grad, extra=extra: grad + extra)
            for param, extra in pairs
        ]
        loss = super()._client(client, round, weights)
        for hook in hooks:
            hook.remove()
        return loss
