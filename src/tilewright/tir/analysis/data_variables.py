"""Which variables of a function stand for data, whose integers wrap (see ``arith/data.py``)."""

from __future__ import annotations

from tilewright.arith import Analyzer
from tilewright.ir import INDEX, Let, Node, contains, dtypes, free_vars, pre_order
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import For, LetStmt

_has_lets = contains(Let, LetStmt)


def know_data(analyzer: Analyzer, func: PrimFunc) -> None:
    """Tell an analyzer which variables stand for data.

    These are the variables that were given such a value, and scalar parameters of other types than
    the index type that are neither sizes nor bounds of loops.
    """
    numbers = {var for var in func.params if dtypes.is_integer(var.dtype) and var.dtype != INDEX}
    if numbers:
        bounds = [
            *func.symbolic_vars(),
            *(extent for b in func.buffer_map.values() for extent in b.shape),
        ]
        bounds += [
            part
            for loop in pre_order(func.body)
            if isinstance(loop, For)
            for part in (loop.min, loop.extent)
        ]
        for var in numbers.difference(*(free_vars(bound) for bound in bounds)):
            analyzer.mark_data(var)
    know_lets(analyzer, func.body)


def know_lets(analyzer: Analyzer, body: Node) -> None:
    """Tell an analyzer which variables that are bound below a node stand for data."""
    if _has_lets(body):
        for let in pre_order(body, _has_lets):
            if isinstance(let, (Let, LetStmt)):
                analyzer.note_let(let.var, let.value)
