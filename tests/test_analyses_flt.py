"""Analyses and grids of notebooks 01 to 05 whose answers are known."""

from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage
from toys import label_clusters

import fltnb as fl
from fltnb import federations
from fltnb.analyses import centroids, scenario2, scenario3, scenario4
from fltnb.analyses.scenario4 import ways_to_cut
from fltnb.experiments.measure import link_shares
from fltnb.metrics import adjusted_rand_index
from fltnb.notebook.grids import grids

FCR = {"name": "FCR", "k": 2, "distance": "min", "threshold": 1.0}
FCR |= {"random_state": 42, "n_neighbors": 5}


def test_link_shares_by_hand():
    adjacency = np.array([[1, 1, 0, 0], [1, 1, 0, 1], [0, 0, 1, 0], [0, 1, 0, 1]])
    # inside: pairs (0,1) linked, (2,3) not; across: 1 of 4 pairs linked
    assert link_shares(adjacency, np.array([0, 0, 1, 1])) == (0.5, 0.25)
    inside, across = link_shares(np.eye(3), np.arange(3))
    assert np.isnan(inside) and across == 0


USUAL = ("dataset", "model", "method", "variant", "seed")


APART = ("dataset", "model")


def trainings(page, profile="", first_seed=False):
    """Return the rows of a page's grids that are trainings."""
    rows = [row for grid in grids(page, profile) for row in grid]
    rows = [row for row in rows if isinstance(row.experiment, fl.Training)]
    return [row for row in rows if not first_seed or row.axes["seed"] == 0]


def parts(run):
    """Return what a training is made of, by name."""
    made = {one.name: getattr(run, one.name) for one in fields(run)}
    return made | {"method": run.method.settings()}


def test_every_switch_changes_one_thing():
    rows = trainings("02", first_seed=True)
    plain = {}
    alone = []
    for row in rows:
        at = tuple(row.axes[name] for name in USUAL)
        switches = [name for name in row.axes if name not in USUAL]
        if not switches:
            plain[at] = parts(row.experiment)
        elif len(switches) == 1:
            alone.append((at, *switches, parts(row.experiment)))

    assert len(alone) > 12
    parted = {"momentum": "momentum", "partition": "federation"}
    for at, switch, made in alone:
        different = [name for name in made if made[name] != plain[at][name]]
        assert different == [parted.get(switch, "method")]


def test_from_as_written_to_as_run_each_run_has_one_thing_more():
    rows = trainings("02", first_seed=True)
    rows = [row for row in rows if row.axes["dataset"] == "mnist"]
    by_axes = {}
    for row in rows:
        own = {name: row.axes[name] for name in row.axes if name not in APART}
        by_axes[frozenset(own.items())] = parts(row.experiment)

    found = {"k": 3, "distance": "matching"}
    over = found | {"graph": "full"}
    for method, more in (("fedavg", []), ("fedsem", []), ("flt_enc1", [found, over])):
        text = [{}, *more, (more[-1] if more else {}) | {"momentum": 0.5}]
        stages = [{"variant": "as_written"} | switch for switch in text]
        stages += [{"variant": "as_run", "rule": "participants"}]
        stages += [{"variant": "as_run"}]
        about = {"method": method, "seed": 0}
        runs = [by_axes[frozenset((about | stage).items())] for stage in stages]
        assert all(one not in runs[:i] for i, one in enumerate(runs))
        assert len(runs) == {"flt_enc1": 6}.get(method, 4)
        assert runs[-2] | {"method": 0} == runs[-1] | {"method": 0}


def test_a_sampler_deals_as_many_images_whatever_the_number_of_clients():
    held = {"classes_per_cluster": 3, "shared_classes": 1}
    more = {"samples_per_client": 90, "overlap": True}
    feds = [
        federations.build(label_clusters(n_clients=n, **held, **more)) for n in (10, 50)
    ]
    assert all((fed.sizes == 90).all() for fed in feds)
    assert all(len(np.unique(own)) == 90 for fed in feds for own in fed.train)
    _, others = grids("05")
    other = {row.axes["variant"]: row.axes["sampler"] for row in others}
    assert other == {"as_written": "per class", "as_run": "dealt once"}


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


def test_a_group_of_centroids_is_scored_without_labels():
    axes = {"kind": "pca", "pretrain": "digits", "latent": 16}
    about = {"federation": label_clusters(), "encoder": axes, "clusterer": FCR}
    found = centroids.sweep(**about, ks=[1, 2], starts=[42, 43])["tables"]
    assert (
        found["found"].query("cut == 'C given'")["ari"].eq(1).all()
    )  # the digits are easy, with any k and distance
    assert (
        set(found["scores"]["k"]) == {1, 2}
        and found["scores"].query("k == 1")["silhouette"].eq(0).all()
    )
    assert (
        found["scores"]["clique"].between(0.8, 1).all()
        and found["scores"]["stability"].between(-1, 1).all()
    )
    again = centroids.transformed(**about)["numbers"]
    assert (
        again["ari_fitted"] == 1
        and again["ari_transformed"] > 0.8
        and again["links_moved"] < 0.1
    )


@pytest.mark.parametrize(
    ("variant", "twice"), [("as_written", False), ("as_run", True)]
)
def test_neighbouring_clusters_share_images_only_as_run(variant, twice):
    held = {"classes_per_cluster": 3, "shared_classes": 1, "variant": variant}
    found = scenario2.holdings(label_clusters(**held))
    counts, clusters = found["arrays"]["label_counts"], found["arrays"]["clusters"]
    assert counts.shape == (25, 10) and len(clusters) == 25
    assert ((counts > 0).sum(axis=1) == 3).all()  # three labels each
    assert (found["numbers"]["held_twice"] > 0) == twice
    if not twice:
        assert found["numbers"]["images"] == counts.sum()


TRUTH = np.repeat(np.arange(3), 4)


@pytest.fixture
def fitted():
    """Three clusters that the graph glues into two (0 with 1), while the distances keep
    them apart.
    """
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
    held = {"n_clients": 40, "classes_per_cluster": 2, "test": "clean", "seed": 0}
    fed = fl.recipe("structured", "digits", **held).settings
    both = {"as_written": FCR, "as_run": FCR | {"distance": "matching"}}
    found = scenario4.cuts(fed, both, {"kind": "pixels"})
    table = found["tables"]["cuts"].set_index(["variant", "cut"])
    assert table.loc[("as_written", "C given"), "n_clusters"] == 5
    assert table.loc["as_written", "ari"].eq(1).all()
    assert found["arrays"]["as_run/adjacency"].shape == (40, 40)


def test_the_smallest_clients_at_the_official_sizes():
    """26 images in the clusters of 12,000 and 11 in the one of 4,800; the paper says 20
    (FLT, Section 4.6).
    """
    assert [federations.power_law_sizes(n, 240).min() for n in (12000, 4800)] == [
        26,
        11,
    ]


def test_handwriting_is_the_clients_own():
    settings = fl.recipe("pseudo_writers", "digits", n_clients=30, seed=0).settings
    images = scenario3.handwriting(settings, writers=2, each=3)["arrays"]["images"]
    fed = federations.build(settings)
    assert np.array_equal(images[1], fed.images[fed.train[1][:3]])


@pytest.mark.parametrize(("profile", "count"), [("", 96 + 28), ("demo", 24 + 16)])
def test_the_ablation_asks_for_its_settings(profile, count):
    rows = trainings("05", profile)
    assert len(rows) == count
    if not profile:
        about = ("n_clients", "participation", "local_epochs")
        assert len({tuple(row.axes[name] for name in about) for row in rows}) == 8
    for row in rows:
        made = row.experiment
        assert made.federation.settings["n_clients"] == row.axes["n_clients"]
        assert made.participation == row.axes["participation"]
        assert made.local_epochs == row.axes["local_epochs"]
