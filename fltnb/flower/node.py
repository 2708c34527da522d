"""The node's side: it answers the server's query with its sketch and nothing else."""

import logging
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone

from .letters import Letter, client_of, flwr_app, letter_in, packed
from .scaling import is_private, reveals

log = logging.getLogger("flwr")


def sketch_query(clusterer: Any, embed: Callable[[Any], Any]) -> Callable:
    """Return the function with which a ``ClientApp`` answers a query for sketches.

    Register it with ``app.query("sketch")(sketch_query(...))``. The answer holds
    the sketch's arrays, the client's number (the node's ``partition-id``, else Flower's
    node id) and the size of its samples (rows times columns), which is compared with
    the size of the sketch.

    Parameters
    ----------
    clusterer : clusterer of :mod:`fltnb.clustering`
        If it adds noise (``epsilon``, or ``noise`` of ``EigenRelevance``), the draws
        come from a secret seed of the node: anybody who knows the seed can remove the
        noise.
    embed : callable
        Maps Flower's ``Context`` to this node's embeddings (n, d). For a labelled
        clusterer it returns images and classes.

    Examples
    --------
    In a ``ClientApp``, with your own ``embed`` and the server's clusterer::

        app = ClientApp()
        app.query("sketch")(sketch_query(fl.FCR(n_clusters=4), embed))
    """

    def answer(message: Any, context: Any) -> Any:
        asked = letter_in(message)
        number = client_of(context)
        sketch = {}
        notes: dict[str, Any] = {"client": number}
        if number not in asked.notes.get("known", ()):
            own = clusterer
            if is_private(clusterer) or getattr(clusterer, "noise", None):
                own = _with_secret_draws(clusterer, context)
            given = embed(context)
            if not isinstance(given, tuple):
                given = (given,)
            sketch = _sketch(own, given, int(number), asked)
            notes["held"] = int(np.size(given[0]))
            said = "" if is_private(own) else reveals("sketch", sketch, notes["held"])
            if said:
                log.warning("This node's %s", said)

        letter = Letter({}, notes)
        for name, array in sketch.items():
            if not name.startswith("_"):
                letter.arrays[name] = np.asarray(array)
        return flwr_app().Message(packed(letter), reply_to=message)

    return answer


def _sketch(clusterer: Any, given: tuple, number: int, asked: Letter) -> dict:
    """Sketch the samples, or compare them with others' sketches if these were sent.

    Parameters
    ----------
    clusterer : clusterer of :mod:`fltnb.clustering`
    given : tuple of embeddings (n, d), or of images and classes
    number : int
        The client's number, which seeds its draws.
    asked : Letter
        The sketches of all clients and this client's ``place`` among them, or nothing.
    """
    sketch = clusterer.sketch(*given, client=number)
    if not asked.arrays:
        return sketch

    place = asked.notes["place"]
    return clusterer.compare(*given, sketch, asked.arrays, client=number, place=place)


def _with_secret_draws(clusterer: Any, context: Any) -> Any:
    """Return the clusterer with draws from a secret seed of this node.

    Flower keeps the state of a node between messages, so the seed is drawn once.
    """
    if "secret" not in context.state:
        seed = str(secrets.randbits(128))
        context.state["secret"] = flwr_app().ConfigRecord({"seed": seed})
    draws = "secret" if hasattr(clusterer, "secret") else "random_state"
    seed = int(context.state["secret"]["seed"])
    return clone(clusterer).set_params(**{draws: seed})
