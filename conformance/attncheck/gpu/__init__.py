"""`attncheck gpu`: PyTorch's fused backends on this machine's GPU.

First whether they are right, then how fast they are.  It needs PyTorch, NumPy, einops,
ml-dtypes and safetensors, and neither a network nor an installed attncheck:

    PYTHONPATH=impls:conformance python -m attncheck gpu --out build/gpu
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

NEEDS = ("numpy", "einops", "ml_dtypes", "safetensors")

SECONDS = 170.0
"""How long all of it may take by default: no case or shape is begun later."""

FOR_CORRECTNESS = 0.6
"""The share of that time after which no case is begun."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs it; the exit status: 0, or 1 where a backend is wrong, or 2.

    Without a device it says so, in one sentence, and that is no failure.
    """
    parser = argparse.ArgumentParser(
        prog="attncheck gpu",
        description="Judge and time the fused backends on a GPU.",
        epilog="Exit status: 0 right, or no device to run on; 1 wrong; 2 environment.",
    )
    parser.add_argument("--out", type=Path, help="a folder for gpu.json and gpu.txt")
    allowed = f"how long all of it may take; {SECONDS:g} by default"
    parser.add_argument("--seconds", type=float, default=SECONDS, help=allowed)
    given = parser.parse_args(argv)
    if find_spec("torch") is None:
        print("attncheck gpu: not run: torch is not installed")
        return 0
    import torch

    if not torch.cuda.is_available():
        print(f"attncheck gpu: not run: torch {torch.__version__} finds no CUDA device")
        return 0
    if lacking := [name for name in NEEDS if find_spec(name) is None]:
        print(f"attncheck gpu needs {', '.join(lacking)}", file=sys.stderr)
        return 2
    return _measure(given.out, given.seconds)


def _measure(out: Path | None, seconds: float) -> int:
    import torch

    from attncheck.gpu import clock, correct, page, work
    from attncheck.subjects.sdpa import subject

    torch.set_default_device("cuda")
    device, when = clock.Cuda(), time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    begun = device.now()
    until = begun + seconds * FOR_CORRECTNESS
    checked = list(correct.check(device, subject, until, _say))
    timed = list(work.timings(device, begun + seconds, _say))
    took = device.now() - begun
    found = page.document(when, work.machine(), checked, timed, took)
    text = "\n".join(page.lines(found)) + "\n"
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "gpu.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        (out / "gpu.txt").write_text(text, "utf-8")
    print(text, end="")
    return 1 if any(one.failed for one in checked) else 0


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
