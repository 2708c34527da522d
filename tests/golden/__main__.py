"""Store today's outcomes of all golden cases: ``python -m tests.golden`` in the folder of the repository.

It leaves alone ``means.csv`` and ``tables.csv``, what the committed results of profile small yield: means over seeds
(no keys: those of the row above), and sums, means and digests of the other tables.
"""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).parents[1])
)  # where pytest finds the tests' modules as well

from test_golden import write

with tempfile.TemporaryDirectory() as folder:
    os.environ["FLTNB_STORE"] = folder
    write()
