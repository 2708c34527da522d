"""Federation: who holds which training, validation and test samples, and the true clusters of the clients."""

from __future__ import annotations

import json
import numbers
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..data import ImageSet, array_digest
from ..errors import FltnbError, choose
from ..randomness import stream
from ..settings import Natural, Part, Rate, check
from .pixels import SCALINGS, Scale, as_samples, pixel_scaling, to_inputs
from .shares import apportion

SPLITS = ("train", "val", "test", "probe")
OPTIONAL = ("val", "probe")  # may be empty


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Federation:
    """Clients, their samples and, where known, their true clusters.

    Raises FltnbError for no client, an empty client, an index outside the pool, a label outside the classes, NaN among
    the samples, or lengths that disagree.

    Parameters
    ----------
    images : ndarray, shape (N, d), (N, H, W) or (N, H, W, C)
        Pool of samples, uint8 or floating point (stored as float32).
    labels : ndarray of int, shape (N,)
        Classes of the samples, 0 to ``n_classes - 1``.
    train, val, test, probe : sequences of M integer arrays
        Positions in the pool, one array per client. ``val`` and ``probe`` may hold empty arrays or be left out. Clients
        with a common test set should be given the same array object: evaluation then computes it once. ``probe`` is a
        second test set, such as the test images with a backdoor's trigger, looked at after the last round only.
    n_classes : int
        Number of classes K, outputs of a model.
    name, origin : str
        What the samples are and where they come from; stored with every result.
    settings : dict
        JSON-able settings from which :func:`fltnb.federations.build` makes the same federation.
    class_names : sequence of str, length K, optional
        Default: "0", "1", ...
    clusters : ndarray of int, shape (M,), optional
        True cluster of each client.
    mean, std : float or C floats
        Pixel scaling of uint8 samples, see :func:`to_inputs`; :meth:`scaled` sets them by a name.
    """

    images: np.ndarray
    labels: np.ndarray
    train: Sequence[np.ndarray]
    test: Sequence[np.ndarray]
    n_classes: int
    val: Sequence[np.ndarray] | None = None
    probe: Sequence[np.ndarray] | None = None
    name: str = "federation"
    origin: str = "not stated"
    settings: dict = field(default_factory=dict)
    class_names: Sequence[str] | None = None
    clusters: np.ndarray | None = None
    mean: Scale = 0.0
    std: Scale = 1.0

    def __post_init__(self) -> None:
        images, labels = as_samples(self.images), np.asarray(self.labels)
        if labels.shape != (len(images),) or not np.issubdtype(labels.dtype, np.integer):
            raise FltnbError(
                f"Labels must be {len(images)} integers, one per sample, not {labels.dtype} of shape {labels.shape}:"
                " np.unique(labels, return_inverse=True)[1] turns any labels into 0, 1, ..."
            )
        if not isinstance(self.n_classes, numbers.Integral):
            raise FltnbError(f"n_classes must be a whole number, not {self.n_classes!r}.")
        if labels.min() < 0 or labels.max() >= self.n_classes:
            raise FltnbError(
                f"Labels run from {labels.min()} to {labels.max()} but n_classes is {self.n_classes}: labels must lie"
                f" in 0 to {self.n_classes - 1}."
            )
        scaling = {name: tuple(np.ravel(getattr(self, name)).tolist()) for name in ("mean", "std")}
        if not min(scaling["std"]) > 0:
            raise FltnbError(f"The pixel scaling needs std above 0, not {self.std}.")
        colours = images.shape[3] if images.ndim == 4 else 1
        if any(len(values) not in (1, colours) for values in scaling.values()):
            raise FltnbError(
                f"The pixel scaling has mean {self.mean} and std {self.std}, but the samples have {colours} channel(s):"
                " give one number for all channels, or one for each."
            )
        names = tuple(map(str, range(self.n_classes) if self.class_names is None else self.class_names))
        if len(names) != self.n_classes:
            raise FltnbError(f"There are {len(names)} class names for {self.n_classes} classes: give one per class.")
        try:
            json.dumps(self.settings)
        except TypeError as error:
            raise FltnbError(f"The settings of a federation must be plain JSON values ({error}).") from error
        keep = object.__setattr__  # the dataclass is frozen; this is its own initialisation
        keep(self, "images", images)
        keep(self, "labels", labels.astype(np.int64, copy=False))
        for name, values in scaling.items():
            keep(self, name, values if len(values) > 1 else values[0])
        keep(self, "class_names", names)
        nothing = [np.empty(0, dtype=np.int64)] * len(self.train)
        if self.val is None:
            keep(self, "val", nothing)
        if self.probe is None or not any(map(len, self.probe)):
            keep(self, "probe", nothing)  # also where dataclasses.replace changed the number of clients
        seen: dict[int, np.ndarray] = {}  # arrays shared by clients stay shared
        for split in SPLITS:
            keep(self, split, tuple(self._index(split, i, a, seen) for i, a in enumerate(getattr(self, split))))
        if not self.train or {len(getattr(self, split)) for split in SPLITS} != {len(self.train)}:
            raise FltnbError(
                f"A federation needs at least one client, each with its part of every split, but there are"
                f" {len(self.train)} training, {len(self.val)} validation, {len(self.test)} test and"
                f" {len(self.probe)} probe parts."
            )
        if self.clusters is not None:
            clusters = np.asarray(self.clusters)
            if clusters.shape != (self.n_clients,) or not np.issubdtype(clusters.dtype, np.integer):
                raise FltnbError(
                    f"clusters must be {self.n_clients} integers, one per client, not {clusters.dtype}{clusters.shape}."
                )
            keep(self, "clusters", clusters.astype(np.int64, copy=False))

    def _index(self, split: str, client: int, given: np.ndarray, seen: dict[int, np.ndarray]) -> np.ndarray:
        if id(given) in seen:
            return seen[id(given)]
        index = np.asarray(given)
        if index.size == 0 and split not in OPTIONAL:
            what = "training" if split == "train" else "test"
            raise FltnbError(f"Client {client} has no {what} samples: leave it out or give it some.")
        if index.ndim != 1 or (index.size and not np.issubdtype(index.dtype, np.integer)):
            raise FltnbError(f"The {split} part of client {client} must be a flat array of integer positions.")
        if index.size and (index.min() < 0 or index.max() >= len(self.images)):
            raise FltnbError(
                f"The {split} part of client {client} points to samples {index.min()} to {index.max()} but the pool"
                f" holds 0 to {len(self.images) - 1}."
            )
        seen[id(given)] = index.astype(np.int64, copy=False)
        return seen[id(given)]

    @classmethod
    def of(cls, images: ImageSet, /, **fields: Any) -> Federation:
        """Make a federation of an image set: ``fields`` say who holds what, and what else differs from the set."""
        names = ("images", "labels", "n_classes", "class_names", "name", "origin")
        fields = {name: getattr(images, name) for name in names} | fields
        return cls(**fields, **pixel_scaling(fields["images"]))

    @classmethod
    def from_arrays(
        cls,
        x: np.ndarray,
        y: np.ndarray,
        client_ids: Sequence,
        test_fraction: float = 0.2,
        clusters: Sequence | None = None,
        seed: int = 0,
        val_fraction: float = 0.0,
        class_names: Sequence[str] | None = None,
        name: str = "own data",
    ) -> Federation:
        """Make a federation of your own samples.

        Every client's samples are divided at random into test, validation and training part, each class in proportion
        as far as whole numbers allow. A client keeps at least one training and one test sample. Raises FltnbError for
        arrays that do not fit together, labels that are not 0 to K-1, NaN, a client with a single sample, or fractions
        out of range.

        Parameters
        ----------
        x : ndarray, shape (N, d), (N, H, W) or (N, H, W, C)
            uint8 pixels (scaled by the federation) or finite floats (taken as they are).
        y : array of int, shape (N,)
            Classes 0 to K-1.
        client_ids : sequence of length N
            Who holds each sample; numbers or strings. Client i of the federation is ``np.unique(client_ids)[i]``.
        test_fraction, val_fraction : float
            Parts of a client's samples for testing, between 0 and 1 exclusive, and for validation, which may be 0.
        clusters : sequence of length M, optional
            True clusters in the order of ``np.unique(client_ids)``; any values, numbered 0, 1, ... by sorted value.
        seed : int
            Seed of the division.
        class_names : sequence of str, optional
            Needed when some class number below the highest has no sample.
        name : str
            Stored with results.

        Examples
        --------
        >>> fed = Federation.from_arrays(np.eye(4), [0, 1, 0, 1], ["ann", "bob", "ann", "bob"], test_fraction=0.5)
        >>> fed.n_clients, fed.sizes.tolist()
        (2, [1, 1])
        """
        x, y, ids = as_samples(x), np.asarray(y), np.asarray(client_ids)
        seed = check("seed", seed, Natural)
        test_fraction = check("test_fraction", test_fraction, Rate)
        val_fraction = check("val_fraction", val_fraction, Part)
        if test_fraction + val_fraction >= 1:
            raise FltnbError(f"Shares {test_fraction:g} (test) and {val_fraction:g} (val) leave nothing to train on.")
        if y.shape != (len(x),) or ids.shape != (len(x),):
            raise FltnbError(
                f"x, y and client_ids need one entry per sample; their shapes are {x.shape}, {y.shape} and {ids.shape}."
            )
        n_classes = _count_classes(y, class_names)
        try:
            names, owner = np.unique(ids, return_inverse=True)
        except TypeError as error:
            raise FltnbError("client_ids mix values that do not sort: make them all text or all integers.") from error
        if clusters is not None:
            clusters = np.unique(clusters, return_inverse=True)[1]
        parts: dict[str, list[np.ndarray]] = {"train": [], "val": [], "test": []}
        for i, client in enumerate(names):
            held = np.flatnonzero(owner == i)
            if len(held) < 2:
                raise FltnbError(f"Client {client} has a single sample: it needs one to train on and one to test on.")
            n_test = min(max(round(test_fraction * len(held)), 1), len(held) - 1)
            n_val = min(round(val_fraction * len(held)), len(held) - n_test - 1)
            held = stream(seed, "split", 1 + i).permutation(held)
            test, held = _draw(held, y, n_test)
            val, held = _draw(held, y, n_val)
            for part, index in zip(parts.values(), (held, val, test), strict=True):
                part.append(np.sort(index))
        content = array_digest(x, y, owner, np.array([]) if clusters is None else clusters)
        fractions = {"test_fraction": float(test_fraction), "val_fraction": float(val_fraction)}
        return cls(
            images=x,
            labels=y,
            n_classes=n_classes,
            class_names=class_names,
            name=name,
            origin=f"own arrays (sha256 {content})",
            settings={"kind": "from_arrays", "content": content, **fractions, "n_classes": n_classes, "seed": seed},
            clusters=clusters,
            **parts,
            **pixel_scaling(x),
        )

    @property
    def n_clients(self) -> int:
        """Number of clients M."""
        return len(self.train)

    @property
    def n_clusters(self) -> int | None:
        """Number of true clusters, or None where they are not known."""
        return None if self.clusters is None else len(np.unique(self.clusters))

    @property
    def probed(self) -> bool:
        """Whether any client has a second test set."""
        return any(len(index) for index in self.probe)

    @property
    def sizes(self) -> np.ndarray:
        """Training samples per client, int64 (M,)."""
        return np.array([len(index) for index in self.train], dtype=np.int64)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Shape (C, H, W) of one model input; (1, 1, d) for vectors."""
        return to_inputs(self.images[:1]).shape[1:]

    def scaled(self, scaling: str) -> Federation:
        """Return the federation with its pixels scaled as one of :data:`fltnb.federations.SCALINGS` says.

        Raises FltnbError for another name, a scaling of three channels for grey images, or samples that are no pixels.
        """
        mean, std = SCALINGS[choose(scaling, SCALINGS, "scaling")]
        if self.images.dtype != np.uint8:
            raise FltnbError(f"{self.name} has floating-point samples, which are taken as they are: scale them first.")
        if len(np.ravel(mean)) not in (1, self.input_shape[0]):
            raise FltnbError(f"The scaling {scaling!r} is one of colour images, which {self.name} has not.")
        return replace(self, mean=mean, std=std, settings=self.settings | {"scaling": scaling})

    def inputs(self, index: np.ndarray) -> np.ndarray:
        """Return samples of the pool as model inputs, float32 (n, C, H, W), contiguous."""
        return to_inputs(self.images[index], self.mean, self.std)

    def client(self, i: int, split: str = "train") -> tuple[np.ndarray, np.ndarray]:
        """Return inputs float32 (n, C, H, W) and labels int64 (n,) of one client, or raise FltnbError if unknown."""
        choose(split, SPLITS, "split")
        if not 0 <= i < self.n_clients:
            raise FltnbError(f"There is no client {i}: this federation has clients 0 to {self.n_clients - 1}.")
        index = getattr(self, split)[i]
        return self.inputs(index), self.labels[index]

    def label_counts(self, split: str = "train") -> np.ndarray:
        """Return how many samples of each class every client holds, int64 (M, K); repeated samples count each time."""
        choose(split, SPLITS, "split")
        return np.array([np.bincount(self.labels[index], minlength=self.n_classes) for index in getattr(self, split)])

    def summary(self):
        """Return a DataFrame with one row per client.

        Columns: client; cluster (where known); train, val, test (numbers of samples); repeated (training samples
        that the client holds more than once, less the first copies); classes (number of training classes); holds (the
        five most frequent); largest_share (of one class in the training samples, 0 to 1).
        """
        import pandas as pd

        counts = self.label_counts("train")
        order = np.argsort(-counts, axis=1, kind="stable")
        classes = (counts > 0).sum(axis=1)
        holds = [
            ", ".join(self.class_names[c] for c in row[: min(n, 5)]) + (", ..." if n > 5 else "")
            for row, n in zip(order, classes, strict=True)
        ]
        columns = {"client": np.arange(self.n_clients)}
        if self.clusters is not None:
            columns["cluster"] = self.clusters
        columns |= {split: [len(index) for index in getattr(self, split)] for split in SPLITS[:3]}
        columns["repeated"] = [len(index) - len(np.unique(index)) for index in self.train]
        columns |= {"classes": classes, "holds": holds, "largest_share": counts.max(axis=1) / self.sizes}
        return pd.DataFrame(columns)

    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits that identify the samples in use, who holds what, scaling and clusters."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        splits = SPLITS if self.probed else SPLITS[:3]
        parts = [index for split in splits for index in getattr(self, split)]
        used = np.unique(np.concatenate(list({id(index): index for index in parts}.values())))
        place = np.zeros(len(self.images), dtype=np.int64)
        place[used] = np.arange(len(used))
        clusters = np.empty(0, dtype=np.int64) if self.clusters is None else self.clusters
        scaling = np.array([*np.ravel(self.mean), *np.ravel(self.std), self.n_classes], dtype=np.float64)
        sizes = np.array([len(index) for index in parts])
        held = place[np.concatenate(parts)]
        return array_digest(self.images, self.labels[used], sizes, held, clusters, scaling, rows=used)

    def __repr__(self) -> str:
        sizes = self.sizes
        per_client = f"{sizes[0]:,}" if sizes.min() == sizes.max() else f"{sizes.min():,} to {sizes.max():,}"
        clusters = "clusters unknown" if self.clusters is None else f"{self.n_clusters} true clusters"
        return (
            f"Federation {self.name}: {self.n_clients:,} clients with {per_client} training samples each,"
            f" {clusters}, {self.n_classes} classes, inputs {'x'.join(map(str, self.input_shape))}"
        )


def _count_classes(y: np.ndarray, class_names: Sequence[str] | None) -> int:
    """Return K, refusing labels that would make a model of the wrong size."""
    if not np.issubdtype(y.dtype, np.integer):
        raise FltnbError(
            f"Labels must be integers, not {y.dtype}: np.unique(y, return_inverse=True)[1] numbers labels."
        )
    if class_names is not None:
        return len(class_names)  # the Federation checks the labels against it
    found = np.unique(y)
    if found[0] != 0 or found[-1] != len(found) - 1:
        raise FltnbError(
            f"Labels run from {found[0]} to {found[-1]} with only {len(found)} different values: number them 0 to"
            f" {len(found) - 1} with np.unique(y, return_inverse=True)[1], or name all classes by class_names."
        )
    return len(found)


def _draw(held: np.ndarray, y: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Take ``n`` of the shuffled positions ``held``, classes in proportion; return (taken, the rest)."""
    classes, code, counts = np.unique(y[held], return_inverse=True, return_counts=True)
    share = apportion(n, counts)
    taken = np.concatenate([np.flatnonzero(code == k)[: share[k]] for k in range(len(classes))])
    return held[taken], np.delete(held, taken)
