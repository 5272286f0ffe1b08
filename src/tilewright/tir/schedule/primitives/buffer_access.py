"""The regions that a block declares, by which primitives move and cache computation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.arith import Analyzer
from tilewright.ir import (
    Range,
    Var,
    free_vars,
    maximum,
    minimum,
)
from tilewright.support.errors import ScheduleError
from tilewright.tir import BlockRealize, BufferRegion
from tilewright.tir.analysis import block_access_regions
from tilewright.tir.attrs import TRUSTED_REGIONS
from tilewright.tir.index_map import IndexMap, as_index_map
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.vocabulary import READ, WRITE, AccessKind

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@primitive
def annotate_buffer_access(
    sch: Schedule, block: BlockRV, buffer_index: int, buf_type: AccessKind, gen_new_ranges: Any
) -> None:
    """Declare which region of a buffer a block accesses, if that is more precise than inferred.

    ``buffer_index`` counts the buffers that the block reads (``buf_type`` ``"read"``) or writes
    (``"write"``). ``gen_new_ranges`` is a function of the block's axes that gives for each
    dimension an index or a pair ``(begin, end)``; or an ``IndexMap``, or a lambda's text, with two
    results per dimension. Primitives that rewrite the block's body infer its regions anew.

    Preconditions:
        - ``buf_type`` is "read" or "write"
        - the block accesses a buffer of that number
        - there is one range per dimension, made of the block's axes and symbolic extents
        - what a block reads lies inside the ranges, whatever data its indices are made of
        - what a block writes is what the ranges say, no more and no less
    Before:
        for i in range(15):
            with T.block("B"):
                vi = T.axis.spatial(15, i)
                B[vi] = A[vi] + A[vi + 1]
    After ``annotate_buffer_access(B, 0, "read", lambda vi: ((0, 16),))``:
        for i in range(15):
            with T.block("B"):
                vi = T.axis.spatial(15, i)
                T.reads(A[0:16])
                T.writes(B[vi])
                B[vi] = A[vi] + A[vi + 1]
    """
    realize, made, analyzer = _given(sch, block, buffer_index, buf_type, gen_new_ranges)
    _check_covers(sch, realize, made, buf_type, analyzer)
    _declare(sch, realize, made, buf_type, buffer_index, realize.block.annotations)


@primitive
def unsafe_annotate_buffer_access(
    sch: Schedule, block: BlockRV, buffer_index: int, buf_type: AccessKind, gen_new_ranges: Any
) -> None:
    """Declare which region of a buffer a block accesses, if that can't be proven.

    Arguments are those of ``annotate_buffer_access``. Unsafe: if the block accesses more, moving
    computation or shrinking buffers by the region gives wrong results or reads out of bounds. The
    block is marked, and its declared regions are trusted from then on.

    Preconditions:
        - ``buf_type`` is "read" or "write"
        - the block accesses a buffer of that number
        - there is one range per dimension, made of the block's axes and symbolic extents
    Before:
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[P[vi] % 16]
    After ``unsafe_annotate_buffer_access(B, 0, "read", lambda vi: ((0, 4),))``:
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                T.reads(A[0:4], P[vi])
                T.writes(B[vi])
                T.block_attr({"trusted_regions": True})
                B[vi] = A[P[vi] % 16]
    """
    realize, made, _ = _given(sch, block, buffer_index, buf_type, gen_new_ranges)
    marked = {**realize.block.annotations, TRUSTED_REGIONS: True}
    _declare(sch, realize, made, buf_type, buffer_index, marked)


def _given(
    sch: Schedule, block: BlockRV, buffer_index: int, buf_type: AccessKind, gen_new_ranges: Any
) -> tuple[BlockRealize, BufferRegion, Analyzer]:
    """The block, the region as given, and an analyzer for that place."""
    state = sch.state
    realize = state.get_block(block)
    regions = _regions_of(sch, realize, buf_type)
    _check_number(sch, realize, regions, buf_type, buffer_index)
    old = regions[buffer_index]
    func_name = state.func_name_of(realize)
    symbols = {var.name: var for var in state.func(func_name).symbolic_vars()}
    mapping = _range_map(sch, realize, gen_new_ranges, old.buffer.ndim, symbols)
    sch.note(gen_new_ranges=mapping.to_text())
    analyzer = state.analyzer_at(realize)
    for iter_var in realize.block.iter_vars:
        analyzer.bind(iter_var.var, iter_var.dom)
    ends = mapping.map_indices([item.var for item in realize.block.iter_vars], analyzer)
    ranges = tuple(
        Range.from_min_extent(begin, analyzer.simplify(end - begin))
        for begin, end in zip(ends[::2], ends[1::2])
    )
    return realize, BufferRegion(old.buffer, ranges), analyzer


def _declare(
    sch: Schedule,
    realize: BlockRealize,
    made: BufferRegion,
    buf_type: AccessKind,
    number: int,
    annotations: Mapping[str, Any],
) -> None:
    regions = list(_regions_of(sch, realize, buf_type))
    regions[number] = made
    fields: dict[str, Any] = {"reads" if buf_type == READ else "writes": tuple(regions)}
    sch.state.replace(realize.block, realize.block.replace(**fields, annotations=dict(annotations)))


@primitive
def unsafe_hide_buffer_access(
    sch: Schedule, block: BlockRV, buf_type: AccessKind, buf_index_array: Sequence[int]
) -> None:
    """Remove some accesses from the declared regions of a block.

    Unsafe: primitives no longer see the dependences through them. The block is marked, and its
    declared regions are trusted from then on.

    Preconditions:
        - ``buf_type`` is "read" or "write"
        - the block accesses buffers of these numbers
    Before:
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] + 1.0
    After ``unsafe_hide_buffer_access(B, "read", [0])``:
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                T.reads()
                T.writes(B[vi])
                T.block_attr({"trusted_regions": True})
                B[vi] = A[vi] + 1.0
    """
    realize = sch.state.get_block(block)
    regions = _regions_of(sch, realize, buf_type)
    for number in buf_index_array:
        _check_number(sch, realize, regions, buf_type, number)
    kept = tuple(item for number, item in enumerate(regions) if number not in buf_index_array)
    fields: dict[str, Any] = {"reads" if buf_type == READ else "writes": kept}
    if len(kept) < len(regions):
        fields["annotations"] = {**realize.block.annotations, TRUSTED_REGIONS: True}
        sch.state.replace(realize.block, realize.block.replace(**fields))


def _regions_of(
    sch: Schedule, realize: BlockRealize, buf_type: AccessKind
) -> tuple[BufferRegion, ...]:
    return realize.block.reads if buf_type == READ else realize.block.writes


def _check_number(
    sch: Schedule,
    realize: BlockRealize,
    regions: Sequence[BufferRegion],
    buf_type: AccessKind,
    number: int,
) -> None:
    if not 0 <= number < len(regions):
        raise sch.error(
            f"block {realize.block.name!r} {buf_type}s {len(regions)} buffers; there is no number "
            f"{number}",
            realize,
        )


def _range_map(
    sch: Schedule, realize: BlockRealize, value: Any, ndim: int, symbols: dict[str, Var]
) -> IndexMap:
    """The ranges as a map from the block's axes to ``begin, end`` per dimension."""
    axes = realize.block.iter_vars

    def flat(*variables: Any) -> list[Any]:
        made: list[Any] = []
        found = value(*variables)
        for item in found if isinstance(found, (list, tuple)) else [found]:
            pair = item if isinstance(item, (list, tuple)) else (item, item + 1)
            if len(pair) != 2:
                raise ScheduleError(f"a range is a pair (begin, end), got {pair!r}")
            made.extend(pair)
        return made

    try:
        if callable(value) and not isinstance(value, (str, IndexMap)):
            variables = tuple(Var(axis.var.name) for axis in axes)
            results = IndexMap.from_func(lambda *_: flat(*variables), len(axes)).final_indices
            mapping = IndexMap(variables, results)
        else:
            mapping = as_index_map(value, len(axes), symbols)
        mapping.to_text()
    except (ScheduleError, TypeError) as error:
        message = error.message if isinstance(error, ScheduleError) else str(error)
        raise sch.error(f"gen_new_ranges: {message}", realize) from None
    if len(mapping.final_indices) != 2 * ndim:
        raise sch.error(
            f"gen_new_ranges gives {len(mapping.final_indices) / 2:g} ranges for {ndim} dimensions",
            realize,
        )
    own = {*mapping.initial_indices, *symbols.values()}
    for expr in mapping.final_indices:
        for var in free_vars(expr):
            if var not in own:
                raise sch.error(
                    f"gen_new_ranges uses {var.name!r}, which is no axis of block "
                    f"{realize.block.name!r} and no symbolic extent",
                    realize,
                )
    return mapping


def _check_covers(
    sch: Schedule,
    realize: BlockRealize,
    given: BufferRegion,
    buf_type: AccessKind,
    analyzer: Analyzer,
) -> None:
    """Refuse ranges that do not surely hold (for writes: are) what the block accesses."""
    block = realize.block
    reads, writes = block_access_regions(block)
    inferred = reads if buf_type == READ else writes
    # What an intrinsic accesses in its own way is known from the block's signature alone.
    declared = block.reads if buf_type == READ else block.writes
    found = next(item for item in (*inferred, *declared) if item.buffer is given.buffer)
    for axis, (said, real) in enumerate(zip(given.region, found.region)):
        low, high = said.min, said.min + said.extent
        real_low, real_high = real.min, real.min + real.extent
        if buf_type == WRITE:
            fits = analyzer.can_prove_equal(low, real_low)
            fits = fits and analyzer.can_prove_equal(high, real_high)
        else:
            # Nothing is accessed outside of the buffer.
            inside_low = maximum(real_low, 0)
            inside_high = minimum(real_high, given.buffer.shape[axis])
            fits = analyzer.can_prove(low <= real_low) or analyzer.can_prove(low <= inside_low)
            fits = fits and (
                analyzer.can_prove(real_high <= high) or analyzer.can_prove(inside_high <= high)
            )
        if not fits:
            verb = "cover" if buf_type == READ else "equal"
            raise sch.error(
                f"range {axis} of {given.buffer.name}, [{low!r}, {high!r}), does not surely {verb} "
                f"what block {block.name!r} {buf_type}s: [{real_low!r}, {real_high!r})",
                realize,
            )
