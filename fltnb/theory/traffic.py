"""What FLT and its kin send: Table 6 of FLT (arXiv 2103.15947) as formulas, and scales for what a run really moves."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import choose
from ..federations import Federation
from ..methods import Context, Method

ROUNDS = "2ρMW_local·T"  # one model down and one up per participant
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
"""Method id -> formula in the paper's symbols, and where it comes from."""

PRINTED_SIZES = {"MLP": 169_462, "CNN": 3_459_582, "ConvAE": 51_577}
"""Parameters as printed in Tables 11, 12 and 13."""


class Cost(NamedTuple):
    """Scalars sent in a whole run, up and down together: once before round 1, in all rounds, and both."""

    once: float
    rounds: float
    total: float


def formula(
    method: str,
    M: int,
    rho: float,
    T: int,
    W_local: int,
    W_enc: int = 0,
    k: int = 0,
    e: int = 0,
    C: int = 1,
    warmup: int = 0,
    again: int = 0,
) -> Cost:
    """Table 6 of FLT, and the same reckoning for the methods that it leaves out.

    FltnbError: no formula is known for the method.

    Parameters
    ----------
    method : str, a key of :data:`FORMULAS`
    M, rho, T : int, float, int, clients, share of them per round, rounds
    W_local, W_enc : int, parameters of the local model and of what is sent of the encoder
    k, e : int, centroids per client and their dimension
    C, warmup : int, models that IFCA sends, and its first rounds as plain FedAvg, which Table 6 ignores
    again : int, R, clusterings of dynamic FLT after the first
    """
    choose(method, FORMULAS, "method with a formula")
    a_model, centroids, flt = rho * M * W_local, k * M * e, method.startswith("flt")
    once = (centroids if flt or method == "pca_km_hc" else 0) + (
        M * W_enc if flt else 0
    )
    rounds = 2 * a_model * T + again * centroids
    if method == "ifca":
        rounds = a_model * (2 * warmup + (T - warmup) * (C + 1))
    rounds = 0 if method == "local" else rounds
    return Cost(once, rounds, once + rounds)


class Scales:
    """An engine that weighs in scalars what passes in a round: different models on their way down, all that return."""

    def __init__(self, engine: Any):
        self._engine, self._held, self.moved = engine, set(), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def _receive(
        self, theta: np.ndarray, rows: Sequence[int], clients: Sequence[int]
    ) -> None:
        models = [hash(model.tobytes()) for model in theta]
        new = {
            (int(i), models[row]) for row, i in zip(rows, clients, strict=True)
        } - self._held
        self._held |= new
        self.moved += len(new) * theta.shape[1]

    def train(
        self, theta: np.ndarray, rows: Sequence[int], clients: Sequence[int], *rest: Any
    ) -> Any:
        """Train, and weigh the models both ways."""
        self._receive(theta, rows, clients)
        trained = self._engine.train(theta, rows, clients, *rest)
        self.moved += trained.theta.size
        return trained

    def evaluate(
        self, theta: np.ndarray, rows: Sequence[int], clients: Sequence[int], *rest: Any
    ) -> Any:
        """Test, and weigh the models on their way down."""
        self._receive(theta, rows, clients)
        return self._engine.evaluate(theta, rows, clients, *rest)


def moved(
    fed: Federation, method: Method, training: Mapping[str, Any]
) -> tuple[int, int]:
    """Scalars that a run really moves, ``(once, in all rounds)``: the arrays themselves, not what the method declares.

    What an unfitted method clusters by is weighed as the numbers of its clusterer's ``centroids_`` and of the encoder.
    ``training`` has the arguments of :func:`fltnb.run`, ``model`` and ``rounds`` among them.
    """
    from .. import rounds
    from ..encoders import networks, pretrain
    from ..training import make_engine

    spec, net = rounds.check(method, fed, **training)
    once, total, context = 0, 0, Context(spec.seed)
    if hasattr(method, "encoder"):
        method.clusterer = method.fitted(
            fed, context
        )  # fitted once, and taken as it is by `start`
        once = int(np.isfinite(method.clusterer.centroids_).sum())
        weights = {
            name: value
            for name, value in pretrain(method.encoder).items()
            if name != "input_shape"
        }
        if method.encoder.kind == "convae":  # the part that embeds; it is used as it is
            weights = networks.encoder_state(
                networks.load("convae", fed.input_shape, method.encoder.latent, weights)
            )
        once += fed.n_clients * sum(
            int(np.prod(value.shape)) for value in weights.values()
        )
    with make_engine(fed, net, spec, "auto", "cpu") as engine:
        state = method.start(fed, net, context)
        for round in range(1, training["rounds"] + 1):
            clients = rounds.participants(
                fed.n_clients, training["participation"], spec.seed, round
            )
            scales = Scales(engine)
            state = method.observe(state, clients, round, scales)
            state, trained = method.train(state, clients, round, scales)
            state = method.revise(
                method.collect(state, clients, trained.theta, round),
                fed,
                round,
                context,
            )
            total += scales.moved
    return once, total
