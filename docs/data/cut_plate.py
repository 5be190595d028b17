"""Cut the wells of src/skmix/examples and docs/data/plate from the FCS files of FlowCytometryTools.

``pip download --no-deps --no-binary :all: FlowCytometryTools==0.5.1``, unpack the archive, then
``python docs/data/cut_plate.py FlowCytometryTools-0.5.1``. Of each well 4,000 events are kept, drawn at
random, and 7 of its 16 channels; the keywords that describe the sample stay.
"""

from __future__ import annotations

import sys
from array import array
from pathlib import Path

import numpy as np
from flowio import FlowData, create_fcs

EVENTS = 4000
CHANNELS = ["HDR-T", "FSC-A", "FSC-H", "SSC-A", "V2-A", "Y2-A", "B1-A"]
KEYWORDS = ["fil", "op", "sys", "cyt", "cytsn", "src", "cells", "date", "btim", "etim"]
ROOT = Path(__file__).parents[2]


def cut(original: Path, target: Path) -> None:
    """Write some of the events and channels of a file."""
    file = FlowData(original)
    events = np.reshape(file.events, (-1, file.channel_count))
    names = [file.channels[place]["pnn"] for place in sorted(file.channels)]
    chosen = np.sort(
        np.random.default_rng(0).choice(len(events), EVENTS, replace=False)
    )
    X = events[np.ix_(chosen, [names.index(name) for name in CHANNELS])]
    kept = {key: file.text[key] for key in KEYWORDS if key in file.text}
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as stream:
        create_fcs(
            stream,
            array("f", X.astype(np.float32).tobytes()),
            CHANNELS,
            metadata_dict=kept,
        )


if __name__ == "__main__":
    data = Path(sys.argv[1]) / "FlowCytometryTools" / "tests" / "data"
    for plate, folder in (
        ("Plate01", ROOT / "src" / "skmix" / "examples" / "wells"),
        ("Plate02", ROOT / "docs" / "data" / "plate" / "mixed"),
    ):
        for path in sorted((data / plate).glob("*.fcs")):
            # CFP_Well_A4.fcs becomes CFP-A04.fcs, Mixed_Well_H12.001.fcs mixed-H12.fcs.
            kind, _, well = path.name.split(".")[0].split("_")
            name = f"{kind.replace('Mixed', 'mixed')}-{well[0]}{well[1:].zfill(2)}.fcs"
            cut(path, folder / name)
