"""Gradients and training by plain autograd, for a method whose local step no engine has (FedDANE)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch.backends.cudnn import flags
from torch.nn import functional

from ..training import Engine
from ..training.contract import keep_masks, order
from ..training.serial import one_thread

SLICE = 1000  # samples per backward pass of a full gradient


@contextmanager
def kernels() -> Iterator[None]:
    """Use one thread on a CPU and reproducible kernels on a GPU, as the engines do."""
    with one_thread(), flags(enabled=True, deterministic=True, benchmark=False, allow_tf32=False):
        yield


def full_gradient(engine: Engine, theta: np.ndarray, client: int) -> np.ndarray:
    """Gradient (P,) of a client's mean training loss at ``theta`` (P,), without dropout."""
    params, mine = _parameters(engine, theta), engine.fed.train[client]
    for begin in range(0, len(mine), SLICE):
        x, y = _samples(engine, mine[begin : begin + SLICE])
        (functional.cross_entropy(engine.model.forward(params, x), y, reduction="sum") / len(mine)).backward()
    return torch.cat([param.grad.flatten() for param in params]).cpu().numpy()


def corrected_training(
    engine: Engine, theta: np.ndarray, client: int, round: int, shift: np.ndarray
) -> tuple[np.ndarray, float]:
    """Train as the engine would, with ``shift`` (P,) added to each gradient: model (P,), loss of the last epoch."""
    spec, net, mine = engine.spec, engine.model, engine.fed.train[client]
    params = _parameters(engine, theta)
    start = [param.detach().clone() for param in params]
    constant = [part.to(params[0].device) for part in net.unflatten(shift)]
    sgd = torch.optim.SGD(params, spec.lr, spec.momentum, weight_decay=spec.weight_decay)
    for epoch in range(spec.local_epochs):
        total, sequence = 0.0, order(spec, round, client, epoch, len(mine))
        masks = [torch.from_numpy(mask) for mask in keep_masks(spec, net, round, client, epoch, len(mine))]
        for begin in range(0, len(mine), spec.batch_size):
            part = slice(begin, begin + spec.batch_size)
            x, y = _samples(engine, mine[sequence[part]])
            out = net.forward(params, x, [mask[part].to(x.device) for mask in masks])
            losses = functional.cross_entropy(out, y, reduction="none")
            sgd.zero_grad()
            losses.mean().backward()
            for param, before, extra in zip(params, start, constant, strict=True):
                param.grad += extra + spec.proximal * (param.detach() - before)
            sgd.step()
            total += float(losses.detach().double().sum())
    return torch.cat([param.detach().flatten() for param in params]).cpu().numpy(), total / len(mine)


def _parameters(engine: Engine, theta: np.ndarray) -> list:
    device = getattr(engine, "device", "cpu")
    return [part.to(device, copy=True).requires_grad_() for part in engine.model.unflatten(theta)]


def _samples(engine: Engine, index: np.ndarray) -> tuple:
    device, dtype = getattr(engine, "device", "cpu"), getattr(torch, engine.spec.dtype)
    x = torch.from_numpy(engine.fed.inputs(index)).to(device, dtype)
    return x, torch.from_numpy(engine.fed.labels[index]).to(device)
