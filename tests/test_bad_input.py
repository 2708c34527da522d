"""What cannot work, through the public doors: one sentence, before long work, and
nothing computed is lost.
"""

import os
import pickle
import re
import warnings
import zipfile
from dataclasses import dataclass, replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from toys import refused, training

import fltnb as fl
from fltnb import checkpoint, methods, paths, rounds
from fltnb.__main__ import main
from fltnb.experiments import Ledger, computing, prepare, saving
from fltnb.experiments import train as train_module
from fltnb.experiments.computing import ignored_before
from fltnb.experiments.experiment import Experiment
from fltnb.experiments.finished import store_path
from fltnb.federations.preprocessing import Preprocessing
from fltnb.methods.baselines.coldstart import ColdStart
from fltnb.training import serial

DIGITS = {
    "kind": "label_clusters",
    "dataset": "digits",
    "n_clients": 10,
    "n_clusters": 5,
    "classes_per_cluster": 2,
}
WRONG = {
    "lr": -1.0,
    "rounds": 0,
    "participation": 2,
    "momentum": 1.0,
    "batch_size": 0,
    "seed": -1,
    "eval_every": 0,
}
DIRICHLET = {"kind": "dirichlet", "dataset": "digits", "n_clients": 5, "alpha": 1.0}

pytestmark = pytest.mark.usefixtures("own_store")


@pytest.fixture(scope="module")
def fed():
    return fl.federations.build(DIGITS)


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        (lambda: methods.Method().start(None, None, None), "start(self, fed, "),
        (lambda: methods.Method().collect(None, [], None, 1), "collect(self, state, "),
        (lambda: methods.GraphMethod().client_graph(None, None), "client_graph(self, "),
        (lambda: ColdStart(2).form(None, [], None, 1), "form(self, state, clients, "),
        (lambda: ColdStart(2).place(None, None), "place(self, state, theta): define"),
        (lambda: Experiment().settings, "settings: define it"),
        (lambda: Preprocessing().to_dict(), "to_dict(self): define it"),
    ],
)
def test_a_base_class_names_what_a_subclass_must_define(call, missing):
    with pytest.raises(fl.FltnbError, match=f" has no {re.escape(missing)}"):
        call()


def spec(federation=DIGITS, method=None, model="mlp", rounds=2, **changes):
    return training(federation, method or {"name": "fedavg"}, model, rounds, **changes)


def compute(*specs):
    return fl.compute(list(specs), progress=False, backend="serial")


def run(fed, method=None, **settings):
    settings = {"rounds": 2, "progress": False, "backend": "serial"} | settings
    return fl.run(method or methods.FedAvg(), fed, **settings)


def vectors(**options):
    return fl.Federation.from_arrays(np.eye(4), [0, 1, 0, 1], [0, 0, 1, 1], **options)


def test_one_sentence_before_any_work(fed, digits, monkeypatch):
    recipe = fl.recipe("label_clusters", "digits", n_clients=5, n_clusters=5)
    refused("not Recipe: call .build.. on the recipe", run, recipe)
    monkeypatch.setattr(
        serial.SerialEngine, "_train", lambda *a: pytest.fail("started training")
    )
    refused("Unknown method 'fedawg'", methods.build, {"name": "fedawg"})
    refused(
        "Unknown option of method fedavg 'rool'",
        methods.build,
        {"name": "fedavg", "rool": "x"},
    )
    wrong = {"name": "flt", "variant": "publish"}
    refused("Unknown variant 'publish'", methods.build, wrong)
    refused("use fl.methods.FLTAsRun", methods.FLT, variant="as_run")
    refused("Unknown rule 'nobody'", methods.FedAvg, rule="nobody")
    refused(
        "fedprox has its own proximal term",
        run,
        fed,
        methods.FedProx(),
        proximal=1.0,
    )
    refused("'ring': choose one of clusters, full", methods.FLT, graph="ring")
    refused("'alfa'", fl.federations.build, DIGITS | {"alfa": 1})
    refused("2 samples of client 1", fl.FCR(k=3).fit, [np.eye(4), np.eye(2, 4)])
    refused(
        "threshold must be a number of at least 0",
        fl.FCR(threshold=-0.1).fit,
        [np.eye(4)] * 3,
    )
    refused(
        "from 1 to the number of clients, 3", fl.FCR(n_clusters=4).fit, [np.eye(4)] * 3
    )
    refused("Client 1 has no embeddings", fl.FCR().fit, [np.eye(4), np.empty((0, 4))])
    refused("choose 'mlp'", run, vectors(), model="leaf_cnn")
    refused("Unknown model 'mpl'", compute, spec(), spec(model="mpl"))
    refused(
        "clusterer must be an estimator over clients, a sklearn BaseEstimator",
        methods.FLT,
        clusterer="FCR",
    )
    refused(r"such as fl.FCR\(\), not KMeans", methods.FLT, KMeans(2))
    refused(
        "n_clusters must be a whole number of at least 1, not 3.0", methods.FedSEM, 3.0
    )
    refused("encoder must be an", methods.FLT, encoder="pca")
    refused("must be a dict with a name", methods.build, "fedavg")
    refused(
        "Unknown clusterer None",
        methods.build,
        {"name": "flt", "kind": "FLT", "clusterer": {"k": 3}},
    )
    refused("must be a dict with a kind", fl.federations.build, "digits")
    refused("must be an ImageSet", fl.federations.label_clusters, "digits", 10, 5, 2)
    refused("must be a num", vectors, test_fraction="0.2")
    refused(
        "the same shape", fl.Federation.from_arrays, [[1.0], [1.0, 2.0]], [0, 1], [0, 0]
    )
    refused("one 2-D array of embeddings per client", fl.FCR().fit, None)
    refused("not a Federation: pass fl.encoders.embed_clients", fl.FCR().fit, fed)
    refused("n_jobs must be a whole number", fl.compute, [spec()], n_jobs="2")


@pytest.mark.parametrize(
    "method",
    [methods.FedAvg(), methods.IFCA(3), methods.FedEM(2)],
    ids=lambda m: m.name,
)
def test_a_nan_loss_stops_there_names_the_client_and_keeps_the_rounds_before(
    method, fed, monkeypatch
):
    train = serial.SerialEngine.train

    def poisoned(self, theta, rows, clients, round, weights=None):
        out = train(self, theta, rows, clients, round, weights)
        if round == 3:
            out.loss[np.asarray(clients) == clients[-1]] = np.nan
        return out

    whole = run(fed, method, rounds=2)
    monkeypatch.setattr(serial.SerialEngine, "train", poisoned)
    with pytest.raises(rounds.DivergedError) as caught:
        run(fed, method, rounds=5)
    client = rounds.participants(fed.n_clients, 0.2, 0, 3)[1]
    assert f"round 3 of 5: the loss of client {client} is not finite" in str(
        caught.value
    )
    kept = caught.value.run
    assert kept.history["round"].max() == 2 and kept.accuracy == whole.accuracy
    assert np.array_equal(kept.theta, whole.theta) and np.array_equal(
        kept.rows, whole.rows
    )
    serve = type(method).serve
    monkeypatch.setattr(
        type(method),
        "serve",
        lambda self, state: (serve(self, state)[0] * np.nan, state.row),
    )
    with pytest.raises(rounds.DivergedError, match="in the end are not finite"):
        run(fed, method, rounds=1)


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04", b"[1]", "half", "flipped"])
def test_a_damaged_entry_is_named_and_recomputed_alone(damage):
    one, other = compute(spec(rounds=1), spec(rounds=1, seed=1))
    file, untouched = store_path(one.key), store_path(other.key)
    before, content = untouched.stat().st_mtime_ns, file.read_bytes()
    half = len(content) // 2
    place = (
        zipfile.ZipFile(file).infolist()[0].compress_size
    )  # in an array; not every byte of a header counts
    flipped = content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :]
    file.write_bytes({"half": content[:half], "flipped": flipped}.get(damage, damage))
    with pytest.warns(UserWarning, match=one.key):
        again, _ = compute(spec(rounds=1), spec(rounds=1, seed=1))
    assert again.clients.equals(one.clients)
    assert untouched.stat().st_mtime_ns == before


@pytest.mark.parametrize("lost", ["its end", "its arrays"])
def test_a_damaged_checkpoint_is_named_and_the_run_begins_again(
    fed, tmp_path, monkeypatch, lost
):
    monkeypatch.setattr(checkpoint, "SECONDS", -1)
    monkeypatch.setattr(
        methods.FedAvg, "settings", lambda self: {"name": "own", "option": max}
    )  # not even JSON
    file = tmp_path / "c.npz"
    first = run(fed, rounds=3, checkpoint=file)
    if lost == "its end":
        file.write_bytes(file.read_bytes()[:1000])
    else:
        np.savez(file, meta=np.load(file)["meta"])
    with pytest.warns(UserWarning, match="c.npz is damaged"):
        again = run(fed, rounds=3, checkpoint=file)
    assert np.array_equal(first.theta, again.theta)


def test_what_is_no_checkpoint_is_left_as_it_is(fed, tmp_path, monkeypatch):
    (tmp_path / "results").mkdir()
    (tmp_path / "notes.csv").write_text("a,b\n")
    np.savez(tmp_path / "mine.npz", x=np.eye(2))
    (tmp_path / "new.npz").touch()
    before = sorted(tmp_path.rglob("*"))
    for place, says in (
        ("results", "results is a folder: name a file"),
        ("notes.csv", "notes.csv is no checkpoint of a run"),
        ("mine.npz", "mine.npz is no checkpoint of a run"),
        ("new.npz", "new.npz is empty and no checkpoint of a run: delete it"),
    ):
        refused(says, run, fed, checkpoint=tmp_path / place)
    refused("checkpoint must be the path of a file", run, fed, checkpoint=True)
    assert sorted(tmp_path.rglob("*")) == before
    # an error of the disk says nothing about the file
    file = tmp_path / "c.npz"
    monkeypatch.setattr(checkpoint, "SECONDS", -1)
    run(fed, rounds=2, checkpoint=file)
    content = file.read_bytes()

    def broken(path):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(checkpoint, "_read", broken)
    refused("c.npz cannot be read .Input/output error", run, fed, checkpoint=file)
    assert file.read_bytes() == content
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(fed, rounds=2, checkpoint="~/c.npz")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        *[
            ({"rounds": bad}, "rounds must be a whole number of at least 1")
            for bad in ("2", 2.5, True, 0)
        ],
        *[
            ({"eval_every": bad}, "eval_every must be a whole number of at least 1")
            for bad in (0, "1")
        ],
        *[
            ({"seed": bad}, "seed must be a whole number of at least 0")
            for bad in (-1, None)
        ],
        *[
            ({"participation": bad}, "must be a number above 0 and at most 1")
            for bad in (0, 1.5, "all", np.nan)
        ],
        *[
            ({"lr": bad}, "lr must be a number of at least 0")
            for bad in (-1.0, np.nan, "0.1")
        ],
        ({"model": "resnet"}, "Unknown model 'resnet'"),
        ({"backend": "gpu"}, "backend"),
        ({"method": "fedavg"}, "method must be a method"),
        ({"method": methods.FedSEM}, r"such as fl.methods.FedSEM\(...\)"),
        ({"fed": fl.load("digits")}, "needs a Federation, not ImageSet"),
    ],
)
def test_wrong_types_are_refused_before_work(fed, settings, says):
    refused(says, run, **{"fed": fed} | settings)


@pytest.mark.parametrize(
    "bad",
    [
        *[{name: bad} for name, bad in WRONG.items()],
        {"method": {"name": "fedsem", "n_clusters": 11}},
        {"method": {"name": "flt", "clusterer": {"name": "FCR", "k": 999}}},
        {"method": {"name": "oracle"}, "federation": DIRICHLET},
    ],
)
def test_every_spec_is_checked_before_the_first_runs(bad, monkeypatch):
    monkeypatch.setattr(computing, "train", lambda *a: pytest.fail("started working"))
    refused(".", compute, spec(), spec(**bad))


def test_what_cannot_be_clustered_or_embedded_is_found_before_the_encoder_is_pretrained(
    fed, monkeypatch
):
    monkeypatch.setattr(
        "fltnb.encoders.networks.fitted", lambda *a: pytest.fail("started training")
    )
    small = fl.Federation.from_arrays(
        np.zeros((8, 4, 4), np.uint8), np.arange(8) % 2, np.arange(8) // 4
    )
    convae = fl.encoders.EncoderSpec("convae", "digits")
    refused(
        r"has images of shape \(1, 8, 8\)", fl.encoders.embed_clients, small, convae
    )
    monkeypatch.setattr(
        "fltnb.methods.flt.embed_clients",
        lambda *a, **k: pytest.fail("started embedding"),
    )
    refused("samples of client 0", run, fed, methods.FLT(fl.FCR(k=999)))


def test_numpy_numbers_are_ordinary_settings(fed, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS", -1)
    numpy = {"rounds": np.int64(3), "lr": np.float32(0.125), "seed": np.int64(0)}
    one = run(fed, methods.FedSEM(np.int64(2)), **numpy, checkpoint=tmp_path / "c.npz")
    other = run(fed, methods.FedSEM(2), rounds=3, lr=0.125)
    assert np.array_equal(one.theta, other.theta)
    assert one.settings == other.settings
    numpy = spec(seed=np.int64(3), federation=DIGITS | {"n_clients": np.int64(10)})
    assert prepare(numpy).key == prepare(spec(seed=3)).key


def test_one_unfitted_clusterer_serves_two_federations(fed):
    other = fl.federations.label_clusters(fl.load("digits"), 10, 2, 5, seed=5)
    given = fl.EigenRelevance(n_clusters=2)
    embeddings = fl.encoders.embed_clients(other, fl.encoders.EncoderSpec("pixels"))
    first = run(fed, methods.FLT(given), rounds=1).labels
    assert not hasattr(given, "labels_")
    labels = run(other, methods.FLT(given), rounds=1).labels
    assert np.array_equal(
        labels, fl.EigenRelevance(n_clusters=2).fit(embeddings).labels_
    )
    assert not np.array_equal(labels, first)


def test_fresh_keeps_the_old_result_until_the_new_one_is_there(monkeypatch):
    (first,) = compute(spec())
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(train_module, "run", lambda *a, **k: 1 / 0)
        fl.compute([spec()], fresh=True, progress=False)
    assert fl.compute([spec()])[0].curves.equals(first.curves)


def test_fresh_makes_a_clustering_once_however_many_workers(monkeypatch):
    made = []

    def cached(since=0.0):
        saving.cached_arrays(
            {"clusterer": "x"},
            lambda: made.append(1) or {"labels_": np.zeros(3)},
            since,
        )

    cached()
    since = ignored_before(True)
    cached(since)
    cached(since)  # as a worker that started later sees it
    assert len(made) == 2


def test_a_diverged_run_comes_back_from_a_worker(fed):
    with pytest.raises(rounds.DivergedError) as caught:
        run(fed, lr=1e30)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.run.history.equals(caught.value.run.history)


def no_space(number):
    raise OSError(28, "No space left on device")


def test_a_full_disk_keeps_what_was_computed(tmp_path, monkeypatch):
    (first,) = compute(spec(axes={"dataset": "digits"}))
    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", no_space)
        assert str(paths.store()) in refused(
            "No space left on device", compute, spec(), spec(seed=1)
        )
        disk.setattr(paths, "ROOT", tmp_path)
        refused(str(tmp_path / "figures"), fl.plots.save, Figure(), "00_x", "demo")
        refused(str(tmp_path / "results"), Ledger("00").merge, [first])
    monkeypatch.setattr(
        train_module, "run", lambda *rest, **more: pytest.fail("computed again")
    )
    assert compute(spec())[0].curves.equals(first.curves)
    assert not [
        file for file in paths.store().rglob("*") if file.name.startswith(".")
    ]  # no half files


def test_a_full_disk_stops_a_run_at_its_checkpoint_and_keeps_the_last(
    fed, tmp_path, monkeypatch
):
    monkeypatch.setattr(checkpoint, "SECONDS", -1)
    whole, file, save = run(fed, rounds=5), tmp_path / "c.npz", checkpoint.save

    def saving(path, settings, done):
        if done.round == 3:
            patch.setattr(os, "fsync", no_space)
        save(path, settings, done)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", saving)
        refused(str(file), run, fed, rounds=5, checkpoint=file)
    assert checkpoint.load(file, whole.settings, methods.FedAvg()).round == 2
    assert np.array_equal(run(fed, rounds=5, checkpoint=file).theta, whole.theta)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["compute", "nope"], "There is no notebook 'nope'"),
        (["compute", "00", "--profile", "big"], "The profile 'big' has no parameters"),
        (["compute", "01", "--table", "T5"], "Notebook 01 has no table 'T5'"),
        (["compute", "all", "--table", "T1"], "--table needs one notebook"),
        (["compute", "00_start_here", "--jobs", "0"], "n_jobs"),
        (["compute", "01", "--profile", "/no/such"], "profile '/no/such' has no"),
        (["notebook", "nope"], "There is no notebook 'nope'"),
        (["notebook", "/here/01_scenario1.ipynb"], "There is no notebook '/here/01"),
        (["status", "0*"], "There is no notebook '0*'"),
    ],
)
def test_the_command_line_says_one_sentence_and_exits_with_2(words, says, capsys):
    assert main(words) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


class Mean(methods.Method):
    """FedAvg, as somebody would write it after the page."""

    name = "mean"

    def start(self, fed, model, context):
        return methods.State(
            models=model.init(context.seed)[None],
            row=np.zeros(fed.n_clients, dtype=np.int64),
            weights=fed.sizes.astype(np.float64),
        )

    def collect(self, state, clients, theta, round):
        return replace(state, models=theta.mean(axis=0, keepdims=True))


def mine(base=Mean, **functions):
    """A method of one's own with some other functions."""
    return type("Mine", (base,), functions | {"name": "mine"})()


def begun(**changes):
    """A ``start`` whose state has some wrong fields."""
    return lambda self, *given: replace(Mean().start(*given), **changes)


@dataclass(eq=False, kw_only=True)
class Counted(methods.State):
    """A state with a field of its own."""

    turns: np.ndarray


def counted(self, fed, model, context):
    """A ``start`` whose state is not of the class that the method names."""
    return Counted(**Mean().start(fed, model, context).arrays(), turns=np.zeros(1))


STATE = "must return the state, an fl.methods.State such as"
TWO = "must return models .K, P. and rows .n,., such as .state.models"
M = 10
WRONG_FUNCTIONS = [
    ("start", lambda *given: None, f"start of Mine {STATE} State.*not None"),
    ("start", lambda *given: {}, f"start of Mine {STATE} State.*not a dict"),
    ("start", counted, "start of Mine returned a Counted, .* `state_type = Counted`"),
    ("start", begun(row=np.zeros(M)), "row is an array .10,. of float64"),
    ("start", begun(row=[0] * M), "row is a list of 10"),
    ("start", begun(weights=np.ones(3)), "weights is an array .3,."),
    ("start", begun(models=np.ones(9)), "models is an array .9,."),
    ("start", lambda self, fed, model: None, "write start.self, fed, model, context"),
    ("observe", lambda *given: None, f"observe of Mine {STATE}"),
    ("dispatch", lambda self, state, clients: state.models, f"dispatch of Mine {TWO}"),
    (
        "dispatch",
        lambda self, state, clients: (state.models, "none"),
        "dispatch of Mine must return one integer",
    ),
    ("train", lambda *given: None, "train of Mine must return a state and an fl.tr"),
    (
        "train",
        lambda self, state, *given: (state, state.models),
        "train of Mine must return an fl.training.Trained second",
    ),
    ("collect", lambda *given: None, f"collect of Mine {STATE} replace.*not None"),
    (
        "collect",
        lambda self, state, *given: replace(state, row=state.row + 0.5),
        "collect of Mine returned a state whose row is an array .10,. of float64",
    ),
    (
        "collect",
        lambda self, state, clients, theta: state,
        "collect of Mine is called .* write collect.self, state, clients, theta, r",
    ),
    ("revise", lambda *given: None, f"revise of Mine {STATE}"),
    ("serve", lambda self, state: state.models, f"serve of Mine {TWO}"),
    ("serve", lambda self, state: (state.models, state.row * 1.0), "one integer for"),
    ("serve", lambda self, state: ("a", state.row), "models .K, P. first"),
    ("evaluate", lambda *given: 0.5, "evaluate of Mine .*fl.training.Evaluation.* a f"),
    ("traffic", lambda *given: None, "traffic of Mine must return two whole numbers"),
    ("setup_bytes", lambda *given: 3, "setup_bytes of Mine must return two whole"),
    ("local_training", lambda *given: None, "local_training of Mine .* a dict"),
]


@pytest.mark.parametrize(("function", "wrong", "says"), WRONG_FUNCTIONS)
def test_a_wrong_function_of_a_method_is_named(fed, function, wrong, says):
    assert run(fed, mine()).accuracy > 0
    refused(says, run, fed, mine(**{function: wrong}))


@pytest.mark.parametrize(
    ("graph", "says"),
    [
        (lambda *given: np.eye(M), "client_graph of Mine must return an .*ClientGraph"),
        (lambda *given: None, "must return an fl.methods.ClientGraph.* not None"),
        (lambda *given: methods.ClientGraph("a"), "a .10, 10. adjacency"),
        (lambda *given: methods.ClientGraph(np.eye(M), sent=3), "two whole numbers"),
        (lambda *given: methods.ClientGraph(np.eye(M), sent=(1, 0.5)), "two whole"),
        (lambda *given: methods.ClientGraph(np.eye(M), [0]), "must be 10 integers"),
        (lambda self, fed: None, "write client_graph.self, fed, context"),
    ],
)
def test_a_wrong_client_graph_is_named(fed, graph, says):
    refused(says, run, fed, mine(methods.GraphMethod, client_graph=graph))


def test_whole_numbers_of_scalars_may_be_floats(fed):
    graph = methods.ClientGraph(np.eye(M), sent=(10 * np.float64(3), 0.0))
    done = run(fed, mine(methods.GraphMethod, client_graph=lambda *given: graph))
    assert done.history["bytes_up"].iloc[0] == 4 * 30


class Own(BaseEstimator):
    """A clusterer of one's own that finds given labels."""

    def __init__(self, found=None):
        self.found = found

    def fit(self, X, y=None):
        if self.found is not None:
            self.labels_ = self.found
        return self


def test_a_wrong_clusterer_of_ones_own_is_named(fed):
    class NoClasses(Own):
        def fit(self, X):
            return self

    refused("fit of Own sets no labels_", run, fed, methods.FLT(Own()))
    refused("labels_ of Own must be 10 in", run, fed, methods.FLT(Own(np.arange(3))))
    refused("labels_ of Own must be 10 integers", run, fed, methods.FLT(Own(3)))
    refused(r"write fit.self, X, y=None", run, fed, methods.FLT(NoClasses()))
    refused("whose fit takes a list of arrays", methods.FLT, BaseEstimator())


def test_labels_in_a_list_are_kept_by_a_cache(fed):
    kept = {}

    def cache(key, compute):
        kept.update(compute())
        return kept

    method = methods.FLT(Own([0] * M))
    method.fitted(fed, methods.Context(seed=0, cache=cache))
    assert kept["labels_"].tolist() == [0] * M


NOT_A_NUMBER = [
    (
        "collect",
        lambda self, state, clients, theta, round: replace(
            state, models=theta[:1] * (np.nan if round == 2 else 1)
        ),
        "stopped at round 2 of 3: the models that `collect` of Mine returned",
    ),
    (
        "start",
        lambda self, *given: replace(
            Mean().start(*given), models=Mean().start(*given).models * np.nan
        ),
        "stopped at round 1 of 3: the model from which client 0 starts is not finite",
    ),
    (
        "dispatch",
        lambda self, state, clients: (state.models * np.nan, state.row[clients]),
        "check `start`, `collect` and `dispatch` of Mine",
    ),
]


@pytest.mark.parametrize(("function", "wrong", "says"), NOT_A_NUMBER)
def test_models_that_a_method_spoils_are_not_blamed_on_the_learning_rate(
    fed, function, wrong, says
):
    method = mine(**{function: wrong})
    with pytest.raises(rounds.DivergedError) as caught:
        run(fed, method, rounds=3)
    assert re.search(says, str(caught.value))
    if function == "collect":
        kept = caught.value.run
        assert kept.history["round"].max() == 1 and np.isfinite(kept.theta).all()
    grid = fl.grid(lambda: fl.Training(fed, method, "mlp", rounds=3))
    table = fl.results(grid, compute=True)
    assert re.search(says, table.runs["stopped"].iloc[0])
