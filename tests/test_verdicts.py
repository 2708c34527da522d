"""How claims are registered, tested and put together."""

import numpy as np
import pandas as pd
from toys import Made, measured, refused

from fltnb.papers import claims
from fltnb.papers.verdicts import (
    CLAIMS,
    Finding,
    Numbers,
    Print,
    claim,
    claims_of,
    judge,
    outcomes,
)
from fltnb.papers.verdicts.beside import departs_of
from fltnb.papers.verdicts.judging import shown
from fltnb.papers.verdicts.numbers import Nothing


def test_a_finding_without_a_number_is_not_tested():
    assert Finding(np.nan, True).outcome == "not tested"
    assert Finding(1.0, True).outcome == "agrees"
    assert Finding(1.0, False).outcome == "disagrees"
    assert Finding(1.0, [True, False]).outcome == "partly"


def test_a_claim_needs_an_id_that_the_registry_has_and_has_one_test():
    refused("has no claim", claim, "flt-t99")
    refused("has a test already", claim, "flt-t1-1")


def test_every_registered_claim_has_a_test():
    assert set(CLAIMS) == set(claims()["id"])
    for one in CLAIMS.values():
        assert one.short, one.id
    assert "flt-t1-1" in claims_of("01") and not claims_of("42")


def test_means_are_over_seeds_that_all_methods_have():
    t = measured("mnist", accuracy={"flt_enc1": [90, 80], "fedavg": 70, "local": []})
    assert t.means("flt_enc1", "fedavg").tolist() == [90, 70]
    assert t.mean("flt_enc1") == 85
    assert np.isnan(t.means("flt_enc1", "ifca")).all()
    assert np.isnan(t.mean("flt_enc1", "variance"))


def test_switches_are_left_out_unless_they_are_named():
    runs = [
        {"kind": "training", "dataset": "mnist", "method": "flt", "accuracy": accuracy}
        | {"variant": "as_written", "k": k, "key": f"{k}"}
        for accuracy, k in ((90, np.nan), (50, 2.0))
    ]
    made = Made(runs)
    made.axes = ("k",)
    t = Numbers(made, "mnist", variant="as_written")
    assert t.mean("flt") == 90 and t.mean("flt", k=2) == 50
    assert np.isnan(t.mean("flt", k=3))


def test_printed_numbers_answer_the_same_questions():
    t = Numbers(Print("flt", "T1"), "cifar10")
    assert t.mean("flt_enc1") - t.mean("fedavg") > 40
    assert np.isnan(t.mean("oracle")) and t.curves("flt_enc1", "fedavg").empty
    ablation = Numbers(Print("flt", "T5"), "cifar10")
    refused("several runs", ablation.mean, "fedsem")
    at = {"n_clients": 100, "participation": 0.2, "local_epochs": 1, "rounds": 100}
    assert 0 < ablation.mean("fedsem", **at) < 100


def test_a_claim_is_judged_on_every_variant_and_on_print():
    accuracy = {"flt_enc1": 80.0, "fedavg": 30.0}
    made = measured("digits", "mlp", accuracy=accuracy).results
    rows = judge("01", made, ids=["flt-t1-1", "flt-t1-2"])
    assert rows["variant"].tolist() == ["as_written"] * 2  # no paper prints digits
    assert rows["outcome"].tolist() == ["not tested", "agrees"]
    assert rows["tested_on"].tolist() == ["", "stand-in data"]

    told = outcomes(rows).set_index("id")
    assert (told["outcome"] == "not tested").all()  # digits do not count for a paper
    assert told.loc["flt-t1-2", "sign"] == "(✔)"
    assert told.loc["flt-t1-1", "sign"] == "○"


def test_only_the_printed_setting_counts():
    row = {"id": "flt-t1-2", "claim": "", "dataset": "cifar10", "model": "lenet"}
    row |= {"table": "T1"}
    row |= {"why": "", "text": "+50.0", "seeds": 3, "variant": "as_run"}
    best = row | {"outcome": "agrees", "tested_on": "printed setting"}
    less = row | {"outcome": "disagrees", "tested_on": "reduced setting"}
    other = row | {"outcome": "disagrees", "tested_on": "printed setting"}

    def outcome(*rows):
        return outcomes(pd.DataFrame(rows)).iloc[0][["outcome", "sign"]].tolist()

    assert outcome(best, less) == ["agrees", "✔"]
    assert outcome(best, other) == ["partly", "◐"]
    assert outcome(less) == ["not tested", "(✘)"]
    elsewhere = less | {"dataset": "mnist"}
    told = outcomes(pd.DataFrame([best, elsewhere])).iloc[0]
    assert (told["outcome"], told["alone"]) == ("agrees", "CIFAR-10")
    assert outcomes(pd.DataFrame([best, less])).iloc[0]["alone"] == ""
    stand_in = elsewhere | {"tested_on": "stand-in data"}
    told = outcomes(pd.DataFrame([less, stand_in])).iloc[0]
    assert (told["sign"], told["alone"]) == ("(✘)", "CIFAR-10")


def test_a_hyphen_in_a_name_is_no_minus():
    finding = Finding(1.0, True, text="-1.5 (CIFAR-10), +2.0, -3.0")
    assert shown(finding, "{:.0f}") == "−1.5 (CIFAR-10), +2.0, −3.0"


def test_every_test_of_a_claim_says_why_it_could_not_be_tested():
    nothing = measured("mnist", "mlp", accuracy={"nobody": 1.0})
    for one in CLAIMS.values():
        assert one(Numbers(Nothing())).outcome, one.id
        if not one.whole:  # such a claim may be computed without any run
            assert one(nothing).outcome == "not tested", one.id


def test_a_claim_without_a_table_is_compared_with_the_settings_of_the_text():
    t = measured("mnist", "mlp", accuracy={"oracle": 90})
    short = {"rounds": 40, "batch_size": 32, "lr": 0.01}
    t.results.record = lambda key: {"settings": short, "provenance": {}}
    excluded = CLAIMS["flt-text-excluded"]
    used = {"oracle-0": t.results}
    assert departs_of(excluded, "", used) == ("batch size 32, printed 10",)
    assert departs_of(CLAIMS["flt-t6-1"], "", used) == ()  # a formula has no setting
