"""Communication of FLT and other methods: Table 6 of FLT (arXiv 2103.15947).

There are formulas, and counters of the numbers that a run really sends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..errors import choose
from ..federations import Federation
from ..methods import Context, Method

# one model down and one up per participant
ROUNDS = "2ρMW_local·T"
OPEN = "not in the paper, which leaves the option open"

FORMULAS = {
    "flt": ("M·W_enc + kMe + 2ρMW_local·T", "Table 6"),
    "fedsem": (ROUNDS, "Table 6"),
    "ifca": ("ρMW_local·T(C + 1)", "Table 6"),
    "fesem": (ROUNDS, "not in the paper: as FedSEM, whose original it is"),
    "fedavg": (ROUNDS, "not in the paper: one model each way"),
    "fedprox": (ROUNDS, "not in the paper: as FedAvg, the proximal term is local"),
    "oracle": (ROUNDS, "not in the paper: FedAvg inside the true clusters"),
    "cfl": (ROUNDS, "not in the paper: a client gets its own cluster's model only"),
    "flt_dynamic": (
        "M·W_enc + (R + 1)kMe + 2ρMW_local·T",
        f"{OPEN}: FLT with R further clusterings",
    ),
    "flt_soft": (
        "M·W_enc + kMe + 2ρMW_local·T",
        f"{OPEN}: FLT, only the weights of the averages differ",
    ),
    "pca_km_hc": (
        "kMe + 2ρMW_local·T",
        "not in the paper: FLT without encoder, each client makes its own PCA",
    ),
    "local": ("0", "not in the paper: nothing is sent"),
}
"""Method id -> formula in the paper's symbols, and its source."""

PRINTED_SIZES = {"MLP": 169_462, "CNN": 3_459_582, "ConvAE": 51_577}
"""Parameters as printed in Tables 11, 12 and 13."""


class Cost(NamedTuple):
    """Scalars (numbers) sent in a whole run, up and down together.

    Attributes
    ----------
    once, rounds, total : float
        Before round 1, in all rounds, and the sum of both.

    Examples
    --------
    >>> from fltnb.theory import traffic
    >>> traffic.Cost(once=10, rounds=90, total=100).total
    100
    """

    once: float
    rounds: float
    total: float


@dataclass(frozen=True)
class Sizes:
    """The symbols of the formulas.

    Parameters
    ----------
    M, rho, T : int, float, int
        Clients, share of them per round, rounds.
    W_local, W_enc : int
        Parameters of the local model, and of what is sent of the encoder.
    k, e : int
        Centroids per client, and their dimension.
    C, warmup : int
        Models that IFCA sends, and its first rounds as plain FedAvg, which Table 6
        ignores.
    again : int
        R, clusterings of dynamic FLT after the first.

    Examples
    --------
    >>> from fltnb.theory import traffic
    >>> traffic.Sizes(M=100, rho=0.2, T=50, W_local=1000).C
    1
    """

    M: int
    rho: float
    T: int
    W_local: int
    W_enc: int = 0
    k: int = 0
    e: int = 0
    C: int = 1
    warmup: int = 0
    again: int = 0


def formula(method: str, **symbols: Any) -> Cost:
    """Return the communication cost of a method by FLT's Table 6.

    For methods that the table leaves out the formula is ours (:data:`FORMULAS`).

    Parameters
    ----------
    method : str
        A key of :data:`FORMULAS`.
    **symbols
        Those of :class:`Sizes`.

    Raises
    ------
    FltnbError
        There is no formula of the method.

    Examples
    --------
    >>> from fltnb.theory import traffic
    >>> traffic.formula("fedavg", M=100, rho=0.2, T=50, W_local=1000).total
    2000000.0
    """
    choose(method, FORMULAS, "method with a formula")
    if method == "local":
        return Cost(0, 0, 0)

    run = Sizes(**symbols)
    # 7 of 25 clients are 0.28 of them, and 0.28 * 25 is 7.000000000000001
    models = round(run.rho * run.M, 9) * run.W_local
    centroids = run.k * run.M * run.e
    once = 0
    if method.startswith("flt"):
        once = centroids + run.M * run.W_enc
    elif method == "pca_km_hc":
        once = centroids

    rounds = 2 * models * run.T + run.again * centroids
    if method == "ifca":
        # one model each way in the warm-up, later C down and one up
        first = min(run.warmup, run.T)
        later = run.T - first
        rounds = models * (2 * first + later * (run.C + 1))
    return Cost(once, rounds, once + rounds)


class Scales:
    """An engine that counts the scalars (numbers) sent in a round, in ``moved``.

    It passes all work on to another engine. A model counts as sent down to a client if
    the client has not received it before; all trained models count as sent up.

    Examples
    --------
    >>> import fltnb as fl
    >>> from fltnb.theory import traffic
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> net = fl.models.shaped("mlp32", fed)
    >>> with fl.training.make_engine(
    ...     fed, net, fl.training.TrainSpec(), "serial"
    ... ) as engine:
    ...     scales = traffic.Scales(engine)
    ...     trained = scales.train(net.init(seed=0)[None], [0, 0], [1, 4], 1)
    >>> scales.moved == 2 * 2 * net.n_parameters  # two clients, down and up
    True
    """

    def __init__(self, engine: Any):
        self._engine = engine
        self._received: set[tuple[int, int]] = set()
        self.moved = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def _receive(
        self, theta: np.ndarray, rows: Sequence[int], clients: Sequence[int]
    ) -> None:
        """Count the models (K, P) that clients have not received before."""
        models = [hash(model.tobytes()) for model in theta]
        for row, client in zip(rows, clients, strict=True):
            received = (int(client), models[row])
            if received not in self._received:
                self._received.add(received)
                self.moved += theta.shape[1]

    def train(
        self, theta: np.ndarray, rows: Sequence[int], clients: Sequence[int], *rest: Any
    ) -> Any:
        """Train, and count the models in both directions."""
        self._receive(theta, rows, clients)
        trained = self._engine.train(theta, rows, clients, *rest)
        self.moved += trained.theta.size
        return trained

    def evaluate(
        self, theta: np.ndarray, rows: Sequence[int], clients: Sequence[int], *rest: Any
    ) -> Any:
        """Test, and count the models sent down."""
        self._receive(theta, rows, clients)
        return self._engine.evaluate(theta, rows, clients, *rest)


def moved(
    fed: Federation, method: Method, training: Mapping[str, Any]
) -> tuple[int, int]:
    """Return the scalars that a run really sends: ``(once, in all rounds)``.

    The arrays themselves are counted, not the numbers that a method declares. The
    sketches of an unfitted method are counted as its clusterer's ``centroids_`` and the
    encoder.

    Parameters
    ----------
    fed : Federation
    method : Method
    training : dict
        Arguments of :func:`fltnb.run`; ``model``, ``rounds`` and ``participation`` must
        be among them.

    Examples
    --------
    >>> import fltnb as fl
    >>> from fltnb.theory import traffic
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> training = {"model": "mlp32", "rounds": 2, "participation": 1.0}
    >>> traffic.moved(fed, fl.methods.FedAvg(), training)
    (0, 57840)
    >>> 2 * 2 * 6 * 2410  # rounds, down and up, clients, parameters
    57840
    """
    from .. import rounds
    from ..training import make_engine

    spec, net = rounds.check(method, fed, **training)
    context = Context(spec.seed, model=net)
    once = 0
    if hasattr(method, "encoder"):
        one_shot: Any = method
        # fitted once; `start` then uses it as it is
        fitted = one_shot.clusterer = one_shot.fitted(fed, context)
        once = int(np.isfinite(fitted.centroids_).sum())
        once += fed.n_clients * _encoder_size(one_shot.encoder, fed)

    total = 0
    with make_engine(fed, net, spec, "auto", "cpu") as engine:
        state = method.start(fed, net, context)
        for round in range(1, training["rounds"] + 1):
            clients = rounds.participants(
                fed.n_clients, training["participation"], spec.seed, round
            )
            scales: Any = Scales(engine)  # in place of the engine
            state = method.observe(state, clients, round, scales)
            state, trained = method.train(state, clients, round, scales)
            state = method.collect(state, clients, trained.theta, round)
            state = method.revise(state, fed, round, context)
            total += scales.moved
    return once, total


def _encoder_size(encoder: Any, fed: Federation) -> int:
    """Scalars of the encoder that one client receives."""
    from ..encoders import networks, pretrain

    weights = dict(pretrain(encoder))
    weights.pop("input_shape", None)
    if encoder.kind == "convae":
        # only the half that embeds is sent
        net = networks.load("convae", fed.input_shape, encoder.latent, weights)
        weights = networks.encoder_state(net)
    return sum(int(np.prod(value.shape)) for value in weights.values())
