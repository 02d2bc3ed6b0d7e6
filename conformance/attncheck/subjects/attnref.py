"""The rooms of this project as subjects: every step, and their own gradients."""

from importlib import import_module
from types import ModuleType

from attncheck.subject import KEYWORDS, Subject


def room_subject(name: str) -> Subject:
    """The room `attnref.<name>`."""
    return subject_of(import_module(f"attnref.{name}"), name)


def subject_of(room: ModuleType, framework: str) -> Subject:
    """A module with the public names of a room, as a subject."""

    def multi_head(params, x, context=None, **options):
        return room.multi_head_attention(
            room.MultiHeadParams(**params), x, context, **options
        )

    return Subject(
        call=room.attention_steps,
        framework=framework,
        name=room.__name__,
        accepts=frozenset(KEYWORDS),
        returns=room.Steps._fields,
        grad=room.attention_vjp,
        multi_head=multi_head,
        profile="strict",
    )
