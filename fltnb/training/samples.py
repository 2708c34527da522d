"""A federation's samples as the fast back ends read them: pixels in, inputs out.

The arithmetic is that of :func:`fltnb.federations.to_inputs`, operation by operation,
so inputs are equal to the bit.
"""

import warnings
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from ..federations import SPLITS, Federation
from ..federations.pixels import Scale, channels, to_inputs


@dataclass(eq=False)
class Samples:
    """Pool of samples and who holds which.

    Attributes
    ----------
    images : ndarray, shape (N, d), (N, H, W) or (N, H, W, C)
        As the federation stores them: bytes, other numbers or tokens.
    labels : ndarray, shape (N,)
        Classes int64, or the numbers to predict.
    splits : dict of tuples of M int64 arrays
        For "train", "val", "test" and "probe" the positions of each client's samples.
    input_shape : tuple
        (C, H, W).
    mean, std : number, or one for each channel
        What inputs are scaled with.
    flat : tensor, shape (N, H * W * C)
        The memory of ``images``. Channels are last: an image of 2 x 2 pixels in colour
        is r g b of its first pixel, of the one to the right, and of the lower two.
    classes : tensor, shape (N,)
        The memory of ``labels``.
    shift, spread : tensors, shape (C, 1, 1) or (1, 1, 1)
        ``mean`` and ``std`` along the channels.
    """

    images: np.ndarray
    labels: np.ndarray
    splits: dict[str, tuple[np.ndarray, ...]]
    input_shape: tuple[int, ...]
    mean: Scale
    std: Scale

    @classmethod
    def of(cls, fed: Federation) -> Self:
        """Take what is needed from a federation, without copying."""
        splits = {split: tuple(getattr(fed, split)) for split in SPLITS}
        shape = tuple(fed.input_shape)
        return cls(fed.images, fed.labels, splits, shape, fed.mean, fed.std)

    def __post_init__(self) -> None:
        self.flat = tensor(self.images).view(len(self.images), -1)
        self.classes = tensor(self.labels)
        self.shift = tensor(channels(self.mean))
        self.spread = tensor(channels(self.std))

    def fill(self, index: np.ndarray, out: torch.Tensor) -> None:
        """Write the inputs of some samples into ``out``.

        Parameters
        ----------
        index : ndarray of int64, shape (n,)
        out : tensor, shape (n, C, H, W)
            With any strides and float type.
        """
        c, h, w = self.input_shape
        rows = self.flat.index_select(0, tensor(index))  # (n, H * W * C)
        raw = rows.view(-1, h, w, c).permute(0, 3, 1, 2)
        if raw.dtype != torch.uint8:
            out.copy_(raw)
            return

        # Pixels are scaled in float32 and converted afterwards, as to_inputs does. The
        # same operations in the same order: (x / 255 - mean) / std in one product and
        # one sum would be faster and differ in the last bit.
        target = out
        if out.dtype != torch.float32:
            target = torch.empty(out.shape)
        target.copy_(raw).div_(255)
        if self.mean != 0:
            target.sub_(self.shift)
        if self.std != 1:
            target.div_(self.spread)
        if target is not out:
            out.copy_(target)

    def inputs(self, index: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
        """Return the inputs (n, C, H, W) of some samples, channels last in memory."""
        c, h, w = self.input_shape
        memory = torch.empty(len(index), h, w, c, dtype=dtype)
        images = memory.permute(0, 3, 1, 2)
        self.fill(index, images)
        return images

    def batch(
        self, index: np.ndarray, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs, as the federation gives them, and targets of some samples.

        They are in torch's own memory: sums may vary with the alignment of their
        operands. Tokens stay whole numbers.
        """
        stored = self.images[index]
        targets = self.targets(index)
        if stored.dtype.kind == "i":
            return torch.tensor(stored), targets
        x = torch.tensor(to_inputs(stored, self.mean, self.std))
        return x.to(dtype), targets

    def targets(self, index: np.ndarray) -> torch.Tensor:
        """Return the targets of some samples."""
        return self.classes[tensor(index)]


def tensor(array: np.ndarray) -> torch.Tensor:
    """Return a tensor on the memory of an array, which is only read.

    torch warns of read-only arrays; here they are read-only on purpose.
    """
    array = np.ascontiguousarray(array)
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*NumPy array is not writable")
        return torch.from_numpy(array)
