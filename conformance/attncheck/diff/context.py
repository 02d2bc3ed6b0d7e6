"""What `adapter.py.j2` names: pieces of code, and which of its lines are needed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attncheck.calling import PARTS
from attncheck.diff.code import INSIDE, WIDTH, each, moves, moves_back, wrapped
from attncheck.diff.dialect import DIALECTS, Dialect
from attncheck.diff.needs import ROWS, Needs, NoAdapterError
from attncheck.fingerprint import PROBES, Fingerprint

DEFAULTS: Mapping[str, str] = {
    "causal": "False",
    "grouped": "False",
    "lse": "False",
    "dropout_rate": "0.0",
}
"""Part of a call → its default in the code, where it is not None."""


def context(needs: Needs, name: str) -> dict[str, Any]:
    """All that the template names."""
    a, b, word = needs.a, needs.b, needs.keywords
    q, k, v = b.calling.arrays
    xp = DIALECTS[a.framework]
    module, attend = _home(a)
    values = "values" if needs.pads else v  # as they came
    inside = "" if needs.same_axes else b.known["layout"]
    names = {"mask": "mask", "bias": "bias", "scale": "scale"} | word
    return {
        "needs": needs,
        "here": {field: needs.here(field) for field in PROBES},
        "there": {field: needs.there(field) for field in PROBES},
        "word": {part: word.get(part) for part in PARTS},
        "xp": xp,
        "np": xp.name,
        "device": xp.on_device.format(like=q),
        "module": module,
        "attend": attend,
        "head": wrapped(f"def {name}(", _signature(needs), "):"),
        "title": _title(a, b),
        **{part: names[part] for part in ("mask", "bias", "scale")},
        "q": q,
        "k": k,
        "v": v,
        "qkv": f"{q}, {k}, {v}",
        "moved": each((q, k, v), f"x{moves(inside)}") if moves(inside) else "",
        "out_of_inside": moves_back(inside),
        "repeated": _repeated(needs, xp),
        "padded": each((q, k, v), xp.pad.format(x="x", width="width")),
        "default_scale": _default_scale(needs, q),
        "default_where": _default_where(needs, names["scale"]),
        "folded": _folded(needs, names["scale"], q),
        **_mask_context(needs),
        "row": {
            field: ROWS.get(needs.there(field), "").format(np=xp.name, v=values)
            for field in ("empty_row", "empty_row_bias")
        },
        "call": _call(needs, names),
        **(_lse_context(needs, xp, q) if needs.takes("lse") else {}),
    }


def _home(one: Fingerprint) -> tuple[str, str]:
    """The module and the name from which code imports a function."""
    place, _, name = (one.home or "").rpartition(":")
    module = Path(place).stem if place.endswith(".py") else place
    if not module.replace(".", "_").isidentifier():
        raise NoAdapterError(f"no import statement can name {one.name!r}")
    return module, name


def _title(a: Fingerprint, b: Fingerprint) -> str:
    """The docstring."""
    line = f'"""{b.name}, by {a.name}."""'
    two_lines = f'"""{b.name},\n    by {a.name}.\n    """'
    return line if len(line) + 4 <= WIDTH else two_lines


def _signature(needs: Needs) -> list[str]:
    """The parameters, in the order of `b`."""
    calling, parts = needs.b.calling, list[str]()
    for part, word in needs.keywords.items():
        if word in calling.keyword_only and "*" not in parts:
            parts.append("*")
        required = part == "scale" and needs.there("scale") == "required"
        parts.append(word if required else f"{word}={DEFAULTS.get(part, 'None')}")
    return [*calling.arrays, *parts]


def _repeated(needs: Needs, xp: Dialect) -> str:
    """k and v with one head for every query head."""
    tile = f"{xp.name}.tile({{x}}, (1, {{g}}, 1, 1))"
    form = tile if needs.there("heads") == "gh" else xp.repeat
    return each(needs.b.calling.arrays[1:], form.format(x="x", g="groups"))


def _default_scale(needs: Needs, q: str) -> str:
    return "1.0" if needs.there("scale") == "one" else f"{q}.shape[-1] ** -0.5"


def _default_where(needs: Needs, scale: str) -> str:
    """When the default scale is meant."""
    tests = {
        f"{scale} is None": needs.there("scale") != "required",
        f"{scale} == 0": needs.there("scale_zero") == "default",
        f"{scale} < 0": needs.there("scale_negative") == "default",
    }
    return " or ".join(test for test, is_one in tests.items() if is_one)


def _folded(needs: Needs, scale: str, q: str) -> str:
    """The factor on the query that stands for the scale."""
    if needs.a.calling.takes("scale") or needs.here("scale") == "one":
        return scale
    return f"({scale} * {q}.shape[-1] ** 0.5)"


def _mask_context(needs: Needs) -> dict[str, Any]:
    b, window = needs.b, needs.b.readings["window"].detail
    arrays = dict(zip("qkv", b.calling.arrays, strict=True))
    lacking = [axis for axis in "bn" if axis not in b.known["layout"].split()]
    shaped = ("mask", "bias", "dropout_keep")
    masks = [needs.keywords[part] for part in shaped if needs.takes(part)]
    own = [needs.keywords.get(part, part) for part in _passed_as_they_are(needs)]
    corners = {"causal": needs.there("causal"), "window": window.get("aligned")}
    ends = {
        f"{what}_end": "last" if corner == "lower-right" else "row"
        for what, corner in corners.items()
    }
    refuses = "refuse" in needs.blank
    allowed = "(seen | ~seen.any(axis=-1)[..., None])" if refuses else "seen"
    return {
        **ends,
        "lacking": ", ".join(["None"] * len(lacking)),
        "mask_arrays": masks if lacking and not needs.same_axes else [],
        **_window(window, needs.keywords.get("window", "")),
        "less": "<=" if needs.there("window") == "inclusive" else "<",
        "hidden": [arrays[letter] for letter in needs.hides],
        "allowed": allowed,
        "passed_mask": f"~{allowed}" if needs.here("mask_true") == "block" else allowed,
        "own_index": _own_index(needs),
        "own_arrays": own if _own_index(needs) else [],
    }


def _window(detail: Mapping[str, Any], word: str) -> dict[str, Any]:
    """The ends of a window that comes as a pair, as a number, or as either."""
    if detail.get("pair"):
        both = detail["number"] == "same"
        value = "ends if isinstance(ends, tuple) else (ends, ends)" if both else word
        return {"ends": "left, right", "window": value, "either": both}
    two = detail.get("number") == "same"
    ends = "left = right" if two else "left"
    return {"ends": ends, "window": word, "either": False}


def _own_index(needs: Needs) -> str:
    """The code that takes a mask to the axes that `a` has."""
    lacking = ["0" for axis in "bn" if axis not in needs.a.known["layout"].split()]
    return f"[{', '.join(lacking)}]" if lacking and not needs.same_axes else ""


def _passed_as_they_are(needs: Needs) -> list[str]:
    """The arrays over `b n i j` beside the mask that `a` is given."""
    bias = needs.takes_bias and needs.a.calling.takes("bias")
    return ["bias"] * bias + ["dropout_keep"] * needs.takes("dropout_keep")


def _call(needs: Needs, names: Mapping[str, str]) -> str:
    """The call of `a`, and what it returns, in the axes inside."""
    a, arrays = needs.a, list(needs.b.calling.arrays)
    layout = "" if needs.same_axes else a.known["layout"]
    if back := moves_back(layout):
        arrays = [f"*(x{back} for x in ({', '.join(arrays)}))"]
    options = {a.calling.keywords[p]: x for p, x in _options(needs, names).items()}
    given = [*arrays, *(f"{word}={value}" for word, value in options.items())]
    head = f"{_home(a)[1]}("
    if not needs.takes("lse"):
        place = a.readings["layout"].detail["output"]
        index = "" if place is None else f"[{place}]"
        return wrapped(f"out = {head}", given, f"){index}{moves(layout)}")
    places = a.readings["lse"].detail
    lines = [
        wrapped(f"returned = {head}", given, ")"),
        f"out = returned[{places['output']}]{moves(layout)}",
        f"lse = returned[{places['number']}]{moves(places['axes'], INSIDE[:3])}",
    ]
    return "\n".join(lines)


def _options(needs: Needs, names: Mapping[str, str]) -> dict[str, str]:
    """The parts of a call that `a` is given, in the words of the code."""
    own, options = needs.a.calling, dict[str, str]()
    if needs.masks:
        is_array = needs.merges or needs.here("mask_true") is None
        mask = "allowed" if is_array else _mask_context(needs)["passed_mask"]
        options["mask"] = mask + _own_index(needs)
    else:
        passed = ("mask", "causal", "window")
        options |= {part: names[part] for part in passed if needs.takes(part)}
    options |= {part: names.get(part, part) for part in _passed_as_they_are(needs)}
    if own.takes("scale") and (needs.scale or needs.takes("scale")):
        options["scale"] = "1.0" if needs.folds else names["scale"]
    for part in ("softcap", "sinks", "dropout_rate"):
        if needs.takes(part):
            options[part] = names[part]
    if own.takes("grouped") and needs.there("heads") and not needs.repeats:
        options["grouped"] = "True"
    if needs.takes("lse") and own.takes("lse"):
        options["lse"] = "True"
    return options


def _lse_context(needs: Needs, xp: Dialect, q: str) -> dict[str, str]:
    places = needs.b.readings["lse"].detail
    empty = str(needs.there("lse_empty"))
    results = {
        places["output"]: f"out{moves_back(needs.b.known['layout'])}",
        places["number"]: f"lse{moves_back(places['axes'], INSIDE[:3])}",
    }
    return {
        "lse_cast": xp.cast.format(x="lse", like=q),
        "lse_empty": empty.replace("inf", f"{xp.name}.inf"),
        "both": ", ".join(results[place] for place in sorted(results)),
    }
