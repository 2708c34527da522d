"""FLT's theorems: known answers, the printed lines that fail, and the corrected bounds
as properties.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from toys import refused

from fltnb.analyses import theory
from fltnb.analyses.embedding_bounds import inequalities
from fltnb.theory import clustering as t1
from fltnb.theory import convergence as t2
from fltnb.theory import embeddings, problems
from fltnb.theory.convergence import participants


def test_q_function_bounds_and_exact_error_by_hand():
    assert t1.q_inverse(0.025) == pytest.approx(1.959963984540054)
    for p in (0, 1, -0.1, float("nan")):
        refused("between 0 and 1", t1.q_inverse, p)

    counts = np.array(
        [[2, 0], [1, 1]]
    )  # client 0 holds two samples of label 0, client 1 one of each
    p, e = norm.sf(1.0), 3  # Q^-1(p) = 1
    one, two, four = np.exp(-0.5), np.exp(-1.0), np.exp(-2.0)
    sums = {
        "printed": four + 1 + 2 * one,
        "printed, labels held": four + 2 * one,
        "corrected": two + 2 * one,
    }
    assert {form: t1.bound(counts, e, p, form) / 3 for form in sums} == pytest.approx(
        sums
    )
    refused("Theorem 1", t1.bound, counts, e, p, "wishful")

    # one client, one label, one coordinate, one sample: the error of that sample
    assert t1.exact_error(np.array([[1]]), 1, 0.2) == pytest.approx(0.2)
    assert t1.exact_error(np.array([[1, 0, 1]]), 2, 0.2) == pytest.approx(1 - 0.8**4)
    assert t1.exact_error(np.array([[4]]), 1, norm.sf(1.0)) == pytest.approx(
        norm.sf(2.0)
    )  # sqrt(4), not 4

    z = [np.array([[0.0], [1.0], [9.0]]), np.array([[10.0], [4.0]])]
    y = [
        np.array([0, 0, 1]),
        np.array([1, 1]),
    ]  # means 0.5 and 7.67: the 4 is nearer to 0.5
    assert t1.sample_error(z, y) == pytest.approx(0.2)


@given(
    st.integers(1, 200), st.floats(0.01, 0.99), st.integers(1, 64), st.integers(1, 20)
)
def test_corrected_bound_is_one(n, p, e, M):
    counts = np.full((M, 2), n)
    assert t1.exact_error(counts, e, p) <= t1.bound(counts, e, p, "corrected") * (
        1 + 1e-9
    )


def test_printed_bound_is_none_and_the_measured_error_meets_the_exact_one():
    """Equation 7: the error of a mean of n samples is Q(sqrt(n) x), not Q(n x)."""
    mixture = t1.Mixture(error=0.2)
    counts = mixture.counts(8)
    assert t1.bound(counts, mixture.dimension, 0.2, "printed, labels held") < 1e-6
    assert t1.exact_error(counts, mixture.dimension, 0.2) > 0.9
    # and with all labels in the sum: 8 of 10 labels are not held, 16 coordinates, 10
    # clients
    assert t1.bound(counts, mixture.dimension, 0.2, "printed") >= 10 * 8 * 16
    mixture = t1.Mixture(n_clients=5, error=0.2)
    for n in (8, 12, 16):
        exact = t1.exact_error(mixture.counts(n), 16, 0.2)
        assert abs(t1.measured_error(mixture, n, 600) - exact) < 4 * np.sqrt(
            exact * (1 - exact) / 600
        )


def test_mixture_is_what_it_says():
    mixture = t1.Mixture(n_clients=10, n_groups=5, error=0.3)
    assert np.allclose(np.abs(mixture.means), t1.q_inverse(0.3))
    differ = (mixture.means[:, None] * mixture.means[None] < 0).sum(axis=2)
    assert (differ[~np.eye(10, dtype=bool)] == 8).all()
    assert (mixture.counts(3).sum(axis=1) == 6).all()
    assert mixture.held(3).tolist() == [2, 3]
    for wrong in ({"n_clients": 18, "n_groups": 9}, {"n_clients": 7}, {"error": 0.5}):
        refused(
            "equal groups|error must be a number above 0 and below 0.5",
            t1.Mixture,
            **wrong,
        )
    refused("n_groups must be a whole number of at least 1", t1.Mixture, n_groups=0)


def test_one_centroid_for_two_labels_fails_the_proof_and_finds_the_clients():
    mixture = t1.Mixture(n_clients=6, n_groups=3)
    assert t1.pipeline_errors(mixture, n=24, k=1, repeats=3) == {
        "centroids": 1,
        "graph": 0,
        "pairs": 0,
    }
    own = t1.pipeline_errors(mixture, n=48, k=2, repeats=3)
    assert own["centroids"] == own["graph"] == 0
    few = t1.pipeline_errors(mixture, n=1, k=2, repeats=3)
    assert few["graph"] == 1 and 0 < few["pairs"] < 1


def quadratic(centers, curvature=1.0):
    """Return clients with F_i(w) = curvature / 2 ||w - c_i||^2."""
    centers = np.asarray(centers, dtype=float)
    M, d = centers.shape
    scale = np.sqrt(curvature * d)
    features = np.repeat(scale * np.eye(d)[None], M, axis=0)
    return problems.Problem("least squares", features, scale * centers, 0.0, centers)


CENTERS = np.array([[4.0, 0.0], [0.0, 2.0], [-1.0, -1.0], [1.0, 3.0]])


@pytest.mark.parametrize("kind", problems.KINDS)
def test_gradients_are_slopes_of_the_losses_and_curvature_bounds_their_differences(
    kind,
):
    problem, _ = problems.draw(kind, n_clients=4, n_clusters=2)
    rng = np.random.default_rng(0)
    W, direction = rng.standard_normal((2, *problem.shape))
    h = 1e-5
    slope = (problem.losses(W + h * direction) - problem.losses(W - h * direction)) / (
        2 * h
    )
    np.testing.assert_allclose(
        (problem.gradients(W) * direction).sum(axis=1), slope, rtol=1e-6, atol=1e-8
    )
    problem, _ = problems.draw(kind, seed=3)
    mu, L = problem.curvature
    for scale in (0.01, 1, 10):
        V, W = scale * rng.standard_normal((2, *problem.shape))
        step, change = V - W, problem.gradients(V) - problem.gradients(W)
        along = (step * change).sum(axis=1) / (step**2).sum(axis=1)
        assert (along >= mu - 1e-9).all() and (
            np.linalg.norm(change) <= L * np.linalg.norm(step) + 1e-9
        )


def test_optimum_has_no_gradient():
    problem, labels = problems.draw()
    assert (
        np.abs(problem.gradients(problem.optimum(np.arange(len(labels))))).max() < 1e-10
    )
    shared = problem.optimum(labels)
    assert (
        np.abs(
            [problem.gradients(shared)[labels == c].sum(axis=0) for c in range(3)]
        ).max()
        < 1e-9
    )
    logistic, _ = problems.draw("logistic")
    refused("closed form", logistic.optimum, labels)


def test_rounds_by_hand():
    # A = I: client i follows its own gradient descent, c + (1 - eta)^t (w - c).
    path = t2.iterate(quadratic(CENTERS), np.eye(4), 0.25, 10)
    np.testing.assert_allclose(path.end, CENTERS * (1 - 0.75**10), rtol=1e-12)
    changed = CENTERS.copy()
    changed[3] = 100
    np.testing.assert_array_equal(
        path.end[:3], t2.iterate(quadratic(changed), np.eye(4), 0.25, 10).end[:3]
    )

    problem, _ = problems.draw(n_clients=6)
    path = t2.iterate(problem, t2.of_clusters(np.zeros(6)), 0.1, 30)
    w = np.zeros(problem.shape[1])
    for _ in range(30):
        w = w - 0.1 * problem.gradients(np.repeat(w[None], 6, axis=0)).mean(axis=0)
    np.testing.assert_allclose(
        path.end, np.repeat(w[None], 6, axis=0), rtol=1e-12, atol=1e-14
    )

    # two clients at +1 and -1, E = 3 steps of 1/2 from 0: each goes 7/8 of its way, and
    # the mean stays at 0
    path = t2.iterate(
        quadratic([[1.0], [-1.0]]), t2.of_clusters([0, 0]), 0.5, 2, local_steps=3
    )
    np.testing.assert_allclose(path.end, 0)
    alone = t2.iterate(quadratic([[1.0], [-1.0]]), np.eye(2), 0.5, 2, local_steps=3)
    np.testing.assert_allclose(alone.before, [[7 / 8], [-7 / 8]])
    np.testing.assert_allclose(alone.gap[1:], [2 * (7 / 8) ** 2, 2 * (7 / 64) ** 2])
    np.testing.assert_allclose(
        alone.mean_gap[1:], [(7 / 8) ** 2, ((7 / 8) ** 2 + (7 / 64) ** 2) / 2]
    )
    np.testing.assert_allclose(alone.loss[:2], [1, 1 / 64])
    np.testing.assert_allclose(alone.gradient[:2], [np.sqrt(2), np.sqrt(2) / 8])

    # a client that sits a round out takes no step
    part = t2.iterate(quadratic(CENTERS), np.eye(4), 0.25, 1, participation=0.5)
    present = participants(4, 0.5, 0, 1)
    assert np.array_equal(np.flatnonzero(part.end.any(axis=1)), present)
    np.testing.assert_allclose(part.end[present], 0.25 * CENTERS[present])


def test_graphs_absent_clients_and_step_limits_by_hand():
    labels = np.array([0, 0, 1, 1])
    A = t2.of_clusters(labels)
    np.testing.assert_array_equal(
        t2.mixing(A, np.array([0])),
        [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]],
    )
    np.testing.assert_allclose(t2.mixing(A, np.arange(4)), A)

    np.testing.assert_array_equal(A[0], [0.5, 0.5, 0, 0])
    ring = t2.ring_of(labels)
    np.testing.assert_allclose(ring[1], [1 / 3, 1 / 3, 1 / 3, 0])
    np.testing.assert_allclose(ring.sum(axis=1), 1)
    assert np.allclose(A @ A, A) and not np.allclose(ring @ ring, ring)

    everybody = t2.of_clusters(np.zeros(5))
    assert t2.deviation(np.eye(3)) == 0
    assert t2.deviation(everybody) == pytest.approx(1)
    assert t2.step_limit(2.0, np.eye(3)) == pytest.approx(1 / 2)  # 1 / L
    assert t2.step_limit(2.0, everybody) == pytest.approx(
        (np.sqrt(5) - 1) / 2 / 2
    )  # 0.618 / L
    for A in (np.eye(4), everybody, t2.ring_of([0, 0, 1, 1, 2])):
        limit = t2.step_limit(3.0, A)
        assert t2.denominator(limit, 3.0, A) == pytest.approx(0, abs=1e-12)
        assert (
            t2.denominator(0.99 * limit, 3.0, A)
            > 0
            > t2.denominator(1.01 * limit, 3.0, A)
        )


def test_printed_numerator_is_one_round_late():
    """One client, curvature 1: all gaps sum to eta / (2 - eta) w^2, the printed bound
    to eta (1 - eta) w^2.
    """
    path = t2.iterate(quadratic([[1.0]]), np.eye(1), 0.5, 400)
    printed = t2.printed_bound(path, 0.5, 1.0, np.eye(1))
    first = (path.loss[0] - path.loss[1:]) / (
        path.rounds[1:] * t2.denominator(0.5, 1.0, np.eye(1))
    )
    assert 400 * path.mean_gap[-1] == pytest.approx(1 / 3)
    assert 400 * printed[-1] == pytest.approx(
        1 / 4
    )  # below what it should bound, for every T
    assert (path.mean_gap[1:] > printed[1:]).all()
    assert (path.mean_gap[1:] <= first).all()
    assert printed[1] == 0
    assert np.isnan(printed[0])


def test_projection_bound_is_sharp_and_so_is_two_over_l():
    path = t2.iterate(quadratic([[1.0]]), np.eye(1), 0.5, 1)
    # F falls from 1/2 to 1/8; 1 / eta - L / 2 = 3/2; the bound is sharp for one client
    assert (
        t2.projection_bound(path, 0.5, 1.0)[1]
        == pytest.approx((1 / 2 - 1 / 8) / 1.5)
        == path.gap[1]
    )

    inside, beyond = (
        t2.iterate(quadratic(CENTERS), np.eye(4), step, 200) for step in (1.99, 2.01)
    )
    assert inside.gap[-1] < inside.gap[1] < beyond.gap[-1]


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 1000),
    st.sampled_from(problems.KINDS),
    st.lists(st.integers(0, 3), min_size=6, max_size=6),
    st.floats(0.05, 1.95),
)
def test_projection_bound_holds_for_any_disjoint_clusters(seed, kind, labels, scaled):
    problem, _ = problems.draw(kind, n_clients=6, n_clusters=2, seed=seed)
    _, L = problem.curvature
    path = t2.iterate(problem, t2.of_clusters(labels), scaled / L, 40)
    bound = t2.projection_bound(path, scaled / L, L)
    assert (path.mean_gap[1:] <= bound[1:] * (1 + 1e-9) + 1e-12).all()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 1000),
    st.sampled_from(problems.KINDS),
    st.floats(0.05, 1.9),
    st.booleans(),
)
def test_contraction_bound_holds_for_any_graph_and_start(seed, kind, scaled, warm):
    rng = np.random.default_rng(seed)
    problem, _ = problems.draw(kind, n_clients=6, n_clusters=2, seed=seed)
    links = np.triu(rng.random((6, 6)) < 0.4, 1)
    A = t2.row_normalised(links | links.T | np.eye(6, dtype=bool))
    mu, L = problem.curvature
    path = t2.iterate(
        problem,
        A,
        scaled / L,
        40,
        start=rng.standard_normal(problem.shape) if warm else None,
    )
    bound = t2.contraction_bound(path, scaled / L, (mu, L), A)
    assert (path.mean_gap[1:] <= bound[1:] * (1 + 1e-9) + 1e-12).all()


def table_of(study):
    return study["tables"]["table"]


def test_lines_of_the_proof_and_studies_of_the_theorems():
    table = table_of(theory.proof_lines(rounds=60)).set_index("line")
    assert table.index[table["holds"] == "yes"].tolist() == ["24, disjoint clusters"]
    assert {
        "13",
        "23",
        "24, linked clusters",
        "27",
        "28",
        "21",
        "29",
        "32",
        "36",
    } <= set(table.index)
    gap = table_of(theory.gap_curves(problems.KINDS, rounds=40, seeds=(0,)))
    assert {1, 10, 40} <= set(gap["T"])
    assert (
        (gap["gap"] <= gap["printed"]) == (gap["T"] > 1)
    ).all()  # at T = 1 the printed right side is 0
    steps = table_of(theory.steps((0.3, 0.9, 2.5), 300, (0,)))
    assert steps[steps["graph"] == "alone"].set_index("eta L")["settles"].tolist() == [
        1,
        1,
        0,
    ]
    assert (steps["printed factor"] > 0).tolist() == [
        True,
        True,
        False,
        True,
        False,
        False,
    ]
    assert steps["limit"].unique() == pytest.approx([1, (np.sqrt(5) - 1) / 2])
    assert table_of(theory.epochs((1, 50), 60, (0,)))["38 holds"].tolist() == [1, 0]
    graphs = table_of(theory.client_graphs(60, (0,))).set_index("graph")
    assert graphs["training loss"].idxmin() == "alone"
    assert graphs["error on new data"].idxmin() == "true clusters"
    first = table_of(theory.centroids((0.2,), (4, 8, 32), 50))
    assert (first["exact"] <= first["corrected"]).all() and (
        first["exact"] > first["printed, labels held"]
    ).any()
    pipeline = table_of(theory.pipeline(0.2, (1, 2), (1, 4), repeats=1))
    assert pipeline[["k", "n"]].to_numpy().tolist() == [
        [1, 1],
        [1, 2],
        [4, 2],
    ]  # four centroids need two samples each


@pytest.mark.filterwarnings("ignore:self.within_class_std_dev_")
def test_the_bound_for_real_embeddings():
    clients = {"kind": "label_clusters", "dataset": "digits", "n_clients": 25}
    clients |= {"n_clusters": 5, "classes_per_cluster": 2}
    found = theory.sample_bound(clients, {"kind": "pixels"}, seeds=(0, 1))["numbers"]
    assert found["e"] == 64 and 0 < found["p"] < 0.5
    assert found["printed"] > found["corrected"] > found["printed, labels held"] > 0


def _two_clients(shift, seed=0, n=40):
    """Embeddings around two means; the second client's are moved aside."""
    rng = np.random.default_rng(seed)
    clients = []
    for by in (0.0, shift):
        y = np.arange(n) % 2
        z = rng.standard_normal((n, 3)) + 2 * y[:, None] + by
        clients.append((z, y))
    return clients


@pytest.mark.parametrize("shift", [0.0, 1.0, 5.0])
def test_emdcfls_inequalities_hold_where_their_premises_do(shift):
    found = embeddings.inequalities(_two_clients(shift))
    assert len(found) == 2 * 6
    premise = ~found["statement"].str.contains("several")
    assert (found["left"] <= found["right"] + 1e-12)[premise].all()
    # a step size of 1 and many steps: Corollary 2.5 speaks of one step
    long = embeddings.inequalities(_two_clients(0.1), lr=1.0, steps=2000)
    long = long[long["statement"] == "Corollary 2.5, several steps"]
    assert (long["left"] > 0).all()


def test_emdcfls_sides_by_hand():
    one = np.array([[0.0], [1.0]]), np.array([0, 1])
    other = np.array([[2.0], [3.0]]), np.array([0, 1])
    assert embeddings.earth_movers(one[0], other[0]) == pytest.approx(2)
    flat = np.array([0.0, 0.0])  # says 1/2 of everything
    assert embeddings.error(flat, one) == 0.5 and embeddings.lipschitz(flat) == 0
    assert embeddings.gradients(flat, one).tolist() == [[0, 0.5], [-0.5, -0.5]]
    # from (0, 0.5) at z = 0 to (-1.5, -0.5) at z = 3, from (-0.5, -0.5) to (1, 0.5)
    steep = max(np.hypot(1.5, 1) / 3, np.hypot(1.5, 1) / 1, 0.5, 0.5)
    assert embeddings.steepest(flat, one, other) == pytest.approx(steep)
    same = np.array([[0.0], [1.0]]), np.array([1, 0])
    assert embeddings.steepest(flat, one, same) == np.inf  # both labels at one place
    refused("only one label", embeddings.inequalities, [one, (one[0], np.ones(2))])


def test_random_projections_keep_distances_the_better_the_more_is_kept():
    points = np.random.default_rng(0).standard_normal((30, 200))
    found = embeddings.projected(points, (0.1, 0.9))
    assert found["dimensions"].tolist() == [20, 180]
    assert found["off"].is_monotonic_decreasing
    assert embeddings.dimensions_needed(1000, 0.1) == 5921


def test_emdcfls_inequalities_of_a_federation():
    fed = {"kind": "rotated_copies", "dataset": "digits", "n_clients": 4}
    training = {"rounds": 1, "participation": 1.0}
    found = inequalities(fed, "mlp_plain", training, samples=40, steps=5)["tables"]
    assert len(found["inequalities"]) == 4 * 3 * 6
    assert found["projection"]["share"].tolist() == [0.1, 0.5, 0.9]
