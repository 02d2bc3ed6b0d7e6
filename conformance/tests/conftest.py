"""Which room the tests in `rooms/` run on is chosen, never guessed: `--room NAME`."""

from pathlib import Path

import attnref

ROOMS = sorted(
    folder.name
    for folder in Path(attnref.__file__).parent.iterdir()
    if (folder / "__init__.py").exists() and folder.name != "spec"
)


def pytest_addoption(parser):
    parser.addoption(
        "--room",
        action="append",
        choices=ROOMS,
        default=[],
        help="run the tests of this room (again for more rooms)",
    )


def pytest_report_header(config):
    rooms = config.getoption("room")
    if rooms:
        return f"rooms: {', '.join(rooms)}"
    return f"rooms: tests/rooms is not run; choose with --room {'|'.join(ROOMS)}"


def pytest_ignore_collect(collection_path, config):
    if "rooms" in collection_path.parts and not config.getoption("room"):
        return True
    return None


def pytest_generate_tests(metafunc):
    if "room_name" in metafunc.fixturenames:
        rooms = metafunc.config.getoption("room")
        metafunc.parametrize("room_name", rooms, scope="session")
