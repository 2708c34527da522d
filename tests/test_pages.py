"""What pages share: parameters, tables, pictures and the first screen."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from toys import refused

from fltnb import notebook as page
from fltnb import paths
from fltnb.notebook.grids import (
    check_experiments,
    code_cells,
    grids,
    notebook_file,
    profile_values,
)
from fltnb.notebook.parameters import assigned, check_needed, checked, injected

OWN = {
    "datasets": ["mnist", "cifar10"],
    "seeds": [0, 1],
    "rounds": 100,
    "local_epochs": {"mnist": 1, "cifar10": {"as_written": 5, "as_run": 3}},
    "lr": 0.01,
    "device": "auto",
    "compute": False,
    "images": None,
    "users": {"mnist": [5, 3], "cifar10": [5, 5]},
}


def test_a_setting_is_found_by_data_set_and_variant():
    epochs = OWN["local_epochs"]
    assert page.of(epochs, "cifar10", "as_run") == 3
    assert page.of(epochs, "mnist", "as_run") == 1
    assert page.of(0.01, "mnist") == 0.01
    refused("There is no entry for 'digits'", page.of, epochs, "digits")


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("datasets", "mnist,cifar10", ["mnist", "cifar10"]),
        ("datasets", '["mnist"]', ["mnist"]),
        ("datasets", "mnist", ["mnist"]),
        ("seeds", 3, [3]),
        ("seeds", "0,1,2", [0, 1, 2]),
        ("local_epochs", 2, 2),
        ("local_epochs", '{"mnist": 2, "cifar10": 3}', {"mnist": 2, "cifar10": 3}),
        ("lr", 1, 1),
        ("compute", "True", True),
        ("images", 500, 500),
        ("images", '{"mnist": null, "cifar10": 5}', {"mnist": None, "cifar10": 5}),
        ("device", "cpu", "cpu"),
        ("users", "[4, 4]", [4, 4]),
    ],
)
def test_what_papermill_hands_over_becomes_a_value(name, given, value):
    assert checked(OWN, {name: given}) == {name: value}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"round": 3}, "There is no parameter round: you may mean rounds."),
        ({"zzz": 3}, "There is no parameter zzz: choose from datasets, seeds"),
        ({"rounds": "many"}, "rounds cannot be 'many': give a whole number, such as"),
        ({"rounds": True}, "rounds cannot be True"),
        ({"rounds": 1.5}, "rounds cannot be 1.5"),
        ({"rounds": {"mnist": 3}}, "rounds cannot be {'mnist': 3}"),
        ({"seeds": "a"}, "seeds cannot be ['a']: give a list of a whole number"),
        ({"users": 30}, "users cannot be 30"),
        ({"compute": 1}, "compute cannot be 1: give True or False"),
        ({"datasets": "digits"}, "local_epochs, users have no entry for 'digits'"),
        ({"local_epochs": {"mnist": 2}}, "local_epochs has no entry for 'cifar10'"),
    ],
)
def test_a_wrong_parameter_is_one_sentence(given, sentence):
    refused(re.escape(sentence), checked, OWN, given)
    refused("demo.yaml: ", checked, OWN, given, "demo.yaml")


def test_papermill_s_cell_is_found_among_those_that_ran():
    cells = ["", "import x", "n = 3\ndata = ['a']", "# Parameters\nn = '4'", "run()"]
    own, given = map(assigned, injected(cells))
    assert own == {"n": 3, "data": ["a"]} and given == {"n": "4"}
    assert injected(cells[:3]) == ("", "")
    namespace = {"In": cells, "n": "4"}
    page.Page("01").parameters(namespace)
    assert namespace["n"] == 4


CELL = """datasets = ["people"]  # the paper: "femnist"
methods = ["fedavg", "fesem_4"]
variants = ["as_written", "as_run"]
model = {"people": "mlp", "other": "lenet"}
linkages = ["ward"]"""


def papermill_gives(given, cell=CELL, **needed):
    """Read parameters as the cell below the parameters does."""
    namespace = {"In": [cell, f"# Parameters\n{given}"]}
    page.Page("01").parameters(namespace, **needed)
    return namespace


def test_names_that_a_notebook_does_not_know_are_refused():
    known = 'methods = ["fesem_5"]\ndatasets = ["femnist"]\nlinkages = ["single"]'
    assert papermill_gives(known)["methods"] == ["fesem_5"]
    refused("the unknown 'mnist'", papermill_gives, 'datasets = ["mnist"]')
    images = CELL.replace('["people"]', '["mnist", "cifar10"]')
    assert papermill_gives('datasets = ["fashion_mnist"]', cell=images)
    wrong = {
        'datasets = ["peple"]': "datasets has the unknown 'peple': choose from people",
        'methods = ["fedavg", "fedavgg"]': "the unknown 'fedavgg': choose from fedavg",
        'methods = ["zzz"]': "the unknown 'zzz': choose from fedavg, fesem_4",
        'methods = ["fesem_4x"]': "the unknown 'fesem_4x'",
        'variants = ["as_writen"]': "the unknown 'as_writen': choose from as_written",
    }
    for given, sentence in wrong.items():
        refused(sentence, papermill_gives, given)


def test_mistakes_in_an_edited_cell_are_refused():
    def edited(**values):
        page.Page("01").parameters({"In": [CELL, "page.parameters()"], **values})

    edited(methods=["fedavg", "fesem_5", "mine"], models={"a": "mlp"})
    edited(methods=["fedavg_mine"], datasets=["mnisst"])
    refused("seeds must be a list, not 0: write seeds = .0.", edited, seeds=0)
    refused("datasets must be a list, not 'mnist'", edited, datasets="mnist")
    refused("unknown 'fedavgg': you may mean 'fedavg'", edited, methods=["fedavgg"])
    refused("variants has the unknown 'as_writen'", edited, variants=["as_writen"])


def test_what_a_page_compares_must_be_there():
    assert papermill_gives('methods = ["fedavg"]', methods=["fedavg"])
    refused(
        "methods lacks fesem_4, which .* compare with the others: add it",
        papermill_gives,
        'methods = ["fedavg"]',
        methods=["fesem_4"],
    )
    refused("lacks a, b, .*: add them", check_needed, {"x": []}, {"x": ["a", "b"]})
    check_needed({"x": {"a": 1, "b": [2]}}, {"x": ["a", "b"]})
    refused("x lacks b,", check_needed, {"x": {"a": 1}}, {"x": ["a", "b"]})
    refused("x lacks a, b,", check_needed, {"x": 3}, {"x": ["a", "b"]})


def test_a_number_that_is_too_small_is_refused():
    check_needed({"rounds": 25}, {"rounds": 25})
    refused(
        "rounds is 24, too small for .*: give 25 or more",
        check_needed,
        {"rounds": 24},
        {"rounds": 25},
    )


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, ""),
        ({"samples": [6, 100_000]}, "samples_per_client is 100000 but some .* get 57"),
        ({"k": 0}, "k must be from 1 to"),
        ({"n_clusters": 500}, "more clusters .500. than clients .25."),
    ],
)
def test_what_a_late_cell_cannot_compute_is_refused_first(given, sentence):
    own = assigned(code_cells("06")["parameters"][0].source)
    values = own | profile_values("06", "demo", own) | {"compute": True} | given
    if sentence:
        refused(sentence, check_experiments, "06", values)
    else:
        check_experiments("06", values)


def test_a_cell_that_fails_with_the_parameters_is_named():
    values = assigned(code_cells("09")["parameters"][0].source) | {
        "datasets": ["mnits"]
    }
    said = "cell of experiments of notebook 09 fails .KeyError: 'mnits'."
    refused(said, check_experiments, "09", values)


def test_a_page_that_computes_checks_its_experiments(monkeypatch):
    asked = []
    monkeypatch.setattr(page.page, "check_experiments", lambda *a: asked.append(a))
    papermill_gives('model = "mlp"')
    assert not asked
    namespace = papermill_gives("compute = True", cell=CELL + "\ncompute = False")
    assert asked == [("01", namespace)]


def test_another_notebooks_experiments_are_not_checked():
    check_experiments("06", {"samples": [100_000]})


@pytest.mark.parametrize("book", sorted(paths.ROOT.glob("notebooks/[0-9]*.ipynb")))
def test_commands_that_pages_and_profiles_suggest_are_read(book):
    cells = json.loads(book.read_text(encoding="utf-8"))["cells"]
    [own] = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
    told = [
        "".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"
    ]
    for file in paths.ROOT.glob(f"notebooks/profiles/*/{book.name[:2]}.yaml"):
        told.append(file.read_text(encoding="utf-8"))
    for text in told:
        for command in text.split("papermill "):
            given = re.findall(r"-p (\w+) ('[^']*'|[^\s.]+)", command)
            written = [f"{name} = {value.strip(chr(39))!r}" for name, value in given]
            papermills = "\n".join(["# Parameters", *written])
            namespace = {"In": ["".join(own["source"]), papermills]}
            page.Page(book.name[:2]).parameters(namespace)


def lines():
    """Return scores of two methods on one data set."""
    rows = [
        ("fedavg", "printed", 33.29, np.nan, 0, 33.29),
        ("fedavg", "as_written", 36.8, 1.4, 3, 33.29),
        ("oracle", "as_written", 87.9, 2.0, 3, np.nan),
    ]
    names = ["method", "source", "value", "spread", "seeds", "printed"]
    table = pd.DataFrame(rows, columns=names)
    return table.assign(dataset="cifar10", model="lenet", measure="accuracy")


def cells(table):
    """Return the texts of a table's cells, row by row."""
    rows = re.findall(r"<tr.*?</tr>", table.data, flags=re.S)
    found = [re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row) for row in rows]
    return [[re.sub("<.*?>", "", text) for text in row] for row in found]


def test_scores_stand_beside_print_and_are_tinted_by_their_distance():
    table = page.score_table(lines())
    assert cells(table)[1:] == [
        ["", "printed", "text"],
        ["FedAvg", "33.29", "36.8\xa0±\xa01.4"],
        ["Oracle", "", "87.9\xa0±\xa02.0"],
    ]
    body = table.data.partition("<p")[0]
    assert re.findall("background-color:(#[0-9a-f]+)", body) == ["#fbe3c8"]
    assert "over 3 seeds" in table.data
    assert "No tint" not in table.data


def test_what_stands_in_for_the_papers_data_or_network_is_not_tinted():
    table = page.score_table(lines().assign(stands_in=True))
    assert "background-color" not in table.data
    assert "No tint: data or network stand in for the paper's." in table.data
    runs = {"kind": "training", "dataset": "emnist_bymerge", "model": "mlp"}
    runs |= {"method": "fedavg", "variant": "as_written", "accuracy": 55.0}
    found = type("Found", (), {"runs": pd.DataFrame([runs])})
    assert page.scores(found, "flt", "T4")["stands_in"].all()
    runs |= {"dataset": "rotated_mnist", "model": "mlp_plain"}
    found = type("Found", (), {"runs": pd.DataFrame([runs])})
    assert page.scores(found, "emdcfl", "T1")["stands_in"].all()


def test_scores_take_print_and_runs_of_the_same_data_and_method():
    runs = pd.DataFrame(
        {
            "kind": "training",
            "dataset": "cifar10",
            "model": "lenet",
            "method": "fedavg",
            "variant": ["as_written", "as_written", "as_run"],
            "seed": [0, 1, 0],
            "accuracy": [30.0, 32.0, 33.0],
        }
    )
    found = type("Found", (), {"runs": runs})
    got = page.scores(found, "flt", "T1").set_index("source")
    assert got["value"].to_dict() == {"printed": 33.29, "as_written": 31, "as_run": 33}
    assert (got["printed"] == 33.29).all()
    assert got["seeds"].tolist() == [0, 2, 1]
    assert not got["stands_in"].any()
    # a seed without the number is none of its seeds
    runs.loc[1, "accuracy"] = np.nan
    assert page.scores(found, "flt", "T1")["seeds"].tolist() == [0, 1, 1]


def test_dots_draw_every_source_or_say_that_they_cannot():
    given = lines()
    more = [given.tail(1).assign(source=f"variant {one}") for one in "abcd"]
    assert page.dots(pd.concat([given, *more[:3]]), "three more").format == "png"
    refused("these are more: variant a", page.dots, pd.concat([given, *more]), "four")


def test_a_title_says_where_a_method_agrees_with_print():
    either = lines().assign(value=lambda own: own["value"].where(own.index != 1, 34))
    assert page.agreement(lines(), "fedavg").endswith("on CIFAR-10 not at all")
    assert "on CIFAR-10 following the text" in page.agreement(either, "fedavg")
    toys = "Oracle has 88 % on CIFAR-10: data of no paper"
    assert page.agreement(lines(), "oracle") == toys
    both = pd.concat([lines(), lines().tail(1).assign(source="as_run", value=70.0)])
    assert page.agreement(both, "oracle") == (
        "Oracle has 88 % on CIFAR-10 following the text, 70 % on CIFAR-10 following "
        "the authors' code: data of no paper"
    )


def test_a_title_over_curves_follows_the_numbers():
    rows = [("a", "mlp", "flt", 80.0), ("a", "mlp", "oracle", 80.4)]
    rows += [("b", "mlp", "flt", 60.0), ("b", "mlp", "oracle", 90.0)]
    runs = pd.DataFrame(rows, columns=["dataset", "model", "method", "accuracy"])
    runs = runs.assign(variant="as_run")
    near = "FLT ends within 1 point of Oracle in 1 of 2 panels"
    assert page.compared(runs, "flt", "oracle") == f"{near}, 30 points behind it in 1"
    ahead = runs.assign(accuracy=runs["accuracy"].where(runs.index < 3, 55.0))
    assert page.compared(ahead, "flt", "oracle") == f"{near}, 5 points ahead of it in 1"
    same = runs.assign(accuracy=80.0)
    assert page.compared(same, "flt", "oracle") == "FLT ends within 1 point of Oracle"
    behind = same.assign(accuracy=same["accuracy"] - 1.2 * (same["method"] == "flt"))
    assert "ends 1 point behind Oracle" in page.compared(behind, "flt", "oracle")
    assert page.compared(runs, "flt", "fedavg") == "Accuracy against round"


def test_a_table_is_the_same_text_and_keeps_its_looks_inside_the_tags():
    columns = pd.MultiIndex.from_tuples([("here", "a<b"), ("here", "n")])
    index = pd.MultiIndex.from_tuples([("x", "p"), ("x", "q")])
    table = pd.DataFrame([["two words", -0.001], ["", np.nan]], index, columns)
    shown = page.html(table, caption="Why.")
    assert shown.data == page.html(table, caption="Why.").data
    assert cells(shown) == [
        ["", "", "here"],
        ["", "", "a&lt;b", "n"],
        ["x", "p", "two\xa0words", "0.0"],
        ["", "q", "", ""],
    ]
    assert "<style" not in shown.data
    assert 'colspan="2"' in shown.data


def test_verdicts_are_a_table_with_the_printed_number_beside_ours():
    tested = pd.DataFrame(
        {
            "id": "flt-t1-2",
            "claim": "FedAvg is 40 points or more behind FLT",
            "table": "T1",
            "dataset": "cifar10",
            "model": "lenet",
            "variant": ["printed", "as_written", "as_run"],
            "text": ["+53.8", "+18.0", "+51.6"],
            "outcome": ["agrees", "disagrees", "agrees"],
            "tested_on": ["", "printed setting", "printed setting"],
            "seeds": [0, 3, 3],
            "why": "",
        }
    )
    table = page.verdict_table(tested)
    assert cells(table)[1:] == [
        ["claim", "outcome", "tested\xa0on", "CIFAR-10", "text", "code"],
        [
            "FedAvg is 40 points or more behind FLT",
            *("partly\xa0◐", "printed setting, 3 seeds"),
            *("+53.8", "+18.0\xa0✘", "+51.6\xa0✔"),
        ],
    ]
    # where it agrees the first number is enough, else the rest may be the reason
    longer = tested.assign(text=tested["text"] + ", or +1 with another network")
    assert cells(page.verdict_table(longer))[2][3:] == [
        *("+53.8", "+18.0, or +1 with another network ✘", "+51.6\xa0✔"),
    ]
    narrow = cells(page.verdict_table(tested, columns=2))
    assert narrow[1] == ["claim", "outcome", "tested\xa0on", "printed", "here"]
    # nothing was run, and nothing of it is printed: the reasons are left
    none = tested.assign(outcome="not tested", text="", tested_on="", why="no runs")
    assert cells(page.verdict_table(none))[2][:3] == [
        "FedAvg is 40 points or more behind FLT",
        *("not\xa0tested\xa0○", "no\xa0runs"),
    ]


def test_what_runs_do_otherwise_is_said_in_words():
    runs = pd.DataFrame({"rule": ["last_local", ""], "k": [3.0, np.nan]})
    found = type("Found", (), {"runs": runs, "axes": ("rule", "k")})
    got = page.switched(found, {"rule": "absent clients:", "k": "k ="})["switch"]
    assert got.tolist() == [
        "absent clients: last local model, k = 3",
        "as in the table",
    ]


def test_means_over_seeds_by_axes_that_some_runs_lack():
    runs = {"method": "fedavg", "seed": [0, 1, 0], "accuracy": [1.0, 3.0, -0.01]}
    runs = pd.DataFrame(runs | {"rule": [None, None, "last_local"]})
    table = page.mean_table(runs, ("method", "rule", "k"), ("accuracy", "ari"))
    assert cells(table) == [
        ["method", "rule", "k", "accuracy", "ARI"],
        ["FedAvg", "–", "–", "2.0\xa0±\xa01.4", ""],
        ["FedAvg", "last\xa0local\xa0model", "–", "0.0", ""],
    ]
    assert "over 1–2 seeds" in table.data
    wide = cells(page.axis_table(runs, "rule", names={"": "as usual"}))
    assert wide[1:] == [
        ["", "as\xa0usual", "last local model"],
        ["FedAvg", "2.0\xa0±\xa01.4", "0.0"],
    ]
    refused("None of these runs is stored", page.mean_table, runs.iloc[:0])


def test_the_first_screen_is_filled_where_it_was_reserved(monkeypatch):
    places = {}

    def note(shown, display_id):
        places[display_id] = shown

    monkeypatch.setattr("IPython.display.display", note)
    monkeypatch.setattr("IPython.display.update_display", note)
    first = page.Page("01")
    first.reserve()
    assert list(places) == ["01-picture", "01-table", "01-verdicts"]
    first.fill(table="new")
    assert places["01-table"] == "new"
    assert "stand here once" in places["01-picture"].data


@pytest.mark.parametrize("number", ["11", "12", "13", "14"])
def test_the_printed_setting_is_a_file_where_the_cells_are_reduced(number):
    runs = [row.experiment for one in grids(number, "paper") for row in one]
    trainings = [one for one in runs if one.kind == "training"]
    assert len(runs) > 40
    for one in trainings:
        held = one.settings["federation"]
        assert held.get("samples_per_client") is None
        assert one.model in ("emdcfl_cnn", "resnet18")


def test_unknown_notebooks_and_profiles_are_refused():
    assert notebook_file("01").stem == notebook_file("01_scenario1").stem
    refused("There is no notebook '77': choose one of 00", notebook_file, "77")
    said = refused(
        "The profile 'huge' has no parameters", profile_values, "01", "huge", {}
    )
    assert said.endswith(": choose demo or paper.")
    assert profile_values("01", "paper", {}) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rounds: [1", r"profiles/own/01.yaml is not YAML \(while parsing"),
        ("- 1", "profiles/own/01.yaml names no parameters"),
        ("round: 3", "profiles/own/01.yaml: There is no parameter round"),
        ("rounds: many", "profiles/own/01.yaml: The parameter rounds cannot be 'many'"),
    ],
)
def test_profiles_that_cannot_be_used_are_refused(tmp_path, monkeypatch, text, said):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    file = tmp_path / "notebooks" / "profiles" / "own" / "01.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    refused(said, profile_values, "01", "own", {"rounds": 20})


def test_pages_without_experiments_are_refused():
    refused("has no cells of parameters and experiments", code_cells, "99")


def test_the_order_of_methods_names_setting_and_measure_only_where_they_differ():
    row = {"dataset": "mnist", "setting": "rotated", "metric": "worst_accuracy"}
    row |= {"following": "text", "methods": 9, "rho": 0.5, "lowest": 0.4}
    row |= {"highest": 0.6, "differ most": "FedAvg +3"}
    rows = pd.DataFrame([row, row | {"dataset": "pacs"}])
    head, *below = cells(page.order_table(rows))
    assert head == [
        "dataset",
        "following",
        "rho",
        "lowest",
        "highest",
        "differ\xa0most",
    ]
    assert [own[0] for own in below] == ["MNIST", "PACS"]
    rows.loc[1, "metric"] = "avg_accuracy"
    head, *below = cells(page.order_table(rows))
    assert head[1] == "metric"
    said = [own[1].replace("\xa0", " ") for own in below]
    assert said == ["accuracy of the worst client", "average accuracy"]
