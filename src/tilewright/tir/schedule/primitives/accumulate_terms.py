"""A sum of sums: each term is added by itself.

``C + (a * b - c * d)`` is three operations, and ``(C + a * b) + -c * d`` two multiply-adds. Each
instance of the block waits for more operations in turn, so it pays where there are enough others
to go on with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir import Expr, Mul, Select, dtypes, if_then_else
from tilewright.tir import BlockRealize, BufferStore
from tilewright.tir.analysis.added_terms import added_value, arms_of, terms_by_arm, terms_of
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.state import ScheduleState

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule

_WIDE_FLOATS = ("float32", "float64")


@primitive
def accumulate_terms(sch: Schedule, block: BlockRV) -> None:
    """Add each term of what a reduction adds by itself, so that each is a multiply-add.

    Sums are of other terms than before, as by ``rfactor``: results differ by rounding. Primitives
    and rules that look for a reduction don't find it in the block any more.

    Preconditions:
        - the block only adds to one element
        - what it adds is a sum or difference of several terms, or chooses between such
        - the element is an integer, or a float of at least 32 bits: others round after each term
    Before:
        for i, k in T.grid(128, 64):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + (A[0, vi, vk] * B[0, vk] - A[1, vi, vk] * B[1, vk])
    After ``accumulate_terms("C")``:
        for i, k in T.grid(128, 64):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[0, vi, vk] * B[0, vk] + -A[1, vi, vk] * B[1, vk]
    """
    state: ScheduleState = sch.state
    realize = state.get_block(block)
    found = added_value(realize.block)
    if found is None:
        raise state.error(f"block {realize.block.name!r} doesn't only add to one element", realize)
    old, value = found
    if dtypes.is_float(old.dtype) and old.dtype not in _WIDE_FLOATS:
        raise state.error(
            f"sums of {realize.block.name!r} are {old.dtype}, which rounds after each term", realize
        )
    if max(terms_by_arm(value)) < 2:
        raise state.error(
            f"what block {realize.block.name!r} adds is a single term",
            realize,
            remedy="sums and differences have several",
        )
    store = realize.block.body
    assert isinstance(store, BufferStore)
    changed = realize.block.replace(body=store.replace(value=_plus(old, value)))
    state.replace(realize, BlockRealize(realize.iter_values, realize.predicate, changed))


def _plus(so_far: Expr, value: Expr) -> Expr:
    """Add the terms of ``value`` in turn."""
    arms = arms_of(value)
    if arms is not None:
        condition, then, other = arms
        make = Select if isinstance(value, Select) else if_then_else
        return make(condition, _plus(so_far, then), _plus(so_far, other))
    for term, is_less in terms_of(value):
        if not is_less:
            so_far = so_far + term
        elif isinstance(term, Mul) and dtypes.is_float(term.dtype):
            so_far = so_far + -term.a * term.b
        else:
            so_far = so_far - term
    return so_far
