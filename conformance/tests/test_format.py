"""The page about the files is true: its example conforms, its tables are the code's."""

import json
import re
from pathlib import Path

import pytest

from attncheck.arrays import read_arrays
from attncheck.budget import PROFILES
from attncheck.case import AXES, DTYPES, INTERMEDIATES, OPTIONAL, REQUIRED, RESULTS
from attncheck.exchange import CASES, LARGEST
from attncheck.exchange import RESULTS as RESULTS_FILE
from attncheck.judging import Folder, Judge
from attncheck.lines import DIGITS, LIMIT
from attncheck.operations import OPERATIONS
from attncheck.records import CASE, RESULT, STATUSES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "format.md").read_text("utf-8")
BLOCKS = re.findall(r"(?ms)^```\w*\n(.*?)^```$", PAGE)
SECTIONS = dict(
    re.findall(r"^##+ (.*?)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
)


def first_cells(section):
    """The names in the first column of a section's tables."""
    cells = re.findall(r"^\| (`.*?) \|", SECTIONS[section], re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([\w ]+)`", cell)]


def rows(section):
    """The first two cells of a section's tables, row by row."""
    return re.findall(r"^\| (`.*?) \| (`.*?) \|", SECTIONS[section], re.MULTILINE)


def bytes_of(block):
    """A file that is shown as bytes with remarks, and as lines of a header."""
    parts = [
        line.encode() if line[0] in '{"' else bytes.fromhex(line.partition("   ")[0])
        for line in block.splitlines()
    ]
    return b"".join(parts)


@pytest.fixture
def example(tmp_path):
    """The folder that the page shows."""
    case, arrays, result, results = BLOCKS[-4:]
    for name, text in ((CASES, case), (RESULTS_FILE, result)):
        (tmp_path / name).write_text(json.dumps(json.loads(text)) + "\n", "utf-8")
    for name, text in ((CASES, arrays), (RESULTS_FILE, results)):
        record = json.loads((tmp_path / name).read_text("utf-8"))
        file = tmp_path / record["file"]
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(bytes_of(text))
    return tmp_path


def test_the_example_conforms(example):
    folder = Folder.read(example)
    run = Judge().run(folder)
    assert run.conforms
    assert run.damage == ()
    assert {finding.status for finding in run.verdicts[0].findings} == {"pass"}
    assert run.subject == {"name": "my kernel", "profile": "strict"}


def test_the_remarks_beside_the_bytes_are_what_they_hold(example):
    (case,) = Folder.read(example).cases
    remarks = dict(re.findall(r"  (\w+): (.*)$", BLOCKS[-3] + BLOCKS[-1], re.MULTILINE))
    arrays = {**case.inputs, **read_arrays(example / "tiny.safetensors")}
    assert remarks.keys() == arrays.keys()
    for name, array in arrays.items():
        shown = [x.replace("−∞", "-inf") for x in re.split(r"[ ,]+", remarks[name])]
        held = [str(x) if array.dtype == bool else f"{x:.7g}" for x in array.ravel()]
        assert shown == held


def test_every_key_is_in_its_table():
    assert set(first_cells("A case")) == CASE.keys()
    keys = set(first_cells("A line of results")) - set(STATUSES)
    assert keys == RESULT.keys() - {"outputs"}


def test_every_status_profile_and_limit_is_named():
    said = SECTIONS["A line of results"]
    for name in (*STATUSES, *PROFILES):
        assert f"`{name}`" in said
    assert all(f"`{dtype}`" in SECTIONS["A case"] for dtype in DTYPES)
    assert f"more than {DIGITS} digits" in SECTIONS["Lines"]
    assert LARGEST == 2**26
    assert LIMIT == 2**30
    assert "2²⁶" in SECTIONS["What is damaged"]
    assert "1 GiB" in SECTIONS["What is damaged"]


def test_every_input_and_its_axes_are_in_the_tables():
    found = {}
    for cells in rows("Arrays"):
        names, axes = (re.findall(r"`([\w ]+)`", cell) for cell in cells)
        axes = axes * len(names) if len(axes) == 1 else axes
        found |= {
            name: x.replace(" ", "") for name, x in zip(names, axes, strict=False)
        }
    ops = REQUIRED.keys() - OPERATIONS.keys()
    known = {name for op in ops for name in REQUIRED[op] + OPTIONAL[op]}
    assert {name: found.get(name) for name in known} == {n: AXES[n] for n in known}


def test_every_operation_has_its_inputs_their_axes_and_its_options_in_a_row():
    lines = re.findall(
        r"^\| `(\w+)` \| (.*)", SECTIONS["Other operations"], re.MULTILINE
    )
    lines = lines[1:]  # below its head
    assert [op for op, _ in lines] == list(OPERATIONS)
    for op, rest in lines:
        inputs, settings, _ = re.split(r" ?(?<!\\)\| ", rest, maxsplit=2)
        said = re.findall(r"`(\w+)` `([\w ]+)`", inputs)
        own = OPERATIONS[op].required | OPERATIONS[op].optional
        own |= {"x": "bic"} if "x" in OPERATIONS[op].operands else {}
        assert {name: axes.replace(" ", "") for name, axes in said} == own
        named = re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", settings))
        assert set(named) == OPERATIONS[op].settings.keys()


def test_every_result_and_its_axes_are_in_the_table():
    names = first_cells("Results")
    assert set(names) - {"dtable"} == set(RESULTS)
    assert "`b n i e`" in SECTIONS["Results"]
    assert {AXES[name] for name in INTERMEDIATES} == {"bnij"}


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", PAGE))
def test_every_link_leads_somewhere(link):
    assert (ROOT / "docs" / link).exists()
