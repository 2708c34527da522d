"""What can be computed: a training, a clustering, distances between clients, a study."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .. import clustering
from ..encoders import EncoderSpec
from ..federations.recipe import Recipe
from ..methods import Method
from ..results import Job

PIXELS = EncoderSpec(kind="pixels")


class Experiment:
    """What the four kinds share."""

    def job(self, axes: Mapping[str, Any]) -> Job:
        """Return the job under the values of these axes."""
        raise NotImplementedError


@dataclass(frozen=True)
class Training(Experiment):
    """A federated training; the options are those of :func:`fltnb.run`."""

    federation: Recipe
    method: Method
    model: str
    rounds: int
    local_epochs: int = 1
    participation: float = 0.2
    batch_size: int = 10
    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal: float = 0.0
    seed: int = 0
    eval_every: int = 1
    precision: str = "float32"

    def job(self, axes: Mapping[str, Any]) -> Job:
        """Return the job under the values of these axes."""
        apart = ("federation", "method")
        options = {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name not in apart
        }
        method = self.method.settings()
        return Job.training(self.federation.settings, method, axes=axes, **options)


@dataclass(frozen=True)
class Clustering(Experiment):
    """A clustering of the clients of a federation, without a training."""

    federation: Recipe
    clusterer: Any
    encoder: Any = PIXELS
    noise: float = 0.0
    seed: int = 0
    keep: tuple[str, ...] = ()

    def job(self, axes: Mapping[str, Any]) -> Job:
        """Return the job under the values of these axes."""
        options = {"seed": self.seed, "noise": self.noise, "keep": self.keep}
        encoder = settings_of(self.encoder)
        held = self.federation.settings
        found = clustering.canonical(self.clusterer)
        return Job.clustering(held, found, encoder, axes=axes, **options)


@dataclass(frozen=True)
class Distances(Experiment):
    """Distances between all pairs of clients that have each trained alone, once."""

    federation: Recipe
    model: str
    training: Mapping[str, Any]
    measure: Mapping[str, Any]
    seed: int = 0

    def job(self, axes: Mapping[str, Any]) -> Job:
        """Return the job under the values of these axes."""
        held = self.federation.settings
        how = self.training, self.measure
        return Job.distances(held, self.model, *how, seed=self.seed, axes=axes)


@dataclass(frozen=True)
class Study(Experiment):
    """Any other computation: a function, called with the options."""

    function: Callable[..., dict[str, Any]]
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def job(self, axes: Mapping[str, Any]) -> Job:
        """Return the job under the values of these axes."""
        module = self.function.__module__.rpartition(".")[2]
        name = f"{module}.{self.function.__name__}"
        return Job.study(name, self.options, axes=axes)


def settings_of(encoder: Any) -> dict[str, Any]:
    """Return an encoder's settings."""
    if isinstance(encoder, EncoderSpec):
        return asdict(encoder)
    return encoder.settings()
