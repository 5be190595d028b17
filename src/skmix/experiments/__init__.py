"""Experiments with the library: a harness, the paper's study, and a comparison with other classifiers.

Only `skmix.cli`, `skmix.report` and `skmix.plots` use this package. It measures and records, and does not
draw.
"""
