"""Gradients and training by plain autograd, for FedDANE's corrected local steps."""

import numpy as np
import torch
from torch.nn import functional

from ...training.module import ModuleTrainer
from ...training.serial import SerialEngine
from ..samples import SLICE


class CorrectedTrainer(ModuleTrainer):
    """Adds each client's ``shift`` (P,) to the gradients of its steps."""

    shift: dict[int, np.ndarray] | None = None

    def train(self, theta, client, round, sample_weights, out, *how) -> float:
        """Train one client, as :meth:`ModuleTrainer.train` says."""
        hooks = []
        if self.shift:
            shift = torch.from_numpy(self.shift[client]).to(self.device)
            parts = self.model.unflatten(shift)
            for param, part in zip(self.parameters, parts, strict=False):
                hook = param.register_hook(lambda grad, part=part: grad + part)
                hooks.append(hook)

        loss = super().train(theta, client, round, sample_weights, out, *how)
        for hook in hooks:
            hook.remove()
        return loss


class CorrectedEngine(SerialEngine):
    """The serial engine, which also gives gradients.

    It adds each client's ``shift`` to the gradients of its steps.
    """

    trainer_type = CorrectedTrainer

    def gradient(self, theta: np.ndarray, client: int) -> np.ndarray:
        """Gradient (P,) of a client's mean training loss at ``theta``, no dropout."""
        samples = self.fed.train[client]
        trainer = self.trainer
        weights = self.spec.class_weights
        if weights is not None:
            weights = torch.tensor(weights, dtype=trainer.dtype, device=self.device)
        trainer.load(theta)
        trainer.module.eval().zero_grad()
        with self._kernels():
            for begin in range(0, len(samples), SLICE):
                x, y = trainer.batch(samples[begin : begin + SLICE])
                outputs = trainer.forward(x)
                loss = functional.cross_entropy(outputs, y, weights, reduction="sum")
                (loss / len(samples)).backward()

        gradients = [param.grad.flatten() for param in trainer.parameters]
        return torch.cat(gradients).cpu().numpy()
