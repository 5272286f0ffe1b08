"""Bytes that a program reads and writes, per buffer: all accesses, and different elements.

*Traffic* counts each access as often as it happens, as if there were no cache. The *footprint* is
the part of the buffer that is touched at all. Their quotient is the reuse that a cache may exploit.
Sizes may be symbolic; each count says whether it is exact or an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.arith import Analyzer, simplify
from tilewright.ir import Expr, add, dtypes, floordiv, mul, product
from tilewright.tir.analysis.accesses import Access, detect_accesses
from tilewright.tir.analysis.counting import (
    ZERO,
    Count,
    Footprint,
    count_instances,
    enumerated_union,
    footprint,
    union,
)
from tilewright.tir.analysis.regions import same_box
from tilewright.tir.buffer import Buffer
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import Stmt


@dataclass(frozen=True)
class Traffic:
    """What happens to one buffer, in elements; the ``*_bytes`` are these in bytes."""

    buffer: Buffer
    reads: Count
    writes: Count
    read_footprint: Count
    write_footprint: Count
    footprint: Count

    def bytes_of(self, count: Count) -> Count:
        """Turn a number of elements into bytes."""
        bits = dtypes.bits_of(self.buffer.dtype) * dtypes.lanes_of(self.buffer.dtype)
        if bits % 8 == 0:
            value = mul(count.value, bits // 8)
        else:
            value = floordiv(add(mul(count.value, bits), 7), 8)
        return Count(simplify(value), count.exact)

    @property
    def read_bytes(self) -> Count:
        """Bytes of all reads."""
        return self.bytes_of(self.reads)

    @property
    def write_bytes(self) -> Count:
        """Bytes of all writes."""
        return self.bytes_of(self.writes)

    @property
    def footprint_bytes(self) -> Count:
        """Bytes of the elements that are read or written."""
        return self.bytes_of(self.footprint)


def estimate_traffic(
    program: PrimFunc | Stmt, *, analyzer: Analyzer | None = None
) -> dict[Buffer, Traffic]:
    """Return the traffic of each buffer that a function, or a statement of one, accesses.

    ``analyzer`` knows what is fixed outside of a statement: loops around it, symbolic sizes (which
    are positive; those of a function are known). Buffers that a block matches are counted as the
    ones they stand for; what intrinsics access is told by the regions of their blocks.
    """
    return traffic_of(detect_accesses(program), sizes_known(program, analyzer))


def estimate_block_traffic(func: PrimFunc) -> dict[str, dict[Buffer, Traffic]]:
    """Return the traffic of each block of a function by name, over all its instances.

    A block's traffic is that of its own statements, without those of blocks inside it.
    """
    accesses, known = detect_accesses(func), sizes_known(func)
    blocks = dict.fromkeys(item.block for item in accesses if item.block is not None)
    return {
        block.name: traffic_of([item for item in accesses if item.block is block], known)
        for block in blocks
    }


def sizes_known(program: PrimFunc | Stmt, analyzer: Analyzer | None = None) -> Analyzer:
    """Return an analyzer that knows the sizes of a function, on top of what another one knows."""
    known = analyzer.copy() if analyzer is not None else Analyzer()
    if isinstance(program, PrimFunc):
        for var in program.symbolic_vars():
            known.bind_positive(var)
    return known


def traffic_of(accesses: list[Access], known: Analyzer) -> dict[Buffer, Traffic]:
    """Return the traffic of some accesses by buffer; ``known`` knows sizes and outer loops."""
    counter = _Counter(known)
    accesses = [item for item in accesses if not item.pointer]
    return {
        buffer: counter.traffic(buffer, [item for item in accesses if item.buffer is buffer])
        for buffer in dict.fromkeys(item.buffer for item in accesses)
    }


class _Counter:
    """Counts accesses; the instances of a loop nest are counted once."""

    def __init__(self, known: Analyzer) -> None:
        self.known = known
        self.instances: dict[tuple[object, ...], Count] = {}

    def traffic(self, buffer: Buffer, accesses: list[Access]) -> Traffic:
        reads = [item for item in accesses if not item.is_write]
        writes = [item for item in accesses if item.is_write]
        return Traffic(
            buffer,
            self.total(reads),
            self.total(writes),
            self.distinct(reads),
            self.distinct(writes),
            self.distinct(accesses),
        )

    def total(self, accesses: Iterable[Access]) -> Count:
        total = ZERO
        for item in accesses:
            total = total + self.happens(item).scaled(item.elements)
        return Count(self.known.simplify(total.value), total.exact)

    def happens(self, access: Access) -> Count:
        key = (access.loops, access.conditions)
        found = self.instances.get(key)
        if found is None:
            found = count_instances(access.domain, access.conditions, analyzer=self.known)
            self.instances[key] = found
        return found.bound() if access.repeats else found

    def distinct(self, accesses: list[Access]) -> Count:
        parts: list[Footprint] = []
        seen: list[Access] = []
        for item in accesses:
            if any(_same_place(item, other) for other in seen):
                continue
            seen.append(item)
            found = footprint(
                item.box, item.shape, item.domain, item.conditions, analyzer=self.known
            )
            if item.repeats or not self.known.can_prove_equal(item.elements, _volume(item)):
                found = Footprint(found.count.bound(), None)
            parts.append(found)
        if not parts:
            return ZERO
        whole = Count(product(accesses[0].shape))
        total = union(parts, whole, self.known).count
        if not total.exact and not any(item.repeats for item in seen):
            enumerated = enumerated_union([(i.box, i.domain, i.conditions) for i in seen])
            return total if enumerated is None else enumerated
        return total


def _volume(access: Access) -> Expr:
    return product(item.extent for item in access.box)


def _same_place(a: Access, b: Access) -> bool:
    return a.loops == b.loops and a.conditions == b.conditions and same_box(a.box, b.box)
