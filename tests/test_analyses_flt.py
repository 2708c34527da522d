"""Analyses of notebooks 01 to 05 whose answers are known, and what their grids ask."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage

from fltnb import federations
from fltnb.analyses import centroids, scenario2, scenario3, scenario4
from fltnb.analyses.scenario4 import ways_to_cut
from fltnb.experiments.measure import link_shares
from fltnb.metrics import adjusted_rand_index
from fltnb.notebook.grids import grids


def federation(shared_classes=0, n_clients=25, **more):
    size = {"n_clients": n_clients, "n_clusters": 5, "shared_classes": shared_classes}
    size["classes_per_cluster"] = 2 + shared_classes
    return {"kind": "label_clusters", "dataset": "digits", **size, **more}


def test_link_shares_by_hand():
    adjacency = np.array([[1, 1, 0, 0], [1, 1, 0, 1], [0, 0, 1, 0], [0, 1, 0, 1]])
    # inside: pairs (0,1) linked, (2,3) not; across: 1 of 4 pairs linked
    assert link_shares(adjacency, np.array([0, 0, 1, 1])) == (0.5, 0.25)
    inside, across = link_shares(np.eye(3), np.arange(3))
    assert np.isnan(inside) and across == 0


def test_every_switch_of_scenario_2_changes_one_thing():
    rows = [row for grid in grids("02") for row in grid]
    rows = [row for row in rows if row.experiment.kind == "training"]
    common = ("dataset", "method", "variant", "model", "seed")
    plain, alone = {}, []
    for row in rows:
        name = tuple(row.axes.get(one) for one in common)
        switch = {one: row.axes[one] for one in row.axes if one not in common}
        if not switch:
            plain[name] = row
        elif len(switch) == 1:
            alone.append((name, *switch, row))
    assert len(alone) > 12
    for name, switch, row in alone:
        if name not in plain:
            continue
        one, other = plain[name].experiment.settings, row.experiment.settings
        different = {key for key in one | other if one.get(key) != other.get(key)}
        where = {"momentum": "momentum", "partition": "federation"}
        assert different <= {where.get(switch, "method")}, (name, switch)


def test_a_sampler_deals_as_many_images_whatever_the_number_of_clients():
    more = {"samples_per_client": 90, "overlap": True}
    feds = [federations.build(federation(1, n) | more) for n in (10, 50)]
    assert all((fed.sizes == 90).all() for fed in feds)
    assert all(len(np.unique(own)) == 90 for fed in feds for own in fed.train)


def test_levelled_clusters_have_sizes_as_their_numbers_of_classes():
    lists = federations.labels._levelled([100, 90, 10, 60, 50, 40, 70], [3, 3, 1])
    assert sorted(k for own in lists for k in own) == list(range(7)) and [
        len(own) for own in lists
    ] == [3, 3, 1]
    sizes = [sum([100, 90, 10, 60, 50, 40, 70][k] for k in own) for own in lists]
    assert (
        max(abs(size - want) for size, want in zip(sizes, (180, 180, 60), strict=True))
        <= 30
    )


FCR = {"name": "FCR", "k": 2, "n_neighbors": 5}


def test_a_group_of_centroids_is_scored_without_labels():
    how = federation(), {"kind": "pca", "pretrain": "digits", "latent": 16}, FCR
    found = centroids.sweep(*how, ks=[1, 2], starts=[42, 43])["tables"]
    # the digits are easy, with any k and distance
    assert found["found"].query("cut == 'C given'")["ari"].eq(1).all()
    scores = found["scores"]
    assert set(scores["k"]) == {1, 2}
    assert scores.query("k == 1")["silhouette"].eq(0).all()
    assert scores["clique"].between(0.8, 1).all()
    assert scores["stability"].between(-1, 1).all()
    again = centroids.transformed(*how)["numbers"]
    assert again["ari_fitted"] == 1 and again["ari_transformed"] > 0.8
    assert again["links_moved"] < 0.1


@pytest.mark.parametrize(
    ("variant", "twice"), [("as_written", False), ("as_run", True)]
)
def test_neighbouring_clusters_share_images_only_as_run(variant, twice):
    found = scenario2.holdings(federation(1, variant=variant))
    counts, clusters = found["arrays"]["label_counts"], found["arrays"]["clusters"]
    assert counts.shape == (25, 10) and len(clusters) == 25
    assert ((counts > 0).sum(axis=1) == 3).all()  # three labels each
    assert (found["numbers"]["held_twice"] > 0) == twice
    if not twice:
        assert found["numbers"]["images"] == counts.sum()


TRUTH = np.repeat(np.arange(3), 4)


@pytest.fixture
def fitted():
    """Three clusters that the graph glues into two (0 with 1), while the distances keep them apart."""
    place = np.array([0.0, 1.0, 10.0])[TRUTH] + np.tile([0.0, 0.1, 0.2, 0.3], 3)
    adjacency = (np.abs(place[:, None] - place) < 2).astype(np.uint8)
    two = (TRUTH == 2).astype(int)
    distance = np.abs(place[:, None] - place)
    return SimpleNamespace(
        labels_=two,
        linkage_=linkage(adjacency.astype(float), "ward"),
        distance_=distance,
    )


def test_four_ways_to_cut(fitted):
    found = ways_to_cut(fitted, 3)
    two = fitted.labels_
    assert adjusted_rand_index(found["largest gap"], two) == 1
    assert found["modularity (ours)"] is two
    assert adjusted_rand_index(found["Ward on the distances, C given"], TRUTH) == 1
    assert (
        len(np.unique(found["C given"])) == 2
    )  # the graph cannot tell more apart, asked for or not


def test_the_study_of_cuts_says_what_each_way_finds():
    fed = {"kind": "structured", "dataset": "digits", "n_clients": 40}
    fed |= {"test": "clean", "classes_per_cluster": 2, "seed": 0}
    distances = {"as_written": "min", "as_run": "matching"}
    made = {name: FCR | {"distance": one} for name, one in distances.items()}
    found = scenario4.cuts(fed, made, {"kind": "pixels"})
    table = found["tables"]["cuts"].set_index(["variant", "cut"])
    assert table.loc[("as_written", "C given"), "n_clusters"] == 5
    assert table.loc["as_written", "ari"].eq(1).all()
    assert found["arrays"]["as_run/adjacency"].shape == (40, 40)


def test_the_smallest_clients_at_the_official_sizes():
    """26 images in the clusters of 12,000 and 11 in the one of 4,800; the paper says 20 (FLT, Section 4.6)."""
    assert [federations.power_law_sizes(n, 240).min() for n in (12000, 4800)] == [
        26,
        11,
    ]


def test_handwriting_is_the_clients_own():
    settings = {"kind": "pseudo_writers", "dataset": "digits", "n_clients": 30}
    images = scenario3.handwriting(settings, writers=2, each=3)["arrays"]["images"]
    fed = federations.build(settings)
    assert np.array_equal(images[1], fed.images[fed.train[1][:3]])


def test_the_ablation_asks_for_eight_settings():
    rows = [row for grid in grids("05") for row in grid]
    settings = set()
    for row in rows:
        made = row.experiment
        clients = made.federation.settings["n_clients"]
        settings.add((clients, made.participation, made.local_epochs))
    assert len(settings) == 8
