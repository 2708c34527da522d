"""A card as a page for people, and the picture of mean ranks."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from .. import paths, plots
from ..errors import FltnbError
from .card import Card, table, write
from .statistics import records, table_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEAD = """# {name} in the arena

Played on {size}, track: {track}, {tuned}.
The seeds {seeds} are drawn from the hash of the source.
There are {runs} runs, which took {seconds:g} s on {hardware}; commit {commit}.
"""
SIZES = {
    True: "small federations of the digits, for a demonstration",
    False: "the arena's federations",
}
TUNED = {True: "tuned by five trials", False: "with its defaults"}
NOT_COMPLETE = "**Not complete**: the budget ended before all runs.\n"
OWN_EVALUATION = "The class has an evaluation of its own: read its source.\n"
LACKING = "Without {family}: {why}\n"
FAILED = "{count} of {runs} runs of {name} failed: {why}"
FAILURE = "- {count} of {track}, {family}: {why}\n"
COMPARISON = (
    "- {other}: {verdict} ({difference:+.2f} points over {pairs} pairs, corrected "
    "p = {corrected:.2g})"
)
TEST = """
Wilcoxon's signed-rank test over cells and seeds with Holm's correction, p < 0.01.
A failed run counts 0 %.
"""
RANKS = (
    "Mean ranks over {cells} cells: {ranks}. They differ significantly from "
    "{apart:.2f} on (Nemenyi, 0.05).\n"
)
AXIS = "mean rank over {cells} cells (1 is best); critical difference {apart:.2f}"
SHOWN = ["worst", "ari", "seconds"]
"""Measures by cell, besides accuracy."""
MARKED = {True: "#D55E00", False: "0.3"}
"""Colours: of the method that the card is about, and of the others."""
WEIGHT = {True: "bold", False: "normal"}

Line = dict[str, str]


def page(card: Card) -> str:
    """Return a card in Markdown."""
    parts = [
        _head(card),
        "## In the table\n",
        row(card),
        "## Beside the others\n",
        _comparisons(card),
        "## By cell\n",
        _by_cell(card),
    ]
    failures = _failures(card)
    if failures:
        parts.append("## Runs that failed\n")
        parts.append(failures)
    return "\n".join(parts)


def row(card: Card) -> str:
    """Return the card's row of the table of all methods, with the table's head."""
    return markdown(table([card]))


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table in Markdown; its columns are those of the first row."""
    columns = list(rows[0])
    below_head = ["---"] * len(columns)
    lines = [_line(columns), _line(below_head)]
    for one in rows:
        texts = [_text(one[column]) for column in columns]
        lines.append(_line(texts))
    return "\n".join(lines) + "\n"


def _line(texts: Sequence[str]) -> str:
    """Return a line of a table."""
    escaped = [text.replace("|", "\\|") for text in texts]
    cells = " | ".join(escaped)
    return f"| {cells} |"


def _text(value: Any) -> str:
    """Return a cell of a table: a word for None, True and False, or a number.

    Numbers have two decimals; large ones, such as bytes, have none.
    """
    if value is None:
        return "–"
    if value is True:
        return "yes"
    if value is False:
        return "no"
    if not isinstance(value, float):
        return str(value)
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}"


def _head(card: Card) -> str:
    """Say what was played, and on what."""
    rules = card["rules"]
    known = card["environment"]
    seeds = [str(seed) for seed in card["seeds"]]
    text = HEAD.format(
        name=card["method"]["name"],
        size=SIZES[rules["demo"]],
        track=rules["track"] or "all",
        tuned=TUNED[rules["tuned"]],
        seeds=", ".join(seeds),
        runs=len(card["runs"]),
        seconds=card["seconds"],
        hardware=known["hardware"],
        commit=known["commit"],
    )
    if not card["complete"]:
        text += NOT_COMPLETE
    if card["method"]["own_evaluation"]:
        text += OWN_EVALUATION
    for family, why in card["lacking"].items():
        text += LACKING.format(family=family, why=why)
    return text


def _comparisons(card: Card) -> str:
    """Return the methods that this one beats, and the ranking of all."""
    said = card["statistics"]
    lines = [COMPARISON.format(**one) for one in said["comparisons"]]
    lines.append(TEST)
    apart = said["critical_difference"]
    if apart is not None:
        ranks = _ranks(said["ranks"])
        line = RANKS.format(cells=said["cells"], ranks=ranks, apart=apart)
        lines.append(line)
    return "\n".join(lines)


def _ranks(ranks: Mapping[str, float]) -> str:
    """Return methods with their mean ranks, the best first."""
    rising = pd.Series(ranks).sort_values()
    texts = [f"{name} {rank:.2f}" for name, rank in rising.items()]
    return ", ".join(texts)


def _by_cell(card: Card) -> str:
    """Return a table of the method's numbers, beside the others' accuracy.

    It has the cells that the method has played, in their order; numbers are means over
    seeds.
    """
    name = card["method"]["name"]
    runs = table_of(card["runs"])
    own = runs[runs["method"] == name]
    numbers = own.groupby("cell", sort=False)[["accuracy", *SHOWN]].mean()
    shifts = {cell["name"]: cell["shift"] for cell in card["cells"]}
    numbers.insert(0, "shift", numbers.index.map(shifts))

    accuracy = runs.pivot_table("accuracy", "cell", "method", sort=False)
    others = accuracy.drop(columns=name)
    table = numbers.rename(columns={"accuracy": name}).join(others)
    return markdown(records(table.reset_index()))


def _failures(card: Card) -> str:
    """Return each reason why runs of the method failed, and how many did.

    Their accuracy counts as 0 %, so a reader should know them; "" if none failed.
    """
    runs = table_of(card["runs"])
    is_own = runs["method"] == card["method"]["name"]
    failed = runs[is_own & (runs["failed"] != "")]
    by = ["track", "family", "failed"]
    counts = failed.groupby(by, sort=False).size()
    text = ""
    for (track, family, why), count in counts.items():
        text += FAILURE.format(count=count, track=track, family=family, why=why)
    return text


def reasons(card: Card) -> list[str]:
    """Return a line for each different reason why runs of the method failed."""
    name = card["method"]["name"]
    failed = [run["failed"] for run in card["runs"] if run["method"] == name]
    n_runs = len(failed)
    counts = Counter(why for why in failed if why)
    return [
        FAILED.format(count=count, runs=n_runs, name=name, why=why)
        for why, count in counts.most_common()
    ]


def nothing_ran(card: Card) -> bool:
    """Return whether every run of the method failed."""
    name = card["method"]["name"]
    return all(run["failed"] for run in card["runs"] if run["method"] == name)


def picture(card: Card) -> "Figure":
    """Draw mean ranks; a bar joins methods that do not differ significantly.

    Methods stand below each other, the best at the top. The bar below a method goes
    from its rank to the last one that is nearer than the critical difference: whoever
    is beyond it is worse with 95 % confidence.

    After Demsar, Journal of Machine Learning Research 7, 2006. It is drawn here, since
    the library that has it brings another library of statistics along.
    """
    said = card["statistics"]
    ranks = pd.Series(said["ranks"]).sort_values()
    apart = said["critical_difference"]
    n_methods = len(ranks)
    figure, (panel,) = plots.panels(size=(7.0, 1.2 + 0.25 * n_methods))
    for place, (name, rank) in enumerate(ranks.items()):
        own = name == card["method"]["name"]
        _draw(panel, name, rank, -place, own)
        alike = ranks[ranks.between(rank, rank + apart)]
        below = -place - 0.3
        panel.plot([rank, alike.max()], [below, below], color="0.6", lw=3)
    panel.set(
        xlabel=AXIS.format(cells=said["cells"], apart=apart),
        xlim=(0.8, n_methods + 1),
        ylim=(0.6 - n_methods, 0.6),
        yticks=[],
    )
    return figure


def _draw(panel: "Axes", name: str, rank: float, height: float, own: bool) -> None:
    """Draw one method's rank, and its name beside it."""
    panel.plot(rank, height, "o", color=MARKED[own])
    panel.annotate(
        name,
        (rank, height),
        xytext=(8, 0),
        textcoords="offset points",
        va="center",
        weight=WEIGHT[own],
    )


def check_file(file: Path | str) -> None:
    """Refuse a file whose page would take the card's place, or a folder."""
    path = Path(file).expanduser()
    if path.suffix == ".md" or path.is_dir():
        raise FltnbError(
            f"A card cannot be written to {file}: give a file whose name does not end "
            "in .md, as its page's does, such as card.json."
        )


def save(card: Card, file: Path | str) -> None:
    """Write a card, its page beside it, and the picture among the figures.

    Raises FltnbError as :func:`check_file` does.
    """
    check_file(file)
    written = write(card, file)
    paths.write_text(written.with_suffix(".md"), page(card))
    if card["statistics"]["critical_difference"] is None:
        return
    name = card["method"]["name"]
    profile = "demo" if card["rules"]["demo"] else "stored"
    plots.save(picture(card), f"arena_{name}", profile)
