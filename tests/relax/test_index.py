"""Reading and writing where indices say, against NumPy: also negative, outside, met twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.relax.helpers import graph, graph_of, random, symbol, tensor
from tilewright import dlight, driver, relax, te, topi
from tilewright.ir import IRModule
from tilewright.relax import interpreter, op
from tilewright.support.errors import VerifyError
from tilewright.target import Target

RNG = np.random.default_rng(0)

COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "min": np.minimum,
    "max": np.maximum,
}


def clamped(index: np.ndarray, extent: int) -> np.ndarray:
    return np.clip(np.where(index < 0, index + extent, index), 0, extent - 1)


def written(
    data: np.ndarray, places: list[tuple[Any, ...]], values: Any, reduction: str = "update"
) -> np.ndarray:
    """Update ``data`` at one place after the other; those outside are left out."""
    made, counts = data.copy(), np.ones(data.shape, "int64")
    wide = made.astype("float64") if reduction == "mean" else made
    for place, value in zip(places, values):
        at = tuple(p + n if p < 0 else p for p, n in zip(place, data.shape))
        if not all(0 <= p < n for p, n in zip(at, data.shape)):
            continue
        counts[at] += 1
        wide[at] = COMBINE["add" if reduction == "mean" else reduction](wide[at], value)
    if reduction == "mean":
        mean = wide / counts
        return (np.floor(mean) if data.dtype.kind in "iu" else mean).astype(data.dtype)
    return made


def scattered(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int, reduction: str
) -> np.ndarray:
    where = list(np.ndindex(indices.shape))
    places = [(*i[:axis], int(indices[i]), *i[axis + 1 :]) for i in where]
    return written(data, places, [updates[i] for i in where], reduction)


def scattered_nd(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, reduction: str
) -> np.ndarray:
    depth = indices.shape[-1]
    where = [
        (i, rest) for i in np.ndindex(indices.shape[:-1]) for rest in np.ndindex(data.shape[depth:])
    ]
    places = [(*map(int, indices[i]), *rest) for i, rest in where]
    return written(data, places, [updates[(*i, *rest)] for i, rest in where], reduction)


def put(
    data: np.ndarray, indices: list[np.ndarray], values: np.ndarray, accumulate: bool, axis: int
) -> np.ndarray:
    tables = np.broadcast_arrays(*indices)
    common, last = tables[0].shape, axis + len(tables)
    shape = (*data.shape[:axis], *common, *data.shape[last:])
    values = np.broadcast_to(values, shape)
    middle = axis + len(common)
    where = list(np.ndindex(shape))
    places = [(*i[:axis], *(int(t[i[axis:middle]]) for t in tables), *i[middle:]) for i in where]
    return written(data, places, [values[i] for i in where], "add" if accumulate else "update")


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Small whole numbers: sums and products of a few are exact."""
    made = RNG.integers(0, 2, shape) if dtype == "bool" else RNG.integers(-3, 4, shape)
    return made.astype(dtype)


def check(body: Callable[..., Any], arrays: list[np.ndarray], expected: np.ndarray) -> None:
    mod = graph_of(body, *arrays)
    for found in (relax.build(mod)(*arrays), interpreter.run(mod, *arrays)):
        found = np.asarray(found)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("reduction", [*COMBINE, "mean"])
def test_scatter_elements(reduction: str) -> None:
    for axis, shape, count in (
        (0, (4, 5), (9, 5)),
        (1, (4, 5), (3, 7)),
        (-2, (2, 3, 4), (2, 5, 3)),
    ):
        x, i = numbers(*shape), RNG.integers(-shape[axis] - 1, shape[axis] + 1, count)
        u = numbers(*(extent + n for n, extent in enumerate(count)))
        body = lambda x, i, u, axis=axis: op.scatter_elements(x, i, u, axis, reduction)
        check(body, [x, i, u], scattered(x, i, u, axis % x.ndim, reduction))


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float16", "uint8"])
def test_scatter_dtypes(dtype: str) -> None:
    x, i, u = (
        numbers(4, dtype=dtype),
        np.array([-1, 2, 2, 9, 3, 0], "int32"),
        numbers(6, dtype=dtype),
    )
    for reduction in (*COMBINE, *(() if dtype == "bool" else ("mean",))):
        body = lambda x, i, u, how=reduction: op.scatter_elements(x, i, u, 0, how)
        with np.errstate(over="ignore"):
            expected = scattered(x, i, u, 0, reduction)
        check(body, [x, i, u], expected)


@pytest.mark.parametrize("reduction", ["update", "add", "mean"])
def test_scatter_nd(reduction: str) -> None:
    for depth, outer in ((1, (6,)), (2, (2, 5)), (3, (7,)), (2, ()), (0, (3,))):
        x, i = numbers(3, 4, 5), RNG.integers(-4, 5, (*outer, depth))
        u = numbers(*outer, *x.shape[depth:])
        body = lambda x, i, u: op.scatter_nd(x, i, u, reduction)
        check(body, [x, i, u], scattered_nd(x, i, u, reduction))


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put(accumulate: bool) -> None:
    x = numbers(3, 4, 5)
    i, j, one = RNG.integers(-4, 5, (2, 1)), RNG.integers(-5, 6, 3), np.array(-1)
    for tables, axis, shape in (
        ([i, j], 0, (2, 3, 5)), ([j], 1, (3, 1, 5)), ([i, j], 1, ()), ([j, j, j], 0, (3,)),
        ([one], 0, (5,)), ([one, one, one], 0, ()), ([j], 2, (3, 4, 3)),
    ):  # fmt: skip
        v = numbers(*shape)
        body = lambda x, v, *t, a=axis: op.index_put(x, t, v, accumulate, a)
        check(body, [x, v, *tables], put(x, tables, v, accumulate, axis))


def test_the_last_of_equal_places_stays() -> None:
    x, i = np.zeros((2, 40), "float32"), np.zeros((1000, 40), "int64")
    u = np.arange(40_000, dtype="float32").reshape(1000, 40)
    check(lambda x, i, u: op.scatter_elements(x, i, u), [x, i, u], np.stack([u[-1], x[0]]))


def test_index_tensor() -> None:
    x = random(3, 4, 5)
    i, j, one = RNG.integers(-5, 6, (2, 1)), RNG.integers(-6, 7, 3), np.array(-9)
    a, b = clamped(i, 3), clamped(j, 4)
    check(lambda x, i, j: op.index_tensor(x, [i, j]), [x, i, j], x[a, b])
    check(lambda x, j: op.index_tensor(x, [j], 1), [x, j], x[:, b])
    check(lambda x, j: op.index_tensor(x, [j, j], -2), [x, j], x[:, b, clamped(j, 5)])
    check(lambda x, j: op.index_tensor(x, [j]), [x, one], x[0])


def test_gather_nd() -> None:
    x = random(2, 3, 4)
    i = RNG.integers(-4, 5, (2, 5, 2))
    a, b = clamped(i[..., 0], 2), clamped(i[..., 1], 3)
    check(lambda x, i: op.gather_nd(x, i), [x, i], x[a, b])
    a, b = clamped(i[..., 0], 3), clamped(i[..., 1], 4)
    check(
        lambda x, i: op.gather_nd(x, i, 1), [x, i],
        np.stack([x[n][a[n], b[n]] for n in range(2)]),
    )  # fmt: skip
    check(lambda x, i: op.gather_nd(x, i), [x, i[0, :, :0]], np.stack([x] * 5))


def test_indices_at_the_ends_of_their_dtype() -> None:
    x, far = random(3), np.array([2**63 - 1, -(2**63), 2**31, -1], "int64")
    check(lambda x, i: op.index_tensor(x, [i]), [x, far], x[[2, 0, 2, 2]])
    u = random(4)
    check(lambda x, i, u: op.scatter_elements(x, i, u), [x, far, u], np.append(x[:2], u[3]))
    small = np.array([200, 2], "uint8")
    check(lambda x, i, u: op.index_put(x, [i], u), [x, small, u[:2]], np.append(x[:2], u[1]))


def test_slice_scatter() -> None:
    x = random(4, 9)
    for start, end, step in (
        (2, 5, 1),
        (-3, 2**40, 1),
        (0, 9, 1),
        (1, 8, 3),
        (-100, -1, 2),
        (5, 2, 1),
    ):
        expected = x.copy()
        u = random(4, len(range(*slice(start, end, step).indices(9))), seed=1)
        expected[:, start:end:step] = u
        body = lambda x, u, s=(start, end, step): op.slice_scatter(x, u, *s, axis=1)
        check(body, [x, u], expected)


def test_empty() -> None:
    none, index = np.zeros((0, 3), "float32"), np.zeros((0, 3), "int64")
    x = random(2, 3)
    check(lambda x, i, u: op.scatter_elements(x, i, u), [x, index, none], x)
    check(lambda x, i, u: op.scatter_elements(x, i, u), [none, index + 1, none], none)
    check(lambda x, i, u: op.scatter_elements(x, i, u), [none, np.ones((2, 3), int), x], none)
    check(lambda x, i, u: op.index_put(x, [i], u), [x, index[:, 0], none], x)
    check(lambda x, i: op.index_tensor(x, [i]), [none, index[:, 0]], none)
    check(lambda x, i: op.gather_nd(x, i), [x, np.zeros((0, 2), int)], none[:, 0])
    check(lambda x, u: op.slice_scatter(x, u, 1, 1), [x, none], x)


def test_symbolic() -> None:
    n, m, k = symbol("n"), symbol("m"), symbol("k")

    def body(x: Any, i: Any, u: Any) -> Any:
        made = op.index_put(x, [i], u, True)
        made = op.slice_scatter(made, op.index_tensor(u, [op.argsort(i)]), 0, k)
        return op.scatter_nd(made, op.reshape(i, (k, 1)), op.gather_nd(u, op.reshape(i, (-1, 1))))

    mod = graph(body, tensor((n, m)), tensor((k,), "int64"), tensor((k, m)))
    run = relax.build(mod)
    for rows, columns, count in ((9, 5, 4), (3, 40, 3), (2, 3, 0), (5, 0, 2)):
        x, i = numbers(rows, columns), RNG.integers(-rows - 1, rows + 1, count)
        u = numbers(count, columns)
        expected = put(x, [i], u, True, 0)
        expected[:count] = u[np.argsort(i)]
        chosen = u[clamped(i, count)] if count else u
        expected = scattered_nd(expected, i[:, None], chosen, "update")
        np.testing.assert_array_equal(np.asarray(run(x, i, u)), expected)
        np.testing.assert_array_equal(interpreter.run(mod, x, i, u), expected)


def test_updates_are_shared_among_threads() -> None:
    """Columns, or rows, are; vectors update contiguous ones."""
    target = Target("native").with_options(num_cores=2)
    cases = [((50, 768), (4000, 1), (4000, 768)), ((1000, 64), (1000, 500), (1000, 500))]
    for number, shapes in enumerate(cases):
        data, updates = (te.placeholder(shapes[n], "float32", f"x{n}") for n in (0, 2))
        indices = te.placeholder(shapes[1], "int64", "x1")
        made = (
            topi.scatter_nd(data, indices, updates, "add", index_axis=-1) if number == 0
            else topi.scatter_elements(data, indices, updates, 1, "add")
        )  # fmt: skip
        func = te.create_prim_func([data, indices, updates, made])
        mod = dlight.default_schedule(target)(IRModule({"main": func}))
        text = mod["main"].script()
        last = text[text.index('_data"') :]  # from within the first loops
        assert "T.parallel" in last and ("T.vectorized" in last) == (number == 0)
        x, u = numbers(*shapes[0]), numbers(*shapes[2])
        i = RNG.integers(-shapes[0][number], shapes[0][number], shapes[1])
        out, expected = np.zeros_like(x), x.copy()
        driver.compile(mod, target)["main"](x, i, u, out)
        where = (i[:, 0],) if number == 0 else (np.arange(1000)[:, None], i)
        np.add.at(expected, where, u)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x, i: op.index_put(x, [x], x), "indices must be integers, got float32"),
        (lambda x, i: op.index_put(x, [i, i, i], x), "may be 1 to 2 index tensors, got 3"),
        (lambda x, i: op.index_put(x, [i], op.astype(x, "int32")), "float32 and int32"),
        (lambda x, i: op.index_put(x, [i], op.reshape(x, (1, 1, 1, 6))), "4 dimensions"),
        (lambda x, i: op.index_tensor(x, [i], 2), "axis 2 is out of range"),
        (lambda x, i: op.gather_nd(x, op.reshape(i, (1, 4))), "a number up to 2"),
        (lambda x, i: op.gather_nd(x, i, 2), "a number up to 0"),
        (lambda x, i: op.scatter_elements(x, i, x, reduction="sum"), "one of update, add"),
        (
            lambda x, i: op.scatter_elements(x, i, op.index_tensor(x, [i])),
            "need one number of dimensions, they have 2, 2 and 3",
        ),
        (lambda x, i: op.scatter_elements(x, op.concat([i, i]), x), "than updates along axis 0: 4"),
        (lambda x, i: op.scatter_nd(x, i, x), "must have 1 dimensions, they have 2"),
        (lambda x, i: op.slice_scatter(x, x, 0, 2, 0), "at least 1, got 0"),
        (lambda x, i: op.slice_scatter(x, x, 0, 1), "extent of axis 0 of src: 2 against 1"),
        (
            lambda x, i: op.scatter_elements(
                op.less(x, x), op.argsort(x), op.less(x, x), 0, "mean"
            ),
            "no mean of bools",
        ),
    ],
)
def test_refusals(body: Callable[..., Any], message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        graph(body, tensor((2, 3)), tensor((2, 2), "int64"))
