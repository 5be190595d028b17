"""Vectors of float64 in compiled code.

LLVM compiles loops over arrays well, but leaves the width of vectors and the use of registers to heuristics.
Here both are explicit: a vector has as many lanes as the widest registers of the processor, and the loops
over a few features or kernels are unrolled while instructions are generated. All functions are for code that
`native` compiles; arrays are one-dimensional float64, and places in them are indices of their first lane.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, misc"

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from .arrays import FARTHEST_SQUARED
from .native import defined, machine_code
from .translation import FLOAT, INT, Array, Generated, Inner, Translation, inner, intrinsic

LANES = 8 if llvm.get_host_cpu_features().get("avx512f") else 4
# Sums of LANES kernels or features times two vectors fit into the registers.
ROWS = LANES
_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_INTEGERS = ir.VectorType(ir.IntType(64), LANES)
_INDEX = ir.IntType(32)
_ON_ARM = llvm.get_process_triple().startswith(("aarch64", "arm64"))
# Exponentials below e^-460 = 1e-200 are zero: subnormal numbers would be slow, and nothing needs them.
_LOWEST = -460.0
# The first digits of log 2, so that small multiples are exact.
_LOG_2 = 6.93145751953125e-1
# The rest of log 2.
_LOG_2_REST = 1.42860682030941723212e-6
# Adding 1.5 · 2^52 rounds to an integer, which is then in the lowest bits.
_ROUND = 6755399441055744.0


def _exp_coefficients() -> list[float]:
    """Return those of (eˣ − 1 − x) / x² for |x| ≤ ½ log 2, interpolated at Chebyshev's points."""
    half = 0.5 * math.log(2.0)
    points = np.polynomial.chebyshev.chebpts1(10)
    values = sum((half * points) ** n / math.factorial(n + 2) for n in range(16))
    found = np.polynomial.chebyshev.cheb2poly(np.polynomial.chebyshev.chebfit(points, values, 9))
    return [float(c) for c in found / half ** np.arange(10)]


_EXP = _exp_coefficients()


def _repeat(x: float) -> ir.Constant:
    return ir.Constant(_VECTOR, [x] * LANES)


def _bits(x: int) -> ir.Constant:
    return ir.Constant(_INTEGERS, [x] * LANES)


class _Code:
    """Generates instructions with vectors at the position of a builder."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    def load(self, data: Any, index: Any) -> Any:
        found = self.builder.load(self._pointer(data, index, _VECTOR))
        found.align = 8
        return found

    def packed(self, numbers: Sequence[Any]) -> Any:
        """Return a vector of LANES numbers."""
        found = ir.Constant(_VECTOR, ir.Undefined)
        for lane, number in enumerate(numbers):
            found = self.builder.insert_element(found, number, _INDEX(lane))
        return found

    def store(self, value: Any, data: Any, index: Any) -> None:
        self.builder.store(value, self._pointer(data, index, value.type)).align = 8

    def _pointer(self, data: Any, index: Any, kind: ir.Type) -> Any:
        return self.builder.bitcast(self.builder.gep(data, [index]), kind.as_pointer())

    def splat(self, x: Any) -> Any:
        """Fill all lanes with a number."""
        undefined = ir.Constant(ir.VectorType(x.type, LANES), ir.Undefined)
        one = self.builder.insert_element(undefined, x, _INDEX(0))
        first = ir.Constant(ir.VectorType(_INDEX, LANES), [0] * LANES)
        return self.builder.shuffle_vector(one, undefined, first)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return intrinsic(self.builder, "fma", a, b, c)

    def where_larger(self, a: Any, b: Any, one: Any, other: Any) -> Any:
        """Return the lanes of `one` where a > b, otherwise those of `other`."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), one, other)

    def larger(self, a: Any, b: Any) -> Any:
        return self.where_larger(a, b, a, b)

    def smaller(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.builder.fcmp_ordered("<", a, b), a, b)

    def total(self, value: Any) -> Any:
        return self._folded(value, self.builder.fadd)

    def _folded(self, value: Any, combine: Callable[[Any, Any], Any]) -> Any:
        while value.type.count > 1:
            half = value.type.count // 2
            undefined, kind = ir.Constant(value.type, ir.Undefined), ir.VectorType(_INDEX, half)
            halves = [ir.Constant(kind, list(range(a, a + half))) for a in (0, half)]
            value = combine(*(self.builder.shuffle_vector(value, undefined, each) for each in halves))
        return self.builder.extract_element(value, _INDEX(0))

    def largest(self, value: Any) -> Any:
        return self._folded(value, self.larger)

    def totals(self, values: Sequence[Any]) -> list[Any]:
        """Return the sums of the lanes of vectors, LANES of them with fewer instructions than one by one."""
        if len(values) > LANES:
            return self.totals(values[:LANES]) + self.totals(values[LANES:])
        vectors, width = [*values, *[_repeat(0.0)] * (LANES - len(values))], LANES // 2
        while width:
            # In runs of `width` lanes: sums of the first vector in even runs, of the second in odd ones.
            half = len(vectors) // 2
            pairs = zip(vectors[:half], vectors[half:], strict=True)
            vectors = [self.builder.fadd(*self._exchanged(a, b, width)) for a, b in pairs]
            width //= 2
        return [self.builder.extract_element(vectors[0], _INDEX(i)) for i in range(len(values))]

    def dot(self, ones: Sequence[Any], others: Sequence[Any]) -> Any:
        """Return the sum of the products of vectors."""
        found = self.builder.fmul(ones[0], others[0])
        for a, b in zip(ones[1:], others[1:], strict=True):
            found = self.fma(a, b, found)
        return found

    def _exchanged(self, a: Any, b: Any, width: int) -> tuple[Any, Any]:
        """Return two vectors: the even runs of `width` lanes of a and of b in turn, and the odd runs."""
        kind, low, high = ir.VectorType(_INDEX, LANES), [], []
        for i in range(LANES):
            odd = i // width % 2
            low.append(LANES + i - width if odd else i)
            high.append(LANES + i if odd else i + width)
        shuffle = self.builder.shuffle_vector
        return shuffle(a, b, ir.Constant(kind, low)), shuffle(a, b, ir.Constant(kind, high))

    def transposed(self, vectors: Sequence[Any]) -> list[Any]:
        """Return the columns of LANES vectors."""
        found, width = list(vectors), LANES // 2
        while width:
            for i in range(LANES):
                if not i & width:
                    found[i], found[i + width] = self._exchanged(found[i], found[i + width], width)
            width //= 2
        return found

    def head(self, value: Any, count: Any) -> Any:
        """Return a vector whose lanes from `count` on are zero."""
        kept = self.builder.icmp_signed("<", ir.Constant(_INTEGERS, list(range(LANES))), self.splat(count))
        return self.builder.select(kept, value, _repeat(0.0))

    def exp(self, x: Any) -> Any:
        """Return eˣ for x ≤ 0, to the last bit or two; zero below 1e-200."""
        build = self.builder
        tiny = build.fcmp_unordered("<", x, _repeat(_LOWEST))
        x = build.select(tiny, _repeat(_LOWEST), x)
        shifted = self.fma(x, _repeat(1.0 / math.log(2.0)), _repeat(_ROUND))
        power = build.fsub(shifted, _repeat(_ROUND))
        rest = self.fma(power, _repeat(-_LOG_2), x)
        rest = self.fma(power, _repeat(-_LOG_2_REST), rest)
        # Even and odd powers apart: each operation waits for fewer others.
        square = build.fmul(rest, rest)
        even, odd = _repeat(_EXP[8]), _repeat(_EXP[9])
        for n in (6, 4, 2, 0):
            even = self.fma(even, square, _repeat(_EXP[n]))
            odd = self.fma(odd, square, _repeat(_EXP[n + 1]))
        value = self.fma(self.fma(odd, rest, even), square, rest)
        value = build.fadd(value, _repeat(1.0))
        exponent = build.shl(build.bitcast(shifted, _INTEGERS), _bits(52))
        value = build.bitcast(build.add(build.bitcast(value, _INTEGERS), exponent), _VECTOR)
        return build.select(tiny, _repeat(0.0), value)

    def log(self, x: Any) -> Any:
        """Return the logarithm of positive, normal numbers, to the last bit or two."""
        build, bits = self.builder, self.builder.bitcast(x, _INTEGERS)
        (root,) = struct.unpack("<q", struct.pack("<d", math.sqrt(0.5)))
        power = build.ashr(build.sub(bits, _bits(root)), _bits(52))
        # x = 2^power · mantissa, with a mantissa around 1: log = 2 artanh((mantissa − 1) / (mantissa + 1)).
        mantissa = build.bitcast(build.sub(bits, build.shl(power, _bits(52))), _VECTOR)
        s = build.fdiv(build.fsub(mantissa, _repeat(1.0)), build.fadd(mantissa, _repeat(1.0)))
        square, series = build.fmul(s, s), _repeat(2.0 / 23)
        for n in range(21, 2, -2):
            series = self.fma(series, square, _repeat(2.0 / n))
        value = self.fma(build.fmul(series, square), s, build.fadd(s, s))
        count = build.sitofp(power, _VECTOR)
        return self.fma(count, _repeat(_LOG_2), self.fma(count, _repeat(_LOG_2_REST), value))


def _generated(emit: Callable[..., Any]) -> Any:
    """Return a function for compiled code whose instructions ``emit(code, *arguments)`` generates."""
    return Generated(lambda builder, *arguments: emit(_Code(builder), *arguments))


def _any_above(code: _Code, value: Any, limit: Any) -> Any:
    build, bits = code.builder, ir.IntType(LANES)
    mask = build.bitcast(build.fcmp_ordered(">", value, code.splat(limit)), bits)
    return build.icmp_unsigned("!=", mask, bits(0))


def _keep_index(code: _Code, index: Any) -> None:
    """Do nothing that needs the index: on ARM, pointers that step would be read by slower instructions."""
    if _ON_ARM:
        code.builder.asm(ir.FunctionType(ir.VoidType(), [INT]), "", "r", [index], side_effect=True)


load = _generated(_Code.load)
store = _generated(lambda code, data, index, value: code.store(value, data, index))
splat = _generated(_Code.splat)
packed = _generated(_Code.packed)
add = _generated(lambda code, a, b: code.builder.fadd(a, b))
subtract = _generated(lambda code, a, b: code.builder.fsub(a, b))
multiply = _generated(lambda code, a, b: code.builder.fmul(a, b))
divide = _generated(lambda code, a, b: code.builder.fdiv(a, b))
fma = _generated(_Code.fma)
dot = _generated(_Code.dot)
where_larger = _generated(_Code.where_larger)
larger = _generated(_Code.larger)
smaller = _generated(_Code.smaller)
exp = _generated(_Code.exp)
log = _generated(_Code.log)
total = _generated(_Code.total)
totals = _generated(_Code.totals)
largest = _generated(_Code.largest)
head = _generated(_Code.head)
transposed = _generated(_Code.transposed)
any_above = _generated(_any_above)
keep_index = _generated(_keep_index)
# The next number of a counter that threads share, which is advanced.
take_numbers = _generated(lambda code, counter, n: code.builder.atomic_rmw("add", counter, n, "monotonic"))
# The bits of a number as an integer, and the reverse.
bits = _generated(lambda code, x: code.builder.bitcast(x, INT))
of_bits = _generated(lambda code, x: code.builder.bitcast(x, FLOAT))


def each(count: int) -> tuple[int, ...]:
    """Return 0, 1, … count − 1: a loop over them is unrolled."""
    return tuple(range(count))


@inner
def gather_rows(data, places, at, step, scale, shift, limit, out, out_step, n_features):
    """Write LANES rows that begin at places[at:] into out (M, n), as x · scale − shift within ± limit."""
    rows = [places[at + lane] for lane in each(LANES)]
    for j in range(n_features):
        x = packed([data[rows[lane] + j * step] for lane in each(LANES)])
        x = subtract(multiply(x, splat(scale[j])), splat(shift[j]))
        store(out, at + j * out_step, smaller(larger(x, splat(-limit)), splat(limit)))


@inner
def transpose(x, at, step, out, out_at, out_step):
    """Write LANES vectors of x, `step` apart, as columns into `out`."""
    columns = transposed([load(x, at + i * step) for i in each(LANES)])
    for i in each(LANES):
        store(out, out_at + i * out_step, columns[i])


@inner
def _with_products(
    sums, left, left_at, left_row, left_step, right, right_at, right_step, count, n_rows, n_vectors
):
    """Return sums[i, j] + Σ_c left[i, c] right[c, j], for some values of i and some vectors of j."""
    for c in range(count):
        vectors = [load(right, right_at + c * right_step + v * LANES) for v in each(n_vectors)]
        numbers = [splat(left[left_at + i * left_row + c * left_step]) for i in each(n_rows)]
        keep_index(c)
        sums = [
            fma(numbers[i], vectors[v], sums[i * n_vectors + v])
            for i in each(n_rows)
            for v in each(n_vectors)
        ]
    return sums


@inner
def add_products(
    left, left_at, left_row, left_step, right, right_at, right_step, count, out, out_at, out_row, n_rows,
    n_vectors,
):  # fmt: skip
    """Add Σ_c left[i, c] right[c, j] to out[i, j], for some values of i and some vectors of j."""
    sums = [load(out, out_at + i * out_row + v * LANES) for i in each(n_rows) for v in each(n_vectors)]
    sums = _with_products(
        sums, left, left_at, left_row, left_step, right, right_at, right_step, count, n_rows, n_vectors
    )
    for i in each(n_rows):
        for v in each(n_vectors):
            store(out, out_at + i * out_row + v * LANES, sums[i * n_vectors + v])


@inner
def projected(matrix, at, x, x_step, count):
    """Return Σ_i (Σ_c matrix[c, i] x[c, n])² over ROWS values of i, for two vectors of rows n."""
    zeros = [splat(0.0) for _ in each(2 * ROWS)]
    sums = _with_products(zeros, matrix, at, 1, ROWS, x, 0, x_step, count, ROWS, 2)
    of_vectors = [[sums[2 * i + v] for i in each(ROWS)] for v in each(2)]
    return [dot(own, own) for own in of_vectors]


@inner
def _add_distances(x, at, step, n_rows, means, mean_at, whitener, white_at, out, out_at, n_features):
    """Add −½ times the squared Mahalanobis distances of rows x[:, at : at + n] to out[out_at:]."""
    for r in range(0, n_rows, LANES):
        ahead = [subtract(load(x, at + j * step + r), splat(means[mean_at + j])) for j in each(n_features)]
        white = [
            dot([splat(whitener[white_at + i * (i + 1) // 2 + j]) for j in each(i + 1)], ahead[: i + 1])
            for i in each(n_features)
        ]
        lengths = smaller(dot(white, white), splat(FARTHEST_SQUARED))
        store(out, out_at + r, fma(splat(-0.5), lengths, load(out, out_at + r)))


def _parts(n_features: int) -> list[list[tuple[int, int, int, int]]]:
    """Return the moments of a kernel in parts whose sums fit into the registers.

    A moment is its number in the part, its place among all, and two features; first moments have M for one.
    """
    edges = [0, *range(n_features % 4 or 4, n_features + 1, 4)] if n_features > 6 else [0, n_features]
    found, ranges = [], [range(a, b) for a, b in pairwise(edges)]
    for a, rows in enumerate(ranges):
        for columns in ranges[: a + 1]:
            own = [(n_features + i * (i + 1) // 2 + j, i, j) for i in rows for j in columns if j <= i]
            own += [(i, i, n_features) for i in rows if rows is columns]
            found.append([(n, *moment) for n, moment in enumerate(own)])
    return found


@inner
def _add_part(x, at, step, n_rows, weights, weights_at, origins, origin_at, out, out_at, n_features, part):
    """Add the moments of a part."""
    sums = [splat(0.0) for _ in part]
    for r in range(0, n_rows, LANES):
        weight = load(weights, weights_at + r)
        ahead = [
            subtract(load(x, at + j * step + r), splat(origins[origin_at + j])) for j in each(n_features)
        ]
        weighted = [multiply(weight, own) for own in ahead]
        sums = [
            fma(weighted[i], ahead[j], sums[n]) if j < n_features else add(weighted[i], sums[n])
            for n, _, i, j in part
        ]
    of_part = totals(sums)
    for n, place, _, _ in part:
        out[out_at + place] += of_part[n]


@inner
def _add_moments(x, at, step, n_rows, weights, weights_at, origins, origin_at, out, out_at, n_features):
    """Add weighted sums of differences from an origin, and of their products, of rows x[:, at : at + n]."""
    for part in _parts(n_features):
        _add_part(x, at, step, n_rows, weights, weights_at, origins, origin_at, out, out_at, n_features, part)


def _call(code: _Code, address: Any, *arguments: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    code.builder.call(code.builder.inttoptr(address, kind.as_pointer()), arguments)


call = _generated(_call)


@lru_cache
def unrolled(n_features: int) -> tuple[int, int]:
    """Return the addresses of `_add_distances` and `_add_moments` for that many features, which `call` takes.

    The code around them is large: it is compiled once, for any number of features. Zeros if that is zero.
    """
    if not n_features:
        return 0, 0
    numbers = FLOAT.as_pointer()
    kinds = [numbers, INT, INT, INT, numbers, INT, numbers, INT, numbers, INT]

    def compiled(function: Inner) -> int:
        def build(module: ir.Module, symbol: str) -> None:
            with defined(module, symbol, kinds) as (builder, given):
                values = [Array(one, FLOAT, (INT(0),)) if one.type == numbers else one for one in given]
                Translation(builder, function, [*values, n_features]).translate()

        return machine_code(f"{function.name} {n_features}", __file__, build)

    return compiled(_add_distances), compiled(_add_moments)
