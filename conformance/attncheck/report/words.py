"""Numbers as words, the same in every document."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attncheck.agreement import EXACT
from attncheck.budget import RMS_LIMIT
from attncheck.calling import PART_OF
from attncheck.subject import KEYWORDS

SHOWN_REASONS = 4
"""Those of most cases; the HTML and the JSON report have all."""

LAST = "not applicable"
WORST_FIRST = (
    "crash",
    "timeout",
    "error",
    "fail",
    "waived but passes",
    "refused",
    "not judged",
    "pass",
    "waived",
    LAST,
)
"""Statuses; of several, the first says what it comes to."""


def share(used: float | str) -> str:
    """`37.0 %` of a budget, or `81 ×` it; infinity is `∞ ×`."""
    value = float(used)
    if math.isinf(value):
        return "∞ ×"
    return f"{100 * value:.1f} %" if value < 10 else f"{value:.2g} ×"


def used(cell: Mapping[str, Any]) -> str:
    """The share of the budget that a cell uses; — where nothing was judged."""
    return share(cell["used"]) if cell["used_by"] else "—"


def of_budget(used: float | str) -> str:
    """`37.0 % of the budget`, or `81 × the budget`."""
    words = share(used)
    return f"{words} of the budget" if words.endswith("%") else f"{words} the budget"


def percent(value: float | str) -> str:
    """`62 %`, rounded down: 100 % means all."""
    return f"{int(float(value) * 100)} %"


def amount(value: float | str) -> str:
    """`3.2e-07`."""
    return f"{float(value):.1e}"


def counted(number: int, noun: str) -> str:
    """`1 more case`, `3 more cases`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def element(finding: Mapping[str, Any]) -> str:
    """`logits[b=0, n=1, i=2, j=3]: got 0.1, expected 0.5 (…)`."""
    worst = finding["worst"]
    index = ", ".join(f"{axis}={place}" for axis, place in worst["index"].items())
    got, want, ulps = (float(worst[key]) for key in ("got", "expected", "ulps"))
    text = f"{finding['name']}[{index}]: got {got:.9g}, expected {want:.9g}"
    if math.isfinite(float(finding["used"])):
        apart = f"{ulps:.3g} ulps, " if want else ""
        return f"{text} ({apart}{of_budget(finding['used'])})"
    return f"{text} (must be exact)" if math.isfinite(got) else text


def was_judged(holding: Mapping[str, Any]) -> bool:
    """Whether a law spoke of results that there are."""
    return bool(holding["bitwise"] or holding["within"] or holding["broken"])


def law(holding: Mapping[str, Any]) -> str:
    """`alone bitwise 3 of 4, within budget 1`: how a law holds."""
    if not was_judged(holding):
        why = holding["why"]
        return f"{holding['law']} " + (f"not run: {why}" if why else "not judged")
    broken, within = len(holding["broken"]), holding["within"]
    total = holding["bitwise"] + within + broken
    words = f"{holding['law']} bitwise {holding['bitwise']} of {total}"
    words += f", within budget {within}" if within else ""
    return words + (f", broken {broken}" if broken else "")


def counts(cell: Mapping[str, Any]) -> str:
    """`60 of 62, 3 waived`: cases that pass, of those that apply and are not waived."""
    numbers = cell["counts"]
    waived = numbers.get("waived", 0)
    counted = sum(numbers.values()) - numbers.get("not applicable", 0) - waived
    words = f"{numbers.get('pass', 0)} of {counted}"
    return words + (f", {waived} waived" if waived else "")


def outcome(cell: Mapping[str, Any]) -> tuple[str, str]:
    """`FAIL` and `81 ×`, `pass` and `37.0 %`, `crash` and `2 of 5`: the worst of it."""
    numbers = cell["counts"]
    word = next(status for status in WORST_FIRST if status in numbers)
    if word in ("fail", "pass"):
        return ("FAIL" if word == "fail" else word), share(cell["used"])
    total = sum(numbers.values()) - (0 if word == LAST else numbers.get(LAST, 0))
    return word, f"{numbers[word]} of {total}"


def is_failing(cell: Mapping[str, Any]) -> bool:
    """Whether something in the cell does not pass, other than what is waived."""
    return bool(cell["counts"].keys() - {"pass", "waived", LAST})


def by_kind(failures: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Failures of the same kind together, the simplest case first."""
    groups: dict[int, list[Mapping[str, Any]]] = {}
    for failure in failures:
        groups.setdefault(failure["kind"], []).append(failure)
    return list(groups.values())


def causes(failures: Iterable[Mapping[str, Any]]) -> str:
    """`mask-inverted (9 cases), exp-coarse (1 case)`; nothing where none is known."""
    found = Counter(failure["cause"] for failure in failures if failure["cause"])
    return ", ".join(
        f"{name} ({counted(number, 'case')})" for name, number in found.most_common()
    )


def real_model(report: Mapping[str, Any], subject: str) -> str:
    """`7.8e-08 pass`: how far the real model with the subject is from the exact one."""
    for check in report["model"]:
        if (check["a"], check["b"]) == (subject, EXACT):
            verdict = "pass" if check["passes"] else "FAIL"
            return f"{amount(check['difference'])}\n{verdict}"
    return "not run"


def diagnosis(found: Mapping[str, Any]) -> list[str]:
    """`The mask is ignored. With that, 36 of 36 failing cases pass (F32, BF16).`"""
    total, dtypes = found["failing"], ", ".join(found["dtypes"])
    others = ", ".join(f"{n} {which}" for which, n in found["not_counted"].items())
    dtypes += f"; not counted: {others}" if others else ""
    if not found["causes"]:
        cases = counted(total, "failing case")
        lines = [f"nothing known explains the {cases} ({dtypes})"]
        if found["closest"]:
            one = found["closest"]
            lines.append(f"closest: {_named(one)} It explains {one['explains']}.")
        return lines
    if len(found["causes"]) > 1:
        several = f"{len(found['causes'])} mistakes together explain"
        done = sum(one["explains"] for one in found["causes"])
        part = "all" if done == total else f"{done} of"
        head = [f"{several} {part} {counted(total, 'failing case')} ({dtypes}):"]
        return head + [f"{_named(one)} {one['explains']}." for one in found["causes"]]
    one = found["causes"][0]
    passing = f"{one['explains']} of {counted(total, 'failing case')} "
    passing += "passes" if total == 1 else "pass"
    lines = [f"{_named(one)} With that, {passing} ({dtypes})."]
    return lines + [
        f"or, no case here tells them apart: {_named(x)}" for x in one["alike"]
    ]


def mistakes(found: Mapping[str, Any]) -> list[str]:
    """Of a single call: `a known mistake gives just this: The mask is ignored. […]`."""
    causes = found["causes"]
    if not causes:
        return ["nothing known explains it"]
    if len(causes) > 1:
        head = f"{len(causes)} known mistakes together give just this:"
        return [head, *(f"  {_named(one)}" for one in causes)]
    lines = [f"a known mistake gives just this: {_named(causes[0])}"]
    return lines + [
        f"or, this call does not tell them apart: {_named(one)}"
        for one in causes[0]["alike"]
    ]


def _named(variant: Mapping[str, Any]) -> str:
    """The sentence, and where to read on."""
    places = filter(None, (variant["name"], variant["reference"]))
    return f"{variant['sentence']} [{', '.join(places)}]"


def shares(split: Mapping[str, float]) -> str:
    """`weights 51 %, output rounding 42 %, …`: the sources of at least 1 %."""
    return ", ".join(
        f"{source} {100 * part:.0f} %" for source, part in split.items() if part >= 0.01
    )


def noisy(warning: Mapping[str, Any]) -> str:
    """`plain/BF16 output: errors of 1.42 times the expected size, though allowed`."""
    return (
        f"{warning['case']} {warning['result']}: errors of "
        f"{float(warning['rms']):.2f} times the expected size, though allowed"
    )


def reasons(counts: Mapping[str, int]) -> str:
    """`takes no `bias` (22); has no sinks (5); … and 3 more reasons`."""
    first = [f"{why} ({n})" for why, n in list(counts.items())[:SHOWN_REASONS]]
    left = len(counts) - len(first)
    more = [f"… and {counted(left, 'more reason')}"] if left else []
    return "; ".join([*first, *more])


def left_out(subject: Mapping[str, Any]) -> list[str]:
    """`left at its default: attn_mask`, and what it may be; nothing where none is."""
    ignored, accepted = subject.get("ignored", []), subject.get("accepts", {})
    if not ignored:
        return []
    is_one = len(ignored) == 1
    head = f"left at {'its default' if is_one else 'their defaults'}: "
    lines = [head + ", ".join(ignored)]
    if means := _meant(ignored, accepted):
        words = ", ".join(f"{word} may be the spec's {o}" for o, word in means.items())
        both = {**means, **accepted}.items()
        option = ",".join(o if o == word else f"{o}={word}" for o, word in both)
        sense = "; True in a mask = may attend" if "mask" in means else ""
        lines.append(f"{words}: --accepts {option}{sense}")
    if {PART_OF.get(word) for word in ignored} & {"causal", "window"}:
        lines.append("a causal mask or a window comes as a mask")
        lines.append("what its own flag means: attncheck fingerprint")
    return lines


def _meant(ignored: Iterable[str], accepted: Mapping[str, str]) -> dict[str, str]:
    """Option that is not accepted → the parameter that may be called so."""
    parts = {word: PART_OF.get(word) for word in ignored}
    named = {part: w for w, part in parts.items() if part in KEYWORDS}
    means = {part: w for part, w in named.items() if part not in accepted}
    if "dropout_keep" not in {**means, **accepted}:  # without which no rate is given
        means.pop("dropout_rate", None)
    return means


def excess(pooled: Mapping[str, Any]) -> str:
    """`BF16 output: rms 1.31 of 1.15 allowed, gain 2.0e-03 of 1.0e-04 allowed`."""
    rms, gain, limit = (float(pooled[key]) for key in ("rms", "gain", "gain_limit"))
    return (
        f"{pooled['dtype']} {pooled['result']}: errors of {rms:.2f} times the expected "
        f"size (at most {RMS_LIMIT}), a gain of {gain:.1e} (at most {limit:.1e})"
    )
