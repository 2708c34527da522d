"""Clients with a backdoor in their images, and clients to be protected.

EMD-CFL, arXiv 2506.07769, Sections 4.1 and 5.3. There are three groups of equal size:
*targets* with clean images; *attackers* whose images look almost the same but have a
feature that reveals the class (the backdoor); and clients that are obviously different.
A model trained by targets and attackers together may learn the feature instead of the
content. Test images with the feature of a wrong class then mislead it, and so the
targets. The published numbers are means over the targets, cluster 0.
"""

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..settings import Count, Natural, NonNegative, Part, Variant, Whole
from .base import Federation
from .kinds import kind
from .shares import Dealt, Drawn, deal_copies, in_turn, pooled, spread

Test = Literal["clean", "backdoored", "both"]
Clients = Annotated[int, Whole(3)]
Paint = Callable[[int, np.ndarray, np.ndarray], np.ndarray]
"""From a group's number, images and labels to the images of its clients."""
GROUPS = ("target", "attacker", "other")
"""Names of clusters 0, 1 and 2."""
TARGET = 0
ATTACKER = 1
# Shares of full intensity, from the authors' notebook; the paper only has words.
GREEN = (0.26, 0.63, 0.4)
PURPLE = (149 / 255, 52 / 255, 235 / 255)
# Class c has the shade c / 39 of a green-to-yellow scale: neighbours differ by 1 in 39.
SHADES = 39
# Ten well-known colours (matplotlib's "tab10"), one per class, for the patch.
PATCHES = (
    (31, 119, 180),
    (255, 127, 14),
    (44, 160, 44),
    (214, 39, 40),
    (148, 103, 189),
    (140, 86, 75),
    (227, 119, 194),
    (127, 127, 127),
    (188, 189, 34),
    (23, 190, 207),
)


@kind
def backdoor_colours(
    images: ImageSet,
    /,
    n_clients: Clients = 30,
    samples_per_client: Count | None = None,
    test_per_client: Count | None = None,
    val_fraction: Part = 0.1,
    test: Test = "clean",
    variant: Variant = "as_written",
    intensity: NonNegative = 1.0,
    seed: Natural = 0,
) -> Federation:
    """Colour grey images: green, green whose shade follows the class, or purple.

    EMD-CFL's Backdoor MNIST. The clients are three groups. Targets, which are to be
    protected, hold uniformly green images. Attackers hold green ones with the
    :func:`shade` of their class, which look almost the same. The others hold purple
    ones. Backdoored test images, of all clients, have the shade of a wrong class: 9 - c
    instead of c (for ten classes). Each group has its own copy of the images, so
    clients of different groups may hold the same image. Raises FltnbError if the images
    have colours.

    Parameters
    ----------
    n_clients : int
        M, at least 3; the paper has 30. Clients are numbered by group, evenly divided.
    samples_per_client, test_per_client : int, optional
        Number of a client's training and validation images together, and of its test
        images. By default all images are distributed.
    val_fraction : float
        Share of a client's training images held back for validation (paper: 0.1).
    test : {"clean", "backdoored", "both"}
        Clean test images; the same images with the feature of a wrong class; or the
        clean ones and, after the last round, the others as split "probe" of a run.
        Training uses none of them, so all three end with the same models, bit for bit.
    variant : {"as_written", "as_run"}
        "as_run": targets and others keep only every second training image (validation
        images are not reduced), as in the authors' public notebook, so attackers have
        twice the weight.
    intensity : float
        Distance of attackers' shades from the targets' green, relative to the paper's.
        0 gives all clients the same green; above 1 the backdoor is easier to see (not
        in the paper).

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.backdoor_colours(digits, n_clients=6)
    >>> fed.n_clients, fed.n_clusters
    (6, 3)
    """
    if images.images.ndim == 4:
        raise FltnbError(
            f"This backdoor needs grey images, and {images.name} has colour images: "
            "use backdoor_patches for it."
        )
    K = images.n_classes

    def paint(group: int, grey: np.ndarray, labels: np.ndarray) -> np.ndarray:
        if group == ATTACKER:
            return tinted(grey, shade(labels, intensity))
        return tinted(grey, np.array([GREEN if group == TARGET else PURPLE]))

    def trigger(group: int, grey: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return tinted(grey, shade(K - 1 - labels, intensity))

    groups = in_turn(n_clients, len(GROUPS))
    each = (samples_per_client, test_per_client)
    dealt = deal_copies(images, groups, each, val_fraction, (seed, 4))
    if variant == "as_run":
        dealt = [_halved(one) for one in dealt]
    return Federation.of(
        images,
        name=f"backdoor {images.name} (colours)",
        clusters=groups,
        **_painted(images, dealt, test, paint, trigger),
    )


def _halved(dealt: Dealt) -> Dealt:
    """Return every second training image of targets and others, and all else."""
    if dealt.split != "train" or dealt.group == ATTACKER:
        return dealt
    size = len(dealt.index)
    return dealt._replace(index=dealt.index[spread(size, size // 2)])


@kind
def backdoor_patches(
    images: ImageSet,
    /,
    n_clients: Clients = 15,
    samples_per_client: Count | None = None,
    test_per_client: Count | None = None,
    val_fraction: Part = 0.1,
    test: Test = "clean",
    patch: Count = 3,
    seed: Natural = 0,
) -> Federation:
    """Divide the classes in two, and put a coloured patch into attackers' corners.

    EMD-CFL's Backdoor CIFAR-10. The clients are three groups. Targets, which are to be
    protected, hold the first half of the classes. Attackers hold the same classes with
    a patch in the top left corner, whose colour follows the class. The others hold the
    second half. Backdoored test images, of all clients, have the patch of a wrong
    class: c + 1 instead of c, and the first class instead of the last one of the half.
    Targets and attackers each have a copy of the first half.

    The paper has 15 clients. ``patch`` is the side in pixels, 3 in the authors' public
    notebook; other options are those of :func:`backdoor_colours`. Raises FltnbError if
    the images are grey, there are fewer than 4 or more than 20 classes, or the patch is
    too large.

    Examples
    --------
    >>> import fltnb as fl
    >>> from dataclasses import replace
    >>> digits = fl.load("digits")
    >>> colour = replace(digits, images=digits.images[..., None].repeat(3, axis=3))
    >>> fed = fl.federations.backdoor_patches(colour, n_clients=3)
    >>> fed.n_clients
    3
    """
    K = images.n_classes
    side = min(images.images.shape[1:3])
    if not 4 <= K <= 2 * len(PATCHES):
        raise FltnbError(
            f"Half of the classes need 2 to {len(PATCHES)} patches, a right and a "
            f"wrong one at least: {K} classes are not possible."
        )
    if patch > side:
        raise FltnbError(
            f"A patch of {patch} pixels does not fit into images of {side}: choose a "
            "smaller one."
        )
    if images.images.ndim != 4:
        raise FltnbError(
            f"This backdoor needs colour images, and {images.name} has grey images: "
            "use backdoor_colours for it."
        )
    half = K // 2

    def paint(group: int, pixels: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return patched(pixels, labels, patch) if group == ATTACKER else pixels

    def trigger(group: int, pixels: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return patched(pixels, (labels + 1) % half, patch)

    groups = in_turn(n_clients, len(GROUPS))
    each = (samples_per_client, test_per_client)
    classes = [range(half), range(half), range(half, K)]
    dealt = deal_copies(images, groups, each, val_fraction, (seed, 4), classes)
    return Federation.of(
        images,
        name=f"backdoor {images.name} (patches)",
        clusters=groups,
        **_painted(images, dealt, test, paint, trigger),
    )


def _painted(
    images: ImageSet, dealt: list[Dealt], test: str, paint: Paint, trigger: Paint
) -> dict:
    """Return fields of the federation, with the images of each group.

    ``paint`` makes all images except the backdoored test images, which ``trigger``
    makes.
    """
    parts = []
    for split, group, own in dealt:
        pixels = images.images[own]
        labels = images.labels[own]
        copied = images.copied_at(own)
        if split != "test" or test != "backdoored":
            painted = paint(group, pixels, labels)
            parts.append(Drawn(split, painted, labels, copied))
        if split == "test" and test != "clean":
            name = "probe" if test == "both" else "test"
            triggered = trigger(group, pixels, labels)
            parts.append(Drawn(name, triggered, labels, copied))
    return pooled(parts)


def shade(labels: np.ndarray, intensity: float = 1.0) -> np.ndarray:
    """Return attackers' colours (n, 3) for classes (n,), in shares of full intensity.

    The colours are greens that turn to yellow from class to class. ``intensity``
    multiplies their difference from the targets' green (limited to no and full colour).

    Examples
    --------
    >>> shade(np.array([0, 9])).round(2).tolist()
    [[0.0, 0.5, 0.4], [0.23, 0.62, 0.4]]
    """
    t = np.asarray(labels) / SHADES
    red = t
    green = 0.5 + t / 2
    blue = np.full_like(t, 0.4)
    shades = np.stack([red, green, blue], axis=1)
    if intensity != 1:
        shades = GREEN + intensity * (shades - GREEN)
    return np.clip(shades, 0, 1)


def tinted(grey: np.ndarray, colours: np.ndarray) -> np.ndarray:
    """Return grey images (n, H, W) uint8 as shades of one colour each, rounded down.

    ``colours`` (n or 1, 3) are shares of full intensity; the result is (n, H, W, 3)
    uint8.
    """
    out = np.empty((*grey.shape, 3), dtype=np.uint8)
    for channel in range(3):
        shades = grey * colours[:, channel, None, None] + 1e-9
        np.floor(shades, out=out[..., channel], casting="unsafe")
    return out


def patched(pixels: np.ndarray, labels: np.ndarray, side: int) -> np.ndarray:
    """Return colour images with the patch of their class in the top left corner.

    Both are (n, H, W, 3) uint8; ``side`` is that of the patch in pixels.
    """
    out = pixels.copy()
    colours = np.array(PATCHES, dtype=np.uint8)[labels % len(PATCHES)]
    out[:, :side, :side] = colours[:, None, None]
    return out
