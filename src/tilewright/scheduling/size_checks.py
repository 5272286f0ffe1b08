"""Assertions about sizes at the beginning of a function: schedules don't see them.

``te.create_prim_func`` makes them of what operators need and shapes can't say. They hold or not
before anything is computed, so rules that know a function by all that it does look at the rest.
"""

from __future__ import annotations

from tilewright.ir import Expr, Var, substitute
from tilewright.tir import PrimFunc, Stmt, seq, split_size_checks


def set_aside(func: PrimFunc) -> tuple[list[Stmt], PrimFunc]:
    """Return the assertions about sizes that a function begins with, and the function without."""
    checks, rest = split_size_checks(func.root.body)
    return checks, _with_body(func, rest) if checks else func


def put_back(checks: list[Stmt], before: PrimFunc, after: PrimFunc) -> PrimFunc:
    """Let ``after``, which was made of ``before``, begin with assertions."""
    if not checks:
        return after
    mapping: dict[Var, Expr] = {}
    for old, new in zip(before.buffers, after.buffers):
        for extent, made in zip(old.shape, new.shape):
            if type(extent) is Var:
                mapping.setdefault(extent, made)
    for scalar, renamed in zip(before.params, after.params):
        if scalar not in before.buffer_map:
            mapping[scalar] = renamed
    return _with_body(after, seq(*(substitute(item, mapping) for item in checks), after.root.body))


def _with_body(func: PrimFunc, body: Stmt) -> PrimFunc:
    made: PrimFunc = func.replace(body=func.body.replace(block=func.root.replace(body=body)))
    return made
