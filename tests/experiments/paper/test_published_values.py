"""The paper's numbers are where they should be; each value here is read from the printed tables."""

from __future__ import annotations

import numpy as np
import pytest

from skmix.experiments.paper.published_values import (
    METRICS,
    OK_RUNS,
    RANKED_METRICS,
    published_sweep,
    published_values,
)
from skmix.experiments.paper.variants import SWEEP_KERNELS, SWEEP_VARIANTS, VARIANTS

NAMES = [variant.name for variant in VARIANTS]


def test_tables_are_complete() -> None:
    values = published_values()
    assert set(values.all_runs) == {(metric, name) for metric in METRICS for name in NAMES}
    assert set(values.ok_runs) == {(metric, name) for metric in (*METRICS, OK_RUNS) for name in NAMES}
    assert set(values.sweep) == {(k, name) for k in SWEEP_KERNELS for name in SWEEP_VARIANTS}
    for ranking in (values.ranking_all_runs, values.ranking_ok_runs):
        assert set(ranking) == set(RANKED_METRICS)
        assert all(sorted(order) == sorted(NAMES) for order in ranking.values())
    assert list(values.mean_accuracy) == list(values.max_accuracy) == NAMES


def test_single_values() -> None:
    values = published_values()
    assert values.all_runs["Std MIoU", "13D"] == 0.252
    assert values.ok_runs["Med Acc", "2Dx3D"] == 0.959
    assert values.ok_runs[OK_RUNS, "5D"] == 412
    assert values.ranking_all_runs["Mean Acc"][:3] == ("3Dx3D", "2Dx3D", "3x1D")
    assert values.ranking_ok_runs["Med Acc"][-1] == "10D"
    entry = values.sweep[18, "9D"]
    assert (entry.mean, entry.std, entry.counted) == (0.79, 0.15, 22)
    assert published_sweep()["9D", 18] == (0.79, pytest.approx(0.78))
    assert values.mean_accuracy["2Dx3D"] == 0.86
    assert values.max_accuracy["10D"] == 0.77


def test_table_6_means_are_those_of_table_1() -> None:
    values = published_values()
    for name in NAMES:
        assert values.mean_accuracy[name] == pytest.approx(values.all_runs["Mean Acc", name], abs=0.0051)


def test_confusion_matrices_are_in_the_order_of_the_digits() -> None:
    confusion = published_values().confusion
    for name in NAMES:
        assert confusion[name].sum(axis=1).tolist() == [250] * 10
        accuracy = np.trace(confusion[name]) / 2500
        assert accuracy == pytest.approx(published_values().max_accuracy[name], abs=0.0051)
    # The hard pair is 0 and 8, which differ in the middle bar alone.
    assert confusion["4D"][0, 8] == 88


def test_printed_rankings_are_those_of_the_printed_values() -> None:
    """Tables 2 and 4 were typed apart from tables 1 and 3: a wrong digit in either shows."""
    values = published_values()
    for table, rankings in (
        (values.all_runs, values.ranking_all_runs),
        (values.ok_runs, values.ranking_ok_runs),
    ):
        for metric, order in rankings.items():
            ranked = [table[metric, name] for name in order]
            assert ranked == sorted(ranked, reverse=True), metric
