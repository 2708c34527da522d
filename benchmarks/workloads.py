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
from fltnb.models.base import threads

LR = 0.01
TESTED, MODELS = 2000, 20  # evaluation: samples, models that are tested on all of them


@dataclass(frozen=True)
class Workload:
    """One round: ``per_round`` clients train for one epoch and their models are averaged; then an evaluation."""

    name: str
    what: str
    origin: str
    fed: fl.Federation
    model: models.Model
    per_round: int = 20
    repetitions: int = 3
    batch: int = 10

    def clients(self, round: int) -> np.ndarray:
        """Clients that take part in a round, the same for every contender."""
        rng = np.random.default_rng([11, round])
        return np.sort(rng.choice(self.fed.n_clients, self.per_round, replace=False))

    @property
    def samples(self) -> int:
        """Samples that a round trains on."""
        return self.per_round * len(self.fed.train[0])

    def models(self) -> np.ndarray:
        """Models (20, P) to evaluate."""
        return np.stack([self.model.init(0, index) for index in range(MODELS)])


def _federation(
    images: np.ndarray, labels: np.ndarray, n_classes: int, n_clients: int, size: int
):
    parts = (
        np.random.default_rng(0)
        .permutation(len(images))[: n_clients * size]
        .reshape(n_clients, size)
    )
    test = np.arange(min(TESTED, len(images)))
    return fl.Federation(
        images=images,
        labels=labels,
        train=list(parts),
        test=[test] * n_clients,
        n_classes=n_classes,
    )


def _random(
    name: str,
    model: str,
    shape: tuple[int, ...],
    n_classes: int,
    size: int,
    n_clients: int = 20,
    **options,
):
    """Clients with random bytes: run time does not depend on the values."""
    rng = np.random.default_rng(2)
    images = rng.integers(0, 256, (n_clients * size, *shape), dtype=np.uint8)
    fed = _federation(
        images, rng.integers(0, n_classes, len(images)), n_classes, n_clients, size
    )
    net = models.make(model, fed.input_shape, n_classes)
    work = Workload(name, "", "random bytes", fed, net, **options)
    what = f"{model} on {' x '.join(map(str, shape))}, {n_classes} classes ({net.n_parameters:,} parameters),"
    what += f" {work.per_round} of {n_clients} clients x {size}, batch {work.batch}, 1 epoch"
    return Workload(name, what, "random bytes", fed, net, **options)


def _mlp() -> Workload:
    if not any(
        (folder / "mnist.npz").exists() for folder in paths.data()
    ):  # a benchmark downloads nothing
        return _random("W1", "mlp_plain", (28, 28), 10, 600, 100, repetitions=7)
    images = fl.load("mnist")
    pixels, labels = (
        images.images[images.train_index],
        images.labels[images.train_index],
    )
    fed = _federation(pixels, labels, 10, 100, 600)
    what = "mlp_plain 784-200-10, 20 of 100 clients x 600 images, batch 10, 1 epoch"
    return Workload(
        "W1",
        what,
        images.origin,
        fed,
        models.make("mlp_plain", fed.input_shape, 10),
        repetitions=7,
    )


def workloads() -> dict[str, Callable[[], Workload]]:
    """Return the makers of W1 to W5."""
    return {
        "W1": _mlp,
        "W2": lambda: _random("W2", "leaf_cnn", (28, 28), 62, 50),
        "W3": lambda: _random("W3", "leaf_cnn", (32, 32, 3), 10, 50),
        "W4": lambda: _random("W4", "lenet", (32, 32, 3), 10, 500),
        "W5": lambda: _random(
            "W5", "emdcfl_cnn", (28, 28), 10, 600, batch=64, repetitions=2
        ),
    }


def growing(per_round: int) -> Workload:
    """Return W1's network on 480 clients with 100 samples each, of whom ``per_round`` take part."""
    return _random(
        "growth",
        "mlp_plain",
        (28, 28),
        10,
        100,
        480,
        per_round=per_round,
        repetitions=5,
    )


class ModuleLoop:
    """What a PyTorch user writes: module, optimiser and loss, one client after the other, on one thread.

    ``loader=True`` reads batches from a TensorDataset through a DataLoader; otherwise tensors are indexed (lean).
    """

    def __init__(self, work: Workload, loader: bool) -> None:
        self.work, self.loader = work, loader
        self.module = work.model.build()
        self.loss = nn.CrossEntropyLoss()
        self.data = [
            self._part(client, "train") for client in range(work.fed.n_clients)
        ]
        self.test = self._part(0, "test")

    def _part(self, client: int, split: str) -> TensorDataset:
        return TensorDataset(
            *(torch.from_numpy(a) for a in self.work.fed.client(client, split))
        )

    def close(self) -> None:
        """Nothing to release."""

    def _load(self, theta: np.ndarray) -> None:
        with torch.no_grad():
            parts = self.work.model.unflatten(torch.from_numpy(theta))
            for parameter, value in zip(self.module.parameters(), parts, strict=True):
                parameter.copy_(value)

    def _batches(self, client: int):
        if self.loader:
            yield from DataLoader(
                self.data[client], batch_size=self.work.batch, shuffle=True
            )
            return
        x, y = self.data[client].tensors
        for index in torch.randperm(len(x)).split(self.work.batch):
            yield x[index], y[index]

    def round(self, theta: np.ndarray, round: int) -> np.ndarray:
        """Train one round from ``theta`` (P,) and return the mean model."""
        clients = self.work.clients(round)
        total = torch.zeros(theta.shape)
        with threads(1):
            for client in clients:
                self._load(theta)
                sgd = torch.optim.SGD(self.module.parameters(), lr=LR)
                for x, y in self._batches(client):
                    sgd.zero_grad()
                    self.loss(self.module(x), y).backward()
                    sgd.step()
                total += nn.utils.parameters_to_vector(
                    self.module.parameters()
                ).detach()
        return (total / len(clients)).numpy()

    def evaluate(self, thetas: np.ndarray) -> np.ndarray:
        """Count what each model gets right of the test samples."""
        right = []
        with threads(1), torch.no_grad():
            for theta in thetas:
                self._load(theta)
                batches = DataLoader(self.test, batch_size=250)
                right.append(
                    sum(int((self.module(x).argmax(1) == y).sum()) for x, y in batches)
                )
        return np.array(right)


class EngineRound:
    """The same round and evaluation through one of the engine's back ends."""

    def __init__(
        self,
        work: Workload,
        backend: str,
        precision: str = "float32",
        device: str = "cpu",
    ) -> None:
        spec = training.TrainSpec(
            local_epochs=1, batch_size=work.batch, lr=LR, precision=precision
        )
        self.work = work
        self.engine = training.make_engine(work.fed, work.model, spec, backend, device)

    def close(self) -> None:
        """End the workers."""
        self.engine.close()

    def round(self, theta: np.ndarray, round: int) -> np.ndarray:
        """Train one round from ``theta`` (P,) and return the mean model."""
        clients = self.work.clients(round)
        trained = self.engine.train(
            theta[None], np.zeros(len(clients), int), clients, round
        )
        return np.full(len(clients), 1 / len(clients), np.float32) @ trained.theta

    def evaluate(self, thetas: np.ndarray) -> np.ndarray:
        """Count what each model gets right of the test samples."""
        return self.engine.evaluate(
            thetas, range(len(thetas)), range(len(thetas))
        ).correct
