"""Notes, errors and JSON of all commands."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from skmix import SharedKernelMixture
from skmix.cli._printing import print_json

COUNTED = np.arange(12.0)
SHUFFLED = np.random.RandomState(0).permutation(100)[:12].astype(float)


@pytest.mark.parametrize(
    ("name", "values", "note"),
    [
        ("a", COUNTED + 3, "column 'a' numbers the rows from 3 to 14."),
        ("a", COUNTED[:10], "column 'a' numbers the rows from 0 to 9."),
        *(("a", own, None) for own in (COUNTED[:9], COUNTED / 2, 2 * COUNTED, SHUFFLED)),
        *(("a", [*COUNTED[:11], last], None) for last in (np.nan, 0.0)),
        *(
            (name, SHUFFLED, f"column '{name}' has a different whole number in every row.")
            for name in ("id", "row id", "ID", "customerId", "the_key", "Index", "ids")
        ),
        *((name, SHUFFLED, None) for name in ("width", "idle", "monkey", "indexes", "acid")),
        ("id", [*SHUFFLED[:11], SHUFFLED[0]], None),
        ("id", [*SHUFFLED[:11], np.nan], "column 'id' has a different whole number in every row."),
        ("id", SHUFFLED[:9], None),
        ("id", SHUFFLED + 0.5, None),
        ("a", np.full(12, 5.5), "column 'a' is 5.5 in all rows that have a value."),
        ("a", [2.0, np.nan, 2.0], "column 'a' is 2 in all rows that have a value."),
        ("a", [0.1, 0.2, -999], "column 'a' is -999 in 1 row, far from all other values."),
        ("a", [0.1, 0.2, 9999, 9999], "column 'a' is 9999 in 2 rows, far from all other values."),
        # Far from the others is what is further away than they are from each other.
        ("a", [0.1, 0.2, -99, 999], "column 'a' is 999 in 1 row, far from all other values."),
        *(("a", own, None) for own in ([0.1, 0.2, 99], [0.1, 0.2, -998], [0.1, 600.2, 999])),
        ("a", [0.1, np.nan, 0.2, -99], "column 'a' is -99 in 1 row"),
    ],
)
def test_columns_that_deserve_a_word(name: str, values: Any, note: str | None) -> None:
    column = np.array(values, dtype=float)
    frame = pd.DataFrame({name: column, "beside": np.sin(np.arange(len(column)))})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        SharedKernelMixture(1, random_state=0).fit(frame)
    remarks = [str(warning.message) for warning in told if "column" in str(warning.message)]
    assert len(remarks) == (note is not None)
    assert note is None or remarks[0].startswith(note)


# ---------------------------------------------------------------- shared by all commands


def test_json_has_null_for_what_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [float("nan"), float("inf"), -float("inf"), 1.5], "b": "é"})
    text = capsys.readouterr().out
    assert text.isascii()
    assert json.loads(text) == {"a": [None, None, None, 1.5], "b": "é"}
