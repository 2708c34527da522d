"""Wrong types and NumPy's numbers in settings; estimators and specs that are used twice."""

import pickle

import numpy as np
import pytest

import fltnb as fl
from fltnb import methods, rounds
from fltnb.results import Job, prepare, work
from fltnb.results.computing import ignored_before

DIGITS = {"kind": "label_clusters", "dataset": "digits", "n_clients": 10, "n_clusters": 5, "classes_per_cluster": 2}


@pytest.fixture(scope="module")
def fed():
    return fl.federations.build(DIGITS)


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("FLTNB_STORE", str(tmp_path))
    monkeypatch.delenv("FLTNB_FRESH", raising=False)


def spec(federation=DIGITS, method=None, model="mlp", rounds=2, **changes):
    return Job.training(federation, method or {"name": "fedavg"}, model, rounds, **changes)


def run(fed, method=None, **settings):
    settings = {"rounds": 2, "progress": False, "backend": "serial"} | settings
    return fl.run(method or methods.FedAvg(), fed, **settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rounds": "2"}, "rounds must be a whole number"),
        ({"rounds": 2.5}, "rounds must be a whole number"),
        ({"rounds": True}, "rounds must be a whole number"),
        ({"rounds": 0}, "rounds must be a whole number of at least 1"),
        ({"participation": 0}, "above 0 and at most 1, not 0"),
        ({"participation": 1.5}, "at most 1"),
        ({"eval_every": 0}, "eval_every must be a whole number"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"model": "resnet"}, "Unknown model 'resnet'"),
        ({"lr": -1.0}, "lr"),
        ({"backend": "gpu"}, "backend"),
        ({"participation": "all"}, "participation must be a number above 0 and at most 1"),
        ({"participation": float("nan")}, "participation must be a number above 0 and at most 1"),
        ({"eval_every": "1"}, "eval_every must be a whole number"),
        ({"seed": None}, "seed must be a whole number"),
        ({"method": "fedavg"}, "method must be a method"),
        ({"method": methods.FedSEM}, r"such as fl.methods.FedSEM\(...\)"),
        ({"fed": fl.load("digits")}, "needs a Federation, not ImageSet"),
    ],
)
def test_wrong_types_are_refused_before_work(fed, settings, says):
    with pytest.raises(fl.FltnbError, match=says):
        run(**({"fed": fed} | settings))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: methods.FLT(clusterer="FCR"), "clusterer must be a clusterer"),
        (lambda: methods.FLT(fl.FCR), "clusterer must be a clusterer"),
        (lambda: methods.FedSEM("3"), "n_clusters must be a whole number of at least 1, not '3'"),
        (lambda: methods.FedSEM(3.0), "n_clusters must be a whole number of at least 1, not 3.0"),
        (lambda: methods.FLT(encoder="pca"), "encoder must be an"),
        (lambda: methods.build("fedavg"), "must be a dict with a name"),
        (lambda: methods.build({"name": "flt", "kind": "FLT", "clusterer": {"k": 3}}), "Unknown clusterer None"),
        (lambda: fl.federations.build("digits"), "must be a dict with a kind"),
        (lambda: fl.federations.label_clusters("digits", 10, 5, 2), "must be an ImageSet"),
        (
            lambda: fl.Federation.from_arrays(np.eye(4), [0, 1, 0, 1], [0, 0, 1, 1], test_fraction="0.2"),
            "must be a num",
        ),
        (lambda: fl.Federation.from_arrays([[1.0], [1.0, 2.0]], [0, 1], [0, 0]), "the same shape"),
        (lambda: fl.FCR().fit(None), "one 2-D array of embeddings per client"),
        (lambda: fl.PCAKMeans(n_init=0).fit([np.eye(6)] * 3), "n_init must be a whole number"),
        (lambda: fl.compute([spec()], n_jobs="2"), "n_jobs must be a whole number"),
    ],
)
def test_wrong_types_are_refused_with_a_sentence(call, says):
    with pytest.raises(fl.FltnbError, match=says):
        call()


@pytest.mark.parametrize(
    "bad",
    [
        {"lr": -1.0},
        {"rounds": 0},
        {"participation": 2},
        {"momentum": 1.0},
        {"batch_size": 0},
        {"seed": -1},
        {"eval_every": 0},
        {"method": {"name": "fedsem", "n_clusters": 11}},
        {"method": {"name": "flt", "clusterer": {"name": "FCR", "k": 999}}},
        {"method": {"name": "flt", "clusterer": {"name": "FCR", "threshold": -1}}},
        {
            "method": {"name": "oracle"},
            "federation": {"kind": "dirichlet", "dataset": "digits", "n_clients": 5, "alpha": 1.0},
        },
    ],
)
def test_every_spec_is_checked_before_the_first_runs(bad, monkeypatch):
    monkeypatch.setattr(work, "train", lambda *a: pytest.fail("started working"))
    with pytest.raises(fl.FltnbError):
        fl.compute([spec(), spec(**bad)], progress=False)


def test_a_k_that_cannot_be_is_found_before_the_encoder_is_pretrained(fed, monkeypatch):
    monkeypatch.setattr("fltnb.methods.flt.embed_clients", lambda *a, **k: pytest.fail("started embedding"))
    with pytest.raises(fl.FltnbError, match="samples of client 0"):
        run(fed, methods.FLT(fl.FCR(k=999)))


def test_a_pretraining_set_of_another_shape_is_found_before_training(monkeypatch):
    monkeypatch.setattr("fltnb.encoders.pretraining._fit_network", lambda *a: pytest.fail("started training"))
    small = fl.Federation.from_arrays(np.zeros((8, 4, 4), np.uint8), np.arange(8) % 2, np.arange(8) // 4)
    with pytest.raises(fl.FltnbError, match=r"has images of shape \(1, 8, 8\)"):
        fl.encoders.embed_clients(small, fl.encoders.EncoderSpec("convae", "digits"))


def test_numpy_numbers_are_ordinary_settings(fed, tmp_path, monkeypatch):
    monkeypatch.setattr(rounds, "CHECKPOINT_SECONDS", -1)
    numpy = {"rounds": np.int64(3), "lr": np.float32(0.125), "seed": np.int64(0)}
    one = run(fed, methods.FedSEM(np.int64(2)), **numpy, checkpoint=tmp_path / "c.npz")
    other = run(fed, methods.FedSEM(2), rounds=3, lr=0.125)
    assert np.array_equal(one.theta, other.theta)
    assert one.settings == other.settings
    numpy = spec(seed=np.int64(3), federation=DIGITS | {"n_clients": np.int64(10)})
    assert prepare(numpy).key == prepare(spec(seed=3)).key


def test_a_checkpoint_without_its_arrays_is_damaged(fed, tmp_path, monkeypatch):
    monkeypatch.setattr(rounds, "CHECKPOINT_SECONDS", -1)
    file = tmp_path / "c.npz"
    first = run(fed, rounds=3, checkpoint=file)
    with np.load(file) as saved:
        meta = saved["meta"]
    np.savez(file, meta=meta)
    with pytest.warns(UserWarning, match="is damaged"):
        again = run(fed, rounds=3, checkpoint=file)
    assert np.array_equal(first.theta, again.theta)


def test_one_unfitted_clusterer_serves_two_federations(fed):
    other = fl.federations.label_clusters(fl.load("digits"), 10, 2, 5, seed=5)
    fcr = fl.FCR(k=2, n_neighbors=3)
    embeddings = fl.encoders.embed_clients(other, fl.encoders.EncoderSpec("pixels"))
    run(fed, methods.FLT(fcr), rounds=1)
    assert not hasattr(fcr, "labels_")
    labels = run(other, methods.FLT(fcr), rounds=1).labels
    assert np.array_equal(labels, fl.FCR(k=2, n_neighbors=3).fit(embeddings).labels_)


def test_fresh_keeps_the_old_result_until_the_new_one_is_there(monkeypatch):
    (first,) = fl.compute([spec()], progress=False, backend="serial")

    def interrupted(*a, **k):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(work, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fl.compute([spec()], fresh=True, progress=False)
    assert fl.compute([spec()])[0].curves.equals(first.curves)


def test_fresh_makes_a_clustering_once_however_many_workers(monkeypatch):
    key, made = {"clusterer": "x"}, []

    def make():
        made.append(1)
        return {"labels_": np.zeros(3)}

    work.cached_arrays(key, make)
    since = ignored_before(True)
    work.cached_arrays(key, make, since)
    work.cached_arrays(key, make, since)  # as a worker that started later sees it
    assert len(made) == 2


def test_a_diverged_run_comes_back_from_a_worker(fed):
    with pytest.raises(rounds.DivergedError) as caught:
        run(fed, lr=1e30)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.run.history.equals(caught.value.run.history)
