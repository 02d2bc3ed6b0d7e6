"""What only NumPy can do; collected only when its room is chosen."""

from importlib import import_module

import pytest

from attncheck.frameworks import adapter

from ..conftest import Room


def pytest_ignore_collect(config):
    return None if "numpy" in config.getoption("room") else True


@pytest.fixture
def room():
    """The numpy room, also where more rooms are chosen."""
    return Room("numpy", import_module("attnref.numpy"), adapter("numpy"))
