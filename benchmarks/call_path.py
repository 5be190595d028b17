"""The call path of `fit` and `predict_proba`: functions, files and nested frames down to the arithmetic.

To compare, put another version's ``src`` first on PYTHONPATH. Comprehensions and lambdas count as frames if
Python makes them frames.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from sklearn.datasets import load_iris

import skmix

PACKAGE = str(Path(skmix.__file__).parent)


def trace(work: Callable[[], Any]) -> dict[str, Any]:
    """Return the distinct functions and files of the package that `work` enters, and the largest depth."""
    functions: set[tuple[str, str, int]] = set()
    depth = deepest = calls = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal depth, deepest, calls
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return
        if event == "call":
            functions.add((code.co_filename, code.co_qualname, code.co_firstlineno))
            calls, depth = calls + 1, depth + 1
            deepest = max(deepest, depth)
        elif event == "return":
            depth -= 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    files = sorted({str(Path(name).relative_to(PACKAGE)) for name, _, _ in functions})
    return {
        "calls": calls,
        "functions": len(functions),
        "files": len(files),
        "frames": deepest,
        "names": files,
    }


def main() -> None:
    """Print the paths of a classifier's fit and prediction on an array."""
    X, y = load_iris(return_X_y=True)
    model = skmix.SharedKernelClassifier(random_state=0).fit(X, y)
    model.predict_proba(X)  # caches and deferred imports are not counted
    found = {
        "fit": trace(lambda: skmix.SharedKernelClassifier(random_state=0).fit(X, y)),
        "predict_proba": trace(lambda: model.predict_proba(X)),
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
