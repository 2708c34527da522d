"""The version of every part that decides numbers: what takes the place of a hash of the source code.

A person raises a version here when a change moves numbers; stored results of that part are then computed again. Golden
runs (``tests/test_golden.py``) refuse a change that moves numbers without it, so tidying code costs no result.
"""

from collections.abc import Iterable

NUMERICS: dict[str, int] = {
    "cflgp as written": 2,
    "MergeGain": 2,
    "merge_gain.made": 2,
    "merge_gain.without_labels": 2,
}
NUMERICS |= {"theory.gap_curves": 2}
"""Part -> version, for parts whose version is not 1: ``core`` (models, training, rounds), ``encoders``, or the name of
a method (of both its variants, or "as written" alone), a clusterer, a kind of federation or the function of a study."""


def versions(parts: Iterable[str]) -> dict[str, int]:
    """Return the versions above 1 of the parts that a job uses; they enter its key."""
    return {part: NUMERICS[part] for part in sorted(set(parts)) if part in NUMERICS}
