"""PACFL, FedClust, FlexCFL, CFLGP: known answers on a few numbers, and on digits that
are turned."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from toys import QUICK, held_out, refused, served, steps

import fltnb as fl
from fltnb import methods
from fltnb.clustering import PACFL
from fltnb.clustering.pacfl import client_angles, singular_vectors
from fltnb.methods import (
    CFLGP,
    CFLGPAsRun,
    Context,
    FedClust,
    FedClustAsRun,
    FlexCFL,
    FlexCFLAsRun,
    build,
)
from fltnb.methods.baselines.cflgp import renamed
from fltnb.methods.baselines.flexcfl import decomposed_cosines, pull
from fltnb.methods.modelspace import cosines, inner_products, leading_features
from fltnb.metrics import adjusted_rand_index
from fltnb.training import Trained

FOUR = np.arange(4)


def turned(n_clients=6, val=0, **options):
    """Clients of two clusters: digits as they are, and turned by a right angle."""
    return held_out(
        fl.federations.rotated(
            fl.load("digits"), n_clients, ((0,), (90,)), 40, 10, **options
        ),
        val,
    )


def test_pacfl_distance_is_no_principal_angle_and_the_sign_is_fixed():
    left, right = np.array([[1.0, 0], [0, 1]]), np.array([[-1.0, 0], [0, -1]])
    assert np.allclose(
        client_angles([left, right]), [[0, 90], [90, 0]]
    )  # what an arbitrary sign would do
    vectors = singular_vectors(-np.random.default_rng(0).random((9, 5)), 3)
    assert (vectors.max(axis=0) >= -vectors.min(axis=0)).all() and np.allclose(
        vectors.T @ vectors, np.eye(3)
    )
    # subspaces that meet in no column: (1,1)/sqrt2 lies in both, and every pair of
    # columns is 45 degrees or more
    plane = np.array([[1.0, 0, 0], [0, 1.0, 0]]).T
    tilted = np.array([[1.0, 1, 0], [0, 0, np.sqrt(2)]]).T / np.sqrt(2)
    assert np.allclose(client_angles([plane, tilted])[0, 1], 45)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_pacfl_angles_against_a_loop_over_classes(seed):
    rng = np.random.default_rng(seed)
    clients = [rng.random((8, 6)) for _ in range(4)]
    classes = [rng.integers(0, 3, 8) for _ in range(4)]
    fitted = PACFL(n_vectors=2).fit(clients, classes)
    for i in range(4):
        for j in range(4):
            angles = [0.0] if i == j else []
            for c in np.unique(classes[i]):
                for d in np.unique(classes[j]):
                    a = singular_vectors(clients[i][classes[i] == c], 2)
                    b = singular_vectors(clients[j][classes[j] == d], 2)
                    angles += (
                        np.degrees(np.arccos(np.clip(a.T @ b, -1, 1))).ravel().tolist()
                    )
            assert np.isclose(fitted.distance_[i, j], min(angles), atol=1e-4)
    assert np.array_equal(fitted.distance_, fitted.distance_.T)
    shuffled = [rng.permutation(8) for _ in range(4)]
    moved = [
        (7.5 * x[order], y[order])
        for x, y, order in zip(clients, classes, shuffled, strict=True)
    ]
    again = clone(fitted).fit(*zip(*moved, strict=True))
    assert np.allclose(again.distance_, fitted.distance_, atol=1e-4)


def merged_by_hand(distance, threshold):
    """The official procedure: merge the closest pair while it is close enough, and
    average the two rows."""
    groups, D = [[i] for i in range(len(distance))], distance.copy()
    np.fill_diagonal(D, np.inf)
    while len(groups) > 1 and D.min() <= threshold:
        a, b = sorted(np.unravel_index(D.argmin(), D.shape))
        D[a] = D[:, a] = (D[a] + D[b]) / 2
        D[a, a] = np.inf
        D = np.delete(np.delete(D, b, axis=0), b, axis=1)
        groups[a] += groups.pop(b)
    return {frozenset(group) for group in groups}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 60))
def test_pacfl_merges_as_the_official_loop_does(seed, threshold):
    rng = np.random.default_rng(seed)
    fitted = PACFL(threshold=threshold).fit([rng.normal(size=(3, 4)) for _ in range(7)])
    found = {
        frozenset(np.flatnonzero(fitted.labels_ == k))
        for k in range(fitted.n_clusters_)
    }
    assert found == merged_by_hand(fitted.distance_, threshold)
    clients = rng.random((5, 5, 6))
    assert PACFL(threshold=180).fit(clients).n_clusters_ == 1
    assert PACFL(threshold=-1).fit([clients[0]] * 3).labels_.tolist() == [0, 1, 2]
    assert PACFL(n_clusters=3).fit(clients).n_clusters_ == 3


def test_pacfl_finds_turned_digits_and_sends_what_it_says():
    fed = turned(val=15)
    for method in (
        methods.PACFL(PACFL(n_clusters=2)),
        methods.PACFLAsRun(PACFL(n_clusters=2)),
    ):
        run = fl.run(build(method.settings()), fed, **QUICK | {"rounds": 1})
        assert adjusted_rand_index(fed.clusters, run.labels) == 1
        classes = fed.label_counts(method.split)
        P = run.theta.shape[1]
        assert run.history["bytes_up"].iloc[0] == 4 * 64 * np.minimum(classes, 3).sum()
        assert (
            run.history["bytes_up"].iloc[-1]
            == run.history["bytes_up"].iloc[0] + 4 * 6 * P
        )


def test_pacfl_of_colours_takes_every_channel_as_a_column():
    colour = np.random.default_rng(0).integers(0, 255, (12, 4, 4, 3), dtype=np.uint8)
    index = np.arange(12).reshape(3, 4)
    fed = fl.Federation(
        images=colour,
        labels=np.tile([0, 1], 6),
        n_classes=2,
        train=index,
        test=index,
        val=index,
    )
    # as run: clients, classes, vectors (of 6 columns), pixels; as written: 2 images per
    # class, 3 x 16 numbers each
    for kind, sent in (
        (methods.PACFLAsRun, 3 * 2 * 3 * 16),
        (methods.PACFL, 3 * 2 * 2 * 48),
    ):
        method = kind(PACFL(n_clusters=2))
        assert method.setup_bytes(
            method.start(fed, fl.models.make("mlp", (3, 4, 4), 2), Context(0))
        ) == (4 * sent, 0)


def test_fedclust_looks_at_the_last_layer_and_forgets_the_warmup():
    warmup = [
        [9.0, 1.0],
        [-9.0, 1.5],
        [9.0, 7.0],
        [0.0, 9.0],
    ]  # last layers 1, 1.5, 7, 9
    later = [[1.0, 0.0], [3.0, 2.0], [5.0, 5.0], [7.0, 7.0]]
    method = FedClust(threshold=2)
    first, second = steps(
        method, [(FOUR, warmup), (FOUR, later)], theta0=(4.0, 4.0), sizes=[1, 3, 1, 1]
    )
    assert first.labels.tolist() == [0, 0, 1, 1]
    assert served(method, first) == [[4, 4]] * 4
    assert served(method, second) == [
        [2.5, 1.5],
        [2.5, 1.5],
        [6, 6],
        [6, 6],
    ]  # weights 1 and 3, then equal
    assert method.traffic(first, 2) == (2, 1) and method.traffic(second, 2) == (2, 2)
    assert next(steps(FedClust(threshold=1.9), [(FOUR, warmup)])).labels.tolist() == [
        0,
        0,
        1,
        2,
    ]


def test_fedclust_as_run_is_a_model_of_one_round_for_ever():
    warmup = [[9.0, 1.0], [-9.0, 1.5], [9.0, 7.0], [9.0, 3.0]]
    method = FedClustAsRun(n_clusters=2)
    first, second = steps(
        method, [(FOUR, warmup), (FOUR, np.ones((4, 2)))], sizes=[1, 1, 1, 3]
    )
    assert first.labels.tolist() == [
        0,
        1,
        0,
        0,
    ]  # all weights count: client 1 is the odd one
    assert served(method, first) == [[9, 17 / 5], [-9, 1.5], [9, 17 / 5], [9, 17 / 5]]
    assert np.array_equal(first.models, second.models) and method.traffic(first, 2) == (
        2,
        2,
    )


def test_fedclust_newcomers_join_the_nearest_last_layer():
    rounds = [
        ([0, 1], [[0.0, 1.0], [0.0, 9.0]]),
        ([0, 2], [[3.0, 3.0], [7.0, 8.0]]),
        ([1, 2], [[2.0, 2], [4.0, 4]]),
    ]
    method = FedClust(threshold=2)
    first, second, third = steps(method, rounds, n_clients=4)
    assert first.labels.tolist() == [
        0,
        1,
        2,
        3,
    ]  # who was not there yet stands alone
    assert second.labels.tolist() == [0, 1, 1, 2]
    assert served(method, second) == [
        [3, 3],
        [0, 0],
        [0, 0],
        [0, 0],
    ]  # what a newcomer trained is not averaged
    assert served(method, third)[1:] == [[3, 3], [3, 3], [0, 0]]


def test_flexcfl_groups_by_direction_and_places_newcomers():
    start = [1.0, 1.0]
    cold = [
        [2.0, 1.0],
        [5.0, 1.0],
        [1.0, 3.0],
        [1.0, 2.0],
    ]  # along x: +1, +4; along y: +2, +1
    method = FlexCFL(2)
    rounds = [
        (FOUR, cold),
        ([0, 1, 4], [[6.0, 0.0], [9.0, 0.0], [1.1, 8.0]]),
        ([4], [[7.0, 7.0]]),
    ]
    first, second, third = steps(method, rounds, theta0=start, sizes=[1, 2, 1, 1, 1])
    assert first.labels.tolist() == [0, 0, 1, 1, 2]
    assert served(method, first) == [
        [3.5, 1],
        [3.5, 1],
        [1, 2.5],
        [1, 2.5],
        start,
    ]  # plain means
    assert second.labels.tolist() == [0, 0, 1, 1, 1]  # an update almost along y
    assert served(method, second) == [
        [8, 0],
        [8, 0],
        [1, 2.5],
        [1, 2.5],
        [1, 2.5],
    ]  # weights 1 and 2
    assert served(method, third)[2:] == [[7, 7]] * 3


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_decomposed_cosines_are_those_with_the_singular_vectors(seed):
    updates = np.random.default_rng(seed).normal(size=(5, 12))
    left = np.linalg.svd(updates.T, full_matrices=False)[0][:, :3]
    expected = updates @ left / np.linalg.norm(updates, axis=1, keepdims=True)
    found = decomposed_cosines(updates @ updates.T, 3)
    assert np.allclose(
        np.abs(found), np.abs(expected), atol=1e-8
    )  # signs are arbitrary, the same for all clients
    assert np.allclose(found @ found.T, expected @ expected.T, atol=1e-8)
    profile = leading_features(updates @ updates.T, 3)
    assert np.allclose(
        profile @ profile.T, updates @ left @ left.T @ updates.T, atol=1e-8
    )


def test_flexcfl_parts_opposite_updates_and_survives_zeros_and_few_directions():
    labels = next(
        steps(FlexCFL(2), [(FOUR, [[1.0, 2], [-2.0, -4], [0.5, 1], [-1.0, -2.1]])])
    ).labels
    assert labels.tolist() == [0, 1, 0, 1]
    assert decomposed_cosines(np.zeros((3, 3)), 2).tolist() == [[0, 0]] * 3
    assert decomposed_cosines(np.ones((2, 2)), 3).shape == (2, 3)
    with np.errstate(all="raise"):
        assert (
            next(steps(FlexCFL(3), [(FOUR, np.zeros((4, 2)))])).labels.tolist()
            == [0] * 4
        )


def test_pull_sums_to_one_or_adds_length():
    groups = np.array([[3.0, 4.0], [0.0, 10.0]])
    assert pull(groups, 5.0).tolist() == [[2, 6], [1.5, 7]]
    assert pull(groups, 5.0, normalised=False).tolist() == [[3, 9], [3, 14]]
    assert pull(groups, 0.0) is groups
    same = np.array([[1.0, 2.0]] * 3)
    assert np.allclose(pull(same, 2.0), same) and not np.allclose(
        pull(same, 2.0, normalised=False), same
    )
    assert FlexCFL(2).eta == 0 and FlexCFLAsRun(2).eta == 5
    method = FlexCFLAsRun(2)
    later = [([0, 2], [[3.0, 4.0], [0.0, 10.0]])]
    *_, state = steps(
        method, [(FOUR, [[1.0, 0], [2.0, 0], [0, 1.0], [0, 1.0]]), *later]
    )
    assert served(method, state)[::3] == [[3, 9], [3, 14]]


def test_cflgp_clusters_by_updates_and_averages_inside():
    method = CFLGP(2)
    trained = [[4.0, 0.0], [6.0, 0.0], [0.0, 4.0], [0.0, 5.0]]
    state = next(steps(method, [(FOUR, trained)], sizes=[1, 3, 1, 1]))
    assert adjusted_rand_index(state.labels, [0, 0, 1, 1]) == 1
    assert served(method, state) == [[5, 0], [5, 0], [0, 4.5], [0, 4.5]]
    published = CFLGPAsRun(2)
    assert served(
        published, next(steps(published, [(FOUR, trained)], sizes=[1, 3, 1, 1]))
    )[0] == [5.5, 0]


def test_cflgp_profiles_updates_from_one_model_after_the_other_until_labels_freeze():
    method, start, P = (
        CFLGP(2, period=1, stop=2),
        [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]],
        7,
    )
    later, again = [[0.0, 9.0], [0.0, 9.0], [9.0, 0.0], [9.0, 0.0]], [[2.0, 2.0]] * 2
    a, b, c = steps(method, [(FOUR, start), (FOUR, later, again), (FOUR, start)])
    assert np.array_equal(
        a.profile, np.stack([start, np.zeros((4, 2))], axis=1)
    )  # all start from model 0
    assert [method.traffic(state, P) for state in (a, b, c)] == [
        (7, 7),
        (10, 10),
        (7, 7),
    ]  # half of them do two
    home = a.row == 1
    from_one = np.where(home[:, None], later, again[0]) - a.models[1]
    assert home.sum() == 2 and np.array_equal(
        b.profile, np.stack([start, from_one], axis=1)
    )  # the first from it
    assert np.array_equal(b.profile, c.profile) and np.array_equal(b.labels, c.labels)
    assert np.array_equal(
        b.models[b.row], later
    )  # what the criterion gave is averaged nowhere


def test_cflgp_stops_where_the_training_of_the_criterion_diverged():
    """The loss of its last step was finite, the model after it is not."""
    start = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    method = CFLGP(2, period=1)
    (state,) = steps(method, [(FOUR, start)])
    answers = iter([np.ones((4, 2)), np.array([[1.0, 1.0], [np.inf, 1.0]])])
    engine = SimpleNamespace(
        train=lambda *_: Trained(came := next(answers), np.zeros(len(came)))
    )
    _, trained = method.train(state, FOUR, 2, engine)
    others = np.flatnonzero(state.row == 0)  # they also train model 1
    assert np.flatnonzero(np.isnan(trained.loss)).tolist() == [others[1]]


def test_cflgp_profiles_are_means_over_a_clients_own_updates():
    drawn = [
        ([0], [[4.0, 0.0]]),
        ([0], [[6.0, 0.0]]),
        ([0, 1], [[7.0, 0.0], [6.0, 5.0]]),
    ]
    *_, last = steps(CFLGP(1, period=1), drawn)
    assert np.allclose(
        last.profile[:, 0], [[(4 + 2 + 1) / 3, 0], [0, 5]]
    )  # heard late is not heard softly


def test_cflgp_own_blocks_make_labels_stick():
    method = CFLGPAsRun(2)
    assert method.settings() == {"name": "cflgp", "n_clusters": 2, "variant": "as_run"}
    assert (method.period, method.stop) == (1, 0)
    a, b = steps(
        method,
        [(FOUR, [[1.0, 0], [1.0, 0], [0, 1.0], [0, 1.0]]), (FOUR, [[5.0, 5.0]] * 4)],
    )
    assert np.array_equal(
        a.labels, b.labels
    )  # though all went to the same place, their blocks differ
    filled = np.abs(b.profile).sum(axis=2) > 0
    assert filled[:, 0].all() and np.array_equal(filled[:, 1], b.labels == 1)


def test_cflgp_waits_for_enough_clients_and_keeps_names():
    both = [[1.0, 0.0], [0.0, 1.0]]
    a, b = steps(CFLGP(2, period=1), [([0], [[1.0, 0.0]]), ([0, 3], both, both)])
    assert (
        a.labels.tolist() == [0] * 4
        and sorted(b.labels[[0, 3]]) == [0, 1]
        and not b.labels[1:3].any()
    )
    assert renamed(np.array([1, 1, 0]), np.array([0, 0, 0])).tolist() == [0, 0, 1]
    assert renamed(np.array([0, 1, 2, 3]), np.array([3, 2, 1, 0])).tolist() == [
        3,
        2,
        1,
        0,
    ]


@pytest.mark.parametrize(
    "method", [FedClust(n_clusters=2), FlexCFL(2), CFLGP(2)], ids=repr
)
def test_turned_digits_are_found(method):
    fed = turned()
    run = fl.run(
        build(method.settings()),
        fed,
        **QUICK | {"batch_size": 10, "local_epochs": 8, "rounds": 2},
    )
    assert adjusted_rand_index(fed.clusters, run.labels) == 1


@pytest.mark.parametrize("method", [methods.PFedGraph(), methods.FedSEM(2)])
def test_models_too_long_for_float32_are_compared_all_the_same(method):
    """A run that diverges ends by saying so, not where squares are not finite."""
    options = QUICK | {"rounds": 4, "lr": 1e24, "local_epochs": 1, "dtype": "float32"}
    with pytest.raises(fl.rounds.DivergedError, match="choose a smaller lr"):
        fl.run(method, turned(), **options)


def test_products_and_cosines_of_long_models():
    long = np.array([[3e25, 0.0], [3e25, 3e25], [0.0, 0.0]], dtype=np.float32)
    assert np.allclose(cosines(long, np.arange(3))[0], [1, np.sqrt(0.5), 0])
    short = long[:2] / np.float32(3e25)
    assert np.array_equal(inner_products(short, short), short @ short.T)


def test_bad_settings_and_clients_are_refused_before_training():
    fed, x = turned(4), [np.ones((3, 4))] * 3
    refused("from 1 to the number of clients, 3", PACFL(n_clusters=4).fit, x)
    refused("n_vectors", PACFL(n_vectors=0).fit, x)
    refused("as long as X", PACFL().fit, x, [np.zeros(2)] * 3)
    refused("images of client 1 are zero", PACFL().fit, [x[0], np.zeros((3, 4)), x[0]])
    refused(
        "client 0 has none",
        fl.run,
        methods.PACFLAsRun(),
        fed,
        **QUICK | {"rounds": 1},
    )
    refused("must be a clusterer such as fl.PACFL", methods.PACFL, fl.FCR())
    refused("threshold or n_clusters", FedClust)
    refused("threshold or n_clusters", FedClust, 3, n_clusters=2)
    as_run = {"name": "cflgp", "n_clusters": 2, "variant": "as_run"}
    refused("period", build, as_run | {"period": 1})
    refused(
        "between 1 and 4", fl.run, FedClust(n_clusters=5), fed, **QUICK | {"rounds": 1}
    )
    refused("between 1 and 4", fl.run, FlexCFL(5), fed, **QUICK | {"rounds": 1})
    refused(
        "higher participation",
        fl.run,
        FlexCFL(3),
        fed,
        **QUICK | {"participation": 0.5, "rounds": 1},
    )
    refused(
        "higher participation",
        fl.run,
        FedClust(1),
        fed,
        **QUICK | {"participation": 0.25, "rounds": 1},
    )
