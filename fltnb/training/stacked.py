"""Many clients as one batch: the default on a GPU.

:mod:`fltnb.training.stacks` trains clients in stacks. Here are the engines that ask
for it, and what goes to the stack of several runs. Their samples are in one pool, so an
engine adds the place where its federation begins to each position: if federation B
comes after 1,000 samples of A, sample 3 of B is at 1,003.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch

from ..federations import Federation
from ..models import Model
from .contract import Engine, Trained, TrainSpec, Work
from .losses import losses, predicted
from .runner import Way
from .samples import tensor
from .serial import exact
from .stacks import Job, Stacks, Training

Asked = tuple[Engine, tuple[Any, ...]]
"""An engine, and the arguments of its ``train``."""


class StackedEngine(Engine):
    """Batched training of clients, on GPU or CPU.

    Arguments are as for :class:`Engine`, and how steps run
    (:mod:`fltnb.training.runner`).

    Parameters
    ----------
    place : tuple of Stacks and int, optional
        Stacks that several engines share, and where among their samples those of
        ``fed`` begin; by default it has stacks of its own.

    Attributes
    ----------
    first : int
        Where the samples of ``fed`` begin in the stacks' pool.
    places : dict
        Positions in the pool of the samples of a (split, client), on the device.
    """

    backend = "stacked"

    def __init__(
        self,
        fed,
        model: Model,
        spec: TrainSpec,
        device: str | torch.device = "cpu",
        step: Way = "auto",
        place: tuple[Stacks, int] | None = None,
    ) -> None:
        super().__init__(fed, model, spec, device)
        if place is None:
            self.stacks = Stacks([fed], model, spec, self.device, step)
            self.first = 0
        else:
            self.stacks, self.first = place
        self.places: dict[tuple[str, int], torch.Tensor] = {}

    def _train(self, work: Work, done: Trained) -> None:
        self.stacks.training(work.how).train(self.jobs(work), done)

    def jobs(self, work: Work) -> list[Job]:
        """Return what is to be trained, client by client."""
        anchors = work.how.anchors
        found = []
        for j, client in enumerate(work.clients):
            start = work.theta[work.rows[j]]
            job = Job(
                start=start,
                samples=self.first + self.fed.train[client],
                spec=self.spec,
                client=client,
                round=work.round,
                weights=work.weights[j],
                anchor=start if anchors is None else anchors[j],
            )
            found.append(job)
        return found

    def _kernels(self):
        return exact(self.device, 1)

    def _scores(self, theta, tasks, split) -> list[tuple[float, float]]:
        """Return the scores of tasks.

        They stay on the device until all are there: reading a number from a GPU waits
        until all that was asked of it is done.
        """
        if not tasks:
            return []
        scores = []
        with self._kernels(), torch.inference_mode():
            models = tensor(theta).to(self.device)
            for row, same_row in groupby(tasks, lambda task: task.row):
                params = self.model.unflatten(models[row].clone())
                for task in same_row:
                    places = self._places(split, task.client)
                    index = places[task.start : task.stop]
                    scores.append(self._score(params, index))
            return torch.stack(scores).cpu().tolist()

    def _score(self, params: list[torch.Tensor], index: torch.Tensor) -> torch.Tensor:
        """Test a model on some samples of the pool.

        Parameters
        ----------
        params : list of tensors
            Its weights and biases.
        index : int64 tensor (n,)
            Positions in the pool.

        Returns
        -------
        float64 tensor (2,)
            The number of right answers and the summed loss.
        """
        pool = self.stacks.pool
        x = pool.take(index).to(self.dtype)
        y = pool.labels[index]
        logits = self.model.predict(params, x, self.spec.kernels)
        right = (predicted(logits) == y).sum().double()
        loss = losses(self.spec.loss, logits, y).double().sum()
        return torch.stack([right, loss])

    def _places(self, split: str, client: int) -> torch.Tensor:
        """Return the positions of a client's samples, which stay on the device."""
        if (split, client) not in self.places:
            in_federation = getattr(self.fed, split)[client]
            in_pool = tensor(self.first + in_federation)
            self.places[split, client] = in_pool.to(self.device)
        return self.places[split, client]


def sharing(
    runs: Sequence[tuple[Federation, Model, TrainSpec]], device: torch.device
) -> list[Engine]:
    """Return an engine per run; the engines share their stacks.

    The runs are :func:`fltnb.training.stacks.alike`.
    """
    _, model, spec = runs[0]  # all others train as this one, but for seed and rate
    feds = [fed for fed, _, _ in runs]
    stacks = Stacks(feds, model, spec, device, "auto")
    engines: list[Engine] = []
    for run, first in zip(runs, stacks.first, strict=True):
        fed, model, spec = run
        engine = StackedEngine(fed, model, spec, device, place=(stacks, first))
        engines.append(engine)
    return engines


def train_together(asked: Sequence[Asked]) -> list[Trained]:
    """Train clients of several runs, in one stack if their engines share their stacks.

    Others train one after the other. Runs whose calls vary in epochs, proximal term or
    frozen parameters have stacks of their own for each variation.

    Parameters
    ----------
    asked : sequence of (Engine, tuple)
        The engine of each run, of :func:`make_engines`, and the arguments of its
        ``train``.

    Returns
    -------
    list of Trained
        In the order of the runs.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> net = fl.models.shaped("mlp32", fed)
    >>> specs = [fl.training.TrainSpec(lr=lr) for lr in (0.01, 0.1)]
    >>> runs = [(fed, net, spec) for spec in specs]
    >>> engines = fl.training.make_engines(runs, "stacked", "cpu")
    >>> given = (
    ...     net.init(seed=0)[None],
    ...     [0, 0],
    ...     [1, 4],
    ...     1,
    ... )  # models, rows, clients, round
    >>> slow, fast = fl.training.train_together([(one, given) for one in engines])
    >>> bool(fast.loss.mean() < slow.loss.mean())
    True
    """
    answers: dict[int, Trained] = {}  # by position in what is asked
    shared: dict[Training, dict[int, list[Job]]] = {}
    for k, (engine, given) in enumerate(asked):
        if not isinstance(engine, StackedEngine):
            answers[k] = engine.train(*given)
            continue
        work = engine.checked(*given)
        training = engine.stacks.training(work.how)
        jobs_of_runs = shared.setdefault(training, {})
        jobs_of_runs[k] = engine.jobs(work)

    for training, jobs in shared.items():
        answers.update(_trained(training, jobs))
    return [answers[k] for k in range(len(asked))]


def _trained(training: Training, jobs: dict[int, list[Job]]) -> dict[int, Trained]:
    """Train the jobs of several runs in one stack; return what is each run's own.

    ``jobs``: those of each run, by its number. With 3 jobs of run 0 and 2 of run 4,
    rows 0 to 2 of the result are run 0's, and rows 3 and 4 are run 4's.
    """
    every = []
    for own in jobs.values():
        every.extend(own)
    start = every[0].start
    theta = np.empty((len(every), len(start)), start.dtype)
    done = Trained(theta, np.empty(len(every)))
    training.train(every, done)

    answers = {}
    begin = 0
    for k, own in jobs.items():
        end = begin + len(own)
        answers[k] = Trained(done.theta[begin:end], done.loss[begin:end])
        begin = end
    return answers
