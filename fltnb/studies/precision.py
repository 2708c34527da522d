"""Jobs of notebook 06: what bfloat16 convolutions change, beside float32 and the spread over seeds.

LeNet in FLT's scenario 1 on CIFAR-10 (20 of its 100 rounds), and EMD-CFL's own network on a small Rotated MNIST. They
run where the processor or the GPU has bfloat16; nothing else in this package chooses it.
"""

from __future__ import annotations

from ..results import Job
from . import emdcfl, emdcfl_rotated
from .common import SEEDS, federation, method, training

PRECISIONS = ("float32", "bfloat16")
LENET = ("fedavg", "fedsem", "oracle")
EMDCFL_CNN = ("fedavg", "emdcfl", "oracle")
FEW = {"model": "emdcfl_cnn", "samples": 300, "test": 100, "clients": 8}
"""Rotated MNIST here: two clients per angle, steps as many as two cores take in a minute."""
SHORT = {"rounds": 5, "local_epochs": 3, "batch_size": 16}


def jobs(profile: str) -> list[Job]:
    """Return every run in both precisions; none in ``demo``, whose networks have no convolution."""
    result = []
    for seed in SEEDS[profile] if profile != "demo" else ():
        for precision in PRECISIONS:
            axes = {"dataset": "cifar10", "variant": "as_written", "precision": precision}
            fed, options = federation("cifar10", "as_written", seed), training("cifar10", "as_written", profile)
            options |= {"rounds": 20, "precision": precision, "seed": seed}
            for name in LENET:
                how = method(name, "cifar10", "as_written", profile)
                result.append(Job.training(fed, how, **options, axes=axes))
            fed = {"kind": "rotated_copies", "dataset": "mnist", "n_clients": FEW["clients"], "seed": seed}
            fed |= {"samples_per_client": FEW["samples"], "test_per_client": FEW["test"]}
            fed |= {"angles": emdcfl_rotated.VERSIONS["rotated"]} | emdcfl.scaling(FEW["model"], False)
            for name in EMDCFL_CNN:
                own = {"axes": {"precision": precision, "clients": FEW["clients"]}, "precision": precision}
                result.append(emdcfl.row(name, fed, "rotated_mnist", seed, FEW, 4, **own, **SHORT))
    return result
