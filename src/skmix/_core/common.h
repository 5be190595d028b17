// What the files of one instruction set share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "core.h"
#include "vec.h"

namespace SKMIX_ISA {

constexpr double INF = std::numeric_limits<double>::infinity();

inline int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
inline int64_t padded(int64_t n) { return rounded_up(n, LANES); }

// Memory that begins at a cache line, where vector instructions are twice as fast.
template <class T>
struct Aligned {
    using value_type = T;
    Aligned() = default;
    template <class U>
    Aligned(const Aligned<U>&) {}
    T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64))); }
    void deallocate(T* p, std::size_t) { ::operator delete(p, std::align_val_t(64)); }
    template <class U>
    bool operator==(const Aligned<U>&) const {
        return true;
    }
    template <class U>
    bool operator!=(const Aligned<U>&) const {
        return false;
    }
};
using Numbers = std::vector<double, Aligned<double>>;
// With an allocator of this instruction set: the linker takes one copy of a function, whichever set it is for.
using Places = std::vector<int64_t, Aligned<int64_t>>;

// What the other files define; `functions.cpp` lists them.
std::unique_ptr<skmix::Pass> make_e_step(const skmix::Rows&, const skmix::Kernels&, const double* origins,
                                         const skmix::Sums&);
std::unique_ptr<skmix::Pass> make_log_densities(const skmix::Rows&, const skmix::Kernels&, const double* mixing,
                                                int64_t n_mixtures, double* out);
std::unique_ptr<skmix::Pass> make_lloyd(const skmix::Rows&, const double* centres, int64_t n_centres, int64_t* nearest,
                                        double* sums);
std::unique_ptr<skmix::Pass> make_whitening(const double* matrices, int64_t n_matrices, int64_t n_features,
                                            double singular, const skmix::Whitened&);
std::unique_ptr<skmix::Completion> make_completion(const skmix::Gaps&, const double* covariances, int64_t n_covariances,
                                                   const double* means, int64_t n_means, const skmix::Completed&);
std::unique_ptr<skmix::Pass> make_error_pass(const skmix::ErrorRows&, const skmix::ErrorKernels&,
                                             const skmix::ErrorSums&);
std::unique_ptr<skmix::Pass> make_comparison(const skmix::Groups&, const skmix::Comparison&, const skmix::Compared&);
void climb(const skmix::Rows&, const skmix::Rule&, const skmix::Model&, int64_t most, skmix::Path&);

}  // namespace SKMIX_ISA
