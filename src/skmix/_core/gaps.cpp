// Rows with missing values, completed under every kernel: what is known of a row gives the expected values at its
// gaps, and the covariances that remain there, which all rows of a pattern share.
//
// A vector holds the same number of several kernels. Kernels with covariances of their own take a lane each; where G
// kernels share a covariance, they share its factor.

#include "common.h"

namespace SKMIX_ISA {
namespace {

using skmix::Completed;
using skmix::Gaps;

constexpr double TINY = std::numeric_limits<double>::min();

class Completion final : public skmix::Completion {
   public:
    Completion(const Gaps& gaps, const double* covariances, int64_t n_covariances, const double* means, int64_t n_means,
               const Completed& out)
        : gaps_(gaps), out_(out), n_covariances_(n_covariances), n_means_(n_means), m_(gaps.n_features) {
        is_shared_ = n_means > 1;
        step_ = is_shared_ ? 1 : LANES;
        n_factors_ = rounded_up(n_covariances, step_) / step_;
        n_vectors_ = is_shared_ ? padded(n_means) / LANES : 1;
        covariances_.resize(n_factors_ * m_ * m_ * LANES);
        means_.resize(n_factors_ * n_vectors_ * m_ * LANES);
        for (int64_t f = 0; f < n_factors_; ++f) {
            for (int lane = 0; lane < LANES; ++lane) {
                const double* from = covariances + covariance_of(f, lane) * m_ * m_;
                for (int64_t i = 0; i < m_ * m_; ++i) covariances_[(f * m_ * m_ + i) * LANES + lane] = from[i];
                for (int64_t v = 0; v < n_vectors_; ++v) {
                    const double* mean = means + kernel_of(f, v, lane) * m_;
                    double* to = &means_[(f * n_vectors_ + v) * m_ * LANES];
                    for (int64_t i = 0; i < m_; ++i) to[i * LANES + lane] = mean[i];
                }
            }
        }
        if (out.ahead == nullptr) return;
        int64_t size = 0;
        for (int64_t p = 0; p < gaps.n_patterns; ++p) {
            places_.push_back(size);
            const int64_t n_gaps = m_ - gaps.n_known[p];
            size += n_factors_ * n_gaps * (n_gaps + 1) / 2 * LANES;
        }
        remaining_.resize(size);
    }

    void complete() override {
        // Four rows are factored at a time: three rows follow the last.
        Numbers lower((m_ + 3) * m_ * LANES), roots(m_ * LANES), white(m_ * LANES);
        for (int64_t p = 0; p < gaps_.n_patterns; ++p) {
            const int64_t* order = gaps_.orders + p * m_;
            const int64_t known = gaps_.n_known[p], n_gaps = m_ - known;
            for (int64_t f = 0; f < n_factors_; ++f) {
                factor(&covariances_[f * m_ * m_ * LANES], order, lower, roots);
                V log_roots{};
                for (int64_t i = 0; i < known; ++i) log_roots = log_roots + log(load(&roots[i * LANES]));
                for (int64_t c = f * step_; c < std::min((f + 1) * step_, n_covariances_); ++c) {
                    out_.log_determinants[c * gaps_.n_patterns + p] = -2.0 * log_roots[c - f * step_];
                }
                if (out_.ahead != nullptr) {
                    double* to = remaining_.data() + places_[p] + f * n_gaps * (n_gaps + 1) / 2 * LANES;
                    for (int64_t i = known; i < m_; ++i) {
                        to = std::copy_n(&lower[(i * m_ + known) * LANES], (i - known + 1) * LANES, to);
                    }
                }
                for (int64_t v = 0; v < n_vectors_; ++v) {
                    for (int64_t n = gaps_.first[p]; n < gaps_.first[p + 1]; ++n) {
                        complete_row(n, f, v, order, known, lower, roots, white);
                    }
                }
            }
        }
    }

    void add_remaining(const double* mass, double* out) const override {
        Numbers sums(m_ * m_ * LANES);
        for (int64_t f = 0; f < n_factors_; ++f) {
            std::fill(sums.begin(), sums.end(), 0.0);
            for (int64_t p = 0; p < gaps_.n_patterns; ++p) {
                const int64_t known = gaps_.n_known[p], n_gaps = m_ - known, *order = gaps_.orders + p * m_;
                V weight{};
                for (int64_t c = f * step_; c < std::min((f + 1) * step_, n_covariances_); ++c) {
                    weight[c - f * step_] = mass[c * gaps_.n_patterns + p];
                }
                const double* roots = remaining_.data() + places_[p] + f * n_gaps * (n_gaps + 1) / 2 * LANES;
                const auto row_of = [&](int64_t i) { return roots + i * (i + 1) / 2 * LANES; };
                for (int64_t i = 0; i < n_gaps; ++i) {
                    for (int64_t j = 0; j <= i; ++j) {
                        V value{};
                        for (int64_t k = 0; k < (j + 1) * LANES; k += LANES) {
                            value = fma(load(row_of(i) + k), load(row_of(j) + k), value);
                        }
                        const int64_t a = order[known + i], b = order[known + j];
                        double* to = &sums[(std::max(a, b) * m_ + std::min(a, b)) * LANES];
                        store(to, fma(weight, value, load(to)));
                    }
                }
            }
            for (int64_t c = f * step_; c < std::min((f + 1) * step_, n_covariances_); ++c) {
                for (int64_t i = 0; i < m_; ++i) {
                    for (int64_t j = 0; j < m_; ++j) {
                        const int64_t place = std::max(i, j) * m_ + std::min(i, j);
                        out[(c * m_ + i) * m_ + j] += sums[place * LANES + c - f * step_];
                    }
                }
            }
        }
    }

   private:
    // The covariance and the kernel in a lane; lanes beyond the last repeat it.
    int64_t covariance_of(int64_t f, int lane) const {
        return is_shared_ ? f : std::min(f * step_ + lane, n_covariances_ - 1);
    }
    int64_t kernel_of(int64_t f, int64_t v, int lane) const {
        if (is_shared_) return f * n_means_ + std::min(v * LANES + lane, n_means_ - 1);
        return covariance_of(f, lane);
    }
    bool is_used(int64_t f, int64_t v, int lane) const {
        return is_shared_ ? v * LANES + lane < n_means_ : f * LANES + lane < n_covariances_;
    }

    // Write the Cholesky factors of matrices whose rows and columns are in that order, and the reciprocals of their
    // diagonals. Four rows are worked on at a time: each sum waits for its previous term.
    void factor(const double* covariances, const int64_t* order, Numbers& lower, Numbers& roots) const {
        const int64_t row = m_ * LANES;
        for (int64_t i = 0; i < m_; ++i) {
            for (int64_t j = 0; j <= i; ++j) {
                store(&lower[i * row + j * LANES], load(covariances + (order[i] * m_ + order[j]) * LANES));
            }
        }
        for (int64_t j = 0; j < m_; ++j) {
            for (int64_t i = j; i < m_; i += 4) {
                V sums[4] = {};
                for (int64_t k = 0; k < j * LANES; k += LANES) {
                    const V value = load(&lower[j * row + k]);
                    SKMIX_UNROLL
                    for (int n = 0; n < 4; ++n) sums[n] = fma(value, load(&lower[(i + n) * row + k]), sums[n]);
                }
                double* place = &lower[i * row + j * LANES];
                SKMIX_UNROLL
                for (int n = 0; n < 4; ++n) sums[n] = load(place + n * row) - sums[n];
                if (i == j) {
                    for (int lane = 0; lane < LANES; ++lane) {
                        roots[j * LANES + lane] = 1.0 / std::sqrt(std::max(sums[0][lane], TINY));
                    }
                }
                const V root = load(&roots[j * LANES]);
                SKMIX_UNROLL
                for (int n = 0; n < 4; ++n) store(place + n * row, sums[n] * root);
            }
        }
    }

    void complete_row(int64_t n, int64_t f, int64_t v, const int64_t* order, int64_t known, const Numbers& lower,
                      const Numbers& roots, Numbers& white) {
        const double *x = gaps_.x + n * m_, *means = &means_[(f * n_vectors_ + v) * m_ * LANES];
        const int64_t n_white = out_.ahead == nullptr ? known : m_;
        V length{};
        for (int64_t i = 0; i < n_white; ++i) {
            const double* row = &lower[i * m_ * LANES];
            V value{};
            for (int64_t j = 0; j < std::min(i, known); ++j) {
                value = fma(load(row + j * LANES), load(&white[j * LANES]), value);
            }
            if (i < known) {
                value = (splat(x[order[i]]) - load(means + order[i] * LANES) - value) * load(&roots[i * LANES]);
                length = fma(value, value, length);
            }
            store(&white[i * LANES], value);
        }
        for (int lane = 0; lane < LANES; ++lane) {
            if (!is_used(f, v, lane)) break;
            const int64_t place = kernel_of(f, v, lane) * gaps_.n_rows + n;
            out_.distances[place] = length[lane];
            if (out_.ahead == nullptr) continue;
            double* ahead = out_.ahead + place * m_;
            for (int64_t i = 0; i < known; ++i) ahead[order[i]] = x[order[i]] - means[order[i] * LANES + lane];
            for (int64_t i = known; i < m_; ++i) ahead[order[i]] = white[i * LANES + lane];
        }
    }

    Gaps gaps_;
    Completed out_;
    int64_t n_covariances_, n_means_, m_, n_factors_, n_vectors_;
    bool is_shared_;       // whether several kernels share a covariance
    int64_t step_;         // covariances of a factor
    Numbers covariances_;  // (factors, M, M, LANES)
    Numbers means_;        // (factors, vectors, M, LANES)
    Numbers remaining_;    // roots of the covariances of gaps: (factors, lower triangle, LANES) of each pattern
    Places places_;        // (P,): where they begin
};

}  // namespace

std::unique_ptr<skmix::Completion> make_completion(const Gaps& gaps, const double* covariances, int64_t n_covariances,
                                                   const double* means, int64_t n_means, const Completed& out) {
    return std::make_unique<Completion>(gaps, covariances, n_covariances, means, n_means, out);
}

}  // namespace SKMIX_ISA
