"""Tables, labels and recipes: how the values that users have become the features of a model."""

from typing import TYPE_CHECKING

from .._parts import on_first_use

if TYPE_CHECKING:
    from .problems import ColumnError
    from .recipe import Recipe

__all__ = ["ColumnError", "Recipe"]
__getattr__, __dir__ = on_first_use(__name__, {"ColumnError": "problems", "Recipe": "recipe"})
