"""``tensorize``: a nest becomes a call of a tensor intrinsic that computes the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir import (
    Expr,
    IntImm,
    Range,
    Var,
    const,
    is_const,
    sub,
    substitute,
    uses_var,
)
from tilewright.support.errors import ScheduleError, VerifyError
from tilewright.tir import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    MatchBufferRegion,
    PrimFunc,
    renew_definitions,
)
from tilewright.tir.schedule.handles import BlockRV, LoopRV
from tilewright.tir.schedule.instruction import primitive
from tilewright.tir.schedule.primitives.block import blockize
from tilewright.tir.schedule.state import statements
from tilewright.tir.tensor_intrin import TensorIntrin

if TYPE_CHECKING:
    from tilewright.tir.schedule.schedule import Schedule


@primitive
def tensorize(
    sch: Schedule,
    block_or_loop: BlockRV | LoopRV,
    tensor_intrin: str,
    preserve_unit_iters: bool = True,
) -> BlockRV:
    """Put a tensor intrinsic in the place of a nest that computes what the intrinsic describes.

    Given a loop, the nest at the loop is made a block first. The program must have the loops of the
    description, in its order and with its extents. Returns the block.
    """
    intrin = TensorIntrin.get(tensor_intrin)
    try:
        intrin.verify()
    except VerifyError as error:
        raise ScheduleError(error.message) from error
    if isinstance(block_or_loop, LoopRV):
        rv: BlockRV = blockize(sch, block_or_loop, preserve_unit_iters)
    else:
        rv = block_or_loop
    realize = sch.state.get_block(rv)
    matcher = _Matcher(sch, realize, intrin)
    block = _implemented(sch, rv.func, realize.block, intrin, matcher.match())
    sch.state.replace(realize.block, block)
    return rv


class _Matcher:
    """Compares a block's nest with a description's, up to where the buffers start.

    Both sides are brought to one form: the innermost body over loop variables, iteration variables
    replaced by their bindings. Each buffer of the description must lie in one buffer of the program
    at a place that is the same for all its accesses.
    """

    def __init__(self, sch: Schedule, realize: BlockRealize, intrin: TensorIntrin) -> None:
        self.sch, self.realize, self.intrin = sch, realize, intrin
        self.buffers: dict[Buffer, Buffer] = {}
        self.starts: dict[Buffer, list[Expr]] = {}
        self.loops: dict[Var, Expr] = {}
        self.inner: set[Var] = set()
        self.analyzer = sch.state.analyzer_at(realize)
        for iter_var in realize.block.iter_vars:
            self.analyzer.bind(iter_var.var, iter_var.dom)
        self.why = ""

    def fail(self, why: str) -> ScheduleError:
        return self.sch.error(
            f"the program does not do what tensor intrinsic {self.intrin.name!r} describes: {why}",
            self.realize,
            remedy="compare the block with the description, tensor_intrin.desc",
        )

    def match(self) -> tuple[dict[Buffer, Buffer], dict[Buffer, list[Expr]]]:
        found_loops, found_body = self.flattened(self.realize.block.body)
        desc_root: Any = self.intrin.desc.root
        # The description's body may sit in one more block (the root block of script functions).
        body = desc_root.body
        if type(body) is BlockRealize and any(
            type(item) is For for item in statements(body.block.body)
        ):
            if body.block.iter_vars:
                raise self.fail("the description's outer block has iteration variables")
            body = body.block.body
        wanted_loops, wanted_body = self.flattened(body)
        found_loops = [loop for loop in found_loops if not is_const(loop.extent, 1)]
        wanted = [loop for loop in wanted_loops if not is_const(loop.extent, 1)]
        sizes = [loop.extent for loop in found_loops], [loop.extent for loop in wanted]
        if len(sizes[0]) != len(sizes[1]) or not all(
            self.analyzer.can_prove_equal(a, b) for a, b in zip(*sizes)
        ):
            raise self.fail(f"its loops are {sizes[0]}, the description has {sizes[1]}")
        for mine, theirs in zip(found_loops, wanted):
            self.loops[theirs.loop_var] = mine.loop_var
            self.inner.add(mine.loop_var)
            self.analyzer.bind(mine.loop_var, Range(mine.min, mine.extent))
        for theirs in wanted_loops:
            if theirs.loop_var not in self.loops:
                self.loops[theirs.loop_var] = const(0)
        if not self.same(found_body, wanted_body):
            raise self.fail(self.why or "the computations differ")
        return self.buffers, self.starts

    def flattened(self, body: Any) -> tuple[list[For], Any]:
        loops: list[For] = []
        mapping: dict[Any, Any] = {}
        while True:
            if type(body) is For:
                loops.append(body)
                body = body.body
            elif type(body) is BlockRealize:
                block = body.block
                if block.init is not None:
                    raise self.fail(
                        f"block {block.name!r} has init: decompose the reduction, or give the loop "
                        "so that init stays outside"
                    )
                for iter_var, value in zip(block.iter_vars, body.iter_values):
                    mapping[iter_var.var] = substitute(value, mapping)
                if not is_const(body.predicate, 1):
                    raise self.fail(f"block {block.name!r} has a predicate")
                body = block.body
            else:
                break
        unit = {loop.loop_var: const(0) for loop in loops if is_const(loop.extent, 1)}
        return loops, substitute(substitute(body, mapping), unit)

    def same(self, mine: Any, theirs: Any) -> bool:
        """Compare two trees; operands of commutative operators may stand either way round."""
        if type(mine) is not type(theirs):
            self.why = f"{mine!r} against {theirs!r}"
            return False
        if isinstance(mine, BufferLoad):
            return self.access(mine.buffer, mine.indices, theirs.buffer, theirs.indices)
        if isinstance(mine, BufferStore):
            return self.access(
                mine.buffer, mine.indices, theirs.buffer, theirs.indices
            ) and self.same(mine.value, theirs.value)
        if isinstance(mine, Var):
            target = self.loops.get(theirs)
            return target is mine
        if isinstance(mine, Expr) and mine.dtype != theirs.dtype:
            self.why = f"{mine!r} is {mine.dtype}, the description has {theirs.dtype}"
            return False
        for field in mine.fields:
            if field.role == "attr" and getattr(mine, field.name) != getattr(theirs, field.name):
                self.why = f"{mine!r} against {theirs!r}"
                return False
        a, b = mine.child_nodes(), theirs.child_nodes()
        if len(a) != len(b):
            return False
        saved = dict(self.buffers), dict(self.starts)
        if all(self.same(x, y) for x, y in zip(a, b)):
            return True
        if type(mine).__name__ in ("Add", "Mul", "Min", "Max") and len(a) == 2:
            self.buffers, self.starts = saved
            return self.same(a[0], b[1]) and self.same(a[1], b[0])
        return False

    def access(self, mine: Buffer, here: Any, theirs: Buffer, there: Any) -> bool:
        known = self.buffers.get(theirs)
        if known is None:
            if mine.dtype != theirs.dtype or mine.ndim < theirs.ndim:
                self.why = f"{mine!r} can't stand for {theirs!r}"
                return False
            if mine.scope != theirs.scope:
                self.why = f"{mine.name!r} is in {mine.scope}, the description wants {theirs.scope}"
                return False
        elif known is not mine:
            self.why = f"{theirs.name!r} stands for {known.name!r} and for {mine.name!r}"
            return False
        skipped = mine.ndim - theirs.ndim
        starts = []
        for position, index in enumerate(here):
            start = index
            if position >= skipped:
                start = sub(index, substitute(there[position - skipped], self.loops))
            start = self.analyzer.simplify(start)
            if type(start) is not IntImm and uses_var(start, self.inner):
                self.why = (
                    f"the index {index!r} of {mine.name!r} does not run along as in the description"
                )
                return False
            starts.append(start)
        if known is None:
            self.buffers[theirs] = mine
            self.starts[theirs] = starts
            return True
        if all(self.analyzer.can_prove_equal(x, y) for x, y in zip(starts, self.starts[theirs])):
            return True
        self.why = f"accesses of {mine.name!r} start at different places"
        return False


def _implemented(
    sch: Schedule,
    func_name: str,
    block: Block,
    intrin: TensorIntrin,
    found: tuple[dict[Buffer, Buffer], dict[Buffer, list[Expr]]],
) -> Block:
    """Return ``block`` with the implementation as its body, on matched pieces of its buffers."""
    buffers, starts = found
    impl: PrimFunc = renew_definitions(intrin.impl)
    matches = []
    for wanted, buffer in zip(intrin.desc.buffers, impl.buffers):
        mine = buffers.get(wanted)
        if mine is None:
            raise ScheduleError(
                f"parameter {wanted.name!r} of tensor intrinsic {intrin.name!r} is not used"
            )
        skipped = mine.ndim - wanted.ndim
        extents = [const(1)] * skipped + list(wanted.shape)
        region = tuple(Range(low, extent) for low, extent in zip(starts[wanted], extents))
        matches.append(MatchBufferRegion(buffer, BufferRegion(mine, region)))
    root = impl.root
    body = root.body
    allocated = root.alloc_buffers
    match_buffers = tuple(matches)
    if type(body) is BlockRealize and not body.block.iter_vars and body.block.init is None:
        allocated = (*allocated, *body.block.alloc_buffers)
        match_buffers = (*match_buffers, *body.block.match_buffers)
        body = body.block.body
    return block.replace(
        body=_with_fresh_names(sch, func_name, body),
        alloc_buffers=(*block.alloc_buffers, *allocated),
        match_buffers=(*block.match_buffers, *match_buffers),
        annotations={**block.annotations, "tensor_intrin": intrin.name},
    )


def _with_fresh_names(sch: Schedule, func_name: str, body: Any) -> Any:
    """Blocks of the implementation need names that the function doesn't have yet."""
    taken: set[str] = set()

    def rename(block: Block) -> Block:
        name = sch.state.fresh_block_name(func_name, block.name)
        while name in taken:
            name = sch.state.fresh_block_name(func_name, name + "_")
        taken.add(name)
        return block if name == block.name else block.replace(name=name)

    def go(node: Any) -> Any:
        if isinstance(node, Expr):
            return node
        made = node.map_children(go)
        return rename(made) if type(made) is Block else made

    return go(body)
