"""What custom rules ask about the blocks of a function, under TVM's names.

:func:`normalize_prim_func` gives each block loops that are its iterations, and a description of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.arith import IterSplitExpr, normalize_to_iter_sum, simplify
from tilewright.dlight.buffer_info import BufferInfo
from tilewright.ir import (
    Call,
    Expr,
    Range,
    Var,
    as_expr,
    as_int,
    free_vars,
    is_const,
    structural_equal,
)
from tilewright.scheduling.blocks import leaf_blocks, loads_of, stores_of
from tilewright.support.errors import ScheduleError, VerifyError
from tilewright.target import Target
from tilewright.tir import SPATIAL, Block, Buffer, BufferLoad, BufferRegion
from tilewright.tir.analysis import is_reduction_block
from tilewright.tir.schedule import BlockRV, LoopRV, Schedule

_KINDS = {"spatial": "S", "reduce": "R", "opaque": "O"}


class IterInfo:
    """An iteration of a block: its kind (``S``, ``R`` or ``O``), variable, extent and loop."""

    def __init__(self, kind: str, var: Var, dom: Expr, loop_rv: LoopRV) -> None:
        self.kind, self.var, self._dom, self.loop_rv = kind, var, dom, loop_rv

    @property
    def dom(self) -> int | Expr:
        """The extent: a number, if it is one."""
        number = as_int(self._dom)
        return self._dom if number is None else number


class SBlockInfo:
    """A block and its iterations."""

    def __init__(
        self,
        name: str,
        iters: Sequence[IterInfo],
        block_rv: BlockRV,
        reduction_block: bool = False,
    ) -> None:
        self.name, self.iters, self.block_rv = name, list(iters), block_rv
        self._is_reduction = reduction_block

    def dom(self) -> list[int | Expr]:
        """Return the extents of the iterations."""
        return [each.dom for each in self.iters]

    def dom_kind(self) -> str:
        """Return the kinds of the iterations: ``"SSR"``."""
        return "".join(each.kind for each in self.iters)

    def get_loops(self) -> list[LoopRV]:
        """Return the loops."""
        return [each.loop_rv for each in self.iters]

    def read_bufs(self, sch: Schedule) -> list[BufferInfo]:
        """Describe the regions that the block reads."""
        return [BufferInfo(sch, self.block_rv, each) for each in sch.get(self.block_rv).reads]

    def write_bufs(self, sch: Schedule) -> list[BufferInfo]:
        """Describe the regions that the block writes."""
        return [BufferInfo(sch, self.block_rv, each) for each in sch.get(self.block_rv).writes]

    def is_injective(self) -> bool:
        """Whether each iteration writes elements of its own: all are spatial."""
        return set(self.dom_kind()) == {"S"}

    def is_reduction(self) -> bool:
        """Whether the block updates elements in a reduction."""
        return self._is_reduction

    def is_elementwise(self, sch: Schedule) -> bool:
        """Whether each element is computed from those at the same place."""
        block = sch.get(self.block_rv)
        if not self.is_injective() or len(block.writes) != 1:
            return False
        place = block.writes[0].region
        return all(_equal(read.region, place) for read in block.reads)

    def is_layout_transform(self, sch: Schedule) -> bool:
        """Whether the block only puts elements into another order."""
        stores = stores_of(sch.get(self.block_rv))
        copies = len(stores) == 1 and type(stores[0].value) is BufferLoad
        return copies and self.is_injective() and not self.is_elementwise(sch)

    def is_data_pad(self, sch: Schedule) -> bool:
        """Whether the block copies elements, with others around them."""
        stores = stores_of(sch.get(self.block_rv))
        value = stores[0].value if len(stores) == 1 else None
        return self.is_injective() and isinstance(value, Call) and value.op.name == "if_then_else"

    def __repr__(self) -> str:
        extents = ", ".join(str(each) for each in self.dom())
        return f'SBlockInfo("{self.name}", "{self.dom_kind()}", [{extents}])'


def _equal(regions: Sequence[Range], others: Sequence[Range]) -> bool:
    pairs = list(zip(regions, others))
    same = all(structural_equal(a, b, map_free_vars=False) for a, b in pairs)
    return len(regions) == len(others) and same


def normalize_prim_func(sch: Schedule) -> list[SBlockInfo] | None:
    """Give each block of ``main`` one loop for each of its iterations, in their order.

    Return the blocks' descriptions; ``None`` if a block's loops can't be changed so.
    """
    trial = sch.copy()
    try:
        for block in leaf_blocks(trial):
            trial.transform_block_layout(block, lambda *iters: iters)
        for block in leaf_blocks(sch):
            sch.transform_block_layout(block, lambda *iters: iters)
    except ScheduleError:
        return None
    return [get_sblock_info(sch, block) for block in leaf_blocks(sch)]


def get_sblock_info(sch: Schedule, block: BlockRV) -> SBlockInfo:
    """Describe a block whose loops are its iterations.

    Raises ``ScheduleError`` if it has more or fewer loops than iterations.
    """
    item, loops = sch.get(block), sch.get_loops(block)
    if len(loops) != len(item.iter_vars):
        raise ScheduleError(
            f"block {item.name!r} has {len(loops)} loops for {len(item.iter_vars)} iterations; "
            "normalize_prim_func(sch) gives each its own"
        )
    iters = [
        IterInfo(_KINDS[each.kind], each.var, each.dom.extent, loop)
        for each, loop in zip(item.iter_vars, loops)
    ]
    return SBlockInfo(item.name, iters, block, is_reduction_block(item))


def get_root_block(sch: Schedule, func_name: str = "main") -> BlockRV:
    """Return the block around all others of a function."""
    return sch.get_block(sch.mod[func_name].root.name, func_name)


def collect_vars_used_in_prim_expr(expr: Expr) -> set[Var]:
    """Return the variables of an expression."""
    return set(free_vars(expr))


def collect_block_iter_vars_used_in_access_region(
    block: Block, region: Iterable[Range]
) -> set[Var]:
    """Return the variables of a block's iterations that a region depends on."""
    own = {each.var for each in block.iter_vars}
    used = {var for axis in region for part in (axis.min, axis.extent) for var in free_vars(part)}
    return own & used


def _vars_of(block: Block, access: BufferRegion) -> set[Var]:
    return collect_block_iter_vars_used_in_access_region(block, access.region)


def detect_dominant_read(block: Block) -> Expr:
    """Return the place of the element that a block reads by most iterations' variables.

    It is the element's number in a compact buffer. Raises ``ScheduleError`` if it reads nothing.
    """
    loads = [load for load in loads_of(block) if load.indices]
    if not loads:
        raise ScheduleError(f"block {block.name!r} reads no elements")
    own = {each.var for each in block.iter_vars}

    def count(load: BufferLoad) -> int:
        return len(own & {var for index in load.indices for var in free_vars(index)})

    found = max(loads, key=count)
    offset: Expr = as_expr(0)
    for index, extent in zip(found.indices, found.buffer.shape):
        offset = offset * extent + index
    return simplify(offset)


def is_broadcast_epilogue(sch: Schedule, block: BlockRV, epilogue: BlockRV) -> bool:
    """Whether a block uses each element of another's result in several iterations."""
    written = {region.buffer for region in sch.get(block).writes}
    item = sch.get(epilogue)
    wide = {each.var for each in item.iter_vars if as_int(each.dom.extent) != 1}
    reads = [region for region in item.reads if region.buffer in written]
    return any(not wide <= _vars_of(item, region) for region in reads)


def is_gemv(sch: Schedule, block_info: SBlockInfo) -> list[Buffer] | None:
    """Return the vectors of a product of a matrix and vectors; ``None`` for other blocks."""
    block = sch.get(block_info.block_rv)
    spatial = any(each.kind == SPATIAL for each in block.iter_vars)
    if not (block_info.is_reduction() and spatial and len(block.writes) == 1):
        return None
    if len(block.reads) < 2:
        return None
    axes = len(block.iter_vars)
    vectors = [r.buffer for r in block.reads if 0 < len(_vars_of(block, r)) < axes]
    return vectors if 0 < len(vectors) < len(block.reads) else None


def get_max_shared_memory_per_block(target: Target) -> int:
    """Return how many bytes of shared memory a block of a GPU's threads may have."""
    return target.max_shared_memory


normalize_function = normalize_prim_func  # TVM's newer name


def normalize(sch: Schedule, block_info: SBlockInfo) -> bool | None:
    """Give a product of a matrix and vectors four loops: batch, results, reduction, group.

    Batches are iterations that all of the block's buffers have. A group is ``n`` in ``k // n``,
    where the matrix is read once for ``n`` steps of the reduction. Each loop is fused of those of
    its kind, in the order in which the matrix has them, or has one iteration.

    Return whether neighbours in the matrix are steps of the reduction; ``None``, having done
    nothing, for a block that isn't of this form.
    """
    block = sch.get(block_info.block_rv)
    order = _splits_of_matrix(block, block_info)
    if order is None:
        return None
    buffers = [_vars_of(block, access) for access in (*block.writes, *block.reads)]
    roles = [_role_in_product(info, buffers) for info, _ in order]
    if not {"result", "step"} <= set(roles):
        return None
    kinds: dict[str, list[LoopRV]] = {"batch": [], "result": [], "step": [], "group": []}
    for role, (info, split) in zip(roles, order):
        loop = info.loop_rv
        if not is_const(split.lower_factor, 1):
            loop, inner = sch.split(loop, [None, split.lower_factor])
            kinds["group"].append(inner)
        kinds[role].append(loop)
    for role in ("batch", "group"):
        if not kinds[role]:
            kinds[role].append(sch.add_unit_loop(block_info.block_rv))
    sch.reorder(*(loop for loops in kinds.values() for loop in loops))
    for loops in kinds.values():
        sch.fuse(*loops)
    return order[-1][0].kind == "R"


def _splits_of_matrix(
    block: Block, block_info: SBlockInfo
) -> list[tuple[IterInfo, IterSplitExpr]] | None:
    """The axes of a block as its largest operand has them; at most one, a reduction, is grouped."""
    ranges = {each.var: each.dom for each in block.iter_vars}
    try:
        access = normalize_to_iter_sum(detect_dominant_read(block), ranges)
    except (ScheduleError, VerifyError):
        return None
    infos = {each.var: each for each in block_info.iters}
    order = [(infos.get(split.source.source), split) for split in access.args]
    used = [info for info, _ in order if info is not None]
    if free_vars(access.base) & ranges.keys() or sorted(map(id, used)) != sorted(
        map(id, infos.values())
    ):
        return None
    grouped = [info for info, split in order if not is_const(split.lower_factor, 1)]
    if len(grouped) > 1 or any(info is None or info.kind != "R" for info in grouped):
        return None
    return [(info, split) for info, split in order if info is not None]


def _role_in_product(info: IterInfo, buffers: Sequence[set[Var]]) -> str:
    if info.kind == "R":
        return "step"
    return "batch" if all(info.var in used for used in buffers) else "result"
