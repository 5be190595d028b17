"""Files, tables, arrays and clusters as rows, with labels and recipes; and arrays as files.

pyarrow, flowio and Dask are imported on first use.
"""

from typing import TYPE_CHECKING

from .._parts import on_first_use

if TYPE_CHECKING:
    from .events import FcsReader as FcsReader
    from .events import write_fcs as write_fcs
    from .fcs import is_scatter as is_scatter
    from .fcs import without_bookkeeping as without_bookkeeping
    from .missing import is_missing as is_missing
    from .notation import MISSING as MISSING
    from .opening import files_of as files_of
    from .opening import is_elsewhere as is_elsewhere
    from .opening import open_rows
    from .opening import stem_of as stem_of
    from .problems import ColumnError
    from .recipe import Recipe
    from .recipe import in_words as in_words
    from .recipe import same_scale as same_scale
    from .recipe import scale_in_words as scale_in_words
    from .source import Source
    from .write import check_writable as check_writable
    from .write import replacing as replacing
    from .write import write_columns

__all__ = ["ColumnError", "Recipe", "Source", "open_rows", "write_columns"]
# What the rooms above need to open, label and write the files of samples.
_FOR_ROOMS = {
    "FcsReader": "events",
    "MISSING": "notation",
    "check_writable": "write",
    "files_of": "opening",
    "in_words": "recipe",
    "is_elsewhere": "opening",
    "is_missing": "missing",
    "is_scatter": "fcs",
    "replacing": "write",
    "same_scale": "recipe",
    "scale_in_words": "recipe",
    "stem_of": "opening",
    "without_bookkeeping": "fcs",
    "write_fcs": "events",
}
__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "ColumnError": "problems",
        "Recipe": "recipe",
        "Source": "source",
        "open_rows": "opening",
        "write_columns": "write",
        **_FOR_ROOMS,
    },
)
