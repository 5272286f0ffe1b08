from __future__ import annotations

import contextlib

import numpy as np
from schedule_cases import (
    arrays,
    chain,
    check,
    conv2d,
    loop_extents,
    matmul,
    matmul_relu,
    predicate_of,
    refuses,
)

import tilewright
from tilewright import te
from tilewright.ir import TRUE, Var, substitute
from tilewright.support.errors import ScheduleError
from tilewright.tir import IndexMap, PrimFunc, decl_buffer, loop_nest, make_root_block
from tilewright.tir.interpreter import run
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
        # The block that writes the buffer writes its padding too.
        assert loop_extents(sch, "B") == ([10, 6] if value is None else [3, 6, 4])
        assert not sch.has_block("B_pad")
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


def test_padding_that_the_writer_can_not_write_is_filled_behind_it() -> None:
    func = matmul_relu(10, 6, 5)
    sch = Schedule(func)
    sch.transform_layout(
        "C", ("write", 0), lambda i, j: (i // 4, j, i % 4), pad_value=lambda a, b, c: a + b * c
    )
    order = [sch.get(item).name for item in sch.get_child_blocks(sch.get_block("root"))]
    assert order == ["C", "C_pad", "D"]
    check(sch, func)


def test_padded_writers_can_be_moved() -> None:
    func = chain(10, 6)
    sch = Schedule(func)
    sch.transform_layout("B", ("write", 0), lambda i, j: (i // 4, j, i % 4), pad_value=7)
    sch.transform_block_layout("C", lambda i, j: (i // 4, j, i % 4))
    sch.compute_at("B", sch.get_loops("C")[0])
    assert loop_extents(sch, "B") == [3, 6, 4]
    check(sch, func)


def test_what_the_padding_holds() -> None:
    a = te.placeholder((3,), name="A")
    b = te.compute((3,), lambda i: a[i] + 0.0, name="B")
    c = te.compute((3,), lambda i: b[i], name="C")
    sch = Schedule(te.create_prim_func([a, c]))
    sch.transform_layout("B", ("write", 0), lambda i: (i // 2, i % 2), pad_value=lambda i, j: i * 9)
    block = sch.get_block("B")
    (buffer,) = sch.get(sch.get_block("root")).alloc_buffers
    # Store what the block makes into a parameter, to look at it.
    shown = decl_buffer((2, 2), name="shown")
    realize = substitute(sch.state.get_block(block), {buffer: shown})
    handles = Var("a", "handle"), Var("s", "handle")
    loops = sch.state.loops_above(sch.state.get_block(block))
    buffers = dict(zip(handles, (sch.mod["main"].buffers[0], shown)))
    func = PrimFunc(handles, make_root_block(loop_nest(loops, realize)), buffer_map=buffers)
    out = np.zeros((2, 2), "float32")
    run(func, np.array([1, 2, 3], "float32"), out)
    np.testing.assert_array_equal(out, [[1, 2], [3, 9]])


def test_trusted_maps_still_need_an_inverse_to_be_padded() -> None:
    sch = Schedule(chain(10, 6))
    skew = lambda i, j: (i + j, j)
    refuses(sch, lambda: sch.transform_layout("B", ("write", 0), skew), "not a bijection")
    sch.transform_layout("B", ("write", 0), skew, assume_injective_transform=True)
    assert shape_of(sch, "B") == [15, 6]
    check(sch, chain(10, 6))


def test_symbolic_layouts() -> None:
    n = te.var("n")
    a = te.placeholder((n, 12), name="A")
    b = te.compute((n, 12), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, 12), lambda i, j: b[i, j] + 1.0, name="C")
    func = te.create_prim_func([a, c])
    size = func.symbolic_vars()[0]
    for mapping in (
        lambda i, j: (j, i),
        lambda i, j: (j * size + i,),
        lambda i, j: (i // 8, j, i % 8),
        "lambda i, j: (n - 1 - i, j)",
    ):
        for act in ("layout", "block"):
            sch = Schedule(func)
            if act == "layout":
                sch.transform_layout("B", ("write", 0), mapping, pad_value=3)
            else:
                sch.transform_block_layout("C", mapping)
            for number in (1, 8, 11):
                check(sch, func, n=number)
            again = Schedule(func)
            type(sch.trace).from_json(sch.trace.as_json()).apply_to_schedule(again)
            assert again.mod.script() == sch.mod.script()
    sch = Schedule(func)
    other = Var("m")
    refuses(
        sch,
        lambda: sch.transform_layout("B", ("write", 0), lambda i, j: (i + other, j)),
        "no symbolic extent",
    )


def _random_map(rng: np.random.Generator, sizes: list[int]) -> IndexMap:
    """Splits, shifts, fuses and permutes indices."""
    variables = tuple(Var(f"i{axis}") for axis in range(len(sizes)))
    parts: list[object] = []
    for var in variables:
        index = var + int(rng.integers(0, 3)) if rng.integers(3) == 0 else var
        if rng.integers(2):
            factor = int(rng.integers(2, 6))
            parts += [index // factor, index % factor]
        else:
            parts.append(index)
    if rng.integers(3) == 0:
        fused = variables[0]
        for var, size in zip(variables[1:], sizes[1:]):
            fused = fused * size + var
        factor = int(rng.integers(2, 9))
        parts = [fused // factor, fused % factor]
    return IndexMap(variables, tuple(parts[n] for n in rng.permutation(len(parts))))


def test_random_layouts_change_no_result() -> None:
    accepted = {"buffer": 0, "block": 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        sizes = [int(size) for size in rng.integers(1, 10, 2)]
        func: PrimFunc = (chain if rng.integers(2) else matmul_relu)(*sizes)
        sch = Schedule(func)
        made = _random_map(rng, sizes)
        pad = [None, 0.5, lambda *i: i[0] * 2][int(rng.integers(3))]
        with contextlib.suppress(ScheduleError):
            sch.transform_layout("C", ("write", 0), made, pad_value=pad)
            accepted["buffer"] += 1
        check(sch, func)
        with contextlib.suppress(ScheduleError):
            sch.transform_block_layout("D", _random_map(rng, sizes))
            accepted["block"] += 1
        check(sch, func)
        if seed % 10 == 0:
            expected, actual = arrays(func), arrays(func)
            run(func, *expected)
            tilewright.compile(sch.mod)["main"](*actual)
            for left, right in zip(actual, expected):
                np.testing.assert_allclose(left, right, rtol=1e-6)
    assert accepted["buffer"] > 50 and accepted["block"] > 50, accepted


def test_block_layout_with_padding_has_a_predicate() -> None:
    func = chain(10, 6)
    sch = Schedule(func)
    sch.transform_block_layout("C", lambda i, j: (i // 4, j, i % 4))
    assert loop_extents(sch, "C") == [3, 6, 4]
    assert predicate_of(sch, "C") is not TRUE
    check(sch, func)


def test_block_layout_that_starts_later() -> None:
    # Points of the new domain before the first are no instances of the block.
    func = chain(5, 6)
    sch = Schedule(func)
    sch.transform_block_layout("C", lambda i, j: (i + 3, j))
    assert loop_extents(sch, "C") == [8, 6]
    check(sch, func)
