"""What must hold for a call of a GPU operator, whatever runs it: shapes, dtypes, extents, scopes.

Both the interpreter and the code generator ask here, so that both refuse the same calls.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tilewright.ir import Call, Expr, as_int, dtypes
from tilewright.support.errors import VerifyError
from tilewright.tir.fragments import (
    BYTES,
    DTYPES,
    TURNED,
    TURNED_DEPTH,
    TURNED_WIDTH,
    WGMMA_TYPES,
    WMMA_SHAPES,
    fragment_sizes,
    mma_shape,
    sizes,
    wgmma_turned_tile,
)
from tilewright.tir.gpu_ops import (
    BARRIER_OPS,
    GPU_OPS,
    Tile,
    memory_uses,
    number_operand,
    tensor_box,
    text_operand,
    tile_at,
)
from tilewright.tir.thread_scope import is_shared

Operands = dict[str, Expr]
LAYOUTS = ("row_major", "col_major")
_COPIES = (4, 8, 16)


def check_call(call: Call) -> None:
    """Raise ``VerifyError`` for a call that can't mean anything."""
    op = GPU_OPS[call.op.name]
    operands = op.named(call)
    for use in memory_uses(call):
        if use.tile.rows * use.tile.columns == 0:
            raise VerifyError(f"{op.name}: {use.pointer!r} is no memory at all")
    check = _CHECKS.get(op.name)
    if check is not None:
        check(operands)
    if op.name == "ptx_cp_async_bulk_tensor":
        _tensor_copy(call, operands)


def _expect(condition: bool, op: str, rule: str, found: object) -> None:
    if not condition:
        raise VerifyError(f"{op}: {rule}; got {found!r}")


def elements(tile: Tile) -> int:
    """How many elements a tile has."""
    return tile.rows * tile.columns


def _scope(op: str, operands: Operands, name: str, *wanted: str) -> None:
    scope = tile_at(operands[name], op).along.buffer.scope
    fits = any(is_shared(scope) if item == "shared" else scope == item for item in wanted)
    _expect(fits, op, f"{name} lies in {' or '.join(wanted)} memory", scope)


def _fragment(op: str, operands: Operands, name: str, part: str) -> Tile:
    tile = tile_at(operands[name], op)
    _expect(
        tile.along.buffer.scope == f"wmma.{part}",
        op, f"{name} has scope 'wmma.{part}'", tile.along.buffer.scope,
    )  # fmt: skip
    return tile


def _shape(operands: Operands) -> tuple[int, int, int]:
    m, n, k = (number_operand(operands, name) for name in "mnk")
    return m, n, k


def _wmma_part(op: str, operands: Operands) -> tuple[str, Tile]:
    tile = tile_at(operands["fragment"], op)
    scope = tile.along.buffer.scope
    _expect(
        scope in ("wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator"),
        op, "a fragment has scope wmma.matrix_a, wmma.matrix_b or wmma.accumulator", scope,
    )  # fmt: skip
    m, n, k = _shape(operands)
    part = scope.partition(".")[2]
    extents = {"matrix_a": (m, k), "matrix_b": (k, n), "accumulator": (m, n)}[part]
    found = (tile.rows, tile.columns)
    _expect(
        found == extents or (part != "accumulator" and found == extents[::-1]),
        op, f"a fragment of {part} for m{m}n{n}k{k} has {extents[0]}x{extents[1]} elements", found,
    )  # fmt: skip
    if part != "accumulator":
        _check_wmma_shape(op, tile, (m, n, k))
    return part, tile


def _check_wmma_shape(op: str, tile: Tile, shape: tuple[int, int, int]) -> None:
    known = WMMA_SHAPES.get(tile.along.buffer.dtype, ())
    _expect(
        shape in known, op,
        f"shapes of wmma for {tile.along.buffer.dtype} are {list(known)}", shape,
    )  # fmt: skip


def _wmma_copy(op: str, other: str) -> Callable[[Operands], None]:
    def check(operands: Operands) -> None:
        part, tile = _wmma_part(op, operands)
        layout = text_operand(operands, "layout", *LAYOUTS)
        memory = tile_at(operands[other], op)
        extents = (tile.rows, tile.columns)
        if part == "accumulator" and layout == "col_major":
            extents = extents[::-1]
        _scope(op, operands, other, "shared", "global")
        _expect(
            (memory.rows, memory.columns) == extents,
            op, f"{other} is a tile of {extents[0]}x{extents[1]} elements",
            (memory.rows, memory.columns),
        )  # fmt: skip
        _expect(
            memory.along.buffer.dtype == tile.along.buffer.dtype,
            op, f"{other} has the fragment's dtype {tile.along.buffer.dtype}",
            memory.along.buffer.dtype,
        )  # fmt: skip
        if op == "tvm_store_matrix_sync":
            _expect(part == "accumulator", op, "only accumulators are stored", part)

    return check


def _wmma_mma(operands: Operands) -> None:
    op = "tvm_mma_sync"
    m, n, k = _shape(operands)
    a_layout = text_operand(operands, "a_layout", *LAYOUTS)
    b_layout = text_operand(operands, "b_layout", *LAYOUTS)
    wanted = {
        "a": ("matrix_a", (m, k) if a_layout == "row_major" else (k, m)),
        "b": ("matrix_b", (k, n) if b_layout == "row_major" else (n, k)),
        "c": ("accumulator", (m, n)),
        "d": ("accumulator", (m, n)),
    }
    for name, (part, extents) in wanted.items():
        tile = _fragment(op, operands, name, part)
        found = (tile.rows, tile.columns)
        _expect(found == extents, op, f"{name} has {extents[0]}x{extents[1]} elements", found)
    _check_wmma_shape(op, tile_at(operands["a"]), (m, n, k))


def _mma(operands: Operands) -> None:
    op = "ptx_mma"
    shape = text_operand(operands, "shape")
    text_operand(operands, "a_layout", "row")
    text_operand(operands, "b_layout", "col")
    types = {name: text_operand(operands, f"{name}_type") for name in "abc"}
    mma_shape(shape, types["a"], types["b"], types["c"])
    sizes(shape)
    for name, count in fragment_sizes(shape).items():
        tile = tile_at(operands[name], op)
        _scope(op, operands, name, "local", "warp")
        _expect(
            tile.down is None and tile.columns == count,
            op, f"{name} of {shape} is {count} neighbouring elements of each lane",
            elements(tile),
        )  # fmt: skip
        dtype = DTYPES[types[name]]
        _expect(tile.along.buffer.dtype == dtype, op, f"{name} is {dtype}", tile.along.buffer.dtype)


def _matrices(op: str) -> Callable[[Operands], None]:
    registers, shared = ("target", "source") if op == "ptx_ldmatrix" else ("source", "target")

    def check(operands: Operands) -> None:
        count = number_operand(operands, "num")
        _expect(count in (1, 2, 4), op, "num is 1, 2 or 4", count)
        number_operand(operands, "trans")
        text_operand(operands, "type", ".b16")
        _scope(op, operands, shared, "shared")
        _scope(op, operands, registers, "local", "warp")
        row, fragment = tile_at(operands[shared], op), tile_at(operands[registers], op)
        for tile, size, what in ((row, 16, "a row"), (fragment, 4 * count, "a lane's fragment")):
            found = elements(tile) * dtypes.bytes_of(tile.along.buffer.dtype)
            _expect(tile.down is None and found == size, op, f"{what} is {size} bytes", found)

    return check


def _wgmma(operands: Operands) -> None:
    op = "ptx_wgmma"
    m, n, k = sizes(text_operand(operands, "shape"))
    types = {name: text_operand(operands, f"{name}_type") for name in "abc"}
    swizzle = number_operand(operands, "swizzle")
    totals = WGMMA_TYPES.get(types["a"], ())
    depth = 32 // dtypes.bytes_of(DTYPES[types["a"]]) if totals else 0
    fits = types["b"] == types["a"] and types["c"] in totals and (m, k) == (64, depth)
    _expect(
        fits and n % (16 if types["a"] in BYTES else 8) == 0 and 8 <= n <= 256,
        op, "shapes are m64nNkK, N a multiple of 8 up to 256 and K 32 bytes, for "
        + "; ".join(f"{a} to {'/'.join(c)}" for a, c in WGMMA_TYPES.items()),
        (operands["shape"], *types.values()),
    )  # fmt: skip
    _expect(swizzle in (0, 32, 64, 128), op, "swizzle is 0, 32, 64 or 128", swizzle)
    turned = TURNED[text_operand(operands, "turned", *TURNED)]
    for name, extent, is_turned in zip("ab", (64, n), turned):
        tile = tile_at(operands[name], op)
        _scope(op, operands, name, "shared")
        _expect(
            not is_turned or (k == TURNED_DEPTH and extent % TURNED_WIDTH == 0),
            op,
            f"a turned operand has 16 bits and a multiple of {TURNED_WIDTH} rows or columns",
            (types[name], extent),
        )
        rows, columns = wgmma_turned_tile(extent) if is_turned else (extent, k)
        _expect(
            (tile.rows, tile.columns, tile.along.buffer.dtype)
            == (rows, columns, DTYPES[types[name]]),
            op, f"{name} is a tile of {rows}x{columns} {DTYPES[types[name]]}",
            (tile.rows, tile.columns, tile.along.buffer.dtype),
        )  # fmt: skip
    sums = tile_at(operands["c"], op)
    _scope(op, operands, "c", "local", "warpgroup")
    _expect(elements(sums) == n // 2, op, f"c is {n // 2} elements of each thread", sums.along)
    dtype = DTYPES[types["c"]]
    _expect(sums.along.buffer.dtype == dtype, op, f"c is {dtype}", sums.along.buffer.dtype)


def _copy(operands: Operands) -> None:
    op = "ptx_cp_async"
    size = number_operand(operands, "bytes")
    _expect(size in _COPIES, op, "bytes is 4, 8 or 16", size)
    _copied(op, operands, size)


def _copied(op: str, operands: Operands, size: int) -> None:
    """What is copied to shared memory from global memory, so many bytes."""
    _scope(op, operands, "target", "shared")
    _scope(op, operands, "source", "global")
    for name in ("target", "source"):
        tile = tile_at(operands[name], op)
        found = elements(tile) * dtypes.bytes_of(tile.along.buffer.dtype)
        _expect(found == size, op, f"{name} is {size} bytes", found)


def _barrier(op: str) -> Callable[[Operands], None]:
    def check(operands: Operands) -> None:
        tile = tile_at(operands["barrier"], op)
        _scope(op, operands, "barrier", "shared")
        _expect(
            elements(tile) == 1 and tile.along.buffer.dtype == "uint64",
            op, "a barrier is one uint64 of shared memory", tile.along,
        )  # fmt: skip
        if op == "ptx_cp_async_bulk":
            size = number_operand(operands, "bytes")
            _expect(size > 0 and size % 16 == 0, op, "bytes is a multiple of 16", size)
            _copied(op, operands, size)

    return check


def _tensor_copy(call: Call, operands: Operands) -> None:
    """What the driver and ``cp.async.bulk.tensor`` ask for, as far as it's known."""
    op = call.op.name
    if as_int(operands["barrier"]) == 0:
        raise VerifyError(
            f"{op} has no barrier: it stands in no pipeline whose copies have threads of their own"
        )
    _barrier(op)(operands)
    _scope(op, operands, "target", "shared")
    _scope(op, operands, "source", "global")
    target, source = (tile_at(operands[name], op) for name in ("target", "source"))
    dtype = source.along.buffer.dtype
    size = dtypes.bytes_of(dtype)
    _expect(target.along.buffer.dtype == dtype, op, f"target is {dtype}", target.along)
    dimensions = tensor_box(call)
    total = prod(item.box for item in dimensions)
    _expect(elements(target) == total, op, f"target is {total} elements", target.along)
    row = dimensions[-1].box * size
    _expect(row % 16 == 0, op, "a row of the box is a multiple of 16 bytes", row)
    _expect(as_int(dimensions[-1].stride) == 1, op, "rows are contiguous", dimensions[-1].stride)
    for item in dimensions[:-1]:
        stride = as_int(item.stride)
        aligned = stride is None or stride * size % 16 == 0
        _expect(aligned, op, "rows begin at multiples of 16 bytes", item.stride)
    swizzle = number_operand(operands, "swizzle")
    _expect(swizzle in (0, 32, 64, 128), op, "swizzle is 0, 32, 64 or 128", swizzle)
    _expect(not swizzle or row <= swizzle, op, f"a row is up to {swizzle} bytes", row)


def _distributed(op: str) -> Callable[[Operands], None]:
    """An element of another block's shared memory."""

    def check(operands: Operands) -> None:
        remote, own = ("target", None) if op == "ptx_st_shared_cluster" else ("source", "target")
        _scope(op, operands, remote, "shared")
        tile = tile_at(operands[remote], op)
        _expect(elements(tile) == 1, op, f"{remote} is one element", tile.along)
        dtype = tile.along.buffer.dtype
        bits = dtypes.bits_of(dtype) * dtypes.lanes_of(dtype)
        _expect(bits in (8, 16, 32, 64), op, f"{remote} has 8, 16, 32 or 64 bits", dtype)
        if own is None:
            found = operands["value"].dtype
        else:
            _scope(op, operands, own, "local")
            target = tile_at(operands[own], op)
            _expect(elements(target) == 1, op, f"{own} is one element", target.along)
            found = target.along.buffer.dtype
        _expect(found == dtype, op, f"what it moves is {dtype}", found)

    return check


def _registers(operands: Operands) -> None:
    count = number_operand(operands, "count")
    number_operand(operands, "increase")
    _expect(
        count % 8 == 0 and 24 <= count <= 256,
        "ptx_setmaxnreg", "count is a multiple of 8 from 24 to 256", count,
    )  # fmt: skip


def _wait_group(operands: Operands) -> None:
    count = as_int(operands["in_flight"])
    _expect(
        count is not None and count >= 0,
        "a wait", "in_flight is a constant, 0 or more", operands["in_flight"],
    )  # fmt: skip


def _mma_store(operands: Operands) -> None:
    op = "mma_store"
    m, n = number_operand(operands, "m"), number_operand(operands, "n")
    _expect((m, n) == (16, 16), op, "m and n are 16", (m, n))
    tile, fragment = tile_at(operands["target"], op), tile_at(operands["source"], op)
    _expect((tile.rows, tile.columns) == (m, n), op, "target is a tile of m x n", tile.along)
    _expect(elements(fragment) == m * n // 32, op, "source is m * n / 32 elements", fragment.along)


_CHECKS: dict[str, Callable[[Operands], None]] = {
    "tvm_fill_fragment": lambda operands: _wmma_part("tvm_fill_fragment", operands) and None,
    "tvm_load_matrix_sync": _wmma_copy("tvm_load_matrix_sync", "source"),
    "tvm_store_matrix_sync": _wmma_copy("tvm_store_matrix_sync", "target"),
    "tvm_mma_sync": _wmma_mma,
    "ptx_mma": _mma,
    "ptx_ldmatrix": _matrices("ptx_ldmatrix"),
    "ptx_stmatrix": _matrices("ptx_stmatrix"),
    "ptx_wgmma": _wgmma,
    "ptx_cp_async": _copy,
    "ptx_wait_group": _wait_group,
    "ptx_wgmma_wait_group": _wait_group,
    "mma_store": _mma_store,
    "ptx_setmaxnreg": _registers,
    "ptx_st_shared_cluster": _distributed("ptx_st_shared_cluster"),
    "ptx_ld_shared_cluster": _distributed("ptx_ld_shared_cluster"),
    **{name: _barrier(name) for name in BARRIER_OPS if name != "ptx_fence_barrier_init"},
}
