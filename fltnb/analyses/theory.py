"""FLT's two theorems (arXiv 2103.15947, Section 3, Appendix B) beside what is measured.

Each study returns its table as ``{"tables": {"table": DataFrame}}`` (notebook 06).
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from .. import encoders, federations
from ..theory import clustering as t1
from ..theory import convergence as t2
from ..theory import problems

Settings = dict[str, Any]
Study = dict[str, Any]
EDGE = 0.9
"""Share of the printed limit that runs take as their step."""


def _study(rows: Sequence[Settings], by: Sequence[str] = ()) -> Study:
    """Return rows as a study's table, or their means over the seeds of each group."""
    table = pd.DataFrame(rows)
    if by:
        table = table.groupby(list(by), sort=False).mean().reset_index()
    return {"tables": {"table": table}}


# ---------------------------------------------------------------- Theorem 1


def centroids(
    errors: Sequence[float], samples: Sequence[int], repeats: int, seed: int = 0
) -> Study:
    """Theorem 1 in its own setting: measured and exact error, three forms of the bound.

    Columns: ``p, n, measured, exact`` and one for each of
    :data:`fltnb.theory.clustering.FORMS`. ``errors``: p, of a single sample;
    ``samples``: n, per client and label; ``repeats``: draws behind each number.
    """
    rows = []
    for p, n in product(errors, samples):
        mixture = t1.Mixture(error=p)
        counts = mixture.counts(n)
        e = mixture.dimension
        row = {"p": p, "n": n}
        row["measured"] = t1.measured_error(mixture, n, repeats, seed)
        row["exact"] = t1.exact_error(counts, e, p)
        for form in t1.FORMS:
            row[form] = t1.bound(counts, e, p, form)
        rows.append(row)
    return _study(rows)


def pipeline(
    p: float, samples: Sequence[int], ks: Sequence[int], repeats: int, seed: int = 0
) -> Study:
    """K-means and a distance threshold on the same embeddings.

    See :func:`fltnb.theory.clustering.pipeline_errors`. Columns: ``k, n, centroids,
    graph, pairs``; a k above a client's number of samples is left out.
    """
    mixture = t1.Mixture(error=p)
    rows = []
    for k, n in product(ks, samples):
        if k <= n * mixture.labels_per_client:
            errors = t1.pipeline_errors(mixture, n, k, repeats, seed)
            rows.append({"k": k, "n": n} | errors)
    return _study(rows)


def sample_bound(
    federation: Settings, encoder: Settings, seeds: Sequence[int]
) -> Study:
    """Theorem 1 for the embeddings of real clients.

    Returns ``numbers``: ``p`` (:func:`fltnb.theory.clustering.sample_error`), ``e`` and
    the bound in all forms, mean over the partitions of ``seeds``. One partition is
    embedded for ``p``, since embedding is most of the work.
    """
    fed = federations.build(federation)
    z = encoders.embed_clients(fed, encoders.build(encoder), n_jobs=1)
    p = t1.sample_error(z, [fed.labels[index] for index in fed.train])
    e = z[0].shape[1]

    drawn = [federations.build(federation | {"seed": seed}) for seed in seeds]
    counts = [one.label_counts() for one in drawn]
    numbers = {"p": p, "e": e}
    for form in t1.FORMS:
        numbers[form] = float(np.mean([t1.bound(own, e, p, form) for own in counts]))
    return {"numbers": numbers}


# ---------------------------------------------------------------- Theorem 2


def graphs(labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return row-normalised adjacencies to compare, by name."""
    M = len(labels)
    C = len(np.unique(labels))
    return {
        "alone": np.eye(M),
        "true clusters": t2.of_clusters(labels),
        "wrong clusters": t2.of_clusters(np.arange(M) % C),
        "linked clusters": t2.ring_of(labels),
        "everybody": t2.of_clusters(np.zeros(M)),
    }


def drawn(kind: str, seed: int) -> tuple[problems.Problem, np.ndarray, float, float]:
    """Draw Theorem 2's problem; return it with labels, mu and L.

    12 clients in 3 clusters, with 12 samples for 8 weights each.
    """
    problem, labels = problems.draw(kind, seed=seed)
    mu, L = problem.curvature
    return problem, labels, mu, L


def gap_curves(kinds: Sequence[str], rounds: int, seeds: Sequence[int]) -> Study:
    """Mean optimality gap and its bounds against T, at 0.9 of the admissible step.

    Columns, for about 25 values of T: ``problem, graph, seed, T, gap, printed,
    projection, contraction``, and ``fifth``: the gap with 20 % of the clients a round.
    """
    # from 1 to T in equal ratios, and T / 4 to compare with
    shown = np.geomspace(1, rounds, 24).round().astype(int)
    shown = np.unique(np.append(shown, rounds // 4))
    rows = []
    for kind, seed in product(kinds, seeds):
        problem, labels, mu, L = drawn(kind, seed)
        for name, A in graphs(labels).items():
            step = EDGE * t2.step_limit(L, A)
            path = t2.iterate(problem, A, step, rounds)
            fifth = t2.iterate(problem, A, step, rounds, participation=0.2, seed=seed)
            columns = {
                "gap": path.mean_gap,
                "printed": t2.printed_bound(path, step, L, A),
                "projection": t2.projection_bound(path, step, L),
                "contraction": t2.contraction_bound(path, step, (mu, L), A),
                "fifth": fifth.mean_gap,
            }
            for T in shown:
                row = {"problem": kind, "graph": name, "seed": seed, "T": int(T)}
                for column, values in columns.items():
                    row[column] = float(values[T])
                rows.append(row)
    return _study(rows)


def client_graphs(rounds: int, seeds: Sequence[int]) -> Study:
    """Compare what Theorem 2 sees of five client graphs with what it does not see.

    Columns, means over seeds on least squares: the gap and its slope against T
    (``log gap / log T`` over the last half), training loss per client, and the squared
    error of the weights, which is twice the excess loss on new data.
    """
    rows = []
    half = rounds // 2
    for seed in seeds:
        problem, labels, _, L = drawn("least squares", seed)
        for name, A in graphs(labels).items():
            path = t2.iterate(problem, A, EDGE * t2.step_limit(L, A), rounds)
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
    return _study(rows, by=["graph"])


def steps(steps: Sequence[float], rounds: int, seeds: Sequence[int]) -> Study:
    """Step sizes through and beyond the admissible range, least squares.

    ``steps``: eta L. Columns, for two graphs, means over seeds: ``eta L``, ``limit``
    (Equation 29, times L), ``printed factor`` (denominator of Equation 28, times eta;
    must be positive), the mean gap, its printed and corrected bound (NaN where they say
    nothing), and ``settles``: the share of seeds in which the last gap is below a
    hundredth of the first.
    """
    rows = []
    for name, scaled, seed in product(("alone", "true clusters"), steps, seeds):
        problem, labels, _, L = drawn("least squares", seed)
        A = graphs(labels)[name]
        step = scaled / L
        path = t2.iterate(problem, A, step, rounds)
        factor = t2.denominator(step, L, A)
        printed = np.nan
        if factor > 0:
            printed = t2.printed_bound(path, step, L, A)[-1]
        corrected = np.nan
        if scaled < 2:
            corrected = t2.projection_bound(path, step, L)[-1]
        row = {
            "graph": name,
            "eta L": scaled,
            "limit": t2.step_limit(1.0, A),
            "printed factor": step * factor,
            "mean gap": path.mean_gap[-1],
            "printed bound": printed,
            "corrected bound": corrected,
            "settles": float(path.gap[-1] < 0.01 * path.gap[1]),
        }
        rows.append(row)
    return _study(rows, by=["graph", "eta L"])


def epochs(local_steps: Sequence[int], rounds: int, seeds: Sequence[int]) -> Study:
    """Several local steps a round (Appendix B.2, Equations 30 to 38), true clusters.

    Columns, means over seeds on least squares: ``mean gap`` after all rounds, the
    bounds of Equations 34 and 38 (``holds``: share of seeds in which they do), left and
    right side of Equation 36 in the last round, and the excess of the training loss
    over the best that the clusters can reach, after 5 rounds and after all.
    """
    rows = []
    for E, seed in product(local_steps, seeds):
        problem, labels, _, L = drawn("least squares", seed)
        A = t2.of_clusters(labels)
        step = EDGE * t2.step_limit(L, A)
        path = t2.iterate(problem, A, step, rounds, local_steps=E)
        own = problem.optimum(np.arange(len(labels)))
        best = problem.losses(problem.optimum(labels)).sum()
        gap = path.mean_gap[-1]
        eq34 = t2.printed_bound(path, step, L, A)[rounds]
        eq38 = t2.local_epochs_bound(path, step, L, A, E, own)[rounds]
        row = {
            "E": E,
            "mean gap": gap,
            "Eq. 34": eq34,
            "34 holds": float(gap <= eq34),
            "Eq. 38": eq38,
            "38 holds": float(gap <= eq38),
            "Eq. 36, left": path.loss[-1] - problem.losses(own).sum(),
            "Eq. 36, right": ((path.before - own) ** 2).sum() / (2 * step * E),
            "excess after 5": (path.loss[5] - best) / len(labels),
            "excess at the end": (path.loss[-1] - best) / len(labels),
        }
        rows.append(row)
    return _study(rows, by=["E"])


# ---------------------------------------------------------------- lines of the proof


def proof_lines(seed: int = 0, rounds: int = 200) -> Study:
    """Check the lines of the proof of Theorem 2 on one least-squares problem.

    Columns: ``line, says, holds, measured, instead``.
    """
    problem, labels, _, L = drawn("least squares", seed)
    clusters = t2.of_clusters(labels)
    ring = t2.ring_of(labels)
    step = EDGE * t2.step_limit(L, clusters)
    path = t2.iterate(problem, clusters, step, rounds)
    own = problem.optimum(np.arange(len(labels)))
    bound = t2.printed_bound(path, step, L, clusters)

    rows = _lines_of_smoothness(problem, path, own, L, step)
    alike = "true if A W = W: disjoint clusters, all start alike"
    for name, A in (("disjoint clusters", clusters), ("linked clusters", ring)):
        holds, error = _equation24(problem, A, step, 1)
        rows.append(_line(f"24, {name}", "dW = -η A ∇F", holds, error, alike))
    rows.append(_line_27(path, L))
    rows += _lines_28(path.mean_gap, bound, rounds)
    rows.append(_line_21(path.mean_gap, bound, len(labels)))
    rows.append(_unequal_starts(problem, ring, own, L, rounds))
    rows.append(_line_29(problem, clusters, L, rounds))
    holds, error = _equation24(problem, clusters, step, 5)
    instead = "a sum of E gradients at E points"
    rows.append(_line("32", "as 24, with E = 5", holds, error, instead))
    rows.append(_line_36(rounds, seed))
    return _study(rows)


def _line(line: str, says: str, holds: bool, measured: str, instead: str) -> Settings:
    """Return a row of the table."""
    return {
        "line": line,
        "says": says,
        "holds": "yes" if holds else "no",
        "measured": measured,
        "instead": instead,
    }


def _lines_of_smoothness(
    problem: problems.Problem, path: t2.Path, own: np.ndarray, L: float, step: float
) -> list[Settings]:
    """Equation 13, which takes F for its gradient, and 23, which drops a square."""
    apart = abs(problem.losses(1000 * own).sum() - path.loss[0])
    far = apart / np.linalg.norm(1000 * own)
    text = f"factor {far:.0f}, L is {L:.1f}"
    instead = "holds for the gradient of F"
    first = _line("13", "|F(a) - F(b)| ≤ L ‖a - b‖", far <= L, text, instead)

    # the cross term is zero here, so the line says -||dW||^2 / eta <= -||dW|| / eta
    short = np.flatnonzero(np.sqrt(path.gap[1:]) < 1)
    text = "‖dW‖ is above 1"
    if len(short):
        text = f"‖dW‖ is below 1 from round {short[0] + 1} on"
    instead = "-‖dW‖² / η, and then it is an equality"
    return [first, _line("23", "first term -‖dW‖ / η", not len(short), text, instead)]


def _line_27(path: t2.Path, L: float) -> Settings:
    """Compare the gradient with the step in round 20."""
    times = path.gradient[19] / (L * np.sqrt(path.gap[1:])[19])
    text = f"round 20: {times:.0f} times as long"
    instead = "the term is 0 where A W = W"
    return _line("27", "‖∇F‖ ≤ L ‖dW‖", times <= 1, text, instead)


def _lines_28(gap: np.ndarray, bound: np.ndarray, rounds: int) -> list[Settings]:
    """Test the bound after one round, and on one client with mu = L = 1."""
    instead = "F(W⁰) - F(Wᵀ)"
    text = f"T = 1: gap {gap[1]:.2f}, bound {bound[1]:.2f}"
    holds = gap[1] <= bound[1]
    first = _line("28", "numerator F(W¹) - F(Wᵀ)", holds, text, instead)

    ones = np.ones((1, 4))
    even = problems.Problem("least squares", 2 * np.eye(4)[None], ones, 0.0, ones)
    alone = t2.iterate(even, np.eye(1), EDGE, rounds)
    end = alone.mean_gap[-1]
    right = t2.printed_bound(alone, EDGE, 1.0, np.eye(1))[-1]
    text = f"one client, equal curvature: gap {end:.4f}, bound {right:.4f}"
    return [first, _line("28", "the same, T = 200", end <= right, text, instead)]


def _line_21(gap: np.ndarray, bound: np.ndarray, n_clients: int) -> Settings:
    """Test the factor M: G_W is the gap of all models, so the left has it M times."""
    over = np.max(gap[2:] / (bound[2:] / n_clients))
    text = f"gap up to {over:.1f} times the bound"
    instead = "G_W of client i, not of all models"
    return _line("21", "the factor M", over <= 1, text, instead)


def _unequal_starts(
    problem: problems.Problem, A: np.ndarray, own: np.ndarray, L: float, rounds: int
) -> Settings:
    """Test the bound from clients' own optima on a graph that is no clustering."""
    step = EDGE * t2.step_limit(L, A)
    warm = t2.iterate(problem, A, step, rounds, start=own)
    gap = warm.mean_gap[-1]
    bound = t2.printed_bound(warm, step, L, A)[-1]
    text = f"start at the local optima: gap {gap:.4f}, bound {bound:.4f}"
    line = "21, linked clusters"
    instead = "the contraction bound"
    return _line(line, "holds for any A", gap <= bound, text, instead)


def _line_29(
    problem: problems.Problem, A: np.ndarray, L: float, rounds: int
) -> Settings:
    """Take a step far beyond the printed limit."""
    beyond = t2.iterate(problem, A, 1.9 / L, 5 * rounds)
    settles = beyond.gap[-1] < 1e-6 * beyond.gap[1]
    text = "1.9 / L settles" if settles else "1.9 / L does not settle"
    instead = "below 2 / L is enough"
    return _line("29", "η must be below 0.62 / L", not settles, text, instead)


def _line_36(rounds: int, seed: int) -> Settings:
    """Compare both sides of Equation 36 with 50 local steps."""
    found = epochs((50,), rounds, (seed,))["tables"]["table"].iloc[0]
    left = found["Eq. 36, left"]
    right = found["Eq. 36, right"]
    text = f"E = 50: {left:.2f} against {right:.2f}"
    instead = "true without averaging"
    return _line("36", "averaging keeps 35", left <= right, text, instead)


def _equation24(
    problem: problems.Problem, A: np.ndarray, step: float, local_steps: int
) -> tuple[bool, str]:
    """Whether ``W^t - W^(t-1) = -eta A grad F(W^(t-1))`` over the first 20 rounds.

    Returns this, and the largest relative error in words.
    """
    worst = 0.0
    W = np.zeros(problem.shape)
    for _ in range(20):
        new = t2.iterate(problem, A, step, 1, local_steps, start=W).end
        moved = -step * A @ problem.gradients(W)
        error = np.linalg.norm(new - W - moved) / np.linalg.norm(new - W)
        worst = max(worst, float(error))
        W = new
    if worst < 1e-9:
        return True, "equal"
    return False, f"off by up to {worst:.0f} ‖dW‖"
