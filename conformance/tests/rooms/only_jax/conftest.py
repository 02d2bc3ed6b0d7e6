"""What only JAX can do; collected only when its room is chosen."""

from importlib import import_module

import pytest

from attncheck.frameworks import adapter

from ..conftest import Room


def pytest_ignore_collect(config):
    return None if "jax" in config.getoption("room") else True


@pytest.fixture
def room():
    """The jax room, also where more rooms are chosen."""
    return Room("jax", import_module("attnref.jax"), adapter("jax"))
