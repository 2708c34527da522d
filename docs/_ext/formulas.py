"""Formulas as MathML, which browsers draw by themselves: no script, no network."""

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)

# operators that the converter does not know
NAMES = re.compile(r"\\(arg|ARI)(?![A-Za-z])")
BRACE = re.compile(r"(?<!\\)[{}]")
UNKNOWN = re.compile(r"\\[A-Za-z]+")


def mathml(latex: str, display: str = "inline") -> str:
    r"""Return a LaTeX formula as MathML.

    Parameters
    ----------
    latex : str, without dollars
    display : {"inline", "block"}

    Raises
    ------
    ValueError
        It has a command that is not known, or braces that do not match.

    Examples
    --------
    >>> mathml("x").count("<mi>x</mi>")
    1
    """
    braces = BRACE.findall(latex)
    if braces.count("{") != braces.count("}"):
        raise ValueError(f"The formula ${latex}$ is broken: its braces do not match.")
    try:
        made = convert(NAMES.sub(r"\\operatorname{\1}", latex), display)
    except Exception as error:
        said = re.sub(r"(?<!^)(?=[A-Z])", " ", type(error).__name__).lower()
        raise ValueError(f"The formula ${latex}$ is broken: {said}.") from error
    unknown = UNKNOWN.search(made)
    if unknown:
        raise ValueError(f"The formula ${latex}$ has the unknown {unknown[0]}.")
    return made


def _drawn(display: str):
    """Return what a writer of pages does with a formula."""

    def visit(writer, node: nodes.Element) -> None:
        try:
            made = mathml(node.astext(), display)
        except ValueError as error:
            LOGGER.warning("%s", error, location=node)
            made = node.astext()
        block = display == "block"
        writer.body.append(f'<div class="formula">{made}</div>' if block else made)
        raise nodes.SkipNode

    return visit


def setup(app: Sphinx) -> dict[str, bool]:
    """Make it the renderer ``mathml``."""
    app.add_html_math_renderer(
        "mathml", (_drawn("inline"), None), (_drawn("block"), None)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
