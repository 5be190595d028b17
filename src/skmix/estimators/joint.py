"""Unlabelled rows in the product form: one posterior of the class, made of all feature groups together.

The groups of a row are independent given its class, so a row without a label ties them: its class has the
posterior q_j ∝ Pr(j) Π_g p_g(x_g | j). EM over (class, kernels) alternates between these posteriors and one
pass of every group, in which such a row counts for class j with weight q_j.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from ..engine.covariances import structure_of
from ..engine.model import FloatArray, IntArray, Status
from ..engine.sources.summary import measure
from ._compat import fit
from ._validation import columns_of, observed_rows
from ._warnings import warn_caller
from .mixture import SharedKernelMixture

# A class this improbable changes no digit of the sums.
_NEGLIGIBLE = 1e-12


def fit_jointly(
    models: Sequence[SharedKernelMixture],
    groups: Sequence[list[int]],
    X: np.ndarray,
    classes: np.ndarray,
    codes: IntArray,
    row_weights: FloatArray | None,
) -> None:
    """Fit the models of all groups to rows of which some have no label.

    Parameters
    ----------
    models : sequence of SharedKernelMixture
        One for each group, unfitted; fitted on return, with a common `class_prior_`.
    groups : sequence of lists of int
        Their columns.
    X : ndarray of shape (N, M)
        Rows.
    classes : ndarray of shape (L,)
        Labels.
    codes : ndarray of shape (N,)
        Index of each row's label, −1 for none.
    row_weights : ndarray of shape (N,) or None
        Weights of the rows.
    """
    settings = [model.covariance_prior for model in models]
    for model in models:
        if isinstance(model.covariance_prior, str):
            model.covariance_prior = None  # models are fitted together, one pass at a time: no first fit
    weights = np.ones(len(X)) if row_weights is None else row_weights
    known, open_ = np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0)
    n_classes = len(classes)
    for group, (columns, model) in enumerate(zip(groups, models, strict=True)):
        own = observed_rows(X, codes, weights, columns, classes, group)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # this is only where EM begins
            model._fit_codes(own[0], classes, own[1], None if row_weights is None else own[2], columns)
    # Every row without a label appears once for each class; its weights change from pass to pass.
    every = np.concatenate([known, np.repeat(open_, n_classes)])
    every_code = np.concatenate([codes[known], np.tile(np.arange(n_classes), len(open_))])
    rows = X[every]
    counted = np.bincount(codes[known], weights=weights[known], minlength=n_classes)
    prior = counted / counted.sum()
    path: list[FloatArray] = []
    converged = False
    while True:
        joint = np.log(prior) + sum(
            model._class_log_likelihood(columns_of(X, columns))
            for columns, model in zip(groups, models, strict=True)
        )
        evidence = logsumexp(joint[open_], axis=1)
        posterior = np.exp(joint[open_] - evidence[:, None])
        of_known = weights[known] * joint[known, codes[known]]
        of_classes = np.bincount(codes[known], weights=of_known, minlength=n_classes)
        path.append(np.append(of_classes, weights[open_] @ evidence))
        gain = path[-1].sum() - path[-2].sum() if len(path) > 1 else np.inf
        converged = bool(abs(gain) < models[0].tol * weights.sum())
        if converged or len(path) == models[0].max_iter:
            break
        shares = weights[open_, None] * np.maximum(posterior, _NEGLIGIBLE)
        now = np.concatenate([weights[known], shares.ravel()])
        for columns, model in zip(groups, models, strict=True):
            _one_pass(model, rows, every_code, now, columns)
        sizes = counted + shares.sum(axis=0)
        prior = sizes / sizes.sum()
    for model, prior_setting in zip(models, settings, strict=True):
        model.covariance_prior = prior_setting
        model.class_prior_ = prior
        model.n_iter_ = len(path)
        model.converged_ = converged
        # Of rows and labels together, and of all groups: the same for each model.
        model.log_likelihood_ = float(path[-1].sum())
        model.log_likelihood_path_ = np.array(path)
    if not converged:
        warn_caller(
            f"EM over unlabelled rows did not converge in {len(path)} passes. Increase max_iter or tol.",
            ConvergenceWarning,
        )


def _one_pass(
    model: SharedKernelMixture, X: np.ndarray, codes: IntArray, weights: FloatArray, columns: list[int]
) -> None:
    """Let labelled, weighted rows move one model by one pass of EM."""
    own, own_codes, own_weights = observed_rows(X, codes, weights, columns, None, 0)
    options = replace(model._options(own.shape[1]), max_iter=1, tol=0.0, accelerate=False)
    frame = measure(own, structure_of(options.covariance_type), columns, own_weights)
    result = fit(own, own_codes, model._parameters.batch(), options, frame=frame, row_weights=own_weights)
    if result.status[0] == Status.FAILED:
        raise ValueError(
            f"A covariance of the features {columns} became singular, with variance_floor="
            f"{model.variance_floor}. Use a larger one (1e-6 by default) or a covariance_prior."
        )
    found = result.parameters.take(0)
    model.weights_, model.means_, model.covariances_ = found.weights, found.means, found.covariances
