"""Reference pages: what a room offers, its options in plain words, and examples.

``{room} fltnb.data`` lists and documents all public names of a module, ``{api}`` one
name, and ``{names}`` says where the package's names are. Docstrings are numpydoc's, and
an object whose options are annotated gets a table of them.
"""

import importlib
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

NO_DEFAULT = inspect.Parameter.empty
# bases of scikit-learn, whose members are not told
FOREIGN = ("BaseEstimator", "ClusterMixin", "_MetadataRequester")
LONGEST = 60  # characters of a constant's value


def public_names(module: types.ModuleType) -> list[str]:
    """Return the public names of a module: ``__all__``, or what is defined in it."""
    names = getattr(module, "__all__", None)
    if names is not None:
        return list(names)
    found = []
    for name, value in vars(module).items():
        own = getattr(value, "__module__", None) == module.__name__
        if own and not name.startswith("_"):
            found.append(name)
    return found


# ---- options -----------------------------------------------------------------


def words(kind: Any) -> str:
    """Say in words what an annotation allows, or nothing where it is no option's.

    Examples
    --------
    >>> words(bool), words(Literal["min", "max"] | None)
    ('true or false', '"min" or "max", or None')
    """
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        kinds = [one for one in get_args(kind) if one is not type(None)]
        said = words(kinds[0]) if len(kinds) == 1 else ""
        may_be_none = len(kinds) < len(get_args(kind))
        return f"{said}, or None" if said and may_be_none else said
    if origin is Annotated:
        rules = [rule for rule in kind.__metadata__ if hasattr(rule, "whole")]
        return bounds(rules[0]) if rules else ""
    if origin is Literal:
        return " or ".join(f'"{one}"' for one in get_args(kind))
    return "true or false" if kind is bool else ""


def bounds(rule: Any) -> str:
    """Say what numbers a rule of ``fltnb.settings`` allows."""
    kind = "whole number" if rule.whole else "number"
    said = []
    if rule.low != float("-inf"):
        said.append(f"{'>' if rule.above else '≥'} {rule.low:g}")
    if rule.high != float("inf"):
        said.append(f"{'<' if rule.below else '≤'} {rule.high:g}")
    return f"{kind} {' and '.join(said)}".strip()


def option_rows(thing: Callable) -> Iterator[tuple[str, str, str]]:
    """Give the annotated options of a class or function: name, allowed, default."""
    try:
        parameters = inspect.signature(thing, eval_str=True).parameters
    except (TypeError, ValueError, NameError):
        return
    for name, one in parameters.items():
        said = words(one.annotation)
        if said:
            default = "needed" if one.default is NO_DEFAULT else repr(one.default)
            yield name, said, default


def option_table(thing: Callable) -> list[str]:
    """Return the lines of a table of a class's or function's options, or none."""
    rows = list(option_rows(thing))
    if not rows:
        return []
    lines = ["", ".. rubric:: Options", "", ".. list-table::", "   :class: options"]
    lines += ["   :header-rows: 1", ""]
    for name, said, default in [("option", "may be", "default"), *rows]:
        heading = name == "option"
        lines += [f"   * - {name if heading else f'``{name}``'}", f"     - {said}"]
        plain = heading or default == "needed"
        lines.append(f"     - {default if plain else f'``{default}``'}")
    return [*lines, ""]


# ---- what autodoc is told ----------------------------------------------------


def add_options(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Append the table of options, after numpydoc has written the rest."""
    if what in ("class", "function"):
        lines += option_table(thing)


def plain_signature(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, said: str, back: str
) -> tuple[str, str] | None:
    """Return the parameters and defaults of a class, without annotations."""
    if what != "class":
        return None
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return None
    bare = [one.replace(annotation=NO_DEFAULT) for one in signature.parameters.values()]
    text = str(inspect.Signature(bare))
    return re.sub(r"<[^>]*>", "...", text), ""


# ---- directives --------------------------------------------------------------


def first_sentence(thing: Any) -> str:
    """Return the first line of an object's docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def constants_told(package: str) -> dict[str, str]:
    """Return what stands below the constants in a room's files: name -> docstring."""
    told: dict[str, str] = {}
    for module in sorted(sys.modules):
        if module == package or module.startswith(f"{package}."):
            found = ModuleAnalyzer.for_module(module).find_attr_docs()
            for (_, name), lines in found.items():
                told.setdefault(name, " ".join(lines).strip())
    return told


def shown(value: Any) -> str:
    """Return a constant's value, or the names in it, on one short line."""
    if isinstance(value, dict):
        value = tuple(value)
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST].rpartition(',')[0]}, ..."


def kind_of(thing: Any) -> str:
    """Return what autodoc calls an object: class, function or data."""
    if inspect.isclass(thing):
        return "class"
    is_function = callable(thing) and hasattr(thing, "__qualname__")
    return "function" if is_function else "data"


def documented(path: str, thing: Any, inherited: bool = False) -> list[str]:
    """Return the lines that document a class, with its members, or a function."""
    kind = kind_of(thing)
    lines = [f".. auto{kind}:: {path}"]
    if kind == "class":
        lines.append("   :members:")
        # classes that a method names, whose alias tells a reader nothing
        lines.append("   :exclude-members: state_type, default, kind")
    if inherited:
        lines.append(f"   :inherited-members: {', '.join(FOREIGN)}")
    return [*lines, ""]


class Documents(SphinxDirective):
    """A directive whose text is reStructuredText, as docstrings are."""

    required_arguments = 1

    def parsed(self, lines: list[str]) -> list[nodes.Node]:
        """Return what the lines mean."""
        fence = "`" * 7
        text = "\n".join([f"{fence}{{eval-rst}}", *lines, fence])
        return self.parse_text_to_nodes(text)

    def found(self, path: str) -> Any:
        """Return the object of a full name."""
        module, _, name = path.rpartition(".")
        thing = getattr(importlib.import_module(module), name, None)
        if thing is None:
            place = f"{self.env.docname}, line {self.lineno}"
            raise ExtensionError(f"{place}: there is no {path}.")
        return thing


class Room(Documents):
    """List and document the public names of a module.

    Those of the option ``elsewhere``, names or registers of names, are only listed.
    """

    option_spec: ClassVar = {"elsewhere": str.split}

    def run(self) -> list[nodes.Node]:
        """Write a table of names, then each of them, constants last."""
        path = self.arguments[0]
        module = importlib.import_module(path)
        names = [name for name in public_names(module) if name != "__version__"]
        things = {name: getattr(module, name) for name in names}
        kinds = {
            name: kind_of(thing)
            for name, thing in things.items()
            if not inspect.ismodule(thing)
        }
        listed = [name for name, kind in kinds.items() if kind != "data"]
        elsewhere = self._elsewhere(module)

        lines = [f".. py:module:: {path}", "", f".. py:currentmodule:: {path}", ""]
        if listed:
            lines += [".. list-table::", "   :class: names", ""]
        for name in listed:
            role = "class" if kinds[name] == "class" else "func"
            lines.append(f"   * - :py:{role}:`{name}`")
            lines.append(f"     - {first_sentence(things[name])}")
        lines.append("")
        for name in listed:
            if name not in elsewhere:
                lines += documented(f"{path}.{name}", things[name])

        told = constants_told(path)
        for name in (name for name, kind in kinds.items() if kind == "data"):
            lines += [f".. py:data:: {name}", f"   :value: {shown(things[name])}", ""]
            lines += [f"   {told.get(name, '')}", ""]
        return self.parsed(lines)

    def _elsewhere(self, module: types.ModuleType) -> set[str]:
        names: set[str] = set()
        for name in self.options.get("elsewhere", ()):
            register = getattr(module, name)
            if isinstance(register, dict):
                names |= {one.__name__ for one in register.values()}
            else:
                names.add(name)
        return names


class Names(Documents):
    """List the names of the package, each with a link to where it is documented."""

    def run(self) -> list[nodes.Node]:
        """Write rooms, then the names that stand in them."""
        package = importlib.import_module(self.arguments[0])
        path = package.__name__
        lines = [".. list-table::", "   :class: names", ""]
        for name in package.__all__:
            if name == "__version__":
                continue
            thing = getattr(package, name)
            target = f"{path}.{name}"
            role = "mod"
            if not inspect.ismodule(thing):
                role = "class" if inspect.isclass(thing) else "func"
                # a class has its defining module's name as well, a function has not
                home = f"{path}.{package._HOME.get(name, '')}"
                module = thing.__module__ if role == "class" else home
                target = f"{module}.{thing.__qualname__}"
            lines.append(f"   * - :py:{role}:`fl.{name} <{target}>`")
            lines.append(f"     - {first_sentence(thing)}")
        return self.parsed(lines)


class Thing(Documents):
    """Document one name, wherever it stands, with what it inherits if asked to."""

    option_spec: ClassVar = {"inherited": directives.flag}

    def run(self) -> list[nodes.Node]:
        """Write it with its public members."""
        path = self.arguments[0]
        inherited = "inherited" in self.options
        return self.parsed(documented(path, self.found(path), inherited))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect all of it."""
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("numpydoc")
    app.add_directive("room", Room)
    app.add_directive("names", Names)
    app.add_directive("api", Thing)
    app.connect("autodoc-process-signature", plain_signature)
    app.connect("autodoc-process-docstring", add_options, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
