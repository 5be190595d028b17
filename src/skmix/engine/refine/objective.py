"""The hybrid objective: how well classes are told from rows, plus a share of how well rows are described.

For labelled rows the objective is Σ_n u_n [log s_n(c_n) + λ log p(x_n, c_n)] over Σ_n u_n: u are the rows'
weights, and s_n(j) ∝ p(x_n, j)^(1/T) the probabilities of the classes, softened by a temperature. Its
derivative with respect to log N(x_n; μ_k, P_k) is Σ_j ([j = c_n] (1/T + λ) − s_n(j)/T) r_nkj, where r_nkj are
the responsibilities given class j. All else follows from sums that have the shape of EM's statistics, so that
a gradient costs what a pass costs: two matrix products. Where the fit had priors, their logarithm
is added, times 1/T + λ: imagined rows weigh what rows weigh that are certain of their class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from ..compute.threads import Workers, Workspace
from ..covariances import Structure
from ..model import FloatArray, IntArray, Parameters, Regulariser
from ..sources.expanded import Part, Prepared, Terms, log_joint, prepare
from ..sources.summary import Frame, turn
from .local import Place, Sums, Surroundings

# Rows looked at in one go: their terms stay in cache, and the cut never depends on the number of threads.
_NUMBERS = 1 << 20
_FEWEST, _MOST = 128, 2048
# As in the E-step: exponentials below this only slow matrix products down.
_LOWEST_LOG = -600.0
# A class whose share of a row's density is below this has no part in it.
_LEAST = 1e-280
# Derivatives below this cannot be seen beside those of rows that matter; rows are then picked kernel by
# kernel, where few matter and there are features enough to make that worth its while.
_NEGLIGIBLE = 1e-12
_SPARSE = 0.1
_FEWEST_FEATURES_FOR_SPARSE = 16
_FEWEST_ROWS_FOR_SPARSE = 1024


@dataclass(frozen=True)
class Criterion:
    """What is to be maximised.

    Attributes
    ----------
    trade_off : float
        λ, the share of the log-likelihood.
    temperature : float
        T, what log-joints are divided by before they are normalised to log-probabilities of classes.
    """

    trade_off: float
    temperature: float = 1.0

    @property
    def of_own_class(self) -> float:
        """Weight 1/T + λ that a row has for the kernels of its own class."""
        return 1.0 / self.temperature + self.trade_off


@dataclass(frozen=True)
class Labelled:
    """Rows to tune a model to.

    Attributes
    ----------
    X : ndarray of shape (N, M)
        Rows without gaps, in the data's coordinates.
    codes : ndarray of shape (N,)
        Class of each row, 0 … L − 1.
    weights : ndarray of shape (N,) or None
        Positive weights of the rows; None when all are one.
    """

    X: np.ndarray
    codes: IntArray
    weights: FloatArray | None = None

    def take(self, index: IntArray) -> Labelled:
        """Return the rows that `index` selects."""
        return Labelled(
            self.X[index], self.codes[index], None if self.weights is None else self.weights[index]
        )

    @property
    def size(self) -> float:
        """Number of rows, or the sum of their weights."""
        return float(len(self.codes) if self.weights is None else self.weights.sum())


@dataclass(frozen=True)
class Objective:
    """The hybrid objective of models around a given one.

    Attributes
    ----------
    surroundings : Surroundings
        The models.
    frame : Frame
        Coordinates of the computation, which reach all rows.
    class_prior : ndarray of shape (L,)
        Class priors, which stay as they are.
    regulariser : Regulariser or None
        Priors on weights and covariances, in the frame.
    n_rows : float
        Number of rows, or the sum of their weights, that these priors stand beside: those of all batches.
    """

    surroundings: Surroundings
    frame: Frame
    class_prior: FloatArray
    regulariser: Regulariser | None = None
    n_rows: float = 1.0

    def evaluate(self, numbers: FloatArray, rows: Labelled, criterion: Criterion, pool: Workers) -> Value:
        """Return the objective per row and its gradient.

        Parameters
        ----------
        numbers : ndarray of shape (Q,)
            Which model.
        rows : Labelled
            The rows.
        criterion : Criterion
            Trade-off and temperature.
        pool : Workers
            Threads.
        """
        place = self.surroundings.place(numbers)
        prepared, shares = self._prepare(place)
        total = self._sum(rows, prepared, shares, criterion, pool)
        gradient = self.surroundings.gradient(place, total, prepared.origins[0]) / rows.size
        joint = total.joint / rows.size - self.frame.log_volume()
        objective = total.conditional / rows.size + criterion.trade_off * joint
        if self.regulariser is not None:
            log_prior, slope = self.surroundings.log_prior(place, self.regulariser)
            objective += criterion.of_own_class * log_prior / self.n_rows
            gradient += criterion.of_own_class * slope / self.n_rows
        return Value(objective, gradient)

    def log_joints(self, place: Place, rows: Labelled, pool: Workers) -> FloatArray:
        """Return log p(x_n, class j), shape (N, L), in the data's coordinates, of the model at a place."""
        prepared, shares = self._prepare(place)
        n_rows, chunk = len(rows.codes), chunk_of(prepared)
        level = prepared.levels[0] - self.frame.log_volume()

        def work(start: int) -> FloatArray:
            part = self._part(rows.X[start : start + chunk], prepared.structure, pool.workspace)
            values = pool.workspace.array("values", (1, len(shares), part.stop))
            log_joint(part, prepared, values)
            return class_joints(values[0], shares).T + level

        return np.concatenate(list(pool.map(work, range(0, n_rows, chunk))))

    def _prepare(self, place: Place) -> tuple[Prepared, FloatArray]:
        """Return the kernels with their weights in all classes together, and each class's share (K, L)."""
        joint = place.weights * self.class_prior
        mixed = joint.sum(axis=1)
        shares = joint / np.where(mixed > 0, mixed, 1.0)[:, None]
        whole = Parameters(mixed[None, :, None], place.means[None], place.stretch)
        return prepare(whole, self.surroundings.structure, self.frame.bound, place.factor), shares

    def _sum(
        self,
        rows: Labelled,
        prepared: Prepared,
        shares: FloatArray,
        criterion: Criterion,
        pool: Workers,
    ) -> Sums:
        """Sum over all rows."""
        n_rows, chunk = len(rows.codes), chunk_of(prepared)

        def work(start: int) -> Sums:
            here = slice(start, min(start + chunk, n_rows))
            weights = None if rows.weights is None else rows.weights[here]
            part = self._part(rows.X[here], prepared.structure, pool.workspace)
            return sum_part(part, rows.codes[here], weights, prepared, shares, criterion, pool.workspace)

        answers = pool.map(work, range(0, n_rows, chunk))
        total = next(answers)
        for answer in answers:
            total += answer
        return total

    def _part(self, X: np.ndarray, structure: Structure, workspace: Workspace) -> Part:
        """Return rows X (n, M) in the frame, expanded."""
        n_rows, n_features = X.shape
        x = self.frame.rows(X, workspace.array("rows", (n_features, n_rows)))
        terms = workspace.latest(
            (n_features, n_rows), lambda: Terms(structure, n_features, n_rows, workspace=workspace)
        )
        terms.fill(x)
        return Part(0, n_rows, x, terms, [(0, 0, n_rows)], n_rows)


@dataclass(frozen=True)
class Value:
    """The hybrid objective at a place.

    Attributes
    ----------
    objective : float
        Its value per row.
    gradient : ndarray of shape (Q,)
        Its gradient.
    """

    objective: float
    gradient: FloatArray


def chunk_of(prepared: Prepared) -> int:
    """Return the number of rows to look at in one go."""
    return max(_FEWEST, min(_MOST, _NUMBERS // prepared.coefficients.shape[-1]))


def sum_part(
    part: Part,
    codes: IntArray,
    weights: FloatArray | None,
    prepared: Prepared,
    shares: FloatArray,
    criterion: Criterion,
    workspace: Workspace,
) -> Sums:
    """Return the sums of some rows.

    Parameters
    ----------
    part : Part
        The rows, expanded.
    codes : ndarray of shape (n,)
        Their classes.
    weights : ndarray of shape (n,) or None
        Their weights.
    prepared : Prepared
        The kernels, with their weights in all classes together.
    shares : ndarray of shape (K, L)
        Which share of these each class has.
    criterion : Criterion
        What to differentiate.
    workspace : Workspace
        Reusable memory.
    """
    n_kernels, n_classes = shares.shape
    n_rows = len(codes)
    every = np.arange(n_rows)
    values = workspace.array("values", (1, n_kernels, n_rows))
    log_joint(part, prepared, values)
    values = values[0]
    largest = values.max(axis=0)
    values -= largest
    own, log_own = own_terms(values, shares, codes, workspace)
    np.maximum(values, _LOWEST_LOG, out=values)
    np.exp(values, out=values)
    of_classes = np.maximum(shares.T @ values, _LEAST)
    logs = np.log(of_classes)
    logs[codes, every] = log_own
    logs /= criterion.temperature
    logs -= logs.max(axis=0)
    posterior = np.exp(logs)
    total = posterior.sum(axis=0)
    posterior /= total
    each = np.ones(n_rows) if weights is None else weights
    conditional = float(each @ (logs[codes, every] - np.log(total)))
    joint = float(each @ (log_own + largest) + each.sum() * prepared.levels[0])
    # The own class's part of both terms is taken together, so that nothing cancels for rows that are sure.
    posterior *= each / criterion.temperature
    others = posterior / of_classes
    others[codes, every] = 0.0
    posterior[codes, every] = 0.0
    own *= posterior.sum(axis=0) + criterion.trade_off * each
    indicators = np.zeros((n_rows, n_classes))
    indicators[every, codes] = 1.0
    of_weights = own @ indicators - shares * (values @ others.T)
    values *= shares @ others
    own -= values
    return Sums(conditional, joint, of_weights, *moments(part, own, prepared))


def class_joints(values: FloatArray, shares: FloatArray) -> FloatArray:
    """Return classes' log-joints (L, n) from the kernels' (K, n), of which they have shares (K, L)."""
    largest = values.max(axis=0)
    weights = np.exp(values - largest)
    joints = shares.T @ weights
    lost = joints < _LEAST
    logs: FloatArray = np.log(np.where(lost, 1.0, joints)) + largest
    with np.errstate(divide="ignore"):
        log_shares = np.log(shares)
    for c in np.flatnonzero(lost.any(axis=1)):
        # The rows' nearest kernels have no share in this class: sum the terms of those that have.
        rows, kernels = np.flatnonzero(lost[c]), np.flatnonzero(shares[:, c])
        logs[c, rows] = -np.inf
        if len(kernels):
            logs[c, rows] = logsumexp(values[np.ix_(kernels, rows)] + log_shares[kernels, c, None], axis=0)
    return logs


def own_terms(
    values: FloatArray, shares: FloatArray, codes: IntArray, workspace: Workspace
) -> tuple[FloatArray, FloatArray]:
    """Return responsibilities given the rows' own classes (K, n), and log p(c, x) (n,).

    Parameters
    ----------
    values : ndarray of shape (K, n)
        Logarithms of the kernels' joint densities in all classes together, less the row's largest.
    shares : ndarray of shape (K, L)
        Which share of these each class has.
    codes : ndarray of shape (n,)
        The rows' classes.
    workspace : Workspace
        Reusable memory.
    """
    own = workspace.array("own", values.shape)
    with np.errstate(divide="ignore"):
        log_shares = np.log(shares)
    # The −inf of a share of zero is beneath any floor.
    np.add(values, log_shares[:, codes], out=own)
    nearest = own.max(axis=0)
    own -= nearest
    np.maximum(own, _LOWEST_LOG, out=own)
    np.exp(own, out=own)
    total = own.sum(axis=0)
    own /= total
    return own, np.log(total) + nearest


def moments(
    part: Part, derivatives: FloatArray, prepared: Prepared
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the sums (K,), (K, M) and (K, S) of derivatives (K, n), and of them times the rows' terms."""
    n_features, n_rows = part.x.shape
    matter = np.abs(derivatives)
    matter = matter > _NEGLIGIBLE * matter.max()
    few = n_features >= _FEWEST_FEATURES_FOR_SPARSE and n_rows >= _FEWEST_ROWS_FOR_SPARSE
    if few and np.count_nonzero(matter) < _SPARSE * matter.size:
        chosen = list(range(len(derivatives)))
        mass = derivatives.sum(axis=1)
        first = np.empty((len(derivatives), n_features))
        second = np.empty((len(derivatives), part.terms.matrix.shape[0] - n_features - 1))
    else:
        chosen = [k for _, k in prepared.delicate_kernels]
        product = np.dot(derivatives, part.terms.transposed)
        mass, first, second = product[:, -1], product[:, :n_features], product[:, n_features:-1]
    if chosen:
        # Whole rows are far quicker to pick than columns.
        by_row = np.empty((n_rows, n_features))
        turn(part.x, by_row)
        scatters = []
        for k in chosen:
            index = np.flatnonzero(matter[k])
            difference = by_row[index] - prepared.origins[0, k]
            weighted = difference * derivatives[k, index, None]
            first[k] = weighted.sum(axis=0)
            scatters.append(prepared.structure.second_moment(difference, weighted))
        second[chosen] = prepared.structure.pack(np.array(scatters))
    return mass, first, second
