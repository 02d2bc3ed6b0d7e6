"""A small case as a few lines of Python; they run without the judge, but for its own
subjects."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill

import numpy as np

from attncheck.case import ALL_GRADIENTS, BROADCAST, FORWARD, MULTI_HEAD_PARAMS, Case
from attncheck.operations import OPERATIONS
from attncheck.shrink import Minimal
from attncheck.subject import options
from attncheck.target import BUILT_IN

LARGEST = 150
"""Numbers of a case that a reader may be shown."""

LONG = 72
"""The most columns of a row of numbers."""

IMPORTS = {
    "numpy": "import numpy as np",
    "torch": "import torch",
    "jax": "import jax\nimport jax.numpy as jnp",
}

LOAD = ["from attncheck.target import load"]
"""What finds a built-in subject, whose calls are translated."""

ARRAY = {"numpy": "np.array", "torch": "torch.tensor", "jax": "jnp.array"}

TYPE = {
    "numpy": {"F64": "np.float64", "F32": "np.float32", "F16": "np.float16"},
    "torch": {"F64": "torch.float64", "F32": "torch.float32", "F16": "torch.float16"},
    "jax": {"F64": "jnp.float64", "F32": "jnp.float32", "F16": "jnp.float16"},
}
TYPE["numpy"]["BF16"] = "ml_dtypes.bfloat16"
TYPE["torch"]["BF16"] = "torch.bfloat16"
TYPE["jax"]["BF16"] = "jnp.bfloat16"


def snippet(
    minimal: Minimal, framework: str, *, plain: bool, words: Mapping[str, str] = {}
) -> str:
    """Python that calls the subject as the judge does, and prints both results.

    Args:
        framework: of its arrays.
        plain: it is a function; else a `Subject`.
        words: option of attention → what its call calls it, where that is not its name.
    """
    case, name, target = minimal.case, minimal.finding.name, minimal.target
    lines = [*_imports(case, target, framework), ""]
    lines += _arrays(case, framework)
    called = _name(target)
    lines += ["", *_call(case, name, framework, called, plain=plain, words=words)]
    lines += [f"expected = {literal(_nearest(minimal.want, minimal.got))}"]
    lines += ["print('got     ', got)", "print('expected', expected)"]
    return "\n".join(lines) + "\n"


def built_in_snippet(case: Case, target: str, framework: str, name: str) -> str:
    """Python that calls a built-in subject for a case, and prints one of its results.

    Nothing where the case has more than `LARGEST` numbers.
    """
    if sum(array.size for array in case.inputs.values()) > LARGEST:
        return ""
    if name in FORWARD:  # which the incoming gradients have no part in
        kept = {n: x for n, x in case.inputs.items() if n not in ("d_out", "d_lse")}
        case = replace(case, inputs=kept, strides={})
    lines = [*IMPORTS[framework].split("\n"), *_settings(case, framework), ""]
    lines += [*LOAD, "", *_arrays(case, framework)]
    lines += [f"subject = load({target!r})"]
    lines += [*_call(case, name, framework, "subject", plain=False), "print(got)"]
    return "\n".join(lines) + "\n"


def literal(array: np.ndarray) -> str:
    """Nested lists of the shortest decimal numbers that give the array again."""
    return fill(_nested(array), LONG, subsequent_indent=" " * 4)


def _nested(array: np.ndarray) -> str:
    if array.ndim == 0:
        return _number(array)
    return f"[{', '.join(map(_nested, array))}]"


def _number(x: np.ndarray) -> str:
    if x.dtype == bool:
        return str(bool(x))
    if not np.isfinite(x.astype(np.float64)):
        return (
            str(float(x)).replace("nan", 'float("nan")').replace("inf", 'float("inf")')
        )
    # ml-dtypes' numbers print as many digits as they have.
    return repr(x.item()) if x.dtype == np.float64 else str(x)


def _nearest(want: np.ndarray, got: np.ndarray) -> np.ndarray:
    """What is expected, in the type of the result."""
    with np.errstate(all="ignore"):
        return want.astype(got.dtype)


def _name(target: str) -> str:
    return "subject" if target in BUILT_IN else target.rpartition(":")[2]


def _imports(case: Case, target: str, framework: str) -> Iterator[str]:
    yield from IMPORTS[framework].split("\n")
    yield from _settings(case, framework)
    yield ""
    if target in BUILT_IN:
        yield from (*LOAD, "", f"subject = load({target!r})")
        return
    place, _, name = target.rpartition(":")
    module = Path(place).stem if place.endswith(".py") else place
    yield f"from {module} import {name}"


def _settings(case: Case, framework: str) -> Iterator[str]:
    if framework == "numpy" and case.dtype == "BF16":
        yield "import ml_dtypes"
    if framework == "jax" and case.dtype == "F64":
        yield 'jax.config.update("jax_enable_x64", True)'


def _arrays(case: Case, framework: str) -> Iterator[str]:
    make = ARRAY[framework]
    for name, array in case.inputs.items():
        dtype = "" if array.dtype == bool else f", dtype={_type(array, framework)}"
        yield f"{name} = {make}({literal(array)}{dtype})"


def _type(array: np.ndarray, framework: str) -> str:
    names = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
    return TYPE[framework][names[array.dtype.name]]


def _call(
    case: Case,
    name: str,
    framework: str,
    target: str,
    *,
    plain: bool,
    words: Mapping[str, str] = {},
) -> Iterator[str]:
    """The lines after which `got` is the result."""
    function = target if plain else f"{target}.call"
    given = ", ".join(["q", "k", "v", *_keywords(case, words)])
    if case.op == "multi_head_attention":
        has = [f"{p}={p}" for p in MULTI_HEAD_PARAMS if p in case.inputs]
        missing = [f"{p}=None" for p in MULTI_HEAD_PARAMS if p not in case.inputs]
        yield f"params = dict({', '.join(has + missing)})"
        context = "context" if "context" in case.inputs else "None"
        arguments = ", ".join(["params", "x", context, *_keywords(case)])
        yield f"got = {target}.multi_head({arguments})"
    elif case.op in OPERATIONS:
        yield from _operation(case, name, framework, target)
    elif name in FORWARD:
        yield f"got = {function}({given})"
        if not plain:
            yield f"got = dict(zip({target}.returns, got))[{name!r}]"
    else:
        call = f"{function}({given})"
        yield from _gradient(case, name, framework, target, call, plain=plain)


def _operation(case: Case, name: str, framework: str, target: str) -> Iterator[str]:
    """The lines for another operation, whose arrays are all given by name."""
    arrays = [n for n in case.inputs if n not in ("d_out", "d_lse", *BROADCAST)]
    words = ", ".join([*(f"{n}={n}" for n in arrays), *_keywords(case)])
    if name[1:] in case.inputs and framework == "numpy":
        lse = ", d_lse=d_lse" if "d_lse" in case.inputs else ""
        yield f"grad = {target}.operation_grads[{case.op!r}]"
        yield f"got = grad(d_out, {words}{lse})[{name[1:]!r}]"
        return
    yield f"operation = {target}.operations[{case.op!r}]"
    if name in FORWARD:
        place = tuple(OPERATIONS[case.op].returns).index(name)
        yield f"got = operation({words})"
        yield f"got = got[{place}] if isinstance(got, tuple) else got"
        return
    wanted = [n[1:] for n in ALL_GRADIENTS if n[1:] in case.inputs]
    yield f"def call({', '.join(wanted)}):"
    yield f"    got = operation({words})"
    if "d_lse" in case.inputs:
        yield "    return got"
    else:
        yield "    return got[0] if isinstance(got, tuple) else got"
    yield from _autodiff(case, wanted, wanted.index(name[1:]), framework)


def _gradient(
    case: Case, name: str, framework: str, target: str, call: str, *, plain: bool
) -> Iterator[str]:
    """The lines that give a gradient: the subject's own in NumPy, else autodiff."""
    wanted = [n for n in ("q", "k", "v", "bias") if n in case.inputs]
    place = wanted.index(name[1:])
    if framework == "numpy":
        lse = ["d_lse=d_lse"] if "d_lse" in case.inputs else []
        words = ", ".join(["d_out", "q", "k", "v", *lse, *_keywords(case)])
        yield f"got = {target}.grad({words})[{place}]"
        return
    yield f"def call({', '.join(wanted)}):"
    yield f"    out = {call}"
    if plain:
        yield "    return out"
    elif "d_lse" in case.inputs:
        yield f"    out = dict(zip({target}.returns, out))"
        yield "    return out['output'], out['lse']"
    else:
        yield f"    return dict(zip({target}.returns, out))['output']"
    yield from _autodiff(case, wanted, place, framework)


def _autodiff(
    case: Case, wanted: Sequence[str], place: int, framework: str
) -> Iterator[str]:
    """The lines that give one of the gradients of `call`."""
    yield ""
    given, cotangent = ", ".join(wanted), "d_out"
    if "d_lse" in case.inputs:
        cotangent = "(d_out, d_lse)"
    if framework == "jax":
        yield f"_, pullback = jax.vjp(call, {given})"
        yield f"got = pullback({cotangent})[{place}]"
        return
    yield f"for x in ({given},):"
    yield "    x.requires_grad_()"
    yield f"got = torch.autograd.grad(call({given}), ({given},), {cotangent})[{place}]"


def _keywords(case: Case, words: Mapping[str, str] = {}) -> Sequence[str]:
    """`allowed=mask`, `scale=0.5`: the options, by what the call calls them."""
    return [
        f"{words.get(name, name)}="
        + (name if isinstance(value, np.ndarray) else repr(value))
        for name, value in options(case).items()
    ]
