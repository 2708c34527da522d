"""A stacked step is one function: as it stands, compiled or replayed, it is the same.

Graphs need a GPU; what goes on around them (filling up, going on by itself, the first
comparison) is tested here with a stand-in that replays nothing.
"""

import warnings

import numpy as np
import pytest
import torch
from test_training import FLAVOURS, RAGGED, make_fed, pair, start, train
from torch import nn
from toys import refused

from fltnb import models
from fltnb.training import TrainSpec, devices, make_engine, runner, step
from fltnb.training.contract import USUAL
from fltnb.training.stacked import StackedEngine
from fltnb.training.stacks import clients_at_a_time

CLIENTS = [3, 0, 2, 4, 1, 5]  # 7, 23, 31, 40, 10 and 1 samples


def trained(fed, model, spec, way, clients=CLIENTS, weights=None):
    rows = [j % 2 for j in range(len(clients))]
    with StackedEngine(fed, model, spec, step=way) as engine:
        theta = start(model, dtype=spec.dtype)
        return engine.train(theta, rows, clients, 7, weights), engine


def runner_of(engine):
    return engine.stacks.training(USUAL).runner


def spec_of(flavour="everything", **options):
    options = {"dtype": "float64", "local_epochs": 2, "lr": 0.05} | options
    return TrainSpec(**FLAVOURS[flavour], **options)


@pytest.fixture
def silent():
    """Whoever falls back on the plain step says so, which fails a test."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # torch's own, on Python 3.13.0 alone
        warnings.filterwarnings("ignore", "Guards may run slower on Python 3.13.0")
        yield


@pytest.fixture
def traced(monkeypatch):
    """torch's compiler up to where it would call one for C++: seconds less."""
    monkeypatch.setattr(runner, "COMPILER", "aot_eager")


@pytest.fixture
def replayed(monkeypatch):
    """A graph's way of working on a CPU."""
    monkeypatch.setattr(runner, "chosen", lambda way, device: way)
    monkeypatch.setattr("fltnb.training.stacks.chosen", lambda way, device: way)

    def capture(graphs, take, again):
        again()
        take()
        return take

    monkeypatch.setattr(runner.Graphs, "capture", capture)


CASES = [
    *(("mlp", (8, 8), "everything"), ("mlp_plain", (8, 8), "proximal")),
    *(("mlp32", (8, 8), "momentum"), ("leaf_cnn", (5, 4), "plain")),
    *(("lenet", (8, 8, 3), "everything"), ("mnist_cnn", (8, 8), "decay")),
    *(("emdcfl_cnn", (5, 4), "everything"), ("cnn_small", (8, 8, 3), "proximal")),
]


def one_network_compiled():
    """LeNet has all operations, and compiling takes seconds."""
    return [("graph", *case) for case in CASES] + [("compiled", *CASES[4])]


@pytest.mark.parametrize(("way", "name", "shape", "flavour"), one_network_compiled())
def test_every_way_agrees_with_serial(
    silent, traced, replayed, way, name, shape, flavour
):
    fed, model = pair(name, RAGGED[:6], shape)
    spec = spec_of(flavour)
    clients = CLIENTS[:2] if way == "compiled" else CLIENTS
    weights = [np.linspace(0.5, 1.5, len(fed.train[i])) for i in clients]
    rows = [j % 2 for j in range(len(clients))]
    oracle = train(fed, model, spec, "serial", rows, clients, weights=weights)
    fast, engine = trained(fed, model, spec, way, clients, weights)
    assert np.abs(fast.theta - oracle.theta).max() < 1e-10
    assert np.abs(fast.loss - oracle.loss).max() < 1e-10
    assert runner_of(engine).way == way and runner_of(engine).ready


def test_the_compiler_of_this_machine_agrees_with_serial(silent):
    fed, model = pair("mlp", RAGGED[:2], (3, 3))
    spec = spec_of()
    oracle = train(fed, model, spec, "serial", [0, 0], [0, 1])
    with StackedEngine(fed, model, spec, step="compiled") as engine:
        try:
            fast = engine.train(start(model), [0, 0], [0, 1], 7)
        except RuntimeWarning as warning:
            pytest.skip(f"no compiler: {warning}")
    assert np.abs(fast.theta - oracle.theta).max() < 1e-10


def test_memory_is_used_again_and_what_lies_in_it_does_not_count(silent, replayed):
    fed, model = pair("mlp", RAGGED[:6])
    spec = spec_of()
    first, engine = trained(fed, model, spec, "graph")
    stack = runner_of(engine).stack
    bad = np.full((1, model.n_parameters), np.nan)
    lost = engine.train(bad, [0] * 6, CLIENTS, 1)
    assert np.isnan(lost.theta).all() and np.isnan(lost.loss).all()
    again = engine.train(start(model), [0, 1], CLIENTS[:2], 7)
    assert np.array_equal(again.theta, first.theta[:2])
    assert np.array_equal(again.loss, first.loss[:2])
    assert runner_of(engine).stack is stack


def test_clients_that_have_finished_stand_still_while_their_rows_fill_up(
    silent, replayed
):
    # momentum would go on moving a client whose samples weigh nothing
    fed, model = pair("mlp_plain", (31, 30, 30, 30, 1), (2, 2))
    spec = spec_of("momentum", batch_size=5)
    oracle = train(fed, model, spec, "serial", [0] * 5, range(5))
    with StackedEngine(fed, model, spec, step="graph") as engine:
        fast = engine.train(start(model), [0] * 5, range(5), 7)
    assert sorted(runner_of(engine).ready) == [1, 4, 6]
    assert np.abs(fast.theta - oracle.theta).max() < 1e-10


@pytest.mark.parametrize("fault", ["wrong", "missing"])
def test_a_step_that_is_wrong_or_missing_is_not_used(replayed, monkeypatch, fault):
    fed, model = pair("lenet", RAGGED[:6])
    spec = spec_of()
    plain, _ = trained(fed, model, spec, "eager")

    def capture(graphs, take, again):
        if fault == "missing":
            raise OSError("no driver")
        return again  # does nothing at all

    monkeypatch.setattr(runner.Graphs, "capture", capture)
    said = {"wrong": "100% of a step away", "missing": r"could not be made \(no driver"}
    with pytest.warns(RuntimeWarning, match=said[fault]) as warned:
        fast, _ = trained(fed, model, spec, "graph")
    assert len(warned) == 1
    assert np.array_equal(fast.theta, plain.theta)
    assert np.array_equal(fast.loss, plain.loss)


def test_a_step_that_makes_numbers_nan_is_not_used(replayed, monkeypatch):
    fed, model = pair("mlp_plain", RAGGED[:6])
    right = runner.Stack.moving

    def moving(stack, a):
        right(stack, a)
        stack.state.values[0][:a] = np.nan

    monkeypatch.setattr(runner.Stack, "moving", moving)
    with pytest.warns(RuntimeWarning, match="inf% of a step away"):
        trained(fed, model, spec_of(), "graph")


def test_inputs_are_the_same_from_pixels_and_from_floats(monkeypatch):
    fed = make_fed(RAGGED[:6], (8, 8, 3), mean=(0.2, 0.4, 0.6), std=(0.3, 1.0, 0.5))
    model = models.make("lenet", fed.input_shape, 4)
    held, engine = trained(fed, model, spec_of(), "eager")
    assert engine.stacks.pool.inputs is not None
    monkeypatch.setitem(step.HELD, "cpu", 0)
    read, engine = trained(fed, model, spec_of(), "eager")
    assert engine.stacks.pool.inputs is None
    assert np.array_equal(held.theta, read.theta)


def test_numbers_of_clients_are_few_and_waste_a_third_at_most():
    sizes = [runner.padded(n) for n in range(1, 1001)]
    assert all(n <= size < 1.5 * n for n, size in enumerate(sizes, 1))
    assert sizes == sorted(sizes) and len(set(sizes)) == 20


def test_graphs_need_a_gpu():
    fed, model = pair("mlp", RAGGED[:2])
    sentence = "Step 'graph' needs a GPU, and the device is 'cpu'"
    refused(sentence, StackedEngine, fed, model, TrainSpec(), step="graph")
    with make_engine(fed, model, TrainSpec(), "stacked", step="eager") as engine:
        assert engine.stacks.way == "eager"
    sentence = "Step 'eager' is for the back end 'stacked', and this is 'serial'"
    refused(sentence, make_engine, fed, model, TrainSpec(), "serial", step="eager")
    assert runner.chosen("auto", torch.device("cpu")) == "eager"
    assert runner.chosen("auto", torch.device("cuda")) == "graph"


def test_without_a_compiler_the_plain_step_runs(monkeypatch):
    fed, model = pair("mlp_plain", RAGGED[:2], (2, 2))
    plain, _ = trained(fed, model, spec_of(), "eager", [0, 1])
    monkeypatch.setattr(runner, "COMPILER", "none_here")
    with pytest.warns(
        RuntimeWarning, match="not compiled: it could not be made"
    ) as say:
        found, _ = trained(fed, model, spec_of(), "compiled", [0, 1])
    assert len(say) == 1
    assert np.array_equal(found.theta, plain.theta)


def test_own_networks_have_no_compiled_steps():
    fed = make_fed(RAGGED[:2], (2, 2))
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 4))
    given = fed, models.shaped(net, fed), TrainSpec(), "stacked"
    sentence = "Step 'eager' is for fltnb's own networks with cross entropy, and this"
    refused(sentence, make_engine, *given, step="eager")


def test_samples_for_which_a_gpu_has_no_room_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 2**31))
    given = torch.device("cuda"), "The federation's samples take", "device 'cpu'"
    devices.check_room(2**30, *given)
    sentence = "samples take 2.0 GiB, and the GPU has 1.0 free: choose device 'cpu'"
    refused(sentence, devices.check_room, 2**31, *given)
    fed, model = pair("mlp_plain", RAGGED[:2], (2, 2))
    monkeypatch.setattr(devices, "free_memory", lambda device: 8.0)
    monkeypatch.setattr(step, "free_memory", lambda device: 8.0)
    sentence = "The federation's samples take 0.0 GiB, and the GPU has 0.0 free"
    refused(sentence, StackedEngine, fed, model, TrainSpec())


def test_memory_for_no_client_is_refused_before_the_first_step(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 2**31))
    given = TrainSpec(), torch.device("cuda")
    assert clients_at_a_time(2**20, *given) == 2**7
    sentence = "One client takes 4.0 GiB, and the GPU has 1.0 free: choose a smaller"
    refused(sentence, clients_at_a_time, 2**30, *given)
