"""The documentation pages: their code runs, and what they say about the project is
true.
"""

import re

import numpy as np
import pytest
from PIL import Image
from toys import refused

import fltnb as fl
from fltnb import papers, paths
from fltnb.methods import RULES
from fltnb.metrics import adjusted_rand_index

DOCS = paths.ROOT / "docs"


def code(page):
    return re.findall(
        r"^```python\n(.*?)^```",
        (DOCS / page).read_text(encoding="utf-8"),
        flags=re.M | re.S,
    )


def run(page, blocks):
    """Run a page from top to bottom, as a reader would; its own assertions are part of
    it.
    """
    names = {"__name__": "page"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page}, block {number + 1}", "exec"), names)
    return names


def test_own_clients_are_read_advised_trained_and_used_as_the_page_says(
    tmp_path, monkeypatch, capsys
):
    """In an empty folder: the page makes its own data."""
    monkeypatch.chdir(tmp_path)
    names = run("own_clients.md", code("own_clients.md"))
    fed, advice, runs = names["fed"], names["advice"], names["runs"]
    groups = np.arange(12) % 3
    assert fed.names == tuple(names["cities"]) and fed.class_names == ("home", "ward")
    assert adjusted_rand_index(groups, advice.labels["MergeGain"]) > 0.8
    assert advice.recommended == "MergeGain" and (tmp_path / "groups.png").exists()
    assert adjusted_rand_index(groups, names["found"].labels_) > 0.6
    assert names["test"].n_clusters_ == 1  # inputs alone show no groups
    assert names["gain"].points > 3 * names["gain"].error > 0
    assert runs["advised"].accuracy > runs["FedAvg"].accuracy + 5
    # the newcomer is of group 1, and is served as well as that group's own clients
    assert names["cluster"] == advice.labels["MergeGain"][1]
    own = runs["advised"].clients["test"][groups == 1].mean()
    assert 100 * names["hits"].mean() > own - 10
    assert names["small"].names == ("north", "south")
    assert "bytes from client 0" in capsys.readouterr().out


def test_pages_say_what_a_client_of_merge_gain_sends():
    x = np.random.default_rng(0).normal(size=(30, 5))
    y = np.arange(30) % 2
    said = {}
    for name in ("own_clients.md", "clusterers/mergegain.md"):
        said[name] = (DOCS / name).read_text(encoding="utf-8")
    for draws, classes, page in (
        (1, 2, "own_clients.md"),
        (4, 2, "own_clients.md"),
        (1, 2, "clusterers/mergegain.md"),
        (1, 10, "clusterers/mergegain.md"),
    ):
        clusterer = fl.MergeGain(n_draws=draws, n_classes=classes)
        sent = fl.clustering.sketch_bytes(clusterer.sketch(x, y))
        assert f" {sent / 1000:.0f} kB" in said[page]


def test_the_page_names_all_that_leaves_a_client():
    page = (DOCS / "own_clients.md").read_text(encoding="utf-8")
    said = page.partition("## What leaves a client")[2]
    for name in ("n_features", "epsilon", "In every round, a model", "run.json"):
        assert name in said
    fed = fl.federations.label_clusters(fl.load("digits"), 4, 2, classes_per_cluster=3)
    history = fl.run(fl.methods.FedAvg(), fed, rounds=1, progress=False).history
    for column in ("bytes_up", "bytes_down"):
        assert column in said and column in history
    for part in fl.flower.scaling.PARTS:  # the rest is the mean's rounding error
        assert {"rest": "mean", "squares": "squared distances"}.get(part, part) in said


def test_the_answers_for_newcomers_are_told_for_every_clusterer():
    page = (DOCS / "clusterers.md").read_text(encoding="utf-8")
    said = page.partition("## Newcomers")[2]
    for kind in fl.clustering.CLUSTERERS.values():
        assert kind.__name__ in said


# pages whose blocks are run elsewhere: test_own_methods, test_dask, test_flower
ELSEWHERE = {"own_network.md", "cluster.md", "flower.md"}
HERE = {"own_clients.md", "adding_a_method.md", "../README.md"}
ALONE = {"architecture.md": 1, "explorer.md": 4, "guide.md": 2}
"""Page -> blocks that run as they stand; explorer.md has one more, for a browser."""


def test_every_page_with_code_is_run():
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    with_code = {page for page in [*pages, "../README.md"] if code(page)}
    assert with_code == ELSEWHERE | HERE | set(ALONE)


@pytest.mark.parametrize("page", ALONE)
def test_a_page_runs_by_itself(page):
    blocks = code(page)
    assert len(blocks) == ALONE[page] + (page == "explorer.md")
    names = run(page, blocks[: ALONE[page]])
    if page == "architecture.md":
        assert len(names["outs"]) == 2 and names["ev"].total.sum() > 0


def test_readme_runs_on_a_table_like_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    visits = run("own_clients.md", code("own_clients.md")[:1])["visits"]
    visits.head(3).to_csv("new.csv", index=False)
    names = run("README.md", code("../README.md"))
    assert names["run"].accuracy > 70 and (tmp_path / "visits-models").is_dir()


def test_what_cannot_be_read_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fed = fl.Federation
    picture = Image.fromarray(np.full((8, 8), 200, np.uint8))
    for i in range(4):
        (tmp_path / "photos/ann/cat").mkdir(parents=True, exist_ok=True)
        picture.save(tmp_path / f"photos/ann/cat/{i}.png")
    for file, says in (
        (
            "empty/a.txt",
            "no picture in empty: lay them out as empty/CLIENT/CLASS/PICTURE",
        ),
        ("broken/ann/cat/1.png", "broken/ann/cat/1.png cannot be read as a picture"),
        ("photos/ann/x.png", "photos/ann/x.png is not where its client"),
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(b"no picture")
        refused(says, fed.from_folder, file.split("/")[0])
    Image.fromarray(np.full((8, 8), 40_000, np.uint16)).save("broken/ann/cat/1.png")
    refused("1.png has pixels of more than 8 bits", fed.from_folder, "broken")
    refused("option of from_folder 'gray'", fed.from_folder, "photos", gray=True)

    table = "hospital,outcome,age\nann,1,3\nann,0,4\n"
    (tmp_path / "t.csv").write_text(table, encoding="utf-8")
    says = "no column client, label; it has hospital, outcome"
    refused(says, fed.from_csv, "t.csv")
    refused("There is no file zzz.csv", fed.from_csv, "zzz.csv")
    refused("photos is a folder: use from_folder", fed.from_csv, "photos")
    keys = {"client": "hospital", "label": "outcome"}
    says = r'features must be a list: \["age"\]'
    refused(says, fed.from_csv, "t.csv", **keys, features="age")
    says = "option of from_csv 'test_share': choose one of test_fraction"
    refused(says, fed.from_csv, "t.csv", test_share=0.2)
    for line, says in (
        ("ann,0,old", "Column age holds text among numbers, such as 'old'"),
        ("ann,0,inf", "NaN or infinite"),
        ("ann,0.5,2", "Classes in outcome of t.csv are decimal numbers"),
    ):
        head = "hospital,outcome,age\nann,1,3\n"
        (tmp_path / "t.csv").write_text(f"{head}{line}\n", encoding="utf-8")
        refused(says, fed.from_csv, "t.csv", **keys)
    # a table with its index, and a name forgotten
    for begin in (",hospital,outcome,age\n", "hospital,outcome,age\n"):
        (tmp_path / "t.csv").write_text(f"{begin}0,ann,1,3\n", encoding="utf-8")
        refused("t.csv has columns without a name", fed.from_csv, "t.csv", **keys)
    text = "hospital;outcome;age\nann;1;3\n"
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    says = "t.csv has one column, hospital;outcome;age: save it with commas"
    refused(says, fed.from_csv, "t.csv")


def test_the_method_of_the_page_runs(capsys):
    blocks = code("adding_a_method.md")
    assert len(blocks) == 5
    assert (
        25 <= len([line for line in blocks[0].splitlines() if line.strip()]) <= 40
    )  # "about 30 lines"
    names = run("adding_a_method.md", blocks)
    assert "accuracy" in capsys.readouterr().out
    refused(
        r"own must be a number of at least 0 and at most 1, not 1.5",
        names["PersonalMix"],
        1.5,
    )
    # the ring is a different graph from FedAvg's, and everybody has a model of their
    # own
    assert len(names["ring"].theta) == names["fed"].n_clients
    assert names["one"].accuracy > 0


def test_differences_names_the_switches_and_repeats_the_papers_contradictions():
    text = (DOCS / "differences" / "flt.md").read_text(encoding="utf-8")
    the_list = text.split("## The list")[1].split("## ")[0]
    assert re.findall(r"^\| (\d+) \|", the_list, flags=re.M) == [
        str(n) for n in range(1, 24)
    ]
    switches = (
        "`rule`",
        "`momentum`",
        "`k`",
        "`distance`",
        "`threshold`",
        "`graph`",
        "`finetune_epochs`",
        *RULES,
    )
    assert not [name for name in switches if name.strip("`") not in text]
    section = text.split("## Where the paper disagrees with itself")[1]
    printed = {
        value
        for row in papers.inconsistencies("flt")["printed"]
        for value in row.values()
    }
    assert not [value for value in printed if value not in section]


def test_pages_name_and_link_files_that_exist():
    pages = [*DOCS.rglob("*.md"), paths.ROOT / "README.md"]
    assert {"guide.md", "differences.md", "mthfl.md"} <= {page.name for page in pages}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(
            r"`((?:fltnb|docs|notebooks|tests)/[\w/]+(?:\.py|\.md|\.ipynb|/))`", text
        ):
            assert (paths.ROOT / name).exists(), (page.name, name)
        for link in re.findall(r"\]\(([^)#\s]+)|href=\"([^\"#]+)\"", text):
            if not (link := "".join(link)).startswith("http"):
                assert (page.parent / link).exists(), (page.name, link)
