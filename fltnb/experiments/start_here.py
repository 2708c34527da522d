"""Runs of notebook 00."""

from __future__ import annotations

from ..store import Spec
from .common import SEEDS, federation, method, training


def specs(profile: str) -> list[Spec]:
    """FLT against FedAvg, Local and Oracle on 25 clients; always on the embedded digits."""
    rows = {
        "fedavg": method("fedavg", "digits", "described", profile),
        "local": method("local", "digits", "described", profile),
        "flt": method("flt_enc1", "digits", "described", profile) | {"name": "flt"},
        "oracle": {"name": "oracle"},
    }
    return [
        Spec(
            federation("digits", "described", seed),
            settings,
            **training("digits", "described", profile),
            seed=seed,
            experiment="00_start_here",
            dataset="digits",
            method_id=name,
        )
        for name, settings in rows.items()
        for seed in SEEDS[profile]
    ]
