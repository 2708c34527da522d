"""Fixtures that the tests of several rooms share."""

import gc
import os
import sys

import pytest

import fltnb as fl

sys.modules.setdefault(
    "rfc3987_syntax", None
)  # jsonschema's form of internet addresses: 3 s to import, unused here
for name, value in (
    ("OMP_NUM_THREADS", "1"),
    ("OMP_WAIT_POLICY", "PASSIVE"),
):  # a waiting thread is to sleep
    os.environ.setdefault(name, value)
os.environ.setdefault(
    "LOKY_MAX_CPU_COUNT", "1"
)  # tests run side by side: who wants worker processes says so

# as fltnb.notebook.Page has it: looking for unused cycles less often saves time
gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session")
def digits():
    return fl.load("digits")


@pytest.fixture(autouse=True)
def without_what_notebooks_get(monkeypatch):
    """Take away what `make test` sets for notebooks, which run in the same session."""
    for name in ("FLTNB_FIGURES", "TQDM_DISABLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def own_store(tmp_path, monkeypatch):
    """Give the test an empty store of its own."""
    monkeypatch.setenv("FLTNB_STORE", str(tmp_path / "store"))
    for name in ("FLTNB_FRESH", "FLTNB_DASK"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "store"
