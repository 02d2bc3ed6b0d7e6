"""What is wrong with how a function is judged, not with the function."""

from collections.abc import Iterable, Mapping

from attncheck.case import Case
from attncheck.fingerprint import Fingerprint
from attncheck.operations import OPERATIONS
from attncheck.subject import KEYWORDS
from attnref.spec import SPEC


def looks_misread(counts: Mapping[str, int]) -> bool:
    """Whether so many cases fail that something common to all is to blame.

    Args:
        counts: outcome → number of cases, of one subject.
    """
    wrong = counts.get("fail", 0) + counts.get("error", 0)
    applicable = sum(counts.values()) - counts.get("not applicable", 0)
    return wrong > max(counts.get("pass", 0), applicable / 2)


def no_operations(counts: Mapping[str, int], cases: Iterable[Case]) -> str | None:
    """How to have operations judged, of a function that only they were asked of."""
    names = dict.fromkeys(case.op for case in cases)
    if counts.keys() != {"not applicable"} or not names or names.keys() - OPERATIONS:
        return None
    given = ", ".join(f'"{name}": …' for name in names)
    return (
        "these cases are of operations, and a function is judged as plain attention: "
        f"judge an attncheck.Subject with operations={{{given}}}"
    )


def axes_moved(found: Fingerprint, target: str) -> str | None:
    """What to judge instead of a function with its axes in another order; or None.

    Args:
        target: the function, as it was named to the judge.
    """
    layout = found.readings["layout"]
    if not layout.measured or layout.value == SPEC.layout:
        return None
    here, there = SPEC.layout, layout.value
    said = f"{target} takes q, k and v as `{there}`, and is given `{here}`"
    if sorted(there.split()) != sorted(here.split()):
        return f"{said}: judge a function that rearranges them for it"
    place, _, name = target.rpartition(":")
    module = place.removesuffix(".py").rpartition("/")[2]
    taken = {k: found.calling.keywords.get(k) for k in KEYWORDS}
    parts = {part: keyword for part, keyword in taken.items() if keyword}
    accepted = "".join(f", {part}=None" for part in parts)
    passed = "".join(f", {keyword}={part}" for part, keyword in parts.items())
    return "\n".join(
        [
            f"{said}; judge this instead:",
            "",
            "    from einops import rearrange",
            f"    from {module} import {name}",
            "",
            f"    def rearranged(q, k, v{', *' if parts else ''}{accepted}):",
            f'        q, k, v = (rearrange(x, "{here} -> {there}") for x in (q, k, v))',
            f"        output = {name}(q, k, v{passed})",
            f'        return rearrange(output, "{there} -> {here}")',
        ]
    )
