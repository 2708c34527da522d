import numpy as np
import pandas as pd
import pytest

from fltnb import notebook
from fltnb.errors import FltnbError


@pytest.fixture(autouse=True)
def no_profile_in_environment(monkeypatch):
    monkeypatch.delenv("FLTNB_PROFILE", raising=False)


def test_setup_keeps_what_the_notebook_asked_for():
    settings = notebook.setup("01_scenario1", profile="small", n_jobs=3)
    assert (settings.name, settings.profile, settings.n_jobs) == ("01_scenario1", "small", 3)
    with pytest.raises(AttributeError):
        settings.profile = "paper"


@pytest.mark.parametrize(
    ("asked", "environment", "got"),
    [
        ("stored", None, "stored"),
        ("stored", "", "stored"),
        ("stored", "small", "small"),
        ("paper", "small", "paper"),
        ("small", "demo", "small"),
    ],
)
def test_environment_takes_the_place_of_the_default_only(monkeypatch, asked, environment, got):
    if environment is not None:
        monkeypatch.setenv("FLTNB_PROFILE", environment)
    assert notebook.setup("x", asked).profile == got


@pytest.mark.parametrize(("environment", "asked"), [("", "huge"), ("huge", "stored")])
def test_unknown_profile_is_refused(monkeypatch, environment, asked):
    monkeypatch.setenv("FLTNB_PROFILE", environment)
    with pytest.raises(FltnbError, match="Unknown profile 'huge': choose one of stored, demo, small, paper"):
        notebook.setup("x", asked)


def test_markdown_table_by_hand():
    table = pd.DataFrame(
        {"method": ["FLT|a", "Fed\nAvg"], "accuracy": [97.985, np.nan], "n": [3, 40], "gain": [-0.001, 2.0]}
    )
    assert notebook.to_markdown(table).splitlines() == [
        "| method   |   accuracy |   n |   gain |",
        "|:---------|-----------:|----:|-------:|",
        "| FLT\\|a   |      97.98 |   3 |   0.00 |",
        "| Fed Avg  |            |  40 |   2.00 |",
    ]


def test_markdown_keeps_text_that_looks_like_a_number_and_shows_a_named_index():
    table = pd.DataFrame({("mean", "paper"): ["1e3", "007"]}, index=pd.Index(["a", "b"], name="who"))
    lines = notebook.to_markdown(table, digits=0).splitlines()
    assert lines[0].split() == ["|", "who", "|", "mean", "paper", "|"]
    assert lines[2].split() == ["|", "a", "|", "1e3", "|"]
    assert lines[3].split() == ["|", "b", "|", "007", "|"]


def test_shown_table_is_markdown_and_an_empty_one_has_its_header(monkeypatch):
    assert notebook.to_markdown(pd.DataFrame({"a": [], "b": []})).splitlines()[0].split() == ["|", "a", "|", "b", "|"]
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    notebook.show_table(pd.DataFrame({"a": [1.26]}), digits=1)
    assert [item._repr_markdown_() for item in shown] == ["|   a |\n|----:|\n| 1.3 |"]


def test_versions_name_what_decides_the_numbers(capsys):
    notebook.versions()
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert {"python", "torch", "umap-learn", "scikit-learn", "numpy", "pot", "fltnb", "hardware"} <= set(lines)
    assert lines["numpy"] == np.__version__
    assert "commit" in lines["fltnb"]
