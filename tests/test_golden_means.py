"""Every mean over seeds that was frozen is what the ledgers give today."""

import pytest
from golden_means import lines, means, name_of, stored

FROZEN = stored()
NOTEBOOKS = sorted({cell["notebook"] for cell in FROZEN})


@pytest.fixture(scope="module")
def today() -> dict[str, dict]:
    return lines()


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_every_mean_is_as_it_was(notebook, today):
    for cell in FROZEN:
        if cell["notebook"] != notebook:
            continue
        name = name_of(cell)
        assert name in today, f"{name} has no results any more"

        numbers = today[name]["numbers"]
        lost = [seed for seed in cell["seeds"] if seed not in numbers]
        assert not lost, f"{name} has lost its seeds {lost}"

        found = means(numbers, cell["seeds"])
        for metric, (mean, n_seeds) in cell["means"].items():
            assert metric in found, f"{name} has lost its {metric}"
            assert found[metric][0] == pytest.approx(mean, rel=1e-12, abs=1e-12), name
            assert found[metric][1] == n_seeds, f"{name}: {metric} lacks a seed"


def test_most_results_are_frozen(today):
    """Results that are new are frozen by ``python -m tests.golden means``."""
    frozen = {name_of(cell) for cell in FROZEN}
    new = [name for name in today if name not in frozen]
    assert len(new) < 0.1 * len(today), f"{len(new)} cells are not frozen"
