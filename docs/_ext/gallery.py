"""The gallery: a thumbnail of each picture and printed table, linked to its cell."""

import base64
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from PIL import Image
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

WIDTH = 480  # pixels of a thumbnail, which is shown at half of that
HEADING = re.compile(r"^#{1,4} (.+)$", flags=re.M)
MARKUP = re.compile(r"[*`$]|\[|\]\([^)]*\)")


@dataclass(frozen=True)
class Shown:
    """An output of a notebook that the gallery shows.

    ``cell``: number of its cell from 0; ``title``: a picture's own words, or the
    section that a table stands in; ``picture``: a PNG; ``table``: HTML. One of the two
    is empty.
    """

    cell: int
    title: str
    picture: bytes = b""
    table: str = ""


def outputs(notebook: dict[str, Any]) -> Iterator[Shown]:
    """Give all pictures of a notebook, and the tables of sections on printed tables.

    The first table of the first screen is one, too.
    """
    title = ""
    first = True
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "markdown":
            headings = HEADING.findall("".join(cell["source"]))
            if headings:
                title = MARKUP.sub("", headings[-1])
            continue
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            table = "".join(data.get("text/html", ""))
            if "image/png" in data:
                picture = base64.b64decode("".join(data["image/png"]))
                about = output.get("metadata", {}).get("image/png", {})
                said = about.get("alt") or title
                yield Shown(number, said[:1].upper() + said[1:], picture=picture)
            elif "<table" in table and (first or re.search(r"\bTables? ", title)):
                yield Shown(number, title, table=table)
                first = False


def thumbnail(picture: bytes) -> bytes:
    """Return a picture as a small PNG of 64 colours."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    height = max(1, round(image.height * WIDTH / image.width))
    small = image.resize((WIDTH, height), Image.Resampling.LANCZOS)
    made = io.BytesIO()
    small.quantize(64).save(made, "PNG", optimize=True)
    return made.getvalue()


class Gallery(SphinxDirective):
    """Show the outputs of all notebooks as cards."""

    def run(self) -> list[nodes.Node]:
        """Write thumbnails beside the pages, and the cards notebook by notebook."""
        folder = Path(self.env.app.outdir) / "_gallery"
        folder.mkdir(parents=True, exist_ok=True)
        made: list[nodes.Node] = []
        files = sorted((Path(self.env.srcdir) / "notebooks").glob("[0-9]*.ipynb"))
        for file in files:
            self.env.note_dependency(str(file))
            notebook = json.loads(file.read_text(encoding="utf-8"))
            heading = HEADING.search("".join(notebook["cells"][0]["source"]))
            name = MARKUP.sub("", heading[1]) if heading else file.stem
            cards = [
                self._card(file.stem, folder, number, one)
                for number, one in enumerate(outputs(notebook))
            ]
            if cards:
                text = f"{file.stem[:2]} {name}"
                section = nodes.section("", nodes.title("", text), ids=[file.stem])
                grid = f'<div class="gallery">{"".join(cards)}</div>'
                section += nodes.raw("", grid, format="html")
                made.append(section)
        return made

    def _card(self, stem: str, folder: Path, number: int, one: Shown) -> str:
        title = escape(one.title)
        if one.picture:
            name = f"{stem}_{number}.png"
            (folder / name).write_bytes(thumbnail(one.picture))
            inside = f'<img src="../_gallery/{name}" alt="" loading="lazy">'
        else:
            plain = re.sub(r"</?a\b[^>]*>| id=\"[^\"]*\"", "", one.table)
            inside = f'<div class="mini" aria-hidden="true">{plain}</div>'
        link = f"../notebooks/{stem}.html#cell-{one.cell}"
        return (
            f'<a class="card" href="{link}"><div class="thumb">{inside}</div>'
            f"<span>{title}</span></a>"
        )


class CellNames(SphinxTransform):
    """Give every code cell a name to link to: ``cell-3``, counted from 0."""

    default_priority = 800

    def apply(self, **options: Any) -> None:
        """Name the cells of a notebook."""
        for node in self.document.findall(nodes.container):
            if node.get("nb_element") == "cell_code":
                node["ids"].append(f"cell-{node['cell_index']}")


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive and the names of cells."""
    app.add_directive("gallery", Gallery)
    app.add_transform(CellNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
