"""Unlabelled rows in the product form: one posterior of the class, made of all feature groups together.

The groups of a row are independent given its class, so a row without a label ties them: its class has the
posterior q_j ∝ Pr(j) Π_g p_g(x_g | j). EM over (class, kernels) alternates between these posteriors and one
pass of every group, in which such a row counts for class j with weight q_j.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from ..engine.compute.blocks import Block
from ..engine.compute.threads import workers
from ..engine.covariances import structure_of
from ..engine.density import class_log_likelihood
from ..engine.em import one_pass, rule_of
from ..engine.model import FloatArray, Parameters
from ..engine.rules.likelihood import with_frozen
from ..engine.sources import Setting, open_source
from ._warnings import warn_caller
from .rows import Training, columns_of
from .solving import fit_model, options_of

# A class this improbable changes no digit of the sums.
_NEGLIGIBLE = 1e-12


def fit_jointly(models: Sequence[Any], groups: Sequence[list[int]], training: Training) -> None:
    """Fit the models of all feature groups to rows in memory of which some have no label.

    The models are fitted on return, with a common `class_prior_`; `groups` are their columns.
    """
    if models[0].inference == "variational" or training.blocks is not None:
        needs = "inference='em'" if training.blocks is None else "all rows in memory"
        raise ValueError(
            f"{training.n_unlabelled} rows have no label, and with several feature groups such rows need "
            f"{needs}. Leave them out, or fit one group."
        )
    # EM over all groups begins with fits of each.
    for group, (columns, model) in enumerate(zip(groups, models, strict=True)):
        setting = model.covariance_prior
        # The groups are fitted together: there is no first fit to shrink by.
        model.covariance_prior = None if isinstance(setting, str) else setting
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fit_model(model, training.take(columns, group), columns)
        model.covariance_prior = setting
    X, codes, weights = training.source.start_rows()
    weights, n_classes = np.ones(len(X)) if weights is None else weights, len(training.classes)
    known, open_ = np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0)
    # Every row without a label appears once for each class; its weights change from pass to pass.
    every = np.concatenate([known, np.repeat(open_, n_classes)])
    every_code = np.concatenate([codes[known], np.tile(np.arange(n_classes), len(open_))])
    rows, prior = X[every], training.class_prior
    path: list[FloatArray] = []
    while True:
        likelihoods = [
            class_log_likelihood(
                columns_of(X[open_], columns),
                model._parameters,
                model.covariance_type_,
                effective_n_jobs(model.n_jobs),
            )
            for model, columns in zip(models, groups, strict=True)
        ]
        joint = np.log(prior) + sum(likelihoods)
        evidence = logsumexp(joint, axis=1)
        shares = weights[open_, None] * np.maximum(np.exp(joint - evidence[:, None]), _NEGLIGIBLE)
        now = np.concatenate([weights[known], shares.ravel()])
        of_known = training.sizes * np.log(prior)
        following = []
        for model, columns, likelihood in zip(models, groups, likelihoods, strict=True):
            # A row without a value in the group counts in the others.
            own = Block(columns_of(rows, columns), every_code, now).informative()
            parameters, found = _one_pass(model, own, columns)
            following.append(parameters)
            of_known = of_known + found - (shares * likelihood).sum(axis=0)
        path.append(np.append(of_known, weights[open_] @ evidence))
        gain = path[-1].sum() - path[-2].sum() if len(path) > 1 else np.inf
        converged = bool(abs(gain) < models[0].tol * weights.sum())
        if converged or len(path) == models[0].max_iter:
            break
        for model, parameters in zip(models, following, strict=True):
            model._store_parameters(parameters)
        sizes = training.sizes + shares.sum(axis=0)
        prior = sizes / sizes.sum()
    for model in models:
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


def _one_pass(model: Any, rows: Block, columns: list[int]) -> tuple[Parameters, FloatArray]:
    """Return parameters after one pass over labelled, weighted rows, and the log-likelihoods (L,) before."""
    options = options_of(model, len(columns))
    current = model._parameters.batch()
    structure = structure_of(options.covariance_type).of(current.covariances)
    source = open_source(rows.X, rows.y, rows.weights)
    frame = source.summary.frame(structure, columns)
    inside = frame.enter(current, structure)
    factor = structure.factor(inside.covariances, len(columns))
    with workers(options.n_jobs) as pool:
        setting = Setting(frame, structure, pool, options.precision)
        rule = rule_of(options, setting, current.means.shape[1], source)
        found, factor, log_likelihood = one_pass(source, setting, rule, inside, factor)
    if not factor.usable[0] or not np.isfinite(log_likelihood).all():
        raise ValueError(
            f"A covariance of the features {columns} became singular, with variance_floor="
            f"{model.variance_floor}. Use a larger one (1e-6 by default) or a covariance_prior."
        )
    volume = source.summary.by_class(source.summary.observed, log_likelihood.shape[1]) @ np.log(frame.scale)
    found = with_frozen(rule, frame.leave(found, structure).take(0), model._parameters)
    return found, log_likelihood[0] - volume
