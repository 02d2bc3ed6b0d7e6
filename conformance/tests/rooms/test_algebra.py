"""What attention does to all arrays, whatever they hold."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from attnref.spec import causal, prefix, window

from .calls import PRIMES, assert_defined, change, draw, repeatable, run

B, H, G, I, J, D, E = PRIMES.values()  # noqa: E741
SHAPE = (B, H * G, I, J)
seeds = st.integers(0, 2**16)


def coin(seed, *shape):
    return np.random.default_rng(seed).random(shape) < 0.7


@repeatable
@given(seeds, st.permutations(range(J)))
def test_keys_have_no_order(room, seed, order):
    case = draw(seed=seed, mask=coin(seed, *SHAPE), bias="bnij")
    keyed = {name: case.inputs[name][:, :, order] for name in "kv"}
    keyed |= {name: case.inputs[name][..., order] for name in ("mask", "bias")}
    results = run(room, change(case, **keyed))
    back = np.argsort(order)
    for name in ("dk", "dv"):
        results[name] = results[name][:, :, back]
    for name in ("scores", "logits", "masked", "weights", "dbias"):
        results[name] = results[name][..., back]
    assert_defined(case, results)


@repeatable
@given(seeds)
def test_values_of_one_give_one_and_none_gives_zero(room, seed):
    mask = coin(seed, *SHAPE)
    mask[0, 0, 0] = False
    case = draw(seed=seed, mask=mask)
    output = run(room, change(case, v=np.ones((B, H, J, E))))["output"]
    # J − 1 roundings in the total, J in the sum of the quotients, 1 in each, and the
    # products of errors.
    bound = (2 * J + 1) * 2.0**-53
    assert (abs(output - mask.any(axis=-1)[..., None]) <= bound).all()


@repeatable
@given(seeds)
def test_the_identity_as_values_reads_the_weights(room, seed):
    case = draw(seed=seed, mask=coin(seed, *SHAPE), sizes=PRIMES | {"e": J})
    identity = np.broadcast_to(np.eye(J), (B, H, J, J)).copy()
    results = run(room, change(case, v=identity))
    assert (results["output"] == results["weights"]).all()


@repeatable
@given(seeds, st.integers(-3, 3), st.integers(0, 4), st.integers(0, J))
def test_masks_compose(room, seed, offset, left, count):
    case = draw(seed=seed)
    _, _, i, j = np.indices(SHAPE)
    by_hand = ((j <= i + offset) | (j < count)) & ~((i - left <= j) & (j <= i))
    mask = (causal(offset) | prefix(count)) & ~window(left, 0)
    assert_defined(change(case, mask=by_hand), run(room, case, mask=mask))
