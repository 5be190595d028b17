"""Data to learn from: images of seven-segment digits, and samples of shared-kernel mixtures."""

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
from skmix.datasets.shared_kernel import Illustration, illustration, make_shared_kernel_data

__all__ = [
    "IMAGE_SIDE",
    "LIT_SEGMENTS",
    "Illustration",
    "SegmentLayout",
    "bin_points",
    "illustration",
    "make_seven_segment_digits",
    "make_shared_kernel_data",
    "sample_points",
    "segment_layout",
]
