"""What a federated method is: three answers per round, and no training code.

A method says what each participant starts from (:meth:`Method.dispatch`), how what came back is mixed
(:meth:`Method.collect`) and which model serves each client (:meth:`Method.serve`); :meth:`Method.start` runs once.
Everything a method remembers is in ``state``, a dict of arrays, so a run can be saved and continued bit for bit.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, dataclass_transform, get_args

import numpy as np
from scipy.sparse import block_array, csr_array
from scipy.sparse.csgraph import connected_components

from .. import clustering
from ..errors import FltnbError, choose
from ..federations import Federation
from ..federations.phases import Phase
from ..settings import Count, Variant, brief, checked
from .samples import check_validation

if TYPE_CHECKING:
    from ..models import Model
    from ..training import Engine, Evaluation, Trained

State = dict[str, np.ndarray]

Rule = Literal["participants", "last_local", "last_aggregate"]
RULES = get_args(Rule)
PUBLISHED_RULE = "last_local"  # the state of the authors' code that printed FLT's Tables 1 and 2 (docs/differences.md)


@dataclass(frozen=True)
class Context:
    """What ``start`` may use besides the federation and the model.

    ``cache(key, compute)`` returns a dict of arrays and keeps it between runs: one-off results such as clusterings.
    ``progress`` says whether one-off work may show progress, ``n_jobs`` its processes; ``seed`` is the run's.
    """

    seed: int
    cache: Callable[[dict, Callable[[], State]], State] | None = None
    progress: bool = False
    n_jobs: int | None = None


@dataclass(frozen=True)
class FixedGraph:
    """A client graph that stays as it is: the ``key`` of graph and rule, ``labels`` and ``setup_bytes`` (up, down)."""

    key: str
    labels: np.ndarray | None
    setup_bytes: tuple[int, int]


@dataclass_transform()
@dataclass(eq=False, repr=False)
class Method:
    """Base class; see ``docs/adding_a_method.md`` for a method of your own in 30 lines.

    Options are the annotated attributes, as in a dataclass; a value that its annotation does not allow raises
    :class:`fltnb.FltnbError`, and a ``ClassVar`` is no option.
    ``n_clusters`` is the number K of models or clusters, which is given. Where the authors' code departs from their
    text, ``variant="as_run"`` means other defaults (``AS_RUN``), or a small subclass ``MineAsRun(Mine, as_run=True)``
    that stands beside the method; elsewhere it is refused.

    ``name`` is the method's id everywhere (tables, colours, files). ``models_down`` and ``models_up`` are the models
    that one participant receives and sends per round: traffic is counted from them, unless :meth:`traffic` says more.
    ``tests_served`` is False where :meth:`evaluate` tests something else than the one model that a client is served;
    ``layered`` is True where a method needs the list of layers that torchvision's networks lack.
    """

    name = "method"
    tests_served, layered = True, False
    models_down = models_up = 1
    AS_RUN: ClassVar[
        Mapping[str, Any]
    ] = {}  # what the variant "as_run" means for options that are not given
    _as_run: ClassVar["type[Method] | None"] = None
    _of_variant = False  # whether this is the class of a variant

    variant: Variant = field(default="as_written", kw_only=True)

    def __init_subclass__(cls, as_run: bool = False, **more: Any) -> None:
        super().__init_subclass__(**more)
        own = inspect.get_annotations(cls, eval_str=True)
        for one in fields(cls):  # another default for an option of the class above
            if one.name in vars(cls) and one.name not in own:
                own[one.name] = one.type
                setattr(
                    cls,
                    one.name,
                    field(default=vars(cls)[one.name], kw_only=one.kw_only),
                )
        cls.__annotations__ = own
        init = dataclass(cls, eq=False, repr=False).__init__

        @functools.wraps(init)
        def checking(self, *given: Any, **options: Any) -> None:
            known, what = inspect.signature(cls).parameters, f"method {cls.name}"
            for name in options:
                choose(name, known, f"option of {what}")
            try:
                _, *named = (
                    inspect.signature(init)
                    .bind_partial(self, *given, **options)
                    .arguments.items()
                )
            except TypeError as error:
                raise FltnbError(
                    f"{cls.__name__} takes {', '.join(known) or 'no options'} ({error})."
                ) from error
            init(self, **checked(cls, self.meant(dict(named)), what))

        cls.__init__ = checking
        cls._as_run = None  # a subclass of a method has its own variants
        if as_run:
            cls.__mro__[1]._as_run, cls._of_variant = cls, True

    def __new__(cls, *given: Any, **options: Any):
        """Make the subclass of the variant that was asked for."""
        return super().__new__(
            cls._as_run if options.get("variant") == "as_run" and cls._as_run else cls
        )

    def meant(self, given: dict[str, Any]) -> dict[str, Any]:
        """Options that those given mean: with those of ``AS_RUN``, in place of a variant that means nothing else."""
        known = inspect.signature(type(self)).parameters
        if given.get("variant") != "as_run" or "variant" not in known:
            return given
        other = {name: value for name, value in self.AS_RUN.items() if name in known}
        if not other and not self._of_variant:
            raise FltnbError(
                f"{type(self).__name__} has no variant as_run: leave it out."
            )
        meant = other | given
        return (
            meant
            if self._of_variant
            else {name: meant[name] for name in meant if name != "variant"}
        )

    def options(self) -> dict[str, Any]:
        """All options as they are now."""
        return {
            name: getattr(self, name)
            for name in inspect.signature(type(self)).parameters
        }

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={value!r}"
            for name, value in brief(type(self), self.options()).items()
        )
        return f"{type(self).__name__}({shown})"

    def settings(self) -> dict[str, Any]:
        """JSON-able settings that :func:`fltnb.methods.build` turns back into this method; defaults are left out.

        ``kind``, the class, stands beside another id than the usual.
        """
        settings = {"name": self.name} | (
            {"kind": type(self).__name__} if self.name != type(self).name else {}
        )
        for name, value in brief(type(self), self.options()).items():
            if hasattr(value, "get_params"):
                value = clustering.canonical(value)
            settings[name] = (
                brief(type(value), asdict(value)) if is_dataclass(value) else value
            )
        return settings

    def check(self, fed: Federation) -> None:
        """Refuse a federation that the method cannot run on, such as one without the validation samples it looks at."""
        if getattr(self, "split", "") == "val":
            other = ", or take as_written" * (
                self._of_variant and "split" in vars(type(self))
            )
            check_validation(fed, type(self).__name__.removesuffix("AsRun"), other)

    def local_training(self) -> dict[str, float]:
        """Options of :class:`fltnb.training.TrainSpec` that belong to the method, such as FedProx's ``proximal``."""
        return {}

    def prepare(self, fed: Federation, context: Context) -> None:
        """Do one-off work that runs with other seeds share, so that it is done once; most methods have none."""

    def start(self, fed: Federation, model: "Model", context: Context) -> State:
        """Return the state before round 1."""
        raise FltnbError(
            f"{type(self).__name__} has no start(self, fed, model, context): docs/adding_a_method.md."
        )

    def observe(
        self, state: State, clients: np.ndarray, round: int, engine: "Engine"
    ) -> State:
        """Let the participants measure models on their own data before they train; most methods do not.

        ``engine.evaluate(theta, rows, clients, split)`` gives losses; use "train" or "val", never "test".
        """
        return state

    def changed(
        self,
        state: State,
        fed: Federation,
        model: "Model",
        changed: np.ndarray,
        context: Context,
    ) -> State:
        """Take note, before the first round of a new phase, that clients ``changed`` (M,) are new or hold other data.

        Newcomers have the highest numbers. The default renews sample counts alone: it is refused where clients join.
        """
        return state | (
            {"weights": np.asarray(fed.sizes, dtype=np.float64)}
            if "weights" in state
            else {}
        )

    def revise(
        self, state: State, fed: Federation, round: int, context: Context
    ) -> State:
        """Look at the clients again after a round, as dynamic clustering does; most methods do not."""
        return state

    def foresee(self, phases: Sequence[Phase], drawn: Sequence[np.ndarray]) -> None:
        """Warn of what can be known before a run; ``drawn[t - 1]`` are the clients that take part in round t."""

    def dispatch(
        self, state: State, clients: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return ``(theta (K, P), rows (n,))``: client ``clients[j]`` starts from ``theta[rows[j]]``."""
        return state["models"], state["row"][clients]

    def train(
        self, state: State, clients: np.ndarray, round: int, engine: "Engine"
    ) -> tuple[State, "Trained"]:
        """Let the participants train, as :meth:`dispatch` says; some methods train several models or weigh samples."""
        return state, engine.train(*self.dispatch(state, clients), clients, round)

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Return the state after the round; ``theta`` (n, P) are the trained models, ``clients`` ascending."""
        raise FltnbError(
            f"{type(self).__name__} has no collect(self, state, clients, theta, round)."
        )

    def serve(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Return ``(theta (K, P), rows (M,))``: client i is served by ``theta[rows[i]]``."""
        return state["models"], state["row"]

    def evaluate(self, state: State, engine: "Engine", split: str) -> "Evaluation":
        """Test all clients, in order, each with the model that it is served; others are for mixtures of models."""
        return engine.evaluate(
            *self.serve(state), np.arange(engine.fed.n_clients), split
        )

    def labels(self, state: State) -> np.ndarray | None:
        """Cluster of each client (M,), or None for methods without clusters."""
        return state.get("labels")

    def traffic(self, state: State, n_parameters: int) -> tuple[int, int]:
        """Scalars that one participant ``(receives, sends)`` in the round that led to ``state``."""
        return self.models_down * n_parameters, self.models_up * n_parameters

    def fixed_graph(self, fed: Federation, context: Context) -> FixedGraph | None:
        """Return the client graph that decides the whole run (equal graphs, equal runs), or None if more does."""
        return None

    def found_graph(self, state: State, fed: Federation) -> FixedGraph | None:
        """After round 1: the client graph whose run this is, from its first round to its last, or None."""
        return None

    def setup_bytes(self, state: State) -> tuple[int, int]:
        """Bytes sent so far besides the rounds' models, over all clients: ``(up, down)``; what clustering costs."""
        return 0, 0


class HardMethod(Method):
    """Base of the methods that put every client into one of ``n_clusters`` clusters."""

    n_clusters: Count

    def check(self, fed: Federation) -> None:
        """Refuse more clusters than clients as well."""
        super().check(fed)
        K, M = self.n_clusters, fed.n_clients
        if K is not None and K > M:
            raise FltnbError(
                f"{K} clusters for {M} clients: choose n_clusters between 1 and {M}."
            )


def one_cluster(fed: Federation, theta: np.ndarray) -> State:
    """State in which everybody is of cluster 0 and served the first of the models (K, P), or the only one (P,)."""
    row = np.zeros(fed.n_clients, dtype=np.int64)
    weights = np.asarray(fed.sizes, dtype=np.float64)
    return {
        "models": np.atleast_2d(theta),
        "row": row,
        "labels": row.copy(),
        "weights": weights,
    }


def unclustered(
    fed: Federation, model: "Model", context: Context, n_models: int = 1
) -> State:
    """:func:`one_cluster` with copies of the ``initial`` model, and what clustering by models needs besides.

    ``trainable``: how many columns are compared; ``heard``: which clients have trained; ``seed``: the run's.
    """
    theta = model.init(context.seed)
    return one_cluster(fed, np.repeat(theta[None], n_models, axis=0)) | {
        "initial": theta,
        "trainable": np.array(model.n_trainable),
        "heard": np.zeros(fed.n_clients, dtype=bool),
        "seed": np.array(context.seed),
    }


def alone(fed: Federation, theta: np.ndarray) -> State:
    """State in which every client has a model of its own, all equal to ``theta`` (P,)."""
    models, row = (
        np.repeat(theta[None], fed.n_clients, axis=0),
        np.arange(fed.n_clients, dtype=np.int64),
    )
    return {
        "models": models,
        "row": row,
        "weights": np.asarray(fed.sizes, dtype=np.float64),
    }


def several(model: "Model", context: Context, n_models: int) -> np.ndarray:
    """Independent initial models (K, P); the first is where FedAvg starts."""
    return np.stack([model.init(context.seed, k) for k in range(n_models)])


def mix(
    W: np.ndarray, *theta: np.ndarray, block: int = 2048, dtype: np.dtype | None = None
) -> np.ndarray:
    """Aggregate models (n, P) in client order: ``W @ theta`` (R, P) in float64, returned as ``dtype`` or theta's type.

    Several arrays of models count as one below the other; they can be gigabytes, so they are not copied into one.
    Rows of W (R, n) that are not non-negative or do not sum to 1 raise FltnbError. ``block`` bounds the float64 copy.
    Rows without a model in common are mixed apart: where clients know a tenth of each other, a tenth of the work.
    """
    W, given = np.asarray(W, dtype=np.float64), sum(map(len, theta))
    if (
        W.shape[1:] != (given,)
        or (W < 0).any()
        or not np.allclose(W.sum(axis=1), 1.0, rtol=0, atol=1e-9)
    ):
        raise FltnbError(
            f"An aggregation matrix needs non-negative rows that sum to 1, of {given} weights: normalise."
        )
    size = theta[0].shape[1]
    out = np.empty((len(W), size), dtype=dtype or theta[0].dtype)
    n, part = connected_components(
        block_array([[None, csr_array(W)], [csr_array(W.T), None]])
    )
    groups = [
        (np.flatnonzero(part[: len(W)] == p), np.flatnonzero(part[len(W) :] == p))
        for p in range(n)
    ]
    shares = [W[np.ix_(*group)] for group in groups]
    for columns in (slice(begin, begin + block) for begin in range(0, size, block)):
        models = np.concatenate([own[:, columns] for own in theta])
        for (rows, members), share in zip(groups, shares, strict=True):
            out[rows, columns] = share @ models[members].astype(np.float64)
    return out


def mix_groups(share: np.ndarray, theta: np.ndarray, models: np.ndarray) -> np.ndarray:
    """Weighted mean of ``theta`` (n, P) for each row of ``share`` (K, n); a row without weight keeps its old model."""
    total = share.sum(axis=1)
    filled = total > 0
    out = models.copy()
    out[filled] = mix(share[filled] / total[filled, None], theta, dtype=models.dtype)
    return out
