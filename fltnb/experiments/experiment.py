"""Experiments: a training, a clustering, distances between clients, or a study.

An experiment is identified by a hash of its settings, in all notebooks.
"""

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .. import clustering, encoders, federations, methods
from ..clustering import ours as _ours  # noqa: F401  clusterers that settings may name
from ..encoders import EncoderSpec
from ..errors import FltnbError, unwritten
from ..federations import Federation
from ..federations.recipe import Recipe
from ..methods import Method
from ..owncode import code_of, is_own
from ..settings import plain
from .finished import Values
from .key import digest, key_of

PIXELS = EncoderSpec(kind="pixels")


class Experiment:
    """The common part of the four kinds of experiments.

    Attributes
    ----------
    kind : str
        "training", "clustering", "distances" or "study".
    federation : Recipe or None
        The clients, described without their data.
    seed : int
    keep : tuple of str
        Arrays to keep in addition to the labels, such as ``adjacency``. They do not
        affect the numbers, so they are not part of the settings.
    settings : dict
        All settings that determine the numbers, JSON-able, without defaults.
    """

    kind: str
    federation: Recipe | None
    seed: int
    keep: tuple[str, ...] = ()
    _columns: tuple[str, ...] = ()

    @functools.cached_property
    def settings(self) -> Values:
        """Return all settings that determine the numbers, without defaults."""
        raise unwritten(self, "settings")

    @functools.cached_property
    def id(self) -> str:
        """Return a hash of kind and settings, without data and numerics."""
        return digest({"kind": self.kind, "settings": self.settings})

    @property
    def needed(self) -> set[str]:
        """Return the arrays without which a stored result does not serve."""
        return set()

    @property
    def shown(self) -> Values:
        """Return columns that tables show if a grid has no axis of that name."""
        return {name: getattr(self, name) for name in self._columns}

    def key(self, data: str) -> str:
        """Return the key of the result on data with this fingerprint, "" for none."""
        return key_of(self.id, self.settings, data)


@dataclass(frozen=True)
class Training(Experiment):
    """A federated training; the options are those of :func:`fltnb.run`.

    ``model``: a name, or your own network as for ``run``; its structure, code and
    initial weights are then part of the settings, as is the code of your own method or
    loss. ``keep``: "models" keeps the models and which client has which, in addition to
    the labels that every training keeps.

    Examples
    --------
    >>> import fltnb as fl
    >>> clients = fl.recipe(
    ...     "label_clusters", "digits", n_clients=6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> fl.Training(clients, fl.methods.FedAvg(), "mlp32", rounds=2).settings["rounds"]
    2
    """

    kind = "training"
    federation: Recipe
    method: Method
    model: Any
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
    loss: Any = "cross_entropy"
    class_weights: tuple[float, ...] | None = None
    keep: tuple[str, ...] = field(default=(), compare=False)

    @property
    def shown(self) -> Values:
        """Return columns that tables show if a grid has no axis of that name."""
        model = self.model
        if self.has_own_network:
            from ..models.own import network_of  # imports torch

            model = network_of(model).name
        return {"model": model, "method": self.method.name, "seed": self.seed}

    @property
    def needed(self) -> set[str]:
        """Return the arrays without which a stored result does not serve."""
        return {"models"} & set(self.keep)

    @functools.cached_property
    def arguments(self) -> Values:
        """Return the arguments of :func:`fltnb.run` except method and federation."""
        apart = ("federation", "method", "model", "keep")
        names = [one.name for one in fields(self) if one.name not in apart]
        numbers = plain({name: getattr(self, name) for name in names})
        return {"model": self.model} | numbers

    def _loss(self) -> Values:
        """Return settings of loss and class weights; nothing for the defaults."""
        if self.loss == "cross_entropy" and self.class_weights is None:
            return {}
        from ..training import TrainSpec, losses  # imports torch

        spec = TrainSpec(loss=self.loss, class_weights=self.class_weights)
        return losses.settings(spec)

    @functools.cached_property
    def settings(self) -> Values:
        """Return all settings that determine the numbers, without defaults."""
        found = {
            "federation": canonical(self.federation),
            "method": methods.canonical(self.method),
        }
        if self.has_own_method:
            found["method"]["code"] = code_of(type(self.method))
        for name, value in self.arguments.items():
            apart = name in ("loss", "class_weights")
            if not apart and (name not in TRAINING or value != TRAINING[name]):
                found[name] = value
        found.update(self._loss())
        if self.has_own_network:
            from ..models import shaped
            from ..training.losses import n_outputs

            # the size of an own network depends on the clients' samples
            clients = built(self.federation)
            net = shaped(self.model, clients, n_outputs(clients, self.loss))
            found["model"] = net.settings(self.seed)
        return plain(found)

    @property
    def has_own_method(self) -> bool:
        """Return whether the method's class is a user's own, without a version."""
        return is_own(type(self.method))

    @property
    def has_own_network(self) -> bool:
        """Return whether the network is a user's own, and not a name."""
        return not isinstance(self.model, str)


TRAINING = {
    one.name: one.default
    for one in fields(Training)
    if isinstance(one.default, (int, float, str))
}
"""Options of a training and their defaults; settings leave defaults out."""


@dataclass(frozen=True)
class Clustering(Experiment):
    """A clustering of the clients of a federation, without a training.

    Attributes
    ----------
    federation : Recipe
    clusterer : estimator or dict
        One of :mod:`fltnb.clustering`, or its settings.
    encoder : EncoderSpec or OwnModels
        Encoder of the data; by default samples are not encoded.
        :class:`fltnb.OwnModels` (every client's own network) is for ``EMDClustering``.
    noise : float
        Level of noise on what clients send (:mod:`fltnb.clustering.noise`); 0: none.
    seed : int
        The ``random_state`` of a clusterer that does not give one, and the seed of the
        noise.
    keep : tuple of str
        Fitted attributes to keep in addition to the labels, without their underscore,
        such as "adjacency".

    Examples
    --------
    >>> import fltnb as fl
    >>> clients = fl.recipe(
    ...     "label_clusters", "digits", n_clients=6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> sorted(fl.Clustering(clients, fl.FCR(k=3, n_neighbors=4)).settings)
    ['clusterer', 'encoder', 'federation']
    """

    kind = "clustering"
    _columns = ("seed",)
    federation: Recipe
    clusterer: Any
    encoder: Any = PIXELS
    noise: float = 0.0
    seed: int = 0
    keep: tuple[str, ...] = field(default=(), compare=False)

    @property
    def needed(self) -> set[str]:
        """Return the arrays without which a stored result does not serve."""
        return set(self.keep)

    @functools.cached_property
    def settings(self) -> Values:
        """Return all settings that determine the numbers, without defaults."""
        found = {
            "federation": canonical(self.federation),
            "clusterer": clustering.canonical(self.clusterer),
            "encoder": encoder_settings(self.encoder),
            "seed": self.seed,
            "noise": self.noise,
        }
        return _without_zeros(plain(found))


@dataclass(frozen=True)
class Distances(Experiment):
    """Distances between all pairs of clients after each has trained alone once.

    Attributes
    ----------
    federation : Recipe
    model : str
        A network's name (:data:`fltnb.models.NAMES`).
    training : dict
        Options of :class:`fltnb.training.TrainSpec`.
    measure : dict
        The argument ``how`` of :func:`fltnb.methods.ownmodels.measure`.
    seed : int
        Seed of initial weights, training and measure.

    Examples
    --------
    >>> import fltnb as fl
    >>> clients = fl.recipe(
    ...     "label_clusters", "digits", n_clients=6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> training = {"local_epochs": 1, "lr": 0.1}
    >>> measure = {"name": "updates"}
    >>> sorted(fl.Distances(clients, "mlp32", training, measure).settings)
    ['federation', 'measure', 'model', 'training']
    """

    kind = "distances"
    _columns = ("model", "seed")
    federation: Recipe
    model: str
    training: Mapping[str, Any]
    measure: Mapping[str, Any]
    seed: int = 0

    @functools.cached_property
    def settings(self) -> Values:
        """Return all settings that determine the numbers, without defaults."""
        measure = self.measure
        if measure["name"] in clustering.CLUSTERERS:
            measure = clustering.canonical(measure)
        found = {
            "federation": canonical(self.federation),
            "model": self.model,
            "training": dict(self.training),
            "measure": dict(measure),
            "seed": self.seed,
        }
        return _without_zeros(plain(found))


@dataclass(frozen=True)
class Study(Experiment):
    """Any other computation: a function that is called with options.

    Attributes
    ----------
    function : callable
        It returns a dict with any of ``numbers`` (name -> number), ``tables`` (name ->
        DataFrame) and ``arrays`` (name -> array). It is identified by its name and that
        of its module.
    options : dict
        Its arguments, JSON-able.

    Examples
    --------
    >>> import fltnb as fl
    >>> def double(x):
    ...     return {"twice": 2 * x}
    >>> fl.Study(double, {"x": 3}).options
    {'x': 3}
    """

    kind = "study"
    function: Callable[..., Values]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seed(self) -> int:  # type: ignore[override]  # an option here
        """Return the seed among the options, or 0."""
        return self.options.get("seed", 0)

    @functools.cached_property
    def federation(self) -> Recipe | None:  # type: ignore[override]
        """Return the clients among the options, which the key of the result needs."""
        clients = self.options.get("federation")
        return None if clients is None else Recipe(clients)

    @functools.cached_property
    def settings(self) -> Values:
        """Return all settings that determine the numbers, JSON-able.

        Raises FltnbError if an option is called "function".
        """
        if "function" in self.options:
            raise FltnbError(
                'A study cannot have an option "function", which names the study: '
                "rename it."
            )
        module = self.function.__module__.rpartition(".")[2]
        name = f"{module}.{self.function.__name__}"
        found = plain({"function": name, **self.options})
        for name, canonical in _CANONICAL.items():
            if name in found:
                found[name] = canonical(found[name])
        defaults = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            if parameter.default is not parameter.empty:
                defaults[name] = parameter.default
        return _without_zeros(found, defaults)


_CANONICAL = {
    "federation": federations.canonical,
    "clusterer": clustering.canonical,
    "encoder": encoders.canonical,
    "method": methods.canonical,
}
"""Options of a study whose defaults are left out of the settings."""


def built(recipe: Recipe) -> Federation:
    """Build a federation; the last few are kept in memory."""
    settings = plain(recipe.settings)
    return _built(json.dumps(settings, sort_keys=True))


@functools.lru_cache(maxsize=8)
def _built(settings: str) -> Federation:
    """Return the federation of settings, which are JSON so that they can be a key."""
    return federations.build(json.loads(settings))


def canonical(recipe: Recipe) -> Values:
    """Return the settings of a federation without defaults."""
    return _canonical(json.dumps(plain(recipe.settings), sort_keys=True))


@functools.cache
def _canonical(settings: str) -> Values:
    """Return the complete form of the settings of a federation, given as JSON."""
    return federations.canonical(json.loads(settings))


def encoder_settings(encoder: Any) -> Values:
    """Return an encoder's settings without defaults."""
    if isinstance(encoder, EncoderSpec):
        return encoders.canonical(asdict(encoder))
    return encoders.canonical(encoder.settings())


def _without_zeros(
    settings: Values, defaults: Mapping[str, Any] | None = None
) -> Values:
    """Return settings without seed and noise if these are zero, the default.

    ``defaults``: those of a function; a zero counts where another value is its default.
    """
    kept = dict(settings)
    for name in ("seed", "noise"):
        if not kept.get(name) and not (defaults or {}).get(name):
            kept.pop(name, None)
    return kept
