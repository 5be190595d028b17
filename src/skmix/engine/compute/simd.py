"""Vectors of float64 in compiled code.

Numba compiles loops over arrays well, but leaves the width of vectors and the use of registers to heuristics.
Here both are explicit: a vector has as many lanes as the widest registers of the processor, and the loops
over a few features or kernels are unrolled while instructions are generated. All functions work inside
``numba.njit``; arrays are one-dimensional float64, and places in them are indices of their first lane.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, misc"

from __future__ import annotations

import contextlib
import hashlib
import math
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from inspect import Parameter, Signature, signature
from itertools import pairwise
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import cfunc, njit
from numba.core import cgutils, types
from numba.core.caching import FunctionCache
from numba.extending import intrinsic, models, register_model

from .arrays import FARTHEST_SQUARED

LANES = 8 if llvm.get_host_cpu_features().get("avx512f") else 4
# Sums of LANES kernels or features times two vectors fit into the registers.
ROWS = LANES
_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_INTEGERS = ir.VectorType(ir.IntType(64), LANES)
_INDEX = ir.IntType(32)
# Exponentials below e^-460 = 1e-200 are zero: subnormal numbers would be slow, and nothing needs them.
_LOWEST = -460.0
# The first digits of log 2, so that small multiples are exact.
_LOG_2 = 6.93145751953125e-1
# The rest of log 2.
_LOG_2_REST = 1.42860682030941723212e-6
# Adding 1.5 · 2^52 rounds to an integer, which is then in the lowest bits.
_ROUND = 6755399441055744.0

# Files whose functions and constants become part of compiled code.
SOURCES = (
    "compute/arrays.py",
    "compute/matrices.py",
    "compute/simd.py",
    "estep/clusters.py",
    "estep/compiled.py",
    "estep/nearby.py",
)

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


@lru_cache
def _version() -> str:
    """Return a digest of all code that may be part of a compiled function."""
    folder = Path(__file__).parents[1]
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in SOURCES)).hexdigest()[:12]


def jit(function: Any) -> Any:
    """Compile a function when Python first calls it, and cache the code where that is possible."""
    return _cached(lambda **more: njit(**_OPTIONS | more), function)


def inner(function: Any) -> Any:
    """Compile a function that only compiled functions call: its code is a part of theirs."""
    return njit(**_OPTIONS | {"no_cpython_wrapper": True})(function)


def _cached(compile: Callable[..., Any], function: Any) -> Any:
    """Compile a function and cache the code. Whatever is wrong with the cache, the function works."""
    # Numba notices changes of the function's own file, not of those whose code becomes part of it.
    function.__qualname__ += f"_{_version()}"
    try:
        made = compile(cache=True)(function)
    # No folder can be written, the disk is full or a file is damaged. A damaged file may raise any exception.
    except Exception:
        with contextlib.suppress(Exception):
            _empty(FunctionCache(function))
        return compile()(function)
    # Some functions are compiled, read and written only when they are first called. There is no cache if the
    # user has turned compilation off.
    cache = getattr(made, "_cache", None)
    if cache is not None:
        read, write = cache.load_overload, cache.save_overload

        def load(*given: Any) -> Any:
            try:
                return read(*given)
            except Exception:
                _empty(cache)
                return None

        def save(*given: Any) -> None:
            with contextlib.suppress(OSError):
                write(*given)

        cache.load_overload, cache.save_overload = load, save
    return made


def _empty(cache: Any) -> None:
    """Empty a cache with a damaged file, so that it is written again; disable it if that fails."""
    try:
        cache.flush()
    except OSError:
        cache.disable()


def _exp_coefficients() -> list[float]:
    """Return those of (eˣ − 1 − x) / x² for |x| ≤ ½ log 2, interpolated at Chebyshev's points."""
    half = 0.5 * math.log(2.0)
    points = np.polynomial.chebyshev.chebpts1(10)
    values = sum((half * points) ** n / math.factorial(n + 2) for n in range(16))
    found = np.polynomial.chebyshev.cheb2poly(np.polynomial.chebyshev.chebfit(points, values, 9))
    return [float(c) for c in found / half ** np.arange(10)]


_EXP = _exp_coefficients()


class VectorType(types.Type):
    """Numba's type of a vector."""

    def __init__(self) -> None:
        super().__init__(name=f"Vector{LANES}")


vector = VectorType()


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, fe_type: Any) -> None:
        super().__init__(manager, fe_type, _VECTOR)


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
        found = self.builder.load(self._pointer(data, index))
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
        self.builder.store(value, self._pointer(data, index)).align = 8

    def _pointer(self, data: Any, index: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(data, [index]), _VECTOR.as_pointer())

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
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        name = f"llvm.fma.v{LANES}f64"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), [a, b, c])

    def larger(self, a: Any, b: Any) -> Any:
        """Return the larger of two vectors, lane by lane."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

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

    def sums(
        self, count: Any, step: int, starts: Sequence[Any], terms: Callable[[Any], Sequence[Any]]
    ) -> Any:
        """Return sums in a loop over 0, step, … < count; ``terms(i)`` returns functions from sum to sum."""
        kind = count.type
        totals = [cgutils.alloca_once(self.builder, _VECTOR) for _ in starts]
        for start, total in zip(starts, totals, strict=True):
            self.builder.store(start, total)
        with cgutils.for_range_slice(self.builder, kind(0), count, kind(step), kind) as (i, _):
            for term, total in zip(terms(i), totals, strict=True):
                self.builder.store(term(self.builder.load(total)), total)
        return [self.builder.load(total) for total in totals]


def _generated(result: Any, emit: Callable[..., Any], literals: int = 0) -> Any:
    """Return a function for compiled code whose instructions ``emit(code, *arguments)`` generates.

    Arrays are passed to `emit` as pointers to their data; the last `literals` arguments must be constants and
    are passed as Python numbers, to decide what is generated.
    """
    n_arguments = len(signature(emit).parameters) - 1

    def declare(typing: Any, *kinds: Any) -> Any:
        numbers = [kind.literal_value for kind in kinds[n_arguments - literals :]]
        expected = [
            types.intp if isinstance(kind, types.Integer) and i < n_arguments - literals else kind
            for i, kind in enumerate(kinds)
        ]

        def generate(context: Any, builder: Any, typed: Any, arguments: Any) -> Any:
            given = list(arguments)
            for i, kind in enumerate(typed.args):
                if isinstance(kind, types.Array):
                    given[i] = context.make_array(kind)(context, builder, given[i]).data
            found = emit(Code(builder), *given[: n_arguments - literals], *numbers)
            if isinstance(found, list):
                return context.make_tuple(builder, typed.return_type, found)
            return context.get_dummy_value() if found is None else found

        kind = result(*numbers) if callable(result) and not isinstance(result, types.Type) else result
        return kind(*expected), generate

    names = ["typing", *(f"argument{i}" for i in range(n_arguments))]
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    vars(declare)["__signature__"] = Signature(parameters)  # Numba asks for the number of arguments
    return intrinsic(prefer_literal=bool(literals))(declare)


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
    build, kind = code.builder, n_rows.type
    with cgutils.for_range_slice(build, kind(0), n_rows, kind(LANES), kind) as (r, _):
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
    with cgutils.for_range(build, n_features) as loop:
        j, away = loop.index, build.mul(loop.index, step)
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


load = _generated(vector, Code.load)
store = _generated(types.void, lambda code, data, index, value: code.store(value, data, index))
splat = _generated(vector, Code.splat)
add = _generated(vector, lambda code, a, b: code.builder.fadd(a, b))
subtract = _generated(vector, lambda code, a, b: code.builder.fsub(a, b))
multiply = _generated(vector, lambda code, a, b: code.builder.fmul(a, b))
divide = _generated(vector, lambda code, a, b: code.builder.fdiv(a, b))
fma = _generated(vector, Code.fma)
larger = _generated(vector, Code.larger)
smaller = _generated(vector, Code.smaller)
exp = _generated(vector, Code.exp)
log = _generated(vector, Code.log)
total = _generated(types.float64, Code.total)
largest = _generated(types.float64, Code.largest)
head = _generated(vector, Code.head)
any_above = _generated(types.boolean, _any_above)
gather_rows = _generated(types.void, _gather_rows)
transpose = _generated(types.void, _transpose)
add_distances = _generated(types.void, _add_distances, literals=1)
add_moments = _generated(types.void, _add_moments, literals=1)
add_products = _generated(types.void, _add_products, literals=2)
scaled = _generated(lambda n: types.UniTuple(vector, n), _scaled, literals=1)
projected = _generated(lambda n: types.UniTuple(vector, n), _projected, literals=1)


def _advance(code: Code, counter: Any, count: Any) -> Any:
    """Return the next number of a counter that threads share, and advance it by `count`."""
    return code.builder.atomic_rmw("add", counter, count, "monotonic")


take_numbers = _generated(types.int64, _advance)


def _call(
    code: Code, address: Any, x: Any, at: Any, step: Any, n_rows: Any, a: Any, a_at: Any, b: Any, b_at: Any,
    out: Any, out_at: Any,
) -> None:  # fmt: skip
    arguments = [x, at, step, n_rows, a, a_at, b, b_at, out, out_at]
    kind = ir.FunctionType(ir.VoidType(), [each.type for each in arguments])
    code.builder.call(code.builder.inttoptr(address, kind.as_pointer()), arguments)


call = _generated(types.void, _call)
_NUMBERS = types.CPointer(types.float64)
_PLACE = types.intp
_CALLED = types.void(
    _NUMBERS, _PLACE, _PLACE, _PLACE, _NUMBERS, _PLACE, _NUMBERS, _PLACE, _NUMBERS, _PLACE
)  # fmt: skip


def unrolled(n_features: int) -> tuple[int, int]:
    """Return the addresses of `add_distances` and `add_moments` for that many features, which `call` takes.

    The code around them is large: it is compiled once, for any number of features. Zeros if that is zero.
    """
    if not n_features:
        return 0, 0
    distances, moments = _unrolled(n_features)
    return distances.address, moments.address


@lru_cache
def _unrolled(n_features: int) -> list[Any]:
    """Compile both functions, each with a file of its own in the cache.

    Two processes that write into one file at the same time could each leave the other's code there.
    """

    def distances(x, at, step, n_rows, means, mean_at, whitener, whitener_at, out, out_at):
        add_distances(x, at, step, n_rows, means, mean_at, whitener, whitener_at, out, out_at, n_features)

    def moments(x, at, step, n_rows, weights, weights_at, origins, origin_at, out, out_at):
        add_moments(x, at, step, n_rows, weights, weights_at, origins, origin_at, out, out_at, n_features)

    for function in (distances, moments):
        function.__qualname__ += f"_{n_features}"
    return [_cached(partial(cfunc, _CALLED), function) for function in (distances, moments)]
