"""Experiments with the library: the paper's study, and shared kernels beside other classifiers."""
