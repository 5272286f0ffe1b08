from __future__ import annotations

from schedule_cases import arrays, chain, check, conv2d, matmul, matmul_relu, refuses

from tilewright import te
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule


def blocks(sch: Schedule) -> list[str]:
    return [item.name for item in sch.get_child_blocks(sch.get_block("root"))]


def test_a_chain_collapses() -> None:
    func = chain()
    sch = Schedule(func)
    sch.compute_inline(sch.get_block("B"))
    sch.compute_inline(sch.get_block("C"))
    assert blocks(sch) == ["D"]
    assert not sch.get(sch.get_block("root")).alloc_buffers
    assert [region.buffer.name for region in sch.get(sch.get_block("D")).reads] == ["A"]
    check(sch, func)


def test_padding_inlines_into_a_convolution() -> None:
    func = conv2d()
    sch = Schedule(func)
    sch.compute_inline(sch.get_block("pad"))
    assert blocks(sch) == ["conv"]
    check(sch, func)


def test_several_consumers_with_predicates() -> None:
    a = te.placeholder((10,), name="A")
    b = te.compute((10,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((10,), lambda i: b[i] + b[9 - i], name="C")
    d = te.compute((8,), lambda i: b[i + 2] + c[i], name="D")
    func = te.create_prim_func([a, c, d])
    sch = Schedule(func)
    (i,) = sch.get_loops(sch.get_block("C"))
    sch.split(i, [None, 4])
    sch.compute_inline(sch.get_block("B"))
    assert blocks(sch) == ["C", "D"]
    check(sch, func)


def test_inline_into_a_loop_nest_that_holds_the_block() -> None:
    func = chain()
    sch = Schedule(func)
    sch.compute_at(sch.get_block("C"), sch.get_loops(sch.get_block("D"))[0])
    sch.compute_inline(sch.get_block("C"))
    check(sch, func)


def test_store_indices_are_solved() -> None:
    func = chain(16, 12)
    sch = Schedule(func)
    sch.transform_layout(sch.get_block("C"), ("write", 0), lambda i, j: (i // 4, j, i % 4))
    sch.compute_inline(sch.get_block("C"))
    check(sch, func)


def test_what_compute_inline_refuses() -> None:
    func = matmul_relu()
    sch = Schedule(func)
    refuses(sch, lambda: sch.compute_inline(sch.get_block("D")), "output block", "D")
    refuses(sch, lambda: sch.compute_inline(sch.get_block("C")), "not complete", "reduce")
    sch = Schedule(matmul())
    refuses(sch, lambda: sch.compute_inline(sch.get_block("root")), "root")


def test_epilogue_is_pulled_into_its_producer() -> None:
    func = chain()
    sch = Schedule(func)
    sch.reverse_compute_inline(sch.get_block("D"))
    sch.reverse_compute_inline(sch.get_block("C"))
    assert blocks(sch) == ["B"]
    check(sch, func)


def test_transposing_and_reshaping_consumers_are_inverted() -> None:
    a = te.placeholder((6, 8), name="A")
    b = te.compute((6, 8), lambda i, j: a[i, j] * 2.0, name="B")
    for make in (
        lambda: te.compute((8, 6), lambda i, j: b[j, i] + 1.0, name="C"),
        lambda: te.compute((48,), lambda i: b[i // 8, i % 8] + 1.0, name="C"),
        lambda: te.compute((3, 2, 2, 4), lambda i, j, k, m: b[i * 2 + j, k * 4 + m], name="C"),
        lambda: te.compute((8, 3, 2), lambda j, i, k: b[i * 2 + k, j], name="C"),
        lambda: te.compute((1, 6, 8), lambda n, i, j: b[i, j] + 1.0, name="C"),
    ):
        c = make()
        func = te.create_prim_func([a, c])
        sch = Schedule(func)
        sch.reverse_compute_inline(sch.get_block("C"))
        assert blocks(sch) == ["B"]
        check(sch, func)


def test_cropping_consumer_leaves_a_predicate() -> None:
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((10,), lambda i: b[i + 3] + 1.0, name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    sch.reverse_compute_inline(sch.get_block("C"))
    assert blocks(sch) == ["B"]
    check(sch, func)


def test_symbolic_epilogue() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((n,), lambda i: b[i] + 1.0, name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    sch.reverse_compute_inline(sch.get_block("C"))
    check(sch, func, n=7)


def test_what_reverse_compute_inline_refuses() -> None:
    func = matmul_relu()
    sch = Schedule(func)
    refuses(sch, lambda: sch.reverse_compute_inline(sch.get_block("D")), "'C'", "not complete")

    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((15,), lambda i: b[i] + b[i + 1], name="C")
    sch = Schedule(te.create_prim_func([a, c]))
    refuses(sch, lambda: sch.reverse_compute_inline(sch.get_block("C")), "several elements")

    d = te.compute((16,), lambda i: b[i] + 1.0, name="D")
    sch = Schedule(te.create_prim_func([a, c, d]))
    refuses(sch, lambda: sch.reverse_compute_inline(sch.get_block("D")), "not the only consumer")

    e = te.compute((4, 16), lambda i, j: b[j] + 1.0, name="E")
    sch = Schedule(te.create_prim_func([a, e]))
    refuses(sch, lambda: sch.reverse_compute_inline(sch.get_block("E")), "can't be inverted")


def test_a_value_that_changes_later_is_not_moved() -> None:
    """An input that is overwritten between block and consumer."""
    from tilewright.script import parse

    func = parse(
        """
from tilewright.script import tir as T

@T.prim_func
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] + T.float32(1)
    for i in range(8):
        with T.block("A2"):
            vi = T.axis.spatial(8, i)
            A[vi] = T.float32(0)
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi] * T.float32(2)
"""
    )
    sch = Schedule(func)
    refuses(sch, lambda: sch.compute_inline(sch.get_block("B")), "changes later", "A2")
    refuses(
        sch,
        lambda: sch.compute_at(sch.get_block("B"), sch.get_loops(sch.get_block("C"))[0]),
        "changes later",
    )
    data = arrays(func)
    run(sch.mod["main"], *data)


def test_the_border_of_a_padding_would_be_lost() -> None:
    func = conv2d()
    sch = Schedule(func)
    sch.cache_read(sch.get_block("pad"), 0, "global")
    refuses(sch, lambda: sch.reverse_compute_inline(sch.get_block("pad")), "would not run")
