"""The explorer: what it shows at the start is the fit, controls do what the package
does, a still picture elsewhere.
"""

import io
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import fltnb as fl
from fltnb.plots.explore import EQUAL, GIVEN

TRUTH = np.repeat([0, 1, 2], 4)


def clients():
    rng, centres = np.random.default_rng(0), 4 * np.eye(6)
    return [
        rng.normal(scale=0.3, size=(30, 6)) + centres[[2 * t, 2 * t + 1] * 15]
        for t in TRUTH
    ]


@pytest.fixture(scope="module")
def flt():
    return fl.FCR(k=2, n_neighbors=4, random_state=1).fit(clients()), clients()


CLUSTERERS = [
    fl.FCR(k=2, n_neighbors=4, threshold=0.5),
    fl.PCAKMeans(k=2, threshold=0.1, max_clusters=2),
]
CLUSTERERS += [
    fl.EigenRelevance(n_eigenvectors=2),
    fl.TransportSignatures(k=4),
    fl.PACFL(threshold=20.0),
]
CLUSTERERS += [fl.EMDClustering(tolerance=0.2, projection=None)]


@pytest.mark.parametrize("clusterer", CLUSTERERS, ids=lambda one: type(one).__name__)
def test_starts_where_the_clusterer_ended(clusterer):
    X = [np.clip(x / 6 + 0.2, 0, 1) for x in clients()]
    fitted = clusterer.fit(X)
    seen = fl.explore(fitted, X, truth=TRUTH, live=False)
    assert (
        seen.labels.tolist() == fitted.labels_.tolist()
        and seen.at["n_clusters"] == fitted.n_clusters_
    )
    if isinstance(
        fitted, (fl.FCR, fl.PCAKMeans, fl.EMDClustering)
    ):  # their clusters follow from links
        assert (seen.links == fitted.adjacency_).all()
    for rule in seen.allowed["rule"]:  # every rule gives a clustering
        assert set(seen.move(rule=rule).labels) == set(range(seen.at["n_clusters"]))


def test_controls_give_what_a_new_fit_gives(flt):
    fitted, X = flt
    seen = fl.explore(fitted, X, live=False)
    for option, value in (("threshold", seen.allowed["threshold"][1] / 2), ("k", 3)):
        new = fl.FCR(
            **fitted.get_params()
            | {"k": seen.at["k"], "threshold": seen.at["threshold"]}
            | {option: value}
        )
        new.fit(X)
        seen.move(**{option: value})
        assert (seen.links == new.adjacency_).all() and (
            seen.labels == new.labels_
        ).all()
        assert np.allclose(seen.tree, new.linkage_)
    told = fl.FCR(
        **fitted.get_params()
        | {"k": 3, "threshold": seen.at["threshold"], "n_clusters": 4}
    ).fit(X)
    assert (
        seen.move(n_clusters=4).at["rule"] == GIVEN
        and (seen.labels == told.labels_).all()
    )
    before, seen.allowed["k"] = seen.at, (1, 99)
    with pytest.raises(fl.FltnbError, match="k must be from 1 to"):
        seen.move(k=31)
    assert seen.at == before


def test_every_client_can_be_picked_in_every_panel_and_picking_redraws_samples_only(
    flt,
):
    fitted, X = flt
    images = list(
        np.random.default_rng(0).integers(0, 255, (12, 5, 8, 8), dtype=np.uint8)
    )
    seen = fl.explore(
        fitted, X, samples=images, accuracy=np.arange(12.0), truth=TRUTH, live=False
    )
    client, left, top, right, bottom = seen.spots.T
    assert (
        np.bincount(client.astype(int)).tolist() == [2 + 1 + 1 + 1 + 1] * 12
    )  # two centroids on the map
    assert (
        (left >= 0).all()
        and (left <= right).all()
        and (right <= 1).all()
        and (top <= bottom).all()
    )
    tree, pngs = seen.tree, [seen.png, seen.move(client=7).png]
    first, second = (np.asarray(Image.open(io.BytesIO(png))) for png in pngs)
    assert (
        first.shape == (640, 1050, 3)
        and seen.tree is tree
        and "accuracy 7.0%" in seen.text
    )
    assert (first[:, :700] == second[:, :700]).all() and (first != second).any()


def test_clients_of_a_series_are_found_by_their_place_and_not_by_its_index():
    near = np.array([[0.0, 0.1, 0.9], [0.1, 0.0, 0.8], [0.9, 0.8, 0.0]])
    accuracy = pd.Series([50.0, 60.0, 70.0], index=[2, 1, 0])
    truth = pd.Series([4, 4, 7], index=["Linz", "Wels", "Graz"])
    given = {"accuracy": accuracy, "truth": truth, "live": False}
    seen = fl.explore({"distance": near}, **given)
    assert seen.text.endswith("true cluster 4, test accuracy 50.0%.")


def test_a_slider_that_begins_at_a_whole_number_takes_others_too():
    near = np.array([[0.0, 0.1], [0.1, 0.0]])
    seen = fl.explore({"distance": near}, threshold=5, live=False)
    assert seen.move(threshold=0.05).links.tolist() == [[True, False], [False, True]]


def test_stored_distances_of_emd_cfl_at_the_published_tolerance():
    stored = fl.results("11").where(kind="clustering", tolerance="0.025")
    for kept in [
        stored.arrays(key)
        for key in stored.runs["key"]
        if "distance" in stored.arrays(key)
    ]:
        seen = fl.explore(kept, rule=EQUAL, threshold=0.025, live=False)
        assert (seen.labels == kept["labels"]).all() and "ARI" in seen.text


def test_results_offer_only_what_was_run():
    results = fl.results("01")
    seen = fl.explore(
        results,
        dataset="mnist",
        variant="as_run",
        methods=["fedavg", "local"],
        live=False,
    )
    (mean,) = results.where(
        dataset="mnist", variant="as_run", rule="", method="local"
    ).mean()["accuracy"]
    assert f"{mean:.2f}" in seen.table and seen.at["methods"] == ("fedavg", "local")
    with pytest.raises(fl.FltnbError, match="Unknown methods 'nobody'"):
        seen.move(methods=["nobody"])
    assert seen.move(y="ari").png != seen.move(y="accuracy").png


def test_the_arena_by_level_and_against_a_method():
    from fltnb import arena

    methods = ["FedAvg", "Local", "Ditto"]
    table = arena.everybody(methods, ["told-K", "few-samples"], seeds=[0])
    seen = fl.explore(table, federation="told-K, labels", live=False)
    runs = table.runs.set_index(["track", "family", "level", "method"])["accuracy"]
    for level in ("easy", "middle", "hard"):
        assert f"{runs['told-K', 'labels', level, 'Local']:.2f}" in seen.table
    assert "3 methods, one seed" in seen.text

    before = seen.png
    seen.move(against="Local", y="worst", methods=["FedAvg", "Local"])
    assert seen.png != before and "Ditto" not in seen.table
    alone = seen.move(methods=["FedAvg"])
    assert alone.text == "told-K, labels: 1 method, one seed."
    with pytest.raises(fl.FltnbError, match="Unknown federation 'drift, labels'"):
        seen.move(federation="drift, labels")


def test_the_arena_by_the_told_number_of_clusters():
    from fltnb import arena

    table = arena.everybody_wrong_k(seeds=[0])
    seen = fl.explore(table, federation="told-K, opinions", y="ari", live=False)
    seen.move(methods=["IFCA", "MergeGain"])
    here = table.runs[table.runs["family"] == "opinions"]
    ari = here.set_index(["method", "off"])["ari"]
    heads = re.findall(r"<th>([-+]\d)</th>", seen.table)
    assert heads == ["-2", "-1", "+0", "+1", "+2", "+4"]
    shown = [float(one) for one in re.findall(r"<td>(.*?)</td>", seen.table)]
    assert shown[:6] == ari["IFCA"].round(2).tolist()
    assert shown[6:] == [1.0] * 6  # merge by gain is told nothing


def test_widget_follows_and_leads_and_elsewhere_there_is_a_picture(flt, monkeypatch):
    fitted, X = flt
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert fl.explore(fitted).widget is None
    monkeypatch.setenv("JPY_SESSION_NAME", "a.ipynb")
    seen = fl.explore(fitted, X, truth=TRUTH)
    before = seen._view.png
    seen._controls["threshold"].value = 0.0  # a person moves a slider: nobody is linked
    assert (
        "12 clusters" in seen._said.value
        and seen._view.png != before
        and seen._controls["n_clusters"].value == 12
    )
    seen._controls["n_clusters"].value = 1
    assert (
        seen.at["rule"] == seen._controls["rule"].value == GIVEN
        and "1 cluster," in seen._said.value
    )
    seen._view.client = 5  # and clicks a client
    assert seen._controls["client"].value == 5 and seen._view.png == seen.png
    shown = []
    monkeypatch.setattr(
        "IPython.display.display", lambda *what, **how: shown.append(what[0])
    )
    seen._ipython_display_()
    assert {"image/png", "application/vnd.jupyter.widget-view+json"} <= set(
        shown[0]
    ) and len(shown) == 2


def test_bad_input_gets_a_sentence(flt):
    fitted, X = flt
    for source, options, message in (
        (fl.FCR(), {}, "after fit"),
        ({"labels": TRUTH}, {}, "clients' distance"),
        (
            {"distance": TRUTH},
            {},
            r"a matrix .M, M. of two clients or more, but it has the shape .12,",
        ),
        (
            {"distance": np.ones((3, 3)), "labels": TRUTH},
            {},
            "labels is of 12 clients, but 3 were clustered",
        ),
        (
            {"distance": np.ones((3, 3)), "linkage": np.ones((3, 4))},
            {},
            "linkage is of 4 clients, but 3 were",
        ),
        (fitted, {"truth": TRUTH[:5]}, "truth is of 5 clients, but 12 were"),
        (
            {"distance": np.ones((3, 3)), "linkage": np.zeros((2, 4))},
            {},
            "linkage is no dendrogram",
        ),
        ({"distance": "near"}, {}, r"a matrix .M, M."),
        ({"distance": np.ones((3, 3)), "labels": list("abb")}, {}, "labels must be"),
        (fitted, {"truth": [None] * 12}, "none missing"),
        (fitted, {"accuracy": ["good"] * 12}, "one number for each client"),
        (fitted, {"accuracy": np.ones((12, 1))}, "one number for each client"),
        (fitted, {"samples": X}, "must be images"),
        (fitted, {"samples": [x[:, None, None] for x in X]}, "must be images"),
        (fitted, {"samples": [np.ones((0, 8, 8))] * 12}, "must be images"),
        (fitted, {"client": 2.5}, "in whole numbers, not to 2.5"),
        (fitted, {"client": "Graz"}, "not to 'Graz'"),
        (fitted, {"threshold": "low"}, "threshold must be a number"),
        (fl.results("01"), {"methods": "fedavg"}, "must be a list of names"),
        (fitted, {"rule": "luck"}, "Unknown rule 'luck'"),
        (fitted, {"client": 12}, "client goes from 0 to 11"),
        (fl.results("09").where(kind="clustering"), {}, "no training"),
    ):
        with pytest.raises(fl.FltnbError, match=message):
            fl.explore(source, live=False, **options)
