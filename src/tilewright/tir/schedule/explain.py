"""``sch.explain()``: the data that each block's loops touch, and which primitives may come next.

For each block: its loops and what they iterate over; how many bytes of each buffer one run of each
loop touches; how often each element is used; operations and operations per byte; whether the
innermost loop walks through memory in order, and how wide vectors can be. Then the likely next
primitives are tried on copies of the schedule, with the reasons of those that refuse.

The schedule is not changed. All counts may be expressions of symbolic sizes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from fractions import Fraction

from tilewright.arith import Analyzer
from tilewright.ir import (
    Expr,
    Range,
    add,
    as_int,
    const,
    dtypes,
    free_vars,
    mul,
    sub,
    substitute,
    uses_var,
)
from tilewright.script import to_text
from tilewright.target import Target
from tilewright.tir import (
    SERIAL,
    SPATIAL,
    VECTORIZED,
    BlockRealize,
    Buffer,
    For,
)
from tilewright.tir.analysis import Access, Count, Traffic, block_kind, detect_accesses
from tilewright.tir.analysis.accesses import works_by_intrinsic
from tilewright.tir.analysis.flops import count_operations
from tilewright.tir.analysis.traffic import traffic_of
from tilewright.tir.schedule.core import ScheduleCore
from tilewright.tir.schedule.explain_next import Attempt, attempts, iterates
from tilewright.tir.schedule.handles import BlockRV
from tilewright.tir.schedule.state import ScheduleState
from tilewright.tir.walk import child_blocks


@dataclass(frozen=True)
class Ratio:
    """A quotient: ``number``, or ``above / below`` where that depends on symbolic sizes.

    It is not ``exact`` if either is an upper bound.
    """

    above: Expr
    below: Expr
    number: float | None
    exact: bool

    def __str__(self) -> str:
        about = "" if self.exact else "about "
        if self.number is not None:
            return f"{about}{self.number:.4g}"
        if as_int(self.below) == 1:
            return about + expr_text(self.above)
        return f"{about}({expr_text(self.above)}) / ({expr_text(self.below)})"


@dataclass(frozen=True)
class LoopFacts:
    """A loop around a block, the outermost first.

    ``iterates`` is ``spatial``, ``reduce``, ``opaque``, ``both`` (spatial and another) or ``none``.
    ``reads``, ``writes`` and ``touches`` (either) are the bytes of each buffer that one run of the
    whole loop uses, each element counted once.
    """

    name: str
    extent: Expr
    kind: str
    iterates: str
    reads: dict[str, Count]
    writes: dict[str, Count]
    touches: dict[str, Count]


@dataclass(frozen=True)
class BufferFacts:
    """A buffer that a block uses, over all loops around the block.

    ``reuse`` is the number of accesses divided by the number of different elements. ``step`` is how
    far in memory (in elements) each access moves when the innermost loop moves by one: 1 is
    contiguous, 0 the same element, ``None`` irregular. Accesses of one buffer may differ.
    """

    name: str
    reads: Count
    writes: Count
    touched: Count
    reuse: Ratio
    steps: tuple[Expr | None, ...]

    @property
    def is_contiguous(self) -> bool:
        """Whether all accesses advance element by element, or stay at one element."""
        return all(step is not None and as_int(step) in (0, 1) for step in self.steps)


@dataclass(frozen=True)
class BlockFacts:
    """What ``explain`` finds out about a block.

    ``intensity`` is operations per byte touched. ``has_intrinsic``: an intrinsic does the work; its
    operations are not counted. ``vector_lanes`` is the number of lanes that the innermost loop can
    be vectorised with (1 if not at all); ``vector_note`` says why no more.
    """

    func_name: str
    name: str
    kind: str
    why_opaque: str
    loops: tuple[LoopFacts, ...]
    buffers: tuple[BufferFacts, ...]
    flops: Count
    bytes_touched: Count
    intensity: Ratio
    has_intrinsic: bool
    vector_lanes: int
    vector_note: str
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True)
class Explanation:
    """The facts of several blocks; ``str`` gives them as text."""

    blocks: tuple[BlockFacts, ...]

    def __getitem__(self, name: str) -> BlockFacts:
        """Return the facts of a block by name."""
        for block in self.blocks:
            if block.name == name:
                return block
        raise KeyError(name)

    def __str__(self) -> str:
        return "\n\n".join("\n".join(_block_lines(block)) for block in self.blocks)


def explain(sch: ScheduleCore, block: BlockRV | None, target: Target) -> Explanation:
    """Collect the facts of one block, or of all blocks that compute in the working function."""
    if block is not None:
        return Explanation((_explain_block(sch, block, target),))
    func_name = sch.working_func
    found = [
        BlockRV(func_name, name)
        for name, realize in sch.state.index(func_name).blocks.items()
        if sch.state.parent(realize) is not None and not child_blocks(realize.block)
    ]
    return Explanation(tuple(_explain_block(sch, item, target) for item in found))


def _explain_block(sch: ScheduleCore, rv: BlockRV, target: Target) -> BlockFacts:
    state = sch.state
    realize = state.get_block(rv)
    block, loops = realize.block, state.loops_above(realize)
    scope = state.scope_realize(realize)
    kind, why = block_kind(block, None if scope is None else scope.block)
    accesses = [item for item in detect_accesses(realize) if not item.pointer]
    known = _known_outside(state, rv.func, realize)
    body = [item for item in accesses if not item.in_init]
    around = _placed(body, loops)
    whole = traffic_of(around, known)
    flops = count_operations(around, known)
    touched = Count(const(0))
    for item in whole.values():
        touched = touched + item.footprint_bytes
    touched = Count(known.simplify(touched.value), touched.exact)
    buffers = tuple(_buffer_facts(item, around, loops, known) for item in whole.values())
    lanes, note = _vector_lanes(realize, loops, buffers, whole, target)
    return BlockFacts(
        func_name=rv.func,
        name=block.name,
        kind=kind,
        why_opaque=why,
        loops=tuple(_loop_facts(realize, loops, depth, body, known) for depth in range(len(loops))),
        buffers=buffers,
        flops=flops,
        bytes_touched=touched,
        intensity=_ratio(flops, touched, known),
        has_intrinsic=works_by_intrinsic(block),
        vector_lanes=lanes,
        vector_note=note,
        attempts=tuple(attempts(sch, rv, realize, loops)),
    )


def _known_outside(state: ScheduleState, func_name: str, realize: BlockRealize) -> Analyzer:
    """Facts common to all loops of the block: sizes, and enclosing blocks with their loops."""
    scope = state.scope_realize(realize)
    if scope is None:
        return state.analyzer(func_name, least_size=1)
    known = state.analyzer_at(scope, least_size=1)
    for iter_var in scope.block.iter_vars:
        known.bind(iter_var.var, iter_var.dom)
    return known


def _placed(accesses: list[Access], loops: list[For]) -> list[Access]:
    """The accesses of a block relative to some of the loops around it."""
    domain = {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in loops}
    return [
        replace(item, loops=(*loops, *item.loops), domain={**domain, **item.domain})
        for item in accesses
    ]


# ---- loops and buffers --------------------------------------------------------------------------


def _loop_facts(
    realize: BlockRealize, loops: list[For], depth: int, body: list[Access], known: Analyzer
) -> LoopFacts:
    loop = loops[depth]
    inside = known.copy()
    for outer in loops[:depth]:
        inside.bind(outer.loop_var, Range.from_min_extent(outer.min, outer.extent))
    traffic = traffic_of(_placed(body, loops[depth:]), inside)
    kind = loop.kind if loop.thread is None else loop.thread
    return LoopFacts(
        loop.loop_var.name,
        loop.extent,
        kind,
        iterates(realize, loop),
        {b.name: item.bytes_of(item.read_footprint) for b, item in traffic.items()},
        {b.name: item.bytes_of(item.write_footprint) for b, item in traffic.items()},
        {b.name: item.footprint_bytes for b, item in traffic.items()},
    )


def _buffer_facts(
    traffic: Traffic, accesses: list[Access], loops: list[For], known: Analyzer
) -> BufferFacts:
    mine = [item for item in accesses if item.buffer is traffic.buffer]
    steps: list[Expr | None] = []
    for item in mine if loops else []:
        step = _step(item, loops[-1], known)
        if not any(_same_step(step, other) for other in steps):
            steps.append(step)
    reuse = _ratio(traffic.reads + traffic.writes, traffic.footprint, known)
    return BufferFacts(
        traffic.buffer.name,
        traffic.read_bytes,
        traffic.write_bytes,
        traffic.footprint_bytes,
        reuse,
        tuple(steps),
    )


def _same_step(a: Expr | None, b: Expr | None) -> bool:
    if a is None or b is None:
        return a is b
    return Analyzer().can_prove_equal(a, b)


def _step(access: Access, loop: For, known: Analyzer) -> Expr | None:
    """How far an access moves in flat memory when a loop moves by one; ``None`` if that varies."""
    var = loop.loop_var
    if not any(uses_var(item.min, {var}) for item in access.box):
        return const(0)
    moved: Expr = const(0)
    for item, stride in zip(access.box, _strides(access.buffer)):
        after = substitute(item.min, {var: var + 1})
        moved = add(moved, mul(sub(after, item.min), stride))
    step = known.simplify(moved)
    fixed = not any(uses_var(step, {item.loop_var}) for item in access.loops)
    return step if fixed else None


def _strides(buffer: Buffer) -> tuple[Expr, ...]:
    if buffer.strides:
        return buffer.strides
    made: list[Expr] = []
    running: Expr = const(1)
    for extent in reversed(buffer.shape):
        made.append(running)
        running = mul(running, extent)
    return tuple(reversed(made))


def _ratio(above: Count, below: Count, known: Analyzer) -> Ratio:
    """Divide two counts, and find out whether the quotient is a number for all sizes."""
    a, b = above.value, below.value
    exact = above.exact and below.exact
    # If so, it is what it is for some sizes.
    sizes = {var: const(97 + 2 * n) for n, var in enumerate(free_vars(a * b))}
    x, y = (as_int(known.simplify(substitute(item, sizes))) for item in (a, b))
    if x is None or not y:
        return Ratio(a, b, None, exact)
    guess = Fraction(x, y)
    if known.can_prove_equal(mul(a, guess.denominator), mul(b, guess.numerator)):
        return Ratio(a, b, float(guess), exact)
    quotient = known.simplify(a // b)
    if known.can_prove_equal(mul(quotient, b), a):
        return Ratio(quotient, const(1), None, exact)
    return Ratio(a, b, None, exact)


_AXES = {
    "reduce": "a reduce axis",
    "opaque": "an opaque axis",
    "both": "axes of several kinds",
    "none": "no axis",
}


def _vector_lanes(
    realize: BlockRealize,
    loops: list[For],
    buffers: tuple[BufferFacts, ...],
    whole: dict[Buffer, Traffic],
    target: Target,
) -> tuple[int, str]:
    """The lanes that the innermost loop can be vectorised with, and why no more."""
    if not loops:
        return 1, "there is no loop"
    if works_by_intrinsic(realize.block):
        return 1, "an intrinsic does the work"
    loop = loops[-1]
    name = loop.loop_var.name
    if loop.kind not in (SERIAL, VECTORIZED):
        return 1, f"loop {name} is {loop.kind}"
    axes = iterates(realize, loop)
    if axes != SPATIAL:
        return 1, f"loop {name} runs over {_AXES.get(axes, axes)}"
    for facts in buffers:
        if as_int(facts.writes.value) != 0 and not all(
            step is not None and as_int(step) == 1 for step in facts.steps
        ):
            return 1, f"{facts.name} is not written in order along loop {name}"
    bits = max(dtypes.bits_of(buffer.dtype) for buffer in whole)
    lanes = target.vector_lanes(max(bits, 8))
    gathered = [facts.name for facts in buffers if not facts.is_contiguous]
    note = f"{', '.join(gathered)} would be gathered" if gathered else ""
    extent = as_int(loop.extent)
    if extent is None:
        return lanes, note or f"loop {name} needs a split with a tail"
    while lanes > 1 and extent % lanes:
        lanes //= 2
    if lanes == 1 and extent > 1:
        note = note or f"the extent {extent} of loop {name} is odd"
    return lanes, note


# ---- text ---------------------------------------------------------------------------------------


def expr_text(expr: Expr) -> str:
    """Print an expression; its free variables are not declared."""
    return to_text(expr).rstrip().split("\n")[-1]


def _bytes_text(count: Count) -> str:
    number = count.number
    sign = "" if count.exact else "<= "
    if number is None:
        text = expr_text(count.value)
        return f"{sign}({text}) B" if " + " in text or " - " in text else f"{sign}{text} B"
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= 10 * size or (number >= size and number % size == 0):
            return f"{sign}{number / size:.4g} {unit}"
    return f"{sign}{number} B"


def _count_text(count: Count) -> str:
    return ("" if count.exact else "<= ") + expr_text(count.value)


def _block_lines(block: BlockFacts) -> list[str]:
    kind = f"{block.kind}: {block.why_opaque}" if block.why_opaque else block.kind
    besides = " and those of an intrinsic" if block.has_intrinsic else ""
    lines = [
        f"block {block.name} ({kind})",
        f"  operations: {_count_text(block.flops)}{besides}, "
        f"bytes touched: {_bytes_text(block.bytes_touched)}",
        f"  operations per byte: {block.intensity}",
    ]
    lines += _indented(_loop_table(block), 2)
    lines += _indented(_buffer_table(block), 2)
    lanes = f"{block.vector_lanes} lanes" if block.vector_lanes > 1 else "none"
    note = f": {block.vector_note}" if block.vector_note else ""
    lines.append(f"  vectors of the innermost loop: {lanes}{note}")
    if block.attempts:
        lines.append("  next:")
        lines += [
            f"    yes  {item.call}" if item.applies else f"    no   {item.call}: {item.reason}"
            for item in block.attempts
        ]
    return lines


def _loop_table(block: BlockFacts) -> list[str]:
    names = [buffer.name for buffer in block.buffers]
    rows = [["loop", "extent", "kind", "axes", *(f"touches {name}" for name in names)]]
    for loop in block.loops:
        touches = [_bytes_text(loop.touches[name]) for name in names]
        rows.append([loop.name, expr_text(loop.extent), loop.kind, loop.iterates, *touches])
    return _table(rows)


def _buffer_table(block: BlockFacts) -> list[str]:
    inner = f"step along {block.loops[-1].name}" if block.loops else "step"
    rows = [["buffer", "reads", "writes", "touched", "reuse", inner]]
    for item in block.buffers:
        steps = [_step_text(step) for step in item.steps]
        rows.append(
            [
                item.name,
                _bytes_text(item.reads),
                _bytes_text(item.writes),
                _bytes_text(item.touched),
                str(item.reuse),
                ", ".join(steps) or "none",
            ]
        )
    return _table(rows)


def _step_text(step: Expr | None) -> str:
    if step is None:
        return "irregular"
    known = as_int(step)
    return {0: "same element", 1: "contiguous"}.get(known, expr_text(step))  # type: ignore[arg-type]


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]


def _indented(lines: list[str], by: int) -> list[str]:
    return [" " * by + line for line in lines]


def show_explanation(explanation: Explanation) -> None:
    """Print on standard output, in colour on a terminal."""
    if not sys.stdout.isatty():
        print(explanation)
        return
    # Loaded here, as rich costs more to import than the rest of the package.
    from rich.console import Console
    from rich.text import Text

    text = Text(str(explanation))
    text.highlight_regex(r"(?m)^block .*$", "bold")
    text.highlight_regex(r"(?m)^    yes ", "green")
    text.highlight_regex(r"(?m)^    no  ", "red")
    text.highlight_regex(r"(?m)^  (loop|buffer) .*$", "dim")
    Console().print(text, highlight=False, soft_wrap=True)
