"""Notebook 08: what FeSEM's clusters are: local models in the plane, who moves, and whose hands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import rounds, store
from ..experiments import SEEDS
from ..experiments import fesem as experiment
from ..methods import FeSEM
from ..methods.modelspace import gram
from ..randomness import stream

if TYPE_CHECKING:
    import pandas as pd

    from ..federations import Federation
    from ..store import Result, Spec

DRAWS = 200  # random groupings beside a silhouette
PERMUTATIONS = 4999  # of the clients over two clusters
# keys of the random streams of this module: notebook 8, then the figure
FIGURE_4, FIGURE_5 = (8, 4), (8, 5)
OF_MODELS = "fesem_4"  # Figure 4
OF_HANDS = "fesem_2"  # Figure 5
SAMPLES = "training samples"


class Sent(NamedTuple):
    """What the clients sent in one round, and the clusters that the E-step then put them in.

    ``inner`` (M, M): inner products of the local models less their mean, in float64; ``labels`` (M,).
    """

    inner: np.ndarray
    labels: np.ndarray


class Watched(FeSEM):
    """FeSEM that keeps what everybody sent in some rounds, as inner products: enough for distances and for a PCA.

    ``shown`` are these rounds, ``kept`` becomes round -> :class:`Sent`. Everybody must take part in them.
    """

    def __init__(self, shown: Iterable[int], **options: Any):
        super().__init__(**options)
        self.shown = frozenset(shown)
        self.kept: dict[int, Sent] = {}

    def collect(self, state, clients, theta, round):
        """As FeSEM; keeps the round if it is wanted."""
        after = super().collect(state, clients, theta, round)
        if round in self.shown:
            own = theta[:, : int(state["trainable"])]
            inner = gram(own, own.mean(axis=0))
            # the mean was rounded to the models' type
            inner += inner.mean() - inner.mean(axis=0) - inner.mean(axis=1)[:, None]
            self.kept[round] = Sent(inner, np.array(after["labels"]))
        return after


def watch(spec: Spec, shown: Sequence[int], fed: Federation | None = None, rounds_to_run: int | None = None):
    """Run FeSEM and look at the models that are sent.

    Parameters
    ----------
    spec : Spec
        Of FeSEM as described.
    shown : sequence of int
        Rounds to look at.
    fed : Federation, optional
        In the place of the spec's.
    rounds_to_run : int, optional
        In the place of the spec's.

    Returns
    -------
    dict of int to Sent, Run
    """
    options = {name: value for name, value in spec.method.items() if name != "name"}
    method = Watched(shown, **options)
    settings = store._arguments(spec)
    settings["rounds"] = settings["eval_every"] = settings["rounds"] if rounds_to_run is None else rounds_to_run
    done = rounds.run(method, spec.federation_built() if fed is None else fed, **settings, progress=False)
    return method.kept, done


# ---------------------------------------------------------------- Figure 4


def local_models(specs: Iterable[Spec], profile: str) -> dict[str, dict[int, Sent]]:
    """Return federation -> round -> local models of FeSEM(4), first seed; looked up where that has been done."""
    shown, found = experiment.SIZES[profile]["shown"], {}
    for spec in specs:
        if spec.method_id != OF_MODELS or spec.note or spec.variant != "as_written" or spec.seed != SEEDS[profile][0]:
            continue

        def work(spec=spec) -> dict[str, np.ndarray]:
            kept, _ = watch(spec, shown)
            return {f"{name}/{r}": part for r, sent in kept.items() for name, part in sent._asdict().items()}

        held = store.cached_arrays({"local models of": spec.settings(), "run": spec.key(), "rounds": shown}, work)
        found[spec.dataset] = {r: Sent(held[f"inner/{r}"], held[f"labels/{r}"]) for r in shown}
    return found


def plane(sent: Sent) -> tuple[np.ndarray, float]:
    """First two principal components of the local models.

    Returns
    -------
    ndarray (M, 2), float
        Coordinates, and the share of the variance that they hold. Signs are such that the client farthest out on an
        axis is on its positive side.
    """
    values, vectors = np.linalg.eigh(sent.inner)
    values = np.maximum(values, 0)
    points = vectors[:, [-1, -2]] * np.sqrt(values[[-1, -2]])
    points *= np.where(points[np.abs(points).argmax(axis=0), [0, 1]] < 0, -1, 1)
    return points, float(values[-2:].sum() / values.sum()) if values.sum() > 0 else float("nan")


def points_table(found: Mapping[str, Mapping[int, Sent]]) -> pd.DataFrame:
    """Figure 4 as a table: ``dataset, round, client, cluster, x, y``."""
    import pandas as pd

    rows = []
    for dataset, at in found.items():
        for r, sent in at.items():
            for client, (x, y) in enumerate(plane(sent)[0]):
                rows.append((dataset, r, client, int(sent.labels[client]), float(f"{x:.4g}"), float(f"{y:.4g}")))
    return pd.DataFrame(rows, columns=["dataset", "round", "client", "cluster", "x", "y"])


def separation_table(found: Mapping[str, Mapping[int, Sent]], seed: int = 0) -> pd.DataFrame:
    """How far apart the clusters are, beside random groups of the same sizes.

    The mean silhouette is 1 for clusters far apart and 0 for clusters that touch.

    Returns
    -------
    DataFrame
        ``dataset, round, sizes`` (text), ``silhouette`` of the whole models, ``chance`` (mean of :data:`DRAWS` random
        groupings), ``highest`` (of these), ``in the plane`` (silhouette of what Figure 4 shows) and ``explained``
        (share of the variance in it). NaN where there is one cluster.
    """
    import pandas as pd

    rows = []
    for dataset, at in found.items():
        for r, sent in at.items():
            points, explained = plane(sent)
            square = np.diag(sent.inner)[:, None] + np.diag(sent.inner) - 2 * sent.inner
            far = np.sqrt(np.maximum(square, 0))
            np.fill_diagonal(far, 0)
            flat = np.linalg.norm(points[:, None] - points, axis=2)
            rng = stream(seed, "method", *FIGURE_4, r)
            drawn = [silhouette(far, rng.permutation(sent.labels)) for _ in range(DRAWS)]
            sizes = ", ".join(map(str, sorted(np.unique(sent.labels, return_counts=True)[1], reverse=True)))
            rows.append(
                {"dataset": dataset, "round": r, "sizes": sizes, "silhouette": silhouette(far, sent.labels)}
                | {"chance": np.mean(drawn), "highest": np.max(drawn)}
                | {"in the plane": silhouette(flat, sent.labels), "explained": explained}
            )
    return pd.DataFrame(rows)


def silhouette(distances: np.ndarray, labels: np.ndarray) -> float:
    """Mean silhouette of clusters, given all distances (M, M); NaN for one cluster or one client in each."""
    from sklearn.metrics import silhouette_score

    if not 2 <= len(np.unique(labels)) < len(labels):
        return float("nan")
    return float(silhouette_score(distances, labels, metric="precomputed"))


def inside(sent: Sent) -> float:
    """Mean squared distance of local models to the mean of their cluster."""
    total = 0.0
    for label in np.unique(sent.labels):
        own = sent.inner[np.ix_(sent.labels == label, sent.labels == label)]
        total += np.trace(own) - own.mean() * len(own)
    return total / len(sent.labels)


def moves(results: Iterable[Result]) -> pd.DataFrame:
    """Count the clients that are in another cluster than in the evaluated round before.

    Rounds begin with 2, as the first one makes the centres. Runs of FeSEM as described, without a note.

    Returns
    -------
    DataFrame
        ``dataset, method, seed, round, moved, clients`` (how many there are).
    """
    import pandas as pd

    rows = []
    for result in results:
        spec, at = result.spec, result.labels_at
        if spec.method_id not in experiment.FESEM or spec.note or spec.variant != "as_written":
            continue
        for before, now in zip(sorted(at)[1:], sorted(at)[2:], strict=False):
            moved = int((at[before] != at[now]).sum())
            rows.append((spec.dataset, spec.method_id, spec.seed, now, moved, len(at[now])))
    return pd.DataFrame(rows, columns=["dataset", "method", "seed", "round", "moved", "clients"])


def moves_table(moved: pd.DataFrame) -> pd.DataFrame:
    """Shorten :func:`moves` to a row per run: the last round with a move, and how many came after round 10."""
    import pandas as pd

    rows = []
    for key, own in moved.groupby(["dataset", "method", "seed"], sort=False):
        late, there = own[own["round"] > 10], own.loc[own["moved"] > 0, "round"]
        words = f"{late['moved'].sum()} of {late['clients'].sum()}" if len(late) else "no such round"
        rows.append((*key, int(there.max()) if len(there) else 1, own["round"].max(), words))
    return pd.DataFrame(
        rows, columns=["dataset", "method", "seed", "last move in round", "rounds", "moved after round 10"]
    )


# ---------------------------------------------------------------- Figure 5


def hands(
    runs: Mapping[str, tuple[Mapping[str, str], Mapping[str, Any]]], clients: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Whether FeSEM(2)'s clusters go with the hands of pseudo-writers, or with how many samples they hold.

    Parameters
    ----------
    runs : mapping
        Key -> (labels, settings), from :func:`fltnb.analysis.fesem.labels_and_settings`.
    clients : mapping
        From :func:`fltnb.analysis.fesem.clients_of`.

    Returns
    -------
    DataFrame
        One row per run and attribute: ``dataset, seed, attribute, sizes`` (text), ``effect``: difference of the two
        clusters' means in units of the spread inside them, the cluster of wider strokes first, so that the effect on
        width is never negative; ``p``: share of permutations of the clients with a difference at least as large in
        absolute value. NaN where all clients are in one cluster.
    """
    import pandas as pd

    rows = []
    for key, (label, settings) in runs.items():
        named = (label["method_id"], label["variant"], label["note"]) == (OF_HANDS, "as_written", "")
        if not named or settings["federation"]["kind"] != "pseudo_writers":
            continue
        values, cluster = attributes(settings["federation"], clients[key]), clients[key]["cluster"].to_numpy()
        bold = bolder(values["width"], cluster)
        sizes = f"{bold.sum()}, {(~bold).sum()}"
        for place, (name, value) in enumerate(values.items()):
            rng = stream(settings["seed"], "method", *FIGURE_5, place)
            effect, p = difference(value, bold, rng)
            rows.append((label["dataset"], settings["seed"], name, sizes, effect, p))
    return pd.DataFrame(rows, columns=["dataset", "seed", "attribute", "sizes", "effect", "p"])


def attributes(federation: Mapping[str, Any], clients: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the hands of pseudo-writers and their numbers of training samples: name -> (M,)."""
    from ..federations.pseudo_writers import STYLE, writer_styles

    styles = writer_styles(federation["n_clients"], federation["seed"], federation.get("strength", 1.0))
    return dict(zip(STYLE, styles.T, strict=True)) | {SAMPLES: clients["samples"].to_numpy(dtype=float)}


def bolder(width: np.ndarray, cluster: np.ndarray) -> np.ndarray:
    """Return who is in that one of two clusters whose mean stroke is wider, bool (M,); everybody where there is one."""
    names = np.unique(cluster)
    return cluster == max(names, key=lambda name: width[cluster == name].mean())


def difference(values: np.ndarray, first: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """Difference of two groups' means in units of the spread inside them, and its two-sided permutation p-value.

    Parameters
    ----------
    values : array (M,)
    first : array of bool (M,)
        Who is in the first group.
    rng : Generator

    Returns
    -------
    tuple of float
        NaN where one group is empty or both have a single member; the p-value is at least
        1 / (:data:`PERMUTATIONS` + 1).
    """
    n, other = int(first.sum()), int((~first).sum())
    if min(n, other) == 0 or n + other < 3:
        return float("nan"), float("nan")
    within = (n * values[first].var() + other * values[~first].var()) / (n + other - 2)
    found = values[first].mean() - values[~first].mean()
    # the sum of the first group decides the difference of the means
    sums = np.array([rng.permutation(values)[:n].sum() for _ in range(PERMUTATIONS)])
    drawn = sums / n - (values.sum() - sums) / other
    as_large = (np.abs(drawn) >= abs(found) - 1e-12 * np.abs(values).max()).sum()
    return float(found / np.sqrt(within)) if within > 0 else float("nan"), float((1 + as_large) / (1 + PERMUTATIONS))
