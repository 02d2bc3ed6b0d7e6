"""What was meant, where a name is not known but another is near."""

from collections.abc import Iterable
from difflib import get_close_matches

from attncheck.lines import shown


def no_such(what: str, name: object, known: Iterable[str]) -> str:
    """`profile is one of strict, tf32, not 'strcit': did you mean 'strict'?`."""
    names = list(known)
    return f"{what} is one of {', '.join(names)}, not {shown(name)}{near(name, names)}"


def near(name: object, known: Iterable[str]) -> str:
    """`: did you mean 'strict'?`; nothing where no known name is near."""
    found = get_close_matches(str(name), list(known), n=1)
    return f": did you mean {found[0]!r}?" if found else ""
