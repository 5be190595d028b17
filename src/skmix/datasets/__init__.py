"""Data to learn from: images of seven-segment digits, samples of shared-kernel mixtures, files."""

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
from skmix.datasets.files import LabelledTable, SplitImages, load_mnist, read_idx, read_table
from skmix.datasets.shared_kernel import Illustration, illustration, make_shared_kernel_data
from skmix.datasets.tables import ColumnError, TableRows, class_labels, labels_like, read_rows
from skmix.datasets.writing import WRITABLE, check_writable, write_columns

__all__ = [
    "IMAGE_SIDE",
    "LIT_SEGMENTS",
    "WRITABLE",
    "ColumnError",
    "Illustration",
    "LabelledTable",
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
    "read_idx",
    "read_rows",
    "read_table",
    "sample_points",
    "segment_layout",
    "write_columns",
]
