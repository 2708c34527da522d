"""Every claim of EMD-CFL holds for one result and fails for another."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from toys import measured

from fltnb.papers.verdicts import CLAIMS, Numbers, Print
from fltnb.papers.verdicts.emdcfl import HARD, SOFT, UNCLUSTERED

ABLE = ("emdcfl", "pacfl", "fedclust", "flexcfl", "cflgp")


def found(right, others=0.0, *, names=HARD, dataset="rotated_mnist", table="T1"):
    """ARIs: 1 for the methods that are right."""
    ari = {name: 1.0 if name in right else others for name in names}
    return measured(dataset, table=table, ari=ari)


def rows(dataset="rotated_mnist", table="T1", variant="as_written", **accuracies):
    """The same number on average and at the worst client."""
    numbers = {"accuracy": accuracies, "worst": accuracies}
    return measured(dataset, table=table, variant=variant, **numbers)


def soft(emdcfl, others, dataset="rotated_mnist", table="T1"):
    return rows(dataset, table, emdcfl=emdcfl, **dict.fromkeys(SOFT, others))


def unequal(average, worst):
    """EMD-CFL's leads over all methods with soft clusters."""
    names = ("emdcfl", *SOFT)
    return measured(
        "rotated_mnist",
        table="T1",
        accuracy=dict.fromkeys(names, 95 - average) | {"emdcfl": 95},
        worst=dict.fromkeys(names, 90 - worst) | {"emdcfl": 90},
    )


def late(first, last, own=0):
    """How far all are behind the oracle in the first round, and others in the last."""
    curves = {"oracle": [90, 95]}
    curves |= {name: [90 - own, 95] for name in ("emdcfl", "pacfl")}
    for name in set(HARD) - {"emdcfl", "pacfl"}:
        curves[name] = [90 - first, 95 - last]
    t = measured("rotated_mnist", table="T1", curves=curves)
    ends = t.results.runs["method"].map({name: end[-1] for name, end in curves.items()})
    t.results.runs["accuracy"] = ends
    return Numbers(t.results, "rotated_mnist", "", "as_written", "T1")


def beside(ari, worst, average):
    """PACFL's ARI, and how far it is from EMD-CFL."""
    return measured(
        "rotated_cifar10",
        table="T1",
        ari={"pacfl": ari, "emdcfl": 1.0},
        worst={"pacfl": 90 + worst, "emdcfl": 90},
        accuracy={"pacfl": 90 + average, "emdcfl": 90},
    )


def some_took_part(behind, shares=(0.25, 0.5, 0.75)):
    """Shares of forty clients in each of two rounds."""
    runs, clients = [], []
    for method, share in product(("emdcfl", "oracle"), shares):
        accuracy = 90 - behind * (method == "emdcfl")
        key = f"{method}-{share}"
        row = {"kind": "training", "method": method, "key": key, "seed": 0}
        runs.append(row | {"participation": share, "dataset": "rotated_mnist"})
        for client in range(40):
            clients.append({"key": key, "client": client, "test": accuracy})
    t = measured("rotated_mnist", accuracy={"x": 1})
    t.results.runs = pd.DataFrame(runs).assign(model="", variant="as_written")
    t.results.clients = pd.DataFrame(clients)
    t.results.axes = ("participation",)
    t.results.record = lambda key: {"settings": {"rounds": 2}, "provenance": {}}
    return Numbers(t.results, "rotated_mnist", "", "as_written", "T6")


def split(ifca, fesem, dataset="rotated_mnist_min", table="T10"):
    return measured(dataset, table=table, ari={"ifca": ifca, "fesem": fesem})


def costs(points):
    names = ("flexcfl", "fesem", "cflgp", "ifca", "cfl")
    accuracy = dict.fromkeys(names, 90 - points) | {"emdcfl": 90}
    ari = dict.fromkeys(names, 0.0) | {"emdcfl": 1.0}
    return measured("rotated_mnist_min", table="T10", accuracy=accuracy, ari=ari)


def mixed(ari, worst):
    numbers = {"ari": {"pacfl": ari}, "worst": {"pacfl": worst, "oracle": 80}}
    return measured("pacs", table="T7", **numbers)


def ends(clean, ari=1.0):
    """FlexCFL's targets and ARI, by seed, beside the oracle's."""
    return measured(
        "backdoor_mnist",
        table="T8",
        variant="as_run",
        clean_accuracy={"flexcfl": clean, "oracle": [98, 98]},
        ari={"flexcfl": ari, "oracle": 1.0},
    )


def targets(*, variant="as_written", dataset="backdoor_mnist", **clean_and_trigger):
    """Targets' accuracies, clean and under the trigger, by method."""
    pairs = clean_and_trigger.items()
    return measured(
        dataset,
        table="T8",
        variant=variant,
        clean_accuracy={name: pair[0] for name, pair in pairs},
        backdoor_accuracy={name: pair[1] for name, pair in pairs},
    )


def others(pair, **single):
    names = (*SOFT, *UNCLUSTERED, "fedprox")
    about = dict.fromkeys(names, pair) | {"emdcfl": (98, 97)} | single
    return targets(dataset="backdoor_cifar10", **about)


def matrix(inside=1.0, across=2.0, told=1.0, **more):
    """A matrix of distances: the farthest pair inside, the nearest across."""
    row = {"kind": "distances", "measure": "emd", "part": "projection", "kept": 0.9}
    row |= {"transport": "exact", "low": inside, "high": across, "ari_told": told}
    row |= {"inside_max": inside, "across_min": across, "key": str(more), "seed": 0}
    return row | more


def matrices(*found, dataset="rotated_mnist", arrays=None):
    t = measured(dataset, accuracy={"x": 1})
    about = {"dataset": dataset, "variant": "", "method": "", "model": ""}
    t.results.runs = pd.DataFrame([about | one for one in found])
    t.results.axes = ("part", "measure", "kept", "transport")
    t.results.kept = arrays or {}
    return Numbers(t.results, dataset, "", "as_written", "T9")


def by_measure(name, apart):
    across = 2.0 if apart else 0.5
    one = matrix(across=across, told=float(apart), measure=name, part="measures")
    return matrices(one, dataset="backdoor_mnist")


def by_network(*ends):
    every = [
        matrix(low, high, told, part="network", model=f"net{number}")
        for number, (low, high, told) in enumerate(ends)
    ]
    return matrices(*every)


def blocks(near, upright=2.0):
    """Distances between two clients of each of two clusters."""
    clusters = np.array([0, 0, 1, 1])
    distance = np.where(np.equal.outer(clusters, clusters), near, 1.0)
    distance[:2, 2:] = upright
    kept = {"distance": distance, "clusters": clusters}
    one = matrix(part="network", model="net", key="one")
    return matrices(one, dataset="pacs", arrays={"one": kept})


def two_seeds(*each):
    """Distances between clients that were measured with several seeds."""
    made = [t.results for t in each]
    runs = [one.runs.assign(key=f"{seed}", seed=seed) for seed, one in enumerate(made)]
    both = made[0]
    both.runs = pd.concat(runs)
    both.kept = {f"{seed}": one.kept["one"] for seed, one in enumerate(made)}
    return Numbers(both, "pacs", "", "as_written", "T7")


def nearer(ratio, name="full_model"):
    rows = [
        {"parameters": name, "scope": "clusters", "value": ratio},
        {"parameters": name, "scope": "overall", "value": 1.0},
    ]
    study = {"table": "T9", "tables": {"printed": rows}}
    return measured("rotated_cifar10", table="T9", studies=[study])


def widths(wrong=0):
    printed = {"simple_cnn": 128, "resnet18": 512, "resnet50": 2048}
    printed |= {"efficientnet_b3": 1536, "vit_b_16": 768, "convnext_base": 1024}
    return printed, wrong


PART = {"names": ABLE, "dataset": "rotated_mnist"}
PACS = {"dataset": "pacs", "table": "T7"}
FAR = {"dataset": "rotated_cifar10"}
DOOR = {"dataset": "backdoor_mnist", "table": "T8"}
FOUR = ("emdcfl", "fedclust", "flexcfl", "cflgp")
HALF = matrices(matrix(1.0, 0.5))
SINKHORN = {"transport": "sinkhorn", "part": "sinkhorn"}
CASES = {
    "emdcfl-t1-1": (found(ABLE), found(())),
    "emdcfl-t1-2": (late(5, 1), late(-1, 0, own=3)),
    "emdcfl-t1-3": (rows(emdcfl=95, oracle=95), rows(emdcfl=94, oracle=95)),
    "emdcfl-t1-4": (unequal(0.5, 2), unequal(-1, -2)),
    "emdcfl-t1-5": (found(("emdcfl",), **FAR), found(("pacfl",), **FAR)),
    "emdcfl-t1-6": (beside(0.9, -12, -0.5), beside(1.0, 0, 5)),
    "emdcfl-t1-7": (found(("emdcfl",), **FAR), found(ABLE, **FAR)),
    "emdcfl-text-best": (
        found(("emdcfl", "pacfl"), **FAR),
        found(("pacfl",), **FAR),
    ),
    "emdcfl-t6-1": (some_took_part(0.1), some_took_part(2.0)),
    "emdcfl-t10-1": (found(("emdcfl",)), found(())),
    "emdcfl-t11-1": (found(("emdcfl",)), found(())),
    "emdcfl-t11-2": (found(("emdcfl",)), found(("emdcfl", "ifca"))),
    "emdcfl-t10-2": (split(0.0, 0.0), split(1.0, 1.0)),
    "emdcfl-t11-3": (split(1.0, 1.0), split(0.0, 0.0)),
    "emdcfl-t10-3": (costs(1), costs(3)),
    "emdcfl-t2-1": (found(FOUR, **PACS), found((), **PACS)),
    "emdcfl-t2-2": (rows(emdcfl=90, oracle=90), rows(emdcfl=80, oracle=90)),
    "emdcfl-t2-3": (mixed(0.7, 40), mixed(1.0, 80)),
    "emdcfl-t2-4": (found(("emdcfl",), **PACS), found(("fesem",), **PACS)),
    "emdcfl-t7-1": (soft(95, 90), soft(90, 95)),
    "emdcfl-fig2-1": (blocks(0.1), blocks(1.5, upright=1.0)),
    "emdcfl-fig2-2": (blocks(0.1, upright=0.5), blocks(0.1, upright=2.0)),
    "emdcfl-t3-1": (
        found(("emdcfl", "flexcfl", "cflgp"), **DOOR),
        found(("cfl", "pacfl", "fedclust", "ifca", "fesem"), **DOOR),
    ),
    "emdcfl-t3-2": (ends([40, 60], [1.0, 1.0]), ends([97, 96], [1.0, 1.0])),
    "emdcfl-t3-3": (found(("emdcfl",), **DOOR), found(("fesem",), **DOOR)),
    "emdcfl-t3-4": (
        targets(emdcfl=(98, 98), oracle=(98, 98)),
        targets(emdcfl=(98, 90), oracle=(98, 98)),
    ),
    "emdcfl-t3-5": (
        targets(emdcfl=(98, 98), oracle=(98, 98)),
        targets(emdcfl=(98, 90), oracle=(98, 98)),
    ),
    "emdcfl-t8-1": (others((90, 60), fedprox=(90, 85)), others((90, 88))),
    "emdcfl-t8-2": (others((98, 96)), others((98, 98))),
    "emdcfl-fig8-1": (matrices(matrix(1, 3)), matrices(matrix(3, 1))),
    "emdcfl-fig8-2": (matrices(matrix(kept=0.1)), matrices(matrix(3, 1, kept=0.1))),
    "emdcfl-fig9": (
        matrices(matrix(1, 3, **SINKHORN)),
        matrices(matrix(1, 1.5, **SINKHORN)),
    ),
    "emdcfl-fig12": (matrices(matrix(kept=0.5)), matrices(matrix(3, 1, kept=0.5))),
    "emdcfl-fig13": (
        matrices(matrix(), matrix(**SINKHORN)),
        matrices(matrix(3, 1), matrix(3, 1, **SINKHORN)),
    ),
    "emdcfl-fig10-1": (by_network((1, 2, 1), (3, 4, 1)), by_network((2, 1, 1))),
    "emdcfl-fig10-2": (
        by_network((1, 2, 1), (3, 4, 1)),
        by_network((1, 4, 1), (2, 5, 1)),
    ),
    "emdcfl-fig11-1": (by_network((1, 2, 1)), by_network((1, 2, 0.4))),
    "emdcfl-fig11-2": (blocks(0.1, upright=2.0), blocks(0.1, upright=0.5)),
    "emdcfl-fig14": (by_measure("parameters", False), by_measure("parameters", True)),
    "emdcfl-fig15": (by_measure("updates", False), by_measure("updates", True)),
    "emdcfl-fig16": (by_measure("angles", False), by_measure("angles", True)),
    "emdcfl-fig17": (by_measure("emd", True), by_measure("emd", False)),
    "emdcfl-t4": (
        measured("rotated_mnist", seconds={"emdcfl": [11, 11], "oracle": [10, 10]}),
        measured("rotated_mnist", seconds={"emdcfl": [15, 15], "oracle": [10, 10]}),
    ),
    "emdcfl-t9-1": (nearer(0.8), nearer(1.1)),
    "emdcfl-t9-2": (nearer(0.98), nearer(0.8)),
}
ELSEWHERE = {f"emdcfl-thm2-{number}" for number in range(1, 6)} | {"emdcfl-text-jl"}


def test_every_claim_of_emdcfl_is_tested():
    own = {name for name in CLAIMS if name.startswith("emdcfl-")}
    assert own == set(CASES) | ELSEWHERE | {"emdcfl-t5"}


@pytest.mark.parametrize("name", CASES)
def test_a_claim_holds_for_one_result_and_fails_for_another(name):
    holds, fails = CASES[name]
    assert CLAIMS[name](holds).outcome == "agrees"
    assert CLAIMS[name](fails).outcome == "disagrees"


def test_table_5_lists_dimensions():
    printed = Print("emdcfl", "T5").runs
    sizes = printed.dropna(subset="embedding_dim").drop_duplicates("model")

    def built(off, number):
        rows = [
            {"model": row.model, "value": row.embedding_dim + off}
            for row in sizes.head(number).itertuples()
        ]
        study = {"table": "T5", "tables": {"printed": rows}}
        return CLAIMS["emdcfl-t5"](measured("", studies=[study])).outcome

    assert built(0, len(sizes)) == "agrees"
    assert built(1, len(sizes)) == "disagrees"
    assert built(0, 1) == "not tested"


def test_one_that_was_run_can_refute_but_not_all_of_them_confirm():
    claim = CLAIMS["emdcfl-t1-1"]
    some = measured("rotated_mnist", table="T1", ari={"emdcfl": 1.0, "pacfl": 1.0})
    assert claim(some).why == "2 of 5 methods were run"
    less = measured("rotated_mnist", table="T1", ari={"emdcfl": 1.0, "fedclust": 0.5})
    assert claim(less).outcome == "partly"


def test_half_a_point_is_as_safe_and_one_point_is_as_accurate():
    assert CLAIMS["emdcfl-t8-2"](others((98, 96.6))).outcome == "disagrees"
    near = rows("pacs", "T7", emdcfl=90.8, oracle=90)
    assert CLAIMS["emdcfl-t2-2"](near).outcome == "agrees"  # in print it is 0.55


def test_a_claim_is_not_confirmed_without_all_that_it_speaks_of():
    exact_alone = CLAIMS["emdcfl-fig13"](matrices(matrix()))
    assert exact_alone.why == "exact and Sinkhorn distances were not both computed"
    t = costs(1)
    runs = t.results.runs
    t.results.runs = runs[runs["method"] != "fesem"]
    some = Numbers(t.results, t.dataset, "", "as_written", "T10")
    assert CLAIMS["emdcfl-t10-3"](some).why == "not all methods were run"


def test_distances_that_find_the_clusters_told_k_show_them_on_cifar_as_well():
    one = matrix(across=0.5, told=1.0, measure="updates", part="measures")
    for dataset in ("rotated_cifar10", "backdoor_mnist"):
        t = matrices(one, dataset=dataset)
        assert CLAIMS["emdcfl-fig15"](t).outcome == "partly"


def test_where_the_code_has_no_form_of_its_own_the_text_stands_for_it():
    t = measured("rotated_mnist", table="T1", ari=dict.fromkeys(ABLE, 1.0))
    code = Numbers(t.results, "rotated_mnist", "", "as_run", "T1")
    assert CLAIMS["emdcfl-t1-1"](code).outcome == "agrees"


def test_print_passes_the_same_rules():
    def outcome(name, table, dataset):
        t = Numbers(Print("emdcfl", table), dataset, table=table)
        return CLAIMS[name](t).outcome

    for number in (1, 2, 3, 4):
        assert outcome(f"emdcfl-t1-{number}", "T1", "rotated_mnist") == "agrees"
    for number in (3, 5, 6, 7):
        assert outcome(f"emdcfl-t1-{number}", "T1", "rotated_cifar10") == "agrees"
    for dataset in ("rotated_mnist", "rotated_cifar10"):
        assert CLAIMS["emdcfl-t6-1"].speaks_of("T6", dataset, "")
        assert outcome("emdcfl-t6-1", "T6", dataset) == "agrees"
        assert outcome("emdcfl-text-best", "T1", dataset) == "agrees"
    assert outcome("emdcfl-t11-2", "T11", "rotated_cifar10_two") == "agrees"
    for dataset in ("rotated_mnist", "pacs", "backdoor_cifar10"):
        assert outcome("emdcfl-t9-1", "T9", dataset) == "agrees"
    assert outcome("emdcfl-t9-2", "T9", "rotated_cifar10") == "agrees"
    for name in ("t2-1", "t2-2", "t2-3", "t2-4", "t7-1"):
        assert outcome(f"emdcfl-{name}", "T7", "pacs") == "agrees"
    for name in ("t3-1", "t3-4", "t8-2"):
        assert outcome(f"emdcfl-{name}", "T8", "backdoor_mnist") == "agrees"
    for name in ("t3-3", "t3-5", "t8-1"):
        assert outcome(f"emdcfl-{name}", "T8", "backdoor_cifar10") == "agrees"


def test_a_lead_within_the_printed_spread_is_not_clear():
    assert CLAIMS["emdcfl-t1-4"](soft(95, 94.95)).outcome == "disagrees"
    assert CLAIMS["emdcfl-t1-4"](soft(95, 94.7)).outcome == "partly"  # worst: 0.52
    assert CLAIMS["emdcfl-t1-4"](unequal(2, 1)).outcome == "partly"  # not above all
    own = soft(95, 94.95, dataset="pacs", table="T7")
    assert CLAIMS["emdcfl-t7-1"](own).outcome == "agrees"


def test_flexcfl_ends_low_in_spite_of_the_right_clusters():
    claim = CLAIMS["emdcfl-t3-2"]
    only_wrong_ones_are_low = ends([97, 10], [1.0, 0.5])
    assert claim(only_wrong_ones_are_low).outcome == "disagrees"
    finding = claim(ends([50, 97], [1.0, 0.5]))
    assert finding.outcome == "agrees"
    assert finding.text == "-48.0; right clusters in 1 of 2 seeds"
    never = claim(ends([50, 50], [0.5, 0.5]))
    assert never.why == "FlexCFL never found the right clusters"


def test_partial_participation_needs_all_shares_of_the_clients():
    claim = CLAIMS["emdcfl-t6-1"]
    assert claim(some_took_part(0.1, [0.25])).why.startswith("1 of 3 shares")
    assert claim(some_took_part(2.0, [0.25])).outcome == "disagrees"


def test_the_best_clusters_need_all_methods():
    some = measured("rotated_mnist", table="T1", ari={"emdcfl": 1.0, "pacfl": 0.5})
    assert CLAIMS["emdcfl-text-best"](some).outcome == "not tested"
    some = measured("rotated_mnist", table="T1", ari={"emdcfl": 0.5, "pacfl": 1.0})
    assert CLAIMS["emdcfl-text-best"](some).outcome == "disagrees"


def test_figure_2_is_judged_over_all_seeds():
    t = two_seeds(blocks(0.1), blocks(1.5, upright=1.0))
    assert CLAIMS["emdcfl-fig2-1"](t).outcome == "disagrees"
    t = two_seeds(blocks(0.1, upright=0.5), blocks(0.1, upright=2.5))
    assert CLAIMS["emdcfl-fig2-2"](t).outcome == "disagrees"
