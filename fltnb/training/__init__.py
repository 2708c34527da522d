"""Local SGD of many clients and tests of many (model, client) pairs: one contract, three back ends.

They agree up to rounding, and none depends on grouping or on the number of workers.
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
    """Return an engine that trains and tests models of a federation's clients, for a ``with`` statement.

    Parameters
    ----------
    fed : Federation, model : Model, spec : TrainSpec
    backend : {"auto", "serial", "pool", "stacked"}
        "auto": the pool on a CPU, stacked on a GPU; serial for torchvision's networks, which train in no other.
    device : {"auto", "cpu", "cuda"}
        "auto": a GPU where there is one, unless the back end is ``pool``, or ``serial`` with a small network.
    n_workers : int, optional
        Processes of the pool; default one per available core. The results do not depend on it. For torchvision's
        networks on a CPU: threads, on whose number the last digits may depend; default all that torch has. On a busy
        machine threads that wait for each other can take ten times as long as one.

    Raises
    ------
    FltnbError
        Unknown names, a GPU or bfloat16 asked for where there is none, or a model that does not fit the federation.

    Warns
    -----
    RuntimeWarning
        Where worker processes cannot be had (the serial back end is returned instead), or where precision "bfloat16"
        changes nothing, since the model has no convolutions.
    """
    checked(make_engine, locals(), "an engine")
    if device == "cuda" and not torch.cuda.is_available():
        raise FltnbError(
            "There is no usable GPU for device 'cuda': choose device 'auto' or 'cpu'."
        )
    if device == "cuda" and backend == "pool":
        raise FltnbError(
            "The pool back end trains on the CPU: choose backend 'stacked' for device 'cuda'."
        )
    if model.large and backend in ("pool", "stacked"):
        raise FltnbError(
            f"Model {model.name!r} trains in the serial back end only, not in {backend!r}: choose 'auto'."
        )
    validate(fed, model)
    model.check(fed, spec.batch_size)
    backend = "serial" if model.large else backend
    if device == "auto":
        wanted = model.large or backend in ("auto", "stacked")
        device = "cuda" if wanted and torch.cuda.is_available() else "cpu"
    if spec.precision == "bfloat16":
        _check_bfloat16(model, device)
    if backend == "stacked" or (backend == "auto" and device == "cuda"):
        return StackedEngine(fed, model, spec, device)
    if backend == "serial":
        return SerialEngine(fed, model, spec, device, n_workers)
    try:
        return PoolEngine(fed, model, spec, n_workers)
    except PoolUnavailableError as error:
        warnings.warn(
            f"Training one client at a time: {error}", RuntimeWarning, stacklevel=2
        )
        return SerialEngine(fed, model, spec, device)


def has_bfloat16(device: str) -> bool:
    """Whether the processor ("cpu") or the GPU ("cuda") computes in bfloat16 itself, without emulation."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(False)
    able = torch.cpu.get_capabilities()
    return any(
        able.get(name) for name in ("amx_bf16", "avx512_bf16", "bf16")
    )  # the last one: Arm


def _check_bfloat16(model: Model, device: str) -> None:
    """Refuse bfloat16 where it would be emulated, slowly; warn where there is nothing to compute in it."""
    if not has_bfloat16(device):
        able = torch.cpu.get_capabilities()
        what = (
            "GPU"
            if device == "cuda"
            else f"processor ({able.get('cpu_name', able['architecture'])})"
        )
        raise FltnbError(
            f"This {what} has no bfloat16 and would emulate it slowly: leave precision at 'float32'."
        )
    if not model.large and not model.convolutional:
        sentence = f"Model {model.name!r} has no convolutions: precision 'bfloat16' changes nothing but the run's key."
        warnings.warn(sentence, RuntimeWarning, stacklevel=3)
