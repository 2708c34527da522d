"""The documentation pages: their code runs, and what they say about the project is true."""

import re

from toys import refused

from fltnb import papers, paths
from fltnb.methods import RULES

DOCS = paths.ROOT / "docs"


def test_the_method_of_the_page_runs(capsys):
    """Run the page from top to bottom, as a reader would; its own assertions are part of it."""
    page = (DOCS / "adding_a_method.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S)
    assert len(blocks) == 4
    assert 25 <= len([line for line in blocks[0].splitlines() if line.strip()]) <= 40  # "about 30 lines"
    names = {"__name__": "page"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"adding_a_method.md, block {number + 1}", "exec"), names)
    assert "accuracy" in capsys.readouterr().out
    refused(r"own must be a number of at least 0 and at most 1, not 1.5", names["PersonalMix"], 1.5)
    # the ring is a different graph from FedAvg's, and everybody has a model of their own
    assert len(names["ring"].theta) == names["fed"].n_clients


def test_differences_names_the_switches_lists_all_22_and_repeats_the_papers_contradictions():
    text = (DOCS / "differences.md").read_text(encoding="utf-8")
    the_list = text.split("## The list")[1].split("## ")[0]
    assert re.findall(r"^\| (\d+) \|", the_list, flags=re.M) == [str(n) for n in range(1, 23)]
    switches = ("`rule`", "`momentum`", "`k`", "`distance`", "`threshold`", "`graph`", "`finetune_epochs`", *RULES)
    assert not [name for name in switches if name.strip("`") not in text]
    assert "## Measured effect" in text
    section = text.split("## Where the paper disagrees with itself")[1]
    printed = {value for row in papers.inconsistencies("flt")["printed"] for value in row.values()}
    assert not [value for value in printed if value not in section]


def test_pages_link_to_files_that_exist():
    for page in ("differences.md", "adding_a_method.md"):
        text = (DOCS / page).read_text(encoding="utf-8")
        named = set(re.findall(r"`(fltnb/[\w/]+(?:\.py|/))`", text))
        assert named or page == "differences.md"
        assert not [name for name in named if not (paths.ROOT / name).exists()]
