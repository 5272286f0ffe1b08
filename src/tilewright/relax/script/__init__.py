"""The graph dialect: ``from tilewright.script import relax as R``.

    @I.ir_module
    class Module:
        @T.prim_func
        def relu(...): ...

        @R.function
        def main(x: R.Tensor(("n", 784), "float32"), w: R.Tensor((784, 10), "float32")):
            with R.dataflow():
                lv = R.matmul(x, w)
                gv = R.call_tir(cls.relu, (lv,), out_sinfo=R.Tensor((n, 10), "float32"))
                R.output(gv)
            return gv

Every operator of ``relax.op`` is here under its name (``R.matmul``, ``R.nn.softmax``). Constants
larger than a number print as ``metadata["..."]``; ``metadata_of(mod)`` collects them, and
``script.parse(text, {"metadata": metadata_of(mod)})`` reads the text back.
"""

from __future__ import annotations

import builtins
from types import SimpleNamespace
from typing import Any

from tilewright.ir import IRModule, Node, pre_order
from tilewright.relax import ops
from tilewright.relax.expr import Constant, ConstantData, ExternFunc, ShapeExpr, TupleGetItem
from tilewright.relax.registry import BUILDERS, builders_in
from tilewright.relax.script import printer as _printer
from tilewright.relax.script.declarations import (
    Callable,
    DataflowVar,
    Object,
    Prim,
    Shape,
    Tensor,
    Tuple,
    call,
    call_dps,
    call_dps_packed,
    call_inplace_packed,
    call_packed,
    call_pure_packed,
    call_py_func,
    call_tir,
    call_tir_inplace,
    call_tir_with_grad,
    call_with_objects,
    const,
    dataflow,
    emit,
    emit_te,
    emit_with_ty,
    extern,
    func_attr,
    invoke_pure_closure,
    match_cast,
    output,
    prim_value,
    shape,
    string,
)
from tilewright.relax.script.declarations import Var_ as Var
from tilewright.relax.script.declarations import tuple_value as tuple
from tilewright.relax.script.parser import function
from tilewright.script.allowance import (
    register_constructors,
    register_namespace,
    register_values,
    register_vocabulary,
)
from tilewright.support.later import imported_later
from tilewright.tir.attrs import CONSTANTS
from tilewright.tir.script import macro

nn = ops.nn
register_values(ConstantData)
register_constructors(ExternFunc, ShapeExpr, TupleGetItem)
register_namespace(SimpleNamespace, vars)
register_vocabulary(ops.nn)
register_vocabulary(ops.image)
register_vocabulary(ops.grad)
register_vocabulary(ops.vision)


def metadata_of(node: Node) -> dict[str, Any]:
    """Constants that the text of a module or function refers to, by their keys in ``metadata``."""
    found: dict[str, Any] = {}
    roots = [node]
    if isinstance(node, IRModule):
        lists = [value for value in node.attrs.values() if isinstance(value, builtins.tuple)]
        roots = [
            *node.functions.values(),
            *(c for v in lists for c in v if isinstance(c, Constant)),
        ]
    for root in roots:
        for item in pre_order(root):
            if isinstance(item, Constant) and item.data.ndim:
                found[_printer.constant_key(item.value)] = item
    if isinstance(node, IRModule):
        for data in node.attrs.get(CONSTANTS, {}).values():
            if isinstance(data, ConstantData):
                found[_printer.constant_key(data)] = data
    return found


_NAMESPACES = ("image", "grad", "vision")

ALIASES = {
    "Any": "Object",
    "emit_match_cast": "match_cast",
    "emit_with_sinfo": "emit_with_ty",
    "emit_with_type": "emit_with_ty",
    "str": "string",
}
"""Names of TVM, and those that the same things have here."""

_FRAMES = "tilewright.relax.script.builder_frames"
_elsewhere = imported_later(
    __name__,
    {
        **dict.fromkeys(("cpu", "cuda", "device"), "tilewright.runtime"),
        **dict.fromkeys(
            (
                "Else", "If", "Then", "arg", "emit_var_binding", "func_name", "func_ret_ty",
                "func_ret_type", "func_ret_value",
            ),
            _FRAMES,
        ),
        "py_module": "tilewright.relax.script.rewriting",
        "rewriter": "tilewright.relax.script.rewriting",
    },
)  # fmt: skip
"""Devices, rewriters, and statements of the builder, inside of ``with IRBuilder():``."""


def __getattr__(name: str) -> Any:
    """Return an operator, or a namespace of operators."""
    if not name.startswith("_"):
        if name in ALIASES:
            return globals()[ALIASES[name]]
        if name in BUILDERS:
            return BUILDERS[name]
        if name in _NAMESPACES:
            return getattr(ops, name)
        inner = builders_in(name)
        if inner:
            return SimpleNamespace(**inner)
    return _elsewhere(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *ALIASES, *builders_in(), *_NAMESPACES})


__all__ = [
    "Callable", "DataflowVar", "ExternFunc", "Object", "Prim", "Shape", "ShapeExpr", "Tensor",
    "Tuple", "TupleGetItem", "Var",
    "call", "call_dps", "call_dps_packed", "call_inplace_packed", "call_packed",
    "call_pure_packed", "call_py_func", "call_tir", "call_tir_inplace", "call_tir_with_grad",
    "call_with_objects", "const", "dataflow",
    "emit", "emit_te", "emit_with_ty", "extern", "func_attr", "function",
    "invoke_pure_closure", "macro", "match_cast", "metadata_of", "nn", "output", "prim_value",
    "shape", "string", "tuple",
]  # fmt: skip
