"""The rooms mirror each other and stay apart; read off their source."""

import ast
import sys
from pathlib import Path

import pytest

import attnref

HOUSE = Path(attnref.__file__).parent
ROOMS = sorted(p.parent for p in HOUSE.glob("*/__init__.py") if p.parent.name != "spec")
FIRST, *OTHERS = ROOMS

EXTRA_FOLDERS = {"torch": {"sdpa"}}
EXTRA_FILES = {"numpy": {"threads.py"}, "torch": {"ring.py"}, "jax": {"ring.py"}}
EXTRA_NAMES = {
    "torch": {"MultiHeadAttention", "ring_attention"},
    "jax": {"ring_attention"},
}
EXTRA_FUNCTIONS = {"torch": {"without_autocast"}, "numpy": {"row_sums"}}
PLACED = ("mask_array", "query_positions", "key_positions", "distances")
EXTRA_PARAMETERS = {("torch", name): ["device"] for name in PLACED}
"""What a room has more than the others, and why: torch's fused backends, its module
class, its autocast and its devices, NumPy's threads, and rings of devices."""

BOTH = ("attention_vjp", "attention_blocked_vjp")
"""The gradients that every room has; others are NumPy's, which writes all by hand."""

EXTRA_IMPORTS = {"numpy": {"threadpoolctl"}}
"""What a room's extra in pyproject.toml declares beside its framework."""


def files(room):
    paths = {str(p.relative_to(room)) for p in room.rglob("*.py")}
    paths -= EXTRA_FILES.get(room.name, set())
    return {p for p in paths if p.split("/")[0] not in EXTRA_FOLDERS.get(room.name, ())}


def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def public_names(room, package="."):
    (names,) = (
        ast.literal_eval(node.value)
        for node in tree(room / package / "__init__.py").body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    )
    return names


def parameters(room, function):
    a = function.args
    names = [x.arg for x in (*a.posonlyargs, *a.args)]
    defaults = [ast.unparse(x) for x in a.defaults]
    keywords = [
        (x.arg, None if value is None else ast.unparse(value))
        for x, value in zip(a.kwonlyargs, a.kw_defaults, strict=True)
    ]
    extra = EXTRA_PARAMETERS.get((room.name, function.name), [])
    if extra:
        assert names[-len(extra) :] == extra
        names, defaults = names[: -len(extra)], defaults[: -len(extra)]
    return names, defaults, keywords, bool(a.vararg), bool(a.kwarg)


def is_extra(room, name):
    """Whether a function is one that other rooms have not."""
    by_hand = room.name == "numpy" and name.endswith("_vjp") and name not in BOTH
    return by_hand or name in EXTRA_FUNCTIONS.get(room.name, ())


def functions(room, file):
    """Public functions of a file with their parameters, in order."""
    return [
        (node.name, parameters(room, node))
        for node in tree(room / file).body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and not is_extra(room, node.name)
    ]


def classes(room, file):
    """Public classes of a file with their fields, in order."""
    return [
        (node.name, [x.target.id for x in node.body if isinstance(x, ast.AnnAssign)])
        for node in tree(room / file).body
        if isinstance(node, ast.ClassDef)
        and not node.name.startswith("_")
        and node.name not in EXTRA_NAMES.get(room.name, set())
    ]


other_rooms = pytest.mark.parametrize("room", OTHERS, ids=lambda room: room.name)
every_room = pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
every_file = pytest.mark.parametrize("file", sorted(files(FIRST)))


def test_there_are_rooms():
    assert {"numpy", "torch", "jax"} <= {room.name for room in ROOMS}
    assert {"attention.py", "gradients.py"} <= files(FIRST)


@other_rooms
def test_rooms_have_the_same_files(room):
    assert files(room) == files(FIRST)


@other_rooms
def test_rooms_have_the_same_public_names(room):
    names = [
        [x for x in public_names(one) if x not in EXTRA_NAMES.get(one.name, set())]
        for one in (room, FIRST)
    ]
    assert names[0] == names[1]


@other_rooms
def test_rooms_have_the_same_variants(room):
    names = [
        [x for x in public_names(one, "variants") if not is_extra(one, x)]
        for one in (room, FIRST)
    ]
    assert names[0] == names[1]


@every_room
def test_what_a_room_has_more_is_really_there(room):
    assert EXTRA_NAMES.get(room.name, set()) <= set(public_names(room))


@every_file
@other_rooms
def test_files_have_the_same_functions_with_the_same_parameters(room, file):
    assert functions(room, file) == functions(FIRST, file)


@every_file
@other_rooms
def test_files_have_the_same_records(room, file):
    assert classes(room, file) == classes(FIRST, file)


def imports(path):
    """Full names of all that a file imports, relative ones resolved."""
    package = ("attnref", *path.relative_to(HOUSE).parent.parts)
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            yield ".".join((*base, *(node.module or "").split(".")))


def is_allowed(name, room):
    first, *rest = name.split(".")
    if first == "attnref":
        return rest[:1] in (["spec"], [room.name])
    others = {"einops", room.name} | EXTRA_IMPORTS.get(room.name, set())
    return first in sys.stdlib_module_names or first in others


@every_room
def test_a_room_imports_its_framework_and_the_spec_only(room):
    found = {
        f"{path.name}: {name}"
        for path in room.rglob("*.py")
        for name in imports(path)
        if not is_allowed(name, room)
    }
    assert found == set()
    assert any(
        name.split(".")[0] == room.name
        for p in room.rglob("*.py")
        for name in imports(p)
    )


def test_the_spec_imports_no_framework_at_all():
    allowed = (*sys.stdlib_module_names, "einops")
    for path in (HOUSE / "spec").rglob("*.py"):
        for name in imports(path):
            first, *rest = name.split(".")
            assert first in allowed or (first, rest[:1]) == ("attnref", ["spec"]), path
