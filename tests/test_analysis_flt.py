"""Tables and claims of notebook 02, on small results written by hand."""

import numpy as np
import pandas as pd
import pytest

from fltnb import analysis


def tidy_rows(rows, **common):
    base = {"experiment": "x", "model": "mlp", "variant": "as_written", "note": "", "rule": "", "momentum": 0.0}
    base |= {"seed": 0, "split": "test", "metric": "accuracy", "n": np.nan, "key": "k"} | common
    return pd.DataFrame([base | row for row in rows])


def verdicts(claims):
    return dict(zip(claims.table()["sentence"], claims.table()["verdict"], strict=True))


def test_a_switch_is_measured_against_the_same_seed():
    rows = []
    for seed, base in ((0, 90.0), (1, 80.0)):
        rows += [{"seed": seed, "value": base}, {"seed": seed, "value": base + 2 + seed, "note": "momentum 0.5"}]
    rows += [{**row, "metric": "accuracy_variance", "value": 5.0} for row in rows]
    tidy = tidy_rows(rows, dataset="mnist", method="fedavg")
    table = analysis.scenario2.switches_table(tidy).set_index("switch")
    # 92 - 90 and 83 - 80: 2.5 on average, sample standard deviation sqrt(0.5)
    assert table.loc["momentum 0.5", "moved"] == "+2.50 ± 0.71"
    assert table.loc["none: as described", "moved"] == ""
    assert table.loc["momentum 0.5", "accuracy"] == pytest.approx(87.5)


def test_methods_without_a_switch_are_left_out_of_the_switches():
    tidy = tidy_rows(
        [
            {"method": "local", "value": 1.0},
            {"method": "fedavg", "value": 1.0},
            {"method": "fedavg", "value": 2.0, "note": "momentum 0.5"},
        ],
        dataset="mnist",
    )
    tidy = pd.concat([tidy, tidy.assign(metric="accuracy_variance")])
    assert set(analysis.scenario2.switches_table(tidy)["method"]) == {"fedavg"}


def test_scenario2_claims_compare_with_scenario1():
    def results(local, oracle):
        values = {"fedavg": 50.0, "fedsem": 60.0, "flt_enc1": 70.0, "local": local, "oracle": oracle}
        accuracy = tidy_rows([{"method": m, "value": v} for m, v in values.items()], dataset="mnist")
        return pd.concat([accuracy, accuracy.assign(metric="accuracy_variance", value=3.0)])

    curves = pd.concat(curve(m, "", (1.0, 2.0)) for m in ("fedavg", "fedsem", "flt_enc1", "local")).assign(
        dataset="mnist"
    )
    worse = verdicts(analysis.scenario2.scenario2_claims(results(60.0, 80.0), curves, results(75.0, 80.0)))
    better = verdicts(analysis.scenario2.scenario2_claims(results(78.0, 80.0), curves, results(75.0, 80.0)))
    sentence = "mnist: Local falls further behind the oracle in scenario 2 than in scenario 1"
    assert (worse[sentence], better[sentence]) == ("holds", "does not hold")
    assert worse["mnist, described: FLT leads FedSEM"] == "holds"


def curve(method, note, values, rounds=(50, 100)):
    rows = [
        {"dataset": "cifar10", "method": method, "variant": "as_written", "note": note, "seed": 0, "split": "test"}
        | {"round": round, "accuracy": value}
        for round, value in zip(rounds, values, strict=True)
    ]
    return pd.DataFrame(rows)


def test_sample_images_of_chosen_clients():
    import matplotlib.pyplot as plt

    import fltnb as fl

    fed = fl.federations.build({"kind": "pseudo_writers", "dataset": "digits", "n_clients": 6, "seed": 0})
    fig, axes = fl.plots.sample_images(fed, per_row=3, clients=[4, 1])
    assert axes.shape == (2, 3)
    assert [row[0].get_ylabel() for row in axes] == ["client 4", "client 1"]
    own = fed.images[fed.train[1]]
    assert any(np.array_equal(axes[1, 0].images[0].get_array(), image) for image in own)
    plt.close(fig)
