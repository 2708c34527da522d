"""Fixtures that the tests of several rooms share."""

import os
import sys

import pytest

import fltnb as fl
from fltnb.startup import be_quick

be_quick()
for name, value in (
    ("OMP_NUM_THREADS", "1"),
    ("OMP_WAIT_POLICY", "PASSIVE"),
):  # a waiting thread is to sleep
    os.environ.setdefault(name, value)
os.environ.setdefault(
    "LOKY_MAX_CPU_COUNT", "1"
)  # tests run side by side: who wants worker processes says so
if sys.version_info < (3, 12) and "PYTEST_XDIST_WORKER" in os.environ:
    # Python 3.11 counts lines slowly, most of all those that notebooks run: there only
    # the processes that run tests count, not those that they start.
    os.environ.pop("COVERAGE_PROCESS_CONFIG", None)


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
