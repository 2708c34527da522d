"""What the scenario notebooks read off their runs, on tables small enough to check by eye."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fltnb import analysis

CLUSTERS = np.array([0, 0, 1, 1])


def test_link_shares_by_hand():
    adjacency = np.array([[1, 1, 0, 0], [1, 1, 0, 1], [0, 0, 1, 0], [0, 1, 0, 1]])
    # inside: pairs (0,1) linked, (2,3) not; across: 1 of 4 pairs linked
    assert analysis.link_shares(adjacency, CLUSTERS) == (0.5, 0.25)
    inside, across = analysis.link_shares(np.eye(3), np.arange(3))
    assert np.isnan(inside) and across == 0


def test_renumbered_is_the_same_clustering_under_other_numbers():
    same = (CLUSTERS[:, None] == CLUSTERS[None]).astype(np.uint8)
    fitted = SimpleNamespace(adjacency_=same, labels_=CLUSTERS, leaf_order_=np.array([2, 3, 0, 1]))
    view, truth = analysis.renumbered(fitted, CLUSTERS, seed=2)
    assert not np.array_equal(truth, CLUSTERS)
    assert np.array_equal(view.adjacency_, truth[:, None] == truth[None])
    assert np.array_equal(view.labels_, truth)
    # following the leaf order shows the same blocks in the same sequence as before
    assert np.array_equal(truth[view.leaf_order_], CLUSTERS[fitted.leaf_order_])


def tidy_rows(values: dict, dataset="mnist", variant="as_run", note="", rule="last_local", seeds=(0, 1)):
    rows = []
    for (method, metric), numbers in values.items():
        for seed, value in zip(seeds, numbers, strict=True):
            labels = {"experiment": "01_scenario1", "dataset": dataset, "model": "mlp", "method": method}
            labels |= {"variant": variant, "note": note, "rule": rule, "seed": seed, "split": "test"}
            rows.append(labels | {"metric": metric, "value": value, "n": 10_000})
    return rows


@pytest.fixture
def tidy():
    metrics = ("accuracy", "accuracy_variance", "first_clients_accuracy", "first_clients_variance")
    values = {}
    for method, numbers in {"fedavg": (83.0, 45.0, 83.0, 45.0), "flt_enc1": (97.0, 30.0, 98.0, 2.0)}.items():
        values |= {(method, m): (v - 0.1, v + 0.1) for m, v in zip(metrics, numbers, strict=True)}
    rows = tidy_rows(values)
    rows += tidy_rows(
        {("fedavg", "accuracy"): (88.0, 88.0), ("fedavg", "accuracy_variance"): (10.0, 90.0)},
        note="rule = participants",
        rule="participants",
    )
    return pd.DataFrame(rows)


@pytest.fixture
def curves():
    rows = []
    for note, variances in {"": (900, 50, 40, 45), "rule = participants": (900, 10, 300, 80)}.items():
        for method in ("fedavg", "flt_enc1"):
            for round, variance in zip((20, 60, 80, 100), variances, strict=True):
                labels = {"dataset": "mnist", "method": method, "variant": "as_run", "note": note, "seed": 0}
                rows.append(labels | {"round": round, "split": "test", "accuracy": 80.0, "variance": float(variance)})
    return pd.DataFrame(rows)


def test_variance_range_looks_at_the_last_rounds_only(curves):
    assert analysis.variance_range(curves, "mnist", "fedavg", "last_local") == (40, 50)
    assert analysis.variance_range(curves, "mnist", "fedavg", "participants") == (10, 300)


def test_rules_table(tidy, curves):
    table = analysis.rules_table(tidy, curves)
    assert list(table["absent clients contribute"]) == ["participants", "last_local", "last_local"]
    fedavg = table[table["method"] == "fedavg"].iloc[1]
    assert fedavg["accuracy"] == "83.00 ± 0.14"
    assert fedavg["printed accuracy"] == "82.73"
    assert fedavg["variance, last 40 % of the rounds"] == "40.0 to 50.0"


def test_evaluation_table_sets_both_ways_beside_the_printed_row(tidy):
    row = analysis.evaluation_table(tidy).set_index("method").loc["flt_enc1"]
    assert row["accuracy: printed"] == "97.98"
    assert row["accuracy: all clients"] == "97.00 ± 0.14"
    assert row["accuracy: first clients"] == "98.00 ± 0.14"


def test_claims_say_what_the_numbers_say(tidy, curves, capsys):
    analysis.scenario1_claims(tidy, curves).show()
    lines = capsys.readouterr().out.splitlines()
    verdict = {line.split("  ", 1)[1].strip(): line.startswith("holds") for line in lines}
    assert any("swings" in text and holds for text, holds in verdict.items())
    assert any("mean does not tell" in text and not holds for text, holds in verdict.items())
    assert any("first client of each cluster" in text and holds for text, holds in verdict.items())


@pytest.mark.parametrize(("ari", "clusters", "word"), [(1.0, 5, "holds"), (0.9, 4, "DOES NOT HOLD")])
def test_clustering_claim_follows_the_runs(tidy, curves, capsys, ari, clusters, word):
    rows = tidy_rows(
        {("flt_enc1", "ari"): (1.0, ari), ("flt_enc1", "n_clusters"): (5, clusters)}, variant="as_written", rule=""
    )
    analysis.scenario1_claims(pd.concat([tidy, pd.DataFrame(rows)]), curves).show()
    lines = [line for line in capsys.readouterr().out.splitlines() if "FCR as described" in line]
    assert len(lines) == 1 and lines[0].startswith(word)
