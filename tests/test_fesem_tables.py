"""Tables, clusters and verdicts of notebook 08, on numbers small enough to check by eye."""

import json
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from fltnb.experiments import fesem as plan

import fltnb as fl
from fltnb import paths, plots, published, report
from fltnb.analysis import fesem, fesem_choice, fesem_claims, fesem_clusters, fesem_report
from fltnb.analysis.fesem_clusters import Sent
from fltnb.errors import FltnbError
from fltnb.federations.pseudo_writers import STYLE
from fltnb.notebook import Claims
from fltnb.store import Spec

mpl.use("Agg")

METRICS = ("micro_accuracy", "micro_f1", "accuracy", "macro_f1", "pooled_f1")


def tidy_rows(method, values, *, dataset="pseudo-writers", variant="as_written", note="", seed=0):
    """Rows of one run; ``values`` in the order of METRICS, None: has none."""
    key = f"{dataset} {method} {variant} {note} {seed}"
    base = {"dataset": dataset, "model": "cnn_small", "method": method, "variant": variant, "note": note}
    base |= {"seed": seed, "key": key, "split": "test"}
    found = zip(METRICS, values, strict=False)
    return [base | {"metric": metric, "value": value} for metric, value in found if value is not None]


def printed_rows(table, dataset):
    """Rows as if the paper's own table had come out."""
    wide = published.numbers("fesem", table).pivot(index="method", columns="metric", values="number")
    order = ("micro_accuracy", "micro_f1", "macro_accuracy", "macro_f1")
    return [row for m in plan.METHODS for row in tidy_rows(m, [*wide.loc[m, list(order)], 50.0], dataset=dataset)]


def test_the_table_by_hand():
    rows = tidy_rows("fedavg", (80.0, 60.0, 81.0, 59.0, 40.0)) + tidy_rows(
        "fedavg", (84.0, 62.0, 83.0, 61.0, 44.0), seed=1
    )
    rows += tidy_rows("fesem_3", (70.0, 50.0, 71.0, 49.0, 30.0)) + tidy_rows(
        "fesem_3", (1.0,) * 5, note="no distance term"
    )
    rows += tidy_rows("fesem_3", (99.0, None, 98.0), variant="as_run") + tidy_rows("flt", (1.0,) * 5)
    part = fesem.parts(pd.DataFrame(rows))["pseudo-writers"]
    table = fesem.table(part).set_index("method")
    assert list(table.index[[0, 2, -1]]) == ["NoFed", "FedAvg", "FeSEM-MA(3)"] and len(table) == 14
    assert table.loc["FedAvg", "micro accuracy"] == "82.0 ± 2.8" and table.loc["FedAvg", "seeds"] == "2"
    assert table.loc["FedAvg", "micro accuracy, printed"] == "84.9 ± 2.0"
    assert table.loc["FeSEM(3)", "macro F1, printed"] == "41.7 ± 1.5" and table.loc["FeSEM(3)", "macro F1"] == "49.0"
    assert table.loc["FedProx", "pooled F1"] == "not run" and "pooled F1, printed" not in table
    assert list(fesem.in_order(part)["method"]) == ["fedavg", "fedavg", "fesem_3", "fesem_3"]  # described, published
    switched = fesem.switches(part).set_index("run")["micro accuracy"]
    assert switched.to_dict() == {"as described": 70.0, "no distance term": 1.0}


def test_federations_beside_no_table_have_nothing_printed():
    part = fesem.parts(pd.DataFrame(tidy_rows("fedavg", (80.0,), dataset="dirichlet")))["dirichlet"]
    table = fesem.table(part).set_index("method")
    assert not [name for name in table if "printed" in name]
    assert table.loc["FedAvg", "micro F1"] == "–" and table.loc["NoFed", "micro F1"] == "not run"


def test_both_ways_and_shuffle_by_hand():
    rows = tidy_rows("fesem_2", (60.0,)) + tidy_rows("fesem_2", (66.0,), variant="as_run")
    rows += tidy_rows("fesem_2", (55.0,), note=plan.SHUFFLED) + tidy_rows("fesem_2", (10.0,), seed=1)
    part = fesem.parts(pd.DataFrame(rows))["pseudo-writers"]
    tested = pd.DataFrame([{"method": "fesem_2", "seed": 0, "own": 62.0, "lowest": 50.0, "highest": 66.0}])
    assert fesem.both_ways(part, tested).iloc[0].tolist() == ["FeSEM(2)", 60.0, 66.0, 62.0, 50.0, 4.0]
    assert fesem.shuffled(part).iloc[0].tolist() == ["FeSEM(2)", 60.0, 55.0, -5.0]


def test_table_1_says_what_is_at_hand():
    specs = plan.specs("demo")
    table = fesem.statistics(specs).set_index("data")
    assert table.loc["femnist, printed"].tolist() == ["805,263", "3,550", "62", "cnn", "227", ""]
    assert table.loc["digits mixtures", ["samples", "clients", "classes"]].tolist() == ["1,797", "12", "10"]
    assert fesem.whole_sets(specs) == {}
    assert set(fesem.IN_PLACE_OF) == set(plan.DATASETS)


# --- clusters -------------------------------------------------------------------------------------------------------


def sent(points, labels):
    points = np.asarray(points, dtype=float)
    centred = points - points.mean(axis=0)
    return Sent(centred @ centred.T, np.asarray(labels))


def test_the_plane_is_that_of_scikit_learn():
    from sklearn.decomposition import PCA

    points = np.random.default_rng(0).normal(size=(9, 5)) * (5, 3, 1, 1, 1)
    found, explained = fesem_clusters.plane(sent(points, [0] * 9))
    expected = PCA(2).fit(points)
    assert np.allclose(np.abs(found), np.abs(expected.transform(points)))
    assert explained == pytest.approx(expected.explained_variance_ratio_.sum())
    assert (np.abs(found).argmax(axis=0) == found.argmax(axis=0)).all()  # the farthest out is on the positive side


def test_distance_inside_clusters_by_hand():
    both = sent([[0.0], [2.0], [10.0]], [0, 0, 1])
    assert fesem_clusters.inside(both) == pytest.approx(2 / 3)  # 1, 1 and 0
    assert fesem_clusters.inside(sent([[0.0], [2.0], [10.0]], [0, 0, 0])) == pytest.approx(56 / 3)  # 16, 4, 36


def test_separation_beside_chance():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2, 3], 5)
    points = np.eye(4)[labels] * 10 + rng.normal(size=(20, 4))
    mixed = rng.normal(size=(20, 4))
    found = {"far": {1: sent(points, labels)}, "none": {1: sent(mixed, labels)}, "one": {1: sent(mixed, labels * 0)}}
    table = fesem_clusters.separation_table(found).set_index("dataset")
    assert (
        table.loc["far", "silhouette"] > 0.6 > table.loc["far", "highest"] and table.loc["far", "sizes"] == "5, 5, 5, 5"
    )
    assert abs(table.loc["none", "silhouette"]) < 0.25 and table.loc["none", "chance"] < 0.05
    assert np.isnan(table.loc["one", "silhouette"])
    assert fesem_clusters.separation_table(found).equals(fesem_clusters.separation_table(found))
    points = fesem_clusters.points_table(found)
    assert list(points) == ["dataset", "round", "client", "cluster", "x", "y"] and len(points) == 60
    fig, axes = plots.local_models(points)
    assert axes.shape == (3, 1) and fig.legends[0].get_texts()[-1].get_text() == "3"


def test_what_is_watched_is_what_was_sent():
    """The E-step's clusters, distances of the models themselves, and the same run as without looking."""
    spec = plan.row("demo", "digits writers", "fesem_2", 0)
    kept, done = fesem_clusters.watch(spec, (1, 2), rounds_to_run=2)
    plain = fl.run(
        fl.methods.build(spec.method),
        spec.federation_built(),
        **fl.store._arguments(spec) | {"rounds": 2},
        progress=False,
    )
    assert np.array_equal(plain.theta, done.theta) and np.array_equal(plain.labels_at[1], kept[1].labels)
    assert np.array_equal(plain.labels, kept[2].labels)
    assert np.allclose(kept[2].inner.sum(axis=0), 0, atol=1e-6) and np.allclose(kept[2].inner, kept[2].inner.T)
    # a round later everybody is near the centre it began from: within less than between
    assert fesem_clusters.inside(kept[2]) < np.trace(kept[2].inner) / len(kept[2].labels)


def test_moves_begin_with_the_second_round():
    at = {0: np.zeros(3), 1: np.array([0, 1, 1]), 2: np.array([0, 1, 0]), 12: np.array([0, 0, 0])}
    spec = Spec({}, {}, "m", 3, dataset="a", method_id="fesem_2", seed=5)
    moved = fesem_clusters.moves([SimpleNamespace(spec=spec, labels_at=at)])
    assert moved[["round", "moved", "clients"]].to_numpy().tolist() == [[2, 1, 3], [12, 1, 3]]
    short = fesem_clusters.moves_table(moved).iloc[0]
    assert short["last move in round"] == 12 and short["moved after round 10"] == "1 of 3"


def test_difference_of_groups_and_its_p_value():
    rng = np.random.default_rng(0)
    first = np.repeat([True, False], 10)
    values = np.arange(20.0)
    effect, p = fesem_clusters.difference(values, first, rng)
    assert effect == pytest.approx(-10 / np.sqrt(165 / 18)) and 0 < p < 0.002  # two divisions of 184,756
    p = [fesem_clusters.difference(rng.normal(size=20), first, rng)[1] for _ in range(40)]
    assert 0.3 < np.mean(p) < 0.7  # uniform where there is nothing
    assert np.isnan(fesem_clusters.difference(values, first | True, rng)).all()
    # three clients, one of them alone: each of three divisions is as likely
    assert fesem_clusters.difference(np.array([9.0, 0.0, 1.0]), np.array([True, False, False]), rng)[
        1
    ] == pytest.approx(1 / 3, abs=0.03)


def test_hands_are_told_from_clusters_by_width():
    federation = {"kind": "pseudo_writers", "n_clients": 30, "seed": 3}
    clients = pd.DataFrame({"samples": np.arange(30), "cluster": 0})
    width = fesem_clusters.attributes(federation, clients)["width"]
    clients["cluster"] = (width < 0).astype(int)  # thin strokes are cluster 1
    about = {"method_id": "fesem_2", "variant": "as_written", "note": "", "dataset": "pseudo-writers"}
    runs = {"k": (about, {"federation": federation, "seed": 3}), "s": (about | {"note": plan.SHUFFLED}, {})}
    runs["d"] = (about, {"federation": {"kind": "divided"}, "seed": 0})
    table = fesem_clusters.hands(runs, {"k": clients}).set_index("attribute")
    assert list(table.index) == [*STYLE, fesem_clusters.SAMPLES]
    assert table.loc["width", "effect"] > 1 and table.loc["width", "p"] < 0.001
    assert table["sizes"].iloc[0] == f"{(width >= 0).sum()}, {(width < 0).sum()}"
    values = fesem_clusters.attributes(federation, clients)
    _, axes = plots.attribute_strips(values, clients["cluster"], {"width": "p = 0.000"})
    assert axes[1].get_title() == "width\np = 0.000" and len(axes) == 5


# --- the number of centres ------------------------------------------------------------------------------------------


def test_clients_of_a_small_run():
    fed = plan.row("demo", "digits writers", "fesem_2", 0).federation_built()
    chosen = fesem_choice.drawn(fed, 5, 0, 0)
    assert len(set(chosen)) == 5 and (np.diff(chosen) > 0).all()
    assert not np.array_equal(chosen, fesem_choice.drawn(fed, 5, 0, 1))
    part = fesem_choice.some_clients(fed, chosen)
    assert part.n_clients == 5 and part.fingerprint() != fed.fingerprint()
    assert all(np.array_equal(part.test[i], fed.test[c]) for i, c in enumerate(chosen))


def test_ranking_by_hand():
    short = pd.DataFrame(
        {"dataset": "a", "draw": 0, "K": [1, 2, 3], "accuracy": [5.0, 6.0, 7.0], "inside": [3.0, 2.0, 1.0]}
    )
    worse = short.assign(draw=1, accuracy=[7.0, 6.0, 5.0])
    long = pd.DataFrame({"dataset": "a", "K": [1, 2, 3, 4], "accuracy": [50.0, 60.0, 70.0, 10.0]})
    table = fesem_choice.ranking(pd.concat([short, worse]), long)
    assert table["tau, accuracy"].tolist() == [1.0, -1.0] and table["tau, distance"].tolist() == [1.0, 1.0]
    assert table["K by accuracy"].tolist() == [3, 1] and set(table["K of the long runs"]) == {3}
    _, axes = plots.choosing_k(pd.concat([short, worse]), long)
    assert axes.shape == (1, 2) and len(axes[0, 0].lines) == 3 and len(axes[0, 1].lines) == 2


def test_long_runs_are_those_of_the_first_seed():
    rows = tidy_rows("fesem_2", (60.0,)) + tidy_rows("fesem_2", (10.0,), seed=1)
    rows += tidy_rows("fesem_1", (70.0,), note="choosing K") + tidy_rows("fesem_3", (1.0,), note="no distance term")
    rows += tidy_rows("fesem_ma_3", (1.0,)) + tidy_rows("fesem_2", (2.0,), variant="as_run")
    assert fesem_choice.long_runs(pd.DataFrame(rows))[["K", "accuracy"]].to_numpy().tolist() == [[1, 70.0], [2, 60.0]]


def test_pictures_refuse_nothing_in_a_sentence():
    for draw, columns in (
        (plots.local_models, ["dataset", "round", "cluster", "x", "y"]),
        (lambda table: plots.choosing_k(table, table), ["dataset", "draw", "K", "accuracy", "inside"]),
    ):
        with pytest.raises(FltnbError, match="compute some first"):
            draw(pd.DataFrame(columns=columns))


# --- claims ---------------------------------------------------------------------------------------------------------


def verdicts(claims):
    table = claims.table()
    return table[table["claim"] != ""].groupby("claim")["verdict"].agg(list).to_dict()


def test_claims_on_the_printed_numbers_themselves():
    """What the paper says of its own tables, put through our checks."""
    rows = printed_rows("T2", "femnist") + printed_rows("T3", "fedceleba")
    for dataset in ("femnist", "fedceleba"):
        rows += tidy_rows("fesem_3", (1.0, 99.0), dataset=dataset, note="weights by samples")
    claims = Claims()
    for name, part in fesem.parts(pd.DataFrame(rows)).items():
        fesem_claims._tables(claims, name, part, "t2" if name == "femnist" else "t3")
        fesem_claims._text(claims, name, part, True)
    found = verdicts(claims)
    assert found["fesem-t2-1"] == found["fesem-t2-2"] == found["fesem-t2-3"] == ["holds"]
    assert found["fesem-t3-1"] == found["fesem-t3-2"] == ["holds"]
    assert found["fesem-text-best"] == ["holds", "holds"]
    assert found["fesem-text-clusters"] == ["holds", "does not hold"]  # K = 2 is above K = 3 on FedCelebA
    assert found["fesem-text-matching"] == ["does not hold", "holds"]  # 90.4 for 87.0 on FEMNIST
    assert found["fesem-text-baselines"] == ["holds", "holds"]
    assert found["fesem-text-weights"] == ["holds", "holds"]


def test_claims_on_rounds_and_clusters():
    flat = [(r, 60.0 + k if r else 0.0, f"fesem_{k}") for k in plan.CENTERS for r in (0, 8, 10)]
    curves = pd.DataFrame(flat, columns=["round", "micro", "method"])
    curves = curves.assign(dataset="pseudo-writers", variant="as_written", note="", split="test", seed=0)
    separated = pd.DataFrame({"dataset": "pseudo-writers", "round": [1, 20], "sizes": "5, 4, 3, 2"})
    separated = separated.assign(
        **{"silhouette": [0.0, 0.3], "chance": 0.0, "highest": 0.1, "in the plane": [0.1, 0.6]}
    )
    moved = pd.DataFrame({"dataset": ["pseudo-writers", "x"], "method": "fesem_4", "seed": 0, "round": [11, 4]})
    moved = moved.assign(moved=1, clients=50)
    claims = Claims()
    fesem_claims._rounds(claims, "pseudo-writers", curves, True)
    fesem_claims._groups(claims, moved, separated)
    found = verdicts(claims)
    assert found == {name: ["holds"] for name in ("fesem-fig3-1", "fesem-fig3-2", "fesem-fig4-1", "fesem-fig4-2")}
    claims = Claims()
    rising = curves.assign(micro=curves["micro"] + 2 * (curves["round"] == 10) - 9 * (curves["method"] == "fesem_4"))
    fesem_claims._rounds(claims, "pseudo-writers", rising, True)
    fesem_claims._groups(claims, moved.assign(moved=5), separated.assign(silhouette=0.05))
    assert verdicts(claims) == {name: ["does not hold"] for name in found}


def test_claims_on_hands_need_most_seeds():
    lines = [
        (seed, a, p) for seed in (0, 1, 2) for a, p in (("width", 0.001), ("size", 0.9), ("training samples", 0.5))
    ]
    hands = pd.DataFrame(lines, columns=["seed", "attribute", "p"]).assign(dataset="pseudo-writers", effect=1.0)
    for rows, verdict in (
        (hands, "holds"),
        (hands.assign(p=hands["p"].where(hands["seed"] == 0, 0.03)), "does not hold"),
    ):
        claims = Claims()
        fesem_claims._hands(claims, rows)
        assert verdicts(claims) == {"fesem-fig5-1": [verdict]}
    claims = Claims()
    fesem_claims._hands(claims, hands[:0])
    assert verdicts(claims) == {"fesem-fig5-1": ["not tested"]}


def test_every_registered_claim_is_looked_at_somewhere():
    text = "".join((paths.ROOT / "fltnb" / "analysis" / "fesem_claims.py").read_text(encoding="utf-8"))
    for claim in published.claims("fesem")["id"]:
        family, number = claim.rsplit("-", 1)
        wanted = f'claim("{number}")' if family == "fesem-text" and number != "choosing" else claim
        # numbers of Tables 2 and 3 are put together with the table's
        assert wanted in text or family in ("fesem-t2", "fesem-t3"), claim


# --- report ---------------------------------------------------------------------------------------------------------


def test_the_report_counts_stand_ins_as_such(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    rows = tidy_rows("fedavg", (80.0, 60.0, 82.0, 58.0, 40.0)) + tidy_rows(
        "fedavg", (82.0, 62.0, 84.0, 60.0, 42.0), seed=1
    )
    rows += tidy_rows("fesem_3", (70.0, None, 71.0), variant="as_run") + tidy_rows("flt", (1.0,))
    rows += tidy_rows("fesem_3", (1.0,), note="no distance term") + tidy_rows("fedavg", (1.0,), dataset="dirichlet")
    settings = {"model": "cnn_small", "local_epochs": 5, "lr": 0.1, "federation": {"n_clients": 50}}
    entry = {"settings": settings, "provenance": {"data_origin": "here"}, "labels": {"dataset": "pseudo-writers"}}
    where = paths.results("small")
    where.mkdir(parents=True)
    pd.DataFrame(rows).to_csv(where / "08_fesem.csv", index=False)
    pd.DataFrame(columns=["round", "note"]).to_csv(where / "08_fesem_curves.csv", index=False)
    record = {row["key"]: entry for row in rows}
    (where / "08_fesem_provenance.json").write_text(json.dumps(record), encoding="utf-8")
    table = report.numbers("fesem")
    ran = table[table["status"] != "not run"]
    assert set(ran["status"]) == {"stand-in data"} and set(ran["data"]) == {"pseudo-writers"}
    assert set(ran["table"]) == {"T2"} and len(ran) == 4 + 2
    assert set(ran["departs"]) == {"cnn_small, 50 of 3,550 clients, learning rate 0.1 for 0.003"}
    average = ran[ran["method"] == "fedavg"].set_index("metric")
    assert average["mean"].to_dict() == {"micro_accuracy": 81, "micro_f1": 61, "macro_accuracy": 83, "macro_f1": 59}
    assert set(average["seeds"]) == {2}
    assert (report.counts(table)["reproduced"] == 0).all()
    shown = report.beside(table, "fesem", "T2")
    assert "stand-in data: pseudo-writers" in shown.loc[shown["method"] == "fedavg", "remarks"].iloc[0]


def test_runs_on_the_papers_own_data_say_how_they_depart():
    base = {"kind": "divided", "base": {"kind": "writers", "n_clients": 400}}
    settings = {"model": "leaf_cnn", "local_epochs": 5, "lr": 0.003, "federation": base}
    entry = {"settings": settings, "provenance": {"stopped": "loss is not finite"}}
    assert fesem_report._departs([entry], "femnist") == "400 of 3,550 clients, a run stopped early"
