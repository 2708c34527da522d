"""What every notebook of this project keeps to; ``problems`` says what one does not."""

import ast
import dis
import re
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import nbformat
import papermill

from fltnb.notebook.page import digest

MAX_BYTES = 400_000
MAX_WORDS = 900
MAX_LINES = 25
"""Lines of a cell whose code is shown, empty ones included."""
FIRST = ["question", "top", "legend", "parameters", "checked", "experiment"]
"""Ids of cells that every page has, in this order."""
LAST = ["results", "rest", "provenance", "versions"]
FOLDED = {"hide-input"}
MACHINE_PATH = re.compile(
    # in addresses (https://x.org/home/y) these follow a word character
    r"(?<![\w.:/])(/(home|Users|work|tmp|root|private|mnt)/[\w.]|[A-Za-z]:\\+\w)"
)
METADATA = {"kernelspec", "language_info"}
CELL_METADATA = {"tags", "jupyter"}
WORDS = re.compile(r"as written|as run\b|reproduced", re.IGNORECASE)
"""Words with another meaning in the field, or with none."""


def is_page(notebook) -> bool:
    """Whether a notebook has the form of a result page."""
    return notebook.cells[0].get("id") == FIRST[0]


def folded(cell) -> bool:
    """Whether a cell's code is hidden until it is asked for."""
    return bool(cell.metadata.get("jupyter", {}).get("source_hidden"))


def lines(cell) -> int:
    """Return how many lines of a cell are not empty."""
    return sum(bool(line.strip()) for line in cell.source.splitlines())


def visible_lines(notebook) -> int:
    """Return the lines of code that a reader sees."""
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return sum(lines(cell) for cell in codes if not folded(cell))


def problems(file: Path) -> list[str]:
    """Return one sentence per broken rule, nothing for a notebook that keeps all."""
    notebook = nbformat.read(file, as_version=4)
    found = [*_executed(notebook), *_metadata(notebook), *_paths(notebook.cells)]
    found += _pictures(notebook)
    if is_page(notebook):
        found += _form(notebook)
        found += _first_screen(notebook)
        found += _length(notebook, file.stat().st_size)
        found += _parameters(file, notebook)
        found += _rebound(notebook)
    return found


def _executed(notebook) -> Iterator[str]:
    """Yield what is wrong with outputs."""
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in codes]
    if counts != list(range(1, len(codes) + 1)):
        yield f"the cells were not run once each from top to bottom: {counts}"
    outputs = [output for cell in codes for output in cell.outputs]
    if not outputs:
        yield "holds no output"
    for output in outputs:
        if output.output_type == "error":
            yield "holds an error"
        if output.output_type == "stream" and output.name == "stderr":
            yield "keeps a warning or a progress bar among its outputs"
        text = output.get("text", "")
        if re.search(r"^fltnb .*\+changes", text, flags=re.M):
            yield "was executed on uncommitted code: commit, then `make refresh`"


def _metadata(notebook) -> Iterator[str]:
    """Yield metadata that only make noise."""
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        yield "the kernel is not python3"
    noise = set(notebook.metadata) - METADATA
    for cell in notebook.cells:
        noise |= set(cell.metadata) - CELL_METADATA
    if noise:
        named = ", ".join(sorted(noise))
        yield f"holds metadata that only makes noise ({named}): run `make format`"


def _form(notebook) -> Iterator[str]:
    """Yield cells that are missing, or not where and how a page has them."""
    ids = [cell.get("id") for cell in notebook.cells]
    for name in FIRST + LAST:
        if name not in ids:
            yield f"has no cell {name!r}"
    there = [name for name in ids if name in FIRST]
    if there != FIRST[: len(there)]:
        yield f"its first cells are not in the order {', '.join(FIRST)}"
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            continue
        tags = set(cell.metadata.get("tags", []))
        if folded(cell) != (tags >= FOLDED):
            yield f"cell {cell.id} is folded in one way only: hide-input and jupyter"
        if folded(cell) and not cell.source.startswith("# "):
            yield f"cell {cell.id} is folded and does not say what it does"
        if folded(cell) and tags & {"parameters", "experiment"}:
            yield f"cell {cell.id} is folded, and it is of the experiment"
        if cell.id == "top" and "nbval-ignore-output" not in tags:
            yield "the first screen is filled later: tag it nbval-ignore-output"


def _first_screen(notebook) -> Iterator[str]:
    """Yield tables at the top that are not those whose digests cells below print."""
    printed = ""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            printed += output.get("text", "")
    for cell in notebook.cells:
        for output in cell.get("outputs", []) if cell.id == "top" else []:
            shown = output.get("data", {}).get("text/html", "")
            if shown and digest(shown) not in printed:
                yield "what stands at the top is not what a cell below put there"


def _pictures(notebook) -> Iterator[str]:
    """Yield cells whose pictures have no words for readers who cannot see them."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            about = output.get("metadata", {}).get("image/png", {})
            if "image/png" in output.get("data", {}) and not about.get("alt"):
                yield f"cell {cell.id} shows a picture without alt text"


def _length(notebook, size: int) -> Iterator[str]:
    """Yield what is too long."""
    if size > MAX_BYTES:
        yield f"the file has {size} bytes, over {MAX_BYTES}: draw smaller pictures"
    words = 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            words += len(cell.source.split())
            if said := WORDS.search(cell.source):
                yield f"cell {cell.id} says {said.group(0)!r}"
        elif not folded(cell) and (shown := len(cell.source.splitlines())) > MAX_LINES:
            yield f"cell {cell.id} shows {shown} lines, over {MAX_LINES}"
    if words > MAX_WORDS:
        yield f"has {words} words, over {MAX_WORDS}"


def _parameters(file: Path, notebook) -> Iterator[str]:
    """Yield what is wrong with the cell of parameters."""
    tagged = [
        cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])
    ]
    if len(tagged) != 1:
        yield f"{len(tagged)} cells are tagged 'parameters', not one"
        return
    try:
        tree = ast.parse(tagged[0].source)
    except SyntaxError:
        yield "the parameters cell is no Python"
        return
    names = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    declared = papermill.inspect_notebook(file)
    if unseen := names - set(declared):
        yield f"papermill cannot read {', '.join(sorted(unseen))}: one line each"
    if "\ncompute = False" not in tagged[0].source:
        yield "there is no parameter 'compute = False'"


def _rebound(notebook) -> Iterator[str]:
    """Yield names that a cell, run again after all others, would find changed."""
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    try:
        names = [_names(compile(cell.source, cell.id, "exec")) for cell in codes]
    except SyntaxError:
        return  # said elsewhere
    for place, cell in enumerate(codes):
        reads, binds, _ = names[place]
        before = set().union(*(one[1] for one in names[:place]))
        for other, later in zip(codes[place + 1 :], names[place + 1 :], strict=True):
            for name in sorted((reads - binds) & before & (later[1] - later[2])):
                yield f"cell {other.id} binds {name}, which cell {cell.id} reads"


def _names(code: CodeType) -> tuple[set[str], set[str], set[str]]:
    """Return the global names that code reads, those that it binds, and imports."""
    reads, binds, imports = set(), set(), set()
    imported = False
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
            reads.add(step.argval)
        if step.opname == "STORE_NAME":
            binds.add(step.argval)
            if imported:
                imports.add(step.argval)
        imported = step.opname.startswith("IMPORT_")
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            reads |= _names(inner)[0]
    return reads, binds, imports


def _paths(cells: list) -> Iterator[str]:
    """Yield paths that are of one machine."""
    for number, cell in enumerate(cells):
        # pictures are base64, in which anything may occur
        texts = [cell.source]
        for output in cell.get("outputs", []):
            texts += [output.get("text", ""), *output.get("traceback", [])]
            for kind, data in output.get("data", {}).items():
                if not kind.startswith("image/"):
                    texts.append(str(data))
        hits = {hit.group(0) for text in texts for hit in MACHINE_PATH.finditer(text)}
        for hit in sorted(hits):
            yield f"cell {number} holds a path of one machine: {hit}..."
