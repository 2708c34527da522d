"""Tiny notebooks in a project of their own; kernels are real."""

import json
import os
import subprocess
import sys

import nbformat
import pytest
from nbformat import v4
from toys import refused

import fltnb as fl
from fltnb import __main__ as cli
from fltnb import paths, provenance, runner
from fltnb.experiments.plan import TooShortError
from fltnb.notebook.grids import notebook_file

PARAMETERS = """n = 3  # how many
compute = False"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Stand in for the project: an empty folder with notebooks/ and a code version to
    play with.
    """
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(provenance, "code_digest", lambda: "v1")
    monkeypatch.delenv("FLTNB_FRESH", raising=False)
    (tmp_path / "notebooks/profiles/demo").mkdir(parents=True)
    return tmp_path


def write(project, name, *codes):
    cells = [
        v4.new_markdown_cell("# Title"),
        v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
    ]
    cells += [v4.new_code_cell(code) for code in codes]
    kernel = {
        "name": "no_such_kernel",
        "display_name": "Python 3",
        "language": "python",
    }
    file = project / "notebooks" / f"{name}.ipynb"
    nbformat.write(v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), file)
    demo = project / "notebooks/profiles/demo" / f"{name[:2]}.yaml"
    demo.write_text("n: 2")
    return file


def state(name="00_a", profile="demo"):
    return next(
        row["state"] for row in runner.status(profile) if row["notebook"] == name
    )


def test_run_writes_copy_log_and_stamps_and_status_follows_the_changes(
    project, monkeypatch
):
    code = f"""import os, pathlib, sys
print(n, compute, os.environ.get('FLTNB_FRESH'))
print(sys.prefix == {sys.prefix!r}, pathlib.Path.cwd().name)
print('aside', file=sys.stderr)"""
    file = write(project, "00_a", code)
    assert state() == "not run"

    report = runner.run_notebook("00_a", "paper")

    assert (report["status"], report["error"]) == ("done", "")
    assert report["output"] == project / "results/paper/notebooks/00_a.ipynb"
    assert report["log"].read_text().splitlines() == [
        "3 True None",
        "True notebooks",
        "aside",
    ]
    executed = nbformat.read(report["output"], as_version=4)
    assert "3 True" in executed.cells[-1].outputs[0].text
    assert set(executed.metadata) == {"kernelspec", "language_info"}
    assert [set(cell.metadata) - {"tags"} for cell in executed.cells] == [set()] * len(
        executed.cells
    )
    assert (project / "results/paper/stamps/00_a.done").exists()
    stamp = json.loads((project / "results/paper/stamps/00_a.json").read_text())
    assert (
        stamp["status"] == "done"
        and stamp["code"] == "v1"
        and stamp["finished"].endswith("+00:00")
    )
    assert stamp["wall_s"] == report["wall_s"] > 0

    assert (state(profile="paper"), state(profile="demo")) == ("done", "not run")
    notebook = nbformat.read(file, as_version=4)
    notebook.cells[-1].outputs = [v4.new_output("stream", text="other outputs")]
    notebook.metadata["noise"] = 1
    for title, code, found in (
        ("Title", "v1", "done"),
        ("Another title", "v1", "stale"),
        ("Title", "v2", "stale"),
    ):
        notebook.cells[0].source = f"# {title}"
        nbformat.write(notebook, file)
        monkeypatch.setattr(provenance, "code_digest", lambda code=code: code)
        assert state(profile="paper") == found


def test_a_failing_notebook_is_kept_and_named_and_takes_its_stamp_away(project):
    write(
        project,
        "00_a",
        "print('before')",
        "raise ValueError('first\\n\\nthe last sentence.\\n')",
        "print('never')",
    )
    done = project / "results/demo/stamps/00_a.done"
    done.parent.mkdir(parents=True)
    done.touch()

    report = runner.run_notebook("00_a")

    assert (report["status"], report["error"]) == (
        "failed",
        "ValueError: the last sentence.",
    )
    assert not done.exists()
    text = report["output"].read_text()
    for kept in (text, report["log"].read_text()):
        assert "before" in kept and "the last sentence." in kept
    assert str(project) not in json.dumps(json.loads(text)["metadata"])
    assert "never\\n" not in text
    (row,) = runner.status("demo")
    assert (row["state"], row["note"]) == ("failed", "ValueError: the last sentence.")


def test_a_fresh_run_says_so_to_the_notebook_alone(project):
    write(project, "00_a", "import os; print(n, compute, os.environ['FLTNB_FRESH'])")
    assert runner.run_notebook("00_a", fresh=True)["log"].read_text() == "2 True 1\n"
    assert "FLTNB_FRESH" not in os.environ


def test_a_dead_kernel_is_a_failure_with_a_sentence(project):
    write(project, "00_a", "import os; os._exit(1)")
    report = runner.run_notebook("00_a")
    assert report["status"] == "failed"
    assert report["error"].startswith("The notebook's kernel stopped")


def test_the_number_of_a_notebook_names_it(project):
    write(project, "01_b", "1")
    names = {notebook_file(name).stem for name in ("01", "01_b", "01_b.ipynb")}
    assert names == {"01_b"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("02_c",), "Unknown notebook '02_c': choose one of 00_a"),
        (("00_a", "huge"), "Unknown profile 'huge'"),
    ],
)
def test_bad_wishes_are_refused_before_anything_runs(
    project, monkeypatch, arguments, sentence
):
    write(project, "00_a", "print(1)")
    monkeypatch.setattr(runner, "_execute", lambda *_: pytest.fail("ran"))
    refused(sentence, runner.run_notebook, *arguments)
    assert not (project / "results").exists()


def test_status_of_runs_under_way_cut_short_and_damaged(project):
    file = write(project, "00_a")
    stamp = {"pid": os.getpid(), "notebook": runner.sources_hash(file), "code": "v1"}
    runner._write("00_a", "demo", {"status": "running", **stamp})
    assert state() == "running"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    runner._write("00_a", "demo", {"status": "running", **stamp, "pid": ended.pid})
    assert state() == "stopped"
    for damage in ("", "[]", '{"status": "done"}'):
        (project / "results/demo/stamps/00_a.json").write_text(damage)
        assert state() == "not run"
    refused("Unknown profile", runner.status, "huge")


def finish(name, error="", wall=61.0):
    file = paths.ROOT / "notebooks" / f"{name}.ipynb"
    stamp = {
        "notebook": runner.sources_hash(file),
        "code": "v1",
        "wall_s": wall,
        "error": error,
    }
    stamp |= {
        "status": "failed" if error else "done",
        "finished": "2030-01-02T03:04:05+00:00",
    }
    runner._write(name, "demo", stamp)


def test_status_table_and_check(project, capsys):
    for name in ("00_a", "01_b", "02_c"):
        write(project, name)
    finish("00_a")
    finish("01_b", error="ValueError: no.", wall=2.0)
    assert cli.main(["status"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["00_a", "done", "1", "min", "01", "s", "2030-01-02", "03:04"],
        ["01_b", "failed", "2.0", "s", "2030-01-02", "03:04", "ValueError:", "no."],
        ["02_c", "not", "run"],
    ]
    assert cli.main(["status", "00_a", "--check"]) == 0
    assert cli.main(["status", "01_b.ipynb", "--check"]) == 1
    assert cli.main(["status", "--check"]) == 1
    capsys.readouterr()
    assert cli.main(["status", "07_x"]) == 2
    assert (
        capsys.readouterr().err
        == "There is no notebook '07_x': choose one of 00_a, 01_b, 02_c.\n"
    )


def test_notebook_command_tells_start_end_failure_and_interrupt(
    project, monkeypatch, capsys
):
    def stop(*_):
        raise KeyboardInterrupt

    write(project, "00_a")
    monkeypatch.setattr(runner, "_execute", lambda *_: "")
    assert cli.main(["notebook", "00_a.ipynb"]) == 0
    started, done = capsys.readouterr().out.splitlines()
    assert (
        started.startswith("00_a: started (profile demo;")
        and "results/demo/notebooks/00_a.log" in started
    )
    assert done.startswith("00_a: done in 0.")
    monkeypatch.setattr(runner, "_execute", lambda *_: "ValueError: no.")
    assert cli.main(["notebook", "00_a"]) == 1
    out = capsys.readouterr().out
    assert (
        "FAILED" in out
        and "ValueError: no." in out
        and "results/demo/notebooks/00_a.ipynb" in out
    )
    assert str(project) not in out
    monkeypatch.setattr(runner, "_execute", stop)
    monkeypatch.setattr("logging.disable", lambda: None)
    assert cli.main(["notebook", "00_a"]) == 130
    assert "same command goes on" in capsys.readouterr().err


EXPERIMENT = """import fltnb as fl
def run(dataset, seed):
    sizes = {"n_clients": 6, "n_clusters": 2, "classes_per_cluster": 2}
    fed = fl.recipe("label_clusters", dataset, **sizes)
    return fl.Training(fed, fl.methods.FedAvg(), "mlp", rounds=n, seed=seed)
found = fl.results(fl.grid(run, dataset="digits", seed=[0, 1]), compute=compute)"""


def test_compute_plans_keeps_a_budget_and_merges(project, monkeypatch, capsys):
    file = write(project, "01_scenario1", EXPERIMENT)
    book = nbformat.read(file, as_version=4)
    book.cells[-1].metadata["tags"] = ["experiment", "T1"]
    nbformat.write(book, file)

    def said(*words):
        assert cli.main(["compute", "01", *words]) == 0
        return capsys.readouterr().out

    planned = said("--plan")
    assert "0 of 2 experiments are stored" in planned and "not known" in planned
    assert "seed 1, dataset digits" in planned
    assert "2 of 2 were computed" in said("--budget", "1h", "--table", "T1")
    assert "2 of 2 experiments are stored" in said("--plan")
    assert (project / "results/ledger/01_scenario1.csv").exists()
    assert said() == "Notebook 01: 2 experiments are in the ledger.\n"
    assert said("--profile", "demo").endswith("2 experiments are in the local store.\n")
    before = (project / "results/ledger/01_scenario1.csv").read_text()
    shortly = said("--profile", "demo", "--budget", "1h", "--fresh")
    assert shortly.endswith("2 of 2 were computed and are in the local store.\n")
    assert (project / "results/ledger/01_scenario1.csv").read_text() == before
    assert "take about" in said("--plan", "--fresh")
    assert cli.main(["merge", str(project / "nothing")]) == 2
    assert cli.main(["compute", "01", "--budget", "soon"]) == 2


def test_all_notebooks_share_a_budget(project, monkeypatch, capsys):
    for name in ("01_a", "02_b", "03_c"):
        book = nbformat.read(write(project, name, EXPERIMENT), as_version=4)
        book.cells[-1].metadata["tags"] = ["experiment"]
        nbformat.write(book, project / "notebooks" / f"{name}.ipynb")
    given = []

    def within(name, planned, seconds, keep, **options):
        given.append((name, seconds))
        if name == "01_a":
            raise TooShortError("too small")
        return 0

    monkeypatch.setattr("fltnb.notebook.compute.compute_within", within)
    clock = iter([0, 0, 40, 100])  # the start, and before each notebook
    monkeypatch.setattr(cli, "monotonic", lambda: next(clock))
    assert cli.main(["compute", "all", "--budget", "90s"]) == 0
    assert given == [("01_a", 90), ("02_b", 50)]
    out = capsys.readouterr().out
    assert "too small\n" in out
    assert out.endswith("The time is over; nothing was computed from 03_c on.\n")


@pytest.mark.parametrize(
    "words",
    [
        "notebook 01",
        "status",
        "status --check",
        "status 01",
        "compute 01",
        "compute all",
        "compute 01 --plan",
        "merge .",
        "counts",
        "report",
    ],
)
def test_what_needs_a_clone_says_so_elsewhere_and_writes_nothing(
    words, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert cli.main(words.split()) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1
    assert "start Python in a clone of the repository." in told.err
    assert list(tmp_path.iterdir()) == []


def test_results_of_a_notebook_need_a_clone_or_its_ledger(project):
    refused("start Python in a clone", fl.results, "01")
    write(project, "01_b")
    said = refused("Nothing is stored for a notebook '01'", fl.results, "01")
    assert ": run `python -m fltnb compute 01`" in said


def test_no_command_prints_help_and_durations_are_for_people(capsys):
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    assert all(
        command in out for command in ("notebook", "status", "compute", "doctor")
    )
    said = [cli.duration(seconds) for seconds in (0.04, 59.94, 59.96, 119.6, 3725)]
    assert said == ["0.0 s", "59.9 s", "1 min 00 s", "2 min 00 s", "1 h 02 min"]


def test_a_reader_of_the_first_lines_alone_is_told_of_no_fault():
    command = [sys.executable, "-m", "fltnb", "status"]
    done = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    done.stdout.close()
    assert done.stderr.read() == b""
    assert done.wait() == 1
    done.stderr.close()
