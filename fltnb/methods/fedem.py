"""FedEM, FedRC, FedSoft and FedCE: clients between several models, all of which every client sees.

FedEM (Marfoq et al., NeurIPS 2021, arXiv 2108.10252) is expectation-maximisation with the components' posterior weights
per sample; FedRC (Guo et al., ICML 2024, arXiv 2301.12379) corrects the weights by the classes, so that components
follow another labelling of the same images. FedSoft: arXiv 2112.06053. FedCE: Cai et al., ACM MM 2023.
"""

from dataclasses import replace
from itertools import chain
from typing import ClassVar, Literal

import numpy as np
from scipy.special import softmax

from ..settings import Count, NonNegative
from .base import Context, Method, State, mix, one_cluster, several
from .modelspace import with_rows
from .samples import Split, batch_means, evaluate_mixture, sample_losses

FLOOR = 1e-4  # FedSoft: share of a centre that no sample of a client prefers


class FedEM(Method):
    """K component models, shared by all; every client has shares of its own in them.

    A round of a participant: posterior weights q of the components for each training sample (E-step), the mean of
    these as its new shares, then one local training *per component*, each sample's loss multiplied by its weight. The
    server averages each component over all participants, by samples. A prediction is the shares' mean of the
    components' probabilities; only :meth:`evaluate` knows it, ``serve`` and labels give the component of largest share.

    The weights of a sample sum to 1 over the components, so each trains as if with a part of the learning rate, 1 / K
    on average at the start: it wants a larger one than FedAvg. A client that never took part has equal shares.
    """

    name = "fedem"
    tests_served = False

    n_clusters: Count

    def __post_init__(self) -> None:
        self.models_down = self.models_up = self.n_clusters

    def start(self, fed, model, context: Context) -> State:
        """K independent components, equal shares."""
        shares = np.full((fed.n_clients, self.n_clusters), 1 / self.n_clusters)
        return one_cluster(fed, several(model, context, self.n_clusters)) | {
            "shares": shares
        }

    def scores(
        self, state: State, losses: np.ndarray, client: int, labels: np.ndarray
    ) -> np.ndarray:
        """Log-weights (K, n) of the components for a client's samples, from the losses (K, n) and its shares."""
        with np.errstate(
            divide="ignore"
        ):  # minus infinity where a component has been lost
            return np.log(state["shares"][client])[:, None] - losses

    def train(self, state: State, clients: np.ndarray, round: int, engine):
        """E-step, then K weighted trainings for each participant."""
        K, shares, weights = self.n_clusters, state["shares"].copy(), {}
        for client, mine in zip(
            clients, sample_losses(engine, state["models"], clients), strict=True
        ):
            q = softmax(
                self.scores(
                    state, mine, client, engine.fed.labels[engine.fed.train[client]]
                ),
                axis=0,
            )
            shares[client], weights[client] = q.mean(axis=1), q
        largest = shares.argmax(axis=1)
        state = self.weighed(
            state | {"shares": shares, "row": largest, "labels": largest},
            weights,
            engine.fed,
        )
        pairs, each = (
            (np.tile(np.arange(K), len(clients)), np.repeat(clients, K)),
            [*chain(*weights.values())],
        )
        trained = engine.train(state["models"], *pairs, round, each)
        theta, loss = (
            trained.theta.reshape(len(clients), -1),
            trained.loss.reshape(len(clients), K).sum(axis=1),
        )
        return state, replace(trained, theta=theta, loss=loss)

    def weighed(self, state: State, weights: dict[int, np.ndarray], fed) -> State:
        """Take note of the weights (K, n_i) of every participant's samples; FedEM has no use for them."""
        return state

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Average every component over all participants; ``theta`` is (n, K P)."""
        weights = state["weights"][clients]
        return state | {
            "models": mix(weights[None] / weights.sum(), theta).reshape(
                self.n_clusters, -1
            )
        }

    def evaluate(self, state: State, engine, split: str):
        """Test the mixtures."""
        return evaluate_mixture(engine, state["models"], state["shares"], split)


class FedEMAsRun(FedEM, as_run=True):
    """What printed EMD-CFL's tables: a client is tested with its *local copy of the last component* (by accident)."""

    tests_served = True
    evaluate = Method.evaluate

    def start(self, fed, model, context: Context) -> State:
        """As written, and everybody's copy."""
        state = super().start(fed, model, context)
        return state | {
            "copies": np.repeat(state["models"][-1:], fed.n_clients, axis=0)
        }

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Keep the copies as well."""
        last = theta[:, -state["models"].shape[1] :]
        return super().collect(state, clients, theta, round) | {
            "copies": with_rows(state["copies"], clients, last)
        }

    def serve(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Give the local copies."""
        return state["copies"], np.arange(len(state["copies"]))


class FedRC(FedEM):
    """FedEM whose posterior weights are divided by how much of a *class* each component holds already.

    ``q_k(x, y)`` is proportional to ``share_k exp(-loss_k(x, y)) / c_k(y)``, where c_k(y) is the part that class y has
    in component k over all clients: first 1 / K, then renewed every round from the sums of q. Thus label skew does not
    part the clients. The prediction does not use the parts.
    """

    name = "fedrc"

    def start(self, fed, model, context: Context) -> State:
        """As FedEM, with equal class parts."""
        state = super().start(fed, model, context)
        K, C = self.n_clusters, model.n_classes
        return state | {
            "sums": np.zeros((fed.n_clients, K, C)),
            "parts": np.full((K, C), 1 / K),
        }

    def scores(
        self, state: State, losses: np.ndarray, client: int, labels: np.ndarray
    ) -> np.ndarray:
        """FedEM's weights over the class parts."""
        return super().scores(state, losses, client, labels) - np.log(
            state["parts"][:, labels]
        )

    def weighed(self, state: State, weights: dict[int, np.ndarray], fed) -> State:
        """Keep each participant's sums of q by class, which it sends."""
        sums = state["sums"].copy()
        for client, q in weights.items():
            sums[client] = [
                np.bincount(fed.labels[fed.train[client]], one, sums.shape[2])
                for one in q
            ]
        return state | {"sums": sums}

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Average the components and renew the class parts."""
        sums = np.maximum(state["sums"].sum(axis=0), 1e-8)
        return super().collect(state, clients, theta, round) | {
            "parts": sums / sums.sum(axis=1, keepdims=True)
        }

    def traffic(self, state: State, n_parameters: int) -> tuple[int, int]:
        """All components and the class parts, down and up."""
        return tuple(
            scalars + state["parts"].size
            for scalars in super().traffic(state, n_parameters)
        )


class FedRCAsRun(FedRC, FedEMAsRun, as_run=True):
    """FedRC, tested as :class:`FedEMAsRun` is."""


class FedSoft(Method):
    """K centres on the server; a client's importance weights u say what share of its samples prefers which centre.

    Every ``period`` rounds a participant counts, over its training samples, which centre has the least loss; these
    shares are u. It trains one model near all centres, ``f_i(theta) + lam / 2 sum_k u_k ||theta - center_k||^2``, and
    this model goes into every centre, with weights ``u_ik n_i`` made to sum to 1 over the participants.

    That penalty is, up to a constant, one towards the centres' mean with weights u, where clients also *begin* here (as
    in the published runs); the original continues from the client's own model. It draws clients for each centre in
    proportion to ``u_ik n_i`` and averages them equally; here every participant counts for every centre.

    Parameters
    ----------
    lam : float, lambda; the official examples have 0.01 (CIFAR-10) and 0.1 (MNIST)
    period : int, tau, rounds from one measurement of u to the next
    serves : {"own", "center"}, tested is the model that a client trained last, or its centre of largest importance
    variant : "as_run" is :class:`FedSoftAsRun`, which has neither ``lam`` nor ``period``
    """

    name, split = "fedsoft", "train"

    n_clusters: Count
    lam: NonNegative = 0.01
    period: Count = 2
    serves: Literal["own", "center"] = "own"

    def local_training(self) -> dict[str, float]:
        """Add the proximal term."""
        return {"proximal": self.lam}

    def start(self, fed, model, context: Context) -> State:
        """K independent centres, no client measured yet."""
        K, models = self.n_clusters, several(model, context, self.n_clusters)
        return one_cluster(fed, models) | {
            "own": np.repeat(models[:1], fed.n_clients, axis=0),
            "importance": np.full((fed.n_clients, K), 1 / K),
            "counts": np.zeros((fed.n_clients, K)),
            "measured": np.zeros(fed.n_clients, dtype=bool),
        }

    def observe(self, state: State, clients: np.ndarray, round: int, engine) -> State:
        """Let participants count which centre suits how many of their samples, if it is time or they never have."""
        due = (
            clients
            if (round - 1) % self.period == 0
            else clients[~state["measured"][clients]]
        )
        importance, counts = state["importance"].copy(), state["counts"].copy()
        for client, losses in zip(
            due, sample_losses(engine, state["models"], due, self.split), strict=True
        ):
            counts[client] = self.counted(
                losses, state["weights"][client], engine.spec.batch_size
            )
            importance[client] = counts[client] / counts[client].sum()
        largest, measured = (
            importance.argmax(axis=1),
            with_rows(state["measured"], due, True),
        )
        found = {"importance": importance, "row": largest, "labels": largest}
        return state | found | {"counts": counts, "measured": measured}

    def counted(
        self, losses: np.ndarray, samples: float, batch_size: int
    ) -> np.ndarray:
        """``u_k n`` (K,) of a client, from the losses (K, n) of its samples."""
        count = np.bincount(losses.argmin(axis=0), minlength=self.n_clusters)
        return np.where(count > 0, count / losses.shape[1], FLOOR) * samples

    def dispatch(
        self, state: State, clients: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean of the centres with the client's importance weights, which is also what the proximal term pulls to."""
        return mix(state["importance"][clients], state["models"]), np.arange(
            len(clients)
        )

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Every participant's model goes into every centre, by importance and samples."""
        counts = state["counts"][clients]
        models = mix((counts / counts.sum(axis=0)).T, theta)
        return state | {
            "models": models,
            "own": with_rows(state["own"], clients, theta),
        }

    def serve(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Give the clients' own models or their nearest centres."""
        return (
            (state["own"], np.arange(len(state["own"])))
            if self.serves == "own"
            else super().serve(state)
        )

    def traffic(self, state: State, n_parameters: int) -> tuple[int, int]:
        """All centres down; one model and K counts up."""
        return self.n_clusters * n_parameters, n_parameters + self.n_clusters


class FedSoftAsRun(FedSoft, as_run=True):
    """What printed EMD-CFL's tables: whole *validation batches* count, in every round; there is no proximal term."""

    split = "val"
    lam: ClassVar = 0.0
    period: ClassVar = 1

    def counted(
        self, losses: np.ndarray, samples: float, batch_size: int
    ) -> np.ndarray:
        """Count whole batches (K,); a centre that wins none counts for a thousandth of the samples, at least for 1."""
        n = losses.shape[1]
        winner = batch_means(losses, batch_size).argmin(
            axis=0
        )  # each batch's samples go to its best centre
        count = np.bincount(
            winner,
            np.minimum(batch_size, n - batch_size * np.arange(len(winner))),
            len(losses),
        )
        return np.where(count > 0, count, max(1, int(0.001 * n)))


class FedCE(Method):
    """K models; each client trains the one that fits it best, and contributes to all by associations that only grow.

    A participant's association with its best model grows by 1, with any other by ``exp(-delta ||a_best - a_k||)``, a
    the vector of a model's losses on the client's batches. Model k becomes the mean of the participants' trained models
    with weights that are the softmax *over clients* of their associations with k. As these grow, the weights sharpen.

    Neither the paper's text nor official code was at hand, but EMD-CFL's re-implementation. No samples are weighed.
    Clients are served the model that was best for them when they took part last (0 if never).

    Parameters
    ----------
    delta : float, 0.5 in EMD-CFL's runs
    split : {"val", "train"}, samples to compare the models on, in batches of the run's ``batch_size``
    """

    name = "fedce"
    once = True  # a round adds a single 1

    n_clusters: Count
    delta: NonNegative = 0.5
    split: Split = "val"

    def start(self, fed, model, context: Context) -> State:
        """K independent models, no associations."""
        associations = np.zeros((fed.n_clients, self.n_clusters))
        return one_cluster(fed, several(model, context, self.n_clusters)) | {
            "associations": associations
        }

    def observe(self, state: State, clients: np.ndarray, round: int, engine) -> State:
        """Let participants measure all models; ties go to the lowest index."""
        row, associations = state["row"].copy(), state["associations"].copy()
        for client, losses in zip(
            clients,
            sample_losses(engine, state["models"], clients, self.split),
            strict=True,
        ):
            batches = batch_means(losses, engine.spec.batch_size)
            row[client] = batches.mean(axis=1).argmin()
            associations[client] += growth(batches, self.delta, self.once)
        return state | {"row": row, "labels": row, "associations": associations}

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Average all participants into every model."""
        return state | {
            "models": mix(softmax(state["associations"][clients], axis=0).T, theta)
        }

    traffic = FedSoft.traffic


class FedCEAsRun(FedCE, as_run=True):
    """What printed EMD-CFL's tables: a 1 for each of the K models looked at, each time to the best so far."""

    once = False


def growth(batches: np.ndarray, delta: float, once: bool = True) -> np.ndarray:
    """Return what a client adds to its associations (K,), from the losses of K models on its batches (K, b)."""
    means = batches.mean(axis=1)
    best = means.argmin()
    added = np.exp(-delta * np.linalg.norm(batches - batches[best], axis=1))
    added[best] = 0
    for seen in [len(means)] if once else range(1, len(means) + 1):
        added[means[:seen].argmin()] += 1
    return added
