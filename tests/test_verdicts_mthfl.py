"""Every claim of MT-HFL holds for one result and fails for another."""

import numpy as np
import pandas as pd
import pytest
from toys import measured

from fltnb.papers.verdicts import CLAIMS, Numbers, Print

PAIR = ("mthfl", "mthfl_random")


def users(within, across, ari=1.0):
    """Similarities of Table I's users."""
    row = {"features": "pixels", "eigenvectors": 5, "within": within}
    rows = [row | {"across": across, "ari": ari}]
    own = {"table": "TI", "tables": {"separation": rows}}
    return measured("cifar10", table="TI", studies=[own])


def themes(near, far):
    rows = [{"features": "pixels", "eigenvectors": 5, "user2": near, "user3": far}]
    studies = [{"tables": {"similarity": rows}}]
    return measured("cifar10_cifar100", table="TII", studies=studies)


def found(*aris, dataset="fashion_mnist"):
    about = {"method": "mthfl", "part": "study", "features": "pixels", "tasks": 3.0}
    rows = [about | {"ari": ari, "seed": seed} for seed, ari in enumerate(aris)]
    return measured(dataset, clusterings=rows)


def curve(five, every):
    """Figure 4: (similarity within tasks, ARI by seed) with five and all directions."""
    rows = []
    for number, (within, *aris) in ((5, five), (784, every)):
        row = {"eigenvectors": number, "within": within, "numbers": 784 * number}
        rows += [row | {"ari": ari, "seed": seed} for seed, ari in enumerate(aris)]
    figure = {"part": "figure 4", "tables": {"separation": rows}}
    # on a page with one data set Table I's users have such a table as well
    one = {"eigenvectors": 5, "within": 0.9, "numbers": 3920, "ari": 1.0, "seed": 9}
    table1 = {"part": "Table I", "tables": {"separation": [one | {"ari": 0.5}, one]}}
    return measured("fashion_mnist", studies=[figure, table1])


def cost(sends, receives):
    rows = [{"a user sends": sends, "a user receives": receives}]
    rows += [{"a user sends": 100, "a user receives": 100}]
    return measured("fashion_mnist", studies=[{"tables": {"cost": rows}}])


def trained(similar, random, dataset="fashion_mnist"):
    """Accuracy by seed and task, grouped by similarity and at random."""
    runs, clients = [], []
    for method, seeds in zip(PAIR, (similar, random), strict=True):
        for seed, tasks in enumerate(seeds):
            key = f"{method}-{seed}"
            row = {"kind": "training", "method": method, "seed": seed, "key": key}
            ari = 1.0 if method == "mthfl" else 0.0
            runs.append(row | {"ari": ari, "accuracy": np.mean(tasks)})
            for task, accuracy in enumerate(tasks):
                client = {"key": key, "method": method, "seed": seed}
                client |= {"client": task, "true_cluster": task}
                clients.append(client | {"test": accuracy})
    t = measured(dataset, accuracy={"x": 1})
    t.results.runs = pd.DataFrame(runs).assign(dataset=dataset, model="", variant="")
    t.results.clients = pd.DataFrame(clients)
    return Numbers(t.results, dataset, "", "as_written")


BETTER = trained([(80, 70, 60), (81, 71, 61)], [(70, 65, 40), (79, 60, 50)])
WORSE = trained([(80, 70, 60), (95, 90, 90)], [(90, 85, 79), (91, 90, 80)])
CASES = {
    "mthfl-t1-1": (users(0.96, 0.33), users(0.99, 0.9)),
    "mthfl-t1-2": (users(0.9, 0.3), users(0.9, 0.3, ari=0.5)),
    "mthfl-t2": (themes(0.6, 0.4), themes(0.6, 0.55)),
    "mthfl-fig4-1": (curve((0.9, 1, 1), (0.2, 0, 0)), curve((0.9, 1, 0.8), (0.2, 1))),
    "mthfl-fig4-2": (curve((0.99, 1), (0.2, 0.4)), curve((0.99, 1), (0.9, 1))),
    "mthfl-fig4-3": (curve((0.9, 1, 1), (0.2, 1, 1)), curve((0.9, 1, 0.5), (0.2, 1))),
    "mthfl-text-exact": (found(1, 1), found(1, 0.8)),
    "mthfl-text-minority": (found(1, 1), found(1, 0.8)),
    "mthfl-text-numbers": (cost(10, 20), cost(30, 90)),
    "mthfl-fig2-1": (BETTER, WORSE),
    "mthfl-fig2-2": (BETTER, WORSE),
    "mthfl-fig3-1": (BETTER, WORSE),
    "mthfl-fig3-2": (BETTER, trained([(80, 70, 60)], [(40, 60, 59)])),
    "mthfl-fig3-3": (BETTER, WORSE),
}


def test_every_claim_of_mthfl_is_tested_here():
    assert {name for name in CLAIMS if name.startswith("mthfl-")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_claim_holds_for_one_result_and_fails_for_another(name):
    holds, fails = CASES[name]
    assert CLAIMS[name](holds).outcome == "agrees"
    assert CLAIMS[name](fails).outcome == "disagrees"


def test_print_passes_the_same_rules():
    users_ = Numbers(Print("mthfl", "TI"), "cifar10", table="TI")
    assert CLAIMS["mthfl-t1-1"](users_).outcome == "agrees"
    assert CLAIMS["mthfl-t1-2"](users_).outcome == "agrees"
    themes_ = Numbers(Print("mthfl", "TII"), "cifar10_cifar100", table="TII")
    assert CLAIMS["mthfl-t2"](themes_).text == ""
    assert CLAIMS["mthfl-t2"](themes_).number == pytest.approx(0.23)


def test_random_groups_that_lose_nowhere_lose_nothing_on_the_third_task():
    t = trained([(40, 50, 60)], [(80, 70, 61)])
    assert CLAIMS["mthfl-fig3-2"](t).outcome == "disagrees"


@pytest.mark.parametrize(
    "name", [name for name in CASES if "-fig2" in name or "-fig3" in name]
)
def test_one_way_of_grouping_alone_tests_nothing(name):
    assert CLAIMS[name](trained([(80, 70, 60)], [])).outcome == "not tested"


def test_lucky_draws_are_left_out_beside():
    t = trained([(80, 70), (81, 70)], [(60, 50), (80, 70), (70, 60)], "cifar10")
    t.results.runs.loc[t.results.runs["key"] == "mthfl_random-1", "ari"] = 1.0
    again = Numbers(t.results, "cifar10", "", "as_written")
    assert "without lucky draws" in CLAIMS["mthfl-fig2-2"](again).text


def test_figure_4_is_of_the_fashion_mnist_experiment():
    t = curve((0.9, 1), (0.2, 1))
    t.results.record = lambda key: {
        "settings": {"federation": {"samples_per_user": [1500, 1000, 500]}},
        "provenance": {},
    }
    departs = CLAIMS["mthfl-fig4-1"](t).departs
    assert departs == ("1,500, 1,000, 500 images a user",)
    figure_3 = trained([(80, 70, 60)], [(70, 60, 40)])
    figure_3.results.record = t.results.record
    for name in ("mthfl-fig3-1", "mthfl-fig3-2", "mthfl-fig3-3"):
        assert CLAIMS[name](figure_3).departs == departs


@pytest.mark.parametrize("encoder, said", [("pixels", True), ("resnet", False)])
def test_users_that_are_grouped_by_pixels_are_not_the_papers(encoder, said):
    t = trained([(80, 70)], [(70, 60)], "cifar10")
    settings = {"method": {"encoder": {"kind": encoder}}}
    t.results.record = lambda key: {"settings": settings, "provenance": {}}
    for name in ("mthfl-fig2-1", "mthfl-fig2-2"):
        departs = CLAIMS[name](t).departs
        assert departs == ("users are grouped by raw pixels",) * said


def test_a_partition_with_two_and_with_three_tasks_is_one_seed():
    about = {"method": "mthfl", "part": "study", "features": "pixels"}
    rows = [
        about | {"ari": 1.0, "seed": seed, "tasks": tasks}
        for seed in (0, 1)
        for tasks in (2.0, 3.0)
    ]
    t = measured("digits", clusterings=rows)
    assert CLAIMS["mthfl-text-minority"](t).text == "2 of 2 seeds"


def test_what_contradicts_a_claim_stands_first():
    t = trained([(80, 70), (95, 70)], [(80, 70), (80, 90)])
    text = CLAIMS["mthfl-fig3-3"](t).text
    assert text == "10.6 against 0.0, 0.0 against 14.1"
    t = trained([(70, 70), (70, 90)], [(80, 70), (95, 70)])
    assert CLAIMS["mthfl-fig3-3"](t).text == "14.1 against 0.0, 0.0 against 10.6"
