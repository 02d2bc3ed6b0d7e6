"""Whatever files hold, the judge says one sentence, and loses nothing else by it."""

import io
import json
import random
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from attncheck.budget import output_dtype
from attncheck.case import DTYPES, Case
from attncheck.definition import expected
from attncheck.exchange import (
    CASES,
    NOT_JUDGED,
    RESULTS,
    ExchangeError,
    Result,
    append_result,
    finished_records,
    read_cases,
    read_results,
    write_cases,
)
from attncheck.judging import Folder, Judge
from attncheck.laws import LAWS
from attncheck.report import as_html, print_text, summary

from .mutations import arrays_changed, bytes_changed, record_changed

JUDGE = Judge()


def tiny(name, dtype, **options) -> Case:
    """One batch element, two query heads, one key/value head, three keys."""
    rng = np.random.default_rng(len(name))

    def normal(*shape):
        return rng.normal(size=shape).astype(DTYPES[dtype])

    inputs = {"q": normal(1, 2, 2, 2), "k": normal(1, 1, 3, 2), "v": normal(1, 1, 3, 1)}
    inputs |= {"mask": np.array([[[[True, True, False]]]]), "d_out": normal(1, 2, 2, 1)}
    return Case(f"{name}/{dtype}", ("mask",), "Why.", dtype, inputs, **options)


PLAIN = tiny("plain", "F32", wants=("output", "lse", "dq"))
CHOSEN = [
    PLAIN,
    *next(law for law in LAWS if law.name == "permute-keys").derive(PLAIN),
    tiny("half", "BF16", softcap=2.0, strides={"q": "b i 3 n d"}, wants=("output",)),
]


def exact(case) -> Result:
    """What the definition gives."""
    want = expected(case)
    arrays = {
        name: getattr(want, name).astype(output_dtype(case, name))
        for name in case.wants
    }
    subject = {"name": "mine", "version": "1", "profile": "strict"}
    return Result(case.id, "done", "", arrays, 0.5, subject, case.sha256)


@pytest.fixture
def folder(tmp_path):
    """Cases and results that conform."""
    write_cases(tmp_path, CHOSEN)
    for case in CHOSEN:
        append_result(tmp_path, exact(case))
    assert JUDGE.run(Folder.read(tmp_path)).conforms
    return tmp_path


def verdicts(folder: Folder):
    """Case → the status of its verdict."""
    judged = [JUDGE.verdict(case, folder, folder.profile) for case in folder.cases]
    return {verdict.case.id: verdict.status for verdict in judged}


def check_documents(folder: Folder):
    """Every document can be made, and none is large or commands a terminal."""
    report = summary([JUDGE.run(folder)])
    text = json.dumps(report, ensure_ascii=False, allow_nan=False)
    assert len(text.encode()) < 50_000
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)
    print_text(report, Console(file=io.StringIO(), width=99))
    as_html(report)


def is_one_sentence(error, folder) -> bool:
    """Whether an error names its file, and is on one line, and short."""
    return error.startswith(str(folder)) and "\n" not in error and len(error) < 800


def lines_of(file):
    return file.read_bytes().splitlines()


def changes(folder, name, number, change):
    """Files in which one thing is wrong; the last is mended in the end."""
    file = folder / name
    before = file.read_bytes()
    for seed in range(number):
        after = change(before, random.Random(f"{name} {seed}"))
        if after != before:
            put(file, after)
            yield seed, after
    put(file, before)


def put(file, text):
    """Writes a file anew, which is faster than to write over it."""
    file.unlink()
    file.write_bytes(text)


def one_line_changed(text, rng):
    """One object of a file of lines changed."""
    lines = text.splitlines()
    place = rng.randrange(len(lines))
    ids = tuple(case.id for case in CHOSEN)
    lines[place] = record_changed(lines[place], rng, ids)
    return b"\n".join(lines) + b"\n"


def folder_or_error(folder):
    """The folder, its cases as they were, or the sentence that refuses it."""
    try:
        return Folder.of(folder, CHOSEN, read_results(folder, CHOSEN)), ""
    except ExchangeError as error:
        return None, str(error)


@pytest.mark.parametrize("change", [one_line_changed, bytes_changed])
def test_a_damaged_line_of_results_costs_its_own_case(folder, change):
    ids = [case.id for case in CHOSEN]
    lines = dict(zip(ids, lines_of(folder / RESULTS), strict=True))
    seen = set()
    for seed, text in changes(folder, RESULTS, 2000, change):
        intact = {id for id in ids if lines[id] in text.split(b"\n")}
        read, error = folder_or_error(folder)
        if read is None:
            assert is_one_sentence(error, folder), seed
            assert not intact, seed
            continue
        found = verdicts(read)
        if len(intact) > 1:  # most lines say whose results these are
            assert {found[id] for id in intact} == {"pass"}, seed
            kept = finished_records(folder)  # by a run that goes on
            assert intact <= {record["id"] for record in kept}, seed
        seen |= set(found.values())
        if seed % 80 == 0:
            check_documents(read)
    assert seen >= {"pass", NOT_JUDGED}


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.id)
def test_damaged_arrays_of_a_result_cost_its_own_case(folder, case):
    file = read_file_of(folder / RESULTS, case)
    seen = set()
    for seed, _ in changes(folder, file, 800, arrays_changed):
        read = Folder.of(folder, CHOSEN, read_results(folder, CHOSEN))
        found = verdicts(read)
        seen.add(found.pop(case.id))
        assert set(found.values()) == {"pass"}, seed
        if seed % 80 == 0:
            check_documents(read)
    assert seen >= {"fail", NOT_JUDGED}


def read_file_of(file, case):
    """The arrays that the line of a case names."""
    return next(
        record["file"]
        for record in map(json.loads, lines_of(file))
        if record["id"] == case.id
    )


def cases_or_error(folder) -> tuple[list[Case], str]:
    """The cases of a folder, or the sentence that refuses them."""
    try:
        return read_cases(folder), ""
    except ExchangeError as error:
        return [], str(error)


@pytest.mark.parametrize("change", [one_line_changed, bytes_changed])
def test_damaged_lines_of_cases_are_refused_or_harmless(folder, change):
    hashes, refused = {case.sha256 for case in CHOSEN}, 0
    for seed, _ in changes(folder, CASES, 1500, change):
        found, error = cases_or_error(folder)
        assert found or is_one_sentence(error, folder), seed
        refused += not found
        assert {case.sha256 for case in found} <= hashes, seed
        if found and seed % 5 == 0:
            check_documents(Folder.read(folder))
    assert refused > 800


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.id)
def test_damaged_arrays_of_a_case_are_refused(folder, case):
    file = read_file_of(folder / CASES, case)
    for seed, _ in changes(folder, file, 700, arrays_changed):
        found, error = cases_or_error(folder)
        assert found or is_one_sentence(error, folder), seed
        assert {case.sha256 for case in found} <= {case.sha256 for case in CHOSEN}, seed


NUMBERS = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -3e38, 1e-45, 1e-30, 1.0)


def extreme(case, rng):
    """The case with other numbers: a well-formed one that nobody meant."""
    inputs = {name: array.copy() for name, array in case.inputs.items()}
    for _ in range(rng.randrange(1, 5)):
        array = inputs[rng.choice(list(inputs))]
        with np.errstate(over="ignore"):
            number = np.array(rng.choice(NUMBERS)).astype(array.dtype)
        array[tuple(rng.randrange(size) for size in array.shape)] = number
    return replace(
        case,
        inputs=inputs,
        strides={},
        scale=rng.choice((None, 0, -1, 1e308, -1e-308, 5e-324, 1.7e308)),
        softcap=rng.choice((None, None, 1e-308, 5e-324, 1, 1.7e308)),
        law=rng.choice(("", *(law.name for law in LAWS))),
        twin=rng.choice(CHOSEN).id,
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # beyond float64 all is lost
@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.id)
def test_a_case_of_any_numbers_is_judged(folder, case):
    for seed in range(40):
        changed = extreme(case, random.Random(seed))
        chosen = [changed if one is case else one for one in CHOSEN]
        write_cases(folder, chosen)
        with np.errstate(over="ignore"):
            append_result(folder, exact(changed))
        check_documents(Folder.read(folder))
