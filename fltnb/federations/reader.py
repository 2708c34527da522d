"""From a user's samples to the inputs of a federation's models, and back."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..arrays import as_array
from ..errors import FltnbError
from ..metrics import predicted
from . import folders
from .pixels import Layout, Scale, as_samples, to_inputs
from .preprocessing import TablePreprocessing, some
from .tables import WHOLE

if TYPE_CHECKING:
    from .base import Federation
    from .preprocessing import Preprocessing


def _are_files(rows: Any) -> bool:
    """Return whether new samples are given as a path, or as a list of paths."""
    if isinstance(rows, (str, Path)):
        return True
    listed = isinstance(rows, (list, tuple)) and len(rows) > 0
    return listed and all(isinstance(row, (str, Path)) for row in rows)


def named_classes(names: Sequence[str]) -> np.ndarray:
    """Return the names of classes (C,), whole numbers and truth values as such.

    So predictions can be compared with a table's own column, in which the classes 1 and
    2 are mostly numbers. A name that is not written as Python writes the number, such
    as 007, leaves all of them text.

    Examples
    --------
    >>> named_classes(["1", "2"]), named_classes(["False", "True"])
    (array([1, 2]), array([False,  True]))
    >>> named_classes(["07", "2"])
    array(['07', '2'], dtype=object)
    """
    texts = np.array(names, dtype=object)
    if set(names) <= {"False", "True"}:
        return texts == "True"
    if not all(WHOLE.fullmatch(name) for name in names):
        return texts
    whole = [int(name) for name in names]
    if [str(number) for number in whole] != list(names):
        return texts
    return np.array(whole)


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads new samples in the same way as the samples of a federation.

    Attributes
    ----------
    shape : tuple, of one sample: (d,), (H, W), (H, W, C), tokens (L,), sequences (L, D)
    pixels : bool, whether samples are uint8 pixels, scaled by ``mean`` and ``std``
    layout, mean, std, targets, class_names, preprocessing
        As for :class:`fltnb.Federation`.
    """

    shape: tuple[int, ...]
    pixels: bool
    layout: Layout
    mean: Scale
    std: Scale
    targets: str
    class_names: tuple[str, ...]
    preprocessing: "Preprocessing | None" = None

    @classmethod
    def of(cls, fed: "Federation") -> Self:
        """Return the reader of a federation's samples."""
        return cls(
            shape=fed.images.shape[1:],
            pixels=fed.images.dtype == np.uint8,
            layout=fed.layout,
            mean=fed.mean,
            std=fed.std,
            targets=fed.targets,
            class_names=tuple(fed.class_names),
            preprocessing=fed.preprocessing,
        )

    def inputs(self, rows: Any) -> np.ndarray:
        """Return the model inputs of new samples: float32 (n, C, H, W).

        Tokens and sequences are not changed.

        Parameters
        ----------
        rows : array (n, ...), DataFrame, or picture files
            Samples in the same layout as those of the federation. Rows of a table have
            their original columns, before the preprocessing. A path, or a list of
            paths, is read as ``Federation.from_folder`` reads pictures, transparent
            pixels as white.

        Raises
        ------
        FltnbError
            Their shape, type or columns differ, or a value is not finite.
        """
        if self.preprocessing is not None:
            rows = self.preprocessing.transform(rows)
        if _are_files(rows):
            rows = self._pictures(rows)
        rows = as_array(rows, "Samples")
        if rows.ndim == 0 or rows.shape[1:] != self.shape:
            one = " x ".join(map(str, self.shape))
            raise FltnbError(
                f"New samples must have the shape (n, {one}) of those the run was "
                f"trained on, not {rows.shape}."
            )
        if self.pixels != (rows.dtype == np.uint8):
            wanted = "uint8 pixels" if self.pixels else "floats or whole numbers"
            raise FltnbError(
                f"New samples must be {wanted}, as those on which the run was trained, "
                f"not {rows.dtype}."
            )
        if len(rows) == 0:
            raise FltnbError("There are no samples: give one or more.")
        rows = as_samples(rows, self.layout)
        if self.layout != "pictures":
            return rows
        return to_inputs(rows, self.mean, self.std)

    def _pictures(self, files: Any) -> np.ndarray:
        """Return picture files as pixels (n, H, H[, C]), or refuse them."""
        square = self.pixels and len(self.shape) > 1 and self.shape[0] == self.shape[1]
        if not square:
            raise FltnbError(
                "New samples are files, and this run was not trained on square "
                "pictures: give arrays or a DataFrame."
            )
        given = [files] if isinstance(files, (str, Path)) else files
        paths = [Path(file).expanduser() for file in given]
        missing = [str(path) for path in paths if not path.is_file()]
        if missing:
            raise FltnbError(
                f"There is no file {some(missing)}: check names and folder."
            )
        mode = "RGB" if len(self.shape) == 3 else "L"
        return folders.read(paths, self.shape[0], mode)

    def answers(self, scores: np.ndarray) -> np.ndarray:
        """Return the predictions (n,) from a model's outputs (n, C), or (n, 1).

        Classes are given by name (:func:`named_classes`); if numbers are predicted,
        these are float32.
        """
        if self.targets == "values":
            return scores[:, 0]
        return named_classes(self.class_names)[predicted(scores)]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON; :meth:`from_dict` makes it again.

        Raises FltnbError if the preprocessing is a user's own transformer.
        """
        content = asdict(replace(self, preprocessing=None))
        if self.preprocessing is not None:
            content["preprocessing"] = self.preprocessing.to_dict()
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Make it again from the result of :meth:`to_dict`."""
        fields = dict(content)
        kept = fields.pop("preprocessing", None)
        if kept is not None:
            kept = TablePreprocessing.from_dict(kept)
        for name, value in fields.items():
            if isinstance(value, list):
                fields[name] = tuple(value)
        return cls(**fields, preprocessing=kept)
