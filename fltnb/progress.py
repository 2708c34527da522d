"""The one kind of progress bar: with the time left, quiet where nobody watches."""

import sys
from collections.abc import Iterable
from typing import Any

QUIET = 20.0  # seconds


def bar(items: Iterable | None = None, shown: bool = True, **options: Any):
    """Return a tqdm bar, over ``items`` or to be updated by hand.

    A terminal gets a live bar. Elsewhere (a notebook, a log) only work of :data:`QUIET`
    seconds or more shows one, and updates it seldom. Nothing is left behind at the end.
    ``options`` are tqdm's; ``TQDM_DISABLE`` is its own as well.
    """
    from tqdm import tqdm  # a GPU machine may lack it

    if not shown:
        # not given otherwise: even False overrides TQDM_DISABLE
        options["disable"] = True
    return tqdm(items, **settings(), **options)


def settings() -> dict[str, Any]:
    """Return how a bar behaves, for libraries that make one of their own."""
    pause = 1.0 if sys.stderr.isatty() else QUIET
    return {"leave": False, "mininterval": pause, "delay": pause}
