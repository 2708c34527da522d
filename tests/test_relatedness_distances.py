from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fltnb.relatedness import distances
from fltnb.relatedness.distances import matching_distances, min_distances


@st.composite
def clients(draw, ragged=True):
    rng, n_clients = np.random.default_rng(draw(st.integers(0, 2**32 - 1))), draw(st.integers(2, 6))
    sizes = rng.integers(1, 6, n_clients) if ragged else np.full(n_clients, draw(st.integers(1, 6)))
    return [rng.normal(size=(k, 2)) for k in sizes]


def brute_min(a, b):
    return min(np.linalg.norm(p - q) for p in a for q in b)


def brute_matching(a, b):
    """Every way of matching the smaller set into the larger, as the public code enumerates for equal sizes."""
    if len(a) > len(b):
        a, b = b, a
    ways = permutations(range(len(b)), len(a))
    return min(np.sqrt(sum(((a[i] - b[j]) ** 2).sum() for i, j in enumerate(way))) for way in ways) / len(a)


def test_by_hand(monkeypatch):
    a, b = np.array([[0.0, 0.0], [3.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 0.0]])
    assert min_distances([a, b])[0, 1] == 0
    # 0-0 and (3, 0)-(3, 4): root of 16, over 2 pairs
    assert matching_distances([a, b])[0, 1] == 2
    # the single point is matched with its nearest
    assert matching_distances([a, np.array([[3.0, 1.0]])])[0, 1] == 1
    points = [np.random.default_rng(i).normal(size=(9, 2)) for i in range(5)]
    whole = matching_distances(points)
    monkeypatch.setattr(distances, "LARGEST_ENUMERATED", 9)
    monkeypatch.setattr(distances, "CELLS_AT_ONCE", 1)
    np.testing.assert_allclose(matching_distances(points), whole, rtol=1e-12)


@pytest.mark.parametrize(("fast", "brute"), [(min_distances, brute_min), (matching_distances, brute_matching)])
@given(points=clients())
@settings(max_examples=30, deadline=None)
def test_equals_enumeration(fast, brute, points):
    expected = [[0 if i == j else brute(a, b) for j, b in enumerate(points)] for i, a in enumerate(points)]
    np.testing.assert_allclose(fast(points), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("distance", [min_distances, matching_distances])
@given(points=clients(), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_properties(distance, points, seed):
    rng = np.random.default_rng(seed)
    points = [*points, points[0][rng.permutation(len(points[0]))]]  # the first client again, points in another order
    d = distance(points)
    assert (d == d.T).all() and (np.diag(d) == 0).all() and (d >= 0).all()
    assert d[0, -1] == 0
    np.testing.assert_allclose(d[0, 1:-1], d[-1, 1:-1], rtol=1e-12)
    order = rng.permutation(len(points))
    np.testing.assert_allclose(distance([points[i] for i in order]), d[np.ix_(order, order)], rtol=1e-12)
    np.testing.assert_allclose(distance([p + 3.0 for p in points]), d, atol=1e-9)


@given(points=clients(ragged=False))
@settings(max_examples=20, deadline=None)
def test_linear_assignment_agrees_with_subsets(points):
    stacked = np.stack(points)
    np.testing.assert_allclose(
        distances._by_assignment(stacked, stacked), distances._by_subsets(stacked, stacked), rtol=1e-12, atol=1e-12
    )
