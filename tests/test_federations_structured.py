import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import counted, prepared, rebuilt, refused

from fltnb import data, federations
from fltnb.federations import power_law_sizes, structured


@pytest.mark.parametrize(
    ("n_samples", "n_clients", "alpha", "beta", "least", "median", "most", "first"),
    # beta as published, the rest as FLT's public code gives for EMNIST Balanced with
    # M = 2,400 and 600
    [
        (12000, 240, 25, 9.477e-5, 26, 29, 259, 124),
        (4800, 240, 10, 7.384e-5, 11, 12.5, 105, 105),
        (12000, 60, 100, 1.959e-3, 101, 106.5, 1256, 128),
        (4800, 60, 40, 1.657e-3, 41, 44.5, 429, 66),
    ],
)
def test_sizes_of_the_papers_clusters(
    n_samples, n_clients, alpha, beta, least, median, most, first
):
    sizes = power_law_sizes(n_samples, n_clients)
    assert sizes.dtype == np.int64 and sizes.sum() == n_samples
    assert (sizes.min(), np.median(sizes), sizes.max(), sizes[0]) == (
        least,
        median,
        most,
        first,
    )
    # beta is known to four digits, which decides most but not all of the roundings
    expected = alpha + np.exp(beta * np.arange(1, n_clients + 1) ** 2)
    assert np.abs(sizes[1:] + 0.5 - expected[1:]).max() < 0.5 + 0.002 * expected.max()


def test_sizes_by_hand():
    # alpha = 5, and 5 + e^b + 5 + e^(4b) = 20 has e^b = x with x + x^4 = 10, x =
    # 1.6974719...
    x = next(
        r.real for r in np.roots([1, 0, 0, 1, -10]) if abs(r.imag) < 1e-9 and r.real > 0
    )
    assert x == pytest.approx(1.69747, abs=1e-4)
    assert power_law_sizes(20, 2).tolist() == [
        5 + 1 + 1,
        5 + 8,
    ]  # floors 6 and 13 leave 1 to the first client
    assert power_law_sizes(9, 1).tolist() == [9] and power_law_sizes(4, 4).tolist() == [
        1,
        1,
        1,
        1,
    ]
    refused("6 clients for 5 training samples", power_law_sizes, 5, 6)
    refused("n_clients must be a whole number of at least 1", power_law_sizes, 5, 0)
    refused("delta must be a number above 0, not True", power_law_sizes, 100, 10, True)


@given(st.integers(1, 60), st.integers(0, 3000), st.floats(0.3, 12))
def test_sizes_always_sum_and_grow(n_clients, more, delta):
    sizes = power_law_sizes(n_clients + more, n_clients, delta)
    assert sizes.sum() == n_clients + more and sizes.min() >= max(
        (n_clients + more) // (2 * n_clients), 1
    )
    assert (np.diff(sizes[1:]) >= 0).all()
    assert (
        n_clients == 1 or sizes[0] < sizes[1] + n_clients
    )  # rounding down loses less than 1 per client


def test_clusters_hold_consecutive_classes_and_all_samples():
    images = counted([60] * 7, [10] * 7)
    fed = structured(images, n_clients=30, classes_per_cluster=3, seed=4)
    assert fed.clusters.tolist() == [0] * 10 + [1] * 10 + [2] * 10
    for client, cluster in enumerate(fed.clusters):
        own = range(3 * cluster, min(3 * cluster + 3, 7))
        assert set(fed.labels[fed.train[client]]) <= set(own)
        assert fed.label_counts("test")[client].tolist() == [
            10 * (k in own) for k in range(7)
        ]
        assert fed.test[client] is fed.test[10 * cluster]
    assert np.array_equal(np.sort(np.concatenate(fed.train)), images.train_index)
    assert np.array_equal(fed.sizes[:10], power_law_sizes(180, 10))
    assert np.array_equal(fed.sizes[20:], power_law_sizes(60, 10))


def test_level_clusters_deal_the_largest_classes_first():
    # 8 to the first cluster, 6 and then 4 to the second, which lacks more a place each
    # time, and 2 to the first
    fed = structured(
        counted([8, 6, 4, 2], [5] * 4), n_clients=2, classes_per_cluster=2, level=True
    )
    assert fed.sizes.tolist() == [10, 10]
    assert [sorted(set(fed.labels[own].tolist())) for own in fed.train] == [
        [0, 3],
        [1, 2],
    ]


def test_level_clusters_are_level_in_the_images_that_are_used():
    images = counted([100, 30, 30, 20, 20, 10], [5] * 6)
    fed = structured(images, 2, 3, level=True, max_per_class=30)
    assert fed.sizes.tolist() == [70, 70]


def test_published_test_set_adds_class_0_to_a_short_last_cluster_only():
    clean, published = (
        structured(counted([60] * 7, [10] * 7), 30, 3, test=kind)
        for kind in ("clean", "as_run")
    )
    assert (
        published.label_counts("test")[:20].tolist()
        == clean.label_counts("test")[:20].tolist()
    )
    assert (
        published.label_counts("test")[20:].tolist() == [[10, 0, 0, 0, 0, 0, 10]] * 10
    )
    assert published.test[20] is published.test[29]
    assert all(
        np.array_equal(a, b) for a, b in zip(clean.train, published.train, strict=True)
    )
    even = counted([60] * 6, [10] * 6)
    assert (
        structured(even, 30, 3, test="as_run").fingerprint()
        == structured(even, 30, 3).fingerprint()
    )


def test_seed_shuffles_most_clients_see_every_class_and_clusters_may_be_uneven():
    one, again, other = (
        structured(counted([240] * 5, [10] * 5), 24, seed=s) for s in (1, 1, 2)
    )
    assert one.fingerprint() == again.fingerprint() != other.fingerprint()
    assert np.array_equal(one.sizes, other.sizes)
    assert ((one.label_counts() > 0).sum(axis=1) == 5).mean() > 0.9
    fed = structured(counted([60] * 6, [5] * 6), n_clients=11, classes_per_cluster=3)
    assert np.bincount(fed.clusters).tolist() == [6, 5] and fed.sizes.sum() == 360


def test_max_per_class_cuts_training_and_test_at_random():
    images = counted([100, 50, 30], [40, 3, 10])
    fed = structured(images, 6, classes_per_cluster=3, max_per_class=36)
    assert fed.label_counts().sum(axis=0).tolist() == [36, 36, 30]
    assert fed.label_counts("test")[0].tolist() == [6, 3, 6]
    other = structured(images, 6, classes_per_cluster=3, max_per_class=36, seed=1)
    assert set(np.concatenate(fed.train)) != set(np.concatenate(other.train))
    assert set(fed.test[0]) != set(other.test[0])


@pytest.mark.parametrize(
    ("counts", "options", "message"),
    [
        (([60, 60, 3], [2] * 3), {"n_clients": 8}, "4 clients for 3 training samples"),
        (
            ([60, 60, 20], [2] * 3),
            {"n_clients": 1},
            "2 clusters of classes but only 1 clients",
        ),
        (([60, 60, 20], [2, 2, 0]), {"n_clients": 4}, "Cluster 1 has no test images"),
        (
            ([60, 60, 20], [2, 2, 0]),
            {"n_clients": 4, "test": "as_run"},
            "Cluster 1 has no test images",
        ),
    ],
)
def test_structured_refuses(counts, options, message):
    refused(message, structured, counted(*counts), classes_per_cluster=2, **options)


def test_digits_and_settings(digits):
    fed = rebuilt(structured(digits, n_clients=40, classes_per_cluster=2))
    assert fed.n_clusters == 5 and fed.sizes.sum() == 1438 and fed.sizes.min() > 10
    short = {
        "kind": "structured",
        "dataset": "digits",
        "n_clients": 40,
        "classes_per_cluster": 2,
    }
    assert federations.complete(short) == fed.settings


@prepared("emnist_balanced_small")
def test_real_emnist_has_ten_clusters():
    fed = structured(data.load("emnist_balanced_small"), n_clients=600)
    assert np.bincount(fed.clusters).tolist() == [60] * 10
    assert fed.label_counts()[fed.clusters == 9].sum(axis=0).nonzero()[0].tolist() == [
        45,
        46,
    ]
    assert np.array_equal(fed.sizes[:60], power_law_sizes(5 * 760, 60))
    assert ((fed.label_counts()[:540] > 0).sum(axis=1) == 5).mean() > 0.97
