"""Proportions of new samples, of every kind of mixture and rows, against plain EM on the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import brute
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import digamma

from skmix import SharedKernelMixture, Study, compose, load, open_rows
from skmix.features import Arcsinh, Logicle
from skmix.samples import merge_kernels

MEANS = np.array([[0.0, 0.0], [3.0, 1.0], [1.0, 4.0]])
NAMES = ["CD3", "CD4"]
TAILS: dict[str, Any] = {"gaussian": {}, "t": {"tail": "t", "degrees": 4.0}}
PRIORS: dict[str, dict[str, Any]] = {
    "likelihood": {"weight_prior": None},
    "given": {"weight_prior": 8.0},
    "hierarchical": {"weight_prior": "hierarchical"},
    "variational": {"inference": "variational", "weight_prior": 8.0},
}


def drawn(shares: Any, n: int, seed: int) -> np.ndarray:
    """Return cells of kernels that overlap, and some debris."""
    random = np.random.default_rng(seed)
    X = MEANS[random.choice(3, n, p=shares)] + random.normal(size=(n, 2))
    X[: n // 20] = random.uniform(-12.0, 15.0, size=(n // 20, 2))
    return X


NEW = {"low": drawn([0.7, 0.2, 0.1], 90, 11), "high": drawn([0.1, 0.1, 0.8], 160, 12)}


def fitted(tail: str, prior: str) -> SharedKernelMixture:
    shares = np.random.default_rng(0).dirichlet([6.0, 4.0, 3.0], size=6)
    X = np.concatenate([drawn(own, 150, seed) for seed, own in enumerate(shares)])
    frame = pd.DataFrame(X, columns=NAMES)
    start = {"means": MEANS, "covariances": np.tile(np.eye(2), (3, 1, 1))}
    model = SharedKernelMixture(3, init=start, **TAILS[tail], max_iter=500, **PRIORS[prior])
    return model.fit(frame, np.repeat([f"s{i}" for i in range(6)], 150))


def densities(model: Any, X: np.ndarray) -> np.ndarray:
    """Return densities (n, K) of the kernels."""
    degrees = getattr(model, "kernel_degrees_", None)
    own = brute.Model(model.weights_, model.means_, model.covariances_, degrees=degrees)
    return np.exp(brute.log_densities(X, own))


def plain_em(model: Any, X: np.ndarray, prior: str) -> np.ndarray:
    """Return the proportions (K,) of kernels in one new sample."""
    f = densities(model, X)
    added = {"likelihood": 0.0, "given": 7.0, "variational": 8.0}
    pseudo = np.broadcast_to(model.weight_prior_ if prior == "hierarchical" else added[prior], 3)
    counts = np.full(3, len(X) / 3.0)
    for _ in range(1000):
        total = counts + pseudo
        weights = total / total.sum()
        if prior in ("hierarchical", "variational"):
            weights = np.exp(digamma(total) - digamma(total.sum()))
        joint = f * weights
        counts = (joint / joint.sum(axis=1, keepdims=True)).sum(axis=0)
    return (counts + pseudo) / (counts + pseudo).sum()


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("prior", PRIORS)
def test_new_samples_have_the_proportions_of_plain_em(tail: str, prior: str, tmp_path: Path) -> None:
    if prior == "variational" and tail != "gaussian":
        with pytest.raises(ValueError, match="cannot be combined"):
            fitted(tail, prior)
        return
    model = fitted(tail, prior)
    before = {name: np.copy(vars(model)[name]) for name in ("means_", "covariances_", "weights_", "classes_")}
    X, y = np.concatenate(list(NEW.values())), np.repeat(list(NEW), [len(own) for own in NEW.values()])
    frame = pd.DataFrame(X, columns=NAMES)
    files = [tmp_path / f"{name}.csv" for name in NEW]
    for path, own in zip(files, NEW.values(), strict=True):
        pd.DataFrame(own, columns=NAMES).to_csv(path, index=False)
    frame.assign(donor=y).to_parquet(tmp_path / "cells.parquet")
    study, merged = Study(model), Study(model, merge_kernels(model, n_populations=2))
    expected = {name: plain_em(model, own, prior) for name, own in NEW.items()}
    for given, options in (
        (X, {"sample": y}),
        (frame[NAMES[::-1]].assign(donor=y), {"sample": "donor"}),
        (files, {}),
        (tmp_path / "cells.parquet", {"sample": "donor"}),
        (open_rows(X, label=y, chunk_rows=50), {}),
    ):
        new = study.apply_to(given, **options)
        assert sorted(new.samples) == sorted(NEW)
        table = new.proportions.pivot(index="sample", columns="kernel", values="proportion")
        for name, shares in expected.items():
            assert_allclose(table.loc[name], shares, atol=2e-3)
    assert merged.populations is not None
    sums = merged.apply_to(files).proportions.pivot(index="sample", columns="population", values="proportion")
    for name, shares in expected.items():
        assert_allclose(sums.loc[name], shares @ merged.populations.members, atol=2e-3)
    for name, value in before.items():
        assert_array_equal(vars(model)[name], value)


def test_cells_of_new_samples_are_labelled_by_their_own_weights(tmp_path: Path) -> None:
    """Also if samples of the fit have the same names."""
    y = np.repeat(["s0", "s1"], [len(own) for own in NEW.values()])
    new = Study(fitted("gaussian", "likelihood")).apply_to(np.concatenate(list(NEW.values())), sample=y)
    new.label_cells(tmp_path / "labels.csv")
    means = pd.read_csv(tmp_path / "labels.csv").groupby("sample")[["p_0", "p_1", "p_2"]].mean()
    # Weights of largest likelihood are mean probabilities.
    shares = new.proportions.pivot(index="sample", columns="kernel", values="proportion")
    assert_allclose(means, shares, atol=2e-3)


def test_missing_values_of_arrays_and_of_files_with_a_word_for_them_are_the_same(tmp_path: Path) -> None:
    """A study of files knows their words for missing values; new files have the same ones."""
    files = [tmp_path / f"{name}.csv" for name in NEW]
    for path, own in zip(files, NEW.values(), strict=True):
        pd.DataFrame(own, columns=NAMES).to_csv(path, index=False)
    study = compose(files, n_kernels=3, text={"missing": ["?"]})
    X = NEW["low"].copy()
    X[::7, 1] = np.nan
    pd.DataFrame(X, columns=NAMES).to_csv(tmp_path / "new.csv", index=False, na_rep="?")
    expected = study.apply_to(X).proportions
    assert_allclose(
        study.apply_to(tmp_path / "new.csv").proportions["proportion"], expected["proportion"], atol=1e-9
    )
    assert study.apply_to([tmp_path / "new.csv"]).samples == ["new"]


def test_files_that_are_compensated_already(tmp_path: Path) -> None:
    """Their scale is that of the fit; labels and pages of such samples are of the same values."""
    flowio = pytest.importorskip("flowio")
    X = 1000.0 + 100.0 * np.concatenate(list(NEW.values()))
    mixed = X @ [[1.0, 0.2], [0.1, 1.0]]
    for name, rows, keywords in (("raw", mixed, {"SPILLOVER": "2,A,B,1,0.2,0.1,1"}), ("done", X, {})):
        with open(tmp_path / f"{name}.fcs", "wb") as file:
            flowio.create_fcs(file, rows.ravel().tolist(), ["A", "B"], None, keywords)
    study = compose(tmp_path / "raw.fcs", n_kernels=3)
    with pytest.raises(ValueError, match=r"done\.fcs has no spill-over matrix"):
        study.apply_to(tmp_path / "done.fcs")
    new = study.apply_to(tmp_path / "done.fcs", compensate=False)
    assert_allclose(new.proportions["proportion"], study.proportions["proportion"], atol=1e-3)
    for each, name in ((study, "raw"), (new, "done")):
        each.label_cells(tmp_path / f"{name}.csv", probabilities=False)
    labels = [pd.read_csv(tmp_path / f"{name}.csv")["population"] for name in ("raw", "done")]
    assert np.mean(labels[0] == labels[1]) > 0.99
    assert new.describe()["compensate"] is False
    assert study.model.recipe_["compensate"] is True


# ---------------------------------------------------------------- scales

# Every way to name a scale; those of a line are the same scale.
SCALES: dict[str, list[Any]] = {
    "none": [None, "none"],
    "arcsinh:150": [
        "arcsinh:150",
        "arcsinh:150.0",
        "arcsinh:1.5e2",
        Arcsinh(150),
        Arcsinh(np.float64(150.0)),
    ],
    "arcsinh:5": ["arcsinh", "arcsinh:5", Arcsinh(), Arcsinh(5.0).fit([[1.0]])],
    "logicle": ["logicle", Logicle(), Logicle(T=262144, W=0.5, M=4.5, A=0)],
    "own logicle": [Logicle(W=1), Logicle(W=1.0, M=4.5)],
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Write samples in tables of two formats."""
    folder, found = tmp_path_factory.mktemp("tables"), {}
    for suffix in (".csv", ".npy"):
        found[suffix] = [folder / f"{name}{suffix}" for name in NEW]
    for name, csv, npy in zip(NEW, *found.values(), strict=True):
        pd.DataFrame(100.0 * NEW[name], columns=NAMES).to_csv(csv, index=False)
        np.save(npy, 100.0 * NEW[name])
    return found


@pytest.mark.parametrize("suffix", [".csv", ".npy"])
@pytest.mark.parametrize("scale", SCALES)
def test_a_study_accepts_its_own_scale_in_any_words_and_refuses_others(
    tables: dict[str, list[Path]], tmp_path: Path, scale: str, suffix: str
) -> None:
    files = tables[suffix]
    study = compose(files, transform=SCALES[scale][-1], n_kernels=2)
    study.save(tmp_path / "study.skmix")
    expected = study.apply_to(files).proportions
    assert_allclose(expected["proportion"], study.proportions["proportion"], atol=1e-3)
    for found in (study, load(tmp_path / "study.skmix")):
        for name, spellings in SCALES.items():
            for spelling in spellings:
                if name == scale:
                    again = found.apply_to(files, transform=spelling).proportions
                    pd.testing.assert_frame_equal(again, expected)
                else:
                    with pytest.raises(ValueError, match=r"transform.* differs from the fit"):
                        found.apply_to(files, transform=spelling)
    with pytest.raises(ValueError, match="'log' is none of arcsinh"):
        study.apply_to(files, transform="log")


def test_a_study_of_values_in_memory_takes_others_as_they_are(tables: dict[str, list[Path]]) -> None:
    """Those may be on a scale already, so files may need one."""
    X, sample = np.arcsinh(np.concatenate(list(NEW.values())) / 1.5), np.repeat([*NEW], [90, 160])
    for rows in (X, pd.DataFrame(X, columns=NAMES)):
        study = compose(rows, sample=sample, n_kernels=2)
        expected = study.proportions["proportion"]
        assert_allclose(
            study.apply_to(rows, sample=sample, transform=None).proportions["proportion"], expected
        )
        with pytest.raises(
            ValueError, match=r"transform.* differs from the fit, which was on the scale none"
        ):
            study.apply_to(rows, sample=sample, transform="arcsinh:150")
        found = study.apply_to(tables[".csv"], transform=Arcsinh(150.0)).proportions.set_index("sample")
        own = study.proportions.set_index("sample")
        assert_allclose(found.loc[list(NEW), "proportion"], own.loc[list(NEW), "proportion"], atol=1e-3)


def test_the_scale_of_an_array_is_what_is_said_of_it(tables: dict[str, list[Path]]) -> None:
    study = compose(tables[".csv"], transform="arcsinh:150", n_kernels=2)
    raw = 100.0 * NEW["high"]
    expected = study.apply_to([tables[".csv"][1]]).proportions["proportion"]
    for rows, how in (
        (raw, {"transform": Arcsinh(150.0)}),
        (np.arcsinh(raw / 150.0), {}),
        (pd.DataFrame(raw, columns=NAMES), {}),
        (pd.DataFrame(raw, columns=NAMES), {"transform": "arcsinh:150.0"}),
    ):
        assert_allclose(study.apply_to(rows, **how).proportions["proportion"], expected, atol=1e-6)


def test_scatter_is_part_of_the_scale(tmp_path: Path) -> None:
    """A name leaves it linear, an object does not."""
    flowio = pytest.importorskip("flowio")
    X = np.c_[2e5 * np.random.default_rng(0).random(250), 300.0 * np.concatenate(list(NEW.values()))]
    with open(tmp_path / "a.fcs", "wb") as file:
        flowio.create_fcs(file, X.ravel().tolist(), ["FSC-A", "B-A", "R-A"])
    study = compose(tmp_path / "a.fcs", transform="arcsinh:150", n_kernels=2)
    assert list(study.model.recipe_["linear"]) == ["FSC-A"]
    expected = study.apply_to(tmp_path / "a.fcs").proportions
    for how in (
        {"transform": "arcsinh:150.0"},
        {"compensate": False},
        {"compensate": False, "transform": "auto"},
    ):
        pd.testing.assert_frame_equal(study.apply_to(tmp_path / "a.fcs", **how).proportions, expected)
    with pytest.raises(ValueError, match=r"on arcsinh:150 \(FSC-A linear\)"):
        study.apply_to(tmp_path / "a.fcs", transform=Arcsinh(150.0))
    with pytest.raises(ValueError, match=r"compensate.* differs from the fit"):
        study.apply_to(tmp_path / "a.fcs", compensate=True)
    whole = compose(tmp_path / "a.fcs", transform=Arcsinh(150.0), n_kernels=2)
    expected = whole.apply_to(tmp_path / "a.fcs").proportions
    for spelling in SCALES["arcsinh:150"]:
        found = whole.apply_to(tmp_path / "a.fcs", transform=spelling).proportions
        pd.testing.assert_frame_equal(found, expected)
