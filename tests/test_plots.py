"""Figures: what is drawn where, the same bytes twice, and clear refusals. Looks are checked by eye."""

import subprocess
import sys
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import colors as mcolors
from scipy.cluster import hierarchy

from fltnb import data, federations, paths, plots, published
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


def test_every_flt_method_has_its_own_colour():
    assert set(published.numbers("flt")["method"]) - {"flt_c2", "flt_c3", "flt_c5"} <= set(plots.METHODS)
    colors = [style.color for style in plots.METHODS.values()]
    assert len(set(colors)) == len(colors)
    assert all(mcolors.is_color_like(color) for color in [*colors, *plots.CLUSTERS])


def test_an_unknown_method_looks_the_same_in_every_process():
    here = plots.style("my_method")
    code = "from fltnb import plots; print(*plots.style('my_method'))"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=paths.ROOT)
    assert there.stdout.split() == list(here)
    assert mcolors.is_color_like(here.color)
    assert plots.style("my_other_method").color != here.color


def test_importing_plots_and_numbers_is_cheap():
    code = (
        "import sys, fltnb.plots, fltnb.published, fltnb.metrics;"
        "print({'matplotlib', 'seaborn', 'pandas', 'scipy', 'sklearn', 'networkx', 'torch'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=paths.ROOT)
    assert found.stdout.strip() == "set()"


def test_saving_twice_gives_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "figures", lambda profile: tmp_path / profile)
    fig, _ = plots.convergence(curves(), title="It converges")
    first = [path.read_bytes() for path in plots.save(fig, "01_convergence", "demo")]
    with mpl.rc_context({"savefig.bbox": "tight"}):  # as Jupyter's inline back end sets it
        fig, _ = plots.convergence(curves(), title="It converges")
        files = plots.save(fig, "01_convergence", "demo")
    assert [path.relative_to(tmp_path).as_posix() for path in files] == [
        "demo/01_convergence.png",
        "demo/01_convergence.pdf",
    ]
    assert [path.read_bytes() for path in files] == first
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == sorted(path.name for path in files)
    assert b"CreationDate" not in first[1]
    height, width = plt.imread(files[0]).shape[:2]
    assert (width, height) == tuple(np.round(fig.get_size_inches() * 150).astype(int))


@pytest.mark.parametrize(("name", "profile"), [("../x", "demo"), ("01.png", "demo"), ("", "demo"), ("01_x", "tiny")])
def test_bad_names_write_nothing(tmp_path, monkeypatch, name, profile):
    monkeypatch.setattr(paths, "figures", lambda profile: tmp_path / profile)
    with pytest.raises(FltnbError):
        plots.save(plt.figure(), name, profile)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- clients


def test_who_holds_what_orders_clients_by_cluster(fed):
    _, ax = plots.who_holds_what(fed, title="Two classes each")
    shown = np.asarray(ax.images[0].get_array())
    assert shown.shape == (M, 6)
    assert np.array_equal(shown > 0, np.repeat(np.kron(np.eye(3), [1, 1]), 4, axis=0) > 0)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["0", "1", "2"]
    assert [text.get_text() for text in ax.get_xticklabels()] == list("abcdef")
    assert len(ax.lines) == C - 1
    assert ax.get_title() == "Two classes each"


def test_who_holds_what_without_clusters_keeps_the_order(fed):
    fed.clusters = None
    _, ax = plots.who_holds_what(fed)
    assert np.array_equal(ax.images[0].get_array(), fed.label_counts("train"))


def test_sample_images_come_from_their_cluster(fed):
    _, axes = plots.sample_images(fed, per_row=6)
    assert axes.shape == (C, 6)
    for cluster, row in enumerate(axes):
        values = {int(np.asarray(ax.images[0].get_array())[0, 0]) for ax in row}
        assert values == {2 * cluster, 2 * cluster + 1}  # both classes of the cluster are seen
    fed.images = np.zeros((240, 5))
    with pytest.raises(FltnbError, match="feature vectors"):
        plots.sample_images(fed)


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


def test_repeats_draws_one_bar_per_client():
    fed = federations.label_clusters(
        data.load("digits"), n_clients=25, n_clusters=5, classes_per_cluster=2, variant="published"
    )
    _, ax = plots.repeats(fed, title="repeats")
    heights = [bar.get_height() for bar in ax.patches]
    assert heights == fed.repeated_samples().tolist()
    assert sum(heights) > 0
