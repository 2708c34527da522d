"""From experiments to results: keys, store, ledger, reading, plans."""

import gc
import json
import os
import shutil
import signal
import sys
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import clustering, distances, forked, half, refused, toy_set
from toys import training as row_of

import fltnb as fl
from fltnb import checkpoint as checkpoints
from fltnb import paths
from fltnb.analyses import mthfl_similarity
from fltnb.data import files
from fltnb.encoders import networks
from fltnb.experiments import (
    Finished,
    Ledger,
    Results,
    Row,
    compute,
    computing,
    experiment,
    key,
    plan,
    prepare,
    results,
    saving,
)
from fltnb.experiments import finished as finished_module
from fltnb.experiments import train as train_module
from fltnb.experiments.ledger import merge_folder

FED = {
    "kind": "label_clusters",
    "dataset": "digits",
    "n_clients": 6,
    "n_clusters": 2,
    "classes_per_cluster": 2,
}
FLT = {
    "name": "flt_pixels",
    "kind": "FLT",
    "clusterer": {"name": "EigenRelevance", "n_clusters": 2},
}
EMD = {"name": "emdcfl", "clusterer": {"name": "EMDClustering", "tolerance": 0.025}}


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("FLTNB_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(paths, "ledgers", lambda: tmp_path / "ledger")
    return tmp_path


def training(method="fedavg", seed=0, rounds=2, axes=None, **options) -> Row:
    settings = {"name": method} if isinstance(method, str) else method
    shown = {"dataset": "digits", "variant": "as_written"} | (axes or {})
    return row_of(FED, settings, "mlp", rounds, seed=seed, axes=shown, **options)


def stored(notebook="01") -> Results:
    return results(notebook)


def finished(key="a" * 20, accuracy=50.0, axes=None, **numbers) -> Finished:
    record = {
        "id": key,
        "settings": {"federation": FED, "rounds": 2},
        "provenance": {"commit": "c", "hardware": "h"},
    }
    record["provenance"] |= {
        "finished": "2026-01-01T00:00:00Z",
        "seconds": 1.0,
        "data_origin": "d",
        "data": "f",
    }
    axes = {"dataset": "digits", "method": "fedavg", "seed": 0} | (axes or {})
    curves = pd.DataFrame(
        {"round": [0, 1], "split": ["test", "test"], "accuracy": [10.0, accuracy]}
    )
    clients = pd.DataFrame({"client": [0, 1], "test": [40.0, 60.0]})
    numbers = {"accuracy": accuracy, **numbers}
    return Finished(
        key,
        "training",
        axes,
        numbers,
        curves,
        clients,
        {"labels": np.arange(2)},
        record,
    )


def test_settings_that_mean_the_same_have_one_key():
    plain, full = (
        training(),
        training({"name": "fedavg", "rule": "participants"}, lr=0.01, momentum=0.0),
    )
    plain_id = plain.experiment.id
    assert plain_id == full.experiment.id and prepare(plain).key == prepare(full).key
    assert plain_id != training(lr=0.02).experiment.id
    assert plain_id != training(rounds=3).experiment.id
    assert training(axes={"k": 3}).experiment.id == plain_id  # axes are not hashed
    first, second = training("oracle"), training("oracle", seed=1)
    assert first.experiment.id != second.experiment.id


def test_what_cannot_run_is_refused_before_any_work():
    wrong = row_of(FED, {"name": "fedavg"}, "mpl", 2)
    refused("Unknown model 'mpl'", compute, [training(), wrong])
    assert not list((paths.store() / "jobs").glob("*"))


def test_key_and_federation_are_made_once(monkeypatch):
    row, counted = training(), []
    for room, name in ((fl.federations, "build"), (computing, "prepare")):
        counted.append(Mock(wraps=getattr(room, name)))
        monkeypatch.setattr(room, name, counted[-1])
    experiment._built.cache_clear()
    found = Results([("", done) for done in compute([row])])
    found.mean(["method"]), found.curves, found.clients
    assert [call.call_count for call in counted] == [1, 1]


def test_moving_code_about_leaves_keys_alone(tmp_path):
    """A checkout with a renamed module and other docstrings names a job's result the
    same.
    """
    other = tmp_path / "other"
    shutil.copytree(
        Path(fl.__file__).parent,
        other / "fltnb",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    baselines = other / "fltnb/methods/baselines"
    (baselines / "ifca.py").rename(baselines / "several_models.py")
    for file in (other / "fltnb").rglob("*.py"):
        text = file.read_text().replace(
            "from .ifca import", "from .several_models import"
        )
        file.write_text(
            '"""Another docstring."""\n' + text.split('"""', 2)[2]
            if text.startswith('"""')
            else text
        )

    def ask():
        for name in [name for name in sys.modules if name.partition(".")[0] == "fltnb"]:
            del sys.modules[name]
        sys.path.insert(0, str(other))
        import fltnb as other_fl
        from fltnb.experiments import Row, prepare
        from fltnb.federations.recipe import Recipe

        ifca = other_fl.methods.build({"name": "ifca", "n_clusters": 2})
        experiment = other_fl.Training(Recipe(FED), ifca, "mlp", 2)
        made = prepare(Row({}, experiment))
        (other / "found").write_text(f"{other_fl.__file__} {made.key}")

    assert forked(ask).exitcode == 0
    where, key = (other / "found").read_text().split()
    assert where.startswith(str(other))
    assert key == prepare(training({"name": "ifca", "n_clusters": 2})).key


def test_what_is_stored_is_not_computed_again(monkeypatch):
    first = compute([training(seed=1)])[0]
    monkeypatch.setattr(
        train_module, "run", lambda *a, **k: pytest.fail("computed again")
    )
    again = compute([training(seed=1, axes={"k": 7})])[0]
    assert again.numbers == first.numbers and again.axes["k"] == 7
    pd.testing.assert_frame_equal(again.curves, first.curves)
    pd.testing.assert_frame_equal(again.clients, first.clients)
    with pytest.raises(pytest.fail.Exception, match="computed again"):
        compute([training(seed=1)], fresh=True)


def test_two_processes_give_the_same():
    jobs = [
        training(name, seed=seed) for name in ("fedavg", "oracle") for seed in (0, 1)
    ]
    one = [done.numbers["accuracy"] for done in compute(jobs, fresh=True)]
    assert one == [
        done.numbers["accuracy"] for done in compute(jobs, n_jobs=2, fresh=True)
    ]


def test_a_killed_process_is_told_in_a_sentence(own_store, monkeypatch):
    kill = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731  # goes by value
    monkeypatch.setattr(computing, "_one", kill)
    two = [training(seed=0), training(seed=1)]
    refused("was killed, most likely because memory ran out", compute, two, n_jobs=2)


@pytest.mark.parametrize(
    "found", [FLT, EMD], ids=["of embeddings", "of the clients' own networks"]
)
def test_the_same_graph_is_trained_once(found):
    fed = {
        "kind": "rotated_copies",
        "dataset": "digits",
        "n_clients": 6,
        "angles": [[0], [180]],
    }
    how = {"participation": 1.0, "local_epochs": 3, "lr": 0.1}
    own, oracle = (
        row_of(fed, method, "mlp32", 3, **how) for method in (found, {"name": "oracle"})
    )
    oracle, expected = compute([oracle])[0], compute([own])[0]
    assert expected.numbers["ari"] == 1
    alone = compute([own], fresh=True)[0]
    assert oracle.key != expected.key
    shared = [
        "trained_as" in done.record["provenance"] for done in (oracle, expected, alone)
    ]
    assert shared == [False, True, False]
    for name, value in alone.numbers.items():
        assert name == "seconds" or expected.numbers[name] == value, name
    pd.testing.assert_frame_equal(
        expected.curves.drop(columns="seconds"), alone.curves.drop(columns="seconds")
    )
    pd.testing.assert_frame_equal(expected.clients, alone.clients)
    np.testing.assert_equal(expected.arrays, alone.arrays)


def test_the_ledger_keeps_labels_and_what_a_job_asks_for_but_no_models():
    done = compute([training("oracle", keep=("models", "confusion"))])
    assert done[0].arrays["models"].shape[0] == 2

    def kept(notebook):
        ledger = Ledger(notebook)
        return {
            name.partition("/")[0] for name in ledger.arrays(ledger.lines[0]["record"])
        }

    Ledger("x").merge(done)
    unasked = compute([training("oracle")])  # the same, from the store
    Ledger("y").merge(unasked)
    Ledger("x").merge(unasked)
    assert (kept("x"), kept("y")) == (
        {"labels", "labels_at", "confusion"},
        {"labels", "labels_at"},
    )


def test_what_a_stored_result_did_not_keep_is_computed_when_it_is_asked_for():
    eigen, pixels = {"name": "EigenRelevance", "n_clusters": 2}, {"kind": "pixels"}
    plain = clustering(FED, eigen, pixels)
    kept = clustering(FED, eigen, pixels, keep=("adjacency",))
    more = clustering(FED, eigen, pixels, keep=("distance",))
    compute([plain])
    assert compute([kept])[0].arrays["adjacency"].shape == (6, 6)
    Ledger("01_nb").merge(compute([plain]))
    shutil.rmtree(paths.store())
    books = [Ledger("01_nb")]
    for done in compute([kept, plain, more], ledgers=books):  # the same key
        assert {"adjacency", "distance"} <= set(done.arrays)

    without, models = training(), training(keep=("models",))
    assert "models" not in compute([without])[0].arrays
    assert "models" in compute([models])[0].arrays
    assert "models" in compute([without])[0].arrays  # it replaced the first one


def test_clusterings_share_one_embedding(monkeypatch):
    calls = []
    embed = fl.encoders.embed_clients
    monkeypatch.setattr(
        fl.encoders, "embed_clients", lambda *a, **k: calls.append(1) or embed(*a, **k)
    )
    how = [{"name": "EigenRelevance", "n_clusters": k} for k in (1, 2)]
    one, two = compute(
        [clustering(FED, one, {"kind": "pixels"}, keep=("adjacency",)) for one in how]
    )
    assert len(calls) == 1 and [
        one.numbers["n_clusters"],
        two.numbers["n_clusters"],
    ] == [1, 2]
    assert two.arrays["adjacency"].shape == (6, 6) and two.numbers["ari"] == 1


def test_tuned_embeddings_serve_other_clusterers_later(monkeypatch):
    """Also a training; a fresh run makes them again, and workers do not get them."""
    tuned = []
    embed = networks.tuned
    monkeypatch.setattr(
        networks, "tuned", lambda *given: tuned.append(given[-1]) or embed(*given)
    )
    encoder = {"kind": "convae", "pretrain": "digits", "epochs": 1}
    encoder |= {"finetune_epochs": 1, "latent": 6}

    def clustered(n_clusters, **options):
        how = {"name": "EigenRelevance", "n_clusters": n_clusters}
        return compute([clustering(FED, how, encoder)], progress=False, **options)

    clustered(2)
    assert sorted(tuned) == list(range(6))
    clustered(1)
    flt = training(FLT | {"encoder": encoder})
    task = prepare(flt)
    used = computing._clusterings([task], train_module.How())
    assert len(used[task.key]) == 1
    compute([flt], progress=False)
    assert len(tuned) == 6
    clustered(1, fresh=True)
    assert len(tuned) == 12


def test_one_at_a_time_computes_a_key_whoever_came_when():
    begun, inside, most = [threading.Event() for _ in range(3)], [], []

    def compute_it(k, until):
        with finished_module.alone("key"):
            inside.append(k)
            most.append(len(inside))
            begun[k].set()
            until.wait(10)
            inside.remove(k)

    ends = [threading.Event() for _ in range(3)]
    crew = [threading.Thread(target=compute_it, args=(k, ends[k])) for k in range(3)]
    crew[0].start()
    begun[0].wait(10)
    crew[1].start()  # waits for the first one, which then removes its lock
    time.sleep(0.2)
    ends[0].set()
    begun[1].wait(10)
    crew[2].start()
    begun[2].wait(0.3)
    for end in ends:
        end.set()
    for one in crew:
        one.join(10)
    assert most == [1, 1, 1]


def test_distances_need_no_true_clusters():
    fed = {"kind": "dirichlet", "dataset": "digits", "n_clients": 4, "alpha": 1.0}
    row = distances(fed, "mlp32", {"local_epochs": 1, "lr": 0.1}, {"name": "updates"})
    (done,) = compute([row], progress=False)
    assert done.arrays["distance"].shape == (4, 4) and "clusters" not in done.arrays
    assert done.numbers["n_clients"] == 4 and "ari" not in done.numbers


def test_distances_that_cannot_be_measured_are_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(computing.measure, "cluster", None)  # nothing is computed
    first = clustering(FED, {"name": "MeanImage"}, {"kind": "pixels"})
    lr, updates = {"lr": 0.1}, {"name": "updates"}

    def row(how=lr, measure=updates, model="mlp32"):
        return [first, distances(FED, model, how, measure)]

    refused("Unknown distance 'emd'", compute, row(measure={"name": "emd"}))
    refused("Unknown model 'mpl'", compute, row(model="mpl"))
    refused("Unknown option of training 'rate'", compute, row({"rate": 0.1}))
    refused("lr must be a number", compute, row({"lr": -1}))
    emd = {"name": "EMDClustering"}
    refused("validation samples", compute, row(measure=emd))
    clients, emd = first.experiment.federation, fl.EMDClustering(tolerance=0.1)
    own = Row({}, fl.Clustering(clients, emd, fl.OwnModels("mlp32")))
    refused("validation samples", compute, [first, own])


def test_what_a_clusterer_does_not_have_cannot_be_kept():
    eigen, pixels = {"name": "EigenRelevance", "n_clusters": 2}, {"kind": "pixels"}
    row = clustering(FED, eigen, pixels, keep=("signatures",))
    refused("EigenRelevance has no array signatures_ to keep", compute, [row])


def nothing():
    """Forgets its `return`."""


def objects():
    return {"arrays": {"a": np.array([None], dtype=object)}}


def lists():
    return {"arrays": {"a": [1, 2]}}


def test_a_study_returns_what_can_be_stored():
    def row(function):
        return Row({}, fl.Study(function))

    refused("must return a dict", compute, [row(nothing)])
    refused("holds objects", compute, [row(objects)])
    ledger = Ledger("01_nb").merge(compute([row(lists)]))
    assert next(ledger.finished()).arrays["a"].tolist() == [1, 2]


def test_a_diverging_run_is_kept_with_its_reason():
    with pytest.warns(UserWarning, match="not finite"):
        done = compute([training(lr=1e18, rounds=3)])[0]
    assert "not finite" in done.numbers["stopped"]
    assert Results([("", done)]).runs["stopped"][0]


def test_a_killed_run_continues_and_leaves_nothing_behind(monkeypatch):
    job = training(
        {"name": "ifca", "n_clusters": 2}, rounds=20
    )  # no OpenMP of scikit-learn, which may hang in a fork
    checkpoint, write = (
        train_module.checkpoint_path(prepare(job).key),
        paths.write_atomically,
    )
    with (
        monkeypatch.context() as patch
    ):  # it is killed when it writes its second checkpoint
        patch.setattr(checkpoints, "SECONDS", 0.0)
        patch.setattr(
            checkpoints,
            "write_atomically",
            lambda p, content: write(p, half if checkpoint.exists() else content),
        )
        assert forked(compute, [job]).exitcode == -signal.SIGKILL
    assert checkpoint.exists() and list(checkpoint.parent.glob(".*"))
    with monkeypatch.context() as patch:  # and again when it saves its result
        patch.setattr(np, "savez_compressed", lambda file, **columns: half(file))
        assert forked(compute, [job]).exitcode == -signal.SIGKILL
    assert checkpoint.exists() and list(checkpoint.parent.glob(".*"))
    done = compute([job])[0]
    assert not list(checkpoint.parent.glob(".*")) and not checkpoint.exists()
    checkpoint.touch()  # and once more when it has just been saved
    compute([job])
    assert not checkpoint.exists()
    again = compute([job], fresh=True)[0]
    pd.testing.assert_frame_equal(
        done.curves.drop(columns="seconds"), again.curves.drop(columns="seconds")
    )
    pd.testing.assert_frame_equal(done.clients, again.clients)


def test_ledgers_of_two_machines_add_up(tmp_path):
    assert (
        len(Ledger("01_nb").merge([finished("a" * 20), finished("b" * 20, 60.0)]).lines)
        == 2
    )
    shutil.copytree(paths.ledgers(), tmp_path / "elsewhere/ledger")
    Ledger("01_nb").merge([finished("c" * 20, 70.0)])
    assert (
        len(
            Ledger("01_nb", tmp_path / "elsewhere/ledger")
            .merge([finished("d" * 20, 80.0)])
            .lines
        )
        == 3
    )
    assert list(merge_folder(tmp_path / "elsewhere")) == [
        "01_nb: 1 new results, 4 in all."
    ]
    found = stored()
    assert sorted(found.runs["accuracy"]) == [50.0, 60.0, 70.0, 80.0]
    assert found.curves["accuracy"].tolist().count(10.0) == 4 and found.arrays(
        "d" * 20
    )["labels"].tolist() == [0, 1]


def test_a_ledger_that_is_being_written_is_read_again(tmp_path, monkeypatch):
    """Its files are written one after the other; for a moment they do not fit."""
    old, new = tmp_path / "old", tmp_path / "new"
    Ledger("01_nb", old).merge([finished("a" * 20)])
    Ledger("01_nb", new).merge([finished("a" * 20), finished("b" * 20, 60.0)])
    seen = tmp_path / "seen"
    shutil.copytree(new, seen)
    shutil.copy(old / "01_nb.json", seen)  # the CSV of later than the JSON

    def written_meanwhile(seconds):
        shutil.copy(new / "01_nb.json", seen)

    monkeypatch.setattr("fltnb.experiments.ledger.PAUSE", 0.0)
    refused("01_nb.json is damaged", list, merge_folder(seen))
    stamps = iter([[1], [2], [3], [3]])
    monkeypatch.setattr("fltnb.experiments.ledger._stamps", lambda _: next(stamps))
    monkeypatch.setattr("fltnb.experiments.ledger.time.sleep", written_meanwhile)
    assert list(merge_folder(seen)) == ["01_nb: 2 new results, 2 in all."]


VALUES = st.one_of(
    st.booleans(),
    st.integers(-(10**9), 10**9),
    st.floats(allow_nan=False),
    st.text("abcä, \"'", min_size=1),
)


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["k", "rule", "level", "given"]), VALUES),
    st.floats(allow_nan=False),
)
def test_a_ledger_gives_back_what_it_got(tmp_path_factory, axes, accuracy):
    folder = tmp_path_factory.mktemp("ledger")
    Ledger("01_nb", folder).merge(
        [finished(accuracy=accuracy, axes=axes, ari=1.0, stopped="")]
    )
    again = next(Ledger("01_nb", folder).finished())
    assert again.axes == {"dataset": "digits", "method": "fedavg", "seed": 0} | axes
    assert all(type(again.axes[name]) is type(value) for name, value in axes.items())
    assert again.numbers == {"accuracy": accuracy, "ari": 1.0, "stopped": ""}
    assert again.record["settings"] == {"federation": FED, "rounds": 2}
    assert again.curves.columns.tolist() == [
        "round",
        "split",
        "accuracy",
    ] and again.curves["round"].tolist() == [0, 1]
    np.testing.assert_allclose(again.curves["accuracy"], [10.0, accuracy], 1e-6, 1e-6)


def test_arrays_of_any_type_come_back_and_those_of_older_ledgers_are_read():
    arrays = {
        "labels": np.arange(6).reshape(2, 3),
        "at/1": np.arange(4),
        "none": np.zeros((0, 3), bool),
    }
    arrays |= {
        "names": np.array(["a", "bcd"]),
        "one": np.array(2.5),
        "last": np.array([[np.nan, 1.0]]),
    }
    ledger = Ledger("01_nb").merge([replace(finished(), kind="study", arrays=arrays)])
    (line,) = ledger.lines
    own = {f"arrays/{line['record']}/{name}": value for name, value in arrays.items()}
    for _ in ("as written now", "as written by format 1"):
        again = Ledger("01_nb").arrays(line["record"])
        assert list(again) == list(arrays)
        for name, value in arrays.items():
            assert (again[name].dtype, again[name].shape) == (value.dtype, value.shape)
            np.testing.assert_array_equal(again[name], value)
        np.savez_compressed(
            ledger.path("npz"), records=np.array([line["record"]]), **own
        )
        ledger.path("json").write_text(
            ledger.path("json").read_text().replace('"format": 2', '"format": 1')
        )


def test_new_names_of_axes_take_the_place_of_old_ones():
    Ledger("01_nb").merge([finished(axes={"note": "k = 2"})])
    ledger = Ledger("01_nb").merge([finished(axes={"k": 2})])
    assert len(ledger.lines) == 1 and ledger.axes == ("k",)


def test_two_numbers_for_one_key_are_kept_and_neither_is_used():
    Ledger("01_nb").merge([finished(), finished("b" * 20)])
    ledger = Ledger("01_nb").merge([finished(accuracy=51.0)])
    assert len(ledger.lines) == 3
    told = r"different results for key a+ \(accuracy 50.0 and 51.0\).*until you delete"
    with pytest.warns(UserWarning, match=told):
        assert [done.key for done in Ledger("01_nb").finished()] == ["b" * 20]
    path = ledger.path("csv")
    path.write_text(
        "".join(
            line for line in path.read_text().splitlines(True) if ",51.0," not in line
        )
    )
    assert [done.numbers["accuracy"] for done in Ledger("01_nb").finished()] == [
        50.0,
        50.0,
    ]


def test_a_killed_merge_loses_nothing(tmp_path):
    before = Ledger("01_nb", tmp_path / "r").merge([finished()])
    write = paths.write_atomically

    def merge(ending):
        paths.write_atomically = lambda p, content: write(
            p, half if p.suffix == ending else content
        )
        Ledger("01_nb", tmp_path / "r").merge([finished("b" * 20, 60.0)])

    for ending in (".npz", ".json", ".csv"):
        assert forked(merge, ending).exitcode == -signal.SIGKILL
        again = Ledger("01_nb", tmp_path / "r")
        assert [done.numbers["accuracy"] for done in again.finished()] == [50.0]
        assert len(next(again.finished()).curves) == 2
    assert len(before.merge([finished("b" * 20, 60.0)]).lines) == 2 and not list(
        (tmp_path / "r").glob(".*")
    )


def test_a_merge_killed_while_axes_get_other_names_can_be_read(tmp_path):
    Ledger("01_nb", tmp_path).merge([finished(axes={"note": "a", "k": "all"})])
    write = paths.write_atomically

    def merge():
        paths.write_atomically = lambda p, content: write(
            p, half if p.suffix == ".csv" else content
        )
        Ledger("01_nb", tmp_path).merge([finished(axes={"k": 2})])

    assert forked(merge).exitcode == -signal.SIGKILL
    (held,) = Ledger("01_nb", tmp_path).finished()
    assert (held.axes["note"], held.axes["k"], "note" in held.numbers) == (
        "a",
        "all",
        False,
    )
    ledger = Ledger("01_nb", tmp_path).merge([finished(axes={"k": 2})])
    (held,) = ledger.finished()
    assert ledger.axes == ("k",) and held.axes["k"] == 2


def test_nothing_to_merge_makes_no_ledger(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "notebooks", list)
    Ledger("01_nb", tmp_path / "r").merge([finished()])
    (tmp_path / "r/01_nb.csv").unlink()  # killed before its first CSV
    (told,) = merge_folder(tmp_path / "r")
    assert told == "01_nb: 0 new results, 0 in all."
    assert not Ledger("01_nb").exists


def test_damaged_and_newer_ledgers_are_refused_in_a_sentence():
    wide = Ledger("02_nb").merge([finished()])
    wide.path("csv").write_text('"' + "x" * 200_000)  # a quote that does not end
    refused("is damaged", lambda: Ledger("02_nb").lines)
    ledger = Ledger("01_nb").merge([finished()])
    ledger.path("npz").write_bytes(b"no")
    refused(r"is damaged.*restore it", stored().arrays, "a" * 20)
    assert stored().runs["accuracy"].tolist() == [50.0]  # the numbers are not affected
    book = json.loads(ledger.path("json").read_text())
    ledger.path("json").write_text(json.dumps(book | {"format": 99}))
    refused("newer fltnb", stored)
    for damage in ("{", json.dumps(book)):
        ledger.path("json").write_text(damage)
        ledger.path("csv").write_text("<<<<<<< here\n" + ledger.path("csv").read_text())
        refused(r"is damaged.*restore it with .git checkout", stored)
    ledger.path("csv").write_text("method,accuracy\nfedavg,50\n")
    refused(r"has no column key.*restore it with .git checkout", stored)


def table() -> Results:
    rows = [
        ("fedavg", 0, 50.0, 2),
        ("fedavg", 1, 54.0, 2),
        ("fedavg", 0, 60.0, 3),
        ("oracle", 0, 90.0, 2),
    ]
    return Results(
        (
            "",
            finished(
                str(i),
                score,
                {"method": name, "seed": seed, "k": k, "variant": "as_run"},
                variance=1.0,
            ),
        )
        for i, (name, seed, score, k) in enumerate(rows)
    )


def test_mean_and_where():
    assert table().where(k=2).mean(["method"], "accuracy").to_dict("list") == {
        "method": ["fedavg", "oracle"],
        "accuracy": [52.0, 90.0],
        "accuracy_spread": [
            pytest.approx(8**0.5),
            pytest.approx(float("nan"), nan_ok=True),
        ],
        "seeds": [2, 1],
    }
    assert (
        len(
            table().where(
                variant="as run", method=["oracle", "fedavg"], accuracy=lambda a: a > 52
            )
        )
        == 3
    )
    assert len(table() + table()) == 4
    assert (len(table().plain()), len(table().plain("k"))) == (0, 4)
    refused(
        "Seed 0 occurs twice where method is fedavg: add k to by=",
        table().mean,
        ["method"],
    )
    refused(
        "No result has method 'flt': there is fedavg, oracle",
        table().where,
        method="flt",
    )
    refused("Unknown column of the results 'metod'", table().where, metod="flt")
    refused(
        "No result has variant 'published': there is as_run, as_written",
        table().where,
        variant="published",
    )
    refused("has the key .nothing", table().arrays, "nothing")


def test_nothing_stored_says_what_to_run():
    how = "Nothing is stored for a notebook '01'.*run `python -m fltnb compute 01`"
    refused(how, fl.results, "01")


def test_an_axis_may_be_called_like_a_clients_own_number():
    Ledger("01_nb").merge([finished(axes={"test": 7})])
    assert stored().runs["test"].tolist() == [7] and stored().clients[
        "test"
    ].tolist() == [40.0, 60.0]


@pytest.mark.parametrize(
    ("old", "new"),
    [("published", "papers"), ("store", "experiments"), ("Job", "Training")],
)
def test_old_names_say_the_new_one(old, new):
    with pytest.raises(AttributeError, match=f"use fltnb.{new}"):
        getattr(fl, old)


def test_a_number_may_have_the_name_of_another_experiments_axis():
    one = finished("a" * 20, axes={"n_clients": 5}, n_clients=5)
    Ledger("01_nb").merge([one, finished("b" * 20, n_clients=7)])
    first, second = Ledger("01_nb").finished()
    assert (first.axes["n_clients"], first.numbers["n_clients"]) == (5, 5)
    assert "n_clients" not in second.axes and second.numbers["n_clients"] == 7


def test_a_number_does_not_hide_the_axis_of_its_name():
    def run(n_clusters):
        options = {"n_clients": 6, "n_clusters": 2, "classes_per_cluster": 2}
        fed = fl.recipe("label_clusters", "digits", **options)
        return fl.Clustering(fed, fl.EigenRelevance(2), seed=n_clusters)

    found = fl.results(fl.grid(run, n_clusters=[2, 5]), compute=True)
    assert found.runs["n_clusters"].tolist() == [2, 5]
    assert found.runs["n_clusters found"].tolist() == [2, 2]


def test_results_of_older_numerics_are_kept_but_not_shown(monkeypatch):
    rows = fl.grid(lambda seed: training(seed=seed).experiment, seed=[0, 1])
    Ledger("01_nb").merge(compute(rows))
    assert repr(fl.results(rows)) == "2 of 2 runs"
    fl.experiments.asking._stored.cache_clear()
    monkeypatch.setitem(key.NUMERICS, "fedavg", 2)
    assert len(fl.results(rows)) == 0 and len(list(Ledger("01_nb").finished())) == 2
    fl.experiments.asking._stored.cache_clear()


def test_equal_settings_are_planned_once_under_all_their_axes():
    rows = [training(axes={"part": name}) for name in ("table", "sweep")]
    (one,) = plan.plan(rows, set(), [])
    assert one.rows == rows and one.seconds is None
    assert plan.plan(rows, {rows[0].experiment.id}, []) == []


def test_first_seeds_come_first_and_what_is_not_known_last():
    rows = [training(seed=seed) for seed in (0, 1, 2)] + [training("oracle")]
    rows.append(training(rounds=5, lr=0.1, axes={"dataset": "other"}, batch_size=7))
    timed = compute([training(seed=5)])
    planned = plan.plan(rows, set(), timed)
    shown = [
        (one.rows[0].axes["method"], one.rows[0].experiment.seed) for one in planned
    ]
    assert shown[:2] == [("fedavg", 0), ("oracle", 0)]
    assert planned[-1].seconds is None and planned[-1].rows[0] is rows[-1]
    twice = plan.Costs(timed).seconds(
        "training", training(rounds=4).experiment.settings
    )
    assert twice == pytest.approx(2 * timed[0].numbers["seconds"])
    there = {rows[0].experiment.id}
    assert [one.worth for one in plan.plan(rows[:3], there, timed)] == [1 / 4, 1 / 9]


def test_costs_are_those_of_this_machine():
    done = compute([training()])
    done[0].record["provenance"]["hardware"] = "another one"
    assert plan.Costs(done).seconds("training", training().experiment.settings) is None


def test_the_cost_of_a_method_is_known_from_its_own_runs_or_else_from_any():
    done = compute([training(), training("oracle")])
    for one, seconds in zip(done, (1.0, 7.0), strict=True):
        one.numbers["seconds"] = seconds
    cost = plan.Costs(done).seconds
    expected = {"fedavg": 1.0, "oracle": 7.0, "local": 4.0}
    for method, seconds in expected.items():
        settings = training(method).experiment.settings
        assert cost("training", settings) == pytest.approx(seconds)


def test_costs_are_those_of_trainings_that_went_to_their_end():
    settings = training().experiment.settings
    done = compute([training(), training(seed=1), training(seed=2)])
    done[0].numbers["stopped"] = "diverged in its first round"
    done[0].numbers["seconds"] = 1e-9
    del done[1].numbers["seconds"]
    expected = done[2].numbers["seconds"]
    found = plan.Costs(done).seconds("training", settings)
    assert found == pytest.approx(expected)
    assert plan.Costs(done[:2]).seconds("training", settings) is None


def test_a_gpu_s_benchmark_says_what_was_never_run_here(monkeypatch, tmp_path):
    done = compute([training()])
    done[0].record["provenance"]["hardware"] = "another one"
    about = done[0].record["settings"]
    table = pd.DataFrame(
        {
            "what": ["round", "round", "growth"],
            "contender": ["graph", "eager", "graph"],
            "model": about["model"],
            "precision": "float32",
            "device": "cuda",
            "hardware": plan.environment()["hardware"],
            "microseconds_per_sample": [2.0, 9.0, 1.0],
        }
    )
    monkeypatch.setattr(plan.paths, "ROOT", tmp_path)
    file = tmp_path / "results" / "benchmarks" / "gpu.csv"
    file.parent.mkdir(parents=True)
    table.to_csv(file)
    samples = done[0].clients["samples"].sum()
    expected = 2e-6 * samples * plan.passes(about)
    assert plan.Costs(done).seconds("training", about) == pytest.approx(expected)
    assert plan.Costs(done).seconds("training", about | {"model": "lenet"}) is None
    table.assign(device="cpu").to_csv(file)
    assert plan.Costs(done).seconds("training", about) is None


def test_what_is_missing_is_told_by_table(monkeypatch):
    from fltnb.notebook import compute as notebook_compute

    rows = [training(seed=seed) for seed in (0, 1)]
    both = training(seed=2, axes={"table": "T2 T9"})
    of_grid = fl.experiments.Grid(rows)
    of_grid.tables = ("T1",)
    given = [of_grid, fl.experiments.Grid([both])]
    monkeypatch.setattr(notebook_compute, "grids", lambda *_: given)
    planned = plan.plan([rows[0], both], set(), [])
    found = notebook_compute.by_table("01", "paper", planned)
    told = {table: len(ones) for table, ones in found.items()}
    assert told == {"T1": 1, "T2": 1, "T9": 1}


def test_results_on_copies_are_planned_and_computed_anew_on_official_images(
    places, tmp_path, monkeypatch
):
    """The plan goes by the images' origin, the run by the key; both tell the same."""
    from fltnb.notebook import compute as notebook_compute

    monkeypatch.setattr(paths, "data", lambda: [tmp_path / "sets"])
    rng = np.random.default_rng(0)
    labels, split = np.tile(np.arange(4), 30), np.repeat([0, 1], [80, 40])
    clients = {"n_clients": 4, "n_clusters": 2, "classes_per_cluster": 2}
    recipe = fl.recipe("label_clusters", "mnist", **clients)
    rows = fl.grid(lambda seed: fl.Clustering(recipe, fl.FCR(2), seed=seed), seed=0)
    file = tmp_path / "sets" / "mnist.npz"

    def prepare_set(origin):
        pixels = rng.integers(0, 256, (120, 8, 8))
        images = toy_set(pixels, labels, split, name="mnist")
        files.write(file, replace(images, origin=origin))
        experiment._built.cache_clear()

    prepare_set("JPEG copies")
    done = fl.compute(rows, progress=False)[0]
    held = {rows[0].experiment.id: [("01", done)]}
    monkeypatch.setattr(notebook_compute, "stored", lambda: held)
    assert notebook_compute.missing(rows) == []
    prepare_set("official")
    assert prepare(rows[0]).key != done.key
    assert len(notebook_compute.missing(rows)) == 1
    file.unlink()
    assert notebook_compute.missing(rows) == []  # here it cannot be computed anew


def test_a_result_without_a_kept_array_is_missing_as_a_run_says(places, monkeypatch):
    from fltnb.notebook import compute as notebook_compute

    clients = {"n_clients": 6, "n_clusters": 3, "classes_per_cluster": 3}
    recipe = fl.recipe("label_clusters", "digits", **clients)
    pixels = fl.encoders.EncoderSpec("pixels")

    def asked(*keep):
        def plan(seed):
            return fl.Clustering(recipe, fl.MergeGain(), pixels, seed=seed, keep=keep)

        return fl.grid(plan, seed=0)

    done = fl.compute(asked(), progress=False)[0]
    held = {done.record["id"]: [("01", done)]}
    monkeypatch.setattr(notebook_compute, "stored", lambda: held)
    assert notebook_compute.missing(asked()) == []
    both = fl.experiments.Grid([*asked(), *asked("loss")])
    for rows in (asked("loss"), both):
        (one,) = notebook_compute.missing(rows)
        assert [row.experiment for row in one.rows] == [row.experiment for row in rows]
    whole = fl.compute(asked("loss"), progress=False)[0]
    held[done.record["id"]].append(("15", whole))
    assert notebook_compute.missing(both) == []


def test_a_budget_is_kept(monkeypatch):
    rows = [training(seed=seed) for seed in range(4)]
    planned = [plan.Planned([row], 100.0, 1.0) for row in rows]
    done = []
    refused("too small for any missing", plan.within, planned, 60, done.extend)
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr(plan, "monotonic", lambda: next(clock))
    assert plan.within(planned, 350, done.extend) == 2 == len(done)


def test_a_plan_needs_no_data(monkeypatch):
    experiment._built.cache_clear()
    refuse = lambda *given: pytest.fail("built a federation")  # noqa: E731
    monkeypatch.setattr(fl.federations, "build", refuse)
    assert len(plan.plan([training(seed=seed) for seed in (0, 1)], set(), [])) == 2


def test_budgets_are_times():
    assert [plan.minutes(text) for text in ("150m", "2.5h", "90s")] == [150, 150, 1.5]
    for text in ("", "150", "m", "-3m", "soon"):
        refused("is no time", plan.minutes, text)


def test_checked_experiments_do_not_keep_their_federations(monkeypatch):
    """Those of a whole grid, all pictures of 20 sets of clients, may need 24 GB."""
    alive = []
    build = experiment.federations.build

    def noted(settings):
        fed = build(settings)
        alive.append(weakref.ref(fed))
        return fed

    monkeypatch.setattr(experiment.federations, "build", noted)
    held = [FED | {"seed": seed} for seed in range(100, 120)]
    tasks = [prepare(row_of(one, {"name": "fedavg"}, "mlp", 1)) for one in held]
    gc.collect()
    assert len(alive) == 20 and sum(fed() is not None for fed in alive) <= 8
    assert tasks[0].fed.fingerprint() == build(held[0]).fingerprint()


def test_a_study_says_on_which_clients_it_was_computed(monkeypatch):
    """Its function makes them; other images are another result, as for a training."""
    tasks = {"users_per_task": [2, 1], "samples_per_user": [40, 20], "seed": 0}
    clients = {"kind": "tasks", "dataset": "digits", "tasks": [[0, 1], [2, 3]]}
    options = {"federation": clients | tasks, "seeds": 1}
    rows = fl.grid(lambda seed: fl.Study(mthfl_similarity.mean_image, options), seed=0)
    done = fl.compute(rows, progress=False)[0]
    fed = fl.federations.build(clients | tasks)
    about = done.record["provenance"]
    assert about["data_origin"] == fl.load("digits").origin == fed.origin != ""
    assert about["data"] == fed.fingerprint()
    assert done.key == key.key_of(
        done.record["id"], done.record["settings"], about["data"]
    )

    told = {"cifar10": "official", "cifar100": "copies"}
    monkeypatch.setattr(saving.prepared, "origin", told.get)
    one = {"dataset": "cifar10", "n_clients": 5}
    assert saving.origins(one | {"encoder": {"pretrain": "mnist"}}) == "official"
    both = {"dataset": "cifar10", "kind": "cross_tasks", "other": "cifar100"}
    origin = saving.origins({"federation": both})
    assert origin == "cifar10: official; cifar100: copies"


def test_a_zero_counts_among_the_options_of_a_study_where_it_is_no_default():
    def noisy(noise=0.1, seed=0):
        return {"noise": noise}

    ids = [fl.Study(noisy, {"noise": noise} if noise else {}).id for noise in (0, 0.1)]
    assert len({*ids, fl.Study(noisy, {"noise": 0}).id}) == 3
    assert fl.Study(noisy, {"seed": 0}).id == fl.Study(noisy).id
    refused('an option "function"', lambda: fl.Study(noisy, {"function": "x"}).id)
