"""Transformers of scikit-learn's kind: features of images, and scales for cytometry.

Nothing here fits a model.
"""

from ..io.scales import Arcsinh, Logicle
from .images import DIGIT_FEATURES, Deskew, PrincipalAxis, QuadrantMass, digit_features, dither

__all__ = [
    "DIGIT_FEATURES",
    "Arcsinh",
    "Deskew",
    "Logicle",
    "PrincipalAxis",
    "QuadrantMass",
    "digit_features",
    "dither",
]
