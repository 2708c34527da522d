"""The report: every printed number and claim beside what became of it.

:func:`write` makes it of committed results and computes no run: pages for GitHub (``docs/report/``) and what README
shows of it. Their words stand in ``templates/``.
"""

import re
from collections import Counter
from collections.abc import Mapping
from functools import partial
from html import escape
from importlib import resources
from string import Template
from typing import Any

import pandas as pd

from .. import paths
from .checks import VERDICTS, checked_claims, checks
from .compare import above_diagonal, cell_text, measured, wide, worded
from .counts import all_measured, committed, counts, nearness
from .names import PAPERS, VARIANTS, label
from .numbers import read
from .settings import NOTEBOOKS, in_order

PICTURE = "figures/stored/99_agreement.png"  # notebook 99 draws it
SINGLE = " <i>(one seed)</i>"
SYMBOLS = dict(zip(VERDICTS, "✔◐✘○–", strict=True))


def write(results_by_notebook: Mapping[str, Any] | None = None) -> None:
    """Write the report and README's part, by default from the committed results."""
    for name, text in pages(
        committed() if results_by_notebook is None else results_by_notebook
    ).items():
        paths.write_atomically(
            paths.ROOT / name, lambda file, text=text: file.write(text.encode())
        )


def pages(held: Mapping[str, Any]) -> dict[str, str]:
    """Return file -> Markdown: ``docs/report/`` and, if it is there, ``README.md``; ``held``: notebook -> results."""
    found, plain = all_measured(held), partial(escape, quote=False)
    checked = checks().map(plain)
    judged = checked_claims(checked).assign(
        claim=lambda judged: judged["claim"].map(plain)
    )
    totals, near = counts(found).set_index(["paper", "variant"]), nearness(found)
    each = [
        _card(paper, held, totals, near, judged[judged["paper"] == paper])
        for paper in NOTEBOOKS
    ]
    rows = [
        f"<tr>\n{left}\n{right}\n</tr>"
        for left, right in zip(each[::2], each[1::2], strict=True)
    ]
    cards = "\n".join(
        ("<table>", *rows, "</table>")
    )  # two in a row: HTML that GitHub shows, too
    ours = checked[checked["claim"] == ""]  # checks that bear on no claim of a paper
    count = {
        "held": (ours["verdict"] == "holds").sum(),
        "tested": (ours["verdict"] != "not tested").sum(),
    }
    shown = ours[["notebook", "sentence", "verdict", "evidence"]].assign(
        notebook=ours["notebook"].str[:2]
    )
    made = {
        "docs/report/README.md": fill(
            "front.md", picture=PICTURE, cards=cards, ours=_pipes(shown), **count
        )
    }
    for paper in NOTEBOOKS:
        order = [(name, book) for one, name, book in in_order() if one == paper]
        own = found[found["paper"] == paper]
        tables = [
            _table(own[own["table"] == name], held.get(book), name)
            for name, book in order
        ]
        shown = {
            "tables": "\n\n".join(tables),
            "claims": _claims(judged[judged["paper"] == paper]),
        }
        made[f"docs/report/{paper}.md"] = fill("paper.md", paper=PAPERS[paper], **shown)
    file = paths.ROOT / "README.md"
    if file.exists():
        made["README.md"] = file.read_text(encoding="utf-8")
        cards = re.sub(r'href="(\w+\.md)"', r'href="docs/report/\1"', cards)
        for name, block in {
            "cards": cards,
            "table": _first_table(held.get("01_scenario1")),
        }.items():
            before, mark, rest = made["README.md"].partition(f"<!-- {name}: ")
            line, _, rest = rest.partition("\n")
            _, end, after = rest.partition("<!-- end -->")
            made["README.md"] = "".join(
                (before, mark, line, "\n\n", block, "\n\n", end, after)
            )
    return made


def _card(
    paper: str,
    held: Mapping,
    totals: pd.DataFrame,
    near: pd.DataFrame,
    judged: pd.DataFrame,
) -> str:
    about = read("cards.csv").set_index("paper").loc[paper]
    lines = [
        f'<td width="50%" valign="top"><b>{PAPERS[paper]}</b>, <i>{about["title"]}</i>'
        f' (<a href="https://arxiv.org/abs/{about["arxiv"]}">arXiv {about["arxiv"]}</a>): {about["notebooks"]},'
        f' <a href="{paper}.md">all tables and claims</a>'
    ]
    done = totals.loc[paper].rename(index=VARIANTS).query("reproduced + otherwise > 0")
    done["copies"] = [
        f" ({n} of them on JPEG copies)" * (n > 0) for n in done["on_copies"]
    ]
    said = [
        f"{row.reproduced} reproduced{row.copies} {at}, {row.otherwise} otherwise"
        for at, row in done.iterrows()
    ]
    lines.append(
        f"<b>{totals.loc[paper, 'printed'].iloc[0]} printed numbers</b>: {'; '.join(said) or 'none was run'}."
    )
    close = near[(near["paper"] == paper) & (near["accuracies"] > 0)].to_dict("records")
    said = [
        f"{row['points_3']} of {row['accuracies']} {VARIANTS[row['variant']]}"
        for row in close
    ]
    lines[-1] += f" Reproduced accuracies within 3 points: {', '.join(said)}." * bool(
        said
    )
    lines.append(f"<b>{len(judged)} claims</b>, among them:")
    for word in VERDICTS:
        own = judged[judged["verdict"] == word]
        counted = own["evidence"].map(
            lambda of: [one for one in of if one[0] in VERDICTS[:3]] or of
        )
        single = counted.map(
            lambda of: (
                SINGLE * min(["; one seed" in "; " + e for *_, e in of], default=0)
            )
        )
        named = own["claim"] + [_part(one) for one in own.to_dict("records")] + single
        named = named[own["id"].isin(about["headlines"].split())]
        if len(own):
            lines.append(
                f"{_verdict(word)} ({len(own)}): {' '.join(named)}".rstrip(": ")
            )
    behind = [
        held[book]
        for book in NOTEBOOKS[paper]
        if held.get(book) is not None and len(held[book].runs)
    ]
    hours = sum(results.provenance()["minutes"].sum() for results in behind) / 60
    runs = sum(len(one.runs) for one in behind)
    lines.append(
        f"<b>Cost</b> of its tables: {runs:,} runs, {hours:.1f} hours of computing."
    )
    return "<br>".join(lines) + "</td>"


def _part(claim: Mapping[str, Any]) -> str:
    """Name the data that decided a claim of which some checks do not count; sentences of checks begin with theirs."""
    counted = [text for word, text, _ in claim["evidence"] if word in VERDICTS[:3]]
    found = [re.match(r"([A-Z][^:,]+)(, as \w+)?: ", text) for text in counted]
    data = " and ".join(dict.fromkeys(one[1] for one in found)) if all(found) else ""
    words = (
        f"tested on {data} alone"
        if data
        else "stand-in data, which do not count, aside"
    )
    return f" <i>({words})</i>" * claim["part"]


def _verdict(word: str) -> str:
    return f'<b class="{word.replace(" ", "-")}">{SYMBOLS[word]} {word}</b>'


def _first_table(results: Any) -> str:
    """FLT's Table 1 for README: a line per method, accuracy ± spread (variance), the oracle beside."""
    found = measured(results, "flt", "T1", beside=("oracle",))
    rows: dict[str, dict[str, str]] = {}
    for (method, data, variant), own in found.groupby(
        ["method", "dataset", "variant"], sort=False
    ):
        score, variance = own.sort_values("metric").to_dict("records")
        line = rows.setdefault(method, {"method": label(method)})
        line[f"{label(data)}: paper"] = (
            f"{score['value']} ({variance['value']})" if score["value"] else "–"
        )
        shown = f"{_number(score)} ({variance['mean']:.2f})"
        line[f"{label(data)}: {label(variant)}"] = (
            "–" if score["status"] == "not run" else shown
        )
    return _pipes(pd.DataFrame(rows.values()))


def _number(cell: Mapping[str, Any]) -> str:
    """Write a reproduced number: mean ± spread over seeds, no spread for one seed."""
    return (
        "–"
        if cell["status"] == "not run"
        else re.sub(r" \(.*", "", cell_text(cell, cell["paper"]))
    )


def _table(found: pd.DataFrame, results: Any, name: str) -> str:
    """One printed table in the paper's form, by data set and network, with remarks below."""
    table = worded(found, results, found["paper"].iloc[0], name)
    found = found[found["params"].map(above_diagonal)]
    cells = {
        text: found[found["variant"] == variant].to_dict("records")
        for variant, text in VARIANTS.items()
    }
    kinds = [
        text
        for text in VARIANTS.values()
        if any(cell["status"] != "not run" for cell in cells[text])
    ]
    said = Counter(
        "; ".join(cell["departs"])
        for text in kinds
        for cell in cells[text]
        if cell["departs"]
    )
    usual = said.most_common(1)[0][0] if said else ""
    remarks = [
        *table.attrs["remarks"],
        *([f"*Italic*, unless a mark says else: {usual}."] if usual else []),
    ]
    marks: dict[str, str] = {}  # text -> the mark that stands behind what it is about
    for text in kinds:
        table[text] = [
            _marked(_number(cell), "; ".join(cell["departs"]), usual, marks)
            for cell in cells[text]
        ]
    if "note" in table:
        notes = table["note"].str.replace(r"\bT(\d+)\b", r"Table \1", regex=True)
        table["paper"] = [
            _marked(*pair, None, marks)
            for pair in zip(table["paper"], notes, strict=True)
        ]
    remarks += [f"<sup>{mark}</sup> {text}." for text, mark in marks.items()]
    done = {
        text: Counter(cell["status"] for cell in cells[text]).items() for text in kinds
    }
    status = [
        f"{', '.join(f'{n} {word}' for word, n in done[text])} {text}" for text in kinds
    ] or ["none was run"]
    parts = [
        f"### Table {name[1:]}",
        f"{len(cells['as written'])} numbers: {'; '.join(status)}.",
    ]
    heads = [
        column for column in ("data", "model") if "method" in table and column in table
    ]
    shown = table[
        [*table.columns[: table.columns.get_loc("measure") + 1], "paper", *kinds]
    ]
    for head, own in shown.groupby(heads, sort=False) if heads else [((), shown)]:
        parts += [f"**{', '.join(head)}**"] * bool(head) + [
            _pipes(wide(_as_printed(own.drop(columns=heads))))
        ]
    return "\n\n".join([*parts, *("<br>\n".join(remarks),) * bool(remarks)])


def _marked(text: str, remark: str, usual: str | None, marks: dict[str, str]) -> str:
    if not remark or text == "–":
        return text
    mark = (
        ""
        if remark == usual
        else f"<sup>{marks.setdefault(remark, chr(ord('a') + len(marks)))}</sup>"
    )
    return text + mark if usual is None else f"*{text}*{mark}"


def _as_printed(table: pd.DataFrame) -> pd.DataFrame:
    """Let a matrix of users and FLT's ablation stand as they are printed; else a measure is a group of columns."""
    if "users" in table and len(table) > 2:
        users = table["users"].str.split(" and ", expand=True)
        return table.assign(measure=users[1], users=users[0])
    return (
        table.drop(columns="method").assign(measure=table["method"])
        if "rounds" in table
        else table
    )


def _claims(judged: pd.DataFrame) -> str:
    rows = []
    for claim in judged.to_dict("records"):
        items = [
            f"{_verdict(word)}: {text}" + f" ({why})" * bool(why)
            for word, text, why in claim["evidence"]
        ]
        checked = (
            f"<details><summary>{len(items)}</summary>{'<br>'.join(items)}</details>"
            if items
            else ""
        )
        limits = f"<br>*{claim['testable']}*" if claim["testable"] else ""
        rows.append(
            {
                "verdict": _verdict(claim["verdict"]) + _part(claim),
                "claim": claim["claim"] + limits,
            }
        )
        rows[-1] |= {"source": claim["source"], "checks": checked}
    return _pipes(pd.DataFrame(rows))


def _pipes(table: pd.DataFrame) -> str:
    """Write a table as Markdown; numbers are set right, and a head "measure: kind" takes two lines."""
    text = table.astype(str).replace({r"\|": r"\|", r"\n": " "}, regex=True)
    right = [
        all(re.match(r"[*–−+-]?[\d–]|^$", value) for value in text[name])
        for name in text
    ]
    head = [name.replace(": ", "<br>") for name in text]
    rows = [
        head,
        ["---:" if flag else "---" for flag in right],
        *text.to_numpy().tolist(),
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def fill(template: str, **words: Any) -> str:
    """Return a template with its words filled in."""
    text = (
        resources.files(__package__)
        .joinpath("templates", template)
        .read_text(encoding="utf-8")
    )
    return Template(text).substitute(words)
