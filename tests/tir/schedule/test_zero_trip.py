"""Loops without iterations: each primitive refuses them, or keeps what they mean.

Sizes are drawn as 0 and 1 too, known and unknown when scheduled, for all steps of a list, alone and
after each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.everyday import few
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.tir import PrimFunc
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import Schedule
from tilewright.tir.schedule.zero_trips import surely_runs

SIZES = (0, 1, 2, 5)

# Row sums of a scaled input, started with what another block makes; then a function of them.
TEXT = """
@T.prim_func
def main(a: T.handle, b: T.handle, out: T.Buffer((3,), "float32")):
    {declare}
    A = T.match_buffer(a, (3, {n}), "float32")
    B = T.match_buffer(b, (3,), "float32")
    scaled = T.alloc_buffer((3, {n}), "float32")
    start = T.alloc_buffer((3,), "float32")
    sums = T.alloc_buffer((3,), "float32")
    for i, j in T.grid(3, {n}):
        with T.block("scaled"):
            v, w = T.axis.remap("SS", [i, j])
            scaled[v, w] = A[v, w] * T.float32(2)
    for i in range(3):
        with T.block("start"):
            v = T.axis.spatial(3, i)
            start[v] = B[v] + T.float32(1)
    for {loops} in T.grid({grid}):
        with T.block("sums"):
            v, r = T.axis.remap("SR", [i, k])
            with T.init():
                sums[v] = start[v] * B[v]
            sums[v] = sums[v] + scaled[v, r]
    for i in range(3):
        with T.block("out"):
            v = T.axis.spatial(3, i)
            out[v] = sums[v] - T.float32(3)
"""
ORDERS = ("i, k", "k, i")


def program(n: int | None, order: str) -> PrimFunc:
    """The program for a known or unknown size, with its loops in one of two orders."""
    size = "n" if n is None else str(n)
    grid = order.replace("i", "3").replace("k", size)
    declare = "n = T.int64()" if n is None else ""
    return parse(TEXT.format(declare=declare, n=size, loops=order, grid=grid))


def reduce_loop(sch: Schedule) -> Any:
    return next(x for x in sch.get_loops("sums") if sch.get(x).loop_var.name == "k")


def spatial_loop(sch: Schedule) -> Any:
    return next(x for x in sch.get_loops("sums") if sch.get(x).loop_var.name == "i")


def _peeled(sch: Schedule) -> None:
    """A loop that never runs around the reduction, and fused with it."""
    unit = sch.add_unit_loop(sch.get_loops("sums")[0])
    sch.split(unit, [2], tail="peel")
    (block,) = [rv for rv in sch.get_child_blocks("root") if rv.name.endswith("_tail")]
    sch.fuse(*sch.get_loops(block))


def _under_tail(sch: Schedule) -> None:
    unit = sch.add_unit_loop(sch.get_loops("sums")[-1])
    sch.split(unit, [2], tail="peel")
    (block,) = [rv for rv in sch.get_child_blocks("root") if rv.name.endswith("_tail")]
    sch.fuse(*sch.get_loops(block)[1:])


STEPS: dict[str, Callable[[Schedule], object]] = {
    "fuse": lambda s: s.fuse(*s.get_loops("sums")),
    "fuse producer": lambda s: s.fuse(*s.get_loops("scaled")),
    "fuse a loop of none": _peeled,
    "fuse a loop of none inside": _under_tail,
    "fuse a unit loop": lambda s: s.fuse(
        s.add_unit_loop(s.get_loops("sums")[0]), s.get_loops("sums")[1]
    ),
    **{
        f"split {factors} {tail}": lambda s, factors=factors, tail=tail: s.split(
            reduce_loop(s), factors, tail=tail
        )
        for factors in ([None, 2], [2, None], [2, 2], [8], [1, None], [4, 2])
        for tail in ("predicate", "peel", "pad", "overlap")
    },
    **{
        f"split producer {tail}": lambda s, tail=tail: s.split(
            s.get_loops("scaled")[1], [None, 2], tail=tail
        )
        for tail in ("predicate", "peel", "pad", "overlap")
    },
    "loop_partition": lambda s: s.loop_partition(reduce_loop(s), [1, None]),
    "loop_partition producer": lambda s: s.loop_partition(s.get_loops("scaled")[1], [1, None]),
    "loop_partition of all": lambda s: s.loop_partition(reduce_loop(s), [1]),
    "reorder": lambda s: s.reorder(*reversed(s.get_loops("sums"))),
    "decompose_reduction": lambda s: s.decompose_reduction("sums", s.get_loops("sums")[0]),
    "decompose at the reduction": lambda s: s.decompose_reduction("sums", reduce_loop(s)),
    "rfactor": lambda s: s.rfactor(reduce_loop(s)),
    "rfactor of a part": lambda s: s.rfactor(s.split(reduce_loop(s), [None, 2])[1]),
    "blockize": lambda s: s.blockize(s.get_loops("sums")[1]),
    "blockize all": lambda s: s.blockize(s.get_loops("sums")[0]),
    "parallel": lambda s: s.parallel(spatial_loop(s)),
    "vectorize": lambda s: s.vectorize(spatial_loop(s)),
    "unroll": lambda s: s.unroll(reduce_loop(s)),
    "compute_at": lambda s: s.compute_at("scaled", s.get_loops("sums")[0]),
    "compute_at inside": lambda s: s.compute_at("scaled", s.get_loops("sums")[1]),
    "compute_at of what init reads": lambda s: s.compute_at("start", s.get_loops("sums")[0]),
    "compute_at of that inside": lambda s: s.compute_at("start", s.get_loops("sums")[1]),
    "compute_at of the reduction": lambda s: s.compute_at("sums", s.get_loops("out")[0]),
    "reverse_compute_at": lambda s: s.reverse_compute_at("out", spatial_loop(s)),
    "reverse_compute_at of the reduction": lambda s: s.reverse_compute_at(
        "sums", s.get_loops("scaled")[0]
    ),
    "reverse_compute_at inside": lambda s: s.reverse_compute_at("sums", s.get_loops("scaled")[1]),
    "compute_inline": lambda s: s.compute_inline("scaled"),
    "compute_inline of what init reads": lambda s: s.compute_inline("start"),
    "reverse_compute_inline": lambda s: s.reverse_compute_inline("out"),
    "fuse_reduction_epilogue": lambda s: s.fuse_reduction_epilogue("sums", "out"),
    "cache_read": lambda s: s.cache_read("sums", "scaled", "local"),
    "cache_read and compute_at": lambda s: s.compute_at(
        s.cache_read("sums", "scaled", "local"), s.get_loops("sums")[1]
    ),
    "cache_read of init and compute_at": lambda s: s.compute_at(
        s.cache_read("sums", "start", "local"), s.get_loops("sums")[1]
    ),
    "cache_write": lambda s: s.cache_write("sums", 0, "local"),
    "cache_write and reverse_compute_at": lambda s: s.reverse_compute_at(
        s.cache_write("sums", 0, "local"), s.get_loops("sums")[0]
    ),
    "read_at": lambda s: s.read_at(s.get_loops("sums")[0], "sums", "scaled", "local"),
    "read_at of what init reads": lambda s: s.read_at(
        s.get_loops("sums")[0], "sums", "start", "local"
    ),
    "read_at of an input": lambda s: s.read_at(s.get_loops("sums")[1], "sums", "B", "local"),
    "write_at": lambda s: s.write_at(s.get_loops("sums")[0], "sums", 0, "local"),
    "reindex": lambda s: s.reindex("sums", ("read", "scaled")),
    "reindex_cache_read": lambda s: s.reindex_cache_read(
        "sums", "scaled", "local", lambda i, k: (k, i)
    ),
    "transform_layout": lambda s: s.transform_layout(
        "scaled", ("write", 0), lambda i, j: (j // 4, i, j % 4)
    ),
    "transform_layout, filled": lambda s: s.transform_layout(
        "scaled", ("write", 0), lambda i, j: (j // 4, i, j % 4), pad_value=0.0
    ),
    "transform_block_layout": lambda s: s.transform_block_layout("sums", lambda i, k: (k, i)),
    "transform_block_layout, fused": lambda s: s.transform_block_layout(
        "scaled", lambda i, j: (i, j // 2, j % 2)
    ),
    "pad_einsum": lambda s: s.pad_einsum("sums", [1, 4]),
    "merge": lambda s: s.merge(s.get_loops("scaled")[0], spatial_loop(s)),
    "add_unit_loop": lambda s: s.add_unit_loop(reduce_loop(s)),
    "add_unit_loop and reorder": lambda s: s.reorder(
        reduce_loop(s), s.add_unit_loop(s.get_loops("sums")[0])
    ),
    "set_scope": lambda s: s.set_scope("scaled", 0, "shared"),
    "storage_align": lambda s: s.storage_align("scaled", 0, 0, 8, 1),
    "rolling_buffer": lambda s: s.rolling_buffer("scaled", 0),
    "reorder_block_iter_var": lambda s: s.reorder_block_iter_var("sums", [1, 0]),
    "bind": lambda s: s.bind(reduce_loop(s), "threadIdx.x"),
    "cache_index": lambda s: s.cache_index("sums", "local", 0),
}


def arguments(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    shapes = [(3, n), (3,), (3,)]
    return [rng.integers(-4, 5, shape).astype("float32") for shape in shapes]


def expected(n: int) -> np.ndarray:
    a, b, _ = arguments(n)
    return (b + 1) * b + (2 * a).sum(1) - 3


def taken(sch: Schedule, steps: list[str]) -> list[str]:
    """Apply steps; return those that weren't refused."""
    made = []
    for name in steps:
        try:
            STEPS[name](sch)
        except (ScheduleError, StopIteration, ValueError, IndexError):
            continue  # refused, or the loops that it names are gone
        made.append(name)
    return made


def check(func: PrimFunc, sizes: tuple[int, ...], *, compiled: bool) -> None:
    verify(func)
    program = tilewright.compile(func, "llvm") if compiled else None
    for n in sizes:
        made = arguments(n)
        program(*made) if program is not None else run(func, *made)
        np.testing.assert_array_equal(made[-1], expected(n), f"n = {n}")


@few("order", ORDERS, every=2)
@pytest.mark.parametrize("name", STEPS)
def test_each_step(name: str, order: str) -> None:
    sch = Schedule(program(None, order))
    if taken(sch, [name]):
        check(sch.mod["main"], SIZES, compiled=False)
    for n in SIZES:
        sch = Schedule(program(n, order))
        if taken(sch, [name]):
            check(sch.mod["main"], (n,), compiled=False)


@pytest.mark.parametrize("seed", range(20))
def test_steps_after_each_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [name for name in STEPS if name != "bind"]
    for turn in range(6):
        n = (None, None, 0, 1)[rng.integers(4)]
        sch = Schedule(program(n, ORDERS[rng.integers(2)]))
        if taken(sch, list(rng.choice(names, 3))):
            check(sch.mod["main"], SIZES if n is None else (n,), compiled=turn == 0)


@pytest.mark.parametrize("name", ["fuse a loop of none", "fuse a loop of none inside"])
def test_inits_run_once(name: str) -> None:
    for n in (None, *SIZES):
        sch = Schedule(program(n, ORDERS[0]))
        taken(sch, [name])
        check(sch.mod["main"], SIZES if n is None else (n,), compiled=True)


REFUSED = {
    "fuse": "the fused loop would lose that",
    "fuse a loop of none inside": "the fused loop would run the init of block",
    "loop_partition of all": "not known to be no more than the extent n",
    "bind": "a thread for each would lose that",
    "compute_at of that inside": "the init of block 'sums' would run without what it reads",
    "read_at of an input": "the init of block 'sums' would run without what it reads",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_lost_is_refused(name: str) -> None:
    sch = Schedule(program(None, ORDERS[0]))
    with pytest.raises(ScheduleError, match=REFUSED[name]):
        STEPS[name](sch)


@pytest.mark.parametrize("factors", [[2, 2], [8]])
def test_tiles_that_are_there_all_the_same(factors: list[int]) -> None:
    sch = Schedule(program(0, ORDERS[0]))
    with pytest.raises(ScheduleError, match="runs the init of block 'sums'"):
        sch.split(reduce_loop(sch), factors)
    sch.split(sch.get_loops("scaled")[1], factors)  # that means nothing
    check(sch.mod["main"], (0,), compiled=True)


SCALARS = """
@T.prim_func
def main(n: T.int64, m: T.int64, A: T.Buffer((8, 8), "float32")):
    for i, j in T.grid(n - 2, m - 2):
        with T.block("A"):
            v, w = T.axis.remap("SS", [i, j])
            A[v, w] = A[v, w] + T.float32(1)
"""


def test_extents_that_may_be_negative() -> None:
    func = parse(SCALARS)
    for step, message in (
        (lambda s, i, j: s.fuse(i, j), "may be negative"),
        (lambda s, i, j: s.split(i, [None, 2], tail="peel"), "may be negative"),
    ):
        sch = Schedule(func)
        with pytest.raises(ScheduleError, match=message):
            step(sch, *sch.get_loops("A"))
    sch = Schedule(func)
    i = sch.get_loops("A")[0]
    sch.split(i, [None, 2])
    for n, m in ((0, 0), (1, 5), (2, 4), (5, 4), (0, 6)):
        made, wanted = np.zeros((8, 8), "float32"), np.zeros((8, 8), "float32")
        run(sch.mod["main"], n, m, made)
        wanted[: max(n - 2, 0), : max(m - 2, 0)] = 1
        np.testing.assert_array_equal(made, wanted)


TWO_SUMS = """
@T.prim_func
def main(a: T.handle, b: T.handle, out: T.handle):
    m, n, p = T.int64(), T.int64(), T.int64()
    A = T.match_buffer(a, (m, n, p), "float32")
    B = T.match_buffer(b, (m,), "float32")
    C = T.match_buffer(out, (m,), "float32")
    for {loops} in T.grid({grid}):
        with T.block("sums"):
            v, r, s = T.axis.remap("SRR", [i, k, l])
            with T.init():
                C[v] = B[v] + T.float32(1)
            C[v] = C[v] + A[v, r, s]
"""


def _some(sch: Schedule, rng: np.random.Generator, count: int) -> list[Any]:
    loops = sch.get_loops("sums")
    first = int(rng.integers(max(1, len(loops) - count + 1)))
    return loops[first : first + count]


ANY: tuple[Callable[[Schedule, np.random.Generator], object], ...] = (
    lambda s, r: s.fuse(*_some(s, r, 2)),
    lambda s, r: s.fuse(*_some(s, r, 3)),
    lambda s, r: s.split(*_some(s, r, 1), [None, 2]),
    lambda s, r: s.split(*_some(s, r, 1), [2, None]),
    lambda s, r: s.split(*_some(s, r, 1), [None, 2], tail="peel"),
    lambda s, r: s.reorder(*reversed(_some(s, r, 2))),
    lambda s, r: s.reorder(*reversed(_some(s, r, 3))),
    lambda s, r: s.blockize(*_some(s, r, 1)),
    lambda s, r: s.decompose_reduction("sums", *_some(s, r, 1)),
    lambda s, r: s.rfactor(*_some(s, r, 1)),
    lambda s, r: s.add_unit_loop(*_some(s, r, 1)),
    lambda s, r: s.loop_partition(*_some(s, r, 1), [1, None]),
    lambda s, r: s.cache_write("sums", 0, "local"),
    lambda s, r: s.transform_block_layout("sums", lambda i, k, l: (k, l, i)),
    lambda s, r: s.transform_block_layout("sums", lambda i, k, l: (i, k // 2, l, k % 2)),
)


@pytest.mark.parametrize("seed", range(30))
def test_several_sizes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = ["i", "k", "l"]
    rng.shuffle(order)
    sizes = {"i": "m", "k": "n", "l": "p"}
    grid = ", ".join(sizes[name] for name in order)
    sch = Schedule(parse(TWO_SUMS.format(loops=", ".join(order), grid=grid)))
    for _ in range(4):
        try:
            ANY[rng.integers(len(ANY))](sch, rng)
        except ScheduleError:
            continue  # refused, which keeps the program
    func = sch.mod["main"]
    verify(func)
    program = tilewright.compile(func, "llvm") if seed % 3 == 0 else None
    for m, n, p in [(2, 0, 3), (0, 0, 0), (3, 2, 0), (2, 1, 1), (1, 3, 2), (0, 2, 2), (2, 3, 5)]:
        a = rng.integers(-4, 5, (m, n, p)).astype("float32")
        b = rng.integers(-4, 5, m).astype("float32")
        made = np.full(m, 77, "float32")
        program(a, b, made) if program is not None else run(func, a, b, made)
        np.testing.assert_array_equal(made, b + 1 + a.sum((1, 2)), f"{m}, {n}, {p}")


AS_MANY_AS_DATA_SAYS = """
@T.prim_func
def main(A: T.Buffer((3, 8), "int32"), F: T.Buffer((3,), "int32"), Z: T.Buffer((3,), "int32")):
    for i in T.serial(3):
        for k in T.serial(T.int64(F[i])):
            with T.block("Z"):
                vi = T.axis.spatial(3, i)
                vk = T.axis.reduce(8, k)
                with T.init():
                    Z[vi] = T.int32(7)
                Z[vi] = Z[vi] + A[vi, vk]
"""


def test_no_branch_is_put_between_a_loop_and_the_init_that_it_stands_for() -> None:
    func = parse(AS_MANY_AS_DATA_SAYS)
    sch = Schedule(func)
    outer, inner = sch.split(sch.get_loops("Z")[1], [None, 4])
    before = sch.mod
    with pytest.raises(ScheduleError, match="which would be under a branch"):
        sch.split(inner, [8, None])  # what is left of it asks F how many there are
    assert sch.mod is before
    with pytest.raises(ScheduleError, match="which would be under a branch"):
        sch.split(outer, [None, 2])
    sch.split(inner, [2, None])
    args = [np.arange(24, dtype="int32").reshape(3, 8), np.array([0, 5, 8], "int32")]
    made, wanted = np.zeros(3, "int32"), np.zeros(3, "int32")
    run(sch.mod["main"], *args, made)
    run(func, *args, wanted)
    np.testing.assert_array_equal(made, wanted)
    assert made[0] == 7


def test_an_init_stays_outside_of_loops_that_may_be_empty() -> None:
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((1, 1), "float32"), Z: T.Buffer((1,), "float32")):
    B = T.alloc_buffer((1,), "float32")
    for i, k in T.grid(1, 0):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(5)
            B[vi] = T.max(B[vi], A[vi, vk])
    for i in T.serial(1):
        with T.block("Z"):
            vi = T.axis.spatial(1, i)
            Z[vi] = B[vi] * T.float32(2)
""")
    )
    factored = sch.rfactor(sch.get_loops("B")[1], 1)
    sch.compute_at(factored, sch.get_loops("B")[1])
    sch.compute_at("B", sch.get_loops("Z")[0])
    before = sch.mod
    with pytest.raises(ScheduleError, match="the init of block 'B' would not run then"):
        sch.reverse_compute_at("B", sch.get_loops(factored)[1])
    assert sch.mod is before


def test_inferred_tiles_are_none_where_there_is_nothing() -> None:
    func = parse("""
@T.prim_func
def main(a: T.handle, Z: T.Buffer((1,), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (1, n), "float32")
    for i, k in T.grid(1, T.min(n, 1)):
        with T.block("Z"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Z[vi] = T.float32(5)
            Z[vi] = Z[vi] + A[vi, vk]
""")
    sch = Schedule(func)
    sch.split(sch.get_loops("Z")[1], [2, None, 2])
    for n in range(3):
        made = np.zeros(1, "float32")
        run(sch.mod["main"], np.ones((1, n), "float32"), made)
        assert made == [5 + min(n, 1)]


def test_a_part_keeps_what_guards_the_init_of_a_reduction_over_nothing() -> None:
    func = parse("""
@T.prim_func
def main(a: T.handle, z: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, n), "float32")
    Z = T.match_buffer(z, (n,), "float32")
    for i0, i1, i2, k in T.grid(4, 2, (n + 7) // 8, n // 2):
        with T.block("Z"):
            v = T.axis.spatial(n, i0 * (2 * ((n + 7) // 8)) + i1 * ((n + 7) // 8) + i2)
            r = T.axis.reduce(n // 2, k)
            T.where(i0 * (2 * ((n + 7) // 8)) + i1 * ((n + 7) // 8) + i2 < n)
            with T.init():
                Z[v] = 3.0
            Z[v] = Z[v] + A[v, r]
""")
    sch = Schedule(func)
    sch.loop_partition(sch.get_loops("Z")[0], [1, None])
    for n in SIZES:
        a = np.ones((n, n), "float32")
        z = np.zeros(n, "float32")
        run(sch.mod["main"], a, z)
        np.testing.assert_array_equal(z, 3 + n // 2)


def test_deep_nests_of_symbolic_loops_take_no_exponential_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    depth = 14
    names = [f"n{k}" for k in range(depth)]
    shape = ", ".join(names)
    loops = ", ".join(f"i{k}" for k in range(depth))
    func = parse(f"""
@T.prim_func
def main(a: T.handle, b: T.handle):
    {", ".join(names)} = {", ".join("T.int64()" for _ in names)}
    A = T.match_buffer(a, ({shape}), "float32")
    B = T.match_buffer(b, ({shape}), "float32")
    for {loops} in T.grid({shape}):
        with T.block("B"):
            {", ".join(f"v{k}" for k in range(depth))} = T.axis.remap("{"S" * depth}", [{loops}])
            B[{", ".join(f"v{k}" for k in range(depth))}] = A[{
        ", ".join(f"v{k}" for k in range(depth))
    }]
""")
    sch = Schedule(func)
    asked: list[Any] = []
    real = type(sch.state).analyzer_at

    def counted(state: Any, *args: Any, **options: Any) -> Any:
        asked.append(args)
        return real(state, *args, **options)

    monkeypatch.setattr(type(sch.state), "analyzer_at", counted)
    innermost = sch.state.index("main").loops
    surely_runs(sch.state, list(innermost.values())[-1])
    surely_runs(sch.state, list(innermost.values())[-2])
    assert 0 < len(asked) <= depth
