"""The one exception for bad input: its text is a sentence a user can act on."""


class FltnbError(ValueError):
    """Something the user can mend: the message says what is wrong and how to mend it."""


def choose(value: str, allowed, what: str) -> str:
    """Return ``value`` if it is one of ``allowed``, else raise with the list of what is.

    Examples
    --------
    >>> choose("mlp", ["mlp", "lenet"], "model")
    'mlp'
    """
    allowed = list(allowed)
    if value not in allowed:
        raise FltnbError(
            f"Unknown {what} {value!r}: choose one of {', '.join(map(str, allowed))}."
        )
    return value
