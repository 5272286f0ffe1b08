"""Random expressions of all types, and the reference interpreter's values of them.

Index integers (``int32``, ``int64``) are kept small, since their arithmetic is taken to be free of
overflow; narrow and unsigned integers wrap, and floats meet infinities, NaN and negative zero.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import ir
from tilewright.ir import Expr, Var, const, dtypes
from tilewright.tir import BufferLoad, BufferStore, For, LetStmt, PrimFunc, SeqStmt, decl_buffer
from tilewright.tir.interpreter import compile_function
from tilewright.tir.interpreter.values import numpy_dtype

POINTS = 24
INDEX = ("int32", "int64")
WRAPPING = ("int8", "int16", "uint8", "uint16", "uint32", "uint64")
INTEGERS = (*INDEX, *WRAPPING)
FLOATS = ("float16", "float32", "float64")
SCALARS = (*INTEGERS, *FLOATS, "bool")
LANES = 4
VECTORS = tuple(f"{name}x{LANES}" for name in ("int32", "int64", "int8", "float32", "bool"))
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.1, 2.5, -3.75, 1e-3, 3e4, math.inf, -math.inf, math.nan)
COMPARISONS = (ir.EQ, ir.NE, ir.LT, ir.LE, ir.GT, ir.GE)


class TypedMaker:
    """Makes expressions of a given type over two variables of each scalar type."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.variables = {
            dtype: [Var(f"{dtype}_{name}", dtype) for name in "ab"] for dtype in SCALARS
        }

    def expr(self, dtype: str, depth: int) -> Expr:
        """A random expression made of bare nodes: nothing is folded on the way."""
        if dtypes.lanes_of(dtype) > 1:
            return self._vector(dtype, depth)
        pick = self.random
        if depth == 0 or pick.random() < 0.08:
            return self._leaf(dtype)
        roll = pick.random()
        if roll < 0.12:
            return self._choice(dtype, depth - 1)
        if roll < 0.24:
            return self._converted(dtype, depth - 1)
        if roll < 0.27:
            lanes = self.expr(pick.choice(VECTORS), 0)
            if dtypes.element_of(lanes.dtype) == dtype:
                return ir.Shuffle((lanes,), (pick.randrange(LANES),))
        if roll < 0.31:
            var = Var("let", dtype)
            body = self._operation(dtype, var, self.expr(dtype, depth - 1))
            return ir.Let(var, self.expr(dtype, depth - 1), body)
        if dtype == "bool":
            return self._truth(depth - 1)
        return self._operation(dtype, self.expr(dtype, depth - 1), self._second(dtype, depth - 1))

    def _second(self, dtype: str, depth: int) -> Expr | None:
        return self.expr(dtype, depth) if self.random.random() < 0.6 else None

    def constant(self, dtype: str) -> Expr:
        """A random constant; now and then at the end of the type's range."""
        pick = self.random
        if dtype == "bool":
            return const(pick.random() < 0.5)
        if dtypes.is_float(dtype):
            return const(pick.choice(SPECIAL), dtype)
        low, high = dtypes.integer_limits(dtype)
        if dtype in WRAPPING and pick.random() < 0.3:
            return const(pick.choice([low, high, high - 1, low + 1, high // 2]), dtype)
        return const(pick.randint(max(low, -9), 12), dtype)

    def _leaf(self, dtype: str) -> Expr:
        if self.random.random() < 0.3:
            return self.constant(dtype)
        return self.random.choice(self.variables[dtype])

    def _choice(self, dtype: str, depth: int) -> Expr:
        parts = (self.expr("bool", depth), self.expr(dtype, depth), self.expr(dtype, depth))
        if self.random.random() < 0.5:
            return ir.Select(*parts)
        return ir.Call.of_fields(ir.op.OPS.get("if_then_else"), parts, dtype)

    def _converted(self, dtype: str, depth: int) -> Expr:
        # A cast of a float to its own type would show the interpreter's double precision.
        source = self.random.choice([name for name in SCALARS if name != dtype])
        value = self.expr(source, depth)
        if dtypes.is_integer(dtype) and dtypes.is_float(source):
            # Only what fits: elsewhere C says nothing.
            value = ir.Min(ir.Max(value, const(0.0, source)), const(100.0, source))
        elif dtype in INDEX and source in ("uint32", "uint64"):
            value = ir.FloorMod(value, const(37, source))
        return ir.Cast(dtype, value)

    def _truth(self, depth: int) -> Expr:
        pick = self.random
        if pick.random() < 0.45:
            a, b = self.expr("bool", depth), self.expr("bool", depth)
            return pick.choice([ir.And, ir.Or, ir.EQ, ir.NE, lambda x, _: ir.Not(x)])(a, b)
        dtype = pick.choice((*INTEGERS, *FLOATS))
        return pick.choice(COMPARISONS)(self.expr(dtype, depth), self.expr(dtype, depth))

    def _operation(self, dtype: str, a: Expr, b: Expr | None) -> Expr:
        pick = self.random
        if dtype == "bool":
            return pick.choice([ir.And, ir.Or, ir.EQ, ir.NE])(a, a if b is None else b)
        if b is None:
            b = pick.choice([a, self.constant(dtype), self.constant(dtype), self._leaf(dtype)])
        if dtypes.is_float(dtype):
            return pick.choice([ir.Add, ir.Sub, ir.Mul, ir.Div, ir.Min, ir.Max])(a, b)
        kind = pick.choice("add sub mul div mod min max call".split())
        if kind in ("div", "mod"):
            return (ir.FloorDiv if kind == "div" else ir.FloorMod)(a, self.divisor(dtype))
        if kind == "mul":
            # Products of index variables could overflow.
            factor = b if dtype in WRAPPING else const(pick.choice([-3, -1, 0, 1, 2, 4]), dtype)
            return ir.Mul(*pick.sample([a, factor], 2))
        if kind == "call":
            return self._call(dtype, a)
        node = {"add": ir.Add, "sub": ir.Sub, "min": ir.Min, "max": ir.Max}[kind]
        return node(a, b)  # type: ignore[no-any-return]

    def divisor(self, dtype: str) -> Expr:
        """A constant that is neither zero nor, where that overflows, minus one."""
        least = 1 if dtypes.integer_limits(dtype)[0] == 0 else -6
        options = [value for value in range(least, 9) if value not in (0, -1)]
        return const(self.random.choice(options + ([-1] if dtype in INDEX else [])), dtype)

    def _call(self, dtype: str, a: Expr) -> Expr:
        pick = self.random
        names = "truncdiv truncmod bitwise_and shift_right shift_left abs popcount"
        name = pick.choice(names.split())
        if name.startswith("trunc"):
            return ir.call(name, a, self.divisor(dtype))
        if name in ("abs", "popcount"):
            return ir.call(name, a)
        if name == "bitwise_and":
            return ir.call(name, *pick.sample([a, const(pick.choice([0, 1, 3, 5, 7]), dtype)], 2))
        return ir.call(name, a, const(pick.randrange(4), dtype))

    def _vector(self, dtype: str, depth: int) -> Expr:
        pick, element = self.random, dtypes.element_of(dtype)
        if depth == 0 or pick.random() < 0.15:
            if element in INDEX and pick.random() < 0.6:
                return ir.Ramp(self.expr(element, 1), self.expr(element, 1), LANES)
            return ir.Broadcast(self.expr(element, 1), LANES)
        a, b = self._vector(dtype, depth - 1), self._vector(dtype, depth - 1)
        roll = pick.random()
        if roll < 0.15:
            return ir.Select(self._vector(f"boolx{LANES}", depth - 1), a, b)
        if roll < 0.3:
            return ir.Shuffle((a, b), tuple(pick.randrange(2 * LANES) for _ in range(LANES)))
        if element == "bool":
            kinds = [ir.And, ir.Or, lambda x, _: ir.Not(x)]
            if roll < 0.6:
                of = pick.choice(VECTORS[:-1])
                a, b, kinds = self._vector(of, depth - 1), self._vector(of, depth - 1), COMPARISONS
            return pick.choice(kinds)(a, b)
        if element == "float32":
            return pick.choice([ir.Add, ir.Sub, ir.Mul, ir.Div, ir.Min, ir.Max])(a, b)
        if roll < 0.45:
            by = ir.Broadcast(self.divisor(element), LANES)
            return pick.choice([ir.FloorDiv, ir.FloorMod])(a, by)
        if roll < 0.6:
            factor = const(pick.choice([-3, -1, 0, 1, 2]), element)
            return ir.Mul(*pick.sample([a, ir.Broadcast(factor, LANES)], 2))
        return pick.choice([ir.Add, ir.Sub, ir.Min, ir.Max])(a, b)

    def inputs(self) -> list[np.ndarray[Any, Any]]:
        """Values for every variable, in the order of ``variables``."""
        pick = self.random
        made = []
        for dtype, variables in self.variables.items():
            for _ in variables:
                points: list[Any] = []
                for _ in range(POINTS):
                    if dtypes.is_float(dtype) or dtype == "bool":
                        pool = SPECIAL if dtype != "bool" else (False, True)
                        points.append(pick.choice(pool))
                    elif dtype in INDEX or pick.random() < 0.5:
                        points.append(pick.randint(0 if dtype[0] == "u" else -20, 20))
                    else:
                        low, high = dtypes.integer_limits(dtype)
                        points.append(pick.choice([low, high, pick.randint(low, high)]))
                made.append(np.array(points, dtype=numpy_dtype(dtype)))
        return made


def values(maker: TypedMaker, exprs: Sequence[Expr]) -> list[np.ndarray[Any, Any]]:
    """What the interpreter stores for expressions of one type at random points."""
    element, lanes = dtypes.split_dtype(exprs[0].dtype)
    flat = [var for variables in maker.variables.values() for var in variables]
    index = Var("point")
    sources = [decl_buffer((POINTS,), var.dtype, f"in_{var.name}") for var in flat]
    results = [decl_buffer((POINTS * lanes,), element, f"out{n}") for n in range(len(exprs))]
    place = index if lanes == 1 else ir.Ramp(index * lanes, const(1), lanes)
    body: Any = SeqStmt(
        tuple(BufferStore(out, expr, (place,)) for out, expr in zip(results, exprs))
    )
    for var, source in zip(flat, sources):
        body = LetStmt(var, BufferLoad(source, (index,)), body)
    body = For(index, const(0), const(POINTS), "serial", body)
    buffers = {Var(f"p{n}", "handle"): buffer for n, buffer in enumerate((*sources, *results))}
    arrays = [np.zeros(POINTS * lanes, numpy_dtype(element)) for _ in exprs]
    with np.errstate(all="ignore"):
        compile_function(PrimFunc(buffers, body, buffer_map=buffers))(*maker.inputs(), *arrays)
    return arrays


def same_values(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Equal element by element: every NaN is the same, zeros differ by their sign."""
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    signs = (np.signbit(a) == np.signbit(b)) | np.isnan(a)
    return bool(np.array_equal(a, b, equal_nan=True) and signs.all())


_BUILDERS: dict[type, Any] = {
    ir.Add: ir.add,
    ir.Sub: ir.sub,
    ir.Mul: ir.mul,
    ir.Div: ir.div,
    ir.FloorDiv: ir.floordiv,
    ir.FloorMod: ir.floormod,
    ir.Min: ir.minimum,
    ir.Max: ir.maximum,
    ir.And: ir.and_,
    ir.Or: ir.or_,
    ir.Not: ir.not_,
    ir.Select: ir.select,
    **{kind: (lambda a, b, kind=kind: ir.compare(kind, a, b)) for kind in COMPARISONS},
}


def folded(expr: Any) -> Any:
    """The same expression made by the folding constructors."""
    made = expr.map_children(folded)
    if type(made) is ir.Cast:
        return ir.cast(made.value, made.dtype)
    builder = _BUILDERS.get(type(made))
    return made if builder is None else builder(*made.child_nodes())
