"""The report as one HTML page that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__, paths, published
from ..provenance import environment
from . import verdicts
from .gaps import missing
from .reproduced import NUMBER, beside, counts, numbers

if TYPE_CHECKING:
    import pandas as pd

STYLE = """
:root { color-scheme: light dark; --line: #d0d0d0; --soft: #f3f4f6; --good: #0a6b3d; --bad: #a8201a; --so: #7a5a00;
  --none: #5f6368; }
@media (prefers-color-scheme: dark) { :root { --line: #444; --soft: #22262b; --good: #6fcf97; --bad: #ff8a80;
  --so: #f2c94c; --none: #a0a4a8; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 0 auto; padding: 1rem; }
h1 { line-height: 1.2; } h2 { margin-top: 2.2em; border-bottom: 1px solid var(--line); }
nav ul { columns: 18rem; padding-left: 1.2rem; } .note { color: var(--none); }
.scroll { overflow-x: auto; margin: .6rem 0 1.2rem; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .6rem; text-align: left; vertical-align: top; }
th { background: var(--soft); white-space: nowrap; } td.n { text-align: right; white-space: nowrap; }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
.so { color: var(--so); font-weight: 600; } .none { color: var(--none); }
details { margin: .4rem 0; } summary { cursor: pointer; padding: .25rem 0; } td ul { margin: 0; padding-left: 1.1rem; }
figure { margin: 1rem 0; } figcaption { font-size: .85rem; color: var(--none); }
img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
"""
LOOKS = {"holds": "good", "does not hold": "bad", "mixed": "so", "not tested": "none", "not run": "none", "–": "none"}


def write(path: Path | str | None = None) -> Path:
    """Write the report; it says what was found under ``results/`` and ``figures/`` and computes nothing.

    Parameters
    ----------
    path : path, optional
        ``results/report.html`` if left out.

    Returns
    -------
    Path
    """
    text = page().encode()
    return paths.write_atomically(
        paths.ROOT / "results" / "report.html" if path is None else path, lambda file: file.write(text)
    )


def page() -> str:
    """Return the whole report as HTML."""
    table, found = numbers(), verdicts.checks()
    judged = verdicts.claims(found=found)
    sections = {"Counts": _counts(table, judged, found)}
    for paper in dict.fromkeys(judged["paper"]):
        sections[f"Claims of {published.PAPERS[paper]}"] = _claims(judged[judged["paper"] == paper])
    sections["Checks of our own"] = _own_checks(found)
    for paper in dict.fromkeys(table["paper"]):
        for name in dict.fromkeys(table.loc[table["paper"] == paper, "table"]):
            sections[f"{published.PAPERS[paper]}, Table {name[1:]}"] = _printed_table(table, paper, name)
    sections["What is missing, and why"] = _missing(table)
    sections["Where the numbers come from"] = _provenance()
    sections["Figures"] = _figures()
    links = "".join(f'<li><a href="#{_anchor(name)}">{escape(name)}</a></li>' for name in sections)
    body = "".join(f'<h2 id="{_anchor(name)}">{escape(name)}</h2>\n{text}\n' for name, text in sections.items())
    about, today = environment(), datetime.now(UTC).strftime("%Y-%m-%d")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>fltnb: printed and reproduced</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        "<h1>Clustered federated learning: printed and reproduced</h1>\n"
        f'<p class="note">fltnb {escape(__version__)}, commit {escape(about["commit"])}, put together on {today} from'
        " the tables that the notebooks left under results/. Every reproduced number comes from a run; what was not run"
        f" says so.</p>\n<nav><ul>{links}</ul></nav>\n{body}</body>\n</html>\n"
    )


def _anchor(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower())


def _counts(table: pd.DataFrame, judged: pd.DataFrame, found: pd.DataFrame) -> str:
    totals = counts(table)
    judged_counts = verdicts.claim_counts(judged)
    shown = [word for word in verdicts.VERDICTS if judged_counts[word].any() or "toy" not in word]
    text = "<p>What became of the papers' claims:</p>" + _html(judged_counts[["paper", *shown, "all"]])
    text += "<p>What became of their printed numbers:</p>" + _html(totals)
    return text + (
        '<p class="note">“Reproduced” means: run with the printed M, ρ, E and T on the data that the paper names (the'
        " remarks beside each number say where a copy of them is not the official one). Accuracies are counted as"
        " near within the printed error, 1 and 3 points, variances within 25 %. “Run otherwise” is another setting or"
        " data that stand in for the paper’s. “Described” follows the paper’s text, “published” the code behind its"
        " tables. The printed errors are binomial ones: they say nothing about seeds. The line “all” counts once what"
        " a paper prints twice.</p>"
    )


def _claims(judged: pd.DataFrame) -> str:
    rows = []
    for claim in judged.to_dict("records"):
        items = "".join(
            f"<li>{escape(profile)}: {_word(word)}: {escape(sentence)}{escape(f' ({why})' if why else '')}</li>"
            for profile, word, sentence, why in claim["evidence"]
        )
        evidence = f"<details><summary>{escape(claim['profiles'] or 'why')}</summary><ul>{items}</ul></details>"
        note = f'<br><span class="note">{escape(claim["testable"])}</span>' if claim["testable"] else ""
        words = [_word(claim["verdict"]), f"{escape(claim['claim'])}{note}", escape(claim["source"])]
        waiting = f"no stored result yet: notebook {claim['notebook']}"
        words.append(evidence if items else f'<span class="note">{escape(waiting)}</span>')
        rows.append("".join(f"<td>{word}</td>" for word in [*words, f"<code>{escape(claim['id'])}</code>"]))
    head = "".join(f"<th>{name}</th>" for name in ("verdict", "claim", "source", "checks", "id"))
    lines = "".join(f"<tr>{row}</tr>\n" for row in rows)
    return (
        "<p>A claim holds if all its checks hold in every profile that tested it, does not hold if none does, and is"
        " mixed otherwise.</p>"
        f'<div class="scroll"><table><tr>{head}</tr>\n{lines}</table></div>'
    )


def _own_checks(found: pd.DataFrame) -> str:
    own = found[found["claim"] == ""]
    if own.empty:
        return "<p>None is stored.</p>"
    own = own.drop(columns="claim").assign(profile=own["profile"].replace("demo", "demo (toy scale)"))
    held, tested = (own["verdict"] == "holds").sum(), (own["verdict"] != "not tested").sum()
    text = f"{held} of {tested} checks hold that bear on no sentence of a paper, but on this reproduction"
    return f"<details><summary>{text}</summary>{_html(own)}</details>"


def _printed_table(table: pd.DataFrame, paper: str, name: str) -> str:
    shown = beside(table, paper, name)
    own = table[(table["paper"] == paper) & (table["table"] == name)].drop_duplicates(NUMBER)
    done = int((own["status"] != "not run").sum())
    text = f"{done} of {len(own)} printed numbers were run in some form"
    return f"<details{' open' if done else ''}><summary>{text}</summary>{_html(shown)}</details>"


def _missing(table: pd.DataFrame) -> str:
    left = missing(table)
    return _html(left) if len(left) else "<p>Nothing.</p>"


def _provenance() -> str:
    table = verdicts.provenance()
    return _html(table) if len(table) else "<p>No results are stored yet: run <code>make reproduce</code>.</p>"


def _figures() -> str:
    parts = []
    for name, files in verdicts.figures().items():
        number, profile = name.split(", ")
        scale = ", toy scale" if profile == "demo" else ""
        pictures = "".join(
            f'<figure><img loading="lazy" alt="{escape(file.stem)}" src="data:image/png;base64,'
            f'{base64.b64encode(file.read_bytes()).decode()}"><figcaption>figures/{profile}/{escape(file.name)}'
            "</figcaption></figure>"
            for file in files
        )
        summary = f"Notebook {number}, profile {profile}{scale}: {len(files)} pictures"
        parts.append(f"<details><summary>{escape(summary)}</summary>{pictures}</details>")
    return "".join(parts) or "<p>None is stored.</p>"


def _word(text: str) -> str:
    look = LOOKS.get(text.removesuffix(" (toy scale)"), "")
    return f'<span class="{look}">{escape(text)}</span>' if look else escape(text)


def _html(table: pd.DataFrame) -> str:
    """Write a table: numbers to the right, known words in their colour, everything escaped."""
    import pandas as pd

    numeric = [pd.api.types.is_numeric_dtype(kind) for kind in table.dtypes]
    head = "".join(f"<th>{escape(str(name))}</th>" for name in table.columns)
    lines = []
    for row in table.itertuples(index=False, name=None):
        cells = (
            f'<td class="n">{_number(value)}</td>' if right else f"<td>{_word(str(value))}</td>"
            for value, right in zip(row, numeric, strict=True)
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="scroll"><table><tr>{head}</tr>\n' + "\n".join(lines) + "</table></div>"


def _number(value: float) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
