"""The words in which three array libraries say the same thing differently.

What is the same in all of them needs no word here: `x.swapaxes(1, 2)`,
`x.any(axis=-1)`, `where`, `arange`.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Dialect(NamedTuple):
    """How code of one framework is written; `{x}` stands for an expression."""

    name: str
    """Of the module, in code."""
    imports: str
    boolean: str
    """The type of a boolean array."""
    on_device: str
    """What makes a new array be where the query is."""
    repeat: str
    """Every head of axis 1 `{g}` times, one after the other."""
    pad: str
    """Zeros after the last axis, up to `{width}`."""
    cast: str
    """To the type of `{like}`."""
    keeps: bool = True
    """Whether a Python float leaves an array's type: in NumPy not bfloat16's."""

    def kept(self, expression: str, like: str) -> str:
        """An expression with a Python float in it, in the type of `like`."""
        if self.keeps:
            return expression
        is_call = expression.startswith(f"{self.name}.")
        whole = expression if is_call else f"({expression})"
        return self.cast.format(x=whole, like=like)


_NUMPY = Dialect(
    name="np",
    imports="import numpy as np",
    boolean="np.bool_",
    on_device="",
    repeat="np.repeat({x}, {g}, axis=1)",
    pad="np.pad({x}, [(0, 0)] * 3 + [(0, {width} - {x}.shape[-1])])",
    cast="{x}.astype({like}.dtype)",
    keeps=False,
)

DIALECTS: Mapping[str, Dialect] = {
    "numpy": _NUMPY,
    "jax": _NUMPY._replace(
        name="jnp",
        imports="import jax.numpy as jnp",
        boolean="jnp.bool_",
        repeat=_NUMPY.repeat.replace("np.", "jnp."),
        pad=_NUMPY.pad.replace("np.", "jnp."),
        keeps=True,
    ),
    "torch": Dialect(
        name="torch",
        imports="import torch",
        boolean="torch.bool",
        on_device=", device={like}.device",
        repeat="{x}.repeat_interleave({g}, dim=1)",
        pad="torch.nn.functional.pad({x}, (0, {width} - {x}.shape[-1]))",
        cast="{x}.to({like}.dtype)",
    ),
}
"""Framework → its dialect."""
