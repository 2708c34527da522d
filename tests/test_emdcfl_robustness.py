"""Notebook 14: distances after one local training, where epsilon works, Tables 4, 5 and 9, and the cost benchmark."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from fltnb.experiments import emdcfl
from fltnb.experiments import emdcfl_robustness as plan
from hypothesis import given, settings
from hypothesis import strategies as st

import fltnb as fl
from benchmarks import methods as cost
from fltnb import models, published
from fltnb.analysis import client_distances as distances
from fltnb.analysis import emdcfl_robustness as read
from fltnb.analysis.emdcfl_robustness_claims import for_all, robustness_claims
from fltnb.errors import FltnbError
from fltnb.methods.emdcfl import penultimate
from fltnb.methods.ownmodels import local_models, measure, plateau
from fltnb.metrics import adjusted_rand_index

DIGITS = {
    "kind": "rotated_copies",
    "dataset": "digits",
    "n_clients": 4,
    "angles": [[0], [90]],
    "samples_per_client": 50,
    "test_per_client": 20,
    "seed": 0,
}
TRAINING = {"local_epochs": 1, "batch_size": 10, "lr": 0.05, "momentum": 0.9, "weight_decay": 0.0}


def small(how, part="plateau", seed=0, **training):
    return plan.Study(DIGITS, "mlp32", TRAINING | training, seed, how, part, "rotated_digits", "x")


@pytest.fixture(scope="module")
def trained():
    fed = fl.federations.build(DIGITS)
    return fed, *local_models(fed, "mlp32", TRAINING)


# where epsilon works


def test_plateau_lies_between_the_farthest_inside_and_the_nearest_across():
    far = np.array([[0, 1, 5, 6], [1, 0, 7, 8], [5, 7, 0, 2], [6, 8, 2, 0.0]])
    assert plateau(far, np.array([0, 0, 1, 1])) == (2, 5)
    assert plateau(far, np.zeros(4, dtype=int)) == (8, np.inf)
    assert plateau(far, np.arange(4)) == (0, 1)
    low, high = plateau(far, np.array([0, 1, 0, 1]))
    assert low == 8 and high == 1 and low >= high  # none


def test_clusters_may_touch_as_long_as_their_neighbours_differ():
    # A is near B and C (2), these two are far from each other (9): neighbours are ABC, AB and AC
    clusters = np.array([0, 0, 1, 2])
    far = np.array([[0, 1, 2, 2], [1, 0, 2, 2], [2, 2, 0, 9], [2, 2, 9, 0.0]])
    assert plateau(far, clusters) == (1, 9)  # up to 2 nobody touches, beyond that A touches both
    assert adjusted_rand_index(clusters, fl.EMDClustering(tolerance=5).connect(far, np.ones(4))[1]) == 1


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 6), st.integers(0, 10_000))
def test_plateau_against_trying_every_tolerance(count, seed):
    rng = np.random.default_rng(seed)
    clusters = rng.integers(0, 3, count)
    far = rng.integers(1, 6, (count, count)).astype(float) + 3 * (clusters[:, None] != clusters)
    far = np.maximum(far, far.T)
    np.fill_diagonal(far, 0)
    low, high = plateau(far, clusters)
    tried = np.arange(0.5, 12)  # between the whole numbers that distances are
    works = [
        adjusted_rand_index(clusters, fl.EMDClustering(tolerance=e).connect(far, np.ones(count))[1]) == 1 for e in tried
    ]
    if low >= high:
        assert not any(works)
    else:
        assert all(one for e, one in zip(tried, works, strict=True) if low < e <= high)
        assert any(works)


# distances


def test_parameters_and_updates_by_hand(trained):
    fed, net, start, _ = trained
    theta = np.repeat(start[None], 4, axis=0)
    theta[1, :2] += (3, 4)  # in the first layer
    theta[2, -1] += 2  # a bias of the last one
    theta[3, 0] -= 1
    expected = np.array([[0, 5, 2, 1], [5, 0, 29**0.5, 32**0.5], [2, 29**0.5, 0, 5**0.5], [1, 32**0.5, 5**0.5, 0]])

    def matrix(name):
        found, reference = measure(fed, net, start, theta, {"name": name})
        assert np.isnan(reference).all()
        return found

    np.testing.assert_allclose(matrix("parameters"), expected, atol=1e-5)
    last = np.zeros((4, 4))
    last[2] = last[:, 2] = [2, 2, 0, 2]
    np.testing.assert_allclose(matrix("last layer"), last, atol=1e-6)
    updates = matrix("updates")
    np.testing.assert_allclose(updates[1, [2, 3]], [1, 1.6], atol=1e-5)  # at right angles; cosine -3 / 5


def test_angles_are_those_of_pacfl(trained):
    fed, net, start, theta = trained
    found, _ = measure(fed, net, start, theta, {"name": "angles"})
    own = [fed.images[index].reshape(len(index), -1) / 255 for index in fed.train]
    np.testing.assert_allclose(found, fl.PACFL().fit(own, [fed.labels[i] for i in fed.train]).distance_, atol=1e-3)


def test_embedding_distances_are_those_of_a_fit(trained):
    fed, net, start, theta = trained
    how = plan.emd(projection=0.5)
    found, reference = measure(fed, net, start, theta, how, seed=3)

    def seen(i, split, j):
        return penultimate(net, theta[i], fed.client(j, split)[0])

    fitted = fl.EMDClustering(projection=0.5, random_state=3).fit(
        [seen(i, "train", i) for i in range(4)], lambda i: [seen(i, "val", j) for j in range(4)]
    )
    np.testing.assert_allclose(found, fitted.distance_, atol=1e-5)
    np.testing.assert_allclose(reference, fitted.reference_, atol=1e-5)


def test_local_models_are_the_first_round_of_the_method(trained):
    """What EMD-CFL itself sees after round 1, so that the study is about the method."""
    fed, _, _, theta = trained
    method = fl.methods.EMDCFL(fl.EMDClustering(tolerance=0))  # everybody stays alone
    run = fl.run(method, fed, model="mlp32", rounds=1, participation=1.0, progress=False, **TRAINING)
    np.testing.assert_allclose(run.theta[run.rows], theta, atol=1e-6)


def test_models_are_trained_once_and_matrices_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("FLTNB_STORE", str(tmp_path))
    monkeypatch.delenv("FLTNB_FRESH", raising=False)
    calls, train = [], local_models
    monkeypatch.setattr(distances, "local_models", lambda *a: calls.append(a) or train(*a))
    studies = [small(plan.emd()), small({"name": "parameters"}), small(plan.emd(projection=None))]
    first = distances.compute(studies, progress=False)
    assert len(calls) == 1 and all(one.training > 0 for one in first)
    again = distances.compute([*reversed(studies), small(plan.emd(), "another label")], progress=False)
    assert len(calls) == 1
    for one, other in zip(first, reversed(again[:3]), strict=True):
        np.testing.assert_array_equal(one.distance, other.distance)
    distances.compute([small(plan.emd(), local_epochs=2)], progress=False)
    assert len(calls) == 2


def test_training_that_diverges_is_named(trained):
    with pytest.raises(FltnbError, match="client 0 diverged: choose a smaller lr"):
        local_models(trained[0], "mlp32", TRAINING | {"lr": 1e20})


# tables


def found_of(distance, clusters, measure, part, note="x", dataset="rotated_mnist"):
    study = plan.Study({}, "mlp_plain", {}, 0, measure, part, dataset, note)
    return distances.Found(study, np.array(distance, float), np.full(len(clusters), 0.1), np.array(clusters), 2.0, 3.0)


EMD = [[0, 0.01, 0.3], [0.02, 0, 0.4], [0.2, 0.3, 0]]


def test_summary_and_curves_by_hand():
    found = [found_of(EMD, [0, 0, 1], plan.emd(), "plateau")]
    row = read.summary(found).iloc[0]
    assert (row["inside"], row["inside_max"], row["across_min"]) == (0.02, 0.02, 0.3)
    assert (row["low"], row["high"], row["ari"]) == (0.02, 0.3, 1.0)
    assert row["across"] == pytest.approx(0.35)
    curve = read.curves(found)
    works = curve[curve["ari"] == 1]["tolerance"]
    assert 0.025 in works.to_numpy() and works.min() > 0.02 and works.max() <= 0.3
    assert (curve[curve["tolerance"] > 0.4]["ari"] == 0).all() and (curve["seeds"] == 1).all()
    assert read.ranges(read.summary(found))["works"].item() == "0.0200 to 0.3000"


def test_a_range_must_hold_for_all_seeds_at_once():
    rows = pd.DataFrame({"low": [0.1, 0.3], "high": [0.2, 0.5], "part": "plateau", "dataset": "d", "note": "all"})
    rows = rows.assign(ari=1.0, auto=0.1, ari_auto=1.0, seconds=1.0)
    found = read.ranges(rows).iloc[0]
    assert found["works"] == "none" and found["seeds"] == "2 of 2"


def matrices():
    parameters = [[0, 1, 4], [1, 0, 5], [4, 5, 0]]
    return read.matrices_table(
        [
            found_of(parameters, [0, 0, 1], {"name": "parameters"}, "matrices", "parameters"),
            found_of(np.array(parameters) / 2, [0, 0, 1], {"name": "last layer"}, "matrices", "last layer"),
            found_of(EMD, [0, 0, 1], plan.emd(), "matrices", "emd"),
        ]
    )


def test_matrices_survive_their_table(tmp_path):
    table = matrices()
    table.to_csv(tmp_path / "m.csv", index=False, float_format="%.6g")
    clusters, held = read.matrices_from(pd.read_csv(tmp_path / "m.csv"))["rotated_mnist"]
    assert clusters.tolist() == [0, 0, 1] and list(held) == ["parameters", "last layer", "emd"]
    np.testing.assert_allclose(held["emd"], EMD)


def test_structure_by_hand():
    table = read.structure(matrices()).set_index("measure")
    assert table.loc["parameters", ["inside", "across"]].tolist() == [1, 4.5]
    assert table.loc["emd", "across / inside"] == pytest.approx(0.35 / 0.02)
    assert table["separable"].all() and (table["ari"] == 1).all()


def test_table_9_by_hand():
    table = read.table9(matrices()).set_index("parameters")
    row = table.loc["whole model"]
    assert (row["inside"], row["overall"], row["clusters found"]) == (1, pytest.approx(10 / 3), 2)
    assert (row["inside, printed"], row["overall, printed"]) == (3.06, 4.69)  # Table 9, Rotated MNIST
    assert table.loc["last layer", "inside"] == 0.5 and table.loc["last layer", "overall, printed"] == 4.60


def test_wall_time_beside_the_printed_hours():
    def run(name, seed, seconds):
        return SimpleNamespace(spec=SimpleNamespace(seed=seed, method_id=name), provenance={"seconds": seconds})

    table = read.wall_time([run("oracle", 0, 10), run("emdcfl", 0, 12), run("emdcfl", 1, 6), run("oracle", 1, 4)])
    assert table["ratio"].tolist() == pytest.approx([8.11 / 7.47, 1.2, 1.5])
    assert table["unit"].tolist() == ["hours", "seconds", "seconds"]


def test_share_of_ten_rounds():
    row = read.shares(read.summary([found_of(EMD, [0, 0, 1], plan.emd(), "network, exact")])).iloc[0]
    assert (row["training"], row["distances"], row["added"], row["distance"]) == (2, 3, 0.15, "exact")


def test_widths_are_those_of_table_5():
    table = read.widths("demo")
    assert table["network"].tolist() == ["emdcfl_cnn"] and table["ours"].tolist() == table["printed"].tolist() == [128]
    assert table["difference"].tolist() == [0]


# claims


def verdicts(emd=EMD, ratio=1.05):
    found = [found_of(emd, [0, 0, 1], plan.emd(), part, note) for part, note in PARTS]
    found += [found_of(emd, [0, 0, 1], plan.emd(), p, "all", "backdoor_mnist") for p in ("plateau", "sinkhorn")]
    under = read.matrices_table(found, "network, exact")
    rest = matrices().assign(dataset="backdoor_mnist")
    times = pd.DataFrame({"unit": ["hours", "seconds"], "ratio": [1.0, ratio]})
    claims = robustness_claims("small", read.summary(found), rest, under, times, read.widths("demo"))
    return claims.table().set_index("claim")["verdict"]


PARTS = [("plateau", "all"), ("plateau", "90%"), ("plateau", "10%"), ("sinkhorn", "90%"), ("network, exact", "mlp32")]


def test_claims_follow_the_numbers():
    good, bad = verdicts(), verdicts([[0, 0.3, 0.02], [0.4, 0, 0.01], [0.3, 0.2, 0]], 2.0)
    for claim in ("fig8-1", "fig8-2", "fig9", "fig10-1", "fig11-1", "t4"):
        assert (good[f"emdcfl-{claim}"], bad[f"emdcfl-{claim}"]) == ("holds", "does not hold"), claim
    assert good["emdcfl-fig14"] == "does not hold" and good["emdcfl-fig17"] == "holds"  # both show these clusters
    assert good["emdcfl-fig12"] == "not tested"


def test_every_claim_of_the_notebook_is_judged():
    registered = published.claims("emdcfl")
    assert set(verdicts().index) == set(registered.loc[registered["notebook"] == plan.NOTEBOOK, "id"])


# settings


@pytest.mark.parametrize("profile", ["demo", "small", "paper"])
def test_studies_ask_for_what_exists(profile):
    studies = plan.studies(profile)
    for_all = [study for study in studies if study.part == "one epsilon"]
    assert {study.dataset for study in studies if study not in for_all} == set(plan.DATASETS[profile])
    assert len({study.dataset for study in for_all}) == 5 and {study.dataset for study in studies} <= set(plan.SHOWN)
    assert len(for_all) == 5 * plan.ONE_EPSILON[profile]["seeds"]
    for study in studies:
        assert study.model in models.NAMES or profile == "paper"
        assert study.federation["kind"] in fl.federations.KINDS
        fl.training.TrainSpec(**study.training, seed=study.seed)
        if study.measure["name"] == "EMDClustering":
            fl.EMDClustering(**{k: v for k, v in study.measure.items() if k != "name"}).check([100] * 4)
        else:
            assert study.measure["name"] in plan.OTHERS
    kinds = {(study.dataset, study.measure["name"]) for study in studies if study.part == "matrices"}
    assert len(kinds) == len(plan.DATASETS[profile]) * (len(plan.OTHERS) + 1)


def test_training_is_the_papers():
    study = plan.study("small", "rotated_mnist", plan.emd(), "plateau")
    assert study.training == {"local_epochs": 10, "batch_size": 64, "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-6}
    assert study.federation["n_clients"] == 40
    assert emdcfl.TOLERANCE in read.TOLERANCES
    pair = plan.specs("small")
    assert {spec.method_id for spec in pair} == {"oracle", "emdcfl"} and {spec.eval_every for spec in pair} == {10}


# figures


def test_curves_name_lines_and_mark_what_was_chosen():
    import matplotlib.pyplot as plt

    curve = read.curves([found_of(EMD, [0, 0, 1], plan.emd(), "plateau", note) for note in ("all", "10%")])
    chosen = {("rotated_mnist", "all"): (0.1, 1.0)}
    fig, axes = fl.plots.tolerance_curves(curve, names={"rotated_mnist": "Rotated MNIST"}, chosen=chosen)
    texts = [text.get_text() for text in fig.legends[0].get_texts()]
    assert texts == ["all", "10%", "0.025, as published", '"auto"'] and axes[0].get_title() == "Rotated MNIST"
    star = [line for line in axes[0].lines if line.get_marker() == "*"]
    assert [tuple(line.get_xydata()[0]) for line in star] == [(0.1, 1.0)]
    with pytest.raises(FltnbError, match="lack the column 'note'"):
        fl.plots.tolerance_curves(curve.drop(columns="note"))
    plt.close(fig)


def test_heat_maps_are_sorted_by_true_cluster():
    import matplotlib.pyplot as plt

    matrix = np.array([[0, 9, 1], [9, 0, 9], [1, 9, 0.0]])
    fig, axes = fl.plots.distance_heatmaps({"d": (np.array([0, 1, 0]), {"emd": matrix})}, {"emd": "EMD"}, {"d": "D"})
    shown = np.asarray(axes[0, 0].images[0].get_array())
    assert shown.tolist() == [[0, 1, 9], [1, 0, 9], [9, 9, 0]] and axes[0, 0].get_ylabel() == "D"
    with pytest.raises(FltnbError, match="no distances to draw"):
        fl.plots.distance_heatmaps({}, {})
    plt.close(fig)


def test_scales_and_costs_draw():
    import matplotlib.pyplot as plt

    rows = read.summary([found_of(EMD, [0, 0, 1], plan.emd(), "epochs", note) for note in ("1", "10")])
    fig, axes = fl.plots.distance_scales(rows, {"epochs": "E"})
    assert axes[0].lines[0].get_xdata().tolist() == [1, 10] and axes[0].lines[1].get_ydata()[0] == pytest.approx(0.35)
    plt.close(fig)
    table = pd.DataFrame({"method": ["fedavg"], "first_round": 2.0, "later_rounds": 1.0, "before": 0.5, "peak": 0.75})
    fig, axes = fl.plots.ranked_cost(table, ["FedAvg"])
    assert axes[1].patches[0].get_width() == 256
    plt.close(fig)


# the benchmark


def test_cost_of_one_method():
    federation = DIGITS | {"angles": [[0], [90]]}
    row = cost.measure("fedavg", 2, federation)
    net = models.make(cost.MODEL, (1, 8, 8), 10)
    assert row["kilobytes"] == pytest.approx(2 * 4 * net.n_parameters / 1000)  # down and up, every client
    assert row["peak"] >= row["before"] > 0 and row["first_round"] >= 0 and row["rounds"] == 2


def test_cost_refuses_before_it_runs(capsys):
    for arguments, words in ((["nobody"], "unknown method nobody"), (["--rounds", "1"], "must be 2 or more")):
        with pytest.raises(SystemExit):
            cost.main(arguments)
        assert words in capsys.readouterr().err


# one epsilon for all


def _ranges_of_seeds(**ranges):
    rows = [("one epsilon", name, low, high) for name, each in ranges.items() for low, high in each]
    return pd.DataFrame(rows, columns=["part", "dataset", "low", "high"])


def test_seeds_in_which_a_tolerance_is_right():
    other = pd.DataFrame([["plateau", "a", 0.0, 9.0]], columns=["part", "dataset", "low", "high"])
    table = pd.concat([_ranges_of_seeds(a=[(0.01, 0.03), (0.02, 0.04)], b=[(0.015, np.inf)]), other])
    right = read.seeds_right(table)
    counts = right.set_index(["dataset", "tolerance"])["right"]
    assert [counts["a", t] for t in (0.01, 0.02, 0.025, 0.03, 0.04)] == [0, 1, 2, 2, 1]  # above low, at most high
    assert counts["b", 0.015] == 0 and counts["b", 0.02] == 1 and counts["b", 1.0] == 1
    assert right.groupby("dataset")["seeds"].first().to_dict() == {"a": 2, "b": 1}
    assert read.one_epsilon(right) == (0.02, 0.03)
    assert read.one_epsilon(right, share=0.5) == (0.015, 0.04)


def test_no_epsilon_for_all():
    assert read.one_epsilon(read.seeds_right(_ranges_of_seeds(a=[(0.01, 0.02)], b=[(0.03, 0.04)]))) is None
    assert read.one_epsilon(read.seeds_right(_ranges_of_seeds(a=[(0.02, 0.01)]))) is None  # no range at all


def test_the_widest_of_two_ranges_is_taken():
    table = _ranges_of_seeds(a=[(0.01, 0.02)] * 9 + [(0.05, 0.2)], b=[(0.01, 0.02), (0.04, 0.2)])
    assert read.one_epsilon(read.seeds_right(table), share=0.1) == (0.05, 0.2)
    ten = _ranges_of_seeds(a=[(0.01, 0.02)] * 9 + [(0.05, 0.2)])
    assert read.one_epsilon(read.seeds_right(ten)) == (0.01, 0.02)  # nine of ten are enough


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0.001, 0.5), st.floats(0.001, 0.5)), min_size=1, max_size=6))
def test_one_epsilon_against_trying(ranges):
    common = read.one_epsilon(read.seeds_right(_ranges_of_seeds(a=ranges)), share=1.0)
    low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
    assert common == ((low, high) if low < high else None)


def test_claims_about_one_epsilon():
    far = 1.5 * np.array(EMD)  # right from 0.03 to 0.45 where the first one is from 0.02 to 0.3
    found = [found_of(one, [0, 0, 1], plan.emd(), "one epsilon", dataset=d) for d, one in (("a", EMD), ("b", far))]
    table = read.summary(found)
    claims = fl.notebook.Claims()
    for_all(claims, table)
    held = claims.table()
    assert held["verdict"].tolist() == ["holds", "does not hold"]
    assert held["evidence"].tolist() == ["0.0300 to 0.3000", "a 1 of 1, b 0 of 1"]
    nothing = fl.notebook.Claims()
    for_all(nothing, table.assign(part="plateau"))
    assert not len(nothing.table())


def test_summary_of_one_true_cluster():
    row = read.summary([found_of(EMD, [0, 0, 0], plan.emd(), "one epsilon")]).iloc[0]
    assert np.isnan(row["across"]) and np.isinf(row["across_min"]) and np.isinf(row["high"])
    assert read.ranges(pd.DataFrame([row]))["works"].iloc[0] == f"{row['low']:.4f} and more"


def test_picture_of_seeds():
    import matplotlib.pyplot as plt

    right = read.seeds_right(_ranges_of_seeds(a=[(0.01, 0.03), (0.02, 0.04)]))
    fig, ax = fl.plots.seeds_right(right, {"a": "Rotated"}, (0.02, 0.03))
    assert ax.get_ylabel() == "seeds of 2 with ARI 1" and ax.lines[0].get_label() == "Rotated"
    assert max(ax.lines[0].get_ydata()) == 2
    plt.close(fig)
    with pytest.raises(FltnbError, match="right"):
        fl.plots.seeds_right(right.drop(columns="right"))
