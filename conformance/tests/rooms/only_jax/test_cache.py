"""What JAX compiles in one worker, another finds, and is not kept for ever."""

import jax

from attncheck.collect import collect
from attncheck.exchange import read_results, write_cases
from attncheck.frameworks import jax as adapter
from attncheck.suite import cases
from attncheck.worker import start

PLAIN = [case for case in cases(dtypes=("F32",)) if case.id == "plain/F32"]


def test_a_second_run_finds_what_the_first_compiled(tmp_path, monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("ATTNCHECK_CACHE", str(tmp_path / "cache"))
    kept = []
    for run in ("first", "second"):
        collect("attnref.jax", PLAIN, tmp_path / run)
        (result,) = read_results(tmp_path / run).values()
        assert result.status == "done"
        kept.append({path.name for path in (tmp_path / "cache" / "jax").iterdir()})
    assert kept[0]
    assert kept[0] == kept[1]


def test_what_was_compiled_is_forgotten_before_memory_maps_run_out(monkeypatch):
    function = jax.jit(lambda x: x + 1)
    function(1.0)
    for _ in range(adapter.CALLS_APART):
        adapter.tidy()
    assert function._cache_size() == 1
    monkeypatch.setattr(adapter, "MOST_MAPS", 10)
    for _ in range(adapter.CALLS_APART):
        adapter.tidy()
    assert function._cache_size() == 0


def test_a_worker_tidies_after_every_case(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(adapter, "tidy", lambda: calls.append(1))
    write_cases(tmp_path, PLAIN)
    _, job = start(tmp_path, "attnref.jax")
    job("0")
    assert calls == [1]
