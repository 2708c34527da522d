"""The store: looked up, recomputed when damaged, carrying its provenance."""

import ast
import importlib.util
import json
import shutil

import numpy as np
import pytest

from fltnb import experiments, methods, metrics, oneshot, paths, provenance, relatedness, store
from fltnb.errors import FltnbError
from fltnb.methods import flt as flt_module
from fltnb.store import Spec


@pytest.fixture(autouse=True)
def _own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("FLTNB_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("FLTNB_FRESH", raising=False)


def quick(seed=0, **changes) -> Spec:
    settings = {
        "federation": experiments.federation("digits", "as_written", 0) | {"n_clients": 10},
        "method": {"name": "fedavg", "rule": "participants"},
        "model": "mlp",
        **{"rounds": 2, "lr": 0.05, "seed": seed, "dataset": "digits", "method_id": "fedavg"},
    }
    return Spec(**settings | changes)


def test_second_time_is_read_not_computed(monkeypatch):
    (first,) = store.compute([quick()], progress=False)
    monkeypatch.setattr(store, "_one", lambda *a: pytest.fail("computed again"))
    (second,) = store.compute([quick()], progress=False)
    assert second.history.equals(first.history)
    assert second.clients.equals(first.clients)
    assert second.provenance == first.provenance


def test_provenance_is_complete():
    (result,) = store.compute([quick()], progress=False)
    record = json.loads((store.folder(result.key) / "result.json").read_text())
    for name in ("commit", "hardware", "packages", "python", "data_origin", "seconds", "finished", "code", "data"):
        assert record["provenance"][name] not in ("", None), name
    assert record["provenance"]["packages"]["torch"]
    assert record["settings"]["seed"] == 0
    assert not (store.folder(result.key) / "checkpoint.npz").exists()


@pytest.mark.parametrize("name", ["history.csv", "clients.csv", "arrays.npz", "result.json"])
def test_damage_is_named_and_only_that_run_is_recomputed(name):
    specs = [quick(0), quick(1)]
    first = store.compute(specs, progress=False)
    untouched = (store.folder(first[1].key) / "result.json").stat().st_mtime_ns
    path = store.folder(first[0].key) / name
    path.write_bytes(path.read_bytes()[:-7] + b"garbage")
    with pytest.warns(UserWarning, match=f"{first[0].key} is damaged"):
        again = store.compute(specs, progress=False)
    keep = [c for c in first[0].history.columns if c != "seconds"]
    assert again[0].history[keep].equals(first[0].history[keep])
    assert (store.folder(first[1].key) / "result.json").stat().st_mtime_ns == untouched
    assert store.load(specs[0]) is not None


def test_labels_do_not_change_the_key_but_settings_do():
    assert quick().key() == quick(experiment="x", variant="as_run", note="y").key()
    keys = {quick(**c).key() for c in ({}, {"lr": 0.1}, {"seed": 1}, {"momentum": 0.5}, {"rounds": 3})}
    assert len(keys) == 5


def test_equal_settings_under_two_labels_are_computed_once(monkeypatch):
    calls = []
    original = store._one
    monkeypatch.setattr(store, "_one", lambda spec, *a: calls.append(spec) or original(spec, *a))
    a, b = store.compute([quick(method_id="fedavg"), quick(method_id="again")], progress=False)
    assert len(calls) == 1
    assert (a.spec.method_id, b.spec.method_id) == ("fedavg", "again")
    assert a.history.equals(b.history)


def test_parallel_runs_equal_serial_ones(tmp_path, monkeypatch):
    specs = [quick(0), quick(1)]
    one = store.compute(specs, n_jobs=1, progress=False)
    monkeypatch.setenv("FLTNB_STORE", str(tmp_path / "other"))
    two = store.compute(specs, n_jobs=2, progress=False)
    keep = [c for c in one[0].history.columns if c != "seconds"]
    for a, b in zip(one, two, strict=True):
        assert a.key == b.key
        assert a.history[keep].equals(b.history[keep])
        assert a.clients.equals(b.clients)


def test_fresh_ignores_the_store(monkeypatch):
    (first,) = store.compute([quick()], progress=False)
    before = (store.folder(first.key) / "result.json").stat().st_mtime_ns
    monkeypatch.setenv("FLTNB_FRESH", "1")
    store.compute([quick()], progress=False)
    kept = (store.folder(first.key) / "result.json").stat().st_mtime_ns
    assert kept == before  # stored by this very process
    monkeypatch.setattr(store, "_BEGUN", store.time.time())  # as a new process would see it
    store.compute([quick()], progress=False)
    assert (store.folder(first.key) / "result.json").stat().st_mtime_ns > before


def test_bad_specs_are_found_before_the_first_run(monkeypatch):
    monkeypatch.setattr(store, "_one", lambda *a: pytest.fail("started working"))
    with pytest.raises(FltnbError, match="Unknown model"):
        store.compute([quick(), quick(1, model="resnet")], progress=False)
    with pytest.raises(FltnbError, match="Unknown method"):
        store.compute([quick(), quick(1, method={"name": "fedawg"})], progress=False)
    with pytest.raises(FltnbError, match="n_jobs must be a whole number"):
        store.compute([quick()], n_jobs=0)


def test_a_diverged_run_is_stored_with_its_reason_and_tables_say_so(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setenv("FLTNB_DATA", str(provenance._PACKAGE.parent / "data"))
    with pytest.warns(UserWarning, match="the loss of client .* is not finite"):
        results = store.compute([quick(lr=1e20), quick(1)], progress=False)
    result, whole = results
    assert "is not finite" in result.stopped and whole.stopped == ""
    assert np.isfinite(result.history["accuracy"]).all()
    why = dict(store.tidy(results).groupby("key")["stopped"].unique().explode())
    assert why == {result.key: result.stopped, whole.key: ""}

    files = store.write_results(results, "small", "00_x")
    (read,) = store.stored("00_x")
    assert dict(read.tidy.groupby("key")["stopped"].unique().explode()) == why
    table = next(file for file in files if file.name == "00_x.csv")
    read.tidy.drop(columns="stopped").to_csv(table, index=False)  # as written before there was this column
    (again,) = store.stored("00_x")
    assert again.tidy.equals(read.tidy)


def test_numbers_that_are_missing_in_a_table_do_not_make_it_text(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    files = store.write_results(store.compute([quick()], progress=False), "small", "00_x")
    table = next(file for file in files if file.name == "00_x_curves.csv")
    lines = table.read_text().splitlines()
    extended = [f"{lines[0]},accuracy_joined", f"{lines[1]},", *(f"{line},50.5" for line in lines[2:])]
    table.write_text("\n".join(extended))
    (read,) = store.stored("00_x")
    assert read.curves["accuracy_joined"].mean() == 50.5 and set(read.curves["note"]) == {""}


def test_cached_arrays_survive_and_mend(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"a": np.arange(5)}

    for _ in range(2):
        assert np.array_equal(store.cached_arrays({"x": 1}, compute)["a"], np.arange(5))
    assert len(calls) == 1
    (path,) = (tmp_path / "store" / "arrays").glob("*.npz")
    path.write_bytes(b"garbage")
    with pytest.warns(UserWarning, match=f"{path.name} is damaged"):
        store.cached_arrays({"x": 1}, compute)
    assert len(calls) == 2


def test_tidy_matches_the_curve():
    specs = [quick(method={"name": "oracle"}, method_id="oracle")]
    (result,) = store.compute(specs, progress=False)
    table = store.tidy([result]).set_index(["split", "metric"])["value"]
    assert table["test", "accuracy"] == pytest.approx(result.clients["test"].mean())
    assert table["test", "accuracy_variance"] == pytest.approx(result.clients["test"].var(ddof=0))
    assert table["", "ari"] == 1.0
    assert table["", "n_clusters"] == 5


# ---------------------------------------------------------------- the version of the code


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a function that writes a module of a copy of the package, which versions are then taken of."""
    copy = shutil.copytree(provenance._PACKAGE, tmp_path / "fltnb", ignore=shutil.ignore_patterns("__pycache__"))

    def forget():
        provenance._module.cache_clear()
        provenance._digest.cache_clear()

    def edit(name, change="{}\nnew = 1\n"):
        file = copy / name
        file.write_text(change.format(file.read_text() if file.exists() else ""))
        forget()

    with monkeypatch.context() as patch:
        patch.setattr(provenance, "_PACKAGE", copy)
        forget()
        yield edit
    forget()


def flt(**changes) -> Spec:
    settings = {"name": "flt", "clusterer": {"name": "FCR", "k": 2}, "encoder": {"kind": "pixels"}}
    return quick(method=settings | changes)


def test_what_samples_were_taken_for_is_kept_where_one_model_answers():
    """The confusion matrices agree with the accuracies; a mixture's answers are no single model's."""
    own = {"name": "fesem", "n_clusters": 2}
    specs = [
        quick(method=own),
        quick(method=own | {"report": "best"}),
        quick(method={"name": "fedem", "n_clusters": 2}),
    ]
    for computed in (store.compute(specs, progress=False), store.compute(specs, progress=False)):  # then read
        first, best, mixture = computed
        assert best.confusion is None and mixture.confusion is None
        right = np.trace(first.confusion, axis1=1, axis2=2)
        assert np.allclose(first.clients["test"], 100 * right / first.confusion.sum(axis=(1, 2)))
        assert (first.confusion.sum(axis=2) == specs[0].federation_built().label_counts("test")).all()
    table = store.tidy(computed)
    micro = table[table["metric"] == "micro_accuracy"].query("split == 'test'")["value"].to_numpy()
    counts = first.confusion.sum(axis=0)
    assert micro[0] == pytest.approx(100 * np.trace(counts) / counts.sum()) and len(micro) == 3
    assert table[table["metric"] == "pooled_f1"]["value"].tolist() == [metrics.f1(counts, "pooled", "all")]


def test_code_version_ignores_comments_docstrings_and_layout(package):
    source = '"""{doc}"""\n\n\ndef f():\n    """{doc}"""\n    return {value}\n\n\nx = [1]\n"""{doc}"""\n'
    package("metrics.py", source.replace("{doc}", "One.").replace("{value}", "1"))
    first = provenance.code_version()
    package("metrics.py", source.replace("{doc}", "Another.").replace("{value}", "(\n  1)  # why"))
    assert provenance.code_version() == first
    package("metrics.py", source.replace("{doc}", "One.").replace("{value}", "2"))
    assert provenance.code_version() != first


@pytest.mark.parametrize(
    "name",
    [
        "methods/brand_new.py",  # a new method, clusterer or partition, and their lines in the lists
        "relatedness/brand_new.py",
        "federations/brand_new.py",
        *("methods/__init__.py", "relatedness/__init__.py", "federations/__init__.py"),
        *("methods/fedsem.py", "relatedness/pca_kmeans.py", "federations/skew.py"),  # others' modules
        *("plots/results.py", "store.py", "errors.py"),
    ],
)
def test_what_a_run_does_not_use_keeps_its_key(package, name):
    whole, (run, arrays) = provenance.code_version(), versions()
    package(name)
    assert versions() == (run, arrays)
    counts = not name.startswith(("plots", "store", "errors"))
    assert (provenance.code_version() != whole) == counts


def versions():
    """Key of an FLT run, and of its clustering."""
    spec = flt()
    key = {"clusterer": spec.method["clusterer"], "encoder": spec.method["encoder"], "federation": "x"}
    return spec.key(), store._clustering_code(key)


@pytest.mark.parametrize(
    ("name", "clustering"),
    [
        *[("relatedness/fcr.py", True), ("relatedness/distances.py", True), ("relatedness/base.py", True)],
        *[("encoders/networks.py", True), ("methods/flt.py", True), ("methods/graph.py", True)],
        *[("federations/labels.py", False), ("federations/shares.py", True)],  # rounds.py leads to the second
        *[("data/images.py", True), ("training/steps.py", True), ("rounds.py", True), ("methods/base.py", True)],
    ],
)
def test_what_a_run_uses_changes_its_key(package, name, clustering):
    run, arrays = versions()
    package(name)
    assert versions()[0] != run
    assert (versions()[1] != arrays) == clustering


def test_a_run_without_clusterer_does_not_depend_on_any(package):
    before = quick().key()
    for name in ("relatedness/base.py", "encoders/embedding.py", "methods/flt.py"):
        package(name)
    assert quick().key() == before
    package("methods/graph.py")
    assert quick().key() != before


def test_a_federation_made_from_another_depends_on_both_kinds(package):
    base = {name: value for name, value in quick().federation.items() if name != "dataset"}
    late = {"kind": "changing", "dataset": "digits", "base": base, "events": [{"round": 2, "join": 2}]}
    before = quick(federation=late).code_version()
    package("federations/skew.py")
    assert quick(federation=late).code_version() == before
    package("federations/labels.py")
    assert quick(federation=late).code_version() != before


def test_imports_between_modules_are_followed_but_not_into_lists(package):
    package("methods/far.py", "x = 1\n")
    package("methods/near.py", "from . import far\n")
    package("methods/graph.py", "{}\n\ndef late():\n    from .near import far\n")
    before = quick().key()
    package("methods/far.py", "x = 2\n")
    assert quick().key() != before
    package("methods/graph.py", "{}\nfrom ..relatedness import FCR\nfrom ..relatedness.distances import cdist\n")
    before = quick().key()
    package("relatedness/fcr.py")
    assert quick().key() == before
    package("relatedness/distances.py")
    assert quick().key() != before


def test_code_version_takes_functions_classes_modules_and_instances(package):
    of = provenance.code_version
    assert of(relatedness.FCR) == of(relatedness.FCR(k=3)) == of(relatedness.FCR, 3, "x", None, np.zeros(2))
    assert of(methods.fit_clusterer) == of(flt_module)
    assert of(oneshot.measure) == of(oneshot) != of(3)
    assert of(relatedness.PCAKMeans) != of(relatedness.FCR)
    assert of() not in (of(3), of(oneshot))


@pytest.mark.parametrize("name", ["federations", "methods", "relatedness", "encoders"])
def test_no_module_takes_its_numbers_from_a_list(name):
    """Versions do not follow imports through ``__init__``: what is imported so must be in the version anyhow."""
    chosen_by_settings = {*relatedness.CLUSTERERS, "EncoderSpec", "KINDS"}
    core = ("fltnb.training", *("fltnb." + file.removesuffix(".py").replace("/", ".") for file in provenance._CORE))
    for file in sorted((provenance._PACKAGE / name).glob("[!_]*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                package = ".".join(["fltnb", name][: 3 - node.level] + ([node.module] if node.module else []))
                if hasattr(module := importlib.import_module(package), "__path__"):
                    for alias in {alias.name for alias in node.names} - chosen_by_settings:
                        if not importlib.util.find_spec(f"{package}.{alias}"):
                            home = getattr(module, alias).__module__
                            assert home.startswith(core), f"{file.name}: import {alias} from {home}, not from {package}"


# ---------------------------------------------------------------- experiments


def test_every_profile_lists_its_runs():
    for name in experiments.NOTEBOOKS:
        for profile in experiments.PROFILES:
            specs = experiments.specs(name, profile)
            assert specs and all(spec.experiment == name for spec in specs)
            assert len({json.dumps([s.settings(), s.labels()], sort_keys=True) for s in specs}) == len(specs)
    with pytest.raises(FltnbError, match="Unknown profile 'huge'"):
        experiments.specs("01_scenario1", "huge")
    with pytest.raises(FltnbError, match="Unknown notebook"):
        experiments.specs("1", "demo")


def test_small_profile_is_the_published_setting():
    """FLT section 4: M = 100, C = 5, rho = 0.2, E = 1, B = 10, lr 0.01, T = 100 on MNIST."""
    specs = [s for s in experiments.specs("01_scenario1", "small") if s.dataset == "mnist"]
    assert {s.seed for s in specs} == {0, 1, 2}
    assert {s.variant for s in specs} == {"as_written", "as_run"}
    assert {s.method_id for s in specs} == set(experiments.SCENARIO1_METHODS)
    for s in specs:
        assert (s.rounds, s.participation, s.local_epochs, s.batch_size, s.lr) == (100, 0.2, 1, 10, 0.01)
        assert (s.federation["n_clients"], s.federation["n_clusters"]) == (100, 5)
