"""What can be computed: a training, a clustering, distances between clients, a study.

All of it is hashed: an experiment is named by its settings, whoever asks for it.
"""

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .. import clustering, encoders, federations, methods
from ..clustering import ours as _ours  # noqa: F401  clusterers that settings may name
from ..encoders import EncoderSpec
from ..federations import Federation
from ..federations.recipe import Recipe
from ..methods import Method
from ..owncode import code_of, is_own
from ..settings import plain
from .finished import Values
from .key import digest, key_of

PIXELS = EncoderSpec(kind="pixels")


class Experiment:
    """What the four kinds share.

    Attributes
    ----------
    kind : str
        "training", "clustering", "distances" or "study".
    federation : Recipe or None
        The clients, named without their data.
    seed : int
    keep : tuple of str
        Arrays that are kept besides the labels, such as ``adjacency``. They do not
        decide the numbers, so they are no part of the settings.
    settings : dict
        All that decides the numbers, JSON-able, without what equals a default.
    """

    kind: str
    federation: Recipe | None
    seed: int
    keep: tuple[str, ...] = ()
    _columns: tuple[str, ...] = ()

    @functools.cached_property
    def settings(self) -> Values:
        """All that decides the numbers, JSON-able, without what equals a default."""
        raise NotImplementedError

    @functools.cached_property
    def id(self) -> str:
        """Hash of kind and settings, whatever the data and the numerics."""
        return digest({"kind": self.kind, "settings": self.settings})

    @property
    def shown(self) -> Values:
        """Columns that tables show where a grid has no axis of that name."""
        return {name: getattr(self, name) for name in self._columns}

    def key(self, data: str) -> str:
        """Return what names the result on data with this fingerprint, "" for none."""
        return key_of(self.id, self.settings, data)


@dataclass(frozen=True)
class Training(Experiment):
    """A federated training; the options are those of :func:`fltnb.run`.

    ``model``: a name, or a network of one's own as ``run`` takes it, whose structure,
    code and initial weights are then part of the settings, as is the code of a method
    or a loss of one's own. ``keep``: "models" keeps the models and which client has
    which, besides the labels that every training keeps.

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
        """Columns that tables show where a grid has no axis of that name."""
        model = self.model
        if self.has_own_network:
            from ..models.own import network_of  # and torch, which results do without

            model = network_of(model).name
        return {"model": model, "method": self.method.name, "seed": self.seed}

    @functools.cached_property
    def arguments(self) -> Values:
        """The arguments of :func:`fltnb.run` besides method and federation."""
        apart = ("federation", "method", "model", "keep")
        names = [one.name for one in fields(self) if one.name not in apart]
        numbers = plain({name: getattr(self, name) for name in names})
        return {"model": self.model} | numbers

    def _loss(self) -> Values:
        """Return settings of loss and class weights, none where they are the usual."""
        if self.loss == "cross_entropy" and self.class_weights is None:
            return {}
        from ..training import TrainSpec, losses  # and torch, which results do without

        spec = TrainSpec(loss=self.loss, class_weights=self.class_weights)
        return losses.settings(spec)

    @functools.cached_property
    def settings(self) -> Values:
        """All that decides the numbers, JSON-able, without what equals a default."""
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
        found |= self._loss()
        if self.has_own_network:
            from ..models import shaped
            from ..training.losses import n_outputs

            # only the clients' samples say how large an own network is
            clients = built(self.federation)
            net: Any = shaped(self.model, clients, n_outputs(clients, self.loss))
            found["model"] = net.settings(self.seed)
        return plain(found)

    @property
    def has_own_method(self) -> bool:
        """Whether the method is of a class of one's own, which no version names."""
        return is_own(type(self.method))

    @property
    def has_own_network(self) -> bool:
        """Whether the network is one's own, and not a name."""
        return not isinstance(self.model, str)


TRAINING = {
    one.name: one.default
    for one in fields(Training)
    if isinstance(one.default, (int, float, str))
}
"""Options of a training and their defaults, which settings leave out."""


@dataclass(frozen=True)
class Clustering(Experiment):
    """A clustering of the clients of a federation, without a training.

    Attributes
    ----------
    clusterer : estimator or dict
        One of :mod:`fltnb.clustering`, or its settings.
    encoder : EncoderSpec or OwnModels
        What embeds the data. :class:`fltnb.OwnModels` (every client's own network) is
        for ``EMDClustering``.
    noise : float
        That on what clients send (:mod:`fltnb.clustering.noise`).
    seed : int
        The ``random_state`` of a clusterer that names none.

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

    @functools.cached_property
    def settings(self) -> Values:
        """All that decides the numbers, JSON-able, without what equals a default."""
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
    """Distances between all pairs of clients that have each trained alone, once.

    Attributes
    ----------
    training : dict
        Options of :class:`fltnb.training.TrainSpec`.
    measure : dict
        What :func:`fltnb.methods.ownmodels.measure` takes.

    Examples
    --------
    >>> import fltnb as fl
    >>> clients = fl.recipe(
    ...     "label_clusters", "digits", n_clients=6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> training = {"local_epochs": 1, "lr": 0.1}
    >>> measure = {"name": "emd"}
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
        """All that decides the numbers, JSON-able, without what equals a default."""
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
    """Any other computation: a function, called with the options.

    Attributes
    ----------
    function : callable
        It returns a dict with any of ``numbers`` (name -> number), ``tables`` (name ->
        DataFrame) and ``arrays`` (name -> array), and is known by the name of its
        module and its own.
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
    federation = None
    function: Callable[..., Values]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seed(self) -> int:  # type: ignore[override]  # an option here
        """The seed among the options, or 0."""
        return self.options.get("seed", 0)

    @functools.cached_property
    def settings(self) -> Values:
        """All that decides the numbers, JSON-able."""
        module = self.function.__module__.rpartition(".")[2]
        name = f"{module}.{self.function.__name__}"
        found = plain({"function": name, **self.options})
        for name, canonical in _CANONICAL.items():
            if name in found:
                found[name] = canonical(found[name])
        return _without_zeros(found)


_CANONICAL = {
    "federation": federations.canonical,
    "clusterer": clustering.canonical,
    "encoder": encoders.canonical,
    "method": methods.canonical,
}
"""Options of a study whose settings leave out what equals a default."""


def built(recipe: Recipe) -> Federation:
    """Build a federation; the last few are kept in memory."""
    settings = plain(recipe.settings)
    return _built(json.dumps(settings, sort_keys=True))


@functools.lru_cache(maxsize=8)
def _built(settings: str) -> Federation:
    return federations.build(json.loads(settings))


def canonical(recipe: Recipe) -> Values:
    """Return the settings of a federation without what equals a default."""
    return _canonical(json.dumps(plain(recipe.settings), sort_keys=True))


@functools.cache
def _canonical(settings: str) -> Values:
    return federations.canonical(json.loads(settings))


def encoder_settings(encoder: Any) -> Values:
    """Return an encoder's settings without what equals a default."""
    if isinstance(encoder, EncoderSpec):
        return encoders.canonical(asdict(encoder))
    return encoders.canonical(encoder.settings())


def _without_zeros(settings: Values) -> Values:
    """Return settings without a seed and a noise of zero, their default."""
    kept = dict(settings)
    for name in ("seed", "noise"):
        if not kept.get(name):
            kept.pop(name, None)
    return kept
