"""The result store: a run is looked up by the hash of its settings and code, else resumed, else computed.

One folder per run under ``results/store/runs/<key>/``: ``history.csv`` (the whole curve), ``clients.csv`` (accuracy per
client), ``arrays.npz`` (cluster labels, what the samples were taken for), ``result.json`` (settings, provenance,
checksums; written last, so its presence means the entry is whole) and, while the run is under way, ``checkpoint.npz``.
Deleting a folder costs that run and nothing else.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import numbers
import os
import socket
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import machines, paths
from .errors import FltnbError
from .progress import bar as progress_bar
from .provenance import code_version, environment
from .rounds import DivergedError, check, plain, run

if TYPE_CHECKING:
    import pandas as pd

    from .rounds import Run


@dataclass(frozen=True)
class Spec:
    """One run: everything that decides its numbers, and the labels under which tables show it.

    ``federation`` and ``method`` are what :func:`fltnb.federations.build` and :func:`fltnb.methods.build` take.
    ``experiment``, ``dataset``, ``method_id``, ``variant`` and ``note`` are labels and do not enter the key.
    """

    federation: dict[str, Any]
    method: dict[str, Any]
    model: str
    rounds: int
    local_epochs: int = 1
    participation: float = 0.2
    batch_size: int = 10
    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal: float = 0.0
    seed: int = 0
    eval_every: int = 1
    experiment: str = ""
    dataset: str = ""
    method_id: str = ""
    variant: str = "as_written"
    note: str = ""

    LABELS = ("experiment", "dataset", "method_id", "variant", "note")

    def settings(self) -> dict[str, Any]:
        """All that decides the numbers, JSON-able."""
        return plain({name: value for name, value in asdict(self).items() if name not in self.LABELS})

    def labels(self) -> dict[str, str]:
        """How tables show the run."""
        return {name: getattr(self, name) for name in self.LABELS}

    def federation_built(self):
        """Return the federation (the last few are kept in memory)."""
        return _federation(json.dumps(plain(self.federation), sort_keys=True))

    def key(self) -> str:
        """Hash of settings, data and code: the name of the run's folder in the store."""
        data = self.federation_built().fingerprint()
        return _hash({"settings": self.settings(), "data": data, "code": self.code_version()})

    def code_version(self) -> str:
        """Version of the code that this run uses: other methods, clusterers and partitions do not count."""
        from . import federations, methods

        method = methods.build(self.method)
        kinds = [federations.KINDS[kind] for kind in _kinds(federations.complete(self.federation))]
        return code_version(*kinds, method, *vars(method).values())

    def __str__(self) -> str:
        return (
            f"{self.dataset} {self.method_id} ({self.variant}{', ' + self.note if self.note else ''}) seed {self.seed}"
        )


@dataclass
class Result:
    """One stored run: its spec, the curve, the clients, the labels, and where the numbers come from.

    ``confusion`` (M, C, C) counts what the test samples of every client were taken for at the end
    (:func:`fltnb.rounds.confusion`); None where a client is not tested with the one model that it is served.
    """

    spec: Spec
    key: str
    history: pd.DataFrame
    clients: pd.DataFrame
    labels: np.ndarray | None
    provenance: dict[str, Any] = field(default_factory=dict)
    labels_at: dict[int, np.ndarray] = field(default_factory=dict)
    confusion: np.ndarray | None = None

    @property
    def stopped(self) -> str:
        """Why the run ended early, else empty."""
        return self.provenance.get("stopped", "")


@functools.lru_cache(maxsize=8)
def _federation(settings: str):
    from . import federations

    return federations.build(json.loads(settings))


def _kinds(settings: dict) -> Iterator[str]:
    """Kind of a federation and of those that it is made from."""
    yield settings["kind"]
    for value in settings.values():
        if isinstance(value, dict) and "kind" in value:
            yield from _kinds(value)


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:20]


def folder(key: str) -> Path:
    """Return the store's folder of one run."""
    return paths.store() / "runs" / key


def load(spec: Spec) -> Result | None:
    """Return the stored result of a spec, or None if it is not there (or damaged: then a warning names the file)."""
    key = spec.key()
    where = folder(key)
    if not (where / "result.json").exists():
        return None
    try:
        record = json.loads((where / "result.json").read_text(encoding="utf-8"))
        files = {}
        for name, digest in record["files"].items():
            files[name] = (where / name).read_bytes()
            if hashlib.sha256(files[name]).hexdigest() != digest:
                raise ValueError(f"{name} does not match its checksum")
        import pandas as pd

        # the python engine reads every float back exactly, in all versions of pandas
        history = pd.read_csv(io.BytesIO(files["history.csv"]), engine="python")
        clients = pd.read_csv(io.BytesIO(files["clients.csv"]), engine="python")
        with np.load(io.BytesIO(files["arrays.npz"]), allow_pickle=False) as arrays:
            labels = arrays["labels"] if "labels" in arrays.files else None
            labels_at = {int(name[3:]): arrays[name] for name in arrays.files if name.startswith("at/")}
            taken = arrays["confusion"] if "confusion" in arrays.files else None
        return Result(spec, key, history, clients, labels, dict(record["provenance"]), labels_at, taken)
    except Exception as error:  # damage shows in many ways; whatever it is, the remedy is the same
        warnings.warn(
            f"Store entry {where} is damaged ({error}): only this run ({spec}) is computed again.", stacklevel=2
        )
        return None


def save(spec: Spec, run: Run) -> Result:
    """Write a finished run to the store, with where its numbers come from."""
    fed = spec.federation_built()
    provenance = {
        **environment(),
        "data_origin": fed.origin,
        "data": fed.fingerprint(),
        "seconds": round(run.seconds, 2),
        "finished": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "stopped": run.stopped,
    }
    kept = run.history, run.clients, run.labels, provenance, run.labels_at, run.confusion
    return keep(Result(spec, spec.key(), *kept))


def keep(result: Result) -> Result:
    """Write a result to the store; ``result.json`` goes last."""
    where = folder(result.key)
    arrays = io.BytesIO()
    clusters = {} if result.labels is None else {"labels": result.labels}
    clusters |= {f"at/{round}": labels.astype(np.int32) for round, labels in result.labels_at.items()}
    taken = {} if result.confusion is None else {"confusion": result.confusion.astype(np.int32)}
    np.savez_compressed(arrays, **clusters, **taken)
    files = {
        "history.csv": result.history.to_csv(index=False).encode(),
        "clients.csv": result.clients.to_csv(index=False).encode(),
        "arrays.npz": arrays.getvalue(),
    }
    for name, content in files.items():
        paths.write_atomically(where / name, lambda file, content=content: file.write(content))
    record = {
        "key": result.key,
        "settings": result.spec.settings(),
        "provenance": result.provenance,
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    text = json.dumps(record, indent=1).encode()
    paths.write_atomically(where / "result.json", lambda file: file.write(text))
    (where / "checkpoint.npz").unlink(missing_ok=True)
    return result


_BEGUN = time.time()


def _since(fresh: bool | None) -> float:
    """Return the time before which stored files are ignored: 0, the call, or with FLTNB_FRESH the process's start."""
    if fresh is None:
        return _BEGUN if os.environ.get("FLTNB_FRESH", "") not in ("", "0") else 0.0
    return time.time() if fresh else 0.0


def _there(path: Path, since: float) -> bool:
    return path.exists() and path.stat().st_mtime >= since


def _clustering_code(key: dict) -> str:
    from . import encoders, methods, relatedness

    clusterer = key.get("clusterer")
    name = clusterer.get("name") if isinstance(clusterer, dict) else None
    if name not in relatedness.CLUSTERERS:
        return code_version()
    used = [encoders.EncoderSpec] if key.get("encoder") else []
    return code_version(methods.fit_clusterer, getattr(relatedness, name), *used)


def _arrays_path(key: dict) -> Path:
    return paths.store() / "arrays" / f"{_hash({'key': plain(key), 'code': _clustering_code(key)})}.npz"


def _arrays(content: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    if not arrays:
        raise ValueError("it is empty")
    return arrays


def cached_arrays(key: dict, compute, since: float | None = None) -> dict[str, np.ndarray]:
    """Keep the arrays of a one-off computation (a clustering) in the store.

    Parameters
    ----------
    key : dict
        JSON-able description of the computation. The version of the code is added: of its ``clusterer`` and of the
        encoders if it names them as a method's settings do, else of all code.
    compute : callable
        Returns a dict of arrays.
    since : float, optional
        Ignore what was stored before this time; by default ``FLTNB_FRESH`` decides.
    """
    path = _arrays_path(key)
    if _there(path, _since(None) if since is None else since):
        try:
            return _arrays(path.read_bytes())
        except Exception as error:  # a damaged zip raises many types; whatever it is, the remedy is the same
            warnings.warn(f"Store entry {path} is damaged ({error}): only this one is computed again.", stacklevel=2)
    arrays = compute()
    paths.write_atomically(path, lambda file: np.savez(file, **arrays))
    return arrays


def compute(
    specs: Sequence[Spec],
    n_jobs: int = 1,
    fresh: bool | None = None,
    progress: bool = True,
    device: str = "auto",
    backend: str = "auto",
) -> list[Result]:
    """Return the results of many runs: looked up, resumed or computed, in the order of ``specs``.

    Parameters
    ----------
    specs : sequence of Spec
        For example ``fl.experiments.specs("01_scenario1", "demo")``.
    n_jobs : int
        Runs at a time on this machine; each then trains on one core. Runs go to a Dask cluster instead, as many at a
        time as it has workers, under ``joblib.parallel_config(backend="dask")`` or where the environment variable
        ``FLTNB_DASK`` has the address of a scheduler (docs/cluster.md).
    fresh : bool, optional
        Ignore runs and clusterings stored before this call (trained encoders are kept); by default the environment
        variable ``FLTNB_FRESH`` decides, and then what this process has stored counts.
    device, backend
        See :func:`fltnb.training.make_engine`.

    Raises
    ------
    FltnbError
        A spec cannot run (unknown method, too many clusters, ...), or the cluster cannot be used; found before any of
        them starts.

    Warns
    -----
    UserWarning
        A client's loss was not finite: the run is stored up to the round before, with the reason.
    """
    import joblib

    from . import methods

    if isinstance(specs, Spec):
        specs = [specs]
    if not isinstance(n_jobs, numbers.Integral) or n_jobs < 1:
        raise FltnbError(f"n_jobs must be a whole number of at least 1, not {n_jobs!r}.")
    for spec in specs:  # everything that can be wrong is found before the first minute is spent
        check(methods.build(spec.method), spec.federation_built(), **_arguments(spec))
    since = _since(fresh)
    keys = [spec.key() for spec in specs]
    # A stored run that is to be ignored stays until the new one takes its place: a stop in between loses nothing.
    known = {
        key: load(spec) if _there(folder(key) / "result.json", since) else None
        for key, spec in zip(keys, specs, strict=True)
    }
    missing = {key: spec for key, spec in zip(keys, specs, strict=True) if known[key] is None}
    for key in missing:
        if not _there(checkpoint := folder(key) / "checkpoint.npz", since):
            with suppress(OSError):  # a folder that cannot be written says so when the run is saved
                checkpoint.unlink()
    cluster = machines.active() if missing else None
    if cluster is not None:
        machines.check(cluster)
    clusterings: dict[str, list[Path]] = {key: [] for key in missing}
    with joblib.parallel_config(backend="loky") if cluster is not None else nullcontext():
        for key, spec in missing.items():  # clusterings are shared by many runs: make each once, with all cores

            def cache(arrays_key, make, used=clusterings[key]):
                used.append(_arrays_path(arrays_key))
                return cached_arrays(arrays_key, make, since)

            methods.build(spec.method).prepare(spec.federation_built(), methods.Context(spec.seed, cache, progress))
    if cluster is not None:
        known |= _on_cluster(cluster, missing, clusterings, progress, device, backend, since)
    else:
        done = _computed(list(missing.values()), n_jobs, progress, device, backend, since)
        known |= dict(zip(missing, done, strict=True))
    # Equal settings under two labels (a switch set to its default, say) are one run with two names.
    results = [replace(known[key], spec=spec) for key, spec in zip(keys, specs, strict=True)]
    for result in results:
        if result.stopped:
            warnings.warn(f"{result.spec}: {result.stopped}", stacklevel=2)
    return results


def _computed(specs, n_jobs, progress, device, backend, since):
    import joblib

    if n_jobs == 1 or len(specs) < 2:
        work = (_one(spec, progress, device, backend, None, since) for spec in specs)
    else:
        work = joblib.Parallel(n_jobs=n_jobs, return_as="generator")(
            joblib.delayed(_one)(spec, False, device, backend, 1, since) for spec in specs
        )
    yield from progress_bar(work, progress, total=len(specs), desc="runs", unit="run")


def _on_cluster(client, missing, clusterings, progress, device, backend, since) -> dict[str, Result]:
    """Send runs and the clusterings that they use to a Dask cluster; keep each result as it comes back."""
    files = {path.name: path.read_bytes() for used in clusterings.values() for path in used}
    needs = {key: [path.name for path in used] for key, used in clusterings.items()}
    tasks = {key: (spec, key, device, backend, since) for key, spec in missing.items()}
    done = {}
    back = machines.gather(client, _remote, tasks, files, needs)
    for key, result in progress_bar(back, progress, total=len(tasks), desc="runs", unit="run"):
        if not _there(folder(key) / "result.json", since):  # without a common file system it is on the worker's disk
            keep(result)
        done[key] = result
    return done


_ALONE = threading.Lock()  # two runs in one process would undo each other's limits on threads


def _remote(spec: Spec, key: str, device: str, backend: str, since: float, clusterings: dict[str, bytes]) -> Result:
    """Compute one run on a Dask worker, with the clusterings that the caller made."""

    def cache(arrays_key, make):
        content = clusterings.get(_arrays_path(arrays_key).name)
        return cached_arrays(arrays_key, make, since) if content is None else _arrays(content)

    with _ALONE, machines.children_allowed():
        try:
            if spec.key() != key:  # a worker that joined late was not looked at before
                raise FltnbError("its code or its data are not the caller's: give every machine the same.")
            if _there(folder(key) / "result.json", since) and (known := load(spec)) is not None:
                return known
            return _one(spec, False, device, backend, 1, since, cache)
        except FltnbError as error:
            raise FltnbError(f"{spec} cannot run on the Dask worker on {socket.gethostname()}: {error}") from error


def _one(
    spec: Spec, progress: bool, device: str, backend: str, n_workers: int | None, since: float, cache=None
) -> Result:
    from . import methods

    try:
        finished = run(
            methods.build(spec.method),
            spec.federation_built(),
            **_arguments(spec),
            device=device,
            backend=backend,
            n_workers=n_workers,
            n_jobs=n_workers,
            checkpoint=folder(spec.key()) / "checkpoint.npz",
            cache=cache or functools.partial(cached_arrays, since=since),
            progress=progress,
        )
    except DivergedError as error:
        finished = error.run  # stored with its reason
    return save(spec, finished)


def _arguments(spec: Spec) -> dict[str, Any]:
    """Return the settings of a spec that are arguments of :func:`fltnb.rounds.run`."""
    return {name: value for name, value in spec.settings().items() if name not in ("federation", "method")}


def tidy(results: Sequence[Result]) -> pd.DataFrame:
    """Long table of the last round: one row per run, split and metric, with the key of its provenance.

    Returns
    -------
    DataFrame
        Columns ``experiment, dataset, model, method, variant, note, rule, momentum, seed, split, metric, value, n,
        key, stopped``; the last says why a run ended early (its numbers are then those of the round before), else it is
        empty. ``split`` "probe" is there for federations with a second test set.
        Metrics: ``accuracy`` and ``worst`` (percent), ``micro_accuracy`` (weighted by samples), ``accuracy_variance``
        (percent squared); accuracy and variance over the first client of each true cluster only
        (``first_clients_...``); ``micro_f1, macro_f1, pooled_f1`` (:func:`fltnb.metrics.f1_summary`); ``ari`` and
        ``n_clusters`` of the final clusters; ``seconds``, ``bytes``.
    """
    import pandas as pd

    from . import methods, metrics

    rows = []
    for result in results:
        spec, history = result.spec, result.history
        base = {
            "experiment": spec.experiment,
            "dataset": spec.dataset,
            "model": spec.model,
            "method": spec.method_id,
            "variant": spec.variant,
            "note": spec.note,
            "rule": methods.build(spec.method).options().get("rule", ""),
            "momentum": spec.momentum,
            "seed": spec.seed,
        }

        last_columns = {"key": result.key, "stopped": result.stopped}

        def add(split, metric, value, n=np.nan, base=base, end=last_columns):
            rows.append({**base, "split": split, "metric": metric, "value": value, "n": n, **end})

        for split in ("train", "test", "probe") if "probe" in result.clients else ("train", "test"):
            last = history[history["split"] == split].iloc[-1]
            n = _pooled(spec, split)
            add(split, "accuracy", last["accuracy"], n)
            add(split, "accuracy_variance", last["variance"])
            add(split, "worst", last["worst"])
            add(split, "micro_accuracy", last["micro"], n)
        if result.confusion is not None:
            for metric, value in metrics.f1_summary(result.confusion).items():
                add("test", metric, value)
        truth = result.clients["true_cluster"].to_numpy()
        if (truth >= 0).all():
            # What FLT's code looked at in scenarios 1 and 2, where all clients of a cluster share their test images.
            first = result.clients["test"].to_numpy()[np.unique(truth, return_index=True)[1]]
            add("test", "first_clients_accuracy", metrics.mean_accuracy(first))
            add("test", "first_clients_variance", metrics.variance(first))
        if result.labels is not None:
            if (truth >= 0).all():
                add("", "ari", metrics.adjusted_rand_index(truth, result.labels))
            add("", "n_clusters", len(np.unique(result.labels)))
        add("", "bytes", float(history["bytes_up"].iloc[-1] + history["bytes_down"].iloc[-1]))
        add("", "seconds", result.provenance["seconds"])
    return pd.DataFrame(rows)


def _pooled(spec: Spec, split: str) -> int:
    """Distinct samples behind a split's accuracies, over all clients: the n of the papers' binomial error."""
    fed = spec.federation_built()
    return len(np.unique(np.concatenate(getattr(fed, split))))


def curves(results: Sequence[Result]) -> pd.DataFrame:
    """Stack the curves of all runs, with the columns ``dataset, model, method, variant, note, seed`` in front."""
    import pandas as pd

    frames = []
    for result in results:
        spec = result.spec
        labels = {"dataset": spec.dataset, "model": spec.model, "method": spec.method_id}
        labels |= {"variant": spec.variant, "note": spec.note}
        frames.append(result.history.assign(**labels, seed=spec.seed))
    table = pd.concat(frames, ignore_index=True)
    front = ["dataset", "model", "method", "variant", "note", "seed"]
    return table[front + [name for name in table.columns if name not in front]]


def write_results(results: Sequence[Result], profile: str, name: str) -> list[Path]:
    """Write ``results/<profile>/<name>.csv``, ``_curves.csv``, ``_clients.csv`` and ``_provenance.json``.

    The provenance file holds, for every key of the tables, the settings, seed, package versions, commit, hardware, data
    origin, wall time and date of its run.
    """
    import pandas as pd

    where = paths.results(profile)
    table = curves(results).drop(columns=["seconds"]).round(4)
    kept = ["client", "cluster", "true_cluster", "samples", "train", "test", "probe"]
    clients = pd.concat(
        [r.clients[[name for name in kept if name in r.clients]].round(4).assign(key=r.key) for r in results],
        ignore_index=True,
    )
    record = {
        r.key: {"settings": r.spec.settings(), "labels": r.spec.labels(), "provenance": r.provenance} for r in results
    }
    written = {
        f"{name}.csv": tidy(results).to_csv(index=False),
        f"{name}_curves.csv": table.to_csv(index=False),
        f"{name}_clients.csv": clients.to_csv(index=False),
        f"{name}_provenance.json": json.dumps(record, indent=1),
    }
    return [
        paths.write_atomically(where / file, lambda handle, text=text: handle.write(text.encode()))
        for file, text in written.items()
    ]


def per_client(results: Sequence[Result]) -> pd.DataFrame:
    """Stack the last-round test accuracy of every client: ``method, variant, seed, client, cluster, accuracy``."""
    import pandas as pd

    frames = []
    for result in results:
        table = result.clients.rename(columns={"test": "accuracy"})
        table["cluster"] = table["true_cluster"]
        labels = {"method": result.spec.method_id, "variant": result.spec.variant, "seed": result.spec.seed}
        frames.append(table[["client", "cluster", "accuracy"]].assign(**labels))
    return pd.concat(frames, ignore_index=True)


@dataclass(frozen=True)
class Stored:
    """Committed results of one notebook and profile: last rounds, curves, and the record of each run behind them."""

    profile: str
    tidy: pd.DataFrame
    curves: pd.DataFrame
    record: dict[str, Any]

    def provenance(self) -> pd.DataFrame:
        """One line per data set: runs, seeds, wall time, commit, hardware, data origin, last day."""
        import pandas as pd

        rows = []
        for dataset in dict.fromkeys(entry["labels"]["dataset"] for entry in self.record.values()):
            runs = [entry for entry in self.record.values() if entry["labels"]["dataset"] == dataset]
            where = [entry["provenance"] for entry in runs]
            rows.append(
                {
                    "dataset": dataset,
                    "runs": len(runs),
                    "seeds": len({entry["settings"]["seed"] for entry in runs}),
                    "minutes of training": sum(p["seconds"] for p in where) / 60,
                    "commit": ", ".join(sorted({p["commit"] for p in where})),
                    "hardware": ", ".join(sorted({p["hardware"] for p in where})),
                    "data": ", ".join(sorted({p["data_origin"] for p in where})),
                    "last run": max(p["finished"] for p in where)[:10],
                }
            )
        return pd.DataFrame(rows)


def stored(name: str, profiles: Sequence[str] = ("small", "paper")) -> list[Stored]:
    """Return the committed results of a notebook, one entry per profile that has them (``demo`` is not committed)."""
    found = []
    for profile in profiles:
        where = paths.results(profile)
        record = where / f"{name}_provenance.json"
        if record.exists():
            known = json.loads(record.read_text(encoding="utf-8"))
            tidy = _read(where / f"{name}.csv")
            if "stopped" not in tidy:  # written before this column was
                tidy["stopped"] = [known[key]["provenance"].get("stopped", "") for key in tidy["key"]]
            found.append(Stored(profile, tidy, _read(where / f"{name}_curves.csv"), known))
    return found


def _read(file: Path) -> pd.DataFrame:
    """Read a written table; an empty note is a note, an empty number (of a group that is not there) is missing."""
    import pandas as pd

    names = ("experiment", "dataset", "model", "method", "variant", "note", "rule", "split", "metric", "key", "stopped")
    table = pd.read_csv(file, dtype=dict.fromkeys(names, str))
    text = [name for name in names if name in table]
    table[text] = table[text].fillna("")
    return table
