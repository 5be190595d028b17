"""Model selection: searches over the number of kernels, covariance types, priors and feature sets."""
