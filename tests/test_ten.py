"""The ten federations of the comparison are those that the stored runs have."""

import pytest

import fltnb as fl
from fltnb.federations import (
    LEVELS,
    canonical,
    eleven_more,
    four_on_digits,
    graded,
    ten,
)


def test_every_stored_run_of_the_comparison_is_on_one_of_the_ten():
    trainings = fl.results("15").where(kind="training")
    grounds = {seed: ten(seed) for seed in set(trainings.runs["seed"])}
    on_some = trainings.runs["federation"] != ""  # the others are OCFL's own setting
    for run in trainings.runs[on_some].itertuples():
        ground = grounds[run.seed][run.federation]
        stored = trainings.record(run.key)["settings"]["federation"]
        assert canonical(ground.federation.settings) == stored, run.federation
        assert run.model == ground.model


def test_four_of_them_can_be_built_of_the_digits():
    for name, ground in four_on_digits(1).items():
        fed = ground.federation.build()
        assert min(map(len, fed.val)) > 0, name
        assert len(set(fed.clusters)) == ground.n_clusters


def test_difficulty_and_other_federations_say_how_many_clusters_there_are():
    shared = graded("overlap", 100, seed=3, dataset="digits", samples=50)
    assert shared.n_clusters == 5 and shared.federation.settings["seed"] == 3
    turned = graded("rotation", 10, n_clients=4, samples=40, dataset="digits")
    fed = turned.federation.build()
    assert fed.n_clusters == turned.n_clusters == 4 and fed.n_clients == 4
    assert graded("backdoor", 0.5).images == "colours"
    assert set(LEVELS) == {"samples", "overlap", "rotation", "backdoor", "noise"}
    others = eleven_more(7)
    assert len(others) == 11
    assert {one.settings["seed"] for one in others.values()} == {7}


def test_an_unknown_difficulty_is_refused():
    with pytest.raises(fl.FltnbError, match="Unknown difficulty 'rotations': choose"):
        graded("rotations", 90)
