"""Local SGD of many clients, and tests of many (model, client) pairs.

There are three back ends with one interface. They agree up to rounding, and do not
depend on the grouping of clients or the number of workers.
"""

import warnings
from collections.abc import Sequence
from typing import Literal, get_args

import torch

from ..errors import FltnbError
from ..federations import Federation
from ..models import Model
from ..settings import Count, checked
from .contract import (
    Engine,
    Trained,
    TrainSpec,
    UnavailableError,
    Variation,
    by_kernels,
    validate,
)
from .devices import best_device, device_of, has_bfloat16
from .evaluation import Evaluation
from .functional import FunctionalEngine
from .losses import repr_of
from .runner import Way
from .serial import SerialEngine
from .stacked import StackedEngine, sharing, train_together
from .stacks import alike

__all__ = [
    "BACKENDS",
    "Engine",
    "Evaluation",
    "TrainSpec",
    "Trained",
    "Variation",
    "alike",
    "has_bfloat16",
    "make_engine",
    "make_engines",
    "train_together",
]

Backend = Literal["auto", "serial", "pool", "stacked"]
BACKENDS = get_args(Backend)


def make_engine(
    fed: Federation,
    model: Model,
    spec: TrainSpec,
    backend: Backend = "auto",
    device: str = "auto",
    n_workers: Count | None = None,
    step: Way = "auto",
) -> Engine:
    """Return an engine that trains and tests models of a federation's clients.

    Use it in a ``with`` statement.

    Parameters
    ----------
    fed : Federation
    model : Model
    spec : TrainSpec
    backend : {"auto", "serial", "pool", "stacked"}
        "auto": the pool on a CPU, stacked on a GPU, and serial for torchvision's
        networks, which need it, and for networks that cannot be stacked.
    device : str
        "auto", or a device name of torch such as "cpu", "cuda:1" or "mps" (serial
        only). "auto": a GPU if there is one, unless the back end is ``pool``, or
        ``serial`` with a small network.
    n_workers : int, optional
        Processes of the pool, by default one per available core. The results do not
        depend on it. For torchvision's networks on a CPU it is the number of threads,
        by default all that torch has; the last digits may depend on it. On a busy
        machine, threads that wait for each other can take ten times as long as one.
    step : {"auto", "eager", "compiled", "graph", "compiled graph"}
        How the stacked back end runs a step of the papers' networks: operation by
        operation, compiled by torch, as a CUDA graph, or as a graph of compiled
        kernels. "auto": as CUDA graphs on a GPU, if their first step agrees with the
        plain one, else "eager".

    Raises
    ------
    FltnbError
        A name is unknown; the device, or bfloat16, is requested but not available; the
        model does not fit the federation, or cannot be stacked although this is
        requested.

    Warns
    -----
    RuntimeWarning
        Worker processes are not available, or a network cannot be stacked on a GPU (the
        serial back end is returned instead); or precision "bfloat16" changes nothing,
        because the model has no convolutions.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> net = fl.models.make("mlp32", fed.input_shape, fed.n_classes)
    >>> theta = net.init(seed=0)[None]
    >>> spec = fl.training.TrainSpec(lr=0.1)
    >>> with fl.training.make_engine(fed, net, spec, backend="serial") as engine:
    ...     trained = engine.train(theta, rows=[0, 0], clients=[1, 4], round=1)
    >>> trained.theta.shape
    (2, 2410)
    """
    checked(make_engine, locals(), "an engine")
    chosen, place = _choice(model, backend, device)
    _check(fed, model, spec, place)
    if step != "auto" and chosen != "stacked":
        raise FltnbError(
            f"Step {step!r} is for the back end 'stacked', and this is {chosen!r}: "
            "leave it at 'auto'."
        )
    try:
        if chosen == "stacked":
            return _stacked(fed, model, spec, place, step)
        if chosen == "pool":
            from .pool import PoolEngine  # needs numba, which a GPU does not

            return PoolEngine(fed, model, spec, n_workers)
    except UnavailableError as error:
        if backend == "stacked":
            raise FltnbError(
                f"{str(error)[:-1]}: choose backend 'auto' or 'serial'."
            ) from error
        sentence = f"Training one client at a time: {error}"
        warnings.warn(sentence, RuntimeWarning, stacklevel=2)
        n_workers = None
    return SerialEngine(fed, model, spec, place, n_workers)


def stacking(
    model: Model, spec: TrainSpec, backend: Backend = "auto", device: str = "auto"
) -> torch.device | None:
    """Return the device on which clients of several such runs train in one stack.

    It is None if each run trains by itself: in another back end than ``stacked``, and
    with own networks and losses, which train by ``torch.func``.
    """
    checked(stacking, locals(), "an engine")
    chosen, place = _choice(model, backend, device)
    return place if chosen == "stacked" and by_kernels(model, spec) else None


def make_engines(
    runs: Sequence[tuple[Federation, Model, TrainSpec]],
    backend: Backend = "auto",
    device: str = "auto",
) -> list[Engine]:
    """Return an engine for each of several runs, as :func:`make_engine` does.

    They share their stacks if possible (:func:`train_together`).

    Parameters
    ----------
    runs : sequence of (Federation, Model, TrainSpec)
    backend, device
        As for :func:`make_engine`.

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
    >>> len(fl.training.make_engines(runs, "stacked", "cpu"))
    2
    """
    if not runs:
        return []
    _, model, spec = runs[0]
    place = stacking(model, spec, backend, device)
    if place is not None:
        kinds = {alike(fed, model, spec) for fed, model, spec in runs}
        if len(kinds) == 1:
            for fed, model, spec in runs:
                _check(fed, model, spec, place)
            return sharing(runs, place)

    engines = []
    for fed, model, spec in runs:
        engines.append(make_engine(fed, model, spec, backend, device))
    return engines


def _choice(model: Model, backend: Backend, device: str) -> tuple[str, torch.device]:
    """Return back end and device, of those that are asked for."""
    place = place_of(model, backend, device)
    _check_place(model, backend, place)
    if backend != "auto":
        return backend, place
    if model.large:
        return "serial", place
    usual = {"cpu": "pool", "cuda": "stacked"}
    return usual.get(place.type, "serial"), place


def _check(fed: Federation, model: Model, spec: TrainSpec, place: torch.device) -> None:
    """Refuse what does not go together, and number types that the device lacks."""
    validate(fed, model, spec)
    model.check(fed, spec.batch_size)
    _check_types(model, spec, place)


def place_of(model: Model, backend: Backend, device: str) -> torch.device:
    """Return the device that an engine of :func:`make_engine` works on.

    Raises FltnbError if there is no such device.
    """
    if device != "auto":
        return device_of(device)
    return best_device(model.large or backend in ("auto", "stacked"))


def _stacked(
    fed: Federation, model: Model, spec: TrainSpec, place: torch.device, step: Way
) -> Engine:
    """Return the stacked engine of a network: by kernels, or by ``torch.func``."""
    if by_kernels(model, spec):
        return StackedEngine(fed, model, spec, place, step)
    if step != "auto":
        raise FltnbError(
            f"Step {step!r} is for fltnb's own networks with cross entropy, and this "
            f"is {model.name} with {repr_of(spec.loss)}: leave it at 'auto'."
        )
    return FunctionalEngine(fed, model, spec, place)


def _check_place(model: Model, backend: Backend, place: torch.device) -> None:
    """Refuse a back end that the model or the device does not have."""
    if backend not in ("auto", *model.backends):
        able = " or ".join(model.backends)
        raise FltnbError(
            f"Model {model.name!r} trains in the {able} back end only, not in "
            f"{backend!r}: choose 'auto'."
        )
    if place.type == "cpu":
        return
    if backend == "pool":
        raise FltnbError(
            "The pool back end trains on the CPU: choose backend 'stacked' for device "
            f"{str(place)!r}."
        )
    if backend == "stacked" and place.type != "cuda":
        raise FltnbError(
            f"On device {str(place)!r} clients train one after the other: choose "
            "backend 'auto' or 'serial'."
        )


def _check_types(model: Model, spec: TrainSpec, place: torch.device) -> None:
    """Refuse number types that a device does not have."""
    if place.type == "mps" and spec.dtype == "float64":
        raise FltnbError("Device 'mps' has no float64: leave dtype at 'float32'.")
    if spec.precision == "bfloat16":
        _check_bfloat16(model, place.type)


def _check_bfloat16(model: Model, device: str) -> None:
    """Refuse bfloat16 that would be emulated; warn where it changes nothing."""
    if not has_bfloat16(device):
        able = torch.cpu.get_capabilities()
        processor = able.get("cpu_name", able["architecture"])
        what = "GPU" if device == "cuda" else f"processor ({processor})"
        raise FltnbError(
            f"This {what} has no bfloat16 and would emulate it slowly: leave precision "
            "at 'float32'."
        )
    if model.layers and not model.convolutional:
        sentence = (
            f"Model {model.name!r} has no convolutions: precision 'bfloat16' changes "
            "nothing but the run's key."
        )
        warnings.warn(sentence, RuntimeWarning, stacklevel=3)
