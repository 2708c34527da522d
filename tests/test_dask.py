"""Runs on a Dask cluster: two real worker processes, of which one is killed in the middle."""

import os
import signal
import threading
import warnings

import joblib
import numpy as np
import pytest
from distributed import Client, LocalCluster, get_worker

from fltnb import experiments, machines, rounds, store
from fltnb.__main__ import main
from fltnb.errors import FltnbError
from fltnb.store import Spec


@pytest.fixture(autouse=True)
def _own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("FLTNB_STORE", str(tmp_path / "store"))
    for name in ("FLTNB_FRESH", "FLTNB_DASK"):
        monkeypatch.delenv(name, raising=False)


def quick(seed=0, **changes) -> Spec:
    clustering = {"name": "pca_km_hc", "clusterer": {"name": "PCAKMeans", "k": 2}}
    settings = {
        "federation": experiments.federation("digits", "described", 0) | {"n_clients": 10},
        "method": clustering if seed == 0 else {"name": "fedavg"},
        "model": "mlp",
        **{"rounds": 4, "lr": 0.05, "seed": seed, "dataset": "digits"},
    }
    return Spec(**settings | changes)


def assert_same(results, others):
    for one, other in zip(results, others, strict=True):
        assert (one.key, one.spec) == (other.key, other.spec)
        keep = [c for c in one.history.columns if c != "seconds"]
        assert one.history[keep].equals(other.history[keep])
        assert one.clients.equals(other.clients)
        assert (one.labels is None) == (other.labels is None)
        assert one.labels is None or np.array_equal(one.labels, other.labels)


class Stop:
    """Stops a worker process at a round of a run, as if it were at work for long, once it has written a checkpoint."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self):
        rounds.CHECKPOINT_SECONDS = 0
        folder, save = self.folder, rounds._save

        def saved(path, *rest):
            save(path, *rest)
            mark = folder / f"{path.parent.name}.{os.getpid()}"
            if not list(folder.glob(f"{path.parent.name}.*")):  # the first worker on this run, and nobody after it
                mark.touch()
                threading.Event().wait()

        rounds._save = saved


def test_every_result_is_there_although_a_worker_was_killed(tmp_path):
    """The workers have a store of their own: nothing is shared with the caller but the scheduler."""
    specs = [quick(seed) for seed in range(3)]
    marks = tmp_path / "marks"
    marks.mkdir()
    killed = []

    def kill():  # the worker that stands still in the middle of the last run
        name = f"{specs[-1].key()}.*"
        while not (found := list(marks.glob(name))) and not over.wait(0.05):
            pass
        for mark in found:
            killed.append(int(mark.suffix[1:]))
            os.kill(killed[-1], signal.SIGKILL)

    over, killer = threading.Event(), threading.Thread(target=kill)
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=":0",
            env={"FLTNB_STORE": str(tmp_path / "workers")},
        ) as cluster,
        Client(cluster) as client,
    ):
        pids = client.run(os.getpid)
        stop = Stop(marks)
        for key in [spec.key() for spec in specs[:-1]]:
            (marks / f"{key}.0").touch()  # these runs are not stopped
        client.run(stop)
        killer.start()
        try:
            with joblib.parallel_config(backend="dask"):
                results = store.compute(specs, n_jobs=1, progress=False)
        finally:
            over.set()
            killer.join()
        assert killed and killed[0] in pids.values()
        written = {result.key: store.folder(result.key) for result in results}
        assert all((folder / "result.json").exists() for folder in written.values())
        assert not (store.folder(specs[-1].key()) / "checkpoint.npz").exists()
        assert client.run(lambda: None).keys() != pids.keys()

        alone = tmp_path / "alone"
        os.environ["FLTNB_STORE"] = str(alone)
        assert_same(results, store.compute(specs, n_jobs=1, progress=False))
        assert not list((tmp_path / "workers").glob("arrays/*"))  # the clustering was sent to them
        assert list(alone.glob("arrays/*"))
