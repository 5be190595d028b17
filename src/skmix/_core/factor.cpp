// Whiteners of batches of covariances.

#include "common.h"

namespace SKMIX_ISA {
namespace {

using skmix::Whitened;

// Numbers of the matrices of a task.
constexpr int64_t NUMBERS_OF_TASK = 1 << 13;

class Whitening final : public skmix::Pass {
   public:
    Whitening(const double* matrices, int64_t n_matrices, int64_t m, double singular, const Whitened& out)
        : matrices_(matrices), n_matrices_(n_matrices), m_(m), width_(padded(m)), singular_(singular), out_(out) {
        matrices_of_task_ = std::max<int64_t>(1, NUMBERS_OF_TASK / (m * m));
        n_tasks = rounded_up(n_matrices, matrices_of_task_) / matrices_of_task_;
    }

    void work() override {
        Numbers units(m_), lower(m_ * width_), inverse(m_ * width_);
        for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < n_tasks;) {
            for (int64_t b = task * matrices_of_task_; b < std::min((task + 1) * matrices_of_task_, n_matrices_); ++b) {
                const double* matrix = matrices_ + b * m_ * m_;
                double log_determinant = 0.0;
                bool is_positive = find_units(matrix, units) && factor(matrix, units, lower, log_determinant);
                if (is_positive) invert(lower, inverse);
                write(b, is_positive, log_determinant, units, inverse);
            }
        }
    }

    void finish() override {}

   private:
    // Write powers of two that scale a matrix to a diagonal near one, without rounding; return whether the diagonal
    // is positive and finite.
    bool find_units(const double* matrix, Numbers& units) const {
        std::fill(units.begin(), units.end(), 1.0);
        for (int64_t i = 0; i < m_; ++i) {
            const double variance = matrix[i * m_ + i];
            if (!(variance > 0.0 && variance < INF)) return false;
        }
        for (int64_t i = 0; i < m_; ++i) {
            int exponent;
            std::frexp(matrix[i * m_ + i], &exponent);
            units[i] = std::ldexp(1.0, -(exponent / 2));
        }
        return true;
    }

    // Write the lower triangular factor L of the scaled matrix, row by row, and add the logarithms of its pivots.
    bool factor(const double* matrix, const Numbers& units, Numbers& lower, double& log_determinant) const {
        for (int64_t i = 0; i < m_; ++i) {
            double* row = &lower[i * width_];
            for (int64_t j = 0; j <= i; ++j) row[j] = matrix[i * m_ + j] * units[i] * units[j];
            const double least = singular_ * row[i];
            for (int64_t j = 0; j <= i; ++j) {
                const double* other = &lower[j * width_];
                V sum{};
                int64_t k = 0;
                for (; k + LANES <= j; k += LANES) sum = fma(load(row + k), load(other + k), sum);
                const double rest = row[j] - total(sum + head(load(row + k) * load(other + k), j - k));
                if (j < i) {
                    row[j] = rest * other[j];
                } else if (rest > least) {
                    log_determinant += std::log(rest);
                    // The diagonal is needed as a divisor only.
                    row[i] = 1.0 / std::sqrt(rest);
                } else {
                    return false;
                }
            }
            std::fill(row + i + 1, row + width_, 0.0);
        }
        for (int64_t i = 0; i < m_; ++i) log_determinant -= 2.0 * std::log(units[i]);
        return true;
    }

    // Write W = L^-1, row by row: W_i = (1_i - sum over k < i of L_ik W_k) / L_ii.
    void invert(const Numbers& lower, Numbers& inverse) const {
        for (int64_t i = 0; i < m_; ++i) {
            const double* row = &lower[i * width_];
            double* to = &inverse[i * width_];
            for (int64_t j = 0; j < width_; j += LANES) {
                V sum{};
                // Columns beyond the diagonal of a row are zero.
                for (int64_t k = j; k < i; ++k) sum = fma(splat(-row[k] * row[i]), load(&inverse[k * width_ + j]), sum);
                store(to + j, sum);
            }
            to[i] = row[i];
        }
    }

    void write(int64_t b, bool is_positive, double log_determinant, const Numbers& units, const Numbers& inverse) {
        double *to = out_.whiteners + b * m_ * m_, inflation = 0.0;
        for (int64_t i = 0; i < m_; ++i) {
            for (int64_t j = 0; j < m_; ++j) {
                const double identity = i == j ? 1.0 : 0.0;
                to[i * m_ + j] = is_positive ? inverse[i * width_ + j] * units[j] : identity;
            }
        }
        for (int64_t j = 0; j < m_; ++j) {
            double length = 0.0;
            for (int64_t i = j; i < m_; ++i) length += inverse[i * width_ + j] * inverse[i * width_ + j];
            // Of the scaled matrix, which has the same inflations and squares that do not overflow.
            inflation = std::max(inflation, length * (matrices_[(b * m_ + j) * m_ + j] * units[j] * units[j]));
        }
        out_.is_positive[b] = is_positive;
        out_.log_determinants[b] = is_positive ? log_determinant : 0.0;
        out_.inflations[b] = is_positive ? inflation : INF;
    }

    const double* matrices_;
    int64_t n_matrices_, m_, width_, matrices_of_task_;
    double singular_;
    Whitened out_;
};

}  // namespace

std::unique_ptr<skmix::Pass> make_whitening(const double* matrices, int64_t n_matrices, int64_t n_features,
                                            double singular, const Whitened& out) {
    return std::make_unique<Whitening>(matrices, n_matrices, n_features, singular, out);
}

}  // namespace SKMIX_ISA
