"""The paper's experiments: data in, records out, and the files they are kept in."""

from __future__ import annotations

from skmix.study.files import replacing, writable_folder, write_json
from skmix.study.illustration import Comparison, IllustrationRecord, fit_illustration, run_illustration

__all__ = [
    "Comparison",
    "IllustrationRecord",
    "fit_illustration",
    "replacing",
    "run_illustration",
    "writable_folder",
    "write_json",
]
