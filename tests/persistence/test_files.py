"""There is one way to write files; what it promises is tested in tests/study/test_files.py."""

from __future__ import annotations

import skmix.persistence
import skmix.study
import skmix.study.files


def test_the_study_writes_files_as_models_are_written() -> None:
    assert skmix.study.replacing is skmix.study.files.replacing is skmix.persistence.replacing
