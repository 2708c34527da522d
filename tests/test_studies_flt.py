"""Studies of notebooks 02 to 05 whose answers are known."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage

from fltnb import federations, studies
from fltnb.analyses.scenario4 import ways_to_cut
from fltnb.metrics import adjusted_rand_index
from fltnb.results.work import link_shares
from fltnb.studies import centroids, common, scenario2, scenario3, scenario4
from fltnb.studies.common import federation


def test_link_shares_by_hand():
    adjacency = np.array([[1, 1, 0, 0], [1, 1, 0, 1], [0, 0, 1, 0], [0, 1, 0, 1]])
    # inside: pairs (0,1) linked, (2,3) not; across: 1 of 4 pairs linked
    assert link_shares(adjacency, np.array([0, 0, 1, 1])) == (0.5, 0.25)
    inside, across = link_shares(np.eye(3), np.arange(3))
    assert np.isnan(inside) and across == 0


def test_every_switch_changes_one_thing():
    jobs = [
        job
        for job in studies.jobs("02", "small")
        if job.kind == "training" and job.seed == 0
    ]
    assert len({job.id for job in jobs}) == len(jobs)
    common = ("dataset", "method", "variant", "model", "seed")
    switches = [
        {name: job.axes[name] for name in job.axes if name not in common}
        for job in jobs
    ]
    pairs = list(zip(jobs, switches, strict=True))
    plain = {
        tuple(job.axes[name] for name in common): job
        for job, switch in pairs
        if not switch
    }
    alone = [(job, switch) for job, switch in pairs if len(switch) == 1]
    assert len(alone) > 12
    for job, switch in alone:
        other = plain[tuple(job.axes[name] for name in common)].settings
        different = [name for name in other if other[name] != job.settings[name]]
        assert different == [
            {"momentum": "momentum", "partition": "federation"}.get(*switch, "method")
        ]


def test_from_as_written_to_as_run_each_run_has_one_thing_more():
    for name, length in (("fedavg", 4), ("fedsem", 4), ("flt_enc1", 6)):
        stages = common.path(name, 1)
        jobs = [
            common.rows(name, "mnist", variant, "small", (0,), 1, **switch)[0]
            for _, variant, switch in stages
        ]
        assert len(stages) == length and len({job.id for job in jobs}) == length
        assert jobs[-2].settings | {"method": 0} == jobs[-1].settings | {"method": 0}
        assert {job.id for job in jobs} <= {
            job.id for job in studies.jobs("02", "small")
        }


def test_a_sampler_deals_as_many_images_whatever_the_number_of_clients():
    more = {"samples_per_client": 90, "overlap": True}
    feds = [
        federations.build(federation("digits", "as_written", 0, 1, n) | more)
        for n in (10, 50)
    ]
    assert all((fed.sizes == 90).all() for fed in feds)
    assert all(len(np.unique(own)) == 90 for fed in feds for own in fed.train)
    other = {
        job.axes["variant"]: job.axes["sampler"]
        for job in studies.jobs("05", "small")
        if "sampler" in job.axes
    }
    assert other == {"as_written": "250 per class", "as_run": "dealt once"}


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
    (job,) = [job for job in studies.jobs("01", "demo") if job.kind == "study"]
    found = centroids.sweep(
        **{name: value for name, value in job.settings.items() if name != "function"}
    )["tables"]
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
    again = centroids.transformed(
        *(job.settings[name] for name in ("federation", "encoder", "clusterer"))
    )["numbers"]
    assert (
        again["ari_fitted"] == 1
        and again["ari_transformed"] > 0.8
        and again["links_moved"] < 0.1
    )


@pytest.mark.parametrize(
    ("variant", "twice"), [("as_written", False), ("as_run", True)]
)
def test_neighbouring_clusters_share_images_only_as_run(variant, twice):
    found = scenario2.holdings(federation("digits", variant, seed=0, shared_classes=1))
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
    (job,) = [job for job in studies.jobs("04", "demo") if job.kind == "study"]
    found = scenario4.cuts(
        **{name: value for name, value in job.settings.items() if name != "function"}
    )
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
    settings = scenario3.federation("demo")
    images = scenario3.handwriting(settings, writers=2, each=3)["arrays"]["images"]
    fed = federations.build(settings)
    assert np.array_equal(images[1], fed.images[fed.train[1][:3]])


@pytest.mark.parametrize(
    ("profile", "count"), [("demo", 12), ("small", 126), ("paper", 234)]
)
def test_the_ablation_asks_for_eight_settings(profile, count):
    jobs = studies.jobs("05", profile)
    assert len(jobs) == count
    for job in jobs:
        fed, axes = job.settings["federation"], job.axes
        trained = {
            name: job.settings[name] for name in ("participation", "local_epochs")
        }
        assert {"clients": fed["n_clients"]} | trained == {
            name: axes[name] for name in ("clients", *trained)
        }
