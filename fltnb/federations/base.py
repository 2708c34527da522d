"""Federation: who holds which training, validation and test samples, and the true clusters of the clients."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from ..data import ImageSet, array_digest
from ..errors import FltnbError, choose
from ..settings import Count, check
from .own import OwnSamples, integers
from .pixels import SCALINGS, Scale, as_samples, pixel_scaling, to_inputs

SPLITS = ("train", "val", "test", "probe")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Federation(OwnSamples):
    """Clients, their samples and, where known, their true clusters.

    Raises FltnbError where these do not fit together, a client is empty or a sample NaN.

    Parameters
    ----------
    images : ndarray, shape (N, d), (N, H, W) or (N, H, W, C)
        Pool of samples, uint8 or floating point (stored as float32).
    labels : ndarray of int, shape (N,), classes of the samples, 0 to K-1
    train, val, test, probe : sequences of M integer arrays
        Positions in the pool, one array per client. ``val`` and ``probe`` may hold empty arrays or be left out. Clients
        with a common test set should be given the same array object: evaluation then computes it once. ``probe`` is a
        second test set, such as the test images with a backdoor's trigger, looked at after the last round only.
    n_classes : int, K, the number of outputs of a model
    name, origin : str, what the samples are and where they come from; stored with every result
    settings : dict, what :func:`fltnb.federations.build` makes the same federation from; JSON-able
    class_names : sequence of str, length K, default "0", "1", ...
    clusters : ndarray of int, shape (M,), optional, true cluster of each client
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
        images, n_classes = (
            as_samples(self.images),
            check("n_classes", self.n_classes, Count),
        )
        labels = integers("Labels", self.labels, len(images), "sample")
        if labels.min() < 0 or labels.max() >= n_classes:
            found = f"Labels run from {labels.min()} to {labels.max()} but n_classes is {n_classes}"
            mend = "number them with np.unique(labels, return_inverse=True)[1]"
            raise FltnbError(f"{found}: {mend}, or name all classes by class_names.")
        names = tuple(
            map(str, range(n_classes) if self.class_names is None else self.class_names)
        )
        if len(names) != n_classes:
            raise FltnbError(
                f"There are {len(names)} class names for {n_classes} classes: give one per class."
            )
        scaling = {
            name: tuple(np.ravel(getattr(self, name)).tolist())
            for name in ("mean", "std")
        }
        if not min(scaling["std"]) > 0:
            raise FltnbError(f"The pixel scaling needs std above 0, not {self.std}.")
        colours = images.shape[3] if images.ndim == 4 else 1
        if any(len(values) not in (1, colours) for values in scaling.values()):
            raise FltnbError(
                f"The pixel scaling needs one number, or one for each of {colours} channel(s): {scaling}."
            )
        try:
            json.dumps(self.settings)
        except TypeError as error:
            raise FltnbError(
                f"The settings of a federation must be plain JSON values ({error})."
            ) from error
        nothing = [np.empty(0, dtype=np.int64)] * len(self.train)
        # as lists: rows of an array are made anew each time, and two of them may then have one id
        given = {
            split: None if (parts := getattr(self, split)) is None else [*parts]
            for split in SPLITS
        }
        if self.val is None:
            given["val"] = nothing
        if self.probe is None or not any(map(len, self.probe)):
            given["probe"] = (
                nothing  # also where dataclasses.replace changed the number of clients
            )
        n = {split: len(parts) for split, parts in given.items()}
        if not n["train"] or len({*n.values()}) > 1:
            raise FltnbError(
                f"A federation needs at least one client, each with its part of every split, not {n}."
            )
        fields = {
            "images": images,
            "labels": labels,
            "n_classes": n_classes,
            "class_names": names,
        }
        fields |= {
            name: values if len(values) > 1 else values[0]
            for name, values in scaling.items()
        }
        seen: dict[int, np.ndarray] = {}  # arrays shared by clients stay shared
        for split, parts in given.items():
            fields[split] = tuple(
                _positions(split, i, own, len(images), seen)
                for i, own in enumerate(parts)
            )
        if self.clusters is not None:
            fields["clusters"] = integers(
                "clusters", self.clusters, len(self.train), "client"
            )
        for name, value in fields.items():
            object.__setattr__(
                self, name, value
            )  # the dataclass is frozen; this is its own initialisation

    @classmethod
    def of(cls, images: ImageSet, /, **fields: Any) -> Self:
        """Make a federation of an image set: ``fields`` say who holds what, and what else differs from the set."""
        names = ("images", "labels", "n_classes", "class_names", "name", "origin")
        fields = {name: getattr(images, name) for name in names} | fields
        return cls(**fields, **pixel_scaling(fields["images"]))

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

    def scaled(self, scaling: str) -> Self:
        """Return the federation with its pixels scaled as one of :data:`fltnb.federations.SCALINGS` says."""
        mean, std = SCALINGS[choose(scaling, SCALINGS, "scaling")]
        if self.images.dtype != np.uint8:
            raise FltnbError(
                f"{self.name} has floating-point samples, which are taken as they are: scale them first."
            )
        return replace(
            self, mean=mean, std=std, settings=self.settings | {"scaling": scaling}
        )

    def inputs(self, index: np.ndarray) -> np.ndarray:
        """Return samples of the pool as model inputs, float32 (n, C, H, W), contiguous."""
        return to_inputs(self.images[index], self.mean, self.std)

    def client(self, i: int, split: str = "train") -> tuple[np.ndarray, np.ndarray]:
        """Return inputs float32 (n, C, H, W) and labels int64 (n,) of one client, or raise FltnbError if unknown."""
        choose(split, SPLITS, "split")
        if not 0 <= i < self.n_clients:
            raise FltnbError(
                f"There is no client {i}: this federation has clients 0 to {self.n_clients - 1}."
            )
        index = getattr(self, split)[i]
        return self.inputs(index), self.labels[index]

    def label_counts(self, split: str = "train") -> np.ndarray:
        """Return how many samples of each class every client holds, int64 (M, K); repeated samples count each time."""
        choose(split, SPLITS, "split")
        return np.array(
            [
                np.bincount(self.labels[index], minlength=self.n_classes)
                for index in getattr(self, split)
            ]
        )

    def summary(self):
        """Return a DataFrame with one row per client.

        Columns: client; cluster (where known); train, val, test (numbers of samples); of the training samples repeated
        (copies after the first), classes (their number), holds (the five most frequent), largest_share (of one class).
        """
        import pandas as pd

        counts = self.label_counts("train")
        classes = (counts > 0).sum(axis=1)
        holds = [
            ", ".join(self.class_names[c] for c in row[: min(n, 5)])
            + (", ..." if n > 5 else "")
            for row, n in zip(
                np.argsort(-counts, axis=1, kind="stable"), classes, strict=True
            )
        ]
        columns = {"client": np.arange(self.n_clients)} | (
            {} if self.clusters is None else {"cluster": self.clusters}
        )
        columns |= {
            split: [len(index) for index in getattr(self, split)]
            for split in SPLITS[:3]
        }
        columns["repeated"] = [
            len(index) - len(np.unique(index)) for index in self.train
        ]
        columns |= {
            "classes": classes,
            "holds": holds,
            "largest_share": counts.max(axis=1) / self.sizes,
        }
        return pd.DataFrame(columns)

    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits that identify the samples in use, who holds what, scaling and clusters."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        parts = [
            index
            for split in (SPLITS if self.probed else SPLITS[:3])
            for index in getattr(self, split)
        ]
        used = np.unique(
            np.concatenate(list({id(index): index for index in parts}.values()))
        )
        place = np.zeros(len(self.images), dtype=np.int64)
        place[used] = np.arange(len(used))
        clusters = (
            np.empty(0, dtype=np.int64) if self.clusters is None else self.clusters
        )
        scaling = np.array(
            [*np.ravel(self.mean), *np.ravel(self.std), self.n_classes],
            dtype=np.float64,
        )
        sizes = np.array([len(index) for index in parts])
        held = place[np.concatenate(parts)]
        return array_digest(
            self.images, self.labels[used], sizes, held, clusters, scaling, rows=used
        )

    def __repr__(self) -> str:
        sizes = self.sizes
        per_client = (
            f"{sizes[0]:,}"
            if sizes.min() == sizes.max()
            else f"{sizes.min():,} to {sizes.max():,}"
        )
        clusters = (
            "clusters unknown"
            if self.clusters is None
            else f"{self.n_clusters} true clusters"
        )
        held = f"{self.n_clients:,} clients with {per_client} training samples each, {clusters}"
        inputs = "x".join(map(str, self.input_shape))
        return (
            f"Federation {self.name}: {held}, {self.n_classes} classes, inputs {inputs}"
        )


def _positions(
    split: str, client: int, given: Any, size: int, seen: dict[int, np.ndarray]
) -> np.ndarray:
    """Return a client's part of a split as int64 positions in a pool of ``size``, or refuse it."""
    if id(given) not in seen:
        index = np.asarray(given)
        if index.size == 0 and split in ("train", "test"):
            raise FltnbError(
                f"Client {client} has no {split} samples: leave it out or give it some."
            )
        if index.ndim != 1 or (
            index.size and not np.issubdtype(index.dtype, np.integer)
        ):
            raise FltnbError(
                f"The {split} part of client {client} must be a flat array of integer positions."
            )
        if index.size and (index.min() < 0 or index.max() >= size):
            raise FltnbError(
                f"The {split} part of client {client} points outside the pool of samples 0 to {size - 1}."
            )
        seen[id(given)] = index.astype(np.int64, copy=False)
    return seen[id(given)]
