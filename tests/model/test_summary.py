"""What a notebook shows of a fitted estimator."""

from __future__ import annotations

import html
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context

from skmix import SharedKernelClassifier

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
