"""Data to learn from: samples of shared-kernel mixtures."""

from __future__ import annotations

from skmix.datasets.shared_kernel import Illustration, illustration, make_shared_kernel_data

__all__ = ["Illustration", "illustration", "make_shared_kernel_data"]
