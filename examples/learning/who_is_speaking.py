"""
Who is speaking? Bags of rows
=============================

One frame of speech says little of its speaker, and the twenty frames of an utterance say nearly all. The rows
of an utterance are a *bag*: they have one class together, and the classifier predicts it once.
"""

import matplotlib.pyplot as plt
import numpy as np

from skmix import SharedKernelClassifier, SharedKernelMixture
from skmix.datasets import load_vowels

# %%
# Nine men speak two vowels. Each row is a frame of 12 cepstral coefficients, and ``utterance`` says which
# rows belong together. Speakers share 32 kernels, and may move them a little: ``group_shift``.
X, speaker, utterance = load_vowels("train")
held = utterance.isin(np.unique(utterance)[::3])
mixture = SharedKernelMixture(
    32, covariance_type="tied", group_shift="auto", random_state=0
)
model = SharedKernelClassifier.from_parameters(mixture.fit(X[~held], speaker[~held]))

# %%
# New utterances. ``predict_bags`` returns a speaker for each of ``np.unique(bags)``.
new, who, bags = load_vowels("test")
ids, first = np.unique(bags, return_index=True)
true = who.to_numpy()[first]
frames, utterances = (
    model.score(new, who),
    np.mean(model.predict_bags(new, bags) == true),
)
print(f"right: {frames:.0%} of the frames, {utterances:.0%} of the utterances")

# %%
# Frames of an utterance resemble each other, so their sum is too sure of itself. Every third utterance was
# held out of the fit; ``calibrate`` learns from these how much a further frame adds.
before = model.predict_bags_proba(new, bags).max(axis=1)
model.calibrate(X[held], speaker[held], bags=utterance[held])
after = model.predict_bags_proba(new, bags).max(axis=1)
right = np.mean(model.predict_bags(new, bags) == true)
print(
    f"mean confidence {before.mean():.2f} before, {after.mean():.2f} after; {right:.2f} are right"
)
print(f"correlation of frames: {model.bag_correlation_:.1f}")

# %%
# The command line has the same: ``skmix predict MODEL DATA --bags utterance`` and ``skmix evaluate``.
# Last: is it the man he claims to be? ``verify`` is the log-likelihood ratio of the claimed speaker
# against the pool of all speakers.
claims = np.array([model.verify(new, name, bags) for name in model.classes_]).T
own = true[:, None] == model.classes_
figure, (left, right_axis) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
left.hist([before, after], bins=np.linspace(0, 1, 11), label=["sums", "calibrated"])
left.set(xlabel="probability of the predicted speaker", ylabel="utterances")
left.legend()
edges = np.linspace(claims.min(), claims.max(), 40)
right_axis.hist(claims[~own], edges, density=True, color="0.6", label="false claims")
right_axis.hist(
    claims[own], edges, density=True, color="C0", alpha=0.7, label="true claims"
)
right_axis.set(xlabel="log-likelihood ratio of a claim", yticks=[])
right_axis.legend()
plt.show()
