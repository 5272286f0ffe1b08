"""Minima and maxima of several floats: whether one of them is NaN is asked once, at the end.

x86 has instructions for the lesser and the greater of two numbers, which drop NaN, so each that is
to keep it takes a test and a blend besides. Trees of them, as in the test of a ray against a box,
do without: NaN is the result of all if it is among the operands, and one test takes two of these.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.codegen.llvm.emits import Emits
from tilewright.codegen.llvm.types import constant_text, register_type
from tilewright.ir import Broadcast, Expr, FloatImm, Max, Min, dtypes, expr_equal

# Results whose tests take clearly more than those of the operands, and the nodes of trees at most.
_FEWEST, _MOST = 5, 64
# Operands that 16 registers hold, with what is made of them.
_IN_REGISTERS = 7


def is_number(*exprs: Expr) -> bool:
    """Whether any of the expressions is a floating-point constant other than NaN."""
    values = [expr.value if isinstance(expr, Broadcast) else expr for expr in exprs]
    return any(isinstance(value, FloatImm) and value.value == value.value for value in values)


def operands_to_test(node: Min | Max, predicates: bool) -> list[Expr] | None:
    """The different operands of a tree that may be NaN; ``None`` where that isn't worth it.

    A single operand beside others may be a running extremum, and what it waits for is best short.
    ``predicates``: masks have registers of their own, and vectors many.
    An empty list stands for too many operands.
    """
    if dtypes.element_of(node.dtype) not in ("float32", "float64"):
        return None
    if not all(isinstance(side, (Min, Max)) or is_number(side) for side in (node.a, node.b)):
        return None
    found: list[Expr] = []
    stack: list[Expr] = [node]
    seen: set[int] = set()
    tests = 0
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, (Min, Max)):
            stack += (item.b, item.a)
            tests += not is_number(item.a, item.b)
        elif not is_number(item) and not any(expr_equal(item, other) for other in found):
            found.append(item)
        if len(seen) > _MOST or len(found) > (_MOST if predicates else _IN_REGISTERS):
            return []
    return found if tests >= _FEWEST else None


def extremum_of_numbers(
    emitter: Emits,
    node: Min | Max,
    operands: list[Expr],
    of_two: Callable[[str, str, str, str], str],
    predicates: bool,
) -> str:
    """Emit a tree whose instructions drop NaN, and NaN in its place if an operand is.

    ``of_two`` emits one of them, by test, dtype and operands, of which the second is taken if they
    compare equal, or don't compare. ``predicates``: masks have registers of their own.
    """
    values = [emitter.visit(item) for item in operands]
    done: dict[int, str] = {}

    def plain(item: Expr) -> str:
        if id(item) not in done:
            done[id(item)] = once(item)
        return done[id(item)]

    def once(item: Expr) -> str:
        if not isinstance(item, (Min, Max)):
            place = next((n for n, x in enumerate(operands) if expr_equal(x, item)), None)
            return emitter.visit(item) if place is None else values[place]
        a, b = plain(item.a), plain(item.b)
        # The sign of zero is that which single ones have.
        first, second = (a, b) if is_number(item.a) and not is_number(item.b) else (b, a)
        return of_two("olt" if isinstance(item, Min) else "ogt", item.dtype, first, second)

    dtype = node.dtype
    kind, mask = register_type(dtype), emitter.mask_type(dtype)
    # Tested first, operands need no registers until the end.
    unordered = [
        emitter.guarded(f"fcmp uno {kind} {a}, {b}", a, b)
        for a, b in zip(values[::2], [*values[1::2], values[-1]])
    ]
    value = plain(node)
    if predicates:
        flag = unordered[0]
        for other in unordered[1:]:
            flag = emitter.guarded(f"or {mask} {flag}, {other}", flag, other)
        nan = constant_text(float("nan"), dtype)
        return emitter.guarded(f"select {mask} {flag}, {kind} {nan}, {kind} {value}", flag, value)
    # Masks that meet before they are used would be packed to bytes; a number whose bits are all set
    # is NaN.
    element, lanes = dtypes.split_dtype(dtype)
    bits = register_type(dtypes.vector_dtype(f"int{dtypes.bits_of(element)}", lanes))
    made = emitter.guarded(f"bitcast {kind} {value} to {bits}", value)
    for flag in unordered:
        wide = emitter.guarded(f"sext {mask} {flag} to {bits}", flag)
        made = emitter.guarded(f"or {bits} {made}, {wide}", made, wide)
    return emitter.guarded(f"bitcast {bits} {made} to {kind}", made)
