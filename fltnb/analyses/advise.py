"""Advice: do clients form groups, and is a model for each group worth it.

Clusterers that use inputs only, and one that also uses classes, are applied to all
samples, and to parts of them with other seeds. The gain of their clusters is estimated
before anything is trained.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from .. import clustering, methods
from ..clustering.base import ClientClusterer, check_clients
from ..clustering.ours import (
    Gain,
    MergeGain,
    TransportSignatures,
    clustering_gain,
)
from ..encoders import EncoderSpec, embed_clients
from ..errors import FltnbError, by_name, choose, with_names
from ..federations import Federation
from ..federations.preprocessing import some
from ..metrics import adjusted_rand_index
from ..progress import bar
from ..randomness import stream
from ..settings import Count, Natural, check

PART = 0.8  # of a client's samples, drawn again for every further seed
KEPT = 8  # this number of a client's samples is always kept
STABLE = 0.6  # with less agreement between seeds, groups are not reliable
WORTH = 3.0  # a smaller gain, in points, should be confirmed by training
ERRORS = 2.0  # a gain must exceed this multiple of its standard error
FEW = 20  # a client with fewer training samples has an uncertain cluster
THINNED = 30  # key of the draws
MOST_CENTROIDS = 5  # of FCR
MOST_VECTORS = 5  # of EigenRelevance
FOR_EMD = 256  # samples for earth mover's distances
MOST_SAID = 3  # warnings of a clusterer in its note: some warn of every client
ONE_MODEL = "one model for all"
ALONE = "a model of each client's own"


class _ByClusterer(dict):
    """Values by a clusterer's name; asked for one that was not used, it says why not.

    ``unused``: clusterer -> that sentence.
    """

    def __init__(self, values: Mapping[str, Any], unused: Mapping[str, str]) -> None:
        super().__init__(values)
        self.unused = dict(unused)

    def __missing__(self, name: str) -> Any:
        if name in self.unused:
            raise FltnbError(self.unused[name])
        return choose(name, self, "clusterer of this advice")


@dataclass(repr=False)
class Advice:
    """The result of :func:`advise`.

    Attributes
    ----------
    text : str
        The recommendation, with its reason.
    recommended : str
        A clusterer of ``table``, "one model for all" or "a model of each client's own".
    table : DataFrame
        A row per clusterer: ``clusterer``; ``sees`` ("inputs", or "inputs and
        classes"); ``n_clusters``; ``stability`` (mean adjusted Rand index between
        seeds); estimated gain in accuracy of a model per cluster, in points, over one
        model for all (``gain``) and over a model of each client's own (``over_own``;
        below 0: training alone is better), with standard errors (``error``,
        ``over_own_error``); ``bytes`` that a client sends for one clustering of all
        samples, on average; ``seconds`` of all seeds; and ``note``: why it could not
        cluster, or what it warned of. Printed, notes are below.
    agreement : DataFrame
        Adjusted Rand index between the clusterers' results.
    labels : dict
        Clusterer -> cluster of each client (M,), of the first seed.
    together : dict
        Clusterer -> share of the seeds for which two clients are in one cluster,
        (M, M).
    names : tuple of str, the clients
    clusterers : dict
        Name -> fitted clusterer, which places newcomers: ``place``. Asked for a
        clusterer that could not be used, these three dicts say why.
    embedded : list of M arrays (n_i, e), the clustered samples

    Examples
    --------
    >>> import fltnb as fl
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> advice = fl.advise(fed, n_seeds=1, progress=False)
    >>> advice.groups
    {0: ['0', '1'], 1: ['2', '3'], 2: ['4', '5']}
    """

    text: str
    recommended: str
    table: pd.DataFrame
    agreement: pd.DataFrame
    labels: dict[str, np.ndarray]
    together: dict[str, np.ndarray]
    names: tuple[str, ...]
    clusterers: dict[str, ClientClusterer]
    embedded: list[np.ndarray]

    @property
    def groups(self) -> dict[int, list[str]]:
        """Return the clients' names by cluster, as recommended."""
        labels = self._labels()
        groups = {}
        for cluster in range(labels.max() + 1):
            members = np.flatnonzero(labels == cluster)
            groups[cluster] = [self.names[i] for i in members]
        return groups

    @property
    def method(self) -> methods.Method:
        """Return the recommended method, for :func:`fltnb.run`."""
        if self.recommended == ONE_MODEL:
            return methods.FedAvg()
        if self.recommended == ALONE:
            return methods.Local()
        return methods.Clusters(self._labels())

    def _labels(self) -> np.ndarray:
        """Return the cluster of each client (M,), as recommended."""
        n_clients = len(self.names)
        if self.recommended == ALONE:
            return np.arange(n_clients)
        if self.recommended == ONE_MODEL:
            return np.zeros(n_clients, dtype=np.int64)
        return self.labels[self.recommended]

    @property
    def headline(self) -> str:
        """Return the recommendation in a few words."""
        if self.recommended not in self.labels:
            unused = self.table.loc[self.table["n_clusters"].isna(), "clusterer"]
            if len(unused):
                return f"{self.recommended} ({', '.join(unused)} could not be used)"
            return self.recommended
        row = self.table.set_index("clusterer").loc[self.recommended]
        return (
            f"{len(self.groups)} groups by {self.recommended}: "
            f"{row['gain']:+.0f} ± {row['error']:.0f} points over one model, estimated"
        )

    def __repr__(self) -> str:
        shown = self.table.drop(columns=["seconds", "note"]).round(2)
        text = f"{self.text}\n\n{shown.to_string(index=False)}"
        noted = self.table[self.table["note"] != ""]
        notes = [f"{row['clusterer']}: {row['note']}" for _, row in noted.iterrows()]
        return "\n".join([text, "", *notes]) if notes else text


def advise(
    fed: Federation,
    embed: EncoderSpec | Sequence[np.ndarray] | Callable | None = None,
    n_seeds: Count = 3,
    seed: Natural = 0,
    progress: bool = True,
) -> Advice:
    """Say whether clients form groups, and whether a model per group is worth it.

    No network is trained, and test samples are not used. The gain is estimated by
    :func:`fltnb.clustering_gain`: ridge regressions on the result of ``embed``.

    Parameters
    ----------
    fed : Federation
        Its classes are used, too: groups may give the same inputs different classes.
    embed : EncoderSpec, sequence of M arrays (n_i, e) or function, optional
        The input of the clusterers: an encoder's embeddings, your own arrays, or a
        function of a client's inputs. By default the samples themselves, which suits
        tables and small pictures.
    n_seeds : int
        Number of clusterings by each clusterer: the first on all samples, the others
        with other seeds on four fifths of them.
    seed : int
        The first seed.
    progress : bool, show a bar

    Raises
    ------
    FltnbError
        Numbers are predicted, there are fewer than three clients, an option is out of
        range, the result of ``embed`` does not fit, or no clusterer can work with these
        clients.

    Examples
    --------
    >>> import fltnb as fl
    >>> rng = np.random.default_rng(0)
    >>> wards = []
    >>> for turned in (0, 0, 0, 1, 1, 1):
    ...     x = rng.normal(size=(60, 2))
    ...     wards.append((x, (x[:, 0] > 0) ^ turned))
    >>> fed = fl.Federation.from_clients(wards)
    >>> advice = fl.advise(fed, progress=False)
    >>> advice.recommended, advice.groups
    ('MergeGain', {0: ['0', '1', '2'], 1: ['3', '4', '5']})
    """
    n_seeds = check("n_seeds", n_seeds, Count)
    seed = check("seed", seed, Natural)
    if not isinstance(fed, Federation):
        raise FltnbError(
            f"fl.advise needs a Federation, not {type(fed).__name__}: make one, such "
            "as by fl.Federation.from_frame(table, client=..., label=...)."
        )
    if fed.targets == "values":
        raise FltnbError(
            "fl.advise estimates the accuracy of classes, and this federation has "
            "values to predict: compare runs of FedAvg, FLT(TransportSignatures()), "
            "which needs no classes, and Local instead."
        )
    if fed.n_clients < 3:
        raise FltnbError(
            f"This federation has {fed.n_clients} client(s), too few for groups: "
            "fl.advise needs 3 or more."
        )
    embedded = _embedded(fed, embed)
    sizes = [len(x) for x in embedded]
    width = embedded[0].shape[1]
    candidates = _candidates(sizes, width, seed)
    trials = []
    shown = bar(candidates, shown=progress, desc="Clusterers", unit="clusterer")
    for sees, clusterer in shown:
        trials.append(_tried(fed, embedded, clusterer, sees, n_seeds, seed))
    return _judged(fed, embedded, trials, seed)


@dataclass
class _Trial:
    """One clusterer, over all seeds.

    Attributes
    ----------
    name, sees : str
        As in the table of :class:`Advice`.
    clusterer : ClientClusterer
        Fitted on all samples; unfitted where it refused.
    labels : list of int arrays (M,)
        Clusters of each seed; none where it refused.
    stability : float
        Mean adjusted Rand index between seeds; NaN of a single one.
    seconds : float
    gain : Gain, optional
        What the clusters of the first seed would gain.
    fault : str
        Why there are no labels.
    warned : str
        What it warned of at the first seed, or else at the first that warned.
    """

    name: str
    sees: str
    clusterer: ClientClusterer
    labels: list[np.ndarray] = field(default_factory=list)
    stability: float = np.nan
    seconds: float = 0.0
    gain: Gain | None = None
    fault: str = ""
    warned: str = ""

    @property
    def n_clusters(self) -> int:
        """Number of clusters of the first seed, 0 where there are no labels."""
        if not self.labels:
            return 0
        return int(self.labels[0].max()) + 1


def _embedded(fed: Federation, embed: Any) -> list[np.ndarray]:
    """Return what the clusterers see of each client, (n_i, e), or refuse it."""
    if isinstance(embed, EncoderSpec):
        return embed_clients(fed, embed)
    if embed is None and fed.layout == "tokens":
        raise FltnbError(
            "Tokens are numbers of words, which have no distance: give embed, a "
            "function that makes an array (n, e) of a client's tokens."
        )
    inputs = [fed.inputs(index) for index in fed.train]
    if embed is None:
        return [x.reshape(len(x), -1) for x in inputs]
    if callable(embed):
        embed = [embed(x) for x in inputs]
    arrays = check_clients(list(embed))
    if [len(one) for one in arrays] != fed.sizes.tolist():
        raise FltnbError(
            "embed must give one row (e,) for each training sample of each client, as "
            "many as fed.sizes says."
        )
    return arrays


def _candidates(
    sizes: Sequence[int], width: int, seed: int
) -> list[tuple[str, ClientClusterer]]:
    """Return clusterers with their inputs, and options that fit these clients.

    Parameters
    ----------
    sizes : sequence of M int
        Training samples of each client.
    width : int
        Numbers of a sample.
    seed : int
    """
    # every part of the smallest client's samples has at least so many
    fewest = max(1, min(min(sizes), KEPT))
    k = max(1, min(MOST_CENTROIDS, fewest // 2))
    n_vectors = max(1, min(MOST_VECTORS, fewest, width))
    of_inputs = [
        TransportSignatures(random_state=seed),
        clustering.FCR(k=k, n_neighbors=None, random_state=seed),
        clustering.MeanImage(),
        clustering.EigenRelevance(n_eigenvectors=n_vectors, random_state=seed),
        clustering.EMDClustering(
            tolerance="auto", max_samples=FOR_EMD, random_state=seed
        ),
    ]
    found = [("inputs and classes", MergeGain(n_draws=4, random_state=seed))]
    for clusterer in of_inputs:
        found.append(("inputs", clusterer))
    return found


def _tried(
    fed: Federation,
    embedded: list[np.ndarray],
    clusterer: ClientClusterer,
    sees: str,
    n_seeds: int,
    seed: int,
) -> _Trial:
    """Cluster with every seed; of a clusterer that refuses, keep the reason."""
    begun = perf_counter()
    trial = _Trial(type(clusterer).__name__, sees, clusterer)
    fitted = []
    try:
        with by_name(fed.names):
            for number in range(n_seeds):
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always", UserWarning)
                    one = _fitted(fed, embedded, clusterer, number, seed)
                fitted.append(one)
                told = _told(said, fed.names)
                if told and not trial.warned:
                    where = "" if number == 0 else f"At seed {seed + number}: "
                    trial.warned = where + told
    except FltnbError as error:
        trial.fault = str(error)
        return trial

    trial.clusterer = fitted[0]
    trial.labels = [one.labels_ for one in fitted]
    agreements = []
    for one_seed, other_seed in combinations(trial.labels, 2):
        agreements.append(adjusted_rand_index(one_seed, other_seed))
    if agreements:
        trial.stability = float(np.mean(agreements))
    first = trial.labels[0]
    trial.gain = clustering_gain(fed, first, seed=seed, embedded=embedded)
    trial.seconds = perf_counter() - begun
    return trial


def _told(said: Sequence[warnings.WarningMessage], names: Sequence[str]) -> str:
    """Return the first warnings of a clusterer, once each, with clients' names."""
    texts = dict.fromkeys(with_names(str(one.message), names) for one in said)
    more = len(texts) - MOST_SAID
    rest = [f"And {more} more warnings."] if more > 0 else []
    return _join(*list(texts)[:MOST_SAID], *rest)


def _fitted(
    fed: Federation,
    embedded: list[np.ndarray],
    clusterer: ClientClusterer,
    number: int,
    seed: int,
) -> ClientClusterer:
    """Return a clusterer fitted with one seed.

    ``number``: of the clustering; each has its own seed and its own part of the samples
    (:func:`_part`), so that their agreement shows what does not depend on either.
    """
    one = clone(clusterer)
    if "random_state" in one.get_params():
        one.set_params(random_state=seed + number)
    x, y = _part(fed, embedded, number, seed)
    if not clusterer.labelled:
        return one.fit(x)
    if hasattr(one, "n_classes"):
        # a part may lack the last classes
        one.set_params(n_classes=max(2, fed.n_classes))
    return one.fit(x, y)


def _part(
    fed: Federation, embedded: list[np.ndarray], number: int, seed: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the inputs of clusterers for one seed.

    Parameters
    ----------
    embedded : list of M arrays (n_i, e)
        Of all training samples.
    number : int
        Of the clustering: 0 has all samples.
    seed : int

    Returns
    -------
    x : list of M arrays (kept, e)
    y : list of M arrays (kept,)
        Their classes.
    """
    x = []
    y = []
    for client, rows in enumerate(_rows(fed.sizes, number, seed)):
        x.append(embedded[client][rows])
        y.append(fed.labels[fed.train[client]][rows])
    return x, y


def _rows(sizes: np.ndarray, number: int, seed: int) -> Iterator[np.ndarray]:
    """Yield each client's samples for a seed: all for the first, then four fifths."""
    for client, size in enumerate(sizes):
        kept = size
        if number > 0:
            least = min(size, KEPT)
            kept = max(round(PART * size), least)
        rng = stream(seed, "method", THINNED, number, client)
        yield np.sort(rng.permutation(size)[:kept])


def _judged(
    fed: Federation, embedded: list[np.ndarray], trials: list[_Trial], seed: int
) -> Advice:
    """Make the tables, and the sentences of the recommendation.

    All gains are estimated by regressions of the same ``seed``.

    Raises
    ------
    FltnbError
        All clusterers refused.
    """
    done = [trial for trial in trials if trial.labels]
    if not done:
        raise FltnbError(
            f"No clusterer can work with these clients: {trials[0].name} says that "
            f"{trials[0].fault}"
        )
    labels = {trial.name: trial.labels[0] for trial in done}
    together = {}
    for trial in done:
        same = [np.equal.outer(one, one) for one in trial.labels]
        together[trial.name] = np.mean(same, axis=0)
    one_cluster = np.zeros(fed.n_clients, dtype=np.int64)
    one = clustering_gain(fed, one_cluster, seed=seed, embedded=embedded)
    recommended, text = _recommendation(fed, done, one)
    unused = {}
    for trial in trials:
        if trial.fault:
            unused[trial.name] = _on_unused(trial, fed)
    if unused:
        text = _join(*unused.values(), "By the others:", text)
    return Advice(
        text=text,
        recommended=recommended,
        table=pd.DataFrame([_row(trial) for trial in trials]),
        agreement=pd.DataFrame(labels).corr(adjusted_rand_index),
        labels=_ByClusterer(labels, unused),
        together=_ByClusterer(together, unused),
        names=fed.names,
        clusterers=_ByClusterer({one.name: one.clusterer for one in done}, unused),
        embedded=embedded,
    )


def _row(trial: _Trial) -> dict[str, Any]:
    """Return a clusterer's row of the table."""
    row: dict[str, Any] = {"clusterer": trial.name, "sees": trial.sees}
    if trial.labels:
        row["n_clusters"] = trial.n_clusters
        row["stability"] = trial.stability
        row["gain"] = trial.gain.points
        row["error"] = trial.gain.error
        row["over_own"] = trial.gain.over_own
        row["over_own_error"] = trial.gain.over_own_error
        row["bytes"] = float(np.mean(trial.clusterer.bytes_sent()))
    row["seconds"] = trial.seconds
    row["note"] = trial.fault or trial.warned
    return row


def _recommendation(fed: Federation, done: list[_Trial], one: Gain) -> tuple[str, str]:
    """Return what to do, and the sentences that say why.

    Groups are recommended if a clusterer finds the same ones at every seed, and if they
    gain more than chance over one model for all; of several the one that gains most.
    Training alone is recommended if it is better than these groups, or than one model
    where there are none.

    Parameters
    ----------
    fed : Federation
    done : list of _Trial
        Those with labels.
    one : Gain
        What one cluster of all gains over training alone.
    """
    dividing = [trial for trial in done if 1 < trial.n_clusters < fed.n_clients]
    # NaN, from a single seed, does not count against them
    stable = [trial for trial in dividing if not trial.stability < STABLE]
    worth = [trial for trial in stable if _is_worth(trial.gain)]
    few = _on_few(fed, done)
    if worth:
        best = _best(worth)
        if _loses_to_own(best.gain):
            return ALONE, _join(_on_alone(best.gain, "the best groups"), few)
        names = _on_groups(best, fed)
        return best.name, _join(names, _on_others(best, done), few)
    if _loses_to_own(one):
        return ALONE, _join(_on_alone(one, "one model for all"), few)
    over_own = (
        f"One model gains an estimated {one.over_own:.1f} ± {one.over_own_error:.1f} "
        "points over training alone."
    )
    return ONE_MODEL, _join(_on_none(dividing, stable), over_own, few)


def _best(trials: list[_Trial]) -> _Trial:
    """Return the clusterer whose groups gain most over one model for all."""
    return max(trials, key=lambda trial: trial.gain.points)


def _is_worth(gain: Gain) -> bool:
    """Whether groups gain enough over one model, beyond chance."""
    return gain.points > max(WORTH, ERRORS * gain.error)


def _loses_to_own(gain: Gain) -> bool:
    """Whether training alone is significantly better by as much."""
    return -gain.over_own > max(WORTH, ERRORS * gain.over_own_error)


def _join(*sentences: str) -> str:
    """Join the sentences that are not empty."""
    return " ".join(sentence for sentence in sentences if sentence)


def _on_unused(trial: _Trial, fed: Federation) -> str:
    """Say why a clusterer could not be used, because of whom, and how to mend it.

    It may be the one that would have found the groups, so this comes first.
    """
    start = f"{trial.name}, which sees {trial.sees}, could not be used"
    small = trial.clusterer.too_small(fed.sizes.tolist())
    if not small:
        return f"{start}: {trial.fault}"
    # the least number that leaves them out; it counts the samples of all parts
    parts = (fed.train, fed.val, fed.test)
    enough = 1 + max(sum(len(part[i]) for part in parts) for i in small)
    who = some([fed.names[i] for i in small])
    return (
        f"{start}, because there are too few training samples of {who}: give "
        f"min_samples={enough} where the federation is made, which leaves such clients "
        "out, and ask again."
    )


def _on_alone(gain: Gain, other: str) -> str:
    """Return why each client should train alone, and not as in ``other``."""
    return (
        f"Train a model for each client alone: it is an estimated {-gain.over_own:.1f} "
        f"± {gain.over_own_error:.1f} points better than {other}."
    )


def _on_groups(best: _Trial, fed: Federation) -> str:
    """Say which groups to train in, and what they gain."""
    labels = best.labels[0]
    groups = []
    for cluster in range(best.n_clusters):
        members = [fed.names[i] for i in np.flatnonzero(labels == cluster)]
        groups.append(some(members))
    who = " | ".join(groups)
    again = ""
    if not np.isnan(best.stability):
        again = f", again at other seeds (agreement {best.stability:.2f})"
    gain = best.gain
    return (
        f"Train a model for each of {best.n_clusters} groups: {best.name}, which sees "
        f"{best.sees}, finds {who}{again}; they gain an estimated "
        f"{gain.points:.1f} ± {gain.error:.1f} points over one model for all, and "
        f"{gain.over_own:.1f} ± {gain.over_own_error:.1f} over training alone."
    )


def _on_others(best: _Trial, done: list[_Trial]) -> str:
    """Say whether the other clusterers find the same groups."""
    agreeing = []
    for trial in done:
        near = adjusted_rand_index(trial.labels[0], best.labels[0]) >= STABLE
        if trial is not best and near:
            agreeing.append(trial.name)
    if agreeing:
        return f"Much the same groups are found by {some(agreeing)}."
    if best.sees != "inputs":
        return (
            "Clusterers that see inputs only do not find them: the groups probably "
            "differ in what the same inputs mean."
        )
    return "No other clusterer finds them: train with and without them."


def _on_none(dividing: list[_Trial], stable: list[_Trial]) -> str:
    """Say why no groups are recommended.

    Parameters
    ----------
    dividing : list of _Trial
        Those that find several groups.
    stable : list of _Trial
        Of these, those that find the same ones at every seed.
    """
    if not dividing:
        return "Train one model for all: no clusterer divides the clients into groups."
    best = _best(stable or dividing)
    gain = best.gain
    again = " again at other seeds" if 0 < len(stable) < len(dividing) else ""
    found = (
        f"the best of the groups found{again}, {best.n_clusters} by {best.name}, would "
        f"gain an estimated {gain.points:.1f} ± {gain.error:.1f} points"
    )
    if best.stability < STABLE:
        return (
            f"Train one model for all: {found}, but are others at other seeds "
            f"(agreement {best.stability:.2f})."
        )
    if gain.points > ERRORS * gain.error:
        return (
            f"Train one model for all, and to be sure with groups as well: {found}, "
            "which is little."
        )
    chance = ", which may be chance" if gain.points > 0 else ""
    return f"Train one model for all: {found}{chance}."


def _on_few(fed: Federation, done: Sequence[_Trial]) -> str:
    """Name the clients whose place is uncertain, and what the smallest one limits."""
    few = [fed.names[i] for i in np.flatnonzero(fed.sizes < FEW)]
    if not few:
        return ""
    uncertain = (
        f"Uncertain is the place of clients with fewer than {FEW} training samples: "
        f"{some(few)}."
    )
    limits = []
    for trial in done:
        if isinstance(trial.clusterer, clustering.FCR):
            k = trial.clusterer.k
            if isinstance(k, int) and k < MOST_CENTROIDS:
                limits.append(f"FCR to k={k}")
        elif isinstance(trial.clusterer, clustering.EigenRelevance):
            n = trial.clusterer.n_eigenvectors
            if n < MOST_VECTORS and n == min(fed.sizes):
                limits.append(f"EigenRelevance to n_eigenvectors={n}")
    if not limits:
        return uncertain
    smallest = fed.names[int(np.argmin(fed.sizes))]
    return (
        f"{uncertain} {smallest}, with {min(fed.sizes)}, limits {' and '.join(limits)} "
        "for all clients."
    )
