import numpy as np
import pytest
from toys import leaf_file, rebuilt, refused, toy_set, write_leaf

from fltnb import data, federations
from fltnb.data import leaf
from fltnb.federations import apply_style, pseudo_writers, writer_styles, writers


def leaf_part(people, seed=0):
    """Content of one LEAF file; people maps a name to its labels. Pixels are bytes /
    255, as LEAF writes them.
    """
    rng = np.random.default_rng(seed)
    pixels = {
        name: [(rng.integers(0, 256, 784) / 255).tolist() for _ in y]
        for name, y in people.items()
    }
    return leaf_file(
        {name: {"x": pixels[name], "y": list(y)} for name, y in people.items()}
    )


def file_name(k, part="{}"):
    return f"all_data_{k}_niid_0_keep_0_{part}_9.json"


def write(folder, k, train, test):
    write_leaf(folder, file_name(k), train, test)


@pytest.fixture
def leaf_folder(tmp_path):
    """Three pairs of files with two, two and one writers, in LEAF's own layout."""
    base = tmp_path / "femnist" / "data"
    parts = leaf_part({"a": [7]}, 1), leaf_part({"a": [8]}, 2)
    for part in (
        parts
    ):  # LEAF leaves writers with one sample in user_data, empty, but not in users
        part["user_data"]["dropped"] = {"x": [], "y": []}
    write(base, 10, *parts)
    write(
        base,
        0,
        leaf_part({"f2_01": [3, 61, 0], "f1_09": [10, 11]}, 3),
        leaf_part({"f2_01": [4], "f1_09": [5]}, 4),
    )
    write(
        base,
        2,
        leaf_part({"z": [1, 2], "b": [36]}, 5),
        leaf_part({"z": [1], "b": [37, 38]}, 6),
    )
    return tmp_path / "femnist"


def test_leaf_by_hand(leaf_folder):
    images = leaf.read_leaf(leaf_folder)
    assert (
        images.name == "femnist"
        and images.n_classes == 62
        and "5 writers from 3 pairs" in images.origin
    )
    # files 0, 2, 10; names sorted in each; a writer's training images before its test
    # images
    assert images.writers.tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4]
    assert images.labels.tolist() == [10, 11, 5, 3, 61, 0, 4, 36, 37, 38, 1, 2, 1, 7, 8]
    assert images.split.tolist() == [0, 0, 1, 0, 0, 0, 1, 0, 1, 1, 0, 0, 1, 0, 1]
    assert [images.class_names[c] for c in (0, 9, 10, 35, 36, 61)] == [
        "0",
        "9",
        "A",
        "Z",
        "a",
        "z",
    ]
    drawn = np.random.default_rng(3).integers(
        0, 256, (3 + 2, 784)
    )  # the writer f2_01 comes first in the file
    assert np.array_equal(
        images.images[3:6].reshape(3, 784), drawn[:3]
    )  # the very bytes, not inverted
    assert np.array_equal(images.images[:2].reshape(2, 784), drawn[3:])


def changed(**entries):
    return lambda part: part["user_data"]["a"].update(entries)


def pixel(value):
    return lambda part: part["user_data"]["a"]["x"][0].__setitem__(5, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            changed(y=[1]),
            "Person 'a' .*has 2 images and 1 labels where num_samples says 2",
        ),
        (changed(x=[], y=[]), "Person 'a' .*has 0 images"),
        *[
            (changed(y=[1, bad]), f"the label {bad}, which is not one of 0 to 61")
            for bad in (62, -1, True, 2.0)
        ],
        (changed(x=[[0] * 784, [0] * 783]), "an image of 783 pixels instead of 784"),
        (pixel(255), "pixels outside 0 to 1"),
        (pixel(None), "does not have LEAF's form|pixels outside"),
        (
            lambda part: part.update(num_samples=[3, 1]),
            "has 2 images and 2 labels where num_samples says 3",
        ),
        (lambda part: part.update(num_samples=[2]), "LEAF's form"),
        (lambda part: part.update(users=["a", "a"]), "LEAF's form.*'a'"),
        (
            lambda part: part.update(users=[], num_samples=[]),
            "Person 'a' of .* is not in",
        ),
        (lambda part: part.pop("users"), "LEAF's form.*users"),
        (lambda part: part["user_data"].pop("a"), "LEAF's form.*'a'"),
        (lambda part: part.update(user_data=[1, 2]), "LEAF's form"),
        (changed(x=3), "LEAF's form"),
    ],
)
@pytest.mark.parametrize("damaged", ["train", "test"])
def test_unsound_leaf_file_is_named(tmp_path, change, message, damaged):
    parts = {
        "train": leaf_part({"a": [1, 2], "b": [3]}),
        "test": leaf_part({"a": [1, 2], "b": [3]}),
    }
    change(parts[damaged])
    write(tmp_path, 0, parts["train"], parts["test"])
    assert str(tmp_path / damaged / file_name(0, damaged)) in refused(
        message, leaf.read_leaf, tmp_path
    )


def test_leaf_files_that_do_not_fit_together(tmp_path):
    refused(
        r"no files .*train/\*\.json: run \./preprocess\.sh -s niid --sf 1\.0",
        leaf.read_leaf,
        tmp_path,
    )
    write(tmp_path, 0, leaf_part({"a": [1], "b": [2]}), leaf_part({"a": [1]}))
    refused(
        r"Person 'b' of .*train_9\.json is not in .*test_9\.json",
        leaf.read_leaf,
        tmp_path,
    )
    write(tmp_path, 0, leaf_part({"a": [1]}), leaf_part({"a": [1], "c": [2]}))
    refused(
        r"Person 'c' of .*test_9\.json is not in .*train_9\.json",
        leaf.read_leaf,
        tmp_path,
    )
    write(tmp_path, 0, leaf_part({"a": [1]}), leaf_part({"a": [1]}))
    write(tmp_path, 1, leaf_part({"a": [1]}), leaf_part({"a": [1]}))
    refused(
        r"Person 'a' is in both .*all_data_0.* and .*all_data_1",
        leaf.read_leaf,
        tmp_path,
    )
    (tmp_path / "test" / file_name(1, "test")).unlink()
    refused(
        r"all_data_1.*train_9\.json has no test part .*all_data_1.*test_9\.json",
        leaf.read_leaf,
        tmp_path,
    )
    (tmp_path / "train" / file_name(0, "train")).write_bytes(b"\xff\xfe{")
    refused(r"all_data_0.* is not a sound JSON file", leaf.read_leaf, tmp_path)


def test_load_femnist_converts_once(leaf_folder, capsys):
    root = leaf_folder.parent
    first = data.load("femnist", root)
    assert "converting" in capsys.readouterr().out
    assert sorted(p.name for p in root.iterdir()) == [
        "femnist",
        "femnist.npz",
        "femnist.npz.json",
    ]
    for path in leaf_folder.rglob("*.json"):
        path.unlink()
    again = data.load("femnist", root)
    assert capsys.readouterr().out == ""
    assert (
        again.digest == first.digest
        and again.origin == first.origin
        and again.class_names == first.class_names
    )
    assert (
        np.array_equal(again.writers, first.writers) and again.writers.dtype == np.int32
    )


def test_writers_of_femnist(leaf_folder):
    fed = federations.build(
        {"kind": "writers", "dataset": "femnist", "n_clients": 3}, leaf_folder.parent
    )
    assert (
        fed.n_clients == 3 and fed.clusters is None and fed.sizes.tolist() == [2, 3, 1]
    )
    assert [fed.labels[index].tolist() for index in fed.test] == [[5], [4], [37, 38]]
    assert [fed.labels[index].tolist() for index in fed.train] == [
        [10, 11],
        [3, 61, 0],
        [36],
    ]
    rebuilt(fed, leaf_folder.parent)
    assert (
        len(
            {
                tuple(
                    writers(data.load("femnist", leaf_folder.parent), 3, seed=s).sizes
                )
                for s in range(8)
            }
        )
        > 1
    )


def toy(writer_ids, split):
    writers = None if writer_ids is None else np.array(writer_ids, dtype=np.int32)
    return toy_set(
        np.arange(len(split) * 4).reshape(-1, 2, 2),
        [0] * len(split),
        split,
        writers=writers,
    )


def test_writers_scattered_over_the_set():
    fed = writers(toy([7, 3, 7, 3, 7, 5, 9], [0, 1, 1, 0, 0, 0, 1]), n_clients=2)
    # writer 5 has no test image and 9 no training image
    assert [index.tolist() for index in fed.train] == [[3], [0, 4]]
    assert [index.tolist() for index in fed.test] == [[1], [2]]
    refused("toy does not name the writers of its images", writers, toy(None, [0, 1]))
    refused(
        "has 1 people with images of both parts",
        writers,
        toy([1, 1, 2], [0, 1, 0]),
        n_clients=2,
    )


def bars(n=4):
    """28x28 images of an upright bar, 4 wide and 16 high, exactly in the middle."""
    images = np.zeros((n, 28, 28), dtype=np.uint8)
    images[:, 6:22, 12:16] = 255
    return images


def slant_of(images):
    """Shear of each image by its moments: how far columns move left per row down."""
    grey = images.astype(np.float64)
    row, column = np.indices(grey.shape[1:])
    mass = grey.sum(axis=(1, 2))
    y = row - ((grey * row).sum(axis=(1, 2)) / mass)[:, None, None]
    x = column - ((grey * column).sum(axis=(1, 2)) / mass)[:, None, None]
    return -(grey * x * y).sum(axis=(1, 2)) / (grey * y * y).sum(axis=(1, 2))


@pytest.mark.parametrize("slant", [-0.5, -0.1, 0.0, 0.3, 0.6])
def test_slant_is_what_moments_measure(slant):
    drawn = apply_style(bars(1), slant, 0.0, 1.0, 0.0)
    assert slant_of(drawn)[0] == pytest.approx(slant, abs=0.03)
    assert drawn.mean() == pytest.approx(
        bars(1).mean(), rel=0.01
    )  # nothing falls off the edge
    if slant > 0.2:  # to the right: the top is further right than the bottom
        assert drawn[0, 7].argmax() > drawn[0, 20].argmax()


def test_width_size_and_shift_by_hand():
    assert np.array_equal(apply_style(bars(), 0.0, 0.0, 1.0, 0.0), bars())
    wide = apply_style(bars(1), 0.0, 1.0, 1.0, 0.0)[0]
    expected = np.zeros((28, 28))
    expected[5:23, 11:17] = 255  # one pixel more on each side
    assert np.array_equal(wide, expected)
    assert apply_style(bars(1), 0.0, -1.0, 1.0, 0.0)[0].sum() == 14 * 2 * 255
    one_and_a_half = apply_style(bars(1), 0.0, 1.5, 1.0, 0.0)[0]
    assert (one_and_a_half == 255).sum() == 18 * 6 and (
        one_and_a_half == 128
    ).sum() == 20 * 8 - 18 * 6
    assert np.array_equal(
        apply_style(bars(1), 0, 0, 1, 2.0)[0], np.roll(bars(1)[0], 2, axis=0)
    )
    half = apply_style(bars(1), 0.0, 0.0, 0.5, 0.0)[0]
    assert half.mean() == pytest.approx(bars(1).mean() / 4, rel=0.02)
    assert half[14].astype(bool).sum() == 2 and half[:, 14].astype(bool).sum() == 8
    # strokes at the border are kept
    full = np.full((1, 8, 8), 200, dtype=np.uint8)
    assert apply_style(full, 0.0, 0.0, 0.75, 0.0).mean() == pytest.approx(
        200 * 0.75**2, rel=0.01
    )
    assert apply_style(full, 0.0, 0.0, 1.0, 0.0).min() == 200
    # one pixel of 28 is a quarter of one of 7
    image = np.zeros((1, 7, 7), dtype=np.uint8)
    image[0, 3, 3] = 200
    drawn = apply_style(image, 0.0, 1.0, 1.0, 0.0)[0]
    assert drawn[3, 3] == 200 and (drawn[2:5, 2:5] == 50).sum() == 8


def test_styles_do_not_depend_on_the_number_of_writers():
    styles = writer_styles(300, seed=3)
    assert np.array_equal(writer_styles(7, seed=3), styles[:7])
    assert not np.isclose(writer_styles(7, seed=4), styles[:7]).any()
    slant, width, size, shift = styles.T
    assert np.abs(slant).max() <= 0.6 and np.abs(shift).max() <= 2
    assert (
        -0.6 <= width.min() < -0.5
        and 0.8 < width.max() <= 0.9
        and size.min() >= 0.65
        and size.max() <= 1
    )
    assert abs(slant.mean()) < 4 * 0.28 / np.sqrt(300) and slant.std() == pytest.approx(
        0.27, abs=0.04
    )
    assert np.abs(np.corrcoef(styles.T) - np.eye(4)).max() < 4 / np.sqrt(300)
    assert writer_styles(5, strength=0.0).tolist() == [[0.0, 0.0, 1.0, 0.0]] * 5
    half = writer_styles(5, seed=3, strength=0.5)
    np.testing.assert_allclose(half[:, :2], styles[:5, :2] / 2)
    np.testing.assert_allclose(half[:, 2] ** 2, styles[:5, 2])


def test_digits_by_pseudo_writers(digits):
    fed = pseudo_writers(digits, n_clients=20, seed=5, strength=0.6)
    assert fed.clusters is None and fed.n_clients == 20
    assert fed.name == "pseudo-writers of digits" and fed.origin.startswith(
        "pseudo-writers, not FEMNIST"
    )
    tests = np.array([len(index) for index in fed.test])
    assert (
        np.abs(tests / (tests + fed.sizes) - 0.1).max()
        < 0.5 / (tests + fed.sizes).min() + 1e-9
    )
    assert (
        fed.sizes + tests
    ).mean() == 75  # what 359 test images are good for, less a margin
    assert np.log(fed.sizes + tests).std() == pytest.approx(0.38, abs=0.15)
    held = np.concatenate([*fed.train, *fed.test])
    assert np.array_equal(
        np.sort(held), np.arange(len(fed.images))
    )  # each drawn image in one place
    assert np.abs(fed.label_counts().sum(axis=0) / fed.sizes.sum() - 0.1).max() < 0.02
    rebuilt(fed)
    assert (
        pseudo_writers(digits, 20, seed=6, strength=0.6).fingerprint()
        != fed.fingerprint()
    )
    least = {
        "kind": "pseudo_writers",
        "dataset": "digits",
        "n_clients": 20,
        "seed": 5,
        "strength": 0.6,
    }
    assert federations.complete(least) == fed.settings


def test_shared_hands_are_the_true_clusters(digits):
    """Three hands go round: of a client's images only those of its own hand are the
    same as in anybody's redrawing.
    """
    fed = pseudo_writers(digits, n_clients=7, seed=1, mean_samples=60, n_styles=3)
    assert fed.clusters.tolist() == [0, 1, 2, 0, 1, 2, 0]
    drawn = [apply_style(digits.images, *style) for style in writer_styles(3, seed=1)]
    seen = [{image.tobytes() for image in redrawn} for redrawn in drawn]
    for i, index in enumerate(fed.train):
        assert all(
            image.tobytes() in seen[fed.clusters[i]] for image in fed.images[index]
        )
    assert (
        fed.fingerprint()
        != pseudo_writers(digits, n_clients=7, seed=1, mean_samples=60).fingerprint()
    )


def numbered(n_train=900, n_test=120):
    """Images that say which one they are: their number in one row of four pixels, base
    16.
    """
    n = n_train + n_test
    images = np.zeros((n, 4, 4))
    images[:, 1] = np.stack([np.arange(n) // 16**k % 16 for k in range(4)], axis=1)
    return toy_set(images, np.arange(n) % 3, np.repeat([0, 1], [n_train, n_test]))


def test_no_image_goes_to_two_and_parts_are_kept():
    images = numbered()
    fed = pseudo_writers(images, n_clients=10, mean_samples=80, strength=0.0)
    source = fed.images[:, 1].astype(np.int64) @ 16 ** np.arange(4)
    assert len(np.unique(source)) == len(source) == 800
    assert np.array_equal(fed.labels, images.labels[source])
    assert all((source[index] < 900).all() for index in fed.train)
    assert all((source[index] >= 900).all() for index in fed.test)
    # who gets what is drawn, not cut from the order of the set
    assert all(np.ptp(source[index]) > 450 for index in fed.train)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clients": 400}, "too few images for 400 pseudo-writers"),
        (
            {"n_clients": 20, "mean_samples": 75, "train_fraction": 0.5},
            "need 7.. test images, and there are 359",
        ),
        (
            {"n_clients": 2, "mean_samples": 1000},
            "need 1800 train images, and there are 1438",
        ),
        ({"n_clients": 2, "n_styles": 3}, "3 styles cannot be shared by 2 clients"),
    ],
)
def test_pseudo_writers_refuse(digits, options, message):
    refused(message, pseudo_writers, digits, **options)


def test_pseudo_writers_refuse_colour():
    colour = toy_set(np.zeros((4, 2, 2, 3)), [0] * 4, [0, 0, 1, 1], name="colour")
    refused(
        "need grey images but those of colour have colours",
        pseudo_writers,
        colour,
        n_clients=1,
    )
