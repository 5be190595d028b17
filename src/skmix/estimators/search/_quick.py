"""Quick fits of candidates with full or tied covariances: many candidates, folds and classes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from ...engine.after.together import Model, Task, class_log_densities, fit_together
from ...engine.after.tuning import tune
from ...engine.exponentials import log_sum_exp
from ...engine.numbers import join, safe_log
from ...engine.problem import Problem, open_source
from ...engine.records import FloatArray, Frame, Options, Parameters
from ...engine.rows.blocks import Block
from ...engine.structures import Structure, structure_of
from .._settings import check_tol, threads_of
from ..rows import Training
from ..solving import options_of, start_batches, with_resolution
from ._candidates import own_kernels, prior_scale
from ._features import pooled_covariance
from ._trials import Params

# Most rows: quick fits have not been compared with others on more.
_MOST_ROWS = 10_000
# Most numbers in the terms of rows.
_MOST_NUMBERS = 1 << 23
# Most responsibilities of a fit, and of fits at a time: with more, they leave the cache.
_MOST_SHARES = 1 << 17
# Settings of the estimator that quick fits heed, or that do not matter to them.
_HEEDED = {
    *("n_kernels", "covariance_type", "init", "max_iter", "tol", "variance_floor", "n_jobs", "random_state"),
    *("reject_below", "outlier_label", "feature_sets"),
}


@dataclass(frozen=True)
class QuickFit:
    """A candidate fitted to rows."""

    model: Model  # in the frame, with a leading axis of one
    frame: Frame
    structure: Structure
    class_prior: FloatArray  # (L,)
    options: Options  # of the fit, for tuning

    @property
    def n_features_in_(self) -> int:
        """Number M of features."""
        return len(self.frame.scale)

    def tuned(self, rows: Block, trade_off: float, n_rounds: int) -> QuickFit:
        """Return the candidate tuned for classification on labelled rows, for a number of rounds."""
        stages = [(trade_off, n_rounds)]
        best = tune(self.parameters, self.class_prior, rows, None, self.options, stages).best
        inside = self.frame.enter(best.batch(), self.structure)
        return replace(self, model=Model.of(inside.weights, inside.means, inside.covariances))

    @property
    def parameters(self) -> Parameters:
        """The parameters in the data's coordinates."""
        inside = Parameters(self.model.weights, self.model.means, self.model.covariances)
        return self.frame.leave(inside, self.structure).take(0)

    def predict_log_proba(self, X: np.ndarray) -> FloatArray:
        """Return log Pr(class | x), shape (n, L), of rows X (n, M)."""
        x = self.frame.rows(X)
        joint = class_log_densities(x, self.model, self.structure).T + safe_log(self.class_prior)
        found: FloatArray = joint - log_sum_exp(joint, axis=1)[:, None]
        return found


@dataclass(frozen=True)
class _Rows:
    block: Block
    training: Training
    frame: Frame  # with the floor of the standard deviations as unit
    x: FloatArray  # (M, n): the rows in the frame
    pooled: FloatArray  # (M, M): covariance within classes, in the frame
    starts: dict[tuple[Any, ...], Parameters] = field(default_factory=dict)  # by kernels


class QuickFits:
    """Fits candidates to rows with class codes, many at once; starts are shared between candidates."""

    def __init__(self, prototype: Any, classes: np.ndarray) -> None:
        self._prototype, self._classes = prototype, classes
        self._rows: dict[int, _Rows] = {}
        # The mixture inside a classifier, for starts.
        self._mixture = clone(prototype).set_params(feature_sets=None)._parts_to_fit(1)[0][1]
        default, own = type(prototype)().get_params(), prototype.get_params()
        self._is_usual = (
            all(own[name] is default[name] or own[name] == default[name] for name in default.keys() - _HEEDED)
            and prototype.tol != "auto"  # depends on rows and kernels
            and check_tol(prototype.tol)[0] == "total"
            and prototype.variance_floor > 0.0
            and not getattr(prototype, "_skl_callbacks", ())
        )

    def covers(self, params: Params, rows: Block) -> bool:
        """Return whether a candidate can be fitted to these rows."""
        (n_rows, n_features), n_kernels = rows.X.shape, params["n_kernels"]
        if params["kernels"] == "own" and params["covariance_type"] == "full":
            n_kernels //= len(self._classes)
        return (
            self._is_usual
            and params["covariance_type"] in ("full", "tied")
            and params["feature_sets"] is params["weight_prior"] is None
            and params["prior_rows"] is not None
            and isinstance(rows.X, np.ndarray)
            and n_rows <= _MOST_ROWS
            and n_rows * n_kernels <= _MOST_SHARES
            and n_rows * n_features**2 <= _MOST_NUMBERS
            and bool(np.all(rows.codes >= 0))
        )

    def fit(self, tasks: Sequence[tuple[Params, Block]]) -> list[QuickFit]:
        """Return candidates fitted to blocks of rows; those of one shape are fitted at once."""
        batches: dict[tuple[Any, ...], list[int]] = {}
        rows = [self._prepared(block) for _, block in tasks]
        starts = [self._start(params, own) for (params, _), own in zip(tasks, rows, strict=True)]
        for number, ((params, _), start) in enumerate(zip(tasks, starts, strict=True)):
            # If a class has fewer rows than kernels, its kernels cannot be fitted apart from others.
            apart = params["kernels"] == "own" and start.means.shape[1] == params["n_kernels"]
            kind = params["covariance_type"], apart, start.means.shape
            batches.setdefault(kind, []).append(number)
        found: dict[int, QuickFit] = {}
        for (name, apart, shape), numbers in batches.items():
            structure = structure_of(name)
            n_features, n_rows = rows[numbers[0]].x.shape
            n_shares = n_rows * shape[1] // (len(self._classes) if apart else 1)
            size = max(1, min(_MOST_NUMBERS // (n_rows * n_features**2), _MOST_SHARES // n_shares))
            for first in range(0, len(numbers), size):
                batch = numbers[first : first + size]
                parts = [(tasks[i][0], rows[i], starts[i]) for i in batch]
                fits = self._together(parts, structure, apart and not structure.shared)
                found |= dict(zip(batch, fits, strict=True))
        return [found[number] for number in range(len(tasks))]

    def _together(
        self, parts: list[tuple[Params, _Rows, Parameters]], structure: Structure, apart: bool
    ) -> list[QuickFit]:
        """Fit from starts of the same shape; if `apart`, each class is a mixture of its own."""
        n_classes, (n_kernels, n_features) = len(self._classes), parts[0][2].means.shape[1:]
        n_each = n_classes if apart else 1
        rows, pieces, priors = [], [], []
        for params, own, start in parts:
            priors += [prior_scale(params["n_kernels"], n_classes, n_features) * own.pooled] * n_each
            codes, weights = own.block.codes, own.block.row_weights
            if not apart:
                rows.append((own.x, codes, weights))
                pieces.append(start)
                continue
            for c in range(n_classes):
                kernels = slice(c * (n_kernels // n_classes), (c + 1) * (n_kernels // n_classes))
                members = np.flatnonzero(codes == c)
                rows.append((own.x[:, members], np.zeros(len(members), dtype=np.int64), weights[members]))
                of_class = start.weights[:, kernels, c : c + 1], start.means[:, kernels]
                pieces.append(Parameters(*of_class, start.covariances[:, kernels]))
        longest = max(len(codes) for _, codes, _ in rows)
        groups = np.repeat(np.arange(len(parts)), n_each)
        task = Task(
            np.zeros((len(rows), n_features, longest)),
            np.zeros((len(rows), longest), dtype=np.int64),
            np.zeros((len(rows), longest)),
            np.repeat([params["prior_rows"] * n_features for params, _, _ in parts], n_each),
            np.stack(priors),
            groups,
        )
        for r, (x, codes, weights) in enumerate(rows):
            task.x[r, :, : len(codes)] = x
            task.codes[r, : len(codes)], task.weights[r, : len(codes)] = codes, weights
        passes = {"max_iter": self._prototype.max_iter, "tol": check_tol(self._prototype.tol)[1]}
        found = fit_together(task, join(pieces), structure, **passes)
        fits = []
        for group, (params, own, _) in enumerate(parts):
            model, unit = found.take(groups == group), own.frame.scale
            options = Options(
                covariance_type=structure.name,
                resolution=unit**2,
                covariance_prior=params["prior_rows"] * n_features,
                covariance_prior_scale=priors[group * n_each] * unit[:, None] * unit,
                n_jobs=threads_of(self._prototype.n_jobs),
            )
            model = _joined(model) if apart else model
            fits.append(QuickFit(model, own.frame, structure, own.training.class_prior, options))
        return fits

    def _prepared(self, block: Block) -> _Rows:
        if id(block) not in self._rows:
            model = self._prototype
            training = Training(open_source(block.X, block.codes, block.weights), self._classes)
            frame = training.source.summary.frame(structure_of("full"))
            options = options_of(model, block.X.shape[1], "full")
            _, floor = with_resolution(model, options, block.X, block.weights, frame)
            assert floor is not None
            unit = np.sqrt(floor.variance_floor)
            change = frame.scale / unit
            own = Frame(unit, frame.shift * change, frame.variance * change**2, frame.bound * change)
            x = own.rows(block.X)
            pooled = pooled_covariance(block) / (unit[:, None] * unit)
            self._rows[id(block)] = _Rows(block, training, own, x, pooled)
        return self._rows[id(block)]

    def _start(self, params: Params, rows: _Rows) -> Parameters:
        """Return a start in the frame, with a leading axis of one."""
        n_kernels, structure = params["n_kernels"], structure_of(params["covariance_type"])
        n_classes, n_features, seed = len(self._classes), len(rows.x), self._prototype.random_state
        key = params["kernels"], n_kernels, structure.name
        if key in rows.starts:
            return rows.starts[key]
        if params["kernels"] == "own":
            projected = params["reduction"] != "none"
            codes, per_class = rows.block.codes, n_kernels // n_classes
            given = own_kernels(rows.block.X, codes, per_class, seed, projected=projected)
            means = given["means"] / rows.frame.scale - rows.frame.shift
            common = np.diag(rows.frame.variance / len(means) ** (2.0 / n_features))
            covariances = structure.from_common(common[None], len(means))
            rows.starts[key] = Parameters(given["weights"][None], means[None], covariances)
        else:
            frame, model = rows.training.source.summary.frame(structure), self._mixture
            model.set_params(n_kernels=n_kernels, covariance_type=structure.name, random_state=seed)
            problem = Problem.of(rows.training.source, Options(structure.name), n_kernels, frame)
            start = problem.leave(next(start_batches(model, rows.training, problem)))
            rows.starts[key] = rows.frame.enter(start, structure)
        return rows.starts[key]


def _joined(models: Model) -> Model:
    """Return the mixtures (L, k, …) of all classes as one model whose kernels belong to one class each."""
    n_classes, per_class, _ = models.means.shape
    weights = np.zeros((n_classes, per_class, n_classes))
    weights[np.arange(n_classes), :, np.arange(n_classes)] = models.weights[..., 0]
    whole = replace(models, weights=weights)
    return whole.map(lambda each: each.reshape(1, n_classes * per_class, *each.shape[2:]))
