"""The one kind of progress bar: with an estimate of the time left, quiet where nobody watches."""

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

QUIET = 20.0  # seconds


def bar(items: Iterable | None = None, shown: bool = True, **options: Any):
    """Return a tqdm bar, over ``items`` or to be updated by hand; ``options`` are tqdm's, as is ``TQDM_DISABLE``.

    A terminal gets a live bar. Elsewhere (a notebook, a log) only work of :data:`QUIET` seconds or more speaks, and
    seldom. Nothing is left behind at the end.
    """
    pause = 1.0 if sys.stderr.isatty() else QUIET
    silence = (
        {} if shown else {"disable": True}
    )  # left out otherwise: given at all, it overrides TQDM_DISABLE
    return tqdm(
        items, leave=False, mininterval=pause, delay=pause, **options, **silence
    )
