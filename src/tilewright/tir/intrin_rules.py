"""Rules of users by which operators are written in others for a target, before it is lowered.

``driver.lower`` applies them to the whole program first, while its loops are still scalar: what a
rule gives, all passes see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.ir import OPS, Call, Expr, IRModule, Mutator
from tilewright.support.errors import VerifyError
from tilewright.support.registry import near_matches
from tilewright.target import TARGET_KINDS
from tilewright.tir.function import PrimFunc

Rule = Callable[[Call], Expr]

EVERY_TARGET = "default"
_KINDS_OF_TVM = (
    "composite", "cuda_host", "ext_dev", "hexagon", "nvptx", "rocm", "test", "trn", "vulkan",
    "webgpu",
)  # fmt: skip
_RULES: dict[tuple[str, str], tuple[int, Rule]] = {}


def register_intrin_lowering(
    op_name: str, target: str, *, f: Rule | None = None, level: int = 10
) -> Any:
    """Say how calls of an operator are written in others for targets of a kind.

        @register_intrin_lowering("tirx.exp", "llvm", level=99)
        def exp_rule(op):
            return tir.call_pure_extern("float32", "my_exp", op.args[0])

    ``target`` is a kind (``"cuda"``) or ``"default"`` for those without a rule of their own. Of
    rules for one kind the one of the highest ``level`` holds, and the last of equal ones. The rule
    gets the call; what it gives isn't rewritten again by the same rule.

    Raises ``VerifyError`` for an operator or a kind that isn't known. A kind that only TVM has may
    stand in a program; no target here is of it.
    """
    name = op_name.removeprefix("tirx.").removeprefix("tir.")
    OPS.get(name)
    kinds = [EVERY_TARGET, *TARGET_KINDS]
    if target not in kinds and target not in _KINDS_OF_TVM:
        raise VerifyError(f"unknown kind of target {target!r}; {near_matches(target, kinds)}")
    if f is not None and not callable(f):
        raise VerifyError(f"a rule for {name} is a function of the call, got {f!r}")

    def register(function: Rule) -> Rule:
        known = _RULES.get((name, target))
        if known is None or known[0] <= level:
            _RULES[name, target] = level, function
        return function

    return register if f is None else register(f)


def rules_for(kind: str) -> dict[str, Rule]:
    """Rules for targets of a kind, by operator."""
    found: dict[str, Rule] = {}
    for wanted in (EVERY_TARGET, kind):
        found.update({op: rule for (op, target), (_, rule) in _RULES.items() if target == wanted})
    return found


def apply_rules(mod: IRModule, kind: str) -> IRModule:
    """Rewrite the calls of all functions that have a rule for targets of a kind."""
    rules = rules_for(kind)
    if not rules:
        return mod
    rewriter = _Rewriter(rules)
    changed: dict[str, Any] = {}
    for name, func in mod.functions.items():
        if isinstance(func, PrimFunc):
            made = func.map_children(rewriter.visit)
            if made is not func:
                changed[name] = made
    for name, func in changed.items():
        mod = mod.with_function(name, func)
    return mod


class _Rewriter(Mutator):
    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self.rules = rules

    def visit_Call(self, node: Call) -> Any:
        call = node.map_children(self.visit)
        rule = self.rules.get(call.op.name)
        if rule is None:
            return call
        made = rule(call)
        if not isinstance(made, Expr) or made.dtype != call.dtype:
            raise VerifyError(
                f"the rule for {call.op.name} gives {made!r} for a call of dtype {call.dtype}"
            )
        return made
