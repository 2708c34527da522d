"""FedSoft: clients between several centres, each with a model of its own.

Ruan and Joe-Wong, AAAI 2022 (arXiv 2112.06053).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..settings import Count, NonNegative, Variant
from .base import Context, Method, State, mix
from .modelspace import with_rows
from .samples import batch_means, check_validation, sample_losses

FLOOR = 1e-4  # share of a centre that no sample of a client prefers


class FedSoft(Method):
    """K centres on the server; a client's importance weights u say what share of its samples prefers which centre.

    Every ``period`` rounds a participant counts, over its training samples, which centre has the least loss; these
    shares are u. It trains one model near all centres, ``f_i(theta) + lam / 2 sum_k u_k ||theta - center_k||^2``, and
    this model goes into every centre, with weights ``u_ik n_i`` made to sum to 1 over the participants.

    Parameters
    ----------
    n_clusters : int
        Number of centres K, given. Centre 0 starts where FedAvg starts.
    lam : float
        lambda, weight of the proximal term, at least 0. The official examples have 0.01 (CIFAR-10) and 0.1 (MNIST).
    period : int
        tau, rounds from one measurement of u to the next.
    serves : {"own", "center"}
        What a client is tested with: the model it trained last itself, or the centre with its largest importance.
    variant : {"as_written", "as_run"}
        "as_run": :class:`FedSoftAsRun`, which has neither ``lam`` nor ``period``.

    Notes
    -----
    A penalty towards several centres is, up to a constant, one towards their mean with weights u. Here clients also
    *begin* there (as in the published runs); the original continues from the client's own model, towards the same
    minimum. The original draws clients for each centre, with probabilities in proportion to ``u_ik n_i``, and averages
    them equally; here every participant counts for every centre, by its weight.
    """

    name = "fedsoft"
    split = "train"

    def __init__(
        self,
        n_clusters: Count,
        lam: NonNegative = 0.01,
        period: Count = 2,
        serves: Literal["own", "center"] = "own",
        *,
        variant: Variant = "as_written",
    ):
        pass

    def local_training(self) -> dict[str, float]:
        """Add the proximal term."""
        return {"proximal": self.lam}

    def start(self, fed, model, context: Context) -> State:
        """K independent centres, no client measured yet."""
        K = self.n_clusters
        return {
            "models": np.stack([model.init(context.seed, k) for k in range(K)]),
            "own": np.repeat(model.init(context.seed)[None], fed.n_clients, axis=0),
            "importance": np.full((fed.n_clients, K), 1 / K),
            "counts": np.zeros((fed.n_clients, K)),
            "measured": np.zeros(fed.n_clients, dtype=bool),
            "weights": np.asarray(fed.sizes, dtype=np.float64),
        }

    def observe(self, state: State, clients: np.ndarray, round: int, engine) -> State:
        """Let participants count which centre suits how many of their samples, if it is time or they never have."""
        due = clients if (round - 1) % self.period == 0 else clients[~state["measured"][clients]]
        importance, counts = state["importance"].copy(), state["counts"].copy()
        for client, losses in zip(due, sample_losses(engine, state["models"], due, self.split), strict=True):
            counts[client] = self.counted(losses, state["weights"][client], engine.spec.batch_size)
            importance[client] = counts[client] / counts[client].sum()
        return state | {
            "importance": importance,
            "counts": counts,
            "measured": with_rows(state["measured"], due, True),
        }

    def counted(self, losses: np.ndarray, samples: float, batch_size: int) -> np.ndarray:
        """``u_k n`` (K,) of a client, from the losses (K, n) of its samples."""
        count = np.bincount(losses.argmin(axis=0), minlength=self.n_clusters)
        return np.where(count > 0, count / losses.shape[1], FLOOR) * samples

    def dispatch(self, state: State, clients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean of the centres with the client's importance weights, which is also what the proximal term pulls to."""
        return mix(state["importance"][clients], state["models"]), np.arange(len(clients))

    def collect(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int) -> State:
        """Every participant's model goes into every centre, by importance and samples."""
        models = mix(center_weights(state["counts"][clients]), theta)
        return state | {"models": models, "own": with_rows(state["own"], clients, theta)}

    def serve(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Give the clients' own models or their nearest centres."""
        if self.serves == "own":
            return state["own"], np.arange(len(state["own"]))
        return state["models"], self.labels(state)

    def labels(self, state: State) -> np.ndarray:
        """Centre of the largest importance, (M,)."""
        return state["importance"].argmax(axis=1)

    def traffic(self, state: State, n_parameters: int) -> tuple[int, int]:
        """All centres down; one model and K counts up."""
        return self.n_clusters * n_parameters, n_parameters + self.n_clusters


class FedSoftAsRun(FedSoft, as_run=True):
    """What printed EMD-CFL's tables: whole *validation batches* are counted, in every round.

    All samples of a batch go to the centre with the least loss on it; centres are weighed by these counts. There is no
    proximal term.
    """

    split, lam, period = "val", 0.0, 1

    def __init__(self, n_clusters: Count, serves: Literal["own", "center"] = "own", *, variant: Variant = "as_written"):
        pass

    def check(self, fed) -> None:
        """Refuse clients without validation samples."""
        check_validation(fed, "FedSoft", ', or take variant="as_written"')

    def counted(self, losses: np.ndarray, samples: float, batch_size: int) -> np.ndarray:
        """Count whole batches (K,); a centre that wins none counts for a thousandth of the samples, at least for 1."""
        count = batch_counts(losses, batch_size)
        return np.where(count > 0, count, max(1, int(0.001 * losses.shape[1])))


def center_weights(counts: np.ndarray) -> np.ndarray:
    """Weights v (K, n) of n clients in every centre, from ``u_ik n_i`` (n, K); rows sum to 1.

    Examples
    --------
    >>> u, n = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]]), np.array([10, 20, 10])
    >>> center_weights(u * n[:, None]).round(4).tolist()
    [[0.4286, 0.4762, 0.0952], [0.0526, 0.5263, 0.4211]]
    """
    return (counts / counts.sum(axis=0)).T


def batch_counts(losses: np.ndarray, size: int) -> np.ndarray:
    """Count the samples (K,) that each centre wins when whole batches go to the centre with their least mean loss.

    Examples
    --------
    >>> batch_counts(np.array([[1.0, 9.0, 1.0], [4.0, 4.0, 4.0]]), 2).tolist()
    [1.0, 2.0]
    """
    winner = batch_means(losses, size).argmin(axis=0)
    each = np.minimum(size, losses.shape[1] - size * np.arange(len(winner)))
    return np.bincount(winner, each, len(losses))
