"""Transport signatures: the client's part, the test and its error rate, newcomers,
noise, and real digits."""

import json

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib import parallel_config
from sklearn.base import clone
from toys import label_clusters, refused

import fltnb as fl
from fltnb import metrics
from fltnb.clustering import cuts
from fltnb.clustering.ours import TransportSignatures, transport
from fltnb.encoders import EncoderSpec, embed_clients


def describe(z, client, k, n_splits):
    return TransportSignatures(k=k, n_splits=n_splits).sketch(z, client)


def clouds(groups, sizes, shift=6.0, seed=0, width=8):
    """Clients whose samples come from two Gaussian clouds; each group has its own pair
    of centres."""
    rng = np.random.default_rng(seed)
    centres = shift * rng.normal(size=(max(groups) + 1, 2, width)) / np.sqrt(width)
    return [
        centres[g, rng.integers(0, 2, n)] + rng.normal(size=(n, width))
        for g, n in zip(groups, sizes, strict=True)
    ]


GROUPS = np.repeat([0, 1, 2], 6)
SIZES = np.tile([16, 24, 40, 60, 90, 200], 3)


@pytest.fixture(scope="module")
def fitted():
    return TransportSignatures(k=4).fit(clouds(GROUPS, SIZES))


def test_signatures_by_hand():
    # a third of the mass stays, the rest moves by 1 and by 2
    moved = transport.transport(
        np.array([2 / 3, 1 / 3]),
        np.array([1 / 3, 2 / 3]),
        np.array([[0.0, 1.0], [3.0, 2.0]]),
    )
    assert moved == pytest.approx(1 / 3 * 0 + 1 / 3 * 1 + 1 / 3 * 2)
    z = np.random.default_rng(0).normal(size=(21, 3))
    one = describe(z, 4, 3, 6)
    assert one["first"].shape == one["second"].shape == (3, 3) and one[
        "_own"
    ].shape == (6,)
    assert one["own"].tolist() == [21, one["_own"].mean(), one["_own"].var(ddof=1)]
    # the halves of 11 and 10 samples, weighted, have the client's mean between them
    mean = [one[f"{half}_shares"] @ one[half] for half in ("first", "second")]
    assert np.allclose((11 * mean[0] + 10 * mean[1]) / 21, z.mean(0))
    assert len(set(one["_own"])) == 6
    again, other = describe(z, 4, 3, 6), describe(z, 5, 3, 6)
    assert np.array_equal(again["first"], one["first"]) and not np.array_equal(
        other["_own"], one["_own"]
    )
    small, copies = (
        describe(z, i, 10, 2) for i, z in enumerate((np.eye(5), np.ones((8, 5))))
    )
    assert len(small["first"]) == len(small["second"]) == 2
    assert len(copies["first"]) == len(copies["second"]) == 1 and np.allclose(
        copies["_own"], 0
    )


def test_finds_the_groups_whatever_the_workers(fitted):
    assert fitted.n_clusters_ == 3 and np.array_equal(fitted.labels_, GROUPS)
    assert (
        fitted.adjacency_.dtype == np.uint8 and (np.diag(fitted.adjacency_) == 1).all()
    )
    assert np.array_equal(fitted.distance_, fitted.distance_.T)
    assert np.allclose(fitted.weights_.sum(1), 1)
    assert np.array_equal(np.isnan(fitted.centroids_[:, :, 0]), fitted.weights_ == 0)
    assert fitted.sent_[-1] == 8 * 9 + 3
    assert sorted(fitted.leaf_order_.tolist()) == list(range(18))
    points, shares = transport._halves(fitted.centroids_, fitted.weights_)
    row = transport._row(points[0], shares[0], points, shares)
    for j in (1, 7, 17):
        costs = [
            ot.dist(points[0, h], points[j, 1 - h], metric="euclidean") for h in (0, 1)
        ]
        each = [ot.emd2(shares[0, h], shares[j, 1 - h], costs[h]) for h in (0, 1)]
        assert row[j] == pytest.approx(np.mean(each), rel=1e-6)
    middle = np.sqrt(
        (fitted.self_distance_[0] ** 2 + fitted.self_distance_[7] ** 2) / 2
    )
    spread = np.sqrt((fitted.spread_[0] ** 2 + fitted.spread_[7] ** 2) / 2)
    assert fitted.distance_[0, 7] == pytest.approx(
        (row[7] / middle - 1) / spread, rel=1e-4
    )
    with parallel_config(
        "threading"
    ):  # processes take seconds to start, and do the same
        again = clone(fitted).set_params(n_jobs=2).fit(clouds(GROUPS, SIZES))
    for name in ("distance_", "labels_", "centroids_", "linkage_", "null_"):
        assert np.array_equal(
            getattr(again, name), getattr(fitted, name), equal_nan=True
        )


def test_merge_gaps_and_groups_by_hand():
    z = np.array([[0, 1, 4, 6], [1, 0, 8, 2], [4, 8, 0, 3], [6, 2, 3, 0.0]])
    tree = np.array([[0, 1, 1, 2], [2, 3, 3, 2], [4, 5, 9, 4.0]])
    gaps, (a, b) = cuts.merge_gaps(z, tree)
    assert gaps.tolist() == [1, 3, 5] and a.tolist() == b.tolist() == [1, 1, 2]
    assert transport.accepted_groups(tree, np.array([True, True, False])).tolist() == [
        0,
        0,
        1,
        1,
    ]
    assert len(set(transport.accepted_groups(tree, np.array([True] * 3)))) == 1
    # nothing above a refused merge counts, even if it would be accepted itself
    assert len(set(transport.accepted_groups(tree, np.array([False, True, True])))) == 3
    rng = np.random.default_rng(1)
    # chance of a client and of a pair, in the shares that the docstring states
    a, b = 3, 5
    sizes = ((20000, a, 1), (20000, 1, b), (20000, a, b))
    draws = sum(
        share * rng.normal(size=size)
        for share, size in zip((0.5, 0.5, np.sqrt(0.5)), sizes, strict=True)
    )
    assert np.std(draws.mean((1, 2))) == pytest.approx(
        transport._deviation(a, b), rel=0.03
    )
    assert transport._deviation(1, 1) == 1


@pytest.mark.parametrize("sizes", [np.full(16, 40), np.tile([10, 20, 60, 200], 4)])
def test_equal_clients_are_not_separated_more_often_than_stated(sizes):
    z = [
        TransportSignatures(k=3, alpha=0.05).fit(clouds([0] * 16, sizes, seed=s))
        for s in range(10)
    ]
    assert (
        sum(one.n_clusters_ > 1 for one in z) <= 2
    )  # 0.5 expected at most; 3 or more have probability 1.2 %
    # the scores are what the test takes them for, whatever the sizes: mean 0, standard
    # deviation 1 or less
    assert (
        np.mean([(one.adjacency_ == 0)[~np.eye(16, dtype=bool)].mean() for one in z])
        <= 0.05
    )


def test_known_clusters():
    for groups, n in (([0] * 8 + [1], 60), ([0, 1], 80), ([0, 0], 80)):
        assert (
            TransportSignatures(k=4)
            .fit(clouds(groups, [n] * len(groups)))
            .labels_.tolist()
            == groups
        )
    assert (
        TransportSignatures(k=4, n_clusters=2).fit(clouds(GROUPS, SIZES)).n_clusters_
        == 2
    )
    z = [np.full((10, 3), value) for value in (0.0, 0.0, 0.0, 5.0, 5.0, 5.0)]
    assert TransportSignatures().fit(z).labels_.tolist() == [0, 0, 0, 1, 1, 1]
    # two groups that a large client tells apart, and small clients that cannot
    groups = np.array([0] * 6 + [1] * 6 + [0, 1])
    found = TransportSignatures(k=4).fit(
        clouds(groups, [150] * 12 + [4, 4], shift=2.0, seed=3)
    )
    assert metrics.adjusted_rand_index(groups[:12], found.labels_[:12]) == 1
    assert not found.undecided_[:12].any() and found.undecided_[12:].all()
    assert set(found.labels_) == {
        0,
        1,
    }  # they are served the nearest cluster all the same


@settings(max_examples=8, deadline=None)
@given(st.floats(1e-3, 1e3), st.integers(0, 1000))
def test_scale_rotation_and_place_do_not_matter(scale, seed):
    z = clouds([0, 0, 0, 1, 1, 1], [30, 50, 80] * 2)
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(8, 8)))[0]
    one = TransportSignatures(k=1).fit(z)
    two = TransportSignatures(k=1).fit([scale * (x @ turn + 3) for x in z])
    assert np.array_equal(one.labels_, two.labels_)
    assert np.allclose(one.distance_, two.distance_, rtol=1e-3, atol=1e-3)


def test_newcomers_are_placed_or_refused(fitted):
    new = clouds([0, 1, 2, 2], [50, 50, 50, 120])  # the same centres, other samples
    assert fitted.place(new).tolist() == [0, 1, 2, 2]
    assert fitted.place([new[0] + 10]).tolist() == [transport.NONE_FITS]
    scores = fitted.scores(new)
    assert scores.shape == (4, 3) and scores.argmin(1).tolist() == [0, 1, 2, 2]
    assert fitted.scores([]).shape == (0, 3)
    found = TransportSignatures(k=4).fit(
        clouds([0] * 6 + [1] * 6, [150] * 12, shift=2.0, seed=3)
    )
    assert (
        found.place(clouds([0, 1], [4, 4], shift=2.0, seed=3)).tolist()
        == [transport.SEVERAL_FIT] * 2
    )
    first, second = clouds([0, 1], [100, 100])
    assert fitted.place([np.concatenate([first, second])]).tolist() == [
        transport.NONE_FITS
    ]
    copy = TransportSignatures(k=4)  # a fit from the store
    vars(copy).update(
        {name: value for name, value in vars(fitted).items() if name.endswith("_")}
    )
    assert copy.place(new).tolist() == [0, 1, 2, 2]


def test_the_budget_and_the_sensitivity():
    noise = transport.gaussian_noise(1.0, 1e-5, 2.0)
    rho = transport.PRIVATE_STEPS * (2 * 2.0) ** 2 / (2 * noise.sigma**2)
    assert rho + 2 * np.sqrt(rho * np.log(1e5)) == pytest.approx(1.0)
    assert transport.gaussian_noise(None, 1e-5, None) is None
    assert transport.gaussian_noise(8.0, 1e-5, 2.0).sigma < noise.sigma / 6
    z = clouds(GROUPS, np.full(18, 400))
    options = {"k": 4, "clip": 12.0}
    assert np.array_equal(
        TransportSignatures(epsilon=200.0, **options).fit(z).labels_, GROUPS
    )
    assert TransportSignatures(epsilon=0.05, **options).fit(z).n_clusters_ == 1
    rng = np.random.default_rng(0)
    clip, worst = 3.0, 0.0
    for _ in range(300):
        z = rng.normal(size=(6, 2)) * 4
        z *= np.minimum(1, clip / np.linalg.norm(z, axis=1, keepdims=True))
        centres, other = rng.normal(size=(3, 2)), z.copy()
        other[0] = rng.normal(size=2)
        other[0] *= clip / np.linalg.norm(other[0])

        def released(z, centres=centres):
            member = np.eye(3)[((z[:, None] - centres) ** 2).sum(2).argmin(1)]
            return np.concatenate([(member.T @ z).ravel(), clip * member.sum(0)])

        worst = max(worst, np.linalg.norm(released(z) - released(other)))
    assert 1.5 * clip < worst <= 2 * clip + 1e-9


def test_digits_and_flt_on_the_clusters():
    fed = fl.federations.build(label_clusters())
    other = fl.federations.build(label_clusters(seed=5))
    encoder = EncoderSpec("pca", "digits", latent=16)
    found = TransportSignatures().fit(embed_clients(other, encoder))
    assert (
        found.n_clusters_ == 5
        and metrics.adjusted_rand_index(other.clusters, found.labels_) == 1
    )
    method = fl.methods.FLT(
        TransportSignatures(), graph="clusters", encoder=encoder, name="transport"
    )
    assert (
        fl.methods.build(json.loads(json.dumps(method.settings()))).settings()
        == method.settings()
    )
    run = fl.run(
        method, fed, rounds=2, participation=0.4, backend="serial", progress=False
    )
    assert metrics.adjusted_rand_index(fed.clusters, run.labels) == 1


def test_rotated_federations_by_hand():
    images = fl.load("digits")
    options = {"n_clients": 6, "samples_per_client": 5, "test_per_client": 3, "seed": 2}
    fed = fl.federations.rotated(images, angles=[[0], [90, 10]], **options)
    assert fed.clusters.tolist() == [0, 0, 0, 1, 1, 1] and (fed.sizes == 5).all()
    plain = fl.federations.rotated(images, angles=[[0]], **options)
    assert np.array_equal(fed.images[fed.train[2]], plain.images[plain.train[2]])
    assert np.array_equal(
        fed.images[fed.train[3]], np.rot90(plain.images[plain.train[3]], axes=(1, 2))
    )
    assert np.array_equal(
        fed.images[fed.train[5]], np.rot90(plain.images[plain.train[5]], axes=(1, 2))
    )
    # a small turn moves few pixels, and the same way round
    small, upright = (
        fed.images[fed.train[4]].astype(float),
        plain.images[plain.train[4]].astype(float),
    )
    assert (
        0
        < np.abs(small - upright).mean()
        < np.abs(np.rot90(upright, axes=(1, 2)) - upright).mean()
    )
    assert np.array_equal(fed.labels, plain.labels)
    assert (
        fl.federations.build(json.loads(json.dumps(fed.settings))).fingerprint()
        == fed.fingerprint()
    )
    wrong = [
        ({"angles": one}, "angles must be one list")
        for one in (3, [0, 90], [[]], [["a"]], [[float("nan")]], [])
    ]
    for change, says in (
        *wrong,
        ({"samples_per_client": 500}, "ask for fewer"),
        ({"n_clients": 2}, "more clusters"),
    ):
        refused(says, fl.federations.rotated, images, **options | change)


def test_bad_clients_are_refused(fitted):
    refused(
        "Client 1 has a single sample",
        TransportSignatures().fit,
        [np.eye(3), np.eye(3)[:1]],
    )
    refused("call fit first", TransportSignatures().place, [np.eye(3)])
    refused("dimension 3, not 8", fitted.place, [np.eye(3)])
    refused("single sample", fitted.place, [np.ones((1, 8))])
