"""Cases and results are the same after a journey through files, or a clear error."""

import json
from dataclasses import replace

import numpy as np
import pytest

from attncheck.case import DTYPES, Case
from attncheck.exchange import (
    CASES,
    RESULTS,
    STATUSES,
    ExchangeError,
    Result,
    append_result,
    begin,
    pending,
    read_cases,
    read_results,
    repair,
    write_arrays,
    write_cases,
)

SPECIAL = [0.0, -0.0, 1.0, -np.inf, np.inf, np.nan]


def make_case(dtype="F32", name="drawn", keys=3, **options):
    """A small case with every kind of array."""
    rng = np.random.default_rng(3)

    def normal(*shape):
        return rng.normal(size=shape).astype(DTYPES[dtype])

    inputs = {
        "q": normal(1, 2, 2, 6),
        "k": normal(1, 1, keys, 6),
        "v": normal(1, 1, keys, 5),
        "mask": rng.random((1, 1, 2, keys)) < 0.5,
        "d_lse": rng.normal(size=(1, 2, 2)).astype(np.float32),
    }
    inputs["q"][0, 0, 0] = SPECIAL
    return Case(f"{name}/{dtype}", ("mask",), "Why — “so”.", dtype, inputs, **options)


def rewrite(folder, file, line, change):
    """Writes one line of a JSON-lines file anew."""
    lines = (folder / file).read_text("utf-8").splitlines()
    record = json.loads(lines[line])
    change(record)
    lines[line] = json.dumps(record)
    (folder / file).write_text("\n".join(lines) + "\n", "utf-8")


def assert_same(got, want):
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert got[name].dtype == array.dtype
        assert got[name].shape == array.shape
        assert got[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("keys", [3, 0])
def test_a_case_comes_back_as_it_was(tmp_path, dtype, keys):
    case = make_case(
        dtype,
        keys=keys,
        scale=-0.1,
        softcap=2.5,
        dropout_rate=0.25,
        predicate={"causal_offset": 2, "window": [3, 0]},
        wants=("output", "lse"),
    )
    write_cases(tmp_path, [case])
    (back,) = read_cases(tmp_path)
    assert_same(back.inputs, case.inputs)
    for field in ("id", "clauses", "why", "dtype", "op", "sizes", "options", "wants"):
        assert getattr(back, field) == getattr(case, field)


def test_a_default_scale_stays_the_default(tmp_path):
    write_cases(tmp_path, [make_case(), make_case(name="given", scale=6**-0.5)])
    default, given = read_cases(tmp_path)
    assert default.scale is None
    assert given.scale == 6**-0.5


def test_cases_keep_their_order_and_replace_older_ones(tmp_path):
    for names in (["b", "a", "c"], ["d", "b"]):
        write_cases(tmp_path, [make_case(name=name) for name in names])
        assert [case.id for case in read_cases(tmp_path)] == [f"{n}/F32" for n in names]


@pytest.mark.parametrize("dtype", [*DTYPES.values(), np.dtype(bool)], ids=str)
def test_a_result_comes_back_as_it_was(tmp_path, dtype):
    arrays = {
        "output": np.array([SPECIAL]).astype(dtype),
        "lse": np.zeros((0, 3), dtype),
        "dq": np.arange(6).reshape(2, 3).astype(dtype).T,
    }
    subject = {"name": "mine", "conventions": {"fill": "-inf"}}
    result = Result("a/F32", "done", "fine — ü", arrays, 0.25, subject)
    append_result(tmp_path, result)
    back = read_results(tmp_path)["a/F32"]
    assert_same(back.arrays, arrays)
    for field in ("id", "status", "message", "seconds", "subject", "sha256"):
        assert getattr(back, field) == getattr(result, field)


def named(case_id):
    """A case of that id."""
    return replace(make_case(), id=case_id)


def test_the_later_of_two_results_for_a_case_counts(tmp_path):
    append_result(tmp_path, Result("a", "crash"))
    append_result(tmp_path, Result("a", "refused", "later"))
    assert read_results(tmp_path)["a"].message == "later"


def test_a_line_that_was_cut_short_is_as_if_never_written(tmp_path):
    append_result(tmp_path, Result("a", "refused"))
    whole = (tmp_path / RESULTS).read_bytes()
    append_result(tmp_path, Result("ü", "refused"))
    torn = (tmp_path / RESULTS).read_bytes()
    for length in range(len(whole), len(torn) - 1):  # the last one lacks its end only
        (tmp_path / RESULTS).write_bytes(torn[:length])
        assert list(read_results(tmp_path)) == ["a"]
    left = pending(tmp_path, [named("a"), named("ü")])
    assert [case.id for case in left] == ["ü"]
    repair(tmp_path)
    assert (tmp_path / RESULTS).read_bytes() == whole


def test_a_last_line_that_only_lacks_its_end_counts(tmp_path):
    append_result(tmp_path, Result("a", "refused"))
    path = tmp_path / RESULTS
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert list(read_results(tmp_path)) == ["a"]
    repair(tmp_path)
    append_result(tmp_path, Result("b", "refused"))
    assert list(read_results(tmp_path)) == ["a", "b"]


def test_a_first_line_that_was_cut_short_leaves_nothing(tmp_path):
    (tmp_path / RESULTS).write_bytes(b'{"id": "a"')
    assert read_results(tmp_path) == {}
    assert [case.id for case in pending(tmp_path, [named("a")])] == ["a"]
    repair(tmp_path)
    assert (tmp_path / RESULTS).read_bytes() == b""


def test_a_result_of_a_case_that_was_changed_since_is_none(tmp_path):
    case = named("a")
    append_result(tmp_path, Result("a", "refused", sha256="another"))
    assert pending(tmp_path, [case]) == [case]
    append_result(tmp_path, Result("a", "refused", sha256=case.sha256))
    assert pending(tmp_path, [case]) == []


def test_all_is_to_do_where_nothing_ran(tmp_path):
    assert [case.id for case in pending(tmp_path, [named("a")])] == ["a"]
    assert list(tmp_path.iterdir()) == []


ME, OTHER = {"name": "me", "version": "1"}, {"name": "me", "version": "2"}


@pytest.mark.parametrize(
    ("status", "by", "subject", "stays"),
    [
        ("refused", ME, ME, True),
        ("refused", OTHER, ME, False),
        ("crash", ME, ME, False),
        ("timeout", ME, ME, False),
        ("refused", ME, None, False),
    ],
)
def test_a_run_begins_with_what_the_same_subject_had_finished(
    tmp_path, status, by, subject, stays
):
    write_cases(tmp_path, [make_case()])
    append_result(tmp_path, Result("drawn/F32", status, subject=by))
    begin(tmp_path, subject)
    left = pending(tmp_path, read_cases(tmp_path))
    assert [case.id for case in left] == ([] if stays else ["drawn/F32"])


def test_somebody_elses_files_are_not_overwritten(tmp_path):
    (tmp_path / RESULTS).write_text('{"loss": 0.5}\n', "utf-8")
    with pytest.raises(ExchangeError, match="not ours"):
        write_cases(tmp_path, [make_case()])
    (tmp_path / CASES).write_text('{"schema": "theirs/1"}\n', "utf-8")
    with pytest.raises(ExchangeError, match="schema is another"):
        write_cases(tmp_path, [make_case()])
    assert "theirs/1" in (tmp_path / CASES).read_text("utf-8")


@pytest.mark.parametrize("file", ["../stolen.safetensors", "/etc/passwd"])
def test_a_record_names_files_of_its_folder_only(tmp_path, file):
    write_cases(tmp_path, [make_case()])
    path = tmp_path / CASES
    record = json.loads(path.read_text("utf-8")) | {"file": file}
    path.write_text(json.dumps(record) + "\n", "utf-8")
    with pytest.raises(ExchangeError, match=r"cases\.jsonl:1: file .* outside"):
        read_cases(tmp_path)


def damage(folder, record):
    """Cuts a safetensors file short."""
    file = folder / record["file"]
    file.write_bytes(file.read_bytes()[:-1])


def grow(folder, record):
    """Replaces arrays by others of the same names."""
    write_arrays(folder / record["file"], make_case(keys=4).inputs)


BAD_CASES = {
    "schema": (
        lambda f, r: r.update(schema="attncheck-case/9"),
        "schema is 'attncheck-case/9'",
    ),
    "no schema": (lambda f, r: r.pop("schema"), "'schema' is missing"),
    "hash": (lambda f, r: r.update(scale=0.5, scale_is_default=False), "hash differs"),
    "arrays": (grow, "hash differs"),
    "key": (lambda f, r: r.pop("wants"), "'wants' is missing"),
    "array": (lambda f, r: r["inputs"].append("bias"), "'bias' is missing"),
    "no file": (lambda f, r: r.update(file="cases/none"), "none cannot be read"),
    "damaged": (damage, "cannot be read"),
    "type": (lambda f, r: r.update(clauses=None), "NoneType"),
}


@pytest.mark.parametrize(("change", "says"), BAD_CASES.values(), ids=BAD_CASES)
def test_a_bad_case_is_an_error_that_names_file_and_line(tmp_path, change, says):
    write_cases(tmp_path, [make_case(), make_case(name="bad")])
    rewrite(tmp_path, CASES, 1, lambda record: change(tmp_path, record))
    with pytest.raises(ExchangeError) as caught:
        read_cases(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / CASES}:2: ")
    assert says in str(caught.value)


BAD_RESULTS = {
    "status": (
        lambda f, r: r.update(status="ok"),
        f"one of {', '.join(STATUSES)}, not 'ok'",
    ),
    "key": (lambda f, r: r.pop("status"), "'status' is missing"),
    "no file": (lambda f, r: r.update(file="results/none"), "none cannot be read"),
    "damaged": (damage, "cannot be read"),
}


@pytest.mark.parametrize(("change", "says"), BAD_RESULTS.values(), ids=BAD_RESULTS)
def test_a_bad_result_is_an_error_that_names_file_and_line(tmp_path, change, says):
    append_result(tmp_path, Result("a", "refused"))
    append_result(tmp_path, Result("b", "done", arrays={"lse": np.ones(2)}))
    rewrite(tmp_path, RESULTS, 1, lambda record: change(tmp_path, record))
    with pytest.raises(ExchangeError) as caught:
        read_results(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / RESULTS}:2: ")
    assert says in str(caught.value)


@pytest.mark.parametrize("line", [b"{", b"", b"[1]", b"5", b"\xff"])
def test_a_line_that_is_no_object_is_an_error_that_names_it(tmp_path, line):
    append_result(tmp_path, Result("a", "refused"))
    with (tmp_path / RESULTS).open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(ExchangeError, match=rf"{RESULTS}:2: "):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("read", "file"), [(read_cases, CASES), (read_results, RESULTS)]
)
def test_a_folder_without_the_file_is_an_error_that_names_both(tmp_path, read, file):
    with pytest.raises(ExchangeError, match=f"{tmp_path} holds no {file}"):
        read(tmp_path)


def test_an_array_of_a_type_that_numpy_lacks_is_an_error(tmp_path):
    header = json.dumps(
        {"output": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}
    ).encode()
    append_result(tmp_path, Result("a", "done", arrays={"output": np.ones(1)}))
    (file,) = (tmp_path / "results").iterdir()
    file.write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    with pytest.raises(ExchangeError, match="cannot be read"):
        read_results(tmp_path)


def test_an_implementer_may_say_no_more_than_what_counts(tmp_path):
    (tmp_path / RESULTS).write_text('{"id": "a", "status": "refused"}\n', "utf-8")
    assert read_results(tmp_path) == {"a": Result("a", "refused")}


def test_an_array_of_an_unknown_name_is_an_error_that_lists_the_known_ones(tmp_path):
    append_result(tmp_path, Result("a", "done", arrays={"out": np.ones(2)}))
    with pytest.raises(ExchangeError, match=r"results\.jsonl:1: .*output.*, not out"):
        read_results(tmp_path)
