"""The page of a fitted model: kernels to explore, weights, classes and settings."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from skmix.report.model_data import model_data
from skmix.report.rendering import render_page

_EMBEDDED = (
    "classes",
    "prior",
    "groups",
    "rows",
    "colours",
    "steps",
    "step_names",
    "styles",
)


def model_page(model: Any, *, title: str, X: ArrayLike | None = None, y: ArrayLike | None = None) -> str:
    """Return the page of a fitted model: one HTML file that opens offline and fetches nothing.

    Parameters
    ----------
    model : fitted SharedKernelClassifier, SharedKernelMixture or GaussianMixture
        The model, of any covariance type and number of features, with feature groups or without.
    title : str
        Title of the page.
    X : array-like of shape (n, M), default=None
        Rows to draw beneath the kernels, at most 2000 of them, chosen by chance; NaN marks a missing value.
        They become part of the page.
    y : array-like of shape (n,), default=None
        Their labels; those that the model does not know are shown as rows of no class.

    Returns
    -------
    str
        The page. The same arguments give the same characters.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skmix import SharedKernelClassifier
    >>> from skmix.report import model_page
    >>> X, y = load_iris(return_X_y=True)
    >>> page = model_page(SharedKernelClassifier(random_state=0).fit(X, y), title="Iris", X=X, y=y)
    >>> page.splitlines()[0]
    '<!doctype html>'
    """
    return render_page(
        "model.html.j2",
        model_data(model, title=title, X=X, y=y),
        embedded=_EMBEDDED,
        styles=("report.css", "pages.css"),
        scripts=("kit.js", "kernels.js", "model.js", "heat.js"),
    )
