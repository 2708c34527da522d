"""The measured workloads, and the plain PyTorch loops that they are compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fltnb as fl
from fltnb import models, paths, training
from fltnb.models.base import threads

LR = 0.01
TESTED = 2000  # samples of an evaluation
MODELS = 20  # models that are tested on all of them


@dataclass(frozen=True)
class Workload:
    """One round and one evaluation.

    ``per_round`` clients train for one epoch and their models are averaged.
    """

    name: str
    origin: str  # of the samples
    fed: fl.Federation
    model: models.Model
    per_round: int = 20
    repetitions: int = 3
    batch: int = 10

    @property
    def what(self) -> str:
        """The workload in words."""
        c, h, w = self.model.input_shape
        return (
            f"{self.model.name} on {h} x {w} x {c}, {self.model.n_classes} classes "
            f"({self.model.n_parameters:,} parameters), {self.per_round} of "
            f"{self.fed.n_clients} clients x {len(self.fed.train[0])}, batch "
            f"{self.batch}, 1 epoch"
        )

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
) -> fl.Federation:
    order = np.random.default_rng(0).permutation(len(images))
    parts = order[: n_clients * size].reshape(n_clients, size)
    test = np.arange(min(TESTED, len(images)))
    return fl.Federation(
        images=images,
        labels=labels,
        train=list(parts),
        test=[test] * n_clients,
        n_classes=n_classes,
    )


def random_workload(
    name: str,
    model: str,
    shape: tuple[int, ...],
    n_classes: int,
    size: int,
    n_clients: int = 20,
    **options,
) -> Workload:
    """Clients with random bytes: run time does not depend on the values."""
    rng = np.random.default_rng(2)
    images = rng.integers(0, 256, (n_clients * size, *shape), dtype=np.uint8)
    labels = rng.integers(0, n_classes, len(images))
    fed = _federation(images, labels, n_classes, n_clients, size)
    net = models.make(model, fed.input_shape, n_classes)
    return Workload(name, "random bytes", fed, net, **options)


def _mlp() -> Workload:
    # A benchmark downloads nothing.
    if not any((folder / "mnist.npz").exists() for folder in paths.data()):
        return random_workload("W1", "mlp_plain", (28, 28), 10, 600, 100, repetitions=7)
    mnist = fl.load("mnist")
    pixels = mnist.images[mnist.train_index]
    labels = mnist.labels[mnist.train_index]
    fed = _federation(pixels, labels, 10, 100, 600)
    net = models.make("mlp_plain", fed.input_shape, 10)
    return Workload("W1", mnist.origin, fed, net, repetitions=7)


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "W1": _mlp,
    "W2": partial(random_workload, "W2", "leaf_cnn", (28, 28), 62, 50),
    "W3": partial(random_workload, "W3", "leaf_cnn", (32, 32, 3), 10, 50),
    "W4": partial(random_workload, "W4", "lenet", (32, 32, 3), 10, 500),
    "W5": partial(
        random_workload, "W5", "emdcfl_cnn", (28, 28), 10, 600, batch=64, repetitions=2
    ),
}


def growing(per_round: int) -> Workload:
    """Return W1's network on 480 clients of 100 samples, ``per_round`` in a round."""
    shape = (28, 28)
    options = {"per_round": per_round, "repetitions": 5}
    return random_workload("growth", "mlp_plain", shape, 10, 100, 480, **options)


class ModuleLoop:
    """What a PyTorch user writes: module, optimiser and loss, client after client.

    It runs on one thread. ``loader=True`` reads batches from a TensorDataset through a
    DataLoader; otherwise tensors are indexed (lean). Batches go to the device one by
    one.
    """

    def __init__(self, work: Workload, loader: bool, device: str = "cpu") -> None:
        self.work = work
        self.loader = loader
        self.device = device
        self.module = work.model.build().to(device)
        self.loss = nn.CrossEntropyLoss()
        n_clients = work.fed.n_clients
        self.data = [self._part(client, "train") for client in range(n_clients)]
        self.test = self._part(0, "test")

    def _part(self, client: int, split: str) -> TensorDataset:
        x, y = self.work.fed.client(client, split)
        return TensorDataset(torch.from_numpy(x), torch.from_numpy(y))

    def close(self) -> None:
        """Nothing to release."""

    def _load(self, theta: np.ndarray) -> None:
        parts = self.work.model.unflatten(torch.from_numpy(theta))
        with torch.no_grad():
            for parameter, value in zip(self.module.parameters(), parts, strict=True):
                parameter.copy_(value)

    def _batches(self, client: int):
        data = self.data[client]
        if self.loader:
            yield from DataLoader(data, batch_size=self.work.batch, shuffle=True)
            return
        x, y = data.tensors
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
                    outputs = self.module(x.to(self.device))
                    self.loss(outputs, y.to(self.device)).backward()
                    sgd.step()
                parameters = self.module.parameters()
                total += nn.utils.parameters_to_vector(parameters).detach().cpu()
        return (total / len(clients)).numpy()

    def evaluate(self, thetas: np.ndarray) -> np.ndarray:
        """Count what each model gets right of the test samples."""
        right = np.zeros(len(thetas), dtype=np.int64)
        with threads(1), torch.no_grad():
            for k, theta in enumerate(thetas):
                self._load(theta)
                for x, y in DataLoader(self.test, batch_size=250):
                    found = self.module(x.to(self.device)).argmax(1)
                    right[k] += int((found == y.to(self.device)).sum())
        return right


class EngineRound:
    """The same round and evaluation through one of the engine's back ends."""

    def __init__(
        self,
        work: Workload,
        backend: str,
        precision: str = "float32",
        device: str = "cpu",
        step: str = "auto",
    ) -> None:
        spec = training.TrainSpec(batch_size=work.batch, lr=LR, precision=precision)
        self.work = work
        self.engine = training.make_engine(
            work.fed, work.model, spec, backend, device, step=step
        )

    def close(self) -> None:
        """End the workers."""
        self.engine.close()

    def round(self, theta: np.ndarray, round: int) -> np.ndarray:
        """Train one round from ``theta`` (P,) and return the mean model."""
        clients = self.work.clients(round)
        n = len(clients)
        trained = self.engine.train(theta[None], np.zeros(n, int), clients, round)
        return np.full(n, 1 / n, np.float32) @ trained.theta

    def evaluate(self, thetas: np.ndarray) -> np.ndarray:
        """Count what each model gets right of the test samples."""
        each = range(len(thetas))
        return self.engine.evaluate(thetas, each, each).correct
