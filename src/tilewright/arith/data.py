"""Which integers wrap: those of data. Those of indices are taken not to overflow.

An expression is *data* if a number in it comes from memory, from a float, or from foreign code.
So is an index that was cast to fewer bits: what is computed from it in the narrower dtype wraps.
Everything else is made of indices: loop variables, iteration variables, extents, shapes, and
scalar parameters of the index type. ``Context.table.data`` holds the atoms that are data, and this
is what all of ``arith`` asks: sums and products of data are what they are as whole numbers only
where their bounds fit the dtype. Else they are known modulo two to the power of its width, and
become atoms of their own (``Canonical.whole``), about which comparisons and divisions know no more
than the dtype's limits.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from tilewright.ir import (
    INDEX,
    Add,
    Broadcast,
    Call,
    Cast,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Sub,
    Var,
    dtypes,
)

_NUMBERS = frozenset((IntImm, FloatImm, StringImm))
_OPERATIONS = frozenset((Add, Sub, Mul, FloorDiv, FloorMod, Min, Max, Ramp, Broadcast, Shuffle))
#: Pure calls whose integers come from elsewhere, and one that is of addresses.
_FOREIGN = frozenset(("reinterpret", "call_pure_extern", "call_llvm_pure_intrin"))
_ADDRESSES = frozenset(("misalignment",))


def holds_data(expr: Any, known: Container[Var] = ()) -> bool:
    """Whether an integer may be one of data; ``known`` are variables that stand for such.

    Conditions don't count: what they choose between does.
    """
    stack = [expr]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind is Var:
            if item in known:
                return True
        elif kind in _OPERATIONS:
            stack.extend(item.child_nodes())
        elif kind is Select:
            stack += [item.true_value, item.false_value]
        elif kind is Cast:
            if dtypes.is_float(item.value.dtype) or _narrows(item):
                return True
            if not dtypes.is_bool(item.value.dtype):
                stack.append(item.value)
        elif kind is Let:
            stack += [item.value, item.body]
        elif kind is Call:
            name = item.op.name
            if item.op.effect != "pure" or name in _FOREIGN:
                return True
            if name not in _ADDRESSES:
                stack.extend(item.args[1:] if name == "if_then_else" else item.args)
        elif kind not in _NUMBERS and not (isinstance(item, Expr) and dtypes.is_bool(item.dtype)):
            return True
    return False


def _narrows(cast: Cast) -> bool:
    """Whether a cast leaves indices: what fits their dtype may not fit its own."""
    dtype = dtypes.element_of(cast.dtype)
    return dtypes.is_integer(dtype) and not dtypes.is_bool(dtype) and dtype != INDEX
