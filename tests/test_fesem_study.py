"""What notebook 08 measures beside accuracies, on numbers small enough to check by eye;
and its jobs.
"""

import numpy as np
import pytest

import fltnb as fl
from fltnb.analyses import fesem_models as study
from fltnb.studies import fesem as plan

QUICK = plan.training("demo", "digits writers") | {"rounds": 2, "seed": 0}
WRITERS = plan.federation("demo", "digits writers")
EM = {"name": "fesem", "n_clusters": 2}


def inner(points):
    points = np.asarray(points, dtype=float)
    centred = points - points.mean(axis=0)
    return centred @ centred.T


@pytest.mark.parametrize("profile", ["demo", "small", "paper"])
def test_jobs_are_the_rows_of_the_tables_and_what_belongs_to_the_sections(profile):
    jobs = plan.jobs(profile)
    rows = [job.axes for job in jobs if job.kind == "training"]
    first = plan.SIZES[profile]["federations"][0]
    base = [
        row
        for row in rows
        if row["dataset"] == first and not {"lam", "weighting", "shuffled"} & set(row)
    ]
    assert {row["method"] for row in base if row["variant"] == "as_written"} >= {
        *plan.METHODS,
        *plan.ONE_SHOT,
    }
    assert {row["method"] for row in base if row["variant"] == "as_run"} == set(
        plan.FESEM
    )
    assert len({job.id for job in jobs}) == len(jobs)
    sgd, avg = (
        next(job for job in jobs if job.axes.get("method") == name)
        for name in ("fedsgd", "fedavg")
    )
    assert (
        sgd.settings["rounds"] == avg.settings["rounds"] * avg.settings["local_epochs"]
    )  # as many passes


def test_planes_and_distances_inside_clusters():
    from sklearn.decomposition import PCA

    points = np.random.default_rng(0).normal(size=(9, 5)) * (5, 3, 1, 1, 1)
    found, explained = study.plane(inner(points))
    expected = PCA(2).fit(points)
    assert np.allclose(np.abs(found), np.abs(expected.transform(points)))
    assert explained == pytest.approx(expected.explained_variance_ratio_.sum())
    assert (
        np.abs(found).argmax(axis=0) == found.argmax(axis=0)
    ).all()  # the farthest out is on the positive side

    line = inner([[0.0], [2.0], [10.0]])
    assert study.inside(line, np.array([0, 0, 1])) == pytest.approx(2 / 3)  # 1, 1 and 0
    assert study.inside(line, np.zeros(3)) == pytest.approx(56 / 3)  # 16, 4, 36
    far = np.abs(np.subtract.outer([0.0, 1.0, 10.0, 11.0], [0.0, 1.0, 10.0, 11.0]))
    assert study.silhouette(far, np.array([0, 0, 1, 1])) == pytest.approx(
        1 - (1 / 10.5 + 1 / 9.5) / 2
    )
    assert np.isnan(study.silhouette(far, np.zeros(4))) and np.isnan(
        study.silhouette(far, np.arange(4))
    )


def test_what_is_watched_is_what_was_sent():
    """The E-step's clusters, distances of the models themselves, and the same run as
    without looking.
    """
    fed = fl.federations.build(WRITERS)
    kept, done = study.watch(EM, fed, (1, 2), **QUICK)
    plain = fl.run(fl.methods.build(EM), fed, **QUICK, progress=False)
    assert np.array_equal(plain.theta, done.theta) and np.array_equal(
        plain.labels_at[1], kept[1][1]
    )
    products, labels = kept[2]
    assert np.array_equal(plain.labels, labels)
    assert np.allclose(products.sum(axis=0), 0, atol=1e-6) and np.allclose(
        products, products.T
    )
    # a round later everybody is near the centre it began from: within less than between
    assert study.inside(products, labels) < np.trace(products) / len(labels)
    tables = study.local_models(WRITERS, EM, (1, 2), **QUICK)["tables"]
    assert (
        list(tables["points"]["round"].unique()) == [1, 2]
        and len(tables["points"]) == 2 * fed.n_clients
    )
    assert (tables["separation"]["chance"] <= tables["separation"]["highest"]).all()


def test_what_fesem_as_run_reports_is_its_best_centre_on_everybody():
    method = EM | {"variant": "as_run"}
    numbers = study.centers(WRITERS, method, **QUICK)["numbers"]
    done = fl.run(
        fl.methods.build(method), fl.federations.build(WRITERS), **QUICK, progress=False
    )
    test = done.history[done.history["split"] == "test"]
    assert (
        numbers["lowest"] <= numbers["highest"] == pytest.approx(test["micro"].iloc[-1])
    )


def test_clients_of_a_small_run():
    fed = fl.federations.build(WRITERS)
    chosen = np.array([0, 2, 3, 5, 7])
    part = study.some_clients(fed, chosen)
    assert part.n_clients == 5 and part.fingerprint() != fed.fingerprint()
    assert all(np.array_equal(part.test[i], fed.test[c]) for i, c in enumerate(chosen))
    small = study.choosing_k(
        WRITERS, EM, (1, 2), {"clients": 5, "draws": 2, "rounds": 1}, **QUICK
    )["tables"]["short"]
    assert small[["draw", "K"]].to_numpy().tolist() == [[0, 1], [0, 2], [1, 1], [1, 2]]
    assert small["inside"].nunique() == 4  # each draw has other clients
    assert (
        small[small["K"] == 2]["inside"].to_numpy()
        < small[small["K"] == 1]["inside"].to_numpy()
    ).all()


def test_table_1_counts_what_is_at_hand():
    found = study.statistics(plan.federation("demo", "digits writers"), shown=2)
    printed = found["tables"]["printed"].set_index("metric")["value"].to_dict()
    assert printed == {"num_samples": 1704, "num_clients": 12, "num_classes": 10}
    assert found["arrays"]["counts"].shape == (12, 10) and found["arrays"][
        "images"
    ].shape == (12, 2, 8, 8)
