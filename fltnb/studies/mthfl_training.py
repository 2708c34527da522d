"""Jobs of notebook 10: MT-HFL's Figures 2 and 3, proposed against random grouping, task by task.

The paper states the users of each task, the networks, six runs and, for CIFAR-10, the minority share. Learning rate,
batch size, samples, rounds and how often the global server acts are not stated: what stands here are our choices.
"""

from ..analyses.mthfl_training import curves, users  # noqa: F401 - by name
from ..federations import CIFAR10_TASKS, DIGITS_TASKS, FASHION_TASKS
from ..results import Job
from . import mthfl_similarity
from .common import Settings, pixels

RUNS = 6  # "six experimental runs": each has its own partition, initial weights and random grouping
TASKS = {
    "digits": {
        "low (0 to 4)": DIGITS_TASKS[0],
        "middle (5 to 7)": DIGITS_TASKS[1],
        "high (8, 9)": DIGITS_TASKS[2],
    },
    "fashion_mnist": dict(
        zip(("clothes", "shoes", "bags"), FASHION_TASKS, strict=True)
    ),
    "cifar10": dict(zip(("vehicles", "animals"), CIFAR10_TASKS, strict=True)),
}
LOCAL_ROUNDS = (
    2  # FedAvg rounds of every task's server between two rounds of the global one
)
OTHER_LOCAL_ROUNDS = (1, 10)  # tried beside it
_DIGITS = {
    "model": "mlp32",
    "batch_size": 10,
    "lr": 0.1,
    "samples": (100, 60, 40),
    "rounds": 6,
    "runs": 3,
}
_FASHION = {
    "model": "mlp32",
    "batch_size": 32,
    "lr": 0.05,
    "samples": (6000, 4000, 2000),
    "rounds": 20,
}
# a tenth of the images, 20 rounds and three runs: what two cores can do in minutes
_CIFAR = {
    "model": "lenet",
    "batch_size": 20,
    "lr": 0.05,
    "samples": (400, 400),
    "rounds": 20,
    "runs": 3,
}
_LONG = {"rounds": 100, "runs": RUNS}
SIZES: dict[str, dict[str, Settings]] = {
    "demo": {"digits": _DIGITS},
    "small": {"fashion_mnist": _FASHION, "cifar10": _CIFAR},
    "paper": {
        "fashion_mnist": _FASHION | _LONG,
        "cifar10": _CIFAR | _LONG | {"samples": (4000, 4000)},
    },
}
"""Settings by profile and data set."""
EVERY_IMAGE = {"cifar10": (4000, 4000)}
"""Samples of a user in the curves of Figures 2 and 3, where a profile has fewer: all images of vehicles are dealt."""

FIGURE = ("mthfl", "mthfl_random")  # the two curves of Figures 2 and 3
OTHERS = ("mthfl_oracle", "mthfl_random_own", "mthfl_separate", "fedavg", "local")
BY_ROUND = (*FIGURE, "mthfl_separate", "fedavg", "local")
"""Rows whose tasks are tested in every round, in six runs."""


def jobs(profile: str) -> list[Job]:
    """Return the curves of both figures, who holds what, other methods, and other numbers of local rounds.

    A training keeps the accuracy of single users for its last round alone; the curves are a study, :func:`curves`.
    """
    runs = []
    for dataset, size in SIZES[profile].items():
        seeds, every = (
            range(size.get("runs", RUNS)),
            range(3 if profile == "demo" else RUNS),
        )
        about = {"dataset": dataset, "part": "users", "variant": "as_written"}
        runs += [_curves(name, dataset, s, profile) for s in every for name in BY_ROUND]
        fed = federation(dataset, profile, 0, many=True)
        runs.append(Job.study("mthfl_training.users", {"federation": fed}, axes=about))
        runs += [
            _row(name, dataset, s, profile)
            for name in (*FIGURE, *OTHERS)
            for s in seeds
        ]
        if dataset != "cifar10" or profile == "paper":
            runs += [
                _row("mthfl", dataset, s, profile, local)
                for local in OTHER_LOCAL_ROUNDS
                for s in seeds[:3]
            ]
    return runs


def _row(
    name: str, dataset: str, seed: int, profile: str, local_rounds: int = LOCAL_ROUNDS
) -> Job:
    """One run; those in the usual settings have no axes of their own."""
    size = SIZES[profile][dataset]
    axes: Settings = {"dataset": dataset, "variant": "as_written"}
    axes |= {"local_rounds": local_rounds} if local_rounds != LOCAL_ROUNDS else {}
    training = {
        name: size[name] for name in ("model", "batch_size", "lr", "rounds")
    } | {"participation": 1.0}
    fed, how = federation(dataset, profile, seed), method(name, dataset, local_rounds)
    return Job.training(
        fed, how, **training, seed=seed, eval_every=size["rounds"], axes=axes
    )


def _curves(name: str, dataset: str, seed: int, profile: str) -> Job:
    size = SIZES[profile][dataset]
    settings = {
        name: size[name] for name in ("model", "batch_size", "lr", "rounds")
    } | {"seed": seed}
    fed = federation(dataset, profile, seed, many=True)
    axes = {
        "dataset": dataset,
        "method": name,
        "model": size["model"],
        "variant": "as_written",
        "part": "curves",
    }
    how = settings | {"federation": fed, "method": method(name, dataset)}
    return Job.study("mthfl_training.curves", how, axes=axes | {"seed": seed})


def federation(dataset: str, profile: str, seed: int, many: bool = False) -> Settings:
    """Return the federation of one data set, with ``many`` samples a user as :data:`EVERY_IMAGE` has them."""
    samples = list(
        EVERY_IMAGE.get(dataset if many else "", SIZES[profile][dataset]["samples"])
    )
    return mthfl_similarity.federation(dataset, len(TASKS[dataset]), seed) | {
        "samples_per_user": samples
    }


def method(name: str, dataset: str, local_rounds: int = LOCAL_ROUNDS) -> Settings:
    """Return the settings of one method.

    ``mthfl_random`` looks at how well each task's server does on its task, as the figures do; ``mthfl_random_own`` is
    the same training, with every user tested on the server that it was put with.
    """
    if name in ("local", "fedavg"):
        return {"name": name} | ({"rule": "participants"} if name == "fedavg" else {})
    known = {
        "mthfl_random": "random",
        "mthfl_random_own": "random",
        "mthfl_oracle": "oracle",
    }
    eigen = {
        "name": "EigenRelevance",
        "n_clusters": len(TASKS[dataset]),
        "n_eigenvectors": 5,
    }
    settings: Settings = {
        "kind": "MTHFL",
        "name": name,
        "local_rounds": local_rounds,
        "encoder": pixels(),
    }
    settings |= {
        "clusterer": known.get(name, eigen),
        "view": "own" if name == "mthfl_random_own" else "task",
    }
    return settings | ({"shared": 0} if name == "mthfl_separate" else {})
