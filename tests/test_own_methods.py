"""Networks of one's own under the methods, beside a built-in one, and on their page."""

import runpy

import numpy as np
import pytest
import torch
from test_docs import code, run
from torch import nn

import fltnb as fl
from benchmarks.own import gap
from fltnb import methods as m
from fltnb import paths

CLIENTS, SAMPLES = 6, 15
TOKENS = "compares samples by distances, which tokens do not have"
SHORT = {"rounds": 2, "participation": 1.0, "lr": 0.02, "batch_size": 5}
SHORT |= {"progress": False, "backend": "serial"}


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(x + self.norm(self.conv(x)))


class ResNet(nn.Module):
    def __init__(self, input_shape, n_outputs):
        super().__init__()
        self.stem = nn.Conv2d(input_shape[0], 4, 3, padding=1)
        self.blocks = nn.Sequential(Block(4), Block(4))
        self.last = nn.Linear(4, n_outputs)

    def forward(self, x):
        return self.last(self.blocks(self.stem(x)).mean((2, 3)))


class Text(nn.Module):
    def __init__(self, vocabulary=20):
        super().__init__()
        self.words = nn.Embedding(vocabulary, 6)
        self.rnn = nn.LSTM(6, 8, batch_first=True)
        self.last = nn.Linear(8, 2)

    def forward(self, tokens):
        return self.last(self.rnn(self.words(tokens))[0][:, -1])


def dense():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


def made(x, y, **options):
    client_ids = np.repeat(np.arange(CLIENTS), SAMPLES)
    return fl.Federation.from_arrays(x, y, client_ids, val_fraction=0.2, **options)


@pytest.fixture(scope="module")
def tasks():
    rng = np.random.default_rng(0)
    n = CLIENTS * SAMPLES
    y = rng.integers(0, 2, n)
    pictures = rng.integers(0, 100, (n, 6, 6)) + 100 * y[:, None, None]
    words = rng.integers(0, 10, (n, 5)) + 10 * y[:, None]
    x = rng.normal(size=(n, 6)).astype(np.float32)
    values = made(x, x.sum(axis=1), targets="values")
    return {
        "resnet": (made(pictures.astype(np.uint8), y), ResNet, {}),
        "lstm": (made(words, y), Text, {}),
        "regression": (values, dense, {"loss": "squared_error"}),
    }


# what refuses a task, in a sentence that says so; all else runs
REFUSED = {
    ("flt", "lstm"): TOKENS,
    ("mthfl", "lstm"): TOKENS,
    ("pacfl", "lstm"): TOKENS,
    ("pacfl", "regression"): "needs classes",
    ("fedem", "regression"): "works with class probabilities",
    ("feddane", "resnet"): "needs a network of",
    ("feddane", "lstm"): "needs a network of",
    ("feddane", "regression"): "works with class probabilities",
}
METHODS = [
    m.FedAvg(),
    m.FLT(fl.FCR(n_clusters=2, k=2)),
    m.IFCA(2),
    m.FeSEM(2),
    m.CFL(0.1, 0.1),
    m.MTHFL(),
    m.EMDCFL(),
    m.PACFL(),
    m.FedEM(2),
    m.FedPer(),
    m.FedSaC(),
    m.FedDANE(),
]


@pytest.mark.parametrize("task", ["resnet", "lstm", "regression"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.filterwarnings("ignore")
def test_methods_run_or_say_why_not(tasks, method, task):
    fed, net, options = tasks[task]
    why = REFUSED.get((method.name, task))
    if why:
        with pytest.raises(fl.FltnbError, match=why) as caught:
            fl.run(method, fed, net, **options, **SHORT)
        assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
        return
    done = fl.run(method, fed, net, **options, **SHORT)
    assert np.isfinite(done.theta).all()
    assert np.isfinite(done.history["loss"]).all()


def test_an_own_lenet_gives_the_numbers_of_the_built_in_one():
    found = gap(rounds=2)
    assert found["accuracy"] < 1e-8 and found["weights"] < 1e-12


def test_batches_read_together_are_those_read_one_by_one(monkeypatch, tasks):
    fed, net, _ = tasks["resnet"]
    one = fl.run(m.FedAvg(), fed, net, **SHORT)
    monkeypatch.setattr("fltnb.training.module.TOGETHER", 1)
    assert np.array_equal(fl.run(m.FedAvg(), fed, net, **SHORT).theta, one.theta)


def test_the_page_runs(capsys, own_store):
    names = run("own_network.md", code("own_network.md"))
    shown = capsys.readouterr().out
    assert "fedavg" in shown and "auc" in shown
    assert names["doses"].r2 > 0.5
    assert len(names["told"]) == len(names["fed"].test[0])
    assert names["net"].head.stop == names["net"].n_trainable


def example(name):
    return runpy.run_path(str(paths.ROOT / "examples" / "own_network" / name))["main"]


def test_the_example_of_pictures_finds_the_groups(tmp_path, capsys):
    runs = example("pictures.py")(tmp_path)
    assert runs["ifca"].accuracy > runs["fedavg"].accuracy + 5
    assert "from the saved run" in capsys.readouterr().out


def test_the_example_of_texts_finds_the_groups(capsys):
    runs = example("text.py")()
    assert runs["ifca"].accuracy > 90 > 60 > runs["fedavg"].accuracy
    assert "AUC" in capsys.readouterr().out
