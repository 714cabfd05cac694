"""What the generators of random cases share: a case, and the draws it is made from."""

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
from onnx import helper

F16, F32, F64 = np.dtype("float16"), np.dtype("float32"), np.dtype("float64")
BF16 = np.dtype(ml_dtypes.bfloat16)
BOOL = np.dtype(bool)
I8, I16, I32, I64 = (np.dtype("int%d" % bits) for bits in (8, 16, 32, 64))
U8, U16, U32, U64 = (np.dtype("uint%d" % bits) for bits in (8, 16, 32, 64))
FLOATS = [F32, F64, F16, BF16]
SIGNED = [I32, I64, I8, I16]
UNSIGNED = [U8, U16, U32, U64]
INTEGERS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTEGERS
ALL = NUMBERS + [BOOL]

# Extents: empty, one, around the widths of vectors.
EXTENTS = [0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 16, 17]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3e38, -3e38, 0.5, 1.5, 2.5, -0.5, 1.0, -1.0]
NEWEST = 28


@dataclass
class Case:
    """One node. `inputs` are arrays, None where one is left out."""

    op: str
    inputs: list
    attributes: dict = field(default_factory=dict)
    outputs: int = 1
    # Opsets that have this form of the operator: one of them is chosen.
    opsets: tuple = (13, NEWEST)
    # So many of the last inputs are not the node's: its bodies read them from outside.
    captured: int = 0
    # Another case to ask the oracles, and what makes its outputs those of this one.
    equivalent: tuple = None


class Draw:
    """Random choices, all from one seed."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def chance(self, probability):
        return self.rng.random() < probability

    def integer(self, low, high):
        """Both ends included."""
        return int(self.rng.integers(low, high + 1))

    def choice(self, values):
        return values[self.integer(0, len(values) - 1)]

    def some(self, attributes):
        """Each attribute as it is, or left out."""
        return {name: value for name, value in attributes.items() if self.chance(0.6)}

    def dtype(self, dtypes):
        """Mostly the first, which onnxruntime has for most operators."""
        return dtypes[0] if self.chance(0.4) else self.choice(dtypes)

    def extent(self, least=0):
        return max(least, self.choice(EXTENTS))

    def shape(self, low=0, high=4, least=0):
        shape = [self.extent(least) for _ in range(self.integer(low, high))]
        # An empty tensor now and then, and none that is large.
        for place, extent in enumerate(shape):
            if extent == 0 and self.chance(0.7):
                shape[place] = 1
        while np.prod(shape, dtype=np.int64) > 3000:
            largest = int(np.argmax(shape))
            shape[largest] = shape[largest] // 2
        return shape

    def broadcast(self, shape):
        """A shape that broadcasts with that one."""
        cut = shape[self.integer(0, len(shape)) :] if self.chance(0.4) else list(shape)
        return [1 if self.chance(0.3) else extent for extent in cut]

    def array(self, dtype, shape, scale=3.0, special=0.1):
        dtype = np.dtype(dtype)
        if dtype == BOOL:
            return self.rng.random(shape) < 0.5
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            if self.chance(special):
                wide = self.rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
                return np.asarray(wide, dtype)
            low = max(limits.min, -int(3 * scale))
            return np.asarray(self.rng.integers(low, int(3 * scale), shape), dtype)
        values = self.rng.standard_normal(shape) * scale
        if self.chance(special):
            mask = self.rng.random(shape) < 0.2
            values = np.where(mask, self.rng.choice(SPECIAL, shape), values)
        with np.errstate(over="ignore"):
            return np.asarray(values).astype(dtype)

    def ties(self, dtype, shape):
        """Few different values."""
        dtype = np.dtype(dtype)
        low = 0 if dtype.kind in "ub" else -2
        return np.asarray(self.rng.integers(low, 2, shape)).astype(dtype)

    def axis(self, rank, beyond=0):
        """Of a tensor of that rank, from either end."""
        return self.integer(-rank - beyond, rank - 1 + beyond)

    def axes(self, rank):
        """Some different axes in any order, from either end."""
        count = self.integer(0, rank)
        chosen = self.rng.permutation(rank)[:count]
        return [int(axis) - (rank if self.chance(0.3) else 0) for axis in chosen]

    def indices(self, shape, limit, dtype=None):
        """Indices on an axis of `limit` elements, from either end."""
        low = -limit if self.chance(0.5) else 0
        values = self.rng.integers(low, max(limit, low + 1), shape)
        return np.asarray(values, dtype or self.choice([I32, I64]))


def ints(*values, dtype=I64):
    return np.array(values, dtype).reshape(len(values))


def type_of(dtype):
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
