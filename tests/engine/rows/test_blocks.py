"""Rows in blocks: the summary is that of the rows, and a fit is the fit to the rows."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cached_property, partial, reduce
from itertools import pairwise

import numpy as np
import pytest
from calls import Listed, drawn, fit

from skmix._core import core
from skmix.engine import starts
from skmix.engine.estep import reference
from skmix.engine.estep.reference import Kernels, Rows
from skmix.engine.estep.terms import moved
from skmix.engine.records import Options, Parameters, Setting
from skmix.engine.rows.base import GapRows
from skmix.engine.rows.blocks import (
    BlockRows,
    merge_summaries,
    rows_of_label,
    summarise_block,
    summarise_blocks,
    trimmed,
)
from skmix.engine.rows.labelled import Block, distinct_labels, encode, is_blocks
from skmix.engine.rows.summary import measure
from skmix.engine.structures import STRUCTURES, structure_of
from skmix.engine.threads import workers

CUTS = [0, 7, 60, 61, 200, 480, 600]


def make_rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of three overlapping classes, their codes and weights; class 2 is in two blocks alone."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 2, CUTS[-1])
    codes[70:150] = 2
    codes[500:520] = 2
    centres = np.array([[0.0, 0.0, 3.0], [2.0, 1.0, 0.0], [-1.0, 4.0, 1.0]])
    X = centres[codes] + random.normal(size=(CUTS[-1], 3)) * [1.0, 0.5, 2.0] + [1e3, 0.0, -5.0]
    X[::3] += [0.0, 2.0, 0.0]
    return X, codes, random.uniform(0.2, 3.0, size=len(codes))


def cut(X: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> Listed:
    """Return the rows in blocks of very different sizes, with codes or names as labels."""
    labels = labels.astype(np.int16) if labels.dtype.kind == "i" else labels
    return Listed(
        [Block(X[a:b], labels[a:b], None if weights is None else weights[a:b]) for a, b in pairwise(CUTS)]
    )


def make_starts(
    X: np.ndarray, codes: np.ndarray, covariance_type: str, n_starts: int = 2, n_classes: int = 3
) -> Parameters:
    structure = structure_of(covariance_type)
    own = codes >= 0
    return drawn(
        starts.class_wise,
        np.nan_to_num(X[own], nan=0.5),
        codes[own],
        starts.Drawing(n_classes, n_starts, 5, measure(X, structure), structure, np.random.RandomState(3)),
    )


def assert_same_fit(X, codes, weights, start, options) -> None:
    here = fit(X, codes, start, options, row_weights=weights)
    there = fit(cut(X, codes, weights), None, start, options)
    assert np.array_equal(there.status, here.status)
    assert np.array_equal(there.n_iter, here.n_iter)
    # Relative to the size of the largest number: some means are near zero.
    for name in ("weights", "means", "covariances"):
        ours, theirs = getattr(there.parameters, name), getattr(here.parameters, name)
        assert np.allclose(ours, theirs, rtol=1e-9, atol=1e-9), name
    assert np.allclose(there.objective, here.objective, rtol=1e-9, atol=0)
    for ours, theirs in zip(there.path, here.path, strict=True):
        assert np.allclose(ours, theirs, rtol=1e-9, atol=0)


def test_narrow_kernels_far_from_the_origin_are_collected_again_in_blocks() -> None:
    """Such kernels have moments about their own means, which all blocks must agree on."""
    random = np.random.default_rng(5)
    codes = np.repeat([0, 1], 300)
    X = np.where(codes[:, None] == 0, 0.0, 1e5) + random.normal(size=(600, 2)) * [1e-2, 1.0]
    shuffled = random.permutation(600)
    X, codes = X[shuffled], codes[shuffled]
    start = make_starts(X, codes, "full", n_classes=2)
    assert_same_fit(X, codes, None, start, Options(max_iter=8, tol=0.0, floor=1e-20))


def test_blocks_without_a_row_that_counts_change_nothing() -> None:
    X, codes, _ = make_rows()
    weights = np.ones(len(X))
    weights[CUTS[2] : CUTS[4]] = 0.0  # two whole blocks
    kept = weights > 0
    codes[~kept] = 0
    start = make_starts(X, codes, "tied")
    options = Options(covariance_type="tied", max_iter=5)
    frame = measure(X[kept], structure_of("tied"))
    here = fit(X[kept], codes[kept], start, options, frame=frame)
    there = fit(cut(X, codes, weights), None, start, options)
    assert np.allclose(there.parameters.covariances, here.parameters.covariances, rtol=1e-9)
    empty = Listed([Block(X[:0], codes[:0].astype(np.int16)), Block(X[kept], codes[kept].astype(np.int16))])
    again = fit(empty, None, start, options)
    assert np.allclose(again.parameters.covariances, here.parameters.covariances, rtol=1e-9)


@pytest.mark.parametrize("covariance_type", STRUCTURES)
def test_blocks_with_gaps_take_moments_about_given_centres(covariance_type) -> None:
    X, codes, weights = make_rows()
    X[::4, 1] = np.nan
    structure = structure_of(covariance_type)
    frame = measure(X, structure)
    start = frame.enter(make_starts(X, codes, covariance_type), structure)
    factor, far = structure.factor(start.covariances, 3), np.zeros(start.means.shape[:2], dtype=bool)
    far[0, 0] = True
    with workers(1) as pool:
        arguments = start, factor, Setting(frame, structure, pool), (far, start.means + 0.5)
        found, origins = BlockRows(cut(X, codes, weights)).expect(*arguments)
        expected, expected_origins = GapRows(X, codes, weights).expect(*arguments)
    assert np.array_equal(origins, expected_origins)
    for name in ("log_likelihood", "mass", "first", "second"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        assert np.allclose(ours, theirs, rtol=1e-9, atol=1e-9), name


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_scatters_of_blocks_are_computed_once_in_a_frame(weighted, monkeypatch) -> None:
    if core() is None:
        pytest.skip("the reference adds up the moments of tied kernels, and needs no scatter")
    X, codes, weights = make_rows()
    structure, blocks = structure_of("tied"), cut(X, codes, weights if weighted else None)
    frame, start, computed = measure(X, structure), make_starts(X, codes, "tied"), []
    scatter = Rows.scatter.func
    monkeypatch.setattr(Rows, "scatter", cached_property(lambda rows: computed.append(rows) or scatter(rows)))
    Rows.scatter.__set_name__(Rows, "scatter")
    source = BlockRows(blocks)
    with workers(1) as pool:
        for own, n_computed in ((frame, 6), (frame, 6), (replace(frame, shift=frame.shift + 1.0), 12)):
            entered = own.enter(start, structure)
            arguments = entered, structure.factor(entered.covariances, 3), Setting(own, structure, pool)
            found, origins = source.expect(*arguments)
            assert len(computed) == n_computed
            assert not origins.any()
            rows = Rows(X, codes, weights if weighted else None, own)
            expected = reference.expect(rows, Kernels.of(*arguments[:2], structure), entered.means)
            found = moved(found, origins, entered.means, structure)
            for name in ("first", "second"):
                ours, theirs = (getattr(each, name).sum(axis=1) for each in (found, expected))
                assert np.allclose(ours, theirs, rtol=1e-9, atol=1e-9), name
    # They stay in their process.
    assert source._scatters
    assert pickle.loads(pickle.dumps(source._scatters)) == {}
    source.clear_cache()
    assert not source._scatters


# ---------------------------------------------------------------- the summary


@pytest.mark.parametrize(
    ("covariance_type", "gaps", "weighted", "dtype"),
    [
        ("full", False, True, np.float32),
        ("full", True, True, np.float64),
        ("spherical", True, False, np.float32),
        ("spherical", False, True, np.float64),
    ],
)
def test_the_frame_of_a_summary_is_that_of_the_rows(covariance_type, gaps, weighted, dtype) -> None:
    X, codes, weights = make_rows()
    X = np.column_stack([X, np.full(len(X), 0.1), X[:, 0] * 1e-30, X[:, 1] * 1e30]).astype(dtype)
    if gaps:
        X[np.random.default_rng(2).uniform(size=X.shape) < 0.3] = np.nan
        X[:, 2][:250] = np.nan  # no value in whole blocks
        X[np.isnan(X).all(axis=1), 0] = 1e3
    given = weights if weighted else None
    structure = structure_of(covariance_type)
    here = measure(X, structure, row_weights=given)
    there = summarise_blocks(cut(X, codes, given)).frame(structure)
    assert np.array_equal(there.scale, here.scale)
    for name in ("shift", "variance", "bound"):
        assert np.allclose(getattr(there, name), getattr(here, name), rtol=1e-13, atol=1e-13), name
    # The constant feature is recognised as such: only then its variance counts as one.
    if covariance_type == "full":
        assert there.variance[3] == 1.0


def test_labels_are_counted_and_sampled_whatever_the_order_of_the_blocks() -> None:
    random = np.random.default_rng(4)
    sizes = [30_000, 1, 20_000, 25_000]
    blocks = []
    for number, size in enumerate(sizes):
        names = np.array(["rare" if number == 2 and i < 10 else "ab"[i % 2] for i in range(size)])
        blocks.append(Block(random.normal(size=(size, 2)), names, None, number))
    look = partial(summarise_block, 7)
    forth = trimmed(reduce(merge_summaries, map(look, blocks)))
    back = trimmed(reduce(merge_summaries, map(look, blocks[::-1])))
    assert forth.labels is not None
    assert forth.labels.tolist() == ["a", "b", "rare"]
    every = np.concatenate([block.y for block in blocks if block.y is not None])
    assert forth.counts.tolist() == [0, *(int((every == name).sum()) for name in forth.labels)]
    rows, drawn = forth.sample
    assert np.array_equal(rows, back.sample[0])
    assert drawn.tobytes() == back.sample[1].tobytes()
    kept = np.bincount(drawn["label"])
    assert kept.tolist() == [0, rows_of_label([1, 1, 1], 2), rows_of_label([1, 1, 1], 2), 10]
    # Sampled rows are the rows at their places, and no block is preferred.
    X = [block.X for block in blocks]
    assert all(np.array_equal(X[i["block"]][i["row"]], x) for x, i in zip(rows, drawn, strict=True))
    share = np.bincount(drawn["block"], minlength=4) / len(rows)
    assert np.allclose(share, np.array(sizes) / sum(sizes), atol=0.01)


def test_names_may_stand_beside_their_indices() -> None:
    names = np.array(["pine", "oak", "unseen", "ash"])
    index = np.array([0, 3, 3, 1, 0])
    block = Block(np.arange(10.0).reshape(5, 2), index, names=names)
    found = summarise_block(0, block)
    assert found.labels is not None
    assert found.labels.tolist() == ["ash", "oak", "pine"]
    assert found.counts.tolist() == [0, 2, 1, 2]
    assert found.labels[found.sample[1]["label"] - 1].tolist() == names[index].tolist()
    coded = block.coded(np.array(["ash", "pine"])).y
    assert coded is not None
    assert coded.tolist() == [1, 0, 0, -1, 1]


def test_codes_are_small_and_unknown_labels_have_none() -> None:
    classes = np.array([-5, 3, 8])
    codes = encode(np.array([8, 3, -5, 4, 100, -100]), classes)
    assert codes.tolist() == [2, 1, 0, -1, -1, -1]
    assert codes.dtype == np.int8
    assert encode(np.arange(300), np.arange(300)).dtype == np.int16


def test_a_summary_of_some_features_looks_again_only_where_there_are_gaps() -> None:
    X, codes, _ = make_rows()
    rows = BlockRows(cut(X, codes))
    own = rows.with_features([2, 0])
    assert own.n_features == 2
    assert np.allclose(
        own.summary.frame(structure_of("full")).scale, measure(X[:, [2, 0]], structure_of("full")).scale
    )
    X[5, :2] = np.nan
    rows = BlockRows(cut(X, codes))
    assert rows.with_features([0, 1]).summary.n_rows == len(X) - 1
    # No labelled row has a value of the first feature.
    X[codes == 2, 0] = np.nan
    some = BlockRows(cut(X, np.where(codes == 2, 1, -1))).with_features([0])
    assert some.summary.class_sizes(2).tolist() == [0.0, 0.0]
    assert some.summary.counts[0] == some.summary.n_rows == np.sum((codes < 2) & ~np.isnan(X[:, 0]))
    assert not is_blocks(X)


def test_what_answers_to_any_name_is_no_block() -> None:
    class Anything:
        def __getattr__(self, name: str) -> object:
            return self

    assert is_blocks(cut(*make_rows()))
    assert not is_blocks(Anything())
    assert not is_blocks(Listed)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_a_sample_stands_for_all_rows(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come with their own classes, and with weights by which each class has as many as it had."""
    X, codes, weights = make_rows()
    names = np.array(["x", "y", "z"], dtype="U7")[codes]
    names[::50] = "unknown"
    X[:, 0] = np.where(names == "unknown", -1, codes)
    blocks = cut(X, names, weights if weighted else None)
    monkeypatch.setattr("skmix.engine.rows.blocks._FEWEST_SAMPLED", 20)
    monkeypatch.setattr("skmix.engine.rows.blocks._MOST_SAMPLED", 20)
    classes = np.array(["x", "y", "z"])
    source = BlockRows(blocks.coded(classes), summarise_blocks(blocks, 1).coded(classes))
    rows, found, masses = source.start_rows()
    assert len(rows) == 20 * 3 + 12
    assert rows[:, 0].tolist() == found.tolist()
    assert masses is not None
    for code, name in enumerate(classes):
        n, own = np.sum(names == name), masses[found == code]
        if not weighted:
            assert np.allclose(own, n / 20)
            continue
        # Each is a row's own weight, as often as rows of its class stand behind it.
        match = [np.flatnonzero((row == X).all(axis=1))[0] for row in rows[found == code]]
        assert np.allclose(own, weights[match] * n / 20)
    everything = BlockRows(blocks.coded(classes))
    monkeypatch.undo()
    rows, found, masses = everything.start_rows()
    assert np.array_equal(rows, X)
    assert rows[:, 0].tolist() == found.tolist()
    assert masses is None if not weighted else np.array_equal(masses, weights)


def test_rows_of_weight_zero_or_without_any_value_are_left_out() -> None:
    nan = np.nan
    X = np.array([[1.0, nan], [nan, nan], [2.0, 3.0], [4.0, 5.0], [nan, 6.0]])
    block = Block(X, np.arange(5), np.array([1.0, 2.0, 0.0, 3.0, 4.0]), 7)
    for found, kept in ((block.weighted(), [0, 1, 3, 4]), (block.informative(), [0, 3, 4])):
        assert np.array_equal(found.X, X[kept], equal_nan=True)
        assert found.y is not None
        assert found.y.tolist() == kept
        assert found.weights is not None
        assert found.weights.tolist() == block.weights[kept].tolist()  # type: ignore[index]
        assert found.number == 7
    whole = Block(X[2:4])
    assert whole.informative() is whole.weighted() is whole
    assert np.array_equal(block.with_features([1]).X, X[:, [1]], equal_nan=True)


class NAType:
    """Compares like pandas.NA."""

    def __ne__(self, other: object) -> bool:
        raise TypeError("boolean value of NA is ambiguous")


def test_labels_that_are_missing_have_no_number() -> None:
    for labels, expected in (
        (np.array([3.0, np.nan, 1.0]), [1, -1, 0]),
        (np.array(["b", None, "a", np.nan, NAType(), "b"], dtype=object), [1, -1, 0, -1, -1, 1]),
        (np.array(["b", "a", "b"]), [1, 0, 1]),
    ):
        found, index = distinct_labels(labels)
        assert index.tolist() == expected
        assert len(found) == 2
        assert encode(labels, found).tolist() == expected
        # Of one class only, the others have none either.
        assert encode(labels, found[1:]).tolist() == [0 if code == 1 else -1 for code in expected]


ROWS, CODES, WEIGHTS = make_rows()
NAMES = np.array(["x", "y", "z"])[CODES]
INFINITE = ROWS.copy()
INFINITE[77, 1] = np.inf


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([Block(ROWS[:9], CODES[:9]), Block(ROWS[9:], NAMES[9:])], r"differ in kind.*all of them one type"),
        ([Block(ROWS[:9], CODES[:9]), Block(ROWS[9:])], "Some blocks have labels"),
        ([Block(ROWS[9:], CODES[:9])], r"Block 0 has 591 rows, but labels of shape \(9,\)"),
        ([Block(ROWS, weights=WEIGHTS[:9])], r"600 rows, but weights of shape \(9,\)"),
        ([Block(ROWS, CODES + 0.5)], r"Unknown label type: \d.5"),
        ([Block(ROWS[:3], np.array(["a", 1, "b"], dtype=object))], "cannot be compared with each other"),
        ([Block(ROWS[:61]), Block(INFINITE[61:])], "infinity: feature 1 in row 16 of block 1"),
        ([Block(ROWS, weights=np.where(CODES == 1, -1.0, WEIGHTS))], "not negative, got -1"),
        ([Block(ROWS, weights=np.where(CODES == 1, np.nan, WEIGHTS))], "must be finite and not negative"),
        ([Block(ROWS, weights=np.where(CODES == 1, np.inf, WEIGHTS))], "must be finite and not negative"),
    ],
)
def test_bad_blocks_are_refused(blocks: list[Block], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skmix.engine.rows.labelled._CHECKED", 4)
    with pytest.raises(ValueError, match=words):
        summarise_blocks(Listed(blocks))
