"""Twelve hospitals: the example goes the whole way, from a table to a newcomer."""

import importlib.util
import re

import fltnb as fl
from fltnb import paths


def loaded():
    file = paths.ROOT / "examples" / "hospitals.py"
    spec = importlib.util.spec_from_file_location("hospitals", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_hospitals_are_grouped_trained_saved_and_serve_a_newcomer(
    tmp_path, capsys, monkeypatch
):
    example = loaded()
    monkeypatch.setattr(example, "ROWS", (400,) * 3 + (200,) * 9)
    example.main(tmp_path / "models")
    said = capsys.readouterr().out
    assert "Train a model for each of 3 groups" in said
    assert "fits Eisenstadt, Graz, Innsbruck, St. Pölten" in said
    right = re.findall(r"([\d.]+)% are right by (fltnb|torch alone)", said)
    assert [by for _, by in right] == ["fltnb", "torch alone"]
    shares = [float(share) for share, _ in right]
    assert shares[0] == shares[1] > 75
    again = fl.Run.load(tmp_path / "models")
    assert sorted(again.names) == sorted(example.NAMES)
