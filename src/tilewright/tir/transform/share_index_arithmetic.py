"""Compute what very long expressions of kernels repeat of their index arithmetic once.

Definitions that choose among many formulas (transforms of Winograd, polynomials) repeat the same
quotients of symbolic sizes in all of them once they are inlined. The compilers of GPUs find that
out, but text of hundreds of kilobytes keeps them busy for a long time. Shorter expressions are left
alone: what they share the compiler shares as well. So are floats, whose products are part of a
multiply-add where they stand in a sum.
"""

from __future__ import annotations

from itertools import islice

from tilewright.ir import Expr, pre_order
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import For, Stmt
from tilewright.tir.transform.base import FunctionTransform, bind_loop
from tilewright.tir.transform.common_subexpr import Eliminator
from tilewright.tir.transform.kernels import map_kernels, thread_nest
from tilewright.tir.walk import statements

_LONG = 2000
"""Nodes of an expression from which on it is looked at."""
_MIN_COST = 4


class ShareIndexArithmetic(FunctionTransform):
    """Rewrite kernels with long expressions, below their thread loops."""

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        return map_kernels(func, lambda kernel: _shared(func, kernel))


def _shared(func: PrimFunc, kernel: For) -> Stmt:
    loops, body = thread_nest(kernel)
    if not any(_is_long(stmt) for stmt in statements(body)):
        return kernel
    eliminator = Eliminator(func, _MIN_COST, integers=True)
    for loop in loops:
        bind_loop(eliminator.analyzer, loop)
    made = eliminator.stmt(body)
    for loop in reversed(loops):
        made = loop.replace(body=made)
    return made


def _is_long(stmt: Stmt) -> bool:
    """Whether a statement has a long expression of its own."""
    return any(
        next(islice(pre_order(item), _LONG, None), None) is not None
        for item in stmt.child_nodes()
        if isinstance(item, Expr)
    )
