"""Your own clients: samples, classes and owners out of a table or a folder of pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..data import array_digest
from ..data.images import read_picture
from ..errors import FltnbError, choose
from ..randomness import stream
from ..settings import Count, Natural, Part, Rate, check
from .pixels import as_samples, pixel_scaling
from .shares import apportion

PICTURES = (
    ".png",
    ".jpg",
    ".jpeg",
    ".webp",
    ".bmp",
    ".gif",
    ".tif",
    ".tiff",
    ".pgm",
    ".ppm",
)
OPTIONS = ("test_fraction", "val_fraction", "clusters", "seed", "name")
SHOWN = 8  # names in a sentence; a table may have thousands of columns


class OwnSamples:
    """The ways from samples of one's own to a federation."""

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
    ) -> Self:
        """Make a federation of your own samples.

        Every client's samples are divided at random into test, validation and training part, each class in proportion
        as far as whole numbers allow, one training and one test sample at least. Raises FltnbError for arrays that do
        not fit together, NaN, a client with a single sample, or fractions out of range.

        Parameters
        ----------
        x : ndarray (N, d), (N, H, W) or (N, H, W, C), uint8 pixels (the federation scales them) or finite floats
        y : array of int, shape (N,), classes 0 to K-1
        client_ids : sequence of length N
            Who holds each sample; numbers or strings. Client i of the federation is ``np.unique(client_ids)[i]``.
        test_fraction, val_fraction : float, parts of a client's samples for testing, above 0, and for validation
        clusters : sequence of length M, optional
            True clusters in the order of ``np.unique(client_ids)``; any values, numbered 0, 1, ... by sorted value.
        class_names : sequence of str, optional, needed when some class number below the highest has no sample

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
            raise FltnbError(
                f"Shares {test_fraction:g} (test) and {val_fraction:g} (val) leave nothing to train on."
            )
        if y.shape != (len(x),) or ids.shape != (len(x),):
            raise FltnbError(
                f"x, y and client_ids need one entry per sample, not {x.shape}, {y.shape}, {ids.shape}."
            )
        # where some class has no sample, labels reach beyond the number of different ones, which Federation refuses
        n_classes = len(
            np.unique(integers("Labels", y, len(x), "sample"))
            if class_names is None
            else class_names
        )
        try:
            if any(
                one is None or one != one
                for one in np.asarray(client_ids, dtype=object).flat
            ):
                raise FltnbError(
                    "Some client_ids are missing: say who holds each sample."
                )
            names, owner = np.unique(ids, return_inverse=True)
        except TypeError as error:
            raise FltnbError(
                "client_ids mix values that do not sort: make them all text or all integers."
            ) from error
        if clusters is not None:
            clusters = np.unique(clusters, return_inverse=True)[1]
        parts: dict[str, list[np.ndarray]] = {"train": [], "val": [], "test": []}
        for i, client in enumerate(names):
            held = np.flatnonzero(owner == i)
            if len(held) < 2:
                raise FltnbError(
                    f"Client {client} has a single sample: it needs one to train on and one to test on."
                )
            n_test = min(max(round(test_fraction * len(held)), 1), len(held) - 1)
            n_val = min(round(val_fraction * len(held)), len(held) - n_test - 1)
            held = stream(seed, "split", 1 + i).permutation(held)
            test, held = _draw(held, y, n_test)
            val, held = _draw(held, y, n_val)
            for part, index in zip(parts.values(), (held, val, test), strict=True):
                part.append(np.sort(index))
        content = array_digest(
            x, y, owner, np.array([]) if clusters is None else clusters
        )
        fractions = {
            "test_fraction": float(test_fraction),
            "val_fraction": float(val_fraction),
        }
        settings = {
            "kind": "from_arrays",
            "content": content,
            **fractions,
            "n_classes": n_classes,
            "seed": seed,
        }
        fields = {
            "n_classes": n_classes,
            "class_names": class_names,
            "clusters": clusters,
            "settings": settings,
        }
        fields |= {"name": name, "origin": f"own arrays (sha256 {content})"}
        return cls(images=x, labels=y, **fields, **parts, **pixel_scaling(x))

    @classmethod
    def from_csv(
        cls,
        file: Path | str,
        owner: str = "owner",
        label: str = "label",
        features: Sequence[str] | None = None,
        standardise: bool = True,
        **options: Any,
    ) -> Self:
        """Make a federation of a table: one row per sample, with a column for its owner and one for its class.

        Client i is the i-th owner in sorted order. FltnbError: no such file or column, text among the features, gaps.

        Parameters
        ----------
        owner, label : str, names of these columns; their values may be numbers or text
        features : sequence of str, optional, the columns to learn from; by default all others
        standardise : bool
            Take each feature less its mean over all rows, divided by its standard deviation: features in different
            units would else drown each other. In a real federation clients would send two sums per column for that.
        **options : what :meth:`from_arrays` takes besides, such as ``test_fraction``, ``seed`` or ``name``
        """
        import pandas as pd

        file, standardise = Path(file), check("standardise", standardise, bool)
        for given in options:
            choose(given, OPTIONS, "option of from_csv")
        if not file.is_file():
            raise FltnbError(
                f"{file} is a folder: use from_folder."
                if file.is_dir()
                else f"There is no file {file}."
            )
        if isinstance(features, str):
            raise FltnbError(f'features must be a list: ["{features}"].')
        try:
            table = pd.read_csv(file)
        except (
            OSError,
            ValueError,
        ) as error:  # pandas' own errors and wrong encodings are ValueErrors
            raise FltnbError(
                f"{file} cannot be read as CSV ({error}): save it as UTF-8 with commas."
            ) from error
        if len(table.columns) == 1:
            raise FltnbError(
                f"{file.name} has one column, {table.columns[0]}: save it with commas."
            )
        bare = features is None and any(name.startswith("Unnamed: ") for name in table)
        if bare or not isinstance(
            table.index, pd.RangeIndex
        ):  # rows with more values than the header has names
            raise FltnbError(
                f"{file.name} has columns without a name in its header: name or drop them."
            )
        columns = (
            [name for name in table if name not in (owner, label)]
            if features is None
            else list(features)
        )
        if unknown := [one for one in (owner, label, *columns) if one not in table]:
            found = f"{file.name} has no column {_some(unknown)}; it has {_some(table.columns)}"
            raise FltnbError(
                f"{found}: name the right ones with owner=, label= and features=."
            )
        if not len(table) or not columns:
            raise FltnbError(
                f"{file.name} has {len(table)} rows and {len(columns)} feature columns: give some."
            )
        if text := [one for one in columns if table[one].dtype.kind not in "fiub"]:
            raise FltnbError(
                f"Features {_some(text)} of {file.name} hold text: name those of numbers, features=[...]."
            )
        gaps = table[[owner, label, *columns]].isna()
        if gaps.any(axis=None):
            lines = (
                np.flatnonzero(gaps.any(axis=1)) + 2
            )  # as a text editor counts: line 1 is the header
            where = f"{_some(gaps.columns[gaps.any()])} (lines {_some(lines)})"
            raise FltnbError(
                f"{file.name} has gaps in {where}: fill them or remove these lines."
            )
        if table[label].dtype.kind == "f" and (table[label] % 1 != 0).any():
            raise FltnbError(
                f"Classes in {label} of {file.name} are decimal numbers: give whole numbers or text."
            )
        x = table[columns].to_numpy(dtype=np.float64)
        if standardise:
            with np.errstate(
                invalid="ignore"
            ):  # infinite values are refused with all other checks of samples
                spread = x.std(axis=0)
                x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1)
        return cls.from_arrays(
            **_samples(x, table[label].to_numpy(), table[owner].to_numpy()), **options
        )

    @classmethod
    def from_folder(
        cls, folder: Path | str, size: Count = 32, grey: bool = False, **options: Any
    ) -> Self:
        """Make a federation of pictures in ``<folder>/<owner>/<class>/<picture>`` (PNG, JPEG and other usual formats).

        Client i is the i-th owner in sorted order. FltnbError: no folder, no picture, one elsewhere or not readable.

        Parameters
        ----------
        size : int, pixels a side that every picture is squeezed to
        grey : bool, one channel in place of red, green and blue
        **options : what :meth:`from_arrays` takes besides, such as ``test_fraction``, ``seed`` or ``name``
        """
        for given in options:
            choose(given, OPTIONS, "option of from_folder")
        folder, size = Path(folder), check("size", size, Count)
        check("grey", grey, bool)
        if not folder.is_dir():
            raise FltnbError(
                f"There is no folder {folder}: give the one that holds a folder for each owner."
            )
        layout = f"{folder.name}/OWNER/CLASS/PICTURE"
        files = sorted(
            file
            for file in folder.rglob("*")
            if file.suffix.lower() in PICTURES and file.name[0] != "."
        )
        if not files:
            raise FltnbError(
                f"There is no picture in {folder}: lay them out as {layout}, endings {PICTURES}."
            )
        inside = [file.relative_to(folder).parts for file in files]
        if odd := [parts for parts in inside if len(parts) != 3]:
            where = "/".join((folder.name, *odd[0]))
            raise FltnbError(
                f"{where} is not where its owner and class can be read ({len(odd)} such): use {layout}."
            )
        x = np.stack(
            [
                read_picture(file, size, "BILINEAR", "L" if grey else "RGB")
                for file in files
            ]
        )
        owners, labels = (
            np.array([parts[place] for parts in inside]) for place in (0, 1)
        )
        return cls.from_arrays(**_samples(x, labels, owners), **options)


def _samples(x: np.ndarray, labels: np.ndarray, owners: np.ndarray) -> dict:
    """Return what :meth:`~fltnb.federations.Federation.from_arrays` takes."""
    names, y = np.unique(labels, return_inverse=True)
    return {
        "x": x,
        "y": y,
        "client_ids": owners,
        "class_names": [str(name) for name in names],
    }


def _some(names: Sequence) -> str:
    return ", ".join(map(str, names[:SHOWN])) + (
        f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    )


def integers(name: str, values: Any, n: int, of: str) -> np.ndarray:
    """Return whole numbers int64 (n,), or refuse them."""
    values = np.asarray(values)
    if values.shape != (n,) or not np.issubdtype(values.dtype, np.integer):
        found = f"{name} must be {n} integers, one per {of}, not {values.dtype} of shape {values.shape}"
        raise FltnbError(
            f"{found}: np.unique(values, return_inverse=True)[1] turns any values into 0, 1, ..."
        )
    return values.astype(np.int64, copy=False)


def _draw(held: np.ndarray, y: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Take ``n`` of the shuffled positions ``held``, classes in proportion; return (taken, the rest)."""
    classes, code, counts = np.unique(y[held], return_inverse=True, return_counts=True)
    share = apportion(n, counts)
    taken = np.concatenate(
        [np.flatnonzero(code == k)[: share[k]] for k in range(len(classes))]
    )
    return held[taken], np.delete(held, taken)
