"""The command line: what it prints where, what it writes, and its exit status."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

import attnref
from attncheck import __main__, minilm
from attncheck.__main__ import NEEDS
from attncheck.cache import Cache
from attncheck.case import DTYPES
from attncheck.choose import choose
from attncheck.clauses import CLAUSES, OPERATION_CLAUSES
from attncheck.cli import app, places
from attncheck.exchange import CASES, RESULTS, read_cases
from attncheck.frameworks import NAMES
from attncheck.suite import SETS, cases, operation_cases
from attncheck.target import BUILT_IN
from attncheck.variants import BY_NAME

RIGHT = "attnref.numpy"
FEW = ("--case", "softcap*", "--dtype", "F32")
NUMBER = sum(case.id.startswith("softcap") for case in cases(dtypes=("F32",)))

SOURCE = """
import numpy
import attnref.numpy as room

def zeros(q, k, v, *, softcap=None, bias=None, mask=None, scale=None):
    print("noise on stdout")
    return numpy.zeros(q.shape[:-1] + v.shape[-1:], q.dtype)

def refuses(q, k, v, *, softcap=None, bias=None, mask=None, scale=None):
    raise NotImplementedError("softcap above 1")

def takes_little(q, k, v):
    return zeros(q, k, v)

def renamed(q, k, v, attn_mask=None, is_causal=False, *, softcap=None):
    return room.attention(q, k, v, mask=attn_mask, softcap=softcap)

def half(q, k, v, *, softcap=None):
    if softcap is not None:
        return zeros(q, k, v)
    k, v = (numpy.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** -0.5)
    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """An empty folder to be in, without the real model, which takes seconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(minilm, "available", lambda: "left out by the test")
    (tmp_path / "mine.py").write_text(SOURCE, "utf-8")
    return tmp_path


def attncheck(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def one_line(text):
    return " ".join(text.split())


def test_a_right_subject_conforms():
    ended = attncheck("run", RIGHT, *FEW)
    assert ended.exit_code == 0, ended.output
    assert one_line(ended.stdout).endswith(f"{RIGHT} conforms: {NUMBER} pass")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("zeros", f"does not conform: {NUMBER} fail"),
        ("refuses", f"does not conform: {NUMBER} refused"),
        ("takes_little", f"does not conform: {NUMBER} not applicable"),
    ],
)
def test_a_subject_that_is_wrong_or_not_judged_does_not_conform(name, says):
    ended = attncheck("run", f"mine.py:{name}", *FEW)
    assert ended.exit_code == 1, ended.output
    assert one_line(ended.stdout).endswith(says)


def test_parameters_that_are_never_given_are_named_with_what_they_may_be(place):
    chosen = ("--case", "causal-square/*", "--dtype", "F32")
    ended = attncheck("run", "mine.py:renamed", *chosen, "--json", "r.json")
    assert ended.exit_code == 1
    shown = one_line(ended.stdout)
    assert "left at their defaults: attn_mask, is_causal attn_mask may be" in shown
    assert "a causal mask or a window comes as a mask" in shown
    (option,) = re.findall(r"--accepts (\S+);", shown)
    (subject,) = json.loads((place / "r.json").read_text("utf-8"))["subjects"]
    assert subject["ignored"] == ["attn_mask", "is_causal"]
    assert subject["accepts"] == {"softcap": "softcap"}
    ended = attncheck("run", "mine.py:renamed", *chosen, "--accepts", option)
    assert ended.exit_code == 0, ended.output
    shown = one_line(ended.stdout)
    assert "left at its default: is_causal a causal mask" in shown
    assert shown.endswith("mine.py:renamed conforms: 1 pass")


def test_json_is_all_that_stdout_holds():
    ended = attncheck("run", "mine.py:zeros", *FEW, "--format", "json")
    assert ended.exit_code == 1
    report = json.loads(ended.stdout)
    assert report["subjects"][0]["counts"] == {"fail": NUMBER}
    assert report["model_missing"] == "left out by the test"


def test_reports_are_written_beside_the_text(place):
    ended = attncheck("run", RIGHT, *FEW, "--json", "r.json", "--html", "r.html")
    assert ended.exit_code == 0
    assert "conforms" in ended.stdout
    assert json.loads((place / "r.json").read_text("utf-8"))["conforms"] is True
    assert RIGHT in (place / "r.html").read_text("utf-8")


def test_only_the_cases_that_match_are_run(place):
    attncheck("run", RIGHT, "--case", "causal-*", "--dtype", "F16", "--out", "out")
    wanted = [c.id for c in cases(dtypes=("F16",)) if c.id.startswith("causal-")]
    assert [case.id for case in read_cases(place / "out")] == wanted


def test_a_case_without_a_dtype_means_all_of_its_dtypes(place):
    attncheck("export", "out", "--case", "decode")
    ids = {case.id for case in read_cases(place / "out")}
    assert ids == {f"decode/{dtype}" for dtype in DTYPES}


def test_results_are_kept_and_resumed_only_when_asked(place):
    run = ("run", RIGHT, *FEW, "--out", "out")
    attncheck(*run)
    results = place / "out" / RESULTS
    lines = results.read_text("utf-8").splitlines(keepends=True)
    results.write_text("".join(lines[:2]) + '{"id": "torn', "utf-8")
    assert attncheck(*run, "--resume").exit_code == 0
    resumed = results.read_text("utf-8").splitlines(keepends=True)
    assert len(resumed) == NUMBER
    assert resumed[:2] == lines[:2]
    attncheck(*run)
    assert len(results.read_text("utf-8").splitlines()) == NUMBER


def test_subjects_are_compared_in_pairs():
    ended = attncheck("run", RIGHT, "mine.py:zeros", *FEW, "--format", "json")
    assert ended.exit_code == 1
    report = json.loads(ended.stdout)
    assert [s["conforms"] for s in report["subjects"]] == [True, False]
    (pair,) = report["agreement"]
    assert (pair["a"], pair["b"]) == (RIGHT, "mine.py:zeros")
    assert pair["cases"] == NUMBER
    assert float(pair["worst"]) > 1


def test_the_cache_is_tidied_when_the_verdict_is_printed(monkeypatch):
    def prune(cache, progress):
        print("pruned")
        for files in range(3):
            progress(files)
        raise KeyboardInterrupt

    monkeypatch.setattr(Cache, "prune", prune)
    for target, status in ((RIGHT, 0), ("mine.py:zeros", 1)):
        for patience, notes in ((1e9, 0), (-1, 1)):
            monkeypatch.setattr(places, "PATIENCE", patience)
            ended = attncheck("run", target, "--case", "plain/F32")
            assert ended.exit_code == status
            (*_, verdict, last) = ended.stdout.splitlines()
            assert "conform" in verdict
            assert last == "pruned"
            assert ended.stderr.count("done, but for tidying the cache") == notes


WAIVER = "[[waiver]]\ncase = 'softcap*'\nreason = 'no softcap yet'\n"


def test_a_subject_whose_failures_are_waived_conforms(place):
    (place / "w.toml").write_text(WAIVER + "result = 'output'\n", "utf-8")
    chosen = ("--case", "[ps]*t*", "--dtype", "F32")
    run = ("run", "mine.py:half", *chosen, "--out", "out")
    assert attncheck(*run).exit_code == 1
    reports = ("--json", "r.json", "--html", "r.html", "--waivers", "w.toml")
    for ended in (attncheck(*run, *reports), attncheck("judge", "out", *reports)):
        assert ended.exit_code == 0, ended.output
        (subject,) = json.loads((place / "r.json").read_text("utf-8"))["subjects"]
        waived = subject["counts"]["waived"]
        shown = one_line(ended.stdout)
        assert f"(and {waived - 1} more cases): no softcap yet" in shown
        assert re.search(rf"mine.py:half conforms: .*, {waived} waived", shown)
        reasons = {(f["status"], f["waived"]) for f in subject["failures"]}
        assert reasons == {("waived", "no softcap yet")}
        assert float(subject["dtypes"]["F32"]["used"]) < 1
        assert "Waived: no softcap yet" in (place / "r.html").read_text("utf-8")


def test_what_is_waived_and_passes_does_not_conform_and_is_named(place):
    (place / "w.toml").write_text(WAIVER, "utf-8")
    ended = attncheck("run", RIGHT, *FEW, "--waivers", "w.toml", "--html", "r.html")
    assert ended.exit_code == 1
    shown = one_line(ended.stdout)
    assert "waived but passes softcap" in shown
    assert "delete the waiver: no softcap yet" in shown
    assert shown.endswith(f"does not conform: {NUMBER} waived but passes")
    page = (place / "r.html").read_text("utf-8")
    assert "Delete the waiver: no softcap yet" in page


def test_a_waiver_about_no_case_is_named(place):
    (place / "w.toml").write_text(WAIVER.replace("softcap*", "sofcap*"), "utf-8")
    ended = attncheck("run", RIGHT, *FEW, "--waivers", "w.toml")
    assert ended.exit_code == 0
    assert "w.toml: no case matches 'sofcap*'" in ended.stderr


def test_pyproject_says_what_to_judge_and_how(place):
    table = "[tool.attncheck]\nsubject = 'mine.py:zeros'\ndtype = 'F32'\n"
    (place / "w.toml").write_text(WAIVER, "utf-8")
    (place / "pyproject.toml").write_text(table + "waivers = 'w.toml'\n", "utf-8")
    ended = attncheck("run", "--case", "softcap*")
    assert one_line(ended.stdout).endswith(f"does not conform: {NUMBER} waived")
    ended = attncheck("run", RIGHT, "--case", "plain/*", "--dtype", "BF16")
    assert one_line(ended.stdout).endswith(f"{RIGHT} conforms: 1 pass")
    attncheck("export", "out", "--case", "plain/*")
    assert [case.id for case in read_cases(place / "out")] == ["plain/F32"]


def test_results_in_files_are_judged_as_they_were_here(place):
    ran = attncheck("run", RIGHT, *FEW, "--out", "out", "--format", "json")
    judged = attncheck("judge", "out", "--format", "json")
    assert judged.exit_code == ran.exit_code == 0
    assert json.loads(judged.stdout) == json.loads(ran.stdout)


def test_results_that_were_cut_short_do_not_conform(place):
    attncheck("run", RIGHT, *FEW, "--out", "out")
    results = place / "out" / RESULTS
    lines = results.read_text("utf-8").splitlines(keepends=True)
    results.write_text("".join(lines[:-1]), "utf-8")
    ended = attncheck("judge", "out")
    assert ended.exit_code == 1
    says = f"{RIGHT} does not conform: {NUMBER - 1} pass, 1 not judged"
    assert one_line(ended.stdout).endswith(says)


def test_two_folders_of_which_one_was_cut_short_are_judged(place):
    attncheck("run", RIGHT, *FEW, "--out", "a")
    shutil.copytree(place / "a", place / "b")
    (place / "b" / RESULTS).write_text("", "utf-8")
    ended = attncheck("judge", "a", "b", "--format", "json")
    assert ended.exit_code == 1
    assert json.loads(ended.stdout)["agreement"][0]["cases"] == 0


def test_exported_cases_are_those_of_the_set(place):
    ended = attncheck("export", "out", "--dtype", "F32", "--dtype", "BF16")
    assert ended.exit_code == 0
    dtypes = ("F32", "BF16")
    want = cases(dtypes=dtypes) + operation_cases(dtypes=dtypes)
    assert {c.sha256 for c in read_cases(place / "out")} == {c.sha256 for c in want}
    assert f"{len(want)} cases in out; results go to out/{RESULTS}" in ended.stderr
    assert "real cases: not exported: left out by the test" in ended.stderr


def test_list_shows_subjects_clauses_sets_and_faults():
    ended = attncheck("list")
    assert ended.exit_code == 0
    shown = one_line(ended.stdout)
    assert f"faults: {len(BY_NAME)}" in shown
    for name in BY_NAME:
        assert name in shown
    clauses = (*CLAUSES, *OPERATION_CLAUSES)
    for name in (*BUILT_IN, *(clause.name for clause in clauses)):
        assert name in ended.stdout
    for name in SETS:
        count = len(cases(name)) + len(operation_cases(name))
        assert f"set {name}: {count} cases" in ended.stdout
    asked = [case for case in choose("smoke") if not case.id.startswith("real/")]
    assert f"({len(asked)} in a run of all types)" in ended.stdout
    assert "set smoke" not in attncheck("list", "--set", "full").stdout


def test_list_shows_the_cases_of_a_clause_and_why_they_are_there():
    ended = attncheck("list", "--clause", "head-order")
    assert ended.exit_code == 0
    listed = {c.id: c for c in cases() if "head-order" in c.clauses}
    names = {id.rpartition("/")[0] for id in listed}
    assert {line.split()[0] for line in ended.stdout.splitlines()} >= names
    assert listed["heads-apart/F32"].why in one_line(ended.stdout)
    assert "no-keys" not in ended.stdout
    assert "no-keys" in attncheck("list", "--cases").stdout
    assert "plain@seed1" in attncheck("list", "--cases", "--set", "full").stdout


def test_an_interruption_while_it_is_imported_is_silent(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(__main__, "_import_numpy", interrupted)
    monkeypatch.setattr(sys, "argv", ["attncheck", "doctor"])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == ""


def test_the_version_is_shown():
    ended = attncheck("--version")
    assert (ended.exit_code, ended.stdout) == (0, f"attncheck {attnref.__version__}\n")


def test_doctor_shows_what_is_installed():
    ended = attncheck("doctor")
    assert ended.exit_code == 0
    for name in ("python", "attnref", "safetensors", *(f"room {n}" for n in NAMES)):
        assert name in ended.stdout
    absent = sum(find_spec(name) is None for name in NAMES)
    assert ended.stdout.count("not installed") >= absent
    assert "left out by the test" in one_line(ended.stdout)


USAGE = {
    "no target": (["run"], "Missing argument"),
    "option": (["run", RIGHT, "--nonsense"], "No such option"),
    "command": (["nonsense"], "No such command"),
    "set": (["run", RIGHT, "--set", "huge"], "huge"),
    "dtype": (["run", RIGHT, "--dtype", "F8"], "F8"),
    "profile": (["run", RIGHT, "--profile", "loose"], "loose"),
    "framework": (["run", RIGHT, "--framework", "tf"], "tf"),
    "timeout": (["run", RIGHT, "--timeout", "0"], "0"),
    "case": (["run", RIGHT, "--case", "zzz"], "'zzz'; `attncheck list --cases` shows"),
    "near case": (["run", RIGHT, "--case", "softcp*"], "did you mean 'softcap'?"),
    "near id": (["run", RIGHT, "--case", "decode/f32"], "did you mean 'decode/F32'?"),
    "case of a dtype": (
        ["run", RIGHT, "--case", "decode/F32", "--dtype", "F16"],
        "no case of the set smoke matches 'decode/F32' in F16: did you mean",
    ),
    "clause as case": (
        ["run", RIGHT, "--case", "head-order"],
        "it is a clause, of which `attncheck list --cases --clause head-order` shows",
    ),
    "case of a set": (["run", RIGHT, "--case", "plain@seed1"], "the set full has some"),
    "real case": (["run", RIGHT, "--case", "real*"], "no real cases: left out by"),
    "file": (["run", "none.py:f"], "there is no file 'none.py'"),
    "name": (["run", "mine.py:f"], "has no 'f'; it has half, refuses"),
    "module": (["run", "no.such:f"], "'no.such' cannot be imported"),
    "built-in": (["run", "attnref.nonsuch"], "neither a built-in subject"),
    "no folder": (["judge", "none"], f"none holds no {CASES}"),
    "report": (["run", RIGHT, *FEW, "--html", "no/r.html"], "no/r.html"),
    "json": (["run", RIGHT, *FEW, "--json", "no/r.json"], "no/r.json"),
    "out": (["run", RIGHT, *FEW, "--out", "mine.py"], "mine.py"),
    "export": (["export", "mine.py"], "attncheck: 'mine.py/cases': Not a directory"),
    "near target": (["run", "attnref.nunpy"], "did you mean 'attnref.numpy'?"),
    "near profile": (["run", RIGHT, "--profile", "strcit"], "did you mean 'strict'?"),
    "set of a list": (["list", "--set", "huge"], "set is one of smoke, full, not"),
    "clause in a dtype": (["run", RIGHT, "--case", "causal/F32"], "it is a clause"),
    "resume": (["run", RIGHT, "--resume"], "say which, with --out"),
    "resume a board": (["board", "--resume"], "say which, with --out"),
    "a folder as a file": (["run", RIGHT, "--html", "."], "'.' is a folder"),
    "a part twice": (
        ["fingerprint", RIGHT, "--map", "mask=a", "--map", "mask=b"],
        "--map gives 'mask' twice, as 'a' and as 'b'",
    ),
    "near clause": (["list", "--clause", "scors"], "did you mean 'scores'?"),
    "clause": (["list", "--clause", "zzz"], "no clause 'zzz'; `attncheck list`"),
    "waivers": (
        ["run", RIGHT, "--waivers", "none.toml"],
        "attncheck: there is no file of waivers 'none.toml'",
    ),
    "folder of waivers": (
        ["run", RIGHT, "--waivers", "."],
        "attncheck: . cannot be read: Is a directory",
    ),
    "judge waivers": (["judge", ".", "--waivers", "mine.py"], "mine.py: "),
}


@pytest.mark.parametrize(("arguments", "says"), USAGE.values(), ids=USAGE)
def test_wrong_usage_ends_with_status_2_and_says_why(arguments, says):
    ended = attncheck(*arguments)
    assert ended.exit_code == 2, ended.output
    assert says in one_line(ended.stderr)
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_a_folder_without_results_is_wrong_usage():
    attncheck("export", "out", *FEW)
    ended = attncheck("judge", "out")
    assert ended.exit_code == 2
    assert f"out holds no {RESULTS}" in ended.stderr


def test_without_a_command_the_help_is_shown():
    ended = attncheck()
    assert ended.exit_code == 2
    for command in ("run", "judge", "export", "list", "doctor"):
        assert command in ended.output


def test_a_wrong_scale_in_a_room_is_reported_with_room_case_and_step(place):
    room = place / "other_room"
    source = Path(attnref.__file__).parent / "numpy"
    shutil.copytree(source, room, ignore=shutil.ignore_patterns("__pycache__"))
    file, right = room / "attention.py", 'scale = sizes["d"] ** -0.5'
    text = file.read_text("utf-8")
    assert text.count(right) == 1
    file.write_text(text.replace(right, 'scale = sizes["d"] ** -1'), "utf-8")
    (place / "target.py").write_text(
        "import other_room\n"
        "from attncheck.subjects.attnref import subject_of\n"
        'subject = subject_of(other_room, "numpy")\n',
        "utf-8",
    )
    chosen = ("--case", "plain*", *(f"--dtype={dtype}" for dtype in DTYPES))
    ended = attncheck("run", RIGHT, "target:subject", *chosen, "--html", "r.html")
    assert ended.exit_code == 1
    shown = one_line(ended.stdout)
    assert "first step that diverges: scale" in shown
    assert "logits[b=" in shown
    assert "plain/" in shown
    assert f"{RIGHT} conforms: 4 pass other_room does not conform: 4 fail" in shown
    page = one_line((place / "r.html").read_text("utf-8"))
    assert "first step that diverges is <strong>scale</strong>" in page


def module(*arguments, env=None):
    """`python -m attncheck`, in a process of its own."""
    command = [sys.executable, "-m", "attncheck", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env)


def test_the_module_is_the_command():
    ended = module("run", RIGHT, "--case", "plain*", "--dtype", "F32", "--format=json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["conforms"] is True


@pytest.mark.parametrize(("variable", "colours"), [("NO_COLOR", 0), ("TERM", 1)])
def test_no_color_is_honoured(variable, colours):
    without = {k: x for k, x in os.environ.items() if k != "NO_COLOR"}
    environment = without | {"FORCE_COLOR": "1", variable: "xterm"}
    ended = module("judge", "none", env=environment)
    assert ended.returncode == 2
    assert ended.stderr.count("\x1b[31m") == colours


def test_what_is_not_installed_is_named_with_how_to_install_it():
    program = (
        "import importlib.util, sys\n"
        "importlib.util.find_spec = lambda name: None\n"
        "from attncheck.__main__ import main\n"
        "main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert (
        f"attncheck needs {', '.join(NEEDS)}: pip install 'attnref[check]'"
        in ended.stderr
    )
