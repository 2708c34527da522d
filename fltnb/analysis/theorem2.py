"""Tables of FLT's Theorem 2: gap and bounds, step sizes, local epochs, and the lines of its proof one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..theory import convergence as t2
from ..theory import problems

if TYPE_CHECKING:
    import pandas as pd

    from ..notebook import Claims

EDGE = 0.9  # share of the printed limit that the runs take as their step


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


class Drawn(NamedTuple):
    """A problem with what the tables need of it."""

    problem: problems.Problem
    labels: np.ndarray
    mu: float
    L: float


def drawn(kind: str, seed: int) -> Drawn:
    """Draw the clients of Theorem 2's tables: 12 in 3 clusters, 12 samples for 8 weights each."""
    problem, labels = problems.draw(kind, seed=seed)
    return Drawn(problem, labels, *problem.curvature)


def gap_curves(kind: str, rounds: int, seeds: tuple[int, ...]) -> pd.DataFrame:
    """Mean optimality gap and its bounds against T, at 0.9 of the admissible step.

    Returns
    -------
    DataFrame
        For about 25 values of T: ``problem, graph, seed, T, gap, printed, projection, contraction``, and ``fifth``: the
        gap with 20 % of the clients per round.
    """
    import pandas as pd

    frames = []
    # 1 to T in equal ratios, and T / 4 to compare with
    shown = np.unique(np.append(np.geomspace(1, rounds, 24).round().astype(int), rounds // 4))
    for seed in seeds:
        problem, labels, mu, L = drawn(kind, seed)
        for name, A in graphs(labels).items():
            step = EDGE * t2.step_limit(L, A)
            path = t2.iterate(problem, A, step, rounds)
            part = t2.iterate(problem, A, step, rounds, participation=0.2, seed=seed)
            columns = {
                "gap": path.mean_gap,
                "printed": t2.printed_bound(path, step, L, A),
                "projection": t2.projection_bound(path, step, L),
                "contraction": t2.contraction_bound(path, step, (mu, L), A),
                "fifth": part.mean_gap,
            }
            frame = pd.DataFrame(columns).assign(problem=kind, graph=name, seed=seed, T=np.arange(rounds + 1))
            frames.append(frame[["problem", "graph", "seed", "T", *columns]].iloc[shown])
    return pd.concat(frames, ignore_index=True)


def reading_table(rounds: int, seeds: tuple[int, ...]) -> pd.DataFrame:
    """Compare what Theorem 2 sees of five client graphs with what it does not see.

    Returns
    -------
    DataFrame
        Means over seeds on least squares: gap and its slope against T (``log gap / log T`` over the last half),
        training loss per client, and the squared error of the weights, which is twice the excess loss on new data.
    """
    import pandas as pd

    rows = []
    for seed in seeds:
        problem, labels, _, L = drawn("least squares", seed)
        for name, A in graphs(labels).items():
            path = t2.iterate(problem, A, EDGE * t2.step_limit(L, A), rounds)
            half = rounds // 2
            slope = np.log(path.mean_gap[rounds] / path.mean_gap[half]) / np.log(rounds / half)
            row = {"graph": name, "mean gap": path.mean_gap[rounds], "slope": slope}
            row["training loss"] = path.loss[rounds] / len(labels)
            rows.append(row | {"error on new data": ((path.end - problem.truth) ** 2).sum(axis=1).mean()})
    return pd.DataFrame(rows).groupby("graph", sort=False).mean().reset_index()


def step_table(steps: tuple[float, ...], rounds: int, seeds: tuple[int, ...]) -> pd.DataFrame:
    """Step sizes through and beyond the admissible range, least squares.

    Parameters
    ----------
    steps : tuple of float
        eta L.
    rounds : int
    seeds : tuple of int

    Returns
    -------
    DataFrame
        For two graphs, means over seeds: ``eta L``, ``printed factor`` (denominator of Equation 28, times eta; must
        be positive), the mean gap, its printed and corrected bound (NaN where they say nothing), and ``settles``: the
        share of seeds in which the last gap is below the first by a factor of 100 or more.
    """
    import pandas as pd

    rows = []
    for name in ("alone", "true clusters"):
        for scaled in steps:
            for seed in seeds:
                problem, labels, _, L = drawn("least squares", seed)
                A, step = graphs(labels)[name], scaled / L
                path = t2.iterate(problem, A, step, rounds)
                factor = t2.denominator(step, L, A)
                row = {"graph": name, "eta L": scaled, "printed factor": step * factor, "mean gap": path.mean_gap[-1]}
                row["printed bound"] = t2.printed_bound(path, step, L, A)[-1] if factor > 0 else np.nan
                row["corrected bound"] = t2.projection_bound(path, step, L)[-1] if scaled < 2 else np.nan
                rows.append(row | {"settles": float(path.gap[-1] < 0.01 * path.gap[1])})
    return pd.DataFrame(rows).groupby(["graph", "eta L"], sort=False).mean().reset_index()


def epochs_table(local_steps: tuple[int, ...], rounds: int, seeds: tuple[int, ...]) -> pd.DataFrame:
    """Several local steps per round (Appendix B.2, Equations 30 to 38), true clusters, least squares.

    Returns
    -------
    DataFrame
        Means over seeds: ``mean gap`` after all rounds, the bounds of Equations 34 and 38 (``holds``: share of
        seeds in which they do), left and right side of Equation 36 in the last round, and the excess of the
        training loss over the best that the clusters can reach, after 5 rounds and after all.
    """
    import pandas as pd

    rows = []
    for E in local_steps:
        for seed in seeds:
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
    return pd.DataFrame(rows).groupby("E", sort=False).mean().reset_index()


def lines_table(seed: int = 0, rounds: int = 200) -> pd.DataFrame:
    """Check the lines of the proof of Theorem 2 one by one on one least-squares problem.

    Returns
    -------
    DataFrame
        ``line, says, holds, measured, instead``.
    """
    import pandas as pd

    problem, labels, _, L = drawn("least squares", seed)
    clusters, ring = t2.of_clusters(labels), t2.ring_of(labels)
    step = EDGE * t2.step_limit(L, clusters)
    path = t2.iterate(problem, clusters, step, rounds)
    own = problem.optimum(np.arange(len(labels)))
    rows = []

    def add(line: str, says: str, holds: bool, measured: str, instead: str) -> None:
        rows.append((line, says, bool(holds), measured, instead))

    far = abs(problem.losses(1000 * own).sum() - path.loss[0]) / np.linalg.norm(1000 * own)
    add("13", "|F(a) - F(b)| ≤ L ‖a - b‖", far <= L, f"factor {far:.0f}, L is {L:.1f}", "holds for the gradient of F")
    moved = np.sqrt(path.gap[1:])
    # the cross term is zero here, so the line says -||dW||^2 / eta <= -||dW|| / eta
    short = np.flatnonzero(moved < 1)
    text = f"‖dW‖ is below 1 from round {short[0] + 1} on" if len(short) else "‖dW‖ is above 1"
    add("23", "first term -‖dW‖ / η", not len(short), text, "-‖dW‖² / η, and then it is an equality")
    for name, A in (("disjoint clusters", clusters), ("linked clusters", ring)):
        off = _equation24(problem, A, step, 1)
        add(f"24, {name}", "dW = -η A ∇F", off < 1e-9, _off(off), "true if A W = W: disjoint clusters, all start alike")
    times = path.gradient[19] / (L * moved[19])
    add("27", "‖∇F‖ ≤ L ‖dW‖", times <= 1, f"round 20: {times:.0f} times as long", "the term is 0 where A W = W")
    gap, bound = path.mean_gap, t2.printed_bound(path, step, L, clusters)
    text = f"T = 1: gap {gap[1]:.2f}, bound {bound[1]:.2f}"
    add("28", "numerator F(W¹) - F(Wᵀ)", gap[1] <= bound[1], text, "F(W⁰) - F(Wᵀ)")
    even = problems.Problem("least squares", 2 * np.eye(4)[None], np.ones((1, 4)), 0.0, np.ones((1, 4)))  # mu = L = 1
    alone = t2.iterate(even, np.eye(1), EDGE, rounds)
    gap, bound = alone.mean_gap[-1], t2.printed_bound(alone, EDGE, 1.0, np.eye(1))[-1]
    text = f"one client, equal curvature: gap {gap:.4f}, bound {bound:.4f}"
    add("28", "the same, T = 200", gap <= bound, text, "F(W⁰) - F(Wᵀ)")
    over = np.max(path.mean_gap[2:] / t2.printed_bound(path, step, L, clusters, whole=True)[2:])
    add("21", "the factor M", over <= 1, f"gap up to {over:.1f} times the bound", "G_W of client i, not of all models")
    step_ring = EDGE * t2.step_limit(L, ring)
    warm = t2.iterate(problem, ring, step_ring, rounds, start=own)
    gap, bound = warm.mean_gap[-1], t2.printed_bound(warm, step_ring, L, ring)[-1]
    text = f"start at the local optima: gap {gap:.4f}, bound {bound:.4f}"
    add("21, linked clusters", "holds for any A", gap <= bound, text, "the contraction bound")
    beyond = t2.iterate(problem, clusters, 1.9 / L, 5 * rounds)
    settles = beyond.gap[-1] < 1e-6 * beyond.gap[1]
    text = f"1.9 / L {'settles' if settles else 'does not settle'}"
    add("29", "η must be below 0.62 / L", not settles, text, "below 2 / L is enough")
    off = _equation24(problem, clusters, step, 5)
    add("32", "as 24, with E = 5", off < 1e-9, _off(off), "a sum of E gradients at E points")
    e = epochs_table((50,), rounds, (seed,)).iloc[0]
    left, right = e["Eq. 36, left"], e["Eq. 36, right"]
    add("36", "averaging keeps 35", left <= right, f"E = 50: {left:.2f} against {right:.2f}", "true without averaging")
    return pd.DataFrame(rows, columns=["line", "says", "holds", "measured", "instead"])


def _off(share: float) -> str:
    return "equal" if share < 1e-9 else f"off by up to {share:.0f} ‖dW‖"


def _equation24(problem: problems.Problem, A: np.ndarray, step: float, local_steps: int) -> float:
    """Largest relative error of ``W^t - W^(t-1) = -eta A grad F(W^(t-1))`` over the first 20 rounds."""
    worst, W = 0.0, np.zeros(problem.shape)
    for _ in range(20):
        new = t2.iterate(problem, A, step, 1, local_steps, start=W).end
        moved = -step * A @ problem.gradients(W)
        worst = max(worst, float(np.linalg.norm(new - W - moved) / np.linalg.norm(new - W)))
        W = new
    return worst


def theorem2_claims(claims: Claims, gap: pd.DataFrame, steps: pd.DataFrame, epochs: pd.DataFrame) -> None:
    """Check what the paper says about Theorem 2.

    Parameters
    ----------
    claims : Claims
        List to add to.
    gap, steps, epochs : DataFrame
        Of :func:`gap_curves` (several kinds stacked), :func:`step_table` and :func:`epochs_table`.
    """
    _gap_claims(claims, gap)
    _step_claim(claims, steps)
    _epochs_claims(claims, epochs)


def _gap_claims(claims: Claims, gap: pd.DataFrame) -> None:
    last = gap["T"].max()
    runs = gap.set_index(["problem", "graph", "seed", "T"])["gap"].unstack("T")
    fall = runs[last // 4] / runs[last]
    claims.check(
        "the mean gap falls like 1 / T, on every graph",
        bool(((fall > 3.5) & (fall < 4.5)).all()),
        f"four times the rounds: {fall.min():.2f} to {fall.max():.2f} times smaller",
        claim="flt-thm2",
    )
    holds = gap["gap"] <= gap["printed"]
    first = gap["T"] == 1
    claims.check(
        "the bound of Theorem 2 holds as printed for every T looked at",
        bool(holds.all()),
        f"T = 1: in {holds[first].mean():.0%} of the runs (its right side is 0); T > 1: in {holds[~first].mean():.0%}",
    )
    disjoint = gap[gap["graph"] != "linked clusters"]
    claims.check(
        "both corrected bounds hold for every T looked at",
        bool((disjoint["gap"] <= disjoint["projection"]).all() and (gap["gap"] <= gap["contraction"]).all()),
        f"{len(gap)} cases",
        must=True,
    )
    fifth = gap[(gap["T"] == last) & (gap["graph"] == "true clusters")]
    ratio = (fifth["fifth"] / fifth["gap"]).median()
    sentence = "the gap falls as fast with a fifth of the clients per round, as FLT is run"
    claims.check(sentence, bool(ratio < 2), f"after {last} rounds {ratio:.0f} times the gap with all clients (median)")


def _step_claim(claims: Claims, steps: pd.DataFrame) -> None:
    beyond = steps[(steps["printed factor"] <= 0) & (steps["eta L"] < 2)]
    worst = steps[steps["settles"] < 1].groupby("graph")["eta L"].min()
    claims.check(
        "the step must be below the printed limit for the gap to fall",
        bool((beyond["settles"] < 1).any()),
        "settles in all draws up to 2 / L; not any more at " + ", ".join(f"{x:g} / L ({g})" for g, x in worst.items()),
        claim="flt-thm2-step",
    )


def _epochs_claims(claims: Claims, epochs: pd.DataFrame) -> None:
    share = ", ".join(f"E = {E:g} {s:.0%}" for E, s in zip(epochs["E"], epochs["38 holds"], strict=True))
    sentence = "Equation 38, which falls with E, bounds the gap"
    claims.check(sentence, bool((epochs["38 holds"] == 1).all()), f"share of draws: {share}", claim="flt-thm2-epochs")
    one, best, most = epochs.iloc[0], epochs.loc[epochs["excess after 5"].idxmin()], epochs.iloc[-1]
    claims.check(
        "more local epochs bring the loss down faster at first",
        bool(best["E"] > 1),
        f"excess after 5 rounds: {one['excess after 5']:.2f} with E = 1, {best['excess after 5']:.2f} with"
        f" E = {best['E']:g}, {most['excess after 5']:.2f} with E = {most['E']:g}",
    )
    claims.check(
        "more local epochs end as well as one",
        bool(most["excess at the end"] <= 1.1 * one["excess at the end"]),
        f"excess at the end: {one['excess at the end']:.3f} with E = 1, {most['excess at the end']:.3f} with"
        f" E = {most['E']:g}",
    )
