"""Tests of FLT's claims."""

from .claim import Finding, claim
from .numbers import Numbers

T12 = ("T1", "T2")


@claim("flt-t1-1", tables=T12, show="{:.2f}")
def encoders_agree(t: Numbers) -> Finding:
    """Enc1 and Enc2 agree within 1 point."""
    both = t.by_seed("flt_enc1", "flt_enc2")
    apart = (both["flt_enc1"] - both["flt_enc2"]).abs().mean()
    return Finding(apart, apart <= 1)


@claim("flt-t1-2", data=("cifar10",), tables=("T1",))
def fedavg_collapses(t: Numbers) -> Finding:
    """FedAvg is 40 points or more behind FLT."""
    mean = t.means("flt_enc1", "fedavg")
    lead = mean["flt_enc1"] - mean["fedavg"]
    return Finding(lead, lead > 40)
