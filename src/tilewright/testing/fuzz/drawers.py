"""How to draw the arguments of each primitive.

``DRAWERS`` has rows of primitives: how often one is tried, and a function that looks at the
schedule and returns a step. One without a row is drawn by its signature, if that takes blocks,
loops and numbers only. Arguments are plausible most of the time; now and then they are wrong
on purpose, since a refusal is checked too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tilewright.testing.fuzz.draw import Draw, Row, args, block, loop
from tilewright.testing.fuzz.draw_blocks import (
    draw_annotate,
    draw_block_layout,
    draw_blockize,
    draw_epilogue,
    draw_inline,
    draw_pad_einsum,
    draw_padding,
    draw_reorder_axes,
    draw_rfactor,
    draw_tensorize,
    draw_unannotate,
)
from tilewright.testing.fuzz.draw_buffers import (
    draw_annotate_access,
    draw_at,
    draw_axis_separator,
    draw_cache,
    draw_cache_inplace,
    draw_hide_access,
    draw_layout,
    draw_reindex_cache,
    draw_rolling_buffer,
    draw_set_dtype,
    draw_set_scope,
    draw_storage_align,
)
from tilewright.testing.fuzz.draw_loops import (
    draw_add_unit_loop,
    draw_bind,
    draw_fuse,
    draw_loop_of_block,
    draw_loop_partition,
    draw_merge,
    draw_move,
    draw_reorder,
    draw_split,
)
from tilewright.testing.fuzz.draw_variants import draw_size_variants
from tilewright.testing.fuzz.steps import BlockRef, Step
from tilewright.tir.schedule import PRIMITIVES

DRAWERS: dict[str, Row] = {
    "annotate_buffer_access": Row(0.5, draw_annotate_access),
    "cache_inplace": Row(0.4, draw_cache_inplace),
    "cache_index": Row(0.5, args(block, Draw.scope)),
    "can_decompose_padding": Row(0.1, draw_padding("can_decompose_padding")),
    "decompose_padding": Row(1, draw_padding("decompose_padding")),
    "fuse_reduction_epilogue": Row(1.2, draw_epilogue),
    "loop_partition": Row(0.7, draw_loop_partition),
    "merge": Row(0.7, draw_merge),
    "pad_einsum": Row(0.7, draw_pad_einsum),
    "read_at": Row(0.6, draw_at("read_at")),
    "reindex_cache_read": Row(0.6, draw_reindex_cache("reindex_cache_read")),
    "reindex_cache_write": Row(0.6, draw_reindex_cache("reindex_cache_write")),
    "reorder_block_iter_var": Row(0.4, draw_reorder_axes),
    "rolling_buffer": Row(1, draw_rolling_buffer),
    "sample_tile": Row(0.05, args(loop, lambda d: d.rng.choice([0, 1, 2, 3]))),
    "set_axis_separator": Row(0.3, draw_axis_separator),
    "storage_align": Row(0.3, draw_storage_align),
    "unsafe_hide_buffer_access": Row(0.15, draw_hide_access),
    "unsafe_skip_padding": Row(0.7, draw_loop_of_block("unsafe_skip_padding")),
    "unsafe_set_dtype": Row(0.5, draw_set_dtype),
    "write_at": Row(0.6, draw_at("write_at")),
    "add_unit_loop": Row(0.5, draw_add_unit_loop),
    "annotate": Row(0.6, draw_annotate),
    "bind": Row(0.6, draw_bind),
    "blockize": Row(1, draw_blockize),
    "cache_read": Row(1.5, draw_cache("cache_read")),
    "cache_write": Row(1.5, draw_cache("cache_write")),
    "compute_at": Row(3, draw_move("compute_at", True)),
    "compute_inline": Row(1, draw_inline(True)),
    "decompose_reduction": Row(1.5, draw_loop_of_block("decompose_reduction")),
    "enter_postproc": Row(0.05, args()),
    "fuse": Row(2, draw_fuse),
    "get_block": Row(0.05, lambda d: Step("get_block", (d.rng.choice([*d.blocks, "none"]),))),
    "get_child_blocks": Row(0.05, args(block)),
    "get_consumers": Row(0.05, args(block)),
    "get_loops": Row(0.05, args(block)),
    "get_output_blocks": Row(0.05, lambda d: Step("get_output_blocks", (BlockRef("root"),))),
    "get_producers": Row(0.05, args(block)),
    "has_block": Row(0.05, lambda d: Step("has_block", (d.rng.choice([*d.blocks, "none"]),))),
    "parallel": Row(0.7, args(loop)),
    "reindex": Row(1, args(block, Draw.access)),
    "reorder": Row(2.5, draw_reorder),
    "reverse_compute_at": Row(2.5, draw_move("reverse_compute_at", False)),
    "reverse_compute_inline": Row(1, draw_inline(False)),
    "rfactor": Row(1.5, draw_rfactor),
    "sample_categorical": Row(
        0.05, lambda d: Step("sample_categorical", ([1, 2], [0.5, d.rng.choice([0.5, -1.0])]))
    ),
    "sample_compute_location": Row(0.1, args(block)),
    "sample_partitioned_tile": Row(0.05, args(loop, lambda d: 2, lambda d: 1, lambda d: 2)),
    "sample_perfect_tile": Row(0.05, args(loop, lambda d: d.rng.choice([0, 1, 2, 3]))),
    "set_scope": Row(0.5, draw_set_scope),
    "size_variants": Row(0.4, draw_size_variants(lambda: drawn())),
    "split": Row(4, draw_split),
    "tensorize": Row(0.7, draw_tensorize),
    "transform_block_layout": Row(0.7, draw_block_layout),
    "transform_layout": Row(1.2, draw_layout),
    "unannotate": Row(0.3, draw_unannotate),
    "unroll": Row(0.5, args(loop)),
    "vectorize": Row(0.7, args(loop)),
}
"""Every primitive that is fuzzed."""

EXCLUDED: dict[str, str] = {
    "calculate": "it computes a number from others, and changes no program",
    "unsafe_annotate_buffer_access": "its user's word that it is right is all there is",
    "use_kernel": "a kernel replaces one program, which is not among those that are drawn",
}
"""Primitives that are not fuzzed, and why."""


_KINDS: dict[str, Callable[[Draw], Any]] = {
    "BlockRV": block,
    "LoopRV": loop,
    "bool": Draw.flag,
    "int": lambda d: d.rng.choice([-1, 0, 1, 2, 3, 4, 8]),
}
_WEIGHT = 0.5


def row(name: str) -> Row | None:
    """Return a primitive's row; one that has none is drawn by what its signature takes."""
    if name in DRAWERS or name in EXCLUDED:
        return DRAWERS.get(name)
    _, *parameters = inspect.signature(PRIMITIVES.get(name).function).parameters.values()
    required = [item for item in parameters if item.default is item.empty]
    kinds = [_KINDS.get(str(item.annotation)) for item in required]
    if None in kinds or any(item.kind is item.VAR_POSITIONAL for item in required):
        return None
    return Row(_WEIGHT, args(*(kind for kind in kinds if kind is not None)))


def drawn() -> dict[str, Row]:
    """Return the rows of all primitives that are fuzzed."""
    names = [*DRAWERS, *(name for name in PRIMITIVES if name not in DRAWERS)]
    rows = {name: row(name) for name in names if name in PRIMITIVES}
    return {name: found for name, found in rows.items() if found is not None}
