"""Times attention: what this project has beside what frameworks bring.

    python conformance/bench/attention.py --out docs/evidence/bench.json

All that is compared at a point is called in turn, round after round, so that what else
the machine does falls on all alike; a ratio is the median of the rounds' ratios.  All
have as many threads as the process may use processors: `taskset -c 0 …` gives each one
thread, and then the seconds are the processor's, not the clock's, so that a machine
that does something else too can be used.
Memory is measured in a process of its own for every point.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from fnmatch import fnmatch
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from contenders import CONTENDERS, THREADS, Setup

TABLE = [
    Setup(8, length, dtype, causal, backward)
    for length, dtype, causal, backward in (
        (2048, "float32", False, False),
        (2048, "float32", False, True),
        (2048, "float32", True, False),
        (4096, "float32", False, False),
        (4096, "float32", False, True),
        (4096, "float32", True, False),
        (2048, "bfloat16", False, False),
    )
]
LENGTHS = [2**power for power in range(7, 15)]
CURVES = [
    Setup(1, length, causal=causal, backward=backward)
    for causal, backward in ((False, False), (True, False), (False, True))
    for length in LENGTHS
]
WHOLE_UP_TO = {8: 4096, 1: 4096}
"""Heads → the longest input of those that hold the whole matrix."""

HOLD_IT = ("textbook", "by hand", "math", "jax.nn")
"""Names, or ends of names, of those that do."""

FEW = ("numpy blocked", "torch blocked", "torch flash", "jax blocked", "jax.nn")
"""Those timed with all heads where it is not a plain forward pass in float32."""

MEMORY = [
    (name, length)
    for name in ("numpy", "torch", "jax")
    for length in (1024, 4096, 16384)
]
ROUND_SECONDS = 0.1
"""A call that is shorter is repeated until a round takes this long."""

CLOCK = "process_time" if THREADS == 1 else "perf_counter"
now = getattr(time, CLOCK)


def main():
    """Measures everything and writes it down."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("build/bench.json"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--part", choices=("points", "memory"))
    parser.add_argument("--longest", type=int, default=LENGTHS[-1])
    parser.add_argument("--only", default="*", help="contenders, such as 'numpy*'")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    found = {"machine": machine(), "points": [], "memory": []}
    if given.part and given.out.exists():
        found |= json.loads(given.out.read_text("utf-8"))
    if given.part != "memory":
        found["points"] = []
        for setup in (*TABLE, *CURVES):
            if setup.length <= given.longest:
                found["points"].append(measure(setup, given.rounds, given.only))
                write(found, given.out)
    if given.part != "points":
        found["memory"] = [
            memory(room, length)
            for room, length in MEMORY
            if length <= given.longest and fnmatch(room, given.only)
        ]
        write(found, given.out)
    print(given.out)


def write(found, path):
    """After every point: what has been measured is not lost with the rest."""
    path.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def measure(setup, rounds, only):
    """Seconds of contenders in every round, and of the products at full rate."""
    calls = {}
    for name, make in CONTENDERS.items():
        chosen = fnmatch(name, only) and applies(name, setup)
        if chosen and (call := make(setup)):
            call()  # loads, compiles
            calls[name] = call
    seconds = {name: [] for name in (*calls, "matmul limit")}
    for _ in range(rounds):
        for name, call in calls.items():
            seconds[name].append(seconds_of(call))
        seconds["matmul limit"].append(setup.flops / matmul_rate())
    medians = {n: round(statistics.median(s) * 1e3, 2) for n, s in seconds.items()}
    print(setup, medians, file=sys.stderr, flush=True)
    return {"setup": setup._asdict(), "seconds": seconds}


def applies(name, setup):
    """Whether a contender is timed at a point."""
    if name.endswith(HOLD_IT) and setup.length > WHOLE_UP_TO[setup.heads]:
        return False
    if setup.heads > 1 and setup != Setup(setup.heads, setup.length):
        return name in FEW
    return setup.heads > 1 or not name.endswith(("by hand", "math"))


def seconds_of(call):
    """How long a call takes, of as many as a round has time for."""
    count, elapsed, started = 0, 0.0, now()
    while elapsed < ROUND_SECONDS:
        call()
        count, elapsed = count + 1, now() - started
    return elapsed / count


def matmul_rate(size=1536):
    """Floating-point operations a second of one large float32 product, all threads."""
    a = np.ones((size, size), np.float32)
    return 2 * size**3 / min(seconds_of(lambda: a @ a) for _ in range(2))


GIVES_BACK = os.environ | {"MALLOC_TRIM_THRESHOLD_": str(128 * 1024)}
"""glibc gives back what is freed, instead of ever more of it being kept."""


def memory(room, length):
    """Peak growth of a fresh process, in bytes, beyond arguments and output."""
    found = {"room": room, "length": length}
    for name in ("textbook", "blocked"):
        command = [sys.executable, Path(__file__).with_name("memory.py")]
        command += [f"{room} {name}", str(length)]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env=GIVES_BACK
        )
        found[name] = json.loads(done.stdout.splitlines()[-1])
    print(found, file=sys.stderr, flush=True)
    return found


def machine():
    """What the numbers depend on."""
    packages = ("numpy", "torch", "jax", "onnxruntime", "threadpoolctl")
    return {
        "processor": processor(),
        "threads": THREADS,
        "clock": CLOCK,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "load": [round(x, 1) for x in os.getloadavg()],
        "blas": blas(),
        **{name: installed(name) for name in packages},
    }


def processor():
    """Its name, where the system says it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def blas():
    """NumPy's BLAS and the kernels that it chose."""
    from threadpoolctl import threadpool_info

    found = [x for x in threadpool_info() if x["user_api"] == "blas"]
    return [f"{x['internal_api']} {x['version']} {x['architecture']}" for x in found]


def installed(name):
    """The version of a package, or that there is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    main()
