"""Federations that change: clients that join, clients whose data become other data (FLT, arXiv 2103.15947, Alg. 3).

Such a federation is a sequence of ordinary ones, its phases, each from some round on. Client i is the same client in
all of them; who joins later gets the next free numbers, as in the paper (lines 22-26). So a phase holds exactly the
clients that are there, and nothing has to be masked.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream
from ..settings import Natural, Whole, check, checked
from .base import SPLITS, Federation
from .kinds import Base, kind, made

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

    The first phase begins with round 1, and the number of clients never falls.
    """

    phases: tuple[Phase, ...]

    def scaled(self, scaling: str) -> Self:
        """Return the federation with the pixels of all phases scaled in another way, see Federation."""
        phases = tuple(
            phase._replace(fed=phase.fed.scaled(scaling)) for phase in self.phases
        )
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
        text = (
            f"{super().__repr__()}; {self.phases[0].fed.n_clients:,} clients at first"
        )
        for (_, before, _), (round, fed, changed) in zip(
            self.phases, self.phases[1:], strict=False
        ):
            joined = fed.n_clients - before.n_clients
            text += f", before round {round} {joined} join and {int(changed.sum()) - joined} get other data"
        return text


def with_events(
    fed: Federation, events: Sequence[dict[str, Any]], seed: int = 0
) -> ChangingFederation:
    """Let clients of a federation, drawn by ``seed``, join late or get other data.

    Raises FltnbError for unknown keys, an event without effect, more clients than there are, or nobody at the start.

    Parameters
    ----------
    fed : Federation
        All clients, newcomers included. They are numbered anew: first those that are there from the start, in their
        old order, then the newcomers, in the order in which they join.
    events : sequence of dict
        Each with ``round`` (2 or later; it takes place before this round) and at least one of ``join`` and ``drift``.

        ``join``: so many clients come then, drawn evenly from the true clusters (from all clients where those are
        unknown), or from the true ``cluster`` that the event names: a new kind of client, if it is all of them.

        ``drift``: so many clients, 2 at least, hold other data from then on: they pass on what they have (training,
        validation and test samples) in a ring whose members come evenly from the true clusters, so that everybody gets
        the data of another cluster. Nobody drifts who came late or has drifted before.

    Examples
    --------
    >>> from fltnb.federations import from_arrays
    >>> fed = from_arrays(np.eye(8), [0, 1] * 4, np.arange(8) // 2, test_fraction=0.5, clusters=[0, 0, 1, 1])
    >>> [(phase.round, phase.fed.n_clients) for phase in with_events(fed, [{"round": 3, "join": 2}]).phases]
    [(1, 2), (3, 4)]
    """
    if isinstance(fed, ChangingFederation):
        raise FltnbError(
            "A changing federation cannot change once more: give all its events at once."
        )
    seed, events = check("seed", seed, Natural), _events("events", events)
    true = (
        np.zeros(fed.n_clients, dtype=np.int64)
        if fed.clusters is None
        else fed.clusters
    )
    free = np.ones(fed.n_clients, dtype=bool)  # to join late
    joiners = []
    for event in events:
        allowed = free & (true == event.get("cluster", true))
        drawn = _evenly(
            true,
            allowed,
            event.get("join", 0),
            "join",
            stream(seed, "partition", event["round"], 0),
        )
        free[drawn] = False
        joiners.append(np.sort(drawn))
    order = np.concatenate([np.flatnonzero(free), *joiners])
    n_first, true = int(free.sum()), true[order]
    if n_first == 0:
        raise FltnbError("All clients join late: leave one at least for round 1.")
    held = {split: [getattr(fed, split)[i] for i in order] for split in SPLITS}
    clusters = None if fed.clusters is None else true.copy()
    named = ("dataset", "content") if "dataset" in fed.settings else ()
    settings = {key: value for key, value in fed.settings.items() if key in named} | {
        "kind": "changing"
    }
    settings |= {
        "base": {key: value for key, value in fed.settings.items() if key not in named}
    }
    settings |= {"events": events, "seed": seed}

    def now(n: int) -> Federation:
        parts = {split: held[split][:n] for split in SPLITS}
        return replace(
            fed,
            **parts,
            clusters=None if clusters is None else clusters[:n].copy(),
            settings=settings,
        )

    steady = np.arange(len(order)) < n_first  # may still drift
    found = [Phase(1, now(n_first), np.zeros(n_first, dtype=bool))]
    for event, joining in zip(events, joiners, strict=True):
        n_before = found[-1].fed.n_clients
        n = n_before + len(joining)
        drifting = _evenly(
            true,
            steady,
            event.get("drift", 0),
            "drift",
            stream(seed, "partition", event["round"], 1),
        )
        ring, giver = _exchange(drifting, clusters)
        steady[ring] = False
        for split in SPLITS:
            for client, index in zip(
                ring, [held[split][i] for i in giver], strict=True
            ):
                held[split][client] = index
        if clusters is not None:
            clusters[ring] = clusters[giver]
        changed = np.arange(n) >= n_before
        changed[ring] = True
        found.append(Phase(event["round"], now(n), changed))
    fields = {
        name: getattr(found[-1].fed, name) for name in Federation.__dataclass_fields__
    }
    return ChangingFederation(**fields, phases=tuple(found))


def _event(
    round: Annotated[int, Whole(2)],
    join: Natural = 0,
    cluster: Natural = 0,
    drift: Natural = 0,
) -> None:
    """Take what an event has; its signature checks the parts."""


def _events(name: str, events: Any) -> list[dict[str, int]]:
    """Return events by round, the parts of each in the order of :func:`_event`, or refuse them."""
    done = []
    for event in events if isinstance(events, (list, tuple)) else [events]:
        if not isinstance(event, dict):
            raise FltnbError(
                f'An event must be a dict such as {{"round": 20, "join": 5}}, not {event!r}.'
            )
        full = checked(_event, event, "an event")
        if not full["join"] and not full["drift"]:
            raise FltnbError(
                f"The event of round {full['round']} changes nothing: give join or drift."
            )
        if full["drift"] == 1:
            raise FltnbError(
                "A single client cannot drift, because drifting clients exchange data: give 2 or more."
            )
        done.append({key: value for key, value in full.items() if key in event})
    if not done:
        raise FltnbError(
            'A changing federation needs an event, such as {"round": 20, "join": 5}.'
        )
    if len({event["round"] for event in done}) < len(done):
        raise FltnbError(
            "Two events have the same round: put join and drift of one round into one event."
        )
    return sorted(done, key=lambda event: event["round"])


Events = Annotated[list, _events]


@kind
def changing(
    images: ImageSet, /, base: Base, events: Events, seed: Natural = 0
) -> ChangingFederation:
    """Partition an image set, then let clients join late or get other data (FLT, arXiv 2103.15947, Algorithm 3).

    ``base`` is the partition that all clients together have, such as ``{"kind": "label_clusters", "n_clients": 20,
    ...}``, with its own seed; ``events``, ``seed`` and errors are those of :func:`with_events`.
    """
    return with_events(made(images, base), events, seed)


def _exchange(
    drifting: np.ndarray, clusters: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return drifting clients in a ring, and whose data each gets: those of another cluster, where these are known."""
    if clusters is None or not len(drifting):
        return drifting, np.roll(drifting, -1)
    ring = drifting[np.argsort(clusters[drifting], kind="stable")]
    largest = int(np.unique(clusters[ring], return_counts=True)[1].max())
    if 2 * largest > len(ring):
        raise FltnbError(
            f"{largest} of {len(ring)} drifting clients are of one cluster, over half: let more drift."
        )
    # clusters lie side by side in the ring: a shift by the largest one leads everybody out of its own
    return ring, np.roll(ring, -largest)


def _evenly(
    true: np.ndarray, allowed: np.ndarray, n: int, what: str, rng: np.random.Generator
) -> np.ndarray:
    """Draw ``n`` of the allowed clients, the same number from every true cluster as far as possible."""
    if n > allowed.sum():
        raise FltnbError(
            f"{n} clients are to {what} but only {allowed.sum()} can: ask for fewer."
        )
    shuffled = rng.permutation(np.flatnonzero(allowed))
    turn = [
        np.sum(true[shuffled[:at]] == true[client])
        for at, client in enumerate(shuffled)
    ]  # of the same, before
    return shuffled[np.argsort(turn, kind="stable")][:n]
