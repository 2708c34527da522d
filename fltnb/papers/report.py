"""The report: one HTML page with every printed number and claim beside what became of it.

The page needs nothing else: no script, no font, no picture. It reads committed results and computes no run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from .. import __version__, paths
from .checks import VERDICTS, checks, claim_counts, verdicts
from .compare import worded
from .counts import STATUS, all_measured, committed, counts, nearness
from .names import PAPERS, VARIANTS, label
from .settings import NOTEBOOKS, WITHOUT_CODE, in_order

STYLE = """
:root { color-scheme: light dark; --line: #d0d0d0; --soft: #f3f4f6; --good: #0a6b3d; --bad: #a8201a; --so: #7a5a00;
  --none: #6b7075; }
@media (prefers-color-scheme: dark) { :root { --line: #444; --soft: #22262b; --good: #6fcf97; --bad: #ff8a80;
  --so: #f2c94c; --none: #a0a4a8; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 0 auto; padding: 1rem; }
h1 { line-height: 1.2; } h2 { margin-top: 2em; border-bottom: 1px solid var(--line); }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; } .note { color: var(--none); font-size: .88rem; }
.scroll { overflow-x: auto; margin: .6rem 0 1.2rem; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .2rem .55rem; text-align: left; vertical-align: top; }
th { background: var(--soft); } td.n, th.n { text-align: right; white-space: nowrap; } td.again { border-color: #0000; }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
.so { color: var(--so); font-weight: 600; } .none, .other { color: var(--none); } .other { font-style: italic; }
details { margin: .3rem 0; } summary { cursor: pointer; } ol, td ul { margin: 0; padding-left: 1.4rem; }
ol.marks { font-size: .85rem; color: var(--none); }
"""
LOOKS = {"holds": "good", "does not hold": "bad", "mixed": "so", "stand-in only": "none", "not tested": "none"}


def write(path: Path | str | None = None, results_by_notebook: Mapping[str, Any] | None = None) -> Path:
    """Write the report, to ``results/report.html`` and from the committed results if these are left out."""
    text = page(committed() if results_by_notebook is None else results_by_notebook).encode()
    path = paths.ROOT / "results" / "report.html" if path is None else path
    return paths.write_atomically(path, lambda file: file.write(text))


def page(results_by_notebook: Mapping[str, Any]) -> str:
    """Return the whole report as HTML."""
    found, checked = all_measured(results_by_notebook), checks()
    judged = verdicts(found=checked)
    sections = {"In short": _short(found, judged)}
    for paper, name, book in in_order():
        own = found[(found["paper"] == paper) & (found["table"] == name)]
        title = f"Tables of {PAPERS[paper]}"
        sections[title] = sections.get(title, "") + _table(own, results_by_notebook.get(book), name)
    for paper in dict.fromkeys(judged["paper"]):
        sections[f"Claims of {PAPERS[paper]}"] = _claims(judged[judged["paper"] == paper])
    sections["Checks of our own"] = _own(checked[checked["claim"] == ""])
    sections["Where the numbers come from"] = _provenance(results_by_notebook)
    sections["Pictures"] = _pictures()
    names = {title: f"s{number}" for number, title in enumerate(sections)}
    links = "".join(f'<a href="#{names[title]}">{escape(title)}</a>' for title in sections if title != "In short")
    body = "".join(f'<h2 id="{names[title]}">{escape(title)}</h2>\n{text}\n' for title, text in sections.items())
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>fltnb: printed and reproduced</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        "<h1>Clustered federated learning: printed and reproduced</h1>\n"
        f'<p class="note">fltnb {escape(__version__)}, put together on {datetime.now(UTC):%Y-%m-%d} from committed'
        f" results. What was not run says so.</p>\n<nav>{links}</nav>\n{body}</body>\n</html>\n"
    )


def _short(found: pd.DataFrame, judged: pd.DataFrame) -> str:
    totals = counts(found=found).set_index(["paper", "variant"])
    head = '<tr><th rowspan="2">paper</th><th rowspan="2" class="n">printed</th>'
    head += "".join(f'<th colspan="3">{text}</th>' for text in VARIANTS.values())
    head += "</tr><tr>" + "".join(f'<th class="n">{label(word)}</th>' for word in STATUS) * 2 + "</tr>"
    rows = ""
    for paper in NOTEBOOKS:
        cells = f"<td>{PAPERS[paper]}</td>" + _number(totals.loc[(paper, "as_written"), "printed"])
        for variant in VARIANTS:
            if variant == "as_run" and paper in WITHOUT_CODE:
                cells += '<td colspan="3" class="none">no public code</td>'
            else:
                cells += "".join(_number(totals.loc[(paper, variant), word]) for word in STATUS)
        rows += f"<tr>{cells}</tr>"
    claimed = claim_counts(judged).astype(str).replace("0", "–")
    return (
        "<p>What became of the printed numbers, each counted once however many tables print it:</p>"
        f'<div class="scroll"><table>{head}{rows}</table></div>'
        f"<ul>{''.join(map(_near, nearness(found=found).to_dict('records')))}</ul>"
        "<p>What became of the papers’ claims:</p>"
        + html(claimed.assign(paper=claimed["paper"].map(label)), (*VERDICTS, "all"))
        + '<p class="note">Reproduced: run in the printed setting on the data that the paper names. Otherwise: a'
        " lighter network, fewer images, clients or rounds, or data that stand in for the paper’s. As written follows"
        " the paper’s text, as run the code behind its tables. A claim holds if all its checks hold, does not hold if"
        " none does, and is mixed otherwise.</p>"
    )


def _number(value: int) -> str:
    return f'<td class="n">{value}</td>' if value else '<td class="n none">–</td>'


def _near(row: Mapping[str, Any]) -> str:
    text = (
        f"{PAPERS[row['paper']]} {VARIANTS[row['variant']]}: of {row['accuracies']} reproduced accuracies"
        f" {row['points_1']} lie within 1 point of the printed ones, {row['points_3']} within 3, and"
        f" {row['printed_error']} within the printed error"
    )
    if row["variances"]:
        text += f"; of {row['variances']} variances {row['percent_25']} within 25 %"
    return f"<li>{escape(text)}.</li>"


def _table(found: pd.DataFrame, results: Any, name: str) -> str:
    paper = found["paper"].iloc[0]
    shown = worded(found, results, paper, name)
    done = {variant: found.loc[found["variant"] == variant, "status"] for variant in VARIANTS}
    parts = [
        f"{(status == 'reproduced').sum()} reproduced and {(status == 'otherwise').sum()} otherwise {VARIANTS[variant]}"
        for variant, status in done.items()
        if (status != "not run").any()
    ]
    title = f"Table {name[1:]}: {len(found) // 2} printed numbers, {'; '.join(parts) or 'none was run'}"
    marks: dict[str, str] = {}  # text -> number under which the legend below the table says it once
    for column in ("otherwise", "note"):
        if column in shown:
            shown[column] = [text and marks.setdefault(text, str(len(marks) + 1)) for text in shown[column]]
    legend = "".join(f"<li>{escape(text)}</li>" for text in marks)
    legend = f'<ol class="marks">{legend}</ol>' if legend else ""
    body = f'<p class="note">{escape(shown.attrs["caption"])}</p>{html(shown)}{legend}'
    return f"<details><summary>{escape(title)}</summary>{body}</details>\n"


def html(table: pd.DataFrame, numeric: Sequence[str] = ()) -> str:
    """Return a table of text as HTML; what a row repeats of the one above in the leading columns is left blank."""
    columns = list(table.columns)
    leading = columns.index("measure") if "measure" in columns else 0
    numeric = {name for name in columns if name in numeric or name.startswith("as ") or (name == "paper" and leading)}
    otherwise = columns.index("otherwise") if "otherwise" in columns else None
    out, before = [], [""] * len(columns)
    for row in table.astype(str).to_numpy().tolist():
        again = 0
        while again < leading and row[again] == before[again]:
            again += 1
        cells = []
        for at, (name, text) in enumerate(zip(columns, row, strict=True)):
            looks = ["n"] * (name in numeric) + ["again"] * (at < again)
            looks += ["none"] * (text.startswith("not run") or text == "–")
            looks += ["other"] * (name.startswith("as ") and otherwise is not None and row[otherwise] != "")
            look = f' class="{" ".join(looks)}"' if looks else ""
            cells.append(f"<td{look}>{'' if at < again else escape(text)}</td>")
        out.append(f"<tr>{''.join(cells)}</tr>")
        before = row
    looks = {name: ' class="n"' if name in numeric else "" for name in columns}
    head = "".join(f"<th{look}>{escape(name)}</th>" for name, look in looks.items())
    return f'<div class="scroll"><table><tr>{head}</tr>\n' + "\n".join(out) + "</table></div>"


def _claims(judged: pd.DataFrame) -> str:
    rows = ""
    for claim in judged.to_dict("records"):
        items = "".join(
            f"<li>{_word(word)}: {escape(sentence)}{escape(f' ({why})' if why else '')}</li>"
            for word, sentence, why in claim["evidence"]
        )
        evidence = f"<details><summary>{len(claim['evidence'])}</summary><ul>{items}</ul></details>" if items else ""
        limits = f'<br><span class="note">{escape(claim["testable"])}</span>' if claim["testable"] else ""
        words = (_word(claim["verdict"]), escape(claim["claim"]) + limits, escape(claim["source"]), evidence)
        rows += f"<tr>{''.join(f'<td>{word}</td>' for word in words)}</tr>\n"
    head = "".join(f"<th>{name}</th>" for name in ("verdict", "claim", "source", "checks"))
    return f'<div class="scroll"><table><tr>{head}</tr>\n{rows}</table></div>'


def _word(word: str) -> str:
    return f'<span class="{LOOKS.get(word, "none")}">{escape(word)}</span>'


def _own(checked: pd.DataFrame) -> str:
    if checked.empty:
        return "<p>None is stored.</p>"
    held, tested = (checked["verdict"] == "holds").sum(), (checked["verdict"] != "not tested").sum()
    shown = checked[["notebook", "sentence", "verdict", "evidence"]].assign(notebook=checked["notebook"].str[:2])
    text = f"{held} of {tested} checks hold that bear on no sentence of a paper, but on this reproduction"
    return f"<details><summary>{text}</summary>{html(shown)}</details>"


def _provenance(results_by_notebook: Mapping[str, Any]) -> str:
    frames = [
        found.provenance().assign(notebook=name[:2])
        for name, found in sorted(results_by_notebook.items())
        if found is not None and len(found.runs)
    ]
    if not frames:
        return "<p>No results are stored.</p>"
    table = pd.concat(frames, ignore_index=True)
    table = table.assign(dataset=table["dataset"].map(label), minutes=table["minutes"].map("{:.0f}".format))
    table.insert(0, "notebook", table.pop("notebook"))
    return html(table, ("jobs", "seeds", "minutes"))


def _pictures() -> str:
    """Link the pictures of every notebook, from the most trusted profile that has any."""
    found: dict[str, list[str]] = {}
    for profile in ("stored", "paper", "small"):
        here: dict[str, list[str]] = {}
        for file in sorted(paths.figures(profile).glob("[0-9][0-9]_*.png")):
            title = escape(file.stem[3:].replace("_", " "))
            link = f'<a href="../figures/{file.parent.name}/{file.name}">{title}</a>'
            here.setdefault(file.name[:2], []).append(link)
        found = here | found
    lines = [f"<li>{number}: {', '.join(links)}</li>" for number, links in sorted(found.items())]
    return f"<ul>{''.join(lines)}</ul>" if lines else "<p>None is stored.</p>"
