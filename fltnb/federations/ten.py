"""Ten kinds of federation on which methods are compared (notebooks 15 to 17).

Every client keeps a tenth of its samples for validation, which EMD-CFL needs.
"""

from dataclasses import dataclass
from typing import Any

from ..errors import choose
from .recipe import Recipe, recipe
from .tasks import DIGITS_TASKS, FASHION_TASKS

Options = dict[str, Any]


@dataclass(frozen=True)
class Ground:
    """A federation, with the settings and inputs of methods on it.

    Attributes
    ----------
    federation : Recipe
    n_clusters : int
        K, for methods that need it: the true number, or 3 if it is unknown.
    images : str
        The kind of images. It decides on which other data encoders are pretrained.
    model : str
        A network's name (:data:`fltnb.models.NAMES`).
    lr : float or None
        Learning rate; None for that of most federations.

    Examples
    --------
    >>> import fltnb as fl
    >>> ground = next(iter(fl.federations.four_on_digits().values()))
    >>> ground.model
    'mlp_plain'
    """

    federation: Recipe
    n_clusters: int
    images: str
    model: str = "mlp_plain"
    lr: float | None = None


def ten(seed: int = 0, n_clients: int = 20, samples: int = 150) -> dict[str, Ground]:
    """Return the ten federations by name.

    Parameters
    ----------
    seed : int
        Seed of the draws: which client holds which samples.
    n_clients : int
        Number of clients in most federations; the power law has 30, the tasks 18, the
        backdoors 15 and 9.
    samples : int
        Training and validation samples of a client, if all clients hold equally many.

    Examples
    --------
    >>> import fltnb as fl
    >>> len(fl.federations.ten(seed=0))
    10
    """
    each: Options = {"samples_per_client": samples}
    tested: Options = each | {"test_per_client": 100}
    turned: Options = {"n_clients": n_clients, "seed": seed} | tested
    labels: Options = {
        "n_clients": n_clients,
        "n_clusters": 5,
        "seed": seed,
    } | each
    mixtures = recipe(
        "dirichlet",
        n_clients=n_clients,
        alpha=0.3,
        n_clusters=4,
        max_train=n_clients * samples,
        seed=seed,
    )
    power_law = recipe(
        "structured", n_clients=30, max_per_class=120 * samples // 150, seed=seed
    )
    hands = recipe(
        "pseudo_writers", n_clients=n_clients, mean_samples=samples, seed=seed
    )
    clothes = recipe(
        "tasks",
        tasks=[list(one) for one in FASHION_TASKS],
        users_per_task=[8, 6, 4],
        samples_per_user=samples,
        minority=0.1,
        seed=seed,
    )
    two_labels = recipe("label_clusters", classes_per_cluster=2, **labels)
    one_shared = recipe(
        "label_clusters", classes_per_cluster=3, shared_classes=1, **labels
    )

    def held_out(dataset: str, base: Recipe) -> Recipe:
        return recipe("held_out", dataset, base, seed=seed)

    rotated = recipe("rotated_copies", "mnist", **turned)
    one_cluster = recipe("rotated_copies", "mnist", angles=[[0]], **turned)
    colours = recipe("backdoor_colours", "mnist", n_clients=15, seed=seed, **tested)
    patches = recipe("backdoor_patches", "cifar10", n_clients=9, seed=seed, **tested)
    # With the learning rate 0.05 of the others, networks fail on colours: equal outputs
    # for all images.
    return {
        "labels": Ground(held_out("mnist", two_labels), 5, "mnist"),
        "labels, one shared": Ground(held_out("mnist", one_shared), 5, "mnist"),
        "mixtures": Ground(held_out("fashion_mnist", mixtures), 4, "fashion_mnist"),
        "power law": Ground(held_out("emnist_balanced_small", power_law), 10, "emnist"),
        "writers": Ground(held_out("emnist_byclass", hands), 3, "emnist"),
        "tasks": Ground(held_out("fashion_mnist", clothes), 3, "fashion_mnist"),
        "rotated": Ground(rotated, 4, "mnist"),
        "one cluster": Ground(one_cluster, 1, "mnist"),
        "backdoor": Ground(colours, 3, "colours", lr=0.01),
        "backdoor patches": Ground(patches, 3, "cifar10", "lenet", lr=0.01),
    }


LEVELS = {
    "samples": [600, 300, 150, 80, 40, 20],
    "overlap": [0, 25, 50, 75, 90, 100],
    "rotation": [90, 45, 30, 20, 15, 10, 5],
    "backdoor": [4, 2, 1, 0.5, 0.25],
    "noise": [0, 0.1, 0.3, 1, 3],
}
"""Difficulty -> levels of :func:`graded`, easiest first."""
TURNED = 3
"""Degrees added to all rotations of :func:`graded`, so that none is a right angle.

Images stay sharp only at right angles, which would reveal a cluster.
"""


def graded(
    difficulty: str,
    level: float,
    seed: int = 0,
    n_clients: int = 20,
    samples: int = 300,
    dataset: str = "mnist",
) -> Ground:
    """Return a federation on which clusters are harder or easier to find.

    Parameters
    ----------
    difficulty : {"samples", "overlap", "rotation", "backdoor", "noise"}
        What ``level`` changes.
    level : float
        "samples": number of samples per client. "overlap": percent of a client's
        samples that come from all classes alike. "rotation": degrees between
        neighbouring clusters. "backdoor": ``intensity`` of
        :func:`~fltnb.federations.backdoor_colours`. "noise": this does not change the
        federation; noise is added to what clients send. :data:`LEVELS` has examples.
    seed : int
        Seed of the draws.
    n_clients : int
        Number of clients in four clusters. There are other numbers of clusters with
        "overlap" (five, of ``n_clients // 5`` clients) and "backdoor" (three, of
        ``n_clients // 4``), each of at least 2 clients.
    samples : int
        Number of samples per client, unless the difficulty is "samples".
    dataset : str
        The image set.

    Raises
    ------
    FltnbError
        The difficulty is unknown.

    Examples
    --------
    >>> import fltnb as fl
    >>> ground = fl.federations.graded("rotation", level=90.0, dataset="digits")
    """
    choose(difficulty, LEVELS, "difficulty")
    each = int(level) if difficulty == "samples" else samples
    held: Options = {
        "samples_per_client": each,
        "test_per_client": 10,
        "seed": seed,
    }
    if difficulty == "backdoor":
        a_third = max(2, n_clients // 4)
        held["n_clients"] = 3 * a_third
        held["intensity"] = level
        return Ground(recipe("backdoor_colours", dataset, **held), 3, "colours")
    if difficulty == "overlap":
        # two classes per cluster; at 100 % all clients hold all ten in equal parts
        tasks = recipe(
            "tasks",
            tasks=[[2 * one, 2 * one + 1] for one in range(5)],
            users_per_task=[max(2, n_clients // 5)] * 5,
            samples_per_user=each,
            minority=round(0.8 * level / 100, 6),
            seed=seed,
        )
        return Ground(recipe("held_out", dataset, tasks, seed=seed), 5, dataset)
    step = level if difficulty == "rotation" else 90
    held["angles"] = [[TURNED + step * turn] for turn in range(4)]
    fed = recipe("rotated_copies", dataset, n_clients=n_clients, **held)
    return Ground(fed, 4, dataset)


def four_on_digits(seed: int = 0) -> dict[str, Ground]:
    """Return four of the ten on the embedded digits, for demonstrations.

    Examples
    --------
    >>> import fltnb as fl
    >>> len(fl.federations.four_on_digits())
    4
    """
    tested: Options = {
        "samples_per_client": 80,
        "test_per_client": 20,
        "seed": seed,
    }
    labels = recipe(
        "label_clusters",
        n_clients=10,
        n_clusters=5,
        samples_per_client=80,
        classes_per_cluster=2,
        seed=seed,
    )
    tasks = recipe(
        "tasks",
        tasks=[list(one) for one in DIGITS_TASKS],
        users_per_task=[4, 2, 2],
        samples_per_user=80,
        minority=0.1,
        seed=seed,
    )
    rotated = recipe("rotated_copies", "digits", n_clients=12, **tested)
    colours = recipe("backdoor_colours", "digits", n_clients=6, **tested)
    return {
        "labels": Ground(recipe("held_out", "digits", labels, seed=seed), 5, "digits"),
        "rotated": Ground(rotated, 4, "digits"),
        "tasks": Ground(recipe("held_out", "digits", tasks, seed=seed), 3, "digits"),
        "backdoor": Ground(colours, 3, "colours"),
    }


def eleven_more(seed: int = 0) -> dict[str, Recipe]:
    """Return further federations, which differ from the ten in data, sizes or number.

    Examples
    --------
    >>> import fltnb as fl
    >>> len(fl.federations.eleven_more(seed=0))
    11
    """
    two: Options = {"n_clusters": 5, "classes_per_cluster": 2, "seed": seed}
    shared: Options = {
        "n_clusters": 5,
        "classes_per_cluster": 3,
        "shared_classes": 1,
    }
    tasks: Options = {
        "tasks": [list(one) for one in FASHION_TASKS[:2]],
        "seed": seed,
    }
    skew: Options = {"users_per_task": [10, 10], "samples_per_user": [20, 500]}
    odd: Options = {"users_per_task": [19, 1], "samples_per_user": 150}
    few: Options = {"n_clients": 20, "samples_per_client": 5}
    cifar10: Options = {"dataset": "cifar10", "n_clients": 100}
    found = {
        "scenario 1": recipe("label_clusters", **cifar10, **two),
        "scenario 2": recipe("label_clusters", **cifar10, **shared, seed=seed),
        "quantity skew": recipe("tasks", "fashion_mnist", **tasks, **skew),
        "one odd client": recipe("tasks", "fashion_mnist", **tasks, **odd),
        "5 samples a client, two classes": recipe(
            "label_clusters", "mnist", **few, **two
        ),
        "PACS": recipe("domains", "pacs", seed=seed),
        "PACS, ImageNet features": recipe("domains", "pacs_features", seed=seed),
    }
    for samples in (10, 20):
        held: Options = {
            "n_clients": 20,
            "test_per_client": 10,
            "samples_per_client": samples,
        }
        turned = recipe("rotated_copies", "mnist", **held, seed=seed)
        found[f"{samples} samples a client"] = turned
    for count in (240, 2400):
        held = {"max_per_class": 2400, "n_clients": count, "seed": seed}
        many = recipe("structured", "emnist_bymerge", **held)
        found[f"scenario 4, {count:,} clients"] = many
    return found
