"""From the columns of a table to samples: gaps, categories and scales.

Everything is fitted by scikit-learn on training rows only and then kept as plain
numbers, so that it can be stored as JSON and applied to newcomers' rows, also on other
machines. A pickled scikit-learn object would tie a stored federation to one version of
the library, and reading it would run code.

A column is one of numbers or one of categories. Most errors here refuse a column that
looks like one and is the other: identifiers, dates, numbers with a comma, numbers with
a percent sign, text among numbers. As categories they would become hundreds of zeros
and ones, and a network would learn from them without any complaint.
"""

import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..arrays import as_array, as_float64
from ..errors import FltnbError, unwritten

if TYPE_CHECKING:
    import pandas as pd

MISSING = "(missing)"  # the category of gaps in a text column
MOST_CATEGORIES = 1000
FEW_CATEGORIES = 20  # up to this number of texts, all may be different
MIXED = 0.5  # with this share of numbers, a column of text is a column of numbers
SHOWN = 8  # names in an error; a table may have thousands of columns
DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})([ T]\d.*)?"
)
THOUSANDS = re.compile(r"\s*[+-]?\d{1,3}(,\d{3})*\s*")  # such as 950 and 9,151
FORMAT = 1  # of the result of to_dict


def some(names: Sequence | np.ndarray) -> str:
    """Return the first names, and how many more there are, for a sentence.

    Examples
    --------
    >>> some(range(10))
    '0, 1, 2, 3, 4, 5, 6, 7 and 2 more'
    """
    text = ", ".join(str(name) for name in names[:SHOWN])
    more = len(names) - SHOWN
    if more > 0:
        return f"{text} and {more} more"
    return text


class Preprocessing:
    """Turns rows of a table into samples.

    A subclass says what it makes of a table (:meth:`_transformed`). That a table has
    the right columns, and that the result is finite, is checked here for all of them.

    Attributes
    ----------
    columns : tuple of str, the needed columns, in the order in which they were fitted
    beside : tuple of str
        Columns that may be in a table and are ignored: client and label.
    """

    columns: tuple[str, ...]
    beside: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it in plain JSON, or refuse what cannot be."""
        raise unwritten(self, "to_dict(self)")

    def transform(self, rows: "pd.DataFrame | np.ndarray") -> np.ndarray:
        """Return samples float32 (n, D) of rows, (n, columns).

        Columns of a DataFrame are found by name, those of an array by position. Raises
        FltnbError if a column is missing or additional, or its content does not fit the
        fitted one.
        """
        table = self.table(rows)
        # numbers beyond float32 become inf, which a federation refuses
        with np.errstate(over="ignore"):
            return self.values(table).astype(np.float32)

    def values(self, table: "pd.DataFrame") -> np.ndarray:
        """Return the finite numbers (n, D) of a :meth:`table`, in full precision."""
        samples = self._transformed(table)
        finite = np.isfinite(samples).all(axis=1)  # (n,)
        if not finite.all():
            rows = np.flatnonzero(~finite)
            raise FltnbError(
                f"Rows {some(rows)}, counted from 0, hold NaN or infinite values: "
                "remove or replace them first."
            )
        return samples

    def _transformed(self, table: "pd.DataFrame") -> np.ndarray:
        """Return the numbers (n, D) of a :meth:`table`, finite or not."""
        raise unwritten(self, "_transformed(self, table)")

    def table(self, rows: "pd.DataFrame | np.ndarray") -> "pd.DataFrame":
        """Return rows as a DataFrame with exactly the needed columns.

        An array of objects gets a type for every column again, as if it had been a
        DataFrame from the start.
        """
        import pandas as pd

        if isinstance(rows, pd.DataFrame):
            return self._by_name(rows)
        array = as_array(rows, "Rows")
        if array.ndim != 2 or array.shape[1] != len(self.columns):
            raise FltnbError(
                f"Rows must have the {len(self.columns)} columns "
                f"{some(self.columns)}, not the shape {array.shape}."
            )
        return pd.DataFrame(array, columns=list(self.columns)).infer_objects()

    def _by_name(self, rows: "pd.DataFrame") -> "pd.DataFrame":
        """Return the needed columns, or refuse a table with others.

        An additional column is refused and not left out: often it is a needed one under
        another name, or the table is not the one that is meant. Only client and label
        may be there, since newcomers' files mostly have them.
        """
        table = named(rows, "The table")
        missing = [name for name in self.columns if name not in table]
        if missing:
            raise FltnbError(
                f"The table lacks the column(s) {some(missing)}: it needs "
                f"{some(self.columns)}."
            )
        known = {*self.columns, *self.beside}
        extra = [name for name in table if name not in known]
        if extra:
            raise FltnbError(
                f"The table has the column(s) {some(extra)}, which were not there in "
                "training: leave them out, table.drop(columns=...)."
            )
        return table[list(self.columns)]


@dataclass(frozen=True, eq=False)
class TablePreprocessing(Preprocessing):
    """Numbers minus their mean, divided by their deviation, and categories as 0 and 1.

    Numbers come first, in the order of the columns, then the categories of each column
    of text. A category that is not in the training rows has only zeros, with a warning.

    Parameters
    ----------
    columns, beside : see :class:`Preprocessing`
    numbers : tuple of str, the columns of numbers, n of them
    fill : ndarray (n,), values that fill gaps; NaN: gaps are refused
    mean, std : ndarray (n,)
    categories : dict
        Column of text -> its categories, in order.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from fltnb.federations import preprocessing
    >>> table = pd.DataFrame({"age": [30, 50, np.nan], "ward": ["a", "b", "a"]})
    >>> fitted = preprocessing.fit("standard", table, np.array([0, 1]), beside=())
    >>> fitted.names
    ('age', 'ward=a', 'ward=b')
    >>> fitted.transform(table).tolist()
    [[-1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """

    columns: tuple[str, ...]
    numbers: tuple[str, ...]
    fill: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    categories: Mapping[str, tuple[str, ...]]
    beside: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the D features; a category is ``column=category``."""
        found = list(self.numbers)
        for column, categories in self.categories.items():
            for category in categories:
                found.append(f"{column}={category}")
        return tuple(found)

    def _transformed(self, table: "pd.DataFrame") -> np.ndarray:
        """Return numbers, then a column of 0 and 1 for each category, (rows, D)."""
        parts = [self._numbers(table)]
        unknown = []
        for column, categories in self.categories.items():
            texts = _texts(table[column])
            known = np.array(categories, dtype=object)
            parts.append(texts[:, None] == known)  # (n, categories)
            new = sorted(set(texts) - set(categories))
            if new:
                unknown.append(f"{column}: {some(new)}")
        if unknown:
            warnings.warn(
                "Categories that no training row has count as none "
                f"({'; '.join(unknown)}).",
                stacklevel=5,
            )
        return np.hstack(parts).astype(np.float64)

    def _numbers(self, table: "pd.DataFrame") -> np.ndarray:
        """Return the columns of numbers (rows, n), gaps filled, scaled.

        A column with ``fill`` NaN had no gap that anybody asked to fill
        (``preprocess=None``), so a gap in it is refused.
        """
        values = np.empty((len(table), len(self.numbers)))
        for place, column in enumerate(self.numbers):
            values[:, place] = _as_numbers(table[column])
        gaps = np.isnan(values)
        not_filled = np.isnan(self.fill)
        refused = gaps.any(axis=0) & not_filled  # (n,)
        if refused.any():
            columns = [self.numbers[i] for i in np.flatnonzero(refused)]
            rows = np.flatnonzero(gaps[:, refused].any(axis=1))
            raise FltnbError(
                f"There are gaps in {some(columns)} (rows {some(rows)}, counted from "
                "0): fill them; with preprocess=None they are not filled."
            )
        values = np.where(gaps, self.fill, values)
        # infinite values are refused by the other checks of samples
        with np.errstate(invalid="ignore"):
            return (values - self.mean) / self.std

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON; :meth:`from_dict` makes it again."""
        fill = []
        for value in self.fill.tolist():
            fill.append(None if np.isnan(value) else value)  # JSON has no NaN
        categories = {name: list(kept) for name, kept in self.categories.items()}
        return {
            "format": FORMAT,
            "columns": list(self.columns),
            "beside": list(self.beside),
            "numbers": list(self.numbers),
            "fill": fill,
            "mean": self.mean.tolist(),
            "std": self.std.tolist(),
            "categories": categories,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Make it again from the result of :meth:`to_dict`, or raise FltnbError."""
        wanted = {"columns", "beside", "numbers", "fill", "mean", "std", "categories"}
        missing = sorted(wanted - set(content))
        if content.get("format") != FORMAT or missing:
            raise FltnbError(
                f"This preprocessing has the format {content.get('format')!r} and "
                f"lacks {some(missing) or 'nothing'}: this version reads format "
                f"{FORMAT}; save it again."
            )
        lengths = {len(content[name]) for name in ("numbers", "fill", "mean", "std")}
        if len(lengths) > 1:
            found = " and ".join(str(length) for length in sorted(lengths))
            raise FltnbError(
                "This preprocessing is damaged: its numbers, fill, mean and std are "
                f"{found} long; copy it again."
            )
        categories = {}
        for name, kept in content["categories"].items():
            categories[name] = tuple(kept)
        return cls(
            columns=tuple(content["columns"]),
            numbers=tuple(content["numbers"]),
            fill=np.array(content["fill"], dtype=np.float64),  # None becomes NaN
            mean=np.array(content["mean"], dtype=np.float64),
            std=np.array(content["std"], dtype=np.float64),
            categories=categories,
            beside=tuple(content["beside"]),
        )


@dataclass(frozen=True, eq=False)
class OwnTransformer(Preprocessing):
    """A user's own fitted scikit-learn transformer.

    It may be any object with ``fit`` and ``transform``, such as a ``Pipeline`` or a
    ``ColumnTransformer``, and it gets the table with its names. What it makes is not
    known in advance, so the result is checked every time.
    """

    columns: tuple[str, ...]
    transformer: Any
    beside: tuple[str, ...] = ()

    def _transformed(self, table: "pd.DataFrame") -> np.ndarray:
        """Return what the transformer makes of the table, (n, D), or refuse it."""
        samples = self.transformer.transform(table)
        if hasattr(samples, "toarray"):  # sparse, as OneHotEncoder's result is
            samples = samples.toarray()
        samples = np.asarray(samples)
        if samples.ndim != 2 or samples.dtype.kind not in "fiub":
            raise FltnbError(
                f"{type(self.transformer).__name__} made {samples.dtype} "
                f"{samples.shape} of the rows: it must make numbers (n, D)."
            )
        return samples

    def to_dict(self) -> dict[str, Any]:
        """Refuse: a user's own transformer could only be stored as code."""
        raise FltnbError(
            f"{type(self.transformer).__name__} is your own transformer and "
            'cannot be saved: use preprocess="standard", or transform the rows before '
            "with preprocess=None."
        )


def fit(
    how: Any, table: "pd.DataFrame", rows: np.ndarray, beside: Sequence[str]
) -> Preprocessing:
    """Fit a preprocessing on some rows of a table of features.

    Parameters
    ----------
    how : "standard", None, Preprocessing, or transformer
        None: numbers are not changed. A fitted preprocessing is used without fitting,
        for samples that must match those of another federation. A scikit-learn
        transformer is cloned before it is fitted, so that the user's own object does
        not change.
    table : DataFrame
        Features of all rows.
    rows : ndarray of int
        Positions of the training rows.
    beside : sequence of str
        Columns that may be in a table and are ignored.

    Raises
    ------
    FltnbError
        ``how`` is something else, or a column cannot be used as it is.
    """
    columns = tuple(table.columns)
    if isinstance(how, Preprocessing):
        how.table(table)
        return how
    if how is None:
        return _unchanged(table, tuple(beside))
    if how == "standard":
        return _standard(table, rows, tuple(beside))
    if isinstance(how, (str, type)) or not hasattr(how, "transform"):
        raise FltnbError(
            'preprocess must be "standard", None, a fitted preprocessing, or a '
            f"scikit-learn transformer, not {how!r}."
        )
    from sklearn.base import clone

    try:
        fitted = clone(how).fit(table.iloc[rows])
    except (TypeError, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise FltnbError(
            f"{type(how).__name__} cannot be fitted on {some(columns)} ({reason}): "
            "name the columns that it can read, features=[...]."
        ) from error
    return OwnTransformer(columns, fitted, tuple(beside))


def _unchanged(table: "pd.DataFrame", beside: tuple[str, ...]) -> TablePreprocessing:
    """Return a preprocessing that does not change numbers.

    Raises FltnbError if a feature holds text.

    ``beside``: columns that may be in a table and are ignored.
    """
    numbers, texts = _kinds(table)
    if texts:
        raise FltnbError(
            f"Features {some(texts)} hold text: name those of numbers, features=[...], "
            'or take preprocess="standard".'
        )
    n = len(numbers)
    return TablePreprocessing(
        columns=tuple(table.columns),
        numbers=tuple(numbers),
        fill=np.full(n, np.nan),
        mean=np.zeros(n),
        std=np.ones(n),
        categories={},
        beside=beside,
    )


def _standard(
    table: "pd.DataFrame", rows: np.ndarray, beside: tuple[str, ...]
) -> TablePreprocessing:
    """Fit medians for gaps, mean and deviation of numbers, and categories.

    Parameters
    ----------
    table : DataFrame
        Features of all rows.
    rows : ndarray of int, shape (n,)
        Positions of the training rows: everything is fitted on these only.
    beside : tuple of str
        Columns that may be in a table and are ignored.
    """
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    # by all rows: text in a test row is found now, not when the test begins
    numbers, texts = _kinds(table)
    train = table.iloc[rows]
    # without columns of numbers these stay empty
    fill = np.empty(0)
    mean = np.empty(0)
    std = np.empty(0)
    if numbers:
        values = np.column_stack([_as_numbers(train[name]) for name in numbers])
        _check_numbers(numbers, values)
        imputer = SimpleImputer(strategy="median").fit(values)
        with np.errstate(over="ignore", invalid="ignore"):
            scaler = StandardScaler().fit(imputer.transform(values))
        _check_scales(numbers, values, scaler)
        fill = imputer.statistics_  # medians
        mean = scaler.mean_
        std = scaler.scale_  # 1 for a column whose numbers are all equal

    categories = {}
    for name in texts:
        column = _texts(train[name])
        _check_texts(name, column)
        encoder = OneHotEncoder(handle_unknown="ignore").fit(column[:, None])
        categories[name] = tuple(encoder.categories_[0].tolist())
    return TablePreprocessing(
        columns=tuple(table.columns),
        numbers=tuple(numbers),
        fill=fill,
        mean=mean,
        std=std,
        categories=categories,
        beside=beside,
    )


def _check_numbers(names: Sequence[str], values: np.ndarray) -> None:
    """Refuse columns that cannot be scaled: empty in training rows, or infinite.

    ``values`` (n, columns): the training rows. Of an empty column SimpleImputer would
    drop the whole column with only a warning, so that all later ones move.
    """
    empty = np.isnan(values).all(axis=0)
    if empty.any():
        columns = [names[i] for i in np.flatnonzero(empty).tolist()]
        raise FltnbError(
            f"No training row has a number in {some(columns)}: leave these columns "
            "out, features=[...]."
        )
    infinite = np.isinf(values).any(axis=0)
    if infinite.any():
        columns = [names[i] for i in np.flatnonzero(infinite).tolist()]
        raise FltnbError(
            f"The columns {some(columns)} hold NaN or infinite values: remove or "
            "replace them first."
        )


def _check_scales(names: Sequence[str], values: np.ndarray, scaler: Any) -> None:
    """Refuse numbers whose mean or deviation exceeds float64.

    Squares of numbers beyond 1e154 do. ``values`` (n, columns): the training rows;
    ``scaler``: StandardScaler, fitted on them.
    """
    finite = np.isfinite(scaler.mean_) & np.isfinite(scaler.scale_)
    for place in np.flatnonzero(~finite).tolist():
        largest = np.nanmax(np.abs(values[:, place]))
        raise FltnbError(
            f"Column {names[place]} holds numbers of up to {largest:.3g}, which are "
            "too large to be scaled: divide them first."
        )


def _check_texts(name: str, column: np.ndarray) -> None:
    """Refuse a column of text that does not contain categories.

    Categories repeat. A column has too many different texts if there are more than 20
    and they are over half of its training rows, as in a column of names or addresses,
    or if there are more than 1,000. In a column of at most 20 all may be different, as
    small tables for a first try have few rows.

    Parameters
    ----------
    name : str
    column : ndarray of text, shape (n,)
        The training rows, as :func:`_texts` returns them.
    """
    import pandas as pd

    different = np.unique(column)
    n_texts = len(different)
    if different.tolist() == [MISSING]:
        raise FltnbError(
            f"No training row has a value in {name}: leave it out, features=[...]."
        )
    many = n_texts > FEW_CATEGORIES and n_texts > len(column) / 2
    texts = pd.Series(different[different != MISSING].tolist())
    if many and pd.to_numeric(texts, errors="coerce").notna().all():
        raise FltnbError(
            f"Column {name} holds numbers as text: convert them, "
            f"table[{name!r}] = pd.to_numeric(table[{name!r}])."
        )
    if many or n_texts > MOST_CATEGORIES:
        raise FltnbError(
            f"Column {name} has {n_texts} different texts in {len(column)} training "
            "rows, which are not categories: leave it out, features=[...]."
        )


def _kinds(table: "pd.DataFrame") -> tuple[list[str], list[str]]:
    """Return the columns of numbers and those of text, or refuse others.

    Truth values count as numbers, 0 and 1.

    Examples
    --------
    >>> import pandas as pd
    >>> _kinds(pd.DataFrame({"age": [30], "ward": ["a"], "new": [True]}))
    (['age', 'new'], ['ward'])
    """
    from pandas.api import types

    numbers = []
    texts = []
    for name in table:
        column = table[name]
        if are_dates(column):
            raise FltnbError(
                f"Column {name} holds dates: make numbers of them, such as days after "
                "a first one."
            )
        if types.is_complex_dtype(column):
            raise FltnbError(
                f"Column {name} holds complex numbers: make a column each of their "
                "real and imaginary parts."
            )
        if types.is_object_dtype(column) and column.map(_is_several).any():
            raise FltnbError(
                f"Column {name} holds several values in one cell: give each a column "
                "of its own."
            )
        if types.is_numeric_dtype(column) or _are_numbers(column):
            numbers.append(name)
        else:
            _check_no_dates(name, column)
            _check_no_numbers(name, column)
            texts.append(name)
    return numbers, texts


def are_dates(column: "pd.Series") -> bool:
    """Return whether a column holds dates, times or durations of any type."""
    from pandas.api.types import infer_dtype

    kind = infer_dtype(column, skipna=True)
    return kind.startswith(("date", "time", "period"))


def _check_no_dates(name: str, column: "pd.Series") -> None:
    """Refuse text of which most are dates, such as 2024-05-31 or 31.5.2024.

    A CSV file has its dates as text. Each would become a category of its own, which no
    later row has.
    """
    values = column.dropna().astype(str)
    if len(values) and values.str.strip().str.fullmatch(DATE).mean() > MIXED:
        raise FltnbError(
            f"Column {name} holds dates, such as {values.iloc[0]}: make numbers of "
            "them, such as days after a first one, or leave it out, features=[...]."
        )


def _is_several(value: Any) -> bool:
    """Return whether a cell holds a list, an array or similar."""
    return isinstance(value, (list, tuple, set, dict, np.ndarray))


def _are_numbers(column: "pd.Series") -> bool:
    """Return whether a column of objects holds numbers, except for gaps.

    pandas gives a column of integers and None the type "object".
    """
    from pandas.api.types import infer_dtype

    kind = infer_dtype(column, skipna=True)
    return kind in ("integer", "floating", "mixed-integer-float", "decimal", "boolean")


def _check_no_numbers(name: str, column: "pd.Series") -> None:
    """Refuse text among numbers, or numbers with a comma.

    Such a column is text for pandas, and would silently become one of categories. It is
    refused if over half of its values look like numbers in one of these forms: "3,5" or
    "1.234,5"; "12 %" or "−4" with a long minus; or plain ones with other text among
    them, as in "7", "8", "unknown", "9".

    Parameters
    ----------
    name : str
    column : Series
        All rows, gaps included.
    """
    import pandas as pd

    values = column.dropna().astype(str)
    if not len(values):
        return
    commas = values.str.fullmatch(r"\s*[+-]?[\d.]*,\d+\s*")  # such as "1.234,5"
    if commas.mean() > MIXED:
        one = values[commas].iloc[0]
        how = 'with decimal="," (and thousands=".")'
        if values.str.fullmatch(THOUSANDS).all():
            how = f'with thousands="," if {one} is a whole number, {how} if not'
        raise FltnbError(
            f"Column {name} holds numbers with a comma, such as {one}: read them {how}."
        )
    # with a percent sign, or the long minus of typesetters (U+2212)
    signed = values.str.fullmatch(r"\s*[+\u2212-]?[\d.]+\s*%?\s*")
    odd = values[signed & values.str.contains("[%\u2212]")]
    if len(odd) / len(values) > MIXED:
        raise FltnbError(
            f"Column {name} holds numbers with a sign that numbers do not have, such "
            f"as {odd.iloc[0]!r}: remove %, and write minus as -."
        )
    is_number = pd.to_numeric(values, errors="coerce").notna()
    if MIXED <= is_number.mean() < 1:
        odd = values[~is_number].iloc[0]
        raise FltnbError(
            f"Column {name} holds text among numbers, such as {odd!r}: correct it, or "
            "give the text for gaps by na_values."
        )


def _as_numbers(column: "pd.Series") -> np.ndarray:
    """Return a column as float64, gaps as NaN, or refuse it.

    Examples
    --------
    >>> import pandas as pd
    >>> _as_numbers(pd.Series([3, None, True], dtype=object)).tolist()
    [3.0, nan, 1.0]
    """
    import pandas as pd
    from pandas.api.types import is_numeric_dtype

    before = column
    if are_dates(column):
        raise FltnbError(f"Column {column.name} must hold numbers, not dates.")
    if not is_numeric_dtype(column):
        try:
            column = pd.to_numeric(column)
        except (TypeError, ValueError) as error:
            raise FltnbError(
                f"Column {column.name} must hold numbers only ({error}): correct it."
            ) from error
    known = column.notna().to_numpy()
    given = column[known].to_numpy()
    values = np.full(len(column), np.nan)
    values[known] = as_float64(given, f"Column {column.name}")
    _check_different(column.name, before[known].to_numpy(), values[known])
    return values


def _check_different(name: str, before: np.ndarray, values: np.ndarray) -> None:
    """Refuse numbers that differ only in digits that float64 does not have.

    float64 has 53 bits, so that 9007199254740993 becomes 9007199254740992. Only
    objects, such as Decimal, and longdouble need the count: NumPy's integers passed
    :func:`~fltnb.arrays.as_float64`, which refuses large ones.

    ``before``: the values of a column as they were given; ``values``: as float64.
    """
    if before.dtype.kind == "O":
        n_before = len(set(before))
    elif before.dtype.itemsize > values.dtype.itemsize:
        n_before = len(np.unique(before))
    else:
        return
    n_after = len(np.unique(values))
    if n_after < n_before:
        raise FltnbError(
            f"Column {name}: {n_before} different values become {n_after} as float64: "
            "take identifiers as text, or subtract the smallest."
        )


def _texts(column: "pd.Series") -> np.ndarray:
    """Return a column as text (n,), with gaps as a category.

    Blanks around a text do not make another category.

    Examples
    --------
    >>> import pandas as pd
    >>> _texts(pd.Series(["a", " a", None])).tolist()
    ['a', 'a', '(missing)']
    """
    filled = column.astype(object).where(column.notna(), MISSING)
    return np.array([str(value).strip() for value in filled], dtype=object)


def name_of(column: Any) -> str:
    """Return a column's name as text, without blanks around it.

    An accented letter may be stored as one character or as two, depending on the
    program that wrote the file. Names are brought to one form (NFC), so that a newcomer
    with another program has the same columns.
    """
    return unicodedata.normalize("NFC", str(column)).strip()


def named(table: "pd.DataFrame", what: str) -> "pd.DataFrame":
    """Return a table whose columns are called by :func:`name_of`, all different.

    FltnbError is raised if two columns have one name, or if names have several levels;
    ``what`` names the table in its message.
    """
    if table.columns.nlevels > 1:
        raise FltnbError(
            f"{what} has column names of several levels: join them to one text each."
        )
    names = [name_of(name) for name in table.columns]
    check_once(names, what)
    return table.set_axis(names, axis="columns")


def check_once(names: Sequence[str], what: str) -> None:
    """Refuse names that occur twice, because the meant column is not clear."""
    counts = Counter(names)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise FltnbError(
            f"{what} has the column(s) {some(twice)} more than once: rename or drop "
            "all but one."
        )
