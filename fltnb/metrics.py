"""What the papers report about a run, and two kinds of error that must not be mixed up.

FLT (Tables 1-4) prints, for the last round, the mean over clients of the accuracy in percent and its variance over
clients in percent squared ("fairness": smaller is fairer). Its "std. error" is the binomial error of the pooled
samples (:func:`binomial_error`), which says nothing about the scatter between runs; that is :func:`seed_spread`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .errors import FltnbError


def accuracy(correct: ArrayLike, total: ArrayLike) -> np.ndarray:
    """Accuracy of every client.

    Parameters
    ----------
    correct, total : array_like, shape (M,)
        Right predictions and samples of each client.

    Returns
    -------
    ndarray, shape (M,), float64
        Percent; NaN for a client without samples.

    Raises
    ------
    FltnbError
        The shapes differ, or a count is impossible.

    Examples
    --------
    >>> accuracy([9, 3], [10, 4])
    array([90., 75.])
    """
    correct, total = np.asarray(correct, dtype=np.float64), np.asarray(total, dtype=np.float64)
    if correct.shape != total.shape:
        raise FltnbError(
            f"correct has shape {correct.shape} but total has {total.shape}: give one count of each per client."
        )
    if not np.all((correct >= 0) & (correct <= total)):
        raise FltnbError("Each client's number of right predictions must lie between 0 and its number of samples.")
    return 100 * np.divide(correct, total, out=np.full(correct.shape, np.nan), where=total > 0)


def _known(accuracies: ArrayLike) -> np.ndarray:
    """Drop clients without samples: they have no accuracy, and a 0 would count as a failure."""
    values = np.asarray(accuracies, dtype=np.float64).ravel()
    return values[~np.isnan(values)]


def mean_accuracy(accuracies: ArrayLike) -> float:
    """Unweighted mean over clients, percent; clients with NaN are left out, NaN if none is left."""
    values = _known(accuracies)
    return float(values.mean()) if values.size else float("nan")


def micro_accuracy(correct: ArrayLike, total: ArrayLike) -> float:
    """Accuracy of all samples together, percent: a mean over clients weighted by their samples (FeSEM, Section 6.1)."""
    return float(accuracy(np.sum(correct), np.sum(total)))


def variance(accuracies: ArrayLike) -> float:
    """Variance over clients (division by M), percent squared: the papers' fairness."""
    values = _known(accuracies)
    return float(values.var()) if values.size else float("nan")


def worst(accuracies: ArrayLike) -> float:
    """Accuracy of the worst client, percent."""
    values = _known(accuracies)
    return float(values.min()) if values.size else float("nan")


def summary(correct: ArrayLike, total: ArrayLike) -> dict[str, float]:
    """Mean, variance and worst client of one evaluation.

    Parameters
    ----------
    correct, total : array_like, shape (M,)
        As in :func:`accuracy`.

    Returns
    -------
    dict
        ``accuracy`` (percent), ``variance`` (percent squared), ``worst`` (percent).
    """
    values = accuracy(correct, total)
    return {"accuracy": mean_accuracy(values), "variance": variance(values), "worst": worst(values)}


def binomial_error(accuracy_percent: ArrayLike, n: ArrayLike) -> float | np.ndarray:
    r"""Error that FLT prints beside an accuracy: :math:`100\sqrt{p (1 - p) / n}` with p the accuracy as a share.

    It treats the mean over clients as the accuracy on ``n`` independent images, where ``n`` counts the *distinct*
    images of the whole test (or training) set: 10,000 for MNIST, not the sum of the clients' shared test sets.
    Of the 144 errors printed in FLT's Tables 1, 2, 4, 5, 7, 8 and 10, 125 are this to the last digit and 8 more are
    within 0.01 of it.

    Parameters
    ----------
    accuracy_percent : float or array_like
        Percent, 0 to 100.
    n : int or array_like
        Pooled samples, at least 1; NaN gives NaN.

    Returns
    -------
    float or ndarray
        Percentage points.

    Examples
    --------
    >>> round(binomial_error(82.73, 10_000), 2)
    0.38
    """
    p, n = np.asarray(accuracy_percent, dtype=np.float64) / 100, np.asarray(n, dtype=np.float64)
    if np.any((p < 0) | (p > 1)):
        raise FltnbError("An accuracy for the binomial error must lie between 0 and 100 percent.")
    if np.any(n < 1):
        raise FltnbError("The binomial error needs at least one sample: n must be 1 or more.")
    error = 100 * np.sqrt(p * (1 - p) / n)
    return float(error) if error.ndim == 0 else error


def seed_spread(values: ArrayLike) -> float:
    """Sample standard deviation (n - 1) of one number over seeds; NaN for fewer than two seeds."""
    values = np.asarray(values, dtype=np.float64).ravel()
    return float(values.std(ddof=1)) if values.size > 1 else float("nan")


def adjusted_rand_index(true_labels: ArrayLike, found_labels: ArrayLike) -> float:
    """Agreement of two clusterings of the clients: 1 equal up to names, about 0 for chance.

    With a single true cluster it can only be 1 (one cluster found) or 0.
    """
    from sklearn.metrics import adjusted_rand_score

    true_labels, found_labels = np.asarray(true_labels).ravel(), np.asarray(found_labels).ravel()
    if true_labels.shape != found_labels.shape:
        raise FltnbError(
            f"The adjusted Rand index compares labels of the same clients, but there are {true_labels.size} true and"
            f" {found_labels.size} found ones."
        )
    return float(adjusted_rand_score(true_labels, found_labels))


def f1_micro(true_labels: ArrayLike, predicted_labels: ArrayLike) -> float:
    """F1 of the pooled samples, percent; for single-label classification this is the accuracy."""
    return _f1(true_labels, predicted_labels, "micro")


def f1_macro(true_labels: ArrayLike, predicted_labels: ArrayLike) -> float:
    """Plain mean over classes of the per-class F1, percent; a class that never occurs in either is left out."""
    return _f1(true_labels, predicted_labels, "macro")


def _f1(true_labels: ArrayLike, predicted_labels: ArrayLike, average: str) -> float:
    from sklearn.metrics import f1_score

    true_labels, predicted_labels = np.asarray(true_labels).ravel(), np.asarray(predicted_labels).ravel()
    if true_labels.shape != predicted_labels.shape or not true_labels.size:
        raise FltnbError(
            f"F1 needs one prediction per sample and at least one sample, but there are {true_labels.size} labels and"
            f" {predicted_labels.size} predictions."
        )
    return 100 * float(f1_score(true_labels, predicted_labels, average=average, zero_division=0.0))
