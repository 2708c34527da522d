"""Random streams, identified by their purpose.

No draw depends on earlier draws: a stream is a pure function of (seed, purpose, keys).
So a run gives the same numbers for any back end, grouping of clients, number of workers
and evaluation frequency, and if it was resumed.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from .errors import FltnbError

# Numbers are part of every stored result: append, never reorder.
PURPOSES = {
    "partition": 1,
    "init": 2,
    "participation": 3,
    "order": 4,
    "dropout": 5,
    "kmeans": 6,
    "umap": 7,
    "encoder": 8,
    "finetune": 9,
    "split": 10,
    "method": 11,
    "resampling": 12,
}


def _sequence(seed: int, purpose: str, keys: tuple[int, ...]) -> np.random.SeedSequence:
    """Return NumPy's seed of a stream, from the run's seed, a purpose and keys."""
    # The number of keys is included: NumPy pads with zeros, so (round,) and (round, 0)
    # would otherwise be one stream.
    numbers = [int(key) for key in keys]
    try:
        number = PURPOSES[purpose]
    except KeyError:
        raise FltnbError(
            f"Unknown purpose of random numbers {purpose!r}: choose one of "
            f"{', '.join(PURPOSES)}; a method of your own takes 'method'."
        ) from None
    return np.random.SeedSequence([int(seed), number, len(keys), *numbers])


def stream(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """Return the random generator of a seed, a purpose and keys.

    ``seed``: non-negative seed of a run or a partition. ``purpose``: one of
    :data:`PURPOSES`. ``keys``: non-negative, for example round and client.

    Examples
    --------
    >>> from fltnb.randomness import stream
    >>> stream(0, "partition").random() == stream(0, "partition").random()
    True
    """
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose, keys)))


def integer(seed: int, purpose: str, *keys: int) -> int:
    """Return a 31-bit seed for libraries that want an integer (scikit-learn, torch).

    ``seed``, ``purpose`` and ``keys`` are as for :func:`stream`.

    Examples
    --------
    >>> from fltnb.randomness import integer
    >>> integer(0, "kmeans") == integer(0, "umap")
    False
    """
    return int(_sequence(seed, purpose, keys).generate_state(1)[0] >> 1)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let generators that a library makes without a seed, here and now, have this one.

    UMAP and scikit-learn give no seed to ARPACK, which draws a vector wherever it
    cannot continue with its own: so a seed gave another layout in every call where the
    neighbour graph has five parts or more. For other threads, too, while it lasts.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.randomness import seeded
    >>> with seeded(0):
    ...     one, other = np.random.default_rng(), np.random.default_rng()
    >>> one.random() == other.random()
    True
    """
    from unittest.mock import patch  # imports much, and is needed here alone

    make = np.random.default_rng
    own = seed

    def default_rng(seed=None):  # called as numpy's, by position or by name
        return make(own if seed is None else seed)

    with patch("numpy.random.default_rng", default_rng):
        yield
