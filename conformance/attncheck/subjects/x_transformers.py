"""The `Attend` module of x-transformers, written out and through PyTorch's."""

from functools import partial

from attncheck.library import Library
from attnref.spec import Conventions

PACKAGES = ("x-transformers", "torch")
DOCS = "https://github.com/lucidrains/x-transformers"


def _attend(name: str, *, flash: bool) -> Library:
    from x_transformers.attend import Attend

    def attention(query, key, value, mask=None, bias=None, scale=None, causal=False):
        module = Attend(heads=query.shape[1], scale=scale, causal=causal, flash=flash)
        return module.eval()(query, key, value, mask=mask, attn_bias=bias)[0]

    return Library(
        name=name,
        function=attention,
        framework="torch",
        packages=PACKAGES,
        conventions=Conventions(heads="gh", causal="lower-right"),
        profile="eager",
    )


SUBJECTS = {
    f"x-transformers:{name}": partial(
        _attend, f"x-transformers:{name}", flash=name == "flash"
    )
    for name in ("eager", "flash")
}
