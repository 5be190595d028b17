// The functions of one instruction set, for the module.

#include "common.h"

namespace SKMIX_ISA {

extern const skmix::Functions FUNCTIONS;
const skmix::Functions FUNCTIONS{make_e_step,     make_log_densities, make_lloyd,      make_whitening,
                                 make_completion, make_error_pass,    make_comparison, climb};

}  // namespace SKMIX_ISA
