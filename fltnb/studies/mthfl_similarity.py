"""Jobs of notebook 09: MT-HFL's Tables I and II and Figure 4, and what its clustering finds beside others.

The paper states neither samples per user nor the minority share of Fashion-MNIST: both are choices here. Training on
the clusters as the paper does it is notebook 10; here FLT trains on them, on the digits in every profile.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from .. import encoders, federations
from ..clustering import EigenRelevance, MeanImage, eigen
from ..clustering.cuts import cut
from ..federations import CIFAR10_TASKS, DIGITS_TASKS, FASHION_TASKS, SCALINGS
from ..metrics import adjusted_rand_index
from ..results import Job
from .common import CLIPS, SEEDS, Settings, Study, pixels, spec

EIGENVECTORS = 5  # "only five" (Section III)
SEEDS_OF = {
    "demo": {"ours": 3, "features": 1, "rivals": 1, "curves": 1, "tables": 2},
    "small": {"ours": 20, "features": 3, "rivals": 5, "curves": 5, "tables": 3},
    "paper": {"ours": 20, "features": 20, "rivals": 20, "curves": 20, "tables": 10},
}
MINORITIES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
NOISES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
EPSILONS = {
    "digits": (1, 10, 100, 1000),
    "fashion_mnist": (0.1, 0.3, 1, 3, 10, 30, 100),
}
SCALES = {
    "[0, 1]": SCALINGS["unit"],
    "[-1, 1]": SCALINGS["symmetric"],
    "ImageNet moments": SCALINGS["imagenet"],
}
PER_USER = (50, 200, 1000)
"""Samples of each of Table I's users, beside the scale of its pixels and the number of eigenvectors."""
_ONE = (tuple(range(10)),)
_TASKS = {
    "digits": {
        3: (DIGITS_TASKS, (5, 3, 2), (100, 60, 40)),
        2: (((0, 1, 2, 3, 4), (5, 6, 7, 8, 9)), (5, 5), (80, 80)),
        1: (_ONE, (10,), (80,)),
    },
    "fashion_mnist": {
        3: (FASHION_TASKS, (5, 3, 2), (1500, 1000, 500)),
        1: (_ONE, (10,), (1000,)),
    },
    "cifar10": {2: (CIFAR10_TASKS, (5, 5), (500, 500)), 1: (_ONE, (10,), (500,))},
}
"""Data set -> number of tasks -> their labels, users and samples of a user."""


def datasets(profile: str) -> tuple[str, ...]:
    """Return the data sets of a profile."""
    return ("digits",) if profile == "demo" else ("fashion_mnist", "cifar10")


def federation(
    dataset: str, count: int, seed: int = 0, minority: float = 0.1
) -> Settings:
    """Return the federation of 10 users with one, two or three tasks."""
    tasks, users, samples = _TASKS[dataset][count]
    held = {
        "kind": "tasks",
        "dataset": dataset,
        "tasks": [list(labels) for labels in tasks],
        "seed": seed,
    }
    held |= {"users_per_task": list(users), "samples_per_user": list(samples)}
    return held | {"minority": minority if count > 1 else 0.0}


def features(dataset: str) -> dict[str, Settings]:
    """Return the feature maps Phi that are compared, by name; none has seen a user's data."""
    if dataset == "digits":
        return {"pixels": pixels(), "PCA": spec("pca", "digits", latent=16)}
    grey = dataset == "fashion_mnist"
    public, random = (
        "emnist_balanced" if grey else "cifar100_disjoint",
        spec("resnet18", "random"),
    )
    maps = {"pixels": pixels(), "PCA": spec("pca", public, latent=32 if grey else 64)}
    return (
        maps
        | {"ConvAE": spec("convae", public, 8)}
        | ({} if grey else {"ResNet-18, random": random})
    )


def jobs(profile: str) -> list[Job]:
    """Tables I and II, Figure 4 and what is sent; the study of clusterings; FLT trained on the clusters."""
    # FLT's case II on the clusters of eigen-relevance: three tasks of the embedded digits, in every profile
    found = {
        "kind": "FLT",
        "graph": "clusters",
        "clusterer": clusterer("mthfl", "digits", 3)[0],
        "encoder": pixels(),
    }
    training = {
        "model": "mlp",
        "rounds": 15,
        "local_epochs": 2,
        "participation": 1.0,
        "batch_size": 10,
        "lr": 0.05,
    }
    axes = {"dataset": "digits", "variant": "as_written", "tasks": 3}
    trainings = [
        Job.training(
            federation("digits", 3, seed),
            how | {"rule": "participants"},
            **training,
            seed=seed,
            axes=axes,
        )
        for how in (
            {"name": "fedavg"},
            {"name": "flt_eigen"} | found,
            {"name": "oracle"},
        )
        for seed in SEEDS[profile]
    ]
    return [*_tables(profile), *_study(profile), *_curves(profile), *trainings]


def _tables(profile: str) -> Iterator[Job]:
    def study(function: str, dataset: str, settings: Settings, **axes: Any) -> Job:
        axes = {"method": "mthfl", "variant": "as_written", "dataset": dataset} | axes
        return Job.study(f"mthfl_similarity.{function}", settings, axes=axes)

    dataset, seeds = datasets(profile)[0], SEEDS_OF[profile]["tables"]
    objects, each = ("digits", 140) if profile == "demo" else ("cifar10", 1000)
    five = federation(objects, 2, minority=0.0) | {
        "users_per_task": [2, 3],
        "samples_per_user": [each, each],
    }
    maps = features(objects)
    if profile == "paper":  # the paper's own, where its weights can be had
        maps = maps | {
            "ResNet-18, ImageNet": maps["ResNet-18, random"] | {"pretrain": "imagenet"}
        }
    how = {"encoders": maps, "seeds": seeds}
    yield study("table1", objects, how | {"federation": five}, table="TI")
    if profile != "demo":
        other = {"EfficientNet-Lite0, ImageNet": spec("efficientnet", "imagenet")}
        yield study(
            "table1",
            objects,
            {"encoders": other, "seeds": 3, "federation": five},
            part="ImageNet",
        )
        three = {
            "kind": "cross_tasks",
            "dataset": "cifar10",
            "other": "cifar100",
            "samples_per_user": 1000,
            "seed": 0,
        }
        yield study(
            "table2", "cifar10_cifar100", how | {"federation": three}, table="TII"
        )
        yield study("scales", objects, {"federation": five, "seeds": 3}, part="scales")
        yield study(
            "margins", objects, {"federation": five, "seeds": 2}, part="margins"
        )
        for users, fed in {"Table I": five, "Table II": three}.items():
            at = {
                "dataset": objects,
                "users": users,
                "part": "mean image",
                "variant": "as_written",
            }
            yield Job.study(
                "mthfl_similarity.mean_image", {"federation": fed, "seeds": 10}, axes=at
            )
    ten, sent = (
        federation(dataset, 3),
        features(dataset)["PCA" if dataset == "digits" else "ConvAE"],
    )
    yield study("figure4", dataset, {"federation": ten}, tasks=3, part="figure 4")
    yield study(
        "cost", dataset, {"federation": ten, "sent": sent}, tasks=3, part="cost"
    )
    for name in ("digits", *(name for name in datasets(profile) if name != "digits")):
        count, seeds = (
            max(_TASKS[name]),
            3 if profile == "demo" else 20 if name == "digits" else 10,
        )
        for share in (0.1, 0.3):
            settings = {
                "federation": federation(name, count, minority=share),
                "seeds": seeds,
            }
            at = {
                "dataset": name,
                "tasks": count,
                "level": share,
                "part": "mean image",
                "variant": "as_written",
            }
            yield Job.study("mthfl_similarity.mean_image", settings, axes=at)


def clusterer(
    name: str, dataset: str, n_clusters: int | None, **options: Any
) -> tuple[Settings, str]:
    """Return the settings of a clusterer, eigen-relevance as the paper has it, and the feature map it needs."""
    digits = dataset == "digits"
    phi = "PCA" if digits else "ConvAE"
    made, phi = {
        "mthfl": ({"name": "EigenRelevance", "n_eigenvectors": EIGENVECTORS}, "pixels"),
        "pca_km_hc": (
            {"name": "PCAKMeans"} | ({"n_components": 16} if digits else {}),
            "pixels",
        ),
        "mean_image": ({"name": "MeanImage"}, "pixels"),
        "transport": ({"name": "TransportSignatures"}, phi),
        # ten users with five centroids each: UMAP's neighbourhood must stay below what one label has over all users
        "flt": ({"name": "FCR", "k": 5, "n_neighbors": 5}, phi),
    }[name]
    return made | {"n_clusters": n_clusters} | options, phi


def _study(profile: str) -> Iterator[Job]:
    """T given: every feature map, the linkages, and the other clusterers on the same federations; T not given."""
    count = SEEDS_OF[profile]
    for dataset in dict.fromkeys((*datasets(profile), "digits")):
        here = dataset in datasets(
            profile
        )  # in the other profiles digits only say how often little data suffice
        for tasks in [tasks for tasks in _TASKS[dataset] if tasks > 1]:
            for phi in features(dataset) if here else ["pixels"]:
                for seed in range(count["ours" if phi == "pixels" else "features"]):
                    yield _job("mthfl", dataset, tasks, seed, "study", phi)
            for how in ("complete", "single", "ward") if tasks == 3 and here else ():
                for seed in range(count["ours"]):
                    yield _job(
                        "mthfl",
                        dataset,
                        tasks,
                        seed,
                        "linkage",
                        more={"linkage": how},
                        linkage=how,
                    )
            for name in ("transport", "flt", "pca_km_hc") if here else ():
                # there a 3,072 x 3,072 decomposition for each user: minutes for a row that links everybody
                if (name, dataset) != ("pca_km_hc", "cifar10"):
                    yield from (
                        _job(name, dataset, tasks, seed, "study")
                        for seed in range(count["rivals"])
                    )
        for tasks in (
            _TASKS[dataset] if here else ()
        ):  # T not given, where there are several tasks and one
            for name, which in (
                ("mthfl_chosen", "ours"),
                ("mean_image", "rivals"),
                ("transport", "rivals"),
            ):
                yield from (
                    _job(name, dataset, tasks, seed, "chosen")
                    for seed in range(count[which])
                )


def _curves(profile: str) -> Iterator[Job]:
    """Three tasks: ever more labels of other tasks, noise on the eigenvectors, a private release. T given."""
    dataset, both = datasets(profile)[0], ("mthfl", "transport")
    for seed in range(SEEDS_OF[profile]["curves"]):
        for share, name in product(MINORITIES, (*both, "mean_image")):
            yield _job(name, dataset, 3, seed, "minority", level=share)
        for noise in NOISES:
            yield _job(
                "mthfl", dataset, 3, seed, "noise", more={"noise": noise}, level=noise
            )
        for epsilon, name in product(
            EPSILONS[dataset], both
        ):  # few dimensions: the noise grows with them
            budget = {"epsilon": epsilon, "clip": CLIPS[dataset]}
            yield _job(
                name, dataset, 3, seed, "epsilon", "PCA", budget, level=float(epsilon)
            )


def _job(
    name: str,
    dataset: str,
    tasks: int,
    seed: int,
    part: str,
    phi: str = "",
    more: Settings | None = None,
    **axes: Any,
) -> Job:
    """One clustering; T is told but where the part is that it is "chosen"."""
    made, usual = clusterer(
        name.removesuffix("_chosen"),
        dataset,
        None if part == "chosen" else tasks,
        **(more or {}),
    )
    fed, phi = (
        federation(dataset, tasks, seed, axes["level"] if part == "minority" else 0.1),
        phi or usual,
    )
    axes = {
        "dataset": dataset,
        "method": name,
        "part": part,
        "tasks": tasks,
        "features": phi,
        **axes,
    }
    return Job.clustering(fed, made, features(dataset)[phi], seed=seed, axes=axes)


def users(
    settings: Settings, encoder: Settings | None = None
) -> tuple[list[np.ndarray], np.ndarray]:
    """Features of every user's training samples, list of (n_i, d), pixels by default, and the tasks (M,)."""
    fed = federations.build(settings)
    return encoders.embed_clients(
        fed, encoders.EncoderSpec(**(encoder or pixels())), n_jobs=1
    ), fed.clusters


def _curved(
    federation: Settings, encoders: dict[str, dict], seeds: int, most: int
) -> Iterator[tuple]:
    """Yield feature map, seed, the relevances of 1, 2, ... up to ``most`` eigenvectors, and the tasks."""
    for (name, encoder), seed in product(encoders.items(), range(seeds)):
        z, tasks = users(federation | {"seed": seed}, encoder)
        yield (
            name,
            seed,
            eigen.relevance_curve(z, min(most, z[0].shape[1], *map(len, z))),
            tasks,
        )


def separation(matrix: np.ndarray, tasks: np.ndarray) -> dict[str, float]:
    """Mean and extreme similarity within and across ``tasks`` (M,), and the ARI of average linkage told their number.

    ``matrix`` (M, M): R, or 1 less any distance.
    """
    same = tasks[:, None] == tasks
    within, across = matrix[same & ~np.eye(len(tasks), dtype=bool)], matrix[~same]
    labels = cut(
        linkage(squareform(1 - matrix, checks=False), "average"), len(np.unique(tasks))
    )
    found = {
        "within": within.mean(),
        "within_min": within.min(),
        "across": across.mean(),
        "across_max": across.max(),
    }
    return {
        name: float(value)
        for name, value in (found | {"ari": adjusted_rand_index(tasks, labels)}).items()
    }


def table1(
    federation: Settings, encoders: dict[str, dict], seeds: int, most: int = 50
) -> Study:
    """Similarity of Table I's five users, for every feature map and up to ``most`` eigenvectors.

    Returns a dict: Tables ``separation`` (``features, eigenvectors``, means of :func:`separation` over seeds, and the
    lowest ARI), ``pairs`` (of the first seed with five eigenvectors: ``features, user_i, user_j, similarity``) and
    ``printed``, of the map nearest to the paper's.
    """
    rows, pairs = [], []
    for name, seed, curve, tasks in _curved(federation, encoders, seeds, most):
        rows += [
            {"features": name, "eigenvectors": p, **separation(R, tasks)}
            for p, R in enumerate(curve, 1)
        ]
        if seed == 0:
            R = curve[EIGENVECTORS - 1]
            pairs += [(name, i + 1, j + 1, R[i, j]) for i, j in np.ndindex(R.shape)]
    over = pd.DataFrame(rows).groupby(["features", "eigenvectors"], sort=False)
    table = (
        over[["within", "within_min", "across", "across_max"]]
        .mean()
        .assign(ari=over["ari"].min())
        .reset_index()
    )
    every = pd.DataFrame(pairs, columns=["features", "user_i", "user_j", "similarity"])
    name, otherwise = _nearest(encoders)
    own = (
        every[every["features"] == name]
        .rename(columns={"similarity": "value"})
        .drop(columns="features")
    )
    return {
        "tables": {
            "separation": table,
            "pairs": every,
            "printed": own.assign(seed=0, otherwise=otherwise),
        }
    }


def table2(
    federation: Settings, encoders: dict[str, dict], seeds: int, most: int = 20
) -> Study:
    """Similarity of Table II's user 1 to users 2 (same theme, other data set) and 3.

    Returns a dict: Tables ``similarity`` (``features, eigenvectors, seed, user2, user3``) and ``printed``.
    """
    rows = []
    for name, seed, curve, _ in _curved(federation, encoders, seeds, most):
        counts = [p for p in (1, 2, 3, 5, 10, 20) if p <= len(curve)]
        rows += [
            (name, p, seed, curve[p - 1, 0, 1], curve[p - 1, 0, 2]) for p in counts
        ]
    return {
        "tables": tables2(
            pd.DataFrame(
                rows, columns=["features", "eigenvectors", "seed", "user2", "user3"]
            )
        )
    }


def tables2(similarity) -> Settings:
    """Add to the table of :func:`table2` what stands beside the printed numbers."""
    name, otherwise = _nearest(similarity["features"])
    own = similarity[
        (similarity["features"] == name) & (similarity["eigenvectors"] == EIGENVECTORS)
    ]
    own = own.melt(["seed"], ["user2", "user3"], "user_j")
    own["user_j"] = own["user_j"].map({"user2": 2, "user3": 3})
    return {
        "similarity": similarity,
        "printed": own.assign(user_i=1, otherwise=otherwise),
    }


def _nearest(features: Iterable[str]) -> tuple[str, str]:
    """Name the feature map that is nearest to the paper's ImageNet ResNet-18, and say how it departs."""
    names = {
        "ResNet-18, ImageNet": "",
        "EfficientNet-Lite0, ImageNet": ", EfficientNet-Lite0",
    }
    names |= {
        "ResNet-18, random": ", random weights for ImageNet's",
        "pixels": ", pixels",
    }
    name = next(name for name in names if name in set(features))
    return name, f"p = {EIGENVECTORS} chosen by us{names[name]}"


def scales(federation: Settings, seeds: int) -> Study:
    """Similarity within and across tasks for the same pixels on other scales (:data:`SCALES`: less, over)."""
    rows = []
    for seed in range(seeds):
        z, tasks = users(federation | {"seed": seed})
        for name, moved in _scaled(z).items():
            rows.append(
                {
                    "scale": name,
                    **separation(
                        EigenRelevance(1, EIGENVECTORS).fit(moved).relevance_, tasks
                    ),
                }
            )
    return {
        "tables": {
            "scales": pd.DataFrame(rows)
            .groupby("scale", sort=False)
            .mean()
            .reset_index()
        }
    }


def _scaled(z: list[np.ndarray]) -> dict[str, list[np.ndarray]]:
    return {
        name: [((x.reshape(len(x), -1, 3) - less) / over).reshape(x.shape) for x in z]
        for name, (less, over) in SCALES.items()
    }


def margins(federation: Settings, seeds: int, most: int = 20) -> Study:
    """Similarity within and across tasks by scale of the pixels, samples of a user, and number of eigenvectors.

    The scale "centred" takes each user's mean image away before its eigenvectors. Returns a dict: Table ``margins``:
    ``scale, samples, eigenvectors``, means of :func:`separation` over seeds and ``gap``: ``within - across``.
    """
    rows = []
    for samples, seed in product(PER_USER, range(seeds)):
        z, tasks = users(
            federation | {"samples_per_user": [samples, samples], "seed": seed}
        )
        for name, moved in (
            _scaled(z) | {"centred": [x - x.mean(axis=0) for x in z]}
        ).items():
            for p, R in enumerate(eigen.relevance_curve(moved, most), 1):
                rows.append(
                    {
                        "scale": name,
                        "samples": samples,
                        "eigenvectors": p,
                        **separation(R, tasks),
                    }
                )
    table = (
        pd.DataFrame(rows)
        .groupby(["scale", "samples", "eigenvectors"], sort=False)
        .mean()
        .reset_index()
    )
    return {"tables": {"margins": table.assign(gap=table["within"] - table["across"])}}


def figure4(federation: Settings) -> Study:
    """Relevance of pixels for every number of eigenvectors (Figure 4).

    Returns a dict: Tables ``curve`` (``eigenvectors, user, task, relevance`` with user 0, and ``eigenvalue`` of user 0
    over its first) and ``separation`` (of all ten users at growing numbers of eigenvectors, ``numbers`` sent by each).
    """
    z, tasks = users(federation)
    every = min(z[0].shape[1], *map(len, z))
    whole = eigen.relevance_curve(z, every)
    values = eigen.eigenpairs(z[0], every)[0]
    counts = [p for p in (1, 2, 3, 5, 10, 20, 50, 100, 200, 500) if p < every] + [every]
    rows = [
        {
            "eigenvectors": p,
            **separation(whole[p - 1], tasks),
            "numbers": p * z[0].shape[1],
        }
        for p in counts
    ]
    curve = [
        (p + 1, j, tasks[j], whole[p, 0, j], values[p] / values[0])
        for j in (0, 3, 6, 9)
        for p in range(every)
    ]
    columns = ["eigenvectors", "user", "task", "relevance", "eigenvalue"]
    return {
        "tables": {
            "curve": pd.DataFrame(curve, columns=columns),
            "separation": pd.DataFrame(rows),
        }
    }


def cost(
    federation: Settings, sent: Settings, model: str = "mlp32", k: int = 5
) -> Study:
    """Count what clustering ten users sends, once, before training: four-byte numbers.

    MT-HFL's are what the fitted clusterers counted; the other rows are the papers' formulas with this federation's
    sizes. ``sent`` is the encoder that others send; the model is MT-HFL's own for such images. Returns a dict: Table
    ``cost``: ``clustering, formula (all users), a user sends, a user receives, all users, kB``.
    """
    from .. import models

    fed, (z, _) = federations.build(federation), users(federation)
    M, d = fed.n_clients, z[0].shape[1]
    five, most = (EigenRelevance(3, p).fit(z) for p in (EIGENVECTORS, None))
    net = models.make(model, fed.input_shape, fed.n_classes)
    body = net.n_parameters - sum(int(np.prod(shape)) for _, shape in net.shapes[-2:])
    other = encoders.EncoderSpec(**sent)
    encoder = encoders.sent_parameters(other, fed.input_shape)
    rows = [
        (
            f"MT-HFL, p = {EIGENVECTORS}",
            "M(p d + M - 1) + M(M - 1) p d",
            five.sent_[0],
            five.received_[0],
        ),
        (
            f"MT-HFL, p = {most.eigenvalues_.shape[1]}, all there are",
            "the same",
            most.sent_[0],
            most.received_[0],
        ),
        (f"MT-HFL, p = d = {d}", "the same", d**2 + M - 1, (M - 1) * d**2),
        ("FLT's FCR", "M k e + M W_enc", k * other.latent, encoder),
        (
            "Transport signatures (ours)",
            "M(2k(e + 1) + 3) + M W_enc",
            2 * 10 * (other.latent + 1) + 3,
            encoder,
        ),
        (
            "EMD-CFL, models of all pairs",
            "2 M(M - 1) W_emb",
            (M - 1) * body,
            (M - 1) * body,
        ),
        ("comparing model weights", "2 M W", net.n_parameters, net.n_parameters),
    ]
    table = pd.DataFrame(
        rows,
        columns=[
            "clustering",
            "formula (all users)",
            "a user sends",
            "a user receives",
        ],
    )
    table["all users"] = M * (table["a user sends"] + table["a user receives"])
    return {"tables": {"cost": table.assign(kB=4 * table["all users"] / 1000)}}


def mean_image(federation: Settings, seeds: int) -> Study:
    """Cluster users by mean images alone, d numbers each: ``exact`` seeds of average linkage told T, ``lowest`` ARI."""
    drawn = (users(federation | {"seed": seed}) for seed in range(seeds))
    found = [
        adjusted_rand_index(tasks, MeanImage(len(np.unique(tasks))).fit_predict(z))
        for z, tasks in drawn
    ]
    return {
        "numbers": {
            "exact": sum(ari == 1 for ari in found),
            "of": seeds,
            "lowest": min(found),
        }
    }
