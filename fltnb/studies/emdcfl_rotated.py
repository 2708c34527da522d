"""Jobs of notebook 11: EMD-CFL's Rotated MNIST and CIFAR-10 in four versions (Tables 1, 6, 10, 11).

From the paper: 40 clients, the angles, 10 % of the samples for validation, three runs; methods that are told K get 2
where there is one cluster. 220 test images a client are what the printed MNIST tables fit.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from ..results import Job
from . import emdcfl
from .common import SEEDS, Settings
from .emdcfl import VERSIONS

LEVELS = (10, 20, 30)  # clients of 40 in a round, Table 6
CLUSTERED = ("oracle", "emdcfl")  # the rows of Table 6
FESEM = {"lam": 0.1}  # of these runs, twice the pull that notebooks 12 and 13 give it
FASTER = (
    "fedem",
    "fedrc",
)  # trained with shares of the loss: once more with K times the learning rate
STEPS = [
    ("as_run" if name in emdcfl.DEPARTS else "as_written", name)
    for name in emdcfl.METHODS
]
STEPS.append(("as_written", "fedce"))
"""All rows once more in batches of 8: of a twelfth of the images those of 64 are a tenth of the published steps."""

SIZES: dict[str, dict[str, Settings]] = {
    "demo": {
        "digits": {
            "model": "mlp_plain",
            "clients": 8,
            "samples": 240,
            "test": 100,
            "local_epochs": 5,
        }
        | {
            "batch_size": 10,
            "versions": {"rotated": 2},
            "clusterings": ((240, 0.025, 1), (240, "auto", 1)),
        },
    },
    "small": {
        # a twelfth of the published images and one hidden layer
        "mnist": {"model": "mlp_plain", "samples": 500, "test": 220}
        | {"clusterings": ((500, 0.025, 10), (500, "auto", 3), (1000, "auto", 3))},
        # heads on what an ImageNet network sees, which nobody tunes here
        "cifar10-features": {
            "model": "mlp_plain",
            "samples": 500,
            "test": 220,
            "seeds": 1,
        }
        | {"clusterings": ((500, 0.025, 1),)},
    },
    "paper": {
        "mnist": {"model": "emdcfl_cnn", "samples": None, "test": 220}
        | {"clusterings": ((None, 0.025, 10), (None, "auto", 10))},
        "cifar10": {"model": "resnet18", "samples": None, "test": None}
        | {"clusterings": ((None, 0.025, 3), (None, "auto", 3))},
    },
}
"""By profile and data set: network, clients (40), images of a client (training and validation) and test images of a
client (None: all there are), what departs from :data:`fltnb.studies.emdcfl.TRAINING`, rounds of each version (10),
seeds (3); and of the clusterings alone: images of a client, tolerance, seeds."""


def dataset(data: str, version: str = "rotated") -> str:
    """Return the data set's name in tables, such as ``rotated_mnist`` or ``rotated_mnist_two``."""
    return f"rotated_{data}" + ("" if version == "rotated" else f"_{version}")


def jobs(profile: str) -> list[Job]:
    """Return the rows of all tables, what is shown beside them, and EMD-CFL's clustering alone over more seeds."""
    found = []
    for data, size in SIZES[profile].items():
        seeds = SEEDS[profile][: size.get("seeds")]
        wanted = [("as_written", name) for name in emdcfl.METHODS]
        wanted += [
            ("as_run", name)
            for name in emdcfl.DEPARTS
            if data.endswith(emdcfl.FEATURES)
        ]
        for version, (variant, name) in product(size.get("versions", VERSIONS), wanted):
            found += rows(profile, data, version, name, seeds, variant)
        found += [] if data.endswith(emdcfl.FEATURES) else _beside(profile, data)
    for data, size in SIZES[profile].items() if profile != "demo" else ():
        for name in (
            dataset(data.removesuffix(emdcfl.FEATURES), version) for version in VERSIONS
        ):
            found.append(emdcfl.pacfl(emdcfl.federation(name, size, 0), name))
    return found + [
        job for data in SIZES[profile] for job in _clusterings(profile, data)
    ]


def _clusterings(profile: str, data: str) -> Iterator[Job]:
    """At the published tolerance, and at the one taken from the data."""
    size = SIZES[profile][data]
    for version in VERSIONS if profile != "demo" else ("rotated", "base"):
        for samples, tolerance, seeds in size.get("clusterings", ()):
            axes = (
                {"model": size["model"]}
                | ({"images": samples} if samples else {})
                | {"tolerance": str(tolerance)}
            )
            name, own = dataset(data, version), size | {"samples": samples}
            keep = () if tolerance == "auto" else ("distance",)
            yield from emdcfl.clusterings(name, seeds, own, tolerance, axes, keep)


def told(name: str, version: str) -> int:
    """Return K as a method is told it: the true one, or 2 where that is 1, but for :data:`fltnb.studies.emdcfl.CUT`."""
    true = len(VERSIONS[version])
    return true if name in emdcfl.CUT else max(true, 2)


def rows(
    profile: str,
    data: str,
    version: str,
    name: str,
    seeds: Iterable[int],
    variant: str = "as_written",
    **changes: Any,
) -> list[Job]:
    """Return the runs of a row; ``changes`` of the training are axes, too, and ``rule`` is one of the method."""
    options = {"rule": changes.pop("rule")} if "rule" in changes else {}
    options |= FESEM if name == "fesem" and variant != "as_run" else {}
    size = SIZES[profile][data]
    size = (
        size
        | {"rounds": size.get("versions", {}).get(version, emdcfl.TRAINING["rounds"])}
        | changes
    )
    how = emdcfl.method(name, told(name, version), variant, **options)
    axes = {option.removesuffix("_size"): value for option, value in changes.items()}
    return emdcfl.rows(how, dataset(data, version), seeds, size, variant, **axes)


def _beside(profile: str, data: str) -> Iterator[Job]:
    """Departures of the table's code, larger steps for the mixtures, and rounds in which clients sit out."""
    few, lr = (
        SEEDS[profile] if profile == "paper" else (0,),
        len(VERSIONS["rotated"]) * emdcfl.TRAINING["lr"],
    )
    departs = ("fedclust", "flexcfl") if profile == "demo" else emdcfl.DEPARTS
    wanted = [(name, SEEDS[profile], {"variant": "as_run"}) for name in departs]
    if profile == "small":
        wanted += [
            (name, few, {"variant": variant, "batch_size": 8})
            for variant, name in STEPS
        ]
        for name in (
            *CLUSTERED,
            "pacfl",
            "fedavg",
            "ifca",
        ):  # the paper's own network on all images
            yield from rows("paper", data, "rotated", name, few, precision="bfloat16")
        yield from emdcfl.one_shots(dataset(data))
    if profile != "demo":
        wanted += [(name, few, {"lr": lr}) for name in FASTER]
        sampled = [
            (name, {"participation": level / 40})
            for level in LEVELS
            for name in CLUSTERED
        ]
        wanted += [(name, SEEDS[profile], part) for name, part in sampled]
        own = {
            "oracle": {"rule": "last_local"},
            "emdcfl": {},
        }  # Table 6 averages everybody's last model
        wanted += [
            (name, few, {**part, "variant": "as_run", **own[name]})
            for name, part in sampled
        ]
    for name, seeds, options in wanted:
        yield from rows(profile, data, "rotated", name, seeds, **options)
    for version, name in product(
        ("min", "two", "base") if profile == "small" else (), departs
    ):
        yield from rows(profile, data, version, name, SEEDS[profile], "as_run")
