"""Runs of notebook 00."""

from __future__ import annotations

from ..store import Spec
from .common import SEEDS, federation, method, training


def specs(profile: str) -> list[Spec]:
    """FLT against FedAvg, Local and Oracle on 25 clients; always on the embedded digits."""
    rows = {
        "fedavg": method("fedavg", "digits", "as_written", profile),
        "local": method("local", "digits", "as_written", profile),
        "flt": method("flt_enc1", "digits", "as_written", profile) | {"name": "flt"},
        "oracle": {"name": "oracle"},
    }
    return [
        Spec(
            federation("digits", "as_written", seed),
            settings,
            **training("digits", "as_written", profile),
            seed=seed,
            experiment="00_start_here",
            dataset="digits",
            method_id=name,
        )
        for name, settings in rows.items()
        for seed in SEEDS[profile]
    ]
