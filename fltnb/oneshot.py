"""Studies of one-shot clusterings, without any training: how well a clusterer finds the clients' true clusters.

One :class:`ClusterSpec` is one clusterer on one federation. Each result is a small JSON file in the store, named by the
hash of everything that decides it, so a stopped study goes on at the first missing one. Clusterers that look at the
same federation through the same encoder share one embedding, which is nearly all of the work.

Two clusterers get more than embeddings of the training samples: PACFL their classes, and EMD-CFL's, with an encoder of
kind ``own`` (:class:`fltnb.methods.ownmodels.OwnModels`), everybody's validation samples under every client's network.
"""

from __future__ import annotations

import json
import numbers
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import paths, store
from .errors import FltnbError, choose
from .metrics import adjusted_rand_index
from .provenance import code_version, environment
from .rounds import plain

if TYPE_CHECKING:
    import pandas as pd

LABELS = ("experiment", "dataset", "method", "note", "seed")
MEASURED = (
    *("n_clients", "true_clusters", "n_clusters", "ari", "undecided", "ari_decided"),
    *("links_inside", "links_across", "seconds", "floats_up", "key"),
)
"""Columns of the table besides the labels and the axes; :func:`compute` says what they mean."""


@dataclass(frozen=True)
class ClusterSpec:
    """One clustering: what decides it, and the labels under which tables show it.

    Parameters
    ----------
    federation, clusterer, encoder : dict
        What :func:`fltnb.federations.build` takes, and the clusterer and the encoder of a method's settings
        (:func:`fltnb.methods.build`). An encoder of kind ``own`` has the options of
        :class:`fltnb.methods.ownmodels.OwnModels` and is for ``EMDClustering`` alone.
    seed : int
        ``random_state`` of the clusterer, unless ``clusterer`` names one. The federation has its own seed.
    experiment, dataset, method_id, note : str
        Labels; they do not enter the key.
    noise : float
        Noise on what clients send, see :func:`fltnb.relatedness.noise.noisy`.
    axes : dict
        Further labels: what the study varies, name to plain value, such as ``{"clients": 240, "k": 5}``. Each becomes
        a column.

    Raises
    ------
    FltnbError
        An axis has the name of another column, or a value that is no plain one.
    """

    federation: dict[str, Any]
    clusterer: dict[str, Any]
    encoder: dict[str, Any]
    seed: int = 0
    experiment: str = ""
    dataset: str = ""
    method_id: str = ""
    note: str = ""
    noise: float = 0.0
    axes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.axes.items():
            if name in (*LABELS, *MEASURED) or not isinstance(value, (str, bool, numbers.Real)):
                raise FltnbError(
                    f"The axis {name!r} with value {value!r} cannot be a column: give plain values, and a name that is"
                    f" not one of {', '.join((*LABELS, *MEASURED))}."
                )

    def settings(self) -> dict[str, Any]:
        """All that decides the result, JSON-able."""
        names = ("federation", "clusterer", "encoder", "seed", *(["noise"] if self.noise else []))
        return plain({name: getattr(self, name) for name in names})

    def labels(self) -> dict[str, Any]:
        """How tables show the clustering."""
        shown = {"experiment": self.experiment, "dataset": self.dataset, "method": self.method_id, "note": self.note}
        return plain({**shown, "seed": self.seed, **self.axes})

    def federation_built(self):
        """Return the federation (the last few are kept in memory)."""
        return store._federation(json.dumps(plain(self.federation), sort_keys=True))

    def clusterer_built(self):
        """Return the clusterer, unfitted, with the spec's seed."""
        from . import methods

        made = methods.build({"name": "flt", "clusterer": self.clusterer}).clusterer
        if "random_state" in made.get_params() and "random_state" not in self.clusterer:
            made.set_params(random_state=self.seed)
        if self.noise:
            from .relatedness.noise import noisy

            return noisy(made, self.noise, self.seed)
        return made

    def encoder_built(self):
        """Return the encoder: an :class:`~fltnb.encoders.EncoderSpec`, or the clients' own models."""
        from . import methods
        from .methods import ownmodels

        if self.encoder.get("kind") != ownmodels.KIND:
            return methods.build({"name": "flt", "encoder": self.encoder}).encoder
        options = {name: value for name, value in self.encoder.items() if name != "kind"}
        for name in options:
            choose(name, ownmodels.OwnModels.__dataclass_fields__, "option of the clients' own models")
        return ownmodels.OwnModels(**options)

    def key(self) -> str:
        """Hash of settings, data and code: the name of the result's file in the store."""
        data = self.federation_built().fingerprint()
        return store._hash({"settings": self.settings(), "data": data, "code": self.code_version()})

    def code_version(self) -> str:
        """Version of the code that this clustering uses: other clusterers and partitions do not count."""
        from . import federations

        kinds = [federations.KINDS[kind] for kind in store._kinds(federations.complete(self.federation))]
        return code_version(*kinds, self.clusterer_built(), self.encoder_built(), measure)

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.labels().items() if value != "")


def compute(
    specs: Sequence[ClusterSpec], n_jobs: int = 1, progress: bool = True, fresh: bool | None = None
) -> pd.DataFrame:
    """Return one row per clustering: looked up in the store, else computed, in the order of ``specs``.

    Parameters
    ----------
    specs : sequence of ClusterSpec
    n_jobs : int
        Federations at a time (joblib; a cluster through ``joblib.parallel_config``).
    progress : bool
    fresh : bool, optional
        Ignore what was stored before this call; by default the environment variable ``FLTNB_FRESH`` decides.

    Returns
    -------
    DataFrame
        Labels and axes of the spec; ``n_clients``; ``true_clusters`` (0: not known); ``n_clusters`` found; ``ari`` with
        the truth (NaN where it is not known); ``undecided`` (clients for which the estimator says that their data do
        not tell, 0 where it never says so) and ``ari_decided``, over the other clients; ``links_inside`` and
        ``links_across``, see :func:`link_shares`; ``seconds`` of the fit, embedding not counted; ``floats_up``, sent
        by a client on average; ``key`` of its provenance.

    Raises
    ------
    FltnbError
        A spec that cannot work; all are looked at before any is computed.
    """
    import pandas as pd
    from joblib import Parallel, delayed

    from .progress import bar as progress_bar

    if isinstance(specs, ClusterSpec):
        specs = [specs]
    if not isinstance(n_jobs, numbers.Integral) or n_jobs < 1:
        raise FltnbError(f"n_jobs must be a whole number of at least 1, not {n_jobs!r}.")
    since = store._since(fresh)
    groups: dict[str, list[int]] = {}  # places that share federation and encoder, hence the embedding
    for place, spec in enumerate(specs):
        shared = {"federation": spec.federation, "encoder": spec.encoder}
        groups.setdefault(json.dumps(plain(shared), sort_keys=True), []).append(place)
    rows: dict[int, dict] = {}
    missing = []
    for places in groups.values():
        for place in places:
            _check(specs[place])
            known = _load(specs[place], since)
            if known is not None:
                rows[place] = known
        if wanting := [place for place in places if place not in rows]:
            missing.append(wanting)
    with progress_bar(shown=progress, total=sum(map(len, missing)), desc="clusterings") as bar:
        if n_jobs == 1:
            done = (_group([specs[place] for place in places], bar.update) for places in missing)
        else:
            work = (delayed(_group)([specs[place] for place in places]) for places in missing)
            done = Parallel(n_jobs=n_jobs, return_as="generator")(work)
        for places, computed in zip(missing, done, strict=True):
            rows |= dict(zip(places, computed, strict=True))
            if n_jobs > 1:
                bar.update(len(places))
    table = pd.DataFrame([{**spec.labels(), **rows[place]} for place, spec in enumerate(specs)])
    axes = [name for name in table.columns if name not in (*LABELS, *MEASURED)]
    return table[[*LABELS, *axes, *MEASURED]]


def _check(spec: ClusterSpec) -> None:
    from .encoders import EncoderSpec
    from .relatedness import EMDClustering

    clusterer, encoder = spec.clusterer_built(), spec.encoder_built()
    if not isinstance(encoder, EncoderSpec) and not isinstance(clusterer, EMDClustering):
        raise FltnbError(
            f"{spec.clusterer['name']} compares clients' embeddings, and every client's own network has other axes:"
            " the encoder of kind 'own' is for EMDClustering alone."
        )
    if hasattr(clusterer, "check"):
        clusterer.check(spec.federation_built().sizes.tolist())


def _path(key: str) -> Path:
    return paths.store() / "clusterings" / f"{key}.json"


def _load(spec: ClusterSpec, since: float) -> dict[str, Any] | None:
    path = _path(spec.key())
    if not store._there(path, since):
        return None
    try:
        row = json.loads(path.read_text(encoding="utf-8"))["row"]
        return {name: float("nan") if row[name] is None else row[name] for name in MEASURED}
    except (OSError, ValueError, KeyError, TypeError) as error:
        warnings.warn(f"Store entry {path} is damaged ({error!r}): only this one is computed again.", stacklevel=2)
        return None


def _group(specs: list[ClusterSpec], tick=lambda: None) -> list[dict[str, Any]]:
    """Embed one federation and fit all clusterers of ``specs`` on it; each row is stored as soon as it is there."""
    from . import encoders
    from .relatedness import PACFL

    fed, encoder = specs[0].federation_built(), specs[0].encoder_built()
    if isinstance(encoder, encoders.EncoderSpec):
        embeddings, validation = encoders.embed_clients(fed, encoder, n_jobs=1), None
    else:
        embeddings, validation = encoder.embed(fed)
    classes = [fed.labels[index] for index in fed.train]
    rows = []
    for spec in specs:
        clusterer = spec.clusterer_built()
        begun = time.perf_counter()
        with warnings.catch_warnings():  # the table says how many clusters were found
            warnings.filterwarnings("ignore", message=".*clusters were asked for but")
            clusterer.fit(embeddings, classes if isinstance(clusterer, PACFL) else validation)
        seconds = time.perf_counter() - begun
        rows.append({**measure(clusterer, fed.clusters), "seconds": round(seconds, 3), "key": spec.key()})
        _save(spec, fed, rows[-1])
        tick()
    return rows


def _save(spec: ClusterSpec, fed, row: dict[str, Any]) -> None:
    provenance = {
        **environment(),
        "code": spec.code_version(),
        "data_origin": fed.origin,
        "data": fed.fingerprint(),
        "seconds": row["seconds"],
        "finished": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    bare = {name: None if isinstance(value, float) and np.isnan(value) else value for name, value in row.items()}
    record = {"key": row["key"], "settings": spec.settings(), "provenance": provenance, "row": bare}
    text = json.dumps(record, indent=1, allow_nan=False).encode()
    paths.write_atomically(_path(row["key"]), lambda file: file.write(text))


def measure(clusterer, clusters: np.ndarray | None) -> dict[str, Any]:
    """Compare a fitted clusterer with the true clusters (M,), or None where they are not known.

    Returns
    -------
    dict
        The columns that :func:`compute` describes, without ``seconds`` and ``key``.
    """
    labels = np.asarray(clusterer.labels_)
    undecided = np.asarray(getattr(clusterer, "undecided_", np.zeros(len(labels), dtype=bool)))
    sure = ~undecided
    nothing = float("nan")
    known = clusters is not None
    inside, across = link_shares(clusterer.adjacency_, clusters) if known else (nothing, nothing)
    return {
        "n_clients": len(labels),
        "true_clusters": len(np.unique(clusters)) if known else 0,
        "n_clusters": int(clusterer.n_clusters_),
        "ari": float(adjusted_rand_index(clusters, labels)) if known else nothing,
        "undecided": int(undecided.sum()),
        "ari_decided": float(adjusted_rand_index(clusters[sure], labels[sure])) if known and sure.any() else nothing,
        "links_inside": inside,
        "links_across": across,
        "floats_up": float(np.mean(getattr(clusterer, "sent_", nothing))),
    }


def link_shares(adjacency: np.ndarray, clusters: np.ndarray) -> tuple[float, float]:
    """Share of client pairs that are linked, ``(inside, across)`` the true clusters.

    Parameters
    ----------
    adjacency : array (M, M)
        0/1; the diagonal does not count.
    clusters : array (M,)
        True labels.

    Returns
    -------
    tuple of float
        NaN where there is no such pair.
    """
    same = clusters[:, None] == clusters[None]
    pair = ~np.eye(len(clusters), dtype=bool)
    linked = np.asarray(adjacency, dtype=bool)

    def share(which: np.ndarray) -> float:
        return float(linked[which].mean()) if which.any() else float("nan")

    return share(same & pair), share(~same)


def write(table: pd.DataFrame, profile: str, name: str) -> list[Path]:
    """Write ``results/<profile>/<name>_clusterings.csv`` and ``_clusterings_provenance.json``.

    Parameters
    ----------
    table : DataFrame
        As :func:`compute` returned it; the store must still hold its rows.
    profile, name : str
        Profile and notebook.

    Raises
    ------
    FltnbError
        The store no longer holds the record of a row.
    """
    record = {}
    for key in dict.fromkeys(table["key"]):
        try:
            entry = json.loads(_path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FltnbError(f"The store has no record of clustering {key} ({error}): compute it again.") from error
        record[key] = {"settings": entry["settings"], "provenance": entry["provenance"]}
    where = paths.results(profile)
    files = {
        f"{name}_clusterings.csv": table.round({"ari": 6, "ari_decided": 6, "links_inside": 6, "links_across": 6}),
        f"{name}_clusterings_provenance.json": json.dumps(record, indent=1),
    }
    texts = {file: held if isinstance(held, str) else held.to_csv(index=False) for file, held in files.items()}
    return [
        paths.write_atomically(where / file, lambda handle, text=text: handle.write(text.encode()))
        for file, text in texts.items()
    ]


class StoredClusterings(NamedTuple):
    """Committed clusterings of one notebook and profile, and the record behind each key."""

    profile: str
    table: pd.DataFrame
    record: dict[str, Any]

    def provenance(self) -> pd.DataFrame:
        """One line per data set: clusterings, seconds of fitting, commit, hardware, data origin, last day."""
        import pandas as pd

        rows = []
        for dataset, part in self.table.groupby("dataset", sort=False):
            where = [self.record[key]["provenance"] for key in part["key"]]
            rows.append(
                {
                    "dataset": dataset,
                    "clusterings": len(part),
                    "seeds": part["seed"].nunique(),
                    "minutes of fitting": sum(p["seconds"] for p in where) / 60,
                    "commit": ", ".join(sorted({p["commit"] for p in where})),
                    "hardware": ", ".join(sorted({p["hardware"] for p in where})),
                    "data": ", ".join(sorted({p["data_origin"] for p in where})),
                    "last run": max(p["finished"] for p in where)[:10],
                }
            )
        return pd.DataFrame(rows)


def stored(name: str) -> list[StoredClusterings]:
    """Return the committed clusterings of a notebook, one entry per profile that has them."""
    import pandas as pd

    found = []
    for profile in ("small", "paper"):
        table, record = (paths.results(profile) / f"{name}_clusterings{end}" for end in (".csv", "_provenance.json"))
        if table.exists() and record.exists():
            # an empty note is a note, not a missing number
            text = pd.read_csv(table, keep_default_na=False, na_values={column: [""] for column in MEASURED})
            found.append(StoredClusterings(profile, text, json.loads(record.read_text(encoding="utf-8"))))
    return found
