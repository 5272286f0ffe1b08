"""loop_partition and merge: equal results, refusals, what can be done after."""

from __future__ import annotations

import random

import pytest
from schedule_cases import (
    chain,
    check,
    compiled_agrees,
    conv2d,
    guarded_chain,
    loop_extents,
    matmul,
    matmul_relu,
    predicate_of,
    refuses,
    symbolic_sum,
)

from tests.everyday import few
from tilewright import te
from tilewright.support.errors import ScheduleError
from tilewright.tir.schedule import Schedule

# ---- loop_partition -----------------------------------------------------------------------------


def test_loop_partition_leaves_the_rest_to_a_further_loop() -> None:
    before = matmul(11, 7, 9)
    sch = Schedule(before, check=True)
    block = sch.get_block("C")
    i, *_ = sch.get_loops(block)
    parts = sch.loop_partition(i, [2, 4])
    assert [sch.get(part).extent.value for part in parts] == [2, 4, 5]
    assert sch.get(block).name == "C_i0"
    assert loop_extents(sch, "C_i2") == [5, 7, 9]
    for number, part in enumerate(parts):
        sch.split(part, [None, 2])
        sch.reorder(*reversed(sch.get_loops(f"C_i{number}")[-2:]))
    sch.parallel(sch.get_loops("C_i1")[0])
    check(sch, before)


def test_loop_partition_drops_predicates_that_hold() -> None:
    before = chain(30, 12)
    sch = Schedule(before, check=True)
    i, _ = sch.get_loops("D")
    outer, _ = sch.split(i, [None, 8])
    sch.loop_partition(outer, [None, 1])
    assert sch.mod.script().count("T.where") == 1
    assert predicate_of(sch, "D_i_00").value == 1
    check(sch, before)


def test_loop_partition_of_a_reduction() -> None:
    before = matmul(4, 4, 9)
    sch = Schedule(before, check=True)
    sch.loop_partition(sch.get_loops("C")[-1], [3, None, 2])
    inits = [sch.get(sch.get_block(f"C_k{n}")).init is not None for n in range(3)]
    assert inits == [True, False, False]
    check(sch, before)


def test_loop_partition_copies_blocks_at_any_depth() -> None:
    before = matmul_relu(8, 6, 5)
    sch = Schedule(before, check=True)
    i, j = sch.get_loops("D")
    sch.compute_at("C", i)
    sch.blockize(j)
    parts = sch.loop_partition(i, [3, None])
    check(sch, before)
    sch.loop_partition(parts[1], [1, None], preserve_unit_iters=False)
    check(sch, before)


def test_loop_partition_of_symbolic_extents() -> None:
    before = symbolic_sum()
    sch = Schedule(before, check=True)
    i, _ = sch.get_loops("B")
    refuses(sch, lambda: sch.loop_partition(i, [4, None]), "not known to be less")
    refuses(sch, lambda: sch.loop_partition(i, [1]), "not known to be no more")  # n may be 0
    parts = sch.loop_partition(i, [sch.get(i).extent // 2])
    assert len(parts) == 2
    for n in (0, 1, 2, 6):
        check(sch, before, n=n)


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ([], "at least one factor"),
        ([None, 1, None], "at most one factor may be None"),
        ([0, None], "must be positive"),
        ([6, 6], "add up to 12"),
        ([11, None], "add up to 11, which is not known to be less"),
    ],
)
def test_loop_partition_refuses(factors: list[int | None], message: str) -> None:
    sch = Schedule(matmul(11, 7, 9))
    i, *_ = sch.get_loops("C")
    refuses(sch, lambda: sch.loop_partition(i, factors), message)


# ---- merge --------------------------------------------------------------------------------------


def test_merge_of_nests() -> None:
    before = chain(6, 5)
    sch = Schedule(before, check=True)
    merged = sch.merge(*[sch.get_loops(name)[1] for name in "CBD"])
    assert sch.get(merged).extent.value == 5
    assert loop_extents(sch, "C") == [6, 5]
    assert sch.get_loops("B")[1].var is sch.get_loops("D")[1].var
    check(sch, before)
    sch.parallel(sch.get_loops("B")[0])
    check(sch, before)


def test_merge_of_outer_loops_only() -> None:
    before = matmul_relu(6, 5, 4)
    sch = Schedule(before, check=True)
    sch.merge(sch.get_loops("C")[0], sch.get_loops("D")[0])
    check(sch, before)
    merged = sch.get_loops("C")[0]
    sch.merge(sch.get_loops("C")[1], sch.get_loops("D")[1])
    check(sch, before)
    assert sch.get_loops("D")[0].var is merged.var


def test_merge_refuses_what_must_wait() -> None:
    before = conv2d()
    sch = Schedule(before)
    refuses(
        sch,
        lambda: sch.merge(sch.get_loops("pad")[2], sch.get_loops("conv")[2]),
        "not known to have equal extents",
    )
    n = 8
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((n,), lambda i: b[n - 1 - i] + 1.0, name="C")
    sch = Schedule(te.create_prim_func([a, c]))
    refuses(
        sch,
        lambda: sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0]),
        "touches in a later iteration only",
    )


def test_merge_refuses_gaps_and_nesting() -> None:
    sch = Schedule(chain(6, 6))
    b, c, d = (sch.get_loops(name) for name in "BCD")
    refuses(sch, lambda: sch.merge(b[0], d[0]), "something is between the loops")
    refuses(sch, lambda: sch.merge(b[0], b[1]), "inside another")
    refuses(sch, lambda: sch.merge(b[0], c[1]), "1 deep below")
    refuses(sch, lambda: sch.merge(b[0]), "at least two loops")
    refuses(sch, lambda: sch.merge(b[0], b[0]), "different ones")


def test_merge_with_what_earlier_iterations_made() -> None:
    n = 9
    a = te.placeholder((n, 4), name="A")
    b = te.compute((n, 4), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute(
        (n, 4),
        lambda i, j: b[i, 3 - j] + te.if_then_else(i >= 2, b[i - 2, j], 0.0),
        name="C",
    )
    before = te.create_prim_func([a, c])
    sch = Schedule(before, check=True)
    refuses(
        sch,
        lambda: sch.merge(sch.get_loops("B")[1], sch.get_loops("C")[1]),
        "touches in a later iteration only",
    )
    merged = sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0])
    check(sch, before)
    refuses(sch, lambda: sch.parallel(merged), "makes in another iteration")
    compiled_agrees(sch, before)


def test_merge_of_partitioned_loops() -> None:
    before = chain(9, 4)
    sch = Schedule(before, check=True)
    first = sch.loop_partition(sch.get_loops("B")[0], [3, 3, 3])
    sch.merge(*first)
    check(sch, before)


def test_cut_loops_compile() -> None:
    before = matmul_relu(11, 7, 9)
    sch = Schedule(before, check=True)
    sch.merge(sch.get_loops("C")[0], sch.get_loops("D")[0])
    first, rest = sch.loop_partition(sch.get_loops("C")[0], [4, None])
    sch.parallel(first)
    sch.split(rest, [None, 2], tail="peel")
    sch.vectorize(sch.get_loops("D_i0")[1])
    check(sch, before)
    compiled_agrees(sch, before)
    before = guarded_chain()
    sch = Schedule(before, check=True)
    sch.split(sch.get_loops("B")[0], [None, 4], tail="pad")
    sch.vectorize(sch.get_loops("B")[2])
    compiled_agrees(sch, before)


# ---- at random ----------------------------------------------------------------------------------


@few("seed", range(60), every=4)
def test_random_cuts_keep_the_meaning(seed: int) -> None:
    rng = random.Random(seed)
    sizes: dict[str, int] = {}
    kind = rng.randrange(5)
    if kind == 0:
        before = matmul_relu(rng.randint(2, 9), rng.randint(2, 9), rng.randint(2, 9))
    elif kind == 1:
        before = chain(rng.randint(2, 11), rng.randint(2, 11))
    elif kind == 2:
        before = conv2d(rng.randint(3, 5), rng.randint(1, 3), rng.randint(1, 3))
    elif kind == 3:
        before = guarded_chain()
    else:
        before, sizes = symbolic_sum(), {"n": rng.randint(1, 9)}
    sch = Schedule(before, check=True)
    done = 0
    for _ in range(14):
        names = [name for name in sch.state.index("main").blocks if name != "root"]
        loops = sch.get_loops(rng.choice(names))
        if not loops:
            continue
        loop = rng.choice(loops)
        factors = [rng.randint(1, 4) for _ in range(rng.randint(1, 2))]
        choice = rng.randrange(4)
        try:
            if choice == 0:
                factors.insert(rng.randint(0, len(factors)), None)
                sch.split(loop, factors, tail=rng.choice(["predicate", "peel", "pad", "overlap"]))
            elif choice == 1:
                if rng.random() < 0.5:
                    factors.insert(rng.randint(0, len(factors)), None)
                sch.loop_partition(loop, factors, preserve_unit_iters=rng.random() < 0.5)
            elif choice == 2:
                others = sch.get_loops(rng.choice(names))
                sch.merge(loop, rng.choice(others))
            else:
                sch.reorder(*rng.sample(loops, len(loops)))
        except (ScheduleError, IndexError):
            continue
        done += 1
        check(sch, before, **sizes)
    assert done
