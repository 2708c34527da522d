"""FLT's two theorems (arXiv 2103.15947, Section 3, Appendix B), with measurements.

Each study returns its table as ``{"tables": {"table": DataFrame}}`` (notebook 06).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from .. import encoders, federations
from ..theory import clustering as t1
from ..theory import convergence as t2
from ..theory import problems
from .studies import Settings, Study, means

EDGE = 0.9
"""Share of the printed limit that runs take as their step."""


# ---------------------------------------------------------------- Theorem 1


def centroids(
    errors: Sequence[float], samples: Sequence[int], repeats: int, seed: int = 0
) -> Study:
    """Theorem 1 in its own setting: measured and exact error, three forms of the bound.

    Parameters
    ----------
    errors : sequence of float
        p, error of one coordinate of a single sample.
    samples : sequence of int
        n, samples per client and label.
    repeats : int
        Draws behind each measured error.
    seed : int

    Returns
    -------
    dict
        Table ``table``: ``p, n, measured, exact`` and one column for each of
        :data:`fltnb.theory.clustering.FORMS`.
    """
    rows = []
    for p, n in product(errors, samples):
        mixture = t1.Mixture(error=p)
        setting = (mixture.counts(n), mixture.dimension, p)
        row = {
            "p": p,
            "n": n,
            "measured": t1.measured_error(mixture, n, repeats, seed),
            "exact": t1.exact_error(*setting),
        }
        for form in t1.FORMS:
            row[form] = t1.bound(*setting, form)
        rows.append(row)
    return {"tables": {"table": pd.DataFrame(rows)}}


def pipeline(
    p: float, samples: Sequence[int], ks: Sequence[int], repeats: int, seed: int = 0
) -> Study:
    """K-means and a distance threshold on the same embeddings.

    Parameters
    ----------
    p : float
        Error of one coordinate of a single sample.
    samples : sequence of int
        n, samples per client and label.
    ks : sequence of int
        Centroids of a client; a k above a client's number of samples is left out.
    repeats : int
        Draws behind each number.
    seed : int

    Returns
    -------
    dict
        Table ``table``: ``k, n``, and ``centroids, graph, pairs`` of
        :func:`fltnb.theory.clustering.pipeline_errors`.
    """
    mixture = t1.Mixture(error=p)
    rows = []
    for k, n in product(ks, samples):
        if k <= n * mixture.labels_per_client:
            errors = t1.pipeline_errors(mixture, n, k, repeats, seed)
            rows.append({"k": k, "n": n} | errors)
    return {"tables": {"table": pd.DataFrame(rows)}}


def sample_bound(
    federation: Settings, encoder: Settings, seeds: Sequence[int]
) -> Study:
    """Theorem 1 for the embeddings of real clients.

    Parameters
    ----------
    federation, encoder : settings
    seeds : sequence of int
        Partitions. The federation's own is embedded for ``p``, as embedding is most
        of the work.

    Returns
    -------
    dict
        Numbers: ``p`` (:func:`fltnb.theory.clustering.sample_error`), ``e`` and the
        bound in all forms, mean over the partitions.
    """
    fed = federations.build(federation)
    z = encoders.embed_clients(fed, encoders.build(encoder), n_jobs=1)
    p = t1.sample_error(z, [fed.labels[index] for index in fed.train])
    e = z[0].shape[1]

    counts = []
    for seed in seeds:
        drawn = federations.build(federation | {"seed": seed})
        counts.append(drawn.label_counts())
    numbers = {"p": p, "e": e}
    for form in t1.FORMS:
        bounds = [t1.bound(own, e, p, form) for own in counts]
        numbers[form] = float(np.mean(bounds))
    return {"numbers": numbers}


# ---------------------------------------------------------------- Theorem 2


@dataclass(frozen=True)
class Case:
    """A problem of Theorem 2 with M clients, their graph and their step.

    Parameters
    ----------
    problem : Problem
    A : array (M, M)
        Row-normalised adjacency.
    step : float
        eta.
    """

    problem: problems.Problem
    A: np.ndarray
    step: float

    @property
    def smoothness(self) -> float:
        """L, of the sum of all costs."""
        _, L = self.problem.curvature
        return L

    def run(self, rounds: int, **how: Any) -> t2.Path:
        """Run FLT; ``how``: options of :func:`fltnb.theory.convergence.iterate`."""
        return t2.iterate(self.problem, self.A, self.step, rounds, **how)

    def printed_bound(self, path: t2.Path) -> np.ndarray:
        """Right-hand side of Theorem 2 for T = 0, 1, 2, ...; NaN at T = 0."""
        return t2.printed_bound(path, self.step, self.smoothness, self.A)

    def local_epochs_bound(self, path: t2.Path, E: int, own: np.ndarray) -> np.ndarray:
        """Equation 38 with E local steps; ``own``: W* (M, d)."""
        step = self.step
        return t2.local_epochs_bound(path, step, self.smoothness, self.A, E, own)


def at_edge(problem: problems.Problem, A: np.ndarray) -> Case:
    """Return a case with 0.9 of the admissible step."""
    _, L = problem.curvature
    return Case(problem, A, EDGE * t2.step_limit(L, A))


def graphs(labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return row-normalised adjacencies (M, M) to compare, by name.

    In "wrong clusters" each has clients of all true ones. "linked clusters" is a ring
    of the true clusters, the paper's case I: the only graph here that is no clustering,
    so that averaging twice is not the same as once. "everybody" is FedAvg.

    Parameters
    ----------
    labels : int array (M,)
        True clusters, numbered one after the other.
    """
    M = len(labels)
    C = len(np.unique(labels))
    return {
        "alone": np.eye(M),
        "true clusters": t2.of_clusters(labels),
        "wrong clusters": t2.of_clusters(np.arange(M) % C),
        "linked clusters": t2.ring_of(labels),
        "everybody": t2.of_clusters(np.zeros(M)),
    }


def _least_squares(seed: int) -> tuple[problems.Problem, np.ndarray]:
    """Draw a problem, and the clusters of its clients: 12 of them in 3 clusters.

    They have 12 samples for 8 weights each.
    """
    return problems.draw("least squares", seed=seed)


def gap_curves(
    kinds: Sequence[problems.Kind], rounds: int, seeds: Sequence[int]
) -> Study:
    """Mean optimality gap and its bounds against T, at 0.9 of the admissible step.

    The gap is the left side of Theorem 2: the mean over rounds of the squared change of
    all models, which the bound lets fall like 1 / T.

    Parameters
    ----------
    kinds : sequence of str
        Of :data:`fltnb.theory.problems.KINDS`.
    rounds : int
        The largest T.
    seeds : sequence of int
        Problems.

    Returns
    -------
    dict
        Table ``table``, for about 25 values of T: ``problem, graph, seed, T, gap,
        printed, projection, contraction``, and ``fifth``: the gap with 20 % of the
        clients a round.
    """
    # from 1 to T in equal ratios, and T / 4 to compare with
    shown = np.geomspace(1, rounds, 24).round().astype(int)
    shown = np.unique(np.append(shown, rounds // 4))
    tables = []
    for kind, seed in product(kinds, seeds):
        problem, labels = problems.draw(kind, seed=seed)
        for name, A in graphs(labels).items():
            case = at_edge(problem, A)
            path = case.run(rounds)
            fifth = case.run(rounds, participation=0.2, seed=seed)
            about = {"problem": kind, "graph": name, "seed": seed, "T": shown}
            curves = {
                "gap": path.mean_gap,
                "printed": case.printed_bound(path),
                "projection": t2.projection_bound(path, case.step, case.smoothness),
                "contraction": t2.contraction_bound(
                    path, case.step, problem.curvature, A
                ),
                "fifth": fifth.mean_gap,
            }
            at_shown = {column: curve[shown] for column, curve in curves.items()}
            tables.append(pd.DataFrame(about | at_shown))
    return {"tables": {"table": pd.concat(tables, ignore_index=True)}}


def client_graphs(rounds: int, seeds: Sequence[int]) -> Study:
    """Compare five client graphs in what Theorem 2 covers and in what it does not.

    Parameters
    ----------
    rounds : int
        T.
    seeds : sequence of int
        Least-squares problems.

    Returns
    -------
    dict
        Table ``table``, means over seeds by ``graph``: the gap and its slope against T
        (``log gap / log T`` over the last half), training loss per client, and the
        squared error of the weights, which is twice the excess loss on new data.
    """
    rows = []
    half = rounds // 2
    for seed in seeds:
        problem, labels = _least_squares(seed)
        for name, A in graphs(labels).items():
            path = at_edge(problem, A).run(rounds)
            gap = path.mean_gap
            error = ((path.end - problem.truth) ** 2).sum(axis=1)
            row = {
                "graph": name,
                "mean gap": gap[rounds],
                "slope": np.log(gap[rounds] / gap[half]) / np.log(rounds / half),
                "training loss": path.loss[rounds] / len(labels),
                "error on new data": error.mean(),
            }
            rows.append(row)
    return {"tables": {"table": means(rows, by=["graph"])}}


def steps(steps: Sequence[float], rounds: int, seeds: Sequence[int]) -> Study:
    """Step sizes through and beyond the admissible range, least squares.

    The printed bound needs a step below Equation 29's limit, which is 1 / L for clients
    alone and less for clusters; gradient descent needs one below 2 / L. In between,
    runs settle of which the printed bound says nothing, and the corrected one does.

    Parameters
    ----------
    steps : sequence of float
        eta L.
    rounds : int
        T.
    seeds : sequence of int
        Problems.

    Returns
    -------
    dict
        Table ``table``, for two graphs, means over seeds: ``graph, eta L``, ``limit``
        (Equation 29, times L), ``printed factor`` (denominator of Equation 28, times
        eta; must be positive), the mean gap, its printed and corrected bound (NaN where
        they say nothing), and ``settles``: the share of seeds in which the last gap is
        below a hundredth of the first.
    """
    rows = []
    for name, scaled, seed in product(("alone", "true clusters"), steps, seeds):
        problem, labels = _least_squares(seed)
        _, L = problem.curvature
        case = Case(problem, graphs(labels)[name], scaled / L)
        path = case.run(rounds)
        factor = t2.denominator(case.step, L, case.A)
        printed = corrected = np.nan
        if factor > 0:
            printed = case.printed_bound(path)[-1]
        if scaled < 2:
            corrected = t2.projection_bound(path, case.step, L)[-1]
        row = {
            "graph": name,
            "eta L": scaled,
            "limit": t2.step_limit(1.0, case.A),
            "printed factor": case.step * factor,
            "mean gap": path.mean_gap[-1],
            "printed bound": printed,
            "corrected bound": corrected,
            "settles": float(path.gap[-1] < 0.01 * path.gap[1]),
        }
        rows.append(row)
    return {"tables": {"table": means(rows, by=["graph", "eta L"])}}


def epochs(local_steps: Sequence[int], rounds: int, seeds: Sequence[int]) -> Study:
    """Several local steps a round (Appendix B.2, Equations 30 to 38), true clusters.

    With many steps clients come near their own optima, W*, and averaging then moves
    them back: the bounds, which fall with E, leave this out.

    Parameters
    ----------
    local_steps : sequence of int
        E.
    rounds : int
        T.
    seeds : sequence of int
        Least-squares problems.

    Returns
    -------
    dict
        Table ``table``, means over seeds by ``E``: ``mean gap`` after all rounds, the
        bounds of Equations 34 and 38 (``holds``: share of seeds in which they do), left
        and right side of Equation 36 in the last round, and the excess of the training
        loss over the best that the clusters can reach, after 5 rounds and after all.
    """
    rows = []
    for E, seed in product(local_steps, seeds):
        problem, labels = _least_squares(seed)
        case = at_edge(problem, t2.of_clusters(labels))
        path = case.run(rounds, local_steps=E)
        gap = path.mean_gap[-1]
        eq34 = case.printed_bound(path)[-1]
        own = _own_optima(problem)
        eq38 = case.local_epochs_bound(path, E, own)[-1]
        away = ((path.before - own) ** 2).sum()
        best = problem.losses(problem.optimum(labels)).sum()
        row = {
            "E": E,
            "mean gap": gap,
            "Eq. 34": eq34,
            "34 holds": float(gap <= eq34),
            "Eq. 38": eq38,
            "38 holds": float(gap <= eq38),
            "Eq. 36, left": path.loss[-1] - problem.losses(own).sum(),
            "Eq. 36, right": away / (2 * case.step * E),
            "excess after 5": (path.loss[5] - best) / len(labels),
            "excess at the end": (path.loss[-1] - best) / len(labels),
        }
        rows.append(row)
    return {"tables": {"table": means(rows, by=["E"])}}


# ---------------------------------------------------------------- lines of the proof


def proof_lines(seed: int = 0, rounds: int = 200) -> Study:
    """Check the lines of the proof of Theorem 2 on one least-squares problem.

    A line that is wrong on one problem is wrong; one that is right there may still be
    wrong elsewhere. ``instead`` says what holds in its place.

    Parameters
    ----------
    seed : int
        What draws the problem.
    rounds : int
        T.

    Returns
    -------
    dict
        Table ``table``: ``line, says, holds, measured, instead``.
    """
    problem, labels = _least_squares(seed)
    case = at_edge(problem, t2.of_clusters(labels))
    linked = Case(problem, t2.ring_of(labels), case.step)
    path = case.run(rounds)
    bound = case.printed_bound(path)
    rows = [
        _line_13(case, path),
        _line_23(path),
        _line_24("24, disjoint clusters", case),
        _line_24("24, linked clusters", linked),
        _line_27(case, path),
        _line_28(path.mean_gap, bound),
        _line_28_alone(rounds),
        _line_21(path.mean_gap, bound, len(labels)),
        _unequal_starts(at_edge(problem, linked.A), rounds),
        _line_29(case, rounds),
        _line_32(case),
        _line_36(rounds, seed),
    ]
    return {"tables": {"table": pd.DataFrame(rows)}}


def _line(
    line: str, says: str, *, holds: bool, measured: str, instead: str
) -> dict[str, str]:
    """Return a row of the table."""
    return {
        "line": line,
        "says": says,
        "holds": "yes" if holds else "no",
        "measured": measured,
        "instead": instead,
    }


def _own_optima(problem: problems.Problem) -> np.ndarray:
    """Return the best model of each client (M, d)."""
    M, _ = problem.shape
    return problem.optimum(np.arange(M))


def _line_13(case: Case, path: t2.Path) -> dict[str, str]:
    """Test Equation 13, which takes F for its gradient, far from the start."""
    far = 1000 * _own_optima(case.problem)
    apart = abs(case.problem.losses(far).sum() - path.loss[0])
    factor = apart / np.linalg.norm(far)
    return _line(
        "13",
        "|F(a) - F(b)| ≤ L ‖a - b‖",
        holds=factor <= case.smoothness,
        measured=f"factor {factor:.0f}, L is {case.smoothness:.1f}",
        instead="holds for the gradient of F",
    )


def _line_23(path: t2.Path) -> dict[str, str]:
    """Test Equation 23, which drops a square.

    The cross term is zero here, so the line says -||dW||^2 / eta <= -||dW|| / eta.
    """
    short = np.flatnonzero(np.sqrt(path.gap[1:]) < 1)
    measured = "‖dW‖ is above 1"
    if len(short):
        measured = f"‖dW‖ is below 1 from round {short[0] + 1} on"
    return _line(
        "23",
        "first term -‖dW‖ / η",
        holds=not len(short),
        measured=measured,
        instead="-‖dW‖² / η, and then it is an equality",
    )


def _line_24(line: str, case: Case) -> dict[str, str]:
    """Test what a round moves."""
    error = _error_of_24(case, local_steps=1)
    return _line(
        line,
        "dW = -η A ∇F",
        holds=error < EQUAL,
        measured=_in_words(error),
        instead="true if A W = W: disjoint clusters, all start alike",
    )


def _line_32(case: Case) -> dict[str, str]:
    """Test the same with five local steps."""
    error = _error_of_24(case, local_steps=5)
    return _line(
        "32",
        "as 24, with E = 5",
        holds=error < EQUAL,
        measured=_in_words(error),
        instead="a sum of E gradients at E points",
    )


EQUAL = 1e-9
"""Relative error below which two vectors count as equal."""


def _error_of_24(case: Case, local_steps: int) -> float:
    """Return the largest relative error of Equation 24 over the first 20 rounds.

    It says ``W^t - W^(t-1) = -eta A grad F(W^(t-1))``.
    """
    worst = 0.0
    W = np.zeros(case.problem.shape)
    for _ in range(20):
        new = case.run(1, local_steps=local_steps, start=W).end
        moved = new - W
        said = -case.step * case.A @ case.problem.gradients(W)
        error = np.linalg.norm(moved - said) / np.linalg.norm(moved)
        worst = max(worst, float(error))
        W = new
    return worst


def _in_words(error: float) -> str:
    """Format a relative error; ``dW`` is the change of a round."""
    return "equal" if error < EQUAL else f"off by up to {error:.0f} ‖dW‖"


def _line_27(case: Case, path: t2.Path) -> dict[str, str]:
    """Compare the gradient with the step in round 20."""
    moved = np.sqrt(path.gap[20])
    times = path.gradient[19] / (case.smoothness * moved)
    return _line(
        "27",
        "‖∇F‖ ≤ L ‖dW‖",
        holds=times <= 1,
        measured=f"round 20: {times:.0f} times as long",
        instead="the term is 0 where A W = W",
    )


def _line_28(gap: np.ndarray, bound: np.ndarray) -> dict[str, str]:
    """Test the bound after one round."""
    return _line(
        "28",
        "numerator F(W¹) - F(Wᵀ)",
        holds=gap[1] <= bound[1],
        measured=f"T = 1: gap {gap[1]:.2f}, bound {bound[1]:.2f}",
        instead="F(W⁰) - F(Wᵀ)",
    )


def _line_28_alone(rounds: int) -> dict[str, str]:
    """Test the bound on one client with mu = L = 1."""
    ones = np.ones((1, 4))
    even = problems.Problem("least squares", 2 * np.eye(4)[None], ones, 0.0, ones)
    alone = Case(even, np.eye(1), EDGE)
    path = alone.run(rounds)
    gap = path.mean_gap[-1]
    bound = alone.printed_bound(path)[-1]
    return _line(
        "28",
        "the same, T = 200",
        holds=gap <= bound,
        measured=f"one client, equal curvature: gap {gap:.4f}, bound {bound:.4f}",
        instead="F(W⁰) - F(Wᵀ)",
    )


def _line_21(gap: np.ndarray, bound: np.ndarray, n_clients: int) -> dict[str, str]:
    """Test the factor M: G_W is the gap of all models, so the left has it M times."""
    of_one_client = bound[2:] / n_clients
    over = np.max(gap[2:] / of_one_client)
    return _line(
        "21",
        "the factor M",
        holds=bool(over <= 1),
        measured=f"gap up to {over:.1f} times the bound",
        instead="G_W of client i, not of all models",
    )


def _unequal_starts(linked: Case, rounds: int) -> dict[str, str]:
    """Test the bound from clients' own optima on a graph that is no clustering."""
    path = linked.run(rounds, start=_own_optima(linked.problem))
    gap = path.mean_gap[-1]
    bound = linked.printed_bound(path)[-1]
    return _line(
        "21, linked clusters",
        "holds for any A",
        holds=gap <= bound,
        measured=f"start at the local optima: gap {gap:.4f}, bound {bound:.4f}",
        instead="the contraction bound",
    )


def _line_29(case: Case, rounds: int) -> dict[str, str]:
    """Take a step far beyond the printed limit."""
    beyond = Case(case.problem, case.A, 1.9 / case.smoothness)
    gap = beyond.run(5 * rounds).gap
    settles = gap[-1] < 1e-6 * gap[1]
    return _line(
        "29",
        "η must be below 0.62 / L",
        holds=not settles,
        measured="1.9 / L settles" if settles else "1.9 / L does not settle",
        instead="below 2 / L is enough",
    )


def _line_36(rounds: int, seed: int) -> dict[str, str]:
    """Compare both sides of Equation 36 with 50 local steps."""
    found = epochs((50,), rounds, (seed,))["tables"]["table"].iloc[0]
    left = found["Eq. 36, left"]
    right = found["Eq. 36, right"]
    return _line(
        "36",
        "averaging keeps 35",
        holds=left <= right,
        measured=f"E = 50: {left:.2f} against {right:.2f}",
        instead="true without averaging",
    )
