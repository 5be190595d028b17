"""Measures against scikit-learn and counting by hand; ranks, tables and claims of outcomes made up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn import metrics

from skmix.experiments.field import Outcome, claims, make_tables, mean_ranks, summarise
from skmix.experiments.field.measures import corrected_standard_error, log_loss
from skmix.metrics import calibration_error

OUTCOME = Outcome("set", "LDA", 0, "d", 30, 10, 0.1, 0.3, 0.05, 1.0, 0.1, 20)


def made_up(values: dict[str, dict[str, list[float]]]) -> list[Outcome]:
    """Return outcomes of errors by data set and classifier; log-losses are twice the errors."""
    return [
        replace(OUTCOME, data=data, classifier=name, repeat=repeat, error=error, log_loss=2 * error)
        for data, own in values.items()
        for name, errors in own.items()
        for repeat, error in enumerate(errors)
    ]


def test_log_loss_is_scikit_learns() -> None:
    random = np.random.RandomState(0)
    probabilities = random.dirichlet(np.ones(4), size=50)
    codes = random.randint(4, size=50)
    expected = metrics.log_loss(codes, probabilities, labels=range(4))
    assert log_loss(probabilities, codes) == pytest.approx(expected)
    # What was called impossible costs much, but not everything.
    certain = np.eye(4)[codes]
    wrong = np.eye(4)[(codes + 1) % 4]
    assert log_loss(certain, codes) == 0.0
    assert 30 < log_loss(wrong, codes) < 40


def test_calibration_error_by_hand() -> None:
    # Two rows at 0.9, one right: off by 0.4. Three at 0.6, all right: off by 0.4. One at 1.0, right.
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.4, 0.6], [0.6, 0.4], [0.0, 1.0]])
    codes = np.array([0, 1, 0, 1, 0, 1])
    # 0.9 and 1.0 fall into one bin: 2.8 expected and 2 right there, 1.8 and 3 in the other.
    assert calibration_error(probabilities, codes) == pytest.approx((0.8 + 1.2) / 6)
    assert calibration_error(probabilities, codes, n_bins=100) == pytest.approx((0.8 + 1.2) / 6)
    assert calibration_error(probabilities[:2], codes[:2]) == pytest.approx(0.4)


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
    won = claims(made_up({"a": errors}))
    assert [each.holds for each in won] == [True, True, False, True, True]
    assert won[1].measured == "1 of 1"
    outcomes = made_up({"a": errors | {"LDA": [0.1]}})
    outcomes[0] = replace(outcomes[0], fit_seconds=11.0, failure="ValueError: no")
    lost = claims(outcomes)
    assert [each.holds for each in lost] == [False, True, False, False, False]
    assert lost[3].measured == "11.0 on a"
    assert claims(made_up({"a": {"LDA": [0.1]}})) == []
