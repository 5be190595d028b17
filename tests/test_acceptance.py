"""What each of the four audiences does, from its first line to its result, by public names alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn.mixture
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skmix
from skmix.datasets import copy_examples
from skmix.paper import Settings, check_claims, make_data, make_tables, run_batch, run_one, study_results


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    copy_examples(folder)
    return folder


def test_who_classifies_a_table(examples: Path, tmp_path: Path) -> None:
    """Penguins, with text columns and missing values, by file and by frame."""
    path = examples / "penguins.csv"
    frame = pd.read_csv(path)
    train, test = train_test_split(frame, stratify=frame["species"], random_state=0)
    search = skmix.SharedKernelClassifierCV(
        skmix.SharedKernelClassifier(reject_below=0.01), n_kernels=[3, 6], cv=2, random_state=0
    )
    search.fit(train, "species")
    score = search.score(test, "species")
    assert score > 0.95
    X = test.drop(columns="species")
    shares = pd.DataFrame(search.predict_proba(X), columns=search.classes_)
    assert_allclose(shares.sum(axis=1), 1.0)
    assert_array_equal(shares.idxmax(axis=1), search.predict(X))
    assert np.mean(search.predict(X) == test["species"]) == score
    assert len(search.reasons(X).in_words()["far"]) == len(test)
    search.save(tmp_path / "penguins.skmix")
    again = skmix.load(tmp_path / "penguins.skmix")
    test.to_csv(tmp_path / "new.csv", index=False)
    assert_allclose(again.predict_proba(tmp_path / "new.csv"), search.predict_proba(X), rtol=1e-9)
    assert again.score(tmp_path / "new.csv", "species") == score


def test_who_has_a_folder_of_samples(examples: Path, tmp_path: Path) -> None:
    """Wells of bacteria on a flow cytometer, some of them learnt and others new."""
    wells = sorted((examples / "wells").glob("*.fcs"))
    with pytest.warns(UserWarning, match="may be one that shifts between samples"):
        study = skmix.compose(wells[:5], n_kernels=8, random_state=0)
    shares = study.proportions
    assert_allclose(shares.groupby("sample")["proportion"].sum(), 1.0)
    assert (shares["lower"] <= shares["proportion"]).all()
    assert (shares["proportion"] <= shares["upper"]).all()
    assert list(shares["sample"].unique()) == study.samples == [path.stem for path in wells[:5]]
    # A sample that is read again has the shares that it had.
    new = study.apply_to(wells[4:])
    assert new.samples == [path.stem for path in wells[4:]]
    found, known = (each[each["sample"] == wells[4].stem] for each in (new.proportions, shares))
    assert_allclose(found["proportion"], known["proportion"], atol=1e-3)
    assert study.unusual()["sample"].tolist() == study.samples
    # Cells are labelled as often as their populations say, roughly.
    study.label_cells(tmp_path / "cells.csv", wells[:1])
    labels = pd.read_csv(tmp_path / "cells.csv")["population"].astype(str)
    first = shares[shares["sample"] == wells[0].stem].set_index("population")["proportion"]
    counted = labels.value_counts(normalize=True).reindex(first.index.astype(str), fill_value=0.0)
    assert_allclose(counted, first, atol=0.1)
    name = study.populations.display_names[0]
    study.rename({name: "cells of interest"})
    study.save(tmp_path / "study.skmix")
    again = skmix.load(tmp_path / "study.skmix")
    assert again.proportions.equals(study.proportions)
    assert "cells of interest" in again.proportions["population"].to_numpy()
    study.to_html(tmp_path / "study.html")
    assert "cells of interest" in (tmp_path / "study.html").read_text(encoding="utf-8")


def test_who_compares_conditions(tmp_path: Path) -> None:
    """Ten tables, of which five have a population twice as often."""
    random = np.random.default_rng(0)
    for number in range(10):
        rare = 0.2 + 0.2 * (number % 2) + random.uniform(-0.02, 0.02)
        is_rare = random.random(400) < rare
        rows = random.normal(size=(400, 2)) + 8.0 * is_rare[:, None]
        pd.DataFrame(rows, columns=["CD3", "CD4"]).to_csv(tmp_path / f"s{number}.csv", index=False)
    about = {"arm": {f"s{number}": ["control", "treated"][number % 2] for number in range(10)}}
    study = skmix.compose(tmp_path, n_kernels=2, metadata=pd.DataFrame(about), random_state=0)
    table = study.compare("arm", "control").table
    assert (table["p_value"] < 0.001).all()
    assert_allclose(np.abs(table["difference"]), 0.2, atol=0.05)


@pytest.mark.parametrize("name", ["GaussianMixture", "BayesianGaussianMixture"])
def test_who_uses_mixtures_of_scikit_learn(name: str) -> None:
    """One import is another; then weights and missing values, which the other one does not take."""
    X = load_iris().data
    ours, theirs = (
        getattr(home, name)(n_components=3, max_iter=300, random_state=0).fit(X)
        for home in (skmix, sklearn.mixture)
    )
    for attribute in ("weights_", "means_", "covariances_", "n_iter_", "converged_", "lower_bound_"):
        assert_allclose(getattr(ours, attribute), getattr(theirs, attribute), rtol=1e-6)
    for method in ("predict", "predict_proba", "score_samples", "score"):
        assert_allclose(getattr(ours, method)(X), getattr(theirs, method)(X), rtol=1e-6, atol=1e-9)
    mixture = getattr(skmix, name)(max_iter=300, random_state=0)
    search = GridSearchCV(make_pipeline(StandardScaler(), mixture), {f"{name.lower()}__n_components": [1, 3]})
    assert search.fit(X).best_params_ == {f"{name.lower()}__n_components": 3}
    if name == "GaussianMixture":
        gaps = X.copy()
        gaps[::3, 1] = np.nan
        weights = 1.0 + np.arange(len(X)) % 2
        model = skmix.GaussianMixture(3, max_iter=300, random_state=0).fit(gaps, sample_weight=weights)
        assert np.isfinite(model.score_samples(gaps)).all()
        assert_allclose(model.weights_ @ model.means_[:, 0], np.average(X[:, 0], weights=weights), rtol=1e-6)


def test_who_reads_the_paper() -> None:
    """A few runs of one variant, their table and their claims; a run by itself is the same run."""
    settings = Settings(seed=3, train_per_digit=20, test_per_digit=10, max_iter=40)
    data = make_data(settings)
    batches = [run_batch(data, "3D", 10, method, range(3), settings) for method in ("published", "robust")]
    runs = pd.concat([batch.assign(data_set=0) for batch in batches], ignore_index=True)
    alone = run_one(data, "3D", 10, "robust", 2, settings)
    assert alone["accuracy"] == batches[1]["accuracy"][2]
    assert (runs["accuracy"] > 0.3).any()
    results = study_results(settings, data, runs)
    table = make_tables(results)["table1"].cells
    assert table.loc[("Mean Acc", "3D"), "robust"] == pytest.approx(batches[1]["accuracy"].mean())
    claims = {claim.claim for claim in check_claims(results)}
    assert "robust: no run fails or ends singular at K >= 10" in claims
