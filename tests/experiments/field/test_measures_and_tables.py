"""Standard errors, ranks, tables and claims of invented outcomes, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from skmix.experiments.field import Outcome, check_claims, make_tables, mean_ranks, summarise
from skmix.experiments.field.tables import corrected_standard_error

OUTCOME = Outcome("set", "LDA", 0, 3, 30, 10, 0.1, 0.3, 0.05, 1.0, 0.1, 20)


def made_up(values: dict[str, dict[str, list[float]]]) -> list[Outcome]:
    """Return outcomes of errors by data set and classifier; log-losses are twice the errors."""
    return [
        replace(OUTCOME, data=data, classifier=name, repeat=repeat, error=error, log_loss=2 * error)
        for data, own in values.items()
        for name, errors in own.items()
        for repeat, error in enumerate(errors)
    ]


def test_the_standard_error_knows_that_splits_overlap() -> None:
    values = np.array([0.1, 0.2, 0.3, 0.2])
    plain = values.std(ddof=1) / 2
    assert corrected_standard_error(values, 0.0) == pytest.approx(plain)
    # With a third as many test rows as training rows, 1/4 becomes 1/4 + 1/3.
    assert corrected_standard_error(values, 1 / 3) == pytest.approx(plain * np.sqrt(7 / 3))
    assert np.isnan(corrected_standard_error(values[:1], 0.3))


def test_ranks_are_averaged_and_ties_shared() -> None:
    outcomes = made_up(
        {
            "a": {"LDA": [0.1, 0.3], "QDA": [0.2, 0.2], "MLP": [0.3, 0.3]},
            "b": {"LDA": [0.4], "QDA": [0.3], "MLP": [0.1]},
            "only some": {"LDA": [0.0]},
        }
    )
    assert mean_ranks(summarise(outcomes)) == {"LDA": 2.25, "QDA": 1.75, "MLP": 2.0}
    with pytest.raises(ValueError, match="no data set has outcomes of all"):
        mean_ranks(summarise(made_up({"a": {"LDA": [0.1]}, "b": {"QDA": [0.1]}})))


def test_tables_say_what_there_is() -> None:
    outcomes = made_up(
        {"a": {"MLP": [0.1, 0.3], "LDA": [0.25, 0.25]}, "b": {"MLP": [0.5, 0.5], "LDA": [0, 0]}}
    )
    outcomes[-1] = replace(outcomes[-1], failure="ValueError: no")
    tables = make_tables(outcomes)
    # Classifiers in the order of the field: LDA first.
    assert tables[0].headings == ("data", "LDA", "MLP")
    spread = 100 * corrected_standard_error(np.array([0.1, 0.3]), 1 / 3)
    assert tables[0].lines == (
        ("a", "25.0 ± 0.0", f"20.0 ± {spread:.1f}"),
        ("b", "0.0 ± 0.0", "50.0 ± 0.0"),
        ("mean rank", "1.50", "1.50"),
    )
    assert tables[-1].lines == (("b", "LDA", "1 of 2"),)
    assert tables[0].markdown().splitlines()[2:5] == [
        "| data | LDA | MLP |",
        "| --- | --: | --: |",
        f"| a | 25.0 ± 0.0 | 20.0 ± {spread:.1f} |",
    ]
    assert len({len(line) for line in tables[0].text().splitlines()[1:]}) == 1


def test_claims_hold_or_do_not() -> None:
    errors = {"shared kernels": [0.1], "LDA": [0.2], "QDA": [0.3], "RBF SVM": [0.15], "random forest": [0.05]}
    won = check_claims(made_up({"a": errors}))
    assert [each.holds for each in won] == [True, True, False, True, True]
    assert won[1].measured == "1 of 1"
    outcomes = made_up({"a": errors | {"LDA": [0.1]}})
    outcomes[0] = replace(outcomes[0], fit_seconds=11.0, failure="ValueError: no")
    lost = check_claims(outcomes)
    assert [each.holds for each in lost] == [False, True, False, False, False]
    assert lost[3].measured == "11.0 on a"
    assert check_claims(made_up({"a": {"LDA": [0.1]}})) == []


@pytest.mark.parametrize(("n_won", "holds"), [(1, False), (2, True)])
def test_half_of_the_data_sets_must_be_won(n_won: int, holds: bool) -> None:
    sets = {
        name: {"shared kernels": [0.1], "RBF SVM": [0.2 if place < n_won else 0.05]}
        for place, name in enumerate("abcd")
    }
    claim = check_claims(made_up(sets))[0]
    assert (claim.claim, claim.measured) == ("log-loss better than that of RBF SVM", f"{n_won} of 4")
    assert claim.holds is holds
