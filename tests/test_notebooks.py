"""The notebooks keep the rules, the rules notice what they should, and the helpers inside notebooks."""

import nbformat
import numpy as np
import pandas as pd
import pytest
from nbformat import v4
from notebook_rules import problems
from toys import refused

from fltnb import notebook as helpers
from fltnb import paths

NOTEBOOKS = sorted((paths.ROOT / "notebooks").glob("[0-9]*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_notebook_keeps_the_rules(file):
    assert problems(file) == []


def good():
    """Return a notebook that keeps all rules."""
    parameters = 'profile: str = "stored"  # what to run\nrounds: list[int] = [\n    1,\n    2,\n]  # how long'
    cells = [
        v4.new_markdown_cell("# Title"),
        v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}),
    ]
    for number in range(9):
        output = v4.new_output("stream", text=f"{number}\n")
        cells += [
            v4.new_markdown_cell("Why."),
            v4.new_code_cell(f"print({number})", outputs=[output]),
        ]
    for count, cell in enumerate(
        (cell for cell in cells if cell.cell_type == "code"), 1
    ):
        cell.execution_count = count
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def check(notebook, tmp_path):
    file = tmp_path / "00_x.ipynb"
    nbformat.write(notebook, file)
    return problems(file)


def edit(cell, **change):
    return lambda notebook: notebook.cells[cell].update(**change)


def all_code(**change):
    return lambda notebook: [cell.update(change) for cell in notebook.cells[1::2]]


BAD = {
    "0 cells are tagged 'parameters'": edit(1, metadata={"tags": []}),
    "2 cells are tagged 'parameters'": edit(5, metadata={"tags": ["parameters"]}),
    "is not the first code cell": lambda nb: nb.cells.insert(
        1, v4.new_code_cell("1", execution_count=0)
    ),
    "is no Python": edit(1, source="profile: str = "),
    "is not 'name: type = literal": edit(
        1, source='profile: str = "stored"  # x\nn = 3  # untyped'
    ),
    "has no literal": edit(
        1, source='profile: str = "stored"  # x\nn: int = 3 * k  # derived'
    ),
    "'n' is not 'name: type = literal  # meaning'": edit(
        1, source='profile: str = "stored"  # x\nn: int = 3'
    ),
    "there is no 'profile'": edit(1, source="n: int = 3  # how many"),
    "papermill cannot read n": edit(
        1, source='profile: str = "stored"  # x\nn: int = 3  # n=3 is enough'
    ),
    "not run once each from top to bottom": lambda nb: nb.cells[5].update(
        execution_count=7
    ),
    "with outputs kept": lambda nb: nb.cells[5].update(execution_count=None),
    "holds an error": edit(
        5, outputs=[v4.new_output("error", ename="E", evalue="", traceback=[])]
    ),
    "holds no output": all_code(outputs=[]),
    "keeps a warning or a progress bar": edit(
        5, outputs=[v4.new_output("stream", name="stderr", text="50%")]
    ),
    "was executed on uncommitted code": edit(
        5, outputs=[v4.new_output("stream", text="fltnb  0, 12+changes")]
    ),
    "the default profile is not 'stored'": edit(
        1, source='profile: str = "demo"  # what to run'
    ),
    "the median code cell has 25 lines": all_code(source="x = 1\n" * 25),
    "a code cell has 126 lines": edit(5, source="x = 1\n" * 126),
    "has 11 cells": lambda nb: nb.cells.__delitem__(slice(11, None)),
    "has 46 cells": lambda nb: nb.cells.extend(
        v4.new_markdown_cell("x") for _ in range(26)
    ),
    "does not begin with text": lambda nb: nb.cells.pop(0),
    "more than three code cells follow": lambda nb: (
        nb.cells.pop(6),
        nb.cells.pop(4),
        nb.cells.pop(2),
    ),
    "cell 4 holds a path of one machine: /home/a": edit(4, source="see `/home/ann/x`"),
    "cell 5 holds a path of one machine: C:\\U": edit(5, source=r'x = r"C:\Users\ann"'),
    "cell 7 holds a path of one machine: /tmp/i": edit(
        7,
        outputs=[
            v4.new_output(
                "execute_result",
                data={"text/plain": "'/tmp/ipykernel_1/2.py'"},
                execution_count=4,
            )
        ],
    ),
    "metadata that only makes noise (papermill)": lambda nb: nb.metadata.update(
        papermill={"input_path": "x"}
    ),
    "metadata that only makes noise (execution)": lambda nb: nb.cells[
        3
    ].metadata.update(execution={"a": "b"}),
    "the kernel is not python3": lambda nb: nb.metadata.kernelspec.update(name="mine"),
    "bytes, 1000000 or more": edit(4, source="x" * 1_000_001),
}


@pytest.mark.parametrize("sentence", BAD)
def test_a_bad_notebook_is_noticed(tmp_path, sentence):
    notebook = good()
    BAD[sentence](notebook)
    assert any(sentence in problem for problem in check(notebook, tmp_path)), check(
        notebook, tmp_path
    )


def test_addresses_relative_paths_and_pictures_are_no_paths_of_a_machine(tmp_path):
    notebook = good()
    notebook.cells[
        4
    ].source = "https://example.org/home/x results/tmp/x a/home/b 3/4 see http://a.b/tmp/c. C: a"
    notebook.cells[5].outputs = [
        v4.new_output("display_data", data={"image/png": "/tmp/aaaa"})
    ]
    assert check(notebook, tmp_path) == []


@pytest.fixture(autouse=True)
def no_profile_in_environment(monkeypatch):
    monkeypatch.delenv("FLTNB_PROFILE", raising=False)


def test_environment_takes_the_place_of_the_default_only_and_unknown_profiles_are_refused(
    monkeypatch,
):
    assert helpers.setup("x", "stored").profile == "stored"
    for environment, asked, got in (
        ("", "stored", "stored"),
        ("demo", "stored", "demo"),
        ("demo", "paper", "paper"),
    ):
        monkeypatch.setenv("FLTNB_PROFILE", environment)
        assert helpers.setup("x", asked).profile == got
    for environment, asked in (("", "huge"), ("huge", "stored")):
        monkeypatch.setenv("FLTNB_PROFILE", environment)
        refused(
            "Unknown profile 'huge': choose one of stored, demo, small, paper",
            helpers.setup,
            "x",
            asked,
        )


def test_markdown_table_by_hand():
    columns = {
        "method": ["FLT|a", "Fed\nAvg"],
        "accuracy": [97.985, np.nan],
        "n": [3, 40],
        "gain": [-0.001, 2.0],
    }
    assert helpers.to_markdown(pd.DataFrame(columns)).splitlines() == [
        "| method   |   accuracy |   n |   gain |",
        "|:---------|-----------:|----:|-------:|",
        "| FLT\\|a   |      97.98 |   3 |   0.00 |",
        "| Fed Avg  |            |  40 |   2.00 |",
    ]


def test_markdown_keeps_text_that_looks_like_a_number_and_shows_a_named_index():
    table = pd.DataFrame(
        {("mean", "paper"): ["1e3", "007"]}, index=pd.Index(["a", "b"], name="who")
    )
    lines = helpers.to_markdown(table, digits=0).splitlines()
    assert lines[0].split() == ["|", "who", "|", "mean", "paper", "|"]
    assert lines[2].split() == ["|", "a", "|", "1e3", "|"]
    assert lines[3].split() == ["|", "b", "|", "007", "|"]


def test_shown_table_is_markdown_and_an_empty_one_has_its_header(monkeypatch):
    assert helpers.to_markdown(pd.DataFrame({"a": [], "b": []})).splitlines()[
        0
    ].split() == ["|", "a", "|", "b", "|"]
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    helpers.show_table(pd.DataFrame({"a": [1.26]}), digits=1)
    assert [item._repr_markdown_() for item in shown] == ["|   a |\n|----:|\n| 1.3 |"]


def test_versions_name_what_decides_the_numbers(capsys):
    helpers.versions()
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert {
        "python",
        "torch",
        "umap-learn",
        "scikit-learn",
        "numpy",
        "pot",
        "fltnb",
        "hardware",
    } <= set(lines)
    assert lines["numpy"] == np.__version__
    assert "commit" in lines["fltnb"]
