"""A blocked key does not exist: whatever is stored there reaches no result.

The results of a poisoned case must be those of the same case without the poison, by
the definition; what may not be hidden must show as NaN.
"""

import numpy as np
import pytest

from attncheck.case import GRADIENTS

from .calls import PRIMES, assert_defined, change, draw, run

B, H, G, I, J, D, E = PRIMES.values()  # noqa: E741
N = H * G
POISONS = {"NaN": np.nan, "inf": np.inf, "-inf": -np.inf}
HIDDEN = 4
"""A key that the masks below hide."""


def hide(*where):
    """A full mask, False where the index says so."""
    mask = np.random.default_rng(1).random((B, N, I, J)) < 0.8
    mask[..., 0] = True  # no row is empty
    mask[where] = False
    return mask


MASKS = {
    "from all": np.arange(J).reshape(1, 1, 1, J) != HIDDEN,
    "in one batch element": hide(0, slice(None), slice(None), HIDDEN),
    "from one key/value head": hide(slice(None), slice(G, 2 * G), slice(None), HIDDEN),
}
"""Name → a mask that hides a key from some key/value heads, all g heads of each."""


def poisoned(array, where, value):
    array = array.copy()
    array[where] = value
    return array


def is_hidden(mask):
    """`b h j`: no query of the key/value head may see the key."""
    seen = np.broadcast_to(mask, (B, N, I, J)).any(axis=2)
    return ~seen.reshape(B, H, G, J).any(axis=2)


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_what_is_stored_at_a_hidden_key_reaches_no_result(room, mask, poison):
    clean = draw(mask=mask, bias="nij", softcap=2.0)
    hidden = is_hidden(mask)
    assert 0 < hidden.sum() < hidden.size
    k, v = (poisoned(clean.inputs[name], hidden, poison) for name in "kv")
    results = run(room, change(clean, k=k, v=v))
    assert_defined(change(clean, k=k, v=v), results, like=clean)
    assert (results["weights"][~np.broadcast_to(mask, (B, N, I, J))] == 0).all()
    assert (results["dk"][hidden] == 0).all()
    assert (results["dv"][hidden] == 0).all()


def test_a_key_that_one_head_of_its_group_may_see_exists(room):
    mask = np.ones((B, N, I, J), bool)
    mask[:, 1:G, :, HIDDEN] = False  # the group's first head sees it, the others do not
    case = draw(mask=mask)
    results = run(room, case)
    assert_defined(case, results)
    assert (results["weights"][:, 1:G, :, HIDDEN] == 0).all()
    assert (results["weights"][:, 0, :, HIDDEN] > 0).all()
    assert (results["dv"][:, 0, HIDDEN] != 0).all()


def test_removing_a_hidden_key_changes_nothing(room):
    kept = np.arange(J) != HIDDEN
    case = draw(mask=kept.reshape(1, 1, 1, J), bias="ij")
    inputs = {name: case.inputs[name] for name in ("k", "v", "bias")}
    short = change(
        case,
        mask=None,
        k=inputs["k"][:, :, kept],
        v=inputs["v"][:, :, kept],
        bias=inputs["bias"][..., kept],
    )
    whole = run(room, case)
    without = {
        "weights": whole["weights"][..., kept],
        "dbias": whole["dbias"][..., kept],
    }
    without |= {name: whole[name][:, :, kept] for name in ("dk", "dv")}
    without |= {name: whole[name][..., kept] for name in ("scores", "logits", "masked")}
    assert_defined(short, whole | without)


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
def test_a_bias_at_a_blocked_position_counts_for_nothing(room, poison):
    mask = hide(0, slice(None), slice(None), HIDDEN)
    clean = draw(mask=mask, bias="bnij")
    case = change(clean, bias=poisoned(clean.inputs["bias"], ~mask, poison))
    results = run(room, case)
    assert_defined(case, results, like=clean)
    assert (results["dbias"][~mask] == 0).all()


def assert_empty(results, row):
    for name in ("output", "weights", "dq"):
        assert (results[name][row] == 0).all(), name
    assert (results["lse"][row] == -np.inf).all()


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
def test_an_empty_row_gives_zero_and_adds_nothing(room, poison):
    row = (1, 2, 3)
    clean = draw(mask=hide(*row), bias="bnij", softcap=3.0)
    names = ("q", "bias", "d_out", "d_lse")
    case = change(clean, **{x: poisoned(clean.inputs[x], row, poison) for x in names})
    results = run(room, case)
    assert_defined(case, results, like=clean)
    assert_empty(results, row)
    assert (results["dbias"][row] == 0).all()


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
def test_with_no_key_left_nothing_at_all_reaches_a_result(room, poison):
    case = draw(mask=np.zeros((1, 1, 1, 1), bool), bias="nj")
    case = change(
        case,
        **{x: np.full_like(case.inputs[x], poison) for x in case.inputs if x != "mask"},
    )
    results = run(room, case)
    assert_empty(results, ...)
    for name in GRADIENTS:
        assert (results[name] == 0).all(), name


def test_a_bias_of_minus_infinity_has_no_weight_and_no_gradient(room):
    case = draw(bias="bnij")
    lowered = np.random.default_rng(2).random((B, N, I, J)) < 0.4
    case = change(case, bias=poisoned(case.inputs["bias"], lowered, -np.inf))
    results = run(room, case)
    assert_defined(case, results)
    assert (results["weights"][lowered] == 0).all()
    assert (results["dbias"][lowered] == 0).all()


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_bias_of_minus_infinity_has_no_gradient_whatever_comes_in(room, poison):
    case = draw(bias="bnij")
    lowered = np.random.default_rng(2).random((B, N, I, J)) < 0.4
    d_out = np.full_like(case.inputs["d_out"], poison)
    bias = poisoned(case.inputs["bias"], lowered, -np.inf)
    results = run(room, change(case, bias=bias, d_out=d_out))
    assert (results["dbias"][lowered] == 0).all()
    assert np.isnan(results["dbias"][~lowered]).all()


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
def test_a_row_of_only_minus_infinity_is_empty(room, poison):
    row = (0, 1, 2)
    clean = draw(bias="bnij")
    clean = change(clean, bias=poisoned(clean.inputs["bias"], row, -np.inf))
    names = ("d_out", "d_lse")
    case = change(clean, **{x: poisoned(clean.inputs[x], row, poison) for x in names})
    results = run(room, case)
    assert_defined(case, results, like=clean)
    assert_empty(results, row)


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
def test_no_value_reaches_an_empty_row(room, poison):
    clean = draw(bias="bnij")
    clean = change(clean, bias=np.full((B, N, I, J), -np.inf))
    case = change(
        clean, v=poisoned(clean.inputs["v"], (..., HIDDEN, slice(None)), poison)
    )
    with np.errstate(invalid="ignore"):
        results = run(room, case)
    assert_empty(results, ...)
    for name in GRADIENTS:
        assert (results[name] == 0).all(), name


# What is never hidden.  NumPy warns of ∞ − ∞ and of 0·∞, as for any array.
shown = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")


@shown
@pytest.mark.parametrize("poison", [np.nan, np.inf], ids=["NaN", "+inf"])
def test_a_bias_of_nan_or_plus_infinity_shows_in_its_row_only(room, poison):
    clean, at = draw(bias="bnij"), (1, 4, 2, 5)
    results = run(room, change(clean, bias=poisoned(clean.inputs["bias"], at, poison)))
    assert_nan_in_row_only(room, clean, results, at[:3])


@shown
def test_nan_in_a_query_shows_in_its_row_only(room):
    clean, row = draw(bias="bnij"), (1, 4, 2)
    results = run(room, change(clean, q=poisoned(clean.inputs["q"], (*row, 0), np.nan)))
    assert_nan_in_row_only(room, clean, results, row)


@shown
def test_nan_in_a_query_gives_no_weight_to_a_key_that_it_may_not_see(room):
    row = (1, 4, 2)
    case = draw(mask=hide(*row, HIDDEN))
    results = run(room, change(case, q=poisoned(case.inputs["q"], (*row, 0), np.nan)))
    assert results["weights"][(*row, HIDDEN)] == 0
    assert np.isnan(results["weights"][(*row, 0)])
    assert np.isfinite(results["dv"][1, 0, HIDDEN]).all()


def assert_nan_in_row_only(room, clean, results, row):
    """Exactly this row of every result that has rows is NaN; the others are as ever."""
    want = run(room, clean)
    for name in ("output", "dq", "dbias", "weights"):
        assert np.isnan(results[name][row]).all(), name
    others = np.ones((B, N, I), bool)
    others[row] = False
    for name in ("output", "lse", "weights", "dq", "dbias"):
        assert (results[name][others] == want[name][others]).all(), name


@shown
def test_nan_in_a_query_whose_weights_are_all_dropped_shows(room):
    case = draw(dropout_rate=0.5, dropout_keep=np.zeros((1, 1, 1, 1), bool))
    results = run(
        room, change(case, q=poisoned(case.inputs["q"], (0, 0, 0, 0), np.nan))
    )
    assert np.isnan(results["output"][0, 0, 0]).all()


@shown
@pytest.mark.parametrize("bias", [0.0, -np.inf])
def test_nan_in_a_visible_key_shows_even_where_the_bias_is_minus_infinity(room, bias):
    case = draw(bias="j")
    case = change(
        case,
        k=poisoned(case.inputs["k"], (0, 1, HIDDEN, 0), np.nan),
        bias=poisoned(case.inputs["bias"], (..., HIDDEN), bias),
    )
    results = run(room, case)
    heads = slice(G, 2 * G)
    for name in ("output", "lse", "weights"):
        assert np.isnan(results[name][0, heads]).all(), name
    assert np.isfinite(results["output"][1]).all()
    assert np.isfinite(np.delete(results["output"][0], np.r_[heads], axis=0)).all()


@shown
@pytest.mark.parametrize("bias", [0.0, -np.inf])
def test_nan_in_a_visible_value_shows_even_where_the_bias_is_minus_infinity(room, bias):
    case = draw(bias="j")
    case = change(
        case,
        v=poisoned(case.inputs["v"], (0, 1, HIDDEN, 3), np.nan),
        bias=poisoned(case.inputs["bias"], (..., HIDDEN), bias),
    )
    output = run(room, case)["output"]
    reached = np.zeros((B, N, I, E), bool)
    reached[0, G : 2 * G, :, 3] = True
    assert (np.isnan(output) == reached).all()


def test_zero_is_exact_whatever_gradient_comes_in(room):
    mask = hide(slice(None), slice(G, 2 * G), slice(None), HIDDEN)
    case = draw(mask=mask, bias="bnij")
    d_out = np.full_like(case.inputs["d_out"], np.nan)
    results = run(room, change(case, d_out=d_out))
    assert (results["dbias"][~mask] == 0).all()
    for name in ("dk", "dv"):
        assert (results[name][is_hidden(mask)] == 0).all()
        assert np.isnan(results[name][~is_hidden(mask)]).all()
