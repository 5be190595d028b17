"""The field: classifiers to compare, each with the preparation a careful user would give it.

Nothing here looks at test rows. Where a classifier stands or falls with a setting (the number of neighbours,
the softness of the support vector machine, the components of a mixture), it is chosen from the training rows,
and the time of the choice counts as time of the fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from skmix.experiments.field.automatic import AutomaticClassifier
from skmix.experiments.field.separate import SeparateMixtures

OURS = "shared kernels"
SUPPORT_VECTORS = "RBF SVM"
FOREST = "random forest"

_N_FOLDS = 3


@dataclass(frozen=True)
class Contender:
    """A classifier of the field.

    Attributes
    ----------
    name : str
        What it is called in tables.
    generative : bool
        Whether it is made of class densities.
    make : callable
        From a seed to an unfitted classifier.
    takes_gaps : bool
        Whether it takes missing values as they are; for others, medians fill them.
    scaled : bool
        Whether features are standardised first.
    """

    name: str
    generative: bool
    make: Callable[[int], Any]
    takes_gaps: bool = False
    scaled: bool = True

    def pipeline(self, seed: int, gaps: bool) -> Any:
        """Return the unfitted classifier, with what it needs before it."""
        steps: list[Any] = [SimpleImputer(strategy="median")] if gaps and not self.takes_gaps else []
        if self.scaled:
            steps.append(StandardScaler())
        return make_pipeline(*steps, self.make(seed))


def _folds(seed: int) -> StratifiedKFold:
    return StratifiedKFold(_N_FOLDS, shuffle=True, random_state=seed)


def _neighbours(seed: int) -> Any:
    settings = {"n_neighbors": [1, 3, 5, 9, 15, 25], "weights": ["uniform", "distance"]}
    return GridSearchCV(KNeighborsClassifier(), settings, cv=_folds(seed))


def _support_vectors(seed: int) -> Any:
    chosen = GridSearchCV(SVC(), {"C": [1.0, 10.0, 100.0]}, cv=_folds(seed))
    # Distances from the border are no probabilities: a sigmoid of held-out distances makes them so.
    return CalibratedClassifierCV(chosen, cv=_folds(seed), ensemble=False)


FIELD: tuple[Contender, ...] = (
    Contender(
        OURS,
        True,
        lambda seed: AutomaticClassifier(random_state=seed, n_jobs=1),
        takes_gaps=True,
        scaled=False,
    ),
    Contender("LDA", True, lambda seed: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")),
    Contender("QDA", True, lambda seed: QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto")),
    Contender("naive Bayes", True, lambda seed: GaussianNB()),
    Contender("separate mixtures", True, lambda seed: SeparateMixtures(random_state=seed)),
    Contender("separate by BIC", True, lambda seed: SeparateMixtures(criterion="bic", random_state=seed)),
    Contender("nearest neighbours", False, _neighbours),
    Contender(SUPPORT_VECTORS, False, _support_vectors),
    Contender(
        FOREST, False, lambda seed: RandomForestClassifier(300, random_state=seed, n_jobs=1), scaled=False
    ),
    Contender(
        "gradient boosting",
        False,
        lambda seed: HistGradientBoostingClassifier(random_state=seed),
        takes_gaps=True,
        scaled=False,
    ),
    Contender("MLP", False, lambda seed: MLPClassifier(max_iter=500, random_state=seed)),
)
"""All contenders, in the order of tables."""


def contenders(names: Sequence[str] | None = None) -> tuple[Contender, ...]:
    """Return contenders by name, in the order of the field; None returns all.

    Parameters
    ----------
    names : sequence of str, default=None
        Names as in tables.

    Returns
    -------
    tuple of Contender
        The contenders.
    """
    known = [each.name for each in FIELD]
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise ValueError(f"there is no classifier {unknown[0]!r}; there are {', '.join(known)}.")
    return tuple(each for each in FIELD if names is None or each.name in names)
