"""Optimal transport by POT; its status is checked before its numbers are used."""

import warnings

import numpy as np

from ..errors import FltnbError

OPTIMAL = 1  # POT's code of a solved problem
STATUS = {
    0: "the shares of the two sides do not sum to the same",
    2: "a cost is not bounded",
    3: "the solver reached its limit of steps",
}
SUM = 1e-12  # how far float64 shares may be from 1; beyond it they are renormalised
ABOUT = 1e-2  # how far shares sent with fewer digits may be from 1
SINKHORN_STEPS = 1000  # POT's own limit; a plan that has nearly converged is accepted
SINKHORN_STOP = 1e-6
ASTRAY = 1e-3  # mass that a plan may move to a wrong place
LARGEST_REGULARISATION = 100.0


def exact_cost(
    shares: np.ndarray, other: np.ndarray, cost: np.ndarray, most_steps: int
) -> float:
    """Return the cost of the cheapest transport from shares (n,) to others (m,).

    It uses POT's inner function, because ``emd2`` takes ten times as long for checks.
    Raises FltnbError if the problem was not solved (POT returns 0 as its cost).
    """
    from ot.lp.emd_wrap import emd_c

    cost = np.ascontiguousarray(cost)
    _, total, _, _, code = emd_c(shares, other, cost, most_steps, 1)
    check_status(code)
    return total


def uniform_cost(cost: np.ndarray, most_steps: int) -> float:
    """Return the cheapest transport at costs (n, m) between samples of equal weight."""
    import ot

    weights = [ot.unif(size) for size in cost.shape]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the status is checked
        total, log = ot.emd2(*weights, cost, numItermax=most_steps, log=True)
    check_status(log["result_code"])
    return float(total)


def check_status(code: int) -> None:
    """Refuse the result of a transport problem that POT did not solve."""
    if code != OPTIMAL:
        why = STATUS.get(code, f"code {code}")
        raise FltnbError(
            f"A transport distance could not be computed ({why}): check that samples "
            "and shares are finite, and the shares at least 0."
        )


def received_shares(shares: np.ndarray, client: int) -> np.ndarray:
    """Return shares that a client sent, as float64 with the sum 1, or refuse them.

    If shares were rounded before they were sent, their sum is not exactly 1, and POT
    does not solve the problem.
    """
    shares = np.asarray(shares, dtype=np.float64)
    total = shares.sum()
    if not (shares >= 0).all() or not abs(total - 1) <= ABOUT:
        raise FltnbError(
            f"The shares that client {client} sent sum to {total:g}, or some are "
            "negative: they must be its shares of samples, which sum to 1."
        )
    return shares if abs(total - 1) <= SUM else shares / total


def sinkhorn_cost(cost: np.ndarray, regularisation: float) -> float:
    """Return the entropic transport's cost between samples of equal weight.

    Raises FltnbError, which names a regularisation that works, if the plan did not
    converge.
    """
    plan = _settled_plan(cost, regularisation)
    if plan is not None:
        return float((plan * cost).sum())

    works = regularisation
    while works < LARGEST_REGULARISATION:
        works = 2 * works
        if _settled_plan(cost, works) is not None:
            break
    raise FltnbError(
        f"Sinkhorn's plan does not converge at regularisation={regularisation:g}: take "
        f'{works:g} or more, or distance="exact".'
    )


def _settled_plan(cost: np.ndarray, regularisation: float) -> np.ndarray | None:
    """Return the entropic plan (n, m), or None where it does not converge."""
    import ot

    # on logarithms the sums cannot underflow, at several times the work
    for solve in (ot.sinkhorn, ot.bregman.sinkhorn_log):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # the plan itself is checked
            plan = solve(
                [],
                [],
                cost,
                regularisation,
                numItermax=SINKHORN_STEPS,
                stopThr=SINKHORN_STOP,
                warn=False,
            )
        if _is_settled(plan):
            return plan
    return None


def _is_settled(plan: np.ndarray) -> bool:
    """Whether a plan (n, m) has the right sums: equal parts from and to all clients."""
    if not np.isfinite(plan).all():
        return False
    n, m = plan.shape
    astray = np.abs(plan.sum(axis=1) - 1 / n).sum()
    astray += np.abs(plan.sum(axis=0) - 1 / m).sum()
    return bool(astray <= ASTRAY)
