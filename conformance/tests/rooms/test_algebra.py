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


def weights_are_within(got, want):
    """Sums of at most J + 8 roundings of terms that sum to 1."""
    return (abs(got - want) <= (J + 8) * 2.0**-53).all()


@repeatable
@given(seeds)
def test_values_of_one_give_one_and_none_gives_zero(room, seed):
    mask = coin(seed, *SHAPE)
    mask[0, 0, 0] = False
    case = draw(seed=seed, mask=mask)
    output = run(room, change(case, v=np.ones((B, H, J, E))))["output"]
    assert weights_are_within(output, mask.any(axis=-1)[..., None])


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
    b, n, i, j = np.indices(SHAPE)
    by_hand = ((j <= i + offset) | (j < count)) & ~((i - left <= j) & (j <= i))
    mask = (causal(offset) | prefix(count)) & ~window(left, 0)
    assert_defined(change(case, mask=by_hand), run(room, case, mask=mask))


@repeatable
@given(seeds, st.floats(-30, 30))
def test_a_constant_added_to_a_row_moves_its_log_sum_exp_only(room, seed, constant):
    case = draw(seed=seed)
    results = run(room, change(case, bias=np.full((1, 1, 1, 1), constant)))
    results["lse"] = results["lse"] - constant
    shifted = change(case, bias=np.full((1, 1, 1, 1), constant))
    results = {name: results[name] for name in results if name != "dbias"}
    want = run(room, case)
    room_for = {"weights": 1, "output": abs(case.inputs["v"]).max(), "lse": 1}
    for name, magnitude in room_for.items():
        bound = 2 * 2.0**-53 * (200 + 8 * (abs(constant) + abs(want["logits"]).max()))
        assert (abs(results[name] - want[name]) <= bound * magnitude).all(), name
    assert shifted.inputs["bias"].shape == (1, 1, 1, 1)
