"""The result of a run: its history, its clients, its models."""

from __future__ import annotations

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
from .federations.base import place_among
from .federations.own import some
from .federations.phases import GROUPS, ChangingFederation, phases

if TYPE_CHECKING:
    from torch import nn

    from .federations.reader import Reader
    from .methods.state import State
    from .models import Model
    from .training import Evaluation

FEW = 30
"""With fewer test samples, an accuracy near 50 % has a standard error over 9 points."""


@dataclass
class Run:
    """The result of a run.

    Attributes
    ----------
    history : DataFrame
        One row per evaluated round and split: ``round, split, accuracy`` (percent,
        unweighted mean over clients), ``micro`` (percent, weighted by samples),
        ``variance`` (population variance over clients, percent squared), ``worst``
        (lowest accuracy of a client, percent), ``loss`` (mean over clients),
        ``seconds`` (since the start), ``bytes_up, bytes_down`` (sent so far by all
        clients and to all clients, also for the clustering; four bytes per number). For
        a federation that changes also the mean by group of clients: ``accuracy_stayed,
        accuracy_drifted, accuracy_joined`` (NaN if there are none). Splits are "train"
        and "test", and at the last round "probe", the second test set, if any. If
        numbers are predicted, ``r2`` (mean over clients), ``r2_pooled`` (of all samples
        together), ``r2_worst`` and ``rmse`` (of all samples) replace the four columns
        before ``loss``.
    clients : DataFrame
        At the last round, one row per client: ``client`` (its number), ``name`` (if the
        federation names its clients), ``cluster, true_cluster`` (-1 if there are
        none), ``samples`` (for training), and ``train, test, probe`` (accuracy in
        percent, or R2).
    labels : array (M,), optional
        Final cluster of each client; None for methods without clusters.
    theta, rows : arrays (K, P), (M,)
        Final models; client i is served by ``theta[rows[i]]``.
    settings : dict
        Everything that determines the numbers.
    seconds : float
        Wall time, including the parts before it was resumed.
    stopped : str
        Reason why the run diverged (a loss or a model was not finite), else empty.
    labels_at : dict
        Evaluated round -> cluster of each present client (M,); empty for methods
        without clusters.
    confusion : int64 array (M, C, C), optional
        :func:`confusion` of test samples at the end; None if numbers are predicted, or
        if the method's predictions are not those of ``theta[rows[i]]`` alone
        (``method.tests_served`` is False).
    model : Model, optional
        The network whose weights are in ``theta``.
    reader : Reader, optional
        Reads new samples (:class:`fltnb.federations.reader.Reader`).
    names : tuple of M str
        Names of the clients.

    Examples
    --------
    >>> import fltnb as fl
    >>> images = fl.load("digits")
    >>> fed = fl.federations.dirichlet(images, n_clients=4, alpha=1.0)
    >>> run = fl.run(fl.methods.FedAvg(), fed, "mlp32", rounds=1, progress=False)
    >>> run.clients.columns[:2].tolist(), run.theta.shape[0]
    (['client', 'cluster'], 1)
    >>> run.predict(images.images[:5], client=3).shape
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
    names: tuple[str, ...] = ()

    @property
    def accuracy(self) -> float:
        """Return the mean test accuracy over clients at the last round, percent.

        Raises FltnbError if numbers are predicted.
        """
        return self._last("accuracy")

    @property
    def r2(self) -> float:
        """Return the mean test R2 over clients at the last round.

        Raises FltnbError if classes are predicted.
        """
        return self._last("r2")

    def _last(self, name: str) -> float:
        """Return a number of the last test, or refuse it and name the right one."""
        tested = self.history.query("split == 'test'")
        if name not in tested:
            other = "r2" if "r2" in tested else "accuracy"
            raise FltnbError(f"This run has no {name}: it has run.{other}.")
        return float(tested[name].iloc[-1])

    def evaluate(self, fed: Federation, split: str = "test") -> pd.DataFrame:
        """Evaluate the final models with scikit-learn, for each client and pooled.

        Parameters
        ----------
        fed : Federation
            The run's federation, or another with the same number of clients, inputs of
            the same shape, and the same classes (the last ones may be missing).
        split : {"train", "val", "test", "probe"}

        Returns
        -------
        DataFrame
            One row for each client, by name, and a last row "pooled" for all samples
            together. Columns: ``samples``; ``accuracy`` (percent); ``f1`` (percent; the
            mean over the classes that occur in samples or predictions, or for two
            classes F1 of class 1); ``auc`` (area under the ROC curve, 0.5 for chance;
            for more than two classes the mean over one class against the rest). If
            numbers are predicted: ``samples, r2, rmse``. Values that cannot be computed
            are NaN, such as the AUC of a client with one class.

        Raises
        ------
        FltnbError
            The federation does not fit, the split is unknown, or the run does not know
            its network.
        """
        network = self._network()
        fed = self._fitting(fed)
        parts = getattr(fed, choose(split, SPLITS, "split"))
        score = metrics.class_scores
        if fed.targets == "values":
            score = metrics.value_scores

        def scored(targets: np.ndarray, outputs: np.ndarray) -> dict[str, float]:
            row: dict[str, float] = {"samples": len(targets)}
            row.update(score(targets, outputs))
            return row

        # a client without samples has a row of none
        none = np.empty((0, network.n_classes))
        seen = [none] * fed.n_clients
        rows = [scored(fed.labels[:0], none)] * fed.n_clients
        for clients, outputs in served(network, self.theta, self.rows, fed, split):
            first = clients[0]  # the others hold the same samples
            row = scored(fed.labels[parts[first]], outputs)
            for client in clients:
                rows[client] = row
                seen[client] = outputs

        everything = fed.labels[np.concatenate(parts)]
        rows.append(scored(everything, np.concatenate(seen)))
        names = [*fed.names, "pooled"]
        return pd.DataFrame(rows, index=pd.Index(names, name="client"))

    def _fitting(self, fed: Federation) -> Federation:
        """Return the last state of a federation that this run can serve."""
        if not isinstance(fed, (Federation, ChangingFederation)):
            raise FltnbError(
                f"run.evaluate takes a federation, not a {type(fed).__name__}: for new "
                "samples use run.predict."
            )
        fed = phases(fed)[-1].fed
        assert self.reader is not None  # as there is a network
        shape = fed.images.shape[1:]
        if fed.n_clients != len(self.rows) or shape != self.reader.shape:
            raise FltnbError(
                f"This run has {len(self.rows)} clients with samples of shape "
                f"{self.reader.shape}, the federation {fed.n_clients} with {shape}: "
                "give the one that it was trained on, or one like it."
            )
        # classes are numbers here: the same number must be the same class
        known = self.reader.class_names[: fed.n_classes]
        if fed.targets != self.reader.targets or tuple(fed.class_names) != known:
            raise FltnbError(
                f"This run was trained on {_told(self.reader.class_names)}, the "
                f"federation has {_told(fed.class_names)}: give one with the same "
                "classes in the same order."
            )
        return fed

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

        The mean of clients counts each client once, for any number of samples; the mean
        of samples counts each sample once. The intervals are bootstrap percentiles:
        clients are resampled 2,000 times. They show how much the means depend on the
        set of clients, not how much another training would differ.

        Parameters
        ----------
        seed : int
            Seed of the resampling.

        Returns
        -------
        DataFrame
            Rows "mean of clients" and "mean of samples"; columns ``accuracy, low,
            high`` in percent.

        Raises
        ------
        FltnbError
            The run has no counts of predictions, or predicts numbers.

        Warns
        -----
        UserWarning
            Some clients have fewer than 30 test samples: their accuracy is largely
            chance, and so is the mean of clients.
        """
        if self.confusion is None:
            raise FltnbError(
                "This run has no counts of correct predictions, as where numbers are "
                "predicted: use run.evaluate(fed)."
            )
        total = self.confusion.sum(axis=(1, 2))
        tested = total > 0
        few = np.flatnonzero(tested & (total < FEW))
        if len(few):
            who = few.tolist()
            if self.names:
                who = [self.names[i] for i in few]
            names = some(who)
            warnings.warn(
                f"{len(few)} of {tested.sum()} clients have fewer than {FEW} test "
                f"samples ({names}): the mean of clients depends on them.",
                stacklevel=2,
            )
        correct = np.trace(self.confusion, axis1=1, axis2=2)
        return metrics.means_over_clients(correct[tested], total[tested], seed)

    def row(self, client: str | int | None = None, cluster: int | None = None) -> int:
        """Return the row of ``theta`` that serves a client, or a cluster's members.

        Parameters
        ----------
        client : str or int
            Name, or number from 0. If clients are called by whole numbers, a number
            that is also a name is refused: give it as text.
        cluster : int
            Instead of a client, for a newcomer: a value of ``labels``.

        Raises
        ------
        FltnbError
            Both are given, or neither although the clients have different models; the
            client or cluster is unknown; or the cluster's members have different
            models.
        """
        if cluster is not None:
            if client is not None:
                raise FltnbError("Give a client or a cluster, not both.")
            return self._row_of_cluster(cluster)
        if client is None:
            only = np.unique(self.rows)
            if len(only) == 1:
                return int(only[0])
            raise FltnbError(
                f"This run has {len(only)} models: name a client of "
                f"{some(self.names)}. {self._for_newcomers()}"
            )
        names = self.names or [str(number) for number in range(len(self.rows))]
        place = place_among(client, names)
        if place is None:
            raise FltnbError(
                f"There is no client {client!r}: this run has {some(names)}. "
                f"{self._for_newcomers()}"
            )
        return int(self.rows[place])

    def _for_newcomers(self) -> str:
        """Say in a sentence which model serves a client that was not in training."""
        if self.labels is not None:
            return "For a newcomer give a cluster."
        if len(np.unique(self.rows)) == 1:
            return "For a newcomer give no client: all have the same model."
        return "It has no clusters, so none of its models is for newcomers."

    def _row_of_cluster(self, cluster: int) -> int:
        """Return the row that serves all members of a cluster, or refuse it."""
        if self.labels is None:
            raise FltnbError(
                f"There is no cluster {cluster!r}. {self._for_newcomers()}"
            )
        members = np.flatnonzero(self.labels == cluster)
        if not len(members):
            known = ", ".join(str(label) for label in np.unique(self.labels))
            raise FltnbError(f"There is no cluster {cluster!r}: this run has {known}.")
        rows = np.unique(self.rows[members])
        if len(rows) > 1:
            raise FltnbError(
                f"The {len(members)} members of cluster {cluster} have {len(rows)} "
                "different models: give a client."
            )
        return int(rows[0])

    def module(
        self, client: str | int | None = None, cluster: int | None = None
    ) -> nn.Module:
        """Return the network that serves a client, for use without fltnb.

        It is a plain module in evaluation mode, on the CPU: its state dict,
        ``torch.export`` and TorchScript work as usual. Its input is the result of
        ``run.reader.inputs(samples)``, as a tensor.

        Parameters
        ----------
        client, cluster : see :meth:`row`

        Raises
        ------
        FltnbError
            As for :meth:`row`, or the run does not know its network.
        """
        return self._network().filled(self.theta[self.row(client, cluster)])

    def outputs(
        self,
        samples: Any,
        client: str | int | None = None,
        cluster: int | None = None,
    ) -> np.ndarray:
        """Return a network's outputs (n, C) for new samples.

        These are logits of C classes, one for two classes with the loss "binary", or
        (n, 1) predicted numbers. Arguments and errors are those of :meth:`predict`.
        """
        import torch

        network = self._network()
        row = self.row(client, cluster)
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
        client: str | int | None = None,
        cluster: int | None = None,
    ) -> np.ndarray:
        """Predict new samples with the model that serves a client.

        Parameters
        ----------
        samples : array (n, ...), DataFrame, or picture files
            In the same layout as the samples of the federation, without any scaling:
            the run's own preprocessing is applied. Picture files: a path or a list of
            paths, resized like those of ``Federation.from_folder``.
        client, cluster : see :meth:`row`

        Returns
        -------
        ndarray (n,)
            Classes by name; as numbers or truth values if all their names are such, as
            they are if classes have no names. Or numbers, if numbers are predicted.

        Raises
        ------
        FltnbError
            As for :meth:`row`; the samples have another shape, type or columns; or the
            run does not know its network.
        """
        outputs = self.outputs(samples, client, cluster)
        assert self.reader is not None  # as there are outputs
        return self.reader.answers(outputs)

    def _network(self) -> Model:
        """Return the network, or refuse if the run does not store it (FltnbError)."""
        if self.model is None or self.reader is None:
            raise FltnbError(
                "This run does not know its network: use what fl.run or fl.Run.load "
                "returned."
            )
        return self.model

    def save(self, folder: str | Path) -> Path:
        """Write models, numbers and preprocessing into a new folder; return its path.

        The files are safetensors, JSON and CSV, which other programs can read. No code
        is saved: give a network of your own again to :meth:`load`.

        Raises
        ------
        FltnbError
            The folder exists already, the run does not know its network, or its
            preprocessing is your own transformer.
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
            For a run with a network of your own: as given to :func:`fltnb.run`.

        Raises
        ------
        FltnbError
            There is no run in the folder, it is damaged or from a newer version, or the
            network is a different one.
        """
        return cls(**saved.read(folder, model))


def _told(classes: Sequence[str]) -> str:
    """Return the classes of samples in words."""
    return f"the classes {some(classes)}" if classes else "numbers to predict"


class DivergedError(FltnbError):
    """A loss or a model is not finite; ``run`` has everything up to the round before.

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

    names_clients = True

    def __init__(self, message: str, run: Run):
        super().__init__(message)
        self.run = run

    def __reduce__(self):
        # otherwise it would not return from a worker process
        return type(self), (str(self), self.run)


@dataclass
class Progress:
    """The progress of a run: what it needs to continue, and its results so far.

    Attributes
    ----------
    state : State, optional
        The method's state after ``round`` rounds; None before the start.
    round : int
        Number of finished rounds.
    history : list of dict
        Rows of :attr:`Run.history`.
    labels_at : dict
        As :attr:`Run.labels_at`.
    seconds : float
        Wall time so far.
    up, down : int
        Bytes sent by and to all clients in the rounds, without the clustering.
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

    ``fed``: the present clients of a ``federation`` that may change.
    """
    row = {"round": round, "split": split}
    score = "accuracy"
    if fed.targets == "values":
        score = "r2"
        everything = fed.labels[np.concatenate(getattr(fed, split))]
        assert result.squared is not None  # of numbers
        found = metrics.r2_summary(
            result.squared,
            _spreads(fed, split),
            result.total,
            metrics.spread(everything),
        )
    else:
        found = metrics.summary(result.correct, result.total)
    row.update(found)
    if isinstance(federation, ChangingFederation):
        each = scores_of(fed, split, result)
        groups = federation.groups[: len(each)]
        for name in GROUPS:
            of_group = each[groups == name]
            row[f"{score}_{name}"] = metrics.mean_accuracy(of_group)
    tested = result.total > 0
    row["loss"] = float(np.mean(result.loss[tested]))
    return row


def scores_of(fed: Federation, split: str, result: Evaluation) -> np.ndarray:
    """Return every client's accuracy (M,) in percent, or its R2."""
    if fed.targets == "values":
        assert result.squared is not None  # of numbers
        return metrics.r2(result.squared, _spreads(fed, split))
    return metrics.accuracy(result.correct, result.total)


def _spreads(fed: Federation, split: str) -> list[float]:
    """Return the spread of every client's targets, with which R2 compares errors."""
    return [metrics.spread(fed.labels[index]) for index in getattr(fed, split)]


def clients_table(
    fed: Federation, labels: np.ndarray | None, accuracy: dict[str, np.ndarray]
) -> pd.DataFrame:
    """Return :attr:`Run.clients`; ``accuracy`` (M,) or R2 for each split."""
    columns: dict[str, Any] = {"client": np.arange(fed.n_clients)}
    if fed.named:
        columns["name"] = fed.names
    columns["cluster"] = -1 if labels is None else labels
    columns["true_cluster"] = -1 if fed.clusters is None else fed.clusters
    columns["samples"] = np.asarray(fed.sizes)
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
    """Return the confusion matrix of every client.

    Parameters
    ----------
    model : Model
        The network.
    theta, rows : arrays (K, P), (M,)
        Models; client i is served by ``theta[rows[i]]``.
    fed : Federation
    split : {"train", "val", "test", "probe"}
    device : str
        A device name of torch.

    Returns
    -------
    int64 array (M, C, C)
        Number of samples, true classes as rows, predicted ones as columns; zeros for a
        client without samples.

    Raises
    ------
    FltnbError
        The split is unknown, models and federation do not fit, or numbers are
        predicted.

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
    if fed.targets == "values":
        raise FltnbError(
            f"{fed.name} has numbers to predict, and no classes to confuse: use "
            "run.evaluate(fed)."
        )
    C = max(model.n_classes, fed.n_classes)
    counts = np.zeros((fed.n_clients, C, C), dtype=np.int64)
    for clients, outputs in served(model, theta, rows, fed, split, device):
        first = clients[0]  # the others hold the same samples
        truth = fed.labels[getattr(fed, split)[first]]
        told = metrics.predicted(outputs)
        count = np.zeros((C, C), dtype=np.int64)
        np.add.at(count, (truth, told), 1)
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
    """Yield clients with a common model and samples, and the model's outputs (n, C).

    Clients without samples are left out. Arguments are as for :func:`confusion`.
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

    # by their model and the first client that holds their samples
    members: dict[tuple[int, int], list[int]] = {}
    first_holders = same_sets(parts)
    for client, (row, first) in enumerate(zip(rows, first_holders, strict=True)):
        alike = members.setdefault((row, first), [])
        alike.append(client)
    for (row, first), clients in members.items():
        index = parts[first]
        if len(index):
            found = outputs(engine, model.predict, theta[[row]], index)
            yield clients, found[0]
