"""Names and values in messages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any

# Longer texts are cut in messages.
_LONGEST = 40


def shortened(text: str) -> str:
    """Shorten a text for messages."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def listed(names: Sequence[Any], most: int = 10) -> str:
    """Join the first `most` names by commas, and add the total number if there are more."""
    shown = ", ".join(map(str, names[:most]))
    return shown if len(names) <= most else f"{shown} ... ({len(names)} in all)"


def nearest(name: Any, names: Iterable[Any]) -> str:
    """Ask whether the most similar of `names` was meant, as the end of a message; "" if none is similar."""
    if not re.search("[^0-9.+-]", str(name)):  # numbers that look alike are not misspelt
        return ""
    known = {str(other).lower(): str(other) for other in names}
    similar = difflib.get_close_matches(str(name).lower(), known, n=1)
    return f" Did you mean {known[similar[0]]!r}?" if similar else ""
