"""Walking over graph functions, and rebuilding them, a method for each kind of expression.

    @relax.expr_functor.mutator
    class Squares(relax.PyExprMutator):
        def visit_call_(self, call):
            call = self.visit_expr_post_order(call)
            if call.op_name == "square":
                return relax.op.multiply(call.args[0], call.args[0])
            return call

    made = Squares(mod).visit_expr(mod["main"])

Methods end in ``_``; those that a class doesn't define go on to what is inside. Passes of this
package use ``FunctionRewriter``, which sees bindings only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from tilewright.ir import GlobalVar, IRModule, substitute
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.branches import If
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    Constant,
    DataflowBlock,
    DataflowVar,
    ExternFunc,
    Function,
    FunctionRef,
    LocalFunction,
    MatchCast,
    PrimValue,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    SeqExpr,
    ShapeExpr,
    StringValue,
    Tuple,
    TupleGetItem,
    VarBinding,
    is_atom,
)
from tilewright.relax.registry import RelaxOp
from tilewright.relax.struct_info import StructInfo, same_struct_info, substitute_info
from tilewright.support.errors import VerifyError

_METHODS: dict[type, str] = {
    Constant: "visit_constant_",
    Tuple: "visit_tuple_",
    DataflowVar: "visit_dataflow_var_",
    RelaxVar: "visit_var_",
    ShapeExpr: "visit_shape_expr_",
    ExternFunc: "visit_extern_func_",
    GlobalVar: "visit_global_var_",
    Function: "visit_function_",
    LocalFunction: "visit_local_function_",
    FunctionRef: "visit_function_ref_",
    RelaxCall: "visit_call_",
    SeqExpr: "visit_seq_expr_",
    If: "visit_if_",
    RelaxOp: "visit_op_",
    TupleGetItem: "visit_tuple_getitem_",
    PrimValue: "visit_prim_value_",
    StringValue: "visit_string_imm_",
}
"""The method for each kind of expression."""

_NAMES_IN_TVM = {"visit_constant_": "visit_generic_const_"}
"""Other names of methods, which count if a class defines them."""


class ExprFunctor:
    """Calls the method for a kind of expression, binding, block or variable."""

    def visit_expr(self, expr: object) -> Any:
        """Visit an expression by the method for its kind.

        Raises ``VerifyError`` for what is no expression of a graph.
        """
        for kind in type(expr).__mro__:
            if kind in _METHODS:
                span = getattr(expr, "span", None)
                if span is not None:
                    self.visit_span(span)
                return self._method(_METHODS[kind])(expr)
        raise VerifyError(f"{expr!r} is no expression of a graph")

    def _method(self, name: str) -> Any:
        other = _NAMES_IN_TVM.get(name)
        return getattr(self, other) if other and hasattr(self, other) else getattr(self, name)

    def visit_binding(self, binding: Binding) -> Any:
        """Visit a binding by the method for its kind."""
        if isinstance(binding, MatchCast):
            return self.visit_match_cast_(binding)
        assert isinstance(binding, VarBinding)
        return self.visit_var_binding_(binding)

    def visit_binding_block(self, block: BindingBlock) -> Any:
        """Visit a block by the method for its kind."""
        if isinstance(block, DataflowBlock):
            return self.visit_dataflow_block_(block)
        return self.visit_binding_block_(block)

    def visit_var_def(self, var: RelaxVar) -> Any:
        """Visit a variable where it is bound, by the method for its kind."""
        if isinstance(var, DataflowVar):
            return self.visit_dataflow_var_def_(var)
        return self.visit_var_def_(var)

    # ---- a method for each kind; subclasses override them -----------------------------------

    def visit_span(self, span: Any) -> Any:
        """Visit the place of an expression in a text, if it has one."""
        return span

    def visit_expr_fallback_(self, op: object) -> Any:
        """Visit an expression of a kind that has no method of its own."""
        raise NotImplementedError(f"{type(self).__name__} has no method for {type(op).__name__}")

    def visit_constant_(self, op: Constant) -> Any:
        """Visit a constant."""
        return self.visit_expr_fallback_(op)

    def visit_tuple_(self, op: Tuple) -> Any:
        """Visit a tuple."""
        return self.visit_expr_fallback_(op)

    def visit_var_(self, op: RelaxVar) -> Any:
        """Visit a variable where it is used."""
        return self.visit_expr_fallback_(op)

    def visit_dataflow_var_(self, op: DataflowVar) -> Any:
        """Visit a dataflow variable where it is used: as any variable."""
        return self.visit_var_(op)

    def visit_shape_expr_(self, op: ShapeExpr) -> Any:
        """Visit a shape."""
        return self.visit_expr_fallback_(op)

    def visit_extern_func_(self, op: ExternFunc) -> Any:
        """Visit a function of a library."""
        return self.visit_expr_fallback_(op)

    def visit_global_var_(self, op: GlobalVar) -> Any:
        """Visit the name of a function of the module."""
        return self.visit_expr_fallback_(op)

    def visit_function_ref_(self, op: FunctionRef) -> Any:
        """Visit a function as an operand: what it names."""
        return self.visit_expr(op.callee)

    def visit_function_(self, op: Function) -> Any:
        """Visit a graph function."""
        return self.visit_expr_fallback_(op)

    def visit_local_function_(self, op: LocalFunction) -> Any:
        """Visit a function inside of a function."""
        return self.visit_expr(op.func)

    def visit_call_(self, op: RelaxCall) -> Any:
        """Visit a call."""
        return self.visit_expr_fallback_(op)

    def visit_seq_expr_(self, op: SeqExpr) -> Any:
        """Visit the body of a function or branch."""
        return self.visit_expr_fallback_(op)

    def visit_if_(self, op: If) -> Any:
        """Visit an ``If``."""
        return self.visit_expr_fallback_(op)

    def visit_op_(self, op: RelaxOp) -> Any:
        """Visit an operator."""
        return self.visit_expr_fallback_(op)

    def visit_tuple_getitem_(self, op: TupleGetItem) -> Any:
        """Visit an item of a tuple."""
        return self.visit_expr_fallback_(op)

    def visit_prim_value_(self, op: PrimValue) -> Any:
        """Visit a scalar."""
        return self.visit_expr_fallback_(op)

    def visit_string_imm_(self, op: StringValue) -> Any:
        """Visit a text."""
        return self.visit_expr_fallback_(op)

    def visit_var_binding_(self, binding: VarBinding) -> Any:
        """Visit ``var = value``."""
        raise NotImplementedError(f"{type(self).__name__} must define visit_var_binding_")

    def visit_match_cast_(self, binding: MatchCast) -> Any:
        """Visit a cast."""
        raise NotImplementedError(f"{type(self).__name__} must define visit_match_cast_")

    def visit_binding_block_(self, block: BindingBlock) -> Any:
        """Visit a block."""
        raise NotImplementedError(f"{type(self).__name__} must define visit_binding_block_")

    def visit_dataflow_block_(self, block: DataflowBlock) -> Any:
        """Visit a dataflow block: as any block."""
        return self.visit_binding_block_(block)

    def visit_var_def_(self, var: RelaxVar) -> Any:
        """Visit a variable where it is bound."""
        return var

    def visit_dataflow_var_def_(self, var: DataflowVar) -> Any:
        """Visit a dataflow variable where it is bound."""
        return var


def _children(expr: object) -> Iterator[Any]:
    """What is directly inside of an expression."""
    if isinstance(expr, RelaxCall):
        yield expr.op
        yield from expr.args
    elif isinstance(expr, Tuple):
        yield from expr.fields
    elif isinstance(expr, TupleGetItem):
        yield expr.tuple_value
    elif isinstance(expr, If):
        yield expr.cond
        yield from expr.branches


class PyExprVisitor(ExprFunctor):
    """Visits all that is inside of an expression, in order; methods return nothing."""

    def visit_expr_fallback_(self, op: object) -> None:
        """Visit what is inside."""
        for part in _children(op):
            self.visit_expr(part)

    def visit_function_(self, op: Function) -> None:
        """Visit the parameters, and the body."""
        for param in op.params:
            self.visit_var_def(param)
        self.visit_expr(op.body)

    def visit_seq_expr_(self, op: SeqExpr) -> None:
        """Visit the blocks, and the result."""
        for block in op.blocks:
            self.visit_binding_block(block)
        self.visit_expr(op.body)

    def visit_binding_block_(self, block: BindingBlock) -> None:
        """Visit the bindings."""
        for binding in block.bindings:
            self.visit_binding(binding)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        """Visit the value, and the variable."""
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        """Visit the value, and the variable."""
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)


class PyExprMutator(ExprFunctor):
    """Rebuilds an expression from what methods return; what nothing changes stays the same object.

    ``builder_`` emits further bindings before the current one, and holds the module's functions.
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        self.builder_ = BlockBuilder(mod)
        self._remap: dict[Any, Any] = {}
        self._values: dict[RelaxVar, RelaxExpr] = {}

    def set_var_remap(self, old_var: RelaxVar, new_var: RelaxVar) -> None:
        """Let uses of ``old_var`` be uses of ``new_var``."""
        self._remap[old_var] = new_var

    def get_var_remap(self, var: RelaxVar) -> RelaxVar:
        """Return what stands for a variable: another one, or itself."""
        made: RelaxVar = self._remap.get(var, var)
        return made

    def lookup_binding(self, var: RelaxVar) -> RelaxExpr | None:
        """Return what a variable of the new function is bound to, if that was built already."""
        return self._values.get(var) or self.builder_.lookup_binding(var)

    def with_type(self, var: RelaxVar, ty: StructInfo) -> RelaxVar:
        """Return a variable with other struct info: the same one if that is equal."""
        return var if same_struct_info(var.struct_info, ty) else type(var)(var.name, ty)

    with_struct_info = with_type

    def visit_expr_post_order(self, expr: object) -> Any:
        """Rebuild what is inside of an expression, then the expression itself."""
        if isinstance(expr, RelaxCall):
            op = self.visit_expr(expr.op)
            args = tuple(map(self._operand, expr.args))
            same = op is expr.op and all(a is b for a, b in zip(args, expr.args))
            return expr if same else self._resolved(expr.replace(op=op, args=args))
        if isinstance(expr, Tuple):
            items = tuple(map(self._operand, expr.fields))
            return expr if all(a is b for a, b in zip(items, expr.fields)) else Tuple(items)
        if isinstance(expr, TupleGetItem):
            value = self._operand(expr.tuple_value)
            return expr if value is expr.tuple_value else TupleGetItem(value, expr.index)
        return expr if isinstance(expr, (RelaxOp, GlobalVar)) else self._resolved(expr)

    def visit_expr_fallback_(self, op: object) -> Any:
        """Rebuild what is inside."""
        return self.visit_expr_post_order(op)

    def _operand(self, expr: RelaxExpr) -> RelaxExpr:
        made: RelaxExpr = self.visit_expr(expr)
        return made if is_atom(made) else self.builder_.emit(made)

    def _resolved(self, expr: Any) -> Any:
        """New symbolic extents for old ones."""
        symbols = {k: v for k, v in self._remap.items() if not isinstance(k, RelaxVar)}
        return substitute(expr, symbols) if symbols else expr

    def visit_var_(self, op: RelaxVar) -> Any:
        """Return what stands for a variable."""
        return self.get_var_remap(op)

    def visit_function_ref_(self, op: FunctionRef) -> Any:
        """Rebuild what a function as an operand names."""
        made = self.visit_expr(op.callee)
        return op if made is op.callee else FunctionRef(made)

    def visit_local_function_(self, op: LocalFunction) -> Any:
        """Rebuild a function inside of a function."""
        made = self.visit_expr(op.func)
        return op if made is op.func else LocalFunction(made)

    def visit_if_(self, op: If) -> Any:
        """Rebuild the condition, and the branches."""
        cond = self._operand(op.cond)
        branches = tuple(map(self.visit_with_new_scope, op.branches))
        same = cond is op.cond and all(a is b for a, b in zip(branches, op.branches))
        return op if same else If(cond, *branches)

    def visit_function_(self, op: Function) -> Any:
        """Rebuild the parameters, and the body."""
        params = tuple(map(self.visit_var_def, op.params))
        for old, new in zip(op.params, params):
            if old is not new:
                self.set_var_remap(old, new)
        body = self.visit_with_new_scope(op.body)
        if body is op.body and all(a is b for a, b in zip(params, op.params)):
            return op
        return Function(params, body, body.struct_info, attrs=op.attrs)

    def visit_with_new_scope(self, expr: object) -> Any:
        """Rebuild an expression with bindings of its own: what it emits is a part of it."""
        made, block = self.builder_.build_block(lambda: self.visit_expr(expr))
        if not isinstance(made, SeqExpr):
            made = SeqExpr((), made)
        return made.replace(blocks=(block, *made.blocks)) if block.bindings else made

    def visit_seq_expr_(self, op: SeqExpr) -> Any:
        """Rebuild the blocks, and the result."""
        blocks = [self.visit_binding_block(block) for block in op.blocks]
        body, last = self.builder_.build_block(lambda: self._operand(op.body))
        if last.bindings:
            blocks.append(last)
        kept = tuple(block for block in blocks if block.bindings)
        same = body is op.body and len(kept) == len(op.blocks)
        return op if same and all(map(_is, kept, op.blocks)) else SeqExpr(kept, body)

    def visit_binding_block_(self, block: BindingBlock) -> Any:
        """Rebuild the bindings; returns the new block."""

        def body() -> None:
            for binding in block.bindings:
                self.visit_binding(binding)

        _, made = self.builder_.build_block(body, type(block))
        self._values.update((item.var, item.value) for item in made.bindings)
        same = len(made.bindings) == len(block.bindings)
        return block if same and all(map(_is, made.bindings, block.bindings)) else made

    def visit_var_binding_(self, binding: VarBinding) -> None:
        """Rebuild the value, bind it to the variable, and emit that."""
        value, var = self.visit_expr(binding.value), self.visit_var_def(binding.var)
        if value is binding.value and var is binding.var:
            self.builder_.emit_binding(binding)
            return
        value = self.builder_.normalize(value)
        made = self.with_type(var, value.struct_info)
        if made is not binding.var:
            self.set_var_remap(binding.var, made)
        self.builder_.emit_binding(VarBinding(made, value))

    def visit_match_cast_(self, binding: MatchCast) -> None:
        """Rebuild the value and the variable of a cast, and emit that."""
        value, var = self._operand(binding.value), self.visit_var_def(binding.var)
        if value is binding.value and var is binding.var:
            self.builder_.emit_binding(binding)
            return
        if var is not binding.var:
            self.set_var_remap(binding.var, var)
        info = substitute_info(binding.struct_info, self._remap)
        self.builder_.emit_binding(MatchCast(self.with_type(var, info), value, info))


def _is(a: object, b: object) -> bool:
    return a is b


Class = TypeVar("Class", bound=type)


def visitor(visitor_cls: Class) -> Class:
    """Declare a class of visitors; a subclass of ``PyExprVisitor`` is one without it too.

    Raises ``TypeError`` for another class.
    """
    if not issubclass(visitor_cls, PyExprVisitor):
        raise TypeError(f"{visitor_cls.__name__} must be a subclass of PyExprVisitor")
    return visitor_cls


def mutator(mutator_cls: Class) -> Class:
    """Declare a class of mutators; a subclass of ``PyExprMutator`` is one without it too.

    Raises ``TypeError`` for another class.
    """
    if not issubclass(mutator_cls, PyExprMutator):
        raise TypeError(f"{mutator_cls.__name__} must be a subclass of PyExprMutator")
    return mutator_cls


__all__ = ["ExprFunctor", "PyExprMutator", "PyExprVisitor", "mutator", "visitor"]
