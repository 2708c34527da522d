"""EMD-CFL's inequalities (arXiv 2506.07769, Section 2), both sides as numbers.

Clients hold embeddings z and labels 0 or 1: the paper assumes binary classification. A
hypothesis is a logistic regression on the embeddings, ``h(z) = s(w z + b)``, which is
Lipschitz with ``|w| / 4``. W is the earth mover's distance with the Euclidean distance
as cost: the theory needs a metric, whereas the method itself uses the cosine distance.

Expectations are means over samples, so that each inequality holds exactly, not only
with some probability, whenever its premises hold.
"""

from collections.abc import Sequence
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist, pdist
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from ..clustering.solvers import uniform_cost
from ..errors import FltnbError


class Sample(NamedTuple):
    """Embeddings (n, d) and their labels (n,), 0 or 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import embeddings
    >>> sample = embeddings.Sample(z=np.zeros((4, 2)), y=np.array([0, 1, 0, 1]))
    >>> sample.z.shape
    (4, 2)
    """

    z: np.ndarray
    y: np.ndarray


class Sides(NamedTuple):
    """Both sides of an inequality, and its constant: L or M.

    Examples
    --------
    >>> from fltnb.theory import embeddings
    >>> lemma = embeddings.Sides(left=0.2, right=0.5, constant=1.0)
    >>> lemma.left <= lemma.right
    True
    """

    left: float
    right: float
    constant: float


# ---------------------------------------------------------------- hypotheses


def earth_movers(x: np.ndarray, y: np.ndarray) -> float:
    """Return the exact earth mover's distance of two samples, Euclidean cost.

    Parameters
    ----------
    x, y : float arrays (n, d), (m, d)
        Samples with equal weights.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import embeddings
    >>> x = np.array([[0.0], [1.0]])
    >>> round(embeddings.earth_movers(x, x + 2), 6)
    2.0
    """
    return uniform_cost(cdist(x, y), 10_000_000)


def fitted(sample: Sample) -> np.ndarray:
    """Return the weights (d + 1,) of a logistic regression on a sample, the bias last.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import embeddings
    >>> rng = np.random.default_rng(0)
    >>> z, y = rng.normal(size=(20, 2)), np.arange(20) % 2
    >>> embeddings.fitted((z, y)).shape
    (3,)
    """
    model = LogisticRegression(max_iter=1000)
    model.fit(*sample)
    return np.append(model.coef_[0], model.intercept_)


def values(theta: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return the values (n,) of a hypothesis at embeddings, between 0 and 1.

    Parameters
    ----------
    theta : float array (d + 1,)
        Weights of :func:`fitted`.
    z : float array (n, d)
        Embeddings.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import embeddings
    >>> embeddings.values(np.zeros(3), np.ones((2, 2))).tolist()
    [0.5, 0.5]
    """
    weights = theta[:-1]
    bias = theta[-1]
    return expit(z @ weights + bias)


def lipschitz(*thetas: np.ndarray) -> float:
    """Return a common Lipschitz constant of hypotheses (d + 1,), max of ``|w| / 4``.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import embeddings
    >>> embeddings.lipschitz(np.array([3.0, 4.0, 1.0]))  # two weights and a bias
    1.25
    """
    return max(float(np.linalg.norm(theta[:-1])) / 4 for theta in thetas)


def error(theta: np.ndarray, sample: Sample) -> float:
    """Return the error of a hypothesis on a sample: the mean of ``|h(z) - y|``.

    ``theta`` (d + 1,): its weights, as of :func:`fitted`.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import embeddings
    >>> z, y = np.ones((4, 2)), np.arange(4) % 2
    >>> embeddings.error(np.zeros(3), (z, y))  # it says 1/2 everywhere
    0.5
    """
    z, y = sample
    return float(np.abs(values(theta, z) - y).mean())


def disagreement(h: np.ndarray, g: np.ndarray, z: np.ndarray) -> float:
    """Return the disagreement of two hypotheses: the mean of ``|h(z) - g(z)|``.

    ``h, g`` (d + 1,): their weights, as of :func:`fitted`; ``z`` (n, d): embeddings.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import embeddings
    >>> no, yes = np.array([0.0, -50.0]), np.array([0.0, 50.0])  # weight and bias
    >>> round(float(embeddings.disagreement(no, yes, np.zeros((3, 1)))), 6)
    1.0
    """
    return np.abs(values(h, z) - values(g, z)).mean()


def gradients(theta: np.ndarray, sample: Sample) -> np.ndarray:
    """Return the gradients (n, d + 1) of the log loss at a hypothesis, one per sample.

    ``theta`` (d + 1,): its weights, as of :func:`fitted`.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import embeddings
    >>> rng = np.random.default_rng(0)
    >>> z, y = rng.normal(size=(20, 2)), np.arange(20) % 2
    >>> embeddings.gradients(np.zeros(3), (z, y)).shape
    (20, 3)
    """
    z, y = sample
    residuals = values(theta, z) - y
    inputs = np.column_stack([z, np.ones(len(z))])
    return residuals[:, None] * inputs


def mean_gradient(theta: np.ndarray, sample: Sample) -> np.ndarray:
    """Return the gradient (d + 1,) of the mean log loss, the mean of :func:`gradients`.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import embeddings
    >>> sample = embeddings.Sample(np.array([[1.0], [3.0]]), np.array([1, 1]))
    >>> embeddings.mean_gradient(np.zeros(2), sample).tolist()
    [-1.0, -0.5]
    """
    return gradients(theta, sample).mean(axis=0)


def steepest(theta: np.ndarray, one: Sample, other: Sample) -> float:
    """Return M: how fast gradients change with embeddings between two samples.

    ``theta`` (d + 1,): the hypothesis at which gradients are taken. M is the smallest
    constant for which Theorem 2.4's premise holds on the samples. It grows without
    limit as samples of different labels approach each other.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import embeddings
    >>> rng = np.random.default_rng(0)
    >>> z, y = rng.normal(size=(20, 2)), np.arange(20) % 2
    >>> embeddings.steepest(np.zeros(3), (z, y), (z + 1, y)) >= 0
    True
    """
    apart = cdist(one[0], other[0])  # distances of embeddings
    changed = cdist(gradients(theta, one), gradients(theta, other))
    alike = apart == 0
    if (changed[alike] > 0).any():
        return np.inf  # one embedding has both labels
    rates = changed[~alike] / apart[~alike]
    return float(rates.max())


def descended(theta: np.ndarray, sample: Sample, lr: float, steps: int) -> np.ndarray:
    """Return the parameters (d + 1,) after steps of full gradient descent.

    Parameters
    ----------
    theta : float array (d + 1,)
        Parameters at the start.
    sample : Sample
    lr : float
        Step size.
    steps : int

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import embeddings
    >>> rng = np.random.default_rng(0)
    >>> z, y = rng.normal(size=(20, 2)), np.arange(20) % 2
    >>> embeddings.descended(np.zeros(3), (z, y), lr=0.1, steps=3).shape
    (3,)
    """
    for _ in range(steps):
        theta = theta - lr * mean_gradient(theta, sample)
    return theta


# ---------------------------------------------------------------- inequalities


def inequalities(
    clients: Sequence[Sample], lr: float = 0.01, steps: int = 10
) -> pd.DataFrame:
    """Compute both sides of Section 2's inequalities for all ordered pairs of clients.

    Parameters
    ----------
    clients : sequence of (float array (n, d), int array (n,))
        Embeddings and labels of each client.
    lr, steps : float, int
        Step size, and number of steps beyond the first of Corollary 2.5.

    Returns
    -------
    DataFrame
        One row per pair and statement: ``statement`` ("Lemma 2.1", "Theorem 2.2",
        "Corollary 2.3", "Theorem 2.4", "Corollary 2.5", and "Corollary 2.5, several
        steps", which its premise excludes), ``i, j``, ``left, right``, ``emd``,
        ``constant`` (L or M).

    Raises
    ------
    FltnbError
        A client has one label only.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import embeddings
    >>> rng = np.random.default_rng(0)
    >>> z, y = rng.normal(size=(20, 2)), np.arange(20) % 2
    >>> embeddings.inequalities([(z, y), (z + 1, y)])["statement"].nunique()
    6
    """
    clients = [Sample(*client) for client in clients]
    for number, client in enumerate(clients):
        if len(np.unique(client.y)) < 2:
            raise FltnbError(
                f"Client {number} has only one label: give it samples of both."
            )

    own = [fitted(client) for client in clients]
    start = np.mean(own, axis=0)
    distances = _distances(clients)
    rows = []
    for i, j in permutations(range(len(clients)), 2):
        emd = distances[i, j]
        found = _generalisation(clients[i], clients[j], own[i], own[j], emd)
        found.update(_parameters(clients[i], clients[j], start, emd, lr, steps))
        for statement, sides in found.items():
            row = {
                "statement": statement,
                "i": i,
                "j": j,
                "left": sides.left,
                "right": sides.right,
                "emd": emd,
                "constant": sides.constant,
            }
            rows.append(row)
    return pd.DataFrame(rows)


def _distances(clients: Sequence[Sample]) -> np.ndarray:
    """Return the earth mover's distances of all pairs of clients (M, M)."""
    distances = np.zeros((len(clients), len(clients)))
    for i, j in combinations(range(len(clients)), 2):
        distances[i, j] = earth_movers(clients[i].z, clients[j].z)
    return distances + distances.T


def _generalisation(
    one: Sample, other: Sample, h: np.ndarray, g: np.ndarray, emd: float
) -> dict[str, Sides]:
    """Return both sides, and L, of Section 2.2's statements about two clients.

    h and g are the clients' own hypotheses, eps_i the error on client i, W the distance
    ``emd``. The target t is the even mixture of both clients; its distance to each is
    W / 2. lambda_i, the least eps_i + eps_t of all hypotheses, is taken from the one
    fitted to both clients. Then

    - Lemma 2.1: the disagreement on the other client is at most that on the first one,
      plus 2 L W;
    - Theorem 2.2: eps_t(h) is at most eps_1(h) + 2 L W / 2 + lambda_1;
    - Corollary 2.3: eps_t of the mean of h and g is at most the mean of both clients'
      right sides.
    """
    L = lipschitz(h, g)
    here = disagreement(h, g, one.z)
    there = disagreement(h, g, other.z)
    lemma = Sides(there, here + 2 * L * emd, L)

    z = np.concatenate([one.z, other.z])
    y = np.concatenate([one.y, other.y])
    joint = fitted(Sample(z, y))
    L = lipschitz(h, g, joint)
    on_target = _even(joint, one, other)
    lambda_one = error(joint, one) + on_target
    lambda_other = error(joint, other) + on_target
    bound = error(h, one) + 2 * L * emd / 2 + lambda_one
    theorem = Sides(_even(h, one, other), bound, L)

    own_errors = error(h, one) + error(g, other)
    bound = (own_errors + (lambda_one + lambda_other)) / 2 + L * emd
    of_ensemble = _error_of_ensemble(h, g, one) + _error_of_ensemble(h, g, other)
    corollary = Sides(float(of_ensemble / 2), bound, L)
    return {"Lemma 2.1": lemma, "Theorem 2.2": theorem, "Corollary 2.3": corollary}


def _even(theta: np.ndarray, one: Sample, other: Sample) -> float:
    """Return the error on the even mixture of two clients."""
    return (error(theta, one) + error(theta, other)) / 2


def _error_of_ensemble(h: np.ndarray, g: np.ndarray, sample: Sample) -> float:
    """Return the error of the mean of two hypotheses."""
    mean = (values(h, sample.z) + values(g, sample.z)) / 2
    return np.abs(mean - sample.y).mean()


def _parameters(
    one: Sample, other: Sample, start: np.ndarray, emd: float, lr: float, steps: int
) -> dict[str, Sides]:
    """Return both sides, and M, of Section 2.3's statements about two clients.

    Theorem 2.4: the gradients of both clients' losses at one hypothesis, ``start``
    (d + 1,), differ by at most M W. Corollary 2.5: so after one step of size ``lr`` the
    parameters differ by at most lr M W. After several ``steps`` both clients are at
    different hypotheses, and the statement says nothing.
    """
    M = steepest(start, one, other)
    apart = _apart(mean_gradient(start, one), mean_gradient(start, other))
    found = {"Theorem 2.4": Sides(apart, M * emd, M)}

    numbers = {"Corollary 2.5": 1, "Corollary 2.5, several steps": steps}
    for name, number in numbers.items():
        end_one = descended(start, one, lr, number)
        end_other = descended(start, other, lr, number)
        found[name] = Sides(_apart(end_one, end_other), lr * M * emd, M)
    return found


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    """Return the Euclidean distance of two vectors."""
    return float(np.linalg.norm(one - other))


# ---------------------------------------------------------------- projections


def projected(
    points: np.ndarray, shares: Sequence[float], repeats: int = 10, seed: int = 0
) -> pd.DataFrame:
    """Project points at random and compare their squared distances (Lemma A.4).

    Parameters
    ----------
    points : float array (n, d)
        Points that coincide are left out.
    shares : sequence of float
        Shares of the dimensions that are kept.
    repeats : int
        Number of projections for each share.
    seed : int

    Returns
    -------
    DataFrame
        One row per share: ``share``, ``dimensions`` k, ``off`` (largest relative change
        of a squared distance, mean over the projections), ``needed``: the dimensions
        that the lemma needs for this accuracy.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.theory import embeddings
    >>> x = np.random.default_rng(0).normal(size=(10, 50))
    >>> embeddings.projected(x, shares=[0.5, 0.9]).shape
    (2, 4)
    """
    rng = np.random.default_rng(seed)
    squared = pdist(points, "sqeuclidean")
    there = squared > 0
    dimension = points.shape[1]
    rows = []
    for share in shares:
        k = max(1, round(share * dimension))
        changes = []
        for _ in range(repeats):
            matrix = rng.standard_normal((dimension, k)) / np.sqrt(k)
            again = pdist(points @ matrix, "sqeuclidean")
            ratio = again[there] / squared[there]
            changes.append(np.abs(ratio - 1).max())
        off = np.mean(changes)
        row = {
            "share": share,
            "dimensions": k,
            "off": off,
            "needed": dimensions_needed(len(points), min(off, 0.99)),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def dimensions_needed(n_points: int, epsilon: float) -> int:
    """Return a number of dimensions in which n points keep their squared distances.

    They change by a relative ``epsilon`` (above 0, below 1) at most, for some random
    projection. This is Dasgupta and Gupta's form of the Johnson-Lindenstrauss lemma.

    Examples
    --------
    >>> from fltnb.theory import embeddings
    >>> [embeddings.dimensions_needed(100, epsilon) for epsilon in (0.1, 0.2)]
    [3948, 1063]
    """
    room = epsilon**2 / 2 - epsilon**3 / 3
    return int(np.ceil(4 * np.log(n_points) / room))
