"""The attributes and annotations that something reads: key, values, readers and meaning.

The tables that they are in, and what checks nodes by them, are in ``attr_tables``.
"""

from __future__ import annotations

from tilewright.ir import GLOBAL_SYMBOL
from tilewright.tir.attr_tables import (
    ON_ATTRIBUTES,
    ON_FUNCTIONS,
    ON_GRAPHS,
    ON_MODULES,
    ON_STATEMENTS,
    TABLES,
    Key,
    on_attribute,
    on_graph,
    on_module,
    register_annotation,
    register_function_attribute,
    wrong_annotation,
)
from tilewright.tir.attr_values import (
    A_WRITE,
    ALIGNMENT,
    BUFFER_PARAM,
    COUNT,
    FLAG,
    INTEGER_DTYPE,
    REAL,
    SAMPLED,
    Annotation,
    are_constants,
    integer,
    list_of,
    one_of,
    options_of,
    text,
)

# ---- on statements --------------------------------------------------------------------------

AUTO_STEP = register_annotation(
    "pragma_auto_unroll_max_step",
    COUNT,
    means="Steps up to which the loops inside of a loop or block are unrolled by themselves.",
    read_by=(
        "tir.transform.lower_opaque_block",
        "tir.transform.unroll_loop",
        "tir.transform.loop_partition",
        "tir.transform.square_tiles",
    ),
)
PREFETCH_DISTANCE = register_annotation(
    "tir.prefetch_distance",
    COUNT,
    means="Bytes ahead of vector loads in an innermost loop that memory is asked for.",
    read_by=("tir.transform.lower_opaque_block", "codegen.llvm.emit_stmt"),
)
IRREGULAR_LOOP = register_annotation(
    "irregular_loop_mark",
    integer(0, 1),
    means="A loop has a break or a continue: its iterations keep their order.",
    read_by=("tir.transform.annotate_irregular_loop",),
)
PREFETCH_NEXT = register_annotation(
    "pragma_prefetch_next",
    integer(0, 4),
    means="The operand of a loop's next iteration is fetched: 1 where a panel is one run of "
    "neighbours, 2 where it is rows of them, 3 where its place is looked up, 4 where rows are "
    "copied before they are used.",
    read_by=("tir.transform.inject_prefetch",),
)
STREAMING_STORES = register_annotation(
    "tir.streaming_stores",
    integer(0, 2),
    means="What is stored need not stay in the caches: 1 where neighbours are stored one after "
    "the other, 2 where only whole, aligned vectors pay.",
    read_by=(
        "tir.transform.lower_opaque_block",
        "tir.transform.align_streams",
        "codegen.llvm.emit_stmt",
    ),
)
KEEP_WHOLE = register_annotation(
    "pragma_keep_whole",
    FLAG,
    means="The loop stays whole: what is cut off at its end is computed under masks.",
    read_by=("tir.transform.loop_partition",),
)
CUT_MASKS = register_annotation(
    "pragma_cut_masks",
    FLAG,
    means="The loop is cut, or its body doubled, where masks of loads in it change.",
    read_by=("tir.transform.loop_partition",),
)
OVERLAP_LAST = register_annotation(
    "pragma_overlap_last",
    FLAG,
    means="The last tile of the loop may begin before the end of the one before, so as to be "
    "whole, where computing elements twice does no harm.",
    read_by=("tir.transform.overlap_tiles",),
)
AUTO_COPY = register_annotation(
    "auto_copy",
    FLAG,
    means="The block copies between memories, and lowering says which thread moves what.",
    read_by=("tir.transform.lower_auto_copy",),
)
DOUBLE_BUFFER = register_annotation(
    "double_buffer_scope",
    A_WRITE,
    means="The buffer that the block writes gets two versions, so that it is filled while it is "
    "read.",
    read_by=("tir.transform.inject_double_buffer",),
)
TENSOR_COPY = register_annotation(
    "tensor_copy",
    FLAG,
    means="The block copies a box of a tensor to shared memory, which hardware does by its map.",
    read_by=("tir.transform.lower_tensor_copy",),
)
PERMUTED_LAYOUT = register_annotation(
    "permuted_layout",
    COUNT,
    means="Rows of the block's shared buffers are permuted so that threads meet in no bank.",
    read_by=("tir.transform.inject_permuted_layout",),
)
PERMUTED_ROWS = register_annotation(
    "permuted_rows",
    COUNT,
    means="So many neighbouring rows of a permuted layout are permuted alike, at least: those that "
    "a thread reads one after the other.",
    read_by=("tir.transform.inject_permuted_layout",),
)
BUFFER_DIM_ALIGN = register_annotation(
    "buffer_dim_align",
    list_of(ALIGNMENT),
    means="Alignments of the strides of the buffers that a block writes.",
    read_by=("tir.transform.align_storage",),
)
MIN_BLOCKS = register_annotation(
    "min_blocks_per_processor",
    integer(1, 32),
    means="Blocks of a loop over a GPU's blocks that are to fit onto one processor: the compiler "
    "gives a thread no more registers than that allows.",
    read_by=("codegen.c.kernels",),
)
PIPELINE_STAGE = register_annotation(
    "software_pipeline_stage",
    list_of(COUNT),
    means="The stage of each part of the loop's body, for overlapping iterations.",
    read_by=("tir.transform.inject_software_pipeline",),
)
PIPELINE_ORDER = register_annotation(
    "software_pipeline_order",
    list_of(COUNT),
    means="The place of each part of the loop's body in an iteration of the pipeline.",
    read_by=("tir.transform.inject_software_pipeline",),
)
PIPELINE_ASYNC_STAGES = register_annotation(
    "software_pipeline_async_stages",
    list_of(COUNT),
    means="Stages of the pipeline whose copies, or products by warpgroups, are not waited for at "
    "once.",
    read_by=("tir.transform.inject_software_pipeline",),
)
PIPELINE_FUSE = register_annotation(
    "software_pipeline_fuse",
    list_of(COUNT),
    means="Parts of the pipeline whose loops become one.",
    read_by=("tir.transform.inject_software_pipeline",),
)
PIPELINE_SPECIALISED = register_annotation(
    "software_pipeline_specialised",
    FLAG,
    means="The pipeline's copies by tensor maps get a warpgroup of their own; barriers in memory "
    "tell when a stage is full, and when it is empty again.",
    read_by=("tir.transform.specialise_pipeline",),
)
PARALLEL_SCHEDULE = register_annotation(
    "parallel_schedule",
    one_of("static", "dynamic"),
    means="``static`` gives each thread one run of iterations, ``dynamic`` lets threads take the "
    "next ones when they are done, for iterations that differ in cost.",
    read_by=("tir.parallel_work",),
)
PARALLEL_GRAIN = register_annotation(
    "parallel_grain",
    integer(1),
    means="The least number of iterations that a thread takes at once; with it, the loop's work "
    "is not estimated.",
    read_by=("tir.parallel_work",),
)
TENSOR_INTRIN = register_annotation(
    "tensor_intrin",
    text(),
    means="The name of the intrinsic that the block stands for.",
    read_by=("tir.analysis.update_order",),
)
TRUSTED_REGIONS = register_annotation(
    "trusted_regions",
    FLAG,
    means="The regions that the block declares are taken at their word.",
    read_by=("tir.analysis.verify_regions", "tir.schedule.enclosing"),
)
PARALLEL_KEY = register_annotation(
    "meta_schedule.parallel",
    SAMPLED,
    means="Most iterations that the function's loops run at once, as a search sampled it.",
    read_by=(
        "meta_schedule.postproc.rewrite_parallel_vectorize_unroll",
        "meta_schedule.feature.program",
    ),
)
VECTORIZE_KEY = register_annotation(
    "meta_schedule.vectorize",
    SAMPLED,
    means="Longest vector that the function's loops become, as a search sampled it.",
    read_by=(
        "meta_schedule.postproc.rewrite_parallel_vectorize_unroll",
        "meta_schedule.feature.program",
    ),
)
UNROLL_KEY = register_annotation(
    "meta_schedule.unroll_explicit",
    SAMPLED,
    means="Steps up to which the function's loops are unrolled, as a search sampled it.",
    read_by=(
        "meta_schedule.postproc.rewrite_parallel_vectorize_unroll",
        "meta_schedule.feature.program",
    ),
)
TILED = register_annotation(
    "meta_schedule.tiling_structure",
    text(),
    means="A rule of the search has tiled this block, into this structure.",
    read_by=(
        "meta_schedule.schedule_rule.patterns",
        "meta_schedule.schedule_rule.register_tile",
    ),
)
COOPERATIVE_FETCH = register_annotation(
    "meta_schedule.cooperative_fetch",
    SAMPLED,
    means="The threads of a GPU share the copy that this block makes, with vectors this long.",
    read_by=(
        "meta_schedule.postproc.rewrite_cooperative_fetch",
        "meta_schedule.schedule_rule.add_software_pipeline",
    ),
)
AUTO_TENSORIZE = register_annotation(
    "meta_schedule.auto_tensorize",
    text(),
    means="The name of the intrinsic that a rule has tiled this block for.",
    read_by=("meta_schedule.postproc.rewrite_tensorize",),
)
AUTO_TENSORIZE_INIT = register_annotation(
    "meta_schedule.auto_tensorize_init",
    text(),
    means="The name of the intrinsic that sets the result of this block before its sums.",
    read_by=("meta_schedule.postproc.rewrite_tensorize",),
)
WARP_EXECUTION = register_annotation(
    "warp_execution",
    FLAG,
    means="The loop counts warps: what is inside is done by all threads of one, threadIdx.x.",
    read_by=(
        "meta_schedule.postproc.rewrite_cooperative_fetch",
        "meta_schedule.feature.gpu",
    ),
)
SCHEDULE_RULE = register_annotation(
    "schedule_rule",
    text(),
    means="The name of the rule that a search applies to this block, instead of all others.",
    read_by=(
        "meta_schedule.schedule_rule.apply_custom_rule",
        "meta_schedule.space_generator.post_order_apply",
    ),
)
LAYOUT_REWRITE = register_annotation(
    "meta_schedule.layout_rewrite_preproc",
    FLAG,
    means="The block only brings an operand into the layout that the schedule wants.",
    read_by=("tir.layout_rewrite",),
)

# ---- on AttrStmt: the first three are what lowering makes of annotations --------------------

for _key in (AUTO_STEP, PREFETCH_DISTANCE, STREAMING_STORES):
    ON_ATTRIBUTES[_key] = ON_STATEMENTS[_key]
ASYNC_SCOPE = on_attribute(
    "async_scope",
    COUNT,
    means="Copies inside are issued and not waited for.",
    read_by=(
        "tir.interpreter.emit_threads",
        "tir.transform.thread_sync",
        "meta_schedule.postproc.disallow_async_strided_mem_copy",
    ),
)
ASYNC_COMMIT = on_attribute(
    "async_commit_queue_scope",
    COUNT,
    means="What is issued inside becomes a group of the stage with this number.",
    read_by=("tir.interpreter.emit_threads",),
)
ASYNC_WAIT = on_attribute(
    "async_wait_queue_scope",
    COUNT,
    means="Waits for groups of the stage with this number.",
    read_by=("tir.interpreter.emit_threads", "tir.transform.thread_sync"),
)
MEMORY_BARRIERS = on_attribute(
    "memory_barriers",
    COUNT,
    means="Barriers in memory order all accesses to shared memory inside, for the threads inside.",
    read_by=("tir.transform.thread_sync",),
)
ASYNC_INFLIGHT = on_attribute(
    "async_wait_inflight_count",
    COUNT,
    means="How many younger groups the wait around leaves under way.",
    read_by=("tir.interpreter.emit_threads",),
)

# ---- on functions and modules ---------------------------------------------------------------

OP_PATTERN = register_function_attribute(
    "op_pattern",
    one_of(0, 1, 2, 3, 4, 7, 8),
    means="How the function accesses its operands: a number of ``relax``'s ``OpPattern``.",
    read_by=("relax.transform.fuse_ops", "meta_schedule.database.record"),
)
register_function_attribute(
    GLOBAL_SYMBOL,
    text(),
    means="The name under which a build exports the function.",
    read_by=("ir.module", "tir.analysis.verify", "script.printer"),
)
NO_ALIAS = register_function_attribute(
    "tir.noalias",
    FLAG,
    means="Whether the function's buffers may be taken not to overlap (they may, if it says "
    "nothing).",
    read_by=(
        "tir.transform.vectorize_loop",
        "tir.transform.effects",
        "tir.transform.align_streams",
        "codegen.llvm.emit",
    ),
)
IS_SCHEDULED = register_function_attribute(
    "tir.is_scheduled",
    FLAG,
    means="Somebody has scheduled this function already; rules leave it alone.",
    read_by=("scheduling.rule", "meta_schedule.extracted_task"),
)
EXCESS_PRECISION = register_function_attribute(
    "tir.excess_precision",
    FLAG,
    means="Floats narrower than 32 bits need not be rounded after each operation.",
    read_by=("codegen.llvm.emit",),
)
READ_ONLY = register_function_attribute(
    "tir.read_only",
    list_of(BUFFER_PARAM),
    means="Positions of parameters that code which the body calls only reads.",
    read_by=("tir.transform.make_kernel_abi",),
)
APART = register_function_attribute(
    "tir.apart",
    list_of(list_of(BUFFER_PARAM, 2)),
    means="Positions of parameters that must lie apart from all before them, each with that of "
    "the parameter in whose place it may lie (its own: none).",
    read_by=("codegen.llvm.signature",),
)
LAYOUT_FREE = register_function_attribute(
    "layout_free_buffers",
    list_of(BUFFER_PARAM),
    means="Positions of the parameters that are known before the function runs.",
    read_by=("tir.layout_rewrite", "tir.schedule.primitives.layout"),
)
CONSTANT_BYTES = register_function_attribute(
    "tir.constant_bytes",
    integer(0, (1 << 63) - 1),
    means="Bytes of all constants of the graph that calls the function: its own share the caches "
    "with them from one call of the graph to the next.",
    read_by=("dlight.cpu.contraction.packing",),
)
on_graph(
    GLOBAL_SYMBOL,
    text(),
    means="The name under which a build exports the graph.",
    read_by=("relax.transform.dead_code",),
)
COMPOSITE = on_graph(
    "Composite",
    text(),
    means="The function is what a pattern of this name matched.",
    read_by=("relax.expr", "relax.transform.merge_composite_functions"),
)
CODEGEN = on_graph(
    "Codegen",
    text(),
    means="The function is for the external code generator of this name.",
    read_by=("relax.expr", "relax.transform.run_codegen"),
)
BRANCH = on_graph(
    "relax.branch", FLAG, means="It is what a branch of an If computes.", read_by=("relax.expr",)
)
IMPURE = on_graph(
    "relax.impure",
    FLAG,
    means="The function has effects that the world sees; in script text `pure=False`.",
    read_by=("relax.expr",),
)
PRIMITIVE = on_graph(
    "Primitive",
    FLAG,
    means="The graph function is a group of operators, to become one tensor function.",
    read_by=("relax.expr",),
)
CONSTANTS = on_module(
    "constants",
    Annotation("a dict of arrays of numbers by their symbols", are_constants),
    means="Data that the module's functions refer to, by symbol.",
    read_by=("driver.build", "relax.script", "relax.transform.lower_graph"),
)


__all__ = [
    "ASYNC_COMMIT",
    "ASYNC_INFLIGHT",
    "ASYNC_SCOPE",
    "ASYNC_WAIT",
    "MEMORY_BARRIERS",
    "APART",
    "AUTO_COPY",
    "AUTO_STEP",
    "BUFFER_DIM_ALIGN",
    "CONSTANTS",
    "CONSTANT_BYTES",
    "CUT_MASKS",
    "DOUBLE_BUFFER",
    "EXCESS_PRECISION",
    "FLAG",
    "GLOBAL_SYMBOL",
    "INTEGER_DTYPE",
    "IS_SCHEDULED",
    "KEEP_WHOLE",
    "LAYOUT_FREE",
    "LAYOUT_REWRITE",
    "NO_ALIAS",
    "OP_PATTERN",
    "ON_ATTRIBUTES",
    "ON_FUNCTIONS",
    "ON_GRAPHS",
    "ON_MODULES",
    "ON_STATEMENTS",
    "PARALLEL_GRAIN",
    "PARALLEL_KEY",
    "AUTO_TENSORIZE",
    "AUTO_TENSORIZE_INIT",
    "WARP_EXECUTION",
    "COOPERATIVE_FETCH",
    "SCHEDULE_RULE",
    "PARALLEL_SCHEDULE",
    "PERMUTED_LAYOUT",
    "PERMUTED_ROWS",
    "PIPELINE_ASYNC_STAGES",
    "PIPELINE_FUSE",
    "PIPELINE_ORDER",
    "PIPELINE_SPECIALISED",
    "PIPELINE_STAGE",
    "OVERLAP_LAST",
    "PREFETCH_DISTANCE",
    "PREFETCH_NEXT",
    "BRANCH",
    "CODEGEN",
    "COMPOSITE",
    "IMPURE",
    "PRIMITIVE",
    "READ_ONLY",
    "REAL",
    "STREAMING_STORES",
    "TABLES",
    "TENSOR_COPY",
    "TENSOR_INTRIN",
    "TILED",
    "TRUSTED_REGIONS",
    "UNROLL_KEY",
    "VECTORIZE_KEY",
    "Annotation",
    "Key",
    "integer",
    "list_of",
    "one_of",
    "options_of",
    "register_annotation",
    "register_function_attribute",
    "text",
    "wrong_annotation",
]
