"""Jobs of notebook 00."""

from ..results import Job
from .common import federation, method, training


def jobs(profile: str) -> list[Job]:
    """FLT against FedAvg, Local and Oracle on 25 clients with digits, whatever the profile."""
    rows = [
        method(name, "digits", "as_written", profile)
        for name in ("fedavg", "local", "flt_enc1")
    ]
    rows[-1]["name"] = "flt"
    fed, how = (
        federation("digits", "as_written", seed=0),
        training("digits", "as_written", "small"),
    )
    return [
        Job.training(fed, one, **how, axes={"dataset": "digits"})
        for one in (*rows, {"name": "oracle"})
    ]
