"""Names for people: the one place that says how data sets, networks, measures and methods are called in tables."""

from ..plots.style import NAMED

PAPERS = {"flt": "FLT", "fesem": "FeSEM", "mthfl": "MT-HFL", "emdcfl": "EMD-CFL"}
"""Paper -> what it is called, in the order of the notebooks."""
VARIANTS = {"as_written": "as written", "as_run": "as run"}
SHORT = {"as_written": "text", "as_run": "code"}
"""Variant -> what it follows: the paper's text, or its authors' code."""

NAMES = {name: look.label for name, look in NAMED.items()} | VARIANTS | PAPERS


def label(name: str) -> str:
    """Return how people call a method, data set, network, measure, variant or paper.

    An unknown id is returned without its underscores, so that a method of one's own needs no entry.

    Examples
    --------
    >>> label("flt_enc1"), label("fesem_2"), label("rotated_mnist"), label("as_run")
    ('FLT Enc1', 'FeSEM (K = 2)', 'Rotated MNIST', 'as run')
    """
    kind, _, rest = name.partition("_")
    if name not in NAMES and kind in ("rotated", "backdoor") and rest:
        return f"{kind.capitalize()} {label(rest)}"
    if name.endswith(":random"):
        return f"{label(name.removesuffix(':random'))}, random weights"
    return NAMES.get(name, name.replace("_", " "))
