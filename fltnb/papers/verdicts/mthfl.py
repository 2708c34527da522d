"""Tests of MT-HFL's claims."""

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from ... import metrics
from ..names import label
from .claim import Finding, claim, not_tested
from .numbers import Numbers

FEATURES = ("stand-in: other features than ImageNet's ResNet-18",)
"""How the similarities of CIFAR-10's users depart from the paper's."""
FASHION = [6000, 4000, 2000]
"""Images of a user by task in the Fashion-MNIST experiment, which Figure 4 repeats."""

# ---------------------------------------------------------------- similarity


@claim(
    "mthfl-t1-1", data=("cifar10",), tables=("TI",), show="{:.2f}", unit="similarity"
)
def similarity_by_task(t: Numbers) -> Finding:
    """Users of one task are 0.97 similar, of two tasks 0.31 (partly: within 0.1)."""
    if t.printed:
        pairs = t.trainings("mthfl")
        apart = pairs["user_i"] != pairs["user_j"]
        same = pairs["task_i"] == pairs["task_j"]
        within = pairs["similarity"][same & apart].mean()
        return _near_print("print", within, pairs["similarity"][~same].mean())

    found = _separation(t)
    if found.empty:
        return not_tested("the five users were not compared")
    off = np.maximum(abs(found["within"] - 0.97), abs(found["across"] - 0.31))
    nearest = found.loc[off.idxmin()]
    name = nearest.get("features", "features")
    return _near_print(name, nearest["within"], nearest["across"], FEATURES)


def _separation(t: Numbers) -> pd.DataFrame:
    """Return similarities within and across the two tasks, with five eigenvectors."""
    found = t.study("separation", table="TI")
    return found if found.empty else found[found["eigenvectors"] == 5]


def _near_print(name: str, within: float, across: float, departs=()) -> Finding:
    off = max(abs(within - 0.97), abs(across - 0.31))
    text = f"{within:.2f} within, {across:.2f} across ({name})"
    return Finding(off, [off <= 0.1, off <= 0.03], text, departs=departs)


@claim("mthfl-t1-2", data=("cifar10",), tables=("TI",), show="{:.2f}", unit="ARI")
def two_groups_are_the_tasks(t: Numbers) -> Finding:
    """Clustering the five users into two finds their tasks (worst features)."""
    if t.printed:
        pairs = t.trainings("mthfl")
        matrix = pairs.pivot(index="user_i", columns="user_j", values="similarity")
        tree = linkage(squareform(1 - matrix.to_numpy(), checks=False), "average")
        tasks = pairs.drop_duplicates("user_i").sort_values("user_i")["task_i"]
        groups = fcluster(tree, 2, "maxclust")
        ari = metrics.adjusted_rand_index(tasks, groups)
        return Finding(ari, ari == 1)

    found = _separation(t)
    if found.empty:
        return not_tested("the five users were not compared")
    worst = found["ari"].min()
    return Finding(worst, worst == 1, departs=FEATURES)


@claim("mthfl-t2", tables=("TII",), show="{:+.2f}", unit="similarity")
def theme_counts_more(t: Numbers) -> Finding:
    """The theme counts for more than the data set, by 0.1 (best features)."""
    if t.printed:
        pairs = t.trainings("mthfl").set_index("user_j")["similarity"]
        gap = pairs[2] - pairs[3]
        return Finding(gap, gap >= 0.1)

    found = t.study("similarity")
    if found.empty:
        return not_tested("the three users were not compared")
    found = found[found["eigenvectors"] == 5]
    mean = found.groupby("features")[["user2", "user3"]].mean()
    gap = (mean["user2"] - mean["user3"]).max()
    return Finding(gap, gap >= 0.1, departs=FEATURES)


# ---------------------------------------------------------------- figure 4


def grouped(t: Numbers) -> pd.DataFrame:
    """Return the clusterings of users by their raw pixels, told the number of tasks."""
    return t.clusterings(
        method="mthfl", part="study", features="pixels", tasks=lambda tasks: tasks > 1
    )


def _images(t: Numbers, key: str) -> tuple[str, ...]:
    """Say how a federation departs from the Fashion-MNIST experiment."""
    record = t.record(key)
    federation = record["settings"].get("federation", {})
    images = federation.get("samples_per_user", FASHION)
    if list(images) == FASHION:
        return ()
    return (f"{', '.join(f'{number:,}' for number in images)} images a user",)


@claim("mthfl-fig4-1", data=("fashion_mnist",), unit="share of seeds", show="{:.0%}")
def five_eigenvectors_suffice(t: Numbers) -> Finding:
    """Five eigenvectors per user tell the three tasks apart, in every seed."""
    found = grouped(t)
    if found.empty:
        return not_tested("no users of three tasks were grouped")
    right = found["ari"] == 1
    text = f"{right.sum()} of {len(found)} seeds"
    departs = _images(t, found["key"].iloc[0])
    return Finding(right.mean(), right.all(), text, departs=departs)


def _curve(t: Numbers) -> pd.DataFrame:
    """Return Figure 4's similarities by number of eigenvectors."""
    found = t.study("separation")
    return found if found.empty else found.sort_values("eigenvectors")


@claim("mthfl-fig4-2", data=("fashion_mnist",), unit="similarity", show="{:+.2f}")
def small_eigenvalues_are_left_out(t: Numbers) -> Finding:
    """With all directions similarity falls by 0.3 and the clusters are lost."""
    curve = _curve(t)
    if curve.empty:
        return not_tested("the number of eigenvectors was not varied")
    five = curve[curve["eigenvectors"] == 5].iloc[0]
    every = curve.iloc[-1]
    change = every["within"] - five["within"]
    text = f"{five['within']:.2f} with 5, {every['within']:.2f} with "
    text += f"{every['eigenvectors']:.0f}, ARI then {every['ari']:.2f}"
    departs = _images(t, five["key"])
    return Finding(change, [change <= -0.3, every["ari"] < 1], text, departs=departs)


@claim("mthfl-fig4-3", data=("fashion_mnist",), unit="ARI", show="{:.2f}")
def few_numbers_give_the_same_clusters(t: Numbers) -> Finding:
    """Five eigenvectors give the right clusters, as all of them do."""
    curve = _curve(t)
    if curve.empty:
        return not_tested("the number of eigenvectors was not varied")
    five, every = curve[curve["eigenvectors"] == 5].iloc[0], curve.iloc[-1]
    text = f"ARI {five['ari']:.2f} with {five['numbers']:,.0f} numbers, "
    text += f"{every['ari']:.2f} with {every['numbers']:,.0f}"
    same = five["ari"] == every["ari"] == 1
    return Finding(five["ari"], same, text, departs=_images(t, five["key"]))


@claim("mthfl-text-exact", whole=True, any_data=True, unit="share", show="{:.0%}")
def grouping_is_always_exact(t: Numbers) -> Finding:
    """The clustering always gives the true groups, on all data and in every seed."""
    found = grouped(t)
    if found.empty:
        return not_tested("no users were grouped")
    right = (found["ari"] == 1).groupby([found["dataset"], found["tasks"]])
    told = [
        f"{own.sum()} of {len(own)} ({label(dataset)}, {tasks:.0f} tasks)"
        for (dataset, tasks), own in right
    ]
    share = (found["ari"] == 1).mean()
    return Finding(share, right.all().tolist(), ", ".join(told))


@claim("mthfl-text-minority", data=("cifar10",), unit="share", show="{:.0%}")
def a_minority_does_no_harm(t: Numbers) -> Finding:
    """With a tenth of the other task's labels the tasks are found in every seed."""
    found = grouped(t)
    if found.empty:
        return not_tested("no users with labels of another task were grouped")
    right = found["ari"] == 1
    text = f"{right.sum()} of {len(found)} seeds"
    return Finding(right.mean(), right.all(), text, departs=FEATURES)


@claim("mthfl-text-numbers", data=("fashion_mnist",), unit="share of the weights")
def less_than_the_weights(t: Numbers) -> Finding:
    """A user sends, and receives, a fifth of a model's weights or less."""
    cost = t.study("cost")
    if cost.empty:
        return not_tested("the numbers were not counted")
    ours, weights = cost.iloc[0], cost.iloc[-1]
    sent = ours["a user sends"] / weights["a user sends"]
    received = ours["a user receives"] / weights["a user receives"]
    text = f"sends {sent:.0%}, receives {received:.0%} of the weights"
    return Finding(sent, [sent <= 0.2, received <= 0.2], text)


# ---------------------------------------------------------------- training

PAIR = ["mthfl", "mthfl_random"]


def by_task(t: Numbers) -> pd.DataFrame:
    """Return accuracy after the last round: (seed, task) x grouping.

    Of the runs that test every task in every round if there are any, else of trainings,
    where all users of one task see one server. ``attrs["lucky"]``: seeds whose random
    groups are the tasks.
    """
    found = t.study("rounds", method=PAIR)
    if found.empty:
        rows = []
        for name in PAIR:
            clients = t.clients(name)
            if len(clients):
                rows.append(clients.assign(method=name, task=clients["true_cluster"]))
        if len(rows) < len(PAIR):
            return pd.DataFrame()
        found = pd.concat(rows).rename(columns={"test": "accuracy"})
        runs = t.trainings(*PAIR)[["key", "ari"]]
        found = found.drop(columns="ari", errors="ignore").merge(runs, on="key")
    else:
        found = found[found["round"] == found["round"].max()]
    drawn = found[(found["method"] == "mthfl_random") & (found["ari"] == 1)]
    wide = found.pivot_table("accuracy", ["seed", "task"], "method").dropna()
    wide = wide.reindex(columns=PAIR)
    wide.attrs["lucky"] = sorted(set(drawn["seed"]))
    return wide


def _gaps(t: Numbers) -> pd.Series:
    """Return by how much grouping by similarity is ahead, task by task."""
    wide = by_task(t)
    if wide.empty:
        return pd.Series(dtype=float)
    return (wide["mthfl"] - wide["mthfl_random"]).groupby(level="task").mean()


def _above_random(t: Numbers) -> Finding:
    gaps = _gaps(t)
    if gaps.empty:
        return not_tested("similar and random groups were not both trained")
    text = ", ".join(f"{gap:+.1f}" for gap in gaps)
    return Finding(gaps.min(), (gaps > 0).all(), text)


def _varies_less(t: Numbers) -> Finding:
    """Judge spreads over seeds, also without those whose random groups were right."""
    wide = by_task(t)
    if wide.empty:
        return not_tested("similar and random groups were not both trained")
    lucky = wide.index.get_level_values("seed").isin(wide.attrs["lucky"])
    holds, told = [], []
    for part in (wide, wide[~lucky]) if lucky.any() else (wide,):
        spread = part.groupby(level="task").std()
        holds.append((spread["mthfl"] < spread["mthfl_random"]).all())
        pairs = zip(spread["mthfl"], spread["mthfl_random"], strict=True)
        told.append(
            ", ".join(f"{ours:.1f} against {theirs:.1f}" for ours, theirs in pairs)
        )
    spread = wide.groupby(level="task").std()
    least = (spread["mthfl_random"] - spread["mthfl"]).min()
    return Finding(least, holds, ", without lucky draws ".join(told))


@claim("mthfl-fig2-1", data=("cifar10",))
def similar_groups_are_better_on_cifar(t: Numbers) -> Finding:
    """On CIFAR-10 groups by similarity are ahead of random ones on both tasks."""
    return _above_random(t)


@claim("mthfl-fig2-2", data=("cifar10",))
def similar_groups_vary_less_on_cifar(t: Numbers) -> Finding:
    """On CIFAR-10 runs grouped by similarity vary less than random ones."""
    return _varies_less(t)


@claim("mthfl-fig3-1", data=("fashion_mnist",))
def similar_groups_are_better_on_fashion(t: Numbers) -> Finding:
    """On Fashion-MNIST groups by similarity are ahead on all three tasks."""
    return _above_random(t)


@claim("mthfl-fig3-2", data=("fashion_mnist",))
def the_third_task_loses_most(t: Numbers) -> Finding:
    """On Fashion-MNIST random groups lose most on the third task."""
    gaps = _gaps(t)
    if gaps.empty:
        return not_tested("similar and random groups were not both trained")
    text = ", ".join(f"{-gap:+.1f}" for gap in gaps)
    return Finding(gaps.iloc[-1], gaps.idxmax() == gaps.index[-1], text)


@claim("mthfl-fig3-3", data=("fashion_mnist",))
def similar_groups_vary_less_on_fashion(t: Numbers) -> Finding:
    """On Fashion-MNIST runs grouped by similarity vary less than random ones."""
    return _varies_less(t)
