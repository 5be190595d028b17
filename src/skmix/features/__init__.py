"""Features of images, as scikit-learn transformers.

All take images as an array (n, height, width) or flattened (n, height × width), row after row.
"""

from __future__ import annotations

from skmix.features.deskewing import Deskew
from skmix.features.digits import DIGIT_FEATURES, PrincipalAxis, QuadrantMass, digit_features, dither

__all__ = ["DIGIT_FEATURES", "Deskew", "PrincipalAxis", "QuadrantMass", "digit_features", "dither"]
