"""
A classifier without settings
=============================

``SharedKernelClassifierCV`` is the easiest way to a good classifier: it chooses features, kernels,
covariances and priors by cross-validation, and averages the best. ``time_limit`` would end it sooner.
"""

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.metrics import log_loss

from skmix import SharedKernelClassifier, SharedKernelClassifierCV
from skmix.paper import digit_features, make_seven_segment_digits
from skmix.plots import plot_search

# %%
# Images of digits by 14 features of very different scales. They need no preparation.
(images, y_train), (others, y_test) = (
    make_seven_segment_digits(n, random_state=n) for n in (60, 200)
)
X_train, X_test = digit_features(images), digit_features(others)
search = SharedKernelClassifierCV(random_state=0).fit(X_train, y_train)
default = SharedKernelClassifier(random_state=0).fit(X_train, y_train)
for model in (default, search):
    loss = log_loss(y_test, model.predict_proba(X_test))
    print(
        f"{type(model).__name__}: {model.score(X_test, y_test):.1%} correct, "
        f"log-loss {loss:.3f}"
    )

# %%
# The chosen settings, and the best candidates. The models that are averaged are in ``classifiers_``.
chosen = {
    name: value for name, value in search.best_params_.items() if value is not None
}
print(f"the best of {len(search.classifiers_)} models:")
print(*(f"  {name}: {value}" for name, value in chosen.items()), sep="\n")
table = pd.DataFrame(search.cv_results_).nsmallest(4, "rank_test_score")
settings = [
    "param_transform",
    "param_reduction",
    "param_kernels",
    "param_n_kernels",
    "param_trade_off",
]
print(table[[*settings, "mean_test_score", "member"]].to_string(index=False))

# %%
# All candidates. Small dots were compared on one fold; the best of these, large, on all folds.
_, panel = plt.subplots(figsize=(9, 4.4), layout="constrained")
plot_search(search, axes=panel)
panel.set_title(f"{len(search.cv_results_['params'])} comparisons on held-out digits")
plt.show()
