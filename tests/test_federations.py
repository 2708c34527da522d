import dataclasses
import inspect
import json
import pickle
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import counted, prepared, rebuilt, refused

from fltnb import data, federations, paths
from fltnb.federations import (
    Federation,
    dirichlet,
    from_arrays,
    label_clusters,
    to_inputs,
)
from fltnb.federations.recipe import recipe
from fltnb.federations.shares import apportion, level


@given(st.integers(0, 200), st.lists(st.integers(0, 40), min_size=1, max_size=8))
def test_level(total, caps):
    caps = np.array(caps)
    shares = level(total, caps)
    assert (
        shares.sum() == min(total, caps.sum())
        and (shares <= caps).all()
        and (shares >= 0).all()
    )
    open_ended = shares[shares < caps]
    if len(
        open_ended
    ):  # nobody holds more than one above any bin that could still take something
        assert shares.max() <= open_ended.min() + 1 and np.ptp(open_ended) <= 1


@given(
    st.integers(0, 300),
    st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(any),
)
def test_apportion(total, weights):
    weights = np.array(weights)
    shares = apportion(total, weights)
    exact = total * weights / weights.sum()
    assert (
        shares.sum() == total
        and (np.abs(shares - exact) < 1).all()
        and (shares[weights == 0] == 0).all()
    )


def by_hand(**changes):
    shared = np.array([4, 5])
    fields = {
        "images": np.arange(6 * 2 * 3, dtype=np.uint8).reshape(6, 2, 3),
        "labels": [0, 1, 1, 0, 0, 1],
        "train": [[0, 1], [2, 3, 3]],
        "test": [shared, shared],
        "n_classes": 2,
        "clusters": [0, 1],
    }
    return Federation(**(fields | changes))


def test_federation_by_hand():
    fed = by_hand(class_names=["cat", "dog"], name="pets")
    assert (
        fed.n_clients == 2
        and fed.sizes.tolist() == [2, 3]
        and fed.input_shape == (1, 2, 3)
    )
    assert (
        fed.n_clusters == 2
        and fed.clusters.dtype == fed.labels.dtype == fed.train[0].dtype == np.int64
    )
    assert fed.label_counts().tolist() == [[1, 1], [2, 1]]
    assert fed.label_counts("test").tolist() == [[1, 1], [1, 1]]
    assert fed.label_counts("val").tolist() == [[0, 0], [0, 0]]
    x, y = fed.client(1)
    assert x.shape == (3, 1, 2, 3) and x.dtype == np.float32 and x.flags.c_contiguous
    np.testing.assert_allclose(
        x[0, 0], np.arange(12, 18).reshape(2, 3) / 255, rtol=1e-6
    )
    assert y.tolist() == [1, 0, 0] and fed.client(0, "val")[0].shape == (0, 1, 2, 3)
    refused("no client 2: this federation has clients 0 to 1", fed.client, 2)
    refused("no client -1", fed.client, -1)
    refused("Unknown split", fed.client, 0, "tests")
    refused("Unknown split", fed.label_counts, "all")
    assert fed.test[0] is fed.test[1]
    table = fed.summary()
    columns = [
        "client",
        "cluster",
        "train",
        "val",
        "test",
        "repeated",
        "classes",
        "holds",
        "largest_share",
    ]
    assert table.columns.tolist() == columns
    assert table["holds"].tolist() == ["cat, dog", "cat, dog"] and table[
        "repeated"
    ].tolist() == [0, 1]
    assert table["largest_share"].tolist() == [0.5, 2 / 3]
    about = (
        "2 clients with 2 to 3 training samples each, 2 true clusters, 2 classes, "
        "inputs 1x2x3"
    )
    assert repr(fed) == f"Federation pets: {about}"
    assert "cluster" not in by_hand(clusters=None).summary()
    many = Federation(
        images=np.eye(8), labels=np.arange(8), train=[range(7)], test=[[7]], n_classes=8
    )
    assert many.summary()["holds"][0] == "0, 1, 2, 3, 4, ..."


@pytest.mark.parametrize("shape", [(5, 7), (5, 4, 3), (5, 4, 3, 2)])
@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.5, 0.5)])
def test_to_inputs_against_the_formula(shape, mean, std):
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    got = to_inputs(pixels, mean, std)
    assert got.dtype == np.float32 and got.flags.c_contiguous
    slow = (pixels.astype(np.float64) / 255 - mean) / std
    slow = {2: slow[:, None, None], 3: slow[:, None], 4: np.moveaxis(slow, -1, 1)}[
        len(shape)
    ]
    np.testing.assert_allclose(got, slow, atol=1e-6)
    floats = to_inputs(pixels.astype(np.float64), mean, std)  # taken as they are
    assert (
        floats.dtype == np.float32
        and floats.shape == got.shape
        and floats.max() == pixels.max()
    )


def test_scalings_channel_by_channel_and_by_name():
    pixels = np.array([[[[0, 51, 102], [255, 204, 153]]]], dtype=np.uint8)
    got = to_inputs(
        pixels, (0.5, 0.2, 0.0), (0.5, 0.1, 2.0)
    )  # (0 - 0.5) / 0.5 and so on
    np.testing.assert_allclose(
        got, [[[[-1.0, 1.0]], [[0.0, 6.0]], [[0.2, 0.3]]]], atol=1e-6
    )
    colours = by_hand(
        images=np.full((6, 2, 2, 3), 255, dtype=np.uint8), settings={"kind": "mine"}
    )
    seen = colours.scaled("imagenet").inputs([0])[0, :, 0, 0]
    np.testing.assert_allclose(
        seen, [(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225], rtol=1e-6
    )
    assert colours.scaled("imagenet").settings == {
        "kind": "mine",
        "scaling": "imagenet",
    }
    prints = {colours.scaled(name).fingerprint() for name in federations.SCALINGS}
    assert (
        len(prints) == len(federations.SCALINGS)
        and colours.fingerprint() == colours.scaled("unit").fingerprint()
    )
    refused("Unknown scaling 'imagnet': choose one of unit", colours.scaled, "imagnet")
    refused(
        "floating-point samples, and only uint8",
        by_hand(images=np.ones((6, 2))).scaled,
        "unit",
    )
    refused(
        r"one number, or one for each of 1 channel\(s\)", by_hand, mean=(0.1, 0.2, 0.3)
    )
    colour = np.zeros((6, 2, 2, 3), dtype=np.uint8)
    for scaling in ({"std": (0.5, np.nan, 0.5)}, {"mean": np.nan}, {"std": np.inf}):
        refused("needs finite numbers", by_hand, images=colour, **scaling)
    refused("one number, or one for each", by_hand, std=[])
    digits = data.load("digits")
    parts = {"train": [[0]], "test": [[1]]}
    assert Federation.of(digits, **parts, mean=0.5, std=0.25).std == 0.25


def test_scaling_is_a_setting_of_every_kind_and_of_the_base_of_others():
    plain = {
        "kind": "label_clusters",
        "dataset": "digits",
        "n_clients": 6,
        "n_clusters": 2,
    }
    plain |= {"classes_per_cluster": 2, "samples_per_client": 20}
    fed = federations.build(plain | {"scaling": "mnist"})
    assert (fed.mean, fed.std) == (0.1307, 0.3081) and fed.settings[
        "scaling"
    ] == "mnist"
    rebuilt(fed)
    base = {key: value for key, value in plain.items() if key != "dataset"}
    for kind in (
        {"kind": "held_out"},
        {"kind": "changing", "events": [{"round": 3, "drift": 2}]},
    ):
        for layer in (
            {"base": base | {"scaling": "mnist"}},
            {"base": base, "scaling": "mnist"},
        ):
            over = rebuilt(federations.build({"dataset": "digits"} | kind | layer))
            every = (
                [phase.fed for phase in over.phases]
                if kind["kind"] == "changing"
                else []
            )
            assert {one.mean for one in (over, *every)} == {0.1307}
    painted = {
        "kind": "backdoor_colours",
        "dataset": "digits",
        "n_clients": 3,
        "scaling": "imagenet",
    }
    coloured = federations.build(painted)
    other = federations.build(coloured.settings | {"test": "backdoored"})
    assert (
        other.mean == coloured.mean == (0.485, 0.456, 0.406)
        and other.settings["test"] == "backdoored"
    )
    refused("Unknown scaling", federations.build, plain | {"scaling": "big"})


@pytest.mark.parametrize("kind", ["held_out", "divided", "shuffled", "changing"])
def test_a_base_lacks_nothing_and_names_no_data_set(digits, kind):
    make, more = (
        federations.KINDS[kind],
        {"events": [{"round": 3, "drift": 2}]} if kind == "changing" else {},
    )
    named = {"kind": "dirichlet", "dataset": "digits", "n_clients": 4}
    refused(
        "base names a data set, but the images are given already",
        make,
        digits,
        named,
        **more,
    )
    refused("needs n_clients", make, digits, {"kind": "dirichlet"}, **more)


def test_samples_from_copies_are_counted_as_clients_hold_them(digits):
    copied = np.zeros(len(digits), dtype=bool)
    copied[digits.train_index[:5]] = True
    copied[digits.test_index[:2]] = True
    images = dataclasses.replace(digits, copied=copied)

    # every image once; turned by two angles, twice; the first 40 of them, as they come
    every = federations.label_clusters(images, 10, n_clusters=5, classes_per_cluster=2)
    assert every.n_copied == 7
    assert "7 samples are from compressed copies" in repr(every)
    assert "7 samples are" in every.summary().attrs["notes"][-1]
    turned = federations.rotated_copies(images, 4, [[0], [90]], val_fraction=0.5)
    assert turned.n_copied == 14
    some = [np.arange(20), np.arange(20, 40)]
    own = Federation.of(images, train=some, test=some[::-1])
    assert own.n_copied == copied[:40].sum()

    # what a sample was made from is not part of what is trained on
    without = federations.rotated_copies(digits, 4, [[0], [90]], val_fraction=0.5)
    assert (without.n_copied, without.notes) == (0, ())
    assert without.fingerprint() == turned.fingerprint()
    refused("copied has shape .1,. for 1797", dataclasses.replace, own, copied=[True])


def test_fingerprint_follows_the_data_used():
    fed = by_hand()
    other_pool = np.concatenate(
        [np.zeros((1, 2, 3), dtype=np.uint8), by_hand().images]
    )  # one unused image more
    moved = by_hand(
        images=other_pool,
        labels=[1, 0, 1, 1, 0, 0, 1],
        train=[[1, 2], [3, 4, 4]],
        test=[[5, 6], [5, 6]],
    )
    assert fed.fingerprint() == by_hand().fingerprint() == moved.fingerprint()
    assert len(fed.fingerprint()) == 16
    brighter = fed.images.copy()
    brighter[4] += 1
    changed = [
        {"images": brighter},
        {"labels": [1, 1, 1, 0, 0, 1]},
        {"n_classes": 3},
        {"mean": 0.5, "std": 0.5},
    ]
    changed += [
        {"train": train} for train in ([[1, 0], [2, 3, 3]], [[0, 1, 2], [3, 3]])
    ]
    changed += [{"clusters": clusters} for clusters in (None, [0, 0])]
    assert (
        len(
            {
                fed.fingerprint(),
                *(by_hand(**change).fingerprint() for change in changed),
            }
        )
        == len(changed) + 1
    )


def test_described_by_hand():
    """12 training images of 4 classes, 2 clusters of 2 classes, 4 clients."""
    images = counted([3, 3, 3, 3], [1, 2, 3, 4])
    fed = label_clusters(images, 4, 2, 2, seed=5)
    assert fed.clusters.tolist() == [0, 0, 1, 1] and fed.n_classes == 4
    counts = fed.label_counts()
    # 12 / 4 = 3 images wanted, but a class of 3 serves its 2 clients with 1 each: 2
    # images from 2 classes
    assert fed.sizes.tolist() == [2, 2, 2, 2] and counts.max() == 1
    assert np.array_equal(counts[0], counts[1]) and np.array_equal(counts[2], counts[3])
    assert (counts[0] + counts[2] == 1).all()
    for cluster in (0, 1):
        first = 2 * cluster
        classes = np.flatnonzero(counts[first])
        assert fed.test[first] is fed.test[first + 1]
        assert fed.test[first].tolist() == [
            i for i in range(12, 22) if images.labels[i] in classes
        ]
    assert fed.settings == {
        **{
            "kind": "label_clusters",
            "dataset": "toy",
            "content": images.digest,
            "n_clients": 4,
            "n_clusters": 2,
        },
        **{
            "classes_per_cluster": 2,
            "shared_classes": 0,
            "seed": 5,
            "variant": "as_written",
        },
        **{"samples_per_client": None, "max_train": None, "overlap": False},
    }
    # 2 clients, 1 cluster, classes of 4 and 10: 7 wanted, 2 of the small class and so 5
    # of the large one
    assert label_clusters(counted([4, 10]), 2, 1, 2).label_counts().tolist() == [
        [2, 5],
        [2, 5],
    ]
    images = counted([20] * 4)
    assert (
        label_clusters(images, 4, 2, 2, samples_per_client=7).sizes.tolist() == [7] * 4
    )
    refused(
        "is 21 but some clients can get 20",
        label_clusters,
        images,
        4,
        2,
        2,
        samples_per_client=21,
    )
    says = "samples_per_client is 1, fewer than the 2 classes"
    refused(says, label_clusters, images, 4, 2, 2, samples_per_client=1)


def test_overlapping_clients_draw_equally_many_images_of_each_class_or_none():
    images = counted([20, 40])
    few = {"n_clusters": 1, "classes_per_cluster": 2, "overlap": True}
    drawn = label_clusters(images, 3, **few).label_counts()
    assert drawn.tolist() == [[10, 10]] * 3
    sentence = "cannot draw 30 images of each class, as one class has only 20"
    refused(sentence, label_clusters, images, 1, **few)
    few["samples_per_client"] = 60
    refused(sentence, label_clusters, images, 3, **few)


def test_shared_classes_form_a_ring():
    fed = label_clusters(counted([30] * 10), 10, 5, 3, shared_classes=1, seed=1)
    held = [set(np.flatnonzero(row)) for row in fed.label_counts()[::2]]
    for a, b in combinations(range(5), 2):
        assert len(held[a] & held[b]) == (b - a in (1, 4))  # neighbours
    assert set.union(*held) == set(range(10))
    # 30 wanted of 300 images / 10 clients; 30 // 4 = 7 of the shared ones, 15 of the
    # own one
    assert fed.sizes.tolist() == [29] * 10
    everything = np.concatenate(fed.train)
    assert len(everything) == len(np.unique(everything))
    # two clusters share once
    held = [
        set(np.flatnonzero(row))
        for row in label_clusters(counted([9] * 5), 2, 2, 3, 1).label_counts()
    ]
    assert len(held[0] & held[1]) == 1 and len(held[0] | held[1]) == 5


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_described_properties(pick):
    counts = pick.draw(st.lists(st.integers(12, 40), min_size=6, max_size=9))
    n_clusters = pick.draw(st.integers(1, 3))
    shared = pick.draw(st.integers(0, 1))
    per_cluster = pick.draw(st.integers(max(1, 2 * shared), 2))
    n_clients = pick.draw(st.integers(n_clusters, 12))
    seed = pick.draw(st.integers(0, 10))
    images = counted(counts)
    fed = label_clusters(images, n_clients, n_clusters, per_cluster, shared, seed=seed)
    everything = np.concatenate(fed.train)
    assert len(everything) == len(np.unique(everything)), (
        "a training image was handed out twice"
    )
    assert (images.split[everything] == 0).all()
    assert (np.diff(fed.clusters) >= 0).all() and np.ptp(np.bincount(fed.clusters)) <= 1
    in_use = (images.split == 0) & np.isin(images.labels, images.labels[everything])
    assert fed.sizes.max() <= in_use.sum() // n_clients
    for cluster in range(n_clusters):
        members = np.flatnonzero(fed.clusters == cluster)
        rows = fed.label_counts()[members]
        assert (rows == rows[0]).all() and (rows[0] > 0).sum() == per_cluster
        assert all(fed.test[i] is fed.test[members[0]] for i in members)
        of_cluster = np.isin(images.labels, np.flatnonzero(rows[0])) & (
            images.split == 1
        )
        assert np.array_equal(fed.test[members[0]], np.flatnonzero(of_cluster))


def test_digits_by_default_by_seed_and_sent_to_a_worker(digits):
    """The demo: 20 clients of 5 clusters hold 70 or 71 of the 1,438 training images
    each.
    """
    sizes = {"n_clients": np.int64(20), "n_clusters": 5, "classes_per_cluster": 2}
    feds = [rebuilt(label_clusters(digits, **sizes, seed=seed)) for seed in range(4)]
    x, _ = feds[0].client(3, "test")
    assert (
        feds[0].input_shape == (1, 8, 8)
        and set(feds[0].sizes) <= {70, 71}
        and x.min() >= 0
        and x.max() == 1
    )
    copy = pickle.loads(pickle.dumps(feds[0]))
    assert copy.fingerprint() == feds[0].fingerprint() and copy.test[0] is copy.test[3]
    with pytest.raises(AttributeError):
        copy.name = "frozen"
    assert len({fed.fingerprint() for fed in feds}) == 4
    assert len({str(fed.label_counts()[::4] > 0) for fed in feds}) == 4


PUBLISHED_LISTS = [[5, 3], [7, 9], [6, 2], [0, 1], [8, 4]]


def test_published_lists_blocks_and_filling():
    """Nine classes of 4 images, class 5 of 1: each of 10 clients wants 37 // 10 // 2 =
    1 image of both classes.
    """
    images = counted([4, 4, 4, 4, 4, 1, 4, 4, 4, 4])
    fed = label_clusters(images, 10, 5, 2, variant="as_run", seed=9)
    members = [
        np.flatnonzero((images.labels == c) & (images.split == 0)) for c in range(10)
    ]
    for i in range(10):
        a, b = PUBLISHED_LISTS[i // 2]
        first = (
            36 if i == 1 else members[a][i % 2]
        )  # class 5 has run out: the last of 37 images
        assert fed.train[i].tolist() == [first, members[b][i % 2]]
        assert np.array_equal(
            fed.test[i], images.test_index[np.isin(images.labels[37:], [a, b])]
        )
    assert (
        fed.fingerprint()
        == label_clusters(images, 10, 5, 2, variant="as_run", seed=0).fingerprint()
    )


def test_published_sharers_hold_the_same_images():
    images = counted([30] * 10)
    fed = label_clusters(images, 10, 5, 3, 1, variant="as_run")
    lists = [[5, 3, 7], [7, 9, 6], [6, 2, 0], [0, 1, 8], [8, 4, 5]]
    for i in range(10):
        assert images.labels[fed.train[i]].reshape(3, -1).tolist() == [
            [c] * 10 for c in lists[i // 2]
        ]
    for c in range(
        4
    ):  # the last class of a cluster is the first of the next one, block by block
        assert np.array_equal(fed.train[2 * c][20:], fed.train[2 * c + 2][:10])
    assert np.array_equal(fed.train[8][20:], fed.train[0][:10])


@prepared("mnist")
def test_published_and_described_partitions_of_mnist():
    """The facts read from the public code: 1,138 fillers in six clients, 58,862
    different images.
    """
    mnist, last = data.load("mnist", paths.ROOT / "data"), 59_999
    fed = label_clusters(mnist, 100, 5, 2, variant="as_run")
    assert mnist.labels[last] == 8 and (fed.sizes == 600).all()
    fillers = {
        i: int((index == last).sum())
        for i, index in enumerate(fed.train)
        if last in index
    }
    # client 99 holds the last image in its own right, too
    assert fillers == {18: 279, 19: 300, 39: 51, 59: 124, 79: 77, 99: 307 + 1}
    assert sum(fillers.values()) - 1 == 1138
    assert len(np.unique(np.concatenate(fed.train))) == 58_862
    own = np.array(
        [np.isin(np.arange(10), PUBLISHED_LISTS[i // 20]) for i in range(100)]
    )
    assert np.flatnonzero((fed.label_counts() * ~own).sum(axis=1)).tolist() == [
        18,
        19,
        39,
        59,
        79,
    ]
    assert [len(fed.test[20 * c]) for c in range(5)] == [1902, 2037, 1990, 2115, 1956]

    fed = label_clusters(mnist, 100, 5, 3, 1, variant="as_run")  # scenario 2
    assert sorted(np.unique(fed.label_counts())) == [0, 200]
    assert (
        len(np.unique(np.concatenate(fed.train))) == 40_000 and (fed.sizes == 600).all()
    )

    for per_cluster, shared in ((2, 0), (3, 1)):
        fed = label_clusters(mnist, 100, 5, per_cluster, shared, seed=0)
        everything = np.concatenate(fed.train)
        assert len(everything) == len(np.unique(everything)) > 58_000
        if not shared:
            assert (
                fed.sizes.max() == 600 and fed.sizes.min() >= 540
            )  # the two smallest classes: 271 + 292


@prepared("cifar10")
def test_published_partition_of_cifar10():
    cifar = data.load("cifar10", paths.ROOT / "data")
    one = label_clusters(cifar, 100, 5, 2, variant="as_run")
    assert (one.sizes == 500).all() and len(
        np.unique(np.concatenate(one.train))
    ) == 50_000
    assert sorted(
        np.unique(label_clusters(cifar, 100, 5, 3, 1, variant="as_run").label_counts())
    ) == [0, 166]
    x, _ = one.client(0, "train")
    assert x.shape == (500, 3, 32, 32) and x.min() == -1 and x.max() == 1


def test_from_arrays_by_hand():
    x = np.arange(12, dtype=np.float64).reshape(12, 1)
    y = [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0]
    client_ids = ["b"] * 6 + ["a"] * 6
    fed = Federation.from_arrays(
        x, y, client_ids, test_fraction=1 / 3, clusters=["x", "w"], val_fraction=1 / 6
    )
    assert (
        fed.n_clients == 2
        and fed.clusters.tolist() == [1, 0]
        and fed.input_shape == (1, 1, 1)
    )
    for i, positions in enumerate([range(6, 12), range(6)]):  # client 0 is "a"
        held = [fed.train[i], fed.val[i], fed.test[i]]
        assert [len(h) for h in held] == [3, 1, 2]
        assert sorted(np.concatenate(held)) == list(positions)
    # two test samples of four and two: shares 4/3 and 2/3, so one of each class
    assert fed.label_counts("test").tolist() == [[1, 1], [1, 1]]
    assert fed.client(1, "test")[0].ravel().tolist() == [float(k) for k in fed.test[1]]
    assert (
        json.dumps(fed.settings)
        and fed.settings["kind"] == "from_arrays"
        and fed.name == "own data"
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=2, max_size=80),
    st.floats(0.01, 0.8),
    st.floats(0, 0.19),
    st.integers(0, 5),
)
def test_from_arrays_properties(samples, test_fraction, val_fraction, seed):
    ids, y = np.array(samples).T
    x = np.random.default_rng(0).normal(size=(len(y), 3))
    lonely = np.unique(ids)[np.unique(ids, return_counts=True)[1] == 1]
    options = {
        "test_fraction": test_fraction,
        "val_fraction": val_fraction,
        "seed": seed,
        "class_names": "abc",
    }
    if len(lonely):
        refused(
            f"Client {lonely[0]} has a single sample", from_arrays, x, y, ids, **options
        )
        return
    fed = from_arrays(x, y, ids, **options)
    for i, client in enumerate(np.unique(ids)):
        held = np.concatenate([fed.train[i], fed.val[i], fed.test[i]])
        assert np.array_equal(np.sort(held), np.flatnonzero(ids == client))
        n = len(held)
        assert len(fed.train[i]) >= 1 and len(fed.test[i]) >= 1
        assert len(fed.test[i]) == min(max(round(test_fraction * n), 1), n - 1)
        share = np.bincount(y[held], minlength=3) * len(fed.test[i]) / n
        assert (np.abs(fed.label_counts("test")[i] - share) < 1).all()


def test_from_arrays_seed_and_content():
    x, y, ids = (
        np.random.default_rng(0).normal(size=(60, 2)),
        np.arange(60) % 3,
        np.arange(60) // 20,
    )
    fed = from_arrays(x, y, ids)
    assert fed.fingerprint() != from_arrays(x, y, ids, seed=1).fingerprint()
    assert fed.settings["content"] != from_arrays(x + 1, y, ids).settings["content"]
    assert (
        fed.settings["content"]
        != from_arrays(x, y, ids, clusters=[0, 1, 0]).settings["content"]
    )
    # splitting one client does not depend on the others
    alone = from_arrays(x[:20], y[:20], ids[:20], name="wards")
    assert np.array_equal(alone.test[0], fed.test[0]) and alone.name == "wards"
    colour = from_arrays(
        np.full((4, 2, 2, 3), 255, dtype=np.uint8), [0, 1, 0, 1], [0, 0, 1, 1]
    )
    assert colour.client(0)[0].max() == 1 and (
        colour.mean,
        colour.std,
        colour.input_shape,
    ) == (0.5, 0.5, (3, 2, 2))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_dirichlet_properties(pick):
    n_clients = pick.draw(st.integers(1, 12))
    n_clusters = pick.draw(st.none() | st.integers(1, n_clients))
    least = pick.draw(st.integers(1, 5))
    alpha = pick.draw(st.sampled_from([1e-9, 0.05, 0.5, 100.0]))
    images = counted(
        pick.draw(st.lists(st.integers(20, 40), min_size=3, max_size=3)), [5, 4, 3]
    )
    fed = dirichlet(
        images, n_clients, alpha, pick.draw(st.integers(0, 9)), least, n_clusters
    )
    assert np.array_equal(np.sort(np.concatenate(fed.train)), images.train_index)
    assert np.array_equal(np.sort(np.concatenate(fed.test)), images.test_index)
    assert fed.sizes.min() >= least and fed.n_clusters == n_clusters


def test_dirichlet_concentration_one_mixture_per_cluster_and_tests_like_training(
    digits,
):
    shares = [
        np.mean(
            [
                dirichlet(digits, 10, alpha, seed).summary()["largest_share"].mean()
                for seed in range(3)
            ]
        )
        for alpha in (0.05, 1.0, 1000.0)
    ]
    assert shares[0] > 0.6 and shares[2] < 0.13 and shares[0] > shares[1] > shares[2]
    fed = dirichlet(digits, 12, 0.3, seed=1, min_samples=1, n_clusters=3)
    counts = fed.label_counts()
    for cluster in range(3):
        assert np.ptp(counts[fed.clusters == cluster], axis=0).max() <= 1
    assert np.abs(counts[0] - counts[4]).max() > 5
    fed = dirichlet(digits, 4, 0.3, seed=0)
    train, test = fed.label_counts("train"), fed.label_counts("test")
    assert np.abs(test - train / train.sum(axis=0) * test.sum(axis=0)).max() < 1


def test_dirichlet_repair_by_hand():
    """alpha near 0 gives every class to one client; the others get the least number
    from the largest.
    """
    fed = dirichlet(counted([10, 10], [3, 3]), 5, 1e-9, min_samples=2)
    assert np.sort(fed.sizes)[:3].tolist() == [2, 2, 2] and fed.sizes.sum() == 20
    assert all(len(t) >= 1 for t in fed.test)
    train, test = fed.label_counts(), fed.label_counts("test")
    assert (
        train[test > 0] > 0
    ).all()  # nobody is tested on a class it does not train on


def test_max_train_is_balanced_seeded_and_recorded():
    images = counted([3, 20, 20], [5] * 3)
    fed = dirichlet(images, 2, 1.0, min_samples=1, max_train=19)
    assert (
        fed.label_counts().sum(axis=0).tolist() == [3, 8, 8]
        and fed.settings["max_train"] == 19
    )
    assert (
        fed.label_counts("test").sum(axis=0).tolist() == [5] * 3
    )  # test images are all kept
    other, whole = (
        dirichlet(images, 2, 1.0, seed, 1, None, n) for seed, n in ((1, 19), (0, 1000))
    )
    assert set(np.concatenate(fed.train)) != set(np.concatenate(other.train))
    assert np.array_equal(np.sort(np.concatenate(whole.train)), images.train_index)


def test_defaults_are_filled_in_and_left_out_of_canonical_settings():
    short = {
        "kind": "label_clusters",
        "dataset": "digits",
        "n_clients": 20,
        "n_clusters": 5,
        "classes_per_cluster": 2,
    }
    full = federations.complete(short)
    assert full["seed"] == 0 and full["variant"] == "as_written" and "seed" not in short
    assert federations.build(short).settings == full
    least = {"kind": "dirichlet", "dataset": "digits", "n_clients": 4, "alpha": 1}
    full = federations.complete(least | {"alpha": 1.0, "seed": np.int64(0)})
    assert federations.canonical(full) == least and json.dumps(
        federations.canonical(full)
    ) == json.dumps(least)
    base = {key: value for key, value in least.items() if key != "dataset"}
    over = {
        "kind": "shuffled",
        "dataset": "digits",
        "base": {"kind": "divided", "base": base},
        "scaling": "mnist",
    }
    fed = federations.build(over)
    assert (
        "train_fraction" in fed.settings["base"]
        and "seed" in fed.settings["base"]["base"]
    )
    assert federations.canonical(fed.settings) == over == federations.canonical(over)
    assert (
        federations.build(federations.canonical(fed.settings)).fingerprint()
        == fed.fingerprint()
    )
    turned = {"kind": "rotated", "dataset": "mnist", "n_clients": 8}  # loads nothing
    assert (
        federations.canonical(turned | {"angles": [[0.0], [90], [180], [270]]})
        == turned
    )
    refused(
        "alpha must be a number above 0",
        federations.canonical,
        over | {"base": base | {"alpha": 0}},
    )


ARRAYS = {"x": np.ones((4, 2)), "y": [0, 1, 0, 1], "client_ids": [0, 0, 1, 1]}
REFUSED = [
    (
        lambda given: by_hand(**given),
        [
            ({"train": [[0, 1], []]}, "Client 1 has no train samples"),
            ({"test": [[], [4]]}, "Client 0 has no test samples"),
            (
                {"train": [[0, 6], [1]]},
                "part of client 0 has positions outside .* give positions of 0 to 5",
            ),
            ({"train": [[0], [-1]]}, "train part of client 1 has positions outside"),
            (
                {"train": [[0], [0.5]]},
                "train part of client 1 must be a flat array of integer positions",
            ),
            ({"train": [], "test": [], "clusters": None}, "at least one client"),
            ({"test": [[4]]}, "not {'train': 2, .*'test': 1"),
            (
                {"labels": [0, 1, 1, 0, 0, 2]},
                "Labels run from 0 to 2, but there are 2 classes",
            ),
            ({"labels": [0, 1, 1, 0, 0, -1]}, "Labels run from -1"),
            ({"labels": [0, 1]}, "Labels must be 6 integers"),
            ({"clusters": [0]}, "clusters must be 2 integers"),
            ({"class_names": ["a"]}, "1 class names for 2 classes"),
            ({"images": np.zeros((6, 2, 2), np.int64)}, "Samples of type int64"),
            ({"images": np.zeros(6)}, "Samples must have shape"),
            ({"images": np.full((6, 2), np.nan)}, "NaN or infinite"),
            ({"images": np.full((6, 2), 1e300)}, "NaN or infinite"),
            ({"std": 0.0}, "std above 0"),
            ({"settings": {"a": np.zeros(2)}}, "plain JSON"),
        ],
    ),
    (
        lambda given: label_clusters(counted([20] * 10), *given),
        [
            ((10, 6, 3, 1), "need 12 classes but toy has 10"),
            ((500, 5, 2), "more clients than samples: .* for 500 clients"),
            (
                (105, 5, 2, 0, 0, "as_written", 2),
                "more clients than samples: 20 of class . for 21",
            ),
            ((10, 5, 2, 2), "at most half"),
        ],
    ),
    (
        lambda given: from_arrays(**(ARRAYS | given)),
        [
            (
                {"y": [0.5, 1.5, 0.5, 1.5]},
                "Classes in labels of the clients are decimal numbers",
            ),
            (
                {"y": ["cat", "dog", "cat", "dog"], "class_names": ["cat", "dog"]},
                r"Labels must be 4 integers.*np\.unique",
            ),
            (
                {"y": [1, 2, 1, 2]},
                "Labels run from 1 to 2, but there are 2 classes, from 0: number them",
            ),
            ({"y": [0, 1, 0]}, r"not \(4, 2\), \(3,\), \(4,\)"),
            (
                {"client_ids": np.array([0, 0, "a", "a"], dtype=object)},
                "client_ids mix values",
            ),
            (
                {"client_ids": ["ann", "ann", "bob", np.nan]},
                "Some client_ids are missing",
            ),
            (
                {"x": np.zeros((0, 2)), "y": np.zeros(0, dtype=int), "client_ids": []},
                "N at least 1",
            ),
            (
                {"x": np.zeros((4, 3, 8, 8), np.uint8)},
                r"look channels first: give .*x.transpose\(0, 2, 3, 1\)",
            ),
            (
                {"test_fraction": 0.0},
                "test_fraction must be a number above 0 and below 1",
            ),
            ({"test_fraction": 0.6, "val_fraction": 0.4}, "leave nothing to train on"),
        ],
    ),
    (
        lambda given: dirichlet(counted([20] * 10), *given),
        [
            (
                (10, 1.0, 0, 30),
                "200 training and .* too few for 10 clients with at least 30",
            ),
            ((25, 1.0, 0, 1), "too few for 25 clients"),
            ((10, 1.0, 0, 1, 11), r"more clusters \(11\) than clients \(10\)"),
            ((10, 1.0, 0, 10, None, 50), "has 50 training and .* for 10 clients"),
        ],
    ),
    (
        federations.build,
        [
            ({}, "Unknown kind of federation None"),
            (
                {"kind": "rotations"},
                "Unknown kind of federation 'rotations': "
                "choose one of .*label_clusters, ",
            ),
            (
                {"kind": "dirichlet", "dataset": "digits", "aplha": 1},
                "option of a dirichlet federation 'aplha'",
            ),
            (
                {"kind": "dirichlet", "dataset": "digits"},
                "A dirichlet federation needs n_clients",
            ),
            (
                {"kind": "dirichlet", "n_clients": 3, "alpha": 1},
                "dirichlet federation need a dataset",
            ),
            (
                {"kind": "dirichlet", "dataset": "nope", "n_clients": 3, "alpha": 1},
                "Unknown data set 'nope'",
            ),
            ({"kind": "from_arrays", "content": "x"}, "own arrays cannot be rebuilt"),
            (
                {"kind": "dirichlet", "dataset": "toy", "content": "x"},
                "'toy' are images of your own",
            ),
        ],
    ),
]


@pytest.mark.parametrize("name", federations.KINDS)
def test_every_option_of_every_kind_is_checked_by_its_annotation(digits, name):
    make = federations.KINDS[name]
    needed = {"n_clients": 4, "n_clusters": 2, "classes_per_cluster": 2, "alpha": 1.0}
    needed |= {"events": [{"round": 2, "join": 1}]}
    needed |= {
        "base": {"kind": "dirichlet", "n_clients": 4, "alpha": 1.0},
        "other": "digits",
    }
    needed |= {"tasks": [[0], [1]], "users_per_task": [1, 1], "samples_per_user": 5}
    options = [*inspect.signature(make).parameters][1:]
    for option in options:
        given = {name: value for name, value in needed.items() if name in options}
        for wrong in (-1, "nothing", float("nan")):
            refused(".", make, digits, **given | {option: wrong})


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [(make, given, message) for make, cases in REFUSED for given, message in cases],
)
def test_refused(make, given, message):
    refused(message, make, given)


def test_pixels_in_floats_are_named():
    with pytest.warns(UserWarning, match="give them as uint8, or divide by 255"):
        from_arrays(
            **(ARRAYS | {"x": [[0.0, 255.0], [3.0, 9.0], [7.0, 80.0], [1.0, 2.0]]})
        )


def test_rows_of_an_array_are_the_clients_parts():
    rows = {
        "train": np.array([[0, 1], [2, 3]], dtype=np.int32),
        "test": np.array([[4], [5]], dtype=np.int32),
    }
    fed = by_hand(**rows)
    assert [[own.tolist() for own in getattr(fed, split)] for split in rows] == [
        [[0, 1], [2, 3]],
        [[4], [5]],
    ]
    few = {"kind": "dirichlet", "n_clients": 3, "alpha": 1.0, "max_train": 30}
    over = {"kind": "held_out", "dataset": "digits", "base": few, "val_fraction": 0.999}
    refused(
        "would keep none of .* training samples: lower val_fraction",
        federations.build,
        over,
    )


def test_the_base_of_a_recipe_is_a_recipe():
    dict_of_settings = {"kind": "label_clusters", "n_clients": 4, "n_clusters": 2}
    said = "base must be a recipe, fl.recipe.kind, .*, not dict"
    refused(said, recipe, "changing", "digits", base=dict_of_settings)


def test_the_image_set_of_a_recipe_is_that_of_its_base():
    few = {"n_clients": 4, "alpha": 1.0}
    whole = recipe("held_out", "digits", recipe("dirichlet", **few))
    for base in (recipe("dirichlet", "digits", **few), recipe("dirichlet", **few)):
        assert recipe("held_out", "digits", base).settings == whole.settings
    made = recipe("held_out", base=recipe("dirichlet", "digits", **few))
    assert made.settings == whole.settings and made.dataset == "digits"
    assert made.build().n_clients == 4 and recipe("dirichlet", **few).dataset == ""
    other = recipe("dirichlet", "mnist", **few)
    says = "of digits cannot have a base of mnist"
    refused(says, recipe, "held_out", "digits", other)
