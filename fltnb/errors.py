"""The one exception for bad input, and sentences for what goes wrong."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


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

    names_clients = False  # whether the message has clients' names, not their numbers


class UnstableError(FltnbError):
    """A training inside a method's step diverged: the run ends as one that diverged.

    Examples
    --------
    >>> import fltnb as fl
    >>> class Careless(fl.methods.FedAvg):
    ...     def observe(self, state, clients, round, engine):
    ...         raise UnstableError("The first look at client 0 diverged: halve lr.")
    >>> digits = fl.load("digits")
    >>> fed = fl.federations.label_clusters(
    ...     digits, 6, n_clusters=3, classes_per_cluster=3
    ... )
    >>> try:
    ...     fl.run(Careless(), fed, "mlp32", rounds=2, progress=False)
    ... except fl.rounds.DivergedError as error:
    ...     print(str(error).partition(".")[0])
    Training stopped at round 1 of 2: the first look at client 0 diverged: halve lr
    """


def first_line(error: Exception) -> str:
    r"""Return the first line of an error's message, without its final full stop.

    For sentences about code of the user's own, which may fail in any way.

    Examples
    --------
    >>> first_line(ValueError("No such layer.\nLook at its names."))
    'No such layer'
    """
    line, _, _ = str(error).strip().partition("\n")
    return line.rstrip(".")


def with_names(text: str, names: Sequence[str]) -> str:
    """Return a message with clients' names where it has their numbers.

    Parameters
    ----------
    text : str
        Clusterers and networks know a client by its number alone: "client 1".
    names : sequence of M str
        The clients' names; a number beyond them stays.

    Examples
    --------
    >>> with_names("Client 1 has 2 samples.", ["Linz", "Wels"])
    'Client Wels has 2 samples.'
    """

    def named(found: re.Match) -> str:
        number = int(found["number"])
        if number >= len(names):
            return found[0]
        return f"{found['client']} {names[number]}"

    return re.sub(r"\b(?P<client>[Cc]lient) (?P<number>\d+)\b", named, text)


@contextmanager
def by_name(names: Sequence[str]) -> Iterator[None]:
    """Name clients in errors as the user does; see :func:`with_names`.

    Examples
    --------
    >>> try:
    ...     with by_name(["Linz", "Wels"]):
    ...         raise FltnbError("Client 0 has no samples: leave it out.")
    ... except FltnbError as error:
    ...     print(error)
    Client Linz has no samples: leave it out.
    """
    try:
        yield
    except FltnbError as error:
        # a name may be a number itself, and must not be taken for another client's
        if not error.names_clients:
            error.args = (with_names(str(error), names),)
            error.names_clients = True
        raise


@contextmanager
def lost_processes() -> Iterator[None]:
    """Turn the death of a joblib process into one sentence.

    Processes die without a word if memory runs out, because the system kills one.

    Examples
    --------
    >>> from concurrent.futures.process import BrokenProcessPool
    >>> try:
    ...     with lost_processes():
    ...         raise BrokenProcessPool
    ... except FltnbError as error:
    ...     print(str(error).partition(",")[0])
    A process that computed was killed
    """
    from concurrent.futures.process import BrokenProcessPool  # imports much

    try:
        yield
    except BrokenProcessPool as error:
        raise FltnbError(
            "A process that computed was killed, most likely because memory ran out: "
            "use fewer processes at a time (n_jobs, --jobs). Results that were stored "
            "before are kept."
        ) from error


@contextmanager
def reading(
    what: str | Path, mend: str, unsound: Callable[[Exception], Exception]
) -> Iterator[None]:
    """Turn what goes wrong while a file is read into one sentence.

    An error of the operating system says that the file cannot be read: its content may
    be intact. Any other error means that the content is damaged, because damaged
    archives and pictures raise many types. MemoryError and FltnbError are not changed.

    Parameters
    ----------
    what : str or path
        The file.
    mend : str
        What to do if the operating system cannot read it, the end of a sentence.
    unsound : callable
        Gets the error, returns the exception to raise for a damaged file.

    Examples
    --------
    >>> def unsound(error):
    ...     return FltnbError(f"run.npz is damaged ({error}): delete it.")
    >>> try:
    ...     with reading("run.npz", "fix that", unsound):
    ...         raise ValueError("no archive")
    ... except FltnbError as error:
    ...     print(error)
    run.npz is damaged (no archive): delete it.
    """
    try:
        yield
    except (FltnbError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise FltnbError(
                f"{what} cannot be read ({error.strerror}): {mend}."
            ) from error
        raise unsound(error) from error


def unwritten(of: object, method: str, where: str = "") -> FltnbError:
    """Return the error of a base class that leaves a method to its subclasses.

    Parameters
    ----------
    of : object
        An instance of a subclass that does not have the method.
    method : str
        Its name and parameters.
    where : str
        The page that shows how to write it.

    Examples
    --------
    >>> class Mine:
    ...     pass
    >>> print(unwritten(Mine(), "start(self, fed)"))
    Mine has no start(self, fed): define it.
    """
    shown = f", as {where} shows" if where else ""
    return FltnbError(f"{type(of).__name__} has no {method}: define it{shown}.")


def choose(value: str, allowed, what: str) -> str:
    """Return ``value`` if it is one of ``allowed``, else raise FltnbError listing them.

    ``what``: what the value names, for the message.

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
