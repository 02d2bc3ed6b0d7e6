"""A function of a few lines is judged as what it is, in each framework.

Its gradients are those of the framework's autodiff, where it has one.
"""

from importlib import import_module

import numpy as np
import pytest

from attncheck.case import Case
from attncheck.judging import Judge
from attncheck.subject import Subject
from attncheck.suite import cases, operation_cases
from attncheck.verdict import Run, Verdict, judge
from attncheck.worker import run_case

CASES = {case.id: case for case in cases(dtypes=("F32",))}
JUDGE = Judge()


def attention_of(xp, power=-0.5):
    """Attention over arrays of the module `xp`, with d to a power as default scale."""

    def attention(q, k, v, *, mask=True, bias=0.0, scale=None):
        b, n, i, d = q.shape
        _, h, j, e = v.shape
        mask = xp.ones((b, n, i, j), dtype=bool) & mask
        seen = mask.reshape(b, h, n // h * i, j).any(axis=2)[..., None]
        k, v = xp.where(seen, k, 0.0), xp.where(seen, v, 0.0)
        q = xp.where(mask.any(axis=3)[..., None], q, 0.0).reshape(b, h, n // h, i, d)
        logits = xp.einsum("bhgid,bhjd->bhgij", q, k).reshape(b, n, i, j)
        logits = logits * (d**power if scale is None else scale)
        logits = xp.where(mask, logits + bias, -xp.inf)
        blocked = logits == -xp.inf
        empty = blocked.all(axis=3)[..., None]
        # One number more, so that there is a largest also where there are no keys.
        lowest = xp.full((b, n, i, 1), -xp.inf, dtype=q.dtype)
        top = xp.amax(xp.concatenate((logits, lowest), axis=3), axis=3)[..., None]
        top = xp.where(empty, 0.0, top)
        exps = xp.where(blocked, 0.0, xp.exp(xp.where(blocked, 0.0, logits - top)))
        total = xp.where(empty, 1.0, exps.sum(axis=3)[..., None])
        weights = (exps / total).reshape(b, h, n // h, i, j)
        output = xp.einsum("bhgij,bhje->bhgie", weights, v).reshape(b, n, i, e)
        lse = xp.where(empty, -xp.inf, top + xp.log(total))
        return xp.where(empty, 0.0, output), lse[..., 0]

    return attention


@pytest.fixture
def subject(room):
    """Makes a subject of a function that it makes of the framework's arrays."""
    module = import_module({"jax": "jax.numpy"}.get(room.name, room.name))

    def make(**options) -> Subject:
        return Subject(
            call=attention_of(module, **options),
            framework=room.name,
            name="a few lines",
            accepts=frozenset(("mask", "bias", "scale")),
            returns=("output", "lse"),
        )

    return make


def judged(subject: Subject, case: Case) -> Verdict:
    with np.errstate(all="ignore"):  # NaN and infinity are what some cases are about
        result = run_case(subject, case, {})
    bounds = JUDGE.budget(case, subject.profile).bounds
    return judge(case, JUDGE.expected(case), bounds, result)


def test_a_function_that_keeps_the_spec_conforms(room, subject):
    right = subject()
    run = Run({}, [judged(right, case) for case in CASES.values()])
    good = ("pass", "not applicable")
    assert {v.case.id: v for v in run.verdicts if v.status not in good} == {}
    assert run.conforms
    found = {f.name for v in run.verdicts for f in v.findings if f.status == "pass"}
    gradients = set() if room.framework.vjp is None else {"dq", "dk", "dv", "dbias"}
    assert found == {"output", "lse"} | gradients


def test_a_wrong_default_scale_is_found_in_the_output(subject):
    wrong = subject(power=-1)
    found = judged(wrong, CASES["plain/F32"])
    assert found.status == "fail"
    assert found.first_failure.name == "output"
    assert found.step is None
    assert judged(wrong, CASES["scale-given/F32"]).status == "pass"


def test_an_operation_that_returns_the_output_alone_has_gradients_without_an_lse(room):
    """Where the log-sum-exp has an incoming gradient, theirs cannot be asked for."""
    variants = import_module(f"attnref.{room.name}.variants")

    def alone(q, k, v, **options):
        return variants.rotary_attention(q, k, v, **options)[0]

    subject = Subject(
        call=None,
        framework=room.name,
        name="mine",
        accepts=frozenset(),
        operations={"rotary_attention": alone},
    )
    by_id = {case.id: case for case in operation_cases(dtypes=("F32",))}
    gradients = set() if room.framework.vjp is None else {"dq", "dk", "dv"}
    for name, given in (("interleaved", gradients), ("halves", set())):
        found = judged(subject, by_id[f"rotary-{name}/F32"])
        statuses = {f.name: f.status for f in found.findings}
        assert found.status == "pass"
        assert {n for n, s in statuses.items() if s == "pass"} == {"output"} | given
