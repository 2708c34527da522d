"""Grey images drawn in four styles, each style a domain: a small stand-in for PACS, which cannot be embedded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream
from .base import Federation
from .domains import domains
from .shares import integer, source

STYLES = ("plain", "inverted", "thick", "outline")
"""Domains 0 to 3."""


def renderings(
    images: ImageSet,
    min_samples: int = 150,
    samples_per_client: int | None = None,
    val_fraction: float = 0.1,
    test_fraction: float = 0.1,
    seed: int = 0,
) -> Federation:
    """Draw a quarter of the images in each of the styles, and divide every style over clients as its domain.

    No image occurs in two styles, as no picture of PACS occurs in two domains. Ours, not a paper's: it has four
    domains where PACS cannot be had, and says nothing about PACS.

    Parameters
    ----------
    images : ImageSet
        Grey.
    min_samples, samples_per_client, val_fraction, test_fraction, seed
        As in :func:`~fltnb.federations.domains`; ``seed`` also decides which image gets which style.

    Raises
    ------
    FltnbError
        Colour images, and as in :func:`~fltnb.federations.domains`.
    """
    own = source(images)
    if images.images.ndim != 3:
        raise FltnbError(f"Renderings are made of grey images, which {images.name} has not: take digits or MNIST.")
    order = stream(integer(seed, "seed", 0), "partition", 7).permutation(len(images))
    style = np.empty(len(images), dtype=np.uint8)
    style[order] = np.arange(len(images)) % len(STYLES)
    drawn = images.images.copy()
    for domain, name in enumerate(STYLES):
        drawn[style == domain] = render(images.images[style == domain], name)
    styled = replace(images, name=f"renderings of {images.name}", images=drawn, domains=style)
    fed = domains(styled, min_samples, samples_per_client, val_fraction, test_fraction, seed)
    rest = {key: value for key, value in fed.settings.items() if key not in ("kind", "dataset", "content")}
    return replace(fed, name=styled.name, settings={"kind": "renderings", **own, **rest})


def render(grey: np.ndarray, style: str) -> np.ndarray:
    """Draw images (n, H, W) uint8 in one of the :data:`STYLES`.

    "thick" takes the brightest of each pixel's 3 x 3 neighbours; "outline" is that less the image itself.
    """
    from scipy.ndimage import maximum_filter

    if style == "plain":
        return grey.copy()
    if style == "inverted":
        return 255 - grey
    thick = maximum_filter(grey, size=(1, 3, 3))
    return thick if style == "thick" else thick - grey
