"""Projections into heads, and the merge of heads."""

from attncheck.variants.model.inputs import Inputs
from attncheck.variants.model.parts import Array


class Heads(Inputs):
    """What a multi-head layer does before and after."""

    def projected(self) -> tuple[Array, Array, Array]:
        """q, k and v of a multi-head case."""
        x = self.input("x")
        context = self.context()
        return (
            self.project(x, "q"),
            self.repeated(self.project(context, "k")),
            self.repeated(self.project(context, "v")),
        )

    def context(self) -> Array:
        """Where keys and values come from."""
        return self.input("context" if "context" in self.case.inputs else "x")

    def weight(self, kind: str) -> Array:
        """The weight of a projection, `c n d`."""
        return self.input(f"w_{kind}")

    def project(self, x: Array, kind: str) -> Array:
        """`b i c` → `b n i d`."""
        weight = self.weight(kind)
        flat = x @ weight.reshape(len(weight), -1) + self.shift(kind)
        return self.split(flat, *weight.shape[1:])

    def shift(self, kind: str) -> Array | float:
        """The bias of a projection, its heads side by side; 0 where it has none."""
        name = f"b_{kind}"
        return self.input(name).ravel() if name in self.case.inputs else 0.0

    def split(self, flat: Array, heads: int, width: int) -> Array:
        """`b i (n d)` → `b n i d`."""
        return flat.reshape(*flat.shape[:2], heads, width).transpose(0, 2, 1, 3)

    def merged(self, heads: Array) -> Array:
        """`b n i e` → `b i c`: the output projection."""
        weight = self.weight("o")
        flat = self.joined(heads)
        return flat @ weight.reshape(-1, weight.shape[-1]) + self.shift("o")

    def joined(self, heads: Array) -> Array:
        """`b n i e` → `b i (n e)`."""
        return heads.transpose(0, 2, 1, 3).reshape(*self.size("bi"), -1)
