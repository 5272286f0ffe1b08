"""Algorithms for convolutions, each as a tensor function, and their times in a database.

A convolution with constant filters may be computed directly or by Winograd's filtering, on plain
images or on channels in blocks. Each algorithm is a separate tensor function, and so is a layout
conversion: tuning measures them side by side (``tuning.conv_algorithms``) and records their times.
``SelectConvLayout`` and ``SelectConvAlgorithm`` look up these times (in the current database,
``with database:``) before they estimate; a build itself measures nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tilewright import topi
from tilewright.arith import simplify
from tilewright.ir import Expr, IRModule, as_int, free_vars, pass_option, substitute
from tilewright.ir import const as int_const
from tilewright.meta_schedule.database import Database, TuningRecord, measured_alike
from tilewright.meta_schedule.database.record import normalized
from tilewright.relax.block_builder import BlockBuilder
from tilewright.relax.expr import Constant, Function, RelaxCall, RelaxExpr, RelaxVar
from tilewright.relax.registry import is_call_to
from tilewright.relax.struct_info import TensorStructInfo
from tilewright.relax.transform.convert_layout import ConvertLayout, Layouts
from tilewright.relax.transform.legalize_ops import legalize_call
from tilewright.relax.values import const, numpy_dtype
from tilewright.target import Target
from tilewright.tir import PrimFunc
from tilewright.tir.attrs import LAYOUT_FREE
from tilewright.topi.layout import Layout, layout_of

#: Error of F(m x m, 3 x 3) in float32 by ``m``: what up to 2048 channels show, with a margin.
WINOGRAD_ERRORS = {2: 2e-6, 4: 1e-5}
MAX_ERROR = pass_option(
    "relax.conv_max_error",
    float,
    1e-5,
    "Error that a faster algorithm may add to a convolution, relative to its largest result. Such "
    "an algorithm adds inputs before it multiplies, so an infinity, a NaN or a number near the "
    "largest float spoils all results of its tiles; with 0, only those that are made of it.",
)
#: The operator that brings an image into another layout.
CONVERSION = "layout_transform"

# Rows and columns of inputs that come with the call.
_USUAL = 224
# By how much of its time Winograd's way must beat the direct one, which rounds less.
_MARGIN = 0.02


def allowed_tiles(max_error: float = MAX_ERROR.default) -> list[int]:
    """Return the Winograd tiles within the error limit; the pass option overrides the argument."""
    bound = MAX_ERROR.value(max_error)
    return [tile for tile, error in WINOGRAD_ERRORS.items() if error <= bound]


def usual_extent(extent: Expr) -> int:
    """An extent; if it comes with the call, that of inputs of usual size."""
    usual = {var: int_const(_USUAL, var.dtype) for var in free_vars(extent)}
    found = as_int(simplify(substitute(extent, usual)) if usual else extent)
    return 1 if found is None else found


def conv_layouts(call: RelaxCall) -> tuple[Layout, Layout, Layout]:
    """Return the layouts of a convolution's image, filters and result."""
    data, kernel, out = (call.attrs[f"{name}_layout"] for name in ("data", "kernel", "out"))
    return layout_of(data), layout_of(kernel), layout_of(out or data)


class ConvolutionSizes(NamedTuple):
    """Images, channels of each, filters, and rows and columns of the result."""

    batch: int
    channels: int
    filters: int
    height: int
    width: int


def winograd_sizes(call: RelaxCall) -> ConvolutionSizes | None:
    """Return the sizes of a convolution that Winograd's algorithm may compute.

    ``None`` unless channels are constant and the convolution has a dense 3 x 3 window of stride one
    in float32. A batch that is known only with the call counts as one image, rows and columns as
    those of inputs of usual size.
    """
    infos = [item.struct_info for item in (call.args[0], call.args[1], call)]
    data, weight, out = (info if isinstance(info, TensorStructInfo) else None for info in infos)
    if data is None or weight is None or out is None:
        return None
    if not data.has_shape or data.dtype != "float32" or call.attrs["groups"] != 1:
        return None
    if not _all_ones(call.attrs["strides"]) or not _all_ones(call.attrs["dilation"]):
        return None
    image, kernel, made = conv_layouts(call)
    x, w, y = image.extents(data.shape), kernel.extents(weight.shape), made.extents(out.shape)
    if as_int(w["H"]) != 3 or as_int(w["W"]) != 3:
        return None
    batch = as_int(x["N"])
    channels, filters = as_int(x["C"]), as_int(w["O"])
    rows, columns = usual_extent(y["H"]), usual_extent(y["W"])
    if not (batch or batch is None) or not (channels and filters and rows and columns):
        return None
    return ConvolutionSizes(1 if batch is None else batch, channels, filters, rows, columns)


def winograd_serves(call: RelaxCall, target: Target) -> bool:
    """Whether there is a Winograd kernel for a convolution: its channels fill vectors."""
    sizes = winograd_sizes(call)
    lanes = target.vector_lanes(32)
    return sizes is not None and sizes[1] % lanes == 0 and sizes[2] % lanes == 0


def _all_ones(value: int | Sequence[int]) -> bool:
    return all(item == 1 for item in ((value,) if isinstance(value, int) else value))


def emit_winograd(
    builder: BlockBuilder, call: RelaxCall, data: RelaxExpr, weight: RelaxExpr, tile: int
) -> RelaxExpr:
    """Return a convolution as a call of the Winograd function; the filters are transformed."""
    image, _, out = conv_layouts(call)
    return builder.call_te(
        topi.nn.conv2d_winograd_without_weight_transform,
        data,
        weight,
        call.attrs["padding"],
        tile,
        image.name,
        out.name,
        primfunc_name_hint="conv2d_winograd",
        primfunc_key="conv2d_winograd",
    )


# ---- tensor functions ----------------------------------------------------------------------------


def operator_task(call: RelaxCall) -> IRModule | None:
    """Return the tensor function of a single operator, as a tuning task.

    Constants become operands that may be packed. ``None`` if sizes aren't constant.
    """
    infos = _fixed_infos(*call.args)
    if infos is None:
        return None
    builder = BlockBuilder()
    operands = [RelaxVar(f"x{number}", info) for number, info in enumerate(infos)]
    legalize_call(builder, RelaxCall(call.op, tuple(operands), call.attrs))
    constants = [n for n, arg in enumerate(call.args) if isinstance(arg, Constant)]
    return _only_function(builder, constants)


def winograd_task(call: RelaxCall, tile: int) -> IRModule | None:
    """Return the tensor function of a convolution by Winograd's F(m x m, 3 x 3)."""
    sizes, infos = winograd_sizes(call), _fixed_infos(call.args[0])
    if sizes is None or infos is None:
        return None
    builder = BlockBuilder()
    filters = TensorStructInfo((tile + 2, tile + 2, sizes[1], sizes[2]), "float32")
    emit_winograd(builder, call, RelaxVar("x0", infos[0]), RelaxVar("x1", filters), tile)
    return _only_function(builder, [1])


def _fixed_infos(*operands: RelaxExpr) -> list[TensorStructInfo] | None:
    """Struct info of the operands, if all are tensors of constant size."""
    infos = [
        item.struct_info for item in operands if isinstance(item.struct_info, TensorStructInfo)
    ]
    if len(infos) != len(operands) or not all(info.has_shape for info in infos):
        return None
    if any(as_int(extent) is None for info in infos for extent in info.shape):
        return None
    return infos


def _only_function(builder: BlockBuilder, constants: list[int]) -> IRModule | None:
    functions = [f for f in builder.get().functions.values() if isinstance(f, PrimFunc)]
    if len(functions) != 1:
        return None
    (func,) = functions
    return normalized(func.with_attr(LAYOUT_FREE, constants) if constants else func)


def standing_alone(call: RelaxCall, layouts: Layouts) -> list[RelaxCall]:
    """Return a convolution in given layouts, between images in plain layout.

    That is the convolution (with converted filters) and the conversions around it.
    """
    data, filters = call.args[0].struct_info, call.args[1].struct_info
    assert isinstance(filters, TensorStructInfo)
    shape = [as_int(extent) or 1 for extent in filters.shape]
    weight = const(np.zeros(shape, numpy_dtype(filters.dtype)))
    builder = BlockBuilder()
    image = RelaxVar("x", data)
    with builder.function("main", [image]):
        with builder.dataflow():
            result = builder.emit_output(RelaxCall(call.op, (image, weight), call.attrs))
        builder.emit_func_output(result)
    converted = ConvertLayout(lambda _: layouts)(builder.get())["main"]
    assert isinstance(converted, Function)
    values = [binding.value for binding in converted.bindings]
    return [value for value in values if isinstance(value, RelaxCall) and _is_operator(value)]


def _is_operator(call: RelaxCall) -> bool:
    return is_call_to(call, "nn.conv2d") or is_call_to(call, CONVERSION)


# ---- what is known -------------------------------------------------------------------------------


class MeasuredTimes:
    """Times of operators in seconds, from the records of a database where it has any.

    They are compared, so all were measured with cold caches, or all with warm ones: as the first
    convolution, all of its algorithms if possible.
    """

    def __init__(self, target: Target, database: Database | None = None) -> None:
        self.database = Database.current() if database is None else database
        self.target = target
        self._tasks: dict[tuple[object, ...], IRModule | None] = {}
        self._known: dict[tuple[object, ...], float | None] = {}
        self._cold: bool | None = None

    def of(self, call: RelaxCall, tile: int | None = None) -> float | None:
        """Return the time of an operator; with ``tile`` that of a Winograd convolution."""
        key, task = self._task(call, tile)
        if key not in self._known:
            self._known[key] = None if task is None else self._recorded(task)
        return self._known[key]

    def _task(
        self, call: RelaxCall, tile: int | None
    ) -> tuple[tuple[object, ...], IRModule | None]:
        """What an operator is known by, and its task if it has one."""
        infos = None if self.database is None else _fixed_infos(*call.args)
        if infos is None:
            return (), None
        key = (
            call.op,
            tuple((tuple(map(as_int, info.shape)), info.dtype) for info in infos),
            repr(call.attrs),
            tile,
        )
        if key not in self._tasks:
            self._tasks[key] = operator_task(call) if tile is None else winograd_task(call, tile)
        return key, self._tasks[key]

    def _recorded(self, task: IRModule) -> float | None:
        record = self._best(task)
        if record is None:
            return None
        if self._cold is None:
            self._cold = record.cold
        if record.cold != self._cold:
            record = self._best(task, cold=self._cold)
        return None if record is None else record.best_seconds

    def _best(self, task: IRModule, *, cold: bool | None = None) -> TuningRecord | None:
        assert self.database is not None
        known = self.database if cold is None else measured_alike(self.database, cold)
        record = known.query_tuning_record(task, self.target)
        return record if record is not None and math.isfinite(record.best_seconds) else None

    def _choose_cold_or_warm(self, call: RelaxCall, tiles: Sequence[int]) -> None:
        """Choose which times are compared, by those of a convolution's algorithms.

        Cold ones come first, so who has a warm one as its best has no other.
        """
        tasks = [self._task(call, tile)[1] for tile in (None, *tiles)]
        found = [None if task is None else self._best(task) for task in tasks]
        if tasks[0] is None or found[0] is None:
            return
        mixed = len({record.cold for record in found if record is not None}) > 1
        warm = mixed and self._best(tasks[0], cold=False) is not None
        self._cold = found[0].cold and not warm

    def best(self, call: RelaxCall, tiles: Sequence[int]) -> tuple[float, int | None] | None:
        """Return the shortest time of a convolution in its layout, and its Winograd tile, if any.

        ``None`` if the direct algorithm was never measured; unmeasured ones don't count.
        """
        tiles = tiles if winograd_serves(call, self.target) else ()
        if self._cold is None:
            self._choose_cold_or_warm(call, tiles)
        direct = self.of(call)
        if direct is None:
            return None
        best, chosen, least = direct, None, direct * (1.0 - _MARGIN)
        for tile in tiles:
            seconds = self.of(call, tile)
            if seconds is not None and seconds < least:
                best, chosen, least = seconds, tile, seconds
        return best, chosen
