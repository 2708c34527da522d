"""Links in running text: the first use of a glossary's term, and notebooks' numbers."""

import re
from pathlib import PurePosixPath
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.osutil import relative_uri

GLOSSARY = "docs/glossary"
# text inside these is no running text
OUTSIDE = (
    nodes.title,
    nodes.reference,
    nodes.literal,
    nodes.literal_block,
    nodes.table,
    nodes.raw,
    nodes.math,
    nodes.math_block,
    addnodes.desc_signature,
    addnodes.pending_xref,
    nodes.field_name,
    nodes.term,
    nodes.rubric,
    nodes.caption,
)
# words that mean the same, and plurals
ENDING = "(?:s|es)?"
NOTEBOOKS = re.compile(r"\b[Nn]otebooks? \d\d(?:(?:, | and | to )\d\d)*\b")


def pattern(terms: list[str]) -> re.Pattern:
    """Return what finds terms as whole words, longest first, plurals too.

    Sphinx has made apostrophes of the text typographic.
    """
    ordered = sorted(terms, key=len, reverse=True)
    words = "|".join(
        re.escape(one)
        if one.isupper()
        else f"[{one[0].upper()}{one[0]}]{re.escape(one[1:])}"
        for one in ordered
    )
    words = words.replace("'", "['’]")
    return re.compile(rf"\b({words}){ENDING}\b")


class LinkTerms(SphinxPostTransform):
    """Link the first use of every term on a page."""

    default_priority = 200

    def run(self, **options: Any) -> None:
        """Go through the running text in order."""
        if self.env.docname == GLOSSARY or self.app.builder.format != "html":
            return
        objects = self.env.domains.standard_domain.objects
        anchors = {
            name: anchor
            for (kind, name), (page, anchor) in objects.items()
            if kind == "term" and page == GLOSSARY
        }
        if not anchors:
            return
        by_word = {name.lower(): anchor for name, anchor in anchors.items()}
        find = pattern(list(anchors))
        here = self.app.builder.get_target_uri(self.env.docname)
        there = relative_uri(here, self.app.builder.get_target_uri(GLOSSARY))
        seen: set[str] = set()
        for text in list(self.document.findall(nodes.Text)):
            if _inside(text, OUTSIDE):
                continue
            made = self._linked(text.astext(), find, by_word, there, seen)
            if len(made) > 1:
                text.parent.replace(text, made)

    def _linked(
        self,
        text: str,
        find: re.Pattern,
        by_word: dict[str, str],
        there: str,
        seen: set[str],
    ) -> list[nodes.Node]:
        made: list[nodes.Node] = []
        at = 0
        for found in find.finditer(text):
            anchor = by_word[found[1].lower().replace("’", "'")]
            if anchor in seen:
                continue
            seen.add(anchor)
            made.append(nodes.Text(text[at : found.start()]))
            link = nodes.reference("", found[0], refuri=f"{there}#{anchor}")
            link["classes"].append("term")
            link["internal"] = True
            made.append(link)
            at = found.end()
        return [*made, nodes.Text(text[at:])]


class LinkNotebooks(SphinxPostTransform):
    """Link every number in "notebook 01" and "notebooks 09 and 10", in tables, too."""

    default_priority = 190

    def run(self, **options: Any) -> None:
        """Go through the text; a notebook does not link to itself."""
        if self.app.builder.format != "html":
            return
        pages = {
            PurePosixPath(name).name[:2]: name
            for name in self.env.found_docs
            if name.startswith("notebooks/") and name != self.env.docname
        }
        here = self.app.builder.get_target_uri(self.env.docname)
        outside = tuple(kind for kind in OUTSIDE if kind is not nodes.table)
        for text in list(self.document.findall(nodes.Text)):
            mentions = list(NOTEBOOKS.finditer(text.astext()))
            if not mentions or _inside(text, outside):
                continue
            made: list[nodes.Node] = []
            at = 0
            for mention in mentions:
                for found in re.finditer(r"\d\d", mention[0]):
                    if found[0] not in pages:
                        continue
                    begin = mention.start() + found.start()
                    to = self.app.builder.get_target_uri(pages[found[0]])
                    made.append(nodes.Text(text.astext()[at:begin]))
                    uri = relative_uri(here, to)
                    made.append(
                        nodes.reference("", found[0], refuri=uri, internal=True)
                    )
                    at = begin + len(found[0])
            if made:
                text.parent.replace(text, [*made, nodes.Text(text.astext()[at:])])


def _inside(node: nodes.Node, outside: tuple[type[nodes.Node], ...]) -> bool:
    """Whether a text stands in one of these nodes."""
    parent = node.parent
    while parent is not None:
        if isinstance(parent, outside):
            return True
        parent = parent.parent
    return False


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the transforms."""
    app.add_post_transform(LinkNotebooks)
    app.add_post_transform(LinkTerms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
