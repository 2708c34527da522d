"""The one exception for bad input."""


class FltnbError(ValueError):
    """An error that the user can fix; the message says what is wrong and how to fix it.

    Examples
    --------
    >>> import fltnb as fl
    >>> try:
    ...     fl.models.make("transformer", (1, 8, 8), 10)
    ... except fl.FltnbError as error:
    ...     print(str(error).partition(":")[0])
    Unknown model 'transformer'
    """


def first_line(error: Exception) -> str:
    r"""Return the first line of what an error says, without its final full stop.

    For sentences about code of the user's own, which may fail in any way.

    Examples
    --------
    >>> first_line(ValueError("No such layer.\nLook at its names."))
    'No such layer'
    """
    line, _, _ = str(error).strip().partition("\n")
    return line.rstrip(".")


def choose(value: str, allowed, what: str) -> str:
    """Return ``value`` if it is one of ``allowed``, or say what is allowed.

    Examples
    --------
    >>> choose("mlp", ["mlp", "lenet"], "model")
    'mlp'
    """
    allowed = list(allowed)
    if value not in allowed:
        names = ", ".join(str(one) for one in allowed)
        raise FltnbError(f"Unknown {what} {value!r}: choose one of {names}.")
    return value
