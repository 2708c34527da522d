"""Runs of notebook 07: clients that join or get other data in the middle of a run, and soft client graphs.

None of this is in the paper's tables, so the settings are ours: those of scenario 1, as written.
"""

from typing import Any

from ..analyses.dynamic import course as course
from ..results import Job
from .common import SEEDS, Settings, federation, method, training

MIXED, NEW_KIND = "join and drift", "a new kind joins"

# clients, newcomers, drifting clients; first round after the change, rounds; lambda low and high; tau
SIZES: dict[str, dict[str, int]] = {
    "demo": {
        "M": 30,
        "join": 5,
        "drift": 6,
        "event": 4,
        "rounds": 9,
        "low": 0,
        "high": 8,
        "tau": 7,
    },
    "small": {
        "M": 100,
        "join": 20,
        "drift": 20,
        "event": 21,
        "rounds": 40,
        "low": 0,
        "high": 30,
        "tau": 14,
    },
}
SIZES["paper"] = SIZES["small"]
# Newcomers flag at once, drifted clients when they are drawn. A low lambda therefore fires in the first round, a high
# one when most of the drifted have been drawn; the next multiple of tau comes some rounds after the change.

EVENT_METHODS = {
    MIXED: (
        "fedavg",
        "flt",
        "flt_tau",
        "flt_lambda_high",
        "flt_lambda",
        "flt_nearest",
        "oracle",
    ),
    NEW_KIND: ("flt", "flt_nearest", "flt_lambda", "oracle"),
}
SOFT_METHODS = ("flt", "flt_full", "flt_soft", "flt_soft_linear", "oracle")


def jobs(profile: str) -> list[Job]:
    """Both events, soft against hard graphs, when each method clusters again, and the distances behind the graphs."""
    dataset = "digits" if profile == "demo" else "mnist"
    wanted: list[tuple] = [
        (name, {"event": event})
        for event, names in EVENT_METHODS.items()
        for name in names
    ]
    # where no label is shared all graphs are one, which the demo need not show
    shares = (1,) if profile == "demo" else (0, 1)
    wanted += [
        (name, {"shared_classes": shared}) for shared in shares for name in SOFT_METHODS
    ]
    runs = [
        _training(name, profile, dataset, seed, **axes)
        for name, axes in wanted
        for seed in SEEDS[profile]
    ]
    for event, names in EVENT_METHODS.items():
        how = {
            name: settings_of(name, dataset, profile)
            for name in names
            if name.startswith("flt_")
        }
        settings = {
            "federation": changing(event, profile, dataset, 0),
            "rounds": SIZES[profile]["rounds"],
            "seed": 0,
        }
        settings |= {
            "methods": how,
            "participation": training(dataset, "as_written", profile)["participation"],
        }
        runs.append(
            Job.study(
                "dynamic.course",
                settings,
                axes={"dataset": dataset, "event": event, "seed": 0},
            )
        )
    flt = settings_of("flt_full", dataset, profile, 3)
    fed = federation(dataset, "as_written", 0, 1, SIZES[profile]["M"])
    axes = {"dataset": dataset, "method": "flt_full", "shared_classes": 1}
    return [
        *runs,
        Job.clustering(
            fed, flt["clusterer"], flt["encoder"], axes=axes, keep=("distance",)
        ),
    ]


def _training(name: str, profile: str, dataset: str, seed: int, **axes: Any) -> Job:
    shared, size, event = (
        axes.get("shared_classes", 0),
        SIZES[profile],
        axes.get("event"),
    )
    # an evaluation costs more than a round of MNIST: every second one, and few where nothing happens
    every = (1 if profile == "demo" else 2) * (1 if event else 2)
    settings = training(dataset, "as_written", profile) | {
        "rounds": size["rounds"],
        "eval_every": every,
        "seed": seed,
    }
    plain = federation(dataset, "as_written", seed, shared, size["M"])
    fed = changing(event, profile, dataset, seed) if event else plain
    axes = {"dataset": dataset, "variant": "as_written", **axes}
    return Job.training(
        fed, settings_of(name, dataset, profile, 2 + shared), **settings, axes=axes
    )


def changing(event: str, profile: str, dataset: str, seed: int) -> Settings:
    """Return settings of scenario 1's federation with an event (:func:`fltnb.federations.with_events`)."""
    size = SIZES[profile]
    base = federation(dataset, "as_written", seed, n_clients=size["M"])
    del base["dataset"]
    what = {"join": size["join"], "drift": size["drift"]}
    if event == NEW_KIND:
        what = {
            "join": size["M"] // 5,
            "cluster": 4,
        }  # everybody of the last of five clusters
    events = [{"round": size["event"], **what}]
    return {
        "kind": "changing",
        "dataset": dataset,
        "base": base,
        "events": events,
        "seed": seed,
    }


def settings_of(name: str, dataset: str, profile: str, n_classes: int = 2) -> Settings:
    """Return the settings of a method: FLT with Enc1, as it is or with one thing more."""
    if not name.startswith("flt"):
        return {"name": name, "rule": "participants"}
    size = SIZES[profile]
    plain = method("flt_enc1", dataset, "as_written", profile, n_classes) | {
        "name": name
    }
    soft = {key: value for key, value in plain.items() if key != "graph"} | {
        "kind": "SoftFLT"
    }
    dynamic = plain | {"kind": "DynamicFLT"}
    return {
        "flt": plain,
        "flt_full": plain | {"graph": "full"},
        "flt_soft": soft | {"weight": "gaussian"},
        "flt_soft_linear": soft | {"weight": "linear"},
        "flt_tau": dynamic | {"tau": size["tau"]},
        "flt_lambda": dynamic | {"lam": size["low"]},
        "flt_lambda_high": dynamic | {"lam": size["high"]},
        "flt_nearest": dynamic | {"newcomers": "nearest", "drifted": "nearest"},
    }[name]
