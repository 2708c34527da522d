"""What processes that run notebooks or tests set first, only to be faster."""

import gc
import os
import sys


def be_quick() -> None:
    """Leave out slow work that neither notebooks nor tests need."""
    # Both make many small objects, and few in cycles: looking for unused cycles as
    # often as Python does takes an eighth of the time.
    gc.set_threshold(50_000, 20, 20)
    # POT would import torch for functions that are not used here
    os.environ.setdefault("POT_BACKEND_DISABLE_PYTORCH", "1")
    # jsonschema, which papermill and Jupyter import, builds a grammar of web addresses
    # where it finds this package: some seconds, for a format that is not used
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # no module
