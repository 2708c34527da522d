"""Tables and verdicts of EMD-CFL's notebooks 11 to 13, on numbers small enough to check by eye."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from fltnb.experiments import emdcfl as plan
from fltnb.experiments import emdcfl_backdoor, emdcfl_pacs, emdcfl_robustness
from fltnb.experiments import emdcfl_rotated as experiment

from fltnb import plots, published
from fltnb.analysis import emdcfl, emdcfl_rotated
from fltnb.errors import FltnbError
from fltnb.metrics import adjusted_rand_index
from fltnb.notebook import Claims
from fltnb.relatedness import EMDClustering


def tidy_rows(method, values, *, dataset="rotated_mnist", model="emdcfl_cnn", variant="as_written", note="", seed=0):
    """Rows of one run; ``values`` are accuracy, worst and ARI (None: has none)."""
    key = f"{dataset} {method} {variant} {note} {seed}"
    base = {"dataset": dataset, "model": model, "method": method, "variant": variant, "note": note, "seed": seed}
    named = zip((("test", "accuracy"), ("test", "worst"), ("", "ari")), values, strict=True)
    return [
        base | {"key": key, "split": split, "metric": metric, "value": value}
        for (split, metric), value in named
        if value is not None
    ]


@pytest.fixture
def tidy():
    rows = tidy_rows("fedavg", (90.0, 85.0, None)) + tidy_rows("fedavg", (92.0, 87.0, None), seed=1)
    rows += tidy_rows("emdcfl", (98.0, 97.0, 1.0)) + tidy_rows("emdcfl", (99.0, 97.0, 1.0), seed=1)
    rows += tidy_rows("fedclust", (96.0, 94.0, 0.5)) + tidy_rows("fedclust", (95.0, 91.0, 1.0), variant="as_run")
    rows += tidy_rows("emdcfl", (50.0, 10.0, 0.9), note="10 of 40 clients")
    return pd.DataFrame(rows + tidy_rows("oracle", (1.0, 1.0, 1.0), dataset="other"))


def test_one_row_per_run(tidy):
    rows = emdcfl.runs(tidy, "rotated_mnist")
    assert len(rows) == 7 and list(rows)[:5] == list(emdcfl.ABOUT)
    assert np.isnan(rows[rows["method"] == "fedavg"]["ARI"]).all()
    assert emdcfl.mean(rows, "emdcfl", "accuracy") == 98.5  # without the run of 10 clients
    assert emdcfl.mean(rows, "emdcfl", "worst", note="10 of 40 clients") == 10.0
    assert emdcfl.mean(rows, "fedclust", "worst", "as_run") == 91.0
    assert np.isnan(emdcfl.mean(rows, "ifca", "accuracy"))


def test_table_by_hand(tidy):
    printed = emdcfl.printed("T1", "rotated_mnist")
    assert printed["emdcfl", "accuracy"] == ("98.86 ± 0.04", 98.86)
    assert ("fedavg", "ARI") not in printed
    table = emdcfl.method_table(emdcfl.runs(tidy, "rotated_mnist"), printed)
    assert list(dict.fromkeys(table["method"]))[:4] == ["Oracle", "EMD-CFL", "PACFL", "FedClust"]
    assert table["method"].nunique() == 17 and len(table) == 19
    line = table[table["method"] == "EMD-CFL"].iloc[0]
    assert line["run"] == "as_written" and line["seeds"] == "2"
    assert line["accuracy"] == "98.50 ± 0.71" and line["Δ accuracy"] == "-0.36"
    assert line["worst, printed"] == "97.58 ± 0.26" and line["ARI"] == "1.00 ± 0.00" and line["Δ ARI"] == "+0.00"
    assert list(table[table["method"] == "EMD-CFL"]["run"]) == ["as_written", "10 of 40 clients"]
    both = table[table["method"] == "FedClust"]
    assert list(both["run"]) == ["as_written", "as_run"] and list(both["worst"]) == ["94.00", "91.00"]
    assert both["comment"].iloc[0] and not both["comment"].iloc[1]
    absent = table[table["method"] == "IFCA"].iloc[0]
    assert absent["accuracy"] == "not run" and absent["Δ accuracy"] == "–" and absent["accuracy, printed"] != "–"
    average = table[table["method"] == "FedAvg"].iloc[0]
    assert average["ARI"] == "–" and average["ARI, printed"] == "–"


def test_table_at_toy_scale_has_nothing_printed(tidy):
    table = emdcfl.method_table(emdcfl.runs(tidy, "rotated_mnist"), comments={})
    assert list(table) == ["method", "run", "seeds", "accuracy", "worst", "ARI", "comment"]
    assert len(table) == 5 and not (table == "not run").any(axis=None)


def test_differences_have_no_negative_zero():
    assert emdcfl.signed(-0.001) == "+0.00" and emdcfl.signed(-0.006) == "-0.01" and emdcfl.signed(2) == "+2.00"


def test_order_agreement(tidy):
    rows = emdcfl.runs(tidy, "rotated_mnist")
    rho, count = emdcfl.order_agreement(rows, emdcfl.printed("T1", "rotated_mnist"))
    assert (round(rho, 6), count) == (1.0, 3)  # fedavg < fedclust < emdcfl, as printed
    upside_down = {("fedavg", "accuracy"): ("", 9.0), ("fedclust", "accuracy"): ("", 8.0)}
    assert np.isnan(emdcfl.order_agreement(rows, upside_down)[0])
    upside_down["emdcfl", "accuracy"] = ("", 1.0)
    assert round(emdcfl.order_agreement(rows, upside_down)[0], 6) == -1.0


def verdict(check, *args, **options):
    claims = Claims()
    check(claims, "sentence", *args, **options)
    (row,) = claims.table().to_dict("records")
    return row["verdict"], row["evidence"]


def test_verdicts(tidy):
    rows = emdcfl.runs(tidy, "rotated_mnist")
    assert verdict(emdcfl.check_recovered, rows, ["emdcfl"]) == ("holds", "ARI: EMD-CFL 1.00")
    assert verdict(emdcfl.check_recovered, rows, ["emdcfl", "fedclust"])[0] == "does not hold"
    assert verdict(emdcfl.check_recovered, rows, ["fedclust"], wanted=False)[0] == "holds"
    assert verdict(emdcfl.check_recovered, rows, ["fedclust", "emdcfl"], wanted=False)[0] == "does not hold"
    assert verdict(emdcfl.check_recovered, rows, ["ifca", "emdcfl"]) == ("not tested", "not run here: IFCA")
    near = {"method": "emdcfl", "other": "fedclust"}
    assert verdict(emdcfl.check_near, rows, **near, within=2.5) == ("holds", "accuracy 98.50 (+2.50)")
    assert verdict(emdcfl.check_near, rows, **near, within=2.5, measures=("accuracy", "worst"))[0] == "does not hold"
    assert verdict(emdcfl.check_near, rows, "emdcfl", "oracle")[0] == "not tested"
    assert verdict(emdcfl.check_above, rows, ["emdcfl", "fedclust"], ["fedavg"])[0] == "holds"
    assert verdict(emdcfl.check_above, rows, ["emdcfl", "fedavg"], ["fedclust"])[0] == "does not hold"


def test_time_per_round():
    rows = []
    for method, seconds, seed in (("fedavg", 20.0, 0), ("fedavg", 40.0, 1), ("emdcfl", 90.0, 0)):
        base = {"dataset": "d", "method": method, "variant": "as_written", "note": "", "seed": seed, "split": ""}
        base["key"] = f"{method}{seed}"
        rows += [base | {"metric": "seconds", "value": seconds}, base | {"metric": "bytes", "value": 5e6}]
    rounds = {"fedavg0": 10, "fedavg1": 10, "emdcfl0": 10}
    table = emdcfl.time_table(pd.DataFrame(rows), rounds, "d").set_index("method")
    assert table.loc["FedAvg"].tolist() == [2, 3.0, 1.0, 0.5]
    assert table.loc["EMD-CFL"].tolist() == [1, 9.0, 3.0, 0.5]


def test_rounds_of_both_sources():
    result = SimpleNamespace(key="a", spec=SimpleNamespace(rounds=7))
    assert emdcfl.rounds_of([result]) == {"a": 7}
    assert emdcfl.rounds_of(SimpleNamespace(record={"b": {"settings": {"rounds": 3}}})) == {"b": 3}


def test_the_17_rows_are_the_papers():
    for table in ("T1", "T7", "T8", "T10", "T11"):
        assert set(published.numbers("emdcfl", table)["method"]) == set(plan.METHODS)
    assert len(plan.METHODS) == 17
    for profile in ("demo", "small"):
        described = {s.method_id for s in experiment.specs(profile) if s.variant == "as_written"}
        assert described == set(plan.METHODS)


def test_methods_are_told_two_clusters_where_there_is_one():
    assert [experiment.told("ifca", version) for version in experiment.VERSIONS] == [4, 2, 2, 2]
    assert [experiment.told("pacfl", version) for version in experiment.VERSIONS] == [4, 1, 2, 1]
    wanted = {name for name in plan.METHODS if "n_clusters" in plan.method(name, 3)}
    assert wanted == {*plan.GIVEN_K, "fedclust"}


def test_clients_never_drawn_are_alone():
    labels = emdcfl_rotated.alone_unless(np.array([True, False, True, False]), np.array([0, 0, 1, 1]))
    assert labels.tolist() == [0, 2, 1, 3]
    settings = {"rounds": 3, "participation": 1.0, "seed": 0}
    assert emdcfl_rotated.ever_drawn(5, settings).all()
    drawn = emdcfl_rotated.ever_drawn(40, settings | {"participation": 0.25, "rounds": 1})
    assert drawn.sum() == 10


def test_sampling_effect_against_the_plain_way():
    """The closed form of the ARI is the one of scikit-learn, and the expectation is the simulated one."""
    from fltnb.randomness import stream

    repeats, rng = 200, stream(3, "method", 0)
    order = rng.random((repeats, 10, 40)).argsort(axis=2)
    truth, values, never = np.repeat(np.arange(4), 10), [], []
    for draws in order:
        seen = (draws < 10).any(axis=0)
        never.append((~seen).sum())
        values.append(adjusted_rand_index(truth, emdcfl_rotated.alone_unless(seen, truth)))
    expected, mean, spread = emdcfl_rotated.sampling_effect(10, repeats=repeats, seed=3)
    assert (mean, spread) == pytest.approx((np.mean(values), np.std(values)))
    assert expected == pytest.approx(40 * 0.75**10) and abs(np.mean(never) - expected) < 0.4
    assert emdcfl_rotated.sampling_effect(40) == (0.0, 1.0, 0.0)


def participation(method, seed, level, accuracies, ari):
    """One run of four clients in two clusters, two rounds, one client a round."""
    note = f"{level} of 40 clients"
    rows = tidy_rows(method, (float(np.mean(accuracies)), min(accuracies), ari), note=note, seed=seed)
    clients = pd.DataFrame({"client": range(4), "true_cluster": [0, 0, 1, 1], "test": accuracies})
    settings = {"rounds": 2, "participation": 0.25, "seed": seed}
    return rows, {rows[0]["key"]: (clients, settings)}


def test_participation_rows_by_hand():
    settings = {"rounds": 2, "participation": 0.25, "seed": 0}
    drawn = emdcfl_rotated.ever_drawn(4, settings)
    accuracies = np.where(drawn, 90.0, 10.0).tolist()
    rows, runs = participation("emdcfl", 0, 10, accuracies, 0.0)
    more, others = participation("oracle", 0, 10, [90.0] * 4, 1.0)
    table = emdcfl_rotated.participation_rows(pd.DataFrame(rows + more), runs | others, "rotated_mnist")
    assert table["never"].tolist() == [(~drawn).sum()] * 2 and table["drawn"].tolist() == [90.0, 90.0]
    assert table["accuracy"].tolist() == [np.mean(accuracies), 90.0]
    shown = emdcfl_rotated.participation_table(table).set_index("method")
    # the oracle, judged as the public code does, is where EMD-CFL is
    assert shown.loc["Oracle", "with singles"] == pytest.approx(np.mean(accuracies))
    assert shown.loc["Oracle", "accuracy, printed"] == "93.62 ± 2.12" and shown.loc["Oracle", "ARI"] == 1.0


@pytest.mark.parametrize("module", [experiment, emdcfl_backdoor, emdcfl_pacs, emdcfl_robustness])
def test_networks_of_the_paper_get_pixels_as_the_published_code_scales_them(module):
    runs = module.specs("paper") + (module.studies("paper") if hasattr(module, "studies") else [])
    for spec in module.clusterings("paper") if hasattr(module, "clusterings") else []:
        if spec.encoder["kind"] == "own":
            runs.append(SimpleNamespace(federation=spec.federation, model=spec.encoder["model"]))
    assert runs
    for run in runs:
        grey = run.federation["dataset"] == "mnist" and not run.federation["kind"].startswith("backdoor")
        by_ours = "mnist" if grey else "imagenet"
        wanted = by_ours if run.model == "emdcfl_cnn" else "unit"  # networks with ImageNet weights scale by themselves
        assert run.federation["scaling"] == wanted


def printed_tidy():
    """The paper's own tables as if they had come out of runs."""
    rows = []
    for table in ("T1", "T10", "T11"):
        lines = published.numbers("emdcfl", table)
        for (setting, dataset, method), own in lines.groupby(["setting", "dataset", "method"], sort=False):
            values = own.set_index("metric")["number"]
            version, data = setting.removeprefix("rotated_"), dataset.removeprefix("rotated_")
            model = {"mnist": "emdcfl_cnn", "cifar10": "resnet18"}[data]
            name = experiment.dataset(data, version)
            rows += tidy_rows(method, [values.get(m) for m in emdcfl.PRINTED.values()], dataset=name, model=model)
    return pd.DataFrame(rows)


CURVES = pd.DataFrame(columns=["dataset", "method", "variant", "note", "seed", "round", "split", "accuracy"])
CLUSTERINGS = pd.DataFrame(columns=["dataset", "images", "tolerance", "ari"])


def test_claims_on_the_printed_numbers_themselves():
    """The paper's tables, put through our checks: what it says of them holds."""
    claims = emdcfl_rotated.rotated_claims(printed_tidy(), CURVES, pd.DataFrame(), CLUSTERINGS).table()
    found = claims[claims["claim"] != ""].groupby("claim")["verdict"].agg(set).to_dict()
    known = published.claims("emdcfl")
    assert set(found) == set(known[known["notebook"] == emdcfl_rotated.NAME]["id"])
    # no printed number contradicts; Table 6 has no runs here
    assert {name for name, words in found.items() if words == {"holds"}} == set(found) - {"emdcfl-t6-1"}
    assert found["emdcfl-t6-1"] == {"not tested"}


def test_claims_about_resnet_are_not_judged_on_a_small_network():
    tidy = printed_tidy().replace({"model": {"resnet18": "lenet"}})
    claims = emdcfl_rotated.rotated_claims(tidy, CURVES, pd.DataFrame(), CLUSTERINGS).table()
    found = claims.set_index("claim")
    assert found.loc["emdcfl-t1-5", "verdict"] == "not tested" and "lenet" in found.loc["emdcfl-t1-5", "evidence"]


def test_claims_count_the_seeds_of_clusterings():
    rows = [
        {"dataset": "rotated_mnist_min", "images": 500, "tolerance": "0.025", "ari": float(s > 0)} for s in range(10)
    ]
    rows += [{**row, "dataset": "rotated_mnist_two", "ari": float(s > 1)} for s, row in enumerate(rows)]
    tidy = pd.DataFrame(tidy_rows("emdcfl", (98.0, 97.0, 1.0)))
    claims = emdcfl_rotated.rotated_claims(tidy, CURVES, pd.DataFrame(), pd.DataFrame(rows)).table()
    claims = claims[claims["sentence"].str.contains("500 images")]
    assert claims["verdict"].tolist() == ["holds", "does not hold"]
    assert claims["evidence"].tolist() == ["9 of 10, lowest 0.00", "8 of 10, lowest 0.00"]
    assert set(claims["claim"]) == {"emdcfl-t10-1"}


def test_tolerance_chosen_from_fitted_distances():
    rng = np.random.default_rng(0)
    clients = [rng.normal(size=(60, 6)) + 6 * np.eye(6)[i // 3] for i in range(6)]
    fitted = EMDClustering(tolerance=0.5, projection=None).fit(clients)
    chosen = emdcfl_rotated.chosen(fitted)
    far = np.maximum(fitted.distance_, fitted.distance_.T)
    same = np.equal.outer(np.arange(6) // 3, np.arange(6) // 3)
    assert far[same].max() < chosen < far[~same].min()
    assert fitted.tolerance == 0.5  # the fitted one is left as it was


def test_pictures(tidy):
    import matplotlib.pyplot as plt

    rows = emdcfl.runs(tidy, "rotated_mnist")
    _, axes = plots.method_dots(rows, emdcfl.printed("T1", "rotated_mnist"))
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["FedAvg", "EMD-CFL", "FedClust"]
    # 6 runs without a note in the panel, and a mark for every method's printed number
    points = [line for line in axes[0].lines if line.get_marker() == "o"]
    assert sum(len(line.get_xdata()) for line in points) == 6
    distance = np.array([[0, 0.01, 0.4], [0.02, 0, 0.5], [0.3, 0.6, 0]])
    _, ax = plots.distance_strip({"a": (distance, np.array([0, 0, 1]))}, {"0.025": 0.025})
    inside, across = ax.lines[:2]
    assert inside.get_xdata().tolist() == [0.02] and sorted(across.get_xdata()) == [0.4, 0.6]
    plt.close("all")
    with pytest.raises(FltnbError, match="no runs to draw"):
        plots.method_dots(rows[:0])
