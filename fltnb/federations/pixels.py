"""Samples in their stored form, and as inputs of models."""

import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from ..arrays import as_array, as_float32
from ..errors import FltnbError, choose
from .preprocessing import some

Scale = float | Sequence[float]
Layout = Literal["pictures", "tokens", "sequences"]
LAYOUTS = get_args(Layout)
"""How samples are laid out.

Pictures and vectors become inputs (n, C, H, W). Tokens, int64 (N, L), and sequences,
float32 (N, L, D), are inputs without change.
"""

SCALINGS: dict[str, tuple[Scale, Scale]] = {
    "unit": (0.0, 1.0),
    "symmetric": (0.5, 0.5),
    "mnist": (0.1307, 0.3081),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
"""Pixel scalings by name, as mean and standard deviation.

To [0, 1], for networks with ImageNet weights, which normalise their inputs themselves;
to [-1, 1]; and those of EMD-CFL's public code for grey and for coloured digits.
"""


def to_inputs(images: np.ndarray, mean: Scale = 0.0, std: Scale = 1.0) -> np.ndarray:
    """Turn stored samples into model inputs, float32 (n, C, H, W), contiguous.

    Samples are (n, d), (n, H, W) or (n, H, W, C). uint8 pixels are scaled to
    ``(pixel / 255 - mean) / std``, with one number or one for each channel;
    floating-point data are not scaled. Vectors become (n, 1, 1, d).

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fl.federations.to_inputs(digits.images[:2]).shape
    (2, 1, 8, 8)
    """
    images = images[:, None] if images.ndim == 2 else images
    images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    inputs = np.array(images, dtype=np.float32, order="C")
    if images.dtype == np.uint8:
        inputs /= np.float32(255)
        if np.any(mean):
            inputs -= channels(mean)
        if np.any(np.asarray(std) != 1):
            inputs /= channels(std)
    return inputs


def channels(values: Scale) -> np.ndarray:
    """Return a number, or one for each channel, as float32 (1 or C, 1, 1)."""
    return np.asarray(values, dtype=np.float32).reshape(-1, 1, 1)


def pixel_scaling(images: np.ndarray) -> dict[str, Scale]:
    """Return ``mean`` and ``std`` as FLT's public code scales.

    Colour images are scaled to [-1, 1], grey ones to [0, 1].
    """
    pixels = images.dtype == np.uint8
    colour = pixels and images.ndim == 4 and images.shape[3] == 3
    mean, std = SCALINGS["symmetric" if colour else "unit"]
    return {"mean": mean, "std": std}


def as_samples(images: Any, layout: Layout | None = None) -> np.ndarray:
    """Return samples as uint8, float32, or int64 if they are tokens.

    Raises FltnbError if the samples have another type or a shape without a meaning,
    hold NaN or masked values, or differ by less than float32 can show.
    """
    images = as_array(images, "Samples")
    if layout_of(images, layout) == "tokens":
        return _as_tokens(images)
    if layout == "sequences" and (images.ndim != 3 or images.dtype.kind != "f"):
        raise FltnbError(
            f"Sequences must be floats (N, L, D), not {images.dtype} {images.shape}: "
            "convert them, or pad them to one length L, with D numbers a step."
        )
    _check_pictures(images, layout)
    if images.dtype == np.uint8:
        return images

    # A number beyond float32 becomes inf and is then refused.
    images = as_float32(images, "Samples")
    finite = np.isfinite(images).reshape(len(images), -1).all(axis=1)  # (N,)
    if not finite.all():
        raise FltnbError(
            f"Samples {some(np.flatnonzero(~finite))}, counted from 0, hold NaN or "
            "infinite values: remove or replace them first."
        )
    in_range = 64 < images.max() <= 255 and images.min() >= 0
    if in_range and not (images % 1).any():  # whole numbers
        warnings.warn(
            "The samples look like pixels of 0 to 255: give them as uint8, or divide "
            "by 255.",
            stacklevel=3,
        )
    return images


def layout_of(images: np.ndarray, layout: Layout | None) -> Layout:
    """Return the layout of samples: the given one, or by their type."""
    if layout is not None:
        choose(layout, LAYOUTS, "layout")
        return layout
    whole = images.dtype.kind in "iu" and images.dtype != np.uint8
    return "tokens" if whole and images.ndim == 2 else "pictures"


def _check_pictures(images: np.ndarray, layout: Layout | None) -> None:
    """Refuse a type or shape that is not that of pictures or vectors."""
    shape = images.shape
    floats = np.issubdtype(images.dtype, np.floating)
    if images.dtype != np.uint8 and not floats:
        raise FltnbError(
            f"Samples of type {images.dtype} are not understood: give uint8 pixels or "
            "floats, or tokens as integers (N, L)."
        )
    if images.ndim not in (2, 3, 4) or 0 in shape:
        raise FltnbError(
            "Samples must have shape (N, d), (N, H, W), (N, H, W, C), N at least 1, "
            f"not {shape}."
        )
    if images.ndim == 4:
        _, second, third, last = shape
        # no picture is 1 or 3 pixels high with as many channels as it is wide
        if second in (1, 3) and third == last > 4:
            raise FltnbError(
                f"Samples of {shape} look channels first: give (N, H, W, C), "
                "x.transpose(0, 2, 3, 1)."
            )


def _as_tokens(tokens: np.ndarray) -> np.ndarray:
    """Return tokens (N, L) as int64, or refuse them."""
    if tokens.ndim != 2 or 0 in tokens.shape or tokens.dtype.kind not in "iu":
        raise FltnbError(
            "Tokens must be whole numbers (N, L), padded to one length L, not "
            f"{tokens.dtype} {tokens.shape}."
        )
    if tokens.min() < 0:
        raise FltnbError(
            f"Tokens are counted from 0, but one is {tokens.min()}: give padding a "
            "number of its own; measured whole numbers must be floats."
        )
    return tokens.astype(np.int64, copy=False)
