"""
Many speakers, few rows of each
===============================

Features of speech are mixtures of the same sounds; speakers differ in how often they make them. Where
a speaker has few rows, hierarchical weights use the rows of the others, and a new speaker is enrolled
without changing the kernels. The same holds for sites, machines and customers.
"""

import matplotlib.pyplot as plt
import numpy as np

from skmix import SharedKernelMixture
from skmix.datasets import make_shared_kernel_data

# %%
# Eighty speakers of 10 to 300 rows, simulated from twelve sounds.
random = np.random.default_rng(0)
means, covariances = 2.5 * random.normal(size=(12, 5)), np.tile(np.eye(5), (12, 1, 1))
usual = random.dirichlet(np.full(12, 5.0))
true = random.dirichlet(20.0 * usual, size=80).T
n_rows = np.exp(random.uniform(np.log(10), np.log(300), size=80)).astype(int)
X, speaker = make_shared_kernel_data(means, covariances, true, n_rows, random_state=0)

# %%
# The prior of the weights is learnt from all speakers: its strength counts as so many rows.
start = {"means": means, "covariances": covariances}
models = {
    "independent": SharedKernelMixture(init=start, weight_prior=None),
    "hierarchical": SharedKernelMixture(init=start),  # the default for several classes
}
errors = {}
for name, model in models.items():
    model.fit(X, speaker)
    errors[name] = 0.5 * np.abs(model.weights_ - true).sum(axis=0)
    print(f"{name}: mean error of the weights {errors[name].mean():.3f}")
model = models["hierarchical"]
print(f"the prior counts as {model.weight_prior_.sum():.0f} rows")

# %%
# Twenty new speakers are enrolled with 60 rows each. Is a recording of 60 further rows theirs? The evidence
# is the likelihood ratio of the speaker and of everybody.
new = random.dirichlet(20.0 * usual, size=20).T
enrolment, who = make_shared_kernel_data(means, covariances, new, 60, random_state=1)
for number in range(20):
    model.add_class(enrolment[who == number], 80 + number)
recordings, by = make_shared_kernel_data(means, covariances, new, 60, random_state=2)
ratios = (
    model.class_log_likelihood(recordings)[:, 80:]
    - model.score_samples(recordings)[:, None]
)
evidence = np.stack([ratios[by == number].sum(axis=0) for number in range(20)])
own = np.eye(20, dtype=bool)
right_ones = evidence.argmax(axis=1) == np.arange(20)
print(
    f"{np.mean(right_ones):.0%} of the recordings have the highest evidence for their "
    "own speaker"
)

# %%
# Left: errors of the weights against the number of rows. Right: evidence for the speakers of the recordings,
# and for others.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.0), layout="constrained")
for name, colour in (("independent", "0.6"), ("hierarchical", "C0")):
    left.scatter(n_rows, errors[name], s=14, color=colour, label=name)
left.set(
    xscale="log",
    xlabel="rows of a speaker",
    ylabel="error of the weights",
    ylim=(0, None),
)
left.legend()
bins = np.linspace(evidence.min(), evidence.max(), 30)
right.hist(evidence[~own], bins, density=True, color="0.6", label="another speaker")
right.hist(
    evidence[own], bins, density=True, color="C0", alpha=0.7, label="the speaker"
)
right.set(xlabel="log-likelihood ratio", yticks=[])
right.legend()
plt.show()
