"""Names for people: what data sets, networks, measures and methods are called."""

from ..plots.style import NAMED

PAPERS = {"flt": "FLT", "fesem": "FeSEM", "mthfl": "MT-HFL", "emdcfl": "EMD-CFL"}
"""Paper -> what it is called, in the order of the notebooks."""
VARIANTS = {
    "as_written": "following the text",
    "as_run": "following the authors' code",
}
SHORT = {"as_written": "text", "as_run": "code"}
"""Variant -> what it follows: the paper's text, or its authors' code."""

NAMES = {name: look.label for name, look in NAMED.items()} | VARIANTS | PAPERS


def label(name: str) -> str:
    """Return what people call a method, data set, network, measure, variant or paper.

    An unknown id is returned without its underscores, so that a method of one's own
    needs no entry.

    Examples
    --------
    >>> label("flt_enc1"), label("fesem_2"), label("rotated_mnist"), label("mlp")
    ('FLT Enc1', 'FeSEM (K = 2)', 'Rotated MNIST', 'MLP')
    """
    if name in NAMES:
        return NAMES[name]
    kind, _, rest = name.partition("_")
    if kind in ("rotated", "backdoor") and rest:
        return f"{kind.capitalize()} {label(rest)}"
    if name.endswith(":random"):
        return f"{label(name.removesuffix(':random'))}, random weights"
    return name.replace("_", " ")
