"""The measures that the papers report about a run, and estimates of their error.

FLT (Tables 1-4) prints, for the last round, the mean over clients of the accuracy in
percent and its variance over clients in percent squared ("fairness": smaller is
fairer). Its "std. error" is the binomial error of the n pooled samples, 100 sqrt(p (1 -
p) / n) for an accuracy p, which says nothing about the scatter between runs; that is
:func:`seed_spread`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .errors import FltnbError
from .randomness import stream

if TYPE_CHECKING:
    import pandas as pd


def accuracy(correct: ArrayLike, total: ArrayLike) -> np.ndarray:
    """Return the accuracy of every client in percent.

    Parameters
    ----------
    correct, total : array (M,)
        Each client's correct predictions, and its samples.

    Returns
    -------
    array (M,)
        It is NaN for a client without samples.

    Raises
    ------
    FltnbError
        The shapes differ, or a count is impossible.

    Examples
    --------
    >>> accuracy([9, 3], [10, 4])
    array([90., 75.])
    """
    correct = np.asarray(correct, dtype=np.float64)
    total = np.asarray(total, dtype=np.float64)
    if correct.shape != total.shape:
        raise FltnbError(
            f"correct has shape {correct.shape} but total {total.shape}: "
            "give one of each per client."
        )
    if not np.all((correct >= 0) & (correct <= total)):
        raise FltnbError(
            "A client's number of correct predictions is negative or larger than its "
            "number of samples: check that correct and total are in this order."
        )
    share = np.full(correct.shape, np.nan)
    return 100 * np.divide(correct, total, out=share, where=total > 0)


def _over_clients(
    statistic: Callable[[np.ndarray], float], accuracies: ArrayLike
) -> float:
    """Return a statistic of the clients' accuracies, NaN if there is none."""
    # clients without samples have no accuracy, and a 0 would count as a failure
    values = np.asarray(accuracies, dtype=np.float64).ravel()
    values = values[~np.isnan(values)]
    return float(statistic(values)) if values.size else float("nan")


def mean_accuracy(accuracies: ArrayLike) -> float:
    """Return the unweighted mean over clients of their accuracies (M,), percent.

    Clients with NaN are left out.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.metrics.mean_accuracy([80.0, 90.0])
    85.0
    """
    return _over_clients(np.mean, accuracies)


def micro_accuracy(correct: ArrayLike, total: ArrayLike) -> float:
    """Return the accuracy of all samples together, percent (FeSEM, Section 6.1).

    This is the mean over clients weighted by their samples. ``correct, total``: (M,),
    as for :func:`accuracy`.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.metrics.micro_accuracy(correct=[8, 90], total=[10, 100])
    89.0909090909091
    """
    return float(accuracy(np.sum(correct), np.sum(total)))


def means_over_clients(
    correct: ArrayLike, total: ArrayLike, seed: int = 0, draws: int = 2000
) -> "pd.DataFrame":
    """Return two means of an accuracy, with 95 % bootstrap intervals over clients.

    Clients are resampled with replacement; the ends of an interval are the percentiles
    2.5 and 97.5.

    Parameters
    ----------
    correct, total : array-like (M,)
        Correct predictions and samples of every client; all have samples.
    seed, draws : int
        Seed and number of bootstrap samples.

    Returns
    -------
    DataFrame
        Rows "mean of clients" and "mean of samples"; columns ``accuracy, low, high`` in
        percent.

    Examples
    --------
    >>> import fltnb as fl
    >>> table = fl.metrics.means_over_clients(correct=[8, 90], total=[10, 100])
    >>> table["accuracy"].round(1).to_dict()
    {'mean of clients': 85.0, 'mean of samples': 89.1}
    """
    import pandas as pd

    correct = np.asarray(correct, dtype=np.float64)
    total = np.asarray(total, dtype=np.float64)
    n_clients = len(total)
    rng = stream(seed, "resampling")
    drawn = rng.integers(n_clients, size=(draws, n_clients))
    by_client = (100 * correct / total)[drawn].mean(axis=1)
    n_correct = correct[drawn].sum(axis=1)
    n_total = total[drawn].sum(axis=1)
    by_sample = 100 * n_correct / n_total
    rows = {
        "mean of clients": (100 * np.mean(correct / total), by_client),
        "mean of samples": (100 * correct.sum() / total.sum(), by_sample),
    }
    table = {}
    for name, (mean, resampled) in rows.items():
        low, high = np.percentile(resampled, [2.5, 97.5])
        table[name] = {"accuracy": mean, "low": low, "high": high}
    return pd.DataFrame(table).T


def variance(accuracies: ArrayLike) -> float:
    """Return the population variance over clients, percent squared: "fairness" in FLT.

    ``accuracies`` (M,) are in percent. The sum of squares is divided by the number of
    clients; clients with NaN are left out.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.metrics.variance([80.0, 90.0])
    25.0
    """
    return _over_clients(np.var, accuracies)


def worst(accuracies: ArrayLike) -> float:
    """Return the lowest of the clients' accuracies (M,), percent, that of the worst.

    Clients with NaN are left out.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.metrics.worst([80.0, 90.0])
    80.0
    """
    return _over_clients(np.min, accuracies)


def summary(correct: ArrayLike, total: ArrayLike) -> dict[str, float]:
    """Return ``accuracy, micro, variance, worst`` of one evaluation, over clients.

    They are those of :func:`mean_accuracy`, :func:`micro_accuracy`, :func:`variance`
    and :func:`worst`; the arguments are those of :func:`accuracy`.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.metrics.summary(correct=[8, 90], total=[10, 100])
    {'accuracy': 85.0, 'micro': 89.0909090909091, 'variance': 25.0, 'worst': 80.0}
    """
    values = accuracy(correct, total)
    return {
        "accuracy": mean_accuracy(values),
        "micro": micro_accuracy(correct, total),
        "variance": variance(values),
        "worst": worst(values),
    }


def spread(values: ArrayLike) -> float:
    """Return the total sum of squares: squared distances from the mean, summed.

    ``values`` (n,): the numbers to predict; the result is 0.0 if there are none.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.metrics.spread([1.0, 2.0, 3.0])
    2.0
    """
    values = np.asarray(values, dtype=np.float64)
    return float(((values - values.mean()) ** 2).sum()) if values.size else 0.0


def r2(squared: ArrayLike, spreads: ArrayLike) -> np.ndarray:
    """Return the coefficient of determination R2 of every client (M,), at most 1.

    It is 1 - squared error / spread, as scikit-learn's ``r2_score``; NaN if all numbers
    of a client are equal. ``squared`` (M,): squared errors, summed over a client's
    samples; ``spreads`` (M,): :func:`spread` of its numbers.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.metrics.r2(squared=[1.0, 2.0], spreads=[4.0, 2.0]).tolist()
    [0.75, 0.0]
    """
    squared = np.asarray(squared, dtype=np.float64)
    spreads = np.asarray(spreads, dtype=np.float64)
    share = np.full(squared.shape, np.nan)
    return 1 - np.divide(squared, spreads, out=share, where=spreads > 0)


def r2_summary(
    squared: ArrayLike, spreads: ArrayLike, total: ArrayLike, pooled: float
) -> dict[str, float]:
    """Return ``r2, r2_pooled, r2_worst, rmse`` of one evaluation.

    In this order: the mean R2 over clients, R2 of all samples together, the R2 of the
    worst client, and the root mean squared error of all samples.

    Parameters
    ----------
    squared, spreads : array-like (M,)
        As for :func:`r2`.
    total : array-like (M,)
        Number of samples of each client.
    pooled : float
        :func:`spread` of all samples together.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.metrics.r2_summary([1.0, 2.0], [4.0, 2.0], total=[6, 6], pooled=12.0)
    {'r2': 0.375, 'r2_pooled': 0.75, 'r2_worst': 0.0, 'rmse': 0.5}
    """
    values = r2(squared, spreads)
    everything = float(np.sum(squared))
    return {
        "r2": mean_accuracy(values),
        "r2_pooled": float(r2([everything], [pooled])[0]),
        "r2_worst": worst(values),
        "rmse": (everything / max(int(np.sum(total)), 1)) ** 0.5,
    }


def predicted(outputs: np.ndarray) -> np.ndarray:
    """Return the predicted classes (n,), int64, of a network's outputs (n, C).

    This is the class with the largest output; with one output (two classes), it is 1 if
    the output is positive, else 0.

    Examples
    --------
    >>> import fltnb as fl
    >>> import numpy as np
    >>> fl.metrics.predicted(np.array([[0.1, 2.0, 0.3], [5.0, 1.0, 0.0]])).tolist()
    [1, 0]
    """
    if outputs.shape[1] == 1:
        return (outputs[:, 0] > 0).astype(np.int64)
    return outputs.argmax(axis=1)


def class_scores(targets: np.ndarray, outputs: np.ndarray) -> dict[str, float]:
    """Return ``accuracy, f1`` (percent) and ``auc`` (0 to 1) of a network's outputs.

    They are computed by scikit-learn, as :meth:`fltnb.record.Run.evaluate` says; NaN
    where they are not defined. ``targets`` (n,): true classes; ``outputs`` (n, C), or
    (n, 1) for two classes.

    Examples
    --------
    >>> import fltnb as fl
    >>> import numpy as np
    >>> outputs = np.array([[2.0, 0.0], [0.0, 2.0], [1.0, 0.0], [0.0, 1.0]])
    >>> fl.metrics.class_scores(np.array([0, 1, 0, 1]), outputs)
    {'accuracy': 100.0, 'f1': 100.0, 'auc': 1.0}
    """
    from sklearn.metrics import accuracy_score, f1_score

    if not len(targets):
        return dict.fromkeys(("accuracy", "f1", "auc"), float("nan"))
    found = predicted(outputs)
    average = "binary" if outputs.shape[1] <= 2 else "macro"
    f1 = f1_score(targets, found, average=average, zero_division=0.0)
    return {
        "accuracy": 100 * float(accuracy_score(targets, found)),
        "f1": 100 * float(f1),
        "auc": _auc(targets, outputs),
    }


def _auc(targets: np.ndarray, outputs: np.ndarray) -> float:
    """Return the area under the ROC curve; of several classes, the mean one-vs-rest.

    ``targets`` (n,); ``outputs`` (n, K). A class is left out if no sample or every
    sample is of it. Of two classes only the second one counts, by the difference of
    both outputs: the first one's curve has the same area. NaN if an output is not
    finite.
    """
    from scipy.special import softmax
    from sklearn.metrics import roc_auc_score

    if not np.isfinite(outputs).all():  # of a network that diverged
        return float("nan")
    if outputs.shape[1] == 1:
        certainty = {1: outputs[:, 0]}
    elif outputs.shape[1] == 2:
        certainty = {1: outputs[:, 1] - outputs[:, 0]}
    else:
        certainty = dict(enumerate(softmax(outputs, axis=1).T))
    areas = []
    for label, shares in certainty.items():
        truth = targets == label
        if truth.any() and not truth.all():
            areas.append(roc_auc_score(truth, shares))
    return float(np.mean(areas)) if areas else float("nan")


def value_scores(targets: np.ndarray, outputs: np.ndarray) -> dict[str, float]:
    """Return ``r2, rmse`` of predictions, computed by scikit-learn.

    ``targets`` (n,): true numbers; ``outputs`` (n, 1): predicted ones. R2 is NaN if all
    targets are equal; both are NaN without samples, or if a prediction is not finite.

    Examples
    --------
    >>> import fltnb as fl
    >>> import numpy as np
    >>> fl.metrics.value_scores(np.array([1.0, 3.0]), np.array([[2.0], [2.0]]))
    {'r2': 0.0, 'rmse': 1.0}
    """
    from sklearn.metrics import r2_score, root_mean_squared_error

    scores = {"r2": float("nan"), "rmse": float("nan")}
    if not np.isfinite(outputs).all():
        return scores
    if len(targets):
        scores["rmse"] = float(root_mean_squared_error(targets, outputs[:, 0]))
    if spread(targets) > 0:
        scores["r2"] = float(r2_score(targets, outputs[:, 0]))
    return scores


def seed_spread(values: ArrayLike) -> float:
    """Return the sample standard deviation of ``values``, one per seed; NaN for one.

    The sum of squares is divided by n - 1.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.metrics.seed_spread([80.0, 82.0, 84.0])
    2.0
    """
    values = np.asarray(values, dtype=np.float64).ravel()
    return float(values.std(ddof=1)) if values.size > 1 else float("nan")


def adjusted_rand_index(true_labels: ArrayLike, found_labels: ArrayLike) -> float:
    """Return the adjusted Rand index of two clusterings of the same M clients.

    It is 1 if they are equal up to the names of the clusters, and about 0 if they agree
    by chance. With a single true cluster it is 1 or 0.

    Parameters
    ----------
    true_labels, found_labels : array-like (M,)
        Cluster of each client.

    Raises
    ------
    FltnbError
        There are not as many true labels as found ones.

    Examples
    --------
    >>> import fltnb as fl
    >>> fl.metrics.adjusted_rand_index([0, 0, 1, 1], [5, 5, 2, 2])
    1.0
    """
    from sklearn.metrics import adjusted_rand_score

    true = np.asarray(true_labels).ravel()
    found = np.asarray(found_labels).ravel()
    if true.shape != found.shape:
        raise FltnbError(
            f"There are {true.size} true labels and {found.size} found ones: give both "
            "for the same clients."
        )
    return float(adjusted_rand_score(true, found))


def f1_summary(confusion: np.ndarray) -> dict[str, float]:
    """Return ``micro_f1, macro_f1, pooled_f1`` in percent, of confusion matrices.

    F1 of a class is ``2 TP / (samples of the class + predictions of the class)``, as in
    scikit-learn. A client's F1 is the unweighted mean over the classes that occur in
    its samples or predictions. Micro: mean over clients weighted by samples; macro:
    unweighted mean over clients; pooled: all samples together, mean over all C classes
    (0 for a class that does not occur). Clients without samples are left out; if all
    are, the values are NaN. FeSEM (Table 2) gives no formula;
    ``docs/differences/fesem.md`` says which definition fits which row.

    Parameters
    ----------
    confusion : int array (M, C, C)
        True classes as rows, predicted ones as columns
        (:func:`fltnb.record.confusion`).

    Raises
    ------
    FltnbError
        The array has another shape.

    Examples
    --------
    >>> counts = np.array([[[9, 1], [0, 10]], [[1, 1], [0, 0]]])
    >>> {name: round(f1, 1) for name, f1 in f1_summary(counts).items()}
    {'micro_f1': 89.4, 'macro_f1': 64.2, 'pooled_f1': 90.9}
    """
    confusion = np.asarray(confusion)
    if confusion.ndim != 3 or confusion.shape[1] != confusion.shape[2]:
        raise FltnbError(
            "f1_summary needs one confusion matrix per client, an array of shape "
            f"(M, C, C), not {confusion.shape}."
        )
    tested = confusion[confusion.any(axis=(1, 2))]
    if not len(tested):  # no client has a test sample
        return dict.fromkeys(("micro_f1", "macro_f1", "pooled_f1"), float("nan"))
    summed, occurring = _summed_f1(tested)
    each = np.divide(summed, occurring)
    micro = np.average(each, weights=tested.sum(axis=(1, 2)))
    pooled, _ = _summed_f1(tested.sum(axis=0))
    return {
        "micro_f1": float(micro),
        "macro_f1": float(each.mean()),
        "pooled_f1": float(pooled / tested.shape[1]),
    }


def _summed_f1(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of F1 over all classes, and the number of classes that occur."""
    hits = np.diagonal(counts, axis1=-2, axis2=-1)
    # F1 = 2 hits / (samples of a class + samples that were taken for it)
    both = counts.sum(axis=-1) + counts.sum(axis=-2)
    occurs = both > 0
    nothing = np.zeros(hits.shape)
    score = np.divide(2.0 * hits, both, out=nothing, where=occurs)
    return 100 * score.sum(axis=-1), occurs.sum(axis=-1)
