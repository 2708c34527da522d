"""Merge by gain: losses and merges as plain loops over samples give them; what clusters
gain, where it is known."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.cluster.hierarchy import is_valid_linkage
from toys import refused

import fltnb as fl
from fltnb import methods
from fltnb.clustering import sketch_bytes
from fltnb.clustering.noise import noisy
from fltnb.clustering.ours import merge_gain
from fltnb.clustering.ours.ridge import RIDGE
from fltnb.clustering.privacy import gaussian_mechanism
from fltnb.methods import Context
from fltnb.randomness import stream

OPTIONS = {"n_features": 16, "random_state": 2}


def clients(count=6, each=80, kinds=2, p=5, seed=0):
    """Clients with like samples whose classes two kinds of clients name the other way
    round; sizes differ."""
    rng = np.random.default_rng(seed)
    x = [rng.normal(size=(each + 4 * i, p)) for i in range(count)]
    return x, [
        (one[:, 0] + one[:, 1] > 0).astype(int) ^ (i % kinds) for i, one in enumerate(x)
    ]


def parts_by_hand(x, y):
    """Features, targets and folds of every client."""
    projection = stream(2, "method", merge_gain.FEATURES, 0).normal(size=(5, 16))
    phis = [
        np.hstack(
            [np.maximum(3 * one @ projection / np.sqrt(5), 0), np.ones((len(one), 1))]
        )
        for one in x
    ]
    targets = [np.eye(2)[one] for one in y]
    folds = [
        merge_gain._folds(one, 3, stream(2, "split", merge_gain.FOLDS, i))
        for i, one in enumerate(targets)
    ]
    return list(zip(phis, targets, folds, strict=True))


def loss_by_hand(parts, members, tested=(0, 1, 2), folds=3):
    """L(S) and every client's own part of it, from the samples."""
    best = (np.inf, None)
    for ridge in RIDGE:
        own = dict.fromkeys(members, 0.0)
        for f in tested:
            rest = [
                (phi[fold != f], y[fold != f])
                for phi, y, fold in (parts[i] for i in members)
            ]
            phi, y = (np.vstack(part) for part in zip(*rest, strict=True))
            moments, n = (
                phi.T @ phi,
                sum(len(parts[i][0]) for i in members) * (folds - 1) / folds,
            )
            width = len(moments)
            w = np.linalg.solve(
                moments + ridge * np.trace(moments) / width / n * np.eye(width),
                phi.T @ y,
            )
            for i in members:
                phi, y, fold = parts[i]
                own[i] += ((phi[fold == f] @ w - y[fold == f]) ** 2).sum() / len(phi)
        best = min(best, (sum(own.values()), own), key=lambda found: found[0])
    return best


def test_gains_losses_and_merges_are_those_of_plain_loops():
    x, y = clients()
    found = fl.MergeGain(**OPTIONS).fit(x, y)
    parts = parts_by_hand(x, y)
    counts = [
        np.bincount(fold[own == c])
        for (*_, fold), own in zip(parts, y, strict=True)
        for c in (0, 1)
    ]
    assert all(np.ptp(of_class) <= 1 for of_class in counts)

    def gain(a, b):
        saved = (
            loss_by_hand(parts, a)[0]
            + loss_by_hand(parts, b)[0]
            - loss_by_hand(parts, a + b)[0]
        )
        return saved / (len(a) + len(b))

    groups, gains, stopped = [(i,) for i in range(6)], [], None
    for i, j in itertools.combinations(range(6), 2):
        assert (
            found.distance_[i, j]
            == found.distance_[j, i]
            == pytest.approx(-gain((i,), (j,)), abs=1e-6)
        )
    while len(groups) > 1:
        best, a, b = max(
            (gain(a, b), a, b) for a, b in itertools.combinations(groups, 2)
        )
        stopped = groups if best <= 0 and stopped is None else stopped
        groups, gains = (
            [one for one in groups if one not in (a, b)] + [a + b],
            [*gains, best],
        )
    np.testing.assert_allclose(found.gain_, gains, atol=1e-6)
    assert {tuple(sorted(one)) for one in stopped} == {(0, 2, 4), (1, 3, 5)}
    assert found.labels_.tolist() == [0, 1] * 3 and found.n_clusters_ == 2
    own = loss_by_hand(parts, (0, 2, 4))[1] | loss_by_hand(parts, (1, 3, 5))[1]
    np.testing.assert_allclose(found.loss_, [own[i] for i in range(6)], atol=1e-6)


def test_history_goes_on_and_may_be_cut_anywhere():
    x, y = clients()
    free = fl.MergeGain(**OPTIONS).fit(x, y)
    assert is_valid_linkage(free.linkage_) and len(free.gain_) == 5
    assert (free.gain_[:4] > 0).all() and free.gain_[4] < 0
    for wanted in range(1, 7):
        told = fl.MergeGain(**OPTIONS, n_clusters=wanted).fit(x, y)
        assert told.n_clusters_ == wanted
        np.testing.assert_array_equal(told.linkage_, free.linkage_)


def test_few_samples_of_a_class_are_not_in_one_fold_everywhere():
    """With one sample of each class, a class that all clients keep in one fold is
    unknown to all other folds."""
    rng, middles = (
        np.random.default_rng(0),
        3 * np.random.default_rng(1).normal(size=(6, 5)),
    )
    y = [np.arange(6) for _ in range(12)]
    x = [middles + rng.normal(size=middles.shape) for _ in y]
    folds = [
        merge_gain._folds(np.eye(6), 3, stream(2, "split", merge_gain.FOLDS, i))
        for i in range(12)
    ]
    assert all(np.bincount(fold).tolist() == [2, 2, 2] for fold in folds)
    assert all(len({fold[c] for fold in folds}) == 3 for c in range(6))
    assert fl.MergeGain(**OPTIONS).fit(x, y).n_clusters_ == 1


def test_many_clients_are_merged_as_long_as_samples_that_chose_nothing_gain(
    monkeypatch,
):
    x, y = clients(24)
    monkeypatch.setattr(merge_gain, "EXACT", 10)
    monkeypatch.setattr(merge_gain, "LEFT", 8)
    found, parts = fl.MergeGain(**OPTIONS).fit(x, y), parts_by_hand(x, y)
    groups, saved = (
        {i: ((i,), loss_by_hand(parts, (i,), (2,))[0]) for i in range(24)},
        [0.0],
    )
    cuts = {}
    for step, (a, b) in enumerate(found.linkage_[:, :2].astype(int)):
        (one, alone), (other, apart) = groups.pop(a), groups.pop(b)
        groups[24 + step] = one + other, loss_by_hand(parts, one + other, (2,))[0]
        saved.append(saved[-1] + alone + apart - groups[24 + step][1])
        cuts[23 - step] = {frozenset(members) for members, _ in groups.values()}
    assert found.n_clusters_ == 24 - np.argmax(saved) and max(saved) > 0 > saved[-1]
    assert all(
        np.ptp(np.flatnonzero(found.labels_ == c) % 2) == 0
        for c in range(found.n_clusters_)
    )
    assert is_valid_linkage(found.linkage_) and 0 < np.isnan(found.distance_).mean() < 1
    for k in range(8, 24):  # several merges of one step have one height
        labels = fl.MergeGain(**OPTIONS, n_clusters=k).fit(x, y).labels_
        assert {
            frozenset(np.flatnonzero(labels == c).tolist()) for c in range(k)
        } == cuts[k]
    refused(
        "More than 10 clients need folds=3 or more",
        fl.MergeGain(**OPTIONS, folds=2).fit,
        x,
        y,
    )


def test_newcomers_join_the_cluster_that_gains_or_none():
    x, y = clients(8)
    made = fl.MergeGain(**OPTIONS, n_classes=2)
    fitted = made.fit(x[:6], y[:6])
    strange = np.tile([0, 1], len(x[7]))[
        : len(x[7])
    ]  # classes that nobody's samples tell
    sent = [
        made.sketch(x[6], y[6], 6),
        made.sketch(x[7], y[7], 7),
        made.sketch(3 + x[7], 1 - strange, 8),
    ]
    assert fitted.place_sketches(sent).tolist() == [0, 1, -1]
    assert sketch_bytes(sent[0]) == 4 * 3 * (17 * 18 // 2 + 17 * 2 + 1) + 8 * 4


def test_numbers_to_predict_draws_and_one_class():
    x, y = clients()
    rng = np.random.default_rng(1)  # noise that more samples average out
    numbers = [
        one[:, :1] * (1 - 2 * (i % 2)) + 0.5 * rng.normal(size=(len(one), 1))
        for i, one in enumerate(x)
    ]
    assert fl.MergeGain(**OPTIONS).fit(x, numbers).labels_.tolist() == [0, 1] * 3
    assert fl.MergeGain(**OPTIONS, n_draws=2).fit(x, y).labels_.tolist() == [0, 1] * 3
    y[2][:] = 0
    with pytest.warns(UserWarning, match=r"^Client 2 holds one class only.*\.$"):
        alone = fl.MergeGain(**OPTIONS).fit(x, y).labels_
    assert (alone == alone[2]).sum() == 1


def test_private_release():
    x, y = clients(6, 400)
    plain, private = (
        fl.MergeGain(**OPTIONS, n_classes=2, clip=4.0, **more)
        for more in ({}, {"epsilon": 40.0})
    )
    sigma = np.sqrt(6) * gaussian_mechanism(40.0, 1e-5)
    own, alike = (
        x[0] / 10,
        0 * y[0],
    )  # too short to be clipped; of one class, so that plain folds are the same
    one, other = (made.sketch(own, alike) for made in (plain, private))
    secret = fl.MergeGain(**private.get_params() | {"secret": 1}).sketch(own, alike)
    assert not np.allclose(secret["moments"], other["moments"])
    changed = private.sketch(own, (np.arange(len(own)) == 0).astype(int))
    np.testing.assert_array_equal(
        changed["moments"], other["moments"]
    )  # a class decides nobody's fold
    moved = other["moments"] - one["moments"]
    assert (
        np.std(moved) == pytest.approx(sigma * 16, rel=0.2)
        and other["about"][3] == sigma * 16
    )
    assert np.std(other["products"] - one["products"]) == pytest.approx(
        sigma * 4, rel=0.3
    )
    assert private.fit(x, y).labels_.tolist() == [0, 1] * 3
    turns = np.linspace(0, np.pi, 25)[:, None] * np.ones(
        25
    )  # what one sample of norm 1, with a target of it, moves:
    between, targets = (
        np.cos(turns),
        np.cos(turns.T),
    )  # |aa' - bb'|^2 + |ay' - bz'|^2, by a'b and y'z
    assert 4 < (2 - 2 * between**2 + 2 - 2 * between * targets).max() <= 6
    assert noisy(fl.MergeGain(**OPTIONS), 0.1).fit(x, y).labels_.tolist() == [0, 1] * 3


def test_flt_trains_on_its_clusters(digits):
    tasks = {
        "kind": "tasks",
        "tasks": [[0, 1], [2, 3]],
        "users_per_task": [3, 3],
        "samples_per_user": 40,
    }
    fed = fl.federations.made(digits, {"dataset": "digits"} | tasks)
    _, labels, sent = methods.FLT(fl.MergeGain(16)).client_graph(fed, Context(0))
    assert labels.tolist() == fed.clusters.tolist() and list(sent) == [
        6 * (3 * (153 + 17 * 4 + 1) + 4),
        0,
    ]


def test_studies_make_federations_of_their_own(digits):
    from fltnb.analyses import merge_gain as study

    found = study.made("permuted labels", "digits", 10, 5, n_clients=8)["numbers"]
    assert found["true_clusters"] == 4 and found["ari"] == 1
    assert (
        study.made("styles", "digits", 2, 5, n_clients=6)["numbers"]["true_clusters"]
        == 2
    )
    tasks = {
        "kind": "tasks",
        "tasks": [[0, 1], [2, 3]],
        "users_per_task": [2, 2],
        "samples_per_user": 40,
    }
    assert (
        study.without_labels({"dataset": "digits", "seed": 0} | tasks)["numbers"][
            "true_clusters"
        ]
        == 2
    )
    searched = study.by_transport(
        {"dataset": "digits", "seed": 0} | tasks, {"kind": "pixels"}
    )["numbers"]
    assert (
        searched["n_clusters"] == searched["true_clusters"] == 2
        and searched["ari"] == 1
    )
    apart = study.soft({"dataset": "digits", "seed": 0} | tasks)["numbers"]
    assert apart["hard"] > apart["one"] and 0 <= apart["weight"] <= 1
    one = tasks | {"tasks": [[0, 1]], "users_per_task": [4], "minority": 0}
    alike = study.soft({"dataset": "digits", "seed": 0} | one)["numbers"]
    assert (
        alike["hard"] == alike["soft"] == alike["one"] > alike["alone"] - 1e-9
        and alike["weight"] == 0
    )


BAD = {
    "needs at least 2 clients, got 1": lambda x, y: (x[:1], y[:1], {}),
    "from 1 to the number of clients, 6, got 7": lambda x, y: (x, y, {"n_clusters": 7}),
    "Client 1 has 2 samples, fewer than folds=3": lambda x, y: (
        edit(x, x[1][:2]),
        edit(y, y[1][:2]),
        {},
    ),
    "Client 1 has labels from 0 to 1, but classes are 0 to 0"
    "|n_classes must be": lambda x, y: (
        x,
        y,
        {"n_classes": 1},
    ),
    "labels from 5 to 5, but classes are 0 to 1": lambda x, y: (
        x,
        edit(y, 0 * y[1] + 5),
        {"n_classes": 2},
    ),
    "Client 1 has labels from -1": lambda x, y: (x, edit(y, y[1] - 1), {}),
    "Client 1 needs whole numbers as classes": lambda x, y: (
        x,
        edit(y, y[1] + 0.5),
        {},
    ),
    "Client 1 has 84 samples but y has 83": lambda x, y: (
        x,
        edit(y, y[1][1:]),
        {},
    ),
    "Client 1 has samples of dimension 4": lambda x, y: (edit(x, x[1][:, :4]), y, {}),
    "samples of client 1 hold NaN": lambda x, y: (edit(x, x[1] * np.nan), y, {}),
    "give y, the classes of every client": lambda x, y: (x, None, {}),
    "needs clip": lambda x, y: (x, y, {"epsilon": 1.0}),
}


def edit(parts, other):
    return [other if i == 1 else one for i, one in enumerate(parts)]


@pytest.mark.parametrize("says", BAD)
def test_bad_input_is_one_sentence(says):
    x, y, options = BAD[says](*clients())
    refused(says, fl.MergeGain(**OPTIONS | options).fit, x, y)


def test_sketches_that_do_not_belong_together():
    x, y = clients()
    made = fl.MergeGain(**OPTIONS, n_classes=2)
    sent = made.sketches(x, y)
    other = fl.MergeGain(16, n_classes=2, random_state=7).sketch(x[1], y[1], 1)
    refused(
        "Client 1 drew its features from seed 7, the server has 2",
        made.fit_sketches,
        edit(sent, other),
    )
    other = fl.MergeGain(9, n_classes=2, random_state=2).sketch(x[1], y[1], 1)
    refused(
        "Client 1 sent a sketch of the widths", made.fit_sketches, edit(sent, other)
    )
    refused(
        "needs their number: give n_classes", fl.MergeGain(**OPTIONS).sketch, x[0], y[0]
    )
    refused("call fit first", made.place_sketches, sent)


def federation(labels, digits, n_clients=12):
    return fl.Federation.from_arrays(
        digits.images, labels, np.arange(len(digits)) % n_clients
    )


def test_known_answers(digits):
    """One cluster and clusters of one are the two models they are compared with; wrong
    clusters gain nothing."""
    fed = federation(digits.labels, digits)
    all_in_one, alone = (
        fl.clustering_gain(fed, np.zeros(12)),
        fl.clustering_gain(fed, np.arange(12)[::-1]),
    )
    assert (
        all_in_one[:2] == (0, 0) and alone.over_own == 0 and alone.over_own_error == 0
    )
    assert (
        np.isclose(all_in_one.over_own, -alone.points) and all_in_one.over_own > 5
    )  # 120 images each
    assert (
        fl.clustering_gain(fed, np.arange(12) % 3).points < 0
    )  # nobody differs: a third of the data is less
    order = np.random.default_rng(0).permutation(12)
    turned = replace(
        fed, train=[fed.train[i] for i in order], test=[fed.test[i] for i in order]
    )
    assert np.allclose(
        fl.clustering_gain(turned, order % 3)[:4],
        fl.clustering_gain(fed, np.arange(12) % 3)[:4],
    )
    refused("labels must be 12 clusters", fl.clustering_gain, fed, [0, 1])
    refused(
        "width must be a whole number", fl.clustering_gain, fed, np.zeros(12), width=0
    )


def test_clusters_with_classes_of_their_own_gain_what_the_swap_costs(digits):
    """Half of the clients call a digit d its successor: together they can be right on
    one half only."""
    swapped = np.where(
        np.arange(len(digits)) % 12 < 6, digits.labels, (digits.labels + 1) % 10
    )
    gain = fl.clustering_gain(federation(swapped, digits), np.arange(12) // 6)
    assert 35 < gain.points < 60 and 0 < gain.error < 5


def test_what_is_judged_was_not_seen(digits):
    """Random classes cannot be learnt, not even where every client holds copies of the
    same samples."""
    fed = federation(np.random.default_rng(1).integers(0, 10, len(digits)), digits)
    everybody = np.concatenate(fed.train)[:600]
    clients = fl.clustering_gain(
        replace(fed, train=[everybody] * 6 + [np.tile(everybody, 2)] * 6),
        np.arange(12) % 2,
    )
    assert (
        clients.clients[["one_model", "cluster_model", "own_model"]].to_numpy() < 16
    ).all()
