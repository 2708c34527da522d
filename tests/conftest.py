"""Fixtures that the tests of several rooms share."""

import pytest

import fltnb as fl


@pytest.fixture(scope="session")
def digits():
    return fl.load("digits")


@pytest.fixture
def own_store(tmp_path, monkeypatch):
    """Give the test an empty store of its own."""
    monkeypatch.setenv("FLTNB_STORE", str(tmp_path / "store"))
    for name in ("FLTNB_FRESH", "FLTNB_DASK"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "store"
