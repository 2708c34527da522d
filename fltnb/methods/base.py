"""The interface of a federated method: three functions of a round, no training code.

A method defines from which model each participant starts (:meth:`Method.dispatch`), how
the returned models are combined (:meth:`Method.collect`) and which model serves each
client (:meth:`Method.serve`); :meth:`Method.start` runs once. Everything that a method
remembers is in its state (:mod:`fltnb.methods.state`), so that a run can be saved and
continued bit for bit.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np

from .. import clustering
from ..errors import FltnbError, unwritten
from ..federations import Federation
from ..federations.phases import Phase
from ..settings import Count, Variant, brief, checked
from . import hooks
from .modelspace import cluster_means
from .samples import check_validation
from .state import NOWHERE, OwnState, State

if TYPE_CHECKING:
    from ..models import Model
    from ..training import Engine, Evaluation, Trained, TrainSpec
    from .graph import ClientGraph

Rule = Literal["participants", "last_local", "last_aggregate"]
RULES = get_args(Rule)
HOW_TO = "docs/adding_a_method.md"
# the state of the authors' code that printed FLT's Tables 1 and 2 (docs/differences.md)
PUBLISHED_RULE: Rule = "last_local"


@dataclass(frozen=True)
class Context:
    """What ``start`` may use besides the federation and the model.

    Attributes
    ----------
    seed : int
        The run's seed.
    cache : callable, optional
        ``cache(key, compute)`` returns a dict of arrays and keeps it between runs:
        results that are computed once, such as clusterings. None: nothing is kept.
    progress : bool
        Whether such computations may show progress.
    n_jobs : int, optional
        Number of processes for such computations; None: one for each core.
    model : Model, optional
        The run's network.
    device : str
        The device on which networks are applied outside training: the engine's.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.methods.Context(seed=3).seed
    3
    """

    seed: int
    cache: Callable[[dict, Callable[[], dict]], dict] | None = None
    progress: bool = False
    n_jobs: int | None = None
    model: "Model | None" = None
    device: str = "auto"


class _OldOptions:
    """Explains, for one version, what replaced former options."""

    def __new__(cls, *given: Any, **options: Any):
        if "variant" in options:
            raise FltnbError(
                f"variant is no option of {cls.__name__} any more: use "
                f"fl.methods.{cls.__name__}AsRun for what the authors' code did."
            )
        return super().__new__(cls)


@dataclass(eq=False, repr=False)
class Method(_OldOptions):
    """Base of all methods: what clients start from, and how their models are combined.

    ``docs/adding_a_method.md`` has a method of your own in 30 lines.

    A method is a dataclass, and its fields are its options. A value that an option's
    annotation does not allow raises FltnbError. ``n_clusters`` is the given number K of
    models or clusters. If the authors' code differs from their text, a subclass
    ``MineAsRun`` beside the method implements the code.

    Attributes
    ----------
    state_type : type
        The class of its state.
    name : str
        The method's id everywhere (tables, colours, files).
    variant : {"as_written", "as_run"}
        "as_run" if a subclass does something that no options of its method can do.
    models_down, models_up : int
        Models that one participant receives and sends per round: traffic is counted
        from them, unless :meth:`traffic` says more.
    tests_served : bool
        False if :meth:`evaluate` tests something other than the one model that a
        client is served.
    layered : bool
        Whether it needs the list of layers, which only the papers' networks have.
    headed : bool
        Whether it uses last layers, or their inputs.
    softmax : bool
        Whether it needs class probabilities, and so cross entropy.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.methods.FedAvg().settings()
    {'name': 'fedavg'}
    """

    state_type: ClassVar[type[State]] = State
    name = "method"
    variant: ClassVar[Variant] = "as_written"
    tests_served = True
    layered = False
    headed = False
    softmax = False
    models_down = 1
    models_up = 1

    def __post_init__(self) -> None:
        what = f"method {self.name}"
        for option, value in checked(type(self), self.options(), what).items():
            setattr(self, option, value)

    def options(self) -> dict[str, Any]:
        """Return all options with their present values."""
        names = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        given = brief(type(self), self.options())
        shown = [f"{name}={value!r}" for name, value in given.items()]
        return f"{type(self).__name__}({', '.join(shown)})"

    @classmethod
    def as_written(cls) -> "type[Method]":
        """Return the class whose defaults this one changes, or this one."""
        if cls.variant == "as_run":
            return cls
        return next(one for one in cls.__mro__ if "name" in vars(one))

    def settings(self) -> dict[str, Any]:
        """JSON-able settings that :func:`fltnb.methods.build` makes this method from.

        Defaults are left out. ``kind``, the class, is added if ``name`` is a custom id.
        """
        written = self.as_written()
        settings: dict[str, Any] = {"name": self.name}
        if self.name != written.name:
            settings["kind"] = written.__name__.removesuffix("AsRun")
        if self.variant == "as_run":
            settings["variant"] = self.variant
        for name, value in brief(written, self.options()).items():
            if hasattr(value, "get_params"):
                value = clustering.canonical(value)
            elif is_dataclass(value) and not isinstance(value, type):
                value = brief(type(value), asdict(value))
            settings[name] = value
        return settings

    def check(self, fed: Federation) -> None:
        """Refuse a federation on which the method cannot run.

        An example is one without the validation samples that the method needs.
        """
        if getattr(self, "split", "") == "val":
            name = type(self).__name__
            other = ""
            if "split" in self.options():
                other = ', or give split="train"'
            elif "split" in vars(type(self)) and name.endswith("AsRun"):
                other = f", or take fl.methods.{name.removesuffix('AsRun')}"
            check_validation(fed, name, other)

    def check_model(self, model: "Model", spec: "TrainSpec") -> None:
        """Refuse a network or a loss that lacks what the method needs."""
        if self.softmax and spec.loss != "cross_entropy":
            raise FltnbError(
                f"{self.name} works with class probabilities: take "
                "loss='cross_entropy', or another method."
            )
        if self.layered and not model.layers:
            raise FltnbError(
                f"{self.name} needs a network of fltnb.models.NAMES, not "
                f"{model.name!r}: choose one of these, or another method."
            )
        if self.headed:
            _ = model.head  # refuses a network without one, and says why

    def local_training(self) -> dict[str, float]:
        """Options of :class:`fltnb.training.TrainSpec` that belong to the method.

        Such as FedProx's ``proximal``.
        """
        return {}

    def prepare(self, fed: Federation, context: Context) -> None:
        """Compute once what runs with other seeds share; most methods do nothing."""

    def start(self, fed: Federation, model: "Model", context: Context) -> OwnState:
        """Return the state before round 1."""
        raise unwritten(self, "start(self, fed, model, context)", HOW_TO)

    def observe(
        self, state: OwnState, clients: np.ndarray, round: int, engine: "Engine"
    ) -> OwnState:
        """Let the participants measure models on their own data before they train.

        Most methods do not. ``engine.evaluate(theta, rows, clients, split)`` gives
        losses; use "train" or "val", never "test".
        """
        return state

    def changed(
        self,
        state: OwnState,
        fed: Federation,
        model: "Model",
        changed: np.ndarray,
        context: Context,
    ) -> OwnState:
        """Update the state before a new phase: clients are new, or hold other data.

        ``changed``, bool (M,), says which clients; newcomers have the highest numbers.
        The default only updates the numbers of samples. A method that does not override
        it cannot be run on a federation that clients join.
        """
        return replace(state, weights=np.asarray(fed.sizes, dtype=np.float64))

    def revise(
        self, state: OwnState, fed: Federation, round: int, context: Context
    ) -> OwnState:
        """Reconsider the clusters after a round; most methods do not."""
        return state

    def foresee(self, phases: Sequence[Phase], drawn: Sequence[np.ndarray]) -> None:
        """Warn of problems that can be known before a run.

        ``drawn[t - 1]`` are the clients that take part in round t.
        """

    def dispatch(
        self, state: OwnState, clients: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what clients start from: ``(theta (K, P), rows (n,))``.

        ``clients[j]`` starts from ``theta[rows[j]]``.
        """
        return state.models, state.row[clients]

    def train(
        self, state: OwnState, clients: np.ndarray, round: int, engine: "Engine"
    ) -> tuple[OwnState, "Trained"]:
        """Let the participants train, as :meth:`dispatch` says.

        Some methods train several models or weight samples.
        """
        theta, rows = self.dispatched(state, clients)
        return state, engine.train(theta, rows, clients, round)

    def trains_itself(self) -> bool:
        """Whether the method overrides :meth:`train`.

        Runs of methods that do not may train together in one stack.
        """
        return type(self).train is not Method.train

    def collect(
        self, state: OwnState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> OwnState:
        """Return the state after the round.

        ``theta`` (n, P) are the trained models, ``clients`` (n,) ascending.
        """
        raise unwritten(self, "collect(self, state, clients, theta, round)", HOW_TO)

    def serve(self, state: OwnState) -> tuple[np.ndarray, np.ndarray]:
        """Return ``(theta (K, P), rows (M,))``: ``theta[rows[i]]`` serves client i."""
        return state.models, state.row

    def dispatched(
        self, state: OwnState, clients: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what :meth:`dispatch` does, checked."""
        return hooks.models_from(self, "dispatch", self.dispatch(state, clients))

    def served(self, state: OwnState) -> tuple[np.ndarray, np.ndarray]:
        """Return what :meth:`serve` does, checked."""
        return hooks.models_from(self, "serve", self.serve(state))

    def evaluate(self, state: OwnState, engine: "Engine", split: str) -> "Evaluation":
        """Test all clients, in order, each with the model that serves it.

        Mixtures of models override this.
        """
        theta, rows = self.served(state)
        return engine.evaluate(theta, rows, np.arange(engine.fed.n_clients), split)

    def labels(self, state: OwnState) -> np.ndarray | None:
        """Cluster of each client (M,), or None for methods without clusters."""
        return state.labels

    def traffic(self, state: OwnState, n_parameters: int) -> tuple[int, int]:
        """Return the scalars that a participant ``(receives, sends)`` per round."""
        return self.models_down * n_parameters, self.models_up * n_parameters

    def graph_before(
        self,
        fed: Federation,
        model: str,
        training: Mapping[str, Any],
        context: Context,
    ) -> "ClientGraph | None":
        """Return the client graph that determines the training, found before round 1.

        Equal graphs mean equal trainings. ``training`` has the options of
        :func:`fltnb.rounds.run`. None if the training depends on more than a graph.
        """
        return None

    def setup_bytes(self, state: OwnState) -> tuple[int, int]:
        """Return bytes of all clients besides the rounds' models so far: (up, down).

        This is the cost of a clustering, with four bytes per scalar.
        """
        if state.sent is None:
            return 0, 0
        up, down = state.sent
        return 4 * int(up), 4 * int(down)


@dataclass(eq=False, repr=False)
class Welcoming(Method):
    """Base of the methods that place newcomers by the quantity they cluster by.

    A newcomer is in no cluster until the round begins in which it joins; other clients
    stay where they are. What it receives to be placed and served is not counted as
    traffic; what it trains and sends to be placed is.
    """

    def changed(
        self,
        state: OwnState,
        fed: Federation,
        model: "Model",
        changed: np.ndarray,
        context: Context,
    ) -> OwnState:
        """Keep newcomers waiting until the round begins."""
        return state.joined(fed)

    def observe(
        self, state: OwnState, clients: np.ndarray, round: int, engine: "Engine"
    ) -> OwnState:
        """Place newcomers before the round's participants train."""
        new = np.flatnonzero(state.row == NOWHERE)
        return self.welcome(state, new, round, engine) if len(new) else state

    def welcome(
        self, state: OwnState, new: np.ndarray, round: int, engine: "Engine"
    ) -> OwnState:
        """Return the state with the newcomers ``new`` (n,) in clusters."""
        raise unwritten(self, "welcome(self, state, new, round, engine)")


@dataclass(eq=False, repr=False)
class HardMethod(Welcoming):
    """Base of the methods that put every client into one of ``n_clusters`` clusters.

    Unless a method says otherwise, models are averaged inside the clusters.
    """

    n_clusters: Count

    def check(self, fed: Federation) -> None:
        """Also refuse more clusters than clients."""
        super().check(fed)
        K = self.n_clusters
        M = fed.n_clients
        if K is not None and K > M:
            raise FltnbError(
                f"{K} clusters for {M} clients: choose n_clusters between 1 and {M}."
            )

    def collect(
        self, state: OwnState, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> OwnState:
        """Average by samples; a cluster without participants keeps its model."""
        weights = state.weights[clients]
        models = cluster_means(state.row[clients], weights, theta, state.models)
        return replace(state, models=models)
