"""Attention in float64, in blocks of keys as kernels do it; every method is one step.

A variant replaces some steps.  The model shares no code with the definition, with the
rooms, or with the formulas that are certified.  Each module adds the steps of one idea
to those of the module before.
"""

from attncheck.variants.model.features import Features
from attncheck.variants.model.latent import Latent
from attncheck.variants.model.low_rank import LowRank
from attncheck.variants.model.parts import (
    TILE,
    Array,
    Arrays,
    narrow_sum,
    rounded,
    toward_zero,
)

__all__ = ["TILE", "Array", "Arrays", "Model", "narrow_sum", "rounded", "toward_zero"]


class Model(Features, LowRank, Latent):
    """Every operation."""

    def results(self) -> Arrays:
        """Everything that the case could want, in float64."""
        if self.case.op == "multi_head_attention":
            forward = self.forward(*self.projected())
            return forward | {"output": self.merged(forward["output"])}
        if self.case.op == "latent_attention":
            return self.by_latent()
        if self.case.op in ("linear_attention", "performer_attention"):
            return self.by_features()
        if self.case.op == "linformer_attention":
            return self.by_combinations()
        if self.case.op == "nystrom_attention":
            return self.by_landmarks()
        operands = self.operands()
        forward = self.forward(*operands)
        return forward | self.backward(*operands, forward)
