"""The progress bar: with the time left, and quiet outside a terminal."""

import sys
from collections.abc import Iterable
from typing import Any

QUIET = 20.0  # seconds


def bar(items: Iterable | None = None, shown: bool = True, **options: Any):
    """Return a tqdm bar, over ``items`` or to be updated by hand.

    A terminal gets a live bar. Elsewhere (in a notebook or log) a bar is only shown for
    work of at least :data:`QUIET` seconds, and is updated rarely. It is removed at the
    end. ``options`` are tqdm's; ``TQDM_DISABLE`` is also tqdm's.
    """
    from tqdm import tqdm  # it may be missing on a GPU machine

    if not shown:
        # only given if True: even False overrides TQDM_DISABLE
        options["disable"] = True
    return tqdm(items, **settings(), **options)


def settings() -> dict[str, Any]:
    """Return the options of a bar, for libraries that make their own."""
    pause = 1.0 if sys.stderr.isatty() else QUIET
    return {"leave": False, "mininterval": pause, "delay": pause}
