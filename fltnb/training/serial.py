"""One client after the other with plain autograd: the reference of all back ends.

Its training (:mod:`fltnb.training.module`) shares no code with the fast steps, so that
a comparison finds errors in the hand-written code.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from ..models import Model
from ..models.base import threads
from .contract import Engine, Trained, TrainSpec, Work
from .module import ModuleTrainer
from .samples import Samples


@contextmanager
def exact(device: torch.device, n_threads: int | None) -> Iterator[None]:
    """Use full float32 and reproducible kernels on a GPU, and some threads on a CPU.

    TF32 would round the factors of float32 products to 10 bits, and cuDNN may choose
    kernels that add in another order each time. ``n_threads``: all that torch has if
    it is None.
    """
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
    """Plain PyTorch training, on CPU or GPU; torchvision's networks need this back end.

    They train in ``n_threads`` threads on a CPU, by default all that torch has; other
    networks always in one.
    """

    backend = "serial"
    trainer_type = ModuleTrainer

    def __init__(
        self,
        fed,
        model: Model,
        spec: TrainSpec,
        device: str | torch.device = "cpu",
        n_threads: int | None = None,
    ) -> None:
        super().__init__(fed, model, spec, device)
        self.n_threads = n_threads if model.large else 1
        self.trainer = self.trainer_type(model, spec, Samples.of(fed), self.device)

    def _kernels(self):
        return exact(self.device, self.n_threads)

    def _batch(self, index: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        return self.trainer.batch(index)

    def _served(self, theta: np.ndarray):
        return self.trainer.served(theta)

    def _train(self, work: Work, done: Trained) -> None:
        with self._kernels():
            for j, client in enumerate(work.clients):
                done.loss[j] = self.trainer.train(
                    work.theta[work.rows[j]],
                    client,
                    work.round,
                    work.weights[j],
                    done.theta[j],
                    work.how.of(j),
                )
