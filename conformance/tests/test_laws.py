"""Laws hold for right results, however rounded, and are broken by wrong ones."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from attncheck.budget import PROFILES, budget, interval, output_dtype
from attncheck.case import DTYPES
from attncheck.definition import expected
from attncheck.exchange import Result, read_cases, write_cases
from attncheck.laws import LAWS, Holding, check, derived
from attncheck.report.words import law
from attncheck.suite import cases
from attncheck.verdict import Run, judge

CASES = cases()
BY_ID = {case.id: case for case in CASES}
NAMES = [law.name for law in LAWS]
STRICT = PROFILES["strict"]


def exact(case, move=None) -> Result:
    """The definition's results, or those that `move` makes of one, each rounded."""
    want, arrays = expected(case), {}
    bounds = budget(case, want, STRICT)
    for name in case.wants:
        value = getattr(want, name)
        value = value if move is None else move(name, value, bounds[name])
        with np.errstate(over="ignore", invalid="ignore"):
            arrays[name] = value.astype(output_dtype(case, name))
    return Result(case.id, "done", arrays=arrays)


def bounds_of(case):
    return budget(case, expected(case), STRICT)


def holds(chosen, results) -> dict[str, Holding]:
    found = check(chosen, results, expected, bounds_of)
    return {holding.law: holding for holding in found}


def related(law: str, dtype: str = "F32") -> list:
    """One case and what the law derives from it, the case first."""
    parts = [c for c in CASES if c.law == law and c.dtype == dtype]
    parts = [part for part in parts if part.twin == parts[0].twin]
    return [BY_ID[parts[0].twin], *parts]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_definition_obeys_every_law(dtype):
    chosen = [case for case in CASES if case.dtype == dtype]
    found = holds(chosen, {case.id: exact(case) for case in chosen})
    assert list(found) == NAMES
    for holding in found.values():
        assert holding.broken == ()
        assert holding.not_judged == 0
        assert holding.bitwise + holding.within > 0


@pytest.mark.parametrize("law", NAMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_at_the_edges_of_their_budgets_break_no_law(law, dtype):
    chosen = related(law, dtype)
    signs = np.random.default_rng(0)

    def edge(case):
        def move(name, value, bound):
            low, high = interval(value, bound, output_dtype(case, name))
            low, high = (np.where(np.isfinite(x), x, value) for x in (low, high))
            return np.where(signs.random(value.shape) < 0.5, low, high)

        return move

    for _ in range(5):
        results = {case.id: exact(case, edge(case)) for case in chosen}
        assert holds(chosen, results)[law].broken == ()


def halved(name, value, bound):
    return value / 2


def in_base_2(name, value, bound):
    return value / np.log(2) if name == "lse" else value


def keys_unmoved(name, value, bound):
    return value[:, :, ::-1] if name == "dk" else value


WRONG = {
    "repeat": (halved, "scores"),
    "permute-keys": (keys_unmoved, "dk"),
    "split-keys": (in_base_2, "lse"),
    "edit-blocked": (halved, "scores"),
    "alone": (halved, "scores"),
    "ones": (halved, "output"),
    "compiled": (halved, "scores"),
}
"""Law → a mistake in the derived case, and the result that shows it."""


@pytest.mark.parametrize("law", NAMES)
def test_a_mistake_in_the_derived_case_breaks_its_law(law):
    move, shown = WRONG[law]
    whole, *parts = chosen = related(law)
    results = {whole.id: exact(whole)} | {p.id: exact(p, move) for p in parts}
    (broken,) = holds(chosen, results)[law].broken
    assert broken == f"{parts[0].id} {shown}"


@pytest.mark.parametrize("law", NAMES)
def test_a_law_of_which_a_result_is_missing_is_not_judged(law):
    chosen = related(law)
    for missing in chosen:
        results = {case.id: exact(case) for case in chosen if case is not missing}
        assert holds(chosen, results)[law].not_judged == 1


@pytest.mark.parametrize("law", NAMES)
def test_a_law_of_which_a_case_is_missing_is_not_judged(law):
    chosen = related(law)
    results = {case.id: exact(case) for case in chosen}
    for missing in chosen:
        found = holds([case for case in chosen if case is not missing], results)
        assert all(holding.not_judged == 1 for holding in found.values())


@pytest.mark.parametrize("law", NAMES)
def test_a_case_that_the_law_does_not_derive_is_not_judged(law):
    chosen = related(law)
    results = {case.id: exact(case) for case in chosen}
    other = next(name for name in NAMES if name != law)
    mislabelled = [replace(case, law=other) if case.law else case for case in chosen]
    assert holds(mislabelled, results)[other].not_judged == 1


def test_a_law_that_was_not_run_at_all_says_why():
    whole, twin = chosen = related("compiled")
    missing = Result(twin.id, "not applicable", "there is no compiler")
    results = {whole.id: exact(whole), twin.id: missing}
    assert holds(chosen, results)["compiled"].why == "there is no compiler"
    more = related("compiled", "F64")
    results |= {case.id: exact(case) for case in more}
    assert holds([*chosen, *more], results)["compiled"].why == ""


def test_a_subject_without_log_sum_exp_cannot_be_split():
    chosen = related("split-keys")
    only = {
        case.id: replace(result, arrays={"output": result.arrays["output"]})
        for case, result in ((case, exact(case)) for case in chosen)
    }
    assert holds(chosen, only)["split-keys"].not_judged == 1


def test_a_trace_of_what_is_blocked_is_reported_though_it_is_within_the_budget():
    _, edited = chosen = related("edit-blocked")
    results = {case.id: exact(case) for case in chosen}
    assert holds(chosen, results)["edit-blocked"].bitwise == 1
    output = results[edited.id].arrays["output"]
    results[edited.id].arrays["output"] = np.nextafter(output, np.float32(9))
    assert holds(chosen, results)["edit-blocked"].within == 1


def test_a_broken_law_does_not_conform():
    case = BY_ID["plain/F32"]
    verdict = judge(case, expected(case), bounds_of(case), exact(case))
    held = Holding("a", "A law.", bitwise=1)
    broken = replace(held, broken=("a case",))
    assert Run({}, [verdict], laws=[held]).conforms
    assert not Run({}, [verdict], laws=[held, broken]).conforms


WORDS = {
    "repeat bitwise 2 of 2": {"bitwise": 2},
    "repeat bitwise 1 of 4, within budget 3": {"bitwise": 1, "within": 3},
    "repeat bitwise 0 of 2, within budget 1, broken 1": {
        "within": 1,
        "broken": ("a case",),
    },
    "repeat not judged": {"not_judged": 3},
    "repeat not run: there is none": {"not_judged": 3, "why": "there is none"},
}


@pytest.mark.parametrize(("words", "counts"), WORDS.items(), ids=WORDS)
def test_a_report_says_how_often_a_law_holds(words, counts):
    assert law(asdict(Holding("repeat", "A law.", **counts))) == words


def test_a_permuted_case_holds_the_same_keys_in_another_order():
    whole, moved = related("permute-keys")
    for name in ("k", "v"):
        before, after = whole.inputs[name], moved.inputs[name]
        assert not np.array_equal(before, after)
        assert np.array_equal(np.sort(before, axis=2), np.sort(after, axis=2))


def test_halves_are_the_whole():
    whole, *halves = related("split-keys")
    for name in ("k", "v"):
        together = np.concatenate([half.inputs[name] for half in halves], axis=2)
        assert np.array_equal(together, whole.inputs[name])


def test_editing_changes_only_what_is_blocked():
    whole, edited = related("edit-blocked")
    mask = np.broadcast_to(
        whole.inputs["mask"], tuple(whole.sizes[axis] for axis in "bnij")
    )
    for name in ("k", "v"):
        differs = (whole.inputs[name] != edited.inputs[name]).any(axis=(1, 3))
        assert differs.any()
        assert not (differs & mask.any(axis=(1, 2))).any()


def test_laws_derive_from_every_case_that_they_apply_to_in_the_full_set():
    plain = [BY_ID[f"{name}/F32"] for name in ("group-bias", "mask-coincidence")]
    assert derived(plain, everywhere=False) == []
    found = {case.law for case in derived(plain, everywhere=True)}
    assert found == set(NAMES) - {"compiled", "edit-blocked"}


def test_law_and_twin_are_kept_in_files(tmp_path):
    chosen = [case for law in NAMES for case in related(law)[1:]]
    write_cases(tmp_path, chosen)
    for before, after in zip(chosen, read_cases(tmp_path), strict=True):
        assert (after.law, after.twin) == (before.law, before.twin)
        assert after.compiled == before.compiled == (before.law == "compiled")
        assert after.sha256 == before.sha256


def test_a_result_of_a_wrong_shape_is_its_own_cases_failure_and_no_laws():
    chosen = [case for case in CASES if case.dtype == "F32" and "output" in case.wants]
    results = {}
    for case in chosen:
        right = exact(case)
        turned = {name: array[..., None] for name, array in right.arrays.items()}
        results[case.id] = replace(right, arrays=turned)
    holdings = check(chosen, results, expected, bounds_of)
    assert {h.law for h in holdings} == set(NAMES)
    assert not any(h.bitwise or h.within or h.broken for h in holdings)
