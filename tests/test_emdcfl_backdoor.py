"""Notebooks 12 and 13: renderings, what the trigger announces, tables over targets, blocks of a matrix, claims."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from fltnb.experiments import emdcfl, emdcfl_backdoor, emdcfl_pacs

import fltnb as fl
from fltnb.analysis import backdoor_targets as targets
from fltnb.analysis import emdcfl_backdoor as read
from fltnb.analysis import emdcfl_pacs as pacs
from fltnb.federations import kinds, renderings
from fltnb.federations.domains import STYLES, render


def test_rendering_by_hand():
    dot = np.zeros((1, 4, 4), dtype=np.uint8)
    dot[0, 1, 1] = 200
    square = np.zeros((4, 4), dtype=int)
    square[:3, :3] = 200
    assert (render(dot, "plain") == dot).all() and render(dot, "plain") is not dot
    assert (render(dot, "inverted")[0] == 255 - dot[0]).all()
    assert (render(dot, "thick")[0] == square).all()
    assert (render(dot, "outline")[0] == square - dot[0]).all()


def test_renderings_part_the_digits_over_four_domains():
    digits = fl.load("digits")
    fed = renderings(digits, 200, 150, val_fraction=0.2, test_fraction=0.2, seed=3)
    assert fed.clusters.tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and set(fed.sizes) == {90}
    held = [set(np.concatenate([fed.train[i], fed.val[i], fed.test[i]]).tolist()) for i in range(8)]
    assert len(set.union(*held)) == sum(map(len, held)) == 8 * 150  # nobody shares a picture
    for i, cluster in enumerate(fed.clusters):
        chosen = fed.train[i]
        assert (fed.images[chosen] == render(digits.images[chosen], STYLES[cluster])).all()
        assert (fed.labels[chosen] == digits.labels[chosen]).all()
    again = fl.federations.build(fed.settings)
    assert again.fingerprint() == fed.fingerprint() and again.settings == fed.settings
    other = renderings(digits, 200, 150, val_fraction=0.2, test_fraction=0.2, seed=4)
    assert other.fingerprint() != fed.fingerprint()


def test_renderings_refuse_colour_and_too_few():
    digits = fl.load("digits")
    colour = replace(digits, name="mine", images=np.repeat(digits.images[..., None], 3, axis=3))
    with pytest.raises(fl.FltnbError, match="Renderings are made of grey images"):
        renderings(colour)
    with pytest.raises(fl.FltnbError, match="fewer than the 500"):
        renderings(digits, 500)
    assert kinds.source(colour)["content"]  # a user's own set is named by its content
    mine = replace(digits, name="mine")
    assert renderings(mine, 200).settings["content"] == mine.digest


def test_the_trigger_announces_another_class():
    told = targets.announced({"kind": "backdoor_colours"}, 10)
    assert told.tolist() == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    told = targets.announced({"kind": "backdoor_patches"}, 10)
    assert told.tolist() == [1, 2, 3, 4, 0, -1, -1, -1, -1, -1]


def test_versions_are_what_the_federation_holds():
    """The pictures of the notebook come from the code that paints the clients' images."""
    fed = fl.federations.build(emdcfl_backdoor.federation("demo", "digits", 0))
    images, names = targets.image_versions(fed.settings)
    assert names == [str(c) for c in range(10)]
    every = {"target": 0, "attacker": 1, "other": 2}
    whole = fl.federations.build(fed.settings | {"samples_per_client": None, "test_per_client": None, "n_clients": 3})
    for name, group in every.items():
        own = {tuple(image.ravel()) for image in whole.images[whole.test[group]]}
        assert all(tuple(image.ravel()) in own for image in images[name])
    triggered = {tuple(image.ravel()) for image in whole.images[whole.probe[0]]}
    assert all(tuple(image.ravel()) in triggered for image in images["trigger"])
    assert not (images["attacker"] == images["trigger"]).all(axis=(1, 2, 3)).any()


def test_rows_are_means_over_the_targets():
    tidy = pd.DataFrame(
        [
            ["backdoor_digits", "mlp", "fedavg", "as_written", "", 0, "a", "test", "accuracy", 55.0],
            ["backdoor_digits", "mlp", "ifca", "as_written", "", 0, "b", "test", "accuracy", 60.0],
            ["backdoor_digits", "mlp", "ifca", "as_written", "", 0, "b", "", "ari", 0.5],
        ],
        columns=["dataset", "model", "method", "variant", "note", "seed", "key", "split", "metric", "value"],
    )
    one = pd.DataFrame({"true_cluster": [0, 0, 1, 2], "test": [90.0, 80.0, 50.0, 1.0], "probe": [60.0, 40.0, 2.0, 3.0]})
    part = read.parts(tidy, {"a": one, "b": one.assign(probe=one["test"])})["backdoor_digits"]
    assert part.printed is None and part.model == "mlp"
    assert part.rows[["clean", "backdoor", "lost", "attackers"]].to_numpy().tolist() == [
        [85.0, 50.0, 35.0, 50.0],
        [85.0, 85.0, 0.0, 50.0],
    ]
    shown = read.table(part).set_index("method")
    assert shown.loc["FedAvg", "lost"] == "35.00" and shown.loc["FedAvg", "ARI"] == "–"
    assert shown.loc["IFCA", "ARI"] == "0.50"


def test_printed_tables():
    expected = read.printed("backdoor_cifar10")
    assert expected["fedavg", "lost"] == ("57.10", pytest.approx(92.17 - 35.07))
    assert expected["emdcfl", "clean"] == ("97.84 ± 0.23", 97.84)
    assert read.printed("backdoor_digits") is None
    assert read.repeated() == (54, 54)


def test_class_table_counts_what_the_trigger_announces():
    """A network that looks at the red channel alone takes every image for the class of its shade."""
    fed = fl.federations.build(emdcfl_backdoor.federation("demo", "digits", 0, intensity=1.0))
    net = fl.models.make("mlp_plain", fed.input_shape, fed.n_classes)
    always = np.zeros((1, net.n_parameters), dtype=np.float32)
    always[0, -10:] = np.arange(10) == 9  # the last bias: class 9 for everything
    table = targets.class_table([targets.Finished("fedavg", fed, always, np.zeros(6, dtype=int))], "mlp_plain")
    assert table["class"].tolist() == [str(c) for c in range(10)]
    assert table["clean"].tolist() == [0.0] * 9 + [100.0] == table["triggered"].tolist()
    assert table["announced"].tolist() == [100.0] + [0.0] * 9  # 9 is what the trigger announces on digit 0 alone
    images, said, truth = targets.answers(
        [targets.Finished("fedavg", fed, always, np.zeros(6, dtype=int))], "mlp_plain", 3
    )
    assert truth == ["0", "1", "2"] and said["clean"]["fedavg"] == said["trigger"]["fedavg"] == ["9", "9", "9"]
    assert images["clean"].shape == images["trigger"].shape == (3, 8, 8, 3)


CLUSTERS = np.array([0, 0, 1, 1])
DISTANCE = np.array(
    [[0.0, 0.1, 0.5, 0.7], [0.2, 0.0, 0.6, 0.6], [0.9, 1.1, 0.0, 0.0], [1.0, 1.0, 0.3, 0.0]],
)


def test_blocks_of_a_matrix_by_hand():
    blocks = pacs.block_table(CLUSTERS, DISTANCE, ("a", "b"))
    assert np.allclose(blocks.to_numpy(), [[0.15, 0.6], [1.0, 0.15]])
    table = pacs.asymmetry_table(CLUSTERS, DISTANCE, ("a", "b")).set_index("domain")
    assert table.loc["a"].tolist() == pytest.approx([0.6, 1.0, -0.4])
    assert table.loc["b"].tolist() == pytest.approx([1.0, 0.6, 0.4])
    assert pacs.separated(CLUSTERS, DISTANCE) == (0.3, 0.9)


def _rows(values):
    columns = ["method", "variant", "note", "seed", "key", "accuracy", "worst", "ARI"]
    return pd.DataFrame([[m, "as_written", "", 0, m, *v] for m, v in values.items()], columns=columns)


@pytest.mark.parametrize(("model", "counted"), [("resnet18", True), ("cnn_small", False)])
def test_claims_about_pacs_count_with_the_papers_network_alone(model, counted):
    values = {m: (92.0, 86.0, 1.0) for m in ("oracle", *pacs.OF_CLUSTERS)} | {"pacfl": (88.0, 45.0, 0.7)}
    values |= {"fesem": (82.0, 73.0, 0.0), "cfl": (86.0, 79.0, 0.0)} | {m: (91.0, 80.0, np.nan) for m in pacs.SOFT}
    alone = pd.DataFrame(
        [["pacs", "emdcfl", "own models", "tolerance 0.025", 0, 1.0]],
        columns=["dataset", "method", "features", "given", "seed", "ari"],
    )
    every = {"pacs": pacs.Part(model, _rows(values), None)}
    names = emdcfl_pacs.DOMAINS["pacs"]
    clusters = np.repeat(np.arange(4), 2)
    matrix = np.where(np.equal.outer(clusters, clusters), 0.0, 1.0) - 0.3 * (clusters[:, None] == pacs.ART)
    table = pacs.pacs_claims(every, alone, {model: (clusters, matrix)}).table()
    known = fl.published.claims("emdcfl")
    ids = set(known[known["notebook"] == pacs.NAME]["id"])
    assert len(names) == 4 and set(table["claim"]) - {""} == ids
    verdicts = table[table["claim"] != ""].groupby("claim")["verdict"].agg(set)
    assert all(found == ({"holds"} if counted else {"not tested"}) for found in verdicts)


def _backdoor_rows(lost):
    columns = ["method", "variant", "note", "seed", "key", "clean", "backdoor", "lost", "attackers", "ARI"]
    return pd.DataFrame(
        [
            [m, "as_written", note, 0, m, 98.0, 98.0 - points, points, 97.0, ari]
            for (m, note), (points, ari) in lost.items()
        ],
        columns=columns,
    )


def test_claims_about_the_backdoors():
    good = {(m, ""): (20.0, 1.0) for m in ("oracle", *read.OF_CLUSTERS)}
    good |= {(m, ""): (25.0, 0.5) for m in read.OTHER_HARD}
    good |= {(m, ""): (30.0, np.nan) for m in (*read.SOFT, *read.UNCLUSTERED, "fedprox")}
    subtle = {(m, emdcfl_backdoor.SUBTLE): (0.1, 0.5) for m in ("oracle", "emdcfl", "fedavg")}
    alone = pd.DataFrame({"dataset": "backdoor_mnist", "shades": [4.0] * 10 + [1.0] * 3, "tolerance": "0.025"})
    alone["ari"] = [1.0] * 9 + [0.5] + [0.0] * 3
    alone["note"] = [""] * 10 + [emdcfl_backdoor.OTHERWISE] * 3
    alone["network"] = ["cnn_small"] * 10 + ["emdcfl_cnn"] * 2 + ["cnn_small"]  # the last one counts for nothing
    alone["clients"], alone["images"] = 30, "all"
    every = {"backdoor_mnist": read.Part("cnn_small", _backdoor_rows(good | subtle), None)}
    table = read.backdoor_claims(every, alone).table()
    verdict = table.set_index("sentence")["verdict"]
    nine = verdict[verdict.index.str.contains("at least 9 of 10")]
    assert nine.tolist() == ["holds", "does not hold"]
    evidence = table.set_index("sentence")["evidence"]
    assert evidence[nine.index].tolist() == ["9 of 10, mean ARI 0.95", "0 of 2, mean ARI 0.00"]
    assert "shades 4 times" in nine.index[0] and "(emdcfl_cnn, 30 clients, images each: all)" in nine.index[1]
    kept = verdict[verdict.index.str.contains("lose at most")]
    assert len(kept) == 1 and kept.iloc[0] == "holds" and "published shades" in kept.index[0]
    assert set(table[table["claim"] == "emdcfl-t8-2"]["verdict"]) == {"holds"}
    assert set(table[table["claim"] == "emdcfl-t8-1"]["verdict"]) == {"not tested"}
    worse = good | {("fedsoft", ""): (19.0, np.nan)}
    every = {"backdoor_mnist": read.Part("cnn_small", _backdoor_rows(worse | subtle), None)}
    table = read.backdoor_claims(every, alone).table()
    assert set(table[table["claim"] == "emdcfl-t8-2"]["verdict"]) == {"does not hold"}


@pytest.mark.parametrize("module", [emdcfl_backdoor, emdcfl_pacs])
@pytest.mark.parametrize("profile", ["demo", "small", "paper"])
def test_runs_of_a_profile(module, profile):
    specs = module.specs(profile)
    names = [(s.dataset, s.method_id, s.variant, s.note, s.seed) for s in specs]
    assert len(set(names)) == len(names) and all(s.experiment == module.NOTEBOOK for s in specs)
    assert {s.method_id for s in specs if s.dataset == specs[0].dataset} == set(emdcfl.METHODS)
    for spec in specs:
        fl.methods.build(spec.method)
        fl.federations.complete(spec.federation)
    if profile == "paper":  # the published settings
        assert all((s.rounds, s.local_epochs, s.batch_size) == (10, 10, 64) for s in specs)
        assert all(s.federation.get("intensity", 1.0) == 1.0 for s in specs)


def test_pictures_can_be_drawn():
    import matplotlib.pyplot as plt

    images = np.zeros((2, 3, 3, 3), dtype=np.uint8)
    fig, axes = fl.plots.image_versions({"clean": images, "trigger": images}, ["0", "1"], "title")
    assert axes.shape == (2, 2) and axes[1, 0].get_ylabel() == "trigger"
    with pytest.raises(fl.FltnbError, match="as many images as there are columns"):
        fl.plots.image_versions({"clean": images}, ["0"])
    plt.close(fig)
    said = {"clean": {"fedavg": ["0", "1"]}, "trigger": {"fedavg": ["0", "0"]}}
    fig, axes = fl.plots.image_answers({"clean": images, "trigger": images}, said, ["0", "1"])
    bold = [[t.get_text() for t in ax.texts if t.get_weight() == "bold"] for ax in axes[1]]
    assert bold == [[], ["0"]]  # the one error
    plt.close(fig)
    table = pd.DataFrame({"method": "fedavg", "class": ["0", "1"], "clean": 90.0, "triggered": 40.0, "announced": 30.0})
    fig, axes = fl.plots.classes_under_trigger(table)
    assert [line.get_ydata().tolist() for line in axes[0].lines] == [[90.0] * 2, [40.0] * 2, [30.0] * 2]
    plt.close(fig)
