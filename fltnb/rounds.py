"""The one loop over rounds: who takes part, dispatch, train, collect, evaluate, record, checkpoint.

:func:`run` is a pure function of its settings. Stopping it (Ctrl-C, ``kill -9``, a power cut) loses at most the time
since the last checkpoint, and the run that continues ends with the same bits as one that was never disturbed.
"""

from __future__ import annotations

import inspect
import json
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from . import metrics
from .errors import FltnbError, choose
from .federations import SPLITS, Federation
from .federations.own import integers
from .federations.phases import GROUPS, ChangingFederation, phases
from .methods import Context, Method
from .methods.state import State
from .paths import remove_left_over, write_atomically
from .progress import bar as progress_bar
from .randomness import stream
from .settings import Count, Within, checked, plain

if TYPE_CHECKING:
    from .models import Model
    from .training import TrainSpec

CHECKPOINT_SECONDS = 20.0


@dataclass
class Run:
    """What a run leaves behind.

    Attributes
    ----------
    history : DataFrame
        One row per evaluated round and split: ``round, split, accuracy`` (percent, unweighted mean over clients),
        ``micro`` (percent, weighted by samples), ``variance`` (population variance over clients, percent squared),
        ``worst`` (percent), ``loss`` (mean over clients), ``seconds`` (since the start), ``bytes_up, bytes_down`` (sent
        so far, all clients); for a federation that changes also the mean by group: ``accuracy_stayed, accuracy_drifted,
        accuracy_joined`` (NaN while there are none). Split "probe", at the end only: the second test set, if any.
    clients : DataFrame, at the last round: ``client, cluster, true_cluster, samples, train, test, probe`` (percent)
    labels : array (M,) or None, final cluster of each client
    theta, rows : arrays (K, P), (M,), final models; client i is served by ``theta[rows[i]]``
    settings : dict, everything that determines the numbers
    seconds : float, wall time, resumed parts included
    stopped : str, why the run ended early (a client's loss was not finite), else empty
    labels_at : dict, evaluated round -> cluster of each client that was there (M,); empty for methods without clusters
    confusion : int64 array (M, C, C), :func:`confusion` of test samples at the end; None if ``not method.tests_served``
    """

    history: pd.DataFrame
    clients: pd.DataFrame
    labels: np.ndarray | None
    theta: np.ndarray
    rows: np.ndarray
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    stopped: str = ""
    labels_at: dict[int, np.ndarray] = field(default_factory=dict)
    confusion: np.ndarray | None = None

    @property
    def accuracy(self) -> float:
        """Mean test accuracy over clients at the last round, percent."""
        return float(self.history.query("split == 'test'")["accuracy"].iloc[-1])

    def __repr__(self) -> str:
        what = f"{self.settings.get('method', {}).get('name', '?')}, {self.history['round'].max()} rounds"
        what += (
            "" if self.labels is None else f", {len(np.unique(self.labels))} clusters"
        )
        return f"Run({what}, test accuracy {self.accuracy:.2f} %, {self.seconds:.1f} s)"


class DivergedError(FltnbError):
    """Training produced a loss that is not finite; ``run`` holds everything up to the round before."""

    def __init__(self, message: str, run: Run):
        super().__init__(message)
        self.run = run

    def __reduce__(self):
        return type(self), (
            str(self),
            self.run,
        )  # else it would not come back from a worker process


def participants(
    n_clients: int, participation: float, seed: int, round: int
) -> np.ndarray:
    """Clients of one round, ascending: ``max(int(participation * M), 1)`` drawn without replacement."""
    n = max(int(participation * n_clients + 1e-9), 1)
    return np.sort(
        stream(seed, "participation", round).choice(n_clients, size=n, replace=False)
    )


def run(
    method: Method,
    fed: Federation,
    model: str = "mlp",
    rounds: Count = 20,
    local_epochs: int = 1,
    participation: Annotated[float, Within(high=1.0, above=True)] = 0.2,
    batch_size: int = 10,
    lr: float = 0.01,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    proximal: float = 0.0,
    seed: int = 0,
    device: str = "auto",
    backend: str = "auto",
    n_workers: int | None = None,
    eval_every: Count = 1,
    dtype: str = "float32",
    precision: str = "float32",
    checkpoint: str | Path | None = None,
    cache=None,
    progress: bool = True,
    n_jobs: int | None = None,
    watch: Callable[[int, dict, np.ndarray | None, np.ndarray], None] | None = None,
) -> Run:
    """Run a federated method on a federation.

    Parameters
    ----------
    method : Method, for example ``fl.methods.FedAvg()``
    fed : Federation
        One that changes (:func:`fltnb.federations.with_events`) does so before the rounds it names: each round draws
        from, and evaluates, the clients that are there, on the data they hold then.
    model : str, a name of :data:`fltnb.models.NAMES`
    rounds, local_epochs, participation, batch_size, lr, momentum, weight_decay, proximal
        Rounds T, epochs E per round, share rho of clients per round in (0, 1], batch B, SGD's learning rate, momentum
        and weight decay, and the weight mu of the proximal term.
    seed : int, of all draws but the federation's
    precision : {"float32", "bfloat16"}, type that convolutions compute in (:class:`fltnb.training.TrainSpec`)
    device, backend, n_workers, dtype : see :func:`fltnb.training.make_engine`; they change rounding only
    eval_every : int, evaluate every so many rounds, and after the last
    checkpoint : path, optional, file that is written about every 20 s and continued from; removed by nobody
    cache, n_jobs, progress : see :class:`fltnb.methods.Context`
    watch : callable, optional
        Told after every round, and before the first: the round, the state, the models (n, P) that came back, and the
        clients' test accuracy (M,) at the last evaluation, percent (None after a resume, until the next one).

    Raises
    ------
    FltnbError
        A setting is out of range; before any work starts.
    DivergedError
        A client's loss or model stopped being finite; the error carries the run up to the round before.
    """
    given = dict(locals())
    from . import training

    numbers = plain({name: given[name] for name in NUMBERS})
    spec, net = check(method, fed, model, **numbers)
    about = {
        "method": method.settings(),
        "federation": fed.settings,
        "data": fed.fingerprint(),
        "model": model,
    }
    # NumPy in one thread, so that sums have one order on every machine and under every scheduler
    with threadpool_limits(1, user_api="blas"), ExitStack() as open_engine:

        def make_engine(fed):
            open_engine.close()  # of the phase before
            return open_engine.enter_context(
                training.make_engine(fed, net, spec, backend, device, n_workers)
            )

        context = Context(spec.seed, cache, progress, n_jobs)
        return _loop(
            make_engine,
            method,
            fed,
            net,
            plain(about) | numbers,
            context,
            checkpoint,
            progress,
            watch,
        )


_NOT = (
    "method fed model device backend n_workers checkpoint cache progress n_jobs watch"
)
NUMBERS = {
    name: one.default
    for name, one in inspect.signature(run).parameters.items()
    if name not in _NOT.split()
}
"""Arguments of :func:`run` that decide its numbers, beside method, federation and model, and their defaults."""


@dataclass
class _Progress:
    """What a checkpoint holds: the state of the method, and the record up to a round."""

    state: State | None = None
    round: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    labels_at: dict[int, np.ndarray] = field(default_factory=dict)
    seconds: float = 0.0
    up: int = 0  # bytes
    down: int = 0


def _loop(
    make_engine, method, federation, net, settings, context, checkpoint, progress, watch
) -> Run:
    done = _load(checkpoint, settings, method) if checkpoint else None
    done = done or _Progress()
    coming = {phase.round: phase for phase in phases(federation)}
    fed = [phase.fed for phase in coming.values() if phase.round <= max(1, done.round)][
        -1
    ]
    engine = make_engine(fed)
    begun = time.monotonic() - done.seconds
    if done.round == 0:
        done.state = method.start(fed, net, context)
        for name, value in done.state.arrays().items():
            if np.asarray(value).dtype == object:
                raise FltnbError(
                    f"The state of {method.name} may hold arrays only, which {name} "
                    "is not: leave it out."
                )
        if settings["dtype"] == "float64":
            done.state = done.state.mapped(_as_float64)
    rounds, written, pause = settings["rounds"], time.monotonic(), CHECKPOINT_SECONDS
    bar = progress_bar(
        total=rounds, initial=done.round, desc=method.name, unit="round", shown=progress
    )
    last: dict[str, np.ndarray] = {}  # accuracy per client at the last evaluation

    def evaluate(round: int, final: bool) -> None:
        done.history = [row for row in done.history if row["round"] != round]
        up, down = method.setup_bytes(done.state)
        now = {
            "seconds": time.monotonic() - begun,
            "bytes_up": int(done.up + up),
            "bytes_down": int(done.down + down),
        }
        for split in (
            ("train", "test", "probe") if final and fed.probed else ("train", "test")
        ):
            result = method.evaluate(done.state, engine, split)
            last[split] = metrics.accuracy(result.correct, result.total)
            row = {"round": round, "split": split} | metrics.summary(
                result.correct, result.total
            )
            if isinstance(
                federation, ChangingFederation
            ):  # apart for clients that stayed, drifted or joined
                groups = federation.groups[: len(last[split])]
                row |= {
                    f"accuracy_{name}": metrics.mean_accuracy(
                        last[split][groups == name]
                    )
                    for name in GROUPS
                }
            done.history.append(
                row | {"loss": float(np.mean(result.loss[result.total > 0]))} | now
            )
        labels = method.labels(done.state)
        if labels is not None:
            done.labels_at[round] = integers(
                f"The labels of {method.name}", labels, fed.n_clients, "client"
            ).copy()
        bar.set_postfix_str(
            f"test accuracy {metrics.mean_accuracy(last['test']):.1f} %", refresh=False
        )

    stopped = ""
    if done.round == 0:
        evaluate(0, final=False)
        if watch:
            watch(0, done.state, None, last["test"])
    for round in range(done.round + 1, rounds + 1):
        if round > 1 and round in coming:
            before = fed, done.state
            _, fed, changed = coming[round]
            done.state = method.changed(done.state, fed, net, changed, context)
            engine = make_engine(fed)
        clients = participants(
            fed.n_clients, settings["participation"], settings["seed"], round
        )
        state, trained = method.train(
            method.observe(done.state, clients, round, engine), clients, round, engine
        )
        lost = ~np.isfinite(trained.loss) | ~np.isfinite(trained.theta.sum(axis=1))
        if lost.any():
            who, when = f"client {clients[lost][0]}", f"round {round} of {rounds}"
            mend = "choose a smaller lr, or look at this client's data. Everything up to the round before is kept."
            stopped = (
                f"Training stopped at {when}: the loss of {who} is not finite; {mend}"
            )
            break
        done.state = method.revise(
            method.collect(state, clients, trained.theta, round), fed, round, context
        )
        received, sent = method.traffic(done.state, net.n_parameters)
        done.up += len(clients) * sent * 4  # numbers travel as float32
        done.down += len(clients) * received * 4
        done.round = round
        if round % settings["eval_every"] == 0 or round == rounds:
            evaluate(round, final=round == rounds)
        if watch:
            watch(round, done.state, trained.theta, last.get("test"))
        if (
            checkpoint
            and round < rounds
            and (now := time.monotonic()) - written > pause
        ):
            done.seconds = now - begun
            _save(checkpoint, settings, done)
            written = time.monotonic()
            pause = CHECKPOINT_SECONDS * max(
                1, written - now
            )  # a state of gigabytes is saved less often
        bar.update()
    bar.close()
    if stopped:
        if round > 1 and round in coming:
            (fed, done.state), engine = before, make_engine(before[0])
        evaluate(round - 1, final=True)
    done.seconds = time.monotonic() - begun
    theta, rows = method.serve(done.state)
    labels = method.labels(done.state)
    clients = {
        "client": np.arange(fed.n_clients),
        "cluster": -1 if labels is None else labels,
        "true_cluster": -1 if fed.clusters is None else fed.clusters,
        "samples": np.asarray(fed.sizes),
        **{split: last[split] for split in ("train", "test", "probe") if split in last},
    }
    taken = (
        confusion(net, theta, rows, fed, device=str(engine.device))
        if method.tests_served
        else None
    )
    tables = pd.DataFrame(done.history), pd.DataFrame(clients)
    if (
        not stopped and not np.isfinite(theta[np.unique(rows)]).all()
    ):  # by the method, from finite models
        stopped = f"The models that {method.name} serves in the end are not finite: look at its `collect` and `serve`."
    result = Run(
        *tables,
        labels,
        theta,
        rows,
        settings,
        done.seconds,
        stopped,
        done.labels_at,
        taken,
    )
    if stopped:
        raise DivergedError(stopped, result)
    return result


def confusion(
    model: Model,
    theta: np.ndarray,
    rows: Sequence[int],
    fed: Federation,
    split: str = "test",
    device: str = "cpu",
) -> np.ndarray:
    """Count what every client's samples are taken for: int64 (M, C, C), classes as rows, predictions as columns.

    Client i is served by ``theta[rows[i]]`` (K, P), (M,); zeros for one without samples. FltnbError: what does not fit.
    """
    from .methods.samples import outputs
    from .training import TrainSpec
    from .training.evaluation import same_sets
    from .training.serial import SerialEngine

    parts, C = getattr(fed, choose(split, SPLITS, "split")), model.n_classes
    engine = SerialEngine(
        fed, model, TrainSpec(dtype=np.asarray(theta).dtype.name), device
    )
    theta, rows, _ = engine.check(theta, np.ravel(rows), range(fed.n_clients))
    pairs = list(zip(rows, same_sets(parts), strict=True))
    counts = {pair: np.zeros((C, C), dtype=np.int64) for pair in pairs}
    for (row, client), count in counts.items():
        if len(index := parts[client]):
            np.add.at(
                count,
                (
                    fed.labels[index],
                    outputs(engine, model.predict, theta[[row]], index)[0].argmax(1),
                ),
                1,
            )
    return np.stack([counts[pair] for pair in pairs])


def check(
    method: Method, fed: Federation, model: str = "mlp", **numbers: Any
) -> tuple[TrainSpec, Model]:
    """Refuse what cannot run, before anything is computed; arguments, of :data:`NUMBERS`, as for :func:`run`.

    Returns local training, and the network shaped by the federation's data. FltnbError: a setting is out of range or of
    the wrong type, or method, model and federation do not go together.
    """
    from . import models
    from .training import TrainSpec

    if not isinstance(method, Method):
        name = method.__name__ if isinstance(method, type) else "FedAvg"
        raise FltnbError(
            f"method must be a method such as fl.methods.{name}(...), not {method!r}."
        )
    if not isinstance(fed, Federation):
        raise FltnbError(
            f"A run needs a Federation, not {type(fed).__name__}: see fl.Federation.from_arrays(...)."
        )
    full = checked(
        run, {"method": method, "fed": fed, "model": model} | numbers, "a run"
    )
    rounds, participation = full["rounds"], full["participation"]
    if full["proximal"] and "proximal" in method.local_training():
        raise FltnbError(
            f"{method.name} has a proximal term of its own: leave proximal out."
        )
    spec = TrainSpec(
        **{one.name: full[one.name] for one in fields(TrainSpec)}
        | method.local_training()
    )
    parts = phases(fed)
    if parts[-1].round > rounds:
        early = f"changes before round {parts[-1].round} but the run ends with round {rounds}"
        raise FltnbError(f"The federation {early}: ask for more rounds.")
    if (
        parts[-1].fed.n_clients > parts[0].fed.n_clients
        and type(method).changed is Method.changed
    ):
        raise FltnbError(
            f"Method {method.name} does not say what a client that joins is served: give it `changed`."
        )
    net = models.make(model, fed.input_shape, fed.n_classes)
    if method.layered and net.large:
        raise FltnbError(
            f"{method.name} needs a network of fltnb.models.NAMES, not {net.name!r}: choose another one."
        )
    for phase in parts:
        method.check(phase.fed)
        net.check(phase.fed, spec.batch_size)
    if type(method).foresee is not Method.foresee:
        n_clients = [
            [phase.fed.n_clients for phase in parts if phase.round <= t][-1]
            for t in range(1, rounds + 1)
        ]
        method.foresee(
            parts,
            [
                participants(n, participation, spec.seed, t)
                for t, n in enumerate(n_clients, start=1)
            ],
        )
    return spec, net


def _as_float64(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _save(path, settings, done: _Progress) -> None:
    held = {"state": done.state.arrays(), "labels_at": done.labels_at}
    arrays = {
        f"{part}/{name}": value
        for part, own in held.items()
        for name, value in own.items()
    }
    meta = json.dumps(
        vars(done)
        | {"settings": settings}
        | {part: [*own] for part, own in held.items()},
        default=repr,
    )
    write_atomically(path, lambda file: np.savez(file, meta=meta, **arrays))


def _load(path, settings, method) -> _Progress | None:
    """Return the saved run, or None if there is none, it is damaged, or it belongs to other settings."""
    path = Path(path)
    remove_left_over(path)
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            meta = json.loads(str(file["meta"]))
            for part in ("state", "labels_at"):
                meta[part] = {name: file[f"{part}/{name}"] for name in meta[part]}
        meta["state"] = method.state_type(**meta["state"])
        same = meta.pop("settings") == json.loads(json.dumps(settings, default=repr))
        done = _Progress(**meta)
    except Exception as error:  # a damaged zip raises many types; whatever it is, the remedy is the same
        aside = path.replace(f"{path}.damaged").name  # it may be any file
        text = f"Checkpoint {path} is damaged ({error}), and now {aside}: this run starts from round 1."
        warnings.warn(text, stacklevel=2)
        return None
    if not same:
        raise FltnbError(
            f"Checkpoint {path} belongs to a run with other settings: delete it or name another file."
        )
    return done
