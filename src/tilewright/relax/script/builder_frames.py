"""Frames that build graph functions: the statements of ``relax.script.ir_builder``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from tilewright.ir import GlobalVar
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.branches import If as IfExpr
from tilewright.relax.expr import Function, RelaxExpr, RelaxVar, SeqExpr, VarBinding
from tilewright.relax.script import declarations as decl
from tilewright.relax.struct_info import StructInfo
from tilewright.relax.values import as_relax
from tilewright.script.ir_builder import Frame, IRBuilder, Raised, enclosing
from tilewright.script.ir_builder.ir import IRModuleFrame
from tilewright.support.errors import VerifyError

_NAME = "main"


class FunctionFrame(Frame):
    """A graph function that is being built."""

    def __init__(self, is_pure: bool) -> None:
        self.name: str | None = None
        self.params: list[RelaxVar] = []
        self.attrs: dict[str, Any] = {}
        self.result: StructInfo | None = None
        self.output: RelaxExpr | None = None
        self.block_builder = BlockBuilder()
        self.is_pure = is_pure
        self.within = ExitStack()

    def open(self, builder: IRBuilder) -> None:
        """Let what is emitted be this function's."""
        self.within.enter_context(self.block_builder.function(_NAME, pure=self.is_pure))

    def leave(self, raised: Raised) -> None:
        """Set the result, unless the body has failed."""
        if raised[0] is not None:
            self.within.__exit__(*raised)
            return
        with self.within:
            if self.output is None:
                raise VerifyError("the function has no result: call R.func_ret_value(...)")
            self.block_builder.emit_func_output(self.output, self.params)

    def close(self, builder: IRBuilder) -> None:
        """Give the function, and those that te code has made, to the module or the builder."""
        functions = dict(self.block_builder.get().functions)
        made = functions.pop(_NAME)
        assert isinstance(made, Function)
        if self.attrs:
            made = made.with_attrs(self.attrs)
        if self.result is not None:
            made = made.replace(ret_struct_info=self.result)
        module = builder.find_frame(IRModuleFrame)
        if module is None:
            if functions:
                raise VerifyError("R.emit_te needs a module: with I.ir_module() around it")
            builder.result = made
            return
        if self.name is None:
            raise VerifyError("a function of a module needs R.func_name(...)")
        module.define(self.name, made)
        for name, function in functions.items():
            module.define(name, function)


def function(is_pure: bool = True, is_private: bool = False) -> FunctionFrame:
    """A graph function; those of a module are called by their names, private or not."""
    if not isinstance(is_private, bool):
        raise VerifyError(f"is_private is True or False, got {is_private!r}")
    return FunctionFrame(is_pure)


def _function() -> FunctionFrame:
    return enclosing(FunctionFrame, "this stands inside `with R.function():`")


def func_name(name: str) -> None:
    """Name the function in its module."""
    _function().name = name


def func_attr(attrs: Mapping[str, object]) -> None:
    """State attributes of the function."""
    _function().attrs.update(decl.func_attr(attrs).attrs)


def arg(name: str, ty: object) -> RelaxVar:
    """Add a parameter: ``x = R.arg("x", R.Tensor((4,), "float32"))``."""
    var = RelaxVar(name, decl.as_struct_info(ty))
    _function().params.append(var)
    return var


def func_ret_type(ret_ty: object) -> None:
    """State the struct info of the result, which is inferred otherwise."""
    _function().result = decl.as_struct_info(ret_ty)


def func_ret_value(value: object) -> None:
    """Set the result."""
    frame = _function()
    if frame.output is not None:
        raise VerifyError("the function has a result already")
    frame.output = as_relax(value)


# ---- bindings ---------------------------------------------------------------------------------


def emit(value: object, annotate_ty: object = None) -> RelaxVar:
    """Bind a value to a new variable; ``IRBuilder.name`` names it."""
    builder = _function().block_builder
    if annotate_ty is not None:
        return builder.match_cast(as_relax(value), decl.as_struct_info(annotate_ty))
    return builder.emit(as_relax(value))


def emit_match_cast(value: object, ty: object) -> RelaxVar:
    """Bind a value to a given struct info, checked at run time."""
    return emit(value, ty)


def emit_var_binding(value: VarBinding) -> RelaxVar:
    """Add a binding as it is, and return its variable."""
    if not isinstance(value, VarBinding):
        raise VerifyError(f"emit_var_binding takes a VarBinding, got {type(value).__name__}")
    _function().block_builder.emit_binding(value)
    return value.var


def emit_te(func: Callable[..., Any], *args: object, **named: Any) -> RelaxVar:
    """Bind what te code computes; its tensor function goes into the module."""
    return _function().block_builder.emit_te(func, *args, **named)


def call(callee: GlobalVar, args: Any, out_sinfo: object, *, pure: bool = True) -> RelaxVar:
    """Bind what a graph function of the module gives."""
    return emit(decl.call(callee, args, out_sinfo, pure=pure))


class DataflowFrame(Frame):
    """A dataflow block; ``output_vars`` are the variables that outlive it."""

    def __init__(self) -> None:
        self.output_vars: list[RelaxVar] = []
        self.within = ExitStack()

    def open(self, builder: IRBuilder) -> None:
        """Let what is emitted be in the block."""
        self.within.enter_context(_function().block_builder.dataflow())

    def leave(self, raised: Raised) -> None:
        """End the block."""
        self.within.__exit__(*raised)

    def close(self, builder: IRBuilder) -> None:
        """The function has the block already."""


def dataflow() -> DataflowFrame:
    """A block without effects: ``with R.dataflow() as block:``."""
    return DataflowFrame()


def output(*values: RelaxVar) -> None:
    """Let variables outlive the block: they are its ``output_vars``."""
    frame = enclosing(DataflowFrame, "R.output stands inside `with R.dataflow():`")
    builder = _function().block_builder
    frame.output_vars += [builder.emit_output(value, value.name) for value in values]


class IfFrame(Frame):
    """A branch; ``var`` is its result, which both cases bind last."""

    def __init__(self, condition: object) -> None:
        self.condition = as_relax(condition)
        self.cases: dict[str, SeqExpr] = {}
        self.var: RelaxVar | None = None

    def close(self, builder: IRBuilder) -> None:
        """Bind the branch."""
        if len(self.cases) != 2:
            raise VerifyError("R.If holds one R.Then() and one R.Else()")
        cases = self.cases["Then"], self.cases["Else"]
        self.var = _function().block_builder.emit(IfExpr(self.condition, *cases))


class CaseFrame(Frame):
    """One case of a branch."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.within = ExitStack()
        self.made: list[SeqExpr] = []

    def open(self, builder: IRBuilder) -> None:
        """Let what is emitted be in the case."""
        around = builder.frames[-1] if builder.frames else None
        if not isinstance(around, IfFrame) or self.name in around.cases:
            raise VerifyError(f"R.{self.name} stands once inside `with R.If(...):`")
        self.made = self.within.enter_context(_function().block_builder.branch())

    def leave(self, raised: Raised) -> None:
        """End the case."""
        self.within.__exit__(*raised)

    def close(self, builder: IRBuilder) -> None:
        """Give it to the branch."""
        around = builder.frames[-1]
        assert isinstance(around, IfFrame)
        around.cases[self.name] = self.made[0]


def If(condition: object) -> IfFrame:
    """A branch, around ``with R.Then():`` and ``with R.Else():``."""
    return IfFrame(condition)


def Then() -> CaseFrame:
    """What is computed where the condition holds."""
    return CaseFrame("Then")


def Else() -> CaseFrame:
    """What is computed where the condition does not hold."""
    return CaseFrame("Else")


func_ret_sinfo = func_ret_struct_info = func_ret_ty = func_ret_type

__all__ = [
    "DataflowFrame", "Else", "FunctionFrame", "If", "Then", "arg", "call", "dataflow", "emit",
    "emit_match_cast", "emit_te", "emit_var_binding", "func_attr", "func_name", "func_ret_sinfo",
    "func_ret_struct_info", "func_ret_ty", "func_ret_type", "func_ret_value", "function", "output",
]  # fmt: skip
