"""What JAX compiles in one worker, another finds."""

from attncheck.collect import collect
from attncheck.exchange import read_results
from attncheck.suite import cases

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
