"""The documentation pages: their code runs, and what they say about the project is
true.
"""

import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from toys import refused

from fltnb import papers, paths
from fltnb.methods import RULES

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


@pytest.fixture
def owners(tmp_path, digits, monkeypatch):
    """Write twelve owners' pictures, and their pixels as a table; every other owner
    turns the pictures upside down.
    """
    monkeypatch.chdir(tmp_path)
    rows = []
    for i, (image, label) in enumerate(zip(digits.images, digits.labels, strict=True)):
        image = image[::-1] if i % 12 % 2 else image
        file = (
            tmp_path / "photos" / f"owner{i % 12:02}" / f"digit{label}" / f"{i:04}.png"
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
        rows.append(
            {"hospital": f"owner{i % 12:02}", "outcome": int(label)}
            | dict(enumerate(image.ravel().tolist()))
        )
    pd.DataFrame(rows).to_csv("visits.csv", index=False)
    return tmp_path


def test_own_clients_are_read_tested_and_judged_as_the_page_says(owners, capsys):
    names = run("own_clients.md", code("own_clients.md"))
    fed, table = names["fed"], names["table"]
    assert (
        fed.input_shape == (1, 8, 8)
        and fed.class_names[3] == "digit3"
        and table.class_names[3] == "3"
    )
    assert np.array_equal(
        np.sort(fed.label_counts("train"), 0), np.sort(table.label_counts("train"), 0)
    )
    assert (
        names["found"].labels_.tolist() == 6 * [0, 1]
        and (owners / "groups.png").exists()
    )
    assert names["runs"]["FLT"].accuracy > names["runs"]["FedAvg"].accuracy
    assert (
        names["gain"].points > 3 * names["gain"].error > 0
        and "bytes from client 0" in capsys.readouterr().out
    )
    for file, says in (
        (
            "empty/a.txt",
            "no picture in empty: lay them out as empty/OWNER/CLASS/PICTURE",
        ),
        ("broken/ann/cat/1.png", "broken/ann/cat/1.png cannot be read as a picture"),
        ("photos/owner00/x.png", "photos/owner00/x.png is not where its owner"),
    ):
        (owners / file).parent.mkdir(parents=True, exist_ok=True)
        (owners / file).write_bytes(b"no picture")
        refused(says, fed.from_folder, file.split("/")[0])
    refused(
        "no column owner, label; it has hospital, outcome", fed.from_csv, "visits.csv"
    )
    refused("There is no file zzz.csv", fed.from_csv, "zzz.csv")
    refused("photos is a folder: use from_folder", fed.from_csv, "photos")
    refused(
        r'features must be a list: \["age"\]',
        fed.from_csv,
        "visits.csv",
        features="age",
    )
    refused(
        "option of from_csv 'test_share': choose one of test_fraction",
        fed.from_csv,
        "visits.csv",
        test_share=0.2,
    )
    refused("option of from_folder 'gray'", fed.from_folder, "photos", gray=True)
    for line, says in (
        ("ann,0,old", "Column age holds text among numbers, such as 'old'"),
        ("ann,0,inf", "NaN or infinite"),
        ("ann,0.5,2", "Classes in outcome of t.csv are decimal numbers"),
    ):
        (owners / "t.csv").write_text(
            f"hospital,outcome,age\nann,1,3\n{line}\n", encoding="utf-8"
        )
        refused(says, fed.from_csv, owners / "t.csv", "hospital", "outcome")
    for begin in (
        ",hospital,outcome,age\n",
        "hospital,outcome,age\n",
    ):  # a table with its index, and a name forgotten
        (owners / "t.csv").write_text(f"{begin}0,ann,1,3\n", encoding="utf-8")
        refused(
            "t.csv has columns without a name",
            fed.from_csv,
            owners / "t.csv",
            "hospital",
            "outcome",
        )
    Image.fromarray(np.full((8, 8), 40_000, np.uint16)).save(
        owners / "broken/ann/cat/1.png"
    )
    refused("1.png has pixels of more than 8 bits", fed.from_folder, "broken")
    (owners / "t.csv").write_text("hospital;outcome;age\nann;1;3\n", encoding="utf-8")
    refused(
        "t.csv has one column, hospital;outcome;age: save it with commas",
        fed.from_csv,
        owners / "t.csv",
    )


def test_the_method_of_the_page_runs(capsys):
    blocks = code("adding_a_method.md")
    assert len(blocks) == 4
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
