"""Clients with a backdoor in their images, and clients to be protected (EMD-CFL, arXiv 2506.07769, 4.1 and 5.3).

Three groups of equal size: *targets* with clean images, *attackers* whose images look almost the same but carry a
feature that gives the class away (the backdoor), and clients that are obviously different. A model trained by targets
and attackers together may learn the feature instead of the content; test images that carry the feature of a wrong class
then mislead it, and the target with it. The published figures are means over the targets, cluster 0.

**How the two tests are represented.** With ``test="both"`` clients are tested on clean images, and after the last
round also on the same images with the wrong class's feature in them: a run's split "probe". Built with
``test="backdoored"`` the federation has the latter as its only test. Training does not look at test images, so a run on
either ends with the same models to the last bit. :func:`attacked` turns one into the other; an engine made for it
evaluates a finished run: ``engine.evaluate(run.theta, run.rows, np.arange(fed.n_clients), "test")``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..settings import Count, Natural, NonNegative, Part, Variant, Whole
from .base import Federation
from .kinds import build, kind
from .pools import Draw, copies
from .shares import in_turn, spread

Test = Literal["clean", "backdoored", "both"]
Clients = Annotated[int, Whole(3)]
GROUPS = ("target", "attacker", "other")
"""What clusters 0, 1 and 2 are."""
# Colours as shares of full intensity, from the authors' public notebook; the paper names them in words.
GREEN, PURPLE = (0.26, 0.63, 0.4), (149 / 255, 52 / 255, 235 / 255)
SHADES = 39  # class c has the shade c / 39 of a green-to-yellow scale: neighbours differ by 1 in 39
# Ten well-known colours (matplotlib's "tab10"), one per class, for the patch
PATCHES = (
    *((31, 119, 180), (255, 127, 14), (44, 160, 44), (214, 39, 40), (148, 103, 189)),
    *((140, 86, 75), (227, 119, 194), (127, 127, 127), (188, 189, 34), (23, 190, 207)),
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
    """Grey images in colour (EMD-CFL's Backdoor MNIST): green, green whose shade follows the class, purple.

    EMD-CFL, arXiv 2506.07769, Section 4.1. Targets hold uniformly green images and attackers green ones with
    :func:`shade` of their class, which the eye hardly tells from the former. Backdoored test images, everybody's, have
    the shade of class K - 1 - c instead of c. Each group gets a copy of the images, so clients of different groups may
    hold the same image. Raises FltnbError for colour images.

    Parameters
    ----------
    n_clients : int
        M, at least 3; the paper has 30. Numbered group by group, as evenly as possible.
    samples_per_client, test_per_client : int, optional
        Training and validation images, and test images; default: all are dealt.
    val_fraction : float
        Share of the samples held back for validation; the paper has 0.1.
    test : {"clean", "backdoored", "both"}
        See the module.
    variant : {"as_written", "as_run"}
        "as_run": targets and others keep only every second training image (validation is left whole), as in the
        authors' public notebook, so that attackers weigh twice as much. The paper does not mention it.
    intensity : float
        How far attackers' shades are from the targets' green, times what the paper has: 0 gives everybody the one
        green, above 1 the backdoor is plainer to see (not the paper's).
    """
    _demand(images, colour=False)
    K = images.n_classes

    def paint(group: int, grey: np.ndarray, labels: np.ndarray) -> np.ndarray:
        uniform = (GREEN, None, PURPLE)[group]
        return tinted(grey, shade(labels, intensity) if uniform is None else np.tile(uniform, (len(grey), 1)))

    def trigger(group: int, grey: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return tinted(grey, shade(K - 1 - labels, intensity))

    more = {"keep": _every_second} if variant == "as_run" else {}
    dealt = ((samples_per_client, test_per_client), val_fraction, (seed, 4), paint)
    return _federation(images, "colours", n_clients, test, trigger, *dealt, **more)


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
    """Class halves and a coloured corner patch (EMD-CFL's Backdoor CIFAR-10).

    EMD-CFL, arXiv 2506.07769, Section 4.1. Targets hold the first half of the classes, attackers the same classes with
    a patch in the top left corner whose colour follows the class, the others the second half. Backdoored test images,
    everybody's, carry the patch of another class: c + 1, and the first one after the last of the half.
    Targets and attackers each get a copy of the first half.

    The paper has 15 clients; ``patch`` is the side in pixels, 3 in the authors' public notebook, and other options are
    those of :func:`backdoor_colours`. Raises FltnbError for grey images, fewer than 2 or more than 20 classes, or a
    patch larger than the image.
    """
    _demand(images, colour=True)
    K, side = images.n_classes, min(images.images.shape[1:3])
    if not 2 <= K <= 2 * len(PATCHES):
        raise FltnbError(f"Patches have {len(PATCHES)} colours for half of the classes: {K} classes are not possible.")
    if patch > side:
        raise FltnbError(f"A patch of {patch} pixels does not fit into images of {side}: choose a smaller one.")
    half = K // 2

    def paint(group: int, pixels: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return patched(pixels, labels, patch) if group == 1 else pixels

    def trigger(group: int, pixels: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return patched(pixels, (labels + 1) % half, patch)

    classes = [np.arange(half), np.arange(half), np.arange(half, K)]
    dealt = ((samples_per_client, test_per_client), val_fraction, (seed, 4), paint)
    return _federation(images, "patches", n_clients, test, trigger, *dealt, classes=classes)


def _federation(
    images: ImageSet, what: str, n_clients: int, test: str, trigger: Draw, *dealt: Any, **more: Any
) -> Federation:
    clusters = in_turn(n_clients, len(GROUPS))
    more |= {"clean": {}, "backdoored": {"tested": trigger}, "both": {"probe": trigger}}[test]
    fields = copies(images, clusters, *dealt, **more)
    return Federation.of(images, name=f"backdoor {images.name} ({what})", clusters=clusters, **fields)


def attacked(fed: Federation, test: str = "backdoored") -> Federation:
    """Return a backdoor federation again with the other test: the same clients, training samples and test images.

    Raises FltnbError for another kind of federation, or one of a user's own images (build that again with ``test=``).
    """
    if fed.settings.get("kind") not in ("backdoor_colours", "backdoor_patches"):
        raise FltnbError(f"{fed.name} has no backdoor: make one with backdoor_colours or backdoor_patches.")
    if "content" in fed.settings:
        raise FltnbError(f"{fed.name} is made of your own images: build it from them again, with test={test!r}.")
    return build(fed.settings | {"test": test})


def shade(labels: np.ndarray, intensity: float = 1.0) -> np.ndarray:
    """Attackers' colours (n, 3) for classes (n,): greens that turn to yellow from class to class, in shares of 1.

    ``intensity`` multiplies their difference from the targets' green (cut off at no and full colour).

    Examples
    --------
    >>> shade(np.array([0, 9])).round(2).tolist()
    [[0.0, 0.5, 0.4], [0.23, 0.62, 0.4]]
    """
    t = np.asarray(labels) / SHADES
    shades = np.stack([t, 0.5 + t / 2, np.full_like(t, 0.4)], axis=1)
    return shades if intensity == 1 else np.clip(GREEN + intensity * (shades - GREEN), 0, 1)


def tinted(grey: np.ndarray, colours: np.ndarray) -> np.ndarray:
    """Grey images (n, H, W) uint8 as shades of one colour (n, 3) each, (n, H, W, 3) uint8, rounded down."""
    out = np.empty((*grey.shape, 3), dtype=np.uint8)
    for channel in range(3):
        np.floor(grey * colours[:, channel, None, None] + 1e-9, out=out[..., channel], casting="unsafe")
    return out


def patched(pixels: np.ndarray, labels: np.ndarray, side: int) -> np.ndarray:
    """Colour images with the patch of a class in the top left corner."""
    out = pixels.copy()
    out[:, :side, :side] = np.array(PATCHES, dtype=np.uint8)[labels % len(PATCHES), None, None]
    return out


def _demand(images: ImageSet, colour: bool) -> None:
    if (images.images.ndim == 4) != colour:
        kind, other = ("colour", "backdoor_colours") if colour else ("grey", "backdoor_patches")
        raise FltnbError(f"This backdoor needs {kind} images, which {images.name} has not: take {other} for it.")


def _every_second(group: int, own: np.ndarray) -> np.ndarray:
    """Keep every second image of targets and others, as the public code does."""
    return own if group == 1 else own[spread(len(own), len(own) // 2)]
