"""Local SGD of many clients, and tests of many (model, client) pairs.

One contract, three back ends. They agree up to rounding, and none depends on grouping
or on the number of workers.
"""

import warnings
from typing import Literal, get_args

import torch

from ..errors import FltnbError
from ..federations import Federation
from ..models import Model
from ..settings import Count, checked
from .contract import Engine, Trained, TrainSpec, validate
from .evaluation import Evaluation
from .pool import PoolEngine, PoolUnavailableError
from .serial import SerialEngine
from .stacked import StackedEngine

__all__ = [
    "BACKENDS",
    "Engine",
    "Evaluation",
    "TrainSpec",
    "Trained",
    "has_bfloat16",
    "make_engine",
]

Backend = Literal["auto", "serial", "pool", "stacked"]
Device = Literal["auto", "cpu", "cuda"]
BACKENDS = get_args(Backend)


def make_engine(
    fed: Federation,
    model: Model,
    spec: TrainSpec,
    backend: Backend = "auto",
    device: Device = "auto",
    n_workers: Count | None = None,
) -> Engine:
    """Return an engine that trains and tests models of a federation's clients.

    It is for a ``with`` statement.

    Parameters
    ----------
    fed : Federation
    model : Model
    spec : TrainSpec
    backend : {"auto", "serial", "pool", "stacked"}
        "auto": the pool on a CPU, stacked on a GPU, and serial for torchvision's
        networks, which train in no other.
    device : {"auto", "cpu", "cuda"}
        "auto": a GPU where there is one, unless the back end is ``pool``, or ``serial``
        with a small network.
    n_workers : int, optional
        Processes of the pool, by default one per available core. The results do not
        depend on it. For torchvision's networks on a CPU it is the number of threads,
        by default all that torch has; the last digits may depend on that number. On a
        busy machine, threads that wait for each other can take ten times as long as
        one.

    Raises
    ------
    FltnbError
        A name is unknown, there is no GPU or no bfloat16 although it is asked for, or
        the model does not fit the federation.

    Warns
    -----
    RuntimeWarning
        Worker processes cannot be had (the serial back end is returned instead), or
        precision "bfloat16" changes nothing, since the model has no convolutions.
    """
    checked(make_engine, locals(), "an engine")
    _check_place(model, backend, device)
    validate(fed, model, spec)
    model.check(fed, spec.batch_size)

    if model.large:
        backend = "serial"
    if device == "auto":
        device = _best_device(model, backend)
    if backend == "auto":
        backend = "pool" if device == "cpu" else model.backends[-1]
    if backend == "pool" and device != "cpu":
        backend = "serial"
    if spec.precision == "bfloat16":
        _check_bfloat16(model, device)

    if backend == "stacked":
        return StackedEngine(fed, model, spec, device)
    if backend == "serial":
        return SerialEngine(fed, model, spec, device, n_workers)
    try:
        return PoolEngine(fed, model, spec, n_workers)
    except PoolUnavailableError as error:
        sentence = f"Training one client at a time: {error}"
        warnings.warn(sentence, RuntimeWarning, stacklevel=2)
        return SerialEngine(fed, model, spec, device)


def _check_place(model: Model, backend: Backend, device: Device) -> None:
    """Refuse a back end or a device that the model or this machine does not have."""
    if device == "cuda" and not torch.cuda.is_available():
        raise FltnbError(
            "There is no usable GPU for device 'cuda': choose device 'auto' or 'cpu'."
        )
    if device == "cuda" and backend == "pool":
        raise FltnbError(
            "The pool back end trains on the CPU: choose backend 'stacked' for device "
            "'cuda'."
        )
    if backend not in ("auto", *model.backends):
        able = " or ".join(model.backends)
        raise FltnbError(
            f"Model {model.name!r} trains in the {able} back end only, not in "
            f"{backend!r}: choose 'auto'."
        )


def _best_device(model: Model, backend: Backend) -> Device:
    useful = model.large or backend in ("auto", "stacked")
    return "cuda" if useful and torch.cuda.is_available() else "cpu"


def has_bfloat16(device: str) -> bool:
    """Whether a processor ("cpu") or GPU ("cuda") has bfloat16 without emulation."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(False)
    able = torch.cpu.get_capabilities()
    names = ("amx_bf16", "avx512_bf16", "bf16")  # the last one is Arm's
    return any(able.get(name) for name in names)


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
