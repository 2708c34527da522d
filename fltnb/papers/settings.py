"""The settings of the papers' numbers, and how a run departs from them.

A run counts for or against a paper only if it does not depart from the printed setting
and the paper's data. :func:`departures` returns all differences, :func:`tested_on`
summarises them as one of three terms.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..experiments.experiment import TRAINING
from .names import label

Row = Mapping[str, Any]
"""A printed number, or a run: names and values."""

TESTED_ON = ("printed setting", "reduced setting", "stand-in data")
"""How a number was obtained; only the first counts for or against a paper."""
WITHOUT_CODE = ("mthfl",)
"""Papers without public code: runs can only follow the text."""

NOTEBOOKS: dict[str, dict[str, tuple[str, ...]]] = {
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
"""Paper -> notebook -> printed tables with which its results are compared."""


def in_order() -> list[tuple[str, str, str]]:
    """Return (paper, table, notebook) of every printed table, paper by paper.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.papers.in_order()[0]
    ('flt', 'T1', '01_scenario1')
    """
    found = []
    for paper, books in NOTEBOOKS.items():
        book_of = {}
        for book, tables in books.items():
            for table in tables:
                book_of[table] = book
        # T2 before T10
        for table in sorted(book_of, key=lambda name: (len(name), name)):
            found.append((paper, table, book_of[table]))
    return found


# ---------------------------------------------------------------- data

STRUCTURED = "structured_noniid_femnist"
STAND_INS = {
    # cut to EMNIST Balanced's sizes, used if its release is not available
    "emnist_bymerge": STRUCTURED,
    "pseudo_writers": "femnist",
    "pseudo-writers": "femnist",  # FeSEM's: 80 % of a client's images for training
    "mnist_writers": "femnist",  # real writers, but only digits
    # features from another ImageNet network than the paper's
    "pacs_features": "pacs",
    "backdoor_cifar10-features": "backdoor_cifar10",
    "rotated_cifar10-features": "rotated_cifar10",
    "rotated_cifar10-features_min": "rotated_cifar10_min",
    "rotated_cifar10-features_two": "rotated_cifar10_two",
    "rotated_cifar10-features_base": "rotated_cifar10_base",
}
"""Data set of a run -> data set of the printed table that it stands in for."""
BESIDE = {"dirichlet": "femnist"}
"""Data set of a run -> data set whose claim is also tested on it; no printed number is
compared with it."""
SAME = {"emnist_balanced": STRUCTURED}
"""Data set of a run -> the paper's name of it: this one *is* EMNIST Balanced."""
TOY = re.compile("digits|renderings")
"""Names of the embedded toy data; no printed number is compared with them."""


def stand_in(dataset: str, origin: str, printed: str = "") -> list[str]:
    """Return the stand-in for a paper's data set: one phrase, or none.

    ``dataset`` and ``origin`` are the run's: the name in tables, and the source of the
    data in the record. ``printed``: the paper's data set, "" for any.
    """
    if dataset in BESIDE:
        return [f"stand-in: {label(dataset)}"]
    # a version of a data set begins with the set's name
    if dataset in STAND_INS and STAND_INS[dataset].startswith(printed):
        return [f"stand-in: {label(dataset)}"]
    for part in origin.split("; "):
        if part.startswith("stand-in"):
            phrase, _, _ = part.partition(" (")
            return [phrase]
    return []


# ---------------------------------------------------------------- printed settings

NETWORKS = {
    "mlp": "mlp",
    "cnn": "leaf_cnn",
    "simple_cnn": "emdcfl_cnn",
    "resnet18": "resnet18",
}
"""Printed name of a network -> ours."""


def network_in_print(model: str) -> str:
    """Return the printed name of the network with which a run's network is compared.

    That is its own name if a paper has it, else the one of its kind: an MLP is compared
    with the MLP, any other network with the CNN.

    Examples
    --------
    >>> network_in_print("leaf_cnn"), network_in_print("mlp32")
    ('cnn', 'mlp')
    """
    for theirs, ours in NETWORKS.items():
        if ours == model:
            return theirs
    if model.startswith("mlp"):
        return "mlp"
    return "cnn"


_FLT = {"batch_size": 10, "lr": 0.01}  # Section 4.1
# Section 4.1, Appendix D.2, Table 5; rounds, epochs, batches as in the public code
_EMDCFL = {
    "rounds": 10,
    "local_epochs": 10,
    "participation": 1.0,
    "batch_size": 64,
    "lr": 0.01,
    "momentum": 0.9,
    "weight_decay": 1e-6,
    "val_fraction": 0.1,
    "samples_per_client": None,
    "test_per_client": None,
    "intensity": 1.0,
}
PRINTED: dict[tuple[str, str], dict[str, Any]] = {
    ("flt", "mnist"): _FLT,
    ("flt", "cifar10"): _FLT,
    ("flt", "femnist"): _FLT,
    ("flt", STRUCTURED): _FLT,
    # Section 6.1, which gives neither the rounds nor the batch size
    ("fesem", "femnist"): {"n_clients": 3550, "local_epochs": 5, "lr": 0.003},
    ("fesem", "fedceleba"): {"n_clients": 9343, "local_epochs": 10, "lr": 0.03},
    ("emdcfl", "rotated_mnist"): _EMDCFL | {"n_clients": 40},
    ("emdcfl", "rotated_cifar10"): _EMDCFL | {"n_clients": 40},
    ("emdcfl", "pacs"): _EMDCFL | {"n_clients": 18, "lr": 0.001, "test_fraction": 0.1},
    ("emdcfl", "backdoor_mnist"): _EMDCFL | {"n_clients": 30},
    ("emdcfl", "backdoor_cifar10"): _EMDCFL | {"n_clients": 15},
}
"""Paper and data set -> settings of all its numbers, named as those of a run."""
_PARAMS = {"M": "n_clients", "rho": "participation", "E": "local_epochs", "T": "rounds"}


def printed_setting(line: Row) -> dict[str, Any]:
    """Return the setting of one printed number, named as the settings of a run.

    ``line``: a row of :func:`fltnb.papers.numbers`. Settings that the paper omits are
    left out.
    """
    setting = dict(PRINTED.get((line["paper"], line["dataset"]), {}))
    params = json.loads(line["params"] or "{}")
    for short, name in _PARAMS.items():
        if short in params:
            setting[name] = params[short]
    if "participants" in params:
        setting["participation"] = params["participants"] / params["clients"]
    if line["model"]:
        setting["model"] = NETWORKS.get(line["model"], line["model"])
    return setting


def run_setting(record: Row) -> dict[str, Any]:
    """Return a run's settings in one dictionary, including those of its federation.

    ``record``: from :meth:`Results.record`. If a federation is made from another one,
    the innermost one counts. Distances have the options of their training in a
    dictionary of its own.
    """
    settings = record["settings"]
    federation = settings.get("federation")
    found: dict[str, Any] = {}
    while federation:
        found.update(federation)
        federation = federation.get("base")
    if "rounds" in settings:  # a record leaves out what equals a default
        found.update(TRAINING)
    found.update(settings.get("training") or {})
    found.update(settings)
    return found


# ---------------------------------------------------------------- departures

_CODE_DIFFERS = {
    "flt": ("local_epochs", "batch_size", "lr", "participation"),
    # the authors' notebooks divide PACS 64-16-20 and keep 220 test images a client
    "emdcfl": ("val_fraction", "test_fraction", "test_per_client"),
}
"""Paper -> settings in which its code differs from its text: they are not departures of
a run that follows the code."""
_SAYINGS = {
    "n_clients": "{have:,} of {want:,} clients",
    "rounds": "{have:,} of {want:,} rounds",
    "samples_per_client": "{have:,} images per client",
    "test_per_client": "{have:,} test images per client",
    "participation": "participation {have:g}, printed {want:g}",
    "local_epochs": "local epochs {have:g}, printed {want:g}",
    "lr": "learning rate {have:g}, printed {want:g}",
    "batch_size": "batch size {have:g}, printed {want:g}",
    "momentum": "momentum {have:g}, printed {want:g}",
    "weight_decay": "weight decay {have:g}, printed {want:g}",
    "val_fraction": "{have:.0%} for validation, printed {want:.0%}",
    "test_fraction": "{have:.0%} for testing, printed {want:.0%}",
    "intensity": "shades {have:g} times as far apart",
}
"""Setting -> phrase for a run that differs from the printed setting."""
_MORE = {
    "n_clients": "{have:,} clients, printed {want:,}",
    "rounds": "{have:,} rounds, printed {want:,}",
}
"""The same for a run that has more."""


def departures(
    record: Row,
    line: Row,
    dataset: str = "",
    variant: str = "as_written",
    at_round: int | None = None,
    instead: Row | None = None,
) -> list[str]:
    """Return how a run departs from the setting and the data of a printed number.

    If a run follows the authors' code, differences between the code and the text are
    not departures.

    Parameters
    ----------
    record : dict
        The run's ``settings`` and ``provenance`` (:meth:`Results.record`).
    line : mapping
        A row of :func:`fltnb.papers.numbers`.
    dataset, variant : str
        Those of the run, as in ``runs``.
    at_round : int, optional
        The round after which the number is read off the run's curve; by default the
        last.
    instead : mapping, optional
        Settings that replace those of the line.

    Returns
    -------
    list of str
        Short phrases such as "9 of 30 clients" or "stand-in: pseudo-writers"; empty if
        nothing departs.

    Examples
    --------
    >>> import fltnb as fl
    >>> results = fl.results("01").where(
    ...     kind="training", dataset="mnist", method="fedavg"
    ... )
    >>> key = results.runs["key"].iloc[0]
    >>> line = fl.papers.numbers("flt", table="T1").iloc[0]
    >>> fl.papers.departures(results.record(key), line, "mnist")
    []
    """
    have = run_setting(record)
    if at_round is not None:
        have["rounds"] = at_round
    want = printed_setting(line)
    want.update(instead or {})
    if variant == "as_run":
        for name in _CODE_DIFFERS.get(line["paper"], ()):
            want.pop(name, None)

    if line["metric"] == "ari":
        want.pop("test_per_client", None)  # clusters do not depend on it

    origin = record["provenance"].get("data_origin", "")
    found = stand_in(dataset, origin, line["dataset"])
    found.extend(_other_network(have, want))
    for name, saying in _SAYINGS.items():
        if name not in want or name not in have:
            continue
        own = have[name]
        printed = want[name]
        if _equal(own, printed):
            continue
        if name in _MORE and own > printed:
            saying = _MORE[name]
        found.append(saying.format(have=own, want=printed))
    return found


def _other_network(have: Row, want: Row) -> list[str]:
    """Return the network that replaces the printed one: one phrase, or none."""
    network = want.get("model")
    if not network or have.get("model", network) == network:
        return []
    name = label(have["model"])
    if network == "resnet18":
        # a network without ImageNet's weights is a stand-in for the printed ResNet-18
        return [f"stand-in: {name}"]
    return [name]


def _equal(have: Any, want: Any) -> bool:
    """Whether two settings are equal up to rounding; None equals only None."""
    if have is None or want is None:
        return have is want
    return abs(have - want) <= 1e-12


def tested_on(departs: Iterable[str]) -> str:
    """Return how a number was obtained, given the departures of its run."""
    phrases = list(departs)
    if any(phrase.startswith("stand-in") for phrase in phrases):
        return "stand-in data"
    if phrases:
        return "reduced setting"
    return "printed setting"
