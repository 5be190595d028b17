// Passes over rows: the E-step, log-densities, and the assignments of k-means.
//
// Rows are taken in tiles, feature by feature, so that a vector holds one feature of several rows. Differences from
// a kernel's mean are taken first and whitened afterwards, so that digits are kept wherever a kernel lies and
// however narrow it is; second moments are about the origins that are given, for the same reason. Diagonal,
// spherical and tied kernels near zero need no such care: their log-densities and moments are products of matrices,
// for all kernels at once. The rows of a tile are ordered by class, so that a kernel can skip the rows of classes
// in which its weight is zero.
//
// Work is split into tasks by the sizes of the problem, never by the number of threads, and the sums of tasks are
// added in order.

#include <array>
#include <utility>

#include "common.h"
#include "products.h"

namespace SKMIX_ISA {
namespace {

using skmix::Form;
using skmix::Kernels;
using skmix::Rows;
using skmix::Sums;

// Squared distances are at most this, so that log-densities stay finite.
constexpr double FARTHEST_SQUARED = 1e300;
// Up to this many features, loops over them are unrolled, in functions compiled for each number.
constexpr int UNROLLED = 16;
// Log-densities of a tile.
constexpr int64_t TILE_NUMBERS = 1 << 14;
// Most rows of a tile where loops over features are unrolled, and where they are not.
constexpr int64_t LARGEST_TILE = 1024, LARGEST_BY_ROW = 160;
// A tile has a multiple of this many rows.
constexpr int64_t SMALLEST_TILE = 4 * LANES;
// Most blocks of rows, fewest rows of a block, and most numbers in the sums of all blocks of a start.
constexpr int64_t MOST_BLOCKS = 256, SMALLEST_BLOCK = 2048, MOST_SUMS = 1 << 24;
// Starts of a task, which share the rows of a tile.
constexpr int64_t STARTS_OF_TASK = 4;
// Responsibilities below this share of a kernel's largest in a tile do not change its moments.
constexpr double NEGLIGIBLE_SHARE = 1e-22;
// A mixture's density below this, relative to the row's nearest kernel, has lost digits to underflow.
constexpr double LEAST_SUM = 1e-150;

// ---------------------------------------------------------------- few features: loops are unrolled

using Distances = void (*)(const double* x, int64_t tile, int64_t n, const double* mean, const double* whitener,
                           const double* base, double* out);
using Moments = void (*)(const double* x, int64_t tile, int64_t n, const double* weights, const double* origin,
                         double* out);

// -1/2 times the squared distances of a vector of rows, with the whitener's M (M + 1) / 2 numbers.
template <int M>
SKMIX_INLINE V half_distances(const double* x, int64_t tile, const double* mean, const double* whitener) {
    V ahead[M];
    SKMIX_UNROLL
    for (int j = 0; j < M; ++j) ahead[j] = load(x + j * tile) - splat(mean[j]);
    V length{};
    SKMIX_UNROLL
    for (int i = 0; i < M; ++i) {
        const double* row = whitener + i * (i + 1) / 2;
        V white = splat(row[0]) * ahead[0];
        SKMIX_UNROLL
        for (int j = 1; j <= i; ++j) white = fma(splat(row[j]), ahead[j], white);
        length = fma(white, white, length);
    }
    return splat(-0.5) * smaller(splat(FARTHEST_SQUARED), length);
}

// Write -1/2 times the squared distances of rows x (M, n), plus one number, or plus those in out (n,) without it.
template <int M>
void write_distances(const double* x, int64_t tile, int64_t n, const double* mean, const double* whitener,
                     const double* base, double* out) {
    if (base != nullptr) {
        const V number = splat(*base);
        for (int64_t r = 0; r < n; r += LANES) {
            store(out + r, number + half_distances<M>(x + r, tile, mean, whitener));
        }
    } else {
        for (int64_t r = 0; r < n; r += LANES) {
            store(out + r, load(out + r) + half_distances<M>(x + r, tile, mean, whitener));
        }
    }
}

// Place of a moment of kernels with M features: first ones, then second ones row by row of the lower triangle.
constexpr int moment(int m, int i, int j) { return m + i * (i + 1) / 2 + j; }

// Add weighted sums of products of features a ... a + A - 1 with features b ... b + B - 1 that do not follow them.
// In a square, a is b: the sums of the features are added too.
template <int M, int A, int B, bool SQUARE>
SKMIX_INLINE void add_part(const double* x, int64_t tile, int64_t n, const double* weights, const double* origin,
                           double* out, int a, int b) {
    constexpr int SIZE = SQUARE ? A * (A + 3) / 2 : A * B;
    constexpr int WHOLE = (SIZE + LANES - 1) / LANES * LANES;
    V sums[WHOLE] = {};
    for (int64_t r = 0; r < n; r += LANES) {
        const V weight = load(weights + r);
        V rows[A], columns[B];
        SKMIX_UNROLL
        for (int j = 0; j < B; ++j) columns[j] = load(x + (b + j) * tile + r) - splat(origin[b + j]);
        SKMIX_UNROLL
        for (int i = 0; i < A; ++i) {
            const V ahead = SQUARE ? columns[i] : load(x + (a + i) * tile + r) - splat(origin[a + i]);
            rows[i] = weight * ahead;
        }
        int place = 0;
        SKMIX_UNROLL
        for (int i = 0; i < A; ++i) {
            SKMIX_UNROLL
            for (int j = 0; j < (SQUARE ? i + 1 : B); ++j, ++place) sums[place] = fma(rows[i], columns[j], sums[place]);
            if constexpr (SQUARE) {
                sums[place] = sums[place] + rows[i];
                ++place;
            }
        }
    }
    double numbers[WHOLE];
    SKMIX_UNROLL
    for (int v = 0; v < WHOLE; v += LANES) {
        V vectors[LANES];
        SKMIX_UNROLL
        for (int i = 0; i < LANES; ++i) vectors[i] = sums[v + i];
        store(numbers + v, totals(vectors));
    }
    const double* from = numbers;
    for (int i = a; i < a + A; ++i) {
        for (int j = b; j < (SQUARE ? i + 1 : b + B); ++j) out[moment(M, i, j)] += *from++;
        if constexpr (SQUARE) out[i] += *from++;
    }
}

// Add weighted sums of the differences of rows x (M, n) from an origin, and of their products. Features are taken in
// groups, so that the sums of two groups fit into the registers; the first group is the smaller one.
template <int M>
void add_moments(const double* x, int64_t tile, int64_t n, const double* weights, const double* origin, double* out) {
    constexpr int GROUP = M <= 6 ? M : 4, FIRST = (M - 1) % GROUP + 1;
    add_part<M, FIRST, FIRST, true>(x, tile, n, weights, origin, out, 0, 0);
    for (int a = FIRST; a < M; a += GROUP) {
        add_part<M, GROUP, FIRST, false>(x, tile, n, weights, origin, out, a, 0);
        for (int b = FIRST; b < a; b += GROUP) add_part<M, GROUP, GROUP, false>(x, tile, n, weights, origin, out, a, b);
        add_part<M, GROUP, GROUP, true>(x, tile, n, weights, origin, out, a, a);
    }
}

template <int... M>
constexpr std::array<std::pair<Distances, Moments>, sizeof...(M)> unrolled(std::integer_sequence<int, M...>) {
    return {{{write_distances<M + 1>, add_moments<M + 1>}...}};
}
constexpr auto FOR_FEATURES = unrolled(std::make_integer_sequence<int, UNROLLED>());

// ---------------------------------------------------------------- sizes and memory of a job

struct Sizes {
    Form form;
    bool is_tied, is_isotropic, is_t;
    bool is_unrolled;  // whether loops over features are
    int64_t n_rows, n_features, n_starts, n_kernels, n_classes;
    int64_t tile;   // rows of a tile
    int64_t block;  // rows of a task, a multiple of `tile`
    int64_t n_blocks;
    int64_t width;    // numbers of a mean: M, padded unless loops are unrolled
    int64_t white;    // numbers of a whitener, or coefficients of a kernel
    int64_t moments;  // numbers of a kernel's moments
    int64_t step;     // numbers of a row where they are needed row by row: M padded; or zero
    int64_t terms;    // terms of a product: M features, and their squares or the sum of these
};

// The memory of one thread. Arrays that a form does not need are empty.
struct Scratch {
    Numbers x;           // (step, tile): rows, and their squares for products
    Numbers white;       // (terms, tile): rows whitened for all kernels
    Numbers values;      // (K, tile): log-joints, then responsibilities
    Numbers precisions;  // (K, tile): E[u] of t kernels
    Numbers log_ratios;  // (K, tile): log(1 + d^2 / degrees)
    Numbers logs;        // (tile,): log-likelihoods
    Numbers weights;     // (tile,): weights of rows, zero beyond the last
    Numbers joints;      // (K, LANES): densities of a vector of rows, relative to the largest
    Numbers few;         // (M, 2 LANES): differences of two vectors of rows
    Numbers by_row;      // (tile, step): rows
    Numbers roots;       // (tile + 1,): roots of a kernel's responsibilities
    Numbers ahead;       // (tile, width): differences times these roots
    Numbers masses;      // (C, padded K): sums of responsibilities
    Places order;        // (tile,): the rows by class
    Places places;       // (tile,): where they begin
    Places bounds;       // (C + 1,): first row of each class
    Places present;      // (C,): classes with rows
    Places low, high;    // (K,): rows low ... high - 1 are of classes in which the kernel has a weight
    Places listed;       // (K,): where the values of some kernels begin
    Places index;        // (tile + 1,): rows whose weights are not negligible

    void fit(const Sizes& s) {
        const bool is_product = s.form == Form::products;
        x.resize(std::max({s.step, s.terms, s.n_features}) * s.tile);
        white.resize(is_product && s.is_tied ? s.terms * s.tile : 0);
        values.resize(s.n_kernels * s.tile + LANES);
        precisions.resize(s.is_t ? s.n_kernels * s.tile + LANES : 0);
        log_ratios.resize(precisions.size());
        logs.resize(s.tile + LANES);
        weights.resize(s.tile + LANES);
        joints.resize(s.n_kernels * LANES);
        few.resize(rounded_up(s.n_features, ROWS) * 2 * LANES);
        by_row.resize(s.step * s.tile);
        ahead.resize(by_row.size());
        roots.resize(s.tile + LANES);
        masses.resize(s.n_classes * padded(s.n_kernels));
        order.resize(s.tile);
        places.resize(s.tile);
        bounds.resize(s.n_classes + 1);
        present.resize(s.n_classes);
        low.resize(s.n_kernels);
        high.resize(s.n_kernels);
        listed.resize(s.n_kernels);
        index.resize(s.tile + LANES);
    }
};

// ---------------------------------------------------------------- kernels, packed

// Kernels in the layout of the loops.
struct Packed {
    Sizes sizes;
    Numbers base;      // (R, K, C): log-joints at the means
    Numbers means;     // (R, K, width)
    Numbers whitener;  // (R, K, white); (R, white) of triangular kernels that are tied
    Numbers rotation;  // (R, M, M): whitens the rows for all tied kernels, for products

    Packed(const Rows& rows, const Kernels& kernels) {
        const int64_t m = rows.n_features, k = kernels.n_kernels, r = kernels.n_starts, c = kernels.n_classes;
        const bool is_product = kernels.form == Form::products, is_triangular = kernels.form == Form::triangular;
        const bool is_unrolled = is_triangular && m <= UNROLLED;
        Sizes& s = sizes;
        s = Sizes{};
        s.form = kernels.form;
        s.is_tied = kernels.is_tied;
        s.is_isotropic = kernels.is_isotropic;
        s.is_t = kernels.degrees != nullptr;
        s.is_unrolled = is_unrolled;
        s.n_rows = rows.n_rows;
        s.n_features = m;
        s.n_starts = r;
        s.n_kernels = k;
        s.n_classes = c;
        s.width = is_unrolled || is_product ? m : rounded_up(m, std::max(ROWS, LANES));
        if (is_product) {
            s.terms = kernels.is_tied || kernels.is_isotropic ? m + 1 : 2 * m;
            s.white = s.terms;
            s.moments = kernels.is_tied ? m : s.terms;
        } else if (is_unrolled) {
            s.white = m * (m + 1) / 2;
            s.moments = m + s.white;
        } else {
            s.white = is_triangular ? s.width * s.width : s.width;
            s.moments = s.width * (is_triangular ? 1 + s.width : 2);
        }
        const int64_t largest_tile = is_unrolled ? LARGEST_TILE : LARGEST_BY_ROW;
        const int64_t units = std::max<int64_t>(3, std::min(TILE_NUMBERS / k, largest_tile) / SMALLEST_TILE);
        // Features must not lie a power of two apart: they would compete for the same lines of the cache.
        s.tile = SMALLEST_TILE * (units - 1 + units % 2);
        const int64_t numbers_of_block = c + k * c + s.n_kernels * s.moments;
        const int64_t most_blocks = std::max<int64_t>(2, MOST_SUMS / numbers_of_block);
        const int64_t n_blocks = std::max<int64_t>(1, std::min({MOST_BLOCKS, s.n_rows / SMALLEST_BLOCK, most_blocks}));
        s.block = s.tile * std::max<int64_t>(1, rounded_up(s.n_rows, n_blocks * s.tile) / (n_blocks * s.tile));
        s.n_blocks = std::max<int64_t>(1, rounded_up(s.n_rows, s.block) / s.block);

        means.resize(r * k * s.width);
        for (int64_t i = 0; i < r * k; ++i) {
            std::copy_n(kernels.means + i * m, m, means.begin() + i * s.width);
        }
        base.resize(r * k * c);
        for (int64_t i = 0; i < r * k; ++i) {
            for (int64_t j = 0; j < c; ++j) {
                base[i * c + j] = kernels.constants[i] + kernels.log_weights[i * c + j];
            }
        }
        if (is_product) {
            expand(kernels);
            return;
        }
        const int64_t n_whiteners = r * (kernels.is_tied ? 1 : k);
        whitener.resize(n_whiteners * s.white);
        for (int64_t i = 0; i < n_whiteners; ++i) {
            const double* from = kernels.whiteners + i * (is_triangular ? m * m : m);
            double* to = whitener.data() + i * s.white;
            if (!is_triangular) {
                std::copy_n(from, m, to);
                continue;
            }
            for (int64_t a = 0; a < m; ++a) {
                for (int64_t b = 0; b <= a; ++b) {
                    // In blocks of ROWS rows: a column of ROWS numbers is contiguous.
                    const int64_t place =
                        is_unrolled ? a * (a + 1) / 2 + b : a / ROWS * ROWS * s.width + b * ROWS + a % ROWS;
                    to[place] = from[a * m + b];
                }
            }
        }
    }

    const double* whitener_of(int64_t start, int64_t kernel) const {
        const int64_t place = sizes.is_tied ? start : start * sizes.n_kernels + kernel;
        return whitener.data() + place * sizes.white;
    }

   private:
    // Turn log-densities into products with the terms of a row.
    void expand(const Kernels& kernels) {
        const Sizes& s = sizes;
        const int64_t m = s.n_features;
        whitener.resize(s.n_starts * s.n_kernels * s.terms);
        if (s.is_tied) {
            rotation.assign(kernels.whiteners, kernels.whiteners + s.n_starts * m * m);
        }
        for (int64_t i = 0; i < s.n_starts * s.n_kernels; ++i) {
            const int64_t start = i / s.n_kernels;
            double* mean = means.data() + i * m;
            if (s.is_tied) {
                // In coordinates in which the covariance is the identity.
                const double* rows = kernels.whiteners + start * m * m;
                for (int64_t a = m - 1; a >= 0; --a) {
                    double sum = 0.0;
                    for (int64_t b = 0; b <= a; ++b) sum += rows[a * m + b] * mean[b];
                    mean[a] = sum;
                }
            }
            // -1/2 sum of s^2 (x - mean)^2 = sum of s^2 mean x - 1/2 sum of s^2 x^2 - 1/2 sum of s^2 mean^2
            double* to = whitener.data() + (start * s.n_kernels + i % s.n_kernels) * s.terms;
            double at_zero = 0.0;
            for (int64_t j = 0; j < m; ++j) {
                const double deviation = s.is_tied ? 1.0 : kernels.whiteners[i * m + j];
                const double square = deviation * deviation;
                to[j] = square * mean[j];
                at_zero += square * mean[j] * mean[j];
                if (s.terms == 2 * m || j == 0) to[m + j] = -0.5 * square;
            }
            for (int64_t c = 0; c < s.n_classes; ++c) base[i * s.n_classes + c] -= 0.5 * at_zero;
        }
    }
};

// Set n numbers; up to LANES - 1 numbers beyond them may be set too.
SKMIX_INLINE void fill(double* numbers, int64_t n, double number) {
    const V vector = splat(number);
    for (int64_t i = 0; i < n; i += LANES) store(numbers + i, vector);
}

// ---------------------------------------------------------------- tiles of rows

// Order rows a ... a + n - 1 by class; return how many classes have rows there.
int64_t sort_by_class(const int32_t* codes, int64_t a, int64_t n, int64_t n_classes, Scratch& scratch) {
    Places &order = scratch.order, &bounds = scratch.bounds, &present = scratch.present;
    if (n_classes == 1) {
        for (int64_t i = 0; i < n; ++i) order[i] = a + i;
        bounds[0] = present[0] = 0;
        bounds[1] = n;
        return 1;
    }
    std::fill(bounds.begin(), bounds.end(), 0);
    for (int64_t i = 0; i < n; ++i) ++bounds[codes[a + i] + 1];
    for (int64_t c = 0; c < n_classes; ++c) bounds[c + 1] += bounds[c];
    for (int64_t i = 0; i < n; ++i) order[bounds[codes[a + i]]++] = a + i;
    // Each bound has become the next one.
    for (int64_t c = n_classes; c > 0; --c) bounds[c] = bounds[c - 1];
    bounds[0] = 0;
    int64_t n_present = 0;
    for (int64_t c = 0; c < n_classes; ++c) {
        if (bounds[c] < bounds[c + 1]) present[n_present++] = c;
    }
    return n_present;
}

// Write features j ... of LANES rows into out (M, tile), in the frame.
SKMIX_INLINE void store_in_frame(V value, int64_t j, const Rows& rows, double* out, int64_t tile) {
    value = value * splat(rows.scale[j]) - splat(rows.shift[j]);
    store(out + j * tile, smaller(larger(value, splat(-rows.limit)), splat(rows.limit)));
}

// Write LANES rows that begin at `places` into out (M, tile), in the frame.
template <class T>
SKMIX_INLINE void gather(const T* x, const int64_t* places, const Rows& rows, double* out, int64_t tile) {
    int64_t j = 0;
    if constexpr (std::is_same_v<T, double>) {
        for (; rows.feature_step == 1 && j < rows.n_features; j += LANES) {
            const int64_t count = std::min<int64_t>(LANES, rows.n_features - j);
            V square[LANES];
            SKMIX_UNROLL
            for (int lane = 0; lane < LANES; ++lane) square[lane] = load_head(x + places[lane] + j, count);
            transpose(square);
            for (int64_t v = 0; v < count; ++v) store_in_frame(square[v], j + v, rows, out, tile);
        }
    }
    for (; j < rows.n_features; ++j) {
        const T* feature = x + j * rows.feature_step;
        V value{};
        SKMIX_UNROLL
        for (int lane = 0; lane < LANES; ++lane) value[lane] = static_cast<double>(feature[places[lane]]);
        store_in_frame(value, j, rows, out, tile);
    }
}

// Write the squares of vectors of rows x (terms, tile), or the sums of these, below them.
void add_powers(double* x, const Sizes& s) {
    const int64_t m = s.n_features;
    for (int64_t r = 0; r < s.tile; r += LANES) {
        V length{};
        for (int64_t j = 0; j < m; ++j) {
            const V value = load(x + j * s.tile + r), square = value * value;
            length = length + square;
            if (s.terms == 2 * m) store(x + (m + j) * s.tile + r, square);
        }
        if (s.terms == m + 1) store(x + m * s.tile + r, length);
    }
}

// Write W x, with W (M, M) lower triangular, of rows x (M, tile).
void rotate(const double* x, const double* matrix, const Sizes& s, double* out) {
    const int64_t m = s.n_features;
    for (int64_t i = 0; i < m; ++i) {
        for (int64_t r = 0; r < s.tile; r += 2 * LANES) {
            V one{}, other{};
            for (int64_t j = 0; j <= i; ++j) {
                const V number = splat(matrix[i * m + j]);
                one = fma(number, load(x + j * s.tile + r), one);
                other = fma(number, load(x + j * s.tile + r + LANES), other);
            }
            store(out + i * s.tile + r, one);
            store(out + i * s.tile + r + LANES, other);
        }
    }
}

// Write rows a ... a + n - 1 into x (M, tile), by class, and into by_row (tile, step).
int64_t gather_tile(const Rows& rows, int64_t a, int64_t n, const Sizes& s, Scratch& scratch) {
    const int64_t n_present = sort_by_class(rows.codes, a, n, s.n_classes, scratch);
    Places& places = scratch.places;
    for (int64_t i = 0; i < n; ++i) places[i] = scratch.order[i] * rows.row_step;
    // Lanes beyond the last row repeat it.
    std::fill(places.begin() + n, places.begin() + padded(n), places[n - 1]);
    for (int64_t i = 0; i < n; i += LANES) {
        double* to = scratch.x.data() + i;
        if (rows.is_single) {
            gather(static_cast<const float*>(rows.x), &places[i], rows, to, s.tile);
        } else {
            gather(static_cast<const double*>(rows.x), &places[i], rows, to, s.tile);
        }
    }
    if (s.terms > s.n_features && !s.is_tied) add_powers(scratch.x.data(), s);
    for (int64_t i = 0; i < n; i += LANES) {
        for (int64_t j = 0; j < s.step; j += LANES) {
            V square[LANES];
            for (int v = 0; v < LANES; ++v) square[v] = load(scratch.x.data() + (j + v) * s.tile + i);
            transpose(square);
            for (int v = 0; v < LANES; ++v) store(scratch.by_row.data() + (i + v) * s.step + j, square[v]);
        }
    }
    std::fill_n(scratch.weights.begin(), s.tile, 0.0);
    for (int64_t i = 0; i < n; ++i) {
        scratch.weights[i] = rows.weights == nullptr ? 1.0 : rows.weights[scratch.order[i]];
    }
    return n_present;
}

// ---------------------------------------------------------------- log-densities of a tile

// Sums over c of matrix[c, i] x[c, n], squared and added over ROWS values of i, for two vectors of rows n.
SKMIX_INLINE void add_projected(const double* matrix, const double* x, int64_t count, V& one, V& other) {
    V sums[ROWS][2] = {};
    _Pragma("GCC unroll 4") for (int64_t c = 0; c < count; ++c) {
        const V a = load(x + c * 2 * LANES), b = load(x + c * 2 * LANES + LANES);
        SKMIX_UNROLL
        for (int i = 0; i < ROWS; ++i) {
            const V number = splat(matrix[c * ROWS + i]);
            sums[i][0] = fma(number, a, sums[i][0]);
            sums[i][1] = fma(number, b, sums[i][1]);
        }
    }
    SKMIX_UNROLL
    for (int i = 0; i < ROWS; ++i) {
        one = fma(sums[i][0], sums[i][0], one);
        other = fma(sums[i][1], sums[i][1], other);
    }
}

// Add -1/2 times the squared distances of rows to values (tile,), for any number of features.
void add_many_distances(const Packed& packed, const double* mean, const double* whitener, Scratch& scratch,
                        int64_t begin, int64_t end, double* values) {
    const Sizes& s = packed.sizes;
    double* ahead = scratch.few.data();
    for (int64_t r = begin / (2 * LANES) * (2 * LANES); r < end; r += 2 * LANES) {
        V one{}, other{};
        for (int64_t j = 0; j < s.n_features; ++j) {
            const double* x = scratch.x.data() + j * s.tile + r;
            V a = load(x) - splat(mean[j]), b = load(x + LANES) - splat(mean[j]);
            if (s.form == Form::scaled) {
                a = a * splat(whitener[j]);
                b = b * splat(whitener[j]);
                one = fma(a, a, one);
                other = fma(b, b, other);
            } else {
                store(ahead + j * 2 * LANES, a);
                store(ahead + j * 2 * LANES + LANES, b);
            }
        }
        if (s.form == Form::triangular) {
            for (int64_t i = 0; i < s.width; i += ROWS) {
                add_projected(whitener + i * s.width, ahead, std::min<int64_t>(i + ROWS, s.n_features), one, other);
            }
        }
        one = smaller(splat(FARTHEST_SQUARED), one);
        other = smaller(splat(FARTHEST_SQUARED), other);
        store(values + r, fma(splat(-0.5), one, load(values + r)));
        store(values + r + LANES, fma(splat(-0.5), other, load(values + r + LANES)));
    }
}

// Turn -1/2 times squared distances into E[u]; add the logarithms of t densities, relative to the peak, to values.
void add_tails(double degrees, int64_t n_features, int64_t n, double* distances, double* log_ratios, double* values) {
    const double n_all = degrees + static_cast<double>(n_features);
    for (int64_t r = 0; r < n; r += LANES) {
        const V ratio = fma(splat(-2.0 / degrees), load(distances + r), splat(1.0)), log_ratio = log(ratio);
        store(values + r, fma(splat(-0.5 * n_all), log_ratio, load(values + r)));
        store(distances + r, splat(n_all / degrees) / ratio);
        store(log_ratios + r, log_ratio);
    }
}

// Write the log-joints (K, tile) of a tile's rows under the kernels of a start.
void fill_log_joints(const Packed& packed, const Kernels& kernels, int64_t start, int64_t n, int64_t n_present,
                     Scratch& scratch) {
    const Sizes& s = packed.sizes;
    const double* x = scratch.x.data();
    double* values = scratch.values.data();
    for (int64_t i = 0; i < s.n_kernels; ++i) {
        const int64_t kernel = start * s.n_kernels + i;
        const double *base = packed.base.data() + kernel * s.n_classes, *mean = &packed.means[kernel * s.width];
        double *row = values + i * s.tile, *into = row;
        int64_t begin = n, end = 0;
        const bool is_simple = s.is_unrolled && !s.is_t && s.n_classes == 1 && *base > -INF;
        if (is_simple) {
            begin = 0;
            end = n;
        } else {
            for (int64_t p = 0; p < n_present; ++p) {
                const int64_t c = scratch.present[p];
                fill(row + scratch.bounds[c], scratch.bounds[c + 1] - scratch.bounds[c], base[c]);
                if (base[c] > -INF) {
                    begin = std::min(begin, scratch.bounds[c]);
                    end = scratch.bounds[c + 1];
                }
            }
            fill(row + n, s.tile - n, 0.0);
        }
        if (s.form == Form::products) {
            begin = 0;
            end = n;
        }
        begin = begin / LANES * LANES;
        end = padded(end);
        scratch.low[i] = begin;
        scratch.high[i] = end;
        if (s.form == Form::products) continue;
        if (s.is_t) {
            into = scratch.precisions.data() + i * s.tile;
            std::fill_n(into, s.tile, 0.0);
        }
        const double* whitener = packed.whitener_of(start, i);
        if (s.is_unrolled) {
            FOR_FEATURES[s.n_features - 1].first(x + begin, s.tile, end - begin, mean, whitener,
                                                 is_simple ? base : nullptr, into + begin);
        } else {
            add_many_distances(packed, mean, whitener, scratch, begin, end, into);
        }
        if (s.is_t) {
            double* log_ratios = scratch.log_ratios.data() + i * s.tile;
            add_tails(kernels.degrees[kernel], s.n_features, end - begin, into + begin, log_ratios + begin,
                      row + begin);
        }
    }
    if (s.form == Form::products) {
        if (s.is_tied) {
            rotate(x, &packed.rotation[start * s.n_features * s.n_features], s, scratch.white.data());
            add_powers(scratch.white.data(), s);
            x = scratch.white.data();
        }
        const double* coefficients = packed.whitener.data() + start * s.n_kernels * s.terms;
        multiply(coefficients, s.terms, x, s.tile, values, s.n_kernels);
    }
}

// ---------------------------------------------------------------- the E-step

// Turn the log-joints of a tile into responsibilities times weights, class by class, for the kernels that have a
// weight in the class.
void normalise(const Sizes& s, int64_t n_present, Scratch& scratch) {
    const int64_t *low = scratch.low.data(), *high = scratch.high.data();
    int64_t *places = scratch.listed.data(), end = 0;
    double* values = scratch.values.data();
    for (int64_t p = 0; p < n_present; ++p) {
        const int64_t begin = end;
        end = padded(scratch.bounds[scratch.present[p] + 1]);
        int64_t count = 0;
        for (int64_t k = 0; k < s.n_kernels; ++k) {
            if (low[k] < end && begin < high[k]) places[count++] = k * s.tile;
        }
        for (int64_t r = begin; r < end; r += LANES) {
            V highest = splat(-INF);
            for (int64_t i = 0; i < count; ++i) highest = larger(highest, load(values + places[i] + r));
            V sum{};
            for (int64_t i = 0; i < count; ++i) {
                double* value = values + places[i] + r;
                const V joint = exp(load(value) - highest);
                store(value, joint);
                sum = sum + joint;
            }
            const V weight = load(scratch.weights.data() + r);
            store(scratch.logs.data() + r, weight * (highest + log(sum)));
            const V share = weight / sum;
            for (int64_t i = 0; i < count; ++i) {
                double* value = values + places[i] + r;
                store(value, load(value) * share);
            }
        }
    }
}

// The sum of n values; a vector beyond them must be readable.
double sum(const double* values, int64_t n) {
    V parts{};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) parts = parts + load(values + i);
    return total(parts + head(load(values + i), n - i));
}

// Write the sums (C, padded K) of the responsibilities of the tile's rows, class by class.
void add_masses(const Sizes& s, int64_t n_present, Scratch& scratch) {
    for (int64_t p = 0; p < n_present; ++p) {
        const int64_t a = scratch.bounds[scratch.present[p]], b = scratch.bounds[scratch.present[p] + 1];
        for (int64_t first = 0; first < s.n_kernels; first += LANES) {
            V sums[LANES];
            for (int64_t i = 0; i < LANES; ++i) {
                const int64_t k = first + i;
                sums[i] = V{};
                // Kernels without a weight in the class have no responsibilities there.
                if (k >= s.n_kernels || a < scratch.low[k] || scratch.high[k] < b) continue;
                const double* shares = &scratch.values[k * s.tile];
                int64_t r = a;
                for (; r + LANES <= b; r += LANES) sums[i] = sums[i] + load(shares + r);
                sums[i] = sums[i] + head(load(shares + r), b - r);
            }
            store(&scratch.masses[p * padded(s.n_kernels) + first], totals(sums));
        }
    }
}

// List the rows whose weights matter, and the roots of these weights; return their number.
int64_t choose(const double* weights, int64_t n, Places& index, Numbers& roots) {
    V highest{};
    for (int64_t i = 0; i < n; i += LANES) highest = larger(highest, load(weights + i));
    const double least = NEGLIGIBLE_SHARE * largest(highest);
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) {
        index[count] = i;
        roots[count] = weights[i];
        count += weights[i] > least;
    }
    for (int64_t i = 0; i < count; ++i) roots[i] = std::sqrt(roots[i]);
    return count;
}

// Add the moments of rows about an origin, for any number of features.
void add_many_moments(const Sizes& s, const double* origin, const double* weights, int64_t n, Scratch& scratch,
                      double* moments) {
    const int64_t count = choose(weights, n, scratch.index, scratch.roots);
    // Local copies, which no store can change.
    const double *by_row = scratch.by_row.data(), *roots = scratch.roots.data();
    const int64_t *index = scratch.index.data(), width = s.width;
    double *ahead = scratch.ahead.data(), *second = moments + width;
    for (int64_t j = 0; j < width; j += LANES) {
        const V from = load(origin + j);
        V sums = load(moments + j), squares{};
        _Pragma("GCC unroll 4") for (int64_t c = 0; c < count; ++c) {
            const V root = splat(roots[c]), value = (load(by_row + index[c] * width + j) - from) * root;
            sums = fma(value, root, sums);
            squares = fma(value, value, squares);
            store(ahead + c * width + j, value);
        }
        store(moments + j, sums);
        if (s.form == Form::scaled) store(second + j, load(second + j) + squares);
    }
    if (s.form == Form::scaled) return;
    // The lower triangle, in blocks.
    for (int64_t i = 0; i < s.width; i += ROWS) {
        double* row = second + i * s.width;
        int64_t j = 0;
        for (; j + LANES < i + ROWS; j += 2 * LANES) {
            add_products<ROWS, 2>(ahead + i, 1, s.width, ahead + j, s.width, count, row + j, s.width);
        }
        if (j < i + ROWS) add_products<ROWS, 1>(ahead + i, 1, s.width, ahead + j, s.width, count, row + j, s.width);
    }
}

// A pass over rows: tasks are blocks of rows, for up to STARTS_OF_TASK starts.
class RowPass : public skmix::Pass {
   public:
    void work() final {
        const Sizes& s = packed_.sizes;
        // A thread keeps its memory from pass to pass: to ask for it anew would cost more than some passes.
        thread_local const auto kept = std::make_unique<Scratch>();
        Scratch& scratch = *kept;
        scratch.fit(s);
        for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < n_tasks;) {
            const int64_t block = task % s.n_blocks, first = task / s.n_blocks * STARTS_OF_TASK;
            const int64_t end = std::min((block + 1) * s.block, s.n_rows);
            for (int64_t a = block * s.block; a < end; a += s.tile) {
                const int64_t n = std::min(s.tile, end - a);
                const int64_t n_present = gather_tile(rows_, a, n, s, scratch);
                for (int64_t start = first; start < std::min(first + STARTS_OF_TASK, s.n_starts); ++start) {
                    fill_log_joints(packed_, kernels_, start, n, n_present, scratch);
                    take_tile({block, start, a, n, n_present}, scratch);
                }
            }
        }
    }

   protected:
    // Rows a ... a + n - 1 of a block, of n_present classes, under a start.
    struct Tile {
        int64_t block, start, a, n, n_present;
    };

    RowPass(const Rows& rows, const Kernels& kernels) : rows_(rows), kernels_(kernels), packed_(rows, kernels) {
        const Sizes& s = packed_.sizes;
        n_tasks = s.n_blocks * (rounded_up(s.n_starts, STARTS_OF_TASK) / STARTS_OF_TASK);
    }

    // Use the log-joints of a tile.
    virtual void take_tile(const Tile& tile, Scratch& scratch) = 0;

    Rows rows_;
    Kernels kernels_;
    Packed packed_;
};

class EStep final : public RowPass {
   public:
    EStep(const Rows& rows, const Kernels& kernels, const double* origins, const Sums& sums)
        : RowPass(rows, kernels), with_moments_(origins != nullptr), sums_(sums) {
        Sizes& s = packed_.sizes;
        const int64_t n_models = s.n_blocks * s.n_starts;
        likelihood_.resize(n_models * s.n_classes);
        mass_.resize(n_models * s.n_kernels * s.n_classes);
        if (!with_moments_) return;
        if (!s.is_unrolled && s.form != Form::products) s.step = s.width;
        moments_.resize(n_models * s.n_kernels * s.moments);
        tails_.resize(s.is_t ? 2 * n_models * s.n_kernels : 0);
        origins_.resize(s.n_starts * s.n_kernels * s.width);
        for (int64_t i = 0; i < s.n_starts * s.n_kernels; ++i) {
            std::copy_n(origins + i * s.n_features, s.n_features, origins_.begin() + i * s.width);
        }
    }

    void finish() override;

   private:
    void take_tile(const Tile& tile, Scratch& scratch) override {
        const Sizes& s = packed_.sizes;
        const auto [block, start, a, n, n_present] = tile;
        normalise(s, n_present, scratch);
        const int64_t model = block * s.n_starts + start;
        const Places& bounds = scratch.bounds;
        for (int64_t p = 0; p < n_present; ++p) {
            const int64_t c = scratch.present[p];
            const double* logs = scratch.logs.data() + bounds[c];
            likelihood_[model * s.n_classes + c] += sum(logs, bounds[c + 1] - bounds[c]);
        }
        if (!with_moments_) return;
        double* moments = moments_.data() + model * s.n_kernels * s.moments;
        if (s.form == Form::products) {
            // Moments about zero: responsibilities times rows.
            multiply_transposed(scratch.values.data(), s.n_kernels, scratch.x.data(), s.moments, s.tile, padded(n),
                                moments);
        }
        add_masses(s, n_present, scratch);
        for (int64_t i = 0; i < s.n_kernels; ++i) {
            double *shares = scratch.values.data() + i * s.tile, mass_of_tile = 0.0;
            double* mass = &mass_[(model * s.n_kernels + i) * s.n_classes];
            int64_t begin = n, end = 0;
            for (int64_t p = 0; p < n_present; ++p) {
                const int64_t c = scratch.present[p];
                const double mass_of_class = scratch.masses[p * padded(s.n_kernels) + i];
                if (!(mass_of_class > 0.0)) continue;
                mass[c] += mass_of_class;
                mass_of_tile += mass_of_class;
                begin = std::min(begin, bounds[c]);
                end = bounds[c + 1];
            }
            if (!(mass_of_tile > 0.0)) continue;
            begin = begin / LANES * LANES;
            end = padded(end);
            if (s.is_t) weigh(model * s.n_kernels + i, i, begin, end, scratch);
            const double* origin = &origins_[(start * s.n_kernels + i) * s.width];
            if (s.is_unrolled) {
                FOR_FEATURES[s.n_features - 1].second(scratch.x.data() + begin, s.tile, end - begin, shares + begin,
                                                      origin, moments + i * s.moments);
            } else if (s.form != Form::products) {
                add_many_moments(s, origin, shares, n, scratch, moments + i * s.moments);
            }
        }
    }

    // Multiply the responsibilities of a t kernel by E[u].
    void weigh(int64_t place, int64_t kernel, int64_t begin, int64_t end, Scratch& scratch) {
        const int64_t at = kernel * packed_.sizes.tile;
        V precisions{}, logs{};
        for (int64_t r = at + begin; r < at + end; r += LANES) {
            V share = load(&scratch.values[r]);
            logs = fma(share, load(&scratch.log_ratios[r]), logs);
            share = share * load(&scratch.precisions[r]);
            precisions = precisions + share;
            store(&scratch.values[r], share);
        }
        tails_[2 * place] += total(precisions);
        tails_[2 * place + 1] += total(logs);
    }

    bool with_moments_;
    Sums sums_;
    Numbers origins_;     // (R, K, width)
    Numbers likelihood_;  // (blocks, R, C)
    Numbers mass_;        // (blocks, R, K, C)
    Numbers moments_;     // (blocks, R, K, moments)
    Numbers tails_;       // (blocks, R, K, 2)
};

// Add the sums of all blocks, in order, to those of the first.
Numbers added(const Numbers& parts, int64_t n_blocks) {
    const int64_t n = static_cast<int64_t>(parts.size()) / n_blocks;
    Numbers sums(parts.begin(), parts.begin() + n);
    for (int64_t b = 1; b < n_blocks; ++b) {
        for (int64_t i = 0; i < n; ++i) sums[i] += parts[b * n + i];
    }
    return sums;
}

// Whether a parameter of a start is NaN.
bool has_nan(const Kernels& kernels, int64_t m, int64_t start) {
    const int64_t k = kernels.n_kernels, n_whiteners = kernels.is_tied ? 1 : k;
    const auto is_among = [&](const double* numbers, int64_t n) {
        return std::any_of(numbers + start * n, numbers + (start + 1) * n, [](double x) { return std::isnan(x); });
    };
    return is_among(kernels.means, k * m) || is_among(kernels.constants, k) ||
           is_among(kernels.log_weights, k * kernels.n_classes) ||
           is_among(kernels.whiteners, n_whiteners * (kernels.is_matrix ? m * m : m)) ||
           (kernels.degrees != nullptr && is_among(kernels.degrees, k));
}

void EStep::finish() {
    const Sizes& s = packed_.sizes;
    const Sums& sums = sums_;
    const int64_t m = s.n_features;
    const Numbers likelihood = added(likelihood_, s.n_blocks), mass = added(mass_, s.n_blocks);
    std::copy(likelihood.begin(), likelihood.end(), sums.likelihood);
    std::copy(mass.begin(), mass.end(), sums.mass);
    // Vectors need not pass on a NaN; it must not go unnoticed.
    for (int64_t r = 0; r < s.n_starts; ++r) {
        if (has_nan(kernels_, s.n_features, r)) std::fill_n(sums.likelihood + r * s.n_classes, s.n_classes, NAN);
    }
    if (!with_moments_) return;
    const Numbers moments = added(moments_, s.n_blocks), tails = added(tails_, s.n_blocks);
    for (int64_t i = 0; i < s.n_starts * s.n_kernels; ++i) {
        if (s.is_t) {
            sums.precisions[i] = tails[2 * i];
            sums.log_ratios[i] = tails[2 * i + 1];
        }
        const int64_t place = i / s.n_kernels * s.n_kernels + i % s.n_kernels;
        const double *first = &moments[place * s.moments], *second = first + s.width;
        std::copy_n(first, m, sums.first + i * m);
        if (s.form == Form::triangular) {
            // Pairs of features (j, j + d mod M), for each distance d.
            const int64_t n_pairs = m * (m + 1) / 2;
            for (int64_t t = 0; t < n_pairs; ++t) {
                const int64_t j = t % m, k = (j + t / m) % m, a = std::max(j, k), b = std::min(j, k);
                sums.second[i * n_pairs + t] = second[s.is_unrolled ? a * (a + 1) / 2 + b : a * s.width + b];
            }
        } else if (s.form == Form::scaled || (!s.is_tied && !s.is_isotropic)) {
            std::copy_n(second, m, sums.second + i * m);
        } else if (!s.is_tied) {
            // Only the sum over features has a meaning.
            std::fill_n(sums.second + i * m, m, second[0] / static_cast<double>(m));
        }
    }
}

// ---------------------------------------------------------------- log-densities

// The logarithm of a mixture's density at one row whose nearest kernels have no weight in it.
double log_mixture(const double* values, int64_t tile, const double* mixing, int64_t n_kernels, int64_t n_mixtures) {
    double highest = -INF, sum = 0.0;
    for (int64_t k = 0; k < n_kernels; ++k) {
        const double weight = mixing[k * n_mixtures];
        if (weight > 0.0) highest = std::max(highest, values[k * tile] + std::log(weight));
    }
    if (highest == -INF) return highest;
    for (int64_t k = 0; k < n_kernels; ++k) {
        const double weight = mixing[k * n_mixtures];
        if (weight > 0.0) sum += std::exp(values[k * tile] + std::log(weight) - highest);
    }
    return highest + std::log(sum);
}

class LogDensities final : public RowPass {
   public:
    LogDensities(const Rows& rows, const Kernels& kernels, const double* mixing, int64_t n_mixtures, double* out)
        : RowPass(rows, kernels), mixing_(mixing), n_mixtures_(n_mixtures), out_(out) {}

    void finish() override {}

   private:
    void take_tile(const Tile& tile, Scratch& scratch) override {
        if (mixing_ == nullptr) {
            write(tile.a, tile.n, scratch);
        } else {
            mix(tile.a, tile.n, scratch);
        }
    }

    void write(int64_t a, int64_t n, const Scratch& scratch) {
        const Sizes& s = packed_.sizes;
        for (int64_t i = 0; i < n; ++i) {
            double* to = out_ + (a + i) * s.n_kernels;
            for (int64_t k = 0; k < s.n_kernels; ++k) to[k] = scratch.values[k * s.tile + i];
        }
    }

    void mix(int64_t a, int64_t n, Scratch& scratch) {
        const Sizes& s = packed_.sizes;
        const double* values = scratch.values.data();
        double* joints = scratch.joints.data();
        for (int64_t r = 0; r < n; r += LANES) {
            V highest = load(values + r);
            for (int64_t k = 1; k < s.n_kernels; ++k) highest = larger(highest, load(values + k * s.tile + r));
            for (int64_t k = 0; k < s.n_kernels; ++k) {
                store(joints + k * LANES, exp(load(values + k * s.tile + r) - highest));
            }
            for (int64_t c = 0; c < n_mixtures_; ++c) {
                V sum{};
                for (int64_t k = 0; k < s.n_kernels; ++k) {
                    sum = fma(splat(mixing_[k * n_mixtures_ + c]), load(joints + k * LANES), sum);
                }
                const V logs = highest + log(larger(sum, splat(LEAST_SUM)));
                for (int64_t i = 0; i < std::min<int64_t>(LANES, n - r); ++i) {
                    double& out = out_[(a + r + i) * n_mixtures_ + c];
                    out = logs[i];
                    if (!(sum[i] >= LEAST_SUM)) {
                        out = log_mixture(values + r + i, s.tile, mixing_ + c, s.n_kernels, n_mixtures_);
                    }
                }
            }
        }
    }

    const double* mixing_;
    int64_t n_mixtures_;
    double* out_;
};

// ---------------------------------------------------------------- k-means

// The nearest centre is the most likely kernel if all kernels are spheres of one size.
struct Spheres {
    Numbers zeros, ones;
    Kernels kernels;

    Spheres(const double* centres, int64_t n_centres, int64_t n_features)
        : zeros(n_centres),
          ones(n_centres * n_features, 1.0),
          kernels{Form::products, false,       false,        true,         1,      n_centres, 1,
                  centres,        ones.data(), zeros.data(), zeros.data(), nullptr} {}
};

class Lloyd final : private Spheres, public RowPass {
   public:
    Lloyd(const Rows& rows, const double* centres, int64_t n_centres, int64_t* nearest, double* sums)
        : Spheres(centres, n_centres, rows.n_features), RowPass(rows, kernels), nearest_(nearest), out_(sums) {
        Sizes& s = packed_.sizes;
        // The length of a row is the same for all centres: without that term no digits are lost.
        const int64_t m = rows.n_features;
        for (int64_t k = 0; k < s.n_kernels; ++k) {
            std::copy_n(packed_.whitener.begin() + k * s.terms, m, packed_.whitener.begin() + k * m);
        }
        s.terms = m;
        s.step = padded(m);
        sums_.resize(s.n_blocks * n_centres * (s.step + 1));
    }

    void finish() override {
        const Sizes& s = packed_.sizes;
        const Numbers sums = added(sums_, s.n_blocks);
        for (int64_t k = 0; k < s.n_kernels; ++k) {
            const double* from = &sums[k * (s.step + 1)];
            double* to = out_ + k * (s.n_features + 1);
            std::copy_n(from, s.n_features, to);
            to[s.n_features] = from[s.step];
        }
    }

   private:
    void take_tile(const Tile& tile, Scratch& scratch) override {
        const Sizes& s = packed_.sizes;
        find_nearest(tile.n, scratch);
        for (int64_t i = 0; i < tile.n; ++i) {
            const int64_t k = scratch.index[i];
            nearest_[scratch.order[i]] = k;
            double* to = &sums_[(tile.block * s.n_kernels + k) * (s.step + 1)];
            const double weight = scratch.weights[i];
            for (int64_t j = 0; j < s.step; j += LANES) {
                store(to + j, fma(splat(weight), load(&scratch.by_row[i * s.step + j]), load(to + j)));
            }
            to[s.step] += weight;
        }
    }

    void find_nearest(int64_t n, Scratch& scratch) {
        const Sizes& s = packed_.sizes;
        for (int64_t r = 0; r < n; r += LANES) {
            V highest = load(&scratch.values[r]);
            I which{};
            for (int64_t k = 1; k < s.n_kernels; ++k) {
                const V value = load(&scratch.values[k * s.tile + r]);
                const auto better = value > highest;
                which = better ? splat(k) : which;
                highest = better ? value : highest;
            }
            std::memcpy(&scratch.index[r], &which, sizeof which);
        }
    }

    int64_t* nearest_;
    double* out_;
    Numbers sums_;  // (blocks, K, step + 1)
};

}  // namespace

std::unique_ptr<skmix::Pass> make_e_step(const Rows& rows, const Kernels& kernels, const double* origins,
                                         const Sums& sums) {
    return std::make_unique<EStep>(rows, kernels, origins, sums);
}

std::unique_ptr<skmix::Pass> make_log_densities(const Rows& rows, const Kernels& kernels, const double* mixing,
                                                int64_t n_mixtures, double* out) {
    return std::make_unique<LogDensities>(rows, kernels, mixing, n_mixtures, out);
}

std::unique_ptr<skmix::Pass> make_lloyd(const Rows& rows, const double* centres, int64_t n_centres, int64_t* nearest,
                                        double* sums) {
    return std::make_unique<Lloyd>(rows, centres, n_centres, nearest, sums);
}

}  // namespace SKMIX_ISA
