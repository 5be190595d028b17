"""Samples of shared-kernel mixtures, and MNIST."""

from __future__ import annotations

from skmix.datasets.mnist import SplitImages, load_mnist, read_idx
from skmix.datasets.shared_kernel import make_shared_kernel_data

__all__ = ["SplitImages", "load_mnist", "make_shared_kernel_data", "read_idx"]
