"""What the site adds to Sphinx: the sidebar, notebooks' outputs, links that lead on."""

import base64
import hashlib
import json
import os
import posixpath
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.osutil import relative_uri

LOGGER = logging.getLogger(__name__)

# a link of a page, and what it must not do: load something from elsewhere
LINK = re.compile(r'\b(?P<kind>href|src)="(?P<to>[^"]*)"')
NAMED = re.compile(r'\b(?:id|name)="([^"]+)"')
ELSEWHERE = ("http:", "https:", "mailto:", "data:", "javascript:")
LOADED = re.compile(r'<(?:script|img|link|iframe)\b[^>]*(?:src|href)="(?:https?:)?//')


def check_outputs(name: str, notebook: Mapping[str, Any]) -> None:
    """Refuse a notebook that was not run as a whole, or stopped with an error.

    Parameters
    ----------
    name : str, what an error calls it
    notebook : mapping, nbformat's

    Raises
    ------
    ValueError
        Names the notebook and its cell, in a sentence.
    """
    shown = 0
    for number, cell in enumerate(notebook["cells"], 1):
        if cell["cell_type"] != "code" or not "".join(cell["source"]).strip():
            continue
        if cell.get("execution_count") is None:
            lacks = "was not run, so that its output is missing"
            raise ValueError(f"{name}: cell {number} {lacks}: make refresh.")
        for output in cell["outputs"]:
            if output["output_type"] == "error":
                raise ValueError(f"{name}: cell {number} stopped with an error.")
        shown += len(cell["outputs"])
    if not shown:
        raise ValueError(f"{name}: no cell has an output: make refresh.")


def sidebar(file: Path) -> dict[str, str]:
    """Return the lists of the sidebar: the page that they belong to -> its lists."""
    parts = re.split(r"^## (\S+)\n", file.read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Append the sidebar's lists to their pages; look at notebooks' outputs."""
    lists = sidebar(Path(app.confdir) / "toc.md")
    if docname in lists:
        source[0] += f"\n\n{lists[docname]}"
    path = Path(app.env.doc2path(docname))
    if path.suffix == ".ipynb":
        try:
            check_outputs(f"{docname}.ipynb", json.loads(source[0]))
        except json.JSONDecodeError as error:
            raise SphinxError(f"{docname}.ipynb is no notebook: {error}.") from error
        except ValueError as error:
            LOGGER.warning("%s", error)


class RawLinks(SphinxPostTransform):
    """Point links and pictures inside raw HTML at the site's pages and files.

    Tables of notebooks and a few lines of README are HTML already, which Sphinx leaves
    as it is.
    """

    default_priority = 5

    def run(self, **options: Any) -> None:
        """Go through the page's raw HTML."""
        docname = self.env.docname

        def link(found: re.Match) -> str:
            to = linked(self.app, docname, found["to"])
            return f'{found["kind"]}="{to}"'

        for node in self.document.findall(nodes.raw):
            if node.get("format") == "html" and LINK.search(node.astext()):
                text = LINK.sub(link, node.astext())
                node.replace_self(nodes.raw("", text, format="html"))


class Described(SphinxPostTransform):
    """Give pictures of notebooks the words that they have there.

    MyST-NB names a picture's file by the hash of its bytes, and leaves its words out.
    """

    default_priority = 5

    def run(self, **options: Any) -> None:
        """Go through the page's pictures."""
        path = Path(self.env.doc2path(self.env.docname))
        if path.suffix != ".ipynb":
            return
        said = described(json.loads(path.read_text(encoding="utf-8")))
        for node in self.document.findall(nodes.image):
            name = Path(node["uri"]).stem
            if name in said:
                node["alt"] = said[name]


def described(notebook: Mapping[str, Any]) -> dict[str, str]:
    """Return the words of each PNG of a notebook, by the SHA-256 of its bytes."""
    said = {}
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            png = output.get("data", {}).get("image/png")
            about = output.get("metadata", {}).get("image/png", {})
            if png and "alt" in about:
                drawn = base64.b64decode("".join(png))
                said[hashlib.sha256(drawn).hexdigest()] = about["alt"]
    return said


def linked(app: Sphinx, docname: str, to: str) -> str:
    """Return a link of a page's source as the site has it; other files are copied."""
    if to.startswith((*ELSEWHERE, "#", "//")):
        return to
    path, mark, name = to.partition("#")
    there = posixpath.normpath(posixpath.join(posixpath.dirname(docname), path))
    page = there.removesuffix(".md").removesuffix(".ipynb")
    here = app.builder.get_target_uri(docname)
    if page in app.env.found_docs:
        return relative_uri(here, app.builder.get_target_uri(page)) + mark + name
    source = Path(app.srcdir) / there
    if source.is_file():
        copied = Path(app.outdir) / "_files" / there
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copied)
        return relative_uri(here, f"_files/{there}") + mark + name
    return to


def broken_links(site: Path) -> Iterator[str]:
    """Say in a sentence each which links of a built site lead nowhere.

    Parameters
    ----------
    site : Path
        A folder of HTML pages. Places on other hosts are not looked at, but a page must
        load nothing from them.
    """
    names: dict[Path, set[str]] = {}
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    for page, text in sorted(pages.items()):
        here = page.relative_to(site)
        loads = LOADED.search(text)
        if loads:
            yield f"{here} needs the network: {loads[0]}."
        links = {found["to"] for found in LINK.finditer(text)}
        for link in sorted(links):
            if link.startswith((*ELSEWHERE, "//")) or link in ("", "#"):
                continue
            path, _, name = unquote(link).partition("#")
            path = path.partition("?")[0]
            there = Path(os.path.normpath(page.parent / path)) if path else page
            if not there.exists():
                yield f"{here} links to {link}, which does not exist."
            elif name and there in pages:
                if there not in names:
                    names[there] = set(NAMED.findall(pages[there]))
                if name not in names[there]:
                    yield f"{here} links to {link}, where there is no such heading."


def _finish(app: Sphinx, error: Exception | None) -> None:
    """Give the first page its second name, and check all links.

    Warnings of this late do not count for Sphinx, so its exit status is set here.
    """
    if error is not None or app.builder.format != "html":
        return
    site = Path(app.outdir)
    shutil.copyfile(site / f"{app.config.root_doc}.html", site / "index.html")
    for sentence in broken_links(site):
        LOGGER.warning("%s", sentence)
        app.statuscode = 1


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect all of it."""
    app.connect("source-read", _read)
    app.add_post_transform(RawLinks)
    app.add_post_transform(Described)
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
