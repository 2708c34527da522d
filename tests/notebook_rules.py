"""What every notebook of this project keeps to; ``problems`` lists in words what one does not."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from statistics import median

import nbformat
import papermill

MAX_BYTES = 1_000_000
CELLS = range(12, 46)
MEDIAN_LINES, MAX_LINES = 24, 125
# In URLs (https://x.org/home/y) these follow a word character; on a machine they do not.
MACHINE_PATH = re.compile(r"(?<![\w.:/])(/(home|Users|work|tmp|root|private|mnt)/[\w.]|[A-Za-z]:\\+\w)")
METADATA = {"kernelspec", "language_info"}
CELL_METADATA = {"tags"}


def problems(file: Path) -> list[str]:
    """Return one sentence per broken rule, nothing for a notebook that keeps them all."""
    notebook = nbformat.read(file, as_version=4)
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [
        *_size(file, notebook.cells),
        *_parameters(file, codes),
        *_execution(codes),
        *_lengths(codes),
        *_order(notebook.cells),
        *_paths(notebook.cells),
        *_metadata(notebook),
    ]


def tags(cell) -> list[str]:
    """Return the tags of a cell."""
    return cell.metadata.get("tags", [])


def _size(file: Path, cells: list) -> list[str]:
    found = []
    if file.stat().st_size >= MAX_BYTES:
        found.append(f"the file has {file.stat().st_size} bytes, {MAX_BYTES} or more: draw at 100 dpi")
    if len(cells) not in CELLS:
        found.append(f"has {len(cells)} cells, not {CELLS.start} to {CELLS.stop - 1}")
    return found


def _parameters(file: Path, codes: list) -> list[str]:
    tagged = [cell for cell in codes if "parameters" in tags(cell)]
    if len(tagged) != 1:
        return [f"{len(tagged)} cells are tagged 'parameters', not one"]
    found = [] if tagged[0] is codes[0] else ["the cell tagged 'parameters' is not the first code cell"]
    try:
        tree = ast.parse(tagged[0].source)
    except SyntaxError:
        return [*found, "the parameters cell is no Python"]
    lines = tagged[0].source.splitlines()
    names = set()
    for node in tree.body:
        text = lines[node.end_lineno - 1]
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name) or node.value is None:
            found.append(f"parameters cell: {text!r} is not 'name: type = literal  # meaning'")
            continue
        names.add(node.target.id)
        try:
            ast.literal_eval(node.value)
        except ValueError:
            found.append(f"parameters cell: {text!r} has no literal")
        if not re.search(r"#\s*\w", text[node.end_col_offset :]):
            found.append(f"parameters cell: {text!r} has no comment that says what it means")
    if "profile" not in names:
        found.append("parameters cell: there is no 'profile'")
    elif 'profile: str = "stored"' not in tagged[0].source:
        found.append("parameters cell: the default profile is not 'stored'")
    if unseen := names - set(papermill.inspect_notebook(file)):
        # such as two "=" on one line, or "int | None"
        found.append(f"parameters cell: papermill cannot read {', '.join(sorted(unseen))}")
    return found


def _execution(codes: list) -> list[str]:
    found = []
    counts = [cell.execution_count for cell in codes]
    if counts != list(range(1, len(codes) + 1)):
        found.append(f"the cells were not run once each from top to bottom, with outputs kept: {counts}")
    if any(output.output_type == "error" for cell in codes for output in cell.outputs):
        found.append("holds an error")
    if not any(cell.outputs for cell in codes):
        found.append("holds no output")
    said = [output for cell in codes for output in cell.outputs if output.output_type == "stream"]
    if any(output.name == "stderr" for output in said):
        found.append("keeps a warning or a progress bar among its outputs")
    if any(re.search(r"^fltnb .*\+changes", output.text, flags=re.M) for output in said):
        found.append("was executed on uncommitted code: commit, then `make refresh`")
    return found


def _lengths(codes: list) -> list[str]:
    lengths = [len([line for line in cell.source.splitlines() if line.strip()]) for cell in codes]
    found = []
    if lengths and median(lengths) > MEDIAN_LINES:
        found.append(f"the median code cell has {median(lengths):g} lines, over {MEDIAN_LINES}")
    if max(lengths, default=0) > MAX_LINES:
        found.append(f"a code cell has {max(lengths)} lines, over {MAX_LINES}")
    return found


def _order(cells: list) -> list[str]:
    kinds = "".join("c" if cell.cell_type == "code" else "m" for cell in cells)
    found = [] if kinds.startswith("m") else ["does not begin with text"]
    return found + (["more than three code cells follow each other without text"] if "cccc" in kinds else [])


def _paths(cells: list) -> list[str]:
    found = []
    for number, cell in enumerate(cells):
        # pictures are base64, in which anything may occur
        texts = [cell.source]
        for output in cell.get("outputs", []):
            texts += [output.get("text", ""), *output.get("traceback", [])]
            texts += [str(data) for kind, data in output.get("data", {}).items() if not kind.startswith("image/")]
        hits = {hit.group(0) for text in texts for hit in MACHINE_PATH.finditer(text)}
        found += [f"cell {number} holds a path of one machine: {hit}..." for hit in sorted(hits)]
    return found


def _metadata(notebook) -> list[str]:
    found = []
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        found.append("the kernel is not python3")
    extra = set(notebook.metadata) - METADATA
    extra |= {key for cell in notebook.cells for key in set(cell.metadata) - CELL_METADATA}
    if extra:
        found.append(f"holds metadata that only makes noise ({', '.join(sorted(extra))}): run `make format`")
    return found
