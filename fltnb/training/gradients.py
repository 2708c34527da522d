"""SGD's rule and the ways back that the hand-written steps of two back ends share."""

from collections.abc import Callable

import torch

from ..models import POOL, Conv
from .contract import TrainSpec

Accumulate = Callable[[torch.Tensor, float, float], object]

relu_backward = torch.ops.aten.threshold_backward.default
_pool_backward = torch.ops.aten.max_pool2d_with_indices_backward.default
_convolution_backward = torch.ops.aten.convolution_backward.default


class Parameter:
    """A parameter tensor with what its SGD needs: torch.optim.SGD's rule and FedProx's.

    ``velocity`` is the momentum buffer, ``start`` the value that ``proximal`` pulls to:
    that before local training, unless it is set. A ``frozen`` one stays.
    """

    def __init__(self, value: torch.Tensor, spec: TrainSpec) -> None:
        self.value = value
        self.spec = spec
        self.velocity = torch.zeros_like(value) if spec.momentum else None
        self.start = None
        self.vary(spec.proximal)

    def vary(self, proximal: float, frozen: bool = False) -> None:
        """Train otherwise than the settings say, until this is called again."""
        self.proximal = proximal
        self.frozen = frozen
        if proximal and self.start is None:
            self.start = self.value.clone()

    def restart(self) -> None:
        """Begin local training anew, from the present value."""
        if self.velocity is not None:
            self.velocity.zero_()
        if self.start is not None:
            self.start.copy_(self.value)

    def descend(self, accumulate: Accumulate, n_clients: int | None = None) -> None:
        """Take a step in place.

        ``accumulate(target, beta, alpha)`` sets ``target = beta * target + alpha *
        gradient``. ``n_clients``: of a stack of clients, only the first ones.
        """
        value, velocity = self.value, self.velocity
        start = self.start if self.proximal else None
        if n_clients is not None:
            value = value[:n_clients]
            velocity = None if velocity is None else velocity[:n_clients]
            start = None if start is None else start[:n_clients]

        if self.frozen:
            accumulate(value, 1.0, 0.0)  # whoever computes gradients needs the call
            return

        spec = self.spec
        pull = spec.weight_decay + self.proximal
        if velocity is None:
            accumulate(value, 1.0 - spec.lr * pull, -spec.lr)
            if start is not None:
                value.add_(start, alpha=spec.lr * self.proximal)
            return

        accumulate(velocity, spec.momentum, 1.0)
        if pull:
            velocity.add_(value, alpha=pull)
        if start is not None:
            velocity.add_(start, alpha=-self.proximal)
        value.add_(velocity, alpha=-spec.lr)


def add(gradient: torch.Tensor) -> Accumulate:
    """Return the ``accumulate`` of a gradient that exists as a tensor."""

    def accumulate(target: torch.Tensor, beta: float, alpha: float) -> None:
        if beta != 1:
            target.mul_(beta)
        target.add_(gradient, alpha=alpha)

    return accumulate


def before_activation(layer, d: torch.Tensor) -> torch.Tensor:
    """Take a gradient back through a layer's ReLU and mask."""
    if layer.stage.relu:
        d = relu_backward(d, layer.out, 0)
    return d if layer.mask is None else d * layer.mask


def before_pooling(layer, d: torch.Tensor) -> torch.Tensor:
    """Take a gradient back to the outputs ``layer.raw`` of a convolution, if pooled."""
    d = d.to(layer.raw.dtype)
    return pool_backward(d, layer.raw, layer.winners) if layer.stage.pool else d


def pool_backward(
    d: torch.Tensor, raw: torch.Tensor, winners: torch.Tensor
) -> torch.Tensor:
    """Take a gradient back through 2x2 pooling of ``raw``."""
    window = [POOL, POOL]
    return _pool_backward(d, raw, window, window, [0, 0], [1, 1], False, winners)


def convolution_gradients(
    conv: Conv,
    d: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    groups: int = 1,
    inputs: bool = True,
    biases: bool = True,
) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor | None]:
    """Return the gradients of inputs, weight and bias; None where not wanted.

    The weight's shape is (groups * outputs, inputs, k, k).
    """
    stride = dilation = [1, 1]
    padding = [conv.padding, conv.padding]
    bias = [groups * conv.outputs]
    wanted = [inputs, True, biases]
    return _convolution_backward(
        *(d, x, weight, bias),
        *(stride, padding, dilation, False, [0, 0], groups, wanted),
    )
