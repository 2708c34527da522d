"""The notebooks keep the rules, the rules notice what they should, and the helpers
inside notebooks.
"""

import nbformat
import numpy as np
import pytest
from nbformat import v4
from notebook_rules import is_page, problems, visible_lines

from fltnb import notebook as helpers
from fltnb import paths

NOTEBOOKS = sorted((paths.ROOT / "notebooks").glob("[0-9]*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_notebook_keeps_the_rules(file):
    assert problems(file) == []


def test_visible_code_stays_short_over_all_pages():
    notebooks = [nbformat.read(file, as_version=4) for file in NOTEBOOKS]
    assert sum(visible_lines(one) for one in notebooks if is_page(one)) <= 2_500


def code(id, source="1", tags=(), hidden=False):
    """Return a code cell of a page."""
    metadata = {"tags": [*tags, *(["hide-input"] if hidden else [])]}
    if hidden:
        metadata["jupyter"] = {"source_hidden": True}
        source = f"# {id}\n{source}"
    output = v4.new_output("stream", text=f"{id}\n")
    return v4.new_code_cell(source, id=id, metadata=metadata, outputs=[output])


def good():
    """Return a page that keeps all rules."""
    parameters = "rounds = 3  # T\nmethods = ['a']  # rows\ncompute = False  # or True"
    cells = [
        v4.new_markdown_cell("# Title", id="question"),
        code("top", tags=["nbval-ignore-output"], hidden=True),
        v4.new_markdown_cell("What is printed.", id="legend"),
        code("parameters", parameters, tags=["parameters"]),
        code("checked", hidden=True),
        code("experiment", tags=["experiment"]),
        code("results", hidden=True),
        v4.new_markdown_cell("What differs, and why.", id="rest"),
        code("provenance", hidden=True),
        code("versions", tags=["nbval-ignore-output"], hidden=True),
    ]
    codes = [cell for cell in cells if cell.cell_type == "code"]
    for count, cell in enumerate(codes, 1):
        cell.execution_count = count
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def check(notebook, tmp_path):
    file = tmp_path / "00_x.ipynb"
    nbformat.write(notebook, file)
    return problems(file)


def edit(cell, **change):
    return lambda notebook: notebook.cells[cell].update(**change)


def mark(cell, **change):
    return lambda notebook: notebook.cells[cell].metadata.update(**change)


def all_code(**change):
    def changed(notebook):
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.update(change)

    return changed


def output(text, **more):
    return [v4.new_output("stream", text=text, **more)]


BAD = {
    "0 cells are tagged 'parameters'": mark(3, tags=[]),
    "2 cells are tagged 'parameters'": mark(5, tags=["parameters"]),
    "the parameters cell is no Python": edit(3, source="rounds = "),
    "papermill cannot read a, n": edit(3, source="a, n = 1, 2\ncompute = False"),
    "no parameter 'compute = False'": edit(3, source="compute = True"),
    "not run once each from top to bottom": edit(5, execution_count=7),
    "run once each from top to bottom: [1, 2, 3, None": edit(5, execution_count=None),
    "holds an error": edit(
        5, outputs=[v4.new_output("error", ename="E", evalue="", traceback=[])]
    ),
    "holds no output": all_code(outputs=[]),
    "keeps a warning or a progress bar": edit(5, outputs=output("5%", name="stderr")),
    "was executed on uncommitted code": edit(9, outputs=output("fltnb  0, 12+changes")),
    "cell experiment shows 26 lines, over 25": edit(5, source="x = 1\n" * 26),
    "has 907 words, over 900": edit(7, source="word " * 902),
    "cell rest says 'as run'": edit(7, source="The row as run."),
    "has no cell 'legend'": edit(2, id="words"),
    "its first cells are not in the order": lambda nb: nb.cells.insert(
        2, nb.cells.pop(3)
    ),
    "cell results is folded in one way only": mark(6, tags=[]),
    "cell results is folded and does not say": edit(6, source="page.fill()"),
    "cell experiment is folded, and it is of": mark(
        5, tags=["experiment", "hide-input"], jupyter={"source_hidden": True}
    ),
    "tag it nbval-ignore-output": mark(1, tags=["hide-input"]),
    "what stands at the top is not what": edit(
        1, outputs=[v4.new_output("display_data", data={"text/html": "<b>9</b>"})]
    ),
    "cell 7 holds a path of one machine: /home/a": edit(7, source="see `/home/ann/x`"),
    "cell 5 holds a path of one machine: C:\\U": edit(5, source=r'x = r"C:\Users\ann"'),
    "cell 8 holds a path of one machine: /tmp/i": edit(
        8, outputs=output("'/tmp/ipykernel_1/2.py'")
    ),
    "metadata that only makes noise (papermill)": lambda nb: nb.metadata.update(
        papermill={"input_path": "x"}
    ),
    "metadata that only makes noise (execution)": mark(3, execution={"a": "b"}),
    "the kernel is not python3": lambda nb: nb.metadata.kernelspec.update(name="mine"),
    "cell results shows a picture without alt text": edit(
        6, outputs=[v4.new_output("display_data", data={"image/png": "aaaa"})]
    ),
    "cell versions binds apart, which cell experiment reads": lambda nb: [
        nb.cells[place].update(source=source)
        for place, source in {
            4: "# defined\napart = print",
            5: "apart(1)",
            9: "# again\ndef apart(): pass",
        }.items()
    ],
    "bytes, over 400000": edit(7, source="x" * 400_001),
}


def test_a_good_page_has_no_problem(tmp_path):
    assert check(good(), tmp_path) == []


@pytest.mark.parametrize("sentence", BAD)
def test_a_bad_page_is_noticed(tmp_path, sentence):
    notebook = good()
    BAD[sentence](notebook)
    found = check(notebook, tmp_path)
    assert any(sentence in problem for problem in found), found


def test_addresses_relative_paths_and_pictures_are_no_paths_of_a_machine(tmp_path):
    notebook = good()
    notebook.cells[7].source = (
        "https://example.org/home/x results/tmp/x a/home/b 3/4 see http://a.b/tmp/c. "
        "C: a"
    )
    about = {"image/png": {"alt": "nothing"}}
    picture = v4.new_output("display_data", {"image/png": "/tmp/aaaa"}, metadata=about)
    notebook.cells[5].outputs = [picture]
    assert check(notebook, tmp_path) == []


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
