"""Code that makes a call of one function mean what it means to another.

The code is a function in the framework of `a`, with the keywords and the conventions of
`b`, that calls `a`.  `adapter.py.j2` has every line that it may be made of; two
fingerprints decide which of them are needed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from attncheck.diff.context import context
from attncheck.diff.needs import Needs, NoAdapterError
from attncheck.fingerprint import Fingerprint

_ENVIRONMENT = Environment(
    loader=PackageLoader("attncheck.diff", "."),
    autoescape=False,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)


@dataclass(frozen=True)
class Adapter:
    """The source of a function that calls `a` and means what `b` means."""

    name: str
    source: str
    keywords: Mapping[str, str]
    """Part of a call → the function's keyword for it."""


def write_adapter(a: Fingerprint, b: Fingerprint) -> Adapter:
    """The adapter with which a call of `a` means what it means to `b`.

    Raises:
        NoAdapterError: there can be none.
    """
    for one in (a, b):
        if "layout" not in one.known:
            raise NoAdapterError(f"it is not known how {one.name!r} is called")
    lacks = set(b.known["layout"]) - set(a.known["layout"])
    if lacks:
        raise NoAdapterError(
            f"{a.name!r} has no axis {' '.join(sorted(lacks))}: "
            "it would have to be called in a loop"
        )
    needs = Needs(a, b)
    name = re.sub(r"\W", "_", f"like_{(b.home or b.name).rpartition(':')[2]}")
    template = _ENVIRONMENT.get_template("adapter.py.j2")
    return Adapter(name, template.render(context(needs, name)), needs.keywords)
