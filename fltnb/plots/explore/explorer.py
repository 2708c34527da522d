"""A picture that follows controls: drawn here, shown in a widget or as a still."""

import base64
import functools
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import anywidget
import ipywidgets as widgets
import numpy as np
import traitlets
from IPython import display
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from ...errors import FltnbError, choose
from ..style import MEASURES, label

HINT = (
    "Move the controls, click a client. "
    "A still picture comes alive when its cell is run in JupyterLab."
)
NAMES = {
    "rule": "rule for the number of clusters",
    "n_clusters": "clusters (C)",
    "k": "centroids per client (k)",
    "y": "measure",
}
"""Names of controls that say more than their own."""


class Control(NamedTuple):
    """A menu or a slider.

    Attributes
    ----------
    value : Any
        Where it stands at first.
    allowed : list or tuple
        Values of a menu, or (lowest, highest) of a slider.
    """

    value: Any
    allowed: list | tuple


class Picture(anywidget.AnyWidget):
    """A PNG in the browser that says which client was clicked.

    Attributes
    ----------
    png : bytes
    spots : bytes
        Float32 (n, 5): client, left, top, right, bottom, the latter as shares of the
        picture's width and height.
    client : int
        Which one was clicked, -1 before any.
    """

    _esm = Path(__file__).with_name("picture.js").read_text(encoding="utf-8")
    png = traitlets.Bytes().tag(sync=True)
    spots = traitlets.Bytes().tag(sync=True)
    client = traitlets.Int(-1).tag(sync=True)


class Explorer:
    """A picture that follows controls; what :func:`fltnb.explore` returns.

    Parameters
    ----------
    controls : mapping
        Name -> control, in the order in which they are shown.
    size : (float, float)
        Of the picture, inches.

    Attributes
    ----------
    at, allowed : dict
        Where the controls stand, and what each allows.
    png, text : bytes, str
        The picture now, and what it shows in a line.
    widget : ipywidgets.VBox or None
        What a live notebook shows.

    Examples
    --------
    >>> import numpy as np
    >>> from fltnb.plots.explore import explore
    >>> places = np.array([0.0, 1.0, 9.0, 10.0])  # of four clients, on a line
    >>> distance = np.abs(np.subtract.outer(places, places))
    >>> explorer = explore({"distance": distance}, threshold=2.0, live=False)
    >>> explorer.move(threshold=0.5).at["threshold"]
    0.5
    """

    widget = None
    table = ""
    text = ""
    spots = np.empty((0, 5), dtype=np.float32)

    def __init__(self, controls: Mapping[str, Control], size: tuple[float, float]):
        self.at = {}
        self.allowed = {}
        for name, control in controls.items():
            self.at[name] = control.value
            self.allowed[name] = control.allowed
        self.canvas = FigureCanvasAgg(Figure(size, dpi=100))

    def move(self, **to: Any) -> Self:
        """Set controls, draw what depends on them, and return the explorer itself.

        Parameters
        ----------
        **to
            Name of a control -> value; nothing draws everything.

        Raises
        ------
        FltnbError
            There is no such control, or it does not allow the value. The controls are
            then where they were.
        """
        for name, value in to.items():
            self._check(name, value)
        before = self.at
        self.at = self.at | to
        try:
            self._draw(set(to or self.at))
        except FltnbError:  # for instance, more centroids than a client has samples
            self.at = before
            raise

        self.canvas.draw()
        pixels = np.asarray(self.canvas.buffer_rgba())
        self._drawn = Image.fromarray(pixels[..., :3])
        self.png = _written(self._drawn, compress_level=3)
        return self

    def _check(self, name: str, value: Any) -> None:
        """Refuse a control that is not there, and a value that it does not allow."""
        choose(name, self.at, "control")
        allowed = self.allowed[name]
        if isinstance(allowed, list):
            values = value if name == "methods" else [value]
            for one in values:
                choose(one, allowed, name)
            return
        lowest, highest = allowed
        if not lowest <= value <= highest:
            raise FltnbError(
                f"{name} goes from {lowest} to {highest:.4g}, "
                f"but {value} was asked for."
            )

    def _draw(self, moved: set[str]) -> None:
        """Draw what depends on the controls ``moved``."""
        raise NotImplementedError

    def _ipython_display_(self) -> None:
        """Show the widget, if any, and a still picture for where it does not live."""
        data = {}
        if self.widget is not None:
            data = self.widget._repr_mimebundle_()
        # 64 colours: longer to write, but the notebook stays small
        still = _written(self._drawn.quantize(64), optimize=True)
        data["image/png"] = base64.b64encode(still).decode()
        data["text/plain"] = self.text
        display.display(data, raw=True)
        said = f"*{HINT}*" if self.widget else f"{self.text} *{HINT}*"
        display.display(display.Markdown(said))

    def animate(self) -> None:
        """Make the controls, with the picture in a widget."""
        self._view = Picture()
        self._said = widgets.HTML()
        self._under = widgets.HTML()
        self._controls = {}
        for name in self.allowed:
            control = self._control(name)
            control.observe(functools.partial(self._moved, name), "value")
            self._controls[name] = control
        clicked = functools.partial(self._moved, "client")
        self._view.observe(clicked, "client")

        wrapped = widgets.Layout(flex_flow="row wrap")
        row = widgets.Box(list(self._controls.values()), layout=wrapped)
        self.widget = widgets.VBox([row, self._said, self._view, self._under])
        self._push()

    def _control(self, name: str) -> widgets.Widget:
        """Make the menu or slider of a control, without its value.

        Sliders follow while they are moved, unless there is much to draw.
        """
        allowed = self.allowed[name]
        look: dict[str, Any] = {
            "description": NAMES.get(name, label(name)),
            "style": {"description_width": "initial"},
        }
        if name == "methods":
            return widgets.SelectMultiple(**look)
        if isinstance(allowed, list):
            return widgets.Dropdown(**look)

        low, high = allowed
        look["continuous_update"] = len(self.spots) < 5000
        if isinstance(high, float):
            # a round number: the browser rounds to steps
            step = 10.0 ** np.floor(np.log10(high / 50))
            return widgets.FloatSlider(
                max=high, step=step, readout_format=".3g", **look
            )
        return widgets.IntSlider(min=low, max=high, **look)

    def _moved(self, name: str, change: Any) -> None:
        """Follow a control, or a click.

        What cannot be, such as more centroids than a client has samples, is said below
        the controls.
        """
        if self._busy:
            return  # the explorer itself moved that control
        try:
            self.move(**{name: change.new})
        except FltnbError as error:
            self._said.value = str(error)
        else:
            self._push()

    def _push(self) -> None:
        """Send to the browser what changed: controls, picture, sentences."""
        self._busy = True
        for name, control in self._controls.items():
            allowed = self.allowed[name]
            if isinstance(allowed, list):
                options = [(_shown(value), value) for value in allowed]
                # a menu that gets options loses its value
                if list(control.options) != options:
                    control.options = options
            control.value = self.at[name]

        with self._view.hold_sync():
            self._view.spots = self.spots.tobytes()
            self._view.png = self.png
            self._view.client = self.at.get("client", -1)
        self._said.value = self.text
        self._under.value = self.table
        self._busy = False


def _shown(value: Any) -> str:
    """Return what people read for a value in a menu."""
    return MEASURES.get(value) or label(value) or "default"


def _written(picture: Image.Image, **how: Any) -> bytes:
    """Return a picture as the bytes of a PNG."""
    file = io.BytesIO()
    picture.save(file, "png", **how)
    return file.getvalue()
