"""Tables as files and frames: read without silent repairs, owners and classes as text.

pandas repairs much without a word: a name that occurs twice becomes ``label.1``, rows
that are too short are filled up, ``007`` and ``7`` become one number, and ``NA`` a gap.
Here each of these is refused, or read as it stands.
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
from .preprocessing import are_dates, check_once, named, some

if TYPE_CHECKING:
    import pandas as pd

# Options of pandas.read_csv that decide what the header is.
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
# Those with which lines of the file can still be counted.
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
MARK = "="  # before names while they are read
# zero-width space, word joiner, byte order mark, soft hyphen
WITHOUT_WIDTH = dict.fromkeys([0x200B, 0x2060, 0xFEFF, 0x00AD])
# Of the disk, and of a compressed file that is damaged.
UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
WHOLE = re.compile(r"[+-]?\d+")


class Asked(NamedTuple):
    """What a user says of the columns of a table; :func:`asked` checks it.

    Attributes
    ----------
    owner, label : str
        The columns that say who holds a row, and what is predicted.
    features : sequence of str, or None for all other columns
    values : bool
        Labels are numbers to predict.
    numeric_names : bool
        Owners and classes are numbers: 007 and 7 are one.
    """

    owner: str
    label: str
    features: Sequence[str] | None
    values: bool
    numeric_names: bool

    @property
    def texts(self) -> tuple[str, ...]:
        """Columns that are read as they stand."""
        if self.numeric_names:
            return ()
        if self.values:
            return (self.owner,)
        return (self.owner, self.label)


def asked(
    owner: str,
    label: str,
    features: Sequence[str] | None = None,
    targets: str = "classes",
    numeric_names: bool = False,
) -> Asked:
    """Check what is said of a table's columns, as ``Federation.from_frame`` says it."""
    owner = str(owner).strip()
    label = str(label).strip()
    if owner == label:
        raise FltnbError(
            f"owner and label are both {owner!r}: name the column of each."
        )
    if isinstance(features, str):
        raise FltnbError(f'features must be a list: ["{features}"].')
    if features is not None:
        features = [str(name).strip() for name in features]
    numeric = check("numeric_names", numeric_names, bool)
    return Asked(owner, label, features, are_values(targets), numeric)


def are_values(targets: str) -> bool:
    """Whether numbers are predicted, and not classes."""
    return choose(targets, ("classes", "values"), "kind of targets") == "values"


class Rows(NamedTuple):
    """The rows of a table that a federation is made of.

    Attributes
    ----------
    table : DataFrame
        Its columns are named, each once.
    owners : ndarray of text, shape (N,)
    labels : ndarray of text, shape (N,)
        float64 where numbers are predicted.
    features : list of str
        The columns to learn from.
    place : Places
        How messages call rows.
    """

    table: "pd.DataFrame"
    owners: np.ndarray
    labels: np.ndarray
    features: list[str]
    place: "Places"

    def check_gaps(self) -> None:
        """Refuse gaps in the features, where nothing will fill them."""
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
    """Read a CSV file by pandas; the columns ``texts`` as they stand, without blanks.

    ``options`` are those of ``pandas.read_csv``. FltnbError: the file is none, or
    pandas would have repaired it.
    """
    import pandas as pd

    for name, why in REFUSED.items():
        if name in options:
            raise FltnbError(f"{name} cannot be given to from_csv: {why}.")
    options = dict(options)
    if "engine" not in options:
        options.setdefault("low_memory", False)  # one type a column
    converters = dict(options.pop("converters", None) or {})
    try:
        header = _header(file, options)
        if header is not None:
            check_once([name.strip() for name in header], file.name)
        as_they_stand = set(_as_read(texts, header, options))
        kept = sorted(as_they_stand - set(converters), key=str)
        converters.update(dict.fromkeys(kept, _marked))
        table = pd.read_csv(file, converters=converters, **options)
    except FltnbError:
        raise
    except (*UNREADABLE, ValueError, TypeError, csv.Error, LookupError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise FltnbError(
            f"{file} cannot be read as CSV ({reason}): save it as UTF-8 with commas, "
            "or give pandas' options, such as sep=';' or encoding='latin-1'."
        ) from error
    for name in kept:
        if name in table:
            table[name] = table[name].str.removeprefix(MARK)
    _check_shape(table, file, options)
    return table


def _marked(text: str) -> str:
    """Return a name so that pandas does not take NA, None or nothing for a gap."""
    return MARK + text.strip()


def pandas_options() -> set[str]:
    """Return the names of the options of ``pandas.read_csv``."""
    import pandas as pd

    names = set(inspect.signature(pd.read_csv).parameters)
    names.discard("filepath_or_buffer")  # the file
    return names


def _header(file: Path, options: Mapping[str, Any]) -> list[str] | None:
    """Return the names in the header as they stand; None where there is no header."""
    import pandas as pd

    line = options.get("header", "infer")
    one_line = isinstance(line, (int, str))  # not None, nor a list of several
    if not one_line or "names" in options:
        return None
    if line == "infer":
        line = 0
    line = int(line)
    kept = {name: options[name] for name in HEADER_OPTIONS if name in options}
    top = pd.read_csv(
        file, header=None, nrows=line + 1, dtype=str, keep_default_na=False, **kept
    )
    return [str(name) for name in top.iloc[line]]


def _as_read(
    texts: Sequence[str], header: list[str] | None, options: Mapping[str, Any]
) -> list[str | int]:
    """Return what pandas calls the columns ``texts``.

    Blanks around a name stay; without a header columns are numbers.
    """
    if header is not None:
        return [name for name in header if name.strip() in texts]
    if options.get("header", "infer") is None and "names" not in options:
        return [int(name) for name in texts if WHOLE.fullmatch(name)]
    return list(texts)


def _check_shape(table: "pd.DataFrame", file: Path, options: Mapping[str, Any]) -> None:
    """Refuse a table of one column, columns without a name, and rows of two lengths."""
    import pandas as pd

    if len(table.columns) == 1:
        raise FltnbError(
            f"{file.name} has one column, {table.columns[0]}: save it with commas, or "
            "give pandas' options, such as sep=';'."
        )
    # Where rows have more values than the header has names, pandas makes an index.
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
    """Where the rows of a file begin, as a text editor counts, and their lengths.

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
        """Count the lines of a CSV file of so many rows; None where that is not sure.

        Blank lines and line breaks inside quotes count as they do in an editor.
        """
        separator = options.get("sep", options.get("delimiter"))
        if separator is None:
            separator = ","
        plain = file.suffix.lower() in (".csv", ".tsv", ".txt")
        unsure = set(options) - set(COUNTABLE)
        if unsure or len(separator) != 1 or not plain:
            return None
        starts = []
        lengths = []
        encoding = options.get("encoding") or "utf-8-sig"
        quote = options.get("quotechar", '"')
        with file.open(encoding=encoding, newline="") as text:
            reader = csv.reader(text, delimiter=separator, quotechar=quote)
            before = 0  # lines before this row, which may have several
            for values in reader:
                if values:
                    starts.append(before + 1)
                    lengths.append(len(values))
                before = reader.line_num
        if len(starts) != n_rows + 1:
            return None
        return cls(np.array(starts[1:]), np.array(lengths[1:]))


def read_parquet(file: Path) -> "pd.DataFrame":
    """Read a Parquet file by pandas, or say what it takes."""
    import pandas as pd

    try:
        return pd.read_parquet(file)
    except ImportError as error:
        raise FltnbError(
            f"Reading {file.name} takes a package that pandas reads Parquet with: "
            "pip install 'fltnb[parquet]'."
        ) from error
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise FltnbError(f"{file} cannot be read as Parquet ({reason}).") from error


def existing(file: Path | str) -> Path:
    """Return the path of a file, its ``~`` resolved; FltnbError: there is none."""
    file = Path(file).expanduser()
    if file.is_dir():
        raise FltnbError(f"{file} is a folder: use from_folder.")
    if not file.is_file():
        raise FltnbError(f"There is no file {file}.")
    return file


def rows_of(
    table: "pd.DataFrame", asked: Asked, what: str, lines: Lines | None = None
) -> Rows:
    """Take a table apart: who holds each row, what is predicted, what from.

    ``what``: the table's name in messages; ``lines``: of its file. FltnbError: a column
    is missing, or a row has no owner or label.
    """
    table = named(table, what)
    owner, label = asked.owner, asked.label
    features = asked.features
    if features is None:
        features = [name for name in table if name not in (owner, label)]
    features = list(features)
    _check_columns(table, what, [owner, label], features)

    place = Places(what, lines)
    owners = _names(table[owner], asked.numeric_names, place)
    if asked.values:
        labels = _values(table[label], place)
    else:
        labels = _names(table[label], asked.numeric_names, place)
        _check_classes(labels, label, what)
    if len(np.unique(owners)) == len(owners) > 1:
        raise FltnbError(
            f"Every row of {what} has another {owner}: owner must name the column that "
            "says who holds a row."
        )
    return Rows(table, owners, labels, features, place)


class Places(NamedTuple):
    """Where rows are, for people."""

    what: str
    lines: Lines | None

    def of(self, rows: np.ndarray) -> str:
        """Say where these rows are."""
        if self.lines is None:
            return f"rows {some(rows)}, counted from 0"
        return f"lines {some(self.lines.starts[rows])}"


def _check_columns(
    table: "pd.DataFrame", what: str, keys: list[str], features: list[str]
) -> None:
    """Refuse columns that are not there, and a table without rows or features."""
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
            "name the right ones with owner=, label= and features=."
        )
    if not len(table) or not features:
        raise FltnbError(
            f"{what} has {len(table)} rows and {len(features)} feature columns: "
            "give some."
        )
    check_once(features, "features")
    keyed = [name for name in features if name in keys]
    if keyed:
        raise FltnbError(
            f"features hold {some(keyed)}, the owner or the label: leave that out."
        )


def _names(column: "pd.Series", numeric: bool, place: Places) -> np.ndarray:
    """Return names as text (N,) without blanks around, gaps refused.

    ``numeric``: they are numbers, so that 007 and 7 are one.
    """
    import pandas as pd

    texts = np.array([text_of(value) for value in column], dtype=object)
    gaps = column.isna().to_numpy() | (texts == "")
    missing = np.flatnonzero(gaps)
    if len(missing):
        raise FltnbError(
            f"{place.what} has gaps in {column.name} ({place.of(missing)}): fill them "
            "or remove these rows; where NA is a name, read it as text."
        )
    if numeric:
        try:
            whole = [text_of(number) for number in pd.to_numeric(texts)]
            texts = np.array(whole, dtype=object)
        except (TypeError, ValueError) as error:
            raise FltnbError(
                f"{column.name} of {place.what} holds more than numbers ({error}): "
                "take numeric_names=False."
            ) from error
    return texts.astype(str)


def text_of(value: Any) -> str:
    """Return a name as text: what looks the same is the same.

    Blanks around it go, those inside are one plain blank each, characters without width
    go, and accents have one form. Where there are gaps, pandas turns whole numbers to
    7.0, which is 7.
    """
    if isinstance(value, float) and value.is_integer():
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
            f"{column.name} of {place.what} holds dates: make numbers of them, such as "
            "days since a first one."
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
    """Return the names of classes that are no integers, and the number of each."""
    import pandas as pd

    missing = np.flatnonzero(pd.isna(labels))
    if len(missing):
        raise FltnbError(
            f"{len(missing)} labels of the clients are missing: leave these samples "
            "out."
        )
    texts = np.array([text_of(label) for label in labels])
    _check_classes(texts, "labels", "the clients")
    return numbered(texts)


def _check_classes(labels: np.ndarray, name: str, what: str) -> None:
    """Refuse decimal numbers as classes."""
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
    """Return the different names (N,) in order, and the place of each among them.

    Names that are all whole numbers are in the order of these numbers, 9 before 10;
    others in that of the alphabet.
    """
    different, place = np.unique(names, return_inverse=True)
    if not all(WHOLE.fullmatch(name) for name in different):
        return different.tolist(), place
    n = len(different)
    # 07 and 7 are two names of one number, in the order of the alphabet
    order = sorted(range(n), key=lambda i: (int(different[i]), i))
    rank = np.argsort(order)  # of each name in `different`
    in_order = [str(different[i]) for i in order]
    return in_order, rank[place]
