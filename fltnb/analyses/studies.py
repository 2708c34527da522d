"""Types of arguments and results of studies, and common functions."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

Settings = dict[str, Any]
"""Settings of a federation, a method, an encoder: JSON-able, as results store them."""
Study = dict[str, Any]
"""What a study returns: any of ``numbers``, ``tables`` and ``arrays`` by name."""


def means(rows: Sequence[dict[str, Any]], by: Sequence[str]) -> pd.DataFrame:
    """Return the means of rows in groups, in the order of the groups.

    Parameters
    ----------
    rows : sequence of dict
        Such as one for each seed.
    by : sequence of str
        Columns that define the groups.
    """
    groups = pd.DataFrame(rows).groupby(list(by), sort=False)
    return groups.mean().reset_index()
