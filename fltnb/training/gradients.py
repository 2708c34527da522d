"""SGD's rule and the backward passes of layers that the hand-written steps share.

The backward passes are torch's own functions, those that autograd calls, without its
records. They take all their arguments by position; here each has its name.
"""

from collections.abc import Callable

import torch

from ..models import POOL, Conv, Stage
from .contract import TrainSpec

Accumulate = Callable[[torch.Tensor, float, float], object]

_relu_backward = torch.ops.aten.threshold_backward.default
_pool_backward = torch.ops.aten.max_pool2d_with_indices_backward.default
_convolution_backward = torch.ops.aten.convolution_backward.default


class Parameter:
    """A parameter tensor with what its SGD needs: torch.optim.SGD's rule and FedProx's.

    Attributes
    ----------
    value : tensor
        Changed in place; other tensors may share its memory.
    velocity : tensor or None
        Momentum's buffer.
    start : tensor or None
        The target of ``proximal``: the value before local training, unless it is set.
        It stays when a call has no proximal term, for a later one that has.
    frozen : bool
        Whether a step does not change the value.
    """

    def __init__(self, value: torch.Tensor, spec: TrainSpec) -> None:
        self.value = value
        self.spec = spec
        self.velocity = torch.zeros_like(value) if spec.momentum else None
        self.start: torch.Tensor | None = None
        self.vary(spec.proximal)

    def vary(self, proximal: float, frozen: bool = False) -> None:
        """Train otherwise than the settings say, until this is called again."""
        self.proximal = proximal
        self.frozen = frozen
        if proximal and self.start is None:
            self.start = self.value.clone()

    def restart(self) -> None:
        """Start local training again from the present value."""
        if self.velocity is not None:
            self.velocity.zero_()
        if self.start is not None:
            self.start.copy_(self.value)

    def descend(self, accumulate: Accumulate, n_clients: int | None = None) -> None:
        """Take a step in place.

        ``accumulate(target, beta, alpha)`` sets ``target = beta * target + alpha *
        gradient``. ``n_clients``: of a stack of clients, only the first ones.
        """
        value = self.value
        velocity = self.velocity
        start = self.start if self.proximal else None
        if n_clients is not None:
            value = value[:n_clients]
            velocity = None if velocity is None else velocity[:n_clients]
            start = None if start is None else start[:n_clients]

        if self.frozen:
            accumulate(value, 1.0, 0.0)  # some gradients need the call
            return

        # With lr 0.1, decay 0, proximal 0.5, a gradient of 2, and a value of 4 that
        # started as 3: 4 - 0.1 * (2 + 0.5 * (4 - 3)) = 3.75. Below it is sorted by
        # what is multiplied: 0.95 * 4 - 0.1 * 2 + 0.05 * 3 = 3.75.
        # value <- value - lr (gradient + decay value + proximal (value - start))
        spec = self.spec
        pull = spec.weight_decay + self.proximal
        if velocity is None:
            accumulate(value, 1.0 - spec.lr * pull, -spec.lr)
            if start is not None:
                value.add_(start, alpha=spec.lr * self.proximal)
            return

        # the same sum into the velocity, whose old value momentum keeps
        accumulate(velocity, spec.momentum, 1.0)
        if pull:
            velocity.add_(value, alpha=pull)
        if start is not None:
            velocity.add_(start, alpha=-self.proximal)
        value.add_(velocity, alpha=-spec.lr)


def add(gradient: torch.Tensor) -> Accumulate:
    """Return the ``accumulate`` of a gradient that exists as a tensor.

    One that does not exist yet is computed and added in one call, as by
    :func:`fltnb.training.kernels.dense.backward`.
    """

    def accumulate(target: torch.Tensor, beta: float, alpha: float) -> None:
        if beta != 1:
            target.mul_(beta)
        target.add_(gradient, alpha=alpha)

    return accumulate


def before_activation(
    stage: Stage, d: torch.Tensor, out: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """Take a gradient back through a stage's ReLU and dropout, in its own type.

    ``d``, ``out`` and ``mask`` have one shape: the gradient of the activations, the
    activations, and dropout's factors, 0 or 1 / (1 - p), or None. ReLU and factors that
    are never negative may be undone in either order: where ``out`` is 0, so is the
    gradient.
    """
    if stage.relu:
        d = _relu_backward(d, out, 0)
    if mask is None:
        return d
    return (d * mask).to(d.dtype)  # a bfloat16 gradient meets a float32 mask


def pool_backward(
    d: torch.Tensor, raw: torch.Tensor, winners: torch.Tensor
) -> torch.Tensor:
    """Take a gradient back through 2x2 pooling of ``raw`` (b, C, h, w).

    ``winners``: as torch's ``max_pool2d`` returns them with ``return_indices``.
    """
    window = stride = [POOL, POOL]
    padding = [0, 0]
    dilation = [1, 1]
    ceil_mode = False
    return _pool_backward(d, raw, window, stride, padding, dilation, ceil_mode, winners)


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

    Parameters
    ----------
    conv : Conv
        Sizes of the layer.
    d : tensor, shape (b, groups * outputs, h, w)
        Gradient of its outputs.
    x : tensor, shape (b, groups * inputs, H, W)
    weight : tensor, shape (groups * outputs, inputs, k, k)
    groups : int
        Clients whose layers are computed as one grouped convolution.
    inputs, biases : bool
        Whether these gradients are wanted.
    """
    bias_sizes = [groups * conv.outputs]
    stride = [1, 1]
    padding = [conv.padding, conv.padding]
    dilation = [1, 1]
    transposed = False
    output_padding = [0, 0]
    wanted = [inputs, True, biases]
    return _convolution_backward(
        d,
        x,
        weight,
        bias_sizes,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
        wanted,
    )
