"""The fuzzer: it finds nothing in what is there, and finds what is wrong on purpose."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.everyday import few
from tilewright.ir import FloatImm, IntImm, add, const, rewrite_bottom_up, structural_equal
from tilewright.script import parse
from tilewright.support.errors import ScheduleError
from tilewright.testing.fuzz import __main__ as command
from tilewright.testing.fuzz.draw import Row, args, block
from tilewright.testing.fuzz.drawers import DRAWERS, EXCLUDED
from tilewright.testing.fuzz.driver import (
    Chooser,
    Counts,
    Finding,
    Options,
    primitives_without_drawer,
    run_cases,
)
from tilewright.testing.fuzz.hard_programs.nests import written_out
from tilewright.testing.fuzz.programs import Program, iterations
from tilewright.testing.fuzz.session import Fault, Session
from tilewright.testing.fuzz.shrink import reproduce, reproduction, shrink, write
from tilewright.testing.fuzz.stages import FORMS, generate
from tilewright.testing.fuzz.steps import BlockRef, LoopRef, Made, Step
from tilewright.tir import BufferStore, PrimFunc
from tilewright.tir.analysis import verify
from tilewright.tir.analysis.meetings import Meetings
from tilewright.tir.interpreter import run
from tilewright.tir.schedule import PRIMITIVES, BlockRV, Schedule, primitive
from tilewright.tir.schedule.methods import PrimitiveMethods

# ---- the everyday dose --------------------------------------------------------------------------


def fuzz(cases: list[str], **options: object) -> tuple[Counts, list[Finding]]:
    counts, found = Counts(), []
    run_cases(cases, Options(**options), counts=counts, enough=lambda: False, found=found.append)
    return counts, found


@few("part", range(4), every=4)
def test_random_primitives_keep_the_meaning(part: int) -> None:
    counts, found = fuzz([f"suite-{part}-{n}@stages" for n in range(15)], compile_every=4)
    assert not found, reproduction(shrink(found[0], seconds=5))
    assert counts.programs == 15
    assert counts.applications > 80
    assert counts.refusals > 40
    assert counts.compiled > 0


FAMILIES_IN_SUITE = [
    "aliases", "carried", "control", "data-driven", "halves", "indirect", "integers", "kernels",
    "modules", "orders", "quotients", "sizes", "updates",
]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES_IN_SUITE)
def test_hard_programs_keep_their_meaning(family: str) -> None:
    counts, found = fuzz([f"suite-{n}@{family}" for n in range(2)], compile_every=2)
    assert not found, reproduction(shrink(found[0], seconds=5))
    assert counts.programs == 2
    assert counts.applications > 4


def test_every_primitive_has_a_drawer_or_a_reason() -> None:
    assert primitives_without_drawer() == []
    assert not set(DRAWERS) & set(EXCLUDED)
    assert [name for name in (*DRAWERS, *EXCLUDED) if name not in PRIMITIVES] == []


@pytest.mark.slow
def test_every_primitive_is_accepted_at_times() -> None:
    """A drawer whose arguments never fit proves nothing."""
    counts, _ = fuzz([f"accept-{n}@stages" for n in range(60)], compile_every=0, accepted=30)
    for name in [name for name in DRAWERS if not counts.accepted[name]]:
        rare = Counts()
        run_cases(
            (f"accept-{name}-{n}@{('stages', 'updates')[n % 2]}" for n in range(400)),
            Options(only=(name,), compile_every=0),
            counts=rare,
            enough=lambda name=name, rare=rare: bool(rare.accepted[name]),
            found=lambda finding: None,
        )
        assert rare.accepted[name], f"{name}: {rare.refused[name]} refused, none accepted"


# ---- programs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_programs_are_well_formed_exact_and_small(seed: int) -> None:
    program = generate(seed)
    func = program.build()
    verify(func)
    assert structural_equal(parse(func.script()), func)
    assert iterations(program) < 3000
    for dims in program.sizes():
        first, second = program.arrays(seed, dims), program.arrays(seed, dims)
        run(func, *first)
        run(func, *second)
        for tensor, a, b in zip(program.params, first, second):
            np.testing.assert_array_equal(a, b)
            if program.exact and a.dtype.kind == "f":
                assert np.isfinite(a).all(), tensor
                np.testing.assert_array_equal(a, np.round(a))


def test_programs_are_of_all_forms() -> None:
    programs = [generate(seed) for seed in range(400)]
    forms = {stage.form for program in programs for stage in program.stages}
    assert forms == {form.__name__ for form, _ in FORMS}
    assert any(program.symbolic for program in programs)
    assert any(not program.exact for program in programs)
    assert {t.dtype for p in programs for t in p.params} >= {
        "float32", "float64", "int8", "uint8", "int32", "int64", "bool",
    }  # fmt: skip
    text = "".join(program.text() for program in programs)
    for word in ("T.where", "T.match_buffer", "T.init", "T.reads", "if_then_else", "opaque"):
        assert word in text


def test_a_seed_always_gives_the_same_program() -> None:
    assert generate("x").text() == generate("x").text() != generate("y").text()


# ---- what a session checks ----------------------------------------------------------------------


def program_of(form: str, seed: int = 0) -> Program:
    """The first program with a stage of a form."""
    return next(
        generate(number)
        for number in range(seed, seed + 2000)
        if any(stage.form == form for stage in generate(number).stages)
    )


@pytest.fixture
def temporarily() -> Iterator[None]:
    """Let a test register primitives, and forget them afterwards."""
    before = dict(PRIMITIVES._entries)
    rows = dict(DRAWERS)
    yield
    for name in set(PRIMITIVES._entries) - set(before):
        PRIMITIVES._entries.pop(name)
        delattr(PrimitiveMethods, name)
    DRAWERS.clear()
    DRAWERS.update(rows)


def first_block(session: Session) -> str:
    return next(name for name in session.sch.state.index("main").blocks if name != "root")


def test_a_wrong_primitive_is_found_and_shrunk(temporarily: None) -> None:
    @primitive
    def off_by_one(sch: Schedule, block: BlockRV) -> None:
        """Add one to what a block stores, which is wrong."""
        target = sch.state.get_block(block).block

        def more(node: object) -> object:
            if type(node) is BufferStore and not isinstance(node.value, (FloatImm, IntImm)):
                return node.replace(value=add(node.value, const(1, node.value.dtype)))
            return node

        sch.state.replace(target, target.replace(body=rewrite_bottom_up(target.body, more)))

    DRAWERS["off_by_one"] = Row(4, args(block))
    _, found = fuzz([f"wrong-{n}" for n in range(12)], compile_every=0)
    assert found
    assert {finding.fault.primitive for finding in found} == {"off_by_one"}
    small = shrink(found[0], seconds=20)
    assert [step.primitive for step in small.steps][-1] == "off_by_one"
    assert len(small.steps) <= 2
    assert len(small.program.stages) <= 2
    assert small.fault.kind == "meaning"
    text = reproduction(small)
    scope: dict[str, object] = {"__name__": "reproduction"}
    exec(compile(text, "<reproduction>", "exec"), scope)
    sch = Schedule(parse(scope["PROGRAM"]))
    scope["apply_trace"](sch)
    assert "off_by_one" in str(sch.trace)


def check_fault(session: Session, step: Step, kind: str) -> Fault:
    with pytest.raises(Fault) as caught:
        session.apply(step)
    assert caught.value.kind == kind
    return caught.value


def test_faults_of_primitives_are_told_apart(temporarily: None) -> None:
    @primitive
    def leaks(sch: Schedule) -> None:
        """Raise what is no ScheduleError."""
        raise ValueError("not for users")

    @primitive
    def breaks(sch: Schedule, block: BlockRV) -> None:
        """Leave a program that is not well formed."""
        target = sch.state.get_block(block)
        sch.state.replace(target, target.replace(iter_values=()))

    @primitive
    def says_nothing(sch: Schedule) -> None:
        """Refuse without a reason."""
        raise ScheduleError("")

    @primitive
    def hangs(sch: Schedule) -> None:
        """Never come back."""
        while True:
            pass

    session = Session(program_of("reduction"), limit=0.2)
    assert "ValueError" in check_fault(session, Step("leaks"), "crash").detail
    check_fault(session, Step("says_nothing"), "message")
    check_fault(session, Step("hangs"), "slow")
    block = BlockRef(first_block(session))
    if session.sch.get(session.sch.get_block(block.name)).iter_vars:
        check_fault(session, Step("breaks", (block,)), "not well formed")


def test_a_refusal_that_changes_the_program_is_found(temporarily: None) -> None:
    session = Session(program_of("elementwise"))
    before = session.sch.mod
    error = ScheduleError("a refusal that says why")
    session.check_refusal("split", before, 0, error, True)
    session.sch.annotate(first_block(session), "x", 1)
    with pytest.raises(Fault, match="changed the program"):
        session.check_refusal("split", before, 0, error, True)
    with pytest.raises(Fault, match="recorded"):
        session.check_refusal("split", session.sch.mod, 0, error, True)


def test_loops_that_run_at_once_run_backwards_too(
    temporarily: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What looks for races itself sees these first.
    monkeypatch.setattr(Meetings, "find", lambda *_, **__: None)

    @primitive
    def anyway(sch: Schedule, block: BlockRV) -> None:
        """Run the outermost loop of a block in parallel without looking."""
        loop = sch.state.loops_above(sch.state.get_block(block))[0]
        sch.state.replace(loop, loop.replace(kind="parallel"))

    found = []
    for number in range(300):
        program = generate(number)
        if program.stages[0].form != "scan" or any(d < 2 for d in program.dims.values()):
            continue
        session = Session(program)
        try:
            session.apply(Step("anyway", (BlockRef(first_block(session)),)))
        except Fault as fault:
            found.append(fault)
    assert found
    assert all(fault.kind == "meaning" and "backwards" in fault.detail for fault in found)


# ---- steps --------------------------------------------------------------------------------------


def test_steps_refer_to_blocks_loops_and_results() -> None:
    program = program_of("elementwise")
    session = Session(program)
    name = first_block(session)
    steps = [
        Step("split", (LoopRef(name, 0), [None, 2]), number=1),
        Step("unroll", (Made(1, 1),), number=2),
        Step("unroll", (Made(7, 0),), number=3),
        Step("unroll", (LoopRef(name, 99),), number=4),
        Step("unroll", (LoopRef("nowhere", 0),), number=5),
    ]
    outcomes = [session.apply(step) for step in steps]
    assert outcomes == ["accepted", "accepted", "skipped", "skipped", "skipped"]
    assert str(steps[0]) == f"split({name}.loops[0], [None, 2])"
    assert reproduce(program, steps) is None


def test_a_sampling_inside_of_a_step_is_repeated() -> None:
    program = program_of("elementwise")
    session = Session(program)
    loop = LoopRef(first_block(session), 0)
    step = Step("split", (loop, Step("sample_perfect_tile", (loop, 2))))
    session.apply(step)
    again = Session(program, seed=17)
    again.apply(step)
    assert "decision" in str(step) or not session.steps
    assert structural_equal(session.sch.mod, again.sch.mod)


def test_drawn_steps_depend_on_the_seed_only() -> None:
    def texts() -> list[str]:
        session, rng, chooser = Session(generate(5)), random.Random(3), Chooser()
        made = []
        for number in range(25):
            step = chooser.step(session, rng, number)
            if step is not None:
                session.apply(step)
                made.append(str(step))
        return made

    assert texts() == texts()


# ---- the command --------------------------------------------------------------------------------


def test_the_command_counts_and_returns_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = command.main(
        [
            "--applications",
            "150",
            "--jobs",
            "1",
            "--seed",
            "5",
            "--family",
            "stages",
            "--folder",
            str(tmp_path),
        ]
    )
    text = capsys.readouterr().out
    assert code == 0, text
    assert "applied" in text and "refused" in text and "faults 0" in text
    assert any(line.split()[:1] == ["split"] for line in text.split("\n"))


def test_the_command_returns_one_and_writes_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], temporarily: None
) -> None:
    @primitive
    def leaks(sch: Schedule) -> None:
        """Raise what is no ScheduleError."""
        raise ValueError("not for users")

    DRAWERS["leaks"] = Row(20, args())
    code = command.main(["--seconds", "1.5", "--jobs", "1", "--folder", str(tmp_path), "--quiet"])
    assert code == 1
    assert "crash (leaks)" in capsys.readouterr().out
    path = next(tmp_path.iterdir())
    assert "ValueError" in path.read_text()


def test_a_case_runs_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tilewright.testing.fuzz", "--case", "0-3@stages", "--quiet"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "programs 1 " in done.stdout


def test_files_of_faults_get_different_names(tmp_path: Path) -> None:
    finding = Finding(Fault("meaning", "split", "x"), program_of("pad"), [], "0-0")
    assert write(finding, tmp_path) != write(finding, tmp_path)
    assert isinstance(finding.program.build(), PrimFunc)


def test_nests_are_written_out() -> None:
    short = "C = A\n    nest B(i: T.min(d0, 2), k: R d1):\n        C[vi] = A[vk]\n"
    assert written_out(f"{short}nest Z(j: d0):\n    D[vj] = 1\n") == (
        "C = A\n"
        "    for i, k in T.grid(T.min(d0, 2), d1):\n"
        '        with T.block("B"):\n'
        '            vi, vk = T.axis.remap("SR", [i, k])\n'
        "            C[vi] = A[vk]\n"
        "for j in T.serial(d0):\n"
        '    with T.block("Z"):\n'
        "        vj = T.axis.spatial(d0, j)\n"
        "        D[vj] = 1\n"
    )
