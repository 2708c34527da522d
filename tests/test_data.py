import hashlib
import json
import types
from urllib.error import URLError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fltnb import data, paths
from fltnb.data import ImageSet
from fltnb.errors import FltnbError

REAL = paths.ROOT / "data"


def tiny(n=6, **changes):
    """Six 2x2 grey images of three classes, two of them for testing."""
    arrays = {
        "images": np.arange(n * 4, dtype=np.uint8).reshape(n, 2, 2),
        "labels": np.arange(n, dtype=np.int64) % 3,
        "split": np.array([0, 0, 0, 0, 1, 1] * (n // 6), dtype=np.uint8),
        "class_names": np.array(["a", "b", "c"]),
    }
    return arrays | changes


def image_set(**changes):
    return ImageSet(**(tiny(class_names=("a", "b", "c"), name="tiny", origin="made up") | changes))


@pytest.fixture
def no_network(monkeypatch):
    """Make every download fail as it does without a network; return the list of attempts."""
    import torchvision

    attempts = []

    def refuse(*args, **kwargs):
        attempts.append(kwargs)
        raise RuntimeError("Error downloading x:\nTried a mirror, got:\nno route\n") from URLError("no route")

    for kind, _, _ in data.SOURCES.values():
        monkeypatch.setattr(torchvision.datasets, kind, refuse)
    return attempts


def test_image_set_by_hand():
    images = image_set()
    assert images.n_classes == 3 and len(images) == 6
    assert images.train_index.tolist() == [0, 1, 2, 3] and images.test_index.tolist() == [4, 5]
    assert images.train_index.dtype == np.int64
    table = images.summary()
    assert table["train"].tolist() == [2, 1, 1] and table["test"].tolist() == [0, 1, 1]
    assert "4 training and 2 test images 2x2, 3 classes; made up" in repr(images)


def test_subset_keeps_classes_and_order():
    images = image_set(writers=np.arange(6, dtype=np.int32))
    part = images.subset(np.array([5, 0]))
    assert part.labels.tolist() == [2, 0] and part.writers.tolist() == [5, 0] and part.domains is None
    assert part.class_names == images.class_names and part.name == "tiny[2]"
    assert images.subset(images.labels == 1, "ones").images.tolist() == images.images[[1, 4]].tolist()
    with pytest.raises(FltnbError, match="outside 0 to 5"):
        images.subset(np.array([6]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": np.zeros((6, 2, 2))}, "images must be uint8, not float64"),
        ({"labels": np.zeros(6, dtype=np.int32)}, "labels must be int64"),
        ({"labels": np.zeros(5, dtype=np.int64)}, r"labels has shape \(5,\) for 6 images"),
        ({"labels": np.array([0, 1, 2, 3, 0, 0])}, "labels run from 0 to 3 but there are 3 class names"),
        ({"labels": np.array([0, 1, 2, -1, 0, 0])}, "labels run from -1"),
        ({"split": np.array([0, 0, 0, 2, 1, 1], dtype=np.uint8)}, "only 0"),
        ({"images": np.zeros((6, 4), dtype=np.uint8)}, r"not \(6, 4\)"),
        ({"images": np.zeros((6, 2, 2, 4), dtype=np.uint8)}, "images must have shape"),
        ({"writers": np.zeros(4, dtype=np.int32)}, "writers has shape"),
        ({"domains": [0] * 6}, "domains must be uint8, not list"),
    ],
)
def test_image_set_refuses(changes, message):
    with pytest.raises(FltnbError, match=message):
        image_set(**changes)


def test_digest_sees_every_array():
    others = [
        {"labels": np.zeros(6, dtype=np.int64)},
        {"split": np.array([0, 0, 0, 1, 1, 1], dtype=np.uint8)},
        {"images": image_set().images.reshape(6, 4, 1)},
    ]
    assert len({image_set(**one).digest for one in ({}, *others)}) == 4
    assert image_set().digest == image_set(name="other").digest


@given(st.lists(st.integers(0, 255), min_size=1, max_size=20))
def test_array_digest_does_not_depend_on_memory_layout(values):
    array = np.array([values, values], dtype=np.int64)
    assert data.array_digest(array) == data.array_digest(np.asfortranarray(array))
    assert data.array_digest(array) != data.array_digest(array.astype(np.int32))


def test_digits():
    from sklearn.datasets import load_digits

    digits, raw = data.load("digits"), load_digits()
    assert digits.images.shape == (1797, 8, 8) and digits.images.max() == 255
    assert np.array_equal(digits.labels, raw.target)
    assert np.abs(digits.images / 255 * 16 - raw.images).max() < 0.04  # rounding to one of 256 steps
    table = digits.summary()
    assert (table["test"] == (table["train"] + table["test"]).div(5).round()).all()
    assert digits.digest == data.load("digits").digest == "5da86954b8d38913"  # stored results hang on this division


def test_prepared_file_is_read(tmp_path):
    np.savez(tmp_path / "mnist.npz", writers=np.arange(6, dtype=np.int32), **tiny())
    images = data.load("mnist", tmp_path)
    assert images.name == "mnist" and images.class_names == ("a", "b", "c") and images.writers[5] == 5
    assert images.origin == f"prepared file without stated origin (sha256 {images.digest})"
    np.savez(tmp_path / "mnist.npz", origin=np.array("from a friend"), **tiny())
    assert data.load("mnist", tmp_path).origin == "from a friend"


def test_first_folder_wins(tmp_path, monkeypatch):
    (tmp_path / "one").mkdir()
    np.savez(tmp_path / "one" / "mnist.npz", origin=np.array("one"), **tiny())
    monkeypatch.setattr(paths, "data", lambda: [tmp_path / "absent", tmp_path / "one"])
    assert data.load("mnist").origin == "one"


def test_stand_in_is_named_and_official_preferred(tmp_path, no_network):
    np.savez(tmp_path / "emnist_balanced_small.npz", **tiny())
    for images in (data.load("emnist_balanced", tmp_path), data.pretraining_set("emnist_balanced", tmp_path)):
        assert images.name == "emnist_balanced_small"
        assert images.origin == ("stand-in: 6 EMNIST images (emnist_balanced_small), not the official Balanced release")
    np.savez(tmp_path / "emnist_balanced.npz", origin=np.array("official"), **tiny())
    assert data.load("emnist_balanced", tmp_path).origin == "official"
    assert not no_network


@pytest.mark.parametrize(("name", "official"), [("emnist_bymerge", "ByMerge"), ("emnist_byclass", "ByClass")])
def test_official_test_part_is_divided_as_stand_in(tmp_path, no_network, name, official):
    arrays = tiny(72, labels=np.repeat(np.arange(3), [42, 21, 9]), split=np.ones(72, dtype=np.uint8))
    np.savez(tmp_path / f"{name}_test.npz", **arrays)
    images = data.load(name, tmp_path)
    assert images.name == f"{name}_test" and images.digest == data.load(f"{name}_test", tmp_path).digest
    assert images.origin == (
        f"stand-in: 72 EMNIST images ({name}_test), not the official {official} release; 6:1 division per class of our"
        " own"
    )
    assert images.summary()["train"].tolist() == [36, 18, 8] and images.summary()["test"].tolist() == [6, 3, 1]
    assert np.array_equal(images.images, arrays["images"]) and np.array_equal(images.labels, arrays["labels"])
    assert np.ptp(images.test_index[:6]) > 10  # drawn, not the first of each class
    np.savez(tmp_path / f"{name}.npz", origin=np.array("official"), **tiny())
    assert data.load(name, tmp_path).origin == "official"
    assert data.load(f"{name}_test", tmp_path).name == f"{name}_test"
    assert not no_network


def flip(path):
    raw = bytearray(path.read_bytes())
    raw[200] ^= 255  # inside the images
    path.write_bytes(bytes(raw))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "not a zip file|File is not"),
        (flip, "CRC"),
        (lambda path: path.write_bytes(b""), "No data left"),
        (lambda path: path.write_text("hello"), "pickle"),
        (lambda path: np.savez(path, **{k: v for k, v in tiny().items() if k != "split"}), "it lacks split"),
        (lambda path: np.savez(path, **tiny(labels=np.full(6, 7))), "labels run from 7 to 7"),
        (lambda path: np.savez(path, **tiny(class_names=np.array(["a", None, {}], dtype=object))), "allow_pickle"),
    ],
)
def test_damaged_prepared_file(tmp_path, damage, reason):
    path = tmp_path / "mnist.npz"
    np.savez(path, **tiny(images=np.arange(600 * 4, dtype=np.uint8).reshape(6, 20, 20)))
    assert len(data.load("mnist", tmp_path)) == 6
    damage(path)
    with pytest.raises(FltnbError, match=reason) as caught:
        data.load("mnist", tmp_path)
    assert str(path) in str(caught.value) and "delete it and load again" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_checksum_is_the_plain_sha256(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    assert data.checksum(tmp_path / "file") == hashlib.sha256(b"abc").hexdigest()


def test_without_network(tmp_path, no_network, capsys):
    with pytest.raises(FltnbError) as caught:
        data.load("cifar10", tmp_path)
    text = str(caught.value)
    assert "cifar10.npz" in text and str(tmp_path) in text and "(no route)" in text and "FLTNB_DATA" in text
    assert "\n" not in text
    assert len(no_network) == 1 and list(tmp_path.iterdir()) == []
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1 and "170 MB" in printed


def test_stand_in_has_no_download(tmp_path, no_network):
    with pytest.raises(FltnbError, match=r"has no download: place the prepared file emnist_balanced_small\.npz"):
        data.load("emnist_balanced_small", tmp_path)
    assert not no_network


def fake_torchvision(kind, monkeypatch, names=("0 - zero", "1 - one")):
    """Replace a torchvision class by one that 'downloads' three images; return the arguments it was called with."""
    import torch
    import torchvision

    calls = []

    def make(root, train, download, **options):
        calls.append(options)
        images = (
            torch.arange(6, dtype=torch.uint8).reshape(1, 2, 3) + 10 * torch.arange(2 if train else 1)[:, None, None]
        )
        return types.SimpleNamespace(data=images.byte(), targets=[0, 1][: len(images)], classes=list(names))

    monkeypatch.setattr(torchvision.datasets, kind, make)
    return calls


def test_download_is_converted_noted_and_reused(tmp_path, monkeypatch, capsys):
    calls = fake_torchvision("MNIST", monkeypatch)
    first = data.load("mnist", tmp_path / "new")
    again = data.load("mnist", tmp_path / "new")
    assert len(calls) == 2  # training and test part, once
    assert first.origin == again.origin == "official release, downloaded with torchvision"
    assert first.images[:, 0].tolist() == [[0, 1, 2], [10, 11, 12], [0, 1, 2]]
    assert first.labels.tolist() == [0, 1, 0] and first.split.tolist() == [0, 0, 1]
    assert first.class_names == ("0", "1")
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["mnist.npz", "mnist.npz.json"]
    note = json.loads((tmp_path / "new" / "mnist.npz.json").read_text())
    assert note["sha256"] == data.checksum(tmp_path / "new" / "mnist.npz")
    assert capsys.readouterr().out.count("\n") == 1


def test_changed_download_is_refused(tmp_path, monkeypatch):
    fake_torchvision("MNIST", monkeypatch)
    data.load("mnist", tmp_path)
    np.savez(tmp_path / "mnist.npz", **tiny())  # sound in itself, but not what was noted
    with pytest.raises(FltnbError, match=r"SHA-256 is not the one noted.*delete both it and mnist\.npz\.json"):
        data.load("mnist", tmp_path)


def test_emnist_is_turned_upright(tmp_path, monkeypatch):
    calls = fake_torchvision("EMNIST", monkeypatch, names=("A", "B"))
    for name in ("balanced", "bymerge", "byclass"):
        images = data.load(f"emnist_{name}", tmp_path)
        assert calls[-1] == {"split": name} and images.name == f"emnist_{name}"
    # stored [[0, 1, 2], [3, 4, 5]]: columns become rows
    assert images.images[0].tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize("asked", ["minst", "cifar20", "../mnist"])
def test_unknown_name(asked):
    with pytest.raises(FltnbError, match=r"Unknown data set .*digits, mnist, fashion_mnist"):
        data.load(asked)


@pytest.fixture
def colour(tmp_path):
    """Stand-ins for CIFAR: two images per class whose pixels are the class number (CIFAR-10: plus 200)."""
    for name, k, shift in (("cifar10", 10, 200), ("cifar100", 100, 0)):
        labels = np.tile(np.arange(k), 2)
        np.savez(
            tmp_path / f"{name}.npz",
            images=np.broadcast_to((labels + shift)[:, None, None, None], (2 * k, 2, 2, 3)).astype(np.uint8),
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
    assert len(set(ids)) == len(ids) and images.n_classes == 20 and len(images) == 40 and len(images.test_index) == 20
    assert np.array_equal(images.images[:, 0, 0, 0], source[images.labels])
    if name == "cifar20":
        assert (
            ids == (11, 20, 22, 31, 37, 51, 54, 65, 86, 90)
            and len({*ids, *data.PRETRAINING["cifar100_disjoint"]}) == 21
        )
        assert images.class_names[9:11] == ("cifar10-9", "cifar100-11")
        assert images.origin == "CIFAR-10: fake cifar10; CIFAR-100: fake cifar100"


def test_pretraining_passes_other_names_on():
    assert data.pretraining_set("digits").digest == data.load("digits").digest
    with pytest.raises(FltnbError, match="Unknown pretraining set 'imagenet'"):
        data.pretraining_set("imagenet")


@pytest.mark.skipif(not (REAL / "mnist.npz").is_file(), reason="data/mnist.npz is not prepared")
def test_real_mnist():
    mnist = data.load("mnist", REAL)
    assert mnist.train_index.tolist() == list(range(60000))
    header = np.array([2051, 60000, 28, 28], dtype=">i4").tobytes()
    md5 = hashlib.md5(header + mnist.images[:60000].tobytes()).hexdigest()
    assert md5 == "6bbc9ace898e44ae57da46a324031adb"  # of the official train-images-idx3-ubyte
    assert "official release" in mnist.origin


@pytest.mark.skipif(not (REAL / "emnist_bymerge_test.npz").is_file(), reason="no prepared EMNIST ByMerge")
def test_real_emnist_bymerge_stand_in():
    images = data.load("emnist_bymerge_test", REAL)
    table = images.summary()
    assert images.n_classes == 47 and len(images) == 116323
    assert (table["train"] / table["test"]).between(5.9, 6.1).all()
    assert (table["train"] + table["test"]).min() == 400 and (table["train"] + table["test"]).max() == 6330


@pytest.mark.skipif(not (REAL / "cifar100.npz").is_file(), reason="data/cifar100.npz is not prepared")
def test_real_cifar100_classes_of_the_disjoint_set():
    images = data.pretraining_set("cifar100_disjoint", REAL)
    cifar10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    assert not set(images.class_names) & set(cifar10)
    assert images.class_names[2:4] == ("bus", "camel") and images.class_names[-1] == "tulip"
