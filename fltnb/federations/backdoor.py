"""Clients with a backdoor in their images, and clients to be protected from them: EMD-CFL's Section 5.3.

Three groups of equal size: *targets* with clean images, *attackers* whose images look almost the same but carry a
feature that gives the class away (the backdoor), and clients that are obviously different. A model trained by targets
and attackers together may learn the feature instead of the content; test images that carry the feature of a wrong class
then mislead it, and the target with it.

**How the two tests are represented.** With ``test="both"`` clients are tested on clean images, and after the last
round also on the same images with the wrong class's feature in them: a run's split "probe". Built with
``test="backdoored"`` the federation has the latter as its only test. Training does not look at test images, so a run on
either ends with the same models to the last bit. :func:`attacked` turns one into the other, and an engine made for it
evaluates a finished run::

    fed = fl.federations.backdoor_colours(fl.load("digits"), n_clients=12)
    run = fl.run(method, fed, model="mlp_plain")
    net = fl.models.make("mlp_plain", fed.input_shape, fed.n_classes)
    with fl.training.make_engine(attacked(fed), net, fl.training.TrainSpec()) as engine:
        misled = engine.evaluate(run.theta, run.rows, np.arange(fed.n_clients), "test")

The published figures are means over the targets, cluster 0.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError, choose
from ..randomness import stream
from .base import Federation, pixel_scaling
from .dealing import deal, hold_out, optional_integer, share, spread
from .shares import integer, source

TESTS = ("clean", "backdoored", "both")
VARIANTS = ("as_written", "as_run")
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


def backdoor_colours(
    images: ImageSet,
    n_clients: int = 30,
    samples_per_client: int | None = None,
    test_per_client: int | None = None,
    val_fraction: float = 0.1,
    test: str = "clean",
    variant: str = "as_written",
    intensity: float = 1.0,
    seed: int = 0,
) -> Federation:
    """Grey images in colour (EMD-CFL's Backdoor MNIST): green, green whose shade follows the class, purple.

    Targets hold uniformly green images and attackers green ones with :func:`shade` of their class, which the eye hardly
    tells from the former. Backdoored test images, everybody's, have the shade of class K - 1 - c instead of c.

    Parameters
    ----------
    images : ImageSet
        Grey. Each group gets a copy of its own, so clients of different groups may hold the same image.
    n_clients : int
        M, at least 3; the paper has 30. Numbered group by group, as evenly as possible.
    samples_per_client : int, optional
        Training and validation images; default: all are dealt.
    test_per_client : int, optional
        Default: all.
    val_fraction : float
        Share of the samples held back for validation; the paper has 0.1.
    test : {"clean", "backdoored", "both"}
        See the module.
    variant : {"as_written", "as_run"}
        "as_run": targets and others keep only every second training image (validation is left whole), as in the
        authors' public notebook, so that attackers weigh twice as much. The paper does not mention it.
    intensity : float
        At least 0; how far attackers' shades are from the targets' green, times what the paper has: 0 gives everybody
        the one green, above 1 the backdoor is plainer to see (not the paper's).
    seed : int
        Partition seed.

    Raises
    ------
    FltnbError
        Colour images, too few images or clients, or bad settings.
    """
    _demand(images, colour=False)
    settings = {
        "kind": "backdoor_colours",
        **_common(images, n_clients, samples_per_client, test_per_client, val_fraction, test),
        "variant": choose(variant, VARIANTS, "variant"),
        "intensity": _factor(intensity),
        "seed": integer(seed, "seed", 0),
    }
    K = images.n_classes

    def paint(group: int, grey: np.ndarray, labels: np.ndarray) -> np.ndarray:
        uniform = (GREEN, None, PURPLE)[group]
        return tinted(grey, shade(labels, intensity) if uniform is None else np.tile(uniform, (len(grey), 1)))

    def trigger(group: int, grey: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return tinted(grey, shade(K - 1 - labels, intensity))

    classes = [np.arange(K)] * len(GROUPS)
    halved = (0, 2) if variant == "as_run" else ()
    return _build(images, classes, paint, trigger, halved, settings, f"backdoor {images.name} (colours)")


def backdoor_patches(
    images: ImageSet,
    n_clients: int = 15,
    samples_per_client: int | None = None,
    test_per_client: int | None = None,
    val_fraction: float = 0.1,
    test: str = "clean",
    patch: int = 3,
    seed: int = 0,
) -> Federation:
    """Class halves and a coloured corner patch (EMD-CFL's Backdoor CIFAR-10).

    Targets hold the first half of the classes, attackers the same classes with a patch in the top left corner whose
    colour follows the class, the others the second half. Backdoored test images, everybody's, carry the patch of
    another class: c + 1, and the first one after the last of the half.

    Parameters
    ----------
    images : ImageSet
        In colour. Targets and attackers each get a copy of the first half.
    n_clients : int
        M, at least 3; the paper has 15.
    patch : int
        Side in pixels; 3 in the authors' public notebook.
    samples_per_client, test_per_client, val_fraction, test, seed
        As in :func:`backdoor_colours`.

    Raises
    ------
    FltnbError
        Grey images, fewer than 2 or more than 20 classes, a patch larger than the image, and as above.
    """
    _demand(images, colour=True)
    settings = {
        "kind": "backdoor_patches",
        **_common(images, n_clients, samples_per_client, test_per_client, val_fraction, test),
        "patch": integer(patch, "patch"),
        "seed": integer(seed, "seed", 0),
    }
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
    return _build(images, classes, paint, trigger, (), settings, f"backdoor {images.name} (patches)")


def attacked(fed: Federation, test: str = "backdoored") -> Federation:
    """Return a backdoor federation again with the other test: the same clients, training samples and test images.

    Raises
    ------
    FltnbError
        Another kind of federation, or one of a user's own images (build that one again with ``test=``).
    """
    from .. import federations

    if fed.settings.get("kind") not in ("backdoor_colours", "backdoor_patches"):
        raise FltnbError(f"{fed.name} has no backdoor: make one with backdoor_colours or backdoor_patches.")
    if "content" in fed.settings:
        raise FltnbError(f"{fed.name} is made of your own images: build it from them again, with test={test!r}.")
    return federations.build(fed.settings | {"test": choose(test, TESTS, "test")})


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


def _factor(intensity: float) -> float:
    good = isinstance(intensity, numbers.Real) and not isinstance(intensity, bool) and 0 <= intensity < np.inf
    if not good:
        raise FltnbError(f"intensity is a factor of at least 0, not {intensity!r}.")
    return float(intensity)


def _demand(images: ImageSet, colour: bool) -> None:
    source(images)  # refuses what is no ImageSet
    if (images.images.ndim == 4) != colour:
        kind, other = ("colour", "backdoor_colours") if colour else ("grey", "backdoor_patches")
        raise FltnbError(f"This backdoor needs {kind} images, which {images.name} has not: take {other} for it.")


def _common(images, n_clients, samples_per_client, test_per_client, val_fraction, test) -> dict:
    return {
        **source(images),
        "n_clients": integer(n_clients, "n_clients", len(GROUPS)),
        "samples_per_client": optional_integer(samples_per_client, "samples_per_client"),
        "test_per_client": optional_integer(test_per_client, "test_per_client"),
        "val_fraction": share(val_fraction, "val_fraction"),
        "test": choose(test, TESTS, "test"),
    }


def _build(images: ImageSet, classes, paint: Callable, trigger: Callable, halved, settings: dict, name: str):
    """Deal each group its classes; paint what is trained on, and what is tested on, cleanly or with the trigger."""
    seed, clusters = settings["seed"], np.sort(np.arange(settings["n_clients"]) % len(GROUPS))
    pool, parts, start = [], {"train": [], "val": [], "test": [], "probe": []}, 0

    def keep(split: str, chosen: np.ndarray, group: int, draw: Callable) -> None:
        nonlocal start
        pool.append((draw(group, images.images[chosen], images.labels[chosen]), images.labels[chosen]))
        parts[split].append(np.arange(start, start + len(chosen)))
        start += len(chosen)

    tested = trigger if settings["test"] == "backdoored" else paint
    for group, own_classes in enumerate(classes):
        members = int((clusters == group).sum())
        for split, index, each in (
            ("train", images.train_index, settings["samples_per_client"]),
            ("test", images.test_index, settings["test_per_client"]),
        ):
            index = index[np.isin(images.labels[index], own_classes)]
            rng = stream(seed, "partition", 4, group, int(split == "test"))
            for own in deal(index, images.labels, members, each, rng, "training" if split == "train" else split):
                if split == "test":
                    keep("test", own, group, tested)
                    if settings["test"] == "both":
                        keep("probe", own, group, trigger)
                    continue
                kept, held = hold_out(own, settings["val_fraction"])
                if group in halved:
                    kept = kept[spread(len(kept), len(kept) // 2)]
                keep("train", kept, group, paint)
                keep("val", held, group, paint)
    return Federation(
        images=np.concatenate([painted for painted, _ in pool]),
        labels=np.concatenate([labels for _, labels in pool]),
        n_classes=images.n_classes,
        class_names=images.class_names,
        name=name,
        origin=images.origin,
        settings=settings,
        clusters=clusters,
        **{split: held for split, held in parts.items() if held},
        **pixel_scaling(pool[0][0]),
    )
