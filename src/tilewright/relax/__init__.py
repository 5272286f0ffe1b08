"""The graph level: graph functions, operators, passes, execution, frontends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir import DummyGlobalInfo, GlobalVar, Span
from tilewright.relax import analysis, dpl, expr_functor, gradients, interpreter, transform
from tilewright.relax import function_methods as _function_methods  # adds to `Function`
from tilewright.relax import ops as op
from tilewright.relax import script as _script  # graph functions print and parse from now on
from tilewright.relax.analysis import verify_graph
from tilewright.relax.base_py_module import BasePyModule
from tilewright.relax.binding_rewrite import DataflowBlockRewrite
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.branches import If
from tilewright.relax.call_packed import call_dps_packed, call_pure_packed
from tilewright.relax.call_tir import call_dps, call_tir, call_tir_inplace, call_tir_with_grad
from tilewright.relax.execution import global_calls as _global_calls  # what compiled graphs call
from tilewright.relax.execution import kv_cache as _kv_cache  # likewise
from tilewright.relax.execution import numpy_calls as _numpy_calls  # likewise
from tilewright.relax.execution import paged_kv_cache as _paged_kv_cache  # likewise
from tilewright.relax.execution.executable import (
    Executable,
    GraphFunction,
    as_numpy,
    build,
    load_executable,
)
from tilewright.relax.execution.virtual_machine import VirtualMachine, VMInstrumentReturnKind
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
    SeqExpr,
    ShapeExpr,
    StringValue,
    Tuple,
    TupleGetItem,
    VarBinding,
)
from tilewright.relax.expr import (
    RelaxCall as Call,
)
from tilewright.relax.expr import (
    RelaxExpr as Expr,
)
from tilewright.relax.expr import (
    RelaxVar as Var,
)
from tilewright.relax.expr_functor import ExprFunctor, PyExprMutator, PyExprVisitor
from tilewright.relax.ops.shape_values import get_shape_of
from tilewright.relax.pipeline import (
    PIPELINES,
    get_default_pipeline,
    get_pipeline,
    register_pipeline,
)
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from tilewright.relax.transform.bind_params import bind_params
from tilewright.relax.values import as_relax as convert_to_expr
from tilewright.relax.values import const, extern, prim_value
from tilewright.support.later import imported_later
from tilewright.target import VDevice

if TYPE_CHECKING:
    from tilewright.relax import backend, frontend, training
    from tilewright.relax.tuning.models import compile_relax, extract_tasks, tune_relax

# Loaded when first used: frontends, and tuning with all of meta_schedule.
_LAZY = {
    "backend": "tilewright.relax.backend",
    "frontend": "tilewright.relax.frontend",
    "training": "tilewright.relax.training",
    "compile_relax": "tilewright.relax.tuning.models",
    "extract_tasks": "tilewright.relax.tuning.models",
    "tune_relax": "tilewright.relax.tuning.models",
}

__getattr__ = imported_later(__name__, _LAZY)

# Other names of TVM's: struct infos are its types, an executable is the virtual machine's.
AnyType = ObjectType = ObjectStructInfo
FuncType = FuncStructInfo
ShapeType = ShapeStructInfo
TensorType = TensorStructInfo
TupleType = TupleStructInfo
Type = StructInfo
VMExecutable = Executable

__all__ = [
    "AnyType", "call_dps_packed", "call_pure_packed", "call_tir_inplace", "call_tir_with_grad",
    "convert_to_expr",
    "extern", "FuncType", "get_default_pipeline", "get_shape_of", "GlobalVar", "ObjectType",
    "BasePyModule",
    "prim_value", "ShapeType", "TensorType", "TupleType", "Type", "VMExecutable",
    "analysis", "as_numpy", "backend", "bind_params",
    "Binding", "BindingBlock", "BlockBuilder", "build",
    "DummyGlobalInfo", "VDevice",
    "Call", "call_dps", "call_tir", "compile_relax", "const", "Constant", "DataflowBlock",
    "DataflowBlockRewrite", "DataflowVar", "dpl", "Executable", "Expr",
    "expr_functor", "ExprFunctor", "ExternFunc", "extract_tasks", "frontend",
    "FuncStructInfo", "Function", "FunctionRef", "FunctionRewriter", "get_pipeline", "gradients",
    "GraphFunction", "GraphPass", "If", "interpreter", "load_executable", "LocalFunction",
    "MatchCast", "ObjectStructInfo", "op", "PIPELINES", "PrimStructInfo", "PrimValue",
    "PyExprMutator", "PyExprVisitor", "register_pipeline", "SeqExpr", "ShapeExpr",
    "ShapeStructInfo", "Span", "StringValue", "StructInfo",
    "TensorStructInfo", "training", "transform", "tune_relax", "Tuple", "TupleGetItem",
    "TupleStructInfo", "Var", "VarBinding", "verify_graph", "VirtualMachine",
    "VMInstrumentReturnKind",
]  # fmt: skip
