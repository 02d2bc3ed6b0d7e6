"""The room under test, with its framework's adapter."""

from importlib import import_module
from types import ModuleType
from typing import NamedTuple

import pytest

from attncheck.frameworks import adapter


class Room(NamedTuple):
    name: str
    module: ModuleType
    """`attnref.<name>`."""
    framework: ModuleType
    """`attncheck.frameworks.<name>`: `to_native`, `to_numpy`, `precision`, …"""

    def __getattr__(self, name):
        """A public name of the room: `room.attention(…)`."""
        return getattr(self.module, name)

    def array(self, values):
        """The framework's array of a NumPy array; None stays None."""
        return None if values is None else self.framework.to_native(values)

    def numpy(self, array):
        """The NumPy array of a framework's array; None stays None."""
        return None if array is None else self.framework.to_numpy(array)


@pytest.fixture
def room(room_name):
    return Room(room_name, import_module(f"attnref.{room_name}"), adapter(room_name))
