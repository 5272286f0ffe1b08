from __future__ import annotations

from schedule_cases import chain, check, conv2d, loop_extents, matmul, matmul_relu, refuses

from tilewright import te
from tilewright.tir.schedule import Schedule


def shape_of(sch: Schedule, name: str) -> list[int]:
    root = sch.get(sch.get_block("root"))
    (buffer,) = [item for item in root.alloc_buffers if item.name == name]
    return [extent.value for extent in buffer.shape]


def test_all_accesses_follow_the_new_layout() -> None:
    func = chain(16, 12)
    sch = Schedule(func)
    sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i, j: (j // 4, i, j % 4))
    assert shape_of(sch, "B") == [3, 16, 4]
    check(sch, func)


def test_the_reader_names_the_buffer_too() -> None:
    func = chain(16, 12)
    sch = Schedule(func)
    sch.transform_layout(sch.get_block("C"), ("read", 0), lambda i, j: (j, i))
    sch.transform_layout(sch.get_block("D"), "C", "lambda i, j: (i * 12 + j,)")
    assert shape_of(sch, "B") == [12, 16]
    assert shape_of(sch, "C") == [192]
    check(sch, func)


def test_packing_a_weight_through_a_cache() -> None:
    func = matmul(12, 8, 10)
    sch = Schedule(func)
    c = sch.get_block("C")
    copy = sch.cache_read(c, 1, "global")
    sch.transform_layout(copy, ("write", 0), lambda k, j: (j // 4, k, j % 4))
    i, j, k = sch.get_loops(c)
    j0, j1 = sch.split(j, [None, 4])
    sch.reorder(j0, i, k, j1)
    sch.compute_at(copy, j0)
    assert loop_extents(sch, copy) == [2, 10, 4]
    check(sch, func)


def test_padding_is_filled_on_request() -> None:
    func = chain(10, 6)
    for value in (None, 0.0):
        sch = Schedule(func)
        sch.transform_layout(
            sch.get_block("B"), ("write", 0), lambda i, j: (i // 4, j, i % 4), pad_value=value
        )
        assert shape_of(sch, "B") == [3, 6, 4]
        assert sch.has_block("B_pad") == (value is not None)
        check(sch, func)


def test_reductions_and_windows() -> None:
    func = conv2d(size=6)
    sch = Schedule(func)
    pad = sch.get_block("pad")
    sch.transform_layout(pad, ("write", 0), lambda h, w, c: (c, h, w))
    check(sch, func)
    func = matmul_relu()
    sch = Schedule(func)
    c = sch.get_block("C")
    sch.transform_layout(c, ("write", 0), lambda i, j: (i // 4, j // 4, i % 4, j % 4))
    _i, _j, k = sch.get_loops(c)
    sch.decompose_reduction(c, k)
    check(sch, func)


def test_layout_then_move() -> None:
    func = chain(16, 12)
    sch = Schedule(func)
    b = sch.get_block("B")
    sch.transform_layout(b, ("write", 0), lambda i, j: (i // 4, j, i % 4))
    i, _ = sch.get_loops(sch.get_block("C"))
    i0, _ = sch.split(i, [None, 4])
    sch.compute_at(b, i0)
    check(sch, func)


def test_what_transform_layout_refuses() -> None:
    func = matmul()
    sch = Schedule(func)
    c = sch.get_block("C")
    swap = lambda i, j: (j, i)
    refuses(sch, lambda: sch.transform_layout(c, ("read", 0), swap), "parameter", "cache_read")
    refuses(sch, lambda: sch.transform_layout(c, ("read", 7), swap), "no buffer 7")
    refuses(sch, lambda: sch.transform_layout(c, "Z", swap), "'Z'")
    relu = Schedule(matmul_relu())
    c = relu.get_block("C")
    refuses(
        relu,
        lambda: relu.transform_layout(c, ("write", 0), lambda i, j: (i // 2, j)),
        "not a bijection",
    )
    refuses(relu, lambda: relu.transform_layout(c, ("write", 0), lambda i: (i,)), "1 indices")


def test_layout_free_parameters_may_change() -> None:
    func = matmul().with_attr("layout_free_buffers", [1])
    sch = Schedule(func)
    sch.transform_layout(sch.get_block("C"), ("read", 1), lambda k, j: (j // 4, k, j % 4))
    assert [e.value for e in sch.mod["main"].buffers[1].shape] == [2, 10, 4]


def test_block_layout() -> None:
    func = chain(16, 12)
    for mapping, extents in (
        ("lambda i, j: (i * 12 + j,)", [192]),
        ("lambda i, j: (j, i)", [12, 16]),
        ("lambda i, j: (i // 4, j // 3, i % 4, j % 3)", [4, 4, 4, 3]),
    ):
        sch = Schedule(func)
        sch.transform_block_layout(sch.get_block("C"), mapping)
        assert loop_extents(sch, "C") == extents
        check(sch, func)


def test_block_layout_of_a_reduction() -> None:
    func = conv2d(size=4)
    sch = Schedule(func)
    conv = sch.get_block("conv")
    sch.transform_block_layout(
        conv, lambda h, w, f, rh, rw, rc: (h * 4 + w, f, (rh * 3 + rw) * 3 + rc)
    )
    assert loop_extents(sch, conv) == [16, 4, 27]
    check(sch, func)
    sch = Schedule(func)
    refuses(
        sch,
        lambda: sch.transform_block_layout(conv, lambda h, w, f, a, b, c: (h, w, f * 3 + a, b, c)),
        "mixes",
    )
    sch.split(sch.get_loops(conv)[0], [2, 2])
    refuses(
        sch,
        lambda: sch.transform_block_layout(conv, lambda h, w, f, a, b, c: (w, h, f, a, b, c)),
        "not bound to a loop of its own",
    )


def test_traces_replay() -> None:
    a = te.placeholder((16, 12), name="A")
    b = te.compute((16, 12), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((16, 12), lambda i, j: b[i, j] + 1.0, name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i, j: (i // 4, j, i % 4))
    sch.cache_write(sch.get_block("C"), 0, "local")
    again = Schedule(func)
    type(sch.trace).from_json(sch.trace.as_json()).apply_to_schedule(again, remove_postproc=False)
    assert again.mod.script() == sch.mod.script()


def test_block_layout_keeps_the_predicate() -> None:
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((10,), lambda i: b[i + 3] + 1.0, name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    sch.reverse_compute_inline(sch.get_block("C"))
    sch.transform_block_layout(sch.get_block("B"), lambda i: (i // 4, i % 4))
    check(sch, func)
