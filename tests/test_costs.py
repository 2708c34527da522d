"""Table 6 worked by hand, and formulas against counted bytes on real runs of every method."""

import warnings

import numpy as np
import pandas as pd
import pytest
from fltnb.experiments import costs as plan
from fltnb.store import Result, Spec

import fltnb as fl
from fltnb import methods
from fltnb.analysis import costs


def test_table_6_by_hand():
    sizes = {"M": 10, "rho": 0.5, "T": 3, "W_local": 100}
    assert costs.formula("fedsem", **sizes).total == 2 * 5 * 100 * 3
    flt = costs.formula("flt", W_enc=7, k=2, e=4, **sizes)
    assert (flt.once, flt.rounds) == (10 * 7 + 10 * 2 * 4, 3000)
    assert costs.formula("ifca", C=3, **sizes).total == 5 * 100 * 3 * 4  # three models down, one up
    assert costs.formula("ifca", C=3, warmup=2, **sizes).total == 2 * 5 * 100 * 2 + 5 * 100 * 4
    assert costs.formula("pca_km_hc", W_enc=7, k=2, e=4, **sizes).once == 80
    assert costs.formula("flt_dynamic", W_enc=7, k=2, e=4, again=2, **sizes).total == 150 + 2 * 80 + 3000
    assert costs.formula("local", **sizes).total == 0


def test_ifca_costs_half_of_c_plus_one_times_fedsem():
    sizes = {"M": 20, "rho": 0.2, "T": 50, "W_local": 1234}
    for C in (1, 2, 3, 7):
        ratio = costs.formula("ifca", C=C, **sizes).total / costs.formula("fedsem", **sizes).total
        assert ratio == (C + 1) / 2


def test_scenario_3_gives_the_relations_told_for_it():
    table = costs.scenario3_table()
    assert round(table["one-off share, %"][0], 2) == 0.04
    assert [round(times) for times in table["times FLT"]] == [1, 1, 2, 30, 25]


def test_an_unknown_method_has_no_formula():
    with pytest.raises(fl.FltnbError, match="formula"):
        costs.formula("telepathy", M=1, rho=1, T=1, W_local=1)


def test_the_described_networks_and_the_printed_counts():
    table = costs.network_table().set_index("network")
    assert table["as described"].to_dict() == {"MLP": 169_462, "CNN": 6_603_710, "ConvAE": 51_577}
    assert (table["printed"] == table["as described"]).to_dict() == {"MLP": True, "CNN": False, "ConvAE": True}


def short(spec, rounds=3):
    """Run a spec of the demo for a few rounds, outside the store."""
    fed = spec.federation_built()
    run = fl.run(
        methods.build(spec.method),
        fed,
        model=spec.model,
        rounds=rounds,
        participation=spec.participation,
        backend="stacked",
        progress=False,
    )
    settings = {name: getattr(spec, name) for name in ("federation", "method", "model", "participation")}
    spec = Spec(**settings, rounds=rounds, dataset=spec.dataset, method_id=spec.method_id, note=spec.note)
    return Result(spec, "", run.history, run.clients, run.labels, {})


@pytest.fixture(scope="module")
def table():
    """Three rounds of every method; the ones that cluster first take the pixels, for speed."""
    runs = []
    for spec in plan.specs("demo"):
        if "encoder" in spec.method:
            encoder = {"kind": "pca", "pretrain": "digits", "latent": 16} if spec.method_id == "flt_enc1" else {}
            encoder = encoder or {"kind": "pixels", "latent": 64}  # 8 x 8 pixels are their own 64 numbers
            spec = Spec(**{**vars(spec), "method": spec.method | {"encoder": encoder}})
        if "tau" in spec.method:
            spec = Spec(**{**vars(spec), "method": spec.method | {"tau": 2}})
        if "warmup" in spec.method:
            spec = Spec(**{**vars(spec), "method": spec.method | {"warmup": 1}})
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".* clusters were asked for")  # PCA+kM+HC links all digits
            runs.append(short(spec))
    return costs.cost_table(runs)


def test_every_method_of_the_notebook_is_there(table):
    ids = {"flt" if name == "flt_enc1" else name for name in table["method"]}
    assert ids == {methods.METHODS[name].name for name in plan.COUNTED}


def test_counted_bytes_are_what_the_formulas_say(table):
    known = table[table["scalars (formula)"].notna()]
    assert {"flt_enc1", "fedsem", "ifca", "fedavg", "local"} <= set(known["method"])
    np.testing.assert_array_equal(known["scalars (counted)"], known["scalars (formula)"])


def test_by_hand_for_one_run(table):
    # 25 clients, 5 take part; MLP 64-200-10 has 15,010 parameters; 3 rounds
    fedavg = table[table["method"] == "fedavg"].iloc[0]
    assert fedavg["scalars (counted)"] == 2 * 5 * 15_010 * 3
    ifca = table[(table["method"] == "ifca") & (table["note"] == "")].iloc[0]
    assert ifca["against FedAvg"] == 3
    # the PCA's mean and 16 axes of 64 pixels down, two centroids of 16 numbers up
    flt = table[table["method"] == "flt_enc1"].iloc[0]
    assert flt["scalars (counted)"] - fedavg["scalars (counted)"] == 25 * (17 * 64 + 2 * 16)


def test_claims_about_costs(table):
    claims = fl.notebook.Claims()
    costs.cost_claims(claims, table)
    verdicts = claims.table().set_index("claim")["verdict"]
    assert verdicts["flt-t6-1"] == verdicts["flt-t6-3"] == "holds"
    assert verdicts["flt-t11"] == "does not hold"
    assert set(verdicts.index) <= set(fl.published.claims("flt")["id"])
    broken = table.assign(**{"counted / formula": 1.5})
    claims = fl.notebook.Claims()
    costs.cost_claims(claims, broken)
    assert claims.table()["verdict"].iloc[0] == "does not hold"


def test_bytes_to_reach_a_level():
    curves = pd.DataFrame(
        {
            "method": "fedavg",
            "note": "",
            "split": ["test"] * 4 + ["train"],
            "round": [0, 1, 2, 3, 3],
            "accuracy": [10.0, 50.0, 40.0, 90.0, 100.0],
            "bytes_up": [0, 1e6, 2e6, 3e6, 3e6],
            "bytes_down": [0, 2e6, 4e6, 6e6, 6e6],
        }
    )
    row = costs.bytes_to_reach(curves, (50, 80, 95)).iloc[0]
    assert (row["MB to 50 %"], row["MB to 80 %"], row["MB in all"], row["last accuracy"]) == (3, 9, 9, 90)
    assert np.isnan(row["MB to 95 %"])
