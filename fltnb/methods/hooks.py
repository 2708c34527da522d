"""What a method's functions take and return: mistakes in a method of one's own.

Each is named by the function that made it, not by where it would be noticed. The
checks look at types and shapes only, so they cost microseconds in a round.
"""

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import as_array
from ..errors import FltnbError
from .state import State

if TYPE_CHECKING:
    from .base import Method

PACKAGE = __name__.partition(".")[0]


def check_parameters(method: "Method") -> None:
    """Refuse a function that takes other arguments than the one that it replaces."""
    for kind in type(method).__mro__:
        if kind.__module__.partition(".")[0] in (PACKAGE, "builtins"):
            continue
        for name, function in vars(kind).items():
            if inspect.isfunction(function) and not name.startswith("_"):
                _check_parameters(kind, name, function)


def _check_parameters(kind: type, name: str, function: Any) -> None:
    """Compare a function of a class with the first one of this name in its bases."""
    first = next(one for one in reversed(kind.__mro__) if name in vars(one))
    replaced = vars(first)[name]
    if not inspect.isfunction(replaced):
        return
    wanted = list(inspect.signature(replaced).parameters)
    try:
        inspect.signature(function).bind(*wanted)
    except TypeError as error:
        raise FltnbError(
            f"{name} of {kind.__name__} is called with other arguments than it takes: "
            f"write {name}({', '.join(wanted)})."
        ) from error


def state_from(method: "Method", hook: str, state: Any, n_clients: int) -> State:
    """Return the state that a function of a method returned, or refuse it."""
    who = f"{hook} of {type(method).__name__}"
    if not isinstance(state, State):
        form = "replace(state, models=...)"
        if hook == "start":
            form = "State(models=..., row=..., weights=...)"
        raise FltnbError(
            f"{who} must return the state, an fl.methods.State such as {form}, not "
            f"{told(state)}: check its `return`."
        )
    made = type(state).__name__
    if type(state) is not method.state_type:  # a checkpoint could not be read again
        raise FltnbError(
            f"{who} returned a {made}, but the class says that its state is a "
            f"{method.state_type.__name__}: write `state_type = {made}` in the class."
        )
    models = state.models
    if not isinstance(models, np.ndarray) or models.ndim != 2:
        raise FltnbError(
            f"{who} returned a state whose models is {told(models)}: it must be an "
            "array (K, P), and theta[None] makes one of a single model."
        )
    _check_clients(who, "row", state.row, "iu", n_clients)
    _check_clients(who, "weights", state.weights, "iuf", n_clients)
    return state


MADE = {
    "row": "integers, the model of each client: np.zeros(fed.n_clients, dtype=np.int64)"
    " gives all of them models[0]",
    "weights": "numbers, the training samples of each client: fed.sizes has them",
}


def _check_clients(who: str, name: str, values: Any, kinds: str, n: int) -> None:
    """Refuse an array of a state that has no entry of some ``kinds`` per client."""
    fits = isinstance(values, np.ndarray) and values.shape == (n,)
    if not fits or values.dtype.kind not in kinds:
        raise FltnbError(
            f"{who} returned a state whose {name} is {told(values)}: it must be an "
            f"array of {n} {MADE[name]}."
        )


def models_from(
    method: "Method", hook: str, answer: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return models (K, P) and rows (n,) of ``dispatch`` or ``serve``, or refuse."""
    who = f"{hook} of {type(method).__name__}"
    form = "state.models, state.row" + ("[clients]" if hook == "dispatch" else "")
    theta, rows = _two(who, "models (K, P) and rows (n,)", form, answer)
    theta, rows = as_array(theta, f"The models of {who}"), np.asarray(rows)
    if theta.ndim != 2 or theta.dtype.kind not in "fiu":
        raise FltnbError(
            f"{who} must return models (K, P) first, such as state.models, not "
            f"{told(theta)}."
        )
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise FltnbError(
            f"{who} must return one integer for each client second, the row of its "
            f"model, not {told(rows)}: such as np.arange(len(theta))."
        )
    return theta, rows


def trained_from(method: "Method", answer: Any, n_clients: int) -> tuple[State, Any]:
    """Return the state and the trained models of ``train``, or refuse them."""
    from ..training.contract import Trained

    who = f"train of {type(method).__name__}"
    form = "state, engine.train(theta, rows, clients, round)"
    state, trained = _two(who, "a state and an fl.training.Trained", form, answer)
    if not isinstance(trained, Trained):
        raise FltnbError(
            f"{who} must return an fl.training.Trained second, as engine.train gives "
            f"it, not {told(trained)}."
        )
    return state_from(method, "train", state, n_clients), trained


def tested_from(method: "Method", answer: Any) -> Any:
    """Return the result of ``evaluate``, or refuse it."""
    from ..training.evaluation import Evaluation

    if not isinstance(answer, Evaluation):
        raise FltnbError(
            f"evaluate of {type(method).__name__} must return an "
            f"fl.training.Evaluation, as engine.evaluate gives it, not {told(answer)}."
        )
    return answer


def scalars_from(method: "Method", hook: str, answer: Any) -> tuple[int, int]:
    """Return the two numbers of ``traffic`` or ``setup_bytes``, or refuse them."""
    who = f"{hook} of {type(method).__name__}"
    first, second = _two(who, "two whole numbers", "0, 0", answer)
    return first, second


def options_from(method: "Method", answer: Any) -> dict[str, Any]:
    """Return the options of ``local_training``, or refuse them."""
    if not isinstance(answer, dict):
        raise FltnbError(
            f"local_training of {type(method).__name__} must return a dict of options "
            f'such as {{"proximal": 0.1}}, not {told(answer)}.'
        )
    return answer


def _two(who: str, what: str, form: str, answer: Any) -> tuple[Any, Any]:
    """Return both parts of an answer, or refuse another number of them."""
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise FltnbError(
            f"{who} must return {what}, such as ({form}), not {told(answer)}: check "
            "its `return`."
        )
    return answer[0], answer[1]


def told(value: Any) -> str:
    """Return what a value is, in a few words.

    Examples
    --------
    >>> told(None), told({}), told(np.zeros((2, 3)))
    ('None', 'a dict', 'an array (2, 3) of float64')
    """
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array {value.shape} of {value.dtype}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
