"""EMD-CFL: one-shot clustering by earth mover's distances between embeddings.

Zhang, Williams and Toni (arXiv 2506.07769), Algorithm 1. Everybody trains alone once. Each pair then exchanges models
and measures how far apart the embeddings of their samples are (:class:`fltnb.clustering.EMDClustering`); clients with
the same neighbours share these neighbours' mean from then on, beginning with what they have just trained.
"""

from typing import ClassVar, Literal

import numpy as np
from sklearn.base import clone

from ..clustering import EMDClustering
from ..errors import FltnbError
from ..federations.phases import phases
from ..progress import bar
from .base import Context, FixedGraph, Method, State, alone, mix_groups
from .flt import OneShot
from .graph import graph_key, rewire
from .modelspace import with_rows
from .samples import SLICE

SMALL = 20_000_000  # cells of all cost matrices below which starting processes takes longer than the work


class EMDCFL(Method):
    """Cluster after the first local training, then FedAvg inside the clusters.

    An undrawn client is a cluster of its own and holds the initial model. Absent ones answer with their last model.
    Besides the rounds' models every ordered pair moves one without its last layer, and both send embeddings.

    Parameters
    ----------
    clusterer : EMDClustering, optional, used unfitted: what it is fitted on arises in the run
    rule : {"participants", "last_local"}
        Whom a cluster averages: this round's participants, or everybody's last trained model, as in the public code.
    repeat : bool
        Only where some clients sit out the first round. False: every pair is measured once, after the first round by
        which both have trained. True: all that have are measured anew after every round, as in the public code. The
        paper calls the clustering one-shot for each pair.
    """

    name, split = "emdcfl", "val"
    AS_RUN: ClassVar = {"rule": "last_local", "repeat": True}

    clusterer: EMDClustering | None = None
    rule: Literal["participants", "last_local"] = "participants"
    repeat: bool = False

    def __post_init__(self) -> None:
        self.clusterer = EMDClustering() if self.clusterer is None else self.clusterer
        if (
            not isinstance(self.clusterer, EMDClustering)
            or self.clusterer.n_clusters is not None
        ):
            raise FltnbError(
                f"clusterer must be an fl.EMDClustering(...) without n_clusters, not {self.clusterer!r}."
            )

    def check(self, fed) -> None:
        """Refuse a federation in which somebody has no validation samples."""
        self.clusterer.check(fed.sizes.tolist())
        super().check(fed)

    def start(self, fed, model, context: Context) -> State:
        """Everybody alone, on a common initial model."""
        M, state = fed.n_clients, alone(fed, model.init(context.seed))
        return state | {
            "labels": state["row"].copy(),
            "relation": np.eye(M, dtype=np.uint8),
            "distance": np.where(np.eye(M, dtype=bool), 0.0, np.nan),
            "reference": np.full(M, np.nan),
            "tolerance": np.array(np.nan),
            "local": state["models"].copy(),  # last trained models
            **{
                name: np.zeros(M, dtype=bool)
                for name in ("present", "trained", "measured")
            },
            "again": np.array(self.repeat),
            "net": np.array(model.name),
            "sent": np.zeros(2, dtype=np.int64),
        }

    def collect(
        self, state: State, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> State:
        """Average inside the clusters known so far; :meth:`revise` does it again where clusters change."""
        state = dict(state)
        state["present"] = np.isin(np.arange(len(state["row"])), clients)
        if round == 1 and len(clients) == len(state["row"]):
            state["again"] = np.array(False)  # one-shot in any case
        state["trained"] = state["trained"] | state["present"]
        if self._keeps_local(state):
            state["local"] = with_rows(state["local"], clients, theta)
        if self.rule == "last_local":
            clients, theta = np.arange(len(state["row"])), state["local"]
        share = state["relation"][:, clients] * state["weights"][clients]
        return state | {"models": mix_groups(share, theta, state["models"])}

    def revise(self, state: State, fed, round: int, context: Context) -> State:
        """Measure the pairs that can be measured for the first time, connect, and average in the new clusters."""
        new = (
            state["trained"]
            if state["again"]
            else state["trained"] & ~state["measured"]
        )
        if not new.any():
            return state
        state = state | {"measured": state["measured"] | new}
        if state["trained"].sum() > 1:
            state = self._measure(state, fed, new, context)
            adjacency, labels, tolerance = self.clusterer.connect(
                state["distance"], state["reference"]
            )
            regrouped = rewire(
                state, adjacency, labels, fed.sizes, np.ones(fed.n_clients, dtype=bool)
            )
            state = regrouped | {"tolerance": np.array(tolerance)}
            # a cluster of which nobody took part has the mean of what its members were served
            share = (
                state["relation"]
                * state["weights"]
                * (1 if self.rule == "last_local" else state["present"])
            )
            state["models"] = mix_groups(share, state["local"], state["models"])
        if not self._keeps_local(state):
            state["local"] = state["local"][:0].copy()
        return state

    def _keeps_local(self, state: State) -> bool:
        """Whether clients' own models are still needed."""
        return (
            self.rule == "last_local"
            or bool(state["again"])
            or not state["measured"].all()
        )

    def _measure(self, state: State, fed, new: np.ndarray, context: Context) -> State:
        """Fill in distances of pairs of which one is new, under the models that clients trained last."""
        from .. import models

        net = models.make(str(state["net"]), fed.input_shape, fed.n_classes)
        known = np.flatnonzero(state["trained"])
        pairs = {
            int(i): [int(j) for j in known if j != i and (new[i] or new[j])]
            for i in known
        }
        most = int(self.clusterer.max_samples)
        sizes, held = (
            np.minimum([len(own) for own in part], most)
            for part in (fed.train, fed.val)
        )
        clusterer = clone(self.clusterer)
        if clusterer.n_jobs is None:
            cells = sum(
                int(sizes[i] * held[others].sum()) for i, others in pairs.items()
            )
            clusterer.n_jobs = 1 if cells < SMALL else (context.n_jobs or -1)

        def tasks():
            for i, others in pairs.items():
                if others:
                    own = state["local"][i]
                    held = {
                        j: penultimate(net, own, fed.client(j, "val")[0])
                        for j in (i, *others)
                    }
                    yield i, penultimate(net, own, fed.client(i)[0]), held

        distance, reference = state["distance"].copy(), state["reference"].copy()
        shown = bar(
            tasks(), context.progress, total=len(pairs), desc="emdcfl", unit="client"
        )
        clusterer.measure(shown, distance, reference)
        body = net.n_parameters - (net.head.stop - net.head.start)
        width = clusterer.sent_width(net.n_features)
        moved = sum(len(others) for others in pairs.values())
        embedded = sum(
            int(len(others) * sizes[i] + held[others].sum())
            for i, others in pairs.items()
        )
        own = sum(clusterer.references(len(others)) for others in pairs.values())
        sent = state["sent"] + np.array(
            [moved * body + embedded * width + own, moved * body]
        )
        return state | {"distance": distance, "reference": reference, "sent": sent}

    def found_graph(self, state: State, fed) -> FixedGraph | None:
        """Return the clusters, where round 1 has measured all pairs: its averages were theirs already."""
        if (
            type(self) is not EMDCFL
            or len(phases(fed)) > 1
            or not state["measured"].all()
        ):
            return None
        key = graph_key(self.rule, state["relation"], state["row"])
        return FixedGraph(key, state["labels"], self.setup_bytes(state))

    setup_bytes = OneShot.setup_bytes


def penultimate(model, theta: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Embeddings (n, d) float32 of inputs (n, C, H, W): what the last layer gets; no dropout; on a GPU if possible."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    parameters = [part.to(device) for part in model.unflatten(theta.astype(np.float32))]
    slices = np.split(inputs, range(SLICE, len(inputs), SLICE))
    with torch.inference_mode():
        return torch.cat(
            [
                model.features(parameters, torch.from_numpy(x).to(device)).cpu()
                for x in slices
            ]
        ).numpy()
