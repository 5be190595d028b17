"""What a notebook shows of fitted estimators and of studies."""

from __future__ import annotations

import html
import re
from typing import Any

import numpy as np
import pandas as pd
from sklearn import config_context

from skmix import (
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    compose,
)
from skmix.report import evaluate

RNG = np.random.default_rng(0)
Y = np.repeat(["<a>", "b"], [80, 40])
X = RNG.normal(size=(120, 2)) + 4.0 * (Y == "b")[:, None]
FRAME = pd.DataFrame(X, columns=["u", "v"]).assign(colour=RNG.choice(["red", "green", "blue"], 120))
SEARCH: dict[str, Any] = {"n_kernels": [2], "covariance_type": "diag", "cv": 2, "random_state": 0}


def table_of(model: Any) -> dict[str, str]:
    """Return the last table of the HTML of a model, the same by both ways to ask for it."""
    shown = model._repr_mimebundle_()
    tables = []
    for page in (shown["text/html"], model._repr_html_()):
        assert "<a> 80" not in page  # labels are escaped
        pairs = re.findall("<tr><th[^>]*>(.*?)</th><td[^>]*>(.*?)</td></tr>", page[page.rindex("<table") :])
        tables.append({name: html.unescape(text) for name, text in pairs})
    assert tables[0] == tables[1]
    with config_context(display="text"):
        assert model._repr_mimebundle_() == {"text/plain": repr(model)} == {"text/plain": shown["text/plain"]}
    return tables[0]


def test_estimators_say_what_was_fitted() -> None:
    classifier = SharedKernelClassifier(3, random_state=0)
    assert "training rows" not in classifier._repr_html_()
    shown = table_of(classifier.fit(FRAME, Y))
    assert shown["training rows"] == "120 in 2 classes: <a> 80, b 40"
    assert shown["columns"] == "3, encoded as 5 features"
    assert shown["log-likelihood"].startswith(f"{classifier.log_likelihood_:.6g} ")
    mixture = SharedKernelMixture(2, tail="t", random_state=0).fit(X, Y, np.full(120, 2.0))
    assert table_of(mixture)["weight of the training rows"] == "240 in 2 groups: <a> 160, b 80"
    assert "log-likelihood" not in table_of(mixture.marginal([0]))
    search = SharedKernelClassifierCV(**SEARCH).fit(FRAME, Y)
    assert table_of(search)["held-out log-loss"].startswith(f"{-search.best_score_:.4g}, the best of ")
    mixtures = SharedKernelMixtureCV(criterion="bic", **SEARCH).fit(X)
    assert table_of(mixtures)["BIC"].startswith(f"{-mixtures.best_score_:.4g}, the best of ")


def test_studies_and_evaluations_are_tables_and_pictures() -> None:
    samples = np.tile([f"s{i}" for i in range(6)], 20)
    arm = {"sample": sorted(set(samples)), "arm": list("xyxyxy")}
    study = compose(X, sample=samples, n_kernels=2, metadata=arm, random_state=0)
    shown = study._repr_html_()
    assert "s5" in shown
    assert "<svg" in shown or "<img" in shown
    assert "population" in repr(study.populations)
    for picture in (study.plot, study.plot_markers, study.compare("arm").plot):
        assert picture() is not None
    found = evaluate(SharedKernelClassifier(2, random_state=0).fit(X, Y), X, Y)
    assert f"accuracy {found.accuracy:.3f}" in repr(found)
    assert "<td>macro F1</td>" in found._repr_html_()
