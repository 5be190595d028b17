"""Simulated digits, samples of shared-kernel mixtures, and MNIST."""

from __future__ import annotations

from skmix.datasets.digits import (
    IMAGE_SIDE,
    LIT_SEGMENTS,
    SegmentLayout,
    bin_points,
    make_seven_segment_digits,
    sample_points,
    segment_layout,
)
from skmix.datasets.mnist import SplitImages, load_mnist, read_idx
from skmix.datasets.shared_kernel import Illustration, illustration, make_shared_kernel_data

__all__ = [
    "IMAGE_SIDE",
    "LIT_SEGMENTS",
    "Illustration",
    "SegmentLayout",
    "SplitImages",
    "bin_points",
    "illustration",
    "load_mnist",
    "make_seven_segment_digits",
    "make_shared_kernel_data",
    "read_idx",
    "sample_points",
    "segment_layout",
]
