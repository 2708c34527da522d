"""What notebook 08 measures beside accuracies, on numbers small enough to check by
eye; and its grids."""

import numpy as np
import pytest

import fltnb as fl
from fltnb.analyses import fesem_models as study
from fltnb.federations.writers import writer_styles
from fltnb.notebook.grids import grids

QUICK = {"model": "mlp_plain", "rounds": 2, "local_epochs": 3, "participation": 1.0}
QUICK |= {"batch_size": 20, "lr": 0.1, "seed": 0}
HELD = {"n_clients": 12, "seed": 0, "train_fraction": 0.8}
WRITERS = fl.recipe("pseudo_writers", "digits", **HELD).settings
TABLES = ["nofed", "fedsgd", "fedavg", "feddist", "feddist_ws", "robust_tkm"]
TABLES += ["fedcluster", "hypocluster_3", "feddane", "fedprox"]
TABLES += ["fesem_2", "fesem_3", "fesem_4", "fesem_ma_3"]  # rows of Tables 2 and 3
EM = {"name": "fesem", "n_clusters": 2}


def inner(points):
    points = np.asarray(points, dtype=float)
    centred = points - points.mean(axis=0)
    return centred @ centred.T


@pytest.mark.parametrize("profile", ["", "demo"])
def test_rows_of_the_tables_in_the_page(profile):
    rows, *_ = grids("08", profile)
    first = [row.axes for row in rows if row.axes["dataset"] == rows[0].axes["dataset"]]
    written = {row["method"] for row in first if row["variant"] == "as_written"}
    run = {row["method"] for row in first if row["variant"] == "as_run"}
    assert written >= {*TABLES, "flt", "transport", "pacfl", "emdcfl"}
    assert run == {"fesem_2", "fesem_3", "fesem_4"} <= written

    of = {row.axes["method"]: row.experiment for row in reversed(rows)}
    passes = of["fedavg"].rounds * of["fedavg"].local_epochs
    assert of["fedsgd"].rounds == passes  # over the data


def test_planes_and_distances_inside_clusters():
    from sklearn.decomposition import PCA

    points = np.random.default_rng(0).normal(size=(9, 5)) * (5, 3, 1, 1, 1)
    found, explained = study.plane(inner(points))
    expected = PCA(2).fit(points)
    assert np.allclose(np.abs(found), np.abs(expected.transform(points)))
    assert explained == pytest.approx(expected.explained_variance_ratio_.sum())
    assert (
        np.abs(found).argmax(axis=0) == found.argmax(axis=0)
    ).all()  # the farthest out is on the positive side

    line = inner([[0.0], [2.0], [10.0]])
    assert study.inside(line, np.array([0, 0, 1])) == pytest.approx(2 / 3)  # 1, 1 and 0
    assert study.inside(line, np.zeros(3)) == pytest.approx(56 / 3)  # 16, 4, 36
    far = np.abs(np.subtract.outer([0.0, 1.0, 10.0, 11.0], [0.0, 1.0, 10.0, 11.0]))
    assert study.silhouette(far, np.array([0, 0, 1, 1])) == pytest.approx(
        1 - (1 / 10.5 + 1 / 9.5) / 2
    )
    assert np.isnan(study.silhouette(far, np.zeros(4))) and np.isnan(
        study.silhouette(far, np.arange(4))
    )


def test_what_is_watched_is_what_was_sent():
    """The E-step's clusters, distances of models, the same run as without looking."""
    fed = fl.federations.build(WRITERS)
    kept, done = study.watch(EM, fed, (1, 2), **QUICK)
    plain = fl.run(fl.methods.build(EM), fed, **QUICK, progress=False)
    assert np.array_equal(plain.theta, done.theta) and np.array_equal(
        plain.labels_at[1], kept[1][1]
    )
    products, labels = kept[2]
    assert np.array_equal(plain.labels, labels)
    assert np.allclose(products.sum(axis=0), 0, atol=1e-6) and np.allclose(
        products, products.T
    )
    # a round later everybody is near the centre it began from: within less than between
    assert study.inside(products, labels) < np.trace(products) / len(labels)
    tables = study.local_models(WRITERS, EM, (1, 2), **QUICK)["tables"]
    assert (
        list(tables["points"]["round"].unique()) == [1, 2]
        and len(tables["points"]) == 2 * fed.n_clients
    )
    assert (tables["separation"]["chance"] <= tables["separation"]["highest"]).all()


def test_what_fesem_as_run_reports_is_its_best_centre_on_everybody():
    method = EM | {"variant": "as_run"}
    numbers = study.centers(WRITERS, method, **QUICK)["numbers"]
    done = fl.run(
        fl.methods.build(method), fl.federations.build(WRITERS), **QUICK, progress=False
    )
    test = done.history[done.history["split"] == "test"]
    assert (
        numbers["lowest"] <= numbers["highest"] == pytest.approx(test["micro"].iloc[-1])
    )


def test_clients_of_a_small_run():
    small = study.choosing_k(
        WRITERS, EM, (1, 2), {"clients": 5, "draws": 2, "rounds": 1}, **QUICK
    )["tables"]["short"]
    assert small[["draw", "K"]].to_numpy().tolist() == [[0, 1], [0, 2], [1, 1], [1, 2]]
    assert small["inside"].nunique() == 4  # each draw has other clients
    assert (
        small[small["K"] == 2]["inside"].to_numpy()
        < small[small["K"] == 1]["inside"].to_numpy()
    ).all()


def test_table_1_counts_what_is_at_hand():
    found = study.statistics(WRITERS, shown=2)
    printed = found["tables"]["printed"].set_index("metric")["value"].to_dict()
    assert printed == {"num_samples": 1704, "num_clients": 12, "num_classes": 10}
    assert found["arrays"]["counts"].shape == (12, 10) and found["arrays"][
        "images"
    ].shape == (12, 2, 8, 8)


def bar(lean, thick=4, height=40):
    """A bar of strokes that moves right by ``lean`` pixels for each row upwards."""
    image = np.zeros((height, 100))
    for row in range(height):
        left = 50 + round(lean * (height - 1 - row))
        image[row, left : left + thick] = 1.0
    return image


def test_slant_and_stroke_of_bars_are_known():
    found = study.handwriting(np.stack([bar(0), bar(1), bar(-1), bar(0, thick=8)]))
    assert found["slant"] == pytest.approx([0, 45, -45, 0], abs=0.2)
    assert found["stroke"][[0, 3]] == pytest.approx([4, 8])
    assert found["width"][3] > found["width"][0]


def test_hands_do_not_depend_on_the_characters_written():
    found = study.hands(WRITERS, shown=2)
    hands = found["tables"]["hands"]
    assert hands["client"].tolist() == list(range(12))
    assert found["arrays"]["images"].shape == (4, 2, 8, 8)

    # of all images of a character the mean is taken away
    fed = fl.federations.build(WRITERS)
    total = hands["slant"].to_numpy() @ fed.sizes
    assert total == pytest.approx(0, abs=1e-6)
    given = writer_styles(12, 0, 1.0)[:, 0]
    assert np.corrcoef(given, hands["slant"])[0, 1] > 0.7
