"""What studies take and give, and what several of them do."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

Settings = dict[str, Any]
"""Settings of a federation, a method, an encoder: JSON-able, as results store them."""
Study = dict[str, Any]
"""What a study returns: ``numbers``, ``tables`` and ``arrays`` by name, of these those
that it has."""


def means(rows: Sequence[dict[str, Any]], by: Sequence[str]) -> pd.DataFrame:
    """Return the means of rows in groups, in the order in which these come.

    Parameters
    ----------
    rows : sequence of dict
        Such as one for each seed.
    by : sequence of str
        Columns that tell the groups apart.
    """
    groups = pd.DataFrame(rows).groupby(list(by), sort=False)
    return groups.mean().reset_index()
