"""The key of a result: a hash of settings, data and versions of the numerics."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

NUMERICS: dict[str, int] = {
    "cflgp as written": 2,
    "dynamic.course": 2,
    "flt_dynamic": 2,
    "MergeGain": 2,
    "merge_gain.made": 2,
    "merge_gain.without_labels": 2,
    "theory.gap_curves": 2,
}
"""Part -> version, for parts whose version is not 1.

A part is ``core`` (models, training, rounds), ``encoders``, or the name of a method
(for both its variants, or "as written" only), a clusterer, a kind of federation or the
function of a study. A person raises a version here when a change of the code changes
numbers; stored results of that part are then computed again. This replaces a hash of
the source code: golden runs (``tests/test_golden.py``) fail if a change moves numbers
without a new version, and other changes of the code do not invalidate results.
"""


def versions(parts: Iterable[str]) -> dict[str, int]:
    """Return the versions above 1 of the parts that an experiment uses."""
    return {part: NUMERICS[part] for part in sorted(set(parts)) if part in NUMERICS}


def digest(value: Any) -> str:
    """Return 20 hexadecimal digits of JSON-able content."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def key_of(id: str, settings: dict[str, Any], data: str) -> str:
    """Return the key of an experiment's result on data with this fingerprint.

    ``id``: hash of its kind and settings; ``data``: "" for none.
    """
    parts = ["core", *names_in(settings)]
    if "function" in settings:
        parts.append(settings["function"])
    return digest({"id": id, "data": data, "numerics": versions(parts)})


def names_in(settings: Any) -> Iterator[str]:
    """Yield the names of all parts inside settings.

    These are methods, clusterers, and kinds of federation and encoder.
    """
    if not isinstance(settings, dict):
        return
    for word in ("name", "kind"):
        if isinstance(settings.get(word), str):
            yield settings[word]
    # A variant with only other defaults is not named in the settings: it counts here.
    if isinstance(settings.get("name"), str) and "variant" not in settings:
        yield f"{settings['name']} as written"
    if "encoder" in settings:
        yield "encoders"
    for value in settings.values():
        yield from names_in(value)
