"""Peak memory of one forward call in a fresh process: `memory.py CONTENDER LENGTH`.

Prints JSON: `peak`, how much the process grew beyond what it held before the call and
the output, and `counted`, what the framework itself counts, in bytes: NumPy by
tracemalloc, JAX of the compiled program, PyTorch by its profiler.  Of one head.

glibc keeps what is freed for later, the more the larger it was, and how much of it lies
in pages that nobody uses differs from run to run.  With MALLOC_TRIM_THRESHOLD_ set, as
`attention.py` does, it is given back, and the peak is of what is used.
"""

import json
import resource
import sys
import tracemalloc
from itertools import accumulate
from pathlib import Path

from contenders import CONTENDERS, WIDTH, Setup, arrays

STATUS = Path("/proc/self/status")


def main():
    """Calls once with a short input, so that all is loaded, and then measures."""
    name, length = sys.argv[1], int(sys.argv[2])
    CONTENDERS[name](Setup(1, 256))()
    setup, output = Setup(1, length), 4 * length * WIDTH
    if name.startswith("jax"):
        call, counted = of_jax(name, setup)
    else:
        call, counted = CONTENDERS[name](setup), None
    before = reset_peak()
    call()
    grown = peak() - before - output
    if name.startswith("numpy"):
        counted = traced(call) - output
    if name.startswith("torch"):
        counted = profiled(call) - output
    print(json.dumps({"peak": grown, "counted": counted}))


def traced(call):
    """The most that NumPy held at once."""
    tracemalloc.start()
    call()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def profiled(call):
    """The most that PyTorch held at once, from its record of every allocation."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        call()
    events = record.profiler.kineto_results.events()
    changes = sorted(
        (event.start_ns(), event.nbytes())
        for event in events
        if event.name() == "[memory]"
    )
    return max(accumulate(size for _, size in changes))


def of_jax(name, setup):
    """The compiled call, and the size of the temporaries that it was given."""
    import jax

    from attnref import jax as room

    function = room.attention_blocked if "blocked" in name else room.attention
    inputs = [jax.numpy.asarray(x) for x in arrays(setup)[:3]]
    compiled = jax.jit(function).lower(*inputs).compile()
    temporaries = compiled.memory_analysis().temp_size_in_bytes
    return lambda: jax.block_until_ready(compiled(*inputs)), temporaries


def reset_peak():
    """Forgets the peak so far, where the system can; gives what is held now."""
    Path("/proc/self/clear_refs").write_text("5", "utf-8")
    return peak()


def peak():
    """The most that the process has held, in bytes."""
    if STATUS.exists():
        lines = STATUS.read_text("utf-8").splitlines()
        return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM")) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
