"""Attention by features: weights φ(q)·φ(k), so that keys and values are summed once.

    o_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j)
        = φ(q_i)·(Σ_j φ(k_j) v_jᵀ) / φ(q_i)·(Σ_j φ(k_j))

The sums in parentheses are the same for every query; with a causal mask they are prefix
sums, or the state of a recurrent network.  The denominator is the numerator for values
of 1, so both are one sum, over values with a 1 at their end.

These are approximations: gradients by automatic differentiation only, where there is.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from einops import rearrange

from attnref.spec import approximations as spec
from attnref.spec import patterns
from attnref.spec.checks import check_attention

from ..mask import forget_blocked, mask_array
from ..scores import accumulate, contract, group, ungroup


def feature_map(x, feature="elu+1"):
    """φ(x) ≥ 0, of axes `… r`, for x of axes `… d`.

    Args:
        x: in the accumulation type.
        feature: "elu+1": x + 1 above 0 and e^x below, so r = d; "relu": max(x, 0); or
            a callable, array → array, whose results must not be below 0.

    Source: elu(x) + 1: Katharopoulos et al., Transformers are RNNs (arXiv 2006.16236),
    equation 7.
    """
    spec.check_feature(feature)
    if callable(feature):
        return feature(x)
    return jnp.maximum(x, 0) if feature == "relu" else _above_elu(x)


@jax.jit
def _above_elu(x):
    """elu(x) + 1."""
    return jnp.where(x > 0, x + 1, jnp.exp(jnp.minimum(x, 0)))


def linear_attention(q, k, v, *, feature="elu+1", causal=False, offset=0, mask=None):
    """Attention with the weights φ(q_i)·φ(k_j) over their sum; no scale.

    In time and memory that grow with i + j, and not with i·j; causal, the prefix sums
    take r·e numbers a position (a recurrent network keeps one of them:
    `linear_attention_step`).

    Args:
        q: `b n i d`, with n = h·g.
        k: `b h j d`.
        v: `b h j e`.
        feature: as of `feature_map`.
        causal: whether query i sees the keys j ≤ i + offset only.
        offset: an int.
        mask: of keys alone, boolean (True = may attend) of axes `b 1 1 j`, or a
            predicate such as `attnref.spec.padding(lengths)`.

    Returns:
        the output `b n i e`, in the dtype of the inputs, rounded once, and the log of
        the denominator, `b n i`, in the accumulation type.  A query whose weights are
        all 0, or that is left no key, gets 0 and −∞.

    Raises:
        TypeError, ValueError: wrong input; the message names the axis and the sizes.

    Source: Katharopoulos et al. (arXiv 2006.16236), sections 3.2 and 3.3.
    """
    dtype = q.dtype
    q, k, v, mask, count = _seen(q, k, v, mask, causal, offset)
    features_q, features_k = feature_map(q, feature), feature_map(k, feature)
    r = spec.check_features(features_q, q)
    spec.check_features(features_k, k, r)
    output, total = _taken(features_q, features_k, v, mask, count)
    return output.astype(dtype), _log(total)


def linear_attention_step(state, q, k, v, *, feature="elu+1"):
    """One position of causal `linear_attention`, from the sums over those before.

    Args:
        state: `b h r (e + 1)` in the accumulation type: the sums of φ(k) v, and last
            those of φ(k); None before the first position.
        q: `b n 1 d`; k: `b h 1 d`; v: `b h 1 e`.
        feature: as of `feature_map`.

    Returns:
        the state with this position, and output and log of the denominator, as of
        `linear_attention`.

    Source: Katharopoulos et al. (arXiv 2006.16236), section 3.4.
    """
    sizes = check_attention(jax.Array, q, k, v)
    spec.check_one_position(sizes)
    features_q, features_k = (feature_map(accumulate(x), feature) for x in (q, k))
    if state is None:
        r = features_k.shape[-1]
        state = jnp.zeros((*v.shape[:2], r, v.shape[-1] + 1), features_k.dtype)
    return _step(state, features_q, features_k, v)


@jax.jit
def _step(state, features_q, features_k, v):
    term = contract(spec.SUMS, features_k, _with_1(accumulate(v)))
    spec.check_state(state, term.shape)
    state = state + term
    taken = contract(spec.TAKEN, group(features_q, v.shape[1]), state)
    output, total = _divided(taken)
    return state, output.astype(v.dtype), _log(total)


def random_features(x, draws, scale):
    """The logarithms of r positive features, one for each row w of the draws.

        ln φ(x) = √scale·x·w − scale·|x|² / 2

    Over normal w, the mean of φ(q)·φ(k) is e^(q·k·scale).

    Args:
        x: `b n i d`.
        draws: `r d`, such as normal numbers, or rows that are orthogonal beside.
        scale: a number above 0.

    Returns:
        `b n i r`, in the accumulation type.

    Source: Choromanski et al., Rethinking attention with Performers (arXiv 2009.14794),
    lemma 1.
    """
    spec.check_positive_scale(scale)
    return _random_features(x, draws, scale**0.5)


@jax.jit
def _random_features(x, draws, root):
    x = accumulate(x) * root
    halves = jnp.sum(x * x, axis=-1, keepdims=True) / 2
    return contract(spec.DRAWN, x, draws) - halves


def performer_attention(
    q, k, v, *, draws, scale=None, causal=False, offset=0, mask=None
):
    """Attention whose weights e^(q·k·scale) are estimated by random features.

    The draws are given, so that every framework has the same ones.  The error falls as
    one over the root of their number.  Features are taken relative to the largest one,
    of each query and of all keys of a head; no small number is added to them.

    Args:
        draws: `r d`, in the dtype of q; as of `random_features`.
        scale: a number above 0, 1/√d by default.

    The other arguments, and the errors, are those of `linear_attention`.

    Returns:
        output and log of the denominator: an estimate of the log-sum-exp.

    Source: Choromanski et al. (arXiv 2009.14794), sections 2.2 and 2.3.
    """
    dtype = q.dtype
    named = {"q": (q, patterns.QUERY), "draws": (draws, "r d")}
    spec.check_parameters(jax.Array, named)
    q, k, v, mask, count = _seen(q, k, v, mask, causal, offset, scale)
    scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
    logs_q, logs_k = (random_features(x, draws, scale) for x in (q, k))
    top_q, features_q = _shifted(logs_q, None, axis=-1)
    top_k, features_k = _shifted(logs_k, mask, axis=(-2, -1))
    output, total = _taken(features_q, features_k, v, None, count)
    lse = _shifted_back(_log(total), top_q, top_k, math.log(len(draws)))
    return output.astype(dtype), lse


def _seen(q, k, v, mask, causal, offset, scale=None):
    """Checked, in the accumulation type, without what no query sees.

    Returns:
        q, k, v, the mask, and how many keys each query sees, or None for all.
    """
    sizes = check_attention(jax.Array, q, k, v, mask=mask, scale=scale)
    spec.check_causal(causal, offset)
    mask = mask_array(mask, sizes)
    spec.check_key_mask(mask)
    q, k, v = forget_blocked(accumulate(q), accumulate(k), accumulate(v), mask)
    if causal:
        return _before(q, k, v, mask, offset)
    return (q if sizes["j"] else jnp.zeros_like(q)), k, v, mask, None


@partial(jax.jit, static_argnames="offset")
def _before(q, k, v, mask, offset):
    """Without the keys that come after every query, and with how many each sees."""
    i, j = q.shape[2], k.shape[2]
    stop = min(j, max(0, i + offset))
    count = jnp.clip(jnp.arange(i) + offset + 1, 0, stop)
    q = jnp.where(count[:, None] > 0, q, 0)
    mask = mask if mask is None else mask[..., :stop]
    return q, k[:, :, :stop], v[:, :, :stop], mask, count


def _down(mask):
    return rearrange(mask, spec.KEYS_DOWN)


@partial(jax.jit, static_argnames="axis")
def _shifted(logs, mask, axis):
    """The maximum, and the features relative to it: 0 where the mask blocks a key.

    The maximum, 0 where there is none, cancels, so no gradient flows through it.
    """
    logs = logs if mask is None else jnp.where(_down(mask), logs, -jnp.inf)
    top = jax.lax.stop_gradient(logs)
    top = top.max(axis=axis, keepdims=True, initial=-jnp.inf)
    top = jnp.where(top == -jnp.inf, 0, top)
    return top, jnp.exp(logs - top)


@jax.jit
def _shifted_back(lse, top_q, top_k, log_count):
    top_k = jnp.repeat(top_k, top_q.shape[1] // top_k.shape[1], axis=1)
    return lse + (top_q + top_k)[..., 0] - log_count


def _with_1(v):
    return jnp.concatenate([v, jnp.ones_like(v[..., :1])], axis=-1)


@jax.jit
def _taken(features_q, features_k, v, mask, count):
    """Output and denominator: what the features of queries take of those of keys that
    are not blocked."""
    if mask is not None:
        features_k = jnp.where(_down(mask), features_k, 0)
    values, grouped = _with_1(v), group(features_q, v.shape[1])
    if count is None:
        sums = contract(spec.SUMS, features_k, values)
        return _divided(contract(spec.TAKEN, grouped, sums))
    sums = jnp.cumsum(contract(spec.TERMS, features_k, values), axis=2)
    sums = jnp.pad(sums, [(0, 0), (0, 0), (1, 0), (0, 0), (0, 0)])
    return _divided(contract(spec.TAKEN_EACH, grouped, sums[:, :, count]))


@jax.jit
def _divided(taken):
    """`b h g i (e + 1)` → `b n i e`, 0 where all weights are, and the denominator."""
    taken = ungroup(taken)
    total = taken[..., -1:]
    is_empty = total == 0
    output = jnp.where(is_empty, 0, taken[..., :-1] / jnp.where(is_empty, 1, total))
    return output, total[..., 0]


@jax.jit
def _log(total):
    return jnp.where(total == 0, -jnp.inf, jnp.log(jnp.where(total == 0, 1, total)))
