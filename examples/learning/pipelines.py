"""
Pipelines and grid search
=========================

The estimators keep scikit-learn's contract, so its tools work with them: a pipeline reduces the images
first, and a grid search looks for the number of components and of kernels together.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline

from skmix import SharedKernelClassifier

# %%
# A prior worth 20 rows keeps covariances wide where a kernel has few rows.
X_train, X_test, y_train, y_test = train_test_split(
    *load_digits(return_X_y=True), random_state=0
)
pipeline = make_pipeline(
    PCA(random_state=0),
    SharedKernelClassifier(
        covariance_prior=20.0, max_iter=500, tol=1e-3, random_state=0
    ),
)
grid = {
    "pca__n_components": [5, 10, 20],
    "sharedkernelclassifier__n_kernels": [10, 20, 30],
}
search = GridSearchCV(pipeline, grid, cv=3).fit(X_train, y_train)
accuracy = search.score(X_test, y_test)
print(search.best_params_, f"test accuracy {accuracy:.3f}")

# %%
# Left: cross-validated accuracy; the best is framed. Right: the confusion matrix of the best.
components, kernels = grid.values()
scores = search.cv_results_["mean_test_score"].reshape(len(components), len(kernels))
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
left.imshow(scores, cmap="cividis", aspect="auto")
best = np.unravel_index(scores.argmax(), scores.shape)
for (i, j), score in np.ndenumerate(scores):
    colour = "white" if score < (scores.min() + scores.max()) / 2 else "black"
    left.text(j, i, f"{score:.1%}", color=colour, ha="center", va="center")
left.add_patch(
    plt.Rectangle((best[1] - 0.5, best[0] - 0.5), 1, 1, fill=False, ec="#d55e00", lw=4)
)
left.set_xticks(range(len(kernels)), kernels)
left.set_yticks(range(len(components)), components)
left.set(
    xlabel="kernels", ylabel="principal components", title="Cross-validated accuracy"
)
ConfusionMatrixDisplay.from_predictions(
    y_test, search.predict(X_test), cmap="Blues", colorbar=False, ax=right
)
right.set_title(f"Test digits: {accuracy:.1%} correct")
plt.show()
