"""What a run leaves behind: its history, its clients, its models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from . import metrics
from .errors import FltnbError, choose
from .federations import SPLITS, Federation
from .federations.phases import GROUPS, ChangingFederation

if TYPE_CHECKING:
    from .methods.state import State
    from .models import Model
    from .training import Evaluation


@dataclass
class Run:
    """What a run leaves behind.

    Attributes
    ----------
    history : DataFrame
        One row per evaluated round and split: ``round, split, accuracy`` (percent,
        unweighted mean over clients), ``micro`` (percent, weighted by samples),
        ``variance`` (population variance over clients, percent squared), ``worst``
        (percent), ``loss`` (mean over clients), ``seconds`` (since the start),
        ``bytes_up, bytes_down`` (sent so far, all clients); for a federation that
        changes also the mean by group: ``accuracy_stayed, accuracy_drifted,
        accuracy_joined`` (NaN while there are none). Split "probe", at the end only:
        the second test set, if any.
    clients : DataFrame
        At the last round: ``client, cluster, true_cluster, samples, train, test,
        probe`` (percent).
    labels : array (M,), optional
        Final cluster of each client.
    theta, rows : arrays (K, P), (M,)
        Final models; client i is served by ``theta[rows[i]]``.
    settings : dict
        Everything that determines the numbers.
    seconds : float
        Wall time, resumed parts included.
    stopped : str
        Why the run ended early (a client's loss was not finite), else empty.
    labels_at : dict
        Evaluated round -> cluster of each client that was there (M,); empty for methods
        without clusters.
    confusion : int64 array (M, C, C), optional
        :func:`confusion` of test samples at the end; None if ``not
        method.tests_served``.
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
        name = self.settings.get("method", {}).get("name", "?")
        clusters = ""
        if self.labels is not None:
            clusters = f", {len(np.unique(self.labels))} clusters"
        return (
            f"Run({name}, {self.history['round'].max()} rounds{clusters}, "
            f"test accuracy {self.accuracy:.2f} %, {self.seconds:.1f} s)"
        )


class DivergedError(FltnbError):
    """A loss is not finite; ``run`` holds everything up to the round before."""

    def __init__(self, message: str, run: Run):
        super().__init__(message)
        self.run = run

    def __reduce__(self):
        # else it would not come back from a worker process
        return type(self), (str(self), self.run)


@dataclass
class Progress:
    """How far a run is: what it needs to go on, and what it has to show.

    Attributes
    ----------
    state : State, optional
        Of the method, after ``round`` rounds; None before the start.
    history : list of dict
        Rows of :attr:`Run.history`.
    labels_at : dict
        As :attr:`Run.labels_at`.
    seconds : float
    up, down : int
        Bytes that the rounds' models took, all clients.
    """

    state: State | None = None
    round: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    labels_at: dict[int, np.ndarray] = field(default_factory=dict)
    seconds: float = 0.0
    up: int = 0
    down: int = 0


def history_row(
    federation: Federation, round: int, split: str, result: Evaluation
) -> dict[str, Any]:
    """Return the row of :attr:`Run.history`, without time and traffic."""
    row = {"round": round, "split": split}
    row |= metrics.summary(result.correct, result.total)
    if isinstance(federation, ChangingFederation):
        accuracy = metrics.accuracy(result.correct, result.total)
        groups = federation.groups[: len(accuracy)]
        for name in GROUPS:
            mean = metrics.mean_accuracy(accuracy[groups == name])
            row[f"accuracy_{name}"] = mean
    row["loss"] = float(np.mean(result.loss[result.total > 0]))
    return row


def clients_table(
    fed: Federation, labels: np.ndarray | None, accuracy: dict[str, np.ndarray]
) -> pd.DataFrame:
    """Return :attr:`Run.clients`; ``accuracy``: of each split, percent (M,)."""
    columns = {
        "client": np.arange(fed.n_clients),
        "cluster": -1 if labels is None else labels,
        "true_cluster": -1 if fed.clusters is None else fed.clusters,
        "samples": np.asarray(fed.sizes),
    }
    for split in ("train", "test", "probe"):
        if split in accuracy:
            columns[split] = accuracy[split]
    return pd.DataFrame(columns)


def confusion(
    model: Model,
    theta: np.ndarray,
    rows: Sequence[int],
    fed: Federation,
    split: str = "test",
    device: str = "cpu",
) -> np.ndarray:
    """Count what every client's samples are taken for.

    Returns int64 (M, C, C), classes as rows, predictions as columns. Client i is served
    by ``theta[rows[i]]`` (K, P), (M,); zeros for one without samples. What does not fit
    raises :class:`fltnb.FltnbError`.
    """
    from .methods.samples import outputs
    from .training import TrainSpec
    from .training.evaluation import same_sets
    from .training.serial import SerialEngine

    parts = getattr(fed, choose(split, SPLITS, "split"))
    spec = TrainSpec(dtype=np.asarray(theta).dtype.name)
    engine = SerialEngine(fed, model, spec, device)
    theta, rows, _ = engine.check(theta, np.ravel(rows), range(fed.n_clients))

    # clients that share a model and a test set share the predictions
    pairs = list(zip(rows, same_sets(parts), strict=True))
    C = model.n_classes
    counts = {pair: np.zeros((C, C), dtype=np.int64) for pair in pairs}
    for (row, client), count in counts.items():
        index = parts[client]
        if len(index):
            logits = outputs(engine, model.predict, theta[[row]], index)[0]
            np.add.at(count, (fed.labels[index], logits.argmax(1)), 1)
    return np.stack([counts[pair] for pair in pairs])
