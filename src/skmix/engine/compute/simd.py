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
from functools import lru_cache
from itertools import pairwise

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


@Generated
def load(build, data, index):
    """Return the vector at a place."""
    found = build.load(_pointer(build, data, index, _VECTOR))
    found.align = 8
    return found


@Generated
def store(build, data, index, value):
    """Write a vector to a place."""
    build.store(value, _pointer(build, data, index, value.type)).align = 8


def _pointer(build, data, index, kind):
    return build.bitcast(build.gep(data, [index]), kind.as_pointer())


@Generated
def splat(build, x):
    """Fill all lanes with a number."""
    undefined = ir.Constant(ir.VectorType(x.type, LANES), ir.Undefined)
    one = build.insert_element(undefined, x, _INDEX(0))
    first = ir.Constant(ir.VectorType(_INDEX, LANES), [0] * LANES)
    return build.shuffle_vector(one, undefined, first)


@Generated
def packed(build, numbers):
    """Return a vector of LANES numbers."""
    found = ir.Constant(_VECTOR, ir.Undefined)
    for lane, number in enumerate(numbers):
        found = build.insert_element(found, number, _INDEX(lane))
    return found


add = Generated(lambda build, a, b: build.fadd(a, b))
subtract = Generated(lambda build, a, b: build.fsub(a, b))
multiply = Generated(lambda build, a, b: build.fmul(a, b))
divide = Generated(lambda build, a, b: build.fdiv(a, b))
fma = Generated(lambda build, a, b, c: intrinsic(build, "fma", a, b, c))
# The lanes of `one` where a > b, otherwise those of `other`.
where_larger = Generated(
    lambda build, a, b, one, other: build.select(build.fcmp_ordered(">", a, b), one, other)
)
larger = Generated(lambda build, a, b: where_larger(build, a, b, a, b))
smaller = Generated(lambda build, a, b: build.select(build.fcmp_ordered("<", a, b), a, b))
total = Generated(lambda build, value: _folded(build, value, build.fadd))
largest = Generated(lambda build, value: _folded(build, value, lambda a, b: larger(build, a, b)))
# The next number of a counter that threads share, which is advanced.
take_numbers = Generated(lambda build, counter, n: build.atomic_rmw("add", counter, n, "monotonic"))
# The bits of a number as an integer, and the reverse.
bits = Generated(lambda build, x: build.bitcast(x, INT))
of_bits = Generated(lambda build, x: build.bitcast(x, FLOAT))


def _folded(build, value, combine):
    """Return the lanes of a vector, combined two by two."""
    while value.type.count > 1:
        half = value.type.count // 2
        undefined, kind = ir.Constant(value.type, ir.Undefined), ir.VectorType(_INDEX, half)
        halves = [ir.Constant(kind, list(range(a, a + half))) for a in (0, half)]
        value = combine(*(build.shuffle_vector(value, undefined, own) for own in halves))
    return build.extract_element(value, _INDEX(0))


@Generated
def totals(build, values):
    """Return the sums of the lanes of vectors, LANES of them with fewer instructions than one by one."""
    if len(values) > LANES:
        return totals(build, values[:LANES]) + totals(build, values[LANES:])
    vectors, width = [*values, *[_repeat(0.0)] * (LANES - len(values))], LANES // 2
    while width:
        # In runs of `width` lanes: sums of the first vector in even runs, of the second in odd ones.
        half = len(vectors) // 2
        pairs = zip(vectors[:half], vectors[half:], strict=True)
        vectors = [build.fadd(*_exchanged(build, a, b, width)) for a, b in pairs]
        width //= 2
    return [build.extract_element(vectors[0], _INDEX(i)) for i in range(len(values))]


@Generated
def dot(build, ones, others):
    """Return the sum of the products of vectors."""
    found = build.fmul(ones[0], others[0])
    for a, b in zip(ones[1:], others[1:], strict=True):
        found = fma(build, a, b, found)
    return found


def _exchanged(build, a, b, width):
    """Return two vectors: the even runs of `width` lanes of a and of b in turn, and the odd runs."""
    kind, low, high = ir.VectorType(_INDEX, LANES), [], []
    for i in range(LANES):
        odd = i // width % 2
        low.append(LANES + i - width if odd else i)
        high.append(LANES + i if odd else i + width)
    shuffle = build.shuffle_vector
    return shuffle(a, b, ir.Constant(kind, low)), shuffle(a, b, ir.Constant(kind, high))


@Generated
def transposed(build, vectors):
    """Return the columns of LANES vectors."""
    found, width = list(vectors), LANES // 2
    while width:
        for i in range(LANES):
            if not i & width:
                found[i], found[i + width] = _exchanged(build, found[i], found[i + width], width)
        width //= 2
    return found


@Generated
def head(build, value, count):
    """Return a vector whose lanes from `count` on are zero."""
    kept = build.icmp_signed("<", ir.Constant(_INTEGERS, list(range(LANES))), splat(build, count))
    return build.select(kept, value, _repeat(0.0))


@Generated
def exp(build, x):
    """Return eˣ for x ≤ 0, to the last bit or two; zero below 1e-200."""
    tiny = build.fcmp_unordered("<", x, _repeat(_LOWEST))
    x = build.select(tiny, _repeat(_LOWEST), x)
    shifted = fma(build, x, _repeat(1.0 / math.log(2.0)), _repeat(_ROUND))
    power = build.fsub(shifted, _repeat(_ROUND))
    rest = fma(build, power, _repeat(-_LOG_2), x)
    rest = fma(build, power, _repeat(-_LOG_2_REST), rest)
    # Even and odd powers apart: each operation waits for fewer others.
    square = build.fmul(rest, rest)
    even, odd = _repeat(_EXP[8]), _repeat(_EXP[9])
    for n in (6, 4, 2, 0):
        even = fma(build, even, square, _repeat(_EXP[n]))
        odd = fma(build, odd, square, _repeat(_EXP[n + 1]))
    value = fma(build, fma(build, odd, rest, even), square, rest)
    value = build.fadd(value, _repeat(1.0))
    exponent = build.shl(build.bitcast(shifted, _INTEGERS), _bits(52))
    value = build.bitcast(build.add(build.bitcast(value, _INTEGERS), exponent), _VECTOR)
    return build.select(tiny, _repeat(0.0), value)


@Generated
def log(build, x):
    """Return the logarithm of positive, normal numbers, to the last bit or two."""
    as_integers = build.bitcast(x, _INTEGERS)
    (root,) = struct.unpack("<q", struct.pack("<d", math.sqrt(0.5)))
    power = build.ashr(build.sub(as_integers, _bits(root)), _bits(52))
    # x = 2^power · mantissa, with a mantissa around 1: log = 2 artanh((mantissa − 1) / (mantissa + 1)).
    mantissa = build.bitcast(build.sub(as_integers, build.shl(power, _bits(52))), _VECTOR)
    s = build.fdiv(build.fsub(mantissa, _repeat(1.0)), build.fadd(mantissa, _repeat(1.0)))
    square, series = build.fmul(s, s), _repeat(2.0 / 23)
    for n in range(21, 2, -2):
        series = fma(build, series, square, _repeat(2.0 / n))
    value = fma(build, build.fmul(series, square), s, build.fadd(s, s))
    count = build.sitofp(power, _VECTOR)
    return fma(build, count, _repeat(_LOG_2), fma(build, count, _repeat(_LOG_2_REST), value))


@Generated
def any_above(build, value, limit):
    """Return whether any lane is larger than a number."""
    mask = build.bitcast(build.fcmp_ordered(">", value, splat(build, limit)), ir.IntType(LANES))
    return build.icmp_unsigned("!=", mask, ir.IntType(LANES)(0))


@Generated
def keep_index(build, index):
    """Do nothing that needs the index: on ARM, pointers that step would be read by slower instructions."""
    if _ON_ARM:
        build.asm(ir.FunctionType(ir.VoidType(), [INT]), "", "r", [index], side_effect=True)


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


@Generated
def call(build, address, *arguments):
    """Call the function at an address."""
    kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    build.call(build.inttoptr(address, kind.as_pointer()), arguments)


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
