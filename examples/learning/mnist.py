"""
MNIST
=====

Handwritten digits, deskewed and reduced to principal components, by kernels that the ten classes share. A
kernel's mean is an image, so the model can be drawn.

With the environment variable ``MNIST`` set, scikit-learn fetches the images from OpenML. Without it, the
8 × 8 digits that come with scikit-learn stand in for MNIST.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import fetch_openml, load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skmix import SharedKernelClassifier
from skmix.features import deskew

# %%
# A tenth of MNIST, so that it takes seconds, or the small digits in its place.
if os.environ.get("MNIST"):
    pixels, labels = fetch_openml(
        "mnist_784", version=1, return_X_y=True, as_frame=False
    )
    images, codes = pixels.reshape(-1, 28, 28), labels.astype(int)
    X, y, X_test, y_test = images[:6000], codes[:6000], images[60000:], codes[60000:]
    name = "MNIST, a tenth of its training images"
else:
    digits = load_digits()
    X, X_test, y, y_test = train_test_split(
        digits.images, digits.target, test_size=0.5, random_state=0
    )
    name = "scikit-learn's 8 × 8 digits in place of MNIST"
print(f"{name}: {len(X)} images to train, {len(X_test)} to test")

# %%
# Thirty kernels for ten classes. The prior, worth 20 rows, keeps kernels with few rows from overfitting.
model = make_pipeline(
    FunctionTransformer(deskew),
    PCA(30, random_state=0),
    SharedKernelClassifier(
        30, covariance_prior=20.0, max_iter=500, tol=1e-3, random_state=0
    ),
).fit(X, y)
chances = model.predict_proba(X_test)
predicted = chances.argmax(axis=1)
error = np.mean(predicted != y_test)
print(f"{error:.1%} of the test digits are read wrongly")

# %%
# Left: the kernels' means, as images, under the digit that uses each most. Right: the test digits with the
# least predicted probability, with their true and predicted labels.
_, pca, classifier = (step for _, step in model.steps)
side = X.shape[1]
figure = plt.figure(figsize=(12, 5), layout="constrained")
left, right = figure.subfigures(1, 2)
left.suptitle("Means of the 30 kernels, and whose they are")
owner = classifier.weights_.argmax(axis=1)
for axes, k in zip(
    left.subplots(5, 6).ravel(), np.argsort(owner, kind="stable"), strict=True
):
    axes.imshow(
        pca.inverse_transform(classifier.means_[[k]]).reshape(side, side), cmap="Greys"
    )
    axes.set_title(owner[k], size=10, pad=2)
    axes.axis("off")
right.suptitle(f"{name}: {error:.1%} wrong")
hardest = np.argsort(chances[np.arange(len(y_test)), y_test])
for axes, i in zip(right.subplots(4, 6).ravel(), hardest, strict=False):
    axes.imshow(X_test[i], cmap="Greys")
    colour = "0.4" if predicted[i] == y_test[i] else "#d55e00"
    axes.set_title(f"{y_test[i]} → {predicted[i]}", size=10, pad=2, color=colour)
    axes.axis("off")
plt.show()
