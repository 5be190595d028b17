"""
How much of each class? Prevalence
==================================

Often nobody asks for the class of each row, but for the shares of the classes: how much of the talking was
his? Counting predictions is biased, because mistakes do not cancel. The shares that make the rows
likeliest are not, and they come with intervals.
"""

import matplotlib.pyplot as plt
import numpy as np

from skmix import SharedKernelClassifierCV
from skmix.datasets import load_vowels

# %%
# Single frames of nine speakers: a classifier of frames is often wrong.
X, speaker, _ = load_vowels("train")
model = SharedKernelClassifierCV(n_kernels=[9, 18, 36], random_state=0).fit(X, speaker)
frames, who, _ = load_vowels("test")
print(f"{model.score(frames, who):.0%} of the frames are right")

# %%
# A conversation of 600 frames, in which the first man says 55 % and the last one nothing.
random = np.random.default_rng(0)
shares = np.array([0.55, 0.2, 0.1, 0.05, 0.04, 0.03, 0.02, 0.01, 0.0])
rows = np.concatenate(
    [
        random.choice(np.flatnonzero(who == name), round(600 * share))
        for name, share in zip(model.classes_, shares, strict=True)
    ]
)
conversation = frames.iloc[rows]

# %%
# ``prevalence`` estimates the shares; with ``adjust=True`` it also predicts the rows again, under these
# shares.
found = model.prevalence(conversation, adjust=True)
counted = np.array(
    [(model.predict(conversation) == name).mean() for name in model.classes_]
)
adjusted = model.classes_[found.probabilities.argmax(axis=1)]
for name, estimate in {
    "counted predictions": counted,
    "prevalence": found.shares,
}.items():
    print(f"{name}: mean error {np.abs(estimate - shares).mean():.3f}")
print(
    f"rows that are right: {model.score(conversation, who.iloc[rows]):.2f}, "
    f"adjusted {np.mean(adjusted == who.iloc[rows]):.2f}"
)

# %%
# The true shares, the counts, and the estimates with their 95 % intervals. The intervals are about the
# number of rows: what the classifier does not know of the classes comes on top.
places = np.arange(9)
plt.figure(figsize=(8, 3.8), layout="constrained")
plt.bar(places, shares, color="0.85", label="true")
plt.plot(places - 0.15, counted, "x", color="C1", label="counted predictions")
lengths = [found.shares - found.low, found.high - found.shares]
plt.errorbar(
    places + 0.15, found.shares, lengths, fmt="o", color="C0", label="prevalence"
)
plt.xticks(places, model.classes_)
plt.ylabel("share of the frames")
plt.legend()
plt.show()
