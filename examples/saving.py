"""Save a model, load it, run it in onnxruntime, and look at how far the copies are from the original.

Run it with ``python examples/saving.py [picture]``; it needs ``skmix[onnx,plot]`` and onnxruntime.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
from sklearn.datasets import make_moons

from skmix import SharedKernelClassifier, load
from skmix.plots import save_figure

COLOURS = ["#0072b2", "#d55e00", "#009e73"]

# Two moons and a cloud between their tips.
X, y = make_moons(600, noise=0.12, random_state=0)
rng = np.random.default_rng(0)
X = np.vstack([X, rng.normal([2.6, 1.0], 0.25, (300, 2))])
labels = np.array(["upper", "lower", "cloud"])[np.r_[y, np.full(300, 2)]]
model = SharedKernelClassifier(12, n_init=4, random_state=0).fit(X, labels)

# A wide look around: near the rows, and far beyond where densities are numbers at all.
side = np.linspace(-11, 13, 480), np.linspace(-11.5, 12.5, 480)
grid = np.stack(np.meshgrid(*side), axis=-1).reshape(-1, 2)
ours = model.predict_proba(grid)

with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder) / "moons.skmix")
    loaded = load(Path(folder) / "moons.skmix").predict_proba(grid)
    model.to_onnx(Path(folder) / "moons.onnx")
    session = onnxruntime.InferenceSession(Path(folder) / "moons.onnx", providers=["CPUExecutionProvider"])
    in_runtime = session.run(["probabilities"], {"X": grid})[0]
    sizes = {name: (Path(folder) / f"moons.{name}").stat().st_size for name in ("skmix", "onnx")}

print("loaded again: the same bits:", np.array_equal(loaded, ours))
print(f"in onnxruntime: off by {np.abs(in_runtime - ours).max():.1e} at most")
print(f"files: {sizes['skmix']} and {sizes['onnx']} bytes")

# What densities as single-precision numbers, not as logarithms, would have left of it.
with np.errstate(under="ignore"):
    plain = np.exp(model.class_log_likelihood(grid).astype(np.float32))
lost = ~plain.any(axis=1)
print(f"of the picture, {lost.mean():.0%} has no density above zero in single precision")

figure, axes = plt.subplots(1, 3, figsize=(13, 4.6), layout="constrained", sharex=True, sharey=True)
extent = (side[0][0], side[0][-1], side[1][0], side[1][-1])
order = [list(model.classes_).index(name) for name in ("upper", "lower", "cloud")]
shades = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in COLOURS])


def mixed(probabilities: np.ndarray) -> np.ndarray:
    """Return a picture (480, 480, 3) in which classes mix their colours, on white."""
    colour = probabilities[:, order] @ (0.35 + 0.65 * shades)
    return colour.reshape(480, 480, 3)


options = {"origin": "lower", "extent": extent}
axes[0].imshow(mixed(in_runtime), **options)
axes[0].set_title("Probabilities in onnxruntime")
gap = np.abs(in_runtime - ours).max(axis=1).reshape(480, 480)
drawn = axes[1].imshow(np.log10(np.maximum(gap, 1e-18)), cmap="magma", vmin=-18, vmax=-6, **options)
bar = figure.colorbar(drawn, ax=axes[1], ticks=[-18, -15, -12, -9, -6], shrink=0.8)
bar.ax.set_yticklabels(["≤ 10⁻¹⁸", "10⁻¹⁵", "10⁻¹²", "10⁻⁹", "10⁻⁶"])
axes[1].set_title(f"Difference from skmix, at most {gap.max():.0e}")
picture = mixed(ours)
picture[lost.reshape(480, 480)] = 0.82
axes[2].imshow(picture, **options)
axes[2].set_title("Grey: zero, were densities float32 numbers")
for panel in (axes[0], axes[2]):
    for name, colour in zip(("upper", "lower", "cloud"), COLOURS, strict=True):
        panel.scatter(*X[labels == name].T, s=3, color=colour, linewidths=0, label=name)
axes[0].legend(loc="upper left", markerscale=3, fontsize=9, framealpha=0.9)
save_figure(figure, sys.argv[1] if len(sys.argv) > 1 else "saving.png", dpi=110)
