"""From folders to runs: who is judged, by what, and what all cases show together."""

from dataclasses import replace

import numpy as np
import pytest

from attncheck.budget import PROFILES, RMS_LIMIT, budget, derive, nearest, split
from attncheck.case import DTYPES, Case
from attncheck.definition import expected
from attncheck.exchange import (
    MODEL,
    RESULTS,
    ExchangeError,
    Result,
    append_result,
    write_arrays,
    write_cases,
)
from attncheck.judging import Folder, Judge
from attncheck.subject import DEFAULT_PROFILE
from attncheck.suite import cases

CASES = {case.id: case for case in cases(dtypes=("F32", "BF16"))}
PLAIN, HALF = CASES["plain/F32"], CASES["plain/BF16"]
MASKED = CASES["mask-random/F32"]
JUDGE = Judge()


def done(case, name="a", profile="strict", **arrays) -> Result:
    """A result whose output is the definition's, rounded, unless others are given."""
    if not arrays:
        arrays = {"output": expected(case).output.astype(DTYPES[case.dtype])}
    subject = {"name": name, "profile": profile}
    return Result(case.id, "done", arrays=arrays, subject=subject)


def folder(chosen, *results, name="a", profile="strict") -> Folder:
    found = {result.id: result for result in results}
    return Folder(chosen, found, {"name": name, "profile": profile})


@pytest.fixture
def written(tmp_path):
    """Writes a folder of cases and results."""

    def write(chosen, *results):
        write_cases(tmp_path, chosen)
        for result in results:
            append_result(tmp_path, result)
        return tmp_path

    return write


def test_what_a_case_must_give_is_the_definition_and_its_budget():
    want = expected(MASKED)
    for name, profile in PROFILES.items():
        bounds = JUDGE.budget(MASKED, name).bounds
        for result, bound in budget(MASKED, want, profile).items():
            np.testing.assert_array_equal(bounds[result], bound)
    np.testing.assert_array_equal(JUDGE.expected(MASKED).output, want.output)


def test_what_a_case_must_give_is_computed_once():
    assert JUDGE.expected(PLAIN) is JUDGE.expected(replace(PLAIN, id="another name"))
    assert JUDGE.budget(PLAIN, "strict") is JUDGE.budget(PLAIN, "strict")


def test_a_complete_folder_conforms(written):
    run = JUDGE.run(Folder.read(written([PLAIN, MASKED], done(PLAIN), done(MASKED))))
    assert run.conforms
    assert run.subject == {"name": "a", "profile": "strict"}


def test_a_folder_that_was_cut_short_does_not_conform(written):
    chosen = [PLAIN, MASKED, CASES["coincidence/F32"]]
    run = JUDGE.run(Folder.read(written(chosen, done(PLAIN), done(MASKED))))
    assert [v.status for v in run.verdicts] == ["pass", "pass", "not judged"]
    assert not run.conforms


def test_done_without_arrays_does_not_conform(written):
    empty = Result(MASKED.id, "done")
    run = JUDGE.run(Folder.read(written([PLAIN, MASKED], done(PLAIN), empty)))
    assert [v.status for v in run.verdicts] == ["pass", "not judged"]
    assert not run.conforms


def test_results_without_a_case_count_for_nothing(written):
    run = JUDGE.run(Folder.read(written([PLAIN], done(PLAIN), done(MASKED))))
    assert [v.case.id for v in run.verdicts] == [PLAIN.id]


def test_the_declared_profile_decides_unless_another_is_given():
    off = expected(HALF).output * (1 + 2.0**-8)  # one rounding more, half a bfloat16
    result = done(HALF, output=off.astype(DTYPES["BF16"]))
    statuses = {
        name: JUDGE.run(folder([HALF], result, profile=name)).verdicts[0].status
        for name in ("strict", "eager")
    }
    assert statuses == {"strict": "fail", "eager": "pass"}
    strict = JUDGE.run(folder([HALF], result, profile="eager"), "strict")
    assert strict.verdicts[0].status == "fail"
    assert strict.subject["profile"] == "strict"


def test_a_folder_that_does_not_say_whose_it_is_gets_its_own_name(written):
    path = written([PLAIN], Result(PLAIN.id, "refused"))
    read = Folder.read(path)
    assert read.name == path.name
    assert read.profile == DEFAULT_PROFILE


def test_a_lost_case_does_not_hide_the_subjects_declaration(written):
    lost = Result(PLAIN.id, "crash", subject={"name": "a"})
    read = Folder.read(written([PLAIN, MASKED], lost, done(MASKED, profile="eager")))
    assert (read.name, read.profile) == ("a", "eager")


def test_an_unknown_profile_is_an_error_that_names_the_known_ones(written):
    path = written([PLAIN], done(PLAIN, profile="loose"))
    with pytest.raises(
        ExchangeError, match=f"{', '.join(PROFILES)}".replace("+", r"\+")
    ):
        Folder.read(path)


@pytest.mark.parametrize("other", [{"name": "b"}, {"profile": "eager"}], ids=str)
def test_a_result_of_another_subject_than_most_is_not_judged(written, other):
    stray = replace(done(HALF), subject={"name": "a", "profile": "strict"} | other)
    path = written([PLAIN, HALF, MASKED], done(PLAIN), stray, done(MASKED))
    read = Folder.read(path)
    assert (read.name, read.profile) == ("a", "strict")
    run = JUDGE.run(read)
    assert [v.status for v in run.verdicts] == ["pass", "not judged", "pass"]
    (key, value) = *other.keys(), *other.values()
    assert f"its {key} is {value}, that of most is" in run.verdicts[1].message
    assert not run.conforms


def test_what_is_damaged_costs_its_own_case_only(written):
    path = written([PLAIN, MASKED], done(MASKED))
    with (path / RESULTS).open("a") as lines:
        lines.write('{"id": "plain/F32", "status": 5}\nnonsense\n')
    run = JUDGE.run(Folder.read(path))
    assert [v.status for v in run.verdicts] == ["not judged", "pass"]
    assert "results.jsonl:2: 'status' must be one of" in run.verdicts[0].message
    (sentence,) = run.damage
    assert "results.jsonl:3: is no JSON" in sentence


@pytest.mark.parametrize("cases_too", [True, False])
def test_a_folder_without_results_or_cases_is_an_error(tmp_path, cases_too):
    if cases_too:
        write_cases(tmp_path, [PLAIN])
    with pytest.raises(ExchangeError, match="holds no"):
        Folder.read(tmp_path)


def test_an_embedding_is_read_with_its_folder(written):
    path = written([PLAIN], done(PLAIN))
    assert Folder.read(path).embedding is None
    write_arrays(path / MODEL, {"embedding": np.ones((2, 3), np.float32)})
    assert (Folder.read(path).embedding == 1).all()


def test_a_damaged_embedding_agrees_with_nothing_and_is_said(written):
    path = written([PLAIN], done(PLAIN))
    (path / MODEL).write_bytes(b"nonsense")
    read = Folder.read(path)
    assert read.embedding.size == 0
    assert f"{path / MODEL} cannot be read" in read.damage[0]


# ------------------------------------------------------------------- measured


def attention(case, *, rounds_weights=False):
    """Output and log-sum-exp in float64, weights rounded to storage if asked."""
    q, k, v = (case.inputs[name].astype(np.float64) for name in "qkv")
    g = case.sizes["g"]
    k, v = np.repeat(k, g, axis=1), np.repeat(v, g, axis=1)
    s = q @ np.swapaxes(k, -1, -2) * case.scale_value
    s = s + case.inputs.get("bias", np.zeros(1)).astype(np.float64)
    top = s.max(axis=-1, keepdims=True)
    p = np.exp(s - top)
    total = p.sum(axis=-1, keepdims=True)
    if rounds_weights:
        p = nearest(p, DTYPES[case.dtype])
    out = nearest(p @ v / total, DTYPES[case.dtype]).astype(DTYPES[case.dtype])
    lse = (top + np.log(total))[..., 0].astype(case.accumulation)
    return {"output": out, "lse": lse}


def against_the_rounding():
    """A query whose weights round by nearly as much as they can, and values that have
    the signs of these errors: more than rounded operands explain."""
    bias = -np.arange(1, 256) / 128
    weights = np.exp(bias)
    error = nearest(weights, DTYPES["BF16"]) - weights
    far = np.abs(error) > 0.7 * 2.0**-8 * weights
    bias, values = np.append(bias[far], 0), np.append(np.sign(error[far]), 0)
    one = np.zeros((1, 1, 1, 1))
    arrays = {"q": one, "k": np.repeat(one, len(bias), axis=2)}
    arrays |= {"v": values[None, None, :, None], "bias": bias[None, None, None]}
    arrays = {name: array.astype(DTYPES["BF16"]) for name, array in arrays.items()}
    return Case("against", (), "", "BF16", arrays, wants=("output", "lse"))


def test_what_is_measured_is_the_strictest_profile_that_all_cases_pass():
    chosen = [HALF, against_the_rounding(), PLAIN]
    for rounds_weights, profile in {False: "strict", True: "tensor-core"}.items():
        results = [
            done(case, **attention(case, rounds_weights=rounds_weights))
            for case in chosen
        ]
        run = JUDGE.run(folder(chosen, *results))
        assert run.measured == {"BF16": profile, "F32": "strict"}
        assert run.conforms == (profile == "strict")


def test_where_the_declared_profile_is_not_met_no_stricter_one_is_measured():
    """`tf32` allows operands to be rounded, which `tensor-core` does not."""
    keys, off = np.array([8, 7.75]), 2.0**-12
    arrays = {"q": [[8]], "k": keys[:, None], "v": [[1], [-1]]}
    arrays = {name: np.array([[x]], np.float16) for name, x in arrays.items()}
    sharp = Case("sharp", (), "", "F16", arrays, scale=1.0, wants=("output",))
    weights = np.exp(8 * keys * [1 + off, 1 - off] - 64)
    output = np.reshape(weights @ [1, -1] / weights.sum(), (1, 1, 1, 1))
    given = folder([sharp], done(sharp, output=output.astype(np.float16)))
    assert JUDGE.run(given, "tf32").measured == {"F16": "tf32"}
    assert JUDGE.run(given, "tensor-core").measured == {"F16": "eager"}


def test_one_case_that_no_profile_explains_is_measured_as_none():
    wrong = done(PLAIN, output=np.zeros_like(expected(PLAIN).output, np.float32))
    run = JUDGE.run(folder([PLAIN, MASKED], wrong, done(MASKED)))
    assert run.measured == {"F32": None}


def test_what_was_not_done_is_not_measured():
    run = JUDGE.run(folder([PLAIN, HALF], done(PLAIN)))
    assert run.measured == {"F32": "strict", "BF16": None}


# --------------------------------------------------------------------- pooled


def random_case(seed, dtype="BF16"):
    """128 rows of one head pair: continuous data, so that roundings are independent."""
    rng = np.random.default_rng(seed)
    shapes = {"q": (1, 2, 64, 16), "k": (1, 2, 96, 16), "v": (1, 2, 96, 16)}
    arrays = {
        name: rng.standard_normal(shape).astype(DTYPES[dtype])
        for name, shape in shapes.items()
    }
    names = {"id": f"random{seed}/{dtype}", "clauses": (), "why": ""}
    return Case(dtype=dtype, inputs=arrays, wants=("output", "lse"), **names)


RANDOM = [random_case(seed) for seed in range(6)]


def run_of(fault=lambda out: out, **keywords):
    """A run over the random cases; `fault` changes float64 outputs before they are
    rounded."""
    results = []
    for case in RANDOM:
        arrays = attention(case, **keywords)
        exact = fault(expected(case).output)
        if not keywords:
            arrays["output"] = nearest(exact, DTYPES["BF16"]).astype(DTYPES["BF16"])
        results.append(done(case, profile="tensor-core", **arrays))
    return JUDGE.run(folder(RANDOM, *results, profile="tensor-core"))


def cut(values):
    """bfloat16 numbers whose last digits are cut off instead of rounded."""
    bits = values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


def test_a_legal_implementation_shows_no_excess():
    run = run_of(rounds_weights=True)
    assert run.pooled.keys() == {("BF16", "output"), ("BF16", "lse")}
    assert all(one.judged for one in run.pooled.values())
    assert not run.excess
    assert run.conforms


@pytest.mark.parametrize(
    "fault", [cut, lambda out: out * (1 + 2.0**-9)], ids=["cut off", "a gain"]
)
def test_an_excess_of_all_cases_does_not_conform_though_every_element_passes(fault):
    run = run_of(fault)
    assert {verdict.status for verdict in run.verdicts} == {"pass"}
    assert run.excess.keys() == {("BF16", "output")}
    assert run.pooled["BF16", "output"].rms < RMS_LIMIT
    assert not run.conforms


@pytest.mark.parametrize(("size", "warned"), [(0.8, False), (2.0, True)])
def test_errors_larger_than_expected_are_a_warning_that_fails_nothing(size, warned):
    """Of either sign, each so many times as large as is expected of it."""
    case, profile = RANDOM[0], "tensor-core"
    derived = derive(case, expected(case), PROFILES[profile])
    want, deviation = expected(case).output, derived.deviation["output"]
    spread = np.hypot(deviation / 3**0.5, derived.linear["output"])
    signs = np.random.default_rng(0).choice([-1, 1], want.shape)
    got = {"output": (want + size * signs * spread).astype(DTYPES["BF16"])}
    run = JUDGE.run(folder([case], done(case, **got), profile=profile))
    assert run.conforms
    found = {(one.case, one.result): one.rms for one in run.warnings}
    assert found.keys() == ({(case.id, "output")} if warned else set())
    # Of the variance a part is that of the last rounding, which is as expected.
    assert all(1.3 < rms < size for rms in found.values())


def test_what_fails_is_no_warning_as_well():
    case = RANDOM[0]
    got = {"lse": (expected(case).lse * 1.1).astype(np.float32)}
    run = JUDGE.run(folder([case], done(case, **got)))
    assert not run.conforms
    assert run.warnings == []


def test_cases_that_are_not_random_are_not_pooled():
    equal = replace(PLAIN, inputs=PLAIN.inputs | {"k": 0 * PLAIN.inputs["k"]})
    run = JUDGE.run(folder([equal], done(equal)))
    assert run.conforms
    assert run.pooled == {}


def test_steps_and_results_of_a_wrong_shape_are_not_pooled():
    case = RANDOM[0]
    arrays = {"output": expected(case).output[:, :1].astype(DTYPES["BF16"])}
    arrays |= {"weights": expected(case).weights.astype(np.float32)}
    assert JUDGE.run(folder([case], done(case, **arrays))).pooled == {}


# ---------------------------------------------------------- void, and the split


def test_a_case_that_says_nothing_is_not_applicable_and_says_why():
    scores = {"q": PLAIN.inputs["q"] * np.float32(1e6)}
    case = replace(PLAIN, inputs=PLAIN.inputs | scores)
    run = JUDGE.run(folder([case, MASKED], done(case), done(MASKED)))
    assert [v.status for v in run.verdicts] == ["not applicable", "pass"]
    assert run.verdicts[0].message.startswith("under strict, ill-conditioned: ")
    assert run.conforms


def test_a_failure_has_the_split_of_the_budget_at_its_worst_element():
    want = expected(HALF)
    wrong = attention(HALF) | {"output": (1.5 * want.output).astype(DTYPES["BF16"])}
    (verdict,) = JUDGE.run(folder([HALF], done(HALF, **wrong)), "tensor-core").verdicts
    finding = verdict.first_failure
    at = tuple(finding.worst.index.values())
    shares = split(HALF, want, PROFILES["tensor-core"], "output", at)
    assert finding.split == shares
    assert max(shares, key=shares.get) in ("weights", "output rounding")
    assert sum(shares.values()) == pytest.approx(1)
    others = [found for found in verdict.findings if found is not finding]
    assert not any(found.split for found in others)
