"""The other operations: definition, budget, cases and faults."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from attncheck import certify, floats, pairs
from attncheck.budget import PROFILES, derive, is_void
from attncheck.budget.bounded import Bounds
from attncheck.budget.profile import units
from attncheck.case import DTYPES, check_inputs
from attncheck.clauses import OPERATION_CLAUSES
from attncheck.definition import expected
from attncheck.exchange import CASES, Result, read_cases, write_cases
from attncheck.explain import Evidence, explain
from attncheck.judging import Judge
from attncheck.lines import ExchangeError
from attncheck.operations import OPERATIONS
from attncheck.report.snippet import snippet
from attncheck.shrink import Minimal, shrink
from attncheck.subject import Subject, SubjectError, lacking
from attncheck.subjects.attnref import room_subject
from attncheck.suite import by_clause, operation_cases
from attncheck.variants import BY_NAME, OPERATION_VARIANTS, Variant, backward
from attncheck.variants.model import Model
from attncheck.verdict import Finding, Run, judge
from attncheck.worker import run_case
from attnref.numpy.variants import cosine, latent, relative, rotary, sinks

JUDGE, STRICT = Judge(), PROFILES["strict"]
SMOKE = operation_cases("smoke")
F32 = [case for case in SMOKE if case.dtype == "F32"]
BY_ID = {case.id: case for case in SMOKE}
MODEL = Variant("model", "It is right.", Model)
ROTARY = BY_ID["rotary-partial/F32"]


def verdict(variant, case, profile="strict", *, stores=False):
    result = Result(case.id, "done", arrays=variant.run(case, stores=stores))
    bounds = JUDGE.budget(case, profile).bounds
    return judge(case, JUDGE.expected(case), bounds, result)


# ------------------------------------------------------------------------- the cases


def test_every_operation_has_cases_in_every_type():
    assert {case.op for case in SMOKE} == set(OPERATIONS)
    for name in OPERATIONS:
        assert {c.dtype for c in SMOKE if c.op == name} == set(DTYPES)


@pytest.mark.parametrize("clause", OPERATION_CLAUSES, ids=lambda clause: clause.name)
def test_every_clause_has_a_case(clause):
    found = by_clause(SMOKE).get(clause.name, [])
    assert {case.dtype for case in found} == set(DTYPES)


def test_cases_are_calls_that_say_something():
    for case in operation_cases("full"):
        check_inputs(case)
        if case.dtype == "F32" and "@seed" not in case.id:
            want = JUDGE.expected(case)
            bounds = JUDGE.budget(case, "strict").bounds
            assert is_void(case, want, bounds) is None, case.id
            assert bounds.keys() >= set(case.wants), case.id


def test_every_case_says_its_own_mistake():
    whys = {case.why for case in operation_cases("full")}
    recipes = {case.id.split("/")[0].split("@")[0] for case in operation_cases("full")}
    assert len(whys) == len(recipes)


# -------------------------------------------------------------------- the definition


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_definition_is_what_the_model_computes(dtype):
    """Which shares no code with it."""
    is_half = DTYPES[dtype].itemsize == 2
    profile = "tensor-core" if is_half else "strict"
    for case in (c for c in SMOKE if c.dtype == dtype):
        assert verdict(MODEL, case, profile, stores=is_half).status == "pass", case.id


STEP = 1e-6


def moved(case, name, direction, by):
    array = case.inputs[name] + by * direction
    return replace(case, inputs={**case.inputs, name: array})


def objective(case):
    """What the gradients are those of, by the model."""
    found = MODEL.results(case)
    total = (found["output"] * case.inputs["d_out"]).sum()
    if "d_lse" in case.inputs:
        lse = np.where(np.isfinite(found["lse"]), found["lse"], 0)
        total = total + (lse * case.inputs["d_lse"]).sum()
    return total


@pytest.mark.parametrize(
    "case", [c for c in SMOKE if c.dtype == "F64"], ids=lambda case: case.id
)
def test_a_gradient_is_the_slope_of_what_the_model_computes(case):
    want, rng = expected(case), np.random.default_rng(0)
    for name in (n for n in case.wants if n not in ("output", "lse")):
        direction = rng.standard_normal(case.inputs[name[1:]].shape)
        if name == "dk" and "cosine-short" in case.id:
            # Where the length is 0, or eps, there is a corner.
            direction[~(np.abs(case.inputs["k"]).max(axis=-1) > 0)] = 0
        ahead, behind = (
            objective(moved(case, name[1:], direction, by)) for by in (STEP, -STEP)
        )
        slope = (ahead - behind) / (2 * STEP)
        size = np.abs(getattr(want, name) * direction).sum() + 1
        along = (getattr(want, name) * direction).sum()
        assert abs(along - slope) < 1e-7 * size, name


@pytest.mark.parametrize("dtype", ["F64", "F32"])
def test_every_case_is_certified(dtype):
    for case in (c for c in SMOKE if c.dtype == dtype):
        proofs = certify.certify(case)
        assert set(proofs) == set(case.wants)
        assert all(proof.holds for proof in proofs.values()), case.id


# ------------------------------------------------------------------------ the budget


@pytest.mark.parametrize(
    "case", [c for c in SMOKE if c.op == "latent_attention"], ids=lambda case: case.id
)
def test_longer_sums_of_gradients_are_no_room_for_the_output(case):
    inputs = {name: x for name, x in case.inputs.items() if name != "d_out"}
    forward = replace(case, inputs=inputs, wants=("output", "lse"))
    profile = PROFILES["strict"]
    alone = derive(forward, expected(forward), profile).bounds
    beside = derive(case, expected(case), profile).bounds
    for name in ("output", "lse"):
        np.testing.assert_array_equal(beside[name], alone[name])


def test_what_no_query_sees_has_no_room():
    case = BY_ID["rotary-blocked-key-nan/F32"]
    bounds = JUDGE.budget(case, "strict").bounds
    seen = case.inputs["mask"].any(axis=(0, 1, 2))
    assert not seen.all()
    assert (bounds["dk"][:, :, ~seen] == 0).all()
    assert (bounds["dk"][:, :, seen] > 0).all()


def test_a_row_without_keys_has_no_room():
    case = BY_ID["rotary-empty-rows/F32"]
    bounds, want = JUDGE.budget(case, "strict").bounds, JUDGE.expected(case)
    empty = want.lse == -np.inf
    assert empty.any()
    for name in ("output", "dq"):
        assert (bounds[name][empty] == 0).all()


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_coarser_profile_leaves_more_room(name):
    case = next(c for c in SMOKE if c.op == name and c.dtype == "BF16")
    want = JUDGE.expected(case)
    strict, eager = (
        derive(case, want, PROFILES[p]).bounds for p in ("strict", "eager")
    )
    for result in strict:
        assert (strict[result] <= eager[result]).all(), result
        assert strict[result].max() < eager[result].max(), result


def chain(numbers, x, y):
    """Every operation that a reduction may be made of."""
    x, y = numbers.number(x), numbers.number(y)
    product = x @ y.swapaxes(-1, -2)
    bent = numbers.tanh(product) + numbers.exp(-abs(product) * 0.5)
    turned = numbers.cos(bent * 3.0) * numbers.sin(product) - bent
    root = numbers.sqrt(numbers.number(1.0) + turned * turned)
    return numbers.log(root + 1.0) / (root + abs(turned))


def test_float32_stays_in_the_bounds_that_numbers_carry():
    class Float32:
        exp, log, tanh, cos, sin = np.exp, np.log, np.tanh, np.cos, np.sin
        sqrt = np.sqrt

        def number(self, value):
            return np.asarray(value, np.float32)

    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal((40, 30)).astype(np.float32) for _ in "xy")
    found = chain(Bounds(units(ROTARY, STRICT)), x, y)
    error = np.abs(chain(Float32(), x, y) - found.value)
    assert (error <= found.error).all()
    assert (found.error < 3e-4).all()


def test_an_inverse_in_float32_stays_in_the_bound_that_it_carries():
    rng, numbers = np.random.default_rng(2), Bounds(units(ROTARY, STRICT))
    exact = numbers.exp(numbers.number(rng.standard_normal((50, 4, 4))))
    found = numbers.inverse(exact)
    off = exact.error * rng.uniform(-1, 1, exact.value.shape)
    near = np.linalg.pinv((exact.value + off).astype(np.float32))
    said = np.isfinite(found.error)
    assert said.mean() > 0.9
    assert (np.abs(near - found.value) <= found.error)[said].all()
    ones = numbers.inverse(numbers.number(np.ones((2, 2))))
    assert (ones.error == np.inf).all()


def test_an_inverse_in_pairs_has_twice_the_digits():
    x = pairs.number(np.random.default_rng(3).standard_normal((20, 4, 4)))
    rest = pairs.nearest(x @ pairs.inverse(x) - np.eye(4))
    rough = x.hi @ np.linalg.inv(x.hi) - np.eye(4)
    assert np.abs(rest).max() < 1e-25 < 1e-17 < np.abs(rough).max()


def test_what_holds_nan_has_no_inverse_in_any_arithmetic():
    x = np.array([np.eye(2), [[1.0, np.nan], [0.0, 1.0]]])
    for numbers in (floats, pairs, certify.Balls(), Bounds(units(ROTARY, STRICT))):
        found = numbers.nearest(numbers.inverse(numbers.number(x)))
        assert (found[0] == np.eye(2)).all()
        assert np.isnan(found[1]).all()


def test_a_matrix_of_balls_that_may_be_singular_has_no_inverse():
    balls = certify.Balls()
    found = balls.inverse(balls.number(np.array([[1.0, 1.0], [1.0, 1.0]])))
    assert np.isnan(balls.nearest(found)).all()


def test_a_zero_for_certain_has_no_error():
    numbers = Bounds(units(ROTARY, PROFILES["eager"]))
    zero, one = numbers.number(np.zeros((3, 3))), numbers.number(np.ones((3, 3)))
    for found in (zero * one, zero + zero, zero @ one, numbers.sin(zero)):
        assert (found.error == 0).all()


# ------------------------------------------------------------------------ the faults


def seen(compute, case):
    """What is known of a case that was run."""
    got, want = compute(case), JUDGE.expected(case)
    bounds = JUDGE.budget(case, "strict").bounds
    made = judge(case, want, bounds, Result(case.id, "done", arrays=got))
    return Evidence(made, got, want, bounds)


def diagnosis_of(op, compute):
    """What explains the failures of an operation in float32, some there must be."""
    found = [seen(compute, case) for case in F32 if case.op == op]
    assert any(one.verdict.status == "fail" for one in found)
    (diagnosis,) = explain(found)
    return diagnosis


SAME = {
    "cosine-scaled": ("scale-ignored", "scale-and-default"),
    "additive-scaled": ("scale-ignored", "scale-and-default"),
    "latent-scale-of-content": ("scale-ignored", "scale-and-default"),
    "latent-from-queries": ("context-ignored",),
    "linformer-blocked-combined": (
        *("mask-ignored", "mask-on-queries-only"),
        *("mask-added", "mask-after-softmax"),
    ),
}
"""Fault → faults of attention that are the same in this operation."""


@pytest.mark.parametrize("variant", OPERATION_VARIANTS, ids=lambda v: v.name)
def test_a_fault_is_killed_and_named(variant):
    """And is told from all others."""
    diagnosis = diagnosis_of(variant.model.op, variant.run)
    (cause,) = diagnosis.causes
    named = {cause.variant.name, *(v.name for v in cause.alike)}
    assert named == {variant.name, *SAME.get(variant.name, ())}


GRADIENT_FAULTS = [
    v for v in OPERATION_VARIANTS if v.model.__module__ == backward.__name__
]


@pytest.mark.parametrize("variant", GRADIENT_FAULTS, ids=lambda v: v.name)
def test_a_fault_of_gradients_leaves_forward_results_as_they_are(variant):
    for case in (case for case in F32 if case.op == variant.model.op):
        right, wrong = MODEL.run(case), variant.run(case)
        for name in OPERATIONS[case.op].returns:
            assert np.array_equal(right[name], wrong[name], equal_nan=True)


@pytest.mark.parametrize("name", sorted({v.model.op for v in GRADIENT_FAULTS}))
def test_a_mistake_in_the_gradients_of_attention_is_named_in_an_operation_too(name):
    diagnosis = diagnosis_of(name, BY_NAME["delta-omitted"].run)
    assert diagnosis.names == ("delta-omitted",)


def turned_forward(monkeypatch):
    """The room's gradients, turned twice the way that queries and keys are."""
    right = rotary.rotary_attention_vjp

    def vjp(d_out, q, k, v, *, offset=0, d_lse=None, **given):
        found = right(d_out, q, k, v, offset=offset, d_lse=d_lse, **given)
        turn = {n: given[n] for n in ("base", "width", "pairing") if n in given}
        at_q = np.arange(q.shape[2]) + np.array(offset).reshape(-1, 1)
        at_k = np.arange(k.shape[2])
        for name, at in (("q", at_q), ("k", at_k)):
            for _ in range(2):
                found[name] = rotary.rotate(found[name], at, **turn)
        return found

    monkeypatch.setattr(rotary, "rotary_attention_vjp", vjp)


def unprojected(monkeypatch):
    def through(gradient, x, eps):
        return gradient / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), eps)

    monkeypatch.setattr(cosine, "_unit_vjp", through)


def of_first_batch(monkeypatch):
    right = relative._sum_rows

    def sum_rows(gradient, rows, r):
        return right(gradient[:1], rows[:1], r)

    monkeypatch.setattr(relative, "_sum_rows", sum_rows)


def negated(monkeypatch):
    right = sinks.sink_attention_vjp

    def vjp(*args, **given):
        found = right(*args, **given)
        return found | {"sinks": -found["sinks"]}

    monkeypatch.setattr(sinks, "sink_attention_vjp", vjp)


ROOM = {
    "rotary-gradient-turned-forward": (rotary, turned_forward),
    "cosine-gradient-unprojected": (cosine, unprojected),
    "shaw-table-gradient-of-first-batch": (relative, of_first_batch),
    "sink-gradient-negated": (sinks, negated),
}
"""Name of a fault → where the NumPy room has what it is a mistake in, and what makes
the mistake there."""


@pytest.mark.parametrize("name", ROOM)
def test_a_mistake_in_a_rooms_gradients_is_named(name, monkeypatch):
    module, breaks = ROOM[name]
    op = BY_NAME[name].model.op
    breaks(monkeypatch)
    mine = subject(
        operations={op: getattr(module, op)},
        operation_grads={op: getattr(module, f"{op}_vjp")},
    )
    diagnosis = diagnosis_of(op, lambda case: run_case(mine, case, {}).arrays)
    assert diagnosis.names == (name,)


def test_a_mistake_in_the_gradients_of_latent_attention_is_named(monkeypatch):
    right = latent._project_vjp

    def vjp(gradient, x, w):
        d_x, d_w = right(gradient, x, w)
        is_of_values = w.shape[-1] == BY_ID["latent/F32"].sizes["e"]
        return np.zeros_like(d_x) if is_of_values else d_x, d_w

    monkeypatch.setattr(latent, "_project_vjp", vjp)
    mine = room_subject("numpy")
    found = diagnosis_of("latent_attention", lambda x: run_case(mine, x, {}).arrays)
    assert found.names == ("latent-gradient-of-values-lost",)


@pytest.mark.parametrize("variant", OPERATION_VARIANTS, ids=lambda v: v.name)
def test_a_fault_is_killed_in_16_bits(variant):
    cases = [c for c in SMOKE if c.op == variant.model.op and c.dtype == "BF16"]
    some = (verdict(variant, c, "tensor-core", stores=True).status for c in cases)
    assert "fail" in some


def test_mistakes_about_pairs_are_none_where_no_query_meets_every_key():
    case = BY_ID["linformer/F32"]
    right, wrong = MODEL.results(case), BY_NAME["softmax-unshifted"].results(case)
    assert all((right[name] == wrong[name]).all() for name in right)
    tiled = BY_NAME["heads-tiled"].results(case)
    assert (tiled["output"] != right["output"]).any()


# ------------------------------------------------------------------ small cases of it


SUBJECT = """
import numpy as np
from attncheck.subject import Subject

def rotary(q, k, v, **options):
    return np.zeros((*q.shape[:3], v.shape[-1]), q.dtype), np.zeros(q.shape[:3])

def gradients(d_out, **given):
    return {name: np.zeros_like(given[name]) for name in ("q", "k", "v")}

subject = Subject(
    call=None, framework="numpy", name="mine", accepts=frozenset(),
    operations={"rotary_attention": rotary},
    operation_grads={"rotary_attention": gradients},
)
"""


ALONE = SUBJECT.replace(", np.zeros(q.shape[:3])", "")


@pytest.mark.parametrize(
    ("source", "name"), [(SUBJECT, "output"), (ALONE, "output"), (SUBJECT, "dk")]
)
def test_a_small_case_is_shown_as_lines_that_run(tmp_path, source, name):
    variant = BY_NAME["rotary-other-way"]

    def known(some):
        found = {}
        for case in some:
            got = variant.run(case)
            if name != "output":  # wrong there alone
                got = MODEL.run(case) | {"dk": np.zeros_like(case.inputs["k"])}
            want, bounds = JUDGE.expected(case), JUDGE.budget(case, "strict").bounds
            made = judge(case, want, bounds, Result(case.id, "done", arrays=got))
            found[case.id] = Evidence(made, got, want, bounds)
        return found

    chosen = [c for c in F32 if c.op == "rotary_attention"]
    run = Run({}, [one.verdict for one in known(chosen).values()])
    found = shrink(run, known, "mine.py:subject")
    assert found is not None
    assert found.finding.name == name
    assert found.case.op == "rotary_attention"
    assert found.scores <= 4
    (tmp_path / "mine.py").write_text(source, "utf-8")
    (tmp_path / "shown.py").write_text(snippet(found, "numpy", plain=False), "utf-8")
    ended = subprocess.run(
        [sys.executable, "shown.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    got, expected_line = ended.stdout.split("expected")
    assert not any(digit in got for digit in "123456789")
    assert any(digit in expected_line for digit in "123456789")


def test_a_small_case_is_a_call_still():
    """Lengths of which landmarks make whole segments, and no others."""
    variant, asked = BY_NAME["nystrom-inverse-missing"], []

    def known(some):
        asked.extend(some)
        return {case.id: seen(variant.run, case) for case in some}

    chosen = [c for c in F32 if c.op == "nystrom_attention"]
    verdicts = [seen(variant.run, case).verdict for case in chosen]
    found = shrink(Run({}, verdicts), known, "mine")
    assert found is not None
    assert {case.sizes["i"] % 3 for case in asked} == {0}
    assert found.scores < min(c.sizes["n"] * c.sizes["i"] for c in chosen)


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("name", ["lse", "dk"])
def test_lines_for_other_frameworks_are_python(framework, name):
    case = BY_ID["t5-causal/F32"]
    want = getattr(JUDGE.expected(case), name)
    finding = Finding(name, "fail")
    minimal = Minimal(case, case.id, finding, want, want, "mine.py:subject")
    text = snippet(minimal, framework, plain=False)
    compile(text, "shown.py", "exec")
    assert "operations['t5_attention']" in text
    assert "max_distance=6" in text


# ----------------------------------------------------------------- files and subjects


def test_a_case_comes_back_from_its_file(tmp_path):
    chosen = [next(c for c in F32 if c.op == name) for name in OPERATIONS] + [
        BY_ID["rotary-offset-by-batch/BF16"]
    ]
    write_cases(tmp_path, chosen)
    for case, again in zip(chosen, read_cases(tmp_path), strict=True):
        assert (again.op, again.settings) == (case.op, dict(case.settings))
        assert again.sha256 == case.sha256


RECURRENT = {"causal": True, "recurrent": True}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"width": 5}, "even"),
        ({"base": -1}, "above 0"),
        ({"pairing": "thirds"}, "halves"),
        ({"offset": "far"}, "an integer"),
        ({"max_distance": 5}, "takes no `max_distance`"),
    ],
    ids=str,
)
def test_other_options_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        check_inputs(replace(ROTARY, settings=settings))


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("linear", {"settings": {"feature": "elu"}}, "one of elu"),
        ("linear", {"settings": {"offset": 2}}, "needs `causal`"),
        ("linear", {"settings": {"causal": True, "offset": [1, 2]}}, "one integer"),
        ("linear", {"settings": {"recurrent": True}}, "needs `causal`"),
        ("linear-causal", {"settings": RECURRENT}, "needs i = j"),
        ("linear", {"scale": 0.5}, "takes no `scale`"),
        ("performer", {"scale": 0.0}, "must be above 0"),
        ("linear", {"inputs": {"mask": np.full((1, 1, 5, 7), True)}}, "b 1 1 j"),
        ("linformer", {"inputs": {"mask": np.full((1, 6, 1, 7), True)}}, "b 1 1 j"),
        ("nystrom", {"settings": {}}, "is missing"),
        ("nystrom", {"settings": {"landmarks": 0}}, "above 0"),
        ("nystrom", {"settings": {"landmarks": 2}}, "axis i must be a multiple"),
    ],
)
def test_what_is_no_call_of_an_approximation_is_refused(name, changes, words):
    case = BY_ID[f"{name}/F32"]
    inputs = {**case.inputs, **changes.get("inputs", {})}
    with pytest.raises(ValueError, match=words):
        check_inputs(replace(case, **changes | {"inputs": inputs}))


def test_options_that_are_changed_in_a_file_are_seen(tmp_path):
    write_cases(tmp_path, [ROTARY])
    file = tmp_path / CASES
    record = json.loads(file.read_text("utf-8"))
    record["settings"]["width"] = 8
    file.write_text(json.dumps(record) + "\n", "utf-8")
    with pytest.raises(ExchangeError, match="was changed"):
        read_cases(tmp_path)


def subject(**changes):
    given = {"call": lambda q, k, v: q, "framework": "numpy", "name": "mine"}
    return Subject(**given, accepts=frozenset(), profile="strict", **changes)


def test_a_subject_without_the_operation_is_not_asked():
    assert lacking(subject(), ROTARY) == "has no rotary attention"
    some = subject(operations={"rotary_attention": lambda **given: None})
    assert lacking(some, ROTARY) is None


def causal_only(q, k, v, *, causal=False, offset=0):
    return q


@pytest.mark.parametrize(
    ("call", "name", "says"),
    [
        (causal_only, "linear", None),
        (causal_only, "linear-causal", None),
        (causal_only, "linear-recurrent", "its linear attention takes no `recurrent`"),
        (causal_only, "linear-blocked-keys", "its linear attention takes no `mask`"),
        (lambda q, k, v, **given: q, "linear-blocked-keys", None),
        (lambda: None, "linear", None),  # what every call has is no option
    ],
)
def test_the_signature_says_what_an_operation_accepts(call, name, says):
    mine = subject(operations={"linear_attention": call})
    assert lacking(mine, BY_ID[f"{name}/F32"]) == says


def test_an_operation_may_return_the_output_alone():
    mine = subject(
        operations={"rotary_attention": lambda **g: MODEL.run(ROTARY)["output"]}
    )
    result = run_case(mine, ROTARY, {})
    assert (result.status, list(result.arrays)) == ("done", ["output"])
    want, bounds = JUDGE.expected(ROTARY), JUDGE.budget(ROTARY, "strict").bounds
    found = judge(ROTARY, want, bounds, result)
    assert found.status == "pass"
    judged = {f.name: f.status for f in found.findings}
    assert (judged["output"], judged["lse"]) == ("pass", "not judged")


def test_an_operation_that_returns_too_much_is_told_what_to_return():
    mine = subject(operations={"rotary_attention": lambda q, k, v, **g: (q, k, v)})
    assert run_case(mine, ROTARY, {}).message == (
        "TypeError: returned 3 values, but declares output, lse: "
        "return that, or the output alone"
    )


def test_an_operation_that_is_not_known_is_an_error():
    with pytest.raises(SubjectError, match="circular"):
        subject(operations={"circular_attention": print})


def test_an_operation_is_called_with_its_inputs_and_options_by_name():
    seen = {}

    def call(**given):
        seen.update(given)
        found = MODEL.run(ROTARY)
        return found["output"], found["lse"]

    def grad(d_out, **given):
        assert given.keys() - seen.keys() == {"d_lse"}
        want = expected(ROTARY)
        return {x: getattr(want, f"d{x}").astype(np.float32) for x in "qkv"}

    mine = subject(
        operations={"rotary_attention": call},
        operation_grads={"rotary_attention": grad},
    )
    result = run_case(mine, ROTARY, {})
    assert result.status == "done", result.message
    assert seen.keys() == {"q", "k", "v", "width"}
    want, bounds = JUDGE.expected(ROTARY), JUDGE.budget(ROTARY, "strict").bounds
    found = judge(ROTARY, want, bounds, result)
    assert found.status == "pass"
    assert {f.name for f in found.findings} == {"output", "lse", "dq", "dk", "dv"}
