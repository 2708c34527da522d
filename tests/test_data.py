import hashlib
import json
import sys
import types
import warnings
from urllib.error import URLError

import numpy as np
import pytest
import torch
from toys import prepared, refused

from fltnb import data, federations, paths
from fltnb.data import ImageSet, features
from fltnb.data import files as prepared_files
from fltnb.data import prepared as sets
from fltnb.data.files import known_origin
from fltnb.encoders import EncoderSpec, embed_clients
from fltnb.federations import Federation


def tiny(n=6, **changes):
    """Six 2x2 grey images of three classes, two of them for testing."""
    arrays = {
        "images": np.arange(n * 4, dtype=np.uint8).reshape(n, 2, 2),
        "class_names": np.array(["a", "b", "c"]),
    }
    arrays["split"] = np.array([0, 0, 0, 0, 1, 1] * (n // 6), dtype=np.uint8)
    return arrays | {"labels": np.arange(n, dtype=np.int64) % 3} | changes


def image_set(**changes):
    return ImageSet(
        **(tiny(class_names=("a", "b", "c"), name="tiny", origin="made up") | changes)
    )


@pytest.fixture
def no_network(monkeypatch):
    """Make every download fail as it does without a network; return the list of
    attempts.
    """
    import torchvision

    attempts = []

    def refuse(*args, **kwargs):
        attempts.append(kwargs)
        raise RuntimeError(
            "Error downloading x:\nTried a mirror, got:\nno route\n"
        ) from URLError("no route")

    for kind, _, _ in data.SOURCES.values():
        monkeypatch.setattr(torchvision.datasets, kind, refuse)
    return attempts


def test_image_set_by_hand_and_a_part_of_it():
    images = image_set(writers=np.arange(6, dtype=np.int32))
    assert images.n_classes == 3 and len(images) == 6
    assert images.train_index.tolist() == [
        0,
        1,
        2,
        3,
    ] and images.test_index.tolist() == [4, 5]
    assert images.train_index.dtype == np.int64
    table = images.summary()
    assert table["train"].tolist() == [2, 1, 1] and table["test"].tolist() == [0, 1, 1]
    assert "4 training and 2 test images 2x2, 3 classes; made up" in repr(images)
    part = images.subset(np.array([5, 0]))
    assert (
        part.labels.tolist() == [2, 0]
        and part.writers.tolist() == [5, 0]
        and part.domains is None
    )
    assert part.class_names == images.class_names and part.name == "tiny[2]"
    assert (
        images.subset(images.labels == 1, "ones").images.tolist()
        == images.images[[1, 4]].tolist()
    )
    refused("outside 0 to 5", images.subset, np.array([6]))
    refused("outside 0 to 5", images.subset, np.array([-1]))
    assert images.subset(slice(2)).labels.tolist() == images.labels[:2].tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": np.zeros((6, 2, 2))}, "images must be uint8, not float64"),
        ({"labels": np.zeros(6, dtype=np.int32)}, "labels must be int64"),
        (
            {"labels": np.zeros(5, dtype=np.int64)},
            r"labels has shape \(5,\) for 6 images",
        ),
        (
            {"labels": np.array([0, 1, 2, 3, 0, 0])},
            "labels run from 0 to 3 but there are 3 class names",
        ),
        ({"split": np.array([0, 0, 0, 2, 1, 1], dtype=np.uint8)}, "only 0"),
        ({"images": np.zeros((6, 4), dtype=np.uint8)}, r"not \(6, 4\)"),
        ({"images": np.zeros((6, 2, 2, 4), dtype=np.uint8)}, "images must have shape"),
        ({"writers": np.zeros(4, dtype=np.int32)}, "writers has shape"),
        ({"domains": [0] * 6}, "domains must be uint8, not list"),
    ],
)
def test_image_set_refuses(changes, message):
    refused(message, image_set, **changes)


def test_digest_sees_every_array_and_no_memory_layout():
    others = {
        "labels": np.zeros(6, dtype=np.int64),
        "split": np.array([0, 0, 0, 1, 1, 1], dtype=np.uint8),
    }
    others["images"] = image_set().images.reshape(6, 4, 1)
    assert (
        len(
            {
                image_set().digest,
                *(image_set(**{name: a}).digest for name, a in others.items()),
            }
        )
        == 4
    )
    assert image_set().digest == image_set(name="other").digest
    array = np.arange(6).reshape(2, 3)
    assert data.array_digest(array) == data.array_digest(np.asfortranarray(array))
    assert data.array_digest(array) != data.array_digest(array.astype(np.int32))


def test_digits():
    from sklearn.datasets import load_digits

    digits, raw = data.load("digits"), load_digits()
    assert digits.images.shape == (1797, 8, 8) and digits.images.max() == 255
    assert np.array_equal(digits.labels, raw.target)
    assert (
        np.abs(digits.images / 255 * 16 - raw.images).max() < 0.04
    )  # rounding to one of 256 steps
    table = digits.summary()
    assert (table["test"] == (table["train"] + table["test"]).div(5).round()).all()
    assert (
        digits.digest == data.load("digits").digest == "5da86954b8d38913"
    )  # stored results hang on this division


def test_prepared_file_is_read(tmp_path, monkeypatch):
    np.savez(tmp_path / "mnist.npz", writers=np.arange(6, dtype=np.int32), **tiny())
    images = data.load("mnist", tmp_path)
    assert (
        images.name == "mnist"
        and images.class_names == ("a", "b", "c")
        and images.writers[5] == 5
    )
    assert (
        images.origin == f"prepared file without stated origin (sha256 {images.digest})"
    )
    np.savez(tmp_path / "mnist.npz", origin=np.array("from a friend"), **tiny())
    monkeypatch.setattr(
        paths, "data", lambda: [tmp_path / "absent", tmp_path]
    )  # the first folder that has it
    assert (
        data.load("mnist", tmp_path).origin
        == data.load("mnist").origin
        == "from a friend"
    )


def test_a_file_without_origin_is_recognised_by_content(tmp_path, monkeypatch):
    known = {image_set().digest: "a set that we know"}
    monkeypatch.setattr(prepared_files, "KNOWN_CONTENT", known)

    def origin(**changes):
        np.savez(tmp_path / "cifar10.npz", **tiny(**changes))
        return data.load("cifar10", tmp_path).origin

    assert origin() == "a set that we know"
    # What else a file holds does not count, one pixel does.
    assert origin(packed_from_copies=np.array([1, 4])) == "a set that we know"
    other = tiny()["images"].copy()
    other[5, 1, 1] += 1
    assert origin(images=other).startswith("prepared file without stated origin")
    assert origin(origin=np.array("from a friend")) == "from a friend"

    for damaged in (b"", b"PK\x03\x04", b"not an archive"):
        (tmp_path / "mnist.npz").write_bytes(damaged)
        says = "not a sound prepared data set"
        refused(says, prepared_files.origin, tmp_path / "mnist.npz")

    # a result that is older than the entry
    digest = image_set().digest
    stored = f"features of tiny: prepared file without stated origin (sha256 {digest})"
    assert known_origin(stored) == "features of tiny: a set that we know"
    assert known_origin("from a friend") == "from a friend"


def test_an_earlier_or_unknown_prepared_file_is_told(tmp_path, monkeypatch):
    digest = image_set().digest
    np.savez(tmp_path / "cifar10.npz", **tiny())
    with pytest.warns(UserWarning, match=f"in another order .sha256 {digest}.*delete"):
        data.load("cifar10", tmp_path)

    known = {digest: "a set from JPEG copies"}
    monkeypatch.setattr(prepared_files, "KNOWN_CONTENT", known)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data.load("cifar10", tmp_path)
    monkeypatch.setattr(prepared_files, "EARLIER", {digest: "cifar10"})
    says = "earlier file of cifar10 .a set from JPEG copies.*as on copies: delete it"
    with pytest.warns(UserWarning, match=says):
        data.load("cifar10", tmp_path)


def test_a_file_says_which_images_are_copies(tmp_path):
    def copied(*positions):
        origin = np.array("from a friend")
        positions = np.array(positions, dtype=np.int32)
        content = tiny(origin=origin, packed_from_copies=positions)
        np.savez(tmp_path / "cifar10.npz", **content)
        return data.load("cifar10", tmp_path)

    images = copied(4, 1)
    assert np.flatnonzero(images.copied).tolist() == [1, 4]
    assert images.subset([4, 5]).copied.tolist() == [True, False]
    assert images.copied_at(np.array([0, 1])).tolist() == [False, True]
    assert image_set().copied_at(np.array([0, 1])).tolist() == [False, False]
    assert not copied().copied.any()
    refused("packed_from_copies has positions outside 0 to 5", copied, 6)
    refused("packed_from_copies has positions outside 0 to 5", copied, -1)

    written = tmp_path / "own.npz"
    prepared_files.write(written, images)
    assert np.flatnonzero(prepared_files.read(written).copied).tolist() == [1, 4]


def test_stand_in_is_named_and_official_preferred(tmp_path, no_network):
    np.savez(tmp_path / "emnist_balanced_small.npz", **tiny())
    for images in (
        data.load("emnist_balanced", tmp_path),
        data.pretraining_set("emnist_balanced", tmp_path),
    ):
        assert images.name == "emnist_balanced_small"
        assert images.origin == (
            "stand-in: 6 EMNIST images (emnist_balanced_small), not the official "
            "Balanced release"
        )
    np.savez(tmp_path / "emnist_balanced.npz", origin=np.array("official"), **tiny())
    assert data.load("emnist_balanced", tmp_path).origin == "official"
    assert not no_network


@pytest.mark.parametrize(
    ("name", "official"), [("emnist_bymerge", "ByMerge"), ("emnist_byclass", "ByClass")]
)
def test_official_test_part_is_divided_as_stand_in(
    tmp_path, no_network, name, official
):
    arrays = tiny(
        72,
        labels=np.repeat(np.arange(3), [42, 21, 9]),
        split=np.ones(72, dtype=np.uint8),
    )
    np.savez(tmp_path / f"{name}_test.npz", **arrays)
    images = data.load(name, tmp_path)
    assert (
        images.name == f"{name}_test"
        and images.digest == data.load(f"{name}_test", tmp_path).digest
    )
    release = (
        f"stand-in: 72 EMNIST images ({name}_test), not the official {official} release"
    )
    assert images.origin == f"{release}; 6:1 division per class of our own"
    assert images.summary()["train"].tolist() == [36, 18, 8] and images.summary()[
        "test"
    ].tolist() == [6, 3, 1]
    assert np.array_equal(images.images, arrays["images"]) and np.array_equal(
        images.labels, arrays["labels"]
    )
    assert np.ptp(images.test_index[:6]) > 10  # drawn, not the first of each class
    np.savez(tmp_path / f"{name}.npz", origin=np.array("official"), **tiny())
    assert data.load(name, tmp_path).origin == "official"
    assert data.load(f"{name}_test", tmp_path).name == f"{name}_test"
    assert not no_network


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (
            lambda path: path.write_bytes(path.read_bytes()[:-100]),
            "not a zip file|File is not",
        ),
        (
            lambda path: path.write_bytes(
                path.read_bytes().replace(bytes([7, 8, 9]), bytes(3))
            ),
            "CRC",
        ),
        (lambda path: path.write_bytes(b""), "No data left"),
        (lambda path: path.write_text("hello"), "pickle"),
        (
            lambda path: np.savez(
                path, **{k: v for k, v in tiny().items() if k != "split"}
            ),
            "it lacks split",
        ),
        (
            lambda path: np.savez(path, **tiny(labels=np.full(6, 7))),
            "labels run from 7 to 7",
        ),
        (
            lambda path: np.savez(
                path, **tiny(class_names=np.array(["a", None, {}], dtype=object))
            ),
            "allow_pickle",
        ),
    ],
)
def test_damaged_prepared_file(tmp_path, damage, reason):
    path = tmp_path / "mnist.npz"
    np.savez(path, **tiny(images=np.arange(600 * 4, dtype=np.uint8).reshape(6, 20, 20)))
    assert len(data.load("mnist", tmp_path)) == 6
    damage(path)
    text = refused(reason, data.load, "mnist", tmp_path)
    assert (
        f"{path} is not a sound prepared data set" in text
        and "delete it and load again" in text
    )


def test_without_network_or_download(tmp_path, no_network, capsys):
    refused(
        "has no download: place the prepared file em.*_small.npz",
        data.load,
        "emnist_balanced_small",
        tmp_path,
    )
    assert not no_network
    text = refused("no route", data.load, "cifar10", tmp_path)
    assert "cifar10.npz" in text and str(tmp_path) in text and "FLTNB_DATA" in text
    assert len(no_network) == 1 and list(tmp_path.iterdir()) == []
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1 and "170 MB" in printed


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("femnist", "-k 0 -t sample --tf 0.9"),
        ("celeba", "-k 5 -t sample --tf 0.8.*raw/img_align_celeba"),
    ],
)
def test_sets_of_leaf_say_where_to_get_them(tmp_path, name, script):
    text = refused(
        f"github.com/TalwalkarLab/leaf.*-s niid --sf 1.0 {script}",
        data.load,
        name,
        tmp_path,
    )
    assert str(tmp_path / name / "data") in text and list(tmp_path.iterdir()) == []


def fake_torchvision(kind, monkeypatch, names=("0 - zero", "1 - one")):
    """Replace a torchvision class by one that 'downloads' three images; return the
    arguments it was called with.
    """
    import torchvision

    calls = []

    def make(root, train, download, **options):
        calls.append(options)
        images = (
            torch.arange(6).reshape(1, 2, 3)
            + 10 * torch.arange(2 if train else 1)[:, None, None]
        )
        return types.SimpleNamespace(
            data=images.byte(), targets=[0, 1][: len(images)], classes=list(names)
        )

    monkeypatch.setattr(torchvision.datasets, kind, make)
    return calls


def test_download_is_converted_noted_reused_and_not_to_be_changed(
    tmp_path, monkeypatch, capsys
):
    calls = fake_torchvision("MNIST", monkeypatch)
    first = data.load("mnist", tmp_path / "new")
    again = data.load("mnist", tmp_path / "new")
    assert len(calls) == 2  # training and test part, once
    assert (
        first.origin == again.origin == "official release, downloaded with torchvision"
    )
    assert first.images[:, 0].tolist() == [[0, 1, 2], [10, 11, 12], [0, 1, 2]]
    assert first.labels.tolist() == [0, 1, 0] and first.split.tolist() == [0, 0, 1]
    assert first.class_names == ("0", "1")
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == [
        "mnist.npz",
        "mnist.npz.json",
    ]
    note = json.loads((tmp_path / "new" / "mnist.npz.json").read_text())
    assert (
        note["sha256"]
        == hashlib.sha256((tmp_path / "new" / "mnist.npz").read_bytes()).hexdigest()
    )
    assert capsys.readouterr().out.count("\n") == 1
    np.savez(
        tmp_path / "new" / "mnist.npz", **tiny()
    )  # sound in itself, but not what was noted
    refused(
        r"SHA-256 is not the one noted.*delete both it and mnist\.npz\.json",
        data.load,
        "mnist",
        tmp_path / "new",
    )


def test_emnist_is_turned_upright(tmp_path, monkeypatch):
    calls = fake_torchvision("EMNIST", monkeypatch, names=("A", "B"))
    for name in ("balanced", "bymerge", "byclass"):
        images = data.load(f"emnist_{name}", tmp_path)
        assert calls[-1] == {"split": name} and images.name == f"emnist_{name}"
    # stored [[0, 1, 2], [3, 4, 5]]: columns become rows
    assert images.images[0].tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.fixture
def colour(tmp_path):
    """Stand-ins for CIFAR: two images per class whose pixels are the class number
    (CIFAR-10: plus 200).
    """
    for name, k, shift in (("cifar10", 10, 200), ("cifar100", 100, 0)):
        labels = np.tile(np.arange(k), 2)
        np.savez(
            tmp_path / f"{name}.npz",
            images=np.broadcast_to(
                (labels + shift)[:, None, None, None], (2 * k, 2, 2, 3)
            ).astype(np.uint8),
            labels=labels,
            split=np.repeat(np.array([0, 1], dtype=np.uint8), k),
            class_names=np.array([f"{name}-{c}" for c in range(k)]),
            origin=np.array(f"fake {name}"),
        )
    return tmp_path


@pytest.mark.parametrize("name", ["cifar20", "cifar100_disjoint"])
def test_sets_of_cifar100_classes(colour, name):
    images, ids = data.pretraining_set(name, colour), data.PRETRAINING[name]
    source = np.array([*range(200, 210), *ids] if name == "cifar20" else ids)
    assert (
        len(set(ids)) == len(ids)
        and images.n_classes == 20
        and len(images) == 40
        and len(images.test_index) == 20
    )
    assert np.array_equal(images.images[:, 0, 0, 0], source[images.labels])
    if name == "cifar20":
        assert ids == (11, 20, 22, 31, 37, 51, 54, 65, 86, 90)
        assert len({*ids, *data.PRETRAINING["cifar100_disjoint"]}) == 21
        assert images.class_names[9:11] == ("cifar10-9", "cifar100-11")
        assert images.origin == "CIFAR-10: fake cifar10; CIFAR-100: fake cifar100"


def test_other_names_of_sets():
    assert data.pretraining_set("digits").digest == data.load("digits").digest
    refused("Unknown pretraining set 'imagenet'", data.pretraining_set, "imagenet")
    refused(
        "Unknown data set '../mnist'.*digits, mnist, fashion_mnist",
        data.load,
        "../mnist",
    )


def written(n=(12, 10), **changes):
    """Images by persons 7 and 3, in turn as far as they go, then test images by 9."""
    people = np.array([7, 3] * min(n) + [7] * (max(n) - min(n)) + [9] * 6)
    split = (people == 9).astype(np.uint8)
    arrays = tiny(len(people), split=split, writers=people.astype(np.int32))
    return arrays | changes


def test_mnist_by_its_writers(tmp_path, no_network):
    arrays = written()
    np.savez(tmp_path / "mnist_writers.npz", **arrays)
    images = data.load("mnist_writers", tmp_path)
    assert images.name == "mnist_writers" and len(images) == 22
    # The images that MNIST has for training, in their order; nobody else's.
    assert np.array_equal(images.images, arrays["images"][:22])
    assert np.array_equal(images.labels, arrays["labels"][:22])
    assert np.array_equal(images.writers, arrays["writers"][:22])
    assert images.writers.dtype == np.int32
    # A tenth of each person's images is for testing, the same at every call.
    assert sorted(images.writers[images.test_index]) == [3, 7]
    assert images.digest == data.load("mnist_writers", tmp_path).digest
    assert "the 2 people who wrote them" in images.origin
    assert "people: as the file says" in images.origin
    # Persons 3 and 7 are clients.
    settings = {"kind": "writers", "dataset": "mnist_writers", "n_clients": 2}
    fed = federations.build(settings, tmp_path)
    assert fed.sizes.tolist() == [9, 11]
    assert [len(own) for own in fed.test] == [1, 1]
    assert set(fed.train[0]) | set(fed.test[0]) == set(range(1, 20, 2))
    assert not no_network


def test_writers_with_few_images_are_left_out(tmp_path):
    np.savez(tmp_path / "mnist_writers.npz", **written())
    images = data.load("mnist_writers", tmp_path)
    # Person 3 has 10 images and person 7 has 12.
    fed = federations.writers(images, 1, min_images=11)
    assert set(images.writers[fed.train[0]]) == {7}
    assert set(images.writers[fed.test[0]]) == {7}
    assert fed.origin.startswith("people with 11 images or more, 1 left out; ")
    assert federations.writers(images, 2).origin == images.origin
    message = "has 1 people with images of both parts and at least 11 in all"
    refused(message, federations.writers, images, 2, min_images=11)
    # The minimum that everybody meets names the same federation as none.
    settings = {"kind": "writers", "dataset": "mnist_writers", "n_clients": 2}
    more = federations.canonical(settings | {"min_images": 2})
    assert more == federations.canonical(settings)


def test_writers_are_recognised_by_content(tmp_path, monkeypatch):
    arrays = written()
    known = data.array_digest(arrays["writers"])
    monkeypatch.setattr(sets, "_WROTE_MNIST", known)
    np.savez(tmp_path / "mnist_writers.npz", **arrays)
    origin = data.load("mnist_writers", tmp_path).origin
    assert "people: NIST's numbers (recognised by content)" in origin
    swapped = arrays["writers"][::-1].copy()
    np.savez(tmp_path / "mnist_writers.npz", **written(writers=swapped))
    origin = data.load("mnist_writers", tmp_path).origin
    assert "people: as the file says" in origin


def test_writers_that_are_missing(tmp_path, no_network):
    message = "has no download: place the prepared file mnist_writers.npz in"
    refused(message, data.load, "mnist_writers", tmp_path)
    np.savez(tmp_path / "mnist_writers.npz", **tiny())
    message = "does not say who wrote the images: prepare it anew"
    refused(message, data.load, "mnist_writers", tmp_path)


@prepared("mnist_writers")
def test_real_writers_of_mnist():
    images = data.load("mnist_writers", paths.ROOT / "data")
    people, counts = np.unique(images.writers, return_counts=True)
    assert len(images) == 60_000 and len(people) == 539
    assert (counts.min(), counts.max(), np.median(counts)) == (19, 131, 116)
    assert (counts >= 100).sum() == 440
    assert "people: NIST's numbers" in images.origin
    assert "images: official release" in images.origin
    tested = np.bincount(images.writers[images.test_index])[people]
    assert np.abs(tested - counts / 10).max() <= 0.5
    fed = federations.writers(images, 539)
    assert fed.n_clients == 539 and fed.clusters is None


@prepared("mnist")
def test_real_mnist():
    mnist = data.load("mnist", paths.ROOT / "data")
    assert mnist.train_index.tolist() == list(range(60000))
    header = np.array([2051, 60000, 28, 28], dtype=">i4").tobytes()
    md5 = hashlib.md5(header + mnist.images[:60000].tobytes()).hexdigest()
    assert (
        md5 == "6bbc9ace898e44ae57da46a324031adb"
    )  # of the official train-images-idx3-ubyte
    assert "official release" in mnist.origin


@prepared("cifar10")
def test_real_cifar10_says_which_pixels_are_official():
    cifar10 = data.load("cifar10", paths.ROOT / "data")
    sizes = len(cifar10.train_index), len(cifar10.test_index)
    assert sizes == (50_000, 10_000)
    if cifar10.digest != "4252c60b2db3ccfa":
        pytest.skip("another file of CIFAR-10")
    # The first pixels of data_batch_1, and the published means of the training part.
    assert cifar10.labels[:4].tolist() == [6, 9, 9, 4]
    assert cifar10.images[0, 0, :2].tolist() == [[59, 62, 63], [43, 46, 45]]
    means = cifar10.images[:50_000].mean(axis=(0, 1, 2)) / 255
    assert means.round(4).tolist() == [0.4914, 0.4822, 0.4465]
    assert "59,879 of 60,000" in cifar10.origin
    # Results on this file do not count as results on copies.
    assert "copies" not in cifar10.origin


@prepared("cifar100")
def test_real_cifar100_is_complete():
    cifar100 = data.load("cifar100", paths.ROOT / "data")
    if cifar100.digest != "eaaa8becbe049df8":
        pytest.skip("another file of CIFAR-100")
    table = cifar100.summary()
    assert set(table["train"]) == {500} and set(table["test"]) == {100}
    assert "WebP copies (quality 98)" in cifar100.origin


@prepared("pacs")
def test_real_pacs_says_what_it_is():
    pacs = data.load("pacs", paths.ROOT / "data")
    if pacs.digest != "20ae1f5fbf28f739":
        pytest.skip("another file of PACS")
    assert np.bincount(pacs.domains).tolist() == [2048, 2344, 1670, 3929]
    assert pacs.images.shape == (9991, 96, 96, 3)
    assert "96 x 96" in pacs.origin and "division" in pacs.origin


@prepared("emnist_bymerge_test")
def test_real_emnist_bymerge_stand_in():
    images = data.load("emnist_bymerge_test", paths.ROOT / "data")
    table = images.summary()
    assert images.n_classes == 47 and len(images) == 116323
    assert (table["train"] / table["test"]).between(5.9, 6.1).all()
    assert (table["train"] + table["test"]).min() == 400 and (
        table["train"] + table["test"]
    ).max() == 6330


@prepared("cifar100")
def test_real_cifar100_classes_of_the_disjoint_set():
    images = data.pretraining_set("cifar100_disjoint", paths.ROOT / "data")
    cifar10 = [
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ]
    assert not set(images.class_names) & set(cifar10)
    assert (
        images.class_names[2:4] == ("bus", "camel")
        and images.class_names[-1] == "tulip"
    )


def test_imagenet_features_stand_in_for_the_pictures(tmp_path, monkeypatch):
    class Bright(
        torch.nn.Module
    ):  # in the place of the network: 1,280 times 6 x the mean of its inputs
        def __init__(self):
            super().__init__()
            self.six = torch.nn.Parameter(torch.tensor(6.0))

        def extract_features(self, x):
            assert x.shape[1:] == (3, 32, 32)  # eight pixels, enlarged four times
            return (
                (self.six * (x * features.STD + features.MEAN))
                .mean((1, 2, 3), keepdim=True)
                .expand(-1, 1280, 7, 7)
            )

    pictures = np.stack(
        [np.full((8, 8, 3), grey, dtype=np.uint8) for grey in (0, 51, 255, 51)]
    )
    labels, split, domains = (
        np.array([0, 1, 0, 1]),
        np.array([0, 0, 0, 1], np.uint8),
        np.arange(4, dtype=np.uint8),
    )
    arrays = {"images": pictures, "labels": labels, "split": split, "domains": domains}
    np.savez(tmp_path / "pacs.npz", **arrays, class_names=["a", "b"])
    monkeypatch.setattr(features, "network", Bright)
    seen = data.load("pacs_features", tmp_path)
    assert seen.images.shape == (4, 1, 1280) and np.array_equal(seen.labels, labels)
    assert [set(row.ravel()) for row in seen.images] == [
        {0},
        {114},
        {255},
        {114},
    ]  # 255 sqrt(0.2) = 114.04
    assert np.array_equal(seen.domains, domains) and "EfficientNet-Lite0" in seen.origin
    fed = Federation.from_arrays(pictures, labels, [0, 0, 1, 1], test_fraction=0.5)
    embedded = embed_clients(fed, EncoderSpec("efficientnet", "imagenet"), n_jobs=1)
    assert np.allclose(
        [x[0, 0] for x in embedded],
        [6 / 255 * fed.images[own[0]].max() for own in fed.train],
    )
    images = ImageSet("pictures", pictures, labels, split, ("a", "b"), "drawn")
    base = {"kind": "rotated_copies", "n_clients": 4, "val_fraction": 0.34}
    turned = federations.seen(
        images, base
    )  # as clients have them; turned, an even picture is the same
    monkeypatch.setattr(features, "network", None)  # computed once: files are read now
    assert np.array_equal(data.load("pacs_features", tmp_path).images, seen.images)
    assert np.array_equal(federations.seen(images, base).images, turned.images)
    assert "EfficientNet-Lite0" in turned.origin
    held = zip(turned.train, turned.val, strict=True)
    assert [np.unique(turned.images[np.append(*own)]).tolist() for own in held] == 4 * [
        [0, 114, 255]
    ]
    refused(
        "needs colours, and digits has grey images",
        federations.seen,
        data.load("digits"),
        base,
    )
    late = {"kind": "changing", "base": base, "events": [{"round": 2, "join": 1}]}
    refused("changing federation change", federations.seen, images, late)


def test_imagenet_features_need_their_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    refused(r"pip install 'fltnb\[pretrained\]'", features.network)
