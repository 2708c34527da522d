"""Pictures that their notebooks will draw themselves: these tests go when they do."""

import sys
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import colors as mcolors
from scipy.cluster import hierarchy

from fltnb import data, federations, plots
from fltnb.errors import FltnbError

mpl.use("Agg")
import matplotlib.pyplot as plt

M, C = 12, 3
TRUE = np.arange(M) % C


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture
def fed():
    """Twelve clients, interleaved clusters of two classes, 4 x 4 images whose pixels all hold their label."""
    labels = np.tile(np.arange(6), 40)
    train = [np.flatnonzero(np.isin(labels, [2 * c, 2 * c + 1]))[6 * i : 6 * i + 8] for i, c in enumerate(TRUE)]
    counts = np.stack([np.bincount(labels[t], minlength=6) for t in train])
    return SimpleNamespace(
        n_clients=M,
        clusters=TRUE,
        labels=labels,
        images=np.repeat(labels.astype(np.uint8), 16).reshape(-1, 4, 4),
        train=tuple(train),
        class_names=tuple("abcdef"),
        label_counts=lambda split: counts,
    )


@pytest.fixture
def clusterer():
    adjacency = (TRUE[:, None] == TRUE).astype(np.uint8)
    adjacency[0, 1] = adjacency[1, 0] = 1  # one false link
    linkage = hierarchy.linkage(adjacency.astype(float), "ward")
    points = np.stack([TRUE, TRUE**2], axis=1)[:, None] + np.array([[0, 0], [0.1, 0], [0.2, 0]])
    points = points.astype(np.float32)
    points[0, 2] = np.nan  # client 0 has one centroid fewer
    return SimpleNamespace(
        adjacency_=adjacency,
        linkage_=linkage,
        leaf_order_=hierarchy.leaves_list(linkage),
        labels_=hierarchy.fcluster(linkage, C, "maxclust") - 1,
        embedding_=points,
    )


def curves(seeds=2):
    rows = [
        (method, seed, round, split, 10.0 * round + seed + shift, 1.0)
        for method, shift in (("fedavg", 0), ("flt", 3))
        for seed in range(seeds)
        for round in range(4)
        for split in ("train", "test")
    ]
    return pd.DataFrame(rows, columns=["method", "seed", "round", "split", "accuracy", "variance"])


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


# ---------------------------------------------------------------- styles and files


# ---------------------------------------------------------------- clients


def test_adjacency_is_reordered_into_blocks(clusterer):
    _, axes = plots.adjacency_pair(clusterer, TRUE)
    raw, ordered = (np.asarray(ax.images[0].get_array()) for ax in axes)
    assert np.array_equal(raw, clusterer.adjacency_)
    order = clusterer.leaf_order_
    assert np.array_equal(ordered, clusterer.adjacency_[order][:, order])
    assert np.abs(np.diff(TRUE[order])).astype(bool).sum() == C - 1  # the fixture is clean enough for blocks
    # one patch of the strip per stretch of clients of one cluster: every client changes on the left, three on the right
    assert [len(ax.patches) for ax in axes] == [M, C]
    assert [mcolors.to_hex(p.get_facecolor()).upper() for p in axes[0].patches[:3]] == list(plots.CLUSTERS[:3])


def test_adjacency_refuses_what_is_not_one():
    with pytest.raises(FltnbError, match="square"):
        plots.adjacency(np.ones((3, 4)))
    with pytest.raises(FltnbError, match="each of the 3 clients once"):
        plots.adjacency(np.eye(3), order=[0, 1, 1])


def test_dendrogram_colours_branches_below_the_cut(clusterer):
    _, ax = plots.dendrogram(clusterer)
    drawn = {mcolors.to_hex(lines.get_color()[0]).upper(): len(lines.get_paths()) for lines in ax.collections}
    grey = mcolors.to_hex("0.55").upper()
    # M - 1 merges: C - 1 between clusters, the rest within
    assert drawn.pop(grey) == C - 1
    assert drawn == {color: M // C - 1 for color in plots.CLUSTERS[:C]}
    # the strip under the leaves: one stretch per found cluster, as wide as the cluster has clients
    found = clusterer.labels_[clusterer.leaf_order_]
    strip = sorted((p.get_x(), p.get_width(), mcolors.to_hex(p.get_facecolor()).upper()) for p in ax.patches)
    assert strip == [(40 * i, 40, plots.cluster_color(found[4 * i])) for i in range(C)]


def test_dendrogram_of_many_equal_clients_does_not_overflow():
    n = 1500  # equal rows merge into one long chain, which SciPy walks recursively
    linkage = np.array([[i if i == 0 else n + i - 1, i + 1, i == n - 2, i + 2] for i in range(n - 1)], dtype=float)
    limit = sys.getrecursionlimit()
    _, ax = plots.dendrogram(SimpleNamespace(linkage_=linkage, labels_=np.zeros(n, dtype=int)))
    assert sum(len(lines.get_paths()) for lines in ax.collections) == n - 1
    assert sys.getrecursionlimit() == limit


def test_client_graph_groups_by_found_cluster(clusterer):
    _, axes = plots.client_graph(clusterer, TRUE)
    edges = (clusterer.adjacency_.sum() - M) // 2
    for ax in axes:
        lines, nodes = ax.collections
        assert len(lines.get_segments()) == edges
        assert [mcolors.to_hex(c).upper() for c in nodes.get_facecolors()] == [plots.cluster_color(c) for c in TRUE]
    places = np.asarray(axes[1].collections[1].get_offsets())
    distance = np.linalg.norm(places[:, None] - places, axis=-1)
    same = clusterer.labels_[:, None] == clusterer.labels_
    near = np.where(same & ~np.eye(M, dtype=bool), distance, np.inf).min(axis=1)
    assert (near < np.where(~same, distance, np.inf).min(axis=1) + 1e-9).all()
    clusterer.adjacency_, clusterer.labels_ = np.eye(301), np.zeros(301)
    with pytest.raises(FltnbError, match="301 clients are too many"):
        plots.client_graph(clusterer)


def test_embedding_draws_each_clients_points_in_its_colour(clusterer):
    _, ax = plots.embedding(clusterer, TRUE)
    assert legend(ax) == ["0", "1", "2"]
    for cluster, points in enumerate(ax.collections):
        xy = np.ma.filled(points.get_offsets(), np.nan)
        xy = xy[np.isfinite(xy).all(axis=1)]
        assert len(xy) == 12 - (cluster == 0)
        assert np.allclose(xy[:, 1], cluster**2)
    clusterer.embedding_ = clusterer.embedding_[:5]
    with pytest.raises(FltnbError, match=r"\(5, 3, 2\) for 12 clients"):
        plots.embedding(clusterer)


def test_unfitted_clusterers_are_refused():
    for draw in (plots.adjacency_pair, plots.dendrogram, plots.client_graph, plots.embedding):
        with pytest.raises(FltnbError, match="call its fit method first"):
            draw(SimpleNamespace())


# ---------------------------------------------------------------- results


def test_convergence_draws_means_and_bands():
    _, ax = plots.convergence(curves())
    lines = {(line.get_color(), line.get_linestyle()): line for line in ax.lines}
    assert len(lines) == 4
    test = lines[plots.style("flt").color, "-"]
    assert np.allclose(test.get_ydata(), [3.5, 13.5, 23.5, 33.5])  # mean of seeds 0 and 1
    assert (plots.style("flt").color, "--") in lines
    band = ax.collections[0].get_paths()[0].vertices
    assert np.isclose(band[:, 1].min(), 0)
    assert np.isclose(band[:, 1].max(), 31)
    assert legend(ax) == ["FedAvg", "FLT", "train", "test", "min to max of 2 seeds"]


def test_convergence_of_one_seed_names_no_band_and_draws_into_given_axes():
    fig, axes = plt.subplots(1, 2)
    back, ax = plots.convergence(curves(1), "test", ax=axes[1])
    assert back is fig
    assert ax is axes[1]
    assert not axes[0].lines
    assert legend(ax) == ["FedAvg", "FLT", "test"]
    with pytest.raises(FltnbError, match="split"):
        plots.convergence(curves(), "validation")
    with pytest.raises(FltnbError, match="lack the column 'seed'"):
        plots.convergence(curves().drop(columns="seed"))


def test_a_longer_run_gets_an_axis_of_its_own_in_step_with_the_other():
    rows = curves(1)
    long = rows[rows["method"] == "flt"].assign(method="ifca", round=lambda t: 15 * t["round"])
    fig, ax = plots.convergence(pd.concat([rows, long]), "test", longer=["ifca"])
    top = next(axes for axes in fig.axes if axes is not ax)
    assert top.get_xlabel() == "round of IFCA"
    assert [line.get_color() for line in top.lines] == [plots.style("ifca").color]
    assert len(ax.lines) == 2
    assert np.allclose(np.array(top.get_xlim()), 15 * np.array(ax.get_xlim()))
    assert legend(ax) == ["FedAvg", "FLT", "IFCA  (rounds at the top)", "test"]
    # alone it needs no second axis
    fig, ax = plots.convergence(long, "test", longer="ifca")
    assert fig.axes == [ax]
    with pytest.raises(FltnbError, match="longer run"):
        plots.convergence(rows, longer=["cfl"])


def test_events_are_lines_at_their_rounds():
    _, ax = plots.convergence(curves(1), "test", events={2: "newcomers join"})
    upright = [line for line in ax.lines if line.get_linestyle() == "-."]
    assert [line.get_xdata()[0] for line in upright] == [2]
    assert [text.get_text() for text in ax.texts] == ["newcomers join"]


def test_accuracy_against_bytes_adds_up_both_ways():
    rows = curves(1)
    up = rows["round"] * 100 * (rows["method"] == "flt")
    _, ax = plots.accuracy_against_bytes(rows.assign(bytes_up=up, bytes_down=2 * up))
    flt = next(line for line in ax.lines if line.get_color() == plots.style("flt").color)
    rounds = np.unique(rows["round"])
    assert flt.get_xdata().tolist() == [300 * r for r in rounds if r > 0]
    assert ax.get_xscale() == "log"
    level = next(line for line in ax.lines if line.get_linestyle() == ":")  # a method that sends nothing
    last = rows[(rows["method"] == "fedavg") & (rows["split"] == "test")]["accuracy"].iloc[-1]
    assert level.get_ydata()[0] == last
    assert "FedAvg  (sends nothing)" in legend(ax)


def test_ablation_joins_only_settings_that_differ_in_one_factor():
    rows = [("flt", M, E, 60.0 + 10 * E + M / 100) for M in (100, 500) for E in (1, 5)]
    rows += [("fedsem", 100, 1, 50.0), ("fedsem", 500, 5, 55.0)]  # differ in two factors
    table = pd.DataFrame(rows, columns=["method", "M", "E", "accuracy"])
    factors = {"M": "clients", "E": "epochs"}
    _, (left, right) = plots.ablation(table, factors=factors)
    assert [line.get_ydata().tolist() for line in left.lines] == [[71, 75], [111, 115], [91, 95]]
    assert [line.get_ydata().tolist() for line in right.lines] == [[71, 111], [75, 115], [73, 113]]
    assert [text.get_text() for text in left.get_xticklabels()] == ["100", "500"]
    with pytest.raises(FltnbError, match="differ in one factor alone"):
        plots.ablation(table[table["method"] == "fedsem"], factors=factors)
    with pytest.raises(FltnbError, match="occurs twice"):
        plots.ablation(pd.concat([table, table]), factors=factors)


def test_cluster_matrices_are_blocks_when_the_clusters_are_right():
    _, (right, wrong) = plots.cluster_matrices({"flt": 2 - TRUE, "mine": np.arange(M) % 2}, TRUE)
    blocks = np.kron(np.eye(C), np.ones((M // C, M // C)))
    assert np.array_equal(right.images[0].get_array(), blocks)
    order = np.argsort(TRUE, kind="stable")
    assert np.array_equal(wrong.images[0].get_array(), order[:, None] % 2 == order % 2)
    assert right.get_title() == "FLT\n3 clusters, ARI 1.00"
    assert wrong.get_title().startswith("mine\n2 clusters, ARI ")
    with pytest.raises(FltnbError, match="FLT: 4 labels do not fit 12 true clusters"):
        plots.cluster_matrices({"flt": np.zeros(4)}, TRUE)
    with pytest.raises(FltnbError, match="at least one method"):
        plots.cluster_matrices({}, TRUE)


def test_formation_shows_the_rounds_that_were_evaluated():
    labels_at = {r: np.where(np.arange(M) < r, TRUE, 0) for r in range(1, 21)}
    _, axes = plots.formation(labels_at, TRUE, rounds=(1, 3, 12, 50), title="It forms")
    assert [ax.get_title().split("\n")[0] for ax in axes] == ["round 1", "round 3", "round 12"]
    assert "ARI 1.00" in axes[-1].get_title() and "1 cluster, ARI 0.00" in axes[0].get_title()
    # by default eight of them, first and last included
    _, axes = plots.formation(labels_at, TRUE)
    rounds = [int(ax.get_title().split()[1]) for ax in axes]
    assert len(rounds) == 8 and rounds[0] == 1 and rounds[-1] == 20
    with pytest.raises(FltnbError, match="no clusters at rounds 50, 60"):
        plots.formation(labels_at, TRUE, rounds=(50, 60))
    with pytest.raises(FltnbError, match="no clusters:"):
        plots.formation({}, TRUE)


def test_per_client_draws_every_client_and_the_median():
    values = {"fedavg": [50.0, 60.0, 100.0], "flt": [90.0, 95.0, 97.0]}
    table = pd.DataFrame([(m, v, c) for m, vs in values.items() for c, v in enumerate(vs)])
    table.columns = ["method", "accuracy", "cluster"]
    _, ax = plots.per_client(table)
    for position, (points, expected) in enumerate(zip(ax.collections, values.values(), strict=True)):
        assert points.get_offsets()[:, 1].tolist() == expected
        assert (np.abs(points.get_offsets()[:, 0] - position) < 0.3).all()
    medians = [line.get_ydata()[0] for line in ax.lines if line.get_linewidth() == 1.8]
    assert medians == [60, 95]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["FedAvg", "FLT"]
    assert legend(ax) == ["0", "1", "2"]
    # the same table without clusters takes the methods' colours
    _, ax = plots.per_client(table.drop(columns="cluster"))
    assert mcolors.same_color(ax.collections[1].get_facecolors()[0][:3], plots.style("flt").color)


def test_plane_joins_reproduced_points_to_the_printed_one():
    table = pd.DataFrame(
        [
            ("fedavg", "printed", 82.73, 44.65),
            ("fedavg", "last_local", 84.0, 38.0),
            ("fedavg", "participants", 85.0, 110.0),
            ("oracle", "participants", 99.2, 0.0),
        ],
        columns=["method", "source", "accuracy", "variance"],
    )
    _, ax = plots.accuracy_variance_plane(table)
    ends = sorted((tuple(line.get_xdata()), tuple(line.get_ydata())) for line in ax.lines)
    assert ends == [((38.0, 44.65), (84.0, 82.73)), ((110.0, 44.65), (85.0, 82.73))]
    hollow = [c for c in ax.collections if not len(c.get_facecolors()) and len(c.get_offsets())]
    assert [c.get_offsets().tolist() for c in hollow] == [[[44.65, 82.73]]]
    assert legend(ax) == ["FedAvg", "Oracle", "printed", "participants", "last local"]
    lowest = min(c.get_offsets()[0, 0] for c in ax.collections if len(c.get_offsets()))
    assert lowest == pytest.approx(1e-3)  # a variance of 0 stays on the logarithmic axis


def test_agreement_sets_reproduced_against_printed():
    rows = [("fedavg", "as_written", 80.0, 82.0, "reproduced"), ("flt", "as_written", 90.0, 60.0, "stand-in data")]
    rows += [("flt", "as_run", 90.0, 91.0, "reproduced")]
    table = pd.DataFrame(rows, columns=["method", "variant", "number", "mean", "status"])
    _, (described, published_) = plots.agreement(table)
    points = described.collections[1:]  # the first is the band
    assert [p.get_offsets().tolist() for p in points] == [[[80.0, 82.0]], [[90.0, 60.0]]]
    assert [len(p.get_facecolors()) for p in points] == [1, 0]
    assert published_.collections[1].get_offsets().tolist() == [[90.0, 91.0]]
    assert described.get_xlim()[0] < 60


def test_repeats_draws_one_bar_per_client():
    fed = federations.label_clusters(
        data.load("digits"), n_clients=25, n_clusters=5, classes_per_cluster=2, variant="as_run"
    )
    _, ax = plots.repeats(fed, title="repeats")
    heights = [bar.get_height() for bar in ax.patches]
    assert heights == fed.repeated_samples().tolist()
    assert sum(heights) > 0
