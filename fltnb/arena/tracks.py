"""Five tracks of cells: the federations and rules of the comparison.

A cell is a federation of one family at one level of difficulty. The differences between
its clients have the usual names: P(y), the classes that they hold; P(x), how their
samples look; P(x | y), how samples of the same class look; P(y | x), the labels that
they give to the same sample; quantity, their numbers of samples.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..data import ImageSet, load
from ..errors import FltnbError, choose
from ..federations import Federation
from ..federations.kinds import made
from ..federations.phases import ChangingFederation
from ..federations.recipe import Recipe, recipe
from ..rounds import draws

LEVELS = ("easy", "middle", "hard")
GUESS = 3
"""Number of clusters that a method is given if the true number is unknown."""
TURNED = 3
"""Degrees between all rotations and a right angle, at which images stay sharp."""


class Size(NamedTuple):
    """The size of the federations."""

    dataset: str
    n_clients: int
    samples: int  # of a client, for training and validation
    tested: int
    rounds: int
    model: str


FULL = Size("mnist", 20, 150, 50, 20, "mlp_plain")
DEMO = Size("digits", 10, 80, 20, 4, "mlp32")


@dataclass(frozen=True)
class Cell:
    """The setting of one number in the table.

    Attributes
    ----------
    track, family, level : str
    shift : str
        The difference between clients.
    federation : Recipe
    model : str
    training : dict
        Options of :func:`fltnb.run`.
    told : int
        K that methods are given that need it: the true number, or :data:`GUESS`.
    swapped : int
        Number of classes with different labels in the clusters; 0: all agree.
    newcomers : bool
        The results are those of the clients that joined late and never trained;
        otherwise those of all clients.
    unlabelled : bool
        Methods do not see the labels of the clients whose results count.
    known : bool
        Whether the true clusters are known; otherwise methods that need them do not
        run.
    """

    track: str
    family: str
    level: str
    shift: str
    federation: Recipe
    model: str
    training: dict
    told: int
    swapped: int = 0
    newcomers: bool = False
    unlabelled: bool = False
    known: bool = True

    @property
    def name(self) -> str:
        """Return track, family and level."""
        return f"{self.track}/{self.family}/{self.level}"

    def settings(self) -> dict:
        """Return everything that determines numbers, JSON-able."""
        return {
            "federation": self.federation.settings,
            "swapped": self.swapped,
            "data": _images(self.federation.dataset).digest,
            "model": self.model,
            "training": self.training,
            "told": self.told,
            "newcomers": self.newcomers,
            "unlabelled": self.unlabelled,
        }

    def build(self) -> Federation:
        """Make the federation, again at each call."""
        images = _images(self.federation.dataset)
        fed = made(images, self.federation.settings)
        return swapped(fed, self.swapped) if self.swapped else fed

    def counted(self, fed: Federation, seed: int) -> np.ndarray:
        """Return which clients count in a run with this seed, bool (M,)."""
        if not self.newcomers:
            return np.ones(fed.n_clients, dtype=bool)
        assert isinstance(fed, ChangingFederation)  # of a track with newcomers
        counted = fed.groups == "joined"
        rounds = self.training["rounds"]
        share = self.training["participation"]
        for drawn in draws(fed, rounds, share, seed):
            counted[drawn] = False
        return counted


@functools.cache
def _images(dataset: str) -> ImageSet:
    """Load an image set once."""
    return load(dataset)


def swapped(fed: Federation, n_classes: int) -> Federation:
    """Give the first ``n_classes`` classes different labels in each cluster.

    In cluster k, class c has label ``(c + k) % n_classes``, in training and test.
    Clients must have no samples in common, as a sample has one label in the pool. The
    fewer classes are swapped, the more of a common model is right for everybody.
    """
    assert fed.clusters is not None  # of every track with swapped names
    labels = fed.labels.copy()
    for split in (fed.train, fed.val, fed.test):
        for cluster, own in zip(fed.clusters, split, strict=True):
            old = fed.labels[own]
            new = (old + cluster) % n_classes
            labels[own] = np.where(old < n_classes, new, old)
    settings = {"kind": "swapped", "base": fed.settings, "n_classes": n_classes}
    return replace(fed, labels=labels, settings=settings)


def _labels(size: Size, seed: int, level: int, samples: int) -> Recipe:
    """Return five clusters of two classes, with increasing shares of other classes."""
    tasks = recipe(
        "tasks",
        tasks=[[2 * one, 2 * one + 1] for one in range(5)],
        users_per_task=[size.n_clients // 5] * 5,
        samples_per_user=samples,
        minority=(0.0, 0.4, 0.6)[level],
        seed=seed,
    )
    return recipe("held_out", size.dataset, tasks, seed=seed)


def _copies(
    size: Size, seed: int, samples: int, angles: Sequence[Sequence[float]]
) -> Recipe:
    """Return clusters with copies of the images, rotated by the clusters' angles."""
    return recipe(
        "rotated_copies",
        size.dataset,
        n_clients=size.n_clients,
        angles=angles,
        samples_per_client=samples,
        test_per_client=size.tested,
        seed=seed,
    )


def _rotated(size: Size, seed: int, level: int, samples: int) -> Recipe:
    """Return four clusters whose rotations differ less and less."""
    step = (90, 30, 15)[level]
    angles = [[TURNED + step * turn] for turn in range(4)]
    return _copies(size, seed, samples, angles)


def _upright(size: Size, seed: int, level: int, samples: int) -> Recipe:
    """Return four clusters with the same distribution, for different labels."""
    return _copies(size, seed, samples, [[0]] * 4)


def _power_law(size: Size, seed: int, level: int, samples: int) -> Recipe:
    """Return five clusters whose clients have increasingly unequal sizes."""
    held = recipe(
        "structured",
        n_clients=size.n_clients,
        classes_per_cluster=2,
        delta=(0.5, 1.0, 2.0)[level],
        max_per_class=samples * size.n_clients // 10,
        seed=seed,
    )
    return recipe("held_out", size.dataset, held, seed=seed)


def _writers(size: Size, seed: int, level: int, samples: int) -> Recipe:
    """Return MNIST's writers, with decreasing shares for training."""
    share = (0.8, 0.4, 0.2)[level]
    people = recipe("writers", n_clients=size.n_clients, seed=seed, min_images=100)
    divided = recipe("divided", base=people, train_fraction=share, seed=seed)
    return recipe("held_out", "mnist_writers", divided, seed=seed)


def _pictures(size: Size, seed: int, level: int, samples: int) -> Recipe:
    """Return PACS's photos, paintings, cartoons and sketches as features."""
    each = (200, 100, 50)[level]
    return recipe("domains", "pacs_features", samples_per_client=each, seed=seed)


class Family(NamedTuple):
    """A kind of federation with three levels.

    ``swapped``: number of classes with different labels, by level; ``known``: whether
    the true clusters are known.
    """

    shift: str
    recipe: Callable[[Size, int, int, int], Recipe]
    n_clusters: int
    swapped: tuple[int, int, int] = (0, 0, 0)
    lr: float = 0.05
    known: bool = True


FAMILIES = {
    "labels": Family("P(y)", _labels, 5),
    "rotated": Family("P(x)", _rotated, 4),
    "no labels": Family("P(x)", _rotated, 4),
    "opinions": Family("P(y | x)", _upright, 4, (10, 6, 4)),
    "power law": Family("P(y), quantity", _power_law, 5),
    "writers": Family("P(x | y)", _writers, GUESS, known=False),
    "pictures": Family("P(x)", _pictures, 4, lr=0.01),
}
TRACKS = {
    "told-K": ("labels", "rotated", "opinions"),
    "unknown-K": ("power law", "writers", "pictures"),
    "newcomers": ("labels", "rotated", "no labels"),
    "drift": ("labels", "rotated"),
    "few-samples": ("labels", "rotated"),
}
"""Track -> its families."""
DEMO_LACKS = ("writers", "pictures")
FEW_AT_ONCE = 0.3
"""Participation in ``newcomers``: low, so that some clients never train."""
FEW = (0.5, 0.25, 0.125)
"""Share of the samples that clients of the track ``few-samples`` have, by level."""


def _changing(base: Recipe, seed: int, event: dict) -> Recipe:
    """Return a federation that changes once."""
    settings = dict(base.settings)
    dataset = settings.pop("dataset")
    below = Recipe(settings)
    return recipe("changing", dataset, below, events=[event], seed=seed)


def cell(track: str, family: str, level: int, seed: int, demo: bool = False) -> Cell:
    """Return one cell.

    Parameters
    ----------
    track, family : str
        Of :data:`TRACKS` and :data:`FAMILIES`.
    level : int
        0, 1 or 2: easy, middle or hard.
    seed : int
        Seed of the partition, and of clients that join or drift.
    demo : bool
        A small federation of the digits.
    """
    size = DEMO if demo else FULL
    kind = FAMILIES[family]
    newcomers = track == "newcomers"
    told = kind.n_clusters
    if track == "unknown-K":
        told = GUESS
    training = {
        "rounds": size.rounds,
        "local_epochs": 2,
        "participation": FEW_AT_ONCE if newcomers else 0.5,
        "batch_size": 10,
        "lr": kind.lr,
        "eval_every": size.rounds,
    }
    return Cell(
        track=track,
        family=family,
        level=LEVELS[level],
        shift=kind.shift,
        federation=_federation(track, kind, level, seed, size),
        model=size.model,
        training=training,
        told=told,
        swapped=kind.swapped[level],
        newcomers=newcomers,
        unlabelled=family == "no labels",
        known=kind.known,
    )


def _federation(track: str, kind: Family, level: int, seed: int, size: Size) -> Recipe:
    """Return the federation of a cell.

    Few samples: the easy level of the family, with less and less of it. Newcomers:
    three tenths of the clients join for the last round, so that most of them never
    train. Drift: after half of the rounds as many get the data of another cluster.
    """
    if track == "few-samples":
        few = int(FEW[level] * size.samples)
        return kind.recipe(size, seed, 0, few)
    held = kind.recipe(size, seed, level, size.samples)
    some = 3 * size.n_clients // 10
    if track == "newcomers":
        return _changing(held, seed, {"round": size.rounds, "join": some})
    if track == "drift":
        half = 1 + size.rounds // 2
        return _changing(held, seed, {"round": half, "drift": some})
    return held


def cells(seed: int, track: str | None = None, demo: bool = False) -> list[Cell]:
    """Return all cells, or those of one track, drawn by ``seed``.

    ``demo``: small federations of the digits. Raises FltnbError if there is no such
    track.

    Examples
    --------
    >>> from fltnb import arena
    >>> [cell.name for cell in arena.cells(seed=0, track="drift", demo=True)][:3]
    ['drift/labels/easy', 'drift/labels/middle', 'drift/labels/hard']
    """
    if track is not None:
        choose(track, TRACKS, "track")
    found = []
    played = TRACKS if track is None else {track: TRACKS[track]}
    for name, families in played.items():
        for family in families:
            if demo and family in DEMO_LACKS:
                continue
            for level in range(len(LEVELS)):
                one = cell(name, family, level, seed, demo)
                found.append(one)
    return found


def lacking(asked: Iterable[Cell]) -> dict[str, str]:
    """Return the families of cells whose data are missing, and why."""
    datasets = {one.family: one.federation.dataset for one in asked}
    missing = {}
    for family, dataset in datasets.items():
        try:
            _images(dataset)
        except FltnbError as error:
            missing[family] = str(error)
    return missing


def validated(fed: Federation) -> Federation:
    """Return the federation tested on its validation samples, in all its phases.

    Options are chosen by these, so that test samples are used only once.
    """
    if not isinstance(fed, ChangingFederation):
        return replace(fed, test=fed.val)
    phases = []
    for phase in fed.phases:
        phases.append(phase._replace(fed=replace(phase.fed, test=phase.fed.val)))
    return replace(fed, test=fed.val, phases=tuple(phases))
