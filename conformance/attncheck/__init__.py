"""The judge: is this attention right, and if not, what exactly is wrong?

In your own tests::

    from attncheck import assert_attention

    assert_attention(my_kernel(q, k, v, mask), q, k, v, mask=mask)

On the command line, see `attncheck --help`.
"""

from attncheck.budget import PROFILES, Profile
from attncheck.subject import Subject
from attncheck.testing import assert_attention, tolerance

__all__ = ["PROFILES", "Profile", "Subject", "assert_attention", "tolerance"]
