"""The one loop over rounds: draw, dispatch, train, collect, evaluate, record.

:func:`run` is a pure function of its settings. Stopping it (Ctrl-C, ``kill -9``, a
power cut) loses at most the time since the last checkpoint, and the continued run ends
with the same bits as one that was not stopped.

The loop does not call the engine for a round's training. It yields the training to do,
and the caller sends back the result. So the clients of several runs can be trained
together (:func:`run_together`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from . import progress as bars
from .arrays import as_array
from .checkpoint import Checkpoint
from .course import Asked, Course, draws, participants
from .data import array_digest
from .errors import FltnbError, UnstableError, by_name, first_line, with_names
from .federations import Federation
from .federations.phases import phases
from .federations.recipe import Recipe
from .methods import Context, Method, hooks
from .record import DivergedError, Run, confusion
from .settings import Count, Fraction, checked, plain

if TYPE_CHECKING:
    from .models import Model
    from .training import Engine, Trained, TrainSpec

__all__ = [
    "NUMBERS",
    "DivergedError",
    "Run",
    "check",
    "confusion",
    "participants",
    "run",
    "run_together",
]


def run(  # noqa: PLR0913
    method: Method,
    fed: Federation,
    model: Any = "mlp",
    rounds: Count = 20,
    local_epochs: int = 1,
    participation: Fraction = 0.2,
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
    initial: Run | np.ndarray | None = None,
    loss: Any = "cross_entropy",
    class_weights: Sequence[float] | None = None,
) -> Run:
    """Run a federated method on a federation.

    Parameters
    ----------
    method : Method
        For example ``fl.methods.FedAvg()``.
    fed : Federation
        One that changes (:func:`fltnb.federations.with_events`) does so before the
        rounds that it names: each round draws and evaluates the clients that are
        present, with their data at that time.
    model : str, nn.Module or function
        A name of :data:`fltnb.models.NAMES`, or a network of your own, as
        :func:`fltnb.models.own` says; also a Model that was made for these samples.
    rounds, local_epochs, participation, batch_size
        Number T of rounds, local epochs E per round, share rho of the clients that take
        part in a round (above 0, at most 1), and batch size B.
    lr, momentum, weight_decay, proximal
        SGD's learning rate, momentum and weight decay, and the weight mu of the
        proximal term (FedProx, arXiv 1812.06127, Algorithm 2; 0: none).
    seed : int
        The seed of all draws except those of the federation.
    dtype, precision
        Number types of models ("float32", "float64") and of convolutions ("float32",
        "bfloat16"): see :class:`fltnb.training.TrainSpec`.
    device, backend, n_workers
        See :func:`fltnb.training.make_engine`; they only change rounding.
    eval_every : int
        Evaluate after every ``eval_every`` rounds, and after the last.
    checkpoint : path, optional
        A file that is written about every 20 s. If it exists, the run continues from
        it. It is not deleted at the end.
    cache, n_jobs, progress
        See :class:`fltnb.methods.Context`.
    watch : callable, optional
        Called before the first round and after every round with: the round; the
        method's state; the models that the participants returned (n, P), None before
        the first round; and the clients' test accuracy (M,) at the last evaluation,
        percent (None after a resume, until the next evaluation).
    initial : Run or array (P,) or (K, P), optional
        Weights to start from instead of random ones: those of a run with one model, or
        rows as in ``Run.theta``. A method that starts from several models takes them in
        order.
    loss : {"cross_entropy", "binary", "squared_error"} or function
        The loss of local training (:mod:`fltnb.training.losses`). "binary" is for two
        classes and a network with one output, "squared_error" for federations with
        numbers, for which R2 replaces accuracy. A function ``loss(outputs, targets)``
        returns the loss of each sample, or the mean.
    class_weights : sequence of C numbers, optional
        One factor per class, for the training losses of its samples; by default 1.

    Raises
    ------
    FltnbError
        A setting is out of range, method, model and federation do not fit together, or
        the checkpoint belongs to another run; it is raised before any work starts.
    DivergedError
        A client's loss or model is not finite; the error's ``run`` has everything up to
        the round before.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(digits, 6, 3, classes_per_cluster=3)
    >>> options = {"rounds": 3, "participation": 0.5, "progress": False}
    >>> run = fl.run(fl.methods.FedAvg(), fed, "mlp32", **options)
    >>> run.history["round"].tolist(), len(run.clients)
    ([0, 0, 1, 1, 2, 2, 3, 3], 6)
    """
    given = dict(locals())  # the arguments: nothing else has been assigned yet
    from . import training

    spec, net, settings = _prepared(given)
    kind: Any = backend  # one of Backend's, which make_engine checks
    with by_name(fed.names), _one_order(), ExitStack() as open_engine:

        def make_engine(fed: Federation) -> Engine:
            open_engine.close()  # of the phase before
            engine = training.make_engine(fed, net, spec, kind, device, n_workers)
            return open_engine.enter_context(engine)

        loop = _begun(given, net, settings, make_engine)
        trained = None
        while True:
            try:
                engine, wanted = loop.send(trained)
            except StopIteration as end:
                return end.value
            trained = engine.train(*wanted)


def run_together(
    runs: Sequence[Mapping[str, Any]], backend: str = "auto", device: str = "auto"
) -> Iterator[tuple[int, Run]]:
    """Run several methods round by round; clients of all runs train in one batch.

    This needs the back end ``stacked``, and runs for which
    :func:`fltnb.training.alike` is equal; otherwise, in each round, they train one
    after the other. Each result equals that of :func:`run` alone, up to rounding.

    Parameters
    ----------
    runs : sequence of dict
        Arguments of :func:`run`, except ``backend`` and ``device``; federations must
        not change.
    backend, device : str
        As for :func:`run`, for all runs.

    Yields
    ------
    int, Run
        The position of a run in ``runs`` and its result, as soon as it has ended. A run
        that diverged is yielded with the reason in ``stopped``, and does not affect the
        others.

    Raises
    ------
    FltnbError
        As for :func:`run`, an argument is unknown or missing, or a federation changes.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> shared = {"fed": fed, "model": "mlp32", "rounds": 2, "progress": False}
    >>> methods = fl.methods.FedAvg(), fl.methods.Local()
    >>> runs = [shared | {"method": method} for method in methods]
    >>> ended = dict(fl.rounds.run_together(runs, "stacked", "cpu"))
    >>> len(ended[0].theta), len(ended[1].theta)  # one model, and one per client
    (1, 6)
    """
    from . import training

    kind: Any = backend  # one of Backend's, which make_engines checks
    place = {"backend": backend, "device": device}
    every = [checked(run, dict(one) | place, "a run") for one in runs]
    prepared = [_prepared(given) for given in every]
    with _one_order(), ExitStack() as open_engines:
        needs = []
        for given, (spec, net, _) in zip(every, prepared, strict=True):
            if len(phases(given["fed"])) > 1:
                raise FltnbError(
                    "run_together cannot run a federation that changes: use fl.run."
                )
            needs.append((given["fed"], net, spec))
        loops = {}
        for k, engine in enumerate(training.make_engines(needs, kind, device)):
            own = open_engines.enter_context(engine)
            _, net, settings = prepared[k]
            loops[k] = _begun(every[k], net, settings, _always(own))

        answers = dict.fromkeys(loops)
        while loops:
            asked = {}
            for k, loop in list(loops.items()):
                try:
                    with by_name(every[k]["fed"].names):
                        asked[k] = loop.send(answers[k])
                except (StopIteration, DivergedError) as end:
                    del loops[k]
                    yield k, end.run if isinstance(end, DivergedError) else end.value
            trained = training.train_together(list(asked.values()))
            answers = dict(zip(asked, trained, strict=True))


def _always(engine: Engine) -> Callable[[Federation], Engine]:
    """Return what gives this engine for any federation."""
    return lambda fed: engine


def _one_order():
    """Keep NumPy in one thread.

    So sums have the same order on every machine and under every scheduler.
    """
    return threadpool_limits(1, user_api="blas")


# arguments of `run` that do not affect numbers, or are treated separately
_NOT = {"method", "fed", "model", "device", "backend", "n_workers", "checkpoint"}
_NOT |= {"cache", "progress", "n_jobs", "watch", "initial"}
_NOT |= {"loss", "class_weights"}
NUMBERS = {
    name: one.default
    for name, one in inspect.signature(run).parameters.items()
    if name not in _NOT
}
"""Arguments of :func:`run` that determine its numbers, and their defaults.

Left out are method, federation, model, initial weights, loss and class weights, which
determine them as well but are stored in another form.
"""


def _prepared(given: dict[str, Any]) -> tuple[TrainSpec, Model, dict[str, Any]]:
    """Return local training, network and settings of a run, or refuse it.

    ``given``: all arguments of :func:`run`.
    """
    from .training import losses

    method, fed, model = given["method"], given["fed"], given["model"]
    numbers = plain({name: given[name] for name in NUMBERS})
    more = {name: given[name] for name in ("loss", "class_weights")}
    spec, net = check(method, fed, model, **numbers, **more)
    settings = {
        "method": method.settings(),
        "federation": fed.settings,
        "data": fed.fingerprint(),
        "model": model if isinstance(model, str) else net.settings(spec.seed),
    }
    settings = plain(settings) | numbers | losses.settings(spec)
    if given["initial"] is not None:
        weights = _weights(given["initial"], net)
        net = net.started(weights)
        settings["initial"] = array_digest(weights)
    return spec, net, settings


def _weights(initial: Run | np.ndarray, net: Model) -> np.ndarray:
    """Return the initial weights (K, P) of a run, or refuse them."""
    if isinstance(initial, Run):
        used = np.unique(initial.rows)
        if len(used) > 1:
            raise FltnbError(
                f"initial is a run with {len(used)} models: choose, "
                "initial=run.theta[run.row(client)], or give all, initial=run.theta."
            )
        initial = initial.theta[used]
    weights = np.atleast_2d(as_array(initial, "initial"))
    fits = weights.ndim == 2 and weights.shape[1] == net.n_parameters and len(weights)
    if not fits or weights.dtype.kind not in "fiu":
        raise FltnbError(
            f"initial must hold rows of {net.name}'s {net.n_parameters:,} weights, not "
            f"the shape {weights.shape} of {weights.dtype}: give those of the same "
            "network."
        )
    with np.errstate(over="ignore"):  # a large float64 becomes infinite
        weights = weights.astype(np.float32)
    if not np.isfinite(weights).all():
        raise FltnbError("initial holds weights that are not finite: train them again.")
    return weights


def _begun(
    given: dict[str, Any],
    net: Model,
    settings: dict[str, Any],
    make_engine: Callable[[Federation], Engine],
) -> Generator[Asked, Trained | None, Run]:
    """Begin a run, or go on with it from its checkpoint."""
    from . import training

    method, shown = given["method"], given["progress"]
    cache, n_jobs = given["cache"], given["n_jobs"]
    place = training.place_of(net, given["backend"], given["device"])
    context = Context(settings["seed"], cache, shown, n_jobs, net, str(place))
    saved = Checkpoint(given["checkpoint"], settings)
    done = saved.load(method)
    course = Course(method, given["fed"], net, settings, context, make_engine, done)
    return (yield from _loop(course, saved, shown, given["watch"]))


def _loop(
    course: Course, checkpoint: Checkpoint, shown: bool, watch: Callable | None
) -> Generator[Asked, Trained | None, Run]:
    """Go through the rounds.

    It yields the training of each round, and is sent the result.
    """
    rounds = course.settings["rounds"]
    eval_every = course.settings["eval_every"]
    name = course.method.name
    done = course.done
    bar = bars.bar(
        total=rounds, initial=done.round, desc=name, unit="round", shown=shown
    )

    if done.round == 0:
        course.evaluate()
        if watch:
            watch(0, done.state, None, course.accuracy["test"])

    stopped = ""
    for round in range(done.round + 1, rounds + 1):
        before = course.fed, done.state
        trained, reason = yield from _round(course, round)
        if trained is None or reason:
            stopped = (
                f"Training stopped at round {round} of {rounds}: {reason}. Everything "
                "up to the round before is kept."
            )
            course.return_to(*before)
            course.evaluate(final=True)
            break

        if round % eval_every == 0 or round == rounds:
            course.evaluate(final=round == rounds)
            bar.set_postfix_str(course.summary(), refresh=False)
        if watch:
            watch(round, done.state, trained.theta, course.accuracy.get("test"))
        if round < rounds:
            checkpoint.save_if_due(done, course.begun)
        bar.update()

    bar.close()
    return course.result(stopped)


def _round(
    course: Course, round: int
) -> Generator[Asked, Trained | None, tuple[Trained | None, str]]:
    """Train and collect a round.

    Returns what was trained (None if the method could not even do that), and why the
    run must stop, or "".
    """
    try:
        course.enter(round)
        state, clients, trained = yield from course.train(round)
        reason = course.divergence(state, clients, trained)
        reason = reason or course.collect(state, clients, trained.theta, round)
    except UnstableError as error:
        said = with_names(first_line(error), course.fed.names)
        return None, said[0].lower() + said[1:]
    return trained, reason


def check(
    method: Method, fed: Federation, model: Any = "mlp", **numbers: Any
) -> tuple[TrainSpec, Model]:
    """Refuse what cannot run, before anything is computed.

    ``numbers``: arguments of :data:`NUMBERS`, ``loss`` and ``class_weights``, as for
    :func:`run`. Returns local training, and the network shaped by the federation's
    data. :class:`fltnb.FltnbError`: a setting is out of range or has the wrong type, or
    method, model and federation do not fit together.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> spec, net = fl.rounds.check(fl.methods.FedAvg(), fed, "mlp32", lr=0.1)
    >>> spec.lr, net.name
    (0.1, 'mlp32')
    """
    from . import models
    from .training import TrainSpec, losses

    if not isinstance(method, Method):
        name = method.__name__ if isinstance(method, type) else "FedAvg"
        raise FltnbError(
            f"method must be a method such as fl.methods.{name}(...), not {method!r}."
        )
    if not isinstance(fed, Federation):
        mend = "see fl.Federation.from_arrays(...)"
        if isinstance(fed, Recipe):
            mend = "call .build() on the recipe"
        raise FltnbError(f"A run needs a Federation, not {type(fed).__name__}: {mend}.")
    hooks.check_parameters(method)
    options = {"method": method, "fed": fed, "model": model} | numbers
    full = checked(run, options, "a run")
    own = hooks.options_from(method, method.local_training())
    if full["proximal"] and "proximal" in own:
        raise FltnbError(
            f"{method.name} has its own proximal term: leave proximal out."
        )
    training = {one.name: full[one.name] for one in fields(TrainSpec)}
    spec = TrainSpec(**training | own)

    if fed.targets == "classes" and fed.n_classes == 1:
        raise FltnbError(
            "All samples have the same class, so there is nothing to learn: check the "
            'labels, or predict numbers with targets="values".'
        )
    _check_phases(method, fed, full["rounds"])
    losses.check(fed, spec)
    net = models.shaped(model, fed, losses.n_outputs(fed, spec.loss))
    method.check_model(net, spec)
    for phase in phases(fed):
        with by_name(phase.fed.names):
            method.check(phase.fed)
            net.check(phase.fed, spec.batch_size)
    if type(method).foresee is not Method.foresee:
        drawn = draws(fed, full["rounds"], full["participation"], spec.seed)
        method.foresee(phases(fed), drawn)
    return spec, net


def _check_phases(method: Method, fed: Federation, rounds: int) -> None:
    """Refuse changes after the last round, and newcomers that are not served."""
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
            f"Method {method.name} does not define the model of a client that joins: "
            "choose another method, or define its `changed`."
        )
