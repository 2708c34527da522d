"""Federations that change (FLT, arXiv 2103.15947, Algorithm 3).

Clients join, and clients' data are replaced. Such a federation is a sequence of
ordinary federations, its phases, each starting at some round. Client i is the same
client in all of them; later clients get the next free numbers, as in the paper (lines
22-26). So a phase contains exactly the clients that are present, and no masks are
needed.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError
from ..randomness import stream
from ..settings import Natural, Whole, check, checked
from .base import SPLITS, Federation
from .kinds import Base, kind, made

GROUPS = ("stayed", "drifted", "joined")
"""What may have happened to a client: nothing, its data changed, or it joined later.

A client that joined later has "joined", whatever happened afterwards.
"""


class Phase(NamedTuple):
    """A stretch of rounds.

    ``fed`` is valid from ``round`` on; ``changed``, bool (M,), marks clients that are
    new or have drifted.
    """

    round: int
    fed: Federation
    changed: np.ndarray


def phases(fed: Federation) -> tuple[Phase, ...]:
    """Return the phases of any federation.

    An ordinary federation has a single phase, in which no client changed.
    """
    if isinstance(fed, ChangingFederation):
        return fed.phases
    return (Phase(1, fed, np.zeros(fed.n_clients, dtype=bool)),)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ChangingFederation(Federation):
    """A federation with at least two phases.

    Its own fields are those of the last phase, when all clients have joined. The first
    phase begins with round 1, and the number of clients never decreases.
    """

    phases: tuple[Phase, ...]

    def scaled(self, scaling: str) -> Self:
        """Return the federation with all phases' pixels scaled, see Federation."""
        scaled = [
            phase._replace(fed=phase.fed.scaled(scaling)) for phase in self.phases
        ]
        return replace(super().scaled(scaling), phases=tuple(scaled))

    @property
    def groups(self) -> np.ndarray:
        """Return what happened to each client in the run, (M,) of :data:`GROUPS`."""
        groups = np.full(self.n_clients, "stayed", dtype="<U7")
        for phase in self.phases[1:]:
            groups[np.flatnonzero(phase.changed)] = "drifted"
        groups[self.phases[0].fed.n_clients :] = "joined"
        return groups

    @cached_property
    def _fingerprint(self) -> str:
        """The fingerprint of all phases, with the rounds in which they begin."""
        parts = [f"{phase.round} {phase.fed.fingerprint()}" for phase in self.phases]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        n_first = self.phases[0].fed.n_clients
        text = f"{super().__repr__()}; {n_first:,} clients at first"
        for before, phase in pairwise(self.phases):
            joined = phase.fed.n_clients - before.fed.n_clients
            drifted = phase.changed.sum() - joined
            text += (
                f", before round {phase.round} {joined} join and {drifted} get other "
                "data"
            )
        return text


def with_events(
    fed: Federation, events: Sequence[dict[str, Any]], seed: int = 0
) -> ChangingFederation:
    """Let clients of a federation, drawn by ``seed``, join late or get other data.

    Raises FltnbError if a key is unknown or has no effect, there are fewer clients than
    an event needs, or no client is there at the start.

    Parameters
    ----------
    fed : Federation
        All clients, including newcomers. They are numbered again: first those that are
        present from the start, in their old order, then the newcomers, in the order in
        which they join.
    events : sequence of dict
        Each with ``round`` (2 or later; it takes place before this round) and at least
        one of ``join`` and ``drift``.

        ``join``: the number of clients that join. They are drawn evenly from the true
        clusters (from all clients if these are unknown), or from the true ``cluster``
        that the event names; this is a new kind of client if all of the cluster join.

        ``drift``: the number of clients, at least 2, that hold other data from then on.
        They pass on their data (training, validation and test samples) in a ring whose
        members come evenly from the true clusters, so that each gets the data of
        another cluster. Clients that joined late or drifted before do not drift.

    Examples
    --------
    >>> from fltnb.federations import from_arrays
    >>> fed = from_arrays(
    ...     np.eye(8), [0, 1] * 4, np.arange(8) // 2, 0.5, clusters=[0, 0, 1, 1]
    ... )
    >>> changing = with_events(fed, [{"round": 3, "join": 2}])
    >>> [(phase.round, phase.fed.n_clients) for phase in changing.phases]
    [(1, 2), (3, 4)]
    """
    if isinstance(fed, ChangingFederation):
        raise FltnbError(
            "A changing federation cannot change again: give all its events at once."
        )
    seed = check("seed", seed, Natural)
    events = _events("events", events)
    known = fed.clusters is not None
    if not known and any("cluster" in event for event in events):
        raise FltnbError(
            f"An event names a true cluster, and those of {fed.name} are unknown: "
            "leave the cluster out."
        )
    true = np.zeros(fed.n_clients, dtype=np.int64)
    if fed.clusters is not None:
        true = fed.clusters
    first, joiners = _joiners(true, events, seed)
    if len(first) == 0:
        raise FltnbError("All clients join late: leave at least one for round 1.")

    settings = _settings(fed.settings) | {"events": events, "seed": seed}
    # Client i holds what client source[i] of the given federation had.
    members = np.concatenate([first, *joiners])
    source = members.copy()
    n = len(first)
    may_drift = np.arange(len(source)) < n
    unchanged = np.zeros(n, dtype=bool)
    found = [Phase(1, some_clients(fed, first, first, settings), unchanged)]
    for event, joining in zip(events, joiners, strict=True):
        rng = stream(seed, "partition", event["round"], 1)
        n_drifting = event.get("drift", 0)
        drifting = _evenly(true[source], may_drift, n_drifting, "drift", rng)
        ring, giver = _exchange(drifting, true[source] if known else None)
        may_drift[ring] = False
        source[ring] = source[giver]

        changed = np.arange(n + len(joining)) >= n
        changed[ring] = True
        n = len(changed)
        now = some_clients(fed, members[:n], source[:n], settings)
        found.append(Phase(event["round"], now, changed))
    last = found[-1].fed
    values = {field.name: getattr(last, field.name) for field in fields(last)}
    return ChangingFederation(**values, phases=tuple(found))


def _joiners(
    true: np.ndarray, events: list[dict[str, int]], seed: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the clients present from the start, and those that join per event.

    ``true`` (M,): clusters of all clients, from which those that join are drawn evenly,
    or all from the one that the event names. Both results are ascending numbers.
    """
    free = np.ones(len(true), dtype=bool)
    joiners = []
    for event in events:
        allowed = free & (true == event.get("cluster", true))
        rng = stream(seed, "partition", event["round"], 0)
        drawn = _evenly(true, allowed, event.get("join", 0), "join", rng)
        free[drawn] = False
        joiners.append(np.sort(drawn))
    return np.flatnonzero(free), joiners


def _settings(fed: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a federation that changes, from those of its base."""
    base = dict(fed)
    settings: dict[str, Any] = {}
    if "dataset" in base:
        # the image set is named once, for the whole federation
        for name in ("dataset", "content"):
            if name in base:
                settings[name] = base.pop(name)
    return settings | {"kind": "changing", "base": base}


def some_clients(
    fed: Federation,
    members: Sequence[int] | np.ndarray,
    source: Sequence[int] | np.ndarray | None = None,
    settings: dict[str, Any] | None = None,
) -> Federation:
    """Return a federation of some clients of another one.

    Parameters
    ----------
    fed : Federation
    members : sequence of n int
        Client i of the result is client ``members[i]`` of ``fed``, with its name.
    source : sequence of n int, optional
        It holds the data of client ``source[i]`` and is of this client's true cluster;
        by default both are its own.
    settings : dict, optional, default those of ``fed`` with the members as "clients"

    Examples
    --------
    >>> import fltnb as fl
    >>> fed = fl.federations.from_arrays(
    ...     np.eye(6), [0, 1] * 3, ["a", "a", "b", "b", "c", "c"], 0.5
    ... )
    >>> some_clients(fed, [0, 2]).names
    ('a', 'c')
    """
    if source is None:
        source = members
    if settings is None:
        settings = fed.settings | {"clients": [int(i) for i in members]}
    parts: dict[str, Any] = {}
    for split in SPLITS:
        held = getattr(fed, split)
        parts[split] = [held[i] for i in source]
    # clients that are called by their numbers are numbered again
    parts["names"] = [fed.names[i] for i in members] if fed.named else None
    clusters = None if fed.clusters is None else fed.clusters[np.asarray(source)]
    return replace(fed, **parts, clusters=clusters, settings=settings)


def _event(
    round: Annotated[int, Whole(2)],
    join: Natural = 0,
    cluster: Natural = 0,
    drift: Natural = 0,
) -> None:
    """Take the parts of an event; the signature checks them."""


def _events(name: str, events: Any) -> list[dict[str, int]]:
    """Return events by round, their parts in the order of :func:`_event`.

    Raises FltnbError if something is not an event.
    """
    if not isinstance(events, (list, tuple)):
        events = [events]
    if not events:
        raise FltnbError(
            'A changing federation needs an event, such as {"round": 20, "join": 5}.'
        )
    done = []
    for event in events:
        if not isinstance(event, dict):
            raise FltnbError(
                'An event must be a dict such as {"round": 20, "join": 5}, not '
                f"{event!r}."
            )
        full = checked(_event, event, "an event")
        if not full["join"] and not full["drift"]:
            raise FltnbError(
                f"The event of round {full['round']} changes nothing: give join or "
                "drift."
            )
        if "cluster" in event and not full["join"]:
            raise FltnbError(
                f"The event of round {full['round']} names a cluster from which nobody "
                "joins: give join, or leave the cluster out."
            )
        if full["drift"] == 1:
            raise FltnbError(
                "A single client cannot drift, because drifting clients exchange data: "
                "give 2 or more."
            )
        named = {key: value for key, value in full.items() if key in event}
        done.append(named)
    rounds = {event["round"] for event in done}
    if len(rounds) < len(done):
        raise FltnbError(
            "Two events have the same round: put join and drift of one round into one "
            "event."
        )
    return sorted(done, key=lambda event: event["round"])


Events = Annotated[list, _events]


@kind
def changing(
    images: ImageSet, /, base: Base, events: Events, seed: Natural = 0
) -> ChangingFederation:
    """Partition an image set, then let clients join late or get other data.

    FLT, arXiv 2103.15947, Algorithm 3. ``base`` is the partition of all clients
    together, such as ``{"kind": "label_clusters", "n_clients": 20, ...}``, with its own
    seed; ``events``, ``seed`` and errors are those of :func:`with_events`.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> base = {"kind": "label_clusters", "n_clients": 6, "n_clusters": 3}
    >>> base["classes_per_cluster"] = 3
    >>> late = [{"round": 3, "join": 2}]
    >>> fed = fl.federations.changing(digits, base=base, events=late)
    >>> fed.n_clients
    6
    """
    return with_events(made(images, base), events, seed)


def _exchange(
    drifting: np.ndarray, clusters: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return drifting clients in a ring, and the client whose data each gets.

    Each gets the data of another cluster, if ``clusters`` (M,) are known.

    Examples
    --------
    Clients 0 to 4 of clusters 0, 0, 1, 1, 2 drift. The largest cluster has two of them,
    so that each gets the data of the next but one in the ring:

    >>> ring, giver = _exchange(np.arange(5), np.array([0, 0, 1, 1, 2]))
    >>> ring.tolist(), giver.tolist()
    ([0, 1, 2, 3, 4], [2, 3, 4, 0, 1])
    """
    if clusters is None or not len(drifting):
        return drifting, np.roll(drifting, -1)
    ring = drifting[np.argsort(clusters[drifting], kind="stable")]
    largest = np.unique(clusters[ring], return_counts=True)[1].max()
    if 2 * largest > len(ring):
        raise FltnbError(
            f"{largest} of {len(ring)} drifting clients are of one cluster, over half: "
            "let more drift."
        )
    # Clusters are adjacent in the ring: a shift by the largest one leads every client
    # out of its own cluster.
    return ring, np.roll(ring, -largest)


def _evenly(
    true: np.ndarray, allowed: np.ndarray, n: int, what: str, rng: np.random.Generator
) -> np.ndarray:
    """Draw ``n`` of the allowed clients, as many from every true cluster if possible.

    ``what``: the name of the event, for the message.
    """
    if n > allowed.sum():
        raise FltnbError(
            f"{n} clients are to {what} but only {allowed.sum()} can: ask for fewer."
        )
    import pandas as pd

    shuffled = rng.permutation(np.flatnonzero(allowed))
    own = pd.Series(true[shuffled])
    # Number of clients of the same cluster before each one: for clusters 0, 0, 1, 0
    # these are 0, 1, 0, 2. So the first of every cluster come first, then the second.
    turn = own.groupby(own).cumcount()
    in_turn = np.argsort(turn, kind="stable")
    return shuffled[in_turn][:n]
