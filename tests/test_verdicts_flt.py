"""Every claim of FLT holds for one result and fails for another."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from toys import measured

from fltnb.papers.verdicts import CLAIMS, Numbers, Print
from fltnb.papers.verdicts.flt_scenarios import about_twenty
from fltnb.papers.verdicts.flt_theory import bounded, same_sizes

FIVE = ("flt_enc1", "fedavg", "local", "pca_km_hc", "fedsem")
WRITERS = ("flt", "fedavg", "pca_km_hc", "ifca", "cfl", "fedsem")
FORCED = ("flt", "flt_c2", "flt_c3", "flt_c5", "flt_c7")
FOUR = ("flt", "fedavg", "pca_km_hc", "fedsem")


def one(*values):
    """Scenario 1 on CIFAR-10: FLT, FedAvg, Local, PCA+kM+HC, FedSEM."""
    accuracy = dict(zip(FIVE, values, strict=True))
    return measured("cifar10", table="T1", accuracy=accuracy)


def spread(*values):
    return measured(
        "cifar10", table="T1", variance=dict(zip(FIVE, values, strict=True))
    )


def encoders(first, second):
    return measured(
        "mnist", table="T1", accuracy={"flt_enc1": first, "flt_enc2": second}
    )


def drawn(first, second):
    return measured("mnist", table="T1", curves={"flt_enc1": first, "flt_enc2": second})


def both_scenarios(first, second):
    def numbers(table, gap, beside=None):
        accuracy = {"oracle": 90, "local": 90 - gap}
        return measured("cifar10", table=table, accuracy=accuracy, beside=beside)

    return numbers("T2", second, {"01": numbers("T1", first).results})


def led(flt, others):
    curves = dict.fromkeys(FIVE[1:], others) | {"flt_enc1": flt, "flt_enc2": flt}
    return measured("cifar10", table="T1", curves=curves)


def writers(*values, model="mlp", table="T3", **more):
    """Scenario 3: FLT, FedAvg, PCA+kM+HC, IFCA, CFL, FedSEM in one round."""
    accuracy = dict(zip(WRITERS, values, strict=True))
    curves = {name: [value] for name, value in accuracy.items()}
    about = {"accuracy": accuracy, "curves": curves} | more
    return measured("femnist", model, table=table, **about)


def forced(*values):
    accuracy = dict(zip(FORCED, values, strict=True))
    return measured("femnist", "mlp", table="T3", accuracy=accuracy)


def rising(flt, others):
    curves = dict.fromkeys(WRITERS, others) | {"flt": flt}
    return measured("femnist", "mlp", table="T3", curves=curves)


def raced(flt, ifca):
    curves = {"flt": flt, "ifca": ifca}
    return measured("femnist", "leaf_cnn", table="T3", curves=curves)


def four(*values, model="mlp", table="T4", measure="accuracy"):
    """Scenario 4: FLT, FedAvg, PCA+kM+HC, FedSEM."""
    numbers = {measure: dict(zip(FOUR, values, strict=True))}
    return measured("structured_noniid_femnist", model, table=table, **numbers)


def four_curves(flt, others, train=None):
    curves = dict.fromkeys(FOUR, others) | {"flt": flt}
    more = {"train": train} if train else {}
    return measured("structured", "mlp", table="T4", curves=curves, **more)


def splits(train, test):
    """Accuracies of scenario 4 in the last round, on both splits."""
    curves = {name: [value] for name, value in zip(FOUR, test, strict=True)}
    trained = {name: [value] for name, value in zip(FOUR, train, strict=True)}
    return measured("structured", "mlp", table="T10", curves=curves, train=trained)


def few_clients(flt, others, clusters=10):
    """ARI of Figure 6, with 240 clients."""
    t = measured(
        "structured",
        table="T4",
        ari={"flt": flt, "fedsem": others, "pca_km_hc": others},
        n_clusters={"flt": clusters, "fedsem": 10, "pca_km_hc": 10},
    )
    return switched(t, n_clients=240)


def switched(t, **axes):
    """The same numbers with values on axes."""
    t.results.runs = t.results.runs.assign(**axes)
    t.results.axes = (*t.results.axes, *axes)
    return Numbers(t.results, t.dataset, t.model, t.variant, t.table)


def formed(*wrong):
    """FedSEM with so many of 40 clients in the wrong cluster, by round."""
    truth = np.repeat([0, 1], 20)
    labels = {}
    for round, number in enumerate(wrong, start=1):
        labels[f"labels_at/{round}"] = np.where(np.arange(40) < number, 1, truth)
    t = switched(measured("structured", table="T4", ari={"fedsem": 1.0}), n_clients=240)
    rows = {"key": "fedsem-0", "client": np.arange(40), "true_cluster": truth}
    t.results.clients = pd.DataFrame(rows)
    t.results.kept = {"fedsem-0": labels}
    return t


def cuts(*found):
    rows = [
        {"variant": "as_written", "cut": "largest gap", "n_clusters": n, "ari": ari}
        for n, ari in found
    ]
    return measured("structured", table="T4", studies=[{"tables": {"cuts": rows}}])


def graph(inside, across, last_gap=True):
    """A clustering of eight clients in two halves; where its dendrogram has a gap."""
    same = np.equal.outer(*[np.repeat([0, 1], 4)] * 2)
    linked = np.where(same, inside, across).astype(bool)
    heights = [1, 1, 1, 1, 1, 1, 9] if last_gap else [1, 1, 1, 1, 1, 9, 10]
    left = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11), (12, 13)]
    sizes = [2, 2, 2, 2, 4, 4, 8]
    tree = [(*a, h, n) for a, h, n in zip(left, heights, sizes, strict=True)]
    kept = {"adjacency": linked, "linkage": np.array(tree, dtype=float)}
    own = [{"method": "flt", "arrays": kept}]
    return measured("femnist", table="T3", clusterings=own)


def ablation(gain, *, clients=0.0, epochs=10.0, rounds=5.0, clusters=1.0):
    """Table 5: FLT is ``gain`` above FedSEM; what each factor adds."""
    runs, curves = [], []
    lines = product(("flt_enc1", "flt_enc2", "fedsem"), (100, 500), (0.2, 0.5), (1, 5))
    for method, n_clients, participation, local_epochs in lines:
        key = f"{method}-{n_clients}-{participation}-{local_epochs}"
        row = {"kind": "training", "dataset": "cifar10", "variant": "as_written"}
        row |= {"n_clients": n_clients, "participation": participation, "key": key}
        row |= {"method": method, "local_epochs": local_epochs, "ari": clusters}
        runs.append(row)
        value = 50 + gain * (method != "fedsem") + clients * (n_clients == 500)
        value += epochs * (local_epochs == 5) + rounds * (participation == 0.5)
        for round in (50, 100):
            point = {"key": key, "round": round, "split": "test"}
            curves.append(point | {"accuracy": value + rounds * (round == 100)})
        row["accuracy"] = value
    t = measured("cifar10", table="T5", accuracy={"x": 1})
    t.results.runs = pd.DataFrame(runs).assign(seed=0, model="lenet")
    t.results.curves = pd.DataFrame(curves)
    t.results.axes = ("n_clients", "participation", "local_epochs")
    return Numbers(t.results, "cifar10", "", "as_written", "T5")


def studied(**tables):
    """Studies of notebook 06: name -> rows of its table."""
    own = [{"study": name, "tables": {"table": rows}} for name, rows in tables.items()]
    return measured("mnist", studies=own)


def weighed(*factors):
    """Traffic of FLT, FedSEM and IFCA as a multiple of the formulas."""
    formulas = {"flt_enc1": 120, "fedsem": 100, "ifca": 300}
    rows = [
        {"method": method, "warmup": 0, "weighed_formula": cost, "total": 1e5}
        | {"weighed_moved": cost * factor, "once": 100 * factor}
        for (method, cost), factor in zip(formulas.items(), factors, strict=True)
    ]
    return studied(traffic=rows)


def by_samples(**aris):
    rows = [
        {"samples": int(name[1:]), "ari": ari, "seed": seed}
        for name, each in aris.items()
        for seed, ari in enumerate(each)
    ]
    return measured("mnist", clusterings=rows)


def theorem2(gap, built="yes"):
    gaps = [{"T": 1, "gap": 1.0, "printed": 0.0}, {"T": 9, "gap": gap, "printed": 1.0}]
    lines = [
        {"line": "28", "says": "the same, T = 200", "holds": built},
        {"line": "21, linked clusters", "says": "holds for any A", "holds": built},
    ]
    return studied(gap=gaps, lines=lines)


def steps(factor):
    return studied(steps=[{"eta L": 0.5, "limit": 1.0, "printed factor": factor}])


def epochs(*shares):
    rows = [{"E": E, "38 holds": share} for E, share in enumerate(shares, start=1)]
    return studied(epochs=rows)


def joined(*gaps):
    """Newcomers under the nearest cluster, so far below the oracle, in both events."""
    runs, curves = [], []
    events = ("join and drift", "a new kind joins")
    for (event, gap), method in product(
        zip(events, gaps, strict=True), ("oracle", "flt_nearest")
    ):
        key = f"{event}-{method}"
        row = {"kind": "training", "dataset": "mnist", "variant": "as_written"}
        runs.append(row | {"method": method, "event": event, "key": key, "seed": 0})
        point = {"key": key, "method": method, "seed": 0, "split": "test", "round": 22}
        accuracy = 90 - gap * (method == "flt_nearest")
        curves.append(point | {"accuracy_joined": accuracy})
    t = measured("mnist", accuracy={"x": 1})
    t.results.runs = pd.DataFrame(runs).assign(model="mlp")
    t.results.curves = pd.DataFrame(curves)
    t.results.axes = ("event",)
    return Numbers(t.results, "mnist", "", "as_written")


def toy(ari, clusters):
    return measured("digits", ari={"flt": ari}, n_clusters={"flt": clusters})


CASES = {
    "flt-fig2": (toy(1.0, 5), toy(0.8, 5)),
    "flt-fig3": (graph(1, 1), graph(1, 1, last_gap=False)),
    "flt-t1-1": (encoders([90, 80], [90.5, 79.5]), encoders([90, 80], [88, 82])),
    "flt-t1-2": (one(87, 33, 80, 80, 78), one(87, 60, 80, 80, 78)),
    "flt-t1-3": (both_scenarios(7, 9), both_scenarios(9, 7)),
    "flt-t1-4": (one(87, 33, 80, 80, 87.05), one(87, 33, 80, 80, 88)),
    "flt-t1-5": (one(87, 33, 80, 80, 79), one(87, 33, 80, 80, 85)),
    "flt-text-headline": (one(87, 33, 80, 80, 79), one(87, 33, 80, 80, 85)),
    "flt-text-local": (one(87, 33, 80, 80, 78), one(80, 33, 80, 80, 78)),
    "flt-text-variance": (spread(10, 20, 30, 40, 50), spread(10, 20, 30, 40, 5)),
    "flt-fig8-1": (led([50, 60], [40, 50]), led([50, 60], [40, 61])),
    "flt-fig8-2": (drawn([50, 60], [50.5, 60]), drawn([50, 60], [50, 63])),
    "flt-t3-1": (writers(74, 73, 72, 61, 65, 72), writers(74, 75, 72, 61, 65, 72)),
    "flt-t3-2": (forced(74, 73, 72, 71, 70), forced(74, 73, 75, 71, 70)),
    "flt-fig12": (forced(74, 73, 72, 71, 70), forced(74, 73, 72, 71, 72)),
    "flt-text-clustered": (
        writers(74, 80, 72, 61, 65, 72),
        writers(74, 73, 72, 61, 73, 72),
    ),
    "flt-text-scenario3": (
        writers(74, 73, 72, 62, 65, 72.5),
        writers(74, 73, 72, 70, 65, 72.5),
    ),
    "flt-fig4-1": (
        rising([50] * 10 + [60] * 10, [40] * 10 + [60] * 10),
        rising([50] * 10 + [60] * 10, [55] * 10 + [50] * 10),
    ),
    "flt-fig4-2": (raced([70, 80], [10] * 19 + [80]), raced([70, 80], [10, 10, 80])),
    "flt-fig10-1": (
        splits([90, 50, 60, 70], [85, 45, 55, 65]),
        splits([90, 50, 60, 70], [85, 60, 55, 50]),
    ),
    "flt-fig10-2": (
        splits([90, 50, 60, 70], [85, 45, 55, 65]),
        splits([90, 50, 60, 70], [95, 51, 65, 75]),
    ),
    "flt-t4-1": (four(90, 50, 40, 60), four(70, 50, 40, 60)),
    "flt-text-scenario4": (four(90, 50, 40, 50), four(90, 50, 40, 70)),
    "flt-fig5-1": (
        four_curves([90] * 100, [50] * 100),
        four_curves(list(range(100)), [50] * 100),
    ),
    "flt-text-round20": (
        four_curves([90] * 100, [50] * 100),
        four_curves([90] * 100, [85] * 100),
    ),
    "flt-fig5-2": (four(90, 50, 40, 52), four(90, 50, 40, 60)),
    "flt-fig5-3": (
        four(90, 50, 40, 60, model="leaf_cnn"),
        four(90, 50, 40, 95, model="leaf_cnn"),
    ),
    "flt-fig6": (few_clients(0.95, 0.3), few_clients(0.95, 0.95)),
    "flt-fig7": (
        formed(*[2] * 15, *[3] * 15),
        formed(*[5] * 15, *[0] * 15),
    ),
    "flt-text-10clusters": (cuts((10, 1.0), (10, 0.99)), cuts((7, 0.7), (11, 0.9))),
    "flt-t5-1": (ablation(5), ablation(-1)),
    "flt-text-2to8": (ablation(5), ablation(12)),
    "flt-t5-2": (ablation(5, clients=1), ablation(5, clients=9)),
    "flt-t5-3": (ablation(5, epochs=9), ablation(5, epochs=-1)),
    "flt-t5-4": (ablation(5, rounds=2), ablation(5, rounds=-2)),
    "flt-t6-1": (weighed(1, 1, 1), weighed(1, 1.1, 1)),
    "flt-t6-3": (weighed(1, 1, 1), weighed(1, 1, 2)),
    "flt-thm1-samples": (
        by_samples(n6=[0.4, 0.9], n10=[1, 1], n20=[1, 1]),
        by_samples(n6=[0.4, 0.9], n10=[1, 1], n20=[1, 0.9]),
    ),
    "flt-thm2-step": (steps(0.2), steps(-0.2)),
    "flt-thm2-epochs": (epochs(1, 1), epochs(1, 0.5)),
    "flt-text-excluded": (joined(0.5, 0.9), joined(4, 18)),
}
COMPUTED = {"flt-text-smallest", "flt-t11", "flt-thm1", "flt-thm2", "flt-t6-2"}
"""Claims of which a rule, or a part, is tested below."""


def test_every_claim_of_flt_is_tested_here():
    own = {name for name in CLAIMS if name.startswith("flt-")}
    assert own == set(CASES) | COMPUTED


@pytest.mark.parametrize("name", CASES)
def test_a_claim_holds_for_one_result_and_fails_for_another(name):
    holds, fails = CASES[name]
    assert CLAIMS[name](holds).outcome == "agrees"
    assert CLAIMS[name](fails).outcome == "disagrees"


def test_computed_claims_can_hold_and_fail():
    assert about_twenty({"one": 20, "other": 22}).outcome == "agrees"
    assert about_twenty({"one": 11, "other": 26}).outcome == "partly"  # C10: too small
    assert about_twenty({"one": 40}).outcome == "partly"

    assert bounded({0: (0.5, 0.6), 1: (0.1, 1.0)}).outcome == "agrees"
    assert bounded({0: (0.5, 0.6), 1: (1.0, 0.1)}).outcome == "disagrees"

    sizes = {"MLP": 169_462, "CNN": 3_459_582, "ConvAE": 51_577}
    assert same_sizes(sizes).outcome == "agrees"
    assert same_sizes(sizes | {"CNN": 1}).outcome == "partly"
    assert same_sizes(dict.fromkeys(sizes, 1)).outcome == "disagrees"


def test_ifca_may_come_out_ahead_in_the_rounds_that_only_it_has():
    values = (74, 73, 72, 76, 65, 72)
    curves = {name: [value] for name, value in zip(WRITERS, values, strict=True)}
    t = writers(*values, curves=curves | {"ifca": [61, 76]})
    finding = CLAIMS["flt-t3-1"](t)
    assert finding.outcome == "disagrees"
    assert finding.text == "-2.00; +1.00 after FLT's rounds"
    assert CLAIMS["flt-text-clustered"](t).outcome == "disagrees"


def test_training_may_be_above_test_for_some_methods_only():
    finding = CLAIMS["flt-fig10-2"](splits([90, 50, 60, 70], [85, 51, 55, 65]))
    assert finding.outcome == "partly"
    assert finding.text == "3 of 4 methods, least -1.00"


def test_more_rounds_have_to_help_with_five_local_epochs_as_well():
    t = ablation(5, rounds=5)
    late = t.results.curves["round"] == 100
    with_five = t.results.curves["key"].str.endswith("-0.5-5")
    t.results.curves.loc[late & with_five, "accuracy"] -= 5.5
    assert CLAIMS["flt-t5-4"](t).outcome == "agrees"  # half a point is lost
    t.results.curves.loc[late & with_five, "accuracy"] -= 2
    assert CLAIMS["flt-t5-4"](t).outcome == "disagrees"


def test_theorem_2_is_not_tested_without_the_cases_built_against_it():
    t = studied(
        gap=[{"T": 9, "gap": 0.5, "printed": 1.0}],
        lines=[
            {"line": "28", "says": "the same, T = 300", "holds": "no"},
        ],
    )
    assert CLAIMS["flt-thm2"](t).why == "a case that was built against it is missing"


def test_theorem_2_holds_in_part_if_a_case_was_built_against_it():
    assert CLAIMS["flt-thm2"](theorem2(0.5)).outcome == "agrees"
    assert CLAIMS["flt-thm2"](theorem2(0.5, built="no")).outcome == "partly"
    assert CLAIMS["flt-thm2"](theorem2(2.0, built="no")).outcome == "disagrees"


def test_once_is_measured_where_a_run_was_weighed():
    claim = CLAIMS["flt-t6-2"]
    assert claim(weighed(1, 1, 1)).outcome == "agrees"
    assert claim(weighed(100, 1, 1)).outcome == "partly"


def test_rules_that_differ_by_scenario():
    def two(dataset, fedsem):
        accuracy = dict.fromkeys(FIVE, 50) | {"flt_enc1": 90, "fedsem": fedsem}
        return measured(dataset, table="T2", accuracy=accuracy)

    lead = CLAIMS["flt-t1-5"]
    assert lead(two("mnist", 87)).outcome == "agrees"
    assert lead(two("mnist", 85)).outcome == "disagrees"
    assert lead(two("cifar10", 83.4)).outcome == "agrees"
    assert CLAIMS["flt-text-headline"](two("mnist", 87)).outcome == "agrees"
    assert CLAIMS["flt-text-headline"](two("mnist", 89)).outcome == "disagrees"
    assert CLAIMS["flt-t1-4"](two("mnist", 90.05)).outcome == "disagrees"

    variance = CLAIMS["flt-text-variance"]
    assert variance(four(1, 2, 3, 0, measure="variance")).outcome == "agrees"
    assert variance(four(4, 2, 5, 0, measure="variance")).outcome == "disagrees"


def test_pairs_whose_clusters_differ_only_speak_against():
    t = ablation(5, epochs=9)
    changed = "flt_enc1-100-0.2-5"
    t.results.runs.loc[t.results.runs["key"] == changed, "ari"] = 0.5
    again = Numbers(t.results, "cifar10", "", "as_written", "T5")
    assert CLAIMS["flt-t5-3"](again).outcome == "agrees"

    worse = t.results.curves["key"] == changed
    t.results.curves.loc[worse, "accuracy"] -= 60
    assert CLAIMS["flt-t5-3"](again).outcome == "partly"


def test_figure_8_needs_the_curves_of_both_encoders():
    curves = {name: [40, 50] for name in FIVE[1:]}
    curves["flt_enc1"] = [50, 60]
    one = measured("cifar10", table="T1", curves=curves)
    assert CLAIMS["flt-fig8-1"](one).outcome == "not tested"


def test_figure_3_is_judged_in_every_seed():
    t = graph(1, 1)
    first = t.results.runs
    second = first.assign(seed=1, key="other")
    t.results.runs = pd.concat([first, second])
    t.results.kept["other"] = graph(1, 1, last_gap=False).arrays("clustering-0")
    again = Numbers(t.results, "femnist", "", "as_written", "T3")
    finding = CLAIMS["flt-fig3"](again)
    assert finding.outcome == "partly"
    assert finding.text.startswith("2, 3 groups")


def test_figure_7_is_the_mean_over_seeds():
    t = formed(*[2] * 15, *[3] * 15)  # agrees
    other = formed(*[5] * 15, *[0] * 15)  # disagrees
    first = t.results
    for name in ("runs", "clients"):
        second = getattr(other.results, name).assign(key="fedsem-1")
        if name == "runs":
            second["seed"] = 1
        setattr(first, name, pd.concat([getattr(first, name), second]))
    first.kept["fedsem-1"] = other.results.kept["fedsem-0"]
    again = Numbers(first, "structured", "", "as_written", "T4")
    assert CLAIMS["flt-fig7"](again).outcome == "disagrees"


def with_batchnorm(t, values, curves=()):
    """The same numbers, with runs of Enc1 that embed in training mode."""
    other = measured("cifar10", table="T2", accuracy={"flt_enc1": values})
    runs = other.results.runs.assign(batch_norm="image")
    runs["key"] = "image-" + runs["key"]
    t.results.runs = pd.concat([t.results.runs, runs]).fillna({"batch_norm": ""})
    points = [
        {"key": "image-flt_enc1-0", "method": "flt_enc1", "seed": 0, "split": "test"}
        | {"round": round, "accuracy": value}
        for round, value in enumerate(curves, start=1)
    ]
    t.results.curves = pd.concat([t.results.curves, pd.DataFrame(points)])
    t.results.axes = ("batch_norm",)
    return Numbers(t.results, "cifar10", "", "as_written", "T2")


def test_flt_leads_in_part_if_it_does_so_with_the_codes_batchnorm_only():
    def found(values):
        accuracy = dict.fromkeys(FIVE, 70) | {"flt_enc1": 69}
        t = measured("cifar10", table="T2", accuracy=accuracy)
        return CLAIMS["flt-t1-4"](with_batchnorm(t, values))

    assert found([75]).outcome == "partly"
    assert found([75]).text == "-1.00; with the code's BatchNorm +5.00"
    assert found([60]).outcome == "disagrees"

    def led_throughout(curve):
        t = led([45, 49], [40, 50])
        return CLAIMS["flt-fig8-1"](with_batchnorm(t, [70], curve))

    finding = led_throughout([50, 60])
    assert finding.outcome == "disagrees"  # Enc2 does not lead
    t = led([45, 49], [40, 50])
    points = t.results.curves
    points.loc[points["method"] == "flt_enc2", "accuracy"] += 10
    finding = CLAIMS["flt-fig8-1"](with_batchnorm(t, [70], [50, 60]))
    assert finding.outcome == "partly"
    assert finding.text == "-1.0; with the code's BatchNorm +9.0"


def test_copies_must_not_be_why_local_scores_better_in_scenario_1():
    def numbers(table, accuracy, originals, beside=None):
        both = {"oracle": 99, "local": accuracy}
        first = {"oracle": 99, "local": originals}
        own = {"accuracy": both, "first_clients_accuracy": first}
        return measured("mnist", "", "as_run", table, beside, **own)

    def outcome(originals):
        one = numbers("T1", 97, originals)
        two = numbers("T2", 96, 95.5, {"01": one.results})
        return CLAIMS["flt-t1-3"](two)

    assert outcome(97).outcome == "agrees"
    assert outcome(97).text == "97.0 → 96.0, behind by 2.0 → 3.0"
    assert outcome(95).outcome == "partly"


def test_print_has_not_the_least_variance_everywhere():
    def outcome(name, table, dataset, model=""):
        claim = CLAIMS[name]
        assert claim.speaks_of(table, dataset, model)
        t = Numbers(Print("flt", table), dataset, model, table=table)
        return claim(t).outcome

    variance = "flt-text-variance"
    assert outcome(variance, "T1", "cifar10") == "agrees"
    assert outcome(variance, "T1", "mnist") == "disagrees"
    assert outcome(variance, "T2", "mnist") == "agrees"
    assert outcome(variance, "T2", "cifar10") == "disagrees"
    assert outcome(variance, "T3", "femnist", "mlp") == "agrees"
    assert outcome(variance, "T3", "femnist", "cnn") == "disagrees"


def test_print_passes_the_same_rules():
    ids = ("flt-t1-1", "flt-t1-2", "flt-t1-4", "flt-t1-5", "flt-text-headline")
    for name in ids:
        assert CLAIMS[name](Numbers(Print("flt", "T1"), "cifar10", table="T1")).holds
    t = Numbers(Print("flt", "T5"), "cifar10", table="T5")
    assert CLAIMS["flt-t5-1"](t).outcome == "agrees"
    assert CLAIMS["flt-text-2to8"](t).outcome == "disagrees"  # 0.2 to 9.0 in print
    assert CLAIMS["flt-t5-4"](t).text == "41 of 48 pairs, least -0.4"
    t = Numbers(Print("flt", "T9"), "femnist", "mlp", table="T9")
    assert CLAIMS["flt-fig10-1"](t).outcome == "disagrees"  # nor are Figure 10's orders
