"""Methods of schedules take TVM's arguments at their places."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import s_tir, te, tir
from tilewright.s_tir import SBlockDependenceInfo, SBlockScope
from tilewright.support.errors import ScheduleError, VerifyError
from tilewright.tir.schedule import (
    Instruction,
    InstructionKind,
    LoopRV,
    SBlockRV,
    Schedule,
    ScheduleDebugMask,
    ScheduleState,
    StmtSRef,
    Trace,
)


def copies() -> Schedule:
    x = te.placeholder((16, 16), name="x")
    y = te.compute((16, 16), lambda i, j: x[i, j] + 1.0, name="y")
    z = te.compute((16, 16), lambda i, j: y[i, j] * 2.0, name="z")
    return Schedule(te.create_prim_func([x, z]), seed=1)


def test_blocks_are_found_by_both_names() -> None:
    sch = copies()
    block = sch.get_sblock("y", "main")
    assert sch.get(block) is sch.get(rand_var_or_sref=sch.get_block(name="y", func_name="main"))
    assert sch.get(sch.get_sref(rand_var_or_stmt=block)) is sch.get(block)
    assert any("get_block" in line for line in str(sch.trace).splitlines())


def test_options_of_splits_and_decisions_have_places() -> None:
    sch = copies()
    i, j = sch.get_loops("z")
    outer, _ = sch.split(i, [None, 4], True, False)
    assert len(sch.loop_partition(j, [8, None], True)) == 2
    tiles = sch.sample_perfect_tile(sch.get_loops("y")[0], 2, 16, [4, 4])
    assert [sch.get(tile) for tile in tiles] == [4, 4]
    parts = sch.sample_partitioned_tile(sch.get_loops("y")[1], 2, 1, 2, [4, 4])
    assert [sch.get(part) for part in parts] == [4, 4]
    assert sch.get(sch.sample_categorical([3, 5], [0.5, 0.5], 1)) == 5
    where = sch.sample_compute_location(sch.get_block("y"), -1)
    sch.remove_rv(rand_var=where)
    assert isinstance(sch.get(outer), tir.For)
    again = copies()
    assert sch.trace is not None
    sch.trace.apply_to_schedule(again, remove_postproc=False)
    assert again.mod.script() == sch.mod.script()


def sampled() -> Schedule:
    sch = copies()
    i, _ = sch.get_loops("z")
    outer, inner = sch.sample_perfect_tile(i, 2, 16, [4, 4])
    sch.split(i, [outer, inner, None])
    sch.annotate("z", "note", [1, "a"])
    sch.cache_read("y", 0, "global")
    sch.enter_postproc()
    sch.reorder(*sch.get_loops("y"))
    return sch


def test_instructions_have_kinds_inputs_and_attributes() -> None:
    trace = sampled().trace
    kinds = {inst.kind.name: inst for inst in trace.insts}
    split = kinds["Split"]
    assert split.inputs[1:] == [*kinds["SamplePerfectTile"].outputs, None]
    assert kinds["SamplePerfectTile"].attrs == [2, 16] and kinds["Annotate"].attrs == ["note"]
    assert kinds["Annotate"].inputs[1] == [1, "a"] and kinds["GetSBlock"].kind.is_pure
    for inst in trace.insts:  # taken apart and put together again
        again = Instruction(inst.kind, inst.inputs, inst.attrs, inst.outputs)
        assert [*map(str, again.args)] == [*map(str, inst.args)]
        assert InstructionKind.get(inst.kind.name) == inst.kind
        assert InstructionKind.get(inst.name) == inst.kind
    with pytest.raises(ScheduleError, match="doesn't fit 1 inputs and 9 attributes"):
        Instruction(split.kind, split.inputs[:1], [True] * 9, ())
    with pytest.raises(ScheduleError, match="unknown schedule primitive 'nonsense'"):
        InstructionKind.get("Nonsense")


def test_traces_are_made_by_hand() -> None:
    block, i, j = SBlockRV(), LoopRV(), LoopRV()
    get = Instruction(InstructionKind.get("GetSBlock"), [], ["z", "main"], [block])
    loops = Instruction(InstructionKind.get("GetLoops"), [block], [], [i, j])
    tiles = [tir.schedule.ExprRV(0), tir.schedule.ExprRV(0)]
    sample = Instruction(InstructionKind.get("SamplePerfectTile"), [i], [2, 16], tiles)
    made = Trace([get, loops])
    made.append(sample, [2, 8])
    other = Trace([get, loops, sample], {sample: [8, 2]})
    assert made.get_decision(sample) == [2, 8] and other.get_decision(sample) == [8, 2]
    assert made.get_decision(get) is None
    sch = copies()
    made.apply_to_schedule(sch, remove_postproc=False)
    assert [*sch.trace.decisions.values()] == [[2, 8]]
    assert made.pop().kind.name == "SamplePerfectTile" and len(made.insts) == 2
    assert Trace([], {}).pop() is None


def test_traces_without_postprocessing(capsys: Any) -> None:
    sch = sampled()
    trace = sch.trace
    whole, part = trace.as_python(), trace.as_python(True)
    assert part == whole[: len(part)] and "enter_postproc" in whole[len(part)]
    assert len(trace.as_json(True)) == len(part) < len(trace.as_json())
    sample = next(inst for inst in trace.insts if inst.primitive.samples)
    changed = trace.with_decision(sample, [2, 8], True)
    assert len(changed.insts) == len(part) and changed.get_decision(sample) == [2, 8]
    again = copies()
    Trace.apply_json_to_schedule(trace.as_json(), again)
    assert again.mod.script() == sch.mod.script()
    trace.show()
    assert capsys.readouterr().out == str(trace)
    with pytest.raises(ScheduleError, match="formatter"):
        trace.show(black_format=True)


def test_states_are_verified_and_edited() -> None:
    sch = Schedule(copies().mod, debug_mask="all", error_render_level="fast", enable_check=True)
    assert sch.checked and sch.state.debug_mask == 3 and sch.state.enable_check
    assert ScheduleState(sch.mod, debug_mask=ScheduleDebugMask.VERIFY_SREF_TREE).debug_mask == 1
    assert sch.func_working_on == "main"
    with pytest.raises(ScheduleError) as caught:
        sch.compute_inline("z")
    assert "in the program" not in str(caught.value) and "compute_inline" in str(caught.value)
    silent = Schedule(sch.mod, error_render_level="none")
    with pytest.raises(ScheduleError, match=r"^compute_inline: refused"):
        silent.compute_inline("z")
    state = ScheduleState(sch.mod["main"])
    loop = sch.get(sch.get_loops("z")[0])
    sref = sch.get_sref(loop)
    state.replace(sref, loop.replace(annotations={"note": 1}))
    assert "note" in state.mod.script() and "note" not in sch.mod.script()
    block = sch.get(sch.get_block("y"))
    renamed = block.replace(name="other")
    state.replace(block, renamed, {block: renamed})
    assert state.get_block(SBlockRV("main", "y")).block is renamed


@pytest.mark.parametrize(
    "options, message",
    [
        ({"debug_mask": "some"}, "'none', 'all'"),
        ({"debug_mask": 4}, "'none', 'all'"),
        ({"error_render_level": "loud"}, "detail, fast, none"),
        ({"enable_check": False}, "take your word"),
    ],
)
def test_options_that_there_are_not(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        Schedule(copies().mod, **options)


def test_marks_of_places() -> None:
    root, inline = StmtSRef.root_mark(), StmtSRef.inline_mark()
    assert root != inline and root == StmtSRef.root_mark() and root.parent is None
    assert root.seq_index == -1 and root.children == [] and "root" in repr(root)
    sch = copies()
    assert sch.get_sref(sch.sample_compute_location("y", -1)) is root
    assert sch.get_sref(sch.sample_compute_location("y", -2)) is inline


def test_dependencies_of_modules() -> None:
    mod = copies().mod
    info = SBlockDependenceInfo(mod)
    sch = Schedule(mod)
    blocks = {name: sch.get(sch.get_block(name)) for name in ("root", "y", "z")}
    y, z = info.get_sref(blocks["y"]), info.get_sref(blocks["z"])
    scope = info.get_sblock_scope(info.get_sref(blocks["root"]))
    assert isinstance(scope, SBlockScope) and scope.get_deps_by_src(y)[0].dst == z
    assert info.get_sref(blocks["y"].replace(name="new")) is None


LAYOUTS = {
    ("NCHW", "NCHW16c"): ((1, 33, 7, 7), (1, 3, 7, 7, 16), (0, 17, 1, 2), (0, 1, 1, 2, 1)),
    ("NCHW", "NHWC"): ((1, 2, 3, 4), (1, 3, 4, 2), (0, 1, 2, 3), (0, 2, 3, 1)),
    ("NCHW16c", "NCHW4c"): (
        (1, 2, 3, 3, 16),
        (1, 8, 3, 3, 4),
        (0, 1, 2, 2, 7),
        (0, 5, 2, 2, 3),
    ),
}


@pytest.mark.parametrize("names", LAYOUTS, ids="-".join)
def test_maps_between_layouts(names: tuple[str, str]) -> None:
    shape, expected, index, place = LAYOUTS[names]
    made = s_tir.sbijective_layout(*names)
    assert tuple(map(int, made.forward_shape(shape))) == expected
    assert tuple(map(int, made.forward_index(index))) == place
    assert tuple(map(int, made.backward_index(place))) == index
    back = made.backward_shape(expected)
    assert all(int(a) >= b for a, b in zip(back, shape))
    assert (made.src_layout.name, made.dst_layout.name) == names
    rules = (made.index_forward_rule, made.shape_forward_rule)
    assert all(len(rule) == len(expected) for rule in rules)
    assert len(made.index_backward_rule) == len(made.shape_backward_rule) == len(shape)
    with pytest.raises(VerifyError, match="dimensions"):
        made.forward_index(index[1:])


def test_layouts_by_name() -> None:
    layout = s_tir.slayout("NCHW16c")
    assert [layout.index_of(axis) for axis in ("N", "C", "16c", "X")] == [0, 1, 4, -1]
    assert [layout.factor_of(axis) for axis in "CcN"] == [16, 16, -1]
    assert len(layout) == 5 and layout[1] == "C" and "c" in layout and "o" not in layout
    assert [axis.var.name for axis in layout.axes] == ["N", "C", "H", "W", "16c"]
    assert s_tir.slayout("NC", dtype="int64").axes[0].var.dtype == "int64"
    assert layout == s_tir.SLayout("NCHW16c") and str(layout) == "SLayout(NCHW16c)"
    for wrong in ("NCHW16c8c", "NCc", "N C"):
        with pytest.raises(VerifyError, match="is no layout"):
            s_tir.slayout(wrong)
    with pytest.raises(VerifyError, match="different axes"):
        s_tir.sbijective_layout("NCHW", "NC")


def test_layouts_take_axes() -> None:
    layout = s_tir.slayout("NCHW4c")
    again = s_tir.SLayout("NCHW4c", layout.axes)
    assert again == layout and [axis.var.name for axis in again.axes] == ["N", "C", "H", "W", "4c"]
    assert [int(axis.dom.extent) for axis in again.axes[4:]] == [4]
    part = s_tir.SLayout("NC", layout.axes[:2])
    maps = s_tir.SBijectiveLayout(part, "CN")
    assert maps.index_forward_rule == (layout.axes[1].var, layout.axes[0].var)
    with pytest.raises(VerifyError, match="has the axes"):
        s_tir.SLayout("NCHW", layout.axes)


def test_blocks_are_made_as_in_tvm() -> None:
    body = tir.Evaluate(0)
    block = s_tir.SBlock(
        [], [], [], "name", body, init=None, alloc_buffers=None, match_buffers=None,
        annotations={"a": 1},
    )  # fmt: skip
    assert block.alloc_buffers == block.match_buffers == ()
    assert (block.name_hint, block.body, dict(block.annotations)) == ("name", body, {"a": 1})
    assert s_tir.SBlock([], [], [], name_hint="other", body=body).name == "other"
    assert block.replace(name="third").name_hint == "third"


def test_maps_of_layouts_take_rules() -> None:
    source, target = s_tir.slayout("NC"), s_tir.slayout("CN")
    n, c = (axis.var for axis in source.axes)
    usual = s_tir.SBijectiveLayout(source, target)
    turned = s_tir.SBijectiveLayout(source, target, [c, 7 - n], None, [c, n + 1], None)
    assert [int(x) for x in turned.forward_index([2, 3])] == [3, 5]
    assert [int(x) for x in turned.forward_shape([8, 4])] == [4, 9]
    assert turned.backward_index([3, 5]) == usual.backward_index([3, 5])
    made = s_tir.sbijective_layout("NC", "NC4c").forward_shape([te.var("m"), 8])
    assert [extent.dtype for extent in made] == ["int64"] * 3 and int(made[2]) == 4
    with pytest.raises(VerifyError, match="has 2 dimensions, not 1"):
        s_tir.SBijectiveLayout(source, target, [c])
