"""Similarity of MT-HFL's users: Tables I and II, Figure 4, costs (notebook 09)."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from .. import encoders as encoding
from .. import federations
from ..clustering import EigenRelevance, MeanImage, eigen
from ..clustering.cuts import cut
from ..federations import SCALINGS
from ..metrics import adjusted_rand_index
from .studies import Settings, Study, means

EIGENVECTORS = 5
"""The paper: "only five" (Section III)."""
SCALES = {
    "[0, 1]": SCALINGS["unit"],
    "[-1, 1]": SCALINGS["symmetric"],
    "ImageNet moments": SCALINGS["imagenet"],
}
PER_USER = (50, 200, 1000)
"""Samples of each of Table I's users in :func:`margins`."""


def users(
    settings: Settings, encoder: Settings | None = None
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return features of every user's training samples, and the tasks (M,).

    Parameters
    ----------
    settings : settings of the federation
    encoder : settings, optional
        Pixels by default.

    Returns
    -------
    (list of float arrays (n_i, d), int array (M,))
    """
    fed = federations.build(settings)
    spec = encoding.EncoderSpec(**(encoder or {"kind": "pixels"}))
    return encoding.embed_clients(fed, spec, n_jobs=1), fed.clusters


def options(encoder: encoding.EncoderSpec) -> Settings:
    """Return all options of an encoder but those of tuning, as :func:`users` takes it.

    Stored studies have them written out.
    """
    every = asdict(encoder)
    del every["tuning"], every["batch_norm"]
    return every


def separation(matrix: np.ndarray, tasks: np.ndarray) -> dict[str, float]:
    """Say how far users of different tasks are apart.

    Parameters
    ----------
    matrix : float array (M, M)
        R, or 1 less any distance.
    tasks : int array (M,)

    Returns
    -------
    dict
        Mean and extreme similarity within and across tasks, ``within, within_min,
        across, across_max``, and the ``ari`` of the clusters that average linkage finds
        when the number of tasks is given.
    """
    same = np.equal.outer(tasks, tasks)
    itself = np.eye(len(tasks), dtype=bool)
    within = matrix[same & ~itself]
    across = matrix[~same]
    tree = linkage(squareform(1 - matrix, checks=False), "average")
    labels = cut(tree, len(np.unique(tasks)))
    return {
        "within": float(within.mean()),
        "within_min": float(within.min()),
        "across": float(across.mean()),
        "across_max": float(across.max()),
        "ari": float(adjusted_rand_index(tasks, labels)),
    }


def _curved(
    federation: Settings, encoders: dict[str, Settings], seeds: int, most: int
) -> Iterator[tuple]:
    """Yield feature map, seed, relevances of 1, 2, ... eigenvectors, and the tasks."""
    for name, encoder in encoders.items():
        for seed in range(seeds):
            z, tasks = users(federation | {"seed": seed}, encoder)
            up_to = min(most, _all_eigenvectors(z))
            yield name, seed, eigen.relevance_curve(z, up_to), tasks


def _all_eigenvectors(z: list[np.ndarray]) -> int:
    """Return how many eigenvectors all users have: one for each sample or dimension."""
    return min(min(x.shape) for x in z)


# ---------------------------------------------------------------- tables


def table1(
    federation: Settings, encoders: dict[str, Settings], seeds: int, most: int = 50
) -> Study:
    """Similarity of Table I's five users, for every feature map.

    Parameters
    ----------
    federation : settings
    encoders : dict
        Name of a feature map -> its settings.
    seeds : int
        Federations, seeds 0, 1, ...
    most : int
        Eigenvectors at most.

    Returns
    -------
    dict
        Table ``separation``: ``features, eigenvectors``, and means of
        :func:`separation` over seeds, of the ARI the lowest. Table ``pairs``, of the
        first seed with five eigenvectors: ``features, user_i, user_j, similarity``.
        Table ``printed``: the same of the map nearest to the paper's.
    """
    rows = []
    pairs = []
    for name, seed, curve, tasks in _curved(federation, encoders, seeds, most):
        for p, R in enumerate(curve, 1):
            about = {"features": name, "eigenvectors": p}
            rows.append(about | separation(R, tasks))
        if seed == 0:
            pairs.append(_pairs(curve[EIGENVECTORS - 1]).assign(features=name))

    over_seeds = pd.DataFrame(rows).groupby(["features", "eigenvectors"], sort=False)
    table = over_seeds[["within", "within_min", "across", "across_max"]].mean()
    table["ari"] = over_seeds["ari"].min()

    columns = ["features", "user_i", "user_j", "similarity"]
    every = pd.concat(pairs, ignore_index=True)[columns]
    printed, otherwise = _nearest(every)
    printed = printed.rename(columns={"similarity": "value"})
    printed = printed.assign(seed=0, otherwise=otherwise)
    tables = {"separation": table.reset_index(), "pairs": every, "printed": printed}
    return {"tables": tables}


def _pairs(R: np.ndarray) -> pd.DataFrame:
    """Return similarities as ``user_i, user_j, similarity``, users counted from 1."""
    i, j = np.indices(R.shape).reshape(2, -1)
    return pd.DataFrame({"user_i": i + 1, "user_j": j + 1, "similarity": R.ravel()})


def table2(
    federation: Settings, encoders: dict[str, Settings], seeds: int, most: int = 20
) -> Study:
    """Similarity of Table II's user 1 to users 2 (same theme, other data set) and 3.

    Parameters
    ----------
    federation, encoders, seeds, most
        As for :func:`table1`.

    Returns
    -------
    dict
        Tables ``similarity`` (``features, eigenvectors, seed, user2, user3``),
        ``printed``.
    """
    rows = []
    for name, seed, curve, _ in _curved(federation, encoders, seeds, most):
        for p in (1, 2, 3, 5, 10, 20):
            if p <= len(curve):
                first_user = curve[p - 1, 0]
                row = {
                    "features": name,
                    "eigenvectors": p,
                    "seed": seed,
                    "user2": first_user[1],
                    "user3": first_user[2],
                }
                rows.append(row)
    return {"tables": tables2(pd.DataFrame(rows))}


def tables2(similarity: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Add to the table of :func:`table2` what stands beside the printed numbers.

    The paper prints the matrix's first row, in which user 1 is compared with 2 and 3.
    """
    own, otherwise = _nearest(similarity)
    own = own[own["eigenvectors"] == EIGENVECTORS]
    numbers = {"user2": 2, "user3": 3}
    printed = own.melt("seed", list(numbers), "user_j")
    printed["user_j"] = printed["user_j"].map(numbers)
    printed = printed.assign(user_i=1, otherwise=otherwise)
    return {"similarity": similarity, "printed": printed}


_NEAR = {
    "ResNet-18, ImageNet": "",
    "EfficientNet-Lite0, ImageNet": "EfficientNet-Lite0",
    "ResNet-18, random": "random weights for ImageNet's",
    "pixels": "pixels",
}
"""Features from those of the paper on -> how they depart from these."""
OTHER_FEATURES = tuple(filter(None, _NEAR.values()))
"""Phrases for features that stand in for the paper's, in ``otherwise`` of a study."""


def _nearest(found: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return the rows of the features nearest to the paper's, and how these depart.

    The first of :data:`_NEAR` that were computed: ImageNet's weights, or another
    network's, may be missing on a machine.
    """
    given = set(found["features"])
    name = next(name for name in _NEAR if name in given)
    own = found[found["features"] == name].drop(columns="features")
    phrases = [f"p = {EIGENVECTORS} chosen by us", _NEAR[name]]
    return own, ", ".join(filter(None, phrases))


# ---------------------------------------------------------------- scales of pixels


def scales(federation: Settings, seeds: int) -> Study:
    """Similarity within and across tasks for the same pixels on other scales.

    Parameters
    ----------
    federation : settings
    seeds : int
        Federations, seeds 0, 1, ...

    Returns
    -------
    dict
        Table ``scales``: ``scale`` and means of :func:`separation` over seeds.
    """
    rows = []
    for seed in range(seeds):
        z, tasks = users(federation | {"seed": seed})
        for name, moved in _scaled(z).items():
            fitted = EigenRelevance(1, EIGENVECTORS).fit(moved)
            rows.append({"scale": name} | separation(fitted.relevance_, tasks))
    return {"tables": {"scales": means(rows, ["scale"])}}


def _scaled(z: list[np.ndarray]) -> dict[str, list[np.ndarray]]:
    """Return colour pixels in [0, 1] on every scale, colour by colour.

    Means are not taken away before the eigenvectors are computed, so that the relevance
    depends on where the origin of the pixels is.
    """
    done: dict[str, list[np.ndarray]] = {}
    for name, (less, over) in SCALES.items():
        done[name] = []
        for x in z:
            moved = (x.reshape(len(x), -1, 3) - less) / over
            done[name].append(moved.reshape(len(x), -1))
    return done


def margins(federation: Settings, seeds: int, most: int = 20) -> Study:
    """Similarity by scale of the pixels, samples of a user, and eigenvectors.

    The scale "centred" takes each user's mean image away first.

    Parameters
    ----------
    federation : settings
    seeds : int
        Federations, seeds 0, 1, ...
    most : int
        Eigenvectors at most.

    Returns
    -------
    dict
        Table ``margins``: ``scale, samples, eigenvectors``, means of
        :func:`separation` over seeds, and ``gap``: ``within - across``.
    """
    rows = []
    for samples, seed in product(PER_USER, range(seeds)):
        held = {"samples_per_user": [samples, samples], "seed": seed}
        z, tasks = users(federation | held)
        on_scales = _scaled(z)
        on_scales["centred"] = [x - x.mean(axis=0) for x in z]
        for name, moved in on_scales.items():
            for p, R in enumerate(eigen.relevance_curve(moved, most), 1):
                row = {"scale": name, "samples": samples, "eigenvectors": p}
                rows.append(row | separation(R, tasks))
    table = means(rows, ["scale", "samples", "eigenvectors"])
    table["gap"] = table["within"] - table["across"]
    return {"tables": {"margins": table}}


# ---------------------------------------------------------------- ten users


def figure4(federation: Settings, seeds: int) -> Study:
    """Relevance of pixels for every number of eigenvectors (Figure 4).

    Parameters
    ----------
    federation : settings
    seeds : int
        Federations, seeds 0, 1, ...

    Returns
    -------
    dict
        Table ``curve``, of the first seed: ``eigenvectors, user, task, relevance`` with
        user 0, and ``eigenvalue`` of user 0 over its first. Table ``separation``: of
        all ten users at growing numbers of eigenvectors, for each ``seed``, with the
        ``numbers`` that each sends.
    """
    rows = []
    for seed in range(seeds):
        z, tasks = users(federation | {"seed": seed})
        every = _all_eigenvectors(z)
        whole = eigen.relevance_curve(z, every)
        for p in (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, every):
            if p <= every:
                row: dict[str, Any] = {"seed": seed, "eigenvectors": p}
                row.update(separation(whole[p - 1], tasks))
                row["numbers"] = p * z[0].shape[1]
                rows.append(row)
        if seed == 0:
            curve = _curve_of_first_user(z, tasks, whole)
    separations = pd.DataFrame(rows).drop_duplicates(["seed", "eigenvectors"])
    return {"tables": {"curve": curve, "separation": separations}}


def _curve_of_first_user(
    z: list[np.ndarray], tasks: np.ndarray, whole: np.ndarray
) -> pd.DataFrame:
    """Return relevance of some users for user 0, by the number of eigenvectors.

    ``whole`` (p, M, M): R for 1 to p eigenvectors.
    """
    every = len(whole)
    values, _ = eigen.eigenpairs(z[0], every)
    curves = []
    for user in range(0, len(z), 3):
        curve = {
            "eigenvectors": np.arange(1, every + 1),
            "user": user,
            "task": tasks[user],
            "relevance": whole[:, 0, user],
            "eigenvalue": values[:every] / values[0],
        }
        curves.append(pd.DataFrame(curve))
    return pd.concat(curves, ignore_index=True)


def cost(
    federation: Settings, sent: Settings, model: str = "mlp32", k: int = 5
) -> Study:
    """Count what clustering the users sends, once, before training.

    MT-HFL's numbers are what the fitted clusterers counted; the other rows are the
    papers' formulas with this federation's sizes.

    Parameters
    ----------
    federation : settings
    sent : settings of the encoder that others send
    model : str
        MT-HFL's own for such images.
    k : int
        FLT's centroids of a client.

    Returns
    -------
    dict
        Table ``cost``: ``clustering, formula (all users), a user sends, a user
        receives, all users, kB`` (four bytes a number).
    """
    from .. import models

    fed = federations.build(federation)
    z, _ = users(federation)
    M = fed.n_clients
    d = z[0].shape[1]
    five = EigenRelevance(3, EIGENVECTORS).fit(z)
    most = EigenRelevance(3, None).fit(z)
    pairs = most.eigenvalues_.shape[1]

    net = models.make(model, fed.input_shape, fed.n_classes)
    W = net.n_parameters
    weight_and_bias = net.shapes[-2:]
    last_layer = sum(int(np.prod(shape)) for _, shape in weight_and_bias)
    body = (M - 1) * (W - last_layer)
    other = encoding.EncoderSpec(**sent)
    W_enc = encoding.sent_parameters(other, fed.input_shape)
    signature = 2 * 10 * (other.latent + 1) + 3

    rows = [
        _sending(
            f"MT-HFL, p = {EIGENVECTORS}",
            "M(p d + M - 1) + M(M - 1) p d",
            sends=five.sent_[0],
            receives=five.received_[0],
        ),
        _sending(
            f"MT-HFL, p = {pairs}, all there are",
            "the same",
            sends=most.sent_[0],
            receives=most.received_[0],
        ),
        _sending(
            f"MT-HFL, p = d = {d}",
            "the same",
            sends=d**2 + M - 1,
            receives=(M - 1) * d**2,
        ),
        _sending(
            "FLT's FCR",
            "M k e + M W_enc",
            sends=k * other.latent,
            receives=W_enc,
        ),
        _sending(
            "Transport signatures (ours)",
            "M(2k(e + 1) + 3) + M W_enc",
            sends=signature,
            receives=W_enc,
        ),
        _sending(
            "EMD-CFL, models of all pairs",
            "2 M(M - 1) W_emb",
            sends=body,
            receives=body,
        ),
        _sending("comparing model weights", "2 M W", sends=W, receives=W),
    ]
    table = pd.DataFrame(rows)
    table["all users"] = M * (table["a user sends"] + table["a user receives"])
    table["kB"] = 4 * table["all users"] / 1000
    return {"tables": {"cost": table}}


def _sending(
    clustering: str, formula: str, *, sends: float, receives: float
) -> Settings:
    """Return a row of :func:`cost`."""
    return {
        "clustering": clustering,
        "formula (all users)": formula,
        "a user sends": sends,
        "a user receives": receives,
    }


def mean_image(federation: Settings, seeds: int) -> Study:
    """Cluster users by mean images alone, d numbers each, given the number of tasks.

    The simplest summary there is: if it finds the tasks too, eigenvectors are not
    needed for it.

    Parameters
    ----------
    federation : settings
    seeds : int
        Federations, seeds 0, 1, ...

    Returns
    -------
    dict
        Numbers: ``exact`` (seeds with an ARI of 1) ``of`` all, and the ``lowest`` ARI.
    """
    aris = []
    for seed in range(seeds):
        z, tasks = users(federation | {"seed": seed})
        labels = MeanImage(len(np.unique(tasks))).fit_predict(z)
        aris.append(adjusted_rand_index(tasks, labels))
    exact = sum(ari == 1 for ari in aris)
    return {"numbers": {"exact": exact, "of": seeds, "lowest": min(aris)}}
