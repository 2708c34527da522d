"""A run in progress: its steps, one round after the other, and its results."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from . import metrics
from .errors import FltnbError
from .federations import Federation
from .federations.own import integers
from .federations.phases import phases
from .federations.reader import Reader
from .methods import Context, Method, hooks
from .randomness import stream
from .record import (
    DivergedError,
    Progress,
    Run,
    clients_table,
    confusion,
    history_row,
    scores_of,
)

if TYPE_CHECKING:
    from .methods.state import State
    from .models import Model
    from .training import Engine, Trained

Asked = tuple["Engine", tuple[Any, ...]]
"""An engine, and the arguments for its :meth:`train`."""


def participants(
    n_clients: int, participation: float, seed: int, round: int
) -> np.ndarray:
    """Draw the participants of one round; return their numbers, int64, ascending.

    Of M = ``n_clients`` clients, ``max(floor(participation * M), 1)`` are drawn without
    replacement. (FedAvg, arXiv 1602.05629, Algorithm 1: ``m = max(C K, 1)``.)
    ``round``: from 1; ``seed``: the run's.

    Examples
    --------
    >>> import fltnb as fl
    >>> len(fl.rounds.participants(n_clients=100, participation=0.2, seed=0, round=1))
    20
    """
    wanted = participation * n_clients + 1e-9  # 0.29 * 100 is 28.999999999999996
    n = max(int(wanted), 1)
    rng = stream(seed, "participation", round)
    return np.sort(rng.choice(n_clients, size=n, replace=False))


def draws(
    fed: Federation, rounds: int, participation: float, seed: int
) -> list[np.ndarray]:
    """Return the participants of every round, drawn from the clients present then.

    Entry t - 1 of the list has the numbers of round t's clients, ascending.
    """
    n_clients_from = {phase.round: phase.fed.n_clients for phase in phases(fed)}
    n_clients = fed.n_clients
    drawn = []
    for round in range(1, rounds + 1):
        n_clients = n_clients_from.get(round, n_clients)
        drawn.append(participants(n_clients, participation, seed, round))
    return drawn


@dataclass
class Course:
    """A run in progress; it starts, or continues from its checkpoint, when made.

    Attributes
    ----------
    method, net, settings, context
        Those of the run.
    federation : Federation
        The federation with all its changes.
    make_engine : callable
        Returns the engine of a federation, and closes the previous one.
    done : Progress
        The progress of the run.
    accuracy : dict
        Split -> accuracy (M,) at the last evaluation, percent; or R2, if numbers are
        predicted.
    fed : Federation
        The present clients, with their present data.
    engine : Engine
        The engine that trains and evaluates them.
    begun : float
        Start on the monotonic clock, as if the run had never been stopped.
    """

    method: Method
    federation: Federation
    net: Model
    settings: dict[str, Any]
    context: Context
    make_engine: Callable[[Federation], Engine]
    done: Progress
    accuracy: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self):
        self.phases = {phase.round: phase for phase in phases(self.federation)}
        now = max(1, self.done.round)
        for round, phase in self.phases.items():
            if round <= now:
                self.fed = phase.fed  # the last one remains
        self.engine = self.make_engine(self.fed)
        self.begun = time.monotonic() - self.done.seconds
        if self.done.round == 0:
            self._start()

    def _start(self) -> None:
        """Let the method make its initial state."""
        done = self.done
        state = self.method.start(self.fed, self.net, self.context)
        done.state = self._checked("start", state)
        for name, value in done.state.arrays().items():
            if np.asarray(value).dtype == object:
                raise FltnbError(
                    f"The state of {self.method.name} may hold arrays of numbers only: "
                    f"leave {name} out, or make it one."
                )
        if self.settings["dtype"] == "float64":
            done.state = done.state.mapped(_as_float64)

    def _checked(self, hook: str, state: Any) -> State:
        """Return the state that a function of the method returned, or refuse it."""
        return hooks.state_from(self.method, hook, state, self.fed.n_clients)

    @property
    def values(self) -> bool:
        """Return whether numbers are predicted, not classes."""
        return self.fed.targets == "values"

    def enter(self, round: int) -> None:
        """Change the federation, if it changes before this round."""
        if round == 1 or round not in self.phases:
            return
        phase = self.phases[round]
        self.fed = phase.fed
        state = self.method.changed(
            self.done.state, self.fed, self.net, phase.changed, self.context
        )
        self.done.state = self._checked("changed", state)
        self.engine = self.make_engine(self.fed)

    def return_to(self, fed: Federation, state) -> None:
        """Undo :meth:`enter`."""
        self.done.state = state
        if fed is not self.fed:
            self.fed = fed
            self.engine = self.make_engine(fed)

    def train(
        self, round: int
    ) -> Generator[Asked, Trained, tuple[State, np.ndarray, Trained]]:
        """Request a round's training.

        A method with its own training calls the engine itself, and nothing is requested
        here.

        Yields
        ------
        Asked
            The training to do; the result is sent back.

        Returns
        -------
        state : State
        clients : ndarray of int, shape (n,)
            The participants.
        trained : Trained
        """
        share = self.settings["participation"]
        seed = self.settings["seed"]
        clients = participants(self.fed.n_clients, share, seed, round)
        state = self.method.observe(self.done.state, clients, round, self.engine)
        state = self._checked("observe", state)
        if self.method.trains_itself():
            answer = self.method.train(state, clients, round, self.engine)
            M = self.fed.n_clients
            state, trained = hooks.trained_from(self.method, answer, M)
        else:
            theta, rows = self.method.dispatched(state, clients)
            trained = yield self.engine, (theta, rows, clients, round)
        return state, clients, trained

    def collect(self, state, clients: np.ndarray, theta: np.ndarray, round: int) -> str:
        """Finish the round: the method's new state, and the traffic.

        Returns why the run must stop, in which case nothing changes, or "".
        """
        method = self.method
        state = self._checked("collect", method.collect(state, clients, theta, round))
        # more models than participants are most often one per client: these are
        # tested where clients start from them, as a sum over all would take long
        few = len(state.models) <= len(clients)
        if few and not np.isfinite(state.models.sum(axis=1)).all():
            return (
                f"the models that `collect` of {type(method).__name__} returned are "
                "not finite, although those that the clients trained are; check it, "
                "for example for a division by 0, or choose a smaller lr"
            )
        state = method.revise(state, self.fed, round, self.context)
        state = self._checked("revise", state)
        # numbers that each participant receives and sends; they travel as float32
        traffic = method.traffic(state, self.net.n_parameters)
        received, sent = hooks.scalars_from(method, "traffic", traffic)
        n = len(clients)

        done = self.done
        done.state = state
        done.round = round
        done.up += n * sent * 4
        done.down += n * received * 4
        return ""

    def evaluate(self, final: bool = False) -> None:
        """Test all clients and record it, replacing an earlier record of the round.

        ``final``: also test on the second test set, if there is one.
        """
        done = self.done
        spent = self._spent()
        splits = ["train", "test"]
        if final and self.fed.probed:
            splits.append("probe")

        done.history = [row for row in done.history if row["round"] != done.round]
        for split in splits:
            result = self.method.evaluate(done.state, self.engine, split)
            result = hooks.tested_from(self.method, result)
            self.accuracy[split] = scores_of(self.fed, split, result)
            row = history_row(self.federation, self.fed, done.round, split, result)
            row.update(spent)
            done.history.append(row)
        labels = self.method.labels(done.state)
        if labels is not None:
            what = f"The labels of {self.method.name}"
            labels = integers(what, labels, self.fed.n_clients, "client")
            done.labels_at[done.round] = labels.copy()

    def _spent(self) -> dict[str, float]:
        """Return the time and the bytes so far, those of the clustering included."""
        done = self.done
        setup = self.method.setup_bytes(done.state)
        up, down = hooks.scalars_from(self.method, "setup_bytes", setup)
        return {
            "seconds": time.monotonic() - self.begun,
            "bytes_up": int(done.up + up),
            "bytes_down": int(done.down + down),
        }

    def divergence(self, state: State, clients: np.ndarray, trained: Trained) -> str:
        """Say which client's training diverged, and what to do, or ""."""
        finite = np.isfinite(trained.loss) & np.isfinite(trained.theta.sum(axis=1))
        if finite.all():
            return ""
        diverged = clients[~finite]
        name = self.fed.names[diverged[0]]
        theta, rows = self.method.dispatched(state, diverged)
        if not np.isfinite(theta[rows[0]]).all():
            return (
                f"the model from which client {name} starts is not finite; check "
                f"`start`, `collect` and `dispatch` of {type(self.method).__name__}"
            )
        mend = "choose a smaller lr, or check this client's data"
        if self.values:
            # the gradient grows with the targets: their unit decides which lr is stable
            mend += (
                f" (the numbers to predict have a standard deviation of "
                f"{self.fed.labels.std():.3g}: train on them divided by it)"
            )
        return f"the loss of client {name} is not finite; {mend}"

    def summary(self) -> str:
        """Return the clients' mean test result at the last evaluation, in words."""
        mean = metrics.mean_accuracy(self.accuracy["test"])
        if self.values:
            return f"test R2 {mean:.3f}"
        return f"test accuracy {mean:.1f} %"

    def result(self, stopped: str) -> Run:
        """Return the run.

        ``stopped``: the reason for ending before its last round, or "".

        Raises
        ------
        DivergedError
            It was stopped, or served models are not finite; the error holds the run.
        """
        done = self.done
        done.seconds = time.monotonic() - self.begun
        theta, rows = self.method.served(done.state)
        labels = self.method.labels(done.state)
        counts = None
        if self.method.tests_served and not self.values:
            device = str(self.engine.device)
            counts = confusion(self.net, theta, rows, self.fed, device=device)
        served = theta[np.unique(rows)]
        if not stopped and not np.isfinite(served).all():
            stopped = (
                f"The models that {self.method.name} serves in the end are not finite: "
                "check its `collect` and `serve`."
            )
        run = Run(
            history=pd.DataFrame(done.history),
            clients=clients_table(self.fed, labels, self.accuracy),
            labels=labels,
            theta=theta,
            rows=rows,
            settings=self.settings,
            seconds=done.seconds,
            stopped=stopped,
            labels_at=done.labels_at,
            confusion=counts,
            model=self.net,
            reader=Reader.of(self.fed),
            names=self.fed.names,
        )
        if stopped:
            raise DivergedError(stopped, run)
        return run


def _as_float64(array: np.ndarray) -> np.ndarray:
    """Return float32 as float64, and other values unchanged."""
    if array.dtype == np.float32:
        return array.astype(np.float64)
    return array
