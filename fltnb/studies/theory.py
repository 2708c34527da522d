"""Studies of notebook 06: FLT's two theorems (arXiv 2103.15947, Section 3, Appendix B) beside what is measured.

Each function returns ``{"tables": {"table": DataFrame}}``, which :meth:`fltnb.results.Job.study` keeps.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd

from .. import encoders, federations
from ..theory import clustering as t1
from ..theory import convergence as t2
from ..theory import problems
from .common import Settings, Study

EDGE = 0.9  # share of the printed limit that the runs take as their step


def _study(rows: Sequence[Settings], by: Sequence[str] = ()) -> Study:
    """Return rows as a study's table, or their means over the seeds of each group."""
    table = pd.DataFrame(rows)
    table = table.groupby(list(by), sort=False).mean().reset_index() if by else table
    return {"tables": {"table": table}}


def centroids(
    errors: Sequence[float], samples: Sequence[int], repeats: int, seed: int = 0
) -> Study:
    """Theorem 1 in its own setting: measured error, exact error and three forms of the bound.

    Returns a dict: columns ``p, n, measured, exact`` and one for each of :data:`fltnb.theory.clustering.FORMS`.
    ``errors``: p, of a single sample; ``samples``: n per client and label; ``repeats``: draws behind each number.
    """
    rows = []
    for p, n in product(errors, samples):
        mixture = t1.Mixture(error=p)
        counts, e = mixture.counts(n), mixture.dimension
        row = {"p": p, "n": n, "measured": t1.measured_error(mixture, n, repeats, seed)}
        row["exact"] = t1.exact_error(counts, e, p)
        rows.append(row | {form: t1.bound(counts, e, p, form) for form in t1.FORMS})
    return _study(rows)


def pipeline(
    p: float, samples: Sequence[int], ks: Sequence[int], repeats: int, seed: int = 0
) -> Study:
    """K-means and a distance threshold on the same embeddings (:func:`fltnb.theory.clustering.pipeline_errors`).

    Returns a dict: columns ``k, n, centroids, graph, pairs``; a k above a client's number of samples is left out.
    """
    mixture = t1.Mixture(error=p)
    tried = [
        (k, n) for k, n in product(ks, samples) if k <= n * mixture.labels_per_client
    ]
    return _study(
        [
            {"k": k, "n": n, **t1.pipeline_errors(mixture, n, k, repeats, seed)}
            for k, n in tried
        ]
    )


def sample_bound(
    federation: Settings, encoder: Settings, seeds: Sequence[int]
) -> Study:
    """Theorem 1 for the embeddings of real clients.

    Returns a dict: ``numbers``: ``p`` (:func:`fltnb.theory.clustering.sample_error`), ``e`` and the bound in all forms.
    ``federation``, ``encoder``: embedded to find a single sample's error; ``seeds``: of the partitions averaged over.
    """
    fed = federations.build(federation)
    z = encoders.embed_clients(fed, encoders.build(encoder), n_jobs=1)
    p, e = t1.sample_error(z, [fed.labels[index] for index in fed.train]), z[0].shape[1]
    counts = [
        federations.build({**federation, "seed": seed}).label_counts() for seed in seeds
    ]
    bounds = {
        form: float(np.mean([t1.bound(own, e, p, form) for own in counts]))
        for form in t1.FORMS
    }
    return {"numbers": {"p": p, "e": e} | bounds}


def graphs(labels: np.ndarray) -> dict[str, np.ndarray]:
    """Row-normalised adjacencies to compare: alone, true clusters, wrong clusters, linked clusters, everybody."""
    M, C = len(labels), len(np.unique(labels))
    return {
        "alone": np.eye(M),
        "true clusters": t2.of_clusters(labels),
        "wrong clusters": t2.of_clusters(np.arange(M) % C),
        "linked clusters": t2.ring_of(labels),
        "everybody": t2.of_clusters(np.zeros(M)),
    }


def drawn(kind: str, seed: int) -> tuple[problems.Problem, np.ndarray, float, float]:
    """Draw Theorem 2's problem, 12 clients in 3 clusters, 12 samples for 8 weights each: with labels, mu and L."""
    problem, labels = problems.draw(kind, seed=seed)
    return problem, labels, *problem.curvature


def gap_curves(kinds: Sequence[str], rounds: int, seeds: Sequence[int]) -> Study:
    """Mean optimality gap and its bounds against T, at 0.9 of the admissible step.

    Returns a dict: for about 25 values of T: ``problem, graph, seed, T, gap, printed, projection, contraction``, and
    ``fifth``: the gap with 20 % of the clients per round.
    """
    rows = []
    # 1 to T in equal ratios, and T / 4 to compare with
    shown = np.unique(
        np.append(np.geomspace(1, rounds, 24).round().astype(int), rounds // 4)
    )
    for kind, seed in product(kinds, seeds):
        problem, labels, mu, L = drawn(kind, seed)
        for name, A in graphs(labels).items():
            step = EDGE * t2.step_limit(L, A)
            path = t2.iterate(problem, A, step, rounds)
            columns = {
                "gap": path.mean_gap,
                "printed": t2.printed_bound(path, step, L, A),
                "projection": t2.projection_bound(path, step, L),
                "contraction": t2.contraction_bound(path, step, (mu, L), A),
                "fifth": t2.iterate(
                    problem, A, step, rounds, participation=0.2, seed=seed
                ).mean_gap,
            }
            about = {"problem": kind, "graph": name, "seed": seed}
            rows += [
                about
                | {"T": int(T)}
                | {name: float(own[T]) for name, own in columns.items()}
                for T in shown
            ]
    return _study(rows)


def client_graphs(rounds: int, seeds: Sequence[int]) -> Study:
    """Compare what Theorem 2 sees of five client graphs with what it does not see.

    Returns a dict: means over seeds on least squares: gap and its slope against T (``log gap / log T`` over the last
    half), training loss per client, and the squared error of the weights, which is twice the excess loss on new data.
    """
    rows = []
    half = rounds // 2
    for seed in seeds:
        problem, labels, _, L = drawn("least squares", seed)
        for name, A in graphs(labels).items():
            path = t2.iterate(problem, A, EDGE * t2.step_limit(L, A), rounds)
            slope = np.log(path.mean_gap[rounds] / path.mean_gap[half]) / np.log(
                rounds / half
            )
            row = {"graph": name, "mean gap": path.mean_gap[rounds], "slope": slope}
            row["training loss"] = path.loss[rounds] / len(labels)
            rows.append(
                row
                | {
                    "error on new data": ((path.end - problem.truth) ** 2)
                    .sum(axis=1)
                    .mean()
                }
            )
    return _study(rows, by=["graph"])


def steps(steps: Sequence[float], rounds: int, seeds: Sequence[int]) -> Study:
    """Step sizes through and beyond the admissible range, least squares.

    Returns a dict: for two graphs, means over seeds: ``eta L``, ``limit`` (Equation 29, times L), ``printed factor``
    (denominator of Equation 28, times eta; must be positive), the mean gap, its printed and corrected bound (NaN where
    they say nothing), and ``settles``: the share of seeds in which the last gap is below the first by a factor of 100
    or more. ``steps``: eta L.
    """
    rows = []
    for name, scaled, seed in product(("alone", "true clusters"), steps, seeds):
        problem, labels, _, L = drawn("least squares", seed)
        A, step = graphs(labels)[name], scaled / L
        path = t2.iterate(problem, A, step, rounds)
        factor = t2.denominator(step, L, A)
        row = {
            "graph": name,
            "eta L": scaled,
            "limit": t2.step_limit(1.0, A),
            "printed factor": step * factor,
        }
        row["mean gap"] = path.mean_gap[-1]
        row["printed bound"] = (
            t2.printed_bound(path, step, L, A)[-1] if factor > 0 else np.nan
        )
        row["corrected bound"] = (
            t2.projection_bound(path, step, L)[-1] if scaled < 2 else np.nan
        )
        rows.append(row | {"settles": float(path.gap[-1] < 0.01 * path.gap[1])})
    return _study(rows, by=["graph", "eta L"])


def epochs(local_steps: Sequence[int], rounds: int, seeds: Sequence[int]) -> Study:
    """Several local steps per round (Appendix B.2, Equations 30 to 38), true clusters, least squares.

    Returns a dict: means over seeds: ``mean gap`` after all rounds, the bounds of Equations 34 and 38 (``holds``: share
    of seeds in which they do), left and right side of Equation 36 in the last round, and the excess of the training
    loss over the best that the clusters can reach, after 5 rounds and after all.
    """
    rows = []
    for E, seed in product(local_steps, seeds):
        problem, labels, _, L = drawn("least squares", seed)
        A = t2.of_clusters(labels)
        step = EDGE * t2.step_limit(L, A)
        path = t2.iterate(problem, A, step, rounds, local_steps=E)
        own = problem.optimum(np.arange(len(labels)))
        best = problem.losses(problem.optimum(labels)).sum()
        gap, T = path.mean_gap[-1], rounds
        eq34 = t2.printed_bound(path, step, L, A)[T]
        eq38 = t2.local_epochs_bound(path, step, L, A, E, own)[T]
        row = {"E": E, "mean gap": gap, "Eq. 34": eq34, "34 holds": float(gap <= eq34)}
        row |= {"Eq. 38": eq38, "38 holds": float(gap <= eq38)}
        row["Eq. 36, left"] = path.loss[-1] - problem.losses(own).sum()
        row["Eq. 36, right"] = ((path.before - own) ** 2).sum() / (2 * step * E)
        row["excess after 5"] = (path.loss[5] - best) / len(labels)
        rows.append(row | {"excess at the end": (path.loss[-1] - best) / len(labels)})
    return _study(rows, by=["E"])


def proof_lines(seed: int = 0, rounds: int = 200) -> Study:
    """Check the lines of the proof of Theorem 2 one by one on one least-squares problem.

    Returns a dict: columns ``line, says, holds, measured, instead``.
    """
    problem, labels, _, L = drawn("least squares", seed)
    clusters, ring = t2.of_clusters(labels), t2.ring_of(labels)
    step = EDGE * t2.step_limit(L, clusters)
    path = t2.iterate(problem, clusters, step, rounds)
    own = problem.optimum(np.arange(len(labels)))
    rows = []

    def add(line: str, says: str, holds: bool, measured: str, instead: str) -> None:
        word = "yes" if holds else "no"
        rows.append(
            {
                "line": line,
                "says": says,
                "holds": word,
                "measured": measured,
                "instead": instead,
            }
        )

    far = abs(problem.losses(1000 * own).sum() - path.loss[0]) / np.linalg.norm(
        1000 * own
    )
    add(
        "13",
        "|F(a) - F(b)| ≤ L ‖a - b‖",
        far <= L,
        f"factor {far:.0f}, L is {L:.1f}",
        "holds for the gradient of F",
    )
    moved = np.sqrt(path.gap[1:])
    # the cross term is zero here, so the line says -||dW||^2 / eta <= -||dW|| / eta
    short = np.flatnonzero(moved < 1)
    text = (
        f"‖dW‖ is below 1 from round {short[0] + 1} on"
        if len(short)
        else "‖dW‖ is above 1"
    )
    add(
        "23",
        "first term -‖dW‖ / η",
        not len(short),
        text,
        "-‖dW‖² / η, and then it is an equality",
    )
    alike = "true if A W = W: disjoint clusters, all start alike"
    for name, A in (("disjoint clusters", clusters), ("linked clusters", ring)):
        add(f"24, {name}", "dW = -η A ∇F", *_equation24(problem, A, step, 1), alike)
    times = path.gradient[19] / (L * moved[19])
    add(
        "27",
        "‖∇F‖ ≤ L ‖dW‖",
        times <= 1,
        f"round 20: {times:.0f} times as long",
        "the term is 0 where A W = W",
    )
    gap, bound = path.mean_gap, t2.printed_bound(path, step, L, clusters)
    text = f"T = 1: gap {gap[1]:.2f}, bound {bound[1]:.2f}"
    add("28", "numerator F(W¹) - F(Wᵀ)", gap[1] <= bound[1], text, "F(W⁰) - F(Wᵀ)")
    even = problems.Problem(
        "least squares", 2 * np.eye(4)[None], np.ones((1, 4)), 0.0, np.ones((1, 4))
    )  # mu = L = 1
    alone = t2.iterate(even, np.eye(1), EDGE, rounds)
    gap, bound = alone.mean_gap[-1], t2.printed_bound(alone, EDGE, 1.0, np.eye(1))[-1]
    text = f"one client, equal curvature: gap {gap:.4f}, bound {bound:.4f}"
    add("28", "the same, T = 200", gap <= bound, text, "F(W⁰) - F(Wᵀ)")
    # G_W is defined as the gap of all models: summed over the clients it stands on the left M times
    over = np.max(
        path.mean_gap[2:]
        / (t2.printed_bound(path, step, L, clusters)[2:] / len(labels))
    )
    add(
        "21",
        "the factor M",
        over <= 1,
        f"gap up to {over:.1f} times the bound",
        "G_W of client i, not of all models",
    )
    step_ring = EDGE * t2.step_limit(L, ring)
    warm = t2.iterate(problem, ring, step_ring, rounds, start=own)
    gap, bound = warm.mean_gap[-1], t2.printed_bound(warm, step_ring, L, ring)[-1]
    text = f"start at the local optima: gap {gap:.4f}, bound {bound:.4f}"
    add(
        "21, linked clusters",
        "holds for any A",
        gap <= bound,
        text,
        "the contraction bound",
    )
    beyond = t2.iterate(problem, clusters, 1.9 / L, 5 * rounds)
    settles = beyond.gap[-1] < 1e-6 * beyond.gap[1]
    text = f"1.9 / L {'settles' if settles else 'does not settle'}"
    add("29", "η must be below 0.62 / L", not settles, text, "below 2 / L is enough")
    add(
        "32",
        "as 24, with E = 5",
        *_equation24(problem, clusters, step, 5),
        "a sum of E gradients at E points",
    )
    e = epochs((50,), rounds, (seed,))["tables"]["table"].iloc[0]
    left, right = e["Eq. 36, left"], e["Eq. 36, right"]
    add(
        "36",
        "averaging keeps 35",
        left <= right,
        f"E = 50: {left:.2f} against {right:.2f}",
        "true without averaging",
    )
    return _study(rows)


def _equation24(
    problem: problems.Problem, A: np.ndarray, step: float, local_steps: int
) -> tuple[bool, str]:
    """Whether ``W^t - W^(t-1) = -eta A grad F(W^(t-1))`` over the first 20 rounds, and the largest relative error."""
    worst, W = 0.0, np.zeros(problem.shape)
    for _ in range(20):
        new = t2.iterate(problem, A, step, 1, local_steps, start=W).end
        moved = -step * A @ problem.gradients(W)
        worst = max(
            worst, float(np.linalg.norm(new - W - moved) / np.linalg.norm(new - W))
        )
        W = new
    return worst < 1e-9, "equal" if worst < 1e-9 else f"off by up to {worst:.0f} ‖dW‖"
