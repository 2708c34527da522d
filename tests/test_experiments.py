"""Grids of experiments, and their results by what an experiment is."""

import pytest
from toys import refused

import fltnb as fl
from fltnb import experiments, paths
from fltnb.experiments import Ledger
from fltnb.notebook.grids import code_cells, grids, tagged_cells


def run(method, seed, rounds=2):
    if method == "local" and seed:
        return None
    clients = fl.recipe("pseudo_writers", "digits", n_clients=4, seed=seed)
    how = {"fedavg": fl.methods.FedAvg(), "local": fl.methods.Local()}[method]
    return fl.Training(clients, how, "mlp", rounds=rounds, seed=seed)


def test_a_grid_is_the_product_of_its_axes_without_what_run_leaves_out():
    grid = fl.grid(run, method=["fedavg", "local"], seed=[0, 1])
    assert len(grid) == 3
    assert [row.axes["method"] for row in grid] == ["fedavg", "fedavg", "local"]
    both = grid + fl.grid(run, method="fedavg", seed=2, rounds=[1, 2])
    assert len(both) == 5

    again = grid + fl.grid(run, method="fedavg", seed=[1, 3])  # seed 1 is in both
    assert [row.axes["seed"] for row in again] == [0, 1, 0, 3]
    same_run = fl.grid(lambda name: run("fedavg", 1), name=["one", "other"])
    assert len(grid + same_run) == 5  # under other names


def test_an_axis_must_be_plain_and_its_values_different():
    refused("has 'fedavg' twice", fl.grid, run, method=["fedavg", "fedavg"], seed=0)
    refused("has no value", fl.grid, run, method=[], seed=0)
    refused("results have that name", fl.grid, run, accuracy=1)
    refused("run must return an experiment", fl.grid, lambda seed: 3, seed=0)
    refused("looks up 'x', which is missing", fl.grid, run, method="x", seed=0)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FLTNB_STORE", str(tmp_path))


def test_what_is_not_stored_is_counted_and_computed_when_asked(store):
    grid = fl.grid(run, method=["fedavg", "local"], seed=0)
    assert repr(fl.results(grid)) == (
        "0 of 2 runs; 2 are not stored (their time on this machine is not known)"
    )
    found = fl.results(grid, compute=True)
    assert repr(found) == "2 of 2 runs"
    assert found.runs["method"].tolist() == ["fedavg", "local"]
    assert found.runs["accuracy"].between(0, 100).all()
    assert repr(found.where(method="local")) == "1 run"
    assert repr(found.plain()) == repr(found + found) == "2 runs"
    means = found.mean("method")
    assert means.equals(found.mean(["method"])) and len(means) == 2


class Broken(fl.methods.FedAvg):
    """A method of one's own with an error in it."""

    name = "broken"

    def collect(self, state, clients, theta, round):
        raise RuntimeError("boom")


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_of_ones_own_method_says_in_which_row(store, n_jobs):
    def plan(rounds):
        clients = fl.recipe(
            "label_clusters", "digits", n_clients=4, n_clusters=2, classes_per_cluster=3
        )
        return fl.Training(clients, Broken(), "mlp32", rounds=rounds)

    with pytest.raises(RuntimeError, match="boom") as caught:
        fl.results(fl.grid(plan, rounds=[1, 2]), compute=True, n_jobs=n_jobs)
    # of two processes, either may fail first
    assert any("method broken, seed 0, rounds" in n for n in caught.value.__notes__)


def test_a_row_that_cannot_run_is_named(store):
    def plan(n_clusters):
        clients = fl.recipe(
            "label_clusters", "digits", n_clients=4, n_clusters=2, classes_per_cluster=3
        )
        return fl.Training(clients, fl.methods.IFCA(n_clusters), "mlp32", rounds=1)

    with pytest.raises(fl.FltnbError, match="5 clusters for 4 clients") as caught:
        fl.results(fl.grid(plan, n_clusters=[2, 5]), compute=True)
    assert "n_clusters 5" in caught.value.__notes__[0]


def test_grids_can_be_collected_without_reading_anything():
    grid = fl.grid(run, method="fedavg", seed=0)
    with experiments.asking.collecting() as asked:
        fl.results(grid, compute=True)
    assert asked == [grid]


FILES = sorted((paths.ROOT / "notebooks").glob("[0-9]*.ipynb"))
PAGES = [file.stem[:2] for file in FILES if tagged_cells(file.stem)["experiment"]]


@pytest.mark.parametrize("notebook", PAGES)
def test_the_cells_of_a_page_give_its_grids_and_all_are_stored(notebook):
    asked = grids(notebook)
    assert all(len(fl.results(grid)) == len(grid) for grid in asked)
    demo = grids(notebook, "demo", {"seeds": [0]})
    assert len(demo) == len(asked)
    assert len(code_cells(notebook)["parameters"]) == 1


@pytest.mark.parametrize("notebook", PAGES)
def test_every_stored_result_of_a_page_is_asked_for_by_its_grids(notebook):
    asked = set()
    for grid in grids(notebook):
        asked |= set(fl.results(grid).runs["key"])

    (name,) = (file.stem for file in FILES if file.stem[:2] == notebook)
    stored = {line["key"]: line for line in Ledger(name).lines}
    lost = [line for key, line in stored.items() if key not in asked]
    assert not lost, f"{len(lost)} results of {name} are shown nowhere: {lost[0]}"
