"""The wheel holds the two packages and nothing else, and works where it is put."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"attnref": ROOT / "impls", "attncheck": ROOT / "conformance"}


def run(*command, **options):
    ended = subprocess.run(command, capture_output=True, text=True, **options)
    assert ended.returncode == 0, ended.stderr
    return ended


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    run(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        folder,
        cwd=ROOT,
    )
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder with the wheel installed in it, without what it depends on."""
    folder = tmp_path_factory.mktemp("site")
    pip = (sys.executable, "-m", "pip", "install", "--no-deps", "--no-index")
    run(*pip, "--quiet", "--disable-pip-version-check", "--target", folder, wheel)
    return folder


def python(installed, program):
    """Runs a program with the installed packages in front of all others."""
    front = f"import sys; sys.path.insert(0, {str(installed)!r})\n"
    # -I: neither the folder that it runs in nor PYTHONPATH counts.
    return run(sys.executable, "-I", "-c", front + program, cwd=installed.parent)


def test_the_wheel_is_for_every_machine(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")


def test_the_wheel_holds_the_two_packages_file_by_file(wheel):
    sources = {
        file.relative_to(root).as_posix()
        for name, root in PACKAGES.items()
        for file in (root / name).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    held = set(zipfile.ZipFile(wheel).namelist())
    info = {name for name in held if name.partition("/")[0].endswith(".dist-info")}
    assert held - info == sources
    assert "attncheck/report/page.html.j2" in held
    assert not [name for name in held if "test" in Path(name).stem.split("_")]


def test_the_wheel_carries_its_licence_and_its_command(wheel):
    archive = zipfile.ZipFile(wheel)
    (licence,) = (n for n in archive.namelist() if n.endswith("licenses/LICENSE"))
    assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
    (entries,) = (n for n in archive.namelist() if n.endswith("entry_points.txt"))
    assert b"attncheck = attncheck.__main__:main" in archive.read(entries)
    assert b"[pytest11]\nattncheck = attncheck.pytest_plugin" in archive.read(entries)


def test_both_packages_are_imported_from_where_they_are_installed(installed):
    program = "import attnref, attncheck; print(attnref.__file__, attncheck.__file__)"
    files = python(installed, program).stdout.split()
    assert files == [str(installed / name / "__init__.py") for name in PACKAGES]


@pytest.mark.parametrize("name", ["impls", "conformance"])
def test_a_source_root_is_no_package(installed, name):
    program = (
        "from importlib.util import find_spec\n"
        f"found = find_spec({name!r})\n"
        "assert found is None, found\n"
    )
    python(installed, program)


def test_pytest_finds_the_installed_plugin_and_its_cases(installed, tmp_path):
    program = (
        "import os, pytest\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "pytest.main(['--pyargs', 'attncheck', '--attn-subject', 'my:f', '--co', '-q'])"
    )
    listed = python(installed, program).stdout.splitlines()
    assert "attncheck.conformance::my:f::causal-square/F32" in listed
    assert listed[-1].startswith(f"{sum('::' in line for line in listed)} tests")


def test_the_installed_judge_judges_and_writes_its_page(installed, tmp_path):
    page = tmp_path / "r.html"
    program = (
        "from attncheck.report import as_html, summary\n"
        "from pathlib import Path\n"
        f"Path({str(page)!r}).write_text(as_html(summary([])), 'utf-8')\n"
    )
    python(installed, program)
    assert page.read_text("utf-8").startswith("<!doctype html>")
