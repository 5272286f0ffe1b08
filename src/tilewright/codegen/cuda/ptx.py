"""Operators of ``tir/gpu_ops.py`` as CUDA C++: calls of helpers that hold one PTX instruction each.

``PTX`` maps operators to functions that write them, ``PTX_HELPERS`` families of helpers to their
makers; the dialect of CUDA joins both to its own. Each function asks first whether the target's
architecture has the instruction. Fragments are arrays of a thread's own, which the compiler keeps
in registers where all indices are constants after unrolling.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tilewright.codegen.c import text as t
from tilewright.codegen.c.kernels import KernelEmitter, TensorMap
from tilewright.codegen.c.text import Text
from tilewright.codegen.c.vector import Value
from tilewright.codegen.cuda.ptx_helpers import (
    PTX_HELPERS,
    mma_family,
    wgmma_family,
    wmma_load_family,
    wmma_mma_family,
    wmma_store_family,
)
from tilewright.codegen.cuda.tensor_maps import COPY, operands_key, tensor_maps
from tilewright.ir import (
    Broadcast,
    Call,
    Expr,
    Ramp,
    Range,
    Var,
    as_int,
    const,
    dtypes,
    floordiv,
    floormod,
    pre_order,
)
from tilewright.support.errors import CodegenError, VerifyError
from tilewright.tir import Buffer, BufferLoad, BufferStore, PrimFunc
from tilewright.tir.fragments import WARP_SIZE, WMMA_ARCH, mma_shape, wmma_registers
from tilewright.tir.gpu_checks import check_call
from tilewright.tir.gpu_ops import (
    GPU_OPS,
    WARPGROUP_OPS,
    WMMA_OPS,
    Tile,
    is_gpu_op,
    number_operand,
    stride_between_rows,
    text_operand,
    tile_at,
)
from tilewright.tir.thread_scope import is_shared
from tilewright.tir.transform import cluster_shape

__all__ = ["PTX", "PTX_HELPERS", "FragmentEmitter", "declare_fragment", "uses_async_proxy"]

Operands = dict[str, Expr]
Writer = Callable[[Any, Operands], None]
Shape = tuple[int, int, int]


class FragmentEmitter(KernelEmitter):
    """Knows the fragments of its kernel: shapes, and the names of their registers."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.fragments = fragment_shapes(self.func)
        self.maps = tensor_maps(self.original, self.func)
        self.map_names = [self.fresh("map") for _ in self.maps.maps]
        self.in_clusters = prod(cluster_shape(self.launch)) > 1
        self.fragment_names: dict[Var, str] = {}

    def tensor_maps(self) -> tuple[TensorMap, ...]:
        """The maps, in the order of their parameters."""
        return self.maps.maps

    def map_parameters(self) -> list[str]:
        """Maps stay where they are passed: hardware reads them there."""
        kind = str(self.help("tensor_map", _WORD)).removesuffix("()") if self.map_names else ""
        return [f"const __grid_constant__ {kind} {name}" for name in self.map_names]


_WRITERS: dict[str, Writer] = {}
_WORD = "uint32"


def _writes(name: str) -> Callable[[Writer], Writer]:
    def register(function: Writer) -> Writer:
        _WRITERS[name] = function
        return function

    return register


def _written(emitter: FragmentEmitter, call: Call) -> Value:
    """Write a call as statements; there is no value."""
    try:
        check_call(call)
        operands = GPU_OPS[call.op.name].named(call)
    except VerifyError as error:
        raise CodegenError(error.message) from error
    _WRITERS[call.op.name](emitter, operands)
    return Text("0")


def _require(emitter: FragmentEmitter, what: str, capability: int) -> None:
    found = int(emitter.dialect.options["capability"])
    if found < capability:
        raise CodegenError(f"{what} needs sm_{capability} or newer; the target is sm_{found}")


def _say(emitter: FragmentEmitter, family: str, *args: str) -> None:
    emitter.line(f"{emitter.help(family, _WORD, *args)};")


# ---- addresses --------------------------------------------------------------------------------


def _start(tile: Tile) -> Expr:
    (index,) = tile.along.indices
    return index.base if isinstance(index, Ramp) else index


def _pointer(emitter: FragmentEmitter, tile: Tile) -> str:
    """Address of the first element."""
    return str(emitter.address(tile.along))


def _registers(emitter: FragmentEmitter, tile: Tile) -> str:
    """A lane's fragment as words of 32 bits (or as floats)."""
    buffer = tile.along.buffer
    kind = "float" if buffer.dtype == "float32" else emitter.dialect.register(_WORD)
    return str(t.prefix(f"({kind}*)", emitter.address(tile.along)))


def _stride(emitter: FragmentEmitter, tile: Tile) -> str:
    return str(emitter.scalar(emitter.analyzer.simplify(stride_between_rows(tile))))


# ---- fragments of ptx_mma -----------------------------------------------------------------------


@_writes("ptx_mma")
def _mma(emitter: FragmentEmitter, operands: Operands) -> None:
    shape = text_operand(operands, "shape")
    types = [text_operand(operands, f"{name}_type") for name in "abc"]
    what = f"ptx_mma {shape} of {types[0]}"
    _require(emitter, what, mma_shape(shape, types[0], types[1], types[2]).arch)
    saturate = "saturate" in operands and bool(number_operand(operands, "saturate"))
    a, b, c = (_registers(emitter, tile_at(operands[name])) for name in "abc")
    # tf32 operands are words, whatever their memory is declared as.
    if types[0] == "tf32":
        word = emitter.dialect.register(_WORD)
        a, b = (
            str(t.prefix(f"({word}*)", emitter.address(tile_at(operands[name]).along)))
            for name in "ab"
        )
    _say(emitter, mma_family(shape, types[0], types[1], types[2], saturate), c, a, b)


def _matrices(name: str, memory: str, registers: str, capability: int) -> None:
    @_writes(name)
    def write(emitter: FragmentEmitter, operands: Operands) -> None:
        _require(emitter, name, capability)
        count, trans = number_operand(operands, "num"), number_operand(operands, "trans")
        row, own = tile_at(operands[memory]), tile_at(operands[registers])
        word = emitter.dialect.register(_WORD)
        fragment = t.prefix(f"({word}*)", emitter.address(own.along))
        family = f"{name.removeprefix('ptx_')}_x{count}{'_trans' if trans else ''}"
        _say(emitter, family, str(fragment), _pointer(emitter, row))


_matrices("ptx_ldmatrix", "source", "target", 75)
_matrices("ptx_stmatrix", "target", "source", 90)


@_writes("mma_fill")
def _mma_fill(emitter: FragmentEmitter, operands: Operands) -> None:
    load = tile_at(operands["target"]).along
    lanes = dtypes.lanes_of(load.dtype)
    value = operands["value"]
    emitter.visit(
        BufferStore(load.buffer, Broadcast(value, lanes) if lanes > 1 else value, load.indices)
    )


@_writes("mma_store")
def _mma_store(emitter: FragmentEmitter, operands: Operands) -> None:
    """Each lane stores pairs of neighbours; where they lie follows from the layout of C."""
    target, source = tile_at(operands["target"]), tile_at(operands["source"])
    first, start = _start(target), _start(source)
    stride = stride_between_rows(target)
    lane = Var("lane", first.dtype)
    emitter.analyzer.bind(
        lane, Range.from_min_extent(const(0, lane.dtype), const(WARP_SIZE, lane.dtype))
    )
    index = emitter.dialect.indices["threadIdx.x"]
    name = emitter.let(f"(int)({index} % {WARP_SIZE})", lane.dtype, "lane")
    emitter.define(lane, Text(name))

    def number(value: int) -> Expr:
        return const(value, lane.dtype)

    for element in range(0, number_operand(operands, "n") // 2, 2):
        row = floordiv(lane, number(4)) + number(element % 4 // 2 * 8)
        column = floormod(lane, number(4)) * number(2) + number(element // 4 * 8)
        place = first + row * stride + column
        one = const(1, lane.dtype)
        own = start + const(element, start.dtype)
        pair = BufferLoad(source.along.buffer, (Ramp(own, const(1, start.dtype), 2),))
        emitter.visit(BufferStore(target.along.buffer, pair, (Ramp(place, one, 2),)))


# ---- fragments of wmma --------------------------------------------------------------------------


def fragment_shapes(func: PrimFunc) -> dict[Var, tuple[Shape, Tile]]:
    """The instruction's shape, and a tile, of each buffer of fragments that a kernel uses."""
    found: dict[Var, tuple[Shape, Tile]] = {}
    for item in pre_order(func.body):
        if not is_gpu_op(item) or item.op.name not in WMMA_OPS:  # type: ignore[attr-defined]
            continue
        operands = GPU_OPS[item.op.name].named(item)  # type: ignore[attr-defined,arg-type]
        m, n, k = (number_operand(operands, name) for name in "mnk")
        for name in ("fragment", "a", "b", "c", "d"):
            if name not in operands:
                continue
            tile = tile_at(operands[name])
            known = found.setdefault(tile.along.buffer.data, ((m, n, k), tile))
            if known[0] != (m, n, k):
                raise CodegenError(
                    f"fragments of {tile.along.buffer.name} are used with shapes {known[0]} and "
                    f"{(m, n, k)}; use buffers of their own"
                )
    return found


def declare_fragment(emitter: FragmentEmitter, buffer: Buffer) -> None:
    """Declare a buffer of fragments: registers of each lane, one fragment after the other."""
    if buffer.data not in emitter.fragments:
        raise CodegenError(
            f"{buffer.name} of scope {buffer.scope} is used by no operator on fragments"
        )
    shape, tile = emitter.fragments[buffer.data]
    elements = emitter.elements(buffer)
    per = tile.rows * tile.columns
    if elements is None or elements % per:
        raise CodegenError(
            f"{buffer.name} has {elements} elements, which are no whole fragments of {per}"
        )
    count = wmma_registers(buffer.dtype, buffer.scope, *shape) * (elements // per)
    kind = "float" if buffer.dtype == "float32" and buffer.scope.endswith("accumulator") else None
    kind = kind or emitter.dialect.register(_WORD)
    name = emitter.fresh(buffer.name)
    emitter.line(f"{kind} {name}[{count}];")
    emitter.fragment_names[buffer.data] = name


def _fragment(emitter: FragmentEmitter, tile: Tile) -> str:
    """Registers of the fragment that holds a tile."""
    buffer = tile.along.buffer
    shape, _ = emitter.fragments[buffer.data]
    stride = as_int(emitter.analyzer.simplify(stride_between_rows(tile)))
    if stride is None or stride % tile.columns:
        raise CodegenError(
            f"fragments of {buffer.name} don't lie side by side: rows are {stride} elements apart, "
            f"a fragment has {tile.columns} columns"
        )
    start = _start(tile)

    def number(value: int) -> Expr:
        return const(value, start.dtype)

    count = wmma_registers(buffer.dtype, buffer.scope, *shape)
    index = floordiv(start, number(stride * tile.rows)) * number(stride // tile.columns)
    index = index + floordiv(floormod(start, number(stride)), number(tile.columns))
    place = emitter.scalar(emitter.analyzer.simplify(index * number(count)))
    name = Text(emitter.fragment_names[buffer.data])
    return str(name if place == "0" else t.binary("+", name, place))


def _wmma_part(tile: Tile) -> str:
    return {"matrix_a": "a", "matrix_b": "b"}.get(tile.along.buffer.scope.partition(".")[2], "c")


def _shape(operands: Operands) -> str:
    return "".join(f"{name}{number_operand(operands, name)}" for name in "mnk")


def _space(tile: Tile) -> str:
    return "shared" if is_shared(tile.along.buffer.scope) else "global"


def _require_wmma(emitter: FragmentEmitter, dtype: str) -> None:
    _require(emitter, f"wmma of {dtype}", WMMA_ARCH.get(dtype, 70))


@_writes("tvm_fill_fragment")
def _fill(emitter: FragmentEmitter, operands: Operands) -> None:
    tile = tile_at(operands["fragment"])
    buffer = tile.along.buffer
    shape, _ = emitter.fragments[buffer.data]
    count = wmma_registers(buffer.dtype, buffer.scope, *shape)
    bits = dtypes.bits_of(buffer.dtype)
    value = str(emitter.scalar(operands["value"]))
    if not (buffer.dtype == "float32" and buffer.scope.endswith("accumulator")):
        value = emitter.named(emitter.to_bits(value, buffer.dtype), f"uint{bits}", "bits")
        word = emitter.dialect.register(_WORD)
        if bits < 32:
            value = f"({word}){value} * {0x01010101 if bits == 8 else 0x00010001}u"
    place = _fragment(emitter, tile)
    emitter.line("#pragma unroll")
    emitter.line(f"for (int r = 0; r < {count}; ++r) ({place})[r] = {value};")


@_writes("tvm_load_matrix_sync")
def _load(emitter: FragmentEmitter, operands: Operands) -> None:
    tile, source = tile_at(operands["fragment"]), tile_at(operands["source"])
    dtype, layout = tile.along.buffer.dtype, text_operand(operands, "layout")
    part = _wmma_part(tile)
    if part != "c":
        _require_wmma(emitter, dtype)
    family = wmma_load_family(part, _shape(operands), dtype, layout, _space(source))
    _say(
        emitter, family, _fragment(emitter, tile), _pointer(emitter, source),
        _stride(emitter, source),
    )  # fmt: skip


@_writes("tvm_store_matrix_sync")
def _store(emitter: FragmentEmitter, operands: Operands) -> None:
    tile, target = tile_at(operands["fragment"]), tile_at(operands["target"])
    dtype, layout = tile.along.buffer.dtype, text_operand(operands, "layout")
    family = wmma_store_family(_shape(operands), dtype, layout, _space(target))
    _say(
        emitter, family, _pointer(emitter, target), _fragment(emitter, tile),
        _stride(emitter, target),
    )  # fmt: skip


@_writes("tvm_mma_sync")
def _mma_sync(emitter: FragmentEmitter, operands: Operands) -> None:
    tiles = {name: tile_at(operands[name]) for name in "abcd"}
    dtype, total = (tiles[name].along.buffer.dtype for name in "ad")
    _require_wmma(emitter, dtype)
    layouts = [text_operand(operands, f"{name}_layout") for name in "ab"]
    family = wmma_mma_family(_shape(operands), dtype, total, layouts[0], layouts[1])
    _say(emitter, family, *(_fragment(emitter, tiles[name]) for name in "dabc"))


# ---- asynchronous copies ------------------------------------------------------------------------


@_writes("ptx_cp_async")
def _cp_async(emitter: FragmentEmitter, operands: Operands) -> None:
    _require(emitter, "ptx_cp_async", 80)
    size = number_operand(operands, "bytes")
    emitter.require_aligned(tile_at(operands["source"]).along.buffer, size)
    places = [_pointer(emitter, tile_at(operands[name])) for name in ("target", "source")]
    if "source_bytes" in operands:
        _say(emitter, f"cp_async_zfill_{size}", *places, emitter.scalar(operands["source_bytes"]))
    else:
        _say(emitter, f"cp_async_{size}", *places)


@_writes("ptx_commit_group")
def _commit(emitter: FragmentEmitter, operands: Operands) -> None:
    _require(emitter, "ptx_commit_group", 80)
    emitter.line('asm volatile("cp.async.commit_group;" ::: "memory");')


@_writes("ptx_wait_group")
def _wait(emitter: FragmentEmitter, operands: Operands) -> None:
    _require(emitter, "ptx_wait_group", 80)
    count = number_operand(operands, "in_flight")
    emitter.line(f'asm volatile("cp.async.wait_group {count};" ::: "memory");')


# ---- wgmma --------------------------------------------------------------------------------------


def _require_hopper(emitter: FragmentEmitter, what: str) -> None:
    """``wgmma`` is of sm_90a alone: GPUs that came later have other instructions."""
    if emitter.target.arch != "sm_90a":
        raise CodegenError(f"{what} needs sm_90a; the target is {emitter.target.arch}")


@_writes("ptx_wgmma")
def _wgmma(emitter: FragmentEmitter, operands: Operands) -> None:
    _require_hopper(emitter, "ptx_wgmma")
    swizzle = number_operand(operands, "swizzle")
    tiles = [tile_at(operands[name]) for name in "ab"]
    for tile in tiles:
        if tile.along.buffer.scope != "shared":
            raise CodegenError(
                f"ptx_wgmma reads {tile.along.buffer.name} of scope {tile.along.buffer.scope}; it "
                "must have scope 'shared', whose buffers are aligned for it, of whatever size"
            )
    if swizzle == 0:
        raise CodegenError(
            f"ptx_wgmma reads {tiles[0].along.buffer.name} and {tiles[1].along.buffer.name}, which "
            "are not permuted: annotate the copies to shared memory with permuted_layout"
        )
    if text_operand(operands, "turned") and swizzle != 128:
        raise CodegenError(f"turned operands of ptx_wgmma have rows of 128 bytes, not of {swizzle}")
    family = wgmma_family(
        text_operand(operands, "shape"), text_operand(operands, "a_type"),
        text_operand(operands, "c_type"), swizzle, text_operand(operands, "turned"),
    )  # fmt: skip
    _say(
        emitter, family, _registers(emitter, tile_at(operands["c"])),
        *(_pointer(emitter, tile) for tile in tiles),
    )  # fmt: skip


def _wgmma_control(name: str, text: str) -> None:
    @_writes(name)
    def write(emitter: FragmentEmitter, operands: Operands) -> None:
        _require_hopper(emitter, name)
        count = number_operand(operands, "in_flight") if operands else 0
        emitter.line(f'asm volatile("{text.format(count)}" ::: "memory");')


_wgmma_control("ptx_wgmma_fence", "wgmma.fence.sync.aligned;")
_wgmma_control("ptx_wgmma_commit_group", "wgmma.commit_group.sync.aligned;")
_wgmma_control("ptx_wgmma_wait_group", "wgmma.wait_group.sync.aligned {};")


# ---- barriers in memory -------------------------------------------------------------------------


def _on_barrier(name: str, *others: str) -> None:
    @_writes(name)
    def write(emitter: FragmentEmitter, operands: Operands) -> None:
        _require(emitter, name, 90)
        barrier = _pointer(emitter, tile_at(operands["barrier"]))
        values = [str(emitter.scalar(operands[other])) for other in others]
        _say(emitter, name.removeprefix("ptx_"), barrier, *values)


_on_barrier("ptx_init_barrier_thread_count", "count")
_on_barrier("ptx_invalidate_barrier")
_on_barrier("ptx_arrive_barrier_expect_tx", "bytes")


@_writes("ptx_arrive_barrier")
def _arrive(emitter: FragmentEmitter, operands: Operands) -> None:
    _require(emitter, "ptx_arrive_barrier", 90)
    barrier = _pointer(emitter, tile_at(operands["barrier"]))
    if "cta" in operands:
        _say(emitter, "arrive_barrier_cluster", barrier, emitter.scalar(operands["cta"]))
    else:
        _say(emitter, "arrive_barrier", barrier)


@_writes("ptx_wait_barrier")
def _wait_barrier(emitter: FragmentEmitter, operands: Operands) -> None:
    """Wait for arrivals of the block; in a cluster, of other blocks as well."""
    _require(emitter, "ptx_wait_barrier", 90)
    family = "wait_barrier_cluster" if emitter.in_clusters else "wait_barrier"
    barrier = _pointer(emitter, tile_at(operands["barrier"]))
    _say(emitter, family, barrier, emitter.scalar(operands["parity"]))


@_writes("ptx_cp_async_bulk")
def _bulk_copy(emitter: FragmentEmitter, operands: Operands) -> None:
    _require(emitter, "ptx_cp_async_bulk", 90)
    places = [
        _pointer(emitter, tile_at(operands[name])) for name in ("target", "source", "barrier")
    ]
    _say(emitter, "cp_async_bulk", *places, str(number_operand(operands, "bytes")))


@_writes("ptx_cp_async_bulk_tensor")
def _tensor_copy(emitter: FragmentEmitter, operands: Operands) -> None:
    _require(emitter, "ptx_cp_async_bulk_tensor", 90)
    target = tile_at(operands["target"])
    if target.along.buffer.scope != "shared":
        raise CodegenError(
            f"ptx_cp_async_bulk_tensor writes to {target.along.buffer.name} of scope "
            f"{target.along.buffer.scope}; it must have scope 'shared', whose buffers are aligned"
        )
    emitter.require_aligned(tile_at(operands["source"]).along.buffer, 16)
    number = emitter.maps.numbers[operands_key(operands)]
    rank = len(emitter.maps.maps[number].box)
    # Coordinates are 32-bit integers, the innermost first.
    places = [f"(int)({emitter.scalar(operands[f'at{n}'])})" for n in reversed(range(rank))]
    family, others = f"cp_async_bulk_tensor_{rank}", []
    if as_int(operands["mask"]) != 0:
        family += "_multicast"
        others = [f"(unsigned short)({emitter.scalar(operands['mask'])})"]
    _say(
        emitter, family, _pointer(emitter, target), f"&{emitter.map_names[number]}",
        _pointer(emitter, tile_at(operands["barrier"])), *others, *places,
    )  # fmt: skip


# ---- clusters -----------------------------------------------------------------------------------


def _on_cluster(name: str, text: str) -> None:
    @_writes(name)
    def write(emitter: FragmentEmitter, operands: Operands) -> None:
        _require(emitter, name, 90)
        emitter.line(f'asm volatile("{text}" ::: "memory");')


# All lanes of a warp are there, or the program can't be one whose threads all arrive.
_on_cluster("ptx_barrier_cluster_arrive", "barrier.cluster.arrive.release;")
_on_cluster("ptx_barrier_cluster_wait", "barrier.cluster.wait.acquire;")


@_writes("ptx_st_shared_cluster")
def _store_shared_cluster(emitter: FragmentEmitter, operands: Operands) -> None:
    _require(emitter, "ptx_st_shared_cluster", 90)
    load = tile_at(operands["target"]).along
    bits = dtypes.bits_of(load.dtype)
    value = str(emitter.scalar(operands["value"]))
    if dtypes.kind_of(load.dtype) != "uint":
        value = str(emitter.to_bits(value, load.dtype))
    place, cta = _pointer(emitter, tile_at(operands["target"])), emitter.scalar(operands["cta"])
    _say(emitter, f"st_shared_cluster_{bits}", place, cta, value)


@_writes("ptx_ld_shared_cluster")
def _load_shared_cluster(emitter: FragmentEmitter, operands: Operands) -> None:
    _require(emitter, "ptx_ld_shared_cluster", 90)
    target, source = (tile_at(operands[name]) for name in ("target", "source"))
    bits = dtypes.bits_of(source.along.dtype)
    place, cta = _pointer(emitter, source), emitter.scalar(operands["cta"])
    _say(emitter, f"ld_shared_cluster_{bits}", _pointer(emitter, target), place, cta)


@_writes("ptx_fence_barrier_init")
def _fence_barrier_init(emitter: FragmentEmitter, operands: Operands) -> None:
    _require(emitter, "ptx_fence_barrier_init", 90)
    emitter.line('asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");')


@_writes("ptx_setmaxnreg")
def _setmaxnreg(emitter: FragmentEmitter, operands: Operands) -> None:
    _require_hopper(emitter, "ptx_setmaxnreg")
    count = number_operand(operands, "count")
    action = "inc" if number_operand(operands, "increase") else "dec"
    emitter.line(f'asm volatile("setmaxnreg.{action}.sync.aligned.u32 {count};");')


def uses_async_proxy(func: PrimFunc) -> bool:
    """Whether a kernel has operators that access shared memory by another path than threads do."""
    names = {*WARPGROUP_OPS, COPY}
    return any(is_gpu_op(item) and item.op.name in names for item in pre_order(func.body))  # type: ignore[attr-defined]


PTX: dict[str, Callable[[Any, Call], Value]] = dict.fromkeys(_WRITERS, _written)
"""What writes each operator: the emitter and the call give text."""
