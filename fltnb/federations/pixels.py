"""Samples as they are stored, and as models want them."""

import warnings
from collections.abc import Sequence

import numpy as np

from ..errors import FltnbError

Scale = float | Sequence[float]

SCALINGS: dict[str, tuple[Scale, Scale]] = {
    "unit": (0.0, 1.0),
    "symmetric": (0.5, 0.5),
    "mnist": (0.1307, 0.3081),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
"""Pixel scalings by name, as mean and standard deviation.

To [0, 1], which suits networks with ImageNet weights as they normalise by themselves;
to [-1, 1]; and what EMD-CFL's public code has for grey and for coloured digits.
"""


def to_inputs(images: np.ndarray, mean: Scale = 0.0, std: Scale = 1.0) -> np.ndarray:
    """Turn stored samples into model inputs, float32 (n, C, H, W), contiguous.

    Samples are (n, d), (n, H, W) or (n, H, W, C). uint8 pixels are scaled to
    ``(pixel / 255 - mean) / std``, with one number or one for each channel;
    floating-point data are taken as they are. Vectors become (n, 1, 1, d).
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


def pixel_scaling(images: np.ndarray) -> dict[str, float]:
    """Return ``mean`` and ``std`` as FLT's public code scales.

    Colour images to [-1, 1], grey ones to [0, 1].
    """
    colour = images.dtype == np.uint8 and images.ndim == 4 and images.shape[3] == 3
    mean, std = SCALINGS["symmetric" if colour else "unit"]
    return {"mean": mean, "std": std}


def as_samples(images: np.ndarray) -> np.ndarray:
    """Return samples as uint8 or float32.

    Raises FltnbError for another type, a shape without meaning, or NaN.
    """
    try:
        images = np.asarray(images)
    except ValueError as error:
        raise FltnbError(
            "Samples must all have the same shape: resize or pad them first."
        ) from error
    shape = images.shape
    if images.dtype != np.uint8 and not np.issubdtype(images.dtype, np.floating):
        raise FltnbError(
            f"Samples of type {images.dtype} are not understood: give uint8 pixels or "
            "floats."
        )
    if images.ndim not in (2, 3, 4) or 0 in shape:
        raise FltnbError(
            "Samples must have shape (N, d), (N, H, W), (N, H, W, C), N at least 1, "
            f"not {shape}."
        )
    if images.ndim == 4 and shape[1] in (1, 3) and shape[2] == shape[3] > 4:
        raise FltnbError(
            f"Samples of {shape} look channels first: give (N, H, W, C), "
            "x.transpose(0, 2, 3, 1)."
        )
    if images.dtype == np.uint8:
        return images

    # A number beyond float32 becomes inf and is refused as such.
    with np.errstate(over="ignore"):
        images = images.astype(np.float32, copy=False)
    if not np.isfinite(images).all():
        raise FltnbError(
            "The samples hold NaN or infinite values: remove or replace them first."
        )
    if 64 < images.max() <= 255 and images.min() >= 0 and not (images % 1).any():
        warnings.warn(
            "The samples look like pixels of 0 to 255: give them as uint8, or divide "
            "by 255.",
            stacklevel=3,
        )
    return images
