"""A room's session has its own framework and no other."""

import os
from importlib.util import find_spec

import pytest

from attncheck.frameworks import NAMES

EVERYWHERE = {"numpy"}
"""What every framework's session has: attnref itself depends on it."""


@pytest.mark.skipif(
    os.environ.get("ATTNREF_ISOLATED") != "1",
    reason="not an environment of one room: ATTNREF_ISOLATED=1 is not set",
)
def test_other_frameworks_are_absent(room):
    others = set(NAMES) - {room.name} - EVERYWHERE
    assert others
    assert [name for name in others if find_spec(name)] == []


def test_the_rooms_framework_is_present(room):
    assert find_spec(room.name)
