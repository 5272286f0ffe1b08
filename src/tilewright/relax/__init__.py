"""The graph level: graph functions, operators, passes, execution, frontends."""

from __future__ import annotations

from tilewright.relax import interpreter, transform
from tilewright.relax import ops as op
from tilewright.relax import script as _script  # graph functions print and parse from now on
from tilewright.relax.analysis import verify_graph
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.call_tir import call_dps, call_tir
from tilewright.relax.executable import (
    Executable,
    GraphFunction,
    VirtualMachine,
    build,
    load_executable,
)
from tilewright.relax.expr import (
    Binding,
    BindingBlock,
    Constant,
    DataflowBlock,
    DataflowVar,
    ExternFunc,
    Function,
    FunctionRef,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringValue,
    Tuple,
    TupleGetItem,
    VarBinding,
    const,
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
from tilewright.relax.pipeline import PIPELINES, get_pipeline
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import (
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)

__all__ = [
    "Binding", "BindingBlock", "BlockBuilder", "Call", "Constant", "DataflowBlock", "DataflowVar",
    "Executable", "Expr", "ExternFunc", "Function", "FunctionRef", "FunctionRewriter",
    "GraphFunction", "GraphPass", "MatchCast", "ObjectStructInfo", "PIPELINES", "PrimStructInfo",
    "PrimValue", "SeqExpr", "ShapeExpr", "ShapeStructInfo", "StringValue", "StructInfo",
    "TensorStructInfo", "Tuple", "TupleGetItem", "TupleStructInfo", "Var", "VarBinding",
    "VirtualMachine", "build", "call_dps", "call_tir", "const", "get_pipeline", "interpreter",
    "load_executable", "op", "transform", "verify_graph",
]  # fmt: skip
