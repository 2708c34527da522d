"""Pseudo-writers: the stand-in for FEMNIST's writers where only images without names are at hand."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream
from ..settings import Count, Natural, Rate, Whole, Within
from .base import Federation
from .kinds import kind
from .shares import apportion

MEAN_SAMPLES = 167
"""Images per writer, training and test, as FLT's standard errors imply for its 200 (about 30,000 + 3,430)."""
SPREAD = 0.38
"""Deviation of the logarithm of the number of images: sizes then deviate by 0.39 of their mean, as LEAF's do."""
STYLE = ("slant", "width", "size", "shift")
REFERENCE = 28
"""Image height that pixel amounts refer to."""


@kind
def pseudo_writers(
    images: ImageSet,
    /,
    n_clients: Count = 200,
    seed: Natural = 0,
    train_fraction: Rate = 0.9,
    mean_samples: Annotated[int, Whole(2)] | None = None,
    strength: Annotated[float, Within(high=2.0)] = 1.0,
) -> Federation:
    """Make clients that write differently, each in a hand drawn at random, out of images without known writers.

    This is **not FEMNIST**, the data of FLT's scenario 3 (arXiv 2103.15947, Section 4.2): it stands in for it where
    LEAF's files are not at hand. Every client gets a style of its own (:func:`writer_styles`) which is laid over all
    its images, and a number of images of its own (log-normal, :data:`SPREAD`). Images are drawn at random, so classes
    come about as often as in the image set, and no image goes to two clients or twice to one. Training images come
    from the image set's training part, test images from its test part. True clusters are unknown: styles vary without
    groups.

    Unlike people's, a client's images also keep the hand of whoever really wrote them, so that they vary more; and
    shapes of letters do not differ between clients, only how they are drawn.

    Images must be grey, else FltnbError is raised, with strokes bright on black, such as ``emnist_byclass`` or
    ``digits``. The federation owns what is made of them, writer by writer.

    Parameters
    ----------
    train_fraction : float
        Share of a client's images that are for training; at least one image is for each part.
    mean_samples : int, optional
        Mean number of images of a client. Default: :data:`MEAN_SAMPLES`, or as many as the image set is good for.
    strength : float
        Multiplies how far styles are from none; 0 leaves images as they are.
    """
    if images.images.ndim != 3:
        raise FltnbError(f"Pseudo-writers need grey images but those of {images.name} have colours: take another set.")
    available = {"train": len(images.train_index), "test": len(images.test_index)}
    if mean_samples is None:
        room = min(available["train"] / train_fraction, available["test"] / (1 - train_fraction)) / n_clients
        mean_samples = min(MEAN_SAMPLES, int(0.95 * room))  # rounding up to one test image takes a few more
        if mean_samples < 2 or n_clients > available["test"]:
            raise FltnbError(
                f"{images.name} has {available['train']} training and {available['test']} test images, too few for"
                f" {n_clients} pseudo-writers: ask for fewer."
            )
    weights = np.exp(SPREAD * stream(seed, "partition", 4).normal(size=n_clients))  # log-normal
    sizes = 2 + apportion((mean_samples - 2) * n_clients, weights)  # with exactly the wanted mean
    counts = {"test": np.clip(np.rint(sizes * (1 - train_fraction)).astype(np.int64), 1, sizes - 1)}
    counts["train"] = sizes - counts["test"]
    for split, wanted in counts.items():
        if wanted.sum() > available[split]:
            raise FltnbError(
                f"{n_clients} pseudo-writers of {mean_samples} images on average want {wanted.sum()} {split} images but"
                f" {images.name} has {available[split]}: ask for fewer clients or a smaller mean_samples."
            )
    pieces = {
        split: np.split(stream(seed, "partition", key).permutation(index), np.cumsum(counts[split]))[:n_clients]
        for key, split, index in ((1, "train", images.train_index), (2, "test", images.test_index))
    }
    chosen = [np.concatenate([pieces["train"][i], pieces["test"][i]]) for i in range(n_clients)]
    styles = writer_styles(n_clients, seed, strength)
    pool = [apply_style(images.images[own], *styles[i]) for i, own in enumerate(chosen)]
    places = np.split(np.arange(sizes.sum()), np.cumsum(sizes)[:-1])
    return Federation.of(
        images,
        images=np.concatenate(pool),
        labels=images.labels[np.concatenate(chosen)],
        name=f"pseudo-writers of {images.name}",
        origin=f"pseudo-writers, not FEMNIST: {n_clients} random styles over images without known writers;"
        f" {images.origin}",
        train=[place[:n] for place, n in zip(places, counts["train"], strict=True)],
        test=[place[n:] for place, n in zip(places, counts["train"], strict=True)],
    )


def writer_styles(n_clients: int, seed: int = 0, strength: float = 1.0) -> np.ndarray:
    """Draw the hands of pseudo-writers, independently of each other and of how many there are.

    Returns float64 (n_clients, 4), columns :data:`STYLE`: *slant*, the shear to the right per height (0.25 leans by 14
    degrees), normal with deviation 0.28, at most 0.6 to either side; *width*, pixels added to each side of a stroke
    (negative: taken away) in an image of 28 pixels, uniform in -0.6 to 0.9; *size*, the magnification, uniform in 0.65
    to 1; *shift*, pixels downward in an image of 28, normal with deviation 1, at most 2. ``strength`` multiplies slant,
    width and shift and is the exponent of size.
    """
    styles = np.empty((n_clients, len(STYLE)))
    for i in range(n_clients):
        rng = stream(seed, "partition", 3, i)
        slant = np.clip(rng.normal(0, 0.28), -0.6, 0.6) * strength
        width = rng.uniform(-0.6, 0.9) * strength
        size = rng.uniform(0.65, 1.0) ** strength
        styles[i] = slant, width, size, np.clip(rng.normal(), -2, 2) * strength
    return styles


def apply_style(images: np.ndarray, slant: float, width: float, size: float, shift: float) -> np.ndarray:
    """Redraw images (n, H, W) uint8, bright strokes on black, in one hand of :func:`writer_styles`.

    Shear, magnification and shift are one linear map about the image's centre with linear interpolation; black comes
    in from outside. Strokes are widened by grey-scale dilation over 3x3 pixels, or thinned by erosion; fractions of a
    pixel mix the images before and after a step.
    """
    from scipy import ndimage

    pixel = images.shape[1] / REFERENCE
    centre = (np.array(images.shape[1:]) - 1) / 2
    # from target to source: rows below the centre came from further right, as the top leans to the right
    back = np.array([[1, 0], [slant, 1]]) / size
    offset = centre - back @ (centre + np.array([shift * pixel, 0]))
    # grid-constant: plain constant would blacken the rim of images that reach the border
    options = {"order": 1, "mode": "grid-constant", "output": np.float32}
    drawn = np.stack([ndimage.affine_transform(image, back, offset, **options) for image in images])
    widen_or_thin = ndimage.grey_dilation if width > 0 else ndimage.grey_erosion
    left = abs(width) * pixel
    while left > 0:
        step = min(left, 1.0)
        drawn = (1 - step) * drawn + step * widen_or_thin(drawn, size=(1, 3, 3))
        left -= step
    return np.rint(np.clip(drawn, 0, 255)).astype(np.uint8)
