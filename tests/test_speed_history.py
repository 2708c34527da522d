"""What `make bench SAVE=1` keeps: a line for each date and machine, and a picture."""

import re

import pandas as pd
import pytest

from benchmarks import history, run
from fltnb import paths

ABOUT = {"date": "2026-11-23", "processor": "AMD EPYC", "cores": 2, "system": "Linux"}


def measured(workload, faster):
    rows = []
    for what in history.WHAT:
        rows.append([workload, what, "DataLoader loop", 1.0])
        rows.append([workload, what, history.CONTENDER, faster])
    return pd.DataFrame(rows, columns=["workload", "what", "contender", "times_faster"])


def test_a_date_and_machine_have_one_line():
    first = history.added(pd.DataFrame(), history.line_of(measured("W1", 8.0), ABOUT))
    more = history.line_of(measured("W2", 3.0), ABOUT)
    same_day = history.added(first, more)
    assert same_day[["W1 training", "W2 evaluation"]].to_numpy().tolist() == [[8, 3]]

    later = history.line_of(measured("W1", 9.0), ABOUT | {"date": "2026-12-01"})
    other = history.line_of(measured("W1", 7.0), ABOUT | {"cores": 4})
    found = history.added(history.added(same_day, later), other)
    assert found["W1 training"].tolist() == [8, 7, 9]
    assert found["cores"].tolist() == ["2", "4", "2"]


@pytest.mark.parametrize("load", [0.1, 3.0])
def test_a_busy_machine_gets_no_line(load, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(run, "load", lambda: load)
    monkeypatch.setattr(run, "measure", lambda work: [measured(work, 2.5)])
    monkeypatch.setattr(run, "WORKLOADS", {"W1": lambda: "W1"})
    monkeypatch.setattr(run, "machine", lambda: ABOUT)
    monkeypatch.setattr(run.history, "FILE", tmp_path / "history.csv")
    monkeypatch.setattr(run.history, "PICTURE", tmp_path / "speed.svg")
    run.main(["W1", "--save"])
    assert (tmp_path / "results" / "benchmarks.csv").exists()
    busy = load > 1
    assert ("busy" in capsys.readouterr().out) == busy
    assert (tmp_path / "history.csv").exists() == (not busy)
    if not busy:
        assert history.read()["W1 training"].tolist() == [2.5]
        drawn = (tmp_path / "speed.svg").read_text(encoding="utf-8")
        history.draw(history.read(), tmp_path / "speed.svg")
        assert (tmp_path / "speed.svg").read_text(encoding="utf-8") == drawn


def test_the_picture_is_that_of_the_file(tmp_path):
    history.draw(history.read(), tmp_path / "speed.svg")
    ours = (tmp_path / "speed.svg").read_text(encoding="utf-8")
    assert "times faster than DataLoader" in ours
    assert ours.count("W1") == history.PICTURE.read_text(encoding="utf-8").count("W1")


def test_dates_stand_in_order_whatever_the_machine(tmp_path):
    found = pd.DataFrame()
    for date, cores in (("2026-11-23", 2), ("2026-12-01", 4), ("2026-12-10", 2)):
        about = ABOUT | {"date": date, "cores": cores}
        found = history.added(found, history.line_of(measured("W1", 8.0), about))
    history.draw(found, tmp_path / "speed.svg")
    drawn = re.findall(r">(2026-[-0-9]+)<", (tmp_path / "speed.svg").read_text("utf-8"))
    assert drawn == 2 * found["date"].tolist()
