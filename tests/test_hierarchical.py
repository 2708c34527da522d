"""MT-HFL's training: known answers, numbers by hand, traffic, the federations of tasks,
and what is refused.
"""

from dataclasses import replace

import numpy as np
import pytest
from toys import final, refused

import fltnb as fl
from fltnb import methods, models
from fltnb.analyses import mthfl_training as study
from fltnb.federations import DIGITS_TASKS, cross_tasks, tasks
from fltnb.methods import MTHFL, Context, FedAvg, Oracle
from fltnb.methods.hierarchical import shared_columns

RUN = {
    "rounds": 3,
    "batch_size": 10,
    "lr": 0.1,
    "backend": "serial",
    "progress": False,
    "eval_every": 3,
}


@pytest.fixture(scope="module")
def fed(digits):
    return tasks(digits, DIGITS_TASKS, (3, 2, 2), (40, 30, 20), 0.1)


def run(method, fed, **changes):
    return fl.run(
        method, fed, **({"model": "mlp_plain", "participation": 1.0} | RUN | changes)
    )


def test_users_hold_their_task_and_a_minority_of_the_others(digits):
    fed = tasks(digits, DIGITS_TASKS, (5, 3, 2), (100, 60, 40), 0.1)
    assert fed.clusters.tolist() == [0] * 5 + [1] * 3 + [2] * 2
    assert fed.sizes.tolist() == [100] * 5 + [60] * 3 + [40] * 2
    counts = fed.label_counts()
    for user, task in enumerate(fed.clusters):
        own = counts[user][list(DIGITS_TASKS[task])]
        assert own.sum() == 0.9 * fed.sizes[user] and np.ptp(own) <= 1
    # user 0: 90 of five labels, 10 of the five others; user 5: 54 of three labels, 6 of
    # the seven others
    assert counts[0].tolist() == [18, 18, 18, 18, 18, 2, 2, 2, 2, 2]
    assert counts[5].tolist() == [1, 1, 1, 1, 1, 18, 18, 18, 1, 0]
    held = np.concatenate(fed.train)
    assert len(np.unique(held)) == len(held) and np.isin(held, digits.train_index).all()
    fed = tasks(digits, [[0, 1], [2, 3]], (2, 3), 20, minority=0, seed=3)
    ranges = tasks(digits, [range(2), range(2, 4)], (2, 3), 20, minority=0, seed=3)
    assert ranges.settings == fed.settings
    assert (fed.label_counts()[:2, 2:] == 0).all() and (
        fed.label_counts()[2:, [2, 3]] == 10
    ).all()
    assert fl.federations.build(fed.settings).fingerprint() == fed.fingerprint()
    assert (
        tasks(digits, [[0, 1], [2, 3]], (2, 3), 20, minority=0, seed=4).fingerprint()
        != fed.fingerprint()
    )


def test_each_task_is_tested_on_all_test_images_of_its_labels(digits, fed):
    for task, labels in enumerate(DIGITS_TASKS):
        users = np.flatnonzero(fed.clusters == task)
        expected = digits.test_index[np.isin(digits.labels[digits.test_index], labels)]
        assert all(
            fed.test[user] is fed.test[users[0]] for user in users
        )  # shared: evaluated once
        assert np.array_equal(fed.test[users[0]], expected)


def test_three_users_of_two_data_sets(digits):
    fed = cross_tasks(
        digits,
        "digits",
        labels=(0, 1),
        other_labels=(0, 1),
        samples_per_user=40,
        seed=1,
    )
    assert (
        fed.clusters.tolist() == [0, 0, 1]
        and fed.n_classes == 20
        and fed.sizes.tolist() == [40] * 3
    )
    counts = fed.label_counts()
    assert (
        counts[0, :2].tolist() == counts[1, 10:12].tolist() == [20, 20]
        and counts[2, 12:].tolist() == [5] * 8
    )
    assert counts.sum() == 120
    x, _ = fed.client(2, "test")
    rest = digits.test_index[digits.labels[digits.test_index] > 1]
    assert np.allclose(
        np.sort(x.sum(axis=(1, 2, 3))),
        np.sort(digits.images[rest].sum(axis=(1, 2)) / 255),
        atol=1e-4,
    )
    assert fl.federations.build(fed.settings).fingerprint() == fed.fingerprint()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tasks": [[0, 1], [1, 2]]}, r"Label 1 \(1\) is named twice"),
        ({"tasks": [[0, 1], [10]]}, "There is no label 10 in digits"),
        ({"tasks": [0, 1]}, "one list of labels per task"),
        ({"tasks": [[], [1]]}, "one list of labels per task"),
        ({"users_per_task": (5, 3, 1)}, "one number for each of the 2 tasks"),
        ({"users_per_task": 5}, "one number for each of the 2 tasks"),
        ({"samples_per_user": (10, 10, 10)}, "one number for each of the 2 tasks"),
        ({"samples_per_user": 500}, "lower samples_per_user"),
        ({"minority": 0.97}, "leaves none of the user's own task"),
        ({"tasks": [[0, 1]], "users_per_task": (2,)}, "no other tasks' labels"),
        ({"images": "digits"}, "must be an ImageSet"),
    ],
)
def test_bad_tasks_are_refused(digits, change, says):
    good = {
        "images": digits,
        "tasks": [[0, 1], [2, 3]],
        "users_per_task": (2, 2),
        "samples_per_user": 10,
    }
    refused(says, tasks, *(good | change).values())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"other_labels": range(10)}, "User 2 has only 0 training"),
        ({"labels": [0, 99]}, "There is no label 99"),
        ({"samples_per_user": 5000}, "User 0 has only"),
        ({"other": "nothing"}, "Unknown data set 'nothing'"),
        ({"images": "big"}, "resize one set"),
    ],
)
def test_bad_pairs_of_data_sets_are_refused(digits, change, says):
    if "images" in change:
        digits, change = (
            replace(digits, name="big", images=np.repeat(digits.images, 2, axis=1)),
            {},
        )
    good = {
        "other": "digits",
        "labels": [0],
        "other_labels": [0],
        "samples_per_user": 40,
    }
    refused(says, cross_tasks, digits, **good | change)


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_sharing_nothing_is_fedavg_inside_each_task_and_one_task_is_fedavg(
    fed, participation
):
    one = replace(fed, clusters=np.zeros(fed.n_clients, dtype=np.int64))
    for users, ours, theirs in (
        (fed, MTHFL("oracle", shared=0), Oracle()),
        (one, MTHFL("oracle"), FedAvg()),
    ):
        assert np.array_equal(
            *(
                final(run(how, users, participation=participation))
                for how in (ours, theirs)
            )
        )


def test_sharing_everything_with_equal_weights_is_one_model_but_not_fedavgs(fed):
    fedavg, equal = (
        run(how, fed)
        for how in (FedAvg(), MTHFL("oracle", shared=2, weighting="equal"))
    )
    assert np.allclose(np.ptp(final(equal), axis=0), 0) and not np.allclose(
        final(equal), final(fedavg), atol=1e-4
    )


def test_eigen_relevance_finds_the_tasks_and_then_all_is_as_with_the_truth(digits):
    fed = tasks(digits, DIGITS_TASKS, (3, 2, 2), (60, 50, 40), 0.1)
    ours = run(MTHFL(fl.EigenRelevance(n_clusters=3)), fed)
    assert np.array_equal(ours.labels, fed.clusters)
    assert np.array_equal(final(ours), final(run(MTHFL("oracle"), fed)))


def by_hand(shared=1, **options):
    """Two tasks of two users with 1, 3 and 2, 2 samples; a model of two layers, whose
    columns are all that counts.
    """
    x = np.arange(16, dtype=np.float32).reshape(8, 2)
    parts = [np.array([0]), np.array([1, 2, 3]), np.array([4, 5]), np.array([6, 7])]
    y = np.arange(8) % 2
    fed = fl.Federation(
        images=x,
        labels=y,
        train=parts,
        test=parts,
        n_classes=2,
        clusters=np.array([0, 0, 1, 1]),
    )
    net = models.make("mlp_plain", fed.input_shape, 2)
    method = MTHFL("oracle", shared=shared, **options)
    return method, method.start(fed, net, Context(0)), net


def test_servers_by_hand():
    method, state, net = by_hand()
    columns = shared_columns(net, 1)
    theta = np.repeat(
        np.array([[1.0], [5.0], [2.0], [4.0]], dtype=np.float32),
        net.n_parameters,
        axis=1,
    )
    state = method.collect(state, np.arange(4), theta, 1)
    # task servers: (1 + 15) / 4 = 4 and (4 + 8) / 4 = 3; both have four samples, so the
    # global server has 3.5
    servers = state.models[state.row[[0, 2]]]
    assert np.allclose(servers[:, ~columns], [[4.0], [3.0]]) and np.allclose(
        servers[:, columns], 3.5
    )
    # only user 0 next: its server has 1, the other keeps 3.5 / 3; the global server
    # weighs servers, not participants
    state = method.collect(state, np.array([0]), theta[:1], 2)
    servers = state.models[state.row[[0, 2]]]
    assert np.allclose(servers[:, ~columns], [[1.0], [3.0]]) and np.allclose(
        servers[:, columns], 2.25
    )

    theta_of = np.array([[1.0], [1.0], [2.0], [2.0]], dtype=np.float32)
    for weighting, expected in (("samples", (5 * 1 + 4 * 2) / 9), ("equal", 1.5)):
        method, state, net = by_hand(weighting=weighting)
        state.weights = np.array([1.0, 4.0, 2.0, 2.0])
        state = method.collect(
            state, np.arange(4), np.repeat(theta_of, net.n_parameters, axis=1), 1
        )
        assert np.allclose(state.models[:, shared_columns(net, 1)], expected)

    method, state, net = by_hand(local_rounds=3)
    columns, rng = shared_columns(net, 1), np.random.default_rng(0)
    for round in range(1, 7):
        theta = rng.normal(size=(4, net.n_parameters)).astype(np.float32)
        state = method.collect(state, np.arange(4), theta, round)
        assert np.array_equal(*state.models[:, columns]) == (round % 3 == 0)
        assert not np.array_equal(*state.models[:, ~columns])


def test_shared_columns_of_the_papers_networks():
    cnn = models.make("lenet", (3, 32, 32), 10)
    two = 6 * 3 * 25 + 6 + 16 * 6 * 25 + 16  # two convolutions with biases
    assert shared_columns(cnn, None).sum() == shared_columns(cnn, 2).sum() == two
    assert shared_columns(cnn, None)[:two].all()
    mlp = models.make("mlp32", (1, 28, 28), 10)
    assert mlp.n_parameters == 784 * 32 + 32 + 32 * 10 + 10
    assert (
        shared_columns(mlp, None).sum() == shared_columns(mlp, 1).sum() == 784 * 32 + 32
    )
    assert not shared_columns(mlp, 0).any() and shared_columns(mlp, 2).all()


def test_random_groups_have_the_sizes_of_the_tasks_and_depend_on_the_seed(fed):
    net = models.make("mlp_plain", fed.input_shape, fed.n_classes)
    drawn = [MTHFL("random").start(fed, net, Context(seed)).labels for seed in range(8)]
    assert all(
        np.array_equal(np.bincount(labels), np.bincount(fed.clusters))
        for labels in drawn
    )
    assert len({tuple(labels) for labels in drawn}) > 4
    assert np.array_equal(drawn[3], MTHFL("random").start(fed, net, Context(3)).labels)


def test_views_differ_in_what_is_tested_and_a_task_has_the_server_of_most_users(
    fed,
):
    own, task = run(MTHFL("random"), fed), run(MTHFL("random", view="task"), fed)
    assert np.array_equal(own.theta, task.theta) and np.array_equal(
        own.labels, task.labels
    )
    server = [
        own.rows[own.labels == t][0] for t in range(3)
    ]  # server t has the users labelled t
    assert task.rows.tolist() == [server[t] for t in fed.clusters]
    assert (task.clients.groupby("true_cluster")["test"].nunique() == 1).all()
    assert np.array_equal(
        run(MTHFL("oracle", view="task"), fed).rows, run(MTHFL("oracle"), fed).rows
    )

    class Given(fl.PCAKMeans):
        labels_ = np.array([1, 1, 0, 0, 0, 2, 2])
        adjacency_ = (labels_[:, None] == labels_).astype(np.uint8)

    method = MTHFL(Given(), view="task")
    state = method.start(
        fed, models.make("mlp_plain", fed.input_shape, fed.n_classes), Context(0)
    )
    row_of = {label: state.row[Given.labels_ == label][0] for label in range(3)}
    assert (
        method.serve(state)[1].tolist()
        == [row_of[1]] * 3 + [row_of[0]] * 2 + [row_of[2]] * 2
    )


def test_a_task_that_comes_later_has_the_server_of_its_users():
    """Its number is no server's: a newcomer's server has the next free one."""
    late = fl.federations.with_events(
        tasks(fl.load("digits"), [[0, 1], [2, 3], [4, 5], [6, 7]], [2] * 4, 20),
        [
            {"round": 2, "join": 1, "cluster": 3},
            {"round": 3, "join": 2, "cluster": 2},
            {"round": 4, "join": 1, "cluster": 3},
        ],
    )
    states = []
    done = run(
        MTHFL("random", view="task"),
        late,
        rounds=4,
        watch=lambda round, state, *_: states.append(state),
    )
    tasks_of = np.array([0, 0, 1, 1, 3, 2, 2, 3])
    for task in (2, 3):
        served = np.unique(done.rows[tasks_of == task])
        assert len(served) == 1 and served[0] in states[-1].row[tasks_of == task]


def test_settings_build_the_same_method_and_newcomers_get_a_server_of_their_own(fed):
    given = MTHFL(
        fl.EigenRelevance(n_clusters=2),
        1,
        3,
        "equal",
        "task",
        rule="last_local",
        name="mine",
    )
    for method in (given, MTHFL("random"), MTHFL("oracle", shared=0)):
        again = methods.build(method.settings())
        assert again.settings() == method.settings() and again.name == method.name
    result = run(
        MTHFL("oracle", view="own"),
        fl.federations.with_events(fed, [{"round": 2, "join": 1}], seed=0),
    )
    assert len(result.labels) == 7 and len(result.theta) == 4


@pytest.mark.parametrize(
    ("options", "clusters", "says"),
    [
        ({"clusterer": "kmeans"}, True, "Unknown grouping of users 'kmeans'"),
        (
            {"clusterer": fl.EigenRelevance},
            True,
            "clusterer must be an estimator over clients, ",
        ),
        ({"shared": True}, True, "shared must be a whole number"),
        ({"encoder": "pixels"}, True, "encoder must be an fl.encoders.EncoderSpec"),
        (
            {"clusterer": "oracle", "shared": 3},
            True,
            "shared is 3 layers but model 'mlp_plain' has 2",
        ),
        ({"clusterer": "oracle"}, False, '"oracle" needs the true clusters'),
        ({"view": "task"}, False, '"task" needs the true clusters'),
        (
            {"clusterer": "random", "joining": "placed"},
            True,
            '"random" has no clusterer, which could place newcomers',
        ),
        ({"clusterer": fl.EigenRelevance(n_clusters=50)}, True, "n_clusters must be"),
        (
            {"clusterer": fl.EigenRelevance(n_eigenvectors=21)},
            True,
            "20 samples, fewer than n_eigenvectors=21: lower n_eig",
        ),
    ],
)
def test_bad_options_are_refused(fed, options, clusters, says):
    refused(
        says,
        lambda: run(MTHFL(**options), fed if clusters else replace(fed, clusters=None)),
    )


def test_curves_end_where_the_run_does_and_users_see_their_own_server():
    """Round by round the same run; on a user's own mixture the model counts that it was
    put with, not its task's.
    """
    users = {"users_per_task": [5, 3, 2], "samples_per_user": [100, 60, 40]}
    users |= {"tasks": [[0, 1, 2, 3, 4], [5, 6, 7], [8, 9]], "minority": 0.1}
    settings = {"federation": fl.recipe("tasks", "digits", seed=0, **users).settings}
    settings |= {"model": "mlp32", "rounds": 6, "batch_size": 10, "lr": 0.1, "seed": 0}
    blind = {"clusterer": "random", "local_rounds": 2, "view": "task"}
    settings["method"] = {"kind": "MTHFL", "name": "mthfl_random"} | blind
    found = study.curves(**settings)
    fed = fl.federations.build(settings["federation"])
    quick = {
        name: settings[name] for name in ("model", "batch_size", "lr", "rounds", "seed")
    } | {"participation": 1.0}
    done = run(methods.build(settings["method"]), fed, **quick)
    last = (
        found["tables"]["rounds"].query("round == round.max()")["accuracy"].to_numpy()
    )
    np.testing.assert_allclose(
        last, done.clients.groupby("true_cluster")["test"].mean()
    )
    assert len(found["tables"]["rounds"]) == 3 * (settings["rounds"] + 1)

    own = run(methods.build(settings["method"] | {"view": "own"}), fed, **quick)
    net = models.make(settings["model"], fed.input_shape, fed.n_classes)
    everything = replace(
        fed, test=[np.unique(np.concatenate(fed.test))] * fed.n_clients
    )
    counts = fl.rounds.confusion(net, own.theta, own.rows, everything)[7]
    shares = fed.label_counts()[7] / fed.sizes[7]
    by_hand = 100 * (shares * np.diag(counts) / counts.sum(axis=1)).sum()
    assert found["tables"]["mixture"]["accuracy"][7] == pytest.approx(by_hand)
