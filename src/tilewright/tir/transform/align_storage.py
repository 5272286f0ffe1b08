"""Give allocations the strides that ``storage_align`` asked for.

The blocks that write a buffer say what they want in an annotation: entries ``[position among the
writes, axis, factor, offset]`` for ``stride[axis] % factor == offset``. The pass runs twice.
Buffers whose address an intrinsic gets are aligned before matched buffers take over their strides
(``pointers=True``); they keep their whole shape anyway. All others are aligned once compaction has
given them their final shape.
"""

from __future__ import annotations

from tilewright.arith import Analyzer
from tilewright.ir import (
    Call,
    Expr,
    Mutator,
    Var,
    annotated,
    const,
    contains,
    pre_order,
)
from tilewright.support.errors import LowerError
from tilewright.tir.attrs import BUFFER_DIM_ALIGN
from tilewright.tir.buffer import Buffer, BufferLoad
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Allocate, Block
from tilewright.tir.transform.base import FunctionTransform
from tilewright.tir.walk import statements

_has_annotation = contains(annotated(BUFFER_DIM_ALIGN))

Alignment = dict[int, tuple[int, int]]
"""Factor and offset by axis."""


class AlignStorage(FunctionTransform):
    """Pad the strides of annotated buffers; see the module's text."""

    def __init__(self, pointers: bool = False) -> None:
        self.pointers = pointers

    def transform_function(self, func: PrimFunc) -> PrimFunc:
        """Rewrite one function."""
        wanted = _wanted(func)
        if not wanted:
            return func
        if self.pointers:
            passed = _passed_pointers(func)
            wanted = {data: entry for data, entry in wanted.items() if data in passed}
            if not wanted:
                return func
        return func.map_children(_Aligner(wanted).visit)


def _wanted(func: PrimFunc) -> dict[Var, Alignment]:
    """Alignments by pointer variable, which survives changes of a buffer's shape."""
    found: dict[Var, Alignment] = {}
    if not _has_annotation(func.body):
        return found
    for block in statements(func):
        if type(block) is not Block or BUFFER_DIM_ALIGN not in block.annotations:
            continue
        for position, axis, factor, offset in block.annotations[BUFFER_DIM_ALIGN]:
            if position < len(block.writes):
                buffer = block.writes[position].buffer
                if axis >= buffer.ndim:
                    raise LowerError(
                        f"block {block.name!r} aligns axis {axis} of {buffer.name}, which has "
                        f"{buffer.ndim} dimensions: apply storage_align after transform_layout"
                    )
                found.setdefault(buffer.data, {})[axis] = (factor, offset)
    return found


def _passed_pointers(func: PrimFunc) -> set[Var]:
    """Pointers of buffers that go somewhere, directly or as the pointer of a matched buffer."""
    sources: dict[Var, Var] = {}
    passed: set[Var] = set()
    compact: set[Buffer] = set()
    """Matched buffers that don't ask for strides: an address in one is that of an element."""
    for item in pre_order(func.body):
        if type(item) is Block:
            for match in item.match_buffers:
                sources[match.buffer.data] = match.source.buffer.data
                if not match.buffer.strides:
                    compact.add(match.buffer)
        elif type(item) is Var and item.dtype == "handle":
            passed.add(item)
        elif type(item) is Call and item.op.name == "address_of":
            passed.update(
                arg.buffer.data
                for arg in item.args
                if isinstance(arg, BufferLoad) and arg.buffer not in compact
            )
    for data in list(passed):
        while data in sources:
            data = sources[data]
            passed.add(data)
    return passed


def aligned_strides(shape: tuple[Expr, ...], wanted: Alignment) -> tuple[Expr, ...]:
    """Row-major strides, each enlarged to the next one that satisfies its alignment."""
    analyzer = Analyzer()
    strides: list[Expr] = []
    step: Expr = const(1)
    for axis in reversed(range(len(shape))):
        if axis in wanted:
            factor, offset = wanted[axis]
            step = analyzer.simplify(step + (offset - step) % factor)
        strides.append(step)
        step = analyzer.simplify(step * shape[axis])
    return tuple(reversed(strides))


class _Aligner(Mutator):
    def __init__(self, wanted: dict[Var, Alignment]) -> None:
        self.wanted = wanted
        self.made: dict[Buffer, Buffer] = {}

    def aligned(self, buffer: Buffer) -> Buffer:
        wanted = self.wanted.get(buffer.data)
        if wanted is None or buffer.strides:
            return buffer
        made = buffer.replace(strides=aligned_strides(buffer.shape, wanted))
        self.made[buffer] = made
        return made

    def visit_Buffer(self, node: Buffer) -> Buffer:
        return self.made.get(node, node)

    def visit_Allocate(self, node: Allocate) -> Allocate:
        buffer = self.aligned(node.buffer)
        made = self.generic_visit(node)
        return made if buffer is node.buffer else made.replace(buffer=buffer)

    def visit_Block(self, node: Block) -> Block:
        allocated = tuple(map(self.aligned, node.alloc_buffers))
        made = self.generic_visit(node)
        if all(a is b for a, b in zip(allocated, node.alloc_buffers)):
            return made
        return made.replace(alloc_buffers=allocated)
