"""Runs on a Dask cluster: two real worker processes, of which one is killed in the
middle.
"""

import os
import re
import signal
import socket
import threading
import warnings
from dataclasses import replace
from types import SimpleNamespace

import joblib
import pytest
from dask import config
from distributed import Client, LocalCluster
from distributed.comm.core import CommClosedError
from distributed.utils import get_mp_context
from joblib.parallel import ThreadingBackend
from toys import clustering, refused, training

import fltnb
from fltnb import checkpoint, methods, paths
from fltnb.__main__ import main
from fltnb.errors import FltnbError
from fltnb.experiments import Row, compute, computing, machines, prepare
from fltnb.experiments.finished import load

pytestmark = pytest.mark.usefixtures("own_store")


HELD = {"kind": "label_clusters", "dataset": "digits", "n_clients": 10}
HELD |= {"n_clusters": 5, "classes_per_cluster": 2}


def quick(seed=0, **changes) -> Row:
    clustering = {
        "name": "pca_km_hc",
        "kind": "PCAKMHC",
        "clusterer": {"name": "PCAKMeans", "k": 2},
    }
    method = changes.pop("method", clustering if seed == 0 else {"name": "fedavg"})
    return training(
        HELD,
        method,
        **{"model": "mlp", "rounds": 4, "lr": 0.05, "seed": seed} | changes,
    )


def assert_same(results, others):
    for one, other in zip(results, others, strict=True):
        assert (one.key, one.axes) == (other.key, other.axes)
        assert one.curves.drop(columns="seconds").equals(
            other.curves.drop(columns="seconds")
        )
        assert one.clients.equals(other.clients)
        assert {name: a.tolist() for name, a in one.arrays.items()} == {
            n: a.tolist() for n, a in other.arrays.items()
        }


class StandStill:
    """Lets a worker stand still in the middle of a run, once it has written a
    checkpoint.
    """

    def __init__(self, key, mark):
        self.key, self.mark = key, mark

    def __call__(self):
        checkpoint.SECONDS = 0
        save = checkpoint.save

        def still(path, *rest):
            save(path, *rest)
            if path.name.startswith(self.key) and not self.mark.exists():
                paths.write_atomically(
                    self.mark, lambda file: file.write(str(os.getpid()).encode())
                )
                threading.Event().wait()

        checkpoint.save = still


def test_every_result_is_there_although_a_worker_was_killed(tmp_path, monkeypatch):
    """The workers have a store of their own: nothing is shared with the caller but the
    scheduler.
    """
    specs = [quick(seed) for seed in range(3)]
    mark, there, killed = tmp_path / "mark", tmp_path / "workers", []
    over = threading.Event()

    def kill():
        while not mark.exists():
            if over.wait(0.05):
                return
        killed.append(int(mark.read_text()))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    kind = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "dashboard_address": ":0",
        "env": {"FLTNB_STORE": str(there)},
    }
    # the workers and the one that replaces the killed come from one process that has
    # imported everything
    monkeypatch.setitem(
        config.config["distributed"]["worker"], "multiprocessing-method", "forkserver"
    )
    get_mp_context().set_forkserver_preload([__name__, "fltnb.training"])
    with LocalCluster(**kind) as cluster, Client(cluster) as client:
        pids = client.run(os.getpid)
        client.run(StandStill(prepare(specs[1]).key, mark))
        killer.start()
        try:
            with joblib.parallel_config(backend="dask"):
                results = compute(specs, progress=False)
        finally:
            over.set()
            killer.join()
    assert set(killed) < set(pids.values())
    # the clustering was made here and sent, everything came back, and the lost run went
    # on from its checkpoint
    assert not (there / "arrays").exists()
    assert {result.key for result in results} == {
        file.stem for file in (tmp_path / "store" / "jobs").iterdir()
    }
    assert not list(tmp_path.glob("*/jobs/*checkpoint*"))
    assert len(results[0].arrays["labels"]) == 10

    monkeypatch.setattr(computing, "train", lambda *a: pytest.fail("computed again"))
    assert_same(compute(specs, progress=False), results)
    monkeypatch.undo()
    monkeypatch.setenv("FLTNB_STORE", str(tmp_path / "alone"))
    assert_same(compute(specs, progress=False), results)


INSIDE = {
    "processes": False,
    "protocol": "tcp",
    "dashboard_address": ":0",
}  # all inside this process


@pytest.fixture
def scheduler():
    """Return the address of a scheduler with one worker of two threads."""
    with LocalCluster(n_workers=1, threads_per_worker=2, **INSIDE) as cluster:
        yield cluster.scheduler_address
        for client in machines._CLIENTS.values():
            client.close()
        machines._CLIENTS.clear()


class Away(ThreadingBackend):
    """A backend of joblib with a Dask client, to which nothing may be sent."""

    client = None

    def submit(self, *given, **options):
        raise AssertionError("sent to Dask")


def test_what_is_no_training_is_computed_here():
    eigen = {"name": "EigenRelevance", "n_clusters": 2}
    rows = []
    for seed in range(2):
        rows.append(clustering(HELD | {"seed": seed}, eigen, {"kind": "pixels"}))
    joblib.register_parallel_backend("away", Away)
    with joblib.parallel_config(backend="away", n_jobs=2):
        found = compute(rows, progress=False)
    assert [load(one.key).numbers for one in found] == [one.numbers for one in found]


def test_address_in_the_environment_is_used_and_connected_once(
    scheduler, monkeypatch, capsys
):
    monkeypatch.setenv("FLTNB_DASK", scheduler)
    before = threading.current_thread().name
    where, one = [], computing._one
    monkeypatch.setattr(
        computing,
        "_one",
        lambda *a: where.append(threading.current_thread().name) or one(*a),
    )
    results = compute([quick(1), quick(2)], progress=False)
    assert len(where) == 2 and before not in where
    assert machines.connect(scheduler) is machines.active()
    assert_same(results, [replace(load(one.key), axes=one.axes) for one in results])
    assert main(["workers", scheduler]) == 0
    assert capsys.readouterr().out.endswith(f"1 worker(s) at {scheduler}.\n")
    assert main(["workers", scheduler.replace("tcp", "udp")]) == 2

    def fail(*a):
        raise FltnbError("The disk is full.")

    monkeypatch.setattr(computing, "_one", fail)
    refused(
        r"seed 3 cannot run on the Dask worker on .*: The disk is full\.",
        compute,
        [quick(3)],
        progress=False,
    )


def test_a_lost_scheduler_is_one_sentence(monkeypatch):
    with LocalCluster(n_workers=0, **INSIDE) as cluster:
        client = machines.connect(cluster.scheduler_address)
        with pytest.warns(
            UserWarning, match="has no workers yet: runs start when one joins it"
        ):
            assert machines.check(client) == {}
        lost = iter(machines.gather(client, len, {"a": ()}, {}, {"a": []}))
        timer = threading.Timer(0.2, cluster.close)
        timer.start()
        refused(r"connection to the Dask scheduler at tcp://.* was lost", next, lost)
        timer.join()
    machines._CLIENTS.clear()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "here",
        "host:8786",
        "http://host:8786",
        "tcp://host",
        "tcp://:8786",
        "tcp://host:0",
        "tcp://host:70000",
    ],
)
def test_addresses_of_another_form_are_refused(address, capsys):
    refused(
        "is no address of a Dask scheduler: give tcp://host:port",
        machines.connect,
        address,
    )
    assert main(["compute", "00_start_here", "--dask", address]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_no_scheduler_is_told_before_any_work(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"  # nobody listens
        monkeypatch.setenv("FLTNB_DASK", address)
        monkeypatch.setattr(machines, "PATIENCE", 0.5)
        monkeypatch.setattr(
            methods.PCAKMHC, "prepare", lambda *a: pytest.fail("started working")
        )
        refused(
            f"No Dask scheduler answers at {address}: run `dask scheduler`",
            compute,
            [quick(0)],
            progress=False,
        )


def about(**changes):
    here = machines.about()
    return {**here, "packages": dict(here["packages"])} | changes


def workers(*abouts, error=None):
    def run(function, on_error):
        answers = (*abouts, error) if error else abouts
        return {f"tcp://w{n}:1": answer for n, answer in enumerate(answers)}

    return SimpleNamespace(run=run, scheduler=SimpleNamespace(address="tcp://s:1"))


def test_workers_with_other_code_or_data_are_refused_and_other_packages_named():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            len(machines.check(workers(about(), about(packages={}, hardware="other"))))
            == 2
        )
    refused(
        "worker tcp://w1:1 has fltnb code abc, this process",
        machines.check,
        workers(about(), about(code="abc")),
    )
    refused(
        r"worker tcp://w0:1 has Python 3\.1, this process 3\.",
        machines.check,
        workers(about(python="3.1.4")),
    )
    none = ModuleNotFoundError("No module named 'fltnb'")
    refused(
        r"cannot use fltnb \(ModuleNotFoundError: No .*'fltnb'\): install",
        machines.check,
        workers(error=none),
    )
    killed = CommClosedError("Stream is closed")
    with pytest.warns(UserWarning, match="The Dask worker tcp://w1:1 was lost"):
        assert list(machines.check(workers(about(), error=killed))) == ["tcp://w0:1"]
    rest = "another key", computing.How(), {}
    refused(
        "its code or data differ from the caller's", computing._remote, quick(1), *rest
    )
    with pytest.warns(UserWarning, match="has torch 1.0, this process"):
        machines.check(workers(about(packages={"torch": "1.0"})))


def test_the_page_s_slurm_cluster_asks_for_what_it_says(monkeypatch, capsys):
    import dask_jobqueue

    text = (paths.ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    page = next(
        block
        for block in re.findall(r"```python\n(.*?)```", text, flags=re.S)
        if "SLURMCluster(" in block
    )
    asked = {}
    monkeypatch.setattr(
        dask_jobqueue.SLURMCluster,
        "scale",
        lambda self, n=0, **jobs: asked.update(jobs),
    )
    compute = lambda rows: asked.update(specs=len(rows), client=machines.active())  # noqa: E731
    monkeypatch.setattr(fltnb, "compute", compute, raising=False)
    names = {}
    try:
        exec(page, names)
    finally:
        for name in {"client", "cluster"} & names.keys():
            names[name].close()
    script = capsys.readouterr().out
    assert "#SBATCH --cpus-per-task=8" in script and "#SBATCH -t 04:00:00" in script
    assert (
        "--nthreads 1 " in script
        and "--nworkers 8 " in script
        and "export FLTNB_DATA=$HOME/data" in script
    )
    assert (
        asked == {"jobs": 4, "specs": asked["specs"], "client": names["client"]}
        and asked["specs"] > 0
    )


def test_the_blocks_of_the_page_ask_for_their_grids(monkeypatch):
    """Both compute for long: what is asked for is counted, and a cluster is there."""
    text = (paths.ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S)
    asked = []

    def compute(rows):
        asked.append((len(rows), machines.active() is not None))
        return []

    monkeypatch.setattr(fltnb, "compute", compute, raising=False)
    for block in blocks:
        if "SLURMCluster(" not in block:
            exec(block, {"__name__": "__main__"})
    assert len(asked) == 2
    assert asked[0][0] > 6 and asked[0][1]
    assert asked[1] == (6, False)
