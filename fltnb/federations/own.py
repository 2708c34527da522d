"""Your own clients: their samples and classes from arrays, tables or pictures."""

import unicodedata
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import numpy as np

from ..arrays import as_array, as_float32
from ..data import array_digest
from ..errors import FltnbError, choose
from ..randomness import stream
from ..settings import Count, Natural, Part, Rate, Whole, check
from . import folders, partitions, preprocessing, tables
from .pixels import Layout, as_samples, pixel_scaling
from .preprocessing import some
from .shares import apportion

if TYPE_CHECKING:
    import pandas as pd

OPTIONS = ("test_fraction", "val_fraction", "clusters", "seed", "name", "min_samples")
ASKED = ("features", "targets", "numeric_names")  # what tables.asked takes
TABLE_OPTIONS = (*OPTIONS, "features", "preprocess", "targets", "numeric_names")


FAR = 5
"""Deviations from 0, from which on most columns of samples should be scaled."""
UNLIKE = 100
"""Ratio of large to small deviations of columns, from which on they should be."""
Enough = Annotated[int, Whole(2)] | None


class Options(NamedTuple):
    """The way in which samples are divided.

    See :meth:`OwnSamples.from_arrays`; ``clusters`` are those given by the user.
    """

    test_fraction: float = 0.2
    val_fraction: float = 0.0
    clusters: Sequence | Mapping[str, Any] | None = None
    seed: int = 0
    name: str = "own data"
    min_samples: int | None = None


class Clients(NamedTuple):
    """The clients, and the client of each sample.

    Attributes
    ----------
    names : list of M str
    place : ndarray of int, shape (N,)
        The position of each sample's client among these; -1: no client.
    clusters : ndarray of int, shape (M,), or None
        True clusters.
    notes : tuple of str
        What was left out on the way, in sentences.
    """

    names: list[str]
    place: np.ndarray
    clusters: np.ndarray | None = None
    notes: tuple[str, ...] = ()


class OwnSamples:
    """Methods that make a federation from a user's own samples."""

    @classmethod
    def from_arrays(
        cls,
        x: np.ndarray,
        y: np.ndarray,
        client_ids: Sequence,
        test_fraction: float = 0.2,
        clusters: Sequence | Mapping[str, Any] | None = None,
        seed: int = 0,
        val_fraction: float = 0.0,
        class_names: Sequence[str] | None = None,
        name: str = "own data",
        targets: str = "classes",
        layout: Layout | None = None,
        min_samples: int | None = None,
    ) -> Self:
        """Make a federation of your own samples.

        Every client's samples are divided at random into test, validation and training
        part, each class in proportion as far as whole numbers allow, with at least one
        training and one test sample.

        Parameters
        ----------
        x : ndarray, shape (N, d), (N, H, W) or (N, H, W, C)
            uint8 pixels (the federation scales them) or finite floats, which are not
            changed: scale them first, or use :meth:`from_frame`, which standardises.
            Integers (N, L) are tokens; floats (N, L, D) with ``layout="sequences"``
            sequences.
        y : array, shape (N,), classes from 0, or classes as text
            With ``targets="values"``: the numbers to predict.
        client_ids : sequence of length N
            The client of each sample; whole numbers or strings. Client i of the
            federation is ``np.unique(client_ids)[i]``.
        test_fraction, val_fraction : float
            Shares of a client's samples for testing (above 0) and for validation; their
            sum is below 1.
        clusters : sequence of length M or dict, optional
            True clusters in the order of ``np.unique(client_ids)``, or by name; any
            values, numbered 0, 1, ... by sorted value.
        seed : int
            Seed of the division.
        class_names : sequence of str, optional
            Needed if some class number below the highest has no sample.
        name : str
            Name of the data, stored with every result.
        targets : {"classes", "values"}
            Classes, or numbers (regression).
        layout : {"pictures", "tokens", "sequences"}, optional
            By default integers (N, L) are tokens, and all others pictures or vectors.
        min_samples : int, optional
            2 or more; clients with fewer samples are left out, with a warning. Without
            it, a client with a single sample is refused.

        Raises
        ------
        FltnbError
            Arrays do not fit together or hold NaN, a client has a single sample, or
            fractions are out of range.

        Examples
        --------
        >>> from fltnb import Federation
        >>> client_ids = ["ann", "bob", "ann", "bob"]
        >>> fed = Federation.from_arrays(np.eye(4), [0, 1, 0, 1], client_ids, 0.5)
        >>> fed.n_clients, fed.sizes.tolist(), fed.names
        (2, [1, 1], ('ann', 'bob'))
        """
        x = as_samples(x, layout)
        y = as_array(y, "Labels")
        ids = as_array(client_ids, "client_ids")
        one_each = (len(x),)
        if y.shape != one_each or ids.shape != one_each:
            raise FltnbError(
                "x, y and client_ids need one entry per sample, not "
                f"{x.shape}, {y.shape}, {ids.shape}."
            )
        options = _checked(
            Options(test_fraction, val_fraction, clusters, seed, name, min_samples)
        )
        clients = clients_of(client_ids, clusters)
        return cls._divided(x, y, clients, options, class_names, targets, layout)

    @classmethod
    def from_clients(
        cls,
        clients: Iterable | Mapping[str, Any] | Any,
        names: Sequence[str] | None = None,
        n_clients: int | None = None,
        x: str | Sequence[str] | None = None,
        y: str = "label",
        targets: str = "classes",
        layout: Layout | None = None,
        **options: Any,
    ) -> Self:
        """Make a federation from one data set per client, in the given order.

        Raises FltnbError if a client's data do not fit the others', or an option is
        unknown.

        Parameters
        ----------
        clients : sequence or dict of data sets, or Flower Datasets' federated one
            A data set is a pair ``(x, y)`` of arrays or tensors. Or it has ``len`` and
            gives a pair ``(x, y)`` for each number, as torch's map-style data sets do;
            their pictures are tensors (C, H, W) and become (H, W, C). An object with
            ``load_partition(i)`` gives one table of columns for each i. Classes are
            whole numbers from 0, or text.
        names : sequence of M str, optional
            Names of the clients; a dict has them as its keys.
        n_clients : int, optional
            Number of partitions to load, if the object does not give it.
        x, y : str
            Columns of a partition: the inputs (by default all other columns) and the
            value to predict.
        targets, layout : see :meth:`from_arrays`
        **options
            ``test_fraction``, ``val_fraction``, ``clusters``, ``seed``, ``name``,
            ``min_samples`` of :meth:`from_arrays`.

        Examples
        --------
        >>> from fltnb import Federation
        >>> wards = {"north": (np.eye(3), [0, 1, 0]), "south": (np.eye(3), [1, 1, 0])}
        >>> Federation.from_clients(wards, test_fraction=0.34).names
        ('north', 'south')
        """
        _check_known(options, OPTIONS, "from_clients")
        given = partitions.read(clients, names, n_clients, x, y)
        place = np.repeat(np.arange(len(given.names)), given.sizes)
        options = _checked(Options(**options))
        clusters = clusters_of(options.clusters, given.names)
        found = Clients(list(given.names), place, clusters)
        x = as_samples(given.x, layout)
        return cls._divided(
            x, given.y, found, options, given.class_names, targets, layout
        )

    @classmethod
    def from_frame(
        cls,
        table: "pd.DataFrame",
        client: str = "client",
        label: str = "label",
        features: Sequence[str] | None = None,
        preprocess: Any = "standard",
        targets: str = "classes",
        numeric_names: bool = False,
        **options: Any,
    ) -> Self:
        """Make a federation from a DataFrame with one row per sample.

        Client i is the i-th in sorted order. Raises FltnbError if a column is missing
        or occurs twice, client or label has gaps, or columns are neither numbers nor
        categories.

        Parameters
        ----------
        table : DataFrame
            One row per sample.
        client, label : str
            The columns that say which client a row belongs to, and what is predicted.
            Their values are read as text: ``007`` and ``7`` differ.
        features : sequence of str, optional
            The input columns; by default all others.
        preprocess : {"standard"} or None or transformer
            "standard", fitted on the training rows only: missing numbers are filled
            with the median, numbers standardised; text becomes one 0 or 1 for each
            category, and a gap is a category. None: numbers are not changed, gaps and
            text are refused. Or a scikit-learn transformer, or ``preprocessing`` of
            another federation. The fitted object is :attr:`preprocessing`, for
            newcomers.
        targets : {"classes", "values"}
            "values": the label is a number to predict.
        numeric_names : bool
            Clients and classes are numbers: ``007`` and ``7`` are equal.
        **options
            ``test_fraction``, ``val_fraction``, ``clusters``, ``seed``, ``name``,
            ``min_samples`` of :meth:`from_arrays`.
        """
        import pandas as pd

        _check_old_names(options)
        _check_known(options, OPTIONS, "from_frame")
        if not isinstance(table, pd.DataFrame):
            raise FltnbError(
                f"from_frame takes a pandas DataFrame, not {type(table).__name__}: "
                "from_arrays takes arrays, from_csv a file."
            )
        asked = tables.asked(client, label, features, targets, numeric_names)
        rows = tables.rows_of(table, asked, "The table")
        return cls._of_rows(rows, asked, preprocess, options)

    @classmethod
    def from_csv(
        cls,
        file: Path | str,
        client: str = "client",
        label: str = "label",
        **options: Any,
    ) -> Self:
        """Make a federation from a CSV file with one row per sample.

        Parameters
        ----------
        file : path
        client, label : str
            The columns that say which client a row belongs to, and what is predicted.
            Their values are read as text: ``NA`` is a name.
        **options
            Those of :meth:`from_frame`, and those of ``pandas.read_csv``, such as
            ``sep``, ``decimal``, ``encoding``, ``index_col`` or ``na_values``.
        """
        _check_old_names(options)
        pandas_options = tables.pandas_options()
        own = {}
        of_pandas = {}
        for name, value in options.items():
            if name in TABLE_OPTIONS:
                own[name] = value
            elif name in pandas_options:
                of_pandas[name] = value
            else:
                raise FltnbError(
                    f"Unknown option of from_csv {name!r}: choose one of "
                    f"{', '.join(TABLE_OPTIONS)}, or one of "
                    "pandas.read_csv."
                )
        file = tables.existing(file)
        if file.suffix.lower() in (".parquet", ".pq"):
            raise FltnbError(f"{file.name} is a Parquet file: use from_parquet.")

        preprocess = own.pop("preprocess", "standard")
        told = {name: own.pop(name) for name in ASKED if name in own}
        asked = tables.asked(client, label, **told)
        table = tables.read_csv(file, asked.texts, of_pandas)
        lines = tables.Lines.of(file, of_pandas, len(table))
        rows = tables.rows_of(table, asked, file.name, lines)
        return cls._of_rows(rows, asked, preprocess, own)

    @classmethod
    def from_parquet(
        cls,
        file: Path | str,
        client: str = "client",
        label: str = "label",
        **options: Any,
    ) -> Self:
        """Make a federation from a Parquet file; options are those of `from_frame`.

        Raises FltnbError as that does, or if the extra ``parquet`` is not installed.
        """
        table = tables.read_parquet(tables.existing(file))
        return cls.from_frame(table, client, label, **options)

    @classmethod
    def from_folder(
        cls,
        folder: Path | str,
        size: Count = 32,
        grey: bool = False,
        background: str = "white",
        **options: Any,
    ) -> Self:
        """Make a federation from pictures in ``<folder>/<client>/<class>/<picture>``.

        PNG, JPEG and other usual formats are read, and rotated by their EXIF data, as
        in an image viewer. Client i is the i-th in sorted order. Hidden and system
        folders and files that are not pictures are left out, with a warning that names
        them. Raises FltnbError if there is no folder or no picture, or a picture
        is in a wrong place or cannot be read.

        Parameters
        ----------
        size : int, side in pixels to which every picture is resized
        grey : bool, one channel instead of red, green and blue
        background : str, colour behind transparent pixels, as in Pillow
        **options
            Further options of :meth:`from_arrays`, such as ``test_fraction``, ``seed``
            or ``name``.
        """
        _check_known(options, OPTIONS, "from_folder")
        size = check("size", size, Count)
        mode = "L" if check("grey", grey, bool) else "RGB"
        options = _checked(Options(**options))
        found = folders.find(Path(folder).expanduser())
        x = folders.read(found.files, size, mode, background)
        class_names, y = np.unique(found.classes, return_inverse=True)
        names, place = np.unique(found.clients, return_inverse=True)
        names = names.tolist()
        clusters = clusters_of(options.clusters, names)
        clients = Clients(names, place, clusters, found.notes)
        return cls._divided(x, y, clients, options, class_names.tolist(), "classes")

    @classmethod
    def _of_rows(
        cls,
        rows: tables.Rows,
        asked: tables.Asked,
        preprocess: Any,
        options: dict[str, Any],
    ) -> Self:
        """Divide a table's rows, fit the preprocessing, and make the federation."""
        options = _checked(Options(**options))
        if preprocess is None:
            rows.check_gaps()
        names, place = tables.numbered(rows.clients)
        clusters = clusters_of(options.clusters, names)
        clients = Clients(names, place, clusters)
        clients = _with_enough(clients, options.min_samples)
        if asked.values:
            targets = "values"
            class_names = None
            y = rows.labels
        else:
            targets = "classes"
            class_names, y = tables.numbered(rows.labels)

        parts = divide(y, clients, options, stratify=targets == "classes")
        train = np.sort(np.concatenate(parts["train"]))
        beside = (asked.client, asked.label)
        features = rows.table[rows.features]
        fitted = preprocessing.fit(preprocess, features, train, beside)
        x = fitted.values(fitted.table(features))
        x = as_samples(as_float32(x, "The table"))
        return cls._made(
            x, y, clients, parts, options, class_names, targets, preprocessing=fitted
        )

    @classmethod
    def _divided(
        cls,
        x: np.ndarray,
        y: np.ndarray,
        clients: Clients,
        options: Options,
        class_names: Sequence[str] | None,
        targets: str,
        layout: Layout | None = None,
    ) -> Self:
        """Divide samples (N, ...) and make a federation from them.

        ``y``: their classes or numbers, (N,); the rest as in :meth:`from_arrays`.
        """
        values = tables.are_values(targets)
        if not values:
            if class_names is None and y.dtype.kind not in "iu":
                class_names, y = tables.classes_of(y)
            y = integers("Labels", y, len(x), "sample")
        else:
            y = numbers_to_predict(y, len(x))
        if x.ndim == 2 and x.dtype == np.float32:
            clients = clients._replace(notes=(*clients.notes, *_unscaled(x)))
        clients = _with_enough(clients, options.min_samples)
        parts = divide(y, clients, options, stratify=not values)
        return cls._made(
            x, y, clients, parts, options, class_names, targets, layout=layout
        )

    @classmethod
    def _made(
        cls,
        x: np.ndarray,
        y: np.ndarray,
        clients: Clients,
        parts: dict[str, list[np.ndarray]],
        options: Options,
        class_names: Sequence[str] | None,
        targets: str,
        **more: Any,
    ) -> Self:
        """Make the federation from divided samples.

        ``parts``: for each split the positions of each client's samples; ``more``:
        further fields of the federation.
        """
        n_classes = 1
        if targets == "classes" and class_names is not None:
            n_classes = len(class_names)
            if len(set(class_names)) < n_classes:
                raise FltnbError(
                    f"class_names has a name more than once: {some(class_names)}; give "
                    "each class its own."
                )
        elif targets == "classes":
            # If a class has no sample, labels exceed their count, and Federation
            # reports it.
            n_classes = len(np.unique(y))

        notes = list(clients.notes)
        notes.extend(_alike(clients.names, "clients"))
        notes.extend(_alike(class_names, "classes"))
        for note in notes:
            warnings.warn(note, stacklevel=4)

        clusters = clients.clusters
        if clusters is None:
            clusters = np.array([])
        content = array_digest(x, y, clients.place, clusters)
        settings = {
            "kind": "from_arrays",
            "content": content,
            "test_fraction": float(options.test_fraction),
            "val_fraction": float(options.val_fraction),
            "n_classes": n_classes,
            "seed": options.seed,
        }
        if targets == "values":
            settings["targets"] = targets
        make: Any = cls  # Federation, whose class this is a part of
        return make(
            images=x,
            labels=y,
            n_classes=n_classes,
            class_names=class_names,
            clusters=clients.clusters,
            settings=settings,
            name=options.name,
            origin=f"own arrays (sha256 {content})",
            names=clients.names,
            targets=targets,
            notes=notes,
            **parts,
            **pixel_scaling(x),
            **more,
        )


def divide(
    y: np.ndarray, clients: Clients, options: Options, stratify: bool
) -> dict[str, list[np.ndarray]]:
    """Divide every client's samples into training, validation and test part.

    Parameters
    ----------
    y : ndarray, shape (N,)
        Classes, or numbers to predict.
    clients : Clients
        Every client has two samples at least.
    options : Options
    stratify : bool
        Each class in proportion.

    Returns
    -------
    dict
        "train", "val", "test" -> M arrays of positions, ascending.
    """
    kinds = y
    if not stratify:
        kinds = np.zeros(len(y), dtype=np.int64)  # all samples have one kind
    parts: dict[str, list] = {"train": [], "val": [], "test": []}
    for i in range(len(clients.names)):
        held = np.flatnonzero(clients.place == i)
        n_test, n_val = _held_out(len(held), options)
        shuffled = stream(options.seed, "split", 1 + i).permutation(held)
        test, rest = _take(shuffled, kinds, n_test)
        val, train = _take(rest, kinds, n_val)
        parts["train"].append(np.sort(train))
        parts["val"].append(np.sort(val))
        parts["test"].append(np.sort(test))
    return parts


def _held_out(size: int, options: Options) -> tuple[int, int]:
    """Return how many of a client's samples are for testing and for validation.

    One at least is for testing, then one for training, and validation gets what is left
    of its share: 2 samples with shares of 0.5 and 0.4 are 1 for testing, 1 for training
    and none for validation.
    """
    n_test = max(round(options.test_fraction * size), 1)
    n_test = min(n_test, size - 1)
    n_val = min(round(options.val_fraction * size), size - n_test - 1)
    return n_test, n_val


def check_shares(test_fraction: float, val_fraction: float) -> None:
    """Refuse shares for testing and validation that leave no training samples."""
    if test_fraction + val_fraction >= 1:
        raise FltnbError(
            f"Shares {test_fraction:g} (test) and {val_fraction:g} (val) leave nothing "
            "to train on: their sum must be below 1."
        )


def integers(name: str, values: Any, n: int, of: str) -> np.ndarray:
    """Return whole numbers int64 (n,), one per ``of``, or refuse them."""
    values = as_array(values, name)
    if values.shape != (n,) or not np.issubdtype(values.dtype, np.integer):
        raise FltnbError(
            f"{name} must be {n} integers, one per {of}, not {values.dtype} of shape "
            f"{values.shape}: np.unique(values, return_inverse=True)[1] turns any "
            "values into 0, 1, ..."
        )
    return values.astype(np.int64, copy=False)


def numbers_to_predict(values: Any, n: int) -> np.ndarray:
    """Return numbers (n,), one per sample, or refuse them."""
    values = as_array(values, "The values to predict")
    if values.shape != (n,) or values.dtype.kind not in "fiub":
        raise FltnbError(
            f"The values to predict must be {n} numbers, one per sample, not "
            f"{values.dtype} of shape {values.shape}."
        )
    return values


def _check_old_names(options: Mapping[str, Any]) -> None:
    """Refuse options of tables by their names in earlier versions."""
    if "owner" in options:
        raise FltnbError(
            "owner has become client: give client= the column that says which client "
            "a row belongs to."
        )
    if "standardise" in options:
        raise FltnbError(
            "standardise has become preprocess: give preprocess=None instead of "
            "standardise=False, and nothing instead of True."
        )


def _check_known(options: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    """Refuse unknown options of a function."""
    for given in options:
        choose(given, known, f"option of {what}")


def _checked(options: Options) -> Options:
    """Return options whose numbers are in range, or refuse them."""
    checked = options._replace(
        seed=check("seed", options.seed, Natural),
        test_fraction=check("test_fraction", options.test_fraction, Rate),
        val_fraction=check("val_fraction", options.val_fraction, Part),
        min_samples=check("min_samples", options.min_samples, Enough),
    )
    check_shares(checked.test_fraction, checked.val_fraction)
    return checked


def clients_of(client_ids: Sequence, clusters: Any) -> Clients:
    """Return the different ids, sorted, and the position of each sample's id.

    Blanks around text are removed. Raises FltnbError if some are missing or do not
    sort.
    """
    import pandas as pd

    ids = np.asarray(client_ids)
    if ids.dtype.kind not in "iu":
        ids = np.asarray(client_ids, dtype=object)
        n_texts = sum(isinstance(one, str) for one in ids)
        if pd.isna(ids).any():
            raise FltnbError("Some client_ids are missing: give each sample a client.")
        if 0 < n_texts < len(ids):
            raise FltnbError(
                "client_ids mix values that do not sort: make them all text or all "
                "integers."
            )
        values = list(ids)
        if n_texts:
            values = [tables.text_of(one) for one in ids]
        ids = np.array(values)
    names, place = np.unique(ids, return_inverse=True)
    names = [tables.text_of(name) for name in names.tolist()]
    if "" in names:
        raise FltnbError("Some client_ids are missing: give each sample a client.")
    return Clients(names, place, clusters_of(clusters, names))


def clusters_of(given: Any, names: Sequence[str]) -> np.ndarray | None:
    """Return true clusters (M,), numbered by sorted value, or None."""
    import pandas as pd

    if given is None:
        return None
    if isinstance(given, Mapping):
        by_name = {tables.text_of(name): one for name, one in given.items()}
        missing = [name for name in names if name not in by_name]
        if missing:
            raise FltnbError(
                f"clusters lacks the client(s) {some(missing)}: give the cluster of "
                "every client."
            )
        given = [by_name[name] for name in names]
    given = as_array(given, "clusters")
    if given.shape != (len(names),):
        raise FltnbError(
            f"clusters must be {len(names)} values, one per client, not of shape "
            f"{given.shape}."
        )
    unknown = np.flatnonzero(pd.isna(given))
    if len(unknown):
        raise FltnbError(
            f"The cluster of client {names[unknown[0]]} is missing: give that of every "
            "client, or no clusters."
        )
    _, clusters = np.unique(given, return_inverse=True)
    return clusters


def _alike(names: Sequence[str] | None, what: str) -> list[str]:
    """Warn of names that differ only in case, or in the form of a character.

    ``what``: what they name. The list has one sentence, or none.
    """
    by_letters = defaultdict(list)
    for name in dict.fromkeys(names or ()):
        plain = unicodedata.normalize("NFKC", str(name))  # full-width 7 is 7
        by_letters[plain.casefold()].append(name)
    alike = []
    for same in by_letters.values():
        if len(same) > 1:
            alike.append(" / ".join(same))
    if not alike:
        return []
    return [
        f"Different {what}, though only by upper and lower case or the form of "
        f"letters: {some(alike)}."
    ]


def _unscaled(x: np.ndarray) -> list[str]:
    """Warn of columns that need scaling: far from 0, or of very different sizes.

    Networks and clusterers take the numbers as they are, so that a blood pressure of
    120 ± 15 would drown a dose of 5 ± 0.1. Most columns must be far from 0, or many of
    them larger than many others, as embeddings have single rare columns. ``x`` (N, d).
    The list has one sentence, or none.
    """
    deviation = x.std(axis=0, dtype=np.float64)
    varies = deviation > 0
    if varies.sum() < 2:
        return []
    deviation = deviation[varies]
    far = np.abs(x.mean(axis=0, dtype=np.float64)[varies]) / deviation
    small, large = np.quantile(deviation, (0.1, 0.9))
    if np.median(far) < FAR and large < UNLIKE * small:
        return []
    return [
        "The columns of the samples are not scaled (deviations from "
        f"{deviation.min():.2g} to {deviation.max():.2g}), and nothing scales arrays: "
        "standardise them, or use from_frame, which does."
    ]


def _with_enough(clients: Clients, least: int | None) -> Clients:
    """Leave out clients with fewer than ``least`` samples, with a warning.

    Without ``least`` a client with a single sample is refused.
    """
    sizes = np.bincount(clients.place, minlength=len(clients.names))
    few = sizes < (least or 2)
    names = [clients.names[i] for i in np.flatnonzero(few)]
    if not names:
        return clients
    if least is None:
        raise FltnbError(
            f"Client {names[0]} has a single sample: it needs one to train on and one "
            f"to test on; min_samples=2 leaves such clients out (here {len(names)})."
        )
    if few.all():
        raise FltnbError(
            f"No client has {least} samples, the largest has {sizes.max()}: lower "
            "min_samples."
        )
    note = f"Left out, with fewer than {least} samples: {some(names)}."
    kept = _only(clients, np.flatnonzero(~few))
    return kept._replace(notes=(*clients.notes, note))


def _only(clients: Clients, kept: np.ndarray) -> Clients:
    """Return some of the clients, numbered again; samples of others have none.

    If 0, 2 and 3 of four clients are kept, 0, 1, 2 and 3 become 0, -1, 1 and 2.
    """
    number = np.full(len(clients.names), -1)
    number[kept] = np.arange(len(kept))
    clusters = clients.clusters
    if clusters is not None:
        _, clusters = np.unique(clusters[kept], return_inverse=True)
    return clients._replace(
        names=[clients.names[i] for i in kept],
        place=number[clients.place],
        clusters=clusters,
    )


def _take(held: np.ndarray, y: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Take ``n`` of the shuffled positions ``held``, every class in proportion.

    Parameters
    ----------
    held : ndarray of int
        Positions in ``y``.
    y : ndarray, shape (N,)
        Classes of all samples.
    n : int

    Returns
    -------
    taken, rest : ndarrays of int
        The first ones of each class, class by class, and the others in their order.
    """
    _, code, counts = np.unique(y[held], return_inverse=True, return_counts=True)
    shares = apportion(n, counts)
    places = []
    for k, share in enumerate(shares):
        of_class = np.flatnonzero(code == k)
        places.append(of_class[:share])
    place = np.concatenate(places)
    return held[place], np.delete(held, place)
