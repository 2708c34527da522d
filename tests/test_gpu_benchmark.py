"""The script that waits for a GPU runs here, tiny."""

import json

import pandas as pd
import pytest

from benchmarks import common, gpu
from fltnb import paths


def test_it_measures_everything_tiny(monkeypatch, capsys):
    monkeypatch.setattr("fltnb.training.runner.COMPILER", "aot_eager")
    monkeypatch.setattr(gpu, "GROWTH", (2, 3))
    rows = gpu.main(["--device", "cpu", "--tiny"])
    said = {row["what"] for row in rows}
    assert said == {"agreement", "round", "evaluation", "operations", "growth", "seeds"}
    allowed = {"float64": 1e-10, "float32": 1e-4}
    gaps = [row for row in rows if "gap" in row]
    assert all(row["gap"] < allowed[row["precision"]] for row in gaps)
    seeds = [(row["contender"], row["runs"]) for row in rows if "runs" in row]
    ways = ("together", "one_by_one")
    assert seeds == 2 * [(way, n) for n in gpu.SEEDS for way in ways]
    assert all(row["seconds"] > 0 for row in rows if row["what"] == "round")
    counted = {row["model"]: row["operations"] for row in rows if "operations" in row}
    assert all(counted[name] < count for name, count in gpu.BEFORE.items())
    ways = {row["contender"] for row in rows}
    assert ways == {gpu.LOOP, "eager", "compiled", "together", "one_by_one"}
    assert "no time for" not in capsys.readouterr().out


def test_small_numbers_do_not_take_the_place_of_measured_ones(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    with pytest.raises(SystemExit):
        gpu.main(["--device", "cpu", "--tiny", "--save", "--minutes", "0"])
    assert "leave out --save" in capsys.readouterr().err


def test_what_there_is_no_time_for_is_said(capsys):
    clock = gpu.Clock(0.0)
    assert gpu.agreement("cpu", ["eager"], clock) == []
    assert clock.left_out[0] == "agreement of mlp_plain in float64"


def test_what_fails_is_said_when_the_rest_is_measured_and_kept(monkeypatch, capsys):
    def fails():
        raise OSError("no driver")

    def works():
        return [{"what": "round", "seconds": 1.0}]

    monkeypatch.setattr(gpu, "pieces", lambda *given: [works, fails, works])
    kept = []
    with pytest.raises(SystemExit, match="1 pieces failed"):
        gpu.measure("cpu", 1.0, True, keep=lambda rows: kept.append(len(rows)))
    assert kept == [1, 2] and "no driver" in capsys.readouterr().err


def test_a_table_is_saved_with_what_it_was_measured_on(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    common.save([{"a": 1, "b": 1 / 3}, {"c": "x"}], "t.csv", {"tiny": True})
    table = pd.read_csv(tmp_path / "results" / "benchmarks" / "t.csv")
    assert table["b"][0] == 0.33333 and table["c"][1] == "x"
    assert json.loads(table["settings"][1]) == {"tiny": True}
    assert {"commit", "hardware", "python", "torch", "finished"} <= set(table)
