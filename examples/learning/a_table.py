"""
A table with text and gaps
==========================

A data frame needs no preparation: it may have numbers, text, categories and missing values. Here the sex of
333 penguins is predicted from their species, their island and four measurements.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from skmix import SharedKernelClassifierCV
from skmix.datasets import load_penguins

# %%
# ``species`` and ``island`` are text. Columns are neither encoded nor scaled beforehand.
X, y = load_penguins("sex")
X = X.drop(columns="year")
print(X.sample(4, random_state=0).to_string())
X_train, X_test, y_train, y_test = train_test_split(
    X, y, stratify=y, test_size=0.3, random_state=0
)
model = SharedKernelClassifierCV(random_state=0).fit(X_train, y_train)
print(f"{model.score(X_test, y_test):.0%} of {len(X_test)} other penguins are right")

# %%
# New rows may have gaps, in any column. Such a penguin is classified by its other values.
shares = {"nothing": model.score(X_test, y_test)}
for column in X:
    with_gaps = X_test.assign(**{column: np.nan})
    shares[column] = model.score(with_gaps, y_test)

# %%
# Left: males are larger than females of their own species, not of the others. Right: accuracy if a column
# is missing; body mass and bill depth matter most.
male = model.predict_proba(X_test)[:, list(model.classes_).index("male")]
wrong = model.predict(X_test) != y_test
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
for marker, (species, rows) in zip("o^s", X_test.groupby("species"), strict=True):
    here = X_test.index.isin(rows.index)
    drawn = left.scatter(
        rows["body_mass_g"],
        rows["bill_depth_mm"],
        c=male[here],
        cmap="coolwarm",
        vmin=0,
        vmax=1,
        marker=marker,
        label=species,
    )
left.scatter(
    *X_test.loc[wrong, ["body_mass_g", "bill_depth_mm"]].to_numpy().T,
    s=120,
    facecolors="none",
    edgecolors="black",
    label="wrong",
)
left.set(xlabel="body mass (g)", ylabel="bill depth (mm)")
left.legend()
figure.colorbar(drawn, ax=left, label="probability of male")
right.barh(list(shares), [100 * share for share in shares.values()], color="#0072b2")
right.invert_yaxis()
right.set(xlim=(50, 100), xlabel="right (%)", title="without")
plt.show()
