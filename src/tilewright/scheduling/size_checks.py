"""Assertions about sizes at the start of a function, which are hidden from schedules.

``te.create_prim_func`` creates them for operators' requirements that shapes can't express. They are
checked before anything is computed, so rules that recognise whole functions look only at the rest.
"""

from __future__ import annotations

from tilewright.ir import Expr, Var, substitute
from tilewright.tir import PrimFunc, Stmt, seq, split_size_checks


def set_aside(func: PrimFunc) -> tuple[list[Stmt], PrimFunc]:
    """Return the size assertions at a function's start, and the function without them."""
    checks, rest = split_size_checks(func.root.body)
    return checks, _with_body(func, rest) if checks else func


def put_back(checks: list[Stmt], before: PrimFunc, after: PrimFunc) -> PrimFunc:
    """Put the assertions back at the start of ``after``, which was made from ``before``."""
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
