"""Tokamax's attention: the implementations that run everywhere."""

import sys
from functools import partial

from attncheck.library import Library
from attnref.spec import Conventions

BOARD_SET = "forward"  # JAX compiles for every shape
PACKAGES = ("tokamax", "jax")
DOCS = "https://openxla.org/tokamax"


def _attention(name: str, implementation: str) -> Library:
    from absl.flags import FLAGS
    from tokamax import dot_product_attention

    FLAGS(sys.argv[:1])  # or else it reads the caller's own options as its flags

    return Library(
        name=name,
        function=partial(dot_product_attention, implementation=implementation),
        framework="jax",
        packages=PACKAGES,
        conventions=Conventions(layout="b i n d"),
        profile="eager",
    )


SUBJECTS = {
    f"tokamax:{path}": partial(_attention, f"tokamax:{path}", implementation)
    for path, implementation in (("xla", "xla"), ("chunked", "xla_chunked"))
}
