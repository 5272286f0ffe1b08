"""Operators of GPUs: matrix fragments, asynchronous copies, barriers in memory. One table.

An operand that is memory says how much of it is touched, so that every pass sees it as an access:

- ``address_of(B[i, T.Ramp(j, 1, n)])``: ``n`` neighbouring elements (one, without a ramp).
- ``tile_of(B[T.Ramp(i, 1, m), j], B[i, T.Ramp(j, 1, n)])``: a tile of ``m`` rows and ``n`` columns,
  by its first column and its first row. Once buffers are flat, the first ramp's stride is how far
  its rows lie apart.

``GpuOp.operands`` names the operands of a call; those of memory say what is done with it. The
meaning is that of the interpreter (``tir/interpreter/warp_matrix.py`` and its neighbours), the text
that of ``codegen/cuda/ptx.py``. Layouts of fragments are in ``tir/fragments.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilewright.ir import Call, Expr, Ramp, StringImm, Var, as_int, register_op
from tilewright.support.errors import VerifyError
from tilewright.tir.buffer import BufferLoad

SWIZZLE_PERIOD = 1024
"""Bytes after which the permutation of rows in shared memory repeats, at most."""
THREAD, WARP, WARPGROUP = "thread", "warp", "warpgroup"


@dataclass(frozen=True)
class GpuOp:
    """An operator: who runs it together, its operands, its meaning in a few words.

    An operand is ``name``, or ``name:r``, ``name:w``, ``name:rw`` where it is memory that is
    read, written or both; ``name?`` may be left out (memory: 0 says that there is none).
    ``synchronises`` is set where the operator orders accesses of others, which no access to
    memory tells.
    """

    name: str
    level: str
    operands: tuple[str, ...]
    doc: str
    synchronises: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the operands, in order."""
        return tuple(item.partition(":")[0].rstrip("?") for item in self.operands)

    @property
    def required(self) -> int:
        """How many operands a call has at least."""
        return sum(not item.endswith("?") for item in self.operands)

    def named(self, call: Call) -> dict[str, Expr]:
        """Operands of a call by name; raises ``VerifyError`` for a wrong number of them."""
        if not self.required <= len(call.args) <= len(self.operands):
            raise VerifyError(
                f"{self.name} takes ({', '.join(self.operands)}), got {len(call.args)} operands"
            )
        return dict(zip(self.names, call.args))


def _table(level: str, *rows: tuple[str, str, str], synchronises: bool = False) -> list[GpuOp]:
    return [
        GpuOp(name, level, tuple(operands.split()), doc, synchronises)
        for name, operands, doc in rows
    ]


_FRAGMENT_OPS = _table(
    WARP,
    ("tvm_fill_fragment", "fragment:w m n k value", "all elements of a fragment get a value"),
    (
        "tvm_load_matrix_sync", "fragment:w m n k source:r layout",
        "loads a fragment from a tile; layout is row_major or col_major",
    ),
    (
        "tvm_store_matrix_sync", "fragment:r m n k target:w layout",
        "stores an accumulator to a tile",
    ),
    (
        "tvm_mma_sync", "d:w a:r b:r c:r m n k a_layout b_layout",
        "d = a * b + c on fragments of wmma; layouts as they were loaded",
    ),
    (
        "ptx_ldmatrix", "trans num type target:w source:r",
        "loads num (1, 2, 4) 8x8 matrices of 16-bit words: lane i brings the address of row i % 8 "
        "of matrix i // 8, and gets two neighbours of row lane // 4 of each (of column, if trans)",
    ),
    (
        "ptx_stmatrix", "trans num type target:w source:r",
        "stores num 8x8 matrices of 16-bit words: the reverse of ptx_ldmatrix",
    ),
    (
        "ptx_mma", "shape a_layout b_layout a_type b_type c_type a:r b:r c:rw saturate?",
        "c = a * b + c on fragments in registers, laid out as the PTX ISA says for the shape",
    ),
    (
        "mma_store", "m n target:w source:r",
        "stores the lane's elements of an accumulator of ptx_mma, m x n of them in the warp",
    ),
)  # fmt: skip
_WARPGROUP_OPS = _table(
    WARPGROUP,
    (
        "ptx_wgmma", "shape a_type b_type c_type a:r b:r c:rw turned swizzle",
        "c = a * b^T + c, later: a (64 rows) and b (n rows) are tiles of 32 bytes of k in shared "
        "memory whose rows of swizzle (32, 64, 128) bytes are permuted as by permuted_layout (0: "
        "not yet); operands that turned ('', 'a', 'b', 'ab') names have k outermost: blocks of 16 "
        "rows, one for each k, of 64 elements (wgmma_turned_tile), of 128 bytes; c is in "
        "registers, which nobody may touch before ptx_wgmma_wait_group",
    ),
)  # fmt: skip
_THREAD_OPS = _table(
    THREAD,
    ("mma_fill", "target:w value", "elements of a thread's fragment get a value"),
    (
        "ptx_cp_async", "target:w source:r bytes source_bytes?",
        "starts a copy of 4, 8 or 16 bytes from global to shared memory; bytes from source_bytes "
        "on become zeros",
    ),
)  # fmt: skip
# These order the products of a thread, whose operands say what they access.
_PRODUCT_OPS = _table(
    THREAD,
    ("ptx_wgmma_fence", "", "orders registers that were written before those that wgmma uses"),
    ("ptx_wgmma_commit_group", "", "makes a group of the products that were started"),
    ("ptx_wgmma_wait_group", "in_flight", "waits until no more groups of products are under way"),
)
_BARRIER_OPS = _table(
    THREAD,
    (
        "ptx_init_barrier_thread_count", "barrier:w count",
        "a barrier in shared memory (one uint64) waits for count arrivals in each of its phases",
    ),
    (
        "ptx_arrive_barrier", "barrier:rw cta?",
        "arrives; at the same barrier of block number cta of the cluster, if that is given",
    ),
    (
        "ptx_arrive_barrier_expect_tx", "barrier:rw bytes",
        "arrives; the phase also waits until copies have brought so many bytes",
    ),
    (
        "ptx_wait_barrier", "barrier:rw parity",
        "waits until the phase of this parity is over: 0 for the first, then 1, 0, ...",
    ),
    (
        "ptx_cp_async_bulk", "target:w source:r bytes barrier:rw",
        "one thread starts a copy of a multiple of 16 bytes from global to shared memory, which "
        "tells the barrier when it has arrived",
    ),
    ("ptx_fence_barrier_init", "", "shows barriers that were initialised to copies"),
    (
        "ptx_invalidate_barrier", "barrier:w",
        "ends a barrier, whose memory may then be used for something else",
    ),
    synchronises=True,
)  # fmt: skip
# Blocks of a cluster are numbered with clusterCtaIdx.x fastest, then y, then z.
_CLUSTER_OPS = _table(
    THREAD,
    (
        "ptx_barrier_cluster_arrive", "",
        "arrives at the barrier of the cluster, for which all threads of its blocks arrive in turn",
    ),
    ("ptx_barrier_cluster_wait", "", "waits until all threads of the cluster have arrived"),
    (
        "ptx_st_shared_cluster", "target:w value cta",
        "stores a value to the element of shared memory that block number cta of the cluster has "
        "where this block has target",
    ),
    (
        "ptx_ld_shared_cluster", "target:w source:r cta",
        "loads the element that block number cta of the cluster has where this block has source "
        "into an element of the thread's own",
    ),
    synchronises=True,
)  # fmt: skip
CLUSTER_OPS = frozenset(item.name for item in _CLUSTER_OPS)
"""What reaches other blocks of a cluster, and nothing else."""
TENSOR_RANK = 5
"""Dimensions of a tensor map, at most."""
_TENSOR_COPY = _table(
    THREAD,
    (
        "ptx_cp_async_bulk_tensor",
        "target:w source:r barrier:rw? swizzle mask "
        + " ".join(f"size{n}? stride{n}? box{n}? at{n}?" for n in range(TENSOR_RANK)),
        "one thread starts a copy of a box of a tensor in global memory, which begins at source, "
        "to neighbouring elements of shared memory, and tells the barrier when it has arrived; for "
        "each dimension, the outermost first: its size, the elements from one to the next, those "
        "of the box and where it begins; zeros stand for what lies outside of the tensor; rows of "
        "swizzle bytes (0: none) are permuted as by permuted_layout; of the cluster all blocks get "
        "it whose bits are set in mask, at the same place of their memory, and their barriers are "
        "told (0: this block alone)",
    ),
)  # fmt: skip
_REGISTER_OPS = _table(
    THREAD,
    (
        "ptx_setmaxnreg", "count increase",
        "a warpgroup gives registers back, or takes more (a multiple of 8 from 24 to 256)",
    ),
    synchronises=True,
)  # fmt: skip
BARRIER_OPS = frozenset(item.name for item in _BARRIER_OPS)
"""What works on barriers in memory; of these only the initialisation is no atomic access."""
_GROUP_OPS = _table(
    THREAD,
    ("ptx_commit_group", "", "makes a group of the copies that the thread has started"),
    ("ptx_wait_group", "in_flight", "waits until no more of the thread's groups are under way"),
    synchronises=True,
)

GPU_OPS: dict[str, GpuOp] = {
    item.name: item
    for item in (
        *_FRAGMENT_OPS,
        *_WARPGROUP_OPS,
        *_THREAD_OPS,
        *_PRODUCT_OPS,
        *_BARRIER_OPS,
        *_CLUSTER_OPS,
        *_TENSOR_COPY,
        *_REGISTER_OPS,
        *_GROUP_OPS,
    )
}
"""The operators by name."""

for _item in GPU_OPS.values():
    register_op(_item.name, None, "void", "opaque", f"({', '.join(_item.names)}): {_item.doc}")
register_op(
    "tile_of", 2, "handle", "pure", "(first column, first row) of a buffer: a tile's address"
)

WARP_OPS = frozenset(name for name, item in GPU_OPS.items() if item.level == WARP)
"""What all lanes of a warp run together."""
WARPGROUP_OPS = frozenset(name for name, item in GPU_OPS.items() if item.level == WARPGROUP)
"""What four neighbouring warps run together."""
POINTERS = ("address_of", "tile_of")
_BOX = 256
"""Elements of a box along a dimension, at most (``cuTensorMapEncodeTiled``: ``boxDim``)."""
WMMA_OPS = frozenset(name for name in WARP_OPS if name.startswith("tvm_"))
"""What a warp runs as one: its operands are the same in all lanes."""


class Tile(NamedTuple):
    """Memory that an operand means: ``rows`` of ``columns`` elements each.

    ``down`` is an element of the first column (a ramp, if there are several rows), ``along`` the
    first row.
    """

    down: BufferLoad | None
    along: BufferLoad
    rows: int
    columns: int


def _lanes(load: BufferLoad) -> int:
    return max((item.lanes for item in load.indices if isinstance(item, Ramp)), default=1)


def tile_at(pointer: Expr, op: str = "an operator") -> Tile:
    """Read an operand that is memory; ``VerifyError`` for anything else."""
    if isinstance(pointer, Call) and pointer.op.name in POINTERS:
        loads: Any = pointer.args
        if all(isinstance(load, BufferLoad) for load in loads):
            if pointer.op.name == "address_of":
                return Tile(None, loads[0], 1, _lanes(loads[0]))
            down, along = loads
            if down.buffer is along.buffer:
                return Tile(down, along, _lanes(down), _lanes(along))
    raise VerifyError(
        f"{op} takes address_of(buffer[..., Ramp]) or tile_of(first column, first row) of one "
        f"buffer where it wants memory, got {pointer!r}"
    )


class Use(NamedTuple):
    """An operand that is memory: what is done with it (``r``, ``w``, ``rw``), and where.

    Barriers are used ``atomic``ally: accesses of several threads don't conflict.
    """

    access: str
    pointer: Call
    tile: Tile
    atomic: bool = False


def memory_uses(call: Call) -> Iterator[Use]:
    """What a call of one of these operators does with memory."""
    op = GPU_OPS[call.op.name]
    for text, arg in zip(op.operands, call.args):
        _, is_memory, access = text.partition(":")
        if is_memory and not is_left_out(text, arg):
            access = access.rstrip("?")
            atomic = text.startswith("barrier") and access == "rw"
            yield Use(access, arg, tile_at(arg, op.name), atomic)  # type: ignore[arg-type]


def is_left_out(operand: str, arg: Expr) -> bool:
    """Whether a call says 0 where an operand, as ``GpuOp.operands`` has it, may be no memory."""
    return operand.endswith("?") and as_int(arg) == 0


class Box(NamedTuple):
    """One dimension of a tensor, and of the box of it that is copied."""

    size: Expr
    stride: Expr
    box: int
    at: Expr


def tensor_box(call: Call) -> list[Box]:
    """Dimensions of what ``ptx_cp_async_bulk_tensor`` copies, the outermost first."""
    values = call.args[len(_TENSOR_COPY[0].operands) - 4 * TENSOR_RANK :]
    if not values or len(values) % 4:
        raise VerifyError(f"{call.op.name} takes size, stride, box and place of each dimension")
    made = []
    for n in range(0, len(values), 4):
        size, stride, box, at = values[n : n + 4]
        known = as_int(box)
        if known is None or not 1 <= known <= _BOX:
            raise VerifyError(f"{call.op.name}: a box has 1 to {_BOX} elements, got {box!r}")
        made.append(Box(size, stride, known, at))
    return made


def is_gpu_op(node: object) -> bool:
    """Whether a node is a call of one of these operators."""
    return type(node) is Call and node.op.name in GPU_OPS


def known_pointers(call: Call) -> list[BufferLoad]:
    """The loads whose extents tell all that a call of these operators touches."""
    return [load for use in memory_uses(call) for load in use.pointer.args]  # type: ignore[misc]


def text_operand(operands: dict[str, Expr], name: str, *known: str) -> str:
    """The text of an operand, one of ``known`` if any are given."""
    value = operands[name]
    if type(value) is not StringImm or (known and value.value not in known):
        raise VerifyError(f"{name} is one of the texts {', '.join(known)}; got {value!r}")
    return value.value


def number_operand(operands: dict[str, Expr], name: str) -> int:
    """The value of an operand that must be a constant."""
    value = as_int(operands[name])
    if value is None:
        raise VerifyError(f"{name} must be a constant, got {operands[name]!r}")
    return value


def stride_between_rows(tile: Tile) -> Expr:
    """Elements from one row of a flat buffer's tile to the next."""
    if tile.down is None or len(tile.down.indices) != 1:
        raise VerifyError(f"{tile.along!r} is not a tile of a flat buffer")
    (index,) = tile.down.indices
    if not isinstance(index, Ramp):  # a tile of one row
        return index * 0 + 1
    return index.stride


def uses_pointer(call: Call, data: Var) -> bool:
    """Whether an operator of this table touches the memory behind a pointer."""
    return any(use.tile.along.buffer.data is data for use in memory_uses(call))
