"""Keys of cells and their random generators: hashes of settings, independent of the order of execution.

Cells can therefore run in any order, batch and process, and each can be repeated alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import skmix

# Packages whose code affects the results of an experiment.
_PACKAGES = ("engine", "estimators", "features", "datasets")


def cell_key(settings: Mapping[str, Any]) -> str:
    """Return a hash, 32 hexadecimal digits, of all settings of a cell; their order does not matter."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def library(*files: str) -> str:
    """Return the version of skmix and a digest of its source and of further files.

    As a setting of a cell, it separates results of edited code from earlier results.
    """
    root = Path(skmix.__file__).parent
    digest = hashlib.sha256()
    own = [file for package in _PACKAGES for file in sorted((root / package).rglob("*.py"))]
    for file in [*own, *map(Path, files)]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return f"{skmix.__version__}+{digest.hexdigest()[:16]}"


def generator(seed: int, *names: str | int) -> np.random.RandomState:
    """Return a new generator seeded by a hash of the seed and names, the same on every machine.

    `names` identify what is drawn; they must not contain line breaks, which separate them.
    """
    text = "\n".join(["skmix study", str(seed), *map(str, names)])
    entropy = int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(entropy)))
