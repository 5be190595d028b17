// Passes of EM over few rows, one after the other, in one thread.
//
// The E-step and the whiteners are those of the other files; the M-step is that of `rules/likelihood.py` for
// Gaussian kernels that do not share a covariance. What is rare there is left to it: passes end before one that
// meets a covariance at its floor, an empty kernel or lost digits.

#include "common.h"

namespace SKMIX_ISA {
namespace {

using skmix::Form;
using skmix::Model;
using skmix::Path;
using skmix::Rows;
using skmix::Rule;

constexpr double LOG_2_PI = 1.8378770664093454836, TINY = std::numeric_limits<double>::min();

class Climb {
   public:
    Climb(const Rows& rows, const Rule& rule, const Model& model)
        : rows_(rows),
          rule_(rule),
          model_(model),
          k_(model.n_kernels),
          c_(model.n_classes),
          m_(rows.n_features),
          of_matrix_(rule.is_matrix ? m_ * m_ : m_),
          n_second_(rule.is_matrix ? m_ * (m_ + 1) / 2 : m_),
          constants_(k_),
          log_weights_(k_ * c_),
          origins_(k_ * m_),
          mass_(k_ * c_),
          first_(k_ * m_),
          second_(k_ * n_second_),
          weights_(k_ * c_),
          means_(k_ * m_),
          covariances_(k_ * of_matrix_),
          whiteners_(k_ * of_matrix_),
          log_determinants_(k_),
          inflations_(k_),
          product_(m_) {}

    void run(int64_t most, Path& path) {
        while (path.n_passes < most && !path.is_done) {
            double* likelihood = path.likelihoods + path.n_passes * c_;
            expect(likelihood);
            double sum = 0.0;
            for (int64_t c = 0; c < c_; ++c) sum += likelihood[c];
            const double objective = sum + log_prior();
            if (!std::isfinite(objective) || (rule_.is_monotone && objective < path.objective) || !improve()) return;
            path.objectives[path.n_passes++] = objective;
            path.is_done = std::abs(sum - path.likelihood) < rule_.least_change;
            path.objective = objective;
            path.likelihood = sum;
            accept();
        }
    }

   private:
    void expect(double* likelihood) {
        bool is_near = !rule_.is_matrix;
        for (int64_t k = 0; k < k_; ++k) {
            constants_[k] = -0.5 * (model_.log_determinants[k] + static_cast<double>(m_) * LOG_2_PI);
            double length = 0.0;
            for (int64_t j = 0; j < m_ && !rule_.is_matrix; ++j) {
                const double white = model_.means[k * m_ + j] * model_.whiteners[k * m_ + j];
                length += white * white;
            }
            is_near = is_near && length <= rule_.farthest;
        }
        for (int64_t i = 0; i < k_ * c_; ++i) log_weights_[i] = std::log(model_.weights[i]);
        if (is_near) {
            std::fill(origins_.begin(), origins_.end(), 0.0);
        } else {
            std::copy_n(model_.means, k_ * m_, origins_.begin());
        }
        const Form form = rule_.is_matrix ? Form::triangular : is_near ? Form::products : Form::scaled;
        const auto pass =
            make_e_step(rows_,
                        {form, false, rule_.is_matrix, rule_.is_isotropic, 1, k_, c_, model_.means, model_.whiteners,
                         constants_.data(), log_weights_.data(), nullptr},
                        origins_.data(), {likelihood, mass_.data(), first_.data(), second_.data(), nullptr, nullptr});
        pass->work();
        pass->finish();
    }

    // The log-prior of the parameters that enter a pass, up to a constant.
    double log_prior() {
        double sum = 0.0;
        for (int64_t k = 0; k < k_ && rule_.prior_rows > 0.0; ++k) {
            const double* whitener = model_.whiteners + k * of_matrix_;
            double trace = 0.0;  // of the prior's covariance times the precision
            for (int64_t i = 0; i < m_; ++i) {
                if (!rule_.is_matrix) {
                    trace += whitener[i] * whitener[i] * rule_.prior_covariance[i];
                    continue;
                }
                const double* row = whitener + i * m_;
                std::fill(product_.begin(), product_.end(), 0.0);
                for (int64_t j = 0; j <= i; ++j) {
                    for (int64_t l = 0; l <= i; ++l) product_[l] += row[j] * rule_.prior_covariance[j * m_ + l];
                }
                for (int64_t l = 0; l <= i; ++l) trace += product_[l] * row[l];
            }
            sum -= 0.5 * rule_.prior_rows * (model_.log_determinants[k] + trace);
        }
        for (int64_t i = 0; i < k_ * c_ && rule_.weight_prior != 1.0; ++i) {
            sum += (rule_.weight_prior - 1.0) * std::log(std::max(model_.weights[i], TINY));
        }
        return sum;
    }

    // Do the M-step; return false where something is rare.
    bool improve() {
        for (int64_t k = 0; k < k_; ++k) {
            double mass = 0.0;
            for (int64_t c = 0; c < c_; ++c) mass += mass_[k * c_ + c];
            if (!(mass > rule_.least_mass)) return false;
            double* offset = &first_[k * m_];
            for (int64_t j = 0; j < m_; ++j) {
                offset[j] /= mass;
                means_[k * m_ + j] = origins_[k * m_ + j] + offset[j];
            }
            scatter(k, mass, offset);
        }
        return whiten() && are_precise() && weigh();
    }

    // Write the covariance of a kernel, and add the prior and the ridge.
    void scatter(int64_t k, double mass, const double* offset) {
        const double *second = &second_[k * n_second_], *prior = rule_.prior_covariance;
        const double total = mass + rule_.prior_rows;
        double* to = &covariances_[k * of_matrix_];
        const auto entry = [&](int64_t place, int64_t pair, int64_t i, int64_t j) {
            to[place] = (second[pair] - mass * offset[i] * offset[j] + rule_.prior_rows * prior[place]) / total;
            if (rule_.ridge != nullptr && i == j) to[place] += rule_.ridge[i];
        };
        for (int64_t pair = 0; pair < n_second_; ++pair) {
            const int64_t i = pair % m_, j = rule_.is_matrix ? (i + pair / m_) % m_ : i;
            entry(rule_.is_matrix ? i * m_ + j : i, pair, i, j);
            if (rule_.is_matrix) entry(j * m_ + i, pair, j, i);
        }
    }

    // Write the whiteners; return false where a covariance is below its floor or loses digits.
    bool whiten() {
        if (rule_.is_matrix) {
            std::vector<char, Aligned<char>> is_positive(k_);
            make_whitening(covariances_.data(), k_, m_, rule_.singular,
                           {whiteners_.data(), log_determinants_.data(), reinterpret_cast<bool*>(is_positive.data()),
                            inflations_.data()})
                ->work();
            for (int64_t k = 0; k < k_; ++k) {
                if (!is_positive[k] || inflations_[k] > rule_.inflated) return false;
            }
            return are_above_floor();
        }
        double least_of_all = 0.0;
        for (int64_t j = 0; j < m_; ++j) least_of_all += rule_.floor[j] / static_cast<double>(m_);
        for (int64_t k = 0; k < k_; ++k) {
            double *variances = &covariances_[k * m_], mean = 0.0;
            for (int64_t j = 0; j < m_; ++j) mean += variances[j] / static_cast<double>(m_);
            log_determinants_[k] = 0.0;
            for (int64_t j = 0; j < m_; ++j) {
                if (rule_.is_isotropic) variances[j] = mean;
                variances[j] = std::max(variances[j], rule_.is_isotropic ? least_of_all : rule_.floor[j]);
                if (!(variances[j] >= TINY && variances[j] < INF)) return false;
                whiteners_[k * m_ + j] = 1.0 / std::sqrt(variances[j]);
                log_determinants_[k] += std::log(variances[j]);
            }
        }
        return true;
    }

    // A trace of floor times precision below one proves that no eigenvalue is below the floor.
    bool are_above_floor() const {
        if (std::any_of(rule_.floor, rule_.floor + m_, [](double least) { return least <= 0.0; })) return true;
        for (int64_t k = 0; k < k_; ++k) {
            double trace = 0.0;
            for (int64_t i = 0; i < m_ * m_; ++i) {
                const double number = whiteners_[k * m_ * m_ + i];
                trace += number * number * rule_.floor[i % m_];
            }
            if (!(trace < 1.0)) return false;
        }
        return true;
    }

    // Whether no kernel is too narrow for the offset of its mean.
    bool are_precise() const {
        for (int64_t k = 0; k < k_; ++k) {
            for (int64_t j = 0; j < m_; ++j) {
                double precision = 0.0;
                for (int64_t i = j; i < of_matrix_; i += m_) {
                    const double number = whiteners_[k * of_matrix_ + i];
                    precision += number * number;
                }
                const double offset = first_[k * m_ + j];
                if (offset * offset / rule_.cancellation > 1.0 / precision) return false;
            }
        }
        return true;
    }

    bool weigh() {
        for (int64_t c = 0; c < c_; ++c) {
            double size = 0.0;
            for (int64_t k = 0; k < k_; ++k) {
                const double mass = mass_[k * c_ + c];
                weights_[k * c_ + c] = (mass > rule_.least_mass ? mass : 0.0) + (rule_.weight_prior - 1.0);
                size += weights_[k * c_ + c];
            }
            if (!(size >= TINY)) return false;
            for (int64_t k = 0; k < k_; ++k) weights_[k * c_ + c] /= size;
        }
        return true;
    }

    void accept() {
        std::copy(weights_.begin(), weights_.end(), model_.weights);
        std::copy(means_.begin(), means_.end(), model_.means);
        std::copy(covariances_.begin(), covariances_.end(), model_.covariances);
        std::copy(whiteners_.begin(), whiteners_.end(), model_.whiteners);
        std::copy(log_determinants_.begin(), log_determinants_.end(), model_.log_determinants);
    }

    Rows rows_;
    Rule rule_;
    Model model_;
    int64_t k_, c_, m_, of_matrix_, n_second_;
    Numbers constants_, log_weights_, origins_;                                          // of the E-step
    Numbers mass_, first_, second_;                                                      // its sums
    Numbers weights_, means_, covariances_, whiteners_, log_determinants_, inflations_;  // after the M-step
    Numbers product_;
};

}  // namespace

void climb(const Rows& rows, const Rule& rule, const Model& model, int64_t most, Path& path) {
    Climb(rows, rule, model).run(most, path);
}

}  // namespace SKMIX_ISA
