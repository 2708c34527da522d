"""What a method is shown: nothing of what it does not say that it looks at.

It gets a federation in which samples that are nobody's training or validation samples
are black and of class 0, and in which reading the test part, or the true clusters,
raises :class:`UndeclaredError` with one sentence. An evaluation of its own (of a
mixture of models) meets the test samples: the card says of a class that it has one.
This finds carelessness, not fraud, which is found by reading the source.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FltnbError
from ..federations import Federation
from ..methods import Method
from ..training import make_engine
from .entry import Entry


class UndeclaredError(FltnbError):
    """A method looked at what its ``needs`` does not name."""


class Hidden(Sequence):
    """Stands where something is hidden, and says so when it is read."""

    def __init__(self, text: str):
        self.text = text

    def _refuse(self, *_: Any) -> Any:
        raise UndeclaredError(self.text)

    __getitem__ = __iter__ = __len__ = __array__ = __eq__ = _refuse
    __hash__ = object.__hash__


def _hidden(entry: Entry, what: str) -> Hidden:
    if what == "test samples":
        return Hidden(f"{entry.name} looks at {what}, which no method may.")
    return Hidden(
        f"{entry.name} looks at {what}: say so, needs = frozenset({{{what!r}, ...}})."
    )


def veiled(fed: Federation, entry: Entry) -> Federation:
    """Return a federation as the method may see it.

    Parameters
    ----------
    fed : Federation
        Of one phase.
    entry : Entry
    """
    shown = np.zeros(len(fed.images), dtype=bool)
    for split in (fed.train, fed.val):
        for own in split:
            shown[own] = True
    images = fed.images.copy()
    images[~shown] = 0
    labels = fed.labels.copy()
    labels[~shown] = 0
    none: Any = None  # makes a probe without samples
    seen = replace(fed, images=images, labels=labels, probe=none, settings={})

    # not through replace, which would read what is hidden
    hidden: dict[str, Hidden | None] = {}
    if not entry.trusted:  # ours ask where test samples lie, and see black ones
        hidden["test"] = _hidden(entry, "test samples")
    if "validation" not in entry.needs:
        hidden["val"] = _hidden(entry, "validation")
    if "true clusters" not in entry.needs:
        hidden["clusters"] = None if entry.trusted else _hidden(entry, "true clusters")
    for name, value in hidden.items():
        object.__setattr__(seen, name, value)
    return seen


class VeiledEngine:
    """An engine that does not test on what is hidden."""

    def __init__(self, engine: Any, fed: Federation):
        self.fed = fed
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def evaluate(
        self, theta: np.ndarray, rows: np.ndarray, clients: np.ndarray, split: str
    ) -> Any:
        """Evaluate like the engine, on what may be seen."""
        parts = getattr(self.fed, split)
        if isinstance(parts, Hidden):
            parts[0]  # says what is wrong
        return self._engine.evaluate(theta, rows, clients, split)


def _without_labels(engine: Any, seen: Federation) -> Any:
    """Return an engine that trains and tests by the labels that a method sees."""
    fed = replace(engine.fed, labels=seen.labels)
    return make_engine(fed, engine.model, engine.spec, "serial")


# What stands before a method has the method's own functions behind it.
if TYPE_CHECKING:
    _Before = Method
else:
    _Before = object


class _Guard(_Before):
    """What stands before a method: it veils whatever the loop hands over.

    ``_arena_entry`` says who is meant, ``_arena_seen`` keeps what was veiled, and
    ``_arena_engines`` what trains on it: names that no class has.
    """

    _arena_entry: Entry
    _arena_unlabelled: np.ndarray | None

    def _arena_veil(self, fed: Federation) -> Federation:
        seen = self.__dict__.setdefault("_arena_seen", {})
        if id(fed) not in seen:
            seen[id(fed)] = fed, veiled(fed, self._arena_entry)
        return seen[id(fed)][1]

    def _arena_hide(self, fed: Federation) -> None:
        """Hide the labels of clients that have none."""
        seen = self._arena_veil(fed)
        unlabelled = self._arena_unlabelled
        assert unlabelled is not None
        for client in np.flatnonzero(unlabelled).tolist():
            for split in (fed.train, fed.val):
                seen.labels[split[client]] = 0

    def _arena_engine(self, engine: Any) -> Any:
        seen = self._arena_veil(engine.fed)
        hidden = self._arena_unlabelled
        if hidden is not None and engine.fed.n_clients == len(hidden):
            made = self.__dict__.setdefault("_arena_engines", {})
            if id(seen) not in made:
                made[id(seen)] = _without_labels(engine, seen)
            engine = made[id(seen)]
        return VeiledEngine(engine, seen)

    def check(self, fed):
        super().check(self._arena_veil(fed))

    def prepare(self, fed, context):
        super().prepare(self._arena_veil(fed), context)

    def start(self, fed, model, context):
        return super().start(self._arena_veil(fed), model, context)

    def observe(self, state, clients, round, engine):
        return super().observe(state, clients, round, self._arena_engine(engine))

    def revise(self, state, fed, round, context):
        return super().revise(state, self._arena_veil(fed), round, context)

    def train(self, state, clients, round, engine):
        return super().train(state, clients, round, self._arena_engine(engine))


class _Changing(_Guard):
    """The same for a method that takes in newcomers."""

    def changed(self, state, fed, model, changed, context):
        if self._arena_unlabelled is not None:
            self._arena_hide(fed)
        return super().changed(state, self._arena_veil(fed), model, changed, context)


class _Foreseeing(_Guard):
    """The same for a method that looks ahead."""

    def foresee(self, phases, drawn):
        veiled = [phase._replace(fed=self._arena_veil(phase.fed)) for phase in phases]
        super().foresee(veiled, drawn)


def guarded(entry: Entry, unlabelled: np.ndarray | None = None) -> type[Method]:
    """Return the class of an entry with a veil before it.

    What the class itself does not have is not added: the loop asks whether it can take
    in newcomers.

    Parameters
    ----------
    entry : Entry
    unlabelled : bool array (M,), optional
        Clients whose labels it does not see: to it, all are of class 0.
    """
    before: list[type] = [_Guard]
    if entry.kind.changed is not Method.changed:
        before.insert(0, _Changing)
    if entry.kind.foresee is not Method.foresee:
        before.insert(0, _Foreseeing)
    members = {
        "_arena_entry": entry,
        "_arena_unlabelled": unlabelled,
        "__doc__": entry.kind.__doc__,
    }
    return type(entry.kind.__name__, (*before, entry.kind), members)
