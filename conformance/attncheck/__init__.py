"""The judge: is this attention right, and if not, what exactly is wrong?

In your own tests::

    from attncheck import assert_attention

    assert_attention(my_kernel(q, k, v, mask), q, k, v, mask=mask)

On the command line, see `attncheck --help`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attncheck.budget import PROFILES, Profile
    from attncheck.layer import assert_multi_head_attention
    from attncheck.subject import Subject
    from attncheck.testing import assert_attention, tolerance

__all__ = [
    "PROFILES",
    "Profile",
    "Subject",
    "assert_attention",
    "assert_multi_head_attention",
    "tolerance",
]

_HOMES = {
    "PROFILES": "attncheck.budget",
    "Profile": "attncheck.budget",
    "Subject": "attncheck.subject",
    "assert_attention": "attncheck.testing",
    "assert_multi_head_attention": "attncheck.layer",
    "tolerance": "attncheck.testing",
}


def __getattr__(name: str) -> Any:
    # On demand: a worker imports modules of this package and needs none of these.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'attncheck' has no attribute {name!r}")
