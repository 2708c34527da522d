"""FeSEM's federations: 80/20 division and IID shuffle of another federation; CelebA by
persons from LEAF's files.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from toys import leaf_file, rebuilt, refused, toy_set, write_leaf

import fltnb as fl
from fltnb import federations
from fltnb.data import leaf
from fltnb.experiments.key import names_in
from fltnb.federations import Federation, divided, shuffled

SKEWED = {"kind": "dirichlet", "n_clients": 12, "alpha": 0.1}
TWO_EACH = {
    "kind": "label_clusters",
    "n_clients": 6,
    "n_clusters": 3,
    "classes_per_cluster": 2,
}
HANDS = {"kind": "pseudo_writers", "n_clients": 8}


def by_persons(n_train, n_test):
    """1x1 images of two classes, ``n_train[w]`` and ``n_test[w]`` of each person w, who
    alternate in the set.
    """
    writers = np.concatenate(
        [np.repeat(np.arange(len(n)), n) for n in (n_train, n_test)]
    ).astype(np.int32)
    split = np.repeat([0, 1], [sum(n_train), sum(n_test)])
    order = np.random.default_rng(0).permutation(len(writers))
    places = np.arange(len(writers))
    return toy_set(
        (places % 256).reshape(-1, 1, 1),
        places % 2,
        split[order],
        2,
        writers=writers[order],
    )


def persons(n):
    return {"kind": "writers", "n_clients": n}


def held(fed):
    """What every client holds, all parts together, sorted."""
    return [
        sorted([*train, *test]) for train, test in zip(fed.train, fed.test, strict=True)
    ]


def registered(monkeypatch, **fields):
    """Let the kind "odd" be a federation of these parts, for bases that no kind of ours
    makes.
    """

    def odd(images, /):
        own = {
            "images": images.images,
            "labels": images.labels,
            "n_classes": 2,
            "settings": {"kind": "odd"},
        }
        return Federation(**own, **fields)

    monkeypatch.setitem(federations.KINDS, "odd", odd)
    return {"kind": "odd"}


def test_division_by_hand():
    # 10, 5, 3 and 2 samples: 8, 4, 2.4 and 1.6 of them are for training, the last cut
    # to leave one for testing
    images = by_persons([9, 1, 2, 1], [1, 4, 1, 1])
    fed = divided(images, persons(4))
    assert fed.sizes.tolist() == [8, 4, 2, 1] and [len(own) for own in fed.test] == [
        2,
        1,
        1,
        1,
    ]
    assert held(fed) == [np.flatnonzero(images.writers == w).tolist() for w in range(4)]
    assert divided(images, persons(4), 0.01).sizes.tolist() == [1, 1, 1, 1]
    assert divided(images, persons(4), 0.99).sizes.tolist() == [9, 4, 2, 1]


SIZES = st.lists(
    st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=6
)


@settings(max_examples=40, deadline=None)
@given(SIZES, st.floats(0.01, 0.99), st.integers(0, 99))
def test_division_keeps_everybodys_samples(sizes, fraction, seed):
    images = by_persons(*map(list, zip(*sizes, strict=True)))
    bare = federations.writers(images, len(sizes))
    fed = divided(images, persons(len(sizes)), fraction, seed)
    assert held(fed) == held(bare)  # sorted lists: each sample once, none in both parts
    for own, (n_train, n_test) in zip(fed.train, sizes, strict=True):
        n = n_train + n_test
        assert 1 <= len(own) < n and (
            abs(len(own) - fraction * n) <= 0.5 or len(own) in (1, n - 1)
        )


def test_division_is_drawn_for_each_client_alone():
    images = by_persons([90] * 40, [10] * 40)
    fed, other = (
        divided(images, persons(40), seed=1),
        divided(images, persons(40), seed=2),
    )
    assert not any(
        np.array_equal(a, b) for a, b in zip(fed.train, other.train, strict=True)
    )
    # the old parts do not matter: 0.8 of the 400 old test samples are for training now,
    # to 4 standard errors
    moved = sum(int((images.split[own] == 1).sum()) for own in fed.train)
    assert abs(moved - 320) < 4 * np.sqrt(400 * 0.8 * 0.2)
    fewer = divided(images, persons(7), seed=1)
    assert all(
        np.array_equal(a, b) for a, b in zip(fewer.train, fed.train[:7], strict=True)
    )


def test_division_keeps_clusters_and_drops_repeats(monkeypatch):
    images = by_persons([6], [4])
    base = registered(
        monkeypatch,
        train=[[0, 1, 1, 1], [2, 3, 4, 5, 2]],
        test=[[6, 7, 0], [8]],
        clusters=[3, 1],
    )
    fed = divided(images, base, 0.5)
    assert held(fed) == [[0, 1, 6, 7], [2, 3, 4, 5, 8]] and fed.clusters.tolist() == [
        3,
        1,
    ]
    assert len(fed.train[0]) == 2 and len(fed.train[1]) == 2


@settings(max_examples=25, deadline=None)
@given(SIZES, st.integers(0, 99))
def test_shuffle_keeps_numbers_and_deals_each_sample_once(sizes, seed):
    images = by_persons(*map(list, zip(*sizes, strict=True)))
    fed = shuffled(images, persons(len(sizes)), seed)
    assert [(len(a), len(b)) for a, b in zip(fed.train, fed.test, strict=True)] == sizes
    assert sorted(np.concatenate(fed.train)) == images.train_index.tolist()
    assert sorted(np.concatenate(fed.test)) == images.test_index.tolist()
    assert fed.clusters is None


@pytest.mark.parametrize(
    "base",
    [SKEWED, HANDS, {"kind": "rotated_copies", "n_clients": 8, "val_fraction": 0}],
)
def test_settings_round_trip(base):
    short = {
        "kind": "shuffled",
        "dataset": "digits",
        "base": {"kind": "divided", "base": base, "seed": 4},
        "seed": 5,
    }
    fed = rebuilt(federations.build(short))
    full = fed.settings
    assert (
        federations.complete(full) == full and federations.complete(short)["seed"] == 5
    )
    assert (
        full["base"]["train_fraction"] == 0.8
        and "dataset" not in full["base"] | full["base"]["base"]
    )
    # the inner division decides the sizes, the inner federation who holds what before
    inner = federations.build({**short["base"], "dataset": "digits"})
    assert np.array_equal(inner.sizes, fed.sizes)
    assert np.array_equal(
        np.sort(np.concatenate(inner.train)), np.sort(np.concatenate(fed.train))
    )
    assert set(names_in(federations.canonical(full))) == {
        "shuffled",
        "divided",
        base["kind"],
    }


def test_a_set_of_ones_own_is_named_by_its_content():
    images = by_persons([3, 3], [2, 2])
    for make in (divided, shuffled):
        fed = make(images, persons(2))
        assert (
            fed.settings["content"] == images.digest
            and "content" not in fed.settings["base"]
        )
        refused(
            "images of your own, which no settings can", federations.build, fed.settings
        )


def test_changing_and_held_out_go_over_a_division():
    inner = {"kind": "divided", "base": SKEWED}
    fed = federations.build({"kind": "held_out", "dataset": "digits", "base": inner})
    bare = federations.build(inner | {"dataset": "digits"})
    assert all(
        len(a) + len(b) == len(c)
        for a, b, c in zip(fed.train, fed.val, bare.train, strict=True)
    )
    events = [{"round": 3, "join": 4}]
    fed = federations.build(
        {"kind": "changing", "dataset": "digits", "base": inner, "events": events}
    )
    assert [phase.fed.n_clients for phase in fed.phases] == [8, 12]


@pytest.mark.parametrize("kind", ["divided", "shuffled"])
@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("writers", "must be a dict with a kind, not 'writers'"),
        ({"kind": "nothing"}, "Unknown kind of federation 'nothing'"),
        ({"kind": "from_arrays"}, "your own arrays"),
        (SKEWED | {"colour": 1}, "'colour'"),
        (SKEWED | {"n_clients": 5000}, "too few for 5000 clients"),
        (
            {"kind": "changing", "base": SKEWED, "events": [{"round": 2, "join": 1}]},
            "changing federation cannot be",
        ),
        (
            {"kind": "held_out", "base": SKEWED},
            "validation samples or a second test set",
        ),
        (TWO_EACH, "Clients 0 and 1 have samples in common"),
    ],
)
def test_bases_that_cannot_be_dealt_anew(kind, base, words):
    refused(words, federations.build, {"kind": kind, "dataset": "digits", "base": base})


def test_a_single_sample_and_a_second_test_set(monkeypatch):
    images = by_persons([6], [4])
    base = registered(monkeypatch, train=[[0, 1], [5]], test=[[2], [5]])
    refused("Client 1 has a single sample", divided, images, base)
    base = registered(monkeypatch, train=[[0], [5]], test=[[1], [6]], probe=[[2], [3]])
    for make in (divided, shuffled):
        refused("second test set", make, images, base)


# person: (training pictures with label, test pictures with label), labels as LEAF
# writes them
PEOPLE = {
    "120": ({"000003.jpg": 1.0, "000001.jpg": 0.0}, {"000007.jpg": 1.0}),
    "20": ({"000002.jpg": 0}, {"000009.jpg": 1}),
    "3": (
        {"000004.jpg": 1.0, "000005.jpg": 0.0, "000006.jpg": 0.0},
        {"000008.jpg": 1.0},
    ),
}
CELEBA = "all_data_niid_1_keep_5_{}_8.json"


def celeba_json(people=PEOPLE):
    for part in (0, 1):
        yield leaf_file(
            {
                name: {"x": list(own[part]), "y": list(own[part].values())}
                for name, own in people.items()
            }
        )


@pytest.fixture
def celeba(tmp_path):
    """LEAF's folder with pictures of CelebA's size: the upper half red as the number
    says, the lower half blue.
    """
    base = tmp_path / "celeba" / "data"
    write_leaf(base, CELEBA, *celeba_json())
    folder = base / leaf.PICTURES
    folder.mkdir(parents=True)
    for name in [name for parts in PEOPLE.values() for part in parts for name in part]:
        pixels = np.zeros((218, 178, 3), dtype=np.uint8)
        pixels[:109, :, 0], pixels[109:, :, 2] = 20 * int(name[:6]), 200
        Image.fromarray(pixels).save(folder / name, quality=95)
    return base


def test_celeba_by_hand(celeba):
    images = leaf.read_celeba(celeba.parent)
    assert (
        images.name == "celeba"
        and images.class_names == ("not smiling", "smiling")
        and "3 persons" in images.origin
    )
    # persons 3, 20, 120; training before test pictures, in LEAF's order
    assert images.writers.tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 2]
    assert (
        images.labels.tolist() == [1, 0, 0, 1, 0, 1, 1, 0, 1]
        and images.labels.dtype == np.int64
    )
    assert images.split.tolist() == [0, 0, 0, 1, 0, 1, 0, 0, 1]
    assert images.images.shape == (9, 84, 84, 3) and images.images.dtype == np.uint8
    number = np.array([4, 5, 6, 8, 2, 9, 3, 1, 7])
    # 109 of 218 rows are 42 of 84: whole halves, away from JPEG's blocks at the border
    upper, lower = images.images[:, :40].astype(int), images.images[:, 45:].astype(int)
    assert (
        np.abs(upper[..., 0] - 20 * number[:, None, None]).max() <= 4
        and upper[..., 2].max() <= 4
    )
    assert np.abs(lower[..., 2] - 200).max() <= 4 and lower[..., 0].max() <= 4
    assert leaf.read_celeba(celeba).digest == images.digest


def test_pictures_are_smoothed_and_get_three_channels(celeba):
    stripes = np.zeros((218, 178), dtype=np.uint8)
    stripes[:, ::2] = 255
    Image.fromarray(stripes).save(celeba / leaf.PICTURES / "000004.jpg", quality=95)
    picture = leaf.read_celeba(celeba).images[0]
    assert (picture == picture[..., :1]).all()
    assert (
        picture.min() > 60 and picture.max() < 195
    )  # the nearest pixel would be 0 or 255


def test_persons_are_clients_and_a_network_trains_on_them(celeba):
    root = celeba.parent.parent
    settings = {
        "kind": "divided",
        "dataset": "celeba",
        "base": {"kind": "writers", "n_clients": 3},
    }
    bare, fed = (
        federations.build({**settings["base"], "dataset": "celeba"}, root),
        federations.build(settings, root),
    )
    assert (
        bare.sizes.tolist() == [3, 1, 2]
        and fed.sizes.tolist() == [3, 1, 2]
        and held(fed) == held(bare)
    )
    assert (
        fed.input_shape == (3, 84, 84)
        and fed.n_classes == 2
        and (fed.mean, fed.std) == (0.5, 0.5)
    )
    done = fl.run(
        fl.methods.FedAvg(),
        fed,
        model="cnn_small",
        rounds=1,
        progress=False,
        backend="serial",
    )
    assert np.isfinite(done.theta).all()


def of_person_3(**entries):
    return lambda part: part["user_data"]["3"].update(entries)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            of_person_3(y=[1.0, 0.0]),
            "Person '3' of .*train_8.json .*has 3 images and 2 labels",
        ),
        (
            of_person_3(y=[1.0, 0.0, 2]),
            r"the label 2, which is not 0 \(not smiling\) or 1",
        ),
        *[
            (of_person_3(y=[1.0, 0.0, bad]), f"the label {bad!r}")
            for bad in (0.5, True, "1")
        ],
        (
            of_person_3(x=["000004.jpg", "000005.jpg", 6]),
            "has 6 in place of a picture's name",
        ),
    ],
)
def test_unsound_celeba_files(celeba, change, words):
    train, test = celeba_json()
    change(train)
    write_leaf(celeba, CELEBA, train, test)
    refused(words, leaf.read_celeba, celeba)


def test_pictures_twice_missing_or_damaged(celeba):
    refused(
        r"no files .*-k 5 -t sample --tf 0\.8 in LEAF's data/celeba",
        leaf.read_celeba,
        celeba / leaf.PICTURES,
    )
    # parts from two runs of LEAF's script, which draws anew each time: a test picture
    # is trained on
    write_leaf(
        celeba,
        CELEBA,
        *celeba_json(PEOPLE | {"20": ({"000009.jpg": 1}, {"000009.jpg": 1})}),
    )
    refused(r"list the picture '000009\.jpg' twice", leaf.read_celeba, celeba)
    write_leaf(celeba, CELEBA, *celeba_json())
    folder = celeba / leaf.PICTURES
    for damaged in ((folder / "000005.jpg").read_bytes()[:900], b"no picture"):
        (folder / "000005.jpg").write_bytes(damaged)
        refused(r"000005\.jpg cannot be read as a picture", leaf.read_celeba, celeba)
    (folder / "000008.jpg").unlink()
    (folder / "000005.jpg").unlink()
    refused(
        rf"{folder} lacks 2 of 9 pictures, such as '000005.jpg'",
        leaf.read_celeba,
        celeba,
    )
    (folder.parent.parent / "secret.jpg").write_bytes(b"")
    write_leaf(
        celeba,
        CELEBA,
        *celeba_json(PEOPLE | {"20": ({"../../secret.jpg": 1}, {"000009.jpg": 1})}),
    )
    refused(
        r"lacks . of 9 pictures, such as '\.\./\.\./secret\.jpg'",
        leaf.read_celeba,
        celeba,
    )
