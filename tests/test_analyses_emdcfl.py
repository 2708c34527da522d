"""Analyses of EMD-CFL's notebooks 11 to 13 on small cases, and what their grids ask."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
from toys import rebuilt, refused

import fltnb as fl
from fltnb import papers, rounds
from fltnb.analyses import emdcfl, emdcfl_backdoor
from fltnb.federations import renderings
from fltnb.federations.domains import STYLES, render
from fltnb.metrics import adjusted_rand_index
from fltnb.notebook.grids import grids

ATTACKED = {"kind": "backdoor_colours", "dataset": "digits", "n_clients": 6}
ATTACKED |= {"variant": "as_run", "samples_per_client": 150, "test_per_client": 80}
ATTACKED |= {"val_fraction": 0.2, "intensity": 4.0, "test": "both"}


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
    refused("images, not 500: lower", renderings, digits, 500)
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
    """The pictures of the notebook come from the code that paints the clients' images."""
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
    training = {"rounds": 3, "participation": 1.0}
    names = ["fedavg", "oracle"]
    made = [{"name": name} for name in names]
    found = emdcfl_backdoor.by_class(ATTACKED, "mlp_plain", training, made)
    table = found["tables"]["classes"]
    assert table["method"].unique().tolist() == names
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
    emd = fl.methods.EMDCFL(fl.EMDClustering(0.025))
    ways = {("emdcfl", "as_written"): emd}
    ways["fedclust", "as_written"] = fl.methods.FedClust(n_clusters=2)
    ways["fedclust", "as_run"] = fl.methods.FedClustAsRun(n_clusters=2)
    for row in found.itertuples():
        method = ways[row.method, row.variant]
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


def test_pages_have_the_rows_of_the_tables_in_the_printed_setting():
    for table, notebook in {"T1": "11", "T7": "12", "T8": "13"}.items():
        printed = set(papers.numbers("emdcfl", table)["method"])
        assert len(printed) == 17
        rows = [row for grid in grids(notebook) for row in grid]
        trained = [row for row in rows if row.experiment.kind == "training"]
        assert {row.axes["method"] for row in trained} >= printed

    rows = [row for grid in grids("11") for row in grid]
    published = [
        row.experiment for row in rows if row.axes.get("model") == "emdcfl_cnn"
    ]
    trained = [made for made in published if made.kind == "training"]
    assert trained
    for made in trained:
        how = made.rounds, made.local_epochs, made.participation, made.batch_size
        assert how == (10, 10, 1.0, 64)
        assert (made.lr, made.momentum, made.weight_decay) == (0.01, 0.9, 1e-6)
        assert made.federation.settings["n_clients"] == 40
