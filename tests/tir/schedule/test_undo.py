"""Taking primitives back, dropping handles, and looking at where a statement stands."""

from __future__ import annotations

import contextlib
import random

import pytest
from random_walks import PROGRAMS, Walk
from schedule_cases import chain, check, matmul_relu, refuses

from tilewright.ir import IRModule, assert_structural_equal
from tilewright.support.errors import ScheduleError
from tilewright.tir import For
from tilewright.tir.schedule import Schedule, Trace


def seen(sch: Schedule) -> tuple[object, ...]:
    """All that a primitive may change."""
    return sch.mod, tuple(sch.trace.insts), sch.rng.state, tuple(sch.state.symbolic)


# ---- undo ---------------------------------------------------------------------------------------


def test_undo_takes_back_the_last_primitive():
    sch = Schedule(matmul_relu(), seed=1)
    i, _j, _k = sch.get_loops("C")
    before = seen(sch)
    _outer, _inner = sch.split(i, [None, 4])
    taken = sch.undo()
    assert [inst.name for inst in taken] == ["split"]
    assert seen(sch) == before
    sch.split(i, [2, 6])
    check(sch, matmul_relu())


def test_look_ups_do_not_count():
    sch = Schedule(matmul_relu(), seed=1)
    block = sch.get_block("C")
    i, _j, k = sch.get_loops(block)
    sch.reorder(k, i)
    sch.get_loops(block)
    sch.get_block("D")
    assert [inst.name for inst in sch.undo()] == ["reorder", "get_loops", "get_block"]
    assert [inst.name for inst in sch.trace] == ["get_block", "get_loops"]
    with pytest.raises(ScheduleError, match="there are 0 primitives to take back, 1 were asked"):
        sch.undo()


def test_several_at_once():
    sch = Schedule(matmul_relu(), seed=1)
    i, j, k = sch.get_loops("C")
    before = seen(sch)
    sch.reorder(k, i)
    sch.parallel(sch.get_loops("D")[0])
    sch.unroll(j)
    with pytest.raises(ScheduleError, match="there are 3 primitives"):
        sch.undo(4)
    assert sch.get(j).kind == "unrolled"
    assert [i.name for i in sch.undo(3)] == [
        "reorder",
        "get_block",
        "get_loops",
        "parallel",
        "unroll",
    ]
    assert seen(sch) == before


def test_sampling_is_taken_back_with_its_random_numbers():
    sch = Schedule(matmul_relu(), seed=7)
    i, _, _ = sch.get_loops("C")
    first = [sch.get(factor) for factor in sch.sample_perfect_tile(i, 4)]
    sch.undo()
    assert [sch.get(factor) for factor in sch.sample_perfect_tile(i, 4)] == first


def test_symbolic_tiles_are_taken_back():
    sch = Schedule(matmul_relu(), seed=7, symbolic=True)
    i, _, _ = sch.get_loops("C")
    before = seen(sch)
    factors = sch.sample_perfect_tile(i, 2)
    after = seen(sch)
    sch.undo()
    assert seen(sch) == before
    sch.redo()
    assert seen(sch) == after
    sch.split(i, factors)


def test_handles_of_what_was_taken_back_are_refused():
    sch = Schedule(matmul_relu(), seed=1)
    i, _j, _k = sch.get_loops("C")
    factors = sch.sample_perfect_tile(i, 2)
    sch.undo()
    refuses(sch, lambda: sch.split(i, factors), "undo took back the `sample_perfect_tile`")
    with pytest.raises(ScheduleError, match="undo took back"):
        sch.get(factors[0])
    assert sch.get(i).loop_var is i.var


def test_loops_that_were_split_are_there_again():
    sch = Schedule(matmul_relu(), seed=1)
    i, _j, _k = sch.get_loops("C")
    outer, _inner = sch.split(i, [None, 4])
    sch.undo()
    sch.parallel(i)
    refuses(sch, lambda: sch.parallel(outer), "parallel", "undo took back the `split`")


def test_redo():
    sch = Schedule(matmul_relu(), seed=1)
    i, j, k = sch.get_loops("C")
    outer, _inner = sch.split(i, [None, 4])
    sch.reorder(k, j)
    after = seen(sch)
    sch.undo(2)
    assert [inst.name for inst in sch.redo()] == ["split"]
    assert [inst.name for inst in sch.redo()] == ["reorder"]
    assert seen(sch) == after
    sch.parallel(outer)
    assert [inst.name for inst in sch.undo(3)] == ["split", "reorder", "parallel"]
    assert len(sch.redo(3)) == 3
    with pytest.raises(ScheduleError, match="there are 0 primitives to bring back"):
        sch.redo()


def test_a_primitive_drops_what_was_taken_back():
    sch = Schedule(matmul_relu(), seed=1)
    i, j, k = sch.get_loops("C")
    sch.reorder(k, j)
    sch.undo()
    sch.parallel(i)
    with pytest.raises(ScheduleError, match="a primitive after undo drops"):
        sch.redo()


def test_a_refused_primitive_is_no_step():
    sch = Schedule(matmul_relu(), seed=1)
    _i, j, k = sch.get_loops("C")
    sch.reorder(k, j)
    before = seen(sch)
    refuses(sch, lambda: sch.parallel(k), "parallel")
    assert seen(sch) == before
    assert [inst.name for inst in sch.undo()] == ["reorder"]


def test_copies_share_the_past_and_go_their_own_ways():
    sch = Schedule(matmul_relu(), seed=1)
    i, j, k = sch.get_loops("C")
    start = sch.mod
    sch.reorder(k, j)
    common = sch.mod
    other = sch.copy()
    other.parallel(i)
    other.undo(2)
    assert other.mod is start
    assert sch.mod is common
    sch.undo()
    assert sch.mod is start
    assert [inst.name for inst in other.redo(2)] == ["reorder", "parallel"]
    assert sch.mod is start


def test_postproc_mark_and_working_function():
    functions = {"first": chain(), "second": matmul_relu()}
    sch = Schedule(IRModule(functions), seed=1)
    sch.work_on("second")
    sch.enter_postproc()
    sch.parallel(sch.get_loops("C")[0])
    sch.undo()
    assert "enter_postproc" in [inst.name for inst in sch.trace]
    sch.undo()
    assert "enter_postproc" not in [inst.name for inst in sch.trace]
    assert sch.working_func == "second"
    sch.work_on("first")
    sch.redo()
    assert sch.working_func == "first"


def test_undo_after_seed_goes_back_to_the_older_stream():
    sch = Schedule(matmul_relu(), seed=3)
    state = sch.rng.state
    sch.reorder(*sch.get_loops("C")[1:])
    sch.seed(99)
    sch.undo()
    assert sch.rng.state == state


def test_undo_of_a_replayed_trace():
    sch = Schedule(matmul_relu(), seed=1)
    i, j, k = sch.get_loops("C")
    sch.split(i, [None, 4])
    sch.reorder(k, j)
    other = Schedule(matmul_relu(), seed=1)
    sch.trace.apply_to_schedule(other)
    other.undo()
    sch.undo()
    assert_structural_equal(other.mod, sch.mod)
    replayed = Schedule(matmul_relu())
    Trace.from_json(other.trace.as_json()).apply_to_schedule(replayed)
    assert_structural_equal(replayed.mod, sch.mod)


def test_undo_wants_a_trace_and_a_count():
    with pytest.raises(ScheduleError, match=r"record=False"):
        Schedule(chain(), record=False).undo()
    sch = Schedule(chain())
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(ScheduleError, match="1 or more"):
            sch.undo(wrong)  # type: ignore[arg-type]
    sch.parallel(sch.get_loops("B")[0])
    sch.trace.insts.pop()
    with pytest.raises(ScheduleError, match="changed by hand"):
        sch.undo()


@pytest.mark.parametrize("seed", range(6))
def test_random_walks_back_and_forth(seed: int):
    rng = random.Random(seed)
    sch = Schedule(matmul_relu(), seed=seed)
    past = [seen(sch)]
    for _ in range(12):
        name = rng.choice(["C", "D"])
        loops = sch.copy().get_loops(name)
        before = sch.mod
        try:
            rng.choice(
                [
                    lambda loops=loops: sch.split(rng.choice(loops), [None, rng.choice([2, 3])]),
                    lambda loops=loops: sch.reorder(*rng.sample(loops, 2)),
                    lambda loops=loops: sch.sample_perfect_tile(rng.choice(loops), 2),
                    lambda loops=loops: sch.parallel(loops[0]),
                ]
            )()
        except ScheduleError:
            assert sch.mod is before
            assert seen(sch) == past[-1]
            continue
        past.append(seen(sch))
        if rng.random() < 0.4:
            steps = rng.randint(1, len(past) - 1)
            sch.undo(steps)
            assert seen(sch) == past[-1 - steps]
            again = rng.randint(0, steps)
            if again:
                sch.redo(again)
            del past[len(past) - steps + again :]
            assert seen(sch) == past[-1]
    check(sch, matmul_relu())


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_step_of_a_walk_can_be_taken_back(name: str):
    sch = Schedule(PROGRAMS[name](), seed=0)
    walk = Walk(sch, seed=11)
    for _ in range(20):
        before = seen(sch)
        steps = steps_of(sch)
        with contextlib.suppress(ScheduleError):
            walk.step()
        done = steps_of(sch) - steps
        after = seen(sch)
        if done:
            assert done == 1
            taken = sch.undo()
            # Look-ups before the step stay.
            assert seen(sch)[0] is before[0]
            assert seen(sch)[2:] == before[2:]
            assert tuple(sch.trace.insts) + tuple(taken) == after[1]
            assert sch.redo() == taken
        assert seen(sch) == after


def steps_of(sch: Schedule) -> int:
    """How many primitives of the trace are more than look-ups."""
    return sum(not inst.primitive.pure or inst.primitive.samples for inst in sch.trace)


# ---- handles and statements ---------------------------------------------------------------------


def test_remove_rv():
    sch = Schedule(matmul_relu())
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    sch.remove_rv(block)
    with pytest.raises(ScheduleError, match="remove_rv dropped it"):
        sch.get_loops(block)
    with pytest.raises(ScheduleError, match="can't be used any more"):
        sch.remove_rv(block)
    assert [loop.var for loop in sch.get_loops(sch.get_block("C"))] == [i.var, j.var, k.var]
    with pytest.raises(ScheduleError, match="takes a handle, got str"):
        sch.remove_rv("C")  # type: ignore[arg-type]
    other = sch.copy()
    with pytest.raises(ScheduleError):
        other.get(block)
    assert "remove_rv" not in [inst.name for inst in sch.trace]


def test_get_sref():
    sch = Schedule(matmul_relu())
    block = sch.get_block("C")
    i, _j, k = sch.get_loops(block)
    sref = sch.get_sref(block)
    assert sref.stmt is sch.get(block)
    assert sref.realize.block is sref.stmt
    assert sref.seq_index == -1
    assert sref.parent == sch.get_sref(k)
    assert sref.parent.parent.parent == sch.get_sref(i)
    root = sch.get_sref(sch.get_block("root"))
    assert root.parent is None
    assert root.siblings == []
    assert [repr(item) for item in root.children] == [
        "StmtSRef(main: for i)",
        "StmtSRef(main: for i)",
    ]
    top = sch.get_sref(i)
    assert top.seq_index == 0
    assert [item.seq_index for item in top.siblings] == [1]
    assert isinstance(top.stmt, For)
    assert top.realize is None
    assert sch.get_sref(sch.get(i)) == top
    assert "get_sref" not in [inst.name for inst in sch.trace]


def test_sref_is_of_the_version_it_was_taken_from():
    sch = Schedule(matmul_relu())
    i, j, _k = sch.get_loops("C")
    old = sch.get_sref(i)
    sch.reorder(j, i)
    assert old.parent.stmt.name == "root"
    assert sch.get_sref(i).parent == sch.get_sref(j)
    with pytest.raises(ScheduleError, match="not part of the program"):
        sch.get_sref(old.stmt)


def test_sref_of_init():
    sch = Schedule(matmul_relu())
    sref = sch.get_sref(sch.get_block("C"))
    assert sref.children == []
    with pytest.raises(ScheduleError, match="takes a BlockRV, a LoopRV or a statement"):
        sch.get_sref("C")  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="the BufferStore is not part of the program"):
        sch.get_sref(sref.stmt.init)


def test_sref_stands_for_its_statement():
    sch = Schedule(matmul_relu())
    block = sch.get_block("C")
    assert sch.get(sch.get_sref(block)) is sch.get(block)
    with pytest.raises(ScheduleError, match="expected a handle, got str"):
        sch.get("C")  # type: ignore[arg-type]


# ---- copies and seeds ---------------------------------------------------------------------------


def test_a_copy_draws_the_same_numbers_unless_told_otherwise():
    sch = Schedule(matmul_relu(), seed=5)
    i = sch.get_loops("C")[0]
    draws = [
        [item.get(f) for f in item.sample_perfect_tile(i, 4)]
        for item in (sch.copy(), sch.copy(), sch.copy(seed=sch.copy().fork_seed()))
    ]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


def test_seeds():
    sch = Schedule(matmul_relu())
    sch.seed(11)
    first = sch.fork_seed()
    sch.seed(11)
    assert sch.fork_seed() == first
    sch.seed(-1)
    other = sch.fork_seed()
    sch.seed(-1)
    assert sch.fork_seed() != other
    for wrong in (-2, True, 0.5, "1"):
        with pytest.raises(ScheduleError, match="a seed is an integer"):
            sch.seed(wrong)  # type: ignore[arg-type]


def test_work_on_and_has_block():
    sch = Schedule(IRModule({"first": chain(), "second": matmul_relu()}))
    sch.work_on("second")
    assert sch.has_block("D")
    assert not sch.has_block("missing")
    assert sch.has_block("B", "first")
    with pytest.raises(ScheduleError, match="no function 'third'"):
        sch.work_on("third")
    assert sch.working_func == "second"
    assert sch.copy().working_func == "second"


def test_show_prints_program_and_trace(capsys: pytest.CaptureFixture[str]):
    sch = Schedule(matmul_relu())
    sch.parallel(sch.get_loops("C")[0])
    capsys.readouterr()
    sch.show()
    out = capsys.readouterr().out
    assert "for i in T.parallel(12):" in out
    assert "sch.parallel(" in out
