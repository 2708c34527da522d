"""What a run leaves behind: its history, its clients, its models."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from . import metrics, saved
from .errors import FltnbError, choose
from .federations import SPLITS, Federation
from .federations.own import some
from .federations.phases import GROUPS, ChangingFederation, phases

if TYPE_CHECKING:
    from torch import nn

    from .federations.reader import Reader
    from .methods.state import State
    from .models import Model
    from .training import Evaluation

FEW = 30
"""Test samples below which a client's accuracy says little: an error of 9 points."""


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
        the second test set, if any. Where numbers are predicted, ``r2`` (mean over
        clients), ``r2_pooled`` (of all samples together), ``r2_worst`` and ``rmse``
        take the place of the accuracies.
    clients : DataFrame
        At the last round: ``client, cluster, true_cluster, samples, train, test,
        probe`` (percent, or R2).
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
        method.tests_served``, and where numbers are predicted.
    model : Model, optional
        The network of which ``theta`` holds the weights.
    reader : Reader, optional
        How new samples are read (:class:`fltnb.federations.reader.Reader`).
    owners : tuple of M str
        Names of the clients.

    Examples
    --------
    >>> import fltnb as fl
    >>> images = fl.load("digits")
    >>> fed = fl.federations.dirichlet(images, n_clients=4, alpha=1.0)
    >>> run = fl.run(fl.methods.FedAvg(), fed, "mlp32", rounds=1, progress=False)
    >>> run.clients.columns[:2].tolist(), run.theta.shape[0]
    (['client', 'cluster'], 1)
    >>> run.predict(images.images[:5], owner=3).shape
    (5,)
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
    model: Model | None = None
    reader: Reader | None = None
    owners: tuple[str, ...] = ()

    @property
    def accuracy(self) -> float:
        """Mean test accuracy over clients at the last round, percent."""
        return self._last("accuracy")

    @property
    def r2(self) -> float:
        """Mean R2 over clients at the last round, where numbers are predicted."""
        return self._last("r2")

    def _last(self, name: str) -> float:
        tested = self.history.query("split == 'test'")
        if name not in tested:
            other = "r2" if "r2" in tested else "accuracy"
            raise FltnbError(f"This run has no {name}: it has run.{other}.")
        return float(tested[name].iloc[-1])

    def evaluate(self, fed: Federation, split: str = "test") -> pd.DataFrame:
        """Score the final models by scikit-learn, client by client and all together.

        Returns one row for each client, by name, and a last one, "pooled", of all
        samples together. Columns: ``samples``; ``accuracy`` and ``f1`` (percent; the
        mean over the classes that occur, of two classes that of class 1) and ``auc``
        (0.5 for chance; of more than two classes the mean over one class against the
        rest). Where numbers are predicted: ``r2`` and ``rmse``. What cannot be computed
        is NaN, such as the AUC of a client with one class.

        Parameters
        ----------
        fed : Federation
            That of the run.
        split : {"train", "val", "test", "probe"}

        Raises
        ------
        FltnbError
            The federation does not fit.
        """
        network = self._network()
        fed = phases(fed)[-1].fed
        parts = getattr(fed, choose(split, SPLITS, "split"))
        score = metrics.class_scores
        if fed.targets == "values":
            score = metrics.value_scores
        none = np.empty((0, network.n_classes))
        rows = [{"samples": 0} | score(fed.labels[:0], none)] * fed.n_clients
        seen = [none] * fed.n_clients
        for clients, outputs in served(network, self.theta, self.rows, fed, split):
            targets = fed.labels[parts[clients[0]]]
            row = {"samples": len(targets)} | score(targets, outputs)
            for client in clients:
                rows[client] = row
                seen[client] = outputs

        targets = fed.labels[np.concatenate(parts)]
        row = {"samples": len(targets)} | score(targets, np.concatenate(seen))
        names = [*fed.names, "pooled"]
        return pd.DataFrame([*rows, row], index=pd.Index(names, name="client"))

    def __repr__(self) -> str:
        name = self.settings.get("method", {}).get("name", "?")
        clusters = ""
        if self.labels is not None:
            clusters = f", {len(np.unique(self.labels))} clusters"
        if "r2" in self.history:
            score = f"R2 {self.r2:.3f}"
        else:
            score = f"accuracy {self.accuracy:.2f} %"
        return (
            f"Run({name}, {self.history['round'].max()} rounds{clusters}, "
            f"test {score}, {self.seconds:.1f} s)"
        )

    def means(self, seed: int = 0) -> pd.DataFrame:
        """Return both means of the final test accuracy, with 95 % intervals.

        The mean of clients counts each client once, however few samples it has; the
        mean of samples counts each sample once. The intervals come from resampling
        clients (2,000 times, percentiles): they say how much the means hang on who
        takes part, and not how another training would end.

        Returns
        -------
        DataFrame
            Rows "mean of clients" and "mean of samples"; columns ``accuracy, low,
            high`` in percent.

        Raises
        ------
        FltnbError
            The run does not know what was taken for what, or predicts numbers.

        Warns
        -----
        UserWarning
            Some clients have fewer than 30 test samples: their accuracy is a matter of
            luck, and the mean of clients with it.
        """
        if self.confusion is None:
            raise FltnbError(
                "This run has no counts of right and wrong answers: use "
                "run.evaluate(fed)."
            )
        total = self.confusion.sum(axis=(1, 2))
        tested = total > 0
        few = np.flatnonzero(tested & (total < FEW))
        if len(few):
            names = some([self.owners[i] if self.owners else i for i in few])
            warnings.warn(
                f"{len(few)} of {tested.sum()} clients have fewer than {FEW} test "
                f"samples ({names}): the mean of clients hangs on them.",
                stacklevel=2,
            )
        correct = np.trace(self.confusion, axis1=1, axis2=2)
        return metrics.means_over_clients(correct[tested], total[tested], seed)

    def row(self, owner: str | int | None = None, cluster: int | None = None) -> int:
        """Return the row of ``theta`` that serves an owner, or a cluster's members.

        Parameters
        ----------
        owner : str or int, a client by name or number
        cluster : int
            In place of an owner, for a newcomer: as in ``labels``.

        Raises
        ------
        FltnbError
            Neither or both are given, they are not known, or the members of the cluster
            have models of their own.
        """
        if cluster is not None:
            if owner is not None:
                raise FltnbError("Give an owner or a cluster, not both.")
            return self._row_of_cluster(cluster)
        if owner is None:
            only = np.unique(self.rows)
            if len(only) == 1:
                return int(only[0])
            raise FltnbError(
                f"This run has {len(only)} models: name an owner of {some(self.owners)}"
                ", or for a newcomer a cluster."
            )
        if isinstance(owner, str) and owner in self.owners:
            return int(self.rows[self.owners.index(owner)])
        whole = isinstance(owner, numbers.Integral) and not isinstance(owner, bool)
        if whole and 0 <= int(owner) < len(self.rows):
            return int(self.rows[int(owner)])
        raise FltnbError(
            f"There is no owner {owner!r}: this run has {some(self.owners)}; for a "
            "newcomer give a cluster."
        )

    def _row_of_cluster(self, cluster: int) -> int:
        if self.labels is None:
            raise FltnbError("This run has no clusters: give an owner.")
        members = np.flatnonzero(self.labels == cluster)
        if not len(members):
            known = ", ".join(map(str, np.unique(self.labels)))
            raise FltnbError(f"There is no cluster {cluster!r}: this run has {known}.")
        rows = np.unique(self.rows[members])
        if len(rows) > 1:
            raise FltnbError(
                f"The {len(members)} members of cluster {cluster} have {len(rows)} "
                "different models: give an owner."
            )
        return int(rows[0])

    def module(
        self, owner: str | int | None = None, cluster: int | None = None
    ) -> nn.Module:
        """Return the network that serves an owner, for use without fltnb.

        A plain module in evaluation mode, on the CPU: its state dict, ``torch.export``
        and TorchScript work as for any other. It takes what ``reader.inputs(samples)``
        returns.

        Parameters
        ----------
        owner, cluster : see :meth:`row`

        Raises
        ------
        FltnbError
            As :meth:`row`, or the run does not know its network.
        """
        return self._network().filled(self.theta[self.row(owner, cluster)])

    def outputs(
        self,
        samples: Any,
        owner: str | int | None = None,
        cluster: int | None = None,
    ) -> np.ndarray:
        """Return a network's outputs (n, K) for new samples: see :meth:`predict`."""
        import torch

        network = self._network()
        row = self.row(owner, cluster)
        assert self.reader is not None  # as there is a network
        x = torch.from_numpy(self.reader.inputs(samples))
        params = network.unflatten(self.theta[row])
        if x.is_floating_point():
            x = x.to(params[0].dtype)
        with torch.inference_mode():
            return network.predict(params, x).numpy()

    def predict(
        self,
        samples: Any,
        owner: str | int | None = None,
        cluster: int | None = None,
    ) -> np.ndarray:
        """Say what new samples are, with the model that serves an owner.

        Parameters
        ----------
        samples : array (n, ...) or DataFrame
            Laid out like the samples of the federation, before any scaling: its own
            preprocessing is applied.
        owner, cluster : see :meth:`row`

        Returns
        -------
        ndarray (n,)
            Classes by name, or by number where they have no names; numbers where
            numbers are predicted.

        Raises
        ------
        FltnbError
            As :meth:`row`; or the samples have another shape, type or other columns.
        """
        outputs = self.outputs(samples, owner, cluster)
        assert self.reader is not None  # as there are outputs
        return self.reader.answers(outputs)

    def _network(self) -> Model:
        if self.model is None or self.reader is None:
            raise FltnbError(
                "This run does not know its network: use what fl.run or fl.Run.load "
                "returned."
            )
        return self.model

    def save(self, folder: str | Path) -> Path:
        """Write models, numbers and preprocessing into a new folder; return its path.

        As safetensors, JSON and CSV, which other programs read, too. No code is saved:
        a network of your own is given again to :meth:`load`.

        Raises
        ------
        FltnbError
            The folder is there already; the preprocessing is a transformer of one's
            own.
        """
        self._network()
        return saved.write(self, folder)

    @classmethod
    def load(cls, folder: str | Path, model: Any = None) -> Self:
        """Read a run that :meth:`save` wrote.

        Parameters
        ----------
        folder : path
        model : nn.Module or function, optional
            Of a run with a network of one's own: as it was given to :func:`fltnb.run`.

        Raises
        ------
        FltnbError
            There is no run in the folder, it is damaged or of a newer version, or the
            network is another one.
        """
        return cls(**saved.read(folder, model))


class DivergedError(FltnbError):
    """A loss is not finite; ``run`` holds everything up to the round before.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> try:
    ...     fl.run(fl.methods.FedAvg(), fed, "mlp32", rounds=5, lr=1e30, progress=False)
    ... except fl.rounds.DivergedError as error:
    ...     print(type(error.run).__name__)
    Run
    """

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
    federation: Federation, fed: Federation, round: int, split: str, result: Evaluation
) -> dict[str, Any]:
    """Return the row of :attr:`Run.history`, without time and traffic.

    ``fed``: the clients that are there now, of a ``federation`` that may change.
    """
    row = {"round": round, "split": split}
    score = "accuracy"
    if fed.targets == "values":
        score = "r2"
        everything = fed.labels[np.concatenate(getattr(fed, split))]
        pooled = metrics.spread(everything)
        spreads = _spreads(fed, split)
        assert result.squared is not None  # of numbers
        row |= metrics.r2_summary(result.squared, spreads, result.total, pooled)
    else:
        row |= metrics.summary(result.correct, result.total)
    if isinstance(federation, ChangingFederation):
        each = scores_of(fed, split, result)
        groups = federation.groups[: len(each)]
        for name in GROUPS:
            row[f"{score}_{name}"] = metrics.mean_accuracy(each[groups == name])
    row["loss"] = float(np.mean(result.loss[result.total > 0]))
    return row


def scores_of(fed: Federation, split: str, result: Evaluation) -> np.ndarray:
    """Return every client's accuracy (M,), percent; R2 of numbers to predict."""
    if fed.targets == "values":
        assert result.squared is not None  # of numbers
        return metrics.r2(result.squared, _spreads(fed, split))
    return metrics.accuracy(result.correct, result.total)


def _spreads(fed: Federation, split: str) -> list[float]:
    return [metrics.spread(fed.labels[index]) for index in getattr(fed, split)]


def clients_table(
    fed: Federation, labels: np.ndarray | None, accuracy: dict[str, np.ndarray]
) -> pd.DataFrame:
    """Return :attr:`Run.clients`; ``accuracy``: of each split (M,), or R2."""
    columns = {
        "client": np.arange(fed.n_clients),
        **({} if fed.owners is None else {"name": fed.names}),
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
    rows: Sequence[int] | np.ndarray,
    fed: Federation,
    split: str = "test",
    device: str = "cpu",
) -> np.ndarray:
    """Count what every client's samples are taken for.

    Returns int64 (M, C, C), classes as rows, predictions as columns. Client i is served
    by ``theta[rows[i]]`` (K, P), (M,); zeros for one without samples. What does not fit
    raises :class:`fltnb.FltnbError`.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> run = fl.run(fl.methods.FedAvg(), fed, "mlp32", rounds=1, progress=False)
    >>> net = fl.models.make("mlp32", fed.input_shape, fed.n_classes)
    >>> fl.rounds.confusion(net, run.theta, run.rows, fed).shape
    (6, 10, 10)
    """
    C = max(model.n_classes, fed.n_classes)
    counts = np.zeros((fed.n_clients, C, C), dtype=np.int64)
    for clients, outputs in served(model, theta, rows, fed, split, device):
        truth = fed.labels[getattr(fed, split)[clients[0]]]
        count = np.zeros((C, C), dtype=np.int64)
        np.add.at(count, (truth, metrics.predicted(outputs)), 1)
        counts[clients] = count
    return counts


def served(
    model: Model,
    theta: np.ndarray,
    rows: Sequence[int] | np.ndarray,
    fed: Federation,
    split: str,
    device: str = "cpu",
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yield clients that share a model and samples, and its outputs (n, K) for these.

    Clients without samples are left out. Arguments as for :func:`confusion`.
    """
    from .methods.samples import outputs
    from .training import TrainSpec
    from .training.evaluation import same_sets
    from .training.serial import SerialEngine

    parts = getattr(fed, choose(split, SPLITS, "split"))
    dtype: Any = np.asarray(theta).dtype.name
    spec = TrainSpec(dtype=dtype)
    engine = SerialEngine(fed, model, spec, device)
    theta, rows, _ = engine.check(theta, np.ravel(rows), range(fed.n_clients))

    members: dict[tuple[int, int], list[int]] = {}
    for client, pair in enumerate(zip(rows, same_sets(parts), strict=True)):
        members.setdefault(pair, []).append(client)
    for (row, first), clients in members.items():
        if len(parts[first]):
            found = outputs(engine, model.predict, theta[[row]], parts[first])
            yield clients, found[0]
