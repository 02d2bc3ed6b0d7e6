"""Threads and memory of blocked attention."""

import tracemalloc
from threading import Thread

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from attnref.numpy import attention_blocked, attention_blocked_vjp
from attnref.numpy.threads import in_threads

BLAS = ThreadpoolController().select(user_api="blas")


def blas_threads():
    return [library.num_threads for library in BLAS.lib_controllers]


@pytest.fixture(params=[1, 3])
def given_threads(request):
    with threadpool_limits(request.param, user_api="blas"):
        yield blas_threads()


def test_blas_has_one_thread_meanwhile_and_then_its_own(given_threads):
    seen = []
    in_threads(lambda job: seen.append((job, blas_threads())), range(7))
    assert sorted(job for job, _ in seen) == list(range(7))
    assert all(threads == [1] * len(given_threads) for _, threads in seen)
    assert blas_threads() == given_threads


def test_blas_has_its_threads_again_after_an_error(given_threads):
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda job: 1 / job, [1, 0, 1])
    assert blas_threads() == given_threads


def test_calls_may_overlap(given_threads):
    q = np.random.default_rng(0).standard_normal((1, 4, 64, 8), np.float32)
    callers = [
        Thread(target=attention_blocked, args=(q, q, q), kwargs={"block_q": 4})
        for _ in range(8)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert blas_threads() == given_threads


def test_threads_change_no_bit():
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 1, 4, 50, 8), np.float32)
    bias = rng.standard_normal((1, 1, 50, 1), np.float32)
    options = {"bias": bias, "block_q": 8, "block_k": 16}
    found = []
    for threads in (1, 4):
        with threadpool_limits(threads, user_api="blas"):
            gradients = attention_blocked_vjp(q, q, k, v, **options)
            found.append([*attention_blocked(q, k, v, **options), *gradients])
    assert all((x == y).all() for x, y in zip(*found, strict=True))


def test_memory_beyond_arguments_and_results_is_that_of_blocks():
    length = 4096
    q = np.random.default_rng(0).standard_normal((1, 1, length, 8), np.float32)
    with threadpool_limits(1, user_api="blas"):
        tracemalloc.start()
        output, _ = attention_blocked(q, q, q)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    matrix = 4 * length**2
    assert peak - output.nbytes < matrix / 16
