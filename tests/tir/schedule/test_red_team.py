"""Programs that schedules rarely meet: each primitive keeps what they mean, or refuses.

Memory of several names, branches and definitions around blocks, reductions that repeat or begin in
the middle, what runs decided by data, loops that never run. The programs are those that the fuzzer
draws from as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.testing.fuzz.hard_programs import PROGRAMS
from tilewright.testing.fuzz.stages_hard import HardProgram, hard_program
from tilewright.tir import Schedule
from tilewright.tir.analysis import verify
from tilewright.tir.interpreter import run


def drawn(label: str) -> HardProgram:
    return hard_program(random.Random(7), 7, label)


def results(program: HardProgram, sch: Schedule) -> list[np.ndarray]:
    arrays = program.arrays(3)
    run(sch.mod, *arrays)
    return arrays


def keeps(label: str, apply: Callable[[Schedule], object]) -> None:
    """The primitive is accepted, and the program computes what it did."""
    program = drawn(label)
    sch = Schedule(program.build())
    expected = results(program, sch)
    apply(sch)
    verify(sch.mod)
    for a, b in zip(expected, results(program, sch)):
        np.testing.assert_array_equal(a, b)


def refuses(label: str, apply: Callable[[Schedule], object], message: str) -> None:
    sch = Schedule(drawn(label).build())
    before = sch.mod
    with pytest.raises(ScheduleError, match=message):
        apply(sch)
    assert sch.mod is before


# ---- memory of several names --------------------------------------------------------------------

TWO_NAMES = "names of the same memory|view of memory"


@pytest.mark.parametrize(
    ("label", "apply"),
    [
        ("views of one pointer", lambda s: s.compute_at("B", s.get_loops("Z")[1])),
        ("views of one pointer", lambda s: s.reverse_compute_inline("Z")),
        ("view read", lambda s: s.cache_write("B", 0, "global")),
        ("view of a parameter written first", lambda s: s.compute_inline("B")),
        ("view of a parameter written first", lambda s: s.compute_at("B", s.get_loops("C")[0])),
        ("in place through a view", lambda s: s.cache_read("Z", 0, "global")),
        ("in place through a view", lambda s: s.reindex("V", ("write", 0))),
        ("match and source in one block", lambda s: s.cache_read("R", 0, "local")),
    ],
)
def test_memory_of_two_names_is_not_moved(label: str, apply: Callable[[Schedule], object]) -> None:
    refuses(label, apply, TWO_NAMES)


def test_loops_of_a_block_that_updates_memory_by_two_names_keep_their_order() -> None:
    refuses("match and source in one block", lambda s: s.parallel(s.get_loops("Q")[0]), TWO_NAMES)
    refuses("in place through a view", lambda s: s.parallel(s.get_loops("V")[0]), TWO_NAMES)


def test_loops_over_two_names_are_not_merged() -> None:
    refuses(
        "view read",
        lambda s: s.merge(s.get_loops("B")[0], s.get_loops("C")[0]),
        TWO_NAMES,
    )


def test_views_of_what_nobody_changes_are_no_obstacle() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), Z: T.Buffer((4, 8), "float32")):
    for i in range(4):
        with T.block("outer"):
            vi = T.axis.spatial(4, i)
            T.reads(A[vi, 0:8])
            T.writes(Z[vi, 0:8])
            Am = T.match_buffer(A[vi, 0:8], (8,), "float32")
            An = T.match_buffer(A[vi, 0:8], (8,), "float32")
            for j in range(8):
                with T.block("inner"):
                    vj = T.axis.spatial(8, j)
                    Z[vi, vj] = Am[vj] * An[7 - vj]
""")
    sch = Schedule(func)
    sch.cache_read("inner", 0, "local")
    sch.parallel(sch.get_loops("inner")[0])
    a = np.arange(32, dtype="float32").reshape(4, 8)
    z = np.zeros_like(a)
    run(sch.mod, a, z)
    np.testing.assert_array_equal(z, a * a[:, ::-1])


# ---- what is around blocks ----------------------------------------------------------------------


def test_a_block_stays_inside_its_let() -> None:
    refuses("let around blocks", lambda s: s.cache_read("B", 0, "global"), "inside of a LetStmt")


def test_a_block_stays_under_its_branch() -> None:
    refuses(
        "if around one block",
        lambda s: s.reverse_compute_at("Z0", s.get_loops("B0")[0]),
        "runs under a branch",
    )


@pytest.mark.parametrize(
    ("label", "block"),
    [
        ("extent of data", "Z"),
        ("ragged copy", "B"),
        ("if around blocks", "B2"),
        ("if around one block", "Z0"),
        ("predicate of data", "Z"),
        ("scatter in binding", "Z"),
    ],
)
def test_the_guard_of_a_split_comes_before_data_is_read(label: str, block: str) -> None:
    keeps(label, lambda s: s.split(s.get_loops(block)[0], [None, 5]))


def test_an_extent_that_depends_on_another_loop_is_not_padded() -> None:
    refuses("ragged copy", lambda s: s.pad_einsum("B", [4, 1]), "not bound to a loop of its own")


# ---- reductions ---------------------------------------------------------------------------------


def test_a_reduction_whose_init_comes_last_is_not_moved() -> None:
    def apply(sch: Schedule) -> None:
        sch.cache_read("Z", 0, "global")
        sch.reverse_compute_at("Z", sch.get_loops("A_global")[0])

    refuses_after_copy("init does not come first", apply, "does not begin with the instance")


def refuses_after_copy(label: str, apply: Callable[[Schedule], None], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        apply(Schedule(drawn(label).build()))


@pytest.mark.parametrize(("block", "message"), [("Y", "add each part"), ("Z", "repeats parts")])
def test_a_reduction_that_repeats_parts_is_not_moved(block: str, message: str) -> None:
    refuses(
        "parts added repeatedly",
        lambda s: s.reverse_compute_at(block, s.get_loops("B")[0]),
        message,
    )


# ---- data, and loops that never run -------------------------------------------------------------


def test_inlining_reaches_indices_of_what_is_written() -> None:
    def apply(sch: Schedule) -> None:
        sch.cache_read("Z", 1, "local")
        sch.compute_inline("F_local")

    keeps("scatter", apply)


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        (lambda s: s.fuse(*s.get_loops("Z")), "never runs"),
        (lambda s: s.sample_perfect_tile(s.get_loops("Z")[1], 2), "never runs"),
        (lambda s: s.sample_tile(s.get_loops("Z")[1], 2, 4), "never runs"),
        (lambda s: s.sample_partitioned_tile(s.get_loops("Z")[1], 2, 0, 1), "never runs"),
        (lambda s: s.blockize(s.get_loops("Z")[1]), "can't be divided|Z"),
    ],
)
def test_loops_that_never_run(apply: Callable[[Schedule], object], message: str) -> None:
    refuses("empty loops", apply, message)


@pytest.mark.parametrize("label", sorted(PROGRAMS))
def test_every_program_runs(label: str) -> None:
    program = drawn(label)
    func = program.build()
    verify(func)
    assert any(
        not np.array_equal(a, b)
        for a, b in zip(program.arrays(3), results(program, Schedule(func)))
    )


def test_threads_do_not_combine_what_init_cuts_off() -> None:
    refuses(
        "init does not come first",
        lambda s: s.bind(s.get_loops("Z")[1], "threadIdx.x"),
        "does not begin with the instance",
    )


def test_copies_of_what_loops_of_unknown_length_read_are_whole() -> None:
    func = parse("""
@T.prim_func
def main(a: T.handle, F: T.Buffer((6,), "int32"), Z: T.Buffer((6,), "float32")):
    n = T.int64()
    A = T.match_buffer(a, (6, n), "float32")
    for i in T.serial(6):
        for k in T.serial(T.int64(F[i])):
            with T.block("Z"):
                vi = T.axis.spatial(6, i)
                vk = T.axis.reduce(n, k)
                Z[vi] = Z[vi] + A[vi, vk]
""")
    sch = Schedule(func)
    copy = sch.cache_read("Z", 1, "local")
    assert str(sch.get(sch.get_loops(copy)[1]).extent) == "n"
