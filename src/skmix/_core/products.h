// Products of matrices, in blocks that fit into the registers.
#pragma once

#include "common.h"

namespace SKMIX_ISA {

template <int N>
using Const = std::integral_constant<int, N>;

// out[i, j] += sum over c of left[i, c] right[c, j], for A values of i and B vectors of j.
template <int A, int B>
SKMIX_INLINE void add_products(const double* left, int64_t left_row, int64_t left_step, const double* right,
                               int64_t right_step, int64_t count, double* out, int64_t out_row) {
    V sums[A][B];
    SKMIX_UNROLL
    for (int i = 0; i < A; ++i) {
        SKMIX_UNROLL
        for (int v = 0; v < B; ++v) sums[i][v] = load(out + i * out_row + v * LANES);
    }
    _Pragma("GCC unroll 4") for (int64_t c = 0; c < count; ++c) {
        V vectors[B];
        SKMIX_UNROLL
        for (int v = 0; v < B; ++v) vectors[v] = load(right + c * right_step + v * LANES);
        SKMIX_UNROLL
        for (int i = 0; i < A; ++i) {
            const V number = splat(left[i * left_row + c * left_step]);
            SKMIX_UNROLL
            for (int v = 0; v < B; ++v) sums[i][v] = fma(number, vectors[v], sums[i][v]);
        }
    }
    SKMIX_UNROLL
    for (int i = 0; i < A; ++i) {
        SKMIX_UNROLL
        for (int v = 0; v < B; ++v) store(out + i * out_row + v * LANES, sums[i][v]);
    }
}

// sums (n_rows, width) += left (n_rows, depth) right (depth, width).
inline void multiply(const double* left, int64_t depth, const double* right, int64_t width, double* sums,
                     int64_t n_rows) {
    const auto multiply_rows = [&](auto height, auto n_vectors, int64_t k) {
        for (int64_t j = 0; j < width; j += n_vectors * LANES) {
            add_products<height, n_vectors>(left + k * depth, depth, 1, right + j, width, depth, sums + k * width + j,
                                            width);
        }
    };
    int64_t k = 0;
    for (; k + ROWS <= n_rows; k += ROWS) multiply_rows(Const<ROWS>(), Const<2>(), k);
    for (; k + 2 <= n_rows; k += 2) multiply_rows(Const<2>(), Const<4>(), k);
    if (k < n_rows) multiply_rows(Const<1>(), Const<4>(), k);
}

// sums[i, j] += the product of rows of left (A, step) and right (B, step), over n columns.
template <int A, int B>
SKMIX_INLINE void add_dots(const double* left, const double* right, int64_t step, int64_t n, double* sums,
                           int64_t width) {
    V parts[A][B] = {};
    for (int64_t r = 0; r < n; r += LANES) {
        V columns[B];
        SKMIX_UNROLL
        for (int j = 0; j < B; ++j) columns[j] = load(right + j * step + r);
        SKMIX_UNROLL
        for (int i = 0; i < A; ++i) {
            const V row = load(left + i * step + r);
            SKMIX_UNROLL
            for (int j = 0; j < B; ++j) parts[i][j] = fma(row, columns[j], parts[i][j]);
        }
    }
    for (int i = 0; i < A; ++i) {
        for (int j = 0; j < B; ++j) sums[i * width + j] += total(parts[i][j]);
    }
}

// sums (n_left, n_right) += left (n_left, step) right', over the first n columns.
inline void multiply_transposed(const double* left, int64_t n_left, const double* right, int64_t n_right, int64_t step,
                                int64_t n, double* sums) {
    const auto multiply_rows = [&](auto height, int64_t i) {
        const double* row = left + i * step;
        double* to = sums + i * n_right;
        int64_t j = 0;
        for (; j + 4 <= n_right; j += 4) add_dots<height, 4>(row, right + j * step, step, n, to + j, n_right);
        for (; j + 2 <= n_right; j += 2) add_dots<height, 2>(row, right + j * step, step, n, to + j, n_right);
        if (j < n_right) add_dots<height, 1>(row, right + j * step, step, n, to + j, n_right);
    };
    int64_t i = 0;
    for (; i + 4 <= n_left; i += 4) multiply_rows(Const<4>(), i);
    for (; i + 2 <= n_left; i += 2) multiply_rows(Const<2>(), i);
    if (i < n_left) multiply_rows(Const<1>(), i);
}

}  // namespace SKMIX_ISA
