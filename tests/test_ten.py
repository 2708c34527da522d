"""The ten federations of the comparison are those that the stored runs have."""

import fltnb as fl
from fltnb.federations import canonical, four_on_digits, ten


def test_every_stored_run_of_the_comparison_is_on_one_of_the_ten():
    trainings = fl.results("15").where(kind="training")
    grounds = {seed: ten(seed) for seed in set(trainings.runs["seed"])}
    for run in trainings.runs.itertuples():
        ground = grounds[run.seed][run.federation]
        stored = trainings.record(run.key)["settings"]["federation"]
        assert canonical(ground.federation.settings) == stored, run.federation
        assert run.model == ground.model


def test_four_of_them_can_be_built_of_the_digits():
    for name, ground in four_on_digits(1).items():
        fed = ground.federation.build()
        assert min(map(len, fed.val)) > 0, name
        assert len(set(fed.clusters)) == ground.n_clusters
