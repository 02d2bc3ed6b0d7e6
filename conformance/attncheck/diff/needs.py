"""What an adapter has to do, read from two fingerprints."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from attncheck.fingerprint import Fingerprint

ROWS: Mapping[str, str] = {
    "zero": "0",
    "nan": "{np}.nan",
    "mean": "{v}.mean(axis=-2, keepdims=True)",
}
"""What a row without a key may get → the code for it."""


class NoAdapterError(Exception):
    """Why there can be no adapter at all; one sentence."""


@dataclass(frozen=True)
class Needs:
    """What is between a call of `a` and the same call of `b`.

    Where both do the same, nothing is.
    """

    a: Fingerprint
    b: Fingerprint

    def here(self, field: str) -> Any:
        """What `a` does; None where that was not measured."""
        return self.a.known.get(field)

    def there(self, field: str) -> Any:
        """What `b` does."""
        return self.b.known.get(field)

    def differ(self, field: str) -> bool:
        """Whether the two do not do the same."""
        return self.here(field) != self.there(field)

    @cached_property
    def keywords(self) -> dict[str, str]:
        """The parts of a call of `b` that can be passed on to `a`."""
        own = self.a.calling
        kept = {
            "mask": self.can_block,
            "bias": self.here("bias") is not None,
            "causal": self.can_block or not self._flag_differs,
            "window": self.can_block or not self._window_differs,
            "scale": True,
            "softcap": own.takes("softcap") and not self.differ("softcap"),
            "sinks": self.here("sinks") is True,
            "dropout_rate": own.takes("dropout_rate"),
            "dropout_keep": own.takes("dropout_keep"),
            "grouped": True,
            "lse": self.here("lse") is not None,
        }
        given = self.b.calling.keywords
        return {part: word for part, word in given.items() if kept.get(part)}

    def takes(self, part: str) -> bool:
        """Whether the adapter has a keyword for the part."""
        return part in self.keywords

    @cached_property
    def takes_bias(self) -> bool:
        """Whether a bias may come, by itself or as a float mask."""
        return self.takes("bias") or (
            self.here("bias") is not None and self.there("mask_float") == "add"
        )

    # --- masks ---

    @cached_property
    def can_block(self) -> bool:
        """Whether `a` can be told what each query may see."""
        return self.here("mask_true") is not None or self.here("mask_float") == "add"

    @cached_property
    def masks(self) -> bool:
        """Whether the adapter has to work out what each query may see."""
        if not self.can_block:
            return False
        flags = self.takes("causal") and (
            self._flag_differs or (self.takes("mask") and self._both_differ)
        )
        return (
            flags
            or (self.takes("window") and self._window_differs)
            or (self.takes("mask") and self._mask_differs)
            or self.fills("empty_row")
            or self.empties_lse
            or bool(self.hides)
        )

    @property
    def _flag_differs(self) -> bool:
        return not self.a.calling.takes("causal") or self.differ("causal")

    @property
    def _both_differ(self) -> bool:
        return self.differ("mask_and_causal") and (
            self.there("mask_and_causal") != "refuse"
        )

    @property
    def _window_differs(self) -> bool:
        details = [one.readings["window"].detail for one in (self.a, self.b)]
        return self.differ("window") or details[0] != details[1]

    @property
    def _mask_differs(self) -> bool:
        return (
            (self.differ("mask_true") and self.there("mask_true") is not None)
            or (self.differ("mask_float") and self.there("mask_float") != "refuse")
            or self.merges
        )

    @cached_property
    def merges(self) -> bool:
        """Whether one keyword of `a` carries both the mask and the bias."""
        return self.takes_bias and not self.a.calling.takes("bias")

    @cached_property
    def hides(self) -> list[str]:
        """Which of k and v have to be cleared of what no query sees."""
        fields = {"k": "nan_blocked_k", "v": "nan_blocked_v"}
        by_bias = self.here("mask_true") is None  # and a bias hides no NaN
        return [
            letter
            for letter, field in fields.items()
            if self.there(field) == "hidden"
            and (by_bias or self.here(field) != "hidden")
        ]

    def fills(self, field: str) -> bool:
        """Whether rows without a key have to be filled: of a mask, or of a bias."""
        if self.there(field) not in ROWS:
            return False
        of_a = self.blank if field == "empty_row" else {self.here(field)}
        return of_a != {self.there(field)}

    @cached_property
    def blank(self) -> set[str | None]:
        """What `a` may give to a query that the adapter leaves no key."""
        by_mask = {self.here("empty_row")} if self.here("mask_true") else set()
        by_bias = self.merges or not by_mask
        return by_mask | ({self.here("empty_row_bias")} if by_bias else set())

    @cached_property
    def empties_lse(self) -> bool:
        """Whether the log-sum-exp of such a query has to be written."""
        known = self.there("lse_empty") is not None
        differ = self.differ("lse_empty") or self.differ("lse")
        return self.takes("lse") and known and differ

    # --- heads, widths, scale ---

    @cached_property
    def repeats(self) -> bool:
        """Whether key/value heads have to be repeated, one for each query head."""
        fills = [f for f in ("empty_row", "empty_row_bias") if self.fills(f)]
        per_head = self.hides or "mean" in map(self.there, fills)
        differ = self.differ("heads") or bool(per_head)
        return self.there("heads") is not None and differ

    @cached_property
    def pads(self) -> bool:
        """Whether all widths have to be made the same."""
        return self.here("value_width") == "same" and self.there("value_width") == "any"

    @cached_property
    def folds(self) -> bool:
        """Whether the query has to be multiplied by the scale."""
        lost = any(
            self.there(field) == "honoured" and self.here(field) != "honoured"
            for field in ("scale_zero", "scale_negative")
        )
        return self.takes("scale") and (lost or not self.a.calling.takes("scale"))

    @cached_property
    def bias_factor(self) -> str:
        """What comes after a bias in code, so that `a` makes of it what `b` does."""
        if not self.takes_bias or self.there("bias") is None:
            return ""
        scale, of_a = self.keywords.get("scale", "scale"), ""
        if self.here("bias") == "before_scale":
            of_a = self._scale_of_a if self.folds else scale
        of_b = scale if self.there("bias") == "before_scale" else ""
        if of_a == of_b:
            return ""
        return (f" * {of_b}" if of_b else "") + (f" / {of_a}" if of_a else "")

    @property
    def _scale_of_a(self) -> str:
        """What `a` scales by where the query is scaled already, as code."""
        if self.a.calling.takes("scale") or self.here("scale") == "one":
            return ""
        return f"{self.b.calling.arrays[0]}.shape[-1] ** -0.5"

    @cached_property
    def rescales_dropout(self) -> bool:
        """Whether the output has to be multiplied or divided by 1 − rate."""
        return self.takes("dropout_rate") and self.differ("dropout_rescale")

    @cached_property
    def scale(self) -> bool:
        """Whether the scale is needed as a number, the default resolved."""
        return (
            self.folds
            or self.pads
            or self.differ("scale")
            or (self.takes_bias and self.differ("bias"))
            or "default" in (self.there("scale_zero"), self.there("scale_negative"))
        )

    @cached_property
    def same_axes(self) -> bool:
        """Whether arrays can stay in the axes that both have."""
        changed = (self.masks, self.repeats, self.pads, self.fills("empty_row_bias"))
        return not (self.differ("layout") or any(changed) or self.takes("lse"))
