"""The core takes the arrays that it can read, and refuses all others with a clear error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from definitions import Array, assert_close, done, e_step, make_gaps, make_problem
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided
from numpy.testing import assert_array_equal

from skmix._core import compiled

REFUSALS = (TypeError, ValueError, IndexError)
Change = Callable[[Array], Any]


def misaligned(array: Array) -> Array:
    """Return the same numbers at an address that is not a multiple of their size."""
    memory = np.zeros(array.nbytes + 1, dtype=np.uint8)
    memory[1:] = np.frombuffer(array.tobytes(), dtype=np.uint8)
    copy = memory[1:].view(array.dtype).reshape(array.shape)
    assert not copy.flags.aligned
    return copy


def within_records(array: Array) -> Array:
    """Return the same numbers, at steps that are not multiples of their size."""
    records = np.zeros(array.shape, dtype=[("byte", "i1"), ("number", array.dtype)])
    records["number"] = array
    return records["number"]


def apart(array: Array) -> Array:
    return np.repeat(array, 2, axis=-1)[..., ::2]


class Exporter:
    """An array of another library."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


# What no argument may be.
WRONG: dict[str, Change] = {
    "None": lambda array: None,
    "a list": lambda array: array.tolist(),
    "text": lambda array: array.astype(str),
    "objects": lambda array: array.astype(object),
    "booleans": lambda array: array.astype(bool),
    "half": lambda array: array.astype(np.float16),
    "extended": lambda array: array.astype(np.longdouble),
    "complex": lambda array: array.astype(complex),
    "small integers": lambda array: array.astype(np.int32),
    "swapped bytes": lambda array: array.astype(array.dtype.newbyteorder()),
    "misaligned": misaligned,
    "within records": within_records,
    "one axis more": lambda array: array[..., None],
    "one axis less": lambda array: array[0],
}
# What rows may be, but nothing else.
WRONG_UNLESS_ROWS: dict[str, Change] = {
    "apart": apart,
    "backwards": lambda array: np.ascontiguousarray(array[..., ::-1])[..., ::-1],
    "of one size more": lambda array: np.concatenate([array, array[-1:]]),
    "empty": lambda array: array[:0],
}

PROBLEM = replace(
    make_problem("full", 3, n_rows=12, n_kernels=4, n_starts=2, n_classes=2, weighted=True, t=True), limit=1e6
)
ONE = make_problem("full", 3, n_rows=12, n_kernels=4)
GAPS = make_gaps(3, 2, 2)


def call(name: str, arguments: dict[str, Any]) -> Any:
    """Call a function of the core by its name, and do the job."""
    answer = getattr(compiled, name)(*arguments.values())
    return done(answer) if isinstance(answer, compiled.Pass) else answer


def rows_arguments() -> dict[str, Any]:
    names = "X", "codes", "weights", "scale", "shift", "limit"
    return {name: getattr(PROBLEM, name) for name in names} | {"n_classes": 2}


def kernels_arguments() -> dict[str, Any]:
    names = "is_product", "isotropic", "means", "whiteners", "constants", "log_weights", "degrees"
    return {name: getattr(PROBLEM, name) for name in names}


def climb_arguments() -> dict[str, Any]:
    arrays = {
        "weights": np.full((4, 2), 0.25),
        "means": ONE.means[0],
        "covariances": np.stack([np.eye(3)] * 4),
        "whiteners": np.stack([np.eye(3)] * 4),
        "log_determinants": np.zeros(4),
        "floor": np.full(3, 1e-6),
        "ridge": np.full(3, 1e-6),
    }
    prior = {"prior_rows": 1.0, "prior_covariance": np.eye(3), "weight_prior": 1.0}
    path = {"is_isotropic": False, "is_monotone": True, "objective": -np.inf, "likelihood": -np.inf}
    limits = {"least_change": 0.0, "most": 2, "least_mass": 1e-130, "singular": 1e-15, "inflated": 2e6}
    return {"rows": PROBLEM.rows(), **arrays, **prior, **path, **limits, "cancellation": 1e7, "farthest": 1e6}


def compare_arguments() -> dict[str, Any]:
    kernels = np.array([[0, -1], [1, 2], [3, -1]])
    groups = {"x": ONE.X, "responsibilities": np.full((4, 12), 0.25), "kernels": kernels, "size": 5}
    common = {"common": np.eye(3), "whitener": np.eye(3), "is_isotropic": False, "is_fixed": False}
    steps = {"prior_rows": 1.0, "pair_rows": 1.0, "n_steps": 1, "n_power_steps": 4}
    limits = {"steepness": 4.0, "steepest": 30.0, "least_share": 0.01, "least_mass": 1e-9, "singular": 1e-15}
    return {**groups, **common, **steps, **limits}


# Functions, how their arguments are made, and which may be None.
FUNCTIONS: dict[str, tuple[Callable[[], dict[str, Any]], set[str]]] = {
    "Rows": (rows_arguments, {"weights"}),
    "Kernels": (kernels_arguments, {"degrees"}),
    "e_step": (
        lambda: {"rows": PROBLEM.rows(), "kernels": PROBLEM.kernels(), "origins": PROBLEM.means},
        {"origins"},
    ),
    "log_densities": (
        lambda: {"rows": ONE.rows(), "kernels": ONE.kernels(), "weights": np.full((4, 2), 0.25)},
        {"weights"},
    ),
    "lloyd": (lambda: {"rows": ONE.rows(), "centres": ONE.means[0]}, set()),
    "whiten": (lambda: {"matrices": np.stack([np.eye(3)] * 4), "singular": 1e-15}, set()),
    "complete": (lambda: dict(vars(GAPS)) | {"with_moments": True}, set()),
    "climb": (climb_arguments, {"ridge"}),
    "compare": (compare_arguments, set()),
}
ARRAYS = [
    (function, name)
    for function, (arguments, _) in FUNCTIONS.items()
    for name, value in arguments().items()
    if isinstance(value, np.ndarray)
]


@pytest.mark.parametrize(("function", "name"), ARRAYS)
@pytest.mark.parametrize("how", WRONG | WRONG_UNLESS_ROWS)
def test_wrong_arrays_are_refused(function: str, name: str, how: str) -> None:
    make, optional = FUNCTIONS[function]
    arguments = make()
    call(function, arguments)
    if how == "None" and name in optional:
        pytest.skip("this argument may be left out")
    if how in WRONG_UNLESS_ROWS and (
        name == "X"
        or (name in ("x", "centres", "matrices", "kernels") and how != "apart")
        or (name == "responsibilities" and how == "of one size more")
    ):
        pytest.skip("this is an array of that size")
    wrong = {**arguments, name: (WRONG | WRONG_UNLESS_ROWS)[how](arguments[name])}
    with pytest.raises(REFUSALS) as refusal:
        call(function, wrong)
    assert str(refusal.value)
    # A refusal leaves nothing behind.
    call(function, arguments)


@pytest.mark.parametrize(
    "how", [misaligned, within_records, lambda X: X.astype(">f8"), lambda X: X.astype(int)]
)
def test_rows_are_refused(how: Change) -> None:
    with pytest.raises(REFUSALS):
        compiled.Rows(how(ONE.X), None, None, ONE.scale, ONE.shift, 1e6, 1)


def test_arrays_of_other_libraries_are_taken() -> None:
    arguments = rows_arguments()
    exported = {
        name: Exporter(value) if isinstance(value, np.ndarray) else value for name, value in arguments.items()
    }
    rows = compiled.Rows(*exported.values())
    results = done(compiled.e_step(rows, PROBLEM.kernels(), Exporter(PROBLEM.means)))
    expected = done(compiled.e_step(PROBLEM.rows(), PROBLEM.kernels(), PROBLEM.means))
    for result, other in zip(results, expected, strict=True):
        assert_array_equal(result, other)


@pytest.mark.parametrize("kernels", [[-1, 0], [4, -1], [0, -2], [0, 4], [2**40, -1]])
def test_groups_of_no_kernel_are_refused(kernels: list[int]) -> None:
    arguments = compare_arguments()
    arguments["kernels"][1] = kernels
    with pytest.raises(ValueError, match="Group 1 has wrong kernels"):
        call("compare", arguments)


@pytest.mark.parametrize("code", [-1, 2, -(2**63), 2**63 - 1, 2**32])
@pytest.mark.parametrize("place", [0, 5, 11])
def test_codes_of_no_class_are_refused(code: int, place: int) -> None:
    codes = np.zeros(12, dtype=np.int64)
    codes[place] = code
    with pytest.raises(IndexError, match=rf"Row {place} has the class code {code}, but there are 2 classes"):
        call("Rows", rows_arguments() | {"codes": codes})


def test_rows_of_several_classes_need_codes() -> None:
    with pytest.raises(ValueError, match="need codes"):
        call("Rows", rows_arguments() | {"codes": None})


@pytest.mark.parametrize("n_classes", [0, -1, 1.5, None, "2"])
def test_numbers_of_classes(n_classes: Any) -> None:
    with pytest.raises(REFUSALS):
        call("Rows", rows_arguments() | {"n_classes": n_classes})


def test_empty_sizes_are_refused_where_they_have_no_meaning() -> None:
    none = np.zeros
    for shape in [(0, 4, 3), (2, 0, 3), (2, 4, 0)]:
        r, k, m = shape
        arrays = none(shape), none((r, k, m, m)), none((r, k)), none((r, k, 2)), None
        with pytest.raises(ValueError, match="must be a kernel"):
            compiled.Kernels(False, False, *arrays)
    with pytest.raises(ValueError, match="must be a kernel"):
        compiled.Kernels(False, False, none((1, 1, 1)), none((1, 1, 1)), none((1, 1)), none((1, 1, 0)), None)
    with pytest.raises(ValueError, match="feature"):
        compiled.Rows(none((5, 0)), None, None, none(0), none(0), 1.0, 1)
    with pytest.raises(ValueError, match="centre"):
        compiled.lloyd(ONE.rows(), none((0, 3)))
    with pytest.raises(ValueError, match="must have a row"):
        compiled.whiten(none((3, 0, 0)), 1e-15)
    for shape in [(0, 2, 3), (2, 0, 3)]:
        with pytest.raises(ValueError, match="must be a kernel"):
            replace(GAPS, covariances=none((shape[0], 3, 3)), means=none(shape)).completion()


def test_mixtures_may_be_none() -> None:
    (densities,) = call("log_densities", FUNCTIONS["log_densities"][0]() | {"weights": np.zeros((4, 0))})
    assert densities.shape == (12, 0)


def test_rows_and_kernels_must_be_of_the_same_sizes() -> None:
    other = make_problem("full", 4, n_rows=12, n_kernels=4, n_classes=2)
    with pytest.raises(ValueError, match="Rows have 3 features and 2 classes, kernels 4 and 2"):
        compiled.e_step(PROBLEM.rows(), other.kernels(), None)
    with pytest.raises(ValueError, match="Rows have 3 features and 1 classes, kernels 3 and 2"):
        compiled.e_step(ONE.rows(), PROBLEM.kernels(), None)
    with pytest.raises(ValueError, match="one start"):
        compiled.log_densities(ONE.rows(), make_problem("full", 3, n_starts=2).kernels(), None)
    with pytest.raises(ValueError, match="one class"):
        compiled.lloyd(PROBLEM.rows(), PROBLEM.means[0])


@pytest.mark.parametrize("flag", ["is_product", "isotropic"])
@pytest.mark.parametrize("value", ["products", None, 3, 1.0])
def test_flags_are_booleans(flag: str, value: Any) -> None:
    with pytest.raises(TypeError):
        call("Kernels", kernels_arguments() | {flag: value})


def test_products_are_of_gaussian_kernels_that_are_diagonal_or_tied() -> None:
    for structure, t in [("full", False), ("diag products", True), ("tied products", True)]:
        with pytest.raises(ValueError, match="Products"):
            replace(make_problem(structure, 3, t=t), is_product=True).kernels()


def test_products_have_moments_about_zero() -> None:
    problem = make_problem("diag products", 3)
    with pytest.raises(ValueError, match="about zero"):
        compiled.e_step(problem.rows(), problem.kernels(), problem.means)
    problem = make_problem("diag products", 3, n_starts=2)
    origins = np.zeros_like(problem.means)
    compiled.e_step(problem.rows(), problem.kernels(), origins)
    origins[-1, -1, -1] = 1e-300
    with pytest.raises(ValueError, match="about zero"):
        compiled.e_step(problem.rows(), problem.kernels(), origins)


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("wrap", [lambda codes: codes, Exporter])
def test_codes_stay_as_they_were_checked(wrap: Change) -> None:
    assert PROBLEM.codes is not None
    codes = PROBLEM.codes.copy()
    rows = compiled.Rows(*(rows_arguments() | {"codes": wrap(codes)}).values())
    codes[:] = 2**62
    results = done(compiled.e_step(rows, PROBLEM.kernels(), PROBLEM.means))
    expected = done(compiled.e_step(PROBLEM.rows(), PROBLEM.kernels(), PROBLEM.means))
    for result, other in zip(results, expected, strict=True):
        assert_array_equal(result, other)


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("value", [0, -1, 2**62])
def test_patterns_stay_as_they_were_checked(value: int) -> None:
    names = "first", "orders", "n_known"
    changed = replace(GAPS, **{name: getattr(GAPS, name).copy() for name in names})
    completion = changed.completion()
    for name in names:
        getattr(changed, name)[:] = value
    mass = np.random.default_rng(0).uniform(size=(2, 5))
    expected = GAPS.completion()
    assert_array_equal(completion.remaining(mass), expected.remaining(mass))
    for result, other in zip(completion.results, expected.results, strict=True):
        assert_array_equal(result, other)


WRONG_PATTERNS: list[tuple[str, int | tuple[int, int], int]] = [
    ("n_known", 0, -1),
    ("n_known", 0, 4),
    ("n_known", 0, 2**62),
    ("n_known", 0, -(2**63)),
    ("first", 0, -1),
    ("first", 2, -(2**63)),
    ("first", -1, 10_000),
    ("first", -1, 2**63 - 1),
    ("first", 1, 2**62),
    ("orders", (0, 0), -1),
    ("orders", (1, 2), 3),
    ("orders", (1, 2), 2**62),
    ("orders", (1, 2), -(2**63)),
]


@pytest.mark.parametrize(("name", "place", "value"), WRONG_PATTERNS)
def test_wrong_patterns_are_refused(name: str, place: int | tuple[int, int], value: int) -> None:
    changed = getattr(GAPS, name).copy()
    changed[place] = value
    with pytest.raises(ValueError, match=r"Pattern \d+ has wrong rows or features"):
        replace(GAPS, **{name: changed}).completion()


def test_features_that_come_twice_in_a_pattern_are_refused() -> None:
    orders = GAPS.orders.copy()
    orders[1] = [0, 0, 1]
    with pytest.raises(ValueError, match="Pattern 1"):
        replace(GAPS, orders=orders).completion()


@pytest.mark.parametrize("shape", [(2, 4), (1, 5), (3, 5), (2, 5, 1)])
def test_masses_of_patterns(shape: tuple[int, ...]) -> None:
    completion = GAPS.completion()
    with pytest.raises(REFUSALS):
        completion.remaining(np.zeros(shape))
    with pytest.raises(REFUSALS):
        completion.remaining(misaligned(np.zeros((2, 5))))


@pytest.mark.parametrize("name", ["sse9", "AVX2", "reference", 3])
def test_unknown_instruction_sets(name: Any) -> None:
    with pytest.raises(REFUSALS, match=r"sse9|AVX2|reference|incompatible"):
        compiled.use(name)


def test_results_beyond_all_addresses() -> None:
    """Few numbers that are there again and again: the product of the sizes must not wrap around."""
    for n_rows in (2**60, 2**61 - 1):
        X = as_strided(np.zeros(1, dtype=np.float32), (n_rows, 1), (0, 0))
        rows = compiled.Rows(X, None, None, np.ones(1), np.zeros(1), 1.0, 1)
        for n_kernels in (1, 16, 31, 32, 33):
            kernels = make_problem("diag", 1, n_kernels=n_kernels).kernels()
            with pytest.raises(MemoryError):
                compiled.log_densities(rows, kernels, None)
            with pytest.raises(MemoryError):
                compiled.lloyd(rows, np.zeros((n_kernels, 1)))


# ---------------------------------------------------------------- any array


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    """Draw rows of any shape, strides, alignment, byte order and number."""
    n, m = draw(st.integers(0, 70)), draw(st.integers(0, 20))
    dtype = np.dtype(draw(st.sampled_from(["f8", "f8", "f8", "f4", "f4", ">f8", "f2", "i8", "O"])))
    offset = draw(st.sampled_from([0, 0, 0, 4, 8, 1]))
    steps = [draw(st.integers(-3, 3)) for _ in range(2)]
    # From the lowest to the highest address, whatever the signs of the steps are.
    reach = [abs(step) * max(0, size - 1) for step, size in zip(steps, (n, m), strict=True)]
    if draw(st.booleans()):
        steps[0] *= max(1, m)
        reach[0] *= max(1, m)
    numbers = np.random.default_rng(draw(st.integers(0, 9))).normal(size=sum(reach) + 1).astype(dtype)
    if offset and not dtype.hasobject:
        memory = np.zeros(numbers.nbytes + offset, dtype=np.uint8)
        memory[offset:] = np.frombuffer(numbers.tobytes(), dtype=np.uint8)
        numbers = memory[offset:].view(dtype)
    first = sum(distance for distance, step in zip(reach, steps, strict=True) if step < 0)
    strides = [step * dtype.itemsize for step in steps]
    array = as_strided(numbers[first:], (n, m), strides)
    if draw(st.booleans()):
        array.flags.writeable = False
    return array


@pytest.mark.usefixtures("instruction_set")
@settings(max_examples=150)
@examples(
    X=arrays(), structure=st.sampled_from(["full", "diag", "tied products"]), n_classes=st.integers(1, 3)
)
def test_any_rows_are_read_right_or_refused(X: Array, structure: str, n_classes: int) -> None:
    n_rows, n_features = X.shape
    like = make_problem(structure, max(1, n_features), n_rows=n_rows, n_classes=n_classes, weighted=True)
    problem = replace(like, X=X)
    origins = np.zeros_like(problem.means)
    try:
        rows = problem.rows()
    except REFUSALS:
        assert n_features == 0 or X.dtype not in (np.float64, np.float32) or not X.flags.aligned
        return
    expected = e_step(problem, origins)
    for i, result in enumerate(done(compiled.e_step(rows, problem.kernels(), origins))[:3]):
        assert_close(result, expected[i], 1e-10)


@pytest.mark.usefixtures("instruction_set")
@settings(max_examples=200)
@examples(
    data=st.data(),
    sizes=st.fixed_dictionaries({name: st.integers(0, 4) for name in "rkmc"}),
    is_product=st.booleans(),
)
def test_any_shapes_are_right_or_refused(
    data: st.DataObject, sizes: dict[str, int], is_product: bool
) -> None:
    """Shapes that mostly fit, of which some sizes are changed."""

    def some(shape: str, *, lead: tuple[int, ...] = ()) -> Array:
        lengths = [sizes[letter] if letter in sizes else int(letter) for letter in shape]
        if data.draw(st.integers(0, 19)) == 0 and lengths:
            lengths[data.draw(st.integers(0, len(lengths) - 1))] = data.draw(st.integers(0, 6))
        return np.ones((*lead, *lengths))

    whiteners = data.draw(st.sampled_from(["rkmm", "r1mm", "rkm", "rm", "m"]))
    means, weights = some("rkm"), some("rkc")
    try:
        kernels = compiled.Kernels(
            is_product,
            data.draw(st.booleans()),
            means,
            some(whiteners),
            some("rk"),
            weights,
            some("rk") if data.draw(st.booleans()) else None,
        )
        n = data.draw(st.integers(0, 9))
        codes = np.zeros(data.draw(st.sampled_from([n, n, n, n + 1])), dtype=np.int64)
        rows = compiled.Rows(some("m", lead=(n,)), codes, None, some("m"), some("m"), 1e6, max(1, sizes["c"]))
        origins = None if is_product else some("rkm")
        likelihood, mass, first, *_ = done(compiled.e_step(rows, kernels, origins))
    except REFUSALS:
        return
    # What was changed may fit all the same.
    (r, k, m), c = means.shape, weights.shape[-1]
    assert (likelihood.shape, mass.shape, first.shape) == ((r, c), (r, k, c), (r, k, m))
    if origins is not None:
        np.testing.assert_allclose(mass.sum(axis=(1, 2)), n)
