"""Printed numbers and the comparison table."""

import hashlib

import numpy as np
import pandas as pd
import pytest

from fltnb import published
from fltnb.errors import FltnbError

DEFAULTS = {
    "experiment": "01_scenario1",
    "dataset": "mnist",
    "model": "mlp",
    "method": "fedavg",
    "variant": "as_written",
    "rule": "participants",
    "seed": 0,
    "split": "test",
    "metric": "accuracy",
    "value": 86.0,
    "n": 10_000,
}


def tidy(*rows):
    return pd.DataFrame([DEFAULTS | row for row in rows], columns=list(published.RESULT_COLUMNS))


def row_of(table, **wanted):
    for column, value in wanted.items():
        table = table[table[column] == value]
    assert len(table) == 1
    return table.iloc[0]


# ---------------------------------------------------------------- numbers


def test_every_number_is_there_and_read_as_printed():
    everything = published.numbers()
    assert len(everything) == 1099
    assert everything.groupby("paper")["table"].nunique().sum() == 25
    assert everything["number"].notna().all()
    assert (everything["number_error"].isna() == (everything["error"] == "")).all()
    assert {"589.6", "79.971", "-0.00"} <= set(everything["value"])


def test_selecting():
    mnist = published.numbers("flt", "T1", dataset="mnist", metric="accuracy")
    assert list(mnist["method"]) == ["fedavg", "local", "pca_km_hc", "fedsem", "flt_enc1", "flt_enc2"]
    assert list(mnist["value"]) == ["82.73", "97.41", "83.82", "98.01", "97.98", "97.97"]
    assert list(mnist["error"]) == ["0.38", "0.16", "0.37", "0.14", "0.14", "0.14"]
    assert mnist["number"].sum() == pytest.approx(557.92)
    assert len(published.numbers("flt", "T7", method=["fedavg", "local"], split="train")) == 8
    # known values that do not meet: nothing, but no error
    assert published.numbers("flt", "T1", dataset="femnist").empty


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"paper": "fedprox"}, "paper"),
        ({"paper": "flt", "table": "T11"}, "table"),
        ({"dataset": "minst"}, "dataset"),
        ({"colour": "red"}, "column"),
    ],
)
def test_unknown_names_are_refused(asked, word):
    with pytest.raises(FltnbError, match=word):
        published.numbers(**asked)


def test_the_callers_changes_stay_his_own():
    mine, everything = published.numbers("flt", "T1"), published.numbers()
    mine["number"] = 0.0
    everything.loc[0, "value"] = "x"
    assert published.numbers("flt", "T1")["number"].iloc[0] == 82.73
    assert published.numbers()["value"].iloc[0] == "82.73"


def test_what_flt_prints_twice_and_differently():
    found = published.inconsistencies("flt")
    printed = {(r.setting, r.dataset, r.method, r.metric): r.printed for r in found.itertuples()}
    assert printed == {
        ("scenario2", "mnist", "pca_km_hc", "accuracy_variance"): {"T2": "18.42", "T8": "18.40"},
        ("scenario2", "cifar10", "fedsem", "accuracy"): {"T2": "73.26", "T5": "73.42", "T8": "73.26"},
        ("scenario2", "cifar10", "flt_enc1", "accuracy"): {"T2": "79.971", "T5": "79.95", "T8": "79.97"},
        ("scenario2", "cifar10", "flt_enc2", "accuracy"): {"T2": "80.00", "T5": "79.62", "T8": "80.00"},
        ("scenario3", "femnist", "flt", "accuracy_variance"): {"T3": "145.03", "T9": "15.03"},
    }
    assert published.inconsistencies("emdcfl").empty


# ---------------------------------------------------------------- aggregate


def test_mean_spread_and_binomial_error_by_hand():
    found = published.aggregate(
        tidy({"value": 80.0, "seed": 0}, {"value": 82.0, "seed": 1}, {"value": 84.0, "seed": 2})
    )
    row = row_of(found, method="fedavg")
    assert (row["mean"], row["spread"], row["seeds"]) == (82, 2, 3)
    assert row["binomial_error"] == pytest.approx(100 * np.sqrt(0.82 * 0.18 / 10_000))


def test_short_metric_name_and_missing_rule():
    found = published.aggregate(tidy({"metric": "variance", "rule": np.nan, "n": np.nan}))
    assert found[["metric", "rule"]].values.tolist() == [["accuracy_variance", ""]]
    assert found[["spread", "binomial_error"]].isna().all(axis=None)


def test_bad_results_are_refused():
    with pytest.raises(FltnbError, match="columns rule, n"):
        published.aggregate(tidy({}).drop(columns=["rule", "n"]))
    with pytest.raises(FltnbError, match="Seed 0 of fedavg on mnist occurs twice"):
        published.aggregate(tidy({}, {"value": 1.0}))
    with pytest.raises(FltnbError, match="variant"):
        published.aggregate(tidy({"variant": "publised"}))


# ---------------------------------------------------------------- comparison


def test_one_table_by_hand():
    results = tidy(
        {"value": 86.0, "seed": 0},
        {"value": 87.0, "seed": 1},
        {"value": 83.0, "variant": "as_run", "rule": "last_local"},
        {"value": 110.0, "metric": "variance"},
        {"value": 97.5, "method": "local", "rule": ""},
    )
    table = published.comparison(results, "T1", "mnist", {"fedavg": "ours", ("local", "accuracy"): "alone"})
    assert list(table.columns) == [
        *("dataset", "method", "split", "metric", "as_run", "as_written", "published variant"),
        *("described - printed", "published variant - printed", "comment"),
    ]
    assert len(table) == 12
    fedavg = row_of(table, method="fedavg", metric="accuracy")
    assert fedavg["as_run"] == "82.73 ± 0.38"
    assert fedavg["as_written"] == "86.50 ± 0.71 (2 seeds) [0.34]"
    assert fedavg["published variant"] == "83.00 (1 seed) [0.38]"
    assert (fedavg["described - printed"], fedavg["published variant - printed"]) == ("+3.77", "+0.27")
    assert fedavg["comment"] == "ours"
    variance = row_of(table, method="fedavg", metric="accuracy_variance")
    assert (variance["as_run"], variance["as_written"]) == ("44.65", "110.00 (1 seed)")
    assert (variance["published variant"], variance["published variant - printed"]) == ("not run", "–")
    assert row_of(table, method="local", metric="accuracy")["comment"] == "alone"
    assert row_of(table, method="local", metric="accuracy_variance")["comment"] == ""
    assert row_of(table, method="flt_enc2", metric="accuracy")["as_written"] == "not run"
    assert "Table 1 of FLT" in table.attrs["caption"]
    assert "does not say which local model" in table.attrs["caption"]


def test_nothing_run_keeps_every_row():
    table = published.comparison(tidy(), "T7")
    assert len(table) == 48
    assert (table[["as_written", "published variant"]] == "not run").all(axis=None)
    assert set(table["dataset"]) == {"mnist", "cifar10"}


def test_another_rule_never_fills_the_main_column():
    results = tidy({"variant": "as_run", "rule": "last_aggregate", "value": 81.7})
    row = row_of(published.comparison(results, "T1", "mnist"), method="fedavg", metric="accuracy")
    assert row["published variant"] == "not run"
    assert row["published, last_aggregate"] == "81.70 (1 seed) [0.39]"
    # the published variant with the described rule is a switch set alone, not the published variant
    alone = tidy({"variant": "as_run", "rule": "participants"})
    row = row_of(published.comparison(alone, "T1", "mnist"), method="fedavg", metric="accuracy")
    assert (row["published variant"], row["as_written"]) == ("not run", "not run")
    assert row["published, participants"] == "86.00 (1 seed) [0.35]"
    # scenarios 3 and 4 were run with the last aggregate: the caller can say so
    rules = published.RULES | {"as_run": "last_aggregate"}
    row = row_of(published.comparison(results, "T1", "mnist", rules=rules), method="fedavg", metric="accuracy")
    assert row["published variant"] == "81.70 (1 seed) [0.39]"
    assert "published, last_aggregate" not in row


def test_a_method_the_paper_does_not_have_gets_rows():
    table = published.comparison(tidy({"method": "oracle", "value": 99.2}), "T1", "mnist")
    row = row_of(table, method="oracle", metric="accuracy")
    assert (row["as_run"], row["as_written"], row["described - printed"]) == ("–", "99.20 (1 seed) [0.09]", "–")
    assert len(table) == 14


def test_toy_data_get_the_same_rows_without_printed_numbers():
    results = tidy({"dataset": "digits", "n": 360})
    for table in (published.comparison(results, "T1"), published.comparison(results, "T1", "digits")):
        assert len(table) == 12
        assert set(table["dataset"]) == {"digits"}
        assert set(table["as_run"]) == {"–"}
        assert table.attrs["caption"].startswith("Toy scale (digits); not comparable")
        assert row_of(table, method="fedavg", metric="accuracy")["as_written"] == "86.00 (1 seed) [1.83]"


def test_repeated_numbers_are_flagged():
    table = published.comparison(tidy(), "T2")
    pca = row_of(table, dataset="mnist", method="pca_km_hc", metric="accuracy_variance")
    assert pca["comment"] == "the paper also prints 18.40 in T8"
    flt = row_of(table, dataset="cifar10", method="flt_enc1", metric="accuracy")
    assert (flt["as_run"], flt["comment"]) == ("79.971 ± 0.40", "the paper also prints 79.95 in T5, 79.97 in T8")
    lost = row_of(
        published.comparison(tidy(), "T8"),
        dataset="cifar10",
        method="flt_enc2",
        split="train",
        metric="accuracy_variance",
    )
    assert "a leading digit may be lost" in lost["comment"]


def test_tables_by_model_are_matched_by_model():
    results = tidy({"dataset": "femnist", "model": "cnn", "method": "flt", "value": 82.0, "n": np.nan})
    table = published.comparison(results, "T3")
    assert row_of(table, model="cnn", method="flt", metric="accuracy")["as_written"] == "82.00 (1 seed)"
    assert row_of(table, model="mlp", method="flt", metric="accuracy")["as_written"] == "not run"


def test_ambiguity_is_refused():
    with pytest.raises(FltnbError, match="several models"):
        published.comparison(tidy({}, {"model": "cnn"}), "T1", "mnist")
    with pytest.raises(FltnbError, match="several settings"):
        published.comparison(tidy(), "T5")


# ---------------------------------------------------------------- the plane


def test_accuracy_and_variance_pairs():
    results = tidy(
        {"value": 86.0},
        {"value": 110.0, "metric": "variance"},
        {"value": 84.0, "variant": "as_run", "rule": "last_local"},
        {"value": 38.0, "metric": "variance", "variant": "as_run", "rule": "last_local"},
        {"value": 99.0, "method": "oracle", "rule": ""},
        {"value": 0.5, "method": "oracle", "rule": "", "metric": "variance"},
        {"value": 1.0, "metric": "worst"},
    )
    table = published.accuracy_and_variance(results, "T1", "mnist")
    points = {(r.method, r.source): (r.accuracy, r.variance) for r in table.itertuples()}
    assert points["fedavg", "printed"] == (82.73, 44.65)
    assert points["fedavg", "participants"] == (86, 110)
    assert points["fedavg", "last_local"] == (84, 38)
    assert points["oracle", "as_written"] == (99, 0.5)
    assert table["method"].iloc[0] == "fedavg"
    # both variants under one rule: they differ in more than the rule and must not be averaged
    both = pd.concat([results, tidy({"value": 85.0, "variant": "as_run"}).assign(seed=0)])
    sources = set(published.accuracy_and_variance(both, "T1", "mnist")["source"])
    assert {"described, participants", "published, participants", "last_local"} <= sources


def test_the_packaged_numbers_are_not_edited():
    """A changed digit in a published number would silently move every comparison."""
    text = published.numbers().drop(columns=["number", "number_error"]).to_csv(index=False, lineterminator="\n")
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "6ae1cfdcbeaf6f84e59173048d0d920c1606e33e97f2334f1fb9f09bf1b684df"
    )
