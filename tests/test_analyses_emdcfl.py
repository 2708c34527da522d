"""Grids and studies of EMD-CFL's notebooks 11 to 13, on cases small enough to check by
eye; digits in four styles."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from toys import rebuilt, refused

import fltnb as fl
from fltnb import papers, rounds
from fltnb.analyses import emdcfl, emdcfl_backdoor
from fltnb.federations import renderings
from fltnb.federations.domains import STYLES, render
from fltnb.metrics import adjusted_rand_index
from fltnb.notebook.grids import grids

METHODS = ["oracle", "emdcfl", "pacfl", "fedclust", "flexcfl", "cflgp", "cfl", "ifca"]
METHODS += ["fesem", "fedem", "fedsoft", "fedrc", "fedce"]
METHODS += ["fedavg", "fedprox", "pfedgraph", "fedsac"]
SHADES = {"n_clients": 6, "samples_per_client": 150, "test_per_client": 80, "seed": 0}
SHADES |= {"val_fraction": 0.2, "intensity": 4.0, "variant": "as_run", "test": "both"}
ATTACKED = fl.recipe("backdoor_colours", "digits", **SHADES).settings


def test_rendering_by_hand_and_what_cannot_be_rendered(digits):
    dot = np.zeros((1, 4, 4), dtype=np.uint8)
    dot[0, 1, 1] = 200
    square = np.zeros((4, 4), dtype=int)
    square[:3, :3] = 200
    assert (render(dot, "plain") == dot).all() and render(dot, "plain") is not dot
    assert (render(dot, "inverted")[0] == 255 - dot[0]).all()
    assert (render(dot, "thick")[0] == square).all()
    assert (render(dot, "outline")[0] == square - dot[0]).all()
    colour = replace(
        digits, name="mine", images=np.repeat(digits.images[..., None], 3, axis=3)
    )
    refused("Renderings are made of grey images", renderings, colour)
    refused("images: lower min_samples, which is 500", renderings, digits, 500)
    assert (
        fl.federations.label_clusters(colour, 5, 5, 2).settings["content"]
        == colour.digest
    )  # names a user's own
    mine = replace(digits, name="mine")
    assert renderings(mine, 200).settings["content"] == mine.digest


def test_renderings_part_the_digits_over_four_domains(digits):
    fed = renderings(digits, 200, 150, val_fraction=0.2, test_fraction=0.2, seed=3)
    assert fed.clusters.tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and set(fed.sizes) == {90}
    held = [
        set(np.concatenate([fed.train[i], fed.val[i], fed.test[i]]).tolist())
        for i in range(8)
    ]
    assert (
        len(set.union(*held)) == sum(map(len, held)) == 8 * 150
    )  # nobody shares a picture
    for i, cluster in enumerate(fed.clusters):
        chosen = fed.train[i]
        assert (
            fed.images[chosen] == render(digits.images[chosen], STYLES[cluster])
        ).all()
        assert (fed.labels[chosen] == digits.labels[chosen]).all()
    rebuilt(fed)
    other = renderings(digits, 200, 150, val_fraction=0.2, test_fraction=0.2, seed=4)
    assert other.fingerprint() != fed.fingerprint()


def test_versions_are_what_the_federation_holds():
    """The pictures of the notebook come from the code that paints images."""
    found = emdcfl_backdoor.versions("digits", ATTACKED["intensity"])
    assert found["tables"]["classes"]["class"].tolist() == [str(c) for c in range(10)]
    whole = fl.federations.build(
        ATTACKED | {"samples_per_client": None, "test_per_client": None, "n_clients": 3}
    )
    for name, index in zip(
        ("target", "attacker", "other", "trigger"),
        [*whole.test, whole.probe[0]],
        strict=True,
    ):
        own = {tuple(image.ravel()) for image in whole.images[index]}
        assert all(tuple(image.ravel()) in own for image in found["arrays"][name])
    assert (
        not (found["arrays"]["attacker"] == found["arrays"]["trigger"])
        .all(axis=(1, 2, 3))
        .any()
    )


def test_what_the_trigger_announces_is_counted(monkeypatch):
    """A network that says 9 whatever it sees is right on class 9, and what the trigger
    announces on digit 0 alone."""
    known = {
        "colours": [9, 8, 7, 6, 5, 4, 3, 2, 1, 0],
        "patches": [1, 2, 3, 4, 0, -1, -1, -1, -1, -1],
    }
    for kind, told in known.items():
        attacked = SimpleNamespace(settings={"kind": f"backdoor_{kind}"}, n_classes=10)
        assert emdcfl_backdoor.announced(attacked).tolist() == told
    fed = fl.federations.build(ATTACKED)
    net = fl.models.make("mlp_plain", fed.input_shape, fed.n_classes)
    always = np.zeros((1, net.n_parameters), dtype=np.float32)
    always[0, -10:] = np.arange(10) == 9  # the last bias
    monkeypatch.setattr(
        rounds,
        "run",
        lambda *_, **__: SimpleNamespace(theta=always, rows=np.zeros(6, dtype=int)),
    )
    training = {"rounds": 3, "local_epochs": 5, "batch_size": 10, "lr": 0.02}
    embedded = {"name": "EMDClustering", "tolerance": 0.025}
    trained = [{"name": "fedavg"}, {"name": "oracle"}]
    trained.append({"name": "emdcfl", "clusterer": embedded})
    found = emdcfl_backdoor.by_class(ATTACKED, "mlp_plain", training, trained)
    table = found["tables"]["classes"]
    assert table["method"].unique().tolist() == ["fedavg", "oracle", "emdcfl"]
    table = table[table["method"] == "fedavg"]
    assert table["class"].tolist() == [str(c) for c in range(10)]
    assert table["clean"].tolist() == [0.0] * 9 + [100.0] == table["triggered"].tolist()
    assert table["announced"].tolist() == [100.0] + [0.0] * 9


def test_angles_are_those_of_validation_images_as_networks_see_them():
    """The table's form of PACFL at its threshold, told K and at its best, on two groups
    that nobody could miss."""
    fed = {
        "kind": "rotated_copies",
        "dataset": "digits",
        "n_clients": 6,
        "angles": [[0], [90]],
        "scaling": "mnist",
    }
    tables = emdcfl.angles(fed, 12.0, seeds=1)["tables"]
    cuts = tables["cuts"].set_index("told")
    whole = fl.federations.build(fed | {"seed": 0})
    images = [whole.inputs(index).reshape(len(index), -1) for index in whole.val]
    by_hand = fl.PACFL(threshold=12).fit(
        images, [whole.labels[index] for index in whole.val]
    )
    assert (
        cuts.loc["threshold", "clusters"] == by_hand.n_clusters_
        and cuts.loc["K", "clusters"] == 2
    )
    assert cuts.loc["threshold", "ari"] == adjusted_rand_index(
        whole.clusters, by_hand.labels_
    )
    assert cuts.loc["best cut", "ari"] == cuts["ari"].max()
    assert tables["printed"].to_numpy().tolist() == [
        [0, "pacfl", "ari", cuts.loc["threshold", "ari"]]
    ]


def test_one_round_decides_what_emdcfl_and_fedclust_find():
    """The same clusters as those of whole runs, in the tables' form."""
    fed = {
        "kind": "rotated_copies",
        "dataset": "digits",
        "n_clients": 4,
        "angles": [[0], [90]],
        "seed": 1,
    }
    how = {"local_epochs": 3, "batch_size": 10, "lr": 0.05, "momentum": 0.9}
    made = emdcfl.one_shot(fed, "mlp32", 1, **how)["tables"]
    assert (
        made["printed"]["method"].tolist() == ["emdcfl"]
        and made["told"]["method"].tolist() == ["fedclust"] * 2
    )
    found = pd.concat([made["printed"], made["told"]])
    assert set(found["seed"]) == {1}
    whole = fl.federations.build(fed)
    for row in found.itertuples():
        told = {} if row.method == "emdcfl" else {"n_clusters": 2}
        told |= {"variant": "as_run"} if row.variant == "as_run" else {}
        method = fl.methods.build({"name": row.method} | told)
        run = fl.run(
            method,
            whole,
            "mlp32",
            rounds=1,
            seed=1,
            progress=False,
            **how,
            participation=1.0,
        )
        assert row.value == adjusted_rand_index(whole.clusters, run.labels)


PAGES = ["11", "12", "13"]


def trainings(page, profile, given=None):
    """Return the rows of a page's grids that are federated trainings."""
    rows = [row for grid in grids(page, profile, given) for row in grid]
    return [row for row in rows if isinstance(row.experiment, fl.Training)]


def test_tables_have_the_rows_of_the_pages():
    assert len(METHODS) == 17
    for table in ("T1", "T7", "T8", "T10", "T11"):
        assert set(papers.numbers("emdcfl", table)["method"]) == set(METHODS)


def test_the_numbers_of_clusters_that_methods_are_told():
    """The true one; 2 where that is 1, but for those that cut a dendrogram there."""
    names = {"rotated_mnist": 4, "rotated_mnist_min": 1}
    names |= {"rotated_mnist_two": 2, "rotated_mnist_base": 1}
    told = set()
    for row in trainings("11", ""):
        dataset, method = row.axes["dataset"], row.axes["method"]
        settings = row.experiment.method.settings()
        if dataset not in names:
            continue
        if "n_clusters" in settings:
            told.add(method)
            cut = method in ("pacfl", "fedclust")
            true = names[dataset]
            assert settings["n_clusters"] == (true if cut else max(true, 2))
        elif method == "pacfl":
            assert settings["clusterer"]["n_clusters"] == names[dataset]
    given = {"flexcfl", "cflgp", "ifca", "fesem", "fedem", "fedsoft", "fedrc", "fedce"}
    assert told == given | {"fedclust"}


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("profile", ["", "demo"])
def test_the_rows_of_a_page(page, profile):
    rows = trainings(page, profile)
    shown = [str(sorted(row.axes.items())) for row in rows]
    assert len(set(shown)) == len(shown)

    dataset = rows[0].axes["dataset"]
    first = {row.axes["method"] for row in rows if row.axes["dataset"] == dataset}
    assert first == set(METHODS)
    for row in rows:
        assert fl.federations.complete(row.experiment.federation.settings)


@pytest.mark.parametrize(
    ("page", "given"),
    [
        ("11", {}),
        ("12", {"datasets": ["pacs_features"]}),
        ("13", {"datasets": ["mnist"], "batch_size": 64}),
    ],
)
def test_the_published_settings(page, given):
    rows = trainings(page, "", given)
    usual = {"dataset", "model", "method", "variant", "seed"}
    plain = [row.experiment for row in rows if set(row.axes) <= usual]
    assert len(plain) >= 17
    for run in plain:
        assert (run.rounds, run.local_epochs, run.batch_size) == (10, 10, 64)
        assert run.federation.settings.get("intensity", 1.0) == 1.0


@pytest.mark.parametrize("page", ["11", "13"])
def test_the_papers_own_network_sees_images_scaled_as_in_the_public_code(page):
    seen = []
    for row in [row for grid in grids(page) for row in grid]:
        if isinstance(row.experiment, fl.Training):
            model = row.experiment.model
            held = row.experiment.federation.settings
        elif isinstance(row.experiment, fl.Study):
            model = row.experiment.options.get("model")
            held = row.experiment.options.get("federation")
        else:
            continue
        if model == "emdcfl_cnn":
            grey = held["kind"] == "rotated_copies" and held["dataset"] == "mnist"
            seen.append(held["scaling"] == ("mnist" if grey else "imagenet"))
    assert seen and all(seen)
