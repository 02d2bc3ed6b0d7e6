"""Threads over blocks, with BLAS held to one thread in each."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any


def in_threads(work, jobs):
    """Calls `work` on every job, in as many threads as BLAS has.

    The products of a block are small: threads that share the blocks have more to do
    than threads that share a product.  Meanwhile BLAS has one thread, everywhere in the
    process; then it has again what the user gave it.

    Raises:
        ImportError: threadpoolctl is not installed.
    """
    jobs = list(jobs)
    with _one_blas_thread() as workers:
        if workers == 1 or len(jobs) < 2:
            for job in jobs:
                work(job)
            return
        with ThreadPoolExecutor(workers) as pool:
            for _ in pool.map(work, jobs):  # raises what a job raises
                pass


class _Held:
    """How often BLAS is being held to one thread, and what undoes it."""

    lock = Lock()
    times = 0
    workers = 1
    limit: Any = None


@contextmanager
def _one_blas_thread():
    """Holds BLAS to one thread; gives how many it had.

    Calls may overlap, in threads of the user's: the first of them takes the threads
    away and the last gives them back.
    """
    with _Held.lock:
        if _Held.times == 0:
            threads = [blas.num_threads for blas in _blas().lib_controllers]
            _Held.workers = max(threads, default=1)
            _Held.limit = _blas().limit(limits=1)
        _Held.times += 1
    try:
        yield _Held.workers
    finally:
        with _Held.lock:
            _Held.times -= 1
            if _Held.times == 0:
                _Held.limit.restore_original_limits()


@cache
def _blas():
    """The BLAS libraries of this process."""
    try:  # here, as all else in this room does without it
        from threadpoolctl import ThreadpoolController
    except ImportError as error:
        raise ImportError(
            "blocked attention in NumPy needs threadpoolctl: "
            "pip install 'attnref[numpy]'"
        ) from error
    return ThreadpoolController().select(user_api="blas")
