"""Loads and stores to LLVM IR: addresses, vectors in memory, masks, strides, streams.

The part of the LLVM emitter between :mod:`emit_expr` and :mod:`emit_stmt`.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from tilewright.codegen.llvm.emit_expr import ExprEmitter, may_change
from tilewright.codegen.llvm.emit_masked import apart_from_truncation, masked_load, store_apart
from tilewright.codegen.llvm.near_gather import LANES
from tilewright.codegen.llvm.streaming import STREAM_BYTES
from tilewright.codegen.llvm.tile_columns import tile_column
from tilewright.codegen.llvm.types import (
    lanes_suffix,
    memory_bytes,
    memory_type,
    register_type,
)
from tilewright.ir import (
    INDEX,
    Add,
    Broadcast,
    Expr,
    IntImm,
    Ramp,
    as_int,
    contains,
    dtypes,
    expr_equal,
)
from tilewright.support.errors import CodegenError
from tilewright.tir import Buffer, BufferLoad

#: Bytes that memory moves together.
CACHE_LINE = 64

# Lanes at such distances are picked from whole vectors.
_NEAR = 8

_has_load = contains(BufferLoad)


class MemoryEmitter(ExprEmitter):
    """Emits expressions that read memory, and stores, into one function."""

    def pointer(self, buffer: Buffer, index: Expr) -> str:
        """Return the address of an element; parts known further out are added further out.

        Copies of unrolled loops differ in a number that is added last: the rest of their addresses
        is found once for each scope.
        """
        element = memory_type(buffer.dtype)
        rest: Any = index
        number = 0
        if type(index) is IntImm:
            pointer, number = self.visit(buffer.data), index.value
        else:
            if type(index) is Add and type(rest.b) is IntImm and index.dtype == INDEX:
                rest, number = rest.a, rest.b.value
            known = self.scopes[-1].places
            key = (buffer.data, element, rest)
            found = known.get(key)
            if found is None:
                found = self._place_of(buffer, element, rest)
                if not may_change(rest):
                    known[key] = found
            pointer, constant = found
            number += constant
        if not number:
            return str(pointer)
        made = self.pure(f"getelementptr {element}, ptr {pointer}, i64 {number}", pointer)
        if self.prefetching:
            self.offsets[made] = number * memory_bytes(buffer.dtype)
        return made

    def _place_of(self, buffer: Buffer, element: str, index: Expr) -> tuple[str, int]:
        """The address of an element but for a constant distance, and that."""
        pointer = self.visit(buffer.data)
        if index.dtype == INDEX:
            terms, constant = self.linear_terms(index)
        else:
            terms, constant = [(self.convert(self.visit(index), index.dtype, INDEX), 1)], 0
        flag = self.no_wrap(index)
        level, total = -1, ""
        groups: list[str] = []
        for operand, factor in terms:
            if factor != 1:
                operand = self.pure(f"mul{flag} i64 {operand}, {factor}", operand)
            own = self.levels.get(operand, 0)
            if own == level:
                total = self.pure(f"add{flag} i64 {total}, {operand}", total, operand)
                groups[-1] = total
            else:
                level, total = own, operand
                groups.append(operand)
        for total in groups:
            pointer = self.pure(
                f"getelementptr {element}, ptr {pointer}, i64 {total}", pointer, total
            )
        return str(pointer), constant

    def visit_BufferLoad(self, node: BufferLoad) -> str:
        buffer = node.buffer
        index = self._flat_index(buffer, node.indices)
        lanes = dtypes.lanes_of(index.dtype)
        if lanes == 1:
            return self._load(buffer, self.pointer(buffer, index), node.dtype)
        if isinstance(index, Broadcast):
            value = self._load(buffer, self.pointer(buffer, index.value), buffer.dtype)
            return self.broadcast(value, buffer.dtype, lanes)
        masked = self._mask_of(node)
        if isinstance(index, Ramp) and isinstance(index.stride, IntImm):
            stride = index.stride.value
            scalable = dtypes.is_scalable(index.dtype)
            column = self._tile_column(buffer, index) if stride > 1 and not scalable else None
            if column is not None:
                return self.from_memory(column, node.dtype)
            pointer = self.pointer(buffer, index.base)
            if stride == 1:
                if masked is None or self._is_whole(buffer, index):
                    return self._load(buffer, pointer, node.dtype)
                return self._masked_load(buffer, pointer, node.dtype, masked[0])
            if masked is None and not scalable:
                return self._strided_load(buffer, pointer, stride, node.dtype)
        return self._gather(buffer, index, node.dtype, masked)

    def _mask_of(self, node: BufferLoad) -> tuple[str, int] | None:
        """The mask that a load of a vector needs: what has been read may be read once more."""
        mask = self.mask
        if mask is not None:
            same = (wider for load, wider in self.already_read if expr_equal(load, node))
            mask = next(same, mask)
        return mask if mask is not None and mask[1] == dtypes.lanes_of(node.dtype) else None

    def _tile_column(self, buffer: Buffer, index: Ramp) -> str | None:
        terms, start = self.linear_terms(index.base)
        assert isinstance(index.stride, IntImm)
        if terms:
            return None
        return tile_column(self, buffer, start, index.stride.value, index.lanes)

    def _flat_index(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        if len(indices) != 1:
            raise CodegenError(
                f"buffer {buffer.name} is accessed with {len(indices)} indices; the code generator "
                "takes flat buffers: run FlattenBuffer (tilewright.driver.lower does)"
            )
        return indices[0]

    def _load(self, buffer: Buffer, pointer: str, dtype: str) -> str:
        text = f"load {memory_type(dtype)}, ptr {pointer}, align {memory_bytes(buffer.dtype)}"
        return self.from_memory(self.fetching_read(text, buffer, pointer, dtype), dtype)

    def fetching_read(self, text: str, buffer: Buffer, pointer: str, dtype: str) -> str:
        """Write a load of elements of ``dtype``; ask for what comes later where loops want it."""
        known = self._count
        value = self.memory_read(text, buffer.data, pointer)
        if self.prefetching and self._count > known and not dtypes.is_scalable(dtype):
            self._prefetch(pointer, dtypes.lanes_of(dtype) * memory_bytes(buffer.dtype))
        return value

    def _prefetch(self, pointer: str, size: int) -> None:
        """Ask for the cache lines that a vector load of this loop will want some turns later.

        Of several short loads in a line, the first one asks.
        """
        again = size < CACHE_LINE and self.offsets.get(pointer, 0) % CACHE_LINE
        if again or 4 * size < CACHE_LINE or self.levels.get(pointer, 0) < len(self.scopes) - 1:
            return
        for offset in range(0, size, CACHE_LINE):
            text = f"getelementptr i8, ptr {pointer}, i64 {self.prefetching + offset}"
            ahead = self.pure(text, pointer)
            self.effect(f"call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)")

    def _masked_load(self, buffer: Buffer, pointer: str, dtype: str, mask: str) -> str:
        return self.from_memory(masked_load(self, buffer, pointer, dtype, mask), dtype)

    def _strided_load(self, buffer: Buffer, pointer: str, stride: int, dtype: str) -> str:
        """Lanes that don't stand side by side are loaded one by one."""
        lanes = dtypes.lanes_of(dtype)
        element = memory_type(buffer.dtype)
        if stride == -1:
            first = self.pure(f"getelementptr {element}, ptr {pointer}, i64 {1 - lanes}", pointer)
            value = self._load(buffer, first, dtype)
            picks = list(range(lanes - 1, -1, -1))
            return self.shuffle(value, lanes, picks, register_type(buffer.dtype))
        kind = memory_type(dtype)
        if stride == 2:
            return self.from_memory(self._every_second(buffer, pointer, kind, lanes), dtype)
        if 2 < stride <= _NEAR and lanes >= stride:
            return self.from_memory(self._every_nth(buffer, pointer, kind, lanes, stride), dtype)
        vector = "poison"
        for lane in range(lanes):
            own = pointer
            if lane and stride:
                text = f"getelementptr {element}, ptr {pointer}, i64 {lane * stride}"
                own = self.pure(text, pointer)
            text = f"load {element}, ptr {own}, align {memory_bytes(buffer.dtype)}"
            value = self.memory_read(text, buffer.data, own)
            text = f"insertelement {kind} {vector}, {element} {value}, i64 {lane}"
            vector = self.guarded(text, value, vector)
        return self.from_memory(vector, dtype)

    def _every_second(self, buffer: Buffer, pointer: str, kind: str, lanes: int) -> str:
        """Two loads that reach from the first lane to the last, no further, and one shuffle."""
        element, align = memory_type(buffer.dtype), memory_bytes(buffer.dtype)
        text = f"getelementptr {element}, ptr {pointer}, i64 {lanes - 1}"
        second = self.pure(text, pointer)
        values = [
            self.memory_read(f"load {kind}, ptr {at}, align {align}", buffer.data, at)
            for at in (pointer, second)
        ]
        # Element lanes - 1 is the first vector's last and the second one's first.
        picks = [2 * lane if 2 * lane < lanes else 2 * lane + 1 for lane in range(lanes)]
        mask = ", ".join(f"i32 {pick}" for pick in picks)
        text = f"shufflevector {kind} {values[0]}, {kind} {values[1]}, <{lanes} x i32> <{mask}>"
        return self.guarded(text, *values)

    def _every_nth(self, buffer: Buffer, pointer: str, kind: str, lanes: int, stride: int) -> str:
        """As many loads as the stride says, which reach no further than the last lane; shuffles."""
        element, align = memory_type(buffer.dtype), memory_bytes(buffer.dtype)
        starts = [number * lanes for number in range(stride - 1)]
        starts.append(stride * (lanes - 1) + 1 - lanes)
        vector = "poison"
        for number, start in enumerate(starts):
            own = self.pure(f"getelementptr {element}, ptr {pointer}, i64 {start}", pointer)
            value = self.memory_read(f"load {kind}, ptr {own}, align {align}", buffer.data, own)
            picks = []
            for lane in range(lanes):
                at = min(lane * stride // lanes, stride - 1)
                picks.append(lanes + lane * stride - start if at == number else lane)
            mask = ", ".join(f"i32 {pick}" for pick in picks)
            text = f"shufflevector {kind} {vector}, {kind} {value}, <{lanes} x i32> <{mask}>"
            vector = self.guarded(text, vector, value)
        return vector

    def _addresses(self, buffer: Buffer, index: Expr) -> str:
        offsets = self.visit(index)
        data = self.visit(buffer.data)
        element = memory_type(buffer.dtype)
        kind = register_type(index.dtype)
        return self.pure(f"getelementptr {element}, ptr {data}, {kind} {offsets}", data, offsets)

    def _gather(
        self, buffer: Buffer, index: Expr, dtype: str, masked: tuple[str, int] | None
    ) -> str:
        lanes = dtypes.lanes_of(index.dtype)
        size = as_int(buffer.shape[0])
        if masked is None and lanes == LANES and size is not None and _has_load(index):
            near = self._near_gather(buffer, index, size)
            if near is not None:
                return self.from_memory(near, dtype)
        addresses = self._addresses(buffer, index)
        # Lanes that are off are zero: a mask that is made of them must say something.
        mask, off = (masked[0], "zeroinitializer") if masked else ("splat (i1 true)", "poison")
        kind = memory_type(dtype)
        count = lanes_suffix(lanes)
        suffix = f"{count}{_memory_suffix(buffer.dtype)}"
        text = (
            f"call {kind} @llvm.masked.gather.{suffix}.{count}p0(<{lanes} x ptr> align "
            f"{memory_bytes(buffer.dtype)} {addresses}, <{lanes} x i1> {mask}, {kind} {off})"
        )
        return self.from_memory(self.memory_read(text, buffer.data, addresses, mask), dtype)

    def _near_gather(self, buffer: Buffer, index: Expr, size: int) -> str | None:
        """Look up places that are probably near each other; ``None`` if that is no cheaper."""
        element, windows = memory_type(buffer.dtype), min(2, size // LANES)
        target = self.module.target
        wide = target.vector_bits == 512 and target.has("avx512f")
        if not wide or element not in ("float", "i32") or not windows or size >= 1 << 31:
            return None
        symbol = self.module.near_gather(element, windows)
        at = self.convert(self.visit(index), index.dtype, f"int32x{LANES}")
        data, limit = self.visit(buffer.data), size - windows * LANES
        kind, places = f"<{LANES} x {element}>", f"<{LANES} x i32>"
        text = f"call {kind} {symbol}(ptr {data}, {places} {at}, i32 {limit})"
        return str(self.memory_read(text, buffer.data, data, at))

    def store(self, buffer: Buffer, indices: tuple[Expr, ...], value: str, dtype: str) -> None:
        """Write a register value of ``dtype`` to a buffer."""
        index = self._flat_index(buffer, indices)
        lanes = dtypes.lanes_of(index.dtype)
        stored = self.to_memory(value, dtype)
        kind, align = memory_type(dtype), memory_bytes(buffer.dtype)
        masked = self.mask if self.mask is not None and self.mask[1] == lanes else None
        if lanes == 1 or (
            isinstance(index, Ramp) and isinstance(index.stride, IntImm) and index.stride.value == 1
        ):
            pointer = self.pointer(buffer, index.base if isinstance(index, Ramp) else index)
            if masked is not None and self._is_whole(buffer, index):
                # A masked store would keep the tile from becoming registers.
                stored = self._blend(buffer, pointer, stored, kind, masked)
                masked = None
            if masked is None:
                element = memory_type(buffer.dtype)
                streamed = self.streaming and buffer.data not in self.stack_elements
                streamed = streamed and not dtypes.is_scalable(dtype)
                if not streamed or not self._stream(kind, element, stored, pointer, lanes * align):
                    self.effect(f"store {kind} {stored}, ptr {pointer}, align {align}")
            else:
                suffix = f"{lanes_suffix(lanes)}{_memory_suffix(buffer.dtype)}"
                stored = apart_from_truncation(self, stored, memory_type(buffer.dtype), lanes)
                self.effect(
                    f"call void @llvm.masked.store.{suffix}.p0({kind} {stored}, "
                    f"ptr align {align} {pointer}, <{lanes} x i1> {masked[0]})"
                )
        elif masked is None and _is_apart(index):
            store_apart(self, buffer, index, stored, kind)
        else:
            addresses = self._addresses(buffer, index)
            mask = masked[0] if masked else "splat (i1 true)"
            count = lanes_suffix(lanes)
            suffix = f"{count}{_memory_suffix(buffer.dtype)}"
            self.effect(
                f"call void @llvm.masked.scatter.{suffix}.{count}p0({kind} {stored}, "
                f"<{lanes} x ptr> align {align} {addresses}, <{lanes} x i1> {mask})"
            )
        self.forget(buffer.data)

    def _is_whole(self, buffer: Buffer, index: Expr) -> bool:
        """Whether all lanes of an access are elements of a tile on the stack, even if masked."""
        size = self.stack_elements.get(buffer.data)
        if size is None or not isinstance(index, Ramp) or dtypes.is_scalable(index.dtype):
            return False
        terms, start = self.linear_terms(index.base)
        return not terms and 0 <= start <= size - index.lanes

    def _blend(
        self, buffer: Buffer, pointer: str, value: str, kind: str, mask: tuple[str, int]
    ) -> str:
        """What a tile holds after a masked store."""
        text = f"load {kind}, ptr {pointer}, align {memory_bytes(buffer.dtype)}"
        old = self.memory_read(text, buffer.data, pointer)
        text = f"select <{mask[1]} x i1> {mask[0]}, {kind} {value}, {kind} {old}"
        return self.guarded(text, mask[0], value, old)

    def _stream(self, kind: str, element: str, value: str, pointer: str, size: int) -> bool:
        """Store a vector past the caches, if there is an instruction for its size."""
        if size % STREAM_BYTES or not self.module.can_stream:
            return False
        self.has_streamed = True
        function = self.module.streaming_store(kind, element, size, parts=self.streaming == 1)
        self.effect(f"call void {function}({kind} {value}, ptr {pointer})")
        return True

    def finish_streaming(self) -> None:
        """Before the function returns: others must see what went past the caches."""
        if self.has_streamed:
            self.effect("call void @llvm.x86.sse.sfence()")


def _is_apart(index: Expr) -> TypeGuard[Ramp]:
    """Whether an index is of so many elements at a constant distance."""
    constant = isinstance(index, Ramp) and isinstance(index.stride, IntImm)
    return constant and not dtypes.is_scalable(index.dtype)


def _memory_suffix(dtype: str) -> str:
    kind = memory_type(dtypes.element_of(dtype))
    return {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(kind, kind)
