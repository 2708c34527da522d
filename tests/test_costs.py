"""Table 6 worked by hand; formulas against counted and against weighed bytes of real
runs.
"""

import warnings

import numpy as np
import pytest
from toys import refused

import fltnb as fl
from fltnb import federations, methods
from fltnb.analyses import costs
from fltnb.notebook.grids import grids
from fltnb.theory import traffic


def test_table_6_scenario_3_and_the_networks():
    sizes = {"M": 10, "rho": 0.5, "T": 3, "W_local": 100}
    assert traffic.formula("fedsem", **sizes).total == 2 * 5 * 100 * 3
    flt = traffic.formula("flt", W_enc=7, k=2, e=4, **sizes)
    assert (flt.once, flt.rounds) == (10 * 7 + 10 * 2 * 4, 3000)
    assert (
        traffic.formula("ifca", C=3, **sizes).total == 5 * 100 * 3 * 4
    )  # three models down, one up
    assert (
        traffic.formula("ifca", C=3, warmup=2, **sizes).total
        == 2 * 5 * 100 * 2 + 5 * 100 * 4
    )
    longer = traffic.formula("ifca", C=3, warmup=9, **sizes).total
    assert longer == traffic.formula("fedavg", **sizes).total  # as many rounds as run
    assert traffic.formula("pca_km_hc", W_enc=7, k=2, e=4, **sizes).once == 80
    assert (
        traffic.formula("flt_dynamic", W_enc=7, k=2, e=4, again=2, **sizes).total
        == 150 + 2 * 80 + 3000
    )
    assert traffic.formula("local", **sizes).total == 0
    for C in (1, 2, 3, 7):
        assert (
            traffic.formula("ifca", C=C, **sizes).total
            / traffic.formula("fedsem", **sizes).total
            == (C + 1) / 2
        )
    refused("formula", traffic.formula, "telepathy", **sizes)

    three = {
        "M": 200,
        "rho": 0.2,
        "k": 5,
        "e": 128,
        "C": 3,
        "W_local": 3_459_582,
        "W_enc": 51_577,
    }
    ways = {
        "fedsem": [{"T": 100}],
        "ifca": [{"T": 100}, {"T": 1500}, {"T": 1500, "warmup": 500}],
    }
    flt = traffic.formula("flt", T=100, **three)
    times = [
        traffic.formula(name, **three, **how).total / flt.total
        for name, each in ways.items()
        for how in each
    ]
    assert (
        round(100 * flt.once / flt.total, 2),
        [round(value) for value in times],
    ) == (0.04, [1, 2, 30, 25])
    table = costs.networks()["tables"]["table"].set_index("network")
    assert table["as written"].to_dict() == {
        "MLP": 169_462,
        "CNN": 6_603_710,
        "ConvAE": 51_577,
    }
    assert (table["paper"] == table["as written"]).to_dict() == {
        "MLP": True,
        "CNN": False,
        "ConvAE": True,
    }


@pytest.fixture(scope="module")
def short():
    """Federation, methods and training of the demo for three rounds; some take the
    pixels for encoder, for speed.
    """
    asked = [row for grid in grids("06", profile="demo") for row in grid]
    (row,) = [row for row in asked if row.axes.get("study") == "traffic"]
    job = row.experiment
    chosen = {}
    for name, settings in job.settings["methods"].items():
        # 8 x 8 pixels are their own 64 numbers
        pca, pixels = (
            {"kind": "pca", "pretrain": "digits", "latent": 16},
            {"kind": "pixels", "latent": 64},
        )
        quick = {"encoder": pca if name == "FLT" else pixels, "tau": 2, "warmup": 1}
        chosen[name] = settings | {
            option: value for option, value in quick.items() if option in settings
        }
    training = {
        name: value
        for name, value in job.settings["training"].items()
        if name != "eval_every"
    }
    return (
        job.settings["federation"],
        chosen,
        training | {"rounds": 3, "local_epochs": 1},
    )


@pytest.fixture(scope="module")
def table(short):
    return costs.traffic(*short, weighed=2)["tables"]["table"]


def test_every_method_has_a_formula_and_the_weighed_arrays_agree(table, short):
    assert {"flt" if name == "flt_enc1" else name for name in table["method"]} == set(
        traffic.FORMULAS
    )

    weighed = table.dropna(subset=["weighed_moved"])
    assert weighed["method"].tolist() == ["flt_enc1", "fedsem", "ifca", "ifca"]
    np.testing.assert_array_equal(weighed["weighed_moved"], weighed["weighed_formula"])

    # 25 clients, 7 of whom are 0.3 of them rounded down
    fed, methods, training = short
    own = {"FedAvg": methods["FedAvg"], "FedSEM": methods["FedSEM"]}
    part = costs.traffic(fed, own, training | {"participation": 0.3}, weighed=1)
    part = part["tables"]["table"].set_index("method")
    assert part.loc["fedavg", "total"] == 2 * 7 * 15_010 * 3
    assert part.loc["fedsem", "weighed_moved"] == part.loc["fedsem", "weighed_formula"]

    # 25 clients, 5 take part; MLP 64-200-10 has 15,010 parameters; 3 rounds
    total = table[table["warmup"] == 0].set_index("method")["total"]
    assert total["fedavg"] == 2 * 5 * 15_010 * 3
    assert total["ifca"] == 3 * total["fedavg"]
    # the PCA's mean and 16 axes of 64 pixels down, two centroids of 16 numbers up
    assert total["flt_enc1"] - total["fedavg"] == 25 * (17 * 64 + 2 * 16)


def test_counted_bytes_are_what_the_formulas_say(short, table):
    federation, chosen, training = short
    fed = federations.build(federation)
    for settings, expected in zip(chosen.values(), table["total"], strict=True):
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message=".* clusters were asked for"
            )  # PCA+kM+HC links all digits
            run = fl.run(
                methods.build(settings),
                fed,
                **training,
                backend="stacked",
                progress=False,
            )
        sent = run.history[["bytes_up", "bytes_down"]].iloc[-1].sum() / 4
        assert sent == expected, settings["name"]


def test_scales_weigh_different_models_once_and_notice_one_too_many():
    class Engine:
        def train(self, theta, rows, clients, round):
            return type("Trained", (), {"theta": theta[rows] + 1})

        def evaluate(self, theta, rows, clients, split):
            return split

    scales = traffic.Scales(Engine())
    theta = np.arange(6.0).reshape(2, 3)
    assert scales.evaluate(theta, [0, 0], [4, 7], "train") == "train"
    scales.train(theta[:1], [0, 0], [4, 7], 1)  # the model they have just tested
    assert scales.moved == 2 * 3 + 2 * 3
    scales.evaluate(theta, [1], [7], "train")
    assert scales.moved == 3 * 3 + 2 * 3
