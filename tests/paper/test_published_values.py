"""The paper's numbers are where they should be; each value here is read from the printed tables."""

from __future__ import annotations

import hashlib
from importlib import resources

import numpy as np
import pytest

from skmix.paper.printed import METRICS, OK_RUNS, RANKED_METRICS, published_sweep, published_values
from skmix.paper.variants import SWEEP_KERNELS, SWEEP_VARIANTS, VARIANTS

NAMES = [variant.name for variant in VARIANTS]
# SHA-256 of the tables as they were typed from the paper and compared with it, without line ends.
DIGESTS = {
    "confusion_matrices_best_runs": "40785c4ea32598eb66b3e55c6d42759353d5429525812c955dacb55cbfd93615",
    "table1_all_runs": "8e922e801f29a6a12b89a312e319d7821b648fe6ffe5a709f51bdc7d1576fe36",
    "table2_ranking_all_runs": "1417ec7d0e811d2f4712bb0097b109df1be82c1380dd8e3b8e5586d8b073eb37",
    "table3_ok_runs": "3872b6f3087cbd74bb9ec68199f6444746fe2379c13e31f4fa3284d62af67057",
    "table4_ranking_ok_runs": "735790124a4045717f2a1ef1e39d55b91d454eed39d2f709c3a202045d9c877a",
    "table5_number_of_kernels": "d2c379b4e1ab5a1c7a786c3940bb8e80ca206b2877120670cf224e1c213de642",
    "table6_mean_and_max_accuracy": "6130ac5c8f084760d6d85778e9f9268448b91a75d333d8f06ae3879ec2212d26",
}


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


def test_confusion_matrices_are_in_the_order_of_the_digits() -> None:
    confusion = published_values().confusion
    for name in NAMES:
        assert confusion[name].sum(axis=1).tolist() == [250] * 10
        accuracy = np.trace(confusion[name]) / 2500
        assert accuracy == pytest.approx(published_values().max_accuracy[name], abs=0.0051)
    # The hard pair is 0 and 8, which differ in the middle bar alone.
    assert confusion["4D"][0, 8] == 88


def test_no_printed_number_has_changed() -> None:
    """Most numbers follow from no others, so that a misprint would show nowhere."""
    folder = resources.files("skmix.paper") / "printed"
    tables = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
    found = {
        name.removesuffix(".csv"): hashlib.sha256("\n".join(text.splitlines()).encode()).hexdigest()
        for name, text in tables.items()
        if name.endswith(".csv")
    }
    assert found == DIGESTS
