r"""How much error is legal: an elementwise bound, derived from the case, never tuned.

The model is the standard one of rounding, fl(a ∘ b) = (a ∘ b)(1 + e) + f with |e| ≤ u
and |f| ≤ `tiny` (underflow).  The bound composes such errors step by step, for every
implementation that is legal under a profile: any order of summation, blocks of 16 keys
or more with running maxima, splits merged by log-sum-exp, exp or exp2 with log₂e folded
into the scale, a shift of up to 8 ln 2 below the running maximum, normalising before or
after the product with V, a backward pass from stored output and log-sum-exp or from
row sums of weights times their gradients.  Rescale factors are the exponential of a
difference of two maxima.  Tiles are unknown to the judge, so R = ⌈j/16⌉ rescales are
always allowed.

Weights are bounded in the exponent, p·e^±a, because a logit of −10⁹ has an a in the
hundreds and p = 0.  Products of (1 + e) are compounded, not added to first order.
Sources: Higham, Accuracy and Stability of Numerical Algorithms, §3.1 (γ) and §2.1
(underflow); Blanchard, Higham & Higham (2021), doi 10.1093/imanum/draa038 (softmax).

Where a case is found to be random (`randomness`), independent roundings are put in
quadrature instead of added up (`quadrature`), and the smaller bound holds.
The derivation is in docs/budget.md.
"""

from attncheck.budget.bounds import Budget, budget, derive, output_dtype
from attncheck.budget.condition import is_void
from attncheck.budget.profile import PROFILES, Profile
from attncheck.budget.randomness import deviations_allowed
from attncheck.budget.rounding import half_ulp, interval, nearest
from attncheck.budget.split import SOURCES, as_shares, parts, split
from attncheck.budget.statistics import RMS_LIMIT, Pooled, Sample, pool, sample

__all__ = [
    "PROFILES",
    "RMS_LIMIT",
    "SOURCES",
    "Budget",
    "Pooled",
    "Profile",
    "Sample",
    "as_shares",
    "budget",
    "derive",
    "deviations_allowed",
    "half_ulp",
    "interval",
    "is_void",
    "nearest",
    "output_dtype",
    "parts",
    "pool",
    "sample",
    "split",
]
