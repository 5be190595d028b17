// What the core computes, in plain arrays. Arrays are float64 and in C order unless said otherwise; N rows have
// M features, and R starts have K kernels and C classes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace skmix {

// Complete rows and their frame: coordinates x * scale - shift, clipped to +- limit.
struct Rows {
    const void* x;                   // (N, M), float64 or float32
    bool is_single;                  // whether they are float32
    int64_t n_rows, n_features;      // N and M
    int64_t row_step, feature_step;  // strides, in numbers
    const int32_t* codes;            // (N,): class of each row, below C; null for one class
    const double* weights;           // (N,): positive; null where all are one
    const double* scale;             // (M,)
    const double* shift;             // (M,)
    double limit;
};

// How the log-density of a kernel is computed.
enum class Form {
    triangular,  // differences from the mean are whitened by a lower triangular matrix (M, M)
    scaled,      // differences from the mean are divided by deviations (M,)
    products     // products of coefficients with the rows' features and squares, for all kernels at once
};

// The kernels of R starts, in the frame of the rows.
struct Kernels {
    Form form;
    bool is_tied;       // whether the kernels of a start have the same covariance, one matrix
    bool is_matrix;     // whether whiteners are matrices
    bool is_isotropic;  // whether all features have the same variance, which products need once only
    int64_t n_starts, n_kernels, n_classes;
    const double* means;        // (R, K, M)
    const double* whiteners;    // (R, K, M, M) or (R, K, M); (R, 1, ...) if tied
    const double* constants;    // (R, K): log-densities at the means
    const double* log_weights;  // (R, K, C)
    const double* degrees;      // (R, K): degrees of freedom of t kernels; null for Gaussian ones
};

// Sums over rows. The second moments of a kernel are S numbers: if the form is triangular, M (M + 1) / 2 of pairs of
// features (j, j + d mod M), for d = 0, 1, ...; else M. For tied kernels as products there are none.
struct Sums {
    double* likelihood;  // (R, C)
    double* mass;        // (R, K, C)
    double* first;       // (R, K, M): moments about the origins
    double* second;      // (R, K, S)
    double* precisions;  // (R, K): E[u] of t kernels
    double* log_ratios;  // (R, K): log(1 + d^2 / degrees) of t kernels
};

// Work over all rows, in tasks that do not depend on the number of threads: results have the same bits for any.
class Pass {
   public:
    virtual ~Pass() = default;
    // Do tasks until none is left. Threads may call this together.
    virtual void work() = 0;
    // Write the results, once all threads have returned from `work`.
    virtual void finish() = 0;

    int64_t n_tasks = 0;

   protected:
    std::atomic<int64_t> next{0};
};

// Lower triangular whiteners W with W P W' = 1 of symmetric matrices P.
struct Whitened {
    double* whiteners;         // (B, M, M); the identity where a matrix is not positive definite
    double* log_determinants;  // (B,); zero there
    bool* is_positive;         // (B,): whether all pivots are above `singular` times the diagonal
    double* inflations;        // (B,): the largest variance inflation, P_ii (P^-1)_ii
};

// Rows with gaps, ordered by P patterns, that are completed under kernels.
struct Gaps {
    int64_t n_rows, n_features, n_patterns;
    const double* x;         // (N, M)
    const int64_t* first;    // (P + 1,): first row of each pattern
    const int64_t* orders;   // (P, M): features, the known ones first
    const int64_t* n_known;  // (P,): how many are known
};

// The completion of rows with gaps under F covariances, of G kernels each.
class Completion {
   public:
    virtual ~Completion() = default;
    virtual void complete() = 0;
    // Add the remaining covariances of the gaps, times the mass (F, P) of rows, to matrices (F, M, M).
    virtual void add_remaining(const double* mass, double* out) const = 0;
};

struct Completed {
    double* distances;         // (F, G, N): squared, of the known values
    double* log_determinants;  // (F, P): of their covariances
    double* ahead;             // (F, G, N, M): expected differences from the means; null if not needed
};

// Rows with errors of known variances, in the coordinates of the kernels.
struct ErrorRows {
    int64_t n_rows, n_features;
    const double* x;          // (N, M): zero where a value is missing
    const double* variances;  // (N, M): of the errors; infinite where a value is missing
    const int64_t* codes;     // (N,): class of each row, below C; null for one class
    const double* weights;    // (N,): positive; null where all are one
};

struct ErrorKernels {
    bool is_matrix;  // whether covariances are matrices
    int64_t n_starts, n_kernels, n_classes;
    const double* means;        // (R, K, M)
    const double* covariances;  // (R, K, M, M), or (R, K, M) of independent features
    const double* log_weights;  // (R, K, C)
};

// Sums over rows of responsibilities r, with T = P + S and u = T^-1 (x - mu); or the log-joints alone.
struct ErrorSums {
    double* likelihood;  // (R, C)
    double* mass;        // (R, K, C)
    double* first;       // (R, K, M): of r u; null if moments are not needed
    double* second;      // (R, K, M (M + 1) / 2) or (R, K, M): of r (u u' - T^-1), the lower triangle row by row
    double* densities;   // (N, K), of one start; null if sums are needed
};

// The M-step of EM for Gaussian kernels with covariances of their own, in the frame of the rows.
struct Rule {
    bool is_matrix;                  // whether kernels have full covariances
    bool is_isotropic;               // otherwise: whether all features have the same variance
    bool is_monotone;                // whether no pass lowers the objective
    const double* floor;             // (M,): least variances
    const double* ridge;             // (M,): added to variances; null for none
    double prior_rows;               // of the covariances
    const double* prior_covariance;  // (M, M), or (M,) if kernels have no matrices
    double weight_prior;             // concentration; 1 for none
    double least_mass;               // of a kernel that is not empty
    double singular, inflated;       // as for whiteners, and the largest variance inflation
    double cancellation;             // largest ratio of a squared offset to a variance
    double farthest;                 // squared distance of means from zero up to which products are precise
    double least_change;             // of the log-likelihood: passes end with a smaller one
};

// The parameters that enter a pass, which overwrites them.
struct Model {
    int64_t n_kernels, n_classes;
    double* weights;           // (K, C)
    double* means;             // (K, M)
    double* covariances;       // (K, M, M) or (K, M)
    double* whiteners;         // as large
    double* log_determinants;  // (K,)
};

// What passes record of the parameters that enter them.
struct Path {
    double* likelihoods;           // (passes, C)
    double* objectives;            // (passes,)
    double objective, likelihood;  // of the last pass; before the first, of the one before
    int64_t n_passes;
    bool is_done;  // whether the log-likelihood changed by less than it should
};

// Rows in B groups: those of a kernel, or of two kernels.
struct Groups {
    int64_t n_rows, n_features, n_groups;
    int64_t size;                    // most rows of a group that are looked at
    const double* x;                 // (N, M)
    const double* responsibilities;  // (K, N)
    const int64_t* kernels;          // (B, 2): the second one is -1 in groups of one kernel
};

// How two Gaussians are compared with one, see `starts/exchange.py`.
struct Comparison {
    bool is_matrix, is_isotropic;    // as in `Rule`
    bool is_fixed;                   // whether all covariances stay the identity
    const double* common;            // (M, M) or (M,): common covariance
    const double* whitener;          // as large
    double prior_rows, pair_rows;    // of the common covariance, and of the one of both
    int64_t n_steps, n_power_steps;  // of EM, and of the power method
    double steepness, steepest, least_share, least_mass, singular;
};

// For each group the Gaussian of all rows, and the two.
struct Compared {
    double* gains;        // (B,)
    double* masses;       // (B, 3)
    double* means;        // (B, 3, M)
    double* covariances;  // (B, 3, M, M) or (B, 3, M)
};

// The functions of one instruction set.
struct Functions {
    // The E-step; origins of the moments are (R, K, M), null if the moments are not needed.
    std::unique_ptr<Pass> (*e_step)(const Rows&, const Kernels&, const double* origins, const Sums&);
    // Log-densities (N, K) of the kernels of one start, or of their mixtures (N, L) with weights (K, L).
    std::unique_ptr<Pass> (*log_densities)(const Rows&, const Kernels&, const double* mixing, int64_t n_mixtures,
                                           double* out);
    // The nearest of K centres (K, M), the first of equally near ones, of each row: (N,). Also the sums (K, M + 1) of
    // the rows nearest to each centre, and of their weights.
    std::unique_ptr<Pass> (*lloyd)(const Rows&, const double* centres, int64_t n_centres, int64_t* nearest,
                                   double* sums);
    // Whiteners of matrices (B, M, M).
    std::unique_ptr<Pass> (*whiten)(const double* matrices, int64_t n_matrices, int64_t n_features, double singular,
                                    const Whitened&);
    // Rows with gaps under kernels with covariances (F, M, M) and means (F, G, M).
    std::unique_ptr<Completion> (*complete)(const Gaps&, const double* covariances, int64_t n_covariances,
                                            const double* means, int64_t n_means, const Completed&);
    // The E-step of rows with errors, or their log-densities.
    std::unique_ptr<Pass> (*error_pass)(const ErrorRows&, const ErrorKernels&, const ErrorSums&);
    // Two Gaussians of groups, compared with one.
    std::unique_ptr<Pass> (*compare)(const Groups&, const Comparison&, const Compared&);
    // Passes of EM, at most so many, until one is done or would be unusual.
    void (*climb)(const Rows&, const Rule&, const Model&, int64_t most, Path&);
};

}  // namespace skmix
