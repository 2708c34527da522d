"""Networks of one's own: what a row holds, that back ends agree, what is refused."""

import copy
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from toys import refused

import fltnb as fl
from fltnb import models
from fltnb.training import TrainSpec, make_engine
from fltnb.training.functional import FunctionalEngine
from fltnb.training.module import SGD, ModuleTrainer
from fltnb.training.pool import PoolEngine
from fltnb.training.samples import Samples

SHORT = {"rounds": 2, "participation": 1.0, "lr": 0.1, "progress": False}


def pictures(n_clients=4, n=12, seed=0, shape=(4, 4), dtype=np.uint8):
    """Clients with three classes, whose pictures are brighter the higher the class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n_clients * n)
    images = rng.integers(0, 80, (len(labels), *shape)) + 60 * labels[:, None, None]
    images = images.astype(dtype) / (1 if dtype == np.uint8 else 255)
    client_ids = np.repeat(np.arange(n_clients), n)
    return fl.Federation.from_arrays(images.astype(dtype), labels, client_ids)


class Conv(nn.Module):
    """A little of everything: batch normalisation, dropout, something frozen."""

    def __init__(self, n_outputs=3):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.25)
        self.fixed = nn.Linear(64, 8).requires_grad_(False)
        self.last = nn.Linear(8, n_outputs)
        self.register_buffer("shift", torch.tensor(0.1), persistent=False)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)) + self.shift)
        return self.last(self.drop(torch.relu(self.fixed(x.flatten(1)))))


class Mean(nn.Module):
    """Sequences (b, L, D): a dense layer on the mean over time."""

    def __init__(self, D=4):
        super().__init__()
        self.last = nn.Linear(D, 3)

    def forward(self, x):
        assert x.ndim == 3
        return self.last(x.mean(dim=1))


def same_run(one, other):
    assert np.array_equal(one.theta, other.theta)
    columns = ["accuracy", "loss", "bytes_up"]
    assert one.history[columns].equals(other.history[columns])


def test_a_row_holds_trained_parameters_then_statistics():
    net = models.shaped(Conv(), pictures())
    names = [name for name, _ in net.shapes]
    assert names == [
        "conv.weight",
        "conv.bias",
        "norm.weight",
        "norm.bias",
        "last.weight",
        "last.bias",
        "norm.running_mean",
        "norm.running_var",
    ]
    assert net.n_trainable == 36 + 4 + 8 + 27 and net.n_parameters == 75 + 8
    assert net.head == slice(48, 75) and net.head_weight == slice(48, 72)
    assert net.n_features == 8
    row = net.init(0)
    assert row[-8:].tolist() == 4 * [0.0] + 4 * [1.0]


def test_a_module_starts_from_its_own_weights_and_stays_as_it_is():
    module = Conv()
    before = copy.deepcopy(module.state_dict())
    net = models.shaped(module, pictures())
    last = torch.cat([module.last.weight.flatten(), module.last.bias]).detach()
    for seed in (0, 1):
        assert np.array_equal(net.init(seed)[net.head], last.numpy())
    other = net.init(0, index=1)
    differs = np.flatnonzero(other != net.init(0))
    assert differs.min() >= net.head.start and differs.max() < net.head.stop
    assert np.abs(other[net.head]).max() <= 1 / np.sqrt(8)

    fl.run(fl.methods.FedAvg(), pictures(), module, **SHORT)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_function_is_called_under_the_runs_seed():
    fed = pictures()
    net = models.shaped(lambda: Conv(), fed)
    assert np.array_equal(net.init(3), net.init(3))
    assert not np.array_equal(net.init(3), net.init(4))
    assert not np.array_equal(net.init(3), net.init(3, index=1))

    seen = []

    def make(shape, n_outputs):
        seen.append((shape, n_outputs))
        return nn.Sequential(nn.Flatten(), nn.Linear(16, n_outputs))

    state = torch.get_rng_state()
    assert models.shaped(make, fed).n_parameters == 51
    assert set(seen) == {((1, 4, 4), 3)}
    assert torch.equal(torch.get_rng_state(), state)


def test_back_ends_agree_to_the_bit_whatever_the_workers():
    fed = pictures()
    module = Conv()
    method = fl.methods.FedAvg()
    options = SHORT | {"local_epochs": 2, "batch_size": 5, "momentum": 0.5}
    runs = [
        fl.run(method, fed, module, backend="serial", **options),
        fl.run(method, fed, module, backend="pool", n_workers=1, **options),
        fl.run(method, fed, module, backend="pool", n_workers=3, **options),
    ]
    for other in runs[1:]:
        same_run(runs[0], other)


def test_a_module_of_a_notebook_reaches_a_worker_that_is_spawned():
    fed = pictures(2)
    width = 4

    class Local(nn.Module):  # which pickle cannot find
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(width * width, 3)
            self.act = lambda x: x.flatten(1)

        def forward(self, x):
            return self.last(self.act(x))

    net = models.shaped(Local(), fed)
    spec = TrainSpec()
    theta = net.init(0)[None]
    with PoolEngine(fed, net, spec, 1, start_method="spawn") as engine:
        spawned = engine.train(theta, [0, 0], [0, 1], 1)
    with make_engine(fed, net, spec, backend="serial") as engine:
        assert np.array_equal(
            engine.train(theta, [0, 0], [0, 1], 1).theta, spawned.theta
        )


def test_training_is_sgd_by_hand():
    fed = pictures()
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    net = models.shaped(module, fed)
    spec = TrainSpec(batch_size=1000, lr=0.1, dtype="float64")
    with make_engine(fed, net, spec) as engine:
        trained = engine.train(net.init(0)[None], [0], [2], 1).theta[0]

    x, y = fed.client(2)
    by_hand = copy.deepcopy(module).double()
    loss = nn.functional.cross_entropy(
        by_hand(torch.from_numpy(x).double()), torch.from_numpy(y)
    )
    loss.backward()
    stepped = [one - 0.1 * one.grad for one in by_hand.parameters()]
    expected = torch.cat([one.detach().flatten() for one in stepped]).numpy()
    assert np.abs(trained - expected).max() < 1e-12


def test_counters_of_batches_start_anew_with_every_client():
    """With momentum=None the statistics are means over the batches since the start."""

    def make():
        norm = nn.BatchNorm1d(16, momentum=None)
        return nn.Sequential(nn.Flatten(), norm, nn.Linear(16, 3))

    fed = pictures()
    net = models.shaped(make, fed)
    trainer = ModuleTrainer(net, TrainSpec(batch_size=5), Samples.of(fed))
    theta, out = net.init(0), np.empty((2, net.n_parameters), dtype=np.float32)
    for row in out:
        trainer.train(theta, 1, 1, None, row)
        trainer.train(theta, 2, 1, None, np.empty_like(row))
    assert np.array_equal(out[0], out[1])


def test_statistics_are_averaged_as_parameters_are():
    fed = pictures()
    net = models.shaped(Conv(), fed)
    run = fl.run(fl.methods.FedAvg(), fed, net, **(SHORT | {"rounds": 1}))
    with make_engine(fed, net, TrainSpec(lr=0.1)) as engine:
        rows, clients = np.zeros(4, dtype=int), np.arange(4)
        trained = engine.train(net.init(0)[None], rows, clients, 1).theta
    mean = np.average(trained.astype(np.float64), axis=0, weights=fed.sizes)
    assert np.array_equal(run.theta[0], mean.astype(np.float32))


def test_sequences_and_tables_come_in_their_own_shape():
    fed = pictures(dtype=np.float32)
    assert models.shaped(Mean(), fed).input_shape == (4, 4)
    assert models.shaped(nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), fed).input_shape
    assert fl.run(fl.methods.FedAvg(), fed, Mean(), **SHORT).theta.shape == (1, 15)

    table = fl.Federation.from_arrays(
        fed.images.reshape(-1, 16), fed.labels, np.repeat(np.arange(4), 12)
    )
    seen = set()

    class Rows(nn.Linear):
        def forward(self, x):
            seen.add(tuple(x.shape[1:]))
            return super().forward(x)

    run = fl.run(fl.methods.Local(), table, Rows(16, 3), **SHORT)
    assert seen == {(16,)} and run.theta.shape == (4, 51)


def test_predictions_and_features_are_those_of_the_module():
    fed = pictures()
    net = models.shaped(Conv(), fed)
    module = net.build().eval()
    x = torch.from_numpy(fed.client(1)[0])
    seen = []
    module.last.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    expected = module(x)
    params = net.unflatten(net.init(0))
    assert torch.equal(net.predict(params, x), expected)
    assert torch.equal(net.features(params, x), seen[0])


def test_the_key_follows_structure_code_and_weights():
    fed = pictures()
    torch.manual_seed(0)
    module = Conv()
    settings = models.shaped(module, fed).settings(0)
    assert models.shaped(copy.deepcopy(module), fed).settings(5) == settings

    other = copy.deepcopy(module)
    with torch.no_grad():
        other.fixed.weight += 1  # no part of a row
    assert models.shaped(other, fed).settings(0)["weights"] != settings["weights"]

    class Changed(Conv):
        def forward(self, x):
            return 2 * super().forward(x)

    assert models.shaped(Changed(), fed).settings(0)["code"] != settings["code"]
    function = models.shaped(Conv, fed)
    assert function.settings(0)["weights"] != function.settings(1)["weights"]


def test_a_checkpoint_of_another_network_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fltnb.checkpoint.SECONDS", 0.0)
    options = SHORT | {"checkpoint": tmp_path / "run.npz", "backend": "serial"}
    module = Conv()
    whole = fl.run(fl.methods.FedAvg(), pictures(), module, **options)
    same_run(whole, fl.run(fl.methods.FedAvg(), pictures(), module, **options))
    refused(
        "other settings", fl.run, fl.methods.FedAvg(), pictures(), Conv(), **options
    )


class Unused(Conv):
    def __init__(self):
        super().__init__()
        self.aside = nn.Linear(2, 2)


class Pair(Conv):
    def forward(self, x):
        return super().forward(x), x


class Lonely(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 4)

    def forward(self, x):
        return self.conv(x).flatten(1)


BAD = {
    "has 5 outputs where 3 are needed": lambda: Conv(5),
    "uses its weights aside.bias, aside.weight": Unused,
    "returns tuple": Pair,
    "cannot take a batch of samples of shape": lambda: nn.Conv2d(2, 3, 1),
    "returned int: a function": lambda: lambda: 3,
    "needs 1 arguments": lambda: lambda width: Conv(),
    "no weights to train": lambda: Conv().requires_grad_(False),
    "lazy layers": lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)),
    "must be a name of": lambda: 3,
    "maps 2 samples to": lambda: nn.Conv2d(1, 3, 1),
}


@pytest.mark.parametrize("says", BAD)
def test_what_does_not_fit_is_refused_in_a_sentence(says):
    refused(says, fl.rounds.check, fl.methods.FedAvg(), pictures(), BAD[says]())


def test_methods_that_look_at_last_layers_need_one():
    fed = pictures()
    sentence = "must be an nn.Linear"
    for method in (fl.methods.IFCA(2, warmup=1), fl.methods.FedSaC()):
        refused(sentence, fl.rounds.check, method, fed, Lonely())
    fl.rounds.check(fl.methods.IFCA(2), fed, Lonely)
    refused("needs a network of", fl.rounds.check, fl.methods.FedDANE(), fed, Conv())

    two = nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.Linear(3, 3))
    assert models.shaped(two, fed).head == slice(51, 63)
    assert models.shaped(models.own(two, head="1"), fed).head == slice(0, 51)
    named = models.own(two, head="0")
    refused("'0' is none", fl.rounds.check, fl.methods.FedSaC(), fed, named)


def test_a_batch_of_one_is_refused_where_it_cannot_be_normalised():
    fed = pictures()
    n = int(fed.sizes[0])
    check = fl.rounds.check
    method = fl.methods.FedAvg()
    for kept in (True, False):  # running statistics
        norm = nn.BatchNorm1d(16, track_running_stats=kept)
        net = nn.Sequential(nn.Flatten(), norm, nn.Linear(16, 3))
        refused("batch of one", check, method, fed, net, batch_size=n - 1)
        check(method, fed, net, batch_size=n)


class Still(Conv):
    """Without what draws, which torch.func cannot stack."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Identity()


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 5, batch_first=True)
        self.last = nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.rnn(x)[0][:, -1])


@pytest.mark.parametrize("make", [Still, Recurrent], ids=["norm", "lstm"])
@pytest.mark.parametrize("weighted", [False, True])
def test_clients_stacked_by_torch_func_are_those_one_after_the_other(make, weighted):
    fed = pictures(3, dtype=np.float32)
    fewer = [fed.train[0], fed.train[1][:3], fed.train[2][:7]]
    fed = replace(fed, train=fewer)
    net = models.shaped(make, fed)
    rest = {"momentum": 0.9, "weight_decay": 0.01, "proximal": 0.1} if weighted else {}
    spec = TrainSpec(local_epochs=2, batch_size=4, lr=0.05, dtype="float64", **rest)
    rng = np.random.default_rng(0)
    clients = [2, 0, 1]
    given = None
    if weighted:
        given = [rng.random(len(fed.train[client])) for client in clients]
    theta = np.stack([net.init(0), net.init(1)])
    done = {}
    for backend in ("serial", "stacked"):
        with make_engine(fed, net, spec, backend, "cpu") as engine:
            assert engine.backend == backend
            done[backend] = engine.train(theta, [0, 1, 1], clients, 3, given)
    one, other = done["serial"], done["stacked"]
    assert np.abs(one.theta - other.theta).max() < 1e-12
    assert np.abs(one.loss - other.loss).max() < 1e-12


def test_what_cannot_be_stacked_is_refused_or_trained_one_after_the_other(monkeypatch):
    fed = pictures()
    net = models.shaped(Conv(), fed)
    refused(
        "cannot stack clients of Conv", make_engine, fed, net, TrainSpec(), "stacked"
    )
    monkeypatch.setattr(
        "fltnb.training.best_device", lambda useful: torch.device("cuda")
    )
    monkeypatch.setattr("fltnb.training.SerialEngine", lambda *given: given)
    monkeypatch.setattr(
        "fltnb.training._stacked",
        lambda fed, net, spec, *where: FunctionalEngine(fed, net, spec, "cpu"),
    )
    with pytest.warns(RuntimeWarning, match="one client at a time"):
        *_, place, n_workers = make_engine(fed, net, TrainSpec())
    assert place.type == "cuda" and n_workers is None


@pytest.mark.parametrize(
    ("device", "says"),
    [
        ("cuda:7", "no usable GPU for device 'cuda:7'"),
        ("mps", "no usable GPU for device 'mps'"),
        ("gpu", "'gpu' is no device of torch"),
        ("meta", "no usable memory"),
    ],
)
def test_a_device_that_is_not_there_is_refused(device, says):
    fed = pictures()
    net = models.shaped("mlp", fed)
    refused(says, make_engine, fed, net, TrainSpec(), device=device)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9, "weight_decay": 0.01}])
def test_steps_are_those_of_torchs_optimiser(options):
    fed = pictures()
    net = models.shaped(Still(), fed)
    spec = TrainSpec(lr=0.1, **options)
    ours, theirs = net.build(), net.build()
    sgd = SGD(list(ours.parameters()), spec)
    torchs = torch.optim.SGD(theirs.parameters(), lr=0.1, **options)
    x, y = map(torch.from_numpy, fed.client(0))
    for _ in range(4):
        for module, optimiser in ((ours, sgd), (theirs, torchs)):
            module.zero_grad()
            nn.functional.cross_entropy(module(x), y).backward()
            optimiser.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other)


def test_training_does_not_load_torchs_compiler():
    """Which takes seconds in each worker."""
    lines = [
        "import sys, numpy as np, fltnb as fl",
        "from torch import nn",
        "x = np.random.default_rng(0).normal(size=(20, 3))",
        "fed = fl.Federation.from_arrays(x, np.arange(20) % 2, np.arange(20) % 4)",
        "how = dict(rounds=1, backend='serial', progress=False)",
        "fl.run(fl.methods.FedAvg(), fed, nn.Linear(3, 2), **how)",
        "assert 'torch._dynamo' not in sys.modules",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_tokens_beyond_any_kind_of_vocabulary_are_said(layer):
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = layer(20, 4)
            self.last = nn.Linear(4, 2)

        def forward(self, tokens):
            seen = self.words(tokens)
            return self.last(seen if seen.ndim == 2 else seen.mean(1))

    tokens = np.arange(48).reshape(8, 6)
    fed = fl.Federation.from_arrays(tokens, [0, 1] * 4, list("ab") * 4)
    refused("beyond the vocabulary of Words .its embeddings have 20", shape, Words, fed)

    def unmade():
        raise ValueError("no file of weights")

    refused("ValueError: no file of weights", shape, unmade, fed)


def shape(network, fed):
    return models.shaped(network, fed)
