"""Standard errors, ranks, tables and claims of invented outcomes, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from skmix.experiments.field import (
    Outcome,
    make_tables,
    mean_ranks,
    standings,
    summarise,
)
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
    assert [each.name for each in tables] == [
        *("error", "log_loss", "calibration_error", "fit_seconds", "predict_seconds", "n_parameters"),
        "failures",
    ]
    assert tables[1].lines == (
        *(("a", "0.500", "0.400"), ("b", "0.000", "1.000")),
        ("mean rank", "1.50", "1.50"),
    )
    # Where small is not good, there are no ranks, and nothing is bold.
    assert tables[3].lines == (("a", "1.000", "1.000"), ("b", "1.000", "1.000"))
    assert tables[4].lines == (("a", "0.100", "0.100"), ("b", "0.100", "0.100"))
    assert tables[5].lines == (("a", "20", "20"), ("b", "20", "20"))
    assert "**" not in tables[5].markdown()
    assert tables[0].markdown().splitlines()[2:5] == [
        "| data | LDA | MLP |",
        "| --- | --: | --: |",
        f"| a | 25.0 ± 0.0 | **20.0 ± {spread:.1f}** |",
    ]
    assert len({len(line) for line in tables[0].text().splitlines()[1:]}) == 1


def test_only_splits_that_all_classifiers_have_count() -> None:
    outcomes = made_up({"a": {"LDA": [0.1, 0.3], "QDA": [0.2, 0.2, 0.8]}})
    assert [each.values["error"] for each in summarise(outcomes)] == pytest.approx([0.2, 0.2])
    assert [each.n_repeats for each in summarise(outcomes)] == [2, 2]


def test_tables_have_the_halves_and_a_mean_rank_of_each() -> None:
    """One set of the development half, won by LDA, and two of the judging half, of which MLP wins both."""
    outcomes = made_up(
        {
            "wine": {"LDA": [0.1], "MLP": [0.2]},
            "iris": {"LDA": [0.2], "MLP": [0.1]},
            "letter[4000]": {"LDA": [0.3], "MLP": [0.1]},
            "glass": {"LDA": [0.3]},
        }
    )
    table = make_tables(outcomes)[0]
    assert table.headings == ("data", "half", "LDA", "MLP")
    assert [line[1] for line in table.lines[:4]] == ["development", "judging", "judging", "judging"]
    more = make_tables([*outcomes, *made_up({"moon": {"LDA": [0.1], "MLP": [0.2]}})])[0]
    assert more.lines[4] == ("moon", "", "10.0", "20.0")
    assert table.lines[4:] == (
        ("mean rank", "all", "1.67", "1.33"),
        ("mean rank", "development", "1.00", "2.00"),
        ("mean rank", "judging", "2.00", "1.00"),
    )
    # Nothing to rank: no set has both.
    assert len(make_tables(made_up({"a": {"LDA": [0.1]}, "b": {"MLP": [0.1]}}))[0].lines) == 2


@pytest.mark.parametrize(
    ("own", "trees", "others", "ratio", "far_behind"),
    [
        (0.125, 0.10, 0.10, 1.25, False),
        (0.1251, 0.10, 0.10, 1.251, True),
        (0.13, 0.10, 0.10, 1.3, True),
        # Trees are not far ahead of the SVM.
        (0.13, 0.10, 0.12, 1.3, True),
        # They are, and shared kernels are near the SVM, or are not.
        (0.13, 0.10, 0.13, 1.3, False),
        (0.20, 0.10, 0.13, 2.0, True),
        # The SVM is far ahead of all others.
        (0.13, 0.20, 0.10, 1.3, True),
        (0.0, 0.0, 0.1, 1.0, False),
        (0.1, 0.2, 0.0, np.inf, True),
    ],
)
def test_far_behind_the_best_unless_trees_are_far_ahead_of_all(
    own: float, trees: float, others: float, ratio: float, far_behind: bool
) -> None:
    errors = {"shared kernels": [own], "random forest": [trees], "RBF SVM": [others]}
    (found,) = standings(made_up({"a": errors}))
    assert found.ratio == pytest.approx(ratio)
    assert found.far_behind is far_behind


def test_times_are_compared_on_the_same_processor_and_splits() -> None:
    outcomes = made_up({"wine": {"shared kernels": [0.1, 0.1, 0.1], "RBF SVM": [0.1, 0.1]}})
    seconds = [6.0, 8.0, 100.0, 1.0, 2.0]
    outcomes = [replace(each, fit_seconds=own) for each, own in zip(outcomes, seconds, strict=True)]
    (found,) = standings(outcomes)
    assert found.times_the_svm == pytest.approx(14 / 3)
    # The first split of the SVM ran elsewhere.
    (found,) = standings([*outcomes[:3], replace(outcomes[3], processor="other"), outcomes[4]])
    assert found.times_the_svm == pytest.approx(4.0)
    (found,) = standings([*outcomes[:3], *(replace(each, processor="other") for each in outcomes[3:])])
    assert np.isnan(found.times_the_svm)
    table = next(each for each in make_tables(outcomes) if each.name == "standings")
    assert table.lines[0] == ("wine", "development", "10.0", "RBF SVM", "10.0", "1.00", "", "4.67")
    assert [line[0] for line in table.lines[1:]] == ["median"] * 2 + ["largest"] * 2


def test_the_table_of_standings_has_medians_and_largest_ratios_of_both_halves() -> None:
    names = ("shared kernels", "RBF SVM", "random forest")
    errors = {"wine": (0.2, 0.1, 0.3), "iris": (0.1, 0.2, 0.4), "letter[9]": (0.3, 0.25, 0.1)}
    outcomes = made_up(
        {data: {n: [e] for n, e in zip(names, own, strict=True)} for data, own in errors.items()}
    )
    seconds = {"shared kernels": 3.0, "RBF SVM": 2.0, "random forest": 1.0}
    outcomes = [replace(each, fit_seconds=seconds[each.classifier]) for each in outcomes]
    outcomes[-2] = replace(outcomes[-2], processor="other")
    table = next(each for each in make_tables(outcomes) if each.name == "standings")
    assert table.headings[:3] == ("data", "half", "error")
    # On letters trees are far ahead of the machine, which is near shared kernels.
    assert table.lines == (
        ("wine", "development", "20.0", "RBF SVM", "10.0", "2.00", "far behind", "1.50"),
        ("iris", "judging", "10.0", "RBF SVM", "20.0", "0.50", "", "1.50"),
        ("letter[9]", "judging", "30.0", "random forest", "10.0", "3.00", "trees ahead of all others", ""),
        ("median", "all", "", "", "", "2.00", "", "1.50"),
        ("median", "development", "", "", "", "2.00", "", "1.50"),
        ("median", "judging", "", "", "", "1.75", "", "1.50"),
        ("largest", "all", "", "", "", "3.00", "", "1.50"),
        ("largest", "development", "", "", "", "2.00", "", "1.50"),
        ("largest", "judging", "", "", "", "3.00", "", "1.50"),
    )
    # Without ours, or without others, there is nothing to compare.
    assert standings([each for each in outcomes if each.classifier != "shared kernels"]) == []
    assert standings([each for each in outcomes if each.classifier == "shared kernels"]) == []
    # Sets without a half have no such column.
    plain = [replace(each, data="a") for each in outcomes if each.data == "wine"]
    table = next(each for each in make_tables(plain) if each.name == "standings")
    assert table.lines == (
        ("a", "20.0", "RBF SVM", "10.0", "2.00", "far behind", "1.50"),
        ("median", "", "", "", "2.00", "", "1.50"),
        ("largest", "", "", "", "2.00", "", "1.50"),
    )


def test_means_and_standard_errors_of_every_measure() -> None:
    values = {
        "error": (0.1, 0.3),
        "log_loss": (0.5, 0.9),
        "calibration_error": (0.02, 0.06),
        "fit_seconds": (1.0, 3.0),
        "predict_seconds": (0.1, 0.5),
        "n_parameters": (10, 30),
    }
    outcomes = [
        replace(OUTCOME, repeat=r, **{name: both[r] for name, both in values.items()}) for r in (0, 1)
    ]
    (found,) = summarise([outcomes[0], replace(outcomes[1], failure="no")])
    assert (found.data, found.classifier, found.n_repeats, found.n_failed) == ("set", "LDA", 2, 1)
    assert found.values == pytest.approx({name: sum(both) / 2 for name, both in values.items()})
    # Half the difference is the standard deviation over root 2; 10 test rows of 30 training rows.
    assert found.standard_errors == pytest.approx(
        {name: (b - a) / np.sqrt(2) * np.sqrt(1 / 2 + 1 / 3) for name, (a, b) in values.items()}
    )
    # Splits that have nothing in common all count.
    apart = [outcomes[0], replace(outcomes[1], classifier="QDA")]
    assert [each.n_repeats for each in summarise(apart)] == [1, 1]
