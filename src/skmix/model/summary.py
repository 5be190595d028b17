"""What was fitted, and how well, in a table below scikit-learn's box of an estimator in a notebook."""

from __future__ import annotations

import html
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from .._words import listed, shortened
from ..data.recipe import Recipe

# Number of classes whose names and sizes are shown.
_MOST_CLASSES = 8


class SummaryMixin:
    """Adds a summary of the fit to the HTML representation of a fitted estimator."""

    def _repr_html_inner(self) -> str:
        return f"{super()._repr_html_inner()}{_table(self)}"  # type: ignore[misc]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        output: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        return {kind: text + _table(self) if kind == "text/html" else text for kind, text in output.items()}


def _table(model: Any) -> str:
    left = "style='text-align: left'"
    lines = "".join(
        f"<tr><th {left}>{html.escape(name)}</th><td {left}>{html.escape(text)}</td></tr>"
        for name, text in summary_of(model).items()
    )
    return f"<table>{lines}</table>" if lines else ""


def summary_of(estimator: Any) -> dict[str, str]:
    """What was fitted and how well, in words; nothing if the estimator is not fitted."""
    texts, model = {}, estimator
    if hasattr(estimator, "cv_results_"):
        texts, model = _of_search(estimator), estimator._model
    if not hasattr(model, "class_prior_"):
        return texts
    columns, mixtures = Recipe.of(estimator), getattr(model, "models_", [model])
    labels, sizes = model.classes_.tolist(), model.class_count_
    rows = _number(sizes.sum())
    if len(labels) > 1:
        pairs = zip(labels, sizes, strict=True)
        named = [f"{shortened(str(label))} {_number(size)}" for label, size in pairs]
        kind = "classes" if is_classifier(model) else "groups"
        rows = f"{rows} in {len(labels)} {kind}: {listed(named, _MOST_CLASSES)}"
    texts[_what_is_counted(mixtures[0], len(labels))] = rows
    n_columns, n_features = len(columns.kinds), columns.n_features
    encoded = "" if n_columns == n_features else f", encoded as {n_features} features"
    texts["columns"] = f"{n_columns}{encoded}"
    numbers = " + ".join(str(len(mixture.means_)) for mixture in mixtures)
    tail = ", Student’s t" if hasattr(mixtures[0], "kernel_degrees_") else ""
    texts["kernels"] = f"{numbers}, {mixtures[0].covariance_type_.replace('_', ' ')} covariances{tail}"
    if any(getattr(mixture, "stream_", None) for mixture in mixtures):
        texts["fit"] = f"{model.n_iter_} {'batch' if model.n_iter_ == 1 else 'batches'} of a stream"
        return texts
    ended = "converged" if all(mixture.converged_ for mixture in mixtures) else "did not converge"
    texts["fit"] = f"{ended} in {model.n_iter_} {'pass' if model.n_iter_ == 1 else 'passes'}"
    # After tuning it would be that of other kernels.
    if not hasattr(model, "tuned_") and all(hasattr(mixture, "log_likelihood_") for mixture in mixtures):
        total = sum(mixture.log_likelihood_ for mixture in mixtures)
        texts["log-likelihood"] = f"{total:.6g} (of the training rows)"
    return texts


def _number(size: Any) -> str:
    return f"{float(size):.10g}"


def _what_is_counted(mixture: Any, n_classes: int) -> str:
    """What `class_count_` counts: all rows or the labelled ones, or their weight."""
    if not hasattr(mixture, "has_weights_"):  # of a stream, or of some columns
        return "labelled rows, or their weight" if n_classes > 1 else "training rows, or their weight"
    # Unlabelled rows have a column of their own.
    unlabelled = mixture.log_likelihood_path_.shape[1] > n_classes
    name = "labelled training rows" if unlabelled else "training rows"
    return f"weight of the {name}" if mixture.has_weights_ else name


def _of_search(search: Any) -> dict[str, str]:
    score, name = search.best_score_, "held-out mean log-likelihood"
    if is_classifier(search):
        score, name = -score, "held-out log-loss"
    elif "split0_test_score" not in search.cv_results_:
        score, name = -score, "BIC"
    n_trials = len(search.cv_results_["params"])
    texts = {name: f"{score:.4g}, the best of {n_trials} trials"} if np.isfinite(score) else {}
    if search.n_untried_:
        texts["not tried"] = f"{search.n_untried_} candidates, because time was up"
    n_members = len(getattr(search, "classifiers_", getattr(search, "mixtures_", ())))
    if n_members > 1:
        texts["average of"] = f"{n_members} models; below is the best of them"
    return texts
