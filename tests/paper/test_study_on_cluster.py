"""The study's batches on a real cluster."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from study_runs import same_runs
from typer.testing import CliRunner

import skmix
from skmix.cli import app
from skmix.engine.compute import dask as compute_dask
from skmix.engine.compute.dask import ClusterError
from skmix.paper import (
    Cell,
    Settings,
    StudyData,
    make_study,
    run_one,
    run_study,
    stored_runs,
)
from skmix.paper.harness import ExperimentError, Store, missing

CELLS = [Cell("3D", 10, "robust", 4), Cell("3x1D", 10, "class-wise", 4), Cell("3D", 12, "published", 12)]


@pytest.mark.slow
def test_a_cluster_makes_the_same_runs_to_the_bit(
    client: Any, tmp_path: Path, data: StudyData, settings: Settings
) -> None:
    study = make_study(CELLS, settings, data)
    with Store(tmp_path / "study.sqlite") as store:
        # What is there already is not made again.
        run_study(make_study(CELLS[:1], settings, data), store)
        seen: list[Any] = []
        killed = os.getpid()

        def watch(runs: Any) -> None:
            nonlocal killed
            seen.extend(runs)
            if len(seen) == len(runs):
                killed = next(iter(client.run(os.getpid).values()))
                os.kill(killed, signal.SIGKILL)

        run_study(study, store, cluster=client, progress=watch)
        assert killed != os.getpid()
        assert len(seen) == 16
        assert missing(study.planned(), store) == 0
        for cell, runs in stored_runs(study, store).items():
            for number in (0, 3):
                alone = run_one(data, cell.variant, cell.n_kernels, cell.method, number, settings)
                assert same_runs(runs[number], alone)


def test_a_cluster_that_is_lost_leaves_what_is_done(
    tmp_path: Path, data: StudyData, settings: Settings, mortal_cluster: Any
) -> None:
    many = [Cell("3D", 10, "published", 60)]
    with Store(tmp_path / "study.sqlite") as store:
        with pytest.raises(ExperimentError, match=r"to the scheduler .* is lost.*Finished runs are stored"):
            run_study(
                make_study(many, settings, data),
                store,
                cluster=mortal_cluster.client,
                progress=lambda runs: mortal_cluster.lose(),
            )
        assert 10 <= len(store) < 60


def test_an_address_without_a_scheduler_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="needs the extra dask")
    monkeypatch.setattr(compute_dask, "_CONNECT", 0.5)
    with pytest.raises(ClusterError, match=r"No Dask scheduler responds at tcp://127\.0\.0\.1:9"):
        compute_dask.connect("tcp://127.0.0.1:9", "1.0").__enter__()
    result = CliRunner().invoke(app, ["reproduce", "--out", str(tmp_path), "--dask", "tcp://127.0.0.1:9"])
    assert result.exit_code == 3
    assert "No Dask scheduler responds at tcp://127.0.0.1:9" in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_cluster_is_found_by_its_address(clusters: Any, tmp_path: Path) -> None:
    with clusters.client() as client:
        address = client.scheduler.address
    with compute_dask.connect(address, skmix.__version__) as client:
        assert sorted(compute_dask.map_tasks(client, pow, 2, [3, 4, 5])) == [8, 16, 32]
    with (
        pytest.raises(ClusterError, match=r"2 of 2 workers have another version of skmix than 99\.0"),
        compute_dask.connect(address, "99.0"),
    ):
        pass
