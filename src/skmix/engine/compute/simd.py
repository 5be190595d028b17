"""Vectors of float64 in compiled code.

LLVM compiles loops over arrays well, but leaves the width of vectors and the use of registers to heuristics.
Here both are explicit: a vector has as many lanes as the widest registers of the processor, and the loops
over a few features or kernels are unrolled while instructions are generated. All functions are for code that
`native` compiles; arrays are one-dimensional float64, and places in them are indices of their first lane.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, misc"

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from .arrays import FARTHEST_SQUARED
from .native import defined, machine_code
from .translation import FLOAT, INT, Generated, intrinsic

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


class Code:
    """Generates instructions with vectors at the position of a builder."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    def load(self, data: Any, index: Any) -> Any:
        """Load a vector."""
        found = self.builder.load(self._pointer(data, index, _VECTOR))
        found.align = 8
        return found

    def gather(self, data: Any, indices: Sequence[Any]) -> Any:
        """Load a vector from LANES places of float64 or float32 numbers."""
        found = ir.Constant(_VECTOR, ir.Undefined)
        for lane, index in enumerate(indices):
            number = self.builder.load(self.builder.gep(data, [index]))
            if number.type != _VECTOR.element:
                number = self.builder.fpext(number, _VECTOR.element)
            found = self.builder.insert_element(found, number, _INDEX(lane))
        return found

    def store(self, value: Any, data: Any, index: Any) -> None:
        """Store a vector."""
        self.builder.store(value, self._pointer(data, index, value.type)).align = 8

    def _pointer(self, data: Any, index: Any, kind: ir.Type) -> Any:
        return self.builder.bitcast(self.builder.gep(data, [index]), kind.as_pointer())

    def splat(self, x: Any) -> Any:
        """Fill all lanes with a number."""
        undefined = ir.Constant(ir.VectorType(x.type, LANES), ir.Undefined)
        one = self.builder.insert_element(undefined, x, _INDEX(0))
        first = ir.Constant(ir.VectorType(_INDEX, LANES), [0] * LANES)
        return self.builder.shuffle_vector(one, undefined, first)

    def broadcast(self, data: Any, index: Any) -> Any:
        """Fill all lanes with a number of an array."""
        return self.splat(self.builder.load(self.builder.gep(data, [index])))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """Return a · b + c, rounded once."""
        return intrinsic(self.builder, "fma", a, b, c)

    def where_larger(self, a: Any, b: Any, one: Any, other: Any) -> Any:
        """Return the lanes of `one` where a > b, otherwise those of `other`."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), one, other)

    def larger(self, a: Any, b: Any) -> Any:
        """Return the larger of two vectors, lane by lane."""
        return self.where_larger(a, b, a, b)

    def smaller(self, a: Any, b: Any) -> Any:
        """Return the smaller of two vectors, lane by lane."""
        return self.builder.select(self.builder.fcmp_ordered("<", a, b), a, b)

    def plus(self, index: Any, *steps: int) -> Any:
        """Return an index plus constants."""
        step = sum(steps)
        return self.builder.add(index, index.type(step)) if step else index

    def total(self, value: Any) -> Any:
        """Return the sum of the lanes."""
        return self._folded(value, self.builder.fadd)

    def _folded(self, value: Any, combine: Callable[[Any, Any], Any]) -> Any:
        while value.type.count > 1:
            half = value.type.count // 2
            undefined, kind = ir.Constant(value.type, ir.Undefined), ir.VectorType(_INDEX, half)
            halves = [ir.Constant(kind, list(range(a, a + half))) for a in (0, half)]
            value = combine(*(self.builder.shuffle_vector(value, undefined, each) for each in halves))
        return self.builder.extract_element(value, _INDEX(0))

    def largest(self, value: Any) -> Any:
        """Return the largest of the lanes."""
        return self._folded(value, self.larger)

    def totals(self, values: Sequence[Any]) -> list[Any]:
        """Return the sums of the lanes of up to LANES vectors, with fewer instructions than one by one."""
        vectors, width = [*values, *[_repeat(0.0)] * (LANES - len(values))], LANES // 2
        while width:
            # In runs of `width` lanes: sums of the first vector in even runs, of the second in odd ones.
            half = len(vectors) // 2
            pairs = zip(vectors[:half], vectors[half:], strict=True)
            vectors = [self.builder.fadd(*self._exchanged(a, b, width)) for a, b in pairs]
            width //= 2
        return [self.builder.extract_element(vectors[0], _INDEX(i)) for i in range(len(values))]

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

    @contextlib.contextmanager
    def steps(self, count: Any, step: int) -> Iterator[Any]:
        """Generate a loop over i = 0, step, … < count."""
        build, kind = self.builder, count.type
        test, body, after = (build.append_basic_block(name) for name in ("test", "body", "after"))
        before = build.block
        build.branch(test)
        build.position_at_end(test)
        i = build.phi(kind)
        i.add_incoming(kind(0), before)
        build.cbranch(build.icmp_signed("<", i, count), body, after)
        build.position_at_end(body)
        yield i
        i.add_incoming(build.add(i, kind(step), flags=["nsw"]), build.block)
        build.branch(test)
        build.position_at_end(after)

    def sums(
        self, count: Any, step: int, starts: Sequence[Any], terms: Callable[[Any], Sequence[Any]]
    ) -> Any:
        """Return sums in a loop over 0, step, … < count; ``terms(i)`` returns functions from sum to sum."""
        with self.builder.goto_entry_block():
            totals = [self.builder.alloca(_VECTOR) for _ in starts]
        for start, total in zip(starts, totals, strict=True):
            self.builder.store(start, total)
        with self.steps(count, step) as i:
            for term, total in zip(terms(i), totals, strict=True):
                self.builder.store(term(self.builder.load(total)), total)
        return [self.builder.load(total) for total in totals]


def _generated(emit: Callable[..., Any], literals: int = 0) -> Any:
    """Return a function for compiled code whose instructions ``emit(code, *arguments)`` generates."""
    return Generated(lambda builder, *arguments: emit(Code(builder), *arguments), literals)


def _lower_blocks(n_features: int) -> list[range]:
    """Split features so that the sums of a pair of parts fit into the registers."""
    if n_features <= 6:
        return [range(n_features)]
    edges = [0, *range(n_features % 4 or 4, n_features + 1, 4)]
    return [range(a, b) for a, b in pairwise(edges)]


def _distance(
    code: Code, x: Any, at: Any, step: Any, means: Any, mean_at: Any, whitener: Any, whitener_at: Any,
    n_features: int,
) -> Any:  # fmt: skip
    """Squared Mahalanobis distances of LANES rows, unrolled over features."""
    build, differences = code.builder, []
    for j in range(n_features):
        mean = code.broadcast(means, code.plus(mean_at, j))
        differences.append(build.fsub(code.load(x, at), mean))
        at = build.add(at, step)
    found, place = _repeat(0.0), 0
    for i in range(n_features):
        white = None
        for j in range(i + 1):
            factor = code.broadcast(whitener, code.plus(whitener_at, place))
            place += 1
            if white is None:
                white = build.fmul(factor, differences[j])
            else:
                white = code.fma(factor, differences[j], white)
        found = code.fma(white, white, found)
    return found


def _add_distances(
    code: Code, x: Any, at: Any, step: Any, n_rows: Any, means: Any, mean_at: Any, whitener: Any,
    whitener_at: Any, out: Any, out_at: Any, n_features: int,
) -> None:  # fmt: skip
    """Add −½ times the squared Mahalanobis distances of rows x[:, at : at + n] to out[out_at:]."""
    build = code.builder
    with code.steps(n_rows, LANES) as r:
        lengths = _distance(
            code, x, build.add(at, r), step, means, mean_at, whitener, whitener_at, n_features
        )
        lengths, place = code.smaller(lengths, _repeat(FARTHEST_SQUARED)), build.add(out_at, r)
        code.store(code.fma(_repeat(-0.5), lengths, code.load(out, place)), out, place)


def _add_moments(
    code: Code, x: Any, at: Any, step: Any, n_rows: Any, weights: Any, weights_at: Any, origins: Any,
    origin_at: Any, out: Any, out_at: Any, n_features: int,
) -> None:  # fmt: skip
    """Add weighted sums of differences from an origin, and of their products, of rows x[:, at : at + n]."""
    build, parts = code.builder, _lower_blocks(n_features)
    for rows, columns in [(rows, columns) for a, rows in enumerate(parts) for columns in parts[: a + 1]]:
        cells = [(i, j) for i in rows for j in columns if j <= i]
        alone = list(rows) if rows is columns else []  # features whose first moments are added here

        def terms(
            r: Any, rows: Any = rows, columns: Any = columns, cells: Any = cells, alone: Any = alone
        ) -> Any:
            weight = code.load(weights, build.add(weights_at, r))
            ahead = {}
            for j in sorted({*rows, *columns}):
                origin = code.broadcast(origins, code.plus(origin_at, j))
                place = build.add(build.add(at, build.mul(r.type(j), step)), r)
                ahead[j] = build.fsub(code.load(x, place), origin)
            weighted = {i: build.fmul(weight, ahead[i]) for i in rows}
            products = [lambda s, i=i, j=j: code.fma(weighted[i], ahead[j], s) for i, j in cells]
            return products + [lambda s, i=i: build.fadd(weighted[i], s) for i in alone]

        places = [code.plus(out_at, n_features + i * (i + 1) // 2 + j) for i, j in cells]
        places += [code.plus(out_at, i) for i in alone]
        found = code.sums(n_rows, LANES, [_repeat(0.0)] * len(places), terms)
        for b in range(0, len(places), LANES):
            sums = code.totals(found[b : b + LANES])
            for value, place in zip(sums, places[b : b + LANES], strict=True):
                pointer = build.gep(out, [place])
                build.store(build.fadd(build.load(pointer), value), pointer)


def _add_products(
    code: Code, left: Any, left_at: Any, left_row: Any, left_step: Any, right: Any, right_at: Any,
    right_step: Any, count: Any, out: Any, out_at: Any, out_row: Any, n_rows: int, n_vectors: int,
) -> None:  # fmt: skip
    """Add Σ_c left[i, c] right[c, j] to out[i, j], for some values of i and some vectors of j."""
    build, cells = code.builder, [(i, v) for i in range(n_rows) for v in range(n_vectors)]
    rows = [build.add(left_at, build.mul(left_row, left_row.type(i))) for i in range(n_rows)]
    places = [
        build.add(build.add(out_at, build.mul(out_row.type(i), out_row)), out_row.type(v * LANES))
        for i, v in cells
    ]

    def terms(c: Any) -> list[Callable[[Any], Any]]:
        row, column = build.add(right_at, build.mul(c, right_step)), build.mul(c, left_step)
        vectors = [code.load(right, code.plus(row, v * LANES)) for v in range(n_vectors)]
        numbers = [code.broadcast(left, build.add(row, column)) for row in rows]
        if _ON_ARM:
            # Nothing, but it needs the index: pointers that step would be read by slower instructions.
            build.asm(ir.FunctionType(ir.VoidType(), [INT]), "", "r", [c], side_effect=True)
        return [lambda s, i=i, v=v: code.fma(numbers[i], vectors[v], s) for i, v in cells]

    found = code.sums(count, 1, [code.load(out, place) for place in places], terms)
    for value, place in zip(found, places, strict=True):
        code.store(value, out, place)


def _scaled(
    code: Code, x: Any, at: Any, step: Any, means: Any, mean_at: Any, scales: Any, scale_at: Any,
    count: Any, n_vectors: int,
) -> list[Any]:  # fmt: skip
    """Return Σ_c (scale[c] (x[c, n] − mean[c]))² for some vectors of rows n."""
    build = code.builder

    def terms(c: Any) -> list[Callable[[Any], Any]]:
        mean = code.broadcast(means, build.add(mean_at, c))
        scale = code.broadcast(scales, build.add(scale_at, c))
        row = build.add(at, build.mul(c, step))
        white = [
            build.fmul(scale, build.fsub(code.load(x, code.plus(row, v * LANES)), mean))
            for v in range(n_vectors)
        ]
        return [lambda s, z=z: code.fma(z, z, s) for z in white]

    found: list[Any] = code.sums(count, 1, [_repeat(0.0)] * n_vectors, terms)
    return found


def _projected(
    code: Code, matrix: Any, at: Any, x: Any, x_at: Any, x_step: Any, count: Any, n_vectors: int
) -> list[Any]:
    """Return Σ_i (Σ_c matrix[c, i] x[c, n])² over ROWS values of i, for some vectors of rows n."""
    build, cells = code.builder, [(i, v) for i in range(ROWS) for v in range(n_vectors)]

    def terms(c: Any) -> list[Callable[[Any], Any]]:
        row = build.add(x_at, build.mul(c, x_step))
        column = build.add(at, build.mul(c, c.type(ROWS)))
        vectors = [code.load(x, code.plus(row, v * LANES)) for v in range(n_vectors)]
        numbers = [code.broadcast(matrix, code.plus(column, i)) for i in range(ROWS)]
        return [lambda s, i=i, v=v: code.fma(numbers[i], vectors[v], s) for i, v in cells]

    found = code.sums(count, 1, [_repeat(0.0)] * len(cells), terms)
    squares = [_repeat(0.0)] * n_vectors
    for value, (_, v) in zip(found, cells, strict=True):
        squares[v] = code.fma(value, value, squares[v])
    return squares


def _gather_rows(
    code: Code, data: Any, places: Any, at: Any, step: Any, scale: Any, shift: Any, limit: Any, out: Any,
    out_step: Any, n_features: Any,
) -> None:  # fmt: skip
    """Write LANES rows that begin at places[at:] into out (M, n), as x · scale − shift within ± limit."""
    build = code.builder
    rows = [build.load(build.gep(places, [code.plus(at, lane)])) for lane in range(LANES)]
    high = code.splat(limit)
    low = build.fneg(high)
    with code.steps(n_features, 1) as j:
        away = build.mul(j, step)
        x = code.gather(data, [build.add(row, away) for row in rows])
        x = build.fsub(build.fmul(x, code.broadcast(scale, j)), code.broadcast(shift, j))
        code.store(code.smaller(code.larger(x, low), high), out, build.add(at, build.mul(j, out_step)))


def _transpose(code: Code, x: Any, at: Any, step: Any, out: Any, out_at: Any, out_step: Any) -> None:
    """Write LANES vectors of x, `step` apart, as columns into `out`."""
    build, n = code.builder, step.type
    vectors = [code.load(x, build.add(at, build.mul(step, n(i)))) for i in range(LANES)]
    for i, vector in enumerate(code.transposed(vectors)):
        code.store(vector, out, build.add(out_at, build.mul(out_step, n(i))))


def _any_above(code: Code, value: Any, limit: Any) -> Any:
    build, bits = code.builder, ir.IntType(LANES)
    mask = build.bitcast(build.fcmp_ordered(">", value, code.splat(limit)), bits)
    return build.icmp_unsigned("!=", mask, bits(0))


load = _generated(Code.load)
store = _generated(lambda code, data, index, value: code.store(value, data, index))
splat = _generated(Code.splat)
add = _generated(lambda code, a, b: code.builder.fadd(a, b))
subtract = _generated(lambda code, a, b: code.builder.fsub(a, b))
multiply = _generated(lambda code, a, b: code.builder.fmul(a, b))
divide = _generated(lambda code, a, b: code.builder.fdiv(a, b))
fma = _generated(Code.fma)
where_larger = _generated(Code.where_larger)
larger = _generated(Code.larger)
smaller = _generated(Code.smaller)
exp = _generated(Code.exp)
log = _generated(Code.log)
total = _generated(Code.total)
largest = _generated(Code.largest)
head = _generated(Code.head)
any_above = _generated(_any_above)
gather_rows = _generated(_gather_rows)
transpose = _generated(_transpose)
add_products = _generated(_add_products, literals=2)
scaled = _generated(_scaled, literals=1)
projected = _generated(_projected, literals=1)


def _advance(code: Code, counter: Any, count: Any) -> Any:
    """Return the next number of a counter that threads share, and advance it by `count`."""
    return code.builder.atomic_rmw("add", counter, count, "monotonic")


take_numbers = _generated(_advance)
# The bits of a number as an integer, and the reverse.
bits = _generated(lambda code, x: code.builder.bitcast(x, INT))
of_bits = _generated(lambda code, x: code.builder.bitcast(x, FLOAT))


def _call(
    code: Code, address: Any, x: Any, at: Any, step: Any, n_rows: Any, a: Any, a_at: Any, b: Any, b_at: Any,
    out: Any, out_at: Any,
) -> None:  # fmt: skip
    arguments = [x, at, step, n_rows, a, a_at, b, b_at, out, out_at]
    kind = ir.FunctionType(ir.VoidType(), [each.type for each in arguments])
    code.builder.call(code.builder.inttoptr(address, kind.as_pointer()), arguments)


call = _generated(_call)


def unrolled(n_features: int) -> tuple[int, int]:
    """Return the addresses of `_add_distances` and `_add_moments` for that many features, which `call` takes.

    The code around them is large: it is compiled once, for any number of features. Zeros if that is zero.
    """
    return _unrolled(n_features) if n_features else (0, 0)


@lru_cache
def _unrolled(n_features: int) -> tuple[int, int]:
    numbers = FLOAT.as_pointer()
    kinds = [numbers, INT, INT, INT, numbers, INT, numbers, INT, numbers, INT]

    def compiled(emit: Callable[..., None]) -> int:
        def build(module: ir.Module, symbol: str) -> None:
            with defined(module, symbol, kinds) as (builder, arguments):
                emit(Code(builder), *arguments, n_features)

        return machine_code(f"{emit.__name__} {n_features}", __file__, build)

    return compiled(_add_distances), compiled(_add_moments)
