"""Federation: which client holds which samples, and the true clusters.

All samples are in one array, the *pool*, and a client holds positions in it. So two
clients that hold the same image share its pixels, clients may share a whole test set,
and an engine moves the pool to a GPU once for all of them.
"""

import json
import numbers
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np

from ..arrays import as_float32
from ..data import ImageSet, array_digest
from ..errors import FltnbError, choose
from ..settings import Count, check
from .own import OwnSamples, integers, numbers_to_predict, some
from .pixels import (
    SCALINGS,
    Layout,
    Scale,
    as_samples,
    layout_of,
    pixel_scaling,
    to_inputs,
)
from .tables import text_of

if TYPE_CHECKING:
    import pandas as pd

    from .preprocessing import Preprocessing

SPLITS = ("train", "val", "test", "probe")
"""The parts of every client's samples; arrays of "val" and "probe" may be empty."""
Targets = Literal["classes", "values"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Federation(OwnSamples):
    """Clients, their samples and, if known, their true clusters.

    Parameters
    ----------
    images : ndarray, shape (N, d), (N, H, W) or (N, H, W, C)
        Pool of samples, uint8 or floating point (stored as float32). Tokens are whole
        numbers (N, L), sequences are floats (N, L, D) with ``layout="sequences"``.
    labels : ndarray of int, shape (N,), classes of the samples, from 0
        With ``targets="values"``: the numbers to predict, stored as float32.
    train, val, test, probe : sequences of M integer arrays
        Positions in the pool, one array per client. Arrays of ``val`` and ``probe`` may
        be empty, or both may be left out. Give clients with a common test set the same
        array object, so that evaluation computes it once. ``probe`` is a second test
        set, such as the test images with a backdoor's trigger; it is only used after
        the last round.
    n_classes : int, the number of classes; 1 for ``targets="values"``
    name, origin : str
        Name and origin of the samples; stored with every result.
    settings : dict
        JSON-able settings, from which :func:`fltnb.federations.build` makes it again.
    class_names : sequence of str, one per class, default "0", "1", ...
    clusters : ndarray of int, shape (M,), optional, true cluster of each client
    mean, std : float or C floats
        Pixel scaling of uint8 samples, see :func:`to_inputs`; :meth:`scaled` sets them
        by a name.
    names : sequence of M str, default "0", "1", ...
        Names of the clients, all different.
    targets : {"classes", "values"}
        What is predicted: classes, or numbers (regression).
    layout : {"pictures", "tokens", "sequences"}, optional
        By default integers (N, L) are tokens, and all others pictures or vectors.
    preprocessing : Preprocessing, optional
        How the rows of a table became samples, for newcomers' rows.
    notes : sequence of str
        Sentences that say what was left out when the federation was made.
    copied : ndarray of bool, shape (N,), optional
        Samples whose pixels are from compressed copies: see :class:`fltnb.ImageSet`.

    Raises
    ------
    FltnbError
        The fields do not fit together, a client has no training or no test samples, or
        a sample is NaN or infinite.

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> x, y = fed.client(0)
    >>> x.shape[1:], fed.n_classes
    ((1, 8, 8), 10)
    """

    images: np.ndarray
    labels: np.ndarray
    train: Sequence[np.ndarray]
    test: Sequence[np.ndarray]
    n_classes: int
    # None is filled in: parts without samples, names "0", "1", ..., the usual layout
    val: Sequence[np.ndarray] = None  # type: ignore[assignment]
    probe: Sequence[np.ndarray] = None  # type: ignore[assignment]
    name: str = "federation"
    origin: str = "not stated"
    settings: dict = field(default_factory=dict)
    class_names: Sequence[str] = None  # type: ignore[assignment]
    clusters: np.ndarray | None = None
    mean: Scale = 0.0
    std: Scale = 1.0
    names: tuple[str, ...] = None  # type: ignore[assignment]
    targets: Targets = "classes"
    layout: Layout = None  # type: ignore[assignment]
    preprocessing: "Preprocessing | None" = None
    notes: Sequence[str] = ()
    copied: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Check all fields together, and replace them by their checked form.

        Everything later, from the engines to the clusterers, relies on these checks and
        does not repeat them. A federation that exists can be trained on.
        """
        images = as_samples(self.images, self.layout)
        choose(self.targets, get_args(Targets), "kind of targets")
        size = len(images)
        n_classes = check("n_classes", self.n_classes, Count)
        values = {
            "images": images,
            "layout": layout_of(images, self.layout),
            "n_classes": n_classes,
            "notes": tuple(self.notes),
        }
        if self.targets == "classes":
            values.update(self._checked_classes(size, n_classes))
        else:
            values.update(self._checked_values(size, n_classes))
        values.update(self._checked_scaling(images))
        try:
            json.dumps(self.settings)
        except TypeError as error:
            raise FltnbError(
                f"The settings of a federation must be plain JSON values ({error})."
            ) from error
        if self.copied is not None:
            values["copied"] = copied = np.asarray(self.copied, dtype=bool)
            if copied.shape != (size,):
                raise FltnbError(f"copied has shape {copied.shape} for {size} samples.")
        values.update(self._checked_splits(size))
        values["names"] = self._checked_names()
        if self.clusters is not None:
            clusters = integers("clusters", self.clusters, len(self.train), "client")
            values["clusters"] = clusters

        # The dataclass is frozen; this is part of its initialisation.
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _checked_classes(self, size: int, n_classes: int) -> dict[str, Any]:
        """Return labels of ``size`` samples and the classes' names, or refuse them.

        A class may have no sample: clients of MNIST's digits 0 to 4 may still train a
        network with ten outputs.
        """
        labels = integers("Labels", self.labels, size, "sample")
        lowest = labels.min()
        highest = labels.max()
        if lowest < 0 or highest >= n_classes:
            raise FltnbError(
                f"Labels run from {lowest} to {highest}, but there are {n_classes} "
                "classes, from 0: number them with np.unique(labels, "
                "return_inverse=True)[1], or name all classes by class_names."
            )
        names = self.class_names
        if names is None:
            names = range(n_classes)
        names = tuple(str(name) for name in names)
        if len(names) != n_classes:
            raise FltnbError(
                f"There are {len(names)} class names for {n_classes} classes: give one "
                "per class."
            )
        return {"labels": labels, "class_names": names}

    def _checked_values(self, size: int, n_outputs: int) -> dict[str, Any]:
        """Return the numbers to predict of ``size`` samples, or refuse them."""
        values = numbers_to_predict(self.labels, size)
        values = as_float32(values, "The values to predict")
        if not np.isfinite(values).all():
            raise FltnbError(
                "The values to predict hold NaN or infinite numbers: leave these "
                "samples out."
            )
        if n_outputs != 1 or self.class_names:
            raise FltnbError(
                'With targets="values" a model has one output and there are no '
                "classes: give n_classes=1 and no class_names."
            )
        return {"labels": values.astype(np.float32), "class_names": ()}

    def _checked_names(self) -> tuple[str, ...]:
        """Return the clients' names as text, or refuse them.

        Clients that are called by their numbers have no names: if some of them make
        another federation, they are numbered again.
        """
        given = () if self.names is None else self.names
        names = tuple(str(name) for name in given)
        if names == _numbered(len(names)):
            return _numbered(self.n_clients)
        if len(names) != len(self.train):
            raise FltnbError(
                f"There are {len(names)} names for {len(self.train)} clients: give one "
                "per client."
            )
        if len(set(names)) < len(names):
            [(twice, _)] = Counter(names).most_common(1)
            raise FltnbError(
                f"Two clients are called {twice!r}: give them different names."
            )
        return names

    def _checked_scaling(self, images: np.ndarray) -> dict[str, Scale]:
        """Return mean and std, a number or one for each channel, or refuse them.

        A single number in a list is the number itself, so that equal scalings have
        equal fingerprints. ``images`` (N, H, W, C) have C channels, all others one.
        """
        scaling: dict[str, Any] = {
            "mean": tuple(np.ravel(self.mean).tolist()),
            "std": tuple(np.ravel(self.std).tolist()),
        }
        finite = all(np.isfinite(values).all() for values in scaling.values())
        if not finite or not all(one > 0 for one in scaling["std"]):
            raise FltnbError(
                "The pixel scaling needs finite numbers, and std above 0: not mean "
                f"{self.mean} and std {self.std}."
            )
        n_channels = 1
        if images.ndim == 4:
            n_channels = images.shape[3]
        for values in scaling.values():
            if len(values) not in (1, n_channels):
                raise FltnbError(
                    "The pixel scaling needs one number, or one for each of "
                    f"{n_channels} channel(s): {scaling}."
                )
        for name, values in scaling.items():
            if len(values) == 1:
                scaling[name] = values[0]
        return scaling

    def _checked_splits(self, size: int) -> dict[str, tuple[np.ndarray, ...]]:
        """Return positions per split and client in a pool of ``size``, or refuse them.

        Arrays shared by clients stay shared: an array is checked once, and all clients
        that were given it get the same checked array. Evaluation recognises a common
        test set by that.

        Returns
        -------
        dict
            Split -> M arrays of int64.
        """
        nothing = [np.empty(0, dtype=np.int64)] * len(self.train)
        given = {}
        for split in SPLITS:
            parts = getattr(self, split)
            # A list keeps its arrays alive. Rows of an array are new objects each time,
            # and two of them may then have the same id.
            parts = nothing if parts is None else list(parts)
            # dataclasses.replace may have changed the number of clients: a probe
            # without samples is made again.
            if split == "probe" and not any(len(part) for part in parts):
                parts = nothing
            given[split] = parts
        n_parts = {split: len(parts) for split, parts in given.items()}
        alike = len(set(n_parts.values())) == 1
        if not n_parts["train"] or not alike:
            raise FltnbError(
                "A federation needs at least one client, and one array of positions "
                f"per client in every split that it has, not {n_parts}."
            )

        seen = {}  # checked arrays by the identity of the given ones
        checked = {}
        for split, parts in given.items():
            positions = []
            for client, part in enumerate(parts):
                if id(part) not in seen:
                    seen[id(part)] = _positions(split, client, part, size)
                positions.append(seen[id(part)])
            checked[split] = tuple(positions)
        return checked

    @classmethod
    def of(cls, images: ImageSet, /, **fields: Any) -> Self:
        """Make a federation of an image set.

        ``fields`` say which client holds which samples, and other differences.
        """
        values: dict[str, Any] = {
            "images": images.images,
            "labels": images.labels,
            "n_classes": images.n_classes,
            "class_names": images.class_names,
            "name": images.name,
            "origin": images.origin,
            "copied": images.copied,
        }
        values.update(pixel_scaling(fields.get("images", images.images)))
        return cls(**values | fields)

    @property
    def n_clients(self) -> int:
        """Return the number of clients M."""
        return len(self.train)

    @property
    def named(self) -> bool:
        """Whether the clients have other names than their numbers."""
        return self.names != _numbered(self.n_clients)

    def place(self, client: str | int) -> int:
        """Return the number of a client, given by name or number.

        Raises FltnbError if the client is unknown, or the number is another client's
        name (:func:`place_among`).
        """
        place = place_among(client, self.names)
        if place is None:
            known = f"clients 0 to {self.n_clients - 1}"
            if self.named:
                known = some(self.names)
            raise FltnbError(
                f"There is no client {client!r}: this federation has {known}."
            )
        return place

    def class_numbers(self, classes: Sequence | np.ndarray) -> np.ndarray:
        """Return the numbers of classes given by name, int64 (n,).

        For newcomers, whose classes the clusterers take as the federation numbers them.
        Raises FltnbError if the federation has no such class.

        Examples
        --------
        >>> from fltnb import Federation
        >>> wards = {"a": (np.eye(2), ["ill", "well"]), "b": (np.eye(2), ["ill"] * 2)}
        >>> fed = Federation.from_clients(wards, test_fraction=0.5)
        >>> fed.class_numbers(["well", "ill"]).tolist()
        [1, 0]
        """
        number_of = {name: number for number, name in enumerate(self.class_names)}
        texts = [text_of(one) for one in classes]
        unknown = sorted({text for text in texts if text not in number_of})
        if unknown:
            raise FltnbError(
                f"There is no class {some(unknown)}: this federation has "
                f"{some(self.class_names)}."
            )
        return np.array([number_of[text] for text in texts], dtype=np.int64)

    @property
    def n_clusters(self) -> int | None:
        """Return the number of true clusters, or None if they are not known."""
        if self.clusters is None:
            return None
        return len(np.unique(self.clusters))

    @property
    def probed(self) -> bool:
        """Return whether any client has a second test set."""
        return any(len(index) for index in self.probe)

    @property
    def sizes(self) -> np.ndarray:
        """Return the training samples per client, int64 (M,)."""
        return np.array([len(index) for index in self.train], dtype=np.int64)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Return the shape (C, H, W) of one model input; (1, 1, d) for vectors.

        It is (L,) for tokens and (L, D) for sequences.
        """
        return self.inputs(np.arange(1)).shape[1:]

    def scaled(self, scaling: str) -> Self:
        """Return the federation with its pixels scaled in another way.

        ``scaling`` is one of :data:`fltnb.federations.SCALINGS`. Raises FltnbError if
        it is not, or if the samples are not uint8 pixels.
        """
        mean, std = SCALINGS[choose(scaling, SCALINGS, "scaling")]
        if self.images.dtype != np.uint8:
            raise FltnbError(
                f"{self.name} has floating-point samples, and only uint8 pixels can be "
                "scaled here: scale them before you make the federation."
            )
        settings = self.settings | {"scaling": scaling}
        return replace(self, mean=mean, std=std, settings=settings)

    def inputs(self, index: np.ndarray) -> np.ndarray:
        """Return samples of the pool as model inputs, float32 (n, C, H, W).

        ``index`` (n,): their positions in the pool. Tokens, int64 (n, L), and
        sequences, float32 (n, L, D), are not changed.
        """
        if self.layout != "pictures":
            return self.images[index]
        return to_inputs(self.images[index], self.mean, self.std)

    def client(
        self, client: int | str, split: str = "train"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs float32 (n, C, H, W) and labels int64 (n,) of one client.

        It is given by number or name. Raises FltnbError if the client or the split is
        unknown.
        """
        choose(split, SPLITS, "split")
        index = getattr(self, split)[self.place(client)]
        return self.inputs(index), self.labels[index]

    def label_counts(self, split: str = "train") -> np.ndarray:
        """Return how many samples of each class every client holds.

        The result is int64 (M, ``n_classes``). Repeated samples count each time, as
        they do in training. Raises FltnbError if numbers are predicted, or the split is
        unknown.
        """
        choose(split, SPLITS, "split")
        if self.targets == "values":
            raise FltnbError(
                f"{self.name} has numbers to predict, not classes, so there is nothing "
                "to count."
            )
        counts = []
        for index in getattr(self, split):
            held = self.labels[index]
            counts.append(np.bincount(held, minlength=self.n_classes))
        return np.array(counts)

    def summary(self) -> "pd.DataFrame":
        """Return a table with one row per client.

        Returns
        -------
        DataFrame
            Columns ``client``; ``name`` (if they have names); ``cluster`` (true one, if
            known); ``train, val, test`` (numbers of samples). Of the training samples
            also ``repeated`` (number of copies after the first) and, for classes,
            ``classes`` (their number), ``holds`` (names of the five most frequent) and
            ``largest_share`` (of one class, 0 to 1), or ``mean`` and ``deviation`` of
            the numbers to predict. ``attrs["notes"]`` says what was left out, and how
            many samples are from compressed copies.

        Examples
        --------
        >>> import fltnb as fl
        >>> fed = fl.federations.from_arrays(
        ...     np.eye(6), [0, 0, 1] * 2, np.repeat(["ann", "bob"], 3), 0.4
        ... )
        >>> fed.summary()[["name", "train", "test"]].to_dict("list")
        {'name': ['ann', 'bob'], 'train': [2, 2], 'test': [1, 1]}
        """
        import pandas as pd

        table = pd.DataFrame({"client": np.arange(self.n_clients)})
        table.attrs["notes"] = self._said()
        if self.named:
            table["name"] = self.names
        if self.clusters is not None:
            table["cluster"] = self.clusters
        for split in ("train", "val", "test"):
            table[split] = [len(index) for index in getattr(self, split)]
        different = [len(np.unique(index)) for index in self.train]
        table["repeated"] = self.sizes - different
        if self.targets == "values":
            table["mean"] = [self.labels[index].mean() for index in self.train]
            table["deviation"] = [self.labels[index].std() for index in self.train]
            return table

        counts = self.label_counts("train")
        table["classes"] = np.sum(counts > 0, axis=1)
        table["holds"] = [self._most_frequent(row) for row in counts]
        table["largest_share"] = counts.max(axis=1) / self.sizes
        return table

    def _most_frequent(self, counts: np.ndarray) -> str:
        """Return the names of the five most frequent classes, for a sentence."""
        most_first = np.argsort(-counts, kind="stable")
        held = [self.class_names[c] for c in most_first if counts[c]]
        text = ", ".join(held[:5])
        if len(held) > 5:
            return f"{text}, ..."
        return text

    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits that identify the federation.

        They depend on the samples of every client and split, in their order, the
        scaling, the number of classes and the true clusters.
        """
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        """The value of :meth:`fingerprint`; the samples are read once.

        Samples that nobody holds do not count, nor where in the pool a sample lies: the
        fingerprint of 1,000 images of MNIST is the same whether the pool has these or
        all 70,000. With the used samples 5, 7 and 9 of a pool, a client that holds 9
        and 5 holds 2 and 0 among them. The order of a client's samples counts, because
        it determines the batches.
        """
        splits = ["train", "val", "test"]
        if self.probed:
            splits.append("probe")
        parts = []  # for every split and client
        for split in splits:
            parts.extend(getattr(self, split))
        used = _different(parts)
        # Positions among these samples: the other samples of the pool do not matter.
        place = np.zeros(len(self.images), dtype=np.int64)
        place[used] = np.arange(len(used))

        sizes = np.array([len(index) for index in parts])
        held = place[np.concatenate(parts)]
        clusters = np.empty(0, dtype=np.int64)
        if self.clusters is not None:
            clusters = self.clusters
        scaling = [*np.ravel(self.mean), *np.ravel(self.std), self.n_classes]
        return array_digest(
            self.images,
            self.labels[used],
            sizes,
            held,
            clusters,
            np.array(scaling, dtype=np.float64),
            rows=used,
        )

    @property
    def n_copied(self) -> int:
        """Return how many of the clients' samples are from compressed copies.

        A sample that several clients hold counts once.
        """
        if self.copied is None:
            return 0
        held = _different([*self.train, *self.val, *self.test, *self.probe])
        return int(self.copied[held].sum())

    def _said(self) -> list[str]:
        """Return the notes, and the number of copies if there are any."""
        said = list(self.notes)
        n_copied = self.n_copied
        if n_copied:
            said.append(
                f"{n_copied:,} samples are from compressed copies of the images, "
                "not from the official pixels."
            )
        return said

    def __repr__(self) -> str:
        fewest = self.sizes.min()
        most = self.sizes.max()
        each = f"{fewest:,} to {most:,}"
        if fewest == most:
            each = f"{most:,}"
        clusters = "clusters unknown"
        if self.clusters is not None:
            clusters = f"{self.n_clusters} true clusters"
        inputs = "x".join(str(size) for size in self.input_shape)
        predicted = f"{self.n_classes} classes"
        if self.targets == "values":
            predicted = "values to predict"
        text = (
            f"Federation {self.name}: {self.n_clients:,} clients with {each} training "
            f"samples each, {clusters}, {predicted}, inputs {inputs}"
        )
        return "\n".join([text, *self._said()])


def _different(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return all positions in arrays of them, ascending, each once."""
    # Of arrays shared by clients, one is enough to know which samples are used.
    different = {id(index): index for index in parts}
    return np.unique(np.concatenate(list(different.values())))


def _numbered(n_clients: int) -> tuple[str, ...]:
    """Return the names of clients that have only numbers."""
    return tuple(str(number) for number in range(n_clients))


def place_among(client: str | int, names: Sequence[str]) -> int | None:
    """Return the place of a client among names, or None if there is no such client.

    Parameters
    ----------
    client : str or int
        A name, or a number from 0. Clients may be called by whole numbers themselves,
        such as hospitals 1 to 12. Then a number that is no place is a name.
    names : sequence of M str

    Raises
    ------
    FltnbError
        The number is the place of one client and the name of another.

    Examples
    --------
    >>> place_among("b", ["a", "b"]), place_among(0, ["a", "b"])
    (1, 0)
    >>> place_among(12, ["11", "12"]), place_among(2, ["a", "b"])
    (1, None)
    """
    if isinstance(client, str):
        return names.index(client) if client in names else None
    if isinstance(client, bool) or not isinstance(client, numbers.Integral):
        return None
    number = int(client)
    name = str(number)
    there = 0 <= number < len(names)
    if there and names[number] == name:
        return number
    if name not in names:
        return number if there else None
    named = names.index(name)
    if there:
        raise FltnbError(
            f"Client {number} may be the one of this name, or number {number} counted "
            f"from 0, which is called {names[number]!r}: give the name as text, "
            f"{name!r} or {names[number]!r}."
        )
    return named


def _positions(split: str, client: int, part: Any, size: int) -> np.ndarray:
    """Return a client's int64 positions in a pool of ``size``, or refuse them."""
    index = np.asarray(part)
    if index.size == 0 and split in ("train", "test"):
        raise FltnbError(
            f"Client {client} has no {split} samples: leave it out or give it some."
        )
    are_whole = np.issubdtype(index.dtype, np.integer)
    if index.ndim != 1 or (index.size and not are_whole):
        raise FltnbError(
            f"The {split} part of client {client} must be a flat array of integer "
            "positions."
        )
    if index.size and (index.min() < 0 or index.max() >= size):
        raise FltnbError(
            f"The {split} part of client {client} has positions outside the pool of "
            f"samples: give positions of 0 to {size - 1}."
        )
    return index.astype(np.int64, copy=False)
