"""Draw the pictures of docs/explorer.md again, with the code of that page.

To be run after the explorer's look has changed: ``python docs/pictures/explorer.py``.
"""

import re

from fltnb import paths
from fltnb.plots.still import still

PAGE = paths.ROOT / "docs" / "explorer.md"
PICTURES = {
    "explorer_threshold_1.png": {"threshold": 1.0},
    "explorer_threshold_6.png": {"threshold": 5.8, "client": 21},
}
"""File beside the page -> positions of the sliders."""


def main() -> None:
    """Run the first block of the page, move its sliders, and keep what is shown."""
    text = PAGE.read_text(encoding="utf-8")
    [block, *_] = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    names: dict = {}
    exec(block, names)
    for file, to in PICTURES.items():
        figure = names["shown"].move(**to).canvas.figure
        paths.write_atomically(
            PAGE.with_name(file), lambda out, figure=figure: out.write(still(figure))
        )


if __name__ == "__main__":
    main()
