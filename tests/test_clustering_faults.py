"""What clusterers do where others answer silently: solvers that did not solve, few
clients, extreme scales; and where newcomers go.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
from toys import refused

import fltnb as fl
from fltnb.clustering import cuts, solvers
from fltnb.clustering.eigen import silhouettes
from fltnb.clustering.emd import cosine_cost, earth_mover

GROUPS = [*[0] * 6, *[1] * 6, *[2] * 6]
CLUSTERERS = [
    fl.FCR(k=3, n_neighbors=8),
    fl.MeanImage(),
    fl.EigenRelevance(n_eigenvectors=2),
    fl.EMDClustering(tolerance="auto"),
    fl.PACFL(threshold=20),
    fl.TransportSignatures(),
]
named = pytest.mark.parametrize("clusterer", CLUSTERERS, ids=lambda c: type(c).__name__)


def clients(groups=GROUPS, seed=0, size=40):
    """Samples around one corner for each group."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(size, 6)) + 6 * np.eye(6)[2 * g] for g in groups]


def received(sketch, dtype):
    return {name: array.astype(dtype) for name, array in sketch.items()}


@named
def test_sketches_sent_in_fewer_digits_give_the_same_clusters(clusterer):
    sketches = clusterer.sketches(clients())
    if isinstance(clusterer, fl.EigenRelevance):
        sketches = [received(one, np.float32) for one in sketches]
        relayed = clusterer.relay(sketches)
        answers = [
            clusterer.compare(x, one, relayed, i)
            for i, (x, one) in enumerate(zip(clients(), sketches, strict=True))
        ]
        assert clusterer.fit_sketches(sketches, answers).labels_.tolist() == GROUPS
        return
    for dtype in (np.float64, np.float32, np.float16):
        sent = [received(one, dtype) for one in sketches]
        assert clusterer.fit_sketches(sent).labels_.tolist() == GROUPS, dtype


def test_a_transport_problem_that_was_not_solved_has_no_cost():
    cost = np.random.default_rng(0).random((3, 5))
    third, fifth = np.full(3, 1 / 3), np.full(5, 0.2)
    assert solvers.exact_cost(third, fifth, cost, 1000) > 0.3
    off = fifth + np.array([1e-7, 0, 0, 0, 0])
    refused("do not sum to the same", solvers.exact_cost, third, off, cost, 1000)
    refused("limit of steps", solvers.exact_cost, third, fifth, cost, 1)
    refused("limit of steps", solvers.uniform_cost, cost, 1)
    assert solvers.received_shares(fifth, 0) is fifth  # bit for bit
    mended = solvers.received_shares(off.astype(np.float32), 0)
    assert abs(mended.sum() - 1) < 1e-15
    for wrong in ([0.5, 0.4], [1.5, -0.5], [np.nan, 1.0]):
        refused("client 3 sent", solvers.received_shares, wrong, 3)


def test_sinkhorn_settles_or_says_what_would():
    x = clients(seed=1)
    a, b = x[0], x[7]
    exact = earth_mover(a, b)
    for regularisation in (0.003, 0.01, 0.05):
        near = earth_mover(a, b, "sinkhorn", regularisation)
        assert exact - 1e-3 < near < exact + 2 * regularisation
    text = refused("does not converge", earth_mover, a, b, "sinkhorn", 1e-6)
    works = float(text.split("take ")[1].split(" or")[0])
    assert earth_mover(a, b, "sinkhorn", works) == pytest.approx(exact, abs=0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solvers.sinkhorn_cost(cosine_cost(a, b), 0.01)


def test_chance_of_few_clients_is_what_random_graphs_reach():
    """The formula exceeds 0.5, what two groups reach at most, below a dozen clients."""
    for size in (4, 5, 7):
        group = np.ones((size, size), dtype=np.uint8)
        group[0, 1] = group[1, 0] = 0
        graph = np.kron(np.eye(2, dtype=np.uint8), group)
        tree = cuts.rows_linkage(graph)
        best = np.nanmax(cuts.modularity_by_cut(graph, tree))
        chance = cuts.simulated_chance(graph)
        assert 0 < chance < best and chance < cuts.chance_modularity(graph)
    # a random graph is one cluster
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(20):
        graph = (rng.random((10, 10)) < 0.4).astype(np.uint8)
        graph = np.maximum(np.maximum(graph, graph.T), np.eye(10, dtype=np.uint8))
        best = np.nanmax(cuts.modularity_by_cut(graph, cuts.rows_linkage(graph)))
        found += best > cuts.simulated_chance(graph) + 1e-9
    assert found <= 1


@pytest.mark.parametrize("sizes", [(3, 3), (4, 4), (5, 5), (7, 7), (4, 3, 3)])
def test_groups_that_no_link_joins_are_never_one_cluster(sizes):
    groups = np.repeat(np.arange(len(sizes)), sizes).tolist()
    x = [*clients(groups), np.full((40, 6), 2.0)]  # and one whose samples are all equal
    for seed in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = fl.FCR(k=3, n_neighbors=4, random_state=seed).fit(x)
        labels = found.labels_
        for a in range(len(x)):
            for b in range(a):
                linked = found.adjacency_[a, b]
                if a < len(groups) and groups[a] != groups[b] and not linked:
                    assert labels[a] != labels[b]
    parts = cuts.unlinked_apart(np.zeros(4, dtype=int), np.eye(4, dtype=np.uint8))
    assert parts.tolist() == [0, 1, 2, 3]


@named
def test_no_labels_from_numbers_that_are_none(clusterer):
    for scale in (1e20, 1e200, 1e-15):
        x = [one * scale for one in clients()]
        refused("divide all clients' .* by 1e", clusterer.fit, x)
    # moderate scales change nothing
    for scale in (1e-6, 1e3, 1e9):
        x = [one * scale for one in clients()]
        assert clusterer.fit(x).labels_.tolist() == GROUPS, scale
    broken = clusterer.sketches(clients())
    name = next(name for name in broken[4] if not name.startswith("_"))
    broken[4][name] = np.full_like(broken[4][name], np.inf)
    refused("Client 4 sent a sketch with NaN", clusterer.fit_sketches, broken, broken)


def test_merge_gain_refuses_what_overflows():
    x = clients()
    y = [(one[:, 0] > one[:, 0].mean()).astype(int) for one in x]
    for scale in (1e16, 1e20):
        large = [one * scale for one in x]
        refused("divide all clients'", fl.MergeGain().fit, large, y)


def test_a_network_of_fed_collab_that_diverged_tells_nobody_apart():
    far = [1e12 * x for x in clients([0, 1, 0])]
    classes = [np.arange(40) % 2] * 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refused("client 0 from client 1 diverged", fl.FedCollab().fit, far, classes)


def test_centroids_that_float32_cannot_tell_apart_are_refused():
    x = [one + 1e9 for one in clients()]
    refused("The centroids: .* become .* subtract", fl.FCR(k=3).fit, x)


def test_arrays_are_taken_as_they_are_or_refused():
    torch = pytest.importorskip("torch")
    x = clients()
    tensors = [torch.tensor(one, requires_grad=True) for one in x]
    assert fl.MeanImage().fit(tensors).labels_.tolist() == GROUPS
    masked = [*x[:3], np.ma.masked_greater(x[3], 2), *x[4:]]
    refused("embeddings of client 3 hold masked values", fl.FCR(k=3).fit, masked)


@named
def test_newcomers_go_to_the_cluster_of_their_kind(clusterer):
    clusterer.fit(clients())
    stranger = np.random.default_rng(5).normal(size=(40, 6)) + 30
    new = [*clients([1, 0, 2], seed=9), stranger]
    assert clusterer.place(new).tolist() == [1, 0, 2, -1]
    # clients themselves stay where they are
    assert clusterer.place(clients()[3:8]).tolist() == GROUPS[3:8]
    again = type(clusterer)(**clusterer.get_params())
    refused("is not fitted", again.place, new)
    if type(clusterer) not in (fl.EigenRelevance, fl.EMDClustering):
        sketches = clusterer.sketches(new, first=len(GROUPS))
        assert clusterer.place_sketches(sketches).tolist() == [1, 0, 2, -1]


def test_newcomers_of_merge_gain_need_their_classes_only():
    """Groups with equal inputs and opposite labels."""
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(60, 4)) for _ in range(10)]
    groups = [0] * 4 + [1] * 4 + [0, 1]
    y = [
        ((one[:, 0] > 0) ^ bool(g)).astype(int)
        for one, g in zip(x, groups, strict=True)
    ]
    found = fl.MergeGain().fit(x[:8], y[:8])
    assert found.labels_.tolist() == groups[:8]
    assert found.place(x[8:], y[8:]).tolist() == [0, 1]
    sketches = [found.sketch(x[i], y[i], client=i) for i in (8, 9)]
    assert found.place_sketches(sketches).tolist() == [0, 1]


def test_silhouettes_of_many_clients_stop_at_a_hundred_clusters(monkeypatch):
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import pdist, squareform

    monkeypatch.setattr("fltnb.clustering.eigen.MANY", 30)
    monkeypatch.setattr("fltnb.clustering.eigen.MOST_CUTS", 5)
    points = np.random.default_rng(0).normal(size=(40, 2))
    distance = squareform(pdist(points))
    scores = silhouettes(distance, linkage(pdist(points), "average"))
    assert np.isfinite(scores[1:6]).all() and np.isnan(scores[6:]).all()
    whole = silhouettes(distance, linkage(pdist(points), "average"), 12)
    assert np.isfinite(whole[12]) and np.array_equal(whole[1:6], scores[1:6])


def test_given_clusters_train_as_the_oracle_does(digits):
    settings = {"kind": "label_clusters", "dataset": "digits", "n_clients": 6}
    settings |= {"n_clusters": 3, "classes_per_cluster": 2}
    fed = fl.federations.build(settings)
    options = {"model": "mlp32", "rounds": 2, "participation": 1.0, "progress": False}
    given = fl.methods.Clusters([f"ward {c}" for c in fed.clusters])
    run = fl.run(given, fed, **options)
    oracle = fl.run(fl.methods.Oracle(), fed, **options)
    assert np.array_equal(run.theta[run.rows], oracle.theta[oracle.rows])
    assert run.labels.tolist() == fed.clusters.tolist()
    by_name = dict(zip(fed.names, fed.clusters.tolist(), strict=True))
    assert np.array_equal(
        fl.run(fl.methods.Clusters(by_name), fed, **options).theta, run.theta
    )
    refused(
        "clusters must be 6 values", fl.run, fl.methods.Clusters([0, 1]), fed, **options
    )
    refused(
        "clusters lacks .* 5",
        fl.run,
        fl.methods.Clusters({str(i): 0 for i in range(5)}),
        fed,
        **options,
    )
    for wrong in ([0, np.nan], [None, 1], [pd.NA, 1], 3, [], [[0, 1]]):
        refused("clusters must", fl.methods.Clusters, wrong)


def test_what_does_not_fit_says_so():
    x = clients()
    with pytest.warns(UserWarning, match="At threshold=0.01 degrees every client"):
        fl.PACFL(threshold=0.01).fit(x)
    with pytest.warns(UserWarning, match='tolerance=1e-09 .*"auto" adapts'):
        fl.EMDClustering(tolerance=1e-9).fit(clients([0, 1, 2]))
    with pytest.warns(UserWarning, match="n_neighbors=15 is a large part of 18 "):
        fl.FCR(k=1).fit(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fl.FCR(k=3, n_neighbors=None).fit(x).labels_.tolist() == GROUPS


def test_how_much_the_seed_decides_is_measured():
    x = clients()
    assert fl.FCR(k=3, n_neighbors=5).stability(x, n_seeds=2) == 1
    refused("draws nothing at random", fl.MeanImage().stability, x)
    refused("One seed has nothing", fl.FCR(k=3).stability, x, n_seeds=1)
    rng = np.random.default_rng(0)
    y = [rng.integers(2, size=len(one)) for one in x]
    measured = fl.MergeGain(n_features=8).stability(x, y, n_seeds=3)
    assert -0.5 < measured < 1  # there is nothing to find
    repeated = fl.MergeGain(n_features=8).stability(x, y, n_seeds=3)
    assert measured == repeated


def test_blocks_are_seen_with_the_positions_of_numpy_2_0(monkeypatch):
    unique = np.unique

    def with_a_second_dimension(rows, **options):
        values, positions = unique(rows, **options)
        return values, positions[:, None]

    monkeypatch.setattr(np, "unique", with_a_second_dimension)
    blocks = np.kron(np.eye(2, dtype=np.uint8), np.ones((3, 3), dtype=np.uint8))
    assert cuts.are_blocks(blocks)


def test_clients_whose_images_are_all_equal_have_one_point_after_pca():
    """Its coordinates are 0, or what rounding leaves of it."""
    same = [np.full((1, 4), 0.1 * i) for i in range(1, 5)]
    assert fl.PCAKMeans(k=1, n_components=3).fit(same).labels_.tolist() == [0] * 4


@pytest.mark.parametrize("wrong", ["FCR", None, ["FCR"]])
def test_a_clusterer_is_made_of_a_dict(wrong):
    refused("must be a dict with a name", fl.clustering.build, wrong)
