"""From a target on the command line to the subject that it names."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from attncheck import frameworks
from attncheck.calling import check_has
from attncheck.signature import read_parameters
from attncheck.subject import KEYWORDS, Subject, SubjectError
from attncheck.subjects import LIBRARIES
from attncheck.subjects.attnref import blocked_subject, room_subject
from attncheck.suggest import near

ROOMS = {
    f"attnref.{name}{part}": partial(make, name)
    for part, make in (("", room_subject), (".blocked", blocked_subject))
    for name in frameworks.NAMES
}
BUILT_IN: Mapping[str, Callable[[], Subject]] = {**ROOMS, **LIBRARIES}
"""Name → how to make the subject; making it imports its framework or its library."""

_POSITIONAL = inspect.Parameter.POSITIONAL_ONLY
_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD
_STAR = inspect.Parameter.VAR_POSITIONAL
_STARS = inspect.Parameter.VAR_KEYWORD
_NONE = inspect.Parameter.empty


def load(
    target: str,
    *,
    framework: str | None = None,
    accepts: str | None = None,
    profile: str | None = None,
) -> Subject:
    """The subject that a target names.

    Args:
        target: a built-in name (`attnref.numpy`, `jax:xla`), `package.module:name` or
            `file.py:name`; the name is a function or a `Subject`.
        framework: of a function's arrays, where its module does not say.
        accepts: comma-separated keywords, where a signature cannot be read, or calls
            them otherwise: `mask=attn_mask,scale`.
        profile: the precision profile to judge by, where not the declared one.

    Raises:
        SubjectError: no such module or name, or a function that cannot be called as
            `f(q, k, v, …)`.
    """
    found = find(target)
    if not isinstance(found, Subject):
        found = _from_function(found, target, framework, accepts)
    return found if profile is None else replace(found, profile=profile)


def find(target: str) -> Any:
    """What a target names: a `Subject`, or a function.

    Raises:
        SubjectError: no such module or name, or no function.
    """
    if target in BUILT_IN:
        return _imported(BUILT_IN[target], target)
    module, name = _module_of(target)
    found = _attribute(module, name, target)
    if not isinstance(found, Subject) and not callable(found):
        kind = type(found).__name__
        raise SubjectError(f"{target!r} is no function but of type {kind}")
    return found


def _module_of(target: str) -> tuple[ModuleType, str]:
    """The module and the attribute name of `module:name` or `file.py:name`."""
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise SubjectError(
            f"{target!r} is neither a built-in subject nor `package.module:function` "
            "nor `file.py:function`; `attncheck list` shows the built-in ones"
            f"{near(target, BUILT_IN)}"
        )
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise SubjectError(f"there is no file {place!r}")
        return _imported(lambda: _import_file(Path(place)), place), name
    return _imported(lambda: importlib.import_module(place), place), name


def _imported(load: Callable[[], Any], place: str) -> Any:
    """What `load` imports; whatever it raises becomes one sentence."""
    try:
        return load()
    except Exception as error:
        why = f"{place!r} cannot be imported: {type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError) and error.name in frameworks.NAMES:
            why += f": {frameworks.how_to_install(error.name)}"
        raise SubjectError(why) from error


def _import_file(path: Path) -> ModuleType:
    """The module of a file, which finds its neighbours as `python FILE` would.

    Its name is not the file's: a file may be called `torch.py`.
    """
    name = f"attncheck_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # a .py file always has one
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.append(str(path.parent.resolve()))
    spec.loader.exec_module(module)
    return module


def _attribute(module: ModuleType, name: str, target: str) -> Any:
    if not hasattr(module, name):
        public = sorted(
            n for n, x in vars(module).items() if callable(x) and not n.startswith("_")
        )
        raise SubjectError(
            f"{target.rpartition(':')[0]!r} has no {name!r}; "
            f"it has {', '.join(public) or 'no functions'}"
        )
    return getattr(module, name)


def _from_function(
    call: Any, target: str, framework: str | None, accepts: str | None
) -> Subject:
    if accepts is None:
        words = _read_signature(call, target)
    else:
        words = _declared(accepts, call, target)
    return Subject(
        call=call,
        framework=framework or framework_of(call, target),
        name=target,
        accepts=frozenset(words),
        keywords={option: word for option, word in words.items() if word != option},
        ignored=tuple(
            p.name
            for p in _options(read_parameters(call) or ())
            if p.name not in words.values()
        ),
    )


def _read_signature(call: Callable, target: str) -> dict[str, str]:
    """The keywords a function accepts, provided that it can be called at all."""
    parameters = _parameters(call, target)
    places = _places(parameters)
    if len(places) < 3 and not any(p.kind is _STAR for p in parameters):
        names = ", ".join(p.name for p in places)
        raise SubjectError(
            f"{target!r} cannot be called as f(q, k, v): "
            f"its positional parameters are ({names})"
        )
    others = _options(parameters)
    unknown = [p.name for p in others if p.name not in KEYWORDS and p.default is _NONE]
    if unknown:
        raise SubjectError(
            f"{target!r} needs {', '.join(f'`{name}`' for name in unknown)}, "
            f"which is not among the options {', '.join(KEYWORDS)}"
        )
    return {p.name: p.name for p in others if p.name in KEYWORDS}


def _declared(accepts: str, call: Callable, target: str) -> dict[str, str]:
    """Option → keyword, of `mask=attn_mask,scale`."""
    pairs = (word.partition("=") for word in _words(accepts))
    words = {option.strip(): word.strip() for option, _, word in pairs}
    named = {option: word for option, word in words.items() if word}
    parameters = read_parameters(call)
    if parameters is not None and not any(p.kind is _STARS for p in parameters):
        check_has([p.name for p in _options(parameters)], named.values(), target)
    return {option: word or option for option, word in words.items()}


def _places(parameters: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """The parameters that get q, k and v."""
    return [p for p in parameters if p.kind in (_POSITIONAL, _EITHER)][:3]


def _options(parameters: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """The other parameters that have a name."""
    places = _places(parameters)
    named = [p for p in parameters if p.kind not in (_STAR, _STARS)]
    return [p for p in named if p not in places]


def _parameters(call: Callable, target: str) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):
        raise SubjectError(
            f"the signature of {target!r} cannot be read: "
            "say which keywords it takes, as in --accepts mask,scale"
        ) from None
    if any(p.kind is _STARS for p in parameters):
        raise SubjectError(
            f"{target!r} takes any keyword (**): "
            "say which of them it means, as in --accepts mask,scale"
        )
    return parameters


def framework_of(call: Callable, target: str) -> str:
    """The framework that the target, or else its module, belongs to."""
    place = target.rpartition(":")[0]
    root = place.partition(".")[0]
    if root in frameworks.NAMES and not place.endswith(".py"):
        return root
    module = sys.modules.get(getattr(call, "__module__", ""))
    values = [call, *vars(module).values()] if module else [call]
    found = sorted({_home(value) for value in values} & set(frameworks.NAMES))
    if len(found) != 1:
        raise SubjectError(
            f"the module of {target!r} uses {' and '.join(found) or 'no framework'}: "
            f"say whose arrays it takes, with --framework {'|'.join(frameworks.NAMES)}"
        )
    return found[0]


def _home(value: Any) -> str:
    """The package that a module, a function or a class comes from."""
    name = getattr(
        value, "__name__" if isinstance(value, ModuleType) else "__module__", ""
    )
    return name.partition(".")[0] if isinstance(name, str) else ""


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
