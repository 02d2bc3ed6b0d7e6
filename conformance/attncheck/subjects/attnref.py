"""The rooms of this project as subjects: every step, and their own gradients."""

from importlib import import_module

from attncheck.subject import KEYWORDS, Subject


def room_subject(name: str) -> Subject:
    """The room `attnref.<name>`."""
    room = import_module(f"attnref.{name}")

    def multi_head(params, x, context=None, **options):
        return room.multi_head_attention(
            room.MultiHeadParams(**params), x, context, **options
        )

    return Subject(
        call=room.attention_steps,
        framework=name,
        name=f"attnref.{name}",
        accepts=frozenset(KEYWORDS),
        returns=room.Steps._fields,
        grad=room.attention_vjp,
        multi_head=multi_head,
        profile="strict",
    )
