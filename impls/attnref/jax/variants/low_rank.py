"""Attention through r combinations of the keys: weights of rank r.

These are approximations: gradients by automatic differentiation only, where there is.
"""

import jax
import jax.numpy as jnp
from einops import reduce

from attnref.spec import approximations as spec
from attnref.spec import patterns
from attnref.spec.checks import check_attention

from ..attend import attend
from ..attention import attention_steps
from ..mask import forget_blocked, mask_array
from ..scores import accumulate, apply_scale, contract, scores
from ..softmax import softmax


def linformer_attention(q, k, v, *, w_e, w_f=None, scale=None, mask=None):
    """Attention to r combinations of the keys, and of the values, instead of all.

    With w_e and w_f the identity, it is attention.

    Args:
        q: `b n i d`, with n = h·g.
        k: `b h j d`.
        v: `b h j e`.
        w_e: `j r`: combination r is Σ_j w_e[j, r]·k_j.
        w_f: `j r`, of the values; w_e by default.
        scale: finite number, 1/√d by default.
        mask: of keys alone, boolean (True = may attend) of axes `b 1 1 j`, or a
            predicate such as `attnref.spec.padding(lengths)`; a blocked key is in no
            combination.

    Returns:
        the output `b n i e`, in the dtype of the inputs, rounded once, and the
        log-sum-exp over the combinations, `b n i`, in the accumulation type.  A query
        that is left no key gets 0 and −∞.

    Raises:
        TypeError, ValueError: wrong input; the message names the axis and the sizes.

    Source: Wang et al., Linformer (arXiv 2006.04768), equation 7.
    """
    sizes = check_attention(jax.Array, q, k, v, mask=mask, scale=scale)
    named = {"k": (k, patterns.KEY), "w_e": (w_e, "j r"), "w_f": (w_f, "j r")}
    spec.check_parameters(jax.Array, named)
    mask = mask_array(mask, sizes)
    spec.check_key_mask(mask)
    dtype = q.dtype
    q, k, v = forget_blocked(accumulate(q), accumulate(k), accumulate(v), mask)
    keys = contract(spec.COMBINE, k, w_e)
    values = contract(spec.COMBINE, v, w_e if w_f is None else w_f)
    steps = attention_steps(q, keys, values, scale=scale)
    output, lse = steps.output, steps.lse
    if mask is not None:
        lse = jnp.where(mask.any(axis=-1), lse, -jnp.inf)
    if sizes["j"] == 0:
        lse = jnp.full_like(lse, -jnp.inf)
    return jnp.where(lse[..., None] == -jnp.inf, 0, output).astype(dtype), lse


def pseudo_inverse(x):
    """The Moore-Penrose inverse of `b n r r`, by singular values.

    Those of at most r·ε times the largest count as 0, ε the spacing of numbers at 1.
    """
    rtol = x.shape[-1] * float(jnp.finfo(x.dtype).eps)
    return jnp.linalg.pinv(x, rtol=rtol)


def nystrom_attention(q, k, v, *, landmarks, scale=None):
    """Attention through landmarks: the means of r segments of queries, and of keys.

        softmax(q·k̃ᵀ) · softmax(q̃·k̃ᵀ)⁺ · softmax(q̃·kᵀ) · v

    With as many landmarks as queries and as keys, it is attention.  The inverse is
    that of `pseudo_inverse`; the paper approximates it by six steps of an iteration.
    Rows have no denominator of their own, so there is no log-sum-exp, and no mask: what
    is padding is cut off before.

    Args:
        q: `b n i d`, with n = h·g.
        k: `b h j d`.
        v: `b h j e`.
        landmarks: r, of which i and j are multiples.
        scale: finite number, 1/√d by default.

    Returns:
        the output `b n i e`, in the dtype of the inputs, rounded once.

    Raises:
        TypeError, ValueError: wrong input; the message names the axis and the sizes.

    Source: Xiong et al., Nyströmformer (arXiv 2102.03902), equation 13.
    """
    sizes = check_attention(jax.Array, q, k, v, scale=scale)
    spec.check_landmarks(landmarks, sizes)
    scale = sizes["d"] ** -0.5 if scale is None else scale
    dtype = q.dtype
    q, k, v = accumulate(q), accumulate(k), accumulate(v)
    few_q, few_k = (reduce(x, spec.LANDMARKS, "mean", r=landmarks) for x in (q, k))
    first, core, last = (
        softmax(apply_scale(scores(queries, keys), scale))[0]
        for queries, keys in ((q, few_k), (few_q, few_k), (few_q, k))
    )
    solved = contract(spec.SOLVED, pseudo_inverse(core), attend(last, v))
    return contract(spec.SPREAD, first, solved).astype(dtype)
