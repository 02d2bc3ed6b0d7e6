"""The published schemas say what is read and what is written."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from attncheck import minilm, schemas
from attncheck.cli import app
from attncheck.exchange import CASES, RESULTS, Result, append_result, write_cases
from attncheck.lines import ExchangeError, Line
from attncheck.records import CASE, RESULT, check
from attncheck.suite import cases, operation_cases

from .mutations import record_changed


def validator(name):
    return Draft202012Validator(json.loads(schemas.text(name)))


def closed(schema):
    """The schema, by which an object holds no key that is not described."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(part) for key, part in schema.items()}
    is_object = isinstance(schema.get("properties"), dict) and "type" in schema
    return {"additionalProperties": False, **inner} if is_object else inner


def records(file):
    with file.open("rb") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to be in, without the real model, which takes seconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(minilm, "available", lambda: "left out by the test")
    return tmp_path


def attncheck(*arguments):
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("name", schemas.NAMES)
def test_a_schema_is_one_and_is_printed(name):
    Draft202012Validator.check_schema(json.loads(schemas.text(name)))
    ended = attncheck("schema", name)
    assert ended.exit_code == 0
    assert ended.stdout == schemas.text(name)


def test_every_case_that_is_written_is_described(tmp_path):
    chosen = cases("smoke") + operation_cases("smoke")
    chosen += minilm.cases() * (minilm.available() is None)
    write_cases(tmp_path, chosen)
    case = Draft202012Validator(closed(json.loads(schemas.text("case"))))
    for record in records(tmp_path / CASES):
        case.validate(record)


FULL = Result(
    "a",
    "done",
    "why",
    {"output": np.ones(1)},
    0.5,
    {
        "name": "mine",
        "framework": "numpy",
        "version": "1",
        "device": "CPU",
        "profile": "strict",
        "accepts": {"mask": "attn_mask"},
        "ignored": ["is_causal"],
        "conventions": {"fill": -np.inf, "sinks": True, "window": None, "lse": "2"},
    },
    "0" * 64,
)


@pytest.mark.parametrize("result", [FULL, Result("a", "refused")], ids=str)
def test_every_result_that_is_written_is_described(tmp_path, result):
    append_result(tmp_path, result)
    (record,) = records(tmp_path / RESULTS)
    Draft202012Validator(closed(json.loads(schemas.text("result")))).validate(record)


SOURCE = """
import numpy
from attnref.numpy import attention

def zeros(q, k, v, *, mask=None):
    return numpy.zeros(q.shape[:-1] + v.shape[-1:], q.dtype)

def coarse(q, k, v, *, mask=None):
    return attention(q, k, v, mask=mask) * q.dtype.type(1.0005)

def other(q, k, v, *, mask=None):
    if q.shape[0] == 2:
        raise NotImplementedError("batches")
    return attention(q, k, v, mask=mask)[:, :1]
"""


def test_every_report_is_described(folder):
    (folder / "mine.py").write_text(SOURCE, "utf-8")
    targets = ("attnref.numpy", *(f"mine.py:{x}" for x in ("zeros", "coarse", "other")))
    ended = attncheck("run", *targets, "--case", "*plain*", "--format", "json")
    report = json.loads(ended.stdout)
    Draft202012Validator(closed(json.loads(schemas.text("report")))).validate(report)
    assert {status for s in report["subjects"] for status in s["counts"]} >= {
        "pass",
        "fail",
        "refused",
    }
    assert any(failure["first"] for failure in report["subjects"][1]["failures"])


def is_read(line: bytes, keys) -> bool:
    """Whether the reader takes a line."""
    try:
        check(Line("", line).record(), keys)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(("name", "keys"), [("case", CASE), ("result", RESULT)])
def test_what_is_read_is_what_the_schema_describes(tmp_path, name, keys):
    write_cases(tmp_path, cases(dtypes=("F32",)))
    append_result(tmp_path, FULL)
    file = tmp_path / (CASES if name == "case" else RESULTS)
    lines = file.read_bytes().splitlines()
    schema, seen = validator(name), {True: 0, False: 0}
    for seed in range(2000):
        rng = random.Random(seed)
        line = record_changed(rng.choice(lines), rng)
        try:
            record = Line("", line).record()
        except ExchangeError:
            continue
        is_valid = schema.is_valid(record)
        assert is_read(line, keys) == is_valid, (seed, line[:2000])
        seen[is_valid] += 1
    assert min(seen.values()) > 200


@pytest.mark.parametrize("sha256", ["\n", "0" * 64 + "\n"])
def test_a_hash_with_a_line_break_is_none_for_reader_and_schema(tmp_path, sha256):
    append_result(tmp_path, replace(FULL, sha256=sha256))
    (line,) = (tmp_path / RESULTS).read_bytes().splitlines()
    assert not validator("result").is_valid(Line("", line).record())
    assert not is_read(line, RESULT)


@pytest.mark.parametrize(("name", "keys"), [("case", CASE), ("result", RESULT)])
def test_a_schema_has_the_keys_that_are_read(name, keys):
    schema = json.loads(schemas.text(name))
    assert schema["properties"].keys() == keys.keys()
    assert schema["required"] == [key for key in keys if keys[key].required]
