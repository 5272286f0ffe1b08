"""``LegalizeOps``: operators become ``call_tir`` of tensor functions made by ``topi``."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir import IRModule, const
from tilewright.relax import ops
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import (
    Constant,
    PrimValue,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    ShapeExpr,
    Tuple,
)
from tilewright.relax.ops.sampling import extents_of_image, number_dtype
from tilewright.relax.registry import RelaxOp, usual_form
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import PrimStructInfo, ShapeStructInfo, TupleStructInfo
from tilewright.relax.transform.annotate_pattern import OPAQUE
from tilewright.relax.transform.check_shapes import CheckShapes
from tilewright.relax.transform.resize_axis import resized
from tilewright.tir.attrs import FLAG, register_function_attribute
from tilewright.topi.image import resized_axes
from tilewright.topi.resampling import filter_of
from tilewright.topi.sampling import Sampling

RESHAPE = register_function_attribute(
    "relax.reshape",
    FLAG,
    means="What the function gives is its operand under another shape.",
    read_by=("relax.transform.call_tir_rewrite",),
)

LegalizeRule = Callable[[BlockBuilder, RelaxCall], RelaxExpr]

_BINARY = (
    "add subtract multiply divide floor_divide trunc_divide floor_mod mod power atan2 hypot "
    "copysign nextafter log_add_exp maximum minimum equal not_equal less less_equal greater "
    "greater_equal "
    "bitwise_and bitwise_or bitwise_xor left_shift right_shift"
).split()
IMMEDIATE_OPERANDS = dict.fromkeys((*_BINARY, "where"), ("x1", "x2"))
"""Operands that become numbers inside the tensor function if they are scalar constants."""

VIEW_OPERATORS = frozenset(("reshape", "expand_dims", "squeeze"))
"""Operators that keep the elements' order: unless fused, they need no copy in planned memory."""


class LegalizeOps(GraphPass):
    """Turn operators into calls of tensor functions.

    ``customize_legalize_map`` gives rules ``(builder, call) -> expression`` by operator name that
    override the operators' own; operators named in ``skip_ops`` are not legalised. With
    ``enable_warning`` each operator that has no rule, and so stays, is warned of once.
    """

    def __init__(
        self,
        customize_legalize_map: Mapping[str, LegalizeRule] | None = None,
        skip_ops: Sequence[str] | None = None,
        enable_warning: bool = False,
    ) -> None:
        given = customize_legalize_map or {}
        self.customize = {name.removeprefix("relax."): rule for name, rule in given.items()}
        self.skip = tuple(name.removeprefix("relax.") for name in skip_ops or ())
        self.enable_warning = enable_warning

    def transform(self, mod: IRModule) -> IRModule:
        """Legalise all functions, after asserting their operators' requirements on sizes."""
        return super().transform(CheckShapes().transform(mod))

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _Legalizer(mod, self.customize, self.skip, self.enable_warning)


class _Legalizer(FunctionRewriter):
    def __init__(
        self,
        mod: IRModule | None,
        customize: Mapping[str, LegalizeRule],
        skip: tuple[str, ...],
        warns: bool = False,
    ) -> None:
        super().__init__(mod)
        self.customize = customize
        self.skip = skip
        self.warns = warns

    def rewrite_value(self, value: RelaxExpr, var: RelaxVar) -> RelaxExpr:
        if not isinstance(value, RelaxCall) or not isinstance(value.op, RelaxOp):
            return value
        return self.legalize(value)

    def legalize(self, call: RelaxCall) -> RelaxExpr:
        op: RelaxOp = call.op
        if op.key in self.skip:
            return call
        custom = self.customize.get(op.key) or OWN_RULES.get(op.key)
        if custom is not None:
            return custom(self.builder, call)
        plain = usual_form(call)
        if plain is not None:
            return self.legalize_tree(plain)
        if op.legalize is not None:
            return self.call_topi(call)
        made = None if op.decompose is None else op.decompose(call)
        if made is not None:
            return self.legalize_tree(made)
        if self.warns:
            warnings.warn(f"no rule legalises {op.name}: it stays", stacklevel=2)
        return call

    def legalize_tree(self, expr: RelaxExpr) -> RelaxExpr:
        """Legalise a composition of operators, innermost first."""
        expr = expr.map_children(
            lambda item: self.legalize_tree(item) if isinstance(item, RelaxExpr) else item
        )
        normal = self.builder.normalize(expr)
        if isinstance(normal, RelaxCall) and isinstance(normal.op, RelaxOp):
            return self.legalize(normal)
        return normal

    def immediates(self, call: RelaxCall, arguments: dict[str, Any]) -> dict[str, Any]:
        """Scalar constants that become numbers; one value operand must stay a tensor."""
        names = IMMEDIATE_OPERANDS.get(call.op.key, ())
        found = {name: _scalar_value(arguments[name]) for name in names}
        numbers = {name: value for name, value in found.items() if value is not None}
        return numbers if len(numbers) < len(names) else {}

    def call_topi(self, call: RelaxCall) -> RelaxExpr:
        op: RelaxOp = call.op
        assert op.legalize is not None
        arguments: dict[str, Any] = dict(op.operands_of(call))
        numbers = self.immediates(call, arguments)
        for name, arg in arguments.items():
            if name in numbers:
                arguments[name] = const(numbers[name], arg.dtype)
            elif arg is not None and isinstance(arg.struct_info, ShapeStructInfo):
                arguments[name] = ShapeExpr(arg.shape)
            elif arg is not None and isinstance(arg.struct_info, PrimStructInfo):
                value = arg.struct_info.value
                arguments[name] = arg if value is None else PrimValue(value)
        made = self.builder.call_te(
            op.legalize,
            *arguments.values(),
            primfunc_name_hint=op.key.rpartition(".")[2],
            primfunc_attrs={RESHAPE: True} if op.key in VIEW_OPERATORS else None,
            primfunc_key=op.key,
            sizes_checked=True,
            **call.attrs,
        )
        if isinstance(call.struct_info, TupleStructInfo) and not isinstance(
            made.struct_info, TupleStructInfo
        ):
            return Tuple((self.builder.emit(made),))  # a tuple of one
        return made


def legalize_call(builder: BlockBuilder, call: RelaxCall, *, whole: bool = False) -> RelaxExpr:
    """Legalise one call by its operator's own rule; adds tensor functions to ``builder``.

    ``whole``: into a single function, if the operator is defined by one.
    """
    legalizer = _Legalizer(None, {}, ())
    if whole and isinstance(call.op, RelaxOp) and call.op.legalize is not None:
        legalizer.builder = builder
        return legalizer.call_topi(call)
    legalizer.builder = builder
    return legalizer.legalize(call)


def _sample_at(builder: BlockBuilder, call: RelaxCall) -> RelaxExpr:
    """Tables of places, of pixels around them and of their weights, then the sums of pixels."""
    x, grid = call.args
    sizes, method = extents_of_image(x), call.attrs["method"]
    sampling = Sampling(sizes, method, call.attrs["padding"], call.attrs["align_corners"])
    kind = number_dtype(x.dtype)
    if grid.dtype != kind:
        grid = legalize_call(builder, ops.astype(grid, kind))
    flat = legalize_call(builder, ops.reshape(x, (x.shape[0], x.shape[1], math.prod(sizes))))

    def table(function: Callable[..., object], *operands: RelaxExpr) -> RelaxExpr:
        return builder.emit_te(function, *operands, primfunc_attrs=OPAQUE)

    places = table(sampling.places, grid)
    index = table(sampling.index, places)
    if method == "nearest":
        return builder.call_te(sampling.nearest, flat, index, primfunc_name_hint="grid_sample")
    weight = table(sampling.weight, places)
    return builder.call_te(sampling.weighted, flat, index, weight, primfunc_name_hint="grid_sample")


def _resize(builder: BlockBuilder, call: RelaxCall) -> RelaxExpr:
    """For each axis tables of places and weights, then the sums of pixels."""
    x, size = call.args
    attrs, dtype = call.attrs, x.dtype
    mode = attrs["coordinate_transformation_mode"]
    how = filter_of(attrs["method"], mode, attrs["cubic_alpha"], attrs["antialias"])
    axes = resized_axes(x.shape, size.shape, attrs["layout"], mode, attrs["scale_factor"], dtype)

    def made(expr: RelaxExpr) -> RelaxExpr:
        if isinstance(expr, RelaxCall) and isinstance(expr.op, RelaxOp):
            return builder.emit(legalize_call(builder, expr))
        return expr

    if not how.picks and dtype not in ("float32", "float64"):
        x = made(ops.astype(x, "float32"))
    for number, axis in axes.items():
        x = made(resized(builder, x, number, axis, how))
    return x if x.dtype == dtype else legalize_call(builder, ops.astype(x, dtype))


def _scalar_value(expr: RelaxExpr) -> Any:
    """Return the number of a zero-dimensional constant, else ``None``."""
    if isinstance(expr, Constant) and expr.value.shape == ():
        return expr.data.item()
    return None


OWN_RULES: dict[str, LegalizeRule] = {"image.resize": _resize, "image.sample_at": _sample_at}
"""Operators that become several tensor functions."""
