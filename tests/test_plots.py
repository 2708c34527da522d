"""Figures: what is drawn where, the same bytes twice, and clear refusals. Looks are
checked by eye.
"""

import io
import itertools
import subprocess
import sys
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import colors as mcolors
from PIL import Image
from toys import refused

from fltnb import notebook, papers, paths, plots
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
    """Twelve clients, interleaved clusters of two classes, 4 x 4 images whose pixels
    all hold their label.
    """
    labels = np.tile(np.arange(6), 40)
    train = [
        np.flatnonzero(labels // 2 == c)[6 * i : 6 * i + 8] for i, c in enumerate(TRUE)
    ]
    counts = np.stack([np.bincount(labels[t], minlength=6) for t in train])
    images = np.repeat(labels.astype(np.uint8), 16).reshape(-1, 4, 4)
    look = {
        "n_clients": M,
        "clusters": TRUE,
        "images": images,
        "train": train,
        "class_names": "abcdef",
    }
    return SimpleNamespace(**look, label_counts=lambda split: counts)


def curves(seeds=2):
    rows = [
        (
            method,
            seed,
            round,
            split,
            10.0 * round + seed + shift,
            100 * round * (method == "flt"),
        )
        for method, shift in (("fedavg", 0), ("flt", 3))
        for seed in range(seeds)
        for round in range(4)
        for split in ("train", "test")
    ]
    table = pd.DataFrame(
        rows, columns=["method", "seed", "round", "split", "accuracy", "bytes_up"]
    )
    return table.assign(bytes_down=2 * table["bytes_up"])


def texts(drawn):
    """Legend of a figure, or of axes."""
    found = drawn.legends[0] if isinstance(drawn, plt.Figure) else drawn.get_legend()
    return [text.get_text() for text in found.get_texts()]


def ends(ax):
    """Names at the ends of curves, from the top."""
    named = sorted(ax.texts, key=lambda text: -text.get_position()[1])
    return [text.get_text() for text in named if text.get_text()]


def drawn_lines(ax):
    """Curves, without the markers beside their names."""
    return [line for line in ax.lines if len(line.get_xdata()) > 1]


def line_of(ax, method, dash="-"):
    color = plots.style(method).color
    return next(
        line
        for line in ax.lines
        if line.get_color() == color and line.get_linestyle() == dash
    )


def held(ax):
    """Numbers of a heat map."""
    return np.asarray(ax.collections[0].get_array())


def test_every_method_has_its_own_colour_and_every_value_a_text():
    assert set(papers.numbers("flt")["method"]) <= set(plots.METHODS)
    colors = [style.color for style in plots.METHODS.values()]
    assert len(set(colors)) == len(colors)
    assert all(mcolors.is_color_like(color) for color in [*colors, *plots.CLUSTERS])
    shown = [plots.label(value) for value in ("flt_enc1", "as_run", 0.25, 10)]
    assert [*shown, plots.label("flt", {"flt": "ours"})] == [
        "FLT Enc1",
        "as run",
        "0.25",
        "10",
        "ours",
    ]


# what eyes without one kind of cone see of linear RGB (Machado et al., 2009)
EYES = {
    "all cones": np.eye(3),
    "no red cones": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no green cones": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}


def seen(color, eyes):
    """Return L, a, b of a colour, in which Euclidean distances are those of sight."""
    rgb = np.array(mcolors.to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(EYES[eyes]) @ linear, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722]]
    to_xyz.append([0.0193, 0.1192, 0.9505])
    xyz = np.array(to_xyz) @ linear / [0.9505, 1, 1.089]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def nearest(palette, eyes):
    pairs = itertools.combinations([seen(color, eyes) for color in palette], 2)
    return min(np.linalg.norm(one - other) for one, other in pairs)


@pytest.mark.parametrize("eyes", EYES)
def test_colours_differ_for_readers_who_see_no_red_or_no_green(eyes):
    picture = papers.picture
    assert nearest(picture.FILLS.values(), eyes) > 25
    assert nearest(picture.COLORS.values(), eyes) > 25
    assert nearest(plots.CLUSTERS[:3], eyes) > 25  # most pictures have two or three
    assert nearest(plots.CLUSTERS, eyes) > 7
    table_1 = ["fedavg", "local", "pca_km_hc", "fedsem", "flt_enc1", "flt_enc2"]
    looks = [plots.style(name) for name in [*table_1, "oracle"]]
    assert nearest([look.color for look in looks], eyes) > 8
    assert len({look.marker for look in looks}) == len(looks)


def test_an_unknown_method_looks_the_same_in_every_process_and_importing_is_cheap():
    here = plots.style("my_method")
    code = (
        "import sys, fltnb.plots, fltnb.metrics\n"
        "print(*fltnb.plots.style('my_method'))\n"
        "heavy = {'matplotlib', 'seaborn', 'pandas', 'scipy', 'sklearn', 'networkx'}\n"
        "print((heavy | {'torch'}) & set(sys.modules))"
    )
    there = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=paths.ROOT,
    )
    assert there.stdout.split() == [*here, "set()"]
    assert (
        mcolors.is_color_like(here.color)
        and plots.style("my_other_method").color != here.color
    )


@pytest.mark.parametrize("profile", ["demo", "paper"])
def test_saving_twice_gives_the_same_bytes(tmp_path, monkeypatch, profile):
    monkeypatch.setattr(paths, "figures", lambda profile: tmp_path / profile)

    def saved() -> dict[str, bytes]:
        fig, _ = plots.curves(curves(), title="It converges")
        png = plots.save(fig, "01_convergence", profile)
        height, width = plt.imread(png).shape[:2]
        assert (width, height) == tuple(
            np.round(fig.get_size_inches() * plots.still.DPI).astype(int)
        )
        return {path.name: path.read_bytes() for path in png.parent.iterdir()}

    first = saved()
    with mpl.rc_context(
        {"savefig.bbox": "tight"}
    ):  # as Jupyter's inline back end sets it
        assert saved() == first
    also = [] if profile == "demo" else ["01_convergence.pdf"]
    assert sorted(first) == [*also, "01_convergence.png"]
    assert all(b"CreationDate" not in content for content in first.values())


def test_bad_names_write_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "figures", lambda profile: tmp_path)
    for name, profile in (
        ("../x", "demo"),
        ("01.png", "demo"),
        ("", "demo"),
        ("01_x", "tiny"),
    ):
        with pytest.raises(FltnbError):
            plots.save(plt.figure(), name, profile)
    plt.close("all")


def test_curves_draw_means_and_bands_into_given_axes():
    fig, ax = plots.curves(curves(), title="It converges")
    assert len(drawn_lines(ax)) == 4 and len(ax.collections) == 4
    assert np.allclose(
        line_of(ax, "flt").get_ydata(), [3.5, 13.5, 23.5, 33.5]
    )  # mean of seeds 0 and 1
    assert (
        line_of(ax, "flt", "--").get_marker() in ("", "None")
        and line_of(ax, "flt").get_marker() == "^"
    )
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert np.isclose([band.min(), band.max()], [0, 31]).all()
    assert texts(fig) == ["train", "test", "lowest to highest of 2 seeds"]
    assert ends(ax) == ["FLT", "FedAvg"]
    assert fig.get_suptitle() == "It converges" and ax.get_xlabel() == "round"

    fig, axes = plt.subplots(1, 2, figsize=(10, 4))
    given = {"ax": axes[1], "title": "One panel's"}
    back, ax = plots.curves(curves(1), split="test", **given)
    assert back is fig and ax is axes[1] and not axes[0].lines and not ax.collections
    assert ends(ax) == ["FLT", "FedAvg"] and ax.get_legend() is None
    assert ax.get_title() == "One panel's" and not fig.get_suptitle()


def test_equal_curves_share_an_entry_and_each_can_be_seen():
    frame = curves(1)
    twin = frame[frame["method"] == "flt"].assign(method="oracle")
    lower = twin.assign(method="local", accuracy=twin["accuracy"] - 3)
    _, ax = plots.curves(pd.concat([frame, twin, lower]), split="test")
    # local lies on FedAvg, the oracle on FLT; nobody else
    assert ends(ax) == ["FLT", "= Oracle", "FedAvg", "= Local"]
    widths = {name: line_of(ax, name).get_linewidth() for name in ("flt", "oracle")}
    assert widths["flt"] >= widths["oracle"] + 2
    apart = twin.assign(accuracy=twin["accuracy"] + 2)  # of a panel about 35 high
    _, ax = plots.curves(pd.concat([frame, apart]), split="test")
    assert ends(ax) == ["Oracle", "FLT", "FedAvg"]
    alone = plots.ends.equal_curves({"flt": line_of(ax, "flt")}, ax)
    assert alone == [["flt"]]


def test_names_that_do_not_fit_become_a_legend():
    one = curves(1)[lambda frame: frame["method"] == "flt"]
    many = [one.assign(method=f"method {number}") for number in range(30)]
    fig, ax = plots.curves(pd.concat(many), split="test")
    assert not ends(ax) and len(texts(fig)) == 30
    _, axes = plots.curves(curves(1).assign(k=1), split="test", col="k", size=(3, 3))
    assert not ends(axes)  # too narrow
    # below the panel, not beside it
    fig.draw_without_rendering()
    assert ax.get_position().width > 0.8


def test_a_picture_keeps_the_colour_of_a_small_mark():
    fig, (ax,) = plots.panels(1, (6, 4))
    ax.imshow(np.arange(40_000).reshape(200, 200), cmap="Blues", aspect="auto")
    ax.text(5, 5, "ours", color="#D55E00", fontsize=8, fontweight="bold")
    shown = notebook.png(fig, "ours in its own colour")
    pixels = np.array(Image.open(io.BytesIO(shown.data)).convert("RGB")).astype(int)
    assert (np.abs(pixels - [0xD5, 0x5E, 0x00]).max(axis=-1) < 20).sum() > 20


def test_names_do_not_overlap():
    moved = plots.ends.apart(np.array([0.1, 0.5, 0.5, 0.51, 0.99, 1.0]), 0.05)
    assert (np.diff(moved) >= 0.05 - 1e-9).all() and moved.max() <= 1 + 1e-9
    assert moved[0] == 0.1


def test_panels_follow_columns_and_a_colour_means_the_same_in_all():
    whole = pd.concat(
        [
            curves(1).assign(dataset=name, variant=v)
            for name in "ab"
            for v in ("as_written", "as_run")
        ]
    )
    whole = whole[(whole["dataset"] == "a") | (whole["variant"] == "as_written")]
    _, axes = plots.curves(whole, split="test", col="dataset", row="variant")
    assert [ax.get_title() for ax in axes] == [
        "as written, a",
        "as written, b",
        "as run, a",
        "as run, b",
    ]
    assert [text.get_text() for text in axes[3].texts] == ["not run"]
    for ax in axes[:3]:
        assert [line.get_color() for line in drawn_lines(ax)] == [
            plots.style(m).color for m in ("fedavg", "flt")
        ]
        assert ends(ax) == ["FLT", "FedAvg"]
    _, alone = plots.curves(
        whole[whole["method"] == "flt"], split="test", style="variant", col="dataset"
    )
    assert {line.get_color() for ax in alone for line in drawn_lines(ax)} == {
        plots.style("flt").color
    }
    assert [line.get_linestyle() for line in drawn_lines(alone[0])] == ["-", "--"]


def test_bytes_add_up_both_ways():
    _, ax = plots.against_bytes(curves())
    assert np.allclose(
        line_of(ax, "flt").get_xdata(), [3e-4, 6e-4, 9e-4]
    )  # MB, without round 0
    level = line_of(ax, "fedavg")
    assert level.get_ydata().tolist() == [30.5, 30.5] and np.allclose(
        level.get_xdata(), [3e-4, 9e-4]
    )
    assert ax.get_xscale() == "log" and "FedAvg (sends nothing)" in ends(ax)


@pytest.mark.parametrize("levels", [[0.1, 1.0, 10.0], ["clean", "some", "much"]])
def test_lines_against_what_is_varied(levels):
    rows = [
        (m, s, x, 0.5 + 0.1 * s - 0.1 * i)
        for m in ("flt", "fedsem")
        for s in (0, 1)
        for i, x in enumerate(levels)
    ]
    table = pd.DataFrame(rows, columns=["method", "seed", "noise", "ari"])
    words = isinstance(levels[0], str)
    _, ax = plots.lines(table, "noise", "ari", log=not words, xlabel="noise added")
    assert np.allclose(line_of(ax, "flt").get_ydata(), [0.55, 0.45, 0.35])
    assert np.allclose(
        line_of(ax, "flt").get_xdata(), [-0.025, 0.975, 1.975] if words else levels
    )
    ax.figure.canvas.draw()
    assert [text.get_text() for text in ax.get_xticklabels()] == (
        levels if words else ["0.1", "1", "10"]
    )
    assert ax.get_xlabel() == "noise added" and ax.get_ylabel() == "adjusted Rand index"


def test_other_colours_are_ordered_and_printed_numbers_hollow():
    rows = [
        (k, x, k * x, source)
        for k in (20, 5)
        for x in (1, 2)
        for source in ("as_run", "paper")
    ]
    table = pd.DataFrame(rows, columns=["k", "x", "y", "variant"])
    fig, ax = plots.lines(table, "x", "y", "k", "variant", names={"k": "centroids"})
    assert (
        texts(fig) == ["5", "20", "as run", "paper"]
        and fig.legends[0].get_title().get_text() == "centroids"
    )
    lightness = [
        mcolors.rgb_to_hsv(mcolors.to_rgb(line.get_color()))[2]
        for line in ax.lines[::2]
    ]
    assert lightness[0] > lightness[1]
    assert [
        line.get_markerfacecolor()
        for line in ax.lines
        if line.get_linestyle() == "None"
    ] == ["none", "none"]


BLOCKS = np.kron(np.eye(C), np.ones((M // C, M // C)))


def test_a_matrix_pair_shows_blocks_only_in_the_dendrograms_order():
    links, order = (TRUE[:, None] == TRUE).astype(int), np.argsort(TRUE, kind="stable")
    _, (chance, ordered) = plots.matrix_pair(links, order, TRUE)
    assert np.array_equal(held(ordered), BLOCKS) and not np.array_equal(
        held(chance), BLOCKS
    )
    shuffled = np.random.default_rng(0).permutation(M)
    assert np.array_equal(held(chance), links[np.ix_(shuffled, shuffled)])
    # one patch of the strip per stretch of clients of one cluster
    assert [
        mcolors.to_hex(patch.get_facecolor()).upper() for patch in ordered.patches
    ] == list(plots.CLUSTERS[:C])


def test_matrices_of_clusters_and_of_distances():
    fig, (right, wrong, formed) = plots.matrices(
        {"flt": 2 - TRUE, "mine": np.arange(M) % 2, 5: TRUE * 0}, TRUE
    )
    assert np.array_equal(held(right), BLOCKS)
    order = np.argsort(TRUE, kind="stable")
    assert np.array_equal(held(wrong), order[:, None] % 2 == order % 2)
    assert (
        right.get_title() == "FLT\n3 clusters, ARI 1.00"
        and wrong.get_title().startswith("mine\n2 clusters, ARI ")
    )
    assert formed.get_title() == "round 5\n1 cluster, ARI 0.00" and texts(fig) == [
        "0",
        "1",
        "2",
    ]
    far = np.arange(16.0).reshape(4, 4)
    _, axes = plots.matrices(
        {"a": far, "b": 10 * far}, {"a": [0, 1, 0, 1]}, limits=None
    )
    assert np.array_equal(held(axes[0]), far[np.ix_([0, 2, 1, 3], [0, 2, 1, 3])])
    low, high = (ax.collections[0].get_clim() for ax in axes)
    assert np.allclose(np.multiply(10, low), high) and [
        ax.get_title() for ax in axes
    ] == ["a", "b"]  # own scales


def test_pair_distances_take_the_larger_direction():
    far = np.array([[0, 0.01, 0.3], [-0.02, 0, 0.2], [0.4, 0.1, 0]])
    fig, ax = plots.pair_distances({"a": (far, np.array([0, 0, 1]))}, {"0.025": 0.025})
    same, other, tolerance = ax.lines
    assert same.get_xdata().tolist() == [0.01] and other.get_xdata().tolist() == [
        0.4,
        0.2,
    ]
    assert set(tolerance.get_xdata()) == {0.025} and texts(fig) == [
        "same cluster",
        "different clusters",
        "0.025",
    ]


def test_images_come_from_their_cluster_or_client(fed):
    _, axes = plots.sample_images(fed, per_row=6)
    assert axes.shape == (C, 6)
    for cluster, row in enumerate(axes):
        values = {int(np.asarray(ax.images[0].get_array())[0, 0]) for ax in row}
        assert values == {
            2 * cluster,
            2 * cluster + 1,
        }  # both classes of the cluster are seen
    _, axes = plots.sample_images(fed, per_row=2, clients=[4, 7])
    assert [row[0].get_ylabel() for row in axes] == ["client 4", "client 7"]
    _, axes = plots.gallery({"floats": np.linspace(0, 1, 8).reshape(2, 2, 2)})
    assert axes[0, 0].images[0].get_clim() == (0, 1)  # and not black


def test_a_map_counts_the_pairs_of_clients_that_are_linked():
    clusters = np.repeat([0, 1], 3)
    places = np.zeros((6, 1, 2))
    links = np.eye(6, dtype=bool)
    _, (_, matrix) = plots.client_map(places, links, clusters)
    assert matrix.get_title(loc="left") == "The links: 0% inside, 0 across clusters"
    links[[0, 1, 0, 5], [1, 0, 5, 0]] = True
    _, (_, matrix) = plots.client_map(places, links, clusters)
    assert matrix.get_title(loc="left") == "The links: 17% inside, 1 across clusters"


def test_client_strip_draws_every_client_and_the_median():
    values = {"fedavg": [50.0, 60.0, 100.0], "flt": [90.0, 95.0, 97.0]}
    table = (
        pd.DataFrame(values)
        .melt(var_name="method", value_name="test")
        .assign(true_cluster=[0, 1, 2] * 2)
    )
    fig, ax = plots.client_strip(table)
    points = [c for c in ax.collections if len(c.get_offsets())]
    for position, (drawn, expected) in enumerate(
        zip(points, values.values(), strict=True)
    ):
        assert drawn.get_offsets()[:, 1].tolist() == expected
        assert (np.abs(drawn.get_offsets()[:, 0] - position) < 0.3).all()
    assert [
        line.get_ydata()[0] for line in ax.lines if line.get_linewidth() == 1.8
    ] == [60, 95]
    assert [text.get_text() for text in ax.get_xticklabels()] == [
        "FedAvg",
        "FLT",
    ] and texts(fig) == ["0", "1", "2"]
    _, ax = plots.client_strip(table, hue=None)  # the methods' colours
    assert mcolors.same_color(
        ax.collections[1].get_facecolors()[0][:3], plots.style("flt").color
    )


CURVES, RUNS, EYE = (
    curves(1),
    pd.DataFrame({"method": ["flt"], "accuracy": [1.0], "worst": [1.0], "a": [1]}),
    np.eye(3),
)


def test_what_cannot_be_drawn_is_refused_with_a_sentence():
    refused(
        r"2 rows have the same point .* differ in data\.",
        plots.curves,
        pd.concat([CURVES.assign(data=d) for d in "ab"]),
    )
    refused("no column distinguishes them", plots.curves, pd.concat([CURVES, CURVES]))
    refused("Some rows have no k", plots.curves, CURVES.assign(k=np.nan), hue="k")
    refused("Unknown split 'validation'", plots.curves, CURVES, split="validation")
    refused("lack the column 'loss'", plots.curves, CURVES, "loss")
    for draw in (plots.curves, plots.against_bytes, plots.client_strip):
        refused("must be a DataFrame, such as run.history", draw, [1, 2])
    refused("no accuracy against round", plots.curves, CURVES, split="probe")
    refused(
        "2 panels do not fit",
        plots.curves,
        CURVES,
        split="test",
        col="method",
        ax=plt.gca(),
    )
    refused("square", plots.matrices, {"a": np.ones((3, 4))})
    refused("each of the 3 clients once", plots.matrix_pair, EYE, [0, 1, 1])
    refused(
        "2 true clusters do not fit 3 clients",
        plots.matrix_pair,
        EYE,
        [0, 1, 2],
        [0, 1],
    )
    refused(
        "12 true labels and 4 found ones",
        plots.matrices,
        {"flt": np.zeros(4)},
        TRUE,
    )
    refused("at least one method", plots.matrices, {})
    refused(
        "feature vectors", plots.sample_images, SimpleNamespace(images=np.ones((9, 5)))
    )
    refused(
        "as many images", plots.gallery, {"plain": np.ones((3, 2, 2))}, ["one", "two"]
    )
    refused(
        "No client has a number 'test'",
        plots.client_strip,
        RUNS.assign(test=np.nan),
        hue=None,
    )
