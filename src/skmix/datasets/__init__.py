"""Samples of shared-kernel mixtures, MNIST, and tables and FCS files in memory."""

from __future__ import annotations

from skmix.datasets.mnist import SplitImages, load_mnist, read_idx
from skmix.datasets.shared_kernel import make_shared_kernel_data
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
    "WRITABLE",
    "ColumnError",
    "Events",
    "SplitImages",
    "TableRows",
    "check_writable",
    "class_labels",
    "labels_like",
    "load_mnist",
    "make_shared_kernel_data",
    "read_fcs",
    "read_idx",
    "read_rows",
    "write_columns",
]
