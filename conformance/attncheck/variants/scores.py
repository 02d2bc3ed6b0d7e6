"""From raw scores to logits: scale, softcap and bias, and their order."""

import numpy as np

from attncheck.variants.model import Array, Model


class ScaleMissing(Model, convention=("scale", "one")):
    """The scores are not scaled."""

    def scale(self) -> float:
        return 1.0


class ScaleByWidth(Model):
    """The scores are divided by d instead of √d."""

    def scale(self) -> float:
        if self.case.scale is None:
            return 1 / self.case.sizes["d"]
        return self.case.scale


class ScaleByModelWidth(Model, reference="karpathy/ng-video-lecture#6"):
    """The scores are divided by √(n·d), the width of all heads, instead of √d."""

    def scale(self) -> float:
        if self.case.scale is None:
            return (self.case.sizes["n"] * self.case.sizes["d"]) ** -0.5
        return self.case.scale


class ScaleByValueWidth(Model):
    """The scores are divided by √e, the width of the values, instead of √d."""

    def scale(self) -> float:
        if self.case.scale is None:
            return self.case.sizes["e"] ** -0.5
        return self.case.scale


class ScaleMultiplied(Model):
    """The scores are multiplied by √d instead of divided."""

    def scale(self) -> float:
        if self.case.scale is None:
            return self.case.sizes["d"] ** 0.5
        return self.case.scale


class ScaleTwice(Model):
    """The scale is applied twice."""

    def scale(self) -> float:
        return super().scale() ** 2


class ScaleHalf(Model):
    """The scale is the constant 0.5."""

    def scale(self) -> float:
        return 0.5


class ScaleIgnored(Model, reference="tenstorrent/tt-metal#33304"):
    """A given scale is ignored; 1/√d is used."""

    def scale(self) -> float:
        return self.case.sizes["d"] ** -0.5


class ScaleZeroDefault(
    Model,
    reference="SKaiNET-developers/SKaiNET#880",
    convention=("scale_zero", "default"),
):
    """A scale of 0 is read as none given."""

    def scale(self) -> float:
        return super().scale() or self.case.sizes["d"] ** -0.5


class ScaleAbsolute(Model):
    """The sign of the scale is lost."""

    def scale(self) -> float:
        return abs(super().scale())


class ScaleRoot(
    Model,
    reference="pytorch/pytorch#105202",
    convention=("scale_negative", "nan"),
):
    """Queries and keys are multiplied by √scale: NaN where it is negative."""

    def scale(self) -> float:
        scale = super().scale()
        return scale if scale >= 0 else float("nan")


class ScaleAndDefault(Model):
    """A given scale is applied on top of 1/√d."""

    def scale(self) -> float:
        default = self.case.sizes["d"] ** -0.5
        return default if self.case.scale is None else self.case.scale * default


class SoftcapIgnored(Model, reference="vllm-project/vllm-xpu-kernels#489"):
    """The softcap is ignored."""

    def capped(self, x: Array) -> Array:
        return x

    def slope(self, x: Array, cap: float) -> Array:
        return np.ones_like(x)


class SoftcapBeforeScale(Model):
    """The softcap comes before the scale."""

    def logits(self, scores: Array) -> Array:
        return self.biased(self.scaled(self.capped(scores)))

    def d_scores(self, ds: Array, scores: Array) -> Array:
        if self.case.softcap is None:
            return ds
        return ds * self.slope(scores, self.case.softcap)


class SoftcapAfterBias(
    Model,
    reference="onnx/onnx#7867",
    convention=("softcap", "after_bias"),
):
    """The bias is added before the softcap."""

    def logits(self, scores: Array) -> Array:
        return self.capped(self.biased(self.scaled(scores)))

    def backward(self, q, k, v, forward):
        # The slope belongs to both gradients, at the sum of score and bias.
        cap = self.case.softcap
        if cap is None:
            return super().backward(q, k, v, forward)
        inside = self.biased(self.scaled(forward["scores"]))
        self._slope = self.slope(inside, cap)
        return super().backward(q, k, v, forward)

    def d_scores(self, ds: Array, scores: Array) -> Array:
        return ds if self.case.softcap is None else ds * self._slope

    def d_bias(self, ds: Array) -> Array:
        return super().d_bias(ds if self.case.softcap is None else ds * self._slope)


class SoftcapRational(Model):
    """The softcap is x/(1 + |x|/c) instead of c·tanh(x/c)."""

    def softcap(self, x: Array, cap: float) -> Array:
        return x / (1 + np.abs(x) / cap)

    def slope(self, x: Array, cap: float) -> Array:
        return (1 + np.abs(x) / cap) ** -2.0


class SoftcapWithoutFactor(Model):
    """The softcap is tanh(x/c), without the factor c."""

    def softcap(self, x: Array, cap: float) -> Array:
        return np.tanh(x / cap)

    def slope(self, x: Array, cap: float) -> Array:
        return super().slope(x, cap) / cap


class SoftcapWithoutDivision(Model):
    """The softcap is c·tanh(x), without the division by c."""

    def softcap(self, x: Array, cap: float) -> Array:
        return cap * np.tanh(x)

    def slope(self, x: Array, cap: float) -> Array:
        return cap * (1 - np.tanh(x) ** 2)


class SoftcapClipped(Model):
    """The softcap cuts off at ±c."""

    def softcap(self, x: Array, cap: float) -> Array:
        return np.clip(x, -cap, cap)

    def slope(self, x: Array, cap: float) -> Array:
        return (np.abs(x) < cap).astype(np.float64)


class BiasIgnored(Model):
    """The bias is ignored."""

    def bias(self) -> Array:
        return np.zeros(self.size("bnij"))


class BiasSubtracted(Model, reference="meta-pytorch/attention-gym#86"):
    """The bias is subtracted."""

    def biased(self, x: Array) -> Array:
        return x - self.bias()

    def d_bias(self, ds: Array) -> Array:
        return -super().d_bias(ds)


class BiasBeforeScale(
    Model,
    reference="tenstorrent/tt-metal#55337",
    convention=("bias", "before_scale"),
):
    """The bias is added before the scale."""

    def logits(self, scores: Array) -> Array:
        return self.capped(self.scaled(self.biased(scores)))

    def backward(self, q, k, v, forward):
        if self.case.softcap is not None:
            inside = self.scaled(self.biased(forward["scores"]))
            self._slope = self.slope(inside, self.case.softcap)
        return super().backward(q, k, v, forward)

    def d_scores(self, ds: Array, scores: Array) -> Array:
        return ds if self.case.softcap is None else ds * self._slope

    def d_bias(self, ds: Array) -> Array:
        return super().d_bias(self.d_scores(ds, ds) * self.scale())


class BiasAfterMask(Model):
    """The bias is added after the mask: NaN or +∞ there is not blocked."""

    def logits(self, scores: Array) -> Array:
        return self.capped(self.scaled(scores))

    def masked(self, logits: Array, seen: Array) -> Array:
        return self.biased(super().masked(logits, seen))


class BiasOfNextHead(Model):
    """Every head gets the bias of the head after it."""

    def bias(self) -> Array:
        return np.roll(super().bias(), -1, axis=1)

    def d_bias(self, ds: Array) -> Array:
        return super().d_bias(np.roll(ds, 1, axis=1))


class BiasOfFirstHead(Model):
    """The bias of the first head is used for all."""

    def read(self, name: str) -> Array:
        array = super().read(name)
        return array[:, :1] if name == "bias" else array


class BiasOfFirstBatch(Model):
    """The bias of the first batch element is used for all."""

    def read(self, name: str) -> Array:
        array = super().read(name)
        return array[:1] if name == "bias" else array


class BiasOfGroup(Model):
    """The bias is indexed by the key/value head instead of the query head."""

    def bias(self) -> Array:
        h, g = self.size("hg")
        return super().bias()[:, np.arange(h * g) // g]

    def d_bias(self, ds: Array) -> Array:
        n, g = self.size("ng")
        total = np.zeros_like(ds)
        for head in range(n):
            total[:, head // g] += ds[:, head]
        return super().d_bias(total)


class BiasDroppedWithMask(Model):
    """The bias is dropped where there is a mask too."""

    def bias(self) -> Array:
        return super().bias() * ("mask" not in self.case.inputs)

    def d_bias(self, ds: Array) -> Array:
        return super().d_bias(ds) * ("mask" not in self.case.inputs)


class BiasTransposed(Model):
    """The bias is added transposed, where it is square."""

    def bias(self) -> Array:
        bias = super().bias()
        i, j = self.size("ij")
        return bias.swapaxes(2, 3) if i == j else bias

    def d_bias(self, ds: Array) -> Array:
        i, j = self.size("ij")
        return super().d_bias(ds.swapaxes(2, 3) if i == j else ds)


class BiasTwice(Model):
    """The bias is added twice."""

    def bias(self) -> Array:
        return 2 * super().bias()

    def d_bias(self, ds: Array) -> Array:
        return 2 * super().d_bias(ds)


class BiasNaturalInBaseTwo(Model):
    """The bias is not multiplied by log₂e in an exponential of base 2."""

    def bias(self) -> Array:
        return super().bias() * np.log(2)

    def d_bias(self, ds: Array) -> Array:
        return super().d_bias(ds) * np.log(2)
