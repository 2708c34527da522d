"""The report: every printed number and claim beside what became of it.

:func:`write` makes it of results and computes no run: pages for GitHub
(``docs/report/``) and what README shows of it. Their words stand in ``templates/``.
"""

import re
from collections import Counter
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

import pandas as pd

from .. import paths
from ..plots import save
from .compare import cell_text, for_people, remarks
from .counts import all_measured, committed, counts, nearness
from .measured import measured
from .names import PAPERS, SHORT, label
from .numbers import claims, read
from .picture import agreement
from .settings import NOTEBOOKS, TESTED_ON, Row, in_order
from .verdicts import OUTCOMES, judge_all, outcomes

PICTURE = "figures/stored/99_agreement.png"
KINDS = ("printed", "text", "code")


def write(results_by_notebook: Mapping[str, Any] | None = None) -> None:
    """Write the report, its picture and README's part, by default of what is stored."""
    held = committed() if results_by_notebook is None else results_by_notebook
    found, judged = evidence(held)
    fig, _ = agreement(found, judged)
    save(fig, "99_agreement", "stored")
    for name, text in _pages(held, found, judged).items():
        encoded = text.encode()
        paths.write_atomically(
            paths.ROOT / name, lambda file, encoded=encoded: file.write(encoded)
        )


def pages(held: Mapping[str, Any]) -> dict[str, str]:
    """Return file -> Markdown: ``docs/report/`` and, if it is there, ``README.md``.

    ``held``: notebook -> results.
    """
    return _pages(held, *evidence(held))


def evidence(held: Mapping[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a row per printed number and variant, and a row per claim.

    The first is of :func:`fltnb.papers.all_measured`; the second are the papers' claims
    with the columns of :func:`fltnb.papers.outcomes`.
    """
    judged = outcomes(judge_all(held)).drop(columns="claim")
    return all_measured(held), claims().merge(judged, on="id")


def _pages(
    held: Mapping[str, Any], found: pd.DataFrame, judged: pd.DataFrame
) -> dict[str, str]:
    """Return the pages of :func:`pages`."""
    summary = pipes(_summary(held, found, judged))
    made = {"docs/report/README.md": fill("front.md", picture=PICTURE, papers=summary)}
    for paper in NOTEBOOKS:
        own = found[found["paper"] == paper]
        tables = []
        for one, name, book in in_order():
            if one == paper:
                tables.append(_table(own[own["table"] == name], held.get(book)))
        made[f"docs/report/{paper}.md"] = fill(
            "paper.md",
            paper=PAPERS[paper],
            title=read("cards.csv").set_index("paper")["title"][paper],
            claims=pipes(_claims(judged[judged["paper"] == paper])),
            tables="\n\n".join(tables),
        )

    readme = paths.ROOT / "README.md"
    if readme.exists():
        text = readme.read_text(encoding="utf-8")
        summary = summary.replace("](", "](docs/report/")
        text = _replaced(text, "cards", summary)
        table = _first_table(held.get("01_scenario1"))
        made["README.md"] = _replaced(text, "table", table)
    return made


def fill(template: str, **words: Any) -> str:
    """Return a template with its words filled in."""
    file = resources.files(__package__).joinpath("templates", template)
    return Template(file.read_text(encoding="utf-8")).substitute(words)


def _replaced(text: str, name: str, block: str) -> str:
    """Put a block between its two marks; a text without them stays as it is."""
    pattern = rf"(<!-- {name}: [^\n]*\n).*?(<!-- end -->)"
    return re.sub(
        pattern,
        lambda found: f"{found[1]}\n{block}\n\n{found[2]}",
        text,
        flags=re.DOTALL,
    )


def pipes(table: pd.DataFrame) -> str:
    """Write a table as Markdown; columns of numbers are set right."""
    text = table.astype(str).replace({r"\|": r"\|", r"\n": " "}, regex=True)
    marks = []
    for name in text:
        numbers = text[name].str.match(r"[*–−+-]?[\d–]|^$").all()
        marks.append("---:" if numbers else "---")
    rows = [list(text), marks, *text.to_numpy().tolist()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


# ---------------------------------------------------------------- papers


def _summary(
    held: Mapping[str, Any], found: pd.DataFrame, judged: pd.DataFrame
) -> pd.DataFrame:
    """Return a row per paper: numbers, how near they come, claims, costs."""
    totals = counts(found).set_index(["paper", "variant"])
    near = nearness(found).set_index(["paper", "variant"])
    about = read("cards.csv").set_index("paper")
    rows = []
    for paper in NOTEBOOKS:
        own = totals.loc[paper].rename(index=SHORT)
        close = near[near.index.get_level_values(0) == paper].droplevel(0)
        close = close[close["accuracies"] > 0].rename(index=SHORT)
        within = [
            f"{row.points_3} of {row.accuracies} ({name})"
            for name, row in zip(close.index, close.itertuples(), strict=True)
        ]
        made = own["printed_setting"][own["printed_setting"] > 0]
        outcome = judged["outcome"][judged["paper"] == paper].value_counts()
        row = {
            "paper": f"[{PAPERS[paper]}]({paper}.md), {about['notebooks'][paper]}",
            "printed numbers": own["printed"].iloc[0],
            "in the printed setting": _each(made),
            "accuracies within 3 points": ", ".join(within) or "–",
            "claims": " ".join(
                f"{sign}&nbsp;{outcome.get(word, 0)}" for word, sign in OUTCOMES.items()
            ),
            "hours": f"{_hours(held, paper):.0f}",
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _each(numbers: pd.Series) -> str:
    """Write numbers, each with its name in brackets."""
    return ", ".join(f"{number} ({name})" for name, number in numbers.items()) or "–"


def _hours(held: Mapping[str, Any], paper: str) -> float:
    """Return the hours that the runs behind a paper's tables took."""
    minutes = 0.0
    for book in NOTEBOOKS[paper]:
        results = held.get(book)
        if results is not None and len(results.runs):
            minutes += results.provenance()["minutes"].sum()
    return minutes / 60


def _claims(judged: pd.DataFrame) -> pd.DataFrame:
    """Return a row per claim: what became of it and on what."""
    rows = []
    for claim in judged.to_dict("records"):
        sentence = f"{claim['claim']} ({claim['source']})"
        if claim["testable"]:
            sentence += f"<br>*{claim['testable']}*"
        look = claim["outcome"].replace(" ", "-")
        row = {"claim": sentence, "printed": claim["printed"].replace("; ", "<br>")}
        row["here"] = claim["here"].replace("; ", "<br>") or claim["why"]
        row["tested on"] = claim["tested_on"]
        if claim["alone"]:
            row["tested on"] += f", on {claim['alone']} alone"
        row["outcome"] = f'<b class="{look}">{claim["sign"]} {claim["outcome"]}</b>'
        rows.append(row)
    return pd.DataFrame(rows)


# ---------------------------------------------------------------- tables


class _Footnotes:
    """Remarks on cells, each told once under the table behind a letter."""

    def __init__(self, usual: str):
        self.usual = usual  # what departs in most cells has no letter
        self.letters: dict[str, str] = {}

    def mark(self, remark: str) -> str:
        """Return the mark of a remark."""
        if not remark or remark == self.usual:
            return ""
        letter = self.letters.setdefault(remark, chr(ord("a") + len(self.letters)))
        return f"<sup>{letter}</sup>"

    def write(self, cell: Row) -> str:
        """Write a number of ours: in italics if it was not the printed setting."""
        if cell["status"] == "not run":
            return "–"
        text = cell_text(cell, seeds=False)
        if not cell["departs"]:
            return text
        return f"*{text}*" + self.mark("; ".join(cell["departs"]))


def _table(found: pd.DataFrame, results: Any) -> str:
    """Return one printed table as Markdown, by data set and network."""
    departs = Counter("; ".join(said) for said in found["departs"] if said)
    usual = departs.most_common(1)[0][0] if departs else ""
    notes = _Footnotes(usual)
    table = for_people(found, notes.write)
    for name in ("setting", "text − printed", "code − printed"):
        table = table.drop(columns=name, errors="ignore")
    if "note" in table:
        said = table.pop("note").str.replace(r"\bT(\d+)\b", r"Table \1", regex=True)
        table["printed"] += said.map(notes.mark)

    name = found["table"].iloc[0]
    parts = [f"### Table {name[1:]}", _status(found)]
    heads = [head for head in ("data", "model") if head in table]
    groups = table.groupby(heads, sort=False) if heads else [((), table)]
    for head, own in groups:
        if head:
            parts.append(f"**{', '.join(head)}**")
        parts.append(pipes(_wide(own.drop(columns=heads))))
    told = remarks(found, results)
    if usual:
        told.append(f"*Italic*, unless a mark says else: {usual}.")
    told += [f"<sup>{mark}</sup> {text}." for text, mark in notes.letters.items()]
    if told:
        parts.append("<br>\n".join(told))
    return "\n\n".join(parts)


def _status(found: pd.DataFrame) -> str:
    """Say how many numbers of a table were run, and how."""
    said = []
    for variant, own in found.groupby("variant", sort=False):
        number = own["status"].value_counts()
        each = [f"{number[word]} {word}" for word in TESTED_ON if word in number]
        if each:
            said.append(f"{label(variant)}: {', '.join(each)}")
    return f"{len(found) // 2} numbers; {'; '.join(said) or 'none was run'}."


def _wide(table: pd.DataFrame) -> pd.DataFrame:
    """Put a table into the paper's form: a line per method, measures side by side."""
    heads = list(table.columns[: table.columns.get_loc("measure")])
    if len(heads) > 1 and table["measure"].nunique() == 1:
        # one method under several settings: settings are lines, methods columns
        table = table.assign(measure=table["method"]).drop(columns="method")
        heads.remove("method")
    kinds = [kind for kind in KINDS if kind in table and (table[kind] != "–").any()]
    single = table["measure"].nunique() == 1
    lines: dict[tuple, dict[str, str]] = {}
    for row in table.to_dict("records"):
        about = {name: row[name] for name in heads}
        line = lines.setdefault(tuple(about.values()), about)
        for kind in kinds:
            line[kind if single else f"{row['measure']}<br>{kind}"] = row[kind]
    return pd.DataFrame(lines.values()).fillna("")


def _first_table(results: Any) -> str:
    """Return the accuracies of FLT's Table 1 for README, the oracle's beside them."""
    found = measured(results, "flt", "T1", beside=("oracle",))
    rows: dict[str, dict[str, str]] = {}
    for cell in found[found["metric"] == "accuracy"].to_dict("records"):
        row = rows.setdefault(cell["method"], {"method": label(cell["method"])})
        data = label(cell["dataset"])
        row[f"{data}<br>printed"] = cell["value"] or "–"
        text = cell_text(cell, seeds=False).replace("not run", "–")
        row[f"{data}<br>{SHORT[cell['variant']]}"] = text
    return pipes(pd.DataFrame(rows.values()))
