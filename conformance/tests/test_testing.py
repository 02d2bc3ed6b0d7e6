"""`assert_attention` and `tolerance`, on arrays of NumPy."""

import re
from pathlib import Path

import numpy as np
import pytest

from attncheck import PROFILES, Profile, assert_attention, testing, tolerance
from attncheck.budget import derive, half_ulp, nearest, output_dtype, split
from attncheck.budget.bounds import assemble
from attncheck.budget.problem import Problem
from attncheck.budget.profile import units
from attncheck.case import DTYPES, GRADIENTS, Case
from attncheck.definition import expected
from attnref.spec import causal, padding

SIZES = {"b": 2, "n": 4, "h": 2, "i": 30, "j": 12, "d": 8, "e": 6}
AXES = {"q": "bnid", "k": "bhjd", "v": "bhje", "d_out": "bnie", "d_lse": "bni"}
OPTIONAL = ("bias", "mask", "dropout_keep", "d_out", "d_lse")


def arrays_of(dtype="F32", *, seed=0, bias=None, **sizes):
    """q, k, v and the incoming gradients; `bias` names the axes that it is full in."""
    rng, size = np.random.default_rng(seed), SIZES | sizes

    def normal(axes, full="bnhijde"):
        shape = [size[axis] if axis in full else 1 for axis in axes]
        return rng.standard_normal(shape).astype(DTYPES[dtype])

    arrays = {name: normal(axes) for name, axes in AXES.items()}
    wide = np.float64 if dtype == "F64" else np.float32
    arrays["d_lse"] = arrays["d_lse"].astype(wide)
    return arrays | ({} if bias is None else {"bias": normal("bnij", bias)})


def attention(arrays, *, rounds_weights=False, **options):
    """Every result in float64, written out, rounded once to its own type."""
    storage = arrays["q"].dtype
    wide = {name: x.astype(np.float64) for name, x in arrays.items()}
    g = wide["q"].shape[1] // wide["k"].shape[1]
    k, v = (np.repeat(wide[name], g, axis=1) for name in "kv")
    scale = options.get("scale") or wide["q"].shape[3] ** -0.5
    x = scale * (wide["q"] @ np.swapaxes(k, -1, -2))
    cap = options.get("softcap")
    slope = 1.0 if cap is None else 1 - np.tanh(x / cap) ** 2
    s = x if cap is None else cap * np.tanh(x / cap)
    s = np.where(arrays.get("mask", True), s + wide.get("bias", 0.0), -np.inf)
    top = np.nan_to_num(s.max(axis=-1, keepdims=True), neginf=0.0)
    p = np.exp(s - top)
    total = p.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    total = np.where(total == 0, 1.0, total)
    factor = arrays.get("dropout_keep", 1) / (1 - options.get("dropout_rate", 0.0))
    kept = factor * (nearest(p, storage) if rounds_weights else p) / total
    p = p / total
    results = {"output": kept @ v, "lse": lse}
    if "d_out" in arrays:
        dp = wide["d_out"] @ np.swapaxes(v, -1, -2) * factor
        mean = (p * dp).sum(axis=-1, keepdims=True)
        ds = p * (dp - mean + wide.get("d_lse", np.zeros(lse.shape))[..., None])
        dx = scale * slope * ds
        results["dq"] = dx @ k
        results["dk"] = over_group(np.swapaxes(dx, -1, -2) @ wide["q"], g)
        results["dv"] = over_group(np.swapaxes(kept, -1, -2) @ wide["d_out"], g)
        if "bias" in arrays:
            axes = tuple(a for a, n in enumerate(arrays["bias"].shape) if n == 1)
            results["dbias"] = ds.sum(axis=axes, keepdims=True)
    accumulator = np.float64 if storage == np.float64 else np.float32
    own = {"lse": accumulator}
    return {
        n: nearest(x, own.get(n, storage)).astype(own.get(n, storage))
        for n, x in results.items()
    }


def over_group(x, g):
    b, n, *rest = x.shape
    return x.reshape(b, n // g, g, *rest).sum(axis=2)


def judge(results, arrays, **options):
    """Judges all `results`, by name."""
    given = {name: arrays[name] for name in OPTIONAL if name in arrays}
    grads = [results.get(name) for name in GRADIENTS]
    assert_attention(
        results["output"],
        *(arrays[name] for name in "qkv"),
        lse=results.get("lse"),
        grads=grads,
        **given | options,
    )


def message(results, arrays, **options):
    with pytest.raises(AssertionError) as caught:
        judge(results, arrays, **options)
    return str(caught.value)


def masked(arrays, seed=1):
    """With a random mask that leaves some queries and some keys out altogether."""
    b, _, i, _ = arrays["q"].shape
    mask = np.random.default_rng(seed).random((b, 1, i, arrays["k"].shape[2])) < 0.6
    mask[:, :, 4], mask[..., 7] = False, False
    return arrays | {"mask": mask}


def dropping(arrays, rate, seed=2):
    """With dropout of every head's own weights."""
    shape = (*arrays["q"].shape[:3], arrays["k"].shape[2])
    return arrays | {"dropout_keep": np.random.default_rng(seed).random(shape) >= rate}


CALLS = {
    "plain": lambda dtype: (arrays_of(dtype), {}),
    "masked": lambda dtype: (masked(arrays_of(dtype)), {}),
    "bias of keys": lambda dtype: (arrays_of(dtype, bias="nj"), {}),
    "softcap": lambda dtype: (arrays_of(dtype), {"softcap": 1.5, "scale": -0.7}),
    "dropout": lambda dtype: (dropping(arrays_of(dtype), 0.3), {"dropout_rate": 0.3}),
    "everything": lambda dtype: (
        dropping(masked(arrays_of(dtype, bias="bnij")), 0.3),
        {"dropout_rate": 0.3, "softcap": 2.0, "scale": 0.4},
    ),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("call", CALLS)
def test_what_is_right_passes_by_the_strictest_profile(call, dtype):
    arrays, options = CALLS[call](dtype)
    judge(attention(arrays, **options), arrays, **options, profile="strict")


@pytest.fixture
def unsearched(monkeypatch):
    """No mistake is looked for, which takes a while for each failure."""
    monkeypatch.setattr(testing, "SEARCHED", 0)


@pytest.mark.usefixtures("unsearched")
@pytest.mark.parametrize("dtype", ["F32", "BF16"])
@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_element_of_any_result_is_named(call, dtype):
    arrays, options = CALLS[call](dtype)
    right = attention(arrays, **options)
    for name, array in right.items():
        at = tuple(size - 1 for size in array.shape)
        wrong = array.copy()
        wrong[at] = wrong[at] * array.dtype.type(2) + array.dtype.type(1)
        text = message(right | {name: wrong}, arrays, **options)
        (line,) = re.findall(r"fail: (.*)", text)
        axes = {"lse": "bni", "dk": "bhjd", "dv": "bhje", "dq": "bnid"}
        axes |= {"dbias": "bnij", "output": "bnie"}
        place = ", ".join(f"{a}={n}" for a, n in zip(axes[name], at, strict=True))
        assert line.startswith(f"{name}[{place}]: got {float(wrong[at]):.9g}, expected")


def test_the_message_is_the_verdict():
    """All results, the errors in ulps, the share of the budget, and its split."""
    arrays = arrays_of("BF16")
    right = attention(arrays)
    wrong = right["output"].copy()
    wrong[1, 2, 3, 4] *= 2
    text = message(right | {"output": wrong}, arrays)
    head, fail, split, *others = text.split("\n")
    assert head == "attention differs:"
    pattern = (
        r"  fail: output\[b=1, n=2, i=3, e=4\]: got \S+, expected \S+ \(\S+ ulps, "
    )
    assert re.fullmatch(pattern + r"\S+( %|) ?(× the budget|of the budget)\)", fail), (
        fail
    )
    assert re.fullmatch(r"    the budget there: (.+ \d+ %, )+.+ \d+ %", split)
    assert "output rounding" in split
    assert "weights" in split
    *passing, last = others
    assert [line.split(":")[0] for line in passing] == ["  pass"] * 4
    assert last == "  nothing known explains it"


def test_the_split_is_that_of_the_worst_element():
    arrays = arrays_of("BF16")
    del arrays["d_lse"]
    right = attention(arrays)
    wrong = right["dk"].copy()
    wrong[1, 1, 3, 4] += 1
    text = message(right | {"dk": wrong}, arrays)
    inputs = dict(arrays)
    case = Case("call", (), "", "BF16", inputs)
    shares = split(case, expected(case), PROFILES["tensor-core"], "dk", (1, 1, 3, 4))
    source, share = next(iter(shares.items()))
    assert f"the budget there: {source} {100 * share:.0f} %" in text


def test_a_result_of_another_shape_or_type_fails():
    arrays = arrays_of()
    right = attention(arrays)
    for wrong in (right["output"][:, :1], right["output"].astype(np.float64)):
        text = message(right | {"output": wrong}, arrays)
        assert f"`output` is {wrong.dtype} {wrong.shape}, must be float32" in text


def test_nan_and_what_is_not_zero_in_an_empty_row_fail():
    arrays = masked(arrays_of())
    right = attention(arrays)
    for value in (np.nan, 1e-30):
        wrong = right["output"].copy()
        wrong[0, 0, 4, 0] = value
        assert "output[b=0, n=0, i=4, e=0]: got" in message(
            right | {"output": wrong}, arrays
        )


def test_a_gradient_that_is_none_is_not_judged():
    arrays = arrays_of(bias="bnij")
    right = attention(arrays)
    judge(right | {"dk": None}, arrays)
    assert "dk" not in message(right | {"dk": None, "dv": right["dv"] * 2}, arrays)


def test_gradients_need_the_gradient_that_they_belong_to():
    arrays = arrays_of()
    right = attention(arrays)
    with pytest.raises(ValueError, match="`grads` needs `d_out`"):
        assert_attention(
            right["output"], *(arrays[name] for name in "qkv"), grads=[right["dq"]]
        )


def test_arguments_that_are_no_call_of_attention_are_errors():
    arrays = arrays_of()
    q, k, v, out = (arrays[name] for name in ("q", "k", "v", "d_out"))
    with pytest.raises(ValueError, match="`k` must have"):
        assert_attention(out, q, k[..., 1:], v)
    with pytest.raises(TypeError, match="not an array of"):
        assert_attention(out, q, k, v.tolist())
    with pytest.raises(ValueError, match="mask"):
        assert_attention(out, q, k, v, mask=np.ones(q.shape[:1], bool))


# ----------------------------------------------------------------- profiles


def test_a_profile_is_a_name_or_an_object():
    arrays = arrays_of("BF16", j=100)
    del arrays["d_out"], arrays["d_lse"]
    results = attention(arrays, rounds_weights=True)
    for profile in ("tensor-core", PROFILES["eager"], Profile(weights="storage")):
        judge(results, arrays, profile=profile)
    for profile in ("strict", PROFILES["strict"], Profile(d_logits="storage")):
        assert "fail: output" in message(results, arrays, profile=profile)


def test_an_unknown_profile_is_an_error_that_names_the_known_ones():
    arrays = arrays_of()
    known = re.escape(", ".join(PROFILES))
    with pytest.raises(ValueError, match=f"one of {known}, not 'loose'"):
        judge(attention(arrays), arrays, profile="loose")
    with pytest.raises(ValueError, match=known):
        tolerance(*(arrays[name] for name in "qkv"), profile="loose")


def test_what_nothing_can_be_said_of_is_an_error_and_does_not_pass():
    arrays = arrays_of()
    arrays["q"] = arrays["q"] * np.float32(1e7)
    with pytest.raises(ValueError, match="cannot be judged: an intermediate"):
        judge(attention(arrays), arrays)


# -------------------------------------------------------------------- masks


def test_a_predicate_is_the_array_that_it_describes():
    arrays = arrays_of()
    i, j = SIZES["i"], SIZES["j"]
    rows, keys = np.arange(i)[:, None], np.arange(j)[None]
    lengths = np.array([3, 9])
    long = (keys < lengths[:, None])[:, None, None]
    for mask, array in [
        (causal(2), (keys <= rows + 2)[None, None]),
        (padding((3, 9)), long),
        (causal() & padding(lengths), (keys <= rows)[None, None] & long),
        (lambda b, n, i, j: j != n, np.arange(4)[None, :, None, None] != keys),
    ]:
        results = attention(arrays | {"mask": array})
        judge(results, arrays | {"mask": mask})
        judge(results, arrays | {"mask": array})
        assert "fail: output" in message(results, arrays)
        of_predicate, of_array = (
            tolerance(*(arrays[name] for name in "qkv"), mask=one)
            for one in (mask, array)
        )
        np.testing.assert_array_equal(of_predicate["output"], of_array["output"])


# --------------------------------------------------------------------- rows


def test_only_the_rows_asked_for_are_judged_and_named_as_they_are():
    arrays = masked(arrays_of(bias="bni"))
    results = attention(arrays)
    for name in ("dk", "dv"):
        del results[name]
    judge(results, arrays, rows=[3, 20, 4])
    for name in ("output", "lse", "dq", "dbias"):
        wrong = results[name].copy()
        wrong[:, :, 20] += 1
        judge(results | {name: wrong}, arrays, rows=[3, 21, 4])
        text = message(results | {name: wrong}, arrays, rows=[3, 20, 4])
        assert re.search(rf"fail: {name}\[b=\d, n=\d, i=20", text)


@pytest.mark.parametrize(
    ("bias", "name"), [(None, "dk"), (None, "dv"), ("nj", "dbias")]
)
def test_what_every_query_adds_to_cannot_be_judged_by_rows(bias, name):
    arrays = arrays_of(bias=bias)
    results = attention(arrays)
    one = {n: x for n, x in results.items() if n in ("output", name)}
    with pytest.raises(ValueError, match=f"every query adds to {name}"):
        judge(one, arrays, rows=[1])
    judge(one, arrays, rows=range(SIZES["i"]))


# ------------------------------------------------------------------- blocks


def allowed(arrays, **options):
    """What must come and how far off it may be, of the whole and of many blocks."""
    given = {name: arrays[name] for name in OPTIONAL if name in arrays}
    return tolerance(*(arrays[name] for name in "qkv"), **given | options)


def in_blocks(monkeypatch, arrays, queries):
    """From here on, calls with these arrays are judged by so many queries a time."""
    b, n, i, _ = arrays["q"].shape
    scores = b * n * arrays["k"].shape[2]
    monkeypatch.setattr(testing, "BLOCK", scores * queries)
    return -(-i // queries)


@pytest.mark.parametrize("queries", [2, 7, 29])
@pytest.mark.parametrize("dtype", ["F32", "BF16"])
@pytest.mark.parametrize("call", CALLS)
def test_blocks_allow_what_the_whole_does(monkeypatch, call, dtype, queries):
    """Under a profile whose roundings are never taken as independent."""
    arrays, options = CALLS[call](dtype)
    options["profile"] = "eager"
    whole = allowed(arrays, **options)
    assert set(whole) >= {"output", "lse", "dq", "dk", "dv"}
    assert in_blocks(monkeypatch, arrays, queries) > 1
    blocks = allowed(arrays, **options)
    assert blocks.keys() == whole.keys()
    for name, array in whole.items():
        np.testing.assert_allclose(blocks[name], array, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_of_random_calls_only_what_queries_add_to_is_allowed_otherwise_in_blocks(
    monkeypatch, dtype
):
    arrays = arrays_of(dtype, i=60, j=40, d=16, bias="nj")
    case = Case("call", (), "", dtype, dict(arrays))
    want = expected(case)
    problem = Problem(case, want, units(case, PROFILES["tensor-core"]))
    random = derive(case, want, PROFILES["tensor-core"])
    assert random.random
    in_whole, certainly = (
        {name: rounded(case, want, name, bound) for name, bound in one.bounds.items()}
        for one in (random, assemble(problem, "taken as dependent"))
    )
    for name, array in allowed(arrays).items():
        np.testing.assert_array_equal(array, in_whole[name])
    in_blocks(monkeypatch, arrays, 30)
    blocks = allowed(arrays)
    for name in ("output", "lse", "dq"):
        np.testing.assert_allclose(blocks[name], in_whole[name], rtol=1e-9)
    for name in ("dk", "dv", "dbias"):
        # Deviations are in quadrature inside a block, and added from block to block.
        assert (blocks[name] != in_whole[name]).any()
        assert (blocks[name] <= certainly[name] * (1 + 1e-9)).all()


def rounded(case, want, name, bound):
    """A bound with the rounding of the result to its own type."""
    size = np.abs(getattr(want, name)) + bound
    return bound + half_ulp(size, output_dtype(case, name))


@pytest.mark.parametrize("queries", [1, 7])
def test_blocks_find_the_same_element_and_split(monkeypatch, queries):
    arrays = arrays_of("BF16", bias="nj")
    right = attention(arrays)
    wrong = {name: array.copy() for name, array in right.items()}
    for array in wrong.values():
        array[tuple(size - 2 if size > 1 else 0 for size in array.shape)] += 100
    whole = message(wrong, arrays, profile="eager")
    assert whole.count("fail: ") == len(right)
    assert whole.count("the budget there: ") == len(right)
    in_blocks(monkeypatch, arrays, queries)
    judge(right, arrays)
    assert message(wrong, arrays, profile="eager") == whole


@pytest.mark.parametrize("i", [0, 1])
@pytest.mark.parametrize("j", [0, 1])
def test_no_queries_and_no_keys_are_a_call_like_others(i, j):
    arrays = arrays_of(i=i, j=j)
    shapes = {"output": "bnie", "dq": "bnid", "dk": "bhjd", "dv": "bhje", "lse": "bni"}
    sizes = SIZES | {"i": i, "j": j}
    if i * j:
        results = attention(arrays)
    else:
        results = {
            name: np.zeros([sizes[axis] for axis in axes], np.float32)
            for name, axes in shapes.items()
        }
        results["lse"] -= np.inf
    judge(results, arrays)
    assert allowed(arrays).keys() == shapes.keys()


def test_a_forgotten_return_is_not_right():
    q, k, v = np.ones((3, 1, 1, 2, 4), np.float32)
    with pytest.raises(TypeError, match="no output to judge"):
        assert_attention(None, q, k, v)


TILED = "n mod h instead of n // g. [heads-tiled, onnx/onnx#7274]"


def tiled(arrays):
    """Heads that are shared in the other order."""
    g = arrays["q"].shape[1] // arrays["k"].shape[1]
    return attention(
        arrays | {name: np.tile(arrays[name], (1, g, 1, 1)) for name in "kv"}
    )


@pytest.mark.parametrize("mask", [None, causal(2)])
@pytest.mark.parametrize("searched", [testing.SEARCHED, 2 * 4 * 12 * 5])
def test_a_known_mistake_is_named_also_where_only_a_part_is_searched(
    monkeypatch, mask, searched
):
    monkeypatch.setattr(testing, "SEARCHED", searched)
    arrays = arrays_of()
    given = (
        arrays if mask is None else arrays | {"mask": mask(*np.ogrid[:1, :1, :30, :12])}
    )
    results = {"output": tiled(given)["output"], "lse": tiled(given)["lse"]}
    said = message(results, arrays, mask=mask)
    assert (
        f"a known mistake gives just this: Query head n reads key/value head {TILED}"
        in said
    )


def test_what_is_true_of_a_part_alone_is_no_mistake_of_the_whole(monkeypatch):
    """The first queries share heads in the other order, and the others do not."""
    arrays = arrays_of()
    right, wrong = attention(arrays)["output"], tiled(arrays)["output"]
    some = np.arange(30)[:, None] < 10
    monkeypatch.setattr(testing, "SEARCHED", 2 * 4 * 12 * 5)
    said = message({"output": np.where(some, wrong, right)}, arrays)
    assert "known" not in said
    assert "heads-tiled" in message({"output": wrong}, arrays)


def test_what_no_known_mistake_gives_is_said_to_be_unknown():
    arrays = arrays_of()
    output = attention(arrays)["output"]
    said = message({"output": output + np.sin(np.arange(6, dtype=np.float32))}, arrays)
    assert said.endswith("nothing known explains it")
    assert "known" not in message({"output": output[:, :1]}, arrays)


def test_the_page_says_how_large_a_call_may_be():
    page = (Path(__file__).parents[2] / "docs" / "judge.md").read_text("utf-8")
    assert f"at most {testing.SEARCHED:,} scores" in page
    assert f"a call of up to {testing.BLOCK:,}," in page


def test_of_calls_that_are_too_large_to_search_it_is_said(monkeypatch):
    arrays = arrays_of()
    results = attention(arrays)
    large = "no mistake is looked for in so large a call"
    monkeypatch.setattr(testing, "SEARCHED", 2 * 4 * 12 - 1)  # less than a row
    assert large in message({"output": tiled(arrays)["output"]}, arrays)
    monkeypatch.setattr(testing, "SEARCHED", 2 * 4 * 12)
    assert large in message(results | {"dk": results["dk"] + 1}, arrays)
    monkeypatch.setattr(testing, "BLOCK", 1000)
    assert large in message({"output": tiled(arrays)["output"]}, arrays)
