"""The report: every printed number and claim, with our results.

:func:`write` makes the report from stored results, without any run: pages for GitHub
(``docs/report/``) and the parts of README. Their text is in ``templates/``.
"""

import base64
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any

import pandas as pd

from .. import paths
from ..plots import save
from .compare import cell_text, for_people, remarks
from .counts import all_measured, committed, counts, nearness
from .measured import VARIANTS, measured
from .names import PAPERS, SHORT, label
from .numbers import claims, read
from .picture import agreement, claim_bars
from .settings import NOTEBOOKS, TESTED_ON, Row, in_order
from .verdicts import OUTCOMES, judge_all, outcomes

PICTURE = "figures/stored/99_agreement.png"
"""The report's figure, as the front page names it."""
BARS = "docs/pictures/claims.svg"
"""README's picture of the claims, from the root of the repository."""
ARENA = "docs/pictures/arena.png"
"""README's picture of the arena: one of notebook 15's, as it is stored there."""
KINDS = ("printed", "text", "code")
"""Columns of numbers: printed, ours following the text, ours following the code."""
MOST = 8
"""Columns that are read without scrolling on a page of GitHub, 838 pixels wide."""


def write(results_by_notebook: Mapping[str, Any] | None = None) -> None:
    """Write the report, its figure and the parts of README.

    Parameters
    ----------
    results_by_notebook : dict, optional
        Notebook -> results; by default all stored results.
    """
    held = results_by_notebook
    if held is None:
        held = committed()
    found, judged = evidence(held)
    fig, _ = agreement(found, judged)
    save(fig, "99_agreement", "stored")
    made = pages(held, found, judged)
    for name, text in made.items():
        paths.write_text(paths.ROOT / name, text)
    shown = picture_of_arena()
    if shown:
        paths.write_atomically(paths.ROOT / ARENA, lambda file: file.write(shown))


def picture_of_arena() -> bytes:
    """Return notebook 15's picture of when clustering pays (PNG), if it has one."""
    file = paths.ROOT / "notebooks" / "15_head_to_head.ipynb"
    if file.exists():
        for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
            if cell["id"] == "pay" and cell["outputs"]:
                return base64.b64decode(cell["outputs"][0]["data"]["image/png"])
    return b""


def old(
    held: Mapping[str, Any], found: pd.DataFrame, judged: pd.DataFrame
) -> list[str]:
    """Return the files, README included, whose text differs from that of :func:`pages`.

    Arguments are those of :func:`pages`.
    """
    different = []
    for name, text in pages(held, found, judged).items():
        file = paths.ROOT / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            different.append(name)
    return different


def evidence(held: Mapping[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a row per printed number and variant, and a row per claim.

    Parameters
    ----------
    held : dict
        Notebook -> results.

    Returns
    -------
    (DataFrame, DataFrame)
        The result of :func:`fltnb.papers.all_measured`, and the papers'
        claims with the columns of :func:`fltnb.papers.outcomes`.
    """
    found = all_measured(held)
    tested = judge_all(held)
    judged = outcomes(tested).drop(columns="claim")
    return found, claims().merge(judged, on="id")


def pages(
    held: Mapping[str, Any], found: pd.DataFrame, judged: pd.DataFrame
) -> dict[str, str]:
    """Return file -> text: ``docs/report/``, ``README.md`` and its picture of claims.

    All pages are made from the same two tables, so that a number is the same wherever
    it occurs. In README only the text between its marks (:func:`_replaced`) changes.
    Without a README, only the pages of the report are returned.

    Parameters
    ----------
    held : dict
        Notebook -> results.
    found, judged : DataFrame
        As :func:`evidence` returns them.
    """
    made = {}
    summary = _summary(held, found, judged)
    made["docs/report/README.md"] = fill(
        "front.md", picture=PICTURE, papers=pipes(summary)
    )
    for paper in NOTEBOOKS:
        told = _claims(_of(judged, paper))
        made[f"docs/report/{paper}.md"] = fill(
            "paper.md",
            paper=PAPERS[paper],
            title=_cards()["title"][paper],
            claims=pipes(told),
            tables=_tables(held, _of(found, paper)),
        )

    readme = paths.ROOT / "README.md"
    if readme.exists():
        bars, said = claim_bars(judged)
        made[BARS] = bars
        short = pipes(summary.drop(columns=["printed numbers", "claims", "hours"]))
        from_root = short.replace("](", "](docs/report/")  # addresses of its links
        cards = f"{from_root}\n\n![{said}]({BARS})"
        first_table = _first_table(held.get("01_scenario1"))
        text = readme.read_text(encoding="utf-8")
        text = _replaced(text, "cards", cards)
        made["README.md"] = _replaced(text, "table", first_table)
    return made


def _of(table: pd.DataFrame, paper: str) -> pd.DataFrame:
    """Return the rows of one paper."""
    return table[table["paper"] == paper]


def _cards() -> pd.DataFrame:
    """Return title, address and notebooks of each paper."""
    return read("cards.csv").set_index("paper")


def fill(template: str, **words: Any) -> str:
    """Return a template of ``templates/`` with its variables filled in."""
    file = resources.files(__package__).joinpath("templates", template)
    return Template(file.read_text(encoding="utf-8")).substitute(words)


def _replaced(text: str, name: str, block: str) -> str:
    r"""Put a block between its two marks; a text without marks stays as it is.

    The first mark is a line ``<!-- name: ...``, the second one ``<!-- end -->``. Both
    are comments in Markdown, so that readers of the page do not see them.

    Examples
    --------
    >>> text = "Before\n<!-- cards: made -->\nold\n<!-- end -->\nafter"
    >>> print(_replaced(text, "cards", "new"))
    Before
    <!-- cards: made -->
    <BLANKLINE>
    new
    <BLANKLINE>
    <!-- end -->
    after
    """
    marks = re.compile(rf"(<!-- {name}: [^\n]*\n).*?(<!-- end -->)", re.DOTALL)

    def with_block(found: re.Match) -> str:
        first, end = found.groups()
        return f"{first}\n{block}\n\n{end}"

    return marks.sub(with_block, text)


def pipes(table: pd.DataFrame) -> str:
    """Format a table as Markdown; columns of numbers are aligned to the right.

    Parameters
    ----------
    table : DataFrame
        Numbers may be in italics or missing ("" or "–").

    Examples
    --------
    >>> print(pipes(pd.DataFrame({"method": ["FLT"], "accuracy": ["*97.3*"]})))
    | method | accuracy |
    | --- | ---: |
    | FLT | *97.3* |
    """
    # bars and line breaks would end a cell
    text = table.astype(str).replace({r"\|": r"\|", r"\n": " "}, regex=True)
    marks = []
    for name in text:
        numbers = text[name].str.match(r"[*–−+-]?[\d–]|^$").all()
        marks.append("---:" if numbers else "---")
    rows = [text.columns, marks, *text.to_numpy()]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


# ---------------------------------------------------------------- papers


def _summary(
    held: Mapping[str, Any], found: pd.DataFrame, judged: pd.DataFrame
) -> pd.DataFrame:
    """Return a row per paper: its numbers, how many of ours are near, claims, hours.

    Only numbers in the printed setting can be near: others say nothing about the paper.
    """
    totals = counts(found)
    near = nearness(found)
    rows = []
    for paper in NOTEBOOKS:
        own = _of(totals, paper)
        notebooks = _cards()["notebooks"][paper]
        outcome = _of(judged, paper)["outcome"]
        hours = _hours(held, paper)
        row = {
            "paper": f"[{PAPERS[paper]}]({paper}.md), {notebooks}",
            "printed numbers": own["printed"].iloc[0],
            "numbers in the printed setting": _by_variant(own, _in_print),
            "accuracies within 3 points": _by_variant(_of(near, paper), _near),
            "claims": _signs(outcome),
            "hours": f"{hours:.0f}",
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _by_variant(counted: pd.DataFrame, said: Callable[[Any, str], str]) -> str:
    """Format counts of a paper, for each variant that was run.

    Parameters
    ----------
    counted : DataFrame
        A row per variant, of :func:`counts` or :func:`nearness`.
    said : callable
        Takes a row and "text" or "code", and returns what to say, or "" if nothing was
        run.

    Returns
    -------
    str
        Such as "24 of 30 (text), 20 of 30 (code)"; "–" if no variant was run.
    """
    words = []
    for row in counted.itertuples():
        words.append(said(row, SHORT[row.variant]))
    return ", ".join(filter(None, words)) or "–"


def _in_print(row: Any, variant: str) -> str:
    """Say how many numbers have the printed setting, and how many are repeats."""
    if not row.printed_setting:
        return ""
    if row.same_run:
        variant += f"; {row.same_run} repeat another row's run"
    return f"{row.printed_setting} of {row.printed} ({variant})"


def _near(row: Any, variant: str) -> str:
    """Say how many accuracies are within 3 points of the printed ones."""
    if not row.accuracies:
        return ""
    return f"{row.points_3} of {row.accuracies} ({variant})"


def _signs(outcome: pd.Series) -> str:
    """Format the number of claims with each outcome, after its sign.

    The space between a sign and its number does not break, so that they stay together
    in a narrow cell.
    """
    number = outcome.value_counts()
    said = []
    for word, sign in OUTCOMES.items():
        count = number.get(word, 0)
        said.append(f"{sign}&nbsp;{count}")
    return " ".join(said)


def _hours(held: Mapping[str, Any], paper: str) -> float:
    """Return the hours of all runs for a paper's tables, on whatever machine.

    Hours of runs, not of a machine: two runs side by side for an hour are two hours.
    """
    minutes = 0.0
    for book in NOTEBOOKS[paper]:
        results = held.get(book)
        if results is not None and len(results.runs):
            of_runs = results.provenance()["minutes"]
            minutes += of_runs.sum()
    return minutes / 60


def _claims(judged: pd.DataFrame) -> pd.DataFrame:
    """Return a row per claim: its outcome and on what it was tested.

    If the claim cannot be tested as the paper means it, the reason is in italics below.
    """
    rows = []
    for claim in judged.itertuples():
        sentence = f"{claim.claim} ({claim.source})"
        if claim.testable:
            sentence += f"<br>*{claim.testable}*"
        tested_on = claim.tested_on
        if claim.alone:
            tested_on += f", on {claim.alone} alone"
        look = claim.outcome.replace(" ", "-")
        row = {
            "claim": sentence,
            "printed": claim.printed.replace("; ", "<br>"),
            "here": claim.here.replace("; ", "<br>") or claim.why,
            "tested on": tested_on,
            "outcome": f'<b class="{look}">{claim.sign} {claim.outcome}</b>',
        }
        rows.append(row)
    return pd.DataFrame(rows)


# ---------------------------------------------------------------- tables


class _Footnotes:
    """Remarks on cells, each written once under the table with a letter.

    Parameters
    ----------
    usual : str
        The most frequent remark, which has no letter; "" for none.

    Examples
    --------
    >>> notes = _Footnotes(usual="9 of 30 clients")
    >>> notes.mark("9 of 30 clients"), notes.mark("one seed"), notes.mark("one seed")
    ('', '<sup>a</sup>', '<sup>a</sup>')
    >>> notes.sentences()[1]
    '<sup>a</sup> one seed.'
    """

    def __init__(self, usual: str):
        self.usual = usual
        self.letters: dict[str, str] = {}

    def mark(self, remark: str) -> str:
        """Return the mark of a remark."""
        if not remark or remark == self.usual:
            return ""
        if remark not in self.letters:
            self.letters[remark] = chr(ord("a") + len(self.letters))
        return f"<sup>{self.letters[remark]}</sup>"

    def number(self, cell: Row) -> str:
        """Format a number of ours.

        It is in italics with a mark if it is not from the printed setting.
        """
        if cell["status"] == "not run":
            return "–"
        text = cell_text(cell, seeds=False)
        if not cell["departs"]:
            return text
        departs = "; ".join(cell["departs"])
        return f"*{text}*{self.mark(departs)}"

    def sentences(self) -> list[str]:
        """Return a sentence for the usual remark and one for each letter."""
        said = []
        if self.usual:
            said.append(f"*Italic*, unless a mark says otherwise: {self.usual}.")
        for remark, letter in self.letters.items():
            said.append(f"<sup>{letter}</sup> {remark}.")
        return said


def _tables(held: Mapping[str, Any], found: pd.DataFrame) -> str:
    """Return all printed tables of a paper as Markdown."""
    paper = found["paper"].iloc[0]
    tables = []
    for one, name, book in in_order():
        if one == paper:
            own = found[found["table"] == name]
            tables.append(_table(own, held.get(book)))
    return "\n\n".join(tables)


def _table(found: pd.DataFrame, results: Any) -> str:
    """Return one printed table as Markdown, by data set and network.

    Its title and the number of runs are above it, remarks and footnotes below.

    Parameters
    ----------
    found : DataFrame
        The result of :func:`measured`, for one table.
    results : Results, or None
        The results that were measured.
    """
    notes = _Footnotes(_usual(found))
    table = for_people(found, notes.number)
    # footnotes have the setting, and readers can subtract
    left_out = ["setting", "text − printed", "code − printed"]
    table = table.drop(columns=left_out, errors="ignore")
    if "note" in table:
        said = table.pop("note")
        said = said.str.replace(r"\bT(\d+)\b", r"Table \1", regex=True)
        table["printed"] += said.map(notes.mark)

    name = found["table"].iloc[0]
    status = _status(found, table["measure"].unique())
    parts = [f"### Table {name[1:]}", status, *_by_head(table)]
    below = remarks(found, results) + notes.sentences()
    if below:
        parts.append("<br>\n".join(below))
    return "\n\n".join(parts)


def _usual(found: pd.DataFrame) -> str:
    """Return the most frequent departure from the printed setting, "" if there is none.

    One sentence says it for the whole table, so that most cells need no letter.
    """
    departs = Counter("; ".join(said) for said in found["departs"] if said)
    if not departs:
        return ""
    [(usual, _)] = departs.most_common(1)
    return usual


def _by_head(table: pd.DataFrame) -> list[str]:
    """Return a table in parts by data set and network, each with a heading.

    If only data set and network distinguish the lines, every part would be a single
    line: then the table stays whole, and these two are columns.
    """
    heads = [head for head in ("data", "model") if head in table]
    others = table.columns[: table.columns.get_loc("measure")].difference(heads)
    if not heads or others.empty:
        return _narrow(_wide(table))
    parts = []
    for head, own in table.groupby(heads, sort=False):
        title = ", ".join(head)
        parts.append(f"**{title}**")
        parts += _narrow(_wide(own.drop(columns=heads)))
    return parts


def _narrow(table: pd.DataFrame) -> list[str]:
    """Return a table as Markdown, in parts if it has more columns than :data:`MOST`.

    Columns of one measure stay together, and every part has about equally many
    measures. A line is in the parts in which the paper has numbers for it.

    Parameters
    ----------
    table : DataFrame
        The result of :func:`_wide`.
    """
    measures: dict[str, list[str]] = {}
    heads = []
    for name in table:
        measure, found, _ = name.partition("<br>")
        if found:
            measures.setdefault(measure, []).append(name)
        else:
            heads.append(name)
    if table.shape[1] <= MOST or not measures:
        return [pipes(table)]

    columns = list(measures.values())
    fitting = max(1, (MOST - len(heads)) // len(columns[0]))
    n_parts = math.ceil(len(columns) / fitting)
    each = math.ceil(len(columns) / n_parts)
    parts = []
    for first in range(0, len(columns), each):
        names = [name for own in columns[first : first + each] for name in own]
        printed = (table[names] != "").any(axis=1)
        parts.append(pipes(table.loc[printed, [*heads, *names]]))
    return parts


def _status(found: pd.DataFrame, measures: Sequence[str]) -> str:
    """Return a sentence: how many numbers of a table were run, and in which setting.

    Such as "24 numbers (accuracy); following the text: 20 printed setting, 4 reduced
    setting." The measure is named if there is only one; several are in the heading.
    """
    said = []
    for variant, own in found.groupby("variant", sort=False):
        number = own["status"].value_counts()
        each = [f"{number[word]} {word}" for word in TESTED_ON if word in number]
        if each:
            counts_of_all = ", ".join(each)
            said.append(f"{label(variant)}: {counts_of_all}")
    n_numbers = len(found) // len(VARIANTS)  # each occurs once per variant
    told = "; ".join(said) or "none was run"
    what = f" ({measures[0]})" if len(measures) == 1 else ""
    return f"{n_numbers} numbers{what}; {told}."


def _wide(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table in the paper's form: a line per method, measures side by side.

    Parameters
    ----------
    table : DataFrame
        The result of :func:`for_people`: a line per method and measure, with
        ``printed, text, code``. A variant without any run is left out.

    Examples
    --------
    >>> table = pd.DataFrame(
    ...     {
    ...         "method": ["FLT", "FLT", "FedAvg", "FedAvg"],
    ...         "measure": ["accuracy", "variance"] * 2,
    ...         "printed": ["98.0", "4.6", "82.7", "44.7"],
    ...         "text": ["99.1", "0.2", "85.6", "–"],
    ...         "code": "–",
    ...     }
    ... )
    >>> _wide(table).columns.tolist()[:3]
    ['method', 'accuracy<br>printed', 'accuracy<br>text']
    >>> _wide(table).shape  # two methods; printed and text of two measures
    (2, 5)
    """
    heads = list(table.columns[: table.columns.get_loc("measure")])
    single = table["measure"].nunique() == 1
    if "method" in heads and len(heads) > 1 and single:
        # one method under several settings: settings are lines, methods columns
        table = table.assign(measure=table["method"])
        heads.remove("method")
        single = table["measure"].nunique() == 1

    was_run = (table != "–").any()
    kinds = [kind for kind in KINDS if kind in table and was_run[kind]]
    # not by a pivot: a table of data sets, such as FeSEM's first, has no heads
    lines: dict[tuple, dict[str, str]] = {}
    for row in table.to_dict("records"):
        about = {name: row[name] for name in heads}
        line = lines.setdefault(tuple(about.values()), about)
        for kind in kinds:
            column = kind
            if not single:
                column = f"{row['measure']}<br>{kind}"
            line[column] = row[kind]
    return pd.DataFrame(lines.values()).fillna("")


def _first_table(results: Any) -> str:
    """Return the accuracies of FLT's Table 1 for README, a table per data set.

    The accuracies of the oracle are included.
    """
    found = measured(results, "flt", "T1", beside=("oracle",))
    accuracies = found[found["metric"] == "accuracy"]
    ours = []
    for cell in accuracies.to_dict("records"):
        text = cell_text(cell, seeds=False)
        ours.append(text.replace("not run", "–"))
    shown = accuracies.assign(
        ours=ours,
        method=accuracies["method"].map(label),
        printed=accuracies["value"].replace("", "–"),
        variant=accuracies["variant"].map(SHORT),
    )
    parts = []
    for dataset, own in shown.groupby("dataset", sort=False):
        lines = ["method", "printed"]
        table = own.pivot_table("ours", lines, "variant", "first", sort=False)
        parts.append(f"**{label(dataset)}**")
        parts.append(pipes(table.reset_index()))
    return "\n\n".join(parts)
