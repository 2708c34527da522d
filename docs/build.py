"""Build a small static site of README, docs/ and all notebooks: ``make site``.

It needs no network, neither to be built nor to be read: formulas become MathML,
pictures are files beside the pages, and there is no script. Its pages are in
``build/site``; any web server, or none, can show them.
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

NAV = {
    "README.md": "Home",
    "docs/guide.md": "Guide",
    "docs/report/README.md": "Report",
    "docs/differences.md": "Differences",
    "docs/architecture.md": "Architecture",
    "pages.html": "All pages",
}
CODE_OR_MATH = re.compile(
    r"<pre.*?</pre>|<code.*?</code>|\$\$(?P<block>.+?)\$\$|\$(?P<line>[^$\n]+?)\$",
    flags=re.S,
)
LINK = re.compile(r'(?P<kind>href|src)="(?P<link>[^"#:]+)(?P<rest>#[^"]*)?"')


def sources() -> list[Path]:
    """Return the files that become pages, from the project's folder.

    Markdown, then notebooks.
    """
    root = paths.ROOT
    texts = [*root.glob("*.md"), *root.glob("docs/**/*.md")]
    notebooks = root.glob("notebooks/[0-9]*.ipynb")
    pages = [*sorted(texts), *sorted(notebooks)]
    return [page.relative_to(root) for page in pages]


def build(out: Path, pages: Sequence[Path]) -> list[tuple[str, str, int]]:
    """Write the site anew; returns (page, title, bytes with its pictures) of each page.

    Broken links are named on the error stream. ``out``: a folder, emptied first.
    ``pages``: from :func:`sources`.
    """
    shutil.rmtree(out, ignore_errors=True)
    made = {}
    for page in pages:
        stem = "index" if page.stem == "README" else page.stem
        made[page] = page.with_name(f"{stem}.html")

    listed = []
    for page, target in made.items():
        (out / target).parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".ipynb":
            title, body, size = notebook(page, out / target)
        else:
            title, body = markdown(page)
            size = 0
        body = CODE_OR_MATH.sub(mathml, body)
        body = LINK.sub(relink(page, made, out), body)
        size += write(out, target, title, body, made)
        listed.append((target.as_posix(), title, size))

    rows = []
    for at, title, size in listed:
        link = f'<a href="{at}">{title}</a>'
        rows.append(f"<tr><td>{link}</td><td>{at}</td><td>{kb(size)}</td></tr>")
    body = f"<h1>All pages</h1><table>{''.join(rows)}</table>"
    write(out, Path("pages.html"), "All pages", body, made)
    return listed


def write(
    out: Path, target: Path, title: str, body: str, made: dict[Path, Path]
) -> int:
    """Write one page with its navigation; returns its bytes."""
    links = []
    for name, text in NAV.items():
        page = made.get(Path(name), Path(name))
        links.append(f'<a href="{os.path.relpath(page, target.parent)}">{text}</a>')

    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    body = f"<nav>{''.join(links)}</nav>\n{body}"
    text = Template(template).substitute(title=title, body=body)
    text = text.replace("</style>", f"{highlighting()}</style>", 1)
    return (out / target).write_bytes(text.encode())


def markdown(page: Path) -> tuple[str, str]:
    """Return title and HTML of a Markdown page."""
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    text = (paths.ROOT / page).read_text(encoding="utf-8")
    title = re.search(r"^# (.+)", text, flags=re.M).group(1)
    renderer = IPythonRenderer(escape=False, exclude_anchor_links=True)
    return title, MarkdownWithMath(renderer)(text)


def notebook(page: Path, target: Path) -> tuple[str, str, int]:
    """Return title, HTML and bytes of pictures of a notebook with its kept outputs.

    The pictures are written beside it.
    """
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(
        template_name="basic",
        exclude_anchor_links=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    exporter.register_preprocessor(
        "nbconvert.preprocessors.ExtractOutputPreprocessor", enabled=True
    )
    names = {"unique_key": page.stem, "output_files_dir": f"{page.stem}_files"}
    body, resources = exporter.from_filename(str(paths.ROOT / page), resources=names)

    size = 0
    for name, data in resources["outputs"].items():
        picture = target.parent / name
        picture.parent.mkdir(exist_ok=True)
        size += picture.write_bytes(data)
    title = re.search(r"<h1[^>]*>(.*?)</h1>", body, flags=re.S).group(1)
    return re.sub("<.*?>", "", title), body, size


def mathml(found: re.Match) -> str:
    """Turn a formula into MathML, which browsers draw by themselves.

    Code is left as it is.
    """
    from latex2mathml.converter import convert

    if found["block"]:
        return convert(unescape(found["block"]), "block")
    if found["line"]:
        return convert(unescape(found["line"]), "inline")
    return found[0]


def relink(page: Path, made: dict[Path, Path], out: Path) -> Callable[[re.Match], str]:
    """Return what points a link from one page to another at the other's page.

    It copies any other file that is linked to.
    """

    def link(found: re.Match) -> str:
        there = Path(os.path.normpath(page.parent / found["link"]))
        if there in made:
            to = os.path.relpath(made[there], page.parent)
            rest = found["rest"] or ""
            return f'{found["kind"]}="{to}{rest}"'
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

    day = HtmlFormatter(style="default").get_style_defs(".highlight")
    night = HtmlFormatter(style="github-dark").get_style_defs(".highlight")
    night = f"@media (prefers-color-scheme: dark) {{ {night} }}"
    return f"{day}\n{night}\n.highlight, .highlight pre {{ background: none; }}"


def kb(size: int) -> str:
    """Return a size as people say it."""
    return f"{size / 1000:,.0f} kB"


if __name__ == "__main__":
    listed = build(paths.ROOT / "build" / "site", sources())
    for name, title, size in listed:
        print(f"{kb(size):>9}  {name:<42} {title}")
    total = sum(size for *_, size in listed)
    print(f"{kb(total):>9}  {len(listed)} pages: open build/site/index.html")
