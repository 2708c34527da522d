"""Twelve hospitals: the example goes the whole way, from a table to a newcomer."""

import importlib.util
import json
import re
import runpy
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import fltnb as fl
from fltnb import paths
from fltnb.federations import preprocessing


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


def test_hospitals_without_groups_or_for_nobody_end_in_a_sentence(
    tmp_path, capsys, monkeypatch
):
    example = loaded()
    monkeypatch.setattr(example, "ROWS", (60,) * 12)
    advised = fl.advise(
        fl.Federation.from_frame(
            example.all_patients(), client="hospital", label="outcome", seed=0
        ),
        n_seeds=1,
        progress=False,
    )
    run = fl.run
    short = {"rounds": 1, "local_epochs": 1}
    monkeypatch.setattr(fl, "run", lambda *a, **how: run(*a, **how | short))
    monkeypatch.setattr(fl, "advise", lambda *a, **how: advised)
    for name, says in (
        ("one model for all", "Advised is one model for all: there are no clusters"),
        ("MergeGain", "No cluster is clearly right"),
    ):
        advised.recommended = name
        clusterer = advised.clusterers["MergeGain"]
        monkeypatch.setattr(clusterer, "place", lambda x, y: [-1])
        example.main(tmp_path / name)
        assert says in capsys.readouterr().out
        assert fl.Run.load(tmp_path / name)


def test_a_newcomer_is_placed_by_the_clusterer_that_is_advised(monkeypatch):
    example = loaded()
    monkeypatch.setattr(example, "ROWS", (60,) * 12)
    fed = fl.Federation.from_frame(
        example.all_patients(), client="hospital", label="outcome", seed=0
    )
    newcomer = example.patients(1, 100, np.random.default_rng(1))
    inputs = fed.preprocessing.transform(newcomer)
    rows = [fed.inputs(index).reshape(len(index), -1) for index in fed.train]
    for clusterer in (fl.clustering.MeanImage(), fl.EMDClustering("auto")):
        place = example.place(newcomer, clusterer.fit(rows), fed)
        assert place == clusterer.place([inputs])[0]


def said_by(name, asked, monkeypatch, capsys):
    """Run an example's command line, which must end before it computes anything."""
    file = str(paths.ROOT / "examples" / name)
    monkeypatch.setattr(sys, "argv", [file, *map(str, asked)])
    monkeypatch.setattr(fl, "advise", None)
    monkeypatch.setattr(fl, "run", None)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(file, run_name="__main__")
    shown = capsys.readouterr()
    return ended.value.code, shown.out + shown.err


def test_a_folder_that_cannot_be_made_is_refused_before_any_training(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "run").mkdir()
    (tmp_path / "file").touch()
    for name in ("hospitals.py", "own_network/pictures.py"):
        for folder, why in ((tmp_path, "File exists"), ("file/x", "Not a directory")):
            asked = [tmp_path / folder]
            code, said = said_by(name, asked, monkeypatch, capsys)
            assert code == 2 and f"({why}): name a new folder." in said


@pytest.mark.parametrize(
    "name",
    ["hospitals.py", "serve.py", "own_network/pictures.py", "own_network/text.py"],
)
def test_help_computes_nothing(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, said = said_by(name, ["--help"], monkeypatch, capsys)
    assert code == 0 and "usage:" in said and not list(tmp_path.iterdir())


def test_serve_names_what_is_not_there(tmp_path, monkeypatch, capsys):
    def refused(*asked):
        code, said = said_by("serve.py", asked, monkeypatch, capsys)
        assert code == 2
        return said

    table = tmp_path / "rows.csv"
    assert "required: models, cluster, table" in refused()
    assert "There is no run in" in refused(tmp_path, 0, table)
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "cluster_1.pt2").touch()
    assert "There is no cluster 0" in refused(tmp_path, 0, table)
    assert "There is no file" in refused(tmp_path, 1, table)


def test_serve_names_columns_that_a_table_lacks(tmp_path, monkeypatch, capsys):
    reader = {"columns": ["age", "sex"], "categories": {}}
    run = {"reader": {"preprocessing": reader}}
    (tmp_path / "run.json").write_text(json.dumps(run))
    (tmp_path / "cluster_0.pt2").touch()
    table = tmp_path / "rows.csv"
    table.write_text("age\n3\n")
    said, _ = said_by("serve.py", [tmp_path, 0, table], monkeypatch, capsys)
    assert said == f"{table} lacks sex: add these columns."


def test_serve_answers_as_the_run_does_whatever_the_loss():
    serve = runpy.run_path(str(paths.ROOT / "examples" / "serve.py"))
    for targets, outputs, answers in (
        ("classes", [[2.0, 1.0], [0.0, 3.0]], ["ill", "well"]),
        ("classes", [[-2.0], [0.0], [3.0]], ["ill", "ill", "well"]),  # loss="binary"
        ("values", [[-2.0], [3.5]], [-2.0, 3.5]),
    ):
        reader = {"targets": targets, "class_names": ["ill", "well"]}
        assert serve["answers"](torch.tensor(outputs), reader) == answers


def test_serve_reads_rows_as_the_run_does_or_says_why_not(tmp_path, capsys):
    serve = runpy.run_path(str(paths.ROOT / "examples" / "serve.py"))
    table = pd.DataFrame({"age": [30.0, 50.0, None], "ward": ["1", "w", "x"]})
    fitted = preprocessing.fit("standard", table, np.arange(3), beside=())
    how = fitted.to_dict()
    file = tmp_path / "rows.csv"

    def inputs(text):
        file.write_bytes(text)
        rows = serve["read"](file, how)
        return rows, serve["inputs"](rows, how)[:, 0, 0].numpy()

    rows, found = inputs(b"age,ward\n30,1\n,1\n50,\n")
    assert found[1].tolist() == [0, 1, 0, 0]  # with a gap, pandas would read 1.0
    with pytest.warns(UserWarning, match="count as none"):
        np.testing.assert_array_equal(found, fitted.transform(rows))
    assert "ward: (missing) count as no category" in capsys.readouterr().err
    for text, said in (
        (b'age,ward\n"12,5",x\n', "A column of numbers holds text"),
        (b"age,ward\ninf,x\n", "Row 0, counted from 0, holds no finite numbers"),
        (b"age\n3\n", "lacks ward"),
        (b"", "is no CSV table in UTF-8"),
        (b"\xff\xfe\x00", "is no CSV table in UTF-8"),
    ):
        with pytest.raises(SystemExit, match=said):
            inputs(text)
