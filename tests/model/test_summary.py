"""What a notebook shows of a fitted estimator."""

from __future__ import annotations

import html
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context

from skmix import SharedKernelClassifier, SharedKernelClassifierCV, SharedKernelMixture, SharedKernelMixtureCV

RNG = np.random.default_rng(0)
Y = np.repeat(["<a>", "b"], [80, 40])
X = RNG.normal(size=(120, 2)) + 4.0 * (Y == "b")[:, None]
FRAME = pd.DataFrame(X, columns=["u", "v"]).assign(colour=RNG.choice(["red", "green", "blue"], 120))


def table_of(model: Any) -> dict[str, str]:
    """Return the last table of the HTML of a model, the same by both ways to ask for it."""
    shown = model._repr_mimebundle_()
    assert shown["text/plain"] == repr(model)
    tables = []
    for page in (shown["text/html"], model._repr_html_()):
        last = page[page.rindex("<table") :]
        pairs = re.findall("<tr><th[^>]*>(.*?)</th><td[^>]*>(.*?)</td></tr>", last)
        tables.append({name: html.unescape(text) for name, text in pairs})
    assert tables[0] == tables[1]
    with config_context(display="text"):
        assert model._repr_mimebundle_() == {"text/plain": repr(model)}
    return tables[0]


def test_an_estimator_says_what_was_fitted() -> None:
    model = SharedKernelClassifier(3, covariance_type="diag", random_state=0)
    assert "training rows" not in model._repr_html_()
    model.fit(FRAME, Y)
    assert "<a> 80" not in model._repr_html_()  # labels are escaped
    assert table_of(model) == {
        "training rows": "120 in 2 classes: <a> 80, b 40",
        "columns": "3, encoded as 5 features",
        "kernels": "3, diag covariances",
        "fit": f"converged in {model.n_iter_} passes",
        "log-likelihood": f"{model.log_likelihood_:.6g} (of the training rows)",
    }
    model.set_params(feature_sets=[["u"], ["v", "colour"]], tail="t", max_iter=1)
    with pytest.warns(UserWarning, match="converge"):
        found = table_of(model.fit(FRAME, Y))
    assert found["kernels"] == "3 + 3, diag covariances, Student’s t"
    assert found["fit"] == "did not converge in 1 pass"
    total = sum(part.log_likelihood_ for part in model.models_)
    assert found["log-likelihood"].startswith(f"{total:.6g} ")


def test_a_mixture_has_groups_or_rows_alone() -> None:
    model = SharedKernelMixture(2, random_state=0)
    assert table_of(model.fit(X))["training rows"] == "120"
    for weights in (np.full(120, 0.5), np.where(Y == "b", 1.0, 0.5), np.full(120, 2.0)):
        found = table_of(model.fit(X, Y, weights))["weight of the training rows"]
        a, b = 80 * weights[0], 40 * weights[-1]
        assert found == f"{a + b:g} in 2 groups: <a> {a:g}, b {b:g}"
    some = np.where(np.arange(120) % 4 == 0, None, Y)
    assert table_of(model.fit(X, some))["labelled training rows"] == "90 in 2 groups: <a> 60, b 30"
    found = table_of(model.fit(X, some, np.full(120, 2.0)))
    assert found["weight of the labelled training rows"] == "180 in 2 groups: <a> 120, b 60"
    assert table_of(model.marginal([0]))["labelled rows, or their weight"].startswith("180 in 2 groups")
    many = table_of(model.fit(X, np.arange(120) % 12))["training rows"]
    assert many.endswith("6 10, 7 10 ... (12 in all)")
    assert "log-likelihood" not in table_of(model.marginal([0]))


def test_a_search_says_how_well() -> None:
    settings: dict[str, Any] = {"n_kernels": [2, 4], "covariance_type": "diag", "random_state": 0}
    search = SharedKernelClassifierCV(**settings).fit(FRAME, Y)
    found, n_trials = table_of(search), len(search.cv_results_["params"])
    assert found["held-out log-loss"] == f"{-search.best_score_:.4g}, the best of {n_trials} trials"
    assert found["average of"].startswith(f"{len(search.classifiers_)} models")
    assert found["columns"] == "3, encoded as 5 features"
    assert found["kernels"].startswith(f"{search.classifier_.n_kernels_}, ")
    # A member may be fitted to mapped features; the columns are those of the search.
    search.classifiers_[0] = SharedKernelClassifier(2).fit(X[:, :1], Y)
    assert table_of(search)["columns"] == found["columns"]
    for criterion, name, sign in (("bic", "BIC", -1), ("log_likelihood", "held-out mean log-likelihood", 1)):
        mixtures = SharedKernelMixtureCV(criterion=criterion, **settings).fit(X)
        assert table_of(mixtures)[name].startswith(f"{sign * mixtures.best_score_:.4g}, the best of ")
    mixtures.n_untried_ = 3
    assert table_of(mixtures)["not tried"] == "3 candidates, because time was up"
