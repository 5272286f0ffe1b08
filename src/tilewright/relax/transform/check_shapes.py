"""``CheckShapes``: conditions on sizes that inference couldn't prove become assertions.

Assertions about the parameters' extents come first, those about extents that a ``match_cast``
defines before the operator that needs them. Conditions implied by earlier ones are dropped, so the
pass is idempotent.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import is_

from tilewright.arith import Analyzer
from tilewright.ir import (
    Expr,
    IRModule,
    Pass,
    as_int,
    expr_equal,
    free_vars,
    pre_order,
)
from tilewright.relax.assertion import assertion
from tilewright.relax.branches import If, all_bindings, map_branches
from tilewright.relax.call_tir import (
    call_tir_operands,
    is_call_tir,
    output_infos,
    tensor_function,
)
from tilewright.relax.conditions import Condition
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    LocalFunction,
    MatchCast,
    PrimValue,
    RelaxCall,
    RelaxVar,
    SeqExpr,
    VarBinding,
)
from tilewright.relax.extent_checks import extent_conditions, extent_values
from tilewright.relax.registry import is_call_to
from tilewright.relax.struct_info import (
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    defined_vars,
    extents_of,
)


class CheckShapes(Pass):
    """Assert the conditions of all calls, and that no extent is negative."""

    def transform(self, mod: IRModule) -> IRModule:
        """Complete the assertions of every graph function that is not a fusion group."""
        return mod.map_functions(
            lambda _, function: (
                function if function.is_primitive else _Checker(mod, function).run()
            ),
            Function,
        )


class _Checker:
    """Processes one function, keeping track of what has been asserted."""

    def __init__(self, mod: IRModule, function: Function) -> None:
        self.mod = mod
        self.function = function
        self.analyzer = Analyzer()
        self.asserted: list[Expr] = []
        self.sizes: set[Expr] = set()
        self.names = {binding.var.name for binding in all_bindings(function)}
        infos = [param.struct_info for param in function.params]
        self.early = set(defined_vars(infos))
        self.learn(infos)

    def learn(self, infos: list[StructInfo]) -> None:
        """Learn that extents of existing tensors are not negative; scalars and shapes may be."""
        for info in infos:
            if not isinstance(info, (PrimStructInfo, ShapeStructInfo)):
                for var in defined_vars([info]):
                    self.analyzer.limit(var, 0)
                    self.sizes.add(var)

    def run(self) -> Function:
        body = self.checked(self.function.body)
        return self.function if body is self.function.body else self.function.replace(body=body)

    def checked(self, body: SeqExpr) -> SeqExpr:
        """A body with all assertions, those that only need parameters in front."""
        front: list[Binding] = []
        blocks: list[BindingBlock] = []
        for block in body.blocks:
            made: list[Binding] = []
            for binding in block.bindings:
                self.note(binding)
                for condition in self.missing(binding):
                    early = self.early.issuperset(free_vars(condition.expr))
                    kind = DataflowVar if isinstance(block, DataflowBlock) else RelaxVar
                    call = assertion(condition)
                    var = (RelaxVar if early else kind)("_", call.struct_info)
                    (front if early else made).append(VarBinding(var, call))
                made.append(map_branches(self.with_local_function(binding), self.checked_branch))
            same = len(made) == len(block.bindings) and all(map(is_, made, block.bindings))
            blocks.append(block if same else block.replace(bindings=tuple(made)))
        if front:
            blocks.insert(0, BindingBlock(tuple(front)))
        if len(blocks) == len(body.blocks) and all(map(is_, blocks, body.blocks)):
            return body
        return SeqExpr(tuple(blocks), body.body)

    def with_local_function(self, binding: Binding) -> Binding:
        """A binding of a local function: what its own extents are is asserted in it."""
        if not isinstance(binding.value, LocalFunction):
            return binding
        inner = _Checker(self.mod, binding.value.func)
        inner.early |= self.early
        made = inner.run()
        if made is binding.value.func:
            return binding
        return binding.replace(value=LocalFunction(made))

    def checked_branch(self, branch: SeqExpr) -> SeqExpr:
        """A branch: what it asserts holds only in it."""
        outer = self.analyzer, self.asserted, self.sizes
        self.analyzer, self.asserted, self.sizes = (
            self.analyzer.copy(), list(self.asserted), set(self.sizes)
        )  # fmt: skip
        made = self.checked(branch)
        self.analyzer, self.asserted, self.sizes = outer
        return made

    def note(self, binding: Binding) -> None:
        """Learn from an existing binding."""
        value = binding.value
        if is_call_to(value, "assert_op"):
            assert isinstance(value, RelaxCall) and isinstance(value.args[0], PrimValue)
            self.know(value.args[0].value)
        if isinstance(binding, MatchCast):
            self.learn([binding.struct_info])

    def know(self, condition: Expr) -> None:
        self.asserted.append(condition)
        self.analyzer.assume(condition)

    def missing(self, binding: Binding) -> Iterator[Condition]:
        """The conditions of a binding that are not implied yet."""
        # Calls in branches and local functions are checked there.
        value = binding.value
        for item in () if isinstance(value, (If, LocalFunction)) else pre_order(value):
            if isinstance(item, RelaxCall):
                yield from filter(self.is_new, (*item.conditions, *self.of_callee(item)))
        info = binding.var.struct_info
        free = isinstance(info, (PrimStructInfo, ShapeStructInfo))
        for extent in () if free else extents_of(info):
            if as_int(extent) is not None or extent in self.sizes:
                continue
            self.sizes.add(extent)
            name = binding.var.name
            condition = Condition(extent >= 0, (f"{name} has a negative extent: ", extent))
            if self.is_new(condition):
                yield condition

    def of_callee(self, call: RelaxCall) -> list[Condition]:
        """The conditions of a tensor function's signature on the shapes of a ``call_tir``."""
        if not is_call_tir(call):
            return []
        ref, args, scalars = call_tir_operands(call)
        func = tensor_function(self.mod, ref)
        if func is None:
            return []
        infos = [*(arg.struct_info for arg in args), *output_infos(call)]
        shapes = [info.shape for info in infos if isinstance(info, TensorStructInfo)]
        values = extent_values(func, ref.name, shapes, scalars.values if scalars else ())
        return extent_conditions(func, ref.name, shapes, values)

    def is_new(self, condition: Condition) -> bool:
        expr = condition.expr
        if any(expr_equal(expr, known) for known in self.asserted):
            return False
        if self.analyzer.can_prove(expr):
            return False
        self.know(expr)
        return True
