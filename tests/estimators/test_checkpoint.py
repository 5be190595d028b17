"""Fits that are cut short and go on from their checkpoint, against fits that never were."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from models import AfterPass, assert_same_fit
from sklearn.base import clone

import skmix
from skmix import SharedKernelClassifier, SharedKernelMixture
from skmix.estimators import Checkpoint, callbacks

RNG = np.random.default_rng(2)
X = np.concatenate(
    [RNG.normal(size=(80, 2)), RNG.normal(size=(60, 2)) * 1.5 + 2.0, RNG.normal(size=(60, 2)) - 2.5]
)
Y = np.repeat([0, 1, 2], [80, 60, 60])
UNLABELLED = np.where(np.arange(200) % 4 == 0, -1, Y)


class CutError(Exception):
    """Stands for whatever ends a fit."""


class Passes(AfterPass):
    """Callback that lists the passes made, counted from those of a checkpoint, and ends a fit after one."""

    def __init__(self):
        super().__init__(self.note)
        self.numbers, self.end = [], None

    def note(self, number):
        self.numbers.append(number)
        if len(self.numbers) == self.end:
            raise CutError(f"after pass {self.end}")


@pytest.fixture
def passes():
    """Return a callback that knows of the passes made."""
    return Passes()


def cut_short(estimator, passes, path, given, end):
    """Cut a fit after some passes, which are kept."""
    passes.numbers, passes.end = [], end
    first = clone(estimator).set_callbacks(Checkpoint(path), passes)
    with pytest.raises(CutError, match=f"after pass {end}") as caught:
        first.fit(*given)
    assert f"passes are kept in {path}" in caught.value.__notes__[0]
    assert not hasattr(first, "means_")
    passes.numbers, passes.end = [], None


def cut_and_resumed(estimator, passes, path, given, end=4):
    """Return a fit that was cut after some passes and resumed, and one that never was cut."""
    whole = clone(estimator).fit(*given)
    cut_short(estimator, passes, path, given, end)
    assert path.exists()
    resumed = clone(estimator).set_callbacks(Checkpoint(path), passes).fit(*given)
    assert not path.exists()
    return resumed, whole


@pytest.mark.parametrize("every", [0.0, np.inf])
def test_a_file_is_written_every_few_seconds(every, tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(callbacks, "_EVERY", every)
    monkeypatch.setattr(callbacks.SavedRun, "write", lambda self: written.append(self))
    model = SharedKernelMixture(3, random_state=0).set_callbacks(Checkpoint(tmp_path / "fit")).fit(X, Y)
    # Also after the first pass, and at the end.
    assert len(written) == 1 + (model.n_iter_ if every == 0.0 else 1)


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        ({}, Y),
        # With five rows for each kernel, a first fit finds the prior.
        ({"n_kernels": 40, "tol": 1e-6}, Y),
        ({"n_init": 4, "covariance_type": "diag", "init": "random_from_data"}, Y),
        ({"tol": ("per-class", 0.1), "covariance_type": "tied"}, Y),
        ({"weight_prior": 1.5, "covariance_prior": 3.0}, UNLABELLED),
        ({"weight_prior": "hierarchical"}, UNLABELLED),
        ({"init": {"means": X[:5], "weights": np.full((5, 3), 0.2), "freeze": "weights"}}, Y),
    ],
)
def test_a_fit_goes_on_as_if_nothing_had_happened(settings, labels, passes, tmp_path):
    mixture = SharedKernelMixture(5, random_state=0, max_iter=1000).set_params(**settings)
    resumed, whole = cut_and_resumed(mixture, passes, tmp_path / "fit.skmix", (X, labels))
    # The pass after which the fit was interrupted had been made, and is kept.
    if whole.n_init == 1:
        assert len(passes.numbers) == whole.n_iter_ - 4
    assert getattr(resumed, "shrinkage_", None) == getattr(whole, "shrinkage_", None)
    assert_same_fit(resumed, whole, rtol=1e-10)


class Interrupt:
    """Callback that interrupts the fourth pass at its n-th line of skmix's code, as Ctrl-C may."""

    def __init__(self, n_lines):
        self.after, self.n_lines, self.n_seen = AfterPass(self.begin), n_lines, 0
        self.folder, self.tracer = str(Path(skmix.__file__).parent), sys.gettrace()

    def __getattr__(self, name):
        return getattr(self.after, name)

    def begin(self, number):
        if number == 4:
            sys.settrace(self.tracer)
        if number == 3:
            sys.settrace(self.enter)
            frame = sys._getframe()
            while frame is not None:  # functions that were entered before
                frame.f_trace = self.enter(frame, "call", None)
                frame = frame.f_back

    def enter(self, frame, event, argument):
        return self.count if frame.f_code.co_filename.startswith(self.folder) else None

    def count(self, frame, event, argument):
        if event == "line":
            self.n_seen += 1
            if self.n_seen == self.n_lines:
                sys.settrace(self.tracer)
                raise KeyboardInterrupt
        return self.count


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "settings", [{}, {"weight_prior": "hierarchical"}, {"n_init": 3, "init": "random_from_data", "tol": 3e-3}]
)
def test_an_interrupt_at_any_line_keeps_a_whole_number_of_passes(settings, tmp_path):
    rows, labels = X[::8], Y[::8]
    settings = {"tol": 0.0, "max_iter": 6, "covariance_prior": None, "n_jobs": 1, **settings}
    mixture = SharedKernelMixture(2, covariance_type="diag", random_state=0).set_params(**settings)
    counted, path = Interrupt(0), tmp_path / "fit.skmix"
    whole = clone(mixture).set_callbacks(counted).fit(rows, labels)
    assert counted.n_seen > 50
    for line in range(1, counted.n_seen, 5):  # the state that is saved changes over more lines than that
        with pytest.raises(KeyboardInterrupt):
            clone(mixture).set_callbacks(Checkpoint(path), Interrupt(line)).fit(rows, labels)
        resumed = clone(mixture).set_callbacks(Checkpoint(path)).fit(rows, labels)
        assert_same_fit(resumed, whole, rtol=1e-12)
        np.testing.assert_array_equal(resumed.log_likelihood_path_, whole.log_likelihood_path_)


def test_dask_collections_go_on_in_memory_and_back(passes, tmp_path):
    array = pytest.importorskip("dask.array", reason="needs the extra dask")
    mixture = SharedKernelMixture(5, init={"means": X[:5]}, max_iter=1000)
    lazy = array.from_array(X, chunks=(70, 2)), array.from_array(Y, chunks=70)
    resumed, whole = cut_and_resumed(mixture, passes, tmp_path / "fit.skmix", lazy)
    assert len(passes.numbers) == whole.n_iter_ - 4
    np.testing.assert_allclose(resumed.means_, whole.means_, rtol=1e-10)
    cut_short(mixture, passes, tmp_path / "fit.skmix", lazy, 4)
    inside = clone(mixture).set_callbacks(Checkpoint(tmp_path / "fit.skmix"), passes).fit(X, Y)
    assert len(passes.numbers) == whole.n_iter_ - 4
    np.testing.assert_allclose(inside.means_, whole.means_, rtol=1e-9)


def test_feature_sets_that_were_done_are_not_done_again(passes, tmp_path):
    path = tmp_path / "fit.skmix"
    classifier = SharedKernelClassifier(feature_sets=[[0], [1]], random_state=0, max_iter=1000)
    whole = clone(classifier).fit(X, Y)
    cut_short(classifier, passes, str(path), (X, Y), whole.models_[0].n_iter_ + 3)
    assert {each.name for each in tmp_path.iterdir()} == {"fit.skmix.0", "fit.skmix.1"}
    resumed = clone(classifier).set_callbacks(Checkpoint(str(path)), passes).fit(X, Y)
    assert len(passes.numbers) == whole.models_[1].n_iter_ - 3
    assert not list(tmp_path.iterdir())
    for model, other in zip(resumed.models_, whole.models_, strict=True):
        np.testing.assert_allclose(model.means_, other.means_, rtol=1e-10)


PRIOR = np.array([[1.0, 0.2], [0.2, 1.0]])


def interrupted(path, passes):
    mixture = SharedKernelMixture(3, init={"means": X[[0, 100, 150]]}, covariance_prior=(3, PRIOR))
    cut_short(mixture, passes, path, (X, Y), 3)
    return mixture.set_callbacks(Checkpoint(path))


def test_a_checkpoint_of_another_fit_is_refused(passes, tmp_path):
    path = tmp_path / "fit.skmix"
    mixture = interrupted(path, passes)
    for change, given, message in [
        (
            {"covariance_type": "diag"},
            (X, Y),
            "it has covariance_type='auto', this one covariance_type='diag'",
        ),
        ({"init": {"means": X[:3]}}, (X, Y), "it has init=dict .*, this one init=dict"),
        ({"tol": 0.5}, (X, Y), r"it has tol='auto', this one tol=0\.5"),
        ({}, (X[:, :1], Y), "n_features 2, these 1"),
        ({}, (X, np.array(["a", "b", "c"])[Y]), r"classes=\['0', '1', '2'\], this one classes=\['a'"),
        ({}, (X[1:], Y[1:]), r"class sizes \[80.0, 60.0, 60.0\], these \[79.0"),
        ({}, (X + 1e-3, Y), "its rows have origin"),
    ]:
        other = clone(mixture).set_params(**change)
        if given[0].shape[1] == 1:
            other.set_params(init={"means": X[[0, 100, 150], :1]}, covariance_prior=(3, PRIOR[:1, :1]))
            message = "another fit"
        with pytest.raises(ValueError, match=message):
            other.fit(*given)
    assert path.exists()
    # How long may change, and so may the layout of equal arrays and the type of equal numbers.
    changed = {"max_iter": 500, "n_jobs": 2, "n_kernels": np.int64(3)}
    changed |= {"init": {"means": np.asfortranarray(X[[0, 100, 150]])}}
    changed |= {"covariance_prior": (3, np.asfortranarray(PRIOR))}
    clone(mixture).set_params(**changed).fit(X, Y)
    assert not path.exists()


def test_files_that_are_no_checkpoint_are_refused(passes, tmp_path):
    path = tmp_path / "fit.skmix"
    model = SharedKernelMixture(2, random_state=0).fit(X)
    model.save(path)
    with pytest.raises(ValueError, match="is not a checkpoint"):
        clone(model).set_callbacks(Checkpoint(path)).fit(X)
    path.write_text("no model, and no checkpoint either")
    with pytest.raises(ValueError, match=r"fit\.skmix cannot be read as a checkpoint .*remove the file"):
        clone(model).set_callbacks(Checkpoint(path)).fit(X)
    with pytest.raises(ValueError, match=r"Checkpoint needs a file, but .* is a folder"):
        clone(model).set_callbacks(Checkpoint(tmp_path)).fit(X)
    # Before any row is read.
    with pytest.raises(ValueError, match="Checkpoint needs an existing folder"):
        clone(model).set_callbacks(Checkpoint(tmp_path / "none" / "fit.skmix")).fit(tmp_path / "no rows.npy")
    path.unlink()
    mixture = interrupted(path, passes)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match="truncated or damaged"):
        mixture.fit(X, Y)


def test_a_lost_scheduler_names_the_checkpoint_and_the_fit_goes_on(tmp_path, mortal_cluster):
    import dask.array as da

    from skmix.engine.rows.dask import ClusterError

    path = tmp_path / "fit.skmix"
    mixture = SharedKernelMixture(3, init={"means": X[[0, 100, 150]]}, max_iter=1000)
    lazy = da.from_array(X, chunks=(70, 2)), da.from_array(Y, chunks=70)

    def lose(number):
        if number == 3:
            mortal_cluster.lose()

    with pytest.raises(ClusterError, match=f"scheduler .* is lost.* 3 passes are kept in {path}"):
        clone(mixture).set_callbacks(Checkpoint(path), AfterPass(lose)).fit(*lazy)
    resumed = clone(mixture).set_callbacks(Checkpoint(path)).fit(*lazy)
    np.testing.assert_allclose(resumed.means_, clone(mixture).fit(X, Y).means_, rtol=1e-9)
