"""Confusion matrices of the clients, and the accuracies and F1 scores that FeSEM's tables print.

Everything rests on one array: ``confusion[i, t, p]`` is the number of client i's samples of class t that were taken
for class p. F1 of a class is ``2 tp / (truly + predicted)``, as in scikit-learn; a client's F1 is the plain mean over
classes (*which* classes is an option), and the clients' F1 are averaged as FeSEM says: "micro" weighs a client by its
samples, "macro" does not. "pooled" adds up all clients' matrices first.

Which definition explains FeSEM's Table 2
-----------------------------------------
The paper gives no formula. Its macro F1 lies far below its macro accuracy (NoFed 51.0 against 81.3, FedAvg 45.4 against
84.9). Drawn writers with FEMNIST's sizes (a test set of 45 images holds 25 of the 62 classes) show what can be meant:

* Per client over all 62 classes, absent ones as 0, F1 is below 25 / 62 = 40 % even without an error.
* Per client over the classes that occur there, in truth or prediction, weighted by size: a model that knows all but
  the 30 rarest classes (13 % of the images), and those to 99 %, has accuracy 86 and F1 70. FedAvg's printed *micro* F1
  is 67.9 at 84.9. Without the weights it is the same within a point, as in the paper's rows for Robust, FedCluster,
  HypoCluster and FedDANE (53.1 and 53.6, 64.3 and 64.4, 61.3 and 61.6, 31.8 and 31.7).
* Over all 62 classes of the pooled matrix, the same model has 47: FedAvg's printed *macro* F1 is 45.4.

Trained networks show the same gap: FedAvg (one hidden layer, 30 rounds) on 30 clients with EMNIST's 62 classes reached
a micro accuracy of 64, a micro F1 of 48 and a pooled F1 of 31; per client over all 62 classes, 22.

So micro F1 is ``average="micro", classes="present"``, and the low macro F1 is most likely ``average="pooled",
classes="all"``, which the rare classes pull down. No definition fits all rows: for the four named above macro F1 must
be ``average="macro", classes="present"``, and none explains CelebA's 54.2 beside an accuracy of 86.1 (two classes,
about as many of each).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .errors import FltnbError, choose

if TYPE_CHECKING:
    from .federations import Federation
    from .models import Model

AVERAGES = ("micro", "macro", "pooled")
CLASSES = ("present", "all")


def confusion(
    model: Model,
    theta: np.ndarray,
    rows: Sequence[int],
    fed: Federation,
    split: str = "test",
    device: str = "auto",
) -> np.ndarray:
    """Count what every client's samples are taken for.

    Parameters
    ----------
    model : Model
    theta : array (K, P)
        Models, as a :class:`fltnb.rounds.Run` holds them at its end.
    rows : array (M,)
        Client i is served by ``theta[rows[i]]``.
    fed : Federation
    split : {"test", "val", "train", "probe"}
    device : {"auto", "cpu", "cuda"}
        "auto": a GPU where there is one.

    Returns
    -------
    ndarray of int64, shape (M, C, C)
        Classes as rows, predictions as columns; zeros for a client without samples.

    Raises
    ------
    FltnbError
        Unknown split, or models or rows that do not fit.
    """
    import torch

    from .training.contract import SPLITS
    from .training.evaluation import SLICE, same_sets
    from .training.serial import one_thread

    choose(split, SPLITS, "split")
    choose(device, ("auto", "cpu", "cuda"), "device")
    theta, rows = np.asarray(theta), np.asarray(rows)
    if theta.ndim != 2 or theta.shape[1] != model.n_parameters or rows.shape != (fed.n_clients,):
        raise FltnbError(
            f"Confusion matrices need theta of shape (K, {model.n_parameters}) and {fed.n_clients} rows, one per"
            f" client, not {theta.shape} and {rows.shape}."
        )
    if len(rows) and not (rows.min() >= 0 and rows.max() < len(theta)):
        raise FltnbError(f"rows must lie between 0 and {len(theta) - 1}, not {rows.min()} to {rows.max()}.")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    parts, C = getattr(fed, split), model.n_classes
    out = np.zeros((fed.n_clients, C, C), dtype=np.int64)
    done: dict[tuple[int, int], int] = {}
    with torch.inference_mode(), one_thread():
        for client, key in enumerate(zip(rows.tolist(), same_sets(parts), strict=True)):
            if key in done:
                out[client] = out[done[key]]
                continue
            done[key] = client
            params = [part.to(device) for part in model.unflatten(np.array(theta[key[0]]))]
            for begin in range(0, len(parts[client]), SLICE):
                index = parts[client][begin : begin + SLICE]
                x = torch.from_numpy(fed.inputs(index)).to(device, params[0].dtype)
                predicted = model.forward(params, x).argmax(1).cpu().numpy()
                np.add.at(out[client], (fed.labels[index], predicted), 1)
    return out


def accuracy(confusion: np.ndarray, average: str = "macro") -> float:
    """Accuracy in percent: "macro" is the plain mean over clients, "micro" weighs them by samples, as "pooled" does.

    Parameters
    ----------
    confusion : array (M, C, C), or (C, C) for one client
    average : {"micro", "macro", "pooled"}

    Examples
    --------
    >>> two = [[[9, 1], [0, 10]], [[1, 1], [0, 0]]]
    >>> round(accuracy(two, "micro"), 1), round(accuracy(two, "macro"), 1)
    (90.9, 72.5)
    """
    counts = _counts(confusion, average)
    n = counts.sum(axis=(1, 2))
    right = np.trace(counts, axis1=1, axis2=2)
    return _mean(np.divide(100.0 * right, n, out=np.full(len(n), np.nan), where=n > 0), n, average)


def f1(confusion: np.ndarray, average: str = "macro", classes: str = "present") -> float:
    """F1 score in percent.

    Parameters
    ----------
    confusion : array (M, C, C), or (C, C) for one client
    average : {"micro", "macro", "pooled"}
        Mean of the clients' F1 weighted by samples; plain mean; F1 of all samples together.
    classes : {"present", "all"}
        Classes whose F1 a client's is the mean of: those that occur in its samples or in its predictions
        (scikit-learn's ``f1_score(..., average="macro")``), or all C, with 0 for one that does not occur.

    Returns
    -------
    float
        Clients without samples are left out; NaN if none is left.

    Raises
    ------
    FltnbError
        No confusion matrices of at least two classes, or an unknown option.

    Warns
    -----
    RuntimeWarning
        Clients whose samples are all of one class. Over the classes present their F1 is 100 without an error and at
        most 50 with one, over all C classes at most 100 / C: the mean then says much about who holds what.

    Examples
    --------
    >>> two = [[[9, 1], [0, 10]], [[1, 1], [0, 0]]]
    >>> [round(f1(two, average), 1) for average in ("micro", "macro", "pooled")]
    [89.4, 64.2, 90.9]
    """
    counts = _counts(confusion, average)
    choose(classes, CLASSES, "choice of classes")
    truly, predicted = counts.sum(axis=2), counts.sum(axis=1)
    both = truly + predicted
    hits = np.diagonal(counts, axis1=1, axis2=2)
    score = np.divide(2.0 * hits, both, out=np.zeros(hits.shape), where=both > 0)
    n, found = truly.sum(axis=1), (both > 0).sum(axis=1)
    single = (truly > 0).sum(axis=1) == 1
    if average != "pooled" and single.any():
        warnings.warn(
            f"{single.sum()} of {len(n)} clients, client {int(single.argmax())} first, hold samples of a single class:"
            " their F1 is all or next to nothing, so look at the pooled F1 or the accuracy as well.",
            RuntimeWarning,
            stacklevel=2,
        )
    of = found if classes == "present" else np.full(len(n), counts.shape[1])
    return _mean(np.divide(100 * score.sum(axis=1), of, out=np.full(len(n), np.nan), where=n > 0), n, average)


def summary(confusion: np.ndarray) -> dict[str, float]:
    """Return the numbers of FeSEM's tables, percent.

    Returns
    -------
    dict
        ``micro_accuracy, micro_f1, macro_accuracy, macro_f1``: over clients, F1 over the classes present;
        ``pooled_f1``: over all classes of the pooled matrix, what the paper's low macro F1 most likely is.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the pooled F1 stands beside the other two
        return {
            "micro_accuracy": accuracy(confusion, "micro"),
            "micro_f1": f1(confusion, "micro"),
            "macro_accuracy": accuracy(confusion, "macro"),
            "macro_f1": f1(confusion, "macro"),
            "pooled_f1": f1(confusion, "pooled", "all"),
        }


def _counts(confusion: np.ndarray, average: str) -> np.ndarray:
    """Confusion matrices (M, C, C) as asked for: one for all clients where they are pooled."""
    choose(average, AVERAGES, "average over clients")
    counts = np.asarray(confusion)
    counts = counts[None] if counts.ndim == 2 else counts
    if counts.ndim != 3 or counts.shape[1] != counts.shape[2] or counts.shape[1] < 2:
        raise FltnbError(
            "Scores of confusion matrices need an array (clients, C, C) of at least C = 2 classes, not"
            f" {np.shape(confusion)}."
        )
    if counts.dtype.kind not in "iu" or (counts < 0).any():
        raise FltnbError("Confusion matrices hold numbers of samples: whole numbers of at least 0.")
    return counts.sum(axis=0, keepdims=True) if average == "pooled" else counts


def _mean(values: np.ndarray, n: np.ndarray, average: str) -> float:
    """Mean over the clients that have samples."""
    there = n > 0
    if not there.any():
        return float("nan")
    return float(np.average(values[there], weights=n[there] if average == "micro" else None))
