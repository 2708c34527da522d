"""The examples in docstrings run, and every public name has one."""

import doctest
import importlib
import inspect
import pkgutil
import re
import sys

import matplotlib
import pytest

import fltnb as fl
from fltnb import paths

sys.path.insert(0, str(paths.ROOT / "docs" / "_ext"))

from api import public_names

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(fl.__path__, "fltnb.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.filterwarnings("ignore")
def test_the_examples_of_a_module_run(name):
    matplotlib.use("agg")
    module = importlib.import_module(name)
    said = []
    for test in doctest.DocTestFinder().find(module):
        doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert not said, "".join(said)


def test_every_room_has_its_page():
    pages = [*(paths.ROOT / "docs" / "api").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    rooms = {
        name.partition(".")[0] for name in re.findall(r"{room} fltnb\.(\S+)", text)
    }
    assert set(fl._MODULES) - rooms == set()


def documented():
    """Give full name and object of every class and function on the API pages."""
    for name in fl.__all__:
        yield f"fltnb.{name}", getattr(fl, name)
    for page in sorted((paths.ROOT / "docs" / "api").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for room in re.findall(r"{room} (\S+)", text):
            module = importlib.import_module(room)
            for name in public_names(module):
                yield f"{room}.{name}", getattr(module, name)


def test_the_public_names_have_examples():
    lacking = []
    for name, thing in documented():
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        told = inspect.getdoc(thing) or ""
        # apps of Flower cannot run here: theirs stand as a block of code
        if ">>>" not in told and "Examples\n--------" not in told:
            lacking.append(name)
    assert lacking == []


def test_no_docstring_has_a_section_twice():
    """Numpydoc, which writes the API pages, refuses such a one."""
    things = [thing for _, thing in documented() if inspect.isclass(thing)]
    members = [one for thing in things for one in vars(thing).values()]
    for thing in [*members, *(thing for _, thing in documented())]:
        sections = re.findall(r"^(.+)\n-{3,}$", inspect.getdoc(thing) or "", flags=re.M)
        assert len(sections) == len(set(sections)), (thing, sections)


def test_every_method_and_clusterer_has_a_page_with_its_settings():
    folders = ("methods", "clusterers")
    pages = [
        page for one in folders for page in (paths.ROOT / "docs" / one).glob("*.md")
    ]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    told = re.findall(r"{api} (\S+)", text)
    classes = [*fl.methods.METHODS.values(), *fl.methods.AS_RUN.values()]
    classes += [
        *fl.clustering.CLUSTERERS.values(),
        fl.MergeGain,
        fl.TransportSignatures,
    ]
    names = {name.rpartition(".")[2] for name in told if ".methods." in name}
    names |= {name.rpartition(".")[2] for name in told if ".clustering." in name}
    assert {one.__name__ for one in classes} == names
    for page in pages:
        said = page.read_text(encoding="utf-8")
        assert "**When to use it.**" in said and "\n$$\n" in said, page.name
