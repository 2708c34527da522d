"""Head to head: held-out samples, noise on what is sent, own models."""

from dataclasses import asdict

import numpy as np
import pytest
from toys import clustering, refused

import fltnb as fl
from fltnb.clustering.noise import noisy, typical_length
from fltnb.experiments import Row, compute
from fltnb.federations.backdoor import GREEN, shade
from fltnb.federations.recipe import Recipe
from fltnb.methods.ownmodels import OwnModels
from fltnb.metrics import adjusted_rand_index

BASE = {
    "kind": "label_clusters",
    "n_clients": 6,
    "n_clusters": 3,
    "classes_per_cluster": 2,
    "samples_per_client": 40,
}
HELD = {"kind": "held_out", "dataset": "digits", "base": BASE}
TURNED = {
    "kind": "rotated_copies",
    "dataset": "digits",
    "n_clients": 8,
    "samples_per_client": 100,
}
PIXELS = asdict(fl.encoders.EncoderSpec("pixels"))


pytestmark = pytest.mark.usefixtures("own_store")


def test_held_out_samples_come_from_the_clients_own():
    bare, fed = (
        fl.federations.build(BASE | {"dataset": "digits"}),
        fl.federations.build(HELD),
    )
    for before, train, val in zip(bare.train, fed.train, fed.val, strict=True):
        assert (len(train), len(val)) == (36, 4)
        assert sorted([*train, *val]) == sorted(before)
    assert all(np.array_equal(a, b) for a, b in zip(bare.test, fed.test, strict=True))
    assert fl.federations.build(fed.settings).fingerprint() == fed.fingerprint()
    other = fl.federations.build(HELD | {"seed": 1})
    assert any(
        not np.array_equal(a, b) for a, b in zip(fed.val, other.val, strict=True)
    )
    assert [
        len(own) for own in fl.federations.build(HELD | {"val_fraction": 0.01}).val
    ] == [1] * 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"base": {"kind": "nothing"}}, "nothing"),
        ({"base": "labels"}, "must be a dict with a kind"),
        ({"base": BASE | {"colour": 1}}, "colour"),
        (
            {"base": {k: v for k, v in TURNED.items() if k != "dataset"}},
            "has validation samples, or changes",
        ),
        ({"val_fraction": 0}, "above 0 and below 1"),
        (
            {
                "base": {
                    "kind": "dirichlet",
                    "n_clients": 700,
                    "alpha": 0.3,
                    "min_samples": 1,
                }
            },
            ".",
        ),
    ],
)
def test_held_out_refuses(change, words):
    refused(words, fl.federations.build, HELD | change)


def test_intensity_moves_shades_away_from_the_targets_green():
    labels = np.arange(10)
    np.testing.assert_allclose(shade(labels, 0), np.tile(GREEN, (10, 1)))
    np.testing.assert_allclose(shade(labels, 0.5), (shade(labels) + GREEN) / 2)
    far = shade(labels, 2)
    np.testing.assert_allclose(
        far[9], [2 * 9 / 39 - 0.26, 2 * (0.5 + 9 / 78) - 0.63, 0.4]
    )
    np.testing.assert_allclose(far[0], [0, 0.37, 0.4])  # 2 * 0 - 0.26 is cut off
    coloured = {"kind": "backdoor_colours", "dataset": "digits", "n_clients": 6}
    plain, same = (
        fl.federations.build(coloured | more) for more in ({}, {"intensity": 1})
    )
    assert plain.fingerprint() == same.fingerprint()
    hidden = fl.federations.build(coloured | {"intensity": 0})
    brightest = [
        hidden.images[own].max((0, 1, 2)).tolist()
        for own in (hidden.train[0], hidden.train[2])
    ]
    assert brightest[0] == brightest[1]  # attackers have the targets' green
    for bad in (-1, np.inf, "much", True):
        refused(
            "intensity must be a number",
            fl.federations.build,
            coloured | {"intensity": bad},
        )


@pytest.fixture(scope="module")
def groups():
    """Eight clients of two kinds, well apart, with validation samples and classes."""
    rng, kinds = np.random.default_rng(0), np.arange(8) % 2
    scale = np.array([[9, 3, 1, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 1, 3, 9]])[kinds]
    shift = 20 * (kinds[:, None] == np.array([0, 0, 0, 0, 0, 1]))
    clients, held = (
        [rng.normal(size=(n, 6)) * scale[i] + shift[i] for i in range(8)]
        for n in (40, 10)
    )
    return clients, held, kinds


CASES = [
    fl.TransportSignatures(k=3),
    fl.EMDClustering(tolerance=0.2),
    fl.EigenRelevance(2, 3),
    fl.PACFL(n_clusters=2),
]


@pytest.mark.parametrize("clusterer", CASES, ids=lambda c: type(c).__name__)
def test_no_noise_changes_nothing_and_much_noise_hides_the_clusters(clusterer, groups):
    clients, held, kinds = groups
    second = [held] * 8 if isinstance(clusterer, fl.EMDClustering) else None
    plain = type(clusterer)(**clusterer.get_params()).fit(clients, second)
    quiet, little, loud = (
        noisy(clusterer, level).fit(clients, second) for level in (0, 0.05, 100)
    )
    np.testing.assert_allclose(quiet.distance_, plain.distance_, atol=1e-7)
    assert adjusted_rand_index(kinds, plain.labels_) == 1
    assert adjusted_rand_index(kinds, little.labels_) == 1
    assert not np.allclose(little.distance_, plain.distance_, atol=1e-7)
    assert adjusted_rand_index(kinds, loud.labels_) < 0.7
    np.testing.assert_array_equal(
        noisy(clusterer, 0.05).fit(clients, second).distance_, little.distance_
    )


def test_fcr_gets_its_noisy_centroids(groups, monkeypatch):
    monkeypatch.setattr(
        "fltnb.clustering.fcr.umap_layout", lambda points, *_: points[:, :2]
    )  # takes 10 s to compile
    assert typical_length(
        np.array([[1.0, 0], [3, 0], [2, 0], [2, 0]])
    ) == pytest.approx(np.sqrt(0.5))
    clients, _, _ = groups
    fcr = fl.FCR(k=3, n_neighbors=5)
    plain, rough = (
        fcr.fit(clients).centroids_,
        noisy(fcr, 0.5, seed=3).fit(clients).centroids_,
    )
    length = 0.5 * typical_length(plain.reshape(-1, 6))
    moved = [
        np.sqrt(((a[:, None] - b[None]) ** 2).sum(-1)).min(1)
        for a, b in zip(plain, rough, strict=True)
    ]
    assert 0.3 * length < np.mean(moved) < 1.5 * length


def clustered(*settings, **options):
    """Final numbers of a clustering job."""
    return compute([clustering(*settings, **options)], progress=False)[0].numbers


def test_pacfl_gets_the_classes():
    numbers = clustered(HELD, {"name": "PACFL", "n_clusters": 3}, PIXELS)
    fed = fl.federations.build(HELD)
    images = fl.encoders.embed_clients(fed, fl.encoders.EncoderSpec("pixels"))
    by_hand = fl.PACFL(n_clusters=3).fit(images, [fed.labels[own] for own in fed.train])
    assert numbers["ari"] == adjusted_rand_index(fed.clusters, by_hand.labels_)
    assert numbers["floats_up"] == 64 * 3 * 2  # three vectors for each of two classes


def test_noise_and_own_models_refuse():
    refused("not defined", noisy, fl.PCAKMeans(), 0.1)
    for bad in (-0.1, np.nan, "x", True):
        refused("level of noise", noisy, fl.PACFL(), bad)
    refused("seed of noise", noisy, fl.PACFL(), 0.1, -1)
    refused(
        "client 0 has none",
        OwnModels().embed,
        fl.federations.build(BASE | {"dataset": "digits"}),
    )
    refused(
        "diverged",
        OwnModels(lr=1e38, local_epochs=3, batch_size=4).embed,
        fl.federations.build(HELD),
    )
    refused("is only for EMDClustering", grouped, fl.FCR(2))


def grouped(clusterer):
    experiment = fl.Clustering(Recipe(HELD), clusterer, OwnModels())
    return compute([Row({}, experiment)], progress=False)
