// The module that Python imports: typed arguments, checks of their shapes, and the choice of the instruction set.
//
// Functions that begin work over many rows or matrices return a Pass: call `work` in one or more threads, then
// `finish`, which returns the results. While they work, other Python threads run.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#if defined(SKMIX_X86)
#include <cpuid.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core.h"

namespace nb = nanobind;
using namespace nb::literals;

// One namespace for each instruction set that this module was built for.
#define SKMIX_DECLARE(isa)                   \
    namespace isa {                          \
    extern const skmix::Functions FUNCTIONS; \
    }
SKMIX_DECLARE(skmix_baseline)
#if defined(SKMIX_X86)
SKMIX_DECLARE(skmix_avx2)
SKMIX_DECLARE(skmix_avx512)
#endif

namespace {

template <class T, int N>
using In = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <int N>
using Numbers = In<double, N>;
template <int N>
using Codes = In<int64_t, N>;
using AnyRows = nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu>;
using AnyNumbers = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<nb::numpy, T, nb::c_contig>;
using Shape = std::initializer_list<int64_t>;

// ---------------------------------------------------------------- instruction sets

std::atomic<const skmix::Functions*> functions;

// How many of the instruction sets below the processor has, and the operating system saves the registers of.
// `__builtin_cpu_supports` would need a library with clang-cl.
int n_present() {
#if defined(SKMIX_X86)
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 1;
    const unsigned osxsave = 1u << 27, avx_fma = 1u << 28 | 1u << 12;
    if ((c & (osxsave | avx_fma)) != (osxsave | avx_fma)) return 1;
    unsigned saved, high;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    const unsigned avx2 = 1u << 5, avx512_f_dq_vl = 1u << 16 | 1u << 17 | 1u << 31;
    if ((saved & 0x6) != 0x6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & avx2)) return 1;
    return (b & avx512_f_dq_vl) == avx512_f_dq_vl && (saved & 0xe6) == 0xe6 ? 3 : 2;
#else
    return 1;
#endif
}

constexpr struct {
    const char* name;
    const skmix::Functions* functions;
} INSTRUCTION_SETS[] = {
#if defined(__aarch64__)
    {"neon", &skmix_baseline::FUNCTIONS},
#else
    {"baseline", &skmix_baseline::FUNCTIONS},
#endif
#if defined(SKMIX_X86)
    {"avx2", &skmix_avx2::FUNCTIONS},
    {"avx512", &skmix_avx512::FUNCTIONS},
#endif
};

// Use an instruction set, by default the best that the processor has; return its name.
std::string use(const std::optional<std::string>& name) {
    for (int i = n_present() - 1; i >= 0; --i) {
        if (name && *name != INSTRUCTION_SETS[i].name) continue;
        functions = INSTRUCTION_SETS[i].functions;
        return INSTRUCTION_SETS[i].name;
    }
    throw std::invalid_argument("This processor does not have the instruction set " + *name + ".");
}

// ---------------------------------------------------------------- checks and arrays

[[noreturn]] void refuse(const std::string& problem) { throw std::invalid_argument(problem); }

template <class Array>
void check_shape(const char* name, const Array& array, Shape expected) {
    std::string shape, expected_shape;
    for (size_t i = 0; i < array.ndim(); ++i) shape += std::to_string(array.shape(i)) + ", ";
    for (int64_t size : expected) expected_shape += std::to_string(size) + ", ";
    if (shape != expected_shape)
        refuse(std::string(name) + " must have the shape (" + expected_shape + "), got (" + shape + ").");
    if (array.size() > 0 && reinterpret_cast<uintptr_t>(array.data()) % array.itemsize() != 0) {
        refuse(std::string(name) + " is not aligned in memory: its address is no multiple of its numbers' size.");
    }
}

// A new array of zeros. The system sets its pages to zero when they are first written, by whichever thread.
template <class T = double>
Out<T> zeros(Shape shape) {
    std::vector<size_t> sizes(shape.begin(), shape.end());
    size_t n = 1;
    for (size_t size : sizes) {
        if (__builtin_mul_overflow(n, size, &n)) throw std::bad_alloc();
    }
    void* data = std::calloc(std::max<size_t>(n, 1), sizeof(T));
    if (data == nullptr) throw std::bad_alloc();
    nb::capsule owner(data, [](void* p) noexcept { std::free(p); });
    return Out<T>(data, sizes.size(), sizes.data(), owner);
}

// ---------------------------------------------------------------- rows and kernels

struct Rows {
    AnyRows x;
    std::optional<Numbers<1>> weights;
    Numbers<1> scale, shift;
    std::vector<int32_t> codes;  // a copy: codes must stay as they were checked
    int64_t n_classes;
    skmix::Rows rows;

    Rows(AnyRows x_, const std::optional<Codes<1>>& codes_, std::optional<Numbers<1>> weights_, Numbers<1> scale_,
         Numbers<1> shift_, double limit, int64_t n_classes_)
        : x(std::move(x_)),
          weights(std::move(weights_)),
          scale(std::move(scale_)),
          shift(std::move(shift_)),
          n_classes(n_classes_) {
        const int64_t n = x.shape(0), m = x.shape(1);
        const bool is_single = x.dtype() == nb::dtype<float>();
        if (!is_single && x.dtype() != nb::dtype<double>()) throw nb::type_error("X must be float64 or float32.");
        if (m < 1 || n_classes < 1 || n_classes > INT32_MAX) refuse("There must be a feature and a class.");
        if (!codes_ && n_classes > 1) refuse("Rows of several classes need codes.");
        check_shape("X", x, {n, m});
        check_shape("scale", scale, {m});
        check_shape("shift", shift, {m});
        if (weights) check_shape("weights", *weights, {n});
        if (codes_) {
            check_shape("codes", *codes_, {n});
            codes.resize(n);
        }
        for (int64_t i = 0; codes_ && i < n; ++i) {
            const int64_t code = codes_->data()[i];
            if (code < 0 || code >= n_classes) {
                const std::string problem = "Row " + std::to_string(i) + " has the class code " + std::to_string(code) +
                                            ", but there are " + std::to_string(n_classes) + " classes.";
                throw nb::index_error(problem.c_str());
            }
            codes[i] = static_cast<int32_t>(code);
        }
        rows = {x.data(),
                is_single,
                n,
                m,
                x.stride(0),
                x.stride(1),
                codes.data(),
                weights ? weights->data() : nullptr,
                scale.data(),
                shift.data(),
                limit};
    }
};

struct Kernels {
    Numbers<3> means;
    nb::ndarray<const double, nb::c_contig, nb::device::cpu> whiteners;
    Numbers<2> constants;
    Numbers<3> log_weights;
    std::optional<Numbers<2>> degrees;
    skmix::Kernels kernels;

    Kernels(bool is_product, bool is_isotropic, Numbers<3> means_, decltype(whiteners) whiteners_,
            Numbers<2> constants_, Numbers<3> log_weights_, std::optional<Numbers<2>> degrees_)
        : means(std::move(means_)),
          whiteners(std::move(whiteners_)),
          constants(std::move(constants_)),
          log_weights(std::move(log_weights_)),
          degrees(std::move(degrees_)) {
        const int64_t r = means.shape(0), k = means.shape(1), m = means.shape(2), c = log_weights.shape(2);
        if (r < 1 || k < 1 || m < 1 || c < 1) refuse("There must be a kernel.");
        const bool is_matrix = whiteners.ndim() == 4, is_tied = is_matrix && whiteners.shape(1) == 1;
        if (is_matrix) {
            check_shape("whiteners", whiteners, {r, is_tied ? 1 : k, m, m});
        } else {
            check_shape("whiteners", whiteners, {r, k, m});
        }
        check_shape("means", means, {r, k, m});
        check_shape("constants", constants, {r, k});
        check_shape("log_weights", log_weights, {r, k, c});
        if (degrees) check_shape("degrees", *degrees, {r, k});
        if (is_product && (degrees || (is_matrix && !is_tied))) {
            refuse("Products are for Gaussian kernels, diagonal or tied.");
        }
        const skmix::Form form = is_product  ? skmix::Form::products
                                 : is_matrix ? skmix::Form::triangular
                                             : skmix::Form::scaled;
        kernels = {form,
                   is_tied,
                   is_matrix,
                   is_isotropic,
                   r,
                   k,
                   c,
                   means.data(),
                   whiteners.data(),
                   constants.data(),
                   log_weights.data(),
                   degrees ? degrees->data() : nullptr};
    }
};

void check_together(const Rows& rows, const Kernels& kernels, int64_t n_classes) {
    const int64_t m = kernels.means.shape(2);
    if (rows.rows.n_features == m && kernels.kernels.n_classes == n_classes) return;
    refuse("Rows have " + std::to_string(rows.rows.n_features) + " features and " + std::to_string(n_classes) +
           " classes, kernels " + std::to_string(m) + " and " + std::to_string(kernels.kernels.n_classes) + ".");
}

// ---------------------------------------------------------------- passes

struct Pass {
    std::unique_ptr<skmix::Pass> pass;
    nb::tuple arguments, results;  // what `pass` reads and writes

    void work() const {
        nb::gil_scoped_release released;
        pass->work();
    }

    nb::tuple finish() const {
        {
            nb::gil_scoped_release released;
            pass->finish();
        }
        return results;
    }
};

Pass e_step(const Rows& rows, const Kernels& kernels, const std::optional<Numbers<3>>& origins) {
    check_together(rows, kernels, rows.n_classes);
    const skmix::Kernels& k = kernels.kernels;
    const int64_t r = k.n_starts, n = k.n_kernels, c = k.n_classes, m = rows.rows.n_features;
    if (origins) check_shape("origins", *origins, {r, n, m});
    if (origins && k.form == skmix::Form::products &&
        std::any_of(origins->data(), origins->data() + r * n * m, [](double number) { return number != 0.0; })) {
        refuse("Products have moments about zero.");
    }
    const int64_t n_second = k.form == skmix::Form::triangular ? m * (m + 1) / 2 : m, n_t = k.degrees ? n : 0;
    Out<double> likelihood = zeros({r, c}), mass = zeros({r, n, c}), first = zeros({r, n, m});
    Out<double> second = zeros({r, n, n_second}), precisions = zeros({r, n_t}), log_ratios = zeros({r, n_t});
    const skmix::Sums sums{likelihood.data(), mass.data(),       first.data(),
                           second.data(),     precisions.data(), log_ratios.data()};
    return {functions.load()->e_step(rows.rows, k, origins ? origins->data() : nullptr, sums), nb::make_tuple(origins),
            nb::make_tuple(likelihood, mass, first, second, precisions, log_ratios)};
}

Pass log_densities(const Rows& rows, const Kernels& kernels, const std::optional<Numbers<2>>& weights) {
    check_together(rows, kernels, 1);
    if (kernels.kernels.n_starts != 1) refuse("Densities are of one start.");
    const int64_t n_kernels = kernels.kernels.n_kernels;
    const int64_t n_columns = weights ? static_cast<int64_t>(weights->shape(1)) : n_kernels;
    if (weights) check_shape("weights", *weights, {n_kernels, n_columns});
    Out<double> out = zeros({rows.rows.n_rows, n_columns});
    return {functions.load()->log_densities(rows.rows, kernels.kernels, weights ? weights->data() : nullptr, n_columns,
                                            out.data()),
            nb::make_tuple(weights), nb::make_tuple(out)};
}

Pass lloyd(const Rows& rows, const Numbers<2>& centres) {
    const int64_t k = centres.shape(0), m = rows.rows.n_features;
    check_shape("centres", centres, {k, m});
    if (k < 1 || rows.n_classes != 1) refuse("There must be a centre, and rows of one class.");
    Out<double> sums = zeros({k, m + 1});
    Out<int64_t> nearest = zeros<int64_t>({rows.rows.n_rows});
    return {functions.load()->lloyd(rows.rows, centres.data(), k, nearest.data(), sums.data()), nb::make_tuple(centres),
            nb::make_tuple(sums, nearest)};
}

Pass whiten(const Numbers<3>& matrices, double singular) {
    const int64_t n = matrices.shape(0), m = matrices.shape(1);
    check_shape("matrices", matrices, {n, m, m});
    if (m < 1) refuse("Matrices must have a row.");
    Out<double> whiteners = zeros({n, m, m}), log_determinants = zeros({n}), inflations = zeros({n});
    Out<bool> is_positive = zeros<bool>({n});
    return {
        functions.load()->whiten(matrices.data(), n, m, singular,
                                 {whiteners.data(), log_determinants.data(), is_positive.data(), inflations.data()}),
        nb::make_tuple(matrices), nb::make_tuple(whiteners, log_determinants, is_positive, inflations)};
}

// ---------------------------------------------------------------- passes of EM

using Covariances = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;

// A copy of an array, which passes overwrite.
template <class Array>
Out<double> copied(const Array& array) {
    size_t shape[4] = {};
    for (size_t i = 0; i < array.ndim(); ++i) shape[i] = array.shape(i);
    double* data = new double[std::max<size_t>(array.size(), 1)];
    std::copy_n(array.data(), array.size(), data);
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<double*>(p); });
    return Out<double>(data, array.ndim(), shape, owner);
}

nb::tuple climb(const Rows& rows, const Numbers<2>& weights, const Numbers<2>& means, const Covariances& covariances,
                const Covariances& whiteners, const Numbers<1>& log_determinants, const Numbers<1>& floor,
                const std::optional<Numbers<1>>& ridge, double prior_rows, const Covariances& prior_covariance,
                double weight_prior, bool is_isotropic, bool is_monotone, double objective, double likelihood,
                double least_change, int64_t most, double least_mass, double singular, double inflated,
                double cancellation, double farthest) {
    const int64_t k = means.shape(0), m = rows.rows.n_features, c = rows.n_classes;
    const bool is_matrix = whiteners.ndim() == 3;
    if (k < 1 || most < 0) refuse("There must be a kernel.");
    check_shape("weights", weights, {k, c});
    check_shape("means", means, {k, m});
    for (const auto& [name, array] : {std::pair{"covariances", &covariances}, std::pair{"whiteners", &whiteners}}) {
        check_shape(name, *array, is_matrix ? Shape{k, m, m} : Shape{k, m});
    }
    check_shape("prior_covariance", prior_covariance, is_matrix ? Shape{m, m} : Shape{m});
    check_shape("log_determinants", log_determinants, {k});
    check_shape("floor", floor, {m});
    if (ridge) check_shape("ridge", *ridge, {m});
    Out<double> own[] = {copied(weights), copied(means), copied(covariances), copied(whiteners),
                         copied(log_determinants)};
    Out<double> likelihoods = zeros({most, c}), objectives = zeros({most});
    skmix::Path path{likelihoods.data(), objectives.data(), objective, likelihood, 0, false};
    {
        nb::gil_scoped_release released;
        functions.load()->climb(rows.rows,
                                {is_matrix, is_isotropic, is_monotone, floor.data(), ridge ? ridge->data() : nullptr,
                                 prior_rows, prior_covariance.data(), weight_prior, least_mass, singular, inflated,
                                 cancellation, farthest, least_change},
                                {k, c, own[0].data(), own[1].data(), own[2].data(), own[3].data(), own[4].data()}, most,
                                path);
    }
    return nb::make_tuple(path.n_passes, path.is_done, likelihoods, objectives, own[0], own[1], own[2], own[3], own[4]);
}

// ---------------------------------------------------------------- exchanges of kernels

Pass compare(const Numbers<2>& x, const Numbers<2>& responsibilities, const Codes<2>& kernels, int64_t size,
             const Covariances& common, const Covariances& whitener, bool is_isotropic, bool is_fixed,
             double prior_rows, double pair_rows, int64_t n_steps, int64_t n_power_steps, double steepness,
             double steepest, double least_share, double least_mass, double singular) {
    const int64_t n = x.shape(0), m = x.shape(1), k = responsibilities.shape(0), b = kernels.shape(0);
    const bool is_matrix = common.ndim() == 2;
    if (m < 1 || size < 1 || (is_fixed && is_matrix)) refuse("There must be a feature and a row.");
    check_shape("x", x, {n, m});
    check_shape("responsibilities", responsibilities, {k, n});
    check_shape("kernels", kernels, {b, 2});
    for (const auto& [name, array] : {std::pair{"common", &common}, std::pair{"whitener", &whitener}}) {
        check_shape(name, *array, is_matrix ? Shape{m, m} : Shape{m});
    }
    auto copy = std::make_shared<std::vector<int64_t>>(kernels.data(), kernels.data() + 2 * b);
    for (int64_t i = 0; i < 2 * b; ++i) {
        if ((*copy)[i] < -(i % 2) || (*copy)[i] >= k) refuse("Group " + std::to_string(i / 2) + " has wrong kernels.");
    }
    Out<double> gains = zeros({b}), masses = zeros({b, 3}), means = zeros({b, 3, m});
    Out<double> covariances = is_matrix ? zeros({b, 3, m, m}) : zeros({b, 3, m});
    nb::capsule kept(new auto(copy), [](void* p) noexcept { delete static_cast<decltype(copy)*>(p); });
    return {functions.load()->compare(
                {n, m, b, size, x.data(), responsibilities.data(), copy->data()},
                {is_matrix, is_isotropic, is_fixed, common.data(), whitener.data(), prior_rows, pair_rows, n_steps,
                 n_power_steps, steepness, steepest, least_share, least_mass, singular},
                {gains.data(), masses.data(), means.data(), covariances.data()}),
            nb::make_tuple(x, responsibilities, kept, common, whitener),
            nb::make_tuple(gains, masses, means, covariances)};
}

// ---------------------------------------------------------------- rows with gaps

struct Completion {
    std::unique_ptr<std::vector<int64_t>> patterns;  // a copy: patterns must stay as they were checked
    std::unique_ptr<skmix::Completion> completion;
    int64_t n_covariances, n_patterns, n_features;
    nb::tuple arguments, results;

    nb::ndarray<nb::numpy, double> remaining(const Numbers<2>& mass) const {
        check_shape("mass", mass, {n_covariances, n_patterns});
        Out<double> out = zeros({n_covariances, n_features, n_features});
        {
            nb::gil_scoped_release released;
            completion->add_remaining(mass.data(), out.data());
        }
        return nb::ndarray<nb::numpy, double>(out);
    }
};

Completion complete(const Numbers<2>& x, const Codes<1>& first, const Codes<2>& orders, const Codes<1>& n_known,
                    const Numbers<3>& covariances, const Numbers<3>& means, bool with_moments) {
    const int64_t n = x.shape(0), m = x.shape(1), f = covariances.shape(0), g = means.shape(1);
    const int64_t n_patterns = n_known.shape(0);
    if (m < 1 || f < 1 || g < 1) refuse("There must be a kernel.");
    check_shape("x", x, {n, m});
    check_shape("n_known", n_known, {n_patterns});
    check_shape("first", first, {n_patterns + 1});
    check_shape("orders", orders, {n_patterns, m});
    check_shape("covariances", covariances, {f, m, m});
    check_shape("means", means, {f, g, m});
    auto patterns = std::make_unique<std::vector<int64_t>>(first.data(), first.data() + n_patterns + 1);
    patterns->insert(patterns->end(), n_known.data(), n_known.data() + n_patterns);
    patterns->insert(patterns->end(), orders.data(), orders.data() + n_patterns * m);
    const int64_t *bounds = patterns->data(), *known = bounds + n_patterns + 1, *order = known + n_patterns;
    for (int64_t p = 0; p < n_patterns; ++p) {
        std::vector<bool> seen(m, false);
        bool is_right =
            known[p] >= 0 && known[p] <= m && bounds[p] >= 0 && bounds[p] <= bounds[p + 1] && bounds[p + 1] <= n;
        for (int64_t i = p * m; i < (p + 1) * m && is_right; ++i) {
            is_right = order[i] >= 0 && order[i] < m && !seen[order[i]];
            if (is_right) seen[order[i]] = true;
        }
        if (!is_right) refuse("Pattern " + std::to_string(p) + " has wrong rows or features.");
    }
    Out<double> distances = zeros({f, g, n}), log_determinants = zeros({f, n_patterns});
    Out<double> ahead = zeros({with_moments ? f : 0, g, n, m});
    auto completion = functions.load()->complete(
        {n, m, n_patterns, x.data(), bounds, order, known}, covariances.data(), f, means.data(), g,
        {distances.data(), log_determinants.data(), with_moments ? ahead.data() : nullptr});
    {
        nb::gil_scoped_release released;
        completion->complete();
    }
    return {std::move(patterns),
            std::move(completion),
            f,
            n_patterns,
            m,
            nb::make_tuple(x),
            nb::make_tuple(distances, log_determinants, ahead)};
}

// ---------------------------------------------------------------- rows with errors

Pass error_pass(const Numbers<2>& x, const Numbers<2>& variances, const std::optional<Codes<1>>& codes,
                const std::optional<Numbers<1>>& weights, const Numbers<3>& means, const AnyNumbers& covariances,
                const Numbers<3>& log_weights, bool with_moments, bool with_sums) {
    const int64_t n = x.shape(0), m = x.shape(1), r = means.shape(0), k = means.shape(1), c = log_weights.shape(2);
    const bool is_matrix = covariances.ndim() == 4;
    if (m < 1 || r < 1 || k < 1 || c < 1) refuse("There must be a kernel.");
    if (!with_sums && r > 1) refuse("Densities are of one start.");
    check_shape("x", x, {n, m});
    check_shape("variances", variances, {n, m});
    check_shape("means", means, {r, k, m});
    check_shape("log_weights", log_weights, {r, k, c});
    is_matrix ? check_shape("covariances", covariances, {r, k, m, m})
              : check_shape("covariances", covariances, {r, k, m});
    if (weights) check_shape("weights", *weights, {n});
    if (codes) check_shape("codes", *codes, {n});
    if (!codes && c > 1) refuse("Rows of several classes need codes.");
    Out<int64_t> checked = zeros<int64_t>({codes ? n : 0});  // a copy: codes must stay as they were checked
    std::copy_n(codes ? codes->data() : nullptr, codes ? n : 0, checked.data());
    if (std::any_of(checked.data(), checked.data() + checked.size(), [c](int64_t i) { return i < 0 || i >= c; })) {
        refuse("Class codes must be below the number of classes, " + std::to_string(c) + ".");
    }
    const int64_t n_second = is_matrix ? m * (m + 1) / 2 : m, of_sums = with_sums ? r : 0;
    const int64_t of_moments = with_sums && with_moments ? r : 0;
    Out<double> likelihood = zeros({of_sums, c}), mass = zeros({of_sums, k, c}), first = zeros({of_moments, k, m});
    Out<double> second = zeros({of_moments, k, n_second}), densities = zeros({with_sums ? 0 : n, k});
    return {functions.load()->error_pass(
                {n, m, x.data(), variances.data(), checked.data(), weights ? weights->data() : nullptr},
                {is_matrix, r, k, c, means.data(), covariances.data(), log_weights.data()},
                {likelihood.data(), mass.data(), of_moments ? first.data() : nullptr, second.data(),
                 with_sums ? nullptr : densities.data()}),
            nb::make_tuple(x, variances, checked, weights, means, covariances, log_weights),
            nb::make_tuple(likelihood, mass, first, second, densities)};
}

}  // namespace

NB_MODULE(compiled, module) {
    use(std::nullopt);
    module.def("use", &use, "name"_a = nb::none());
    // Arrays are taken as they are: one of another type or order is refused, not copied.
    nb::class_<Rows>(module, "Rows")
        .def(nb::init<AnyRows, const std::optional<Codes<1>>&, std::optional<Numbers<1>>, Numbers<1>, Numbers<1>,
                      double, int64_t>(),
             "X"_a.noconvert(), "codes"_a.noconvert().none(), "weights"_a.noconvert().none(), "scale"_a.noconvert(),
             "shift"_a.noconvert(), "limit"_a, "n_classes"_a)
        .def_ro("n_classes", &Rows::n_classes);
    nb::class_<Kernels>(module, "Kernels")
        .def(nb::init<bool, bool, Numbers<3>, decltype(Kernels::whiteners), Numbers<2>, Numbers<3>,
                      std::optional<Numbers<2>>>(),
             "is_product"_a, "is_isotropic"_a, "means"_a.noconvert(), "whiteners"_a.noconvert(),
             "constants"_a.noconvert(), "log_weights"_a.noconvert(), "degrees"_a.noconvert().none());
    nb::class_<Pass>(module, "Pass")
        .def_prop_ro("n_tasks", [](const Pass& self) { return self.pass->n_tasks; })
        .def("work", &Pass::work)
        .def("finish", &Pass::finish);
    using KeepRows = nb::keep_alive<0, 1>;
    using KeepKernels = nb::keep_alive<0, 2>;
    module.def("e_step", &e_step, "rows"_a, "kernels"_a, "origins"_a.noconvert().none(), KeepRows(), KeepKernels());
    module.def("log_densities", &log_densities, "rows"_a, "kernels"_a, "weights"_a.noconvert().none(), KeepRows(),
               KeepKernels());
    module.def("lloyd", &lloyd, "rows"_a, "centres"_a.noconvert(), KeepRows());
    module.def("whiten", &whiten, "matrices"_a.noconvert(), "singular"_a);
    module.def("error_pass", &error_pass, "x"_a.noconvert(), "variances"_a.noconvert(), "codes"_a.noconvert().none(),
               "weights"_a.noconvert().none(), "means"_a.noconvert(), "covariances"_a.noconvert(),
               "log_weights"_a.noconvert(), "with_moments"_a, "with_sums"_a);
    module.def("climb", &climb, "rows"_a, "weights"_a.noconvert(), "means"_a.noconvert(), "covariances"_a.noconvert(),
               "whiteners"_a.noconvert(), "log_determinants"_a.noconvert(), "floor"_a.noconvert(),
               "ridge"_a.noconvert().none(), "prior_rows"_a, "prior_covariance"_a.noconvert(), "weight_prior"_a,
               "is_isotropic"_a, "is_monotone"_a, "objective"_a, "likelihood"_a, "least_change"_a, "most"_a,
               "least_mass"_a, "singular"_a, "inflated"_a, "cancellation"_a, "farthest"_a);
    module.def("compare", &compare, "x"_a.noconvert(), "responsibilities"_a.noconvert(), "kernels"_a.noconvert(),
               "size"_a, "common"_a.noconvert(), "whitener"_a.noconvert(), "is_isotropic"_a, "is_fixed"_a,
               "prior_rows"_a, "pair_rows"_a, "n_steps"_a, "n_power_steps"_a, "steepness"_a, "steepest"_a,
               "least_share"_a, "least_mass"_a, "singular"_a);
    nb::class_<Completion>(module, "Completion")
        .def_ro("results", &Completion::results)
        .def("remaining", &Completion::remaining, "mass"_a.noconvert());
    module.def("complete", &complete, "x"_a.noconvert(), "first"_a.noconvert(), "orders"_a.noconvert(),
               "n_known"_a.noconvert(), "covariances"_a.noconvert(), "means"_a.noconvert(), "with_moments"_a);
}
