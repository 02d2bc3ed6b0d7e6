"""Wrong input is refused in the same words in every room.

Every row of a table is: what is wrong, the arguments that make it so, the exception
and its whole message, `{array}` and `{module}` standing for the framework's own names.
"""

from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

from attnref.spec import causal, padding, segments

ARRAY = {"numpy": "numpy.ndarray", "torch": "torch.Tensor", "jax": "jax.Array"}


class As(NamedTuple):
    """An argument passed as it is, not as the framework's array."""

    value: object


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def mask(*shape):
    return ones(*shape, dtype=bool)


def attention_arguments():
    """b = 2, n = 6, h = 3, g = 2, i = 5, j = 7, d = 4, e = 8."""
    return {
        "d_out": ones(2, 6, 5, 8),
        "q": ones(2, 6, 5, 4),
        "k": ones(2, 3, 7, 4),
        "v": ones(2, 3, 7, 8),
    }


NEEDS_KEEP = (
    "`dropout_rate` = 0.5 needs `dropout_keep`, a boolean of axes b n i j: the spec "
    "draws no random numbers, so that every framework drops the same weights"
)
FOUR = "must have 4 axes b n i j = 2 6 5 7, each full or 1"
DTYPES = "must be one of float64, float32, bfloat16, float16, but is"

WRONG = {
    "width of k": (
        {"k": ones(2, 3, 7, 32)},
        ValueError,
        "`k` must have query/key width d = 4 like `q`, but has 32 "
        "(q: b n i d = 2 6 5 4, k: b h j d = 2 3 7 32)",
    ),
    "batch of v": (
        {"v": ones(1, 3, 7, 8)},
        ValueError,
        "`v` must have batch b = 2 like `q`, but has 1 "
        "(q: b n i d = 2 6 5 4, v: b h j e = 1 3 7 8)",
    ),
    "length of v": (
        {"v": ones(2, 3, 1, 8)},
        ValueError,
        "`v` must have key positions j = 7 like `k`, but has 1 "
        "(k: b h j d = 2 3 7 4, v: b h j e = 2 3 1 8)",
    ),
    "heads of v": (
        {"v": ones(2, 6, 7, 8)},
        ValueError,
        "`v` must have key/value heads h = 3 like `k`, but has 6 "
        "(k: b h j d = 2 3 7 4, v: b h j e = 2 6 7 8)",
    ),
    "heads that do not divide": (
        {"q": ones(2, 5, 5, 4)},
        ValueError,
        "`q` has query heads n = 5, which key/value heads h = 3 do not divide",
    ),
    "no heads": (
        {"k": ones(2, 0, 7, 4), "v": ones(2, 0, 7, 8)},
        ValueError,
        "`k` must have key/value heads h ≥ 1, but has 0 (k: b h j d = 2 0 7 4)",
    ),
    "no query heads": (
        {"q": ones(2, 0, 5, 4)},
        ValueError,
        "`q` must have query heads n ≥ 1, but has 0 (q: b n i d = 2 0 5 4)",
    ),
    "no width": (
        {"q": ones(2, 6, 5, 0), "k": ones(2, 3, 7, 0)},
        ValueError,
        "`q` must have query/key width d ≥ 1, but has 0 (q: b n i d = 2 6 5 0)",
    ),
    "no value width": (
        {"v": ones(2, 3, 7, 0)},
        ValueError,
        "`v` must have value width e ≥ 1, but has 0 (v: b h j e = 2 3 7 0)",
    ),
    "3-D q": (
        {"q": ones(6, 5, 4)},
        ValueError,
        "`q` must have 4 axes b n i d, but has shape (6, 5, 4)",
    ),
    "a list": (
        {"q": As([[[[1.0]]]])},
        TypeError,
        "`q` must be a {array}, but is a builtins.list",
    ),
    "None": (
        {"v": As(None)},
        TypeError,
        "`v` must be a {array}, but is a builtins.NoneType",
    ),
    "integers": (
        {name: x.astype(np.int32) for name, x in attention_arguments().items()},
        TypeError,
        f"`q` {DTYPES} int32",
    ),
    "a boolean": ({"v": mask(2, 3, 7, 8)}, TypeError, f"`v` {DTYPES} bool"),
    "mixed dtypes": (
        {"k": ones(2, 3, 7, 4, dtype=np.float16)},
        TypeError,
        "all inputs must share one dtype, but are q: float32, k: float16, v: float32",
    ),
    "mixed 16-bit dtypes": (
        {
            "q": ones(2, 6, 5, 4, dtype=np.float16),
            "k": ones(2, 3, 7, 4, dtype=ml_dtypes.bfloat16),
            "v": ones(2, 3, 7, 8, dtype=np.float16),
        },
        TypeError,
        "all inputs must share one dtype, but are q: float16, k: bfloat16, v: float16",
    ),
    "bias of another dtype": (
        {"bias": ones(1, 1, 5, 7, dtype=np.float16)},
        TypeError,
        "all inputs must share one dtype, but are q: float32, k: float32, v: float32, "
        "bias: float16",
    ),
    "boolean bias": (
        {"bias": mask(1, 1, 5, 7)},
        TypeError,
        "`bias` is added to the logits and must be floating, but is bool; pass a "
        "boolean array as mask= (True = may attend)",
    ),
    "2-D bias": (
        {"bias": ones(5, 7)},
        ValueError,
        f"`bias` {FOUR}, but has shape (5, 7); for axes (i, j) write bias[None, None], "
        "for axes (b, j), such as padding, bias[:, None, None, :]",
    ),
    "bias that does not fit": (
        {"bias": ones(1, 3, 5, 7)},
        ValueError,
        f"`bias` {FOUR}, but has query heads n = 3 in shape (1, 3, 5, 7)",
    ),
    "bias of a list": (
        {"bias": As([0.0])},
        TypeError,
        "`bias` must be a {array}, but is a builtins.list",
    ),
    "2-D mask": (
        {"mask": mask(5, 7)},
        ValueError,
        f"`mask` {FOUR}, but has shape (5, 7); for axes (i, j) write mask[None, None], "
        "for axes (b, j), such as padding, mask[:, None, None, :]",
    ),
    "3-D mask": (
        {"mask": mask(2, 5, 7)},
        ValueError,
        f"`mask` {FOUR}, but has shape (2, 5, 7); for axes (b, i, j) write "
        "mask[:, None], for axes (n, i, j) mask[None]",
    ),
    "5-D mask": (
        {"mask": mask(1, 2, 3, 5, 7)},
        ValueError,
        f"`mask` {FOUR}, but has shape (1, 2, 3, 5, 7)",
    ),
    "mask of key/value heads": (
        {"mask": mask(2, 3, 5, 7)},
        ValueError,
        f"`mask` {FOUR}, but has query heads n = 3 in shape (2, 3, 5, 7)",
    ),
    "mask of too few keys": (
        {"mask": mask(1, 1, 5, 6)},
        ValueError,
        f"`mask` {FOUR}, but has key positions j = 6 in shape (1, 1, 5, 6)",
    ),
    "floating mask": (
        {"mask": ones(1, 1, 5, 7)},
        TypeError,
        "`mask` must be boolean (True = may attend), but is float32; an additive mask "
        "is a bias: pass it as bias=",
    ),
    "integer mask": (
        {"mask": ones(1, 1, 5, 7, dtype=np.int32)},
        TypeError,
        "`mask` must be boolean (True = may attend), but is int32; write mask != 0 if "
        "nonzero means that",
    ),
    "mask of a list": (
        {"mask": As([True])},
        TypeError,
        "`mask` must be a {array}, but is a builtins.list",
    ),
    "callable of a wrong shape": (
        {"mask": As(lambda b, n, i, j: (j <= i)[0, 0])},
        ValueError,
        f"`mask` {FOUR}, but has shape (5, 7); for axes (i, j) write mask[None, None], "
        "for axes (b, j), such as padding, mask[:, None, None, :]",
    ),
    "callable that gives no array": (
        {"mask": As(lambda b, n, i, j: True)},
        TypeError,
        "`mask` must be a {array}, but is a builtins.bool",
    ),
    "callable that gives integers": (
        {"mask": As(lambda b, n, i, j: 0 * (b + n + i + j))},
        TypeError,
        "`mask` must be boolean (True = may attend), but is {index}; write mask != 0 "
        "if nonzero means that",
    ),
    "predicate of another batch": (
        {"mask": As(causal() & padding([1, 2, 3]))},
        ValueError,
        "`lengths` of the mask must have axes b = 2, but has shape (3,)",
    ),
    "predicate of other lengths": (
        {"mask": As(segments([[0] * 5] * 2, [[0] * 5] * 2))},
        ValueError,
        "`k_ids` of the mask must have axes b j = 2 7, but has shape (2, 5)",
    ),
    "scale of text": (
        {"scale": As("0.5")},
        TypeError,
        "`scale` must be a Python number, but is str",
    ),
    "boolean scale": (
        {"scale": As(True)},
        TypeError,
        "`scale` must be a Python number, but is bool",
    ),
    "complex scale": (
        {"scale": As(1j)},
        TypeError,
        "`scale` must be a Python number, but is complex",
    ),
    "infinite scale": (
        {"scale": As(float("inf"))},
        ValueError,
        "`scale` must be finite, but is inf",
    ),
    "scale of NaN": (
        {"scale": As(float("nan"))},
        ValueError,
        "`scale` must be finite, but is nan",
    ),
    "softcap 0": (
        {"softcap": As(0)},
        ValueError,
        "`softcap` must be finite and above 0, but is 0",
    ),
    "softcap below 0": (
        {"softcap": As(-2.0)},
        ValueError,
        "`softcap` must be finite and above 0, but is -2.0",
    ),
    "infinite softcap": (
        {"softcap": As(float("inf"))},
        ValueError,
        "`softcap` must be finite and above 0, but is inf",
    ),
    "rate without keep": ({"dropout_rate": As(0.5)}, ValueError, NEEDS_KEEP),
    "keep without rate": (
        {"dropout_keep": mask(1, 1, 1, 1)},
        ValueError,
        "`dropout_keep` needs a `dropout_rate` above 0",
    ),
    "rate 1": (
        {"dropout_rate": As(1), "dropout_keep": mask(1, 1, 1, 1)},
        ValueError,
        "`dropout_rate` must be in [0, 1), but is 1",
    ),
    "rate below 0": (
        {"dropout_rate": As(-0.1)},
        ValueError,
        "`dropout_rate` must be in [0, 1), but is -0.1",
    ),
    "no rate": (
        {"dropout_rate": As(None)},
        TypeError,
        "`dropout_rate` must be a Python number, but is NoneType",
    ),
    "keep of numbers": (
        {"dropout_rate": As(0.5), "dropout_keep": ones(1, 1, 1, 1)},
        TypeError,
        "`dropout_keep` must be boolean (True = kept), but is float32; an additive "
        "mask is a bias: pass it as bias=",
    ),
    "keep that does not fit": (
        {"dropout_rate": As(0.5), "dropout_keep": mask(1, 1, 1, 5)},
        ValueError,
        f"`dropout_keep` {FOUR}, but has key positions j = 5 in shape (1, 1, 1, 5)",
    ),
    "callable keep": (
        {"dropout_rate": As(0.5), "dropout_keep": As(causal())},
        TypeError,
        "`dropout_keep` must be a {array}, but is a attnref._Causal",
    ),
}


def native(room, arguments):
    return {
        name: x.value if isinstance(x, As) else room.array(x)
        for name, x in arguments.items()
    }


def assert_refused(room, call, exception, message):
    index = {"jax": "int32"}.get(room.name, "int64")
    with pytest.raises(exception) as error:
        call()
    want = message.replace("{array}", ARRAY[room.name]).replace("{index}", index)
    assert str(error.value) == want
    assert type(error.value) is exception


@pytest.mark.parametrize("function", ["attention", "attention_steps", "attention_vjp"])
@pytest.mark.parametrize(("changes", "exception", "message"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_refused(room, function, changes, exception, message):
    arguments = attention_arguments() | changes
    if function != "attention_vjp":
        del arguments["d_out"]
    arguments = native(room, arguments)
    assert_refused(
        room, lambda: getattr(room, function)(**arguments), exception, message
    )


def test_every_room_is_in_the_table_of_arrays(room):
    assert room.name in ARRAY
    assert room.framework.is_native(room.array(ones(1)))


@pytest.mark.parametrize("name", ["scale", "softcap", "dropout_rate"])
def test_an_array_is_no_number(room, name):
    arguments = native(room, attention_arguments() | {name: np.ones((), np.float32)})
    del arguments["d_out"]
    with pytest.raises(TypeError, match=f"^`{name}` must be a Python number, but is "):
        room.attention(**arguments)


def test_another_frameworks_arrays_are_refused(room):
    if room.name == "numpy":
        pytest.skip("NumPy's arrays are this room's own; a list is refused above")
    arguments = attention_arguments()
    del arguments["d_out"]
    with pytest.raises(TypeError, match=r"but is a numpy\.ndarray$"):
        room.attention(**arguments)
    arguments = native(room, arguments)
    for name in ("mask", "bias"):
        with pytest.raises(TypeError, match=rf"^`{name}` must be a .* numpy.ndarray$"):
            room.attention(**arguments, **{name: mask(1, 1, 1, 1)})


WRONG_GRADIENTS = {
    "shape of d_out": (
        {"d_out": ones(2, 6, 5, 4)},
        ValueError,
        "`d_out` must have axes b n i e = 2 6 5 8, but has shape (2, 6, 5, 4)",
    ),
    "dtype of d_out": (
        {"d_out": ones(2, 6, 5, 8, dtype=np.float16)},
        TypeError,
        "`d_out` must be float32, but is float16",
    ),
    "d_out of a list": (
        {"d_out": As([1.0])},
        TypeError,
        "`d_out` must be a {array}, but is a builtins.list",
    ),
    "shape of d_lse": (
        {"d_lse": ones(2, 6, 5, 1)},
        ValueError,
        "`d_lse` must have axes b n i = 2 6 5, but has shape (2, 6, 5, 1)",
    ),
    "dtype of d_lse": (
        {"d_lse": ones(2, 6, 5, dtype=np.float16)},
        TypeError,
        "`d_lse` must be float32, but is float16",
    ),
}


@pytest.mark.parametrize(
    ("changes", "exception", "message"), WRONG_GRADIENTS.values(), ids=WRONG_GRADIENTS
)
def test_wrong_incoming_gradients_are_refused(room, changes, exception, message):
    arguments = native(room, attention_arguments() | changes)
    assert_refused(room, lambda: room.attention_vjp(**arguments), exception, message)


def test_the_gradient_of_a_16_bit_calls_log_sum_exp_is_float32(room):
    half = {k: x.astype(np.float16) for k, x in attention_arguments().items()}
    wrong = native(room, half | {"d_lse": ones(2, 6, 5, dtype=np.float16)})
    message = "`d_lse` must be float32, but is float16"
    assert_refused(room, lambda: room.attention_vjp(**wrong), TypeError, message)


def multi_head_arguments():
    """b = 2, i = 5, c = 4, j = 7, m = 3, n = 6, h = 3, d = 2, e = 8."""
    params = {"w_q": ones(4, 6, 2), "w_k": ones(3, 3, 2), "w_v": ones(3, 3, 8)}
    params |= {"w_o": ones(6, 8, 4)}
    return params, {"x": ones(2, 5, 4), "context": ones(2, 7, 3)}


WRONG_WEIGHTS = {
    "2-D x": (
        {"x": ones(5, 4)},
        ValueError,
        "`x` must have 3 axes b i c, but has shape (5, 4)",
    ),
    "w_q of another width": (
        {"w_q": ones(3, 6, 2)},
        ValueError,
        "`w_q` must have model width c = 4 like `x`, but has 3 "
        "(x: b i c = 2 5 4, w_q: c n d = 3 6 2)",
    ),
    "w_k of x's width beside a context": (
        {"w_k": ones(4, 3, 2)},
        ValueError,
        "`w_k` must have context width m = 3 like `context`, but has 4 "
        "(context: b j m = 2 7 3, w_k: m h d = 4 3 2)",
    ),
    "w_k of the context's width without one": (
        {"context": As(None)},
        ValueError,
        "`w_k` must have model width c = 4 like `x`, but has 3 "
        "(x: b i c = 2 5 4, w_k: c h d = 3 3 2)",
    ),
    "w_v of other heads": (
        {"w_v": ones(3, 1, 8)},
        ValueError,
        "`w_v` must have key/value heads h = 3 like `w_k`, but has 1 "
        "(w_k: m h d = 3 3 2, w_v: m h e = 3 1 8)",
    ),
    "w_o of another value width": (
        {"w_o": ones(6, 2, 4)},
        ValueError,
        "`w_o` must have value width e = 8 like `w_v`, but has 2 "
        "(w_v: m h e = 3 3 8, w_o: n e c = 6 2 4)",
    ),
    "heads that do not divide": (
        {"w_q": ones(4, 5, 2), "w_o": ones(5, 8, 4)},
        ValueError,
        "`q` has query heads n = 5, which key/value heads h = 3 do not divide",
    ),
    "missing w_v": (
        {"w_v": As(None)},
        TypeError,
        "`w_v` must be a {array}, but is a builtins.NoneType",
    ),
    "flat b_q": (
        {"b_q": ones(12)},
        ValueError,
        "`b_q` must have 2 axes n d, but has shape (12,)",
    ),
    "b_k of query heads": (
        {"b_k": ones(6, 2)},
        ValueError,
        "`b_k` must have key/value heads h = 3 like `w_k`, but has 6 "
        "(w_k: m h d = 3 3 2, b_k: h d = 6 2)",
    ),
    "b_o of another width": (
        {"b_o": ones(1)},
        ValueError,
        "`b_o` must have model width c = 4 like `x`, but has 1 "
        "(x: b i c = 2 5 4, b_o: c = 1)",
    ),
    "context of another batch": (
        {"context": ones(1, 7, 3)},
        ValueError,
        "`context` must have batch b = 2 like `x`, but has 1 "
        "(x: b i c = 2 5 4, context: b j m = 1 7 3)",
    ),
    "context of another dtype": (
        {"context": ones(2, 7, 3, dtype=np.float16)},
        TypeError,
        "all inputs must share one dtype, but are x: float32, context: float16, "
        "w_q: float32, w_k: float32, w_v: float32, w_o: float32",
    ),
    "a weight of a list": (
        {"w_o": As([1.0])},
        TypeError,
        "`w_o` must be a {array}, but is a builtins.list",
    ),
    "bias of another dtype": (
        {"bias": ones(1, 1, 1, 7, dtype=np.float16)},
        TypeError,
        "all inputs must share one dtype, but are x: float32, context: float32, "
        "w_q: float32, w_k: float32, w_v: float32, w_o: float32, bias: float16",
    ),
    "2-D mask": (
        {"mask": mask(5, 7)},
        ValueError,
        f"`mask` {FOUR}, but has shape (5, 7); for axes (i, j) write mask[None, None], "
        "for axes (b, j), such as padding, mask[:, None, None, :]",
    ),
    "rate without keep": ({"dropout_rate": As(0.5)}, ValueError, NEEDS_KEEP),
}


@pytest.mark.parametrize(
    ("changes", "exception", "message"), WRONG_WEIGHTS.values(), ids=WRONG_WEIGHTS
)
def test_weights_that_do_not_fit_are_refused(room, changes, exception, message):
    params, arguments = multi_head_arguments()
    everything = native(room, params | arguments | changes)
    own = {
        k: everything.pop(k) for k in room.MultiHeadParams._fields if k in everything
    }
    params = room.MultiHeadParams(**own)
    assert_refused(
        room,
        lambda: room.multi_head_attention(params, **everything),
        exception,
        message,
    )
