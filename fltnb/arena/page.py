"""A card as a page for people, and the picture of mean ranks."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import paths, plots
from .card import table, write
from .statistics import LEVEL, RANK_LEVEL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ("accuracy", "worst", "ari", "megabytes", "seconds", "failed")


def page(card: dict[str, Any]) -> str:
    """Return a card in Markdown."""
    name = card["method"]["name"]
    parts = [f"# {name} in the arena\n", _head(card)]
    parts += ["## In the table\n", row(card)]
    parts += ["## Beside the others\n", *_sentences(card)]
    parts += ["\n## By cell\n", _by_cell(card)]
    reasons = _reasons(card)
    if reasons:
        parts += ["## Runs that failed\n", *reasons]
    return "\n".join(parts) + "\n"


def _head(card: dict[str, Any]) -> str:
    rules = card["rules"]
    known = card["environment"]
    size = "small federations of the digits (a demonstration)"
    if not rules["demo"]:
        size = "the arena's federations"
    seeds = ", ".join(map(str, card["seeds"]))
    lines = [
        f"Played on {size}, track {rules['track'] or 'all'}, "
        f"{'tuned' if rules['tuned'] else 'untuned'}; seeds {seeds}, drawn from the "
        "hash of the source.",
        f"{len(card['runs'])} runs, {card['seconds']:g} s; commit {known['commit']}, "
        f"{known['hardware']}.",
    ]
    if not card["complete"]:
        lines.append("**Not complete**: the budget ended before all runs.")
    if card["method"]["own_evaluation"]:
        lines.append("The class has an evaluation of its own: read its source.")
    for family, why in card["lacking"].items():
        lines.append(f"Without {family}: {why}")
    return "\n".join(lines) + "\n"


def row(card: dict[str, Any]) -> str:
    """Return the row of the table of all methods, with its head."""
    return _markdown([_readable(one) for one in table([card])])


def _readable(one: dict[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in one.items()}


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}" if value < 1000 else f"{value:,.0f}"
    return str(value)


def _markdown(rows: Sequence[dict[str, str]]) -> str:
    """Return a table in Markdown."""
    head = list(rows[0])
    lines = [head, ["---"] * len(head)]
    for one in rows:
        lines.append([text.replace("|", "\\|") for text in one.values()])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _sentences(card: dict[str, Any]) -> list[str]:
    said = card["statistics"]
    lines = []
    for one in said["comparisons"]:
        lines.append(
            f"- {one['other']}: {one['verdict']} ({one['difference']:+.2f} points over "
            f"{one['pairs']} pairs, corrected p = {one['corrected']:.2g})."
        )
    lines.append(
        f"\nWilcoxon's signed-rank test over cells and seeds, Holm's correction, p < "
        f"{LEVEL:g}. A failed run counts 0 %."
    )
    if said["critical_difference"] is not None:
        ranked = sorted(said["ranks"].items(), key=lambda item: item[1])
        ranks = ", ".join(f"{name} {rank:.2f}" for name, rank in ranked)
        lines.append(
            f"Mean ranks over {said['cells']} cells: {ranks}; they differ from "
            f"{said['critical_difference']:.2f} on (Nemenyi, {RANK_LEVEL:g})."
        )
    return lines


def _by_cell(card: dict[str, Any]) -> str:
    """Return the method's numbers by cell, beside the others' accuracy."""
    name = card["method"]["name"]
    others = [one for one in card["statistics"]["means"] if one != name]
    rows = []
    for cell in card["cells"]:
        track, family, level = cell["name"].split("/")
        place = (track, family, level)
        own = _of(card, name, place)
        if not own:
            continue
        line = {"cell": cell["name"], "shift": cell["shift"]}
        accuracy = [one["accuracy"] for one in own]
        line[name] = f"{np.mean(accuracy):.1f} ± {np.std(accuracy):.1f}"
        for measure in ("worst", "ari", "seconds"):
            line[measure] = _mean(own, measure)
        for other in others:
            line[other] = _mean(_of(card, other, place), "accuracy")
        rows.append(line)
    return _markdown(rows)


def _of(card: dict[str, Any], method: str, place: tuple) -> list[dict[str, Any]]:
    """Return a method's runs on one cell."""
    found = []
    for one in card["runs"]:
        here = one["track"], one["family"], one["level"]
        if one["method"] == method and here == place:
            found.append(one)
    return found


def _mean(rows: Sequence[dict[str, Any]], measure: str) -> str:
    values = [one[measure] for one in rows if one[measure] is not None]
    return f"{np.mean(values):.2f}" if values else "–"


def _reasons(card: dict[str, Any]) -> list[str]:
    """Return each reason why runs of the method failed, with their number."""
    counts = {}
    for one in card["runs"]:
        if one["failed"] and one["method"] == card["method"]["name"]:
            reason = f"{one['track']}, {one['family']}: {one['failed']}"
            counts[reason] = counts.get(reason, 0) + 1
    return [f"- {count} of {reason}" for reason, count in counts.items()]


def picture(card: dict[str, Any]) -> "Figure":
    """Draw mean ranks; a bar joins methods that are not told apart (Demsar 2006).

    Our own drawing: the libraries that have one bring two statistics packages along.
    """
    said = card["statistics"]
    ranked = sorted(said["ranks"].items(), key=lambda item: item[1])
    apart = said["critical_difference"]
    height = 1.2 + 0.3 * len(ranked)
    figure, axes = plots.panels(size=(7.0, height))
    panel = axes[0]
    for place, (name, rank) in enumerate(ranked):
        own = name == card["method"]["name"]
        panel.plot(rank, -place, "o", color="#D55E00" if own else "0.3")
        panel.annotate(
            f"{name}  {rank:.2f}",
            (rank, -place),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            weight="bold" if own else "normal",
        )
        alike = [other for _, other in ranked if rank <= other <= rank + apart]
        panel.plot([rank, max(alike)], [-place - 0.3] * 2, color="0.6", lw=3)
    panel.set_xlim(0.8, len(ranked) + 1)
    panel.set_yticks([])
    panel.set_xlabel(
        f"mean rank over {said['cells']} cells (1 is best); "
        f"a bar: less than {apart:.2f} apart"
    )
    return figure


def save(card: dict[str, Any], file: Path | str) -> None:
    """Write a card, its page beside it, and the picture among the figures."""
    written = write(card, file)
    paths.write_text(written.with_suffix(".md"), page(card))
    said = card["statistics"]
    if said["critical_difference"] is not None:
        profile = "demo" if card["rules"]["demo"] else "stored"
        plots.save(picture(card), f"arena_{card['method']['name']}", profile)
