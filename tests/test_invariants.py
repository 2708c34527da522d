"""What holds for every method: ten invariants.

A table says how each method is made comparable. An invariant that does not apply
carries its reason instead of a method. The setting is one in which exact statements are
possible: digits, a network without dropout, float64, and (unless the invariant says
otherwise) everybody taking part with the whole training set as one batch, so that the
order of samples cannot matter.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from toys import QUICK, final, served, two_clusters

import fltnb as fl
from fltnb import checkpoint, models, rounds, training
from fltnb import methods as m
from fltnb.methods.hierarchical import shared_columns
from fltnb.metrics import adjusted_rand_index

M, K, ROUNDS = 6, 2, 2
EXACT = QUICK | {"rounds": ROUNDS, "eval_every": ROUNDS, "backend": "stacked"}
ROUGH = EXACT | {
    "participation": 0.5,
    "batch_size": 10,
    "local_epochs": 1,
    "rounds": 3,
    "eval_every": 3,
}


def pca(threshold):
    """A clusterer that is quick and has a threshold; 0.25 links some of the clients."""
    return fl.PCAKMeans(k=2, n_components=8, threshold=threshold)


def truth(labels):
    """A change of the federation, for methods whose labels are given and not found."""
    return lambda fed: replace(fed, clusters=np.array(labels))


COMMON = "all models start from one common initialisation"
NO_THRESHOLD = "no threshold and no one-shot clusterer"


@dataclass(eq=False)
class Line:
    """How one method takes part in the invariants; a string in place of a setting is
    why one does not apply."""

    usual: Callable  # the method as it is used
    one: Callable | str  # U1: with one cluster, to equal FedAvg
    alone: Callable | str = (
        NO_THRESHOLD  # U2: with every client for itself, to equal Local
    )
    start: str = (
        COMMON  # U4: why permuting initial models says nothing, or "independent"
    )
    down: Callable = lambda P: P  # U10: scalars received by a participant per round
    up: Callable = lambda P: P
    setup: Callable = lambda fed: (0, 0)  # U10: bytes sent before round 1 (up, down)
    # U3: more where weights follow from float32 embeddings, whose rounding depends on
    # the order
    near: float = 1e-9
    # U1: the weights of this method's mean; "equal" is compared on clients of equal
    # size
    weights: str = "samples"
    one_of: Callable = lambda fed: fed  # U1, U2: another federation
    alone_of: Callable = lambda fed: fed
    personal: bool = (
        False  # U5: compared with the same method on one client, not with Local
    )
    still: str = ""  # U7: why models move though no client takes a step
    late: int = (
        0  # U1, U2, U5: rounds at the start whose training is used for clustering only
    )
    parts: Callable = lambda net: [
        slice(None)
    ]  # U6: parameters that are averaged with weights of their own
    mean: str = ""  # U6: why aggregates are no weighted means of the models around
    once: Callable | None = (
        # U10: bytes sent (up, down) on top in the rounds, where not all rounds are
        # alike
        None
    )


def emd(tolerance):
    """EMD-CFL's clusterer, without the projections that belong to the numbers of two
    clients."""
    return fl.EMDClustering(tolerance=tolerance, projection=None)


def exchanged(fed):
    """What pairs of clients that have trained send each other once: models without the
    last layer, and embeddings."""
    body, width, seen, up, down = 64 * 200 + 200, 200, set(), 0, 0
    for round in (1, 2, 3):
        new = set(rounds.participants(M, 0.5, 0, round).tolist()) - seen
        seen |= new
        pairs = [(i, j) for i in seen for j in seen if i != j and {i, j} & new]
        down += body * len(pairs)
        up += sum(
            body + width * (len(fed.train[i]) + len(fed.val[j])) for i, j in pairs
        ) + len({i for i, _ in pairs})
    return 4 * up, 4 * down


CENTROIDS = (
    4 * M * 2 * 8
)  # bytes: k = 2 centroids of 8 numbers from each client, raw pixels need no encoder

OTHERS = {
    "FedProx": lambda: m.FedProx(0.3, rule="last_local"),
    "IFCA": lambda: m.IFCA(3, warmup=2, shared="lower"),
    "FeSEM": lambda: m.FeSEM(2, 0.3, "samples", "last_local", grouping="random"),
    "FeSEMMA": lambda: m.FeSEMMA(2, 0.2, rule="last_aggregate"),
    "FedSGD": lambda: m.FedSGD(8),
    "CFL": lambda: m.CFL(9, 0, 1, 3, "samples"),
    "CLoVE": lambda: m.CLoVE(max_clusters=4, first="random", patience=1),
}  # options that make another state, for U8

EQUAL = {"weights": "equal"}
SEVERAL = {"start": "independent", "down": lambda P: K * P}


def three(make, usual=0.25, one=1e6, alone=0.0):
    """The method as it is used, with one cluster, and with every client for itself, by
    one number."""
    return [lambda number=number: make(number) for number in (usual, one, alone)]


LINES = {
    "FedAvg": Line(m.FedAvg, m.FedAvg),
    "FedProx": Line(lambda: m.FedProx(mu=0.1), lambda: m.FedProx(mu=0)),
    "Local": Line(
        m.Local,
        "has no clusters, and no model in common",
        m.Local,
        down=lambda P: 0,
        up=lambda P: 0,
    ),
    "Oracle": Line(
        m.Oracle, m.Oracle, m.Oracle, one_of=truth([0] * M), alone_of=truth(range(M))
    ),
    "FLT": Line(*three(lambda t: m.FLT(pca(t))), setup=lambda fed: (CENTROIDS, 0)),
    "PCAKMHC": Line(
        *three(lambda t: m.PCAKMHC(pca(t), graph="full")),
        setup=lambda fed: (CENTROIDS, 0),
    ),
    # nobody changes here; the repeated clusterings, after rounds 1 and 3, find what was
    # found before
    "DynamicFLT": Line(
        *three(lambda t: m.DynamicFLT(pca(t), tau=2)),
        setup=lambda fed: (3 * CENTROIDS, 0),
    ),
    "SoftFLT": Line(
        *three(lambda s: m.SoftFLT(pca(0.25), scale=s), None, 1e9, 1e-9),
        near=1e-5,
        setup=lambda fed: (CENTROIDS, 0),
    ),
    "FedSEM": Line(lambda: m.FedSEM(K), lambda: m.FedSEM(1)),
    "FeSEM": Line(lambda: m.FeSEM(K), lambda: m.FeSEM(1, lam=0), **EQUAL),
    "IFCA": Line(lambda: m.IFCA(K), lambda: m.IFCA(1), **SEVERAL),
    "CFL": Line(
        lambda: m.CFL(eps1=1e6, eps2=0, warmup=0),  # cuts whatever moves
        lambda: m.CFL(eps1=0),
        "it cuts one step a round and stops above single clients",
        **EQUAL,
    ),
    "PACFL": Line(
        *three(
            lambda of: m.PACFL(fl.PACFL(**of)),
            {"n_clusters": 2},
            {"threshold": 180},
            {"threshold": -1},
        ),
        setup=lambda fed: (
            4 * 64 * np.minimum(fed.label_counts(), 3).sum(),
            0,
        ),  # vectors of 64 pixels per class
    ),
    "FedClust": Line(
        *three(
            lambda of: m.FedClust(**of),
            {"n_clusters": 2},
            {"threshold": 1e9},
            {"threshold": 0},
        ),
        late=1,
        once=lambda P: (
            -4 * (M // 2) * (P - 201 * 10),
            0,
        ),  # in round 1 the last layer of 200 x 10 and 10 alone
    ),
    "EMDCFL": Line(*three(lambda t: m.EMDCFL(emd(t)), 0.025, 2.0, 0), setup=exchanged),
    "FlexCFL": Line(lambda: m.FlexCFL(2), lambda: m.FlexCFL(1), **EQUAL),
    "CFLGP": Line(
        *(lambda: m.CFLGP(2), lambda: m.CFLGP(1)),
        **EQUAL,
        once=lambda P: (
            (4 * (M // 2) * P,) * 2
        ),  # in round 3 all three, whose model is the first, train the second too
    ),
    "FedEM": Line(
        lambda: m.FedEM(K),
        lambda: m.FedEM(1),
        **SEVERAL,
        up=lambda P: K * P,
        personal=True,
    ),
    "FedRC": Line(
        *(lambda: m.FedRC(K), lambda: m.FedRC(1)),
        **SEVERAL
        | {
            "down": lambda P: K * P + K * 10,
            "up": lambda P: K * P + K * 10,
            "personal": True,
        },
    ),
    "FedSoft": Line(
        *(lambda: m.FedSoft(K, period=1), lambda: m.FedSoft(1, lam=0, serves="center")),
        **SEVERAL | {"up": lambda P: P + K, "personal": True},
        still="clients begin at means of different initial models",
    ),
    "FedCE": Line(
        *(lambda: m.FedCE(K, split="train"), lambda: m.FedCE(1, split="train")),
        **SEVERAL | EQUAL | {"up": lambda P: P + K, "personal": True},
        still="every model takes from every client, and clients train different ones",
    ),
    "PFedGraph": Line(m.PFedGraph, lambda: m.PFedGraph(alpha=1e15)),
    "FedSaC": Line(
        m.FedSaC, lambda: m.FedSaC(0, 0), near=1e-7, up=lambda P: P + 3 * 200
    ),
    "MTHFL": Line(
        lambda: m.MTHFL(fl.EigenRelevance(n_clusters=2)),
        lambda: m.MTHFL(
            "oracle", shared=2
        ),  # two groups, but all layers are averaged over both
        lambda: m.MTHFL("oracle", shared=0),
        setup=lambda fed: (
            4 * M * (5 * 64 + M - 1),
            4 * M * (M - 1) * 5 * 64,
        ),  # five eigenvectors of 64 pixels
        alone_of=truth(range(M)),
        parts=lambda net: [columns := shared_columns(net, None), ~columns],
    ),
    "FedSGD": Line(
        m.FedSGD, "one step where the others take two; see test_methods_fesem"
    ),
    "FedDist": Line(m.FedDist, lambda: m.FedDist(1), **EQUAL, personal=True),
    "FedDistWS": Line(m.FedDistWS, lambda: m.FedDistWS(1), personal=True),
    "FedDANE": Line(
        *(
            m.FedDANE,
            "its corrected steps are not FedAvg's; with one client they are FedProx's",
        ),
        down=lambda P: 3 * P,
        up=lambda P: 2 * P,
    ),
    "FedCluster": Line(
        *(lambda: m.FedCluster(period=0), lambda: m.FedCluster(gamma=1.01)),
        "a cut needs more than two members, one of the halves may have one",
    ),
    "HypoCluster": Line(lambda: m.HypoCluster(K), lambda: m.HypoCluster(1), **SEVERAL),
    "RobustTKM": Line(
        *(lambda: m.RobustTKM(K), lambda: m.RobustTKM(1, trim=0)),
        **EQUAL,
        mean="each number is trimmed for itself",
    ),
    "FeSEMMA": Line(
        *(lambda: m.FeSEMMA(K), lambda: m.FeSEMMA(1, lam=0)),
        **EQUAL,
        mean="neurons are put into another order before",
    ),
    "CLoVE": Line(
        *(lambda: m.CLoVE(K), lambda: m.CLoVE(1)),
        **SEVERAL | {"down": lambda P: K * P + 1, "up": lambda P: P + K},
    ),
    "FLHC": Line(
        *three(
            lambda of: m.FLHC(**of, after=0),
            {"n_clusters": 2},
            {"threshold": 1e9},
            {"threshold": 0},
        ),
        once=lambda P: (
            (4 * (M - M // 2) * P,) * 2
        ),  # who sits round 1 out trains all the same
    ),
    "FedPer": Line(
        *(m.FedPer, "nothing but an empty head makes it FedAvg: test_methods_arena"),
        "nothing but a head of all layers makes it Local: test_methods_arena",
        parts=lambda net: [slice(0, net.head.start), net.head],
        down=lambda P: P - 201 * 10,
        up=lambda P: P - 201 * 10,
    ),
    "FedCollab": Line(
        *three(
            lambda c: m.FedCollab(fl.FedCollab(c, rounds=20, lr=0.2, hidden=20)),
            4.0,
            1e9,
            0.0,
        ),
        # 15 pairs, 20 rounds, networks of (64 + 10 + 2) x 20 and 21 numbers both ways;
        # distances to all, and a number of samples
        setup=lambda fed: (
            4 * (15 * 20 * 2 * 1541 + M * (M + 1)),
            4 * 15 * 20 * 2 * 1541,
        ),
    ),
    "FLUX": Line(
        *three(
            lambda K: m.FLUX(n_clusters=K, latest=0, n_components=3),
            None,
            1,
            M,
        ),
        near=1e-7,
        # in round 1 descriptors of 3 axes, and the model and its largest feature
        once=lambda P: (
            4 * (M * 2 * 3 * 11 + 2 * (M // 2)),
            4 * ((M - M // 2) * P + M),
        ),
    ),
    "OCFL": Line(
        *(m.OCFL, lambda: m.OCFL("kmeans", n_clusters=1)),
        "clusters are formed in round 2 at the earliest",
        **EQUAL,
    ),
    "Ditto": Line(
        m.Ditto,
        "it serves personal models; the global one is FedAvg's: test_methods_arena",
        lambda: m.Ditto(lam=0),
        personal=True,
        mean="personal models are trained, not averaged",
    ),
    "FedRep": Line(
        *(lambda: m.FedRep(2, 1), "it trains in two phases: test_methods_arena"),
        "it trains in two phases: test_methods_arena",
        personal=True,
        parts=lambda net: [slice(0, net.head.start), net.head],
        down=lambda P: P - 201 * 10,
        up=lambda P: P - 201 * 10,
    ),
    "StoCFL": Line(
        lambda: m.StoCFL(0.5, anchor_epochs=1),
        lambda: m.StoCFL(-0.99, mu=0, anchor_epochs=1),
        lambda: m.StoCFL(2, mu=0, anchor_epochs=1),
        **EQUAL,
        personal=True,
        down=lambda P: 2 * P,
        up=lambda P: 2 * P,
        # the change of everybody who took part in one of three rounds, once
        setup=lambda fed: (
            4
            * len({i for t in (1, 2, 3) for i in rounds.participants(M, 0.5, 0, t)})
            * (65 * 200 + 201 * 10),
            0,
        ),
    ),
    # nothing changes here: clusters stay those of the beginning
    "FedDrift": Line(m.FedDrift, lambda: m.FedDrift(first="one"), m.FedDrift),
}


def lines(invariant):
    """One case per method; where the invariant does not apply, a skip with the
    reason."""
    reasons = {name: invariant(line) for name, line in LINES.items()}
    skips = {
        name: [pytest.mark.skip(reason=reason)] if reason else []
        for name, reason in reasons.items()
    }
    return pytest.mark.parametrize(
        "line",
        [pytest.param(LINES[name], id=name, marks=skips[name]) for name in LINES],
    )


always = lines(lambda line: "")


def test_every_method_has_its_line():
    assert set(LINES) == set(m.METHODS), (
        "write a line for the new method: how it takes part, or why it does not"
    )
    assert len({cls.name for cls in m.METHODS.values()}) == len(m.METHODS)
    for name, line in LINES.items():
        assert (
            type(line.usual())
            is type(m.build(line.usual().settings()))
            is m.METHODS[name]
        )


@cache
def digits(equal=True):
    """Six clients in two clusters of two digits each, shuffled; 20 training samples
    each, or different numbers."""
    fed = two_clusters(M)
    order = np.random.default_rng(3).permutation(M)
    sizes = [20] * M if equal else [20, 12, 16, 10, 18, 14]
    return replace(
        fed,
        train=[fed.train[i][::-1][:n] for i, n in zip(order, sizes, strict=True)],
        val=[fed.test[i][60:] for i in order],
        test=[fed.test[i][:60] for i in order],
        clusters=fed.clusters[order],
    )


def permuted(fed, order):
    moved = {
        split: [getattr(fed, split)[i] for i in order]
        for split in ("train", "val", "test")
    }
    return replace(fed, **moved, clusters=fed.clusters[order])


def run(method, fed, settings=EXACT, **change):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return fl.run(method, fed, **settings | change)


@cache
def usual_run(line, rough=False):
    """The method as it is used, on clients of unequal size."""
    return run(line.usual(), digits(equal=False), ROUGH if rough else EXACT)


@cache
def plain_run(method, equal=False):
    """What a method is compared with."""
    return run(method(), digits(equal))


@lines(lambda line: line.one if isinstance(line.one, str) else "")
def test_u1_one_cluster_is_fedavg(line):
    found = run(
        line.one(),
        line.one_of(digits(equal=line.weights == "equal")),
        rounds=ROUNDS + line.late,
    )
    assert np.allclose(
        final(found),
        final(plain_run(m.FedAvg, line.weights == "equal")),
        rtol=0,
        atol=1e-12,
    )


@lines(lambda line: line.alone if isinstance(line.alone, str) else "")
def test_u2_singletons_are_local(line):
    found = run(
        line.alone(), line.alone_of(digits(equal=False)), rounds=ROUNDS + line.late
    )
    assert np.allclose(final(found), final(plain_run(m.Local)), rtol=0, atol=1e-12)


@always
def test_u3_the_order_of_clients_does_not_matter(line):
    order = np.random.default_rng(1).permutation(M)
    a, b = usual_run(line), run(line.usual(), permuted(digits(equal=False), order))
    assert np.allclose(final(a)[order], final(b), rtol=0, atol=line.near)
    if a.labels is not None:
        assert adjusted_rand_index(a.labels[order], b.labels) == 1


@lines(lambda line: "" if line.start == "independent" else line.start)
def test_u4_permuting_the_initial_models_permutes_labels(line):
    class Swapped(type(line.usual())):
        def start(self, fed, model, context):
            state = super().start(fed, model, context)
            return replace(state, models=state.models[::-1].copy())

    swapped = Swapped(
        **{
            name: value
            for name, value in line.usual().settings().items()
            if name != "name"
        }
    )
    a, b = usual_run(line), run(swapped, digits(equal=False))
    assert len(np.unique(a.labels)) > 1  # else there is nothing to permute
    assert np.array_equal(b.labels, K - 1 - a.labels)
    assert np.allclose(final(a), final(b), rtol=0, atol=1e-12)
    assert a.clients["test"].equals(b.clients["test"])


@always
def test_u5_equal_clients_agree_and_aggregation_changes_nothing(line):
    fed = digits()
    same = replace(
        fed,
        train=[fed.train[0]] * M,
        test=[fed.test[0]] * M,
        clusters=np.zeros(M, dtype=np.int64),
    )
    result = run(line.usual(), same, rounds=ROUNDS + line.late)
    assert np.ptp(final(result), axis=0).max() < 1e-12
    # what one client, alone with the same start, would reach; IFCA starts from the
    # model it picked
    one = {
        "train": same.train[:1],
        "test": same.test[:1],
        "val": same.val[:1],
        "clusters": same.clusters[:1],
    }
    picked = int(result.rows[0]) if line.start == "independent" else 0

    if line.personal:
        # not closer: FedRC floors a sum over the clients, which is larger for six than
        # for one
        assert np.allclose(
            final(result),
            final(run(line.usual(), replace(same, **one))),
            rtol=0,
            atol=1e-8,
        )
        return

    class From(m.Local):
        def start(self, fed, model, context):
            state = super().start(fed, model, context)
            return replace(state, models=model.init(context.seed, picked)[None])

        def local_training(self):
            return line.usual().local_training()

    assert np.allclose(
        final(result), final(run(From(), replace(same, **one))), rtol=0, atol=1e-12
    )


class Arbitrary:
    """An engine that measures as usual, and whose training gives anything."""

    def __init__(self, engine, rng):
        self.fed, self.model, self.spec, self.device = (
            engine.fed,
            engine.model,
            engine.spec,
            engine.device,
        )
        self.evaluate = engine.evaluate
        self.rng = rng

    def train(self, theta, rows, clients, round, sample_weights=None, how=None):
        assert theta[rows].shape == (len(clients), self.model.n_parameters)
        return training.Trained(
            self.rng.normal(size=theta[rows].shape).astype(np.float32),
            np.zeros(len(clients)),
        )


def drive(method, fed, rounds=3, seed=0):
    """Feed a method with arbitrary trained models; yield what was around (n, P), and
    what clients are served (M, P)."""
    rng = np.random.default_rng(seed)
    net = models.make("mlp_plain", fed.input_shape, fed.n_classes)
    with training.make_engine(fed, net, training.TrainSpec(), "serial") as engine:
        state = method.start(fed, net, m.Context(seed))
        around = [
            served(method, state),
            np.stack([net.init(seed, k) for k in range(K)]),
        ]
        for round in range(1, rounds + 1):
            clients = np.sort(
                rng.choice(fed.n_clients, size=fed.n_clients - round, replace=False)
            )
            state = method.observe(state, clients, round, engine)
            state, trained = method.train(state, clients, round, Arbitrary(engine, rng))
            around.append(trained.theta.reshape(-1, net.n_parameters))
            state = method.collect(state, clients, trained.theta, round)
            yield np.vstack(around), np.array(served(method, state))


@lines(lambda line: line.mean)
def test_u6_aggregates_are_means_of_what_was_sent(line):
    """No parameter leaves the range of the models around, and a mean of weights that
    sum to 1 solves for them."""
    for around, now in drive(line.usual(), digits(equal=False)):
        assert (now >= around.min(axis=0) - 1e-6).all() and (
            now <= around.max(axis=0) + 1e-6
        ).all()
        for part in line.parts(models.make("mlp_plain", (1, 8, 8), 10)):
            distinct = np.stack(
                list({row.tobytes(): row for row in around[:, part]}.values())
            ).astype(np.float64)
            mean = now[:, part].T
            weights, *_ = np.linalg.lstsq(
                distinct.T, mean.astype(np.float64), rcond=None
            )
            assert np.allclose(distinct.T @ weights, mean, atol=1e-4)
            assert (weights > -1e-4).all() and np.allclose(
                weights.sum(axis=0), 1, atol=1e-4
            )


@lines(lambda line: line.still)
def test_u7_without_a_step_nothing_moves_and_labels_are_defined(line):
    fed = digits(equal=False)
    result = run(line.usual(), fed, lr=0.0)
    net = models.make("mlp_plain", fed.input_shape, fed.n_classes)
    starts = np.stack([net.init(0, k) for k in range(K)])
    rows = result.rows if line.start == "independent" else np.zeros(M, dtype=int)
    assert np.array_equal(final(result).astype(np.float32), starts[rows])
    if result.labels is not None:
        assert result.labels.shape == (M,) and (result.labels >= 0).all()


def same_bits(a, b):
    labels = a.labels is b.labels is None or np.array_equal(a.labels, b.labels)
    return (
        np.array_equal(a.theta, b.theta) and np.array_equal(a.rows, b.rows) and labels
    )


def variants(line):
    """The method as it is used and, where the tables' code departs from it, as it was
    run."""
    usual = line.usual()
    yield usual
    if type(usual).__name__ in OTHERS:
        yield OTHERS[type(usual).__name__]()
    if type(usual).__name__ in m.AS_RUN:
        kept = {
            k: v
            for k, v in usual.settings().items()
            if k in ("name", "n_clusters", "clusterer", "tau")
        }
        yield m.build({"variant": "as_run"} | kept)


@always
def test_u8_two_runs_have_the_same_bits_though_one_was_interrupted(
    line, tmp_path, monkeypatch
):
    fed = digits(equal=False)
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    for first, method in zip((True, False, False), variants(line), strict=False):
        path, stopped = tmp_path / f"{id(method)}.npz", m.build(method.settings())

        def collect(state, clients, theta, round, stopped=stopped):
            if round == 3:
                raise KeyboardInterrupt
            before = state.mapped(np.array).arrays()
            after = type(stopped).collect(stopped, state, clients, theta, round)
            for name, old in before.items():
                # last known models are changed where they lie: those of participants
                if name == "memory":
                    old[clients] = state.memory[clients]
                assert np.array_equal(
                    old, getattr(state, name), equal_nan=old.dtype.kind == "f"
                ), name
            return after

        monkeypatch.setattr(stopped, "collect", collect, raising=False)
        with pytest.raises(KeyboardInterrupt):
            run(stopped, fed, ROUGH, checkpoint=path)
        a = usual_run(line, rough=True) if first else run(method, fed, ROUGH)
        b = run(method, fed, ROUGH, checkpoint=path)
        assert same_bits(a, b)
        assert a.history.drop(columns="seconds").equals(
            b.history.drop(columns="seconds")
        )


@always
def test_u9_test_labels_are_for_reporting_only(line):
    fed = digits(equal=False)
    labels, tested = fed.labels.copy(), np.unique(np.concatenate(fed.test))
    assert not np.isin(tested, np.concatenate(fed.train)).any()
    labels[tested] = np.random.default_rng(0).integers(0, fed.n_classes, len(tested))
    a, b = (
        usual_run(line, rough=True),
        run(line.usual(), replace(fed, labels=labels), ROUGH),
    )
    assert same_bits(a, b)
    assert not a.clients["test"].equals(b.clients["test"])


@always
def test_u10_counted_traffic_is_that_of_the_table(line):
    result = usual_run(line, rough=True)
    P, sent = result.theta.shape[1], 3 * (M // 2)  # three rounds of half the clients
    up, down = line.setup(digits(equal=False))
    if line.once:
        up, down = np.add((up, down), line.once(P))
    last = result.history.iloc[-1]
    assert last["bytes_up"] == up + 4 * sent * line.up(P)
    assert last["bytes_down"] == down + 4 * sent * line.down(P)


def test_the_usual_settings_form_clusters():
    """Else most of the above would compare FedAvg with itself."""
    single = {
        "FedAvg",
        "FedProx",
        "FedSGD",
        "FedDist",
        "FedDistWS",
        "FedDANE",
        "Local",
        "PFedGraph",
        "FedSaC",
        "FedPer",
        "Ditto",
        "FedRep",
    }
    for name, line in LINES.items():
        labels = usual_run(line).labels
        assert name in single if labels is None else len(np.unique(labels)) > 1, name
