"""Streams are keyed by purpose."""

import numpy as np
from toys import refused

from fltnb.randomness import PURPOSES, integer, seeded, stream


def test_streams_do_not_depend_on_each_other():
    first = stream(0, "order", 3, 7).permutation(50)
    stream(0, "dropout", 3, 7).random(10_000)
    assert np.array_equal(first, stream(0, "order", 3, 7).permutation(50))


def test_every_key_matters():
    keys = [
        (0, "order"),
        (1, "order"),
        (0, "dropout"),
        (0, "order", 0),
        (0, "order", 0, 0),
        (0, "order", 1),
    ]
    assert len({stream(*key).integers(2**60) for key in keys}) == len(keys)
    assert len({integer(*key) for key in keys}) == len(keys)


def test_values_are_pinned():
    """Every stored result depends on these: a change here changes all numbers."""
    assert stream(0, "order", 1, 2).permutation(8).tolist() == [2, 7, 1, 5, 0, 6, 3, 4]
    assert integer(5, "init", 0) == 535303496


def test_purposes_are_numbered_once_and_no_other_is_known():
    assert len(set(PURPOSES.values())) == len(PURPOSES)
    for draw in (stream, integer):
        refused("Unknown purpose .*'luck': choose one of partition", draw, 0, "luck")


def test_only_generators_without_a_seed_get_one():
    drawn = stream(0, "order").random()
    given = np.random.default_rng(7).random()
    make = np.random.default_rng
    with seeded(3):
        assert np.random.default_rng().random() == make(3).random()
        assert np.random.default_rng(seed=7).random() == given
        assert stream(0, "order").random() == drawn
    assert np.random.default_rng is make
