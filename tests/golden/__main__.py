"""Store today's outcomes of all golden cases: ``python -m tests.golden``.

With the word ``long``: the runs of 20 rounds; with ``means``: freeze the results in
``results/ledger`` that are new. It runs in the folder of the repository.
"""

import os
import sys
import tempfile
from pathlib import Path

# where pytest finds the tests' modules as well
sys.path.insert(0, str(Path(__file__).parents[1]))

import golden_long
import golden_means
from test_golden import write

if sys.argv[1:] == ["means"]:
    golden_means.write()
else:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FLTNB_STORE"] = folder
        golden_long.write() if sys.argv[1:] == ["long"] else write()
