"""Subjects that do to their process, and to the judge's files, what subjects may do.

Each is right but at one case, that with a single query, where it does what it is named
for.  The folder of the run is in the environment, as a subject finds it by its working
directory or by chance.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy

from attnref.numpy import attention


def at_decode(act):
    """A subject that does something else with a single query."""

    def call(q, k, v):
        return attention(q, k, v) if q.shape[2] > 1 else act(q, k, v)

    return call


def folder():
    return Path(os.environ["HOSTILE_FOLDER"])


@at_decode
def segfault(q, k, v):
    ctypes.string_at(0)


@at_decode
def aborts(q, k, v):
    os.abort()


@at_decode
def killed(q, k, v):
    os.kill(os.getpid(), signal.SIGKILL)


@at_decode
def exits(q, k, v):
    os._exit(0)


@at_decode
def leaves(q, k, v):
    sys.exit("enough")


@at_decode
def interrupts(q, k, v):
    raise KeyboardInterrupt


@at_decode
def raises(q, k, v):
    raise ArithmeticError("no such number")


@at_decode
def recurses(q, k, v):
    return recurses_for_ever(q)


def recurses_for_ever(q):
    return recurses_for_ever(q)


@at_decode
def hangs(q, k, v):
    """In C, where no thread of Python's gets a turn."""
    ctypes.PyDLL(None).sleep(600)


@at_decode
def stops(q, k, v):
    os.kill(os.getpid(), signal.SIGSTOP)


@at_decode
def eats(q, k, v):
    held = []
    while True:
        held.append(numpy.ones(2**22))  # 32 MiB that are resident
        time.sleep(0.005)


@at_decode
def eats_in_a_child(q, k, v):
    program = "import time; held = b'x' * 2**29; time.sleep(600)"
    subprocess.run([sys.executable, "-c", program])


@at_decode
def wrong_type(q, k, v):
    return attention(q, k, v).tolist()


@at_decode
def wrong_shape(q, k, v):
    return attention(q, k, v)[..., 0]


@at_decode
def wrong_dtype(q, k, v):
    return attention(q, k, v).astype(numpy.float64)


@at_decode
def mutates(q, k, v):
    output = attention(q, k, v)
    v *= 2
    return output


@at_decode
def aliases(q, k, v):
    """In the memory of `k`, and so in nobody's if `k` is used again."""
    output = k.reshape(-1)[: q.size // q.shape[-1] * v.shape[-1]]
    return output.reshape(*q.shape[:-1], v.shape[-1])


@at_decode
def prints(q, k, v):
    print('{"task": "1", "answer": {}}', flush=True)
    os.write(1, b'{"task": "1", "answer": {}}\n')
    return attention(q, k, v)


@at_decode
def leaves_threads(q, k, v):
    threading.Thread(target=time.sleep, args=(600,), name="busy").start()
    return attention(q, k, v)


@at_decode
def closes_files(q, k, v):
    os.closerange(3, 256)
    return attention(q, k, v)


@at_decode
def forges(q, k, v):
    """Writes into every file that is open, the one for answers among them."""
    for number in range(3, 256):
        try:
            os.write(number, b'{"id": "forged"}\n' * 9)
        except OSError:
            continue
    return attention(q, k, v)


@at_decode
def deletes(q, k, v):
    shutil.rmtree(folder(), ignore_errors=True)
    return attention(q, k, v)


@at_decode
def overwrites(q, k, v):
    for path in [p for p in folder().rglob("*") if p.is_file() and p.name != "lock"]:
        path.write_bytes(b"mine")
    return attention(q, k, v)


@at_decode
def deletes_and_dies(q, k, v):
    shutil.rmtree(folder(), ignore_errors=True)
    os._exit(7)
