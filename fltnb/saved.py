"""A run in a folder: its models, its numbers, and how new samples are read.

Everything is plain: ``models.safetensors`` has the tensors of model k under the names
of its module, each after ``k.``; ``run.json`` has the rest, and two CSV files history
and clients. No pickle is written or read, so a folder from elsewhere runs no code.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .errors import FltnbError
from .federations.reader import Reader

if TYPE_CHECKING:
    from .models import Model
    from .record import Run

FORMAT = 1
RUN = "run.json"
WEIGHTS = "models.safetensors"
HISTORY = "history.csv"
CLIENTS = "clients.csv"


def write(run: "Run", folder: str | Path) -> Path:
    """Write a run into a new folder, and return its path.

    Raises
    ------
    FltnbError
        The folder exists already or cannot be written; the run does not know its
        network; its preprocessing is your own transformer.
    """
    from safetensors.numpy import save as packed

    folder = _path(folder)
    if folder.exists():
        raise FltnbError(f"{folder} exists already: name a new folder.")
    if run.model is None or run.reader is None:
        raise FltnbError(
            "This run does not know its network: save what fl.run returned."
        )
    weights = packed(_tensors(run.model, run.theta))
    labels_at = {key: _listed(value) for key, value in run.labels_at.items()}
    about = {
        "format": FORMAT,
        "model": _described(run.model),
        "settings": run.settings,
        "reader": run.reader.to_dict(),
        "owners": list(run.names),  # so called in format 1
        "rows": run.rows.tolist(),
        "labels": _listed(run.labels),
        "labels_at": labels_at,
        "confusion": _listed(run.confusion),
        "seconds": run.seconds,
        "stopped": run.stopped,
        "sha256": hashlib.sha256(weights).hexdigest(),
    }
    text = json.dumps(about, indent=1)

    # A folder gets its name last, so one that has it is whole.
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        # one of a killed process that had the same number may be there
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        (draft / WEIGHTS).write_bytes(weights)
        (draft / RUN).write_text(text, encoding="utf-8")
        run.history.to_csv(draft / HISTORY, index=False)
        run.clients.to_csv(draft / CLIENTS, index=False)
        draft.replace(folder)
    except OSError as error:
        why = error.strerror or error
        raise FltnbError(
            f"Cannot write {folder} ({why}): fix that, or name another folder."
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def read(folder: str | Path, model: Any = None) -> dict[str, Any]:
    """Return the fields of the run that :func:`write` wrote.

    Parameters
    ----------
    folder : path
    model : nn.Module or function, optional
        For a run with your own network: as it was given to :func:`fltnb.run`,
        since code is not saved.

    Raises
    ------
    FltnbError
        There is no run in the folder, it is damaged or of a newer version, or the
        network is another one.
    """
    folder = _path(folder)
    about = _about(folder)
    try:
        net = _network(about["model"], model, folder)
        weights = _weights(folder, about["sha256"])
        labels_at = {}
        for round, value in about["labels_at"].items():
            labels_at[int(round)] = _array(value)  # keys of JSON are texts
        fields = {
            "history": _table(folder / HISTORY),
            "clients": _table(folder / CLIENTS),
            "labels": _array(about["labels"]),
            "theta": _theta(net, weights, folder),
            "rows": _array(about["rows"]),
            "settings": about["settings"],
            "seconds": about["seconds"],
            "stopped": about["stopped"],
            "labels_at": labels_at,
            "confusion": _array(about["confusion"]),
            "model": net,
            "reader": Reader.from_dict(about["reader"]),
            "names": tuple(about["owners"]),
        }
        _check_clients(fields)
    except (OSError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, FltnbError):
            raise
        raise _damaged(folder, error) from error
    return fields


def _path(folder: Any) -> Path:
    """Return the path of a folder, or refuse what is none."""
    if not isinstance(folder, (str, Path)):
        raise FltnbError(f"folder must be a path, not {folder!r}: name a folder.")
    return Path(folder).expanduser()


def _check_clients(fields: dict[str, Any]) -> None:
    """Refuse (ValueError) parts of another form, or of other clients and models."""
    rows = fields["rows"]
    if rows is None or rows.ndim != 1:
        raise ValueError("there is not one model for each client")
    if not isinstance(fields["settings"], dict):
        raise ValueError("there are no settings")
    if not {"round", "split"} <= set(fields["history"]):
        raise ValueError(f"{HISTORY} has no rounds")
    n_models = len(fields["theta"])
    if rows.size and not 0 <= rows.min() <= rows.max() < n_models:
        raise ValueError(f"there are {n_models} models, not {rows.max()}")
    for name in ("names", "labels", "clients"):
        part = fields[name]
        if part is not None and len(part) not in (0, len(rows)):
            raise ValueError(f"{name} are {len(part)}, not {len(rows)}")


def _about(folder: Path) -> dict[str, Any]:
    """Return the content of the JSON file of a run, or say what is wrong with it."""
    file = folder / RUN
    if not file.is_file():
        raise FltnbError(
            f"There is no run in {folder}: name the folder that run.save(...) wrote."
        )
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        version = about["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, error) from error
    if version != FORMAT:
        raise FltnbError(
            f"The run in {folder} has format {version}, and this fltnb reads format "
            f"{FORMAT}: update the package."
        )
    return about


def _damaged(folder: Path, error: Exception) -> FltnbError:
    """Return the error for a damaged folder."""
    return FltnbError(
        f"The run in {folder} is damaged ({error!r}): copy it again, or train anew."
    )


def _tensors(model: "Model", theta: np.ndarray) -> dict[str, np.ndarray]:
    """Return the tensors of all models (K, P), named as in the module after ``k.``."""
    tensors = {}
    begins = np.cumsum(model.sizes)[:-1]  # of all tensors but the first
    for k, row in enumerate(theta):
        parts = np.split(row, begins)
        for (name, shape), part in zip(model.shapes, parts, strict=True):
            tensors[f"{k}.{name}"] = np.ascontiguousarray(part.reshape(shape))
    return tensors


def _weights(folder: Path, digest: str) -> dict[str, np.ndarray]:
    """Return the tensors of a folder, after a check of their digest in the JSON file.

    Raises
    ------
    ValueError
        The file is another one or cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as unpacked

    content = (folder / WEIGHTS).read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"{WEIGHTS} is not the file that was saved")
    try:
        return unpacked(content)
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def _theta(model: "Model", tensors: dict[str, np.ndarray], folder: Path) -> np.ndarray:
    """Return the models as rows (K, P).

    Raises
    ------
    FltnbError
        The tensors are those of another network.
    """
    numbers = {name.partition(".")[0] for name in tensors}
    n_models = len(numbers)
    rows = []
    for k in range(n_models):
        parts = []
        for name, shape in model.shapes:
            part = tensors.get(f"{k}.{name}")
            if part is None or part.shape != tuple(shape):
                raise _another(model.name, folder)
            parts.append(part.ravel())
        rows.append(np.concatenate(parts))
    return np.stack(rows)


def _another(name: str, folder: Path) -> FltnbError:
    """Return the error for a network that differs from the run's."""
    return FltnbError(
        f"{name} is not the network of the run in {folder}: its layers differ; give "
        "the one that was trained."
    )


def _described(model: "Model") -> dict[str, Any]:
    """Return what a network is made of, or what one's own is recognised by."""
    from . import models

    return {
        "name": model.name,
        "own": isinstance(model, models.OwnModel),
        "tokens": getattr(model, "tokens", False),
        "input_shape": list(model.input_shape),
        "n_outputs": model.n_classes,
        "shapes": [[name, list(shape)] for name, shape in model.shapes],
    }


def _network(saved: dict[str, Any], given: Any, folder: Path) -> "Model":
    """Make the network of a run again."""
    from . import models

    shape = tuple(saved["input_shape"])
    if not saved["own"]:
        if given is not None:
            raise FltnbError(
                f"The run in {folder} has fltnb's network {saved['name']}: leave model "
                "out."
            )
        return models.make(saved["name"], shape, saved["n_outputs"])
    tokens = saved["tokens"]
    if given is None:
        raise FltnbError(
            f"The run in {folder} was trained with your own network {saved['name']}, "
            "whose code is not saved: give it, fl.Run.load(folder, model=...)."
        )
    model = models.OwnModel.again(given, shape, saved["n_outputs"], tokens)
    shapes = [[name, list(shape)] for name, shape in model.shapes]
    if shapes != saved["shapes"]:
        raise _another(model.name, folder)
    return model


def _table(file: Path) -> pd.DataFrame:
    """Read history or clients."""
    # a client may be called NA
    return pd.read_csv(file, dtype={"name": str}, keep_default_na=False, na_values=[""])


def _listed(array: np.ndarray | None) -> list | None:
    """Return an array in the form of JSON."""
    if array is None:
        return None
    return array.tolist()


def _array(values: list | None) -> np.ndarray | None:
    """Undo :func:`_listed`, as int64."""
    if values is None:
        return None
    return np.array(values, dtype=np.int64)
