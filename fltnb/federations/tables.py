"""Tables from files and frames, read without silent repairs; names are text.

pandas repairs many errors silently: a name that occurs twice becomes ``label.1``, rows
that are too short are filled up, ``007`` and ``7`` become one number, and ``NA`` is
missing. Here each of these is refused, or read exactly as written.
"""

import csv
import inspect
import lzma
import re
import unicodedata
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import FltnbError, choose
from ..settings import check
from .preprocessing import are_dates, check_once, name_of, named, some

if TYPE_CHECKING:
    import pandas as pd

# Options of pandas.read_csv that determine the header.
HEADER_OPTIONS = (
    "sep",
    "delimiter",
    "encoding",
    "encoding_errors",
    "quotechar",
    "quoting",
    "doublequote",
    "escapechar",
    "comment",
    "skiprows",
    "skip_blank_lines",
    "skipinitialspace",
    "compression",
    "lineterminator",
    "dialect",
    "engine",
)
# Options with which the lines of the file can still be counted.
COUNTABLE = (
    "sep",
    "delimiter",
    "encoding",
    "quotechar",
    "decimal",
    "thousands",
    "na_values",
    "dtype",
    "low_memory",
    "converters",
    "usecols",
    "index_col",
)
REFUSED = {
    "chunksize": "the whole table is needed at once",
    "iterator": "the whole table is needed at once",
}
# Prefix of names while they are read: pandas takes "NA" for a gap, but not "=NA".
MARK = "="
# zero-width space, word joiner, byte order mark, soft hyphen
WITHOUT_WIDTH = dict.fromkeys([0x200B, 0x2060, 0xFEFF, 0x00AD])
# Errors of the disk and of damaged compressed files.
UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
WHOLE = re.compile(r"[+-]?\d+")


class Asked(NamedTuple):
    """The user's description of a table's columns; :func:`asked` checks it.

    Attributes
    ----------
    client, label : str
        The columns with each row's client and with the value to predict.
    features : sequence of str, or None for all other columns
    values : bool
        Whether labels are numbers to predict.
    numeric_names : bool
        Whether clients and classes are numbers, so that 007 equals 7.
    """

    client: str
    label: str
    features: Sequence[str] | None
    values: bool
    numeric_names: bool

    @property
    def texts(self) -> tuple[str, ...]:
        """Columns that are read exactly as written."""
        if self.numeric_names:
            return ()
        if self.values:
            return (self.client,)
        return (self.client, self.label)


def asked(
    client: str,
    label: str,
    features: Sequence[str] | None = None,
    targets: str = "classes",
    numeric_names: bool = False,
) -> Asked:
    """Return the checked description of a table's columns, or raise FltnbError.

    The arguments are those of ``Federation.from_frame``.
    """
    client = name_of(client)
    label = name_of(label)
    if client == label:
        raise FltnbError(
            f"client and label are both {client!r}: name the column of each."
        )
    if isinstance(features, str):
        raise FltnbError(f'features must be a list: ["{features}"].')
    if features is not None:
        features = [name_of(name) for name in features]
    numeric = check("numeric_names", numeric_names, bool)
    return Asked(client, label, features, are_values(targets), numeric)


def are_values(targets: str) -> bool:
    """Whether numbers are predicted instead of classes."""
    return choose(targets, ("classes", "values"), "kind of targets") == "values"


class Rows(NamedTuple):
    """The rows of a table from which a federation is made.

    Attributes
    ----------
    table : DataFrame
        Each column has a unique name.
    clients : ndarray of text, shape (N,)
    labels : ndarray of text, shape (N,)
        float64 if numbers are predicted.
    features : list of str
        The columns to learn from.
    place : Places
        Positions of rows, for messages.
    """

    table: "pd.DataFrame"
    clients: np.ndarray
    labels: np.ndarray
    features: list[str]
    place: "Places"

    def check_gaps(self) -> None:
        """Refuse missing values in the features, if nothing will fill them."""
        gaps = self.table[self.features].isna()
        if gaps.any(axis=None):
            columns = [name for name in self.features if gaps[name].any()]
            rows = np.flatnonzero(gaps.any(axis=1))
            raise FltnbError(
                f"{self.place.what} has gaps in {some(columns)} "
                f"({self.place.of(rows)}): fill them, remove these rows, or have them "
                'filled by preprocess="standard".'
            )


def read_csv(
    file: Path, texts: Sequence[str], options: Mapping[str, Any]
) -> "pd.DataFrame":
    """Read a CSV file with pandas; the columns ``texts`` as written, without blanks.

    Parameters
    ----------
    file : Path
    texts : sequence of str
        Columns of names. By a converter each value is kept as text, so that the class
        "007" stays different from "7", and a client may be called "NA".
    options : dict
        Those of ``pandas.read_csv``; a converter that the user gives for a column of
        names replaces this one.

    Raises
    ------
    FltnbError
        This is not a CSV file, or pandas would have repaired it.
    """
    for name, why in REFUSED.items():
        if name in options:
            raise FltnbError(f"{name} cannot be given to from_csv: {why}.")
    options = dict(options)
    if "engine" not in options:
        options.setdefault("low_memory", False)  # one type per column
    try:
        table = _as_written(file, texts, options)
    except FltnbError:
        raise
    except (*UNREADABLE, ValueError, TypeError, csv.Error, LookupError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise FltnbError(
            f"{file} cannot be read as CSV ({reason}): save it as UTF-8 with commas, "
            "or give pandas' options, such as sep=';' or encoding='latin-1'."
        ) from error
    _check_shape(table, file, options)
    return table


def _as_written(
    file: Path, texts: Sequence[str], options: Mapping[str, Any]
) -> "pd.DataFrame":
    """Read a CSV file, the columns ``texts`` as text; arguments as :func:`read_csv`.

    Errors are those of pandas, except for names that occur twice (FltnbError).
    """
    import pandas as pd

    options = dict(options)
    converters = dict(options.pop("converters", None) or {})
    header = _header(file, options)
    if header is not None:
        check_once([name_of(name) for name in header], file.name)
    as_they_stand = set(_as_read(texts, header, options))
    kept = sorted(as_they_stand - set(converters), key=str)
    converters.update(dict.fromkeys(kept, _marked))
    table = pd.read_csv(file, converters=converters, **options)
    for name in kept:
        if name in table:
            table[name] = table[name].str.removeprefix(MARK)
    return table


def _marked(text: str) -> str:
    """Return a name so that pandas does not read NA, None or "" as missing."""
    return MARK + text.strip()


def pandas_options() -> set[str]:
    """Return the names of the options of ``pandas.read_csv``."""
    import pandas as pd

    names = set(inspect.signature(pd.read_csv).parameters)
    names.discard("filepath_or_buffer")  # the file
    return names


def _header(file: Path, options: Mapping[str, Any]) -> list[str] | None:
    """Return the names in the header as written; None if there is no header.

    The header is read a second time, as if it were a row of values: as names pandas
    would change them if one occurs twice.
    """
    import pandas as pd

    line = options.get("header", "infer")
    one_line = isinstance(line, (int, str))  # not None, nor a list of several
    if not one_line or "names" in options:
        return None
    if line == "infer":
        line = 0
    line = int(line)
    kept = {name: options[name] for name in HEADER_OPTIONS if name in options}
    if line > 0:  # lines above it, such as a title, may have fewer values
        under = pd.read_csv(file, header=line, nrows=0, **kept)
        kept |= dict.fromkeys(("names", "usecols"), range(len(under.columns)))
    top = pd.read_csv(
        file, header=None, nrows=line + 1, dtype=str, keep_default_na=False, **kept
    )
    return [str(name) for name in top.iloc[line]]


def _as_read(
    texts: Sequence[str], header: list[str] | None, options: Mapping[str, Any]
) -> list[str | int]:
    """Return pandas' names of the columns ``texts``.

    They are as written, not as :func:`~.preprocessing.name_of` has them; without a
    header columns are numbers. With the header ``id, label`` the column "label" is
    " label" for pandas, and a converter for "label" would be ignored.
    """
    if header is not None:
        return [name for name in header if name_of(name) in texts]
    if options.get("header", "infer") is None and "names" not in options:
        return [int(name) for name in texts if WHOLE.fullmatch(name)]
    return list(texts)


def _check_shape(table: "pd.DataFrame", file: Path, options: Mapping[str, Any]) -> None:
    """Refuse a table of one column, columns without a name, and rows of two lengths.

    One column means another separator. Rows with a value too many make pandas use the
    first column as an index, and name the others wrongly. Rows that are too short have
    gaps at their end, as rows with true gaps do: only the file's lines tell them apart.
    """
    import pandas as pd

    if len(table.columns) == 1:
        raise FltnbError(
            f"{file.name} has one column, {table.columns[0]}: save it with commas, or "
            "give pandas' options, such as sep=';'."
        )
    # If rows have more values than the header has names, pandas makes an index.
    longer = not isinstance(table.index, pd.RangeIndex) and "index_col" not in options
    bare = any(str(name).startswith("Unnamed: ") for name in table)
    if longer or bare:
        raise FltnbError(
            f"{file.name} has columns without a name in its header: name or drop them; "
            "index_col=0 leaves the first one out."
        )
    if not len(table) or not table.iloc[:, -1].isna().any():
        return
    lines = Lines.of(file, options, len(table))
    if lines is not None:
        short = np.flatnonzero(lines.lengths < lines.lengths.max())
        if len(short):
            raise FltnbError(
                f"{file.name} has rows with fewer values than its header has names "
                f"(lines {some(lines.starts[short])}): correct them."
            )


class Lines(NamedTuple):
    """The first line of each row of a file, as in a text editor, and its length.

    Attributes
    ----------
    starts : ndarray of int, shape (N,)
        Numbers of lines; the header's is left out.
    lengths : ndarray of int, shape (N,)
        How many values a row has.
    """

    starts: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, file: Path, options: Mapping[str, Any], n_rows: int) -> "Lines | None":
        """Count the lines of a CSV file with ``n_rows`` rows; None if uncertain.

        Blank lines and line breaks inside quotes count as they do in an editor.
        """
        separator = options.get("sep", options.get("delimiter"))
        if separator is None:
            separator = ","
        plain = file.suffix.lower() in (".csv", ".tsv", ".txt")
        unsure = set(options) - set(COUNTABLE)
        if unsure or len(separator) != 1 or not plain:
            return None
        encoding = options.get("encoding") or "utf-8-sig"
        quote = options.get("quotechar", '"')
        with file.open(encoding=encoding, newline="") as text:
            reader = csv.reader(text, delimiter=separator, quotechar=quote)
            try:
                lines = cls.counted(reader)
            except csv.Error:  # such as a value of over 131,072 characters
                return None
        if len(lines.starts) != n_rows + 1:
            return None
        without_header = slice(1, None)
        return cls(lines.starts[without_header], lines.lengths[without_header])

    @classmethod
    def counted(cls, reader: Any) -> "Lines":
        """Count the lines that a ``csv.reader`` reads; blank ones are no rows.

        A row with a line break inside quotes has several lines. In a file of the lines
        ``a,b``, a blank one, ``1,"2``, ``3"`` and ``4,5`` rows start at 1, 3 and 5.
        """
        starts = []
        lengths = []
        before = 0  # lines before this row
        for values in reader:
            if values:
                starts.append(before + 1)
                lengths.append(len(values))
            before = reader.line_num
        return cls(np.array(starts), np.array(lengths))


def read_parquet(file: Path) -> "pd.DataFrame":
    """Read a Parquet file with pandas, or say which package is needed."""
    import pandas as pd

    try:
        return pd.read_parquet(file)
    except ImportError as error:
        raise FltnbError(
            f"Reading {file.name} needs a package with which pandas reads Parquet: "
            "pip install 'fltnb[parquet]'."
        ) from error
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise FltnbError(
            f"{file} cannot be read as Parquet ({reason}): write it again with "
            "table.to_parquet(...)."
        ) from error


def existing(file: Path | str) -> Path:
    """Return the path of a file, with ``~`` resolved.

    Raises FltnbError if it does not exist.
    """
    file = Path(file).expanduser()
    if file.is_dir():
        raise FltnbError(f"{file} is a folder: use from_folder.")
    if not file.is_file():
        raise FltnbError(f"There is no file {file}: check its name and folder.")
    return file


def rows_of(
    table: "pd.DataFrame", asked: Asked, what: str, lines: Lines | None = None
) -> Rows:
    """Split a table into clients, labels and features.

    ``what``: the table's name in messages; ``lines``: lines of its file. Raises
    FltnbError if a column is missing, or a row has no client or label.
    """
    table = named(table, what)
    client, label = asked.client, asked.label
    features = asked.features
    if features is None:
        features = [name for name in table if name not in (client, label)]
    features = list(features)
    _check_columns(table, what, [client, label], features)

    place = Places(what, lines)
    clients = _names(table[client], asked.numeric_names, place)
    if asked.values:
        labels = _values(table[label], place)
    else:
        labels = _names(table[label], asked.numeric_names, place)
        _check_classes(labels, label, what)
    if len(np.unique(clients)) == len(clients) > 1:
        raise FltnbError(
            f"Every row of {what} has a different {client}: client= must name the "
            "column that says which client a row belongs to."
        )
    return Rows(table, clients, labels, features, place)


class Places(NamedTuple):
    """Positions of rows, for messages."""

    what: str
    lines: Lines | None

    def of(self, rows: np.ndarray) -> str:
        """Return the positions of these rows, as text."""
        if self.lines is None:
            return f"rows {some(rows)}, counted from 0"
        return f"lines {some(self.lines.starts[rows])}"


def _check_columns(
    table: "pd.DataFrame", what: str, keys: list[str], features: list[str]
) -> None:
    """Refuse missing columns, and a table without rows or features."""
    unknown = [name for name in keys + features if name not in table]
    indexed = [name for name in unknown if name in table.index.names]
    if indexed:
        raise FltnbError(
            f"{what} has {some(indexed)} in its index: make columns of it, "
            "table.reset_index()."
        )
    if unknown:
        raise FltnbError(
            f"{what} has no column {some(unknown)}; it has {some(list(table))}: "
            "name the right ones with client=, label= and features=."
        )
    if not len(table) or not features:
        raise FltnbError(
            f"{what} has {len(table)} rows and {len(features)} feature columns: "
            "give at least one of each."
        )
    check_once(features, "features")
    keyed = [name for name in features if name in keys]
    if keyed:
        raise FltnbError(
            f"features contain {some(keyed)}, the column of the client or of the "
            "label: leave it out."
        )


def _names(column: "pd.Series", numeric: bool, place: Places) -> np.ndarray:
    """Return names as text (N,) without surrounding blanks; refuse missing ones.

    ``numeric``: they are numbers, so that 007 equals 7.
    """
    import pandas as pd

    texts = np.array([text_of(value) for value in column], dtype=object)
    gaps = column.isna().to_numpy() | (texts == "")
    missing = np.flatnonzero(gaps)
    if len(missing):
        raise FltnbError(
            f"{place.what} has gaps in {column.name} ({place.of(missing)}): fill them "
            "or remove these rows; if NA is a name, read it as text."
        )
    if numeric:
        try:
            whole = [text_of(number) for number in pd.to_numeric(texts)]
            texts = np.array(whole, dtype=object)
        except (TypeError, ValueError) as error:
            raise FltnbError(
                f"{column.name} of {place.what} does not hold only numbers ({error}): "
                "give numeric_names=False."
            ) from error
    return texts.astype(str)


def text_of(value: Any) -> str:
    """Return a name as text, so that names that look equal are equal.

    Surrounding blanks are removed, inner blanks become a single plain blank each,
    characters without width are removed, and accents have one form. If values are
    missing, pandas turns whole numbers into 7.0, which becomes 7.

    Examples
    --------
    >>> text_of("  ward  B "), text_of(7.0), text_of("0" + chr(0x200B) + "7")
    ('ward B', '7', '07')
    """
    if isinstance(value, (float, np.floating)) and value.is_integer():
        return str(int(value))
    if isinstance(value, bytes):  # as Parquet files may hold text
        value = value.decode("utf-8", "backslashreplace")
    text = unicodedata.normalize("NFC", str(value))
    return " ".join(text.translate(WITHOUT_WIDTH).split())


def _values(column: "pd.Series", place: Places) -> np.ndarray:
    """Return numbers to predict, float64 (N,), or refuse gaps and text."""
    import pandas as pd

    if are_dates(column):
        raise FltnbError(
            f"{column.name} of {place.what} holds dates: turn them into numbers, such "
            "as days since a first one."
        )
    numbers = pd.to_numeric(column, errors="coerce")
    missing = np.flatnonzero(numbers.isna())
    if len(missing):
        raise FltnbError(
            f"{place.what} has gaps or text in {column.name} ({place.of(missing)}), "
            "whose numbers are to be predicted: correct or remove these rows."
        )
    return numbers.to_numpy(dtype=np.float64)


def classes_of(labels: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Return the names of classes that are not integers, and the number of each."""
    import pandas as pd

    texts = np.array([text_of(label) for label in labels])
    missing = np.flatnonzero(pd.isna(labels) | (texts == ""))
    if len(missing):
        raise FltnbError(
            f"{len(missing)} labels of the clients are missing: leave these samples "
            "out."
        )
    _check_classes(texts, "labels", "the clients")
    return numbered(texts)


def _check_classes(labels: np.ndarray, name: str, what: str) -> None:
    """Refuse decimal numbers as classes.

    They are most likely to be predicted themselves. ``labels``: text; ``name`` and
    ``what`` name the column and the table in the message.
    """
    different = np.unique(labels)
    try:
        numbers = different.astype(np.float64)
    except ValueError:
        return
    finite = numbers[np.isfinite(numbers)]
    if (finite % 1 != 0).any():
        raise FltnbError(
            f"Classes in {name} of {what} are decimal numbers: give whole numbers or "
            'text, or predict the numbers themselves with targets="values".'
        )


def numbered(names: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Return the different names in order, and for each of the N its position there.

    If all names are whole numbers, they are in numerical order (9 before 10),
    otherwise in alphabetical order.

    Examples
    --------
    >>> names, place = numbered(np.array(["10", "9", "10"]))
    >>> names, place.tolist()
    (['9', '10'], [1, 0, 1])
    """
    different, place = np.unique(names, return_inverse=True)
    if not all(WHOLE.fullmatch(name) for name in different):
        return different.tolist(), place
    # 07 and 7 are two names of one number, which stay in alphabetical order
    in_order = sorted(different.tolist(), key=int)
    rank_of = {name: rank for rank, name in enumerate(in_order)}
    ranks = [rank_of[name] for name in different.tolist()]
    return in_order, np.array(ranks, dtype=np.int64)[place]
