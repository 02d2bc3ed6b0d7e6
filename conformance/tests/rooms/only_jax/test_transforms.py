"""`jit`, `vmap` and `grad`; what is a pytree; float64; precision."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnref.jax import (
    MultiHeadParams,
    attention,
    attention_steps,
    attention_vjp,
    multi_head_attention,
)
from attnref.spec import (
    block_local,
    causal,
    global_positions,
    listed_blocks,
    padding,
    prefix,
    segments,
    strided,
    window,
)

from ..calls import answered, assert_defined, change, draw, run

STATIC = ("scale", "softcap", "dropout_rate")
SIZES = {"b": 2, "h": 2, "g": 3, "i": 5, "j": 7, "d": 4, "e": 8}
FULL = (2, 6, 5, 7)
GRADIENTS = ("dq", "dk", "dv", "dbias")

PREDICATES = {
    "causal": causal(),
    "offset of each batch element": causal([0, 2]),
    "padding": padding([3, 7]) & causal(2),
    "padding of an array": padding(np.array([3, 7])),
    "window": ~window(1, None) | prefix(2),
    "segments": segments([[0, 0, 1, 1, 2]] * 2, [[0, 0, 1, 1, 1, 2, 2]] * 2),
    "strided": strided(3, [2, 0]),
    "big bird": block_local(2, 1, None)
    | listed_blocks([[2], [3], [-1]], 2)
    | global_positions([0]),
}


def jitted(room):
    """The room with its two functions under `jit`."""
    compiled = {
        "attention_steps": jax.jit(attention_steps, static_argnames=STATIC),
        "attention_vjp": jax.jit(attention_vjp, static_argnames=STATIC),
    }

    class Jitted:
        framework, array, numpy = room.framework, room.array, room.numpy

        def __getattr__(self, name):
            return compiled[name]

    return Jitted()


def test_under_jit_every_result_is_the_definitions(room):
    rng = np.random.default_rng(0)
    case = draw(
        sizes=SIZES,
        bias="nij",
        mask=rng.random(FULL) < 0.7,
        scale=-0.3,
        softcap=1.5,
        dropout_rate=0.5,
        dropout_keep=rng.random(FULL) < 0.5,
    )
    assert_defined(case, run(jitted(room), case))


@pytest.mark.parametrize("mask", PREDICATES.values(), ids=PREDICATES)
def test_a_predicate_is_an_argument_of_jit(room, mask):
    case = draw("F32", sizes=SIZES, mask=answered(mask, FULL))
    assert_defined(case, run(jitted(room), case, mask=mask))


def test_traced_lengths_are_not_compiled_in(room):
    traces = []

    @jax.jit
    def padded(q, k, v, lengths):
        traces.append(lengths)
        return attention(q, k, v, mask=padding(lengths))

    case = draw("F32", sizes=SIZES)
    q, k, v = (room.array(case.inputs[name]) for name in "qkv")
    for lengths in ([3, 7], [0, 1], [7, 7]):
        got = padded(q, k, v, jnp.array(lengths))
        masked = change(case, mask=answered(padding(lengths), FULL))
        assert_defined(masked, {"output": np.asarray(got)})
    assert len(traces) == 1


@pytest.mark.parametrize("mask", PREDICATES.values(), ids=PREDICATES)
def test_a_predicate_is_a_pytree_of_its_arrays(mask):
    leaves, tree = jax.tree.flatten(mask)
    again = jax.tree.unflatten(tree, leaves)
    assert type(again) is type(mask)
    assert (answered(again, FULL) == answered(mask, FULL)).all()
    doubled = jax.tree.map(lambda x: x, mask)
    assert jax.tree.structure(doubled) == tree


def test_a_traced_predicate_claims_nothing_of_a_block():
    claims = []

    @jax.jit
    def ask(*masks):
        claims.extend(mask.block(0, 2, 0, 2) for mask in masks)
        return 0

    ask(
        padding([3]),
        padding([3, 4]),
        padding(np.array([3])),
        causal([0]),
        window(1, 1, [0]),
    )
    assert claims == ["partial"] * 5
    claims.clear()
    ask(causal(4), prefix(1), window(1, 1, -5))
    assert claims == ["full", "partial", "empty"]


def test_vmap_over_another_axis(room):
    case = draw("F32", sizes=SIZES)
    q, k, v = (room.array(case.inputs[name]) for name in "qkv")
    qs = jnp.stack([q, 2 * q, -q])
    mapped = jax.vmap(lambda q: attention(q, k, v, mask=causal()))(qs)
    for got, q in zip(mapped, qs, strict=True):
        masked = change(case, q=np.asarray(q), mask=answered(causal(), FULL))
        assert_defined(masked, {"output": np.asarray(got)})


def test_vmap_over_lengths(room):
    case = draw("F32", sizes=SIZES)
    q, k, v = (room.array(case.inputs[name]) for name in "qkv")
    lengths = np.array([[3, 7], [0, 1]])
    mapped = jax.vmap(lambda x: attention(q, k, v, mask=padding(x)))(jnp.array(lengths))
    for got, at in zip(mapped, lengths, strict=True):
        masked = change(case, mask=answered(padding(at), FULL))
        assert_defined(masked, {"output": np.asarray(got)})


def test_grad_gives_what_attention_vjp_gives(room):
    mask = np.random.default_rng(0).random(FULL) < 0.7
    case = draw(sizes=SIZES, bias="nj", mask=mask)
    with jax.enable_x64(True):
        a = {name: room.array(x) for name, x in case.inputs.items()}

        def loss(q, k, v, bias):
            steps = attention_steps(q, k, v, mask=a["mask"], bias=bias)
            return (steps.output * a["d_out"]).sum() + (steps.lse * a["d_lse"]).sum()

        arguments = (a["q"], a["k"], a["v"], a["bias"])
        gradients = jax.grad(loss, argnums=(0, 1, 2, 3))(*arguments)
    assert_defined(case, dict(zip(GRADIENTS, map(np.asarray, gradients), strict=True)))


def params():
    """c = m = 5, n = 6, h = 2, d = 4, e = 3; no biases."""
    rng = np.random.default_rng(0)
    shapes = [(5, 6, 4), (5, 2, 4), (5, 2, 3), (6, 3, 5)]
    return MultiHeadParams(
        *(jnp.array(rng.normal(size=x), jnp.float32) for x in shapes)
    )


def test_parameters_are_a_pytree():
    x = jnp.array(np.random.default_rng(1).normal(size=(2, 7, 5)), jnp.float32)
    assert len(jax.tree.leaves(params())) == 4
    output = jax.jit(multi_head_attention)(params(), x, mask=causal())
    assert output.shape == x.shape

    @jax.jit
    @jax.grad
    def gradient(params):
        return multi_head_attention(params, x, mask=causal()).sum()

    gradients = gradient(params())
    assert isinstance(gradients, MultiHeadParams)
    assert gradients.b_q is None
    assert all((g != 0).any() for g in jax.tree.leaves(gradients))


WIDE = (
    "float64 inputs need jax.config.update('jax_enable_x64', True): without it JAX "
    "computes in float32 and says nothing"
)


@pytest.mark.parametrize("function", [attention, partial(attention_vjp, None)])
@pytest.mark.parametrize("masked", [False, True])
def test_float64_while_x64_is_off_is_refused(function, masked):
    with jax.enable_x64(True):
        q = jnp.ones((1, 2, 3, 4), jnp.float64)
    if isinstance(function, partial):
        function = partial(attention_vjp, q)
    with jax.enable_x64(False):
        mask = jnp.ones((1, 1, 1, 1), bool) if masked else None
        with pytest.raises(ValueError, match=r"^float64 inputs need") as error:
            function(q, q, q, mask=mask)
        assert str(error.value) == WIDE


def test_float64_weights_while_x64_is_off_are_refused():
    with jax.enable_x64(True):
        x = jnp.ones((1, 3, 5), jnp.float64)
        wide = jax.tree.map(lambda w: w.astype(jnp.float64), params())
    with (
        jax.enable_x64(False),
        pytest.raises(ValueError, match=r"^float64 inputs need"),
    ):
        multi_head_attention(wide, x)


def products(jaxpr):
    """Every matrix product of a program, inner programs included."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from products(inner)


HIGHEST = (jax.lax.Precision.HIGHEST,) * 2


def test_every_product_asks_for_the_highest_precision():
    case = draw("F32", sizes=SIZES)
    arrays = [jnp.array(case.inputs[name]) for name in ("d_out", "q", "k", "v")]
    forward = list(products(jax.make_jaxpr(attention)(*arrays[1:]).jaxpr))
    both = list(products(jax.make_jaxpr(attention_vjp)(*arrays).jaxpr))
    whole = jax.make_jaxpr(multi_head_attention)(params(), jnp.ones((2, 7, 5)))
    assert len(forward) == 2
    assert len(both) == 6
    found = [*forward, *both, *products(whole.jaxpr)]
    assert {equation.params["precision"] for equation in found} == {HIGHEST}


def test_a_traced_scale_is_refused():
    q = jnp.ones((1, 1, 1, 1))
    with pytest.raises(TypeError, match="`scale` must be a Python number"):
        jax.jit(attention)(q, q, q, scale=0.5)
