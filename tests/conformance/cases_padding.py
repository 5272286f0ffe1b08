"""Cases of padding: taken apart, and added."""

from __future__ import annotations

from collections.abc import Callable

from cases_layout import idle_loop, scan
from conformance_cases import (
    Accept,
    Example,
    Refuse,
    chain,
    matmul,
    script,
    symbolic_matmul,
)

from tilewright import te
from tilewright.ir import Expr
from tilewright.tir import PrimFunc
from tilewright.tir.schedule import Schedule


def pad2d(n: int = 9, m: int = 5) -> PrimFunc:
    """Zeros around ``A`` (one row above, two below, two columns each side), then a sum of rows."""
    a = te.placeholder((n, m), name="A")
    b = te.compute(
        (n + 3, m + 4),
        lambda i, j: te.if_then_else(
            te.all(i >= 1, i < n + 1, j >= 2, j < m + 2), a[i - 1, j - 2], 0.0
        ),
        name="B",
    )
    c = te.compute((n + 2, m + 4), lambda i, j: b[i, j] + b[i + 1, j], name="C")
    return te.create_prim_func([a, c])


def symbolic_pad() -> PrimFunc:
    """Two zeros before and one behind a vector of ``n`` elements."""
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute(
        (n + 3,),
        lambda i: te.if_then_else(te.all(i >= 2, i < n + 2), a[i - 2], 1.0),
        name="B",
    )
    return te.create_prim_func([a, b])


through_view = script(
    """
@T.prim_func
def main(A: T.Buffer((20,)), B: T.Buffer((20,)), C: T.Buffer((20,))):
    for i in range(20):
        with T.block("B"):
            vi = T.axis.spatial(20, i)
            T.reads(A[vi])
            T.writes(B[vi])
            M = T.match_buffer(A[vi], ())
            B[vi] = T.if_then_else(vi < 18, M[()], T.float32(0))
    for i in range(20):
        with T.block("C"):
            vi = T.axis.spatial(20, i)
            T.reads(A[vi])
            T.writes(C[vi])
            M = T.match_buffer(A[vi], ())
            C[vi] = M[()] * T.float32(2)
"""
)

pad_by_data = script(
    """
@T.prim_func
def main(A: T.Buffer((16,)), N: T.Buffer((1,), "int64"), B: T.Buffer((16,))):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = T.if_then_else(vi < N[0], A[vi], T.float32(0))
"""
)

guarded = script(
    """
@T.prim_func
def main(A: T.Buffer((16,)), B: T.Buffer((16,))):
    for i in range(16):
        if i < 12:
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = T.if_then_else(vi < 8, A[vi], T.float32(0))
"""
)

stale = script(
    """
@T.prim_func
def main(A: T.Buffer((16,)), B: T.Buffer((16,)), C: T.Buffer((16,))):
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            C[vi] = B[15 - vi]
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = T.if_then_else(vi < 8, A[vi], T.float32(0))
"""
)


single_result = script(
    """
@T.prim_func
def main(A: T.Buffer((6,)), C: T.Buffer((1,))):
    for k, i in T.grid(6, 1):
        with T.block("C"):
            vk, vi = T.axis.remap("RS", [k, i])
            with T.init():
                C[0] = T.float32(0)
            C[0] = C[0] + A[vk]
"""
)


def weighted_sums() -> PrimFunc:
    """Sums of ``A[i, k] * s[i]``: one factor knows nothing of the reduction."""
    a, s = te.placeholder((5, 7), name="A"), te.placeholder((5,), name="s")
    k = te.reduce_axis((0, 7), "k")
    c = te.compute((5,), lambda i: te.sum(a[i, k] * s[i], axis=k), name="C")
    return te.create_prim_func([a, s, c])


def int_dot() -> PrimFunc:
    """A product of int8 matrices in int32."""
    a, b = te.placeholder((5, 7), "int8", name="A"), te.placeholder((6, 7), "int8", name="B")
    k = te.reduce_axis((0, 7), "k")
    c = te.compute(
        (5, 6),
        lambda i, j: te.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), axis=k),
        name="C",
    )
    return te.create_prim_func([a, b, c])


def dilated() -> PrimFunc:
    """A window of three taps, 6 apart, over ``A`` with six zeros on each side."""
    a, w = te.placeholder((6,), name="A"), te.placeholder((3,), name="W")
    b = te.compute(
        (18,), lambda i: te.if_then_else(te.all(i >= 6, i < 12), a[i - 6], 0.0), name="B"
    )
    k = te.reduce_axis((0, 3), "k")
    c = te.compute((6,), lambda i: te.sum(b[i + k * 6] * w[k], axis=k), name="C")
    return te.create_prim_func([a, w, c])


def symbolic_dilated() -> PrimFunc:
    """The same window over ``n`` elements."""
    n = te.var("n")
    a, w = te.placeholder((n,), name="A"), te.placeholder((3,), name="W")
    b = te.compute(
        (n + 12,), lambda i: te.if_then_else(te.all(i >= 6, i < n + 6), a[i - 6], 0.0), name="B"
    )
    k = te.reduce_axis((0, 3), "k")
    c = te.compute((n,), lambda i: te.sum(b[i + k * 6] * w[k], axis=k), name="C")
    return te.create_prim_func([a, w, c])


def dilated_channels() -> PrimFunc:
    """The same window over five channels, with zeros around each."""
    a, w = te.placeholder((5, 6), name="A"), te.placeholder((5, 3), name="W")
    b = te.compute(
        (5, 18),
        lambda c, i: te.if_then_else(te.all(i >= 6, i < 12), a[c, i - 6], 0.0),
        name="B",
    )
    k, c = te.reduce_axis((0, 3), "k"), te.reduce_axis((0, 5), "c")
    made = te.compute((6,), lambda i: te.sum(b[c, i + k * 6] * w[c, k], axis=[k, c]), name="C")
    return te.create_prim_func([a, w, made])


def _skip_below_taps(sch: Schedule) -> object:
    block = sch.get_block("C")
    _, k, _ = sch.get_loops(block)
    sch.decompose_reduction(block, k)
    return sch.unsafe_skip_padding(block, sch.get_loops(block)[-1])


def padded_with_ones() -> PrimFunc:
    """Sums of windows over ``A`` between ones."""
    a, w = te.placeholder((6,), name="A"), te.placeholder((3,), name="W")
    b = te.compute(
        (18,), lambda i: te.if_then_else(te.all(i >= 6, i < 12), a[i - 6], 1.0), name="B"
    )
    k = te.reduce_axis((0, 3), "k")
    c = te.compute((6,), lambda i: te.sum(b[i + k * 6] * w[k], axis=k), name="C")
    return te.create_prim_func([a, w, c])


def uneven_taps() -> PrimFunc:
    """Sums of which even places have two taps and odd ones one, in so far as ``D`` is positive."""
    a, w = te.placeholder((8,), name="A"), te.placeholder((3,), name="W")
    d = te.placeholder((7,), name="D")
    k = te.reduce_axis((0, 2), "k")

    def part(i: Expr) -> Expr:
        tap = i % 2 + k * 2
        has = te.all(tap < 3, i * 2 % 2 + k < 2, d[i] > 0.0)
        return te.sum(te.if_then_else(has, a[i // 2 + k] * w[tap % 3], 0.0), axis=k)

    return te.create_prim_func([a, w, d, te.compute((7,), part, name="C")])


def row_maxima() -> PrimFunc:
    """Maxima of rows."""
    a = te.placeholder((5, 7), name="A")
    k = te.reduce_axis((0, 7), "k")
    return te.create_prim_func([a, te.compute((5,), lambda i: te.max(a[i, k], axis=k), name="C")])


def windows() -> PrimFunc:
    """Sums over windows of three."""
    a = te.placeholder((10,), name="A")
    k = te.reduce_axis((0, 3), "k")
    return te.create_prim_func([a, te.compute((8,), lambda i: te.sum(a[i + k], axis=k), name="C")])


def _decompose(block: str, loop: int) -> Callable[[Schedule], object]:
    return lambda s: s.decompose_padding(s.get_block(block), s.get_loops(block)[loop])


def _pad(*padding: int) -> Callable[[Schedule], object]:
    return lambda s: s.pad_einsum(s.get_block("C"), list(padding))


def _decompose_below_consumer(sch: Schedule) -> object:
    block, consumer = sch.get_block("B"), sch.get_block("C")
    sch.compute_at(block, sch.get_loops(consumer)[0])
    return sch.decompose_padding(block, sch.get_loops(block)[1])


def _decompose_around_consumer(sch: Schedule) -> object:
    block, consumer = sch.get_block("B"), sch.get_block("C")
    sch.compute_at(block, sch.get_loops(consumer)[0])
    return sch.decompose_padding(block, sch.get_loops(block)[0])


def _split_first(sch: Schedule) -> object:
    block = sch.get_block("B")
    sch.split(sch.get_loops(block)[1], [None, 4])
    return sch.decompose_padding(block, sch.get_loops(block)[1])


def _skip(loop: int, *tile: int) -> Callable[[Schedule], object]:
    """Take the initialisation out, tile the places, and skip what runs inside of a loop."""

    def apply(sch: Schedule) -> object:
        block = sch.get_block("C")
        i, k = sch.get_loops(block)
        places = sch.split(i, [None, *tile]) if tile else [i]
        sch.reorder(*places[:-1], k, places[-1])
        sch.decompose_reduction(block, k)
        return sch.unsafe_skip_padding(block, sch.get_loops(block)[loop])

    return apply


def _skip_innermost(sch: Schedule) -> object:
    """Every tap is a loop outside; what doesn't depend on loops stays with what is added."""
    block = sch.get_block("C")
    loop = sch.add_unit_loop(block)
    sch.decompose_reduction(block, sch.get_loops(block)[1])
    made = sch.unsafe_skip_padding(block, loop)
    text = sch.mod["main"].script()
    assert "T.where(i % 2 + k * 2 < 3)" in text and text.count("if_then_else") == 1
    return made


def _reversed_branches() -> PrimFunc:
    a = te.placeholder((8,), name="A")
    b = te.compute(
        (12,), lambda i: te.if_then_else(te.any(i < 2, i >= 10), 3.0, a[i - 2]), name="B"
    )
    return te.create_prim_func([a, b])


def _every_second() -> PrimFunc:
    a = te.placeholder((8,), name="A")
    b = te.compute((16,), lambda i: te.if_then_else(i % 2 == 0, a[i // 2], 0.0), name="B")
    return te.create_prim_func([a, b])


def _ask_twice(sch: Schedule) -> object:
    block = sch.get_block("B")
    assert sch.can_decompose_padding(block, sch.get_loops(block)[0])
    block = sch.get_block("C")
    assert not sch.can_decompose_padding(block, sch.get_loops(block)[0])
    return None


def _ask(sch: Schedule) -> object:
    block = sch.get_block("B")
    assert sch.can_decompose_padding(block, sch.get_loops(block)[0])
    return None


CASES = [
    Example("decompose_padding", _decompose("B", 0), {"A": "(16,)", "B": "(20,)"}),
    Accept("decompose_padding", pad2d, _decompose("B", 0)),
    Accept("decompose_padding", pad2d, _decompose("B", 1)),
    Accept("decompose_padding", pad2d, _decompose_below_consumer),
    Accept("decompose_padding", pad2d, _decompose_around_consumer),
    Accept("decompose_padding", pad2d, _split_first),
    Accept("decompose_padding", _reversed_branches, _decompose("B", 0)),
    Accept("decompose_padding", _every_second, _decompose("B", 0)),
    Accept(
        "decompose_padding",
        symbolic_pad,
        _decompose("B", 0),
        sizes=({"n": 5}, {"n": 1}),
    ),
    Refuse(
        "decompose_padding",
        "nothing but loops",
        guarded,
        _decompose("B", 0),
        "there is more than loops",
    ),
    Refuse(
        "decompose_padding",
        "chooses between a value and a constant",
        chain,
        _decompose("B", 0),
        "must store if_then_else",
    ),
    Refuse(
        "decompose_padding",
        "chooses between a value and a constant",
        matmul,
        _decompose("C", 0),
        "must be complete",
    ),
    Refuse(
        "decompose_padding",
        "has no views",
        through_view,
        _decompose("B", 0),
        "into no view",
    ),
    Refuse("pad_einsum", "without predicate and views", through_view, _pad(8), "and views"),
    Refuse(
        "decompose_padding",
        "not on memory",
        pad_by_data,
        _decompose("B", 0),
        "depends on what memory",
    ),
    Refuse(
        "decompose_padding",
        "in the same iteration",
        stale,
        _decompose("B", 0),
        "would find the padding",
    ),
    Accept("can_decompose_padding", pad2d, _ask_twice),
    Accept("can_decompose_padding", symbolic_pad, _ask, sizes=({"n": 5},)),
    Example(
        "unsafe_skip_padding",
        lambda s: s.unsafe_skip_padding(s.get_block("C"), s.get_loops("C")[1]),
        {"A": "(6,)", "W": "(3,)", "C": "(6,)"},
        before="B = T.alloc_buffer((18,))",
        after="B = T.alloc_buffer((18,))",
    ),
    Accept("unsafe_skip_padding", dilated, _skip(2, 2)),
    Accept("unsafe_skip_padding", dilated, _skip(2, 4)),
    Accept("unsafe_skip_padding", dilated, _skip(1)),
    Accept("unsafe_skip_padding", dilated_channels, _skip_below_taps),
    Accept(
        "unsafe_skip_padding", symbolic_dilated, _skip(2, 4), sizes=({"n": 3}, {"n": 6}, {"n": 21})
    ),
    Accept("unsafe_skip_padding", uneven_taps, _skip_innermost),
    Refuse(
        "unsafe_skip_padding",
        "nothing but padding",
        uneven_taps,
        _skip(0),
        "nowhere only padding",
    ),
    Refuse(
        "unsafe_skip_padding",
        "nothing but padding",
        dilated,
        _skip(0),
        "nowhere only padding",
    ),
    Refuse(
        "unsafe_skip_padding",
        "fills with values or, as padding, zeros",
        padded_with_ones,
        _skip(2, 2),
        "nowhere only padding",
    ),
    Refuse(
        "unsafe_skip_padding",
        "initialisation has been decomposed",
        dilated,
        lambda s: s.unsafe_skip_padding(s.get_block("C"), s.get_loops("C")[1]),
        "without initialising it",
    ),
    Refuse(
        "unsafe_skip_padding",
        "is around the block",
        dilated,
        lambda s: s.unsafe_skip_padding(s.get_block("C"), s.get_loops("B")[0]),
        "is not around block",
    ),
    Example(
        "pad_einsum",
        _pad(4, 1, 1),
        {"A": "(5, 3)", "B": "(3, 4)", "C": "(5, 4)"},
        after="A_pad = T.alloc_buffer((8, 3))\nC_pad = T.alloc_buffer((8, 4))",
    ),
    Accept("pad_einsum", matmul, _pad(8, 16, 16)),
    Accept("pad_einsum", matmul, _pad(12, 8, 7)),
    Accept("pad_einsum", matmul, _pad(4, 4, 5)),
    Accept("pad_einsum", int_dot, _pad(4, 8, 4)),
    Accept("pad_einsum", row_maxima, _pad(4, 1)),
    Accept("pad_einsum", windows, _pad(1, 1)),
    Accept(
        "pad_einsum",
        symbolic_matmul,
        _pad(4, 4, 16),
        sizes=({"n": 5}, {"n": 8}),
    ),
    Refuse(
        "pad_einsum",
        "one positive number per axis",
        matmul,
        _pad(4, 4),
        "one positive number for each of the 3 axes",
    ),
    Refuse(
        "pad_einsum",
        "loop of its own",
        idle_loop,
        lambda s: s.pad_einsum(s.get_block("B"), [4, 4]),
        "has loops that bind no axis",
    ),
    Refuse(
        "pad_einsum",
        "adds and multiplies",
        scan,
        lambda s: s.pad_einsum(s.get_block("scan"), [5, 4]),
        "is no sum of products",
    ),
    Refuse(
        "pad_einsum",
        "indices by themselves",
        single_result,
        _pad(4, 2),
        "is not indexed by vi",
    ),
    Refuse("pad_einsum", "indices by themselves", windows, _pad(5, 1), "what to pad"),
    Refuse("pad_einsum", "belong to a sum", row_maxima, _pad(1, 4), "is no sum"),
    Refuse("pad_einsum", "belong to a sum", weighted_sums, _pad(1, 4), "not surely zero"),
]
