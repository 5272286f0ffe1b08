"""The primitives as methods of schedules; made by `tools/schedule_stub.py`.

A block can be given by its name.
"""

from collections.abc import Sequence
from tilewright.tir.schedule.handles import BlockRV, ExprRV, LoopRV
from tilewright.tir.schedule.vocabulary import AccessKind, Annotation, BufferIndex, ElementType, Factor, StorageScope, Tail, ThreadAxis
from typing import Any

class PrimitiveMethods:
    def accumulate_terms(
        self,
        block: BlockRV | str,
    ) -> None:
        """Add each term of what a reduction adds by itself, so that each is a multiply-add."""

    def add_unit_loop(
        self,
        block_or_loop: BlockRV | str | LoopRV,
    ) -> LoopRV:
        """Put a loop of extent 1 around a block or loop."""

    def annotate(
        self,
        block_or_loop: BlockRV | str | LoopRV,
        ann_key: str,
        ann_val: Annotation,
    ) -> None:
        """Attach a value to a block or loop under a key; replaces an older value."""

    def annotate_buffer_access(
        self,
        block: BlockRV | str,
        buffer_index: int,
        buf_type: AccessKind,
        gen_new_ranges: Any,
    ) -> None:
        """Declare which region of a buffer a block accesses, if that is more precise than inferred."""

    def bind(
        self,
        loop: LoopRV,
        thread_axis: ThreadAxis,
    ) -> None:
        """Replace a loop by a thread index of a GPU."""

    def blockize(
        self,
        target: LoopRV | Sequence[BlockRV | str],
        preserve_unit_iters: bool = True,
    ) -> BlockRV:
        """Turn a nest, or several consecutive blocks, into one outer block."""

    def cache_index(
        self,
        block: BlockRV | str,
        storage_scope: StorageScope,
        cse_thresh: int = 0,
    ) -> list[BlockRV]:
        """Compute the indices by which ``block`` reads in advance, into buffers of ``storage_scope``."""

    def cache_inplace(
        self,
        block: BlockRV | str,
        read_buffer_index: BufferIndex,
        storage_scope: StorageScope,
    ) -> list[BlockRV]:
        """Update a buffer in ``storage_scope``, with copies in before and out after."""

    def cache_read(
        self,
        block: BlockRV | str,
        read_buffer_index: BufferIndex,
        storage_scope: StorageScope,
        consumer_blocks: Sequence[BlockRV | str] | None = None,
    ) -> BlockRV:
        """Copy a buffer that ``block`` reads into ``storage_scope`` before it is read."""

    def cache_write(
        self,
        block: BlockRV | str,
        write_buffer_index: BufferIndex,
        storage_scope: StorageScope,
        consumer_blocks: Sequence[BlockRV | str] | None = None,
    ) -> BlockRV:
        """Make ``block`` write into ``storage_scope``, and copy the result from there afterwards."""

    def calculate(
        self,
        op: str,
        a: int | ExprRV,
        b: int | ExprRV,
    ) -> ExprRV:
        """Calculate with values: ``op`` is one of ``+``, ``-``, ``*``, ``//``, ``%``."""

    def can_decompose_padding(
        self,
        block: BlockRV | str,
        loop: LoopRV,
    ) -> bool:
        """Return whether ``decompose_padding`` would accept the block and the loop."""

    def compute_at(
        self,
        block: BlockRV | str,
        loop: LoopRV,
        preserve_unit_loops: bool = False,
        index: int = -1,
    ) -> None:
        """Compute, in each iteration of ``loop``, what its consumers under ``loop`` read there."""

    def compute_inline(
        self,
        block: BlockRV | str,
    ) -> None:
        """Substitute a block's formula for every use of its result, and remove the block."""

    def decompose_padding(
        self,
        block: BlockRV | str,
        loop: LoopRV,
    ) -> BlockRV:
        """Split a padding block into one that fills with the constant and one that copies the rest."""

    def decompose_reduction(
        self,
        block: BlockRV | str,
        loop: LoopRV,
    ) -> BlockRV:
        """Split a reduction into a block that initialises, before ``loop``, and one that updates."""

    def enter_postproc(
        self,
    ) -> None:
        """Mark in the trace where post-processing begins; the program is unchanged."""

    def fuse(
        self,
        *loops: LoopRV,
        preserve_unit_iters: bool = True,
    ) -> LoopRV:
        """Fuse a chain of directly nested loops, given outermost first, into one."""

    def fuse_reduction_epilogue(
        self,
        reduction_block: BlockRV | str,
        epilogue_block: BlockRV | str,
    ) -> None:
        """Let a reduction start with what its epilogue combines with the result, or end with it."""

    def get_block(
        self,
        name: str,
        func_name: str | None = None,
    ) -> BlockRV:
        """Find a block by name."""

    def get_child_blocks(
        self,
        block_or_loop: BlockRV | str | LoopRV,
    ) -> list[BlockRV]:
        """Return the blocks directly inside a block or below a loop, in program order."""

    def get_consumers(
        self,
        block: BlockRV | str,
    ) -> list[BlockRV]:
        """Return the blocks of the same scope that read or write after it what a block writes."""

    def get_loops(
        self,
        block: BlockRV | str,
    ) -> list[LoopRV]:
        """Return the loops around a block up to its parent block, the outermost first."""

    def get_output_blocks(
        self,
        scope_block: BlockRV | str,
    ) -> list[BlockRV]:
        """Return the blocks inside a scope that write a buffer from outside it."""

    def get_producers(
        self,
        block: BlockRV | str,
    ) -> list[BlockRV]:
        """Return the blocks of the same scope that write before it what a block reads or writes."""

    def has_block(
        self,
        name: str,
        func_name: str | None = None,
    ) -> bool:
        """Whether the function has a block of that name."""

    def loop_partition(
        self,
        loop: LoopRV,
        factors: Sequence[Factor],
        preserve_unit_iters: bool = True,
    ) -> list[LoopRV]:
        """Split the range of a loop into consecutive loops, one per factor, and return these."""

    def merge(
        self,
        *loops: LoopRV,
    ) -> LoopRV:
        """Merge several consecutive loops into one that runs their bodies in turn."""

    def pad_einsum(
        self,
        block: BlockRV | str,
        padding: Sequence[int],
    ) -> None:
        """Round the extents of a sum of products up to multiples of ``padding``, one per axis."""

    def parallel(
        self,
        loop: LoopRV,
    ) -> None:
        """Run the iterations of a loop on the threads of a pool."""

    def read_at(
        self,
        loop: LoopRV,
        block: BlockRV | str,
        read_buffer_index: BufferIndex,
        storage_scope: StorageScope,
    ) -> BlockRV:
        """Copy, in each iteration of ``loop``, the tile that is read there into ``storage_scope``."""

    def reindex(
        self,
        block: BlockRV | str,
        buffer: Any,
    ) -> BlockRV:
        """Copy an accessed buffer into a layout by the axes of ``block`` that its access uses."""

    def reindex_cache_read(
        self,
        block: BlockRV | str,
        read_buffer_index: BufferIndex,
        storage_scope: StorageScope,
        index_map: Any,
    ) -> BlockRV:
        """Copy what ``block`` reads into a buffer laid out by a map of the block's axes."""

    def reindex_cache_write(
        self,
        block: BlockRV | str,
        write_buffer_index: BufferIndex,
        storage_scope: StorageScope,
        index_map: Any,
    ) -> BlockRV:
        """Make ``block`` write into a buffer laid out by a map of its axes, and copy from there."""

    def reorder(
        self,
        *loops: LoopRV,
    ) -> None:
        """Reorder loops of one nest, the first named outermost."""

    def reorder_block_iter_var(
        self,
        block: BlockRV | str,
        new_order: Sequence[int],
    ) -> None:
        """Reorder the iteration variables of a block."""

    def reverse_compute_at(
        self,
        block: BlockRV | str,
        loop: LoopRV,
        preserve_unit_loops: bool = False,
        index: int = -1,
    ) -> None:
        """Consume, in each iteration of ``loop``, what the producers under ``loop`` made there."""

    def reverse_compute_inline(
        self,
        block: BlockRV | str,
    ) -> None:
        """Pull a consumer into the block that produces its input, and remove the consumer."""

    def rfactor(
        self,
        loop: LoopRV,
        factor_axis: int = 0,
    ) -> BlockRV:
        """Make each iteration of a reduction loop accumulate separately, and combine the results after."""

    def rolling_buffer(
        self,
        block: BlockRV | str,
        write_buffer_index: BufferIndex,
    ) -> None:
        """Make a producer in its consumers' loops compute only what the previous iteration did not."""

    def sample_categorical(
        self,
        candidates: Sequence[int],
        probs: Sequence[float],
        decision: int | None = None,
    ) -> ExprRV:
        """Choose one of ``candidates`` with the given probabilities; the decision is its position."""

    def sample_compute_location(
        self,
        block: BlockRV | str,
        decision: int | None = None,
    ) -> LoopRV:
        """Choose where a block is computed."""

    def sample_partitioned_tile(
        self,
        loop: LoopRV,
        n: int,
        partition_pos: int = 0,
        innerpart_factor: int = 1,
        decision: Sequence[int] | None = None,
    ) -> list[ExprRV]:
        """Choose ``n`` factors of the loop's extent, uniformly, with a divisible inner part."""

    def sample_perfect_tile(
        self,
        loop: LoopRV,
        n: int,
        max_innermost_factor: int = 16,
        decision: Sequence[int] | None = None,
    ) -> list[ExprRV]:
        """Choose ``n`` factors whose product is the loop's extent, uniformly among all ways."""

    def sample_tile(
        self,
        loop: LoopRV,
        n: int,
        max_innermost_factor: int = 16,
        *,
        decision: Sequence[int] | None = None,
    ) -> list[ExprRV]:
        """Choose ``n`` factors that cover the loop's extent, but need not divide it."""

    def set_axis_separator(
        self,
        block: BlockRV | str,
        buffer: Any,
        axis_separators: Sequence[int],
    ) -> None:
        """Group a buffer's dimensions into physical axes."""

    def set_scope(
        self,
        block: BlockRV | str,
        buffer_index: int | str,
        storage_scope: StorageScope,
    ) -> None:
        """Place the intermediate buffer that a block writes in another memory."""

    def size_variants(
        self,
        block: BlockRV | str,
        symbol: str,
        limits: Sequence[int],
        traces: Sequence[str],
    ) -> None:
        """Schedule the program once for each range of a symbolic size, which chooses when it runs."""

    def split(
        self,
        loop: LoopRV,
        factors: Sequence[Factor],
        preserve_unit_iters: bool = True,
        disable_predication: bool = False,
        *,
        tail: Tail = 'predicate',
    ) -> list[LoopRV]:
        """Split one loop into a nest of loops, one per factor, the first outermost."""

    def storage_align(
        self,
        block: BlockRV | str,
        buffer_index: int | str,
        axis: int,
        factor: int,
        offset: int,
    ) -> None:
        """Request ``stride[axis] % factor == offset`` for the buffer that a block writes."""

    def tensorize(
        self,
        block_or_loop: BlockRV | str | LoopRV,
        tensor_intrin: str,
        preserve_unit_iters: bool = True,
    ) -> BlockRV:
        """Replace a nest by a tensor intrinsic whose description it matches."""

    def transform_block_layout(
        self,
        block: BlockRV | str,
        index_map: Any,
    ) -> None:
        """Iterate a block over mapped axes, with new loops, one per new axis."""

    def transform_layout(
        self,
        block: BlockRV | str,
        buffer: Any,
        index_map: Any,
        pad_value: Any = None,
        *,
        assume_injective_transform: bool = False,
    ) -> None:
        """Store a buffer in another layout; all its accesses follow."""

    def unannotate(
        self,
        block_or_loop: BlockRV | str | LoopRV,
        ann_key: str,
    ) -> None:
        """Remove an annotation from a block or loop."""

    def unroll(
        self,
        loop: LoopRV,
    ) -> None:
        """Replicate the code of a loop for each iteration."""

    def unsafe_annotate_buffer_access(
        self,
        block: BlockRV | str,
        buffer_index: int,
        buf_type: AccessKind,
        gen_new_ranges: Any,
    ) -> None:
        """Declare which region of a buffer a block accesses, if that can't be proven."""

    def unsafe_hide_buffer_access(
        self,
        block: BlockRV | str,
        buf_type: AccessKind,
        buf_index_array: Sequence[int],
    ) -> None:
        """Remove some accesses from the declared regions of a block."""

    def unsafe_set_dtype(
        self,
        block: BlockRV | str,
        buffer_index: int | str,
        dtype: ElementType,
    ) -> None:
        """Store the intermediate buffer that a block writes with another element type."""

    def unsafe_skip_padding(
        self,
        block: BlockRV | str,
        loop: LoopRV,
    ) -> None:
        """Run a sum of products inside of ``loop`` only where it reads more than padding."""

    def use_kernel(
        self,
        block: BlockRV | str,
        kernel: str,
        options: Annotation = None,
    ) -> None:
        """Replace the program by a kernel that was written for it."""

    def vectorize(
        self,
        loop: LoopRV,
    ) -> None:
        """Run the iterations of a loop as lanes of vector instructions."""

    def write_at(
        self,
        loop: LoopRV,
        block: BlockRV | str,
        write_buffer_index: BufferIndex,
        storage_scope: StorageScope,
    ) -> BlockRV:
        """Make ``block`` write into ``storage_scope``, and copy a tile from there in each iteration."""
