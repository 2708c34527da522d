"""Random streams keyed by what they are for, so that no draw depends on what was drawn before it.

A stream is a pure function of (seed, purpose, keys). A run therefore gives the same numbers whatever the back end,
the grouping of clients, the number of workers, the evaluation frequency, and whether it was resumed.
"""

import numpy as np

# Numbers are part of every stored result: append, never reorder.
_WORDS = "partition init participation order dropout kmeans umap encoder finetune split method"
PURPOSES = {purpose: number for number, purpose in enumerate(_WORDS.split(), start=1)}


def _sequence(seed: int, purpose: str, keys: tuple[int, ...]) -> np.random.SeedSequence:
    # The number of keys goes in too: NumPy pads with zeros, so (round,) and (round, 0) would else be one stream.
    return np.random.SeedSequence(
        [int(seed), PURPOSES[purpose], len(keys), *(int(key) for key in keys)]
    )


def stream(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """Return the generator of one purpose, one of :data:`PURPOSES`.

    ``seed``: non-negative seed of a run or a partition. ``keys``: for example round and client.
    """
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose, keys)))


def integer(seed: int, purpose: str, *keys: int) -> int:
    """Return a 31-bit seed for libraries that want an integer (scikit-learn, UMAP, torch)."""
    return int(_sequence(seed, purpose, keys).generate_state(1)[0] >> 1)
