"""One client per person: FEMNIST by writers, FLT's scenario 3 (arXiv 2103.15947, Section 4.2), and FeSEM's CelebA."""

from typing import Annotated

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream
from ..settings import Count, Natural, Rate, Whole, Within
from .base import Federation
from .kinds import kind
from .shares import apportion, pooled

MEAN_SAMPLES = 167
"""Images per writer, training and test, as FLT's standard errors imply for its 200 (about 30,000 + 3,430)."""
SPREAD = 0.38
"""Deviation of the logarithm of the number of images: sizes then deviate by 0.39 of their mean, as LEAF's do."""
STYLE = ("slant", "width", "size", "shift")
REFERENCE = 28
"""Image height that pixel amounts refer to."""


@kind
def writers(
    images: ImageSet,
    /,
    n_clients: Count = 200,
    seed: Natural | None = None,
    min_images: Count = 2,
) -> Federation:
    """Make every writer a client, with the training and test images that the image set gives that person.

    In CelebA (FeSEM, arXiv 2108.08647, Section 6.1) the "writer" of an image is the person it shows. The division of
    each person's images is the image set's own (LEAF's FEMNIST: 90 % for training); :func:`~fltnb.federations.divided`
    makes another. Writers who lack a training or a test image are passed over, and so
    are those with fewer than ``min_images`` of both together: the federation's origin
    says how many. Without a seed the writers are the first ones, as FLT does with 200
    of them; with one they are drawn. True clusters are unknown. Raises FltnbError for
    a set without ``writers``, unlike ``fl.load("femnist")``, ``fl.load("celeba")`` and
    ``fl.load("mnist_writers")``, or with too few of them.
    """
    if images.writers is None:
        raise FltnbError(
            f"{images.name} does not say whose its images are: take femnist, celeba or pseudo_writers."
        )
    held = {}
    for split, index in (("train", images.train_index), ("test", images.test_index)):
        order = index[np.argsort(images.writers[index], kind="stable")]
        names, first = np.unique(images.writers[order], return_index=True)
        held[split] = dict(zip(names.tolist(), np.split(order, first[1:]), strict=True))
    usable = np.array(
        sorted(held["train"].keys() & held["test"].keys()), dtype=np.int64
    )
    counts = np.array(
        [len(held["train"][one]) + len(held["test"][one]) for one in usable],
        dtype=np.int64,
    )
    enough = counts >= min_images
    n_few = len(usable) - enough.sum()
    usable = usable[enough]
    origin = images.origin
    having = "images of both parts"
    if min_images > 2:
        origin = f"people with {min_images} images or more, {n_few} left out; {origin}"
        having += f" and at least {min_images} in all"
    if n_clients > len(usable):
        raise FltnbError(
            f"{images.name} has {len(usable)} people with {having}: ask for fewer clients."
        )
    chosen = usable if seed is None else stream(seed, "partition").permutation(usable)
    chosen = sorted(chosen[:n_clients].tolist())
    return Federation.of(
        images,
        origin=origin,
        **{split: [of[writer] for writer in chosen] for split, of in held.items()},
    )


@kind
def pseudo_writers(
    images: ImageSet,
    /,
    n_clients: Count = 200,
    seed: Natural = 0,
    train_fraction: Rate = 0.9,
    mean_samples: Annotated[int, Whole(2)] | None = None,
    strength: Annotated[float, Within(high=2.0)] = 1.0,
    n_styles: Count | None = None,
) -> Federation:
    """Make clients that write differently, each in a hand drawn at random, out of images without known writers.

    This is **not FEMNIST**: it stands in for it where LEAF's files are not at hand. Every client gets a style of its
    own (:func:`writer_styles`), laid over all its images, and a number of images of its own (log-normal,
    :data:`SPREAD`). Images are drawn at random, so classes come about as often as in the image set, and no image goes
    to two clients or twice to one. Training and test images, one at least of each, come from the set's own parts. True
    clusters are unknown: styles vary without groups. Unlike people's, a client's images also keep the hand of whoever
    really wrote them, so that they vary more; and shapes of letters do not differ, only how they are drawn.

    Images must be grey, else FltnbError is raised, with strokes bright on black: ``emnist_byclass`` or ``digits``.

    Parameters
    ----------
    mean_samples : int, optional, images of a client; by default :data:`MEAN_SAMPLES`, or what the image set is good for
    strength : float, multiplies how far styles are from none; 0 leaves images as they are
    n_styles : int, optional
        So many hands for all clients in place of one each; client i has hand ``i % n_styles``, its true cluster.
    """
    if n_styles is not None and n_styles > n_clients:
        raise FltnbError(
            f"{n_styles} styles cannot be shared by {n_clients} clients: ask for fewer n_styles."
        )
    if images.images.ndim != 3:
        raise FltnbError(
            f"Pseudo-writers need grey images but those of {images.name} have colours: take another set."
        )
    parts = {"train": images.train_index, "test": images.test_index}
    n_train, n_test = map(len, parts.values())
    if mean_samples is None:
        room = min(n_train / train_fraction, n_test / (1 - train_fraction)) / n_clients
        mean_samples = min(
            MEAN_SAMPLES, int(0.95 * room)
        )  # rounding up to one test image takes a few more
        if mean_samples < 2 or n_clients > n_test:
            raise FltnbError(
                f"{images.name} has too few images for {n_clients} pseudo-writers: ask for fewer."
            )
    weights = np.exp(
        SPREAD * stream(seed, "partition", 4).normal(size=n_clients)
    )  # log-normal
    sizes = 2 + apportion(
        (mean_samples - 2) * n_clients, weights
    )  # with exactly the wanted mean
    tested = np.clip(
        np.rint(sizes * (1 - train_fraction)).astype(np.int64), 1, sizes - 1
    )
    pieces = {}
    for key, (split, wanted) in enumerate(
        {"train": sizes - tested, "test": tested}.items(), start=1
    ):
        if wanted.sum() > len(parts[split]):
            raise FltnbError(
                f"{wanted.sum()} {split} images are wanted of {len(parts[split])}: lower mean_samples."
            )
        pieces[split] = np.split(
            stream(seed, "partition", key).permutation(parts[split]), np.cumsum(wanted)
        )
    hands = np.arange(n_clients) % (n_styles or n_clients)
    drawn = pooled(
        (split, apply_style(images.images[of[i]], *style), images.labels[of[i]])
        for i, style in enumerate(writer_styles(n_clients, seed, strength)[hands])
        for split, of in pieces.items()
    )
    origin = f"pseudo-writers, not FEMNIST: {hands.max() + 1} random styles over images without known writers"
    named = {
        "name": f"pseudo-writers of {images.name}",
        "origin": f"{origin}; {images.origin}",
    }
    return Federation.of(
        images, **named, **drawn, clusters=None if n_styles is None else hands
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


def apply_style(
    images: np.ndarray, slant: float, width: float, size: float, shift: float
) -> np.ndarray:
    """Redraw images (n, H, W) uint8, bright strokes on black, in one hand of :func:`writer_styles`.

    Shear, magnification and shift are one linear map about the image's centre with linear interpolation, black outside.
    Strokes are widened by grey-scale dilation over 3x3 pixels, or thinned by erosion, in part for parts of a pixel.
    """
    from scipy import ndimage

    pixel = images.shape[1] / REFERENCE
    centre = (np.array(images.shape[1:]) - 1) / 2
    # from target to source: rows below the centre came from further right, as the top leans to the right
    back = np.array([[1, 0], [slant, 1]]) / size
    offset = centre - back @ (centre + np.array([shift * pixel, 0]))
    # grid-constant: plain constant would blacken the rim of images that reach the border
    options = {"order": 1, "mode": "grid-constant", "output": np.float32}
    drawn = np.stack(
        [ndimage.affine_transform(image, back, offset, **options) for image in images]
    )
    widen_or_thin = ndimage.grey_dilation if width > 0 else ndimage.grey_erosion
    left = abs(width) * pixel
    while left > 0:
        step = min(left, 1.0)
        drawn = (1 - step) * drawn + step * widen_or_thin(drawn, size=(1, 3, 3))
        left -= step
    return np.rint(np.clip(drawn, 0, 255)).astype(np.uint8)
