"""The rooms of this project as subjects: every step, and their own gradients."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from attncheck import frameworks
from attncheck.operations import OPERATIONS
from attncheck.subject import KEYWORDS, Subject

BLOCK = 4
"""Positions of a block, where blocks are judged."""


def room_subject(name: str) -> Subject:
    """The room `attnref.<name>`."""
    room, variants = (import_module(f"attnref.{name}{x}") for x in ("", ".variants"))
    return subject_of(room, name, variants)


def blocked_subject(name: str) -> Subject:
    """Blocked attention in the room `attnref.<name>`, its gradients by autodiff.

    Its blocks are small, so that there are many of them, and a last one that is
    shorter, in cases of a few positions too.
    """
    room = import_module(f"attnref.{name}")
    blocks = {"block_q": BLOCK, "block_k": BLOCK}
    has_autodiff = frameworks.adapter(name).vjp is not None
    gradient = partial(room.attention_blocked_vjp, **blocks)
    return Subject(
        call=partial(room.attention_blocked, **blocks),
        framework=name,
        name=f"{room.__name__}.blocked",
        accepts=frozenset(KEYWORDS),
        returns=("output", "lse"),
        grad=None if has_autodiff else gradient,
        profile="strict",
    )


def subject_of(room: ModuleType, framework: str, variants: Any = None) -> Subject:
    """A module with the public names of a room, as a subject.

    Args:
        variants: a module with the other operations and their gradients, or None.
    """

    def multi_head(params, x, context=None, **options):
        return room.multi_head_attention(
            room.MultiHeadParams(**params), x, context, **options
        )

    operations = {n: getattr(variants, n) for n in OPERATIONS if hasattr(variants, n)}
    gradients = {n: getattr(variants, f"{n}_vjp", None) for n in operations}
    if "latent_attention" in operations:
        call, vjp = _latent(variants)
        operations["latent_attention"] = call
        if gradients["latent_attention"]:
            gradients["latent_attention"] = vjp
    if "linear_attention" in operations:
        operations["linear_attention"] = _linear(variants)
    return Subject(
        call=room.attention_steps,
        framework=framework,
        name=room.__name__,
        accepts=frozenset(KEYWORDS),
        returns=room.Steps._fields,
        grad=room.attention_vjp,
        multi_head=multi_head,
        operations=operations,
        operation_grads={n: grad for n, grad in gradients.items() if grad},
        profile="strict",
    )


def _latent(variants: Any) -> tuple[Callable, Callable]:
    """Latent attention and its gradients, which take the weights by their names."""

    def params_of(given):
        fields = variants.LatentParams._fields
        return variants.LatentParams(**{name: given.pop(name) for name in fields})

    def call(x, context=None, **given):
        return variants.latent_attention(params_of(given), x, context, **given)

    def vjp(d_out, x, context=None, d_lse=None, **given):
        params = params_of(given)
        return variants.latent_attention_vjp(d_out, params, x, context, **given)

    return call, vjp


def _linear(variants: Any) -> Callable:
    """Linear attention; `recurrent` takes it step by step."""

    def call(q, k, v, recurrent=False, **given):
        if not recurrent:
            return variants.linear_attention(q, k, v, **given)
        state, outputs, lses = None, [], []
        for t in range(q.shape[2]):
            state, output, lse = variants.linear_attention_step(
                state,
                *(x[:, :, t : t + 1] for x in (q, k, v)),
                feature=given.get("feature", "elu+1"),
            )
            outputs.append(output)
            lses.append(lse)
        from einops import rearrange  # the rooms need it, and a worker of others not

        together = rearrange(outputs, "i b n 1 e -> b n i e")
        return together, rearrange(lses, "i b n 1 -> b n i")

    return call
