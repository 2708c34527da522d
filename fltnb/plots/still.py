"""Figures as small files: the pictures that a notebook keeps."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 192
"""Two pixels of a picture for each of a display, which has 96 per inch."""
COLORS = 64
"""Colours of a picture."""


def still(fig: Figure, dpi: int = DPI) -> bytes:
    """Return a figure as a PNG without date or version.

    Edges are drawn without intermediate shades, which would take half of a file's
    bytes. They look smooth where the picture is shown at half its size.

    Parameters
    ----------
    fig : Figure
    dpi : int
        Pixels per inch.

    Examples
    --------
    >>> import fltnb as fl
    >>> figure, axes = fl.plots.panels(1)
    >>> still(figure)[1:4]
    b'PNG'
    """
    from PIL import Image

    numbers, palette = few_colors(_drawn(fig, dpi), COLORS)
    picture = Image.fromarray(numbers)
    picture.putpalette(palette.tobytes())
    small = io.BytesIO()
    picture.save(small, format="png", optimize=True)
    return small.getvalue()


def _drawn(fig: Figure, dpi: int) -> np.ndarray:
    """Return the pixels of a figure, (H, W, 3) of uint8, with hard edges.

    ``Figure.savefig`` would lay it out three times, which takes longer than drawing.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas, own_dpi, layout = fig.canvas, fig.dpi, fig.get_layout_engine()
    fig.dpi = dpi
    fig.draw_without_rendering()  # lays out, and makes all ticks
    fig.set_layout_engine("none")
    edges: list[Any] = fig.findobj(lambda one: hasattr(one, "set_antialiased"))
    # a collection has a value for each of its parts
    before = [artist.get_antialiased() for artist in edges]
    for artist in edges:
        artist.set_antialiased(False)

    drawn = FigureCanvasAgg(fig)
    drawn.draw()
    pixels = np.asarray(drawn.buffer_rgba())[..., :3].copy()

    for artist, own in zip(edges, before, strict=True):
        artist.set_antialiased(own)
    fig.set_layout_engine(layout)
    fig.dpi = own_dpi
    fig.set_canvas(canvas)
    return pixels


def few_colors(pixels: np.ndarray, n_colors: int) -> tuple[np.ndarray, np.ndarray]:
    """Replace each colour of a picture by the nearest of a few of its own.

    The first is the most frequent one. The next is always the one that lacks a near
    colour most: by its squared distance to the colours chosen so far, times the square
    root of its number of pixels, so that a small word keeps its colour.

    Parameters
    ----------
    pixels : array (H, W, 3) of uint8
    n_colors : int
        At most 256.

    Returns
    -------
    numbers : array (H, W) of uint8
        The colour of each pixel.
    palette : array (n, 3) of uint8

    Examples
    --------
    >>> import numpy as np
    >>> pixels = np.full((2, 2, 3), 255, np.uint8)
    >>> pixels[0, 0] = 0
    >>> few_colors(pixels, 64)[0].tolist()
    [[1, 0], [0, 0]]
    """
    red, green, blue = np.moveaxis(pixels.astype(np.uint32), -1, 0)
    codes = red << 16 | green << 8 | blue
    _, first, inverse, counts = np.unique(
        codes, return_index=True, return_inverse=True, return_counts=True
    )
    colors = pixels.reshape(-1, 3)[first].astype(np.int64)
    nearest = np.zeros(len(colors), np.uint8)
    distance = np.full(len(colors), np.inf)
    chosen = [counts.argmax()]
    while True:
        apart = ((colors - colors[chosen[-1]]) ** 2).sum(axis=1)
        nearest[apart < distance] = len(chosen) - 1
        distance = np.minimum(distance, apart)
        if len(chosen) == min(n_colors, len(colors)):
            break
        chosen.append((distance * np.sqrt(counts)).argmax())
    numbers = nearest[inverse].reshape(pixels.shape[:2])
    return numbers, colors[chosen].astype(np.uint8)
