from itertools import permutations
from typing import get_args

import joblib
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster
from scipy.cluster.hierarchy import linkage as scipy_linkage
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from toys import refused

from fltnb.clustering import FCR, PCAKMeans, base, cuts
from fltnb.clustering import fcr as fcr_module
from fltnb.clustering.centroids import matching_distances, min_distances


def digit_clients(n_clients, n_clusters, per_cluster, seed, dimensions=16):
    """Clients of the embedded digits in shuffled order, and their true clusters;
    dimensions=None: pixels in [0, 1]."""
    x, y = load_digits(return_X_y=True)
    x = (
        x / 16
        if dimensions is None
        else PCA(dimensions, random_state=0).fit_transform(x)
    )
    rng = np.random.default_rng(seed)
    classes = rng.permutation(10)
    rows = [rng.permutation(np.flatnonzero(y == c)) for c in range(10)]
    members = n_clients // n_clusters
    clients, truth = [], []
    for c in range(n_clusters):
        for i in range(members):
            held = [
                rows[d][i::members]
                for d in classes[c * per_cluster : (c + 1) * per_cluster]
            ]
            clients.append(x[np.concatenate(held)])
            truth.append(c)
    order = rng.permutation(len(clients))
    return [clients[i] for i in order], np.array(truth)[order]


def blocks(*sizes):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return (labels[:, None] == labels[None, :]).astype(np.uint8), labels


def noisy_blocks(seed, missing=0.1, false=0.05, sizes=(6, 7, 9)):
    rng = np.random.default_rng(seed)
    adjacency, labels = blocks(*sizes)
    flip = np.triu(rng.random(adjacency.shape) < np.where(adjacency, missing, false), 1)
    adjacency ^= (flip | flip.T).astype(np.uint8)
    order = rng.permutation(len(labels))
    return adjacency[np.ix_(order, order)], labels[order]


@pytest.mark.parametrize(
    ("n_clusters", "per_cluster", "n_clients"), [(2, 5, 20), (5, 2, 25), (10, 1, 40)]
)
def test_finds_the_number_of_clusters_by_itself(n_clusters, per_cluster, n_clients):
    clients, truth = digit_clients(n_clients, n_clusters, per_cluster, seed=n_clusters)
    fcr = FCR(k=per_cluster, n_neighbors=5).fit(clients)
    assert fcr.n_clusters_ == n_clusters
    assert adjusted_rand_score(truth, fcr.labels_) == 1.0
    assert np.nanargmax(fcr.criterion_) == n_clusters


@pytest.mark.filterwarnings("error::UserWarning")
def test_one_cluster_of_clients_that_are_alike_and_two_clients_without_warnings():
    clients, _ = digit_clients(20, 1, 10, seed=0)
    fcr = FCR(n_neighbors=5).fit(clients)
    assert (
        np.nanmax(fcr.criterion_) > 0
    )  # some cut is always a little better than none ...
    assert fcr.n_clusters_ == 1  # ... but no better than chance
    assert len(FCR(k=2).fit(digit_clients(2, 2, 5, seed=0)[0]).labels_) == 2


@pytest.fixture(scope="module")
def fitted():
    clients, truth = digit_clients(25, 5, 2, seed=1)
    return clients, truth, FCR(k=2, n_neighbors=5).fit(clients)


def test_attributes(fitted):
    clients, _, fcr = fitted
    assert (
        fcr.labels_.dtype == np.int64
        and fcr.labels_[0] == 0
        and len(fcr.criterion_) == 26
    )
    assert (
        fcr.embedding_.shape == (25, 2, 2)
        and fcr.centroids_.shape == (25, 2, 16)
        and fcr.weights_.shape == (25, 2)
    )
    np.testing.assert_allclose(fcr.weights_.sum(1), 1)
    assert fcr.linkage_.shape == (24, 4) and sorted(fcr.leaf_order_) == list(range(25))
    assert (
        fcr.adjacency_.dtype == np.uint8 and (fcr.adjacency_ == fcr.adjacency_.T).all()
    )
    assert (fcr.adjacency_ == ((fcr.distance_ < 1) | np.eye(25, dtype=bool))).all()
    # a client's mean is the mean of its centroids, weighted by their shares
    np.testing.assert_allclose(
        fcr.weights_[3] @ fcr.centroids_[3], clients[3].mean(0), atol=1e-6
    )
    assert (np.diff(fcr.labels_[fcr.leaf_order_]) != 0).sum() == fcr.n_clusters_ - 1


def test_result_depends_neither_on_jobs_nor_on_the_order(fitted, monkeypatch):
    clients, truth, fcr = fitted
    again = FCR(k=2, n_neighbors=5, n_jobs=2)
    monkeypatch.setattr(FCR, "per_task", 4)
    with joblib.parallel_config(
        "threading"
    ):  # as good as processes here, and started at once
        assert (again.fit_predict(clients) == fcr.labels_).all()
    np.testing.assert_array_equal(again.distance_, fcr.distance_)
    order = np.random.default_rng(0).permutation(25)
    moved = FCR(k=2, n_neighbors=5).fit([clients[i] for i in order])
    # k-means sees the same client with the same seed wherever it stands; UMAP's layout
    # does depend on the order
    np.testing.assert_array_equal(moved.centroids_, fcr.centroids_[order])
    assert adjusted_rand_score(moved.labels_, truth[order]) == 1.0


def test_k_may_differ_between_clients_and_distances_are_the_modules(fitted):
    clients, truth, _ = fitted
    k = np.full(25, 2)
    k[4] = 3
    for distance in ("min", "matching"):
        fcr = FCR(k=k, n_neighbors=5, n_clusters=5, distance=distance).fit(clients)
        assert fcr.embedding_.shape == (25, 3, 2)
        assert (
            np.isnan(fcr.embedding_[0, 2]).all()
            and np.isfinite(fcr.embedding_[4]).all()
        )
        assert np.isfinite(fcr.distance_).all() and fcr.weights_[0, 2] == 0
        assert (
            adjusted_rand_score(np.delete(truth, 4), np.delete(fcr.labels_, 4)) == 1.0
        )
    clients, _ = digit_clients(8, 2, 5, seed=0)
    fcr = FCR(k=3, n_neighbors=5, distance="matching").fit(clients)
    np.testing.assert_array_equal(fcr.distance_, matching_distances(fcr.embedding_))


def test_exact_neighbours_are_used_for_many_points(monkeypatch):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 8)) * 10
    points = centres[np.arange(200) % 4] + rng.normal(size=(200, 8))
    monkeypatch.setattr(fcr_module, "EXACT_ABOVE", 100)
    plane = fcr_module.umap_layout(points, 15, 2, 0)
    gap = [
        np.linalg.norm(plane[i::4].mean(0) - plane[j::4].mean(0))
        for i in range(4)
        for j in range(i)
    ]
    assert min(gap) > 3 * max(plane[i::4].std(0).max() for i in range(4))


@pytest.mark.parametrize(("parts", "each", "neighbours"), [(5, 20, 5), (1, 20, 2)])
def test_a_seed_gives_one_layout_where_the_graph_has_many_parts(
    parts, each, neighbours
):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(parts, each, 10)) + 100 * rng.normal(size=(parts, 1, 10))
    points = points.reshape(-1, 10)
    first = fcr_module.umap_layout(points, neighbours, 2, 0)
    for _ in range(3):
        again = fcr_module.umap_layout(points, neighbours, 2, 0)
        np.testing.assert_array_equal(first, again)
    other = fcr_module.umap_layout(points, neighbours, 2, 1)
    assert not np.array_equal(first, other)


def test_pca_kmeans_limits_of_the_threshold_and_small_clients():
    clients, _ = digit_clients(10, 5, 2, seed=0, dimensions=None)
    for c in (1, 3, 10):  # all rows equal: no cut can separate them
        assert PCAKMeans(n_clusters=c, threshold=1e9).fit(clients).n_clusters_ == 1
    for c in (10, None):
        assert PCAKMeans(n_clusters=c, threshold=1e-9).fit(
            clients
        ).labels_.tolist() == list(range(10))
    clients[3] = clients[3][:7]
    model = PCAKMeans(n_components=30).fit(clients)
    assert model.centroids_.shape == (10, 5, 30)
    # seven images span at most six directions around their mean
    assert np.linalg.matrix_rank(model.centroids_[3], tol=1e-3) <= 5
    assert PCAKMeans(n_components=500).fit(clients).centroids_.shape == (10, 5, 64)


def test_pca_kmeans_relates_equal_clients():
    clients, _ = digit_clients(6, 3, 2, seed=0, dimensions=None)
    model = PCAKMeans(n_clusters=1).fit([*clients, clients[2].copy()])
    assert model.distance_[2, 6] < 1e-6 and model.distance_[2, 5] > 0.01
    assert model.labels_[2] == model.labels_[6]
    clients, truth = digit_clients(25, 5, 2, seed=0, dimensions=None)
    own = PCAKMeans(5, k=2, threshold=0.7).fit(
        clients
    )  # its distance compares spectra more than content
    assert adjusted_rand_score(truth, own.labels_) < 0.7


def test_pca_kmeans_relates_by_the_distance_that_is_named():
    clients, _ = digit_clients(6, 3, 2, seed=0, dimensions=None)
    far = PCAKMeans(n_clusters=3).fit(clients)
    near = PCAKMeans(n_clusters=3, distance="min").fit(clients)
    points = list(near.centroids_)
    np.testing.assert_array_equal(near.distance_, min_distances(points))
    np.testing.assert_array_equal(far.distance_, matching_distances(points))
    # the closest of all pairs is no further away than any matched one
    k = near.centroids_.shape[1]
    assert (near.distance_ <= np.sqrt(k) * far.distance_ + 1e-12).all()


@pytest.mark.parametrize("seed", range(5))
def test_modularity_equals_networkx(seed):
    adjacency, _ = noisy_blocks(seed)
    tree = cuts.rows_linkage(adjacency)
    scores = cuts.modularity_by_cut(adjacency, tree)
    graph = nx.from_numpy_array(np.triu(adjacency, 1))
    # networkx counts a loop twice in a degree, the adjacency's diagonal counts once
    graph.add_weighted_edges_from((i, i, 0.5) for i in graph)
    checked = 0
    for c in range(1, len(adjacency) + 1):
        labels = cuts.cut(tree, c)
        if labels.max() != c:
            assert np.isnan(scores[c])  # the dendrogram has no such cut
            continue
        parts = [set(np.flatnonzero(labels == part)) for part in np.unique(labels)]
        assert scores[c] == pytest.approx(
            nx.community.modularity(graph, parts), abs=1e-12
        )
        checked += 1
    assert checked > 5


@pytest.mark.parametrize("method", get_args(cuts.Linkage))
def test_linkage_of_rows_and_its_cuts_are_scipys(method):
    adjacency, _ = noisy_blocks(1)
    tree = cuts.rows_linkage(adjacency, method)
    np.testing.assert_allclose(
        tree, scipy_linkage(adjacency.astype(float), method), atol=1e-9
    )
    for c in range(1, len(tree) + 1):
        np.testing.assert_array_equal(cuts.cut(tree, c), fcluster(tree, c, "maxclust"))


def test_cuts_by_hand():
    # Two pairs and a loner: 2m = 9, degrees 2, 2, 2, 2, 1.
    adjacency, _ = blocks(2, 2, 1)
    scores = cuts.modularity_by_cut(adjacency, cuts.rows_linkage(adjacency))
    assert scores[3] == pytest.approx(1 - (16 + 16 + 1) / 81)
    assert scores[1] == 0
    assert np.isnan(scores[4:]).all()  # a pair has equal rows and cannot be cut
    assert cuts.relabel(np.array([5, 5, 1, 9, 1])).tolist() == [0, 0, 1, 2, 1]
    # the trap of the public code: labels looked up in leaf order scramble the clusters
    adjacency, labels = noisy_blocks(3, missing=0, false=0)
    model = PCAKMeans(n_clusters=3)
    model._threshold_and_cut(np.where(adjacency, 0.0, 9.0))
    assert adjusted_rand_score(labels, model.labels_) == 1.0
    assert model.leaf_order_.tolist() != list(range(len(labels)))


@pytest.mark.parametrize(
    "sizes", [(3, 3), (2, 2), (4, 9, 2), (1,) * 6, (7,), (5,) * 10, (1, 1, 8)]
)
def test_separate_complete_blocks_are_taken_at_their_word(sizes):
    adjacency, labels = blocks(*sizes)
    assert cuts.chance_modularity(adjacency) == 0
    tree = cuts.rows_linkage(adjacency)
    wanted = cuts.best_cut(cuts.modularity_by_cut(adjacency, tree), 0.0)
    assert wanted == len(sizes)
    assert (cuts.relabel(cuts.cut(tree, wanted)) == labels).all()


@pytest.mark.parametrize("seed", range(5))
def test_best_cut_on_noisy_and_on_random_graphs(seed):
    adjacency, labels = noisy_blocks(seed)
    tree = cuts.rows_linkage(adjacency)
    scores, chance = (
        cuts.modularity_by_cut(adjacency, tree),
        cuts.chance_modularity(adjacency),
    )
    assert cuts.best_cut(scores, chance) == 3
    assert adjusted_rand_score(labels, cuts.cut(tree, 3)) == 1.0
    assert cuts.best_cut(scores, chance, max_clusters=2) == 2

    rng = np.random.default_rng(seed)
    for density in (0.2, 0.5, 0.9):
        links = np.triu(rng.random((40, 40)) < density, 1)
        random = (links | links.T | np.eye(40, dtype=bool)).astype(np.uint8)
        scores = cuts.modularity_by_cut(random, cuts.rows_linkage(random))
        assert cuts.best_cut(scores, cuts.chance_modularity(random)) == 1


@st.composite
def point_sets(draw):
    rng, n_clients = (
        np.random.default_rng(draw(st.integers(0, 2**32 - 1))),
        draw(st.integers(2, 6)),
    )
    return [rng.normal(size=(k, 2)) for k in rng.integers(1, 6, n_clients)]


def brute_min(a, b):
    return min(np.linalg.norm(p - q) for p in a for q in b)


def brute_matching(a, b):
    """Every way of matching the smaller set into the larger, as the public code
    enumerates for equal sizes."""
    if len(a) > len(b):
        a, b = b, a
    ways = permutations(range(len(b)), len(a))
    return min(
        np.sqrt(sum(((a[i] - b[j]) ** 2).sum() for i, j in enumerate(way)))
        for way in ways
    ) / len(a)


def test_distances_by_hand():
    a, b = np.array([[0.0, 0.0], [3.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 0.0]])
    assert min_distances([a, b])[0, 1] == 0
    # 0-0 and (3, 0)-(3, 4): root of 16, over 2 pairs
    assert matching_distances([a, b])[0, 1] == 2
    # the single point is matched with its nearest
    assert matching_distances([a, np.array([[3.0, 1.0]])])[0, 1] == 1


@pytest.mark.parametrize(
    ("fast", "brute"),
    [(min_distances, brute_min), (matching_distances, brute_matching)],
)
@given(points=point_sets())
@settings(max_examples=30, deadline=None)
def test_distances_equal_enumeration(fast, brute, points):
    expected = [
        [0 if i == j else brute(a, b) for j, b in enumerate(points)]
        for i, a in enumerate(points)
    ]
    np.testing.assert_allclose(fast(points), expected, rtol=1e-12, atol=1e-12)


FOUR = [np.random.default_rng(i).random((8, 3)) for i in range(4)]


@pytest.mark.parametrize("clusterer", [FCR, PCAKMeans])
@pytest.mark.parametrize(
    ("options", "clients", "message"),
    [
        ({"k": [2, 2, 10, 2]}, FOUR, "8 samples of client 2"),
        ({"k": [2, 2]}, FOUR, "one per client"),
        ({"k": 0}, FOUR, "client 0"),
        ({"k": 2.5}, FOUR, "whole number"),
        (
            {},
            [*FOUR[:2], np.where(np.eye(8, 3), np.nan, FOUR[2]), FOUR[3]],
            "client 2 hold NaN",
        ),
        ({}, FOUR[:1], "at least 2 clients"),
        ({}, [*FOUR, np.ones((8, 4))], "Client 4 has"),
        ({}, [*FOUR, np.ones(8)], "client 4"),
        ({}, [*FOUR, np.ones((0, 3))], "Client 4 has no"),
        (
            {},
            [*FOUR, np.ones((8, 3, 1))],
            r"\(8, 3, 1\): flatten them, x.reshape\(len\(x\), -1\)",
        ),
        ({}, dict(enumerate(FOUR)), r"not a dict: pass list\(d.values\(\)\)"),
    ],
)
def test_bad_input(clusterer, options, clients, message, monkeypatch):
    monkeypatch.setattr(
        base.ClientClusterer, "_each", None
    )  # it is refused before any work
    refused(message, clusterer(**options).fit, clients)


def test_distances_of_the_rows_are_those_of_scipy_to_the_bit():
    adjacency = (np.random.default_rng(0).random((40, 40)) < 0.3).astype(np.uint8)
    adjacency |= adjacency.T
    tree = cuts.scipy_linkage(adjacency.astype(float), "ward")
    tree[:, 2] = np.round(tree[:, 2], 9)
    assert np.array_equal(cuts.rows_linkage(adjacency), tree)
