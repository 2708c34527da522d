"""Phases: a federation that changes is a sequence of ordinary ones, each from some round on.

Client i is the same client in all phases; who joins later gets the next free numbers, as in the FLT paper (Algorithm 3,
lines 22-26), where M' newcomers are clients M + 1 to M + M'. So a phase holds exactly the clients that are there, and
nothing has to be masked. :mod:`~fltnb.federations.changing` makes such federations.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .base import Federation

GROUPS = ("stayed", "drifted", "joined")
"""What may have happened to a client: nothing, its data changed, it came later (whatever happened then)."""


class Phase(NamedTuple):
    """A stretch of rounds: ``fed`` holds from ``round`` on; ``changed`` (M,) marks clients that are new or drifted."""

    round: int
    fed: Federation
    changed: np.ndarray


def phases(fed: Federation) -> tuple[Phase, ...]:
    """Return the phases of any federation; an ordinary one has a single phase, in which nobody changed."""
    if isinstance(fed, ChangingFederation):
        return fed.phases
    return (Phase(1, fed, np.zeros(fed.n_clients, dtype=bool)),)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ChangingFederation(Federation):
    """A federation with phases, two at least; its own fields are those of the last one, when everybody has joined.

    Made by :func:`fltnb.federations.with_events` or, from an image set, by :func:`fltnb.federations.changing`. The
    first phase begins with round 1, and the number of clients never falls.
    """

    phases: tuple[Phase, ...]

    def scaled(self, scaling: str) -> ChangingFederation:
        """Return the federation with the pixels of all phases scaled in another way, see Federation."""
        phases = tuple(phase._replace(fed=phase.fed.scaled(scaling)) for phase in self.phases)
        return replace(super().scaled(scaling), phases=phases)

    @property
    def groups(self) -> np.ndarray:
        """What happened to each client during the run, (M,) strings of :data:`GROUPS`."""
        groups = np.full(self.n_clients, "stayed", dtype="<U7")
        for _, _, changed in self.phases[1:]:
            groups[np.flatnonzero(changed)] = "drifted"
        groups[self.phases[0].fed.n_clients :] = "joined"
        return groups

    @cached_property
    def _fingerprint(self) -> str:
        parts = [f"{phase.round} {phase.fed.fingerprint()}" for phase in self.phases]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        text = f"{super().__repr__()}; {self.phases[0].fed.n_clients:,} clients at first"
        for (_, before, _), (round, fed, changed) in zip(self.phases, self.phases[1:], strict=False):
            joined = fed.n_clients - before.n_clients
            text += f", before round {round} {joined} join and {int(changed.sum()) - joined} get other data"
        return text
