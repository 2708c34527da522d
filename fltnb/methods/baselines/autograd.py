"""Gradients and training by plain autograd, for FedDANE's local step."""

import numpy as np
import torch
from torch.nn import functional

from ...training.serial import SerialEngine
from ..samples import SLICE


class CorrectedEngine(SerialEngine):
    """The serial engine, which also gives gradients.

    It adds each client's ``shift`` to the gradients of its steps.
    """

    shift: dict[int, np.ndarray] | None = None

    def gradient(self, theta: np.ndarray, client: int) -> np.ndarray:
        """Gradient (P,) of a client's mean training loss at ``theta``, no dropout."""
        samples = self.fed.train[client]
        self._load(theta)
        self.module.eval().zero_grad()
        with self._kernels():
            for begin in range(0, len(samples), SLICE):
                x, y = self._batch(samples[begin : begin + SLICE])
                loss = functional.cross_entropy(self._forward(x), y, reduction="sum")
                (loss / len(samples)).backward()

        gradients = [param.grad.flatten() for param in self.module.parameters()]
        return torch.cat(gradients).cpu().numpy()

    def _client(self, client: int, round: int, weights: np.ndarray | None) -> float:
        """Train one client, with its ``shift`` (P,) added to each gradient."""
        hooks = []
        if self.shift:
            shift = torch.from_numpy(self.shift[client]).to(self.device)
            parts = self.model.unflatten(shift)
            for param, part in zip(self.module.parameters(), parts, strict=False):
                hook = param.register_hook(lambda grad, part=part: grad + part)
                hooks.append(hook)

        loss = super()._client(client, round, weights)
        for hook in hooks:
            hook.remove()
        return loss
