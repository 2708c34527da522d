"""The site: every page is in its sidebar, formulas convert, links lead somewhere.

It is not built here (``make site`` does, and takes every warning for an error).
"""

import json
import re
import subprocess
import sys

import pandas as pd
import pytest

from fltnb import paths

DOCS = paths.ROOT / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

from formulas import mathml  # noqa: E402
from gallery import outputs  # noqa: E402
from measured import dots, means_of  # noqa: E402
from pages import broken_links, check_outputs  # noqa: E402
from terms import pattern  # noqa: E402

NOTEBOOKS = sorted(paths.ROOT.glob("notebooks/[0-9]*.ipynb"))
PAGES = [*paths.ROOT.glob("*.md"), *DOCS.glob("[a-z]*.md"), *DOCS.glob("[a-z]*/*.md")]
MATH = re.compile(
    r"^```.*?^```|`[^`\n]+`|\$\$(?P<block>.+?)\$\$|\$(?P<line>[^$\n]+?)\$",
    flags=re.S | re.M,
)


def test_every_page_and_notebook_is_in_the_sidebar():
    lists = (DOCS / "toc.md").read_text(encoding="utf-8")
    named = [name.lstrip("/") for name in re.findall(r"<([^>]+)>$", lists, flags=re.M)]
    pages = {page for page in PAGES if page.name != "toc.md"}
    files = [*pages, *NOTEBOOKS]
    wanted = {str(page.relative_to(paths.ROOT).with_suffix("")) for page in files}
    assert len(named) == len(set(named))
    assert set(named) - {"self"} == wanted - {"README"}


def markdown():
    for page in PAGES:
        yield page.name, page.read_text(encoding="utf-8")
    for notebook in NOTEBOOKS:
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                yield notebook.name, "".join(cell["source"])


def test_every_formula_converts():
    formulas = [
        (name, found["block"] or found["line"])
        for name, text in markdown()
        for found in MATH.finditer(text)
        if found["block"] or found["line"]
    ]
    assert len(formulas) > 100
    for name, formula in formulas:
        assert mathml(formula).startswith("<math"), (name, formula)


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        (r"\foo x", r"\$\\foo x\$ has the unknown \\foo"),
        (r"\frac{1", "is broken: its braces do not match"),
        ("x_", "missing super script or subscript error"),
    ],
)
def test_a_broken_formula_is_refused_in_a_sentence(formula, says):
    with pytest.raises(ValueError, match=says):
        mathml(formula)


def test_operators_that_the_converter_does_not_know_are_words():
    assert ">arg<" in mathml(r"\arg\min_k x") and ">min<" in mathml(r"\arg\min_k x")


def test_notebooks_have_their_outputs():
    for notebook in NOTEBOOKS:
        check_outputs(notebook.name, json.loads(notebook.read_text(encoding="utf-8")))


def test_a_notebook_without_outputs_is_refused_with_its_cell():
    shown = {"output_type": "stream", "text": "1"}
    cell = {"cell_type": "code", "source": "1", "execution_count": 1, "outputs": []}
    empty = cell | {"source": "", "execution_count": None}
    check_outputs("a.ipynb", {"cells": [cell | {"outputs": [shown]}, empty]})
    failed = {"outputs": [{"output_type": "error"}]}
    for cells, says in (
        ([cell], "a.ipynb: no cell has an output: make refresh"),
        ([empty, cell | {"execution_count": None}], "a.ipynb: cell 2 was not run"),
        ([cell | failed], "a.ipynb: cell 1 stopped with an error"),
    ):
        with pytest.raises(ValueError, match=says):
            check_outputs("a.ipynb", {"cells": cells})


def test_broken_links_are_told_with_their_page(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="sub/b.html#there"></a><a href="#top"></a>'
        '<a href="https://example.org"></a>',
        encoding="utf-8",
    )
    other = tmp_path / "sub" / "b.html"
    other.write_text('<p id="there"></p><a href="../a.html?q=1"></a>', "utf-8")
    assert list(broken_links(tmp_path)) == []
    other.write_text('<a href="c.html"></a><script src="https://x/y.js">', "utf-8")
    assert list(broken_links(tmp_path)) == [
        "a.html links to sub/b.html#there, where there is no such heading.",
        'sub/b.html needs the network: <script src="https://.',
        "sub/b.html links to c.html, which does not exist.",
    ]


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        (
            "README.md",
            "# Title\n\nIt is $\\foo x$.\n",
            r"README.md:3: WARNING: The formula \$\\foo x\$ has the unknown \\foo",
        ),
        ("notebooks/00.ipynb", "<<<<<<< {", "notebooks/00.ipynb is no notebook: Expec"),
    ],
)
def test_a_build_stops_at_a_broken_page_and_names_its_place(tmp_path, file, text, says):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "README.md").write_text("# Title\n", "utf-8")
    (tmp_path / file).write_text(text, "utf-8")
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "-c", str(DOCS), str(tmp_path)]
    done = subprocess.run(
        [*build, str(tmp_path / "out")], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert re.search(says, done.stderr)


def test_the_gallery_has_pictures_of_all_notebooks_and_the_printed_tables():
    tables = 0
    for file in NOTEBOOKS:
        shown = list(outputs(json.loads(file.read_text(encoding="utf-8"))))
        assert any(one.picture for one in shown), file.name
        assert all(one.title for one in shown), file.name
        tables += sum(bool(one.table) for one in shown)
    assert tables > len(NOTEBOOKS)


def test_terms_are_whole_words_in_either_case_and_plural_and_initials_as_they_are():
    find = pattern(["client", "local epoch", "ARI", "mover's distance"])
    said = "Clients, subclients; a local epoch, ARI, the Sari, ari, a mover’s distance."
    assert [found[0] for found in find.finditer(said)] == [
        "Clients",
        "local epoch",
        "ARI",
        "mover’s distance",
    ]


def test_a_method_is_told_to_be_behind_the_best_or_ahead_of_the_others():
    rows = pd.DataFrame({"value": [-30.0, -50.0, 2.0], "ari": None, "bytes": 2e6})
    rows = rows.assign(method=["fedavg", "local", "oracle"], row="labels")
    assert means_of(rows[:2]) == "40.0 points behind the best, 2 MB sent"
    assert means_of(rows[2:]) == "2.0 points ahead of the best other, 2 MB sent"
    drawn = dots(rows, "oracle", -40, 0, "points")
    assert "Oracle among 2 others" in drawn and "≤ −40" in drawn and "≥ 0" in drawn
    assert "≥" not in dots(rows[:2], "fedavg", -40, 0, "points")
