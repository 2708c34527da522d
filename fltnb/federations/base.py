"""Federation: who holds which samples, and the true clusters of the clients."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..data import ImageSet, array_digest
from ..errors import FltnbError, choose
from ..settings import Count, check
from .own import OwnSamples, integers
from .pixels import SCALINGS, Scale, as_samples, pixel_scaling, to_inputs

if TYPE_CHECKING:
    import pandas as pd

SPLITS = ("train", "val", "test", "probe")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Federation(OwnSamples):
    """Clients, their samples and, where known, their true clusters.

    Raises FltnbError where these do not fit together, a client is empty or a sample
    NaN.

    Parameters
    ----------
    images : ndarray, shape (N, d), (N, H, W) or (N, H, W, C)
        Pool of samples, uint8 or floating point (stored as float32).
    labels : ndarray of int, shape (N,), classes of the samples, 0 to K-1
    train, val, test, probe : sequences of M integer arrays
        Positions in the pool, one array per client. ``val`` and ``probe`` may hold
        empty arrays or be left out. Clients with a common test set should be given the
        same array object: evaluation then computes it once. ``probe`` is a second test
        set, such as the test images with a backdoor's trigger, looked at after the last
        round only.
    n_classes : int, K, the number of outputs of a model
    name, origin : str
        What the samples are and where they come from; stored with every result.
    settings : dict
        What :func:`fltnb.federations.build` makes the same federation from; JSON-able.
    class_names : sequence of str, length K, default "0", "1", ...
    clusters : ndarray of int, shape (M,), optional, true cluster of each client
    mean, std : float or C floats
        Pixel scaling of uint8 samples, see :func:`to_inputs`; :meth:`scaled` sets them
        by a name.
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
        images = as_samples(self.images)
        n_classes = check("n_classes", self.n_classes, Count)
        labels = integers("Labels", self.labels, len(images), "sample")
        lowest = labels.min()
        highest = labels.max()
        if lowest < 0 or highest >= n_classes:
            raise FltnbError(
                f"Labels run from {lowest} to {highest} but n_classes is {n_classes}: "
                "number them with np.unique(labels, return_inverse=True)[1], or name "
                "all classes by class_names."
            )
        names = range(n_classes) if self.class_names is None else self.class_names
        names = tuple(map(str, names))
        if len(names) != n_classes:
            raise FltnbError(
                f"There are {len(names)} class names for {n_classes} classes: give one "
                "per class."
            )
        values = {
            "images": images,
            "labels": labels,
            "n_classes": n_classes,
            "class_names": names,
        }
        values |= self._checked_scaling(images)
        try:
            json.dumps(self.settings)
        except TypeError as error:
            raise FltnbError(
                f"The settings of a federation must be plain JSON values ({error})."
            ) from error
        values |= self._checked_splits(len(images))
        if self.clusters is not None:
            clusters = integers("clusters", self.clusters, len(self.train), "client")
            values["clusters"] = clusters

        # The dataclass is frozen; this is its own initialisation.
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _checked_scaling(self, images: np.ndarray) -> dict[str, Scale]:
        """Return mean and std, a number or one for each channel, or refuse them."""
        scaling = {
            name: tuple(np.ravel(getattr(self, name)).tolist())
            for name in ("mean", "std")
        }
        if not min(scaling["std"]) > 0:
            raise FltnbError(f"The pixel scaling needs std above 0, not {self.std}.")
        n_channels = images.shape[3] if images.ndim == 4 else 1
        if not {len(values) for values in scaling.values()} <= {1, n_channels}:
            raise FltnbError(
                f"The pixel scaling needs one number, or one for each of {n_channels} "
                f"channel(s): {scaling}."
            )
        return {
            name: values if len(values) > 1 else values[0]
            for name, values in scaling.items()
        }

    def _checked_splits(self, size: int) -> dict[str, tuple[np.ndarray, ...]]:
        """Return positions per split and client in a pool of ``size``, or refuse them.

        Arrays shared by clients stay shared.
        """
        nothing = [np.empty(0, dtype=np.int64)] * len(self.train)
        given = {}
        for split in SPLITS:
            parts = getattr(self, split)
            # dataclasses.replace may have changed the number of clients: a probe
            # without samples is made anew.
            if parts is None or (split == "probe" and not any(map(len, parts))):
                parts = nothing
            # A list keeps its arrays alive: rows of an array are made anew each time,
            # and two of them may then have one id.
            given[split] = list(parts)
        n_parts = {split: len(parts) for split, parts in given.items()}
        if not n_parts["train"] or len(set(n_parts.values())) > 1:
            raise FltnbError(
                "A federation needs at least one client, each with its part of every "
                f"split, not {n_parts}."
            )

        seen = {}
        for split, parts in given.items():
            for client, part in enumerate(parts):
                if id(part) not in seen:
                    seen[id(part)] = _positions(split, client, part, size)
        return {
            split: tuple(seen[id(part)] for part in parts)
            for split, parts in given.items()
        }

    @classmethod
    def of(cls, images: ImageSet, /, **fields: Any) -> Self:
        """Make a federation of an image set.

        ``fields`` say who holds what, and what else differs from the image set.
        """
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
        """Return the federation with its pixels scaled in another way.

        ``scaling`` is one of :data:`fltnb.federations.SCALINGS`.
        """
        mean, std = SCALINGS[choose(scaling, SCALINGS, "scaling")]
        if self.images.dtype != np.uint8:
            raise FltnbError(
                f"{self.name} has floating-point samples, which are taken as they are: "
                "scale them first."
            )
        settings = self.settings | {"scaling": scaling}
        return replace(self, mean=mean, std=std, settings=settings)

    def inputs(self, index: np.ndarray) -> np.ndarray:
        """Return samples of the pool as model inputs, float32 (n, C, H, W)."""
        return to_inputs(self.images[index], self.mean, self.std)

    def client(self, i: int, split: str = "train") -> tuple[np.ndarray, np.ndarray]:
        """Return inputs float32 (n, C, H, W) and labels int64 (n,) of one client.

        Raises FltnbError for an unknown client or split.
        """
        choose(split, SPLITS, "split")
        if not 0 <= i < self.n_clients:
            raise FltnbError(
                f"There is no client {i}: this federation has clients 0 to "
                f"{self.n_clients - 1}."
            )
        index = getattr(self, split)[i]
        return self.inputs(index), self.labels[index]

    def label_counts(self, split: str = "train") -> np.ndarray:
        """Return how many samples of each class every client holds, int64 (M, K).

        Repeated samples count each time.
        """
        choose(split, SPLITS, "split")
        counts = [
            np.bincount(self.labels[index], minlength=self.n_classes)
            for index in getattr(self, split)
        ]
        return np.array(counts)

    def summary(self) -> "pd.DataFrame":
        """Return a table with one row per client.

        Columns: client; cluster (where known); train, val, test (numbers of samples);
        of the training samples repeated (copies after the first), classes (their
        number), holds (the five most frequent), largest_share (of one class).
        """
        import pandas as pd

        counts = self.label_counts("train")
        table = pd.DataFrame({"client": np.arange(self.n_clients)})
        if self.clusters is not None:
            table["cluster"] = self.clusters
        for split in ("train", "val", "test"):
            table[split] = [len(index) for index in getattr(self, split)]
        different = [len(np.unique(index)) for index in self.train]
        table["repeated"] = self.sizes - different
        table["classes"] = np.sum(counts > 0, axis=1)
        table["holds"] = [self._most_frequent(row) for row in counts]
        table["largest_share"] = counts.max(axis=1) / self.sizes
        return table

    def _most_frequent(self, counts: np.ndarray) -> str:
        """Return the names of the five most frequent classes, for a sentence."""
        order = np.argsort(-counts, kind="stable")
        held = [self.class_names[c] for c in order if counts[c]]
        text = ", ".join(held[:5])
        return f"{text}, ..." if len(held) > 5 else text

    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits that identify the federation.

        They depend on the samples in use, who holds what, scaling and clusters.
        """
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        splits = SPLITS if self.probed else SPLITS[:3]
        parts = [index for split in splits for index in getattr(self, split)]
        different = {id(index): index for index in parts}
        used = np.unique(np.concatenate(list(different.values())))
        place = np.zeros(len(self.images), dtype=np.int64)
        place[used] = np.arange(len(used))

        sizes = np.array([len(index) for index in parts])
        held = place[np.concatenate(parts)]
        clusters = np.empty(0, dtype=np.int64)
        if self.clusters is not None:
            clusters = self.clusters
        scaling = [*np.ravel(self.mean), *np.ravel(self.std), self.n_classes]
        scaling = np.array(scaling, dtype=np.float64)
        labels = self.labels[used]
        return array_digest(
            self.images, labels, sizes, held, clusters, scaling, rows=used
        )

    def __repr__(self) -> str:
        fewest = self.sizes.min()
        most = self.sizes.max()
        each = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
        clusters = "clusters unknown"
        if self.clusters is not None:
            clusters = f"{self.n_clusters} true clusters"
        inputs = "x".join(map(str, self.input_shape))
        return (
            f"Federation {self.name}: {self.n_clients:,} clients with {each} training "
            f"samples each, {clusters}, {self.n_classes} classes, inputs {inputs}"
        )


def _positions(split: str, client: int, part: Any, size: int) -> np.ndarray:
    """Return a client's int64 positions in a pool of ``size``, or refuse them."""
    index = np.asarray(part)
    if index.size == 0 and split in ("train", "test"):
        raise FltnbError(
            f"Client {client} has no {split} samples: leave it out or give it some."
        )
    whole = index.size == 0 or np.issubdtype(index.dtype, np.integer)
    if index.ndim != 1 or not whole:
        raise FltnbError(
            f"The {split} part of client {client} must be a flat array of integer "
            "positions."
        )
    if index.size and (index.min() < 0 or index.max() >= size):
        raise FltnbError(
            f"The {split} part of client {client} points outside the pool of samples 0 "
            f"to {size - 1}."
        )
    return index.astype(np.int64, copy=False)
