"""The example of a Flower App, server and nodes, with a stand-in for flwr in memory.

What goes over a wire is tested where flwr is installed (tests/test_flower.py).
"""

import json
import re
import runpy
import sys
import tomllib
from collections import defaultdict
from importlib import import_module
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from toys import refused

import fltnb as fl
from fltnb import paths
from fltnb.flower import letters, scaling

APP = paths.ROOT / "examples" / "flower"
CLIENTS = 6
FED = fl.federations.label_clusters(
    fl.load("digits"), n_clients=CLIENTS, n_clusters=3, classes_per_cluster=3
)


class Content(dict):
    """Flower's ``RecordDict``: records by name, and by what they hold."""

    array_records = property(lambda self: self.of("arrays"))
    config_records = property(lambda self: self.of("config"))
    metric_records = property(lambda self: self.of("metrics"))

    def of(self, name):
        return {name: self[name]} if name in self else {}


class App:
    """``ClientApp`` and ``ServerApp``: the functions that are registered, by kind."""

    def __init__(self):
        self.functions = {}

    def query(self, name):
        return self._register(f"query.{name}")

    def train(self):
        return self._register("train")

    def evaluate(self):
        return self._register("evaluate")

    def main(self):
        return self._register("main")

    def _register(self, kind):
        def register(function):
            self.functions[kind] = function
            return function

        return register


def message(content, kind="", reply_to=None):
    return SimpleNamespace(
        content=content,
        metadata=SimpleNamespace(message_type=kind),
        has_error=lambda: False,
    )


@pytest.fixture
def example(monkeypatch):
    """The modules of the example, by name."""
    app = ModuleType("flwr.app")
    app.RecordDict = Content
    app.ArrayRecord = app.MetricRecord = app.ConfigRecord = dict
    app.Array = lambda array: SimpleNamespace(numpy=lambda: array)
    app.Message = message
    app.Context = SimpleNamespace
    client, server = ModuleType("flwr.clientapp"), ModuleType("flwr.serverapp")
    client.ClientApp = server.ServerApp = App
    server.Grid = object
    flwr = ModuleType("flwr")
    flwr.app = app
    for module in (flwr, app, client, server):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.syspath_prepend(APP)
    names = ("client_app", "server_app", "task")
    yield {name: import_module(f"clustered.{name}") for name in names}
    for name in [name for name in sys.modules if name.split(".")[0] == "clustered"]:
        del sys.modules[name]


class Nodes:
    """Nodes in memory: each has its file, and answers by the app's own functions."""

    def __init__(self, app, config, folder):
        self.functions = app.functions
        self.contexts = []
        for number in range(CLIENTS):
            file = folder / f"client{number}.npz"
            parts = {}
            for part in ("train", "test"):
                x, parts[f"y_{part}"] = FED.client(number, part)
                parts[f"x_{part}"] = x[:, 0]
            np.savez(file, **parts)
            own = {"partition-id": number, "data": str(file)}
            self.contexts.append(
                SimpleNamespace(
                    node_config=own, node_id=number, run_config=config, state=Content()
                )
            )

    def nodes(self):
        return list(range(len(self.contexts)))

    def ask(self, kind, asked, timeout, group):
        answers = {}
        for node, letter in asked.items():
            sent = message(letters.packed(letter), kind)
            reply = self.functions[kind](sent, self.contexts[node])
            answers[node] = letters.unpacked(reply)
        return answers


@pytest.mark.parametrize("scale", [False, True])
def test_the_app_clusters_and_trains_as_its_settings_say(example, tmp_path, scale):
    told = tomllib.loads((APP / "pyproject.toml").read_text(encoding="utf-8"))
    config = told["tool"]["flwr"]["app"]["config"]
    config |= {"clients": CLIENTS, "local-epochs": 2, "folder": str(tmp_path)}
    config["scale"] = scale
    nodes = Nodes(example["client_app"].app, config, tmp_path)
    example["server_app"].main(nodes, SimpleNamespace(run_config=config))

    accuracy = defaultdict(list)
    for name in ("transport", "fcr", "fedavg"):
        outcome = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
        labels = [one["label"] for one in outcome["clients"]]
        groups = [0] * CLIENTS if name == "fedavg" else FED.clusters
        if not scale:  # thresholds are for raw pixels
            assert adjusted_rand_score(groups, labels) == 1
        accuracy[name] = [one.get("accuracy") for one in outcome["clients"]]
        rounds = config["rounds"] if name in config["train"] else 0
        assert len(outcome["history"]) == rounds
        assert not outcome["left_out"]
    assert accuracy["transport"] == [None] * CLIENTS  # only clustered
    assert np.mean(accuracy["fcr"]) > np.mean(accuracy["fedavg"]) or scale


def test_the_app_refuses_a_clusterer_that_it_does_not_have(example):
    told = tomllib.loads((APP / "pyproject.toml").read_text(encoding="utf-8"))
    config = told["tool"]["flwr"]["app"]["config"] | {"train": "fcr fedavgg"}
    asked = SimpleNamespace(run_config=config)
    refused("Unknown clusterer 'fedavgg'", example["server_app"].main, None, asked)


def test_the_federation_of_processes_refuses_a_port_that_cannot_be(tmp_path):
    local = runpy.run_path(str(APP / "local.py"))
    refused("There is no port 70000", local["Federation"], tmp_path, 70000, 3)


def test_the_lines_that_make_flower_shows_are_some_that_the_server_says():
    server = paths.ROOT / "fltnb" / "flower" / "server.py"
    said = re.findall(r'log\.info\("(\w+)', server.read_text(encoding="utf-8"))
    assert set(runpy.run_path(str(APP / "local.py"))["SHOWN"]) <= set(said)


def test_a_node_says_what_is_wrong_with_its_settings_and_its_file(example, tmp_path):
    task = example["task"]
    x, y = FED.client(3)
    parts = {"x_train": x[:, 0], "y_train": y, "x_test": x[:9, 0], "y_test": y[:9]}
    np.savez(tmp_path / "good.npz", **parts)
    np.savez(tmp_path / "untested.npz", **parts | {"x_test": x[:0, 0], "y_test": y[:0]})
    np.savez(tmp_path / "empty.npz", **{name: one[:0] for name, one in parts.items()})
    np.savez(tmp_path / "part.npz", x_train=x[:, 0])
    (tmp_path / "text.npz").write_text("hospital,outcome")

    def ask(file, number=3, what=task.own_data):
        own = {"partition-id": number, "data": str(tmp_path / f"{file}.npz")}
        settings = {"scale": False}
        return what(SimpleNamespace(node_config=own, node_id=1, run_config=settings))

    fed, number = ask("good")
    assert (number, len(fed.train[3])) == (3, len(x))
    refused("partition-id must be a whole number", ask, "good", "north")
    refused("below 10000, not 10000000", ask, "good", 10_000_000)  # took all memory
    refused("Client 3 has no test samples", ask, "untested")
    refused(
        "There are no rows to scale", scaling.columns_of, ask("empty", 3, task.rows)
    )
    for file in ("part", "text"):
        refused("no such samples as the app needs", ask, file)
    refused("cannot be read", ask, "gone")


def test_wrong_settings_are_told_before_any_method_trains(example):
    told = tomllib.loads((APP / "pyproject.toml").read_text(encoding="utf-8"))
    config = told["tool"]["flwr"]["app"]["config"] | {"train": "fedavg fcr"}
    for changed, said in (
        ({"clients": 1}, "Set min_available_nodes to 2"),
        ({"rounds": -1}, "rounds must be a whole number"),
        ({"local-epochs": 2.5}, "local_epochs must be a whole number"),
        ({"scale": "yes"}, "scale must be True or False"),
    ):
        asked = SimpleNamespace(run_config=config | changed)
        refused(said, example["server_app"].main, None, asked)
