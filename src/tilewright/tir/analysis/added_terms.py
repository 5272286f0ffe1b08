"""What a block adds to an element, term by term."""

from __future__ import annotations

from tilewright.ir import Add, Call, Expr, Select, Sub, expr_equal
from tilewright.tir import Block, BufferLoad, BufferStore
from tilewright.tir.walk import loads_of


def added_value(block: Block) -> tuple[BufferLoad, Expr] | None:
    """The element that a block adds to, and what it adds; ``None`` if it does anything else."""
    store = block.body
    if not isinstance(store, BufferStore) or not isinstance(store.value, Add):
        return None
    for own, other in ((store.value.a, store.value.b), (store.value.b, store.value.a)):
        if (
            isinstance(own, BufferLoad)
            and own.buffer is store.buffer
            and all(map(expr_equal, own.indices, store.indices))
            and not loads_of(other, store.buffer)
        ):
            return own, other
    return None


def arms_of(value: Expr) -> tuple[Expr, Expr, Expr] | None:
    """Condition and both values of a choice; ``None`` if ``value`` isn't one."""
    if isinstance(value, Select):
        return value.condition, value.true_value, value.false_value
    if isinstance(value, Call) and value.op.name == "if_then_else":
        condition, then, other = value.args
        return condition, then, other
    return None


def terms_of(value: Expr, is_less: bool = False) -> list[tuple[Expr, bool]]:
    """Terms of a sum, in order, and whether each is subtracted."""
    if not isinstance(value, (Add, Sub)):
        return [(value, is_less)]
    subtracted = is_less != isinstance(value, Sub)
    return [*terms_of(value.a, is_less), *terms_of(value.b, subtracted)]


def terms_by_arm(value: Expr, kind: type[Expr] = Expr) -> list[int]:
    """How many terms of a kind each of the sums has that ``value`` chooses between."""
    arms = arms_of(value)
    if arms is None:
        return [sum(isinstance(term, kind) for term, _ in terms_of(value))]
    return [*terms_by_arm(arms[1], kind), *terms_by_arm(arms[2], kind)]
