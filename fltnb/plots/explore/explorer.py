"""A picture with controls, drawn here and shown in a widget or as a still picture."""

import base64
import functools
import io
import numbers
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

from ...errors import FltnbError, choose, unwritten
from ..still import still
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
"""Displayed names of controls, if they differ from their ids."""


def many(number: int, what: str) -> str:
    """Format a number and a noun.

    Examples
    --------
    >>> many(1, "client"), many(2, "client")
    ('1 client', '2 clients')
    """
    ending = "" if number == 1 else "s"
    return f"{number} {what}{ending}"


class Control(NamedTuple):
    """A menu or a slider.

    Attributes
    ----------
    value : Any
        Its initial value.
    allowed : list or tuple
        Values of a menu, or (lowest, highest) of a slider.
    """

    value: Any
    allowed: list | tuple


class Picture(anywidget.AnyWidget):
    """A PNG in the browser that reports which client was clicked.

    Attributes
    ----------
    png : bytes
    spots : bytes
        Float32 (n, 5): client, left, top, right, bottom, the latter as shares of the
        picture's width and height.
    client : int
        The clicked client, -1 before the first click.
    """

    _esm = Path(__file__).with_name("picture.js").read_text(encoding="utf-8")
    png = traitlets.Bytes().tag(sync=True)
    spots = traitlets.Bytes().tag(sync=True)
    client = traitlets.Int(-1).tag(sync=True)


class Explorer:
    """A picture with controls, the result of :func:`fltnb.explore`.

    Parameters
    ----------
    controls : mapping
        Name -> control, in the order in which they are shown.
    size : (float, float)
        Size of the picture in inches.

    Attributes
    ----------
    at, allowed : dict
        Values of the controls, and their allowed values.
    png, text : bytes, str
        The present picture, and its description in one line.
    widget : ipywidgets.VBox or None
        The widget of a live notebook.

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
        """Set controls, draw everything that depends on them, and return the explorer.

        Parameters
        ----------
        **to
            Name of a control -> value; without any, everything is drawn.

        Raises
        ------
        FltnbError
            There is no such control, or it does not allow the value. The controls then
            keep their values.
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
        file = io.BytesIO()
        Image.fromarray(pixels[..., :3]).save(file, "png", compress_level=3)
        self.png = file.getvalue()
        return self

    def _check(self, name: str, value: Any) -> None:
        """Refuse an unknown control, and a value that it does not allow."""
        choose(name, self.at, "control")
        allowed = self.allowed[name]
        if isinstance(allowed, list):
            many = name == "methods"
            if many and not isinstance(value, (list, tuple)):
                raise FltnbError(f"{name} must be a list of names, not {value!r}.")
            for one in value if many else [value]:
                choose(one, allowed, name)
            return
        lowest, highest = allowed
        whole = isinstance(highest, int)
        number = isinstance(value, numbers.Integral if whole else numbers.Real)
        if not number or not lowest <= value <= highest:
            steps = " in whole numbers" if whole else ""
            raise FltnbError(
                f"{name} goes from {lowest} to {highest:.4g}{steps}, not to {value!r}: "
                "choose a value in this range."
            )

    def _draw(self, moved: set[str]) -> None:
        """Draw what depends on the controls ``moved``."""
        raise unwritten(self, "_draw(self, moved)")

    def _ipython_display_(self) -> None:
        """Show the widget, if any, and a still picture for places without widgets."""
        data = {}
        if self.widget is not None:
            data = self.widget._repr_mimebundle_()
        figure = self.canvas.figure
        data["image/png"] = base64.b64encode(still(figure)).decode()
        data["text/plain"] = self.text
        width = round(96 * figure.get_figwidth())
        about = {"image/png": {"alt": self.text, "width": width}}
        display.display(data, metadata=about, raw=True)
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

        Sliders update the picture while they are moved, unless there is much to draw.
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

        Errors, such as more centroids than a client has samples, are shown below the
        controls.
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
        """Send all changes to the browser: controls, picture, sentences."""
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
    """Return the displayed name of a value in a menu."""
    return MEASURES.get(value) or label(value) or "default"
