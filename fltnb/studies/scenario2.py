"""Jobs of notebook 02: FLT Tables 2 and 8, Figure 9: three labels per client, neighbouring clusters share one."""

from itertools import product

from ..analyses.scenario2 import holdings as holdings
from ..results import Job
from .common import (
    DATASETS,
    SCENARIO1_METHODS,
    SEEDS,
    VARIANTS,
    Settings,
    alone,
    federation,
    picture,
    rows,
    steps,
)

# What the code behind the tables did otherwise than the text, each changed alone, all else as written; and C is told
_BOTH = [
    {"rule": "last_local"},
    {"rule": "last_aggregate"},
    {"momentum": 0.5},
    {"partition": "as_run"},
]
SWITCHES: dict[str, list[Settings]] = {
    "fedavg": _BOTH,
    "flt_enc1": [
        *_BOTH,
        {"k": 3},
        {"distance": "matching"},
        {"graph": "full"},
        {"membership": "leaf_order"},
        {"C": 5},
    ],
}


def jobs(profile: str) -> list[Job]:
    """FLT Tables 2 and 8, Figure 9: six methods and the oracle in both variants, every switch alone; partitions."""
    sets, seeds = DATASETS[profile], SEEDS[profile]
    trained = list(product(sets, VARIANTS))
    result = [
        job
        for one, name in product(trained, SCENARIO1_METHODS)
        for job in rows(name, *one, profile, seeds, 1)
    ]
    for name, switches in SWITCHES.items():
        for switch in switches[1::2] if profile == "demo" else switches:
            result += rows(name, sets[0], "as_written", profile, seeds, 1, **switch)
    # PCA+kM+HC's threshold was 1 in the text, 1.2 in the code of the tables and 3 a few days before
    for name in sets if profile != "demo" else ():
        result += rows(
            "pca_km_hc", name, "as_run", profile, seeds, 1, threshold=3.0
        ) + steps(name, profile, 1)
        result += alone(name, profile, seeds if name == "mnist" else (0,), 1)
    if "cifar10" in sets:  # the code's encoder stayed in training mode
        result += rows(
            "flt_enc1", "cifar10", "as_run", profile, seeds, 1, batch_norm="image"
        )
    result += [picture(*one, profile, 1) for one in trained]
    for name, variant in trained:
        held = {"federation": federation(name, variant, 0, shared_classes=1)}
        result.append(
            Job.study(
                "scenario2.holdings", held, axes={"dataset": name, "variant": variant}
            )
        )
    return list({job.id: job for job in result}.values())
