"""All probes, in the order in which each can build on those before it."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from attncheck.case import DTYPES
from attncheck.fingerprint.function import Function, Refused
from attncheck.fingerprint.precision import profile
from attncheck.fingerprint.probes import arithmetic, logits, masks, results
from attncheck.fingerprint.reading import NotMeasured, Reading, Seen

Probe = Callable[[Function], Seen]

PROBES: Mapping[str, Probe] = {
    probe.__name__: probe
    for probe in (
        logits.layout,
        logits.scale,
        logits.scale_zero,
        logits.scale_negative,
        logits.value_width,
        logits.heads,
        logits.weight_layout,
        masks.mask_true,
        masks.mask_float,
        masks.causal,
        masks.mask_and_causal,
        masks.window,
        masks.fill,
        logits.bias,
        logits.softcap,
        logits.sinks,
        masks.empty_row,
        masks.empty_row_bias,
        results.lse,
        results.lse_empty,
        results.lse_dtype,
        results.weights,
        results.weights_heads,
        results.dropout_rescale,
        arithmetic.nan_blocked_k,
        arithmetic.nan_blocked_v,
        arithmetic.nan_visible,
        arithmetic.softmax_dtype,
        arithmetic.float64,
    )
}
"""Field of `Conventions` → the probe that measures it; its name is the field's, and its
docstring says what it calls and how the value is read."""

NAMES = (*PROBES, *DTYPES)
"""Everything that is measured, in order."""


def read(f: Function, name: str) -> Reading:
    """Runs one probe, named by its field or by a storage type; it may build on what is
    known of the function, and adds to it.
    """
    started = time.perf_counter()
    try:
        seen = profile(f, name) if name in DTYPES else PROBES[name](f)
    except (NotMeasured, Refused) as reason:
        what = "" if isinstance(reason, NotMeasured) else "refused: "
        found: dict[str, Any] = {"shown": f"{what}{reason}"}
    else:
        f.known[name] = seen.value
        found = {"measured": True, **vars(seen)}
    return Reading(probe=name, seconds=time.perf_counter() - started, **found)
