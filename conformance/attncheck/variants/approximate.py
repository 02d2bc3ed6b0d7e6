"""Attention by features, and of low rank."""

import numpy as np

from attncheck.variants.model import Array, Model

LINEAR, PERFORMER = "linear_attention", "performer_attention"
LINFORMER, NYSTROM = "linformer_attention", "nystrom_attention"


class LinearPrefixShort(Model, op=LINEAR):
    """A query does not see the last key that it should: the sum is read too early."""

    def last_key(self) -> int:
        return super().last_key() - 1


class LinearPrefixLong(Model, op=LINEAR):
    """A query sees one key too many: the sum is read too late."""

    def last_key(self) -> int:
        return super().last_key() + 1


class LinearCausalIgnored(Model, op=LINEAR):
    """Every query takes the sum over all keys, causal or not."""

    def is_causal(self) -> bool:
        return False


class LinearOffsetIgnored(Model, op=LINEAR):
    """The first query sees the first key alone, whatever the offset."""

    def last_key(self) -> int:
        return 0


class LinearAlignedAtTheEnd(Model, op=LINEAR):
    """The last query sees the last key, whatever the offset."""

    def last_key(self) -> int:
        return self.case.sizes["j"] - self.case.sizes["i"]


class LinearOffsetUnsigned(Model, op=LINEAR):
    """The offset has lost its sign."""

    def last_key(self) -> int:
        return abs(super().last_key())


class LinearDenominatorOfAllKeys(Model, op=LINEAR):
    """The weights of a causal row are divided by the sum over all keys."""

    def denominator(self, of_query: Array, of_key: Array, seen: Array) -> Array:
        return super().denominator(of_query, of_key, self.seen())


class LinearDenominatorMissing(Model, op=LINEAR):
    """The weights are not divided by their sum."""

    def normalised(self, out: Array, total: Array) -> Array:
        return out


class LinearBlockedAsZero(Model, op=LINEAR):
    """Blocked keys are set to 0 before the feature map, and 1 is added for each."""

    def denominator(self, of_query: Array, of_key: Array, seen: Array) -> Array:
        return super().denominator(of_query, of_key, self.reached())


class LinearFeatureWithoutOne(Model, op=LINEAR):
    """The feature map is elu, without 1."""

    def above_elu(self) -> float:
        return 0.0


class LinearFeatureIgnored(Model, op=LINEAR):
    """The feature map is elu + 1, whichever is asked for."""

    def feature_name(self) -> str:
        return "elu+1"


class LinearFeatureExponential(Model, op=LINEAR):
    """The feature map is the exponential."""

    def elu(self, x: Array) -> Array:
        return np.exp(x) - 1


class LinearScaled(Model, op=LINEAR):
    """Queries are divided by √d before the feature map."""

    def query_features(self, q: Array) -> tuple[Array, Array | float]:
        return super().query_features(q * self.case.sizes["d"] ** -0.5)


class PerformerAlignedAtTheEnd(Model, op=PERFORMER):
    """The last query sees the last key, whatever the offset."""

    def last_key(self) -> int:
        return self.case.sizes["j"] - self.case.sizes["i"]


class PerformerOffsetUnsigned(Model, op=PERFORMER):
    """The offset has lost its sign."""

    def last_key(self) -> int:
        return abs(super().last_key())


class PerformerNormMissing(Model, op=PERFORMER):
    """Half the squared length is not taken off the logarithm of a feature."""

    def half_norm(self, x: Array) -> Array:
        return np.zeros_like(x[..., :1])


class PerformerNormWhole(Model, op=PERFORMER):
    """The whole squared length is taken off, instead of half of it."""

    def half_norm(self, x: Array) -> Array:
        return 2 * super().half_norm(x)


class PerformerScaleMissing(Model, op=PERFORMER):
    """Queries and keys are not scaled."""

    def feature_scale(self) -> float:
        return 1.0


class PerformerScaleForRoot(Model, op=PERFORMER):
    """Queries and keys are both multiplied by the scale instead of its root."""

    def feature_scale(self) -> float:
        return super().feature_scale() ** 2


class PerformerScaleDefault(Model, op=PERFORMER):
    """The scale is 1/√d, whatever is given."""

    def feature_scale(self) -> float:
        return self.case.sizes["d"] ** -0.25


class PerformerShiftOfEachKey(Model, op=PERFORMER):
    """Features of keys are taken relative to the largest of each key alone."""

    def key_top(self, logs: Array) -> Array:
        top = logs.max(axis=-1, keepdims=True)
        return np.where(top == -np.inf, 0.0, top)


class PerformerShiftNotPutBack(Model, op=PERFORMER):
    """What is taken off the logarithms is missing in the log-sum-exp."""

    def put_back(self, top: Array) -> Array:
        return np.zeros_like(top)


class PerformerSumForMean(Model, op=PERFORMER):
    """The log-sum-exp is that of the sum over features, not of their mean."""

    def features_averaged(self) -> int:
        return 1


class PerformerEpsilonAdded(Model, op=PERFORMER):
    """0.0001 is added to every feature, as performer-pytorch does."""

    def random_feature(self, log: Array) -> Array:
        return super().random_feature(log) + 1e-4


class PerformerDrawTwice(Model, op=PERFORMER):
    """The first row of the draws is used in place of the last as well."""

    def random_logs(self, x: Array) -> Array:
        logs = super().random_logs(x)
        return np.concatenate([logs[..., :-1], logs[..., :1]], axis=-1)


class PerformerPrefixShort(Model, op=PERFORMER):
    """A query does not see the last key that it should."""

    def last_key(self) -> int:
        return super().last_key() - 1


class PerformerCausalIgnored(Model, op=PERFORMER):
    """Every query takes the random features of all keys, causal or not."""

    def is_causal(self) -> bool:
        return False


class LinformerProjectionsSwapped(Model, op=LINFORMER):
    """Keys are combined by the weights of the values, and values by the keys'."""

    def key_projection(self) -> Array:
        return super().value_projection()

    def value_projection(self) -> Array:
        return super().key_projection()


class LinformerOneProjection(Model, op=LINFORMER):
    """Values are combined as the keys are, though they have weights of their own."""

    def value_projection(self) -> Array:
        return self.key_projection()


class LinformerBlockedCombined(Model, op=LINFORMER):
    """Blocked keys are in the combinations."""

    def keys_combined(self) -> Array:
        return np.ones_like(super().keys_combined())


class LinformerMaskOfCombinations(Model, op=LINFORMER):
    """The mask of keys is put on the combinations, the first key's on the first."""

    def keys_combined(self) -> Array:
        return np.ones_like(super().keys_combined())

    def combinations_seen(self, shape: tuple[int, ...]) -> Array:
        return self.seen()[..., : shape[-1]]


class LinformerScaledByCount(Model, op=LINFORMER):
    """Scores are divided by the root of the number of combinations instead of √d."""

    def scale(self) -> float:
        return self.case.sizes["r"] ** -0.5


class LinformerMeans(Model, op=LINFORMER):
    """Combinations of keys are divided by the number of keys."""

    def key_projection(self) -> Array:
        return super().key_projection() / self.case.sizes["j"]


class NystromInverseMissing(Model, op=NYSTROM):
    """The middle matrix is left out."""

    def through(self, first: Array, core: Array, values: Array) -> Array:
        return first @ values


class NystromNotInverted(Model, op=NYSTROM):
    """The middle matrix is not inverted."""

    def through(self, first: Array, core: Array, values: Array) -> Array:
        return first @ core @ values


class NystromInverseTransposed(Model, op=NYSTROM):
    """The inverse of the middle matrix is transposed."""

    def through(self, first: Array, core: Array, values: Array) -> Array:
        return super().through(first, core.swapaxes(-1, -2), values)


class NystromLandmarksAreRows(Model, op=NYSTROM):
    """A landmark is the first row of its segment, not the mean."""

    def landmark(self, part: Array) -> Array:
        return part[:, :, 0]


class NystromLandmarksAreSums(Model, op=NYSTROM):
    """A landmark is the sum of its segment, not the mean."""

    def landmark(self, part: Array) -> Array:
        return part.sum(axis=2)


class NystromLandmarksInterleaved(Model, op=NYSTROM):
    """A landmark is the mean of every r-th row instead of r rows beside each other."""

    def landmarks(self, x: Array) -> Array:
        count = self.setting("landmarks", 1)
        return np.stack([x[:, :, at::count].mean(axis=2) for at in range(count)], 2)


class NystromUnscaled(Model, op=NYSTROM):
    """Scores are not divided by √d."""

    def scale(self) -> float:
        return 1.0
