"""A plugin of pytest that leaves the first of the tests that were chosen."""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    del items[1:]
