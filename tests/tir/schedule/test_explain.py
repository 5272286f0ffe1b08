"""What ``explain`` says of blocks: golden text, figures, and why primitives are refused."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from schedule_cases import chain, conv2d, matmul_relu

from tilewright import te
from tilewright.ir import as_int
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.target import Target
from tilewright.tir import PrimFunc, TensorIntrin
from tilewright.tir.schedule import Schedule

TARGET = "llvm -mcpu=x86-64-v3 -num-cores=2"


def softmax(n: Any, m: Any) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    k, k2 = te.reduce_axis((0, m), "k"), te.reduce_axis((0, m), "k2")
    top = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="top")
    low = te.compute((n, m), lambda i, j: te.exp(a[i, j] - top[i]), name="low")
    total = te.compute((n,), lambda i: te.sum(low[i, k2], axis=k2), name="total")
    out = te.compute((n, m), lambda i, j: low[i, j] / total[i], name="out")
    return te.create_prim_func([a, out])


def golden(sch: Schedule, block: str | None = None) -> str:
    """The text, with refusals cut to the call; of a single block without what may come next."""
    lines = str(sch.explain(block, target=TARGET)).split("\n")
    if block is not None:
        return "\n".join(lines[: lines.index("  next:")])
    # Which intrinsics there are depends on what else has been imported.
    kept = [line for line in lines if "tensorize(" not in line]
    return "\n".join(line.split(":")[0] if "    no   " in line else line for line in kept)


# ---- golden text --------------------------------------------------------------------------------


def test_matmul_and_relu():
    assert golden(Schedule(matmul_relu(128, 64, 256))) == MATMUL_RELU.strip("\n")


def test_convolution():
    assert golden(Schedule(conv2d(32, 8, 16)), "conv") == CONVOLUTION.strip("\n")


def test_symbolic_softmax():
    sch = Schedule(softmax(te.var("n"), te.var("m")))
    assert golden(sch, "low") == SOFTMAX.strip("\n")


MATMUL_RELU = """
block C (reduction)
  operations: 4194304, bytes touched: 224 KiB
  operations per byte: 18.29
  loop  extent  kind    axes     touches C  touches A  touches B
  i     128     serial  spatial  32 KiB     128 KiB    64 KiB
  j     64      serial  spatial  256 B      1 KiB      64 KiB
  k     256     serial  reduce   4 B        1 KiB      1 KiB
  buffer  reads  writes  touched  reuse  step along k
  C       8 MiB  8 MiB   32 KiB   512    same element
  A       8 MiB  0 B     128 KiB  64     contiguous
  B       8 MiB  0 B     64 KiB   128    64
  vectors of the innermost loop: none: loop k runs over a reduce axis
  next:
    no   compute_inline
    yes  compute_at(D, i)
    yes  compute_at(D, j)
    no   vectorize(k)
    yes  parallel(i)
    yes  decompose_reduction(k)
    yes  rfactor(k)
    yes  cache_write(C)
    yes  cache_read(A)
    yes  cache_read(B)

block D (complete)
  operations: 8192, bytes touched: 64 KiB
  operations per byte: 0.125
  loop  extent  kind    axes     touches C  touches D
  i     128     serial  spatial  32 KiB     32 KiB
  j     64      serial  spatial  256 B      256 B
  buffer  reads   writes  touched  reuse  step along j
  C       32 KiB  0 B     32 KiB   1      contiguous
  D       0 B     32 KiB  32 KiB   1      contiguous
  vectors of the innermost loop: 8 lanes
  next:
    no   compute_inline
    no   reverse_compute_inline
    yes  reverse_compute_at(C, i)
    yes  reverse_compute_at(C, j)
    no   reverse_compute_at(C, k)
    yes  vectorize(j)
    yes  parallel(i)
    yes  cache_write(D)
    yes  cache_read(C)
"""

CONVOLUTION = """
block conv (reduction)
  operations: 2359296, bytes touched: 104.6 KiB
  operations per byte: 22.02
  loop  extent  kind    axes     touches conv  touches pad  touches weight
  h     32      serial  spatial  64 KiB        36.12 KiB    4608 B
  w     32      serial  spatial  2 KiB         3264 B       4608 B
  f     16      serial  spatial  64 B          288 B        4608 B
  rh    3       serial  reduce   4 B           288 B        288 B
  rw    3       serial  reduce   4 B           96 B         96 B
  rc    8       serial  reduce   4 B           32 B         32 B
  buffer  reads     writes    touched    reuse  step along rc
  conv    4608 KiB  4608 KiB  64 KiB     144    same element
  pad     4608 KiB  0 B       36.12 KiB  127.6  contiguous
  weight  4608 KiB  0 B       4608 B     1024   16
  vectors of the innermost loop: none: loop rc runs over a reduce axis
"""

SOFTMAX = """
block low (complete)
  operations: n * m * 2, bytes touched: (n * m * 8 + n * 4) B
  operations per byte: (n * m * 2) / (n * m * 8 + n * 4)
  loop  extent  kind    axes     touches A    touches top  touches low
  i     n       serial  spatial  m * n * 4 B  n * 4 B      m * n * 4 B
  j     m       serial  spatial  m * 4 B      4 B          m * 4 B
  buffer  reads        writes       touched      reuse  step along j
  A       n * m * 4 B  0 B          n * m * 4 B  1      contiguous
  top     n * m * 4 B  0 B          n * 4 B      m      same element
  low     0 B          n * m * 4 B  n * m * 4 B  1      contiguous
  vectors of the innermost loop: 8 lanes: loop j needs a split with a tail
"""


# ---- figures ------------------------------------------------------------------------------------


def test_a_tiled_matmul():
    sch = Schedule(matmul_relu(128, 64, 256))
    i, j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, 8])
    j0, j1 = sch.split(j, [None, 16])
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(i0, j0, k0, k1, i1, j1)
    facts = sch.explain("C", target=TARGET)["C"]
    assert [loop.iterates for loop in facts.loops] == [
        "spatial", "spatial", "reduce", "reduce", "spatial", "spatial"
    ]  # fmt: skip
    tile = facts.loops[3]  # one run of k1: a tile of C, four columns of A, four rows of B
    assert {name: count.number for name, count in tile.touches.items()} == {
        "A": 4 * 8 * 4, "B": 4 * 4 * 16, "C": 4 * 8 * 16
    }  # fmt: skip
    assert tile.writes["A"].number == 0
    assert tile.writes["C"].number == tile.reads["C"].number == 4 * 8 * 16
    assert facts.vector_lanes == 8
    assert facts.flops.number == 2 * 128 * 64 * 256
    steps = {item.name: [as_int(step) for step in item.steps] for item in facts.buffers}
    assert steps == {"A": [0], "B": [1], "C": [1]}
    assert all(item.is_contiguous for item in facts.buffers)


def test_figures_agree_with_each_other():
    explained = Schedule(conv2d(16, 4, 8)).explain(target=TARGET)
    for block in explained.blocks:
        for buffer in block.buffers:
            assert block.loops[0].touches[buffer.name].number == buffer.touched.number
        total = sum(buffer.touched.number for buffer in block.buffers)
        assert block.bytes_touched.number == total
        assert block.intensity.number == block.flops.number / total


def test_ratios_that_do_not_depend_on_sizes_are_numbers():
    explained = Schedule(softmax(te.var("n"), te.var("m"))).explain(target=TARGET)
    reuse = {item.name: item.reuse for item in explained["low"].buffers}
    assert reuse["A"].number == 1
    assert reuse["top"].number is None
    assert str(reuse["top"]) == "m"


def test_thread_and_parallel_loops_and_conditions():
    sch = Schedule(chain(30, 12))
    loop = sch.get_loops("B")[0]
    outer, inner = sch.split(loop, [None, 8])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    facts = sch.explain("B", target=TARGET)["B"]
    assert [item.kind for item in facts.loops] == ["blockIdx.x", "threadIdx.x", "serial"]
    assert facts.loops[0].touches["B"].number == 4 * 30 * 12
    assert facts.loops[0].touches["B"].exact
    # Inside one iteration of the outer loop, the last tile is cut.
    assert repr(facts.loops[1].touches["B"]) == "(min(8, (30 - (i_0 * 8))) * 48)"


def test_symbolic_tail():
    sch = Schedule(softmax(te.var("n"), 64))
    sch.split(sch.get_loops("out")[0], [None, 32])
    facts = sch.explain("out", target=TARGET)["out"]
    (out,) = [item for item in facts.buffers if item.name == "out"]
    assert repr(out.writes) == "(n * 256)"


@pytest.mark.parametrize(
    ("change", "lanes", "note"),
    [
        (lambda s: None, 4, ""),
        (lambda s: s.reorder(*reversed(s.get_loops("B"))), 1, "B is not written in order"),
        (lambda s: s.parallel(s.get_loops("B")[1]), 1, "loop j is parallel"),
        (lambda s: s.split(s.get_loops("B")[1], [None, 3]), 1, "the extent 3 of loop j_1 is odd"),
        (lambda s: s.fuse(*s.get_loops("B")), 8, ""),
    ],
)
def test_vectors(change: Any, lanes: int, note: str):
    sch = Schedule(chain(16, 12))
    change(sch)
    facts = sch.explain("B", target=TARGET)["B"]
    assert facts.vector_lanes == lanes
    assert note in facts.vector_note
    assert bool(note) == bool(facts.vector_note)


def test_gathers_are_noted():
    a = te.placeholder((16, 16), name="A")
    b = te.compute((16, 16), lambda i, j: a[j, i] + a[i, j // 2], name="B")
    facts = Schedule(te.create_prim_func([a, b])).explain("B", target=TARGET)["B"]
    (source,) = [item for item in facts.buffers if item.name == "A"]
    assert {None if step is None else as_int(step) for step in source.steps} == {16, None}
    assert not source.is_contiguous
    assert facts.vector_lanes == 8
    assert facts.vector_note == "A would be gathered"


# ---- what may come next -------------------------------------------------------------------------


def reasons(sch: Schedule, block: str) -> dict[str, str]:
    found = sch.explain(block, target=TARGET)[block]
    return {item.call: item.reason for item in found.attempts}


def test_a_refusal_is_what_the_primitive_says():
    sch = Schedule(matmul_relu())
    found = reasons(sch, "C")
    with pytest.raises(ScheduleError) as caught:
        sch.vectorize(sch.get_loops("C")[2])
    assert f"vectorize: {found['vectorize(k)']}" == str(caught.value).split("\n")[0]
    assert found["parallel(i)"] == ""
    sch.parallel(sch.get_loops("C")[0])


def test_what_applies_may_be_applied():
    for program in (matmul_relu(), conv2d(8, 3, 4), softmax(te.var("n"), 8), chain()):
        sch = Schedule(program)
        for block in sch.explain(target=TARGET).blocks:
            applies = {item.call for item in block.attempts if item.applies}
            assert ("compute_inline" in applies) == accepted(sch, "compute_inline", block.name)
            assert any(call.startswith("parallel") for call in applies)


def accepted(sch: Schedule, primitive: str, block: str) -> bool:
    try:
        getattr(sch.copy(), primitive)(block)
    except ScheduleError:
        return False
    return True


def test_primitives_are_offered_where_they_make_sense():
    calls = set(reasons(Schedule(chain()), "B"))
    assert "compute_at(C, i)" in calls
    assert not any(
        call.startswith(("rfactor", "decompose", "reverse_compute_at")) for call in calls
    )
    calls = set(reasons(Schedule(matmul_relu()), "D"))
    assert {"reverse_compute_at(C, i)", "reverse_compute_inline", "cache_write(D)"} <= calls
    assert not any(call.startswith("compute_at") for call in calls)


def test_intrinsics_are_tried(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(TensorIntrin._registry, "_entries", {})
    text = """
@T.prim_func
def main(A: T.Buffer((12,), "float32"), B: T.Buffer((12,), "float32")):
    with T.block("root"):
        T.reads(A[0:12])
        T.writes(B[0:12])
        for i in range(12):
            with T.block("twice"):
                vi = T.axis.spatial(12, i)
                B[vi] = A[vi] * T.float32({factor})
"""
    for name, factor in (("twice", 2), ("thrice", 3)):
        func = parse(text.format(factor=factor))
        TensorIntrin.register(name, func, func)
    found = reasons(Schedule(chain(16, 12)), "B")
    assert found["tensorize(j, twice)"] == ""
    assert found["tensorize(j, thrice)"] != ""


def test_a_tensorized_block(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(TensorIntrin._registry, "_entries", {})
    header = """
@T.prim_func
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    with T.block("root"):
        T.reads(A[0:4])
        T.writes(B[0:4])
"""
    loop = """
        for i in range(4):
            with T.block("twice"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * T.float32(2)
"""
    call = """
        T.evaluate(T.call_extern("twice", T.address_of(A[0], dtype="handle"),
            T.address_of(B[0], dtype="handle"), dtype="int32"))
"""
    TensorIntrin.register("twice", parse(header + loop), parse(header + call), check=False)
    sch = Schedule(chain(16, 12))
    _, inner = sch.split(sch.get_loops("B")[1], [None, 4])
    sch.tensorize(inner, "twice")
    (name,) = [n for n in sch.state.index("main").blocks if n not in ("root", "C", "D")]
    facts = sch.explain(name, target=TARGET)[name]
    assert facts.has_intrinsic
    assert "operations: 0 and those of an intrinsic" in str(sch.explain(name, target=TARGET))
    assert {item.name: item.touched.number for item in facts.buffers} == {"A": 768, "B": 768}
    assert facts.loops[1].touches["A"].number == 4 * 12
    assert (facts.vector_lanes, facts.vector_note) == (1, "an intrinsic does the work")


# ---- the call itself ----------------------------------------------------------------------------


def test_nothing_is_changed(capsys: pytest.CaptureFixture[str]):
    sch = Schedule(matmul_relu(), seed=3)
    sch.split(sch.get_loops("C")[0], [None, 4])
    before = sch.mod, list(sch.trace.insts), sch.rng.state
    found = sch.explain(target=TARGET)
    assert (sch.mod, list(sch.trace.insts), sch.rng.state) == before
    assert capsys.readouterr().out == f"{found}\n"
    assert [inst.name for inst in sch.undo()] == ["split"]


def test_names_handles_and_targets():
    sch = Schedule(matmul_relu())
    by_handle = sch.explain(sch.get_block("D"), target=TARGET)
    assert [block.name for block in by_handle.blocks] == ["D"]
    with pytest.raises(KeyError):
        by_handle["C"]
    with pytest.raises(ScheduleError, match="'nothing' is not in function 'main'"):
        sch.explain("nothing")
    with Target("llvm -mcpu=x86-64-v4 -num-cores=2"):
        assert sch.explain("D")["D"].vector_lanes == 8  # of the extent 8; sixteen don't fit
    gone = sch.get_block("D")
    sch.remove_rv(gone)
    with pytest.raises(ScheduleError, match="remove_rv dropped it"):
        sch.explain(gone)


def test_blocks_in_blocks():
    sch = Schedule(matmul_relu(16, 16, 16))
    i, _j, _k = sch.get_loops("C")
    _outer, inner = sch.split(i, [None, 4])
    sch.blockize(inner)
    explained = sch.explain(target=TARGET)
    facts = explained["C"]
    assert [loop.name for loop in facts.loops] == ["i_1", "j", "k"]
    # Of one instance of the block around it: four rows.
    assert {item.name: item.touched.number for item in facts.buffers} == {
        "A": 4 * 4 * 16, "B": 4 * 16 * 16, "C": 4 * 4 * 16
    }  # fmt: skip


def test_in_colour_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    Schedule(chain()).explain("B", target=TARGET)
    out = capsys.readouterr().out
    assert "block B (complete)" in out
    assert "yes" in out
