"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray

# Typer colours messages on GitHub's machines, which are no terminals; here they are compared as text.
os.environ["_TYPER_FORCE_DISABLE_TERMINAL"] = "1"

# Pictures are drawn without a screen.
os.environ["MPLBACKEND"] = "Agg"

# How long an example takes is the machine's business.
settings.register_profile("skmix", deadline=None)
settings.load_profile("skmix")

BROWSER_FLAGS = (
    *("--headless", "--disable-gpu", "--disable-quic", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--hide-scrollbars", "--no-first-run"),
    "--window-size=1280,900",
)

GOLDEN_FOLDER = Path(__file__).parent / "golden"


# Fixtures that start processes, which takes seconds.
PROCESSES = {"clusters", "mortal_cluster", "chromium"}
CONNECT = "distributed.comm.timeouts.connect"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what is imported away from the garbage collector, which would go through it again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        return (yield)
    finally:
        if enabled:
            gc.enable()
        gc.freeze()


def pytest_unconfigure() -> None:
    """Let the garbage collector see everything again."""
    gc.unfreeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests on a cluster or in a browser as slow."""
    for item in items:
        if PROCESSES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    """Close the figures of a test, if it has drawn any."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture(scope="session")
def golden() -> Callable[[str], dict[str, NDArray[Any]]]:
    """Return a loader: ``golden("illustration")`` gives the arrays of that file, read-only, by name."""
    loaded: dict[str, dict[str, NDArray[Any]]] = {}

    def load(name: str) -> dict[str, NDArray[Any]]:
        if name not in loaded:
            with np.load(GOLDEN_FOLDER / f"{name}.npz", allow_pickle=False) as file:
                loaded[name] = {key: file[key] for key in file.files}
            for array in loaded[name].values():
                array.flags.writeable = False
        return dict(loaded[name])

    return load


class Clusters:
    """One cluster of two processes at a time: they take seconds to start, and some tests kill them."""

    def __init__(self) -> None:
        self._cluster: Any = None

    def client(self) -> Any:
        """Return a client of a cluster whose workers are both alive."""
        import distributed

        if self._cluster is not None:
            client = distributed.Client(self._cluster)
            try:
                client.wait_for_workers(2, timeout=5)
                return client
            except TimeoutError:
                client.close()
                self.close()
        self._cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50, memory_limit=None
        )
        return distributed.Client(self._cluster)

    def close(self) -> None:
        """End the processes."""
        if self._cluster is not None:
            self._cluster.close()


@pytest.fixture(scope="session")
def clusters() -> Iterator[Clusters]:
    """Lend the one cluster of all tests."""
    pytest.importorskip("distributed", reason="needs the extra dask")
    import dask

    # Its processes live until the last test; by default they measure themselves, for a tenth of a core, and
    # every worker, including replacements for killed ones, would import Dask again. With a server that forks
    # them, workers see the environment variables of the first cluster.
    quiet = {
        "distributed.worker.multiprocessing-method": "forkserver" if os.name == "posix" else "spawn",
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "1s",
        "distributed.admin.system-monitor.interval": "10s",
    }
    with dask.config.set(quiet):
        clusters = Clusters()
        yield clusters
        clusters.close()


@pytest.fixture
def client(clusters: Clusters) -> Iterator[Any]:
    """Lend the cluster's client, with both workers alive."""
    with clusters.client() as client:
        yield client


class MortalCluster:
    """A cluster in this process whose scheduler may be closed."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def lose(self) -> None:
        """Close the scheduler; the client soon gives up."""
        import dask

        # Not before: to connect takes longer than that where the cores are busy.
        dask.config.set({CONNECT: "1s"})
        self.client._timeout = 1.0
        cluster = self.client.cluster
        cluster.sync(cluster.scheduler.close)


@pytest.fixture
def mortal_cluster() -> Iterator[MortalCluster]:
    """Lend a cluster of its own that the test may lose."""
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    import dask

    settings = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with (
        dask.config.set({CONNECT: dask.config.get(CONNECT)}),  # restored at the end
        distributed.LocalCluster(processes=False, **settings) as cluster,
    ):
        client = distributed.Client(cluster)
        yield MortalCluster(client)
        client.close()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Lend a headless Chromium, or skip the test where there is none."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    missing = [name for name, found in (("chromium", program), ("chromedriver", driver)) if not found]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not found: the report is not tested in a browser")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    # Chromium refuses to sandbox itself for root.
    flags = (*BROWSER_FLAGS, "--no-sandbox") if hasattr(os, "getuid") and os.getuid() == 0 else BROWSER_FLAGS
    for flag in (*flags, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    # Scripts and pages may take their time on a busy machine.
    browser.set_script_timeout(600)
    browser.set_page_load_timeout(600)
    yield browser
    browser.quit()
