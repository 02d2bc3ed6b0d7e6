"""The weights that the pages draw."""

from typing import Any

import numpy as np
import sentence


def measure() -> dict[str, Any]:
    """The weights of the heads that are drawn, what they come from, and some steps."""
    layer, head = sentence.HEADS["pronoun"]
    free, causal = (sentence.results_of(layer, is_causal=c) for c in (False, True))
    return {
        "tokens": sentence.TOKENS,
        "heads": {
            name: {
                "layer": layer,
                "head": head,
                "weights": _plain(sentence.results_of(layer).weights[0, head]),
            }
            for name, (layer, head) in sentence.HEADS.items()
        },
        "inputs": {
            name: {x: _plain(sentence.heads(layer)[x][0, head]) for x in "qkv"}
            for name, (layer, head) in sentence.HEADS.items()
        },
        "steps": {
            "scores": _plain(free.scores[0, head]),
            "logits": _plain(free.logits[0, head]),
            "weights": _plain(free.weights[0, head]),
            "causal": _plain(causal.weights[0, head]),
        },
    }


def _plain(array: np.ndarray) -> list[list[float]]:
    return [[round(float(x), 4) for x in row] for row in array]
