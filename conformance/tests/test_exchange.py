"""Cases and results are the same after a journey through files, or a clear error."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from attncheck.case import DTYPES, Case
from attncheck.exchange import (
    CASES,
    NOT_JUDGED,
    RESULTS,
    ExchangeError,
    Result,
    append_result,
    read_arrays,
    read_cases,
    read_results,
    write_arrays,
    write_cases,
)
from attncheck.lines import Line
from attncheck.records import STATUSES

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
        "bias": normal(1, 2, 1, keys),
        "d_lse": rng.normal(size=(1, 2, 2)).astype(
            np.float64 if dtype == "F64" else np.float32
        ),
    }
    inputs["q"][0, 0, 0] = SPECIAL
    if options.get("dropout_rate"):
        inputs["dropout_keep"] = rng.random((1, 2, 2, keys)) < 0.5
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


def test_a_last_line_that_only_lacks_its_end_counts(tmp_path):
    append_result(tmp_path, Result("a", "refused"))
    path = tmp_path / RESULTS
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert list(read_results(tmp_path)) == ["a"]


def test_a_first_line_that_was_cut_short_leaves_nothing(tmp_path):
    (tmp_path / RESULTS).write_bytes(b'{"id": "a"')
    assert read_results(tmp_path) == {}


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
        "'schema' must be attncheck-case/1, not 'attncheck-case/9'",
    ),
    "no schema": (lambda f, r: r.pop("schema"), "'schema' is missing"),
    "hash": (lambda f, r: r.update(scale=0.5, scale_is_default=False), "hash differs"),
    "arrays": (grow, "hash differs"),
    "key": (lambda f, r: r.pop("wants"), "'wants' is missing"),
    "array": (
        lambda f, r: r["inputs"].append("d_out"),
        "`d_out` is missing in its file",
    ),
    "no file": (lambda f, r: r.update(file="cases/none"), "none cannot be read"),
    "damaged": (damage, "cannot be read"),
    "type": (lambda f, r: r.update(clauses=None), "'clauses' must be a list of texts"),
    "sizes": (lambda f, r: r["sizes"].update(j=9), "'sizes' must be {'b': 1"),
    "scale": (lambda f, r: r.update(scale=2), "'scale' must be 0.408"),
    "op": (lambda f, r: r.update(op="multi_head_attention"), "needs `x`"),
    "twice": (lambda f, r: r.update(id="drawn/F32"), "case drawn/F32 is there twice"),
}


@pytest.mark.parametrize(("change", "says"), BAD_CASES.values(), ids=BAD_CASES)
def test_a_bad_case_is_an_error_that_names_file_and_line(tmp_path, change, says):
    write_cases(tmp_path, [make_case(), make_case(name="bad")])
    rewrite(tmp_path, CASES, 1, lambda record: change(tmp_path, record))
    with pytest.raises(ExchangeError) as caught:
        read_cases(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / CASES}:2: ")
    assert says in str(caught.value)


F32 = np.float32
NO_CALLS = {
    "no v": (lambda x: x.pop("v"), "attention needs `v`"),
    "too many": (
        lambda x: x.update(b_q=np.ones((1, 1), F32)),
        "attention takes no `b_q`",
    ),
    "axes": (lambda x: x.update(k=np.ones((1, 3, 6), F32)), "`k` must have axes bhjd"),
    "width": (
        lambda x: x.update(k=np.ones((1, 1, 3, 5), F32)),
        "`k` must be (1, 1, 3, 6) but is (1, 1, 3, 5)",
    ),
    "mask": (
        lambda x: x.update(mask=np.ones((1, 1, 3, 3), bool)),
        "`mask` must be (1, 2, 2, 3), each full or 1, but is (1, 1, 3, 3)",
    ),
    "heads": (
        lambda x: x.update(k=np.ones((1, 3, 3, 6), F32), v=np.ones((1, 3, 3, 5), F32)),
        "query heads must be a multiple of key/value heads",
    ),
    "no heads": (
        lambda x: x.update(v=np.ones((1, 0, 3, 5), F32)),
        "query heads must be a multiple of key/value heads",
    ),
    "no width": (
        lambda x: x.update(v=np.ones((1, 1, 3, 0), F32)),
        "axis e must not be empty",
    ),
    "dtype": (
        lambda x: x.update(q=np.ones((1, 2, 2, 6))),
        "`q` must be float32, but is float64",
    ),
    "mask dtype": (
        lambda x: x.update(mask=np.ones((1, 1, 2, 3), np.uint8)),
        "`mask` must be bool, but is uint8",
    ),
    "d_lse dtype": (
        lambda x: x.update(d_lse=np.ones((1, 2, 2))),
        "`d_lse` must be float32, but is float64",
    ),
    "dropout": (
        lambda x: x.update(dropout_keep=np.ones((1, 1, 1, 1), bool)),
        "a dropout_rate above 0 and `dropout_keep` need each other",
    ),
    "huge": (
        lambda x: [
            x.pop("mask"),
            x.pop("bias"),
            x.update(k=np.ones((1, 1, 0, 6), F32), v=np.ones((1, 1, 0, 2**25), F32)),
        ],
        "an array on the way has 134217728 elements: too many",
    ),
}


@pytest.mark.parametrize(("change", "says"), NO_CALLS.values(), ids=NO_CALLS)
def test_inputs_that_are_no_call_are_refused_whatever_their_hash(
    tmp_path, change, says
):
    case = make_case(wants=("lse",))
    write_cases(tmp_path, [case])
    inputs = dict(case.inputs)
    change(inputs)
    rewrite(tmp_path, CASES, 0, lambda record: record.update(inputs=list(inputs)))
    write_arrays(next((tmp_path / "cases").iterdir()), inputs)
    with pytest.raises(ExchangeError) as caught:
        read_cases(tmp_path)
    assert f"{CASES}:1: {says}" in str(caught.value)


def test_a_wish_that_no_call_grants_is_refused(tmp_path):
    write_cases(tmp_path, [make_case(wants=("lse", "dq"))])
    read_cases(tmp_path)
    rewrite(tmp_path, CASES, 0, lambda record: record["inputs"].remove("d_lse"))
    with pytest.raises(ExchangeError, match="wants `dq`, which such a call does not"):
        read_cases(tmp_path)


BAD_RESULTS = {
    "schema": (
        lambda f, r: r.update(schema="attncheck-result/2"),
        "'schema' must be attncheck-result/1, not 'attncheck-result/2'",
    ),
    "status": (
        lambda f, r: r.update(status="ok"),
        f"'status' must be one of {', '.join(STATUSES)}, not 'ok'",
    ),
    "key": (lambda f, r: r.pop("status"), "'status' is missing"),
    "no file": (lambda f, r: r.update(file="results/none"), "none cannot be read"),
    "damaged": (damage, "cannot be read"),
    "name": (
        lambda f, r: write_arrays(f / r["file"], {"out": np.ones(2)}),
        "arrays are named scores, logits",
    ),
}


@pytest.fixture
def two_results(tmp_path):
    """Two cases and the results of both."""
    chosen = [make_case(), make_case(name="bad")]
    write_cases(tmp_path, chosen)
    for case in chosen:
        arrays = {"lse": np.ones(2)}
        append_result(
            tmp_path, Result(case.id, "done", arrays=arrays, sha256=case.sha256)
        )
    return tmp_path


@pytest.mark.parametrize(("change", "says"), BAD_RESULTS.values(), ids=BAD_RESULTS)
def test_a_bad_result_is_not_judged_and_says_why_and_where(two_results, change, says):
    rewrite(two_results, RESULTS, 1, lambda record: change(two_results, record))
    results = read_results(two_results, read_cases(two_results))
    assert {id: result.status for id, result in results.items()} == {
        "drawn/F32": "done",
        "bad/F32": NOT_JUDGED,
    }
    message = results["bad/F32"].message
    assert message.startswith(f"{two_results / RESULTS}:2: ")
    assert says in message
    assert results.damage == ()


@pytest.mark.parametrize(
    "line", [b"{", b"", b"[1]", b"5", b"\xff", b'{"status": "done"}', b'{"id": 5}']
)
def test_a_line_of_nobody_knows_which_case_costs_none(two_results, line):
    with (two_results / RESULTS).open("ab") as file:
        file.write(line + b"\n")
    results = read_results(two_results, read_cases(two_results))
    assert {result.status for result in results.values()} == {"done"}
    (sentence,) = results.damage
    assert sentence.startswith(f"{two_results / RESULTS}:3: ")


def test_a_damaged_line_displaces_none_that_can_be_read(two_results):
    with (two_results / RESULTS).open("ab") as file:
        file.write(b'{"id": "bad/F32", "status": 5}\n')
    results = read_results(two_results, read_cases(two_results))
    assert {result.status for result in results.values()} == {"done"}
    assert "results.jsonl:3: 'status' must be one of" in results.damage[0]


def test_of_many_damaged_lines_the_first_are_told_and_the_others_counted(two_results):
    with (two_results / RESULTS).open("ab") as file:
        file.write(b"x\n" * 1000)
    results = read_results(two_results, read_cases(two_results))
    assert len(results.damage) == 101
    assert results.damage[-1] == "900 more lines are damaged"


def test_a_result_of_no_case_or_of_another_version_displaces_none(two_results):
    for id in ("drawn/F32", "other/F32"):
        append_result(two_results, Result(id, "refused", sha256="0" * 64))
    results = read_results(two_results, read_cases(two_results))
    assert {result.status for result in results.values()} == {"done"}
    (said,) = results.damage
    assert said == "results that are of no case here: 'other/F32' (1 in all)"


def test_a_result_of_another_version_of_its_case_says_so(tmp_path):
    case = make_case()
    append_result(tmp_path, Result(case.id, "refused", sha256="0" * 64))
    result = read_results(tmp_path, [case])[case.id]
    assert result.status == NOT_JUDGED
    assert "another version of the case" in result.message


def result_file(folder, case):
    """The arrays of a case's result."""
    with (folder / RESULTS).open("rb") as lines:
        records = map(json.loads, lines.readlines())
    return next(folder / r["file"] for r in records if r["id"] == case.id)


# ------------------------------------------------------------------- lines


BAD_LINES = {
    "NaN": ('{"id": "a", "seconds": NaN}', "holds NaN, which JSON has not"),
    "infinity": ('{"id": -Infinity}', "holds -Infinity, which JSON has not"),
    "large": ('{"id": 1e999}', "holds '1e999', which is no number of 64 bits"),
    "giant": ('{"id": ' + "9" * 10_000 + "}", "an integer of more than 18 digits"),
    "deep": ('{"id": ' + "[" * 100_000, "is nested too deeply"),
    "twice": ('{"id": "a", "id": "b"}', "holds 'id' twice"),
    "half": (r'{"id": "\ud800"}', "is no UTF-8: surrogates not allowed"),
    "bytes": (b'{"id": "\xff"}', "is no UTF-8: invalid start byte"),
    "utf-16": ('{"id": "a"}'.encode("utf-16-le"), "is no JSON"),
    "no JSON": ("{'id': 5}", "is no JSON: Expecting property name"),
    "list": ("[1]", "is [1], not an object"),
    "long": (f'["{"x" * 10**6}"]', "xxx'], not an object"),
}


@pytest.mark.parametrize(("text", "says"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_line_that_is_no_record_is_one_short_sentence(text, says):
    line = Line("here:1", text.encode() if isinstance(text, str) else text)
    with pytest.raises(ExchangeError) as caught:
        line.record()
    message = str(caught.value)
    assert message.startswith("here:1: ")
    assert says in message
    assert len(message) < 200


def test_a_line_of_another_system_is_a_line():
    assert Line("", b'{"id": "\xc3\xbc"}\r').record() == {"id": "ü"}


@pytest.mark.parametrize("text", ["\x1b[2J", "\x9b2J", "\0", "\b"])
def test_no_message_commands_a_terminal(tmp_path, text):
    append_result(tmp_path, Result("a", "error", f"so:\n\t{text}."))
    assert read_results(tmp_path)["a"].message == "so:\n\t\ufffd" + text[1:] + "."
    (tmp_path / RESULTS).write_text(f'{{"id": "a", "{text}\n', "utf-8")
    assert text not in "".join(read_results(tmp_path).damage)


def test_what_no_file_can_hold_is_written_as_something_else(tmp_path):
    subject = {"name": "a", "conventions": {"fill": -np.inf}}
    append_result(tmp_path, Result("a", "error", "\ud800", subject=subject))
    result = read_results(tmp_path)["a"]
    assert result.message == "?"
    assert result.subject["conventions"] == {"fill": "-inf"}


# ------------------------------------------------------------------- files


def test_a_file_that_is_too_large_is_not_read(two_results):
    (case, _) = cases = read_cases(two_results)
    with result_file(two_results, case).open("r+b") as hole:
        hole.truncate(2**40)  # takes no place on the disk
    result = read_results(two_results, cases)[case.id]
    assert "1099511627776 bytes, more than" in result.message
    with (two_results / CASES).open("r+b") as hole:
        hole.truncate(2**40)
    with pytest.raises(ExchangeError, match="1099511627776 bytes, more than"):
        read_cases(two_results)


def test_a_pipe_is_not_waited_for(two_results):
    os.mkfifo(two_results / "pipe")
    rewrite(two_results, RESULTS, 1, lambda record: record.update(file="pipe"))
    result = read_results(two_results, read_cases(two_results))["bad/F32"]
    assert result.message.endswith("pipe cannot be read: there is no such file")


LINKS = {
    "outside": ("/etc/hostname", "outside of the folder"),
    "circle": ("link", "cannot be followed"),
    "nowhere": ("none", "there is no such file"),
}


@pytest.mark.parametrize(("to", "says"), LINKS.values(), ids=LINKS)
def test_a_link_leads_to_files_of_the_folder_only(two_results, to, says):
    (two_results / "link").symlink_to(to)
    rewrite(two_results, RESULTS, 1, lambda record: record.update(file="link"))
    result = read_results(two_results, read_cases(two_results))["bad/F32"]
    assert says in result.message


def test_a_truth_value_is_0_or_1(tmp_path):
    write_arrays(tmp_path / "a", {"mask": np.array([2], np.uint8)})
    file = (tmp_path / "a").read_bytes().replace(b'"U8"', b'"BOOL"')
    file = (int.from_bytes(file[:8], "little") + 2).to_bytes(8, "little") + file[8:]
    (tmp_path / "a").write_bytes(file)
    with pytest.raises(ExchangeError, match="`mask` is neither 0 nor 1"):
        read_arrays(tmp_path / "a")


@pytest.mark.parametrize(
    ("read", "file"), [(read_cases, CASES), (read_results, RESULTS)]
)
def test_a_folder_without_the_file_is_an_error_that_names_both(tmp_path, read, file):
    with pytest.raises(ExchangeError, match=f"{tmp_path} holds no {file}"):
        read(tmp_path)


HOSTILE = {
    "a type that NumPy lacks": ("F8_E4M3", [1], 1),
    "too many axes": ("F32", [1] * 65, 4),
    "an axis that no memory holds": ("F32", [2**62, 0], 0),
    "a size that overflows": ("F32", [2**62, 2**62], 4),
    "more than there is": ("F32", [2], 4),
}


@pytest.mark.parametrize(("dtype", "shape", "size"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_header_is_one_sentence(tmp_path, dtype, shape, size):
    record = {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}
    header = json.dumps({"output": record}).encode()
    file = tmp_path / "a.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(size))
    with pytest.raises(ExchangeError, match=r"a\.safetensors cannot be read: "):
        read_arrays(file)


def test_an_implementer_may_say_no_more_than_what_counts(tmp_path):
    (tmp_path / RESULTS).write_text('{"id": "a", "status": "refused"}\n', "utf-8")
    assert read_results(tmp_path) == {"a": Result("a", "refused")}
