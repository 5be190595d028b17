"""When a kernel is irrelevant to rows: the numbers behind passes that skip kernels.

Skipping kernel k in row n changes the kernel's own sums by r, r y and r y yᵀ, where r is its responsibility
and y the whitened row, ‖y‖ = d: by no more than r (1 + d²), in the kernel's own units. It is skipped only if
a bound of r (1 + d²) is below `SKIPPED` / K, so that all kernels skipped in a row together change less than
`SKIPPED`. With log(1 + d²) ≤ `LOG_SLOPE` d² + `LOG_RISE` the logarithm of the bound is linear in d², and a
lower bound of d is all that is needed of the rows. A kernel of little mass would notice small changes:
kernels of less than `LIGHT` times the average mass are never skipped.
"""

SKIPPED = 1e-13
LOG_SLOPE, LOG_RISE = 0.005, 4.32
LIGHT = 1e-3
# The mass of a weight whose rows were all skipped: a weight of zero would stay zero.
LEAST_MASS = 1e-120
# Relative errors of distances and widths are far below this, times their condition.
ROUNDING = 1e-12
# Kernels from which on skipping is tried.
MANY = 256
