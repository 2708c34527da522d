"""What the papers print and claim, beside results made by hand: what counts as what,
and nothing where nothing ran.
"""

import hashlib
import json
import re
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from toys import refused

import fltnb as fl
from fltnb import papers, paths
from fltnb.papers.settings import NOTEBOOKS, printed_setting

OFFICIAL = "official release"
FLT = {
    "federation": {"n_clients": 100},
    "participation": 0.2,
    "local_epochs": 1,
    "rounds": 100,
}
FLT |= {"batch_size": 10, "lr": 0.01, "model": "mlp"}
EMDCFL = {
    "federation": {"n_clients": 40},
    "participation": 1.0,
    "local_epochs": 10,
    "rounds": 10,
}
EMDCFL |= {
    "batch_size": 64,
    "lr": 0.01,
    "momentum": 0.9,
    "weight_decay": 1e-6,
    "model": "emdcfl_cnn",
}
COMMON = {
    "kind": "training",
    "dataset": "mnist",
    "model": "mlp",
    "method": "fedavg",
    "variant": "as_written",
}
COMMON |= {
    "seed": 0,
    "profile": "small",
    "n_test": 10_000,
    "n_train": 60_000,
    "stopped": "",
}


class Fake:
    """The shape of fltnb.experiments.Results, of rows given by hand; ``settings`` and
    ``about`` belong to the record.
    """

    def __init__(
        self, *rows, axes=(), curves=(), clients=(), tables=None, missing=None
    ):
        self.records, kept = {}, []
        for number, row in enumerate(rows):
            row = COMMON | {"key": f"k{number}"} | row
            settings = FLT | row.pop("settings", {})
            about = {"data_origin": OFFICIAL} | row.pop("about", {})
            self.records[row["key"]] = {"settings": settings, "provenance": about}
            kept.append(row)
        self.runs = pd.DataFrame(kept, columns=None if kept else [*COMMON, "key"])
        self.axes, self.tables = tuple(axes), tables or {}
        self.curves, self.clients = pd.DataFrame(curves), pd.DataFrame(clients)
        if missing is not None:
            self.missing = lambda: pd.DataFrame(missing)

    def record(self, key):
        return self.records[key]

    def table(self, key, name):
        return pd.DataFrame(self.tables[key, name])

    def provenance(self):
        return pd.DataFrame(
            [
                {
                    "dataset": "mnist",
                    "experiments": len(self.runs),
                    "seeds": 1,
                    "minutes": 1.5,
                    "data": "<b>",
                }
            ]
        )


def one(rows, /, **wanted):
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    assert len(rows) == 1
    return rows.iloc[0]


def cell(table, method, measure="accuracy", **wanted):
    return one(table, method=method, measure=measure, **wanted)


def ran(results, paper, table):
    found = papers.measured(results, paper, table)
    return found[found["status"] != "not run"]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty project: no results, no figures."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    return tmp_path


def test_every_number_is_there_and_read_as_printed_and_has_names_for_people():
    everything = papers.numbers()
    assert len(everything) == 1099 and len(papers.numbers("flt")) == 340
    assert everything.groupby("paper")["table"].nunique().sum() == 25
    assert everything["number"].notna().all()
    assert (everything["number_error"].isna() == (everything["error"] == "")).all()
    assert {"589.6", "79.971", "-0.00"} <= set(everything["value"])
    # a changed digit in a printed number would silently move every comparison
    text = everything.drop(columns=["number", "number_error", "first"]).to_csv(
        index=False, lineterminator="\n"
    )
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest == "6ae1cfdcbeaf6f84e59173048d0d920c1606e33e97f2334f1fb9f09bf1b684df"
    said = {
        "fesem_2": "FeSEM (K = 2)",
        "flt_c3": "FLT (C = 3)",
        "backdoor_cifar10": "Backdoor CIFAR-10",
    }
    said |= {
        "rotated_mnist": "Rotated MNIST",
        "as_run": "following the authors' code",
        "my_method": "my method",
        "ari": "ARI",
    }
    said |= {
        "resnet18:random": "ResNet-18, random weights",
        "pseudo-writers": "pseudo-writers",
    }
    assert {name: papers.label(name) for name in said} == said
    for column in ("method", "dataset", "model"):  # no raw id in any table
        assert not [
            name for name in everything[column].unique() if "_" in papers.label(name)
        ]


def test_selecting():
    mnist = papers.numbers("flt", "T1", dataset="mnist", metric="accuracy")
    assert list(mnist["method"]) == [
        "fedavg",
        "local",
        "pca_km_hc",
        "fedsem",
        "flt_enc1",
        "flt_enc2",
    ]
    assert list(mnist["value"]) == [
        "82.73",
        "97.41",
        "83.82",
        "98.01",
        "97.98",
        "97.97",
    ]
    assert list(mnist["error"]) == ["0.38", "0.16", "0.37", "0.14", "0.14", "0.14"]
    assert mnist["number"].sum() == pytest.approx(557.92)
    assert (
        len(papers.numbers("flt", "T7", method=["fedavg", "local"], split="train")) == 8
    )
    assert papers.numbers(
        "flt", "T1", dataset="femnist"
    ).empty  # known values that do not meet: no error
    mine = papers.numbers("flt", "T1")
    mine["number"] = 0.0
    assert (
        papers.numbers("flt", "T1")["number"].iloc[0] == 82.73
    )  # the caller's changes stay his own


def test_unknown_names_are_refused():
    for column in ("paper", "dataset", "colour", "number"):
        refused("Unknown", papers.numbers, **{column: "minst"})
    refused("Unknown printed table", papers.numbers, "flt", "T11")  # of EMD-CFL


def test_what_flt_prints_twice_and_differently():
    found = papers.inconsistencies("flt")
    printed = {
        (r.setting, r.dataset, r.method, r.metric): r.printed
        for r in found.itertuples()
    }
    assert printed == {
        ("scenario2", "mnist", "pca_km_hc", "accuracy_variance"): {
            "T2": "18.42",
            "T8": "18.40",
        },
        ("scenario2", "cifar10", "fedsem", "accuracy"): {
            "T2": "73.26",
            "T5": "73.42",
            "T8": "73.26",
        },
        ("scenario2", "cifar10", "flt_enc1", "accuracy"): {
            "T2": "79.971",
            "T5": "79.95",
            "T8": "79.97",
        },
        ("scenario2", "cifar10", "flt_enc2", "accuracy"): {
            "T2": "80.00",
            "T5": "79.62",
            "T8": "80.00",
        },
        ("scenario3", "femnist", "flt", "accuracy_variance"): {
            "T3": "145.03",
            "T9": "15.03",
        },
    }
    assert papers.inconsistencies("emdcfl").empty


def departs(line, settings, dataset="", variant="as_written", **options):
    return papers.departures(
        {"settings": settings, "provenance": {}}, line, dataset, variant, **options
    )


def test_departures_from_printed_settings():
    line = papers.numbers("flt", "T1").iloc[0]
    short = FLT | {"local_epochs": 5, "rounds": 50}
    assert (
        departs(line, FLT) == departs(line, FLT | {"model": "cnn_small"}) == []
    )  # FLT does not name its network
    assert departs(line, short) == ["50 of 100 rounds", "local epochs 5, printed 1"]
    assert departs(line, short, variant="as_run") == [
        "50 of 100 rounds"
    ]  # E is part of that variant
    assert departs(line, FLT | {"rounds": 200}) == ["200 rounds, printed 100"]
    assert departs(line, FLT | {"rounds": 200}, at_round=100) == []
    otherwise = ["learning rate 0.1, printed 0.01", "batch size 32, printed 10"]
    assert departs(line, FLT | {"lr": 0.1, "batch_size": 32}) == otherwise
    assert departs(line, FLT | {"federation": {"base": {"n_clients": 25}}}) == [
        "25 of 100 clients"
    ]

    line = papers.numbers("emdcfl", dataset="backdoor_mnist", method="emdcfl").iloc[0]
    nested = {"model": "emdcfl_cnn", "training": {"lr": 0.02, "local_epochs": 10}}
    assert departs(line, nested) == ["learning rate 0.02, printed 0.01"]  # distances
    assert (
        departs(
            line, EMDCFL | {"federation": {"n_clients": 30, "samples_per_client": None}}
        )
        == []
    )
    light = {
        "model": "cnn_small",
        "federation": {"n_clients": 9, "samples_per_client": 4000},
    }
    assert departs(
        line, EMDCFL | light | {"rounds": 3, "lr": 0.02, "batch_size": 32}
    ) == [
        *("light CNN", "9 of 30 clients", "3 of 10 rounds", "4,000 images per client"),
        *("learning rate 0.02, printed 0.01", "batch size 32, printed 64"),
    ]
    line = papers.numbers("emdcfl", "T2", method="emdcfl").iloc[0]
    pacs = EMDCFL | {
        "federation": {"val_fraction": 0.16, "test_fraction": 0.2},
        "lr": 0.001,
        "model": "resnet18",
    }
    assert departs(line, pacs) == [
        "16% for validation, printed 10%",
        "20% for testing, printed 10%",
    ]
    assert (
        departs(line, pacs, variant="as_run") == []
    )  # that division is the public code's
    short = {
        name: value for name, value in pacs.items() if name != "lr"
    }  # as in a record, which drops defaults
    assert departs(line, short, variant="as_run") == [
        "learning rate 0.01, printed 0.001"
    ]
    setting = printed_setting(papers.numbers("emdcfl", "T6").iloc[0])
    assert (setting["participation"], setting["model"], setting["n_clients"]) == (
        0.25,
        "emdcfl_cnn",
        40,
    )


def test_one_table_by_hand():
    results = Fake(
        {"accuracy": 86.0, "variance": 110.0},
        {"accuracy": 87.0, "variance": 110.0, "seed": 1},
        {"accuracy": 83.0, "variant": "as_run"},
        {"method": "local", "accuracy": 97.5},
    )
    table = papers.compare(results, "flt", "T1", "mnist")
    columns = [
        "data",
        "method",
        "measure",
        "printed",
        "text",
        "code",
        "text − printed",
        "code − printed",
    ]
    assert list(table.columns) == columns
    assert list(table["method"].unique()) == [
        "FedAvg",
        "Local",
        "PCA+kM+HC",
        "FedSEM",
        "FLT Enc1",
        "FLT Enc2",
    ]
    fedavg = cell(table, "FedAvg")
    assert list(fedavg) == [
        *(
            "MNIST",
            "FedAvg",
            "accuracy",
            "82.73 ± 0.38",
            "86.50 ± 0.71 (2 seeds)",
            "83.00 (1 seed)",
        ),
        *("+3.77", "+0.27"),
    ]
    variance = cell(table, "FedAvg", "variance")
    assert list(variance[["printed", "text", "code"]]) == [
        "44.65",
        "110.00 ± 0.00 (2 seeds)",
        "not run",
    ]
    assert cell(table, "FLT Enc2")["text"] == "not run"
    assert (
        "Table 1 of FLT" in table.attrs["caption"]
        and "local model not stated" in table.attrs["caption"]
    )


def test_nothing_run_keeps_every_row():
    for paper, books in NOTEBOOKS.items():
        for name in (table for tables in books.values() for table in tables):
            table = papers.compare(None, paper, name)
            assert set(table["text"]) == {"not run"} and ("code" in table) == (
                paper != "mthfl"
            )
            assert len(table) == len(papers.numbers(paper, name)) or (
                name,
                len(table),
            ) == ("TI", 10)
        names = [name for tables in books.values() for name in tables]
        assert sorted(names) == sorted(papers.numbers(paper)["table"].unique())


def test_a_number_is_found_in_every_table_that_prints_it_and_counted_once():
    results = Fake(
        {"accuracy": 83.0, "variance": 50.0},
        {"accuracy": 84.0, "variance": 50.0, "seed": 1},
    )
    for table in ("T1", "T7"):
        run = one(ran(results, "flt", table), metric="accuracy")
        assert (run["mean"], run["seeds"], run["status"], run["departs"]) == (
            83.5,
            2,
            "printed setting",
            (),
        )
    found = papers.all_measured({"01_scenario1": results})
    table = papers.counts(found)
    assert list(one(table, paper="flt", variant="as_written")[2:]) == [
        247,
        2,
        0,
        0,
        245,
        0,
        0,
    ]
    run = list(one(table, paper="flt", variant="as_run")[2:])
    assert run == [247, 0, 0, 0, 247, 0, 0]
    assert table.drop_duplicates("paper")["printed"].tolist() == [
        247,
        118,
        27,
        533,
    ]  # 925 of 1,099
    near = papers.nearness(found)
    assert near.to_numpy().tolist() == [
        ["flt", "as_written", 1, 0, 1, 1, 1, 1]
    ]  # 83.5 for 82.73, 50 for 44.65


def test_numbers_that_repeat_the_run_of_another_row_are_counted():
    # both encoders find the same clusters; FedSEM has their accuracy, but not their
    # variance
    rows = [
        {"method": "flt_enc1", "accuracy": 98.0, "variance": 5.0},
        {"method": "flt_enc2", "accuracy": 98.0, "variance": 5.0},
        {"method": "fedsem", "accuracy": 98.0, "variance": 6.0},
    ]
    held = {"01_scenario1": Fake(*rows)}
    found, judged = papers.report.evidence(held)
    counted = one(papers.counts(found), paper="flt", variant="as_written")
    assert (counted["printed_setting"], counted["same_run"]) == (6, 2)
    front = papers.report.pages(held, found, judged)["docs/report/README.md"]
    assert "| 6 of 247 (text; 2 repeat another row's run) |" in front


def test_single_switches_are_not_the_row_of_the_table():
    rows = [
        {"method": "fedavg", "accuracy": 99.0, "k": 2.0},
        {"method": "local", "accuracy": 97.0, "k": np.nan},
    ]
    results = Fake(*rows, axes=["k"])
    assert set(ran(results, "flt", "T1")["method"]) == {"local"}
    assert set(ran(Fake(rows[0], axes=["k"]), "flt", "T1")["method"]) == {
        "fedavg"
    }  # what all have is no switch
    rows = [
        {"rule": "last_aggregate", "variant": "as_run"},
        {"rule": "participants", "variant": "as_run"},
    ]
    results = Fake(*({"accuracy": 81.7} | row for row in rows), axes=["rule"])
    assert ran(results, "flt", "T1").empty


def test_otherwise_stopped_runs_and_stand_ins_are_named():
    results = Fake(
        {"accuracy": 82.7, "settings": {"rounds": 50, "local_epochs": 5}},
        {
            "accuracy": 82.7,
            "variant": "as_run",
            "settings": {"rounds": 50, "local_epochs": 5},
        },
        {"accuracy": 97.0, "method": "local", "stopped": "loss is not finite"},
    )
    assert set(ran(results, "flt", "T1")["status"]) == {"reduced setting"}
    table = papers.compare(results, "flt", "T1", "mnist")
    said = dict(zip(table["method"] + table["measure"], table["setting"], strict=True))
    assert (
        said["FedAvgaccuracy"]
        == "text: 50 of 100 rounds; local epochs 5, printed 1; code: 50 of 100 rounds"
    )
    assert said["Localaccuracy"] == "a run stopped early"

    scenario4 = {"federation": {"n_clients": 2400}, "local_epochs": 5}
    base = {"method": "flt", "settings": scenario4}
    small = base | {"dataset": "emnist_bymerge", "accuracy": 80.0}
    line = one(
        papers.compare(Fake(small), "flt", "T4"),
        method="FLT",
        model="MLP",
        measure="accuracy",
    )
    assert (line["text"], line["setting"]) == (
        "80.00 (1 seed)",
        "stand-in: EMNIST ByMerge",
    )
    assert "text − printed" not in line  # nothing to compare with
    cut = base | {
        "dataset": "emnist_balanced",
        "accuracy": 86.0,
        "about": {"data_origin": "stand-in: 42,864 (x) y"},
    }
    assert list(ran(Fake(cut), "flt", "T4")["departs"]) == [("stand-in: 42,864",)]
    own = base | {"dataset": "emnist_balanced", "accuracy": 86.0, "profile": "paper"}
    assert list(ran(Fake(small, own), "flt", "T4")["status"]) == [
        "printed setting"
    ]  # the best one is shown
    short = {"accuracy": 1.0, "settings": {"rounds": 50}}
    assert list(ran(Fake(short, {"accuracy": 2.0}), "flt", "T1")["mean"]) == [2.0]


def test_models_of_a_table_are_told_apart():
    base = {"dataset": "femnist", "method": "flt"}
    scenario3 = {"federation": {"n_clients": 200}, "local_epochs": 5}
    rows = [{"accuracy": 70.0}, {"accuracy": 80.0, "model": "leaf_cnn"}]
    found = ran(
        Fake(*(base | row | {"settings": scenario3 | row} for row in rows)), "flt", "T3"
    ).set_index("model")
    assert found["mean"].to_dict() == {"mlp": 70.0, "cnn": 80.0}
    assert found["departs"].to_dict() == {"mlp": ("100 of 1,000 rounds",), "cnn": ()}
    both = Fake({"accuracy": 1.0}, {"accuracy": 2.0, "model": "cnn_small"})
    refused(
        r"FedAvg on MNIST following the text \(MLP, light CNN\): select one",
        papers.compare,
        both,
        "flt",
        "T1",
    )
    refused(
        "01_scenario1 has no results for T2 of flt",
        papers.compare,
        Fake({"notebook": "01_scenario1"}),
        "flt",
        "T2",
    )


def test_other_methods_and_toy_data():
    table = papers.compare(
        Fake({"method": "oracle", "accuracy": 99.2}),
        "flt",
        "T1",
        "mnist",
        beside=("oracle",),
    )
    row = cell(table, "Oracle")
    assert (row["printed"], row["text"], len(table)) == (
        "",
        "99.20 (1 seed)",
        14,
    )
    toy = Fake({"dataset": "digits", "accuracy": 86.0, "n_test": 360})
    for table in (
        papers.compare(toy, "flt", "T1"),
        papers.compare(toy, "flt", "T1", "digits"),
    ):
        assert (
            len(table) == 12
            and set(table["data"]) == {"digits"}
            and "printed" not in table
        )
        assert table.attrs["caption"].startswith(
            "Toy data; not comparable with Table 1 of FLT."
        )
        assert cell(table, "FedAvg")["text"] == "86.00 (1 seed)"
    assert (
        papers.counts(papers.all_measured({"01_scenario1": toy}))["printed_setting"]
        == 0
    ).all()


def test_remarks_of_the_paper_and_origins_of_data():
    copies = {"dataset": "cifar10", "accuracy": 1.0, "about": {"data_origin": "copies"}}
    table = papers.compare(Fake(copies), "flt", "T2")
    assert (
        cell(table, "PCA+kM+HC", "variance", data="MNIST")["note"]
        == "the paper also prints 18.40 in T8"
    )
    flt = cell(table, "FLT Enc1", data="CIFAR-10")
    assert (flt["printed"], flt["note"]) == (
        "79.971 ± 0.40",
        "the paper also prints 79.95 in T5, 79.97 in T8",
    )
    assert "Data: copies." in table.attrs["caption"]
    twice = papers.all_measured(
        {
            "01_scenario1": Fake(
                copies | {"settings": {"local_epochs": 5, "model": "lenet"}},
                {"accuracy": 1.0},
            )
        }
    )
    assert list(one(papers.counts(twice), paper="flt", variant="as_written")[2:]) == [
        247,
        2,
        0,
        0,
        245,
        0,
        1,
    ]
    lost = papers.compare(None, "flt", "T8").query(
        "method == 'FLT Enc2' and measure == 'train variance'"
    )
    assert lost["note"].str.contains("a leading digit may be lost").any()


def test_the_ablation_is_read_at_both_numbers_of_rounds():
    line = {"clients": 500, "participation": 0.5, "local_epochs": 1}
    settings = {"federation": {"n_clients": 500}, "participation": 0.5}
    run = {
        "dataset": "cifar10",
        "method": "fedsem",
        "accuracy": 76.0,
        "settings": settings,
        **line,
    }
    other = run | {"clients": 100, "accuracy": 1.0}
    curves = [
        {"key": "k0", "split": "test", "round": r, "accuracy": a}
        for r, a in ((50, 70.0), (75, 0), (100, 76.0))
    ]
    found = papers.compare(
        Fake(run, other, axes=list(line), curves=curves), "flt", "T5"
    )
    found = found[found["text"] != "not run"]
    lines = (
        found[["clients", "participation", "local epochs", "rounds"]]
        .to_numpy()
        .tolist()
    )
    assert lines == [["500", "0.5", "1", "50"], ["500", "0.5", "1", "100"]]
    assert list(found["printed"]) == ["72.26 ± 0.45", "76.82 ± 0.42"]
    assert list(found["text"]) == ["70.00 (1 seed)", "76.00 (1 seed)"]
    assert "setting" not in found


def test_emdcfls_versions_participation_and_targets():
    base = {"method": "emdcfl", "model": "mlp_plain"}
    base["settings"] = EMDCFL | {
        "model": "mlp_plain",
        "federation": {"n_clients": 40, "samples_per_client": 500},
    }
    quarter = {
        "settings": base["settings"] | {"participation": 0.25},
        "participation": 0.25,
    }
    results = Fake(
        base
        | {"dataset": "rotated_mnist", "accuracy": 95.0, "worst": 93.0, "ari": 1.0},
        base | {"dataset": "rotated_mnist_two", "accuracy": 94.0, "ari": 0.5},
        base | {"dataset": "rotated_mnist", "accuracy": 90.0} | quarter,
        axes=["participation"],
    )
    found = pd.concat(
        ran(results, "emdcfl", table) for table in ("T1", "T6", "T10", "T11")
    )
    assert found[["table", "setting", "metric", "mean"]].to_numpy().tolist() == [
        *(
            ["T1", "rotated", "avg_accuracy", 95.0],
            ["T1", "rotated", "worst_accuracy", 93.0],
        ),
        *(
            ["T1", "rotated", "ari", 1.0],
            ["T6", "partial_participation", "avg_accuracy", 90.0],
        ),
        *(
            ["T10", "rotated_two", "avg_accuracy", 94.0],
            ["T10", "rotated_two", "ari", 0.5],
        ),
    ]
    assert set(found["departs"]) == {("plain MLP", "500 images per client")}
    line = papers.compare(results, "emdcfl", "T10").query("text != 'not run'").iloc[0]
    assert (line["version"], line["text"]) == (
        "Two (−3°, 3°, 177°, 183°)",
        "94.00 (1 seed)",
    )

    # Tables 3 and 8 print means over cluster 0, on clean images and on triggered ones.
    run = {
        "dataset": "backdoor_mnist",
        "accuracy": 50.0,
        "settings": EMDCFL | {"federation": {"n_clients": 30}},
    }
    own = ((0, 90, 60), (0, 80, 40), (1, 9, 9))
    clients = [
        {"key": "k0", "true_cluster": c, "test": t, "probe": p} for c, t, p in own
    ]
    results = Fake(run, clients=clients)
    found = ran(results, "emdcfl", "T8")
    assert dict(zip(found["metric"], found["mean"], strict=True)) == {
        "clean_accuracy": 85.0,
        "backdoor_accuracy": 50.0,
    }
    assert (
        set(found["status"]) == {"printed setting"}
        and ran(results, "emdcfl", "T3").empty
    )  # FedAvg is no row of it


def test_fesems_measures_and_studies_stand_beside_the_numbers_that_their_tables_name():
    run = {
        "dataset": "pseudo-writers",
        "method": "fesem_2",
        "model": "cnn_small",
        "accuracy": 1.0,
        "micro": 2.0,
    }
    run |= {
        "micro_f1": 3.0,
        "macro_f1": 4.0,
        "settings": {"model": "cnn_small", "lr": 0.1, "local_epochs": 5},
    }
    found = ran(Fake(run), "fesem", "T2").set_index("metric")
    means = {
        "micro_accuracy": 2.0,
        "micro_f1": 3.0,
        "macro_accuracy": 1.0,
        "macro_f1": 4.0,
    }
    assert found["mean"].to_dict() == means
    said = (
        "stand-in: pseudo-writers",
        "light CNN",
        "100 of 3,550 clients",
        "learning rate 0.1, printed 0.003",
    )
    assert set(found["departs"]) == {said}

    study = {"kind": "study", "dataset": "cifar10", "method": "mthfl", "table": "TI"}
    pairs = [{"user_i": 1, "user_j": 2, "value": 0.95, "otherwise": ""}]
    pairs += [{"user_i": 1, "user_j": 4, "value": 0.4, "otherwise": "p = 9"}]
    results = Fake(study, axes=["table"], tables={("k0", "printed"): pairs})
    found = ran(results, "mthfl", "TI")
    assert found["status"].tolist() == ["printed setting", "reduced setting"]
    np.testing.assert_allclose(
        found["mean"] - found["number"], [0.95 - 0.97, 0.4 - 0.31]
    )
    table = papers.compare(results, "mthfl", "TI")
    assert (
        len(table) == 10
        and table["users"].iloc[1] == "user 1 (vehicles) and user 3 (animals)"
    )
    assert "each pair of users is shown once" in table.attrs["caption"]
    tables = {("k0", "printed"): [{"method": "oracle", "value": 2.5}]}
    hours = Fake(study | {"table": "T4", "method": ""}, tables=tables)
    assert list(ran(hours, "emdcfl", "T4")["mean"]) == [2.5]


def test_the_report_shows_numbers_claims_and_what_departs(root):
    nothing = papers.report.pages({}, *papers.report.evidence({}))
    assert "none was run" in nothing["docs/report/flt.md"]
    short = {"method": "local", "accuracy": 90.0, "settings": {"rounds": 7}}
    flt = [{"method": f"flt_enc{which}", "accuracy": 98.0} for which in (1, 2)]
    results = Fake({"accuracy": 83.0, "variance": 40.0}, short, *flt)
    (root / "README.md").write_text(
        "# x\n<!-- table: -->\nold\n<!-- end -->\n<!-- cards: -->\n<!-- end -->\nz\n"
    )
    papers.report.write({"01_scenario1": results})
    assert (root / papers.report.PICTURE).stat().st_size > 0
    front, text = (
        (root / "docs" / "report" / name).read_text(encoding="utf-8")
        for name in ("README.md", "flt.md")
    )
    assert "| 83.00 |" in text and "82.73 ± 0.38" in text and "*90.00*" in text
    assert "7 of 100 rounds." in text
    agrees = '| MNIST, text: 0.00 | printed setting | <b class="agrees">✔ agrees</b> |'
    assert agrees in text and "✔&nbsp;" in front
    assert r"\|I - A\|^2" in text
    for page in (front, text):
        assert str(root) not in page
        shown = re.sub(r"\]\([^)]*\)|href=\"[^\"]*\"", "", page)
        assert not re.findall(
            r"\b(?:flt_enc1|fesem_2|rotated_mnist|accuracy_variance|flt-t1-1)\b", shown
        )  # no ids
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert "| FedAvg | 82.73 | 83.00 | – |" in readme
    assert "\nold" not in readme and readme[-2:] == "z\n"
    assert "[FLT](docs/report/flt.md)" in readme
    held = {"01_scenario1": results}
    evidence = papers.report.evidence(held)
    assert papers.report.old(held, *evidence) == []
    (root / "README.md").write_text(readme.replace("83.00", "84.00"))
    (root / "docs" / "report" / "emdcfl.md").unlink()
    assert papers.report.old(held, *evidence) == ["docs/report/emdcfl.md", "README.md"]


def test_the_picture_of_the_report_says_what_agrees():
    found = papers.all_measured({})
    claims = pd.DataFrame({"paper": ["flt", "mthfl", "flt"]})
    claims["outcome"] = ["agrees", "partly", "not tested"]
    fig, title = papers.agreement(found, claims)
    assert title.startswith("In the printed setting, accuracies within 3 points: none")
    assert len(fig.axes) == 1  # claims alone

    run = (found["paper"] == "flt") & (found["table"] == "T1")
    found.loc[run, "status"] = "printed setting"
    off = found["variant"].map({"as_written": 5.0, "as_run": 1.0})
    found["mean"] = found["number"] + off
    assert len(papers.scores(found)) == 24  # 6 methods, 2 data sets, 2 variants
    fig, title = papers.agreement(found, claims)
    assert title == (
        "In the printed setting, accuracies within 3 points: 0 of 12 (text), "
        "12 of 12 (code)\nOf 2 claims tested in it, 1 agree, 1 partly"
    )
    assert [ax.get_title() for ax in fig.axes] == ["FLT", "claims"]


def test_notebook_99_found_readme_and_the_report_as_the_ledger_gives_them():
    # `make test` computes this output again, and compares
    file = paths.ROOT / "notebooks" / "99_report.ipynb"
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    shown = next(cell for cell in cells if cell["id"] == "experiment")["outputs"]
    said = "".join(shown[0]["text"])
    assert "pages of the report tell what is stored." in said, "run `make report`"


def test_readme_is_one_page():
    readme = (paths.ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.split()) <= 900


def test_readme_says_what_to_use_as_notebook_15_does():
    file = paths.ROOT / "notebooks" / "15_head_to_head.ipynb"
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    use = next(cell for cell in cells if cell["id"] == "use")
    table = "".join(use["outputs"][0]["data"]["text/html"])
    wanted = []
    for row in re.findall(r"<tr.*?</tr>", table, flags=re.DOTALL)[1:]:
        texts = re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row)
        wanted.append([re.sub("<.*?>", "", text).split() for text in texts])
    readme = (paths.ROOT / "README.md").read_text(encoding="utf-8")
    block = readme.partition("## What to use when")[2].partition("\nK is the")[0]
    rows = [line for line in block.splitlines() if line.startswith("| ")][2:]
    assert [[text.split() for text in row[1:-1].split("|")] for row in rows] == wanted
    shown = (paths.ROOT / papers.report.ARENA).read_bytes()
    assert shown == papers.report.picture_of_arena(), "old: run `make report`"


def test_bars_are_as_long_as_shares_of_claims_and_say_their_numbers():
    outcome = ["not tested"] * 5 + ["agrees"] * 3 + ["partly", "disagrees"]
    claims = pd.DataFrame({"paper": "flt", "outcome": outcome})
    other = pd.DataFrame({"paper": ["mthfl"], "outcome": ["agrees"]})
    svg, said = papers.claim_bars(pd.concat([other, claims]))
    assert said == (
        "Claims that agree, agree partly, disagree, are not tested: "
        "FLT 3, 1, 1, 5; MT-HFL 1, 0, 0, 0"
    )
    widths = re.findall(r'width="([\d.]+)" height="26" fill="(.+?)"', svg)
    fills = [papers.picture.FILLS[word] for word in papers.picture.OUTCOMES]
    shares = [3, 1, 1, 5]
    expected = [(53.0 * n, fill) for n, fill in zip(shares, fills, strict=True)]
    expected.append((530.0, fills[0]))  # a paper of one outcome has one whole bar
    assert [(float(width), fill) for width, fill in widths] == expected
    assert ElementTree.fromstring(svg).tag.endswith("svg")


def test_tables_of_the_report_have_a_line_per_method():
    columns = ["method", "measure", "printed", "text", "code"]
    rows = [["A", "accuracy", "9", "8", "–"], ["A", "ARI", "1", "–", "–"]]
    table = pd.DataFrame([*rows, ["B", "accuracy", "7", "–", "–"]], columns=columns)
    wide = papers.report._wide(table)
    heads = ["accuracy<br>printed", "accuracy<br>text", "ARI<br>printed"]
    assert list(wide) == ["method", *heads, "ARI<br>text"]
    assert wide.to_numpy().tolist() == [
        ["A", "9", "8", "1", "–"],
        ["B", "7", "–", "", ""],
    ]
    level = table.iloc[[0, 2]].assign(rounds=["50", "50"])
    level = level[["method", "rounds", *columns[1:]]]
    wide = papers.report._wide(level)  # methods side by side, settings below each other
    assert list(wide) == [
        "rounds",
        "A<br>printed",
        "A<br>text",
        "B<br>printed",
        "B<br>text",
    ]


def test_a_printed_table_without_methods_stays_one_table():
    columns = ["data", "method", "measure", "printed"]
    rows = [["MNIST", "A", "samples", "9"], ["PACS", "A", "samples", "8"]]
    table = pd.DataFrame(rows, columns=columns)
    [one] = papers.report._by_head(table.drop(columns="method"))
    assert one.splitlines()[0] == "| data | printed |"
    assert one.splitlines()[2:] == ["| MNIST | 9 |", "| PACS | 8 |"]
    mnist, _, pacs, _ = papers.report._by_head(table)
    assert (mnist, pacs) == ("**MNIST**", "**PACS**")


def test_wide_tables_of_the_report_come_in_parts(monkeypatch):
    monkeypatch.setattr(papers.report, "MOST", 4)
    numbers = [["9", "8", "1", "2"], ["7", "6", "", ""]]
    names = ["low<br>printed", "low<br>text", "ARI<br>printed", "ARI<br>text"]
    table = pd.DataFrame(numbers, columns=names)
    table.insert(0, "method", ["A", "B"])
    low, ari = papers.report._narrow(table)
    assert low.splitlines()[0] == "| method | low<br>printed | low<br>text |"
    assert ari.splitlines()[2:] == ["| A | 1 | 2 |"]  # the paper prints no ARI of B
    assert papers.report._narrow(table[["method", *names[:2]]]) == [low]


def test_rank_agreement_by_hand(monkeypatch):
    """Means over seeds decide rho; a row as run takes the place of its written one; the
    farthest rows are named.
    """
    printed = {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}
    ours = {
        "as_written": {"a": (4, 3), "b": (3, 1), "c": (2, 2), "d": (1, 4)},
        "as_run": {"d": (0.5,)},
    }

    def measured(results, *_):
        about = {"dataset": "pacs", "setting": "", "metric": "avg_accuracy"}
        cells = [
            (name, variant, ours[variant].get(name, ()))
            for name in printed
            for variant in ours
        ]
        return pd.DataFrame(
            about
            | {
                "method": name,
                "variant": variant,
                "number": printed[name],
                "mean": pd.Series(own[results.seed]).mean(),
            }
            for name, variant, own in cells
        )

    def only(seed=slice(None), kind=None):
        seed = seed if isinstance(seed, slice) else slice(seed, seed + 1)
        return SimpleNamespace(
            seed=seed, where=only, runs=pd.DataFrame({"seed": [0, 1]})
        )

    monkeypatch.setattr(sys.modules["fltnb.papers.counts"], "measured", measured)
    found = papers.rank_agreement(only(), "emdcfl", "T7", least=4)
    assert found["following"].tolist() == ["text", "code where run"]
    # means 3.5, 2, 2, 2.5 against 4, 3, 2, 1, with d as run 3.5, 2, 2, 0.5; seed 1: 3,
    # 1, 2, 4, with no d as run
    expected = [[1.5 / 22.5**0.5, -0.4, 1.0], [4.5 / 22.5**0.5, 1.0, 1.0]]
    np.testing.assert_allclose(found[["rho", "lowest", "highest"]], expected)
    assert found["differ most"].tolist() == ["d +2, b -1.5, c -0.5", "b -0.5, c +0.5"]
    assert papers.rank_agreement(
        only(), "emdcfl", "T7"
    ).empty  # four methods are too few
    monkeypatch.undo()  # FLT prints no worst client
    assert papers.rank_agreement(fl.results("01"), "flt", "T1").empty
