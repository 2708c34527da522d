"""Studies of clusterings without training: measured columns, the store behind them, committed tables."""

import json
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fltnb import FltnbError, encoders, oneshot, paths
from fltnb.encoders import EncoderSpec
from fltnb.oneshot import ClusterSpec

FEDERATION = {
    "kind": "label_clusters",
    "dataset": "digits",
    "n_clients": 10,
    "n_clusters": 5,
    "classes_per_cluster": 2,
    "seed": 1,
}
PCA = asdict(EncoderSpec("pca", "digits", latent=8))
PIXELS = asdict(EncoderSpec("pixels"))


def spec(k=2, seed=0, **changes):
    settings = {"federation": FEDERATION, "clusterer": {"name": "PCAKMeans", "k": k, "n_components": 8}}
    labels = {"experiment": "x", "dataset": "digits", "method_id": "pca_km_hc", "axes": {"k": k}}
    return ClusterSpec(**(settings | labels | {"encoder": PIXELS, "seed": seed} | changes))


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FLTNB_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("FLTNB_FRESH", raising=False)
    return tmp_path / "store" / "clusterings"


def embedded(monkeypatch):
    """Count the calls of the embedding."""
    calls, original = [], encoders.embed_clients

    def counted(fed, *args, **options):
        calls.append(fed)
        return original(fed, *args, **options)

    monkeypatch.setattr(encoders, "embed_clients", counted)
    return calls


def test_measured_by_hand():
    fitted = SimpleNamespace(
        labels_=np.array([0, 0, 1, 1]),
        adjacency_=np.array([[1, 1, 0, 0], [1, 1, 0, 1], [0, 0, 1, 0], [0, 1, 0, 1]]),
        n_clusters_=2,
        undecided_=np.array([False, False, False, True]),
    )
    row = oneshot.measure(fitted, np.array([0, 0, 1, 0]))
    # inside: pairs (0,1) of (0,1), (0,3), (1,3) linked, and (1,3); across: none of 3
    assert row["links_inside"] == pytest.approx(2 / 3) and row["links_across"] == 0
    assert np.isnan(row["floats_up"]) and row["undecided"] == 1 and row["ari_decided"] == 1 and row["ari"] == 0
    fitted.sent_ = np.array([5, 6, 7, 8])
    assert oneshot.measure(fitted, np.zeros(4, dtype=int))["floats_up"] == 6.5
    unknown = oneshot.measure(fitted, None)
    assert np.isnan(unknown["ari"]) and unknown["true_clusters"] == 0


def test_rows_come_in_order_and_from_the_store(store, monkeypatch):
    calls = embedded(monkeypatch)
    specs = [spec(2), spec(3), spec(2, seed=1)]
    table = oneshot.compute(specs, progress=False)
    assert table["k"].tolist() == [2, 3, 2] and table["seed"].tolist() == [0, 0, 1]
    assert list(table.columns) == [*oneshot.LABELS, "k", *oneshot.MEASURED]
    assert (table["true_clusters"] == 5).all() and (table["n_clients"] == 10).all()
    assert (table["floats_up"] == [16, 24, 16]).all()
    assert len(calls) == 1  # one federation and encoder: one embedding
    again = oneshot.compute(specs, progress=False)
    pd.testing.assert_frame_equal(table, again)
    assert len(calls) == 1


def test_only_what_is_missing_or_damaged_is_computed(store, monkeypatch):
    specs = [spec(2), spec(3)]
    table = oneshot.compute(specs, progress=False)
    calls = embedded(monkeypatch)
    (store / f"{table['key'][1]}.json").unlink()
    renewed = oneshot.compute(specs, progress=False)
    assert len(calls) == 1 and renewed["seconds"][0] == table["seconds"][0]
    (store / f"{table['key'][0]}.json").write_text("{")
    with pytest.warns(UserWarning, match="is damaged"):
        oneshot.compute(specs, progress=False)
    oneshot.compute(specs[:1], progress=False, fresh=True)
    assert len(calls) == 3


def test_stopped_work_is_kept(store, monkeypatch):
    original = oneshot.measure

    def stop(clusterer, clusters):
        if clusterer.k == 3:
            raise KeyboardInterrupt
        return original(clusterer, clusters)

    monkeypatch.setattr(oneshot, "measure", stop)
    with pytest.raises(KeyboardInterrupt):
        oneshot.compute([spec(2), spec(3)], progress=False)
    assert len(list(store.glob("*.json"))) == 1


def test_labels_do_not_enter_the_key(store):
    assert spec().key() == spec(note="x", axes={"other": 1}).key()
    keys = {spec().key(), spec(k=3).key(), spec(seed=1).key(), spec(encoder=PCA).key()}
    assert len(keys) == 4
    assert spec().clusterer_built().random_state == 0
    named = {"name": "PCAKMeans", "random_state": 7}
    assert spec(clusterer=named, seed=3).clusterer_built().random_state == 7


def test_a_table_is_written_and_read_back(store, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "results", lambda profile: tmp_path / profile)
    table = oneshot.compute([spec(2), spec(3)], progress=False)
    written = oneshot.write(table, "small", "16_x")
    assert [path.name for path in written] == ["16_x_clusterings.csv", "16_x_clusterings_provenance.json"]
    (held,) = oneshot.stored("16_x")
    assert held.profile == "small" and held.table["note"].tolist() == ["", ""]
    assert np.allclose(held.table["ari"], table["ari"], atol=1e-6)
    assert held.provenance()["clusterings"].tolist() == [2]
    record = json.loads(written[1].read_text())[table["key"][0]]
    assert record["settings"]["clusterer"]["k"] == 2 and "commit" in record["provenance"]
    with pytest.raises(FltnbError, match="no record of clustering nothing"):
        oneshot.write(table.assign(key="nothing"), "small", "16_x")


def test_bad_specs_are_refused_before_any_work(store, monkeypatch):
    calls = embedded(monkeypatch)
    for axes in ({"ari": 1}, {"seed": 1}, {"list": [1]}):
        with pytest.raises(FltnbError, match="cannot be a column"):
            spec(axes=axes)
    with pytest.raises(FltnbError, match="k = 500 centroids"):
        oneshot.compute([spec(2), spec(500)], progress=False)
    with pytest.raises(FltnbError, match="clusterer"):
        oneshot.compute([spec(clusterer={"name": "nothing"})], progress=False)
    with pytest.raises(FltnbError, match="n_jobs must be"):
        oneshot.compute([spec()], n_jobs=0)
    assert not calls
