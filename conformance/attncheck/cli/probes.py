"""A function's fingerprint, for the commands that want one."""

from collections.abc import Mapping

from attncheck.cli.app import progress_bar
from attncheck.fingerprint import NAMES, Fingerprint
from attncheck.fingerprint import fingerprint as measure


def probed(
    target: str, framework: str | None, keywords: Mapping[str, str], timeout: float
) -> Fingerprint:
    """The fingerprint of a function, with a bar while its probes run."""
    with progress_bar() as bar:
        task = bar.add_task(f"probes of {target}", total=len(NAMES))
        return measure(
            target,
            framework=framework,
            keywords=keywords,
            timeout=timeout,
            progress=lambda done: bar.update(task, completed=done),
        )
