"""Transformers of scikit-learn's kind: deskewing of images, and scales for cytometry.

Nothing here fits a model.
"""

from ..io.scales import Arcsinh, Logicle
from .images import Deskew

__all__ = ["Arcsinh", "Deskew", "Logicle"]
