"""One client per person.

FEMNIST by writers, FLT's scenario 3 (arXiv 2103.15947, Section 4.2), and FeSEM's
CelebA (arXiv 2108.08647, Section 6.1).
"""

from typing import Annotated

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream
from ..settings import Count, Natural, Rate, Whole, Within
from .base import Federation
from .kinds import kind
from .shares import Drawn, apportion, pooled

MEAN_SAMPLES = 167
"""Training and test images per writer.

FLT's standard errors imply it for its 200 writers (about 30,000 + 3,430 images).
"""
SPREAD = 0.38
"""Standard deviation of the logarithm of the number of images.

Sizes then deviate by 0.39 of their mean, as LEAF's do.
"""
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
    """Make every writer a client, with that person's training and test images.

    In CelebA (FeSEM, arXiv 2108.08647, Section 6.1) the "writer" of an image is the
    person it shows. The division of each person's images is the image set's own (LEAF's
    FEMNIST: 90 % for training); :func:`~fltnb.federations.divided` makes another one.
    Writers without a training or a test image are left out, and so are those with fewer
    than ``min_images`` images in total; the federation's origin gives their number.
    Without a seed the first writers are taken, as FLT does with 200 of them; with a
    seed they are drawn. True clusters are unknown. Raises FltnbError if the image set
    does not name its writers (as ``fl.load("femnist")``, ``fl.load("celeba")`` and
    ``fl.load("mnist_writers")`` do), or has too few of them.

    Examples
    --------
    >>> import dataclasses
    >>> import numpy as np
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> people = np.arange(len(digits.labels), dtype=np.int32) % 20
    >>> images = dataclasses.replace(digits, writers=people)
    >>> fl.federations.writers(images, n_clients=10).n_clients
    10
    """
    if images.writers is None:
        raise FltnbError(
            f"{images.name} does not name the writers of its images: take femnist, "
            "celeba or mnist_writers, or the federation pseudo_writers."
        )
    train = _by_writer(images, images.train_index)
    test = _by_writer(images, images.test_index)
    both = sorted(train.keys() & test.keys())
    usable = []
    for one in both:
        n_images = len(train[one]) + len(test[one])
        if n_images >= min_images:
            usable.append(one)

    origin = images.origin
    having = "images of both parts"
    if min_images > 2:
        n_few = len(both) - len(usable)
        origin = f"people with {min_images} images or more, {n_few} left out; {origin}"
        having += f" and at least {min_images} in all"
    if n_clients > len(usable):
        raise FltnbError(
            f"{images.name} has {len(usable)} people with {having}: ask for fewer "
            "clients."
        )
    if seed is not None:
        usable = stream(seed, "partition").permutation(usable).tolist()
    chosen = sorted(usable[:n_clients])
    return Federation.of(
        images,
        origin=origin,
        train=[train[one] for one in chosen],
        test=[test[one] for one in chosen],
    )


def _by_writer(images: ImageSet, index: np.ndarray) -> dict[int, np.ndarray]:
    """Return the positions in ``index`` of each writer's images, in their order."""
    assert images.writers is not None  # the caller has checked this
    order = index[np.argsort(images.writers[index], kind="stable")]
    writers, first = np.unique(images.writers[order], return_index=True)
    held = np.split(order, first[1:])
    return dict(zip(writers.tolist(), held, strict=True))


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
    """Make clients with different styles from images without known writers.

    This is **not FEMNIST**: it is a stand-in for it if LEAF's files are not available.
    Every client gets its own style (:func:`writer_styles`), drawn at random and
    applied to all its images, and its own number of images (log-normal,
    :data:`SPREAD`). Images are drawn at random, so classes are about as frequent as in
    the image set, and no image is used twice. Training and test
    images, at least one of each, come from the set's own parts. True clusters are
    unknown: styles vary without groups. There are two differences from real writers. A
    client's images also keep the handwriting of their real writers, so that they vary
    more; and the shapes of letters do not differ, only the way they are drawn.

    Images must be grey (else FltnbError is raised), with bright strokes on black:
    ``emnist_byclass`` or ``digits``.

    Parameters
    ----------
    train_fraction : float
        Share of a client's images for training.
    mean_samples : int, optional
        Mean number of images of a client, training and test together; by default
        :data:`MEAN_SAMPLES`, or fewer if the image set does not have as many.
    strength : float
        Factor for the strength of styles; 0 leaves images unchanged.
    n_styles : int, optional
        Number of styles for all clients, instead of one style per client; client i has
        style ``i % n_styles``, its true cluster.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.pseudo_writers(digits, n_clients=5, n_styles=2)
    >>> fed.n_clients, fed.n_clusters
    (5, 2)
    """
    if n_styles is not None and n_styles > n_clients:
        raise FltnbError(
            f"{n_styles} styles cannot be shared by {n_clients} clients: ask for fewer "
            "n_styles."
        )
    if images.images.ndim != 3:
        raise FltnbError(
            f"Pseudo-writers need grey images but those of {images.name} have colours: "
            "take another set."
        )
    if mean_samples is None:
        mean_samples = _mean_samples(images, n_clients, train_fraction)
    weights = np.exp(SPREAD * stream(seed, "partition", 4).normal(size=n_clients))
    # Two images each, and the rest in proportion, so that the mean is exact.
    sizes = 2 + apportion((mean_samples - 2) * n_clients, weights)
    tested = np.rint(sizes * (1 - train_fraction)).astype(np.int64)
    tested = np.clip(tested, 1, sizes - 1)

    def dealt(split: str, index: np.ndarray, wanted: np.ndarray, key: int) -> list:
        if wanted.sum() > len(index):
            raise FltnbError(
                f"The clients need {wanted.sum()} {split} images, and there are "
                f"{len(index)}: lower mean_samples."
            )
        shuffled = stream(seed, "partition", key).permutation(index)
        return np.split(shuffled, np.cumsum(wanted))

    train = dealt("train", images.train_index, sizes - tested, 1)
    test = dealt("test", images.test_index, tested, 2)
    clusters = np.arange(n_clients) % (n_styles or n_clients)
    styles = writer_styles(n_clients, seed, strength)
    parts = []
    for client, cluster in enumerate(clusters):
        for split, index in (("train", train[client]), ("test", test[client])):
            drawn = apply_style(images.images[index], *styles[cluster])
            copied = images.copied_at(index)
            parts.append(Drawn(split, drawn, images.labels[index], copied))
    return Federation.of(
        images,
        name=f"pseudo-writers of {images.name}",
        origin=f"pseudo-writers, not FEMNIST: {clusters.max() + 1} random styles over "
        f"images without known writers; {images.origin}",
        clusters=None if n_styles is None else clusters,
        **pooled(parts),
    )


def _mean_samples(images: ImageSet, n_clients: int, train_fraction: float) -> int:
    """Return how many images a client gets on average, or refuse too many clients."""
    n_train = len(images.train_index)
    n_test = len(images.test_index)
    available = min(n_train / train_fraction, n_test / (1 - train_fraction))
    # A client's only test image may be rounded up, which needs a few more of them.
    mean = min(MEAN_SAMPLES, int(0.95 * (available / n_clients)))
    if mean < 2 or n_clients > n_test:
        raise FltnbError(
            f"{images.name} has too few images for {n_clients} pseudo-writers: ask for "
            "fewer."
        )
    return mean


def writer_styles(n_clients: int, seed: int = 0, strength: float = 1.0) -> np.ndarray:
    """Draw the styles of pseudo-writers.

    Parameters
    ----------
    n_clients : int
        Number of writers; the first ones have the same styles if there are more.
    seed : int
    strength : float
        Multiplies slant, width and shift, and is the exponent of size: with 0 all
        writers have the same hand.

    Returns
    -------
    ndarray of float64, shape (n_clients, 4), columns :data:`STYLE`
        *slant*, the shear to the right per height (0.25 is 14 degrees), normal
        with deviation 0.28, at most 0.6 to each side; *width*, pixels added to each
        side of a stroke (negative: removed) in an image of 28 pixels, uniform in
        -0.6 to 0.9; *size*, the magnification, uniform in 0.65 to 1; *shift*, pixels
        downward in an image of 28, normal with deviation 1, at most 2.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.federations.writer_styles(n_clients=3).shape
    (3, 4)
    """
    styles = np.empty((n_clients, len(STYLE)))
    for i in range(n_clients):
        rng = stream(seed, "partition", 3, i)
        slant = np.clip(rng.normal(0, 0.28), -0.6, 0.6) * strength
        width = rng.uniform(-0.6, 0.9) * strength
        size = rng.uniform(0.65, 1.0) ** strength
        shift = np.clip(rng.normal(), -2, 2) * strength
        styles[i] = slant, width, size, shift
    return styles


def apply_style(
    images: np.ndarray, slant: float, width: float, size: float, shift: float
) -> np.ndarray:
    """Redraw images in one style of :func:`writer_styles`.

    Shear, magnification and shift are one linear map around the image's centre with
    linear interpolation, black outside. Strokes are widened by grey-scale dilation over
    3x3 pixels, or thinned by erosion; fractions of a pixel are interpolated.

    Parameters
    ----------
    images : ndarray of uint8, shape (n, H, W), bright strokes on black
    slant, width, size, shift : float
        The style.

    Returns
    -------
    ndarray of uint8, shape (n, H, W)

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> slant, width, size, shift = fl.federations.writer_styles(3)[0]
    >>> fl.federations.apply_style(digits.images[:2], slant, width, size, shift).shape
    (2, 8, 8)
    """
    from scipy import ndimage

    pixel = images.shape[1] / REFERENCE
    centre = (np.array(images.shape[1:]) - 1) / 2
    # From target to source: as the top leans to the right, rows below the centre came
    # from further right.
    back = np.array([[1, 0], [slant, 1]]) / size
    moved = np.array([shift * pixel, 0])
    offset = centre - back @ (centre + moved)
    turned = []
    for image in images:
        one = ndimage.affine_transform(
            image,
            back,
            offset,
            order=1,
            # plain "constant" would blacken the rim of images up to the border
            mode="grid-constant",
            output=np.float32,
        )
        turned.append(one)
    drawn = np.stack(turned)

    # Strokes are widened or thinned pixel by pixel, and finally by a part of a pixel.
    widen_or_thin = ndimage.grey_dilation if width > 0 else ndimage.grey_erosion
    left = abs(width) * pixel
    while left > 0:
        step = min(left, 1.0)
        by_a_pixel = widen_or_thin(drawn, size=(1, 3, 3))
        drawn = (1 - step) * drawn + step * by_a_pixel
        left -= step
    return np.rint(np.clip(drawn, 0, 255)).astype(np.uint8)
