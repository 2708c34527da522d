"""Similarity of MT-HFL's users: Tables I and II, Figure 4, costs (notebook 09)."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from .. import encoders as encoding
from .. import federations, models
from ..clustering import EigenRelevance, MeanImage, eigen
from ..clustering.cuts import cut
from ..federations import SCALINGS
from ..metrics import adjusted_rand_index

Settings = dict[str, Any]
Study = dict[str, Any]
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

    Features are a list of (n_i, d), pixels by default.
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
    """Return mean and extreme similarity within and across ``tasks`` (M,), and the ARI.

    The ARI is of average linkage told the number of tasks. ``matrix`` (M, M): R, or 1
    less any distance.
    """
    same = tasks[:, None] == tasks
    within = matrix[same & ~np.eye(len(tasks), dtype=bool)]
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
    for (name, encoder), seed in product(encoders.items(), range(seeds)):
        z, tasks = users(federation | {"seed": seed}, encoder)
        up_to = min(most, z[0].shape[1], *map(len, z))
        yield name, seed, eigen.relevance_curve(z, up_to), tasks


def _mean(rows: list[Settings], by: list[str]) -> pd.DataFrame:
    """Return means over seeds."""
    return pd.DataFrame(rows).groupby(by, sort=False).mean().reset_index()


# ---------------------------------------------------------------- tables


def table1(
    federation: Settings, encoders: dict[str, Settings], seeds: int, most: int = 50
) -> Study:
    """Similarity of Table I's five users, for every feature map.

    Table ``separation`` has ``features, eigenvectors`` (up to ``most``), and means of
    :func:`separation` over seeds, of the ARI the lowest. Table ``pairs``, of the first
    seed with five eigenvectors: ``features, user_i, user_j, similarity``. Table
    ``printed``: the same of the map nearest to the paper's.
    """
    rows = []
    pairs = []
    for name, seed, curve, tasks in _curved(federation, encoders, seeds, most):
        for p, R in enumerate(curve, 1):
            about = {"features": name, "eigenvectors": p}
            rows.append(about | separation(R, tasks))
        if seed == 0:
            for (i, j), similarity in np.ndenumerate(curve[EIGENVECTORS - 1]):
                pairs.append((name, i + 1, j + 1, similarity))

    over_seeds = pd.DataFrame(rows).groupby(["features", "eigenvectors"], sort=False)
    table = over_seeds[["within", "within_min", "across", "across_max"]].mean()
    table = table.assign(ari=over_seeds["ari"].min()).reset_index()

    columns = ["features", "user_i", "user_j", "similarity"]
    every = pd.DataFrame(pairs, columns=columns)
    name, otherwise = _nearest(encoders)
    printed = every[every["features"] == name].drop(columns="features")
    printed = printed.rename(columns={"similarity": "value"})
    printed = printed.assign(seed=0, otherwise=otherwise)
    return {"tables": {"separation": table, "pairs": every, "printed": printed}}


def table2(
    federation: Settings, encoders: dict[str, Settings], seeds: int, most: int = 20
) -> Study:
    """Similarity of Table II's user 1 to users 2 (same theme, other data set) and 3.

    Tables ``similarity`` (``features, eigenvectors, seed, user2, user3``), ``printed``.
    """
    rows = []
    for name, seed, curve, _ in _curved(federation, encoders, seeds, most):
        for p in (1, 2, 3, 5, 10, 20):
            if p <= len(curve):
                R = curve[p - 1]
                rows.append((name, p, seed, R[0, 1], R[0, 2]))
    columns = ["features", "eigenvectors", "seed", "user2", "user3"]
    return {"tables": tables2(pd.DataFrame(rows, columns=columns))}


def tables2(similarity: pd.DataFrame) -> Settings:
    """Add to the table of :func:`table2` what stands beside the printed numbers."""
    name, otherwise = _nearest(similarity["features"])
    printed = similarity[similarity["features"] == name]
    printed = printed[printed["eigenvectors"] == EIGENVECTORS]
    printed = printed.melt(["seed"], ["user2", "user3"], "user_j")
    printed["user_j"] = printed["user_j"].map({"user2": 2, "user3": 3})
    printed = printed.assign(user_i=1, otherwise=otherwise)
    return {"similarity": similarity, "printed": printed}


def _nearest(features: Iterable[str]) -> tuple[str, str]:
    """Name the features nearest to an ImageNet ResNet-18's, and how they depart."""
    names = {
        "ResNet-18, ImageNet": "",
        "EfficientNet-Lite0, ImageNet": ", EfficientNet-Lite0",
        "ResNet-18, random": ", random weights for ImageNet's",
        "pixels": ", pixels",
    }
    given = set(features)
    name = next(name for name in names if name in given)
    return name, f"p = {EIGENVECTORS} chosen by us{names[name]}"


# ---------------------------------------------------------------- scales of pixels


def scales(federation: Settings, seeds: int) -> Study:
    """Similarity within and across tasks for the same pixels on other scales.

    Table ``scales``: ``scale`` and means of :func:`separation` over seeds.
    """
    rows = []
    for seed in range(seeds):
        z, tasks = users(federation | {"seed": seed})
        for name, moved in _scaled(z).items():
            R = EigenRelevance(1, EIGENVECTORS).fit(moved).relevance_
            rows.append({"scale": name} | separation(R, tasks))
    return {"tables": {"scales": _mean(rows, ["scale"])}}


def _scaled(z: list[np.ndarray]) -> dict[str, list[np.ndarray]]:
    """Return colour pixels in [0, 1] on every scale, colour by colour."""
    done = {}
    for name, (less, over) in SCALES.items():
        moved = [(x.reshape(len(x), -1, 3) - less) / over for x in z]
        done[name] = [x.reshape(len(x), -1) for x in moved]
    return done


def margins(federation: Settings, seeds: int, most: int = 20) -> Study:
    """Similarity by scale of the pixels, samples of a user, and eigenvectors.

    The scale "centred" takes each user's mean image away first. Table ``margins``:
    ``scale, samples, eigenvectors``, means of :func:`separation` over seeds, and
    ``gap``: ``within - across``.
    """
    rows = []
    for samples, seed in product(PER_USER, range(seeds)):
        held = {"samples_per_user": [samples, samples], "seed": seed}
        z, tasks = users(federation | held)
        centred = {"centred": [x - x.mean(axis=0) for x in z]}
        for name, moved in (_scaled(z) | centred).items():
            for p, R in enumerate(eigen.relevance_curve(moved, most), 1):
                row = {"scale": name, "samples": samples, "eigenvectors": p}
                rows.append(row | separation(R, tasks))
    table = _mean(rows, ["scale", "samples", "eigenvectors"])
    return {"tables": {"margins": table.assign(gap=table["within"] - table["across"])}}


# ---------------------------------------------------------------- ten users


def figure4(federation: Settings) -> Study:
    """Relevance of pixels for every number of eigenvectors (Figure 4).

    Table ``curve``: ``eigenvectors, user, task, relevance`` with user 0, and
    ``eigenvalue`` of user 0 over its first. Table ``separation``: of all ten users at
    growing numbers of eigenvectors, with the ``numbers`` that each sends.
    """
    z, tasks = users(federation)
    every = min(z[0].shape[1], *map(len, z))
    whole = eigen.relevance_curve(z, every)
    values = eigen.eigenpairs(z[0], every)[0]
    rows = []
    for p in (1, 2, 3, 5, 10, 20, 50, 100, 200, 500):
        if p < every:
            rows.append(_at(whole, p, tasks, z))
    rows.append(_at(whole, every, tasks, z))

    points = []
    for j in (0, 3, 6, 9):
        for p in range(every):
            eigenvalue = values[p] / values[0]
            points.append((p + 1, j, tasks[j], whole[p, 0, j], eigenvalue))
    columns = ["eigenvectors", "user", "task", "relevance", "eigenvalue"]
    curve = pd.DataFrame(points, columns=columns)
    return {"tables": {"curve": curve, "separation": pd.DataFrame(rows)}}


def _at(
    whole: np.ndarray, p: int, tasks: np.ndarray, z: list[np.ndarray]
) -> dict[str, float]:
    """Return a row of Figure 4's second table."""
    row = {"eigenvectors": p} | separation(whole[p - 1], tasks)
    row["numbers"] = p * z[0].shape[1]
    return row


def cost(
    federation: Settings, sent: Settings, model: str = "mlp32", k: int = 5
) -> Study:
    """Count what clustering the users sends, once, before training.

    MT-HFL's numbers are what the fitted clusterers counted; the other rows are the
    papers' formulas with this federation's sizes. ``sent``: the encoder that others
    send; the model is MT-HFL's own for such images. Table ``cost``: ``clustering,
    formula (all users), a user sends, a user receives, all users, kB`` (four bytes a
    number).
    """
    fed = federations.build(federation)
    z, _ = users(federation)
    M = fed.n_clients
    d = z[0].shape[1]
    five = EigenRelevance(3, EIGENVECTORS).fit(z)
    most = EigenRelevance(3, None).fit(z)
    pairs = most.eigenvalues_.shape[1]

    net = models.make(model, fed.input_shape, fed.n_classes)
    W = net.n_parameters
    last_layer = sum(int(np.prod(shape)) for _, shape in net.shapes[-2:])
    body = (M - 1) * (W - last_layer)
    other = encoding.EncoderSpec(**sent)
    W_enc = encoding.sent_parameters(other, fed.input_shape)
    signature = 2 * 10 * (other.latent + 1) + 3

    eigenvectors = "M(p d + M - 1) + M(M - 1) p d"
    signatures = "M(2k(e + 1) + 3) + M W_enc"
    of_pairs = "2 M(M - 1) W_emb"
    p_five = f"MT-HFL, p = {EIGENVECTORS}"
    p_most = f"MT-HFL, p = {pairs}, all there are"
    rows = [
        (p_five, eigenvectors, five.sent_[0], five.received_[0]),
        (p_most, "the same", most.sent_[0], most.received_[0]),
        (f"MT-HFL, p = d = {d}", "the same", d**2 + M - 1, (M - 1) * d**2),
        ("FLT's FCR", "M k e + M W_enc", k * other.latent, W_enc),
        ("Transport signatures (ours)", signatures, signature, W_enc),
        ("EMD-CFL, models of all pairs", of_pairs, body, body),
        ("comparing model weights", "2 M W", W, W),
    ]
    columns = ["clustering", "formula (all users)", "a user sends", "a user receives"]
    table = pd.DataFrame(rows, columns=columns)
    table["all users"] = M * (table["a user sends"] + table["a user receives"])
    return {"tables": {"cost": table.assign(kB=4 * table["all users"] / 1000)}}


def mean_image(federation: Settings, seeds: int) -> Study:
    """Cluster users by mean images alone, d numbers each, told the number of tasks.

    Numbers: ``exact`` of the seeds, ``of`` how many, and the ``lowest`` ARI.
    """
    found = []
    for seed in range(seeds):
        z, tasks = users(federation | {"seed": seed})
        labels = MeanImage(len(np.unique(tasks))).fit_predict(z)
        found.append(adjusted_rand_index(tasks, labels))
    exact = sum(ari == 1 for ari in found)
    return {"numbers": {"exact": exact, "of": seeds, "lowest": min(found)}}
