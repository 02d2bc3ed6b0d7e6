"""The correct implementations that no rule may call wrong, from the soundness folder.

The model of the variants is one more: it is what every fault is a change of.  Other
operations than attention have the model and the rooms.
"""

import sys
from functools import cache
from pathlib import Path

from attncheck.budget import PROFILES
from attncheck.case import DTYPES, Case
from attncheck.exchange import Result
from attncheck.variants.model import Model, rounded

sys.path.append(str(Path(__file__).parents[1] / "soundness"))

from implementations import Implementation, numpy, room

PROFILE = {
    "F64": "strict",
    "F32": "strict",
    "BF16": "tensor-core",
    "F16": "tensor-core",
}
"""The profile by which faults are judged in each storage type."""


MODEL = "the model"


def stores(dtype: str) -> bool:
    """Whether weights and gradients of logits are rounded before their products."""
    return PROFILE[dtype] == "tensor-core"


def model(case: Case) -> Result:
    """What the right model makes of a case."""
    results = Model(case, stores=stores(case.dtype)).results()
    return Result(case.id, "done", arrays=rounded(case, results))


@cache
def implementations(dtype: str, op: str = "") -> dict[str, Implementation]:
    """Those that the profile of a storage type allows, by name; strict ones always.

    Args:
        op: an operation beside attention and multi-head attention, or nothing.
    """
    allowed = ("strict", PROFILE[dtype])
    others = [room("numpy"), room("torch")] if op else numpy()
    right = Implementation(
        name=MODEL,
        compute=model,
        profile=PROFILES[PROFILE[dtype]],
        profile_name=PROFILE[dtype],
        dtypes=tuple(DTYPES),
    )
    return {
        one.name: one
        for one in (right, *others)
        if dtype in one.dtypes and one.profile_name in allowed
    }
