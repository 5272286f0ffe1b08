"""``SelectConvLayout``: chooses which convolutions use blocked layouts (``NCHW16c``).

With blocks, a vector of filters is a vector of the result: a convolution transposes nothing, and
windows read whole vectors at the edges. Converting an image costs more than one convolution gains,
so it pays off only for chains of them. The pass considers groups of convolutions connected only by
operators that keep the layout (``layout_rules``), converts each group tentatively, and keeps the
change if the convolutions gain more time than the remaining conversions take. Times in the current
database (``conv_alternatives``) are preferred to estimates.

The option ``relax.conv_layout`` says ``auto`` (the default), ``NCHW`` (never) or ``NCHWc``
(wherever blocks fit). Runs before ``SelectConvAlgorithm``, which takes convolutions in either
layout.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tilewright.ir import Expr, IRModule, Pass, as_int, pass_option
from tilewright.relax.analysis import used_graph_vars
from tilewright.relax.expr import Constant, Function, RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.registry import RelaxOp, is_call_to
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.relax.transform.conv_alternatives import (
    CONVERSION,
    MeasuredTimes,
    allowed_tiles,
    standing_alone,
    usual_extent,
)
from tilewright.relax.transform.convert_layout import ConvertLayout, Layouts, fitting_layouts
from tilewright.relax.transform.layout_rules import RULES
from tilewright.support.errors import TilewrightError
from tilewright.target import Target
from tilewright.topi.layout import layout_of

MODES = ("auto", "NCHW", "NCHWc")

# Up to so many channels are one block if vectors don't divide them.
_MOST_CHANNELS = 64

CONV_LAYOUT = pass_option(
    "relax.conv_layout", str, "auto", f"How convolutions get their channels: one of {MODES}."
)


class SelectConvLayout(Pass):
    """Convert groups of convolutions to blocks of channels where that is estimated to be faster."""

    def __init__(self, target: Target | None = None, *, mode: str = CONV_LAYOUT.default) -> None:
        self.target = target
        self.mode = mode

    def transform(self, mod: IRModule) -> IRModule:
        """Convert the graph functions of a module.

        Raises ``TilewrightError`` for an unknown mode.
        """
        mode = CONV_LAYOUT.value(self.mode)
        if mode not in MODES:
            raise TilewrightError(f"relax.conv_layout must be one of {MODES}, got {mode!r}")
        target = self.target or Target.current() or Target("native")
        if mode == "NCHW" or target.device_kind != "cpu":
            return mod
        wanted: dict[int, Layouts] = {}
        for name, function in mod.functions.items():
            if isinstance(function, Function) and not function.is_primitive:
                wanted |= _choose(mod, name, function, mode, target)
        return _converted(mod, wanted) if wanted else mod


def _converted(mod: IRModule, wanted: dict[int, Layouts]) -> IRModule:
    return ConvertLayout(lambda call: wanted.get(id(call)))(mod)


def blocked_layouts(call: RelaxCall, target: Target) -> Layouts | None:
    """Blocked layouts in which a convolution (known channels, constant filters) is fast, if any.

    Blocks are as large as a vector, or else hold all of a few channels.
    """
    data, weight, out = (item.struct_info for item in (*call.args, call))
    infos = [info for info in (data, weight, out) if isinstance(info, TensorStructInfo)]
    if len(infos) != 3 or not isinstance(call.args[1], Constant):
        return None
    image, _, result = infos
    if not image.has_shape or image.ndim != 4 or image.dtype != "float32":
        return None
    if any(as_int(info.shape[1]) is None for info in infos):
        return None
    lanes = target.vector_lanes(32)
    taken, made = (_block(as_int(info.shape[1]) or 0, lanes) for info in (image, result))
    if made == 1:
        return None
    inner = "" if taken == 1 else f"{taken}c"
    kernel = f"OIHW{made}o" if taken == 1 else f"OIHW{taken}i{made}o"
    layouts = f"NCHW{inner}", kernel, f"NCHW{made}c"
    fitting = fitting_layouts(call, layouts)
    return None if fitting is None else tuple(layout.name for layout in fitting)


def _block(channels: int, lanes: int) -> int:
    """The number of channels per block; 1 if blocks don't pay off."""
    if channels % lanes == 0:
        return lanes
    half = lanes // 2
    return channels if channels % half == 0 and channels <= _MOST_CHANNELS else 1


def _choose(
    mod: IRModule, name: str, function: Function, mode: str, target: Target
) -> dict[int, Layouts]:
    """Layouts of the convolutions to convert, by the identity of their calls."""
    wanted: dict[int, Layouts] = {}
    times, tiles = MeasuredTimes(target), allowed_tiles()
    if mode == "auto" and times.database is None and not target.has("avx512f"):
        return wanted  # the estimates are of no other CPU
    found: dict[int, tuple[RelaxCall, Layouts]] = {}
    for binding in function.bindings:
        value = binding.value
        if isinstance(value, RelaxCall) and is_call_to(value, "nn.conv2d"):
            layouts = blocked_layouts(value, target)
            if layouts is not None:
                found[id(value)] = value, layouts
    for group in _groups(function, found.keys()):
        made = {key: found[key][1] for key in group}
        if mode == "auto":
            gained = sum(_gain(*found[key], target, times, tiles) for key in group)
            converted = _converted(mod, made)[name]
            assert isinstance(converted, Function)
            if gained <= _conversion_seconds(converted, times, target):
                continue
        wanted |= made
    return wanted


def _groups(function: Function, convolutions: Iterable[int]) -> list[list[int]]:
    """Convolutions that are joined by values whose layout is kept."""
    joined: dict[RelaxVar, RelaxVar] = {}

    def root(var: RelaxVar) -> RelaxVar:
        while var in joined:
            var = joined[var]
        return var

    chosen = set(convolutions)
    place: dict[int, RelaxVar] = {}
    for binding in function.bindings:
        value = binding.value
        if not isinstance(value, RelaxCall) or not isinstance(value.op, RelaxOp):
            continue
        if id(value) in chosen:
            place[id(value)] = binding.var
        elif value.op.key not in RULES:
            continue
        for var in used_graph_vars(value):
            if _is_image(var) and root(var) is not root(binding.var):
                joined[root(var)] = root(binding.var)
    groups: dict[RelaxVar, list[int]] = {}
    for key, var in place.items():
        groups.setdefault(root(var), []).append(key)
    return list(groups.values())


def _is_image(value: RelaxExpr) -> bool:
    return isinstance(value.struct_info, TensorStructInfo) and value.struct_info.ndim == 4


def _elements(value: RelaxExpr) -> int:
    """Number of elements; of unknown batches one image, of unknown rows and columns usual ones."""
    info = value.struct_info
    assert isinstance(info, TensorStructInfo)
    return math.prod(
        [as_int(info.shape[0]) or 1, *(usual_extent(item) or 1 for item in info.shape[1:])]
    )


def _gain(
    call: RelaxCall, layouts: Layouts, target: Target, times: MeasuredTimes, tiles: Sequence[int]
) -> float:
    """Seconds that a convolution saves with blocks: measured, or else estimated."""
    plain = times.best(call, tiles)
    if plain is not None:
        (blocked,) = (c for c in standing_alone(call, layouts) if is_call_to(c, "nn.conv2d"))
        other = times.best(blocked, tiles)
        if other is not None:
            return plain[0] - other[0]
    if not target.has("avx512f"):
        return 0.0
    return _estimated_gain(call, layouts, target) / target.costs.clock


def _estimated_gain(call: RelaxCall, layouts: Layouts, target: Target) -> float:
    """Cycles that a convolution is expected to save with blocks; vectors may be partly empty."""
    filters = call.args[1].struct_info
    assert isinstance(filters, TensorStructInfo)
    taken, *window = (as_int(extent) or 1 for extent in filters.shape[1:])
    known = all(as_int(extent) is not None for extent in _image_shape(call))
    if taken == 1 and call.attrs["groups"] > 1 and known:
        return 0.0  # windows over single channels are as fast in either
    if _is_single_place(call):
        return 0.0  # filters are read once, from first to last in either
    lanes, block = target.vector_lanes(32), layout_of(layouts[-1]).block("C")
    steps = _elements(call) * taken * math.prod(window) / (target.costs.multiply_adds * lanes)
    empty = -(-block // lanes) * lanes / block - 1
    costs = target.costs
    # Windows gather and transpose where points (1 x 1) read and write vectors in either layout.
    # Vectors along rows of unknown length are cut off, those of channels are whole.
    each = costs.point_gain if window == [1, 1] and known else costs.window_gain
    return (_elements(call.args[0]) + _elements(call)) * each / costs.loads - steps * empty


def _is_single_place(call: RelaxCall) -> bool:
    """Whether a result has one pixel per image: channels times a matrix."""
    return all(as_int(extent) == 1 for extent in _image_shape(call))


def _image_shape(call: RelaxCall) -> Sequence[Expr]:
    """Rows and columns of a result."""
    info = call.struct_info
    assert isinstance(info, TensorStructInfo)
    return info.shape[2:]


def _conversion_seconds(function: Function, times: MeasuredTimes, target: Target) -> float:
    """Seconds that the conversions in a graph take: measured, or else estimated."""
    costs, total = target.costs, 0.0
    each = costs.block_change / costs.loads / costs.clock
    for binding in function.bindings:
        value = binding.value
        if isinstance(value, RelaxCall) and is_call_to(value, CONVERSION):
            known = times.of(value)
            total += each * _elements(value) if known is None else known
    return total
