"""Operations that reduce to plain attention: inputs, options and reduction, as data.

Adding one is adding a module here, its cases in `attncheck.suite`, and its faults in
`attncheck.variants`.  No code is shared with the rooms, or with those faults.
"""

from collections.abc import Mapping

from attncheck.operations.additive import ADDITIVE
from attncheck.operations.cosine import COSINE
from attncheck.operations.features import LINEAR, PERFORMER
from attncheck.operations.latent import LATENT
from attncheck.operations.low_rank import LINFORMER, NYSTROM
from attncheck.operations.operation import RETURNED, Operation, Reduced, Setting
from attncheck.operations.relative import ALIBI, SHAW, T5
from attncheck.operations.rotary import ROTARY
from attncheck.operations.sinks import SINK

__all__ = ["OPERATIONS", "RETURNED", "SETTINGS", "Operation", "Reduced", "Setting"]

OPERATIONS: Mapping[str, Operation] = {
    operation.name: operation
    for operation in (
        *(ROTARY, SHAW, T5, ALIBI, SINK, ADDITIVE, COSINE, LATENT),
        *(LINEAR, PERFORMER, LINFORMER, NYSTROM),
    )
}
"""Name → operation, beside `attention` and `multi_head_attention`."""

SETTINGS: Mapping[str, Setting] = {
    name: setting
    for operation in OPERATIONS.values()
    for name, setting in operation.settings.items()
}
"""Option → what it must be; one that several operations have is the same in all."""
