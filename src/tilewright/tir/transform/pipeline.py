"""The order of the lowering passes, from scheduled TensorIR to what code generators take."""

from __future__ import annotations

from tilewright.ir import Pass, PassOption, Sequential, pass_option
from tilewright.target import Target
from tilewright.tir.transform.align_storage import AlignStorage
from tilewright.tir.transform.align_streams import AlignStreams
from tilewright.tir.transform.common_subexpr import CommonSubexpressionElimination
from tilewright.tir.transform.compact_buffer_allocation import CompactBufferAllocation
from tilewright.tir.transform.convert_blocks_to_opaque import ConvertBlocksToOpaque
from tilewright.tir.transform.flatten_buffer import FlattenBuffer
from tilewright.tir.transform.guard_accumulation import GuardAccumulation
from tilewright.tir.transform.hoist import HoistInvariants, UnswitchChoices
from tilewright.tir.transform.inject_double_buffer import InjectDoubleBuffer
from tilewright.tir.transform.inject_permuted_layout import InjectPermutedLayout
from tilewright.tir.transform.inject_prefetch import InjectPrefetch
from tilewright.tir.transform.inject_software_pipeline import InjectSoftwarePipeline
from tilewright.tir.transform.join_lanes import JoinLanes
from tilewright.tir.transform.legalize_float import FloatComputeLegalize, FloatStorageLegalize
from tilewright.tir.transform.loop_partition import LoopPartition
from tilewright.tir.transform.lower_auto_copy import LowerAutoCopy
from tilewright.tir.transform.lower_init_block import LowerInitBlock
from tilewright.tir.transform.lower_int_div import LowerIntDiv
from tilewright.tir.transform.lower_loop_exits import LowerLoopExits
from tilewright.tir.transform.lower_match_buffer import LowerMatchBuffer
from tilewright.tir.transform.lower_opaque_block import LowerOpaqueBlock
from tilewright.tir.transform.lower_tensor_copy import LowerTensorCopy
from tilewright.tir.transform.make_kernel_abi import MakeKernelABI
from tilewright.tir.transform.narrow_dtype import NarrowDataType
from tilewright.tir.transform.overlap_tiles import OverlapTiles
from tilewright.tir.transform.plan_buffer_allocation import PlanBufferAllocation
from tilewright.tir.transform.promote_accumulators import PromoteAccumulators
from tilewright.tir.transform.simplify import Simplify
from tilewright.tir.transform.specialise_pipeline import SpecialisePipeline
from tilewright.tir.transform.storage_rewrite import StorageRewrite
from tilewright.tir.transform.sum_in_blocks import SumInBlocks
from tilewright.tir.transform.transpose_tiles import TransposeTiles
from tilewright.tir.transform.unroll_loop import UnrollLoop
from tilewright.tir.transform.vectorize_loop import VectorizeLoop


def block_passes() -> list[Pass]:
    """Passes that remove blocks; they leave loops over multi-dimensional buffers."""
    return [
        # Nothing below knows that a loop may be left.
        LowerLoopExits(),
        # These ask which axes of a block are a reduction's, as long as it says so. What init writes
        # before a loop is a use of its buffer, too: it keeps the allocation outside.
        LowerInitBlock(),
        PlanBufferAllocation(),
        # Goes by the axes of blocks, and by which buffers are a tile's own.
        OverlapTiles(),
        # From here on places are functions of loop variables, which is what accesses are moved by.
        ConvertBlocksToOpaque(),
        # A matched buffer takes over strides, so they are given to its memory before.
        AlignStorage(pointers=True),
        # Compaction has to see each access under the name of the buffer that it shrinks.
        LowerMatchBuffer(),
        # Makes loops of threads, so it comes before those are unified (GPU).
        LowerAutoCopy(),
        # Goes by the loops that allocations stand in since PlanBufferAllocation.
        InjectDoubleBuffer(),
        CompactBufferAllocation(),
        # Strides and permuted columns depend on the final shape; blocks' annotations ask for them.
        AlignStorage(),
        # A box is matched by its loops; the copy then says itself how its rows are permuted.
        LowerTensorCopy(),
        InjectPermutedLayout(),
        # Nothing below asks a block.
        LowerOpaqueBlock(),
        # Cuts a loop's body into statements, among which are no blocks; versions of a buffer are
        # one more dimension of it, so that comes before buffers are flat.
        SpecialisePipeline(),
        InjectSoftwarePipeline(),
    ]


#: What CPUs compute with, by way of float32 registers if need be (``codegen.llvm``).
CPU_FLOATS = ("float16", "bfloat16")
#: Smaller buffers are on the stack or in registers, where sharing them saves nothing.
CPU_SHARED_BYTES = 1 << 14


STORAGE_REWRITE = pass_option(
    "tir.storage_rewrite", bool, True, "Whether buffers share storage where their times allow it."
)
HOIST_INVARIANTS = pass_option(
    "tir.hoist_invariants", bool, False, "Whether what doesn't change in a loop moves out of it."
)
CSE = pass_option("tir.cse", bool, False, "Whether expressions that occur again are kept.")
NARROW_DTYPE = pass_option("tir.narrow_dtype", bool, False, "Whether indices that fit get 32 bits.")
EXCESS_PRECISION = pass_option(
    "relax.excess_precision",
    bool,
    False,
    "Whether chains of operators on 16-bit and smaller floats may stay in float32 in between.",
)


def chosen(option: PassOption[bool], *passes: Pass) -> list[Pass]:
    """Passes that take part if the pass option says so."""
    return list(passes) if option.value() else []


def cpu_pipeline(target: Target) -> Sequential:
    """Return the lowering passes for a CPU."""
    return Sequential(
        [
            *block_passes(),
            # One index per access: what follows computes with addresses.
            FlattenBuffer(keep_separators=False),
            # Storage goes by the conversions that computing in float32 put in.
            FloatComputeLegalize(CPU_FLOATS, excess=EXCESS_PRECISION.value()),
            FloatStorageLegalize(CPU_FLOATS),
            # Tidies up after all of these, for the passes that look for forms of index or body.
            Simplify(),
            # Both read distances off whole nests of loops, before those are cut and vectorised;
            # prefetches move along with the tiles that are moved.
            InjectPrefetch(),
            AlignStreams(target.vector_bits),
            # A condition that is left in a vectorised loop is a mask, so loops are cut first.
            LoopPartition(),
            UnswitchChoices(),
            # Its tests are no reason to cut a loop; and it needs a tile's loops as loops.
            GuardAccumulation(),
            VectorizeLoop(vector_bits=target.vector_bits),
            # Finds scalar loops over lanes: vectorised ones are gone, and none is unrolled yet.
            JoinLanes(target.vector_bits),
            # Copies vector code rather than each lane's, and makes the indices of register tiles
            # constant, which the next two go by.
            UnrollLoop(),
            TransposeTiles(),
            PromoteAccumulators(),
            # Memory that became registers is summed up in, too.
            SumInBlocks(),
            # What became registers is no memory that could be shared.
            *chosen(STORAGE_REWRITE, StorageRewrite(min_bytes=CPU_SHARED_BYTES)),
            # Options, for the code that is final but for the width and kind of its arithmetic.
            *chosen(HOIST_INVARIANTS, HoistInvariants()),
            *chosen(CSE, CommonSubexpressionElimination()),
            *chosen(NARROW_DTYPE, NarrowDataType()),
            # Analyses know floor division only, so the truncating one comes after them all.
            LowerIntDiv(),
            # Records parameters and shapes, which nothing may change any more.
            MakeKernelABI(),
        ],
        name="LowerForCPU",
    )
