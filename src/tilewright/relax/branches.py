"""``If``: one of two values, of which only the one that a condition asks for is computed.

A branch is a ``SeqExpr``. It sees what is bound before it and binds variables of its own, which
nothing outside sees. Most passes work inside of branches as they do outside
(``rewriter.FunctionRewriter``); those that compare bindings with each other, as fusion does, see
branches that ``OutlineBranches`` has made functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet

from tilewright.ir import GlobalVar, Node, Var, child, derived, free_vars, node, pre_order
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    Constant,
    Function,
    MatchCast,
    PrimValue,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    SeqExpr,
)
from tilewright.relax.struct_info import (
    PrimStructInfo,
    StructInfo,
    TensorStructInfo,
    defined_vars,
    erase_extents,
    struct_info_lca,
    used_vars,
)
from tilewright.relax.values import as_relax
from tilewright.support.errors import VerifyError


@node
class If(RelaxExpr):
    """``true_branch`` if ``cond`` holds, else ``false_branch``; the other one isn't computed.

    ``cond`` is a tensor without axes or a scalar, of dtype bool. A branch that is no ``SeqExpr`` is
    the result of one; ``BlockBuilder.emit`` binds what is nested in it. What is known of the value
    is what is known of both results.

    Raises ``VerifyError`` for another condition.
    """

    cond: RelaxExpr = child()
    true_branch: SeqExpr = child()
    false_branch: SeqExpr = child()
    struct_info: StructInfo = derived()

    def __init__(self, cond: object, true_branch: object, false_branch: object) -> None:
        test = as_relax(cond)
        info = test.struct_info
        tensor = isinstance(info, TensorStructInfo) and info.ndim == 0
        if not (tensor or isinstance(info, PrimStructInfo)) or test.dtype != "bool":
            raise VerifyError(
                "the condition of an If is a bool tensor without axes or a bool scalar: "
                f"{test!r} is {info!r}"
            )
        first, second = (
            branch if isinstance(branch, SeqExpr) else SeqExpr((), as_relax(branch))
            for branch in (true_branch, false_branch)
        )
        object.__setattr__(self, "cond", test)
        object.__setattr__(self, "true_branch", first)
        object.__setattr__(self, "false_branch", second)
        known = struct_info_lca(seen_outside(first), seen_outside(second))
        object.__setattr__(self, "struct_info", known)

    @property
    def branches(self) -> tuple[SeqExpr, SeqExpr]:
        """Both branches."""
        return self.true_branch, self.false_branch

    @property
    def taken(self) -> SeqExpr | None:
        """The branch that a known condition takes; ``None`` if it isn't known."""
        known: object = None
        if isinstance(self.cond, Constant):
            known = self.cond.data.item()
        elif isinstance(self.cond, PrimValue):
            known = getattr(self.cond.value, "value", None)
        return None if known is None else self.branches[0 if known else 1]

    def __repr__(self) -> str:
        parts = (self.cond, *(branch.body for branch in self.branches))
        return f"if({', '.join(map(repr, parts))})"


def seen_outside(branch: SeqExpr, outer: AbstractSet[Var] = frozenset()) -> StructInfo:
    """The struct info of a branch, without extents that it defines itself.

    ``outer`` are those that are known to be defined outside of it.
    """
    info, own = branch.struct_info, own_extents(branch) - outer
    return erase_extents(info, {var: var for var in used_vars(info) if var not in own})


def own_extents(branch: SeqExpr) -> set[Var]:
    """Extents that casts in a branch define: what is used before is defined outside of it."""
    bindings = list(nested_bindings(branch))
    own: set[Var] = set()
    if not any(isinstance(binding, MatchCast) for binding in bindings):
        return own
    used: set[Var] = set()
    for binding in bindings:
        value = binding.value.cond if isinstance(binding.value, If) else binding.value
        used.update(free_vars(value))
        for item in pre_order(value):
            if isinstance(item, RelaxVar):
                used.update(used_vars(item.struct_info))
        if isinstance(binding, MatchCast):
            own.update(var for var in defined_vars([binding.struct_info]) if var not in used)
            used.update(used_vars(binding.struct_info))
    return own


def nested_bindings(body: SeqExpr) -> Iterator[Binding]:
    """All bindings, those inside of branches before the binding of their ``If``."""
    for block in body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, If):
                for branch in binding.value.branches:
                    yield from nested_bindings(branch)
            yield binding


def nested_bodies(body: SeqExpr) -> Iterator[SeqExpr]:
    """The body and all branches in it, each after what is before it."""
    yield body
    for block in body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, If):
                for branch in binding.value.branches:
                    yield from nested_bodies(branch)


def map_branches(binding: Binding, change: Callable[[SeqExpr], SeqExpr]) -> Binding:
    """Change the branches of a binding; return the same one if none changes."""
    value = binding.value
    if not isinstance(value, If):
        return binding
    first, second = map(change, value.branches)
    if (first, second) == value.branches:
        return binding
    return binding.replace(value=If(value.cond, first, second))


def map_blocks(body: SeqExpr, change: Callable[[BindingBlock], BindingBlock]) -> SeqExpr:
    """Change each block, what is in its branches before; return the same body if none changes."""

    def go(block: BindingBlock) -> BindingBlock:
        inner = tuple(
            map_branches(b, lambda branch: map_blocks(branch, change)) for b in block.bindings
        )
        return change(block if inner == block.bindings else block.replace(bindings=inner))

    blocks = tuple(map(go, body.blocks))
    return body if blocks == body.blocks else SeqExpr(blocks, body.body)


def all_bindings(function: Function) -> list[Binding]:
    """All bindings of a function, those inside of branches before the binding of their ``If``."""
    return list(nested_bindings(function.body))


def contains_if(expr: Node) -> bool:
    """Whether there is an ``If`` in an expression or function."""
    return any(isinstance(item, If) for item in pre_order(expr))


def is_outlined(branch: SeqExpr) -> bool:
    """Whether a branch only calls a function for its result."""
    bindings = [binding for block in branch.blocks for binding in block.bindings]
    if len(bindings) != 1 or bindings[0].var is not branch.body:
        return False
    value = bindings[0].value
    return isinstance(value, RelaxCall) and isinstance(value.op, GlobalVar)
