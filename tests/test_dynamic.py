"""Federations that change, dynamic clustering and soft graphs: worked by hand, and on
digits.
"""

import json
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import rebuilt, refused, two_clusters

import fltnb as fl
from fltnb.aggregate import distinct_rows
from fltnb.analyses import dynamic
from fltnb.clustering import FCR
from fltnb.encoders.embedding import embed_from_latest
from fltnb.errors import FltnbError
from fltnb.federations import SPLITS, with_events
from fltnb.federations.phases import phases, some_clients
from fltnb.methods import FLT, Context, DynamicFLT, FedAvg, Local, Oracle, SoftFLT
from fltnb.methods.flt import soft_graph
from fltnb.methods.graph import GraphState, rewire
from fltnb.rounds import participants, run

QUICK = {
    "model": "mlp",
    "lr": 0.05,
    "local_epochs": 2,
    "progress": False,
    "backend": "stacked",
}
EVENTS = [{"round": 3, "join": 5, "drift": 4}]
ENCODER = fl.encoders.EncoderSpec("pca", "digits", latent=16)


def fcr(**options):
    return FCR(k=2, n_neighbors=5, random_state=42, **options)


@pytest.fixture(scope="module")
def base(digits):
    return fl.federations.label_clusters(
        digits, n_clients=25, n_clusters=5, classes_per_cluster=2
    )


@pytest.fixture(scope="module")
def fed(base):
    return with_events(base, EVENTS)


@pytest.fixture(scope="module")
def cache():
    """A cache for clusterings, as the store keeps one."""
    return keeping()


def keeping():
    kept = {}

    def look_up(key, compute):
        name = json.dumps(key, sort_keys=True)
        kept[name] = kept[name] if name in kept else compute()
        return kept[name]

    return look_up


def held(fed, split="train"):
    return sorted(np.concatenate(getattr(fed, split)).tolist())


def test_some_clients_keep_their_samples_and_their_names(base):
    chosen = [7, 2, 3]
    part = some_clients(base, chosen)
    assert part.n_clients == 3 and part.fingerprint() != base.fingerprint()
    assert part.clusters.tolist() == base.clusters[chosen].tolist()
    for split in SPLITS:
        of_all, kept = getattr(base, split), getattr(part, split)
        assert all(np.array_equal(kept[i], of_all[c]) for i, c in enumerate(chosen))
    assert part.names == ("0", "1", "2")
    named = replace(base, names=[f"w{i}" for i in range(base.n_clients)])
    assert some_clients(named, chosen).names == ("w7", "w2", "w3")
    # client 7 with the data of client 1
    given = some_clients(named, [7], [1])
    assert given.names == ("w7",) and np.array_equal(given.train[0], base.train[1])


def test_newcomers_come_last_and_drift_moves_data_between_clusters(base, fed):
    first, second = fed.phases
    assert (first.round, first.fed.n_clients, second.round, second.fed.n_clients) == (
        1,
        20,
        3,
        25,
    )
    assert list(second.changed[20:]) == [True] * 5 and second.changed[:20].sum() == 4
    assert sorted(second.fed.clusters[20:]) == [
        0,
        1,
        2,
        3,
        4,
    ]  # drawn evenly from the true clusters
    moved = np.flatnonzero(second.changed[:20])
    assert (first.fed.clusters[moved] != second.fed.clusters[moved]).all()
    for i in range(20):
        same = first.fed.train[i] is second.fed.train[i]
        assert same == (i not in moved)
        assert set(fed.labels[second.fed.train[i]]) == set(
            fed.labels[second.fed.test[i]]
        )
    assert held(second.fed) == held(base)  # nothing is lost or held twice
    assert len({id(index) for index in second.fed.test}) == 5  # test sets stay shared
    assert list(np.unique(fed.groups, return_counts=True)[1]) == [4, 5, 16]


def test_it_is_rebuilt_and_its_fingerprint_covers_rounds_and_who_changes(base, fed):
    assert [p.fed.fingerprint() for p in rebuilt(fed).phases] == [
        p.fed.fingerprint() for p in fed.phases
    ]
    events = (
        {"round": 4, "join": 5, "drift": 4},
        {"round": 3, "join": 5},
        {"round": 3, "drift": 4},
    )
    feds = [
        base,
        fed,
        with_events(base, EVENTS, seed=1),
        *[with_events(base, [event]) for event in events],
    ]
    assert len({one.fingerprint() for one in feds}) == 6
    new_kind = with_events(base, [{"round": 5, "join": 5, "cluster": 4}])
    assert 4 not in new_kind.phases[0].fed.clusters
    assert (new_kind.clusters[20:] == 4).all()


@given(st.integers(2, 5), st.integers(1, 6), st.data())
@settings(max_examples=40, deadline=None)
def test_events_keep_every_sample_and_every_client(n_clusters, per_cluster, data):
    M = n_clusters * per_cluster
    clusters = np.repeat(np.arange(n_clusters), per_cluster)
    x = np.arange(4 * M, dtype=np.float32)[:, None]
    fed = fl.Federation.from_arrays(
        x, np.tile([0, 1], 2 * M), np.repeat(np.arange(M), 4), clusters=clusters
    )
    join = data.draw(st.integers(0, M - 1))
    drift = 2 * data.draw(st.integers(0, max(0, (M - join) // 2 - 1)))
    if not join and not drift:
        return
    try:
        after = with_events(
            fed,
            [{"round": 2, "join": join, "drift": drift}],
            seed=data.draw(st.integers(0, 99)),
        )
    except FltnbError as error:
        assert "of one cluster" in str(error)
        return
    for split in SPLITS:
        assert held(after, split) == held(fed, split)
    assert after.phases[0].fed.n_clients == M - join
    drifted = after.groups[: M - join] == "drifted"
    assert drifted.sum() == drift
    assert np.array_equal(
        after.phases[0].fed.clusters != after.clusters[: M - join], drifted
    )
    assert sorted(after.clusters) == sorted(clusters)


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        ([], "needs an event"),
        ([{"round": 1, "join": 2}], "round must be a whole number of at least 2"),
        ([{"round": 5}], "changes nothing"),
        ([{"round": 5, "joins": 5}], "option of an event 'joins'"),
        ([{"round": 5, "join": 26}], "26 clients are to join but only 25 can"),
        ([{"round": 5, "join": 25}], "leave at least one"),
        ([{"round": 5, "drift": 1}], "single client cannot drift"),
        ([{"round": 5, "drift": 3}, {"round": 5, "join": 3}], "same round"),
        (
            [{"round": 5, "join": 6, "cluster": 4}],
            "6 clients are to join but only 5 can",
        ),
        (
            [{"round": 5, "join": 15, "drift": 11}],
            "11 clients are to drift but only 10 can",
        ),
        (["round 5"], "must be a dict"),
        ([{"round": 5, "drift": 4, "cluster": 1}], "from which nobody joins"),
    ],
)
def test_bad_events_are_refused_in_one_sentence(base, events, sentence):
    refused(sentence, with_events, base, events)


def test_an_event_names_no_cluster_that_is_unknown(base):
    events = [{"round": 5, "join": 2, "cluster": 0}]
    unknown = replace(base, clusters=None)
    refused("true cluster, and those of .* are unknown", with_events, unknown, events)


def test_weights_of_a_graph_stay_as_they_are():
    relation, _ = distinct_rows(np.array([[300, 256], [1, 1]]))
    assert relation.tolist() == [[1, 1], [300, 256]]


def state_of(models, row, weights, relation=None):
    relation = (
        np.eye(len(models), dtype=np.uint8)[:, row] if relation is None else relation
    )
    return GraphState(
        models=np.array(models, dtype=np.float32),
        weights=np.array(weights, dtype=np.float64),
        row=np.array(row),
        relation=relation,
    )


def blocks(labels):
    labels = np.array(labels)
    return (labels[:, None] == labels[None]).astype(np.uint8), labels


def test_rewiring_by_hand():
    # new clusters start from what their members were served
    state = state_of([[0, 0], [8, 4]], [0, 0, 1, 1], [10, 30, 20, 20])
    adjacency, labels = blocks([0, 1, 1, 0])
    new = rewire(state, adjacency, labels, [10, 30, 20, 20], np.ones(4, dtype=bool))
    served = new.models[new.row]
    assert np.allclose(
        served[0], [8 * 20 / 30, 4 * 20 / 30]
    )  # clients 0 (10 samples) and 3 (20)
    assert np.allclose(
        served[1], [8 * 20 / 50, 4 * 20 / 50]
    )  # clients 1 (30) and 2 (20)
    assert np.array_equal(served[0], served[3])
    # clients that changed have no say unless nobody else is there
    state = state_of([[0, 0], [8, 4]], [0, 0, 1, 1], [1, 1, 1, 1])
    adjacency, labels = blocks([0, 1, 1, 2])
    new = rewire(
        state, adjacency, labels, [1, 1, 1, 1], np.array([True, False, True, False])
    )
    assert np.array_equal(new.models[new.row], [[0, 0], [8, 4], [8, 4], [8, 4]])

    # unchanged clusters keep their bits
    rng = np.random.default_rng(0)
    adjacency, labels = blocks([0, 1, 2, 1, 0, 2])
    relation, row = distinct_rows(adjacency)
    state = state_of(rng.normal(size=(3, 50)), row, rng.integers(1, 99, 6), relation)
    new = rewire(state, adjacency, labels, state.weights, np.array([True, False] * 3))
    assert np.array_equal(new.models[new.row], state.models[row])

    # newcomers bring the mean of all models
    state = state_of([[0.0], [8.0]], [0, 1], [10, 30])
    state.memory = np.array([[1.0], [2.0]])
    new = rewire(
        state, np.eye(3, dtype=np.uint8), None, [10, 30, 5], np.ones(3, dtype=bool)
    )
    assert new.models[new.row].ravel().tolist() == [0, 8, 6]
    assert new.memory.ravel().tolist() == [1, 2, 6]


def test_fedavg_and_local_take_newcomers_in(fed):
    """FedAvg serves them the one model; alone, they begin with the common
    initialisation.
    """
    first, second = fed.phases
    net = fl.models.make("mlp", fed.input_shape, fed.n_classes)
    for method, expected in ((FedAvg(), 7.0), (Local(), None)):
        state = method.start(first.fed, net, Context(0))
        state.models = np.full_like(state.models, 7)
        state = method.changed(state, second.fed, net, second.changed, Context(0))
        theta, rows = method.serve(state)
        assert len(rows) == 25 and (theta[rows[:20]] == 7).all()
        assert np.array_equal(
            theta[rows[24]],
            net.init(0) if expected is None else np.full(net.n_parameters, 7),
        )


@pytest.mark.parametrize(
    ("options", "fired", "most"),
    [
        (
            {"lam": 0},
            {3: "lambda"},
            1,
        ),  # the newcomer's flag; re-clustering sees client 1's data too
        (
            {"lam": 1},
            {5: "lambda"},
            2,
        ),  # client 1 takes part for the first time after its change
        ({"lam": 2}, {}, 2),
        # the text counts rounds from 0
        ({"tau": 4}, {1: "tau", 5: "tau"}, 2),
        ({"tau": 4, "first": "round tau"}, {4: "tau"}, 1),
        ({"lam": 0, "newcomers": "nearest"}, {5: "lambda"}, 1),
        ({"lam": 0, "newcomers": "nearest", "drifted": "nearest"}, {}, 0),
    ],
)
def test_schedule_by_hand(options, fired, most):
    """Clients 0 to 3; before round 3 client 1 drifts and client 4 joins."""
    toys = [
        SimpleNamespace(round=r, fed=SimpleNamespace(n_clients=n))
        for r, n in ((1, 4), (3, 5))
    ]
    toys[1].changed = np.array([False, True, False, False, True])
    drawn = [np.array([client]) for client in (0, 1, 0, 2, 1, 1)]
    assert DynamicFLT(fcr(), ENCODER, **options).schedule(toys, drawn) == (fired, most)


class Spy(DynamicFLT):
    """Notes the rounds in which it clusters."""

    round = 0

    def revise(self, state, fed, round, context):
        self.round = round
        return super().revise(state, fed, round, context)

    def client_graph(self, *arguments):
        self.seen.append(self.round)
        return super().client_graph(*arguments)


def test_a_newcomer_waits_unless_it_was_placed(fed, cache):
    """Whoever was placed also counts where the models of new clusters come from."""
    first, second = (phase.fed for phase in phases(fed))
    model = fl.models.make("mlp", fed.input_shape, fed.n_classes)
    new = np.arange(second.n_clients) >= first.n_clients
    context = fl.methods.Context(0, model=model, cache=cache)
    for joining, waiting in (("alone", 5), ("placed", 0)):
        method = DynamicFLT(fcr(), ENCODER, tau=1, joining=joining)
        state = method.start(first, model, context)
        state = method.changed(state, second, model, new, context)
        assert state.alone.sum() == waiting
        assert state.flags.tolist() == new.tolist()
        again = method.revise(state, second, 3, context)
        assert not again.alone.any() and not again.flags.any()


@pytest.mark.parametrize(
    "options",
    [
        {"lam": 0},
        {"lam": 6},
        {"tau": 3},
        {"lam": 5, "tau": 4},
        {"lam": 1, "newcomers": "nearest"},
        {"lam": 3, "drifted": "nearest", "joining": "placed"},
    ],
)
def test_what_was_foreseen_is_what_happens(base, cache, options):
    fed, rounds = with_events(replace(base, probe=base.test), EVENTS), 9
    drawn = [participants(20 if t < 3 else 25, 0.3, 0, t) for t in range(1, rounds + 1)]
    method = Spy(fcr(), ENCODER, **options)
    method.seen = []
    run(
        method,
        fed,
        rounds=rounds,
        participation=0.3,
        cache=cache,
        **QUICK | {"local_epochs": 1, "eval_every": 9},
    )
    assert method.seen[1:] == list(method.schedule(phases(fed), drawn)[0])
    assert len(method.seen) > 1


def test_lambda_or_tau_that_never_fire_are_named_before_the_run(base, fed):
    def check(fed, **options):
        fl.rounds.check(DynamicFLT(fcr(), ENCODER, **options), fed, rounds=8)

    with pytest.warns(UserWarning, match="lam = 9 has no effect in these 8 rounds"):
        check(fed, lam=9)
    with pytest.warns(UserWarning, match="at most 0 are"):
        check(base, lam=0)
    with pytest.warns(UserWarning, match="tau = 9 has no effect after round 1"):
        check(base, tau=9)
    with warnings.catch_warnings(action="error"):
        check(fed, lam=4, tau=7)


def test_options_and_runs_that_cannot_be_are_refused_before_work(fed):
    refused(
        "2 of 3 drifting clients are of one",
        with_events,
        two_clusters(10),
        [{"round": 2, "drift": 3}],
    )
    refused("Nothing is dynamic", DynamicFLT, fcr())
    refused("needs FCR", DynamicFLT, fl.PCAKMeans(), newcomers="nearest")
    refused(
        "changes before round 3 but the run ends with round 2",
        run,
        FedAvg(),
        fed,
        rounds=2,
        **QUICK,
    )
    refused(
        "emdcfl does not define the model of a client that joins",
        run,
        fl.methods.EMDCFL(fl.EMDClustering()),
        fed,
        rounds=4,
        **QUICK,
    )
    many = DynamicFLT(fcr(n_clusters=21), ENCODER, lam=0)
    refused("from 1 to the number of clients, 20", run, many, fed, rounds=4, **QUICK)


def test_re_clustering_clients_that_did_not_change_changes_nothing_but_the_bytes(
    base, cache
):
    for graph in ("clusters", "full"):
        static = run(
            FLT(fcr(), graph, encoder=ENCODER), base, rounds=4, cache=cache, **QUICK
        )
        again = run(
            DynamicFLT(fcr(), ENCODER, tau=2, graph=graph),
            base,
            rounds=4,
            cache=cache,
            **QUICK,
        )
        assert np.array_equal(static.theta[static.rows], again.theta[again.rows])
        up = again.history["bytes_up"] - static.history["bytes_up"]
        centroids = 4 * 25 * 2 * 16  # 25 clients, 2 centroids of 16 numbers
        # after rounds 1 and 3, as rounds are counted from 0
        assert up[again.history["round"] == 0].unique().tolist() == [0]
        assert up[again.history["round"] == 2].unique().tolist() == [centroids]
        assert up[again.history["round"] == 4].unique().tolist() == [2 * centroids]
        assert (
            again.history["bytes_down"] == static.history["bytes_down"]
        ).all()  # they have the encoder


def test_re_clustering_and_nearest_find_the_new_clusters_and_static_flt_does_not(
    fed, cache
):
    settings = QUICK | {"rounds": 12, "participation": 0.4, "cache": cache}
    static = run(FLT(fcr(), encoder=ENCODER), fed, **settings)
    flags = run(DynamicFLT(fcr(), ENCODER, lam=5), fed, **settings)
    nearest = run(
        DynamicFLT(fcr(), ENCODER, newcomers="nearest", drifted="nearest"),
        fed,
        **settings,
    )
    oracle = run(Oracle(), fed, **settings)
    ari = [
        fl.metrics.adjusted_rand_index(fed.clusters, r.labels)
        for r in (static, flags, nearest, oracle)
    ]
    assert ari[0] < 0.6 and ari[1:] == [1, 1, 1]
    assert min(flags.accuracy, nearest.accuracy) > static.accuracy + 5
    group = {name: f"accuracy_{name}" for name in ("stayed", "drifted", "joined")}
    last = [r.history[r.history["split"] == "test"].iloc[-1] for r in (static, flags)]
    assert last[0][group["drifted"]] < 80 < 90 < last[1][group["drifted"]]
    # placing costs one mean embedding per client, a re-clustering all centroids
    once = [r.history["bytes_up"].iloc[0] for r in (static, nearest)]
    assert once[1] - once[0] == 4 * 20 * 2  # the shares of 20 clients' 2 centroids
    moved = 4 * 16 * (5 + 4)
    rounds_up = static.history["bytes_up"].iloc[-1] - once[0]
    assert nearest.history["bytes_up"].iloc[-1] == once[1] + rounds_up + moved
    with pytest.warns(UserWarning, match="lam = 99 has no effect"):
        placed = run(
            DynamicFLT(fcr(), ENCODER, lam=99, drifted="nearest"), fed, **settings
        )
    assert placed.history["bytes_down"].equals(
        static.history["bytes_down"]
    )  # newcomers that wait get no encoder
    encoder = 4 * fl.encoders.sent_parameters(ENCODER, fed.input_shape)
    for r in (flags, nearest):
        down = r.history["bytes_down"] - static.history["bytes_down"]
        assert down.iloc[-1] == 5 * encoder


def test_clients_with_names_are_placed_when_they_join(digits):
    client_ids = [f"ward {i % 8}" for i in range(640)]
    named = fl.Federation.from_arrays(
        digits.images[:640],
        digits.labels[:640],
        client_ids,
        clusters=[0, 1] * 4,
    )
    joined = with_events(named, [{"round": 2, "join": 2}])
    method = DynamicFLT(FCR(k=2, n_neighbors=3), ENCODER, newcomers="nearest")
    found = run(method, joined, **(QUICK | {"rounds": 3}))
    assert found.names == joined.names and (found.labels >= 0).all()


TUNED = fl.encoders.EncoderSpec("convae", "digits", epochs=1, finetune_epochs=1)


def test_clients_tune_their_encoder_on_from_its_latest_state(digits, own_store):
    fed = fl.federations.label_clusters(digits, 4, 2, classes_per_cluster=2)
    once, latest = embed_from_latest(fed, TUNED)
    for own, pretrained in zip(
        once, fl.encoders.embed_clients(fed, TUNED), strict=True
    ):
        np.testing.assert_array_equal(own, pretrained)
    # client 2 starts anew, the others go on
    latest[2] = np.nan
    twice, _ = embed_from_latest(fed, TUNED, latest)
    same = [np.array_equal(*pair) for pair in zip(once, twice, strict=True)]
    assert same == [False, False, True, False]


def test_a_tuned_encoder_is_the_same_after_a_tuning_of_no_epochs(digits, own_store):
    fed = fl.federations.label_clusters(digits, 4, 2, classes_per_cluster=2)
    _, fresh = embed_from_latest(fed, TUNED)  # the encoder is trained, and stored
    still = replace(TUNED, finetune_epochs=0)
    _, unchanged = embed_from_latest(fed, still, fresh)  # now it is read
    np.testing.assert_array_equal(unchanged, fresh)


@pytest.mark.parametrize("newcomers", ["recluster", "nearest"])
def test_a_clustering_is_made_with_the_encoders_of_the_one_before(
    digits, own_store, monkeypatch, newcomers
):
    starts, ends = [], []

    def embed(fed, spec, latest=None, **shown):
        embedded, tuned = embed_from_latest(fed, spec, latest, **shown)
        starts.append(latest)
        ends.append(tuned)
        return embedded, tuned

    monkeypatch.setattr("fltnb.methods.dynamic.embed_from_latest", embed)
    base = fl.federations.label_clusters(digits, 10, 2, classes_per_cluster=2)
    fed = with_events(base, [{"round": 2, "join": 2}])
    method = DynamicFLT(fcr(), TUNED, tau=2, newcomers=newcomers, first="round tau")
    run(method, fed, rounds=3, **QUICK)

    # two clusterings, each made once though nothing keeps it
    assert len(starts) == 2 + (newcomers == "nearest")
    assert starts[0] is None and len(ends[0]) == 8
    of_newcomers = np.full((2, ends[0].shape[1]), np.nan)
    if newcomers == "nearest":  # they tune when they join
        assert np.isnan(starts[1]).all() and len(starts[1]) == 2
        of_newcomers = ends[1]
    everybody = np.vstack([ends[0], of_newcomers])
    np.testing.assert_array_equal(starts[-1], everybody)

    starts.clear()
    run(replace(method, tuned_from="pretrained"), fed, rounds=3, **QUICK)
    assert starts == []


def test_groups_of_clients_add_up_and_before_the_event_all_is_as_in_the_first_phase(
    fed,
):
    history = run(FedAvg(), fed, rounds=3, **QUICK).history
    test = history[history["split"] == "test"].set_index("round")
    assert np.isnan(test.loc[2, "accuracy_joined"])
    parts = test.loc[
        3, ["accuracy_stayed", "accuracy_drifted", "accuracy_joined"]
    ].to_numpy(dtype=float)
    assert parts @ [16, 4, 5] / 25 == pytest.approx(test.loc[3, "accuracy"])
    plain = run(FedAvg(), fed.phases[0].fed, rounds=2, **QUICK).history
    assert not [name for name in plain.columns if name.startswith("accuracy_")]
    columns = ["round", "split", "accuracy", "variance", "loss", "bytes_up"]
    assert (
        history.loc[history["round"] <= 2, columns]
        .reset_index(drop=True)
        .equals(plain[columns])
    )


def four(M):
    """Up to four clients, and a model of two numbers."""
    fed = SimpleNamespace(
        n_clients=M, sizes=np.array([10, 30, 20, 20][:M]), input_shape=(1, 1, 2)
    )
    return fed, SimpleNamespace(
        init=lambda seed: np.array([1.0, 2.0], dtype=np.float32)
    )


def soft_state(distance, rule="participants", weight="linear", scale=1.0):
    M = len(distance)
    known = SimpleNamespace(
        labels_=np.zeros(M, dtype=int),
        distance_=np.array(distance, dtype=float),
        threshold=1.0,
    )
    known.adjacency_ = (known.distance_ < 1).astype(np.uint8)
    known.get_params = lambda deep: {}
    method = SoftFLT(known, weight, scale, rule=rule)
    return method, method.start(*four(M), Context(0))


def test_soft_weights_and_averages_by_hand():
    distance = np.array([[0, 1, 4], [1, 0, np.inf], [4, np.inf, 0]])
    near, far = np.exp(-0.25), np.exp(-4)
    assert np.allclose(
        soft_graph(distance, 2.0), [[1, near, far], [near, 1, 0], [far, 0, 1]]
    )
    assert np.allclose(
        soft_graph(distance, 2.0, "linear"), [[1, 0.75, 0], [0.75, 1, 0], [0, 0, 1]]
    )
    method, state = soft_state([[0, 1], [1, 0]])  # weight 1/2
    state = method.collect(
        state, np.array([0, 1]), np.array([[4, 0], [0, 8]], dtype=np.float32), 1
    )
    served = state.models[state.row]
    assert np.allclose(
        served[0], [4 * 10 / 25, 8 * 15 / 25]
    )  # 10 samples in full, 30 by half
    assert np.allclose(served[1], [4 * 5 / 35, 8 * 30 / 35])
    state = method.collect(
        state, np.array([0]), np.array([[6, 6]], dtype=np.float32), 2
    )
    again = state.models[state.row]
    assert np.allclose(again[0], 6)
    # client 1 sees client 0 at half weight, and keeps half of its own 30 samples' worth
    assert np.allclose(again[1], (5 * 6 + 15 * served[1]) / 20)


@pytest.mark.parametrize("rule", fl.methods.RULES)
@pytest.mark.parametrize("weight", ["gaussian", "linear"])
def test_distances_of_zero_and_infinity_give_case_1(rule, weight):
    related = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]])
    method, soft = soft_state(np.where(related, 0.0, np.inf), rule, weight)
    known = SimpleNamespace(
        labels_=np.zeros(4, dtype=int), adjacency_=related, get_params=lambda deep: {}
    )
    hard_method = FLT(known, "full", rule=rule)
    hard = hard_method.start(*four(4), Context(0))
    rng = np.random.default_rng(0)
    for round, clients in enumerate(([0, 3], [2], [0, 1, 2, 3], [1]), start=1):
        trained = rng.normal(size=(len(clients), 2)).astype(np.float32)
        soft = method.collect(soft, np.array(clients), trained, round)
        hard = hard_method.collect(hard, np.array(clients), trained, round)
        assert np.array_equal(soft.models[soft.row], hard.models[hard.row])


def test_the_course_of_a_federation(fed):
    method = {"name": "flt_tau", "kind": "DynamicFLT", "tau": 2}
    found = dynamic.course(
        fed.settings, {"flt_tau": method}, rounds=5, participation=0.4, seed=0
    )
    row = found["tables"]["schedule"].iloc[0]
    assert (
        row["clusters again after rounds"] == "1 (tau), 3 (tau), 5 (tau)"
        and row["tau"] == 2
        and np.isnan(row["lambda"])
    )
    arrays = found["arrays"]
    assert arrays["rounds"].tolist() == [1, 3] and arrays["counts"].shape == (2, 25, 10)
    assert (arrays["counts"][0, 20:] == 0).all() and (
        arrays["clusters"][0, 20:] == -1
    ).all()  # not there yet
    assert (
        arrays["counts"][1].sum() == fed.sizes.sum()
        and (arrays["clusters"][1] == fed.clusters).all()
    )
    moved = np.flatnonzero(fed.groups == "drifted")
    assert np.flatnonzero(arrays["changed"][1]).tolist() == [*moved, 20, 21, 22, 23, 24]
    assert (arrays["clusters"][0, moved] != arrays["clusters"][1, moved]).all()
