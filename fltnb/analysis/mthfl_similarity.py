"""MT-HFL's similarity: Tables I and II, Figure 4, what is sent, the study of clusterings, and the paper's claims."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import metrics
from ..errors import FltnbError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ..federations import Federation
    from ..notebook import Claims

CURVES = {
    "minority": "share of each user's samples from other tasks",
    "noise": "noise on eigenvectors (length; an eigenvector has 1)",
    "epsilon": "privacy budget epsilon (delta 1e-5)",
}
NEAR = 0.03  # of a printed similarity
CLEARLY = 0.1  # difference of two similarities
SEEDS = {"demo": 5, "small": 3, "paper": 10}


def users(fed: Federation, encoder: dict[str, Any]) -> list[np.ndarray]:
    """Embed the training samples of every user, list of (n_i, d)."""
    from ..encoders import EncoderSpec, embed_clients

    return embed_clients(fed, EncoderSpec(**encoder), n_jobs=1)


def feature_maps(profile: str) -> tuple[dict[str, dict[str, Any]], str]:
    """Return the feature maps of Tables I and II by name, and a sentence on the paper's own.

    The ImageNet ResNet-18 is added where its weights can be had. The toy scale does without: it must not download.
    """
    from dataclasses import asdict

    from ..encoders import EncoderSpec, pretrain
    from ..experiments import mthfl_similarity as plan

    maps = plan.features("digits" if profile == "demo" else "cifar10")
    if profile == "demo":
        return maps, "Toy scale: 8 x 8 digits need no ResNet-18."
    spec = EncoderSpec("resnet18", "imagenet")
    try:
        pretrain(spec)
    except FltnbError as error:
        return maps, f"{error} This notebook goes on with the other feature maps."
    return maps | {"ResNet-18, ImageNet": asdict(spec)}, "The ImageNet ResNet-18 of the paper is here."


def curve_of(settings: dict[str, Any], encoder: dict[str, Any], most: int) -> tuple[np.ndarray, np.ndarray]:
    """R for 1, 2, ... eigenvectors (P, M, M), at most ``most``, of a federation's users, and their tasks (M,)."""
    from .. import federations
    from ..relatedness import eigen

    fed = federations.build(settings)
    z = users(fed, encoder)
    return eigen.relevance_curve(z, min(most, z[0].shape[1], *map(len, z))), fed.clusters


def table1(profile: str, maps: dict[str, dict[str, Any]], most: int = 50) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Similarity within and across the tasks of Table I's five users, and every pair of them.

    Returns
    -------
    tuple of DataFrame
        Means over seeds, ``features, eigenvectors, within, within_min, across, across_max, ari`` (the lowest over
        seeds, of two clusters); and the first seed's pairs, ``features, eigenvectors, user_i, user_j, similarity``.
    """
    import pandas as pd

    from ..experiments import mthfl_similarity as plan

    rows, pairs = [], []
    for name, encoder in maps.items():
        for seed in range(SEEDS[profile]):
            curve, tasks = curve_of(plan.table1(profile, seed), encoder, most)
            for p, matrix in enumerate(curve, 1):
                rows.append({"features": name, "eigenvectors": p, "seed": seed, **separation(matrix, tasks)})
                if seed == 0:
                    index = np.ndindex(matrix.shape)
                    pairs += [(name, p, i + 1, j + 1, matrix[i, j]) for i, j in index]
    mean = pd.DataFrame(rows).groupby(["features", "eigenvectors"], sort=False)
    table = mean[["within", "within_min", "across", "across_max"]].mean()
    table["ari"] = mean["ari"].min()
    columns = ["features", "eigenvectors", "user_i", "user_j", "similarity"]
    return table.reset_index(), pd.DataFrame(pairs, columns=columns)


def separation(matrix: np.ndarray, tasks: np.ndarray) -> dict[str, float]:
    """Mean and extreme similarity within and across tasks, and the ARI of the hierarchical clustering with T given."""
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    from ..relatedness.cuts import cut

    same = tasks[:, None] == tasks
    within = matrix[same & ~np.eye(len(tasks), dtype=bool)]
    tree = linkage(squareform(1 - matrix, checks=False), "average")
    labels = cut(tree, len(np.unique(tasks)))
    return {
        "within": float(within.mean()),
        "within_min": float(within.min()),
        "across": float(matrix[~same].mean()),
        "across_max": float(matrix[~same].max()),
        "ari": float(metrics.adjusted_rand_index(tasks, labels)),
    }


@cache
def _printed1() -> tuple[float, float]:
    """Mean printed similarity within and across tasks (Table I)."""
    from .. import published

    table = published.numbers("mthfl", "TI")
    users = [json.loads(params) for params in table["params"]]
    same = np.array([user["task_i"] == user["task_j"] for user in users])
    other = np.array([user["user_i"] != user["user_j"] for user in users])
    number = table["number"].to_numpy()
    return float(number[same & other].mean()), float(number[~same].mean())


def beside_table1(table: pd.DataFrame, at: int = 5) -> pd.DataFrame:
    """Put printed means within and across tasks beside ours, at ``at`` eigenvectors and at the number nearest to them.

    Parameters
    ----------
    table : DataFrame
        The first table of :func:`table1`.
    """
    import pandas as pd

    printed = np.array(_printed1())
    rows = []
    for name, part in table.groupby("features", sort=False):
        off = np.abs(part[["within", "across"]].to_numpy() - printed).max(axis=1)
        best = part.iloc[int(off.argmin())]
        for label, row in ((f"{at}, as in the text", part[part["eigenvectors"] == at].iloc[0]), ("nearest", best)):
            rows.append(
                {
                    "features": name,
                    "eigenvectors": f"{int(row['eigenvectors'])} ({label})" if label == "nearest" else label,
                    "within, printed": printed[0],
                    "within": row["within"],
                    "lowest": row["within_min"],
                    "across, printed": printed[1],
                    "across": row["across"],
                    "highest": row["across_max"],
                    "differences": f"{row['within'] - printed[0]:+.2f}, {row['across'] - printed[1]:+.2f}",
                    "tasks found": "in all runs" if row["ari"] == 1 else "not always",
                }
            )
    return pd.DataFrame(rows)


def reproduced(notebook: str) -> dict[str, pd.DataFrame]:
    """Tables I and II number by number, for the report: profile -> rows of :data:`fltnb.report.reproduced.COLUMNS`.

    Of the feature maps the paper's own counts, ResNet-18 with ImageNet weights, or else with random ones.
    """
    import pandas as pd

    from .tables import stored_tables

    found = {}
    for stored in stored_tables(notebook):
        maps = set(stored.tables["pairs"]["features"])
        name = next((m for m in ("ResNet-18, ImageNet", "ResNet-18, random") if m in maps), None)
        departs = "p = 5 chosen by us" + ("" if name == "ResNet-18, ImageNet" else ", random weights for ImageNet's")
        fixed = {"model": "", "method": "mthfl", "split": "", "metric": "similarity", "variant": "as_written"}
        fixed |= {"origin": "", "departs": departs}
        of = {
            key: held[(held["features"] == name) & (held["eigenvectors"] == 5)]
            for key, held in stored.tables.items()
            if key in ("pairs", "table2")
        }
        rows = [
            {"dataset": "cifar10", "setting": "similarity_matrix", "data": "cifar10", "seeds": 1, "spread": 0.0}
            | {"match": {"user_i": pair.user_i, "user_j": pair.user_j}, "mean": pair.similarity}
            for pair in of["pairs"].itertuples()
        ]
        rows += [
            {"dataset": "cifar10_cifar100", "setting": "cross_dataset_similarity", "data": "cifar10, cifar100"}
            | {"match": {"user_j": user}, "mean": values.mean(), "spread": values.std(ddof=0), "seeds": len(values)}
            for user, values in ((2, of["table2"]["user2"]), (3, of["table2"]["user3"]))
            if len(values)
        ]
        found[stored.profile] = pd.DataFrame([fixed | row for row in rows])
    return found


def table2(profile: str, maps: dict[str, dict[str, Any]], counts: Sequence[int] = (1, 2, 3, 5, 10, 20)) -> pd.DataFrame:
    """Table II: similarity of user 1 to users 2 (same theme, other data set) and 3.

    Returns
    -------
    DataFrame
        ``features, eigenvectors, seed, user2, user3``.
    """
    import pandas as pd

    from ..experiments import mthfl_similarity as plan
    from ..relatedness import eigen

    rows = []
    for name, encoder in maps.items():
        for seed in range(SEEDS[profile]):
            if profile == "demo":
                z = users(_two_hands(seed), encoder)
                curve = eigen.relevance_curve(z, max(p for p in counts if p <= z[0].shape[1]))
            else:
                curve, _ = curve_of(plan.table2(seed), encoder, max(counts))
            rows += [
                {
                    "features": name,
                    "eigenvectors": p,
                    "seed": seed,
                    "user2": curve[p - 1, 0, 1],
                    "user3": curve[p - 1, 0, 2],
                }
                for p in counts
                if p <= len(curve)
            ]
    return pd.DataFrame(rows)


def _two_hands(seed: int) -> Federation:
    """Toy stand-in for two data sets: half of the digits, and the other half drawn one pixel to the right."""
    from dataclasses import replace

    from .. import load
    from ..federations import cross_tasks
    from ..randomness import stream

    digits = load("digits")
    order = stream(seed, "split").permutation(len(digits))
    one, two = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    moved = replace(digits, name="moved digits", images=np.roll(digits.images, 1, axis=2)).subset(two)
    return cross_tasks(digits.subset(one), moved, [0, 1, 2, 3], [0, 1, 2, 3], 150, seed)


def beside_table2(table: pd.DataFrame) -> pd.DataFrame:
    """Put printed similarities of Table II beside ours, means over seeds."""
    from .. import published

    printed = published.numbers("mthfl", "TII")["number"].to_numpy()
    mean = table.groupby(["features", "eigenvectors"], sort=False)
    out = mean[["user2", "user3"]].mean()
    out.insert(0, "user2, printed", printed[0])
    out.insert(2, "user3, printed", printed[1])
    right = mean[["user2", "user3"]].apply(lambda rows: f"{int((rows.user2 > rows.user3).sum())} of {len(rows)}")
    return out.assign(**{"user 2 closer": right}).reset_index()


def figure4(profile: str) -> dict[str, Any]:
    """Compute Figure 4: R of users 0, 3, 6 and 9 for every number of eigenvectors, and how all ten users separate.

    Returns
    -------
    dict
        Arguments of :func:`fltnb.plots.relevance_curves`, without ``most``; ``table`` (:func:`separation` of all ten
        users at growing numbers) and ``dataset``.
    """
    import pandas as pd

    from .. import federations
    from ..experiments import mthfl_similarity as plan
    from ..relatedness import eigen

    dataset = plan.datasets(profile)[0]
    fed = federations.build(plan.federation(dataset, "3 tasks"))
    z = users(fed, plan.pixels())
    every = min(z[0].shape[1], *map(len, z))
    shown = [0, 3, 6, 9]
    whole = eigen.relevance_curve(z, every)
    counts = [p for p in (1, 2, 3, 5, 10, 20, 50, 100, 200, 500) if p < every] + [every]
    rows = [{"eigenvectors": p, **separation(whole[p - 1], fed.clusters)} for p in counts]
    return {
        "curve": whole[:, shown][:, :, shown],
        "users": shown,
        "clusters": fed.clusters[shown].tolist(),
        "eigenvalues": eigen.eigenpairs(z[0], every)[0],
        "table": pd.DataFrame(rows).assign(numbers=[p * z[0].shape[1] for p in counts]),
        "dataset": dataset,
    }


def figure4_table(found: dict[str, Any]) -> pd.DataFrame:
    """Figure 4 as a table: ``eigenvectors, user, task, relevance, eigenvalue`` (of user 0, over its first)."""
    import pandas as pd

    share = found["eigenvalues"] / found["eigenvalues"][0]
    return pd.DataFrame(
        [
            (p + 1, user, task, found["curve"][p, 0, j], share[p])
            for j, (user, task) in enumerate(zip(found["users"], found["clusters"], strict=True))
            for p in range(len(share))
        ],
        columns=["eigenvectors", "user", "task", "relevance", "eigenvalue"],
    )


def figure4_from(table: pd.DataFrame) -> dict[str, Any]:
    """Arguments of :func:`fltnb.plots.relevance_curves` from a stored table."""
    people = table.drop_duplicates("user")
    curve = table.pivot_table(index="eigenvectors", columns="user", values="relevance")[people["user"]].to_numpy()
    return {
        "curve": curve[:, None, :],
        "users": people["user"].tolist(),
        "clusters": people["task"].tolist(),
        "eigenvalues": table[table["user"] == people["user"].iloc[0]]["eigenvalue"].to_numpy(),
    }


def cost_table(profile: str, model: str = "mlp32", k: int = 5) -> pd.DataFrame:
    """Count what clustering ten users sends, once, before training: three tasks, four-byte numbers.

    Ours is what the fitted clusterers counted; the other rows are formulas of the papers with the sizes of this
    federation. The model is MT-HFL's own for such images.

    Returns
    -------
    DataFrame
        ``clustering, formula (all users), a user sends, a user receives, all users, kB``.
    """
    import pandas as pd

    from .. import encoders, federations, models
    from ..experiments import mthfl_similarity as plan
    from ..relatedness import EigenRelevance

    dataset = plan.datasets(profile)[0]
    fed = federations.build(plan.federation(dataset, "3 tasks"))
    z = users(fed, plan.pixels())
    M, width = fed.n_clients, z[0].shape[1]
    five, most = (EigenRelevance(3, p).fit(z) for p in (plan.EIGENVECTORS, None))
    net = models.make(model, fed.input_shape, fed.n_classes)
    W = net.n_parameters
    body = W - sum(int(np.prod(shape)) for _, shape in net.shapes[-2:])
    spec = encoders.EncoderSpec(**plan.features(dataset)["PCA" if dataset == "digits" else "ConvAE"])
    encoder = encoders.sent_parameters(spec, fed.input_shape)
    rows = [
        (f"MT-HFL, p = {plan.EIGENVECTORS}", "M(p d + M - 1) + M(M - 1) p d", five.sent_[0], five.received_[0]),
        (f"MT-HFL, p = {most.eigenvalues_.shape[1]}, all there are", "the same", most.sent_[0], most.received_[0]),
        (f"MT-HFL, p = d = {width}", "the same", width**2 + M - 1, (M - 1) * width**2),
        ("FLT's FCR", "M k e + M W_enc", k * spec.latent, encoder),
        ("Transport signatures (ours)", "M(2k(e + 1) + 3) + M W_enc", 2 * 10 * (spec.latent + 1) + 3, encoder),
        ("EMD-CFL, models of all pairs", "2 M(M - 1) W_emb", (M - 1) * body, (M - 1) * body),
        ("comparing model weights", "2 M W", W, W),
    ]
    table = pd.DataFrame(rows, columns=["clustering", "formula (all users)", "a user sends", "a user receives"])
    table["all users"] = M * (table["a user sends"] + table["a user receives"])
    return table.assign(kB=4 * table["all users"] / 1000)


def study_table(table: pd.DataFrame, part: str = "study") -> pd.DataFrame:
    """One row per federation, clusterer and feature map: ARI over seeds, seeds that are exact, numbers sent."""
    import pandas as pd

    rows = []
    rest = table[table["part"] == part]
    for (name, method, features, note), runs in rest.groupby(["federation", "method", "features", "note"], sort=False):
        right = int((runs["n_clusters"] == runs["true_clusters"]).sum())
        wrong = runs.loc[runs["ari"] < 1, "seed"].tolist()
        row = {"federation": name, "method": method, "features": features}
        row |= {"linkage": note} if part == "linkage" else {}
        row |= {"T right": f"{right} of {len(runs)}"} if part == "chosen" else {}
        row |= {"exact": f"{len(runs) - len(wrong)} of {len(runs)}", "ARI, mean": runs["ari"].mean()}
        row |= {"ARI, lowest": runs["ari"].min(), "numbers sent": f"{runs['floats_up'].mean():.0f}"}
        rows.append(row | {"seeds not exact": ", ".join(map(str, wrong))})
    return pd.DataFrame(rows)


def curves_table(table: pd.DataFrame, part: str) -> pd.DataFrame:
    """Mean ARI over seeds, one row per clusterer, one column per level of ``part``."""
    rows = table[table["part"] == part]
    rows = rows.assign(level=rows["level"].map("{:g}".format))
    return rows.pivot_table(index="method", columns="level", values="ari", aggfunc="mean", sort=False)


def curves_figure(table: pd.DataFrame) -> tuple[Figure, np.ndarray]:
    """Draw the ARI against other tasks' labels, noise and privacy, one panel each."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullLocator

    from .. import plots

    fig, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained", sharey=True)
    for number, (ax, (part, label)) in enumerate(zip(axes, CURVES.items(), strict=True)):
        rows = table[table["part"] == part]
        plots.ari_curves(rows, "level", ax, label=label, log=part != "minority")
        if part != "minority":
            levels = sorted(rows["level"].unique())
            ax.set_xticks(levels, [f"{level:g}" for level in levels])
            ax.xaxis.set_minor_locator(NullLocator())
        ax.set_title(part, fontsize="medium")
        if number:
            ax.set_ylabel("")
        ax.get_legend().remove()
    names = list(dict.fromkeys(table.loc[table["part"].isin(CURVES), "method"]))
    styles = [plots.style(name) for name in names]
    handles = [plt.Line2D([], [], color=s.color, marker=s.marker, label=s.label) for s in styles]
    fig.legend(handles=handles, loc="outside lower center", ncols=len(names), frameon=False)
    return fig, axes


def similarity_claims(
    table: pd.DataFrame, first: pd.DataFrame, second: pd.DataFrame, fourth: pd.DataFrame, cost: pd.DataFrame
) -> Claims:
    """Check the paper's claims on similarity and clustering.

    Parameters
    ----------
    table : DataFrame
        Rows of :func:`fltnb.oneshot.compute` for ``experiments.mthfl_similarity.clusterings``.
    first, second, fourth, cost : DataFrame
        Of :func:`table1`, :func:`table2`, ``figure4(...)["table"]`` and :func:`cost_table`.
    """
    from ..notebook import Claims

    claims = Claims()
    within, across = _printed1()
    off = np.maximum((first["within"] - within).abs(), (first["across"] - across).abs())
    best, five = first.loc[off.idxmin()], first[first["eigenvectors"] == 5]
    words = (
        f"nearest of any p: {best['within']:.2f} and {best['across']:.2f}, {best['features']}, p ="
        f" {best['eigenvectors']:.0f}"
    )
    at_five = ", ".join(f"{row.features} {row.within:.2f} and {row.across:.2f}" for row in five.itertuples())
    claims.check(
        f"similarity within tasks {within:.2f} and across {across:.2f}, each to {NEAR}, for some feature map (p = 5)",
        bool(off[five.index].min() <= NEAR),
        f"p = 5: {at_five}; {words}",
        claim="mthfl-t1-1",
    )
    claims.check(
        "two clusters of the five users of Table I are the two tasks (p = 5, every feature map, every seed)",
        bool((five["ari"] == 1).all()),
        f"{int((five['ari'] == 1).sum())} of {len(five)} feature maps in every seed",
        claim="mthfl-t1-2",
    )
    near = second[second["eigenvectors"] == 5].groupby("features", sort=False)[["user2", "user3"]].mean()
    gap = near["user2"] - near["user3"]
    claims.check(
        f"the same theme of another data set is closer than its rest, by {CLEARLY} or more (p = 5, some feature map)",
        bool((gap >= CLEARLY).any()),
        ", ".join(f"{name} {row.user2:.2f} and {row.user3:.2f}" for name, row in near.iterrows()),
        claim="mthfl-t2",
    )
    _figure4_claims(claims, table, fourth)
    known = table[(table["part"] == "study") & (table["method"] == "mthfl") & (table["features"] == "pixels")]
    exact = known.groupby("federation", sort=False)["ari"].agg(lambda ari: f"{int((ari == 1).sum())} of {len(ari)}")
    claims.check(
        "with T given, the tasks are found exactly in every seed",
        bool((known["ari"] == 1).all()),
        "; ".join(f"{name}: {count}" for name, count in exact.items()),
        claim="mthfl-text-exact",
    )
    mixed = table[(table["part"] == "minority") & (table["method"] == "mthfl")].groupby("level")["ari"].min()
    claims.check(
        "a tenth of other tasks' samples does no harm (three tasks, every seed)",
        bool(mixed.loc[0.1] == 1),
        "lowest ARI by share: " + ", ".join(f"{share:g}: {ari:.2f}" for share, ari in mixed.items()),
        claim="mthfl-text-minority",
    )
    ours, weights = cost.iloc[0], cost.iloc[-1]
    times = weights["a user sends"] / ours["a user sends"]
    claims.check(
        "a user sends a fifth of a model's weights, or less",
        bool(times >= 5),
        f"{ours['a user sends']:,} against {weights['a user sends']:,}, {times:.1f} times; but it receives"
        f" {ours['a user receives']:,}",
        claim="mthfl-text-numbers",
    )
    return claims


def _figure4_claims(claims: Claims, table: pd.DataFrame, fourth: pd.DataFrame) -> None:
    three = table[(table["part"] == "study") & (table["method"] == "mthfl") & (table["features"] == "pixels")]
    three = three[three["federation"].str.contains("3 tasks")]
    row = fourth[fourth["eigenvectors"] == 5].iloc[0]
    claims.check(
        "five eigenvectors separate the three tasks, in every seed",
        bool((three["ari"] == 1).all()),
        f"{int((three['ari'] == 1).sum())} of {len(three)} seeds; seed 0: lowest within {row['within_min']:.2f},"
        f" highest across {row['across_max']:.2f}",
        claim="mthfl-fig4-1",
    )
    last = fourth.iloc[-1]
    claims.check(
        "with all eigenvectors, users of one task are less alike than with five, by 0.3 or more",
        bool(row["within"] - last["within"] >= 0.3),
        f"{row['within']:.2f} with 5, {last['within']:.2f} with {last['eigenvectors']:.0f}",
        claim="mthfl-fig4-2",
    )
    claims.check(
        "five eigenvectors give the clusters that all of them give",
        bool(row["ari"] == last["ari"] == 1),
        f"ARI {row['ari']:.2f} with {row['numbers']:,.0f} numbers, {last['ari']:.2f} with {last['numbers']:,.0f}",
        claim="mthfl-fig4-3",
    )
