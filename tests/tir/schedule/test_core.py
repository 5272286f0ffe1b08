"""Handles, transactions, errors, traces."""

from __future__ import annotations

import json

import pytest
from schedule_cases import chain, matmul, matmul_relu

from tilewright.ir import IRModule, structural_equal
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.tir.schedule import PRIMITIVES, BlockRV, Schedule, Trace


def tiled(seed: int = 7) -> Schedule:
    sch = Schedule(matmul(32, 16, 24), seed=seed)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, sch.sample_perfect_tile(i, 2, 16))
    j0, j1 = sch.split(j, sch.sample_perfect_tile(j, 2, 16))
    sch.reorder(i0, j0, k, i1, j1)
    fused = sch.fuse(i0, j0)
    sch.parallel(fused)
    sch.vectorize(j1)
    sch.annotate(block, "unroll", sch.sample_categorical([0, 16, 64], [0.2, 0.3, 0.5]))
    return sch


def test_handles_stay_valid_and_work_in_copies():
    sch = Schedule(matmul_relu())
    block = sch.get_block("C")
    i, j, _ = sch.get_loops(block)
    copy = sch.copy()
    outer, _ = sch.split(i, [3, 4])
    assert sch.get(j).extent.value == 8
    assert copy.get(i).extent.value == 12
    assert sch.get(block).name == "C"
    copy.parallel(i)
    assert len(copy.trace) == 3
    assert [inst.name for inst in sch.trace][-1] == "split"
    with pytest.raises(ScheduleError, match=r"is no longer in the program|not in function"):
        copy.get(outer)


def test_stale_handle_names_the_primitive_that_removed_it():
    sch = Schedule(matmul())
    i, *_ = sch.get_loops(sch.get_block("C"))
    sch.split(i, [3, 4])
    with pytest.raises(ScheduleError, match=r"loop 'i' is no longer in the program: `split`"):
        sch.parallel(i)


def test_errors_are_lazy_and_mark_the_culprit():
    sch = Schedule(matmul())
    _, _, k = sch.get_loops(sch.get_block("C"))
    with pytest.raises(ScheduleError) as caught:
        sch.parallel(k)
    summary = caught.value.summary
    assert not isinstance(caught.value._message, str)
    text = str(caught.value)
    assert text.startswith("parallel: loop 'k' feeds a reduce iteration variable of block 'C'")
    assert "what to do: choose a spatial loop" in text
    lines = text.split("\n")
    assert lines[0] == summary
    mark = next(n for n, line in enumerate(lines) if set(line.strip()) == {"^"})
    assert 'T.block("C")' in lines[mark - 1]


def test_refused_primitive_changes_nothing():
    sch = Schedule(matmul())
    i, _, k = sch.get_loops(sch.get_block("C"))
    mod = sch.mod
    for attempt in (
        lambda: sch.vectorize(k),
        lambda: sch.fuse(i, k),
        lambda: sch.split(i, [2]),
        lambda: sch.blockize(k) and sch.get_block("nothing"),
    ):
        before = sch.mod
        trace = len(sch.trace)
        try:
            attempt()
        except ScheduleError:
            pass
        else:
            pytest.fail("should refuse")
        if len(sch.trace) == trace:
            assert sch.mod is before
    assert isinstance(mod, IRModule)


def test_argument_messages():
    sch = Schedule(matmul())
    block = sch.get_block("C")
    (i, *_) = sch.get_loops(block)
    with pytest.raises(ScheduleError, match=r"split.. missing 1 required positional argument"):
        sch.split(i)
    with pytest.raises(ScheduleError, match=r"unexpected keyword argument 'facts'"):
        sch.split(i, facts=[2])
    with pytest.raises(ScheduleError, match=r"argument 'loop': expected a LoopRV"):
        sch.split(block, [2, None])
    with pytest.raises(ScheduleError, match=r"argument 'preserve_unit_iters': expected True"):
        sch.split(i, [2, None], preserve_unit_iters=3)
    with pytest.raises(ScheduleError, match=r"has no block 'X'; "):
        sch.get_block("X")
    with pytest.raises(ScheduleError, match=r"no function 'other'"):
        sch.get_block("C", func_name="other")
    assert len(sch.get_loops("C")) == 3


def test_trace_prints_executable_python():
    sch = tiled()
    text = str(sch.trace)
    assert 'b0 = sch.get_block(name="C", func_name="main")' in text
    assert "sch.sample_perfect_tile(loop=l1, n=2, max_innermost_factor=16, decision=[" in text
    scope: dict = {}
    exec(text, scope)
    other = Schedule(matmul(32, 16, 24))
    scope["apply_trace"](other)
    assert structural_equal(sch.mod, other.mod)
    assert other.trace.as_json() == sch.trace.as_json()


def test_trace_round_trips_through_json():
    sch = tiled()
    data = json.dumps(sch.trace.as_json())
    other = Schedule(matmul(32, 16, 24), seed=99)
    Trace.from_json(json.loads(data)).apply_to_schedule(other)
    assert structural_equal(sch.mod, other.mod)
    assert json.dumps(other.trace.as_json()) == data


def test_dollar_texts_and_dicts_survive_json():
    sch = Schedule(matmul())
    block = sch.get_block("C")
    value = {"$a": ["$b0", 1.5, None, True]}
    sch.annotate(block, "$key", value)
    other = Schedule(matmul())
    Trace.from_json(json.loads(json.dumps(sch.trace.as_json()))).apply_to_schedule(other)
    assert other.get(other.get_block("C")).annotations == {"$key": value}


def test_same_seed_same_trace():
    assert tiled(5).trace.as_json() == tiled(5).trace.as_json()
    assert len({json.dumps(tiled(seed).trace.as_json()) for seed in range(12)}) > 3


def test_fork_seed_is_repeatable():
    first, second = Schedule(matmul(), seed=1), Schedule(matmul(), seed=1)
    assert first.fork_seed() == second.fork_seed()
    assert first.fork_seed() != first.fork_seed()


def test_with_decision_and_provider():
    sch = tiled()
    inst = next(i for i in sch.trace.insts if i.name == "sample_perfect_tile")
    changed = sch.trace.with_decision(inst, [2, 16])
    other = Schedule(matmul(32, 16, 24))
    changed.apply_to_schedule(other)
    assert next(iter(other.trace.decisions.values())) == [2, 16]
    assert inst.decision == sch.trace.decisions[inst]
    with pytest.raises(ScheduleError, match=r"makes no decision"):
        sch.trace.with_decision(sch.trace.insts[0], 1)
    with pytest.raises(ScheduleError, match=r"instruction 2 .sample_perfect_tile.*not a tile"):
        sch.trace.with_decision(inst, [3, 5]).apply_to_schedule(Schedule(matmul(32, 16, 24)))
    for wrong in ("ab", ["4", "8"], [4.5, 8], 32):
        for change in (
            lambda wrong=wrong: sch.trace.with_decision(inst, wrong),
            lambda wrong=wrong: sch.trace.copy().append(inst, wrong),
            lambda wrong=wrong: Trace(sch.trace.insts, {inst: wrong}),
        ):
            with pytest.raises(ScheduleError, match="argument 'decision': expected"):
                change()


def test_decision_provider():
    sch = Schedule(matmul(32, 16, 24), seed=0)
    i, *_ = sch.get_loops("C")
    sch.split(i, sch.sample_perfect_tile(i, 2, 16))
    other = Schedule(matmul(32, 16, 24))
    seen = []

    def provide(inst, args, decision):
        seen.append((inst.name, decision))
        return [16, 2]

    sch.trace.apply_to_schedule(other, decision_provider=provide)
    assert [name for name, _ in seen] == ["sample_perfect_tile"]
    assert [other.get(loop).extent.value for loop in other.get_loops("C")[:2]] == [16, 2]


def test_replay_on_another_program_names_the_instruction():
    trace = tiled().trace
    with pytest.raises(ScheduleError, match=r"instruction 0 \(get_block\).*no block 'C'"):
        trace.apply_to_schedule(Schedule(parse(RENAMED)))
    with pytest.raises(ScheduleError, match=r"instruction 1 \(get_loops\).*2 results.*3 were"):
        trace.apply_to_schedule(Schedule(chain()))


RENAMED = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("X"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
"""


@pytest.mark.parametrize(
    "data",
    [
        {"a": 1},
        [["get_block"]],
        [["get_block", ["C"], ["q0"]]],
        [["get_loops", ["$b7"], ["l1"]]],
        [[1, 2, 3]],
    ],
)
def test_broken_json_is_refused(data):
    with pytest.raises(ScheduleError):
        Trace.from_json(data)


def test_unknown_primitive_in_json():
    with pytest.raises(ScheduleError, match=r"unknown schedule primitive 'splitt'.*'split'"):
        Trace.from_json([["splitt", [], []]])


def test_simplified_drops_what_has_no_effect():
    sch = tiled()
    sch.get_loops("C")
    sch.sample_categorical([1, 2], [0.5, 0.5])
    sch.enter_postproc()
    sch.unroll(sch.get_loops("C")[1])
    names = [inst.name for inst in sch.trace.simplified()]
    assert names.count("sample_categorical") == 1
    assert "unroll" in names
    short = sch.trace.simplified(remove_postproc=True)
    assert [inst.name for inst in short] == [inst.name for inst in tiled().trace]
    other = Schedule(matmul(32, 16, 24))
    short.apply_to_schedule(other)
    assert structural_equal(other.mod, tiled().mod)


def test_remove_postproc_on_replay():
    sch = tiled()
    sch.enter_postproc()
    sch.unannotate(sch.get_block("C"), "unroll")
    other = Schedule(matmul(32, 16, 24))
    sch.trace.apply_to_schedule(other, remove_postproc=True)
    assert structural_equal(other.mod, tiled().mod)


def test_several_functions_and_work_on():
    mod = IRModule({"f": matmul(), "g": chain()})
    sch = Schedule(mod)
    with pytest.raises(ScheduleError, match=r"say which function is meant"):
        sch.get_block("C")
    sch.work_on("g")
    assert len(sch.get_loops(sch.get_block("C"))) == 2
    assert len(sch.get_loops(sch.get_block("C", func_name="f"))) == 3
    before = sch.mod["f"]
    sch.parallel(sch.get_loops("C")[0])
    assert sch.mod["f"] is before
    other = Schedule(mod)
    sch.trace.apply_to_schedule(other)
    assert structural_equal(other.mod, sch.mod)


def test_lookups():
    sch = Schedule(chain())
    b, c, d, root = map(sch.get_block, ("B", "C", "D", "root"))

    def names(found):
        return [item.name for item in found]

    assert names(sch.get_producers(c)) == ["B"]
    assert names(sch.get_consumers(c)) == ["D"]
    assert names(sch.get_consumers(d)) == []
    assert names(sch.get_producers(b)) == []
    assert names(sch.get_child_blocks(root)) == ["B", "C", "D"]
    assert names(sch.get_child_blocks(sch.get_loops(c)[0])) == ["C"]
    assert names(sch.get_output_blocks(root)) == ["D"]
    assert sch.has_block("B")
    assert not sch.has_block("Z")
    assert "has_block" not in [inst.name for inst in sch.trace]


def test_primitives_are_documented_methods():
    for name, item in PRIMITIVES.items():
        assert getattr(Schedule, name).__doc__, name
        assert item.function.__doc__.strip().split("\n")[0].rstrip(" ").endswith(
            (".", ",", ":")
        ) or ("." in item.function.__doc__), name
    assert isinstance(Schedule(matmul()).get_block("C"), BlockRV)


def test_what_was_there_is_known_without_having_been_asked_for():
    """Else what a primitive does would depend on the questions before, also those undone."""
    func = chain()
    state = Schedule(func).state
    saved = state.snapshot()
    assert not saved[2]  # no index was built
    state.set_func("main", func.with_attr("tir.noalias", False))
    ((name, old),) = state.changed_since(saved)
    assert name == "main" and old is not None and "B" in old.blocks
