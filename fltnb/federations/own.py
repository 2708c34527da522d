"""Your own clients: samples, classes and owners from arrays, a table or pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..data import array_digest
from ..data.images import read_picture
from ..errors import FltnbError, choose
from ..randomness import stream
from ..settings import Count, Natural, Part, Rate, check
from .pixels import as_samples, pixel_scaling
from .shares import apportion

if TYPE_CHECKING:
    import pandas as pd

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

        Every client's samples are divided at random into test, validation and training
        part, each class in proportion as far as whole numbers allow, one training and
        one test sample at least. Raises FltnbError for arrays that do not fit together,
        NaN, a client with a single sample, or fractions out of range.

        Parameters
        ----------
        x : ndarray, shape (N, d), (N, H, W) or (N, H, W, C)
            uint8 pixels (the federation scales them) or finite floats.
        y : array of int, shape (N,), classes 0 to K-1
        client_ids : sequence of length N
            Who holds each sample; numbers or strings. Client i of the federation is
            ``np.unique(client_ids)[i]``.
        test_fraction, val_fraction : float
            Parts of a client's samples for testing, above 0, and for validation.
        clusters : sequence of length M, optional
            True clusters in the order of ``np.unique(client_ids)``; any values,
            numbered 0, 1, ... by sorted value.
        class_names : sequence of str, optional
            Needed when some class number below the highest has no sample.

        Examples
        --------
        >>> from fltnb import Federation
        >>> owners = ["ann", "bob", "ann", "bob"]
        >>> fed = Federation.from_arrays(np.eye(4), [0, 1, 0, 1], owners, 0.5)
        >>> fed.n_clients, fed.sizes.tolist()
        (2, [1, 1])
        """
        x = as_samples(x)
        y = np.asarray(y)
        seed = check("seed", seed, Natural)
        test_fraction = check("test_fraction", test_fraction, Rate)
        val_fraction = check("val_fraction", val_fraction, Part)
        check_shares(test_fraction, val_fraction)
        shapes = x.shape, y.shape, np.shape(client_ids)
        if shapes[1:] != ((len(x),), (len(x),)):
            raise FltnbError(
                "x, y and client_ids need one entry per sample, not "
                f"{', '.join(map(str, shapes))}."
            )

        labels = integers("Labels", y, len(x), "sample")
        # Where a class has no sample, labels exceed their count: Federation says so.
        n_classes = len(np.unique(labels) if class_names is None else class_names)
        names, owner = _numbered(client_ids)
        if clusters is not None:
            clusters = np.unique(clusters, return_inverse=True)[1]

        parts = {"train": [], "val": [], "test": []}
        for i, client in enumerate(names):
            held = np.flatnonzero(owner == i)
            if len(held) < 2:
                raise FltnbError(
                    f"Client {client} has a single sample: it needs one to train on "
                    "and one to test on."
                )
            n_test = min(max(round(test_fraction * len(held)), 1), len(held) - 1)
            n_val = min(round(val_fraction * len(held)), len(held) - n_test - 1)
            shuffled = stream(seed, "split", 1 + i).permutation(held)
            test, rest = _take(shuffled, y, n_test)
            val, train = _take(rest, y, n_val)
            parts["train"].append(np.sort(train))
            parts["val"].append(np.sort(val))
            parts["test"].append(np.sort(test))

        known = np.array([]) if clusters is None else clusters
        content = array_digest(x, y, owner, known)
        settings = {
            "kind": "from_arrays",
            "content": content,
            "test_fraction": float(test_fraction),
            "val_fraction": float(val_fraction),
            "n_classes": n_classes,
            "seed": seed,
        }
        return cls(
            images=x,
            labels=y,
            n_classes=n_classes,
            class_names=class_names,
            clusters=clusters,
            settings=settings,
            name=name,
            origin=f"own arrays (sha256 {content})",
            **parts,
            **pixel_scaling(x),
        )

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
        """Make a federation of a table with one row, owner and class per sample.

        Client i is the i-th owner in sorted order. FltnbError: no such file or column,
        text among the features, gaps.

        Parameters
        ----------
        owner, label : str
            Names of these columns; their values may be numbers or text.
        features : sequence of str, optional
            The columns to learn from; by default all others.
        standardise : bool
            Take each feature less its mean over all rows, divided by its standard
            deviation: features in different units would else drown each other. In a
            real federation clients would send two sums per column for that.
        **options
            What :meth:`from_arrays` takes besides, such as ``test_fraction``, ``seed``
            or ``name``.
        """
        file = Path(file)
        standardise = check("standardise", standardise, bool)
        for given in options:
            choose(given, OPTIONS, "option of from_csv")
        if file.is_dir():
            raise FltnbError(f"{file} is a folder: use from_folder.")
        if not file.is_file():
            raise FltnbError(f"There is no file {file}.")
        if isinstance(features, str):
            raise FltnbError(f'features must be a list: ["{features}"].')

        table = _read_table(file)
        _check_header(table, file.name, named=features is not None)
        if features is None:
            features = [name for name in table if name not in (owner, label)]
        features = list(features)
        _check_columns(table, file.name, [owner, label], features)
        labels = table[label].to_numpy()
        if labels.dtype.kind == "f" and (labels % 1 != 0).any():
            raise FltnbError(
                f"Classes in {label} of {file.name} are decimal numbers: give whole "
                "numbers or text."
            )
        x = table[features].to_numpy(dtype=np.float64)
        if standardise:
            # Infinite values are refused with all other checks of samples.
            with np.errstate(invalid="ignore"):
                spread = x.std(axis=0)
                x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1)
        return cls._of_named(x, labels, table[owner].to_numpy(), options)

    @classmethod
    def from_folder(
        cls, folder: Path | str, size: Count = 32, grey: bool = False, **options: Any
    ) -> Self:
        """Make a federation of pictures in ``<folder>/<owner>/<class>/<picture>``.

        PNG, JPEG and other usual formats. Client i is the i-th owner in sorted order.
        FltnbError: no folder, no picture, one elsewhere or not readable.

        Parameters
        ----------
        size : int, pixels a side that every picture is squeezed to
        grey : bool, one channel in place of red, green and blue
        **options
            What :meth:`from_arrays` takes besides, such as ``test_fraction``, ``seed``
            or ``name``.
        """
        for given in options:
            choose(given, OPTIONS, "option of from_folder")
        folder = Path(folder)
        size = check("size", size, Count)
        mode = "L" if check("grey", grey, bool) else "RGB"
        if not folder.is_dir():
            raise FltnbError(
                f"There is no folder {folder}: give the one that holds a folder for "
                "each owner."
            )

        layout = f"{folder.name}/OWNER/CLASS/PICTURE"
        files = sorted(file for file in folder.rglob("*") if _is_picture(file))
        if not files:
            raise FltnbError(
                f"There is no picture in {folder}: lay them out as {layout}, endings "
                f"{PICTURES}."
            )
        inside = [file.relative_to(folder).parts for file in files]
        odd = [parts for parts in inside if len(parts) != 3]
        if odd:
            where = "/".join((folder.name, *odd[0]))
            raise FltnbError(
                f"{where} is not where its owner and class can be read ({len(odd)} "
                f"such): use {layout}."
            )
        x = np.stack([read_picture(file, size, "BILINEAR", mode) for file in files])
        owners, labels, _ = np.array(inside).T
        return cls._of_named(x, labels, owners, options)

    @classmethod
    def _of_named(
        cls, x: np.ndarray, labels: np.ndarray, owners: np.ndarray, options: dict
    ) -> Self:
        """Make a federation of samples whose classes ``labels`` (N,) are any values."""
        names, y = np.unique(labels, return_inverse=True)
        class_names = [str(name) for name in names]
        return cls.from_arrays(x, y, owners, class_names=class_names, **options)


def check_shares(test_fraction: float, val_fraction: float) -> None:
    """Refuse shares for testing and validation that leave nothing to train on."""
    if test_fraction + val_fraction >= 1:
        raise FltnbError(
            f"Shares {test_fraction:g} (test) and {val_fraction:g} (val) leave nothing "
            "to train on."
        )


def integers(name: str, values: Any, n: int, of: str) -> np.ndarray:
    """Return whole numbers int64 (n,), one per ``of``, or refuse them."""
    values = np.asarray(values)
    if values.shape != (n,) or not np.issubdtype(values.dtype, np.integer):
        raise FltnbError(
            f"{name} must be {n} integers, one per {of}, not {values.dtype} of shape "
            f"{values.shape}: np.unique(values, return_inverse=True)[1] turns any "
            "values into 0, 1, ..."
        )
    return values.astype(np.int64, copy=False)


def _numbered(client_ids: Sequence) -> tuple[np.ndarray, np.ndarray]:
    """Return the different ids, sorted, and the place of each sample's among them."""
    import pandas as pd

    if pd.isna(np.asarray(client_ids, dtype=object)).any():
        raise FltnbError("Some client_ids are missing: say who holds each sample.")
    try:
        return np.unique(np.asarray(client_ids), return_inverse=True)
    except TypeError as error:
        raise FltnbError(
            "client_ids mix values that do not sort: make them all text or all "
            "integers."
        ) from error


def _take(held: np.ndarray, y: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Take ``n`` of the shuffled positions ``held``, every class in proportion.

    Returns (taken, the rest).
    """
    _, code, counts = np.unique(y[held], return_inverse=True, return_counts=True)
    shares = apportion(n, counts)
    places = [np.flatnonzero(code == k)[:share] for k, share in enumerate(shares)]
    place = np.concatenate(places)
    return held[place], np.delete(held, place)


def _is_picture(file: Path) -> bool:
    return file.suffix.lower() in PICTURES and not file.name.startswith(".")


def _some(names: Sequence) -> str:
    """Return the first names, and how many more there are, for a sentence."""
    text = ", ".join(map(str, names[:SHOWN]))
    more = len(names) - SHOWN
    return f"{text} and {more} more" if more > 0 else text


def _read_table(file: Path) -> "pd.DataFrame":
    import pandas as pd

    try:
        table = pd.read_csv(file)
    except (OSError, ValueError) as error:  # pandas' own and wrong encodings, too
        raise FltnbError(
            f"{file} cannot be read as CSV ({error}): save it as UTF-8 with commas."
        ) from error
    if len(table.columns) == 1:
        raise FltnbError(
            f"{file.name} has one column, {table.columns[0]}: save it with commas."
        )
    return table


def _check_header(table: "pd.DataFrame", file: str, named: bool) -> None:
    """Refuse columns without a name, which only ``named`` features can leave out."""
    import pandas as pd

    bare = any(name.startswith("Unnamed: ") for name in table)
    # Where rows have more values than the header has names, pandas makes an index.
    longer = not isinstance(table.index, pd.RangeIndex)
    if longer or (bare and not named):
        raise FltnbError(
            f"{file} has columns without a name in its header: name or drop them."
        )


def _check_columns(
    table: "pd.DataFrame", file: str, keys: list[str], features: list[str]
) -> None:
    """Refuse columns that are not there, features that are not numbers, and gaps."""
    columns = keys + features
    unknown = [name for name in columns if name not in table]
    if unknown:
        raise FltnbError(
            f"{file} has no column {_some(unknown)}; it has {_some(table.columns)}: "
            "name the right ones with owner=, label= and features=."
        )
    if not len(table) or not features:
        raise FltnbError(
            f"{file} has {len(table)} rows and {len(features)} feature columns: "
            "give some."
        )
    text = [name for name in features if table[name].dtype.kind not in "fiub"]
    if text:
        raise FltnbError(
            f"Features {_some(text)} of {file} hold text: name those of numbers, "
            "features=[...]."
        )
    gaps = table[columns].isna()
    if gaps.any(axis=None):
        # As a text editor counts: line 1 is the header.
        lines = np.flatnonzero(gaps.any(axis=1)) + 2
        raise FltnbError(
            f"{file} has gaps in {_some(gaps.columns[gaps.any()])} (lines "
            f"{_some(lines)}): fill them or remove these lines."
        )
