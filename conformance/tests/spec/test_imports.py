"""Absence is proved: what must not import a framework does not."""

import subprocess
import sys

import pytest

PROBE = """
import sys
import {module}
found = [name for name in {absent} if name in sys.modules]
raise SystemExit(f"{module} imports {{', '.join(found)}}" if found else 0)
"""


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("attnref", ("numpy", "torch", "jax")),
        ("attnref.spec", ("numpy", "torch", "jax")),
        ("attnref.spec.checks", ("numpy", "torch", "jax")),
        ("attnref.spec.weights", ("numpy", "torch", "jax", "einops")),
        ("attnref.numpy", ("torch", "jax")),
        ("attncheck", ("torch", "jax")),
        ("attncheck.frameworks", ("torch", "jax")),
        ("attncheck.case", ("torch", "jax")),
    ],
)
def test_importing_it_imports_no_framework(module, absent):
    probe = PROBE.format(module=module, absent=absent)
    ended = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
