"""Files of studies that were edited: `load` refuses what the study could not use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.special import ndtri

from skmix import Study, compose, load
from skmix.model.files import read_file, write_file

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

DELETED = object()
VALUES: list[Any] = [
    *(DELETED, None, True, 0, -1, 1.5, "x", [], ["x"], {}),
    *({"is": "tuple", "of": []}, {"is": "dict", "of": {"a": 1}}, {"is": "float", "of": "nan"}),
]
# What a study says beside its model and results, which have checks of their own.
PARTS = ("origin", "metadata", "design", "samples", "populations")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the content and the arrays of a file that has every part."""
    folder, random = tmp_path_factory.mktemp("study"), np.random.default_rng(0)
    for number in range(4):
        X = np.repeat([[0.0, 0.0], [600.0, 600.0]], [30 + 5 * number, 50 - 5 * number], axis=0)
        X += 100.0 * random.normal(size=X.shape)
        pd.DataFrame(X, columns=["CD3", "CD4"]).to_csv(folder / f"s{number}.csv", index=False)
    metadata = {"sample": [f"s{i}" for i in range(4)], "arm": list("abab"), "donor": list("xxyy")}
    study = compose(
        sorted(folder.glob("*.csv")),
        transform="arcsinh:150",
        metadata={**metadata, "age": [1, 2.5, None, 4], "treated": [True, False, True, False]},
        condition="arm",
        pair="donor",
        reference="b",
    )
    study.save(folder / "study.skmix")
    content, arrays, _ = read_file(folder / "study.skmix")
    return content, arrays


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where each value is in JSON content, itself included."""
    yield path
    inside = content.items() if isinstance(content, dict) else ()
    for name, value in enumerate(content) if isinstance(content, list) else inside:
        yield from places(value, (*path, name))


def edited(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return content with another value in one place, or without it."""
    content = deepcopy(content)
    *above, last = path
    inner = content
    for name in above:
        inner = inner[name]
    if value is DELETED:
        del inner[last]
    else:
        inner[last] = value
    return content


def loaded(path: Path, content: Any, arrays: dict[str, np.ndarray]) -> Any:
    write_file(path, content, arrays)
    return load(path)


def use(study: Study) -> None:
    """Call what reads the words of a study."""
    json.dumps(study.describe(), allow_nan=False)
    assert isinstance(study.provenance(), list)
    assert len(study.proportions) > 0
    if study.describe()["design"] is not None:
        study.compare()


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_a_file_with_another_value_anywhere_is_refused_or_works(
    stored: tuple[Any, dict[str, np.ndarray]], tmp_path: Path, part: str
) -> None:
    content, arrays = stored
    n_refused = 0
    for place in places(content["fields"][part]):
        for value in VALUES:
            changed = edited(content, ("fields", part, *place), value)
            try:
                study = loaded(tmp_path / "study.skmix", changed, arrays)
            except ValueError:
                n_refused += 1
                continue
            use(study)
    assert n_refused > 10


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("origin", "of", "preparation"), True, "cells were read as True, unlike its model"),
        (("origin", "of", "preparation"), [], r"cells were read as \[\], unlike its model"),
        (("origin", "of", "preparation", "of", "transform"), "logicle", "'transform': 'logicle'.*unlike its"),
        (("origin", "of", "preparation", "of", "linear"), ["CD3"], r"'linear': \['CD3'\].*unlike its model"),
        (("origin", "of", "notes"), None, "its files, column, markers and notes are not text"),
        (("origin", "of", "joined"), True, "its joined populations are True, not tuples of names"),
        (
            ("origin", "of", "joined", "of"),
            ["CD3"],
            "its joined populations are .*CD3.*, not tuples of names",
        ),
        (("origin", "of", "column"), 3, "its files, column, markers and notes are not text"),
        (("origin", "of", "markers", "of"), ["CD3"], "it names 1 markers, but its model has 2"),
        (("metadata", "of", "arm"), ["a", "b"], "its metadata 'arm' is not a list of 4 values"),
        (("metadata", "of", "age"), "4444", "its metadata 'age' is not a list of 4 values"),
        (("metadata", "of", "donor"), [["x"]] * 4, "its metadata 'donor' is not a list of 4 values"),
        (("metadata", "of", "arm"), ["a"] * 4, "condition='arm' must have two values"),
        (("design", "of", "condition"), 1, "Name a metadata column as condition"),
        (("design", "of", "pair"), "nobody", "pair='nobody' is not a column of the metadata"),
        (("design", "of", "reference"), "c", "reference='c' is not a value of arm"),
        (("design",), False, "must be a mapping"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    stored: tuple[Any, dict[str, np.ndarray]], tmp_path: Path, path: tuple[str, ...], value: Any, message: str
) -> None:
    content, arrays = stored
    with pytest.raises(ValueError, match=rf"study\.skmix holds no valid model: .*{message}"):
        loaded(tmp_path / "study.skmix", edited(content, ("fields", *path), value), arrays)
    use(loaded(tmp_path / "study.skmix", content, arrays))


# ---------------------------------------------------------------- files of earlier versions


def earlier_cells() -> tuple[pd.DataFrame, np.ndarray]:
    """Return the cells of the stored study, and the proportions (6, 3) of its populations."""
    frames, counts = [], []
    for j in range(6):
        parts = []
        for n, mean in ((4 + j, [6, 0]), (6, [0, 0]), (5, [6, 8])):
            levels = ndtri((np.arange(n) + 0.5) / n)
            parts.append(np.stack(np.meshgrid(levels, levels), axis=-1).reshape(-1, 2) + mean)
        frames.append(pd.DataFrame(np.concatenate(parts), columns=["CD3", "CD4"]).assign(sample=f"s{j}"))
        counts.append([len(part) for part in parts])
    return pd.concat(frames), np.array(counts) / np.sum(counts, axis=1, keepdims=True)


def test_a_study_of_the_earlier_rule_still_works(tmp_path: Path) -> None:
    study = load(Path(__file__).parents[1] / "golden" / "valley_populations.skmix")
    cells, proportions = earlier_cells()
    use(study)
    assert study.populations.display_names == ["mine", "CD3⁻", "CD3⁺ CD4⁺"]
    for one in (study, study.apply_to(cells, sample="sample")):
        assert_allclose(one.composition.proportions, proportions, atol=1e-5)
        assert one.describe()["cuts"][1] == "at 2, mine and CD3⁻ are one"
        assert 'id="finer"' in one.to_html()
    means = study.compare().table.set_index("population")
    assert_allclose(means.loc["mine", "proportion_b"], proportions[1::2, 0].mean(), atol=1e-5)
    # Any cut of the earlier tree is one of today.
    for number in range(1, 9):
        again = study.recut(number)
        again.save(tmp_path / "again.skmix", overwrite=True)
        assert len(load(tmp_path / "again.skmix").populations) == number
    assert_allclose(study.recut(2).composition.proportions[:, 1], proportions[:, 2], atol=1e-5)
    with pytest.raises(ValueError, match="n_populations=9 must be a whole number from 1 to 8"):
        study.recut(9)
