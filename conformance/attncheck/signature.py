"""The parameters of a function, as far as they can be known without calling it."""

import ast
import inspect
import re
from collections.abc import Callable, Sequence

_KEYWORDS = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


def read_parameters(function: Callable) -> Sequence[inspect.Parameter] | None:
    """The parameters of a function; None where neither its signature can be read nor
    its docstring begins with one, as those of built-in functions do.
    """
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        name, text = getattr(function, "__name__", ""), function.__doc__ or ""
    head = re.match(rf"\s*{re.escape(name)}(\([^()]*\)) *->", text)
    try:
        return _parsed(head.group(1)) if head else None
    except SyntaxError:
        return None


def takes(function: Callable, name: str) -> bool:
    """Whether a keyword of this name can be given; so it is where nothing is known."""
    parameters = read_parameters(function)
    if parameters is None or any(p.kind is p.VAR_KEYWORD for p in parameters):
        return True
    return any(p.name == name and p.kind in _KEYWORDS for p in parameters)


def _parsed(head: str) -> list[inspect.Parameter]:
    """The parameters of `(q, k, *, scale=None)`."""
    (definition,) = ast.parse(f"def f{head}: pass").body
    assert isinstance(definition, ast.FunctionDef)
    given = definition.args
    places = [*given.posonlyargs, *given.args]
    bare = len(places) - len(given.defaults)
    defaults = [n >= bare for n in range(len(places))]
    defaults += [value is not None for value in given.kw_defaults]
    empty = inspect.Parameter.empty
    return [
        inspect.Parameter(
            one.arg,
            inspect.Parameter.POSITIONAL_OR_KEYWORD
            if one in places
            else inspect.Parameter.KEYWORD_ONLY,
            default=None if default else empty,
        )
        for one, default in zip([*places, *given.kwonlyargs], defaults, strict=True)
    ]
