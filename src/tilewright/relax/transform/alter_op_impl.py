"""``AlterOpImpl``: tensor functions are replaced by others, whose operands lie otherwise in memory.

Conversions are inserted around each call; a conversion that undoes one before it is left out, so a
chain of replaced functions converts at its ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tilewright.ir import GlobalVar, IRModule, Pass
from tilewright.relax import ops
from tilewright.relax.analysis import remove_all_unused
from tilewright.relax.call_tir import call_tir, call_tir_operands, is_call_tir, output_infos
from tilewright.relax.expr import (
    Binding,
    Function,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    ShapeExpr,
    Tuple,
)
from tilewright.relax.extent_checks import extent_conditions, extent_values
from tilewright.relax.rewriter import FunctionRewriter
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.support.errors import VerifyError
from tilewright.support.registry import near_matches
from tilewright.tir import IndexMap, PrimFunc

Transform: TypeAlias = IndexMap | Callable[..., Any] | None
"""How a buffer of the replacement lies in memory: a map of indices, or ``None``: as before."""


class AlterOpImpl(Pass):
    """Replace the tensor functions that implement operators.

    ``op_impl_map`` gives replacements by name: that of the function's attribute ``operator_name``,
    or else the function's own, without a number at its end. ``op_buffer_transforms`` has for each
    name a map for each of the function's buffers, inputs first, from indices in the graph to those
    in the replacement (``None``: the same); the replacement's buffers have the mapped shapes.

    Memory is flat on the CPU: the last two arguments, separators of axes, may only be empty.

    Raises ``VerifyError`` if they aren't, a replacement is no tensor function, or there are not as
    many maps as it has buffers; ``transform`` if a call's dtypes aren't those of the replacement.

    Before, with ``{"relu": other}`` and ``{"relu": [lambda i, j: (j, i)] * 2}``:
        lv = R.call_tir(cls.relu, (x,), out_sinfo=R.Tensor((4, 8)))
    After:
        lv = R.layout_transform(x, index_map="lambda i, j: (j, i)")
        lv1 = R.call_tir(cls.relu_1, (lv,), out_sinfo=R.Tensor((8, 4)))
        lv2 = R.layout_transform(lv1, index_map="lambda i, j: (j, i)")
    """

    def __init__(
        self,
        op_impl_map: Mapping[str, PrimFunc],
        op_buffer_transforms: Mapping[str, Sequence[Transform]],
        op_buffer_axis_separators: Mapping[str, Any] | None = None,
        op_buffer_input_axis_separators: Mapping[str, Any] | None = None,
    ) -> None:
        if op_buffer_axis_separators or op_buffer_input_axis_separators:
            raise VerifyError("memory is flat on the CPU: there are no axis separators to set")
        for name, function in op_impl_map.items():
            if not isinstance(function, PrimFunc):
                raise VerifyError(f"{name} must be a PrimFunc, got {type(function).__name__}")
        for name, transforms in op_buffer_transforms.items():
            if name not in op_impl_map:
                raise VerifyError(
                    f"there is no implementation of {name!r} to transform buffers for; "
                    f"{near_matches(name, list(op_impl_map))}"
                )
            if len(transforms) != len(op_impl_map[name].buffers):
                raise VerifyError(
                    f"{name} has {len(op_impl_map[name].buffers)} buffers, got {len(transforms)} "
                    "transforms"
                )
        self.op_impl_map = dict(op_impl_map)
        self.op_buffer_transforms = {k: tuple(v) for k, v in op_buffer_transforms.items()}

    def transform(self, mod: IRModule) -> IRModule:
        """Rewrite every graph function that is no fusion group.

        Raises ``VerifyError`` if a replacement doesn't fit a call.
        """
        names = {
            name: _operator_name(name, function)
            for name, function in mod.functions.items()
            if isinstance(function, PrimFunc)
        }
        replaced = {name for name, operator in names.items() if operator in self.op_impl_map}
        if not replaced:
            return mod
        rewriter = _Alterer(mod, self, {name: names[name] for name in replaced})
        for name, function in mod.functions.items():
            if isinstance(function, Function) and not function.is_primitive:
                made = rewriter.rewrite(function)
                if made is not function:
                    rewriter.builder.update_func(name, remove_all_unused(made))
        return rewriter.builder.get()


def _operator_name(name: str, function: PrimFunc) -> str:
    return str(function.attrs.get("operator_name", re.sub(r"_\d+$", "", name)))


class _Alterer(FunctionRewriter):
    isolated = ("stored",)

    def __init__(self, mod: IRModule, options: AlterOpImpl, names: Mapping[str, str]) -> None:
        super().__init__(mod)
        self.options = options
        self.names = names
        self.stored: dict[RelaxExpr, tuple[RelaxVar, IndexMap]] = {}
        """Values of replaced functions as they lie in memory, and by which map."""

    def rewrite_block(self, bindings: Sequence[Binding]) -> None:
        super().rewrite_block(bindings)
        self.stored.clear()  # they are seen in their block only

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if not is_call_tir(value):
            return value
        assert isinstance(value, RelaxCall)
        ref, args, scalars = call_tir_operands(value)
        operator = self.names.get(ref.name) if isinstance(ref.callee, GlobalVar) else None
        if operator is None:
            return value
        impl = self.options.op_impl_map[operator]
        infos = output_infos(value)
        shapes = [arg.shape for arg in args] + [info.shape for info in infos]
        given = self.options.op_buffer_transforms.get(operator, (None,) * len(shapes))
        if len(given) != len(shapes):
            raise VerifyError(f"{operator} is called with {len(shapes)} tensors, not {len(given)}")
        maps = [
            item
            if item is None or isinstance(item, IndexMap)
            else IndexMap.from_func(item, len(shape))
            for item, shape in zip(given, shapes)
        ]
        made_args = tuple(map(self.laid_out, args, maps))
        out_maps = maps[len(args) :]
        outputs = [_mapped(info, index_map) for info, index_map in zip(infos, out_maps)]
        _check(operator, impl, [*(arg.struct_info for arg in made_args), *outputs], scalars)
        gvar = self.builder.add_func(impl, operator.rpartition(".")[2])
        call = call_tir(gvar, Tuple(made_args), outputs, scalars or ())
        if len(outputs) == 1:
            return self.as_before(call, out_maps[0], infos[0], var)
        whole = self.builder.emit(call)
        items = (
            self.as_before(whole[index], index_map, info, None)
            for index, (index_map, info) in enumerate(zip(out_maps, infos))
        )
        return Tuple(tuple(items))

    def laid_out(self, arg: RelaxExpr, index_map: IndexMap | None) -> RelaxExpr:
        """An operand as the replacement takes it."""
        if index_map is None:
            return arg
        known = self.stored.get(arg)
        if known is not None and known[1].is_equivalent_to(index_map):
            return known[0]
        return self.builder.emit(ops.layout_transform(arg, index_map))

    def as_before(
        self,
        made: RelaxExpr,
        index_map: IndexMap | None,
        info: TensorStructInfo,
        var: RelaxVar | None,
    ) -> RelaxExpr:
        """A result of the replacement as the graph takes it."""
        if index_map is None:
            return made
        inner = self.builder.emit(made)
        if var is not None:
            self.stored[var] = (inner, index_map)
        result: RelaxExpr = ops.layout_transform(inner, index_map.layout_inverse(info.shape))
        return result


def _mapped(info: TensorStructInfo, index_map: IndexMap | None) -> TensorStructInfo:
    if index_map is None:
        return info
    index_map.layout_inverse(info.shape)  # raises if it would add padding
    return TensorStructInfo(index_map.map_shape(info.shape), info.dtype)


def _check(operator: str, impl: PrimFunc, infos: Sequence[Any], scalars: ShapeExpr | None) -> None:
    """Raise unless a replacement takes what it is called with."""
    shapes = [info.shape for info in infos]
    name = f"the implementation of {operator}"
    values = extent_values(impl, name, shapes, scalars.values if scalars else ())
    extent_conditions(impl, name, shapes, values)
    for buffer, info in zip(impl.buffers, infos):
        if buffer.dtype != info.dtype:
            raise VerifyError(f"{name}: {buffer.name} is {buffer.dtype}, not {info.dtype}")
