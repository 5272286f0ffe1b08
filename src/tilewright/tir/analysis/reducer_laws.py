"""Trying out what a reducer claims: that it is associative and commutative, its identity neutral.

Schedules regroup and reorder what a reducer combines, so a reducer that breaks these laws would
give other results without any error. The laws are tried on small values, which make ties and
special cases likely, by the reference interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.ir import TRUE, Var, const_value, dtypes
from tilewright.ir import const as make_const
from tilewright.support.errors import VerifyError
from tilewright.tir.buffer import Buffer, BufferLoad, decl_buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.interpreter import run
from tilewright.tir.reducer import CommReducer
from tilewright.tir.rewrite import index_var
from tilewright.tir.stmt import SERIAL, Block, BlockRealize, BufferStore, For, seq

_TRIPLES = 400
Tuples = list[np.ndarray]


@cache
def check_reducer(reducer: CommReducer) -> tuple[str, ...]:
    """Return the laws that a reducer breaks, each as a sentence with an example; none is good."""
    samples = _samples(reducer)
    rng = np.random.default_rng(0)
    count = len(samples[0])
    pick = [rng.integers(0, count, _TRIPLES) for _ in range(3)]
    x, y, z = ([column[chosen] for column in samples] for chosen in pick)
    combine = _combiner(reducer)
    neutral = [column[:1].repeat(count) for column in samples]
    broken = []
    for law, left, right, shown in (
        ("identity is not neutral", combine(neutral, samples), samples, (samples,)),
        ("identity is not neutral", combine(samples, neutral), samples, (samples,)),
        ("combination is not commutative", combine(x, y), combine(y, x), (x, y)),
        (
            "combination is not associative",
            combine(combine(x, y), z),
            combine(x, combine(y, z)),
            (x, y, z),
        ),
    ):
        place = _first_difference(left, right)
        if place is not None:
            values = ", ".join(_shown(item, place) for item in shown)
            broken.append(
                f"its {law}: for {values} the two sides are {_shown(left, place)} and "
                f"{_shown(right, place)}"
            )
    return tuple(broken)


def verify_reducer(name: str, reducer: CommReducer) -> None:
    """Raise ``VerifyError`` if a reducer breaks a law."""
    broken = check_reducer(reducer)
    if broken:
        raise VerifyError(f"reducer {name!r}: " + "; ".join(broken))


def _samples(reducer: CommReducer) -> Tuples:
    """Small values of each element in all combinations; the identity comes first."""
    neutral = []
    for expr in reducer.identity:
        value = const_value(expr)
        if value is None:
            raise VerifyError(f"the identity {expr!r} of a reducer must be a constant")
        neutral.append(value)
    # Powers of two and their small sums are exact in every float dtype.
    small: dict[str, list[Any]] = {
        "float": [-2.0, -1.0, 0.0, 1.0, 2.0],
        "bfloat": [-2.0, -1.0, 0.0, 1.0, 2.0],
        "int": [-3, -2, -1, 0, 1, 2],
        "uint": [0, 1, 2, 3],
        "bool": [0, 1],
    }
    choices: list[list[Any]] = []
    for var in reducer.lhs:
        kind = "bool" if dtypes.is_bool(var.dtype) else dtypes.kind_of(var.dtype)
        choices.append(small.get(kind, small["float"]))
    rows = list(product(*choices))
    if len(rows) > 4 * _TRIPLES:
        order = np.random.default_rng(1).permutation(len(rows))[: 4 * _TRIPLES]
        rows = [rows[number] for number in order]
    rows.insert(0, tuple(neutral))
    return [
        np.array([row[place] for row in rows]).astype(_numpy(var.dtype))
        for place, var in enumerate(reducer.lhs)
    ]


def _numpy(dtype: str) -> Any:
    return getattr(ml_dtypes, dtype, dtype)


def _combiner(reducer: CommReducer) -> Callable[[Tuples, Tuples], Tuples]:
    """Return the combination as a function of arrays."""
    made: dict[int, PrimFunc] = {}

    def combine(x: Tuples, y: Tuples) -> Tuples:
        count = len(x[0])
        if count not in made:
            made[count] = _combining_func(reducer, count)
        out = [np.empty(count, column.dtype) for column in x]
        run(made[count], *x, *y, *out)
        return out

    return combine


def _combining_func(reducer: CommReducer, count: int) -> PrimFunc:
    def declared(prefix: str) -> list[Buffer]:
        return [
            decl_buffer((count,), var.dtype, f"{prefix}{number}")
            for number, var in enumerate(reducer.lhs)
        ]

    xs, ys, outs = declared("x"), declared("y"), declared("out")
    i = index_var("i")
    new = reducer.combine([BufferLoad(b, (i,)) for b in xs], [BufferLoad(b, (i,)) for b in ys])
    stores = seq(*(BufferStore(buffer, value, (i,)) for buffer, value in zip(outs, new)))
    body = For(i, make_const(0), make_const(count), SERIAL, stores)
    root = BlockRealize((), TRUE, Block((), (), (), "root", body))
    handles = {Var(f"{buffer.name}_handle", "handle"): buffer for buffer in (*xs, *ys, *outs)}
    return PrimFunc(handles, root, buffer_map=handles)


def _first_difference(left: Tuples, right: Tuples) -> int | None:
    for a, b in zip(left, right):
        if dtypes.is_float(str(a.dtype)):
            wide = 1e-5 if a.dtype.itemsize > 2 else 5e-2
            same = np.isclose(
                a.astype("float64"), b.astype("float64"), rtol=wide, atol=wide, equal_nan=True
            )
        else:
            same = a == b
        if not same.all():
            return int(np.argmin(same))
    return None


def _shown(values: Tuples, place: int) -> str:
    text = ", ".join(str(column[place]) for column in values)
    return f"({text})" if len(values) > 1 else text
