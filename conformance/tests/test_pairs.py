"""Pairs of float64 against exact fractions and 60 digits."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from attncheck import pairs
from attncheck.pairs import Pair

PRECISION = 2.0**-98
"""Relative; two significands of 53 bits, less the roundings of the operation."""


@pytest.fixture(autouse=True)
def sixty_digits():
    with mpmath.workdps(60):
        yield


def drawn(seed, *shape, spread=8):
    """Pairs with both halves full, over 2^±spread."""
    rng = np.random.default_rng(seed)
    high = rng.standard_normal(shape) * 2.0 ** rng.uniform(-spread, spread, shape)
    return Pair(high, np.spacing(high) * rng.uniform(-0.5, 0.5, shape))


def exact(pair):
    """The numbers as fractions, in one list."""
    halves = zip(pair.hi.ravel(), pair.lo.ravel(), strict=True)
    return [Fraction(float(high)) + Fraction(float(low)) for high, low in halves]


def assert_close(pair, wanted, room=None):
    found = exact(pair)
    room = [PRECISION * abs(float(want)) for want in wanted] if room is None else room
    for got, want, allowed in zip(found, wanted, room, strict=True):
        assert abs(got - want) <= allowed, (float(got), float(got - want))


def number(fraction):
    return mpmath.mpf(fraction.numerator) / fraction.denominator


def fraction(number):
    return Fraction(*mpmath.libmp.to_rational(number._mpf_))


@pytest.mark.parametrize("sign", ["__add__", "__sub__", "__mul__", "__truediv__"])
def test_operators_keep_both_significands(sign):
    a, b = drawn(1, 400), drawn(2, 400)
    wanted = [getattr(x, sign)(y) for x, y in zip(exact(a), exact(b), strict=True)]
    assert_close(getattr(a, sign)(b), wanted)


def test_floats_and_arrays_on_either_side_are_taken_exactly():
    a, array = drawn(3, 50), np.linspace(-3, 3, 50)
    assert_close(
        array * a, [x * Fraction(y) for x, y in zip(exact(a), array, strict=True)]
    )
    assert_close(0.1 + a, [x + Fraction(0.1) for x in exact(a)])


def test_a_sum_that_cancels_keeps_what_is_left():
    a = Pair(np.array([1.0]), np.array([2.0**-60]))
    assert exact(a + (-1.0)) == [Fraction(2) ** -60]


def test_products_of_the_largest_numbers_do_not_overflow_inside():
    a = pairs.number(np.array([1.7e308, -1e300, 1.1e154]))
    b = pairs.number(np.array([0.7, 1.3, 1.3e154]))
    wanted = [x * y for x, y in zip(exact(a), exact(b), strict=True)]
    assert_close(a * b, wanted)


@pytest.mark.parametrize("keys", [0, 1, 3, 67])
def test_matrix_products_err_by_little_of_their_magnitude(keys):
    a, b = drawn(4, 2, 3, 5, keys), drawn(5, 2, 1, keys, 4)
    product = a @ b
    assert product.shape == (2, 3, 5, 4)
    for index in np.ndindex(*product.shape):
        *batch, r, c = index
        row, column = exact(a[*batch, r]), exact(b[batch[0], 0, :, c])
        terms = [x * y for x, y in zip(row, column, strict=True)]
        room = PRECISION * float(sum(map(abs, terms)))
        one = product.map(lambda array, at=index: array[at].reshape(1))
        assert_close(one, [sum(terms, Fraction(0))], [room])


@pytest.mark.parametrize("name", ["exp", "tanh"])
@pytest.mark.parametrize("spread", [0, 4, 40])
def test_functions_of_small_and_large_arguments(name, spread):
    x = drawn(6, 300, spread=spread)
    # From e^−640 on, the low half is subnormal.
    x = Pair(np.clip(x.hi, -600, 600), np.where(abs(x.hi) < 600, x.lo, 0.0))
    function = getattr(mpmath, name)
    wanted = [fraction(function(number(value))) for value in exact(x)]
    # An argument of hundreds has its own last place, which exp multiplies.
    room = [
        PRECISION * max(1, abs(float(value))) * abs(float(want))
        for value, want in zip(exact(x), wanted, strict=True)
    ]
    assert_close(getattr(pairs, name)(x), wanted, room)


def test_logarithms():
    x = abs(drawn(7, 300, spread=300))
    wanted = [fraction(mpmath.log(number(value))) for value in exact(x)]
    room = [PRECISION * max(1, abs(float(want))) for want in wanted]
    assert_close(pairs.log(x), wanted, room)


def test_exponentials_out_of_range():
    x = pairs.number(np.array([-np.inf, -1e300, -801.0, 0.0]))
    assert pairs.exp(x).hi.tolist() == [0, 0, 0, 1]


def test_nan_is_never_lost():
    nan, one = pairs.number(np.full((1, 1), np.nan)), pairs.number(np.ones((1, 1)))
    for result in (nan + one, one * nan, one / nan, nan @ one, abs(nan)):
        assert np.isnan(result.hi).all()
    for function in (pairs.exp, pairs.log, pairs.tanh):
        assert np.isnan(function(nan).hi).all()
