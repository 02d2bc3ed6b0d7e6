"""A subject: an implementation under judgement, and what it declares of itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attncheck import frameworks
from attncheck.case import REQUIRED, RESULTS, Case
from attncheck.operations import OPERATIONS
from attncheck.signature import takes
from attncheck.suggest import no_such
from attnref.spec import SPEC, Conventions

if TYPE_CHECKING:
    from attncheck.library import Library

KEYWORDS = ("mask", "bias", "scale", "softcap", "dropout_rate", "dropout_keep")
"""The options of `attention` that a subject may accept."""

DEFAULT_PROFILE = "tensor-core"


class SubjectError(ValueError):
    """What cannot be judged, and why: one sentence for its author."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An implementation: how to call it, and what it says it can do.

    A plain function `f(q, k, v, *, mask=…, …)` needs none of this: its keywords say
    what it accepts.
    """

    call: Callable
    """`call(q, k, v, **options)` → the arrays named in `returns`."""
    framework: str
    """The framework of its arrays: a module of `attncheck.frameworks`."""
    name: str
    accepts: frozenset[str]
    """Which of `KEYWORDS` it takes."""
    returns: tuple[str, ...] = ("output",)
    """Names of what `call` returns, in order; a tuple is never guessed."""
    grad: Callable | None = None
    """`grad(d_out, q, k, v, *, d_lse=None, **options)` → dq, dk, dv, dbias, each None
    where it has no such.  Without it, gradients come from the framework's autodiff."""
    differentiable: bool = True
    """Whether the framework's autodiff is asked, where there is no `grad`."""
    keywords: Mapping[str, str] = field(default_factory=dict)
    """Part of a call, a key of `attncheck.calling.PARTS` → the keyword of `call` for
    it, where it is another one."""
    ignored: tuple[str, ...] = ()
    """Parameters of `call` that nothing is ever given to."""
    multi_head: Callable | None = None
    """`multi_head(params, x, context=None, **options)` → output `b i c`, where params
    is a dict of `w_q` … `b_o`."""
    operations: Mapping[str, Callable] = field(default_factory=dict)
    """A key of `attncheck.operations.OPERATIONS` → `call(**inputs, **options)` → its
    output and log-sum-exp, or the output alone.  Inputs are q, k, v and its own; all
    else is options, and its keywords say which of them it accepts."""
    operation_grads: Mapping[str, Callable] = field(default_factory=dict)
    """Likewise → `grad(d_out, **inputs, d_lse=None, **options)` → a dict of the
    gradients by the names of the inputs; without it they come from autodiff."""
    conventions: Conventions = SPEC
    profile: str = DEFAULT_PROFILE
    """The precision profile that it claims: a key of `attncheck.budget.PROFILES`."""
    library: "Library | None" = None
    """The library's own function that `call` translates, and what it declares."""

    def __post_init__(self) -> None:
        if self.framework not in frameworks.NAMES:
            raise SubjectError(no_such("framework", self.framework, frameworks.NAMES))
        _check_names("accepts", self.accepts, KEYWORDS)
        _check_names("returns", self.returns, RESULTS)
        for name in ("operations", "operation_grads"):
            _check_names(name, getattr(self, name), tuple(OPERATIONS))

    def describe(self) -> dict[str, Any]:
        """What a result says about who made it.

        Raises:
            SubjectError: its framework is not installed.
        """
        if self.framework not in frameworks.installed():
            how = frameworks.how_to_install(self.framework)
            raise SubjectError(f"{self.name!r} needs {self.framework}: {how}")
        return {
            "name": self.name,
            "framework": self.framework,
            "version": self.version,
            "profile": self.profile,
            "accepts": {name: self.keyword(name) for name in sorted(self.accepts)},
            "ignored": list(self.ignored),
            "conventions": {
                name: here for name, (here, _) in self.conventions.differences().items()
            },
        }

    @property
    def version(self) -> str:
        """Of the library and of its framework, with the device."""
        described = frameworks.adapter(self.framework).describe()
        if self.library is None or described.startswith(self.library.version):
            return described
        return f"{self.library.version} on {described}"

    def keyword(self, option: str) -> str:
        """What `call` calls one of `KEYWORDS`."""
        return self.keywords.get(option, option)

    def options(self, case: Case) -> dict[str, Any]:
        """The keyword arguments of its call for the case."""
        if self.library and case.op not in OPERATIONS:
            return self.library.options(case)
        return options(case)


def lacking(subject: Subject, case: Case) -> str | None:
    """Why the case is not applicable to the subject, or None where it is."""
    if case.op == "multi_head_attention" and subject.multi_head is None:
        return "has no multi-head attention"
    if case.op in OPERATIONS:
        title, call = OPERATIONS[case.op].title, subject.operations.get(case.op)
        if call is None:
            return f"has no {title}"
        if missing := [x for x in _optional(case) if not takes(call, x)]:
            return f"its {title} takes no {_quoted(missing)}"
    if case.compiled and (why := frameworks.adapter(subject.framework).no_compiler()):
        return why
    if case.op == "attention":
        missing = [name for name in options(case) if name not in subject.accepts]
        if missing:
            return f"takes no {_quoted(missing)}"
        if subject.library is not None:
            return subject.library.lacking(case)
    return None


def _optional(case: Case) -> list[str]:
    """What an operation is given that is no array which every call of it has."""
    given = dict.fromkeys([*case.inputs, *options(case)])
    return [x for x in given if x not in (*REQUIRED[case.op], "d_out", "d_lse")]


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def options(case: Case) -> dict[str, Any]:
    """The keyword arguments of the case's call; a default scale is not passed."""
    arrays = {
        name: case.inputs[name]
        for name in ("mask", "bias", "dropout_keep")
        if name in case.inputs
    }
    numbers = {
        "scale": case.scale,
        "softcap": case.softcap,
        "dropout_rate": case.dropout_rate or None,
    }
    given = {k: value for k, value in numbers.items() if value is not None}
    return arrays | given | dict(case.settings)


def _check_names(field: str, names: Any, known: tuple[str, ...]) -> None:
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise SubjectError(
            f"`{field}` is made of {', '.join(known)}, not {', '.join(unknown)}"
        )
