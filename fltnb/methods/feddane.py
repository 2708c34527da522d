"""FedDANE, a row of FeSEM's tables: a federated Newton-type method (Li et al., arXiv 2001.01920)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import FltnbError
from ..settings import NonNegative
from .base import Context, State, mix
from .graph import FedAvg

if TYPE_CHECKING:
    from ..training import Engine

SLICE = 1000  # samples per backward pass of a full gradient


class FedDANE(FedAvg):
    """Participants agree on a gradient first, then train with their own one replaced by it.

    Phase A: each sends the gradient of its mean loss at the server's model; the server returns their mean g, weighted
    by samples. Phase B: each minimises ``f_i(theta) + <g - grad f_i(sent), theta> + mu / 2 ||theta - sent||^2`` by SGD,
    so that every step has the constant ``g - grad f_i(sent)`` added to its gradient; FedAvg's mean follows.

    Parameters
    ----------
    mu : float
        Weight of the proximal term, at least 0. FeSEM's configurations try 0, 0.5 and 1; 0.5 is the default.

    Notes
    -----
    The paper draws other clients for phase B. The official code seeds both draws with the round number, so they are the
    same, and they are here. The engines know no constant added to a gradient: this method trains by plain autograd,
    one client after the other on the engine's device, with the orders and masks that the engine would draw. The
    gradient of phase A is taken without dropout.

    Raises
    ------
    FltnbError
        ``mu`` is negative, or the model is one of torchvision's.
    """

    name = "feddane"
    models_down = 3  # the model and the mean gradient; the model once more, for phase B
    models_up = 2

    def __init__(self, mu: NonNegative = 0.5):
        super().__init__()

    def local_training(self) -> dict[str, float]:
        """Add the proximal term."""
        return {"proximal": self.mu}

    def start(self, fed, model, context: Context) -> State:
        """As FedAvg."""
        if not model.layers:
            raise FltnbError(
                f"FedDANE trains networks of fltnb.models.NAMES, not {model.name!r}: choose another model or method."
            )
        return super().start(fed, model, context)

    def train(self, state: State, clients: np.ndarray, round: int, engine):
        """Both phases."""
        from torch.backends.cudnn import flags

        from ..training import Trained
        from ..training.serial import one_thread

        theta = state["models"][0].astype(engine.spec.dtype)
        weights = state["weights"][clients]
        # one thread on a CPU and reproducible kernels on a GPU, as in the engines
        with one_thread(), flags(enabled=True, deterministic=True, benchmark=False, allow_tf32=False):
            gradients = np.stack([full_gradient(engine, theta, client) for client in clients])
            shift = mix(weights[None] / weights.sum(), gradients) - gradients
            done = [
                corrected_training(engine, theta, client, round, own)
                for client, own in zip(clients, shift, strict=True)
            ]
        return state, Trained(np.stack([model for model, _ in done]), np.array([loss for _, loss in done]))


def full_gradient(engine: Engine, theta: np.ndarray, client: int) -> np.ndarray:
    """Gradient (P,) of a client's mean training loss at ``theta`` (P,), without dropout."""
    import torch
    from torch.nn import functional

    params, mine = _parameters(engine, theta), engine.fed.train[client]
    for begin in range(0, len(mine), SLICE):
        x, y = _samples(engine, mine[begin : begin + SLICE])
        (functional.cross_entropy(engine.model.forward(params, x), y, reduction="sum") / len(mine)).backward()
    return torch.cat([param.grad.flatten() for param in params]).cpu().numpy()


def corrected_training(
    engine: Engine, theta: np.ndarray, client: int, round: int, shift: np.ndarray
) -> tuple[np.ndarray, float]:
    """Train one client as the engine would, with ``shift`` (P,) added to the gradient of every step.

    Returns the model (P,) and the mean loss over the last local epoch.
    """
    import torch
    from torch.nn import functional

    from ..training.contract import keep_masks, order

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
    import torch

    device, dtype = getattr(engine, "device", "cpu"), getattr(torch, engine.spec.dtype)
    x = torch.from_numpy(engine.fed.inputs(index)).to(device, dtype)
    return x, torch.from_numpy(engine.fed.labels[index]).to(device)
