"""The implementations whose results must never be called wrong, by framework."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import ml_dtypes
import numpy as np
from kernels import (
    EAGER,
    TENSOR_CORE,
    WITH_DP,
    Kernel,
    run,
    sequential,
    tf32,
    truncating,
)

from attncheck import frameworks
from attncheck.budget import PROFILES, Profile
from attncheck.case import DTYPES, GRADIENTS, Case
from attncheck.exchange import Result
from attncheck.subject import Subject
from attncheck.subjects.attnref import room_subject
from attncheck.worker import run_case, through_compiler

EXACT = ("F64", "F32")
HALF = ("BF16", "F16")


@dataclass(frozen=True)
class Known:
    """A way in which an implementation departs from the spec by its own doing."""

    why: str
    concerns: Callable[[Case, str], bool]
    """Whether a result of a case is concerned."""


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """One implementation, and the precision that it is legal under."""

    name: str
    compute: Callable[[Case], Result]
    profile: Profile
    profile_name: str
    dtypes: tuple[str, ...]
    known: tuple[Known, ...] = ()

    def exception(self, case: Case, result: str) -> Known | None:
        """The known departure that concerns a result, if one does."""
        return next((k for k in self.known if k.concerns(case, result)), None)


# ---------------------------------------------------------------------------- NumPy

TILES = Kernel(tile=16, base=2)
KERNELS: Mapping[tuple[str, tuple[str, ...]], Mapping[str, Kernel]] = {
    ("strict", (*EXACT, *HALF)): {
        "naive": Kernel(rowsum=True),
        "tiles of 16, exp2": TILES,
        "split and merged": Kernel(split=True, tile=16),
    },
    ("strict", EXACT): {
        "normalised first": Kernel(normalised=True),
        "one term after the other": Kernel(dot=sequential),
        "tiles of 64, exp": Kernel(tile=64),
        "lagging maximum": Kernel(tile=16, base=2, lags=True),
        "flushing subnormals": Kernel(tile=16, base=2, flush=True),
    },
    ("tf32", ("F32",)): {
        "tf32, naive": Kernel(dot=tf32),
        "tf32, tiles of 16": Kernel(dot=tf32, tile=16, base=2),
    },
    ("tensor-core", HALF): {
        "rounded P, dS: tiles of 16": Kernel(tile=16, base=2, stored=TENSOR_CORE),
        "rounded P, dS: normalised first": Kernel(
            normalised=True, rowsum=True, stored=TENSOR_CORE
        ),
        "rounded P, dS: lagging maximum": Kernel(
            tile=16, base=2, lags=True, stored=TENSOR_CORE
        ),
        "rounded P, dS: split and merged": Kernel(
            split=True, tile=16, stored=TENSOR_CORE
        ),
        "rounded P, dS: sums cut off": Kernel(
            dot=truncating, tile=64, base=2, stored=TENSOR_CORE
        ),
    },
    ("tensor-core+dP", HALF): {
        "rounded P, dP, dS": Kernel(rowsum=True, normalised=True, stored=WITH_DP)
    },
    ("eager", HALF): {
        "all that has a name rounded": Kernel(
            rowsum=True, normalised=True, stored=EAGER
        )
    },
}


def _done(case: Case, kernel: Kernel) -> Result:
    return Result(case.id, "done", arrays=run(case, kernel))


def kernels() -> list[Implementation]:
    """The kernels of this folder."""
    return [
        Implementation(
            name=name,
            compute=partial(_done, kernel=kernel),
            profile=PROFILES[profile],
            profile_name=profile,
            dtypes=dtypes,
        )
        for (profile, dtypes), named in KERNELS.items()
        for name, kernel in named.items()
    ]


def room(framework: str) -> Implementation:
    """The room of a framework."""
    subject = room_subject(framework)
    return of_subject(subject, PROFILES["strict"], "strict", (*EXACT, *HALF))


def of_subject(
    subject: Subject,
    profile: Profile,
    profile_name: str,
    dtypes: tuple[str, ...],
    known: tuple[Known, ...] = (),
) -> Implementation:
    """A subject as the judge runs it."""
    return Implementation(
        name=subject.name,
        compute=partial(run_case, subject, described={}),
        profile=profile,
        profile_name=profile_name,
        dtypes=dtypes,
        known=known,
    )


def numpy() -> list[Implementation]:
    """The kernels and the room."""
    return [*kernels(), room("numpy")]


# ---------------------------------------------------------------------------- known


def _is_poisoned(case: Case) -> bool:
    """An input holds NaN or infinity, other than a bias of −∞."""
    return any(
        not (np.isfinite(x) | ((x == -np.inf) & (name == "bias"))).all()
        for name, x in case.inputs.items()
        if x.dtype != bool
    )


def _live(case: Case) -> np.ndarray:
    """Visible, with a bias that is not −∞: `b n i j`."""
    bias = case.inputs.get("bias", np.zeros((1, 1, 1, 1))).astype(np.float64)
    mask = case.inputs.get("mask", np.ones((1, 1, 1, 1), bool))
    shape = [case.sizes[axis] for axis in "bnij"]
    return np.broadcast_to(mask & (bias != -np.inf), shape)


def _has_empty_rows(case: Case) -> bool:
    return not _live(case).any(axis=-1).all()


def _overflows(case: Case) -> bool:
    """A gradient of a weight, blocked or not, is beyond the storage type."""
    if "d_out" not in case.inputs:
        return False
    v = np.repeat(case.inputs["v"].astype(np.float64), case.sizes["g"], axis=1)
    dp = case.inputs["d_out"].astype(np.float64) @ np.swapaxes(v, -1, -2)
    largest = float(ml_dtypes.finfo(DTYPES[case.dtype]).max)
    return bool((np.abs(dp) > largest).any())


POISON = Known(
    "what is not finite at a key that no query may see reaches the results",
    lambda case, name: _is_poisoned(case),
)
"""0 · NaN is NaN: both libraries multiply weights of 0 with what stands there."""

# ---------------------------------------------------------------------------- torch


def torch() -> list[Implementation]:
    """The room, and the two backends of scaled_dot_product_attention on the CPU."""
    from torch.nn.attention import SDPBackend

    flash = sdpa("CPU flash", SDPBackend.FLASH_ATTENTION)
    math = sdpa("math", SDPBackend.MATH)
    fast = Profile(exp=2.0**-13, weights="storage", d_logits="storage")
    stored = Known(
        "dk and dv of grouped heads: each head's part is added to the sum in storage",
        lambda case, name: name in ("dk", "dv") and case.sizes["g"] > 1,
    )
    strict = PROFILES["strict"]
    return [
        room("torch"),
        of_subject(math, strict, "strict", (*EXACT, *HALF), (POISON,)),
        of_subject(flash, strict, "strict", EXACT, (POISON,)),
        of_subject(flash, fast, "tensor-core, exp 2⁻¹³", HALF, (POISON, stored)),
    ]


def sdpa(name: str, backend) -> Subject:
    """One backend of torch's scaled_dot_product_attention."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def call(q, k, v, *, mask=None, bias=None, scale=None):
        if mask is not None and bias is not None:
            bias = torch.where(mask, bias, -torch.inf)
        options = {"attn_mask": mask if bias is None else bias, "scale": scale}
        options["enable_gqa"] = q.shape[1] != k.shape[1]
        if backend == SDPBackend.FLASH_ATTENTION:
            _check_flash(q, k, v, bias)
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(q, k, v, **options)

    return Subject(
        call=call,
        framework="torch",
        name=f"torch SDPA, {name}",
        accepts=frozenset({"mask", "bias", "scale"}),
    )


def _check_flash(q, k, v, bias) -> None:
    if v.shape[3] != k.shape[3]:
        raise NotImplementedError("takes values as wide as keys only")
    if bias is not None and bias.requires_grad:
        raise NotImplementedError("has no gradient of a bias")
    if not (v.numel() and k.numel()):
        raise NotImplementedError("takes no empty arrays")
    if not q.stride(3) == k.stride(3) == v.stride(3) == 1:
        raise NotImplementedError("takes arrays whose last axis is contiguous")


# ------------------------------------------------------------------------------ jax


def jax() -> list[Implementation]:
    """The room, and jax.nn.dot_product_attention, through `jax.jit`.

    But for float16 in the library: inside of jit XLA refuses its products on CPUs.
    """
    adapter = frameworks.adapter("jax")
    known = (
        POISON,
        Known(
            "a query that may see no key gets the mean of all values",
            lambda case, name: _has_empty_rows(case),
        ),
        Known(
            "the gradient of a blocked weight overflows float16, and NaN spreads",
            lambda case, name: name in GRADIENTS and _overflows(case),
        ),
    )
    wide = Known(
        "float64 is computed in float32", lambda case, name: case.dtype == "F64"
    )
    reference = through_compiler(room_subject("jax"), adapter)
    library = dot_product_attention()
    jitted = through_compiler(library, adapter)
    jitted = replace(jitted, call=refusing(jitted.call))
    strict, dp = PROFILES["strict"], "tensor-core+dP"
    return [
        of_subject(reference, strict, "strict", (*EXACT, *HALF)),
        of_subject(jitted, strict, "strict", EXACT, (wide, *known)),
        of_subject(jitted, PROFILES[dp], dp, ("BF16",), known),
        of_subject(library, PROFILES[dp], dp, ("F16",), known),
    ]


def refusing(call: Callable) -> Callable:
    """`call`, where what XLA cannot compile is refused, and no error.

    In bfloat16 that is a product of two numbers, 1 × 1 matrices.
    """
    from jax.errors import JaxRuntimeError

    def called(*arrays, **options):
        try:
            return call(*arrays, **options)
        except JaxRuntimeError as error:
            if "Algorithm not supported" in str(error):
                raise NotImplementedError(str(error)) from error
            raise

    return called


def dot_product_attention() -> Subject:
    """jax.nn.dot_product_attention by XLA, which has heads after positions."""
    import jax

    def call(q, k, v, *, mask=None, bias=None, scale=None):
        if v.shape[3] != k.shape[3]:
            raise NotImplementedError("takes values as wide as keys only")
        q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
        out = jax.nn.dot_product_attention(
            q, k, v, bias, mask, scale=scale, implementation="xla"
        )
        return out.transpose(0, 2, 1, 3)

    return Subject(
        call=call,
        framework="jax",
        name="jax.nn.dot_product_attention",
        accepts=frozenset({"mask", "bias", "scale"}),
    )


FRAMEWORKS: Mapping[str, Callable[[], list[Implementation]]] = {
    "numpy": numpy,
    "torch": torch,
    "jax": jax,
}
