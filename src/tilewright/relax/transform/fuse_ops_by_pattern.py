"""``FuseOpsByPattern``: what patterns match becomes functions, for an external code generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir import GLOBAL_SYMBOL, GlobalVar, IRModule, Pass
from tilewright.relax.analysis import get_var2val, use_counts, used_graph_vars
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.branches import all_bindings, map_blocks
from tilewright.relax.dpl.matching import Matching
from tilewright.relax.dpl.pattern import (
    CallPattern,
    DFPattern,
    TupleGetItemPattern,
    TuplePattern,
)
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    VarBinding,
)
from tilewright.relax.transform.outline import function_name, outline
from tilewright.support.errors import VerifyError
from tilewright.tir.attrs import CODEGEN, COMPOSITE

_INTERIOR = (CallPattern, TuplePattern, TupleGetItemPattern)


@dataclass(frozen=True)
class PatternCheckContext:
    """What a pattern's ``check`` sees of a match."""

    matched_expr: RelaxExpr
    """The value that the whole pattern matched."""
    annotated_expr: dict[str, RelaxExpr]
    """Values by the names in ``annotation_patterns``."""
    matched_bindings: dict[RelaxVar, RelaxExpr]
    """The bindings that would move into the function."""
    var_usages: dict[RelaxVar, list[RelaxVar]]
    """For each variable, those whose values use it."""
    value_to_bound_var: dict[RelaxExpr, RelaxVar]
    """The variable that each value is bound to."""


Check = Callable[[PatternCheckContext], bool]
AttrsGetter = Callable[[dict[str, RelaxExpr]], Mapping[str, Any]]


@dataclass(frozen=True)
class FusionPattern:
    """A pattern and its name, ``<code generator>.<kind>``.

    ``check`` says whether a match is wanted. ``attrs_getter`` makes further attributes of the
    function from the values that the patterns named in ``annotation_patterns`` match.

    Raises ``VerifyError`` if name and pattern aren't such.
    """

    name: str
    pattern: DFPattern
    annotation_patterns: Mapping[str, DFPattern] = field(default_factory=dict)
    check: Check | None = None
    attrs_getter: AttrsGetter | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.pattern, DFPattern):
            raise VerifyError(
                f"a fusion pattern is a name and a pattern, got {self.name!r}, {self.pattern!r}"
            )


class FuseOpsByPattern(Pass):
    """Move what patterns match into functions with the attribute ``Composite``.

    ``patterns`` are ``FusionPattern`` or tuples of its arguments; those listed first are looked
    for first, so longer ones should come before their parts. A value inside a match that something
    else uses as well keeps the match from being made. Constants move along unless
    ``bind_constants`` is ``False``. ``annotate_codegen`` wraps each function in another one for its
    code generator (attribute ``Codegen``), as ``MergeCompositeFunctions`` does for several at once.
    Only ``entry_functions`` are rewritten, if given.

    ``relax.build`` compiles functions that no code generator took like all others.

    Before, with ``("mine.matmul_relu", is_op("relax.nn.relu")(is_op("relax.matmul")(x, w)))``:
        lv = R.matmul(x, w)
        gv = R.nn.relu(lv)
    After:
        gv = R.call(cls.fused_relax_matmul_relax_nn_relu, (x, w), ...)
    """

    def __init__(
        self,
        patterns: Sequence[FusionPattern | tuple[Any, ...]],
        bind_constants: bool = True,
        annotate_codegen: bool = False,
        entry_functions: Sequence[str] | None = None,
    ) -> None:
        self.patterns = tuple(
            item if isinstance(item, FusionPattern) else FusionPattern(*item) for item in patterns
        )
        self.bind_constants = bind_constants
        self.annotate_codegen = annotate_codegen
        self.entry_functions = None if entry_functions is None else tuple(entry_functions)

    def transform(self, mod: IRModule) -> IRModule:
        """Look for the patterns in every dataflow block.

        Raises ``VerifyError`` if an entry function is none of the module's graph functions.
        """
        for name in self.entry_functions or ():
            if not isinstance(mod[name], Function):
                raise VerifyError(f"{name} is no graph function")
        for pattern in self.patterns:
            builder = BlockBuilder(mod)
            for name, function in mod.functions.items():
                chosen = self.entry_functions is None or name in self.entry_functions
                if not chosen or not isinstance(function, Function):
                    continue
                if not function.is_primitive and not function.is_partition:
                    made = _Grouper(self, pattern, builder, function).run()
                    if made is not function:
                        builder.update_func(name, made)
            mod = builder.get()
        return mod


class _Grouper:
    """Looks for one pattern in one function."""

    def __init__(
        self,
        options: FuseOpsByPattern,
        pattern: FusionPattern,
        builder: BlockBuilder,
        function: Function,
    ) -> None:
        self.options = options
        self.pattern = pattern
        self.builder = builder
        self.function = function
        self.values = get_var2val(function)
        self.uses = use_counts(function)
        self.users: dict[RelaxVar, list[RelaxVar]] = {}
        for binding in all_bindings(function):
            for var in used_graph_vars(binding.value):
                self.users.setdefault(var, []).append(binding.var)

    def run(self) -> Function:
        body = map_blocks(
            self.function.body,
            lambda block: self.group(block) if isinstance(block, DataflowBlock) else block,
        )
        return self.function if body is self.function.body else self.function.replace(body=body)

    def group(self, block: DataflowBlock) -> BindingBlock:
        taken: set[RelaxVar] = set()
        calls: dict[RelaxVar, RelaxExpr] = {}
        inner = {b.var: b.value for b in block.bindings if isinstance(b, VarBinding)}
        for binding in block.bindings:
            if not isinstance(binding, VarBinding) or binding.var in taken:
                continue
            known = {var: value for var, value in inner.items() if var not in taken}
            matching = Matching(known)
            if not matching.matches(self.pattern.pattern, binding.var):
                continue
            inside = _interior(matching, binding.var, known)
            members = [b for b in block.bindings if b.var in inside]
            if self.is_closed(members, binding.var) and self.is_wanted(matching, members, binding):
                taken.update(member.var for member in members)
                calls[binding.var] = self.call(matching, members, binding)
        if not calls:
            return block
        bindings: list[Binding] = []
        for binding in block.bindings:
            if binding.var in calls:
                bindings.append(VarBinding(binding.var, calls[binding.var]))
            elif binding.var not in taken:
                bindings.append(binding)
        return DataflowBlock(tuple(bindings))

    def is_closed(self, members: list[Binding], root: RelaxVar) -> bool:
        """Whether nothing outside of the group uses what is inside it, apart from its result."""
        inside = {member.var for member in members}
        return root in inside and all(
            isinstance(var, DataflowVar) and inside.issuperset(self.users.get(var, ()))
            for var in inside - {root}
        )

    def is_wanted(self, matching: Matching, members: list[Binding], root: Binding) -> bool:
        if self.pattern.check is None:
            return True
        context = PatternCheckContext(
            root.value,
            self.annotated(matching),
            {member.var: member.value for member in members},
            self.users,
            {value: var for var, value in self.values.items()},
        )
        return bool(self.pattern.check(context))

    def annotated(self, matching: Matching) -> dict[str, RelaxExpr]:
        found: dict[str, RelaxExpr] = {}
        for name, pattern in self.pattern.annotation_patterns.items():
            operand = matching.found.get(pattern)
            if isinstance(operand, RelaxExpr):
                value = self.values.get(operand) if isinstance(operand, RelaxVar) else None
                found[name] = operand if value is None else value
        return found

    def call(self, matching: Matching, members: list[Binding], root: Binding) -> RelaxCall:
        """Add the group's function, and return the call of it."""
        attrs: dict[str, Any] = {COMPOSITE: self.pattern.name}
        if self.pattern.attrs_getter is not None:
            attrs.update(self.pattern.attrs_getter(self.annotated(matching)))
        function, operands = outline(
            members, [root.var], attrs, bind_constants=self.options.bind_constants
        )
        parts = [
            f"relax.{member.value.op_name}"
            for member in members
            if isinstance(member.value, RelaxCall)
        ]
        gvar = self.builder.add_func(function, function_name(parts))
        if self.options.annotate_codegen:
            gvar, operands = self.wrap(gvar, operands, root)
        return RelaxCall(gvar, operands, {}, (root.var.struct_info,))

    def wrap(
        self, callee: GlobalVar, operands: Sequence[RelaxExpr], root: Binding
    ) -> tuple[GlobalVar, tuple[RelaxExpr, ...]]:
        """Add a function for the code generator that calls one composite function."""
        codegen = self.pattern.name.partition(".")[0]
        inner = RelaxCall(callee, tuple(operands), {}, (root.var.struct_info,))
        var = DataflowVar(root.var.name, root.var.struct_info)
        function, given = outline(
            [VarBinding(var, inner)],
            [var],
            {CODEGEN: codegen},
            bind_constants=self.options.bind_constants,
        )
        made = self.builder.add_func(function, f"{callee.name}_{codegen}")
        self.builder.update_func(made, function.with_attr(GLOBAL_SYMBOL, made.name))
        return made, given


def _interior(
    matching: Matching, root: RelaxVar, values: Mapping[RelaxVar, RelaxExpr]
) -> set[RelaxVar]:
    """The variables whose values are part of what matched."""
    found = {root}
    for pattern, operand in matching.found.items():
        while isinstance(operand, RelaxVar) and operand in values:
            if isinstance(pattern, _INTERIOR):
                found.add(operand)
            if not isinstance(values[operand], RelaxVar):
                break
            operand = values[operand]
    return found
