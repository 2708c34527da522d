"""Advice on federations whose answer is known: groups by labels, by inputs, no groups,
and everybody alone.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
from toys import refused

import fltnb as fl

SIZES = (80, 90, 100, 110, 120, 160)
GROUPS = [0, 1, 2] * 2
NAMES = [f"ward {i}" for i in range(len(SIZES))]


def held_by_wards(rule, seed=0):
    """Six clients, whose label rule is a direction in the plane of their inputs."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(9, 9)))[0]
    held = []
    for i, (size, group) in enumerate(zip(SIZES, GROUPS, strict=True)):
        x = rng.normal(size=(size, 9))
        own = {"labels": group, "inputs": group, "none": 0, "alone": i}[rule]
        if rule == "inputs":
            x[:, group] += 6
        centred = x - x.mean(axis=0)
        held.append((x, (centred @ directions[own] > 0).astype(int)))
    return held


def wards(rule, seed=0):
    held = held_by_wards(rule, seed)
    return fl.Federation.from_clients(held, names=NAMES, test_fraction=0.1)


@pytest.fixture(scope="module")
def advised():
    seeds = {"labels": 2, "inputs": 2, "none": 1, "alone": 1}
    return {
        rule: fl.advise(wards(rule), n_seeds=n_seeds, progress=False)
        for rule, n_seeds in seeds.items()
    }


def test_groups_that_differ_in_labels_are_found_by_who_looks_at_them(advised):
    found = advised["labels"]
    assert found.recommended == "MergeGain"
    assert found.labels["MergeGain"].tolist() == GROUPS
    assert found.groups[0] == ["ward 0", "ward 3"]
    assert "what the same inputs mean" in found.text and "ward 3" in found.text
    row = found.table.set_index("clusterer").loc["MergeGain"]
    assert row["gain"] > 5 + 2 * row["error"] and row["stability"] > 0.6
    rows = found.table.set_index("clusterer")["bytes"]
    for name, clusterer in found.clusterers.items():
        assert rows[name] == clusterer.bytes_sent().mean() > 0
    assert rows["MeanImage"] == 9 * 8  # nine means in float64
    assert found.method.settings()["clusters"] == GROUPS
    placed = found.clusterers["MergeGain"].place(
        found.embedded[:3], [wards("labels").client(i)[1] for i in range(3)]
    )
    assert placed.tolist() == [0, 1, 2]


def test_groups_that_differ_in_inputs_and_are_in_agreement(advised):
    """One rule serves all: groups are there, and a model each need not pay."""
    found = advised["inputs"]
    for name in ("TransportSignatures", "MeanImage"):
        assert found.labels[name].tolist() == GROUPS, name
    assert found.agreement.loc["MeanImage", "TransportSignatures"] == 1
    row = found.table.set_index("clusterer").loc["MeanImage"]
    assert row["stability"] == 1


def test_where_clustering_does_not_pay_one_model_is_advised(advised):
    found = advised["none"]
    assert found.recommended == "one model for all"
    assert found.text.startswith("Train one model for all")
    assert "One model gains an estimated" in found.text
    assert found.method.settings() == {"name": "fedavg"}
    assert found.groups == {0: NAMES}
    assert (found.table["gain"] < 3).all()


def test_clients_with_a_rule_of_their_own_each_train_alone(advised):
    found = advised["alone"]
    assert found.recommended == "a model of each client's own"
    assert "alone" in found.text and found.method.settings() == {"name": "local"}


def test_the_picture_has_the_names(advised):
    import matplotlib.pyplot as plt

    fig, (left, right) = fl.plots.advice(advised["labels"])
    shown = [text.get_text() for text in left.get_yticklabels()]
    assert shown[:3] == ["ward 0", "ward 3", "ward 1"] and len(shown) == 6
    assert any(
        "MergeGain: 3 clusters" in one.get_text() for one in right.get_yticklabels()
    )
    plt.close(fig)
    assert "MergeGain" in str(advised["labels"])
    refused(
        "draws the result of fl.advise.fed., not Fed", fl.plots.advice, wards("none")
    )


def test_what_cannot_be_advised_is_said():
    fed = wards("none")
    refused("embed must give one row", fl.advise, fed, [np.eye(3)] * 6, progress=False)
    two = fl.Federation.from_clients([(np.eye(9), [0, 1] * 4 + [0])] * 2)
    refused("has 2 client.s., too few for groups", fl.advise, two)
    values = fl.Federation.from_arrays(
        np.eye(9), np.arange(9.0), [0] * 9, targets="values"
    )
    says = refused("has values to predict", fl.advise, values)
    assert "MergeGain" not in says  # which needs classes
    for no_fed in (pd.DataFrame({"x": [1]}), [np.eye(3)] * 3, None):
        refused("advise needs a Federation, not", fl.advise, no_fed)
        refused("gain needs a Federation, not", fl.clustering_gain, no_fed, [0])
    tokens = fl.Federation.from_arrays(
        np.ones((9, 4), int), [0, 1, 0] * 3, [0, 1, 2] * 3
    )
    refused("Tokens are numbers of words", fl.advise, tokens)
    refused("Tokens are numbers of words", fl.clustering_gain, tokens, [0, 0, 1])


def test_gain_refuses_labels_that_are_none():
    fed = wards("none")
    labels = np.array([0.0, 1, np.nan, 0, 1, 0])
    refused("missing for client ward 2", fl.clustering_gain, fed, labels)
    refused("missing for client ward 5", fl.clustering_gain, fed, [*"aabba", None])
    named = fl.clustering_gain(fed, [*"aabbaa"])
    numbered = fl.clustering_gain(fed, [0, 0, 1, 1, 0, 0])
    assert named[:4] == numbered[:4]
    embedded = [fed.client(i)[0].reshape(n, -1) for i, n in enumerate(fed.sizes)]
    same = fl.clustering_gain(fed, [*"aabbaa"], embedded=embedded)
    assert same[:4] == named[:4]
    refused(
        "one row for each", fl.clustering_gain, fed, [0] * 6, embedded=embedded[::-1]
    )


def with_wels(**options):
    """Groups by labels, and a seventh ward with two rows for training, one for test."""
    held = held_by_wards("labels")
    x, y = held[0]
    wels = x[:3], y[:3]
    names = [*NAMES, "Wels"]
    return fl.Federation.from_clients([*held, wels], names=names, **options)


def test_a_client_too_small_for_a_clusterer_is_named_before_all_advice():
    found = fl.advise(with_wels(), n_seeds=1, progress=False)
    why = (
        "MergeGain, which sees inputs and classes, could not be used, because there "
        "are too few training samples of Wels: give min_samples=4 where the federation "
        "is made"
    )
    assert found.text.startswith(why) and "By the others: Train" in found.text
    note = found.table.set_index("clusterer")["note"]["MergeGain"]
    assert note.startswith("Client Wels has 2 samples") and "min_samples=" in note
    for values in (found.clusterers, found.labels, found.together):
        assert "MergeGain" not in values
        refused(f"^{why}", values.__getitem__, "MergeGain")
        refused("'FLT': choose one of TransportSignatures", values.__getitem__, "FLT")
    assert found.headline.endswith(" (MergeGain could not be used)")
    limits = "Wels, with 2, limits FCR to k=1 and EigenRelevance to n_eigenvectors=2 "
    assert found.text.endswith(limits + "for all clients.")
    with pytest.warns(UserWarning, match="Left out, with fewer than 4 samples: Wels"):
        enough = with_wels(min_samples=4)
    without = fl.advise(enough, n_seeds=1, progress=False)
    assert without.recommended == "MergeGain" and "limits" not in without.text


def test_what_a_clusterer_warns_of_is_its_note_with_the_clients_name():
    held = held_by_wards("none")
    held[2] = held[2][0], np.ones(len(held[2][0]), dtype=int)
    fed = fl.Federation.from_clients(held, names=NAMES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none is left to be read without a name
        found = fl.advise(fed, n_seeds=2, progress=False)
    notes = found.table.set_index("clusterer")["note"]
    assert notes["MergeGain"].startswith("Client ward 2 holds one class only")
    assert notes["MergeGain"].count("one class only") == 1
    assert "\nMergeGain: Client ward 2 holds" in str(found)
    assert notes["TransportSignatures"] == ""


def test_a_warning_of_a_later_seed_says_so(monkeypatch):
    def warn_later(clusterer, x, y=None):
        if clusterer.random_state == 8:
            warnings.warn("There may be more.", stacklevel=2)
        return fit(clusterer, x, y)

    fit = fl.TransportSignatures.fit
    monkeypatch.setattr(fl.TransportSignatures, "fit", warn_later)
    found = fl.advise(wards("inputs"), n_seeds=2, seed=7, progress=False)
    note = found.table.set_index("clusterer")["note"]["TransportSignatures"]
    assert note == "At seed 8: There may be more."


def test_all_gains_of_an_advice_are_of_one_seed():
    fed = wards("none")
    found = fl.advise(fed, n_seeds=1, seed=7, progress=False)
    together = fl.clustering_gain(fed, np.zeros(6, int), seed=7)
    said = f"{together.over_own:.1f} ± {together.over_own_error:.1f} points over"
    assert f"One model gains an estimated {said} training alone" in found.text
    refused("seed must be a whole number of at least 0", fl.advise, fed, seed=-1)


def test_the_best_groups_are_those_found_again_and_a_loss_is_no_chance():
    rng = np.random.default_rng(5)
    x = [rng.normal(size=(20, 1)) + 0.8 * (i % 2) for i in range(5)]
    fed = fl.Federation.from_clients([(own, np.arange(20) % 2) for own in x])
    found = fl.advise(fed, n_seeds=2, progress=False)
    # merge by gain finds groups that gain more, and others at the other seed
    gains = found.table.set_index("clusterer")["gain"]
    assert gains["MergeGain"] > 0 > gains["MeanImage"]
    groups = "the best of the groups found again at other seeds, 3 by MeanImage"
    loss = f"{groups}, would gain an estimated {gains['MeanImage']:.1f} ± "
    assert loss in found.text and "chance" not in found.text


def test_the_methods_advised_for_values_work_on_them():
    x = np.random.default_rng(0).normal(size=(90, 4))
    who = np.repeat([0, 1, 2], 30)
    fed = fl.Federation.from_arrays(x, x[:, 0], who, targets="values")
    options = {"rounds": 1, "loss": "squared_error", "progress": False}
    methods = fl.methods
    for one in (
        methods.FLT(fl.TransportSignatures()),
        methods.FedAvg(),
        methods.Local(),
    ):
        assert fl.run(one, fed, "mlp32", **options).r2 is not None


def test_a_run_names_clients_as_the_user_does():
    fed = with_wels()
    says = (
        r"^Client Wels has 2 samples, fewer than folds=3: leave it out \(min_samples="
    )
    refused(says, fl.run, fl.methods.FLT(fl.MergeGain()), fed)
    held = held_by_wards("labels")
    held[3] = np.ones_like(held[3][0]), held[3][1]
    same = fl.Federation.from_clients(held, names=NAMES)
    says = "All samples of client ward 3 have the same features"
    refused(says, fl.run, fl.methods.FLT(fl.EigenRelevance()), same, progress=False)
