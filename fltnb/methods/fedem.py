"""FedEM and FedRC: every client's data as a mixture, every client trains all components.

FedEM (Marfoq et al., NeurIPS 2021, arXiv 2108.10252) is expectation-maximisation with the components' posterior weights
per sample; FedRC (Guo et al., ICML 2024, arXiv 2301.12379) corrects the weights by the classes, so that components
follow another labelling of the same images and not other classes or other looks.
"""

from __future__ import annotations

import numpy as np

from ..settings import Count, Variant
from .base import Context, Method, State, mix
from .modelspace import with_rows
from .samples import evaluate_mixture, sample_losses


class FedEM(Method):
    """K component models, shared by all; every client has shares of its own in them.

    A round of a participant: posterior weights q of the components for each training sample (E-step), the mean of
    these as its new shares, then one local training *per component*, each sample's loss multiplied by its weight. The
    server averages each component over all participants, by samples.

    Parameters
    ----------
    n_clusters : int
        Number of components K, given. Component 0 starts where FedAvg starts.
    variant : {"as_written", "as_run"}
        A client's prediction is the shares' mean of the components' probabilities, or as in :class:`FedEMAsRun`.

    Notes
    -----
    The weights of a sample sum to 1 over the components, so each component trains as if with a part of the learning
    rate, 1 / K on average at the start: it wants a larger one than FedAvg. All K trainings of a client see its samples
    in the same order.

    ``serve`` returns single models, those of the largest share. Only :meth:`evaluate` knows the mixture, so the models
    of a finished run alone do not give its accuracy. Reported labels are those of the largest share; the original has
    none. A client that never took part has equal shares.
    """

    name = "fedem"
    tests_served = False

    def __init__(self, n_clusters: Count, *, variant: Variant = "as_written"):
        pass

    def start(self, fed, model, context: Context) -> State:
        """K independent components, equal shares."""
        return {
            "models": np.stack([model.init(context.seed, k) for k in range(self.n_clusters)]),
            "shares": np.full((fed.n_clients, self.n_clusters), 1 / self.n_clusters),
            "weights": np.asarray(fed.sizes, dtype=np.float64),
        }

    def posteriors(self, state: State, losses: np.ndarray, client: int, labels: np.ndarray) -> np.ndarray:
        """Weights q (K, n) of the components for a client's samples, from the losses (K, n) and its shares."""
        return softmax(log_shares(state["shares"][client])[:, None] - losses)

    def train(self, state: State, clients: np.ndarray, round: int, engine):
        """E-step, then K weighted trainings for each participant."""
        from ..training import Trained

        K, shares, weights = self.n_clusters, state["shares"].copy(), []
        losses = sample_losses(engine, state["models"], clients)
        for client, mine in zip(clients, losses, strict=True):
            q = self.posteriors(state, mine, client, engine.fed.labels[engine.fed.train[client]])
            shares[client] = q.mean(axis=1)
            weights += list(q)
        state = self.weighed(state | {"shares": shares}, clients, weights, engine.fed)
        rows = np.tile(np.arange(K), len(clients))
        trained = engine.train(state["models"], rows, np.repeat(clients, K), round, weights)
        loss = trained.loss.reshape(len(clients), K).sum(axis=1)
        return state, Trained(trained.theta.reshape(len(clients), -1), loss)

    def weighed(self, state: State, clients: np.ndarray, weights: list[np.ndarray], fed) -> State:
        """Take note of the participants' sample weights, K arrays (n_i,) for each; FedEM has no use for them."""
        return state

    def collect(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int) -> State:
        """Average every component over all participants; ``theta`` is (n, K P)."""
        weights = state["weights"][clients]
        return state | {"models": mix(weights[None] / weights.sum(), theta).reshape(self.n_clusters, -1)}

    def serve(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Give the component of the largest share."""
        return state["models"], self.labels(state)

    def evaluate(self, state: State, engine, split: str):
        """Test the mixtures."""
        return evaluate_mixture(engine, state["models"], state["shares"], split)

    def labels(self, state: State) -> np.ndarray:
        """Component of the largest share, (M,)."""
        return state["shares"].argmax(axis=1)

    def traffic(self, state: State, n_parameters: int) -> tuple[int, int]:
        """All components down and up."""
        return self.n_clusters * n_parameters, self.n_clusters * n_parameters


class FedEMAsRun(FedEM, as_run=True):
    """What printed EMD-CFL's tables: a client is tested with its *local copy of the last component*.

    The code saved that one by accident, so the rows of FedEM and FedRC judge one component out of K, whichever the
    client needs.
    """

    tests_served = True
    evaluate = Method.evaluate

    def start(self, fed, model, context: Context) -> State:
        """As written, and everybody's copy."""
        state = super().start(fed, model, context)
        return state | {"copies": np.repeat(state["models"][-1:], fed.n_clients, axis=0)}

    def collect(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int) -> State:
        """Keep the copies as well."""
        last = theta[:, -state["models"].shape[1] :]
        return super().collect(state, clients, theta, round) | {"copies": with_rows(state["copies"], clients, last)}

    def serve(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Give the local copies."""
        return state["copies"], np.arange(len(state["copies"]))


class FedRC(FedEM):
    """FedEM whose posterior weights are divided by how much of a *class* each component holds already.

    ``q_k(x, y)`` is proportional to ``share_k exp(-loss_k(x, y)) / c_k(y)``, where c_k(y) is the part that class y has
    in component k over all clients, renewed every round from the sums of q. A component that holds a class whole gains
    nothing by it, so label skew does not part the clients.

    The class parts start equal (1 / K), so the first round is FedEM's. They are sums over all clients heard so far,
    each with what it sent last; the prediction does not use them. Options are those of :class:`FedEM`.
    """

    name = "fedrc"

    def start(self, fed, model, context: Context) -> State:
        """As FedEM, with equal class parts."""
        state = super().start(fed, model, context)
        K, C = self.n_clusters, model.n_classes
        return state | {"sums": np.zeros((fed.n_clients, K, C)), "parts": np.full((K, C), 1 / K)}

    def posteriors(self, state: State, losses: np.ndarray, client: int, labels: np.ndarray) -> np.ndarray:
        """FedEM's weights over the class parts."""
        log_parts = np.log(state["parts"][:, labels])
        return softmax(log_shares(state["shares"][client])[:, None] - losses - log_parts)

    def weighed(self, state: State, clients: np.ndarray, weights: list[np.ndarray], fed) -> State:
        """Keep each participant's sums of q by class, which it sends."""
        sums, K = state["sums"].copy(), self.n_clusters
        for j, client in enumerate(clients):
            labels = fed.labels[fed.train[client]]
            for k, q in enumerate(weights[j * K : (j + 1) * K]):
                sums[client, k] = np.bincount(labels, q, sums.shape[2])
        return state | {"sums": sums}

    def collect(self, state: State, clients: np.ndarray, theta: np.ndarray, round: int) -> State:
        """Average the components and renew the class parts."""
        return super().collect(state, clients, theta, round) | {"parts": class_parts(state["sums"].sum(axis=0))}

    def traffic(self, state: State, n_parameters: int) -> tuple[int, int]:
        """All components and the class parts, down and up."""
        both = self.n_clusters * n_parameters + state["parts"].size
        return both, both


class FedRCAsRun(FedRC, FedEMAsRun, as_run=True):
    """FedRC, tested as :class:`FedEMAsRun` is."""


def class_parts(sums: np.ndarray) -> np.ndarray:
    """Rows (K, C) that sum to 1, from sums of posterior weights by class; at least 1e-8 before that."""
    floored = np.maximum(sums, 1e-8)
    return floored / floored.sum(axis=1, keepdims=True)


def log_shares(shares: np.ndarray) -> np.ndarray:
    """Logarithm of shares; minus infinity where a component has been lost."""
    with np.errstate(divide="ignore"):
        return np.log(shares)


def softmax(scores: np.ndarray) -> np.ndarray:
    """Softmax over the first axis.

    Examples
    --------
    >>> softmax(np.array([[0.0], [-np.log(3.0)]])).ravel().round(6).tolist()
    [0.75, 0.25]
    """
    scores = np.exp(scores - scores.max(axis=0))
    return scores / scores.sum(axis=0)
