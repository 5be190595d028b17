"""
Calibration
===========

A classifier that treats dependent features as independent evidence is far too confident. ``calibrate``
divides its log-probabilities by one number, chosen on rows kept out of training.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import log_loss

from skmix import SharedKernelClassifier
from skmix.plots import plot_reliability

# %%
# Six readings of one quantity. With a feature set for each reading they count as six pieces of evidence.
random = np.random.default_rng(2)
y = random.integers(0, 3, size=9000)
quantity = 1.2 * y + random.normal(size=9000)
X = quantity[:, None] + 0.4 * random.normal(size=(9000, 6))
model = SharedKernelClassifier(
    feature_sets=[[d] for d in range(6)], max_iter=500, random_state=0
)
model.fit(X[:1000], y[:1000])

# %%
# The temperature is fitted to a thousand rows; the other rows are drawn. The order of the classes does not
# change.
X_test, y_test = X[2000:], y[2000:]
before = model.predict_proba(X_test)
model.calibrate(X[1000:2000], y[1000:2000])
after = model.predict_proba(X_test)
print(
    f"temperature {model.temperature_:.1f}; log-loss {log_loss(y_test, before):.2f} "
    f"before, {log_loss(y_test, after):.2f} after; "
    f"accuracy {model.score(X_test, y_test):.2f}"
)

# %%
# Left: the share of correct predictions against their probability. Right: the probability of each class
# along the quantity that is read.
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
plot_reliability(model, X_test, y_test, axes=left)
left.spines[["top", "right"]].set_visible(False)
line = np.linspace(-3, 6, 300)
rows = np.tile(line[:, None], 6)
tempered = model.predict_proba(rows)
sharp = tempered**model.temperature_
sharp /= sharp.sum(axis=1, keepdims=True)
for c, colour in enumerate(("#0072b2", "#d55e00", "#009e73")):
    right.plot(line, tempered[:, c], color=colour, lw=2.6)
    right.plot(line, sharp[:, c], color=colour, lw=1.4, ls=":")
    right.text(
        (-2.2, 4.7, 4.9)[c],
        (0.82, 0.22, 0.84)[c],
        f"class {c}",
        color=colour,
        ha="center",
        weight="bold",
    )
right.plot([], [], color="0.3", lw=2.6, label="calibrated")
right.plot([], [], color="0.3", lw=1.4, ls=":", label="as fitted")
right.legend(frameon=False, loc="center left")
right.set(
    xlabel="what all six readings say",
    ylabel="probability of the class",
    ylim=(0, 1.02),
)
right.spines[["top", "right"]].set_visible(False)
plt.show()
