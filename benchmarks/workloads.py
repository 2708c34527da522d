"""The measured workloads, and the plain PyTorch loops that the engine is compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fltnb as fl
from fltnb import models, paths, training
from fltnb.training.serial import one_thread

BATCH, LR = 10, 0.01


@dataclass(frozen=True)
class Workload:
    """One round: ``per_round`` clients train for one epoch and their models are averaged."""

    name: str
    what: str
    origin: str
    fed: fl.Federation
    model: models.Model
    per_round: int
    repetitions: int

    def clients(self, round: int) -> np.ndarray:
        """Clients that take part in a round, the same for every contender."""
        rng = np.random.default_rng([11, round])
        return np.sort(rng.choice(self.fed.n_clients, self.per_round, replace=False))


def _federation(images: np.ndarray, labels: np.ndarray, n_classes: int, n_clients: int, size: int):
    parts = np.random.default_rng(0).permutation(len(images))[: n_clients * size].reshape(n_clients, size)
    return fl.Federation(
        images=images, labels=labels, train=list(parts), test=[parts[0]] * n_clients, n_classes=n_classes
    )


def _mlp() -> Workload:
    if any((folder / "mnist.npz").exists() for folder in paths.data()):  # a benchmark downloads nothing
        images = fl.load("mnist")
        pixels, labels, origin = images.images[images.train_index], images.labels[images.train_index], images.origin
    else:
        rng = np.random.default_rng(1)
        pixels, labels = rng.integers(0, 256, (60000, 28, 28), dtype=np.uint8), rng.integers(0, 10, 60000)
        origin = "random bytes in MNIST's shape (MNIST is not prepared here)"
    fed = _federation(pixels, labels, 10, 100, 600)
    what = "MLP 784-200-10, 20 of 100 clients x 600 images, batch 10, 1 epoch"
    return Workload("W1", what, origin, fed, models.make("mlp_plain", fed.input_shape, 10), 20, 7)


def _cnn(name: str, shape: tuple[int, ...], n_classes: int) -> Workload:
    rng = np.random.default_rng(2)
    images = rng.integers(0, 256, (20 * 50, *shape), dtype=np.uint8)
    fed = _federation(images, rng.integers(0, n_classes, len(images)), n_classes, 20, 50)
    model = models.make("leaf_cnn", fed.input_shape, n_classes)
    size = " x ".join(map(str, shape))
    what = f"LEAF CNN on {size}, {n_classes} classes ({model.n_parameters:,} parameters), 20 clients x 50, batch 10"
    return Workload(name, what, "random bytes", fed, model, 20, 3)


def workloads() -> dict[str, Callable[[], Workload]]:
    """Return the makers of W1, W2 and W3."""
    return {
        "W1": _mlp,
        "W2": lambda: _cnn("W2", (28, 28), 62),
        "W3": lambda: _cnn("W3", (32, 32, 3), 10),
    }


class ModuleLoop:
    """What a PyTorch user writes: module, optimiser and loss, one client after the other, on one thread.

    ``loader=True`` reads batches from a TensorDataset through a DataLoader; otherwise tensors are indexed (lean).
    """

    def __init__(self, work: Workload, loader: bool) -> None:
        self.work, self.loader = work, loader
        self.module = work.model.build()
        self.loss = nn.CrossEntropyLoss()
        self.data = []
        for client in range(work.fed.n_clients):
            x, y = (torch.from_numpy(a) for a in work.fed.client(client, "train"))
            self.data.append(TensorDataset(x, y))

    def close(self) -> None:
        """Nothing to release."""

    def _batches(self, client: int):
        if self.loader:
            yield from DataLoader(self.data[client], batch_size=BATCH, shuffle=True)
            return
        x, y = self.data[client].tensors
        for index in torch.randperm(len(x)).split(BATCH):
            yield x[index], y[index]

    def round(self, theta: np.ndarray, round: int) -> np.ndarray:
        """Train one round from ``theta`` (P,) and return the mean model."""
        start = self.work.model.unflatten(torch.from_numpy(theta))
        clients = self.work.clients(round)
        total = torch.zeros(theta.shape)
        with one_thread():
            for client in clients:
                with torch.no_grad():
                    for parameter, value in zip(self.module.parameters(), start, strict=True):
                        parameter.copy_(value)
                sgd = torch.optim.SGD(self.module.parameters(), lr=LR)
                for x, y in self._batches(client):
                    sgd.zero_grad()
                    self.loss(self.module(x), y).backward()
                    sgd.step()
                total += nn.utils.parameters_to_vector(self.module.parameters()).detach()
        return (total / len(clients)).numpy()


class EngineRound:
    """The same round through one of the engine's back ends."""

    def __init__(self, work: Workload, backend: str) -> None:
        spec = training.TrainSpec(local_epochs=1, batch_size=BATCH, lr=LR)
        self.work = work
        self.engine = training.make_engine(work.fed, work.model, spec, backend, device="cpu")

    def close(self) -> None:
        """End the workers."""
        self.engine.close()

    def round(self, theta: np.ndarray, round: int) -> np.ndarray:
        """Train one round from ``theta`` (P,) and return the mean model."""
        clients = self.work.clients(round)
        trained = self.engine.train(theta[None], np.zeros(len(clients), int), clients, round)
        return np.full(len(clients), 1 / len(clients), np.float32) @ trained.theta
