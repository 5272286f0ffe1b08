"""How operators handle images in blocked layouts (``NCHW16c``): a table.

``RULES`` says for each operator that can handle such images how its call changes; all others get
their operands in plain layout. A rule gets a call whose operands may already be blocked, and a view
of their layouts, and returns the new call with the layout of its result, or ``None`` if this call
needs plain operands. Used by ``ConvertLayout``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.ir import as_int
from tilewright.relax.expr import RelaxCall, RelaxExpr, Tuple
from tilewright.relax.ops import expand_dims, reshape
from tilewright.relax.registry import RelaxOp
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.topi.layout import Layout, is_in_blocks


@dataclass(frozen=True)
class Converted:
    """A call on blocked operands; ``layout`` is that of its result, ``None`` if plain."""

    value: RelaxExpr
    layout: Layout | None


@dataclass(frozen=True)
class Site:
    """A call with its operands in their present layouts."""

    op: RelaxOp
    args: tuple[RelaxExpr, ...]
    attrs: Mapping[str, Any]


class Operands(Protocol):
    """The rules' view of the operands' layouts."""

    def layout(self, operand: RelaxExpr) -> Layout | None:
        """The blocked layout of an operand, ``None`` if it is plain."""

    def plain_shape(self, operand: RelaxExpr) -> tuple[Any, ...] | None:
        """The shape of an operand in plain layout, if it is known."""

    def convert(self, operand: RelaxExpr, layout: Layout | None) -> RelaxExpr:
        """An image in another layout; each conversion is done once."""

    def emit(self, value: RelaxExpr) -> RelaxExpr:
        """Bind a value; one that depends only on constants is computed."""


LayoutRule = Callable[[Site, Operands], "Converted | None"]


def _with(call: Site, operands: Sequence[RelaxExpr], **attrs: object) -> RelaxCall:
    return RelaxCall(call.op, tuple(operands), {**call.attrs, **attrs})


def _first_layout(operands: Sequence[RelaxExpr], view: Operands) -> Layout | None:
    return next((made for item in operands if (made := view.layout(item)) is not None), None)


def elementwise(call: Site, view: Operands) -> Converted | None:
    """Elementwise operators with broadcasting: all operands in one layout."""
    layout = _first_layout(call.args, view)
    if layout is None:
        return None
    operands = []
    for operand in call.args:
        made = broadcast_operand(operand, layout, view)
        if made is None:
            return None
        operands.append(made)
    return Converted(_with(call, operands), layout)


def broadcast_operand(operand: RelaxExpr, layout: Layout, view: Operands) -> RelaxExpr | None:
    """Convert an operand that broadcasts to an image to the image's layout."""
    if not isinstance(operand.struct_info, TensorStructInfo) or view.layout(operand) == layout:
        return operand
    shape = view.plain_shape(operand)
    if shape is None or len(shape) > 4:
        return None
    if not shape:
        return operand
    channels = as_int(shape[-3]) if len(shape) > 2 else 1
    if channels == 1 and view.layout(operand) is None:
        return view.emit(expand_dims(operand, -1))
    if not is_in_blocks(channels, layout.block("C")):
        return None
    if len(shape) == 3:
        operand = view.emit(expand_dims(operand, 0))
    return view.convert(operand, layout)


def with_attribute(name: str) -> LayoutRule:
    """An operator on one image whose attribute ``name`` is the layout."""

    def rule(call: Site, view: Operands) -> Converted | None:
        layout = view.layout(call.args[0])
        if layout is None or call.attrs[name] != "NCHW" or call.attrs.get("out_layout"):
            return None
        return Converted(_with(call, call.args, **{name: layout.name}), layout)

    return rule


def joined(call: Site, view: Operands) -> Converted | None:
    """Concatenation: along channels, all operands must be whole blocks."""
    parts = call.args[0]
    if not isinstance(parts, Tuple):
        return None
    axis = call.attrs["axis"] % 4
    shapes = [view.plain_shape(item) for item in parts.fields]
    layouts = [made for item in parts.fields if (made := view.layout(item)) is not None]
    for layout in layouts:
        size = layout.block("C")
        channels = [as_int(shape[1]) if shape and len(shape) == 4 else None for shape in shapes]
        if all(is_in_blocks(count, size) for count in channels):
            blocks = Tuple(tuple(view.convert(item, layout) for item in parts.fields))
            return Converted(_with(call, [blocks], axis=axis), layout)
    return None


def reduction(call: Site, view: Operands) -> Converted | None:
    """Reductions over axes other than channels; the result is an image if dimensions are kept."""
    layout = view.layout(call.args[0])
    axes = call.attrs["axis"]
    if layout is None or axes is None:
        return None
    axes = tuple(axis % 4 for axis in ((axes,) if isinstance(axes, int) else axes))
    if 1 in axes:
        return None
    if call.attrs["keepdims"]:
        return Converted(_with(call, call.args, axis=axes), layout)
    if not {2, 3} <= set(axes) or view.plain_shape(call.args[0]) is None:
        return None
    # Without rows and columns, the order of channels is the plain one.
    whole = view.emit(_with(call, call.args, axis=axes, keepdims=True))
    batch, channels = (view.plain_shape(call.args[0]) or ())[:2]
    return Converted(reshape(whole, (channels,) if 0 in axes else (batch, channels)), None)


def padded(call: Site, view: Operands) -> Converted | None:
    """Padding of axes other than channels."""
    layout, widths = view.layout(call.args[0]), tuple(call.attrs["pad_width"])
    if layout is None or len(widths) != 8 or widths[2:4] != (0, 0):
        return None
    return Converted(_with(call, call.args, pad_width=(*widths, 0, 0)), layout)


_ELEMENTWISE = """
abs acos add asin astype atan ceil clip cos cosh divide equal erf exp exp2 floor floor_divide
floor_mod greater greater_equal isnan less less_equal log log1p log2 logical_and logical_not
logical_or maximum minimum mod multiply negative not_equal power reciprocal round rsqrt sigmoid sign
sin sinh sqrt square subtract tan tanh trunc where nn.gelu nn.gelu_tanh nn.hard_sigmoid
nn.hard_swish nn.leaky_relu nn.relu nn.relu6 nn.silu nn.softplus
""".split()
_POOLS = "nn.max_pool2d nn.avg_pool2d nn.adaptive_avg_pool2d nn.adaptive_max_pool2d".split()
_REDUCTIONS = "sum mean max min prod variance std all any".split()

RULES: dict[str, LayoutRule] = {
    **dict.fromkeys(_ELEMENTWISE, elementwise),
    **dict.fromkeys(_POOLS, with_attribute("layout")),
    **dict.fromkeys(_REDUCTIONS, reduction),
    "concat": joined,
    "nn.pad": padded,
}
"""The rule of each operator that works on blocked images."""
