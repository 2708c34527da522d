"""pFedGraph and FedSaC: every client has its own mean of all models, with weights from a small quadratic problem.

pFedGraph (Ye et al., ICML 2023) weighs clients by how similar their updates are; FedSaC (Yan et al., 2024) by that and
by how *different* the subspaces of their features are. Both problems are projections on the simplex
(:func:`fltnb.methods.simplex.nearest_weights`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import FltnbError, choose
from .base import VARIANTS, Context, Method, State, check_number, mix
from .cfl import cosines
from .samples import last_features
from .simplex import nearest_weights

ALIKE = -0.9  # the official code takes updates whose cosine exceeds 0.9 for the same
DIRECTIONS = 3


class PFedGraph(Method):
    """A model per client, mixed each round over the participants by learnt weights.

    Client i's weights minimise ``alpha ||w - p||^2 + sum_j d_ij w_j`` over the simplex, with p the shares of samples
    and d the negative cosine of updates; it continues from the mean of the participants' models with these weights.

    Parameters
    ----------
    alpha : float
        Above 0. Large: FedAvg; towards 0: everybody alone.
    variant : {"as_written", "as_run"}
        "as_written": updates are measured from the *initial* model, and cosines above 0.9 count as 1, as in the
        official code. "as_run" (EMD-CFL's runs): updates of this round, cosines as they are.

    Notes
    -----
    The regulariser, mu = 0.01 times the cosine between the local model and a reference, is left out: local training
    here knows squared distances only. Its gradient is at most mu over the length of the model, below 0.001 for models
    of length 10 and more. (The official code has it with the sign that pushes models apart.)

    Raises
    ------
    FltnbError
        An option out of range.
    """

    name = "pfedgraph"

    def __init__(self, alpha: float = 0.8, variant: str = "as_written"):
        self.alpha = check_number("alpha", alpha)
        if not self.alpha:
            raise FltnbError("alpha=0 leaves the weights undetermined: choose a number above 0, or the method Local.")
        self.variant = choose(variant, VARIANTS, "variant")

    def settings(self) -> dict[str, Any]:
        """Name and options."""
        return {"name": self.name, "alpha": self.alpha, "variant": self.variant}

    def start(self, fed, model, context: Context) -> State:
        """Everybody holds the common initial model."""
        theta = model.init(context.seed)
        return {
            "models": np.repeat(theta[None], fed.n_clients, axis=0),
            "row": np.arange(fed.n_clients, dtype=np.int64),
            "initial": theta,
            "trainable": np.array(model.n_trainable),
            "mixing": np.eye(fed.n_clients),
            "weights": np.asarray(fed.sizes, dtype=np.float64),
        }

    def collect(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int) -> State:
        """Mix the participants' models, for each participant in its own way; the others keep theirs."""
        before = state["initial"] if self.variant == "as_written" else state["models"][clients]
        d = -cosines((theta - before)[:, : int(state["trainable"])], np.arange(len(clients)))
        if self.variant == "as_written":
            d = np.where(d < ALIKE, -1.0, d)
        p = state["weights"][clients] / state["weights"][clients].sum()
        W = nearest_weights(p - self.cost(state, clients, d))
        state["models"][clients] = mix(W, theta)
        mixing = state["mixing"].copy()
        mixing[clients] = 0
        mixing[np.ix_(clients, clients)] = W
        return state | {"mixing": mixing}

    def cost(self, state: State, clients: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Return what is taken off p before the projection, (n, n)."""
        return d / (2 * self.alpha)


class FedSaC(PFedGraph):
    """pFedGraph with a reward for partners whose features span other directions than one's own.

    Weights minimise ``||w - p||^2 + sum_j (l1 c_ij + l2 d_ij) w_j``; c is the cosine of the mean angle between matched
    pairs of the clients' three leading principal directions of features (what the last layer sees of their own
    training samples, under the model they have just trained), which they send as well.

    Parameters
    ----------
    l1, l2 : float
        lambda_1 of c and lambda_2 of d, at least 0.
    variant : {"as_written", "as_run"}
        As in :class:`PFedGraph`.

    Notes
    -----
    The regulariser is left out, as in :class:`PFedGraph`; EMD-CFL's runs had it with mu = 1, a hundred times the
    official one, which its published row carries and this one does not.

    Raises
    ------
    FltnbError
        An option out of range.
    """

    name = "fedsac"

    def __init__(self, l1: float = 0.9, l2: float = 1.4, variant: str = "as_written"):
        self.l1, self.l2 = check_number("l1", l1), check_number("l2", l2)
        self.variant = choose(variant, VARIANTS, "variant")

    def settings(self) -> dict[str, Any]:
        """Name and options."""
        return {"name": self.name, "l1": self.l1, "l2": self.l2, "variant": self.variant}

    def start(self, fed, model, context: Context) -> State:
        """As pFedGraph, with no directions yet."""
        state = super().start(fed, model, context)
        return state | {"directions": np.zeros((fed.n_clients, DIRECTIONS, model.n_features))}

    def train(self, state: State, clients: np.ndarray, round: int, engine):
        """Train, then find the principal directions of the features that came out."""
        state, trained = super().train(state, clients, round, engine)
        directions = state["directions"].copy()
        if np.isfinite(trained.theta).all():  # else the run is about to stop, with a message about it
            for client, theta in zip(clients, trained.theta, strict=True):
                directions[client] = principal_directions(last_features(engine, theta, client))
        return state | {"directions": directions}, trained

    def cost(self, state: State, clients: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Half the weighted sum of both costs."""
        return (self.l1 * subspace_similarity(state["directions"][clients]) + self.l2 * d) / 2

    def traffic(self, state: State, n_parameters: int) -> tuple[int, int]:
        """Count a model each way, and three directions up."""
        return n_parameters, n_parameters + state["directions"][0].size


def principal_directions(features: np.ndarray) -> np.ndarray:
    """Three leading principal directions (3, e), their largest entries positive; zeros beyond the rank."""
    values, right = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)[1:]
    out = np.zeros((DIRECTIONS, features.shape[1]))
    rank = min(DIRECTIONS, int((values > 1e-9 * max(values[0], np.finfo(float).tiny)).sum()))
    largest = np.take_along_axis(right[:rank], np.abs(right[:rank]).argmax(axis=1)[:, None], axis=1)
    out[:rank] = right[:rank] * np.sign(largest)
    return out


def subspace_similarity(directions: np.ndarray) -> np.ndarray:
    """Cosine of the mean angle between matched directions, (n, n), from (n, 3, e); 1 on the diagonal.

    Directions are matched greedily: the pair with the largest cosine first, then the best of what is left.
    """
    n = len(directions)
    out = np.eye(n)
    for i in range(n):
        for j in range(i + 1, n):
            cosine = np.clip(directions[i] @ directions[j].T, -1, 1)
            angles = []
            for _ in range(len(cosine)):
                a, b = np.unravel_index(cosine.argmax(), cosine.shape)
                angles.append(np.arccos(cosine[a, b]))
                cosine[a], cosine[:, b] = -np.inf, -np.inf
            out[i, j] = out[j, i] = np.cos(np.mean(angles))
    return out
