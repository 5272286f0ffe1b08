"""``ConvertLayout``: converts convolutions to given layouts, and propagates these.

A layout starts at a convolution: its image, filters and result are converted to the layouts that
``desired_layouts`` names. Operators that use its result keep the layout (``layout_rules``), so
images are converted only at the graph's inputs and outputs and where an operator needs the plain
layout. Each conversion is done once; converting back returns the original value. Constants are
converted here. A convolution whose channels the blocks don't divide is unchanged, except that an
image of few channels (a model's input) may stay plain where the result gets blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir import IRModule, as_int, substitute
from tilewright.relax.analysis import used_graph_vars
from tilewright.relax.expr import (
    Binding,
    Constant,
    ConstantData,
    DataflowVar,
    MatchCast,
    RelaxCall,
    RelaxExpr,
    RelaxVar,
    SeqExpr,
    VarBinding,
)
from tilewright.relax.ops import layout_transform, reshape
from tilewright.relax.registry import RelaxOp, is_call_to
from tilewright.relax.rewriter import FunctionRewriter, GraphPass
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.relax.transform.fold_constant import fold_call
from tilewright.relax.transform.layout_rules import RULES, Converted, Site
from tilewright.support.errors import TilewrightError
from tilewright.topi.layout import Layout, image_layout, is_in_blocks, layout_of
from tilewright.topi.nn import check_groups, kernel_layout_of

Layouts = Sequence[str]
LayoutCallback = Callable[[RelaxCall], "Layouts | None"]

_IMAGE, _FILTERS = layout_of("NCHW"), layout_of("OIHW")


class ConvertLayout(GraphPass):
    """Convert convolutions to layouts with blocks of channels, and propagate them.

    ``desired_layouts`` maps ``nn.conv2d`` to the layouts of image, filters and, if it differs from
    the image's, result: ``{"nn.conv2d": ("NCHW16c", "OIHW16i16o")}``; or it is a function that
    returns them for a call, or ``None`` to leave it. ``layout_cb(call)`` returns such a dict for
    one call, and goes before ``desired_layouts``.

    Raises ``TilewrightError`` for other operators, and layouts that no convolution has.
    """

    def __init__(
        self,
        desired_layouts: Mapping[str, Layouts] | LayoutCallback,
        layout_cb: Callable[[RelaxCall], Mapping[str, Layouts]] | None = None,
    ) -> None:
        if layout_cb is not None:
            self.desired: LayoutCallback = lambda call: _named(layout_cb(call)).get(call.op.key)
        elif callable(desired_layouts):
            self.desired = desired_layouts
        else:
            named = _named(desired_layouts)
            self.desired = lambda call: named.get(call.op.key)

    def rewriter(self, mod: IRModule) -> FunctionRewriter:
        """Make the rewriter."""
        return _LayoutConverter(mod, self.desired)


def _named(desired: Mapping[str, Layouts]) -> dict[str, Layouts]:
    """Layouts by the operator's name here, checked."""
    named = {name.removeprefix("relax."): tuple(layouts) for name, layouts in desired.items()}
    if set(named) - {"nn.conv2d"}:
        raise TilewrightError(
            f"ConvertLayout converts nn.conv2d only, got layouts for {sorted(named)}"
        )
    for layouts in named.values():
        _read(layouts)
    return named  # type: ignore[return-value]  # tuples of text


def _read(layouts: Layouts) -> tuple[Layout, Layout, Layout]:
    """Layouts of image, filters and result."""
    if len(layouts) not in (2, 3):
        raise TilewrightError(
            f"nn.conv2d takes the layouts of image, filters and maybe result, got {list(layouts)}"
        )
    image = image_layout("nn.conv2d", layouts[0])
    result = image_layout("nn.conv2d", layouts[-1]) if len(layouts) == 3 else image
    return image, kernel_layout_of(layouts[1], image, result), result


def fitting_layouts(call: RelaxCall, layouts: Layouts) -> tuple[Layout, Layout, Layout] | None:
    """The desired layouts that a plain convolution can have, or ``None``."""
    image, filters, result = _read(layouts)
    data, weight = (arg.struct_info for arg in call.args)
    if not (isinstance(data, TensorStructInfo) and isinstance(weight, TensorStructInfo)):
        return None
    if not (data.has_shape and weight.has_shape) or _is_laid_out(call):
        return None
    channels, taken, count = (
        as_int(extent) for extent in (data.shape[1], weight.shape[1], weight.shape[0])
    )
    groups = call.attrs["groups"]
    if channels is None or taken is None or count is None:
        return None
    if not is_in_blocks(count, result.block("C")):
        return None
    if not is_in_blocks(channels, image.block("C")) and groups == 1:
        image = _IMAGE
    if not check_groups(channels, count, groups, image.block("C"), result.block("C")):
        return None
    blocks = {
        axis.lower(): size
        for axis, size in filters.dims
        if size and (axis == "O" or (image.block("C") > 1 and taken % size == 0))
    }
    if groups > 1 and taken == 1:
        blocks.pop("i", None)
    return image, _FILTERS.blocked(**{axis.upper(): size for axis, size in blocks.items()}), result


def _is_laid_out(call: RelaxCall) -> bool:
    """Whether a convolution already has blocked layouts."""
    attrs = call.attrs
    return (attrs["data_layout"], attrs["kernel_layout"], attrs["out_layout"] or "NCHW") != (
        "NCHW",
        "OIHW",
        "NCHW",
    )


class _LayoutConverter(FunctionRewriter):
    """Rebuilds a function; implements the ``Operands`` that layout rules see."""

    isolated = ("layouts", "versions")

    def __init__(self, mod: IRModule, desired: LayoutCallback) -> None:
        super().__init__(mod)
        self.desired = desired
        self.constants: dict[tuple[ConstantData, Layout, Layout], Constant] = {}
        self.forget()

    def forget(self) -> None:
        """Start a block of bindings, which has its own variables."""
        self.layouts: dict[RelaxVar, Layout] = {}
        self.versions: dict[tuple[RelaxVar, Layout | None], RelaxExpr] = {}

    # ---- what layout rules see --------------------------------------------------------------

    def layout(self, operand: RelaxExpr) -> Layout | None:
        return self.layouts.get(operand) if isinstance(operand, RelaxVar) else None

    def plain_shape(self, operand: RelaxExpr) -> tuple[Any, ...] | None:
        info, layout = operand.struct_info, self.layout(operand)
        if not isinstance(info, TensorStructInfo) or not info.has_shape:
            return None
        return info.shape if layout is None else tuple(layout.extents(info.shape).values())

    def convert(self, operand: RelaxExpr, layout: Layout | None) -> RelaxExpr:
        if isinstance(operand, Constant):
            return self.convert_constant(operand, _IMAGE, layout or _IMAGE)
        assert isinstance(operand, RelaxVar)
        now = self.layout(operand)
        if now == layout:
            return operand
        known = self.versions.get((operand, layout))
        if known is None:
            known = self.emit(self.conversion(operand, now or _IMAGE, layout or _IMAGE))
            self.versions[operand, layout] = known
            if isinstance(known, RelaxVar):
                self.versions[known, now] = operand
                if layout is not None:
                    self.layouts[known] = layout
        return known

    def emit(self, value: RelaxExpr) -> RelaxExpr:
        value = self.builder.normalize(value)
        folded = fold_call(value)
        return self.builder.emit(value) if folded is None else folded

    def conversion(self, operand: RelaxExpr, now: Layout, layout: Layout) -> RelaxExpr:
        """The call that converts an image (or filters)."""
        info = operand.struct_info
        assert isinstance(info, TensorStructInfo)
        extents = now.extents(info.shape)
        if as_int(extents["H"]) == as_int(extents["W"]) == 1 and now.axes == "NCHW":
            # The elements' order is the same.
            made: RelaxExpr = reshape(operand, layout.shape(extents))
        else:
            made = layout_transform(operand, now.map_to(layout))
        return made

    def convert_constant(self, constant: Constant, now: Layout, layout: Layout) -> Constant:
        if now == layout:
            return constant
        key = constant.value, now, layout
        if key not in self.constants:
            source = constant.value
            extents = now.extents(source.shape)
            shape = [as_int(extent) or 0 for extent in layout.shape(extents)]
            self.constants[key] = Constant(
                ConstantData.later(
                    shape,
                    source.dtype,
                    lambda: now.transform(source.compute(), layout),
                    [source],
                )
            )
        return self.constants[key]

    # ---- rewriting --------------------------------------------------------------------------

    def plain(self, value: RelaxExpr) -> Any:
        """A value of the old function, with all operands in plain layout."""
        blocked = {}
        for old in used_graph_vars(value):
            new = self.mapping.get(old, old)
            if self.layout(new) is not None:
                blocked[old] = self.convert(new, None)
        return substitute(value, {**self.mapping, **blocked}) if blocked else self.resolve(value)

    def rewrite_block(self, bindings: Sequence[Binding]) -> None:
        self.forget()
        super().rewrite_block(bindings)

    def rewrite_binding(self, binding: Binding) -> None:
        if isinstance(binding, MatchCast):
            value = self.plain(binding.value)
            super().rewrite_binding(binding.replace(value=value))
            return
        assert isinstance(binding, VarBinding)
        made = self.converted(binding)
        if made is None:
            value = self.plain(binding.value)
            if value is binding.value:
                self.builder.emit_binding(binding)
            else:
                self.bind(binding.var, value)
            return
        value, layout = made.value, made.layout
        if layout is not None and not isinstance(binding.var, DataflowVar):
            # What leaves a block is plain.
            inside = self.builder.emit(value)
            self.layouts[inside] = layout
            value, layout = self.convert(inside, None), None
        self.bind(binding.var, value)
        if layout is not None:
            self.layouts[self.mapping.get(binding.var, binding.var)] = layout

    def converted(self, binding: VarBinding) -> Converted | None:
        """The value of a binding on blocked operands, if it has any or gets some."""
        original = binding.value
        if not isinstance(original, RelaxCall) or not isinstance(original.op, RelaxOp):
            return None
        operands = tuple(self.resolve(arg) for arg in original.args)
        call = Site(original.op, operands, original.attrs)
        if is_call_to(original, "nn.conv2d"):
            return self.convolution(original, call)
        rule = RULES.get(original.op.key)
        used = [var for item in operands for var in used_graph_vars(item)]
        if rule is None or not any(self.layout(var) for var in used):
            return None
        return rule(call, self)

    def convolution(self, original: RelaxCall, call: Site) -> Converted | None:
        desired = self.desired(original)
        layouts = None if desired is None else fitting_layouts(original, desired)
        if layouts is None:
            return None
        image, filters, result = layouts
        data, weight = call.args
        if isinstance(weight, Constant):
            weight = self.convert_constant(weight, _FILTERS, filters)
        elif filters != _FILTERS:
            weight = self.builder.emit(layout_transform(weight, _FILTERS.map_to(filters)))
        data = self.convert(data, None if image == _IMAGE else image)
        attrs = {
            **call.attrs,
            "data_layout": image.name,
            "kernel_layout": filters.name,
            "out_layout": result.name,
        }
        made = RelaxCall(call.op, (data, weight), attrs)
        return Converted(made, None if result == _IMAGE else result)

    def rewrite_result(self, body: SeqExpr) -> RelaxExpr:
        result: RelaxExpr = self.plain(body.body)
        return result
