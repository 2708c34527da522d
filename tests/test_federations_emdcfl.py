"""EMD-CFL's federations: rotated copies, backdoors in colours and patches, domains."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from toys import prepared, rebuilt, refused, toy_set

import fltnb as fl
from fltnb import federations
from fltnb.data import load, pacs
from fltnb.federations import (
    backdoor,
    backdoor_colours,
    backdoor_patches,
    domains,
    rotated_copies,
)
from fltnb.federations.domains import turn
from fltnb.federations.shares import deal, hold_out, spread


def images(per_class=12, classes=4, size=6, colour=False, tests=6, **more):
    """Random images of classes 0, 1, ..., 0, 1, ... in order, training part first."""
    labels = np.tile(np.arange(classes), per_class + tests)
    shape = (len(labels), size, size, 3) if colour else (len(labels), size, size)
    pixels = np.random.default_rng(0).integers(1, 256, shape, dtype=np.uint8)
    return toy_set(
        pixels,
        labels,
        np.repeat([0, 1], [classes * per_class, classes * tests]),
        classes,
        **more,
    )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_dealing_properties(pick):
    counts = pick.draw(st.lists(st.integers(6, 20), min_size=2, max_size=4))
    clients = pick.draw(st.integers(1, 3))
    labels = np.repeat(np.arange(len(counts)), counts)
    index = np.random.default_rng(0).permutation(len(labels))
    each = pick.draw(st.none() | st.integers(len(counts), sum(counts) // clients))
    parts = deal(index, labels, clients, each, np.random.default_rng(1), "toy")
    held = np.concatenate(parts)
    assert len(parts) == clients and len(np.unique(held)) == len(held)
    assert (
        len(held) == len(index)
        if each is None
        else {len(part) for part in parts} == {each}
    )
    counted = np.array(
        [np.bincount(labels[part], minlength=len(counts)) for part in parts]
    )
    assert (
        np.ptp(counted, axis=0).max() <= 2
    )  # every client has as many of a class as any other
    assert (np.diff(labels[parts[0]]) >= 0).all()
    fraction = pick.draw(st.floats(0.3, 0.6))
    kept, back = hold_out(parts[0], fraction)
    assert len(back) == round(fraction * len(parts[0]))
    assert np.array_equal(np.sort(np.concatenate([kept, back])), np.sort(parts[0]))
    share = np.bincount(labels[back], minlength=len(counts)) / len(back)
    assert np.abs(share - counted[0] / counted[0].sum()).max() <= 1 / len(back) + 1e-9


def test_every_rotation_has_a_copy_of_everything():
    assert (
        spread(4, 2).tolist() == [1, 3]
        and spread(5, 5).tolist() == [0, 1, 2, 3, 4]
        and spread(3, 0).tolist() == []
    )
    toy = images()
    fed = rotated_copies(
        toy, n_clients=6, angles=((0,), (90,), (180,)), val_fraction=0.25
    )
    assert fed.clusters.tolist() == [0, 0, 1, 1, 2, 2]
    for cluster, angle in enumerate((0, 90, 180)):
        own = np.flatnonzero(fed.clusters == cluster)
        for splits, index in (
            (("train", "val"), toy.train_index),
            (("test",), toy.test_index),
        ):
            held = np.concatenate(
                [getattr(fed, split)[i] for split in splits for i in own]
            )
            expected = {
                np.rot90(toy.images[k], angle // 90).tobytes(): toy.labels[k]
                for k in index
            }
            assert len(held) == len(expected)
            assert {fed.images[k].tobytes(): fed.labels[k] for k in held} == expected
    assert fed.sizes.tolist() == [18] * 6 and {len(v) for v in fed.val} == {6}
    assert (fed.label_counts("train") + fed.label_counts("val") == 6).all() and (
        fed.label_counts("test") == 3
    ).all()


def test_the_papers_sizes_and_versions(digits):
    fed = rotated_copies(digits, 12)
    assert (
        fed.clusters.tolist() == np.repeat(range(4), 3).tolist()
        and fed.val[0].size == 48
    )
    assert fed.sizes.sum() + sum(map(len, fed.val)) == 4 * len(digits.train_index)
    two = rotated_copies(
        digits, 8, ((-3, 3), (177, 183)), samples_per_client=100, test_per_client=20
    )
    assert two.clusters.tolist() == [0] * 4 + [1] * 4 and two.sizes.tolist() == [90] * 8
    assert {len(part) for part in two.test} == {20}
    assert rotated_copies(digits, 8, ((-3, -1, 1, 3),)).n_clusters == 1
    base = rotated_copies(digits, 4, ((0,),))
    assert (
        base.n_clusters == 1
        and np.isin(base.images[base.train[0][:5]], digits.images).all()
    )
    rebuilt(two)
    assert rotated_copies(digits, 12, seed=1).fingerprint() != fed.fingerprint()


def test_turning_is_that_of_rotated_and_adds_up():
    square = images(classes=2).images
    assert np.array_equal(turn(square, 90), np.rot90(square, axes=(1, 2)))
    assert np.array_equal(turn(turn(square, 90), 270), square) and np.array_equal(
        turn(square, 360), square
    )
    bright = np.zeros((1, 9, 9), np.uint8)
    bright[0, 4, 7] = 255  # right of the middle: turned counter-clockwise it moves up
    assert np.argwhere(turn(bright, 45)[0] > 60)[0].tolist() == [2, 6]
    colour = images(colour=True, classes=2).images
    assert np.array_equal(
        turn(colour, 30)[..., 1], turn(np.ascontiguousarray(colour[..., 1]), 30)
    )


def test_colours_by_hand():
    grey = np.array([[[255, 100]], [[255, 100]]], dtype=np.uint8)
    painted = backdoor.tinted(grey, np.array([backdoor.GREEN, backdoor.PURPLE]))
    assert painted[0, 0].tolist() == [
        [66, 160, 102],
        [26, 63, 40],
    ]  # 0.26, 0.63, 0.4 of it, rounded down
    assert painted[1, 0, 0].tolist() == [149, 52, 235]
    assert backdoor.shade(np.array([3])).round(4).tolist() == [[0.0769, 0.5385, 0.4]]
    assert backdoor.shade(np.array([46])).round(4).tolist() == [
        [1.0, 1.0, 0.4]
    ]  # EMNIST has more classes than shades
    pixels = np.full((2, 4, 4, 3), 9, np.uint8)
    marked = backdoor.patched(pixels, np.array([0, 2]), 2)
    assert (marked[0, :2, :2] == (31, 119, 180)).all() and (
        marked[1, :2, :2] == (44, 160, 44)
    ).all()
    assert (
        (marked[:, 2:] == 9).all()
        and (marked[:, :, 2:] == 9).all()
        and (pixels == 9).all()
    )


def test_backdoor_colours_by_hand():
    toy = images()
    fed, misled = (
        backdoor_colours(toy, 6, val_fraction=0.25, test=test)
        for test in ("clean", "backdoored")
    )
    assert (
        fed.clusters.tolist() == [0, 0, 1, 1, 2, 2]
        and fed.input_shape == (3, 6, 6)
        and fed.mean == 0.5
    )
    grey = {c: toy.images[toy.labels == c] for c in range(4)}
    for client, group in enumerate(fed.clusters):
        for split in ("train", "val", "test"):
            for k in getattr(fed, split)[client]:
                c = fed.labels[k]
                colour = (
                    backdoor.GREEN,
                    backdoor.shade(np.array([c]))[0],
                    backdoor.PURPLE,
                )[group]
                assert _is_tint(fed.images[k], grey[c], colour)
        for k, j in zip(fed.test[client], misled.test[client], strict=True):
            assert fed.labels[k] == misled.labels[j]
            assert _is_tint(
                misled.images[j],
                grey[fed.labels[k]],
                backdoor.shade(np.array([3 - fed.labels[k]]))[0],
            )
    # each group has a copy of everything
    assert (fed.label_counts("train") + fed.label_counts("val")).sum(
        axis=0
    ).tolist() == [36] * 4


def _is_tint(painted, candidates, colour):
    return (
        (np.floor(candidates[..., None] * np.asarray(colour) + 1e-9) == painted)
        .all(axis=(1, 2, 3))
        .any()
    )


def test_backdoor_patches_by_hand():
    toy = images(colour=True)
    fed, misled = (
        backdoor_patches(toy, 3, test=test, patch=2) for test in ("clean", "backdoored")
    )
    counts = fed.label_counts("train")
    assert (
        (counts[:2, 2:] == 0).all()
        and (counts[2, :2] == 0).all()
        and (counts[:2, :2] > 0).all()
    )
    original = {image[2:].tobytes(): image for image in toy.images}
    for client, group in enumerate(fed.clusters):
        for split, tested in (
            ("train", fed),
            ("val", fed),
            ("test", fed),
            ("test", misled),
        ):
            for k in getattr(tested, split)[client]:
                image, c = tested.images[k], tested.labels[k]
                patch = image[:2, :2]
                if tested is misled:
                    assert (patch == backdoor.PATCHES[(c + 1) % 2]).all()
                elif group == 1:
                    assert (patch == backdoor.PATCHES[c]).all()
                else:
                    assert np.array_equal(image, original[image[2:].tobytes()])


def test_published_variant_halves_what_clean_clients_train_on(digits):
    described, published = (
        backdoor_colours(digits, 6, variant=v) for v in ("as_written", "as_run")
    )
    half = described.sizes // 2
    assert published.sizes.tolist() == [
        half[0],
        half[1],
        *described.sizes[2:4],
        half[4],
        half[5],
    ]
    assert [len(v) for v in published.val] == [len(v) for v in described.val]


def test_a_run_ends_with_the_probe(digits):
    """Training never sees test images, so that an engine for the attacked federation
    finds what the probe does.
    """
    made = {"n_clients": 3, "samples_per_client": 60, "test_per_client": 30}
    clean, wrong, both = (
        backdoor_colours(digits, **made, test=test)
        for test in ("clean", "backdoored", "both")
    )
    options = {
        "rounds": 2,
        "participation": 1.0,
        "lr": 0.3,
        "local_epochs": 5,
        "backend": "serial",
        "progress": False,
    }
    runs = [
        fl.run(fl.methods.FedAvg(), fed, model="mlp_plain", **options)
        for fed in (clean, wrong, both)
    ]
    assert np.array_equal(runs[0].theta, runs[1].theta) and np.array_equal(
        runs[0].theta, runs[2].theta
    )
    probed = runs[2].history[runs[2].history["split"] == "probe"]
    assert probed["round"].tolist() == [2]
    net = fl.models.make("mlp_plain", clean.input_shape, clean.n_classes)
    with fl.training.make_engine(
        wrong, net, fl.training.TrainSpec(), "serial"
    ) as engine:
        found = engine.evaluate(runs[0].theta, runs[0].rows, np.arange(3), "test")
    for seen in (runs[1].clients["test"], runs[2].clients["probe"]):
        np.testing.assert_allclose(seen, 100 * found.correct / found.total)
    assert not np.allclose(runs[2].clients["probe"], runs[2].clients["test"])


def test_domains_by_hand():
    of = np.repeat(np.arange(3), (30, 40, 61)).astype(np.uint8)
    toy = dataclasses.replace(
        images(44, 3, tests=1).subset(np.arange(131), "toy"), domains=of
    )
    fed = domains(toy, min_samples=20, val_fraction=0.1, test_fraction=0.2)
    assert fed.clusters.tolist() == [
        0,
        1,
        1,
        2,
        2,
        2,
    ]  # 30, 40 and 61 images, 20 each at least
    held = [np.concatenate([fed.train[i], fed.val[i], fed.test[i]]) for i in range(6)]
    assert [len(part) for part in held] == [30, 20, 20, 21, 20, 20]
    assert len(np.unique(np.concatenate(held))) == len(toy)
    assert all((of[part] == fed.clusters[i]).all() for i, part in enumerate(held))
    assert list(map(len, fed.test)) == [6, 4, 4, 4, 4, 4] and list(
        map(len, fed.val)
    ) == [3, 2, 2, 2, 2, 2]
    assert (fed.label_counts("train") > 0).all()
    assert domains(toy, 20, samples_per_client=18).sizes.tolist() == [14] * 6


@prepared("pacs")
def test_pacs_has_the_papers_18_clients():
    fed = federations.build({"kind": "domains", "dataset": "pacs"})
    assert fed.n_clients == 18 and np.bincount(fed.clusters).tolist() == [4, 4, 3, 7]
    sizes = np.array(
        [
            [len(part) for part in getattr(fed, split)]
            for split in federations.SPLITS[:3]
        ]
    )
    assert sizes.sum() == 9991 and sizes.sum(axis=0).min() >= 500
    assert np.allclose(sizes.sum(axis=1) / 9991, [0.8, 0.1, 0.1], atol=0.005)
    assert fed.n_classes == 7 and (fed.label_counts("train") > 0).all()


def release(folder, skip=(), domains=pacs.DOMAINS):
    rng = np.random.default_rng(0)
    for place in itertools.product(domains, pacs.CLASS_NAMES):
        if place not in skip:
            (folder / "/".join(place)).mkdir(parents=True)
            for n in range(2):
                pixels = rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / "/".join(place) / f"{n}.png")


def test_the_official_folders_are_converted_once(tmp_path, capsys):
    release(tmp_path / "PACS" / "kfold")
    found = load("pacs", tmp_path)
    assert (
        found.images.shape == (4 * 7 * 2, 96, 96, 3)
        and np.bincount(found.domains).tolist() == [14] * 4
    )
    assert (
        np.bincount(found.labels).tolist() == [8] * 7
        and "converting" in capsys.readouterr().out
    )
    assert (
        load("pacs", tmp_path).digest == found.digest and capsys.readouterr().out == ""
    )
    fed = federations.build(
        {"kind": "domains", "dataset": "pacs", "min_samples": 14, "test_fraction": 0.3},
        tmp_path,
    )
    assert fed.n_clients == 4


def test_missing_incomplete_and_damaged_pacs(tmp_path):
    refused("no download of its own", load, "pacs", tmp_path)
    release(tmp_path / "one" / "PACS", skip=[("photo", "house")])
    refused("lacks the class 'house' of domain 'photo'", load, "pacs", tmp_path / "one")
    release(tmp_path / "two" / "PACS", domains=pacs.DOMAINS[:3])
    refused("lacks the domain 'sketch'", load, "pacs", tmp_path / "two")
    release(tmp_path / "PACS")
    (tmp_path / "PACS" / "photo" / "dog" / "1.png").write_bytes(b"no image")
    refused("cannot be read as a picture", load, "pacs", tmp_path)


def test_bad_input_is_refused(digits):
    refused(r"more angles \(4\) than clients \(3\)", rotated_copies, digits, 3)
    refused(
        "2 clients with 800 training images each need more than there are",
        rotated_copies,
        digits,
        8,
        samples_per_client=800,
    )
    refused(
        "fewer than the 10 classes", rotated_copies, digits, 8, samples_per_client=9
    )
    refused(
        "is less than one image",
        rotated_copies,
        digits,
        8,
        samples_per_client=12,
        val_fraction=0.01,
    )
    refused("needs grey images", backdoor_colours, images(colour=True), 3)
    refused("needs colour images", backdoor_patches, digits, 3)
    refused(
        "patch of 7 pixels does not fit",
        backdoor_patches,
        images(colour=True),
        3,
        patch=7,
    )
    for few in (1, 3):  # half of 3 is one class, whose patch is never wrong
        refused(
            f"{few} classes are not possible",
            backdoor_patches,
            images(colour=True, classes=few),
            3,
        )
    refused("have no domains", domains, digits)
    refused(
        "has only 72 images: lower min_samples, which is 80",
        domains,
        images(domains=np.zeros(72, np.uint8)),
        80,
    )
    refused(
        "leave nothing",
        domains,
        images(domains=np.zeros(72, np.uint8)),
        24,
        val_fraction=0.95,
    )


@pytest.mark.parametrize("build", [backdoor_colours, backdoor_patches])
def test_both_tests_in_one_federation_are_those_of_two(build):
    """The probe of test="both" is the test of test="backdoored"; training and clean
    test are untouched.
    """
    pictures = images(colour=build is backdoor_patches)
    clean, wrong, both = (
        build(pictures, n_clients=3, test=test)
        for test in ("clean", "backdoored", "both")
    )
    for split, other in (
        ("train", clean),
        ("val", clean),
        ("test", clean),
        ("probe", wrong),
    ):
        for i in range(3):
            theirs = other.client(i, "test" if split == "probe" else split)
            assert all(map(np.array_equal, both.client(i, split), theirs))
    assert both.probed and not clean.probed
    assert len({fed.fingerprint() for fed in (clean, wrong, both)}) == 3
