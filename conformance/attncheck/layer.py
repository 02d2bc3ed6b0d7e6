"""A whole layer judged in your own tests: projections, attention and merge.

For weights that were carried from one library to another: the layer's output must be
that of the definition, and where it is not, the mistake is named if it is a known one.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from attncheck.budget import budget, is_void, split
from attncheck.budget.profile import Profile
from attncheck.case import DTYPES, Case, check_inputs
from attncheck.definition import expected
from attncheck.explain import Evidence
from attncheck.frameworks import as_numpy
from attncheck.mistakes import named
from attncheck.testing import as_line, as_mask, as_profile
from attncheck.verdict import Verdict, compare
from attnref.spec.checks import check_multi_head


class _Params(NamedTuple):
    """The fields of the rooms' `MultiHeadParams`."""

    w_q: Any
    w_k: Any
    w_v: Any
    w_o: Any
    b_q: Any = None
    b_k: Any = None
    b_v: Any = None
    b_o: Any = None


def assert_multi_head_attention(
    got: Any,
    params: Mapping[str, Any],
    x: Any,
    context: Any = None,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    profile: str | Profile = "tensor-core",
) -> None:
    """Raises AssertionError unless `got` is what such a layer makes of its input.

    Args:
        got: the layer's output to judge, `b i c`, in the dtype of x.
        params: arrays by the names of `MultiHeadParams`, as `attnref.spec.weights.load`
            gives them; None is a bias that there is not.
        x: `b i c`, an array of NumPy, PyTorch or JAX, on any device, as all others.
        context: `b j m`, where keys and values come from; x by default.
        mask: as in `attention` of the rooms, and so are `bias`, `scale` and `softcap`.
        profile: the precision to judge by: a key of `PROFILES`, or a `Profile`.

    The message names the worst element, its error in ulps, the share of the budget that
    it uses and what the budget there is made of; then the mistakes that give just this
    output, if known ones do.

    Raises:
        TypeError, ValueError: arguments that are no call of a layer, or of which
            nothing can be said: scores too large for the accumulator, say.
    """
    options = {"mask": mask, "bias": bias, "scale": scale, "softcap": softcap}
    found = judged(got, params, x, context, **options, profile=profile)
    if found.verdict.status == "fail":
        said = as_line(found.verdict.findings[0])
        lines = ["multi-head attention differs:", said]
        if found.verdict.findings[0].worst is not None:  # of the right shape and type
            lines += named([found])
        raise AssertionError("\n  ".join(lines))


def judged(
    got: Any,
    params: Mapping[str, Any],
    x: Any,
    context: Any = None,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    profile: str | Profile = "tensor-core",
) -> Evidence:
    """The verdict about a layer's output, with what it was compared with.

    The arguments, and what is raised, are those of `assert_multi_head_attention`.
    """
    layer = _Params(**params)
    given = {"x": x, "context": context, "bias": bias, **layer._asdict()}
    case = _case({n: as_numpy(a) for n, a in given.items() if a is not None}, mask)
    case = replace(case, scale=scale, softcap=softcap)
    chosen, want = as_profile(profile), expected(case)
    bounds, output = budget(case, want, chosen), as_numpy(got)
    if reason := is_void(case, want, bounds):
        raise ValueError(f"this call cannot be judged: {reason}")
    finding = compare(case, "output", output, want.output, bounds["output"])
    if finding.status == "fail" and finding.worst is not None:
        place = tuple(finding.worst.index.values())
        finding = replace(finding, split=split(case, want, chosen, "output", place))
    verdict = Verdict(case, finding.status, findings=(finding,))
    return Evidence(verdict, {"output": output}, want, bounds)


def _case(arrays: Mapping[str, np.ndarray], mask: Any) -> Case:
    """The call as a case.

    Raises:
        TypeError, ValueError: it is none.
    """
    layer = _Params(**{n: a for n, a in arrays.items() if n in _Params._fields})
    others = (arrays.get(name) for name in ("context", "bias"))
    sizes = check_multi_head(np.ndarray, layer, arrays["x"], *others)
    inputs = dict(arrays)
    if mask is not None:
        seen, rows = mask if callable(mask) else as_numpy(mask), np.arange(sizes["i"])
        inputs["mask"] = as_mask(seen, sizes, rows)
    dtype = next(name for name, dtype in DTYPES.items() if dtype == inputs["x"].dtype)
    case = Case("layer", (), "", dtype, inputs, wants=("output",))
    check_inputs(case)
    return case
