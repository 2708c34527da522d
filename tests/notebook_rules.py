"""What every notebook of this project keeps to; ``problems`` lists in words what one does not."""

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
MACHINE_PATH = re.compile(
    r"(?<![\w.:/])(/(home|Users|work|tmp|root|private|mnt)/[\w.]|[A-Za-z]:\\+\w)"
)
METADATA = {"kernelspec", "language_info"}
CELL_METADATA = {"tags"}


def problems(file: Path) -> list[str]:
    """Return one sentence per broken rule, nothing for a notebook that keeps them all."""
    notebook = nbformat.read(file, as_version=4)
    cells, size = notebook.cells, file.stat().st_size
    codes = [cell for cell in cells if cell.cell_type == "code"]
    lengths = [
        len([line for line in cell.source.splitlines() if line.strip()])
        for cell in codes
    ] or [0]
    counts = [cell.execution_count for cell in codes]
    in_order = counts == list(range(1, len(codes) + 1))
    outputs = [output for cell in codes for output in cell.outputs]
    said = [output for output in outputs if output.output_type == "stream"]
    uncommitted = any(
        re.search(r"^fltnb .*\+changes", output.text, flags=re.M) for output in said
    )
    kinds = "".join("c" if cell.cell_type == "code" else "m" for cell in cells)
    noise = set(notebook.metadata) - METADATA | {
        key for cell in cells for key in set(cell.metadata) - CELL_METADATA
    }
    rules = {
        f"the file has {size} bytes, {MAX_BYTES} or more: draw at 100 dpi": size
        >= MAX_BYTES,
        f"has {len(cells)} cells, not {CELLS.start} to {CELLS.stop - 1}": len(cells)
        not in CELLS,
        "does not begin with text": not kinds.startswith("m"),
        "more than three code cells follow each other without text": "cccc" in kinds,
        f"the median code cell has {median(lengths):g} lines, over {MEDIAN_LINES}": median(
            lengths
        )
        > MEDIAN_LINES,
        f"a code cell has {max(lengths)} lines, over {MAX_LINES}": max(lengths)
        > MAX_LINES,
        f"the cells were not run once each from top to bottom, with outputs kept: {counts}": not in_order,
        "holds an error": any(output.output_type == "error" for output in outputs),
        "holds no output": not outputs,
        "keeps a warning or a progress bar among its outputs": any(
            output.name == "stderr" for output in said
        ),
        "was executed on uncommitted code: commit, then `make refresh`": uncommitted,
        "the kernel is not python3": notebook.metadata.get("kernelspec", {}).get("name")
        != "python3",
        f"holds metadata that only makes noise ({', '.join(sorted(noise))}): run `make format`": noise,
    }
    return [
        *(sentence for sentence, broken in rules.items() if broken),
        *_parameters(file, codes),
        *_paths(cells),
    ]


def _parameters(file: Path, codes: list) -> list[str]:
    tagged = [cell for cell in codes if "parameters" in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        return [f"{len(tagged)} cells are tagged 'parameters', not one"]
    found = (
        []
        if tagged[0] is codes[0]
        else ["the cell tagged 'parameters' is not the first code cell"]
    )
    try:
        nodes = list(ast.walk(ast.parse(tagged[0].source)))
    except SyntaxError:
        return [*found, "the parameters cell is no Python"]
    names = {
        node.id
        for node in nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    declared = papermill.inspect_notebook(file)
    for name, about in declared.items():
        if about["inferred_type_name"] == "None" or not about["help"]:
            found.append(
                f"parameters cell: {name!r} is not 'name: type = literal  # meaning'"
            )
        try:
            ast.literal_eval(about["default"])
        except ValueError:
            found.append(f"parameters cell: {name!r} has no literal")
    if "profile" not in names:
        found.append("parameters cell: there is no 'profile'")
    elif 'profile: str = "stored"' not in tagged[0].source:
        found.append("parameters cell: the default profile is not 'stored'")
    if unseen := names - set(declared):
        # such as two "=" on one line, or "int | None"
        found.append(
            f"parameters cell: papermill cannot read {', '.join(sorted(unseen))}"
        )
    return found


def _paths(cells: list) -> list[str]:
    found = []
    for number, cell in enumerate(cells):
        # pictures are base64, in which anything may occur
        texts = [cell.source]
        for output in cell.get("outputs", []):
            texts += [output.get("text", ""), *output.get("traceback", [])]
            texts += [
                str(data)
                for kind, data in output.get("data", {}).items()
                if not kind.startswith("image/")
            ]
        hits = {hit.group(0) for text in texts for hit in MACHINE_PATH.finditer(text)}
        found += [
            f"cell {number} holds a path of one machine: {hit}..."
            for hit in sorted(hits)
        ]
    return found
