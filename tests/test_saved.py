"""A run in a folder, and its models in use: with fltnb and without."""

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn
from toys import refused

import fltnb as fl
from fltnb.federations import preprocessing

ONE_ROUND = {"rounds": 1, "participation": 1.0, "progress": False, "n_workers": 1}


@pytest.fixture(scope="module")
def digits():
    return fl.load("digits")


@pytest.fixture(scope="module")
def clustered(digits):
    sizes = {"n_clients": 6, "n_clusters": 3, "classes_per_cluster": 3}
    fed = fl.federations.label_clusters(digits, **sizes)
    return fl.run(fl.methods.Oracle(), fed, "cnn_small", **ONE_ROUND)


def own_network():
    body = [nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU()]
    return nn.Sequential(*body, nn.Dropout(), nn.Linear(8, 10))


@pytest.fixture(scope="module")
def own(digits):
    fed = fl.federations.dirichlet(digits, n_clients=3, alpha=1.0, seed=0)
    return fl.run(fl.methods.Local(), fed, own_network, **ONE_ROUND)


def test_a_run_comes_back_from_its_folder_with_the_same_numbers(
    clustered, digits, tmp_path
):
    again = fl.Run.load(clustered.save(tmp_path / "kept" / "run"))
    assert again.history.equals(clustered.history)
    assert again.clients.equals(clustered.clients)
    for name in ("theta", "rows", "labels", "confusion"):
        np.testing.assert_array_equal(getattr(again, name), getattr(clustered, name))
    assert again.settings == clustered.settings
    assert again.labels_at.keys() == clustered.labels_at.keys()
    x = digits.images[:30]
    for client in range(6):
        scores = clustered.outputs(x, client)
        np.testing.assert_array_equal(again.outputs(x, client), scores)
        np.testing.assert_array_equal(again.predict(x, client), scores.argmax(axis=1))


def test_files_are_plain_and_tensors_have_the_modules_names(clustered, tmp_path):
    folder = clustered.save(tmp_path / "run")
    files = sorted(file.name for file in folder.iterdir())
    assert files == ["clients.csv", "history.csv", "models.safetensors", "run.json"]
    tensors = load_file(folder / "models.safetensors")
    client = 4
    k = clustered.row(client)
    state = clustered.module(client).state_dict()
    assert {f"{k}.{name}" for name in state} <= set(tensors)
    for name, value in state.items():
        np.testing.assert_array_equal(tensors[f"{k}.{name}"], value.numpy())


def test_a_module_is_plain_torch_and_works_where_there_is_no_fltnb(own, tmp_path):
    x = np.random.default_rng(0).integers(0, 17, (5, 8, 8)).astype(np.uint8)
    module = own.module(1)
    inputs = torch.from_numpy(own.reader.inputs(x))
    exported = torch.export.export(module, (inputs,))
    torch.export.save(exported, tmp_path / "model.pt2")
    torch.jit.trace(module, inputs).save(tmp_path / "model.pt")
    np.save(tmp_path / "x.npy", inputs.numpy())
    np.save(tmp_path / "wanted.npy", own.outputs(x, 1))
    code = """
import sys
sys.modules["fltnb"] = None
import numpy as np, torch
x = torch.from_numpy(np.load("x.npy"))
wanted = np.load("wanted.npy")
for module in (torch.export.load("model.pt2").module(), torch.jit.load("model.pt")):
    np.testing.assert_allclose(module(x).detach().numpy(), wanted, atol=1e-5)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_dropout_of_a_builtin_network_is_torchs_own(digits):
    fed = fl.federations.dirichlet(digits, n_clients=2, alpha=1.0, seed=0)
    run = fl.run(fl.methods.FedAvg(), fed, "mlp", **ONE_ROUND)
    parts = run.module().modules()
    assert {type(part).__module__.split(".")[0] for part in parts} == {"torch"}


def test_an_own_network_is_given_again_and_must_be_the_same(own, digits, tmp_path):
    folder = own.save(tmp_path / "run")
    again = fl.Run.load(folder, model=own_network)
    x = digits.images[:9]
    np.testing.assert_array_equal(again.outputs(x, 2), own.outputs(x, 2))
    refused("your own network own_network", fl.Run.load, folder)
    other = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    refused("is not the network of the run", fl.Run.load, folder, model=other)


def test_what_is_no_saved_run_is_refused_with_the_remedy(clustered, tmp_path):
    folder = clustered.save(tmp_path / "run")
    refused("exists already: name a new folder", clustered.save, folder)
    refused("There is no run in", fl.Run.load, tmp_path)
    refused(
        "has fltnb's network cnn_small: leave model out", fl.Run.load, folder, "mlp"
    )

    weights = folder / "models.safetensors"
    sound = weights.read_bytes()
    weights.write_bytes(sound[:-1] + b"?")
    refused("is damaged", fl.Run.load, folder)
    weights.unlink()
    refused("is damaged", fl.Run.load, folder)
    weights.write_bytes(sound)

    file = folder / "run.json"
    about = json.loads(file.read_text())
    file.write_text(json.dumps(about | {"format": 99}))
    refused("has format 99, and this fltnb reads format 1", fl.Run.load, folder)
    other = [{"model": {}}, {"rows": [9] * 6}, {"rows": [0]}, {"owners": ["a"]}]
    other.append({"model": about["model"] | {"input_shape": "abc"}})
    for part in other:
        file.write_text(json.dumps(about | part))
        refused("is damaged", fl.Run.load, folder)
    file.write_text("{")
    refused("is damaged", fl.Run.load, folder)


def test_a_folder_that_cannot_be_written_is_one_sentence(clustered, tmp_path):
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "run"
    refused("Cannot write .*name another folder", clustered.save, below)
    refused("folder must be a path", clustered.save, None)
    refused("folder must be a path", fl.Run.load, None)
    (tmp_path / f".run.{os.getpid()}").mkdir()  # of a process that was killed
    clustered.save(tmp_path / "run")
    assert {path.name for path in tmp_path.iterdir()} == {"file", "run"}


@pytest.mark.parametrize(
    "changed", [{"rows": None}, {"rows": [[0]]}, {"settings": None}, {"history": "a"}]
)
def test_parts_of_another_form_are_damage(changed, clustered, tmp_path):
    folder = clustered.save(tmp_path / "run")
    if "history" in changed:
        (folder / "history.csv").write_text("a,b\n1,2\n")
    else:
        about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        (folder / "run.json").write_text(json.dumps(about | changed))
    refused("is damaged", fl.Run.load, folder)


def test_nothing_is_left_where_saving_failed(clustered, tmp_path, monkeypatch):
    def full(*given, **options):
        raise OSError("No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    refused("No space left", clustered.save, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_clients_and_clusters_name_a_model(clustered, own):
    assert clustered.row(cluster=int(clustered.labels[3])) == clustered.row(3)
    refused("This run has 3 models: name a client", clustered.row)
    refused("There is no client 'Anna': this run has 0, 1, 2", clustered.row, "Anna")
    refused("There is no client 6", clustered.row, 6)
    refused("There is no client True", clustered.row, True)
    refused("There is no cluster 9: this run has 0, 1, 2", clustered.row, cluster=9)
    refused("Give a client or a cluster, not both", clustered.row, 0, 1)
    refused("There is no cluster 0. It has no clusters", own.row, cluster=0)
    refused("'Anna': .* none of its models is for newcomers", own.row, "Anna")
    one = dataclasses.replace(own, rows=np.zeros_like(own.rows))
    refused("There is no cluster 0. For a newcomer give no client", one.row, cluster=0)


def test_a_number_that_is_another_clients_name_is_refused(own):
    hospitals = dataclasses.replace(own, names=("2", "3", "4"))
    assert hospitals.row("2") == hospitals.row(0) == own.row(0)
    assert hospitals.row(4) == hospitals.row("4") == own.row(2)  # no place, so a name
    refused("Client 2 may be the one of this name.* give the name", hospitals.row, 2)


def test_what_a_run_cannot_evaluate_is_said(own):
    refused(
        "run.evaluate takes a federation, not a DataFrame", own.evaluate, own.clients
    )
    other = fl.Federation.from_arrays(np.eye(8), [0, 1] * 4, np.repeat([0, 1], 4), 0.5)
    refused(r"has 3 clients with .*, the federation 2 with \(8,\)", own.evaluate, other)


def test_new_samples_must_look_like_those_of_the_training(clustered):
    x = np.zeros((4, 8, 8), dtype=np.uint8)
    assert clustered.predict(x, 0).shape == (4,)
    refused("must have the shape .n, 8 x 8.", clustered.predict, x[:, :5], 0)
    refused("must have the shape .n, 8 x 8.", clustered.predict, x[0], 0)
    refused("must be uint8 pixels", clustered.predict, x / 16, 0)
    refused("There are no samples", clustered.predict, x[:0], 0)


def test_a_table_is_read_by_its_own_preprocessing_and_answers_in_its_words(tmp_path):
    rng = np.random.default_rng(0)
    n = 240
    table = pd.DataFrame({"client": rng.choice(["AKH Wien", "007"], n)})
    table["age"] = rng.normal(50, 10, n)
    table["sex"] = rng.choice(["f", "m"], n)
    table["ill"] = np.where(table["age"] > 50, "yes", "no")
    fed = fl.Federation.from_frame(table, client="client", label="ill", seed=0)
    settings = {"rounds": 20, "lr": 0.1, "participation": 1.0, "n_workers": 1}
    run = fl.run(fl.methods.FedAvg(), fed, "mlp32", progress=False, **settings)
    again = fl.Run.load(run.save(tmp_path / "run"))

    new = pd.DataFrame({"sex": ["m", "f"], "age": [70.0, 30.0]})  # in another order
    for one in (run, again):
        assert one.predict(new, "AKH Wien").tolist() == ["yes", "no"]
        refused("lacks the column.s. sex", one.predict, new[["age"]], "007")
        more = new.assign(height=1.0)
        refused("has the column.s. height", one.predict, more, "007")
        day = new.assign(age=pd.Timestamp("2024-01-01"))
        refused("age must hold numbers, not dates", one.predict, day, "007")
    kept = fed.preprocessing.to_dict() | {"mean": [1.0, 2.0]}
    refused(
        "fill, mean and std are 1 and 2 long",
        preprocessing.TablePreprocessing.from_dict,
        kept,
    )
    assert again.names == fed.names
    assert again.clients["name"].tolist() == list(fed.names)


def test_a_run_starts_from_given_weights(clustered, digits):
    fed = fl.federations.dirichlet(digits, n_clients=4, alpha=1.0, seed=1)
    still = ONE_ROUND | {"lr": 1e-30}
    trained = fl.run(fl.methods.FedAvg(), fed, "cnn_small", **ONE_ROUND)
    again = fl.run(fl.methods.FedAvg(), fed, "cnn_small", initial=trained, **still)
    np.testing.assert_array_equal(again.theta, trained.theta)
    start = clustered.theta[clustered.row(2)]
    again = fl.run(fl.methods.FedAvg(), fed, "cnn_small", initial=start, **still)
    np.testing.assert_array_equal(again.theta[0], start)
    assert "initial" in again.settings
    assert "initial" not in trained.settings

    ifca = fl.methods.IFCA(3)
    several = fl.run(ifca, fed, "cnn_small", initial=clustered.theta, **still)
    np.testing.assert_array_equal(several.theta, clustered.theta)


def test_weights_that_do_not_fit_are_refused(clustered, digits):
    fed = fl.federations.dirichlet(digits, n_clients=4, alpha=1.0, seed=1)

    def start(initial, model="cnn_small"):
        fl.run(fl.methods.FedAvg(), fed, model, initial=initial, **ONE_ROUND)

    refused("initial is a run with 3 models: choose", start, clustered)
    refused("give those of the same network", start, clustered.theta, "mlp32")
    refused("not the shape .0,", start, clustered.theta[:0])
    refused("not finite", start, np.full_like(clustered.theta[0], np.nan))
    refused("not finite", start, np.full(clustered.theta.shape[1], 1e39))
    refused("of <U1: give", start, np.full(clustered.theta.shape[1], "x"))


def test_both_means_of_a_run_and_a_word_on_small_test_sets(clustered):
    means = clustered.means()
    last = clustered.history.query("split == 'test'").iloc[-1]
    assert means.loc["mean of clients", "accuracy"] == pytest.approx(last["accuracy"])
    assert means.loc["mean of samples", "accuracy"] == pytest.approx(last["micro"])
    assert (means["low"] <= means["accuracy"]).all()
    assert (means["accuracy"] <= means["high"]).all()
    few = dataclasses.replace(clustered, confusion=clustered.confusion // 5)
    with pytest.warns(UserWarning, match="fewer than 30 test samples"):
        few.means()
    refused("use run.evaluate", dataclasses.replace(few, confusion=None).means)
