"""The one loop over rounds: draw, dispatch, train, collect, evaluate, record.

:func:`run` is a pure function of its settings. Stopping it (Ctrl-C, ``kill -9``, a
power cut) loses at most the time since the last checkpoint, and the run that continues
ends with the same bits as one that was never disturbed.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from . import metrics
from . import progress as bars
from .checkpoint import Checkpoint
from .errors import FltnbError
from .federations import Federation
from .federations.own import integers
from .federations.phases import phases
from .methods import Context, Method
from .randomness import stream
from .record import (
    DivergedError,
    Progress,
    Run,
    clients_table,
    confusion,
    history_row,
)
from .settings import Count, Within, checked, plain

if TYPE_CHECKING:
    from .models import Model
    from .training import Engine, TrainSpec

__all__ = ["NUMBERS", "DivergedError", "Run", "check", "confusion", "participants"]
__all__ += ["run"]


def participants(
    n_clients: int, participation: float, seed: int, round: int
) -> np.ndarray:
    """Clients of one round, ascending.

    ``max(int(participation * M), 1)`` of them, drawn without replacement.
    """
    n = max(int(participation * n_clients + 1e-9), 1)
    rng = stream(seed, "participation", round)
    return np.sort(rng.choice(n_clients, size=n, replace=False))


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
    method : Method
        For example ``fl.methods.FedAvg()``.
    fed : Federation
        One that changes (:func:`fltnb.federations.with_events`) does so before the
        rounds it names: each round draws from, and evaluates, the clients that are
        there, on the data they hold then.
    model : str
        A name of :data:`fltnb.models.NAMES`.
    rounds, local_epochs, participation, batch_size
        Rounds T, epochs E per round, share rho of clients per round in (0, 1], batch B.
    lr, momentum, weight_decay, proximal
        SGD's learning rate, momentum and weight decay, and the weight mu of the
        proximal term.
    seed : int
        Of all draws but the federation's.
    precision : {"float32", "bfloat16"}
        Type that convolutions compute in (:class:`fltnb.training.TrainSpec`).
    device, backend, n_workers, dtype
        See :func:`fltnb.training.make_engine`; they change rounding only.
    eval_every : int
        Evaluate every so many rounds, and after the last.
    checkpoint : path, optional
        File that is written about every 20 s and continued from; removed by nobody.
    cache, n_jobs, progress
        See :class:`fltnb.methods.Context`.
    watch : callable, optional
        Told after every round, and before the first: the round, the state, the models
        (n, P) that came back, and the clients' test accuracy (M,) at the last
        evaluation, percent (None after a resume, until the next one).

    Raises
    ------
    FltnbError
        A setting is out of range; before any work starts.
    DivergedError
        A client's loss or model stopped being finite; the error carries the run up to
        the round before.
    """
    given = dict(locals())
    from . import training

    numbers = plain({name: given[name] for name in NUMBERS})
    spec, net = check(method, fed, model, **numbers)
    settings = {
        "method": method.settings(),
        "federation": fed.settings,
        "data": fed.fingerprint(),
        "model": model,
    }
    settings = plain(settings) | numbers
    context = Context(spec.seed, cache, progress, n_jobs)

    # NumPy in one thread, so that sums have one order on every machine and under every
    # scheduler
    with threadpool_limits(1, user_api="blas"), ExitStack() as open_engine:

        def make_engine(fed: Federation) -> Engine:
            open_engine.close()  # of the phase before
            engine = training.make_engine(fed, net, spec, backend, device, n_workers)
            return open_engine.enter_context(engine)

        course = _Course(method, fed, net, settings, context, make_engine)
        return _loop(course, Checkpoint(checkpoint, settings), progress, watch)


# arguments of `run` that decide no numbers, or do so in a way of their own
_NOT = {"method", "fed", "model", "device", "backend", "n_workers", "checkpoint"}
_NOT |= {"cache", "progress", "n_jobs", "watch"}
NUMBERS = {
    name: one.default
    for name, one in inspect.signature(run).parameters.items()
    if name not in _NOT
}
"""Arguments of :func:`run` that decide its numbers, and their defaults.

Beside method, federation and model.
"""


def _loop(
    course: _Course, checkpoint: Checkpoint, shown: bool, watch: Callable | None
) -> Run:
    rounds = course.settings["rounds"]
    done = checkpoint.load(course.method)
    course.begin(done)
    bar = bars.bar(
        total=rounds,
        initial=done.round,
        desc=course.method.name,
        unit="round",
        shown=shown,
    )

    stopped = ""
    if done.round == 0:
        course.evaluate()
        if watch:
            watch(0, done.state, None, course.accuracy["test"])
    for round in range(done.round + 1, rounds + 1):
        before = course.fed, done.state
        course.enter(round)
        state, clients, trained = course.train(round)
        stopped = _divergence(clients, trained, round, rounds)
        if stopped:
            course.return_to(*before)
            course.evaluate(final=True)
            break

        course.collect(state, clients, trained.theta, round)
        if round % course.settings["eval_every"] == 0 or round == rounds:
            course.evaluate(final=round == rounds)
            mean = metrics.mean_accuracy(course.accuracy["test"])
            bar.set_postfix_str(f"test accuracy {mean:.1f} %", refresh=False)
        if watch:
            watch(round, done.state, trained.theta, course.accuracy.get("test"))
        if round < rounds:
            checkpoint.save_if_due(done, course.begun)
        bar.update()
    bar.close()
    return course.result(stopped)


def _divergence(clients: np.ndarray, trained, round: int, rounds: int) -> str:
    """Say which client's training went wrong, if one's did."""
    finite = np.isfinite(trained.loss) & np.isfinite(trained.theta.sum(axis=1))
    if finite.all():
        return ""
    return (
        f"Training stopped at round {round} of {rounds}: the loss of client "
        f"{clients[~finite][0]} is not finite; choose a smaller lr, or look at this "
        "client's data. Everything up to the round before is kept."
    )


class _Course:
    """A run under way.

    Attributes
    ----------
    done : Progress
    fed : Federation
        The clients that are there now, with the data they hold now.
    engine : Engine
        That trains and evaluates them.
    begun : float
        When the run began on the monotonic clock, had it never been stopped.
    accuracy : dict
        Split -> accuracy (M,) at the last evaluation, percent.
    """

    def __init__(
        self,
        method: Method,
        federation: Federation,
        net: Model,
        settings: dict[str, Any],
        context: Context,
        make_engine: Callable[[Federation], Engine],
    ):
        self.method = method
        self.federation = federation
        self.net = net
        self.settings = settings
        self.context = context
        self.make_engine = make_engine
        self.phases = {phase.round: phase for phase in phases(federation)}
        self.accuracy = {}

    def begin(self, done: Progress) -> None:
        """Start the method, or go on where the run was."""
        self.done = done
        now = max(1, done.round)
        begun = [phase for phase in self.phases.values() if phase.round <= now]
        self.fed = begun[-1].fed
        self.engine = self.make_engine(self.fed)
        self.begun = time.monotonic() - done.seconds
        if done.round > 0:
            return

        done.state = self.method.start(self.fed, self.net, self.context)
        for name, value in done.state.arrays().items():
            if np.asarray(value).dtype == object:
                raise FltnbError(
                    f"The state of {self.method.name} may hold arrays only, which "
                    f"{name} is not: leave it out."
                )
        if self.settings["dtype"] == "float64":
            done.state = done.state.mapped(_as_float64)

    def enter(self, round: int) -> None:
        """Let the federation change, if it does before this round."""
        if round == 1 or round not in self.phases:
            return
        _, self.fed, changed = self.phases[round]
        self.done.state = self.method.changed(
            self.done.state, self.fed, self.net, changed, self.context
        )
        self.engine = self.make_engine(self.fed)

    def return_to(self, fed: Federation, state) -> None:
        """Take back what :meth:`enter` did."""
        self.done.state = state
        if fed is not self.fed:
            self.fed = fed
            self.engine = self.make_engine(fed)

    def train(self, round: int):
        """Return state, participants (n,) and what they trained."""
        share = self.settings["participation"]
        seed = self.settings["seed"]
        clients = participants(self.fed.n_clients, share, seed, round)
        state = self.method.observe(self.done.state, clients, round, self.engine)
        state, trained = self.method.train(state, clients, round, self.engine)
        return state, clients, trained

    def collect(
        self, state, clients: np.ndarray, theta: np.ndarray, round: int
    ) -> None:
        """Finish the round: the method's new state, and the traffic."""
        method = self.method
        state = method.collect(state, clients, theta, round)
        state = method.revise(state, self.fed, round, self.context)
        received, sent = method.traffic(state, self.net.n_parameters)

        done = self.done
        done.state = state
        done.round = round
        done.up += len(clients) * sent * 4  # numbers travel as float32
        done.down += len(clients) * received * 4

    def evaluate(self, final: bool = False) -> None:
        """Test all clients and record it, in place of an earlier record of the round.

        ``final``: on the second test set as well, if there is one.
        """
        done = self.done
        up, down = self.method.setup_bytes(done.state)
        spent = {
            "seconds": time.monotonic() - self.begun,
            "bytes_up": int(done.up + up),
            "bytes_down": int(done.down + down),
        }
        splits = ["train", "test"]
        if final and self.fed.probed:
            splits.append("probe")

        done.history = [row for row in done.history if row["round"] != done.round]
        for split in splits:
            result = self.method.evaluate(done.state, self.engine, split)
            self.accuracy[split] = metrics.accuracy(result.correct, result.total)
            row = history_row(self.federation, done.round, split, result)
            done.history.append(row | spent)
        labels = self.method.labels(done.state)
        if labels is not None:
            what = f"The labels of {self.method.name}"
            labels = integers(what, labels, self.fed.n_clients, "client")
            done.labels_at[done.round] = labels.copy()

    def result(self, stopped: str) -> Run:
        """Return the run, or raise DivergedError with it, where it ``stopped``."""
        done = self.done
        done.seconds = time.monotonic() - self.begun
        theta, rows = self.method.serve(done.state)
        labels = self.method.labels(done.state)
        counts = None
        if self.method.tests_served:
            device = str(self.engine.device)
            counts = confusion(self.net, theta, rows, self.fed, device=device)
        if not stopped and not np.isfinite(theta[np.unique(rows)]).all():
            stopped = (
                f"The models that {self.method.name} serves in the end are not finite: "
                "look at its `collect` and `serve`."
            )
        run = Run(
            pd.DataFrame(done.history),
            clients_table(self.fed, labels, self.accuracy),
            labels,
            theta,
            rows,
            self.settings,
            done.seconds,
            stopped,
            done.labels_at,
            counts,
        )
        if stopped:
            raise DivergedError(stopped, run)
        return run


def _as_float64(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def check(
    method: Method, fed: Federation, model: str = "mlp", **numbers: Any
) -> tuple[TrainSpec, Model]:
    """Refuse what cannot run, before anything is computed.

    ``numbers``: arguments, of :data:`NUMBERS`, as for :func:`run`. Returns local
    training, and the network shaped by the federation's data. A setting that is out of
    range or of the wrong type raises :class:`fltnb.FltnbError`, as do method, model and
    federation that do not go together.
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
            f"A run needs a Federation, not {type(fed).__name__}: "
            "see fl.Federation.from_arrays(...)."
        )
    options = {"method": method, "fed": fed, "model": model} | numbers
    full = checked(run, options, "a run")
    own = method.local_training()
    if full["proximal"] and "proximal" in own:
        raise FltnbError(
            f"{method.name} has a proximal term of its own: leave proximal out."
        )
    spec = TrainSpec(**{one.name: full[one.name] for one in fields(TrainSpec)} | own)

    _check_phases(method, fed, full["rounds"])
    net = models.make(model, fed.input_shape, fed.n_classes)
    if method.layered and net.large:
        raise FltnbError(
            f"{method.name} needs a network of fltnb.models.NAMES, not {net.name!r}: "
            "choose another one."
        )
    for phase in phases(fed):
        method.check(phase.fed)
        net.check(phase.fed, spec.batch_size)
    _foresee(method, fed, full["rounds"], full["participation"], spec.seed)
    return spec, net


def _check_phases(method: Method, fed: Federation, rounds: int) -> None:
    """Refuse changes after the last round, and newcomers whom nobody serves."""
    first = phases(fed)[0]
    last = phases(fed)[-1]
    if last.round > rounds:
        raise FltnbError(
            f"The federation changes before round {last.round} but the run ends with "
            f"round {rounds}: ask for more rounds."
        )
    joined = last.fed.n_clients > first.fed.n_clients
    if joined and type(method).changed is Method.changed:
        raise FltnbError(
            f"Method {method.name} does not say what a client that joins is served: "
            "give it `changed`."
        )


def _foresee(
    method: Method, fed: Federation, rounds: int, participation: float, seed: int
) -> None:
    """Tell a method that wants to know who will take part when."""
    if type(method).foresee is Method.foresee:
        return
    parts = phases(fed)
    drawn = []
    for round in range(1, rounds + 1):
        n_clients = [part.fed.n_clients for part in parts if part.round <= round][-1]
        drawn.append(participants(n_clients, participation, seed, round))
    method.foresee(parts, drawn)
