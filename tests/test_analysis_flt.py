"""Tables and claims of notebooks 02 to 05, on small results written by hand."""

import numpy as np
import pandas as pd
import pytest

from fltnb import analysis, published
from fltnb.notebook import Claims


def tidy_rows(rows, **common):
    base = {"experiment": "x", "model": "mlp", "variant": "as_written", "note": "", "rule": "", "momentum": 0.0}
    base |= {"seed": 0, "split": "test", "metric": "accuracy", "n": np.nan, "key": "k"} | common
    return pd.DataFrame([base | row for row in rows])


def verdicts(claims):
    return dict(zip(claims.table()["sentence"], claims.table()["verdict"], strict=True))


def curve(method, note, values, rounds=(50, 100)):
    rows = [
        {"dataset": "cifar10", "method": method, "variant": "as_written", "note": note, "seed": 0, "split": "test"}
        | {"round": round, "accuracy": value}
        for round, value in zip(rounds, values, strict=True)
    ]
    return pd.DataFrame(rows)


def test_table5_reads_both_numbers_of_rounds_off_one_run():
    curves = pd.concat(
        [
            curve("fedsem", "M = 100, rho = 0.2, E = 1", (60.0, 62.0)),
            curve("flt_enc1", "M = 100, rho = 0.2, E = 1", (64.0, 61.0)),
            curve("fedsem", "M = 100, rho = 0.2, E = 5", (65.0, 65.0)),
        ]
    )
    runs = analysis.ablation.ablation_runs(curves, "small")
    assert runs.set_index(["method", "E", "T"])["accuracy"].to_dict() == {
        ("fedsem", 1, 50): 60,
        ("fedsem", 1, 100): 62,
        ("flt_enc1", 1, 50): 64,
        ("flt_enc1", 1, 100): 61,
        ("fedsem", 5, 50): 65,
        ("fedsem", 5, 100): 65,
    }
    table = analysis.ablation.table5(runs).set_index(["M", "rho", "E", "T"])
    assert len(table) == 16
    line = table.loc[(100, 0.2, 1, 50)]
    assert (line["fedsem printed"], line["fedsem"], line["flt_enc2"]) == ("64.32", "60.00", "not run")
    found = verdicts(analysis.ablation.ablation_claims(runs))
    assert found["ours: FLT above FedSEM in every line"] == "does not hold"
    assert found["as printed: FLT above FedSEM in every line"] == "holds"
    assert found["ours: more participation helps in every pair"] == "not tested"  # one level only
    assert found["ours: more rounds help in every pair"] == "does not hold"  # 64 falls to 61


def test_the_printed_ablation_bears_out_what_is_known_of_it():
    """Counts found when the printed numbers were first read (paper's trap 4)."""
    printed = analysis.ablation.printed_lines()
    assert len(printed) == 48
    gaps = analysis.ablation._gaps_to_fedsem(printed, "printed")
    assert (((gaps >= 2) & (gaps <= 8)).sum(), len(gaps)) == (18, 32)
    assert (gaps.min().round(2), gaps.max().round(2)) == (0.23, 9.03)
    for factor, better, of in (("T", 20, 24), ("rho", 21, 24), ("E", 22, 24)):
        moved = analysis.ablation.pairs(printed, "printed", factor)["difference"]
        assert ((moved > 0).sum(), len(moved)) == (better, of)


def test_a_stand_in_is_shown_beside_the_printed_numbers_and_named():
    tidy = tidy_rows([{"method": "flt", "value": 80.0, "rule": "participants"}], dataset="emnist_bymerge")
    table = analysis.standins.comparison(tidy, "T4")
    assert set(table["dataset"]) == {"emnist_bymerge"}
    line = table[(table["method"] == "flt") & (table["metric"] == "accuracy") & (table["model"] == "mlp")].iloc[0]
    assert line["as_run"].startswith("86.51") and line["described - printed"] == "-6.51"
    assert "emnist_bymerge beside the paper's structured_noniid_femnist" in table.attrs["caption"]
    digits = tidy.assign(dataset="digits")
    assert "Toy scale" in analysis.standins.comparison(digits, "T4").attrs["caption"]
    assert set(analysis.standins.STAND_INS.values()) <= set(published.numbers("flt")["dataset"])


def test_rounds_to_a_share_of_the_best_accuracy():
    curves = curve("flt", "", (50.0, 88.0, 90.0), rounds=(0, 5, 10))
    assert analysis.scenario4.rounds_to(curves) == 10  # 88 is below 0.98 * 90 = 88.2
    assert analysis.scenario4.rounds_to(curves, 0.9) == 5
    table = analysis.scenario3.rounds_to_target(curves, 88.0).set_index("method")
    assert table.loc["flt", "rounds"] == 5
    assert np.isnan(analysis.scenario3.rounds_to_target(curves, 91.0)["rounds"].iloc[0])


def test_formation_stops_improving():
    truth = np.array([0, 0, 1, 1])
    mixed = np.array([0, 1, 0, 1])
    early, late = Claims(), Claims()
    analysis.scenario4.formation_claim(early, {1: mixed, 15: truth, 50: truth}, truth)
    analysis.scenario4.formation_claim(late, {1: mixed, 15: mixed, 50: truth}, truth)
    assert list(verdicts(early).values()) == ["holds"]
    assert list(verdicts(late).values()) == ["does not hold"]
    short = Claims()
    analysis.scenario4.formation_claim(short, {1: truth}, truth)
    assert list(verdicts(short).values()) == ["not tested"]


def test_found_table_counts_seeds_with_the_right_number():
    table = pd.DataFrame(
        {
            "part": "seeds",
            "method": ["transport"] * 3,
            "ari": [1.0, 1.0, 0.5],
            "n_clusters": [10, 10, 7],
            "true_clusters": 10,
            "links_inside": 1.0,
            "links_across": 0.0,
        }
    )
    row = analysis.scenario4.found_table(table).iloc[0]
    assert (row["right number"], row["clusters found"], row["ARI, least"]) == ("2 of 3", "7 to 10", 0.5)


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
