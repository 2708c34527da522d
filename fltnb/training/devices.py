"""Where a training can run: torch's devices by name, and what they have."""

from typing import Any

import torch

from ..errors import FltnbError


def device_of(name: Any) -> torch.device:
    """Return a device of torch's that is there, such as "cpu", "cuda:1" or "mps".

    Raises
    ------
    FltnbError
        There is no device with this name on this machine.
    """
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise FltnbError(
            f"{name!r} is no device of torch: choose 'auto', 'cpu', 'cuda', 'cuda:1' "
            "or 'mps'."
        ) from error
    if not _is_there(device):
        what = "memory" if device.type in ("cpu", "meta") else "GPU"
        raise FltnbError(
            f"There is no usable {what} for device {str(device)!r}: choose device "
            "'auto' or 'cpu'."
        )
    return device


def _is_there(device: torch.device) -> bool:
    """Whether a tensor can be made on a device."""
    if device.type == "meta":
        return False
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        return False
    return True


def best_device(useful: bool = True) -> torch.device:
    """Return the GPU where there is one and it is ``useful``, else the CPU."""
    return torch.device("cuda" if useful and torch.cuda.is_available() else "cpu")


def free_memory(device: torch.device) -> float:
    """Return a GPU's free memory in bytes; infinity for other devices."""
    if device.type != "cuda":
        return float("inf")
    return torch.cuda.mem_get_info(device)[0]


def check_room(needed: float, device: torch.device, what: str, mend: str) -> None:
    """Refuse what a GPU has no memory for (FltnbError).

    ``needed``: bytes; ``what`` needs them; ``mend``: the advice.
    """
    free = free_memory(device)
    if needed > free:
        raise FltnbError(
            f"{what} {needed / 2**30:.1f} GiB, and the GPU has {free / 2**30:.1f} "
            f"free: choose {mend}."
        )


def has_bfloat16(device: str) -> bool:
    """Whether a processor ("cpu") or GPU ("cuda") has bfloat16 without emulation.

    Examples
    --------
    >>> import fltnb as fl
    >>> isinstance(fl.training.has_bfloat16("cpu"), bool)
    True
    """
    if device == "cuda":
        return torch.cuda.is_bf16_supported(False)
    if device != "cpu":
        return False
    able = torch.cpu.get_capabilities()
    names = ("amx_bf16", "avx512_bf16", "bf16")  # the last one is Arm's
    return any(able.get(name) for name in names)
