"""The script that waits for a GPU runs here, tiny."""

from benchmarks import gpu


def test_it_measures_everything_tiny(monkeypatch, capsys):
    monkeypatch.setattr("fltnb.training.runner.COMPILER", "aot_eager")
    monkeypatch.setattr(gpu, "GROWTH", (2, 3))
    rows = gpu.main(["--device", "cpu", "--tiny"])
    said = {row["what"] for row in rows}
    assert said == {"agreement", "round", "evaluation", "operations", "growth"}
    assert all(row["gap"] < 1e-10 for row in rows if "gap" in row)
    assert all(row["seconds"] > 0 for row in rows if row["what"] == "round")
    counted = {row["model"]: row["operations"] for row in rows if "operations" in row}
    assert all(counted[name] < count for name, count in gpu.BEFORE.items())
    ways = {row["contender"] for row in rows}
    assert ways == {gpu.LOOP, "eager", "compiled"}
    assert "no time for" not in capsys.readouterr().out


def test_what_there_is_no_time_for_is_said(capsys):
    clock = gpu.Clock(0.0)
    assert gpu.agreement("cpu", ["eager"], clock) == []
    assert clock.left_out[0] == "agreement of mlp_plain"
