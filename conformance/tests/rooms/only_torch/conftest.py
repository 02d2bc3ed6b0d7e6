"""What only PyTorch can do; collected only when its room is chosen."""

from importlib import import_module

import pytest

from attncheck.frameworks import adapter

from ..conftest import Room


def pytest_ignore_collect(config):
    return None if "torch" in config.getoption("room") else True


@pytest.fixture
def room():
    """The torch room, also where more rooms are chosen."""
    return Room("torch", import_module("attnref.torch"), adapter("torch"))
