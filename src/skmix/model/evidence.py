"""What rows say of their class: ratios of posterior and prior, for bags of rows and for shares of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp

from ..engine.exponentials import log_normalise
from ..engine.numbers import safe_log
from ..engine.records import FloatArray
from .checks import computed

# A row whose posteriors differ by less from those of a row without any value says nothing of its class.
_NOTHING = 1e-9


def log_evidence(model: Any, X: Any) -> tuple[FloatArray, FloatArray]:
    """Return log(Pr(class j | x) / Pr(class j)), shape (n, L), of rows X (n, M), and log Pr(class j), (L,).

    The ratio is p(x | class j) / p(x). It is 1 for a row without any value, whose posteriors are Pr(class j),
    and for a class that the prior excludes. A temperature flattens the prior as it does the posterior.
    """
    posterior = np.asarray(computed(model.predict_log_proba(X)), dtype=np.float64)
    members = getattr(model, "classifiers_", [model])
    tempered = [log_normalise(safe_log(m.class_prior_)[None] / m.temperature_, axis=1) for m in members]
    prior = logsumexp(np.concatenate(tempered), axis=0) - np.log(len(members))
    possible, evidence = prior > -np.inf, np.zeros_like(posterior)
    evidence[:, possible] = posterior[:, possible] - prior[possible]
    evidence[(np.abs(evidence) < _NOTHING).all(axis=1)] = 0.0
    return evidence, prior
