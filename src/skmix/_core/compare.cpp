// Two Gaussians compared with one, for the rows of a kernel or of a pair of kernels: `starts/exchange.py` has the
// mathematics. A group's rows are held feature by feature.

#include <numeric>

#include "common.h"
#include "products.h"

namespace SKMIX_ISA {
namespace {

using skmix::Compared;
using skmix::Comparison;
using skmix::Groups;

constexpr double TINY = std::numeric_limits<double>::min();

struct Gaussian {
    double mass;
    double *mean, *covariance;  // where the results are
    Numbers whitener;
    double log_determinant;
};

class Comparing final : public skmix::Pass {
   public:
    Comparing(const Groups& groups, const Comparison& comparison, const Compared& out)
        : groups_(groups),
          comparison_(comparison),
          out_(out),
          m_(groups.n_features),
          of_matrix_(comparison.is_matrix ? m_ * m_ : m_),
          width_(rounded_up(groups.size, 4 * LANES)) {
        n_tasks = groups.n_groups;
    }

    void work() override {
        Scratch s(m_, of_matrix_, width_);
        for (int64_t b; (b = next.fetch_add(1, std::memory_order_relaxed)) < n_tasks;) compare(b, s);
    }

    void finish() override {}

   private:
    struct Scratch {
        Numbers x, about, weighted, white;     // (M, width): rows, differences from a mean, times mass, whitened
        Numbers mass, shares, joint[2], part;  // (width,): of the rows
        Places rows;                           // the rows of the group
        Numbers totals;                        // their responsibilities
        Numbers direction;                     // (M,)
        Gaussian one, two[2];

        Scratch(int64_t m, int64_t of_matrix, int64_t width)
            : x(m * width),
              about(m * width),
              weighted(m * width),
              white(m * width),
              mass(width),
              shares(width),
              joint{Numbers(width), Numbers(width)},
              part(width),
              direction(m) {
            for (Gaussian* gaussian : {&one, &two[0], &two[1]}) gaussian->whitener.resize(of_matrix);
        }
    };

    void compare(int64_t b, Scratch& s) {
        Gaussian* all[] = {&s.one, &s.two[0], &s.two[1]};
        for (int64_t i = 0; i < 3; ++i) {
            all[i]->mean = out_.means + (3 * b + i) * m_;
            all[i]->covariance = out_.covariances + (3 * b + i) * of_matrix_;
        }
        gather(b, s);
        fit(s.mass.data(), s.one, s);
        if (comparison_.n_steps > 0) {
            add_log_densities(s.one, s, s.joint[0]);
            double before = 0.0, after = 0.0;
            for (int64_t r = 0; r < width_; ++r) before += s.mass[r] * s.joint[0][r];
            if (groups_.kernels[2 * b + 1] < 0) part_across(s);
            for (int64_t step = 0; step < comparison_.n_steps; ++step) after = improve(s);
            const double gain = after - before;
            out_.gains[b] = std::isnan(gain) ? -INF : gain;
        }
        for (int64_t i = 0; i < 3; ++i) out_.masses[3 * b + i] = i > 0 && !comparison_.n_steps ? 0.0 : all[i]->mass;
    }

    // Take the rows of a group; of many rows some stand for all, and count more.
    void gather(int64_t b, Scratch& s) const {
        const int64_t *kernels = groups_.kernels + 2 * b, n = groups_.n_rows;
        const double* first = groups_.responsibilities + kernels[0] * n;
        const double* second = kernels[1] < 0 ? nullptr : groups_.responsibilities + kernels[1] * n;
        s.rows.resize(n + 1);
        s.totals.resize(n + 1);
        int64_t n_all = 0;
        double all = 0.0;
        // Without a branch, which processors would often foresee wrongly.
        for (int64_t i = 0; i < n; ++i) {
            const double total = second == nullptr ? first[i] : first[i] + second[i];
            const bool is_member = total > comparison_.least_share;
            s.rows[n_all] = i;
            s.totals[n_all] = total;
            all += is_member ? total : 0.0;
            n_all += is_member;
        }
        const int64_t count = std::min(n_all, groups_.size);
        double chosen = 0.0;
        std::fill(s.mass.begin(), s.mass.end(), 0.0);
        std::fill(s.shares.begin(), s.shares.end(), 0.0);
        std::fill(s.x.begin(), s.x.end(), 0.0);
        for (int64_t r = 0; r < count; ++r) {
            const int64_t place = r * n_all / count, row = s.rows[place];
            for (int64_t j = 0; j < m_; ++j) s.x[j * width_ + r] = groups_.x[row * m_ + j];
            s.mass[r] = s.totals[place];
            s.shares[r] = first[row] / std::max(s.totals[place], TINY);
            chosen += s.mass[r];
        }
        for (int64_t r = 0; r < count; ++r) s.mass[r] *= all / std::max(chosen, TINY);
    }

    // Write the Gaussian of rows that count as `mass`.
    void fit(const double* mass, Gaussian& gaussian, Scratch& s) const {
        V sum{};
        for (int64_t r = 0; r < width_; r += LANES) sum = sum + load(mass + r);
        gaussian.mass = total(sum);
        for (int64_t j = 0; j < m_; ++j) {
            const double* x = &s.x[j * width_];
            V first{};
            for (int64_t r = 0; r < width_; r += LANES) first = fma(load(mass + r), load(x + r), first);
            gaussian.mean[j] = total(first) / std::max(gaussian.mass, TINY);
        }
        double* covariance = gaussian.covariance;
        if (comparison_.is_fixed) {
            std::fill_n(covariance, m_, 1.0);
            return;
        }
        subtract(gaussian.mean, s);
        std::fill_n(covariance, of_matrix_, 0.0);
        for (int64_t j = 0; j < m_; ++j) {
            V second{};
            for (int64_t r = 0; r < width_; r += LANES) {
                const V ahead = load(&s.about[j * width_ + r]), weighted = load(mass + r) * ahead;
                store(&s.weighted[j * width_ + r], weighted);
                second = fma(weighted, ahead, second);
            }
            if (!comparison_.is_matrix) covariance[j] = total(second);
        }
        if (comparison_.is_matrix) {
            multiply_transposed(s.weighted.data(), m_, s.about.data(), m_, width_, width_, covariance);
        }
        const double rows = comparison_.prior_rows;
        for (int64_t i = 0; i < of_matrix_; ++i) {
            covariance[i] = (covariance[i] + rows * comparison_.common[i]) / std::max(gaussian.mass + rows, TINY);
        }
        if (comparison_.is_isotropic) {
            std::fill_n(covariance, m_, std::accumulate(covariance, covariance + m_, 0.0) / static_cast<double>(m_));
        }
    }

    void subtract(const double* mean, Scratch& s) const {
        for (int64_t j = 0; j < m_; ++j) {
            for (int64_t r = j * width_; r < (j + 1) * width_; r += LANES) {
                store(&s.about[r], load(&s.x[r]) - splat(mean[j]));
            }
        }
    }

    // Write the squared lengths of differences, whitened.
    void measure(const double* whitener, Scratch& s, Numbers& lengths) const {
        std::fill(s.white.begin(), s.white.end(), 0.0);
        if (comparison_.is_matrix) {
            multiply(whitener, m_, s.about.data(), width_, s.white.data(), m_);
        } else {
            for (int64_t i = 0; i < m_ * width_; ++i) s.white[i] = whitener[i / width_] * s.about[i];
        }
        std::fill(lengths.begin(), lengths.end(), 0.0);
        for (int64_t i = 0; i < m_; ++i) {
            for (int64_t r = 0; r < width_; r += LANES) {
                const V white = load(&s.white[i * width_ + r]);
                store(&lengths[r], fma(white, white, load(&lengths[r])));
            }
        }
    }

    // Write log-densities, up to a constant.
    void add_log_densities(Gaussian& gaussian, Scratch& s, Numbers& out) const {
        if (comparison_.is_matrix) {
            bool is_positive;
            double inflation;
            make_whitening(gaussian.covariance, 1, m_, comparison_.singular,
                           {gaussian.whitener.data(), &gaussian.log_determinant, &is_positive, &inflation})
                ->work();
        } else {
            gaussian.log_determinant = 0.0;
            for (int64_t j = 0; j < m_; ++j) {
                const double variance = std::max(gaussian.covariance[j], TINY);
                gaussian.whitener[j] = 1.0 / std::sqrt(variance);
                gaussian.log_determinant += std::log(variance);
            }
        }
        subtract(gaussian.mean, s);
        measure(gaussian.whitener.data(), s, out);
        for (double& value : out) value = -0.5 * (value + gaussian.log_determinant);
    }

    // Part the rows across the direction of largest spread in units of the common covariance.
    void part_across(Scratch& s) const {
        subtract(s.one.mean, s);
        measure(comparison_.whitener, s, s.part);
        int64_t farthest = 0;
        for (int64_t r = 0; r < width_; ++r) {
            if (s.part[r] * s.mass[r] > s.part[farthest] * s.mass[farthest]) farthest = r;
        }
        for (int64_t j = 0; j < m_; ++j) s.direction[j] = s.white[j * width_ + farthest];
        for (int64_t step = 0; step < comparison_.n_power_steps; ++step) {
            project(s);
            double length = 0.0;
            for (int64_t j = 0; j < m_; ++j) {
                V sum{};
                for (int64_t r = 0; r < width_; r += LANES) {
                    sum = fma(load(&s.white[j * width_ + r]), load(&s.mass[r]) * load(&s.part[r]), sum);
                }
                s.direction[j] = total(sum);
                length += s.direction[j] * s.direction[j];
            }
            for (double& number : s.direction) number /= std::max(std::sqrt(length), TINY);
        }
        project(s);
        double variance = 0.0;
        for (int64_t r = 0; r < width_; ++r) variance += s.mass[r] * s.part[r] * s.part[r];
        const double deviation = std::sqrt(variance / std::max(s.one.mass, TINY));
        for (int64_t r = 0; r < width_; ++r) {
            const double steep = comparison_.steepness * s.part[r] / std::max(deviation, TINY);
            s.shares[r] = 1.0 / (1.0 + std::exp(-std::clamp(steep, -comparison_.steepest, comparison_.steepest)));
        }
    }

    // Write the whitened rows along the direction.
    void project(Scratch& s) const {
        std::fill(s.part.begin(), s.part.end(), 0.0);
        for (int64_t j = 0; j < m_; ++j) {
            for (int64_t r = 0; r < width_; r += LANES) {
                store(&s.part[r], fma(splat(s.direction[j]), load(&s.white[j * width_ + r]), load(&s.part[r])));
            }
        }
    }

    // Do a step of EM for two Gaussians; return the log-likelihood.
    double improve(Scratch& s) const {
        for (int64_t i = 0; i < 2; ++i) {
            for (int64_t r = 0; r < width_; ++r) s.part[r] = s.mass[r] * (i == 0 ? s.shares[r] : 1.0 - s.shares[r]);
            fit(s.part.data(), s.two[i], s);
        }
        mix(s.two[0], s.two[1]);
        for (int64_t i = 0; i < 2; ++i) {
            add_log_densities(s.two[i], s, s.joint[i]);
            const double log_share = std::log(std::max(s.two[i].mass, TINY) / std::max(s.one.mass, TINY));
            for (double& value : s.joint[i]) value += log_share;
        }
        V sum{};
        for (int64_t r = 0; r < width_; r += LANES) {
            const V a = load(&s.joint[0][r]), b = load(&s.joint[1][r]), highest = larger(a, b);
            const V one = exp(a - highest), all = one + exp(b - highest);
            sum = fma(load(&s.mass[r]), highest + log(all), sum);
            store(&s.shares[r], one / all);
        }
        return total(sum);
    }

    // Mix into the covariance of each Gaussian that of both.
    void mix(Gaussian& one, Gaussian& other) const {
        if (comparison_.is_fixed) return;
        const double rows = comparison_.pair_rows;
        const double a = std::max(one.mass, comparison_.least_mass), b = std::max(other.mass, comparison_.least_mass);
        for (int64_t i = 0; i < of_matrix_; ++i) {
            const double of_pair = (a * one.covariance[i] + b * other.covariance[i]) / (a + b);
            one.covariance[i] = (a * one.covariance[i] + rows * of_pair) / (a + rows);
            other.covariance[i] = (b * other.covariance[i] + rows * of_pair) / (b + rows);
        }
    }

    Groups groups_;
    Comparison comparison_;
    Compared out_;
    int64_t m_, of_matrix_, width_;
};

}  // namespace

std::unique_ptr<skmix::Pass> make_comparison(const Groups& groups, const Comparison& comparison, const Compared& out) {
    return std::make_unique<Comparing>(groups, comparison, out);
}

}  // namespace SKMIX_ISA
