"""Metrics against hand-worked numbers, against scikit-learn, and against the errors
that FLT printed.
"""

import json
import math

import numpy as np
import pytest
from toys import refused

from fltnb import metrics, papers
from fltnb.errors import FltnbError


def test_metrics_by_hand(recwarn):
    correct, total = [9, 3, 10], [10, 4, 20]  # 90, 75 and 50 percent
    assert metrics.accuracy(correct, total).tolist() == [90, 75, 50]
    found = metrics.summary(correct, total)
    assert list(found) == ["accuracy", "micro", "variance", "worst"]
    assert found["accuracy"] == pytest.approx(
        215 / 3
    )  # unweighted: 22 of 34 samples would be 64.7
    assert found["variance"] == pytest.approx(
        (90**2 + 75**2 + 50**2) / 3 - (215 / 3) ** 2
    )
    assert found["worst"] == 50
    values = metrics.accuracy([4, 0, 1], [4, 0, 2])
    assert np.isnan(values[1])
    assert metrics.mean_accuracy(values) == 75
    assert metrics.variance(values) == 625
    assert metrics.worst(values) == 50
    assert (
        metrics.micro_accuracy([9, 0], [10, 30]) == 22.5
    )  # the plain mean over clients is 45
    assert metrics.seed_spread([97.27, 97.73, 97.73]) == pytest.approx(
        0.2656, abs=1e-4
    )  # EMD-CFL prints 0.26
    assert metrics.seed_spread([1, 3]) == pytest.approx(math.sqrt(2))
    undefined = [
        *metrics.summary([0, 0], [0, 0]).values(),
        metrics.mean_accuracy([]),
        metrics.micro_accuracy([0], [0]),
    ]
    assert np.isnan(
        [*undefined, metrics.seed_spread([5.0]), metrics.seed_spread([])]
    ).all()
    assert not recwarn.list


def test_impossible_counts_are_refused():
    for correct, total in (
        ([1, 2], [3]),
        ([5], [4]),
        ([-1], [4]),
        ([0], [-1]),
        ([float("nan")], [3]),
    ):
        with pytest.raises(FltnbError):
            metrics.accuracy(correct, total)


def test_flt_prints_binomial_errors():
    """Nearly all printed errors are the binomial ones of the whole split; the 11 that
    are not are known.
    """
    rows = papers.numbers("flt")
    # scenario 3's writers are not in the paper, so its pooled sizes are unknown
    rows = rows[
        rows["setting"].isin(["scenario1", "scenario2", "scenario4", "ablation"])
        & (rows["error"] != "")
    ]
    sizes = {
        "mnist": (10_000, 60_000),
        "cifar10": (10_000, 50_000),
        "structured_noniid_femnist": (18_800, 112_800),
    }
    n = [
        sizes[name][split == "train"]
        for name, split in zip(rows["dataset"], rows["split"], strict=True)
    ]
    p = rows["number"] / 100
    binomial = 100 * np.sqrt(p * (1 - p) / n)
    distance = np.abs(binomial - rows["number_error"])
    assert len(rows) == 144
    assert (distance <= 0.005).sum() == 125  # equal to the last printed digit
    assert (distance <= 0.01).sum() == 133
    odd = rows[distance > 0.01]
    assert set(odd["value"]) == {
        "75.35",
        "96.58",
        "76.22",
        "93.69",
        "71.24",
        "72.55",
        "81.97",
    }
    assert all(json.loads(p)["M"] == 500 for p in odd[odd["table"] == "T5"]["params"])


def test_adjusted_rand_index():
    assert (
        metrics.adjusted_rand_index([0, 0, 1, 1], [7, 7, 3, 3]) == 1
    )  # names do not matter
    assert (
        metrics.adjusted_rand_index([0, 0, 0, 0], [0, 0, 1, 1]) == 0
    )  # one true cluster: 1 or 0 only
    # pairs together in both: 2; in truth 6; found 3; of 15. Expected 6 * 3 / 15, at
    # most (6 + 3) / 2
    three = metrics.adjusted_rand_index([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2])
    assert three == pytest.approx((2 - 6 * 3 / 15) / (4.5 - 6 * 3 / 15))
    refused(
        "3 true labels and 2 found ones", metrics.adjusted_rand_index, [0, 1, 1], [0, 1]
    )


def test_means_count_clients_or_samples_and_intervals_resample_clients():
    table = metrics.means_over_clients([9, 1], [10, 10])
    assert table["accuracy"].tolist() == [50.0, 50.0]
    assert table["low"].tolist() == [10.0, 10.0]
    assert table["high"].tolist() == [90.0, 90.0]
    uneven = metrics.means_over_clients([90, 0], [100, 10])["accuracy"]
    assert uneven["mean of clients"] == 45.0
    assert uneven["mean of samples"] == pytest.approx(100 * 90 / 110)
    same = metrics.means_over_clients([5] * 20, [10] * 20)
    assert (same == 50.0).all(axis=None)


def test_scores_of_a_network_that_diverged_are_no_numbers():
    for bad in (np.nan, np.inf):
        for n_classes in (1, 2, 3):
            outputs = np.zeros((4, n_classes))
            outputs[0, 0] = bad
            found = metrics.class_scores(np.array([0, 1, 0, 1]), outputs)
            assert np.isnan(found["auc"]) and found["accuracy"] >= 0
        found = metrics.value_scores(np.arange(4.0), np.array([[bad]] * 4))
        assert np.isnan([found["r2"], found["rmse"]]).all()


def test_f1_of_nobody_is_no_number():
    for confusion in (np.zeros((0, 3, 3), int), np.zeros((2, 3, 3), int)):
        found = metrics.f1_summary(confusion)
        assert len(found) == 3 and np.isnan([*found.values()]).all()
    refused("of shape .M, C, C.", metrics.f1_summary, np.zeros((3, 3), int))
