// Vectors of float64, and the exponential and logarithm of their lanes.
//
// This header is compiled once for each instruction set. SKMIX_ISA names the namespace, the compiler's flags say
// which instructions there are. Multiplications and additions are fused only where the code says fma: with
// -ffp-contract=off a result does not depend on the compiler.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define SKMIX_INLINE inline __attribute__((always_inline))
#define SKMIX_UNROLL _Pragma("GCC unroll 32")

namespace SKMIX_ISA {

#if defined(__AVX512F__)
constexpr int LANES = 8;
#elif defined(__AVX2__)
constexpr int LANES = 4;
#else
constexpr int LANES = 2;
#endif
// Rows of a register block of products: ROWS x 2 vectors of sums fit into the registers.
constexpr int ROWS = LANES < 4 ? 4 : LANES;

using V = double __attribute__((vector_size(8 * LANES)));
using I = int64_t __attribute__((vector_size(8 * LANES)));

SKMIX_INLINE V load(const double* from) {
    V value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

SKMIX_INLINE void store(double* to, V value) { std::memcpy(to, &value, sizeof value); }

// Written out: a loop over the lanes, or V{} + x, would be more than one instruction.
SKMIX_INLINE V splat(double x) {
#if defined(__AVX512F__)
    return V{x, x, x, x, x, x, x, x};
#elif defined(__AVX2__)
    return V{x, x, x, x};
#else
    return V{x, x};
#endif
}

SKMIX_INLINE I splat(int64_t x) { return I{} + x; }

// a * b + c, rounded once where the processor can.
SKMIX_INLINE V fma(V a, V b, V c) {
#if defined(__AVX512F__)
    return (V)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__AVX2__)
    return (V)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(__aarch64__)
    return (V)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#else
    return a * b + c;
#endif
}

// The larger and the smaller of two numbers in each lane; b where one of them is NaN.
#if defined(__AVX512F__)
// With a mask of all lanes: GCC 12 warns of the functions without one.
SKMIX_INLINE V larger(V a, V b) { return (V)_mm512_maskz_max_pd(0xFF, (__m512d)a, (__m512d)b); }
SKMIX_INLINE V smaller(V a, V b) { return (V)_mm512_maskz_min_pd(0xFF, (__m512d)a, (__m512d)b); }
#elif defined(__AVX2__)
SKMIX_INLINE V larger(V a, V b) { return (V)_mm256_max_pd((__m256d)a, (__m256d)b); }
SKMIX_INLINE V smaller(V a, V b) { return (V)_mm256_min_pd((__m256d)a, (__m256d)b); }
#else
SKMIX_INLINE V larger(V a, V b) { return a > b ? a : b; }
SKMIX_INLINE V smaller(V a, V b) { return a < b ? a : b; }
#endif

SKMIX_INLINE double largest(V value) {
    double highest = value[0];
    for (int i = 1; i < LANES; ++i) highest = value[i] > highest ? value[i] : highest;
    return highest;
}

// The even runs of WIDTH lanes of a and of b in turn, and the odd runs.
template <int WIDTH, int... N>
SKMIX_INLINE void exchange(V& a, V& b, std::integer_sequence<int, N...>) {
    const V even = __builtin_shufflevector(a, b, (N & WIDTH ? N - WIDTH + LANES : N)...);
    b = __builtin_shufflevector(a, b, (N & WIDTH ? N + LANES : N + WIDTH)...);
    a = even;
}
template <int WIDTH>
SKMIX_INLINE void exchange(V& a, V& b) {
    exchange<WIDTH>(a, b, std::make_integer_sequence<int, LANES>());
}

// The sum of the lanes, added in halves.
template <int WIDTH = LANES / 2>
SKMIX_INLINE double total(V value) {
    V other = value;
    exchange<WIDTH>(value, other);
    value = value + other;
    if constexpr (WIDTH > 1) return total<WIDTH / 2>(value);
    return value[0];
}

// The columns of a square of LANES vectors, in place.
template <int WIDTH = LANES / 2>
SKMIX_INLINE void transpose(V (&square)[LANES]) {
    SKMIX_UNROLL
    for (int i = 0; i < LANES; ++i) {
        if ((i & WIDTH) == 0) exchange<WIDTH>(square[i], square[i + WIDTH]);
    }
    if constexpr (WIDTH > 1) transpose<WIDTH / 2>(square);
}

// The sums of the lanes of LANES vectors, one in each lane.
template <int WIDTH = LANES / 2>
SKMIX_INLINE V totals(V (&vectors)[LANES]) {
    // Sums of the first vector in even runs of WIDTH lanes, of the second in odd ones.
    SKMIX_UNROLL
    for (int i = 0; i < WIDTH; ++i) {
        exchange<WIDTH>(vectors[i], vectors[i + WIDTH]);
        vectors[i] = vectors[i] + vectors[i + WIDTH];
    }
    if constexpr (WIDTH > 1) {
        return totals<WIDTH / 2>(vectors);
    } else {
        return vectors[0];
    }
}

// The first `count` numbers, 1 ... LANES; nothing beyond them is read. The other lanes are zero.
SKMIX_INLINE V load_head(const double* from, int64_t count) {
#if defined(__AVX512F__)
    return (V)_mm512_maskz_loadu_pd(static_cast<__mmask8>(0xFF >> (LANES - count)), from);
#elif defined(__AVX2__)
    return (V)_mm256_maskload_pd(from, I{0, 1, 2, 3} < splat(count));
#else
    return count == LANES ? load(from) : V{*from, 0.0};
#endif
}

// A vector whose lanes from `count` on are zero.
SKMIX_INLINE V head(V value, int64_t count) {
    I lane;
    for (int i = 0; i < LANES; ++i) lane[i] = i;
    return lane < splat(count) ? value : V{};
}

// Exponentials below e^-460 = 1e-200 are zero: subnormal numbers would be slow, and nothing needs them.
constexpr double LOWEST = -460.0;
constexpr double ONE_OVER_LOG_2 = 1.4426950408889634;
// The first digits of log 2, so that small multiples are exact; and the rest.
constexpr double LOG_2 = 6.93145751953125e-1;
constexpr double LOG_2_REST = 1.42860682030941723212e-6;
// Adding 1.5 * 2^52 rounds to an integer, which is then in the lowest bits.
constexpr double ROUND = 6755399441055744.0;
// (e^x - 1 - x) / x^2 for |x| <= log(2) / 2, interpolated at Chebyshev's points.
constexpr double EXP[10] = {0.5,
                            0.16666666666666502,
                            0.041666666666628736,
                            0.00833333333337077,
                            0.001388888891498405,
                            0.00019841269895212399,
                            2.4801524308787567e-05,
                            2.7557153561235333e-06,
                            2.7618815194452316e-07,
                            2.515642726194099e-08};

// e^x for x <= 0, to the last bit or two; zero below 1e-200, NaN for NaN.
SKMIX_INLINE V exp(V x) {
    const auto tiny = x < splat(LOWEST);
    x = larger(splat(LOWEST), x);
    const V shifted = fma(x, splat(ONE_OVER_LOG_2), splat(ROUND));
    const V power = shifted - splat(ROUND);
    V rest = fma(power, splat(-LOG_2), x);
    rest = fma(power, splat(-LOG_2_REST), rest);
    // Even and odd powers apart: each operation waits for fewer others.
    const V square = rest * rest;
    V even = splat(EXP[8]), odd = splat(EXP[9]);
    SKMIX_UNROLL
    for (int n = 6; n >= 0; n -= 2) {
        even = fma(even, square, splat(EXP[n]));
        odd = fma(odd, square, splat(EXP[n + 1]));
    }
    V value = fma(fma(odd, rest, even), square, rest) + splat(1.0);
    value = (V)((I)value + ((I)shifted << 52));
    return tiny ? V{} : value;
}

// The logarithm of positive, normal numbers, to the last bit or two.
SKMIX_INLINE V log(V x) {
    constexpr int64_t ROOT_HALF = 0x3FE6A09E667F3BCD;  // the bits of sqrt(1/2)
    const I integers = (I)x;
    const I power = (integers - splat(ROOT_HALF)) >> 52;
    // x = 2^power * mantissa, with a mantissa around 1: log = 2 artanh((mantissa - 1) / (mantissa + 1)).
    const V mantissa = (V)(integers - (power << 52));
    const V s = (mantissa - splat(1.0)) / (mantissa + splat(1.0));
    const V square = s * s;
    V series = splat(2.0 / 23);
    SKMIX_UNROLL
    for (int n = 21; n > 2; n -= 2) series = fma(series, square, splat(2.0 / n));
    const V value = fma(series * square, s, s + s);
    const V count = __builtin_convertvector(power, V);
    return fma(count, splat(LOG_2), fma(count, splat(LOG_2_REST), value));
}

}  // namespace SKMIX_ISA
