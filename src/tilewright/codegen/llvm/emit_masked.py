"""Masks of vectors and loads under them: what windows at the edge of an image are made of.

Lanes beyond an edge are switched off rather than branched around. A mask is a comparison of
consecutive integers with a bound, made in bytes whatever the width of the index; a load brings the
value of the lanes that are off itself, so that no selection follows.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.llvm.emits import Emits, EmitsAccesses
from tilewright.codegen.llvm.types import (
    lanes_suffix,
    memory_bytes,
    memory_type,
    register_type,
)
from tilewright.ir import (
    INDEX,
    LE,
    LT,
    And,
    Broadcast,
    Expr,
    IntImm,
    Ramp,
    ScalableLanes,
    dtypes,
    is_const,
    lane_count,
)
from tilewright.target import Target
from tilewright.tir import Buffer, BufferLoad

# Distances between lanes are compared as signed bytes.
_FARTHEST = 126


def compare_ramp(emitter: Emits, node: Expr) -> str | None:
    """Emit ``ramp < bound``, ``ramp <= bound`` or the reverse; ``None`` for any other comparison.

    The bound's distance from the first lane is clamped to a byte and compared with the lanes'
    distances, which are constants.
    """
    if type(node) not in (LT, LE):
        return None
    a, b = node.a, node.b  # type: ignore[attr-defined]
    ramp, bound = (a, b) if isinstance(a, Ramp) else (b, a)
    if not (isinstance(ramp, Ramp) and isinstance(bound, Broadcast)):
        return None
    if not isinstance(ramp.stride, IntImm) or ramp.base.dtype != INDEX:
        return None
    lanes, stride = ramp.lanes, ramp.stride.value
    if isinstance(lanes, ScalableLanes):
        return _active_lanes(emitter, node, ramp, bound)
    if stride < 1 or stride * (lanes - 1) > _FARTHEST:
        return None
    # ramp < bound is lane < distance; bound < ramp is lane > distance.
    below = ramp is a
    shift = (1 if below else -1) if type(node) is LE else 0
    low, high = (0, 127) if below else (-1, 126)
    distance = emitter.linear(bound.value - ramp.base + shift)
    if not distance.startswith("%"):
        first = int(distance)
        offsets = range(0, stride * lanes, stride)
        return constant_mask([at < first if below else at > first for at in offsets])
    distance = emitter.pure(f"call i64 @llvm.smax.i64(i64 {distance}, i64 {low})", distance)
    distance = emitter.pure(f"call i64 @llvm.smin.i64(i64 {distance}, i64 {high})", distance)
    byte = emitter.pure(f"trunc i64 {distance} to i8", distance)
    limit = emitter.broadcast(byte, "int8", lanes)
    steps = ", ".join(f"i8 {stride * lane}" for lane in range(lanes))
    test = "slt" if below else "sgt"
    return str(emitter.pure(f"icmp {test} <{lanes} x i8> <{steps}>, {limit}", limit))


def _active_lanes(emitter: Emits, node: Expr, ramp: Ramp, bound: Broadcast) -> str | None:
    """Emit ``ramp < bound`` or ``ramp <= bound`` of scalable vectors, one instruction of SVE.

    The intrinsic counts without signs, so it gets the distance of the bound, which is 0 at least.
    """
    if not is_const(ramp.stride, 1) or node.a is not ramp:  # type: ignore[attr-defined]
        return None
    distance = emitter.linear(bound.value - ramp.base + (1 if type(node) is LE else 0))
    distance = emitter.pure(f"call i64 @llvm.smax.i64(i64 {distance}, i64 0)", distance)
    kind, suffix = f"<{ramp.lanes} x i1>", f"{lanes_suffix(ramp.lanes)}i1"
    text = f"call {kind} @llvm.get.active.lane.mask.{suffix}.i64(i64 0, i64 {distance})"
    return str(emitter.pure(text, distance))


def every_lane(emitter: Emits, node: Expr) -> str | None:
    """Emit whether a condition on consecutive integers holds in all lanes; ``None`` for others."""
    if isinstance(node, Broadcast):
        return str(emitter.visit(node.value))
    if isinstance(node, And):
        left, right = (every_lane(emitter, side) for side in (node.a, node.b))
        if left is None or right is None:
            return None
        return str(emitter.pure(f"and i1 {left}, {right}", left, right))
    if type(node) not in (LT, LE):
        return None
    a, b = node.a, node.b  # type: ignore[attr-defined]
    ramp = a if isinstance(a, Ramp) else b
    if not isinstance(ramp, Ramp) or not isinstance(b if ramp is a else a, Broadcast):
        return None
    if not isinstance(ramp.stride, IntImm) or ramp.stride.value < 1 or ramp.base.dtype != INDEX:
        return None
    last = ramp.base + (lane_count(ramp.lanes, INDEX) - 1) * ramp.stride.value
    first, second = (last, b.value) if ramp is a else (a.value, ramp.base)
    return str(emitter.visit(first < second if type(node) is LT else first <= second))


def constant_mask(on: Sequence[bool]) -> str:
    """Return the operand of a mask that is known."""
    if all(on) or not any(on):
        return f"splat (i1 {'true' if on[0] else 'false'})"
    return "<" + ", ".join(f"i1 {'true' if lane else 'false'}" for lane in on) + ">"


def joined_masks(emitter: Emits, a: str, b: str, lanes: int) -> str:
    """Emit ``a and b`` of two masks; what is known of them is not left to LLVM."""
    if a == b or b == "splat (i1 true)" or a == "splat (i1 false)":
        return a
    if a == "splat (i1 true)" or b == "splat (i1 false)":
        return b
    if a.startswith("<") and b.startswith("<"):
        pairs = zip(a[1:-1].split(", "), b[1:-1].split(", "))
        return constant_mask([x == y == "i1 true" for x, y in pairs])
    made = str(emitter.pure(f"and <{lanes} x i1> {a}, {b}", a, b))
    off = _lanes_off(emitter, a) | _lanes_off(emitter, b)
    if off:
        emitter.lanes_off[made] = off
    return made


def _lanes_off(emitter: Emits, mask: str) -> frozenset[int]:
    """Lanes that are off whatever the numbers are."""
    if mask.startswith("<"):
        return frozenset(n for n, on in enumerate(mask[1:-1].split(", ")) if on == "i1 false")
    return emitter.lanes_off.get(mask, frozenset())


def load_or(
    emitter: EmitsAccesses, node: BufferLoad, tests: Sequence[Expr], other: Expr
) -> str | None:
    """Emit a load of neighbours, or of every second element, with ``other`` where a test fails.

    ``None`` where the elements lie otherwise.
    """
    lanes = dtypes.lanes_of(node.dtype)
    if len(node.indices) != 1 or memory_type(node.dtype) != register_type(node.dtype):
        return None
    index = node.indices[0]
    if not (isinstance(index, Ramp) and isinstance(index.stride, IntImm)):
        return None
    stride = index.stride.value
    if stride not in (1, 2) or (stride == 2 and (dtypes.is_scalable(node.dtype) or lanes % 2)):
        return None
    mask = _joined(emitter, tests, lanes)
    fill = emitter.visit(other)
    if mask in ("true", "false"):
        return None
    if mask == "splat (i1 true)":
        return emitter.visit(node)
    if mask == "splat (i1 false)":
        return fill

    def emit() -> str:
        assert emitter.mask is not None
        emitted, count = emitter.mask
        assert count == lanes
        pointer = emitter.pointer(node.buffer, index.base)
        if stride == 1:
            return masked_load(emitter, node.buffer, pointer, node.dtype, emitted, fill)
        return _every_second(emitter, node, pointer, emitted, fill)

    return emitter.under_mask(mask, lanes, emit)


def masked_load(
    emitter: Emits,
    buffer: Buffer,
    pointer: str,
    dtype: str,
    mask: str,
    fill: str = "zeroinitializer",
) -> str:
    """Emit a load of neighbours of a type, as in memory, with ``fill`` in lanes that are off.

    Where vectors are under masks of bytes (AVX2), each register gets a load of its own. LLVM (22)
    splits longer ones itself, and of two such loads under one mask, of which a register is known to
    be off, it loads that register's worth of the second one all the same, or fails. Of
    several registers that are known to be off it loads one all the same, too: these get no load.
    """
    lanes, element = dtypes.lanes_of(dtype), memory_type(dtypes.element_of(dtype))
    parts = _register_parts(emitter.target, mask, lanes, memory_bytes(dtype))
    off = _lanes_off(emitter, mask) if len(parts) > 1 else frozenset()
    made = []
    for start, size in parts:
        if off and off.issuperset(range(start, start + size)):
            made.append(_part_of(emitter, fill, element, (start, size, lanes)))
            continue
        part = start, size, lanes
        made.append(_masked_part(emitter, buffer, pointer, element, part, mask, fill))
    return _one_vector(emitter, made, [size for _, size in parts], element)


def _register_parts(target: Target, mask: str, lanes: int, width: int) -> list[tuple[int, int]]:
    """First lane and number of lanes of each load that a masked one is made of."""
    narrow = target.has("avx") and not target.has("avx512f") and width >= 4
    if mask.startswith(("<", "splat")) or not narrow:
        return [(0, lanes)]
    most = target.vector_bits // (8 * width)
    return [(start, min(most, lanes - start)) for start in range(0, lanes, most)]


def _masked_part(
    emitter: Emits,
    buffer: Buffer,
    pointer: str,
    element: str,
    part: tuple[int, int, int],
    mask: str,
    fill: str,
) -> str:
    """Emit the load of some lanes: ``part`` is the first one, their number, and that of all."""
    start, size, lanes = part
    kind, align = f"<{size} x {element}>", memory_bytes(buffer.dtype)
    if size < lanes:
        wanted = ", ".join(f"i32 {lane}" for lane in range(start, start + size))
        mask = _shuffled(emitter, mask, f"<{lanes} x i1>", wanted, size)
        fill = _part_of(emitter, fill, element, part)
    if start:
        pointer = emitter.pure(f"getelementptr {element}, ptr {pointer}, i64 {start}", pointer)
    short = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}.get(element, element)
    name = f"llvm.masked.load.{lanes_suffix(size)}{short}.p0"
    text = f"call {kind} @{name}(ptr align {align} {pointer}, <{size} x i1> {mask}, {kind} {fill})"
    return emitter.memory_read(text, buffer.data, pointer, mask, fill)


def _part_of(emitter: Emits, value: str, element: str, part: tuple[int, int, int]) -> str:
    """Some lanes of a vector: the first one, their number, and that of all."""
    start, size, lanes = part
    if value.startswith(("zeroinitializer", "splat")):
        return value
    wanted = ", ".join(f"i32 {lane}" for lane in range(start, start + size))
    return _shuffled(emitter, value, f"<{lanes} x {element}>", wanted, size)


def _one_vector(emitter: Emits, parts: list[str], sizes: list[int], element: str) -> str:
    """Emit the concatenation of vectors, the first of which are of one size."""
    made, count = parts[0], sizes[0]
    for part, size in zip(parts[1:], sizes[1:]):
        kind = f"<{count} x {element}>"
        if size < count:
            wanted = ", ".join(f"i32 {min(lane, size)}" for lane in range(count))
            part = _shuffled(emitter, part, f"<{size} x {element}>", wanted, count)
        wanted = ", ".join(f"i32 {lane}" for lane in range(count + size))
        text = f"shufflevector {kind} {made}, {kind} {part}, <{count + size} x i32> <{wanted}>"
        made, count = emitter.guarded(text, made, part), count + size
    return made


def store_apart(emitter: EmitsAccesses, buffer: Buffer, index: Ramp, value: str, kind: str) -> None:
    """Store lanes at a constant distance one by one, which is faster than a scatter."""
    element, align = memory_type(buffer.dtype), memory_bytes(buffer.dtype)
    pointer, step = emitter.pointer(buffer, index.base), index.stride
    assert isinstance(step, IntImm)
    for lane in range(index.lanes):
        at = pointer
        if lane and step.value:
            text = f"getelementptr {element}, ptr {pointer}, i64 {lane * step.value}"
            at = emitter.pure(text, pointer)
        part = emitter.here(f"extractelement {kind} {value}, i64 {lane}")
        emitter.effect(f"store {element} {part}, ptr {at}, align {align}")


def apart_from_truncation(emitter: Emits, value: str, element: str, lanes: int) -> str:
    """Emit a fence of no instruction between a truncated integer and the masked store of it.

    LLVM (22) joins the two on x86 with AVX-512, and where one lane alone is on it stores the number
    before its truncation: four or eight bytes over one, two or four. Masks become known in its own
    passes too, so that no look at the mask here would do.
    """
    bits = {"i8": 8, "i16": 16, "i32": 32}.get(element)
    if bits is None or isinstance(lanes, ScalableLanes):
        return value
    per_word = 32 // bits
    words = -(-lanes // per_word)
    kind, whole, fenced = (
        f"<{lanes} x {element}>",
        f"<{words * per_word} x {element}>",
        f"<{words} x float>",
    )
    if whole != kind:
        wanted = ", ".join(f"i32 {min(lane, lanes)}" for lane in range(words * per_word))
        value = _shuffled(emitter, value, kind, wanted, words * per_word)
    value = emitter.pure(f"bitcast {whole} {value} to {fenced}", value)
    call = f"call {fenced} @llvm.arithmetic.fence.v{words}f32({fenced} {value})"
    value = emitter.pure(call, value)
    value = emitter.pure(f"bitcast {fenced} {value} to {whole}", value)
    if whole != kind:
        wanted = ", ".join(f"i32 {lane}" for lane in range(lanes))
        value = _shuffled(emitter, value, whole, wanted, lanes)
    return value


def _shuffled(emitter: Emits, value: str, kind: str, wanted: str, lanes: int) -> str:
    text = f"shufflevector {kind} {value}, {kind} poison, <{lanes} x i32> <{wanted}>"
    return str(emitter.pure(text, value))


def _joined(emitter: Emits, tests: Sequence[Expr], lanes: int) -> str:
    """All tests in one mask; what doesn't depend on inner loops is joined first."""
    operands: list[str] = [emitter.visit(test) for test in tests]
    operands.sort(key=lambda operand: emitter.levels.get(operand, 0))
    mask = operands[0]
    for operand in operands[1:]:
        mask = joined_masks(emitter, mask, operand, lanes)
    return mask


def _every_second(emitter: Emits, node: BufferLoad, pointer: str, mask: str, fill: str) -> str:
    """Two loads in which every second lane is off, and one shuffle."""
    lanes, element = dtypes.lanes_of(node.dtype), memory_type(node.buffer.dtype)
    text = f"getelementptr {element}, ptr {pointer}, i64 {lanes}"
    halves = []
    for half, at in enumerate((pointer, emitter.pure(text, pointer))):
        first = half * (lanes // 2)
        picks = [pick for lane in range(first, first + lanes // 2) for pick in (lane, lanes)]
        wanted = ", ".join(f"i32 {pick}" for pick in picks)
        spread = emitter.pure(
            f"shufflevector <{lanes} x i1> {mask}, <{lanes} x i1> zeroinitializer, "
            f"<{lanes} x i32> <{wanted}>",
            mask,
        )
        off = _lanes_off(emitter, mask)
        emitter.lanes_off[spread] = frozenset(
            lane for lane, pick in enumerate(picks) if pick == lanes or pick in off
        )
        halves.append(masked_load(emitter, node.buffer, at, node.dtype, spread, fill))
    kind = register_type(node.dtype)
    wanted = ", ".join(f"i32 {2 * lane}" for lane in range(lanes))
    text = f"shufflevector {kind} {halves[0]}, {kind} {halves[1]}, <{lanes} x i32> <{wanted}>"
    return str(emitter.guarded(text, *halves))
