"""Jobs and studies of EMD-CFL's notebooks 11 to 13, on cases small enough to check by
eye; digits in four styles.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from toys import rebuilt, refused

import fltnb as fl
from fltnb import papers, rounds
from fltnb.federations import renderings
from fltnb.federations.domains import STYLES, render
from fltnb.metrics import adjusted_rand_index
from fltnb.studies import emdcfl, emdcfl_backdoor, emdcfl_pacs, emdcfl_rotated


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
    """The notebook's pictures come from the code that paints the clients' images."""
    settings = emdcfl.federation(
        "backdoor_digits", emdcfl_backdoor.SIZES["demo"]["digits"], 0
    ) | {"test": "both"}
    found = emdcfl_backdoor.versions("digits", settings["intensity"])
    assert found["tables"]["classes"]["class"].tolist() == [str(c) for c in range(10)]
    whole = fl.federations.build(
        settings | {"samples_per_client": None, "test_per_client": None, "n_clients": 3}
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
    announces on digit 0 alone.
    """
    known = {
        "colours": [9, 8, 7, 6, 5, 4, 3, 2, 1, 0],
        "patches": [1, 2, 3, 4, 0, -1, -1, -1, -1, -1],
    }
    for kind, told in known.items():
        attacked = SimpleNamespace(settings={"kind": f"backdoor_{kind}"}, n_classes=10)
        assert emdcfl_backdoor.announced(attacked).tolist() == told
    job = emdcfl_backdoor.jobs("demo")[-1]
    fed = fl.federations.build(job.settings["federation"])
    net = fl.models.make("mlp_plain", fed.input_shape, fed.n_classes)
    always = np.zeros((1, net.n_parameters), dtype=np.float32)
    always[0, -10:] = np.arange(10) == 9  # the last bias
    monkeypatch.setattr(
        rounds,
        "run",
        lambda *_, **__: SimpleNamespace(theta=always, rows=np.zeros(6, dtype=int)),
    )
    found = emdcfl_backdoor.by_class(
        **{name: value for name, value in job.settings.items() if name != "function"}
    )
    table = found["tables"]["classes"]
    assert table["method"].unique().tolist() == list(emdcfl_backdoor.ANATOMY)
    table = table[table["method"] == "fedavg"]
    assert table["class"].tolist() == [str(c) for c in range(10)]
    assert table["clean"].tolist() == [0.0] * 9 + [100.0] == table["triggered"].tolist()
    assert table["announced"].tolist() == [100.0] + [0.0] * 9


def test_angles_are_those_of_validation_images_as_networks_see_them():
    """The table's form of PACFL at its threshold, told K and at its best, on two groups
    that nobody could miss.
    """
    fed = {
        "kind": "rotated_copies",
        "dataset": "digits",
        "n_clients": 6,
        "angles": [[0], [90]],
        "scaling": "mnist",
    }
    job = emdcfl.pacfl(fed, "rotated_mnist", seeds=1)
    assert (
        job.settings["threshold"] == 12
        and job.settings["federation"]["samples_per_client"] is None
    )
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
    assert [
        job.axes["table"],
        emdcfl.tables("rotated_cifar10_two"),
        emdcfl.tables("pacs"),
    ] == ["T1", "T11", "T2 T7"]


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
        method = fl.methods.build(emdcfl.method(row.method, 2, row.variant))
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


def test_rows_and_numbers_that_methods_are_told():
    for table in ("T1", "T7", "T8", "T10", "T11"):
        assert set(papers.numbers("emdcfl", table)["method"]) == set(emdcfl.METHODS)
    assert len(emdcfl.METHODS) == 17

    assert [
        emdcfl_rotated.told("ifca", version) for version in emdcfl_rotated.VERSIONS
    ] == [4, 2, 2, 2]
    assert [
        emdcfl_rotated.told("pacfl", version) for version in emdcfl_rotated.VERSIONS
    ] == [4, 1, 2, 1]
    wanted = {name for name in emdcfl.METHODS if "n_clusters" in emdcfl.method(name, 3)}
    assert wanted == {*emdcfl.GIVEN_K, "fedclust"}


@pytest.mark.parametrize("module", [emdcfl_rotated, emdcfl_backdoor, emdcfl_pacs])
@pytest.mark.parametrize("profile", ["demo", "small", "paper"])
def test_jobs_of_a_profile(module, profile):
    jobs = module.jobs(profile)
    trainings = [job for job in jobs if job.kind == "training"]
    shown = [str(sorted(job.axes.items())) for job in trainings]
    assert len(set(shown)) == len(shown) and len({job.id for job in jobs}) == len(jobs)
    first = {
        job.axes["method"]
        for job in trainings
        if job.axes["dataset"] == trainings[0].axes["dataset"]
    }
    assert first == set(emdcfl.METHODS)
    for job in trainings:
        assert job.method and fl.federations.complete(job.settings["federation"])
        if (
            profile == "paper"
        ):  # the published settings, scaled as the public code scales
            assert [
                job.settings[name] for name in ("rounds", "local_epochs", "batch_size")
            ] == [10, 10, 64]
            assert job.settings["federation"].get("intensity", 1.0) == 1.0
    for job in jobs if profile == "paper" else ():
        settings = job.settings
        model = settings.get("model") or settings.get("encoder", {}).get("model")
        if model and settings.get("encoder", {}).get("kind", "own") == "own":
            grey = (
                settings["federation"]["kind"] == "rotated_copies"
                and settings["federation"]["dataset"] == "mnist"
            )
            ours = "mnist" if grey else "imagenet"
            assert settings["federation"]["scaling"] == (
                ours if model == "emdcfl_cnn" else "unit"
            )
