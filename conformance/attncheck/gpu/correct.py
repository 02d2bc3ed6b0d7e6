"""Whether each backend is right on the device, before anyone asks how fast it is."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache

from attncheck.budget import PROFILES, derive, is_void
from attncheck.case import Case
from attncheck.definition import expected
from attncheck.gpu.clock import Device
from attncheck.subject import Subject
from attncheck.suite import RECIPES
from attncheck.suite.build import build
from attncheck.suite.shapes import Shape
from attncheck.verdict import Verdict, judge
from attncheck.worker import run_case

SHAPE = Shape(b=2, h=2, g=2, i=72, j=136, d=64, e=64)
"""Of a size that kernels are made for: several tiles, and a part of one."""

EVERY = (
    "plain",
    "causal-upper-left",
    "causal-lower-right",
    "padding",
    "mask-random",
    "window",
    "bias-full",
    "scale-zero-causal",
    "scale-negative-causal",
    "empty-rows",
    "empty-rows-nan",
    "blocked-value-nan",
    "nan-query",
    "nan-key",
    "scores-rising",
    "softcap",
    "softcap-causal",
)
"""Recipes that say most of a kernel."""

FEW = ("plain", "causal-lower-right", "softcap-causal")
"""Of what has to be traced or compiled for each case."""


@dataclass(frozen=True)
class Setting:
    """A backend in one precision."""

    backend: str
    dtype: str
    profile: str
    is_tf32: bool = False

    @property
    def precision(self) -> str:
        """`F32`, `TF32`, `BF16` or `F16`."""
        return "TF32" if self.is_tf32 else self.dtype


@dataclass
class Checked:
    """What came of the cases of a setting."""

    backend: str
    precision: str
    profile: str
    passed: int = 0
    used: float = 0.0
    """The largest share of a budget in what passed."""
    failed: dict[str, str] = field(default_factory=dict)
    """Case → what is wrong."""
    refused: dict[str, str] = field(default_factory=dict)
    """Case → why."""
    left_out: int = 0
    """Cases for which no time was left, or that do not apply."""

    def add(self, verdict: Verdict) -> None:
        """Counts a verdict."""
        if verdict.status == "pass":
            self.passed += 1
            self.used = max(self.used, verdict.used)
        elif verdict.status == "refused":
            self.refused[verdict.case.id] = verdict.message
        elif verdict.status in ("not applicable", "not judged"):
            self.left_out += 1
        else:
            self.failed[verdict.case.id] = _words(verdict)


def settings() -> Iterator[Setting]:
    """Every backend in every precision, under what it may round."""
    fused = ("flash", "efficient", "cudnn", "flash-attn", "flex-compiled")
    for name in ("math", *fused, "flex"):
        yield Setting(name, "F32", "strict")
        yield Setting(name, "F32", "tf32", is_tf32=True)
        profile = "tensor-core" if name in fused else "strict"
        yield from (Setting(name, dtype, profile) for dtype in ("BF16", "F16"))


@lru_cache
def cases_of(dtype: str, names: Sequence[str]) -> list[Case]:
    """The recipes in a shape for kernels."""
    recipes = [r for r in RECIPES if r.name in names and not r.is_multi_head]
    return [
        case
        for recipe in recipes
        for case in build(recipe, [dtype], shape=SHAPE, tag="gpu")
    ]


def check(
    device: Device,
    subject_of: Callable[[str], Subject],
    limit: float,
    say: Callable[[str], None],
) -> Iterator[Checked]:
    """Judges every setting.

    Args:
        subject_of: the subject of a backend.
        limit: when, on the device's clock, no case is begun any more.
        say: called with a sentence about what is done.
    """
    for setting in settings():
        say(f"correctness: {setting.backend} {setting.precision}")
        subject = subject_of(setting.backend)
        found = Checked(setting.backend, setting.precision, setting.profile)
        few = setting.backend.startswith("flex")
        with tf32(setting.is_tf32):
            for case in cases_of(setting.dtype, FEW if few else EVERY):
                if device.now() > limit:
                    found.left_out += 1
                else:
                    found.add(verdict(subject, case, setting.profile))
        yield found


def verdict(subject: Subject, case: Case, profile: str) -> Verdict:
    """The verdict about one case under a profile."""
    want, bounds = _known(case.id, profile)
    if void := is_void(case, want, bounds):
        return Verdict(case, "not applicable", void)
    return judge(case, want, bounds, run_case(subject, case, {}))


@contextmanager
def tf32(is_on: bool) -> Iterator[None]:
    """PyTorch's products of float32 matrices, rounded to TF32 or not."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if is_on else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@cache
def _known(id: str, profile: str) -> tuple:
    """What a case must give, and how exactly."""
    dtype = id.rpartition("/")[2]
    case = next(case for case in cases_of(dtype, EVERY) if case.id == id)
    want = expected(case)
    return want, derive(case, want, PROFILES[profile]).bounds


def _words(verdict: Verdict) -> str:
    first = verdict.first_failure
    if first is None or first.worst is None:
        return verdict.message or verdict.status
    place = ", ".join(f"{axis}={at}" for axis, at in first.worst.index.items())
    return (
        f"{first.name}[{place}]: got {first.worst.got:g}, expected "
        f"{first.worst.expected:g} ({first.used:.2g} of the budget)"
    )
