"""Build a small static site of README, the pages of docs/ and all notebooks as they are kept: ``make site``.

It needs no network, neither to be built nor to be read: formulas become MathML, pictures are files beside the pages,
and there is no script. Its pages are in ``build/site``; any web server, or none, can show them.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from html import unescape
from pathlib import Path
from string import Template

from fltnb import paths

NAV = {"README.md": "Home", "docs/guide.md": "Guide", "docs/report/README.md": "Report"}
NAV |= {
    "docs/differences.md": "Differences",
    "docs/architecture.md": "Architecture",
    "pages.html": "All pages",
}
CODE_OR_MATH = re.compile(
    r"<pre.*?</pre>|<code.*?</code>|\$\$(?P<block>.+?)\$\$|\$(?P<line>[^$\n]+?)\$",
    flags=re.S,
)
UNWANTED = ("exclude_anchor_links", "exclude_input_prompt", "exclude_output_prompt")
LINK = re.compile(r'(?P<kind>href|src)="(?P<link>[^"#:]+)(?P<rest>#[^"]*)?"')


def sources() -> list[Path]:
    """Return the files that become pages, from the project's folder: Markdown, then notebooks."""
    pages = [
        *paths.ROOT.glob("*.md"),
        *(paths.ROOT / "docs").rglob("*.md"),
        *paths.ROOT.glob("notebooks/[0-9]*.ipynb"),
    ]
    return sorted(
        (page.relative_to(paths.ROOT) for page in pages),
        key=lambda page: (page.suffix == ".ipynb", page),
    )


def build(out: Path, pages: Sequence[Path]) -> list[tuple[str, str, int]]:
    """Write the site anew; returns (page, title, bytes with its pictures) of every page.

    Broken links are named on the error stream. ``out``: a folder, emptied first. ``pages``: from :func:`sources`.
    """
    shutil.rmtree(out, ignore_errors=True)
    made = {
        page: page.with_name(
            "index.html" if page.stem == "README" else f"{page.stem}.html"
        )
        for page in pages
    }
    listed = []
    for page, target in made.items():
        (out / target).parent.mkdir(parents=True, exist_ok=True)
        title, body, size = (notebook if page.suffix == ".ipynb" else markdown)(
            page, out / target
        )
        body = LINK.sub(relink(page, made, out), CODE_OR_MATH.sub(mathml, body))
        size += write(out, target, title, body, made)
        listed.append((target.as_posix(), title, size))
    row = '<tr><td><a href="{0}">{1}</a></td><td>{0}</td><td>{2}</td></tr>'
    rows = "".join(row.format(at, title, kb(size)) for at, title, size in listed)
    write(
        out,
        Path("pages.html"),
        "All pages",
        f"<h1>All pages</h1><table>{rows}</table>",
        made,
    )
    return listed


def write(
    out: Path, target: Path, title: str, body: str, made: dict[Path, Path]
) -> int:
    """Write one page with its navigation; returns its bytes."""
    links = {
        text: os.path.relpath(made.get(Path(name), Path(name)), target.parent)
        for name, text in NAV.items()
    }
    nav = "".join(f'<a href="{to}">{text}</a>' for text, to in links.items())
    page = Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    text = page.substitute(title=title, body=f"<nav>{nav}</nav>\n{body}")
    text = text.replace("</style>", f"{highlighting()}</style>", 1)
    return (out / target).write_bytes(text.encode())


def markdown(page: Path, target: Path) -> tuple[str, str, int]:
    """Return title, HTML and bytes of pictures of a Markdown page."""
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    text = (paths.ROOT / page).read_text(encoding="utf-8")
    body = MarkdownWithMath(IPythonRenderer(escape=False, exclude_anchor_links=True))(
        text
    )
    return re.search(r"^# (.+)", text, flags=re.M).group(1), body, 0


def notebook(page: Path, target: Path) -> tuple[str, str, int]:
    """Return title, HTML and bytes of pictures of a notebook with its kept outputs; the pictures are written."""
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(template_name="basic", **dict.fromkeys(UNWANTED, True))
    exporter.register_preprocessor(
        "nbconvert.preprocessors.ExtractOutputPreprocessor", enabled=True
    )
    names = {"unique_key": page.stem, "output_files_dir": f"{page.stem}_files"}
    body, resources = exporter.from_filename(str(paths.ROOT / page), resources=names)
    for name, data in resources["outputs"].items():
        (target.parent / name).parent.mkdir(exist_ok=True)
        (target.parent / name).write_bytes(data)
    title = re.search(r"<h1[^>]*>(.*?)</h1>", body, flags=re.S).group(1)
    return (
        re.sub("<.*?>", "", title),
        body,
        sum(map(len, resources["outputs"].values())),
    )


def mathml(found: re.Match) -> str:
    """Turn a formula into MathML, which browsers draw by themselves; code is left as it is."""
    from latex2mathml.converter import convert

    formula = found["block"] or found["line"]
    return (
        convert(unescape(formula), "block" if found["block"] else "inline")
        if formula
        else found[0]
    )


def relink(page: Path, made: dict[Path, Path], out: Path) -> Callable[[re.Match], str]:
    """Return what points a link from one page to another at the other's page, and copies any other file linked to."""

    def link(found: re.Match) -> str:
        there = Path(os.path.normpath(page.parent / found["link"]))
        if there in made:
            to = os.path.relpath(made[there], page.parent)
            return f'{found["kind"]}="{to}{found["rest"] or ""}"'
        if (paths.ROOT / there).is_file():
            (out / there).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(paths.ROOT / there, out / there)
        elif not (out / there).exists():
            print(f"{page} links to {there}, which does not exist.", file=sys.stderr)
        return found[0]

    return link


def highlighting() -> str:
    """Return the style of code in cells, by day and by night."""
    from pygments.formatters import HtmlFormatter

    day, night = (
        HtmlFormatter(style=name).get_style_defs(".highlight")
        for name in ("default", "github-dark")
    )
    night = f"@media (prefers-color-scheme: dark) {{ {night} }}"
    return f"{day}\n{night}\n.highlight, .highlight pre {{ background: none; }}"


def kb(size: int) -> str:
    """Return a size as people say it."""
    return f"{size / 1000:,.0f} kB"


if __name__ == "__main__":
    listed = build(paths.ROOT / "build" / "site", sources())
    for name, title, size in listed:
        print(f"{kb(size):>9}  {name:<42} {title}")
    print(
        f"{kb(sum(size for *_, size in listed)):>9}  {len(listed)} pages: open build/site/index.html"
    )
