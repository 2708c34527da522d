"""The report on results made by hand: what is counted as what, and that nothing is claimed where nothing was run."""

import json
import re
from html.parser import HTMLParser

import matplotlib as mpl
import nbformat
import numpy as np
import pandas as pd
import pytest

from fltnb import __main__ as command_line
from fltnb import experiments, paths, published, report
from fltnb.errors import FltnbError
from fltnb.report import reproduced

mpl.use("Agg")

OFFICIAL = "official release"
NOTEBOOK = paths.ROOT / "notebooks" / "99_report.ipynb"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty project: no results, no figures."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    return tmp_path


def run_rows(method, accuracy, *, dataset="mnist", model="mlp", variant="as_written", seed=0, note="", key=None):
    """Tidy rows of one run; the test accuracy as given, the variance always 50."""
    labels = {"experiment": "x", "dataset": dataset, "model": model, "method": method, "variant": variant}
    labels |= {"note": note, "rule": "", "momentum": 0.0, "seed": seed, "split": "test", "stopped": ""}
    labels["key"] = key or f"{dataset}-{model}-{method}-{variant}-{note}-{seed}"
    return [
        labels | {"metric": m, "value": v, "n": 10_000}
        for m, v in (("accuracy", accuracy), ("accuracy_variance", 50.0))
    ]


def write(root, profile, notebook, rows, curves=None, origin=OFFICIAL, stopped="", **settings):
    given = {"M": 100, "rho": 0.2, "E": 1, "T": 100} | settings
    where = root / "results" / profile
    where.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(where / f"{notebook}.csv", index=False)
    columns = ["dataset", "method", "variant", "note", "seed", "round", "split", "accuracy", "variance"]
    pd.DataFrame(curves or [], columns=columns).to_csv(where / f"{notebook}_curves.csv", index=False)
    about = {"seconds": 60.0, "commit": "abc", "hardware": "a machine", "data_origin": origin, "stopped": stopped}
    about["finished"] = "2026-01-02T03:04:05Z"
    record = {
        row["key"]: {
            "settings": {
                "federation": {"n_clients": given["M"]},
                "participation": given["rho"],
                "local_epochs": given["E"],
                "rounds": given["T"],
                "seed": row["seed"],
            },
            "labels": {"dataset": row["dataset"]},
            "provenance": about,
        }
        for row in rows
    }
    (where / f"{notebook}_provenance.json").write_text(json.dumps(record), encoding="utf-8")


def write_claims(root, profile, notebook, *checks):
    where = root / "results" / profile
    where.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame(checks, columns=["claim", "verdict", "evidence"])
    table.assign(sentence="It is so").to_csv(where / f"{notebook}_claims.csv", index=False)


def one(rows, /, **wanted):
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    assert len(rows) == 1
    return rows.iloc[0]


# ---------------------------------------------------------------- numbers


def test_nothing_stored_is_no_error_and_nothing_run(root):
    table = report.numbers()
    assert len(published.numbers("flt")) == 340
    assert len(table) == sum(len(published.numbers(paper)) for paper in dict.fromkeys(table["paper"])) > 340
    assert set(table["status"]) == {"not run"}
    totals = report.counts(table)
    assert (totals["reproduced"] == 0).all() and (totals["not run"] == totals["printed"]).all()
    assert one(totals, paper="flt", table="T5", variant="as_written")["printed"] == 48
    assert set(report.claims()["verdict"]) == {"not tested"}
    assert report.provenance().empty and report.figures() == {}
    assert report.missing(table)["numbers"].sum() == 2 * len(table)
    assert report.write().name == "report.html"


def test_a_number_is_found_in_every_table_that_prints_it(root):
    write(root, "small", "01_scenario1", run_rows("fedavg", 83.0) + run_rows("fedavg", 84.0, seed=1))
    found = report.numbers("flt").query("status != 'not run'")
    assert set(found["table"]) == {"T1", "T7"}  # and not T2, where FedAvg on MNIST is another experiment
    run = one(found, table="T1", metric="accuracy")
    assert run["printed"] == "82.73 ± 0.38"
    assert run["mean"] == 83.5 and run["seeds"] == 2 and run["difference"] == pytest.approx(0.77)
    assert (run["status"], run["profile"], run["departs"]) == ("reproduced", "small", "")
    totals = report.counts(report.numbers("flt"))
    row = one(totals, table="T1", variant="as_written")
    assert row[["reproduced", "accuracies", "within printed error", "within 1 point", "within 3 points"]].tolist() == [
        *(2, 1, 0, 1, 1)
    ]
    assert (row["variances"], row["within 25 %"]) == (1, 1)  # 50 for 44.65
    # Table 7 repeats the test columns of Table 1: together they are counted once
    assert one(totals, table="all", variant="as_written")["reproduced"] == 2
    assert one(totals, table="all", variant="as_run")["reproduced"] == 0


def test_single_switches_are_not_the_row_of_the_table(root):
    write(root, "small", "01_scenario1", run_rows("fedavg", 99.0, note="rule = participants"))
    assert set(report.numbers("flt")["status"]) == {"not run"}


def test_other_settings_are_named_and_not_counted_as_reproduced(root):
    write(
        root,
        "small",
        "01_scenario1",
        run_rows("fedavg", 82.7) + run_rows("fedavg", 82.7, variant="as_run"),
        T=50,
        E=5,
    )
    table = report.numbers("flt")
    described = one(table, table="T1", metric="accuracy", dataset="mnist", method="fedavg", variant="as_written")
    assert (described["status"], described["departs"]) == ("other setting", "E = 5 for 1, T = 50 for 100")
    other = one(table, table="T1", metric="accuracy", dataset="mnist", method="fedavg", variant="as_run")
    assert other["departs"] == "T = 50 for 100"  # E is part of what that variant is
    row = one(report.counts(table), table="T1", variant="as_written")
    assert (row["reproduced"], row["run otherwise"], row["not run"]) == (0, 2, 22)
    assert "run in another setting: E = 5 for 1, T = 50 for 100" in set(report.missing(table)["why"])


def test_stopped_runs_are_not_reproductions(root):
    write(root, "small", "01_scenario1", run_rows("fedavg", 82.7), stopped="loss is not finite")
    run = one(report.numbers("flt"), table="T1", metric="accuracy", variant="as_written")
    assert (run["status"], run["departs"]) == ("other setting", "a run stopped early")


def test_stand_ins_are_named_and_the_papers_own_set_is_none(root):
    scenario4 = {"M": 2400, "E": 5}
    write(root, "small", "04_scenario4_structured", run_rows("flt", 80.0, dataset="emnist_bymerge"), **scenario4)
    write(root, "paper", "04_scenario4_structured", run_rows("flt", 86.0, dataset="emnist_balanced"), **scenario4)
    table = report.numbers("flt").query("table == 'T4' and method == 'flt' and metric == 'accuracy' and model == 'mlp'")
    small, paper = (one(table, profile=profile) for profile in ("small", "paper"))
    assert (small["status"], small["data"]) == ("stand-in data", "emnist_bymerge")
    assert paper["status"] == "reproduced"
    assert one(report.preferred(table), variant="as_written")["profile"] == "paper"
    shown = report.beside(table, "flt", "T4")
    assert one(shown, profile="small")["remarks"] == "stand-in data: emnist_bymerge"
    assert one(shown, profile="paper")["as_written"] == "86.00 (1 seed)"


def test_models_of_a_table_are_told_apart(root):
    rows = run_rows("flt", 70.0, dataset="femnist") + run_rows("flt", 80.0, dataset="femnist", model="leaf_cnn")
    write(root, "paper", "03_scenario3_femnist", rows, M=200, E=5, T=100)
    found = report.numbers("flt").query("table == 'T3' and status != 'not run' and metric == 'accuracy'")
    assert found.set_index("model")["mean"].to_dict() == {"mlp": 70.0, "cnn": 80.0}
    assert found.set_index("model")["departs"].to_dict() == {"mlp": "T = 100 for 1000", "cnn": ""}


def test_ablation_reads_each_line_at_both_numbers_of_rounds(root):
    note = "M = 500, rho = 0.5, E = 1"
    curve = {"dataset": "cifar10", "method": "fedsem", "variant": "as_written", "note": note, "split": "test"}
    curves = [
        curve | {"seed": 0, "round": r, "accuracy": a, "variance": 1.0} for r, a in ((50, 70.0), (75, 0), (100, 76.0))
    ]
    write(root, "small", "05_ablation", run_rows("fedsem", 76.0, dataset="cifar10", note=note), curves)
    found = report.numbers("flt").query("status != 'not run'")
    lines = {json.loads(row.params)["T"]: (row.printed, row.mean) for row in found.itertuples()}
    assert lines == {50: ("72.26 ± 0.45", 70.0), 100: ("76.82 ± 0.42", 76.0)}
    shown = report.beside(report.numbers("flt"), "flt", "T5")
    assert len(shown) == 48 and (shown["as_written"] != "not run").sum() == 2


def test_demo_counts_only_where_there_is_nothing_else_and_is_called_toy(root):
    write(root, "demo", "01_scenario1", run_rows("fedavg", 80.0, dataset="digits"), M=25)
    table = report.numbers("flt")
    toys = table[(table["table"] == "T1") & (table["status"] != "not run")]
    assert set(toys["dataset"]) == {"mnist", "cifar10"} and set(toys["status"]) == {"toy scale"}
    assert (report.counts(table)["reproduced"] == 0).all()
    assert set(report.provenance()["profile"]) == {"demo"}
    write(root, "small", "02_scenario2", run_rows("fedavg", 86.0))
    table = report.numbers("flt")
    assert "toy scale" not in set(table["status"])
    assert set(report.provenance()["profile"]) == {"small"}


def test_why_something_is_missing(root):
    gaps = report.missing(report.numbers("flt"))
    mnist = one(gaps, table="T1", dataset="mnist", variant="as_written")
    assert "profile small has it" in mnist["why"] and mnist["numbers"] == 12
    ablation = gaps[(gaps["table"] == "T5") & (gaps["variant"] == "as_written")]
    asked = {spec.note for spec in experiments.specs("05_ablation", "small")}
    assert ablation.loc[ablation["why"].str.contains("small"), "numbers"].sum() == 2 * 2 * len(asked)  # T; two methods
    assert one(gaps, table="T5", variant="as_run")["why"].startswith("no profile runs the published variant")


def test_tables_with_a_notebook_exist():
    for paper, books in report.NOTEBOOKS.items():
        for tables in books.values():
            assert all(len(published.numbers(paper, table)) for table in tables)
    everything = {table for tables in report.NOTEBOOKS["flt"].values() for table in tables}
    assert everything == set(published.numbers("flt")["table"])


def test_what_no_run_gives_is_told_apart_from_what_nobody_ran(root):
    """FeSEM: sizes of data sets in Table 1; the profiles that have Tables 2 and 3, whatever they call the network."""
    table = report.numbers("fesem")
    assert set(table["status"]) == {"not run"}
    gaps = report.missing(table).query("variant == 'as_written'")
    assert set(gaps.loc[gaps["table"] == "T1", "why"]) == {
        "its notebook shows it beside what is at hand; it is not counted here"
    }
    assert "profile small has it" in one(gaps, table="T2")["why"] and one(gaps, table="T2")["numbers"] == 56
    assert one(gaps, table="T3")["why"].startswith("only profile paper runs it")


def test_damaged_files_are_named(root):
    write(root, "small", "01_scenario1", run_rows("fedavg", 83.0))
    (root / "results" / "small" / "01_scenario1.csv").write_text("<<<<<<< HEAD\n", encoding="utf-8")
    with pytest.raises(FltnbError, match=r"01_scenario1 .* cannot be read"):
        report.numbers("flt")
    (root / "results" / "small" / "02_scenario2_claims.csv").write_text("", encoding="utf-8")
    with pytest.raises(FltnbError, match=r"results/small/02_scenario2_claims\.csv cannot be read"):
        report.checks()


# ---------------------------------------------------------------- claims


@pytest.mark.parametrize(
    ("small", "paper", "verdict"),
    [
        (("holds", "holds"), (), "holds"),
        (("holds", "does not hold"), (), "mixed"),
        (("does not hold", "not tested"), (), "does not hold"),
        (("holds",), ("does not hold",), "mixed"),
        (("holds",), ("holds", "holds"), "holds"),
        (("not tested",), (), "not tested"),
        (("not tested",), ("holds",), "holds"),
    ],
)
def test_verdicts_over_checks_and_profiles(root, small, paper, verdict):
    write_claims(root, "small", "01_scenario1", *[("flt-t1-1", word, "x") for word in small])
    write_claims(root, "paper", "02_scenario2", *[("flt-t1-1", word, "y") for word in paper])
    write_claims(root, "demo", "01_scenario1", ("flt-t1-1", "does not hold", "toy"))
    if verdict == "not tested":
        verdict = "does not hold (toy scale)"  # then the toy is all there is
    claim = one(report.claims("flt"), id="flt-t1-1")
    assert claim["verdict"] == verdict
    assert all(profile != "demo" for profile, *_ in claim["evidence"]) == ("toy" not in verdict)
    table = report.claim_counts(report.claims("flt"))
    assert one(table, paper="flt")[verdict] == 1
    assert one(table, paper="flt")["not tested"] == len(published.claims("flt")) - 1


def test_reasons_why_a_claim_was_not_tested_are_kept(root):
    write_claims(root, "small", "04_scenario4_structured", ("flt-fig7", "not tested", "the run is too short"))
    claim = one(report.claims("flt"), id="flt-fig7")
    assert claim["verdict"] == "not tested"
    assert claim["evidence"] == [("small", "not tested", "It is so", "the run is too short")]
    row = one(report.evidence(report.claims("flt")), id="flt-fig7")
    assert (row["result"], row["found"]) == ("not tested", "the run is too short")


def test_the_notebook_runs_where_nothing_is_stored(root, monkeypatch, capsys):
    """And the same cells again on a single result."""
    monkeypatch.setenv("FLTNB_PROFILE", "demo")
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    code = "\n\n".join(cell.source for cell in cells if cell.cell_type == "code" and "versions" not in cell.source)
    exec(compile(code, "99_report", "exec"), {})
    assert "No results are stored yet" in capsys.readouterr().out
    write(root, "small", "01_scenario1", run_rows("fedavg", 83.0))
    exec(compile(code, "99_report", "exec"), {})
    assert (root / "figures" / "demo" / "99_agreement.png").exists()


# ---------------------------------------------------------------- the page


class Page(HTMLParser):
    """Collects what a page links to and loads, and checks that its elements are closed in order."""

    VOID = ("meta", "img", "br")

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.sources = [], [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.links += [attrs["href"]] if "href" in attrs else []
        self.sources += [attrs["src"]] if "src" in attrs else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_is_whole_and_needs_nothing_else(root):
    write(root, "small", "01_scenario1", run_rows("fedavg", 83.0), origin="copies <not> official")
    write_claims(
        root, "small", "01_scenario1", ("flt-t1-1", "holds", "0.0 <b>apart</b>"), ("", "does not hold", "ours")
    )
    figure = root / "figures" / "small" / "01_picture.png"
    figure.parent.mkdir(parents=True)
    figure.write_bytes(b"\x89PNG picture")
    (root / "figures" / "demo").mkdir()
    (root / "figures" / "demo" / "01_toy.png").write_bytes(b"toy")
    (root / "figures" / "demo" / "02_toy.png").write_bytes(b"toy")
    text = report.write().read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    assert page.links and all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert len(page.sources) == 2 and all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert "http" not in re.sub(r"base64,[\w+/=]+", "", text) and "<script" not in text
    assert "copies &lt;not&gt; official" in text and "0.0 &lt;b&gt;apart" in text
    assert "83.00 (1 seed)" in text and "82.73 ± 0.38" in text
    assert "prefers-color-scheme: dark" in text and "width=device-width" in text
    assert "Notebook 02, profile demo, toy scale" in text
    assert str(root) not in text  # no path of one machine


def test_command_line(root, capsys):
    assert command_line.main(["report"]) == 0
    assert capsys.readouterr().out == "The report is in results/report.html\n"
    assert command_line.main(["report", "--out", str(root / "elsewhere.html")]) == 0
    assert (root / "elsewhere.html").stat().st_size > 10_000


def test_best_status_comes_first():
    rows = [("other setting", "paper"), ("reproduced", "small"), ("stand-in data", "paper")]
    base = dict.fromkeys([*reproduced.NUMBER], "") | {"variant": "as_written"}
    table = pd.DataFrame([base | {"status": status, "profile": profile} for status, profile in rows])
    assert report.preferred(table)[["status", "profile"]].to_numpy().tolist() == [["reproduced", "small"]]


def test_a_notebook_that_names_its_numbers_itself(root, monkeypatch):
    """Rows count for the printed number whose params they match, and carry their own departure."""
    from fltnb.analysis import mthfl_similarity

    fixed = {"model": "", "method": "mthfl", "split": "", "metric": "similarity", "variant": "as_written"}
    fixed |= {"origin": "", "data": "cifar10", "spread": 0.0, "seeds": 1}
    near = {"dataset": "cifar10", "setting": "similarity_matrix", "match": {"user_i": 1, "user_j": 2}}
    rows = [fixed | near | {"mean": 0.95, "departs": ""}]
    rows += [fixed | near | {"match": {"user_i": 1, "user_j": 4}, "mean": 0.4, "departs": "p = 9"}]
    rows += [fixed | near | {"setting": "elsewhere", "match": {"user_i": 1, "user_j": 3}, "mean": 0.4, "departs": ""}]
    monkeypatch.setattr(mthfl_similarity, "reproduced", lambda notebook: {"small": pd.DataFrame(rows)})
    table = report.numbers("mthfl")
    ran = table[table["status"] != "not run"]
    assert ran["status"].tolist() == ["reproduced", "other setting"]
    assert [json.loads(params)["user_j"] for params in ran["params"]] == [2, 4]
    np.testing.assert_allclose(ran["difference"], [0.95 - 0.97, 0.4 - 0.31])


def emdcfl_rows(dataset, method, note="", model="mlp_plain", variant="as_written", **values):
    """Rows of tidy results of one run; ``values`` are test accuracy, worst and ARI."""
    where = {"accuracy": "test", "worst": "test", "ari": ""}
    base = {"experiment": "", "dataset": dataset, "model": model, "method": method, "variant": variant, "note": note}
    base |= {"rule": "", "momentum": 0.9, "seed": 0, "n": 1, "key": f"{dataset}{method}{note}", "stopped": ""}
    return [base | {"split": where[metric], "metric": metric, "value": value} for metric, value in values.items()]


def test_emdcfls_tables(root):
    """A run counts for the table of its version and participation, with what it departs in said."""
    rows = emdcfl_rows("rotated_mnist", "emdcfl", accuracy=95.0, worst=93.0, ari=1.0)
    rows += emdcfl_rows("rotated_mnist_two", "emdcfl", accuracy=94.0, ari=0.5)
    rows += emdcfl_rows("rotated_mnist", "emdcfl", note="10 of 40 clients", accuracy=90.0)
    rows += emdcfl_rows("rotated_mnist", "emdcfl", note="4 times the learning rate", accuracy=1.0)
    federation = {"samples_per_client": 500}
    settings = {"model": "mlp_plain", "rounds": 3, "local_epochs": 10, "federation": federation}
    entry = {"settings": settings, "provenance": {"data_origin": "official"}, "labels": {"dataset": ""}}
    where = paths.results("small")
    where.mkdir(parents=True, exist_ok=True)
    name = "11_emdcfl_rotated"
    pd.DataFrame(rows).to_csv(where / f"{name}.csv", index=False)
    pd.DataFrame(columns=["round", "note"]).to_csv(where / f"{name}_curves.csv", index=False)
    pd.DataFrame(columns=["key", "test", "probe", "true_cluster"]).to_csv(where / f"{name}_clients.csv", index=False)
    record = {row["key"]: entry for row in rows}
    (where / f"{name}_provenance.json").write_text(json.dumps(record), encoding="utf-8")
    table = report.numbers("emdcfl")
    ran = table[table["status"] != "not run"]
    assert set(ran["status"]) == {"other setting"}
    assert set(ran["departs"]) == {"mlp_plain, 500 images a client, T = 3 for 10"}
    found = ran.set_index(["table", "setting", "metric"])["mean"].to_dict()
    assert found == {
        ("T1", "rotated", "avg_accuracy"): 95.0,
        ("T1", "rotated", "worst_accuracy"): 93.0,
        ("T1", "rotated", "ari"): 1.0,
        ("T10", "rotated_two", "avg_accuracy"): 94.0,
        ("T10", "rotated_two", "ari"): 0.5,
        ("T6", "partial_participation", "avg_accuracy"): 90.0,
    }
    assert all(ran["method"] == "emdcfl") and (ran["dataset"] == "rotated_mnist").all()


def test_emdcfls_backdoor_counts_the_targets(root):
    """Tables 3 and 8 print means over cluster 0, on clean images and on triggered ones."""
    rows = emdcfl_rows("backdoor_mnist", "fedavg", model="emdcfl_cnn", accuracy=50.0)
    settings = {"model": "emdcfl_cnn", "rounds": 10, "local_epochs": 10, "federation": {"samples_per_client": None}}
    entry = {"settings": settings, "provenance": {"data_origin": "official"}, "labels": {"dataset": ""}}
    where, name = paths.results("small"), "13_emdcfl_backdoor"
    where.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(where / f"{name}.csv", index=False)
    pd.DataFrame(columns=["round", "note"]).to_csv(where / f"{name}_curves.csv", index=False)
    key = rows[0]["key"]
    clients = [
        {"key": key, "true_cluster": c, "test": t, "probe": p} for c, t, p in ((0, 90, 60), (0, 80, 40), (1, 9, 9))
    ]
    pd.DataFrame(clients).to_csv(where / f"{name}_clients.csv", index=False)
    (where / f"{name}_provenance.json").write_text(json.dumps({key: entry}), encoding="utf-8")
    table = report.numbers("emdcfl")
    ran = table[table["status"] == "reproduced"]  # clean figures of Table 8 only: FedAvg is no row of Table 3
    assert dict(zip(ran["metric"], ran["mean"], strict=True)) == {"clean_accuracy": 85.0, "backdoor_accuracy": 50.0}
    assert set(ran["table"]) == {"T8"}
