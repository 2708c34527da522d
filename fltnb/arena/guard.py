"""What a method sees: only what it declares to use.

It gets a federation in which samples that are not for training or validation are black
and of class 0. Reading the test part, or the true clusters, raises
:class:`UndeclaredError` with one sentence. A class's own evaluation (of a mixture of
models) gets the test samples; the card says that the class has one. This finds
mistakes, not fraud, which must be found by reading the source.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FltnbError
from ..federations import Federation
from ..methods import Method
from .entry import Entry


class UndeclaredError(FltnbError):
    """A method used what its ``needs`` does not name."""


class Hidden(Sequence):
    """Replaces something hidden, and raises an error when it is read."""

    def __init__(self, text: str):
        self.text = text

    def _refuse(self, *_: Any) -> Any:
        """Refuse any use of hidden data."""
        raise UndeclaredError(self.text)

    __getitem__ = __iter__ = __len__ = __array__ = __eq__ = _refuse
    __hash__ = object.__hash__


def _hidden(entry: Entry, what: str) -> Hidden:
    """Return the replacement of data that a method has not declared."""
    if what == "test samples":
        return Hidden(f"{entry.name} uses {what}, which no method may: do without.")
    return Hidden(
        f"{entry.name} uses {what} without declaring it: add it, "
        f"needs = frozenset({{{what!r}, ...}})."
    )


def veiled(fed: Federation, entry: Entry) -> Federation:
    """Return the part of a federation that the method may see.

    Parameters
    ----------
    fed : Federation
        A federation of one phase.
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

    # not by replace, which would read the hidden parts
    hidden: dict[str, Hidden | None] = {}
    if not entry.trusted:  # ours use positions of test samples, and see black ones
        hidden["test"] = _hidden(entry, "test samples")
    if "validation" not in entry.needs:
        hidden["val"] = _hidden(entry, "validation")
    if "true clusters" not in entry.needs:
        hidden["clusters"] = None if entry.trusted else _hidden(entry, "true clusters")
    for name, value in hidden.items():
        object.__setattr__(seen, name, value)
    return seen


class VeiledEngine:
    """An engine that does not test on hidden samples."""

    def __init__(self, engine: Any, fed: Federation):
        self.fed = fed
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        """Pass on everything but tests and the federation."""
        return getattr(self._engine, name)

    def evaluate(
        self,
        theta: np.ndarray,
        rows: np.ndarray,
        clients: np.ndarray,
        split: str = "test",
    ) -> Any:
        """Evaluate like the engine, on visible samples."""
        parts = getattr(self.fed, split)
        if isinstance(parts, Hidden):
            parts[0]  # raises the error
        return self._engine.evaluate(theta, rows, clients, split)


def _without_labels(engine: Any, seen: Federation) -> Any:
    """Return an engine that trains and tests by the labels that a method sees."""
    from ..training import make_engine

    fed = replace(engine.fed, labels=seen.labels)
    return make_engine(fed, engine.model, engine.spec, "serial")


# The class before a method calls the method's own functions. It inherits nothing, as
# Method's own defaults would then come before the method's functions.
if TYPE_CHECKING:
    _Before = Method
else:
    _Before = object


class _Guard(_Before):
    """The class before a method: it hides parts of what the loop passes on.

    ``_arena_entry`` is the entry, ``_arena_seen`` keeps what was hidden, and
    ``_arena_engines`` the engines that train on it: names that no class has.
    """

    _arena_entry: Entry
    _arena_unlabelled: np.ndarray | None

    def _arena_veil(self, fed: Federation) -> Federation:
        """Return what the method sees of a federation, made once for each.

        The federation itself is kept beside it: if it were freed, another one could get
        the same ``id``.
        """
        seen = self.__dict__.setdefault("_arena_seen", {})
        if id(fed) not in seen:
            seen[id(fed)] = fed, veiled(fed, self._arena_entry)
        return seen[id(fed)][1]

    def _arena_hide(self, fed: Federation) -> None:
        """Hide the labels of clients that have none, in what the method sees.

        Clients join during a run, so this cannot be done when the run starts.
        """
        seen = self._arena_veil(fed)
        unlabelled = self._arena_unlabelled
        assert unlabelled is not None
        for client in np.flatnonzero(unlabelled).tolist():
            for split in (fed.train, fed.val):
                seen.labels[split[client]] = 0

    def _arena_engine(self, engine: Any) -> Any:
        """Return the engine that a method gets in a round.

        If clients without labels have joined, it trains on the labels that the method
        sees: those of such clients are all class 0.
        """
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
    """The same for a method that accepts newcomers or clients that drift."""

    def changed(self, state, fed, model, changed, context):
        if self._arena_unlabelled is not None:
            self._arena_hide(fed)
        return super().changed(state, self._arena_veil(fed), model, changed, context)


class _Foreseeing(_Guard):
    """The same for a method with ``foresee``, which is shown all phases beforehand."""

    def foresee(self, phases, drawn):
        veiled = [phase._replace(fed=self._arena_veil(phase.fed)) for phase in phases]
        super().foresee(veiled, drawn)


def guarded(entry: Entry, unlabelled: np.ndarray | None = None) -> type[Method]:
    """Return the class of an entry with the hiding class before it.

    Functions that the class does not have are not added, because the loop asks whether
    it can accept newcomers.

    Parameters
    ----------
    entry : Entry
    unlabelled : bool array (M,), optional
        Clients whose labels it does not see: all appear as class 0.
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
