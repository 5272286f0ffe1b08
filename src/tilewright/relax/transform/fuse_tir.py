"""``FuseTIR``: each fusion group becomes one tensor function.

The bodies of the group's calls are concatenated in one function; results that only the group uses
become buffers of its root block, which schedules can inline or move.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import Expr, GlobalVar, IRModule, Pass, Var, rewrite_bottom_up, substitute
from tilewright.relax.call_tir import call_tir, call_tir_operands, is_call_tir, output_infos
from tilewright.relax.expr import (
    Function,
    FunctionRef,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    ShapeExpr,
    Tuple,
)
from tilewright.relax.rewriter import FunctionRewriter
from tilewright.relax.struct_info import ShapeStructInfo, TensorStructInfo
from tilewright.relax.tensor_bridge import close_over
from tilewright.support.errors import LowerError
from tilewright.tir import (
    Block,
    Buffer,
    PrimFunc,
    Stmt,
    decl_buffer,
    fresh_name,
    make_root_block,
    renew_definitions,
    seq,
)


class FuseTIR(Pass):
    """Turn functions with attribute ``Primitive`` into tensor functions."""

    def transform(self, mod: IRModule) -> IRModule:
        """Merge every group and rewrite its calls."""
        fused: dict[str, tuple[PrimFunc, list[int]]] = {}
        for name, function in mod.functions.items():
            if isinstance(function, Function) and function.is_primitive:
                fused[name] = _Merger(mod, name, function).merge()
        if not fused:
            return mod
        rewriter = _CallRewriter(mod, {name: scalars for name, (_, scalars) in fused.items()})
        for name, (prim, _) in fused.items():
            rewriter.builder.update_func(name, prim)
        for name, function in mod.functions.items():
            if isinstance(function, Function) and not function.is_primitive:
                rewriter.builder.update_func(name, rewriter.rewrite(function))
        return rewriter.builder.get()


class _CallRewriter(FunctionRewriter):
    """``group(x, y, shape)`` becomes ``call_tir(group, (x, y), out, shape)``."""

    def __init__(self, mod: IRModule, fused: dict[str, list[int]]) -> None:
        super().__init__(mod)
        self.fused = fused

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if not (
            isinstance(value, RelaxCall)
            and isinstance(value.op, GlobalVar)
            and value.op.name in self.fused
        ):
            return value
        tensors = [arg for arg in value.args if not isinstance(arg, ShapeExpr)]
        shapes = [
            extent for arg in value.args if isinstance(arg, ShapeExpr) for extent in arg.values
        ]
        scalars = [shapes[position] for position in self.fused[value.op.name]]
        return call_tir(value.op, Tuple(tuple(tensors)), value.sinfo_args[0], scalars)


class _Merger:
    """Merges one group."""

    def __init__(self, mod: IRModule, name: str, function: Function) -> None:
        self.mod = mod
        self.name = name
        self.function = function
        self.buffers: dict[RelaxVar, Buffer] = {}
        self.block_names = {"root"}
        self.buffer_names: set[str] = set()
        self.allocated: list[Buffer] = []

    def merge(self) -> tuple[PrimFunc, list[int]]:
        """Return the tensor function, and which extents of the shape argument it takes."""
        params: list[Var] = []
        buffer_map: dict[Var, Buffer] = {}

        def add_param(buffer: Buffer) -> None:
            handle = Var(f"{buffer.name}_handle", "handle")
            params.append(handle)
            buffer_map[handle] = buffer

        for param in self.function.params:
            if isinstance(param.struct_info, TensorStructInfo):
                self.buffers[param] = self.declare(param.name, param.struct_info)
                add_param(self.buffers[param])
        result = self.function.body.body
        stmts: list[Stmt] = []
        bindings = self.function.bindings
        for binding in bindings:
            if not is_call_tir(binding.value) or not isinstance(
                binding.value.struct_info, TensorStructInfo
            ):
                raise LowerError(f"group {self.name} holds {binding.value!r}, which is no call_tir")
            info = binding.value.struct_info
            func = self.callee(binding.value)
            output = self.declare(func.buffers[-1].name, info)
            self.buffers[binding.var] = output
            if binding.var is not result:
                self.allocated.append(output)
            stmts.append(self.inline(func, binding.value))
        if not isinstance(result, RelaxVar) or result not in self.buffers:
            raise LowerError(f"group {self.name} must return one of its results")
        add_param(self.buffers[result])
        infos = [param.struct_info for param in self.function.params]
        extra = [v for info in infos if isinstance(info, ShapeStructInfo) for v in info.values]
        body = make_root_block(seq(*stmts), tuple(self.allocated))
        # Kept attributes are none: those of the parts said something of the parts only.
        prim = PrimFunc(params, body, buffer_map=buffer_map)
        prim, scalars = close_over(prim)
        return prim, [_position(scalar, extra, self.name) for scalar in scalars]

    def callee(self, call: Any) -> PrimFunc:
        ref: FunctionRef = call_tir_operands(call)[0]
        func = self.mod[ref.callee]  # type: ignore[index]
        if not isinstance(func, PrimFunc):
            raise LowerError(f"group {self.name} calls {ref.name}, which is no tensor function")
        return func

    def declare(self, name: str, info: TensorStructInfo) -> Buffer:
        return decl_buffer(info.shape, info.dtype, fresh_name(name, self.buffer_names))

    def inline(self, func: PrimFunc, call: Any) -> Stmt:
        """Return the body of a callee over the group's buffers."""
        _, args, scalars = call_tir_operands(call)
        outputs = output_infos(call)
        actual = [self.buffers[arg] for arg in args]  # type: ignore[index]
        for binding in self.function.bindings:
            if binding.value is call:
                actual.append(self.buffers[binding.var])
        assert len(outputs) == 1 and len(actual) == len(func.buffers)
        renamed: PrimFunc = renew_definitions(func)
        mapping: dict[Any, Any] = {}
        for formal, buffer in zip(renamed.buffers, actual):
            mapping[formal] = buffer
            for extent, value in zip(formal.shape, buffer.shape):
                if type(extent) is Var:
                    mapping.setdefault(extent, value)
        plain = [var for var in renamed.params if var not in renamed.buffer_map]
        given: tuple[Expr, ...] = scalars.values if scalars is not None else ()
        mapping.update(zip(plain, given))
        root = renamed.root
        for buffer in root.alloc_buffers:
            made = buffer.with_fresh_data(
                name=fresh_name(buffer.name, self.buffer_names),
                shape=tuple(substitute(extent, mapping) for extent in buffer.shape),
            )
            mapping[buffer] = made
            self.allocated.append(made)
        body = substitute(root.body, mapping)

        def rename(item: object) -> Block | object:
            if isinstance(item, Block):
                name = fresh_name(item.name, self.block_names)
                return item if name == item.name else item.replace(name=name)
            return item

        made_body: Stmt = rewrite_bottom_up(body, rename)
        return made_body


def _position(scalar: Expr, extra: list[Expr], name: str) -> int:
    for position, extent in enumerate(extra):
        if extent is scalar:
            return position
    raise LowerError(f"group {name} uses the extent {scalar!r}, which it does not get")
