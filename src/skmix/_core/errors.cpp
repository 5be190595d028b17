// Rows whose values have errors of known variances S: kernel k sees a row as N(mu_k, P_k + S).
//
// A vector holds the same number of several rows, for each has a matrix T = P + S of its own. With the factor of T,
// d = x - mu and u = T^-1 d, the moments of the values without errors, about the kernel's mean, are
//     sum of r E[v - mu | x] = P sum of r u,
//     sum of r E[(v - mu)(v - mu)' | x] = P (sum of r (u u' - T^-1)) P + P sum of r,
// so that the sums on the right are all that is needed of the rows. A missing value has an infinite variance: the
// reciprocal root of its pivot is zero, and so are its terms.

#include <cmath>

#include "common.h"

namespace SKMIX_ISA {
namespace {

using skmix::ErrorKernels;
using skmix::ErrorRows;
using skmix::ErrorSums;

constexpr double HALF_LOG_TWO_PI = 0.91893853320467274;
constexpr double TINY = std::numeric_limits<double>::min();
constexpr double FARTHEST_SQUARED = 1e300;
// Up to this many features, loops over them are unrolled.
constexpr int UNROLLED = 6;
// Most blocks of rows, fewest rows of a block, and most numbers in the sums of all blocks of a start.
constexpr int64_t MOST_BLOCKS = 256, SMALLEST_BLOCK = 1024, MOST_SUMS = 1 << 24;

SKMIX_INLINE V reciprocal_root(V x) {
    V roots;
    for (int lane = 0; lane < LANES; ++lane) roots[lane] = 1.0 / std::sqrt(x[lane]);
    return roots;
}

// Place of row i of a lower triangle.
constexpr int64_t row_of(int64_t i) { return i * (i + 1) / 2; }

class ErrorPass final : public skmix::Pass {
   public:
    ErrorPass(const ErrorRows& rows, const ErrorKernels& kernels, const ErrorSums& out)
        : rows_(rows), kernels_(kernels), out_(out), m_(rows.n_features) {
        n_terms_ = kernels.is_matrix ? row_of(m_) : m_;
        width_ = kernels.n_classes + (out.first == nullptr ? 0 : m_ + n_terms_);
        const int64_t size = kernels.n_kernels * width_ + kernels.n_classes;
        const int64_t most = std::max<int64_t>(1, std::min(MOST_BLOCKS, MOST_SUMS / size));
        n_blocks_ = std::min(most, 1 + rows.n_rows / SMALLEST_BLOCK);
        block_ = padded((rows.n_rows + n_blocks_ - 1) / n_blocks_);
        n_tasks = n_blocks_ * kernels.n_starts;
        if (out.densities == nullptr) sums_.resize(n_tasks * size);
    }

    void work() override {
        const int64_t n_kernels = kernels_.n_kernels;
        Scratch scratch;
        scratch.x.resize(2 * m_ * LANES);
        scratch.lower.resize(n_kernels * n_terms_ * LANES);
        scratch.white.resize(n_kernels * m_ * LANES);
        scratch.inverse.resize((n_terms_ + m_) * LANES);
        scratch.joints.resize(n_kernels * LANES);
        scratch.moments.resize(n_kernels * (m_ + n_terms_) * LANES);
        for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < n_tasks;) {
            switch (m_ <= UNROLLED ? m_ : 0) {
                case 1:
                    do_task<1>(task, scratch);
                    break;
                case 2:
                    do_task<2>(task, scratch);
                    break;
                case 3:
                    do_task<3>(task, scratch);
                    break;
                case 4:
                    do_task<4>(task, scratch);
                    break;
                case 5:
                    do_task<5>(task, scratch);
                    break;
                case 6:
                    do_task<6>(task, scratch);
                    break;
                default:
                    do_task<0>(task, scratch);
            }
        }
    }

    void finish() override {
        if (out_.densities != nullptr) return;
        const int64_t n_kernels = kernels_.n_kernels, n_classes = kernels_.n_classes;
        const double* from = sums_.data();
        for (int64_t task = 0; task < n_tasks; ++task) {
            const int64_t r = task / n_blocks_;
            for (int64_t c = 0; c < n_classes; ++c) out_.likelihood[r * n_classes + c] += *from++;
            for (int64_t k = r * n_kernels; k < (r + 1) * n_kernels; ++k) {
                for (int64_t c = 0; c < n_classes; ++c) out_.mass[k * n_classes + c] += *from++;
                if (out_.first == nullptr) continue;
                for (int64_t i = 0; i < m_; ++i) out_.first[k * m_ + i] += *from++;
                for (int64_t i = 0; i < n_terms_; ++i) out_.second[k * n_terms_ + i] += *from++;
            }
        }
    }

   private:
    // The memory of one thread, in vectors of rows.
    struct Scratch {
        Numbers x;        // (2, M): values, and variances of their errors
        Numbers lower;    // (K, terms): factors of T, with the reciprocals of their diagonals
        Numbers white;    // (K, M): differences from the means, whitened by the factors
        Numbers inverse;  // (terms + M): the inverse of a factor, and u
        Numbers joints;   // (K,): log-joints, then responsibilities
        Numbers moments;  // (K, M + terms)
    };

    template <int M>
    void do_task(int64_t task, Scratch& s) {
        const int64_t r = task / n_blocks_, first = task % n_blocks_ * block_;
        const int64_t end = std::min(first + block_, rows_.n_rows), n_kernels = kernels_.n_kernels;
        const int64_t n_classes = kernels_.n_classes, m = M > 0 ? M : m_;
        const bool has_moments = out_.first != nullptr;
        double* sums = &sums_[out_.densities == nullptr ? task * (n_kernels * width_ + n_classes) : 0];
        std::fill(s.moments.begin(), s.moments.end(), 0.0);
        for (int64_t a = first; a < end; a += LANES) {
            const int64_t n = std::min<int64_t>(LANES, end - a);
            int64_t codes[LANES];
            V weights{};
            for (int lane = 0; lane < LANES; ++lane) {
                const int64_t row = std::min(a + lane, end - 1);  // lanes beyond the last row repeat it
                codes[lane] = n_classes == 1 ? 0 : rows_.codes[row];
                if (lane < n) weights[lane] = rows_.weights == nullptr ? 1.0 : rows_.weights[row];
                for (int64_t i = 0; i < m; ++i) {
                    s.x[i * LANES + lane] = rows_.x[row * m + i];
                    s.x[(m + i) * LANES + lane] = rows_.variances[row * m + i];
                }
            }
            V highest = splat(-INF);
            for (int64_t k = 0; k < n_kernels; ++k) {
                V joint = log_density<M>(r * n_kernels + k, s, k);
                const double* log_weights = kernels_.log_weights + (r * n_kernels + k) * n_classes;
                for (int lane = 0; lane < LANES; ++lane) joint[lane] += log_weights[codes[lane]];
                store(&s.joints[k * LANES], joint);
                highest = larger(highest, joint);
            }
            if (out_.densities != nullptr) {
                for (int64_t i = 0; i < n; ++i) {
                    for (int64_t k = 0; k < n_kernels; ++k) {
                        out_.densities[(a + i) * n_kernels + k] = s.joints[k * LANES + i];
                    }
                }
                continue;
            }
            V total{};
            for (int64_t k = 0; k < n_kernels; ++k) {
                const V share = exp(load(&s.joints[k * LANES]) - highest);
                store(&s.joints[k * LANES], share);
                total = total + share;
            }
            const V logs = weights * (log(total) + highest), scale = weights / total;
            for (int64_t i = 0; i < n; ++i) sums[codes[i]] += logs[i];
            for (int64_t k = 0; k < n_kernels; ++k) {
                const V share = scale * load(&s.joints[k * LANES]);
                double* mass = sums + n_classes + k * width_;
                for (int64_t i = 0; i < n; ++i) mass[codes[i]] += share[i];
                if (has_moments && largest(share) > 0.0) add_moments<M>(k, share, s);
            }
        }
        if (out_.densities != nullptr || !has_moments) return;
        for (int64_t k = 0; k < n_kernels; ++k) {
            for (int64_t i = 0; i < m + n_terms_; ++i) {
                sums[n_classes + k * width_ + n_classes + i] =
                    total(load(&s.moments[(k * (m + n_terms_) + i) * LANES]));
            }
        }
    }

    // The log-densities of the observed values of a vector of rows under a kernel, whose factor is kept.
    template <int M>
    V log_density(int64_t kernel, Scratch& s, int64_t k) {
        const int64_t m = M > 0 ? M : m_;
        const double* mean = kernels_.means + kernel * m;
        const double* covariance = kernels_.covariances + kernel * (kernels_.is_matrix ? m * m : m);
        double *lower = &s.lower[k * n_terms_ * LANES], *white = &s.white[k * m * LANES];
        V length{}, logs{};
        for (int64_t i = 0; i < m; ++i) {
            V ahead = load(&s.x[i * LANES]) - splat(mean[i]), pivot = load(&s.x[(m + i) * LANES]);
            double* row = lower + (kernels_.is_matrix ? row_of(i) : i) * LANES;
            if (kernels_.is_matrix) {
                for (int64_t j = 0; j < i; ++j) {
                    const double* other = lower + row_of(j) * LANES;
                    V value = splat(covariance[i * m + j]);
                    for (int64_t h = 0; h < j; ++h) value = fma(-load(row + h * LANES), load(other + h * LANES), value);
                    value = value * load(other + j * LANES);
                    store(row + j * LANES, value);
                    pivot = fma(-value, value, pivot);
                    ahead = fma(-value, load(white + j * LANES), ahead);
                }
                pivot = pivot + splat(covariance[i * m + i]);
                row += i * LANES;
            } else {
                pivot = pivot + splat(covariance[i]);
            }
            const V root = reciprocal_root(larger(pivot, splat(TINY)));
            const V value = ahead * root;
            store(row, root);
            store(white + i * LANES, value);
            length = fma(value, value, length);
            const auto is_known = root > V{};
            logs = logs + (is_known ? log(is_known ? root : splat(1.0)) - splat(HALF_LOG_TWO_PI) : V{});
        }
        return fma(splat(-0.5), smaller(splat(FARTHEST_SQUARED), length), logs);
    }

    // Add the moments of a vector of rows with these responsibilities for a kernel, whose factor was kept.
    template <int M>
    void add_moments(int64_t k, V share, Scratch& s) {
        const int64_t m = M > 0 ? M : m_;
        const double *lower = &s.lower[k * n_terms_ * LANES], *white = &s.white[k * m * LANES];
        double *inverse = s.inverse.data(), *u = inverse + n_terms_ * LANES;
        double *first = &s.moments[k * (m + n_terms_) * LANES], *second = first + m * LANES;
        const auto add = [&](double* to, V value) { store(to, fma(share, value, load(to))); };
        if (!kernels_.is_matrix) {
            for (int64_t i = 0; i < m * LANES; i += LANES) {
                const V root = load(lower + i), value = root * load(white + i);
                add(first + i, value);
                add(second + i, fma(value, value, -root * root));
            }
            return;
        }
        for (int64_t i = 0; i < m; ++i) {
            const V root = load(lower + (row_of(i) + i) * LANES);
            for (int64_t j = 0; j < i; ++j) {
                V value{};
                for (int64_t h = j; h < i; ++h) {
                    value = fma(load(lower + (row_of(i) + h) * LANES), load(inverse + (row_of(h) + j) * LANES), value);
                }
                store(inverse + (row_of(i) + j) * LANES, -root * value);
            }
            store(inverse + (row_of(i) + i) * LANES, root);
        }
        for (int64_t j = 0; j < m; ++j) {
            V value{};
            for (int64_t i = j; i < m; ++i) {
                value = fma(load(inverse + (row_of(i) + j) * LANES), load(white + i * LANES), value);
            }
            store(u + j * LANES, value);
            add(first + j * LANES, value);
        }
        for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j <= i; ++j) {
                V value = load(u + i * LANES) * load(u + j * LANES);
                for (int64_t h = i; h < m; ++h) {
                    const double* row = inverse + row_of(h) * LANES;
                    value = fma(-load(row + i * LANES), load(row + j * LANES), value);
                }
                add(second + (row_of(i) + j) * LANES, value);
            }
        }
    }

    ErrorRows rows_;
    ErrorKernels kernels_;
    ErrorSums out_;
    int64_t m_, n_terms_, width_, n_blocks_, block_;
    Numbers sums_;  // of each task: likelihood (C,), and for each kernel mass (C,), first (M,), second (terms,)
};

}  // namespace

std::unique_ptr<skmix::Pass> make_error_pass(const ErrorRows& rows, const ErrorKernels& kernels, const ErrorSums& out) {
    return std::make_unique<ErrorPass>(rows, kernels, out);
}

}  // namespace SKMIX_ISA
