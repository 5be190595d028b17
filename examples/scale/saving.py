"""
Saving, loading, ONNX
=====================

A model file holds numbers, not code; loading it gives the same model to the last bit. ``to_onnx`` makes a
graph for runtimes without Python; it computes with logarithms throughout, so rows far from all kernels
still have probabilities.

It needs ``skmix[onnx]`` and onnxruntime.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
from matplotlib.colors import to_rgb
from sklearn.datasets import make_moons

from skmix import SharedKernelClassifier, load

# %%
# Two moons and a cloud between their tips.
X, y = make_moons(600, noise=0.12, random_state=0)
X = np.vstack([X, np.random.default_rng(0).normal([2.6, 1.0], 0.25, (300, 2))])
y = np.concatenate([y, np.full(300, 2)])
model = SharedKernelClassifier(12, random_state=0).fit(X, y)

# %%
# A wide grid, evaluated by the model, its copy and the graph in onnxruntime.
side = 300
across, up = np.linspace(-11, 13, side), np.linspace(-11.5, 12.5, side)
grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
ours = model.predict_proba(grid)
with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder) / "moons.skmix")
    loaded = load(Path(folder) / "moons.skmix").predict_proba(grid)
    model.to_onnx(Path(folder) / "moons.onnx")
    session = onnxruntime.InferenceSession(
        Path(folder) / "moons.onnx", providers=["CPUExecutionProvider"]
    )
    in_runtime = session.run(["probabilities"], {"X": grid})[0]
print("loaded again, the same bits:", np.array_equal(loaded, ours))
print(f"in onnxruntime, off by {np.abs(in_runtime - ours).max():.0e} at most")

# %%
# Grey: where all densities would be zero as single-precision numbers instead of logarithms.
with np.errstate(under="ignore"):
    densities = np.exp(model.class_log_likelihood(grid).astype(np.float32))
lost = ~densities.any(axis=1)

# %%
# Colours mix as probabilities do.
colours = np.array([to_rgb(colour) for colour in ("#0072b2", "#d55e00", "#009e73")])
figure, (left, middle, right) = plt.subplots(
    1, 3, figsize=(13, 4.4), layout="constrained", sharey=True
)
options = {"origin": "lower", "extent": (across[0], across[-1], up[0], up[-1])}
mixed = in_runtime @ (0.35 + 0.65 * colours)
left.imshow(mixed.reshape(side, side, 3), **options)
left.set_title("Probabilities in onnxruntime")
gap = np.log10(np.maximum(np.abs(in_runtime - ours).max(axis=1), 1e-18)).reshape(
    side, side
)
drawn = middle.imshow(gap, cmap="cividis", vmin=-18, vmax=-12, **options)
bar = figure.colorbar(drawn, ax=middle, ticks=[-18, -16, -14, -12], shrink=0.8)
bar.ax.set_yticklabels(["≤ 10⁻¹⁸", "10⁻¹⁶", "10⁻¹⁴", "10⁻¹²"])
middle.set_title("Their difference from skmix")
right.imshow(np.where(lost[:, None], 0.82, mixed).reshape(side, side, 3), **options)
right.set_title("Grey: lost without logarithms")
for axes in (left, right):
    for c, marker in enumerate("o^s"):
        axes.scatter(
            *X[y == c].T, s=4, color=colours[c], marker=marker, lw=0, label=f"class {c}"
        )
for axes in (left, middle, right):
    axes.set_xlabel("feature 0")
left.set_ylabel("feature 1")
left.legend(loc="upper left", markerscale=3, framealpha=0.9)
plt.show()
