"""A job: one unit of work, what decides its numbers, and the values under which tables show it."""

import functools
import hashlib
import json
import numbers
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from .. import clustering, encoders, federations, methods
from ..clustering import ours as _ours  # noqa: F401  clusterers that jobs may name
from ..errors import FltnbError, choose
from ..federations import Federation
from ..methods import Method
from ..rounds import NUMBERS, check
from ..settings import plain
from .numerics import versions

Given = Mapping[str, Any]
"""What a part of a job is given: names and values, JSON-able."""
NONE: Given = {}
KINDS = ("training", "clustering", "distances", "study")
COMMON = ("notebook", "kind", "dataset", "model", "method", "variant", "seed")
"""Axes that every job has, in the order of the tables."""

TRAINING = {
    name: value for name, value in NUMBERS.items() if name not in ("rounds", "dtype")
}
"""Options of a training and their defaults, which keys leave out."""
_SHORT: dict[
    str, Any
] = {}  # parts of settings that many jobs share, without what equals a default


@dataclass(frozen=True)
class Job:
    """One training, clustering, study of distances or other study: made by the class method of that name.

    FltnbError: an axis is no plain value, or has the name of another column.

    Parameters
    ----------
    kind : {"training", "clustering", "distances", "study"}
    settings : dict, all that decides the numbers, JSON-able; they are hashed without what equals a default
    axes : dict
        Name to text, truth value or number: the values under which tables show the job. They are not hashed. Besides
        the common ones (``dataset, model, method, variant, seed``) a notebook has its own, such as ``k`` or ``rule``.
    keep : sequence of str
        Arrays that are kept besides the labels, such as ``adjacency``; ``models`` of a training, which takes them by
        ``dataclasses.replace(job, keep=...)``, stay in the local store.
    """

    kind: str
    settings: dict[str, Any]
    axes: dict[str, Any] = field(default_factory=dict)
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        choose(self.kind, KINDS, "kind of job")
        for name, value in self.axes.items():
            if name in RESERVED or not isinstance(value, (str, bool, numbers.Real)):
                why = (
                    f"{value!r} is no text, truth value or number, or the name is taken"
                )
                raise FltnbError(
                    f"The axis {name!r} cannot be a column: {why} ({', '.join(RESERVED)})."
                )

    @classmethod
    def training(
        cls,
        federation: Given,
        method: Given,
        model: str,
        rounds: int,
        *,
        axes: Given = NONE,
        **options: Any,
    ) -> Self:
        """Return the job of a federated run; ``options`` are those of :func:`fltnb.run` that decide numbers."""
        for name in options:
            choose(name, TRAINING, "training option")
        settings = {
            "federation": federation,
            "method": method,
            "model": model,
            "rounds": rounds,
            **TRAINING,
            **options,
        }
        shown = {
            "model": model,
            "method": method.get("name", ""),
            "seed": settings["seed"],
        }
        return cls("training", plain(settings), {**shown, **axes})

    @classmethod
    def clustering(
        cls,
        federation: Given,
        clusterer: Given,
        encoder: Given,
        *,
        seed: int = 0,
        noise: float = 0.0,
        axes: Given = NONE,
        keep: Sequence[str] = (),
    ) -> Self:
        """Return the job of a clustering without training.

        ``federation`` is what :func:`fltnb.federations.build` takes; ``clusterer`` and ``encoder`` are as in a method's
        settings, and an encoder of kind ``own`` (the clients' own networks, :mod:`fltnb.methods.ownmodels`) is for
        ``EMDClustering`` alone. ``seed`` is the ``random_state`` of a clusterer that names none, ``noise`` that on what
        clients send (:mod:`fltnb.clustering.noise`).
        """
        settings = {
            "federation": federation,
            "clusterer": clusterer,
            "encoder": encoder,
            "seed": seed,
            "noise": noise,
        }
        return cls("clustering", plain(settings), {"seed": seed, **axes}, tuple(keep))

    @classmethod
    def distances(
        cls,
        federation: Given,
        model: str,
        training: Given,
        measure: Given,
        *,
        seed: int = 0,
        axes: Given = NONE,
    ) -> Self:
        """Return the job of a distance between all pairs of clients that have each trained alone, once.

        ``training`` are options of :class:`fltnb.training.TrainSpec`, ``measure`` is what
        :func:`fltnb.methods.ownmodels.measure` takes.
        """
        settings = {
            "federation": federation,
            "model": model,
            "training": training,
            "measure": measure,
            "seed": seed,
        }
        return cls("distances", plain(settings), {"model": model, "seed": seed, **axes})

    @classmethod
    def study(
        cls, function: str, settings: Given = NONE, *, axes: Given = NONE
    ) -> Self:
        """Return the job of any other computation.

        ``function``, ``"module.name"`` inside :mod:`fltnb.studies`, is called with the settings as keyword arguments
        and returns a dict of dicts with any of ``numbers``, ``tables`` (DataFrames) and ``arrays``.
        """
        return cls("study", plain({"function": function, **settings}), dict(axes))

    @functools.cached_property
    def canonical(self) -> dict[str, Any]:
        """The settings without what equals a default."""
        short = {"federation": federations.canonical, "clusterer": clustering.canonical}
        short |= {
            "encoder": encoders.canonical,
            "method": lambda settings: methods.canonical(self.method),
        }
        if self.kind == "distances":
            short["measure"] = lambda how: (
                clustering.canonical(how)
                if how["name"] in clustering.CLUSTERERS
                else how
            )
        done = dict(self.settings)
        for name in done.keys() & short.keys():
            part = f"{name} {json.dumps(done[name], sort_keys=True)}"
            if part not in _SHORT:
                _SHORT[part] = short[name](done[name])
            done[name] = _SHORT[part]
        defaults = TRAINING if self.kind == "training" else {"seed": 0, "noise": 0.0}
        return {
            name: value
            for name, value in done.items()
            if name not in defaults or value != defaults[name]
        }

    @functools.cached_property
    def method(self) -> Method:
        """The method of a training, built once."""
        return methods.build(self.settings["method"])

    @functools.cached_property
    def id(self) -> str:
        """Hash of kind and settings: what the job is, whatever its data and the version of the numerics."""
        return digest({"kind": self.kind, "settings": self.canonical})

    @property
    def seed(self) -> int:
        """Seed of the job."""
        return self.settings.get("seed", self.axes.get("seed", 0))

    def parts(self) -> Iterator[str]:
        """Names whose numerics version counts (:mod:`fltnb.results.numerics`)."""
        if self.kind == "study":
            yield self.settings["function"]
        yield "core"
        yield from names_in(self.canonical)

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {value}" for name, value in self.axes.items() if value != ""
        )


def cell_of(axes: Mapping[str, Any]) -> str:
    """Name a row of a table, where the seeds stand together: all axes but the seed."""
    return str(
        sorted(
            (name, str(value))
            for name, value in axes.items()
            if name != "seed" and value != ""
        )
    )


def names_in(settings: Any) -> Iterator[str]:
    """Yield the names of all methods, clusterers and kinds of federation and encoder inside settings."""
    if isinstance(settings, dict):
        for word in ("name", "kind"):
            if isinstance(settings.get(word), str):
                yield settings[word]
        # a variant that means other defaults only (``AS_RUN``) leaves no word in the settings, and counts as this, too
        if isinstance(settings.get("name"), str) and "variant" not in settings:
            yield f"{settings['name']} as written"
        if "encoder" in settings:
            yield "encoders"
        for value in settings.values():
            yield from names_in(value)


def digest(value: Any) -> str:
    """Return 20 hexadecimal digits of JSON-able content."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Prepared:
    """A job with its data; ``key``, hash of settings, data and numerics versions, names its result everywhere."""

    job: Job
    key: str
    fed: Federation | None = None


def prepare(job: Job) -> Prepared:
    """Build the federation of a job, once, and its key; FltnbError: the job cannot run."""
    fed = None
    if "federation" in job.settings:  # the last few are kept in memory
        fed = _federation(json.dumps(job.settings["federation"], sort_keys=True))
    if job.kind == "training":
        check(job.method, fed, **training_arguments(job))
    return Prepared(job, key_of(job, fed.fingerprint() if fed is not None else ""), fed)


def key_of(job: Job, data: str) -> str:
    """Return the key of a job on data with this fingerprint, "" for none."""
    return digest({"id": job.id, "data": data, "numerics": versions(job.parts())})


def training_arguments(job: Job) -> dict[str, Any]:
    """Return the settings of a training that are arguments of :func:`fltnb.rounds.run`."""
    return {
        name: value
        for name, value in job.settings.items()
        if name not in ("federation", "method")
    }


@functools.lru_cache(maxsize=8)
def _federation(settings: str) -> Federation:
    return federations.build(json.loads(settings))


RESERVED = (
    *(
        "notebook",
        "kind",
        "key",
        "record",
        "profile",
        "stopped",
        "seconds",
        "round",
        "split",
        "client",
        "cluster",
    ),
    *("accuracy", "variance", "worst", "micro", "ari", "bytes", "n_clusters"),
)
"""Names of columns that no axis may have."""
