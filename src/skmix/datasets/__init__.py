"""Simulated digits, samples of shared-kernel mixtures, MNIST, and tables and FCS files in memory."""

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
from skmix.io.encoding import ColumnError
from skmix.io.fcs import Events, read_fcs
from skmix.io.tables import (
    WRITABLE,
    TableRows,
    check_writable,
    class_labels,
    labels_like,
    read_rows,
    write_columns,
)

__all__ = [
    "IMAGE_SIDE",
    "LIT_SEGMENTS",
    "WRITABLE",
    "ColumnError",
    "Events",
    "Illustration",
    "SegmentLayout",
    "SplitImages",
    "TableRows",
    "bin_points",
    "check_writable",
    "class_labels",
    "illustration",
    "labels_like",
    "load_mnist",
    "make_seven_segment_digits",
    "make_shared_kernel_data",
    "read_fcs",
    "read_idx",
    "read_rows",
    "sample_points",
    "segment_layout",
    "write_columns",
]
