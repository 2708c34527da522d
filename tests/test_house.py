"""The house stays small and whole: results, floors, no half of a merge."""

import subprocess
import tomllib

from fltnb import paths


def files(pattern: str):
    """Tracked files, or all of them where the project was downloaded without git."""
    done = subprocess.run(
        ["git", "ls-files", pattern], cwd=paths.ROOT, capture_output=True, text=True
    )
    found = [paths.ROOT / name for name in done.stdout.split("\n") if name]
    return [file for file in found if file.exists()] or sorted(
        paths.ROOT.glob(pattern.replace("/*", "/**/*"))
    )


def test_results_stay_small():
    assert sum(file.stat().st_size for file in files("results/*")) <= 10_000_000


def test_no_file_keeps_both_sides_of_a_merge():
    marks = ("<" * 7 + " ", ">" * 7 + " ")
    halves = []
    for pattern in ("*.md", "*.py", "*.yaml", "*.yml", "*.toml", "*.ipynb", "*.csv"):
        for file in files(pattern):
            lines = file.read_text(encoding="utf-8").splitlines()
            if any(line.startswith(marks) for line in lines):
                halves.append(file.name)
    assert not halves


def test_floors_are_few():
    contract = tomllib.loads(
        (paths.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    )["tool"]["importlinter"]
    order = contract["contracts"][0]
    assert (
        order["type"] == "layers" and order["exhaustive"] and len(order["layers"]) <= 9
    )
