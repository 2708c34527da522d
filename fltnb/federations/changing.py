"""Federations that change: clients that join, clients whose data become other data (FLT, arXiv 2103.15947, Alg. 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from ..data import ImageSet
from ..errors import FltnbError, choose
from ..randomness import stream
from ..settings import Natural, Whole, check
from .base import SPLITS, Federation
from .kinds import Base, kind, made
from .phases import ChangingFederation, Phase


def with_events(fed: Federation, events: Sequence[dict[str, Any]], seed: int = 0) -> ChangingFederation:
    """Let clients of a federation join late or get other data.

    Raises FltnbError for unknown keys, an event without effect, more clients than there are, or nobody at the start.

    Parameters
    ----------
    fed : Federation
        All clients, newcomers included. They are numbered anew: first those that are there from the start, in their
        old order, then the newcomers, in the order in which they join.
    events : sequence of dict
        Each with ``round`` (2 or later; it takes place before this round) and at least one of

        ``join`` : int
            So many clients come then, drawn evenly from the true clusters (from all clients where those are not
            known).
        ``cluster`` : int
            Draw the newcomers from this true cluster only: a kind of client that was not there before, if it is all of
            them.
        ``drift`` : int
            So many clients, 2 at least, hold other data from then on: they pass on what they have (training,
            validation and test samples) in a ring whose members come evenly from the true clusters, so that everybody
            gets the data of another cluster. No sample is lost or held twice. Nobody drifts who came late or has
            drifted before.
    seed : int
        Who joins and who drifts.

    Examples
    --------
    >>> from fltnb.federations import from_arrays
    >>> fed = from_arrays(np.eye(8), [0, 1] * 4, np.arange(8) // 2, test_fraction=0.5, clusters=[0, 0, 1, 1])
    >>> [(phase.round, phase.fed.n_clients) for phase in with_events(fed, [{"round": 3, "join": 2}]).phases]
    [(1, 2), (3, 4)]
    """
    seed, events = check("seed", seed, Natural), _events("events", events)
    true = np.zeros(fed.n_clients, dtype=np.int64) if fed.clusters is None else fed.clusters
    free = np.ones(fed.n_clients, dtype=bool)  # to join late
    joiners = []
    for event in events:
        allowed = free if "cluster" not in event else free & (true == event["cluster"])
        drawn = _evenly(true, allowed, event.get("join", 0), "join", stream(seed, "partition", event["round"], 0))
        free[drawn] = False
        joiners.append(np.sort(drawn))
    order = np.concatenate([np.flatnonzero(free), *joiners])
    n_first, true = int(free.sum()), true[order]
    if n_first == 0:
        raise FltnbError("All clients join late: leave one at least for round 1.")
    held = {split: [getattr(fed, split)[i] for i in order] for split in SPLITS}
    clusters = None if fed.clusters is None else true.copy()
    named = [key for key in ("dataset", "content") if "dataset" in fed.settings and key in fed.settings]
    settings = {"kind": "changing", **{key: fed.settings[key] for key in named}}
    settings |= {"base": {key: value for key, value in fed.settings.items() if key not in named}}
    settings |= {"events": events, "seed": seed}

    def now(n: int) -> Federation:
        parts = {split: held[split][:n] for split in SPLITS}
        return replace(fed, **parts, clusters=None if clusters is None else clusters[:n].copy(), settings=settings)

    steady = np.arange(len(order)) < n_first  # may still drift
    found = [Phase(1, now(n_first), np.zeros(n_first, dtype=bool))]
    for event, joining in zip(events, joiners, strict=True):
        n_before = found[-1].fed.n_clients
        n = n_before + len(joining)
        rng = stream(seed, "partition", event["round"], 1)
        drifting = _evenly(true, steady, event.get("drift", 0), "drift", rng)
        ring, giver = _exchange(drifting, clusters)
        steady[ring] = False
        for split in SPLITS:
            for client, index in zip(ring, [held[split][i] for i in giver], strict=True):
                held[split][client] = index
        if clusters is not None:
            clusters[ring] = clusters[giver]
        changed = np.arange(n) >= n_before
        changed[ring] = True
        found.append(Phase(event["round"], now(n), changed))
    last = found[-1].fed
    fields = {name: getattr(last, name) for name in Federation.__dataclass_fields__}
    return ChangingFederation(**fields, phases=tuple(found))


def _events(name: str, events: Any) -> list[dict[str, int]]:
    """Return events in canonical form by round, or refuse them."""
    events = sorted((_event(event) for event in events), key=lambda event: event["round"])
    if not events:
        raise FltnbError('A changing federation needs an event, such as {"round": 20, "join": 5}.')
    if len({event["round"] for event in events}) < len(events):
        raise FltnbError("Two events have the same round: put join and drift of one round into one event.")
    return events


def _event(event: dict[str, Any]) -> dict[str, int]:
    """Return an event in canonical form, or refuse it."""
    if not isinstance(event, dict):
        raise FltnbError(f'An event must be a dict such as {{"round": 20, "join": 5}}, not {event!r}.')
    for key in event:
        choose(key, ("round", "join", "cluster", "drift"), "part of an event")
    full = {"round": check("The round of an event", event.get("round"), Annotated[int, Whole(2)])}
    full |= {
        key: check(f"{key} of an event", event[key], Natural) for key in ("join", "cluster", "drift") if key in event
    }
    if not full.get("join") and not full.get("drift"):
        raise FltnbError(f"The event of round {full['round']} changes nothing: give join or drift.")
    if full.get("drift") == 1:
        raise FltnbError("A single client cannot drift, because drifting clients exchange data: give 2 or more.")
    return full


Events = Annotated[list, _events]


@kind
def changing(images: ImageSet, /, base: Base, events: Events, seed: Natural = 0) -> ChangingFederation:
    """Partition an image set, then let clients join late or get other data (FLT, arXiv 2103.15947, Algorithm 3).

    ``base`` is the partition that all clients together have, such as ``{"kind": "label_clusters", "n_clients": 20,
    ...}``, with its own seed; ``events`` and ``seed`` are those of :func:`with_events`. Raises FltnbError for what the
    partition or :func:`with_events` refuse.
    """
    fed = made(images, base)
    if isinstance(fed, ChangingFederation):
        raise FltnbError("A changing federation cannot change once more: give all its events at once.")
    return with_events(fed, events, seed)


def _exchange(drifting: np.ndarray, clusters: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return drifting clients in a ring, and whose data each gets: those of another cluster, where these are known."""
    if clusters is None or not len(drifting):
        return drifting, np.roll(drifting, -1)
    ring = drifting[np.argsort(clusters[drifting], kind="stable")]
    largest = int(np.bincount(clusters[ring]).max())
    if 2 * largest > len(ring):
        raise FltnbError(
            f"{largest} of {len(ring)} drifting clients are of one cluster, so that not all of them can get data of"
            " another one: let more clients drift, or an even number."
        )
    # clusters lie side by side in the ring: a shift by the largest one leads everybody out of its own
    return ring, np.roll(ring, -largest)


def _evenly(true: np.ndarray, allowed: np.ndarray, n: int, what: str, rng: np.random.Generator) -> np.ndarray:
    """Draw ``n`` of the allowed clients, the same number from every true cluster as far as possible."""
    if n > allowed.sum():
        raise FltnbError(f"{n} clients are to {what} but only {allowed.sum()} can: ask for fewer.")
    shuffled = rng.permutation(np.flatnonzero(allowed))
    turn = np.empty(len(shuffled), dtype=np.int64)  # how many of the same cluster come before
    for cluster in np.unique(true[shuffled]):
        mine = true[shuffled] == cluster
        turn[mine] = np.arange(mine.sum())
    return shuffled[np.argsort(turn, kind="stable")][:n]
