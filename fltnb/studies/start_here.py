"""Jobs of notebook 00."""

from __future__ import annotations

from ..results import Job
from .common import federation, method, training


def jobs(profile: str) -> list[Job]:
    """FLT against FedAvg, Local and Oracle on 25 clients with digits, whatever the profile."""
    rows = {
        "fedavg": method("fedavg", "digits", "as_written", profile),
        "local": method("local", "digits", "as_written", profile),
        "flt": method("flt_enc1", "digits", "as_written", profile) | {"name": "flt"},
        "oracle": {"name": "oracle"},
    }
    return [
        Job.training(
            federation("digits", "as_written", seed=0),
            settings,
            **training("digits", "as_written", profile) | {"rounds": 15},
            axes={"dataset": "digits", "method": name},
        )
        for name, settings in rows.items()
    ]
