"""The settings in which the papers' numbers were obtained, and how a job's settings depart from them.

A number counts as *reproduced* if nothing departs: the printed setting on the printed data. Anything else was run
*otherwise*, and :func:`departures` says how.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from ..results.job import TRAINING
from .names import label

Row = Mapping[str, Any]
"""A printed number, or a job: names and values."""
WITHOUT_CODE = ("mthfl",)
"""Papers without public code: nothing can be run as run."""
RULES = {"as_written": "participants", "as_run": "last_local"}
"""What clients that sit a round out contribute, in the text of FLT and in the code behind its Tables 1 and 2."""

NOTEBOOKS = {
    "flt": {
        "01_scenario1": ("T1", "T7"),
        "02_scenario2": ("T2", "T8"),
        "03_scenario3_femnist": ("T3", "T9"),
        "04_scenario4_structured": ("T4", "T10"),
        "05_ablation": ("T5",),
    },
    "fesem": {"08_fesem": ("T1", "T2", "T3")},
    "mthfl": {"09_mthfl_similarity": ("TI", "TII")},
    "emdcfl": {
        "11_emdcfl_rotated": ("T1", "T6", "T10", "T11"),
        "12_emdcfl_pacs": ("T2", "T7"),
        "13_emdcfl_backdoor": ("T3", "T8"),
        "14_emdcfl_robustness": ("T4", "T5", "T9"),
    },
}
"""Paper -> notebook -> printed tables beside which its results stand."""


def in_order() -> list[tuple[str, str, str]]:
    """Return (paper, table, notebook) of every printed table, in the order of the papers."""
    every = [
        (paper, table, book)
        for paper, books in NOTEBOOKS.items()
        for book in books
        for table in books[book]
    ]
    return sorted(
        every, key=lambda one: (list(NOTEBOOKS).index(one[0]), len(one[1]), one[1])
    )


STRUCTURED = "structured_noniid_femnist"
STAND_INS = {
    "emnist_bymerge": STRUCTURED,  # cut to EMNIST Balanced's sizes, where its release is not at hand
    "pseudo_writers": "femnist",
    # as another ImageNet network than the paper's sees them
    "pacs_features": "pacs",
    "backdoor_cifar10-features": "backdoor_cifar10",
    **{
        f"rotated_cifar10-features{which}": f"rotated_cifar10{which}"
        for which in ("", "_min", "_two", "_base")
    },
    "pseudo-writers": "femnist",  # FeSEM's, with 80 % of a client's images for training
}
"""Data set of a run -> data set of the printed table that it stands in for."""
SAME = {"emnist_balanced": STRUCTURED}
"""Data set of a run -> what the paper calls it: this one *is* cut from EMNIST Balanced."""

TOY = re.compile("digits|renderings")
"""Names of the embedded toy data, which stand beside no printed number."""

PRETRAINED = re.compile("(rotated_cifar10|pacs|backdoor_cifar10)")
"""EMD-CFL's data sets on which its ResNet-18 starts from ImageNet's weights, which carry the numbers there: a run of
any other network stands in for it."""

NETWORKS = {
    "mlp": "mlp",
    "cnn": "leaf_cnn",
    "simple_cnn": "emdcfl_cnn",
    "resnet18": "resnet18",
}
"""Printed name of a network -> ours."""

# FLT, Section 4.2. EMD-CFL, Section 4.1, Appendix D.2 and Table 5; rounds, epochs and batches as in its public code.
_EMDCFL = {
    "rounds": 10,
    "local_epochs": 10,
    "participation": 1.0,
    "batch_size": 64,
    "lr": 0.01,
    "momentum": 0.9,
}
_EMDCFL |= {
    "weight_decay": 1e-6,
    "val_fraction": 0.1,
    "samples_per_client": None,
    "intensity": 1.0,
}
PRINTED: dict[tuple[str, str], dict[str, Any]] = {
    **{
        ("flt", name): {"batch_size": 10, "lr": 0.01}
        for name in ("mnist", "cifar10", "femnist", STRUCTURED)
    },
    # FeSEM, Section 6.1; it tells neither the rounds nor the batches of its tables
    ("fesem", "femnist"): {"n_clients": 3550, "local_epochs": 5, "lr": 0.003},
    ("fesem", "fedceleba"): {"n_clients": 9343, "local_epochs": 10, "lr": 0.03},
    **{
        ("emdcfl", f"rotated_{name}"): _EMDCFL | {"n_clients": 40}
        for name in ("mnist", "cifar10")
    },
    ("emdcfl", "pacs"): _EMDCFL | {"n_clients": 18, "lr": 0.001, "test_fraction": 0.1},
    ("emdcfl", "backdoor_mnist"): _EMDCFL | {"n_clients": 30},
    ("emdcfl", "backdoor_cifar10"): _EMDCFL | {"n_clients": 15},
}
"""Paper and data set -> settings that hold for all its numbers, under the names of a job's settings."""
_PARAMS = {"M": "n_clients", "rho": "participation", "E": "local_epochs", "T": "rounds"}
_CODE_DIFFERS = {"flt": ("local_epochs", "batch_size", "lr", "participation")}
_CODE_DIFFERS["emdcfl"] = (
    "val_fraction",
    "test_fraction",
)  # the authors' notebook divides PACS 64-16-20
_COUNTS = {"n_clients": "clients", "rounds": "rounds"}
_NUMBERS = {
    "participation": "participation",
    "local_epochs": "local epochs",
    "lr": "learning rate",
}
_NUMBERS |= {
    "batch_size": "batch size",
    "momentum": "momentum",
    "weight_decay": "weight decay",
}
_DEPARTS = {
    **{name: f"{{have:,}} of {{want:,}} {text}" for name, text in _COUNTS.items()},
    "samples_per_client": "{have:,} images per client",
    **{
        name: f"{text} {{have:g}}, printed {{want:g}}"
        for name, text in _NUMBERS.items()
    },
    "val_fraction": "{have:.0%} for validation, printed {want:.0%}",
    "test_fraction": "{have:.0%} for testing, printed {want:.0%}",
    "intensity": "shades {have:g} times as far apart",
}
"""Setting -> how to say that a run has another than the printed one."""


def printed_setting(line: Row) -> dict[str, Any]:
    """Return the setting of one printed number, under the names of a job's settings.

    ``line``: a row of :func:`fltnb.papers.numbers`. What the paper does not tell is left out.
    """
    params = json.loads(line["params"] or "{}")
    setting = dict(PRINTED.get((line["paper"], line["dataset"]), {}))
    setting |= {
        name: params[short] for short, name in _PARAMS.items() if short in params
    }
    if "participants" in params:
        setting["participation"] = params["participants"] / params["clients"]
    return setting | (
        {"model": NETWORKS.get(line["model"], line["model"])} if line["model"] else {}
    )


def departures(
    record: Row,
    line: Row,
    dataset: str = "",
    variant: str = "as_written",
    at_round: int | None = None,
    instead: Row | None = None,
) -> list[str]:
    """Say how a job departs from the setting and the data of a printed number.

    Of FLT's numbers as run only clients, rounds and data are compared: its other departures are what that variant is.
    Returns a list of str: short phrases such as "9 of 30 clients" or "stand-in: pseudo-writers"; empty if nothing
    departs. ``record``: a job's ``settings`` and ``provenance`` (:meth:`Results.record`). ``line``: a row of
    :func:`fltnb.papers.numbers`. ``dataset, variant``: of the job, as in ``runs``. ``at_round``: the number is read off
    the job's curve at this round, not at its end. ``instead``: settings in the place of the line's.
    """
    ours = {}
    settings = record["settings"] | ({} if at_round is None else {"rounds": at_round})
    settings = (
        TRAINING if "rounds" in settings else {}
    ) | settings  # a record leaves out what equals a default
    federation = settings.get("federation")
    while federation:  # the innermost one counts, where it is made of another
        ours |= federation
        federation = federation.get("base")
    ours |= settings
    printed = printed_setting(line) | dict(instead or {})
    if variant == "as_run":
        printed = {
            name: value
            for name, value in printed.items()
            if name not in _CODE_DIFFERS.get(line["paper"], ())
        }
    found = stand_in(
        dataset, record["provenance"].get("data_origin", ""), line["dataset"]
    )
    if "model" in printed and ours.get("model", printed["model"]) != printed["model"]:
        # the printed ResNet-18 has ImageNet's weights: every other network stands in for it, as other data do
        found.append(
            "stand-in: " * (printed["model"] == "resnet18") + label(ours["model"])
        )
    for name, text in _DEPARTS.items():
        want = printed.get(name)
        have = ours.get(name, want)
        if (
            name not in printed
            or have == want
            or (want is not None and abs(have - want) <= 1e-12)
        ):
            continue
        if name in _COUNTS and have > want:
            text = f"{{have:,}} {_COUNTS[name]}, printed {{want:,}}"
        found.append(text.format(have=have, want=want))
    return found


def stand_in(dataset: str, origin: str, printed: str = "") -> list[str]:
    """Return what data stand in for the paper's data set ``printed`` ("": for any), a list of one phrase or of none.

    ``dataset``, ``origin``: of the run: its name in tables, and where the record says that the data come from.
    """
    if dataset in STAND_INS and STAND_INS[dataset].startswith(
        printed
    ):  # a version of a set begins with the set's name
        return [f"stand-in: {label(dataset)}"]
    return [
        part.split(" (")[0]
        for part in origin.split("; ")
        if part.startswith("stand-in")
    ][:1]
