"""Displayed names of data sets, networks, measures and methods."""

from ..plots.style import NAMED

PAPERS = {"flt": "FLT", "fesem": "FeSEM", "mthfl": "MT-HFL", "emdcfl": "EMD-CFL"}
"""Paper -> its displayed name, in the order of the notebooks."""
VARIANTS = {
    "as_written": "following the text",
    "as_run": "following the authors' code",
}
SHORT = {"as_written": "text", "as_run": "code"}
"""Variant -> its source: the paper's text, or its authors' code."""
MEASURES = {"worst": "worst client", "worst_accuracy": "accuracy of the worst client"}
"""Measure -> its displayed name, where that is not the name with spaces."""

NAMES = {name: look.label for name, look in NAMED.items()}
NAMES |= VARIANTS | PAPERS | MEASURES


def label(name: str) -> str:
    """Return the name of a method, data set, network, measure, variant or paper.

    An unknown id is returned without its underscores, so that your own method
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
