"""The processes of the pool: how they start, end and fail."""

import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from test_training import RAGGED, make_fed, start

from fltnb import models
from fltnb.training import TrainSpec, make_engine
from fltnb.training.pool import Job, PoolEngine, PoolUnavailableError, WorkerError

posix = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


def pids(engine):
    return [process.pid for process in engine._crew.processes]


def gone(processes, seconds=20.0):
    """Wait until none of the processes runs."""
    end = time.monotonic() + seconds
    while (left := any(map(running, processes))) and time.monotonic() < end:
        time.sleep(0.05)
    return not left


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def fed():
    return make_fed(RAGGED[:6])


@pytest.fixture
def model():
    return models.make("mlp", (1, 8, 8), 4)


def test_spawned_workers_and_many_models_give_the_same_numbers(fed, model):
    results = []
    for method in {"fork", "spawn"} & set(multiprocessing.get_all_start_methods()):
        with PoolEngine(
            fed, model, TrainSpec(momentum=0.5), n_workers=2, start_method=method
        ) as engine:
            trained = engine.train(
                start(model, dtype="float32"), [0, 1] * 3, range(6), 1
            )
            tested = engine.evaluate(trained.theta, range(6), range(6))
            results.append((trained.theta, trained.loss, tested.correct, tested.loss))
    assert all(
        np.array_equal(a, b) for a, b in zip(results[0], results[-1], strict=True)
    )
    # two workers have four model slots between them; here twelve models come and go,
    # some twice
    theta = start(model, k=12)
    rows, clients = [*range(12), *range(12), 0, 5], [j % 6 for j in range(26)]
    with make_engine(
        fed, model, TrainSpec(dtype="float64"), "pool", n_workers=2
    ) as engine:
        pooled = engine.train(theta, rows, clients, 1)
    with make_engine(fed, model, TrainSpec(dtype="float64"), "serial") as engine:
        assert (
            np.abs(pooled.theta - engine.train(theta, rows, clients, 1).theta).max()
            < 1e-10
        )


def test_workers_persist_and_messages_are_short(fed, model, monkeypatch):
    # A pool that starts anew, or sends data or models along, pays for it in each round.
    with make_engine(
        fed, model, TrainSpec(dtype="float64"), "pool", n_workers=2
    ) as engine:
        before, sent, kind = pids(engine), [], type(engine._crew.connections[0])
        original = kind.send
        monkeypatch.setattr(
            kind,
            "send",
            lambda self, message: (sent.append(message), original(self, message))[1],
        )
        for round in range(3):
            engine.evaluate(
                engine.train(start(model), [0] * 6, range(6), round).theta,
                range(6),
                range(6),
            )
        assert pids(engine) == before
        assert (
            len(sent) == 3 * 12
            and max(len(pickle.dumps(message)) for message in sent) < 200
        )


@posix
def test_close_ends_the_workers_and_a_later_call_starts_new_ones(fed, model):
    engine = make_engine(fed, model, TrainSpec(dtype="float64"), "pool", n_workers=2)
    first = pids(engine)
    result = engine.train(start(model), [0], [0], 1).theta
    engine.close()
    engine.close()
    assert gone(first)
    assert np.array_equal(engine.train(start(model), [0], [0], 1).theta, result)
    second = pids(engine)
    assert not set(first) & set(second)
    del engine  # nobody closed it: garbage collection does
    gc.collect()
    assert gone(second)


@posix
def test_killed_workers_are_noticed_and_replaced(fed, model):
    with make_engine(
        fed, model, TrainSpec(dtype="float64"), "pool", n_workers=2
    ) as engine:
        result = engine.train(start(model), [0] * 6, range(6), 1).theta
        old = pids(engine)
        os.kill(old[0], signal.SIGKILL)
        assert gone(old[:1])
        with pytest.raises(WorkerError, match="ended unexpectedly"):
            engine.train(start(model), [0] * 6, range(6), 1)
        assert gone(old)  # the other one was ended, too
        assert np.array_equal(
            engine.train(start(model), [0] * 6, range(6), 1).theta, result
        )
    with make_engine(
        fed, model, TrainSpec(local_epochs=100_000), "pool", n_workers=2
    ) as engine:
        old = pids(engine)
        threading.Timer(0.3, os.kill, (old[1], signal.SIGKILL)).start()
        with pytest.raises(WorkerError, match="-9"):
            engine.train(start(model, dtype="float32"), [0] * 6, range(6), 1)
        assert gone(old)


def test_an_error_in_a_worker_comes_back(fed, model):
    with make_engine(fed, model, TrainSpec(), "pool", n_workers=2) as engine:
        with pytest.raises(WorkerError, match="KeyError: 'elsewhere'"):
            engine._run(
                start(model, dtype="float32"),
                [Job(0, "score", ("elsewhere", 0, 0, 1))],
                lambda *result: None,
            )
        assert engine.evaluate(start(model, dtype="float32"), [0], [0]).total[0] > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_engine(fed, model, TrainSpec(), "pool", n_workers=2).close()


@posix
def test_a_worker_that_cannot_start_is_reported_at_once(fed, model, monkeypatch):
    monkeypatch.setattr("fltnb.training.pool._work", lambda *arguments: os._exit(3))
    with pytest.raises(PoolUnavailableError, match="ended while starting"):
        PoolEngine(fed, model, TrainSpec(), n_workers=2, start_method="fork")


def test_without_processes_the_serial_back_end_takes_over(fed, model, monkeypatch):
    def refuse(*arguments, **options):
        raise OSError("no processes today")

    monkeypatch.setattr("fltnb.training.pool._Crew", refuse)
    with pytest.warns(
        RuntimeWarning, match="one client at a time: .*no processes today"
    ):
        engine = make_engine(fed, model, TrainSpec(), n_workers=2)
    assert engine.backend == "serial"
    with pytest.raises(PoolUnavailableError):
        PoolEngine(fed, model, TrainSpec(), n_workers=2)


SCRIPT = """
    import os, signal
    # ignored in what a shell runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import sys
    sys.path.insert(0, {tests!r})
    from test_training import RAGGED, make_fed, start
    from fltnb import models
    from fltnb.training import TrainSpec, make_engine
    fed = make_fed(RAGGED[:6])
    model = models.make("mlp", fed.input_shape, 4)
    forgets = os.fork()  # two scripts for the imports of one
    if not forgets:
        os.setsid()
    signal.alarm(600)  # it ends even if the test has failed and nobody stops it
    for stream, where in ((1, "out"), (2, "err")):
        file = where + ("2" if forgets else "1")
        os.dup2(os.open(file, os.O_CREAT | os.O_WRONLY), stream)
    spec = TrainSpec(local_epochs=1 if forgets else 100_000)
    engine = make_engine(fed, model, spec, "pool", n_workers=2)
    print(os.getpid(), *(process.pid for process in engine._crew.processes), flush=True)
    engine.train(start(model, dtype="float32"), [0] * 6, range(6), 0)
"""


@posix
def test_workers_end_with_a_parent_that_was_killed(fed, model):
    def parent(connection):
        with make_engine(fed, model, TrainSpec(), "pool", n_workers=2) as engine:
            connection.send(pids(engine))
            time.sleep(60)

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=parent, args=(theirs,))
    process.start()
    workers = ours.recv()
    started = [running(pid) for pid in workers]
    process.kill()
    process.join()
    assert started == [True, True] and gone(workers)


@posix
def test_ctrl_c_and_a_script_that_forgets_to_close_leave_no_process(tmp_path):
    text = textwrap.dedent(SCRIPT).format(tests=str(Path(__file__).parent))
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    forgets = subprocess.Popen(
        [sys.executable, "-c", text],
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
    )
    out, err = ([tmp_path / f"{name}{n}" for n in (1, 2)] for name in ("out", "err"))
    end = time.monotonic() + 300
    while (
        not (out[0].exists() and out[0].read_text().endswith("\n"))
        and time.monotonic() < end
    ):
        time.sleep(0.05)
    stopped, *workers = map(int, out[0].read_text().split())
    time.sleep(0.5)
    os.killpg(stopped, signal.SIGINT)  # as a terminal does: to parent and workers alike
    assert gone([stopped, *workers]) and len(workers) == 2
    errors = err[0].read_text()
    assert errors.count("Traceback") == 1 and errors.rstrip().endswith(
        "KeyboardInterrupt"
    )
    assert forgets.wait(30) == 0 and err[1].read_text() == ""
    _, *workers = map(int, out[1].read_text().split())
    assert gone(workers) and len(workers) == 2


AUTOGRAD = """
    import sys
    sys.path.insert(0, {tests!r})
    import numpy as np
    import torch
    from torch import nn
    from test_training import RAGGED, make_fed, start
    from fltnb import models
    from fltnb.training import TrainSpec, make_engine

    if __name__ == "__main__":
        own = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 4))
        own(torch.ones(2, 64)).sum().backward()
        torch.export.export(own, (torch.ones(2, 64),))
        fed = make_fed(RAGGED[:6])
        net = models.shaped(own, fed)
        found = []
        for backend in ("serial", "pool"):
            with make_engine(fed, net, TrainSpec(), backend, n_workers=2) as engine:
                trained = engine.train(net.init(0)[None], [0] * 6, range(6), 1)
                found.append(trained.theta)
        print(engine.backend, np.array_equal(*found))
"""


@posix
def test_own_networks_train_in_workers_after_autograd_has_begun_threads(tmp_path):
    script = tmp_path / "script.py"
    text = textwrap.dedent(AUTOGRAD).format(tests=str(Path(__file__).parent))
    script.write_text(text)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    said = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True
    )
    assert said.stdout.split() == ["pool", "True"], said.stderr
    assert "Training one client at a time" not in said.stderr
